//! The join of a tenth member: nine members share 256 partitions and process 100 000 keys again and again, with handlers of 10 ms; a tenth one
//! joins. Until when has it its partitions, and until when was each of its keys processed by it?
//!
//! `cargo bench -p keyqueue-fleet --bench join`. In real time, over the store in memory with 5 ms per request, default times (a lease of
//! 10 s).

use keyqueue::WorkQueue;
use keyqueue_fleet::store::{Deleted, MemoryStore, Store, StoreError, Stored, Version, Written};
use keyqueue_fleet::{Event, Fleet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const KEYS: u64 = 100_000;
const WORKERS: usize = 256;

/// A store with the latency of a network, which counts requests.
#[derive(Clone, Default)]
struct Distant {
    store: MemoryStore,
    requests: Arc<AtomicU64>,
}

impl Distant {
    async fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(5)).await;
    }
}

impl Store for Distant {
    type Watch = <MemoryStore as Store>::Watch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        self.request().await;
        self.store.read(record).await
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        self.request().await;
        self.store.write(record, expected, value).await
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        self.request().await;
        self.store.delete(record, expected).await
    }

    async fn watch(&self) -> Result<Self::Watch, StoreError> {
        self.store.watch().await
    }
}

/// A member whose program lists all keys when it acquires partitions. Handlers take 10 ms at `slow` ones.
async fn start(store: &Distant, name: &str, processed: &Arc<Vec<AtomicBool>>) -> Fleet<u64> {
    let fleet = Fleet::builder(store.clone()).member(name).build(WorkQueue::<u64>::new()).await.expect("it joins");
    let workers = fleet.workers().build();
    for _ in 0..WORKERS {
        let processed = Arc::clone(processed);
        tokio::spawn(workers.run_async(async move |key| {
            sleep(Duration::from_millis(10)).await;
            processed[**key as usize].store(true, Ordering::Relaxed);
        }));
    }
    let (lister, mut events) = (fleet.clone(), fleet.events());
    tokio::spawn(async move {
        loop {
            let events = events.next_many().await;
            if events.is_empty() {
                return;
            }
            if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
                (0..KEYS).for_each(|key| _ = lister.add(key));
            }
        }
    });
    fleet
}

async fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

fn owned(fleets: &[Fleet<u64>]) -> usize {
    fleets.iter().map(|fleet| fleet.stats().owned).sum()
}

#[tokio::main]
async fn main() {
    let limit = Duration::from_secs(60);
    let store = Distant::default();
    let set = || Arc::new((0..KEYS).map(|_| AtomicBool::new(false)).collect::<Vec<_>>());
    let all = set();
    let mut fleets = Vec::new();
    for i in 0..9 {
        fleets.push(start(&store, &format!("replica-{i}"), &all).await);
    }
    until("nine own all", limit, || owned(&fleets) == 256).await;
    until("each key is processed", limit, || all.iter().all(|done| done.load(Ordering::Relaxed))).await;
    // They go on to process all keys while the tenth joins.
    fleets.iter().for_each(|fleet| (0..KEYS).for_each(|key| _ = fleet.add(key)));
    let (of_tenth, requests, begin) = (set(), store.requests.load(Ordering::Relaxed), Instant::now());
    fleets.push(start(&store, "replica-9", &of_tenth).await);
    let joined = begin.elapsed();
    let tenth = fleets.last().expect("it has joined").clone();
    until("the tenth owns its share", limit, || {
        owned(&fleets) == 256 && tenth.stats().owned == tenth.stats().wanted && tenth.stats().owned > 0
    })
    .await;
    let moved = begin.elapsed();
    until("the tenth has processed all its keys", limit, || {
        (0..KEYS).all(|key| !tenth.owns(&key) || of_tenth[key as usize].load(Ordering::Relaxed))
    })
    .await;
    let processed = begin.elapsed();
    let stats = tenth.stats();
    println!(
        "the tenth member: joined after {joined:.2?}, {} of 256 partitions after {moved:.2?}, all their keys processed after {processed:.2?}",
        stats.owned
    );
    println!(
        "longest hand-over {:.2?}, {} requests of all members meanwhile",
        stats.longest_hand_over,
        store.requests.load(Ordering::Relaxed) - requests
    );
}
