//! A Kubernetes operator of several replicas, which share the objects: each one reconciles its own, and when one is killed, the others take over.
//!
//! ```text
//! cargo run --release --manifest-path fleet/operator/Cargo.toml     # three replicas, against a stand-in API server that it starts
//! KUBECONFIG=… POD_NAME=… operator                                  # one replica, in a cluster, until SIGTERM
//! ```
//!
//! It keeps the annotation `keyqueue.example/checksum` of each ConfigMap with the label `keyqueue.example=checksum` up to date.
//!
//! * All replicas watch all objects; an event reaches the reflector's store first, and then the key is added, if it is this replica's.
//! * `Acquired`: the store is listed. No event of a former owner is missed.
//! * Each write carries the object's version, so a replica that was stopped in the middle of its work writes nothing old; and the token, for
//!   who reads the objects' history.
//! * SIGTERM: the replica hands its objects over at once, and ends.

#[allow(unreachable_pub)]
#[path = "../../tests/common/stand_in.rs"]
mod stand_in;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::{Outcome, WorkQueue};
use keyqueue_fleet::store::KubeStore;
use keyqueue_fleet::{Event, Fleet, Held, StableHasher};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::WatchStreamExt;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

const LABEL: &str = "keyqueue.example";
const CHECKSUM: &str = "keyqueue.example/checksum";
const TOKEN: &str = "keyqueue.example/token";
const NAMESPACE: &str = "default";
const OBJECTS: u64 = 200;
const NAMES: [&str; 3] = ["operator-1", "operator-2", "operator-3"];

type Key = ObjectRef<ConfigMap>;
type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name).and_then(|_| arguments.next())
}

#[tokio::main]
async fn main() -> Fallible<()> {
    if let (Some(name), Some(server)) = (option("--replica"), option("--server")) {
        let client = Client::try_from(kube::Config::new(server.parse()?))?;
        return replica(client, &name, Duration::from_millis(1500)).await;
    }
    if std::env::var_os("KUBECONFIG").is_some() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        let name = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"))?;
        return replica(Client::try_default().await?, &name, Duration::from_secs(10)).await;
    }
    with_stand_in().await
}

// What a replica does.

fn checksum(data: &BTreeMap<String, String>) -> String {
    let mut hasher = StableHasher::new();
    for (name, text) in data {
        [name, "=", text, "\n"].into_iter().for_each(|part| hasher.write(part.as_bytes()));
    }
    format!("{:016x}", hasher.finish())
}

async fn reconcile(client: &Client, store: &Store<ConfigMap>, held: &Held<'_, Key>) -> Result<Outcome, kube::Error> {
    let key = held.key();
    let Some(object) = store.get(key) else { return Ok(Outcome::Done) }; // deleted
    let sum = checksum(&object.data.clone().unwrap_or_default());
    if object.annotations().get(CHECKSUM) == Some(&sum) {
        return Ok(Outcome::RequeueAfter(Duration::from_secs(600)));
    }
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or(NAMESPACE));
    let annotations = json!({ CHECKSUM: sum, TOKEN: held.token().to_string() });
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version(), "annotations": annotations } });
    match objects.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(Outcome::Done),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Done), // its event comes
        Err(error) => Err(error),
    }
}

async fn replica(client: Client, name: &str, lease: Duration) -> Fallible<()> {
    // The Leases are in the operator's own namespace.
    let leases = KubeStore::new(client.clone(), NAMESPACE, "checksums");
    let fleet = Fleet::builder(leases).member(name).lease(lease).grace(lease / 5);
    let fleet = fleet.build_by(WorkQueue::<Key>::new(), |key: &Key, hasher| hasher.write(key.name.as_bytes())).await?;

    let (store, writer) = reflector::store();
    let workers = fleet.workers_with(fleet.queue().workers().on_error(|key, error| eprintln!("{key} is retried: {error}")));
    for _ in 0..4 {
        let (client, store) = (client.clone(), store.clone());
        tokio::spawn(workers.run(async move |held: &Held<'_, Key>| reconcile(&client, &store, held).await));
    }

    let (lister, mut events, listed) = (fleet.clone(), fleet.events(), store.clone());
    tokio::spawn(async move {
        loop {
            let events = events.next_many().await;
            if events.is_empty() {
                return;
            }
            if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
                listed.state().iter().for_each(|object| _ = lister.add(ObjectRef::from_obj(&**object)));
            }
        }
    });

    let (adder, listed) = (fleet.clone(), store);
    let objects = watcher(Api::<ConfigMap>::all(client), watcher::Config::default().labels(&format!("{LABEL}=checksum")));
    let watching = tokio::spawn(async move {
        let mut events = reflector::reflector(writer, objects).default_backoff().boxed(); // the store has the event before we see it
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => _ = adder.add(ObjectRef::from_obj(&object)),
                Ok(watcher::Event::InitDone) => {
                    listed.state().iter().for_each(|object| _ = adder.add(ObjectRef::from_obj(&**object)));
                }
                Ok(_) => {}
                Err(error) => eprintln!("watch: {error}"), // and the watcher tries again
            }
        }
    });

    let mut terminate = signal(SignalKind::terminate())?;
    let mut parent = tokio::io::stdin();
    let alone = option("--replica").is_none();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = parent.read_u8(), if !alone => {} // the first process has ended
    }
    watching.abort();
    let left = tokio::time::timeout(Duration::from_secs(20), fleet.leave()).await;
    println!("{name}: {:?}, handed over: {}", workers.tally(), left.is_ok());
    Ok(())
}

// The three replicas, the stand-in, and the check.

fn start(name: &str, server: &str) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--replica", name, "--server", server]).stdin(Stdio::piped()).kill_on_drop(true).spawn()
}

fn text<'a>(object: &'a Value, annotation: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][annotation].as_str()
}

fn is_right(object: &Value) -> bool {
    let data: BTreeMap<String, String> = serde_json::from_value(object["data"].clone()).unwrap_or_default();
    text(object, CHECKSUM) == Some(&checksum(&data))
}

async fn with_stand_in() -> Fallible<()> {
    let (address, config_maps) = stand_in::start().await;
    let client = Client::try_from(kube::Config::new(address.parse()?))?;
    let objects: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    for n in 0..OBJECTS {
        let object = json!({ "metadata": { "name": format!("object-{n}"), "namespace": NAMESPACE, "labels": { LABEL: "checksum" } },
                             "data": { "text": "first" } });
        objects.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let mut replicas = Vec::new();
    for name in NAMES {
        replicas.push(start(name, &address)?);
    }

    let begin = Instant::now();
    let (mut n, mut killed) = (0_u64, None);
    loop {
        let quiet = begin.elapsed() > Duration::from_secs(12);
        if !quiet {
            n += 1;
            let patch = json!({ "data": { "text": format!("change {n}") } });
            objects.patch(&format!("object-{}", n * 7 % OBJECTS), &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        sleep(Duration::from_millis(10)).await;
        if n % 100 == 0 || quiet {
            let right = config_maps.all().iter().filter(|object| is_right(object)).count() as u64;
            println!("{:>5.1}s  {right} of {OBJECTS} are up to date", begin.elapsed().as_secs_f64());
            if quiet && right == OBJECTS {
                break;
            }
            if quiet {
                sleep(Duration::from_millis(500)).await;
            }
        }
        if killed.is_none() && begin.elapsed() > Duration::from_secs(5) {
            replicas[1].kill().await?;
            println!("        {} was killed", NAMES[1]);
            killed = Some(());
        }
        if begin.elapsed() > Duration::from_secs(60) {
            return Err("objects are not up to date after a minute".into());
        }
    }

    // In the history of each object, tokens never fall.
    let mut tokens: BTreeMap<String, u64> = BTreeMap::new();
    for object in config_maps.history() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let token = text(&object, TOKEN).and_then(|token| token.parse().ok()).unwrap_or(0);
        if token < *tokens.get(&name).unwrap_or(&0) {
            return Err(format!("{name}: a write with an old token").into());
        }
        tokens.insert(name, token);
    }
    println!("all are up to date, and no write has an old token");
    for mut replica in replicas.into_iter().filter(|replica| replica.id().is_some()) {
        drop(replica.stdin.take());
        replica.wait().await?;
    }
    Ok(())
}
