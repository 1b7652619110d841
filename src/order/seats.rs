//! Where a lane sits: [`Groups::seat`] decides it, [`Groups::put`] moves it there. And how long an idle one stays.

use super::lanes::{Lane, Lanes, Seat};
use super::list::List;
use super::{Bin, Groups, NONE, visit};

/// Idle lanes that are kept in any case.
pub(super) const KEEP: u32 = 128;
/// Idle lanes that a pop looks at.
const STEP: usize = 4;
/// Idle lanes that one call of a shrink forgets.
const SHRINK: usize = 64;
/// The credit of a parked lane that got its first key when the group was full. More than any weight.
const LATE: u16 = u16::MAX;
/// The credit of a parked lane that was new, and keeps its ticket.
const WAS_NEW: u16 = LATE - 1;
/// Passes of a lane are counted up to this number.
const PASSES: u8 = 63;

#[derive(Default)]
pub(super) struct Level {
    /// By [`Seat`], for the seats that each level has.
    pub(super) lists: [List; Seat::Owed as usize],
    /// Queued keys.
    pub(super) len: u32,
    /// Turns of old lanes.
    pub(super) turns: u64,
    /// The last ticket: each new lane gets the next one.
    tickets: u64,
    /// The highest ticket whose lane has begun its turn.
    passed: u64,
    /// Hand-outs of new lanes since an old one had its turn.
    pub(super) since_old: u8,
}

impl Level {
    #[inline]
    pub(super) fn len_of(&self, seat: Seat) -> u32 {
        self.lists[seat as usize].len
    }

    /// The turn of a new lane begins, or goes on.
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

    /// It has lanes in turn.
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

    /// A lane with this ticket comes before all that are new.
    fn is_first(&self, ticket: u64, lanes: &Lanes) -> bool {
        let first = self.lists[Seat::New as usize].first;
        first == NONE || ticket <= self.passed || ticket < lanes[first].due
    }
}

impl<T: Copy> Groups<T> {
    /// Puts a lane where it belongs. `turn_is_over`: it has given as many keys as it may.
    pub(super) fn seat(&mut self, number: u32, turn_is_over: bool) {
        let lane = &self.lanes[number];
        let (&Lane { seat: was, level: index, credit, passes, due, keys, .. }, group) = (lane, lane.home(number));
        let (is_full, was_full) = (self.is_full(group), was.is_held());
        let level = &mut self.levels[usize::from(index)];
        // It was new when it was parked.
        let was_new = was_full && credit == WAS_NEW;
        let is_due = if was_new { level.is_first(due, &self.lanes) } else { due <= level.turns };
        let seat = match was {
            _ if keys.is_empty() => Seat::Idle,
            _ if is_full && passes > 0 => Seat::Passed,
            _ if is_full => Seat::Parked,
            Seat::New | Seat::Old | Seat::Owed => Seat::Old,
            Seat::Nowhere => Seat::New,
            // It was parked or idle. One that was new keeps its ticket: so it comes before the others when those before it have been.
            _ if is_due || was_new => Seat::New,
            _ => Seat::Old,
        };
        if seat == was && !turn_is_over {
            return;
        }
        // Else it would pass those that wait: with a limit of 1 and one getter it is back before each hand-out.
        let was_to_give = credit > 0 && credit < LATE;
        let goes_first = seat == Seat::New && was_full && is_due && was_to_give;
        // If it was parked without a hand-out, its turn comes when it would have come.
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
            _ => credit, // 0: it has filled its group itself; or more: it was to have its turn
        };
        let lane = self.put(number, seat, goes_first);
        (lane.due, lane.credit) = (due, credit);
    }

    /// Moves a lane to the end of another list, or to its start.
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

    /// A group became full by a key of the lane `filled`, which passes the others, or is so no longer. Returns the number of its keys.
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

    /// Forgets some lanes that are idle, if there are too many.
    #[inline]
    pub(super) fn tidy(&mut self, index: u8, bin: &mut Bin<T>) {
        for _ in 0..STEP {
            visit();
            let Some(number) = self.surplus(index) else { return };
            self.forget_lane(number, bin);
        }
    }

    /// An idle lane of the level, if there are many there and their turns have come, or if there are more than twice as many as have keys.
    /// Or one of a level where no lane has keys, if there are many in all.
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

    /// Forgets idle lanes whose turns have come: with a key they are new, as those that are not known. Returns whether there may be more.
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
