//! The keys of a shard: the state of each, the slot that holds it, and the table that finds it. All unsafe code of the shard is here, but
//! what it relies on is not only here: see `EntryRef` in `slot`.
//!
//! | file | |
//! |---|---|
//! | `state`, `hash` | the state word of a key; what is kept of its hash |
//! | `slot` | one key in memory, and the reference to it |
//! | `chunk`, `arena` | the memory of some slots, and of all |
//! | `segmented`, `side_array` | arrays by slot number |
//! | `buckets`, `table` | from a key's hash to its slot |
//! | `node`, `word` | one key of a lock-free queue in memory, and its state word |

mod arena;
mod buckets;
mod chunk;
mod hash;
#[cfg(feature = "lock-free")]
mod node;
mod segmented;
mod side_array;
mod slot;
mod state;
mod table;
#[cfg(feature = "lock-free")]
mod word;

pub(crate) use arena::Retired;
pub(crate) use hash::KeyHash;
#[cfg(feature = "lock-free")]
pub(crate) use node::{NodeRef, NodeTimes};
pub(crate) use side_array::SideArray;
pub(crate) use slot::{EntryRef, SlotId};
pub(crate) use state::{OnAdd, OnDone, State};
pub(crate) use table::{Table, prefetch_bucket};
#[cfg(feature = "lock-free")]
pub(crate) use word::{Bits, Note};
