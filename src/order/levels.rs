//! By priority, and first in, first out within one: an array of lines.

use super::bits::Words;
use super::rotation::Rotation;
use super::{Bin, Line, NORMAL, Place, by_level, level_of, priority_of, share};

pub(crate) struct Levels<T> {
    lines: Box<[Line<T>; 256]>,
    pub(super) rotation: Rotation,
    len: usize,
    with_memory: usize,
    /// Levels that want a stamp.
    unstamped: Vec<u8>,
    /// What [`levels`](Self::levels) has found last.
    published: Option<Published>,
}

#[derive(Clone, Copy)]
struct Published {
    top: u8,
    oldest: u8,
    stamp: u64,
}

/// If more lines than this have memory, one that becomes empty gives it back.
const KEEP: usize = 32;

impl<T: Copy> Levels<T> {
    /// The line of a plain queue is the level NORMAL: its keys stay where they are.
    pub(crate) fn from_line(line: Line<T>, strict: bool) -> Self {
        let (mut lines, mut rotation) = (by_level(|| Line::new(0, line.is_stamped)), Rotation::new(strict));
        rotation.ready.put(level_of(NORMAL), !line.is_empty());
        let (len, with_memory) = (line.len(), usize::from(line.has_memory()));
        lines[usize::from(level_of(NORMAL))] = line;
        Self { lines, rotation, len, with_memory, unstamped: vec![level_of(NORMAL)], published: None }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lines.iter().map(Line::bytes).sum()
    }

    #[inline]
    fn line(&self, priority: i8) -> &Line<T> {
        &self.lines[usize::from(level_of(priority))]
    }

    /// A level gets its first key.
    #[inline]
    fn begin(&mut self, level: u8) {
        self.rotation.ready.put(level, true);
        let line = &mut self.lines[usize::from(level)];
        self.with_memory += usize::from(!line.has_memory());
        line.want_stamp();
    }

    /// The last key of a level is gone.
    #[inline]
    fn end(&mut self, level: u8, bin: &mut Bin<T>) {
        self.rotation.ready.put(level, false);
        if self.with_memory > KEEP {
            self.lines[usize::from(level)].clear(bin);
            self.with_memory -= 1;
        }
    }
}

impl<T: Copy> Levels<T> {
    #[inline(always)]
    pub(super) fn push(&mut self, key: T, priority: i8, _group: u32) -> (u32, bool) {
        let level = level_of(priority);
        if self.lines[usize::from(level)].is_empty() {
            self.begin(level);
        }
        self.len += 1;
        let line = &mut self.lines[usize::from(level)];
        let position = line.push_key(key);
        if line.wants_stamp() {
            self.unstamped.push(level);
        }
        (position, true)
    }

    #[inline(always)]
    pub(super) fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (level, _) = self.rotation.choose()?;
        self.pop_from(level, bin)
    }

    pub(super) fn pop_level(&mut self, level: u8, bin: &mut Bin<T>) -> Option<T> {
        if !self.rotation.ready.has(level) {
            return None;
        }
        self.rotation.ready.has_changed = true; // the oldest lower key may be another one now
        self.pop_from(level, bin)
    }

    #[inline(always)]
    fn pop_from(&mut self, level: u8, bin: &mut Bin<T>) -> Option<T> {
        let line = &mut self.lines[usize::from(level)];
        let key = line.pop(bin);
        self.len -= 1;
        if line.is_empty() {
            self.end(level, bin);
        }
        key
    }

    pub(super) fn remove(&mut self, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let line = &mut self.lines[usize::from(level)];
        line.remove(place, bin);
        self.rotation.ready.has_changed = true; // as above
        self.len -= 1;
        if line.is_empty() {
            self.end(level, bin);
        }
    }

    pub(super) fn age(&self, place: Place) -> (u64, u64) {
        self.line(place.priority).age(place)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn level_len(&self, priority: i8) -> usize {
        self.line(priority).len()
    }

    #[inline]
    pub(super) fn front(&self) -> Option<(i8, u64)> {
        let priority = priority_of(self.rotation.ready.top()?);
        Some((priority, self.line(priority).front()?.1))
    }

    pub(super) fn levels(&mut self) -> (Words, u64) {
        let Some(top) = self.rotation.ready.top() else {
            self.published = None;
            return (self.rotation.ready.words(), u64::MAX);
        };
        self.published = self.as_published(top).or_else(|| {
            let oldest = self.rotation.ready.iter().skip(1).min_by_key(|level| self.stamp_of(*level))?;
            Some(Published { top, oldest, stamp: self.stamp_of(oldest) })
        });
        (self.rotation.ready.words(), self.published.map_or(u64::MAX, |published| published.stamp))
    }

    /// The oldest lower key without a walk over all levels. If the last one found is still there, only the level that was the highest then
    /// can have an older one, because all keys that came since have later stamps.
    fn as_published(&self, top: u8) -> Option<Published> {
        let last = self.published?;
        let is_lower = |level| level != top && self.rotation.ready.has(level);
        if !is_lower(last.oldest) || self.stamp_of(last.oldest) != last.stamp {
            return None;
        }
        let oldest = if is_lower(last.top) && self.stamp_of(last.top) < last.stamp { last.top } else { last.oldest };
        Some(Published { top, oldest, stamp: self.stamp_of(oldest) })
    }

    /// The stamp of the first key of a level.
    fn stamp_of(&self, level: u8) -> u64 {
        self.lines[usize::from(level)].front().map_or(u64::MAX, |front| front.1)
    }

    #[inline]
    pub(super) fn wants_stamp(&self) -> bool {
        !self.unstamped.is_empty()
    }

    pub(super) fn stamp(&mut self, now: u64) {
        while let Some(level) = self.unstamped.pop() {
            self.lines[usize::from(level)].stamp(now);
        }
    }

    #[inline]
    pub(super) fn upcoming(&self, ahead: u32) -> Option<T> {
        self.line(priority_of(self.rotation.ready.top()?)).upcoming(ahead)
    }

    pub(super) fn firsts(&self, places: &mut usize, mut each: impl FnMut(T) -> bool) {
        let ready = &self.rotation.ready;
        for (level, left) in ready.iter().zip((1..=usize::from(ready.len())).rev()) {
            let mut share = share(places, left);
            self.line(priority_of(level)).firsts(&mut share, &mut each);
            *places += share;
        }
    }

    pub(super) fn shrink(&mut self, bin: &mut Bin<T>) -> bool {
        for line in self.lines.iter_mut() {
            let _is_all = line.shrink(bin);
        }
        self.with_memory = self.lines.iter().filter(|line| line.has_memory()).count();
        false
    }
}
