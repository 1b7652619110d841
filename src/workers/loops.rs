//! The loops of one `Workers`: their number and their counts, a stop flag, and waiting for their end.

use crate::observe::Runs;
use crate::panics::{contained, discard};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, JoinHandle, Mutex, Ordering, current_thread, next_id};
use crate::time::deadline::Deadline;
use crate::wait::{Ticket, WaitList, WakeList, leave, park_on, poll_on};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Counts of what workers have done so far; from [`Workers::tally`](crate::Workers::tally).
///
/// A run of a handler that has ended counts in one of [`succeeded`](Self::succeeded), [`paused`](Self::paused),
/// [`failed`](Self::failed) and [`refused`](Self::refused), so their sum is the number of runs. It counts before its key is done; a refused
/// one counts in another of them until the queue refuses its key. If a task is dropped while its handler waits, the run counts in none, and
/// its key is added again. The other fields count the retried, requeued and given-up keys, the runs past their time limit, and the caught
/// panics.
///
/// [`Runs`] counts the runs of all workers of a queue, with one field for each result.
///
/// # Examples
/// ```
/// use keyqueue::{Outcome, WorkQueue};
///
/// let queue = WorkQueue::<u32>::new();
/// let workers = queue.workers().spawn(1, |n| match *n.key() {
///     2.. => Outcome::GiveUp("too large".into()),
///     _ => Outcome::Success,
/// })?;
/// queue.add_all([1, 2]);
/// let _leftover = workers.drain();
/// let tally = workers.tally();
/// assert_eq!((tally.succeeded, tally.failed, tally.refused), (1, 1, 0));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Loops that have not ended.
    pub running: usize,
    /// Runs that did not fail, and whose keys need nothing more or were requeued: with [`Outcome::Success`](crate::Outcome::Success),
    /// [`Cooldown`](crate::Outcome::Cooldown), [`RequeueAfter`](crate::Outcome::RequeueAfter) or
    /// [`RequeueWith`](crate::Outcome::RequeueWith). A requeue that the queue refused counts in [`refused`](Self::refused) instead.
    pub succeeded: u64,
    /// Succeeded runs with [`Outcome::RequeueAfter`](crate::Outcome::RequeueAfter) or [`RequeueWith`](crate::Outcome::RequeueWith) whose
    /// keys were requeued.
    pub requeued: u64,
    /// Runs with [`Outcome::PauseGroup`](crate::Outcome::PauseGroup), which are neither successes nor failures. In a queue without
    /// [groups](crate::WorkQueueBuilder::fair_by) such a run has failed. One whose requeue the queue refused counts in
    /// [`refused`](Self::refused) instead.
    pub paused: u64,
    /// Runs that failed: with any other [`Outcome`](crate::Outcome), with a panic of the handler, or by a
    /// [time limit](crate::WorkersBuilder::time_limit). The key is retried or given up, or, after a panic, done if
    /// [`on_panic`](crate::WorkQueueBuilder::on_panic) of the queue says so. A run whose retry the queue refused counts in
    /// [`refused`](Self::refused) instead.
    pub failed: u64,
    /// Failed runs whose keys are retried, even those that [`then_after`](crate::WorkersBuilder::then_after) brings back.
    pub retried: u64,
    /// Runs whose keys were given up, by [`Outcome::GiveUp`](crate::Outcome::GiveUp) or after
    /// [`max_retries`](crate::WorkersBuilder::max_retries). With [`then_after`](crate::WorkersBuilder::then_after) a key counts once until it
    /// succeeds, at the first failure after its last retry, which also counts in `retried` or in `refused`.
    pub given_up: u64,
    /// Failed runs of tasks whose handler was dropped at its [time limit](crate::WorkersBuilder::time_limit). The key is retried or given up.
    pub timed_out: u64,
    /// Runs that have lasted longer than their [time limit](crate::WorkersBuilder::time_limit), on threads and tasks, each of which counts
    /// in another field, too, when it has ended. A run counts here as soon as it is found late, just before
    /// [`on_stuck`](crate::WorkersBuilder::on_stuck) is called.
    pub late: u64,
    /// Panics of handlers, hooks and other user code, such as the wakers of tasks that [join](crate::Workers::join_async).
    pub panicked: u64,
    /// Runs whose retry or requeue the queue refused, because it was shut down. No other field counts them, except that a panic counts in
    /// `panicked`, a handler that was dropped at its limit in `timed_out`, a run past its limit in `late`, and a key that is given up at the
    /// same time in `given_up`. Drains and stops return these keys in [`Leftover::refused`](crate::Leftover::refused), unless a key was added
    /// while it was processing and so is queued again.
    pub refused: u64,
}

/// The number of a loop, by which one that ends is found among thousands.
#[derive(Clone, Copy)]
struct Id(u64);

impl Default for Id {
    fn default() -> Self {
        Self(next_id())
    }
}

impl Ord for Id {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        #[cfg(all(test, not(loom)))]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Id {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Id {}

impl PartialEq for Id {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

/// The loops of one [`Workers`](super::Workers).
pub(super) struct Loops {
    /// How many of the [spawned](Counts::is_spawned) loops are to end before their next key, or [`ALL`]. Written under the lock of `core`.
    ending: AtomicUsize,
    core: Arc<Mutex<Core>>,
    /// Locked while threads are started, and then `true` if all were started and may begin.
    gate: Mutex<bool>,
}

/// Each loop ends after its current key, also one that was not spawned.
const ALL: usize = usize::MAX;

#[derive(Default)]
pub(crate) struct Core {
    /// The counts of loops that have not ended.
    running: BTreeMap<Id, Arc<Counts>>,
    /// The sum of the counts of loops that have ended, and what is counted for all loops together.
    ended: Tally,
    ended_runs: Runs,
    threads: Vec<JoinHandle<()>>,
    /// Whether the tasks were aborted.
    #[cfg(feature = "tokio")]
    aborted: bool,
    /// Threads that a join has taken out of `threads`, and that have not ended.
    joining: usize,
    /// Threads and tasks that wait until no loop is left, and joins that wait for the threads of another join.
    waiting: WaitList,
}

/// The counts of one loop, which alone writes them, so that counting costs a plain store. They are dropped when the loop has ended, and not
/// under the lock, because the loop and the call that starts it also have a reference.
#[derive(Default)]
pub(super) struct Counts {
    id: Id,
    /// Whether its loop was started by `spawn` or `spawn_tasks`, and is not about to end as one too many. Written under the lock.
    is_spawned: AtomicBool,
    /// Each run counts in one of these seven, before its key is done, so that the hot path stores one number.
    pub(super) done: Count,
    pub(super) requeued: Count,
    pub(super) paused: Count,
    pub(super) run_failed: Count,
    pub(super) run_gave_up: Count,
    pub(super) run_panicked: Count,
    pub(super) run_timed_out: Count,
    /// What became of the keys of runs that failed or panicked.
    pub(super) retried: Count,
    pub(super) given_up: Count,
    /// The requeues and retries that the queue has refused, which count here in addition.
    pub(super) refused_requeues: Count,
    pub(super) refused_pauses: Count,
    pub(super) refused_retries: Count,
    /// Panics of handlers and of other user code.
    pub(super) panicked: Count,
    /// The loop's task, if it is one of `spawn_tasks`.
    #[cfg(feature = "tokio")]
    task: std::sync::OnceLock<tokio::task::AbortHandle>,
}

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds 1. Only the owning loop calls it.
    #[inline]
    pub(super) fn add(&self) {
        // Relaxed: statistics, with a single writer.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    fn is_spawned(&self) -> bool {
        self.is_spawned.load(Ordering::Relaxed) // Relaxed: decided under the lock
    }

    #[cfg(feature = "tokio")]
    fn abort(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    fn runs(&self) -> Runs {
        Runs {
            success: self.done.get(),
            requeue: self.requeued.get(),
            pause: self.paused.get(),
            error: self.run_failed.get(),
            give_up: self.run_gave_up.get(),
            panic: self.run_panicked.get(),
            timeout: self.run_timed_out.get(),
            late: 0, // counted for all loops together
        }
    }

    fn add_to(&self, tally: &mut Tally) {
        // Read before the counts that include them, so that a run in between makes no difference negative.
        let refused = [&self.refused_requeues, &self.refused_pauses, &self.refused_retries].map(Count::get);
        let [refused_requeues, refused_pauses, refused_retries] = refused;
        let runs = self.runs();
        let requeued = runs.requeue.saturating_sub(refused_requeues);
        tally.succeeded += runs.success + requeued;
        tally.requeued += requeued;
        tally.paused += runs.pause.saturating_sub(refused_pauses);
        tally.failed += (runs.error + runs.give_up + runs.panic + runs.timeout).saturating_sub(refused_retries);
        tally.retried += self.retried.get().saturating_sub(refused_retries);
        tally.given_up += self.given_up.get();
        tally.timed_out += runs.timeout;
        tally.panicked += self.panicked.get();
        tally.refused += refused.iter().sum::<u64>();
    }
}

impl Core {
    fn begin(&mut self, is_spawned: bool) -> Arc<Counts> {
        let counts = Counts { is_spawned: AtomicBool::new(is_spawned), ..Counts::default() };
        let counts = Arc::new(counts);
        self.running.insert(counts.id, Arc::clone(&counts));
        counts
    }

    /// A number of loops that goes up and down leaves no handles behind. (loom does not say whether a thread has ended.)
    fn forget_ended_threads(&mut self) {
        #[cfg(not(loom))]
        self.threads.retain(|thread| !thread.is_finished());
    }

    fn runs(&self) -> Runs {
        let mut runs = self.ended_runs;
        self.running.values().for_each(|counts| runs.add(counts.runs()));
        runs
    }
}

/// While this exists, started threads wait. If it is dropped without being opened, they end.
pub(super) struct Gate<'g>(crate::sync::MutexGuard<'g, bool>);

impl Gate<'_> {
    pub(super) fn open(mut self) {
        *self.0 = true;
    }
}

impl Default for Loops {
    fn default() -> Self {
        let core = Arc::new(Mutex::new(Core::default()));
        Self { ending: AtomicUsize::new(0), core, gate: Mutex::new(false) }
    }
}

impl Loops {
    pub(super) fn gate(&self) -> Gate<'_> {
        Gate(self.gate.lock())
    }

    pub(super) fn is_open(&self) -> bool {
        *self.gate.lock()
    }

    pub(super) fn join_later(&self, thread: JoinHandle<()>) {
        self.core.lock().threads.push(thread);
    }

    /// Keeps the task of a loop until the loop has ended. Aborts it if the others were aborted.
    #[cfg(feature = "tokio")]
    pub(super) fn keep_task(&self, counts: &Counts, task: tokio::task::AbortHandle) {
        let aborted = {
            let core = &*self.core.lock();
            _ = counts.task.set(task); // once for each loop
            core.aborted
        };
        if aborted {
            counts.abort();
        }
    }

    /// Aborts the tasks of the loops that have not ended, without the lock, because this calls the runtime.
    #[cfg(feature = "tokio")]
    pub(super) fn abort_tasks(&self) {
        let running = {
            let core = &mut *self.core.lock();
            core.aborted = true;
            core.running.values().cloned().collect::<Vec<_>>()
        };
        running.iter().for_each(|counts| counts.abort());
    }

    /// What is kept for the loops that run.
    #[cfg(all(test, feature = "tokio", not(loom)))]
    pub(super) fn weak_counts(&self) -> Vec<std::sync::Weak<Counts>> {
        self.core.lock().running.values().map(Arc::downgrade).collect()
    }

    /// Adds a loop, and returns its counts.
    pub(super) fn begin(&self, is_spawned: bool) -> Arc<Counts> {
        self.core.lock().begin(is_spawned)
    }

    /// Has this many spawned loops run. Returns the counts of those that the caller must start, and whether some are to end instead.
    pub(super) fn resize(&self, n: usize) -> (Vec<Arc<Counts>>, bool) {
        let core = &mut *self.core.lock();
        if self.is_stopped() {
            return (Vec::new(), false);
        }
        core.forget_ended_threads();
        let spawned = core.running.values().filter(|counts| counts.is_spawned()).count();
        let ending = spawned.saturating_sub(n);
        self.ending.store(ending, Ordering::Release); // Release: as in `stop`
        ((spawned..n).map(|_| core.begin(true)).collect(), ending > 0)
    }

    /// Whether this loop is to end instead of taking a key.
    #[inline]
    pub(super) fn ends(&self, counts: &Counts) -> bool {
        // Acquire, with Release in `stop`: a loop that this ends sees what happened before `stop`.
        let ending = self.ending.load(Ordering::Acquire);
        ending != 0 && (ending == ALL || self.ends_as_one_too_many(counts))
    }

    #[cold]
    fn ends_as_one_too_many(&self, counts: &Counts) -> bool {
        counts.is_spawned() && self.take_off(counts, &mut self.core.lock())
    }

    /// Takes a loop off the number of those that are to end. Returns whether it was one of them.
    fn take_off(&self, counts: &Counts, _locked: &mut Core) -> bool {
        let ending = self.ending.load(Ordering::Relaxed); // Relaxed, here and below: written under this lock
        if ending == 0 || ending == ALL || !counts.is_spawned() {
            return ending == ALL; // a stop may have come since
        }
        self.ending.store(ending - 1, Ordering::Relaxed);
        counts.is_spawned.store(false, Ordering::Relaxed);
        true
    }

    /// Whether this loop, which waits for a key, should come back to [`ends`](Self::ends).
    pub(super) fn may_end(&self, counts: &Counts) -> bool {
        // Relaxed: it is written before the hub's lock is taken, and read after.
        let ending = self.ending.load(Ordering::Relaxed);
        ending == ALL || ending != 0 && counts.is_spawned()
    }

    /// Wakes those that wait for the loops. A waker's panic is caught and counted.
    fn wake(&self, waiting: WakeList) {
        self.note_panics(waiting.wake());
    }

    /// Counts panics of foreign code that no loop has called.
    pub(super) fn note_panics(&self, panics: usize) {
        if panics > 0 {
            self.core.lock().ended.panicked += panics as u64;
        }
    }

    /// Counts a run that is late, which may not have ended.
    pub(super) fn note_late(&self) {
        let core = &mut *self.core.lock();
        core.ended.late += 1;
        core.ended_runs.late += 1;
    }

    /// A loop has ended.
    pub(super) fn end(&self, counts: &Arc<Counts>) {
        let waiting = {
            let core = &mut *self.core.lock();
            self.take_off(counts, core); // if it ends for another reason
            core.running.remove(&counts.id);
            counts.add_to(&mut core.ended);
            core.ended_runs.add(counts.runs());
            if core.running.is_empty() { core.waiting.take_all() } else { Default::default() }
        };
        self.wake(waiting);
    }

    /// A function that counts the runs of these loops, including those that have ended.
    pub(super) fn counter(&self) -> impl Fn() -> Runs + use<> {
        let core = Arc::clone(&self.core);
        move || core.lock().runs()
    }

    pub(super) fn tally(&self) -> Tally {
        let core = &*self.core.lock();
        let mut tally = Tally { running: core.running.len(), ..core.ended };
        core.running.values().for_each(|counts| counts.add_to(&mut tally));
        tally
    }

    pub(super) fn stop(&self) {
        let _core = self.core.lock();
        self.ending.store(ALL, Ordering::Release); // with Acquire in `ends`
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.ending.load(Ordering::Acquire) == ALL
    }

    /// Waits until no loop is left, or until the deadline. It joins no thread, because a join has no deadline, and a thread whose loop has
    /// ended may take any time to drop its thread-locals.
    pub(super) fn wait(&self, deadline: &Deadline) {
        park_on(&self.core, waiting, deadline, |core, late| (core.running.is_empty() || late).then_some(()));
    }

    /// Waits until no loop and no thread is left.
    pub(super) fn join(&self) {
        self.wait(&Deadline::never());
        let threads = {
            let core = &mut *self.core.lock();
            core.joining += core.threads.len();
            std::mem::take(&mut core.threads)
        };
        for thread in threads {
            // A thread in the drop of a thread-local must not join itself, which POSIX leaves undefined. So late in its life the standard
            // library may also panic when it is asked for the current thread.
            contained(|| (thread.thread().id() != current_thread().id()).then(|| thread.join().map_err(discard)));
            self.joined();
        }
        park_on(&self.core, waiting, &Deadline::never(), |core, _| (core.joining == 0).then_some(()));
    }

    /// A join has seen the end of a thread.
    fn joined(&self) {
        let waiting = {
            let core = &mut *self.core.lock();
            core.joining -= 1;
            if core.joining == 0 { core.waiting.take_all() } else { Default::default() }
        };
        self.wake(waiting);
    }

    /// Like [`wait`](Self::wait), for a task.
    pub(super) fn ended(&self) -> Ended<'_> {
        Ended { loops: self, ticket: None }
    }
}

/// Resolves when no loop is left.
pub(super) struct Ended<'g> {
    loops: &'g Loops,
    ticket: Option<Ticket>,
}

impl Future for Ended<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let core = &this.loops.core;
        let (ended, panics) = poll_on(core, waiting, &mut this.ticket, cx.waker(), |core| core.running.is_empty());
        this.loops.note_panics(panics);
        if ended { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.loops.note_panics(leave(&self.loops.core, waiting, self.ticket));
    }
}

fn waiting(core: &mut Core) -> &mut WaitList {
    &mut core.waiting
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use crate::sync::spawn;
    use std::cell::Cell;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    std::thread_local!(pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) });

    /// Each compares a few numbers, and does not visit the others.
    #[test]
    fn a_loop_or_a_workers_that_ends_is_found_at_once() {
        const MANY: u64 = if cfg!(miri) { 300 } else { 10_000 };
        let compared = |what: &str, step: &mut dyn FnMut()| {
            let before = COMPARED.get();
            step();
            let each = (COMPARED.get() - before) / MANY;
            assert!(each <= 100, "{what}: {each} numbers are compared for each of {MANY}");
        };
        let (loops, mut alive) = (Loops::default(), Vec::new());
        compared("a loop begins", &mut || alive.extend((0..MANY).map(|_| loops.begin(false))));
        let (some, others) = alive.split_at(alive.len() / 2);
        compared("a loop ends", &mut || some.iter().rev().chain(others).for_each(|counts| loops.end(counts)));
        assert_eq!(loops.tally().running, 0);
    }

    #[test]
    fn the_runs_of_dropped_workers_still_count() {
        let queue = WorkQueue::new();
        queue.add_all([1, 2]);
        queue.shut_down();
        let workers = queue.workers().build();
        workers.run(|_: &crate::Item<'_, u32>| ());
        drop(workers);
        queue.shared.count_runs(|counters| assert_eq!((counters.len(), counters.sum().success), (0, 2)));
    }

    /// Two joins at the same time both return after the thread has ended, although only one of them has its handle.
    #[test]
    fn joins_at_the_same_time_wait_for_all_threads() {
        let loops = Loops::default();
        let (end, wait) = mpsc::channel::<()>();
        let (send, ended) = mpsc::channel();
        loops.join_later(
            spawn("joined", move || {
                _ = wait.recv();
                send.send(()).unwrap();
                std::panic::resume_unwind(Box::new("the end of a thread"));
            })
            .unwrap(),
        );
        let start = Instant::now();
        thread::scope(|scope| {
            let joins = [(); 2].map(|()| scope.spawn(|| loops.join()));
            // One joins the thread, and the other waits for it.
            while loops.core.lock().waiting.is_empty() && start.elapsed().as_secs() < 30 {
                thread::yield_now();
            }
            let returned = joins.iter().any(|join| join.is_finished());
            end.send(()).unwrap();
            assert!(!returned, "a join has returned before the thread has ended");
        });
        assert!(ended.try_recv().is_ok());
        let core = loops.core.lock();
        assert_eq!((core.joining, core.threads.len()), (0, 0));
        drop(core);
        loops.join();
    }

    /// Threads that were started before one could not be started do not begin.
    #[test]
    fn a_gate_that_is_dropped_stays_closed() {
        let workers = WorkQueue::<u32>::new().workers().build();
        let (loops, (_handler, own)) = (&workers.inner.loops, workers.enter(()));
        drop(loops.gate());
        assert!(!own.may_begin());
        loops.gate().open();
        assert!(own.may_begin());
    }

    /// Tasks that wait for the loops: one stops waiting, and the waker of the other panics, which counts.
    #[test]
    fn a_task_stops_waiting_and_a_waker_that_panics_is_counted() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: std::sync::Arc<Self>) {
                std::panic::resume_unwind(Box::new("a waker"));
            }
        }
        let (loops, waker) = (Loops::default(), std::task::Waker::from(std::sync::Arc::new(Panics)));
        let counts = loops.begin(false);
        for end in [false, true] {
            let mut ended = loops.ended();
            assert!(Pin::new(&mut ended).poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(!loops.core.lock().waiting.is_empty());
            if end {
                loops.end(&counts);
            }
            drop(ended);
            assert!(loops.core.lock().waiting.is_empty());
        }
        assert_eq!((loops.tally().running, loops.tally().panicked), (0, 1));
    }

    /// A thread that joins itself, as the drop of a thread-local may.
    #[test]
    fn a_thread_that_joins_itself_keeps_no_other_join_waiting() {
        let loops = Arc::new(Loops::default());
        let (send, own) = mpsc::channel::<()>();
        let thread = spawn("joins itself", {
            let loops = Arc::clone(&loops);
            move || {
                _ = own.recv();
                loops.join();
            }
        });
        loops.join_later(thread.unwrap());
        let (report, joined) = mpsc::channel();
        drop(send);
        thread::spawn(move || {
            while !loops.core.lock().threads.is_empty() {
                thread::yield_now();
            }
            loops.join();
            report.send(())
        });
        joined.recv_timeout(std::time::Duration::from_secs(30)).expect("a join has not returned after 30 s");
    }
}
