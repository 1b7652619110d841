//! How delays expire: a batch of small steps at a time.
//!
//! The alternative, an inbox to which producers push without the lock and which the driver empties, was measured and rejected. Calls
//! return in a third of the time, but all delays together take as long or up to 40 % longer; a call can no longer return what it did; a
//! `cancel` would have to wait for the add before it; and a producer that is faster than the driver fills the memory. Batches give the
//! guarantee that the inbox is for, that the driver and the producers never keep each other waiting (P11): the driver makes [`BATCH`]
//! small steps, some microseconds, each time it has the lock, and a producer makes one.

use super::{Known, Shard};
use crate::Added;
use crate::sync::model_const;
use crate::time::wheel::Popped;

/// The number of steps that the driver makes before it releases the lock.
pub(crate) const BATCH: usize = model_const(128, 2);

/// The number of keys that are taken out of the wheel before they are added.
const POP_BATCH: usize = model_const(16, 2);

/// What one critical section of a driver has done.
pub(crate) struct Turn {
    /// The number of delays that expired, by what the add did: queued, deferred, coalesced.
    pub(crate) expired: [usize; 3],
    /// What the wheel has answered last: whether there is more to do, and otherwise until when nothing expires.
    pub(crate) next: Popped,
}

impl<K> Shard<K> {
    /// Adds some of the keys whose delays have expired. The caller wakes getters for the keys that are queued now.
    pub(crate) fn expire(&mut self, now: u64) -> Turn {
        self.later.time = self.later.time.max(now);
        let Some(mut wheel) = self.later.wheel.take() else {
            return Turn { expired: [0; 3], next: Popped::Empty };
        };
        let (mut expired, mut budget) = ([0; 3], BATCH);
        let next = loop {
            // Pops a few keys and prefetches their slots, and then adds each of them.
            let (mut popped, mut count) = ([const { None }; POP_BATCH], 0);
            let next = loop {
                match wheel.pop(&mut self.later.records, now, &mut budget) {
                    Popped::Expired(number) => {
                        let slot = self.table.at(number);
                        slot.prefetch();
                        popped[count] = Some(slot);
                        count += 1;
                        if count == POP_BATCH {
                            break Popped::BudgetSpent;
                        }
                    }
                    next => break next,
                }
            };
            // The wheel is not in `later` here. The adds do not need it, as their keys are not delayed any more.
            for slot in popped.into_iter().map_while(|slot| slot) {
                // SAFETY: its word still says DELAYED, so the key is in the table (I4).
                match unsafe { self.in_slot(slot) }.expire(now) {
                    Added::Queued => expired[0] += 1,
                    Added::Deferred => expired[1] += 1,
                    _ => expired[2] += 1,
                }
            }
            match next {
                Popped::BudgetSpent if budget > 0 => {}
                Popped::NeedsCascade => {
                    wheel.cascade(&mut self.later.records, &mut budget);
                    break Popped::NeedsCascade;
                }
                next => break next,
            }
        };
        self.effects.pending |= wheel.has_retired();
        self.later.wheel = Some(wheel);
        Turn { expired, next }
    }
}

impl<K> Known<'_, K> {
    /// Adds a key whose delay has expired. **Linearization point of an expiry.**
    #[inline]
    fn expire(mut self, now: u64) -> Added {
        self.shard.counts.expired += 1;
        let _waited = self.note_delay_removed();
        if self.shard.is_ordered() {
            let priority = self.delayed_priority();
            return self.add_in_order(Some(now), priority);
        }
        self.add_measured(Some(now))
    }
}

#[cfg(all(test, not(loom)))]
impl<K> Shard<K> {
    /// Nothing has expired, and the wheel has keys to sort.
    pub(crate) fn needs_cascade(&mut self) -> bool {
        let later = &mut self.later;
        let wheel = later.wheel.as_mut().expect("there were delays");
        wheel.pop(&mut later.records, later.time, &mut 1) == Popped::NeedsCascade
    }

    pub(crate) fn line_has_retired(&self) -> bool {
        crate::line::Line::has_retired(&self.line)
    }
}
