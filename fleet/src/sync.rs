//! The only place that names atomics, so that `loom-tests/` can put its own in their place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
