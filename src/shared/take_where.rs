//! Takes keys out of the queue: those that match a predicate, all delays, or all that are left when workers stop.
//!
//! The predicate is foreign code, so it is not called under the lock (P17). It may panic, and so may the clones, so no key is taken before
//! all were looked at:
//!
//! ```text
//!   for each step of the slots:   lock ─ see some keys, and clone them ─ unlock ─ call the predicate, keep those that match
//!   for each step of the clones:  lock ─ take out what was seen, if it is still there ─ unlock ─ drop the queue's copy
//! ```
//!
//! What is seen of a key names its push and its delay, so that a key which was handed out meanwhile and is queued again is not taken.

use super::Shared;
use super::section::in_steps;
use super::state::if_free;
use crate::key::SlotId;
use crate::machine::{Delay, Seen, Which};
use crate::panics::drop_each;
use crate::sync::{give_way, model_const};
use crate::{DelayedKey, Leftover};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// The number of keys that one critical section takes out.
const STEP: usize = model_const(256, 2);

/// A key that matches.
pub(super) struct Found<'s, K> {
    pub(super) shard: usize,
    pub(super) seen: Seen,
    /// In a lock-free queue: a claim on the node.
    #[cfg_attr(not(feature = "lock-free"), expect(dead_code, reason = "there is no other engine"))]
    pub(super) claim: Hold<'s, K>,
    /// The hash and the weight of its group.
    pub(super) group: (u64, u16),
    pub(super) key: K,
    /// Another clone for its delay, if the key is not only delayed.
    pub(super) for_delay: Option<K>,
    /// Whether it was not taken, because it is still queued or processing.
    pub(super) is_active: bool,
}

#[cfg(feature = "lock-free")]
pub(super) type Hold<'s, K> = Option<crate::free::Claim<'s, K>>;
#[cfg(not(feature = "lock-free"))]
pub(super) type Hold<'s, K> = Option<&'s K>;

impl<K: Clone> Found<'_, K> {
    pub(super) fn clone_for_delay(&mut self) {
        let is_more = self.seen.is_queued() || self.seen.is_processing;
        self.for_delay = (self.seen.is_delayed() && is_more).then(|| self.key.clone());
    }
}

/// What was taken, and what was not.
struct Taking<'s, K> {
    queued: Vec<Found<'s, K>>,
    /// With the times until their delays expire, the earliest first.
    delayed: Vec<DelayedKey<K>>,
    /// All others: keys that are processing, and keys that have changed since they were seen.
    left: Vec<Found<'s, K>>,
}

impl<K: Hash + Eq + Clone> Shared<K> {
    /// `take_where`.
    pub(crate) fn take_where(&self, mut matches: impl FnMut(&K) -> bool) -> Leftover<K> {
        let taken = self.take_found(self.find_where(Which::All, &mut matches));
        let (processing, missed) = taken.left.into_iter().partition::<Vec<_>, _>(|found| found.seen.is_processing);
        self.drop_found(missed);
        Leftover {
            queued: self.by_age(taken.queued).into_iter().map(|found| found.key).collect(),
            processing: processing.into_iter().map(|found| found.key).collect(),
            delayed: taken.delayed,
            refused: Vec::new(),
        }
    }

    /// `take_delayed`.
    pub(crate) fn take_delayed(&self) -> Vec<DelayedKey<K>> {
        let taken = self.take_found(self.find_where(Which::Delayed, &mut |_| true));
        self.drop_found(taken.left);
        taken.delayed
    }

    /// For `stop`, in a queue that is shut down: takes all queued and delayed keys out, and lists the processing ones. `refused` is called
    /// at the end, and returns keys of slots whose retries or requeues were refused.
    ///
    /// After a shut-down no key becomes dirty, so the look sees each key that is queued, or held until it ends. Of those that were not
    /// taken, it lists the ones that are still in a handler or, as the docs of `stop` mention, were queued again after the look. A slot
    /// stands for its key, because it gets no other such key meanwhile. A refused key is in its list before its hand-out ends. One that is
    /// also still processing counts as refused.
    ///
    /// If a clone panics, nothing was taken.
    pub(crate) fn take_all(&self, refused: impl FnOnce() -> Vec<(SlotId, K)>) -> Leftover<K> {
        #[cfg(feature = "lock-free")]
        self.free().into_iter().for_each(|free| self.free_settle(free));
        let taken = self.take_found(self.find_where(Which::All, &mut |_| true));
        let mut queued = self.in_order_of_hand_out(taken.queued);
        queued.shrink_to_fit();
        let refused = refused();
        let mut listed: HashSet<SlotId> = refused.iter().map(|&(slot, _)| slot).collect();
        let (mut held, mut dropped) = (Vec::new(), Vec::new());
        for found in taken.left {
            let list = if found.is_active && listed.insert(found.seen.slot) { &mut held } else { &mut dropped };
            list.push(found);
        }
        self.drop_found(dropped);
        Leftover {
            queued,
            processing: held.into_iter().map(|found| found.key).collect(),
            delayed: taken.delayed,
            refused: refused.into_iter().map(|(_, key)| key).collect(),
        }
    }

    /// The keys that match, shard by shard, the queued ones first, by priority and then by age. If only delays are looked for, nothing else
    /// is noted of a key.
    fn find_where(&self, which: Which, matches: &mut impl FnMut(&K) -> bool) -> Vec<Found<'_, K>> {
        if_free!(self, free => {
            let mut found = self.free_find(free, which, matches);
            Self::sort(&mut found);
            found
        });
        let mut found = Vec::new();
        for (shard, locked) in self.all().enumerate() {
            let start = found.len();
            in_steps(|at| {
                let mut some = Vec::with_capacity(2 * STEP); // here, so that the critical section allocates little
                let next = locked.lock().look(at, which, |view| {
                    let (seen, group, key) = (view.seen(), view.group(), view.key().clone());
                    let group = group.map_or((0, 1), |group| (group.hash, group.limits.weight));
                    let seen = if which == Which::Delayed { seen.delay_alone() } else { seen };
                    some.push(Found { shard, seen, claim: None, group, key, for_delay: None, is_active: false });
                });
                for mut one in some.into_iter().filter(|found| matches(&found.key)) {
                    one.clone_for_delay();
                    found.push(one);
                }
                next
            });
            Self::sort(&mut found[start..]);
        }
        found
    }

    fn sort(found: &mut [Found<'_, K>]) {
        found.sort_by_key(|found| match found.seen.is_queued() {
            true => (false, Some(found.seen.by_age())),
            false => (true, None),
        });
    }

    /// Takes the keys that were found out of the queue, if they are still there. Panics of foreign code are caught, because the taken keys
    /// must reach the caller.
    fn take_found<'s>(&'s self, found: Vec<Found<'s, K>>) -> Taking<'s, K> {
        let now = self.settings.clock.now();
        let (mut takes, mut removed) = (Vec::with_capacity(found.len()), Vec::new());
        #[cfg(feature = "lock-free")]
        self.free().into_iter().for_each(|free| self.free_take_found(free, &found, &mut takes));
        let by_shard = if takes.is_empty() { &found[..] } else { &[] };
        for step in by_shard.chunk_by(|one, next| one.shard == next.shard).flat_map(|shard| shard.chunks(STEP)) {
            removed.reserve(step.len());
            let mut hand = None;
            let held = self.at(step[0].shard).lock();
            let mut section = self.section(held);
            section.prefetch_seen(step.iter().map(|found| found.seen));
            for found in step {
                takes.push(section.verb(|machine, mode| machine.take_out(&mut hand, found.seen, mode)));
                removed.extend(hand.take());
            }
            section.end();
            self.note_caught(drop_each(removed.drain(..)));
            give_way();
        }
        let (mut queued, mut delays, mut left, mut missed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (mut found, taken) in found.into_iter().zip(takes) {
            match (taken.delay, found.for_delay.take()) {
                (Some(delay), Some(key)) => delays.push((delay, key)),
                (Some(delay), None) => {
                    delays.push((delay, found.key)); // it is only delayed
                    continue;
                }
                (None, key) => missed.extend(key),
            }
            found.is_active = taken.is_active;
            if taken.was_queued { queued.push(found) } else { left.push(found) }
        }
        self.note_caught(drop_each(missed));
        delays.sort_by_key(|(delay, _)| delay.deadline); // stable
        let left_of = |(delay, key): (Delay, K)| DelayedKey::new(key, delay, now);
        Taking { queued, delayed: delays.into_iter().map(left_of).collect(), left }
    }

    /// Drops keys that are not taken, and counts panics.
    fn drop_found(&self, found: Vec<Found<'_, K>>) {
        self.note_caught(drop_each(found.into_iter().map(|found| found.key)));
    }

    /// The queued keys of all shards, by priority and then by age. Those of each shard are in this order already. Over several shards the
    /// ages are [stamps](crate::order), so fewer than 64 keys of each other shard come before an older key (P18).
    fn by_age<'s>(&self, mut queued: Vec<Found<'s, K>>) -> Vec<Found<'s, K>> {
        if self.shards() > 1 {
            queued.sort_by_key(|found| found.seen.by_age()); // stable
        }
        queued
    }

    /// The keys in the order in which getters would have been handed them, except for turns of lower priorities: by priority, groups in
    /// turn, and then by age. With several shards the order is approximate.
    fn in_order_of_hand_out(&self, queued: Vec<Found<'_, K>>) -> Vec<K> {
        let queued = self.by_age(queued);
        if !self.settings.order.has_groups() {
            return queued.into_iter().map(|found| found.key).collect();
        }
        let mut keys_of = HashMap::<_, u32>::new();
        let mut in_turns: Vec<_> = queued
            .into_iter()
            .map(|found| {
                let level = found.seen.by_age().0;
                let before = keys_of.entry((level, found.group.0)).or_default();
                let turn = *before / u32::from(found.group.1);
                *before += 1;
                ((level, turn), found.key)
            })
            .collect();
        in_turns.sort_by_key(|&(turn, _)| turn);
        in_turns.into_iter().map(|(_, key)| key).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::order::tests::VISITS;
    use crate::shared::Shared;
    use crate::{Driver, WorkQueue, WorkQueueBuilder};
    use std::cell::Cell;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    /// A key stays at the front. Other keys come behind it, and are taken, again and again.
    fn visits_of_rounds(builder: WorkQueueBuilder<u32>) -> Vec<(usize, u64)> {
        const KEYS: u32 = 200;
        let queue = builder.build();
        queue.add(0);
        let visits = (0..1000).map(|round| {
            queue.add_all((1..=KEYS).map(|key| round * KEYS + key));
            let looks = || queue.shared.at(0).looks.load(Relaxed);
            let before = looks();
            VISITS.set(0);
            assert_eq!(queue.take_where(|key| *key != 0).queued.len(), KEYS as usize);
            (looks() - before, VISITS.get())
        });
        visits.collect()
    }

    /// Critical sections, and places in the order and the table.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn a_key_that_stays_at_the_front_costs_no_more_each_time() {
        for fair in [false, true] {
            let builder = WorkQueue::builder();
            let visits = visits_of_rounds(if fair { builder.fair_by(|key| key % 50) } else { builder });
            let (first, last) = (visits[0], visits[visits.len() - 1]);
            println!(
                "groups {fair}: critical sections and places {first:?} in the first round, {last:?} in the last one"
            );
            assert!(last.0 <= first.0 && last.1 <= first.1 + first.1 / 8, "groups {fair}: {first:?}, then {last:?}");
        }
    }

    thread_local! {
        static CLONES: Cell<usize> = const { Cell::new(0) };
        /// The drop of the next key panics.
        static DROP_PANICS: Cell<bool> = const { Cell::new(false) };
    }

    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Key(u32);

    impl Clone for Key {
        fn clone(&self) -> Self {
            CLONES.set(CLONES.get() + 1);
            Self(self.0)
        }
    }

    impl Drop for Key {
        fn drop(&mut self) {
            if DROP_PANICS.replace(false) {
                std::panic::resume_unwind(Box::new("as planned"));
            }
        }
    }

    /// A key that is queued or delayed is cloned once, and one that is both twice.
    #[test]
    fn a_key_is_cloned_once_for_each_list_that_it_is_in() {
        for (is_queued, is_delayed) in [(true, false), (false, true), (true, true)] {
            let queue = WorkQueue::builder().driver(Driver::Manual).build();
            if is_delayed {
                queue.add_after(Key(1), Duration::from_secs(1));
            }
            if is_queued {
                queue.add(Key(1));
            }
            CLONES.set(0);
            let taken = queue.take_where(|_| true);
            let lists = (taken.queued.len(), taken.delayed.len());
            assert_eq!(lists, (usize::from(is_queued), usize::from(is_delayed)));
            assert_eq!(CLONES.get(), lists.0 + lists.1, "queued {is_queued}, delayed {is_delayed}");
        }
    }

    /// A key that was found is handed out before it is taken, or is refused before the end of a stop: the drop of its clone panics. The
    /// caller gets what was taken.
    #[test]
    fn a_clone_that_is_not_needed_may_panic() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        queue.add(Key(1));
        let mut held = None;
        let taken = queue.take_where(|_| {
            held = Shared::try_take(&queue.shared);
            DROP_PANICS.set(true);
            true
        });
        assert!(taken.queued.is_empty() && taken.processing.is_empty());
        let held = held.expect("it was queued");
        queue.shut_down();
        let taken = queue.shared.take_all(|| {
            DROP_PANICS.set(true);
            vec![(held.slot(), Key(1))]
        });
        assert_eq!((taken.processing.len(), taken.refused.len()), (0, 1));
        queue.shared.done(held);
        assert_eq!(queue.stats().caught_panics, 2);
    }
}
