//! By priority; first in, first out within one.

use super::choice::Choice;
use super::{Bin, Garbage, Line, NORMAL, Order, Place, Pushed, level_of, priority_of};

pub(crate) struct Levels<T> {
    /// By level. `None`: no key has this priority.
    lines: Box<[Option<Box<Line<T>>>; 256]>,
    len: usize,
    /// Lines without keys: of the levels that are used again and again.
    idle: usize,
    /// No line that is made has numbered a push as high.
    next_push: u64,
    choice: Choice,
}

/// Lines without keys that are kept.
const KEEP: usize = 8;

impl<T: Copy> Levels<T> {
    pub(crate) fn new(strict: bool) -> Self {
        Self::from_line(Line::default(), strict)
    }

    /// The line of a plain queue is the level NORMAL: its keys stay where they are.
    pub(crate) fn from_line(line: Line<T>, strict: bool) -> Self {
        let (mut lines, mut choice) = (Box::new([const { None }; 256]), Choice::new(strict));
        choice.set(level_of(NORMAL), !line.is_empty());
        let (len, idle) = (line.len(), usize::from(line.is_empty()));
        lines[usize::from(level_of(NORMAL))] = Some(Box::new(line));
        Self { lines, len, idle, next_push: 0, choice }
    }

    #[inline]
    fn line(&self, priority: i8) -> Option<&Line<T>> {
        self.lines[usize::from(level_of(priority))].as_deref()
    }

    /// The first key of a level comes.
    fn begin(&mut self, level: u8) {
        self.choice.set(level, true);
        match &mut self.lines[usize::from(level)] {
            Some(_) => self.idle -= 1,
            absent => *absent = Some(Box::new(Line::new(self.next_push))),
        }
    }

    /// The last key of a level is gone.
    fn end(&mut self, level: u8, bin: &mut Bin<T>) {
        self.choice.set(level, false);
        self.idle += 1;
        if self.idle > KEEP {
            let line = self.lines[usize::from(level)].take();
            self.next_push = self.next_push.max(line.as_ref().map_or(0, |line| line.pushed()));
            self.idle -= 1;
            bin.extend(line.map(Garbage::Level));
        }
    }
}

impl<T: Copy> Order<T> for Levels<T> {
    #[inline]
    fn push(&mut self, key: T, priority: i8, _group: u32) -> Pushed {
        let level = level_of(priority);
        if self.lines[usize::from(level)].as_ref().is_none_or(|line| line.is_empty()) {
            self.begin(level);
        }
        let line = self.lines[usize::from(level)].as_mut().expect("a level that has begun");
        self.len += 1;
        Pushed { position: line.push_key(key), is_ready: true }
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (level, _) = self.choice.choose()?;
        let line = self.lines[usize::from(level)].as_mut()?;
        let key = line.pop(bin);
        self.len -= 1;
        if line.is_empty() {
            self.end(level, bin);
        }
        key
    }

    fn remove(&mut self, key: T, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let line = self.lines[usize::from(level)].as_mut().expect("the key is queued here");
        line.remove(key, place, bin);
        self.len -= 1;
        if line.is_empty() {
            self.end(level, bin);
        }
    }

    fn push_number(&self, key: T, place: Place) -> u64 {
        self.line(place.priority).map_or(0, |line| line.push_number(key, place))
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    fn level_len(&self, priority: i8) -> usize {
        self.line(priority).map_or(0, |line| line.len())
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        let priority = priority_of(self.choice.top()?);
        Some((priority, self.line(priority)?.front()?.1))
    }

    #[inline]
    fn upcoming(&self, ahead: u32) -> Option<T> {
        self.line(priority_of(self.choice.top()?))?.upcoming(ahead)
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        for line in self.lines.iter_mut() {
            if let Some(idle) = line.take_if(|line| line.is_empty()) {
                self.next_push = self.next_push.max(idle.pushed());
                self.idle -= 1;
                bin.push(Garbage::Level(idle));
            }
            line.iter_mut().for_each(|line| line.shrink(bin));
        }
    }
}
