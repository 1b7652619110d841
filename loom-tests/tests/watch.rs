//! Tasks that wait for the next add of a held key (`until_dirty`): watchers.

use keyqueue::{Added, OwnedItem, UntilDirty, WorkQueue};
use loom::future::block_on;
use loom_tests::{Tally, check, with};
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
