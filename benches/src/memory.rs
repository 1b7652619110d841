//! Bytes that are allocated, for the report.

mod per_key;

pub use self::per_key::{MemoryRow, per_key_of};
pub use common::memory::{Counting, live_bytes};
