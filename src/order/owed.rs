//! How the levels of one group share its room, in a queue with a limit that is not strict.
//!
//! ```text
//!   a key fills the group              the other lanes of the group are passed
//!   a turn of the lower levels comes   of the lanes that are passed, the one that was most often is skipped
//!   a group has room again             of its lanes that were skipped, and of its highest, the most passed is owed
//!   the next hand-out                  is of a lane that is owed
//! ```
//!
//! A group that is full most of the time may be so whenever a turn of its lower level comes: then its keys of a higher level would fill it
//! for ever. So the turn is made up. Or it has room just when those turns come: then its lower level would pass the highest one for ever.
//! So the highest is owed a hand-out, too, when it was passed twice.
//!
//! A turn leads to one hand-out at most that is owed, and two hand-outs of lower levels to one of a highest level. A lane that gives a key
//! has no passes; so of the lanes of a group, each comes. Of those that have as many passes, which are counted up to 63, one
//! is drawn.

use super::lanes::{Lane, Seat};
use super::{Groups, NONE, visit};
use crate::random::mix;

/// Lanes that a turn looks at.
const SOME: u32 = 64;
/// Passes of the highest lane of a group that make it owed.
const PASSES: u16 = 2;

impl<T: Copy + PartialEq> Groups<T> {
    /// A key of this lane has filled the group.
    pub(super) fn pass_others(&mut self, group: u32, filled: u32) {
        let mut number = group;
        while number != NONE {
            if number != filled {
                self.lanes[number].turn.pass();
            }
            number = self.lanes[number].sibling;
        }
    }

    /// For the choice of one of those that were passed equally often.
    fn draw(&self, number: u32) -> u64 {
        mix(self.rooms << 8 | u64::from(number))
    }

    /// A turn of the lower levels has come.
    #[cold]
    pub(super) fn skip(&mut self) {
        let (mut most, mut skipped, mut left) = ((0, 0), NONE, SOME);
        for level in self.choice.held_from(self.last_skipped) {
            let mut number = self.levels[usize::from(level)].lists[Seat::Passed as usize].first;
            while number != NONE && left > 0 {
                visit();
                let lane = &self.lanes[number];
                let passes = (lane.turn.passes(), self.draw(left));
                if passes > most {
                    (most, skipped) = (passes, number);
                }
                (number, left) = (lane.neighbours.1, left - 1);
            }
            self.last_skipped = level;
            if left == 0 {
                break;
            }
        }
        if skipped != NONE {
            self.put(skipped, Seat::Skipped);
        }
    }

    /// A group that was full is so no longer.
    pub(super) fn has_room(&mut self, group: u32) {
        self.rooms += 1;
        let owed = if self.choice.strict { NONE } else { self.most_passed(group) };
        self.seat_all(group);
        if owed != NONE {
            self.put(owed, Seat::Owed);
            let index = self.lanes[owed].level;
            self.choice.set(index, self.levels[usize::from(index)].is_ready());
            self.count_idle(index, 0, 0);
        }
    }

    /// The lane of a full group that is owed a hand-out, or `NONE`.
    fn most_passed(&self, group: u32) -> u32 {
        let (mut number, mut highest) = (group, None);
        while number != NONE {
            let lane = &self.lanes[number];
            if lane.seat.is_held() {
                highest = highest.max(Some(lane.level));
            }
            number = lane.sibling;
        }
        let (mut number, mut most, mut owed) = (group, (0, 0), NONE);
        while number != NONE {
            visit();
            let lane = &self.lanes[number];
            let may_be = lane.seat == Seat::Skipped || lane.seat == Seat::Passed && Some(lane.level) == highest;
            let passes = (lane.turn.passes(), self.draw(lane.level.into()));
            if may_be && passes > most {
                most = passes;
                owed = if lane.seat == Seat::Passed && passes.0 < PASSES { NONE } else { number };
            }
            number = lane.sibling;
        }
        owed
    }

    /// Moves a lane to the end of another list.
    fn put(&mut self, number: u32, seat: Seat) {
        let Lane { seat: was, level, neighbours, .. } = self.lanes[number];
        let level = &mut self.levels[usize::from(level)];
        level.list(was).remove(neighbours, &mut self.lanes);
        let list = if seat == Seat::Owed { &mut self.owed } else { level.list(seat) };
        let neighbours = list.insert(number, false, &mut self.lanes);
        let lane = &mut self.lanes[number];
        (lane.seat, lane.neighbours) = (seat, neighbours);
    }
}
