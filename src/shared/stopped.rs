//! Tests with a thread that stops in a critical section of one shard (P21).

use super::getters::BUSY;
use super::{Shared, Wait, start_driver_thread};
use crate::machine::{How, Mode, NEVER};
use crate::order::Group;
use crate::shared::driver::states::DriverState;
use crate::sync::{Arc, Parker};
use crate::wait::Waiter;
use crate::{Clock, Driver, OnPanic, TryGetError, WorkQueue, WorkQueueBuilder};
use futures_executor::block_on;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SHARDS: usize = 4;

fn builder() -> WorkQueueBuilder<u64> {
    WorkQueue::builder().shards(SHARDS)
}

/// The keys of a shard.
fn keys_of(queue: &WorkQueue<u64>, shard: usize) -> impl Iterator<Item = u64> + use<> {
    let queue = queue.clone();
    (0..).filter(move |key| queue.shared.hash(key).shard(SHARDS) == shard)
}

fn key_of(queue: &WorkQueue<u64>, shard: usize) -> u64 {
    keys_of(queue, shard).next().unwrap()
}

/// A thread that holds the lock of a shard until it is told to go on.
struct Stopped {
    go_on: mpsc::Sender<()>,
    holder: JoinHandle<()>,
}

impl Stopped {
    fn in_shard(queue: &WorkQueue<u64>, shard: usize) -> Self {
        let (go_on, stop) = mpsc::channel();
        let (is_held, held) = mpsc::channel();
        let queue = queue.clone();
        let holder = thread::spawn(move || {
            let _shard = queue.shared.at(shard).lock();
            is_held.send(()).unwrap();
            stop.recv().unwrap();
        });
        held.recv().unwrap();
        Self { go_on, holder }
    }

    fn goes_on(self) {
        self.go_on.send(()).unwrap();
        self.holder.join().unwrap();
    }

    fn goes_on_after(self, delay: Duration) -> JoinHandle<()> {
        thread::spawn(move || {
            thread::sleep(delay);
            self.goes_on();
        })
    }
}

/// A task that takes one key, on a thread of its own. Returns how many times it was polled, and whether it got a key.
fn task(queue: &WorkQueue<u64>) -> JoinHandle<(u32, Option<u64>)> {
    let queue = queue.clone();
    thread::spawn(move || {
        let (mut polls, mut get) = (0, pin!(queue.get_async()));
        let key = block_on(poll_fn(|context| {
            polls += 1;
            get.as_mut().poll(context)
        }));
        (polls, key.map(|item| *item))
    })
}

/// The factor of these tests' times under miri, whose clock goes on by 5 µs with each basic block, so that a new thread parks only after
/// some tenths of a second.
pub(super) const SLOWER: u32 = if cfg!(miri) { 100 } else { 1 };

/// Waits until this is so, but no longer than it can take.
pub(super) fn until(what: &str, reached: impl Fn() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < SLOWER * Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A thread stops in a critical section of a shard that has keys (P21). Getters of all kinds get the keys of the other shards, where the
/// driver also delivers delays, and the rest when the thread goes on.
#[test]
fn getters_and_the_driver_pass_by_a_shard_whose_holder_has_stopped() {
    let queue = builder().build();
    queue.add_all(0..400_u64);
    let stopped = 2;
    let behind = queue.shared.at(stopped).len();
    let shard_of = |key: &u64| queue.shared.hash(key).shard(SHARDS);
    let holder = Stopped::in_shard(&queue, stopped);
    let mut taken = HashSet::new();
    while taken.len() < 400 - behind {
        let item = match taken.len() % 3 {
            0 => queue.get().unwrap(),
            1 => queue.get_timeout(Duration::from_secs(20)).unwrap(),
            _ => match pin!(queue.get_async()).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(item) => item.unwrap(),
                Poll::Pending => panic!("there are keys"),
            },
        };
        assert_ne!(shard_of(&item), stopped);
        taken.insert(*item);
    }
    assert!(queue.get_timeout(Duration::from_millis(2)).is_err());
    let late = (400..).find(|key| shard_of(key) == 1).unwrap();
    let getter = thread::spawn({
        let queue = queue.clone();
        move || *queue.get().unwrap()
    });
    queue.add_after(late, Duration::from_millis(5));
    assert_eq!(getter.join().unwrap(), late, "delivered by the driver, to a getter that was parked");
    let getter = thread::spawn({
        let queue = queue.clone();
        move || *queue.get().unwrap()
    });
    thread::sleep(Duration::from_millis(5));
    holder.goes_on();
    assert_eq!(shard_of(&getter.join().unwrap()), stopped, "it came back, though no add has woken it");
    while queue.try_get().is_ok() {}
    assert_eq!(queue.stats().handed_out, 401);
}

/// A woken getter passes by the busy shard, and then leaves or takes one of two keys. In each case it wakes the next (W2, W3).
#[test]
fn a_woken_getter_that_passes_by_still_counts_as_woken() {
    #[derive(PartialEq)]
    enum Then {
        IsDropped,
        TakesOneOfTwo,
    }
    for then in [Then::IsDropped, Then::TakesOneOfTwo] {
        let queue = builder().build();
        let keys: Vec<_> = keys_of(&queue, 1).take(2).collect();
        let first = Parker::new();
        let waiter = || match then {
            Then::IsDropped => Waiter::Task(Waker::noop().clone()),
            Then::TakesOneOfTwo => Waiter::Thread(first.unparker()),
        };
        let Wait::Park(ticket) = Shared::take_or_wait(&queue.shared, waiter()) else { panic!("no key") };
        let next = thread::spawn({
            let queue = queue.clone();
            move || {
                let begin = Instant::now();
                drop(queue.get_timeout(Duration::from_secs(20)).unwrap());
                assert!(
                    begin.elapsed() < Duration::from_secs(20),
                    "it was not woken, and found the key at its time-out"
                );
            }
        });
        until("the second getter is on the list", || queue.stats().waiters == 2);
        thread::sleep(Duration::from_millis(50)); // it looks once more, and parks
        queue.add(keys[0]);
        assert_eq!(queue.stats().waiters, 1, "the first getter is off the list");
        let holder = Stopped::in_shard(&queue, 1);
        let Wait::ParkBriefly(ticket) = Shared::resume(&queue.shared, ticket, waiter(), false) else { panic!("busy") };
        match then {
            Then::IsDropped => queue.shared.leave_getters(ticket, false),
            Then::TakesOneOfTwo => {}
        }
        holder.goes_on();
        if then == Then::TakesOneOfTwo {
            // Queued without a wake-up, as by a push that found the first getter on its way.
            let (held, hash) = (queue.shared.at(1).lock(), queue.shared.hash(&keys[1]));
            let mut section = queue.shared.section_in(held, Mode::PLAIN);
            section.add(&mut Some(keys[1]), hash, Group::default(), How::NOW);
            section.end();
            let wait = Shared::resume(&queue.shared, ticket, waiter(), false);
            assert!(matches!(wait, Wait::Item(_)));
        }
        next.join().unwrap();
    }
}

/// `try_get` and `get_many` wait for a busy shard that has keys if no other has any, and a `get_timeout` does not.
#[test]
fn a_last_look_waits_for_a_busy_shard_only_if_it_must() {
    let queue = builder().driver(Driver::Manual).build();
    let [empty, full] = [key_of(&queue, 1), key_of(&queue, 2)];
    let holder = Stopped::in_shard(&queue, 1);
    assert_eq!(queue.try_get().err(), Some(TryGetError::Empty));
    queue.add(full);
    assert_eq!(*queue.try_get().unwrap(), full, "another shard has a key");
    holder.goes_on();
    queue.add(empty);
    let holder = Stopped::in_shard(&queue, 1);
    assert!(queue.get_timeout(Duration::from_millis(1)).is_err());
    let holder = holder.goes_on_after(Duration::from_millis(20));
    assert_eq!(*queue.try_get().unwrap(), empty);
    holder.join().unwrap();
    queue.add_all([empty, full]);
    let holder = Stopped::in_shard(&queue, 1).goes_on_after(Duration::from_millis(20));
    assert_eq!(queue.get_many(usize::MAX).len(), 2);
    holder.join().unwrap();
    queue.shut_down();
    let holder = Stopped::in_shard(&queue, 1).goes_on_after(Duration::from_millis(20));
    assert_eq!(queue.try_get().err(), Some(TryGetError::ShutDown));
    holder.join().unwrap();
}

/// A `turn` visits the other shards first, and then waits for the busy one.
#[test]
fn a_turn_visits_a_busy_shard_at_the_end() {
    let (clock, time) = Clock::mock();
    let queue = builder().clock(clock).driver(Driver::Manual).build();
    (0..SHARDS).for_each(|shard| _ = queue.add_after(key_of(&queue, shard), Duration::from_secs(1)));
    time.advance(Duration::from_secs(1));
    let holder = Stopped::in_shard(&queue, 1);
    let turn = thread::spawn({
        let queue = queue.clone();
        move || queue.turn()
    });
    until("it has visited the other shards", || queue.len() == SHARDS - 1);
    holder.goes_on();
    assert_eq!((turn.join().unwrap(), queue.len()), (SHARDS, SHARDS));
}

/// Tasks that pass by a busy shard are polled at most once in 100 µs, because the driver, which is started for them, wakes them. When the
/// last has its key, the driver parks (P16).
#[test]
fn tasks_do_not_spin_while_a_shard_is_busy() {
    let queue = builder().build();
    queue.add_all(keys_of(&queue, 2).take(2));
    let holder = Stopped::in_shard(&queue, 2);
    let begin = Instant::now();
    let tasks = [task(&queue), task(&queue)];
    thread::sleep(Duration::from_millis(50));
    assert_eq!(tasks.iter().filter(|task| task.is_finished()).count(), 0);
    holder.goes_on();
    let polls = tasks.map(|task| task.join().unwrap()).map(|(polls, key)| {
        assert!(key.is_some());
        polls
    });
    let most = 10 + (begin.elapsed().as_micros() / BUSY.as_micros()) as u32;
    println!("{polls:?} polls in {:?}", begin.elapsed());
    assert!(polls.iter().all(|polls| *polls <= most), "{polls:?} polls, not {most}");
    until("the driver parks", || {
        let hub = queue.shared.hub();
        matches!(hub.driver, DriverState::Parked { until: NEVER, .. }) && hub.getters.wake_at.is_none()
    });
}

/// The driver wakes a task that has passed by a busy shard, once, and the task does not wake itself.
#[test]
fn the_driver_wakes_a_task_that_has_passed_by_a_busy_shard() {
    struct Task(std::sync::Mutex<Vec<Option<String>>>);
    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().push(thread::current().name().map(str::to_owned));
        }
    }
    for delayed in [false, true] {
        let queue = builder().build();
        if delayed {
            queue.add_after(key_of(&queue, 0), Duration::from_secs(3600)); // the driver is there, and parked
        }
        let holder = Stopped::in_shard(&queue, 2);
        let task = Arc::new(Task(std::sync::Mutex::default()));
        let waker = Arc::clone(&task).into();
        let mut get = pin!(queue.get_async());
        for polls in 1..=3 {
            assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            until("it is woken", || task.0.lock().unwrap().len() >= polls);
            thread::sleep(Duration::from_millis(1));
            assert_eq!(*task.0.lock().unwrap(), vec![Some("keyqueue-delay".to_owned()); polls]);
        }
        holder.goes_on();
    }
}

/// While a task waits for a busy shard, keys of other shards wake it, one that is dropped is forgotten, and a shut-down ends it.
#[test]
fn a_task_that_waits_for_a_busy_shard_is_woken_for_all_else() {
    let queue = builder().build();
    let holder = Stopped::in_shard(&queue, 2);
    {
        let mut dropped = pin!(queue.get_async());
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(queue.shared.hub().getters.waiters.len(), 0);
    let getter = task(&queue);
    thread::sleep(Duration::from_millis(2));
    let key = key_of(&queue, 1);
    queue.add(key);
    assert_eq!(getter.join().unwrap().1, Some(key));
    let getter = task(&queue);
    let shut_down = thread::spawn({
        let queue = queue.clone();
        move || queue.shut_down()
    });
    until("it is shut down", || queue.shared.is_shutting_down());
    thread::sleep(Duration::from_millis(2));
    holder.goes_on();
    assert_eq!(getter.join().unwrap().1, None);
    shut_down.join().unwrap();
    // A queue that is shut down starts the driver for a task, too, and ends it.
    let holder = Stopped::in_shard(&queue, 2);
    let getter = task(&queue);
    thread::sleep(Duration::from_millis(2));
    holder.goes_on();
    assert_eq!(getter.join().unwrap().1, None);
    until("the driver ends", || matches!(queue.shared.hub().driver, DriverState::Absent));
}

/// Without a driver thread to wake it, a task waits for the busy shard in its poll instead of waking itself again and again. (The failing
/// start of a driver wakes it once.) It is on the list meanwhile, and parks as usual after that.
#[test]
fn a_task_waits_for_a_busy_shard_without_a_driver() {
    let manual = || builder().driver(Driver::Manual);
    for (queue, most) in [(manual().build(), 1), (builder().build_with(no_thread), 2)] {
        let key = key_of(&queue, 2);
        queue.add(key);
        let holder = Stopped::in_shard(&queue, 2);
        let getter = task(&queue);
        thread::sleep(Duration::from_millis(15)); // longer than the time between two tries to start the driver
        holder.goes_on();
        until("it has found the key", || getter.is_finished());
        let (polls, found) = getter.join().unwrap();
        assert_eq!(found, Some(key));
        assert!(polls <= most, "{polls} polls");
    }
    for shut_down in [false, true] {
        let queue = manual().build();
        let holder = Stopped::in_shard(&queue, 2);
        let getter = task(&queue);
        until("it is on the list", || queue.shared.hub().getters.waiters.len() == 1);
        let ends = thread::spawn({
            let queue = queue.clone();
            move || if shut_down { queue.shut_down() } else { assert!(queue.add(key_of(&queue, 1)).is_accepted()) }
        });
        thread::sleep(Duration::from_millis(5));
        holder.goes_on();
        until("it ends", || getter.is_finished());
        let (polls, found) = getter.join().unwrap();
        assert_eq!(found, (!shut_down).then(|| key_of(&queue, 1)));
        assert!(polls <= 2, "{polls} polls");
        ends.join().unwrap();
    }
}

/// No driver can be started for a task that passes by a stopped holder: the poll waits for the shard (W5).
#[test]
fn a_task_waits_for_a_shard_if_no_driver_can_be_started() {
    let queue = builder().build_with(no_thread);
    let holder = Stopped::in_shard(&queue, 2);
    let mut get = pin!(queue.get_async());
    let goes_on = thread::spawn(|| {
        thread::sleep(Duration::from_millis(5));
        holder.goes_on();
    });
    let waits = Instant::now();
    while !goes_on.is_finished() {
        assert!(get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert!(waits.elapsed() >= Duration::from_millis(5));
    goes_on.join().unwrap();
    let key = key_of(&queue, 2);
    queue.add(key);
    assert_eq!(block_on(get).map(|item| *item), Some(key));
}

/// A park takes the lock of each shard once before it and once after it, and no other.
#[test]
fn a_park_looks_into_each_shard_once() {
    let queue = WorkQueue::<u64>::builder().shards(64).build();
    let looks = || queue.shared.all().map(|locked| locked.looks.load(Ordering::Relaxed)).sum::<usize>();
    for _ in 0..3 {
        let before = looks();
        assert!(queue.get_timeout(Duration::from_millis(1)).is_err());
        println!("{} looks", looks() - before);
        assert_eq!(looks() - before, 2 * 64);
    }
}

/// Hand-outs of all shards count when a thread decides whether it yields before it parks.
#[test]
fn hand_outs_of_all_shards_are_counted_at_a_park() {
    for shards in [1, 64] {
        let queue = WorkQueue::<u64>::builder().shards(shards).build();
        let counted_after = |keys| {
            queue.add_all(0..keys);
            while queue.try_get().is_ok() {}
            assert!(queue.get_timeout(Duration::from_millis(1)).is_err());
            queue.shared.hub().getters.last_park.map(|(_, handed_out)| handed_out)
        };
        assert_eq!([0, 7, 100].map(counted_after), [Some(0), Some(7), Some(107)], "{shards} shards");
    }
}

/// Each visit of all shards finds no work, but adds come in between. An idle wait gives up at its deadline, and the poll of one ends.
#[test]
fn an_idle_wait_of_a_queue_that_is_never_idle_ends_at_its_deadline() {
    let queue = builder().driver(Driver::Manual).build();
    let [first, last] = [0, SHARDS - 1].map(|shard| queue.shared.at(shard));
    let mut first_held = first.lock_beside_another();
    let waits = thread::spawn({
        let queue = queue.clone();
        move || {
            let polled = pin!(queue.wait_idle_async()).poll(&mut Context::from_waker(Waker::noop()));
            (polled.is_pending(), queue.wait_idle_timeout(Duration::from_millis(20)))
        }
    });
    let begin = Instant::now();
    while !waits.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(10), "it looks again and again");
        // As by an add, and the hand-out and `done` of its key. The wait never finds the same number twice in the first shard, because it
        // has to pass by the last one in between.
        first_held.counts.pushed += 1;
        let last_held = last.lock_beside_another();
        drop(first_held);
        thread::sleep(Duration::from_micros(200));
        first_held = first.lock_beside_another();
        drop(last_held);
        thread::sleep(Duration::from_micros(200));
    }
    drop(first_held);
    let (is_pending, waited) = waits.join().unwrap();
    assert!(is_pending);
    assert!(waited.is_err_and(|left| left.queued + left.processing + left.delayed == 0));
    assert_eq!(queue.wait_idle_timeout(Duration::ZERO), Ok(()));
}

/// The same while an idle wait does the driver's work and delays go on expiring.
#[test]
fn an_idle_wait_in_place_of_the_driver_ends_at_its_deadline() {
    let queue = builder().build_with(no_thread);
    queue.add(0); // it is never idle
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (queue, ended) = (&queue, &ended);
            scope.spawn(move || {
                let begin = Instant::now();
                while ended.load(Ordering::Relaxed) == 0 && begin.elapsed() < Duration::from_secs(10) {
                    (0..100).for_each(|key| _ = queue.add_after(2 * key + thread, Duration::from_nanos(1)));
                }
            });
        }
        let begin = Instant::now();
        assert!(queue.wait_idle_timeout(Duration::from_millis(20)).is_err());
        ended.store(1, Ordering::Relaxed);
        assert!(begin.elapsed() < Duration::from_secs(5), "it ends when no delay expires any more");
    });
}

/// Nothing but the shards is read.
#[test]
fn the_number_of_processing_keys_is_read_without_the_hub() {
    let queue = builder().measure(true).build();
    queue.add_all(0..5);
    let _held = queue.get_many(3);
    let _hub = queue.shared.hub.lock();
    assert_eq!(queue.processing_len(), 3);
}

/// `turn` visits the other shards first, and counts a panic although the first shard is held.
#[test]
fn a_turn_and_a_panic_do_not_wait_for_the_first_shard() {
    let (clock, time) = Clock::mock();
    let queue = builder().clock(clock).driver(Driver::Manual).on_panic(OnPanic::Done).build();
    let key = key_of(&queue, 3);
    queue.add_after(key, Duration::from_secs(1));
    time.advance(Duration::from_secs(1));
    let holder = Stopped::in_shard(&queue, 0);
    let turn = thread::spawn({
        let queue = queue.clone();
        move || queue.turn()
    });
    until("the other shards had their turn", || queue.len() == 1);
    let item = queue.get().unwrap();
    let panics = AssertUnwindSafe(|| {
        let _item = item;
        resume_unwind(Box::new(()))
    });
    assert!(catch_unwind::<_, ()>(panics).is_err());
    holder.goes_on();
    assert_eq!((turn.join().unwrap(), queue.stats().panics), (1, 1));
}

/// The driver waits for a busy shard, because a mock clock does not say when to visit it again.
#[test]
fn the_driver_of_a_mock_clock_waits_for_a_busy_shard() {
    let (clock, time) = Clock::mock();
    let queue = builder().clock(clock).build();
    queue.add_after(key_of(&queue, 2), Duration::from_secs(1));
    thread::sleep(Duration::from_millis(20)); // the driver parks
    let holder = Stopped::in_shard(&queue, 2);
    time.advance(Duration::from_secs(1));
    thread::sleep(Duration::from_millis(20)); // the driver wakes
    holder.goes_on();
    until("the delay expires", || queue.len() == 1);
}

/// Starts no thread.
fn no_thread(_: &Arc<Shared<u64>>) -> std::io::Result<()> {
    Err(ErrorKind::WouldBlock.into())
}

/// An idle wait has visited the shard of the delay, and is not on the list yet, when the start of the driver fails.
#[test]
fn an_idle_wait_notices_that_the_driver_is_missing() {
    let queue = builder().build_with(no_thread);
    let holder = Stopped::in_shard(&queue, 1);
    let _waits = thread::spawn({
        let queue = queue.clone();
        move || queue.wait_idle()
    });
    thread::sleep(Duration::from_millis(20)); // it waits for shard 1
    queue.add_after(key_of(&queue, 0), Duration::from_millis(5));
    holder.goes_on();
    until("the idle wait does the driver's work", || queue.len() == 1);
}

/// While a thread tries in vain to start the driver, another cancels the delay that has asked for it. The next delay asks again.
#[test]
fn a_failed_start_is_not_forgotten() {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    fn start(shared: &Arc<Shared<u64>>) -> std::io::Result<()> {
        if STARTS.fetch_add(1, Ordering::Relaxed) > 0 {
            return start_driver_thread(shared);
        }
        assert!(shared.cancel(&1));
        Shared::ensure_driver(shared);
        no_thread(shared)
    }
    let queue = WorkQueue::builder().build_with(start);
    queue.add_after(1, Duration::from_millis(1));
    thread::sleep(Duration::from_millis(20));
    queue.add_after(2, Duration::from_millis(1));
    assert_eq!(queue.get_timeout(Duration::from_secs(20)).map(|item| *item), Ok(2));
}
