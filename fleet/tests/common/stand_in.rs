//! A stand-in for the part of a Kubernetes API server that keeps Leases: versions, conflicts, preconditions, lists and watches. A watch ends
//! after a second, as a real one does after some minutes.
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
struct Leases {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// All events, with their versions.
    events: Vec<(u64, Value)>,
}

impl Leases {
    fn happened(&mut self, kind: &str, object: &Value) {
        self.events.push((self.version, json!({ "type": kind, "object": object })));
    }

    /// Gives the object the next version.
    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }
}

#[derive(Clone)]
struct Server {
    leases: Arc<Mutex<Leases>>,
    changed: watch::Sender<u64>,
}

fn error(code: StatusCode, reason: &str) -> Response {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
                         "reason": reason, "code": code.as_u16() });
    (code, Json(status)).into_response()
}

impl Server {
    fn change(&self, change: impl FnOnce(&mut Leases) -> Result<Value, Response>) -> Response {
        let mut leases = self.leases.lock().unwrap();
        let answer = change(&mut leases);
        self.changed.send_replace(leases.version);
        answer.map_or_else(|refused| refused, |object| Json(object).into_response())
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

async fn create(State(server): State<Server>, Json(mut object): Json<Value>) -> Response {
    server.change(|leases| {
        if leases.objects.contains_key(&name(&object)) {
            return Err(error(StatusCode::CONFLICT, "AlreadyExists"));
        }
        leases.stamp(&mut object);
        leases.objects.insert(name(&object), object.clone());
        leases.happened("ADDED", &object);
        Ok(object)
    })
}

async fn read(State(server): State<Server>, Path((_, name)): Path<(String, String)>) -> Response {
    let leases = server.leases.lock().unwrap();
    leases.objects.get(&name).map_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"), |object| Json(object).into_response())
}

async fn replace(State(server): State<Server>, Path((_, name)): Path<(String, String)>, Json(mut object): Json<Value>) -> Response {
    server.change(|leases| {
        let old = leases.objects.get(&name).ok_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"))?;
        if old["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return Err(error(StatusCode::CONFLICT, "Conflict"));
        }
        leases.stamp(&mut object);
        leases.objects.insert(name, object.clone());
        leases.happened("MODIFIED", &object);
        Ok(object)
    })
}

async fn delete(State(server): State<Server>, Path((_, name)): Path<(String, String)>, body: Bytes) -> Response {
    server.change(|leases| {
        let options: Value = serde_json::from_slice(&body).unwrap_or_default();
        let wanted = &options["preconditions"]["resourceVersion"];
        let object = leases.objects.get(&name).ok_or_else(|| error(StatusCode::NOT_FOUND, "NotFound"))?;
        if !wanted.is_null() && *wanted != object["metadata"]["resourceVersion"] {
            return Err(error(StatusCode::CONFLICT, "Conflict"));
        }
        let mut object = leases.objects.remove(&name).expect("it was there");
        leases.stamp(&mut object);
        leases.happened("DELETED", &object);
        Ok(object)
    })
}

/// Whether the object has the label of the selector `label=value`.
fn is_selected(object: &Value, query: &HashMap<String, String>) -> bool {
    let Some((label, value)) = query.get("labelSelector").and_then(|selector| selector.split_once('=')) else { return true };
    object["metadata"]["labels"][label] == *value
}

async fn list(State(server): State<Server>, Query(query): Query<HashMap<String, String>>) -> Response {
    if query.get("watch").is_none_or(|watch| watch != "true") {
        let leases = server.leases.lock().unwrap();
        let items: Vec<_> = leases.objects.values().filter(|object| is_selected(object, &query)).collect();
        let metadata = json!({ "resourceVersion": leases.version.to_string() });
        let list = json!({ "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "items": items });
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
                    let leases = server.leases.lock().unwrap();
                    let new = leases.events.iter().filter(|(version, _)| *version > seen);
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

/// Starts the server; it ends with the runtime. Returns its address.
pub async fn start() -> String {
    let server = Server { leases: Arc::default(), changed: watch::Sender::new(0) };
    let base = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
    let routes = Router::new()
        .route(base, get(list).post(create))
        .route(&format!("{base}/{{name}}"), get(read).put(replace).delete(delete))
        .with_state(server);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    address
}
