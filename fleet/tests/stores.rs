//! What each store must do: the same tests for all. `memory` always; `kube` with the feature, against a stand-in API server, and, if
//! `FLEET_KUBE` is 1, against the API server of the default kube config, in the namespace `default`; `etcd` with the feature and a server at
//! `FLEET_ETCD` (`ci/fleet-etcd.sh` starts one). With `FLEET_ETCD`, `etcd_auth.rs` starts servers of its own.

use crate::common::within;
use keyqueue::WorkQueue;
use keyqueue_fleet::store::{Change, Deleted, MemoryStore, Store, Stored, Version, Watch, Written};
use keyqueue_fleet::{Event, Fleet};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn done(written: Written) -> Version {
    match written {
        Written::Done(version) => version,
        Written::Conflict => panic!("it should have been written"),
    }
}

async fn compares_and_swaps(store: &impl Store) {
    assert_eq!(store.read("owners").await.unwrap(), None);
    let first = done(store.write("owners", None, b"{\"a\":1}").await.unwrap());
    assert_eq!(store.write("owners", None, b"2").await.unwrap(), Written::Conflict);
    assert_eq!(store.read("owners").await.unwrap(), Some(Stored { value: b"{\"a\":1}".to_vec(), version: first }));
    let second = done(store.write("owners", Some(first), b"2").await.unwrap());
    assert_ne!(first, second);
    assert_eq!(store.write("owners", Some(first), b"3").await.unwrap(), Written::Conflict);
    assert_eq!(store.delete("owners", first).await.unwrap(), Deleted::Conflict);
    assert_eq!(store.delete("member-x", first).await.unwrap(), Deleted::Conflict);
    assert_eq!(store.write("member-x", Some(first), b"3").await.unwrap(), Written::Conflict); // does not create it
    assert_eq!(store.read("member-x").await.unwrap(), None);
    assert_eq!(store.delete("owners", second).await.unwrap(), Deleted::Done);
    assert_eq!(store.read("owners").await.unwrap(), None);
    // A version never comes back, not even for the same value.
    assert_eq!(store.write("owners", Some(second), b"2").await.unwrap(), Written::Conflict);
    assert_eq!(store.read("owners").await.unwrap(), None);
    let third = done(store.write("owners", None, b"2").await.unwrap());
    assert!(third != first && third != second);
    assert_eq!(store.delete("owners", second).await.unwrap(), Deleted::Conflict);
    let fourth = done(store.write("owners", Some(third), b"3").await.unwrap());
    assert_eq!(store.delete("owners", fourth).await.unwrap(), Deleted::Done);
}

async fn of_many_writers_one_wins(store: &(impl Store + Clone)) {
    let first = done(store.write("owners", None, b"0").await.unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for n in 1..9 {
        let store = store.clone(); // (Kubernetes leaves the version as it is if the value is the same.)
        writers.spawn(async move { store.write("owners", Some(first), format!("{n}").as_bytes()).await.unwrap() });
    }
    let outcomes = writers.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome != Written::Conflict).count(), 1);
    let last = store.read("owners").await.unwrap().unwrap().version;
    store.delete("owners", last).await.unwrap();
}

async fn watches(store: &impl Store) {
    let version = done(store.write("member-a", None, b"1").await.unwrap());
    let mut watch = store.watch().await.unwrap();
    let stored = |value: &[u8], version| Stored { value: value.to_vec(), version };
    assert_eq!(watch.next().await.unwrap(), Change::All(vec![("member-a".to_owned(), stored(b"1", version))]));
    let second = done(store.write("member-a", Some(version), b"2").await.unwrap());
    let owners = done(store.write("owners", None, b"3").await.unwrap());
    store.delete("member-a", second).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap());
    }
    assert!(seen.contains(&Change::Put("owners".to_owned(), stored(b"3", owners))), "{seen:?}");
    let of_a: Vec<_> =
        seen.into_iter().filter(|change| !matches!(change, Change::Put(name, _) if name == "owners")).collect();
    assert_eq!(
        of_a,
        [Change::Put("member-a".to_owned(), stored(b"2", second)), Change::Deleted("member-a".to_owned())]
    );
    store.delete("owners", owners).await.unwrap();
}

const LEASE: Duration = Duration::from_millis(600);

/// Three members share 60 keys; they leave one by one.
async fn carries_a_fleet(store: &(impl Store + Clone), lease: Duration) {
    let runs: Arc<Mutex<BTreeMap<u64, String>>> = Arc::default();
    let mut fleets = Vec::new();
    for name in ["a", "b", "c"] {
        let fleet = Fleet::builder(store.clone()).member(name).partitions(16).lease(lease).grace(lease / 4);
        let fleet = fleet.build(WorkQueue::<u64>::new()).await.unwrap();
        let (workers, runs) = (fleet.workers().build(), runs.clone());
        tokio::spawn(workers.run_async(async move |key| {
            runs.lock().unwrap().insert(**key, name.to_owned());
        }));
        let (lister, mut events) = (fleet.clone(), fleet.events());
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if let Event::Acquired(partition) = event {
                    (0..60).filter(|key| lister.partition(key) == partition).for_each(|key| _ = lister.add(key));
                }
            }
        });
        fleets.push(fleet);
    }
    let limit = 30 * lease;
    let owned = |fleets: &[Fleet<u64>]| fleets.iter().map(|fleet| fleet.stats().owned).collect::<Vec<_>>();
    within(limit, || owned(&fleets).iter().sum::<usize>() == 16 && owned(&fleets).iter().all(|owned| *owned > 0)).await;
    within(limit, || runs.lock().unwrap().len() == 60).await;
    fleets.remove(1).leave().await;
    within(limit, || owned(&fleets).iter().sum::<usize>() == 16).await;
    runs.lock().unwrap().clear();
    fleets.remove(1).leave().await;
    within(limit, || owned(&fleets) == [16]).await;
    (0..60).for_each(|key| _ = fleets[0].add(key));
    within(limit, || runs.lock().unwrap().len() == 60).await;
    assert!(runs.lock().unwrap().values().all(|name| name == "a"));
    assert_eq!(fleets[0].stats().lost, 0);
    fleets[0].leave().await;
    assert_eq!(store.read("member-a").await.unwrap(), None);
}

#[tokio::test]
async fn memory() {
    compares_and_swaps(&MemoryStore::new()).await;
    of_many_writers_one_wins(&MemoryStore::new()).await;
    watches(&MemoryStore::new()).await;
    carries_a_fleet(&MemoryStore::new(), LEASE).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd() {
    use keyqueue_fleet::store::EtcdStore;
    let Ok(endpoint) = std::env::var("FLEET_ETCD") else {
        println!("skipped: FLEET_ETCD names no server");
        return;
    };
    let store = |test: &'static str| {
        let endpoint = endpoint.clone();
        async move { EtcdStore::connect([endpoint], format!("/stores-{}/{test}", std::process::id())).await.unwrap() }
    };
    compares_and_swaps(&store("compares").await).await;
    of_many_writers_one_wins(&store("writers").await).await;
    watches(&store("watches").await).await;
    carries_a_fleet(&store("fleet").await, LEASE).await;
    let error = EtcdStore::connect(["http://127.0.0.1:1"], "/x").await.unwrap().read("owners").await.unwrap_err();
    assert!(error.to_string().starts_with("etcd: get: "), "{error}");
}

#[cfg(feature = "etcd")]
#[path = "common/etcd_auth.rs"]
mod etcd_auth;

#[cfg(feature = "kube")]
mod kube {
    use super::*;
    use ::kube::api::{Api, Patch, PatchParams};
    use ::kube::{Client, Config, ResourceExt};
    use k8s_openapi::api::coordination::v1::Lease;
    use keyqueue_fleet::store::KubeStore;
    use kube_stand_in::{Fault, Rule, Server, WatchEnd};
    use serde_json::{Value, json};

    /// A stand-in for an API server. Its watches end after a second, as those of a real one do after some minutes.
    async fn start(end: WatchEnd) -> Server {
        let server = Server::start().await;
        server.rules.watches_last(Duration::from_secs(1), end);
        server
    }

    fn client_of(address: &str) -> Client {
        Client::try_from(Config::new(address.parse().unwrap())).unwrap()
    }

    /// A fleet's records as Leases, whose metadata others change.
    struct Records {
        store: KubeStore,
        leases: Api<Lease>,
        fleet: String,
    }

    impl Records {
        fn new(client: &Client, namespace: &str, fleet: &str) -> Self {
            let store = KubeStore::new(client.clone(), namespace, fleet);
            Self { store, leases: Api::namespaced(client.clone(), namespace), fleet: fleet.to_owned() }
        }

        fn name(&self, record: &str) -> String {
            format!("{}.{record}", self.fleet)
        }

        async fn patch(&self, record: &str, metadata: Value) {
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            self.leases.patch(&self.name(record), &PatchParams::default(), &patch).await.unwrap();
        }

        /// The version of the Lease, also if its deletion waits for a finalizer.
        async fn version(&self, record: &str) -> Version {
            let lease = self.leases.get(&self.name(record)).await.unwrap();
            Version(lease.resource_version().unwrap().parse().unwrap())
        }
    }

    async fn next(watch: &mut impl Watch) -> Change {
        tokio::time::timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap()
    }

    fn put(record: &str, value: &[u8], version: Version) -> Change {
        Change::Put(record.to_owned(), Stored { value: value.to_vec(), version })
    }

    /// A Lease that was deleted and waits for a finalizer counts as deleted.
    async fn is_deleted_with_a_finalizer(records: &Records) {
        let store = &records.store;
        let deleted = Change::Deleted("member-a".to_owned());
        done(store.write("member-a", None, b"1").await.unwrap());
        let mut watch = store.watch().await.unwrap();
        assert!(matches!(watch.next().await.unwrap(), Change::All(all) if all.len() == 1));
        records.patch("member-a", json!({ "finalizers": ["keyqueue.dev/test"] })).await;
        let version = records.version("member-a").await;
        assert_eq!(next(&mut watch).await, put("member-a", b"1", version));

        assert_eq!(store.delete("member-a", version).await.unwrap(), Deleted::Done);
        assert_eq!(store.read("member-a").await.unwrap(), None);
        assert_eq!(next(&mut watch).await, deleted);
        assert_eq!(store.watch().await.unwrap().next().await.unwrap(), Change::All(Vec::new()));
        assert_eq!(store.write("member-a", Some(version), b"2").await.unwrap(), Written::Conflict);
        assert_eq!(store.delete("member-a", version).await.unwrap(), Deleted::Conflict);
        let waiting = records.version("member-a").await;
        assert_eq!(store.delete("member-a", waiting).await.unwrap(), Deleted::Conflict);
        assert_eq!(store.write("member-a", Some(waiting), b"2").await.unwrap(), Written::Conflict);
        let error = store.write("member-a", None, b"2").await.unwrap_err();
        assert!(error.to_string().ends_with("member-a is being deleted and waits for its finalizers"), "{error}");

        records.patch("member-a", json!({ "finalizers": null })).await;
        let version = done(store.write("member-a", None, b"3").await.unwrap());
        let mut change = deleted.clone();
        while change == deleted {
            change = next(&mut watch).await;
        }
        assert_eq!(change, put("member-a", b"3", version));
        store.delete("member-a", version).await.unwrap();
    }

    /// A Lease without its label is not in lists. The next write puts the label back.
    async fn puts_its_label_back(records: &Records) {
        let store = &records.store;
        done(store.write("member-a", None, b"1").await.unwrap());
        let mut watch = store.watch().await.unwrap();
        assert!(matches!(watch.next().await.unwrap(), Change::All(all) if all.len() == 1));
        records.patch("member-a", json!({ "labels": null })).await;
        assert_eq!(next(&mut watch).await, Change::Deleted("member-a".to_owned()));
        let version = store.read("member-a").await.unwrap().unwrap().version;
        let version = done(store.write("member-a", Some(version), b"2").await.unwrap());
        assert_eq!(next(&mut watch).await, put("member-a", b"2", version));
        store.delete("member-a", version).await.unwrap();
    }

    #[tokio::test]
    async fn stand_in() {
        let server = start(WatchEnd::Complete).await;
        let store = |fleet: &str| KubeStore::new(client_of(&server.address), "test", fleet);
        compares_and_swaps(&store("compares")).await;
        of_many_writers_one_wins(&store("writers")).await;
        watches(&store("watches")).await;
        carries_a_fleet(&store("fleet"), LEASE).await;
    }

    #[tokio::test]
    async fn kube_with_a_finalizer() {
        let server = start(WatchEnd::Complete).await;
        is_deleted_with_a_finalizer(&Records::new(&client_of(&server.address), "test", "finalizer")).await;
        puts_its_label_back(&Records::new(&client_of(&server.address), "test", "label")).await;
    }

    /// Of six requests one is refused with 429, and one is carried out and answered with 504. (A pattern of two could hit each write of a
    /// client that reads and writes in turn.) A request takes a second here if it is refused: it does not get its answer in time.
    #[tokio::test]
    async fn overloaded() {
        let server = start(WatchEnd::Error(410)).await;
        server.rules.add(Rule::every(6, Fault::TooManyRequests { retry_after: 1 }).after(3));
        server.rules.add(Rule::every(6, Fault::DoneBut(504)));
        carries_a_fleet(&KubeStore::new(client_of(&server.address), "test", "fleet"), 4 * LEASE).await;
    }

    #[tokio::test]
    async fn nobody_answers() {
        let store = KubeStore::new(client_of("http://127.0.0.1:1"), "test", "x");
        let error = store.read("owners").await.unwrap_err();
        assert!(error.to_string().starts_with("kubernetes: get: "), "{error}");
    }

    #[tokio::test]
    async fn api_server() {
        if std::env::var("FLEET_KUBE").as_deref() != Ok("1") {
            println!("skipped: FLEET_KUBE is not 1");
            return;
        }
        let client = Client::try_default().await.unwrap();
        let records = |test: &str| Records::new(&client, "default", &format!("stores-{}-{test}", std::process::id()));
        compares_and_swaps(&records("compares").store).await;
        of_many_writers_one_wins(&records("writers").store).await;
        watches(&records("watches").store).await;
        is_deleted_with_a_finalizer(&records("finalizer")).await;
        puts_its_label_back(&records("label")).await;
        let fleet = records("fleet");
        carries_a_fleet(&fleet.store, 4 * LEASE).await;
        fleet.store.delete("owners", fleet.version("owners").await).await.unwrap();
    }
}
