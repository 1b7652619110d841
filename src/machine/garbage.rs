//! Memory that is not needed any more, until the caller takes it, and frees it after its lock.

use super::keys::Entry;
use super::later::Record;
use super::{EntryRef, Machine, Owed};
use crate::key::Retired;
use crate::order::Bin;
use crate::time::wheel::{Block, Wheel};

/// A chunk of slots without keys, and the records of its slots; or a large array of the table.
#[expect(dead_code, reason = "it is kept to be dropped")]
pub(super) struct RetiredSlots<K> {
    memory: Retired<Entry<K>>,
    records: Box<[Record]>,
}

/// Its drop frees the memory.
#[expect(dead_code, reason = "it is kept to be dropped")]
pub(crate) struct Garbage<K> {
    order: Bin<EntryRef<K>>,
    keys: Vec<RetiredSlots<K>>,
    wheel: (Option<Box<Wheel>>, Vec<Box<Block>>),
}

impl<K> Machine<K> {
    /// Memory to be freed after the lock: what [`Owed::GARBAGE`] speaks of.
    #[cold]
    pub(crate) fn take_garbage(&mut self) -> Garbage<K> {
        let order = std::mem::replace(&mut self.bin, Bin::new());
        Garbage { order, keys: std::mem::take(&mut self.retired), wheel: self.later.take_garbage() }
    }

    /// After a step that may have left memory.
    #[inline]
    pub(super) fn garbage(&self) -> Owed {
        Owed::only_if(!self.bin.is_empty() || !self.retired.is_empty() || self.later.has_garbage(), Owed::GARBAGE)
    }

    /// Chunks of slots are to be freed. Each takes the records of its slots with it at once, as its number may be used again.
    #[cold]
    pub(super) fn retire(&mut self) {
        for memory in self.keys.take_retired() {
            let records = match &memory {
                Retired::Chunk(chunk) => self.later.retire(chunk.number(), self.keys.chunks()),
                Retired::Buckets(_) => Box::default(),
            };
            self.retired.push(RetiredSlots { memory, records });
        }
    }
}
