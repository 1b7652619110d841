//! Tasks without a runtime: polled by hand, and their wake-ups counted.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts its calls.
#[derive(Default)]
pub(crate) struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Calls {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>, calls: &Arc<Calls>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(calls))))
}

/// A waker that panics when it is woken. The panic prints nothing.
pub(crate) fn panicking_waker() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new("a waker"));
        }
    }
    Waker::from(Arc::new(Panics))
}

/// A waker that panics when it is dropped. The panic prints nothing.
pub(crate) fn waker_that_panics_when_dropped() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new("the drop of a waker"));
        }
    }
    Waker::from(Arc::new(Panics))
}
