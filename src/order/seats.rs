//! Where a lane sits: [`Groups::seat`] puts lanes into lists, and for a hand-out that is owed [`Groups::put`]. And how long an idle one stays.

use super::lanes::{Lane, Lanes, List, Seat, Turn};
use super::{Bin, Groups, NONE, visit};

/// Idle lanes that are kept in any case.
pub(super) const KEEP: u32 = 128;
/// Idle lanes that a pop looks at.
const STEP: usize = 4;
/// Idle lanes that one call of a shrink forgets.
const SHRINK: usize = 64;
/// The credit of a parked lane that got its first key when the group was full. More than any weight.
const LATE: u16 = Turn::MOST;
/// The credit of a parked lane that was new, and keeps its ticket.
const WAS_NEW: u16 = Turn::MOST - 1;
/// Lanes of a list that [`Groups::ready_lanes`] returns.
const SOME: usize = 64;

pub(super) struct Level {
    /// By [`Seat`].
    pub(super) lists: [List; 6],
    /// Queued keys.
    pub(super) len: u32,
    /// Turns of old lanes, which wrap around.
    pub(super) turns: u32,
    /// The last ticket: each new lane gets the next one. And the highest of which the turn has begun. They wrap around.
    tickets: u32,
    passed: u32,
    /// Hand-outs of new lanes since an old one had its turn.
    pub(super) since_old: u8,
}

impl Level {
    pub(super) const EMPTY: Self =
        Self { lists: [List::EMPTY; 6], len: 0, turns: 0, tickets: 0, passed: 0, since_old: 0 };

    #[inline]
    pub(super) fn list(&mut self, seat: Seat) -> &mut List {
        &mut self.lists[seat as usize]
    }

    #[inline]
    pub(super) fn len_of(&self, seat: Seat) -> u32 {
        self.lists[seat as usize].len
    }

    /// The turn of a new lane begins, or goes on.
    #[inline]
    pub(super) fn pass(&mut self, ticket: u32) {
        if is_before(self.passed, ticket) {
            self.passed = ticket;
        }
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
    fn is_first<T>(&self, ticket: u32, lanes: &Lanes<T>) -> bool {
        let first = self.lists[Seat::New as usize].first;
        first == NONE || !is_before(self.passed, ticket) || is_before(ticket, lanes[first].due)
    }
}

/// Of two numbers that wrap around.
#[inline]
fn is_before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

impl<T: Copy + PartialEq> Groups<T> {
    /// Puts a lane where it belongs. `turn_is_over`: it has given as many keys as it may.
    pub(super) fn seat(&mut self, number: u32, turn_is_over: bool) {
        let lane = &self.lanes[number];
        let (was, group, index, neighbours) = (lane.seat, lane.group, lane.level, lane.neighbours);
        let (is_empty, is_full) = (lane.is_empty(), self.is_full(group));
        let home = if number == group { lane } else { &self.lanes[group] };
        let weight = home.known.weight();
        let level = &mut self.levels[usize::from(index)];
        let was_full = was.is_held();
        let was_new = was_full && lane.turn.credit() == WAS_NEW;
        let is_due = if was_new { level.is_first(lane.due, &self.lanes) } else { !is_before(level.turns, lane.due) };
        let mut goes_first = false;
        let seat = match was {
            _ if is_empty => Seat::Idle,
            _ if is_full && was_full => was,
            _ if is_full && lane.turn.passes() > 0 => Seat::Passed,
            _ if is_full => Seat::Parked,
            Seat::New | Seat::Old | Seat::Owed if turn_is_over => Seat::Old,
            Seat::New | Seat::Old | Seat::Owed => was,
            _ if was_full && is_due => {
                // Else it would pass those that wait: with a limit of 1 and one getter it is back before each hand-out.
                goes_first = lane.turn.credit() > 0 && lane.turn.credit() < LATE;
                Seat::New
            }
            // It keeps its ticket: so it comes before the others when those before it have been.
            _ if was_full => {
                if was_new {
                    Seat::New
                } else {
                    Seat::Old
                }
            }
            Seat::Idle if !is_due => Seat::Old,
            _ => Seat::New,
        };
        if seat == was && !turn_is_over || was == Seat::Idle && is_empty {
            return;
        }
        match was {
            Seat::Nowhere => {}
            Seat::Owed => self.owed.remove(neighbours, &mut self.lanes),
            _ => level.list(was).remove(neighbours, &mut self.lanes),
        }
        let neighbours = level.list(seat).insert(number, goes_first, &mut self.lanes);
        let lane = &mut self.lanes[number];
        (lane.seat, lane.neighbours) = (seat, neighbours);
        // If it was parked without a hand-out, its turn comes when it would have come.
        let keeps_due = if seat.is_held() { lane.turn.credit() > 0 } else { was_full };
        if seat == Seat::New {
            if goes_first && !was_new {
                lane.due = level.passed;
            } else if !was_new {
                level.tickets = level.tickets.wrapping_add(1);
                lane.due = level.tickets;
            }
        } else if !keeps_due || seat == Seat::Idle {
            lane.due = level.turns.wrapping_add(level.len_of(Seat::Old));
        }
        if !seat.is_held() {
            lane.turn.set_credit(weight);
        } else if matches!(was, Seat::Idle | Seat::Nowhere) {
            lane.turn.set_credit(LATE);
        } else if was == Seat::New && lane.turn.credit() > 0 {
            lane.turn.set_credit(WAS_NEW);
        } // else 0: it has filled its group itself; or more: it was to have its turn
        if was_full || seat.is_held() {
            self.choice.set_held(index, level.held() > 0);
        }
        self.choice.set(index, level.is_ready());
        self.count_idle(index, u32::from(seat == Seat::Idle), u32::from(was == Seat::Idle));
    }

    /// Lanes of a level became idle, or are so no longer.
    #[inline]
    pub(super) fn count_idle(&mut self, index: u8, more: u32, less: u32) {
        self.idle = self.idle + more - less;
        let level = &self.levels[usize::from(index)];
        let is_quiet = level.waiting() == 0 && level.len_of(Seat::Idle) > 0;
        if is_quiet != self.quiet.has(index) {
            self.quiet.put(index, is_quiet);
        }
    }

    /// Lanes that may give a key now: some of each level, those whose turns come first.
    pub(super) fn ready_lanes(&self) -> impl Iterator<Item = &Lane<T>> {
        let of_levels = self.choice.ready().flat_map(move |level| {
            let lists = &self.levels[usize::from(level)].lists;
            [Seat::New, Seat::Old].into_iter().flat_map(move |seat| lists[seat as usize].iter(&self.lanes).take(SOME))
        });
        self.owed.iter(&self.lanes).take(SOME).chain(of_levels)
    }

    /// A group became full, or is no longer.
    pub(super) fn seat_all(&mut self, group: u32) {
        let mut number = group;
        while number != NONE {
            visit();
            if self.lanes[number].seat != Seat::Nowhere {
                self.seat(number, false);
            }
            number = self.lanes[number].sibling;
        }
    }

    /// Forgets some lanes that are idle, if there are too many.
    #[inline]
    pub(super) fn tidy(&mut self, index: u8, bin: &mut Bin<T>) {
        for _ in 0..STEP {
            visit();
            let Some(number) = self.surplus(index) else { return };
            self.forget_idle(number, bin);
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
        let List { first, len, .. } = level.lists[Seat::Idle as usize];
        if len > KEEP && (!is_before(level.turns, self.lanes[first].due) || len > KEEP + 2 * level.waiting()) {
            return Some(first);
        }
        Some(self.levels[usize::from(self.quiet.top()?)].lists[Seat::Idle as usize].first)
    }

    /// Forgets idle lanes whose turns have come: with a key they are new, as those that are not known. Returns whether there may be more.
    pub(super) fn forget_due(&mut self, bin: &mut Bin<T>) -> bool {
        let mut left = SHRINK;
        for index in 0..=u8::MAX {
            loop {
                let level = &mut self.levels[usize::from(index)];
                let List { first, len, .. } = *level.list(Seat::Idle);
                if len == 0 {
                    break;
                }
                if is_before(level.turns, self.lanes[first].due) {
                    break;
                }
                if left == 0 {
                    return true;
                }
                visit();
                left -= 1;
                self.forget_idle(first, bin);
            }
        }
        false
    }

    fn forget_idle(&mut self, number: u32, bin: &mut Bin<T>) {
        let Lane { group, sibling, level, neighbours, .. } = self.lanes[number];
        self.levels[usize::from(level)].list(Seat::Idle).remove(neighbours, &mut self.lanes);
        self.count_idle(level, 0, 1);
        if self.served == number {
            self.served = NONE;
        }
        self.stamps.forget_lane(number);
        if number == group {
            self.lanes[number].seat = Seat::Nowhere;
        } else {
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
        if home.known.keys == 0 && home.seat == Seat::Nowhere && home.sibling == NONE {
            self.table.remove(group, &mut self.lanes, bin);
        }
    }
}
