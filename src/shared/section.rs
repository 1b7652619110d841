//! A critical section of one shard: verbs of its machine, what it publishes, and what it owes.
//!
//! ```text
//!   lock ─▶ Held ─ flags: a mode ─▶ Section ─ verb, verb … ─▶ end: publish ─ nothing owed: unlock ─▶ drop the hand
//!                    │                                           └─ settle: take the waiters that are owed a wake-up from the hub
//!                    └ only looks: unlock                               ─ unlock ─ wake them, free memory
//! ```
//!
//! A [`Section`] is the only way to a verb that owes something or changes what others read without the lock. Its [`end`](Section::end),
//! which takes it, publishes, wakes and frees. A debug build panics if a section is dropped without its end, and asserts there that all is
//! published.
//!
//! A call declares its hand before it locks, so that a key that is left there is dropped after the lock, even if `Eq` panics (W4).

use super::Shared;
use super::hub::Flags;
use super::locked::{Held, Locked};
use super::pace::Pace;
use super::waiters::Event;
use crate::Added;
use crate::key::KeyHash;
use crate::machine::{Cancelled, Claimed, End, Ended, Expired, Found, How, Machine, Mode, Owed};
use crate::order::Group;
use crate::panics::drop_each;
use crate::shared::driver::states::Driver;
use crate::sync::give_way;
use crate::wait::WakeList;
use equivalent::Equivalent;
use std::ops::{Deref, DerefMut};

/// A section for a verb. It is compiled for each mode of the hot calls, where the mode is a constant, and once for all others. If
/// `has_extras`, the call looks for more to do after the lock.
macro_rules! in_mode {
    ($shared:expr, $held:expr, $section:ident, $has_extras:ident => $call:expr) => {
        match $shared.flags().without(Flags::LIMITED) {
            Flags::NONE => {
                let (mut $section, $has_extras) = ($shared.section_in($held, $crate::machine::Mode::PLAIN), false);
                $call
            }
            Flags::ORDERED => {
                let (mut $section, $has_extras) = ($shared.section_in($held, $crate::machine::Mode::ORDERED), false);
                $call
            }
            Flags::MEASURED => {
                let (mut $section, $has_extras) = ($shared.section_in($held, $crate::machine::Mode::MEASURED), false);
                $call
            }
            flags => {
                let (mut $section, $has_extras) = ($shared.section($held), flags.has(Flags::EXTRAS));
                $call
            }
        }
    };
}
pub(super) use in_mode;

/// See the top of this file.
pub(super) struct Section<'s, K> {
    pub(super) shared: &'s Shared<K>,
    held: Held<'s, K>,
    pub(super) mode: Mode,
    /// What gives the first key a time, in a queue with several shards.
    stamp: Option<fn() -> u64>,
    /// What each hand-out spends a token of. `None` in the modes of hot calls.
    pub(super) pace: Option<&'s Pace>,
    /// Whether it hands nothing out, because the queue is paused. `false` in the modes of hot calls.
    is_paused: bool,
    owed: Owed,
    /// Whether what is published may have changed.
    has_changed: bool,
    /// Whether its verbs take keys out, so that the first key may be another one. If they only queue keys, the first of a line changes only
    /// if there was none. A call always uses the same verbs, so the compiler knows the answer.
    takes: bool,
    must_end: MustEnd,
}

/// Panics in a debug build if it is dropped before it was [met](Self::met), unless the thread unwinds.
struct MustEnd;

impl MustEnd {
    #[inline(always)]
    fn met(self) {
        std::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for MustEnd {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a critical section has not ended");
    }
}

impl<K> Shared<K> {
    /// Takes the lock of a shard, unless it is one of several and busy for longer than a critical section takes (P21).
    pub(super) fn lock_unless_busy<'s>(&self, locked: &'s Locked<K>) -> Option<Held<'s, K>> {
        if self.shards() == 1 { Some(locked.lock()) } else { locked.lock_briefly() }
    }

    /// What a verb is told of the queue, read under the lock of its shard.
    #[inline]
    pub(super) fn mode(&self) -> Mode {
        let flags = self.flags_acquired();
        Mode {
            is_open: !flags.has(Flags::SHUT_DOWN),
            is_ordered: flags.has(Flags::ORDERED),
            is_awaited: flags.has(Flags::AWAITED),
            is_measured: flags.has(Flags::MEASURED),
            is_bounded: flags.has(Flags::BOUNDED),
        }
    }

    /// A section in which any verb may be called.
    #[inline]
    pub(super) fn section<'s>(&'s self, held: Held<'s, K>) -> Section<'s, K> {
        let mut section = self.section_in(held, self.mode());
        section.pace = self.pace.as_deref();
        section.is_paused = self.is_paused();
        section
    }

    /// The same in a mode that the caller has read, for other verbs than `get` if the queue has a pace or is paused.
    #[inline(always)]
    pub(super) fn section_in<'s>(&'s self, held: Held<'s, K>, mode: Mode) -> Section<'s, K> {
        Section { mode, ..self.plain_section(held, self.stamp) }
    }

    /// The section of a hot call in a plain queue. `stamp` is a constant in a queue with one shard.
    #[inline(always)]
    pub(super) fn plain_section<'s>(&'s self, held: Held<'s, K>, stamp: Option<fn() -> u64>) -> Section<'s, K> {
        let (mode, owed) = (Mode::PLAIN, Owed::NOTHING);
        let (pace, is_paused, must_end) = (None, false, MustEnd);
        Section { shared: self, held, mode, stamp, pace, is_paused, owed, has_changed: false, takes: false, must_end }
    }

    /// Reads the clock for a key that became dirty.
    #[inline(never)]
    fn tell_time(&self, machine: &mut Machine<K>) {
        machine.times().into_iter().for_each(|times| times.dirty_at(self.settings.clock.now_coarse()));
    }

    /// Keys were forgotten in a queue with groups and several shards.
    #[inline(never)]
    fn take_names_out(&self, machine: &mut Machine<K>) {
        let directory = self.directory.as_ref().expect("it wants the hashes of these keys");
        machine.take_forgotten().for_each(|hash| directory.forget(hash));
    }

    /// Takes out the waiters that are owed a wake-up while the lock is held, which orders this with those who come (W2). Then unlocks,
    /// wakes them, and frees memory.
    #[cold]
    #[inline(never)]
    fn settle(&self, held: Held<'_, K>, owed: Owed) {
        held.locked.check(&held);
        let Held { locked, mut machine, one } = held;
        let flags = self.flags();
        let mut calls_driver = false;
        if owed.has(Owed::DEADLINE) {
            locked.set_driver_until(machine.until());
            // Otherwise `turn` looks by itself.
            calls_driver = self.settings.driver != Driver::Manual;
            if !calls_driver && owed == Owed::only_if(true, Owed::DEADLINE) {
                return;
            }
        }
        let mut wakes = WakeList::default();
        if owed.has(Owed::READY) && flags.has(Flags::GETTERS) {
            let queued = locked.len() * self.shards();
            let mut hub = self.hub();
            let wanted = if hub.is_paused() || hub.is_paced_by_driver() { 0 } else { owed.ready() };
            (0..wanted).map_while(|_| hub.getters.next(queued)).for_each(|getter| wakes.push(getter));
        }
        if owed.has(Owed::DRAINED) && flags.has(Flags::DRAINERS) {
            wakes.append(self.hub().life_cycle.work_ended(locked.index));
        }
        // Getters that have waited for keys of groups that are held back, or for tokens. Those of several shards look at the others again,
        // because only a getter that visits all knows what is left.
        if owed.has(Owed::OVER) && flags.has(Flags::HELD_BACK) {
            wakes.append(self.hub().getters.take_all());
        }
        if calls_driver {
            let mut hub = self.hub();
            hub.deadlines_told += 1;
            wakes.append(hub.call_driver(machine.until()));
        }
        if owed.has(Owed::DIRTY) {
            let tickets = machine.take_dirty();
            let mut hub = self.hub();
            tickets.into_iter().for_each(|ticket| hub.tasks.take(Event::Dirty(locked.index, ticket), &mut wakes));
        }
        if let (true, Some(bound)) = (owed.has(Owed::ROOM), &self.bound) {
            let left = machine.take_left();
            if bound.leave(left) {
                wakes.append(bound.next(left));
            }
        }
        let mut garbage = owed.has(Owed::GARBAGE).then(|| machine.take_garbage());
        drop((machine, one));
        if !wakes.is_empty() {
            self.note_caught(wakes.wake());
        }
        if let Some(gone) = garbage.as_mut().map(|garbage| std::mem::take(&mut garbage.gone)) {
            self.note_caught(drop_each(gone));
        }
    }
}

impl<'s, K> Section<'s, K> {
    /// Notes what a verb owes, and returns its answer.
    #[inline(always)]
    fn note<A>(&mut self, (answer, owed): (A, Owed)) -> A {
        self.owed = self.owed.and(owed);
        answer
    }

    /// Calls a verb that has no method here. It may have taken keys out.
    #[inline(always)]
    pub(super) fn verb<A>(&mut self, verb: impl FnOnce(&mut Machine<K>, Mode) -> (A, Owed)) -> A {
        let answer = verb(&mut self.held.machine, self.mode);
        (self.has_changed, self.takes) = (true, true);
        self.note(answer)
    }

    #[inline(always)]
    pub(super) fn add(&mut self, hand: &mut Option<K>, hash: KeyHash, group: Group, how: How<'_>) -> Added
    where
        K: Eq,
    {
        let answer = self.held.machine.add(hand, hash, group, how, self.mode);
        self.note_added(answer)
    }

    /// The same for a key for which the caller has looked.
    #[inline(always)]
    pub(super) fn add_found(&mut self, hand: &mut Option<K>, hash: KeyHash, found: Found<K>, how: How<'_>) -> Added
    where
        K: Eq,
    {
        let answer = self.held.machine.add_found(hand, hash, found, how, self.mode);
        self.note_added(answer)
    }

    #[inline(always)]
    fn note_added(&mut self, answer: (Added, Owed)) -> Added {
        let added = self.note(answer);
        // It may also have raised a key's priority, or want the time.
        if added == Added::Queued || self.mode.is_ordered || self.mode.is_measured {
            self.has_changed = true;
        }
        added
    }

    /// The time, if the groups of the queue need it.
    #[inline(always)]
    fn time_if(&self, is_needed: bool) -> u64 {
        if is_needed { self.shared.settings.clock.now_coarse() } else { 0 }
    }

    /// Gives the key that the last add has made dirty its time, if that is wanted, in a section that adds several keys.
    #[inline(always)]
    pub(super) fn tell_time(&mut self) {
        if self.mode.is_measured && self.held.machine.wants_time() {
            self.shared.tell_time(&mut self.held.machine);
        }
    }

    #[inline(always)]
    pub(super) fn done(&mut self, hand: &mut Option<K>, claimed: Claimed<K>, end: End) -> Ended {
        let now = self.time_if(self.held.is_by_work(self.mode));
        let answer = self.held.machine.done(hand, claimed, end, now, self.mode);
        let ended = self.note(answer);
        if ended == Ended::Queued || self.mode.is_ordered {
            self.has_changed = true;
        }
        ended
    }

    /// If the queue refuses the add, the claim on the key comes back.
    #[inline]
    pub(super) fn requeue(
        &mut self,
        hand: &mut Option<K>,
        claimed: Claimed<K>,
        mut how: How<'_>,
        end: End,
    ) -> Result<Added, Claimed<K>> {
        if !how.may_delay() {
            how.now = self.time_if(self.held.is_by_work(self.mode));
        }
        let answer = self.held.machine.requeue(hand, claimed, how, end, self.mode);
        self.has_changed = true;
        self.note(answer)
    }

    /// The next key of a line, if it is near.
    #[inline(always)]
    pub(super) fn get_simple(&mut self) -> Option<Claimed<K>> {
        let claimed = self.held.machine.get_simple();
        if claimed.is_some() {
            self.has_changed = true;
        }
        self.takes = true;
        claimed
    }

    /// Whether the queue lets a key out: it is not paused, and has a token for the hand-out that the caller is about to make, which this
    /// spends. If there is no key, it need not have one.
    #[inline(always)]
    pub(super) fn lets_out(&self, level: Option<u8>) -> bool {
        if self.is_paused {
            return false;
        }
        let Some(pace) = self.pace else { return true };
        let has_key = match level {
            Some(level) => self.order().is_ready(level),
            None => self.ready(self.mode) > 0,
        };
        !has_key || pace.spend(self.shared.settings.clock.now())
    }

    /// The next key, or that of a level.
    #[inline(always)]
    pub(super) fn get(&mut self, level: Option<u8>) -> Option<Claimed<K>> {
        let now = self.time_if(self.held.needs_time(self.mode));
        let got = match level {
            Some(level) => self.held.machine.get_of_level(level, now, self.mode),
            None => self.held.machine.get(now, self.mode),
        };
        let claimed = self.note(got);
        if claimed.is_some() {
            self.has_changed = true;
        }
        self.takes = true;
        claimed
    }

    #[inline(always)]
    pub(super) fn cancel<Q: Equivalent<K> + ?Sized>(
        &mut self,
        hand: &mut Option<K>,
        key: &Q,
        hash: KeyHash,
    ) -> Cancelled {
        let answer = self.held.machine.cancel(hand, key, hash, self.mode);
        self.has_changed = true;
        self.note(answer)
    }

    pub(super) fn forget_failures<Q>(&mut self, hand: &mut Option<K>, key: &Q, hash: KeyHash) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        let answer = self.held.machine.forget_failures(hand, key, hash, self.mode);
        self.has_changed |= self.mode.is_ordered; // a key that is forgotten may have a name in the directory
        self.note(answer)
    }

    pub(super) fn shut_down(&mut self) {
        let owed = self.held.machine.shut_down();
        self.held.locked.set_driver_until(self.held.held_until()); // no delay expires any more
        self.note(((), owed));
    }

    /// Adds keys that are due.
    #[inline(always)]
    pub(super) fn expire(&mut self, now: u64, at_most: usize) -> Expired {
        if let Some(stamp) = self.shared.stamp {
            self.held.machine.stamp_ahead(stamp);
        }
        let answer = self.held.machine.expire(now, at_most, self.mode);
        self.has_changed = true;
        let expired = self.note(answer);
        if !expired.has_more {
            // After the shut-down no delay expires, also if this shard is still to learn of it.
            let until = if self.mode.is_open { self.held.until() } else { self.held.held_until() };
            self.held.locked.set_driver_until(until);
        }
        expired
    }

    /// Whether an add that had waited for a retry has taken effect since the last such question.
    pub(super) fn take_added(&mut self) -> bool {
        let has_added = self.owed.has(Owed::ADDED);
        self.owed = self.owed.without(Owed::ADDED);
        has_added
    }

    /// The lock, for another section, after one that has changed nothing.
    #[inline(always)]
    pub(super) fn back(self) -> Held<'s, K> {
        debug_assert!(!self.has_changed && self.owed == Owed::NOTHING);
        self.must_end.met();
        self.held
    }

    /// Publishes, unlocks, and then does what the verbs have left to do.
    #[inline(always)]
    pub(super) fn end(mut self) {
        if self.owed != Owed::NOTHING {
            self.publish();
            let Self { shared, held, owed, must_end, .. } = self;
            must_end.met();
            return shared.settle(held, owed);
        }
        if self.has_changed {
            self.publish();
        }
        self.locked.check(&self.held);
        self.must_end.met();
    }

    #[inline(always)]
    fn publish(&mut self) {
        let machine = &mut self.held.machine;
        if self.mode.is_measured && machine.wants_time() {
            self.shared.tell_time(machine);
        }
        if let Some(stamp) = self.stamp {
            machine.join(self.mode, |priority| self.shared.front_of(priority));
            self.held.locked.publish_front(machine, stamp, self.mode, self.takes);
        }
        if self.held.locked.publish_len(machine, self.mode) && machine.has_forgotten() {
            self.shared.take_names_out(machine);
        }
    }
}

impl<'s, K> Deref for Section<'s, K> {
    type Target = Held<'s, K>;

    #[inline(always)]
    fn deref(&self) -> &Held<'s, K> {
        &self.held
    }
}

impl<K> DerefMut for Section<'_, K> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.held
    }
}

/// Makes critical sections of one shard, each of which returns where the next one goes on.
pub(super) fn in_steps(mut step: impl FnMut(usize) -> Option<usize>) {
    let mut from = Some(0);
    while let Some(at) = from {
        from = step(at);
        give_way();
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use crate::WorkQueue;
    use crate::machine::Mode;

    #[test]
    #[should_panic = "a critical section has not ended"]
    fn a_section_that_is_dropped_without_its_end_panics() {
        let shared = &WorkQueue::<u32>::new().shared;
        drop(shared.section_in(shared.first.lock(), Mode::PLAIN));
    }

    #[test]
    #[should_panic = "this thread holds a shard already"]
    fn a_thread_holds_one_shard_at_a_time() {
        let shared = &WorkQueue::<u32>::builder().shards(2).build().shared;
        let _first = shared.first.lock();
        let _second = shared.at(1).lock();
    }

    /// What a section has not noted is not published: the end sees that.
    #[test]
    #[should_panic = "the number of ready keys is published"]
    fn a_change_beside_the_section_is_seen_at_its_end() {
        let queue = WorkQueue::new();
        queue.add(1_u32);
        let mut section = queue.shared.section_in(queue.shared.first.lock(), Mode::PLAIN);
        let _claimed = section.marks().get_simple();
        section.end();
    }
}
