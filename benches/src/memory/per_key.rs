//! The memory of a queued and of a delayed key.

use super::live_bytes;
use crate::delays::workloads::filled;
use crate::delays::{DelaySubject, HeapQueue, TaskQueue, WheelTimer};
use crate::floors::{Channel, Line};
use crate::rivals::DashSeg;
use crate::{Key, Ours, Subject};
use common::mutex::{parking_lot_mutex, std_mutex};
use common::workloads::in_line;

/// What one subject needs.
pub struct MemoryRow {
    pub subject: &'static str,
    /// "in line", "in line, String" or "delayed".
    pub what: &'static str,
    /// How many there were.
    pub keys: u64,
    /// For each.
    pub bytes: f64,
}

/// For `keys` keys, with what the keys themselves have allocated. Tables double, so another number of keys may take half as much again
/// for each.
pub fn per_key_of(keys: u64) -> Vec<MemoryRow> {
    let row = |subject, what, bytes| MemoryRow { subject, what, keys, bytes: bytes as f64 / keys as f64 };
    let in_line = queued::<u64>(keys).into_iter().map(|(subject, bytes)| row(subject, "in line", bytes));
    let strings = queued::<String>(keys).into_iter().map(|(subject, bytes)| row(subject, "in line, String", bytes));
    let delayed = delayed(keys).into_iter().map(|(subject, bytes)| row(subject, "delayed", bytes));
    in_line.chain(strings).chain(delayed).collect()
}

fn queued<K: Key>(keys: u64) -> Vec<(&'static str, isize)> {
    fn one<K: Key, Q: Subject<K>>(keys: u64) -> (&'static str, isize) {
        (Q::NAME, live_bytes(|| in_line::<K, Q>(keys)))
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
    fn one<Q: DelaySubject<u64>>(keys: u64) -> (&'static str, isize) {
        (Q::NAME, live_bytes(|| filled::<Q>(keys)))
    }
    vec![
        one::<Ours<u64>>(keys),
        one::<HeapQueue<u64>>(keys),
        one::<TaskQueue<u64>>(keys),
        one::<WheelTimer<u64>>(keys),
        #[cfg(feature = "kube")]
        one::<crate::delays::KubeTask<u64>>(keys),
    ]
}
