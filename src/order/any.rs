//! Any of the orders: the same machine serves plain queues, and those with priorities or groups.

use super::{Bin, Group, Groups, Levels, Line, NORMAL, Order, Place, Pushed};

pub(crate) struct AnyOrder<T> {
    kind: Kind<T>,
    /// Those of the groups, here too: it is asked for at the end of each verb.
    blocked: usize,
}

#[allow(clippy::large_enum_variant, reason = "one a shard")]
#[repr(u8)] // else the tag is a niche in a length, which takes four instructions to read
enum Kind<T> {
    /// Until a key is given a priority.
    Plain {
        line: Line<T>,
        strict: bool,
    },
    Levels(Levels<T>),
    Groups(Groups<T>),
}

impl<T: Copy + PartialEq> AnyOrder<T> {
    pub(crate) fn new(strict: bool) -> Self {
        Self { kind: Kind::Plain { line: Line::default(), strict }, blocked: 0 }
    }

    pub(crate) fn groups(limit: Option<u32>, strict: bool) -> Self {
        Self { kind: Kind::Groups(Groups::new(limit, strict)), blocked: 0 }
    }

    /// A plain queue gets memory for this number of keys, and keeps it until it is shrunk.
    pub(crate) fn reserve(&mut self, keys: usize) {
        if let Kind::Plain { line, .. } = &mut self.kind {
            line.reserve(keys);
        }
    }

    /// The number of groups that are known.
    pub(crate) fn count_groups(&self) -> usize {
        if let Kind::Groups(groups) = &self.kind { groups.groups() } else { 0 }
    }

    /// The number of hand-outs of a group since it is known.
    pub(crate) fn handed_out(&self, group: u32) -> u64 {
        if let Kind::Groups(groups) = &self.kind { groups.handed_out(group) } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Plain { line, .. } => line.bytes(),
            Kind::Levels(levels) => levels.bytes(),
            Kind::Groups(groups) => groups.bytes(),
        }
    }

    /// The first key with a priority comes.
    #[cold]
    fn begin_levels(&mut self) {
        if let Kind::Plain { line, strict } = &mut self.kind {
            self.kind = Kind::Levels(Levels::from_line(std::mem::take(line), *strict));
        }
    }
}

/// The plain line first, and the others out of the way of its code.
macro_rules! each {
    ($self:expr, $order:ident => $call:expr) => {
        match &mut $self.kind {
            Kind::Plain { line: $order, .. } => $call,
            other => {
                cold_path();
                match other {
                    Kind::Levels($order) => $call,
                    Kind::Groups($order) => {
                        let answer = $call;
                        $self.blocked = $order.blocked();
                        answer
                    }
                    Kind::Plain { .. } => unreachable!(),
                }
            }
        }
    };
}

/// The same, for a call that changes nothing.
macro_rules! ask {
    ($self:expr, $order:ident => $call:expr) => {
        match &$self.kind {
            Kind::Plain { line: $order, .. } => $call,
            Kind::Levels($order) => $call,
            Kind::Groups($order) => $call,
        }
    };
}

#[inline]
#[cold]
fn cold_path() {}

impl<T: Copy + PartialEq> Order<T> for AnyOrder<T> {
    #[inline]
    fn expect(&mut self, priority: i8) {
        if priority != NORMAL && matches!(self.kind, Kind::Plain { .. }) {
            self.begin_levels();
        }
    }

    // `inline(always)`: as a call of its own, it takes 0.9 ns of a cycle of 21.8.
    #[inline(always)]
    fn push(&mut self, key: T, priority: i8, group: u32) -> Pushed {
        each!(self, order => Order::push(order, key, priority, group))
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        each!(self, order => Order::pop(order, bin))
    }

    fn remove(&mut self, key: T, place: Place, bin: &mut Bin<T>) {
        each!(self, order => Order::remove(order, key, place, bin));
    }

    #[inline]
    fn blocked(&self) -> usize {
        self.blocked
    }

    #[inline]
    fn enter(&mut self, group: Group) -> u32 {
        if let Kind::Groups(groups) = &mut self.kind { groups.enter(group) } else { 0 }
    }

    #[inline]
    fn leave(&mut self, group: u32, bin: &mut Bin<T>) {
        if let Kind::Groups(groups) = &mut self.kind {
            groups.leave(group, bin);
        }
    }

    #[inline]
    fn ended(&mut self, group: u32) -> bool {
        let Kind::Groups(groups) = &mut self.kind else { return false };
        let more = groups.ended(group);
        self.blocked = groups.blocked();
        more
    }

    fn push_number(&self, key: T, place: Place) -> u64 {
        ask!(self, order => order.push_number(key, place))
    }

    fn level_len(&self, priority: i8) -> usize {
        ask!(self, order => order.level_len(priority))
    }

    fn front(&self) -> Option<(i8, u64)> {
        ask!(self, order => order.front())
    }

    fn stamp_of(&self, key: T, place: Place) -> u64 {
        ask!(self, order => order.stamp_of(key, place))
    }

    fn want_stamps(&mut self) {
        each!(self, order => Order::want_stamps(order));
    }

    #[inline]
    fn wants_stamp(&self) -> bool {
        ask!(self, order => order.wants_stamp())
    }

    fn stamp(&mut self, now: u64) {
        each!(self, order => Order::stamp(order, now));
    }

    fn upcoming(&self, ahead: u32) -> Option<T> {
        ask!(self, order => order.upcoming(ahead))
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        each!(self, order => Order::shrink(order, bin));
    }
}
