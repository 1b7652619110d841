//! Again and again, until told to stop.

use super::{BackoffManager, Stop};
use crate::time::nanos;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// From when a delay counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Timing {
    /// From the end of a call: the pause between two calls is the delay.
    #[default]
    Sliding,
    /// From the begin of a call: what the call takes is part of the delay, and one that takes longer is followed by the next at
    /// once.
    NonSliding,
}

/// Calls `f`, waits for the manager's next delay, and so on, until there is a stop. If there was one before, `f` is not called.
///
/// A stop interrupts the wait, not `f`. If `f` panics, so does this; to go on, catch it there.
///
/// # Blocking
/// Until the stop. Waits by the manager's clock.
///
/// # Examples
/// ```
/// use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until};
/// use std::time::Duration;
///
/// let stop = Stop::new();
/// let every = Backoff { duration: Duration::from_millis(1), ..Backoff::default() };
/// let mut calls = 0;
/// backoff_until(
///     || {
///         calls += 1;
///         if calls == 3 {
///             stop.stop();
///         }
///     },
///     BackoffManager::new(every, Duration::from_secs(60)),
///     Timing::Sliding,
///     &stop,
/// );
/// assert_eq!(calls, 3);
/// ```
#[doc(alias = "BackoffUntil")]
#[doc(alias = "JitterUntil")]
#[doc(alias = "Until")]
pub fn backoff_until(mut f: impl FnMut(), mut manager: BackoffManager, timing: Timing, stop: &Stop) {
    while !stop.is_stopped() {
        let run = Run::begin(&mut manager, timing);
        f();
        let end = run.end(&mut manager);
        if stop.wait_until(&manager.clock, end) {
            return;
        }
    }
}

/// As [`backoff_until`], as a task. `sleep` makes a future that waits: `tokio::time::sleep`, for one.
///
/// # Cancel safety
/// Dropping it ends it, also in the middle of a call.
///
/// # Examples
/// ```
/// use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until_async};
/// use std::time::Duration;
///
/// # async fn poll_the_server() {}
/// # async fn example(stop: Stop, sleep: impl AsyncFn(Duration)) {
/// let backoff = Backoff { duration: Duration::from_secs(1), factor: 2.0, jitter: 0.1, steps: 6, ..Backoff::default() };
/// let manager = BackoffManager::new(backoff, Duration::from_secs(600));
/// backoff_until_async(poll_the_server, manager, Timing::Sliding, stop, |delay| sleep(delay)).await;
/// # }
/// ```
pub async fn backoff_until_async<F, S>(
    mut f: impl FnMut() -> F,
    mut manager: BackoffManager,
    timing: Timing,
    stop: Stop,
    mut sleep: impl FnMut(Duration) -> S,
) where
    // Not `AsyncFnMut`: rustc 1.95 cannot prove that such a task may go to another thread.
    F: Future<Output = ()>,
    S: Future<Output = ()>,
{
    while !stop.is_stopped() {
        let run = Run::begin(&mut manager, timing);
        f().await;
        let end = run.end(&mut manager);
        if stop.is_stopped() {
            return;
        }
        let rest = if end == u64::MAX { u64::MAX } else { end.saturating_sub(manager.clock.now()) };
        let mut stopped = pin!(stop.wait_async());
        let mut slept = pin!(sleep(Duration::from_nanos(rest)));
        let either = poll_fn(|context| {
            let over = stopped.as_mut().poll(context).is_ready() || slept.as_mut().poll(context).is_ready();
            if over { Poll::Ready(()) } else { Poll::Pending }
        });
        either.await;
    }
}

/// One call.
struct Run {
    /// Not sliding: when the delay is over.
    end: Option<u64>,
}

impl Run {
    fn begin(manager: &mut BackoffManager, timing: Timing) -> Self {
        Self { end: (timing == Timing::NonSliding).then(|| delay_end(manager)) }
    }

    /// When the next call is to begin.
    fn end(self, manager: &mut BackoffManager) -> u64 {
        self.end.unwrap_or_else(|| delay_end(manager))
    }
}

/// When a delay is over that begins now.
fn delay_end(manager: &mut BackoffManager) -> u64 {
    let delay = manager.step();
    manager.clock.now().saturating_add(nanos(delay))
}
