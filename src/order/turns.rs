//! The turns of lanes: which one of a level gives the next key, and where a lane goes.
//!
//! ```text
//!            a first key, or room                    its turn begins
//!   Idle ──────────────────────────▶ New             (Old, first)
//!   Held  │  its turn in this round   │  credit used up    │
//!         │  is over                  ▼                    ▼
//!         └────────────────────────▶ Old, last  ◀──────────┘
//! ```
//!
//! **A round** of a level is over when each old lane has had a turn. Each lane knows the round in which its next turn comes. The old lanes
//! are in the order of these rounds, which are the present one and the next, so the first old lane says when the next round begins.
//!
//! **A turn** gives a lane its *credit*, the number of keys that it may hand out. A lane that leaves the lists in its turn, because it has
//! no keys or its group is held back, keeps the rest of its credit. When it comes back, it begins a turn at once if it has missed one, goes
//! on with its turn if that is not used up, and otherwise waits as the last of the old lanes. A lane therefore wins nothing by being empty or
//! held back for a moment, because it has one turn in each round.

use super::bits::Words;
use super::lanes::{Lane, Seat};
use super::list::List;
use super::work::Work;
use super::{Bin, Groups, visit};

/// This number of idle lanes is kept in any case.
pub(super) const KEEP: u32 = 128;
/// The number of idle lanes at which a pop or a `remove` looks.
const STEP: usize = 4;
/// The number of idle lanes at which one call of a shrink looks.
const SHRINK: u32 = 64;
/// One of this number of hand-outs of a level goes to an old lane, if new ones wait, too.
const TURNS: u8 = 16;
/// The number of lanes at which a pop looks for one that may begin a turn.
const LOOKS: usize = 64;

#[derive(Default)]
pub(super) struct Level {
    pub(super) new: List,
    pub(super) old: List,
    /// The number of queued keys.
    pub(super) len: u32,
    pub(super) round: u64,
    /// The sum of the quanta of all rounds, by which shards compare theirs. Without handler time it is the number of rounds.
    pub(super) time: u64,
    /// Hand-outs of new lanes since the last one of an old lane, but for [`TURNS`] each time that a round has passed without old lanes.
    since_old: u8,
}

impl Level {
    /// It has lanes whose keys a pop may take.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.lanes() > 0
    }

    #[inline]
    pub(super) fn lanes(&self) -> u32 {
        self.new.len + self.old.len
    }
}

impl<T: Copy> Groups<T> {
    /// The lane of this level that gives the next key. The level has a new or an old one. `is_lower`: it is a turn of the lower levels, in
    /// which the first lane gives a key even if its group owes handler time.
    #[inline(always)]
    pub(super) fn next_in(&mut self, index: u8, is_lower: bool) -> u32 {
        let mut look = 0;
        loop {
            let level = &mut self.levels[usize::from(index)];
            let from_old = level.new.is_empty() || !level.old.is_empty() && level.since_old >= TURNS - 1;
            let number = if from_old { level.old.first } else { level.new.first };
            if self.lanes[number].credit > 0 || self.begin_old_turn(index, number, is_lower || look == LOOKS) {
                self.note_turn(index, from_old);
                return number;
            }
            visit();
            self.put(number, Seat::Old);
            look += 1;
        }
    }

    /// Counts a hand-out. If there was no old lane for the turn of the old ones, a round passes without them. Otherwise a shard to which new
    /// groups keep coming would stay in its round for ever, and go before the old lanes of all other shards.
    #[inline(always)]
    fn note_turn(&mut self, index: u8, from_old: bool) {
        let level = &mut self.levels[usize::from(index)];
        level.since_old = if from_old { 0 } else { level.since_old + 1 };
        if level.since_old == 2 * TURNS {
            level.since_old = TURNS;
            level.time += self.work.as_ref().map_or(1, Work::step);
        }
    }

    /// The turn of the first old lane begins, and a round with it if the lane had its last one in this round. Returns whether it may give
    /// keys.
    #[inline(always)]
    fn begin_old_turn(&mut self, index: u8, number: u32, must_give: bool) -> bool {
        let (level, lane) = (&mut self.levels[usize::from(index)], &mut self.lanes[number]);
        if lane.round > level.round {
            level.round = lane.round;
            level.time += self.work.as_mut().map_or(1, Work::begin_round);
        }
        lane.round = level.round + 1;
        self.grant(number, 1, must_give) > 0
    }

    /// Seats a lane with keys whose group is not held back, and which is neither new nor old.
    #[inline]
    pub(super) fn enter(&mut self, number: u32) {
        let lane = &mut self.lanes[number];
        let (level, mut credit) = (&self.levels[usize::from(lane.level)], lane.credit);
        let next = level.round + 1;
        let missed = next.saturating_sub(lane.round);
        if self.stamps.are_wanted && !level.is_ready() {
            self.stamps.joining.add(Words::of(lane.level));
        }
        if missed > 0 {
            lane.round = next;
            credit = self.grant(number, missed, false);
        }
        self.put(number, if credit > 0 { Seat::New } else { Seat::Old });
    }

    /// Moves a lane to the end of the list of a seat.
    #[inline(always)]
    pub(super) fn put(&mut self, number: u32, seat: Seat) {
        fn list<'l>(level: &'l mut Level, rest: &'l mut Rest, seat: Seat) -> Option<&'l mut List> {
            match seat {
                Seat::New => Some(&mut level.new),
                Seat::Old => Some(&mut level.old),
                Seat::Held => Some(&mut rest.held),
                Seat::Idle => Some(&mut rest.idle),
                Seat::Nowhere => None,
            }
        }
        let (links, lane) = self.lanes.get_mut(number);
        let (&mut Lane { seat: was, level: index, .. }, mut links) = (lane, *links);
        let level = &mut self.levels[usize::from(index)];
        if let Some(list) = list(level, &mut self.rest, was) {
            list.remove(links, &mut self.lanes);
        }
        if let Some(list) = list(level, &mut self.rest, seat) {
            links = list.insert(number, &mut self.lanes);
        }
        if was != seat {
            self.rotation.ready.put(index, level.is_ready());
            let is_waiting = |seat| u32::from(matches!(seat, Seat::New | Seat::Old | Seat::Held));
            self.rest.waiting = self.rest.waiting + is_waiting(seat) - is_waiting(was);
        }
        let (at, lane) = self.lanes.get_mut(number);
        (lane.seat, *at) = (seat, links);
    }

    /// Forgets a few idle lanes, if there are many.
    #[inline]
    pub(super) fn tidy(&mut self, bin: &mut Bin<T>) {
        for _ in 0..STEP {
            if self.rest.idle.len <= KEEP {
                return;
            }
            let are_many = self.rest.idle.len > KEEP + 2 * self.rest.waiting;
            if !self.forget_first(are_many, bin) {
                return;
            }
        }
    }

    /// Forgets the first idle lane if its turn has come, because a key would then make it new as if it had never been known; if its level has
    /// no keys; or if there `are_many`. Returns `false` if it stays. A lane whose group owes handler time becomes the last one instead.
    fn forget_first(&mut self, are_many: bool, bin: &mut Bin<T>) -> bool {
        visit();
        let number = self.rest.idle.first;
        let lane = &self.lanes[number];
        let level = &self.levels[usize::from(lane.level)];
        let is_due = lane.round <= level.round || level.len == 0;
        if !are_many && !is_due {
            return false;
        }
        if !are_many && self.lanes[lane.home(number)].balance < 0 {
            self.put(number, Seat::Idle);
        } else {
            self.forget_lane(number, bin);
        }
        true
    }

    /// Forgets idle lanes whose turns have come. Returns whether there may be more.
    pub(super) fn forget_due(&mut self, bin: &mut Bin<T>) -> bool {
        let before = self.rest.idle.len;
        (0..before.min(SHRINK)).all(|_| self.forget_first(false, bin))
            && 0 < self.rest.idle.len
            && self.rest.idle.len < before
    }
}

/// The lanes that are in no turn, of all levels.
#[derive(Default)]
pub(super) struct Rest {
    pub(super) held: List,
    pub(super) idle: List,
    /// The number of lanes with keys.
    waiting: u32,
}
