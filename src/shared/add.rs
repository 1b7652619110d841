//! Adds: `add` and `add_with`, and what all kinds of adds share.

use super::Shared;
use super::failures::Limiter;
use super::hub::Flags;
use super::locked::Locked;
use crate::key::Hash as KeyHash;
use crate::machine::{Failure, How, Machine, Mode};
use crate::order::Group;
use crate::sync::{Arc, MutexGuard};
use crate::time::nanos;
use crate::{AddOptions, Added};
use std::hash::Hash;

/// When getters are woken for a key that becomes queued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakeups {
    /// At the end of the critical section that queues the key.
    Now,
    /// The caller wakes them, for many keys at once: [`Shared::wake_getters`].
    Later,
}

impl<K: Hash + Eq> Shared<K> {
    /// `add`.
    // `inline(always)`: `add` and `add_all` differ in `wakeups`, which the compiler then knows in each (add queued 84 -> 63 instructions).
    #[inline(always)]
    pub(crate) fn add(this: &Arc<Self>, key: K, wakeups: Wakeups) -> Added {
        let hash = this.hash(&key);
        if !this.others.is_empty() {
            return Self::add_to_one_of_many(this, key, hash, wakeups);
        }
        let mut hand = Some(key);
        let mut machine = this.first.lock();
        if this.flags().has(Flags::ADD) {
            return Self::add_special(this, &this.first, hand, hash, wakeups, machine);
        }
        let (added, owed) = machine.add(&mut hand, hash, Group::default(), &How::NOW, Mode::PLAIN);
        // An add that has changed nothing owes nothing.
        if added != Added::Coalesced {
            this.leave_plain(&this.first, machine, owed);
        }
        added
        // A key that is left in the hand is dropped here, after the lock (W4).
    }

    #[inline(never)]
    fn add_to_one_of_many(this: &Arc<Self>, key: K, hash: KeyHash, wakeups: Wakeups) -> Added {
        let locked = this.shard_of(hash);
        this.note_add(locked);
        Self::add_special(this, locked, Some(key), hash, wakeups, locked.lock())
    }

    /// `add` to a queue with several shards, or one that measures, is ordered or shut down, has a getter that waits, or has to start its
    /// driver thread. The guard is the last parameter, so that it is dropped before the hand if `Eq` panics (W4).
    #[inline(never)]
    fn add_special<'s>(
        this: &'s Arc<Self>,
        locked: &'s Locked<K>,
        hand: Option<K>,
        hash: KeyHash,
        wakeups: Wakeups,
        machine: MutexGuard<'s, Machine<K>>,
    ) -> Added {
        Self::add_as(this, locked, hand, hash, &How::NOW, wakeups, machine)
    }

    /// `add_with`.
    pub(crate) fn add_with(this: &Arc<Self>, key: K, options: AddOptions) -> Added {
        let options = if options.rate_limited { this.limited(&key, options) } else { options };
        let hash = this.hash(&key);
        let locked = this.shard_of(hash);
        locked.prefetch_bucket(hash);
        if options.has_level() {
            this.expect_levels();
        }
        let how = this.how(&options);
        let machine = locked.lock();
        locked.publish_buckets(&machine);
        Self::add_as(this, locked, Some(key), hash, &how, Wakeups::Now, machine)
    }

    /// An add of any kind. The queue asks for the group of a key that is new.
    // `inline(always)`: `add` passes a constant `how`.
    #[inline(always)]
    fn add_as<'s>(
        this: &'s Arc<Self>,
        locked: &'s Locked<K>,
        mut hand: Option<K>,
        hash: KeyHash,
        how: &How<'_>,
        wakeups: Wakeups,
        mut machine: MutexGuard<'s, Machine<K>>,
    ) -> Added {
        let mut group = Group::default();
        let added = {
            if let (Some(groups), Some(key)) = (&this.groups, &hand) {
                if !this.is_shutting_down() && !machine.is_known(key, hash) {
                    drop(machine);
                    group = groups.ask(key, &this.hasher);
                    machine = locked.lock();
                }
            }
            let mut mode = this.mode();
            mode.is_awaited &= wakeups == Wakeups::Now;
            if mode == Mode::PLAIN {
                let (added, owed) = machine.add(&mut hand, hash, group, how, Mode::PLAIN);
                this.leave(locked, machine, owed, Mode::PLAIN);
                added
            } else if mode == Mode::ORDERED {
                let (added, owed) = machine.add(&mut hand, hash, group, how, Mode::ORDERED);
                this.leave(locked, machine, owed, Mode::ORDERED);
                added
            } else {
                let (added, owed) = machine.add(&mut hand, hash, group, how, mode);
                this.leave(locked, machine, owed, mode);
                added
            }
        };
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }
}

impl<K> Shared<K> {
    /// What a verb is told of an add. An external limiter has said its delay before.
    #[inline]
    pub(super) fn how(&self, options: &AddOptions) -> How<'_> {
        let failure = match &self.limiter {
            _ if !options.rate_limited => Failure::No,
            Limiter::Inline(schedule) => Failure::Counted(Some(&**schedule)),
            Limiter::External(_) if options.limiter_panicked => Failure::Counted(None),
            Limiter::External(_) => Failure::Told,
        };
        let mut how = How {
            priority: options.level(),
            delay: options.delay.map(nanos),
            conflict: options.conflict,
            failure,
            now: 0,
        };
        if how.may_delay() {
            how.now = self.clock.now();
        }
        how
    }

    /// Before a call that gives a priority: sends hot calls to their slow paths. The verb then makes its shard an ordered one.
    #[inline]
    pub(super) fn expect_levels(&self) {
        if !self.flags().has(Flags::ORDERED) {
            self.hub().set(Flags::ORDERED, true);
        }
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
