//! `get` in all its forms.

use super::driver::ExpiredNow;
use super::section::Special;
use super::{Core, Shared};
use crate::TryGetError;
use crate::key::Claimed;
use crate::panics::{contained, drop_each};
use crate::shard::MaybeNanos;
use crate::sync::{Arc, MutexGuard, Parker, give_way, model_const, spin_while, with_parker, yield_while};
use crate::time::driver::ClockSubscription;
use crate::wait::{Ticket, Waiter};
use std::time::{Duration, Instant};

/// The number of keys that one critical section of `get_many` takes.
const TAKEN_AT_ONCE: usize = model_const(256, 2);

/// A key that was taken out of the line.
pub(crate) struct Taken<K> {
    pub(crate) claimed: Claimed<K>,
    waited: MaybeNanos,
}

impl<K> Taken<K> {
    /// How long it was queued, if that is known.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.waited.duration()
    }
}

/// What [`take_or_wait`](Shared::take_or_wait) or [`resume`](Shared::resume) has found.
pub(crate) enum Wait<K> {
    Item(Taken<K>),
    ShutDown,
    /// The getter is on the list: it parks, and then calls [`resume`](Shared::resume) with the ticket.
    Park(Ticket),
    /// No key, and the getter has asked to give up: it is off the list.
    GaveUp,
}

impl<K> Shared<K> {
    /// Takes the first key, if there is one.
    #[inline]
    pub(crate) fn try_take(this: &Arc<Self>) -> Option<Claimed<K>> {
        let Some(mut core) = this.core.try_lock() else {
            return Self::take_contended(this);
        };
        if core.special.has(Special::HAND_OUT) {
            return Self::take_slow(this, core);
        }
        match core.shard.pop_simple() {
            Some(claimed) => {
                this.publish_len(&core);
                Some(claimed)
            }
            None => Self::take_slow(this, core),
        }
    }

    /// [`try_take`](Self::try_take) of a thread that has to wait for the lock.
    #[cold]
    fn take_contended(this: &Arc<Self>) -> Option<Claimed<K>> {
        Self::take_slow(this, this.core.lock())
    }

    /// [`try_take`](Self::try_take) if the lock was held, if the queue measures or has to start its driver thread, and if the line is
    /// empty, or its next entry is the last of a block or was removed.
    #[inline(never)]
    fn take_slow(this: &Arc<Self>, mut core: MutexGuard<'_, Core<K>>) -> Option<Claimed<K>> {
        let taken = this.take(&mut core);
        drop(core);
        taken.map(|taken| Self::hand_out(this, taken))
    }

    /// After [`try_take`](Self::try_take) has found no key: tries once more, and returns the reason if there is none.
    #[cold]
    pub(crate) fn try_get_slow(this: &Arc<Self>) -> Result<Claimed<K>, TryGetError> {
        let found = this.find(&mut this.core.lock());
        match found {
            Some(Wait::Item(taken)) => Ok(Self::hand_out(this, taken)),
            Some(_) => Err(TryGetError::ShutDown),
            None => {
                Self::ensure_driver(this);
                Err(TryGetError::Empty)
            }
        }
    }

    /// Takes the first key.
    fn take(&self, core: &mut Core<K>) -> Option<Taken<K>> {
        let (claimed, waited) = core.shard.pop()?;
        self.publish_len(core);
        Some(Taken { claimed, waited })
    }

    /// Takes a key, or finds the queue shut down. `None`: no key is queued, and the queue is open.
    fn find(&self, core: &mut Core<K>) -> Option<Wait<K>> {
        match self.take(core) {
            Some(taken) => Some(Wait::Item(taken)),
            None if core.is_shutting_down() => Some(Wait::ShutDown),
            None => None,
        }
    }

    /// The rest of a hand-out, after the lock. Does not panic: the key must reach its holder (P2).
    pub(crate) fn hand_out(this: &Arc<Self>, taken: Taken<K>) -> Claimed<K> {
        if this.has_extras() {
            Self::ensure_driver(this);
            this.tell_handed_out(taken.waited());
        }
        taken.claimed
    }

    /// Tells the observer of a hand-out, and catches its panic.
    pub(crate) fn tell_handed_out(&self, waited: Option<Duration>) {
        if contained(|| self.tell(|observer| observer.handed_out(waited))).is_none() {
            self.note_caught(1);
        }
    }

    /// Takes up to `max` keys, as many as are queued, [`TAKEN_AT_ONCE`] in a critical section.
    pub(crate) fn take_many(&self, max: usize, mut each: impl FnMut(Taken<K>)) {
        let mut left = max;
        loop {
            let step = left.min(TAKEN_AT_ONCE);
            left -= step;
            {
                let core = &mut *self.core.lock();
                for _ in 0..step {
                    let Some(taken) = self.take(core) else { return };
                    each(taken);
                }
            }
            if left == 0 {
                return;
            }
            give_way();
        }
    }

    /// Takes a key. If none is queued, parks until one is, or until the deadline.
    #[cold]
    pub(crate) fn get_parked(this: &Arc<Self>, deadline: Option<Instant>) -> Wait<K> {
        Self::ensure_driver(this);
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            spin_while(|| this.len() == 0);
            let should_yield = this.core.lock().should_yield();
            if should_yield {
                yield_while(|| this.len() == 0);
            }
        }
        with_parker(|parker| {
            let mut wait = Self::take_or_wait(this, Waiter::Thread(parker.unparker()));
            while let Wait::Park(ticket) = wait {
                this.park(parker, deadline);
                let late = deadline.is_some_and(|deadline| deadline <= Instant::now());
                wait = Self::resume(this, ticket, Waiter::Thread(parker.unparker()), late);
            }
            wait
        })
    }

    /// Parks a getter that is on the list. If there is no driver thread, the getter first adds the keys whose delays have expired, and
    /// parks until the earliest deadline at most.
    fn park(&self, parker: &Parker, deadline: Option<Instant>) {
        if !self.is_driver_missing() {
            return parker.park(deadline);
        }
        let _subscription = ClockSubscription::new(&self.clock, parker);
        match self.expire_due() {
            ExpiredNow::Nothing { until } => parker.park(deadline.into_iter().chain(until).min()),
            // Does not park: wakers and observers have run on this thread, and if they parked it, they have used up its wake-up.
            ExpiredNow::Some => {}
        }
    }

    /// Takes a key, or goes on the list (W1).
    pub(crate) fn take_or_wait(this: &Arc<Self>, waiter: Waiter) -> Wait<K> {
        let mut waiter = Some(waiter);
        let wait = {
            let core = &mut *this.core.lock();
            this.find(core).unwrap_or_else(|| {
                core.shard.reset_sampling();
                let waiter = waiter.take().expect("not used yet");
                Wait::Park(core.getters.push(waiter, core.shard.counts.handed_out))
            })
        };
        this.discard(waiter); // after the lock (W4)
        wait
    }

    /// After a park, whatever ended it: takes a key, goes back on the list, or gives up. Then owes the next getter a wake-up (W2).
    pub(crate) fn resume(this: &Arc<Self>, ticket: Ticket, waiter: Waiter, give_up: bool) -> Wait<K> {
        let mut waiter = Some(waiter);
        let (wait, listed) = {
            let mut section = this.enter();
            let core = &mut *section;
            let listed = core.getters.arrive(ticket, waiter.as_ref().expect("not used yet"));
            let wait = this.find(core).unwrap_or_else(|| {
                if give_up {
                    return Wait::GaveUp;
                }
                core.getters.put_back(ticket, waiter.take().expect("not used yet"));
                Wait::Park(ticket)
            });
            // W2, if keys are left. W3 holds because the getter has looked at the line once more before it gives up.
            core.owe_getter();
            (wait, listed)
        };
        this.discard(listed); // after the lock (W4)
        this.discard(waiter);
        wait
    }

    /// A future is dropped without having taken a key (W3).
    pub(crate) fn leave(&self, ticket: Ticket) {
        let listed = {
            let core = &mut *self.enter();
            let listed = core.getters.leave(ticket);
            if listed.is_none() {
                core.owe_getter();
            }
            listed
        };
        self.discard(listed);
    }

    /// Drops a waiter that need not be woken. Not under the lock (W4).
    #[inline]
    fn discard(&self, waiter: Option<Waiter>) {
        if let Some(waiter @ Waiter::Task(_)) = waiter {
            self.note_caught(drop_each([waiter]));
        }
    }
}

impl<K> Core<K> {
    fn should_yield(&self) -> bool {
        self.getters.should_yield(self.shard.counts.handed_out)
    }
}
