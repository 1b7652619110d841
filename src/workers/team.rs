//! Who is at work: how many loops there are, what they have done, and how to tell them to end and wait for it.

use super::Tally;
use crate::panics::discard;
use crate::sync::{Arc, AtomicBool, AtomicU64, JoinHandle, Mutex, Ordering};
use crate::wait::{Ticket, WaitList, leave, poll_on, sleep_on};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// The loops of one [`Workers`](super::Workers).
pub(super) struct Team {
    /// Loops end when they have finished what they are working on.
    stopped: AtomicBool,
    core: Mutex<Core>,
    /// Held while threads are started: whether they may begin.
    gate: Mutex<bool>,
}

#[derive(Default)]
struct Core {
    /// What those count that have not ended.
    running: Vec<Arc<Counts>>,
    /// What those have counted that have.
    ended: Tally,
    threads: Vec<JoinHandle<()>>,
    /// Who waits for the end.
    waiting: WaitList,
}

/// What one loop counts: written by it alone, so that a step costs no more than a store.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) succeeded: Count,
    pub(super) requeued: Count,
    pub(super) retried: Count,
    pub(super) given_up: Count,
    pub(super) panicked: Count,
    pub(super) refused: Count,
}

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// By the one loop whose it is.
    #[inline]
    pub(super) fn add(&self) {
        // Relaxed: numbers for the eye. Nobody else writes.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    fn add_to(&self, tally: &mut Tally) {
        tally.succeeded += self.succeeded.get();
        tally.requeued += self.requeued.get();
        tally.retried += self.retried.get();
        tally.given_up += self.given_up.get();
        tally.panicked += self.panicked.get();
        tally.refused += self.refused.get();
    }
}

/// Threads that were started wait while this lives, and end at once if it is dropped before it was opened.
pub(super) struct Gate<'t>(crate::sync::MutexGuard<'t, bool>);

impl Gate<'_> {
    pub(super) fn open(mut self) {
        *self.0 = true;
    }
}

impl Default for Team {
    fn default() -> Self {
        Self { stopped: AtomicBool::new(false), core: Mutex::new(Core::default()), gate: Mutex::new(false) }
    }
}

impl Team {
    pub(super) fn gate(&self) -> Gate<'_> {
        Gate(self.gate.lock())
    }

    pub(super) fn is_open(&self) -> bool {
        *self.gate.lock()
    }

    pub(super) fn join_later(&self, thread: JoinHandle<()>) {
        self.core.lock().threads.push(thread);
    }

    /// One more loop, which counts here.
    pub(super) fn enter(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.core.lock().running.push(Arc::clone(&counts));
        counts
    }

    /// A loop has ended.
    pub(super) fn leave(&self, counts: &Arc<Counts>) {
        let waiting = {
            let core = &mut *self.core.lock();
            core.running.retain(|other| !Arc::ptr_eq(other, counts));
            counts.add_to(&mut core.ended);
            if core.running.is_empty() { core.waiting.take_all() } else { Default::default() }
        };
        let _caught = waiting.wake();
    }

    pub(super) fn tally(&self) -> Tally {
        let core = &*self.core.lock();
        let mut tally = Tally { running: core.running.len(), ..core.ended };
        core.running.iter().for_each(|counts| counts.add_to(&mut tally));
        tally
    }

    pub(super) fn stop(&self) {
        // Release, and Acquire below: who ends because of it sees what came before.
        self.stopped.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Sleeps until no loop is left, or until the deadline. Joins no thread: a join has no deadline, and a thread whose loop has ended
    /// may take as long as it likes to drop its thread-locals. (`JoinHandle::is_finished` does not look at these.)
    pub(super) fn wait(&self, deadline: Option<Instant>) {
        sleep_on(&self.core, waiting, deadline, |core, late| (core.running.is_empty() || late).then_some(()));
    }

    /// Sleeps until no loop is left, and no thread.
    pub(super) fn join(&self) {
        self.wait(None);
        let threads = std::mem::take(&mut self.core.lock().threads);
        threads.into_iter().filter_map(|thread| thread.join().err()).for_each(discard);
    }

    /// As [`wait`](Self::wait), for a task.
    pub(super) fn ended(&self) -> Ended<'_> {
        Ended { team: self, ticket: None }
    }
}

/// Resolves when no loop is left.
pub(super) struct Ended<'t> {
    team: &'t Team,
    ticket: Option<Ticket>,
}

impl Future for Ended<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let ended = poll_on(&this.team.core, waiting, &mut this.ticket, cx.waker(), |core| core.running.is_empty());
        if ended { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        leave(&self.team.core, waiting, self.ticket);
    }
}

fn waiting(core: &mut Core) -> &mut WaitList {
    &mut core.waiting
}
