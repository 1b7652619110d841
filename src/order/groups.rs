//! Groups that take turns; by priority; first in, first out within a group of one priority.
//!
//! ```text
//!   level HIGH     new: ─            old: lane ─ lane                       parked   idle
//!   level NORMAL   new: lane ─ lane  old: lane ─ lane ─ lane                parked   idle
//!                         └ the keys of one group in one level
//! ```
//!
//! A lane that gets its first key is *new*: it comes before those that have had turns, the *old* ones; but of 16 hand-outs of a level one
//! goes to those. It gives as many keys as its group weighs, and then goes to the end of the old. A lane without keys is *idle*: in no
//! turn, but known until its next turn would have come. If it gets a key before that, it goes to the end of the old, and is not new. (This
//! is FQ-CoDel, RFC 8290, with a cost of 1; there an empty lane stays among the old. Here no pop walks over empty lanes.)
//!
//! A group with as many processing keys as it may have is *full*: its lanes with keys are *parked*, until one of those keys ends. Then a
//! lane whose turn would have come meanwhile is new: the first one if it was to give a key when it was parked, else the last. Another lane
//! goes to the end of the old, or of the new if it was new; but its turn is not put off: it is known when it would have come. (For this
//! each new lane has a ticket. If it went first each time, a group that is full now and then, by its keys of another level, would pass all
//! others for ever.) How the levels of one group share its room: [`owed`](super::owed).
//!
//! All steps are O(1), but for those that visit the lanes of a group: when it becomes full, or is no longer; and to find one of a level. And
//! with a limit a turn of the lower levels looks at some lanes.

use super::bits::Bits;
use super::choice::Choice;
use super::keys::Blocks;
use super::known::Known;
use super::lanes::{Lane, LaneBlocks, Lanes, List, Seat};
use super::seats::Level;
use super::stamps::{Stamps, stamp_of_push};
use super::table::Table;
use super::{Bin, Garbage, Group, NONE, Order, PLACES, Place, Pushed, level_of, priority_of, visit};
use std::num::NonZeroU64;

pub(crate) struct Groups<T> {
    pub(super) table: Table,
    pub(super) lanes: Lanes<T>,
    pub(super) blocks: LaneBlocks<T>,
    pub(super) levels: Box<[Level; 256]>,
    pub(super) choice: Choice,
    /// Lanes that give the next keys, before all levels.
    pub(super) owed: List,
    /// Idle lanes. And the levels that have some, and none with keys.
    pub(super) idle: u32,
    pub(super) quiet: Bits,
    /// The last level that was looked at for a lane to be skipped.
    pub(super) last_skipped: u8,
    /// How often a group had room again.
    pub(super) rooms: u64,
    /// Keys of a group that may be processing.
    pub(super) limit: u32,
    /// Queued keys.
    len: usize,
    /// Queued keys of full groups.
    pub(super) blocked: usize,
    /// The number of the last push.
    pub(super) pushes: NonZeroU64,
    /// The lane that gave the last key, if it has more. Or `NONE`.
    pub(super) served: u32,
    pub(super) stamps: Stamps,
}

/// Of this number of hand-outs of a level, one goes to an old lane.
const TURNS: u8 = 16;

impl<T: Copy + PartialEq> Groups<T> {
    /// `limit`: of processing keys of one group.
    pub(crate) fn new(limit: Option<u32>, strict: bool) -> Self {
        Self {
            table: Table::new(),
            lanes: Lanes::default(),
            blocks: Blocks(Default::default()),
            levels: Box::new([Level::EMPTY; 256]),
            choice: Choice::new(strict),
            owed: List::EMPTY,
            idle: 0,
            quiet: Bits::default(),
            last_skipped: 0,
            rooms: 0,
            limit: limit.unwrap_or(u32::MAX),
            len: 0,
            blocked: 0,
            pushes: NonZeroU64::MIN,
            served: NONE,
            stamps: Stamps::default(),
        }
    }

    /// The number of groups that are known.
    #[cfg(test)]
    pub(crate) fn groups(&self) -> usize {
        self.table.groups()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lanes.bytes() + self.blocks.0.bytes() + self.table.bytes()
    }

    /// A group, and the number of its hand-outs since it is known.
    pub(crate) fn group(&self, group: u32) -> (Group, u64) {
        let known = &self.lanes[group].known;
        (known.group(), known.handed_out())
    }

    #[inline]
    pub(super) fn is_full(&self, group: u32) -> bool {
        self.limit < u32::MAX && self.lanes[group].known.processing >= self.limit
    }

    /// The lane of a group in a level, which is made if there is none.
    #[inline]
    fn lane(&mut self, group: u32, level: u8) -> u32 {
        self.find_lane(group, level).unwrap_or_else(|| self.make_lane(group, level))
    }

    #[inline]
    fn find_lane(&self, group: u32, level: u8) -> Option<u32> {
        let mut number = group;
        while number != NONE {
            visit();
            let lane = &self.lanes[number];
            if lane.level == level && lane.seat != Seat::Nowhere {
                return Some(number);
            }
            number = lane.sibling;
        }
        None
    }

    fn make_lane(&mut self, group: u32, level: u8) -> u32 {
        let home = &mut self.lanes[group];
        if home.seat == Seat::Nowhere {
            // Without a credit: what it is due is not kept, as it was of the level that had this lane before.
            home.level = level;
            home.turn.set_credit(0);
            return group;
        }
        let number = self.lanes.lend();
        let sibling = std::mem::replace(&mut self.lanes[group].sibling, number);
        self.lanes[number] = Lane::new(group, level, sibling, Known::default());
        number
    }

    /// The lane that gives the next key, and its seat.
    #[inline]
    fn next_lane(&mut self) -> Option<(u32, Seat)> {
        if self.owed.first != NONE {
            self.choice.count_owed();
            return Some((self.owed.first, Seat::Owed));
        }
        let (index, is_turn) = self.choice.choose()?;
        if is_turn {
            self.skip();
        }
        let level = &mut self.levels[usize::from(index)];
        let has_old = level.len_of(Seat::Old) > 0;
        let from_old = level.len_of(Seat::New) == 0 || has_old && level.since_old >= TURNS - 1;
        level.since_old = if from_old { 0 } else { level.since_old.saturating_add(1) };
        let seat = if from_old { Seat::Old } else { Seat::New };
        Some((level.list(seat).first, seat))
    }

    /// Passes on what is to be freed.
    #[inline]
    fn drop_surplus(&mut self, bin: &mut Bin<T>) {
        bin.extend(self.lanes.surplus().map(Garbage::Lanes));
        bin.extend(self.blocks.0.surplus().map(Garbage::Keys));
    }
}

impl<T: Copy + PartialEq> Order<T> for Groups<T> {
    #[inline(never)]
    fn enter(&mut self, group: Group) -> u32 {
        let number = self.table.find_or_make(group, &mut self.lanes);
        let known = &mut self.lanes[number].known;
        if known.keys == 0 {
            known.begin(group.weight); // it may have been kept without keys
        }
        known.keys += 1;
        number
    }

    #[inline(never)]
    fn leave(&mut self, group: u32, bin: &mut Bin<T>) {
        let known = &mut self.lanes[group].known;
        known.keys -= 1;
        if known.keys == 0 {
            self.forget_if_unused(group, bin);
            bin.extend(self.lanes.surplus().map(Garbage::Lanes));
        }
    }

    #[inline(never)]
    fn push(&mut self, key: T, priority: i8, group: u32) -> Pushed {
        let (level, is_full) = (level_of(priority), self.is_full(group));
        let number = self.lane(group, level);
        self.pushes = self.pushes.saturating_add(1);
        self.len += 1;
        if self.stamps.are_wanted {
            self.note_push(number, level);
        }
        let lane = &mut self.lanes[number];
        let was_empty = lane.is_empty();
        let position = lane.push((key, self.pushes), &mut self.blocks);
        self.lanes[group].known.queued += 1;
        self.levels[usize::from(level)].len += 1;
        self.blocked += usize::from(is_full);
        if was_empty {
            self.lanes[number].turn.clear_passes();
            self.seat(number, false);
        }
        Pushed { position, is_ready: !is_full }
    }

    #[inline(never)]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (number, from) = self.next_lane()?;
        let index = self.lanes[number].level;
        let level = &mut self.levels[usize::from(index)];
        level.len -= 1;
        if self.stamps.are_wanted {
            self.stamps.note_pop();
        }
        let lane = &mut self.lanes[number];
        let key = lane.pop(&mut self.blocks)?;
        self.len -= 1;
        let credit = lane.turn.credit() - 1;
        lane.turn.set_credit(credit);
        if from == Seat::New {
            level.pass(lane.due);
        }
        let (turn_is_over, is_empty, group) = (credit == 0 || from == Seat::Owed, lane.is_empty(), lane.group);
        self.served = if is_empty { NONE } else { number };
        let known = &mut self.lanes[group].known;
        known.queued -= 1;
        known.note_hand_out();
        let queued = known.queued as usize;
        known.processing += u32::from(self.limit < u32::MAX);
        let is_full = self.limit < u32::MAX && known.processing == self.limit;
        if from == Seat::Old && (turn_is_over || is_empty || is_full) {
            level.turns = level.turns.wrapping_add(1);
        }
        self.lanes[number].turn.clear_passes();
        if is_full {
            self.lanes[number].turn.set_credit(0);
            self.pass_others(group, number);
            self.blocked += queued;
            self.seat_all(group);
        } else if turn_is_over || is_empty {
            self.seat(number, turn_is_over);
        }
        self.tidy(index, bin);
        self.drop_surplus(bin);
        Some(key)
    }

    fn remove(&mut self, key: T, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let number = self.find_lane(place.group, level).expect("the key is queued here");
        let lane = &mut self.lanes[number];
        lane.remove(key, place.position, &mut self.blocks);
        let is_empty = lane.is_empty();
        self.lanes[place.group].known.queued -= 1;
        self.len -= 1;
        self.levels[usize::from(level)].len -= 1;
        self.blocked -= usize::from(self.is_full(place.group));
        if is_empty {
            self.seat(number, false);
        }
        self.tidy(level, bin);
        self.drop_surplus(bin);
    }

    #[inline(never)]
    fn ended(&mut self, group: u32) -> bool {
        if self.limit == u32::MAX {
            return false;
        }
        let was_full = self.is_full(group);
        let known = &mut self.lanes[group].known;
        known.processing -= 1;
        let queued = known.queued as usize;
        if was_full {
            self.blocked -= queued;
            self.has_room(group);
        }
        was_full && queued > 0
    }

    #[inline]
    fn blocked(&self) -> usize {
        self.blocked
    }

    fn push_number(&self, key: T, place: Place) -> u64 {
        let lane = self.find_lane(place.group, level_of(place.priority));
        lane.map_or(0, |number| self.lanes[number].push_number(key, place.position, &self.blocks))
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    fn level_len(&self, priority: i8) -> usize {
        self.levels[usize::from(level_of(priority))].len as usize
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        let owed = if self.owed.first == NONE { None } else { Some(self.lanes[self.owed.first].level) };
        Some((priority_of(self.choice.top().max(owed)?), self.stamps.turn()))
    }

    fn stamp_of(&self, key: T, place: Place) -> u64 {
        if self.stamps.are_wanted { stamp_of_push(self.push_number(key, place)) } else { 0 }
    }

    fn want_stamps(&mut self) {
        self.stamps.are_wanted = true;
    }

    #[inline]
    fn wants_stamp(&self) -> bool {
        self.stamps.is_one_wanted()
    }

    fn stamp(&mut self, now: u64) {
        self.give_stamp(now);
    }

    /// A key of the lane that gave the last one: with many lanes its first, whose turn comes when those of the others have been.
    fn upcoming(&self, ahead: u32) -> Option<T> {
        let lane = if self.served == NONE { return None } else { &self.lanes[self.served] };
        let level = &self.levels[usize::from(lane.level)];
        lane.peek(ahead / (level.len_of(Seat::New) + level.len_of(Seat::Old)).max(1), &self.blocks)
    }

    fn firsts(&self, mut each: impl FnMut(T) -> bool) {
        let places = &mut { PLACES };
        self.ready_lanes().take(PLACES).for_each(|lane| lane.firsts(&self.blocks, places, &mut each));
    }

    fn shrink(&mut self, bin: &mut Bin<T>) -> bool {
        let has_more = self.forget_due(bin);
        self.table.shrink(bin);
        bin.push(Garbage::Groups(self.lanes.shrink(), self.blocks.0.shrink()));
        has_more
    }
}
