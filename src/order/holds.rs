//! What holds a group back (P32): it is *full*, because as many of its keys are processing as its limit allows; it is *throttled*, because
//! it has no token of its rate; or it is *paused*.
//!
//! ```text
//!                    the first cause                        the last cause is over
//!   lanes in turns ───────────────────▶ Held (with keys) ──────────────────────────▶ lanes in turns
//! ```
//!
//! A group that is held back for any of these has no lane in the lists of new and old ones, so whatever is there may be popped, and no pop
//! walks over groups that are held back. A pop spends a token of its group's rate, and the group leaves the lists at once if the next token
//! is not there yet.
//!
//! **Time.** A throttled or paused group has one entry in a wheel, at the time at which the first of the two causes may be over, and
//! [`expire`](Groups::expire) takes out the entries that are due. A pause without an end needs no entry. A group without keys that has spent
//! tokens has an entry, too, because it must not be forgotten before these tokens are there again.

use super::lanes::{Lane, Lanes, Seat};
use super::limits::Limits;
use super::{Bin, Garbage, Group, Groups, NONE};
use crate::time::wheel::{Popped, Wheel};
use std::collections::BTreeMap;

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The flags of a group.
pub(super) const FULL: u8 = 1;
pub(super) const THROTTLED: u8 = 1 << 1;
pub(super) const PAUSED: u8 = 1 << 2;
/// Any of these holds the group back.
pub(super) const HELD: u8 = FULL | THROTTLED | PAUSED;
/// Its limits were set by a call, and stay.
pub(super) const KEPT: u8 = 1 << 3;
/// It has no keys, and is remembered until all tokens that it has spent are there again.
pub(super) const SPENT: u8 = 1 << 6;
/// With any of these the group is remembered, even without keys.
pub(super) const REMEMBERED: u8 = THROTTLED | PAUSED | KEPT | SPENT;
/// It has limits that may hold it back.
pub(super) const LIMITED: u8 = 1 << 4;
/// It has an entry in the wheel.
const IN_WHEEL: u8 = 1 << 5;

#[derive(Default)]
pub(super) struct Holds {
    /// A wheel takes 20 KB, so there is none before a group is throttled or paused.
    wheel: Option<Box<Wheel>>,
    /// No entry expires before this time.
    pub(super) until: Option<u64>,
    /// Whether `until` has become earlier since the last question.
    is_earlier: bool,
    /// The ends of pauses, by the numbers of the groups.
    pauses: BTreeMap<u32, u64>,
    /// The latest time that a call has passed.
    pub(super) time: u64,
    /// The number of groups that are full, throttled and paused.
    pub(super) counts: [u32; 3],
    /// The number of groups whose limits were set by a call.
    pub(super) kept: u32,
}

impl Holds {
    pub(super) fn note_time(&mut self, now: u64) -> u64 {
        self.time = self.time.max(now);
        self.time
    }

    /// When the pause of a group ends.
    pub(super) fn pause_of(&self, group: u32) -> Option<u64> {
        self.pauses.get(&group).copied()
    }

    pub(super) fn take_earlier(&mut self) -> bool {
        std::mem::take(&mut self.is_earlier)
    }

    /// Pages of the wheel that are to be freed.
    fn surplus<T>(&mut self, bin: &mut Bin<T>) {
        bin.add(self.wheel.as_mut().and_then(|wheel| wheel.surplus()).map(Garbage::WheelPages));
    }

    /// The same, or a wheel without entries.
    pub(super) fn shrink<T>(&mut self, bin: &mut Bin<T>) {
        if self.wheel.as_ref().is_some_and(|wheel| wheel.earliest().is_none()) {
            self.until = None; // it may be the time of an entry that was removed
            bin.add(self.wheel.take().map(Garbage::Wheel));
        }
        self.surplus(bin);
    }

    fn insert(&mut self, group: u32, at: u64, lanes: &mut Lanes) {
        if self.wheel.is_none() {
            self.make_wheel();
        }
        self.wheel.as_mut().expect("made above").insert(lanes, group, at);
        if self.until.is_none_or(|until| at < until) {
            (self.until, self.is_earlier) = (Some(at), true);
        }
    }

    /// Not inlined, because it would make the stack frame of each caller as large as a wheel.
    #[cold]
    #[inline(never)]
    fn make_wheel(&mut self) {
        self.wheel = Some(Box::new(Wheel::new(self.time)));
    }

    fn remove(&mut self, group: u32, lanes: &mut Lanes) {
        self.wheel.as_mut().expect("it has an entry").remove(lanes, group);
    }

    /// Takes out a group whose entry has expired. The entry of a group is used up then.
    fn pop(&mut self, now: u64, budget: &mut usize, lanes: &mut Lanes) -> Option<u32> {
        let wheel = self.wheel.as_mut()?;
        loop {
            match wheel.pop(lanes, now, budget) {
                Popped::Expired(group) => return Some(group),
                Popped::NeedsCascade => wheel.cascade(lanes, budget),
                Popped::Until(until) => {
                    self.until = Some(until);
                    return None;
                }
                Popped::Empty => {
                    self.until = None;
                    return None;
                }
                Popped::BudgetSpent => return None,
            }
            if *budget == 0 {
                return None;
            }
        }
    }
}

impl<T: Copy> Groups<T> {
    /// Which of its limits a group has reached with a hand-out, for which it spends a token.
    #[inline(never)]
    pub(super) fn reached(&mut self, group: u32, now: u64) -> u8 {
        let home = &mut self.lanes[group];
        let limits = self.limits.of(home.limits);
        let mut held = if home.processing >= limits.max_processing { FULL } else { 0 };
        if let Some(rate) = self.limits.rate_of(home.limits) {
            let now = self.holds.note_time(now);
            home.spent_until = rate.spent(home.spent_until, now);
            if rate.wait(home.spent_until, now) > 0 {
                held |= THROTTLED;
            }
        }
        held
    }

    /// Changes what holds a group back. If it is held back no longer, its lanes with keys take turns again, and the answer is the number of
    /// keys that a pop may take at once.
    pub(super) fn hold(&mut self, group: u32, over: u8, more: u8) -> u32 {
        let was = self.lanes[group].flags;
        let flags = was & !over | more;
        self.lanes[group].flags = flags;
        for (cause, count) in [FULL, THROTTLED, PAUSED].into_iter().zip(&mut self.holds.counts) {
            *count = *count + u32::from(flags & cause != 0) - u32::from(was & cause != 0);
        }
        if (was ^ flags) & (THROTTLED | PAUSED | SPENT) != 0 {
            self.schedule(group);
        }
        match (was & HELD != 0, flags & HELD != 0) {
            (false, true) => self.leave_turns(group),
            (true, false) => return self.take_turns(group),
            _ => {}
        }
        0
    }

    /// Takes all lanes of a group out of the turns.
    fn leave_turns(&mut self, group: u32) {
        let mut number = group;
        while number != NONE {
            super::visit();
            let (seat, sibling, keys) = (self.lanes[number].seat, self.lanes[number].sibling, self.lanes[number].keys);
            if matches!(seat, Seat::New | Seat::Old) {
                self.put(number, if keys.is_empty() { Seat::Idle } else { Seat::Held });
                self.blocked += keys.len as usize;
            }
            number = sibling;
        }
    }

    fn take_turns(&mut self, group: u32) -> u32 {
        let (mut number, mut keys) = (group, 0);
        while number != NONE {
            super::visit();
            let (seat, sibling) = (self.lanes[number].seat, self.lanes[number].sibling);
            if seat == Seat::Held {
                keys += self.lanes[number].keys.len;
                self.enter(number);
            }
            number = sibling;
        }
        self.blocked -= keys as usize;
        let home = &self.lanes[group];
        let most = self.limits.of(home.limits).max_processing;
        let room = most - home.processing.min(most);
        let rate = self.limits.rate_of(home.limits);
        let tokens = rate.map_or(u64::MAX, |rate| rate.tokens(home.spent_until, self.holds.time));
        keys.min(room).min(tokens.min(u64::from(u32::MAX)) as u32)
    }

    /// Puts the entry of a group where it belongs: at the time at which the first of what holds it back, or has it remembered, may be over.
    fn schedule(&mut self, group: u32) {
        let (home, now) = (&mut self.lanes[group], self.holds.time);
        let flags = home.flags;
        home.flags &= !IN_WHEEL;
        let rate = self.limits.rate_of(home.limits).filter(|_| flags & (THROTTLED | SPENT) != 0);
        let tokens = rate.map(|rate| match flags & THROTTLED {
            0 => rate.wait_until_full(home.spent_until, now),
            _ => rate.wait(home.spent_until, now),
        });
        let tokens = tokens.map(|wait| now.saturating_add(wait));
        let pause = self.holds.pause_of(group).filter(|_| flags & PAUSED != 0);
        let at = tokens.into_iter().chain(pause).min().filter(|at| *at < NEVER);
        if at.is_some() {
            home.flags |= IN_WHEEL;
        }
        if flags & IN_WHEEL != 0 {
            self.holds.remove(group, &mut self.lanes);
        }
        if let Some(at) = at {
            self.holds.insert(group, at, &mut self.lanes);
        }
    }

    /// Sets or clears what depends on the limits of a group, after these or the number of its processing keys have changed. Returns what
    /// [`hold`](Self::hold) does.
    fn apply_limits(&mut self, group: u32) -> u32 {
        let home = &self.lanes[group];
        let limits = self.limits.of(home.limits);
        let mut holds = if home.processing >= limits.max_processing { FULL } else { 0 };
        if self.lacks_token(home) {
            holds |= THROTTLED;
        }
        let limited = if limits.holds_back() { LIMITED } else { 0 };
        self.hold(group, FULL | THROTTLED | LIMITED, holds | limited)
    }

    /// Gives a group other limits. The tokens that it has spent stay spent.
    pub(super) fn change_limits(&mut self, group: u32, limits: Limits, now: u64) -> u32 {
        let old = self.lanes[group].limits;
        if *self.limits.of(old) == limits {
            return 0;
        }
        let now = self.holds.note_time(now);
        let home = &mut self.lanes[group];
        home.limits = self.limits.take(limits);
        home.spent_until = match (self.limits.rate_of(old), self.limits.rate_of(home.limits)) {
            (Some(old), Some(new)) => old.convert(home.spent_until, now, new),
            _ => 0,
        };
        self.limits.give_back(old);
        let was = self.lanes[group].flags;
        let ready = self.apply_limits(group);
        let home = &self.lanes[group];
        if was & SPENT != 0 && !self.has_spent(home) {
            _ = self.hold(group, SPENT, 0);
        } else if was & home.flags & (THROTTLED | SPENT) != 0 {
            self.schedule(group); // at another time than before
        }
        ready
    }

    /// The number of a group, which is made if it is not known.
    fn group_of(&mut self, hash: u64) -> u32 {
        self.table.find(hash, &self.lanes).unwrap_or_else(|| {
            let limits = self.limits.take(Limits::default());
            self.table.make(hash, limits, &mut self.lanes)
        })
    }

    /// Sets the limits of a group, which stay until [`unset`](Self::unset). Returns the number of keys that became ready.
    pub(crate) fn set(&mut self, Group { hash, limits, now }: Group) -> u32 {
        let group = self.group_of(hash);
        self.holds.kept += u32::from(self.lanes[group].flags & KEPT == 0);
        self.lanes[group].flags |= KEPT;
        self.change_limits(group, limits, now)
    }

    /// Gives a group back the limits that the caller would have asked for.
    pub(crate) fn unset(&mut self, Group { hash, limits, now }: Group, bin: &mut Bin<T>) -> u32 {
        let Some(group) = self.table.find(hash, &self.lanes).filter(|group| self.lanes[*group].flags & KEPT != 0)
        else {
            return 0;
        };
        self.holds.kept -= 1;
        self.lanes[group].flags &= !KEPT;
        let ready = self.change_limits(group, limits, now);
        self.forget_if_unused(group, bin);
        ready
    }

    /// Pauses a group until this time, or longer if it is paused for longer already.
    pub(crate) fn pause(&mut self, hash: u64, until: u64, now: u64) -> u32 {
        self.holds.note_time(now);
        let group = self.group_of(hash);
        let end = self.holds.pauses.entry(group).or_insert(until);
        *end = until.max(*end);
        if self.lanes[group].flags & PAUSED != 0 {
            self.schedule(group);
        }
        self.hold(group, 0, PAUSED)
    }

    /// Ends the pause of a group. Returns the number of keys that became ready.
    pub(crate) fn resume(&mut self, hash: u64, now: u64, bin: &mut Bin<T>) -> u32 {
        self.holds.note_time(now);
        let group = self.table.find(hash, &self.lanes).filter(|group| self.lanes[*group].flags & PAUSED != 0);
        let Some(group) = group else { return 0 };
        let ready = self.end(group, PAUSED);
        self.forget_if_unused(group, bin);
        ready
    }

    /// Ends some of what holds a group back.
    fn end(&mut self, group: u32, over: u8) -> u32 {
        if over & PAUSED != 0 {
            self.holds.pauses.remove(&group);
        }
        self.hold(group, over, 0)
    }

    /// Releases groups whose pauses are over or that have a token again. Returns the number of keys that became ready.
    #[cold]
    pub(super) fn expire(&mut self, now: u64, budget: &mut usize, bin: &mut Bin<T>) -> u32 {
        let (mut ready, now) = (0, self.holds.note_time(now));
        while let Some(group) = self.holds.pop(now, budget, &mut self.lanes) {
            let home = &mut self.lanes[group];
            home.flags &= !IN_WHEEL;
            #[cfg(test)]
            super::tests::RELEASED.with_borrow_mut(|released| released.push(home.hash));
            let (home, pause) = (&self.lanes[group], self.holds.pause_of(group));
            let mut stays = if self.lacks_token(home) { THROTTLED } else { 0 };
            stays |= if self.has_spent(home) { SPENT } else { 0 };
            stays |= if pause.is_some_and(|end| end > now) { PAUSED } else { 0 };
            let over = home.flags & (THROTTLED | SPENT | PAUSED) & !stays;
            if over == 0 {
                self.schedule(group);
            } else {
                ready += self.end(group, over);
            }
            self.forget_if_unused(group, bin);
        }
        self.holds.surplus(bin);
        ready
    }

    /// Whether the group has a rate, and no token of it.
    fn lacks_token(&self, home: &Lane) -> bool {
        self.limits.rate_of(home.limits).is_some_and(|rate| rate.wait(home.spent_until, self.holds.time) > 0)
    }

    /// Whether the group has spent tokens of its rate that are not there again.
    pub(super) fn has_spent(&self, home: &Lane) -> bool {
        let rate = self.limits.rate_of(home.limits);
        rate.is_some_and(|rate| rate.wait_until_full(home.spent_until, self.holds.time) > 0)
    }
}
