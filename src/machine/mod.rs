//! One shard of the queue as a machine: plain data, and one function for each verb.
//!
//! ```text
//!   call ─▶ hash ─▶ lock ─▶ machine.verb(hand, …) ─▶ (answer, owed) ─▶ publish ─▶ unlock ─▶ apply what is owed, drop the hand
//!
//!   verb       given                 answer                      may owe
//!   add        key, priority         queued, dirty already …     READY
//!   get                              a key                       OVER
//!   done       held key              what became of it           READY, DRAINED
//!   remove     key                   whether it was dirty        DRAINED, OVER
//!   look       where to begin        keys that are queued
//!   take_out   what was seen         whether it was still so     DRAINED, OVER
//!   shut_down                                                    DRAINED, OVER
//! ```
//!
//! | file | |
//! |---|---|
//! | `keys` | the keys that are known; the unsafe code of the machine |
//! | `add`, `get`, `done`, `take` | the verbs |
//! | `owed` | what a verb leaves to its caller, and what it is told of the queue |
//!
//! Which queued key comes next is the business of the [`order`](crate::order).
//!
//! **Pure.** There is no lock, thread, waker, clock, observer and random number in here. Times are arguments. The only foreign code that
//! runs is `Eq` of the keys, in a look-up before anything is changed; and what the caller passes to `look`, which changes nothing.
//!
//! **The hand** is the caller's, an `Option<K>`. An add finds its key there, and takes it only if the key is new. A verb that forgets a key
//! puts it there. What is in the hand afterwards the caller drops after its lock. So no verb drops a key.
//!
//! **Memory** that is not needed any more is in the machine, until the caller takes it ([`Owed::GARBAGE`]) and frees it after its lock. It
//! is not given back by each call, because it is rare: a call with a list of its own for it begins and ends by 20 words.

#![cfg_attr(test, allow(dead_code, reason = "the queue does not use it yet"))]

mod add;
mod done;
mod get;
mod keys;
mod owed;
mod take;
#[cfg(test)]
mod tests;

pub(crate) use done::Ended;
pub(crate) use get::Claimed;
pub(crate) use keys::EntryRef;
pub(crate) use owed::{Mode, Owed};
pub(crate) use take::Seen;

use crate::key::Retired;
use crate::order::{AnyOrder, Bin, Order, Place};
use keys::{Entry, Keys};

/// See the top of this file.
pub(crate) struct Machine<K> {
    keys: Keys<K>,
    order: AnyOrder<EntryRef<K>>,
    /// Queued keys.
    queued: usize,
    /// Keys that are queued or processing. Not as wide as `queued`: one vector instruction would count both, and its load would wait for
    /// two stores.
    active: u32,
    /// Memory of the order to be freed.
    bin: Bin<EntryRef<K>>,
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
    pub(crate) taken: u64,
}

/// Memory to be freed after the lock.
pub(crate) struct Garbage<K> {
    order: Bin<EntryRef<K>>,
    keys: Vec<Retired<Entry<K>>>,
}

impl<K> Garbage<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.keys.is_empty()
    }
}

impl<K> Machine<K> {
    pub(crate) fn new(order: AnyOrder<EntryRef<K>>) -> Self {
        Self { keys: Keys::new(0), order, queued: 0, active: 0, bin: Bin::new(), counts: Counts::default() }
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

    /// Memory to be freed after the lock: what [`Owed::GARBAGE`] speaks of.
    #[cold]
    pub(crate) fn take_garbage(&mut self) -> Garbage<K> {
        Garbage { order: std::mem::replace(&mut self.bin, Bin::new()), keys: self.keys.take_retired() }
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

    /// After a step of the order that may have left memory.
    #[inline]
    fn garbage(&self) -> Owed {
        Owed::only_if(!self.bin.is_empty() || self.keys.has_retired(), Owed::GARBAGE)
    }

    /// Takes out a key that no bit keeps (I4), for the caller to drop after its lock.
    #[inline(always)]
    fn forget(&mut self, entry: EntryRef<K>) -> K {
        self.order.leave(entry.group(), &mut self.bin);
        self.keys.remove(entry)
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
