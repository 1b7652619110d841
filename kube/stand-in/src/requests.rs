//! A request: which objects it is about, and what becomes of it.

use crate::objects::Part;
use crate::rules::{Fault, Verb};
use crate::selection::Selection;
use crate::server::Shared;
use crate::status::{Refused, deleted, too_many_requests};
use crate::watches;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Query;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Notify;

/// What the path names.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) api_version: String,
    /// As `kubectl` writes it: `configmaps`, `deployments.apps`.
    pub(crate) resource: String,
    namespace: String,
    /// Empty: all objects.
    name: String,
    is_status: bool,
}

impl Target {
    fn new(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, api_version, rest) = match &*parts {
            ["api", version, rest @ ..] => ("", (*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (*group, format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, plural, rest) = match rest {
            // `namespaces/NAME/status` is of a namespace, and not in one.
            ["namespaces", namespace, plural, rest @ ..] if *plural != "status" => (*namespace, plural, rest),
            [plural, rest @ ..] => ("", plural, rest),
            [] => return None,
        };
        let (name, is_status) = match rest {
            [] => ("", false),
            [name] => (*name, false),
            [name, "status"] => (*name, true),
            _ => return None,
        };
        let resource = if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") };
        Some(Self { api_version, resource, namespace: namespace.to_owned(), name: name.to_owned(), is_status })
    }

    fn verb(&self, method: &Method, is_watch: bool) -> Option<Verb> {
        Some(match (method, self.name.is_empty()) {
            (&Method::GET, true) if is_watch => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            _ => return None,
        })
    }
}

pub(crate) struct Request {
    pub(crate) target: Target,
    verb: Verb,
    query: HashMap<String, String>,
    content_type: String,
    body: Value,
}

impl Request {
    async fn read(request: hyper::Request<Incoming>) -> Result<Self, Refused> {
        let (head, body) = request.into_parts();
        let Query(query): Query<HashMap<_, _>> = Query::try_from_uri(&head.uri).map_err(|_| Refused::with(400))?;
        let target = Target::new(head.uri.path()).ok_or(Refused::with(404))?;
        let is_watch = query.get("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = target.verb(&head.method, is_watch).ok_or(Refused::with(405))?;
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let bytes = to_bytes(Body::new(body), usize::MAX).await.map_err(|_| Refused::with(400))?;
        let body = if bytes.is_empty() { Ok(json!({})) } else { serde_json::from_slice(&bytes) };
        let body = body.map_err(|_| Refused::with(400))?;
        Ok(Self { target, verb, query, content_type: content_type.to_owned(), body })
    }

    pub(crate) fn ask(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn carry_out(self, shared: &Arc<Shared>) -> Result<Response, Refused> {
        let Target { resource, namespace, name, is_status, .. } = &self.target;
        let part = if *is_status { Part::Status } else { Part::AllButStatus };
        let key = (namespace.clone(), name.clone());
        if !self.body.is_object() && self.verb != Verb::Patch {
            return Err(Refused::with(400));
        }
        let answer = match self.verb {
            Verb::Get => shared.objects.lock().unwrap().get(resource, &key).cloned(),
            Verb::List => return self.list(shared),
            Verb::Watch => return watches::open(shared, self),
            Verb::Create => {
                let created = shared.change(|objects| objects.create(resource, namespace, self.body))?;
                return Ok((StatusCode::CREATED, Json(created)).into_response());
            }
            Verb::Update => shared.change(|objects| objects.replace(resource, &key, self.body, part)),
            Verb::Patch => match self.content_type.as_str() {
                _ if !self.body.is_object() => Err(Refused::with(415)),
                "application/apply-patch+yaml" => {
                    shared.change(|objects| objects.apply(resource, &key, self.body, part))
                }
                _ => shared.change(|objects| objects.patch(resource, &key, self.body, part)),
            },
            Verb::Delete => {
                let begun = shared.change(|objects| objects.delete(resource, &key, &self.body["preconditions"]))?;
                Ok(begun.unwrap_or_else(deleted))
            }
        };
        answer.map(|answer| Json(answer).into_response())
    }

    pub(crate) fn selection(&self) -> Result<Selection, Refused> {
        Selection::new(&self.target.namespace, self.ask("labelSelector"), self.ask("fieldSelector"))
    }

    /// All pages of a list are of the version of the first one, which stands in the token together with the last object's key.
    fn list(&self, shared: &Shared) -> Result<Response, Refused> {
        let selection = self.selection()?;
        let objects = shared.objects.lock().unwrap();
        let resource = &self.target.resource;
        let limit = self.ask("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let token: Vec<&str> = self.ask("continue").splitn(3, '/').collect();
        let (version, last) = match *token {
            [version, namespace, name] => {
                let version = version.parse().map_err(|_| Refused::with(400))?;
                (version, Some((namespace.to_owned(), name.to_owned())))
            }
            _ => (objects.version(), None),
        };
        if last.is_some() && objects.is_forgotten(version) {
            return Err(Refused::with(410));
        }
        let page = objects.page(resource, &selection, version, last.as_ref(), limit);
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if let Some(((namespace, name), _)) = page.objects.last().filter(|_| !page.is_last) {
            metadata["continue"] = json!(format!("{version}/{namespace}/{name}"));
        }
        // The objects are written as they are, and not copied before.
        let items: Vec<&Value> = page.objects.iter().map(|(_, object)| *object).collect();
        let items = serde_json::to_string(&items).expect("it was JSON");
        let kind = format!("{}List", objects.kind(resource));
        let list = format!(
            r#"{{"kind":"{kind}","apiVersion":"{}","metadata":{metadata},"items":{items}}}"#,
            self.target.api_version
        );
        Ok(([(CONTENT_TYPE, "application/json")], list).into_response())
    }
}

/// Answers a request, or notifies `cut` if its connection is to be closed.
pub(crate) async fn answer(shared: Arc<Shared>, cut: Arc<Notify>, request: hyper::Request<Incoming>) -> Response {
    let request = match Request::read(request).await {
        Ok(request) => request,
        Err(refused) => return refused.into_response(),
    };
    shared.requests[request.verb as usize].fetch_add(1, Ordering::Relaxed);
    match shared.rules.fault(request.verb, &request.target.resource) {
        None => request.carry_out(&shared).into_response(),
        Some(Fault::Status(code)) => Refused::with(code).into_response(),
        Some(Fault::TooManyRequests { retry_after }) => too_many_requests(retry_after),
        Some(Fault::DoneBut(code)) => {
            drop(request.carry_out(&shared));
            Refused::with(code).into_response()
        }
        Some(Fault::Hang) => pending().await,
        Some(Fault::Disconnect) => {
            cut.notify_one();
            pending().await
        }
    }
}
