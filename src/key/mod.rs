//! The keys of a queue: the state of each, the slot that holds it, and the table that finds it.

pub(crate) mod slab;
pub(crate) mod state;
pub(crate) mod table;
