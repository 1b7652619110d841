//! A controller whose handler writes down what it is told, over the stand-in for an API server.

use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::Outcome;
use keyqueue_kube::{Controller, Reason, Reasons, Reconcile};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource};
use kube_stand_in::Server;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

/// More than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A client that does not try again by itself.
pub(crate) fn client(server: &Server) -> Client {
    let mut config = Config::new(server.address.parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(crate) fn object(namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": namespace, "name": name } })
}

/// A Secret that these ConfigMaps own.
pub(crate) fn child(name: &str, owners: &[&str]) -> Value {
    let owner = |name| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "1" });
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "a", "name": name, "ownerReferences": owners } })
}

/// A controller of the ConfigMaps of this server, whose watches pause for a moment after an error.
pub(crate) fn controller(server: &Server) -> Controller<ConfigMap> {
    Controller::new(Api::all(client(server)), watcher::Config::default())
        .trigger_backoff(|| Pause(Duration::from_millis(5)))
}

/// The same pause each time.
pub(crate) struct Pause(pub(crate) Duration);

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0)
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {}
}

/// What a run was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) exists: bool,
    pub(crate) reasons: Reasons,
    pub(crate) failures: usize,
    pub(crate) priority: i8,
}

/// What the runs were told, in this order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Told>>>, Arc<Notify>);

impl Log {
    pub(crate) fn note<K: Resource>(&self, run: &Reconcile<'_, K>) -> usize {
        let (name, exists) = (run.name.clone(), run.object().is_some());
        let told = Told { name, exists, reasons: run.reasons(), failures: run.failures(), priority: run.priority().0 };
        let mut log = self.0.lock().unwrap();
        log.push(told);
        self.1.notify_waiters();
        log.len()
    }

    pub(crate) fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn of(&self, name: &str) -> Vec<Told> {
        self.all().into_iter().filter(|told| told.name == name).collect()
    }

    /// Waits until this holds.
    pub(crate) async fn until(&self, holds: impl Fn(&[Told]) -> bool) {
        let wait = async {
            loop {
                let changed = self.1.notified();
                if holds(&self.all()) {
                    return;
                }
                _ = timeout(Duration::from_millis(20), changed).await; // a notification may have come just before
            }
        };
        if timeout(LONG, wait).await.is_err() {
            panic!("it does not hold: {:#?}", self.all());
        }
    }

    /// Waits until an object was told for this reason.
    pub(crate) async fn told(&self, name: &str, reason: Reason) {
        self.until(|all| all.iter().any(|told| told.name == name && told.reasons.contains(reason))).await;
    }

    /// Waits so long that a run which must not come would have come, and returns what was told meanwhile.
    pub(crate) async fn quiet(&self) -> Vec<Told> {
        self.clear();
        sleep(Duration::from_millis(150)).await;
        self.all()
    }
}

/// Runs the controller beside the test, and ends it after that. Returns the keys that were left.
pub(crate) async fn beside(
    controller: Controller<ConfigMap>,
    log: &Log,
    handler: impl AsyncFn(&Reconcile<'_, ConfigMap>) -> Result<Outcome, Outcome>,
    test: impl Future<Output = ()>,
) -> Vec<String> {
    let (end, ended) = oneshot::channel::<()>();
    let controller = controller.graceful_shutdown_on(async { _ = ended.await });
    let run = controller.run(async |run| {
        log.note(run);
        handler(run).await
    });
    let test = async {
        test.await;
        _ = end.send(());
    };
    let (left, ()) = timeout(3 * LONG, futures_util::future::join(run, test)).await.expect("the controller ends");
    left.into_keys().map(|key| key.name).collect()
}

/// A handler that only returns.
pub(crate) async fn succeed(_: &Reconcile<'_, ConfigMap>) -> Result<Outcome, Outcome> {
    Ok(Outcome::Success)
}
