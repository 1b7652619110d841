//! Bytes that are allocated: the memory of a queued and of a delayed key.

use crate::delays::workloads::filled;
use crate::delays::{DelaySubject, HeapQueue, TaskQueue};
use crate::floors::Channel;
use crate::numbers::rounded;
use crate::results::Bytes;
use crate::rivals::DashSeg;
use crate::{Key, Ours, Subject};
pub use common::memory::{Counting, live_bytes};
use common::mutex::{parking_lot_mutex, std_mutex};
use common::workloads::with_queued_keys;

/// Measures `keys` keys, including their own allocations: "queued", "queued, String" and "delayed". Tables double, so with another number
/// of keys, a key may take half as much again.
pub fn per_key_of(keys: u64) -> Vec<Bytes> {
    [queued::<u64>("queued", keys), queued::<String>("queued, String", keys), delayed(keys)].concat()
}

fn row(what: &str, subject: &str, keys: u64, bytes: isize) -> Bytes {
    Bytes { what: what.into(), subject: subject.into(), keys, bytes: rounded(bytes as f64 / keys as f64) }
}

fn queued<K: Key>(what: &str, keys: u64) -> Vec<Bytes> {
    fn one<K: Key, Q: Subject<K>>(what: &str, keys: u64) -> Bytes {
        row(what, Q::NAME, keys, live_bytes(|| with_queued_keys::<K, Q>(keys)))
    }
    vec![
        one::<K, Ours<K>>(what, keys),
        one::<K, parking_lot_mutex::Queue<K>>(what, keys),
        one::<K, std_mutex::Queue<K>>(what, keys),
        one::<K, DashSeg<K>>(what, keys),
        one::<K, Channel<K>>(what, keys),
    ]
}

fn delayed(keys: u64) -> Vec<Bytes> {
    fn one<Q: DelaySubject>(keys: u64) -> Bytes {
        row("delayed", Q::NAME, keys, live_bytes(|| filled::<Q>(keys)))
    }
    vec![one::<Ours<u64>>(keys), one::<HeapQueue>(keys), one::<TaskQueue>(keys)]
}
