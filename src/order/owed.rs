//! How the levels of one group share its room, in a queue with a limit that is not strict.
//!
//! ```text
//!   the turn of level LOW comes   a lane there is parked, and its group has given keys of other lanes: it is skipped
//!   its group has room again      the lane of the group that was passed most is owed: of those that were skipped, and of the highest
//!   the next hand-out             is of a lane that is owed
//! ```
//!
//! A group that is full most of the time may be so whenever a turn of its lower level comes: then its keys of a higher level would fill it
//! for ever. So the turn is made up. Or it has room just when those turns come: then its lower level would pass the highest one for ever.
//! So that is owed a hand-out when it was passed twice, without a turn of its own. A lane is *passed* by each key that its group hands out from another lane.
//!
//! Each turn of a lower level leads to one hand-out that is owed, and two hand-outs of lower levels to one of a highest level. No lane waits
//! for ever: those with more passes come first, and a lane that has given a key has none.

use super::lanes::{Lane, Seat};
use super::{Groups, NONE, visit};

/// Parked lanes that a turn looks at.
const SOME: u32 = 64;
/// Passes of the highest lane of a group that make it owed.
const PASSES: u16 = 2;

impl<T: Copy + PartialEq> Groups<T> {
    fn passes(&self, lane: &Lane<T>) -> u16 {
        lane.turn.passes(self.lanes[lane.group].known.handed_out())
    }

    /// A lower level has its turn. Of the lanes that are parked, one is skipped: that which was passed most of the first ones of each level.
    #[cold]
    pub(super) fn skip(&mut self) {
        let (mut most, mut skipped, mut left) = (0, NONE, SOME);
        for level in self.choice.held_from(self.last_skipped) {
            let mut number = self.levels[usize::from(level)].lists[Seat::Parked as usize].first;
            while number != NONE && left > 0 {
                visit();
                let lane = &self.lanes[number];
                if self.passes(lane) > most {
                    (most, skipped) = (self.passes(lane), number);
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
            if matches!(lane.seat, Seat::Parked | Seat::Skipped) {
                highest = highest.max(Some(lane.level));
            }
            number = lane.sibling;
        }
        // Of those that are passed equally the highest.
        let (mut number, mut most, mut owed) = (group, (0, 0), NONE);
        while number != NONE {
            visit();
            let lane = &self.lanes[number];
            let (passes, is_highest) = (self.passes(lane), Some(lane.level) == highest);
            let may_be = lane.seat == Seat::Skipped || lane.seat == Seat::Parked && is_highest;
            if may_be && passes > 0 && (passes, lane.level) > most {
                most = (passes, lane.level);
                owed = if lane.seat == Seat::Parked && passes < PASSES { NONE } else { number };
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
