//! `remove` in a long line, beside threads, and look-ups by a type that is equivalent to the key's.
//!
//! Random calls are in `reference/`, races in `loom-tests/`.

mod support {
    pub(crate) mod manual;
    pub(crate) mod modes;
    pub(crate) mod tasks;
    pub(crate) mod until;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{AddOptions, Added, Equivalent, Item, Leftover, Priority, WorkQueue, WorkQueueBuilder, Workers};
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::manual::manual;
use support::modes::{Key, MODES};
use support::until::wait_until;
use support::within::within_30_s;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The first removal in a long line moves its keys to the order; the order of the keys stays, and so do their times.
#[test]
fn keys_of_a_long_line_are_taken_back() {
    const KEYS: u32 = if cfg!(miri) { 1000 } else { 5_000 };
    for (shards, measure) in [(1, false), (1, true), (4, true)] {
        let (builder, time) = manual(WorkQueue::builder().shards(shards).measure(measure));
        let queue = builder.build();
        let mut expected = Vec::new();
        for key in 0..KEYS {
            queue.add(key);
            expected.push(key);
            if (key + 1) % (KEYS / 10) == 0 {
                time.advance(S);
            }
        }
        queue.add_after(77, S);
        for key in (0..KEYS).filter(|key| key % 3 > 0) {
            assert!(queue.remove(&key), "{key}");
            assert!(!queue.remove(&key), "{key}");
        }
        expected.retain(|key| key % 3 == 0);
        assert_eq!(queue.add(1), Added::Queued);
        expected.push(1);
        assert_eq!((queue.len(), queue.delayed_len()), (expected.len(), 0));
        assert_eq!(queue.stats().oldest_queued, measure.then_some(10 * S));
        let mut handed_out: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        if shards > 1 {
            handed_out.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(handed_out, expected);
        let stats = queue.stats();
        assert_eq!((stats.taken, stats.depth(), stats.handed_out), (u64::from(KEYS * 2 / 3), 0, expected.len() as u64));
    }
}

// ---- beside the ways to stop ----

type Stop = fn(&Workers<Key>) -> Leftover<Key>;

const STOPS: [(&str, Stop); 6] = [
    ("stop", Workers::stop),
    ("drain", Workers::drain),
    ("drain_timeout", |workers| workers.drain_timeout(MS)),
    ("drain_until", |workers| block_on(workers.drain_until(ready(())))),
    ("drain_async", |workers| block_on(workers.drain_async())),
    ("take_where", |workers| workers.queue().take_where(|key| key.1 % 2 == 0)),
];

/// Two threads take back keys, among them delayed ones and those that handlers have added again, while a call stops the workers. Each add
/// is handed out, taken back by one `remove`, or in the leftover.
#[test]
fn each_add_is_handed_out_or_taken_back_once_by_remove_or_a_stop() {
    for (mode, builder) in MODES {
        for (stop_name, stop) in STOPS {
            for keys in if cfg!(miri) { vec![40] } else { vec![40, 3_000] } {
                let case = format!("{mode}, {stop_name}, {keys} keys");
                println!("{case}");
                within_30_s(move || remove_beside(&case, builder(), stop, keys));
            }
        }
    }
}

fn remove_beside(case: &str, builder: WorkQueueBuilder<Key>, stop: Stop, keys: u32) {
    let queue = builder.build();
    // Accepted adds of each key, less what became of them.
    let open = Arc::new(Mutex::new(BTreeMap::<Key, i32>::new()));
    let count = |key: Key, by: i32| *open.lock().unwrap().entry(key).or_default() += by;
    let handler = {
        let (open, queue) = (Arc::clone(&open), queue.clone());
        let added_again = Mutex::new(BTreeSet::new());
        move |item: &Item<'_, Key>| {
            let again = item.1 % 3 == 0 && added_again.lock().unwrap().insert(**item);
            let deferred = again && queue.add(**item) == Added::Deferred;
            *open.lock().unwrap().entry(**item).or_default() += i32::from(deferred) - 1;
            if again {
                thread::yield_now();
            }
        }
    };
    let all = Vec::from_iter((0..keys).map(|n| (n % 4, n)));
    for &key in &all {
        let added = match key.1 % 8 {
            7 => queue.add_after(key, 3600 * S),
            6 if keys == 40 => queue.add_with(key, AddOptions::new().priority(Priority::HIGH)),
            _ => queue.add(key),
        };
        assert!(matches!(added, Added::Queued | Added::Delayed));
        count(key, 1);
    }
    let workers = queue.workers().spawn(2, handler).unwrap();
    let removed = AtomicUsize::new(0);
    let left = thread::scope(|scope| {
        for seed in 0..2 {
            let (queue, all, count, removed) = (&queue, &all, &count, &removed);
            scope.spawn(move || {
                let mut mine = all.clone();
                fastrand::Rng::with_seed(seed).shuffle(&mut mine);
                for key in mine.into_iter().take(keys as usize / 2) {
                    if queue.remove(&key) {
                        count(key, -1);
                        removed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        wait_until(|| removed.load(Ordering::Relaxed) > 2);
        stop(&workers)
    });
    let rest = workers.drain();
    for left in [&left, &rest] {
        left.queued.iter().for_each(|&key| count(key, -1));
        left.delayed.iter().for_each(|delayed| count(delayed.key, -1));
        assert_eq!(left.refused, []);
    }
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.delayed, stats.depth()), (0, 0, 0, 0), "{case}");
    let open: Vec<_> =
        open.lock().unwrap().iter().filter(|&(_, &open)| open != 0).map(|(&key, &open)| (key, open)).collect();
    assert_eq!(open, [], "{case}: above 0: it vanished; below 0: two had it");
}

// ---- look-ups by other types ----

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pod(String, String);

#[derive(Clone, Copy, Hash)]
struct PodRef<'a>(&'a str, &'a str);

impl Equivalent<Pod> for PodRef<'_> {
    fn equivalent(&self, pod: &Pod) -> bool {
        (self.0, self.1) == (&pod.0, &pod.1)
    }
}

impl From<PodRef<'_>> for Pod {
    fn from(PodRef(namespace, name): PodRef<'_>) -> Self {
        Self(namespace.into(), name.into())
    }
}

/// A limiter that the queue cannot replace: it is called.
struct External(ItemExponentialFailure<Pod>);

impl RateLimiter<Pod> for External {
    fn when(&self, pod: &Pod) -> Duration {
        self.0.when(pod)
    }

    fn forget(&self, pod: &Pod) {
        self.0.forget(pod);
    }

    fn num_requeues(&self, pod: &Pod) -> usize {
        self.0.num_requeues(pod)
    }
}

#[test]
fn a_pair_of_strings_is_found_by_a_pair_of_slices() {
    for external in [false, true] {
        for shards in [1, 4] {
            let (mut builder, _) = manual(WorkQueue::builder());
            if external {
                builder = builder.rate_limiter(External(ItemExponentialFailure::new(S, 8 * S)));
            }
            let queue = builder.shards(shards).build();
            let dns = PodRef("kube-system", "dns");
            queue.add_rate_limited(dns.into());
            queue.add_rate_limited(PodRef("kube-systemd", "ns").into());
            queue.add_rate_limited(dns.into());
            assert_eq!(queue.num_requeues(&dns), 2);
            assert!(queue.cancel(&dns));
            assert!(!queue.cancel(&dns));
            queue.add(dns.into());
            assert!(queue.remove(&dns));
            assert_eq!((queue.len(), queue.delayed_len(), queue.num_requeues(&dns)), (0, 1, 2));
            queue.forget(&dns);
            assert_eq!((queue.num_requeues(&dns), queue.num_requeues(&Pod::from(dns))), (0, 0));
        }
    }
}

/// Finds the key `1` in a queue of strings, and hashes as this text.
struct Finds(&'static str, fn(&str) -> bool);

impl Hash for Finds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<String> for Finds {
    fn equivalent(&self, key: &String) -> bool {
        (self.1)(key)
    }
}

/// The docs of `cancel`: a key whose hash differs may not be found. It is not, and nothing else is changed.
#[test]
fn an_equivalent_with_another_hash_finds_nothing() {
    for shards in [1, 4] {
        let (builder, time) = manual(WorkQueue::builder().shards(shards));
        let queue = builder.build();
        let keys = Vec::from_iter((0..64).map(|n| format!("pod-{n}")));
        queue.add_all(keys.clone());
        keys.iter().for_each(|key| _ = queue.add_after(key.clone(), S));
        let other_hash = Finds("no such key", |_| true);
        assert!(!queue.remove(&other_hash) && !queue.cancel(&other_hash));
        assert_eq!((queue.len(), queue.delayed_len(), queue.stats().taken), (64, 64, 0));
        // The right hash, and equivalent to no key, or to each: the key of this hash is found, and only that.
        assert!(!queue.remove(&Finds("pod-7", |_| false)));
        assert!(queue.cancel(&Finds("pod-7", |_| true)) && queue.remove(&Finds("pod-7", |_| true)));
        assert_eq!((queue.len(), queue.delayed_len(), queue.stats().taken), (63, 63, 1));
        time.advance(2 * S);
        assert_eq!(queue.turn(), 63);
        let mut handed_out = Vec::from_iter(std::iter::from_fn(|| queue.try_get().ok().map(|item| item.key().clone())));
        handed_out.sort_unstable();
        let mut expected = keys;
        expected.retain(|key| key != "pod-7");
        expected.sort_unstable();
        assert_eq!(handed_out, expected);
    }
}
