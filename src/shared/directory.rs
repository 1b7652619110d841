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

/// A name for a key that is about to become known. The drop takes the name out again, unless the key [is](Self::is_inserted) there.
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
    /// The key is known now.
    pub(super) fn is_inserted(self) {
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.directory.forget(self.hash);
    }
}
