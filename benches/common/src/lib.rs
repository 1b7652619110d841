//! What the report and the matrix share: the interface of a queue under test, keyqueue behind it, the two mutex queues that it is
//! compared with, the workloads, and an allocator that counts.

pub mod by_hand;
pub mod check;
pub mod limiter;
pub mod memory;
pub mod mutex;
pub mod threads;
pub mod workloads;

use std::fmt::Debug;
use std::hash::Hash;

/// What every subject needs from a key.
pub trait Key: Hash + Eq + Clone + Debug + Send + Sync + 'static {
    /// The `n`th key. No two are equal.
    fn nth(n: u64) -> Self;
}

impl Key for u64 {
    fn nth(n: u64) -> Self {
        n
    }
}

impl Key for [u64; 5] {
    /// 40 bytes, like a reference to an object: two `Arc<str>` and a number.
    fn nth(n: u64) -> Self {
        [n, n, n, n, n]
    }
}

impl Key for String {
    /// 30 bytes, like a namespaced name.
    fn nth(n: u64) -> Self {
        format!("namespace-{:04}/pod-{n:011}", n % 100)
    }
}

/// A queue under test.
pub trait Subject<K: Key>: Send + Sync + 'static {
    /// The subject's name in the tables.
    const NAME: &'static str;

    fn make() -> Self;

    fn add(&self, key: K);

    /// Waits for a key, lends it to `work`, and finishes it. Returns `false` when the queue is shut down and empty.
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool;

    fn shut_down(&self);
}

/// A queue with priorities.
pub trait Prioritized<K: Key>: Subject<K> {
    /// Adds a key; one that is queued with a lower priority gets this one.
    fn add_at(&self, key: K, priority: i8);
}

/// Makes a tuple of a queue a [`Subject`]: its parameters, its keys, its name in the tables, how the queue is made, and how a key is added.
/// Its `get` returns an item until it is shut down and empty.
#[macro_export]
macro_rules! subject {
    ([$($parameters:tt)*] $name:ty, $of:ty, $label:expr, $make:expr, |$queue:ident, $key:ident| $add:expr) => {
        impl<$($parameters)*> $crate::Subject<$of> for $name {
            const NAME: &'static str = $label;

            fn make() -> Self {
                Self($make)
            }

            #[inline]
            fn add(&self, $key: $of) {
                let $queue = &self.0;
                $add;
            }

            #[inline]
            fn process(&self, work: impl FnOnce(&Self, &$of)) -> bool {
                self.0.get().map(|item| work(self, &item)).is_some()
            }

            fn shut_down(&self) {
                self.0.shut_down();
            }
        }
    };
}

/// keyqueue itself.
pub struct Ours<K>(pub keyqueue::WorkQueue<K>);

subject!([K: Key] Ours<K>, K, "keyqueue", keyqueue::WorkQueue::new(), |queue, key| queue.add(key));
