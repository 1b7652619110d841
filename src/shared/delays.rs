//! The steps of delayed keys: into the wheel, out of it, and from it into line. All under the one lock.
//!
//! A delay is a bit of its key's word and an entry in the wheel, and both change together (I9). So there is nothing to hand
//! over between threads but a wake-up, and "an earlier deadline wins", "the add consumes the delay" or "cancelled, or
//! delivered already?" are decided in one critical section.
//!
//! An inbox that producers push to without the lock, for the driver to empty, was measured and left: calls return in a third
//! of the time, but all delays together take as long or up to 40 % longer, a call can no longer say what it did, a `cancel`
//! would have to wait for the add before it, and a producer that is faster than the driver fills the memory. What it is for,
//! that the driver never keeps producers waiting and they not the driver (P11), comes from batches: the driver makes
//! [`BATCH`] small steps when it has the lock, some microseconds, and a producer one.

use super::add::Wakeups;
use super::measure::{UNREAD, known};
use super::put_back::Delay;
use super::section::Special;
use super::{Core, Failures, NO_DRIVER, Shared};
use crate::key::slab::SlotRef;
use crate::key::table;
use crate::panics::contained;
use crate::sync::{Arc, Ordering, Parker, give_way, model_const, now};
use crate::time::driver::{Notice, RETRY, Sleep, State};
use crate::time::wheel::{Placements, Popped, Wheel};
use crate::time::{nanos, time_left};
use crate::{AddOptions, Added, DelayConflict};
use std::borrow::Borrow;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// How many steps the driver makes before it lets go of the lock.
const BATCH: usize = model_const(128, 2);

/// How many keys are taken out of the wheel before they are looked at.
const POP_BATCH: usize = model_const(16, 2);

/// How many such batches a `turn` spends on keys that are not due, to have them in order when they are.
const SORTS: usize = model_const(32, 1);

/// The end of time: a delay until then never ends.
pub(crate) const NEVER: u64 = u64::MAX;

/// What a thread that delivers in place of the driver has done.
pub(super) enum ExpiredNow {
    Some,
    /// Nothing was due, and nothing is until then.
    Nothing {
        until: Option<Instant>,
    },
}

/// What one critical section of a driver has done.
struct Turn {
    /// Delays that expired, by what came of them: queued, deferred, coalesced.
    due: [usize; 3],
    next: Popped,
}

impl Turn {
    /// Tells the observer. How many delays expired.
    fn report<K>(self, shared: &Shared<K>) -> usize {
        shared.tell(|observer| {
            for (added, count) in [Added::Queued, Added::Deferred, Added::Coalesced].into_iter().zip(self.due) {
                (0..count).for_each(|_| observer.added(added));
            }
        });
        self.due.iter().sum()
    }
}

impl<K: Hash + Eq> Shared<K> {
    /// `add_with`.
    pub(crate) fn add_with(this: &Arc<Self>, key: K, options: AddOptions) -> Added {
        let options = this.limited(&key, options);
        let hash = this.hash(&key);
        this.prefetch_bucket(hash);
        let now = this.now_for(options);
        let added = {
            let core = &mut *this.enter();
            this.publish_buckets(core);
            if core.is_shutting_down() && !this.counts_inline(options) {
                core.counts.failures += u64::from(options.rate_limited);
                core.reject()
            } else {
                let found = core.table.find(&key, hash);
                // After the look-up: if `K::eq` panics there, nothing has changed.
                core.counts.failures += u64::from(options.rate_limited);
                match found {
                    Some(slot) => this.add_slot_with(core, slot, now, options),
                    None if this.counts_inline(options) => {
                        let slot = core.table.insert(key, hash);
                        this.add_slot_with(core, slot, now, options)
                    }
                    None => {
                        core.counts.retries += u64::from(options.delay.is_some());
                        if options.is_now() {
                            let slot = this.add_new(core, key, hash, Wakeups::Now);
                            core.note_add(slot, Added::Queued, now);
                            Added::Queued
                        } else {
                            let slot = core.table.insert(key, hash);
                            this.set_delay(core, slot, now, options)
                        }
                    }
                }
            }
        };
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    /// `cancel`.
    pub(crate) fn cancel<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let mut added = None;
        let vacated = {
            let core = &mut *self.enter();
            // SAFETY: in the table, so taken (S2), and we hold the lock.
            let delayed = |slot: &SlotRef<K>| unsafe { slot.get() }.state.is_delayed();
            let Some(slot) = core.table.find(key, hash).filter(delayed) else { return false };
            if core.remove_delay(slot) && !core.is_shutting_down() {
                let how = self.add_slot(core, slot, Wakeups::Now);
                core.note_add(slot, how, UNREAD);
                added = Some(how);
            }
            core.owe_drainers();
            core.owe_wheel_garbage();
            core.forget_if_vacant(slot)
        };
        added.into_iter().for_each(|added| self.tell(|observer| observer.added(added)));
        drop(vacated);
        true
    }
}

impl<K> Shared<K> {
    /// `add_with` and `done` of a key that is held, in one step.
    ///
    /// # Safety
    /// The caller holds the key in this slot, and forgets the slot.
    pub(crate) unsafe fn requeue(this: &Arc<Self>, slot: SlotRef<K>, options: AddOptions, failures: Failures) -> Added {
        let now = this.now_for(options);
        let (added, worked, vacated) = {
            let core = &mut *this.enter();
            core.counts.failures += u64::from(options.rate_limited);
            if failures == Failures::Forget {
                core.clear_failures(slot);
            }
            let added = this.add_slot_with(core, slot, now, options);
            let worked = core.note_done(slot, now);
            // SAFETY: guaranteed by the caller.
            (added, worked, unsafe { this.finish(core, slot) })
        };
        this.tell(|observer| observer.done(known(worked)));
        drop(vacated);
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    /// Starts the driver thread. If that fails, getters deliver what is due, and a later call tries again.
    #[cold]
    fn start_driver(this: &Arc<Self>) {
        let Err(error) = (this.start)(this) else {
            let core = &mut *this.core.lock();
            core.special.clear(Special::NO_DRIVER);
            _ = this.extras.fetch_and(!NO_DRIVER, Ordering::Relaxed); // Relaxed: a hint
            return;
        };
        {
            let core = &mut *this.enter();
            core.counts.driver_failures += 1;
            core.driver = State::Failed { retry_at: now() + RETRY, until: NEVER };
            core.owe_deadline_to_getters();
        }
        if contained(|| this.tell(|observer| observer.driver_failed(&error))).is_none() {
            this.note_caught(1);
        }
    }

    /// If the driver thread could not be started, tries again: every call that adds, gets or waits does this first.
    #[inline]
    pub(crate) fn ensure_driver(this: &Arc<Self>) {
        if this.is_driver_failed() {
            Self::retry_driver(this);
        }
    }

    #[cold]
    fn retry_driver(this: &Arc<Self>) {
        let retry = {
            let core = &mut *this.core.lock();
            core.delayed > 0 && !core.is_shutting_down() && core.driver.retry()
        };
        if retry {
            Self::start_driver(this);
        }
    }

    /// There is no driver thread, as it could not be started.
    #[inline]
    pub(crate) fn is_driver_failed(&self) -> bool {
        self.extras.load(Ordering::Relaxed) & NO_DRIVER != 0 // Relaxed: see `start_driver`
    }

    /// Has the cache fetch what the table's look-up of this hash will need, while the caller reads the clock and waits for
    /// the lock.
    #[inline]
    fn prefetch_bucket(&self, hash: table::Hash) {
        if cfg!(loom) {
            return; // it has no cache, and would try every value that the hints had
        }
        let (start, count) = &*self.buckets;
        // Relaxed: a prefetch of the wrong address does no harm.
        table::prefetch_bucket((start.load(Ordering::Relaxed), count.load(Ordering::Relaxed)), hash);
    }

    /// Says where the buckets are now.
    #[inline]
    fn publish_buckets(&self, core: &Core<K>) {
        let (start, count) = core.table.buckets();
        // Relaxed: see `prefetch_bucket`. Written under the lock only.
        if !cfg!(loom) && self.buckets.1.load(Ordering::Relaxed) != count {
            self.buckets.0.store(start, Ordering::Relaxed);
            self.buckets.1.store(count, Ordering::Relaxed);
        }
    }

    /// The time, if it is needed.
    #[inline]
    fn now_for(&self, options: AddOptions) -> u64 {
        if options.is_now() && !options.rate_limited { UNREAD } else { self.clock.now() }
    }

    /// `add_with` of a key that is in the table. A failure is counted also after a shut-down, as the limiter is asked then.
    fn add_slot_with(&self, core: &mut Core<K>, slot: SlotRef<K>, now: u64, mut options: AddOptions) -> Added {
        if self.counts_inline(options) {
            options = options.not_before(self.count_failure(core, slot));
        }
        if core.is_shutting_down() {
            return core.reject();
        }
        core.counts.retries += u64::from(options.delay.is_some());
        if !options.is_now() {
            return self.set_delay(core, slot, now, options);
        }
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        if unsafe { slot.get() }.state.is_delayed() {
            match options.conflict {
                DelayConflict::EarliestWins => {}
                DelayConflict::Replace => _ = core.remove_delay(slot),
                DelayConflict::KeepExisting => {
                    core.counts.coalesced += 1;
                    return Added::Coalesced;
                }
            }
        }
        let added = self.add_slot(core, slot, Wakeups::Now);
        core.note_add(slot, added, now);
        added
    }

    /// Sets or moves a delay (P9). **Linearization point of a delayed add.**
    pub(super) fn set_delay(&self, core: &mut Core<K>, slot: SlotRef<K>, now: u64, options: AddOptions) -> Added {
        core.time = core.time.max(now);
        let deadline = core.time.saturating_add(nanos(options.delay.unwrap_or_default()));
        let wheel = core.wheel.get_or_insert_with(|| new_wheel(core.time));
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let state = &unsafe { slot.get() }.state;
        let number = core.table.make_placement(slot);
        if !state.is_delayed() {
            state.set_delayed();
            core.delayed += 1;
        } else {
            let stands = match options.conflict {
                DelayConflict::EarliestWins => core.table.placement(number).deadline <= deadline,
                DelayConflict::Replace => false,
                DelayConflict::KeepExisting => true,
            };
            if stands {
                core.counts.coalesced += 1;
                return Added::Coalesced;
            }
            wheel.remove(&mut core.table, number);
        }
        wheel.insert(&mut core.table, number, deadline);
        core.counts.delays += 1;
        if core.driver.is_waiting_past(deadline, self.driver) {
            self.on_new_deadline(core, deadline);
        }
        Added::Delayed
    }

    /// The driver sleeps past this deadline, or there is no driver thread.
    #[cold]
    fn on_new_deadline(&self, core: &mut Core<K>, deadline: u64) {
        match core.driver.on_new_deadline(deadline, self.driver) {
            Notice::Nothing => {}
            Notice::Driver(driver) => core.owe_one(driver),
            Notice::Getters => core.owe_deadline_to_getters(),
            Notice::Start => {
                core.special.set(Special::NO_DRIVER);
                // Relaxed: the calling thread reads it after the lock. A getter that goes on the list later holds the lock later, and
                // sees it.
                self.extras.fetch_or(NO_DRIVER, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn delayed_len(&self) -> usize {
        self.core.lock().delayed
    }

    /// `turn`.
    pub(crate) fn turn(&self) -> usize {
        let now = self.clock.now();
        let (mut due, mut sorts) = (0, 0);
        loop {
            let turn = {
                let core = &mut *self.enter();
                if core.is_shutting_down() {
                    return due;
                }
                self.turn_batch(core, now)
            };
            let next = turn.next;
            due += turn.report(self);
            match next {
                Popped::BudgetSpent => {}
                Popped::NeedsCascade if sorts < SORTS => sorts += 1,
                _ => return due,
            }
        }
    }

    /// The driver thread's work: delivers what is due, and says how long to sleep.
    pub(crate) fn drive(&self, parker: &Parker) -> Sleep {
        // I8
        self.expire_all(|driver, sleep| {
            *driver = match sleep {
                Sleep::End => State::Absent,
                Sleep::Until(until) => State::Asleep { until, driver: parker.unparker() },
                Sleep::Not => State::Awake,
            };
        })
        .0
    }

    /// The same work, done by a getter that is about to park, as there is no driver thread: delivers what is due, and says until
    /// when the getter may park. I8 holds as for the driver: an earlier deadline wakes the getter.
    pub(super) fn expire_due(&self) -> ExpiredNow {
        let note = |driver: &mut State, sleep| {
            if let (State::Failed { until, .. }, Sleep::Until(time)) = (driver, sleep) {
                *until = time;
            }
        };
        loop {
            // The getter is on the list: an observer that panics must not make it leave without its wake-up.
            match contained(|| self.expire_all(note)) {
                Some((_, delivered)) if delivered > 0 => return ExpiredNow::Some,
                Some((Sleep::Until(time), _)) => return ExpiredNow::Nothing { until: self.clock.instant(time) },
                Some(_) => return ExpiredNow::Nothing { until: None },
                None => self.note_caught(1),
            }
        }
    }

    /// Delivers what is due, in steps, until nothing is. `note` is told under the lock, at the end of each step, how the caller
    /// goes on.
    /// Also says how many keys it has delivered.
    fn expire_all(&self, note: impl Fn(&mut State, Sleep)) -> (Sleep, usize) {
        let mut delivered = 0;
        loop {
            let now = self.clock.now();
            let (turn, sleep) = {
                let core = &mut *self.enter();
                if core.is_shutting_down() {
                    note(&mut core.driver, Sleep::End);
                    return (Sleep::End, delivered);
                }
                let turn = self.turn_batch(core, now);
                let sleep = match turn.next {
                    Popped::Until(until) => Sleep::Until(until),
                    Popped::Empty => Sleep::Until(NEVER),
                    Popped::Expired(_) | Popped::BudgetSpent | Popped::NeedsCascade => Sleep::Not,
                };
                note(&mut core.driver, sleep);
                (turn, sleep)
            };
            delivered += turn.report(self);
            if let Sleep::Until(_) = sleep {
                return (sleep, delivered);
            }
        }
    }

    /// Delivers some of what is due.
    fn turn_batch(&self, core: &mut Core<K>, now: u64) -> Turn {
        core.time = core.time.max(now);
        let now = now.min(NEVER - 1);
        let Some(mut wheel) = core.wheel.take() else {
            return Turn { due: [0; 3], next: Popped::Empty };
        };
        let (mut due, mut budget) = ([0; 3], BATCH);
        let next = loop {
            // First some that are due, then each in turn: their slots are on their way to the cache meanwhile.
            let (mut some, mut count) = ([0; POP_BATCH], 0);
            let next = loop {
                match wheel.pop(&mut core.table, now, &mut budget) {
                    Popped::Expired(number) => {
                        core.table.prefetch_slot(number);
                        some[count] = number;
                        count += 1;
                        if count == POP_BATCH {
                            break Popped::BudgetSpent;
                        }
                    }
                    next => break next,
                }
            };
            // None of them is delayed any more when it is added, so nobody asks for the wheel.
            for &number in &some[..count] {
                match self.expire(core, core.table.slot(number), now) {
                    Added::Queued => due[0] += 1,
                    Added::Deferred => due[1] += 1,
                    _ => due[2] += 1,
                }
            }
            match next {
                Popped::BudgetSpent if budget > 0 => {}
                Popped::NeedsCascade => {
                    wheel.cascade(&mut core.table, &mut budget);
                    break Popped::NeedsCascade;
                }
                next => break next,
            }
        };
        core.wheel = Some(wheel);
        core.owe_wheel_garbage();
        core.owe_unwoken();
        Turn { due, next }
    }

    /// An ordinary add of a key whose delay is over. **Linearization point of an expiry.**
    #[inline]
    fn expire(&self, core: &mut Core<K>, slot: SlotRef<K>, now: u64) -> Added {
        let _waited = core.note_delay_removed(slot);
        core.counts.expired += 1;
        let added = self.add_slot(core, slot, Wakeups::Later);
        core.note_add(slot, added, now);
        added
    }
}

impl<K: Hash + Eq + Clone> Shared<K> {
    /// `take_delayed`.
    pub(crate) fn take_delayed(this: &Arc<Self>) -> Vec<(K, Duration)> {
        let mut left = this.delayed_len();
        let now = this.clock.now();
        // Room beforehand, so that little is allocated under the lock.
        let mut taken = Taken { shared: this, delays: Vec::with_capacity(left) };
        while left > 0 {
            {
                let core = &mut *this.enter();
                for _ in 0..BATCH.min(left) {
                    let Some(delay) = core.take_delay() else {
                        left = 0;
                        break;
                    };
                    left -= 1;
                    taken.delays.push(delay);
                }
                core.owe_wheel_garbage();
            }
            if left > 0 {
                give_way();
            }
        }
        let mut delays = std::mem::take(&mut taken.delays);
        delays.sort_by_key(|delay| delay.deadline); // stable: equal deadlines stay in order
        delays.into_iter().map(|delay| (delay.key, time_left(delay.deadline, now))).collect()
    }
}

/// Delays that were taken out. If a clone panics, they are set again. Either way, wakes who waits for the last delay to go.
struct Taken<'s, K: Hash + Eq> {
    shared: &'s Arc<Shared<K>>,
    delays: Vec<Delay<K>>,
}

impl<K: Hash + Eq> Drop for Taken<'_, K> {
    fn drop(&mut self) {
        for delay in self.delays.drain(..) {
            contained(|| Shared::put_back_delay(self.shared, delay));
        }
        self.shared.enter().owe_drainers();
    }
}

impl<K: Clone> Core<K> {
    /// Takes the first delay out. If the key has to be cloned, and the clone panics, the delay stays.
    fn take_delay(&mut self) -> Option<Delay<K>> {
        let (number, deadline) = self.wheel.as_mut().and_then(|wheel| wheel.pop_any())?;
        let slot = self.table.slot(number);
        let waited = self.note_delay_removed(slot);
        let key = self.forget_if_vacant(slot).unwrap_or_else(|| {
            // SAFETY: a bit of its word is set, so taken (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            // SAFETY: as above.
            let key = unsafe { inside.key() };
            catch_unwind(AssertUnwindSafe(|| key.clone())).unwrap_or_else(|payload| {
                inside.state.set_delayed();
                let _waits = waited && inside.state.defer_add();
                self.delayed += 1;
                self.wheel.as_mut().expect("it is there").insert(&mut self.table, number, deadline);
                resume_unwind(payload)
            })
        });
        Some(Delay { deadline, waited, key })
    }
}

/// By itself: a wheel is 20 KB, and would make the stack frame of whoever it is inlined into as large, on every call.
#[cold]
#[inline(never)]
fn new_wheel(now: u64) -> Box<Wheel> {
    Box::new(Wheel::new(now))
}

impl<K> Core<K> {
    /// There is no driver thread, and a new earliest deadline: all getters, and all that wait for the queue to be idle, are to be
    /// woken.
    fn owe_deadline_to_getters(&mut self) {
        self.owe_all_getters();
        let drainers = self.drainers.take_all();
        self.owe(drainers);
    }

    /// Has the end of the section free what the wheel does not need any more.
    #[inline]
    pub(super) fn owe_wheel_garbage(&mut self) {
        if self.wheel.as_ref().is_some_and(|wheel| wheel.has_retired()) {
            self.owe_garbage();
        }
    }

    /// Takes a delayed key out of the wheel. Whether an add waited for the delay.
    pub(super) fn remove_delay(&mut self, slot: SlotRef<K>) -> bool {
        let number = self.table.number(slot);
        self.wheel.as_mut().expect("a key is delayed").remove(&mut self.table, number);
        self.note_delay_removed(slot)
    }

    /// Notes that a key has left the wheel (I9). Whether an add waited for that.
    #[inline]
    fn note_delay_removed(&mut self, slot: SlotRef<K>) -> bool {
        self.delayed -= 1;
        // SAFETY: its word still says DELAYED, so taken (S2), and we hold the lock.
        unsafe { slot.get() }.state.clear_delayed()
    }

    /// Takes a key out of the table if nothing keeps it there (I4), for the caller to drop after the lock.
    pub(super) fn forget_if_vacant(&mut self, slot: SlotRef<K>) -> Option<K> {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let vacant = unsafe { slot.get() }.state.is_vacant();
        // SAFETY: no bit is set, so it is not queued and nobody holds it; we have just cleared the last one.
        vacant.then(|| unsafe { self.remove(slot) })
    }

    /// Takes a key out of the table.
    ///
    /// # Safety
    /// As for [`Table::remove`](crate::key::table::Table::remove).
    #[inline]
    pub(super) unsafe fn remove(&mut self, slot: SlotRef<K>) -> K {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { self.table.remove(slot) };
        if self.table.has_retired() | self.line.has_retired() {
            self.owe_garbage();
        }
        key
    }
}

impl<K> Drop for Shared<K> {
    /// A driver that sleeps is woken, to find that the queue is gone.
    fn drop(&mut self) {
        if let Some(driver) = self.core.get_mut().driver.wake() {
            driver.unpark();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Clock, Driver, WorkQueue};

    /// With tens of thousands of keys to sort, a `turn` sorts some of them, and says that it is over; the next ones go on.
    #[test]
    fn a_turn_sorts_so_much_and_no_more() {
        const KEYS: u64 = 40_000;
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        queue.add_after(0, Duration::from_secs(3600));
        for key in 1..KEYS {
            queue.add_after(key, Duration::from_millis(3_600_000 + key));
        }
        time.advance(Duration::from_secs(3600));
        let is_sorting = || {
            let core = &mut *queue.shared.core.lock();
            let now = core.time;
            let wheel = core.wheel.as_mut().unwrap();
            wheel.pop(&mut core.table, now, &mut 1) == Popped::NeedsCascade
        };
        assert_eq!(queue.turn(), 1);
        let mut turns = 0;
        while is_sorting() {
            assert_eq!(queue.turn(), 0, "nothing else is due");
            turns += 1;
        }
        let all = KEYS as usize / (SORTS * BATCH);
        assert!((all / 2..=all).contains(&turns), "{turns} more turns");
    }

    /// One critical section looks at fifty keys, and delivers them all.
    #[test]
    fn a_batch_is_more_than_a_few_keys() {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        (0..50).for_each(|key| _ = queue.add_after(key, Duration::from_secs(1)));
        time.advance(Duration::from_secs(1));
        let now = queue.shared.clock.now();
        let turn = queue.shared.turn_batch(&mut queue.shared.core.lock(), now);
        assert_eq!(turn.report(&queue.shared), 50);
    }
}
