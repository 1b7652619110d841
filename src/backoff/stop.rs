//! A signal that is set once, and that interrupts waiting.
//!
//! The signal is a flag and a list of waiters under a lock. A waiter checks the flag and joins the list in one critical section, and `stop`
//! sets the flag and takes all waiters off the list in another, so that no waiter misses the stop.

use crate::Clock;
use crate::sync::{Arc, Mutex, with_parker};
use crate::time::nanos;
use crate::wait::{Ticket, WaitList, Waiter, leave, poll_on};
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A signal that stops threads and tasks. It cannot be reset. Clones are the same signal.
///
/// # Memory ordering
/// What happened before [`stop`](Self::stop) is visible to every thread and task that has seen the stop.
///
/// # Examples
/// ```
/// use keyqueue::backoff::Stop;
/// use std::thread;
/// use std::time::Duration;
///
/// let stop = Stop::new();
/// let worker = thread::spawn({
///     let stop = stop.clone();
///     move || while !stop.wait_timeout(Duration::from_secs(10)) { /* every ten seconds */ }
/// });
/// stop.stop();
/// worker.join().unwrap(); // at once
/// ```
#[doc(alias = "stopCh")]
#[doc(alias = "NeverStop")]
#[derive(Clone)]
pub struct Stop(Arc<Mutex<Core>>);

#[derive(Default)]
struct Core {
    stopped: bool,
    waiters: WaitList,
}

/// The future that [`Stop::wait_async`] returns. It resolves when the signal is stopped.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// let stop = keyqueue::backoff::Stop::new();
/// stop.stop();
/// stop.wait_async().await;
/// # });
/// ```
#[must_use = "a future does nothing unless polled"]
pub struct StopWait<'a> {
    stop: &'a Stop,
    ticket: Option<Ticket>,
}

impl Stop {
    /// Creates a signal that is not stopped.
    ///
    /// # Examples
    /// ```
    /// let stop = keyqueue::backoff::Stop::new();
    /// assert!(!stop.is_stopped());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Core::default())))
    }

    /// Sets the signal: wakes all waiters, and later waits return at once. Calling it again has no effect.
    ///
    /// # Examples
    /// ```
    /// let stop = keyqueue::backoff::Stop::new();
    /// stop.clone().stop(); // clones are one
    /// assert!(stop.is_stopped());
    /// ```
    pub fn stop(&self) {
        let waiters = {
            let core = &mut *self.0.lock();
            core.stopped = true;
            core.waiters.take_all()
        };
        let _caught = waiters.wake();
    }

    /// Whether the signal is stopped.
    ///
    /// # Examples
    /// ```
    /// let stop = keyqueue::backoff::Stop::new();
    /// assert!(!stop.is_stopped());
    /// ```
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Waits until the signal is stopped.
    ///
    /// # Blocking
    /// Parks the thread.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::backoff::Stop;
    /// use std::thread;
    ///
    /// let stop = Stop::new();
    /// let waiting = thread::spawn({
    ///     let stop = stop.clone();
    ///     move || stop.wait()
    /// });
    /// stop.stop();
    /// waiting.join().unwrap();
    /// ```
    pub fn wait(&self) {
        let _stopped = self.wait_until(&Clock::new(), u64::MAX);
    }

    /// Waits until the signal is stopped, for at most this time. Returns whether it is stopped. `Duration::MAX` waits forever.
    ///
    /// # Blocking
    /// Parks the thread.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let stop = keyqueue::backoff::Stop::new();
    /// assert!(!stop.wait_timeout(Duration::from_millis(1))); // not stopped meanwhile
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let clock = Clock::new();
        self.wait_until(&clock, clock.now().saturating_add(nanos(timeout)))
    }

    /// Waits until the signal is stopped, or until the clock shows `until`. Returns whether the signal is stopped.
    pub(super) fn wait_until(&self, clock: &Clock, until: u64) -> bool {
        with_parker(|parker| {
            // A mock clock unparks the thread when it is moved. Subscribing comes before reading it, so that no move is missed.
            let subscription = clock.subscribe(parker.unparker());
            let stopped = loop {
                let late = until != u64::MAX && clock.now() >= until;
                let unparker = parker.unparker();
                let ticket = {
                    let core = &mut *self.0.lock();
                    if core.stopped || late {
                        break core.stopped;
                    }
                    core.waiters.push(Waiter::Thread(unparker))
                };
                parker.park(clock.instant(until));
                let _listed = self.0.lock().waiters.remove(ticket);
            };
            clock.unsubscribe(subscription);
            stopped
        })
    }

    /// Like [`wait`](Self::wait), for a task.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// let stop = keyqueue::backoff::Stop::new();
    /// stop.stop();
    /// stop.wait_async().await; // at once
    /// # });
    /// ```
    pub fn wait_async(&self) -> StopWait<'_> {
        StopWait { stop: self, ticket: None }
    }
}

impl Future for StopWait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { stop, ticket } = self.get_mut();
        let (stopped, _caught) = poll_on(&stop.0, waiters, ticket, context.waker(), |core| core.stopped);
        if stopped { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for StopWait<'_> {
    fn drop(&mut self) {
        let _caught = leave(&self.stop.0, waiters, self.ticket);
    }
}

fn waiters(core: &mut Core) -> &mut WaitList {
    &mut core.waiters
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

// No user code runs under the lock, so no panic leaves the data inconsistent.
impl UnwindSafe for Stop {}
impl RefUnwindSafe for Stop {}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stopped, waiters) = {
            let core = self.0.lock();
            (core.stopped, core.waiters.len())
        };
        f.debug_struct("Stop").field("stopped", &stopped).field("waiters", &waiters).finish()
    }
}

impl fmt::Debug for StopWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopWait").field("stop", self.stop).finish()
    }
}
