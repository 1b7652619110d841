//! Time limits of the runs of [`Workers`](keyqueue::Workers).
//!
//! Checks: a task's handler is dropped at the limit, by the queue's clock, and its key is retried like any key that has failed. A thread's
//! handler goes on, and can ask whether it is late. `on_stuck` is called once for each run past its limit, however that run ends. All this
//! is tried beside stops, panics, cool-downs, limits of groups, the pause and values.

mod support {
    pub(crate) mod manual;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::values::ValueQueue;
use keyqueue::{
    Added, Clock, GivenUp, Item, KeyActivity, MockClock, Outcome, Tally, WorkQueue, WorkQueueBuilder, Workers,
    WorkersBuilder,
};
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use support::manual::manual;
use support::within::within_30_s;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const LIMIT: Duration = secs(5);
const NANO: Duration = Duration::from_nanos(1);

/// The queues on which the runs are tried, each with a backoff of 10 s, 20 s and so on.
fn queues() -> Vec<(&'static str, WorkQueue<u32>, MockClock)> {
    #[cfg_attr(not(feature = "lock-free"), allow(unused_mut))]
    let mut builders: Vec<(_, WorkQueueBuilder<u32>)> = vec![
        ("plain", WorkQueue::builder()),
        ("4 shards", WorkQueue::builder().shards(4)),
        ("groups", WorkQueue::builder().fair_by(|key| key % 2)),
        ("groups, 4 shards", WorkQueue::builder().fair_by(|key| key % 2).shards(4)),
    ];
    #[cfg(feature = "lock-free")]
    builders.push(("lock-free", WorkQueue::builder().lock_free()));
    let build = |(name, builder)| {
        let (builder, time) = manual(builder);
        (name, builder.rate_limiter(ItemExponentialFailure::new(secs(10), secs(1000))).build(), time)
    };
    builders.into_iter().map(build).collect()
}

fn queue() -> (WorkQueue<u32>, MockClock) {
    let (_, queue, time) = queues().swap_remove(0);
    (queue, time)
}

/// What `on_stuck` was called with.
type Stuck = Arc<Mutex<Vec<(u32, Duration)>>>;

fn limited(queue: &WorkQueue<u32>) -> (WorkersBuilder<u32>, Stuck) {
    let stuck = Stuck::default();
    let log = Arc::clone(&stuck);
    let hook = move |key: &u32, age| log.lock().unwrap().push((*key, age));
    (queue.workers().time_limit(LIMIT).on_stuck(hook), stuck)
}

/// A waker that says whether it was called.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Flag {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

fn is_ready(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Polls a loop that does not end.
fn poll(work: Pin<&mut impl Future>) {
    assert!(!is_ready(work), "the loop has ended");
}

/// Counts its drops.
struct Drops<'d>(&'d AtomicUsize);

impl Drop for Drops<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The counts of a tally but for `running`.
fn tally(workers: &Workers<u32>) -> Tally {
    let mut tally = workers.tally();
    tally.running = 0;
    tally
}

/// The delays of all keys.
fn delays(queue: &WorkQueue<u32>) -> Vec<(u32, u64)> {
    support::manual::pairs(queue.inspect().delayed_keys())
        .into_iter()
        .map(|(key, left)| (key, left.as_secs()))
        .collect()
}

#[test]
fn a_task_is_dropped_at_its_limit_and_its_key_is_retried() {
    for (name, queue, time) in queues() {
        let (workers, stuck) = limited(&queue);
        let (workers, dropped) = (workers.build(), AtomicUsize::new(0));
        let hangs = AtomicBool::new(true);
        let mut work = pin!(workers.run_async(async |_| {
            let _held = Drops(&dropped);
            if hangs.load(Ordering::SeqCst) {
                pending::<()>().await;
            }
        }));
        let flag = Arc::<Flag>::default();
        let waker = Waker::from(Arc::clone(&flag));
        let mut poll = || assert!(work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "{name}");
        time.advance(secs(100)); // it is no matter when the queue was made
        queue.add(1);
        poll();
        time.advance(LIMIT - NANO);
        queue.turn();
        assert!(!flag.take(), "{name}: too early");
        poll();
        time.advance(NANO);
        assert!(!flag.take(), "{name}: only a turn wakes it");
        queue.turn();
        assert!(flag.take(), "{name}: a turn at the limit wakes it");
        assert_eq!(*stuck.lock().unwrap(), [(1, LIMIT)], "{name}");
        assert_eq!((dropped.load(Ordering::SeqCst), queue.processing_len()), (0, 1), "{name}: its task drops it");
        poll();
        assert_eq!((dropped.load(Ordering::SeqCst), queue.processing_len()), (1, 0), "{name}");
        assert_eq!((delays(&queue), queue.num_requeues(&1)), (vec![(1, 10)], 1), "{name}: as after any failure");
        let counted = tally(&workers);
        assert_eq!((counted.failed, counted.retried, counted.timed_out, counted.late), (1, 1, 1, 1), "{name}");
        let runs = queue.inspect().metrics().runs;
        assert_eq!((runs.timeout, runs.late, runs.error, runs.panic, runs.give_up), (1, 1, 0, 0, 0), "{name}");

        // A second failure waits twice as long, and a success ends that.
        time.advance(secs(10));
        queue.turn();
        poll();
        time.advance(LIMIT);
        queue.turn();
        poll();
        assert_eq!((delays(&queue), queue.num_requeues(&1)), (vec![(1, 20)], 2), "{name}");
        hangs.store(false, Ordering::SeqCst);
        time.advance(secs(20));
        queue.turn();
        poll();
        time.advance(secs(1000));
        queue.turn();
        assert_eq!((delays(&queue), queue.num_requeues(&1), stuck.lock().unwrap().len()), (vec![], 0, 2), "{name}");
        let counted = tally(&workers);
        assert_eq!((counted.succeeded, counted.failed, counted.timed_out, counted.late), (1, 2, 2, 2), "{name}");
    }
}

/// How the run of a thread ends, and what it counts as.
type End = (fn() -> Outcome, fn(&Tally) -> u64);

/// The handler of a thread goes on past its limit. It can ask, and what it returns counts.
#[test]
fn a_thread_is_told_that_it_is_late() {
    let ends: [End; 4] = [
        (|| Outcome::Success, |tally| tally.succeeded),
        (|| Outcome::failed("too late"), |tally| tally.failed),
        (|| Outcome::RequeueAfter(secs(1)), |tally| tally.requeued),
        (|| resume_unwind(Box::new("a handler")), |tally| tally.panicked),
    ];
    for (at, (end, counted)) in ends.into_iter().enumerate() {
        for turns in [true, false] {
            for (name, queue, time) in queues() {
                let (workers, stuck) = limited(&queue);
                let workers = workers.build();
                queue.add(1);
                workers.run(|item| {
                    queue.shut_down(); // so that the loop ends
                    let mut until_late = pin!(item.until_late());
                    time.advance(LIMIT - NANO);
                    queue.turn();
                    assert!(!item.is_late() && !is_ready(until_late.as_mut()), "{name}: too early");
                    time.advance(NANO);
                    assert!(item.is_late(), "{name}: by the clock alone");
                    assert!(stuck.lock().unwrap().is_empty(), "{name}: nobody can know");
                    if turns {
                        queue.turn();
                        assert!(is_ready(until_late.as_mut()), "{name}");
                        assert_eq!((stuck.lock().unwrap().len(), workers.tally().late), (1, 1), "{name}: at once");
                        queue.turn();
                    }
                    time.advance(secs(1));
                    end()
                });
                time.advance(secs(1000));
                queue.turn();
                let age = if turns { LIMIT } else { LIMIT + secs(1) };
                assert_eq!(*stuck.lock().unwrap(), [(1, age)], "{name}: once, by the first that finds it");
                let tally = workers.tally();
                let of_end = counted(&tally).max(tally.refused); // the queue is shut down
                assert_eq!((tally.late, tally.timed_out, of_end), (1, 0, 1), "{name}");
                assert_eq!(tally.panicked, u64::from(at == 3), "{name}: the last end alone panics");
            }
        }
    }
}

/// A run that ends before its limit is nothing special, however it ends, and a later turn finds nothing.
#[test]
fn a_run_that_ends_in_time_is_not_told_of() {
    let ends: [fn() -> Outcome; 3] = [|| Outcome::Success, || Outcome::Retry, || resume_unwind(Box::new("a handler"))];
    for end in ends {
        for (name, queue, time) in queues() {
            let (workers, stuck) = limited(&queue);
            let workers = workers.build();
            queue.add(1);
            let mut work = pin!(workers.run_async(async |_| {
                time.advance(LIMIT - NANO);
                end()
            }));
            poll(work.as_mut());
            time.advance(LIMIT);
            queue.turn();
            assert_eq!((stuck.lock().unwrap().len(), workers.tally().late), (0, 0), "{name}");
            assert_eq!(workers.tally().timed_out, 0, "{name}");
        }
    }
}

/// The handler is polled once more at its limit, so what it returns then counts, and the run is not timed out.
#[test]
fn a_handler_may_end_by_itself_at_its_limit() {
    for (name, queue, time) in queues() {
        let (workers, stuck) = limited(&queue);
        let workers = workers.build();
        queue.add(1);
        let mut work = pin!(workers.run_async(async |item: &Item<'_, u32>| {
            item.until_late().await;
            assert!(item.is_late());
            Outcome::RequeueAfter(secs(7))
        }));
        poll(work.as_mut());
        time.advance(LIMIT);
        queue.turn();
        poll(work.as_mut());
        assert_eq!((delays(&queue), stuck.lock().unwrap().len()), (vec![(1, 7)], 1), "{name}");
        let tally = workers.tally();
        assert_eq!((tally.requeued, tally.failed, tally.timed_out, tally.late), (1, 0, 0, 1), "{name}");
    }
}

/// Any number of futures may wait for the limit, and one that is dropped does not count.
#[test]
fn each_wait_for_the_limit_is_woken() {
    let (queue, time) = queue();
    let workers = limited(&queue).0.build();
    queue.add(1);
    queue.shut_down();
    workers.run(|item| {
        let flags = [(); 3].map(|()| Arc::<Flag>::default());
        let mut waits = flags.clone().map(|flag| {
            let mut wait = Box::pin(item.until_late());
            let waker = Waker::from(flag);
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            Some(wait)
        });
        assert_eq!(flags.each_ref().map(Arc::strong_count), [2; 3], "a waker is kept once");
        waits[1] = None;
        time.advance(LIMIT);
        queue.turn();
        assert_eq!(flags.each_ref().map(|flag| flag.take()), [true, false, true]);
        assert!(waits.into_iter().flatten().all(|mut wait| is_ready(wait.as_mut())));
    });
    assert_eq!(workers.tally().succeeded, 1, "the handler has panicked");
}

/// Keys without a limit: of a loop without one, of a caller, and with one that the clock does not reach.
#[test]
fn without_a_limit_nothing_is_late() {
    for (name, queue, time) in queues() {
        let check = |item: &Item<'_, u32>| {
            let mut until_late = pin!(item.until_late());
            assert!(!is_ready(until_late.as_mut()), "{name}");
            time.advance(secs(1_000_000_000));
            queue.turn();
            assert!(!item.is_late() && !is_ready(until_late.as_mut()), "{name}");
        };
        queue.add(1);
        let item = queue.get().unwrap();
        check(&item);
        let item = item.into_owned();
        assert!(!item.is_late() && !is_ready(pin!(item.until_late())), "{name}");
        item.done();
        let called = Arc::<AtomicUsize>::default();
        let calls = Arc::clone(&called);
        let never =
            queue.workers().time_limit(Duration::MAX).on_stuck(move |_, _| _ = calls.fetch_add(1, Ordering::SeqCst));
        let (none, never) = (queue.workers().build(), never.build());
        // The last: the clock is at its end, and no limit is in its reach.
        for (advance, workers) in
            [(Duration::ZERO, &none), (Duration::ZERO, &never), (Duration::MAX, &limited(&queue).0.build())]
        {
            time.advance(advance);
            queue.add(1);
            let mut work = pin!(workers.run_async(async |item: &Item<'_, u32>| check(item)));
            poll(work.as_mut());
            let tally = workers.tally();
            assert_eq!((tally.succeeded, tally.late, tally.panicked), (1, 0, 0), "{name}");
        }
        assert_eq!(called.load(Ordering::SeqCst), 0, "{name}");
    }
}

/// What the queue says of a key whose run has a limit, although it does not measure.
#[test]
fn a_key_is_seen_late() {
    for (name, queue, time) in queues() {
        let workers = limited(&queue).0.build();
        queue.add_all([1, 3]);
        let held = queue.get().unwrap();
        time.advance(secs(1));
        let look = |key| {
            let state = queue.inspect().key(&key);
            let KeyActivity::Processing { dirty: false, late } = state.activity else { panic!("{name}: {state}") };
            (late, state.elapsed, state.to_string())
        };
        let (own, other) = (1 + 3 - *held, *held);
        let mut work = pin!(workers.run_async(async |_| {
            time.advance(LIMIT - NANO);
            assert_eq!((look(own).0, look(own).1), (false, Some(LIMIT - NANO)), "{name}");
            time.advance(NANO);
            let text = "processing for 5s at priority 0, past its time limit".to_owned();
            assert_eq!(look(own), (true, Some(LIMIT), text), "{name}: before a turn");
            queue.turn();
            assert_eq!((look(own).0, look(own).1), (true, Some(LIMIT)), "{name}: and after it");
            assert_eq!((look(other).0, look(other).1), (false, None), "{name}: a caller holds it");
        }));
        poll(work.as_mut());
        assert_eq!(queue.inspect().key(&own).activity, KeyActivity::Absent, "{name}");
        assert_eq!((workers.tally().succeeded, workers.tally().panicked), (1, 0), "{name}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let queue = queue().0;
    let wrong = [
        (queue.workers().time_limit(Duration::ZERO), "time_limit: the limit is zero"),
        (queue.workers().on_stuck(|_, _| ()), "on_stuck: there is no time_limit"),
    ];
    for (builder, text) in wrong {
        let panic = catch_unwind(AssertUnwindSafe(|| builder.build())).expect_err("refused");
        assert!(panic.downcast_ref::<String>().unwrap().starts_with(text));
    }
    let error = queue.workers().time_limit(Duration::ZERO).spawn(1, |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("time_limit"));
    assert!(format!("{:?}", queue.workers().time_limit(LIMIT)).contains("time_limit: Some(5s)"));
}

/// A key whose runs are past the limit each time is given up as others are.
#[test]
fn a_key_that_times_out_too_often_is_given_up() {
    for then_after in [None, Some(secs(3600))] {
        let (queue, time) = queue();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&seen);
        let hook = move |key: &u32, why: &GivenUp<'_>| {
            assert!(why.timed_out && why.panic.is_none() && why.reason.is_none());
            log.lock().unwrap().push(format!("{key}: {why}"));
        };
        let workers = limited(&queue).0.max_retries(1).on_give_up(hook);
        let workers = then_after.into_iter().fold(workers, WorkersBuilder::then_after).build();
        let mut work = pin!(workers.run_async(async |_| pending::<()>().await));
        queue.add(1);
        for delay in [10, 3600, 3600] {
            poll(work.as_mut());
            time.advance(LIMIT);
            queue.turn();
            poll(work.as_mut());
            time.advance(secs(delay));
            queue.turn();
        }
        assert_eq!(*seen.lock().unwrap(), ["1: given up after 1 retry: the handler timed out"]);
        let (tally, runs) = (workers.tally(), queue.inspect().metrics().runs);
        let times = if then_after.is_some() { 3 } else { 2 };
        assert_eq!((tally.given_up, tally.failed, tally.timed_out, tally.late), (1, times, times, times));
        assert_eq!((runs.timeout, runs.give_up, runs.error), (times, 0, 0));
    }
}

/// A hook that panics changes nothing but the count of panics, whether the driver calls it or the end of a run, also while that unwinds.
#[test]
fn a_hook_that_panics_breaks_no_run() {
    for (turns, panics) in [(true, false), (false, false), (true, true), (false, true)] {
        let (queue, time) = queue();
        let hook = |_: &u32, _| resume_unwind(Box::new("a hook"));
        let workers = queue.workers().time_limit(LIMIT).on_stuck(hook).build();
        queue.add(1);
        let mut work = pin!(workers.run_async(async |_| {
            time.advance(LIMIT);
            if turns {
                queue.turn();
            }
            if panics {
                resume_unwind(Box::new("a handler"));
            }
        }));
        poll(work.as_mut());
        let tally = workers.tally();
        assert_eq!((tally.succeeded, tally.failed), if panics { (0, 1) } else { (1, 0) });
        assert_eq!((tally.panicked, tally.late, queue.processing_len()), (1 + u64::from(panics), 1, 0));
        assert_eq!(queue.stats().caught_panics, 0, "the workers have caught it");
    }
}

/// A key whose `Clone` panics, so that the hook cannot have it, and one whose drop panics afterwards.
#[test]
fn a_key_that_panics_breaks_no_run() {
    #[derive(PartialEq, Eq, Hash)]
    struct Key(&'static str, bool);
    impl Clone for Key {
        fn clone(&self) -> Self {
            if self.0 == "clone" {
                resume_unwind(Box::new("a clone"));
            }
            Self(self.0, true)
        }
    }
    impl Drop for Key {
        fn drop(&mut self) {
            if self.0 == "drop" && self.1 {
                resume_unwind(Box::new("a drop"));
            }
        }
    }
    let cases = [("clone", true), ("clone", false), ("drop", true), ("drop", false)];
    let cases = cases.map(|(what, is_late)| (what, is_late, LIMIT)).into_iter().chain([("drop", false, Duration::MAX)]);
    for (what, is_late, limit) in cases {
        for unwinds in [false, true] {
            let (builder, time) = manual(WorkQueue::builder());
            let (queue, called) = (builder.build(), Arc::<AtomicUsize>::default());
            let calls = Arc::clone(&called);
            let hook = move |_: &Key, _| _ = calls.fetch_add(1, Ordering::SeqCst);
            let workers = queue.workers().time_limit(limit).on_stuck(hook).build();
            queue.add(Key(what, false));
            let mut work = pin!(workers.run_async(async |_| {
                time.advance(if is_late { LIMIT } else { NANO });
                if unwinds {
                    resume_unwind(Box::new("a handler"));
                }
            }));
            poll(work.as_mut());
            let (tally, stats) = (workers.tally(), queue.stats());
            assert_eq!(called.load(Ordering::SeqCst), usize::from(is_late && what == "drop"));
            assert_eq!((tally.succeeded, tally.failed), if unwinds { (0, 1) } else { (1, 0) });
            assert_eq!((tally.late, stats.processing), (u64::from(is_late), 0));
            let panics = u64::from(unwinds);
            let expected = if what == "clone" { (panics + 1, 0) } else { (panics, 1) };
            assert_eq!((tally.panicked, stats.caught_panics), expected, "{what}");
        }
    }
}

/// The drop of a handler at its limit is foreign code: if it panics, the run has panicked.
#[test]
fn a_handler_whose_drop_panics_has_panicked() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new("a drop"));
        }
    }
    for (name, queue, time) in queues() {
        let (workers, stuck) = limited(&queue);
        let workers = workers.build();
        queue.add(1);
        let mut work = pin!(workers.run_async(async |_| {
            let _held = Panics;
            pending::<()>().await;
        }));
        poll(work.as_mut());
        time.advance(LIMIT);
        queue.turn();
        poll(work.as_mut());
        let tally = workers.tally();
        assert_eq!((tally.panicked, tally.failed, tally.retried, tally.timed_out), (1, 1, 1, 0), "{name}");
        assert_eq!((tally.late, stuck.lock().unwrap().len(), delays(&queue)), (1, 1, vec![(1, 10)]), "{name}");
    }
}

/// What the handler has done to its key before its limit stands, as before any failure, and the delay of an earlier run is replaced.
#[test]
fn a_timeout_is_the_newest_decision() {
    /// What the handler has done; when the retry is due; the delay that is left beside it then; and how often the key is queued before.
    type Case = (fn(&WorkQueue<u32>), u64, Option<u64>, usize);
    let cases: [Case; 5] = [
        (|_| (), 20, None, 0),
        (|queue| queue.forget(&1), 10, None, 0),
        (|queue| assert_eq!(queue.add(1), Added::Deferred), 20, None, 1),
        (|queue| _ = queue.add_after(1, secs(100)), 20, Some(75), 0),
        (|queue| _ = queue.remove(&1), 20, None, 0),
    ];
    for (at, (before, retry, other, queued)) in cases.into_iter().enumerate() {
        let (queue, time) = queue();
        queue.add(1);
        queue.get().unwrap().retry(); // in 10 s
        queue.add(1); // an event, whose run decides anew
        let workers = limited(&queue).0.build();
        let mut work = pin!(workers.run_async(async |_| {
            before(&queue);
            pending::<()>().await;
        }));
        poll(work.as_mut());
        time.advance(LIMIT);
        queue.turn();
        queue.pause(); // so that no second run begins
        poll(work.as_mut());
        assert_eq!((delays(&queue), queue.len()), (vec![(1, retry)], queued), "case {at}");
        assert_eq!((workers.tally().retried, workers.tally().timed_out), (1, 1), "case {at}");
        time.advance(secs(retry));
        queue.turn();
        assert_eq!((delays(&queue), queue.len()), (other.map(|left| (1, left)).into_iter().collect(), 1), "case {at}");
    }
}

#[test]
fn a_timed_out_key_cools_down() {
    let (queue, time) = queue();
    let workers = limited(&queue).0.min_interval(secs(60)).build();
    let mut work = pin!(workers.run_async(async |_| pending::<()>().await));
    queue.add(1);
    poll(work.as_mut());
    time.advance(LIMIT);
    queue.turn();
    poll(work.as_mut());
    assert_eq!(delays(&queue), [(1, 60)], "the retry waits for the interval");
    assert_eq!((queue.add(1), queue.len()), (Added::Delayed, 0), "and so does an add");
}

/// The seat of a key in its group is free after its run has timed out.
#[test]
fn a_timed_out_run_leaves_its_group() {
    for shards in [1, 4] {
        let (builder, time) = manual(WorkQueue::builder().shards(shards));
        let queue = builder.fair_by(|_: &u32| 0).max_processing_per_group(1).build();
        let (workers, stuck) = limited(&queue);
        let workers = workers.build();
        let mut works = [(); 2].map(|()| Box::pin(workers.run_async(async |_| pending::<()>().await)));
        queue.add_all([1, 2]);
        let mut polls = || works.iter_mut().for_each(|work| poll(work.as_mut()));
        polls();
        assert_eq!((queue.processing_len(), queue.len()), (1, 1), "the group is full");
        time.advance(LIMIT);
        queue.turn();
        polls();
        polls();
        assert_eq!((queue.processing_len(), queue.len(), queue.delayed_len()), (1, 0, 1), "the next key has the seat");
        assert_eq!(*stuck.lock().unwrap(), [(1, LIMIT)]);
    }
}

/// The queue's pause holds back hand-outs, and not the limits of runs.
#[test]
fn a_run_times_out_in_a_pause() {
    for (name, queue, time) in queues() {
        let workers = limited(&queue).0.build();
        let mut work = pin!(workers.run_async(async |_| pending::<()>().await));
        queue.add_all([1, 3]);
        poll(work.as_mut());
        queue.pause();
        time.advance(LIMIT);
        queue.turn();
        poll(work.as_mut());
        assert_eq!((queue.processing_len(), queue.len(), queue.delayed_len()), (0, 1, 1), "{name}");
        queue.resume();
        poll(work.as_mut());
        assert_eq!((queue.processing_len(), queue.len()), (1, 0), "{name}");
    }
}

/// A run that times out after the shut-down: its key is refused, and is in one list, once.
#[test]
fn a_key_that_times_out_after_the_shut_down_is_refused() {
    for way in ["stop", "drain", "finish"] {
        for (name, queue, time) in queues() {
            let workers = limited(&queue).0.build();
            let mut work = pin!(workers.run_async(async |_| pending::<()>().await));
            queue.add(1);
            poll(work.as_mut());
            let mut end: Pin<Box<dyn Future<Output = _>>> = match way {
                "stop" => Box::pin(std::future::ready(workers.stop())),
                "drain" => Box::pin(workers.drain_async()),
                _ => Box::pin(workers.finish_until(pending::<()>())),
            };
            let mut cx = Context::from_waker(Waker::noop());
            let before = end.as_mut().poll(&mut cx);
            time.advance(LIMIT);
            queue.turn();
            assert!(is_ready(work.as_mut()), "{name}: the loop ends");
            let left = match before {
                Poll::Ready(left) => {
                    assert_eq!((way, left.processing), ("stop", vec![1]), "{name}");
                    workers.stop()
                }
                Poll::Pending => block_on(end),
            };
            assert_eq!((left.refused, left.processing, left.queued), (vec![1], vec![], vec![]), "{name} {way}");
            let tally = workers.tally();
            assert_eq!((tally.refused, tally.timed_out, tally.failed, tally.late), (1, 1, 0, 1), "{name} {way}");
        }
    }
}

/// A loop that is dropped in a run: before the limit nobody is told, after it once, and the run has not timed out.
#[test]
fn a_run_that_is_dropped_has_not_timed_out() {
    for (lasts, turns, is_late) in [(LIMIT - NANO, false, 0), (LIMIT, false, 1), (LIMIT, true, 1)] {
        for (name, queue, time) in queues() {
            let (workers, stuck) = limited(&queue);
            let workers = workers.build();
            queue.add(1);
            let mut work = Box::pin(workers.run_async(async |_| pending::<()>().await));
            poll(work.as_mut());
            time.advance(lasts);
            if turns {
                queue.turn();
            }
            drop(work);
            time.advance(LIMIT);
            queue.turn();
            assert_eq!((stuck.lock().unwrap().len(), queue.len()), (is_late, 1), "{name}");
            let mut tally = tally(&workers);
            assert_eq!(std::mem::take(&mut tally.late), is_late as u64, "{name}");
            assert_eq!(tally, Tally::default(), "{name}: it counts in nothing else");
        }
    }
}

/// The value of a run that times out stays, and the next run has what came since with it.
#[test]
fn the_value_of_a_timed_out_run_is_merged() {
    for (name, queue, time) in queues() {
        let values = ValueQueue::with_merge(queue.clone(), |older: &u32, newer: &u32| older * 10 + newer);
        let workers = limited(&queue).0.build();
        let seen = Mutex::new(Vec::new());
        let mut work = pin!(workers.run_async(async |item: &Item<'_, u32>| {
            let value = values.value(item).unwrap();
            seen.lock().unwrap().push(*value);
            if *value == 1 {
                pending::<()>().await;
            }
            value.succeed();
        }));
        values.add(7, 1).unwrap();
        poll(work.as_mut());
        values.add_after(7, 2, secs(100)).unwrap();
        time.advance(LIMIT);
        queue.turn();
        poll(work.as_mut());
        assert_eq!((seen.lock().unwrap().as_slice(), values.len()), (&[1][..], 1), "{name}");
        time.advance(secs(10));
        queue.turn();
        poll(work.as_mut());
        assert_eq!((seen.lock().unwrap().as_slice(), values.len()), (&[1, 12][..], 0), "{name}");
    }
}

/// Some runs at the same time, of two workers with limits of their own: each is told of at its limit, the first one first.
#[test]
fn each_run_has_its_own_limit() {
    let (queue, time) = queue();
    let stuck = Stuck::default();
    let start = |limit: u64| {
        let log = Arc::clone(&stuck);
        let workers = queue.workers().time_limit(secs(limit));
        let workers = workers.on_stuck(move |key, age| log.lock().unwrap().push((*key, age))).build();
        Box::pin(workers.run_async(async |_| pending::<()>().await))
    };
    let mut works: Vec<_> = [30, 10, 20, 10].into_iter().map(start).collect();
    for (key, work) in works.iter_mut().enumerate() {
        queue.add(key as u32);
        poll(work.as_mut());
        time.advance(secs(1));
    }
    drop(works.pop()); // which ends the run of key 3
    let turn = |advance: u64| {
        time.advance(secs(advance));
        queue.turn();
        std::mem::take(&mut *stuck.lock().unwrap())
    };
    assert_eq!(turn(6), [], "10 s after the begin");
    assert_eq!(turn(1), [(1, secs(10))]);
    assert_eq!(turn(20), [(2, secs(29)), (0, secs(31))]);
    assert_eq!(turn(100), []);
}

/// A driver thread that is parked without an end: the begin of a run makes it wake at the limit.
#[test]
fn a_driver_thread_ends_runs_by_a_mock_clock() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).build();
    let (workers, stuck) = limited(&queue);
    let workers = workers.max_retries(0).build();
    let work = workers.run_async(async |_| pending::<()>().await);
    let runs = thread::spawn(move || block_on(work));
    within_30_s(move || {
        for _ in 0..3 {
            queue.add(1);
            while queue.processing_len() == 0 {
                thread::yield_now();
            }
            // The run may be about to begin.
            while queue.processing_len() > 0 {
                time.advance(LIMIT);
                thread::yield_now();
            }
        }
        queue.shut_down();
        runs.join().unwrap();
    });
    assert_eq!((workers.tally().timed_out, stuck.lock().unwrap().len()), (3, 3));
}

/// By the real clock: handlers that hang end at their limit, also those that begin after the shut-down, when the driver had nothing to do.
#[test]
fn a_driver_thread_ends_runs_in_a_drain() {
    const SHORT: Duration = Duration::from_millis(20);
    let queue = WorkQueue::<u32>::new();
    let stuck = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&stuck);
    let hook = move |_: &u32, age| {
        assert!(age >= SHORT, "too early");
        count.fetch_add(1, Ordering::SeqCst);
    };
    let workers = queue.workers().time_limit(SHORT).on_stuck(hook).build();
    queue.add_all(0..6);
    queue.shut_down();
    let runs = [(); 2].map(|()| {
        let work = workers.run_async(async |_| pending::<()>().await);
        thread::spawn(move || block_on(work))
    });
    let mut left = within_30_s({
        let workers = workers.clone();
        move || workers.drain()
    });
    runs.into_iter().for_each(|run| run.join().unwrap());
    left.refused.sort_unstable();
    assert_eq!(left.refused, Vec::from_iter(0..6));
    let tally = workers.tally();
    assert_eq!((tally.timed_out, tally.late, tally.panicked, tally.refused), (6, 6, 0, 6));
    assert_eq!(stuck.load(Ordering::SeqCst), 6);
}

/// A thread that is stuck is told of while it is.
#[test]
fn a_driver_thread_tells_of_a_stuck_thread() {
    let queue = WorkQueue::new();
    let (tell, told) = std::sync::mpsc::channel();
    let hook = move |key: &u32, _| tell.send(*key).unwrap();
    let workers = queue.workers().time_limit(Duration::from_millis(5)).on_stuck(hook);
    let workers = workers.spawn(1, |item| block_on(item.until_late())).unwrap();
    queue.add(7);
    assert_eq!(told.recv_timeout(secs(30)), Ok(7));
    let drained = within_30_s({
        let workers = workers.clone();
        move || workers.drain()
    });
    assert!(drained.is_empty());
    assert_eq!((workers.tally().late, workers.tally().succeeded), (1, 1));
}

/// Tasks of Tokio that hang, beside others that do not.
#[cfg(feature = "tokio")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawned_tasks_end_at_their_limit() {
    let queue = WorkQueue::<u32>::new();
    let workers = queue.workers().time_limit(Duration::from_millis(20)).max_retries(0).build();
    workers.spawn_tasks(4, |key| {
        Box::pin(async move {
            if key.key() % 3 == 0 {
                pending::<()>().await;
            }
        })
    });
    queue.add_all(0..30);
    queue.wait_idle_async().await;
    let tally = workers.tally();
    assert_eq!((tally.timed_out, tally.given_up, tally.late >= 10, tally.panicked), (10, 10, true, 0));
    assert_eq!(tally.succeeded, 20);
    assert!(workers.drain_async().await.is_empty());
}
