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

use super::lanes::Seat;
use super::{Groups, NONE};
use crate::random::mix;

/// Lanes that a turn looks at.
const SOME: usize = 64;
/// Passes of the highest lane of a group that make it owed.
const PASSES: u8 = 2;

impl<T: Copy> Groups<T> {
    /// For the choice of one of those that were passed equally often.
    fn draw(&self, number: u32) -> u64 {
        mix(self.rooms << 8 | u64::from(number))
    }

    /// A turn of the lower levels has come.
    #[cold]
    pub(super) fn skip(&mut self) {
        let (mut most, mut left) = (None, SOME);
        for level in self.rotation.held_from(self.last_skipped) {
            let passed = self.levels[usize::from(level)].lists[Seat::Passed as usize];
            for (number, lane) in passed.iter(&self.lanes).take(left) {
                most = most.max(Some((lane.passes, self.draw(left as u32), number)));
                left -= 1;
            }
            self.last_skipped = level;
            if left == 0 {
                break;
            }
        }
        if let Some((.., skipped)) = most {
            self.put(skipped, Seat::Skipped, false);
        }
    }

    /// A group that was full is so no longer. Returns the number of its keys.
    pub(super) fn has_room(&mut self, group: u32) -> usize {
        self.rooms += 1;
        let owed = if self.rotation.strict { None } else { self.most_passed(group) };
        let keys = self.seat_all(group, NONE);
        if let Some(owed) = owed {
            self.put(owed, Seat::Owed, false);
        }
        keys
    }

    /// The lane of a full group that is owed a hand-out.
    fn most_passed(&self, group: u32) -> Option<u32> {
        let (mut most, mut highest) = (None, None);
        for number in self.lanes.of(group) {
            let lane = &self.lanes[number];
            let passes = (lane.passes, self.draw(lane.level.into()), number);
            if lane.seat == Seat::Skipped {
                most = most.max(Some(passes));
            }
            if lane.seat.is_held() {
                highest = highest.max(Some((lane.level, passes)));
            }
        }
        let passed = |passes: &(_, _, u32)| self.lanes[passes.2].seat == Seat::Passed;
        let (passes, _, number) = most.max(highest.map(|highest| highest.1).filter(passed))?;
        (self.lanes[number].seat == Seat::Skipped || passes >= PASSES).then_some(number)
    }
}
