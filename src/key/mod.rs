//! What the queue knows about a key: its state, the slot that holds it, and the table that finds it.

pub(crate) mod slab;
pub(crate) mod state;
pub(crate) mod table;
