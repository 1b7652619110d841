//! tokio's paused clock, for subjects on a mock clock.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::time::Instant;

/// A clock that moves only when it is advanced.
pub struct Paused {
    now: Instant,
    /// The runtime is entered once, not at each call. It is leaked because the guard borrows it; it is small.
    runtime: &'static Runtime,
    _entered: EnterGuard<'static>,
}

impl Paused {
    pub fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let runtime: &'static Runtime = Box::leak(Box::new(runtime));
        let _entered = runtime.enter();
        Self { now: Instant::now(), runtime, _entered }
    }

    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Advances the clock, and calls `expire`, which queues the keys whose delays have expired. Returns their number.
    pub fn advance(&mut self, by: Duration, mut expire: impl FnMut(&mut Context<'_>) -> usize) -> usize {
        self.now += by;
        // Unconstrained: a timer that returns `Pending` because of tokio's budget would look like one that has not expired.
        self.runtime.block_on(tokio::task::coop::unconstrained(async {
            if !by.is_zero() {
                tokio::time::advance(by).await;
            }
            poll_fn(|context| Poll::Ready(expire(context))).await
        }))
    }
}
