//! The steps of a queue whose keys have priorities or groups.
//!
//! Other queues are first in, first out: their keys are in the `line`. With the first call that gives a priority, the queued keys of its
//! shard move to the `order`, some at a time:
//!
//! ```text
//!   add ──▶ line ──── moves, the first first ────▶ order ──▶ get
//! ```
//!
//! * **O1** A shard has an order only after the queue's flag `ORDERED` was set. It makes the hot calls take their slow paths, which look for
//!   the order; so a queue without it pays nothing.
//! * **O2** While keys move, all queued keys have the priority NORMAL, and adds go to the line: so a get takes from the order first.
//! * **O3** A call that gives a priority makes its step after the keys have moved. A queue with groups has its order from the beginning.

use super::{AddedWith, Ended, Known, MaybeNanos, NewKey, PREFETCH_MIN_LEN, Shard};
use crate::key::{Claimed, Done, Hash, OnAdd, Queued};
use crate::line::{Group, KeyOrder, Line, Ordered};
use crate::{AddOptions, Added, DelayConflict, DelayedAdd, Priority};

/// How the queue orders its keys.
#[derive(Clone, Copy, Default)]
pub(crate) struct OrderSettings {
    /// Lower levels wait while higher ones have keys.
    pub(crate) strict: bool,
    /// Groups take turns.
    pub(crate) fair: bool,
    /// The number of keys of a group that may be processing.
    pub(crate) limit: Option<u32>,
}

impl<K> Shard<K> {
    pub(super) fn make_order(settings: OrderSettings, stamp: Option<fn() -> u64>) -> Box<Ordered<Queued<K>>> {
        let OrderSettings { strict, fair, limit } = settings;
        Box::new(Ordered::new(crate::key::Table::<K>::CHUNK, strict, fair, limit, stamp))
    }

    /// Moves this number of queued keys from the line to the order, which is made if there is none. `true`: there are more.
    pub(crate) fn move_to_order(&mut self, count: usize) -> bool {
        if self.order.is_none() {
            self.order = Some(Self::make_order(self.order_settings, self.line.stamp()));
        }
        let order = self.order.as_mut().expect("made above");
        for _ in 0..count {
            self.line.skip_removed();
            let (position, stamp) = (self.line.positions().start, self.line.front_stamp());
            let Some(queued) = self.line.pop() else { break };
            order.push_moved(self.table.number(queued.view()), queued, position, stamp);
        }
        self.effects.pending |= self.line.has_retired();
        self.line.len() > 0
    }

    /// Keys have priorities or groups.
    #[inline]
    pub(crate) fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    /// Groups may be full.
    pub(crate) fn has_limit(&self) -> bool {
        self.order_settings.limit.is_some()
    }

    /// The number of queued keys that a getter may take: keys of full groups do not count.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.line.len() + self.order.as_ref().map_or(0, |order| order.ready())
    }

    /// The priority of the key whose turn is next, and a time before its push.
    #[inline]
    pub(crate) fn ordered_front(&self) -> Option<(i8, u64)> {
        self.order.as_ref()?.front()
    }

    /// [`add_new`](Self::add_new) in a queue that is ordered.
    #[inline(never)]
    pub(crate) fn add_new_in_order(&mut self, key: K, hash: Hash, new: NewKey) {
        let NewKey { now, group, priority } = new;
        let queued = self.table.insert_queued(key, hash);
        self.counts.pushed += 1;
        let number = self.table.number(queued.view());
        if let Some(times) = &mut self.times {
            times.added(number, now);
        }
        self.begin_key(number, group);
        self.push_at(queued, priority);
    }

    /// A key is put into a slot.
    #[inline]
    pub(super) fn begin_key(&mut self, number: u32, group: Group) {
        if let Some(order) = &mut self.order {
            order.begin(number, group);
        }
    }

    /// Queues a key (I5), in a queue that may be ordered.
    #[inline]
    pub(super) fn push_at(&mut self, queued: Queued<K>, priority: i8) {
        match &mut self.order {
            // The line is empty: all keys have moved to the order (O2).
            Some(order) if self.line.len() == 0 => order.push(self.table.number(queued.view()), queued, priority),
            _ => self.push(queued),
        }
    }

    /// [`pop`](Self::pop), in a queue that is ordered (O2).
    #[inline]
    pub(crate) fn pop_in_order(&mut self) -> Option<(Claimed<K>, MaybeNanos)> {
        let order = self.order.as_mut()?;
        let popped = order.pop();
        self.effects.pending |= order.has_retired();
        match popped {
            Some((queued, priority)) => {
                if order.len() > PREFETCH_MIN_LEN {
                    order.upcoming().into_iter().for_each(|next| self.table.prefetch(next.view()));
                }
                Some(self.claim_measured(queued, priority))
            }
            None => self.pop(),
        }
    }

    /// [`done`](Self::done), in a queue that is ordered. Also returns whether, with a limit, its group has
    /// queued keys: one more is ready.
    #[inline]
    pub(crate) fn done_in_order(&mut self, claimed: Claimed<K>) -> (Ended<K>, bool) {
        let Some(order) = &mut self.order else { return (self.done(claimed), false) };
        let mut ready = false;
        if order.has_limit() {
            let group = order.known(self.table.number(claimed.view())).group;
            ready = order.done(group.hash);
            self.effects.pending |= order.has_retired();
        }
        self.processing -= 1;
        let ended = match self.table.done(claimed) {
            Done::Push(queued) => {
                let pending = order.known(self.table.number(queued.view())).pending;
                self.push_at(queued, pending);
                Ended::Queued
            }
            Done::Keep => Ended::Kept,
            Done::Removed(key) => {
                self.note_removed();
                Ended::Removed(key)
            }
        };
        (ended, ready)
    }

    /// The priority with which a key was handed out.
    pub(crate) fn held_priority(&self, claimed: &Claimed<K>) -> Priority {
        let number = self.table.number(claimed.view());
        Priority(self.order.as_ref().map_or(Priority::NORMAL.0, |order| order.known(number).held))
    }
}

impl<K> Known<'_, K> {
    /// [`add`](Self::add) in a queue that is ordered.
    #[inline(never)]
    pub(crate) fn add_in_order(&mut self, now: Option<u64>, priority: i8) -> Added {
        let added = self.add_unnoted(priority);
        self.note_added(added, now);
        added
    }

    /// An add that replaces a delay takes its priority if that is higher.
    fn add_unnoted(&mut self, mut priority: i8) -> Added {
        if self.state().is_delayed() {
            match self.shard.delayed_add {
                DelayedAdd::Independent => {}
                DelayedAdd::Promote => {
                    priority = priority.max(self.delayed_priority());
                    let _waited = self.remove_delay();
                }
                DelayedAdd::Strict => {
                    if self.state().defer_add() {
                        self.note_delayed(true, priority);
                    } else {
                        self.raise(priority);
                    }
                    self.shard.counts.coalesced += 1;
                    return Added::Coalesced;
                }
            }
        }
        self.make_dirty_at(priority)
    }

    /// Adds the key, regardless of a delay.
    pub(super) fn make_dirty_at(&mut self, priority: i8) -> Added {
        match self.view().add() {
            OnAdd::Push(queued) => {
                self.shard.counts.pushed += 1;
                self.shard.push_at(queued, priority);
                Added::Queued
            }
            OnAdd::Coalesce => {
                self.shard.counts.coalesced += 1;
                self.raise(priority);
                Added::Coalesced
            }
            OnAdd::Defer => {
                self.shard.counts.deferred += 1;
                self.note_pending(priority);
                self.owe_dirty_waiters();
                Added::Deferred
            }
        }
    }

    /// What the order knows of the key. `None`: the queue is first in, first out.
    #[inline]
    pub(super) fn in_order(&mut self) -> Option<&mut KeyOrder> {
        if !self.shard.is_ordered() {
            return None;
        }
        let number = self.number();
        Some(self.shard.order.as_mut()?.key(number))
    }

    /// The key, which was dirty already, was added with this priority: raises it.
    pub(super) fn raise(&mut self, priority: i8) {
        let (number, processing) = (self.number(), self.state().is_processing());
        let Some(order) = &mut self.shard.order else { return };
        if processing {
            let key = order.key(number);
            key.pending = key.pending.max(priority);
        } else {
            order.raise(number, priority);
            self.shard.effects.pending |= order.has_retired();
        }
    }

    /// The key, which is processing, was added for the first time since it was handed out.
    pub(super) fn note_pending(&mut self, priority: i8) {
        self.in_order().into_iter().for_each(|key| key.pending = priority);
    }

    /// The key gets a delay, or has one: it will have this priority, or a higher one that it has by then.
    #[inline]
    pub(super) fn note_delayed(&mut self, was_delayed: bool, priority: i8) {
        if let Some(key) = self.in_order() {
            key.delayed = if was_delayed { key.delayed.max(priority) } else { priority };
        }
    }

    /// `add_with` in a queue that is ordered. Whichever deadline counts, the higher priority does.
    pub(crate) fn add_with_in_order(mut self, now: Option<u64>, options: &AddOptions) -> AddedWith {
        let (mut priority, is_delayed) = (options.level(), self.state().is_delayed());
        self.shard.counts.retries += u64::from(options.delay.is_some());
        if !options.is_now() {
            return self.set_delay_at::<true>(now, options);
        }
        match options.conflict {
            DelayConflict::Replace if is_delayed => {
                priority = priority.max(self.delayed_priority());
                let _waited = self.remove_delay();
            }
            DelayConflict::KeepExisting if is_delayed => {
                self.note_delayed(true, priority);
                self.shard.counts.coalesced += 1;
                return Added::Coalesced.into();
            }
            _ => {}
        }
        self.add_in_order(now, priority).into()
    }

    /// [`set_delay`](Self::set_delay). `ORDERED`: the queue is ordered.
    #[inline]
    pub(crate) fn set_delay_at<const ORDERED: bool>(mut self, now: Option<u64>, options: &AddOptions) -> AddedWith {
        if ORDERED {
            let is_delayed = self.state().is_delayed();
            self.note_delayed(is_delayed, options.level());
        }
        self.set_delay(now, options)
    }

    /// Adds a key whose add has waited for a delay that was cancelled.
    #[cold]
    pub(crate) fn add_that_waited(&mut self) -> Added {
        if self.shard.is_ordered() {
            let priority = self.delayed_priority();
            self.add_in_order(None, priority)
        } else {
            self.add_measured(None)
        }
    }

    /// The group of the key.
    pub(crate) fn group(&mut self) -> Group {
        self.in_order().map_or_else(Group::default, |key| key.group)
    }

    /// The priority that the key has after its delay.
    #[inline]
    pub(crate) fn delayed_priority(&mut self) -> i8 {
        self.in_order().map_or(Priority::NORMAL.0, |key| key.delayed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shard::STEP;

    /// While keys move from the line, gets and adds keep the order (O2).
    #[test]
    fn keys_that_move_keep_their_order() {
        let mut shard = Shard::new(0, OrderSettings::default(), DelayedAdd::default(), None, None);
        let total = 20 * STEP as u32;
        (0..total).for_each(|key| shard.add_new(key, Hash(key)));
        let (mut next, mut added) = (0, total);
        let mut more = true;
        while more || shard.len() > 0 {
            more = more && shard.move_to_order(STEP);
            if shard.is_ordered() {
                shard.add_new_in_order(added, Hash(added), NewKey::default());
            } else {
                shard.add_new(added, Hash(added));
            }
            added += 1;
            // Now and then all keys are taken that have moved so far, and some that have not.
            for _ in 0..if added % 2 == 0 { STEP / 2 } else { 2 * STEP } {
                let Some((claimed, _)) = shard.pop_in_order() else {
                    assert_eq!(shard.len(), 0);
                    break;
                };
                assert_eq!(*claimed.view().key(), next);
                next += 1;
                let _done = shard.done_in_order(claimed);
            }
        }
        assert!(next == added && added > total + 5);
    }
}
