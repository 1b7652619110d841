//! The keys of a shard: the state of each, the slot that holds it, and the table that finds it. All unsafe code of the shard is here, but
//! what it relies on is not only here: see `EntryRef` in `slot`.
//!
//! | file | |
//! |---|---|
//! | `state` | the state word of a key |
//! | `hash` | what is kept of a key's hash |
//! | `slot` | one key in memory, with its place in the order, and the reference to it, which is valid while the slot is taken |
//! | `chunk` | the memory of some slots |
//! | `arena` | the memory of all slots |
//! | `segmented` | an array that grows without a copy of all that it holds |
//! | `side_array` | what some verbs keep for each slot, in arrays of their own |
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
