//! Where no thread can be started: in a process of its own, in which each stack that a thread is given is larger than memory.

use keyqueue::{Item, WorkQueue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs the test of this name again, in a process without threads; `false`: this is that process.
fn elsewhere(test: &str) -> bool {
    const STACK: &str = "RUST_MIN_STACK";
    if std::env::var_os(STACK).is_some() {
        let started = std::thread::Builder::new().spawn(|| ());
        assert!(started.is_err(), "a thread of any stack starts here");
        return false;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(STACK, (usize::MAX / 4).to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&child.stderr));
    true
}

/// What a call panics with.
fn panic_of<R>(call: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).err().expect("it panics");
    *payload.downcast::<String>().expect("a message")
}

#[test]
fn a_delay_is_set_all_the_same_and_the_next_one_tries_again() {
    if elsewhere("a_delay_is_set_all_the_same_and_the_next_one_tries_again") {
        return;
    }
    let queue = WorkQueue::new();
    for n in 1..=3 {
        assert!(panic_of(|| queue.add_after(n, HOUR)).contains("cannot start the thread"));
        assert_eq!(queue.delayed_len(), n);
    }
    queue.add(0);
    let item = queue.get().unwrap();
    assert!(panic_of(|| item.requeue_after(HOUR)).contains("cannot start the thread"));
    assert_eq!((queue.delayed_len(), queue.processing_len()), (4, 0), "done, and delayed");
}

#[test]
fn workers_say_so() {
    if elsewhere("workers_say_so") {
        return;
    }
    let queue = WorkQueue::<u8>::new();
    assert!(queue.workers().spawn(2, |_: &Item<'_, u8>| Ok::<(), std::fmt::Error>(())).is_err());
}
