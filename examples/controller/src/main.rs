//! A Kubernetes controller: a `kube-rs` watcher, this queue, and workers on tokio.
//!
//! ```text
//! cargo run --release -p controller    # against a stand-in API server, which it starts
//! KUBECONFIG=~/.kube/config cargo run --release -p controller    # against a cluster, until SIGTERM
//! ```
//!
//! It keeps the annotation `keyqueue.example/checksum` of each ConfigMap with the label `keyqueue.example=checksum` up to date. The stand-in
//! fails one write in five, and cuts each watch after a second: what happens until the next list has no event. 200 objects are made, changed and
//! deleted meanwhile. At the end all checksums must be right, and nothing may be kept for an object that is gone.
//!
//! * The key is an `ObjectRef`: kind, namespace and name. (Its `Eq` leaves out the version, as it must.)
//! * The watcher's events go through a store, and then add the key. A worker reads the object from the store: its present state.
//! * A new list, after a watch that was cut for too long, has no event for objects that were deleted meanwhile: the old store knows them.
//! * The objects of the initial list have the priority LOW, so a change that comes meanwhile is not behind thousands of them.
//! * An `Err` is retried with a backoff per key. `RequeueAfter` looks at each object again now and then.
//! * SIGTERM or Ctrl-C drains: what is queued is finished, within ten seconds. The watch ends after that, so that the last runs see the present
//!   state, too. A second signal ends the process.
//!
//! **Beside `kube::runtime::Controller`**, which has the same parts in one stream:
//!
//! | you gain | you lose |
//! |---|---|
//! | priorities, groups (a namespace that does not drown the others), limits for all keys | `owns` and `watches`: here you map an event to a key and `add` it |
//! | retries that are counted, logged in one place, and end | `Context` and `Action`: here a closure and an `Outcome` |
//! | client-go's metrics, `stats`, and the keys that are processing, for who debugs | its metrics for the watch |
//! | a drain with a deadline, and what was left | `graceful_shutdown_on`, which waits for what is running |
//! | other sources of keys: timers, HTTP, another queue | – |

mod scenario;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::{AddOptions, Outcome, Priority, WorkQueue};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher::watcher};
use kube::{Client, ResourceExt};
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const LABEL: &str = "keyqueue.example=checksum";
const ANNOTATION: &str = "keyqueue.example/checksum";
const RESYNC: Duration = Duration::from_secs(600);

type Key = ObjectRef<ConfigMap>;

/// What is kept for each object, and is removed after it: here in memory, elsewhere a file, a route or an account.
type Sums = Arc<Mutex<HashMap<Key, String>>>;

/// What an object's annotation must say.
fn checksum(object: &ConfigMap) -> String {
    let mut sum = crc32fast::Hasher::new();
    for (name, text) in object.data.iter().flatten() {
        [name, "=", text, "\n"].into_iter().for_each(|part| sum.update(part.as_bytes()));
    }
    format!("{:08x}", sum.finalize())
}

async fn reconcile(client: &Client, store: &Store<ConfigMap>, sums: &Sums, key: &Key) -> Result<Outcome, kube::Error> {
    let Some(object) = store.get(key) else {
        sums.lock().unwrap().remove(key); // the object was deleted
        return Ok(Outcome::Success);
    };
    let sum = checksum(&object);
    sums.lock().unwrap().insert(key.clone(), sum.clone());
    if object.annotations().get(ANNOTATION) == Some(&sum) {
        return Ok(Outcome::RequeueAfter(RESYNC));
    }
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or("default"));
    // With the version: an object that has changed since is not written (409), and its event leads to another run.
    let patch = serde_json::json!({
        "metadata": { "resourceVersion": object.resource_version(), "annotations": { ANNOTATION: sum } }
    });
    match objects.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(Outcome::RequeueAfter(RESYNC)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Success),
        Err(error) => Err(error),
    }
}

/// Adds the key of each event until the stream ends.
async fn watch(client: Client, writer: reflector::store::Writer<ConfigMap>, queue: WorkQueue<Key>) {
    let store = writer.as_reader();
    let objects = watcher(Api::<ConfigMap>::all(client), watcher::Config::default().labels(LABEL));
    let events = reflector::reflector(writer, objects).default_backoff(); // the store has the event before we see it
    pin_mut!(events);
    let (mut listed, mut gone) = (Vec::new(), HashSet::<Key>::new());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listed.clear();
                // Until the list is complete, the store has the objects of before.
                gone = store.state().iter().map(|object| ObjectRef::from_obj(&**object)).collect();
            }
            Ok(Event::InitApply(object)) => {
                let key = ObjectRef::from_obj(&object);
                gone.remove(&key);
                listed.push(key);
            }
            // Only now does the store have the objects of the list: a key that was added earlier would find nothing.
            Ok(Event::InitDone) => {
                let low = AddOptions::new().priority(Priority::LOW);
                listed.drain(..).for_each(|key| _ = queue.add_with(key, low));
                queue.add_all(gone.drain()); // deleted while the watch was cut
            }
            Ok(Event::Apply(object) | Event::Delete(object)) => _ = queue.add(ObjectRef::from_obj(&object)),
            Err(error) => eprintln!("watch: {error}"), // and the watcher tries again
        }
    }
}

/// A server at which one write in five fails, and each watch ends after a second with an error: what happens until the next list has no event.
async fn failing_server() -> Server {
    let server = Server::start().await;
    server.rules.add(Rule::every(5, Fault::Status(500)).verb(Verb::Patch));
    server.rules.watches_last(Duration::from_secs(1), WatchEnd::Error(410));
    server
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stand_in = match std::env::var_os("KUBECONFIG") {
        Some(_) => None,
        None => Some(failing_server().await),
    };
    let client = match &stand_in {
        Some(server) => Client::try_from(kube::Config::new(server.address.parse()?))?,
        None => Client::try_default().await?,
    };

    let queue = WorkQueue::<Key>::builder().name("configmaps").measure(true).build();
    let workers = queue
        .workers()
        // 15 retries take 164 s. During a longer outage an object is looked at once an hour, as each is without one.
        .max_retries(15)
        .then_after(RESYNC)
        .on_error(|key, error| println!("{key} is retried: {error}"))
        .on_give_up(|key, why| println!("{key}: {why}"))
        .build();
    let (store, writer) = reflector::store();
    let sums = Sums::default();
    for _ in 0..4 {
        let (client, store, sums) = (client.clone(), store.clone(), Arc::clone(&sums));
        tokio::spawn(workers.run_async(async move |key| reconcile(&client, &store, &sums, key).await));
    }
    let watching = tokio::spawn(watch(client.clone(), writer, queue.clone()));

    let mut terminate = signal(SignalKind::terminate())?;
    let verdict = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
        verdict = scenario::run(stand_in.is_some(), &client, &sums) => verdict.map_err(Into::into),
    };
    let left = tokio::select! {
        left = workers.drain_until(tokio::time::sleep(Duration::from_secs(10))) => left,
        _ = terminate.recv() => return Err("ended by a second signal".into()),
        _ = tokio::signal::ctrl_c() => return Err("ended by a second signal".into()),
    };

    watching.abort(); // only now: a drain that works on old objects would be of no use
    println!("{:?}", workers.tally());
    println!(
        "left: {} queued, {} processing, {} to look at again",
        left.queued.len(),
        left.processing.len(),
        left.delayed.len() + left.refused.len()
    );
    println!("waits: {:?}", queue.inspect().metrics().queue_duration);
    verdict
}
