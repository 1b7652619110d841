//! Tests of a queue whose driver thread cannot be started: the threads that wait do its work (W7).

use super::{Shared, start_driver_thread};
use crate::observe::{Metrics, Observer};
use crate::shared::stopped::{SLOWER, until};
use crate::sync::Arc;
use crate::{Added, Clock, WorkQueue};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(20 * SLOWER as u64);

fn no_thread(_: &Arc<Shared<u32>>) -> std::io::Result<()> {
    Err(std::io::ErrorKind::WouldBlock.into())
}

/// A thread that is parked when the start fails, or comes later, adds and gets the first key, and another one whose delay is set later and
/// ends earlier. The clock is given, so no getter expires delays except in place of the driver.
#[test]
fn a_thread_that_waits_does_the_work_of_the_driver() {
    for (parks_before, is_idle_wait) in [(false, false), (false, true), (true, false), (true, true)] {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).build_with(no_thread);
        queue.add(0);
        let held = queue.get().unwrap();
        let set = |delay| assert_eq!(queue.add_after(0, delay), Added::Delayed);
        if !parks_before {
            set(HOUR);
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| match is_idle_wait {
                true => queue.wait_idle_timeout(LONG).is_ok(),
                false => *queue.get_timeout(LONG).unwrap() == 0,
            });
            let listed =
                || if is_idle_wait { queue.shared.hub().life_cycle.drainers.len() } else { queue.stats().waiters };
            until("it waits", || listed() == 1);
            if parks_before {
                thread::sleep(Duration::from_millis(20)); // it parks without a deadline
                set(HOUR);
            }
            set(HOUR / 4);
            time.advance(HOUR / 4);
            until("the delay expires", || held.is_dirty());
            held.done();
            if is_idle_wait {
                queue.remove(&0);
            }
            assert!(waits.join().unwrap(), "parks before {parks_before}, is an idle wait {is_idle_wait}");
        });
        assert!(queue.stats().driver_failures > 0);
    }
}

/// One of two threads takes a key and leaves. The other goes on with the driver's work.
#[test]
fn each_thread_that_waits_does_the_work() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).build_with(no_thread);
    queue.add_after(1, HOUR);
    thread::scope(|scope| {
        let getters = [(); 2].map(|()| scope.spawn(|| *queue.get_timeout(LONG).unwrap()));
        until("they wait", || queue.stats().waiters == 2);
        queue.add(0);
        until("one leaves", || getters.iter().any(|getter| getter.is_finished()));
        time.advance(HOUR);
        let mut keys = getters.map(|getter| getter.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [0, 1]);
    });
}

/// A thread in whose step an observer panics gets its key nevertheless, and the next getter the next.
#[test]
fn an_observer_that_panics_ends_no_wait() {
    struct Panics;
    impl Observer for Panics {
        fn added(&self, added: Added) {
            if added == Added::Queued {
                std::panic::resume_unwind(Box::new("as planned"));
            }
        }
    }
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).observer(Panics).build_with(no_thread);
    queue.add_after(0, 2 * HOUR);
    thread::scope(|scope| {
        let getters = [(); 2].map(|()| scope.spawn(|| *queue.get_timeout(LONG).unwrap()));
        until("they wait", || queue.stats().waiters == 2);
        for key in [1, 2] {
            queue.add_after(key, HOUR / 4);
            time.advance(HOUR / 4);
            until("it expires", || queue.delayed_len() == 1);
        }
        let mut keys = getters.map(|getter| getter.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
    assert_eq!(queue.stats().caught_panics, 2);
}

/// A thread that is parked tries again to start the driver.
#[test]
fn a_thread_that_waits_starts_the_driver_when_that_is_possible_again() {
    static POSSIBLE: AtomicBool = AtomicBool::new(false);
    let queue = WorkQueue::builder().build_with(|shared: &Arc<Shared<u32>>| {
        if POSSIBLE.load(Ordering::SeqCst) { start_driver_thread(shared) } else { no_thread(shared) }
    });
    queue.add_after(0, HOUR);
    thread::scope(|scope| {
        let getter = scope.spawn(|| queue.get_timeout(LONG).is_ok());
        until("it waits", || queue.stats().waiters == 1);
        POSSIBLE.store(true, Ordering::SeqCst);
        until("the driver starts", || !queue.shared.is_driver_missing());
        queue.add(1);
        assert!(getter.join().unwrap());
    });
}

/// A drain makes the reports, which are part of the driver's work.
#[test]
#[cfg_attr(miri, ignore = "bounds by the clock how often a thread reports")]
fn a_drain_reports_in_place_of_the_driver() {
    struct Reports(std::sync::Arc<AtomicUsize>);
    impl Observer for Reports {
        fn report(&self, _: &str, _: &Metrics) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn interval(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }
    }
    let reports = std::sync::Arc::<AtomicUsize>::default();
    let queue = WorkQueue::builder().observer(Reports(std::sync::Arc::clone(&reports))).build_with(no_thread);
    queue.add(0);
    let _held = queue.get().unwrap();
    assert!(queue.shut_down_with_drain_timeout(Duration::from_millis(100)).is_err());
    assert!(reports.load(Ordering::Relaxed) > 3);
}
