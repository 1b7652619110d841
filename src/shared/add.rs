//! Adds: `add` and `add_with`, and what all kinds of adds share.

use super::Shared;
use super::directory::{Claim, Directory};
use super::hub::Flags;
use super::locked::{Held, Locked};
use super::section::in_mode;
use super::settings::Limiter;
use super::state::{Wakeups, if_free};
use crate::bound::Room;
use crate::key::KeyHash;
use crate::machine::{Failure, Found, How};
use crate::order::Group;
use crate::sync::Arc;
use crate::time::nanos;
use crate::{AddOptions, Added, DelayConflict};
use std::hash::Hash;

/// Where an add finds its key or inserts it, in a queue with groups or a bound.
struct Place<'s, K> {
    /// First, so that it is dropped first.
    held: Held<'s, K>,
    hash: KeyHash,
    found: Found<K>,
    /// With several shards, if the key is not known.
    claim: Option<Claim<'s>>,
}

/// The priority of an add without a delay, and what it does to a delay that the key has.
type Now = (i8, DelayConflict);
/// As `add` adds.
const NOW: Now = (How::NOW.priority, How::NOW.conflict);

impl<K: Hash + Eq> Shared<K> {
    /// `add`.
    // `inline(always)`: callers differ in `wakeups`, which is a constant then.
    #[inline(always)]
    pub(crate) fn add(this: &Arc<Self>, key: K, wakeups: Wakeups) -> Added {
        let hash = this.hash(&key);
        if this.is_single() {
            Self::add_to(this, &this.first, key, hash, wakeups, None)
        } else {
            (this.add_to_one_of_many)(this, key, hash, wakeups)
        }
    }

    #[inline(never)]
    pub(super) fn add_to_one_of_many(this: &Arc<Self>, key: K, hash: KeyHash, wakeups: Wakeups) -> Added {
        if_free!(this, free => Self::free_add(this, free, key, hash, wakeups == Wakeups::Now));
        Self::add_to_chosen(this, key, hash, wakeups)
    }

    // A function of its own, here and in `done.rs`, so that a lock-free queue does not pay for its frame.
    #[inline(never)]
    fn add_to_chosen(this: &Arc<Self>, key: K, hash: KeyHash, wakeups: Wakeups) -> Added {
        let locked = this.at(hash.shard(this.shards()));
        this.note_add(locked);
        Self::add_to(this, locked, key, hash, wakeups, this.stamp)
    }

    #[inline(always)]
    fn add_to(
        this: &Arc<Self>,
        locked: &Locked<K>,
        key: K,
        hash: KeyHash,
        wakeups: Wakeups,
        stamp: Option<fn() -> u64>,
    ) -> Added {
        let mut hand;
        let held = locked.lock();
        if this.flags().has(Flags::ADD) {
            return Self::add_special(this, held, key, hash, NOW, wakeups);
        }
        let mut section = this.plain_section(held, stamp);
        hand = Some(key);
        let added = section.add(&mut hand, hash, Group::default(), How::NOW);
        section.end();
        added
        // A key that is left in the hand is dropped here, after the lock (W4).
    }

    /// An add without a delay that the fast path leaves: the queue measures, is ordered or shut down, has a waiting getter, or has to start
    /// its driver thread. If `Eq` panics, the guard is dropped before the key (W4).
    #[inline(never)]
    fn add_special<'s>(
        this: &'s Arc<Self>,
        held: Held<'s, K>,
        key: K,
        hash: KeyHash,
        now: Now,
        wakeups: Wakeups,
    ) -> Added {
        if this.needs_place() {
            return Self::add_to_place(this, held, key, hash, now, wakeups);
        }
        // Dropped last, after the rest of the call: a drop that panics must not leave a delay without a driver.
        let mut hand = Some(key);
        let (priority, conflict) = now;
        in_mode!(this, held, section, has_extras => {
            section.mode.is_awaited &= wakeups == Wakeups::Now;
            let added = section.add(&mut hand, hash, Group::default(), How { priority, conflict, ..How::NOW });
            section.end();
            if has_extras {
                Self::after_add(this, added);
            }
            added
        })
    }

    /// The same in a queue with groups and one shard, or with a bound.
    #[inline(never)]
    fn add_to_place<'s>(
        this: &'s Arc<Self>,
        held: Held<'s, K>,
        key: K,
        hash: KeyHash,
        (priority, conflict): Now,
        wakeups: Wakeups,
    ) -> Added {
        let place = this.place_in(held, &key, hash);
        Self::add_at(this, key, place, How { priority, conflict, ..How::NOW }, wakeups)
    }

    /// `add_with`.
    #[inline]
    pub(crate) fn add_with(this: &Arc<Self>, key: K, options: AddOptions) -> Added {
        if_free!(this, free => Self::free_add_with(this, free, key, options));
        if options.delay.is_some() || options.rate_limited {
            Self::add_later(this, key, options)
        } else {
            Self::add_now(this, key, options)
        }
    }

    /// [`add_with`](Self::add_with) without a delay.
    #[inline(never)]
    fn add_now(this: &Arc<Self>, key: K, options: AddOptions) -> Added {
        let hash = this.hash(&key);
        if options.has_level() {
            this.expect_levels();
        }
        if this.has_names() {
            return Self::add_in_group(this, key, hash, options);
        }
        let locked = this.shard_of(hash);
        Self::add_special(this, locked.lock(), key, hash, (options.level(), options.conflict), Wakeups::Now)
    }

    /// [`add_with`](Self::add_with) a delay.
    #[inline(never)]
    fn add_later(this: &Arc<Self>, key: K, options: AddOptions) -> Added {
        let options = if options.rate_limited { this.limited(&key, options) } else { options };
        let hash = this.hash(&key);
        let locked = this.shard_of(hash);
        locked.prefetch_bucket(hash);
        if options.has_level() {
            this.expect_levels();
        }
        if this.needs_place() {
            return Self::add_in_group(this, key, hash, options);
        }
        let how = this.how(&options);
        let mut hand; // as in `add_special`
        let held = locked.lock();
        locked.publish_buckets(&held);
        hand = Some(key);
        let added = in_mode!(this, held, section, _extras => {
            let added = section.add(&mut hand, hash, Group::default(), how);
            section.end();
            added
        });
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    /// [`add_with`](Self::add_with) in a queue with groups, or with a bound.
    #[inline(never)]
    fn add_in_group(this: &Arc<Self>, key: K, hash: KeyHash, options: AddOptions) -> Added {
        let how = this.how(&options);
        let place = this.place_of(&key, hash);
        Self::add_at(this, key, place, how, Wakeups::Now)
    }

    /// The same without options, for a call that keeps a key that is [`Full`](Added::Full), and tells nobody of it.
    pub(crate) fn try_add(this: &Arc<Self>, hand: &mut Option<K>) -> Added {
        let key = hand.as_ref().expect("an add has a key in its hand");
        let hash = this.hash(key);
        if_free!(this, free => Self::free_try_add(this, free, hand, hash, true));
        let place = this.place_of(key, hash);
        this.note_add(place.held.locked);
        Self::try_add_at(this, hand, place, How::NOW, Wakeups::Now)
    }

    /// `add` in a queue with groups and several shards.
    #[inline(never)]
    pub(super) fn add_to_its_group(this: &Arc<Self>, key: K, hash: KeyHash, wakeups: Wakeups) -> Added {
        let directory = this.directory.as_ref().expect("there are groups and several shards");
        let place = this.place(directory, &key, hash);
        this.note_add(place.held.locked);
        Self::add_at(this, key, place, How::NOW, wakeups)
    }

    /// An add, however it is made, to its place.
    #[inline(always)]
    fn add_at(this: &Arc<Self>, key: K, place: Place<'_, K>, how: How<'_>, wakeups: Wakeups) -> Added {
        let mut hand = Some(key); // as in `add_special`
        let added = Self::try_add_at(this, &mut hand, place, how, wakeups);
        if added == Added::Full {
            this.note_full();
        }
        added
    }

    /// The same for a call that keeps a key that is `Full`. If code panics, the claim is given back, after the shard, and so is the room.
    #[inline(always)]
    fn try_add_at(
        this: &Arc<Self>,
        hand: &mut Option<K>,
        place: Place<'_, K>,
        how: How<'_>,
        wakeups: Wakeups,
    ) -> Added {
        let Place { held, hash, found, claim } = place;
        let mut room = None;
        if let Some(bound) = &this.bound {
            if !found.is_known() && !this.is_shutting_down() {
                room = if how.is_retry() { Some(bound.enter_anyway()) } else { bound.enter() };
                if room.is_none() {
                    return Added::Full;
                }
            }
        }
        let added = in_mode!(this, held, section, _extras => {
            section.mode.is_awaited &= wakeups == Wakeups::Now;
            let added = section.add_found(hand, hash, found, how);
            if hand.is_none() {
                claim.into_iter().for_each(Claim::keep);
            }
            section.end();
            added
        });
        if added != Added::Rejected {
            room.into_iter().for_each(Room::keep);
        }
        // Asked after the section, because its delay may be the first, or its group, which is held back, the first to need the driver.
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    /// Whether an add first looks for the place of its key, to ask for the group of a new one, or for room.
    #[inline]
    pub(super) fn needs_place(&self) -> bool {
        self.settings.order.has_groups() || self.bound.is_some()
    }

    /// The place of a key.
    #[inline(always)]
    fn place_of(&self, key: &K, hash: KeyHash) -> Place<'_, K> {
        if let Some(directory) = &self.directory {
            return self.place(directory, key, hash);
        }
        let held = self.shard_of(hash).lock();
        held.locked.publish_buckets(&held);
        self.place_in(held, key, hash)
    }

    /// The place of a key: where it is known, or else in the shard of its group, with a claim. `own` is the key's own hash.
    fn place<'s>(&'s self, directory: &'s Directory, key: &K, own: KeyHash) -> Place<'s, K> {
        let (mut named, mut of_key) = (directory.ask(own), None);
        loop {
            for index in named {
                let (mut held, hash) = (self.at(index).lock(), own.in_shard(index));
                let entry = held.marks().find(key, hash);
                if entry.is_some() {
                    return Place { held, hash, found: Found { entry, group: Group::default() }, claim: None };
                }
            }
            let group = *of_key.get_or_insert_with(|| self.group_of(key)); // without a lock (P17)
            let index = self.shard_of_group(group);
            let (mut held, hash) = (self.at(index).lock(), own.in_shard(index));
            match directory.claim(hash, named) {
                Ok(claim) => {
                    let entry = held.marks().find(key, hash);
                    return Place { held, hash, found: Found { entry, group }, claim: Some(claim) };
                }
                Err(others) => named = others,
            }
        }
    }

    /// The place of a key that can be in this shard alone. If the key is new, the shard is unlocked while its group is asked for (P17).
    #[inline(always)]
    fn place_in<'s>(&self, mut held: Held<'s, K>, key: &K, hash: KeyHash) -> Place<'s, K> {
        let (mut entry, mut group) = (held.marks().find(key, hash), Group::default());
        if entry.is_none() && self.settings.order.has_groups() && !self.is_shutting_down() {
            let locked = held.locked;
            drop(held);
            group = self.group_of(key);
            held = locked.lock();
            entry = held.marks().find(key, hash);
        }
        Place { held, hash, found: Found { entry, group }, claim: None }
    }
}

impl<K> Shared<K> {
    /// What a verb is told of an add. An external limiter has chosen the delay before.
    #[inline]
    pub(super) fn how(&self, options: &AddOptions) -> How<'_> {
        let failure = match &self.settings.limiter {
            _ if !options.rate_limited => Failure::No,
            _ if options.is_past_last => Failure::PastLast,
            Limiter::Inline(schedule) => Failure::Counted(Some(&**schedule)),
            Limiter::External(_) if options.skips_limiter => Failure::Counted(None),
            Limiter::External(_) => Failure::Told,
        };
        let mut how = How {
            priority: options.level(),
            delay: options.delay.map(nanos),
            conflict: options.conflict,
            at_most: options.at_most,
            failure,
            is_uncounted: options.is_uncounted,
            now: 0,
        };
        if how.may_delay() {
            how.now = self.settings.clock.now();
        }
        how
    }

    /// For a call that gives a priority: sends hot calls to their slow paths. The verb then makes the shard an ordered one.
    #[inline]
    pub(super) fn expect_levels(&self) {
        if !self.flags().has(Flags::ORDERED) {
            self.hub().set(Flags::ORDERED, true);
        }
    }

    /// An add was refused because the queue is [`Full`](Added::Full).
    #[cold]
    pub(super) fn note_full(&self) {
        self.bound.iter().for_each(|bound| bound.count_refusal());
        self.tell(|observer| observer.added(Added::Full));
    }

    /// The rest of an add, after the lock, if [`has_extras`](Self::has_extras).
    #[cold]
    pub(crate) fn after_add(this: &Arc<Self>, added: Added) {
        if added != Added::Rejected {
            this.expect_report();
        }
        Self::ensure_driver(this);
        this.tell(|observer| observer.added(added));
    }
}
