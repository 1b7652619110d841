//! Delays: how they are set, moved, cancelled and taken out, and how they expire. All of it under the one lock.
//!
//! A delay is a bit of its key's word and an entry in the wheel, and both change in one critical section (I9). So that critical
//! section also decides which of two deadlines counts, whether an add takes the place of a delay, and whether a delay was cancelled or
//! had expired before. Threads pass each other nothing but wake-ups.
//!
//! The alternative, an inbox to which producers push without the lock and which the driver empties, was measured and rejected. Calls
//! return in a third of the time, but all delays together take as long or up to 40 % longer; a call can no longer return what it did; a
//! `cancel` would have to wait for the add before it; and a producer that is faster than the driver fills the memory. Batches give the
//! guarantee that the inbox is for, that the driver and the producers never keep each other waiting (P11): the driver makes [`BATCH`]
//! small steps, some microseconds, each time it has the lock, and a producer makes one.

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

/// The number of steps that the driver makes before it releases the lock.
const BATCH: usize = model_const(128, 2);

/// The number of keys that are taken out of the wheel before they are added.
const POP_BATCH: usize = model_const(16, 2);

/// The number of critical sections that a `turn` spends on keys that have not expired, to sort them in advance.
const SORTS: usize = model_const(32, 1);

/// The deadline of a delay that never expires.
pub(crate) const NEVER: u64 = u64::MAX;

/// What a thread has done in place of the driver.
pub(super) enum ExpiredNow {
    /// It has added keys.
    Some,
    /// No delay had expired, and none expires before this time.
    Nothing { until: Option<Instant> },
}

/// What one critical section of a driver has done.
struct Turn {
    /// The number of delays that expired, by what the add did: queued, deferred, coalesced.
    expired: [usize; 3],
    next: Popped,
}

impl Turn {
    /// Calls the observer. Returns the number of delays that expired.
    fn report<K>(self, shared: &Shared<K>) -> usize {
        shared.tell(|observer| {
            for (added, count) in [Added::Queued, Added::Deferred, Added::Coalesced].into_iter().zip(self.expired) {
                (0..count).for_each(|_| observer.added(added));
            }
        });
        self.expired.iter().sum()
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
                // Counted after the look-up: if `K::eq` panics there, nothing has changed.
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
    /// `add_with` and `done`, for the holder of the key, in one critical section.
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
        // First: a panic of the observer must not leave a delay without a driver.
        Self::ensure_driver(this);
        this.tell(|observer| observer.done(known(worked)));
        drop(vacated);
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    /// Starts the driver thread. If that fails, getters do its work, and a later call tries again.
    #[cold]
    fn start_driver(this: &Arc<Self>) {
        let Err(error) = (this.start)(this) else {
            let core = &mut *this.core.lock();
            this.clear_no_driver(core);
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

    /// Tries again to start the driver thread, if that has failed: every call that adds, gets or waits does this.
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
            if core.delayed == 0 || core.is_shutting_down() {
                // The delay that asked for a driver is gone: the next one asks again.
                core.driver.give_up();
                this.clear_no_driver(core);
                false
            } else {
                core.driver.retry()
            }
        };
        if retry {
            Self::start_driver(this);
        }
    }

    fn clear_no_driver(&self, core: &mut Core<K>) {
        core.special.clear(Special::NO_DRIVER);
        _ = self.extras.fetch_and(!NO_DRIVER, Ordering::Relaxed); // Relaxed: a hint, written under the lock
    }

    /// The driver thread could not be started.
    #[inline]
    pub(crate) fn is_driver_failed(&self) -> bool {
        self.extras.load(Ordering::Relaxed) & NO_DRIVER != 0 // Relaxed: see `start_driver`
    }

    /// Prefetches the bucket that the look-up of this hash will read, while the caller reads the clock and waits for the lock.
    #[inline]
    fn prefetch_bucket(&self, hash: table::Hash) {
        if cfg!(loom) {
            return; // loom has no cache, and would explore every value that the two words had
        }
        let (start, count) = &*self.buckets;
        // Relaxed: a prefetch of the wrong address does no harm.
        table::prefetch_bucket((start.load(Ordering::Relaxed), count.load(Ordering::Relaxed)), hash);
    }

    /// Publishes where the buckets are, for [`prefetch_bucket`](Self::prefetch_bucket).
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

    /// `add_with` of a key that is in the table. After a shut-down a failure still counts, as it does with an external limiter.
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
        if core.is_shutting_down() {
            return; // the delay can be taken, and does not expire
        }
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
        let (mut expired, mut sorts) = (0, 0);
        loop {
            let turn = {
                let core = &mut *self.enter();
                if core.is_shutting_down() {
                    return expired;
                }
                self.turn_batch(core, now)
            };
            let next = turn.next;
            expired += turn.report(self);
            match next {
                Popped::BudgetSpent => {}
                Popped::NeedsCascade if sorts < SORTS => sorts += 1,
                _ => return expired,
            }
        }
    }

    /// The driver thread's work: adds the keys whose delays have expired, and returns how long to park (I8).
    pub(crate) fn drive(&self, parker: &Parker) -> Sleep {
        self.expire_all(|driver, sleep| {
            *driver = match sleep {
                Sleep::End => State::Absent,
                Sleep::Until(until) => State::Asleep { until, driver: parker.unparker() },
                Sleep::Not => State::Awake,
            };
        })
        .0
    }

    /// The same work, for a getter that is about to park and has no driver thread. Returns until when the getter may park. I8 holds as
    /// for the driver: an earlier deadline wakes the getter.
    pub(super) fn expire_due(&self) -> ExpiredNow {
        let note = |driver: &mut State, sleep| {
            if let (State::Failed { until, .. }, Sleep::Until(time)) = (driver, sleep) {
                *until = time;
            }
        };
        loop {
            // The getter is on the list: an observer that panics must not make it leave without its wake-up.
            match contained(|| self.expire_all(note)) {
                Some((_, expired)) if expired > 0 => return ExpiredNow::Some,
                Some((Sleep::Until(time), _)) => return ExpiredNow::Nothing { until: self.clock.instant(time) },
                Some(_) => return ExpiredNow::Nothing { until: None },
                None => self.note_caught(1),
            }
        }
    }

    /// Adds the keys whose delays have expired, a batch at a time, until there are none. Calls `note` at the end of each batch, under the
    /// lock, with what the caller does next. Returns that, and the number of delays that expired.
    fn expire_all(&self, note: impl Fn(&mut State, Sleep)) -> (Sleep, usize) {
        let mut expired = 0;
        loop {
            let now = self.clock.now();
            let (turn, sleep) = {
                let core = &mut *self.enter();
                if core.is_shutting_down() {
                    note(&mut core.driver, Sleep::End);
                    return (Sleep::End, expired);
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
            expired += turn.report(self);
            if let Sleep::Until(_) = sleep {
                return (sleep, expired);
            }
        }
    }

    /// Adds some of the keys whose delays have expired: one critical section of a driver.
    fn turn_batch(&self, core: &mut Core<K>, now: u64) -> Turn {
        core.time = core.time.max(now);
        let now = now.min(NEVER - 1);
        let Some(mut wheel) = core.wheel.take() else {
            return Turn { expired: [0; 3], next: Popped::Empty };
        };
        let (mut expired, mut budget) = ([0; 3], BATCH);
        let next = loop {
            // Pops a few keys and prefetches their slots, and then adds each of them.
            let (mut popped, mut count) = ([0; POP_BATCH], 0);
            let next = loop {
                match wheel.pop(&mut core.table, now, &mut budget) {
                    Popped::Expired(number) => {
                        core.table.prefetch_slot(number);
                        popped[count] = number;
                        count += 1;
                        if count == POP_BATCH {
                            break Popped::BudgetSpent;
                        }
                    }
                    next => break next,
                }
            };
            // The wheel is not in `core` here. The adds do not need it, as their keys are not delayed any more.
            for &number in &popped[..count] {
                match self.expire(core, core.table.slot(number), now) {
                    Added::Queued => expired[0] += 1,
                    Added::Deferred => expired[1] += 1,
                    _ => expired[2] += 1,
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
        Turn { expired, next }
    }

    /// Adds a key whose delay has expired. **Linearization point of an expiry.**
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
        // Allocates here, so that the critical sections allocate little.
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

/// Delays that were taken out. Its drop sets those again that are still in it, if a clone has panicked, and in either case wakes the
/// callers that wait for the queue to be idle.
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
    /// Takes one delay out. If the key has to be cloned, and the clone panics, the delay stays.
    fn take_delay(&mut self) -> Option<Delay<K>> {
        let (number, deadline) = self.wheel.as_mut().and_then(|wheel| wheel.pop_any())?;
        let slot = self.table.slot(number);
        let waited = self.note_delay_removed(slot);
        let key = self.forget_if_vacant(slot).unwrap_or_else(|| {
            // SAFETY: a bit of its word is set, so taken (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            // SAFETY: the slot is taken, so its key is initialised (S1), and we hold the lock.
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

/// Not inlined: a wheel is 20 KB, and would make the stack frame of every caller as large, on every call.
#[cold]
#[inline(never)]
fn new_wheel(now: u64) -> Box<Wheel> {
    Box::new(Wheel::new(now))
}

impl<K> Core<K> {
    /// There is no driver thread, and a new earliest deadline: owes a wake-up to all getters, and to all that wait for the queue to be
    /// idle, as one of them has to do the driver's work.
    fn owe_deadline_to_getters(&mut self) {
        self.owe_all_getters();
        let drainers = self.drainers.take_all();
        self.owe(drainers);
    }

    /// Has the end of the critical section free the memory that the wheel does not need any more.
    #[inline]
    pub(super) fn owe_wheel_garbage(&mut self) {
        if self.wheel.as_ref().is_some_and(|wheel| wheel.has_retired()) {
            self.owe_garbage();
        }
    }

    /// Takes a delayed key out of the wheel. Returns whether an add waited for the delay.
    pub(super) fn remove_delay(&mut self, slot: SlotRef<K>) -> bool {
        let number = self.table.number(slot);
        self.wheel.as_mut().expect("a key is delayed").remove(&mut self.table, number);
        self.note_delay_removed(slot)
    }

    /// A key has left the wheel (I9). Returns whether an add waited for the delay.
    #[inline]
    fn note_delay_removed(&mut self, slot: SlotRef<K>) -> bool {
        self.delayed -= 1;
        // SAFETY: its word still says DELAYED, so taken (S2), and we hold the lock.
        unsafe { slot.get() }.state.clear_delayed()
    }

    /// Takes a key out of the table if no bit keeps it there (I4). The caller drops it after the lock.
    pub(super) fn forget_if_vacant(&mut self, slot: SlotRef<K>) -> Option<K> {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let vacant = unsafe { slot.get() }.state.is_vacant();
        // SAFETY: no bit is set, so the key is not queued and has no holder (I1, I2); we have just cleared the last bit (S2).
        vacant.then(|| unsafe { self.remove(slot) })
    }

    /// Takes a key out of the table.
    ///
    /// # Safety
    /// That of [`Table::remove`](crate::key::table::Table::remove).
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
    /// Wakes the driver if it is parked: it finds that the queue is gone, and ends.
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

    /// With tens of thousands of keys to sort, a `turn` sorts some of them and returns; the next turns sort more.
    #[test]
    fn a_turn_sorts_a_bounded_number_of_keys() {
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
            assert_eq!(queue.turn(), 0, "no other delay has expired");
            turns += 1;
        }
        let all = KEYS as usize / (SORTS * BATCH);
        assert!((all / 2..=all).contains(&turns), "{turns} more turns");
    }

    /// The blocks of the line are freed even if no key leaves the table.
    #[test]
    fn blocks_are_freed_while_all_keys_stay_delayed() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        queue.add_all(0..100_000_u32);
        while let Ok(item) = queue.try_get() {
            item.requeue_after(Duration::from_secs(3600));
        }
        assert_eq!(queue.delayed_len(), 100_000);
        assert!(!queue.shared.core.lock().line.has_retired());
    }

    /// A delay asks for a driver thread, and is gone before the thread is started.
    #[test]
    fn a_driver_that_no_delay_needs_is_not_asked_for() {
        struct Cancels(std::sync::Mutex<Option<WorkQueue<u8>>>);
        impl crate::observe::Observer for std::sync::Arc<Cancels> {
            fn added(&self, added: Added) {
                let queue = self.0.lock().unwrap().clone();
                if let (Added::Delayed, Some(queue)) = (added, queue) {
                    queue.cancel(&1);
                }
            }
        }
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
        let cancels = std::sync::Arc::new(Cancels(std::sync::Mutex::new(None)));
        let queue = WorkQueue::builder().observer(std::sync::Arc::clone(&cancels)).build_with(start);
        *cancels.0.lock().unwrap() = Some(queue.clone());
        queue.add_after(1, Duration::from_secs(60));
        assert_eq!((queue.delayed_len(), queue.stats().driver_failures), (0, 1));
        queue.add(2);
        assert!(!queue.shared.is_driver_failed());
        assert!(!queue.shared.core.lock().special.has(Special::NO_DRIVER));
        *cancels.0.lock().unwrap() = None; // or the observer would keep the queue that has it
    }

    /// A delay that is set again after the shut-down asks for no driver thread.
    #[test]
    fn no_driver_is_asked_for_after_the_shut_down() {
        #[derive(PartialEq, Eq, Hash)]
        struct Key(u8);
        static PANICS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        impl Clone for Key {
            fn clone(&self) -> Self {
                assert!(!PANICS.load(std::sync::atomic::Ordering::Relaxed), "a clone that panics");
                Self(self.0)
            }
        }
        let queue = WorkQueue::new();
        queue.add(Key(2));
        let _held = queue.get();
        queue.add_after(Key(1), Duration::from_secs(3600));
        queue.add_after(Key(2), Duration::from_secs(7200));
        queue.shut_down();
        while !matches!(queue.shared.core.lock().driver, State::Absent) {
            std::thread::yield_now();
        }
        PANICS.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(contained(|| queue.take_delayed()).is_none());
        assert_eq!(queue.delayed_len(), 2);
        assert!(!queue.shared.is_driver_failed());
    }

    /// The first delay starts the driver thread, and from then on calls take their usual way.
    #[test]
    fn a_started_driver_leaves_the_queue_as_it_was() {
        let queue = WorkQueue::new();
        assert_eq!(queue.add_after("key", Duration::from_secs(3600)), Added::Delayed);
        assert!(!queue.shared.core.lock().special.is_any());
        assert!(!queue.shared.has_extras());
    }

    /// Fifty keys expire in one critical section.
    #[test]
    fn one_batch_expires_fifty_keys() {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        (0..50).for_each(|key| _ = queue.add_after(key, Duration::from_secs(1)));
        time.advance(Duration::from_secs(1));
        let now = queue.shared.clock.now();
        let turn = queue.shared.turn_batch(&mut queue.shared.core.lock(), now);
        assert_eq!(turn.report(&queue.shared), 50);
    }
}
