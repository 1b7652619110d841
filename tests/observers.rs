//! Observers, reporters, and the metrics that go to the `metrics` facade.
//!
//! Checks: each call reports to the observer exactly what it did, with the durations that a mock clock gives; the observer is
//! never called under a lock, so it may use the queue in every callback (P17); the events add up to [`keyqueue::Stats`], with
//! threads too; an observer that panics loses no wake-up. A reporter reports until it is dropped, and once more then.
//! `MetricsObserver` has client-go's names, one label, and counters that never decrease.

mod support {
    pub(crate) mod tasks;
}

use keyqueue::observe::{Metrics, Observer};
use keyqueue::rate_limiter::{ItemFastSlow, RateLimiter};
use keyqueue::{
    AddOptions, Added, Clock, DelayConflict, DelayedAdd, Driver, Item, MockClock, OnPanic, Outcome, WorkQueue,
    WorkQueueBuilder,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use support::tasks::{Calls, poll};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Added(Added),
    HandedOut(Option<Duration>),
    Done(Option<Duration>),
    GivenUp,
    Panicked,
    Report,
}

/// An observer that is a function.
struct FnObserver<F>(F);

impl<F: Fn(Event) + Send + Sync> Observer for FnObserver<F> {
    fn added(&self, added: Added) {
        self.0(Event::Added(added));
    }

    fn handed_out(&self, waited: Option<Duration>) {
        self.0(Event::HandedOut(waited));
    }

    fn done(&self, worked: Option<Duration>) {
        self.0(Event::Done(worked));
    }

    fn given_up(&self) {
        self.0(Event::GivenUp);
    }

    fn panicked(&self) {
        self.0(Event::Panicked);
    }

    fn report(&self, _: &str, _: &Metrics) {
        self.0(Event::Report);
    }
}

/// Runs `f`, and fails if it has not returned after a minute, as in a deadlock.
fn ends(f: impl FnOnce() + Send + 'static) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        _ = send.send(());
    });
    match receive.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|payload| resume_unwind(payload)),
    }
}

// ---- every call ----

type Queue = WorkQueue<u32>;
type Act = fn(&Queue, &MockClock);

struct Case {
    name: &'static str,
    policy: DelayedAdd,
    on_panic: OnPanic,
    /// Its events are discarded.
    before: Act,
    act: Act,
    reported: &'static [Event],
}

const fn case(name: &'static str, before: Act, act: Act, reported: &'static [Event]) -> Case {
    Case { name, policy: DelayedAdd::Independent, on_panic: OnPanic::Done, before, act, reported }
}

const QUEUED: Event = Event::Added(Added::Queued);
const COALESCED: Event = Event::Added(Added::Coalesced);
const DEFERRED: Event = Event::Added(Added::Deferred);
const DELAYED: Event = Event::Added(Added::Delayed);
const REJECTED: Event = Event::Added(Added::Rejected);
const OUT: Event = Event::HandedOut(Some(Duration::from_millis(3)));
const DONE: Event = Event::Done(Some(Duration::from_millis(5)));

/// One key, queued for 3 ms.
fn one_queued(queue: &Queue, clock: &MockClock) {
    queue.add(1);
    clock.advance(3 * MS);
}

fn nothing(_: &Queue, _: &MockClock) {}

/// Gets a key, holds it for 5 ms, and calls `act`.
fn work(queue: &Queue, clock: &MockClock, act: impl FnOnce(Item<'_, u32>)) {
    let item = queue.try_get().unwrap();
    clock.advance(5 * MS);
    act(item);
}

fn unwind(item: Item<'_, u32>) {
    let unwinds = || -> () {
        let _item = item;
        resume_unwind(Box::new(()))
    };
    _ = catch_unwind(AssertUnwindSafe(unwinds)).unwrap_err();
}

const CASES: &[Case] = &[
    case("add", nothing, |q, _| _ = q.add(1), &[QUEUED]),
    case("add again", one_queued, |q, _| _ = q.add(1), &[COALESCED]),
    case("add, shut down", |q, _| q.shut_down(), |q, _| _ = q.add(1), &[REJECTED]),
    case("add_all", one_queued, |q, _| _ = q.add_all([1, 2, 2, 3]), &[COALESCED, QUEUED, COALESCED, QUEUED]),
    case("add_after", nothing, |q, _| _ = q.add_after(1, MS), &[DELAYED]),
    case("add_after zero", nothing, |q, _| _ = q.add_after(1, Duration::ZERO), &[QUEUED]),
    case("add_with", |q, _| _ = q.add_after(1, MS), |q, _| _ = q.add_after(1, 2 * MS), &[COALESCED]),
    case(
        "add_with replace",
        |q, _| _ = q.add_after(1, MS),
        |q, _| _ = q.add_with(1, AddOptions::new().conflict(DelayConflict::Replace)),
        &[QUEUED],
    ),
    case("add_rate_limited", nothing, |q, _| _ = q.add_rate_limited(1), &[DELAYED]),
    case("add_rate_limited, shut down", |q, _| q.shut_down(), |q, _| _ = q.add_rate_limited(1), &[REJECTED]),
    case(
        "turn",
        |q, clock| {
            q.add(3);
            (1..=4).for_each(|key| _ = q.add_after(key, MS));
            clock.advance(MS);
        },
        |q, _| assert_eq!(q.turn(), 4),
        &[QUEUED, QUEUED, QUEUED, COALESCED],
    ),
    case("turn, nothing due", |q, _| _ = q.add_after(1, MS), |q, _| assert_eq!(q.turn(), 0), &[]),
    case("cancel", |q, _| _ = q.add_after(1, MS), |q, _| assert!(q.cancel(&1)), &[]),
    Case {
        policy: DelayedAdd::Strict,
        ..case(
            "cancel strict",
            |q, _| {
                q.add_after(1, MS);
                q.add(1);
            },
            |q, _| assert!(q.cancel(&1)),
            &[QUEUED],
        )
    },
    Case {
        policy: DelayedAdd::Promote,
        ..case("promote", |q, _| _ = q.add_after(1, MS), |q, _| _ = q.add(1), &[QUEUED])
    },
    case("take_delayed", |q, _| _ = q.add_after(1, MS), |q, _| assert_eq!(q.take_delayed().len(), 1), &[]),
    case("try_get, done", one_queued, |q, clock| work(q, clock, |item| item.done()), &[OUT, DONE]),
    case("try_get, nothing", nothing, |q, _| assert!(q.try_get().is_err()), &[]),
    case("get, drop", one_queued, |q, _| drop(q.get()), &[OUT, Event::Done(Some(Duration::ZERO))]),
    case(
        "get_timeout, into_owned",
        one_queued,
        |q, _| drop(q.get_timeout(MS).unwrap().into_owned()),
        &[OUT, Event::Done(Some(Duration::ZERO))],
    ),
    case(
        "get_async",
        one_queued,
        |q, _| drop(futures_executor::block_on(q.get_async())),
        &[OUT, Event::Done(Some(Duration::ZERO))],
    ),
    case(
        "get_many",
        |q, clock| {
            q.add_all([1, 2]);
            clock.advance(3 * MS);
        },
        |q, _| assert_eq!(q.get_many(9).len(), 2),
        &[OUT, OUT, Event::Done(Some(Duration::ZERO)), Event::Done(Some(Duration::ZERO))],
    ),
    case(
        "done, dirty",
        one_queued,
        |q, clock| {
            work(q, clock, |item| {
                q.add(1);
                item.done();
            });
        },
        &[OUT, DEFERRED, DONE],
    ),
    case("succeed", one_queued, |q, clock| work(q, clock, |item| item.succeed()), &[OUT, DONE]),
    case("give_up", one_queued, |q, clock| work(q, clock, |item| item.give_up()), &[OUT, DONE, Event::GivenUp]),
    case("retry", one_queued, |q, clock| work(q, clock, |item| _ = item.retry()), &[OUT, DONE, DELAYED]),
    case(
        "requeue_after zero",
        one_queued,
        |q, clock| work(q, clock, |item| _ = item.requeue_after(Duration::ZERO)),
        &[OUT, DONE, DEFERRED],
    ),
    case(
        "requeue_with",
        one_queued,
        |q, clock| work(q, clock, |item| _ = item.requeue_with(AddOptions::new().after(MS))),
        &[OUT, DONE, DELAYED],
    ),
    case(
        "retry, shut down",
        |q, clock| {
            one_queued(q, clock);
            q.shut_down();
        },
        |q, clock| work(q, clock, |item| _ = item.retry()),
        &[OUT, DONE, REJECTED],
    ),
    case("unwind", one_queued, |q, clock| work(q, clock, unwind), &[OUT, Event::Panicked, DONE]),
    Case {
        on_panic: OnPanic::Retry,
        ..case("unwind, retry", one_queued, |q, clock| work(q, clock, unwind), &[OUT, Event::Panicked, DONE, DELAYED])
    },
    case("report", one_queued, |q, _| q.inspect().report(), &[Event::Report]),
    case(
        "looking",
        one_queued,
        |q, _| {
            let _seen = (
                q.stats(),
                q.inspect().metrics(),
                q.inspect().processing_keys(),
                q.len(),
                q.delayed_len(),
                q.processing_len(),
            );
            q.forget(&1);
            q.shrink_to_fit();
            assert!(q.wait_idle_timeout(Duration::ZERO).is_err());
            q.shut_down();
        },
        &[],
    ),
    case(
        "workers",
        |q, clock| {
            q.add_all([1, 2, 3, 4]);
            clock.advance(3 * MS);
            q.shut_down();
        },
        |q, clock| {
            q.workers().build().run(|item: &Item<'_, u32>| {
                if **item == 1 {
                    clock.advance(5 * MS);
                }
                match **item {
                    1 => Outcome::Success,
                    2 => Outcome::GiveUp("no use".into()),
                    3 => Outcome::Retry,
                    _ => resume_unwind(Box::new(())),
                }
            });
        },
        &[
            OUT,
            DONE,
            Event::HandedOut(Some(Duration::from_millis(8))),
            Event::Done(Some(Duration::ZERO)),
            Event::GivenUp,
            Event::HandedOut(Some(Duration::from_millis(8))),
            Event::Done(Some(Duration::ZERO)),
            REJECTED,
            Event::HandedOut(Some(Duration::from_millis(8))),
            Event::Panicked,
            Event::Done(Some(Duration::ZERO)),
        ],
    ),
];

/// A limiter that the queue has to call: it cannot count failures instead.
struct CustomLimiter;

impl RateLimiter<u32> for CustomLimiter {
    fn when(&self, _: &u32) -> Duration {
        7 * MS
    }

    fn forget(&self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> usize {
        0
    }
}

fn builder(case: &Case, custom: bool) -> (WorkQueueBuilder<u32>, MockClock) {
    let (clock, mock) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(case.policy);
    let builder = builder.on_panic(case.on_panic);
    (if custom { builder.rate_limiter(CustomLimiter) } else { builder }, mock)
}

#[test]
fn each_call_reports_its_events_to_the_observer() {
    for case in CASES {
        for custom in [false, true] {
            let events = Arc::new(Mutex::new(Vec::new()));
            let (builder, clock) = builder(case, custom);
            let own = Arc::clone(&events);
            let queue = builder.observer(FnObserver(move |event| own.lock().unwrap().push(event))).build();
            (case.before)(&queue, &clock);
            events.lock().unwrap().clear();
            (case.act)(&queue, &clock);
            let mut reported = std::mem::take(&mut *events.lock().unwrap());
            let mut expected = case.reported.to_vec();
            if case.name == "workers" {
                // With this policy the key whose handler panics is done, not retried.
                assert_eq!(case.on_panic, OnPanic::Done);
            }
            if case.name.starts_with("unwind") || case.name == "workers" {
                // The order of the events of one step is not specified.
                reported.sort_by_key(|event| format!("{event:?}"));
                expected.sort_by_key(|event| format!("{event:?}"));
            }
            assert_eq!(reported, expected, "{}, {custom}", case.name);
        }
    }
}

#[test]
fn an_observer_may_use_the_queue_in_every_callback() {
    thread_local! {
        /// Set while the observer calls the queue, which calls the observer again.
        static IN_OBSERVER: Cell<bool> = const { Cell::new(false) };
    }
    ends(|| {
        for case in CASES {
            for custom in [false, true] {
                let (builder, clock) = builder(case, custom);
                let own: Arc<OnceLock<Queue>> = Arc::default();
                let active = Arc::new(AtomicBool::new(false));
                let uses = Arc::new(AtomicUsize::new(0));
                let use_queue = {
                    let (own, active, uses) = (Arc::clone(&own), Arc::clone(&active), Arc::clone(&uses));
                    move |_| {
                        if !active.load(Ordering::SeqCst) || IN_OBSERVER.replace(true) {
                            return;
                        }
                        let queue = own.get().unwrap();
                        uses.fetch_add(1, Ordering::SeqCst);
                        let _seen = (
                            queue.stats(),
                            queue.inspect().metrics(),
                            queue.inspect().processing_keys(),
                            format!("{queue:?}"),
                        );
                        queue.inspect().report();
                        queue.add(99);
                        queue.add_all([98, 99]);
                        queue.add_after(97, MS);
                        queue.add_rate_limited(97);
                        queue.cancel(&97);
                        queue.turn();
                        // A key that it takes from the caller is added again for the caller.
                        for _ in 0..queue.len() {
                            let Ok(item) = queue.try_get() else { break };
                            if *item < 90 {
                                queue.add(*item);
                                break;
                            }
                            item.retry();
                        }
                        queue.forget(&97);
                        assert_eq!(queue.inspect().name(), "");
                        IN_OBSERVER.set(false);
                    }
                };
                let queue = builder.observer(FnObserver(use_queue)).build();
                assert!(own.set(queue.clone()).is_ok());
                (case.before)(&queue, &clock);
                active.store(true, Ordering::SeqCst);
                // The observer's calls may change what these calls find. Then they may panic, but must not hang.
                let done = catch_unwind(AssertUnwindSafe(|| (case.act)(&queue, &clock)));
                active.store(false, Ordering::SeqCst);
                IN_OBSERVER.set(false);
                assert!(done.is_ok() || case.reported.len() > 1, "{}", case.name);
                assert!(uses.load(Ordering::SeqCst) >= case.reported.len().min(1), "{}", case.name);
            }
        }
    });
}

#[test]
fn an_observer_may_use_the_queue_on_the_driver_thread() {
    ends(|| {
        let (clock, mock) = Clock::mock();
        let own: Arc<OnceLock<Queue>> = Arc::default();
        let (send, reported) = mpsc::channel();
        let observer = {
            let own = Arc::clone(&own);
            FnObserver(move |event| {
                let queue = own.get().unwrap();
                if event == QUEUED {
                    queue.add_after(2, MS);
                }
                let name = thread::current().name().unwrap_or_default().to_owned();
                send.send((event, name, queue.stats().expired, queue.inspect().metrics().stats.len)).unwrap();
            })
        };
        let queue = WorkQueue::builder().clock(clock).observer(observer).build();
        assert!(own.set(queue.clone()).is_ok());
        queue.add_after(1, MS);
        mock.advance(MS);
        let events: Vec<_> = reported.iter().take(3).collect();
        let driver = || "keyqueue-delay".to_owned();
        assert_eq!((events[0].0, events[0].2), (DELAYED, 0));
        assert_eq!(events[1..], [(DELAYED, driver(), 1, 1), (QUEUED, driver(), 1, 1)]);
        queue.shut_down();
    });
}

// ---- events add up to the statistics ----

/// Counts events, as `Stats` does.
#[derive(Default)]
struct Counts([AtomicUsize; 10]);

impl Counts {
    fn count(&self, event: Event) {
        let at = match event {
            Event::Added(Added::Queued) => 0,
            Event::Added(Added::Coalesced) => 1,
            Event::Added(Added::Deferred) => 2,
            Event::Added(Added::Rejected) => 3,
            Event::Added(Added::Delayed) => 4,
            Event::HandedOut(_) => 5,
            Event::Done(_) => 6,
            Event::GivenUp => 7,
            Event::Panicked => 8,
            _ => 9,
        };
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> [u64; 9] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed) as u64)
    }
}

/// The same counts, by the statistics of an idle queue.
fn counted(queue: &Queue) -> [u64; 9] {
    let Metrics { stats, work_duration, queue_duration, .. } = queue.inspect().metrics();
    assert_eq!((stats.processing, stats.len), (0, 0), "the queue is idle");
    assert_eq!(queue_duration.count(), stats.handed_out);
    assert_eq!((stats.adds(), stats.depth()), (stats.handed_out, 0));
    [
        stats.pushed,
        stats.coalesced,
        stats.deferred,
        stats.rejected,
        stats.delays,
        stats.handed_out,
        work_duration.count(),
        stats.given_up,
        stats.panics,
    ]
}

#[test]
fn observed_events_add_up_to_the_stats_with_threads() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    for round in 0..12 {
        let policy = [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict][round % 3];
        let counts = Arc::new(Counts::default());
        let own = Arc::clone(&counts);
        let limiter = ItemFastSlow::new(50_000 * Duration::from_nanos(1), MS / 5, 2);
        let builder = WorkQueue::builder().rate_limiter(limiter).delayed_add(policy);
        let queue: Queue = builder.observer(FnObserver(move |event| own.count(event))).build();
        // Counted by the producers.
        let [accepted, refused] = [(); 2].map(|()| AtomicUsize::new(0));
        let builder = queue.workers().max_retries(1);
        let workers = builder
            .spawn(2, |item: &Item<'_, u32>| match **item % 7 {
                0 => Outcome::Retry,
                1 => resume_unwind(Box::new(())),
                2 => Outcome::GiveUp("no use".into()),
                3 => Outcome::RequeueAfter(MS / 10),
                _ => Outcome::Success,
            })
            .unwrap();
        thread::scope(|scope| {
            for n in 0..2 {
                let (queue, accepted, refused) = (&queue, &accepted, &refused);
                let mut random = seed.wrapping_add(round as u64 * 2 + n) | 1;
                scope.spawn(move || {
                    for _ in 0..1_500 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let key = (random >> 20) as u32 % 24;
                        let added = match random % 16 {
                            0 => queue.add_after(key, MS / 4),
                            1 => queue.add_rate_limited(key),
                            2 => {
                                queue.cancel(&key);
                                continue;
                            }
                            3 => queue.add_with(key, AddOptions::new().after(MS / 8).conflict(DelayConflict::Replace)),
                            4 if random % 512 == 4 => {
                                queue.shut_down();
                                continue;
                            }
                            _ => queue.add(key),
                        };
                        let which = if added.is_accepted() { accepted } else { refused };
                        which.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        _ = workers.drain();
        let (reported, stats, tally) = (counts.all(), queue.stats(), workers.tally());
        assert_eq!(reported, counted(&queue), "{policy:?}");
        assert_eq!(tally.panicked, stats.panics);
        // Every add is counted once: by producers, by workers, by delays that expire, and by cancels that release an add.
        let of_workers = tally.requeued + tally.retried + tally.refused;
        let calls = accepted.into_inner() as u64 + refused.into_inner() as u64 + of_workers;
        let all = stats.pushed + stats.coalesced + stats.deferred + stats.rejected + stats.delays - stats.expired;
        if policy == DelayedAdd::Strict {
            assert!(all >= calls, "{all} of {calls}");
        } else {
            assert_eq!(all, calls);
        }
    }
}

// ---- observers that panic ----

/// Panics once, at the `nth` event (from 0) that `at` selects.
fn fragile(at: fn(Event) -> bool, nth: usize) -> impl Observer + 'static {
    let seen = AtomicUsize::new(0);
    FnObserver(move |event| {
        if at(event) && seen.fetch_add(1, Ordering::SeqCst) == nth {
            resume_unwind(Box::new("an observer"));
        }
    })
}

#[test]
fn an_observer_that_panics_loses_no_wake_up() {
    let calls: [(&str, Act); 6] = [
        ("add", |q, _| _ = q.add(1)),
        ("add_with", |q, _| _ = q.add_after(1, Duration::ZERO)),
        ("turn", |q, clock| {
            q.take_delayed().into_iter().for_each(|taken| _ = q.add_after(taken.key, MS));
            clock.advance(MS);
            q.turn();
        }),
        ("cancel", |q, _| _ = q.cancel(&7)),
        ("done", |q, _| _ = q.add(1)),
        ("promoted", |q, _| _ = q.add(7)),
    ];
    for (name, call) in calls {
        let (clock, mock) = Clock::mock();
        let policy = if name == "cancel" { DelayedAdd::Strict } else { DelayedAdd::Promote };
        let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(policy);
        let queue = builder.observer(fragile(|event| event == QUEUED, 0)).build();
        queue.add_after(7, MS);
        if name == "cancel" {
            queue.add(7);
        }
        let woken = Arc::new(Calls::default());
        let mut get = pin!(queue.get_async());
        assert!(poll(get.as_mut(), &woken).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| call(&queue, &mock))).is_err(), "{name}");
        assert_eq!((queue.len(), woken.count()), (1, 1), "{name}");
        assert!(poll(get, &woken).is_ready(), "{name}");
    }
}

#[test]
fn a_key_is_done_even_if_the_observer_panics_at_its_done() {
    type End = fn(Item<'_, u32>);
    let ends: [End; 5] = [
        |item| item.done(),
        |item| item.succeed(),
        |item| item.give_up(),
        |item| _ = item.retry(),
        |item| _ = item.requeue_after(Duration::ZERO),
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let (clock, _) = Clock::mock();
        let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
        let queue = builder.observer(fragile(|event| matches!(event, Event::Done(_)), 0)).build();
        queue.add(1);
        let item = queue.get().unwrap();
        let (woken, idle) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
        let (mut get, mut quiet) = (pin!(queue.get_async()), pin!(queue.wait_idle_async()));
        assert!(poll(get.as_mut(), &woken).is_pending() && poll(quiet.as_mut(), &idle).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| end(item))).is_err());
        let stats = queue.stats();
        assert_eq!((stats.processing, woken.count()), (0, stats.len), "way {n}");
        assert_eq!(stats.panics, 0, "the key was done before the panic");
        assert_eq!(idle.count(), usize::from(stats.len == 0), "way {n}");
    }
}

/// The key reaches its holder, and the panic is counted.
#[test]
fn an_observer_that_panics_at_a_hand_out_loses_no_key() {
    type Get = fn(&Queue) -> Option<u32>;
    let gets: [Get; 4] = [
        |queue| queue.get().map(|item| *item),
        |queue| queue.try_get().ok().map(|item| *item),
        |queue| queue.get_timeout(MS).ok().map(|item| *item),
        |queue| futures_executor::block_on(queue.get_async()).map(|item| *item),
    ];
    for get in gets {
        let builder = WorkQueue::builder().on_panic(OnPanic::Retry);
        let queue = builder.observer(fragile(|event| matches!(event, Event::HandedOut(_)), 0)).build();
        queue.add_all([1, 2]);
        assert_eq!(get(&queue), Some(1));
        let stats = queue.stats();
        assert_eq!((stats.len, stats.delayed, stats.panics, stats.caught_panics), (1, 0, 0, 1));
        assert_eq!(get(&queue), Some(2));
    }
}

#[test]
fn the_driver_thread_survives_an_observer_that_panics() {
    let (clock, mock) = Clock::mock();
    let queue: Queue = WorkQueue::builder().clock(clock).observer(fragile(|event| event == QUEUED, 0)).build();
    for key in 0..3 {
        queue.add_after(key, MS);
        mock.advance(MS);
        assert_eq!(*queue.get().unwrap(), key, "the driver thread goes on after the panic");
    }
}

#[test]
fn an_observer_that_panics_in_add_all_loses_no_wake_up() {
    for nth in 0..2 {
        let queue = WorkQueue::builder().observer(fragile(|event| event == QUEUED, nth)).build();
        let woken: [Arc<Calls>; 2] = Default::default();
        let mut gets = [Box::pin(queue.get_async()), Box::pin(queue.get_async())];
        for (get, woken) in gets.iter_mut().zip(&woken) {
            assert!(poll(get.as_mut(), woken).is_pending());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_all([1, 2, 3]))).is_err());
        assert_eq!(queue.len(), nth + 1, "the keys that were yielded are queued");
        assert_eq!(woken.iter().map(|woken| woken.count()).sum::<usize>(), nth + 1);
    }
}

#[test]
fn an_observer_that_panics_in_get_many_loses_no_key() {
    for nth in 0..3 {
        let builder = WorkQueue::builder().on_panic(OnPanic::Retry);
        let queue = builder.observer(fragile(|event| matches!(event, Event::HandedOut(_)), nth)).build();
        queue.add_all(0..3);
        assert!(queue.get_many(3).iter().map(|item| **item).eq(0..3), "{nth}");
        assert_eq!((queue.stats().panics, queue.stats().caught_panics), (0, 1), "{nth}");
    }
}

// ---- reports ----

/// A queue, and what it reports: its name, and the number of keys that were queued.
fn reported(queue: WorkQueueBuilder<u32>) -> (Queue, mpsc::Receiver<(String, u64)>) {
    struct Reports(mpsc::Sender<(String, u64)>);
    impl Observer for Reports {
        fn report(&self, queue: &str, metrics: &Metrics) {
            assert_eq!(metrics.stats.pushed, metrics.queue_duration.count() + metrics.stats.len as u64);
            _ = self.0.send((queue.to_owned(), metrics.stats.pushed));
        }
    }
    let (send, receive) = mpsc::channel();
    (queue.observer(Reports(send)).build(), receive)
}

#[test]
fn a_report_has_the_current_numbers() {
    let (queue, reports) = reported(WorkQueue::builder().name("pods"));
    queue.inspect().report();
    queue.add(1);
    queue.inspect().report();
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), [("pods".to_owned(), 0), ("pods".to_owned(), 1)]);
    // Without an observer nothing happens.
    WorkQueue::<u32>::new().inspect().report();
    drop(WorkQueue::<u32>::new().inspect().report_every(Duration::ZERO).unwrap());
}

#[test]
fn a_reporter_reports_until_it_is_dropped_and_once_more() {
    let (queue, reports) = reported(WorkQueue::builder().name("pods"));
    let reporter = queue.inspect().report_every(MS).unwrap();
    assert!(format!("{reporter:?}").starts_with("Reporter"));
    for _ in 0..5 {
        assert_eq!(reports.recv().unwrap(), ("pods".to_owned(), 0));
    }
    queue.add(1);
    drop(reporter);
    let last = reports.try_iter().last();
    assert_eq!(last, Some(("pods".to_owned(), 1)), "the last report has the latest add");
    thread::sleep(5 * MS);
    assert_eq!(reports.try_iter().count(), 0);
    assert!(!queue.shutting_down());
}

#[test]
fn a_reporter_with_a_huge_interval_reports_at_its_start_and_its_end() {
    for interval in [Duration::MAX, Duration::from_secs(3_600)] {
        let (queue, reports) = reported(WorkQueue::builder());
        let reporter = queue.inspect().report_every(interval).unwrap();
        assert_eq!(reports.recv().unwrap().1, 0);
        queue.add(1);
        // The reporter has its own handle.
        drop(queue);
        drop(reporter);
        assert_eq!(reports.iter().collect::<Vec<_>>(), [(String::new(), 1)]);
    }
}

#[test]
fn a_reporter_survives_an_observer_that_panics() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            resume_unwind(Box::new("a payload"));
        }
    }
    let (send, reports) = mpsc::channel();
    let queue: Queue = WorkQueue::builder()
        .observer(FnObserver(move |event| {
            assert_eq!(event, Event::Report);
            send.send(()).unwrap();
            resume_unwind(Box::new(PanicsOnDrop));
        }))
        .build();
    let reporter = queue.inspect().report_every(Duration::ZERO).unwrap();
    (0..5).for_each(|_| reports.recv().unwrap());
    drop(reporter);
    assert!(reports.try_iter().count() > 0);
}

#[test]
fn an_observer_may_drop_its_reporter() {
    ends(|| {
        let reporter: Arc<Mutex<Option<keyqueue::observe::Reporter>>> = Arc::default();
        let (send, reports) = mpsc::channel();
        let own = Arc::clone(&reporter);
        let queue: Queue = WorkQueue::builder()
            .observer(FnObserver(move |_| {
                send.send(own.lock().unwrap().take().is_some()).unwrap();
            }))
            .build();
        let mut guard = reporter.lock().unwrap();
        *guard = Some(queue.inspect().report_every(Duration::ZERO).unwrap());
        drop(guard);
        while !reports.recv().unwrap() {}
        // The last report. After it the reporter's thread ends and drops its handle of the queue.
        assert!(!reports.recv().unwrap());
        drop(queue);
        assert!(reports.recv().is_err());
    });
}

// ---- the `metrics` facade ----

#[cfg(feature = "metrics")]
mod facade {
    use super::*;
    use keyqueue::observe::MetricsObserver;
    use keyqueue::{Priority, Stats, Workers};
    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
        with_local_recorder,
    };
    use std::collections::BTreeMap;

    /// A recorder that keeps each series by name and labels.
    #[derive(Default, Clone)]
    struct Exporter(Arc<Mutex<Exported>>);

    #[derive(Default)]
    struct Exported {
        counters: BTreeMap<String, u64>,
        gauges: BTreeMap<String, f64>,
        histograms: BTreeMap<String, Vec<(f64, usize)>>,
        described: BTreeMap<String, (&'static str, Option<Unit>)>,
        helps: BTreeMap<String, String>,
    }

    /// One series.
    struct One(Exporter, String);

    fn name(key: &Key) -> String {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        format!("{}{{{}}}", key.name(), labels.join(","))
    }

    impl CounterFn for One {
        fn increment(&self, value: u64) {
            *self.0.0.lock().unwrap().counters.entry(self.1.clone()).or_default() += value;
        }

        fn absolute(&self, _: u64) {
            panic!("two queues of one name would overwrite each other");
        }
    }

    impl GaugeFn for One {
        fn increment(&self, _: f64) {
            unreachable!()
        }

        fn decrement(&self, _: f64) {
            unreachable!()
        }

        fn set(&self, value: f64) {
            self.0.0.lock().unwrap().gauges.insert(self.1.clone(), value);
        }
    }

    impl HistogramFn for One {
        fn record(&self, value: f64) {
            self.record_many(value, 1);
        }

        fn record_many(&self, value: f64, count: usize) {
            self.0.0.lock().unwrap().histograms.entry(self.1.clone()).or_default().push((value, count));
        }
    }

    impl Exporter {
        fn one(&self, key: &Key) -> Arc<One> {
            Arc::new(One(self.clone(), name(key)))
        }

        fn describe(&self, kind: &'static str, name: KeyName, unit: Option<Unit>, help: SharedString) {
            assert!(!help.is_empty());
            let exported = &mut *self.0.lock().unwrap();
            exported.described.insert(name.as_str().to_owned(), (kind, unit));
            exported.helps.insert(name.as_str().to_owned(), help.to_string());
        }

        fn counter(&self, name: &str) -> u64 {
            self.0.lock().unwrap().counters[name]
        }

        fn gauge(&self, name: &str) -> f64 {
            self.0.lock().unwrap().gauges[name]
        }

        /// The number of values, and their sum.
        fn histogram(&self, name: &str) -> (usize, f64) {
            let exported = self.0.lock().unwrap();
            let all = exported.histograms.get(name).map_or(&[][..], Vec::as_slice);
            all.iter().fold((0, 0.0), |(n, sum), &(value, count)| (n + count, sum + value * count as f64))
        }
    }

    impl Recorder for Exporter {
        fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe("counter", key, unit, help);
        }

        fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe("gauge", key, unit, help);
        }

        fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe("histogram", key, unit, help);
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.one(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.one(key))
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
            metrics::Histogram::from_arc(self.one(key))
        }
    }

    fn observed(name: &str) -> (Queue, MockClock) {
        let (clock, mock) = Clock::mock();
        let builder = WorkQueue::builder().name(name).clock(clock).driver(Driver::Manual);
        (builder.observer(MetricsObserver::new()).build(), mock)
    }

    const GAUGES: [&str; 8] = [
        "workqueue_delayed",
        "workqueue_depth",
        "workqueue_failing",
        "workqueue_longest_running_processor_seconds",
        "workqueue_next_deadline_seconds",
        "workqueue_oldest_queued_seconds",
        "workqueue_processing",
        "workqueue_unfinished_work_seconds",
    ];
    /// Those without the label `result`.
    const COUNTERS: [&str; 7] = [
        "workqueue_adds_total",
        "workqueue_coalesced_total",
        "workqueue_failures_total",
        "workqueue_given_up_total",
        "workqueue_panics_total",
        "workqueue_rejected_total",
        "workqueue_retries_total",
    ];
    const RUNS: &str = "workqueue_runs_total";
    const RESULTS: [&str; 5] = ["error", "give_up", "panic", "requeue", "success"];
    const HISTOGRAMS: [&str; 2] = ["workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"];

    /// Changes every series of the queue.
    fn change_every_series(queue: &Queue, clock: &MockClock) {
        queue.add_all([1, 1, 2, 3, 4, 5, 6]); // one coalesced
        clock.advance(2_000 * MS);
        let _first = queue.get().unwrap().into_owned();
        queue.get().unwrap().retry(); // 2
        unwind(queue.get().unwrap()); // 3
        queue.get().unwrap().give_up(); // 4
        queue.add(1); // deferred
        queue.add_after(2, 90_000 * MS); // a retry that changes nothing
        clock.advance(1_000 * MS);
        queue.inspect().report();
        queue.shut_down();
        queue.add(9); // rejected
        queue.inspect().report();
    }

    #[test]
    fn the_series_have_client_gos_names_one_label_and_the_right_values() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        with_local_recorder(&exporter, || {
            queue.inspect().report();
            assert_eq!(exporter.gauge("workqueue_next_deadline_seconds{name=pods}"), f64::INFINITY, "no delay");
            change_every_series(&queue, &clock);
        });
        let series = |names: &[&str]| names.iter().map(|name| format!("{name}{{name=pods}}")).collect::<Vec<_>>();
        {
            let exported = exporter.0.lock().unwrap();
            assert_eq!(exported.gauges.keys().cloned().collect::<Vec<_>>(), series(&GAUGES));
            let runs = RESULTS.map(|result| format!("{RUNS}{{name=pods,result={result}}}"));
            assert_eq!(
                exported.counters.keys().cloned().collect::<Vec<_>>(),
                [series(&COUNTERS), runs.to_vec()].concat()
            );
            assert_eq!(exported.histograms.keys().cloned().collect::<Vec<_>>(), series(&HISTOGRAMS));
            let described = |kind| {
                let all = exported.described.iter().filter(move |(_, (is, _))| *is == kind);
                all.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
            };
            assert_eq!(
                (described("gauge"), described("counter")),
                (GAUGES.to_vec(), [&COUNTERS[..], &[RUNS]].concat())
            );
            assert_eq!(described("histogram"), HISTOGRAMS);
            for (name, (_, unit)) in &exported.described {
                let expected = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
                assert_eq!(*unit, Some(expected), "{name}");
            }
        }
        // Each of the two says what it counts, as the name of the first is misleading.
        let help = |name: &str| exporter.0.lock().unwrap().helps[name].clone();
        assert!(help("workqueue_retries_total").contains("failures or not: see workqueue_failures_total"));
        assert!(help("workqueue_failures_total").contains("failures"));
        // The item is dropped after the last report, so the last gauges still count it.
        let stats = queue.stats();
        let value = |name: &str| exporter.counter(&format!("workqueue_{name}_total{{name=pods}}"));
        let counters = ["adds", "coalesced", "failures", "given_up", "panics", "rejected", "retries"].map(value);
        assert_eq!(counters, [7, 2, 1, 1, 1, 1, 2]);
        let Stats { coalesced, failures, given_up, panics, rejected, retries, .. } = stats;
        assert_eq!(counters, [stats.adds(), coalesced, failures, given_up, panics, rejected, retries]);
        let value = |name: &str| exporter.gauge(&format!("workqueue_{name}{{name=pods}}"));
        assert_eq!(["delayed", "depth", "failing", "processing"].map(value), [1.0, 3.0, 1.0, 1.0]);
        let ages = ["longest_running_processor_seconds", "oldest_queued_seconds", "unfinished_work_seconds"];
        assert_eq!(ages.map(value), [1.0, 3.0, 1.0]);
        assert_eq!(value("next_deadline_seconds"), 0.0, "the delay of 5 ms has expired");
        let (count, sum) = exporter.histogram("workqueue_queue_duration_seconds{name=pods}");
        assert!(count == 4 && (sum / 8.0 - 1.0).abs() < 0.0625, "{sum}");
        assert_eq!(exporter.histogram("workqueue_work_duration_seconds{name=pods}"), (3, 0.0));
    }

    /// One loop handles all queued keys. Key `n` has the outcome `n` in each run.
    fn handle_all(workers: &Workers<u32>) {
        let work = workers.run_async(async |item: &Item<'_, u32>| match **item {
            0 => Outcome::Success,
            1 => Outcome::RequeueAfter(MS),
            2 => Outcome::RequeueWith(AddOptions::new().after(MS)),
            3 => Outcome::Retry,
            4 => Outcome::Failed("no luck".into()),
            5 => Outcome::RetryAfter { delay: MS, error: "no luck".into() },
            6 => Outcome::GiveUp("gone".into()),
            _ => resume_unwind(Box::new("a handler")),
        });
        _ = poll(pin!(work), &Arc::new(Calls::default()));
    }

    #[test]
    fn each_run_of_workers_is_exported_in_one_result() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        let runs_are = |error: u64, give_up: u64, panic: u64, requeue: u64, success: u64| {
            with_local_recorder(&exporter, || queue.inspect().report());
            let runs = [error, give_up, panic, requeue, success];
            let exported = RESULTS.map(|result| exporter.counter(&format!("{RUNS}{{name=pods,result={result}}}")));
            assert_eq!(exported, runs);
            assert_eq!(queue.stats().handed_out, runs.iter().sum::<u64>(), "each run has one result");
        };
        runs_are(0, 0, 0, 0, 0);
        // A hook that panics after a run does not count as a run.
        let first = queue.workers().max_retries(1).on_error(|_, _| resume_unwind(Box::new("a hook"))).build();
        queue.add_all(0..8);
        handle_all(&first);
        runs_are(3, 1, 1, 2, 1);
        // All but the keys 0 and 6 come back, and none is retried again. The panic is a panic, though its key is given up.
        clock.advance(1000 * MS);
        assert_eq!(queue.turn(), 6);
        handle_all(&first);
        runs_are(3, 4, 2, 4, 1);
        let tally = first.tally();
        assert_eq!((tally.succeeded, tally.requeued, tally.failed, tally.given_up), (5, 4, 9, 5));

        // Several workers of one queue add up, and those that are dropped count on.
        let second = queue.workers().build();
        queue.add_all(0..8);
        handle_all(&second);
        runs_are(6, 5, 3, 6, 2);
        drop(first);
        runs_are(6, 5, 3, 6, 2);
        // A retry that is refused is an error.
        queue.add_all(0..8);
        queue.shut_down();
        handle_all(&second);
        runs_are(9, 6, 4, 8, 3);
        drop(second);
        runs_are(9, 6, 4, 8, 3);
        drop(queue.workers().build());
        runs_are(9, 6, 4, 8, 3);
    }

    #[test]
    fn each_duration_is_exported_once() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        with_local_recorder(&exporter, || {
            let mut expected = 0.0;
            for n in 1..200_u32 {
                queue.add(n);
                clock.advance(n * MS);
                expected += f64::from(n) / 1e3;
                queue.get().unwrap().done();
                if n % 7 == 0 {
                    queue.inspect().report();
                    queue.inspect().report(); // nothing new
                }
            }
            queue.inspect().report();
            let (count, sum) = exporter.histogram("workqueue_queue_duration_seconds{name=pods}");
            assert!(count == 199 && (sum / expected - 1.0).abs() < 0.0625, "{count}: {sum}, not {expected}");
            assert_eq!(exporter.histogram("workqueue_work_duration_seconds{name=pods}").0, 199);
        });
    }

    #[test]
    fn priorities_have_series_of_their_own_and_sums_are_right() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        let add = |key, priority| queue.add_with(key, AddOptions::new().priority(Priority(priority)));
        let depth = |labels: &str| exporter.gauge(&format!("workqueue_depth{{name=pods{labels}}}"));
        let waits =
            |labels: &str| exporter.histogram(&format!("workqueue_queue_duration_seconds{{name=pods{labels}}}"));
        let is_about = |(count, sum): (usize, f64), expected: (usize, f64)| {
            assert!(count == expected.0 && (sum / expected.1 - 1.0).abs() < 0.0625, "{count}, {sum}: not {expected:?}");
        };
        with_local_recorder(&exporter, || {
            // Without priorities there is one series.
            queue.add(1);
            clock.advance(1000 * MS);
            queue.get().unwrap().done();
            queue.inspect().report();
            is_about(waits(""), (1, 1.0));
            // Keys of three levels, and one that is added again by its holder.
            queue.add_all([1, 2]);
            add(3, 100);
            add(4, -100);
            clock.advance(2000 * MS);
            let first = queue.get().unwrap();
            assert_eq!((*first, queue.add(3)), (3, Added::Deferred));
            queue.inspect().report();
            assert_eq!([depth(""), depth(",priority=100"), depth(",priority=-100")], [3.0, 0.0, 1.0]);
            assert_eq!(queue.stats().depth(), 4);
            is_about(waits(",priority=100"), (1, 2.0));
            is_about(waits(""), (1, 1.0));
            first.done();
            while let Ok(item) = queue.try_get() {
                item.done();
            }
            queue.inspect().report();
            queue.inspect().report(); // nothing new
            assert_eq!([depth(""), depth(",priority=100"), depth(",priority=-100")], [0.0; 3]);
            is_about(waits(",priority=100"), (1, 2.0));
            is_about(waits(",priority=-100"), (1, 2.0));
            is_about(waits(""), (4, 5.0)); // 1, 1 and 2, and 3 once more, which has not waited
            // Of many levels, 25 have their own series.
            (1..=40).for_each(|level: i8| _ = add(1000 + u32::from(level as u8), level));
            queue.inspect().report();
            let has = |level: i8| {
                exporter
                    .0
                    .lock()
                    .unwrap()
                    .gauges
                    .contains_key(&format!("workqueue_depth{{name=pods,priority={level}}}"))
            };
            // The first two are 100 and -100; the others are visited highest first.
            assert_eq!((1..=40).filter(|&level| has(level)).collect::<Vec<_>>(), (18..=40).collect::<Vec<_>>());
            assert_eq!((depth(",priority=other"), depth(",priority=18"), depth("")), (17.0, 1.0, 0.0));
            clock.advance(1000 * MS);
            while let Ok(item) = queue.try_get() {
                item.done();
            }
            queue.inspect().report();
            is_about(waits(",priority=other"), (17, 17.0));
            assert_eq!((depth(",priority=other"), depth(",priority=18")), (0.0, 0.0));
        });
    }

    #[test]
    fn reports_out_of_order_decrease_no_counter() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        let observer = MetricsObserver::new();
        with_local_recorder(&exporter, || {
            let mut reports = vec![queue.inspect().metrics()];
            for n in 0..5 {
                queue.add_all([n, n]);
                clock.advance(MS);
                drop(queue.get());
                reports.push(queue.inspect().metrics());
            }
            let mut last = 0;
            for at in [1, 0, 3, 2, 1, 3, 5, 4, 0, 5] {
                observer.report("pods", &reports[at]);
                let adds = exporter.counter("workqueue_adds_total{name=pods}");
                assert!(adds >= last, "a reader takes a counter that decreases for a restart");
                last = adds;
                assert_eq!(exporter.histogram("workqueue_queue_duration_seconds{name=pods}").0 as u64, adds);
                assert_eq!(exporter.counter("workqueue_coalesced_total{name=pods}"), adds);
            }
            assert_eq!(last, 5);
        });
    }

    #[test]
    fn queues_of_one_name_are_counted_together() {
        let exporter = Exporter::default();
        let [(one, _), (two, _), (other, _)] = ["pods", "pods", "nodes"].map(observed);
        with_local_recorder(&exporter, || {
            for n in 0..3 {
                one.add(n);
                two.add_all([n, n + 100]);
                other.add(n);
                [&one, &two, &other].into_iter().for_each(|queue| queue.inspect().report());
            }
        });
        assert_eq!(exporter.counter("workqueue_adds_total{name=pods}"), 9);
        assert_eq!(exporter.counter("workqueue_adds_total{name=nodes}"), 3);
    }

    #[test]
    fn a_report_without_an_exporter_does_nothing_and_an_exporter_that_panics_is_called_again() {
        let (queue, _) = observed("pods");
        queue.add(1);
        queue.inspect().report();

        struct Broken(Exporter, AtomicBool);
        impl Recorder for Broken {
            fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
                self.0.register_counter(key, metadata)
            }
            fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
                if !self.1.swap(true, Ordering::SeqCst) {
                    resume_unwind(Box::new("an exporter"));
                }
                self.0.register_gauge(key, metadata)
            }
            fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> metrics::Histogram {
                self.0.register_histogram(key, metadata)
            }
        }
        let (queue, _) = observed("pods");
        let broken = Broken(Exporter::default(), AtomicBool::new(false));
        with_local_recorder(&broken, || {
            queue.add(1);
            assert!(catch_unwind(AssertUnwindSafe(|| queue.inspect().report())).is_err());
            queue.inspect().report();
            assert_eq!(broken.0.counter("workqueue_adds_total{name=pods}"), 1);
        });
    }
}

/// The retry sets the queue's first delay, and the observer panics before the call has started the driver thread.
#[test]
fn an_observer_that_panics_in_done_loses_no_retry() {
    struct Panics(AtomicBool);
    impl Observer for Panics {
        fn done(&self, _: Option<Duration>) {
            assert!(self.0.swap(true, Ordering::SeqCst), "the first call panics");
        }
    }
    for on_panic in [false, true] {
        let queue = WorkQueue::builder().observer(Panics(AtomicBool::new(false))).on_panic(OnPanic::Retry).build();
        queue.add(1);
        let item = queue.get().unwrap().into_owned();
        let getter = {
            let queue = queue.clone();
            std::thread::spawn(move || queue.get_timeout(Duration::from_secs(30)).is_ok())
        };
        while queue.stats().waiters == 0 {
            std::thread::yield_now();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if on_panic {
                let _item = item;
                panic!("a handler that panics");
            }
            item.retry();
        }));
        assert!(outcome.is_err());
        assert!(getter.join().unwrap(), "the parked getter gets the key; on_panic {on_panic}");
    }
}
