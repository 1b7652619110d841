//! The expiry of delays, by the driver thread, by `turn`, or by a getter; and the start of the thread.

use super::section::Special;
use super::{Core, NO_DRIVER, Shared};
use crate::Added;
use crate::panics::contained;
use crate::shard::{NEVER, Turn};
use crate::sync::{Arc, Ordering, Parker, model_const, now};
use crate::time::driver::{NextStep, Notice, RETRY, State};
use crate::time::wheel::Popped;
use std::time::Instant;

/// The number of critical sections that a `turn` spends on keys that have not expired, to sort them in advance.
const SORTS: usize = model_const(32, 1);

/// What a thread has done in place of the driver.
pub(super) enum ExpiredNow {
    /// It has added keys.
    Some,
    /// No delay had expired, and none expires before this time.
    Nothing { until: Option<Instant> },
}

impl<K> Shared<K> {
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
            core.shard.counts.driver_failures += 1;
            core.driver = State::Missing { retry_at: now() + RETRY, until: NEVER };
            core.owe_deadline_to_getters();
        }
        if contained(|| this.tell(|observer| observer.driver_failed(&error))).is_none() {
            this.note_caught(1);
        }
    }

    /// Starts the driver thread if a delay has asked for it, even after a failed try: every call that adds, gets or waits does this.
    #[inline]
    pub(crate) fn ensure_driver(this: &Arc<Self>) {
        if this.is_driver_missing() {
            Self::retry_driver(this);
        }
    }

    #[cold]
    fn retry_driver(this: &Arc<Self>) {
        let retry = {
            let core = &mut *this.core.lock();
            if core.shard.delayed() == 0 || core.is_shutting_down() {
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

    /// A delay has asked for the driver thread, and it is still to be started, or could not be. A hint, read without the lock.
    #[inline]
    pub(crate) fn is_driver_missing(&self) -> bool {
        self.extras.load(Ordering::Relaxed) & NO_DRIVER != 0 // Relaxed: see `notify_driver`
    }

    /// There is a new deadline: owes a wake-up to the driver, or to the getters that do its work, if they are parked for longer.
    #[inline]
    pub(super) fn on_new_deadline(&self, core: &mut Core<K>, deadline: u64) {
        if core.driver.is_waiting_past(deadline, self.driver) {
            self.notify_driver(core, deadline);
        }
    }

    #[cold]
    fn notify_driver(&self, core: &mut Core<K>, deadline: u64) {
        if core.is_shutting_down() {
            return; // the delay can be taken, and does not expire
        }
        match core.driver.on_new_deadline(deadline, self.driver) {
            Notice::Nothing => {}
            Notice::Driver(driver) => core.shard.owe(driver),
            Notice::Getters => core.owe_deadline_to_getters(),
            Notice::Start => {
                core.special.set(Special::NO_DRIVER);
                // Relaxed: the calling thread reads it after the lock. A getter that goes on the list later holds the lock later, and
                // sees it.
                self.extras.fetch_or(NO_DRIVER, Ordering::Relaxed);
            }
        }
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
            expired += self.report(&turn);
            match next {
                Popped::BudgetSpent => {}
                Popped::NeedsCascade if sorts < SORTS => sorts += 1,
                _ => return expired,
            }
        }
    }

    /// The driver thread's work: adds the keys whose delays have expired, and returns how long to park (I8).
    pub(crate) fn drive(&self, parker: &Parker) -> NextStep {
        self.expire_all(|driver, next| {
            *driver = match next {
                NextStep::End => State::Absent,
                NextStep::ParkUntil(until) => State::Parked { until, driver: parker.unparker() },
                NextStep::LookAgain => State::Running,
            };
        })
        .0
    }

    /// The same work, for a getter or an idle wait that is about to park while the driver thread is not started. Returns until when the
    /// thread may park. I8 holds as for the driver: an earlier deadline wakes it (`owe_deadline_to_getters`).
    pub(super) fn expire_due(&self) -> ExpiredNow {
        let note = |driver: &mut State, next| {
            if let (State::Missing { until, .. }, NextStep::ParkUntil(time)) = (driver, next) {
                *until = time;
            }
        };
        loop {
            // The getter is on the list: an observer that panics must not make it leave without its wake-up.
            match contained(|| self.expire_all(note)) {
                Some((_, expired)) if expired > 0 => return ExpiredNow::Some,
                Some((NextStep::ParkUntil(time), _)) => return ExpiredNow::Nothing { until: self.clock.instant(time) },
                Some(_) => return ExpiredNow::Nothing { until: None },
                None => self.note_caught(1),
            }
        }
    }

    /// Adds the keys whose delays have expired, a batch at a time, until there are none. Calls `note` at the end of each batch, under the
    /// lock, with what the caller does next. Returns that, and the number of delays that expired.
    fn expire_all(&self, note: impl Fn(&mut State, NextStep)) -> (NextStep, usize) {
        let mut expired = 0;
        loop {
            let now = self.clock.now();
            let (turn, next) = {
                let core = &mut *self.enter();
                if core.is_shutting_down() {
                    note(&mut core.driver, NextStep::End);
                    return (NextStep::End, expired);
                }
                let turn = self.turn_batch(core, now);
                let next = match turn.next {
                    Popped::Until(until) => NextStep::ParkUntil(until),
                    Popped::Empty => NextStep::ParkUntil(NEVER),
                    Popped::Expired(_) | Popped::BudgetSpent | Popped::NeedsCascade => NextStep::LookAgain,
                };
                note(&mut core.driver, next);
                (turn, next)
            };
            expired += self.report(&turn);
            if let NextStep::ParkUntil(_) = next {
                return (next, expired);
            }
        }
    }

    /// Adds some of the keys whose delays have expired: one critical section of a driver.
    fn turn_batch(&self, core: &mut Core<K>, now: u64) -> Turn {
        let turn = core.shard.expire(now);
        self.publish_len(core);
        core.getters.note_unwoken(turn.expired[0]);
        core.owe_unwoken();
        turn
    }

    /// Calls the observer for the delays that expired. Returns their number.
    fn report(&self, turn: &Turn) -> usize {
        self.tell(|observer| {
            for (added, count) in [Added::Queued, Added::Deferred, Added::Coalesced].into_iter().zip(turn.expired) {
                (0..count).for_each(|_| observer.added(added));
            }
        });
        turn.expired.iter().sum()
    }
}

impl<K> Core<K> {
    /// There is no driver thread, and a new earliest deadline: owes a wake-up to all getters, and to all that wait for the queue to be
    /// idle, as one of them has to do the driver's work.
    fn owe_deadline_to_getters(&mut self) {
        self.owe_all_getters();
        self.owe_all_drainers();
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
    use crate::shard::BATCH;
    use crate::{Clock, Driver, WorkQueue};
    use std::time::Duration;

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
        let is_sorting = || queue.shared.core.lock().shard.needs_cascade();
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
        assert!(!queue.shared.core.lock().shard.line_has_retired());
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
        assert!(!queue.shared.is_driver_missing());
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
        assert!(!queue.shared.is_driver_missing());
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
        assert_eq!(queue.shared.report(&turn), 50);
    }
}
