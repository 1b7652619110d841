//! tokio's clock, stopped, for subjects that are told the time.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::time::Instant;

/// A clock that moves when it is told to.
pub struct Paused {
    now: Instant,
    /// Entered once, not at each call. Leaked, because the guard borrows it: it is small.
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

    /// Moves on, and then has `expire` queue the keys whose delays have expired; how many.
    pub fn advance(&mut self, by: Duration, mut expire: impl FnMut(&mut Context<'_>) -> usize) -> usize {
        self.now += by;
        // Unconstrained: a timer that tokio wants to be polled later looks like one that has not expired.
        self.runtime.block_on(tokio::task::coop::unconstrained(async {
            if !by.is_zero() {
                tokio::time::advance(by).await;
            }
            poll_fn(|context| Poll::Ready(expire(context))).await
        }))
    }
}
