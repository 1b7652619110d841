//! The work of the driver: it expires delays, reports and wakes tasks. The driver thread does it, or `turn`, or a thread that waits while
//! no driver thread can be started. Getters [expire delays](super::expire) beside it.
//!
//! ```text
//!                                       driver thread             turn    a getter
//!   reads the clock                     yes                       yes     measures, ordered, woken, about to park
//!   keys in a critical section          128                       128     16, in one that it has anyway
//!   says how long the driver may park   each, if nothing more is due in the shard
//! ```
//!
//! After [`BATCHES`] critical sections on one shard the driver goes on to the next, and after a pass over all shards it reports and wakes
//! tasks, so that delays that expire all the time hold up neither.

mod start;
pub(crate) mod states;
mod thread;

pub use states::Driver;
pub(crate) use thread::start_driver_thread;

use self::states::{DriverState, NextStep, RETRY};
use super::Shared;
use super::getters::BUSY;
use super::hub::{Flags, HubGuard};
use super::locked::{Busy, Held, Locked};
use super::state::if_free;
use crate::machine::{BATCH, Expired, NEVER};
use crate::sync::{Arc, Parker, model_const, now, park_briefly};
use crate::time::nanos;
use crate::wait::{Ticket, WakeList};
use std::time::Instant;

/// The number of critical sections that a `turn` spends on sorting keys in advance, before their delays have expired.
const SORTS: usize = model_const(32, 1);

/// The number of critical sections that the driver spends on one shard before it goes to the next.
const BATCHES: usize = model_const(32, 2);

/// The number of tasks that the driver takes off the list in one critical section.
const TASKS_AT_ONCE: usize = model_const(64, 1);

impl<K> Shared<K> {
    /// `turn`. It visits busy shards last (P21).
    pub(crate) fn turn(this: &Arc<Self>) -> usize {
        let now = this.settings.clock.now();
        let is_timed = this.flags().has(Flags::TIMED);
        if is_timed {
            this.tell_of_late_runs(now);
        }
        let (mut expired, mut sorts, mut busy) = (0, 0, Busy::default());
        for locked in this.all() {
            match this.lock_unless_busy(locked) {
                Some(held) => expired += this.turn_of(held, now, &mut sorts),
                None => busy.insert(locked),
            }
        }
        for locked in this.all().filter(|locked| busy.contains(locked)) {
            expired += this.turn_of(locked.lock(), now, &mut sorts);
        }
        this.wake_for_tokens();
        if is_timed {
            this.ring(now);
        }
        if this.report_interval != NEVER {
            Self::report_if_due(this, now);
        }
        expired
    }

    /// Adds the keys of a shard whose delays have expired. Returns how many.
    fn turn_of<'s>(&'s self, mut held: Held<'s, K>, now: u64, sorts: &mut usize) -> usize {
        let (locked, mut expired) = (held.locked, 0);
        loop {
            let turn = self.expire_batch(held, now);
            expired += self.tell_expired(&turn);
            *sorts += usize::from(turn.is_ahead);
            if !turn.has_more || turn.is_ahead && *sorts > SORTS {
                return expired;
            }
            held = locked.lock();
        }
    }

    /// Adds some of the keys whose delays have expired, in one critical section.
    fn expire_batch(&self, held: Held<'_, K>, now: u64) -> Expired {
        if_free!(self, free => {
            drop(held); // of the shard that is not used
            self.free_expire(free, now, BATCH)
        });
        let mode = self.mode();
        let mut section = self.section_in(held, mode);
        let turn = section.expire(now, BATCH);
        section.end();
        turn
    }

    /// One step of the driver thread, which then parks as long as this says (I8), or ends.
    pub(super) fn drive(this: &Arc<Self>, parker: &Parker) -> NextStep {
        let Some((mut hub, until)) = Self::step(this) else { return NextStep::Again };
        let (wake_at, token_at, alarm_at) = (hub.getters.wake_at, hub.getters.token_at, hub.alarms.first());
        let late_at = hub.limited_runs.next();
        if late_at.is_some_and(|late_at| late_at <= this.settings.clock.now()) {
            return NextStep::Again; // it came meanwhile, and a mock clock does not tell when it has passed
        }
        // After the shut-down, only groups that are held back have a time.
        let until = if this.is_shutting_down() && !this.settings.order.has_groups() { NEVER } else { until };
        let is_over = this.is_shutting_down() && until == NEVER && this.report_at() == NEVER;
        if is_over && wake_at.is_none() && token_at.is_none() && late_at.is_none() {
            hub.driver = DriverState::Absent;
            return NextStep::End;
        }
        let until =
            until.min(this.report_at()).min(token_at.unwrap_or(NEVER)).min(alarm_at).min(late_at.unwrap_or(NEVER));
        hub.driver = DriverState::Parked { until, driver: parker.unparker() };
        NextStep::Park(this.settings.clock.instant(until).into_iter().chain(wake_at).min())
    }

    /// Wakes tasks (W5, alarms) and getters that wait for a token, tells of late runs, adds the keys whose delays have expired, and reports.
    /// Returns what [`expire_all`](Self::expire_all) does.
    fn step(this: &Arc<Self>) -> Option<(HubGuard<'_>, u64)> {
        this.wake_passed_by();
        this.wake_for_tokens();
        let now = this.settings.clock.now(); // first, so that what has expired until now is added before the report
        if this.flags().has(Flags::TIMED) {
            this.ring(now);
            this.tell_of_late_runs(now);
        }
        let parks = this.expire_all();
        if this.is_report_due(now) {
            drop(parks);
            Self::report_if_due(this, now);
            return None;
        }
        parks
    }

    /// Parks a thread that is on a list. While the driver thread cannot be started, the thread first makes a step of the driver, and parks
    /// for [`RETRY`] at most, so that it comes again (W7).
    ///
    /// Otherwise it relies on a driver, and if its start fails later, this thread is woken, because it has been on its list since before.
    pub(super) fn park(this: &Arc<Self>, parker: &Parker, deadline: Option<Instant>) {
        Self::ensure_driver(this);
        if !this.is_driver_missing() {
            return parker.park(deadline);
        }
        // A panic of the observer must not make the thread leave its list without passing its wake-up on.
        this.contain(|| drop(Self::step(this)));
        let soon = now() + RETRY;
        park_briefly(parker, deadline.map_or(soon, |deadline| deadline.min(soon)));
    }

    /// Wakes the tasks that have passed by a busy shard, if their time has come.
    fn wake_passed_by(&self) {
        let tasks = self.hub().getters.take_passed_by();
        let tasks: Vec<_> = tasks.into_iter().collect(); // after the lock
        for tasks in tasks.chunks(TASKS_AT_ONCE) {
            let mut hub = self.hub();
            for task in tasks {
                let task = hub.getters.take_task(*task);
                hub.wakes.extend(task);
            }
        }
    }

    /// Wakes the tasks whose [alarms](super::linger) are at this time or before.
    #[cold]
    #[inline(never)]
    fn ring(&self, now: u64) {
        let mut hub = self.hub();
        let mut due = WakeList::default();
        hub.alarms.take_due(now, &mut due);
        hub.wakes.append(due);
        let are_some = hub.alarms.first() < NEVER || hub.limited_runs.next().is_some();
        hub.set(Flags::TIMED, are_some);
    }

    /// Wakes a getter for each token that has come.
    #[cold]
    #[inline(never)]
    fn wake_for_tokens(&self) {
        let Some(pace) = &self.pace else { return };
        let (mut hub, is_manual) = (self.hub(), self.settings.driver == Driver::Manual);
        let now = self.settings.clock.now();
        if is_manual || hub.getters.token_at.take_if(|at| *at <= now).is_some() {
            let ready = if hub.is_paused() { 0 } else { self.ready() };
            let again = pace.wake(&mut hub, ready, now);
            hub.getters.token_at = again.filter(|_| !is_manual);
        }
    }

    /// Has the driver wake a task (W5) that has passed by a busy shard and is about to return from its poll, and starts a driver if there
    /// is none. Returns `false` if none can be started: then the task [waits](Self::wait_for_busy) for the shard.
    #[cold]
    pub(crate) fn wake_later(this: &Arc<Self>, task: Ticket) -> bool {
        if this.settings.driver == Driver::Manual {
            return false;
        }
        {
            let mut hub = this.hub();
            if hub.getters.wake_at.is_none() {
                if matches!(hub.driver, DriverState::Missing { .. }) {
                    return false;
                }
                this.wake_driver_for(0, &mut hub);
            }
            hub.getters.wake_later(task);
        }
        Self::ensure_driver(this);
        true
    }

    /// Visits each shard once, and adds keys whose delays have expired. If none is left, returns the earliest deadline, and the hub,
    /// locked, for the caller to write there what it does next. `None` means that the caller comes again, after it has done the driver's
    /// other work.
    ///
    /// A visit publishes until when the driver may park as far as this shard is concerned. A call that sets an earlier deadline there tells
    /// the hub in the same critical section. Either the visit comes later and sees the deadline, or the call does and changes
    /// `deadlines_told`, so that the caller comes again (I8).
    fn expire_all(&self) -> Option<(HubGuard<'_>, u64)> {
        let told = self.hub().deadlines_told;
        let (mut until, mut has_more) = (NEVER, false);
        for locked in self.all() {
            match self.expire_shard(locked) {
                Some(next) => until = until.min(next),
                None => has_more = true,
            }
        }
        let hub = self.hub();
        let is_all = !has_more && hub.deadlines_told == told;
        let is_over = || self.is_shutting_down() && !self.settings.order.has_groups();
        (is_all || is_over()).then_some((hub, until))
    }

    /// Adds keys of a shard whose delays have expired, in [`BATCHES`] batches at most. Returns the next deadline, or `None` if more keys
    /// are due.
    fn expire_shard(&self, locked: &Locked<K>) -> Option<u64> {
        for _ in 0..BATCHES {
            let now = self.settings.clock.now();
            let until = locked.driver_until();
            if until > now.min(NEVER - 1) {
                return Some(until);
            }
            // A clock that is given does not say when a busy shard is worth another look.
            let wait = self.settings.clock.is_given();
            let held = if wait { Some(locked.lock()) } else { self.lock_unless_busy(locked) };
            let Some(held) = held else {
                return Some(now.saturating_add(nanos(BUSY)));
            };
            self.tell_expired(&self.expire_batch(held, now));
        }
        None
    }
}

impl<K> Drop for Shared<K> {
    /// Wakes the driver if it is parked, so that it finds the queue gone and ends.
    fn drop(&mut self) {
        if let Some(driver) = self.hub.get_mut().driver.wake() {
            driver.unpark();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Added;
    use crate::machine::BATCH;
    use crate::panics::contained;
    use crate::shared::Wait;
    use crate::shared::expire::{BY_GETTER, READS};
    use crate::shared::hub::Flags;
    use crate::wait::Waiter;
    use crate::{Clock, Driver, WorkQueue};
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// With tens of thousands of keys to sort, a `turn` sorts some of them and returns; the next turns sort more.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn a_turn_sorts_a_bounded_number_of_keys() {
        const KEYS: u64 = 40_000;
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        queue.add_after(0, Duration::from_secs(3600));
        for key in 1..KEYS {
            queue.add_after(key, Duration::from_millis(3_600_000 + key));
        }
        time.advance(Duration::from_secs(3600));
        let is_sorting = || queue.shared.first.lock().marks().is_sorting();
        assert_eq!(queue.turn(), 1);
        let mut turns = 0;
        while is_sorting() {
            assert_eq!(queue.turn(), 0, "no other delay has expired");
            turns += 1;
        }
        let all = KEYS as usize / (SORTS * BATCH);
        assert!((all / 2..=all).contains(&turns), "{turns} more turns");
    }

    /// The blocks of the order are freed even if no key leaves the table.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn blocks_are_freed_while_all_keys_stay_delayed() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        queue.add_all(0..100_000_u32);
        while let Ok(item) = queue.try_get() {
            item.requeue_after(Duration::from_secs(3600));
        }
        assert_eq!(queue.delayed_len(), 100_000);
        assert!(!queue.shared.first.lock().has_garbage());
    }

    /// A delay that never expires asks for no driver thread.
    #[test]
    fn an_endless_delay_asks_for_no_driver() {
        for (delay, asks) in [(Duration::MAX, false), (Duration::from_secs(3600), true)] {
            let queue = WorkQueue::builder().build_with(is_never_run);
            queue.add_after(1, delay);
            assert_eq!(matches!(queue.shared.hub().driver, DriverState::Absent), !asks);
        }
    }

    /// The first delay starts the driver thread, and from then on calls take their usual way.
    #[test]
    fn a_started_driver_leaves_the_queue_as_it_was() {
        let queue = WorkQueue::new();
        assert_eq!(queue.add_after("key", Duration::from_secs(3600)), Added::Delayed);
        assert!(!queue.shared.flags().has(Flags::ADD));
        assert!(!queue.shared.has_extras());
    }

    /// The driver thread was started, and does not get a core.
    fn is_never_run(_: &Arc<Shared<u32>>) -> std::io::Result<()> {
        Ok(())
    }

    /// A getter that finds no key may have expired some all the same: those that are processing.
    #[test]
    fn the_observer_is_told_of_what_a_getter_expires_that_finds_no_key() {
        struct Deferred(Arc<AtomicUsize>);
        impl crate::observe::Observer for Deferred {
            fn added(&self, added: Added) {
                self.0.fetch_add(usize::from(added == Added::Deferred), Relaxed);
            }
        }
        let deferred = Arc::<AtomicUsize>::default();
        let queue = WorkQueue::builder().observer(Deferred(Arc::clone(&deferred))).build_with(is_never_run);
        queue.add(1);
        let _item = queue.get().unwrap();
        queue.add_after(1, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        let parker = Parker::new();
        let wait = Shared::take_or_wait(&queue.shared, Waiter::Thread(parker.unparker()));
        assert!(matches!(wait, Wait::Park(_)));
        assert_eq!(deferred.load(Relaxed), 1);
    }

    /// The driver thread gets no core. A getter that is past the hot path adds the keys that are due, 16 in a critical section; a hot one,
    /// and one with a clock that is given, adds none.
    #[test]
    fn getters_add_due_keys_while_the_driver_is_late() {
        const DUE: u32 = 100;
        const SOON: Duration = Duration::from_millis(1);
        let ordered = || WorkQueue::builder().fair_by(|key: &u32| key % 2);
        let cases = [
            ("plain", WorkQueue::builder(), 0),
            ("measured", WorkQueue::builder().measure(true), BY_GETTER),
            ("ordered", ordered(), BY_GETTER),
            ("ordered, measured", ordered().measure(true), BY_GETTER),
        ];
        for (name, builder, at_most) in cases {
            let queue = builder.build_with(is_never_run);
            queue.add_all(1000..1400);
            (0..DUE).for_each(|key| _ = queue.add_after(key, SOON));
            std::thread::sleep(2 * SOON);
            let (mut before, mut most) = (DUE as usize, 0);
            assert_eq!(queue.delayed_len(), before, "{name}");
            // Some of these read the clock.
            for _ in 0..400 {
                drop(queue.try_get().unwrap());
                most = most.max(before - queue.delayed_len());
                before = queue.delayed_len();
                let is_to_come = queue.shared.first.driver_until() < NEVER;
                assert!(is_to_come || before == 0, "{name}: the driver expires what is left");
            }
            assert_eq!((most, before), (at_most, if at_most > 0 { 0 } else { DUE as usize }), "{name}");
            // One of these does, also later.
            queue.add_all(2000..2000 + READS as u32);
            queue.add_after(DUE, SOON);
            std::thread::sleep(2 * SOON);
            (0..READS).for_each(|_| drop(queue.try_get().unwrap()));
            assert_eq!(queue.delayed_len(), if at_most > 0 { 0 } else { DUE as usize + 1 }, "{name}");
        }
        // With a given clock.
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).measure(true).build_with(is_never_run);
        queue.add(1000);
        queue.add_after(0, SOON);
        time.advance(SOON);
        assert_eq!((*queue.try_get().unwrap(), queue.delayed_len()), (1000, 1));
        assert!(queue.get_timeout(SOON).is_err());
        assert_eq!(queue.delayed_len(), 1);
        // With `Driver::Manual`.
        let queue = WorkQueue::builder().driver(Driver::Manual).measure(true).build();
        queue.add(1000);
        queue.add_after(0, SOON);
        std::thread::sleep(2 * SOON);
        assert_eq!((*queue.try_get().unwrap(), queue.delayed_len()), (1000, 1));
        assert!(queue.get_timeout(SOON).is_err());
        assert_eq!((queue.delayed_len(), queue.turn()), (1, 1));
    }

    /// A getter adds a key that is due and takes the last key of a group of stamps: the shard has as many keys as before, and another front.
    #[test]
    fn a_getter_that_adds_and_takes_publishes_the_new_front() {
        const SOON: Duration = Duration::from_millis(1);
        let queue = WorkQueue::builder().shards(2).build_with(is_never_run);
        let mut keys = (0_u32..).filter(|key| queue.shared.hash(key).shard(2) == 0);
        let mut next = || keys.next().expect("each shard has keys");
        (0..64).for_each(|_| _ = queue.add(next()));
        queue.add_after(next(), SOON);
        std::thread::sleep(2 * SOON);
        queue.add(next()); // begins a group
        (0..63).for_each(|_| drop(queue.try_get().unwrap()));
        let shard = &queue.shared.first;
        let before = (shard.len(), shard.front());
        let wait = Shared::take_or_wait(&queue.shared, Waiter::Thread(Parker::new().unparker()));
        assert!(matches!(wait, Wait::Item(_)) && queue.delayed_len() == 0);
        assert_eq!(shard.len(), before.0);
        assert!(shard.front() > before.1, "the front is published");
    }

    /// Such a getter, in a queue with a limit, beside `take_where`, and after a drain has begun: each due key is in one place, and comes once.
    #[test]
    fn getters_that_add_due_keys_lose_none_to_other_calls() {
        const DUE: u32 = 100;
        const SOON: Duration = Duration::from_millis(1);
        let make = |limit| {
            let builder = WorkQueue::builder().fair_by(|key: &u32| key % 2).measure(true);
            let queue = if limit { builder.max_processing_per_group(1) } else { builder }.build_with(is_never_run);
            (0..DUE).for_each(|key| _ = queue.add_after(key, SOON));
            queue.add_all(1000..if limit { 1002 } else { 1100 });
            std::thread::sleep(2 * SOON);
            queue
        };
        // Not each getter reads the clock.
        let get_until_some_are_added = |queue: &WorkQueue<u32>| {
            while queue.delayed_len() == DUE as usize {
                drop(queue.try_get().unwrap())
            }
        };
        // Both groups are full, and due keys are queued behind them; they come when the groups have room.
        let queue = make(true);
        let held = [queue.try_get().unwrap(), queue.try_get().unwrap()];
        assert!(queue.try_get().is_err());
        assert!((1..=3 * BY_GETTER).contains(&queue.len()), "{} are queued", queue.len());
        assert_eq!(queue.len() + queue.delayed_len(), DUE as usize);
        drop(held);
        let mut keys: Vec<u32> = (0..DUE).map(|_| *queue.try_get().expect("some are due, or queued")).collect();
        keys.sort_unstable();
        assert_eq!(keys, Vec::from_iter(0..DUE));
        // `take_where` finds keys that a getter has added, and others that are delayed.
        let queue = make(false);
        get_until_some_are_added(&queue);
        let queued = queue.len();
        assert!(queued > 1 && queue.delayed_len() > 0);
        let taken = queue.take_where(|key| *key < DUE);
        assert_eq!(taken.queued.len() + taken.delayed.len(), DUE as usize);
        assert_eq!((taken.queued.len() + queue.len(), queue.delayed_len()), (queued, 0));
        // A drain cuts off what is still delayed, due or not (P12).
        let queue = make(false);
        get_until_some_are_added(&queue);
        let (queued, delayed) = (queue.len(), queue.delayed_len());
        assert!(queue.shut_down_with_drain_timeout(Duration::ZERO).is_err());
        let got = std::iter::from_fn(|| queue.try_get().ok().map(drop)).count();
        assert_eq!((got, queue.inspect().delayed_keys().len()), (queued, delayed));
    }

    /// The same for getters that are about to park, or were woken: threads, and a task. What they leave goes to others (W2).
    #[test]
    fn getters_that_park_add_due_keys_while_the_driver_is_late() {
        for shards in [1, 4] {
            let queue = WorkQueue::builder().shards(shards).build_with(is_never_run);
            (0..3).for_each(|key| _ = queue.add_after(key, Duration::from_millis(1)));
            std::thread::sleep(Duration::from_millis(2));
            let get = || *queue.get_timeout(RETRY * 1000).expect("a key is due");
            let mut keys = vec![get()];
            let mut task = std::pin::pin!(queue.get_async());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let std::task::Poll::Ready(item) = task.as_mut().poll(&mut context) else { panic!("{shards}: no key") };
            keys.push(*item.unwrap());
            keys.push(get());
            keys.sort_unstable();
            assert_eq!(keys, [0, 1, 2]);
        }
        // One that is about to park adds two keys, takes one, and wakes the getter that is parked.
        let queue = WorkQueue::builder().build_with(is_never_run);
        std::thread::scope(|scope| {
            let get = || queue.get_timeout(RETRY * 1000).map(|item| *item);
            let parked = scope.spawn(get);
            while queue.stats().waiters < 1 {
                std::thread::yield_now();
            }
            [1, 2].into_iter().for_each(|key| _ = queue.add_after(key, Duration::from_millis(1)));
            std::thread::sleep(Duration::from_millis(2));
            let begin = Instant::now();
            let mut keys = [get().unwrap(), parked.join().unwrap().unwrap()];
            keys.sort_unstable();
            assert_eq!((keys, begin.elapsed() < RETRY * 500), ([1, 2], true));
        });
        // One that was woken by a plain add: a second getter gets the key that was due, also if the observer panics.
        struct Panics;
        impl crate::observe::Observer for Panics {
            fn added(&self, added: Added) {
                if added == Added::Queued {
                    std::panic::resume_unwind(Box::new("as planned"));
                }
            }
        }
        let queue = WorkQueue::builder().observer(Panics).build_with(is_never_run);
        std::thread::scope(|scope| {
            let getters = [(); 2].map(|()| scope.spawn(|| *queue.get_timeout(RETRY * 1000).unwrap()));
            while queue.stats().waiters < 2 {
                std::thread::yield_now();
            }
            queue.add_after(1, Duration::from_millis(1));
            std::thread::sleep(Duration::from_millis(2));
            contained(|| queue.add(2));
            let mut keys = getters.map(|getter| getter.join().unwrap());
            keys.sort_unstable();
            assert_eq!(keys, [1, 2]);
        });
        assert_eq!(queue.stats().caught_panics, 1);
    }

    /// Each key of the first shard that expires is delayed again, and is due at once. The driver goes to the other shard, and reports.
    #[test]
    fn delays_that_expire_all_the_time_keep_the_driver_in_no_shard() {
        use std::sync::Mutex;
        use std::sync::atomic::{AtomicUsize, Ordering};
        const MOST: usize = 100_000;
        const INTERVAL: Duration = Duration::from_millis(1);
        #[derive(Default)]
        struct Repeats {
            queue: Mutex<Option<(WorkQueue<u32>, u32)>>,
            times: AtomicUsize,
            reports: AtomicUsize,
        }
        struct Observes(std::sync::Arc<Repeats>);
        impl crate::observe::Observer for Observes {
            fn added(&self, added: Added) {
                let Some((queue, key)) = self.0.queue.lock().unwrap().clone() else { return };
                if added != Added::Queued || self.0.times.fetch_add(1, Ordering::Relaxed) >= MOST {
                    return;
                }
                // So that it is queued again when it expires.
                queue.remove(&key);
                queue.add_after(key, Duration::from_nanos(1));
            }
            fn report(&self, _: &str, _: &crate::observe::Metrics) {
                self.0.reports.fetch_add(1, Ordering::Relaxed);
            }
            fn interval(&self) -> Option<Duration> {
                Some(INTERVAL)
            }
        }
        let repeats = std::sync::Arc::<Repeats>::default();
        let observer = Observes(std::sync::Arc::clone(&repeats));
        let queue = WorkQueue::builder().shards(2).observer(observer).build_with(is_never_run);
        let [first, second] = [0, 1]
            .map(|shard| (0_u32..).find(|key| queue.shared.hash(key).shard(2) == shard).expect("each shard has keys"));
        [first, second].into_iter().for_each(|key| _ = queue.add_after(key, INTERVAL));
        std::thread::sleep(2 * INTERVAL);
        *repeats.queue.lock().unwrap() = Some((queue.clone(), first));
        let has_come = || queue.shared.at(1).len() == 1 && repeats.reports.load(Ordering::Relaxed) > 0;
        let mut steps = 0;
        while !has_come() {
            Shared::drive(&queue.shared, &Parker::new());
            steps += 1;
            assert!(steps < 10);
        }
        repeats.queue.lock().unwrap().take(); // else the queue and its observer hold each other
        assert!(repeats.times.load(Ordering::Relaxed) < MOST, "the driver was kept in the first shard");
    }

    /// The driver that is started ends at once, as the queue is shut down, and a task asks for the next one. Only then the thread that has
    /// started the first goes on: the call of the task must still find that there is none.
    #[test]
    fn a_driver_that_has_ended_before_its_start_returns_is_missing() {
        let start: fn(&Arc<Shared<u32>>) -> std::io::Result<()> = |shared| {
            shared.hub().driver = DriverState::Absent;
            let called = shared.hub().call_driver(0);
            assert!(called.is_empty(), "nobody is parked");
            Ok(())
        };
        let queue = WorkQueue::builder().shards(2).build_with(start);
        queue.add_after(1, Duration::from_secs(3600));
        assert!(matches!(queue.shared.hub().driver, DriverState::Missing { .. }));
        assert!(queue.shared.is_driver_missing());
    }

    /// Fifty keys expire in one critical section.
    #[test]
    fn one_batch_expires_fifty_keys() {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        (0..50).for_each(|key| _ = queue.add_after(key, Duration::from_secs(1)));
        time.advance(Duration::from_secs(1));
        let now = queue.shared.settings.clock.now();
        let shared = &queue.shared;
        let turn = shared.expire_batch(shared.first.lock(), now);
        assert_eq!(queue.shared.tell_expired(&turn), 50);
    }

    /// While the second shard is visited, a delay comes to the first one, which has been visited: the driver looks once more before it
    /// parks (I8).
    #[test]
    fn a_deadline_that_comes_behind_the_driver_makes_it_look_again() {
        type ToAdd = std::sync::Mutex<Option<(WorkQueue<u32>, u32)>>;
        #[derive(Clone, Default)]
        struct Adds(std::sync::Arc<ToAdd>);
        impl crate::observe::Observer for Adds {
            fn added(&self, added: Added) {
                if added == Added::Queued {
                    let (queue, key) = self.0.lock().unwrap().take().expect("one key expires");
                    queue.add_after(key, Duration::from_secs(3600));
                }
            }
        }
        let adds = Adds::default();
        let queue = WorkQueue::builder().shards(2).observer(adds.clone()).build_with(is_never_run);
        let [first, second] = [0, 1]
            .map(|shard| (0_u32..).find(|key| queue.shared.hash(key).shard(2) == shard).expect("each shard has keys"));
        queue.add_after(second, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        *adds.0.lock().unwrap() = Some((queue.clone(), first));
        assert!(queue.shared.expire_all().is_none(), "it would park without knowing the deadline");
        assert_eq!((queue.len(), queue.delayed_len()), (1, 1));
        let (_hub, until) = queue.shared.expire_all().expect("nothing is due");
        assert_eq!(until, queue.shared.first.driver_until());
        assert!(until < NEVER);
    }

    /// A getter of an ordered queue that does not measure reads the clock at one of [`READS`] hand-outs. One of a plain queue does not at any,
    /// unless it parks.
    #[test]
    fn a_getter_reads_the_clock_at_few_hand_outs() {
        for is_ordered in [true, false] {
            let builder = WorkQueue::builder();
            let builder = if is_ordered { builder.fair_by(|key: &u32| key % 2) } else { builder };
            let queue = builder.build_with(is_never_run);
            let hand_outs = READS as usize;
            queue.add_all(1..=hand_outs as u32);
            queue.add_after(0, Duration::from_millis(1));
            std::thread::sleep(Duration::from_millis(2));
            // Of each one, whether it has not added the key that is due.
            let left = (0..hand_outs).map(|_| {
                let mut taken = None;
                queue.shared.take_many(1, |one| taken = Some(one));
                queue.shared.done(taken.expect("it is queued").claimed);
                queue.delayed_len()
            });
            let expected = (1..=hand_outs).map(|nth| usize::from(!is_ordered || nth < hand_outs));
            assert_eq!(Vec::from_iter(left), Vec::from_iter(expected), "ordered {is_ordered}");
        }
        // A call that returns when it finds no key adds none.
        let queue = WorkQueue::builder().build_with(is_never_run);
        queue.add_after(0, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        assert!(queue.try_get().is_err());
        assert_eq!(queue.delayed_len(), 1);
    }

    /// A getter or an idle wait tries to start the driver.
    #[test]
    fn a_call_that_waits_tries_to_start_the_driver() {
        static TRIES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let tries = || TRIES.load(std::sync::atomic::Ordering::Relaxed);
        let queue = WorkQueue::<u32>::builder().build_with(|_| {
            TRIES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Err(std::io::ErrorKind::WouldBlock.into())
        });
        let before = now();
        queue.add_after(0, Duration::from_secs(3600));
        assert_eq!(tries(), 1);
        let driver = std::mem::take(&mut queue.shared.hub().driver);
        assert!(matches!(driver, DriverState::Missing { retry_at } if retry_at >= before + RETRY), "{driver:?}");
        queue.shared.hub().driver = DriverState::Missing { retry_at: now() };
        assert!(queue.get_timeout(Duration::from_millis(1)).is_err());
        let before = tries();
        assert!(before > 1, "a getter tries");
        queue.shared.hub().driver = DriverState::Missing { retry_at: now() };
        assert!(queue.wait_idle_timeout(Duration::ZERO).is_err());
        assert!(tries() > before, "an idle wait tries");
    }
}
