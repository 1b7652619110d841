//! A stand-in for an API server: ConfigMaps with list, watch and merge-patch, as far as this example needs them.
//!
//! It lists in pages, fails one write in five, ends each watch after a second, as servers and proxies do, and can forget events.

use crate::{Key, Sums};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use axum::{Json, Router};
use futures_util::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

const OBJECTS: usize = 200;
/// Objects in one answer to a list.
const PAGE: usize = 50;

/// A server that runs until the process ends.
pub struct StandIn {
    address: SocketAddr,
    server: Arc<Server>,
}

struct Server {
    data: Mutex<Data>,
    /// The version of the last event.
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct Data {
    objects: BTreeMap<(String, String), Value>,
    /// The event of version n is at n - 1.
    events: Vec<Value>,
    /// A watch from a version before this one is refused (410), as its events are no longer known.
    oldest: usize,
    writes: u64,
}

impl StandIn {
    pub fn uri(&self) -> Uri {
        format!("http://{}", self.address).parse().expect("an address makes a URI")
    }
}

pub async fn start() -> std::io::Result<StandIn> {
    let server = Arc::new(Server { data: Mutex::default(), version: watch::Sender::new(0) });
    (0..OBJECTS).for_each(|n| server.set(n, "first"));
    let routes = Router::new()
        .route("/api/v1/configmaps", get(list_or_watch))
        .route("/api/v1/namespaces/{namespace}/configmaps/{name}", patch(patch_one))
        .with_state(Arc::clone(&server));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(StandIn { address, server })
}

impl Server {
    /// Creates or changes an object.
    fn set(&self, n: usize, text: &str) {
        let key = (format!("namespace-{}", n % 5), format!("object-{n}"));
        let mut data = self.data.lock().unwrap();
        let old = data.objects.get(&key).cloned();
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        let mut object = old.unwrap_or_else(|| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "namespace": key.0, "name": key.1, "uid": n.to_string(), "labels": { "keyqueue.example": "checksum" },
                },
            })
        });
        object["data"] = json!({ "text": text });
        self.publish(&mut data, kind, key, object);
    }

    fn delete(&self, n: usize) {
        let key = (format!("namespace-{}", n % 5), format!("object-{n}"));
        let mut data = self.data.lock().unwrap();
        if let Some(object) = data.objects.get(&key).cloned() {
            self.publish(&mut data, "DELETED", key, object);
        }
    }

    /// Deletes an object, and no watch reports it: all of them end, and cannot go on from where they were.
    fn delete_unseen(&self, n: usize) {
        let key = (format!("namespace-{}", n % 5), format!("object-{n}"));
        let mut data = self.data.lock().unwrap();
        let object = data.objects[&key].clone();
        data.oldest = data.events.len() + 1;
        self.publish(&mut data, "DELETED", key, object);
    }

    fn publish(&self, data: &mut Data, kind: &str, key: (String, String), mut object: Value) {
        let version = data.events.len() as u64 + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        data.events.push(json!({ "type": kind, "object": object.clone() }));
        match kind {
            "DELETED" => _ = data.objects.remove(&key),
            _ => _ = data.objects.insert(key, object),
        }
        self.version.send_replace(version);
    }

    /// The number of objects, and of those for which something is wrong: the annotation, or a sum that is kept for an object that is gone.
    fn count(&self, sums: &Sums) -> (usize, usize) {
        let data = self.data.lock().unwrap();
        let is_wrong = |object: &&Value| {
            let read: ConfigMap = serde_json::from_value((*object).clone()).expect("it is a ConfigMap");
            object["metadata"]["annotations"][crate::ANNOTATION] != crate::checksum(&read)
        };
        let is_gone = |key: &&Key| {
            let namespace = key.namespace.clone().unwrap_or_default();
            !data.objects.contains_key(&(namespace, key.name.clone()))
        };
        let gone = sums.lock().unwrap().keys().filter(is_gone).count();
        (data.objects.len(), data.objects.values().filter(is_wrong).count() + gone)
    }
}

async fn list_or_watch(State(server): State<Arc<Server>>, Query(query): Query<HashMap<String, String>>) -> Response {
    if !query.contains_key("watch") {
        sleep(Duration::from_millis(20)).await;
        let data = server.data.lock().unwrap();
        // All pages show the state of one version. The token has it, and the number of objects in the pages before.
        let token = query.get("continue").and_then(|token| token.split_once('-'));
        let token = token.and_then(|(version, from)| Some((version.parse().ok()?, from.parse().ok()?)));
        let (version, from): (usize, usize) = token.unwrap_or((data.events.len(), 0));
        let mut objects = BTreeMap::new();
        for event in &data.events[..version] {
            let (object, id) = (&event["object"], event["object"]["metadata"]["uid"].as_str());
            if event["type"] == "DELETED" {
                objects.remove(&id);
            } else {
                objects.insert(id, object);
            }
        }
        let items: Vec<_> = objects.values().skip(from).take(PAGE).collect();
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if from + PAGE < objects.len() {
            metadata["continue"] = json!(format!("{version}-{}", from + PAGE));
        }
        return Json(json!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items }))
            .into_response();
    }
    let seen: usize = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    if seen < server.data.lock().unwrap().oldest {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": 410, "reason": "Expired", "message": "too old resource version",
        });
        return Json(json!({ "type": "ERROR", "object": status })).into_response();
    }
    let (end, versions) = (Instant::now() + Duration::from_secs(1), server.version.subscribe());
    // One line for each event after `seen`.
    let lines = stream::unfold((server, versions, seen), move |(server, mut versions, seen)| async move {
        let is_new = versions.wait_for(|version| *version > seen as u64);
        timeout_at(end, is_new).await.ok()?.ok()?;
        let events: Vec<_> = {
            let data = server.data.lock().unwrap();
            if seen < data.oldest {
                return None;
            }
            data.events[seen..].to_vec()
        };
        let text: String = events.iter().map(|event| format!("{event}\n")).collect();
        Some((Ok::<_, Infallible>(text), (server, versions, seen + events.len())))
    });
    Body::from_stream(lines).into_response()
}

async fn patch_one(
    State(server): State<Arc<Server>>,
    Path(key): Path<(String, String)>,
    Json(change): Json<Value>,
) -> Response {
    let failure = |code: StatusCode, reason: &str| {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": "from the stand-in",
        });
        (code, Json(status)).into_response()
    };
    let mut data = server.data.lock().unwrap();
    data.writes += 1;
    if data.writes % 5 == 0 {
        return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    }
    let Some(mut object) = data.objects.get(&key).cloned() else { return failure(StatusCode::NOT_FOUND, "NotFound") };
    if change["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
        return failure(StatusCode::CONFLICT, "Conflict");
    }
    object["metadata"]["annotations"] = change["metadata"]["annotations"].clone();
    server.publish(&mut data, "MODIFIED", key.clone(), object);
    Json(data.objects[&key].clone()).into_response()
}

/// Changes and deletes half of the objects for three seconds, and waits until all is right. Without a server: never ends.
pub async fn scenario(stand_in: Option<&StandIn>, sums: &Sums) -> Result<(), Box<dyn Error>> {
    let Some(StandIn { server, .. }) = stand_in else { return pending().await };
    for step in 0..300 {
        let n = step * 7919 % OBJECTS / 2 * 2;
        if step % 10 == 9 {
            server.delete(n)
        } else {
            server.set(n, &format!("change {step}"))
        }
        if step == 150 {
            server.delete_unseen(1); // of the other half
        }
        sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3000 {
        if let (objects, 0) = server.count(sums) {
            println!("{objects} objects, all checksums are right, after {} writes", server.data.lock().unwrap().writes);
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(format!("{} objects are wrong, or gone and not forgotten", server.count(sums).1).into())
}
