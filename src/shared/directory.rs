//! Which shards know keys of a hash, in a queue with groups and several shards.
//!
//! In such a queue a key is in the shard of its group, so that the keys of a group are counted and take turns under one lock. But a call by
//! a borrowed key, such as `cancel`, has no key to ask for its group. And the user's function may name another group for a key that is
//! already known, in which case the first answer counts, as in a queue with one shard. So the directory has a *name* for each known key:
//! its kept hash, whose bits of the shard say where the key is. Keys of equal hashes have a name each.
//!
//! ```text
//!   add       read the names ─ lock each of their shards in turn, and look ─┬─ known: add it there
//!                  ▲                                                       └─ ask for its group ─ lock the group's shard ─ claim a name
//!                  └──── refused: unlock, and begin anew with the names there are now ─────────────────────────────────────┤
//!                                                                                           granted: insert the key ─ unlock
//!   forget    lock the shard ─ forget the key ─ take its name out ─ unlock
//!   look-up   read the names ─ lock each of their shards in turn, and look
//! ```
//!
//! A claim is granted if no key of the hash has a name, or if no claim of the stripe was granted since the add has read the names.
//!
//! **A known key has a name**, because its name is claimed before it is inserted, and taken out after it is forgotten, each in one critical
//! section of its shard. So a look-up that finds no name knows that its key is not there. If it finds names, but not its key in any of these
//! shards, there was a moment at which the key was nowhere: when the names were read, or when it was forgotten since.
//!
//! **Never two shards know one key** (P1). Suppose that an add inserts a key into shard A while shard B knows it, and that of the two claims
//! the one for B was granted first. The key has its name in B since then, so the claim for A was granted because no other was since the add
//! has read the names. The claim for B is therefore older than this reading, which has found B. The add has then looked into B, after the
//! critical section of that claim, which has inserted the key. So it has found the key, and has claimed nothing.
//!
//! **Locks.** A stripe's lock is the last that a thread takes, under the lock of a shard or under none, and no code of the user runs there.
//! An add whose claim is refused again and again is refused because others are granted, so some add always gets on.
//!
//! **Cost.** A name takes six to twelve bytes. A stripe's table grows and shrinks in one step, as those of
//! [limiters](crate::rate_limiter) do: at a million keys a stripe has 16 000 names, and moves them in some tens of microseconds.

use crate::key::KeyHash;
use crate::sync::{Mutex, MutexGuard, model_const};
use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

/// The number of locks, by the low bits of the hash. A power of two.
const STRIPES: usize = model_const(64, 2);

/// A table of at most this number of buckets does not shrink.
const SHRINK_MIN: usize = 64;

/// See the top of this file.
pub(super) struct Directory {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
}

#[derive(Default)]
struct Stripe {
    names: HashTable<KeyHash>,
    /// The number of claims that were granted.
    claims: u64,
}

/// The shards that know a key of some hash, or are about to.
#[derive(Clone, Copy)]
pub(super) struct Named {
    shards: u64,
    claims: u64,
}

/// A name for a key that is about to become known. The drop takes the name out again, unless the claim is [kept](Self::keep).
pub(super) struct Claim<'d> {
    directory: &'d Directory,
    hash: KeyHash,
}

impl Directory {
    pub(super) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(Stripe::default()))).collect() }
    }

    fn stripe(&self, hash: KeyHash) -> MutexGuard<'_, Stripe> {
        self.stripes[hash.0 as usize & (STRIPES - 1)].lock()
    }

    /// The shards that may know a key of this hash.
    pub(super) fn ask(&self, hash: KeyHash) -> Named {
        self.stripe(hash).named(hash)
    }

    /// Claims a name for a key in the shard that the hash names, which the caller has locked. It has looked for the key in the shards of
    /// these names. If the claim is refused, there are other names.
    pub(super) fn claim(&self, hash: KeyHash, looked: Named) -> Result<Claim<'_>, Named> {
        let mut stripe = self.stripe(hash);
        let named = stripe.named(hash);
        if named.shards != 0 && named.claims != looked.claims {
            return Err(named);
        }
        stripe.claims += 1;
        stripe.names.insert_unique(wide(&hash), hash, wide);
        Ok(Claim { directory: self, hash })
    }

    /// Takes out the name of a key that its shard has forgotten.
    pub(super) fn forget(&self, hash: KeyHash) {
        let names = &mut self.stripe(hash).names;
        if let Ok(entry) = names.find_entry(wide(&hash), |name| *name == hash) {
            entry.remove();
        } else {
            debug_assert!(false, "a known key has a name");
        }
        // Compares the buckets, because the capacity does not count those of removed names.
        if names.num_buckets() > SHRINK_MIN && names.len() < names.num_buckets() / 8 {
            names.shrink_to(names.len() * 2, wide);
        }
    }

    /// Gives back memory that the names do not need.
    pub(super) fn shrink(&self) {
        self.stripes.iter().for_each(|stripe| stripe.lock().names.shrink_to_fit(wide));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().names.len()).sum()
    }
}

impl Stripe {
    fn named(&self, hash: KeyHash) -> Named {
        let same = |name: &&KeyHash| name.without_shard() == hash.without_shard();
        let names = self.names.iter_hash(wide(&hash)).filter(same);
        Named { shards: names.fold(0, |shards, name| shards | 1 << name.placed_in()), claims: self.claims }
    }
}

/// The hash of a name in its stripe's table, whatever shard it names.
fn wide(hash: &KeyHash) -> u64 {
    u64::from(hash.without_shard() / STRIPES as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Iterator for Named {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let next = self.shards.trailing_zeros();
        self.shards &= self.shards.wrapping_sub(1);
        (next < u64::BITS).then_some(next as usize)
    }
}

impl Claim<'_> {
    /// The key is inserted.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.directory.forget(self.hash);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Driver, WorkQueue};
    use std::time::Duration;

    fn shards(named: Named) -> Vec<usize> {
        named.collect()
    }

    /// Keys of one hash have a name each, and a claim is refused to a caller who has not seen all names.
    #[test]
    fn a_claim_is_refused_until_each_name_was_seen() {
        let directory = Directory::new();
        let [own, other] = [KeyHash(0xa5a5_a5a5), KeyHash(0x25a5_a5a5)]; // of one stripe
        let nothing = directory.ask(own);
        directory.claim(own.in_shard(3), nothing).ok().unwrap().keep();
        // Somebody else has claimed a name since.
        let seen = directory.claim(own.in_shard(63), nothing).err().unwrap();
        assert_eq!((shards(seen), shards(directory.ask(other)).len()), (vec![3], 0));
        directory.claim(other.in_shard(5), nothing).ok().unwrap().keep(); // no other key of its hash
        assert!(directory.claim(own.in_shard(63), seen).is_err(), "it may have been of this hash");
        let seen = directory.ask(own);
        directory.claim(own.in_shard(3), seen).ok().unwrap().keep();
        let seen = directory.ask(own);
        drop(directory.claim(own.in_shard(63), seen)); // gives it back
        let seen = directory.ask(own);
        directory.claim(own.in_shard(63), seen).ok().unwrap().keep();
        assert_eq!(
            (shards(directory.ask(own)), shards(directory.ask(other)), directory.len()),
            (vec![3, 63], vec![5], 4)
        );
        directory.forget(own.in_shard(3));
        assert_eq!(shards(directory.ask(own)), [3, 63], "there was another key");
        [own.in_shard(3), own.in_shard(63), other.in_shard(5)].into_iter().for_each(|name| directory.forget(name));
        assert_eq!((shards(directory.ask(own)), directory.len()), (vec![], 0));
    }

    /// Each way by which a queue forgets a key takes its name out, and the memory is given back.
    #[test]
    fn a_forgotten_key_has_no_name() {
        const KEYS: u32 = if cfg!(miri) { 300 } else { 20_000 };
        let (clock, time) = crate::Clock::mock();
        let builder = WorkQueue::builder().shards(16).clock(clock).driver(Driver::Manual);
        let queue = builder.fair_by(|key: &u32| key % 100).max_processing_per_group(100).build();
        let directory = queue.shared.directory.as_ref().unwrap();
        queue.add_all(0..KEYS);
        assert_eq!(directory.len(), KEYS as usize);
        let items = queue.get_many(100);
        items.into_iter().for_each(crate::Item::done);
        drop(queue.take_where(|key| *key >= KEYS / 2));
        (0..KEYS).for_each(|key| _ = queue.remove(&key));
        assert_eq!(directory.len(), 0);
        // Delays, failures, and a cool-down that ends.
        (0..100).for_each(|key| _ = queue.add_rate_limited(key));
        (0..50).for_each(|key| _ = queue.cancel(&key)); // they have failed
        (0..50).for_each(|key| queue.forget(&key));
        assert_eq!(directory.len(), 50);
        time.advance(Duration::from_secs(1));
        queue.turn();
        queue.get_many(100).into_iter().for_each(|item| item.cool_down(Duration::from_secs(1)));
        assert_eq!((directory.len(), queue.len()), (50, 0));
        time.advance(Duration::from_secs(1));
        queue.turn();
        assert_eq!(directory.len(), 0);
        // An add that is refused, and one whose failure counts nevertheless.
        queue.shut_down();
        queue.add(1);
        assert_eq!(directory.len(), 0);
        queue.add_rate_limited(1);
        assert_eq!((directory.len(), queue.num_requeues(&1)), (1, 1));
        queue.forget(&1);
        queue.shrink_to_fit();
        let buckets: usize = directory.stripes.iter().map(|stripe| stripe.lock().names.num_buckets()).sum();
        assert_eq!((directory.len(), buckets), (0, STRIPES));
    }
}
