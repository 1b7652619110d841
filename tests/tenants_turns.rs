//! Groups whose limits, rates and pauses come and go: no key waits for longer than the rules allow, limits and rates are kept, and a seed
//! gives the same run twice (P19, P20, P27, P32).
//!
//! **How long a key waits.** The clock of a wait is the number of hand-outs of the queue while the key's group is not held back. A *lane* is
//! the keys of one group and one priority, which come in their order. The bound follows from the rules, and not from what was measured:
//!
//! Let a lane have keys, and its group not be held back. Each of the other groups has one turn in each round, and gives at most `WEIGHT` keys
//! in it. A lane that has had its turn in this round has the next one in the next round, so before it comes each of the others has at most
//! two: one that was left in this round, and one in the next. A lane that has missed its turn is new and comes sooner still. In a queue with
//! several shards a group may have one more turn, because groups may be two turns apart (P20). After `2 * WEIGHT * (GROUPS - 1)` hand-outs of
//! its priority, or `3 * WEIGHT * (GROUPS - 1)`, the lane therefore gives a key at the next one.
//!
//! * If groups that were never seen before keep coming, they go ahead of those that have had turns, for 15 of 16 hand-outs: the bound is 16
//!   times as large.
//! * With several priorities, one of 16 hand-outs goes to the lower ones, and each of them has it in turn: it is `16 * (priorities - 1)` times
//!   as large. If there are several shards, too, those that have keys of a lower priority get its turns one after the other. With `n` groups
//!   in the shard there are at most `GROUPS - n` other shards with groups, so it takes `GROUPS - n + 1` turns to hand out a key there.
//!
//! This is the longest *stretch*. It ends with a hand-out of the lane, or because the group is held back again. If the lane's own hand-out has
//! used up a limit or a token, both are the same, so a key that is the `n`th of its lane comes within `n` stretches, and one more for each
//! pause or change of limits that has held its group back meanwhile.
//!
//! With several priorities, a hand-out of another lane may also use up the limit of the group. A group with a limit or a rate therefore gives
//! one of 16 of its hand-outs to its lower lanes, in turn. So the `n`th key comes within `n` times `16 * (priorities - 1)` hand-outs of the
//! group, and each of these ends a stretch. (A lane that is the first of its group at the moment of such a turn has the next one, so one more is
//! allowed.)

use keyqueue::{AddOptions, Clock, Driver, FairShare, GroupLimits, Item, Priority, WorkQueue};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

type Key = (usize, u32);
const GROUPS: usize = 8;
const KEYS: u32 = 24;
const WEIGHT: u32 = 2;
const MS: u64 = 1_000_000;

/// The tokens that a group has spent and not got back, which are never more than the burst of its rate. It is the same to say that over any
/// span at most `burst + rate * span` keys are handed out, with the sum over its parts if the rate changes in the span.
#[derive(Default)]
struct Tokens {
    rate: Option<(f64, u32)>,
    spent: f64,
    at: u64,
}

impl Tokens {
    fn pass(&mut self, now: u64) {
        let rate = self.rate.map_or(0.0, |(rate, _)| rate);
        self.spent = (self.spent - rate * (now - self.at) as f64 / 1e9).max(0.0);
        self.at = now;
    }

    /// Spent tokens stay spent at another rate. Without a rate none are spent.
    fn set(&mut self, rate: Option<(f64, u32)>, now: u64) {
        self.pass(now);
        self.rate = rate;
        if rate.is_none() {
            self.spent = 0.0;
        }
    }

    fn are_left(&mut self, now: u64) -> bool {
        self.pass(now);
        self.rate.is_none_or(|(_, burst)| self.spent + 1.0 + 1e-3 <= burst.into())
    }

    fn take(&mut self, now: u64) {
        self.pass(now);
        let Some((_, burst)) = self.rate else { return };
        self.spent += 1.0;
        assert!(self.spent <= f64::from(burst) + 1e-3, "a rate is exceeded at {now}: {} of {burst}", self.spent);
    }
}

struct Group {
    limit: usize,
    tokens: Tokens,
    paused: u64,
    processing: usize,
    /// The number of queued keys of each priority.
    queued: [u64; 3],
    count: Count,
}

/// What has been counted of a group since the begin.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Hand-outs of the queue while the group was not held back.
    clock: u64,
    /// How often a call has held it back.
    breaks: u64,
    /// Hand-outs of the group.
    given: u64,
    /// The same while it had neither a limit nor a rate.
    given_freely: u64,
}

impl Group {
    fn new() -> Self {
        let (tokens, count) = (Tokens::default(), Count::default());
        Self { limit: usize::MAX, tokens, paused: 0, processing: 0, queued: [0; 3], count }
    }

    fn is_limited(&self) -> bool {
        self.limit < usize::MAX || self.tokens.rate.is_some()
    }

    fn is_held_back(&mut self, now: u64) -> bool {
        self.processing >= self.limit || self.paused > now || !self.tokens.are_left(now)
    }
}

#[derive(Clone, Copy)]
enum Wait {
    Delayed(u64),
    /// The key is the `nth` of its lane.
    Queued {
        nth: u64,
        since: Count,
    },
    /// It is processing, and will be queued when that ends.
    Dirty,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    shards: usize,
    share: FairShare,
    pace: bool,
    priorities: &'static [i8],
    /// The number of groups with one key each that are kept queued. When one is handed out, another one comes that was never seen before.
    strangers: usize,
    /// Of 10 000 steps, how many change limits, and as many pause a group, end its pause, and take its limits back.
    changes: u32,
}

impl Plan {
    const PLAIN: Self =
        Self { shards: 1, share: FairShare::HandOuts, pace: false, priorities: &[0], strangers: 0, changes: 100 };

    /// Of how many hand-outs of its group, or of the queue, one goes to a lane, if it goes to lower priorities in turn.
    fn lower(&self) -> u64 {
        16 * self.priorities.len() as u64 - if self.priorities.len() > 1 { 16 } else { 15 }
    }

    /// The longest stretch.
    fn stretch(&self) -> u64 {
        let groups = GROUPS as u64;
        let of_priority = |turns, groups: u64| turns * u64::from(WEIGHT) * (groups - 1) + 1;
        let of_lower = |in_shard| (groups + 1 - in_shard) * of_priority(2, in_shard);
        let of_priority = match (self.shards, self.priorities.len()) {
            (1, _) => of_priority(2, groups),
            (_, 1) => of_priority(3, groups),
            _ => (1..=groups).map(of_lower).fold(of_priority(3, groups), u64::max),
        };
        of_priority * self.lower() * if self.strangers > 0 { 16 } else { 1 }
    }
}

/// Returns the keys in the order in which they were handed out, and the largest ratio of a wait to its bound.
fn run(seed: u64, plan: &Plan, hand_outs: usize) -> (Vec<Key>, f64) {
    let (clock, time) = Clock::mock();
    let mut builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).seed(seed).shards(plan.shards);
    if plan.pace {
        builder = builder.pace(2000.0, 20);
    }
    let queue = builder.fair_by(|&(group, _): &Key| group).fair_share(plan.share).build();
    let (mut random, mut now) = (fastrand::Rng::with_seed(seed), 0);
    let mut groups: [Group; GROUPS] = std::array::from_fn(|_| Group::new());
    let (mut waiting, mut held) = (BTreeMap::new(), Vec::<Item<'_, Key>>::new());
    let (mut strangers, mut last_stranger) = (HashSet::new(), GROUPS);
    // Three of four keys have the first priority, which therefore has keys nearly always.
    let level = |key: &Key| (key.1 as usize % 8).saturating_sub(5).min(plan.priorities.len() - 1);
    let priority = |key: &Key| Priority(plan.priorities[level(key)]);
    let queued = |groups: &mut [Group; GROUPS], key: &Key| {
        let group = &mut groups[key.0];
        group.queued[level(key)] += 1;
        Wait::Queued { nth: group.queued[level(key)], since: group.count }
    };
    let (mut order, mut idle, mut ratio) = (Vec::new(), 0, 0.0_f64);
    loop {
        let ends = order.len() >= hand_outs;
        if ends && waiting.is_empty() && held.is_empty() && strangers.is_empty() {
            return (order, ratio);
        }
        while strangers.len() < plan.strangers && !ends {
            last_stranger += 1;
            let key = (last_stranger, random.u32(..KEYS));
            queue.add_with(key, AddOptions::new().priority(priority(&key)));
            strangers.insert(key);
        }
        let at = random.usize(..GROUPS);
        let key = (at, random.u32(..KEYS));
        let dice = random.u32(..10_000);
        // Held back by a call, and not by a hand-out.
        let mut may_break = None;
        match dice {
            _ if dice < 4 * plan.changes && !ends => {
                may_break = Some(groups[at].is_held_back(now));
                let (group, of) = (&mut groups[at], queue.group(&key));
                match dice % 4 {
                    0 => {
                        let limit = random.bool().then(|| random.usize(1..4));
                        let rate = random.bool().then(|| (random.f64() * 500.0 + 10.0, random.u32(1..8)));
                        group.limit = limit.unwrap_or(usize::MAX);
                        group.tokens.set(rate, now);
                        let mut new = GroupLimits::new().weight(random.u32(1..=WEIGHT));
                        (new.max_processing, new.rate) = (limit, rate);
                        of.set(new).unwrap();
                    }
                    1 => {
                        group.limit = usize::MAX;
                        group.tokens.set(None, now);
                        of.unset();
                    }
                    2 => {
                        let by = random.u64(1..50 * MS);
                        group.paused = group.paused.max(now + by);
                        of.pause(Duration::from_nanos(by)).unwrap();
                    }
                    _ => {
                        group.paused = 0;
                        of.resume();
                    }
                }
            }
            ..4000 if !ends => {
                let after = if random.u32(..4) == 0 { random.u64(1..20 * MS) } else { 0 };
                let is_held = held.iter().any(|item| **item == key);
                let add = |after| {
                    queue.add_with(key, AddOptions::new().after(Duration::from_nanos(after)).priority(priority(&key)))
                };
                match waiting.get(&key) {
                    Some(Wait::Delayed(_)) => {}
                    Some(_) => _ = add(0),
                    None if is_held => {
                        add(0);
                        waiting.insert(key, Wait::Dirty);
                    }
                    None => {
                        add(after);
                        let wait = if after > 0 { Wait::Delayed(now + after) } else { queued(&mut groups, &key) };
                        waiting.insert(key, wait);
                    }
                }
            }
            ..4200 if !ends && !held.iter().any(|item| **item == key) => {
                queue.remove(&key);
                queue.cancel(&key);
                if let Some(Wait::Queued { .. }) = waiting.remove(&key) {
                    groups[at].queued[level(&key)] -= 1;
                }
            }
            4200..5700 => {
                let by = random.u64(..MS);
                time.advance(Duration::from_nanos(by));
                now += by;
                queue.turn();
                let is_over = |wait: &Wait| matches!(wait, Wait::Delayed(until) if *until <= now);
                let over: Vec<Key> = waiting.iter().filter(|(_, wait)| is_over(wait)).map(|(key, _)| *key).collect();
                over.iter().for_each(|key| _ = queued(&mut groups, key));
                // They come in any order, so each counts as the last one of its lane.
                for key in over {
                    let group = &groups[key.0];
                    waiting.insert(key, Wait::Queued { nth: group.queued[level(&key)], since: group.count });
                }
            }
            5700..7200 if !held.is_empty() => {
                let item = held.swap_remove(random.usize(..held.len()));
                let key = *item;
                item.done();
                if key.0 < GROUPS {
                    groups[key.0].processing -= 1;
                }
                if let Some(wait @ Wait::Dirty) = waiting.get_mut(&key) {
                    *wait = queued(&mut groups, &key);
                }
            }
            _ if held.len() < 30 => {
                let Ok(item) = queue.try_get() else {
                    idle += 1;
                    assert!(idle < 100_000, "{:?} never come", waiting.keys());
                    continue;
                };
                idle = 0;
                for group in &mut groups {
                    group.count.clock += u64::from(!group.is_held_back(now));
                }
                let key = *item;
                order.push(key);
                held.push(item);
                if key.0 >= GROUPS {
                    assert!(strangers.remove(&key));
                    continue;
                }
                let group = &mut groups[key.0];
                assert!(now >= group.paused, "a paused group gives a key");
                group.processing += 1;
                assert!(group.processing <= group.limit, "a limit is exceeded");
                group.tokens.take(now);
                group.queued[level(&key)] -= 1;
                group.count.given += 1;
                group.count.given_freely += u64::from(!group.is_limited());
                let Some(Wait::Queued { nth, since }) = waiting.remove(&key) else { panic!("{key:?} was not queued") };
                if plan.share == FairShare::HandOuts {
                    let count = group.count;
                    let given = count.given - since.given;
                    let limited = given - (count.given_freely - since.given_freely);
                    let at_most = (nth + 1) * plan.lower();
                    assert!(
                        limited <= at_most,
                        "{plan:?}: {key:?} waits for {limited} of its group, {at_most} at most"
                    );
                    // Hand-outs of its lane, or of its group if others may hold it back.
                    let own = if limited > 0 && plan.priorities.len() > 1 { given } else { nth };
                    let (waited, breaks) = (count.clock - since.clock, count.breaks - since.breaks);
                    let bound = (own + breaks) * plan.stretch();
                    assert!(waited <= bound, "{plan:?}: {key:?} waits for {waited} hand-outs, {bound} at most");
                    ratio = ratio.max(waited as f64 / bound as f64);
                }
            }
            _ => {}
        }
        if may_break == Some(false) {
            groups[at].count.breaks += u64::from(groups[at].is_held_back(now));
        }
    }
}

#[test]
fn no_key_waits_for_longer_than_the_rules_allow() {
    let hand_outs = if cfg!(debug_assertions) { 8_000 } else { 125_000 };
    let several = Plan { priorities: &[100, 0, -100], changes: 4, ..Plan::PLAIN };
    let mut all = 0;
    for plan in [
        Plan::PLAIN,
        Plan { pace: true, changes: 400, ..Plan::PLAIN },
        Plan { strangers: 4, changes: 10, ..Plan::PLAIN },
        Plan { shards: 16, ..Plan::PLAIN },
        Plan { shards: 16, strangers: 4, changes: 10, ..Plan::PLAIN },
        several,
        Plan { pace: true, ..several },
        Plan { shards: 16, ..several },
    ] {
        let (order, ratio) = run(62, &plan, hand_outs);
        println!("{} hand-outs, longest wait {ratio:.3} of its bound: {plan:?}", order.len());
        all += order.len();
    }
    assert!(all >= 8 * hand_outs);
}

#[test]
fn every_key_comes_and_a_seed_gives_the_same_twice() {
    let hand_outs = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    for shards in [1, 16] {
        for share in [FairShare::HandOuts, FairShare::WorkTime] {
            for pace in [false, true] {
                let plan = Plan { shards, share, pace, priorities: &[100, 0, -100], strangers: 0, changes: 100 };
                assert!(run(62, &plan, hand_outs).0 == run(62, &plan, hand_outs).0, "{plan:?}");
            }
        }
    }
}
