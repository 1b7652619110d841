//! A signal that is given once, and that interrupts waiting.
//!
//! One bit and a list of waiters under a lock. Who waits looks at the bit and goes on the list in one critical section, and
//! who stops sets it and takes all off the list in another: nobody can miss it.

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

/// Tells threads and tasks to stop, once and for all. Clones are the same signal.
///
/// # Memory ordering
/// What happened before [`stop`](Self::stop) is visible to whoever has learned of it.
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
#[derive(Clone)]
pub struct Stop(Arc<Mutex<Core>>);

#[derive(Default)]
struct Core {
    stopped: bool,
    waiters: WaitList,
}

/// Resolves when there is a stop: from [`Stop::stopped`].
#[must_use = "a future does nothing unless polled"]
pub struct Stopped<'a> {
    stop: &'a Stop,
    ticket: Option<Ticket>,
}

impl Stop {
    /// Not stopped yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Core::default())))
    }

    /// Stops: wakes all that wait, and nobody waits from here on. Again has no effect.
    pub fn stop(&self) {
        let waiters = {
            let core = &mut *self.0.lock();
            core.stopped = true;
            core.waiters.take_all()
        };
        let _caught = waiters.wake();
    }

    /// Whether there was a stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Waits until there is a stop.
    ///
    /// # Blocking
    /// Parks the thread.
    pub fn wait(&self) {
        let _stopped = self.wait_until(&Clock::new(), u64::MAX);
    }

    /// Waits until there is a stop, but at most this long. Whether there was one. `Duration::MAX` is for ever.
    ///
    /// # Blocking
    /// Parks the thread.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let clock = Clock::new();
        self.wait_until(&clock, clock.now().saturating_add(nanos(timeout)))
    }

    /// Waits until there is a stop, but at most until this clock shows so much. Whether there was one.
    pub(super) fn wait_until(&self, clock: &Clock, until: u64) -> bool {
        with_parker(|parker| {
            // A mock clock wakes us when it is moved. Before we look at it, so that no move is missed.
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

    /// Waits until there is a stop, as a task.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub fn stopped(&self) -> Stopped<'_> {
        Stopped { stop: self, ticket: None }
    }
}

impl Future for Stopped<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { stop, ticket } = self.get_mut();
        let stopped = poll_on(&stop.0, waiters, ticket, context.waker(), |core| core.stopped);
        if stopped { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        leave(&self.stop.0, waiters, self.ticket);
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

// No user code runs under the lock, so no panic can leave anything half made.
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

impl fmt::Debug for Stopped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped").field("stop", self.stop).finish()
    }
}
