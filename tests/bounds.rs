//! The bound on the number of keys: which adds it refuses, which keys count, and the adds that wait for room. The random lives of
//! `reference/` have it, too, and count the keys. Here is what takes threads or a driver thread, and each kind of queue.

#[path = "support/kinds.rs"]
mod kinds;
#[path = "support/tasks.rs"]
mod tasks;
#[path = "support/until.rs"]
mod until;

use keyqueue::observe::Observer;
use keyqueue::values::{Refused, ValueQueue};
use keyqueue::{
    AddOptions, AddWait, Added, Clock, DelayConflict, Driver, Item, MockClock, Priority, WorkQueue, WorkQueueBuilder,
};
use kinds::kinds;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tasks::{Calls, poll, waker_that_panics_when_dropped};

const HOUR: Duration = Duration::from_secs(3600);

/// The kinds of queues with a clock and a driver that the test moves.
fn manual_kinds(most: usize) -> Vec<(&'static str, WorkQueue<u32>, MockClock)> {
    let manual = |(kind, builder): (_, WorkQueueBuilder<u32>)| {
        let (clock, time) = Clock::mock();
        (kind, builder.max_keys(most).clock(clock).driver(Driver::Manual).build(), time)
    };
    kinds().into_iter().map(manual).collect()
}

/// A task that waits for room.
struct Task<'q> {
    add: Pin<Box<AddWait<'q, u32>>>,
    calls: Arc<Calls>,
}

impl<'q> Task<'q> {
    #[track_caller]
    fn waits(queue: &'q WorkQueue<u32>, key: u32) -> Self {
        let mut task = Self { add: Box::pin(queue.add_wait_async(key)), calls: Arc::default() };
        assert!(task.poll().is_pending(), "there is room for key {key}");
        task
    }

    fn poll(&mut self) -> Poll<Added> {
        poll(self.add.as_mut(), &self.calls)
    }

    fn is_woken(&self) -> bool {
        self.calls.count() > 0
    }
}

#[test]
fn a_new_key_beyond_the_bound_is_refused() {
    for (kind, queue, _) in manual_kinds(3) {
        assert_eq!(queue.add_all([1, 2, 1]), 2, "{kind}");
        assert_eq!(queue.add_after(3, HOUR), Added::Delayed, "{kind}");
        let calls = [
            queue.add(4),
            queue.add_after(4, HOUR),
            queue.add_after(4, Duration::ZERO),
            queue.add_with(4, AddOptions::new()),
            queue.add_with(4, AddOptions::new().conflict(DelayConflict::Replace)),
            queue.add_with(4, AddOptions::new().after(HOUR).conflict(DelayConflict::Replace)),
            queue.add_with(4, AddOptions::new().after(HOUR).conflict(DelayConflict::KeepExisting)),
        ];
        assert!(calls.iter().all(|added| *added == Added::Full && !added.is_accepted()), "{kind}: {calls:?}");
        assert_eq!((queue.add_all([4, 5, 1]), queue.stats().full, queue.stats().rejected), (0, 9, 0), "{kind}");
        assert_eq!((queue.len(), queue.delayed_len()), (2, 1), "{kind}");
        queue.shut_down();
        assert_eq!((queue.add(4), queue.add(1)), (Added::Rejected, Added::Rejected), "{kind}");
    }
}

#[test]
fn a_key_that_is_known_is_not_refused() {
    for (kind, queue, _) in manual_kinds(3) {
        queue.add_all([1, 2]);
        queue.add_after(3, HOUR);
        assert_eq!(queue.add(1), Added::Coalesced, "{kind}");
        assert_eq!(queue.add_after(2, HOUR), Added::Delayed, "{kind}: a queued key");
        assert_eq!(queue.add_with(3, AddOptions::new().after(HOUR / 2)), Added::Delayed, "{kind}");
        assert_eq!(queue.add(3), Added::Queued, "{kind}: a delayed key");
        assert_eq!(queue.add_with(3, AddOptions::new().conflict(DelayConflict::Replace)), Added::Coalesced, "{kind}");
        let held = queue.get().unwrap();
        assert_eq!(queue.add(*held), Added::Deferred, "{kind}");
        assert_eq!(queue.add_all([1, 2, 3]), 0, "{kind}");
        assert_eq!(queue.add(4), Added::Full, "{kind}");
        held.done(); // it is dirty, so it stays
        assert_eq!((queue.add(4), queue.stats().full), (Added::Full, 2), "{kind}");
    }
}

/// What stands for a retry comes beyond the bound, and then there is no room until there are fewer keys than the bound.
#[test]
fn a_retry_is_not_refused() {
    for (kind, queue, time) in manual_kinds(1) {
        assert_eq!(queue.add_rate_limited(1), Added::Delayed, "{kind}");
        assert_eq!(queue.add_rate_limited(2), Added::Delayed, "{kind}: a new key");
        assert_eq!(queue.add_with(3, AddOptions::new().rate_limited().after(HOUR)), Added::Delayed, "{kind}");
        assert_eq!((queue.add(4), queue.delayed_len()), (Added::Full, 3), "{kind}");
        time.advance(HOUR);
        assert_eq!((queue.turn(), queue.add(4)), (3, Added::Full), "{kind}: they expire");
        let mut items = queue.get_many(3);
        assert_eq!(items.pop().unwrap().retry(), Added::Delayed, "{kind}");
        assert_eq!(items.pop().unwrap().requeue_after(HOUR), Added::Delayed, "{kind}");
        assert_eq!(items.pop().unwrap().requeue_with(AddOptions::new()), Added::Deferred, "{kind}");
        assert_eq!((queue.add(4), queue.len(), queue.delayed_len()), (Added::Full, 1, 2), "{kind}");
        let mut task = Task::waits(&queue, 4);
        queue.get().unwrap().done();
        assert_eq!(queue.take_delayed().len(), 2, "{kind}");
        assert!(task.is_woken(), "{kind}");
        assert_eq!(task.poll(), Poll::Ready(Added::Queued), "{kind}");
        assert_eq!(queue.add(5), Added::Full, "{kind}");
    }
}

/// A key that has only failed, or that only cools down, does not count, until it is added.
#[test]
fn a_key_that_is_not_to_be_run_does_not_count() {
    for (kind, queue, time) in manual_kinds(1) {
        queue.add(1);
        queue.get().unwrap().retry();
        assert_eq!(queue.add(2), Added::Full, "{kind}: it is delayed");
        assert!(queue.cancel(&1));
        assert_eq!(queue.num_requeues(&1), 1);
        assert_eq!(queue.add(2), Added::Queued, "{kind}: it has failed");
        assert_eq!(queue.add(1), Added::Full, "{kind}: a new key, though it has failed");
        queue.get().unwrap().cool_down(HOUR);
        assert_eq!(queue.add(1), Added::Queued, "{kind}: key 2 cools down");
        assert_eq!(queue.add(2), Added::Full, "{kind}");
        queue.get().unwrap().succeed();
        assert_eq!(queue.add(2), Added::Delayed, "{kind}: it waits for the end of that");
        assert_eq!(queue.add(1), Added::Full, "{kind}");
        time.advance(HOUR);
        assert_eq!((queue.turn(), queue.add(1)), (1, Added::Full), "{kind}");
        let held = queue.get().unwrap();
        queue.add(*held);
        held.cool_down(HOUR);
        assert_eq!(queue.add(1), Added::Full, "{kind}: the later add waits for the end of that");
        time.advance(HOUR);
        assert_eq!(queue.turn(), 1, "{kind}");
        queue.get().unwrap().cool_down(HOUR);
        queue.add(3);
        time.advance(HOUR);
        queue.turn();
        assert_eq!(queue.add(2), Added::Full, "{kind}: the end of a cool-down makes no room");
        assert!(queue.remove(&3));
        assert_eq!(queue.add(2), Added::Queued, "{kind}");
    }
}

#[test]
fn priorities_and_groups_change_nothing() {
    let high = AddOptions::new().priority(Priority::HIGH);
    for (kind, queue, _) in manual_kinds(2).into_iter().filter(|(kind, ..)| !kind.starts_with("lock-free")) {
        assert_eq!(queue.add_with(1, high), Added::Queued, "{kind}");
        assert_eq!(queue.add_with(2, AddOptions::new()), Added::Queued, "{kind}");
        assert_eq!(queue.add_with(3, high), Added::Full, "{kind}");
        assert_eq!(queue.add_with(2, high), Added::Coalesced, "{kind}: raised");
        assert_eq!(queue.add_with(3, high.after(HOUR)), Added::Full, "{kind}");
        queue.get().unwrap().done();
        assert_eq!(queue.add_with(3, high), Added::Queued, "{kind}");
    }
}

/// A call by its name.
type Ending = (&'static str, fn(&WorkQueue<u32>));

/// Each end of a key makes room, and wakes an add that waits.
#[test]
fn each_end_of_a_key_makes_room() {
    fn item(queue: &WorkQueue<u32>) -> Item<'_, u32> {
        queue.get().unwrap()
    }
    let endings: [Ending; 17] = [
        ("done", |queue| item(queue).done()),
        ("drop", |queue| drop(item(queue))),
        ("drop of an owned item", |queue| drop(item(queue).into_owned())),
        ("succeed", |queue| item(queue).succeed()),
        ("give_up", |queue| item(queue).give_up()),
        ("unwind", |queue| {
            let unwinds = catch_unwind(AssertUnwindSafe(|| {
                let _item = item(queue);
                resume_unwind(Box::new(()));
            }));
            assert!(unwinds.is_err());
        }),
        ("batch", |queue| queue.get_batch(5).done()),
        ("cool_down", |queue| item(queue).cool_down(HOUR)),
        ("retry and cancel", |queue| {
            item(queue).retry();
            assert!(queue.cancel(&1));
        }),
        ("retry and remove", |queue| {
            item(queue).retry();
            assert!(queue.remove(&1));
        }),
        ("cool_down, add and remove", |queue| {
            let held = item(queue);
            queue.add(1);
            held.cool_down(HOUR);
            assert!(queue.remove(&1));
        }),
        ("cool_down with a delay, and cancel", |queue| {
            queue.add_after(1, HOUR);
            item(queue).cool_down(HOUR);
            assert!(queue.cancel(&1));
        }),
        ("add, remove and done", |queue| {
            let held = item(queue);
            queue.add(1);
            assert!(queue.remove(&1));
            held.done();
        }),
        ("remove", |queue| assert!(queue.remove(&1))),
        ("take_where", |queue| assert_eq!(queue.take_where(|_| true).queued, [1])),
        ("take_delayed", |queue| {
            item(queue).requeue_after(HOUR);
            assert_eq!(queue.take_delayed().len(), 1);
        }),
        ("requeue and succeed", |queue| {
            queue.add_after(1, HOUR);
            item(queue).requeue_with(AddOptions::new().conflict(DelayConflict::Replace));
            assert!(queue.cancel(&1));
            item(queue).succeed();
        }),
    ];
    for (ending, end) in endings {
        for (kind, queue, _) in manual_kinds(1) {
            queue.add(1);
            let (mut one, mut other) = (Task::waits(&queue, 2), Task::waits(&queue, 3));
            end(&queue);
            assert!(one.is_woken() && !other.is_woken(), "{ending}, {kind}");
            assert_eq!(one.poll(), Poll::Ready(Added::Queued), "{ending}, {kind}");
            assert!(other.poll().is_pending(), "{ending}, {kind}");
            assert_eq!((queue.add(1), queue.stats().full), (Added::Full, 1), "{ending}, {kind}");
        }
    }
}

#[test]
fn a_call_that_takes_many_keys_wakes_as_many_adds() {
    for (kind, queue, _) in manual_kinds(100) {
        queue.add_all(0..100);
        let mut tasks: Vec<_> = (100..150).map(|key| Task::waits(&queue, key)).collect();
        assert_eq!(queue.take_where(|key| *key < 30).queued.len(), 30, "{kind}");
        assert_eq!(tasks.iter().filter(|task| task.is_woken()).count(), 30, "{kind}");
        let added = tasks.iter_mut().map(Task::poll).filter(|polled| *polled == Poll::Ready(Added::Queued)).count();
        assert_eq!((added, queue.len()), (30, 100), "{kind}");
        queue.get_batch(100).done();
        assert_eq!(tasks.iter().filter(|task| task.is_woken()).count(), 50, "{kind}");
    }
}

/// A future that was woken, and is dropped, or finds its key known, wakes the next one.
#[test]
fn a_wake_up_is_handed_on() {
    for (kind, queue, _) in manual_kinds(1) {
        queue.add(1);
        let (one, mut other) = (Task::waits(&queue, 2), Task::waits(&queue, 3));
        queue.get().unwrap().done();
        assert!(one.is_woken() && !other.is_woken(), "{kind}");
        drop(one);
        assert!(other.is_woken(), "{kind}");
        assert_eq!(other.poll(), Poll::Ready(Added::Queued), "{kind}");
        let unwoken = Task::waits(&queue, 4);
        drop((unwoken, other));
        assert_eq!(queue.add(5), Added::Full, "{kind}");
    }
    for (kind, queue, _) in manual_kinds(2) {
        queue.add_all([1, 2]);
        let (mut one, other) = (Task::waits(&queue, 3), Task::waits(&queue, 4));
        queue.add_rate_limited(3);
        let items = queue.get_many(2);
        assert!(!one.is_woken(), "{kind}");
        items.into_iter().for_each(Item::done);
        assert!(one.is_woken() && !other.is_woken(), "{kind}");
        assert_eq!(one.poll(), Poll::Ready(Added::Queued), "{kind}: its key is delayed");
        assert!(other.is_woken(), "{kind}");
    }
}

/// One that was woken in vain, because another add was faster, keeps its place.
#[test]
fn who_was_woken_in_vain_is_the_next() {
    for (kind, queue, _) in manual_kinds(1) {
        queue.add(1);
        let (mut one, other) = (Task::waits(&queue, 2), Task::waits(&queue, 3));
        queue.get().unwrap().done();
        assert_eq!(queue.add(4), Added::Queued, "{kind}");
        assert!(one.poll().is_pending(), "{kind}");
        assert_eq!(one.calls.count(), 1, "{kind}");
        queue.get().unwrap().done();
        assert_eq!((one.calls.count(), other.calls.count()), (2, 0), "{kind}");
    }
}

#[test]
fn a_future_that_was_ready_panics_when_it_is_polled() {
    let queue = WorkQueue::builder().max_keys(1).build();
    let mut task = Task { add: Box::pin(queue.add_wait_async(1)), calls: Arc::default() };
    assert_eq!(task.poll(), Poll::Ready(Added::Queued));
    assert!(catch_unwind(AssertUnwindSafe(|| task.poll())).is_err());
    assert_eq!(format!("{:?}", task.add), "AddWait { is_ready: true, .. }");
}

/// The drop of a waker that the queue no longer needs panics. That is caught and counted, as it is for getters.
#[test]
fn a_waker_may_panic_when_it_is_dropped() {
    let queue = WorkQueue::builder().max_keys(1).build();
    queue.add(1);
    let mut add = Box::pin(queue.add_wait_async(2));
    for _ in 0..2 {
        let waker = waker_that_panics_when_dropped();
        assert!(add.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(queue.stats().caught_panics, 1, "the second waker replaces the first");
    drop(add);
    assert_eq!(queue.stats().caught_panics, 2);
}

/// A shut-down, each kind of drain and a stop end the waits of threads and tasks.
#[test]
fn the_end_of_the_queue_ends_the_wait() {
    let ends: [Ending; 5] = [
        ("shut_down", |queue| queue.shut_down()),
        ("drain", |queue| assert!(queue.shut_down_with_drain_timeout(Duration::ZERO).is_err())),
        ("async drain", |queue| {
            assert!(poll(Box::pin(queue.shut_down_with_drain_async()).as_mut(), &Arc::default()).is_pending())
        }),
        ("stop", |queue| assert_eq!(queue.workers().build().stop().queued, [1])),
        ("drain of workers", |queue| assert_eq!(queue.workers().build().drain_timeout(Duration::ZERO).queued, [1])),
    ];
    for (end, call) in ends {
        for (kind, builder) in kinds() {
            let queue = builder.max_keys(1).build();
            queue.add(1);
            thread::scope(|scope| {
                let threads = [2, 3].map(|key| {
                    let queue = &queue;
                    scope.spawn(move || queue.add_wait(key))
                });
                let mut task = Task::waits(&queue, 4);
                thread::sleep(Duration::from_millis(1));
                call(&queue);
                assert!(task.is_woken(), "{end}, {kind}");
                assert_eq!(task.poll(), Poll::Ready(Added::Rejected), "{end}, {kind}");
                assert_eq!(threads.map(|thread| thread.join().unwrap()), [Added::Rejected; 2], "{end}, {kind}");
                assert_eq!((queue.add_wait(5), queue.stats().full), (Added::Rejected, 0), "{end}, {kind}");
            });
        }
    }
}

/// Without a bound, or with room, an `add_wait` is an add.
#[test]
fn an_add_that_need_not_wait_is_an_add() {
    for (kind, builder) in kinds() {
        let queue = builder.build();
        assert_eq!(queue.add_wait(1), Added::Queued, "{kind}");
        assert_eq!(queue.add_wait(1), Added::Coalesced, "{kind}");
        let _held = queue.get();
        assert_eq!(queue.add_wait(1), Added::Deferred, "{kind}");
        queue.shut_down();
        assert_eq!(queue.add_wait(2), Added::Rejected, "{kind}");
    }
    for (kind, queue, _) in manual_kinds(1) {
        assert_eq!(queue.add_wait(1), Added::Queued, "{kind}");
        assert_eq!(queue.add_wait(1), Added::Coalesced, "{kind}");
        let item = queue.get().unwrap();
        assert_eq!(queue.add_wait(1), Added::Deferred, "{kind}");
        item.cool_down(HOUR);
        assert_eq!(queue.add_wait(1), Added::Coalesced, "{kind}");
    }
}

/// With threads at full speed there are never more keys than the bound, and all are run. A count of what is known: a key counts from the
/// return of its add to the moment before its end, so it is never more than the queue has.
#[test]
fn the_bound_holds_at_any_time() {
    const KEYS: u32 = if cfg!(miri) { 40 } else { 4000 };
    for most in [1, 3] {
        for (kind, builder) in kinds() {
            let queue = builder.max_keys(most).build();
            let (known, highest) = (AtomicI64::new(0), AtomicI64::new(0));
            let handled = AtomicUsize::new(0);
            thread::scope(|scope| {
                let adders = [0, 1].map(|adder| {
                    let (queue, known, highest) = (&queue, &known, &highest);
                    scope.spawn(move || {
                        for n in 0..KEYS {
                            let key = 2 * n + adder;
                            let added = if n % 4 == 0 { queue.add(key) } else { queue.add_wait(key) };
                            if added != Added::Full {
                                assert_eq!(added, Added::Queued);
                                highest.fetch_max(known.fetch_add(1, SeqCst) + 1, SeqCst);
                            }
                        }
                    })
                });
                for _ in 0..2 {
                    scope.spawn(|| {
                        while let Some(item) = queue.get() {
                            known.fetch_sub(1, SeqCst);
                            handled.fetch_add(1, SeqCst);
                            item.done();
                        }
                    });
                }
                adders.into_iter().for_each(|adder| adder.join().unwrap());
                queue.wait_idle();
                queue.shut_down();
            });
            let refused = queue.stats().full;
            assert!(highest.into_inner() <= most as i64, "{kind}, {most}");
            assert_eq!(handled.into_inner() as u64 + refused, 2 * u64::from(KEYS), "{kind}, {most}");
        }
    }
}

/// Keys that come back, wait for retries, are removed and drained, beside adds that wait: each add ends.
#[test]
fn no_add_waits_forever() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 1500 };
    for (kind, builder) in kinds() {
        let queue = builder.max_keys(2).build();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let adders = [0_u32, 1, 2].map(|adder| {
                let queue = &queue;
                scope.spawn(move || {
                    for n in 0..ROUNDS {
                        // The same few keys, so that an add may find its key known.
                        let key = (n as u32 * 7 + adder) % 5;
                        if n % 3 == 0 {
                            futures_executor::block_on(queue.add_wait_async(key));
                        } else {
                            queue.add_wait(key);
                        }
                        if n % 16 == 0 {
                            let calls = Arc::default();
                            let mut dropped = Box::pin(queue.add_wait_async(key + 1));
                            let _added = poll(dropped.as_mut(), &calls);
                        }
                    }
                })
            });
            let worker = |seed: u32| {
                let mut n = seed;
                while let Some(item) = queue.get() {
                    n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    match n >> 29 {
                        0 => _ = item.requeue_after(Duration::from_micros(20)),
                        1 => item.cool_down(Duration::from_micros(20)),
                        2 => item.succeed(),
                        _ => item.done(),
                    }
                }
            };
            scope.spawn(move || worker(1));
            scope.spawn(move || worker(2));
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    queue.remove(&3);
                    thread::sleep(Duration::from_micros(50));
                }
            });
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            is_over.store(true, SeqCst);
            queue.shut_down();
        });
        assert_eq!(queue.stats().full, 0, "{kind}: an add that waits is never full");
    }
}

/// A delay that expires in the driver thread comes to a full queue.
#[test]
fn a_delay_expires_into_a_full_queue() {
    let queue = WorkQueue::builder().max_keys(2).build();
    queue.add_after(1, Duration::from_millis(1));
    queue.add(2);
    until::wait_until(|| queue.len() == 2);
    assert_eq!((queue.add(3), queue.add(1)), (Added::Full, Added::Coalesced));
}

#[test]
fn a_million_keys() {
    const KEYS: usize = if cfg!(miri) { 1000 } else { 1_000_000 };
    let queue = WorkQueue::builder().max_keys(KEYS).build();
    assert_eq!(queue.add_all(0..KEYS + 1000), KEYS);
    assert_eq!((queue.len(), queue.stats().full), (KEYS, 1000));
    for _ in 0..10 {
        queue.get_batch(100).done();
    }
    assert_eq!(queue.add_all(KEYS..KEYS + 2000), 1000);
}

#[test]
fn zero_is_refused_and_the_largest_number_is_no_bound() {
    let error = WorkQueue::<u32>::builder().max_keys(0).try_build().unwrap_err();
    assert_eq!((error.argument(), error.to_string()), ("max_keys", "max_keys is 0: no key would be accepted".into()));
    for (kind, builder) in kinds() {
        let queue = builder.max_keys(usize::MAX).build();
        assert_eq!(queue.add_all(0..1000), 1000, "{kind}");
        queue.get_batch(1000).done();
        assert_eq!(queue.add(1), Added::Queued, "{kind}");
    }
}

/// The values of refused adds come back.
#[test]
fn a_refused_value_comes_back() {
    for (kind, queue, _) in manual_kinds(1) {
        let values = ValueQueue::new(queue);
        assert_eq!(values.add(1, "a"), Ok(Added::Queued), "{kind}");
        assert_eq!(values.add(2, "b"), Err(Refused("b")), "{kind}");
        assert_eq!(values.add_after(2, "b", HOUR), Err(Refused("b")), "{kind}");
        assert_eq!(values.add(1, "c"), Ok(Added::Coalesced), "{kind}");
        let item = values.queue().get().unwrap();
        assert_eq!(values.value(&item).as_deref(), Some(&"c"), "{kind}");
        assert_eq!(values.len(), 1, "{kind}");
    }
}

/// An observer is told of refused adds, and of those that have waited only when they are accepted.
#[test]
fn an_observer_is_told() {
    #[derive(Default, Clone)]
    struct Told(Arc<[AtomicU64; 3]>);
    impl Observer for Told {
        fn added(&self, added: Added) {
            let of = [Added::Full, Added::Queued].iter().position(|kind| *kind == added).unwrap_or(2);
            self.0[of].fetch_add(1, SeqCst);
        }
    }
    for (kind, builder) in kinds() {
        let told = Told::default();
        let queue = builder.max_keys(1).observer(told.clone()).build();
        queue.add(1);
        let mut task = Task::waits(&queue, 2);
        assert_eq!((queue.add(3), queue.add_after(3, HOUR)), (Added::Full, Added::Full), "{kind}");
        queue.get().unwrap().done();
        assert_eq!(task.poll(), Poll::Ready(Added::Queued), "{kind}");
        assert_eq!(told.0.each_ref().map(|count| count.load(SeqCst)), [2, 2, 0], "{kind}");
    }
}

/// An add that panics takes no place.
#[test]
fn an_add_that_panics_takes_no_place() {
    for shards in [1, 4] {
        let fails = Arc::new(AtomicBool::new(false));
        let group_fails = Arc::clone(&fails);
        let builder = WorkQueue::builder().shards(shards).max_keys(1).fair_by(move |key: &u32| {
            if group_fails.load(SeqCst) {
                resume_unwind(Box::new("no group"));
            }
            key % 3
        });
        let queue = builder.build();
        fails.store(true, SeqCst);
        for _ in 0..3 {
            assert!(catch_unwind(AssertUnwindSafe(|| queue.add(1))).is_err());
            assert!(catch_unwind(AssertUnwindSafe(|| queue.add_wait(1))).is_err());
        }
        fails.store(false, SeqCst);
        assert_eq!((queue.add(1), queue.add(2)), (Added::Queued, Added::Full));
    }
}
