//! The ways in which a worker's loop can be run.

use std::future::poll_fn;
use std::task::Poll;

/// How a loop is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Spawned,
    Here,
    /// On `futures-executor`.
    Task,
    /// On tokio, with several threads.
    Tokio,
}

pub(crate) const WAYS: [Way; 4] = [Way::Spawned, Way::Here, Way::Task, Way::Tokio];

/// Pending once, so that a handler is polled twice.
pub(crate) fn yield_once() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
    })
}
