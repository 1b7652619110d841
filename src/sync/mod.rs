//! The only place that names `std::sync` for what loom must see, and the only one that names `loom`.
//!
//! What two threads touch is imported from here, so that `loom-tests/` runs the code that ships, under another scheduler. The two
//! halves offer the same names; where the libraries differ, the smaller contract wins. (What no model covers, a reporter's
//! channel or a cached constant, uses `std::sync` directly.)

use ahash::RandomState;

pub(crate) mod lock;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod std;

#[cfg(loom)]
pub(crate) use self::loom::*;
#[cfg(not(loom))]
pub(crate) use self::std::*;

/// Picks a constant for real use, or a small one for loom, where every step is multiplied by every interleaving.
pub(crate) const fn model_const(real: usize, under_loom: usize) -> usize {
    if cfg!(loom) { under_loom } else { real }
}

/// Seeded anew for every table, never per operation: making a `RandomState` touches a global counter.
pub(crate) fn hasher() -> RandomState {
    if cfg!(loom) { RandomState::with_seeds(1, 2, 3, 4) } else { RandomState::new() }
}
