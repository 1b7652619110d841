//! The driver thread, on the real clock and on a mock one.
//!
//! Checks: no key is handed out before its deadline on the system's clock; getters, threads and tasks alike, are woken when a delay
//! expires, even after a waker has panicked; and there is a driver thread exactly while one is needed. Earlier and moved delays, mock
//! clocks, and shut-downs have models (`loom-tests/tests/delays.rs`).
//!
//! Threads are counted by name, so the tests of this file run one at a time.

mod support {
    pub(crate) mod keys;
    pub(crate) mod until;
}

use futures_executor::block_on;
use keyqueue::{Added, Clock, Driver, WorkQueue};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use support::keys::With;
use support::until::wait_until;

const HOUR: Duration = Duration::from_secs(3_600);

const fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Lets one test of this file run at a time, and start without drivers.
fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    wait_until(|| drivers() == 0);
    turn
}

/// The number of driver threads. Known on Linux only, 0 elsewhere.
fn drivers() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    // A thread may end meanwhile.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "keyqueue-delay").count()
}

/// Waits until there are `count` drivers, where they can be counted.
#[track_caller]
fn wait_for_drivers(count: usize) {
    if cfg!(target_os = "linux") {
        wait_until(|| drivers() == count);
    }
}

// ---- deadlines ----

#[test]
fn a_key_is_never_handed_out_early() {
    let _turn = my_turn();
    let _made_beforehand = Clock::new();
    let queue = WorkQueue::new();
    for delay in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000, 64_000, 200_000].map(us) {
        let repeats = (ms(20).as_nanos() / delay.as_nanos()).clamp(1, 50);
        for _ in 0..repeats {
            let start = Instant::now();
            assert_eq!(queue.add_after(7, delay), Added::Delayed);
            let item = queue.get().unwrap();
            assert!(start.elapsed() >= delay, "{delay:?}: after {:?}", start.elapsed());
            let start = Instant::now();
            assert_eq!(item.requeue_after(delay), Added::Delayed);
            queue.get().unwrap().done();
            assert!(start.elapsed() >= delay, "{delay:?}, requeued: after {:?}", start.elapsed());
        }
    }
    let stats = queue.stats();
    assert_eq!((stats.delayed, stats.delays), (0, stats.expired));
}

/// A delay expires soon after its deadline. The median of the best of ten rounds counts, because a busy machine is late by itself.
#[test]
fn a_key_is_not_handed_out_late() {
    const DELAY: Duration = ms(2);
    let _turn = my_turn();
    let queue = WorkQueue::new();
    let median = || {
        let mut late: Vec<_> = (0..21)
            .map(|key| {
                let start = Instant::now();
                queue.add_after(key, DELAY);
                let _item = queue.get().unwrap();
                start.elapsed() - DELAY
            })
            .collect();
        late.sort();
        late[late.len() / 2]
    };
    let late: Vec<_> = (0..10).map(|_| median()).take_while(|late| *late > ms(2)).collect();
    assert!(late.len() < 10, "late by {late:?}");
}

/// One thread delivers the delays of all shards.
#[test]
fn of_many_keys_none_is_early_and_none_is_lost() {
    const KEYS: u64 = 3_000;
    let _turn = my_turn();
    for shards in [1, 16] {
        let queue = WorkQueue::builder().shards(shards).build();
        let start = Instant::now();
        let delay = |key: u64| us(1 + key.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 150_000);
        queue.add_after(KEYS, HOUR);
        thread::scope(|s| {
            s.spawn(|| {
                for key in 0..KEYS {
                    assert_eq!(queue.add_after(key, delay(key)), Added::Delayed);
                    if key % 100 == 0 {
                        thread::sleep(us(300));
                    }
                }
            });
            for _ in 0..KEYS {
                let item = queue.get().unwrap();
                assert!(start.elapsed() >= delay(*item), "key {} after {:?}", *item, start.elapsed());
            }
        });
        let stats = queue.stats();
        assert_eq!((stats.len, stats.delayed, stats.handed_out), (0, 1, KEYS));
        assert_eq!((stats.delays, stats.expired), (KEYS + 1, KEYS));
        wait_for_drivers(1);
    }
}

// ---- waking ----

#[test]
fn delays_that_expire_together_wake_a_getter_each() {
    const GETTERS: usize = 8;
    let _turn = my_turn();
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).build();
    for _ in 0..20 {
        thread::scope(|s| {
            let getters: Vec<_> = (0..GETTERS)
                .map(|n| {
                    let queue = &queue;
                    s.spawn(move || if n % 2 == 0 { queue.get() } else { block_on(queue.get_async()) }.unwrap())
                })
                .collect();
            wait_until(|| queue.stats().waiters == GETTERS);
            for key in 0..GETTERS {
                queue.add_after(key, ms(5));
            }
            time.advance(ms(5));
            // Each item is held until all getters have one, so one getter cannot take all keys.
            let items: Vec<_> = getters.into_iter().map(|getter| getter.join().unwrap()).collect();
            assert_eq!(items.len(), GETTERS);
        });
    }
}

/// A panic's payload may panic when it is dropped.
#[test]
fn a_waker_that_panics_does_not_end_the_driver() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            resume_unwind(Box::new(()));
        }
    }
    struct Panics(AtomicU32);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            resume_unwind(Box::new(Payload));
        }
    }
    let _turn = my_turn();
    let queue = WorkQueue::new();
    let panics = Arc::new(Panics(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&panics));
    for round in 1..=3 {
        let mut future = pin!(queue.get_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        queue.add_after(round, ms(1));
        queue.add_after(round + 10, ms(5));
        wait_until(|| queue.len() == 2);
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(*queue.get().unwrap(), round + 10);
        assert_eq!(panics.0.load(Ordering::SeqCst), round);
    }
    wait_for_drivers(1);
}

/// The call drops a key that the queue has already. The driver is started or woken even if that drop panics.
#[test]
fn a_key_that_panics_when_dropped_does_not_lose_the_driver() {
    #[derive(Debug, Clone)]
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            if self.0 {
                resume_unwind(Box::new(()));
            }
        }
    }
    let _turn = my_turn();
    let key = |panics| With(1, Panics(panics));
    let add =
        |queue: &WorkQueue<_>| assert!(catch_unwind(AssertUnwindSafe(|| queue.add_after(key(true), ms(1)))).is_err());
    // The key is processing, so the queue has it; there is no driver yet.
    let queue = WorkQueue::new();
    queue.add(key(false));
    let held = queue.get().unwrap();
    add(&queue);
    wait_until(|| held.is_dirty());
    drop(held);
    drop(queue);
    // The key is delayed, so the queue has it; the driver is parked for an hour.
    let queue = WorkQueue::new();
    queue.add_after(key(false), HOUR);
    wait_for_drivers(1);
    thread::sleep(ms(20));
    add(&queue);
    assert_eq!(queue.get_timeout(Duration::from_secs(30)).unwrap().0, 1);
}

// ---- very long delays ----

#[test]
fn very_long_delays_do_not_expire() {
    let _turn = my_turn();
    let queue = WorkQueue::new();
    let long = [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(u64::MAX), HOUR * 24 * 365 * 500];
    for (key, delay) in long.into_iter().enumerate() {
        assert_eq!(queue.add_after(key, delay), Added::Delayed);
    }
    queue.add_after(9, ms(5));
    assert_eq!(*queue.get().unwrap(), 9);
    thread::sleep(ms(20));
    assert_eq!((queue.len(), queue.delayed_len(), queue.turn()), (0, 4, 0));
    assert_eq!(queue.add_after(0, ms(5)), Added::Delayed, "the earlier delay wins");
    assert_eq!(*queue.get().unwrap(), 0);
    assert_eq!(queue.stats().expired, 2);
}

// ---- the thread ----

#[test]
fn there_is_no_driver_before_the_first_delay() {
    let _turn = my_turn();
    let queue = WorkQueue::new();
    queue.add(1);
    queue.add_after(2, Duration::ZERO);
    queue.cancel(&1);
    queue.turn();
    assert!(queue.take_delayed().is_empty());
    assert_eq!(queue.get_many(2).len(), 2);
    thread::sleep(ms(20));
    assert_eq!(drivers(), 0);
    queue.add_after(1, HOUR);
    wait_for_drivers(1);
    for key in 0..100 {
        queue.add_after(key, HOUR);
    }
    queue.clone().add_after(1, ms(1));
    assert_eq!(*queue.get().unwrap(), 1);
    wait_for_drivers(1);
}

#[test]
fn with_a_manual_driver_there_is_no_thread_and_turn_expires_delays() {
    let _turn = my_turn();
    let queue = WorkQueue::builder().driver(Driver::Manual).build();
    let start = Instant::now();
    queue.add_after(1, ms(10));
    queue.add_after(2, HOUR);
    thread::sleep(ms(20));
    assert_eq!((drivers(), queue.len(), queue.delayed_len()), (0, 0, 2));
    while queue.turn() == 0 {
        assert!(queue.is_empty());
    }
    assert!(start.elapsed() >= ms(10));
    assert_eq!(*queue.try_get().unwrap(), 1);
    assert_eq!(drivers(), 0);
}

#[test]
fn a_shut_down_ends_the_driver() {
    let _turn = my_turn();
    // The driver is parked with a time-out, parked without one, and busy with a delay that expires at that moment.
    for delay in [HOUR, Duration::from_nanos(u64::MAX - (1 << 50)), us(30)] {
        let queue = WorkQueue::new();
        queue.add_after(1, delay);
        if delay > ms(1) {
            wait_for_drivers(1);
        }
        queue.shut_down();
        wait_for_drivers(0);
        assert_eq!(queue.add_after(2, us(1)), Added::Rejected);
        thread::sleep(ms(2));
        assert_eq!(drivers(), 0, "it does not start again");
    }
}

#[test]
fn dropping_the_last_handle_ends_the_driver_and_drops_the_delayed_keys() {
    let _turn = my_turn();
    for clock in [Clock::new(), Clock::mock().0] {
        let queue = WorkQueue::builder().clock(clock).build();
        let key = Arc::new(7);
        queue.add_after(Arc::clone(&key), HOUR);
        wait_for_drivers(1);
        let other = queue.clone();
        drop(queue);
        thread::sleep(ms(10));
        assert!(!cfg!(target_os = "linux") || drivers() == 1, "there is one handle left");
        drop(other);
        // The driver drops the key, if it has just taken a handle to check the deadlines.
        wait_until(|| Arc::strong_count(&key) == 1);
        wait_for_drivers(0);
    }
}

#[test]
fn a_thousand_queues_leave_no_driver() {
    let _turn = my_turn();
    let (clock, time) = Clock::mock();
    let mut kept = Vec::new();
    for n in 0..1_000 {
        let queue = match n % 5 {
            0 => WorkQueue::builder().clock(clock.clone()).build(),
            _ => WorkQueue::new(),
        };
        // Some are dropped while the driver starts, some while it is parked, and some while it queues expired keys.
        queue.add_after(n, [HOUR, us(1), us(20), us(50), us(100)][n % 5]);
        if n % 3 == 0 {
            time.advance(HOUR / 100);
        }
        if n % 7 == 0 {
            thread::sleep(us(50));
        }
        if n % 11 == 0 {
            kept.push(queue);
        }
        if kept.len() > 20 {
            kept.clear();
        }
    }
    kept.clear();
    wait_for_drivers(0);
    // The clock must not call queues that are gone.
    time.advance(HOUR);
}

#[test]
fn an_item_may_be_requeued_after_the_last_handle_is_gone() {
    let _turn = my_turn();
    let queue = WorkQueue::new();
    queue.add(1);
    let item = queue.get().unwrap().into_owned();
    drop(queue);
    // No handle can get the key any more. The call must not hang, panic, or leave a thread.
    let _added = thread::spawn(move || item.requeue_after(ms(1))).join().unwrap();
    wait_for_drivers(0);
}
