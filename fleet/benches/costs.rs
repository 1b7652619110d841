//! What a fleet adds to a queue: `fleet.add` beside `queue.add`, and a cycle of add, get, enter and done beside one without.
//!
//! `cargo bench -p keyqueue-fleet --bench costs`: medians of 15 rounds, each subject in turn in each round, nanoseconds a key.

use keyqueue::WorkQueue;
use keyqueue_fleet::{Fleet, MemoryStore, StableHash};
use std::hash::Hash;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;
const OPERATIONS: usize = 200_000;

fn measure(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The medians of both, and what was added.
fn compare(name: &str, mut without: impl FnMut(), mut with: impl FnMut()) {
    let (mut plain, mut fleet) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            plain.push(measure(&mut without));
            fleet.push(measure(&mut with));
        } else {
            fleet.push(measure(&mut with));
            plain.push(measure(&mut without));
        }
    }
    let (plain, fleet) = (median(&mut plain), median(&mut fleet));
    println!(
        "{name:<28} queue {plain:>6.1} ns   fleet {fleet:>6.1} ns   ratio {:.2}   {:+.1} ns",
        fleet / plain,
        fleet - plain
    );
}

fn cycle<K: Hash + Eq + Clone + Send + Sync + 'static>(
    queue: &WorkQueue<K>,
    keys: &[K],
    add: impl Fn(K),
    fleet: Option<&Fleet<K>>,
) {
    for i in 0..OPERATIONS {
        add(keys[i % keys.len()].clone());
        let item = queue.try_get().expect("a key is queued");
        let permit = fleet.map(|fleet| fleet.enter(item.key()).expect("it is owned"));
        black_box(&permit);
        drop(permit);
        item.done();
    }
}

async fn of<K: StableHash + Hash + Eq + Clone + Send + Sync + 'static>(name: &str, keys: Vec<K>) {
    let fleet = Fleet::builder(MemoryStore::new()).member("a").build(WorkQueue::<K>::new()).await.expect("it joins");
    while fleet.stats().owned < 256 {
        tokio::task::yield_now().await;
    }
    let queue = WorkQueue::<K>::new();
    compare(
        &format!("{name}, cycle"),
        || cycle(&queue, &keys, |key| _ = queue.add(key), None),
        || cycle(fleet.queue(), &keys, |key| _ = fleet.add(key), Some(&fleet)),
    );
    queue.add_all(keys.iter().cloned());
    fleet.queue().add_all(keys.iter().cloned());
    let key = |i: usize| keys[i % keys.len()].clone();
    compare(
        &format!("{name}, add of a queued key"),
        || (0..OPERATIONS).for_each(|i| _ = black_box(queue.add(key(i)))),
        || (0..OPERATIONS).for_each(|i| _ = black_box(fleet.add(key(i)))),
    );
    compare(
        &format!("{name}, get and done, add"),
        || {
            for _ in 0..OPERATIONS / 1024 {
                queue.get_many(1024).into_iter().for_each(|item| item.done());
                queue.add_all(keys.iter().cloned());
            }
        },
        || {
            for _ in 0..OPERATIONS / 1024 {
                for item in fleet.queue().get_many(1024) {
                    let permit = fleet.enter(item.key()).expect("it is owned");
                    drop(black_box(permit));
                    item.done();
                }
                fleet.queue().add_all(keys.iter().cloned());
            }
        },
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    of("u64", (0..1024_u64).collect()).await;
    of("String of 20 bytes", (0..1024).map(|n| format!("namespace/pod-{n:06}")).collect()).await;
}
