//! Keys that carry something.

use std::hash::{Hash, Hasher};

/// A key that is its number, with a value that makes no difference: it counts drops, or uses the queue when it is dropped.
#[derive(Debug, Clone)]
pub(crate) struct With<T>(pub(crate) u32, #[allow(dead_code, reason = "it is there to be dropped")] pub(crate) T);

impl<T> PartialEq for With<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for With<T> {}

impl<T> Hash for With<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
