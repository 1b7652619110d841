//! One shard of the queue as a machine: plain data, with one function for each verb.
//!
//! ```text
//!   call ─▶ hash ─▶ lock ─▶ machine.verb(hand, …) ─▶ (answer, owed) ─▶ publish, take out whom to wake ─▶ unlock ─▶ wake, drop the hand
//! ```
//!
//! Most verbs are in a file of their name; `requeue` is in `done`, `cancel` in `delays`, `remove` and `take_out` in `take`.
//! [`shared`](crate::shared) calls them, and the [`order`](crate::order) says which queued key comes next.
//!
//! **Pure.** There is no lock, thread, waker, clock, observer or random number in here; a time comes from the caller. The only foreign code
//! that a verb runs is `Eq` of the keys, before it changes anything, and what the caller passes to `look`, which changes nothing.
//!
//! **The hand** is an `Option<K>` of the caller. An add finds its key there, and takes it only if the key is new; a verb that forgets a key
//! puts it there. The caller drops what is left after the unlock, so that no `Drop` of a key runs under the lock.
//!
//! **The mode** is what the caller has read of the queue under the lock. A hot call passes a constant, such as [`Mode::PLAIN`], so that a
//! plain queue has code of its own (O1).
//!
//! **Memory** to be freed stays in the machine until the caller takes it ([`Owed::GARBAGE`]). It is not part of an answer, because then
//! each call would write and read a list that is rarely used.

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
mod groups;
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
pub(crate) use add::{Found, How};
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
pub(crate) use groups::GroupSeen;
pub(crate) use later::{NEVER, WHEEL_IS_FULL};
pub(crate) use look::{KeySeen, Seen, View, Which};
pub(crate) use measure::Ages;
pub(crate) use owed::{Mode, Owed};
#[cfg(feature = "lock-free")]
pub(crate) use take::TakenOut;
pub(crate) use times::Times;

use crate::DelayedAdd;
use crate::key::{KeyHash, SideArray, Table};
use crate::order::{AnyOrder, Bin, Groups, Place};
use garbage::RetiredSlots;
use later::Later;

/// See the top of this file.
pub(crate) struct Machine<K> {
    keys: Table<K>,
    order: AnyOrder<EntryRef<K>>,
    later: Later,
    /// `None`: the queue does not measure.
    times: Option<Box<Times>>,
    /// When each key that is processing was handed out, if groups pay for the time.
    starts: Option<SideArray<u64>>,
    /// What a plain add does about a retry of its key.
    policy: DelayedAdd,
    /// A pointer, because it is rarely used, and the fields that hot calls use should lie close to each other.
    news: Box<News>,
    /// Memory to be freed, of the order and of the slots.
    bin: Bin<EntryRef<K>>,
    retired: Vec<RetiredSlots<K>>,
    /// Keys that an expiry has forgotten, for the caller to drop.
    gone: Vec<K>,
    /// For `done`, whose mode does not say whether the queue is open.
    is_shut_down: bool,
    pub(crate) counts: Counts,
}

/// What the caller is told of keys.
#[derive(Default)]
struct News {
    /// Held keys that became dirty, for the caller to take.
    dirty: Vec<DirtyTicket>,
    /// The hashes of keys that were forgotten, for the caller to take, if it wants them.
    forgotten: Vec<KeyHash>,
    wants_forgotten: bool,
    /// How many keys are no longer known, for the caller to take.
    left: u64,
}

/// How often each event has happened.
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
    #[cfg(test)]
    const BYTES: [usize; 3] = [Table::<K>::SLOT, size_of::<later::Record>(), size_of::<times::KeyTimes>()];

    #[cfg(test)]
    fn bytes(&self) -> [usize; 2] {
        [self.keys.bytes(), self.order.bytes()]
    }

    /// With room for `capacity` keys, which the machine keeps until a [`shrink`](Self::shrink).
    pub(crate) fn new(mut order: AnyOrder<EntryRef<K>>, policy: DelayedAdd, capacity: usize) -> Self {
        if capacity > 0 {
            order.reserve(capacity);
        }
        let order_is_by_work = order.as_groups().is_some_and(Groups::is_by_work);
        Self {
            keys: Table::new(capacity),
            order,
            later: Later::new(Table::<K>::CHUNK),
            times: None,
            starts: order_is_by_work.then(|| SideArray::new(Table::<K>::CHUNK)),
            policy,
            news: Box::default(),
            bin: Bin::new(),
            retired: Vec::new(),
            gone: Vec::new(),
            is_shut_down: false,
            counts: Counts::default(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The number of queued keys that a `get` may hand out now, because their groups are not full.
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

    /// The number of keys whose failures the machine counts.
    pub(crate) fn failing(&self) -> usize {
        self.later.failing
    }

    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.keys.len()
    }

    /// No key is queued or processing.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.len() == 0 && self.processing() == 0
    }

    /// The address of the table's buckets and their number, for [`prefetch_bucket`](crate::key::prefetch_bucket) before the lock.
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        self.keys.buckets()
    }

    #[inline]
    pub(crate) fn prefetch_first(&self, hash: KeyHash) {
        self.keys.prefetch_first(hash);
    }

    pub(crate) fn order(&self) -> &AnyOrder<EntryRef<K>> {
        &self.order
    }

    /// Refuses adds from now on. Queued keys are still handed out, and dirty ones are queued when their processing ends.
    pub(crate) fn shut_down(&mut self) -> Owed {
        self.is_shut_down = true;
        self.drained(Mode::SHUT_DOWN).and(self.over(Mode::SHUT_DOWN))
    }

    /// What a step owes that may have ended the work.
    #[inline]
    fn drained(&self, mode: Mode) -> Owed {
        mode.owed_if(self.is_drained(), Owed::DRAINED)
    }

    /// What a step owes that may have taken the last queued key.
    #[inline]
    fn over(&self, mode: Mode) -> Owed {
        mode.owed_if(!mode.is_open && self.len() == 0, Owed::OVER)
    }

    /// What is owed if this key, which was known before the verb, is known no longer.
    #[inline(always)]
    fn room_of(&mut self, entry: EntryRef<K>, mode: Mode) -> Owed {
        let has_left = mode.is_bounded && !entry.state().is_known();
        self.news.left += u64::from(has_left);
        Owed::only_if(has_left, Owed::ROOM)
    }

    /// The number of keys that are no longer known since the last call.
    pub(crate) fn take_left(&mut self) -> u64 {
        std::mem::take(&mut self.news.left)
    }

    /// Takes out a key that no bit keeps (I4), for the caller to drop after its lock.
    #[inline(always)]
    fn forget(&mut self, entry: EntryRef<K>, mode: Mode) -> (K, Owed) {
        let mut owed = Owed::NOTHING;
        if mode.is_ordered {
            if self.order.has_groups() {
                self.order.leave_group(entry.group(), &mut self.bin);
                if self.news.wants_forgotten {
                    self.news.forgotten.push(entry.hash());
                }
                owed = self.earlier();
            }
            owed = owed.and(Owed::only_if(!self.bin.is_empty(), Owed::GARBAGE));
        }
        let key = self.keys.remove(entry);
        if self.keys.has_retired() {
            self.retire();
            owed = owed.and(Owed::only_if(true, Owed::GARBAGE));
        }
        (key, owed)
    }

    /// Puts a key into the hand if no bit keeps it.
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
    fn place(&self) -> Place {
        Place { priority: self.priority(), group: self.group(), position: self.position() }
    }
}
