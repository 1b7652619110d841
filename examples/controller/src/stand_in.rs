//! A stand-in for an API server: ConfigMaps with list, watch and merge-patch, as far as this example needs them.
//!
//! It lists in pages, fails one write in five, and ends each watch after a second, as servers and proxies do.

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

    /// The number of objects, and of those whose annotation is wrong.
    fn count(&self) -> (usize, usize) {
        let data = self.data.lock().unwrap();
        let is_wrong = |object: &&Value| {
            let read: ConfigMap = serde_json::from_value((*object).clone()).expect("it is a ConfigMap");
            object["metadata"]["annotations"][crate::ANNOTATION] != crate::checksum(&read)
        };
        (data.objects.len(), data.objects.values().filter(is_wrong).count())
    }
}

async fn list_or_watch(State(server): State<Arc<Server>>, Query(query): Query<HashMap<String, String>>) -> Response {
    if !query.contains_key("watch") {
        sleep(Duration::from_millis(20)).await;
        let data = server.data.lock().unwrap();
        let from: usize = query.get("continue").and_then(|from| from.parse().ok()).unwrap_or(0);
        let items: Vec<_> = data.objects.values().skip(from).take(PAGE).cloned().collect();
        let mut metadata = json!({ "resourceVersion": data.events.len().to_string() });
        if from + PAGE < data.objects.len() {
            metadata["continue"] = json!((from + PAGE).to_string());
        }
        return Json(json!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items }))
            .into_response();
    }
    let seen: usize = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let (end, versions) = (Instant::now() + Duration::from_secs(1), server.version.subscribe());
    // One line for each event after `seen`.
    let lines = stream::unfold((server, versions, seen), move |(server, mut versions, seen)| async move {
        let is_new = versions.wait_for(|version| *version > seen as u64);
        timeout_at(end, is_new).await.ok()?.ok()?;
        let events: Vec<_> = server.data.lock().unwrap().events[seen..].to_vec();
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

/// Changes and deletes half of the objects for three seconds, and waits until all annotations are right. Without a server: never ends.
pub async fn scenario(stand_in: Option<&StandIn>) -> Result<(), Box<dyn Error>> {
    let Some(StandIn { server, .. }) = stand_in else { return pending().await };
    sleep(Duration::from_millis(200)).await; // a list of pages is not a snapshot here, as it is of a real server
    for step in 0..300 {
        let n = step * 7919 % OBJECTS / 2 * 2;
        if step % 10 == 9 {
            server.delete(n)
        } else {
            server.set(n, &format!("change {step}"))
        }
        sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3000 {
        if let (objects, 0) = server.count() {
            println!("{objects} objects, all checksums are right, after {} writes", server.data.lock().unwrap().writes);
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(format!("{} checksums are wrong", server.count().1).into())
}
