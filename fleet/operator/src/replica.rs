//! One replica: its watch, its member of the fleet, its workers.

use crate::cluster::{FLEET, SELECTOR};
use crate::{Fallible, status};
use futures_util::{Stream, StreamExt};
use keyqueue::WorkQueue;
use keyqueue_fleet::store::KubeStore;
use keyqueue_fleet::{Event, Fleet};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{ObjectRef, Store, reflector, store::Writer};
use kube::runtime::watcher::{self, Event as Seen, watcher};
use kube::{Client, ResourceExt};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

const LEASE: Duration = Duration::from_secs(2); // short, so that the story is: the default is 10 seconds
const LEAVING: Duration = Duration::from_secs(10);

/// Namespace and name. Their hash decides which replica has the object.
type Key = (String, String);

fn key(object: &DynamicObject) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Reads the watch until the reflector's store has all objects.
async fn fill(watch: &mut (impl Stream<Item = watcher::Result<Seen<DynamicObject>>> + Unpin)) -> Fallible<()> {
    loop {
        match watch.next().await.ok_or("the watch has ended")? {
            Ok(Seen::InitDone) => return Ok(()),
            Ok(_) => {}
            Err(error) => eprintln!("watch: {error}"), // and the watcher tries again
        }
    }
}

/// Whether the process that started this one is gone; never, if `--child` was not given.
async fn is_orphan() {
    if std::env::args().any(|argument| argument == "--child") {
        _ = tokio::io::stdin().read_u8().await; // its end of the pipe closes with it
    } else {
        std::future::pending().await
    }
}

/// Runs until SIGTERM, and then hands over. If the watch or the member ends, that is an error.
pub async fn run(client: Client, kind: ApiResource, name: &str) -> Fallible<()> {
    let objects = Api::<DynamicObject>::default_namespaced_with(client.clone(), &kind);
    let writer = Writer::new(kind.clone());
    let store = writer.as_reader();
    let watch = watcher(objects.clone(), watcher::Config::default().labels(SELECTOR));
    let mut watch = pin!(reflector(writer, watch).default_backoff());

    let mut terminate = signal(SignalKind::terminate())?;
    let mut orphan = pin!(is_orphan());
    let join = async {
        // First the store is filled: a replica that acquires a partition lists it.
        fill(&mut watch).await?;
        let leases = KubeStore::new(client.clone(), client.default_namespace(), FLEET);
        let fleet = Fleet::builder(leases).member(name).lease(LEASE).grace(LEASE / 5);
        Fallible::Ok(fleet.build(WorkQueue::<Key>::new()).await?)
    };
    let fleet = tokio::select! {
        fleet = join => fleet?,
        _ = terminate.recv() => return Ok(()),
        () = &mut orphan => return Ok(()),
    };
    work(&fleet, &objects, &store, &kind, name);

    let mut events = fleet.events();
    loop {
        tokio::select! {
            event = watch.next() => match event.ok_or("the watch has ended")? {
                // The event has reached the store; then ownership is tested. If this replica acquires the partition after the test, it lists
                // the store after the test, and finds the object.
                Ok(Seen::Apply(object)) => _ = fleet.add(key(&object)),
                // The watch began anew, and the store was replaced.
                Ok(Seen::InitDone) => store.state().iter().for_each(|object| _ = fleet.add(key(object))),
                Ok(Seen::Delete(_) | Seen::Init | Seen::InitApply(_)) => {}
                Err(error) => eprintln!("{name}: watch: {error}"), // and the watcher tries again
            },
            moved = events.next_many() => {
                if moved.is_empty() {
                    return Err("the member has ended".into());
                }
                list(&fleet, &store, &moved);
            },
            _ = terminate.recv() => break,
            () = &mut orphan => break,
        }
    }
    let left = tokio::time::timeout(LEAVING, fleet.leave()).await;
    left.map_err(|_| format!("{name} has not left within {LEAVING:?}: others wait for its expiry").into())
}

/// Adds the keys of all objects in partitions that were acquired.
fn list(fleet: &Fleet<Key>, store: &Store<DynamicObject>, moved: &[Event]) {
    let acquired = |event: &Event| if let Event::Acquired(partition) = event { Some(*partition) } else { None };
    let acquired: BTreeSet<u32> = moved.iter().filter_map(acquired).collect();
    let keys = store.state().into_iter().map(|object| key(&object));
    keys.filter(|key| acquired.contains(&fleet.partition(key))).for_each(|key| _ = fleet.add(key));
}

/// Starts four workers.
fn work(
    fleet: &Fleet<Key>,
    objects: &Api<DynamicObject>,
    store: &Store<DynamicObject>,
    kind: &ApiResource,
    name: &str,
) {
    let workers = fleet.workers().on_error(|(_, name), error| eprintln!("{name} is tried again: {error}")).build();
    for _ in 0..4 {
        let (objects, store, kind, name) = (objects.clone(), store.clone(), kind.clone(), name.to_owned());
        tokio::spawn(workers.run_async(async move |held| -> Fallible<()> {
            let (namespace, object) = held.key();
            match store.get(&ObjectRef::new_with(object, kind.clone()).within(namespace)) {
                Some(object) => status::reconcile(&objects, &object, &name, held.token()).await,
                None => Ok(()), // deleted
            }
        }));
    }
}
