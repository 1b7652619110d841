//! Any of the orders. A plain queue pays nothing for the others, because its calls pass the constant `is_ordered: false`, and then no code
//! looks for another order than the line (O1).

use super::bits::Words;
use super::{Bin, Group, GroupView, Groups, Levels, Line, NORMAL, PLACES, Place};
use crate::FairShare;

pub(crate) struct AnyOrder<T> {
    /// All keys, as long as there is no other order.
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

/// Calls a method of the order in use, by `&` or `&mut`.
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

    /// `rotates` and `is_strict` are as in [`Groups::new`].
    pub(crate) fn groups(shares: FairShare, rotates: bool, is_strict: bool) -> Self {
        let other = Other::Groups(Box::new(Groups::new(shares, rotates, is_strict)));
        Self { line: Line::new(0, false), other, strict: is_strict }
    }

    /// The groups, if keys have some.
    #[inline]
    pub(crate) fn as_groups(&self) -> Option<&Groups<T>> {
        if let Other::Groups(groups) = &self.other { Some(groups) } else { None }
    }

    #[inline]
    pub(crate) fn groups_mut(&mut self) -> Option<&mut Groups<T>> {
        if let Other::Groups(groups) = &mut self.other { Some(groups) } else { None }
    }

    #[inline(always)]
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self.other, Other::None)
    }

    #[inline(always)]
    pub(crate) fn has_groups(&self) -> bool {
        matches!(self.other, Other::Groups(_))
    }

    /// Makes room for this number of keys in a plain queue, which keeps it until a [`shrink`](Self::shrink).
    pub(crate) fn reserve(&mut self, keys: usize) {
        if !self.is_ordered() {
            self.line.reserve(keys);
        }
    }

    #[cfg(test)]
    pub(crate) fn count_groups(&self) -> usize {
        if let Other::Groups(groups) = &self.other { groups.table.groups } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn skip_turns(&mut self, priority: i8, turns: u64) {
        if let Other::Groups(groups) = &mut self.other {
            groups.levels[usize::from(super::level_of(priority))].round += turns;
        }
    }

    /// What is known of a group, if keys have some.
    pub(crate) fn group(&self, group: u32) -> Option<GroupView> {
        self.as_groups().map(|groups| groups.group(group))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        each!([&] self, order => order.bytes())
    }

    #[inline(always)]
    pub(crate) fn push_plain(&mut self, key: T) -> u32 {
        debug_assert!(!self.is_ordered());
        self.line.push_key(key)
    }

    /// The next key of a plain queue, if it takes only a few instructions and leaves no memory to be freed.
    #[inline(always)]
    pub(crate) fn pop_plain(&mut self) -> Option<T> {
        debug_assert!(!self.is_ordered());
        self.line.pop_simple()
    }

    /// The number of keys that a pop may return. `is_ordered`: whether there may be another order than the line.
    #[inline(always)]
    pub(crate) fn ready(&self, is_ordered: bool) -> usize {
        match &self.other {
            Other::Levels(levels) if is_ordered => levels.len(),
            Other::Groups(groups) if is_ordered => groups.ready(),
            _ => self.line.len(),
        }
    }

    /// Makes the line the level NORMAL.
    #[cold]
    fn begin_levels(&mut self) {
        let line = std::mem::replace(&mut self.line, Line::new(0, false));
        self.other = Other::Levels(Box::new(Levels::from_line(line, self.strict)));
    }

    /// To be called before a key of this priority is pushed.
    #[inline]
    pub(crate) fn expect(&mut self, priority: i8) {
        if priority != NORMAL && !self.is_ordered() {
            self.begin_levels();
        }
    }

    /// Puts a key behind all others of its priority and group. Returns its position, and whether a pop may return it, because its group is
    /// not held back.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: T, priority: i8, group: u32) -> (u32, bool) {
        each!([&mut] self, order => order.push(key, priority, group))
    }

    /// Takes the next key, which counts as processing until [`ended`](Self::ended). `now` is the time, if the order
    /// [needs](Groups::needs_time) it.
    #[inline(always)]
    pub(crate) fn pop(&mut self, now: u64, bin: &mut Bin<T>) -> Option<T> {
        match &mut self.other {
            Other::None => self.line.pop(bin),
            Other::Levels(levels) => levels.pop(bin),
            Other::Groups(groups) => groups.pop(now, bin),
        }
    }

    /// Takes the next key of this level, if a pop may return one.
    pub(crate) fn pop_level(&mut self, level: u8, now: u64, bin: &mut Bin<T>) -> Option<T> {
        match &mut self.other {
            Other::None => self.line.pop_level(level, bin),
            Other::Levels(levels) => levels.pop_level(level, bin),
            Other::Groups(groups) => groups.pop_level(level, now, bin),
        }
    }

    /// The levels with keys that a pop may return, and the stamp of the oldest such key below the highest level, or `u64::MAX`. With groups
    /// it is 0, because shards then have the turns of lower levels in their order.
    #[cold]
    #[inline(never)]
    pub(crate) fn levels(&mut self) -> (Words, u64) {
        each!([&mut] self, order => order.levels())
    }

    /// Whether [`levels`](Self::levels) may give another answer than the last time. (Never in a line, where all keys are NORMAL.)
    #[inline(always)]
    pub(crate) fn have_levels_changed(&self) -> bool {
        match &self.other {
            Other::None => false,
            Other::Levels(levels) => levels.rotation.ready.has_changed,
            Other::Groups(groups) => groups.rotation.ready.has_changed,
        }
    }

    pub(crate) fn remove(&mut self, place: Place, bin: &mut Bin<T>) {
        each!([&mut] self, order => order.remove(place, bin));
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        each!([&] self, order => order.len())
    }

    /// The number of queued keys of groups that are held back.
    #[cfg(test)]
    pub(crate) fn blocked(&self) -> usize {
        self.len() - self.ready(true)
    }

    /// Counts a new key of a group. Returns the number of the group, which stays the same while a key of it is known.
    #[inline]
    pub(crate) fn enter_group(&mut self, group: Group) -> u32 {
        if let Other::Groups(groups) = &mut self.other { groups.enter_group(group) } else { 0 }
    }

    /// Forgets a key of this group, which is neither queued nor processing.
    #[inline]
    pub(crate) fn leave_group(&mut self, group: u32, bin: &mut Bin<T>) {
        if let Other::Groups(groups) = &mut self.other {
            groups.leave_group(group, bin);
        }
    }

    /// Counts a key of this group as no longer processing, after a handler time of `nanos`. Returns the number of other keys that become
    /// ready.
    #[inline]
    pub(crate) fn ended(&mut self, group: u32, nanos: u64) -> u32 {
        if let Other::Groups(groups) = &mut self.other { groups.ended(group, nanos) } else { 0 }
    }

    /// No group is [released](Self::release) before this time.
    #[inline]
    pub(crate) fn held_until(&self) -> Option<u64> {
        if let Other::Groups(groups) = &self.other { groups.holds.until } else { None }
    }

    /// Whether [`held_until`](Self::held_until) has become earlier since the last question.
    #[inline]
    pub(crate) fn take_earlier(&mut self) -> bool {
        if let Other::Groups(groups) = &mut self.other { groups.holds.take_earlier() } else { false }
    }

    /// Releases groups whose pauses are over, or that have a token again, in as many steps as the budget allows. Returns the number of keys
    /// that become ready.
    pub(crate) fn release(&mut self, now: u64, budget: &mut usize, bin: &mut Bin<T>) -> u32 {
        if let Other::Groups(groups) = &mut self.other { groups.expire(now, budget, bin) } else { 0 }
    }

    /// The stamp and the number of the push by which a key is queued. The stamp is not after the push, and not after the stamps of later
    /// pushes of the same priority.
    pub(crate) fn age(&self, place: Place) -> (u64, u64) {
        each!([&] self, order => order.age(place))
    }

    /// Whether a [`pop_level`](Self::pop_level) returns a key.
    pub(crate) fn is_ready(&self, level: u8) -> bool {
        match &self.other {
            Other::Groups(groups) => groups.rotation.ready.has(level),
            _ => self.level_len(super::priority_of(level)) > 0,
        }
    }

    pub(crate) fn level_len(&self, priority: i8) -> usize {
        each!([&] self, order => order.level_len(priority))
    }

    /// The highest priority of a key that a pop may return, and the stamp of the first key there, or with groups the round of that level.
    /// `is_ordered`, here and below, is as in [`ready`](Self::ready).
    #[inline(always)]
    pub(crate) fn front(&self, is_ordered: bool) -> Option<(i8, u64)> {
        if !is_ordered {
            return self.line.front();
        }
        each!([&] self, order => order.front())
    }

    /// From now on the order wants stamps. To be called before the first push.
    pub(crate) fn want_stamps(&mut self) {
        match &mut self.other {
            Other::Groups(groups) => groups.stamps.are_wanted = true,
            _ => self.line = Line::new(0, true),
        }
    }

    /// Whether a call since the last [`stamp`](Self::stamp) wants one.
    #[inline(always)]
    pub(crate) fn wants_stamp(&self, is_ordered: bool) -> bool {
        if !is_ordered {
            return self.line.wants_stamp();
        }
        each!([&] self, order => order.wants_stamp())
    }

    /// Whether a level waits for [`join`](Self::join).
    #[inline(always)]
    pub(crate) fn wants_front(&self) -> bool {
        if let Other::Groups(groups) = &self.other { !groups.stamps.joining.is_empty() } else { false }
    }

    /// Levels that had no groups with keys join the round in which other shards are. `front`: the first stamp of theirs for a priority.
    pub(crate) fn join(&mut self, front: impl Fn(i8) -> u64) {
        if let Other::Groups(groups) = &mut self.other {
            groups.join(front);
        }
    }

    /// Gives this stamp to the calls that want one.
    pub(crate) fn stamp(&mut self, now: u64) {
        each!([&mut] self, order => order.stamp(now));
    }

    /// A key that a pop will probably return after this number of others. A hint, for prefetching.
    #[inline(always)]
    pub(crate) fn upcoming(&self, ahead: u32, is_ordered: bool) -> Option<T> {
        if !is_ordered {
            return self.line.upcoming(ahead);
        }
        each!([&] self, order => order.upcoming(ahead))
    }

    /// Calls `each` for the keys that have waited longest: for the first few keys of each priority and group, held back or not, until it returns
    /// true. It visits at most [`PLACES`], so of very many groups it sees only those whose turns come first, and those that were held back
    /// first.
    pub(crate) fn firsts(&self, each: impl FnMut(T) -> bool) {
        each!([&] self, order => order.firsts(&mut { PLACES }, each));
    }

    /// Gives back memory that the keys do not need. Returns whether another call would give back more.
    pub(crate) fn shrink(&mut self, bin: &mut Bin<T>) -> bool {
        each!([&mut] self, order => order.shrink(bin))
    }
}
