//! Groups take turns. Within one group and one priority, keys are first in, first out.
//!
//! ```text
//!   level HIGH     new: ─            old: lane ─ lane                       parked   idle
//!   level NORMAL   new: lane ─ lane  old: lane ─ lane ─ lane                parked   idle
//!                         └ the keys of one group in one level
//! ```
//!
//! A *level* is a priority, and a *lane* has the queued keys of one group in one level. A lane that gets its first key is *new*, and
//! becomes *old* after its first turn, in which it gives as many keys as its group weighs. A pop first lets [`rotation`](super::rotation)
//! choose the level. There the first new lane gives a key; if there is none, and after 15 keys in a row from new lanes, the first old one does. A lane that
//! becomes empty is *idle*. If a group becomes *full*, because as many of its keys are processing as the limit allows, its lanes with keys
//! are *parked* until one of those is done. [`Seat`] has all places of a lane.
//!
//! A group must win nothing by being empty or full for a moment. So an idle lane that gets a key is new only if its turn would have come
//! meanwhile, and otherwise the last of the old. When a full group has room again, its lanes go where the table says ([`Groups::seat`]); if it always went first, a
//! group that is full now and then would pass all others for ever.
//!
//! | when it was parked, the lane | if its turn has come meanwhile | if not |
//! |---|---|---|
//! | was new | first of the new | last of the new |
//! | was old, and still had keys to give | first of the new | last of the old |
//! | had filled its group itself, or had no keys yet | last of the new | last of the old |
//!
//! The scheme is FQ-CoDel's (RFC 8290) with a cost of 1 for each key, except that no pop walks over empty lanes. All steps take constant
//! time but for these: a group that becomes full, or is so no longer, has all its lanes moved; the lanes of a group are searched for a level
//! unless it has many, which are then in an index, and are walked when one is forgotten; a pop forgets up to four idle lanes; and with a
//! limit, a turn of the lower levels looks at up to 64 lanes.
//!
//! **To change how groups take turns**, begin with `next_in` below, which chooses between new and old, with `pop_lane`, which ends a turn,
//! and with [`Groups::seat`]. `tests/plain.rs` has the same rules in plain lists, call by call, and has to be changed too; `tests/turns.rs`
//! shows that nobody starves, and `tests/bounds.rs` what a call may cost. `cargo test --lib order::` runs them in a minute, and `cargo
//! test --release --lib order::` with many more cases.

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
    /// Of groups with more than [`INDEXED`] lanes, by the number of the group.
    indexes: BTreeMap<u32, Index>,
    pub(super) levels: Box<[Level; 256]>,
    pub(super) rotation: Rotation,
    /// Lanes that give the next keys, whatever level has its turn.
    pub(super) owed: List,
    /// The number of idle lanes, and the levels that have some.
    pub(super) idle: u32,
    pub(super) with_idle: Bits,
    /// Where the last search for a lane to be skipped ended.
    pub(super) last_skipped: u8,
    /// How often a full group got room: the seed of the draws in `skipped_turns`.
    pub(super) rooms: u64,
    /// The number of keys of one group that may be processing.
    limit: u32,
    len: usize,
    /// Queued keys of full groups, which no pop may take.
    blocked: usize,
    /// The number of the last push.
    pub(super) pushes: u64,
    /// The lane that gave the last key, for [`upcoming`](Self::upcoming).
    served: u32,
    pub(super) stamps: Stamps,
}

/// The seats of the lanes of a level that have keys.
const WAITING: [Seat; 5] = [Seat::New, Seat::Old, Seat::Parked, Seat::Passed, Seat::Skipped];
/// Lanes of a list at which [`Groups::firsts`] looks.
const SOME: usize = 64;
/// One of this number of hand-outs of a level goes to an old lane, if new ones wait, too.
const TURNS: u8 = 16;
/// A group with more lanes than this beside its home gets an index of them. It loses the index again at half as many.
const INDEXED: u8 = if cfg!(test) { 4 } else { 16 };

impl<T: Copy> Groups<T> {
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
            // The old `due` counts turns of another level. Without a credit, it is not kept.
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

    #[cold]
    fn index(&mut self, group: u32, level: u8, number: u32) {
        let index = self.indexes.entry(group).or_insert_with(|| {
            let mut index = Box::new([NONE; 256]);
            self.lanes.of(group).for_each(|number| index[usize::from(self.lanes[number].level)] = number);
            index
        });
        index[usize::from(level)] = number;
    }

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

    /// The lane of this level that gives the next key. The level has a new or an old one.
    #[inline]
    fn next_in(&mut self, index: u8) -> (u32, Seat) {
        let level = &mut self.levels[usize::from(index)];
        let has_old = level.len_of(Seat::Old) > 0;
        let from_old = level.len_of(Seat::New) == 0 || has_old && level.since_old >= TURNS - 1;
        level.since_old = if from_old { 0 } else { level.since_old.saturating_add(1) };
        let seat = if from_old { Seat::Old } else { Seat::New };
        (level.lists[seat as usize].first, seat)
    }

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
            (home.weight, home.handed_out) = (group.weight.max(1), 0); // its home may have been kept for its idle lanes
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

    /// As the stamp of the oldest lower key, it has the time of the last few hand-outs.
    pub(super) fn levels(&mut self) -> (Words, u64) {
        (self.rotation.ready.words(), self.stamps.turn)
    }

    /// A key of the lane that gave the last one. With many lanes it is the first, which comes after a turn of each other lane. With few
    /// lanes it is one further behind, which has the number after that of the first if the keys were pushed in a row.
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
