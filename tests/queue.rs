//! What the plain queue of `reference/` does not see: time-outs of calls that block, which getter is woken, when keys are dropped, what is
//! printed, unusual keys, and keys whose code panics (P13). That no add and no wake-up is lost with threads and
//! tasks in any form of waiting is in `delays_stress.rs`.

mod support {
    pub(crate) mod keys;
    pub(crate) mod tasks;
    pub(crate) mod until;
}

use futures_executor::block_on;
use keyqueue::{Added, GetTimeoutError, TryGetError, WorkQueue};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use support::keys::With;
use support::tasks::{Calls, poll};
use support::until::wait_until;

/// Panics without printing a message.
fn quiet_panic() -> ! {
    resume_unwind(Box::new(()))
}

// ---- getting ----

#[test]
fn get_timeout_waits_at_least_its_timeout() {
    let queue = WorkQueue::<u8>::new();
    let timeout = Duration::from_millis(20);
    let begin = Instant::now();
    assert!(queue.get_timeout(timeout).unwrap_err().is_timeout());
    assert!(begin.elapsed() >= timeout);
    assert_eq!(queue.stats().waiters, 0, "it left the wait list");
}

#[test]
fn get_timeout_with_a_huge_timeout_waits_for_a_key_or_the_shut_down() {
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(3600)] {
        for (is_added, expected) in [(true, Ok(1)), (false, Err(GetTimeoutError::ShutDown))] {
            let queue = WorkQueue::new();
            thread::scope(|s| {
                let getter = s.spawn(|| queue.get_timeout(timeout).map(|item| *item));
                wait_until(|| queue.stats().waiters == 1);
                if is_added {
                    _ = queue.add(1)
                } else {
                    queue.shut_down()
                }
                assert_eq!(getter.join().unwrap(), expected);
            });
        }
    }
}

// ---- adding ----

#[test]
fn a_woken_task_that_is_not_polled_does_not_keep_a_batch_from_the_threads() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    let mut waiting = pin!(queue.get_async());
    assert!(poll(waiting.as_mut(), &calls).is_pending());
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| while queue.get().is_some() {});
        }
        wait_until(|| queue.stats().waiters == 3);
        assert_eq!(queue.add_all(0..100), 100);
        wait_until(|| queue.is_empty());
        assert_eq!(calls.count(), 1, "it was woken, but is not polled");
        queue.shut_down_with_drain();
    });
}

// ---- items ----

#[test]
fn items_print_and_display_their_key() {
    let queue = WorkQueue::new();
    queue.add("pod-1");
    let item = queue.get().unwrap();
    assert_eq!((format!("{item}"), format!("{item:>6}")), ("pod-1".to_owned(), " pod-1".to_owned()));
    assert_eq!(format!("{item:?}"), "Item { key: \"pod-1\", is_dirty: false }");
    queue.add("pod-1");
    let item = item.into_owned();
    assert_eq!(format!("{item:<6}|"), "pod-1 |");
    assert_eq!(format!("{item:?}"), "OwnedItem { key: \"pod-1\", is_dirty: true }");
}

// ---- futures ----

/// They may go to another thread, and outlive the handle that they came from.
#[test]
fn owned_items_are_static() {
    fn is_static<T: Send + 'static>(item: T) -> T {
        item
    }
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let third = block_on(queue.get_owned_async()).unwrap();
    let items = [queue.get_owned().unwrap(), queue.try_get_owned().unwrap(), third];
    let other = queue.clone();
    drop(queue);
    thread::spawn(move || assert_eq!(is_static(items).map(|item| *item), [2, 3, 1])).join().unwrap();
    assert_eq!(other.processing_len(), 0);
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn polling_a_future_after_it_was_ready_panics() {
    let queue = WorkQueue::<u8>::new();
    queue.shut_down();
    let calls = Arc::<Calls>::default();
    let mut get = pin!(queue.get_async());
    assert!(poll(get.as_mut(), &calls).is_ready());
    let _ = poll(get.as_mut(), &calls);
}

// ---- messages and settings ----

#[test]
fn debug_shows_name_and_numbers_and_no_key() {
    let queue = WorkQueue::builder().name("pods").capacity(10).build();
    queue.add("secret");
    let _item = queue.get().unwrap();
    let shown = format!("{queue:?}");
    for part in ["WorkQueue", "\"pods\"", "processing: 1", "len: 0", "handed_out: 1"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("secret"));
    assert_eq!(queue.inspect().name(), "pods");
    assert!(format!("{:?}", WorkQueue::<u8>::builder().name("x")).contains("\"x\""));
}

#[test]
fn answers_and_errors_say_what_they_mean() {
    assert!(!Added::Rejected.is_accepted() && Added::Coalesced.is_accepted());
    let (empty, over, late) = (TryGetError::Empty, TryGetError::ShutDown, GetTimeoutError::Timeout);
    assert!(empty.is_empty() && over.is_shut_down() && late.is_timeout());
    let messages = [empty.to_string(), over.to_string(), late.to_string(), GetTimeoutError::ShutDown.to_string()];
    let over = "the queue is shut down and empty";
    assert_eq!(messages, ["no key is queued", over, "no key was queued in time", over]);
    let mut queue = WorkQueue::new();
    queue.extend([1, 2, 3]);
    let _item = queue.get();
    let error = queue.shut_down_with_drain_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "not drained in time: 2 queued, 1 processing");
}

#[test]
fn capacity_is_a_hint_and_no_limit() {
    const MANY: usize = if cfg!(miri) { 500 } else { 5000 };
    for capacity in [0, 1, 3, 1000] {
        let queue = WorkQueue::builder().capacity(capacity).build();
        assert_eq!(queue.add_all(0..MANY), MANY);
        assert_eq!(queue.add_all(0..MANY), 0);
        assert!((0..MANY).all(|key| *queue.get().unwrap() == key));
        queue.shrink_to_fit();
        assert_eq!(queue.add(1), Added::Queued);
    }
}

// ---- keys whose code panics or uses the queue ----

/// In a release build the thread would deadlock.
#[test]
#[cfg(debug_assertions)]
fn eq_that_uses_its_queue_panics_in_a_debug_build() {
    use std::hash::{Hash, Hasher};

    thread_local!(static BUSY_QUEUE: std::cell::RefCell<Option<WorkQueue<Reentrant>>> = const { std::cell::RefCell::new(None) });

    /// Uses the queue in `==`, which its docs forbid.
    #[derive(Debug, Clone)]
    struct Reentrant(u8);

    impl PartialEq for Reentrant {
        fn eq(&self, other: &Self) -> bool {
            BUSY_QUEUE.with_borrow(|queue| queue.as_ref().map(WorkQueue::stats));
            self.0 == other.0
        }
    }

    impl Eq for Reentrant {}

    impl Hash for Reentrant {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    let queue = WorkQueue::new();
    queue.add(Reentrant(1));
    queue.add_rate_limited(Reentrant(1)); // so that there are failures to forget
    BUSY_QUEUE.set(Some(queue.clone()));
    let calls: [&dyn Fn(); 3] =
        [&|| _ = queue.add(Reentrant(1)), &|| _ = queue.cancel(&Reentrant(1)), &|| queue.forget(&Reentrant(1))];
    for call in calls {
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        let message = panic.downcast_ref::<&str>().expect("a message");
        assert!(message.contains("must not use its queue"), "{message}");
    }
    BUSY_QUEUE.take();
    assert_eq!(queue.add(Reentrant(1)), Added::Coalesced, "the lock is free, and nothing has changed");
    assert_eq!(queue.len(), 1);
}

/// Counts its drops, and panics in some of them.
#[derive(Clone)]
struct CountedDrop {
    panics: bool,
    drops: Arc<AtomicUsize>,
}

impl Drop for CountedDrop {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            resume_unwind(Box::new("a drop"));
        }
    }
}

/// If the thread unwinds already, a second panic that left the queue's drop would abort the process.
#[test]
fn a_queue_drops_all_keys_even_if_some_drops_panic() {
    for panics in [(|number| number == 100) as fn(u32) -> bool, |number| number % 7 == 3] {
        for unwinds in [false, true] {
            let (queue, drops) = (WorkQueue::new(), Arc::new(AtomicUsize::new(0)));
            for number in 0..300 {
                queue.add(With(number, CountedDrop { panics: panics(number), drops: Arc::clone(&drops) }));
            }
            let panic = catch_unwind(AssertUnwindSafe(|| {
                let _queue = queue;
                if unwinds {
                    resume_unwind(Box::new("a holder"));
                }
            }));
            let expected = if unwinds { "a holder" } else { "a drop" };
            assert_eq!(panic.unwrap_err().downcast_ref(), Some(&expected), "the first panic propagates");
            assert_eq!(drops.load(Ordering::Relaxed), 300);
            assert_eq!(Arc::strong_count(&drops), 1, "every key is gone");
        }
    }
}

/// A waker that panics when it is dropped.
fn bad_to_drop() -> std::mem::ManuallyDrop<Waker> {
    use std::task::{RawWaker, RawWakerVTable};
    fn raw() -> RawWaker {
        static TABLE: RawWakerVTable = RawWakerVTable::new(|_| raw(), |_| (), |_| (), |_| quiet_panic());
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    // SAFETY: none of the functions looks at the pointer, and all may be called from anywhere.
    std::mem::ManuallyDrop::new(unsafe { Waker::from_raw(raw()) })
}

#[test]
fn a_waker_that_panics_when_dropped_loses_no_key() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    let mut get = Box::pin(queue.get_async());
    assert!(poll(get.as_mut(), &calls).is_pending());
    queue.add(1);
    // The poll clones its waker in case it has to wait, and drops the clone when it has a key.
    match get.as_mut().poll(&mut Context::from_waker(&bad_to_drop())) {
        Poll::Ready(Some(item)) => assert_eq!(*item, 1, "the task has its key"),
        other => panic!("{other:?}"),
    }
    drop(get);
    assert_eq!(queue.stats().caught_panics, 1);
}

#[test]
fn keys_may_be_zero_sized_large_or_overaligned() {
    let nothing = WorkQueue::new();
    assert_eq!(nothing.add(()), Added::Queued);
    assert_eq!(nothing.add(()), Added::Coalesced);
    nothing.get().unwrap().done();
    let large = WorkQueue::new();
    for n in 0..100_u64 {
        assert_eq!(large.add([n; 200]), Added::Queued);
    }
    assert!((0..100).all(|n| large.get().unwrap()[199] == n));

    #[derive(Clone, PartialEq, Eq, Hash)]
    #[repr(align(256))]
    struct Aligned(u8);
    let aligned = WorkQueue::new();
    aligned.add_all((0..100).map(Aligned));
    assert!(aligned.get_many(100).iter().all(|item| std::ptr::from_ref::<Aligned>(item).addr() % 256 == 0));
}
