//! The keys of a shard: the state of each, the slot that holds it, and the table that finds it. `src/machine/keys.rs` uses them.
//!
//! | file | |
//! |---|---|
//! | `state` | the state word of a key |
//! | `hash` | what is kept of a key's hash |
//! | `slot` | one key in memory, and the references to it |
//! | `chunk` | the memory of some slots |
//! | `slab` | the memory of all slots |
//! | `segmented` | an array that grows without a copy of all that it holds |
//! | `side_array` | what some verbs keep for each slot, in arrays of their own |
//! | `buckets`, `table` | from a key's hash to its slot |

mod buckets;
mod chunk;
mod hash;
mod segmented;
mod side_array;
mod slab;
mod slot;
mod state;
mod table;

pub(crate) use hash::Hash;
pub(crate) use side_array::SideArray;
pub(crate) use slab::Retired;
pub(crate) use slot::{SlotId, SlotRef, SlotView};
pub(crate) use state::{OnAdd, OnDone, State};
pub(crate) use table::{Table, prefetch_bucket};
