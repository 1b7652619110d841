//! First in, first out.

use super::keys::{Block, Blocks, Keys};
use super::slab::Chunk;
use super::{Bin, Garbage, NORMAL, Order, Place, Pushed};

/// Slots of a block.
const BLOCK: usize = 64;
/// Blocks of a chunk.
const CHUNK: usize = 4;

/// The blocks of lines.
pub(super) type LineBlocks<T> = Blocks<T, BLOCK, CHUNK>;
pub(super) type LineChunk<T> = Box<Chunk<Block<T, BLOCK>, CHUNK>>;

pub(crate) struct Line<T> {
    pub(super) blocks: LineBlocks<T>,
    pub(super) keys: Keys,
}

impl<T: Copy> Default for Line<T> {
    fn default() -> Self {
        Self { blocks: Blocks::default(), keys: Keys::default() }
    }
}

impl<T: Copy> Line<T> {
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.blocks.slab.bytes()
    }

    /// Has memory for this number of keys, and keeps it until it is shrunk.
    pub(super) fn reserve(&mut self, keys: usize) {
        self.blocks.slab.reserve(keys.div_ceil(BLOCK));
    }
}

impl<T: Copy> Order<T> for Line<T> {
    #[inline]
    fn push(&mut self, key: T, _priority: i8, _group: u32) -> Pushed {
        Pushed { position: self.blocks.push(&mut self.keys, key), is_ready: true }
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let key = self.blocks.pop(&mut self.keys);
        bin.extend(self.blocks.slab.surplus().map(Garbage::Line));
        key
    }

    #[inline]
    fn remove(&mut self, _key: T, place: Place, bin: &mut Bin<T>) {
        self.blocks.remove(&mut self.keys, place.position);
        bin.extend(self.blocks.slab.surplus().map(Garbage::Line));
    }

    fn push_number(&self, _key: T, place: Place) -> u64 {
        self.blocks.get(place.position).1
    }

    fn level_len(&self, priority: i8) -> usize {
        if priority == NORMAL { self.keys.len() } else { 0 }
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        if self.keys.is_empty() { None } else { Some((NORMAL, self.blocks.front_stamp(&self.keys))) }
    }

    fn stamp_of(&self, _key: T, place: Place) -> u64 {
        self.blocks.stamp_of(place.position)
    }

    fn want_stamps(&mut self) {
        self.blocks.want_stamps();
    }

    #[inline]
    fn wants_stamp(&self) -> bool {
        self.blocks.wants_stamp()
    }

    fn stamp(&mut self, now: u64) {
        self.blocks.stamp(now);
    }

    #[inline]
    fn upcoming(&self, ahead: u32) -> Option<T> {
        self.blocks.peek(&self.keys, ahead)
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        bin.push(Garbage::Lines(self.blocks.slab.shrink()));
    }
}
