//! The server: connections, and the access of the process that it runs in.

use crate::objects::{Key, Objects};
use crate::requests::answer;
use crate::rules::{Rules, Verb};
use crate::status::Refused;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

pub(crate) struct Shared {
    pub(crate) objects: Mutex<Objects>,
    /// The version of the newest change.
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) rules: Rules,
    /// By verb.
    pub(crate) requests: [AtomicU64; 7],
    pub(crate) open_watches: AtomicUsize,
}

impl Shared {
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Objects) -> Result<T, Refused>) -> Result<T, Refused> {
        let mut objects = self.objects.lock().unwrap();
        let answer = change(&mut objects);
        self.changes.send_replace(objects.version());
        answer
    }
}

/// A server of Kubernetes objects. It ends when it is dropped, and then closes all connections.
///
/// A resource is named as `kubectl` names it, by its plural and its group: `configmaps`, `deployments.apps`. The namespace of an object
/// that has none is empty.
pub struct Server {
    /// Where it is: `http://127.0.0.1:` and a port.
    pub address: String,
    /// What goes wrong.
    pub rules: Rules,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server without objects, on the runtime of the caller and a free port.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let rules = Rules::new();
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            changes: watch::Sender::new(0),
            rules: rules.clone(),
            requests: Default::default(),
            open_watches: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Self { address, rules, shared, task }
    }

    /// Creates an object, or gives it this content and this status whatever its version is. Returns it as it is then.
    ///
    /// # Panics
    ///
    /// If it has no name.
    pub fn put(&self, resource: &str, object: impl Serialize) -> Value {
        let object = serde_json::to_value(object).expect("an object of Kubernetes is JSON");
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let key = (field("namespace"), field("name"));
        self.shared.change(|objects| objects.put(resource, &key, object)).expect("it has a name")
    }

    /// Deletes an object, and returns whether it existed. One with finalizers stays until they are removed.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.shared.change(|objects| objects.delete(resource, &key(namespace, name), &Value::Null)).is_ok()
    }

    /// The object, if it exists.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.objects.lock().unwrap().get(resource, &key(namespace, name)).ok().cloned()
    }

    /// All objects of a resource, by namespace and name.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        self.shared.objects.lock().unwrap().all(resource)
    }

    /// The objects of a resource after each change so far, and each one as it was deleted, in this order.
    pub fn history(&self, resource: &str) -> Vec<Value> {
        self.shared.objects.lock().unwrap().history(resource)
    }

    /// Forgets which version was when, as a server does after some minutes. A watch from an earlier version, and the next page of a list
    /// that has begun, are refused with 410. Open watches go on.
    pub fn forget_versions(&self) {
        self.shared.objects.lock().unwrap().forget();
    }

    /// How many requests with this verb have come, also those that a rule has let fail.
    pub fn requests(&self, verb: Verb) -> u64 {
        self.shared.requests[verb as usize].load(Ordering::Relaxed)
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.shared.open_watches.load(Ordering::Relaxed)
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            _ = stream.set_nodelay(true); // an event of a watch is a small packet, and nobody answers it
            connections.spawn(serve(stream, shared.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Serves a connection until the client closes it, or a rule does.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // A connection that ends here is reset, which kube-rs reports: it takes an orderly end in the middle of a watch for the end of the watch.
    _ = stream.set_zero_linger();
    let cut = Arc::new(Notify::new());
    let rules = shared.rules.clone();
    let service = service_fn(|request| {
        let (shared, cut) = (shared.clone(), cut.clone());
        async move { Ok::<_, Infallible>(answer(shared, cut, request).await) }
    });
    tokio::select! {
        biased;
        () = rules.until_away() => {}
        () = cut.notified() => {}
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
    }
}
