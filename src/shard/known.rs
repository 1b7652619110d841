//! A key that is in the table, and the steps on it.

use super::Shard;
use crate::key::{Claimed, Hash, OnAdd, SlotRef, SlotView, State};
use crate::line::Group;
use crate::{AddOptions, Added, DelayConflict, DelayedAdd};
use equivalent::Equivalent;

/// A key that is in the table of a shard. It stays there while this exists: the shard is borrowed, and the step that takes the key out
/// consumes this.
pub(crate) struct Known<'s, K> {
    pub(super) shard: &'s mut Shard<K>,
    slot: SlotRef<K>,
}

impl<K> Shard<K> {
    /// Finds a key.
    #[inline]
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&mut self, key: &Q, hash: Hash) -> Option<Known<'_, K>> {
        let slot = self.table.find(key, hash)?;
        Some(Known { shard: self, slot })
    }

    /// Inserts a key that is not in the table. `ORDERED`: the queue may be ordered. The caller makes it delayed, or counts a failure (I4).
    #[inline]
    pub(crate) fn insert<const ORDERED: bool>(&mut self, key: K, hash: Hash, group: Group) -> Known<'_, K> {
        let slot = self.table.insert(key, hash);
        let known = Known { shard: self, slot };
        if ORDERED {
            let number = known.number();
            known.shard.begin_key(number, group);
        }
        known
    }

    /// The key in the slot of this number.
    #[inline]
    pub(super) fn at(&mut self, number: u32) -> Known<'_, K> {
        let slot = self.table.at(number);
        Known { shard: self, slot }
    }

    /// The key in a slot.
    ///
    /// # Safety
    /// The slot is in the table.
    #[inline]
    pub(super) unsafe fn in_slot(&mut self, slot: SlotRef<K>) -> Known<'_, K> {
        Known { shard: self, slot }
    }

    /// A key that the caller holds.
    #[inline]
    pub(crate) fn held(&mut self, claimed: &Claimed<K>) -> Known<'_, K> {
        let slot = claimed.slot_ref();
        Known { shard: self, slot }
    }
}

/// What an add with options has done. It fits in two registers.
#[derive(Clone, Copy)]
pub(crate) struct AddedWith {
    pub(crate) added: Added,
    /// The deadline of the delay that was set, if `added` is `Delayed`.
    pub(crate) deadline: u64,
}

/// What [`Known::take_back`] has done.
pub(crate) enum TakenBack<K> {
    /// The key was neither dirty nor delayed.
    Nothing,
    /// Something was taken back. With the key, if it is out of the queue (I4): the caller drops it after the lock.
    Taken(Option<K>),
    /// Nothing yet: the key is in a long line. The caller moves the keys of the shard to the order, where a key is found by its slot.
    NotFound,
}

impl From<Added> for AddedWith {
    #[inline]
    fn from(added: Added) -> Self {
        Self { added, deadline: 0 }
    }
}

impl<K> Known<'_, K> {
    #[inline]
    pub(super) fn view(&self) -> SlotView<'_, K> {
        // SAFETY: in the table, which is borrowed, so taken (H2).
        unsafe { self.slot.view() }
    }

    #[inline]
    pub(crate) fn state(&self) -> &State {
        self.view().state()
    }

    /// The number of the key's slot.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.shard.table.number(self.view())
    }

    /// Takes the key out of the table if no bit keeps it there (I4). The caller drops it after the lock.
    pub(crate) fn remove_if_vacant(self) -> Option<K> {
        // SAFETY: in the table, as long as `self` exists (I4), and `self` is consumed (S2).
        let removed = unsafe { self.shard.table.remove_if_vacant(self.slot) };
        if removed.is_some() {
            self.shard.note_removed();
        }
        removed
    }

    /// `add`. **Linearization point of an add of a key that is in the table.** Owes a wake-up to the tasks that wait for the key to
    /// become dirty. If the result is `Queued`, the caller owes one to a getter.
    #[inline]
    pub(crate) fn add(&mut self) -> Added {
        if self.state().is_delayed() {
            if let Some(added) = self.add_delayed() {
                return added;
            }
        }
        self.make_dirty()
    }

    /// [`add`](Self::add) in a queue that may measure.
    pub(crate) fn add_measured(&mut self, now: Option<u64>) -> Added {
        let added = self.add();
        self.note_added(added, now);
        added
    }

    /// Adds the key, regardless of a delay.
    #[inline]
    fn make_dirty(&mut self) -> Added {
        match self.view().add() {
            OnAdd::Push(queued) => {
                self.shard.counts.pushed += 1;
                self.shard.push(queued);
                Added::Queued
            }
            OnAdd::Coalesce => {
                self.shard.counts.coalesced += 1;
                Added::Coalesced
            }
            OnAdd::Defer => {
                self.shard.counts.deferred += 1;
                self.owe_dirty_waiters();
                Added::Deferred
            }
        }
    }

    /// `remove`: takes back the add for which the key is queued, or that it remembers while it is processing, and its delay.
    /// **Linearization point.** Failures stay counted.
    pub(crate) fn take_back(mut self) -> TakenBack<K> {
        let (queued, delayed, number) = (self.state().is_queued(), self.state().is_delayed(), self.number());
        let place = if queued { self.shard.place_of(self.view().id(), number) } else { None };
        if queued && place.is_none() {
            return TakenBack::NotFound;
        }
        if delayed {
            let _waited = self.remove_delay();
        }
        if let Some(place) = place {
            return TakenBack::Taken(self.shard.take_at(place).expect("it was just found"));
        }
        if self.state().is_processing() && self.state().forget_add() {
            self.shard.note_taken(number);
            return TakenBack::Taken(None);
        }
        if delayed { TakenBack::Taken(self.remove_if_vacant()) } else { TakenBack::Nothing }
    }

    /// Refuses an add.
    pub(crate) fn reject(&mut self) -> Added {
        self.shard.reject()
    }

    /// What an `add` does about the delay of its key. `Some`: the add does nothing more.
    #[cold]
    fn add_delayed(&mut self) -> Option<Added> {
        match self.shard.delayed_add {
            DelayedAdd::Independent => {}
            DelayedAdd::Promote => _ = self.remove_delay(),
            DelayedAdd::Strict => {
                let _deferred = self.state().defer_add();
                self.shard.counts.coalesced += 1;
                return Some(Added::Coalesced);
            }
        }
        None
    }

    /// `add_with`.
    #[inline]
    pub(crate) fn add_with(mut self, now: Option<u64>, options: &AddOptions) -> AddedWith {
        self.shard.counts.retries += u64::from(options.delay.is_some());
        if !options.is_now() {
            return self.set_delay(now, options);
        }
        if self.state().is_delayed() {
            match options.conflict {
                DelayConflict::EarliestWins => {}
                DelayConflict::Replace => _ = self.remove_delay(),
                DelayConflict::KeepExisting => {
                    self.shard.counts.coalesced += 1;
                    return Added::Coalesced.into();
                }
            }
        }
        self.add_measured(now).into()
    }

    /// Sets a delay again that was taken out, unless the key has an earlier one. `waited`: an add waits for the delay.
    pub(crate) fn set_delay_again(self, now: u64, options: &AddOptions, waited: bool) -> AddedWith {
        let Known { shard, slot } = self;
        let before = (shard.counts.delays, shard.counts.coalesced);
        let set = Known { shard: &mut *shard, slot }.set_delay_at::<true>(Some(now), options);
        (shard.counts.delays, shard.counts.coalesced) = before; // no caller has set it
        if waited {
            let _deferred = Known { shard, slot }.state().defer_add();
        }
        set
    }

    /// After an add: notes the time, if the add made the key dirty.
    #[inline]
    pub(super) fn note_added(&mut self, added: Added, now: Option<u64>) {
        if self.shard.times.is_some() && matches!(added, Added::Queued | Added::Deferred) {
            let number = self.number();
            self.shard.times.iter_mut().for_each(|times| times.added(number, now));
        }
    }
}
