//! `Workers::run_batch` and `run_batch_async`: handlers that work on many keys at once.
//!
//! Checks: each key of a batch ends as a run of its own, by its outcome or that of the handler, also if the handler panics or its task is
//! dropped (P13, P23); a batch waits for more keys as long as it was told by the queue's clock, and no longer when the queue shuts down;
//! it keeps to limits and pauses.

mod support {
    pub(crate) mod manual;
    pub(crate) mod tasks;
    pub(crate) mod until;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::rate_limiter::{Bucket, RateLimiter};
use keyqueue::values::ValueQueue;
use keyqueue::{
    AddOptions, Added, BatchItem, Clock, IntoOutcome, OnPanic, Outcome, WorkQueue, WorkQueueBuilder, Workers,
    WorkersBuilder,
};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use support::manual::{manual, manual_queue};
use support::tasks::{Calls, poll};
use support::until::wait_until;
use support::within::within_30_s;

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Thread,
    Task,
}

const WAYS: [Way; 2] = [Way::Thread, Way::Task];

/// Runs a loop in a thread of its own.
fn start<R: IntoOutcome + 'static>(
    way: Way,
    workers: &Workers<u32>,
    (max, linger): (usize, Duration),
    mut handler: impl FnMut(&mut [BatchItem<'_, u32>]) -> R + Send + 'static,
) -> JoinHandle<()> {
    let workers = workers.clone();
    thread::spawn(move || match way {
        Way::Thread => workers.run_batch(max, linger, handler),
        Way::Task => {
            let handler = async move |batch: &mut [BatchItem<'_, u32>]| handler(batch);
            block_on(workers.run_batch_async(max, linger, handler));
        }
    })
}

/// Adds these keys while nobody works, so that they make one batch, and waits until each of them has ended.
fn run_one<R: IntoOutcome + 'static>(
    way: Way,
    workers: &Workers<u32>,
    keys: impl IntoIterator<Item = u32>,
    handler: impl FnMut(&mut [BatchItem<'_, u32>]) -> R + Send + 'static,
) -> JoinHandle<()> {
    let queue = workers.queue();
    queue.pause();
    queue.add_all(keys);
    let thread = start(way, workers, (usize::MAX, Duration::ZERO), handler);
    queue.resume();
    wait_until(|| queue.is_empty() && queue.processing_len() == 0);
    thread
}

/// A log of texts, which hooks write.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        let mut lines = std::mem::take(&mut *self.0.lock().unwrap());
        lines.sort_unstable();
        lines
    }
}

/// Workers whose hooks write to a log.
fn logged(queue: &WorkQueue<u32>) -> (WorkersBuilder<u32>, Log) {
    let log = Log::default();
    let [errors, panics, ends] = [(); 3].map(|()| log.clone());
    let workers = queue
        .workers()
        .on_error(move |key, error| errors.note(format!("{key} failed: {error}")))
        .on_panic(move |key, message| panics.note(format!("{key} panicked: {message}")))
        .on_give_up(move |key, why| ends.note(format!("{key} {why}")));
    (workers, log)
}

fn delayed(queue: &WorkQueue<u32>) -> Vec<u32> {
    let mut keys: Vec<u32> = queue.inspect().delayed_keys().into_iter().map(|delayed| delayed.key).collect();
    keys.sort_unstable();
    keys
}

fn stopped(workers: &Workers<u32>, thread: JoinHandle<()>) {
    let _left = workers.stop();
    thread.join().unwrap();
    assert_eq!((workers.tally().running, workers.queue().processing_len()), (0, 0));
}

#[test]
fn each_key_has_its_own_outcome() {
    for way in WAYS {
        let (queue, _time) = manual_queue::<u32>();
        let (builder, log) = logged(&queue);
        let workers = builder.build();
        (0..9).for_each(|key| _ = queue.add_with(key, AddOptions::new().rate_limited().after(Duration::ZERO)));
        assert_eq!(queue.take_delayed().len(), 9, "each has a failure");
        let thread = run_one(way, &workers, 0..9, |batch| {
            assert_eq!(batch.len(), 9);
            for item in batch {
                match *item.key() {
                    0 => {}
                    1 => item.set_outcome(()),
                    2 => item.set_outcome(Err::<(), _>("no row")),
                    3 => item.set_outcome(Outcome::RequeueAfter(HOUR)),
                    4 => item.set_outcome(Outcome::GiveUp("gone".into())),
                    5 => item.set_outcome(Outcome::RetryAfter { delay: HOUR, error: "later".into() }),
                    6 => item.set_outcome(Outcome::Cooldown(HOUR)),
                    7 => item.set_outcome(Outcome::RequeueWith(AddOptions::new().after(HOUR))),
                    _ => {
                        item.set_outcome(Outcome::Retry);
                        item.set_outcome(Ok::<(), String>(())); // the last one counts
                    }
                }
            }
        });
        assert_eq!(log.take(), ["2 failed: no row", "4 given up after 1 retry: gone", "5 failed: later"], "{way:?}");
        assert_eq!(delayed(&queue), [2, 3, 5, 7]);
        assert_eq!(queue.add(6), Added::Delayed, "it cools down");
        let failures: Vec<_> = (0..9).map(|key| queue.num_requeues(&key)).collect();
        assert_eq!(failures, [0, 0, 2, 0, 0, 2, 0, 1, 0], "a success forgets a failure");
        let tally = workers.tally();
        assert_eq!((tally.succeeded, tally.requeued, tally.failed), (6, 2, 3));
        assert_eq!((tally.retried, tally.given_up, tally.panicked, tally.refused), (2, 1, 0, 0));
        let runs = queue.inspect().metrics().runs;
        assert_eq!((runs.success, runs.requeue, runs.error, runs.give_up, runs.panic), (4, 2, 2, 1, 0));
        stopped(&workers, thread);
    }
}

/// What the handler returns is for the keys that it has not decided.
#[test]
fn an_error_of_the_handler_is_that_of_each_undecided_key() {
    for way in WAYS {
        for then_after in [None, Some(HOUR)] {
            let (queue, _time) = manual_queue::<u32>();
            let (mut builder, log) = logged(&queue);
            builder = builder.max_retries(0);
            if let Some(delay) = then_after {
                builder = builder.then_after(delay);
            }
            let workers = builder.build();
            let thread = run_one(way, &workers, 0..4, |batch| {
                batch[1].set_outcome(());
                batch[3].set_outcome(Outcome::RequeueAfter(HOUR));
                Err::<(), _>("no connection")
            });
            let lines = [
                "0 failed: no connection",
                "0 given up without a retry: no connection",
                "2 failed: no connection",
                "2 given up without a retry: no connection",
            ];
            assert_eq!(log.take(), lines, "{way:?}");
            let back: &[u32] = if then_after.is_some() { &[0, 2, 3] } else { &[3] };
            assert_eq!(delayed(&queue), back);
            let tally = workers.tally();
            assert_eq!((tally.succeeded, tally.failed, tally.given_up), (2, 2, 2));
            stopped(&workers, thread);
        }
    }
}

#[test]
fn other_outcomes_of_the_handler_are_for_each_key_too() {
    let (queue, _time) = manual_queue::<u32>();
    let workers = queue.workers().build();
    let thread = run_one(Way::Thread, &workers, 0..3, |_| Outcome::RequeueWith(AddOptions::new().after(HOUR)));
    assert_eq!(delayed(&queue), [0, 1, 2]);
    stopped(&workers, thread);
}

/// Decided keys keep their outcomes, and the others are retried, or done if the queue says so. The loop goes on.
#[test]
fn a_panic_is_that_of_each_undecided_key() {
    for way in WAYS {
        for on_panic in [OnPanic::Retry, OnPanic::Done] {
            let (builder, _time) = manual(WorkQueue::builder().on_panic(on_panic));
            let queue = builder.build();
            let (builder, log) = logged(&queue);
            let workers = builder.build();
            let thread = run_one(way, &workers, 0..5, |batch| {
                if batch.len() == 1 {
                    return; // the next batch
                }
                batch[1].set_outcome(Outcome::RequeueAfter(HOUR));
                batch[2].set_outcome(Outcome::Success);
                resume_unwind(Box::new("a row"));
            });
            assert_eq!(log.take(), ["0", "3", "4"].map(|key| format!("{key} panicked: a row")), "{way:?}");
            let back: &[u32] = if on_panic == OnPanic::Retry { &[0, 1, 3, 4] } else { &[1] };
            assert_eq!(delayed(&queue), back, "{way:?}, {on_panic:?}");
            let tally = workers.tally();
            assert_eq!((tally.succeeded, tally.failed, tally.panicked), (2, 3, 1));
            assert_eq!((queue.stats().panics, queue.inspect().metrics().runs.panic), (3, 3));
            queue.add(9);
            wait_until(|| workers.tally().succeeded == 3);
            stopped(&workers, thread);
        }
    }
}

/// A limiter that panics when it is told to forget key 1.
struct ForgetsNoOne;

impl RateLimiter<u32> for ForgetsNoOne {
    fn when(&self, _: &u32) -> Duration {
        HOUR
    }

    fn forget(&self, key: &u32) {
        if *key == 1 {
            resume_unwind(Box::new("a limiter"));
        }
    }

    fn num_requeues(&self, _: &u32) -> usize {
        0
    }
}

/// An error whose drop panics.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("a drop"));
    }
}

/// User code that panics while a key of a batch ends leaves the other keys alone, and the loop goes on.
#[test]
fn a_panic_at_the_end_of_a_key_is_not_one_of_the_others() {
    for way in WAYS {
        let (builder, _time) = manual(WorkQueue::builder().rate_limiter(ForgetsNoOne));
        let queue = builder.build();
        let workers = queue.workers().on_error(|_, _| resume_unwind(Box::new("a hook"))).build();
        let thread = run_one(way, &workers, 0..5, |batch| {
            if batch.len() == 1 {
                return Ok(()); // the next batch
            }
            batch[0].set_outcome(Err::<(), _>(Bomb));
            batch[1].set_outcome(());
            batch[2].set_outcome(());
            Err(Bomb)
        });
        assert_eq!(delayed(&queue), [0, 3, 4], "{way:?}");
        // The hook panics three times, the limiter once, and each drop of an error.
        wait_until(|| workers.tally().panicked == 6);
        assert_eq!((workers.tally().succeeded, workers.tally().failed), (2, 3));
        queue.add(9);
        wait_until(|| workers.tally().succeeded == 3);
        stopped(&workers, thread);
    }
}

/// A batch whose linger is to be seen: it begins with key 1, and its loop has said so by waiting for more.
struct Lingering {
    workers: Workers<u32>,
    batches: Arc<Mutex<Vec<Vec<u32>>>>,
    thread: JoinHandle<()>,
}

impl Lingering {
    fn begin(way: Way, queue: &WorkQueue<u32>, linger: Duration) -> Self {
        let workers = queue.workers().build();
        let batches = Arc::<Mutex<Vec<_>>>::default();
        let seen = Arc::clone(&batches);
        let thread = start(way, &workers, (3, linger), move |batch| {
            seen.lock().unwrap().push(batch.iter().map(|item| *item.key()).collect());
        });
        queue.add(1);
        let lingering = Self { workers, batches, thread };
        lingering.waits();
        lingering
    }

    /// Waits until the loop waits for more keys.
    fn waits(&self) {
        let queue = self.workers.queue();
        wait_until(|| queue.stats().waiters == 1 && queue.is_empty());
    }

    fn batches(&self) -> Vec<Vec<u32>> {
        self.batches.lock().unwrap().clone()
    }

    /// The batches, when this many have ended.
    fn after(&self, ended: usize) -> Vec<Vec<u32>> {
        wait_until(|| self.batches.lock().unwrap().len() >= ended);
        self.batches()
    }

    fn end(self) {
        stopped(&self.workers, self.thread);
    }
}

/// The kinds of queues that a batch may be of, with a mock clock: without a driver, and with one.
fn kinds() -> Vec<fn() -> WorkQueueBuilder<u32>> {
    vec![
        WorkQueue::builder,
        || WorkQueue::builder().shards(4),
        || WorkQueue::builder().fair_by(|key: &u32| key % 7).max_processing_per_group(1),
        #[cfg(feature = "lock-free")]
        || WorkQueue::builder().lock_free(),
    ]
}

/// A batch waits for its whole linger, to the nanosecond, and takes the keys that come meanwhile. If it is full, it waits no longer.
#[test]
fn a_batch_waits_for_more_keys() {
    for kind in kinds() {
        for (way, is_manual) in [(Way::Thread, true), (Way::Task, true), (Way::Thread, false), (Way::Task, false)] {
            let (clock, time) = Clock::mock();
            let builder = kind().clock(clock);
            let builder = if is_manual { builder.driver(keyqueue::Driver::Manual) } else { builder };
            let queue = builder.build();
            let lingering = Lingering::begin(way, &queue, HOUR);
            let turn = || _ = is_manual.then(|| queue.turn());
            queue.add(2);
            lingering.waits();
            time.advance(HOUR - Duration::from_nanos(1));
            turn();
            thread::sleep(2 * MS);
            assert_eq!(lingering.batches(), Vec::<Vec<u32>>::new(), "{way:?}");
            time.advance(Duration::from_nanos(1));
            turn();
            assert_eq!(lingering.after(1), [[1, 2]], "{way:?}, without a driver: {is_manual}");

            queue.add_all([3, 4]);
            queue.add(5); // the batch is full
            let mut second = lingering.after(2).remove(1);
            second.sort_unstable();
            assert_eq!(second, [3, 4, 5]);
            lingering.end();
        }
    }
}

/// By the real clock.
#[test]
fn a_linger_ends_by_itself() {
    for kind in kinds() {
        for way in WAYS {
            let queue = kind().build();
            let workers = queue.workers().build();
            let thread = start(way, &workers, (100, MS), |_| ());
            for n in 0..20 {
                queue.add(n);
                wait_until(|| workers.tally().succeeded == u64::from(n) + 1);
            }
            stopped(&workers, thread);
        }
    }
}

/// The clock stands still, and yet each way to end workers ends the wait at once, also with keys that cannot be handed out.
#[test]
fn a_shut_down_ends_the_linger() {
    type End = fn(&Workers<u32>) -> (Vec<u32>, Vec<u32>);
    let ends: [(&str, End); 5] = [
        ("drain", |workers| (workers.drain().into_keys().collect(), vec![])),
        ("drain_timeout", |workers| (workers.drain_timeout(HOUR).into_keys().collect(), vec![])),
        ("drain_async", |workers| (block_on(workers.drain_async()).into_keys().collect(), vec![])),
        ("finish", |workers| (workers.finish(HOUR).into_keys().collect(), vec![])),
        ("stop", |workers| {
            let left = workers.stop();
            workers.join();
            (left.into_keys().collect(), vec![1])
        }),
    ];
    for kind in kinds() {
        for way in WAYS {
            for (name, end) in ends {
                let (builder, _time) = manual(kind());
                let queue = builder.build();
                let lingering = Lingering::begin(way, &queue, Duration::MAX);
                let workers = lingering.workers.clone();
                let (left, may_be_processing) = within_30_s(move || end(&workers));
                assert!(left.is_empty() || left == may_be_processing, "{way:?}, {name}: {left:?}");
                assert_eq!(lingering.after(1), [[1]], "{name}");
                lingering.end();
            }
        }
    }
}

/// A batch takes no key of a full group, nor waits for one after the shut-down. Its own keys fill a group while it waits.
#[test]
fn a_batch_keeps_to_the_limits_of_groups() {
    for way in WAYS {
        let (builder, time) = manual(WorkQueue::builder().fair_by(|key: &u32| key % 2).max_processing_per_group(1));
        let queue = builder.build();
        let workers = queue.workers().build();
        queue.add_all([1, 3, 5]);
        let batches = Arc::<Mutex<Vec<_>>>::default();
        let seen = Arc::clone(&batches);
        let thread = start(way, &workers, (3, HOUR), move |batch| {
            seen.lock().unwrap().push(batch.iter().map(|item| *item.key()).collect::<Vec<_>>());
        });
        wait_until(|| queue.stats().waiters == 1 && queue.processing_len() == 1);
        queue.add(2);
        wait_until(|| queue.stats().waiters == 1 && queue.processing_len() == 2);
        time.advance(HOUR);
        queue.turn();
        wait_until(|| batches.lock().unwrap().len() == 1 && queue.processing_len() == 1);
        assert_eq!(*batches.lock().unwrap(), [[1, 2]]);
        let drained = within_30_s({
            let workers = workers.clone();
            move || workers.drain()
        });
        assert!(drained.is_empty());
        assert_eq!(batches.lock().unwrap()[1..], [[3], [5]]);
        thread.join().unwrap();
    }
}

/// A paused queue gives a waiting batch no key, and its linger ends nevertheless.
#[test]
fn a_pause_ends_no_linger() {
    for way in WAYS {
        let (queue, time) = manual_queue::<u32>();
        let lingering = Lingering::begin(way, &queue, HOUR);
        queue.pause();
        queue.add(2);
        time.advance(HOUR);
        queue.turn();
        assert_eq!(lingering.after(1), [[1]]);
        assert_eq!(queue.len(), 1);
        queue.resume();
        wait_until(|| queue.processing_len() == 1);
        time.advance(HOUR);
        queue.turn();
        assert_eq!(lingering.after(2)[1], [2]);
        lingering.end();
    }
}

#[test]
fn each_key_rests_after_its_batch() {
    for way in WAYS {
        let (queue, _time) = manual_queue::<u32>();
        let workers = queue.workers().min_interval(HOUR).build();
        let thread = run_one(way, &workers, 0..3, |batch| batch[1].set_outcome(Err::<(), _>("no")));
        assert!((0..3).all(|key| queue.add(key) == Added::Delayed || key == 1));
        assert_eq!(delayed(&queue), [0, 1, 2]);
        stopped(&workers, thread);
    }
}

/// Keys of a batch that fail after the shut-down are left in `refused`.
#[test]
fn a_drain_returns_the_keys_that_fail() {
    for way in WAYS {
        let (queue, _time) = manual_queue::<u32>();
        let workers = queue.workers().build();
        let shut = queue.clone();
        queue.add_all(0..4);
        let thread = start(way, &workers, (10, HOUR), move |batch| {
            shut.shut_down();
            batch[2].set_outcome(());
            Err::<(), _>("too late")
        });
        wait_until(|| queue.processing_len() == 4);
        let left = within_30_s({
            let workers = workers.clone();
            move || workers.drain()
        });
        assert_eq!((left.refused, workers.tally().refused, workers.tally().succeeded), (vec![0, 1, 3], 3, 1));
        thread.join().unwrap();
    }
}

/// The task is dropped in its handler, or while it waits for more keys: keys without an outcome are queued again.
#[test]
fn a_dropped_task_ends_its_batch() {
    for in_handler in [true, false] {
        let (queue, time) = manual_queue::<u32>();
        let workers = queue.workers().build();
        queue.add_all(0..4);
        let calls = Arc::new(Calls::default());
        {
            let (max, linger) = if in_handler { (4, Duration::ZERO) } else { (5, HOUR) };
            let mut run = pin!(workers.run_batch_async(max, linger, async |batch: &mut [BatchItem<'_, u32>]| {
                batch[1].set_outcome(Outcome::RequeueAfter(HOUR));
                batch[2].set_outcome(Err::<(), _>("no"));
                std::future::pending::<()>().await;
            }));
            assert!(poll(run.as_mut(), &calls).is_pending());
            assert_eq!((queue.processing_len(), queue.stats().waiters), (4, usize::from(!in_handler)));
        }
        let (left, later): (usize, &[u32]) = if in_handler { (2, &[1, 2]) } else { (4, &[]) };
        assert_eq!((queue.len(), queue.processing_len(), queue.stats().waiters), (left, 0, 0));
        assert_eq!(delayed(&queue), later);
        time.advance(HOUR);
        queue.turn();
        assert_eq!((calls.count(), workers.tally().running), (0, 0), "nobody is woken for the task");
    }
}

/// Batches that are always there at once leave the thread to other tasks.
#[test]
fn a_task_gives_way() {
    for panics in [false, true] {
        let (queue, _time) = manual_queue::<u32>();
        queue.add_all(0..300);
        queue.shut_down();
        let workers = queue.workers().build();
        let calls = Arc::new(Calls::default());
        let mut run = pin!(workers.run_batch_async(64, Duration::ZERO, async |_: &mut [BatchItem<'_, u32>]| {
            if panics {
                resume_unwind(Box::new("a handler"));
            }
        }));
        let ways = (0..).take_while(|_| poll(run.as_mut(), &calls).is_pending()).count();
        assert_eq!((ways, calls.count()), if panics { (5, 5) } else { (2, 2) });
    }
}

/// Values whose keys come in batches: that of a key that has failed stays.
#[test]
fn a_batch_of_keys_with_values() {
    for way in WAYS {
        let (queue, _time) = manual_queue::<u32>();
        let values = ValueQueue::new(queue);
        let workers = values.queue().workers().build();
        values.queue().pause();
        for key in 0..3 {
            values.add(key, "old").unwrap();
            values.add(key, "new").unwrap();
        }
        let rows = values.clone();
        let thread = start(way, &workers, (10, Duration::ZERO), move |batch| {
            assert_eq!(batch.len(), 3);
            let read: Vec<_> = batch.iter().map(|item| rows.value(item).unwrap()).collect();
            assert!(read.iter().all(|value| **value == "new"));
            let written = [Ok(()), Err("no row"), Ok(())]; // one statement
            let outcomes: Vec<_> = read.into_iter().zip(written).map(|(value, row)| value.finish(row)).collect();
            for (item, outcome) in batch.iter_mut().zip(outcomes) {
                item.set_outcome(outcome);
            }
        });
        values.queue().resume();
        wait_until(|| workers.tally().succeeded == 2 && values.queue().processing_len() == 0);
        let left: Vec<_> = values.take_all().into_iter().map(|(key, value)| (key, *value)).collect();
        assert_eq!(left, [(1, "new")]);
        assert_eq!(delayed(values.queue()), [1]);
        stopped(&workers, thread);
    }
}

#[test]
fn a_batch_of_no_keys_is_refused() {
    let workers = WorkQueue::<u32>::new().workers().build();
    let thread = catch_unwind(AssertUnwindSafe(|| workers.run_batch(0, HOUR, |_| ())));
    let task = catch_unwind(AssertUnwindSafe(|| drop(workers.run_batch_async(0, HOUR, async |_| ()))));
    for result in [thread, task] {
        let payload = result.unwrap_err();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        assert_eq!(message, Some("max is 0, so no batch would have a key"));
    }
    assert_eq!(workers.tally().running, 0);
}

/// Threads and tasks work in batches, some of which fail or panic. No two have the same key, and in the end each key has had a run that
/// succeeded and has seen what came before its last add.
#[test]
#[cfg_attr(miri, ignore)] // 8000 keys
fn loops_share_the_keys() {
    const KEYS: u32 = 500;
    for kind in kinds() {
        let queue = kind().rate_limiter(Bucket::new(1e6, 1000)).build();
        let workers = queue.workers().build();
        let held = Arc::<Mutex<HashSet<u32>>>::default();
        // What was added of each key, and what its last successful run has seen of that.
        let [added, seen] = [(); 2].map(|()| Arc::new(Vec::from_iter((0..KEYS).map(|_| AtomicU64::new(0)))));
        let start_loop = |(way, max)| {
            let (held, added, seen, mut batches) = (Arc::clone(&held), Arc::clone(&added), Arc::clone(&seen), 0);
            start(way, &workers, (max, MS / 4), move |batch| {
                assert!((1..=max).contains(&batch.len()));
                for item in &*batch {
                    assert!(held.lock().unwrap().insert(*item.key()), "two have key {item:?}");
                }
                batches += 1;
                let (fails, panics) = (batches % 5 == 0, batches % 7 == 0);
                for item in batch {
                    let key = *item.key();
                    if fails {
                        item.set_outcome(Outcome::Retry);
                    } else if !panics {
                        seen[key as usize].store(added[key as usize].load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    held.lock().unwrap().remove(&key);
                }
                if panics {
                    resume_unwind(Box::new("a handler"));
                }
            })
        };
        let loops = [(Way::Thread, 1), (Way::Task, 10), (Way::Thread, 64), (Way::Task, 1000)].map(start_loop);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..40 {
                        let note = |key: &u32| _ = added[*key as usize].fetch_add(1, Ordering::Relaxed);
                        queue.add_all((0..100).map(|n| n * round % KEYS).inspect(note));
                        thread::sleep(MS / 4);
                    }
                });
            }
        });
        queue.wait_idle();
        let numbers =
            |of: &[AtomicU64]| Vec::from_iter(of.iter().map(|number: &AtomicU64| number.load(Ordering::Relaxed)));
        assert_eq!(numbers(&seen), numbers(&added));
        let tally = workers.tally();
        assert_eq!(tally.succeeded + tally.failed, queue.stats().handed_out, "{tally:?}");
        assert!(tally.failed == tally.retried && tally.panicked > 0 && tally.refused == 0, "{tally:?}");
        let drained = workers.clone();
        assert!(within_30_s(move || drained.drain()).is_empty());
        loops.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(held.lock().unwrap().is_empty());
    }
}
