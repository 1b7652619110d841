//! Where no thread can be started: each test runs in a process of its own, in which a thread's stack is larger than memory.

use keyqueue::observe::Observer;
use keyqueue::{Added, Item, WorkQueue};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// With 32 bits, larger than any gap between what is mapped already; with 64, `pthread` refuses more.
const LARGER_THAN_MEMORY: usize = if usize::BITS == 32 { usize::MAX / 16 * 15 } else { usize::MAX / 4 };

/// Runs the test of this name again, in a child process that cannot start threads and calls `body`.
fn in_a_child(test: &str, body: impl FnOnce()) {
    const STACK: &str = "RUST_MIN_STACK";
    if std::env::var_os(STACK).is_some() {
        let started = std::thread::Builder::new().spawn(|| ());
        assert!(started.is_err(), "the system starts a thread with a stack of any size");
        return body();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(STACK, LARGER_THAN_MEMORY.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&child.stderr));
}

/// Counts the failures that are reported to it.
#[derive(Clone, Default)]
struct Failures(Arc<AtomicU64>);

impl Observer for Failures {
    fn driver_failed(&self, error: &std::io::Error) {
        assert!(!error.to_string().is_empty());
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_delay_is_set_and_the_driver_failure_is_reported() {
    in_a_child("a_delay_is_set_and_the_driver_failure_is_reported", || {
        let reported = Failures::default();
        let queue = WorkQueue::builder().observer(reported.clone()).build();
        for n in 1..=3 {
            assert_eq!(queue.add_after(n, HOUR), Added::Delayed);
            assert_eq!(queue.delayed_len(), n);
        }
        queue.add(0);
        assert_eq!(queue.get().unwrap().requeue_after(HOUR), Added::Delayed);
        assert_eq!((queue.delayed_len(), queue.processing_len()), (4, 0), "done and delayed");
        let failures = queue.stats().driver_failures;
        assert!(failures >= 1 && failures == reported.0.load(Ordering::Relaxed));
    });
}

#[test]
fn a_parked_getter_queues_expired_keys_in_place_of_the_driver() {
    in_a_child("a_parked_getter_queues_expired_keys_in_place_of_the_driver", || {
        let queue = WorkQueue::new();
        let (begin, delay) = (Instant::now(), Duration::from_millis(20));
        queue.add_after(2, 2 * delay);
        queue.add_after(1, delay);
        for n in 1..=2 {
            assert_eq!(*queue.get().unwrap(), n);
            assert!(begin.elapsed() >= n * delay, "never early");
        }
        assert!(queue.get_timeout(Duration::from_millis(1)).is_err(), "the getter's own time-out applies, too");
        queue.add_after(3, delay);
        assert_eq!(queue.get_timeout(HOUR).map(|item| *item), Ok(3));
    });
}

/// The idle waiter queues the expired key, and goes on waiting because the key has to be processed.
#[test]
fn an_idle_waiter_queues_expired_keys_in_place_of_the_driver() {
    in_a_child("an_idle_waiter_queues_expired_keys_in_place_of_the_driver", || {
        let queue = WorkQueue::new();
        queue.add_after(1, Duration::from_millis(20));
        assert!(queue.wait_idle_timeout(Duration::from_millis(60)).is_err(), "queued, but not processed");
        assert_eq!((queue.len(), queue.delayed_len()), (1, 0));
        queue.try_get().unwrap().done();
        assert_eq!(queue.wait_idle_timeout(HOUR), Ok(()));
    });
}

#[test]
fn spawning_workers_returns_an_error() {
    in_a_child("spawning_workers_returns_an_error", || {
        let queue = WorkQueue::<u8>::new();
        assert!(queue.workers().spawn(2, |_: &Item<'_, u8>| Ok::<(), std::fmt::Error>(())).is_err());
    });
}
