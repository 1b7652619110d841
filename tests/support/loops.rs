//! The ways in which a loop of workers can be run, and one loop, run to its end.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use super::manual::manual;
use futures_executor::block_on;
use keyqueue::rate_limiter::ItemFastSlow;
use keyqueue::{IntoOutcome, Item, WorkQueue, WorkQueueBuilder, Workers, WorkersBuilder};
use std::future::poll_fn;
use std::hash::Hash;
use std::task::Poll;
use std::time::Duration;

/// How a loop is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Spawned,
    Here,
    /// On `futures-executor`.
    Task,
    /// On tokio, with several threads.
    Tokio,
}

pub(crate) const WAYS: [Way; 4] = [Way::Spawned, Way::Here, Way::Task, Way::Tokio];

/// Pending once, so that a handler is polled twice.
pub(crate) fn yield_once() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
    })
}

pub(crate) fn tokio(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap()
}

/// A builder of queues whose limiter retries without a delay.
pub(crate) fn no_backoff<K: Hash + Eq + Clone + Send + Sync + 'static>() -> WorkQueueBuilder<K> {
    manual(WorkQueue::builder()).0.rate_limiter(ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0))
}

/// Runs one loop until the queue is shut down and empty.
pub(crate) fn run<K, R>(
    way: Way,
    builder: WorkersBuilder<K>,
    handler: impl Fn(&Item<'_, K>) -> R + Send + Sync + 'static,
) -> Workers<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: IntoOutcome + Send + 'static,
{
    if way == Way::Spawned {
        let workers = builder.spawn(1, handler).unwrap();
        workers.join();
        assert_eq!(workers.tally().running, 0);
        return workers;
    }
    let workers = builder.build();
    if way == Way::Here {
        workers.run(handler);
    } else {
        let work = workers.run_async(async move |item: &Item<'_, K>| {
            yield_once().await;
            handler(item)
        });
        match way {
            Way::Task => block_on(work),
            _ => tokio(2).block_on(async { tokio::spawn(work).await.expect("a loop passes no panic on") }),
        }
    }
    assert_eq!(workers.tally().running, 0);
    workers
}
