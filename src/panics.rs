//! Panics of foreign code: of wakers, observers, limiters, and the drops of keys.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls foreign code, and catches its panic. `None`: it panicked.
pub(crate) fn contained<R>(call: impl FnOnce() -> R) -> Option<R> {
    // The payload is not dropped: its drop is foreign code as well, and could panic again.
    catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget).ok()
}

/// The panic of foreign code, if it panicked: to be passed on when the caller's step is made.
///
/// Dropped, it is leaked: the payload's drop is foreign code as well.
#[must_use = "the panic goes unseen"]
pub(crate) struct Caught(Option<ManuallyDrop<Box<dyn Any + Send>>>);

impl Caught {
    pub(crate) const NOTHING: Self = Self(None);

    /// Calls foreign code.
    pub(crate) fn call(call: impl FnOnce()) -> Self {
        Self(catch_unwind(AssertUnwindSafe(call)).err().map(ManuallyDrop::new))
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Panics as the foreign code did.
    #[inline]
    pub(crate) fn pass_on(self) {
        if let Some(payload) = self.0 {
            resume_unwind(ManuallyDrop::into_inner(payload));
        }
    }
}

/// Drops what foreign code has made, each by itself. Returns how many of the drops panicked.
pub(crate) fn drop_each<T>(items: impl IntoIterator<Item = T>) -> usize {
    items.into_iter().filter_map(|item| contained(|| drop(item)).is_none().then_some(())).count()
}
