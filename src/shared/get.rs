//! `get` in all its forms, and which getters a queued key wakes.

use super::delays::ExpiredNow;
use super::measure::UNKNOWN;
use super::section::Special;
use super::{Core, STEP, Shared};
use crate::TryGetError;
use crate::key::slab::SlotRef;
use crate::panics::{contained, drop_each};
use crate::shared::measure::known;
use crate::sync::{
    Arc, MutexGuard, Ordering, Parker, give_way, model_const, now, overdue, spin_while, with_parker, yield_while,
};
use crate::time::driver::ClockSubscription;
use crate::wait::{Ticket, Waiter};
use std::time::{Duration, Instant};

/// While woken threads have not arrived, one more thread is woken for each 64 queued keys: a woken thread that the system does not run
/// must not stall the others.
const PER_WAKE: usize = model_const(64, 2);

/// With more queued keys than this, the table is larger than the nearest cache, so a get prefetches the bucket that the `done` of a later
/// key will need. This makes filling and draining 300k keys a quarter faster.
const PREFETCH_MIN_LEN: usize = 1024;
/// That key is this number of positions behind the front of the line.
const PREFETCH_DISTANCE: usize = 6;

/// A key that was taken out of the line.
#[derive(Clone, Copy)]
pub(crate) struct Taken<K> {
    pub(crate) slot: SlotRef<K>,
    /// How long it was queued, in nanoseconds, or [`UNKNOWN`].
    waited: u64,
}

impl<K> Taken<K> {
    /// How long it was queued, if that is known.
    pub(crate) fn waited(&self) -> Option<Duration> {
        known(self.waited)
    }
}

/// What [`take_or_wait`](Shared::take_or_wait) or [`resume`](Shared::resume) has found.
pub(crate) enum Wait<K> {
    Item(Taken<K>),
    ShutDown,
    /// The getter is on the list: it parks, and then calls [`resume`](Shared::resume) with the ticket.
    Sleep(Ticket),
    /// No key, and the getter has asked to give up: it is off the list.
    GaveUp,
}

impl<K> Shared<K> {
    /// Takes the first key, if there is one.
    #[inline]
    pub(crate) fn try_take(this: &Arc<Self>) -> Option<SlotRef<K>> {
        let Some(mut core) = this.core.try_lock() else {
            return Self::take_contended(this);
        };
        if core.special.has(Special::HAND_OUT) {
            return Self::take_slow(this, core);
        }
        match core.line.pop_simple() {
            Some(slot) => Some(this.taken(&mut core, slot)),
            None => Self::take_slow(this, core),
        }
    }

    /// [`try_take`](Self::try_take) of a thread that has to wait for the lock.
    #[cold]
    fn take_contended(this: &Arc<Self>) -> Option<SlotRef<K>> {
        Self::take_slow(this, this.core.lock())
    }

    /// [`try_take`](Self::try_take) of a queue that measures or has no driver thread, and at the end of a block of the line.
    #[inline(never)]
    fn take_slow(this: &Arc<Self>, mut core: MutexGuard<'_, Core<K>>) -> Option<SlotRef<K>> {
        let taken = this.take_noted(&mut core);
        drop(core);
        taken.map(|taken| Self::hand_out(this, taken))
    }

    /// After [`try_take`](Self::try_take) has found no key: tries once more, and returns the reason if there is none.
    #[cold]
    pub(crate) fn try_get_slow(this: &Arc<Self>) -> Result<SlotRef<K>, TryGetError> {
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

    /// Takes the first key out of the line.
    fn take(&self, core: &mut Core<K>) -> Option<SlotRef<K>> {
        let slot = core.line.pop()?;
        if core.line.has_retired() {
            core.owe_garbage(); // the next section that ends frees it
        }
        Some(self.taken(core, slot))
    }

    /// The key in this slot was taken out of the line. **Linearization point of a get.**
    #[inline]
    fn taken(&self, core: &mut Core<K>, slot: SlotRef<K>) -> SlotRef<K> {
        self.len.store(core.line.len(), Ordering::Relaxed); // Relaxed: see `len`
        core.counts.handed_out += 1;
        core.processing += 1;
        if core.line.len() > PREFETCH_MIN_LEN {
            core.line.peek(PREFETCH_DISTANCE).into_iter().for_each(|slot| core.table.prefetch(slot));
        }
        // SAFETY: it was queued (S2), and we hold the lock.
        unsafe { slot.get() }.state.on_get();
        slot
    }

    /// [`take`](Self::take) of a queue that may measure.
    fn take_noted(&self, core: &mut Core<K>) -> Option<Taken<K>> {
        let slot = self.take(core)?;
        let waited = if core.special.has(Special::MEASURED) { core.note_taken(slot) } else { UNKNOWN };
        Some(Taken { slot, waited })
    }

    /// Takes a key, or finds the queue shut down. `None`: no key is queued, and the queue is open.
    fn find(&self, core: &mut Core<K>) -> Option<Wait<K>> {
        match self.take_noted(core) {
            Some(taken) => Some(Wait::Item(taken)),
            None if core.is_shutting_down() => Some(Wait::ShutDown),
            None => None,
        }
    }

    /// The rest of a hand-out, after the lock. Does not panic: the key must reach its holder (P2).
    pub(crate) fn hand_out(this: &Arc<Self>, taken: Taken<K>) -> SlotRef<K> {
        if this.has_extras() {
            Self::ensure_driver(this);
            this.tell_handed_out(taken.waited());
        }
        taken.slot
    }

    /// Tells the observer of a hand-out, and catches its panic.
    pub(crate) fn tell_handed_out(&self, waited: Option<Duration>) {
        if contained(|| self.tell(|observer| observer.handed_out(waited))).is_none() {
            self.note_caught(1);
        }
    }

    /// Takes up to `max` keys, as many as are queued, some hundred at a time.
    pub(crate) fn take_many(&self, max: usize, mut each: impl FnMut(Taken<K>)) {
        let mut left = max;
        loop {
            let step = left.min(STEP);
            left -= step;
            {
                let core = &mut *self.core.lock();
                for _ in 0..step {
                    let Some(taken) = self.take_noted(core) else { return };
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
            if this.core.lock().should_yield() {
                yield_while(|| this.len() == 0);
            }
        }
        with_parker(|parker| {
            let mut wait = Self::take_or_wait(this, Waiter::Thread(parker.unparker()));
            while let Wait::Sleep(ticket) = wait {
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
        if !self.is_driver_failed() {
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
                core.handed_out_at_park = core.counts.handed_out;
                core.reset_sampling();
                Wait::Sleep(core.waiters.push(waiter.take().expect("not used yet")))
            })
        };
        this.discard(waiter); // after the lock (W4)
        wait
    }

    /// After a park, whatever ended it: takes a key, goes back on the list, or gives up. Then makes the wake-up that is owed (W2).
    pub(crate) fn resume(this: &Arc<Self>, ticket: Ticket, waiter: Waiter, give_up: bool) -> Wait<K> {
        let mut waiter = Some(waiter);
        let (wait, listed) = {
            let mut section = this.enter();
            let core = &mut *section;
            let listed = core.waiters.remove(ticket);
            if listed.is_none() && waiter.as_ref().is_some_and(Waiter::is_thread) {
                core.waking -= 1; // arrived
            }
            let wait = this.find(core).unwrap_or_else(|| {
                if give_up {
                    return Wait::GaveUp;
                }
                core.waiters.put_back(ticket, waiter.take().expect("not used yet"));
                Wait::Sleep(ticket)
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
            let listed = core.waiters.remove(ticket);
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

    /// Wakes getters for the keys that were pushed with [`Wakeups::Later`](super::add::Wakeups::Later).
    pub(crate) fn wake_for_all(&self) {
        self.enter().owe_unwoken();
    }
}

impl<K> Core<K> {
    /// A key became queued: owes a wake-up to a getter that is on the list (W2).
    #[inline]
    pub(super) fn owe_getter(&mut self) {
        if !self.waiters.is_empty() {
            self.owe_getters(1);
        }
    }

    /// Owes the wake-ups for the keys that were pushed with [`Wakeups::Later`](super::add::Wakeups::Later).
    pub(super) fn owe_unwoken(&mut self) {
        let pushed = std::mem::take(&mut self.unwoken);
        self.owe_getters(pushed);
    }

    /// This number of keys became queued: owes a wake-up to at most as many getters, and fewer if woken threads have not arrived yet.
    #[cold]
    fn owe_getters(&mut self, pushed: usize) {
        for _ in 0..pushed {
            let Some(waiter) = self.next_getter() else { return };
            self.owe_one(waiter);
        }
    }

    fn next_getter(&mut self) -> Option<Waiter> {
        let queued = self.line.len();
        if queued == 0 || queued <= self.waking * PER_WAKE && !overdue(self.woken_at) {
            return None;
        }
        let waiter = self.waiters.pop()?;
        if waiter.is_thread() {
            self.waking += 1;
            self.woken_at = now();
        }
        Some(waiter)
    }

    /// Owes a wake-up to all getters.
    pub(super) fn owe_all_getters(&mut self) {
        self.waking += self.waiters.threads();
        let getters = self.waiters.take_all();
        self.owe(getters);
    }

    /// Whether keys come so fast that a getter that finds the line empty first yields. If it shares a CPU with the producer, parking after
    /// every few keys costs most of the time (335 ns a key, and 33 if it yields). If keys come more slowly, it does not yield: the
    /// scheduler lets a thread that has yielded wait longer at its next wake-up (35 µs instead of 4).
    fn should_yield(&self) -> bool {
        self.counts.handed_out - self.handed_out_at_park >= 8
    }
}
