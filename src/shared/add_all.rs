//! `add_all`: many adds, of which one critical section makes some in a queue with many keys.
//!
//! ```text
//!   iterator, Hash ─▶ staged keys ─▶ prefetch their buckets ─ lock ─ prefetch the slots there ─ add each ─ end ─▶ drop what was known
//! ```
//!
//! The look-up of a key reads a bucket and then a slot, and in a large table each of the two is a cache miss. Single adds wait for their
//! misses one after the other, because each lock waits for the loads before it, while the misses of staged keys overlap.
//!

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use super::section::Section;
use super::state::Wakeups;
use crate::Added;
use crate::key::KeyHash;
use crate::machine::How;
use crate::order::Group;
use crate::panics::contained;
use crate::sync::{Arc, model_const};
use std::hash::Hash;
use std::ops::Range;

/// The number of keys that are staged, and added in one critical section.
const AT_ONCE: usize = model_const(if cfg!(test) { 4 } else { 32 }, 2);

/// With fewer queued keys than this, everything that an add reads is in a near cache, and single adds are faster.
const MANY: usize = model_const(if cfg!(test) { 2 } else { 1 << 15 }, 0);

/// Larger keys are added one by one, because moving them would cost more than the misses.
const LARGEST: usize = 256;

/// The adds of one call.
struct Adding<'q, K> {
    shared: &'q Arc<Shared<K>>,
    queued: usize,
    deferred: usize,
}

/// Keys that are added next.
struct Stage<'a, 'q, K: Hash + Eq> {
    adding: &'a mut Adding<'q, K>,
    /// The first `staged` of these hold keys. A key that is still there after its add was known, and is dropped after the lock (W4).
    hands: [Option<K>; AT_ONCE],
    hashes: [KeyHash; AT_ONCE],
    staged: usize,
}

impl<K: Hash + Eq> Shared<K> {
    /// `add_all`.
    pub(crate) fn add_all(this: &Arc<Self>, keys: impl IntoIterator<Item = K>) -> usize {
        let mut adding = Adding { shared: this, queued: 0, deferred: 0 };
        let mut keys = keys.into_iter();
        let mut until_look = 1;
        while let Some(key) = keys.next() {
            adding.add(key);
            until_look -= 1;
            if until_look == 0 {
                if adding.may_stage() && has_many(&keys) {
                    return adding.add_many(keys);
                }
                until_look = AT_ONCE;
            }
        }
        adding.queued + adding.deferred
    }
}

/// Whether the iterator promises as many keys as are staged. Other iterators, such as that of a channel, may wait for their next key, which
/// must not keep staged keys back.
fn has_many(keys: &impl Iterator) -> bool {
    matches!(keys.size_hint(), (AT_ONCE.., Some(_)))
}

impl<K: Hash + Eq> Adding<'_, K> {
    #[inline(always)]
    fn add(&mut self, key: K) {
        self.queued += 1; // first, because an observer may panic when the key is queued
        let added = Shared::add(self.shared, key, Wakeups::Later);
        self.queued -= 1;
        self.count(added);
    }

    #[inline(always)]
    fn count(&mut self, added: Added) {
        self.queued += usize::from(added == Added::Queued);
        self.deferred += usize::from(added == Added::Deferred);
    }

    /// Keys are not staged with an observer, which may panic at each add, with groups, because each new key has to be asked for its own,
    /// with a bound, which each new key has to ask, or in a queue without a lock.
    fn may_stage(&self) -> bool {
        let shared = self.shared;
        let has_locks = shared.is_single() || shared.shards() > 1;
        let is_plain = !shared.is_observed() && !shared.needs_place();
        size_of::<K>() <= LARGEST && has_locks && is_plain && shared.ready() >= MANY
    }

    /// Adds all keys. A function of its own, so that the loop of a small queue keeps its iterator in registers.
    #[inline(never)]
    fn add_many(mut self, mut keys: impl Iterator<Item = K>) -> usize {
        let (hands, hashes) = ([const { None }; AT_ONCE], [KeyHash(0); AT_ONCE]);
        let mut stage = Stage { adding: &mut self, hands, hashes, staged: 0 };
        while has_many(&keys) {
            for key in keys.by_ref().take(AT_ONCE) {
                stage.put(key);
            }
            if stage.staged == 0 {
                break; // the iterator promised too much
            }
            stage.add();
        }
        drop(stage);
        for key in keys {
            self.add(key);
        }
        self.queued + self.deferred
    }
}

impl<K: Hash + Eq> Stage<'_, '_, K> {
    #[inline(always)]
    fn put(&mut self, key: K) {
        let hash = self.adding.shared.hash(&key);
        self.hands[self.staged] = Some(key);
        self.hashes[self.staged] = hash;
        self.staged += 1;
    }

    /// Adds the staged keys. If `Eq` panics, those after it are not added.
    fn add(&mut self) {
        let (shared, staged) = (self.adding.shared, std::mem::take(&mut self.staged));
        self.hashes[..staged].iter().for_each(|hash| shared.shard_of(*hash).prefetch_bucket(*hash));
        if shared.shards() == 1 {
            self.add_to(&shared.first, 0..staged);
        } else {
            for at in 0..staged {
                let locked = shared.shard_of(self.hashes[at]);
                shared.note_add(locked);
                self.add_to(locked, at..at + 1);
            }
        }
        if shared.has_extras() {
            Shared::ensure_driver(shared);
        }
    }

    #[inline(always)]
    fn add_to(&mut self, locked: &Locked<K>, these: Range<usize>) {
        let shared = self.adding.shared;
        let held = locked.lock();
        locked.publish_buckets(&held);
        if these.len() > 1 {
            self.hashes[these.clone()].iter().for_each(|hash| held.prefetch_first(*hash));
        }
        if shared.flags().without(Flags::AWAITED) == Flags::NONE {
            self.add_in(EndOnDrop(Some(shared.plain_section(held, shared.stamp))), these.clone());
        } else {
            let mut section = shared.section(held);
            section.mode.is_awaited = false; // `Wakeups::Later`
            self.add_in(EndOnDrop(Some(section)), these.clone());
        }
        self.hands[these].iter_mut().for_each(|hand| *hand = None);
    }

    #[inline(always)]
    fn add_in(&mut self, mut section: EndOnDrop<'_, K>, these: Range<usize>) {
        let section = section.0.as_mut().expect("until its drop");
        for (hand, hash) in self.hands[these.clone()].iter_mut().zip(&self.hashes[these]) {
            let added = section.add(hand, *hash, Group::default(), How::NOW);
            section.tell_time();
            self.adding.count(added);
        }
    }
}

/// Ends the section also if `Eq` panics, because the section has made the adds before that one.
struct EndOnDrop<'s, K>(Option<Section<'s, K>>);

impl<K> Drop for EndOnDrop<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Section::end);
    }
}

impl<K: Hash + Eq> Drop for Stage<'_, '_, K> {
    /// If the iterator or `Hash` has panicked, keys are still staged.
    fn drop(&mut self) {
        if self.staged > 0 {
            contained(|| self.add());
        }
    }
}

impl<K> Drop for Adding<'_, K> {
    /// Wakes the getters, also if foreign code panics.
    fn drop(&mut self) {
        self.shared.wake_getters(self.queued);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::AT_ONCE;
    use crate::WorkQueue;
    use std::cell::Cell;
    use std::future::Future;
    use std::hash::{Hash, Hasher};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Code {
        Nothing,
        Eq,
        Hash,
        Iterator,
    }

    thread_local!(static PANICS: Cell<Code> = const { Cell::new(Code::Nothing) });

    /// Code of the key with this number panics, if it is to.
    const STRIKES: usize = 100;

    #[derive(Clone, Debug)]
    struct Key(usize);

    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            assert!(PANICS.get() != Code::Eq || self.0 != STRIKES);
            self.0 == other.0
        }
    }

    impl Eq for Key {}

    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert!(PANICS.get() != Code::Hash || self.0 != STRIKES);
            self.0.hash(state);
        }
    }

    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Foreign code panics at the second key of those that are staged. The keys that came before it are queued and published, and tasks
    /// that wait are woken for them.
    #[test]
    fn keys_that_are_staged_before_a_panic_are_added() {
        for shards in [1, 4] {
            for code in [Code::Eq, Code::Hash, Code::Iterator] {
                let queue = WorkQueue::builder().shards(shards).build();
                let wakes: Vec<_> = (0..2 * AT_ONCE).map(|_| Arc::new(CountWakes(AtomicUsize::new(0)))).collect();
                let wakers: Vec<Waker> = wakes.iter().map(|count| Waker::from(Arc::clone(count))).collect();
                let mut gets: Vec<_> = wakers.iter().map(|_| queue.get_async()).collect();
                for (get, waker) in gets.iter_mut().zip(&wakers) {
                    assert!(pin!(get).poll(&mut Context::from_waker(waker)).is_pending());
                }
                // `STRIKES` is known already, but no getter may take it: so `Eq` is called.
                queue.add_after(Key(STRIKES), std::time::Duration::from_secs(3600));
                // Single adds until the queue has many keys, and then stages.
                let single = 1 + AT_ONCE;
                let keys = (0..single).chain([single, STRIKES]).chain(200..220).collect::<Vec<_>>();
                let keys = keys.into_iter().map(|key| {
                    assert!(PANICS.get() != Code::Iterator || key != STRIKES);
                    Key(key)
                });
                PANICS.set(code);
                let answer = catch_unwind(AssertUnwindSafe(|| queue.add_all(keys)));
                PANICS.set(Code::Nothing);
                assert!(answer.is_err(), "{code:?}");
                assert_eq!(queue.len(), single + 1, "{code:?}, {shards} shards");
                let woken = wakes.iter().filter(|count| count.0.load(Ordering::Relaxed) > 0).count();
                assert!(woken > 0, "{code:?}, {shards} shards");
                let mut found = Vec::new();
                for (get, waker) in gets.iter_mut().zip(&wakers) {
                    if let Poll::Ready(item) = pin!(get).poll(&mut Context::from_waker(waker)) {
                        found.push(item.expect("the queue is open").0);
                    }
                }
                found.sort_unstable();
                assert_eq!(found, (0..=single).collect::<Vec<_>>(), "{code:?}, {shards} shards");
            }
        }
    }

    /// An iterator whose `size_hint` lies is believed for the keys that are staged next, and no longer.
    #[test]
    fn an_iterator_that_says_too_much_ends() {
        struct Boast(std::ops::Range<u32>);
        impl Iterator for Boast {
            type Item = u32;
            fn next(&mut self) -> Option<u32> {
                self.0.next()
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                (1000, Some(1000))
            }
        }
        for count in 0..4 * AT_ONCE as u32 {
            let queue = WorkQueue::new();
            assert_eq!(queue.add_all(Boast(0..count)), count as usize);
            assert_eq!(queue.len(), count as usize);
        }
    }

    /// An iterator that does not know how many keys it has may wait for the next one: each key is added before the next is asked for.
    #[test]
    fn an_iterator_that_may_wait_keeps_no_key_back() {
        let (queue, yielded) = (WorkQueue::new(), Cell::new(0));
        let next = || {
            assert_eq!(queue.len(), yielded.get());
            yielded.set(yielded.get() + 1);
            yielded.get()
        };
        queue.add_all(std::iter::from_fn(|| Some(next()).filter(|n| *n < 10 * AT_ONCE)));
        yielded.set(queue.len());
        // This one says that it has more keys than a number can say.
        let endless = std::iter::repeat_with(next).inspect(|n| assert!(*n < 20 * AT_ONCE));
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_all(endless))).is_err());
        assert_eq!(queue.len(), 20 * AT_ONCE - 1);
    }
}
