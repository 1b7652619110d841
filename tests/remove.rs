//! `remove` in a long line, and look-ups by a type that hashes in another way than the key's.
//!
//! Random calls are in `reference/`, threads in `stops.rs` and `stress.rs`, races in `loom-tests/`.

mod support {
    pub(crate) mod manual;
}

use keyqueue::{Added, Equivalent, WorkQueue};
use std::hash::{Hash, Hasher};
use std::time::Duration;
use support::manual::manual;

const S: Duration = Duration::from_secs(1);

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

// ---- look-ups by other types ----

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

/// `ahash` has a hash of its own for some types if the compiler is a nightly one. A key has that of what it is borrowed as all the same.
#[test]
fn a_wrapper_is_found_by_what_it_wraps() {
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct Id(u64);
    impl std::borrow::Borrow<u64> for Id {
        fn borrow(&self) -> &u64 {
            &self.0
        }
    }
    let queue = WorkQueue::new();
    queue.add(Id(7));
    assert!(queue.remove(&7_u64));
    assert_eq!(queue.len(), 0);
}
