//! A queue with two shards: getters sleep and are woken, drains and idle waits end, and the driver is told of deadlines, whichever shard
//! it comes from (`src/shared/hub.rs`).

use keyqueue::{Added, GetTimeoutError, WorkQueue};
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{check, ns, with};
use std::task::{Context, Waker};
use std::time::Duration;

const SOON: Duration = ns(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A queue with two shards, a key of the first, and a key of the second.
fn two_shards() -> (WorkQueue<u64>, u64, u64) {
    let queue = WorkQueue::builder().shards(2).build();
    let key_of = |shard| (0..100).find(|key| queue.shard_index(key) == shard).expect("half of the keys");
    let keys = (key_of(0), key_of(1));
    (queue, keys.0, keys.1)
}

fn getter(queue: &WorkQueue<u64>) -> thread::JoinHandle<u64> {
    with(queue, |queue| *queue.get().unwrap())
}

fn sorted<const N: usize>(mut keys: [u64; N]) -> [u64; N] {
    keys.sort_unstable();
    keys
}

/// A getter parks, or is about to, and a key is queued in the shard that it visits first, or last (W1, I6).
#[test]
fn a_push_meets_a_sleeper_in_each_shard() {
    for last in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            let parked = getter(&queue);
            let key = if last { second } else { first };
            queue.add(key);
            assert_eq!(parked.join().unwrap(), key);
        });
    }
}

/// The second push wakes no getter while the first woken one is on its way (W2). That getter then wakes the other, for a key of the other
/// shard.
#[test]
fn adds_to_two_shards_wake_two_getters() {
    check(|| {
        let (queue, first, second) = two_shards();
        let getters = [getter(&queue), getter(&queue)];
        queue.add(first);
        queue.add(second);
        assert_eq!(sorted(getters.map(|getter| getter.join().unwrap())), sorted([first, second]));
    });
}

/// A future that is first in the list is dropped while adds to both shards wake it; the wake-up goes on to the next getter (W3).
#[test]
fn a_cancelled_getter_forwards_its_wake_up() {
    for last in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            let mut future = Box::pin(queue.get_async());
            assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let parked = getter(&queue);
            let key = if last { second } else { first };
            let adder = with(&queue, move |queue| queue.add(key));
            drop(future);
            assert_eq!(parked.join().unwrap(), key);
            adder.join().unwrap();
        });
    }
}

/// A getter whose time is up races adds to both shards (W3). It returns with a key or without, and the other getter gets one.
#[test]
fn a_timed_out_getter_forwards_its_wake_up() {
    check(|| {
        let (queue, first, second) = two_shards();
        let parked = getter(&queue);
        let adder = with(&queue, move |queue| queue.add_all([first, second]));
        match queue.get_timeout(Duration::ZERO) {
            Ok(item) => item.done(),
            Err(error) => assert_eq!(error, GetTimeoutError::Timeout),
        }
        assert!([first, second].contains(&parked.join().unwrap()));
        adder.join().unwrap();
    });
}

/// A shut-down races an add (P6, I7). A getter gets each key that was accepted before it learns of the shut-down.
#[test]
fn a_getter_learns_of_the_shut_down_after_the_last_key() {
    for last in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            let key = if last { second } else { first };
            let getter = with(&queue, |queue| {
                let mut count = 0;
                while let Some(item) = queue.get() {
                    item.done();
                    count += 1;
                }
                count
            });
            let adder = with(&queue, move |queue| usize::from(queue.add(key).is_accepted()));
            queue.shut_down();
            // The getter does not go while an add may still be accepted.
            let (accepted, handed_out) = (adder.join().unwrap(), getter.join().unwrap());
            assert_eq!((handed_out, queue.len()), (accepted, 0));
            assert_eq!(queue.add(first), Added::Rejected);
            assert_eq!(queue.add(second), Added::Rejected);
        });
    }
}

/// A key is queued, and then the queue is shut down, while a getter visits the shards (P6, I7). The getter gets the key first.
#[test]
fn a_key_added_before_the_shut_down_is_handed_out() {
    for last in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            let other = with(&queue, move |queue| {
                assert_eq!(queue.add(if last { second } else { first }), Added::Queued);
                queue.shut_down();
            });
            assert!(queue.get().is_some());
            assert!(queue.get().is_none());
            other.join().unwrap();
        });
    }
}

/// A drain returns after the keys of both shards are done, and what their holders did is visible to it (P7).
#[test]
fn a_drain_waits_for_both_shards() {
    for is_task in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            queue.add_all([first, second]);
            let finished = Arc::new(AtomicUsize::new(0));
            let holders = [(); 2].map(|()| {
                let (item, finished) = (queue.try_get_owned().unwrap(), Arc::clone(&finished));
                thread::spawn(move || {
                    finished.fetch_add(1, Relaxed);
                    item.done();
                })
            });
            if is_task {
                block_on(queue.shut_down_with_drain_async());
            } else {
                queue.shut_down_with_drain();
            }
            assert_eq!(finished.load(Relaxed), 2);
            holders.into_iter().for_each(|holder| holder.join().unwrap());
        });
    }
}

/// A key of one shard leads to a key of the other, which an idle wait has visited before. It returns after both are done.
#[test]
fn an_idle_wait_sees_work_that_changes_shards() {
    for is_task in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            queue.add(second);
            let finished = Arc::new(AtomicUsize::new(0));
            let worker = {
                let (queue, finished) = (queue.clone(), Arc::clone(&finished));
                thread::spawn(move || {
                    let item = queue.try_get().unwrap();
                    queue.add(first);
                    item.done();
                    let item = queue.try_get().unwrap();
                    finished.fetch_add(1, Relaxed);
                    item.done();
                })
            };
            if is_task {
                block_on(queue.wait_idle_async());
            } else {
                queue.wait_idle();
            }
            assert_eq!(finished.load(Relaxed), 1);
            worker.join().unwrap();
        });
    }
}

/// The driver parks for the delay of one shard, or is about to, and a thread sets an earlier one in the other (I8).
#[test]
fn an_earlier_delay_in_the_other_shard_rearms_the_driver() {
    for last in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            let (far, soon) = if last { (first, second) } else { (second, first) };
            queue.add_after(far, HOUR);
            let other = with(&queue, move |queue| queue.add_after(soon, SOON));
            assert_eq!(queue.get().as_deref(), Some(&soon));
            assert_eq!(other.join().unwrap(), Added::Delayed);
            assert_eq!(queue.delayed_len(), 1);
            queue.shut_down();
        });
    }
}

/// A getter finds locks held, from none to all of its looks (P2, W1): it returns with the key, also if an add meets it, and a `try_get` says
/// only if it has looked that there is none.
#[test]
fn a_getter_comes_back_to_locks_that_were_held() {
    for looks in 0..=8 {
        check(move || {
            let (queue, first, second) = two_shards();
            queue.add(second);
            keyqueue::find_busy(looks);
            assert_eq!(queue.try_get().as_deref(), Ok(&second), "{looks} looks");
            keyqueue::find_busy(looks);
            let adder = with(&queue, move |queue| queue.add(first));
            assert_eq!(queue.get().as_deref(), Some(&first), "{looks} looks");
            adder.join().unwrap();
        });
    }
}

/// Lets the next get pass by both shards: it tries the lock of each and then waits for it, when it chooses one and when it visits all.
fn find_both_busy() {
    keyqueue::find_busy(8);
}

/// A task passes by the shard of a key (W5). The driver wakes it: one that is started for it, and one that parks for a delay, or is about
/// to.
#[test]
fn a_task_that_passes_by_a_busy_shard_is_woken() {
    for delayed in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            queue.add(first);
            if delayed {
                queue.add_after(second, HOUR);
            }
            find_both_busy();
            assert_eq!(block_on(queue.get_async()).as_deref(), Some(&first));
            queue.shut_down();
        });
    }
}

/// A task passes by while the driver is about to wake another, or has done so, or is about to park (W5).
#[test]
fn a_second_task_that_passes_by_is_woken() {
    check(|| {
        let (queue, first, _) = two_shards();
        let mut other = Box::pin(queue.get_async());
        find_both_busy();
        assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        queue.add(first); // it counts for the other
        find_both_busy();
        assert_eq!(block_on(queue.get_async()).as_deref(), Some(&first));
        drop(other);
        queue.shut_down();
    });
}

/// A task has passed by a busy shard, and is dropped while the driver takes it off the list and a key comes (W3, W5). A getter behind it on
/// the list gets the key.
#[test]
fn a_task_that_has_passed_by_forwards_its_wake_up() {
    check(|| {
        let (queue, first, _) = two_shards();
        let mut future = Box::pin(queue.get_async());
        find_both_busy();
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let parked = getter(&queue);
        queue.add(first);
        drop(future);
        assert_eq!(parked.join().unwrap(), first);
        queue.shut_down();
    });
}

/// A task passes by a busy shard before, while or after the queue is shut down (W5, P6). It learns of the shut-down, and the driver ends.
#[test]
fn a_task_that_passes_by_a_busy_shard_learns_of_the_shut_down() {
    for delayed in [false, true] {
        check(move || {
            let (queue, _, second) = two_shards();
            if delayed {
                queue.add_after(second, HOUR);
            }
            let task = with(&queue, |queue| {
                find_both_busy();
                block_on(queue.get_async()).is_none()
            });
            queue.shut_down();
            assert!(task.join().unwrap());
        });
    }
}

/// No driver can be started for the task, so it waits for the shard in its poll, while a key is queued there (W5).
#[test]
fn a_task_that_passes_by_waits_if_no_driver_starts() {
    for last in [false, true] {
        check(move || {
            let (queue, first, second) = two_shards();
            let key = if last { second } else { first };
            keyqueue::refuse_threads(true);
            let adder = with(&queue, move |queue| queue.add(key));
            // It passes by; the failing start looks for delays; it passes by again; and the visit that waits passes by at first.
            keyqueue::find_busy(22);
            assert_eq!(block_on(queue.get_async()).as_deref(), Some(&key));
            adder.join().unwrap();
            keyqueue::refuse_threads(false);
        });
    }
}
