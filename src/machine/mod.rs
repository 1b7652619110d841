//! One shard of the queue as a machine: plain data, and one function for each verb.
//!
//! ```text
//!   call ─▶ hash ─▶ lock ─▶ machine.verb(hand, …) ─▶ (answer, owed) ─▶ publish ─▶ unlock ─▶ apply what is owed, drop the hand
//!
//!   verb       given                 answer                      may owe
//!   add        key, How              queued, dirty already …     READY, DEADLINE
//!   get                              a key                       OVER
//!   done       held key, End         what became of it           READY, DRAINED
//!   requeue    held key, How, End    as add                      as add and done
//!   cancel     key                   whether it was delayed      READY, DRAINED
//!   remove     key                   whether it was dirty, too   DRAINED, OVER
//!   expire     time                  how many                    READY
//!   look       where to begin        what is queued, or delayed
//!   take_out   what was seen         whether it was still so     DRAINED, OVER
//!   take_delay                       a delay, and its key        DRAINED
//!   put_back   key, delay                                        DEADLINE
//!   shut_down                                                    DRAINED, OVER
//!   shrink     where to begin
//! ```
//!
//! | file | |
//! |---|---|
//! | `keys` | the keys that are known; the unsafe code of the machine |
//! | `add`, `get`, `done`, `take` | the verbs |
//! | `delays`, `expire`, `failures` | the verbs that have to do with delays and failures, and their steps in others |
//! | `batch` | what comes before the verbs of many keys |
//! | `shards` | what a queue with several shards asks of each |
//! | `shrink` | memory that the keys do not need |
//! | `later` | the wheel, and a record for each key that is delayed or has failed |
//! | `garbage` | memory that is not needed any more |
//! | `owed` | what a verb leaves to its caller, and what it is told of the queue |
//!
//! Which queued key comes next is the business of the [`order`](crate::order).
//!
//! **Pure.** There is no lock, thread, waker, clock, observer and random number in here. Times are arguments. The only foreign code that
//! runs is `Eq` of the keys, in a look-up before anything is changed; `Clone` in `take_delay`, which undoes its step if that panics; and
//! what the caller passes to `look`, which changes nothing.
//!
//! **The hand** is the caller's, an `Option<K>`. An add finds its key there, and takes it only if the key is new. A verb that forgets a key
//! puts it there. What is in the hand afterwards the caller drops after its lock. So no verb drops a key.
//!
//! **Memory** that is not needed any more is in the machine, until the caller takes it ([`Owed::GARBAGE`]) and frees it after its lock. It
//! is not given back by each call, because it is rare: a call with a list of its own for it begins and ends by 20 words.

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]
#![cfg_attr(test, allow(dead_code, reason = "the queue does not use it yet"))]

mod add;
mod batch;
mod delays;
mod done;
mod expire;
mod failures;
mod garbage;
mod get;
mod keys;
mod later;
mod owed;
mod shards;
mod shrink;
mod take;
#[cfg(test)]
mod tests;

pub(crate) use add::How;
pub(crate) use delays::{Cancelled, Delay};
pub(crate) use done::{End, Ended};
pub(crate) use failures::Failure;
pub(crate) use get::Claimed;
pub(crate) use keys::EntryRef;
pub(crate) use owed::{Mode, Owed};
pub(crate) use take::{Seen, SeenDelay};

use crate::DelayedAdd;
use crate::order::{AnyOrder, Bin, Order, Place};
use garbage::RetiredSlots;
use keys::Keys;
use later::Later;

/// See the top of this file.
pub(crate) struct Machine<K> {
    keys: Keys<K>,
    order: AnyOrder<EntryRef<K>>,
    later: Later,
    /// What an add does about the delay of its key.
    policy: DelayedAdd,
    /// Queued keys.
    queued: usize,
    /// Keys that are queued or processing. Not as wide as `queued`: one vector instruction would count both, and its load would wait for
    /// two stores.
    active: u32,
    /// Memory to be freed: of the order, and chunks of slots with what was beside them.
    bin: Bin<EntryRef<K>>,
    retired: Vec<RetiredSlots<K>>,
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
    pub(crate) delays: u64,
    pub(crate) expired: u64,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
    pub(crate) given_up: u64,
    pub(crate) taken: u64,
}

impl<K> Machine<K> {
    /// The bytes of a slot, and of a record.
    #[cfg(test)]
    const BYTES: [usize; 2] = [Keys::<K>::BYTES, size_of::<later::Record>()];

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
            keys: Keys::new(capacity),
            order,
            later: Later::new(Keys::<K>::CHUNK),
            policy,
            queued: 0,
            active: 0,
            bin: Bin::new(),
            retired: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The number of queued keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queued
    }

    /// The number of queued keys that may be taken now.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.queued - self.order.blocked()
    }

    pub(crate) fn processing(&self) -> usize {
        self.active as usize - self.queued
    }

    pub(crate) fn delayed(&self) -> usize {
        self.later.delayed
    }

    /// The number of keys whose failures are counted here.
    pub(crate) fn failing(&self) -> usize {
        self.later.failing
    }

    /// The number of keys that are known.
    pub(crate) fn known(&self) -> usize {
        self.keys.len()
    }

    /// No key is queued or processing.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.active == 0
    }

    pub(crate) fn order(&self) -> &AnyOrder<EntryRef<K>> {
        &self.order
    }

    /// No key is added any more. What is queued is still handed out, and what is dirty is queued when its processing ends.
    pub(crate) fn shut_down(&mut self) -> Owed {
        self.drained().and(self.over(Mode { is_open: false }))
    }

    /// After a step that may have ended the work.
    #[inline]
    fn drained(&self) -> Owed {
        Owed::only_if(self.active == 0, Owed::DRAINED)
    }

    /// After a step that may have taken the last queued key.
    #[inline]
    fn over(&self, mode: Mode) -> Owed {
        Owed::only_if(!mode.is_open && self.queued == 0, Owed::OVER)
    }

    /// Takes out a key that no bit keeps (I4), for the caller to drop after its lock.
    #[inline(always)]
    fn forget(&mut self, entry: EntryRef<K>) -> K {
        self.order.leave(entry.group(), &mut self.bin);
        let key = self.keys.remove(entry);
        if self.keys.has_retired() {
            self.retire();
        }
        key
    }

    /// The same, if no bit keeps the key.
    fn forget_if_vacant(&mut self, hand: &mut Option<K>, entry: EntryRef<K>) {
        if entry.state().is_vacant() {
            *hand = Some(self.forget(entry));
        }
    }
}

impl<K> EntryRef<K> {
    /// Where a queued key is.
    fn place(&self) -> Place {
        Place { priority: self.priority(), group: self.group(), position: self.position() }
    }
}
