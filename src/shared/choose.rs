//! Which shard a getter takes its next key from.
//!
//! ```text
//!  thread's cursor ──▶ shard 2: up to STAY keys in a row ──▶ shards to which the thread has just added a key: up to STAY keys
//!         ▲                                                                                   │
//!         └────────────────────────── the shard with the oldest front ◀───────────────────────┘
//! ```
//!
//! A getter looks for its next key in three places:
//!
//! 1. It **stays** with the shard of its last key for up to [`STAY`] keys, so that threads do not meet at a shard's lock for every key.
//! 2. When that shard is empty, it tries the one to which its thread **has just added** a key, which is in the thread's cache.
//! 3. Otherwise it goes to the shard with the **oldest front**, whose first key has waited longest. Each shard publishes a time from before
//!    the push of its first key, one for [64 keys](crate::order).
//!
//! **If another getter stays with the oldest shard**, this one takes the next oldest, because two threads at one lock are slower than one.
//! All getters together pass by an oldest shard [`PASSES`] times at most. Then they share it, until one that stays there finds an older
//! shard and moves on.
//!
//! **If the shard's lock is held**, the holder may be off its core, so a getter ends its stay or takes the next shard rather than wait.
//! Here, too, it waits after [`PASSES`] passes, until one that stays there finds an older shard. If it waits in vain, getters pass by the
//! lock [`PASSES_IF_STOPPED`](super::locked) times, or until one finds it free.
//!
//! The passes bound how far a key is overtaken (P18). While its shard is the oldest, a getter that chooses takes from it or uses up a pass,
//! and no shard has more than 64 keys with an older front. After each choice a getter may take 64 more that it has just added.
//!
//! A cursor that visits the shards in turn would be simpler, but has no such bound, because it treats a long order like a short one.
//!
//! **With priorities** a getter first takes a key of a lower level if it is their [turn](super::lower). Otherwise it goes to the shard
//! whose first key has the highest priority, the oldest of several. It passes by for a key of the same level only, and ends its stay, of
//! [`STAY_IN_ORDER`] keys, when the shard has only lower ones.
//!
//! All of this is read without a lock, and only the order depends on it, because a getter that finds nothing here visits each shard under
//! its lock before it says so or parks.

use super::Shared;
use super::cursor::{Cursor, Spot, with_cursor};
use super::hub::Flags;
use super::locked::{Busy, Front, Locked, PASSES};
use super::take::Taken;
use crate::machine::{Claimed, Mode};
use crate::order::TURNS;
use crate::sync::model_const;

/// The number of keys that a getter takes from a shard before it chooses again.
const STAY: u32 = 64;

/// [`STAY`] in a queue whose keys have priorities or groups. When a key of a higher level comes to another shard, each getter hands out at
/// most three more keys before it chooses again. The key therefore waits for fewer than `4 * (shards + getters)` hand-outs of lower levels,
/// where `shards` allows for one getter in each shard that ended during its stay (P19).
const STAY_IN_ORDER: u32 = 4;

/// A shard to take from.
struct Chosen {
    shard: usize,
    front: Front,
    /// The getter shares the shard with others that stay there, because they have been passed by often enough or no other shard has such a
    /// key.
    joins: bool,
}

impl<K> Shared<K> {
    /// Takes a key from the shard with which this thread stays, or to which it has just added one, if that takes a few instructions only.
    #[inline]
    pub(super) fn take_nearby(&self) -> Option<Claimed<K>> {
        with_cursor(|Cursor { stay, added, .. }| {
            let nearby = |place: &Spot| if place.is_in(self.id) { self.take_simply(place) } else { None };
            nearby(stay).or_else(|| nearby(added))
        })
    }

    #[inline(never)]
    fn take_simply(&self, place: &Spot) -> Option<Claimed<K>> {
        let locked = self.at(place.shard.get());
        if locked.seems_empty() {
            return None;
        }
        let held = locked.try_lock_unnumbered()?;
        if self.flags().has(Flags::HAND_OUT) {
            return None;
        }
        let mut section = self.section_in(held, Mode::PLAIN);
        let claimed = section.get_simple();
        if claimed.is_some() {
            locked.number();
            place.left.set(place.left.get() - 1);
        }
        section.end();
        claimed
    }

    /// Notes that this thread has added a key to this shard.
    #[inline]
    pub(super) fn note_add(&self, locked: &Locked<K>) {
        with_cursor(|Cursor { added, .. }| {
            if added.queue.replace(self.id) != self.id {
                added.left.set(0); // what was left to take back in another queue
            }
            added.shard.set(locked.index);
        });
    }

    /// Takes a key from the shard with which this thread stays, or from the one that it chooses.
    #[inline(never)]
    pub(super) fn choose(&self) -> Option<Taken<K>> {
        if self.lets_none_out() {
            return None;
        }
        let mut busy = Busy::default();
        with_cursor(|cursor| {
            let stay = if self.flags().has(Flags::ORDERED) { STAY_IN_ORDER } else { STAY };
            // It may have begun before the first priority was given.
            let left = cursor.stay.left.replace(0).min(stay - 1);
            let mut own = None;
            if cursor.stay.queue.replace(0) == self.id {
                let stays = self.at(cursor.stay.shard.get());
                // Another shard may have keys of this stay's level, so the stay does not go on with a lower one.
                if left > 0 && self.may_stay(stays.front(), cursor.front.get()) {
                    if let Some(taken) = self.take_from(stays, cursor.waits.get(), &mut busy) {
                        cursor.stay.queue.set(self.id);
                        cursor.stay.left.set(left - 1);
                        return Some(taken);
                    }
                }
                own = Some(stays.index);
            }
            if let Some(taken) = self.take_lower() {
                cursor.stay.queue.set(own.map_or(0, |_| self.id));
                return Some(taken);
            }
            // `passed`: the rank of the first shard that was passed by because its lock was held. `must_wait`: no other shard has such a
            // key, so the getter waits for each lock.
            let (mut passed, mut must_wait) = ((!busy.is_empty()).then(|| cursor.front.get().rank()), false);
            // As in each shard, one of 16 turns goes to groups that have had turns before, for as long as a stay lasts.
            let turn = own.map_or(1, |own| self.at(own).handed_out() / u64::from(STAY_IN_ORDER));
            let new_first = turn % u64::from(TURNS) > 0;
            for _ in 0..model_const(3, 2) * self.shards() {
                let choice = self.oldest(&busy, own, new_first);
                if let Some(left) = own.filter(|own| choice.as_ref().is_none_or(|choice| choice.shard != *own)) {
                    self.at(left).set_stay(None);
                    if !busy.contains(self.at(left)) {
                        self.at(left).allow_passes(PASSES);
                    }
                    own = None;
                }
                let is_lower = |passed| choice.as_ref().is_none_or(|choice| choice.front.rank() > passed);
                if passed.take_if(|passed| is_lower(*passed)).is_some() {
                    (busy, must_wait) = (Busy::default(), true);
                    continue;
                }
                let Chosen { shard, front, joins } = choice?;
                let locked = self.at(shard);
                if own.is_none() && !joins && !locked.begin_stay() {
                    continue;
                }
                let waits = locked.lock_passes() == 0;
                if let Some(taken) = self.take_from(locked, waits || must_wait, &mut busy) {
                    cursor.stay.queue.set(self.id);
                    cursor.stay.shard.set(shard);
                    cursor.stay.left.set(stay - 1);
                    cursor.added.left.set(STAY);
                    cursor.waits.set(waits);
                    cursor.front.set(front);
                    return Some(taken);
                }
                if !must_wait && busy.contains(locked) {
                    passed.get_or_insert(front.rank());
                }
                if !joins {
                    locked.set_stay(None);
                }
                if self.lets_none_out() {
                    return None;
                }
                own = None;
            }
            None
        })
    }

    /// Whether the queue is paused, or has no token.
    fn lets_none_out(&self) -> bool {
        let flags = self.flags();
        flags.has(Flags::PAUSED) || flags.has(Flags::PACED) && self.tokens() == 0
    }

    /// Whether a getter goes on to stay with a shard, whose front was `chosen` when it chose it: as long as the front is of no lower level,
    /// and with groups of no later round.
    fn may_stay(&self, front: Front, chosen: Front) -> bool {
        if self.has_rounds() { front <= chosen } else { front.rank() <= chosen.rank() }
    }

    /// Takes a key from a shard, unless it has none or its lock is held. If `waits`, it first waits for about as long as a critical section
    /// takes.
    #[inline]
    fn take_from(&self, locked: &Locked<K>, waits: bool, busy: &mut Busy) -> Option<Taken<K>> {
        if locked.seems_empty() {
            return None;
        }
        let held = locked.lock_to_take(waits, busy)?;
        self.take(held, None)
    }

    /// The shard whose first key has the highest priority and, among several, has waited longest. `busy` are shards that this getter passes
    /// by, `new_first` says whether new groups come before those of other shards that have had turns, and `own` is the shard with which it has
    /// stayed so far.
    fn oldest(&self, busy: &Busy, own: Option<usize>, new_first: bool) -> Option<Chosen> {
        // By front and number alone. What else counts is read only for the chosen one, which keeps the loop short.
        const NONE: (Front, usize) = (Front::LAST, usize::MAX);
        let (mut oldest, mut open, mut round) = (NONE, NONE, Front::LAST);
        let has_rounds = self.has_rounds();
        // Of equal fronts the first shard's counts.
        let note = |least: &mut (Front, usize), front: Front, index| {
            if front < least.0 {
                *least = (front, index);
            }
        };
        self.all().enumerate().for_each(|(index, locked)| {
            if locked.seems_empty() || busy.contains(locked) {
                return;
            }
            let mut front = locked.front();
            if has_rounds {
                let old = front.of_old();
                round = round.min(old);
                front = if new_first { front } else { old };
            }
            note(&mut oldest, front, index);
            if own == Some(index) || !matches!(locked.stay(), Some(1..)) {
                note(&mut open, front, index);
            }
        });
        if oldest == NONE {
            return None;
        }
        self.note_front(round);
        let (mut front, mut shard) = oldest;
        // It passes by only for another key of the same level, and with groups for one that is a round later at most.
        let is_like = |open: Front| open.rank() == front.rank() && (!has_rounds || open.stamp() <= front.stamp() + 1);
        if open != oldest && open != NONE && is_like(open.0) {
            if let Some(passes) = self.at(shard).stay() {
                self.at(shard).set_stay(Some(passes.saturating_sub(1)));
            }
            (front, shard) = open;
        }
        let joins = own != Some(shard) && self.at(shard).stay().is_some();
        Some(Chosen { shard, front, joins })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Cursor;
    use crate::shared::locked::PASSES_IF_STOPPED;
    use crate::sync::Arc;
    use crate::{AddOptions, Clock, Priority, WorkQueue};
    use std::collections::HashMap;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc;
    use std::thread;

    impl Cursor {
        /// What another thread does, whose cursor this is.
        pub(in crate::shared) fn of_another<R>(&self, call: impl FnOnce() -> R) -> R {
            let swap = || {
                super::with_cursor(|here| {
                    for (here, there) in [(&here.stay, &self.stay), (&here.added, &self.added)] {
                        here.queue.swap(&there.queue);
                        here.shard.swap(&there.shard);
                        here.left.swap(&there.left);
                    }
                    here.front.swap(&self.front);
                    here.waits.swap(&self.waits);
                });
            };
            swap();
            let answer = call();
            swap();
            answer
        }
    }

    /// A thread's cursor belongs to another queue, which has more shards: at another address, and at the same one.
    #[test]
    fn a_cursor_of_another_queue_does_no_harm() {
        let (many, few) = (WorkQueue::builder().shards(64).build(), WorkQueue::builder().shards(2).build());
        for round in 0..1000_u64 {
            many.add(round);
            few.add(round);
            assert!(many.try_get().is_ok() && few.try_get().is_ok());
            assert!(many.try_get().is_err() && few.try_get().is_err() && few.try_get().is_err());
            super::with_cursor(|cursor| {
                cursor.stay.shard.set(63);
                cursor.stay.left.set(64);
            });
            assert!(few.try_get().is_err());
        }
    }

    /// The first keys of two shards have different priorities, on the same side of NORMAL or not, and the older one the lower.
    #[test]
    fn a_getter_goes_to_the_shard_with_the_highest_first_key() {
        for (low, high) in [(-9, -5), (-5, 0), (0, 5), (5, 9)] {
            for first in 0..2 {
                let queue = WorkQueue::builder().shards(2).build();
                let shard_of = |key: &u64| queue.shared.hash(key).shard(2);
                let [older, newer] = [first, 1 - first].map(|shard| (0..).find(|key| shard_of(key) == shard).unwrap());
                queue.add_with(older, AddOptions::new().priority(Priority(low)));
                queue.add_with(newer, AddOptions::new().priority(Priority(high)));
                assert_eq!([(); 2].map(|()| *queue.try_get().unwrap()), [newer, older], "{low} before {high}");
            }
        }
    }

    #[test]
    fn a_thread_knows_to_which_shard_it_has_just_added() {
        let queue = WorkQueue::builder().shards(4).build();
        for key in 0..50_u64 {
            queue.add(key);
            super::with_cursor(|Cursor { added, .. }| assert_eq!(added.shard.get(), queue.shared.hash(&key).shard(4)));
        }
    }

    /// Queues `keys` keys, a part of them (`percent`) in shard 0, and hands them out to threads that take one key each in turn. They find
    /// the lock of shard 0 held, but at one of `held_unless` looks. Returns by how many later keys a key was overtaken at most.
    fn overtaken(shards: usize, getters: usize, percent: u64, held_unless: usize, keys: usize) -> usize {
        let queue = WorkQueue::builder().shards(shards).build();
        queue.shared.at(0).held_unless.store(held_unless, Relaxed);
        let mut fresh: Vec<_> = (0..shards)
            .map(|shard| {
                let queue = queue.clone();
                (0_u64..).filter(move |key| queue.shared.hash(key).shard(shards) == shard)
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(7);
        let mut number_of = HashMap::new();
        for number in 0..keys {
            // 100: the first half is in shard 0, the second half in others.
            let in_first = if percent == 100 { number < keys / 2 } else { random.u64(0..100) < percent };
            let shard = if in_first { 0 } else { random.usize(1..shards) };
            let key = fresh[shard].next().unwrap();
            number_of.insert(key, number);
            queue.add(key);
        }
        let (report, taken) = mpsc::channel();
        let getters: Vec<_> = (0..getters)
            .map(|_| {
                let (go, turn) = mpsc::channel::<()>();
                let (queue, report) = (queue.clone(), report.clone());
                thread::spawn(move || {
                    for () in turn {
                        let key = *queue.try_get().unwrap(); // done before the next getter has its turn
                        report.send(key).unwrap();
                    }
                });
                go
            })
            .collect();
        let (mut worst, mut lowest, mut gone) = (0, 0, vec![false; keys]);
        for turn in 0..keys {
            getters[turn % getters.len()].send(()).unwrap();
            gone[number_of[&taken.recv().unwrap()]] = true;
            lowest += gone[lowest..].iter().take_while(|gone| **gone).count();
            worst = worst.max(turn + 1 - lowest);
        }
        worst
    }

    /// P18, with several getters, and with shards whose lines are not equally long.
    #[test]
    fn getters_that_pass_by_do_not_overtake_without_bound() {
        let cases =
            [(2, 1, 50), (2, 2, 50), (2, 2, 70), (2, 2, 100), (2, 3, 100), (16, 4, 6), (16, 4, 40), (16, 8, 100)];
        let held = [(2, 1, 50), (2, 3, 100), (16, 4, 40)];
        for held_unless in [0, usize::MAX, 2, 5] {
            let (cases, keys) = if held_unless == 0 { (&cases[..], 40_000) } else { (&held[..], 10_000) };
            for &(shards, getters, percent) in cases {
                let worst = overtaken(shards, getters, percent, held_unless, keys);
                let held = if held_unless > 0 { super::PASSES * (super::PASSES + 1) } else { 0 };
                let bound = (shards + (2 + super::PASSES) * getters + held) * 64;
                let case =
                    format!("{shards} shards, {getters} getters, {percent} % in shard 0, held unless {held_unless}");
                println!("{case}: {worst}, at most {bound}");
                assert!(worst <= bound, "{case}: {worst}, not {bound}");
            }
        }
    }

    /// A thread that adds a key for each that it takes takes its own keys only so often (P18).
    #[test]
    fn a_thread_that_takes_its_own_keys_takes_old_ones_too() {
        for shards in [2, 16, 64] {
            let queue = WorkQueue::builder().shards(shards).build();
            queue.add_all(0..1000_usize);
            let (mut worst, mut lowest, mut gone) = (0, 0, vec![false; 20_000]);
            for turn in 0..10_000 {
                queue.add(1000 + turn);
                gone[*queue.try_get().unwrap()] = true;
                lowest += gone[lowest..].iter().take_while(|gone| **gone).count();
                worst = worst.max(turn + 1 - lowest);
            }
            // Of 300 runs with 16 shards, half stayed below 1094 and one reached 1497.
            assert!(worst <= (shards + 6) * 128, "{shards} shards: {worst}");
        }
    }

    /// A thread that adds one key again and again takes it so often, and then looks for older keys (P18).
    #[test]
    fn a_thread_that_adds_one_key_takes_others_too() {
        let queue = WorkQueue::builder().shards(2).build();
        let of = |shard| {
            let queue = &queue;
            (0_u64..).filter(move |key| queue.shared.hash(key).shard(2) == shard)
        };
        let own = of(0).next().unwrap();
        queue.add(own);
        queue.add_all(of(1).take(500));
        let (mut others, mut in_a_row) = (0, 0);
        while others < 500 {
            let item = queue.try_get().unwrap();
            if *item == own {
                in_a_row += 1;
                assert!(in_a_row <= 2 * 64, "{others} others were taken");
                item.done();
                queue.add(own);
            } else {
                (others, in_a_row) = (others + 1, 0);
            }
        }
    }

    /// A thread that serves two queues in turn comes to a shard anew for each key: that gives others no more passes.
    #[test]
    fn a_getter_of_two_queues_does_not_renew_the_passes() {
        let queues = [(); 2].map(|()| WorkQueue::builder().shards(2).build());
        let of = |shard| (0_u64..).filter(move |key| key % 2 == shard);
        // The shards are not known, but a hash is: the keys of shard 0 and 1 of the first queue.
        let shard_of = |key: &u64| queues[0].shared.hash(key).shard(2);
        let old: Vec<_> = of(0).filter(|key| shard_of(key) == 0).take(64).collect();
        let new: Vec<_> = of(1).filter(|key| shard_of(key) == 1).take(50_000).collect();
        queues[0].add_all(old.iter().chain(&new).copied());
        queues[1].add_all(0..1000);
        let (go, turn) = mpsc::channel::<()>();
        let (report, taken) = mpsc::channel();
        thread::spawn({
            let queues = queues.clone();
            move || {
                for () in turn {
                    let key = *queues[0].try_get().unwrap();
                    drop(queues[1].try_get());
                    report.send(key).unwrap();
                }
            }
        });
        let visit = || {
            go.send(()).unwrap();
            taken.recv().unwrap()
        };
        let (mut left, mut overtook) = (64, 0);
        let mut count = |key: u64| {
            if key % 2 == 0 {
                left -= 1
            } else {
                overtook += 1
            }
            left == 0
        };
        count(visit());
        for turn in 1.. {
            if count(*queues[0].try_get().unwrap()) || turn % 256 == 44 && turn > 256 && count(visit()) {
                break;
            }
        }
        assert!(overtook <= (2 + 5 * 2) * 64, "{overtook}");
    }

    /// A thread has stayed with a shard of a queue, and might take a key back. The next queue, at the same address, is a new one to it
    /// (P27).
    #[test]
    fn a_queue_at_the_address_of_another_is_not_taken_for_it() {
        let [mut old, mut new] = [(); 2].map(|()| WorkQueue::builder().shards(2).seed(1).build());
        let of = |shard| (0_u64..).find(|key| old.shared.hash(key).shard(2) == shard).expect("each shard has keys");
        let keys = [of(0), of(1)];
        old.add(keys[1]);
        old.try_get().unwrap().done();
        let [there, here] = [&mut old, &mut new].map(|queue| Arc::get_mut(&mut queue.shared).expect("one handle"));
        std::mem::swap(there, here);
        keys.iter().for_each(|key| _ = old.add(*key));
        assert_eq!(*old.try_get().unwrap(), keys[0], "the oldest, and not the one that the thread has just added");
    }

    /// HIGH keys are always queued in one shard, and LOW ones wait in the other (P19). Threads serve many queues in turn, or end after few
    /// hand-outs. Returns how many LOW keys are left in each queue.
    fn starved(queues: usize, hand_outs_of_a_thread: usize) -> Vec<u32> {
        let queues: Vec<_> = (0..queues).map(|_| WorkQueue::builder().shards(2).build()).collect();
        let add = |queue: &WorkQueue<u64>, key, level| queue.add_with(key, AddOptions::new().priority(level));
        for queue in &queues {
            let of = |shard| (0..).filter(move |key| queue.shared.hash(key).shard(2) == shard).take(100);
            of(0).for_each(|key| _ = add(queue, key, Priority::HIGH));
            of(1).for_each(|key| _ = add(queue, key, Priority::LOW));
        }
        let mut left = vec![100; queues.len()];
        let mut in_turn = (0..4000 * queues.len()).map(|turn| turn % queues.len());
        while in_turn.len() > 0 {
            let mut hand_out = || {
                for index in in_turn.by_ref().take(hand_outs_of_a_thread) {
                    let item = queues[index].try_get().unwrap();
                    let (key, level) = (*item, item.priority());
                    item.done();
                    match level {
                        Priority::HIGH => _ = add(&queues[index], key, level),
                        _ => left[index] -= 1,
                    }
                }
            };
            thread::scope(|scope| _ = scope.spawn(&mut hand_out));
        }
        left
    }

    #[test]
    fn low_keys_of_a_shard_do_not_starve() {
        let cases = [(1, 4000), (12, 48_000), (13, 52_000), (26, 104_000), (1, 1), (2, 1), (1, 100)];
        let mut left = cases.map(|(queues, hand_outs)| ((queues, hand_outs), starved(queues, hand_outs))).to_vec();
        left.retain(|(_, left)| left.iter().any(|left| *left > 0));
        assert!(left.is_empty(), "queues, hand-outs of a thread, LOW keys that are left: {left:?}");
    }

    /// A getter passes by a shard with which another one stays for a key of the same level only (P19). Each hand-out is in a new thread, so
    /// the others seem to stay.
    #[test]
    fn a_getter_does_not_pass_by_a_higher_level() {
        let queue = WorkQueue::builder().shards(2).strict_priorities(true).build();
        let queue = &queue;
        let of = |shard| (0_u64..).filter(move |key| queue.shared.hash(key).shard(2) == shard).take(20);
        of(0).for_each(|key| _ = queue.add_with(key, AddOptions::new().priority(Priority::HIGH)));
        of(1).for_each(|key| _ = queue.add_with(key, AddOptions::new().priority(Priority::LOW)));
        let level_of_next =
            || thread::scope(|scope| scope.spawn(|| queue.try_get().unwrap().priority()).join().unwrap());
        let levels: Vec<_> = (0..40).map(|_| level_of_next()).collect();
        assert!(levels.is_sorted_by_key(std::cmp::Reverse), "{levels:?}");
    }

    /// The same with a held lock, which is free when the getter waits for it.
    #[test]
    fn a_getter_waits_for_the_lock_of_a_higher_level() {
        let queue = WorkQueue::builder().shards(2).strict_priorities(true).build();
        for (shard, priority) in [(0, Priority::HIGH), (1, Priority::LOW)] {
            let keys = (0_u64..).filter(|key| queue.shared.hash(key).shard(2) == shard).take(20);
            keys.for_each(|key| _ = queue.add_with(key, AddOptions::new().priority(priority)));
        }
        queue.shared.at(0).held_unless.store(usize::MAX, Relaxed);
        let levels: Vec<_> = (0..40).map(|_| queue.try_get().unwrap().priority()).collect();
        assert!(levels.is_sorted_by_key(std::cmp::Reverse), "{levels:?}");
    }

    /// Getters take one key each in turn. Each ends after some hand-outs, in the middle of a stay, and another one comes for it. Returns by
    /// how many later keys a key was overtaken at most.
    fn overtaken_by_getters_that_end(shards: usize, getters: usize, seed: u64) -> usize {
        const KEYS: usize = 30_000;
        let queue = WorkQueue::builder().shards(shards).seed(seed).clock(Clock::mock().0).build();
        let mut random = fastrand::Rng::with_seed(seed);
        // The line is as long as this.
        const QUEUED: usize = 15_000;
        queue.add_all(0..QUEUED);
        let mut threads: Vec<_> = (0..getters).map(|_| (Cursor::new(), 0)).collect();
        let (mut worst, mut lowest, mut gone) = (0, 0, vec![false; KEYS + QUEUED]);
        for turn in 0..KEYS {
            queue.add(QUEUED + turn);
            let (cursor, left) = &mut threads[turn % getters];
            if *left == 0 {
                (*cursor, *left) = (Cursor::new(), random.u32(1..80));
            }
            *left -= 1;
            gone[cursor.of_another(|| *queue.try_get().unwrap())] = true;
            lowest += gone[lowest..].iter().take_while(|gone| **gone).count();
            worst = worst.max(turn + 1 - lowest);
        }
        worst
    }

    /// P18, with getters that end while they stay with a shard: each counts as one more getter for its shard.
    #[test]
    fn getters_that_end_do_not_overtake_without_bound() {
        let mut ratio = 0.0_f64;
        for (shards, getters) in [(2, 1), (16, 1), (16, 4), (64, 1), (64, 4)] {
            let worst = overtaken_by_getters_that_end(shards, getters, 1);
            let bound = |getters| (shards + (2 + super::PASSES) * getters) * 64;
            println!(
                "{shards} shards, {getters} getters: {worst}, at most {}; {} if none ended",
                bound(getters + shards),
                bound(getters)
            );
            assert!(worst <= bound(getters + shards), "{shards} shards, {getters} getters: {worst}");
            ratio = ratio.max(worst as f64 / bound(getters) as f64);
        }
        assert!(ratio > 1.0, "no getter that ended counted: {ratio}");
    }

    /// How long keys of a higher level wait that come to a backlog of lower ones.
    #[derive(Default)]
    struct Waits {
        /// For each, the hand-outs of all keys, and of lower ones, but those that are a turn of P19.
        each: Vec<(usize, usize)>,
        /// Hand-outs of a lower level than a key that was queued when the getter last looked at the fronts, and those that are no turn.
        inverted: usize,
        without_turn: usize,
        most_in_a_row: usize,
    }

    const HAND_OUTS: usize = 2000;

    /// Adds a HIGH key each `every` hand-outs; getters take one key each in turn.
    fn waits(shards: usize, getters: usize, every: usize, strict: bool) -> Waits {
        let builder = WorkQueue::builder().shards(shards).strict_priorities(strict);
        let queue = builder.seed(1).clock(Clock::mock().0).build();
        let add = |key, level| _ = queue.add_with(key, AddOptions::new().priority(level));
        (0..2 * HAND_OUTS).for_each(|key| add(key, Priority::LOW));
        let threads: Vec<_> = (0..getters).map(|_| Cursor::new()).collect();
        let (mut waits, mut lower) = (Waits::default(), 0);
        // Of each HIGH key when it was added, and how many lower ones had been handed out by then.
        let mut queued = HashMap::new();
        // Of each getter, when it last looked at the fronts, and the keys since.
        let mut looks = vec![(0, 0); getters];
        for turn in 0..HAND_OUTS {
            if turn % every == 0 {
                add(2 * HAND_OUTS + turn, Priority::HIGH);
                queued.insert(2 * HAND_OUTS + turn, (turn, lower));
            }
            let turns = || queue.shared.turn.load(Relaxed);
            let (look, before) = (&mut looks[turn % getters], turns());
            let (key, looked) = threads[turn % getters].of_another(|| {
                let key = *queue.try_get().unwrap(); // done before the next getter has its turn
                (key, super::with_cursor(|cursor| cursor.stay.left.get() == super::STAY_IN_ORDER - 1))
            });
            // No other one is made while two levels wait.
            let is_turn = before != turns();
            if looked || is_turn {
                *look = (turn, 0);
            }
            look.1 += 1;
            waits.most_in_a_row = waits.most_in_a_row.max(look.1);
            if let Some((added, lower_before)) = queued.remove(&key) {
                waits.each.push((turn - added, lower - lower_before));
                continue;
            }
            lower += usize::from(!is_turn);
            let is_inverted = queued.values().any(|(added, _)| *added <= look.0);
            waits.inverted += usize::from(is_inverted);
            waits.without_turn += usize::from(is_inverted && !is_turn);
        }
        waits.each.extend(queued.into_values().map(|(added, before)| (HAND_OUTS - added, lower - before)));
        waits
    }

    /// A key of a higher level waits for few hand-outs of lower ones, however many are queued (P19).
    #[test]
    fn a_high_key_waits_for_few_lower_ones() {
        let cases = [4, 16, 64]
            .into_iter()
            .flat_map(|shards| [(1, 4), (3, 4), (4, 4), (4, 5), (16, 5)].map(|case| (shards, case)));
        let mut failed = Vec::new();
        for (strict, (shards, (getters, every))) in cases.flat_map(|case| [(true, case), (false, case)]) {
            let Waits { mut each, inverted, without_turn, most_in_a_row } = waits(shards, getters, every, strict);
            each.sort_unstable();
            let (most, p99) = (each[each.len() - 1].0, each[each.len() * 99 / 100].0);
            let lower = each.iter().map(|(_, lower)| *lower).max().unwrap();
            let case = format!(
                "{shards} shards, {getters} getters, strict {strict}, each {every}: waits for {most} hand-outs, p99 {p99}, for {lower} lower ones \
                 at most; \
                 {inverted} inverted, {without_turn} without a turn; {most_in_a_row} in a row"
            );
            println!("{case}");
            let holds = lower <= 4 * (shards + getters)
                && (getters > 1 || most <= 64)
                && p99 <= 64
                && inverted <= HAND_OUTS / 10
                && without_turn == 0
                && (!strict || inverted == 0)
                && most_in_a_row <= 4;
            if !holds {
                failed.push(case);
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
    }

    /// A getter that gets the lock leaves the number of passes as it is, unless another one has waited for the lock in vain.
    #[test]
    fn a_lock_that_is_free_again_is_waited_for() {
        let queue = WorkQueue::<u64>::builder().shards(2).build();
        let shard = queue.shared.at(0);
        for (before, after) in [(super::PASSES, super::PASSES), (1, 1), (PASSES_IF_STOPPED, 0)] {
            shard.allow_passes(before);
            drop(shard.lock_to_take(false, &mut super::Busy::default()).expect("it is free"));
            assert_eq!(shard.lock_passes(), after);
        }
    }

    /// While a getter stays with a shard, others pass by it as often as [`PASSES`](super::PASSES) says.
    #[test]
    fn a_stay_begins_with_all_passes() {
        let queue = WorkQueue::<u64>::builder().shards(2).build();
        let shard = queue.shared.at(0);
        assert!(shard.begin_stay() && !shard.begin_stay());
        assert_eq!(shard.stay(), Some(super::PASSES));
        for passes in [Some(3), Some(0), None] {
            shard.set_stay(passes);
            assert_eq!(shard.stay(), passes);
        }
    }

    /// A thread stays with a shard of an ordered queue for four keys, though another shard has older ones, and then goes there.
    #[test]
    fn a_stay_in_an_ordered_queue_is_short() {
        let queue = WorkQueue::builder().shards(2).strict_priorities(true).build();
        let shard_of = |key: &u64| queue.shared.hash(key).shard(2);
        for shard in 0..2 {
            let keys = (0_u64..).filter(|key| shard_of(key) == shard).take(9);
            keys.for_each(|key| _ = queue.add_with(key, AddOptions::new().priority(Priority::HIGH)));
        }
        // Another thread stays with the shard that has the oldest key, and leaves.
        queue.shared.at(0).set_stay(Some(super::PASSES));
        let next = || shard_of(&queue.try_get().unwrap());
        assert_eq!(next(), 1);
        queue.shared.at(0).set_stay(None);
        assert_eq!([(); 5].map(|()| next()), [1, 1, 1, 0, 0]);
    }

    /// A stay that has begun before a queue gets its first priority is as short from then on.
    #[test]
    fn the_first_priority_shortens_a_stay() {
        let queue = WorkQueue::builder().shards(2).strict_priorities(true).build();
        let shard_of = |key: &u64| queue.shared.hash(key).shard(2);
        let of = |shard| (0_u64..).filter(move |key| shard_of(key) == shard);
        let next = || shard_of(&queue.try_get().unwrap());
        of(0).take(9).for_each(|key| _ = queue.add(key));
        assert_eq!(next(), 0);
        queue.add_with(of(1).next().unwrap(), AddOptions::new().priority(Priority::HIGH));
        assert_eq!([(); 5].map(|()| next()), [0, 0, 0, 1, 0]);
    }

    /// When the shard with which a thread stays is empty, the thread takes the key that it has just added, and then the oldest one.
    #[test]
    fn a_thread_takes_the_key_that_it_has_just_added() {
        let queue = WorkQueue::builder().shards(4).build();
        let of = |shard| (0_u64..).find(|key| queue.shared.hash(key).shard(4) == shard).expect("each shard has keys");
        let [stays, older, own] = [0, 1, 2].map(of);
        [stays, older].into_iter().for_each(|key| _ = queue.add(key));
        let get = || *queue.try_get().expect("it is queued");
        assert_eq!(get(), stays);
        queue.add(own);
        assert_eq!([get(), get()], [own, older]);
    }
}
