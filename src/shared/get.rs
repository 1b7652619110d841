//! `get` in all its forms.

use super::Shared;
use super::getters::BUSY;
use super::hub::Flags;
use super::locked::Busy;
use super::pace::Pace;
use super::section::in_mode;
use super::state::if_free;
use super::take::Taken;
use crate::TryGetError;
use crate::machine::{Claimed, Times};
use crate::shared::driver::states::Driver;
use crate::sync::{Arc, give_way, model_const, now, spin_while, with_parker, yield_while};
use crate::time::deadline::Deadline;
use crate::wait::{Ticket, Waiter};
use std::time::Instant;

/// The number of keys that one critical section of `get_many` takes.
const TAKEN_AT_ONCE: usize = model_const(256, 2);
/// The same with a limit, where a key that fills its group may have to be moved in up to 256 levels.
const TAKEN_AT_ONCE_OF_LIMITED: usize = model_const(16, 2);
/// After this many sections in a row the call pauses, for as long as some sections take, so that a thread that needs the lock sees it free.
const IN_A_ROW: usize = 8;

/// What a getter has found in its visits.
pub(super) struct Visited<K> {
    /// A key, or that the queue is shut down and each shard was empty. `None`: no shard had a key.
    pub(super) found: Option<Wait<K>>,
    /// Whether a shard was busy, so that the getter has not looked into it.
    pub(super) passed_by: bool,
    /// If no key was found, the number of hand-outs so far of the shards that were visited.
    pub(super) handed_out: u64,
}

/// Why a getter visits the shards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// It returns if it finds no key, so it must know that there is none.
    Last,
    /// If it finds no key, it goes back on the list and looks again, or its time is up.
    Again,
    /// It parks if it finds no key.
    BeforePark,
    /// The same, but nobody would wake it to come back to a busy shard, so it waits for each.
    BeforeLongPark,
}

/// How long a getter waits for the lock of a shard.
#[derive(Clone, Copy)]
enum Patience {
    None,
    /// As long as critical sections take.
    Brief,
    /// Until the holder goes on.
    Long,
}

/// What [`take_or_wait`](Shared::take_or_wait) or [`resume`](Shared::resume) has found.
pub(crate) enum Wait<K> {
    Item(Taken<K>),
    ShutDown,
    /// The getter is on the list. It parks, and then calls [`resume`](Shared::resume) with the ticket.
    Park(Ticket),
    /// The same, but it has passed by a busy shard and so parks for [`BUSY`] at most. A task calls [`wake_later`](Shared::wake_later) and,
    /// if nobody can wake it, [`wait_for_busy`](Shared::wait_for_busy).
    ParkBriefly(Ticket),
    /// There was no key, and the getter, which has asked to give up, is off the list.
    GaveUp,
}

impl<K> Shared<K> {
    /// Takes the next key, if there is one.
    #[inline]
    pub(crate) fn try_take(this: &Arc<Self>) -> Option<Claimed<K>> {
        if !this.is_single() {
            return Self::take_chosen(this);
        }
        let Some(held) = this.first.try_lock() else {
            return Self::take_slow(this, this.first.lock());
        };
        if this.flags().has(Flags::HAND_OUT) {
            return Self::take_slow(this, held);
        }
        let mut section = this.plain_section(held, None);
        match section.get_simple() {
            Some(claimed) => {
                section.end();
                Some(claimed)
            }
            None => Self::take_slow(this, section.back()),
        }
    }

    /// [`try_take`](Self::try_take) of a queue with several shards.
    #[inline(never)]
    fn take_chosen(this: &Arc<Self>) -> Option<Claimed<K>> {
        if_free!(this, free => Self::free_take(this, free));
        Self::take_from_chosen(this)
    }

    // A function of its own, as in `add.rs`.
    #[inline(never)]
    fn take_from_chosen(this: &Arc<Self>) -> Option<Claimed<K>> {
        // Asked before a lock is taken, too, because with priorities the thread chooses anew.
        if !this.flags().has(Flags::HAND_OUT) {
            if let Some(claimed) = this.take_nearby() {
                return Some(claimed);
            }
        }
        let taken = this.choose()?;
        Some(Self::hand_out(this, taken))
    }

    /// After [`try_take`](Self::try_take) has found no key: tries once more, and returns why there is none.
    #[cold]
    pub(crate) fn try_get_slow(this: &Arc<Self>) -> Result<Claimed<K>, TryGetError> {
        match this.visit_all(Visit::Last).found {
            Some(Wait::Item(taken)) => Ok(Self::hand_out(this, taken)),
            Some(_) => Err(TryGetError::ShutDown),
            None => {
                Self::ensure_driver(this);
                Err(TryGetError::Empty)
            }
        }
    }

    /// Visits each shard under its lock until one has a key, and takes that key. A shard whose lock is held comes after the others, and is
    /// passed by if it is busy, unless the getter must know what is there: in its last visit if the shard has keys or the queue is shut
    /// down, and in any if nobody would wake it. A getter that was woken or is about to park first adds keys that are due.
    fn visit_all(&self, visit: Visit) -> Visited<K> {
        if_free!(self, free => self.free_visit(free, visit));
        let (mut is_shut_down, mut passed_by, mut handed_out) = (true, Busy::default(), 0);
        let mut now = None;
        for patience in [Patience::None, Patience::Brief, Patience::Long] {
            for locked in self.all() {
                let must_know = || match visit {
                    Visit::Last => locked.len() > 0 || self.is_shutting_down(),
                    Visit::Again | Visit::BeforePark => false,
                    Visit::BeforeLongPark => true,
                };
                let held = match patience {
                    Patience::None => locked.try_lock(),
                    _ if !passed_by.contains(locked) => continue,
                    Patience::Brief => self.lock_unless_busy(locked),
                    Patience::Long if must_know() => Some(locked.lock()),
                    Patience::Long => continue,
                };
                let Some(held) = held else {
                    passed_by.insert(locked);
                    continue;
                };
                passed_by.remove(locked);
                let mut section = self.section(held);
                let mode = section.mode;
                let turn = if visit == Visit::Last { None } else { section.expire_as_getter(&mut now) };
                if let Some(taken) = section.take(None, &mut now) {
                    section.end();
                    self.tell_expired_as_getter(turn);
                    let (found, passed_by) = (Some(Wait::Item(taken)), !passed_by.is_empty());
                    return Visited { found, passed_by, handed_out: 0 };
                }
                // Keys of full groups will still be handed out.
                is_shut_down &= !mode.is_open && section.len() == 0;
                handed_out += section.counts.handed_out;
                if matches!(visit, Visit::BeforePark | Visit::BeforeLongPark) {
                    section.marks().times().into_iter().for_each(Times::reset_sampling);
                }
                section.end();
                self.tell_expired_as_getter(turn);
            }
        }
        let passed_by = !passed_by.is_empty();
        Visited { found: (is_shut_down && !passed_by).then_some(Wait::ShutDown), passed_by, handed_out }
    }

    /// Takes up to `max` of the queued keys.
    pub(crate) fn take_many(&self, max: usize, mut each: impl FnMut(Taken<K>)) {
        if_free!(self, free => {
            let next = || if self.is_paused() { None } else { free.take() };
            (0..max).map_while(|_| next()).for_each(|node| each(self.free_taken(free, node)));
        });
        if self.is_single() {
            self.take_many_from_first(max, each);
        } else {
            // `choose` may have passed by a shard that is busy.
            let any = || match self.visit_all(Visit::Last).found {
                Some(Wait::Item(taken)) => Some(taken),
                _ => None,
            };
            // One by one, so that each shard has its turn (P18).
            (0..max).map_while(|_| self.choose().or_else(any)).for_each(&mut each);
        }
    }

    /// [`take_many`](Self::take_many) of a queue with one shard, [`TAKEN_AT_ONCE`] in a critical section.
    fn take_many_from_first(&self, max: usize, mut each: impl FnMut(Taken<K>)) {
        let mut left = max;
        for sections in 1.. {
            let is_limited = self.flags().has(Flags::LIMITED);
            let step = left.min(if is_limited { TAKEN_AT_ONCE_OF_LIMITED } else { TAKEN_AT_ONCE });
            left -= step;
            let (held, mut taken, mut now) = (self.first.lock(), 0, None);
            in_mode!(self, held, section, _extras => {
                while taken < step {
                    let Some(next) = section.take(None, &mut now) else { break };
                    taken += 1;
                    each(next);
                }
                section.end_as_getter(now);
            });
            if taken < step || left == 0 {
                return;
            }
            if sections % IN_A_ROW == 0 {
                give_way();
            }
        }
    }

    /// Takes a key. If none is queued, parks until one is, or until the deadline. A thread that `leaves` gives up after it was woken, and
    /// does not park. It is asked without a lock, after the thread has gone on the list.
    #[cold]
    pub(crate) fn get_parked(this: &Arc<Self>, deadline: &Deadline, leaves: &dyn Fn() -> bool) -> Wait<K> {
        Self::ensure_driver(this);
        if !deadline.is_zero() && !this.is_shutting_down() {
            deadline.start();
            let keys_come_fast = this.hub().getters.keys_come_fast;
            if keys_come_fast {
                spin_while(|| this.ready() == 0);
                yield_while(|| this.ready() == 0);
            }
        }
        with_parker(|parker| {
            let mut wait = Self::take_or_wait(this, Waiter::Thread(parker.unparker()));
            while let Wait::Park(ticket) | Wait::ParkBriefly(ticket) = wait {
                let soon = this.parks_until(matches!(wait, Wait::ParkBriefly(_)));
                if !leaves() {
                    Self::park(this, parker, deadline.start().into_iter().chain(soon).min());
                }
                if leaves() {
                    this.leave_getters(ticket, true);
                    return Wait::GaveUp;
                }
                wait = Self::resume(this, ticket, Waiter::Thread(parker.unparker()), deadline.is_over());
            }
            wait
        })
    }

    /// Goes on the list, and then takes a key or parks (W1).
    pub(crate) fn take_or_wait(this: &Arc<Self>, waiter: Waiter) -> Wait<K> {
        let is_thread = waiter.is_thread();
        let ticket = this.hub().getters.waiters.push(waiter);
        Self::visit_listed(this, ticket, is_thread, Visit::BeforePark)
    }

    /// For a task that has passed by a busy shard, and that nobody can wake later: it waits for the shard here. The answer is never
    /// [`ParkBriefly`](Wait::ParkBriefly), because it looks into each shard (W5).
    #[cold]
    pub(crate) fn wait_for_busy(this: &Arc<Self>, task: Ticket) -> Wait<K> {
        Self::visit_listed(this, task, false, Visit::BeforeLongPark)
    }

    /// Visits the shards for a getter that is on the list or has been woken meanwhile, and takes it off the list if it need not park (W1).
    fn visit_listed(this: &Arc<Self>, ticket: Ticket, is_thread: bool, visit: Visit) -> Wait<K> {
        let visited = this.visit_all(visit);
        let Some(wait) = visited.found else {
            if is_thread {
                this.hub().getters.note_park(now(), visited.handed_out);
            }
            if visited.passed_by {
                return Wait::ParkBriefly(ticket);
            }
            Self::await_token(this);
            return Wait::Park(ticket);
        };
        if this.arrive(ticket, is_thread) {
            this.wake_getters(1);
        }
        wait
    }

    /// After a park: takes a key, goes back on the list, or gives up. Then wakes the next getter if keys are left (W2).
    pub(crate) fn resume(this: &Arc<Self>, ticket: Ticket, waiter: Waiter, give_up: bool) -> Wait<K> {
        let is_thread = waiter.is_thread();
        let was_woken = this.arrive(ticket, is_thread);
        let mut waiter = Some(waiter);
        let visited = this.visit_all(Visit::Again);
        let wait = match visited.found {
            Some(wait) => wait,
            None if give_up => Wait::GaveUp,
            None => {
                let waiter = waiter.take().expect("not used yet");
                this.hub().getters.put_back(ticket, waiter, was_woken && visited.passed_by);
                return Self::visit_listed(this, ticket, is_thread, Visit::BeforePark);
            }
        };
        this.discard(waiter);
        if was_woken || this.waits_by_itself() {
            this.wake_getters(1);
        }
        wait
    }

    /// A getter that is on the list has found no key, or no token. In the latter case it has the driver wake a getter for the next one, or
    /// wakes one itself if the token has come meanwhile. If the queue is paused, the getters that `resume` wakes do this.
    fn await_token(this: &Arc<Self>) {
        let Some(pace) = &this.pace else { return };
        if this.waits_by_itself() || this.is_paused() || this.ready() == 0 {
            return;
        }
        let tokens = pace.tokens(this.settings.clock.now());
        if tokens.count > 0 {
            return this.wake_getters(1);
        }
        Pace::arm(&mut this.hub(), tokens.more_at);
        Self::ensure_driver(this);
    }

    /// Whether no driver wakes a getter for the next token.
    fn waits_by_itself(&self) -> bool {
        self.pace.is_some() && self.settings.driver != Driver::Thread
    }

    /// Until when a thread parks that has passed by a busy shard (`briefly`), or waits for a token by itself.
    pub(super) fn parks_until(&self, briefly: bool) -> Option<Instant> {
        if briefly { Some(Instant::now() + BUSY) } else { self.own_token_at() }
    }

    /// Until when a thread parks that waits for a token by itself.
    fn own_token_at(&self) -> Option<Instant> {
        let waits = || self.waits_by_itself() && !self.is_paused() && self.ready() > 0;
        let pace = self.pace.as_ref().filter(|_| waits())?;
        let clock = &self.settings.clock;
        let now = clock.now();
        let tokens = pace.tokens(now);
        clock.instant(if tokens.count > 0 { now } else { tokens.more_at })
    }

    /// Wakes at most this many getters for keys that were queued without a wake-up (W2). The calling thread holds no shard.
    pub(crate) fn wake_getters(&self, at_most: usize) {
        #[cfg(feature = "lock-free")]
        self.free().into_iter().for_each(|_| crate::free::fence_after_rmw()); // F10, of the pushes of `add_all`
        // The flag is as new as this thread's last critical sections, and a getter that sets it later finds their keys by itself.
        if !self.flags().has(Flags::GETTERS) {
            return;
        }
        let mut hub = self.hub();
        let queued = self.ready();
        let at_most = match hub.is_paused() {
            true => 0, // `resume` wakes them: it comes later, and sees these keys
            false if hub.is_paced_by_driver() => at_most.min(self.tokens()),
            false => at_most,
        };
        for _ in 0..at_most {
            let Some(waiter) = hub.getters.next(queued) else { return };
            hub.wakes.push(waiter);
        }
    }

    /// For a getter that stops waiting without having looked for a key (W3).
    pub(crate) fn leave_getters(&self, ticket: Ticket, is_thread: bool) {
        if self.arrive(ticket, is_thread) {
            self.wake_getters(1);
        }
    }

    /// Wakes all getters, so that those that are to leave do (see `workers/size.rs`). The others look for a key, and wait again.
    pub(crate) fn recall_getters(&self) {
        self.hub().wake_all_getters();
    }

    /// Takes a getter that runs again off the list. Returns whether calls that queued keys have relied on it, because it was woken and has
    /// not looked into each shard since. If so, it wakes the next getter after it has taken a key or given up, if keys are left (W2, W3).
    fn arrive(&self, ticket: Ticket, is_thread: bool) -> bool {
        let (listed, is_relied_on) = self.hub().getters.arrive(ticket, is_thread);
        self.discard(listed); // after the lock (W4)
        is_relied_on
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::machine::{How, Mode};
    use crate::order::Group;
    use crate::sync::{OVERDUE, Parker};
    use crate::{Driver, WorkQueue};
    use std::sync::atomic::Ordering::Relaxed;

    /// With a limit, a key that fills its group may move many levels, so a critical section takes fewer keys.
    #[test]
    fn get_many_takes_few_keys_at_once_of_a_queue_with_a_limit() {
        let sections = |limit: bool| {
            let builder = WorkQueue::builder().fair_by(|key| *key);
            let queue = if limit { builder.max_processing_per_group(1).build() } else { builder.build() };
            queue.add_all(0..256_u32);
            let before = queue.shared.first.looks.load(Relaxed);
            assert_eq!(queue.get_many(256).len(), 256);
            queue.shared.first.looks.load(Relaxed) - before - 256 // each item's `done` takes it, too
        };
        assert_eq!([false, true].map(sections), [2, 17], "the first key comes alone");
    }

    /// Two getters are parked. The first is woken and does not run, so the next add, some time later, wakes the second.
    #[test]
    fn a_push_passes_over_an_overdue_getter() {
        let queue = WorkQueue::new();
        let parkers = [Parker::new(), Parker::new()];
        for parker in &parkers {
            let wait = Shared::take_or_wait(&queue.shared, Waiter::Thread(parker.unparker()));
            assert!(matches!(wait, Wait::Park(_)));
        }
        let parked = || queue.shared.hub().getters.waiters.len();
        queue.add(1);
        assert_eq!(parked(), 1);
        while queue.shared.hub().getters.woken_at.is_some_and(|at| at.elapsed() < OVERDUE) {}
        queue.add(2);
        assert_eq!(parked(), 0);
    }

    /// The blocks of the order that `get_many` empties are freed, though no key leaves the table.
    #[test]
    fn get_many_leaves_no_garbage() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        queue.add_all(0..10_000_u32);
        let _held = queue.get_many(usize::MAX);
        assert!(!queue.shared.first.lock().has_garbage());
    }

    /// A push has taken a loop off the list, and the loop leaves without a look at the shards: it wakes the next getter for the key (W3). It
    /// is no longer on its way, so a later push wakes another.
    #[test]
    fn a_loop_that_leaves_hands_on_its_wake_up() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        let parkers = [Parker::new(), Parker::new(), Parker::new()];
        let waits = parkers.each_ref().map(|parker| {
            match Shared::take_or_wait(&queue.shared, Waiter::Thread(parker.unparker())) {
                Wait::Park(ticket) => ticket,
                _ => panic!("there is no key"),
            }
        });
        let parked = || queue.shared.hub().getters.waiters.len();
        queue.add(1);
        assert_eq!(parked(), 2);
        queue.shared.leave_getters(waits[0], true);
        assert_eq!(parked(), 1, "the second is woken for the key");
        queue.shared.leave_getters(waits[1], true);
        assert_eq!(parked(), 0, "and the third");
        assert!(matches!(
            Shared::resume(&queue.shared, waits[2], Waiter::Thread(parkers[2].unparker()), false),
            Wait::Item(_)
        ));
        let last = Shared::take_or_wait(&queue.shared, Waiter::Thread(parkers[0].unparker()));
        assert!(matches!(last, Wait::Park(_)));
        queue.add(2);
        assert_eq!(parked(), 0, "nobody else is on its way");
    }

    /// A getter goes on the list, a push takes it off, and in its visits it finds another key before it parks: it wakes the next getter for
    /// the key of the push (W2).
    #[test]
    fn a_getter_that_was_woken_before_it_parks_wakes_the_next() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        let parkers = [Parker::new(), Parker::new()];
        let [first, next] = parkers.each_ref().map(|parker| Waiter::Thread(parker.unparker()));
        let first = queue.shared.hub().getters.waiters.push(first);
        assert!(matches!(Shared::take_or_wait(&queue.shared, next), Wait::Park(_)));
        for key in [1, 2] {
            queue.add(key);
            let mut hub = queue.shared.hub();
            hub.getters.woken_at = None; // it is not overdue
            assert_eq!(hub.getters.waiters.len(), 1, "the first getter is on its way");
        }
        assert!(matches!(Shared::visit_listed(&queue.shared, first, true, Visit::BeforePark), Wait::Item(_)));
        assert_eq!(queue.shared.hub().getters.waiters.len(), 0);
    }

    /// Dense adds are measured one in eight, but the first one after a getter has parked is measured.
    #[test]
    fn a_getter_that_parks_has_the_next_add_measured() {
        let queue = WorkQueue::builder().measure(true).driver(Driver::Manual).build();
        let add = |key: u64| {
            let mut section = queue.shared.section_in(queue.shared.first.lock(), Mode::MEASURED);
            section.add(&mut Some(key), queue.shared.hash(&key), Group::default(), How::NOW);
            let is_measured = section.wants_time();
            section.marks().times().into_iter().for_each(|times| times.dirty_at(0)); // all at the same time
            section.end();
            is_measured
        };
        assert_eq!((0..50).filter(|key| add(*key)).max(), Some(46));
        while queue.try_get().is_ok() {}
        assert!(queue.shared.visit_all(Visit::BeforePark).found.is_none());
        assert!(add(50));
    }

    /// A thread that was woken is on its way, so the next one is woken when there are more than 64 keys. A push looks at its own shard
    /// alone, and takes the others to be as long.
    #[test]
    fn a_push_takes_all_shards_to_be_as_long_as_its_own() {
        let queue = WorkQueue::builder().shards(4).build();
        let parkers = [Parker::new(), Parker::new()];
        for parker in &parkers {
            let wait = Shared::take_or_wait(&queue.shared, Waiter::Thread(parker.unparker()));
            assert!(matches!(wait, Wait::Park(_)));
        }
        let mut keys = (0_u64..).filter(|key| queue.shared.hash(key).shard(4) == 2);
        let mut add = || {
            queue.add(keys.next().expect("each shard has keys"));
            let mut hub = queue.shared.hub();
            hub.getters.woken_at = None; // it is not overdue
            hub.getters.waiters.len()
        };
        let parked: Vec<_> = (0..20).map(|_| add()).collect();
        let woken_at = [1, 0].map(|left| 1 + parked.iter().position(|parked| *parked == left).expect("it is woken"));
        assert_eq!(woken_at, [1, 64 / 4 + 1]);
    }

    /// The waker of a task that no longer waits panics when it is dropped. That is caught and counted (W4).
    #[test]
    fn a_waker_may_panic_when_its_task_leaves() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: Arc<Self>) {}
        }
        impl Drop for Panics {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("as planned"));
            }
        }
        let queue = WorkQueue::<u32>::builder().driver(Driver::Manual).build();
        let task = Waiter::Task(Arc::new(Panics).into());
        let Wait::Park(ticket) = Shared::take_or_wait(&queue.shared, task) else { panic!("there is no key") };
        queue.shared.leave_getters(ticket, false);
        assert_eq!(queue.stats().caught_panics, 1);
    }
}
