//! The only module that names `loom`, and `std::sync` for what loom must see.
//!
//! Everything that several threads use is imported from here, so that `loom-tests/` runs the code that ships under loom's scheduler. The
//! two implementations, `std` and `loom`, have the same names, which promise only what both libraries can do.

use ::std::sync::OnceLock;
use ::std::sync::atomic as std_atomic;
use ::std::time::Instant;
use ahash::RandomState;

#[cfg(any(loom, not(feature = "std-lock")))]
pub(crate) mod lock;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod std;
#[cfg(all(feature = "std-lock", not(loom)))]
mod std_lock;

#[cfg(loom)]
pub(crate) use self::loom::*;
#[cfg(not(loom))]
pub(crate) use self::std::*;

/// A constant for real use, or a smaller one for loom, which explores each step in every interleaving.
pub(crate) const fn model_const(real: usize, under_loom: usize) -> usize {
    if cfg!(loom) { under_loom } else { real }
}

/// The real clock's time in nanoseconds since [`start`].
#[inline]
pub(crate) fn now_real() -> u64 {
    let since = now().saturating_duration_since(start());
    since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// The first reading of the system's clock, which is nanosecond zero of all queues.
pub(crate) fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(now)
}

/// A number from 1 for each queue, each table, each `Workers` and each of their loops. No two of the process have the same.
pub(crate) fn next_id() -> u64 {
    static QUEUES: std_atomic::AtomicU64 = std_atomic::AtomicU64::new(0);
    QUEUES.fetch_add(1, std_atomic::Ordering::Relaxed) + 1 // Relaxed: the numbers differ, which is all there is
}

/// [`stamp`] for queues whose clock is given. It counts, so that no time decides what such a queue does (P27).
pub(crate) fn counted_stamp() -> u64 {
    static STAMPS: std_atomic::AtomicU64 = std_atomic::AtomicU64::new(0);
    STAMPS.fetch_add(1, std_atomic::Ordering::Relaxed) // Relaxed: as `stamp`, an order of the stamps and of nothing else
}

/// Called once for each table, because making a `RandomState` writes to a global counter.
pub(crate) fn hasher() -> RandomState {
    if cfg!(loom) { RandomState::with_seeds(1, 2, 3, 4) } else { RandomState::new() }
}
