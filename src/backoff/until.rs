//! Calling a function repeatedly, with backoff, until a stop.

use super::{BackoffManager, Stop};
use crate::time::nanos;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// When a delay starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Timing {
    /// At the end of a call: the pause between two calls is the delay.
    #[default]
    Sliding,
    /// At the start of a call: the call's duration is a part of the delay. If the call takes longer than the delay, the next call follows
    /// at once.
    NonSliding,
}

/// Calls `f`, waits for the manager's next delay, and repeats this until a stop. If the stop comes first, it does not call `f`.
///
/// A stop interrupts the wait, not `f`. A panic of `f` passes through. To go on after a panic, catch it in `f`.
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
#[doc(alias = "NonSlidingUntil")]
#[doc(alias = "Forever")]
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

/// Like [`backoff_until`], for a task. `sleep` returns a future that waits, such as `tokio::time::sleep`.
///
/// # Cancel safety
/// Dropping it ends the loop. If a call of `f` is running, its future is dropped too.
///
/// # Examples
/// ```
/// use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until_async};
/// use std::time::Duration;
///
/// # async fn poll_the_server() {}
/// # async fn example(stop: Stop, sleep: impl AsyncFn(Duration)) {
/// let backoff = Backoff {
///     duration: Duration::from_secs(1),
///     factor: 2.0,
///     jitter: 0.1,
///     steps: 6,
///     ..Backoff::default()
/// };
/// let manager = BackoffManager::new(backoff, Duration::from_secs(600));
/// backoff_until_async(poll_the_server, manager, Timing::Sliding, stop, |delay| sleep(delay))
///     .await;
/// # }
/// ```
pub async fn backoff_until_async<F, S>(
    mut f: impl FnMut() -> F,
    mut manager: BackoffManager,
    timing: Timing,
    stop: Stop,
    mut sleep: impl FnMut(Duration) -> S,
) where
    // Not `AsyncFnMut`: rustc 1.95 cannot prove that such a future is `Send`.
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
            let done = stopped.as_mut().poll(context).is_ready() || slept.as_mut().poll(context).is_ready();
            if done { Poll::Ready(()) } else { Poll::Pending }
        });
        either.await;
    }
}

/// One call of the function.
struct Run {
    /// With [`Timing::NonSliding`]: when the delay expires.
    end: Option<u64>,
}

impl Run {
    fn begin(manager: &mut BackoffManager, timing: Timing) -> Self {
        Self { end: (timing == Timing::NonSliding).then(|| delay_end(manager)) }
    }

    /// When the next call is due.
    fn end(self, manager: &mut BackoffManager) -> u64 {
        self.end.unwrap_or_else(|| delay_end(manager))
    }
}

/// When the manager's next delay expires, if it starts now.
fn delay_end(manager: &mut BackoffManager) -> u64 {
    let delay = manager.step();
    manager.clock.now().saturating_add(nanos(delay))
}
