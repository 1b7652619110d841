//! Catching panics of foreign code: wakers, observers, limiters, and the drops of keys.

use crate::sync::panicking;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The number of nested panic payloads that are dropped before the next one is leaked.
const NESTED: usize = 4;

/// Calls foreign code. Returns `None` if it panicked; the panic is caught.
pub(crate) fn contained<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).map_err(discard).ok()
}

/// Calls foreign code. In a thread that unwinds, its panic is caught, because a second one would abort the process.
#[inline]
pub(crate) fn contained_while_unwinding(call: impl FnOnce()) {
    if panicking() {
        contained(call);
    } else {
        call();
    }
}

/// Drops the payload of a panic. The drop is foreign code as well: if it panics, the payload of that panic is dropped too.
pub(crate) fn discard(mut payload: Box<dyn Any + Send>) {
    for _ in 0..NESTED {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload); // each drop panics with a new payload, possibly without end
}

/// The panic of foreign code, if it panicked. The caller passes it on when its own step is complete. Dropping this drops the payload, and
/// never panics.
#[must_use = "the panic is lost if it is not passed on"]
pub(crate) struct Caught(Option<Box<dyn Any + Send>>);

impl Caught {
    pub(crate) const NOTHING: Self = Self(None);

    /// Calls foreign code, and keeps its panic.
    pub(crate) fn call(call: impl FnOnce()) -> Self {
        Self(catch_unwind(AssertUnwindSafe(call)).err())
    }

    /// Calls foreign code for each of these, even after a panic, and keeps the first panic. One `catch_unwind` serves for all of them,
    /// because one for each would take as long as the end of a hand-out.
    pub(crate) fn call_for_each<T>(items: impl IntoIterator<Item = T>, mut call: impl FnMut(T)) -> Self {
        let (mut items, mut first) = (items.into_iter(), Self::NOTHING);
        loop {
            let caught = Self::call(|| items.by_ref().for_each(&mut call));
            if !caught.is_some() {
                return first;
            }
            first.keep(caught);
        }
    }

    /// Keeps that panic, too, or drops it if there is one already.
    pub(crate) fn keep(&mut self, other: Self) {
        if !self.is_some() {
            *self = other;
        }
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Resumes the panic, unless the thread unwinds, because a second panic would abort the process.
    #[inline]
    pub(crate) fn pass_on(mut self) {
        if !self.is_some() {
            return std::mem::forget(self); // its drop would be a call
        }
        if panicking() {
            return; // dropped
        }
        if let Some(payload) = self.0.take() {
            resume_unwind(payload);
        }
    }
}

impl Drop for Caught {
    #[inline]
    fn drop(&mut self) {
        if let Some(payload) = self.0.take() {
            discard(payload);
        }
    }
}

/// Drops values of foreign types, and catches the panic of each drop. Returns how many drops panicked.
pub(crate) fn drop_each<T>(items: impl IntoIterator<Item = T>) -> usize {
    items.into_iter().filter_map(|item| contained(|| drop(item)).is_none().then_some(())).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::panic_any;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(&'static AtomicUsize);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    static ENDLESS: AtomicUsize = AtomicUsize::new(0);

    /// A payload whose drop panics with another such payload. It has no size, so that the last one leaks no memory.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            ENDLESS.fetch_add(1, Ordering::Relaxed);
            panic_any(Endless);
        }
    }

    #[test]
    fn the_payload_of_a_contained_panic_is_dropped() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        assert!(contained(|| panic_any(Counted(&DROPPED))).is_none());
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
        drop(Caught::call(|| panic_any(Counted(&DROPPED))));
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn payloads_that_panic_when_dropped_are_dropped_up_to_a_limit() {
        assert!(contained(|| panic_any(Endless)).is_none());
        assert_eq!(ENDLESS.load(Ordering::Relaxed), NESTED);
    }
}
