//! The turn of the lower levels, in a queue with several shards (P19).
//!
//! ```text
//!   hand-outs of all shards     …   16     …     32     …     48             counted in each shard, added up at a choice
//!   turn                            16 ────────▶ 32 ────────▶ 48
//!                                    └ lower₁     └ lower₂     └ lower₁       the first choice from there on takes a key of that level
//! ```
//!
//! A level is *lower* if a higher one has keys in any shard. One of [`TURNS`] hand-outs of the whole queue goes to the lower levels that
//! wait, in turn, as in a queue with one shard. Turns of each shard by itself would make a LOW key wait for those of all others.
//!
//! Each shard counts its hand-outs under its lock, so that no word is written by every get. The word of the turns is written once in
//! [`TURNS`] hand-outs. The first getter that chooses when a turn is due takes the key, and goes on with its shard. A turn thus belongs to
//! no getter, so that none that sleeps or ends holds it up, and a turn that comes late does not delay the next one.
//!
//! Of the shards that have this level, the getter takes the one whose oldest lower key has waited longest. No key starves, because the
//! oldest of all lower keys goes at the next turn of its level. With groups, these shards have the turns of the level one after the other,
//! because the oldest key of a group may wait for its group's turn.

use super::Shared;
use super::hub::Flags;
use super::locked::{Busy, Locked};
use super::take::Taken;
use crate::order::{TURNS, Words};
use crate::sync::Ordering;

/// When the last turn was due, and the level that had it, in one word.
#[derive(Clone, Copy)]
struct Turn {
    /// The number of hand-outs when the last turn was due.
    since: u64,
    last: u8,
}

impl Turn {
    fn of(word: u64) -> Self {
        Self { since: word >> 8, last: word as u8 }
    }

    fn word(self) -> u64 {
        self.since << 8 | u64::from(self.last)
    }
}

impl<K> Shared<K> {
    /// Takes a key of a lower level if it is their turn. `None`: the getter chooses by priority.
    #[inline]
    pub(super) fn take_lower(&self) -> Option<Taken<K>> {
        if !self.flags().has(Flags::ORDERED) || self.settings.order.strict || cfg!(loom) {
            return None;
        }
        let handed_out = self.first.handed_out() + self.others.iter().map(Locked::handed_out).sum::<u64>();
        // Relaxed, here and below: only the turns depend on it, and another getter may have seen a later number.
        let word = self.turn.load(Ordering::Relaxed);
        if handed_out.saturating_sub(Turn::of(word).since) < u64::from(TURNS) {
            return None;
        }
        self.take_in_turn(handed_out, word)
    }

    #[cold]
    #[inline(never)]
    fn take_in_turn(&self, handed_out: u64, word: u64) -> Option<Taken<K>> {
        let turn = Turn::of(word);
        let moves_to =
            |next: Turn| self.turn.compare_exchange(word, next.word(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let mut levels = Words::default();
        self.all().filter(|locked| !locked.seems_empty()).for_each(|locked| levels.add(locked.levels()));
        let top = levels.top()?;
        let Some(level) = levels.below(turn.last.min(top)).or_else(|| levels.below(top)) else {
            // No lower level waits, so the next turn is `TURNS` hand-outs from now.
            let _is_first = moves_to(Turn { since: handed_out, ..turn });
            return None;
        };
        // Relaxed, and below: as above.
        let next = self.lower_shards.as_ref().map(|shards| &shards[usize::from(level)]);
        let first = next.map(|next| next.load(Ordering::Relaxed) as usize);
        let rank = |locked: &&Locked<K>| match first {
            Some(first) => (locked.index.wrapping_sub(first) & (self.shards() - 1)) as u64,
            None => locked.age_of(level),
        };
        // The shards where another getter has taken the key or holds the lock.
        let mut passed = Busy::default();
        loop {
            let may_have =
                |locked: &&Locked<K>| !locked.seems_empty() && locked.has_level(level) && !passed.contains(locked);
            // If there is none, the turn stays due for the next choice.
            let locked = self.all().filter(may_have).min_by_key(rank)?;
            let Some(held) = locked.lock_to_take(locked.lock_passes() == 0, &mut passed) else { continue };
            if !held.order().is_ready(level) {
                passed.insert(locked);
                continue;
            }
            let then = Turn { since: turn.since + u64::from(TURNS), last: level };
            if !moves_to(then) {
                return None;
            }
            let taken = self.take(held, Some(level));
            if taken.is_some() {
                next.into_iter().for_each(|next| next.store(locked.index as u64 + 1, Ordering::Relaxed));
            } else {
                // There is no token, so the turn stays due, unless another getter has gone on.
                let _ = self.turn.compare_exchange(then.word(), word, Ordering::Relaxed, Ordering::Relaxed);
            }
            return taken;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::shared::cursor::Cursor;
    use crate::{AddOptions, Clock, OwnedItem, Priority, WorkQueue};
    use std::collections::HashMap;

    /// The keys that requeue themselves at once.
    const NORMAL: u64 = 101;

    /// Which getter takes the next key.
    #[derive(Clone, Copy, Debug)]
    enum Getters {
        InTurn,
        AtRandom,
        /// All but one have taken a key, and do not end while LOW keys wait.
        OneAwake,
        /// Each ends after some hand-outs, and another one comes for it.
        ThatEnd,
    }

    /// How long LOW keys wait in a queue of NORMAL keys that are queued again at once.
    struct Waits {
        /// The hand-outs of the whole queue from the add of the last of three LOW keys to that of the last of them, at most.
        of_three: usize,
        /// By how many hand-outs a LOW key came later than 16 for each LOW key up to it, at most.
        late: usize,
        /// Hand-outs of LOW keys, and of all.
        low: usize,
        all: usize,
    }

    fn waits(
        builder: crate::WorkQueueBuilder<u64>,
        getters: usize,
        kind: Getters,
        is_random: bool,
        seed: u64,
    ) -> Waits {
        let queue = builder.seed(seed).clock(Clock::mock().0).build();
        let mut random = fastrand::Rng::with_seed(seed);
        (0..NORMAL).for_each(|key| _ = queue.add(key));
        let mut cursors: Vec<_> = (0..getters).map(|_| Cursor::new()).collect();
        let mut waits = Waits { of_three: 0, late: 0, low: 0, all: 0 };
        // Of each LOW key the hand-outs of all keys and of LOW ones at its add.
        let (mut queued, mut next) = (HashMap::new(), NORMAL);
        let mut asleep: Vec<OwnedItem<u64>> = Vec::new();
        let mut last_three = None;
        for turn in 0..4000 {
            if queued.is_empty() && turn % 7 == 0 || is_random && random.u8(..) < 10 {
                let count = if is_random { random.u64(1..4) } else { 3 };
                for _ in 0..count {
                    _ = queue.add_with(next, AddOptions::new().priority(Priority::LOW));
                    queued.insert(next, (waits.all, waits.low));
                    next += 1;
                }
                last_three = (queued.len() == 3).then_some(waits.all);
            }
            if matches!(kind, Getters::OneAwake) && turn % 500 == 0 {
                asleep.drain(..).for_each(|item| {
                    let key = *item;
                    item.done();
                    queue.add(key);
                });
            }
            let of = match kind {
                Getters::InTurn => turn % getters,
                Getters::AtRandom => random.usize(..getters),
                Getters::OneAwake if turn % 500 < getters - 1 => turn % 500 + 1,
                Getters::OneAwake => 0,
                Getters::ThatEnd => {
                    let of = turn % getters;
                    if random.u8(..) < 50 {
                        cursors[of] = Cursor::new();
                    }
                    of
                }
            };
            cursors[of].of_another(|| {
                let item = queue.try_get().unwrap();
                let key = *item;
                waits.all += 1;
                if key >= NORMAL {
                    waits.low += 1;
                    let (all, low) = queued.remove(&key).unwrap();
                    waits.late = waits.late.max((waits.all - all).saturating_sub(16 * (waits.low - low)));
                    if let Some(added) = last_three.filter(|_| queued.is_empty()) {
                        waits.of_three = waits.of_three.max(waits.all - added);
                    }
                } else if matches!(kind, Getters::OneAwake) && of > 0 {
                    asleep.push(item.into_owned());
                } else {
                    item.done();
                    queue.add(key);
                }
            });
        }
        for (all, low) in queued.into_values() {
            waits.late = waits.late.max((waits.all - all).saturating_sub(16 * (waits.low - low + 1)));
        }
        waits
    }

    #[test]
    fn the_last_of_three_low_keys_comes_in_time_with_any_number_of_shards() {
        let mut failed = Vec::new();
        for (shards, getters) in
            [1, 2, 4, 16, 64].into_iter().flat_map(|shards| [1, 2, 3, 4, 8].map(|getters| (shards, getters)))
        {
            for kind in [Getters::InTurn, Getters::AtRandom, Getters::OneAwake, Getters::ThatEnd] {
                for (is_random, is_fair) in [(false, false), (true, false), (false, true), (true, true)] {
                    let builder = WorkQueue::builder().shards(shards);
                    let builder = if is_fair { builder.fair_by(|key: &u64| key % 5) } else { builder };
                    let waits = waits(builder, getters, kind, is_random, 7);
                    let slack = 4 * (shards + getters);
                    let case = format!(
                        "{shards} shards, {getters} getters {kind:?}, random {is_random}, fair {is_fair}: three after {}, one {} late; {} of {}",
                        waits.of_three, waits.late, waits.low, waits.all
                    );
                    println!("{case}");
                    // At most one hand-out of 16 is of a lower level.
                    if waits.of_three > 64 + slack || waits.late > 16 + slack || 16 * waits.low > waits.all + 16 {
                        failed.push(case);
                    }
                }
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
    }

    /// The turn of a level goes to the shard whose oldest key of a lower level has waited longest, whether the shard has keys of the higher
    /// one or not.
    #[test]
    fn a_turn_goes_to_the_shard_with_the_oldest_lower_key() {
        for shards_with_more in [1, 4] {
            for older in [1, 2] {
                let queue = WorkQueue::builder().shards(4).seed(1).clock(Clock::mock().0).build();
                let shard_of = |key: &u64| queue.shared.hash(key).shard(4);
                let of = |shard| (0_u64..).filter(move |key| shard_of(key) == shard);
                let low = [older, 3 - older].map(|shard| of(shard).next().expect("each shard has keys"));
                low.iter().for_each(|key| _ = queue.add_with(*key, AddOptions::new().priority(Priority::LOW)));
                for shard in 0..shards_with_more {
                    of(shard).skip(1).take(100).for_each(|key| _ = queue.add(key));
                }
                let hand_outs = (0..100).map(|_| *queue.try_get().expect("it is queued"));
                let came = Vec::from_iter(hand_outs.filter(|key| low.contains(key)));
                assert_eq!(came, low, "{shards_with_more} shards have NORMAL keys");
            }
        }
    }
}
