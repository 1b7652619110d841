//! Bytes that are allocated: the memory of a queued and of a delayed key.

use crate::delays::workloads::filled;
use crate::delays::{DelaySubject, HeapQueue, TaskQueue, WheelTimer};
use crate::floors::{Channel, Line};
use crate::rivals::DashSeg;
use crate::{Key, Ours, Subject};
pub use common::memory::{Counting, live_bytes};
use common::mutex::{parking_lot_mutex, std_mutex};
use common::workloads::with_queued_keys;

/// The memory of one subject.
pub struct MemoryRow {
    pub subject: &'static str,
    /// "queued", "queued, String" or "delayed".
    pub what: &'static str,
    /// The number of keys.
    pub keys: u64,
    /// Bytes per key.
    pub bytes: f64,
}

/// Measures `keys` keys, including their own allocations. Tables double, so with another number of keys, a key may take half as much
/// again.
pub fn per_key_of(keys: u64) -> Vec<MemoryRow> {
    let row = |subject, what, bytes| MemoryRow { subject, what, keys, bytes: bytes as f64 / keys as f64 };
    let numbers = queued::<u64>(keys).into_iter().map(|(subject, bytes)| row(subject, "queued", bytes));
    let strings = queued::<String>(keys).into_iter().map(|(subject, bytes)| row(subject, "queued, String", bytes));
    let delayed = delayed(keys).into_iter().map(|(subject, bytes)| row(subject, "delayed", bytes));
    numbers.chain(strings).chain(delayed).collect()
}

fn queued<K: Key>(keys: u64) -> Vec<(&'static str, isize)> {
    fn one<K: Key, Q: Subject<K>>(keys: u64) -> (&'static str, isize) {
        (Q::NAME, live_bytes(|| with_queued_keys::<K, Q>(keys)))
    }
    vec![
        one::<K, Ours<K>>(keys),
        one::<K, parking_lot_mutex::Queue<K>>(keys),
        one::<K, std_mutex::Queue<K>>(keys),
        one::<K, DashSeg<K>>(keys),
        one::<K, Channel<K>>(keys),
        one::<K, Line<K>>(keys),
        #[cfg(feature = "kube")]
        one::<K, crate::kube::KubeQueue<K>>(keys),
    ]
}

fn delayed(keys: u64) -> Vec<(&'static str, isize)> {
    fn one<Q: DelaySubject>(keys: u64) -> (&'static str, isize) {
        (Q::NAME, live_bytes(|| filled::<Q>(keys)))
    }
    vec![
        one::<Ours<u64>>(keys),
        one::<HeapQueue>(keys),
        one::<TaskQueue>(keys),
        one::<WheelTimer>(keys),
        #[cfg(feature = "kube")]
        one::<crate::delays::KubeTask>(keys),
    ]
}
