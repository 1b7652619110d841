//! A stand-in for the part of a Kubernetes API server that keeps Leases and ConfigMaps: versions, conflicts, preconditions, merge patches, lists
//! and watches. A watch ends after a second, as a real one does after some minutes.
#![allow(unreachable_pub, clippy::result_large_err)]

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

#[derive(Default)]
struct Objects {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// All events, with their versions.
    events: Vec<(u64, Value)>,
}

impl Objects {
    fn happened(&mut self, kind: &str, object: &Value) {
        self.events.push((self.version, json!({ "type": kind, "object": object })));
    }

    /// Gives the object the next version.
    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }
}

/// The objects of one kind.
#[derive(Clone)]
pub struct Server {
    kind: &'static str,
    api_version: &'static str,
    objects: Arc<Mutex<Objects>>,
    changed: watch::Sender<u64>,
}

fn error(code: StatusCode, reason: &str) -> Response {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
                         "reason": reason, "code": code.as_u16() });
    (code, Json(status)).into_response()
}

impl Server {
    fn change(&self, change: impl FnOnce(&mut Objects) -> Result<Value, Response>) -> Response {
        let mut objects = self.objects.lock().unwrap();
        let answer = change(&mut objects);
        self.changed.send_replace(objects.version);
        answer.map_or_else(|refused| refused, |object| Json(object).into_response())
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

async fn create(State(server): State<Server>, Json(mut object): Json<Value>) -> Response {
    server.change(|objects| {
        if objects.objects.contains_key(&name(&object)) {
            return Err(error(StatusCode::CONFLICT, "AlreadyExists"));
        }
        objects.stamp(&mut object);
        objects.objects.insert(name(&object), object.clone());
        objects.happened("ADDED", &object);
        Ok(object)
    })
}

async fn read(State(server): State<Server>, Path((_, name)): Path<(String, String)>) -> Response {
    let objects = server.objects.lock().unwrap();
    objects
        .objects
        .get(&name)
        .map_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"), |object| Json(object).into_response())
}

async fn replace(
    State(server): State<Server>,
    Path((_, name)): Path<(String, String)>,
    Json(mut object): Json<Value>,
) -> Response {
    server.change(|objects| {
        let old = objects.objects.get(&name).ok_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"))?;
        if old["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return Err(error(StatusCode::CONFLICT, "Conflict"));
        }
        objects.stamp(&mut object);
        objects.objects.insert(name, object.clone());
        objects.happened("MODIFIED", &object);
        Ok(object)
    })
}

/// A merge patch (RFC 7386).
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            object.as_object_mut().expect("it is one").remove(&name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

async fn patch(
    State(server): State<Server>,
    Path((_, name)): Path<(String, String)>,
    Json(patch): Json<Value>,
) -> Response {
    server.change(|objects| {
        let object = objects.objects.get(&name).ok_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"))?;
        let wanted = &patch["metadata"]["resourceVersion"];
        if !wanted.is_null() && *wanted != object["metadata"]["resourceVersion"] {
            return Err(error(StatusCode::CONFLICT, "Conflict"));
        }
        let mut object = object.clone();
        merge(&mut object, patch);
        objects.stamp(&mut object);
        objects.objects.insert(name, object.clone());
        objects.happened("MODIFIED", &object);
        Ok(object)
    })
}

async fn delete(State(server): State<Server>, Path((_, name)): Path<(String, String)>, body: Bytes) -> Response {
    server.change(|objects| {
        let options: Value = serde_json::from_slice(&body).unwrap_or_default();
        let wanted = &options["preconditions"]["resourceVersion"];
        let object = objects.objects.get(&name).ok_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"))?;
        if !wanted.is_null() && *wanted != object["metadata"]["resourceVersion"] {
            return Err(error(StatusCode::CONFLICT, "Conflict"));
        }
        let mut object = objects.objects.remove(&name).expect("it was there");
        objects.stamp(&mut object);
        objects.happened("DELETED", &object);
        Ok(object)
    })
}

/// Whether the object has the label of the selector `label=value`.
fn is_selected(object: &Value, query: &HashMap<String, String>) -> bool {
    let Some((label, value)) = query.get("labelSelector").and_then(|selector| selector.split_once('=')) else {
        return true;
    };
    object["metadata"]["labels"][label] == *value
}

async fn list(State(server): State<Server>, Query(query): Query<HashMap<String, String>>) -> Response {
    if query.get("watch").is_none_or(|watch| watch != "true") {
        let objects = server.objects.lock().unwrap();
        let items: Vec<_> = objects.objects.values().filter(|object| is_selected(object, &query)).collect();
        let metadata = json!({ "resourceVersion": objects.version.to_string() });
        let list = json!({ "kind": format!("{}List", server.kind), "apiVersion": server.api_version, "metadata": metadata, "items": items });
        return Json(list).into_response();
    }
    let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let end = tokio::time::Instant::now() + Duration::from_secs(1);
    let state = (server.clone(), server.changed.subscribe(), from);
    let lines = futures_util::stream::unfold(state, move |(server, mut changed, seen)| {
        let query = query.clone();
        async move {
            loop {
                let new: Vec<_> = {
                    let objects = server.objects.lock().unwrap();
                    let new = objects.events.iter().filter(|(version, _)| *version > seen);
                    new.cloned().collect()
                };
                if let Some((last, _)) = new.last() {
                    let selected = new.iter().filter(|(_, event)| is_selected(&event["object"], &query));
                    let text: String = selected.map(|(_, event)| format!("{event}\n")).collect();
                    return Some((Ok::<_, Infallible>(text), (server, changed, *last)));
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    () = tokio::time::sleep_until(end) => return None,
                }
            }
        }
    });
    Body::from_stream(lines).into_response()
}

impl Server {
    fn new(kind: &'static str, api_version: &'static str) -> Self {
        Self { kind, api_version, objects: Arc::default(), changed: watch::Sender::new(0) }
    }

    fn routes(&self, group: &str, resource: &str) -> Router {
        let base = format!("{group}/namespaces/{{namespace}}/{resource}");
        Router::new()
            .route(&format!("{group}/{resource}"), get(list))
            .route(&base, get(list).post(create))
            .route(&format!("{base}/{{name}}"), get(read).put(replace).patch(patch).delete(delete))
            .with_state(self.clone())
    }

    /// All objects.
    #[allow(dead_code)]
    pub fn all(&self) -> Vec<Value> {
        self.objects.lock().unwrap().objects.values().cloned().collect()
    }

    /// All events so far: the object after each change.
    #[allow(dead_code)]
    pub fn history(&self) -> Vec<Value> {
        self.objects.lock().unwrap().events.iter().map(|(_, event)| event["object"].clone()).collect()
    }
}

/// Starts the server; it ends with the runtime. Returns its address, and its ConfigMaps.
pub async fn start() -> (String, Server) {
    let leases = Server::new("Lease", "coordination.k8s.io/v1");
    let config_maps = Server::new("ConfigMap", "v1");
    let routes =
        leases.routes("/apis/coordination.k8s.io/v1", "leases").merge(config_maps.routes("/api/v1", "configmaps"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (address, config_maps)
}
