//! One shard of the queue as a machine: plain data, and one function for each verb.
//!
//! ```text
//!   call ─▶ hash ─▶ lock ─▶ machine.verb(hand, …) ─▶ (answer, owed) ─▶ publish, take out whom to wake ─▶ unlock ─▶ wake, drop the hand
//!
//!   verb       given                 answer                      may owe
//!   add        key, How              queued, dirty already …     READY, DEADLINE, DIRTY
//!   get                              a key                       OVER
//!   done       held key, End         what became of it           READY, DRAINED, ADDED
//!   rest       held key, time                                    DEADLINE
//!   requeue    held key, How, End    as add                      as add and done
//!   cancel     key                   whether it was delayed      READY, DRAINED, DIRTY
//!   remove     key                   whether it was dirty, too   DRAINED, OVER
//!   expire     time, number          how many                    READY, DIRTY
//!   look       where to begin        keys that are queued …
//!   take_out   what was seen         what of it was still so     DRAINED, OVER
//!   wait_for_dirty   held key        a ticket, if it is clean
//!   shut_down                                                    DRAINED, OVER
//!   forget_failures  key
//!   shrink     where to begin
//! ```
//!
//! | file | |
//! |---|---|
//! | `add`, `get`, `done`, `take`, `look` | the verbs |
//! | `claimed`, `dirty` | the token of a held key, and the wait until that is dirty |
//! | `delays`, `expire`, `failures` | the verbs that have to do with delays and failures, and their steps in others |
//! | `rest` | keys that cool down after a run |
//! | `records` | what a lock-free queue asks |
//! | `shards` | what a queue with several shards asks of each |
//! | `shrink` | memory that the keys do not need |
//! | `later` | the wheel, and a record for each key that is delayed or has failed |
//! | `measure` | what a queue that measures does beside the verbs |
//! | `times`, `durations` | when keys became dirty and were handed out; histograms of how long they waited and were processing |
//! | `garbage` | memory that is not needed any more |
//! | `owed` | what a verb leaves to its caller, and what it is told of the queue |
//!
//! The [`order`](crate::order) says which queued key comes next. [`shared`](crate::shared) calls the verbs.
//!
//! **Pure.** There is no lock, thread, waker, clock, observer or random number in here. A time is an argument, or asked of the caller. The
//! only foreign code that runs is `Eq` of the keys, in a look-up before anything is changed, and what the caller passes to `look`, which
//! changes nothing.
//!
//! **The hand** is the caller's, an `Option<K>`. An add finds its key there, and takes it only if the key is new. A verb that forgets a key
//! puts it there. What is in the hand afterwards the caller drops after its lock. So no verb drops a key.
//!
//! **The mode** is what the caller has read of the queue under the lock. A hot call tests it once, and passes [`Mode::PLAIN`],
//! [`Mode::ORDERED`] or [`Mode::MEASURED`] as a constant. So a verb is compiled for a plain queue, for one with priorities or groups, for a
//! plain one that measures, and for all others (O1).
//!
//! **Memory** that is not needed any more is in the machine, until the caller takes it ([`Owed::GARBAGE`]) and frees it after its lock. It
//! is not in the answer of each call, because it is rare: a list for it is 20 words, which each call would write and read.

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]

mod add;
mod claimed;
mod delays;
mod dirty;
mod done;
mod durations;
mod expire;
mod failures;
mod garbage;
mod get;
mod later;
mod look;
mod measure;
mod owed;
#[cfg(feature = "lock-free")]
mod records;
mod rest;
mod shards;
mod shrink;
mod take;
#[cfg(test)]
mod tests;
mod times;

pub(crate) use crate::key::EntryRef;
pub(crate) use add::How;
pub(crate) use claimed::Claimed;
pub(crate) use delays::{Cancelled, Delay};
pub(crate) use dirty::DirtyTicket;
pub(crate) use done::{End, Ended};
#[cfg(feature = "lock-free")]
pub(crate) use durations::Durations;
pub(crate) use durations::MaybeNanos;
pub(crate) use expire::{BATCH, Expired};
pub(crate) use failures::Failure;
#[cfg(test)]
pub(crate) use failures::FailureDelay;
pub(crate) use later::{NEVER, WHEEL_IS_FULL};
pub(crate) use look::{Seen, View, Which};
pub(crate) use owed::{Mode, Owed};
pub(crate) use take::TakenOut;
pub(crate) use times::Times;

use crate::DelayedAdd;
use crate::key::{KeyHash, Table};
use crate::order::{AnyOrder, Bin, Place};
use garbage::RetiredSlots;
use later::Later;

/// See the top of this file.
pub(crate) struct Machine<K> {
    keys: Table<K>,
    order: AnyOrder<EntryRef<K>>,
    later: Later,
    /// `None`: the queue does not measure.
    times: Option<Box<Times>>,
    /// What an add does about the delay of its key.
    policy: DelayedAdd,
    /// Held keys that became dirty, until the caller takes them.
    dirty: Vec<DirtyTicket>,
    /// Memory to be freed: of the order, and chunks of slots with what was beside them.
    bin: Bin<EntryRef<K>>,
    retired: Vec<RetiredSlots<K>>,
    /// Keys that an expiry has forgotten, to be dropped.
    gone: Vec<K>,
    /// For the ends of hand-outs, which are not told whether the queue is open.
    is_shut_down: bool,
    pub(crate) counts: Counts,
}

/// Events so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) pushed: u64,
    pub(crate) coalesced: u64,
    pub(crate) deferred: u64,
    pub(crate) rejected: u64,
    pub(crate) handed_out: u64,
    pub(crate) ended: u64,
    pub(crate) delays: u64,
    pub(crate) expired: u64,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
    pub(crate) given_up: u64,
    pub(crate) taken: u64,
}

impl<K> Machine<K> {
    /// The bytes of a slot, of a record, and of the times of a key.
    #[cfg(test)]
    const BYTES: [usize; 3] = [Table::<K>::SLOT, size_of::<later::Record>(), size_of::<times::KeyTimes>()];

    /// The bytes of the keys, and of the order.
    #[cfg(test)]
    fn bytes(&self) -> [usize; 2] {
        [self.keys.bytes(), self.order.bytes()]
    }

    /// Has room for `capacity` keys, and keeps it until a [`shrink`](Self::shrink).
    pub(crate) fn new(mut order: AnyOrder<EntryRef<K>>, policy: DelayedAdd, capacity: usize) -> Self {
        if capacity > 0 {
            order.reserve(capacity);
        }
        Self {
            keys: Table::new(capacity),
            order,
            later: Later::new(Table::<K>::CHUNK),
            times: None,
            policy,
            dirty: Vec::new(),
            bin: Bin::new(),
            retired: Vec::new(),
            gone: Vec::new(),
            is_shut_down: false,
            counts: Counts::default(),
        }
    }

    /// The number of queued keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The number of queued keys that may be taken now.
    #[inline(always)]
    pub(crate) fn ready(&self, mode: Mode) -> usize {
        self.order.ready(mode.is_ordered)
    }

    pub(crate) fn processing(&self) -> usize {
        (self.counts.handed_out - self.counts.ended) as usize
    }

    pub(crate) fn delayed(&self) -> usize {
        self.later.delayed
    }

    /// The number of keys whose failures are counted here.
    pub(crate) fn failing(&self) -> usize {
        self.later.failing
    }

    /// The number of keys that are known.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.keys.len()
    }

    /// No key is queued or processing.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.len() == 0 && self.processing() == 0
    }

    /// Where the buckets of the table are, and their number: for [`prefetch_bucket`](crate::key::prefetch_bucket) before the lock.
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        self.keys.buckets()
    }

    /// Prefetches the slot that an add of this hash will read first.
    #[inline]
    pub(crate) fn prefetch_first(&self, hash: KeyHash) {
        self.keys.prefetch_first(hash);
    }

    pub(crate) fn order(&self) -> &AnyOrder<EntryRef<K>> {
        &self.order
    }

    /// No key is added any more. What is queued is still handed out, and what is dirty is queued when its processing ends.
    pub(crate) fn shut_down(&mut self) -> Owed {
        self.is_shut_down = true;
        self.drained(Mode::SHUT_DOWN).and(self.over(Mode::SHUT_DOWN))
    }

    /// After a step that may have ended the work.
    #[inline]
    fn drained(&self, mode: Mode) -> Owed {
        mode.owed_if(self.is_drained(), Owed::DRAINED)
    }

    /// After a step that may have taken the last queued key.
    #[inline]
    fn over(&self, mode: Mode) -> Owed {
        mode.owed_if(!mode.is_open && self.len() == 0, Owed::OVER)
    }

    /// Takes out a key that no bit keeps (I4), for the caller to drop after its lock. Owes what memory that leaves.
    #[inline(always)]
    fn forget(&mut self, entry: EntryRef<K>, mode: Mode) -> (K, Owed) {
        let mut owed = Owed::NOTHING;
        if mode.is_ordered {
            self.order.leave_group(entry.group(), &mut self.bin);
            owed = Owed::only_if(!self.bin.is_empty(), Owed::GARBAGE);
        }
        let key = self.keys.remove(entry);
        if self.keys.has_retired() {
            self.retire();
            owed = Owed::only_if(true, Owed::GARBAGE);
        }
        (key, owed)
    }

    /// The same, if no bit keeps the key.
    #[inline(always)]
    fn forget_if_vacant(&mut self, hand: &mut Option<K>, entry: EntryRef<K>, mode: Mode) -> Owed {
        if !entry.state().is_vacant() {
            return Owed::NOTHING;
        }
        let (key, owed) = self.forget(entry, mode);
        *hand = Some(key);
        owed
    }
}

impl<K> EntryRef<K> {
    /// Where a queued key is.
    fn place(&self) -> Place {
        Place { priority: self.priority(), group: self.group(), position: self.position() }
    }
}
