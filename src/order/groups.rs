//! Groups that take turns; by priority; first in, first out within a group of one priority.
//!
//! ```text
//!   level HIGH     new: ─            old: lane ─ lane                       parked   idle
//!   level NORMAL   new: lane ─ lane  old: lane ─ lane ─ lane                parked   idle
//!                         └ the keys of one group in one level
//! ```
//!
//! A lane that gets its first key is *new*: it comes before those that have had turns, the *old* ones; but of 16 hand-outs of a level one
//! goes to those. It gives as many keys as its group weighs, and then goes to the end of the old. A lane without keys is *idle*: in no turn,
//! but known until its next turn would have come. If it gets a key before that, it goes to the end of the old, and is not new. (This is
//! FQ-CoDel, RFC 8290, with a cost of 1; there an empty lane stays among the old. Here no pop walks over empty lanes.)
//!
//! A group with as many processing keys as it may have is *full*: its lanes with keys are *parked*, until one of those keys ends. Then a
//! lane whose turn would have come meanwhile goes first among the new, and its level is owed a hand-out if it was skipped and the lane has not filled the group itself
//! ([`choice`](super::choice)). Another lane goes to the end of the old, but its turn is not put off: it is known when it would have come.
//!
//! [`Groups::seat`] alone puts lanes into lists. All steps are O(1), but when a group becomes full, or is no longer: these visit its lanes.

use super::choice::Choice;
use super::lanes::{Lane, List, Seat, Spare};
use super::slab::Slab;
use super::table::Table;
use super::{Bin, Group, NONE, Order, Place, Pushed, level_of, priority_of, visit};

pub(crate) struct Groups<T> {
    known: Table,
    lanes: Slab<Lane<T>>,
    spare: Spare<T>,
    levels: Box<[Level; 256]>,
    choice: Choice,
    /// Keys of a group that may be processing.
    limit: u32,
    /// Queued keys of full groups.
    blocked: usize,
    pushes: u64,
}

struct Level {
    /// By [`Seat`].
    lists: [List; 4],
    /// Queued keys.
    len: u32,
    /// Turns of old lanes, which wrap around.
    turns: u32,
    /// Hand-outs of new lanes since an old one had its turn.
    since_old: u8,
}

/// Of this number of hand-outs of a level, one goes to an old lane.
const TURNS: u8 = 16;
/// Idle lanes of a level that are kept in any case.
const KEEP: u32 = 64;
/// Idle lanes that a pop looks at.
const STEP: usize = 4;

impl Level {
    #[inline]
    fn list(&mut self, seat: Seat) -> &mut List {
        &mut self.lists[seat as usize]
    }

    #[inline]
    fn len_of(&self, seat: Seat) -> u32 {
        self.lists[seat as usize].len
    }
}

impl<T: Copy + PartialEq> Groups<T> {
    /// `limit`: of processing keys of one group.
    pub(crate) fn new(limit: Option<u32>, strict: bool) -> Self {
        let level = |_| Level { lists: [List::EMPTY; 4], len: 0, turns: 0, since_old: 0 };
        Self {
            known: Table::new(),
            lanes: Slab::default(),
            spare: Spare::new(),
            levels: Box::new(std::array::from_fn(level)),
            choice: Choice::new(strict),
            limit: limit.unwrap_or(u32::MAX),
            blocked: 0,
            pushes: 0,
        }
    }

    /// The number of groups that are known.
    pub(crate) fn groups(&self) -> usize {
        self.known.groups.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let in_lanes: usize = self.lanes.iter().map(Lane::bytes).sum();
        in_lanes + self.lanes.bytes() + self.known.bytes() + self.spare.bytes()
    }

    /// The number of hand-outs of a group since it is known.
    pub(crate) fn handed_out(&self, group: u32) -> u64 {
        self.known.groups[group].handed_out()
    }

    #[inline]
    fn is_full(&self, group: u32) -> bool {
        self.limit < u32::MAX && self.known.groups[group].processing >= self.limit
    }

    /// The lane of a group in a level, which is made if there is none.
    #[inline]
    fn lane(&mut self, group: u32, level: u8) -> u32 {
        self.find_lane(group, level).unwrap_or_else(|| self.make_lane(group, level))
    }

    #[inline]
    fn find_lane(&self, group: u32, level: u8) -> Option<u32> {
        let mut number = self.known.groups[group].lanes;
        while number != NONE {
            visit();
            let lane = &self.lanes[number];
            if lane.level == level {
                return Some(number);
            }
            number = lane.sibling;
        }
        None
    }

    fn make_lane(&mut self, group: u32, level: u8) -> u32 {
        let of = &mut self.known.groups[group];
        let number = self.lanes.insert(Lane::new(group, level, of.lanes));
        of.lanes = number;
        number
    }

    /// Puts a lane where it belongs. `turn_is_over`: it has given as many keys as it may.
    fn seat(&mut self, number: u32, turn_is_over: bool) {
        let lane = &self.lanes[number];
        let (was, group, index) = (lane.seat, lane.group, lane.level);
        let (is_empty, is_full) = (lane.is_empty(), self.is_full(group));
        let level = &mut self.levels[usize::from(index)];
        let is_due = level.turns.wrapping_sub(lane.due) as i32 >= 0;
        let mut goes_first = false;
        let seat = match was {
            _ if is_empty => Seat::Idle,
            _ if is_full => Seat::Parked,
            Seat::New | Seat::Old if turn_is_over => Seat::Old,
            Seat::New | Seat::Old => was,
            Seat::Parked if is_due => {
                if lane.credit > 0 {
                    self.choice.release(index);
                }
                goes_first = true;
                Seat::New
            }
            Seat::Parked => Seat::Old,
            Seat::Idle if !is_due => Seat::Old,
            Seat::Idle | Seat::Nowhere => Seat::New,
        };
        if seat == was && !turn_is_over || was == Seat::Idle && is_empty {
            return;
        }
        if was != Seat::Nowhere {
            level.list(was).remove(number, &mut self.lanes);
        }
        level.list(seat).insert(number, goes_first, &mut self.lanes);
        let lane = &mut self.lanes[number];
        lane.seat = seat;
        // If it was parked without a hand-out, its turn comes when it would have come.
        let keeps_due = if seat == Seat::Parked { lane.credit > 0 } else { was == Seat::Parked };
        if seat == Seat::New {
            lane.due = level.turns;
        } else if !keeps_due || seat == Seat::Idle {
            lane.due = level.turns.wrapping_add(level.len_of(Seat::Old));
        }
        if seat == Seat::Parked {
            self.choice.hold(index);
        }
        // 0 while it is parked: it has filled its group itself.
        if seat != Seat::Parked || was == Seat::Nowhere {
            lane.credit = self.known.groups[group].weight();
        }
        if was == Seat::Parked && level.len_of(Seat::Parked) == 0 {
            self.choice.holds_none(index);
        }
        self.choice.set(index, level.len_of(Seat::New) + level.len_of(Seat::Old) > 0);
    }

    /// A group became full, or is no longer.
    fn seat_all(&mut self, group: u32) {
        let mut number = self.known.groups[group].lanes;
        while number != NONE {
            visit();
            self.seat(number, false);
            number = self.lanes[number].sibling;
        }
    }

    /// Forgets some lanes that are idle, if there are many of them and their turns have come, or if there are more than twice as many as
    /// have keys.
    #[inline]
    fn tidy(&mut self, index: u8, bin: &mut Bin<T>) {
        for _ in 0..STEP {
            visit();
            let level = &mut self.levels[usize::from(index)];
            let List { first, len, .. } = *level.list(Seat::Idle);
            if len <= KEEP {
                return;
            }
            let others = level.len_of(Seat::New) + level.len_of(Seat::Old) + level.len_of(Seat::Parked);
            let is_due = level.turns.wrapping_sub(self.lanes[first].due) as i32 >= 0;
            if !is_due && len <= KEEP + 2 * others {
                return;
            }
            level.list(Seat::Idle).remove(first, &mut self.lanes);
            self.forget_lane(first, bin);
        }
    }

    fn forget_lane(&mut self, number: u32, bin: &mut Bin<T>) {
        let (Lane { group, sibling, .. }, chunk) = self.lanes.remove(number);
        bin.lanes.extend(chunk);
        let of = &mut self.known.groups[group];
        if of.lanes == number {
            of.lanes = sibling;
        } else {
            let mut before = of.lanes;
            while self.lanes[before].sibling != number {
                visit();
                before = self.lanes[before].sibling;
            }
            self.lanes[before].sibling = sibling;
        }
        self.forget_if_unused(group, bin);
    }

    fn forget_if_unused(&mut self, group: u32, bin: &mut Bin<T>) {
        let of = &self.known.groups[group];
        if of.keys == 0 && of.lanes == NONE {
            self.known.remove(group, bin);
        }
    }
}

impl<T: Copy + PartialEq> Order<T> for Groups<T> {
    #[inline(never)]
    fn enter(&mut self, group: Group) -> u32 {
        let number = self.known.find_or_make(group);
        self.known.groups[number].keys += 1;
        number
    }

    #[inline(never)]
    fn leave(&mut self, group: u32, bin: &mut Bin<T>) {
        let known = &mut self.known.groups[group];
        known.keys -= 1;
        if known.keys == 0 {
            self.forget_if_unused(group, bin);
        }
    }

    #[inline(never)]
    fn push(&mut self, key: T, priority: i8, group: u32) -> Pushed {
        let (level, is_full) = (level_of(priority), self.is_full(group));
        let number = self.lane(group, level);
        self.pushes += 1;
        let lane = &mut self.lanes[number];
        let was_empty = lane.is_empty();
        let position = lane.push((key, self.pushes), &mut self.spare);
        self.known.groups[group].queued += 1;
        self.levels[usize::from(level)].len += 1;
        self.blocked += usize::from(is_full);
        if was_empty {
            self.seat(number, false);
        }
        Pushed { position, is_ready: !is_full }
    }

    #[inline(never)]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (index, is_owed) = self.choice.choose()?;
        let level = &mut self.levels[usize::from(index)];
        let has_old = level.len_of(Seat::Old) > 0;
        let from_old = level.len_of(Seat::New) == 0 || has_old && !is_owed && level.since_old >= TURNS - 1;
        level.since_old = if from_old { 0 } else { level.since_old.saturating_add(1) };
        level.len -= 1;
        let number = level.list(if from_old { Seat::Old } else { Seat::New }).first;
        let lane = &mut self.lanes[number];
        let key = lane.pop(&mut self.spare, bin)?;
        lane.credit -= 1;
        let (turn_is_over, is_empty, group) = (lane.credit == 0, lane.is_empty(), lane.group);
        let known = &mut self.known.groups[group];
        known.queued -= 1;
        known.note_hand_out();
        let queued = known.queued as usize;
        known.processing += u32::from(self.limit < u32::MAX);
        let is_full = self.limit < u32::MAX && known.processing == self.limit;
        if from_old && (turn_is_over || is_empty || is_full) {
            level.turns = level.turns.wrapping_add(1);
        }
        if is_full {
            lane.credit = 0;
            self.blocked += queued;
            self.seat_all(group);
        } else if turn_is_over || is_empty {
            self.seat(number, turn_is_over);
        }
        self.tidy(index, bin);
        self.spare.tidy(self.lanes.len(), &mut bin.lines);
        Some(key)
    }

    fn remove(&mut self, key: T, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let number = self.find_lane(place.group, level).expect("the key is queued here");
        let lane = &mut self.lanes[number];
        lane.remove(key, place.position, &mut self.spare, bin);
        let is_empty = lane.is_empty();
        self.known.groups[place.group].queued -= 1;
        self.levels[usize::from(level)].len -= 1;
        self.blocked -= usize::from(self.is_full(place.group));
        if is_empty {
            self.seat(number, false);
        }
        self.tidy(level, bin);
        self.spare.tidy(self.lanes.len(), &mut bin.lines);
    }

    #[inline(never)]
    fn ended(&mut self, group: u32) -> bool {
        if self.limit == u32::MAX {
            return false;
        }
        let was_full = self.is_full(group);
        let known = &mut self.known.groups[group];
        known.processing -= 1;
        let queued = known.queued as usize;
        if was_full {
            self.blocked -= queued;
            self.seat_all(group);
        }
        was_full && queued > 0
    }

    #[inline]
    fn blocked(&self) -> usize {
        self.blocked
    }

    fn push_number(&self, key: T, place: Place) -> u64 {
        let lane = self.find_lane(place.group, level_of(place.priority));
        lane.map_or(0, |number| self.lanes[number].push_number(key, place.position))
    }

    fn level_len(&self, priority: i8) -> usize {
        self.levels[usize::from(level_of(priority))].len as usize
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        Some((priority_of(self.choice.top()?), 0))
    }

    fn upcoming(&self, _ahead: u32) -> Option<T> {
        let old = &self.levels[usize::from(self.choice.top()?)].lists[Seat::Old as usize];
        let second = old.second(&self.lanes);
        if second == NONE { None } else { self.lanes[second].first() }
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        self.spare.shrink(bin);
        self.known.shrink(bin);
        bin.lanes.extend(self.lanes.take_spare());
    }
}
