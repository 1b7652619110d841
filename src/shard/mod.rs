//! The data under one lock, and every step on it: keys, their order, delays, failures and times.
//!
//! ```text
//!            add                     get                      done
//!             │                       │                        │
//!             ▼                       ▼                        ▼
//!  ┌─ Shard ─────────────────────────────────────────────────────────────────────────┐
//!  │  table: key ─▶ slot (state word, key)      line: queued slots, in order          │
//!  │  order: queued slots by priority and group, instead of the line                  │
//!  │  later: deadlines and failures of slots    times: when keys were queued, started │
//!  │  effects: what the end of the critical section wakes and frees                   │
//!  └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A step is a method of plain data: it takes no lock, wakes no thread, drops no key and calls no foreign code but that of P17. It knows
//! nothing of getters, drivers, shut-downs and observers. What it owes to others, it returns, or puts into [`Effects`].
//!
//! One file per kind of step: [`known`] (a key that is in the table, and the adds of it), [`order`], [`delays`], [`expire`], [`failures`], [`times`],
//! [`dirty_waiters`], [`visit`] (steps over many keys), [`effects`].

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]

mod delays;
mod dirty_waiters;
mod effects;
mod expire;
mod failures;
mod known;
mod order;
mod times;
mod visit;

pub(crate) use delays::{Delay, NEVER, WHEEL_IS_FULL};
pub(crate) use dirty_waiters::DirtyTicket;
pub(crate) use effects::Effects;
pub(crate) use expire::{BATCH, Turn};
pub(crate) use known::{AddedWith, Known, TakenBack};
pub(crate) use order::OrderSettings;
pub(crate) use times::MaybeNanos;
pub(crate) use visit::{CHUNKS, FoundKey, FoundQueued, Place, READ_CHUNKS, STEP};

use crate::key::{Claimed, Done, Hash, Queued, Table};
use crate::line::{Fifo, Group, Line, Ordered};
use crate::stats::Stats;
use crate::time::clock::Clock;
use crate::{DelayedAdd, Priority};
use delays::Later;
use dirty_waiters::DirtyWaiters;
use times::Times;

/// With more queued keys than this, the table is larger than the nearest cache, so a get prefetches the bucket that the `done` of a later
/// key will need. This makes filling and draining 300k keys a quarter faster.
const PREFETCH_MIN_LEN: usize = 1024;
/// That key is this number of positions behind the front of the line.
const PREFETCH_DISTANCE: usize = 6;

/// The data under one lock.
pub(crate) struct Shard<K> {
    effects: Effects<K>,
    table: Table<K>,
    line: Fifo<Queued<K>>,
    /// `None`: the queue is first in, first out.
    order: Option<Box<Ordered<Queued<K>>>>,
    order_settings: OrderSettings,
    later: Later,
    /// What an add does about the delay of its key.
    delayed_add: DelayedAdd,
    /// Keys that are processing.
    processing: usize,
    /// Tasks that wait until a key that is processing becomes dirty.
    dirty_waiters: DirtyWaiters,
    /// `None`: the queue does not measure.
    times: Option<Box<Times>>,
    pub(crate) counts: Counts,
    /// The number of critical sections so far.
    #[cfg(keyqueue_steps)]
    pub(crate) steps: u64,
}

/// The number of events so far, for [`Stats`].
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) pushed: u64,
    pub(crate) coalesced: u64,
    pub(crate) deferred: u64,
    pub(crate) rejected: u64,
    pub(crate) handed_out: u64,
    pub(crate) delays: u64,
    pub(crate) expired: u64,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
    pub(crate) given_up: u64,
    pub(crate) taken: u64,
}

impl<K> Shard<K> {
    /// `measure`: the clock of a queue that measures. `stamp`: see [`Fifo::new`].
    pub(crate) fn new(
        capacity: usize,
        order_settings: OrderSettings,
        delayed_add: DelayedAdd,
        measure: Option<Clock>,
        stamp: Option<fn() -> u64>,
    ) -> Self {
        Self {
            effects: Effects::default(),
            table: Table::new(capacity),
            line: Fifo::new(capacity, stamp),
            order: order_settings.fair.then(|| Self::make_order(order_settings, stamp)),
            order_settings,
            later: Later::new(Table::<K>::CHUNK),
            delayed_add,
            processing: 0,
            dirty_waiters: DirtyWaiters::default(),
            times: measure.map(|clock| Box::new(Times::new(clock, Table::<K>::CHUNK))),
            counts: Counts::default(),
            #[cfg(keyqueue_steps)]
            steps: 0,
        }
    }

    /// The number of queued keys.
    pub(crate) fn len(&self) -> usize {
        self.line.len() + self.order.as_ref().map_or(0, |order| order.len())
    }

    /// The number of keys in the line: all queued keys, unless the shard is [ordered](Self::is_ordered).
    #[inline]
    pub(crate) fn line_len(&self) -> usize {
        self.line.len()
    }

    /// The number of processing keys.
    pub(crate) fn processing(&self) -> usize {
        self.processing
    }

    /// The number of delayed keys.
    pub(crate) fn delayed(&self) -> usize {
        self.later.delayed
    }

    /// No key is queued or processing.
    pub(crate) fn is_drained(&self) -> bool {
        self.len() == 0 && self.processing == 0
    }

    /// A time before the push of the first queued key: see [`Fifo::front_stamp`]. `None`: no stamps, or the shard is ordered.
    #[inline]
    pub(crate) fn front_stamp(&self) -> Option<u64> {
        if self.is_ordered() { None } else { self.line.front_stamp() }
    }

    /// A number that each add that changes anything makes greater.
    pub(crate) fn activity(&self) -> u64 {
        self.counts.pushed.wrapping_add(self.counts.deferred).wrapping_add(self.counts.delays)
    }

    /// Where the table's buckets are, and their number.
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        self.table.buckets()
    }

    /// Refuses an add.
    #[inline]
    pub(crate) fn reject(&mut self) -> crate::Added {
        self.counts.rejected += 1;
        crate::Added::Rejected
    }

    /// `add` of a key that is not in the table. **Linearization point of such an add.**
    #[inline(always)]
    pub(crate) fn add_new(&mut self, key: K, hash: Hash) {
        let queued = self.table.insert_queued(key, hash);
        self.counts.pushed += 1;
        self.push(queued);
    }

    /// [`add_new`](Self::add_new) in a queue that may measure.
    #[inline(never)]
    pub(crate) fn add_new_measured(&mut self, key: K, hash: Hash, now: Option<u64>) {
        let queued = self.table.insert_queued(key, hash);
        self.counts.pushed += 1;
        if let Some(times) = &mut self.times {
            times.added(self.table.number(queued.view()), now);
        }
        self.push(queued);
    }

    /// Queues a key (I5), in a queue that is not ordered.
    #[inline]
    fn push(&mut self, queued: Queued<K>) {
        self.line.push(queued, ());
    }

    /// [`pop`](Self::pop), if that is a few instructions. `None`: call `pop`. Only for a queue that does not measure.
    #[inline]
    pub(crate) fn pop_simple(&mut self) -> Option<Claimed<K>> {
        let queued = self.line.pop_simple()?;
        Some(self.claim(queued))
    }

    /// Takes the first key out of the line, and says how long it was queued.
    pub(crate) fn pop(&mut self) -> Option<(Claimed<K>, MaybeNanos)> {
        let queued = self.line.pop()?;
        if self.line.has_retired() {
            self.effects.owe_garbage(); // the next section that ends frees it
        }
        Some(self.claim_measured(queued, Priority::NORMAL.0))
    }

    #[inline]
    fn claim_measured(&mut self, queued: Queued<K>, priority: i8) -> (Claimed<K>, MaybeNanos) {
        let claimed = self.claim(queued);
        let waited = match &mut self.times {
            Some(times) => times.started(self.table.number(claimed.view()), priority),
            None => MaybeNanos::UNKNOWN,
        };
        (claimed, waited)
    }

    /// A key was taken out of the line.
    #[inline]
    fn claim(&mut self, queued: Queued<K>) -> Claimed<K> {
        self.counts.handed_out += 1;
        self.processing += 1;
        if self.line.len() > PREFETCH_MIN_LEN {
            self.line.peek(PREFETCH_DISTANCE).into_iter().for_each(|later| self.table.prefetch(later.view()));
        }
        queued.claim()
    }

    /// `done`, by the holder.
    #[inline(always)] // as `Table::done`
    pub(crate) fn done(&mut self, claimed: Claimed<K>) -> Ended<K> {
        self.processing -= 1;
        match self.table.done(claimed) {
            Done::Push(queued) => {
                self.push(queued);
                Ended::Queued
            }
            Done::Keep => Ended::Kept,
            Done::Removed(key) => {
                self.note_removed();
                Ended::Removed(key)
            }
        }
    }

    /// How long a key was processing, if the queue measures. Called before [`done`](Self::done).
    #[inline]
    pub(crate) fn note_end(&mut self, claimed: &Claimed<K>, now: Option<u64>) -> MaybeNanos {
        match &mut self.times {
            Some(times) => times.ended(self.table.number(claimed.view()), now),
            None => MaybeNanos::UNKNOWN,
        }
    }

    /// The numbers of this shard. The caller adds the numbers of getters and drains.
    pub(crate) fn stats(&mut self, clock: &Clock) -> Stats {
        let now = self.now_for_ages(clock);
        let mut stats = Stats {
            len: self.len(),
            processing: self.processing,
            delayed: self.later.delayed,
            failing: self.later.failing,
            pushed: self.counts.pushed,
            coalesced: self.counts.coalesced,
            deferred: self.counts.deferred,
            rejected: self.counts.rejected,
            handed_out: self.counts.handed_out,
            delays: self.counts.delays,
            expired: self.counts.expired,
            retries: self.counts.retries,
            failures: self.counts.failures,
            given_up: self.counts.given_up,
            taken: self.counts.taken,
            next_deadline: self.later.next_deadline(now),
            ..Stats::default()
        };
        if let Some(times) = &self.times {
            self.line.skip_removed();
            self.effects.pending |= self.line.has_retired();
            if let Some(order) = self.order.as_ref().filter(|order| order.len() > 0) {
                times.describe_oldest_of(order.firsts().take(1024), now, &mut stats);
                return stats;
            }
            // Not all positions: thousands of removed entries may be between the first ones.
            let first = self.line.positions().take(4096).filter_map(|position| self.line.get(position));
            let numbers = first.take(times::FIRST_MEASURED).map(|queued| self.table.number(queued.view()));
            times.describe(numbers, now, &mut stats);
        }
        stats
    }
}

/// What a slow add knows of a key that is new.
#[derive(Clone, Copy, Default)]
pub(crate) struct NewKey {
    /// The time, if the call has read the clock.
    pub(crate) now: Option<u64>,
    pub(crate) group: Group,
    pub(crate) priority: i8,
}

/// What became of a key that was done.
pub(crate) enum Ended<K> {
    /// It is queued again: it was added while it was processing.
    Queued,
    /// It is delayed, or has failed.
    Kept,
    /// It is out of the queue (I4). The caller drops it after the lock.
    Removed(K),
}
