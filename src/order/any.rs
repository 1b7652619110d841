//! Any of the orders: the same machine serves plain queues, and those with priorities or groups.
//!
//! The line is a field of its own beside the other orders, and a call that knows that there is no other one (O1: `is_ordered` is `false`,
//! as a constant) does not look for one: so a plain queue pays nothing for the others.

use super::bits::Words;
use super::{Bin, Group, Groups, Levels, Line, NORMAL, PLACES, Place};

pub(crate) struct AnyOrder<T> {
    /// All keys, unless there is another order.
    line: Line<T>,
    other: Other<T>,
    strict: bool,
}

enum Other<T> {
    /// Until a key is given a priority.
    None,
    Levels(Box<Levels<T>>),
    Groups(Box<Groups<T>>),
}

/// The order in use, by `&` or `&mut`, for a call that each has.
macro_rules! each {
    ([$($by:tt)+] $self:ident, $order:ident => $call:expr) => {
        match $($by)+ $self.other {
            Other::None => {
                let $order = $($by)+ $self.line;
                $call
            }
            Other::Levels($order) => $call,
            Other::Groups($order) => $call,
        }
    };
}

impl<T: Copy> AnyOrder<T> {
    pub(crate) fn new(strict: bool) -> Self {
        Self { line: Line::new(0, false), other: Other::None, strict }
    }

    pub(crate) fn groups(limit: Option<u32>, strict: bool) -> Self {
        let other = Other::Groups(Box::new(Groups::new(limit, strict)));
        Self { line: Line::new(0, false), other, strict }
    }

    /// There is an order other than the line.
    #[inline(always)]
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self.other, Other::None)
    }

    #[inline(always)]
    pub(crate) fn has_groups(&self) -> bool {
        matches!(self.other, Other::Groups(_))
    }

    /// A plain queue gets memory for this number of keys, and keeps it until it is shrunk.
    pub(crate) fn reserve(&mut self, keys: usize) {
        if !self.is_ordered() {
            self.line.reserve(keys);
        }
    }

    /// The number of groups that are known.
    #[cfg(test)]
    pub(crate) fn count_groups(&self) -> usize {
        if let Other::Groups(groups) = &self.other { groups.table.groups } else { 0 }
    }

    /// Old and new lanes of a level have had this number of turns more.
    #[cfg(test)]
    pub(crate) fn skip_turns(&mut self, priority: i8, turns: u64) {
        if let Other::Groups(groups) = &mut self.other {
            groups.levels[usize::from(super::level_of(priority))].skip_turns(turns);
        }
    }

    /// A group, and the number of its hand-outs since it is known. Without groups, all keys are of one, and nothing is counted.
    pub(crate) fn group(&self, group: u32) -> (Group, u64) {
        if let Other::Groups(groups) = &self.other { groups.group(group) } else { (Group::default(), 0) }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        each!([&] self, order => order.bytes())
    }

    /// A key of a plain queue.
    #[inline(always)]
    pub(crate) fn push_plain(&mut self, key: T) -> u32 {
        debug_assert!(!self.is_ordered());
        self.line.push_key(key)
    }

    /// The next key of a plain queue, if that is a few instructions, and leaves no memory.
    #[inline(always)]
    pub(crate) fn pop_plain(&mut self) -> Option<T> {
        debug_assert!(!self.is_ordered());
        self.line.pop_simple()
    }

    /// The keys that a pop may return. `is_ordered`: there may be another order than the line.
    #[inline(always)]
    pub(crate) fn ready(&self, is_ordered: bool) -> usize {
        match &self.other {
            Other::Levels(levels) if is_ordered => levels.len(),
            Other::Groups(groups) if is_ordered => groups.ready(),
            _ => self.line.len(),
        }
    }

    /// The first key with a priority comes.
    #[cold]
    fn begin_levels(&mut self) {
        let line = std::mem::replace(&mut self.line, Line::new(0, false));
        self.other = Other::Levels(Box::new(Levels::from_line(line, self.strict)));
    }

    /// A key of this priority may be pushed soon.
    #[inline]
    pub(crate) fn expect(&mut self, priority: i8) {
        if priority != NORMAL && !self.is_ordered() {
            self.begin_levels();
        }
    }

    /// Puts a key behind all others of its priority and group. Returns its position, and whether a pop may return it: its group is not full.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: T, priority: i8, group: u32) -> (u32, bool) {
        each!([&mut] self, order => order.push(key, priority, group))
    }

    /// Takes the next key. With a limit, it counts as processing until [`ended`](Self::ended).
    #[inline(always)]
    pub(crate) fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        each!([&mut] self, order => order.pop(bin))
    }

    /// Takes the first key of this level, if it has one that a pop may return.
    pub(crate) fn pop_level(&mut self, level: u8, bin: &mut Bin<T>) -> Option<T> {
        each!([&mut] self, order => order.pop_level(level, bin))
    }

    /// The levels that have keys which a pop may return, and the stamp of the oldest of these keys but for the highest level: `u64::MAX` if
    /// there is none. With groups: the stamp of the last few pops.
    #[cold]
    #[inline(never)]
    pub(crate) fn levels(&mut self) -> (Words, u64) {
        each!([&mut] self, order => order.levels())
    }

    /// This may be another answer than the last one of [`levels`](Self::levels). (A line does not say so: all its keys are NORMAL.)
    #[inline(always)]
    pub(crate) fn have_levels_changed(&self) -> bool {
        match &self.other {
            Other::None => false,
            Other::Levels(levels) => levels.rotation.ready.has_changed,
            Other::Groups(groups) => groups.rotation.ready.has_changed,
        }
    }

    /// Takes out a key that is queued here.
    pub(crate) fn remove(&mut self, place: Place, bin: &mut Bin<T>) {
        each!([&mut] self, order => order.remove(place, bin));
    }

    /// The number of queued keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        each!([&] self, order => order.len())
    }

    /// Queued keys that a pop does not return now: those of full groups.
    #[cfg(test)]
    pub(crate) fn blocked(&self) -> usize {
        self.len() - self.ready(true)
    }

    /// A new key is known. Returns the number of its group, which stays the same while keys of it are known.
    #[inline]
    pub(crate) fn enter_group(&mut self, group: Group) -> u32 {
        if let Other::Groups(groups) = &mut self.other { groups.enter_group(group) } else { 0 }
    }

    /// A key of this group is not known any more. It was neither queued nor processing.
    #[inline]
    pub(crate) fn leave_group(&mut self, group: u32, bin: &mut Bin<T>) {
        if let Other::Groups(groups) = &mut self.other {
            groups.leave_group(group, bin);
        }
    }

    /// A key of this group, which is still known, is no longer processing. Returns whether that makes another one ready.
    #[inline]
    pub(crate) fn ended(&mut self, group: u32) -> bool {
        if let Other::Groups(groups) = &mut self.other { groups.ended(group) } else { false }
    }

    /// Of the push by which a key is queued here: its stamp, a time that is not after it, nor after the stamp of a later push of its
    /// priority; and its number.
    pub(crate) fn age(&self, place: Place) -> (u64, u64) {
        each!([&] self, order => order.age(place))
    }

    /// The number of queued keys of a priority.
    pub(crate) fn level_len(&self, priority: i8) -> usize {
        each!([&] self, order => order.level_len(priority))
    }

    /// The highest priority of a key that a pop may return, and the stamp of the first key there. With groups: that of the last few
    /// pops. `is_ordered`, here and below: as in [`ready`](Self::ready).
    #[inline(always)]
    pub(crate) fn front(&self, is_ordered: bool) -> Option<(i8, u64)> {
        if !is_ordered {
            return self.line.front();
        }
        each!([&] self, order => order.front())
    }

    /// From now on [`wants_stamp`](Self::wants_stamp) says when stamps are wanted. Before the first push.
    pub(crate) fn want_stamps(&mut self) {
        match &mut self.other {
            Other::Groups(groups) => groups.stamps.are_wanted = true,
            _ => self.line = Line::new(0, true),
        }
    }

    /// A call since the last stamp wants one.
    #[inline(always)]
    pub(crate) fn wants_stamp(&self, is_ordered: bool) -> bool {
        if !is_ordered {
            return self.line.wants_stamp();
        }
        each!([&] self, order => order.wants_stamp())
    }

    /// Pushes of a batch are to come: with groups, they are at this time.
    pub(crate) fn stamp_ahead(&mut self, now: impl FnOnce() -> u64) {
        if let Other::Groups(groups) = &mut self.other {
            groups.stamp_ahead(now());
        }
    }

    /// Those calls were at this time.
    pub(crate) fn stamp(&mut self, now: u64) {
        each!([&mut] self, order => order.stamp(now));
    }

    /// A key that a pop will probably return after this number of others. A hint, for the cache.
    #[inline(always)]
    pub(crate) fn upcoming(&self, ahead: u32, is_ordered: bool) -> Option<T> {
        if !is_ordered {
            return self.line.upcoming(ahead);
        }
        each!([&] self, order => order.upcoming(ahead))
    }

    /// Calls `each` for the keys that have waited longest: for each priority and group for the first few, until it returns true. Full groups
    /// are groups like the others. It visits a thousand places ([`PLACES`]): of very many priorities and groups those whose turns come first,
    /// and those that became full first.
    pub(crate) fn firsts(&self, each: impl FnMut(T) -> bool) {
        each!([&] self, order => order.firsts(&mut { PLACES }, each));
    }

    /// Gives back memory that the keys do not need. Returns whether there is more for another call.
    pub(crate) fn shrink(&mut self, bin: &mut Bin<T>) -> bool {
        each!([&mut] self, order => order.shrink(bin))
    }
}
