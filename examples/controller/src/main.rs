//! A Kubernetes controller with `keyqueue-kube`.
//!
//! ```text
//! cargo run --release -p controller    # against a stand-in API server, which it starts
//! KUBECONFIG=~/.kube/config cargo run --release -p controller    # against a cluster, until SIGTERM
//! ```
//!
//! It keeps the annotation `keyqueue.example/checksum` of each ConfigMap with the label `keyqueue.example=checksum` up to date. The stand-in
//! fails one write in five, and ends each watch after a second with 410: what happens until the next list has no event. 200 objects are
//! made, changed and deleted meanwhile. At the end all checksums must be right, and nothing may be kept for an object that is gone.
//!
//! * A handler is told once of an object that is gone, also if that happened while the watch was cut.
//! * The objects of a list have the priority LOW, so a change that comes meanwhile is not behind thousands of them.
//! * An `Err` is retried with a backoff for each object. `RequeueAfter` looks at each object again now and then.
//! * SIGTERM or Ctrl-C ends it: the handlers that run have ten seconds to end. A second signal ends it at once.

mod scenario;

use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::Outcome;
use keyqueue_kube::{Controller, Reconcile};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{reflector::ObjectRef, watcher};
use kube::{Client, ResourceExt};
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LABEL: &str = "keyqueue.example=checksum";
const ANNOTATION: &str = "keyqueue.example/checksum";
const RESYNC: Duration = Duration::from_secs(600);

/// What is kept for each object, and is removed after it: here in memory, elsewhere a file, a route or an account.
type Sums = Arc<Mutex<HashMap<ObjectRef<ConfigMap>, String>>>;

async fn reconcile(client: &Client, sums: &Sums, run: &Reconcile<'_, ConfigMap>) -> Result<Outcome, kube::Error> {
    let Some(object) = run.object() else {
        sums.lock().unwrap().remove(run.object_ref()); // the object was deleted
        return Ok(Outcome::Success);
    };
    let sum = scenario::checksum(object);
    sums.lock().unwrap().insert(run.object_ref().clone(), sum.clone());
    if object.annotations().get(ANNOTATION) == Some(&sum) {
        return Ok(Outcome::RequeueAfter(RESYNC));
    }
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), run.namespace.as_deref().unwrap_or("default"));
    // With the version: an object that has changed since is not written (409), and its event leads to another run.
    let patch = serde_json::json!({
        "metadata": { "resourceVersion": object.resource_version(), "annotations": { ANNOTATION: sum } }
    });
    match objects.patch(&run.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(Outcome::RequeueAfter(RESYNC)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Success),
        Err(error) => Err(error),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ((client, server), sums) = (scenario::connect().await?, Sums::default());
    let (story, verdict) = scenario::play(server, Arc::clone(&sums));
    let left = Controller::new(Api::all(client.clone()), watcher::Config::default().labels(LABEL))
        // 15 retries take 164 s. During a longer outage an object is looked at once in ten minutes, as each is without one.
        .workers(4, |workers| {
            workers
                .max_retries(15)
                .then_after(RESYNC)
                .on_error(|key, error| println!("{key} is retried: {error}"))
                .on_give_up(|key, why| println!("{key}: {why}"))
        })
        .graceful_shutdown_on(story)
        .shutdown_on_signal(Duration::from_secs(10))
        .run(async |run| reconcile(&client, &sums, run).await)
        .await;
    println!(
        "left: {} queued, {} processing, {} to look at again",
        left.queued.len(),
        left.processing.len(),
        left.delayed.len()
    );
    verdict.await
}
