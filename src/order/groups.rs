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
//! others for ever.) How the levels of one group share its room: [`skipped_turns`](super::skipped_turns).
//!
//! All steps are O(1), but for those that visit the lanes of a group: when it becomes full, or is no longer. (And to find one of a level
//! among a few; many have an index.) And with a limit a turn of the lower levels looks at some lanes.

use super::bits::{Bits, Words};
use super::group_table::GroupTable;
use super::lanes::{Index, Lane, Lanes, Queued, Seat};
use super::list::List;
use super::rotation::Rotation;
use super::seats::Level;
use super::stamps::{Stamps, stamp_of_push};
use super::{Bin, FIRSTS, Garbage, Group, NONE, Place, Slab, by_level, level_of, priority_of, share, visit};
use std::collections::BTreeMap;

pub(crate) struct Groups<T> {
    pub(super) table: GroupTable,
    pub(super) lanes: Lanes,
    pub(super) keys: Slab<Queued<T>>,
    /// Of groups with many lanes, by number.
    indexes: BTreeMap<u32, Index>,
    pub(super) levels: Box<[Level; 256]>,
    pub(super) rotation: Rotation,
    /// Lanes that give the next keys, before all levels.
    pub(super) owed: List,
    /// Idle lanes, and the levels that have some.
    pub(super) idle: u32,
    pub(super) with_idle: Bits,
    /// The last level that was looked at for a lane to be skipped.
    pub(super) last_skipped: u8,
    /// How often a group had room again.
    pub(super) rooms: u64,
    /// Keys of a group that may be processing.
    limit: u32,
    /// Queued keys.
    len: usize,
    /// Queued keys of full groups.
    blocked: usize,
    /// The number of the last push.
    pub(super) pushes: u64,
    /// The lane that gave the last key.
    served: u32,
    pub(super) stamps: Stamps,
}

/// The seats of lanes with keys, in each level.
const WAITING: [Seat; 5] = [Seat::New, Seat::Old, Seat::Parked, Seat::Passed, Seat::Skipped];
/// Lanes of a list at which [`Groups::firsts`] looks.
const SOME: usize = 64;
/// Of this number of hand-outs of a level, one goes to an old lane.
const TURNS: u8 = 16;
/// A group with more lanes beside its home has an index of all; with half as many it has none.
const INDEXED: u8 = if cfg!(test) { 4 } else { 16 };

impl<T: Copy> Groups<T> {
    /// `limit`: of processing keys of one group.
    pub(crate) fn new(limit: Option<u32>, strict: bool) -> Self {
        Self {
            table: GroupTable::new(),
            lanes: Slab::default(),
            keys: Slab::default(),
            indexes: BTreeMap::new(),
            levels: by_level(Level::default),
            rotation: Rotation::new(strict),
            owed: List::default(),
            idle: 0,
            with_idle: Bits::default(),
            last_skipped: 0,
            rooms: 0,
            limit: limit.unwrap_or(u32::MAX),
            len: 0,
            blocked: 0,
            pushes: 0,
            served: NONE,
            stamps: Stamps::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let indexes = self.indexes.len() * size_of::<[u32; 256]>();
        self.lanes.bytes() + self.keys.bytes() + self.table.bytes() + indexes
    }

    /// A group, and the number of its hand-outs since it is known.
    pub(crate) fn group(&self, group: u32) -> (Group, u64) {
        let home = &self.lanes[group];
        (Group { hash: home.hash, weight: home.weight }, home.handed_out)
    }

    #[inline]
    pub(super) fn is_full(&self, group: u32) -> bool {
        self.limit < u32::MAX && self.lanes[group].processing >= self.limit
    }

    #[inline]
    fn find_lane(&self, group: u32, level: u8) -> Option<u32> {
        let may_have_index = self.lanes[group].others > INDEXED / 2;
        match may_have_index.then(|| self.indexes.get(&group)).flatten() {
            Some(index) => Some(index[usize::from(level)]).filter(|number| *number != NONE),
            None => self.lanes.of(group).find(|number| self.lanes[*number].level == level),
        }
    }

    fn make_lane(&mut self, group: u32, level: u8) -> u32 {
        let (home, mut number) = (&mut self.lanes[group], group);
        if home.seat == Seat::Nowhere {
            // Without a credit: what it is due is not kept, as it was of the level that had this lane before.
            (home.level, home.credit) = (level, 0);
        } else {
            number = self.lanes.lend();
            let home = &mut self.lanes[group];
            home.others += 1;
            let sibling = std::mem::replace(&mut home.sibling, number);
            self.lanes[number] = Lane::new(group, level, sibling);
        }
        let others = self.lanes[group].others;
        if others > INDEXED || others > INDEXED / 2 && self.indexes.contains_key(&group) {
            self.index(group, level, number);
        }
        number
    }

    /// Puts a lane of a group with many into their index.
    #[cold]
    fn index(&mut self, group: u32, level: u8, number: u32) {
        let index = self.indexes.entry(group).or_insert_with(|| {
            let mut index = Box::new([NONE; 256]);
            self.lanes.of(group).for_each(|number| index[usize::from(self.lanes[number].level)] = number);
            index
        });
        index[usize::from(level)] = number;
    }

    /// Forgets a lane.
    pub(super) fn forget_lane(&mut self, number: u32, bin: &mut Bin<T>) {
        let lane = &*self.put(number, Seat::Nowhere, false);
        let (&Lane { sibling, level, .. }, group) = (lane, lane.home(number));
        let others = self.lanes[group].others;
        if others > INDEXED / 2 {
            self.indexes.get_mut(&group).into_iter().for_each(|index| index[usize::from(level)] = NONE);
        }
        if number != group {
            self.lanes[group].others -= 1;
            if others - 1 == INDEXED / 2 {
                bin.add(self.indexes.remove(&group).map(Garbage::Index));
            }
            let mut before = group;
            while self.lanes[before].sibling != number {
                visit();
                before = self.lanes[before].sibling;
            }
            self.lanes[before].sibling = sibling;
            self.lanes.give_back(number);
        }
        self.forget_if_unused(group, bin);
    }

    #[inline]
    fn forget_if_unused(&mut self, group: u32, bin: &mut Bin<T>) {
        let home = &self.lanes[group];
        if home.known == 0 && home.others == 0 && home.seat == Seat::Nowhere {
            self.table.remove(group, &mut self.lanes, bin);
        }
    }

    /// The lane that gives the next key, and its seat.
    #[inline]
    fn next_lane(&mut self) -> Option<(u32, Seat)> {
        if !self.owed.is_empty() {
            self.rotation.count_owed();
            return Some((self.owed.first, Seat::Owed));
        }
        let (index, is_turn) = self.rotation.choose()?;
        if is_turn {
            self.skip();
        }
        Some(self.next_in(index))
    }

    /// The same of a level that has lanes in turn.
    #[inline]
    fn next_in(&mut self, index: u8) -> (u32, Seat) {
        let level = &mut self.levels[usize::from(index)];
        let has_old = level.len_of(Seat::Old) > 0;
        let from_old = level.len_of(Seat::New) == 0 || has_old && level.since_old >= TURNS - 1;
        level.since_old = if from_old { 0 } else { level.since_old.saturating_add(1) };
        let seat = if from_old { Seat::Old } else { Seat::New };
        (level.lists[seat as usize].first, seat)
    }

    /// Takes a key out of its lane. The caller counts it for the group.
    #[inline(always)]
    fn take(&mut self, lane: u32, number: u32) -> Option<T> {
        let (links, queued) = self.keys.get_mut(number);
        let (links, key) = (*links, queued.key.take());
        let lane = &mut self.lanes[lane];
        lane.keys.remove(links, &mut self.keys);
        self.keys.give_back(number);
        self.len -= 1;
        self.levels[usize::from(lane.level)].len -= 1;
        key
    }

    /// Passes on what is to be freed.
    #[inline]
    fn drop_surplus(&mut self, bin: &mut Bin<T>) {
        bin.add(self.lanes.surplus().map(Garbage::Lanes));
        bin.add(self.keys.surplus().map(Garbage::Keys));
    }
}

impl<T: Copy> Groups<T> {
    #[inline(never)]
    pub(super) fn enter_group(&mut self, group: Group) -> u32 {
        let number = self.table.find_or_make(group, &mut self.lanes);
        let home = &mut self.lanes[number];
        if home.known == 0 {
            (home.weight, home.handed_out) = (group.weight.max(1), 0); // it may have been kept without keys
        }
        home.known += 1;
        number
    }

    #[inline(never)]
    pub(super) fn leave_group(&mut self, group: u32, bin: &mut Bin<T>) {
        let home = &mut self.lanes[group];
        home.known -= 1;
        if home.known == 0 {
            self.forget_if_unused(group, bin);
            bin.add(self.lanes.surplus().map(Garbage::Lanes));
        }
    }

    #[inline(never)]
    pub(super) fn push(&mut self, key: T, priority: i8, group: u32) -> (u32, bool) {
        let (level, is_full) = (level_of(priority), self.is_full(group));
        let lane = self.find_lane(group, level).unwrap_or_else(|| self.make_lane(group, level));
        let position = self.keys.lend();
        self.pushes += 1;
        self.len += 1;
        if self.stamps.are_wanted {
            self.note_push(position, level);
        }
        let list = &mut self.lanes[lane].keys;
        let links = list.insert(position, false, &mut self.keys);
        let is_first = list.first == position;
        *self.keys.get_mut(position) = (links, Queued { key: Some(key), push: self.pushes });
        self.levels[usize::from(level)].len += 1;
        self.blocked += usize::from(is_full);
        if is_first {
            self.lanes[lane].passes = 0;
            self.seat(lane, false);
        }
        (position, !is_full)
    }

    #[inline(never)]
    pub(super) fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        let (number, from) = self.next_lane()?;
        self.pop_lane(number, from, bin)
    }

    /// Takes the first key of a level that is no key of a full group.
    #[inline(never)]
    pub(super) fn pop_level(&mut self, level: u8, bin: &mut Bin<T>) -> Option<T> {
        if !self.rotation.ready.has(level) {
            return None;
        }
        let (number, from) = self.next_in(level);
        self.pop_lane(number, from, bin)
    }

    #[inline(always)]
    fn pop_lane(&mut self, number: u32, from: Seat, bin: &mut Bin<T>) -> Option<T> {
        let key = self.take(number, self.lanes[number].keys.first);
        self.served = number;
        if self.stamps.are_wanted {
            self.stamps.note_pop();
        }
        let lane = &mut self.lanes[number];
        let (index, group, due, is_empty) = (lane.level, lane.home(number), lane.due, lane.keys.is_empty());
        lane.passes = 0;
        lane.credit -= 1;
        let turn_is_over = lane.credit == 0 || from == Seat::Owed;
        let home = &mut self.lanes[group];
        home.handed_out += 1;
        home.processing += u32::from(self.limit < u32::MAX);
        let is_full = self.limit < u32::MAX && home.processing == self.limit;
        let level = &mut self.levels[usize::from(index)];
        if from == Seat::New {
            level.pass(due);
        } else if from == Seat::Old && (turn_is_over || is_empty || is_full) {
            level.turns += 1;
        }
        if is_full {
            self.lanes[number].credit = 0;
            self.blocked += self.seat_all(group, number);
        } else if turn_is_over || is_empty {
            self.seat(number, turn_is_over);
        }
        self.tidy(index, bin);
        self.drop_surplus(bin);
        key
    }

    pub(super) fn remove(&mut self, place: Place, bin: &mut Bin<T>) {
        let level = level_of(place.priority);
        let number = self.find_lane(place.group, level).expect("the key is queued here");
        let _key = self.take(number, place.position);
        self.blocked -= usize::from(self.is_full(place.group));
        if self.lanes[number].keys.is_empty() {
            self.seat(number, false);
        }
        self.tidy(level, bin);
        self.drop_surplus(bin);
    }

    #[inline(never)]
    pub(super) fn ended(&mut self, group: u32) -> bool {
        if self.limit == u32::MAX {
            return false;
        }
        let was_full = self.is_full(group);
        self.lanes[group].processing -= 1;
        if !was_full {
            return false;
        }
        let queued = self.has_room(group);
        self.blocked -= queued;
        queued > 0
    }

    /// Queued keys that a pop may return.
    #[inline]
    pub(super) fn ready(&self) -> usize {
        self.len - self.blocked
    }

    pub(super) fn age(&self, place: Place) -> (u64, u64) {
        let number = self.keys[place.position].push;
        (stamp_of_push(number), number)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn level_len(&self, priority: i8) -> usize {
        self.levels[usize::from(level_of(priority))].len as usize
    }

    #[inline]
    pub(super) fn front(&self) -> Option<(i8, u64)> {
        let owed = self.lanes.get(self.owed.first).map(|(_, lane)| lane.level);
        Some((priority_of(self.rotation.ready.top().max(owed)?), self.stamps.turn))
    }

    /// Instead of the time of the oldest lower key, that of the last few hand-outs.
    pub(super) fn levels(&mut self) -> (Words, u64) {
        (self.rotation.ready.words(), self.stamps.turn)
    }

    /// A key of the lane that gave the last one: with many lanes its first, whose turn comes when those of the others have been. With few
    /// one that was probably pushed so much later.
    #[inline(never)]
    pub(super) fn upcoming(&self, ahead: u32) -> Option<T> {
        let lane = &self.lanes.get(self.served)?.1;
        let level = &self.levels[usize::from(lane.level)];
        let later = ahead / (level.len_of(Seat::New) + level.len_of(Seat::Old)).max(1);
        self.keys.get(lane.keys.first.saturating_add(later))?.1.key
    }

    pub(super) fn firsts(&self, places: &mut usize, mut each: impl FnMut(T) -> bool) {
        let lists = || {
            let Rotation { ready, held, .. } = &self.rotation;
            let levels = ready.iter().chain(held.iter().filter(|level| !ready.has(*level)));
            let of_levels =
                levels.flat_map(|level| WAITING.map(|seat| self.levels[usize::from(level)].lists[seat as usize]));
            of_levels.chain([self.owed]).filter(|list| !list.is_empty())
        };
        for (list, left) in lists().zip((1..=lists().count()).rev()) {
            let mut share = share(places, left);
            for (_, lane) in list.iter(&self.lanes).take(SOME.min(share)) {
                let keys = lane.keys.iter(&self.keys).take(FIRSTS.min(share));
                let _is_found = keys.inspect(|_| share -= 1).filter_map(|(_, queued)| queued.key).any(&mut each);
            }
            *places += share;
        }
    }

    pub(super) fn shrink(&mut self, bin: &mut Bin<T>) -> bool {
        let has_more = self.forget_due(bin);
        self.table.shrink(bin);
        bin.push(Garbage::Lanes(self.lanes.shrink()));
        bin.push(Garbage::Keys(self.keys.shrink()));
        has_more
    }
}
