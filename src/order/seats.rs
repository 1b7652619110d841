//! Where a lane sits: [`Groups::seat`] decides it, by the rules in [`groups`](super::groups). The end of the file forgets idle lanes.
//!
//! **`due`** says when the turn of a lane comes. Each level counts the turns of its old lanes, and a lane that goes to the end of `n` old
//! ones is due at `turns + n`, which it keeps while it is idle or parked. A new lane has a *ticket* in its place, by the order in which
//! lanes became new. Its turn has come if a later ticket was served, or if the first new lane has a later one.
//!
//! **`credit`** of a parked lane says how many keys it still had to give, which is 0 if it has filled the group itself. [`WAS_NEW`] and
//! [`LATE`] stand for the other cases.

use super::lanes::{Lane, Lanes, Seat};
use super::list::List;
use super::{Bin, Groups, NONE, visit};

/// This number of idle lanes is kept in any case.
pub(super) const KEEP: u32 = 128;
/// The number of idle lanes that a pop or a `remove` forgets at most.
const STEP: usize = 4;
/// The number of idle lanes that one call of a shrink forgets at most.
const SHRINK: usize = 64;
/// The credit of a parked lane that got its first key when the group was already full.
const LATE: u16 = u16::MAX;
/// The credit of a parked lane that was new, and whose `due` is its ticket.
const WAS_NEW: u16 = LATE - 1;
/// Passes are counted up to this number.
const PASSES: u8 = 63;

#[derive(Default)]
pub(super) struct Level {
    /// By [`Seat`]. (Owed lanes are in one list for all levels.)
    pub(super) lists: [List; Seat::Owed as usize],
    /// The number of queued keys.
    pub(super) len: u32,
    /// The number of turns that old lanes have had.
    pub(super) turns: u64,
    /// The last ticket that was given out.
    tickets: u64,
    /// The highest ticket whose lane has been served.
    passed: u64,
    /// Hand-outs of new lanes since the last one of an old lane.
    pub(super) since_old: u8,
}

impl Level {
    #[inline]
    pub(super) fn len_of(&self, seat: Seat) -> u32 {
        self.lists[seat as usize].len
    }

    /// The new lane with this ticket gives a key.
    #[inline]
    pub(super) fn pass(&mut self, ticket: u64) {
        self.passed = self.passed.max(ticket);
    }

    #[cfg(test)]
    pub(super) fn skip_turns(&mut self, turns: u64) {
        self.turns += turns;
        self.tickets += turns;
        self.passed += turns;
    }

    /// It has lanes whose keys a pop may take.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.len_of(Seat::New) + self.len_of(Seat::Old) > 0
    }

    /// Lanes with keys, but for those that are owed a hand-out.
    pub(super) fn waiting(&self) -> u32 {
        self.len_of(Seat::New) + self.len_of(Seat::Old) + self.held()
    }

    /// Lanes with keys of full groups.
    pub(super) fn held(&self) -> u32 {
        self.len_of(Seat::Parked) + self.len_of(Seat::Passed) + self.len_of(Seat::Skipped)
    }

    /// The turn of a lane with this ticket comes before those of all new lanes.
    fn is_first(&self, ticket: u64, lanes: &Lanes) -> bool {
        let first = self.lists[Seat::New as usize].first;
        first == NONE || ticket <= self.passed || ticket < lanes[first].due
    }
}

impl<T: Copy> Groups<T> {
    /// Puts a lane where it belongs, after its keys, its turn or the room of its group have changed. `turn_is_over`: it has given as many
    /// keys as it may.
    pub(super) fn seat(&mut self, number: u32, turn_is_over: bool) {
        let lane = &self.lanes[number];
        let (&Lane { seat: was, level: index, credit, passes, due, keys, .. }, group) = (lane, lane.home(number));
        let (is_full, was_full) = (self.is_full(group), was.is_held());
        let level = &mut self.levels[usize::from(index)];
        let was_new = was_full && credit == WAS_NEW;
        let is_due = if was_new { level.is_first(due, &self.lanes) } else { due <= level.turns };
        let seat = match was {
            _ if keys.is_empty() => Seat::Idle,
            _ if is_full && passes > 0 => Seat::Passed,
            _ if is_full => Seat::Parked,
            Seat::New | Seat::Old | Seat::Owed => Seat::Old,
            Seat::Nowhere => Seat::New,
            // It was held or idle. One that was new stays so, because its ticket says when its turn is.
            _ if is_due || was_new => Seat::New,
            _ => Seat::Old,
        };
        if seat == was && !turn_is_over {
            return;
        }
        // Only a lane that still had keys to give goes first. If one that has filled its group itself did, a group with a limit of 1 and
        // one getter would be served every time, and the others would starve.
        let was_to_give = credit > 0 && credit < LATE;
        let goes_first = seat == Seat::New && was_full && is_due && was_to_give;
        // A lane that was parked through no hand-out of its own keeps its place in time.
        let keeps_due = if seat.is_held() { credit > 0 } else { was_full && seat == Seat::Old };
        let due = match seat {
            Seat::New if was_new => due,
            Seat::New if goes_first => level.passed,
            Seat::New => {
                level.tickets += 1;
                level.tickets
            }
            _ if keeps_due => due,
            _ => {
                let old = level.len_of(Seat::Old) + u32::from(seat == Seat::Old) - u32::from(was == Seat::Old);
                level.turns + u64::from(old)
            }
        };
        let credit = match was {
            _ if !seat.is_held() => self.lanes[group].weight,
            Seat::Idle | Seat::Nowhere => LATE,
            Seat::New if credit > 0 => WAS_NEW,
            _ => credit, // 0 if it has filled its group itself
        };
        let lane = self.put(number, seat, goes_first);
        (lane.due, lane.credit) = (due, credit);
    }

    /// Moves a lane to the end of the list of another seat, or to its start.
    #[inline(always)]
    pub(super) fn put(&mut self, number: u32, seat: Seat, goes_first: bool) -> &mut Lane {
        let (links, lane) = self.lanes.get_mut(number);
        let (&mut Lane { seat: was, level: index, .. }, mut links) = (lane, *links);
        let level = &mut self.levels[usize::from(index)];
        if was != Seat::Nowhere {
            let list = if was == Seat::Owed { &mut self.owed } else { &mut level.lists[was as usize] };
            list.remove(links, &mut self.lanes);
        }
        if seat != Seat::Nowhere {
            let list = if seat == Seat::Owed { &mut self.owed } else { &mut level.lists[seat as usize] };
            links = list.insert(number, goes_first, &mut self.lanes);
        }
        if was.is_held() || seat.is_held() {
            self.rotation.held.put(index, level.held() > 0);
        }
        self.rotation.ready.put(index, level.is_ready());
        self.idle = self.idle + u32::from(seat == Seat::Idle) - u32::from(was == Seat::Idle);
        self.with_idle.put(index, level.len_of(Seat::Idle) > 0);
        let (at, lane) = self.lanes.get_mut(number);
        (lane.seat, *at) = (seat, links);
        lane
    }

    /// Seats all lanes of a group that a key of the lane `filled` has made full, or that is full no longer (`NONE`). Returns the number of
    /// its queued keys.
    pub(super) fn seat_all(&mut self, group: u32, filled: u32) -> usize {
        let (mut number, mut keys) = (group, 0);
        while number != NONE {
            visit();
            let lane = &mut self.lanes[number];
            let next = lane.sibling;
            keys += lane.keys.len as usize;
            if filled != NONE && number != filled {
                lane.passes = (lane.passes + 1).min(PASSES);
            }
            if lane.seat != Seat::Nowhere {
                self.seat(number, false);
            }
            number = next;
        }
        keys
    }

    /// Forgets a few idle lanes if there are too many.
    #[inline]
    pub(super) fn tidy(&mut self, index: u8, bin: &mut Bin<T>) {
        for _ in 0..STEP {
            visit();
            let Some(number) = self.surplus(index) else { return };
            self.forget_lane(number, bin);
        }
    }

    /// The idle lane to forget, if more than [`KEEP`] are idle. It is one of this level if that alone has so many, and either the turn of
    /// its first one has come, or they exceed twice the number of lanes that wait there by more than `KEEP`. Otherwise it is one of a level
    /// in which no lane waits.
    #[inline]
    fn surplus(&self, index: u8) -> Option<u32> {
        if self.idle <= KEEP {
            return None;
        }
        let level = &self.levels[usize::from(index)];
        let idle = level.len_of(Seat::Idle);
        if idle > KEEP && (idle > KEEP + 2 * level.waiting() || self.due_idle(index.into()).is_some()) {
            return Some(level.lists[Seat::Idle as usize].first);
        }
        let quiet = self.with_idle.top_without(&self.rotation.ready, &self.rotation.held)?;
        Some(self.levels[usize::from(quiet)].lists[Seat::Idle as usize].first)
    }

    /// Forgets idle lanes whose turns have come, because a key would make them new as if they had never been known. Returns whether there
    /// may be more.
    pub(super) fn forget_due(&mut self, bin: &mut Bin<T>) -> bool {
        let mut left = SHRINK;
        for index in 0..=usize::from(u8::MAX) {
            while let Some(number) = self.due_idle(index) {
                if left == 0 {
                    return true;
                }
                visit();
                left -= 1;
                self.forget_lane(number, bin);
            }
        }
        false
    }

    /// The first idle lane of a level, if its turn has come.
    #[inline]
    fn due_idle(&self, index: usize) -> Option<u32> {
        let level = &self.levels[index];
        let first = level.lists[Seat::Idle as usize].first;
        (level.len_of(Seat::Idle) > 0 && self.lanes[first].due <= level.turns).then_some(first)
    }
}
