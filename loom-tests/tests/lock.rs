//! The queue's lock: one thread at a time (L1), and nobody sleeps for ever beside a free lock. Each model twice: without time, where
//! wake-ups have to do, and with time, where a release may be overlooked and one sleeper watches.
#![cfg(loom)]

use keyqueue::Lock;
use loom_tests::{check, with};
use std::sync::Arc;

/// So many threads, this one among them, take the lock so many times each.
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

/// One goes to bed while the other releases.
#[test]
fn a_sleeper_is_woken() {
    contend(2, 1, false);
}

#[test]
fn a_sleeper_is_woken_or_watches() {
    contend(2, 1, true);
}

/// Who was woken finds the lock taken again, and goes back to bed.
#[test]
fn a_sleeper_that_came_too_late_is_woken_again() {
    contend(2, 2, false);
}

#[test]
fn a_sleeper_that_came_too_late_is_woken_again_or_watches() {
    contend(2, 2, true);
}

/// One release wakes one; who was woken wakes the next.
#[test]
fn sleepers_wake_each_other() {
    contend(3, 1, false);
}

#[test]
fn sleepers_wake_each_other_or_watches() {
    contend(3, 1, true);
}

/// With three it is the second who watches; and who is late is given the lock.
#[test]
fn three_sleepers_wake_each_other() {
    contend(4, 1, false);
}

#[test]
fn sleepers_that_come_back_wake_each_other() {
    contend(3, 2, false);
}

/// What was written under the lock is seen under it; a release of the lock in a panic is one, too.
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
