//! Memory that is not needed any more, until the caller takes it.

use super::later::Record;
use super::times::KeyTimes;
use super::{EntryRef, Machine, Owed};
use crate::key::Retired;
use crate::order::Bin;
use crate::time::wheel::{Pages, Wheel};

/// A chunk of slots without keys, with the records and times of its slots; or a large array of the table.
#[cfg_attr(not(test), expect(dead_code, reason = "it is kept to be dropped"))]
pub(super) struct RetiredSlots<K> {
    pub(super) memory: Retired<K>,
    pub(super) records: Box<[Record]>,
    pub(super) times: Box<[KeyTimes]>,
    #[expect(dead_code, reason = "it is kept to be dropped")]
    starts: Box<[u64]>,
}

/// Memory that its drop frees.
#[expect(dead_code, reason = "it is kept to be dropped")]
pub(crate) struct Garbage<K> {
    /// Keys that an expiry has forgotten. The caller drops each by itself, because its drop may panic.
    pub(crate) gone: Vec<K>,
    order: Bin<EntryRef<K>>,
    pub(super) keys: Vec<RetiredSlots<K>>,
    wheel: (Option<Box<Wheel>>, Option<Pages>),
}

impl<K> Machine<K> {
    /// Memory to be freed after the lock: what [`Owed::GARBAGE`] stands for.
    #[cold]
    pub(crate) fn take_garbage(&mut self) -> Garbage<K> {
        let order = std::mem::replace(&mut self.bin, Bin::new());
        let gone = std::mem::take(&mut self.gone);
        Garbage { gone, order, keys: std::mem::take(&mut self.retired), wheel: self.later.take_garbage() }
    }

    #[cfg(test)]
    pub(crate) fn has_garbage(&self) -> bool {
        self.garbage() != Owed::NOTHING
    }

    /// What a step owes that may have left memory.
    #[inline]
    pub(super) fn garbage(&self) -> Owed {
        Owed::only_if(!self.bin.is_empty() || !self.retired.is_empty() || !self.gone.is_empty(), Owed::GARBAGE)
            .and(self.later.garbage())
    }

    /// Retires chunks of slots. Each takes the records and times of its slots with it at once, because its number may be used again.
    #[cold]
    pub(super) fn retire(&mut self) {
        for memory in self.keys.take_retired() {
            let (mut records, mut times, mut starts) = (Box::default(), Box::default(), Box::default());
            if let Retired::Chunk(chunk) = &memory {
                records = self.later.records.take_chunk(chunk.number());
                times = self.times.as_mut().map(|times| times.keys.take_chunk(chunk.number())).unwrap_or_default();
                starts = self.starts.as_mut().map(|starts| starts.take_chunk(chunk.number())).unwrap_or_default();
            }
            self.retired.push(RetiredSlots { memory, records, times, starts });
        }
        // Only after all were taken, because this frees those behind the last chunk that is left.
        let chunks = self.keys.chunks();
        self.later.records.truncate(chunks);
        self.times.iter_mut().for_each(|times| times.keys.truncate(chunks));
        self.starts.iter_mut().for_each(|starts| starts.truncate(chunks));
    }
}
