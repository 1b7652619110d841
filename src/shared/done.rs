//! The ends of a processing: `done`, `succeed`, `give_up` and requeues; and what becomes of a key whose holder unwinds.

use super::Shared;
use super::hub::Flags;
use super::locked::{Held, Locked};
use super::section::{Section, in_mode};
use super::state::if_free;
use crate::machine::{Claimed, End, MaybeNanos, WHEEL_IS_FULL};
use crate::panics::{contained, contained_while_unwinding};
use crate::sync::Arc;
use crate::time::nanos;
use crate::{AddOptions, Added};
use std::time::Duration;

impl<K> Shared<K> {
    /// `done`.
    #[inline]
    pub(crate) fn done(&self, claimed: Claimed<K>) {
        if self.is_single() { self.done_in_first(claimed) } else { self.done_in_one_of_many(claimed) }
    }

    // `inline(never)`, here and below: one copy for `Item::done` and others, which keeps in registers what it needs.
    #[inline(never)]
    fn done_in_first(&self, claimed: Claimed<K>) {
        self.end_in(&self.first, claimed, End::Done, None);
    }

    #[inline(never)]
    fn done_in_one_of_many(&self, claimed: Claimed<K>) {
        if_free!(self, free => self.free_end(free, claimed, End::Done));
        self.done_in_chosen(claimed);
    }

    #[inline(never)]
    fn done_in_chosen(&self, claimed: Claimed<K>) {
        let home = self.at(claimed.hash().shard(self.shards()));
        self.end_in(home, claimed, End::Done, self.stamp);
    }

    /// `forget` and `done`, for the holder of the key, in one critical section. The caller has called
    /// [`limiter_forget`](Self::limiter_forget).
    #[inline(never)]
    pub(crate) fn succeed(&self, claimed: Claimed<K>) {
        self.end_anywhere(claimed, End::Succeed);
    }

    /// [`succeed`](Self::succeed) of a key that was given up.
    #[cold]
    pub(crate) fn give_up(&self, claimed: Claimed<K>) {
        self.end_anywhere(claimed, End::GiveUp);
    }

    #[inline(always)]
    pub(super) fn end_anywhere(&self, claimed: Claimed<K>, end: End) {
        let home = if self.is_single() {
            &self.first
        } else {
            if_free!(self, free => self.free_end(free, claimed, end));
            self.at(claimed.hash().shard(self.shards()))
        };
        self.end_in(home, claimed, end, self.stamp);
    }

    #[inline(always)]
    fn end_in(&self, locked: &Locked<K>, claimed: Claimed<K>, end: End, stamp: Option<fn() -> u64>) {
        let mut hand = None;
        let held = locked.lock();
        if self.flags().has(Flags::DONE) {
            return self.end_special(held, claimed, end);
        }
        let mut section = self.plain_section(held, stamp);
        section.done(&mut hand, claimed, end);
        section.end();
        // A key that is forgotten is dropped here, after the lock (W4).
    }

    /// The slow end of a processing, in a queue that measures, is ordered, or for which somebody waits. After the lock it tells the
    /// observer, and drops a key that has left the queue.
    #[inline(never)]
    fn end_special(&self, held: Held<'_, K>, claimed: Claimed<K>, end: End) {
        let (held, mut hand) = (held, None);
        in_mode!(self, held, section, has_extras => {
            let worked =
                if section.mode.is_measured { self.note_end(&mut section, &claimed, None) } else { MaybeNanos::UNKNOWN };
            section.done(&mut hand, claimed, end);
            let has_added = section.take_added();
            section.end(); // before the key in the hand (W4), and the observer (P17)
            if has_extras {
                self.tell_done(worked, has_added);
            }
        });
    }

    /// How long a key was processing. `now` is the time if the call has read the clock already.
    fn note_end(&self, section: &mut Section<'_, K>, claimed: &Claimed<K>, now: Option<u64>) -> MaybeNanos {
        section.marks().ended(claimed, || now.unwrap_or_else(|| self.settings.clock.now_coarse()))
    }

    pub(super) fn tell_done(&self, worked: MaybeNanos, has_added: bool) {
        self.tell(|observer| observer.done(worked.duration()));
        if has_added {
            self.tell(|observer| observer.added(Added::Deferred));
        }
    }

    /// A held key will cool down for this time after its run, which is about to end.
    #[cold]
    pub(crate) fn rest(this: &Arc<Self>, claimed: &Claimed<K>, time: Duration) {
        let now = this.settings.clock.now();
        if_free!(this, free => {
            this.free_rest(free, claimed, now, nanos(time));
            Self::ensure_driver(this);
        });
        let held = this.home(claimed).lock();
        let mode = this.mode();
        if !mode.is_open {
            return;
        }
        let mut section = this.section_in(held, mode);
        section.verb(|machine, _| ((), machine.rest(claimed, now, nanos(time))));
        section.end();
        Self::ensure_driver(this);
    }

    /// `done` in a thread that unwinds. It catches a panic of the observer or of the key's drop, which would abort the process; the key is
    /// done before either.
    #[cold]
    pub(crate) fn done_in_panic(&self, claimed: Claimed<K>) {
        contained(|| self.done(claimed));
    }

    /// Notes that the thread was already unwinding when it got this key.
    #[cold]
    pub(crate) fn note_unwinding(&self, claimed: &Claimed<K>) {
        if_free!(self, _free => _ = claimed.node().word().step(|bits| (bits.unwind(), ())));
        self.home(claimed).lock().marks().note_unwinding(claimed);
    }

    /// `add_with` and `done`, for the holder of the key, in one critical section.
    pub(crate) fn requeue(this: &Arc<Self>, claimed: Claimed<K>, options: AddOptions, end: End) -> Added {
        Self::try_requeue(this, claimed, options, end).unwrap_or_else(|claimed| Self::done_after_refusal(this, claimed))
    }

    /// [`requeue`](Self::requeue), which returns the key if the queue has refused the add. The key is then still held, and the caller calls
    /// [`done_after_refusal`](Self::done_after_refusal). No add comes in between, because the queue is shut down.
    pub(crate) fn try_requeue(
        this: &Arc<Self>,
        claimed: Claimed<K>,
        options: AddOptions,
        end: End,
    ) -> Result<Added, Claimed<K>> {
        if_free!(this, free => Self::free_requeue(this, free, claimed, options, end));
        if options.has_level() {
            this.expect_levels();
        }
        if options.pauses_group {
            this.expect_holds();
        }
        let (mut hand, mut how) = (None, this.how(&options));
        let mut held = this.home(&claimed).lock();
        let mode = this.mode();
        if mode.is_ordered && options.priority.is_none() {
            how.priority = held.priority(&claimed);
        }
        if how.may_delay() && mode.is_open && !held.marks().has_room_for_delay() {
            drop(held);
            this.refuse_requeue(claimed);
        }
        let (mut section, mut worked) = (this.section_in(held, mode), MaybeNanos::UNKNOWN);
        if mode.is_measured && mode.is_open {
            worked = this.note_end(&mut section, &claimed, how.may_delay().then_some(how.now));
        }
        let pauses = if options.pauses_group { section.group_of(&claimed) } else { None };
        if let Some(group) = pauses {
            let until = how.now.saturating_add(how.delay.unwrap_or(0));
            section.verb(|machine, mode| machine.change_group(mode, |groups, _| groups.pause(group, until, how.now)));
        }
        let requeued = section.requeue(&mut hand, claimed, how, end);
        let has_added = section.take_added();
        section.end();
        let added = requeued?;
        Self::after_requeue(this, hand, added, worked, has_added);
        Ok(added)
    }

    /// The rest of a requeue, after the lock.
    pub(super) fn after_requeue(this: &Arc<Self>, hand: Option<K>, added: Added, worked: MaybeNanos, has_added: bool) {
        // First, because a panic of the observer must not leave a delay without a driver.
        Self::ensure_driver(this);
        contained_while_unwinding(|| {
            this.tell_done(worked, has_added);
            drop(hand);
            if this.has_extras() {
                Self::after_add(this, added);
            }
        });
    }

    /// [`requeue`](Self::requeue) in a thread that unwinds: see [`done_in_panic`](Self::done_in_panic). If a panic came before the answer,
    /// the key was not queued.
    #[cold]
    pub(crate) fn requeue_in_panic(this: &Arc<Self>, claimed: Claimed<K>, options: AddOptions, end: End) -> Added {
        contained(|| Self::requeue(this, claimed, options, end)).unwrap_or(Added::Rejected)
    }

    /// The wheel is full. The key is done, because its holder is about to unwind (P13).
    #[cold]
    pub(super) fn refuse_requeue(&self, claimed: Claimed<K>) -> ! {
        self.done(claimed);
        panic!("{WHEEL_IS_FULL}");
    }

    /// The rest of a requeue that the queue has refused.
    #[cold]
    pub(crate) fn done_after_refusal(this: &Arc<Self>, claimed: Claimed<K>) -> Added {
        this.done(claimed);
        if this.has_extras() {
            Self::after_add(this, Added::Rejected);
        }
        Added::Rejected
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::time::wheel::MAX_BLOCKS;
    use crate::{AddOptions, Added, Driver, WorkQueue};
    use std::time::Duration;

    /// The wheel is full: a requeue that sets no delay needs no room, and one that the queue refuses sets none.
    #[test]
    fn a_requeue_without_a_delay_needs_no_room() {
        const HOUR: Duration = Duration::from_secs(3600);
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        queue.add_after(0, HOUR);
        queue.add(1);
        let most = MAX_BLOCKS.replace(1);
        let is_full = || !queue.shared.first.lock().marks().has_room_for_delay();
        assert!(is_full());
        assert_eq!(queue.get().unwrap().requeue_with(AddOptions::new()), Added::Deferred);
        let item = queue.get().unwrap();
        queue.shut_down();
        assert!(is_full());
        assert_eq!(item.requeue_after(HOUR), Added::Rejected);
        MAX_BLOCKS.set(most);
    }
}
