//! Panics of foreign code: of wakers, observers, and the drops of keys.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls foreign code, and catches its panic. `None`: it panicked.
pub(crate) fn contained<R>(call: impl FnOnce() -> R) -> Option<R> {
    // The payload is not dropped: its drop is foreign code as well, and could panic again.
    catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget).ok()
}
