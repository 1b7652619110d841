//! Groups with limits, rates and pauses that change while the queue runs.

use keyqueue::{Clock, Driver, GroupLimits, Item, MockClock, Outcome, WorkQueue, WorkQueueBuilder};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

type Key = (u32, u32);
const SEC: Duration = Duration::from_secs(1);

fn builder() -> (WorkQueueBuilder<Key>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    (builder.fair_by(|&(group, _)| group), time)
}

fn queue() -> (WorkQueue<Key>, MockClock) {
    let (builder, time) = builder();
    (builder.build(), time)
}

fn take(queue: &WorkQueue<Key>) -> Option<Key> {
    queue.try_get().ok().map(|item| *item)
}

fn take_all(queue: &WorkQueue<Key>) -> Vec<Key> {
    std::iter::from_fn(|| take(queue)).collect()
}

fn limit(keys: usize) -> GroupLimits {
    GroupLimits::new().max_processing(keys)
}

/// Runs a handler for the keys that are ready.
fn work(queue: &WorkQueue<Key>, mut handler: impl FnMut(Key) -> Outcome) {
    let workers = queue.workers().build();
    let mut run = pin!(workers.run_async(async |item: &Item<'_, Key>| handler(**item)));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// The key comes back after the delay, and so does its group, while other groups go on. No failure is counted.
#[test]
fn a_handler_pauses_its_group() {
    let (queue, time) = queue();
    queue.add_all([(1, 0), (1, 1), (2, 0), (1, 2)]);
    let mut seen = Vec::new();
    work(&queue, |key| {
        seen.push(key);
        let error = "429".into();
        if key == (1, 0) { Outcome::PauseGroup { delay: 30 * SEC, error } } else { Outcome::Success }
    });
    assert_eq!(seen, [(1, 0), (2, 0)]);
    assert_eq!((queue.len(), queue.delayed_len(), queue.num_requeues(&(1, 0))), (2, 1, 0));
    queue.add((1, 3));
    time.advance(30 * SEC - Duration::from_nanos(1));
    queue.turn();
    assert_eq!(take(&queue), None);
    time.advance(Duration::from_nanos(1));
    queue.turn();
    assert_eq!(take_all(&queue), [(1, 1), (1, 2), (1, 3), (1, 0)]);
}
