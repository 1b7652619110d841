//! Streams of items where they meet `remove` and stops, in every order that a queue can have.
//!
//! What a stream does alone is in `streams.rs`. Checks: each key is handed out, taken back, or in the list of the stop, and never two of
//! these (P1, P2, P23); a stream whose key is taken back keeps its place.

#![cfg(feature = "stream")]

mod support {
    pub(crate) mod modes;
    pub(crate) mod tasks;
    pub(crate) mod within;
}

use futures_executor::block_on;
use futures_util::stream::{FusedStream, StreamExt};
use keyqueue::{Added, ItemStream, OwnedItem, WorkQueue};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use support::modes::{Key, MODES};
use support::tasks::Calls;
use support::within::within_30_s;

fn poll<K>(stream: &mut ItemStream<K>, calls: &Arc<Calls>) -> Poll<Option<OwnedItem<K>>> {
    stream.poll_next_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(calls))))
}

/// The key for which a stream was woken is taken back: the stream waits on, keeps its place before younger getters, and is woken again.
#[test]
fn a_stream_whose_key_is_taken_back_keeps_its_place() {
    for (mode, builder) in MODES {
        let queue = builder().build();
        let [first, second] = [(); 2].map(|()| Arc::<Calls>::default());
        let (mut older, mut younger) = (queue.stream(), queue.stream());
        assert!(poll(&mut older, &first).is_pending());
        assert!(poll(&mut younger, &second).is_pending());
        for n in 1..4 {
            queue.add((1, n));
            assert!(queue.remove(&(1, n)), "{mode}");
            assert_eq!((first.count(), second.count()), (n as usize, 0), "{mode}");
            assert!(poll(&mut older, &first).is_pending() && !older.is_terminated(), "{mode}");
            assert_eq!(queue.stats().waiters, 2);
        }
        // It is woken for a key that is taken back, and dropped before it is polled. The key that came next goes to the other.
        queue.add((1, 8));
        assert!(queue.remove(&(1, 8)));
        queue.add((1, 9));
        assert_eq!(second.count(), 1, "{mode}: the woken task does not count");
        drop(older);
        let Poll::Ready(Some(item)) = poll(&mut younger, &second) else { panic!("{mode}: the key is lost") };
        assert_eq!(*item, (1, 9));
    }
}

/// A stream that waits for a key of a full group ends when that key is taken back after the shut-down, and so does one that was woken.
#[test]
fn streams_end_when_the_last_key_is_taken_back() {
    for stopped in [false, true] {
        let queue = WorkQueue::builder().fair_by(|key: &Key| key.0).max_processing_per_group(1).build();
        let workers = queue.workers().build();
        queue.add_all([(0, 0), (0, 1)]);
        let mut stream = queue.stream();
        let calls = Arc::<Calls>::default();
        let Poll::Ready(Some(item)) = poll(&mut stream, &calls) else { panic!("two keys are queued") };
        assert!(poll(&mut stream, &calls).is_pending(), "the group is full");
        if stopped {
            let left = workers.stop();
            assert_eq!((left.queued, left.processing), (vec![(0, 1)], vec![(0, 0)]));
        } else {
            queue.shut_down();
            assert!(poll(&mut stream, &calls).is_pending(), "a key is queued");
            let before = calls.count();
            assert!(queue.remove(&(0, 1)));
            assert!(calls.count() > before);
        }
        assert!(matches!(poll(&mut stream, &calls), Poll::Ready(None)) && stream.is_terminated());
        item.done();
        assert_eq!((queue.len(), queue.processing_len(), queue.stats().waiters), (0, 0, 0));
    }
}

/// Streams and other getters of several threads, some of them dropped while they are woken, beside `remove` and then a stop: each key
/// is handed out, taken back or in the leftover.
#[test]
fn streams_lose_no_key_beside_remove_and_stop() {
    const KEYS: u32 = 3_000;
    for (mode, builder) in MODES {
        within_30_s(move || {
            let queue = builder().build();
            let workers = queue.workers().build();
            let worked = Mutex::new(Vec::new());
            let take = |item: OwnedItem<Key>| worked.lock().unwrap().push(*item);
            let (removed, left) = thread::scope(|scope| {
                scope.spawn(|| block_on(queue.stream().for_each_concurrent(4, async |item| take(item))));
                scope.spawn(|| block_on(queue.stream().take(100).for_each(async |item| take(item))));
                // Woken, and dropped without another poll.
                scope.spawn(|| {
                    while !queue.shutting_down() {
                        let mut stream = queue.stream();
                        let calls = Arc::<Calls>::default();
                        if let Poll::Ready(Some(item)) = poll(&mut stream, &calls) {
                            take(item);
                        }
                        _ = poll(&mut stream, &calls).map(|item| item.map(take));
                    }
                });
                let remover = scope.spawn(|| {
                    let mut random = fastrand::Rng::with_seed(3);
                    let mut removed = Vec::new();
                    while !queue.shutting_down() {
                        let n = random.u32(0..KEYS);
                        removed.extend(queue.remove(&(n % 4, n)).then_some((n % 4, n)));
                    }
                    removed
                });
                (0..KEYS).for_each(|n| assert_eq!(queue.add((n % 4, n)), Added::Queued));
                let left = workers.stop();
                (remover.join().unwrap(), left)
            });
            let mut all = [worked.into_inner().unwrap(), removed, left.queued].concat();
            all.sort_unstable();
            let mut expected = Vec::from_iter((0..KEYS).map(|n| (n % 4, n)));
            expected.sort_unstable();
            assert_eq!(all, expected, "{mode}");
            assert_eq!((queue.len(), queue.processing_len(), queue.stats().waiters), (0, 0, 0), "{mode}");
        });
    }
}

/// One stream ends a handler's work by a stop of other workers of the queue, from within the loop that polls it.
#[test]
fn a_stop_in_the_loop_of_a_stream_ends_it() {
    for (mode, builder) in MODES {
        let queue = builder().build();
        let workers = queue.workers().build();
        queue.add_all((0..10).map(|n| (n, n)));
        let seen = block_on(queue.stream().fold(0, async |seen, item| {
            let left = workers.stop();
            assert_eq!((left.processing, left.queued.len()), (vec![*item], 9), "{mode}");
            seen + 1
        }));
        assert_eq!((seen, queue.processing_len()), (1, 0), "{mode}");
    }
}
