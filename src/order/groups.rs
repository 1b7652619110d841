//! Groups take turns. Within one group and one priority, keys are first in, first out.
//!
//! ```text
//!   level HIGH     new: ─            old: lane ─ lane
//!   level NORMAL   new: lane ─ lane  old: lane ─ lane ─ lane            held, idle: lanes of all levels
//!                         └ the keys of one group in one level
//! ```
//!
//! A *level* is a priority, and a *lane* has the queued keys of one group in one level. A lane that gets its first key is *new*, and
//! becomes *old* after its first turn, in which it gives as many keys as its group weighs. A pop first lets [`rotation`](super::rotation)
//! choose the level. There the first new lane gives a key; if there is none, and after 15 keys in a row from new lanes, the first old one
//! does ([`turns`](super::turns)). A lane that becomes empty is *idle*, and is remembered until it has missed a turn. The lanes of a group
//! that is full, throttled or paused are *held* ([`holds`](super::holds)). If turns are paid in handler time, [`work`](super::work) says how
//! many keys a turn is worth.
//!
//! The scheme is FQ-CoDel's (RFC 8290), except that no pop walks over empty lanes. All steps take constant time but for these: a group that
//! is held back, or is so no longer, has all its lanes moved; the lanes of a group are searched for a level unless it has many, which are
//! then in an index, and are walked when one is forgotten; a hand-out of a group with a limit looks at its lanes; a pop looks at four idle
//! lanes; and with turns that are paid in handler time, a pop looks at up to 64 lanes for one that does not owe any.
//!
//! **To change how groups take turns**, begin with `turns.rs`. `tests/plain.rs` has the same rules in plain lists, call by call, and has to be
//! changed too; `tests/turns.rs` shows that nobody starves, and `tests/bounds.rs` what a call may cost. `cargo test --lib order::` runs
//! them in a minute, and `cargo test --release --lib order::` with many more cases.

use super::bits::Words;
use super::group_table::GroupTable;
use super::holds::{FULL, HELD, Holds, KEPT, LIMITED, REMEMBERED, SPENT, THROTTLED};
use super::lanes::{Index, Lane, Lanes, Queued, Seat};
use super::limits::{LimitTable, Limits};
use super::rotation::{Rotation, TURNS};
use super::stamps::{Stamps, stamp_of_push};
use super::turns::{Level, Rest};
use super::work::Work;
use super::{Bin, FIRSTS, Garbage, Group, NONE, Place, Slab, by_level, level_of, priority_of, share, visit};
use crate::FairShare;
use crate::rate_limiter::Rate;
use std::collections::BTreeMap;

/// What is known of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupView {
    pub(crate) hash: u64,
    pub(crate) limits: Limits,
    /// Its limits were set by a call.
    pub(crate) is_kept: bool,
    pub(crate) is_full: bool,
    pub(crate) paused_until: Option<u64>,
    /// The rate, and the time up to which its tokens are spent, if there is none.
    pub(crate) throttled_for: Option<(Rate, u64)>,
    /// Hand-outs since it is known, and the nanoseconds that its handlers have taken, if turns are paid so.
    pub(crate) handed_out: u64,
    pub(crate) work: u64,
    pub(crate) is_by_work: bool,
    pub(crate) processing: u32,
}

impl GroupView {
    /// What the group has paid for its turns, in hand-outs or in nanoseconds of handler time.
    pub(crate) fn paid(&self) -> f64 {
        if self.is_by_work { self.work as f64 } else { self.handed_out as f64 }
    }
}

pub(crate) struct Groups<T> {
    pub(super) table: GroupTable,
    pub(super) lanes: Lanes,
    pub(super) keys: Slab<Queued<T>>,
    /// Of groups with more than [`INDEXED`] lanes, by the number of the group.
    indexes: BTreeMap<u32, Index>,
    pub(super) levels: Box<[Level; 256]>,
    pub(super) rotation: Rotation,
    pub(super) rest: Rest,
    pub(super) limits: LimitTable,
    pub(super) holds: Holds,
    /// `None`: a turn is worth as many keys as the group weighs.
    pub(super) work: Option<Work>,
    is_strict: bool,
    len: usize,
    /// Queued keys of groups that are held back, which no pop may take.
    pub(super) blocked: usize,
    /// The number of the last push.
    pub(super) pushes: u64,
    /// The lane that gave the last key, for [`upcoming`](Self::upcoming).
    served: u32,
    pub(super) stamps: Stamps,
}

/// A bit of a front's stamp, which is set if no new group has keys there.
pub(crate) const NO_NEW: u64 = 1 << 55;
/// The number of turns of lower levels in a row after which a group with limits gives the next one to its highest level.
const PASSES: u8 = 2;
/// Lanes of a list at which [`Groups::firsts`] looks.
const SOME: usize = 64;
/// A group with more lanes than this beside its home gets an index of them. It loses the index again at half as many.
const INDEXED: u8 = if cfg!(test) { 4 } else { 16 };

impl<T: Copy> Groups<T> {
    /// `rotates`: lower levels get one of 16 hand-outs of this order. If the queue `is_strict`, they get none of a group with a limit.
    pub(crate) fn new(shares: FairShare, rotates: bool, is_strict: bool) -> Self {
        Self {
            table: GroupTable::new(),
            lanes: Slab::default(),
            keys: Slab::default(),
            indexes: BTreeMap::new(),
            levels: by_level(Level::default),
            rotation: Rotation::new(!rotates),
            rest: Rest::default(),
            limits: LimitTable::default(),
            holds: Holds::default(),
            work: (shares == FairShare::WorkTime).then(Work::default),
            is_strict,
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
        self.lanes.bytes() + self.keys.bytes() + self.table.bytes() + self.limits.bytes() + indexes
    }

    pub(crate) fn group(&self, group: u32) -> GroupView {
        let home = &self.lanes[group];
        let (hash, flags, limits) = (home.hash, home.flags, *self.limits.of(home.limits));
        let paused_until = self.holds.pause_of(group);
        let rate = self.limits.rate_of(home.limits).filter(|_| flags & THROTTLED != 0);
        let throttled_for = rate.map(|rate| (*rate, home.spent_until));
        GroupView {
            hash,
            limits,
            is_kept: flags & KEPT != 0,
            is_full: flags & FULL != 0,
            paused_until,
            throttled_for,
            handed_out: home.handed_out,
            processing: home.processing,
            work: home.work,
            is_by_work: self.work.is_some(),
        }
    }

    /// The number of a group, if it is known.
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        self.table.find(hash, &self.lanes)
    }

    /// Visits some of the groups, from this place on. Returns where to go on.
    pub(crate) fn each(&self, from: usize, mut each: impl FnMut(u32)) -> Option<usize> {
        let buckets = (from..from + SOME).map_while(|bucket| self.table.of_bucket(bucket, &self.lanes));
        buckets.flatten().for_each(|number| {
            visit();
            each(number);
        });
        self.table.of_bucket(from + SOME, &self.lanes).map(|_| from + SOME)
    }

    /// The number of queued keys of a group, and the first few of each priority.
    pub(crate) fn queued_of(&self, group: u32, mut each: impl FnMut(T)) -> usize {
        let lanes = self.lanes.of(group).map(|number| &self.lanes[number].keys);
        lanes.fold(0, |queued, keys| {
            keys.iter(&self.keys).take(FIRSTS).filter_map(|(_, queued)| queued.key).for_each(&mut each);
            queued + keys.len as usize
        })
    }

    /// The number of groups that are known, and of those that are full, throttled and paused, and whose limits were set by a call.
    pub(crate) fn counts(&self) -> [usize; 5] {
        let [full, throttled, paused] = self.holds.counts.map(|count| count as usize);
        [self.table.groups, full, throttled, paused, self.holds.kept as usize]
    }

    #[inline(never)]
    fn find_or_make_lane(&mut self, group: u32, level: u8) -> u32 {
        self.find_lane(group, level).unwrap_or_else(|| self.make_lane(group, level))
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
            (home.level, home.round, home.credit) = (level, self.levels[usize::from(level)].round, 0);
        } else {
            number = self.lanes.lend();
            let home = &mut self.lanes[group];
            home.others += 1;
            let sibling = std::mem::replace(&mut home.sibling, number);
            let round = self.levels[usize::from(level)].round;
            self.lanes[number] = Lane { round, ..Lane::new(group, level, sibling) };
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

    /// Forgets an idle lane, and its group if nothing is left of it.
    pub(super) fn forget_lane(&mut self, number: u32, bin: &mut Bin<T>) {
        let lane = &self.lanes[number];
        let (&Lane { sibling, level, .. }, group) = (lane, lane.home(number));
        self.put(number, Seat::Nowhere);
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
    pub(super) fn forget_if_unused(&mut self, group: u32, bin: &mut Bin<T>) {
        let home = &self.lanes[group];
        let has_lanes = home.seat != Seat::Nowhere || home.others > 0;
        if has_lanes || home.known > 0 || home.flags & REMEMBERED != 0 {
            return;
        }
        if self.has_spent(home) {
            _ = self.hold(group, 0, SPENT);
        } else {
            self.limits.give_back(home.limits);
            self.table.remove(group, &mut self.lanes, bin);
        }
    }

    /// Gives a lane the credit of a turn that begins, after as many turns as it has missed. Returns the credit.
    #[inline(always)]
    pub(super) fn grant(&mut self, number: u32, turns: u64, must_give: bool) -> u32 {
        let lane = &mut self.lanes[number];
        let credit = if self.work.is_none() && lane.is_home() {
            self.limits.of(lane.limits).weight.into()
        } else {
            self.credit_of(number, turns, must_give)
        };
        self.lanes[number].credit = credit;
        credit
    }

    /// The same for a lane that is no home, or if turns are paid in handler time. The short way above saves a look at the home.
    #[inline(never)]
    fn credit_of(&mut self, number: u32, turns: u64, must_give: bool) -> u32 {
        let group = self.lanes[number].home(number);
        let home = &mut self.lanes[group];
        let weight = self.limits.of(home.limits).weight;
        self.work.as_ref().map_or(weight.into(), |work| work.begin_turn(home, weight, turns, must_give))
    }

    /// Notes that a group gives a key, in the turn of its lane `number`. Returns the lane that gives it, and what holds the group back from
    /// now on, beside pauses.
    #[inline(always)]
    fn note_hand_out(&mut self, group: u32, number: u32, now: u64) -> (u32, u8) {
        let home = &mut self.lanes[group];
        home.handed_out += 1;
        home.processing += 1;
        if home.flags & LIMITED == 0 { (number, 0) } else { (self.own_turn(group, number), self.reached(group, now)) }
    }

    /// Which lane of a group with limits gives a key, if its lane `number` has the turn.
    ///
    /// A group with a limit or a rate is held back again and again, so the turns of the lower levels could always come while it is, or just
    /// when it has room. Therefore one of 16 hand-outs of such a group goes to its lower levels, each of them in turn, beside the turns that
    /// they have anyway. And after two turns of lower levels in a row, the next one goes to its highest level.
    #[inline]
    fn own_turn(&mut self, group: u32, number: u32) -> u32 {
        if self.lanes[group].others == 0 || self.is_strict { number } else { self.choose_own(group, number) }
    }

    #[inline(never)]
    fn choose_own(&mut self, group: u32, number: u32) -> u32 {
        let last_lower = self.lanes[group].last_lower;
        // The highest lane, the next one down from that which had the last turn, and the highest of the lower ones.
        let [mut top, mut next, mut lower] = [None::<(u8, u32)>; 3];
        for at in self.lanes.of(group) {
            let lane = (self.lanes[at].level, at);
            if self.lanes[at].keys.is_empty() {
                continue;
            }
            if lane.0 < last_lower {
                next = next.max(Some(lane));
            }
            if Some(lane) > top {
                (top, lower) = (Some(lane), lower.max(top));
            } else {
                lower = lower.max(Some(lane));
            }
        }
        let (Some(top), Some(lower)) = (top, next.filter(|next| Some(*next) != top).or(lower)) else { return number };
        let home = &mut self.lanes[group];
        home.since_lower += 1;
        if home.since_lower >= TURNS {
            (home.since_lower, home.last_lower) = (0, lower.0);
            return lower.1;
        }
        home.since_top = if number == top.1 { 0 } else { home.since_top + 1 };
        if home.since_top > PASSES {
            home.since_top = 0;
            return top.1;
        }
        number
    }

    /// Takes out a queued key of a lane. Returns whether the lane has no more.
    #[inline(always)]
    fn take(&mut self, lane: u32, number: Option<u32>) -> (Option<T>, bool) {
        let lane = &mut self.lanes[lane];
        let number = number.unwrap_or(lane.keys.first);
        let (links, queued) = self.keys.get_mut(number);
        let (links, key) = (*links, queued.key.take());
        lane.keys.remove(links, &mut self.keys);
        self.keys.give_back(number);
        self.len -= 1;
        self.levels[usize::from(lane.level)].len -= 1;
        (key, lane.keys.is_empty())
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
        let Some(number) = self.table.find(group.hash, &self.lanes) else {
            let limits = self.limits.take(group.limits);
            let number = self.table.make(group.hash, limits, &mut self.lanes);
            let home = &mut self.lanes[number];
            home.flags = if group.limits.holds_back() { LIMITED } else { 0 };
            home.known = 1;
            return number;
        };
        let home = &mut self.lanes[number];
        home.known += 1;
        if home.known == 1 {
            // It was remembered.
            (home.handed_out, home.work) = (0, 0);
            if home.flags & SPENT != 0 {
                _ = self.hold(number, SPENT, 0);
            }
            if self.lanes[number].flags & KEPT == 0 {
                _ = self.change_limits(number, group.limits, group.now);
            }
        }
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
        let (level, home) = (level_of(priority), &self.lanes[group]);
        let is_held = home.flags & HELD != 0;
        let lane = if home.is_of(level) { group } else { self.find_or_make_lane(group, level) };
        let position = self.keys.lend();
        self.pushes += 1;
        self.len += 1;
        if self.stamps.are_wanted {
            self.note_push(position, level);
        }
        let list = &mut self.lanes[lane].keys;
        let links = list.insert(position, &mut self.keys);
        let is_first = list.first == position;
        *self.keys.get_mut(position) = (links, Queued { key: Some(key), push: self.pushes });
        self.levels[usize::from(level)].len += 1;
        if is_held {
            self.blocked += 1;
            if is_first {
                self.put(lane, Seat::Held);
            }
        } else if is_first {
            self.enter(lane);
        }
        (position, !is_held)
    }

    #[inline(never)]
    pub(super) fn pop(&mut self, now: u64, bin: &mut Bin<T>) -> Option<T> {
        let (level, is_lower) = self.rotation.choose()?;
        self.pop_in(level, is_lower, now, bin)
    }

    #[inline(never)]
    pub(super) fn pop_level(&mut self, level: u8, now: u64, bin: &mut Bin<T>) -> Option<T> {
        if !self.rotation.ready.has(level) {
            return None;
        }
        self.pop_in(level, true, now, bin)
    }

    #[inline(always)]
    fn pop_in(&mut self, level: u8, is_lower: bool, now: u64, bin: &mut Bin<T>) -> Option<T> {
        let turn = self.next_in(level, is_lower);
        let lane = &mut self.lanes[turn];
        lane.credit -= 1;
        let (credit, group) = (lane.credit, lane.home(turn));
        let (number, holds) = self.note_hand_out(group, turn, now);
        let (key, is_empty) = self.take(number, None);
        self.served = number;
        let turn_is_empty = if number == turn { is_empty } else { self.lanes[turn].keys.is_empty() };
        if holds != 0 {
            _ = self.hold(group, 0, holds);
        } else {
            if is_empty {
                self.put(number, Seat::Idle);
            }
            if credit == 0 && !turn_is_empty {
                self.put(turn, Seat::Old);
            }
        }
        self.tidy(bin);
        self.drop_surplus(bin);
        key
    }

    pub(super) fn remove(&mut self, place: Place, bin: &mut Bin<T>) {
        let number = self.find_lane(place.group, level_of(place.priority)).expect("the key is queued here");
        let (_key, is_empty) = self.take(number, Some(place.position));
        self.blocked -= usize::from(self.lanes[place.group].flags & HELD != 0);
        if is_empty {
            self.put(number, Seat::Idle);
        }
        self.tidy(bin);
        self.drop_surplus(bin);
    }

    /// `nanos`: the time that the handler has taken, if that counts. Returns the number of keys that a pop may take because of it.
    #[inline(always)]
    pub(super) fn ended(&mut self, group: u32, nanos: u64) -> u32 {
        let home = &mut self.lanes[group];
        home.processing -= 1;
        if home.flags & FULL == 0 && self.work.is_none() { 0 } else { self.ended_slowly(group, nanos) }
    }

    #[inline(never)]
    fn ended_slowly(&mut self, group: u32, nanos: u64) -> u32 {
        let home = &mut self.lanes[group];
        let limits = self.limits.of(home.limits);
        if let Some(work) = &mut self.work {
            work.pay(home, limits.weight, nanos);
        }
        if home.flags & FULL == 0 || home.processing >= limits.max_processing {
            return 0;
        }
        self.hold(group, FULL, 0)
    }

    /// Whether [`ended`](Self::ended) needs the handler time.
    pub(crate) fn is_by_work(&self) -> bool {
        self.work.is_some()
    }

    /// Whether a pop needs the time, for rates or for handler time.
    #[inline]
    pub(crate) fn needs_time(&self) -> bool {
        self.work.is_some() || self.limits.rates > 0
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
        let top = self.rotation.ready.top()?;
        let level = &self.levels[usize::from(top)];
        if !level.new.is_empty() {
            return Some((priority_of(top), level.time & (NO_NEW - 1)));
        }
        // The round of the turn that the next pop begins or goes on with.
        let first = &self.lanes[level.old.first];
        let begins_round = first.credit == 0 && first.round > level.round;
        let step = if begins_round { self.work.as_ref().map_or(1, Work::step) } else { 0 };
        Some((priority_of(top), NO_NEW | (level.time + step) & (NO_NEW - 1)))
    }

    /// A level that had no groups with keys joins the round in which other shards are.
    pub(super) fn join(&mut self, front: impl Fn(i8) -> u64) {
        let joining = std::mem::take(&mut self.stamps.joining);
        for level in joining.iter() {
            let time = &mut self.levels[usize::from(level)].time;
            *time = front(priority_of(level)).max(*time);
        }
    }

    pub(super) fn levels(&mut self) -> (Words, u64) {
        (self.rotation.ready.words(), 0)
    }

    /// A key of the lane that gave the last one. With many lanes it is the first, which comes after a turn of each other lane. With few
    /// lanes it is one further behind, which has the number after that of the first if the keys were pushed in a row.
    #[inline(never)]
    pub(super) fn upcoming(&self, ahead: u32) -> Option<T> {
        let lane = &self.lanes.get(self.served)?.1;
        let level = &self.levels[usize::from(lane.level)];
        let later = ahead / level.lanes().max(1);
        self.keys.get(lane.keys.first.saturating_add(later))?.1.key
    }

    pub(super) fn firsts(&self, places: &mut usize, mut each: impl FnMut(T) -> bool) {
        let lists = || {
            let of_level = |level| [&self.levels[usize::from(level)].new, &self.levels[usize::from(level)].old];
            let lists = self.rotation.ready.iter().flat_map(of_level);
            lists.chain([&self.rest.held]).filter(|list| !list.is_empty())
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
        self.limits.shrink();
        self.holds.shrink(bin);
        bin.push(Garbage::Lanes(self.lanes.shrink()));
        bin.push(Garbage::Keys(self.keys.shrink()));
        has_more
    }
}
