//! Tasks that wait for the next add of a held key (`until_dirty`): watchers.
#![cfg(loom)]

use keyqueue::{AddOptions, Added, Clock, DelayConflict, DelayedAdd, Driver, OwnedItem, UntilDirty, WorkQueue};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::sync::Arc;
use loom_tests::{Nosy, Tally, check, ns, rest, with};
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

/// Writes before an add are visible to the watcher that it wakes.
#[test]
fn add_publishes_to_the_watcher() {
    check(|| {
        let shared = Arc::new((UnsafeCell::new(0), WorkQueue::new()));
        let item = held(&shared.1, 1_u64);
        let other = with(&shared, |shared| {
            // SAFETY: the read comes after the add.
            shared.0.with_mut(|value| unsafe { *value = 7 });
            shared.1.add(1);
        });
        block_on(item.until_dirty());
        // SAFETY: the write comes before the add.
        assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
        other.join().unwrap();
    });
}

/// One add wakes two watchers of its key.
#[test]
fn add_wakes_all_watchers() {
    check(|| {
        let queue = WorkQueue::new();
        let item = Arc::new(held(&queue, 1_u64));
        let other = with(&item, |item| block_on(item.until_dirty()));
        let adder = with(&queue, |queue| queue.add(1));
        block_on(item.until_dirty());
        other.join().unwrap();
        adder.join().unwrap();
    });
}

/// A watcher that waits, or is about to, races `dirty`, which makes the held key dirty.
fn wakes_the_watcher(prepare: fn(&WorkQueue<u64>), dirty: fn(&WorkQueue<u64>)) {
    check(move || {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(DelayedAdd::Strict).build();
        let item = held(&queue, 1_u64);
        prepare(&queue);
        time.advance(ns(10));
        let other = with(&queue, dirty);
        block_on(item.until_dirty());
        other.join().unwrap();
        item.done();
        assert_eq!(queue.len(), 1);
    });
}

fn delay(queue: &WorkQueue<u64>) {
    assert_eq!(queue.add_after(1, ns(10)), Added::Delayed);
}

fn delay_and_add(queue: &WorkQueue<u64>) {
    delay(queue);
    assert_eq!(queue.add(1), Added::Coalesced);
}

#[test]
fn turn_wakes_the_watcher() {
    wakes_the_watcher(delay, |queue| assert_eq!(queue.turn(), 1));
}

#[test]
fn cancel_wakes_the_watcher() {
    wakes_the_watcher(delay_and_add, |queue| assert!(queue.cancel(&1)));
}

#[test]
fn replace_wakes_the_watcher() {
    wakes_the_watcher(delay, |queue| {
        assert_eq!(queue.add_with(1, AddOptions::new().conflict(DelayConflict::Replace)), Added::Deferred);
    });
}

#[test]
fn add_all_wakes_the_watcher() {
    wakes_the_watcher(|_| {}, |queue| assert_eq!(queue.add_all([1]), 1));
}

/// The expiry of a delay by the driver thread wakes the watcher.
#[test]
fn driver_wakes_the_watcher() {
    check(|| {
        let queue = WorkQueue::builder().capacity(8).build();
        let item = held(&queue, 1_u64);
        queue.add_after(1, ns(1));
        block_on(item.until_dirty());
        assert_eq!(queue.delayed_len(), 0);
        queue.shut_down();
    });
}

/// A watcher that is polled again is woken through the waker of its last poll.
#[test]
fn repolled_watcher_wakes_its_last_waker() {
    check(|| {
        let queue = WorkQueue::new();
        let item = held(&queue, 1_u64);
        let (mut future, first) = watching(&item);
        let other = with(&queue, |queue| queue.add(1));
        let (last, waker) = Tally::new();
        let polled = poll(&mut future, &waker);
        other.join().unwrap();
        if polled.is_pending() {
            assert_eq!((first.count(), last.count()), (0, 1), "the add came after the second poll");
            assert!(poll(&mut future, &waker).is_ready());
        } else {
            assert_eq!((first.count(), last.count()), (1, 0));
        }
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

/// An add does not wake the watcher of another key.
#[test]
fn watcher_waits_for_its_own_key() {
    check(|| {
        let queue = WorkQueue::new();
        let (item, other) = (held(&queue, 1_u64), held(&queue, 2));
        let (_of_one, one) = watching(&item);
        let (mut of_two, two) = watching(&other);
        let adder = with(&queue, |queue| queue.add(1));
        assert!(poll(&mut of_two, Waker::noop()).is_pending());
        adder.join().unwrap();
        assert_eq!((one.count(), two.count()), (1, 0));
    });
}

/// A leaked watcher leaves its waker in the list, and an add of another key in its slot may wake that waker. The other key's own
/// watcher is woken, too.
#[test]
fn leaked_watcher_hides_no_other() {
    check(|| {
        let queue = WorkQueue::new();
        let item = held(&queue, 1_u64);
        let (future, leaked) = watching(&item);
        std::mem::forget(future);
        // One of the two slots is free, or both are.
        let other = with(&queue, |queue| queue.add(2));
        item.done();
        other.join().unwrap();
        queue.add(3);
        let items = [(); 2].map(|()| queue.get().unwrap().into_owned());
        for item in &items {
            let (_future, own) = watching(item);
            assert_eq!(queue.add(**item), Added::Deferred);
            assert_eq!(own.count(), 1);
        }
        assert!(leaked.count() <= 1);
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
            let (clock, time) = Clock::mock();
            let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
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
