//! A stand-in for the part of a Kubernetes API server that keeps Leases and ConfigMaps: versions, conflicts, preconditions, finalizers, merge
//! patches, lists and watches. A watch ends after a second, as a real one does after some minutes.
#![allow(dead_code, unreachable_pub)]

mod objects;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use objects::{Deletion, Objects, Refused, Selection};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    Normal,
    /// Of six requests one is refused with 429, and one is carried out and answered with 504. Each watch ends with an error, 410. (A pattern
    /// of two could hit each write of a client that reads and writes in turn.)
    TooMuch,
    /// Of five patches one fails with 500. Each watch ends with an error, 410.
    Failing,
}

/// The objects of one kind.
#[derive(Clone)]
pub struct Server {
    kind: &'static str,
    api_version: &'static str,
    load: Load,
    objects: Arc<Mutex<Objects>>,
    changed: watch::Sender<u64>,
}

fn status(code: StatusCode, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": if code.is_success() { "Success" } else { "Failure" },
            "message": reason, "reason": reason, "code": code.as_u16() })
}

fn error(code: StatusCode, reason: &str) -> Response {
    (code, Json(status(code, reason))).into_response()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::NotFound => error(StatusCode::NOT_FOUND, "NotFound"),
            Self::AlreadyExists => error(StatusCode::CONFLICT, "AlreadyExists"),
            Self::Conflict => error(StatusCode::CONFLICT, "Conflict"),
        }
    }
}

impl Server {
    fn change(&self, change: impl FnOnce(&mut Objects) -> Result<Value, Refused>) -> Response {
        let mut objects = self.objects.lock().unwrap();
        let answer = change(&mut objects);
        self.changed.send_replace(objects.version());
        answer.map(Json).into_response()
    }
}

async fn create(State(server): State<Server>, Path(namespace): Path<String>, Json(object): Json<Value>) -> Response {
    let key = format!("{namespace}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    server.change(|objects| objects.create(&key, object))
}

async fn read(State(server): State<Server>, Path((namespace, name)): Path<(String, String)>) -> Response {
    let objects = server.objects.lock().unwrap();
    objects.get(&format!("{namespace}/{name}")).map(Json).into_response()
}

async fn replace(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    Json(object): Json<Value>,
) -> Response {
    server.change(|objects| objects.replace(&format!("{namespace}/{name}"), object))
}

async fn patch(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    Json(patch): Json<Value>,
) -> Response {
    server.change(|objects| objects.patch(&format!("{namespace}/{name}"), patch))
}

async fn delete(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    let options: Value = serde_json::from_slice(&body).unwrap_or_default();
    server.change(|objects| {
        let wanted = &options["preconditions"]["resourceVersion"];
        Ok(match objects.delete(&format!("{namespace}/{name}"), wanted)? {
            Deletion::Done => status(StatusCode::OK, "Deleted"),
            Deletion::Begun(object) => object,
        })
    })
}

async fn list_all(state: State<Server>, query: Query<HashMap<String, String>>) -> Response {
    list_or_watch(state, None, query)
}

async fn list(state: State<Server>, Path(namespace): Path<String>, query: Query<HashMap<String, String>>) -> Response {
    list_or_watch(state, Some(namespace), query)
}

fn list_or_watch(
    State(server): State<Server>,
    namespace: Option<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let selection = Selection::new(namespace, &query);
    if query.get("watch").is_some_and(|watch| watch == "true") {
        let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        return events(server, selection, from);
    }
    let objects = server.objects.lock().unwrap();
    let metadata = json!({ "resourceVersion": objects.version().to_string() });
    let list = json!({ "kind": format!("{}List", server.kind), "apiVersion": server.api_version, "metadata": metadata,
                       "items": objects.list(&selection) });
    Json(list).into_response()
}

fn events(server: Server, selection: Selection, from: u64) -> Response {
    let end = tokio::time::Instant::now() + Duration::from_secs(1);
    let state = (server.changed.subscribe(), Some(from));
    let (server, selection) = (Arc::new(server), Arc::new(selection));
    let lines = futures_util::stream::unfold(state, move |(mut changed, seen)| {
        let (server, selection) = (server.clone(), selection.clone());
        async move {
            let seen = seen?;
            loop {
                changed.borrow_and_update();
                let (new, last) = {
                    let objects = server.objects.lock().unwrap();
                    (objects.since(seen, &selection), objects.version())
                };
                if !new.is_empty() {
                    let text: String = new.iter().map(|event| format!("{event}\n")).collect();
                    return Some((Ok::<_, Infallible>(text), (changed, Some(last))));
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    () = tokio::time::sleep_until(end) => break,
                }
            }
            let gone = json!({ "type": "ERROR", "object": status(StatusCode::GONE, "Expired") });
            (server.load != Load::Normal).then(|| (Ok(format!("{gone}\n")), (changed, None)))
        }
    });
    Body::from_stream(lines).into_response()
}

/// Answers as a server does that has too much to do: see [`Load::TooMuch`].
async fn overload(State(requests): State<Arc<AtomicU64>>, request: Request, next: Next) -> Response {
    match requests.fetch_add(1, Ordering::Relaxed) % 6 {
        2 => {
            let refused = error(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests");
            ([("Retry-After", "1")], refused).into_response()
        }
        5 => {
            next.run(request).await;
            error(StatusCode::GATEWAY_TIMEOUT, "Timeout")
        }
        _ => next.run(request).await,
    }
}

/// See [`Load::Failing`].
async fn fail(State(patches): State<Arc<AtomicU64>>, request: Request, next: Next) -> Response {
    if request.method() == Method::PATCH && patches.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
        return error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    }
    next.run(request).await
}

impl Server {
    fn new(kind: &'static str, api_version: &'static str, load: Load) -> Self {
        Self { kind, api_version, load, objects: Arc::default(), changed: watch::Sender::new(0) }
    }

    fn routes(&self, group: &str, resource: &str) -> Router {
        let base = format!("{group}/namespaces/{{namespace}}/{resource}");
        Router::new()
            .route(&format!("{group}/{resource}"), get(list_all))
            .route(&base, get(list).post(create))
            .route(&format!("{base}/{{name}}"), get(read).put(replace).patch(patch).delete(delete))
            .with_state(self.clone())
    }

    /// The object after each change so far, and each one as it was deleted.
    pub fn history(&self) -> Vec<Value> {
        self.objects.lock().unwrap().history()
    }
}

/// Starts the server; it ends with the runtime. Returns its address, and its ConfigMaps.
pub async fn start(load: Load) -> (String, Server) {
    let leases = Server::new("Lease", "coordination.k8s.io/v1", load);
    let config_maps = Server::new("ConfigMap", "v1", load);
    let mut routes =
        leases.routes("/apis/coordination.k8s.io/v1", "leases").merge(config_maps.routes("/api/v1", "configmaps"));
    match load {
        Load::Normal => {}
        Load::TooMuch => routes = routes.layer(middleware::from_fn_with_state(Arc::default(), overload)),
        Load::Failing => routes = routes.layer(middleware::from_fn_with_state(Arc::default(), fail)),
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (address, config_maps)
}
