//! What a critical section leaves to be done after the lock.
//!
//! No thread or task is woken, and no large memory freed, under the lock (W4). A step that owes a wake-up puts the waiter here. Memory of
//! the table comes here in the step that takes a key out, with the side arrays of its chunk; memory of the line and of the wheel stays
//! in lists of theirs until the critical section ends.

use super::Shard;
use super::delays::Record;
use super::times::KeyTimes;
use crate::key::{Chunk, Queued, Retired};
use crate::line::{self, Fifo, Line, Node};
use crate::time::wheel;
use crate::wait::{Waiter, WakeList};

/// Wake-ups and memory. Dropping it frees the memory.
pub(crate) struct Effects<K> {
    /// There is something to do.
    pub(crate) pending: bool,
    wakes: WakeList,
    garbage: Vec<Garbage<K>>,
}

/// Memory to be freed. This may take long: see [`Retired`].
#[expect(dead_code, reason = "it is kept to be dropped")]
enum Garbage<K> {
    /// A chunk of slots without keys, and the records of its slots.
    Chunk(Chunk<K>, Box<[Record]>, Box<[KeyTimes]>, Box<[Node<Queued<K>>]>),
    Table(Retired<K>),
    Line(<Fifo<Queued<K>> as Line<Queued<K>>>::Garbage),
    Wheel(Vec<Box<wheel::Block>>),
    Order(line::Garbage),
}

impl<K> Default for Effects<K> {
    fn default() -> Self {
        Self { pending: false, wakes: WakeList::default(), garbage: Vec::new() }
    }
}

impl<K> Effects<K> {
    /// Memory is to be freed: the critical section has something to do at its end.
    pub(super) fn owe_garbage(&mut self) {
        self.pending = true;
    }

    pub(super) fn owe(&mut self, waiter: Waiter) {
        self.pending = true;
        self.wakes.push(waiter);
    }

    /// Wakes the threads and tasks, and returns the number of wakers that panicked. Not under the lock (W4).
    pub(crate) fn wake(&mut self) -> usize {
        std::mem::take(&mut self.wakes).wake()
    }
}

impl<K> Shard<K> {
    /// Has the end of the critical section wake these.
    pub(crate) fn owe_all(&mut self, waiters: WakeList) {
        self.effects.pending |= !waiters.is_empty();
        self.effects.wakes.append(waiters);
    }

    /// Has the end of the critical section wake this waiter.
    pub(crate) fn owe(&mut self, waiter: Waiter) {
        self.effects.owe(waiter);
    }

    /// The end of the critical section has something to do.
    #[inline]
    pub(crate) fn has_effects(&self) -> bool {
        self.effects.pending
    }

    /// What the end of the critical section has to do.
    pub(crate) fn take_effects(&mut self) -> Effects<K> {
        let mut effects = std::mem::take(&mut self.effects);
        if self.line.has_retired() {
            effects.garbage.push(Garbage::Line(self.line.take_retired()));
        }
        effects.garbage.extend(self.later.take_retired().map(Garbage::Wheel));
        if let Some(order) = self.order.as_mut().filter(|order| order.has_retired()) {
            effects.garbage.push(Garbage::Order(order.take_retired()));
        }
        effects
    }

    /// A key was removed from the table.
    #[inline]
    pub(super) fn note_removed(&mut self) {
        if self.table.has_retired() {
            self.retire();
        }
    }

    /// Has the end of the critical section free the memory that is no longer needed. A chunk takes the side arrays of its slots with it
    /// at once, as its number may be used again.
    #[cold]
    pub(super) fn retire(&mut self) {
        for retired in self.table.take_retired() {
            let garbage = match retired {
                Retired::Chunk(chunk) => {
                    let number = chunk.number();
                    let times = self.times.as_mut().map(|times| times.take_chunk(number)).unwrap_or_default();
                    let nodes = self.order.as_mut().map(|order| order.take_chunk(number)).unwrap_or_default();
                    Garbage::Chunk(chunk, self.later.records.take_chunk(number), times, nodes)
                }
                buckets @ Retired::Buckets(_) => Garbage::Table(buckets),
            };
            self.effects.garbage.push(garbage);
        }
        let chunks = self.table.chunks();
        self.later.records.truncate(chunks);
        self.times.iter_mut().for_each(|times| times.truncate(chunks));
        self.order.iter_mut().for_each(|order| order.truncate(chunks));
        self.effects.owe_garbage();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::time::clock::Clock;
    use crate::{AddOptions, DelayedAdd};
    use std::time::Duration;

    /// Many chunks are freed in one step: their side arrays are freed after the lock, not in the step (W4).
    #[test]
    fn side_arrays_leave_with_their_chunks() {
        let mut shard = super::Shard::new(
            0,
            super::super::OrderSettings::default(),
            DelayedAdd::default(),
            Some(Clock::new()),
            None,
        );
        const KEYS: u32 = 64 * 100;
        let hash = crate::key::Hash;
        for key in 0..KEYS {
            shard.add_new_measured(key, hash(key), Some(1));
            let _delay =
                shard.find(&key, hash(key)).map(|key| key.set_delay(Some(1), &AddOptions::new().after(Duration::MAX)));
        }
        for key in 0..KEYS {
            let (claimed, _) = shard.pop().unwrap();
            shard.note_end(&claimed, None);
            let _kept = shard.done(claimed);
            shard.find(&key, hash(key)).unwrap().remove_delay();
        }
        let removed: Vec<_> = (0..KEYS).map(|key| shard.table.find(&key, hash(key)).unwrap()).collect();
        // SAFETY: each key is in the table, no bit of its word is set, and its slot is used once.
        removed.into_iter().for_each(|slot| _ = unsafe { shard.table.remove_if_vacant(slot) });
        shard.retire();
        let mut freed = 0;
        for garbage in &shard.take_effects().garbage {
            if let super::Garbage::Chunk(_, records, times, _) = garbage {
                assert_eq!((records.len(), times.len()), (64, 64));
                freed += 1;
            }
        }
        assert!(freed > 50);
    }
}
