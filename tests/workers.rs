//! Workers whose handlers do not panic: every outcome, retries and their limit, the handle, shut-downs, spans, and handlers
//! that abandon stale work. Panics are tested in `worker_panics.rs`.
//!
//! A test that needs no particular thread runs in each of the four [`Way`]s: threads, futures and runtimes must behave alike.
//!
//! Checks: each outcome has its documented effect on the key and is counted; a failing key is given up after exactly
//! `max_retries` retries; hooks run before the queue acts on the outcome; loops end when the queue is shut down and empty,
//! whatever their handlers return, and a drain with a time limit returns what is left (P6, P7); a key never has two
//! holders (P1).

mod support {
    pub(crate) mod tasks;
    pub(crate) mod ways;
    pub(crate) mod within;
}

use fastrand::Rng;
use futures_executor::block_on;
use keyqueue::observe::Runs;
use keyqueue::rate_limiter::{Bucket, ItemFastSlow};
use keyqueue::{
    AddOptions, Clock, DelayedKey, Driver, IntoOutcome, Item, Leftover, MockClock, Outcome, Tally, WorkQueue,
    WorkQueueBuilder, Workers, WorkersBuilder,
};
use std::error::Error;
use std::future::{pending, poll_fn, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use support::tasks::{Calls, poll};
use support::ways::{WAYS, Way, yield_once};
use support::within::within_30_s;

// ---- helpers ----

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}

fn tokio(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap()
}

/// Runs one loop to its end.
fn run<R: IntoOutcome + Send + 'static>(
    way: Way,
    builder: WorkersBuilder<u32>,
    handler: impl Fn(&Item<'_, u32>) -> R + Send + Sync + 'static,
) -> Workers<u32> {
    let workers = match way {
        Way::Spawned => {
            let workers = builder.spawn(1, handler).unwrap();
            workers.join();
            workers
        }
        Way::Here => {
            let workers = builder.build();
            workers.run(handler);
            workers
        }
        Way::Task | Way::Tokio => {
            let workers = builder.build();
            let work = workers.run_async(async move |item: &Item<'_, u32>| {
                yield_once().await;
                handler(item)
            });
            match way {
                Way::Task => block_on(work),
                _ => tokio(2).block_on(async { tokio::spawn(work).await.unwrap() }),
            }
            workers
        }
    };
    assert_eq!(workers.tally().running, 0);
    workers
}

/// A builder of queues without a driver thread, and its mock clock.
fn manual_builder() -> (WorkQueueBuilder<u32>, MockClock) {
    let (clock, mock) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual), mock)
}

/// A builder of queues whose limiter retries without a delay.
fn no_backoff() -> WorkQueueBuilder<u32> {
    manual_builder().0.rate_limiter(ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0))
}

/// A list that any thread can append to.
struct Notes<T>(Arc<Mutex<Vec<T>>>);

impl<T> Notes<T> {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn add(&self, note: T) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl<T> Clone for Notes<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

fn tally(workers: &Workers<u32>) -> [u64; 6] {
    let Tally { running, succeeded, requeued, failed, retried, given_up, panicked, refused, .. } = workers.tally();
    assert_eq!(running, 0);
    // Each run is counted once, also by the queue. (These workers are the queue's only ones.)
    let Runs { success, requeue, error, give_up, panic, .. } = workers.queue().inspect().metrics().runs;
    assert_eq!((succeeded, failed), (success + requeue, error + give_up + panic));
    assert!(requeued <= requeue && requeue <= requeued + refused);
    [succeeded, requeued, retried, given_up, panicked, refused]
}

const MS: Duration = Duration::from_millis(1);

// ---- outcomes ----

#[test]
fn each_outcome_has_its_effect_on_the_key_and_is_counted() {
    type Make = fn() -> Outcome;
    // Expected: the key's failure count, its delay, and the tally.
    let cases: [(Make, usize, Option<Duration>, [u64; 6]); 9] = [
        (|| Outcome::Success, 0, None, [2, 0, 0, 0, 0, 0]),
        (|| Outcome::Retry, 3, Some(20 * MS), [1, 0, 1, 0, 0, 0]),
        (|| Outcome::Failed("no luck".into()), 3, Some(20 * MS), [1, 0, 1, 0, 0, 0]),
        // The longer of the two delays applies: the error's or the limiter's.
        (|| Outcome::RetryAfter { delay: 90 * MS, error: "no luck".into() }, 3, Some(90 * MS), [1, 0, 1, 0, 0, 0]),
        (|| Outcome::RetryAfter { delay: 19 * MS, error: "no luck".into() }, 3, Some(20 * MS), [1, 0, 1, 0, 0, 0]),
        (|| Outcome::RequeueAfter(7 * MS), 0, Some(7 * MS), [2, 1, 0, 0, 0, 0]),
        (|| Outcome::RequeueWith(AddOptions::new().after(9 * MS)), 2, Some(9 * MS), [2, 1, 0, 0, 0, 0]),
        (|| Outcome::RequeueWith(AddOptions::new().rate_limited()), 3, Some(20 * MS), [2, 1, 0, 0, 0, 0]),
        (|| Outcome::GiveUp("gone".into()), 0, None, [1, 0, 0, 1, 0, 0]),
    ];
    for way in WAYS {
        for (outcome, failures, delay, counted) in cases {
            let (queue, _clock) = manual_builder();
            let queue = queue.build();
            // Key 0 has failed twice, and is queued.
            queue.add_rate_limited(0);
            queue.add_rate_limited(0);
            assert!(queue.cancel(&0));
            queue.add_all([0, 1]);
            let (errors, drops) = (Notes::new(), Notes::new());
            let builder = queue.workers().on_error({
                let (queue, errors) = (queue.clone(), errors.clone());
                move |&key, error| {
                    assert_eq!((queue.processing_len(), queue.delayed_len(), queue.num_requeues(&key)), (1, 0, 2));
                    errors.add((key, error.to_string()));
                }
            });
            let builder = builder.on_give_up({
                let (queue, drops) = (queue.clone(), drops.clone());
                move |&key, why| {
                    assert_eq!((queue.processing_len(), queue.stats().given_up, queue.num_requeues(&key)), (1, 0, 2));
                    drops.add((key, why.retries, why.to_string()));
                }
            });
            let workers = run(way, builder, {
                let queue = queue.clone();
                move |item: &Item<'_, u32>| {
                    if **item == 0 {
                        return outcome();
                    }
                    queue.shut_down();
                    Outcome::Success
                }
            });
            let case = format!("{way:?}, {:?}", outcome());
            assert_eq!(tally(&workers), counted, "{case}");
            assert_eq!(queue.num_requeues(&0), failures, "{case}");
            assert_eq!(pairs(queue.take_delayed()), delay.map_or(vec![], |delay| vec![(0, delay)]), "{case}");
            let failed = matches!(outcome(), Outcome::Failed(_) | Outcome::RetryAfter { .. });
            let why = (0, 2, "given up after 2 retries: gone".to_owned());
            assert_eq!(errors.take(), if failed { vec![(0, "no luck".to_owned())] } else { vec![] }, "{case}");
            assert_eq!(drops.take(), if counted[3] > 0 { vec![why] } else { vec![] }, "{case}");
            let stats = queue.stats();
            assert_eq!((stats.len, stats.processing, stats.given_up), (0, 0, counted[3]), "{case}");
        }
    }
}

#[test]
fn results_of_handlers_convert_to_outcomes() {
    fn failed(outcome: impl IntoOutcome) -> String {
        match outcome.into_outcome() {
            Outcome::Failed(error) => error.to_string(),
            other => panic!("{other:?} is not a failure"),
        }
    }
    type Dyn = Box<dyn Error + Send + Sync>;
    let io = || io::Error::other("disk");
    assert!(matches!(().into_outcome(), Outcome::Success));
    assert!(matches!(Ok::<(), io::Error>(()).into_outcome(), Outcome::Success));
    assert!(matches!(Ok::<_, String>(Outcome::RequeueAfter(MS)).into_outcome(), Outcome::RequeueAfter(MS)));
    assert!(matches!(Ok::<_, Dyn>(Outcome::Retry).into_outcome(), Outcome::Retry));
    assert!(matches!(Ok::<_, String>(Ok::<_, io::Error>(Outcome::Retry)).into_outcome(), Outcome::Retry));
    assert_eq!(failed(Err::<(), _>(io())), "disk");
    assert_eq!(failed(Err::<(), _>("text")), "text");
    assert_eq!(failed(Err::<Outcome, _>("owned".to_owned())), "owned");
    assert_eq!(failed(Err::<(), Dyn>(io().into())), "disk");
    assert_eq!(failed(Ok::<_, String>(Err::<Outcome, _>(io()))), "disk", "the inner error");
    assert_eq!(failed(Err::<Result<(), io::Error>, _>("outer")), "outer");

    // An `Err` that holds an outcome converts to that outcome.
    assert!(matches!(Err::<(), _>(Outcome::Retry).into_outcome(), Outcome::Retry));
    assert!(matches!(Ok::<_, Outcome>(Outcome::RequeueAfter(MS)).into_outcome(), Outcome::RequeueAfter(MS)));
    assert_eq!(failed(Err::<(), _>(Outcome::Failed("no luck".into()))), "no luck");

    // What is no `Error` itself: `.map_err(Outcome::failed)?`.
    let dynamic: Result<(), Dyn> = Err(io().into());
    for outcome in [
        Outcome::failed("disk"),
        Outcome::failed("disk".to_owned()),
        dynamic.map_err(Outcome::failed).unwrap_err(),
        io().into(),
    ] {
        assert_eq!(failed(outcome), "disk");
    }

    // The error value is kept, not only its text.
    let Outcome::Failed(error) = Outcome::from(io::Error::from(io::ErrorKind::NotFound)) else { panic!() };
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::NotFound);
}

/// Both for a key that its handler gives up and for one that is out of retries.
#[test]
fn on_give_up_receives_the_error_value() {
    let queue = no_backoff().build();
    queue.add_all([0, 1]);
    queue.shut_down();
    let kinds = Notes::new();
    let builder = queue.workers().max_retries(0).on_give_up({
        let kinds = kinds.clone();
        move |&key, why| {
            let error: &io::Error = why.reason.unwrap().downcast_ref().unwrap();
            kinds.add((key, error.kind(), why.panic.is_some()));
        }
    });
    builder.build().run(|item: &Item<'_, u32>| {
        let error = io::Error::from(io::ErrorKind::NotFound);
        if **item == 0 { Outcome::GiveUp(error.into()) } else { Outcome::Failed(error.into()) }
    });
    assert_eq!(kinds.take(), [0, 1].map(|key| (key, io::ErrorKind::NotFound, false)));
}

#[test]
fn the_question_mark_operator_makes_failures() {
    #[derive(Debug)]
    struct Own;
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("own")
        }
    }
    impl Error for Own {}

    let queue = no_backoff().build();
    let errors = Notes::new();
    let builder = || {
        let errors = errors.clone();
        queue.workers().max_retries(0).on_error(move |_, error| errors.add(error.to_string()))
    };
    queue.add_all(0..5);
    queue.shut_down();
    let fails = |key: &u32, at| if *key == at { Err(io::Error::other(format!("io {key}"))) } else { Ok(()) };
    // Each run returns another type of error.
    let taken = AtomicUsize::new(0);
    builder().build().run(|item: &Item<'_, u32>| -> Result<Outcome, Box<dyn Error + Send + Sync>> {
        match taken.fetch_add(1, Ordering::Relaxed) {
            0 => fails(item, 0)?,
            1 => Err("text")?,
            2 => Err("owned".to_owned())?,
            3 => Err(Own)?,
            _ => "x".parse::<u32>().map(drop)?,
        }
        Ok(Outcome::Success)
    });
    assert_eq!(errors.take(), ["io 0", "text", "owned", "own", "invalid digit found in string"]);

    let queue = no_backoff().build();
    queue.add(7);
    queue.shut_down();
    let workers = queue.workers().build();
    block_on(workers.run_async(async |item: &Item<'_, u32>| -> Result<(), io::Error> {
        yield_once().await;
        fails(item, 7)?;
        Ok(())
    }));
    assert_eq!(tally(&workers), [0, 0, 0, 0, 0, 1]);
}

// ---- failures and retries ----

#[test]
fn a_key_is_given_up_after_max_retries() {
    type Fail = fn() -> Outcome;
    let ways_to_fail: [Fail; 4] = [
        || Outcome::Retry,
        || Outcome::Failed("no".into()),
        || resume_unwind(Box::new("a panic")),
        || Outcome::RetryAfter { delay: Duration::ZERO, error: "later".into() },
    ];
    for way in WAYS {
        for max in [0, 1, 2, 7] {
            for (how, fail) in ways_to_fail.into_iter().enumerate() {
                let queue = no_backoff().build();
                queue.add(3);
                let (runs, drops) = (Arc::new(AtomicUsize::new(0)), Notes::new());
                let builder = queue.workers().max_retries(max).on_give_up({
                    let (queue, drops) = (queue.clone(), drops.clone());
                    move |&key, why| {
                        drops.add((key, why.retries, why.to_string()));
                        queue.shut_down();
                    }
                });
                let workers = run(way, builder, {
                    let runs = Arc::clone(&runs);
                    move |_: &Item<'_, u32>| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        fail()
                    }
                });
                assert_eq!(runs.load(Ordering::SeqCst), max + 1, "{way:?}, {how}");
                let after = ["without a retry", "after 1 retry", "after 2 retries", "after 7 retries"][max.min(3)];
                let because = ["", ": no", ": the handler panicked: a panic", ": later"][how];
                assert_eq!(drops.take(), [(3, max, format!("given up {after}{because}"))]);
                let panicked = if how == 2 { max as u64 + 1 } else { 0 };
                assert_eq!(tally(&workers), [0, 0, max as u64, 1, panicked, 0], "{way:?}, {how}");
                let stats = queue.stats();
                assert_eq!((stats.given_up, stats.panics, stats.retries, stats.failing), (1, panicked, max as u64, 0));
            }
        }
    }
}

#[test]
fn a_success_or_a_give_up_resets_the_retry_count() {
    for way in WAYS {
        let queue = no_backoff().build();
        queue.add(0);
        // Two failures and a success, twice. Then two retries, a give-up, the first failure of the new count, and a give-up.
        let answers = Mutex::new([1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 2].into_iter());
        let drops = Notes::new();
        let builder = queue.workers().max_retries(2).on_give_up({
            let (queue, drops) = (queue.clone(), drops.clone());
            move |&key, why| {
                drops.add(why.retries);
                assert_eq!(queue.add(key).is_accepted(), drops.0.lock().unwrap().len() == 1);
            }
        });
        let workers = run(way, builder, {
            let queue = queue.clone();
            move |item: &Item<'_, u32>| match answers.lock().unwrap().next().unwrap() {
                0 => {
                    queue.add(**item);
                    Outcome::Success
                }
                1 => Outcome::Retry,
                _ => {
                    queue.shut_down();
                    Outcome::GiveUp("gone".into())
                }
            }
        });
        assert_eq!(drops.take(), [2, 1], "{way:?}");
        assert_eq!(tally(&workers), [2, 0, 7, 2, 0, 0], "{way:?}");
        assert_eq!(queue.stats().given_up, 2);
    }
}

#[test]
fn with_a_limiter_that_does_not_count_no_key_is_given_up() {
    let queue = manual_builder().0.rate_limiter(Bucket::new(1.0, u32::MAX)).build();
    queue.add(0);
    let runs = AtomicUsize::new(0);
    let workers = queue.workers().max_retries(1).build();
    workers.run(|_: &Item<'_, u32>| {
        if runs.fetch_add(1, Ordering::Relaxed) == 99 {
            queue.shut_down();
        }
        Outcome::Retry
    });
    assert_eq!(tally(&workers), [0, 0, 99, 0, 0, 1]);
}

#[test]
fn rejected_requeues_and_retries_are_counted() {
    for way in WAYS {
        let (queue, _clock) = manual_builder();
        let queue = queue.build();
        queue.add_all(0..6);
        queue.shut_down();
        let workers = run(way, queue.workers(), |item: &Item<'_, u32>| match **item {
            0 => Outcome::Retry,
            1 => Outcome::Failed("no".into()),
            2 => Outcome::RequeueAfter(MS),
            3 => Outcome::RequeueAfter(Duration::ZERO),
            4 => Outcome::GiveUp("gone".into()),
            _ => Outcome::Success,
        });
        assert_eq!(tally(&workers), [3, 0, 0, 1, 0, 4], "{way:?}");
        assert_eq!(workers.stop().refused, [0, 1, 2, 3], "{way:?}");
        assert!(workers.drain().is_empty(), "{way:?}: each is returned once");
        assert_eq!((queue.stats().rejected, queue.delayed_len(), queue.len()), (4, 0, 0));
    }
}

// ---- the handle ----

#[test]
fn worker_threads_are_named_and_zero_threads_is_an_error() {
    let names = |queue: WorkQueue<u32>, name: Option<&str>| {
        let names = Notes::new();
        queue.add_all(0..20);
        queue.shut_down();
        let builder = name.into_iter().fold(queue.workers(), WorkersBuilder::name);
        let workers = builder.spawn(2, {
            let names = names.clone();
            move |_: &Item<'_, u32>| names.add(thread::current().name().unwrap().to_owned())
        });
        workers.unwrap().join();
        let mut names = names.take();
        assert_eq!(names.len(), 20);
        names.sort();
        names.dedup();
        names
    };
    let among =
        |names: Vec<String>, all: [&str; 2]| assert!(names.iter().all(|name| all.contains(&&**name)), "{names:?}");
    among(names(WorkQueue::new(), None), ["worker-0", "worker-1"]);
    among(names(WorkQueue::builder().name("pods").build(), None), ["pods-0", "pods-1"]);
    among(names(WorkQueue::builder().name("pods").build(), Some("own")), ["own-0", "own-1"]);

    let queue = WorkQueue::<u32>::new();
    let error = queue.workers().spawn(0, |_: &Item<'_, u32>| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "threads is 0: no thread would process keys");
}

#[test]
fn a_handler_may_change_captured_state() {
    let queue = no_backoff().build();
    queue.add_all(0..3);
    queue.shut_down();
    let workers = queue.workers().build();
    let mut seen = Vec::new();
    workers.run(|item: &Item<'_, u32>| {
        seen.push(**item);
        if seen.len() == 2 {
            resume_unwind(Box::new(())); // the captured state survives the panic
        }
    });
    assert_eq!(seen, [0, 1, 2]);
    let queue = no_backoff().build();
    queue.add_all(0..3);
    queue.shut_down();
    let mut runs = 0;
    block_on(queue.workers().build().run_async(async |_: &Item<'_, u32>| {
        yield_once().await;
        runs += 1;
    }));
    assert_eq!(runs, 3);
}

#[test]
fn cloned_handles_share_the_workers_and_joins_wait_for_all_loops() {
    let queue = WorkQueue::<u32>::new();
    let workers = queue.workers().spawn(2, |_: &Item<'_, u32>| ()).unwrap();
    let other = workers.clone();
    let task = other.run_async(async |_: &Item<'_, u32>| ());
    assert_eq!(
        (workers.tally().running, other.tally().running),
        (3, 3),
        "a future counts as running before its first poll"
    );
    queue.add_all(0..100);
    queue.wait_idle();
    assert_eq!((workers.tally().succeeded, other.tally().succeeded), (100, 100));
    queue.shut_down();

    // No joining thread or task returns before the last loop, which is the future, has ended.
    let calls = Arc::new(Calls::default());
    let mut joined = pin!(workers.join_async());
    assert!(poll(joined.as_mut(), &calls).is_pending());
    let mut dropped = Box::pin(workers.join_async());
    assert!(poll(dropped.as_mut(), &calls).is_pending());
    drop(dropped);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                workers.join();
                send.send(()).unwrap();
            });
        }
        while workers.tally().running > 1 {
            thread::yield_now();
        }
        assert!(receive.try_recv().is_err() && calls.count() == 0 && poll(joined.as_mut(), &calls).is_pending());
        drop(task);
        receive.recv().unwrap();
        receive.recv().unwrap();
    });
    assert!(calls.count() == 1 && poll(joined, &calls).is_ready());
    assert_eq!((workers.tally().running, workers.tally().succeeded), (0, 100));
    assert!(format!("{workers:?}").contains("succeeded: 100"));
    assert!(workers.queue().shutting_down());
    other.join(); // a second join returns at once
}

#[test]
fn dropping_the_handle_stops_no_worker() {
    let queue = WorkQueue::<u32>::new();
    drop(queue.workers().spawn(1, |_: &Item<'_, u32>| ()).unwrap());
    queue.add(1);
    queue.wait_idle();
    assert_eq!(queue.stats().handed_out, 1);
    queue.shut_down();
}

#[test]
fn a_drain_processes_all_queued_keys_and_returns_the_delayed_ones() {
    for asynchronous in [false, true] {
        let (queue, _clock) = manual_builder();
        let queue = queue.build();
        queue.add_all(0..50);
        queue.add_after(7, 2 * MS);
        queue.add_after(99, MS);
        let workers = queue.workers().spawn(2, |_: &Item<'_, u32>| thread::yield_now()).unwrap();
        let leftover = if asynchronous { block_on(workers.drain_async()) } else { workers.drain() };
        assert_eq!(
            (pairs(leftover.delayed.clone()), leftover.queued.len(), leftover.processing.len()),
            (vec![(99, MS), (7, 2 * MS)], 0, 0)
        );
        assert!(!leftover.is_empty());
        assert_eq!(tally(&workers), [50, 0, 0, 0, 0, 0]);
        assert!(workers.drain().is_empty(), "a second drain: nothing is left");
        assert!(workers.drain_timeout(Duration::MAX).is_empty() && block_on(workers.drain_async()).is_empty());
    }
}

/// Workers whose handlers block until the senders in `go` are dropped.
struct Stuck {
    queue: WorkQueue<u32>,
    workers: Workers<u32>,
    go: Vec<mpsc::Sender<()>>,
}

impl Stuck {
    /// 0 (dirty) and 1 are processing, in handlers that block; 2 and 3 are queued; 4 and 0 are delayed.
    fn new() -> Self {
        let (queue, _clock) = manual_builder();
        let queue = queue.build();
        let (go, stop): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
        let stop: Vec<_> = stop.into_iter().map(Mutex::new).collect();
        let handler = move |item: &Item<'_, u32>| {
            if let Some(stop) = stop.get(**item as usize) {
                _ = stop.lock().unwrap().recv();
            }
        };
        let workers = queue.workers().spawn(2, handler).unwrap();
        queue.add_all(0..4);
        while queue.processing_len() < 2 {
            thread::yield_now();
        }
        queue.add(0);
        queue.add_after(4, 3 * MS);
        queue.add_after(0, 9 * MS);
        Self { queue, workers, go }
    }
}

#[test]
fn a_stop_or_a_drain_that_times_out_returns_what_is_left() {
    type Stop = fn(&Workers<u32>) -> Leftover<u32>;
    let stops: [Stop; 3] =
        [Workers::stop, |workers| workers.drain_timeout(Duration::ZERO), |workers| workers.drain_timeout(5 * MS)];
    for stop in stops {
        let Stuck { queue, workers, go } = Stuck::new();
        let mut leftover = stop(&workers);
        assert!(!leftover.is_empty());
        leftover.processing.sort();
        assert_eq!((leftover.queued, leftover.processing), (vec![2, 3], vec![0, 1]));
        assert_eq!(pairs(leftover.delayed), [(4, 3 * MS), (0, 9 * MS)]);
        assert_eq!((queue.len(), queue.delayed_len(), queue.processing_len()), (0, 0, 2));
        assert!(queue.shutting_down());
        assert_eq!((workers.tally().running, workers.tally().succeeded), (2, 0));
        // The loops end after their current keys. The dirty key is queued again and stays queued.
        drop(go);
        workers.join();
        assert_eq!((workers.tally().running, workers.tally().succeeded), (0, 2));
        assert_eq!((queue.len(), queue.processing_len()), (1, 0));
        let last = workers.drain_timeout(Duration::ZERO);
        assert_eq!((last.queued, last.processing, last.delayed), (vec![0], vec![], vec![]));
    }
}

#[test]
fn a_drain_returns_nothing_if_its_handlers_finish_in_time() {
    let Stuck { queue, workers, go } = Stuck::new();
    assert_eq!(queue.take_delayed().len(), 2);
    thread::scope(|scope| {
        let drain = scope.spawn(|| workers.drain_timeout(Duration::MAX));
        while queue.stats().drainers == 0 {
            thread::yield_now();
        }
        drop(go);
        assert!(drain.join().unwrap().is_empty());
    });
    assert_eq!(tally(&workers), [5, 0, 0, 0, 0, 0]);
}

/// A value whose drop blocks until the test ends it.
struct SlowDrop {
    begun: mpsc::Sender<()>,
    end: Mutex<mpsc::Receiver<()>>,
    dropped: Arc<AtomicBool>,
}

impl Drop for SlowDrop {
    fn drop(&mut self) {
        _ = self.begun.send(());
        _ = self.end.lock().unwrap().recv();
        self.dropped.store(true, Ordering::SeqCst);
    }
}

/// The test's side of a [`SlowDrop`].
struct Hold {
    begun: mpsc::Receiver<()>,
    end: mpsc::Sender<()>,
    dropped: Arc<AtomicBool>,
}

fn slow_drop() -> (SlowDrop, Hold) {
    let ((begin, begun), (end, ending)) = (mpsc::channel(), mpsc::channel());
    let dropped = Arc::new(AtomicBool::new(false));
    let value = SlowDrop { begun: begin, end: Mutex::new(ending), dropped: Arc::clone(&dropped) };
    (value, Hold { begun, end, dropped })
}

#[test]
fn a_drain_with_a_timeout_does_not_wait_for_a_captured_value_to_be_dropped() {
    let (value, hold) = slow_drop();
    let queue = WorkQueue::new();
    let workers = queue
        .workers()
        .spawn(2, move |_: &Item<'_, u32>| {
            let _captured = &value;
        })
        .unwrap();
    queue.add(1);
    let own = workers.clone();
    assert!(within_30_s(move || own.drain_timeout(5 * MS)).is_empty());
    hold.begun.recv().unwrap();
    let own = workers.clone();
    assert!(within_30_s(move || own.drain_timeout(5 * MS)).is_empty(), "a second drain");
    assert_eq!((workers.tally().running, hold.dropped.load(Ordering::SeqCst)), (1, false));
    hold.end.send(()).unwrap();
    workers.join();
    assert_eq!((workers.tally().running, hold.dropped.load(Ordering::SeqCst)), (0, true));
}

#[test]
fn a_drain_with_a_timeout_does_not_wait_for_the_thread_locals_of_a_handler() {
    use std::cell::RefCell;
    thread_local!(static LOCAL: RefCell<Option<SlowDrop>> = const { RefCell::new(None) });
    let (value, hold) = slow_drop();
    let value = Mutex::new(Some(value));
    let queue = WorkQueue::new();
    let workers = queue.workers().spawn(1, move |_: &Item<'_, u32>| LOCAL.set(value.lock().unwrap().take())).unwrap();
    queue.add(1);
    let own = workers.clone();
    assert!(within_30_s(move || own.drain_timeout(Duration::from_secs(3600))).is_empty());
    hold.begun.recv().unwrap();
    assert_eq!((workers.tally().running, hold.dropped.load(Ordering::SeqCst)), (0, false));
    hold.end.send(()).unwrap();
    workers.join();
    assert!(hold.dropped.load(Ordering::SeqCst), "a join waits for the thread");
}

/// In each way of running it, a loop counts as running until its handler is dropped.
#[test]
fn a_loop_ends_when_its_handler_is_dropped() {
    for way in WAYS {
        let (value, hold) = slow_drop();
        let queue = WorkQueue::new();
        queue.add(1);
        queue.shut_down();
        let builder = queue.workers();
        let handler = move |_: &Item<'_, u32>| {
            let _captured = &value;
        };
        let workers = if way == Way::Spawned {
            builder.spawn(1, handler).unwrap()
        } else {
            let workers = builder.build();
            let own = workers.clone();
            let run = workers.run_async(async |_: &Item<'_, u32>| ());
            thread::spawn(move || match way {
                Way::Here => own.run(handler),
                Way::Task => block_on(own.run_async(async move |item: &Item<'_, u32>| handler(item))),
                // A future that was never polled.
                _ => drop(own.run_async(async move |item: &Item<'_, u32>| handler(item))),
            });
            drop(run);
            workers
        };
        hold.begun.recv().unwrap();
        let calls = Arc::new(Calls::default());
        let mut join = pin!(workers.join_async());
        assert!(poll(join.as_mut(), &calls).is_pending(), "{way:?}");
        assert_eq!(workers.tally().running, 1, "{way:?}");
        hold.end.send(()).unwrap();
        workers.join();
        assert!(hold.dropped.load(Ordering::SeqCst), "{way:?}");
        assert!(poll(join, &calls).is_ready());
    }
}

/// No loop processes the keys that a stop has left, so the drain must not wait for them.
#[test]
fn a_drain_after_a_stop_waits_only_for_the_loops() {
    let Stuck { workers, go, .. } = Stuck::new();
    let first = workers.stop();
    assert_eq!(first.processing.len(), 2);
    let own = workers.clone();
    let drain = thread::spawn(move || own.drain_timeout(Duration::from_secs(3600)));
    drop(go);
    workers.join();
    assert_eq!(within_30_s(move || drain.join().unwrap()).queued, [0]);
}

/// Whichever poll the drain is dropped after, as by a `timeout` around it, the next stop returns everything that is left.
#[test]
fn a_dropped_drain_future_has_taken_nothing() {
    for until in [false, true] {
        for polls in 0..=3 {
            let (queue, _clock) = manual_builder();
            let queue = queue.build();
            queue.add_all([0, 1]);
            queue.add_after(4, 3 * MS);
            queue.add_rate_limited(1);
            let workers = queue.workers().build();
            let last = workers.run_async(async |_: &Item<'_, u32>| ());
            let calls = Arc::new(Calls::default());
            let mut drain: Pin<Box<dyn Future<Output = Leftover<u32>>>> =
                if until { Box::pin(workers.drain_until(pending::<()>())) } else { Box::pin(workers.drain_async()) };
            let delayed = vec![(4, 3 * MS), (1, 5 * MS)];
            for poll_number in 0..polls {
                assert!(poll(drain.as_mut(), &calls).is_pending());
                assert_eq!((queue.len(), queue.delayed_len()), (2_usize.saturating_sub(poll_number), 2));
                // The drain waits for the queued keys first, then only for the loop.
                drop(queue.try_get());
            }
            drop(drain);
            let left = workers.stop();
            let queued: Vec<_> = (polls.min(2) as u32..2).collect();
            assert_eq!(
                (left.queued, left.processing, pairs(left.delayed)),
                (queued, vec![], delayed),
                "{until}, {polls}"
            );
            drop(last);
        }
    }
}

#[test]
fn drain_until_returns_what_is_left_when_its_deadline_resolves() {
    let Stuck { queue, workers, go } = Stuck::new();
    let calls = Arc::new(Calls::default());
    let (send, deadline) = tokio::sync::oneshot::channel::<()>();
    let mut drain = Box::pin(workers.drain_until(deadline));
    assert!(!queue.shutting_down(), "not before the first poll");
    assert!(poll(drain.as_mut(), &calls).is_pending());
    assert!(queue.shutting_down() && calls.count() == 0);
    send.send(()).unwrap();
    assert_eq!(calls.count(), 1);
    let Poll::Ready(mut left) = poll(drain.as_mut(), &calls) else { panic!("the drain must end at its deadline") };
    left.processing.sort();
    assert_eq!((left.queued, left.processing), (vec![2, 3], vec![0, 1]));
    assert_eq!(pairs(left.delayed), [(4, 3 * MS), (0, 9 * MS)]);
    drop(go);
    workers.join();
}

#[test]
fn drain_until_ends_before_its_deadline_when_nothing_is_left() {
    let Stuck { queue, workers, go } = Stuck::new();
    assert_eq!(queue.take_delayed().len(), 2);
    let calls = Arc::new(Calls::default());
    let mut drain = Box::pin(workers.drain_until(pending::<()>()));
    assert!(poll(drain.as_mut(), &calls).is_pending());
    drop(go);
    assert!(block_on(drain).is_empty());
    assert_eq!(tally(&workers), [5, 0, 0, 0, 0, 0]);
    // Nothing is left, so the drain is empty although the deadline has come.
    assert!(block_on(workers.drain_until(ready(()))).is_empty());
}

/// The deadline is a user's future, so its `poll` may panic.
#[test]
fn a_deadline_that_panics_takes_nothing() {
    let (queue, _clock) = manual_builder();
    let queue = queue.build();
    queue.add(1);
    queue.add_after(2, MS);
    let workers = queue.workers().build();
    let deadline = poll_fn(|_| -> Poll<()> { resume_unwind(Box::new("a deadline")) });
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(workers.drain_until(deadline)))).is_err());
    let left = workers.stop();
    assert_eq!((left.queued, pairs(left.delayed)), (vec![1], vec![(2, MS)]));
}

type Work<'i> = Pin<Box<dyn Future<Output = Outcome> + Send + 'i>>;

/// Wraps a handler of which only the trait bounds are known.
fn wrapped<F>(workers: &Workers<u32>, mut handler: F) -> impl Future<Output = ()> + Send + 'static
where
    F: for<'i> FnMut(&'i Item<'_, u32>) -> Work<'i> + Send + 'static,
{
    let mut runs = 0;
    workers.run_boxed(move |item| {
        runs += 1;
        let work = handler(item);
        Box::pin(async move { if runs == 2 { Outcome::GiveUp("enough".into()) } else { work.await } })
    })
}

#[test]
fn boxed_handlers_can_be_wrapped_and_spawned() {
    let queue = no_backoff().build();
    queue.add_all([1, 2, 3]);
    queue.shut_down();
    let workers = queue.workers().build();
    let seen = Notes::new();
    let work = wrapped(&workers, {
        let seen = seen.clone();
        move |item| {
            let seen = seen.clone(); // moved into the future, which borrows the item as well
            Box::pin(async move {
                yield_once().await;
                seen.add(**item);
                if **item == 3 {
                    resume_unwind(Box::new("a panic"));
                }
                Outcome::Success
            })
        }
    });
    tokio(1).block_on(async { tokio::spawn(work).await.unwrap() });
    assert_eq!((seen.take(), tally(&workers)), (vec![1, 3], [1, 0, 0, 1, 1, 1]));
}

#[test]
fn a_stop_with_async_loops_returns_what_is_left() {
    let queue = WorkQueue::new();
    queue.add_all(0..3);
    let workers = queue.workers().build();
    let go = Arc::new(AtomicBool::new(false));
    let handler = {
        let go = Arc::clone(&go);
        async move |_: &Item<'_, u32>| {
            poll_fn(|_| if go.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await
        }
    };
    let calls = Arc::new(Calls::default());
    let mut work = pin!(workers.run_async(handler));
    assert!(poll(work.as_mut(), &calls).is_pending());
    let leftover = workers.stop();
    assert_eq!((leftover.queued, leftover.processing, leftover.delayed), (vec![1, 2], vec![0], vec![]));
    go.store(true, Ordering::SeqCst);
    assert!(poll(work, &calls).is_ready());
    assert_eq!(tally(&workers), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn dropping_a_loops_future_marks_its_key_done() {
    let queue = WorkQueue::new();
    let workers = queue.workers().build();
    let handler = async |item: &Item<'_, u32>| {
        if **item == 1 {
            std::future::pending::<()>().await;
        }
    };
    drop(workers.run_async(handler));
    assert_eq!(workers.tally().running, 0, "dropped before its first poll");
    for dirty in [false, true] {
        let mut work = Box::pin(workers.run_async(handler));
        let calls = Arc::new(Calls::default());
        assert!(poll(work.as_mut(), &calls).is_pending());
        assert_eq!((workers.tally().running, queue.stats().waiters), (1, 1));
        queue.add_all([0, 1, 2]);
        assert!(calls.count() > 0 && poll(work.as_mut(), &calls).is_pending());
        assert_eq!((queue.processing_len(), queue.len(), workers.tally().succeeded), (1, 1, 1 + 3 * u64::from(dirty)));
        if dirty {
            queue.add(1);
        }
        drop(work);
        assert_eq!((queue.processing_len(), queue.len()), (0, 1 + usize::from(dirty)));
        assert_eq!(workers.tally().running, 0);
        if !dirty {
            // Without a loop the key stays queued; the next future processes it.
            let mut work = pin!(workers.run_async(async |_: &Item<'_, u32>| ()));
            queue.add(3);
            assert!(poll(work.as_mut(), &calls).is_pending());
            assert_eq!((queue.len(), workers.tally().succeeded), (0, 3));
        }
    }
    assert_eq!((queue.stats().waiters, queue.stats().panics), (0, 0));
}

// ---- random load ----

/// A handler that acts at random and detects two holders of one key.
struct Load {
    seed: u64,
    runs: AtomicU64,
    unwound: AtomicU64,
    busy: Vec<AtomicBool>,
    queue: WorkQueue<u32>,
}

/// Marks a key as free when it is dropped, even by a panic of the handler.
struct Busy<'b>(&'b AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Load {
    fn begin(&self, item: &Item<'_, u32>) -> (Rng, Busy<'_>) {
        let busy = &self.busy[**item as usize];
        assert!(!busy.swap(true, Ordering::SeqCst), "P1: key {} has two holders", **item);
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        (Rng::with_seed(self.seed ^ run << 20), Busy(busy))
    }

    fn end(&self, mut random: Rng) -> Outcome {
        let keys = self.busy.len() as u64;
        for _ in 0..random.u64(..3) {
            let key = random.u64(..keys) as u32;
            match random.u64(..4) {
                0 => _ = self.queue.add_after(key, Duration::from_micros(random.u64(..300))),
                1 => _ = self.queue.add_rate_limited(key),
                _ => _ = self.queue.add(key),
            }
        }
        match random.u64(..8) {
            0 => Outcome::Retry,
            1 => Outcome::Failed("no luck".into()),
            2 => Outcome::RequeueAfter(Duration::from_micros(random.u64(..200))),
            3 => Outcome::GiveUp("gone".into()),
            4 => {
                self.unwound.fetch_add(1, Ordering::SeqCst);
                resume_unwind(Box::new(String::from("a panic")))
            }
            _ => Outcome::Success,
        }
    }
}

#[test]
fn a_shutdown_under_load_ends_with_nothing_left() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    for round in 0..30 {
        let seed = seed.wrapping_add(round);
        println!("seed {seed}"); // shown if the round fails
        let mut random = Rng::with_seed(seed);
        let limiter = ItemFastSlow::new(Duration::from_micros(50), Duration::from_micros(400), 3);
        let queue = WorkQueue::builder().rate_limiter(limiter).measure(round % 2 == 0).build();
        let keys = 1 + random.u64(..40);
        let busy = (0..keys).map(|_| AtomicBool::new(false)).collect();
        let load =
            Arc::new(Load { seed, runs: AtomicU64::new(0), unwound: AtomicU64::new(0), busy, queue: queue.clone() });
        let hooks = Arc::new([const { AtomicU64::new(0) }; 3]);
        let hook = |n: usize| {
            let hooks = Arc::clone(&hooks);
            move || _ = hooks[n].fetch_add(1, Ordering::SeqCst)
        };
        let (errors, panics, drops) = (hook(0), hook(1), hook(2));
        let builder = queue.workers().max_retries(2).on_error(move |_, _| errors());
        let builder = builder.on_panic(move |_, message| {
            assert_eq!(message, "a panic");
            panics();
        });
        let builder = builder.on_give_up(move |_, _| drops());
        let workers = builder
            .spawn(2, {
                let load = Arc::clone(&load);
                move |item: &Item<'_, u32>| {
                    let (random, _busy) = load.begin(item);
                    load.end(random)
                }
            })
            .unwrap();
        let task = || {
            let load = Arc::clone(&load);
            workers.run_async(async move |item: &Item<'_, u32>| {
                let (mut random, _busy) = load.begin(item);
                for _ in 0..random.u64(..3) {
                    yield_once().await;
                }
                load.end(random)
            })
        };
        let runtime = tokio(2);
        let tasks = [task(), task()].map(|task| runtime.spawn(task));
        let single = task();
        let single = thread::spawn(move || block_on(single));
        let mut left = thread::scope(|scope| {
            for n in 0..2 {
                let (queue, mut random) = (&queue, Rng::with_seed(seed + 1_000 + n));
                scope.spawn(move || {
                    while queue.add(random.u64(..keys) as u32).is_accepted() {
                        if random.u64(..4) == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
            while load.runs.load(Ordering::SeqCst) < 20 + random.u64(..200) {
                thread::yield_now();
            }
            match round % 3 {
                0 => workers.drain(),
                1 => workers.drain_timeout(Duration::from_secs(60)),
                _ => block_on(workers.drain_async()),
            }
        });
        single.join().unwrap();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        workers.join();

        let (stats, tally) = (queue.stats(), workers.tally());
        assert_eq!((stats.len, stats.processing, stats.delayed, stats.waiters, tally.running), (0, 0, 0, 0, 0));
        let [errors, panics, drops] = [0, 1, 2].map(|n| hooks[n].load(Ordering::SeqCst));
        let (runs, unwound) = (load.runs.load(Ordering::SeqCst), load.unwound.load(Ordering::SeqCst));
        assert_eq!((stats.handed_out, stats.panics, tally.panicked, panics), (runs, unwound, unwound, unwound));
        assert_eq!(tally.succeeded + tally.failed, runs, "each run ends in one way");
        assert!(tally.retried + tally.given_up <= tally.failed, "a key that fails is retried, given up or refused");
        let ends = tally.retried + tally.given_up + tally.requeued + tally.refused;
        assert!(ends >= tally.failed && ends <= runs, "{tally:?}");
        let by_result = queue.inspect().metrics().runs;
        assert_eq!(by_result.success + by_result.requeue, tally.succeeded);
        assert!(tally.requeued <= by_result.requeue);
        assert_eq!((by_result.error + by_result.give_up, by_result.panic), (tally.failed - unwound, unwound));
        assert!(by_result.give_up <= tally.given_up && errors <= by_result.error + by_result.give_up);
        assert_eq!((stats.given_up, tally.given_up), (drops, drops));
        assert!(errors <= tally.retried + tally.given_up + tally.refused);
        // Not all: a key that was dirty when it was refused came back.
        left.refused.sort_unstable();
        assert!(left.refused.is_sorted_by(|one, next| one < next), "{:?}", left.refused);
        assert!(left.refused.len() as u64 <= tally.refused);
        if round % 2 == 0 {
            let metrics = queue.inspect().metrics();
            assert_eq!((metrics.queue_duration.count(), metrics.work_duration.count()), (runs, runs));
            assert_eq!(stats.unfinished_work, Some(Duration::ZERO));
        }
    }
}

// ---- work that has become stale ----

#[test]
fn an_async_handler_can_abandon_stale_work() {
    let queue = WorkQueue::<u32>::new();
    queue.add(5);
    let workers = queue.workers().build();
    let (runs, abandoned) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = {
        let (runs, abandoned) = (&runs, &abandoned);
        workers.run_async(async move |item: &Item<'_, u32>| {
            runs.fetch_add(1, Ordering::SeqCst);
            assert!(!item.is_dirty());
            item.until_dirty().await;
            assert!(item.is_dirty());
            abandoned.fetch_add(1, Ordering::SeqCst);
        })
    };
    let calls = Arc::new(Calls::default());
    let mut work = pin!(work);
    for run in 1..=3 {
        assert!(poll(work.as_mut(), &calls).is_pending());
        assert_eq!((runs.load(Ordering::SeqCst), abandoned.load(Ordering::SeqCst)), (run, run - 1));
        let before = calls.count();
        queue.add(5);
        queue.add(5);
        assert_eq!(calls.count(), before + 1, "woken by the first add, once");
    }
}

#[test]
fn a_blocking_handler_sees_that_its_key_is_dirty() {
    let queue = no_backoff().build();
    queue.add(5);
    let workers = queue.workers().build();
    let runs = AtomicUsize::new(0);
    workers.run(|item: &Item<'_, u32>| {
        if runs.fetch_add(1, Ordering::Relaxed) < 3 {
            assert!(!item.is_dirty());
            queue.add(**item);
            assert!(item.is_dirty());
        } else {
            queue.shut_down();
        }
    });
    assert_eq!(runs.into_inner(), 4);
}

#[test]
fn an_add_wakes_all_until_dirty_futures_but_dropped_ones() {
    let queue = WorkQueue::<u32>::new();
    queue.add_all([1, 2]);
    let (one, two) = (queue.get().unwrap(), queue.get().unwrap().into_owned());
    let calls: [Arc<Calls>; 5] = std::array::from_fn(|_| Arc::default());
    let [first, second, gone, other, again] = &calls;
    let mut futures = [Box::pin(one.until_dirty()), Box::pin(one.until_dirty())];
    assert!(poll(futures[0].as_mut(), again).is_pending());
    assert!(poll(futures[0].as_mut(), first).is_pending(), "the latest waker replaces it");
    assert!(poll(futures[1].as_mut(), second).is_pending());
    let mut dropped = Box::pin(one.until_dirty());
    assert!(poll(dropped.as_mut(), gone).is_pending());
    drop(dropped);
    let mut others = Box::pin(two.until_dirty());
    assert!(poll(others.as_mut(), other).is_pending());

    queue.add(3);
    assert_eq!(calls.each_ref().map(|calls| calls.count()), [0; 5], "an add of another key wakes none of them");
    queue.add_all([1, 1]);
    assert_eq!(calls.each_ref().map(|calls| calls.count()), [1, 1, 0, 0, 0]);
    assert!(futures.iter_mut().all(|future| poll(future.as_mut(), again).is_ready()));
    assert!(poll(pin!(one.until_dirty()), again).is_ready(), "resolves at once");
    assert!(poll(others.as_mut(), other).is_pending());
    assert_eq!(again.count(), 0);
    drop((futures, others));
    one.done();
    assert_eq!((other.count(), queue.len()), (0, 2));
}

#[test]
fn each_way_to_make_a_key_dirty_wakes_until_dirty() {
    use keyqueue::DelayedAdd;
    type Dirty = fn(&WorkQueue<u32>, &MockClock);
    let ways: [(DelayedAdd, Dirty); 6] = [
        (DelayedAdd::Independent, |queue, _| _ = queue.add(1)),
        (DelayedAdd::Independent, |queue, _| _ = queue.add_all([1])),
        (DelayedAdd::Independent, |queue, _| _ = queue.add_with(1, AddOptions::new())),
        (DelayedAdd::Independent, |queue, clock| {
            queue.add_after(1, MS);
            clock.advance(MS);
            assert_eq!(queue.turn(), 1);
        }),
        (DelayedAdd::Promote, |queue, _| {
            queue.add_after(1, MS);
            queue.add(1);
        }),
        (DelayedAdd::Strict, |queue, _| {
            queue.add_after(1, MS);
            queue.add(1);
            assert!(queue.cancel(&1));
        }),
    ];
    for (n, (policy, dirty)) in ways.into_iter().enumerate() {
        let (builder, clock) = manual_builder();
        let queue = builder.delayed_add(policy).build();
        queue.add(1);
        let item = queue.get().unwrap();
        let calls = Arc::new(Calls::default());
        let mut stale = Box::pin(item.until_dirty());
        assert!(poll(stale.as_mut(), &calls).is_pending());
        dirty(&queue, &clock);
        assert_eq!((calls.count(), item.is_dirty()), (1, true), "way {n}");
        assert!(poll(stale.as_mut(), &calls).is_ready());
    }
    // A delay that has not expired does not make the key dirty, nor does an add that waits for the delay, nor a rejected add.
    let queue = manual_builder().0.delayed_add(DelayedAdd::Strict).build();
    queue.add(1);
    let item = queue.get().unwrap();
    let calls = Arc::new(Calls::default());
    let mut stale = pin!(item.until_dirty());
    assert!(poll(stale.as_mut(), &calls).is_pending());
    queue.add_after(1, MS);
    queue.add(1);
    queue.shut_down();
    queue.add(1);
    assert!(calls.count() == 0 && poll(stale, &calls).is_pending());
}

#[test]
fn a_leaked_until_dirty_future_affects_no_other_key() {
    let queue = WorkQueue::<u32>::new();
    for round in 0..20 {
        queue.add(round);
        let item = queue.get().unwrap();
        let leaked = Arc::new(Calls::default());
        let mut future = Box::pin(item.until_dirty());
        assert!(poll(future.as_mut(), &leaked).is_pending());
        std::mem::forget(future);
        if round % 3 == 0 {
            queue.add(round);
            assert_eq!((leaked.count(), Arc::strong_count(&leaked)), (1, 1));
        }
        item.done();
        while let Ok(item) = queue.try_get() {
            item.done();
        }
        // Another key reuses the slot: its own futures are woken.
        for late in [false, true] {
            queue.add(1_000 + round);
            let item = queue.get().unwrap();
            let calls = Arc::new(Calls::default());
            let mut stale = Box::pin(item.until_dirty());
            if !late {
                assert!(poll(stale.as_mut(), &calls).is_pending());
            }
            queue.add(1_000 + round);
            assert_eq!(calls.count(), usize::from(!late));
            assert!(poll(stale.as_mut(), &calls).is_ready());
            drop(stale);
            item.done();
            queue.get().unwrap().done();
        }
        assert!(leaked.count() <= 1 && Arc::strong_count(&leaked) == 1, "the leaked future's waker is dropped by now");
    }
}

#[test]
fn a_task_is_woken_by_a_thread_that_makes_its_key_dirty() {
    let queue = WorkQueue::<u32>::new();
    let workers = queue.workers().build();
    let runs = Arc::new(AtomicUsize::new(0));
    let runtime = tokio(2);
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (queue, runs) = (queue.clone(), Arc::clone(&runs));
            runtime.spawn(workers.run_async(async move |item: &Item<'_, u32>| {
                runs.fetch_add(1, Ordering::SeqCst);
                if !queue.shutting_down() {
                    item.until_dirty().await;
                }
            }))
        })
        .collect();
    // Each round wakes the holders of both keys; the last run of each key sees the shut-down.
    let mut seen = 0;
    for _ in 0..200 {
        queue.add_all([0, 1]);
        while runs.load(Ordering::SeqCst) <= seen {
            thread::yield_now();
        }
        seen = runs.load(Ordering::SeqCst);
    }
    while queue.processing_len() < 2 {
        thread::yield_now();
    }
    queue.add_all([0, 1]);
    queue.shut_down();
    // A future whose key was handed out before the shut-down and is not dirty waits forever: the runtime drops it.
    runtime.shutdown_background();
    drop(tasks);
    workers.join();
    assert_eq!(queue.processing_len(), 0);
}

// ---- handlers that end early at a shut-down ----

#[test]
fn until_shutting_down_resolves_when_the_shut_down_begins() {
    type Begin = fn(&WorkQueue<u32>, &Arc<Calls>);
    let begins: [Begin; 2] = [
        |queue, _| queue.shut_down(),
        // The drain waits for the handlers, so they must not wait for the drain to end.
        |queue, calls| assert!(poll(pin!(queue.shut_down_with_drain_async()), calls).is_pending()),
    ];
    for begin in begins {
        let queue = WorkQueue::<u32>::new();
        queue.add(5);
        let workers = queue.workers().build();
        let notes = Notes::new();
        let mut work = pin!(workers.run_async(async |item: &Item<'_, u32>| {
            let before = item.shutting_down();
            item.until_shutting_down().await;
            notes.add((before, item.shutting_down()));
        }));
        let calls = Arc::new(Calls::default());
        assert!(poll(work.as_mut(), &calls).is_pending());
        queue.add(5); // its second run comes after the shut-down
        assert!(notes.take().is_empty() && calls.count() == 0);
        begin(&queue, &Arc::default());
        assert_eq!(calls.count(), 1);
        assert!(poll(work, &calls).is_ready());
        assert_eq!(notes.take(), [(false, true), (true, true)]);
    }
}

#[test]
fn a_shut_down_wakes_all_until_shutting_down_futures_but_dropped_ones() {
    let queue = WorkQueue::<u32>::new();
    queue.add_all([1, 2]);
    let (one, two) = (queue.get().unwrap(), queue.get().unwrap().into_owned());
    let calls: [Arc<Calls>; 6] = std::array::from_fn(|_| Arc::default());
    let [of_queue, of_item, of_owned, gone, getter, again] = &calls;
    let mut futures = [queue.until_shutting_down(), one.until_shutting_down(), two.until_shutting_down()].map(Box::pin);
    assert!(poll(futures[0].as_mut(), again).is_pending());
    for (future, calls) in futures.iter_mut().zip([of_queue, of_item, of_owned]) {
        assert!(poll(future.as_mut(), calls).is_pending(), "the latest waker replaces it");
    }
    let mut dropped = Box::pin(queue.until_shutting_down());
    assert!(poll(dropped.as_mut(), gone).is_pending());
    drop(dropped);
    assert_eq!(Arc::strong_count(gone), 1, "its waker is dropped with it");
    let mut get = pin!(queue.get_async());
    assert!(poll(get.as_mut(), getter).is_pending());

    queue.add_all([1, 2]);
    assert!(queue.wait_idle_timeout(Duration::ZERO).is_err());
    assert_eq!(calls.each_ref().map(|calls| calls.count()), [0; 6]);
    assert_eq!(queue.stats().drainers, 0);
    queue.shut_down();
    queue.shut_down();
    assert_eq!(calls.each_ref().map(|calls| calls.count()), [1, 1, 1, 0, 1, 0]);
    assert!(futures.iter_mut().all(|future| poll(future.as_mut(), again).is_ready()));
    assert!(poll(pin!(queue.until_shutting_down()), again).is_ready(), "resolves at once");
    assert_eq!(again.count(), 0);
}

// ---- spans ----

#[cfg(feature = "tracing")]
mod spans {
    use super::*;
    use std::cell::RefCell;
    use std::fmt::{Debug, Write};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    /// Records every span, and every event with the spans around it.
    #[derive(Clone)]
    struct Log {
        lines: Notes<String>,
        spans: Arc<Mutex<Vec<String>>>,
    }

    thread_local! {
        static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut fields = Fields(format!("{} {}", span.metadata().level(), span.metadata().name()));
            span.record(&mut fields);
            let mut spans = self.spans.lock().unwrap();
            spans.push(fields.0);
            Id::from_u64(spans.len() as u64)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {
            panic!("all fields are set when the span is created");
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields(event.metadata().level().to_string());
            event.record(&mut fields);
            let spans = self.spans.lock().unwrap();
            let within = ENTERED.with_borrow(|entered| {
                entered.iter().map(|&id| spans[id as usize - 1].clone()).collect::<Vec<_>>().join(" > ")
            });
            self.lines.add(format!("[{within}] {}", fields.0));
        }

        fn enter(&self, id: &Id) {
            ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
        }

        fn exit(&self, id: &Id) {
            ENTERED.with_borrow_mut(|entered| assert_eq!(entered.pop(), Some(id.into_u64())));
        }
    }

    fn logged(run: impl FnOnce()) -> (Vec<String>, Vec<String>) {
        let log = Log { lines: Notes::new(), spans: Arc::default() };
        tracing::subscriber::with_default(log.clone(), run);
        ENTERED.with_borrow(|entered| assert!(entered.is_empty(), "all spans were exited"));
        let spans = log.spans.lock().unwrap().clone();
        (spans, log.lines.take())
    }

    /// The spans and events of a key whose first run fails, whose second panics, and whose third succeeds.
    fn three_runs(measure: bool, traced: bool, asynchronous: bool) -> (Vec<String>, Vec<String>) {
        let (clock, mock) = Clock::mock();
        let queue = WorkQueue::builder().name("pods").clock(clock).driver(Driver::Manual).measure(measure);
        let queue = queue.rate_limiter(ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0)).build();
        queue.add("a");
        mock.advance(MS);
        let builder = queue.workers().on_panic(|_, message| assert_eq!(message, "on fire"));
        let workers = if traced { builder.traced() } else { builder }.build();
        let runs = AtomicUsize::new(0);
        let handler = |item: &Item<'_, &'static str>| {
            tracing::event!(Level::DEBUG, key = **item, "at work");
            match runs.fetch_add(1, Ordering::Relaxed) {
                0 => Outcome::Failed("no luck".into()),
                1 => resume_unwind(Box::new("on fire")),
                _ => {
                    queue.shut_down();
                    Outcome::Success
                }
            }
        };
        logged(|| {
            if asynchronous {
                block_on(workers.run_async(async |item: &Item<'_, &'static str>| {
                    yield_once().await;
                    handler(item)
                }));
            } else {
                workers.run(handler);
            }
        })
    }

    #[test]
    fn each_run_is_in_a_span_with_its_errors_and_panics() {
        for asynchronous in [false, true] {
            let (spans, lines) = three_runs(true, true, asynchronous);
            let expected = [(1, "1ms"), (2, "0ns"), (3, "0ns")].map(|(attempt, waited)| {
                format!(r#"INFO workqueue queue="pods" key="a" waited={waited} attempt={attempt}"#)
            });
            assert_eq!(spans, expected);
            let [first, second, third] = expected;
            let work = r#"DEBUG message=at work key="a""#;
            let expected = [
                format!("[{first}] {work}"),
                format!("[{first}] WARN message=failed error=no luck"),
                format!("[{second}] {work}"),
                format!("[{second}] ERROR message=panicked message=\"on fire\""),
                format!("[{third}] {work}"),
            ];
            assert_eq!(lines.len(), expected.len(), "{lines:#?}");
            // `tracing` chooses the order of an event's fields.
            for (line, expected) in lines.iter().zip(&expected) {
                let sorted = |line: &str| {
                    let (span, fields) = line.rsplit_once(']').unwrap();
                    let mut letters: Vec<_> = fields.chars().collect();
                    letters.sort();
                    (span.to_owned(), letters)
                };
                assert_eq!(sorted(line), sorted(expected), "{line} instead of {expected}");
            }
        }
    }

    #[test]
    fn errors_of_retry_after_and_give_up_are_events_too() {
        let queue = no_backoff().build();
        queue.add_all([1, 2]);
        queue.shut_down();
        let (_, lines) = logged(|| {
            queue.workers().traced().build().run(|item: &Item<'_, u32>| match **item {
                1 => Outcome::RetryAfter { delay: MS, error: "busy".into() },
                _ => Outcome::GiveUp("gone".into()),
            });
        });
        let [busy, gone] = &lines[..] else { panic!("{lines:#?}") };
        assert!(busy.contains("WARN") && busy.contains("message=failed") && busy.contains("error=busy"), "{busy}");
        assert!(gone.contains("WARN") && gone.contains("message=given up") && gone.contains("error=gone"), "{gone}");
    }

    #[test]
    fn without_measure_the_span_has_no_waited_field() {
        let (spans, _) = three_runs(false, true, false);
        assert_eq!(spans[0], r#"INFO workqueue queue="pods" key="a" attempt=1"#);
    }

    #[test]
    fn an_item_has_a_span_without_workers() {
        let queue = WorkQueue::builder().name("pods").measure(true).clock(Clock::mock().0).build();
        let (spans, lines) = logged(|| {
            queue.add(7);
            let item = queue.get().unwrap().into_owned();
            item.span().in_scope(|| tracing::event!(Level::DEBUG, "at work"));
        });
        let expected = r#"INFO workqueue queue="pods" key=7 waited=0ns attempt=1"#;
        assert_eq!(spans, [expected]);
        assert_eq!(lines, [format!("[{expected}] DEBUG message=at work")]);
    }

    /// A subscriber is foreign code, so it may panic.
    #[test]
    fn a_subscriber_that_panics_leaves_no_key_stuck() {
        struct Broken(Log, &'static str);
        impl Broken {
            fn at(&self, place: &str) {
                if place == self.1 && !std::thread::panicking() {
                    resume_unwind(Box::new("a subscriber"));
                }
            }
        }
        impl Subscriber for Broken {
            fn enabled(&self, _: &Metadata<'_>) -> bool {
                true
            }
            fn new_span(&self, span: &Attributes<'_>) -> Id {
                self.at("new_span");
                self.0.new_span(span)
            }
            fn record(&self, _: &Id, _: &Record<'_>) {}
            fn record_follows_from(&self, _: &Id, _: &Id) {}
            fn event(&self, _: &Event<'_>) {
                self.at("event");
            }
            fn enter(&self, _: &Id) {
                self.at("enter");
            }
            fn exit(&self, _: &Id) {
                self.at("exit");
            }
        }
        for place in ["new_span", "enter", "exit", "event"] {
            for asynchronous in [false, true] {
                let queue = no_backoff().build();
                queue.add_all([1, 2]);
                queue.shut_down();
                let workers = queue.workers().traced().build();
                let broken = Broken(Log { lines: Notes::new(), spans: Arc::default() }, place);
                tracing::subscriber::with_default(broken, || {
                    if asynchronous {
                        block_on(workers.run_async(async |_: &Item<'_, u32>| Err::<(), _>("no luck")));
                    } else {
                        workers.run(|_: &Item<'_, u32>| Err::<(), _>("no luck"));
                    }
                });
                let (stats, tally) = (queue.stats(), workers.tally());
                assert_eq!((stats.processing, stats.len, stats.handed_out), (0, 0, 2), "{place}");
                assert!(tally.panicked >= 2 && tally.retried + tally.refused > 0, "{place}: {tally:?}");
            }
        }
    }

    #[test]
    fn without_traced_there_are_no_spans() {
        let (spans, lines) = three_runs(true, false, true);
        assert_eq!((spans, lines.len()), (vec![], 3), "only the handler's own events");
        assert!(lines.iter().all(|line| line.starts_with("[] DEBUG")));
    }
}

// ---- tasks of Tokio ----

#[cfg(feature = "tokio")]
mod spawn_tasks {
    use super::*;

    /// Waits in a task until a key is processing.
    async fn until_processing(queue: &WorkQueue<u32>, keys: usize) {
        while queue.processing_len() < keys {
            tokio::task::yield_now().await;
        }
    }

    /// Says when it is dropped.
    struct Flag(Arc<AtomicBool>);

    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Key 0 hangs, the others return.
    fn hang(workers: &Workers<u32>, tasks: usize) -> Arc<AtomicBool> {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&dropped);
        workers.spawn_tasks(tasks, move |item| {
            let flag = Arc::clone(&flag);
            Box::pin(async move {
                if **item == 0 {
                    let _flag = Flag(flag);
                    pending::<()>().await;
                }
            })
        });
        dropped
    }

    #[test]
    fn a_drain_with_a_deadline_aborts_tasks_that_hang() {
        for threads in [0, 2] {
            let runtime = if threads == 0 {
                tokio::runtime::Builder::new_current_thread().build().unwrap()
            } else {
                tokio(threads)
            };
            runtime.block_on(async {
                let queue = WorkQueue::new();
                let workers = queue.workers().build();
                let dropped = hang(&workers, 2);
                assert_eq!(workers.tally().running, 2);
                queue.add_all([0, 1, 2]);
                while workers.tally().succeeded < 2 {
                    tokio::task::yield_now().await;
                }
                let left = workers.drain_until(ready(())).await;
                assert_eq!((left.processing, left.queued, left.delayed.len()), (vec![0], vec![], 0));
                workers.join_async().await;
                assert!(dropped.load(Ordering::SeqCst));
                assert_eq!((queue.processing_len(), queue.len()), (0, 0));
                let Tally { succeeded, failed, running, .. } = workers.tally();
                assert_eq!((succeeded, failed, running), (2, 0, 0), "a run that was aborted is not counted");
            });
        }
    }

    /// With the call for threads, from outside of the runtime.
    #[test]
    fn a_blocking_drain_aborts_them_too() {
        let runtime = tokio(1);
        let queue = WorkQueue::new();
        let workers = queue.workers().build();
        let dropped = {
            let _in_it = runtime.enter();
            hang(&workers, 1)
        };
        queue.add(0);
        runtime.block_on(until_processing(&queue, 1));
        queue.add_all([0, 5]); // 0 is queued again when it is done, and 5 waits
        let left = workers.drain_timeout(MS);
        assert_eq!((left.processing, left.queued), (vec![0], vec![5]));
        workers.join();
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!((queue.processing_len(), queue.len()), (0, 1), "a key that was added meanwhile is queued again");
    }

    /// `stop` lets handlers return, also while a drain without a deadline waits.
    #[test]
    fn other_calls_abort_nothing() {
        tokio(2).block_on(async {
            let queue = WorkQueue::new();
            let workers = queue.workers().build();
            let (go_on, gate) = tokio::sync::watch::channel(false);
            workers.spawn_tasks(2, move |_| {
                let mut gate = gate.clone();
                Box::pin(async move { gate.wait_for(|open| *open).await.map(drop) })
            });
            queue.add_all([1, 2]);
            until_processing(&queue, 2).await;
            let mut left = workers.stop().processing;
            left.sort_unstable();
            assert_eq!(left, [1, 2]);
            let drain = workers.drain_async();
            go_on.send(true).unwrap();
            assert!(drain.await.is_empty());
            let Tally { succeeded, running, .. } = workers.tally();
            assert_eq!((succeeded, running), (2, 0));
        });
    }

    async fn visit(item: &Item<'_, u32>) -> io::Result<()> {
        tokio::task::yield_now().await;
        if **item == 1 { Err(io::Error::other("disk")) } else { Ok(()) }
    }

    /// Several handlers on one `Workers`, of all forms.
    #[test]
    fn handlers_are_functions_and_closures() {
        tokio(2).block_on(async {
            let queue = no_backoff().build();
            let workers = queue.workers().max_retries(1).build();
            workers.spawn_tasks(2, |item| Box::pin(visit(item)));
            workers.spawn_tasks(1, |item| {
                Box::pin(async move {
                    visit(item).await?;
                    Ok::<(), Outcome>(())
                })
            });
            let shared = Arc::new(AtomicUsize::new(0));
            let own = Arc::clone(&shared);
            workers.spawn_tasks(1, move |item| {
                let own = Arc::clone(&own);
                Box::pin(async move {
                    own.fetch_add(1, Ordering::Relaxed);
                    visit(item).await.map_err(|error| Outcome::Failed(error.into()))
                })
            });
            queue.add_all(0..100);
            queue.wait_idle_async().await;
            assert!(workers.drain_async().await.is_empty());
            let Tally { succeeded, failed, given_up, running, .. } = workers.tally();
            assert_eq!((succeeded, failed, given_up, running), (99, 2, 1, 0));
            assert_eq!(Arc::strong_count(&shared), 1, "the handlers are dropped");
        });
    }

    #[test]
    fn tasks_that_cannot_be_started_panic() {
        let message =
            |panics: &dyn Fn()| *catch_unwind(AssertUnwindSafe(panics)).unwrap_err().downcast::<&str>().unwrap();
        let workers = WorkQueue::<u32>::new().workers().build();
        assert!(message(&|| drop(hang(&workers, 1))).contains("no Tokio runtime"));
        tokio(1).block_on(async { assert!(message(&|| drop(hang(&workers, 0))).contains("tasks is 0")) });
        assert_eq!(workers.tally().running, 0);
    }
}
