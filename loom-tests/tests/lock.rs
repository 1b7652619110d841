//! The queue's lock: one thread at a time (L1), and no thread stays parked while the lock is free. Most models run twice: without
//! time, where wake-ups suffice; and with time, where a release may miss a parked thread, and a timed park expires.

use keyqueue::Lock;
use loom::sync::{Condvar, Mutex};
use loom_tests::{check, with};
use std::sync::Arc;

/// `threads` threads, the caller among them, take the lock `times` times each.
fn contend(threads: usize, times: usize, time_passes: bool) {
    check(move || {
        let lock = Arc::new(Lock::new(0, time_passes));
        let count = move |lock: &Arc<Lock<usize>>| (0..times).for_each(|_| lock.with(|n| *n += 1));
        let others: Vec<_> = (1..threads).map(|_| with(&lock, count)).collect();
        count(&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(lock.with(|n| *n), threads * times);
    });
}

/// One thread parks while the other releases the lock.
#[test]
fn a_parked_thread_is_woken() {
    contend(2, 1, false);
}

#[test]
fn a_parked_thread_is_woken_or_its_park_expires() {
    contend(2, 1, true);
}

/// A woken thread finds the lock taken again, and parks again.
#[test]
fn a_thread_that_is_woken_too_late_is_woken_again() {
    contend(2, 2, false);
}

#[test]
fn a_thread_that_is_woken_too_late_is_woken_again_or_its_park_expires() {
    contend(2, 2, true);
}

/// One release wakes one thread; the woken thread wakes the next.
#[test]
fn parked_threads_wake_each_other() {
    contend(3, 1, false);
}

#[test]
fn parked_threads_wake_each_other_or_a_park_expires() {
    contend(3, 1, true);
}

/// Three threads park, and the second or third may park with a timeout; a starved thread is handed the lock.
#[test]
fn three_parked_threads_wake_each_other() {
    contend(4, 1, false);
}

#[test]
fn threads_that_park_again_wake_each_other() {
    contend(3, 2, false);
}

/// A thread has the list of parked threads, and goes on only when another has taken and released the lock (P21).
#[test]
fn a_release_waits_for_no_thread_that_is_about_to_park() {
    check(|| {
        let lock = Arc::new(Lock::new(0, true));
        let (stopped, released) = (Arc::clone(&lock), Arc::new((Mutex::new(false), Condvar::new())));
        let goes_on = Arc::clone(&released);
        let other = loom::thread::spawn(move || {
            stopped.about_to_park(|| {
                let mut released = goes_on.0.lock().unwrap();
                while !*released {
                    released = goes_on.1.wait(released).unwrap();
                }
            });
        });
        lock.with(|n| *n += 1);
        *released.0.lock().unwrap() = true;
        released.1.notify_one();
        other.join().unwrap();
        assert_eq!(lock.with(|n| *n), 1);
    });
}

/// A write under the lock is visible to the next holder of the lock, even if a panic released it.
#[test]
fn a_panic_releases() {
    check(|| {
        let lock = Arc::new(Lock::new(0, false));
        let other = with(&lock, |lock: &Arc<Lock<i32>>| {
            let unwind = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                lock.with(|n| {
                    *n = 1;
                    std::panic::resume_unwind(Box::new(()));
                })
            }));
            assert!(unwind.is_err());
        });
        assert!([0, 1].contains(&lock.with(|n| *n)));
        other.join().unwrap();
        assert_eq!(lock.with(|n| *n), 1);
    });
}
