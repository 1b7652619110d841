//! Tasks that wait for the next add of a held key (`until_dirty`): watchers.
#![cfg(loom)]

use keyqueue::{Added, OwnedItem, UntilDirty, WorkQueue};
use loom::future::block_on;
use loom_tests::{Nosy, Tally, check, manual, ns, rest, with};
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Future<'i, K> = Pin<Box<UntilDirty<'i, K>>>;

/// Adds a key, takes it, and returns its item.
fn held<K: Hash + Eq + Clone + Send + Sync + 'static>(queue: &WorkQueue<K>, key: K) -> OwnedItem<K> {
    assert_eq!(queue.add(key), Added::Queued);
    queue.get().unwrap().into_owned()
}

fn poll<K>(future: &mut Future<'_, K>, waker: &Waker) -> Poll<()> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// A future that waits, and the counter of its waker.
fn watching<K>(item: &OwnedItem<K>) -> (Future<'_, K>, std::sync::Arc<Tally>) {
    let (tally, waker) = Tally::new();
    let mut future = Box::pin(item.until_dirty());
    assert!(poll(&mut future, &waker).is_pending());
    (future, tally)
}

/// A watcher races an add of its key: it sees the add, or the add wakes it.
#[test]
fn add_races_the_watcher() {
    check(|| {
        let queue = WorkQueue::new();
        let item = held(&queue, 1_u64);
        let other = with(&queue, |queue| queue.add(1));
        block_on(item.until_dirty());
        assert!(item.is_dirty());
        assert_eq!(other.join().unwrap(), Added::Deferred);
    });
}

/// One of two watchers is dropped while the key is added: the other is woken. Later watchers of the same slot are not confused
/// with either.
#[test]
fn add_races_the_drop_of_a_watcher() {
    check(|| {
        let queue = WorkQueue::new();
        let item = held(&queue, 1_u64);
        let (dropped, dropped_tally) = watching(&item);
        let (mut stays, tally) = watching(&item);
        let other = with(&queue, |queue| queue.add(1));
        drop(dropped);
        assert_eq!(other.join().unwrap(), Added::Deferred);
        assert_eq!(tally.count(), 1);
        assert!(poll(&mut stays, Waker::noop()).is_ready());
        let woken = dropped_tally.count();
        assert!(woken <= 1);
        drop(stays);
        item.done();

        let item = queue.get().unwrap().into_owned();
        let (_next, next) = watching(&item);
        let (gone, gone_tally) = watching(&item);
        drop(gone);
        queue.add(1);
        assert_eq!((dropped_tally.count(), tally.count(), next.count(), gone_tally.count()), (woken, 1, 1, 0));
    });
}

/// The `done` of a key with a leaked watcher races an add: the waker is woken only if the add comes first.
#[test]
fn leaked_watcher_is_woken_once() {
    check(|| {
        let queue = WorkQueue::new();
        let item = held(&queue, 1_u64);
        let (future, leaked) = watching(&item);
        std::mem::forget(future);
        let other = with(&queue, |queue| queue.add(1));
        item.succeed();
        let added = other.join().unwrap();
        assert_eq!(leaked.count(), usize::from(added == Added::Deferred));
        assert_eq!(queue.len(), 1);
    });
}

/// No waker of a watcher is woken or dropped under the lock: not by an add, `done`, a turn, a second poll, or the drop of a future (W4).
#[test]
fn watchers_are_woken_and_dropped_without_the_lock() {
    let ways: [fn(&WorkQueue<Nosy>); 2] =
        [|queue| _ = queue.add(Nosy(1, queue.clone())), |queue| assert_eq!(queue.turn(), 1)];
    for dirty in ways {
        check(move || {
            let (queue, time) = manual();
            let queue = queue.build();
            let key = |key| Nosy(key, queue.clone());
            let items = [1, 2].map(|number| held(&queue, key(number)));
            queue.add_after(key(1), ns(10));
            time.advance(ns(10));
            {
                let [of_one, of_one_too, of_two] =
                    [&items[0], &items[0], &items[1]].map(|item| Box::pin(item.until_dirty()));
                let mut futures = [of_one, of_one_too, of_two];
                let mut poll = |at: usize| {
                    let waker = Waker::from(std::sync::Arc::new(key(0)));
                    // The list now has the only other clone of the waker.
                    _ = self::poll(&mut futures[at], &waker);
                };
                (0..3).for_each(&mut poll);
                let other = with(&queue, dirty);
                poll(0);
                let [_, dropped, leaked] = futures;
                drop(dropped);
                std::mem::forget(leaked);
                other.join().unwrap();
            }
            // This wakes the waker of the leaked watcher.
            queue.add(key(2));
            _ = items.map(OwnedItem::done);
            rest(&queue);
            _ = queue.take_delayed();
        });
    }
}
