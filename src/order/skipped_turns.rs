//! How the levels of one group share its room, if groups have a limit and the queue is not strict.
//!
//! ```text
//!   what happens                         what becomes of the lanes of the group
//!   a key of one lane fills the group    the others are *passed*, and count how often
//!   a turn of the lower levels comes     of all passed lanes, the most passed one is *skipped*
//!   the group has room again             of its skipped lanes and its highest one, the most passed is *owed*
//!   the next hand-out                    goes to an owed lane
//! ```
//!
//! Without this, a group that is full most of the time could starve its lower levels, because each of their turns may come while it is
//! full, and its higher level fills it whenever it has room. A skipped lane therefore gets the next room. The reverse can happen, too: if
//! the group has room just when those turns come, a lower level fills it every time. Its highest lane is therefore owed a hand-out once it
//! was passed twice.
//!
//! Each turn causes at most one hand-out that is owed, and the highest level gets one back for two of lower ones. A lane that gives a key
//! starts again at no passes, so each lane comes in time.

use super::lanes::Seat;
use super::{Groups, NONE};
use crate::random::mix;

/// The number of passed lanes that one turn looks at.
const SOME: usize = 64;
/// So many passes make the highest lane of a group owed.
const PASSES: u8 = 2;

impl<T: Copy> Groups<T> {
    /// Decides among lanes that were passed equally often.
    fn draw(&self, number: u32) -> u64 {
        mix(self.rooms << 8 | u64::from(number))
    }

    /// A turn of the lower levels has come, at which one passed lane is skipped.
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

    /// A group that was full is so no longer. Returns the number of its queued keys.
    pub(super) fn has_room(&mut self, group: u32) -> usize {
        self.rooms += 1;
        let owed = if self.rotation.strict { None } else { self.most_passed(group) };
        let keys = self.seat_all(group, NONE);
        if let Some(owed) = owed {
            self.put(owed, Seat::Owed, false);
        }
        keys
    }

    /// The lane of a full group that is owed a hand-out when there is room.
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
