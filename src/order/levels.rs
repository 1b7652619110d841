//! By priority; first in, first out within one.

use super::choice::Choice;
use super::{Bin, Line, NORMAL, Order, Place, Pushed, level_of, priority_of};

pub(crate) struct Levels<T> {
    lines: Box<[Line<T>; 256]>,
    choice: Choice,
}

impl<T: Copy> Levels<T> {
    pub(crate) fn new(strict: bool) -> Self {
        Self::from_line(Line::default(), strict)
    }

    /// The line of a plain queue is the level NORMAL: its keys stay where they are.
    pub(crate) fn from_line(line: Line<T>, strict: bool) -> Self {
        let normal = level_of(NORMAL);
        let mut choice = Choice::new(strict);
        choice.set(normal, !line.is_empty());
        let mut lines = Box::new(std::array::from_fn(|_| Line::default()));
        lines[usize::from(normal)] = line;
        Self { lines, choice }
    }
}

impl<T: Copy> Order<T> for Levels<T> {
    #[inline]
    fn push(&mut self, key: T, priority: i8, _group: u32) -> Pushed {
        let level = level_of(priority);
        let line = &mut self.lines[usize::from(level)];
        if line.is_empty() {
            self.choice.set(level, true);
        }
        Pushed { position: line.push(key), is_ready: true }
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (level, _) = self.choice.choose()?;
        let line = &mut self.lines[usize::from(level)];
        let key = line.pop(&mut bin.slots)?;
        if line.is_empty() {
            self.choice.set(level, false);
        }
        Some(key)
    }

    fn remove(&mut self, _key: T, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let line = &mut self.lines[usize::from(level)];
        line.remove(place.position, &mut bin.slots);
        if line.is_empty() {
            self.choice.set(level, false);
        }
    }

    fn push_number(&self, _key: T, place: Place) -> u64 {
        self.lines[usize::from(level_of(place.priority))].get(place.position).1
    }

    fn level_len(&self, priority: i8) -> usize {
        self.lines[usize::from(level_of(priority))].len()
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        let level = self.choice.top()?;
        Some((priority_of(level), self.lines[usize::from(level)].front_number()))
    }

    fn upcoming(&self, ahead: u32) -> Option<T> {
        self.lines[usize::from(self.choice.top()?)].peek(ahead)
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        self.lines.iter_mut().for_each(|line| line.shrink(&mut bin.slots));
    }
}
