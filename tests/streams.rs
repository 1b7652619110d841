//! `WorkQueue::stream` (feature `stream`): what a stream yields, when it ends, and that dropping one loses no key and no wake-up (P1, P2).
//!
//! It has models in `loom-tests/`, too: `a_dropped_stream_forwards_its_wake_up`, `a_stream_ends_beside_a_drain_and_a_remove`, and those of
//! what it shares with `get_async` (registration, hand-out, leaving the list): `cancelled_getter_forwards_wakeup`,
//! `a_cancelled_getter_forwards_its_wake_up`.
#![cfg(feature = "stream")]

mod support {
    pub(crate) mod tasks;
}

use futures_executor::block_on;
use futures_util::future::{Either, select};
use futures_util::stream::{FusedStream, StreamExt};
use keyqueue::{Added, Item, ItemStream, OwnedItem, WorkQueue};
use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use support::tasks::Calls;

fn poll<K>(stream: &mut ItemStream<K>, calls: &Arc<Calls>) -> Poll<Option<OwnedItem<K>>> {
    stream.poll_next_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(calls))))
}

#[test]
fn a_stream_waits_after_each_item_and_is_woken_by_the_next_add() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    let mut stream = queue.stream();
    for n in 1..=3 {
        assert!(poll(&mut stream, &calls).is_pending());
        assert_eq!((queue.stats().waiters, calls.count()), (1, n - 1));
        queue.add(n);
        assert_eq!(calls.count(), n);
        let Poll::Ready(Some(item)) = poll(&mut stream, &calls) else { panic!("woken, and no key") };
        assert_eq!((*item, queue.processing_len(), queue.stats().waiters), (n, 1, 0));
    }
    assert!(!stream.is_terminated());
}

#[test]
fn a_stream_yields_what_is_queued_before_it_ends_and_stays_ended() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2]);
    let mut stream = queue.stream();
    let held = block_on(stream.next()).unwrap();
    assert_eq!(queue.add(1), Added::Deferred);
    queue.shut_down();
    assert_eq!(*block_on(stream.next()).unwrap(), 2);
    for _ in 0..2 {
        assert!(block_on(stream.next()).is_none());
        assert!(stream.is_terminated());
    }
    held.done(); // which queues key 1 again
    assert!(block_on(stream.next()).is_none());
    assert_eq!(queue.len(), 1);
    assert_eq!(block_on(queue.stream().map(|item| *item).collect::<Vec<_>>()), [1], "another stream takes it");
}

#[test]
fn a_shut_down_ends_all_streams() {
    let queue = WorkQueue::<u8>::new();
    let mut streams = [(); 3].map(|()| (queue.stream(), Arc::<Calls>::default()));
    assert!(streams.iter_mut().all(|(stream, calls)| poll(stream, calls).is_pending()));
    queue.shut_down();
    for (stream, calls) in &mut streams {
        assert_eq!(calls.count(), 1);
        assert!(matches!(poll(stream, calls), Poll::Ready(None)));
    }
    assert_eq!(queue.stats().waiters, 0);
}

#[test]
fn a_woken_stream_that_is_dropped_forwards_its_wake_up() {
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).build();
        let [first, second] = [(); 2].map(|()| Arc::<Calls>::default());
        let (mut dropped, mut last) = (queue.stream(), queue.stream());
        assert!(poll(&mut dropped, &first).is_pending());
        assert!(poll(&mut last, &second).is_pending());
        queue.add(1);
        assert_eq!((first.count(), second.count()), (1, 0), "the stream that waits longest is woken first");
        drop(dropped);
        assert_eq!(second.count(), 1, "the next is woken");
        assert_eq!((Arc::strong_count(&first), queue.stats().waiters), (1, 0), "its waker is dropped with it");
        let Poll::Ready(Some(item)) = poll(&mut last, &second) else { panic!("the key is lost") };
        assert_eq!(*item, 1);
    }
}

/// Many streams are cancelled at any moment while keys are added and others are taken: each key is handed out once.
#[test]
fn cancelled_streams_lose_no_key() {
    const KEYS: usize = 2000;
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).build();
        let worked = Mutex::new(HashSet::new());
        let take = |item: OwnedItem<usize>| assert!(worked.lock().unwrap().insert(*item), "once");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| block_on(queue.stream().for_each_concurrent(4, async |item| take(item))));
            }
            for _ in 0..2 {
                // A new stream for each key, which races another getter and is dropped with it.
                scope.spawn(|| {
                    block_on(async {
                        loop {
                            let mut stream = queue.stream();
                            let item = match select(pin!(queue.get_async()), stream.next()).await {
                                Either::Left((item, _)) => item.map(Item::into_owned),
                                Either::Right((item, _)) => item,
                            };
                            let Some(item) = item else { break };
                            take(item);
                        }
                    });
                });
            }
            (0..KEYS).for_each(|key| assert_eq!(queue.add(key), Added::Queued));
            queue.shut_down_with_drain();
        });
        assert_eq!(worked.into_inner().unwrap().len(), KEYS);
    }
}

#[test]
fn a_stream_and_its_items_outlive_the_handle() {
    let queue = WorkQueue::new();
    queue.add("pod-1".to_owned());
    queue.shut_down();
    let stream = queue.stream();
    drop(queue);
    let keys = thread::spawn(|| block_on(stream.collect::<Vec<_>>())).join().unwrap();
    assert_eq!(*keys[0], "pod-1");
    assert_eq!(keys.len(), 1);
}

/// The loop that the docs show: a key that was added again while the stream ended is taken by the next stream, so a drain ends.
#[test]
fn another_stream_takes_what_was_added_again_while_one_ended() {
    let queue = WorkQueue::new();
    queue.add(1);
    let (mut runs, mut streams) = (0, 0);
    block_on(async {
        loop {
            let mut stream = queue.stream();
            streams += 1;
            let mut held = Vec::new();
            while let Some(item) = stream.next().await {
                runs += 1;
                if runs == 1 {
                    assert_eq!(queue.add(1), Added::Deferred);
                    queue.shut_down();
                }
                held.push(item);
            }
            drop(held);
            if queue.is_empty() {
                break;
            }
        }
    });
    assert_eq!((runs, streams), (2, 2));
    queue.shut_down_with_drain();
}
