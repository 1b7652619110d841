//! By priority; first in, first out within one.

use super::choice::Choice;
use super::keys::Keys;
use super::line::LineBlocks;
use super::{Bin, Garbage, Line, NORMAL, Order, Place, Pushed, level_of, priority_of};

pub(crate) struct Levels<T> {
    blocks: LineBlocks<T>,
    lists: Box<[Keys; 256]>,
    choice: Choice,
}

impl<T: Copy> Levels<T> {
    pub(crate) fn new(strict: bool) -> Self {
        Self::from_line(Line::default(), strict)
    }

    /// The line of a plain queue is the level NORMAL: its keys stay where they are.
    pub(crate) fn from_line(Line { blocks, keys }: Line<T>, strict: bool) -> Self {
        let (mut lists, mut choice) = (Box::new([Keys::default(); 256]), Choice::new(strict));
        choice.set(level_of(NORMAL), !keys.is_empty());
        lists[usize::from(level_of(NORMAL))] = keys;
        Self { blocks, lists, choice }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.blocks.slab.bytes()
    }

    #[inline]
    fn list(&self, priority: i8) -> &Keys {
        &self.lists[usize::from(level_of(priority))]
    }
}

impl<T: Copy> Order<T> for Levels<T> {
    #[inline]
    fn push(&mut self, key: T, priority: i8, _group: u32) -> Pushed {
        let level = level_of(priority);
        let list = &mut self.lists[usize::from(level)];
        if list.is_empty() {
            self.choice.set(level, true);
            self.blocks.want_stamp(list);
        }
        Pushed { position: self.blocks.push(list, key), is_ready: true }
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (level, _) = self.choice.choose()?;
        let list = &mut self.lists[usize::from(level)];
        let key = self.blocks.pop(list);
        if list.is_empty() {
            self.choice.set(level, false);
        }
        bin.extend(self.blocks.slab.surplus().map(Garbage::Line));
        key
    }

    fn remove(&mut self, _key: T, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let list = &mut self.lists[usize::from(level)];
        self.blocks.remove(list, place.position);
        if list.is_empty() {
            self.choice.set(level, false);
        }
        bin.extend(self.blocks.slab.surplus().map(Garbage::Line));
    }

    fn push_number(&self, _key: T, place: Place) -> u64 {
        self.blocks.get(place.position).1
    }

    fn level_len(&self, priority: i8) -> usize {
        self.list(priority).len()
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        let priority = priority_of(self.choice.top()?);
        Some((priority, self.blocks.front_stamp(self.list(priority))))
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

    fn upcoming(&self, ahead: u32) -> Option<T> {
        self.blocks.peek(self.list(priority_of(self.choice.top()?)), ahead)
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        bin.push(Garbage::Lines(self.blocks.slab.shrink()));
    }
}
