//! Pauses of the whole queue. The random lives of `reference/` have them, too, and judge each hand-out; here is what takes threads, real time or a
//! driver thread, and what a lock-free queue does.

#[path = "support/tasks.rs"]
mod tasks;
#[path = "support/until.rs"]
mod until;

use futures_core::Stream;
use keyqueue::{Clock, Driver, GetTimeoutError, GroupLimits, TryGetError, WorkQueue, WorkQueueBuilder};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tasks::{Calls, poll};
use until::wait_until;

const MS: Duration = Duration::from_millis(1);
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(if cfg!(miri) { 3000 } else { 60 });

/// The kinds of queues that read the flag in different places.
fn kinds() -> Vec<(&'static str, WorkQueueBuilder<u32>)> {
    let builder = WorkQueue::builder;
    vec![
        ("plain", builder()),
        ("measured", builder().measure(true)),
        ("shards", builder().shards(4)),
        ("groups", builder().fair_by(|key: &u32| key % 3)),
        ("limits", builder().fair_by(|key: &u32| key % 3).max_processing_per_group(100)),
        ("groups in shards", builder().fair_by(|key: &u32| key % 3).shards(4)),
        ("a pace", builder().pace(1e6, 1000)),
        ("a pace, turned", builder().pace(1e6, 1000).driver(Driver::Manual)),
        #[cfg(feature = "lock-free")]
        ("lock-free", builder().lock_free()),
        #[cfg(feature = "lock-free")]
        ("lock-free shards", builder().lock_free().shards(4)),
    ]
}

/// All getters find nothing, and the calls that change or show the queue do what they always do.
#[test]
fn nothing_is_handed_out() {
    for (kind, builder) in kinds() {
        let queue = builder.build();
        queue.add_all(0..10);
        let held = queue.get().unwrap();
        queue.pause();
        queue.pause();
        assert!(queue.is_paused());
        queue.add(10);
        queue.add_after(11, Duration::ZERO);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "{kind}");
        assert_eq!(queue.get_timeout(MS).unwrap_err(), GetTimeoutError::Timeout, "{kind}");
        let task = Calls::new();
        let (mut get, mut owned) = (pin!(queue.get_async()), pin!(queue.get_owned_async()));
        let (mut batch, mut stream) = (pin!(queue.get_batch_async(3)), pin!(queue.stream()));
        assert!(poll(get.as_mut(), &task).is_pending() && poll(owned.as_mut(), &task).is_pending(), "{kind}");
        assert!(poll(batch.as_mut(), &task).is_pending(), "{kind}");
        let waker = std::task::Waker::noop();
        assert!(stream.as_mut().poll_next(&mut std::task::Context::from_waker(waker)).is_pending(), "{kind}");
        held.done();
        assert_eq!((queue.len(), queue.processing_len()), (11, 0), "{kind}");
        assert!(queue.remove(&10) && !queue.take_where(|key| *key == 9).queued.is_empty(), "{kind}");
        assert_eq!(task.count(), 0, "{kind}: a push wakes nobody");

        queue.resume();
        assert!(!queue.is_paused() && task.count() > 0, "{kind}");
        assert!(queue.try_get().is_ok(), "{kind}");
    }
}
