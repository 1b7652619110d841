//! Groups whose limits, rates and pauses come and go: no key is lost, limits and rates are kept, and a seed gives the same run twice (P20, P27).

use keyqueue::{AddOptions, Clock, Driver, FairShare, GroupLimits, Item, Priority, WorkQueue};
use std::collections::HashSet;
use std::time::Duration;

type Key = (usize, u32);
const GROUPS: usize = 20;
const HAND_OUTS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
const MS: u64 = 1_000_000;

/// The hand-outs of a group since its rate was set, against each span: `count <= burst + rate * span`.
#[derive(Default)]
struct Spans {
    rate: Option<(f64, u32)>,
    count: f64,
    /// The least `count - rate * time` before a hand-out.
    least: f64,
}

impl Spans {
    fn note(&mut self, now: u64) {
        let Some((rate, burst)) = self.rate else { return };
        let earned = rate * now as f64 / 1e9;
        self.least = self.least.min(self.count - earned);
        self.count += 1.0;
        assert!(self.count - earned - self.least <= f64::from(burst) + 1e-3, "a rate is exceeded at {now}");
    }
}

fn run(seed: u64, shards: usize, share: FairShare, pace: bool) -> Vec<Key> {
    let (clock, time) = Clock::mock();
    let mut builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).seed(seed).shards(shards);
    if pace {
        builder = builder.pace(5000.0, 20);
    }
    let queue = builder.fair_by(|&(group, _): &Key| group).fair_share(share).build();
    let (mut random, mut now) = (fastrand::Rng::with_seed(seed), 0);
    let mut limits = [usize::MAX; GROUPS];
    let mut spans: [Spans; GROUPS] = std::array::from_fn(|_| Spans::default());
    let (mut paused, mut processing) = ([0_u64; GROUPS], [0; GROUPS]);
    let (mut waiting, mut held) = (HashSet::new(), Vec::<Item<'_, Key>>::new());
    let mut order = Vec::new();
    let mut idle = 0;
    loop {
        let ends = order.len() >= HAND_OUTS;
        if ends && waiting.is_empty() && held.is_empty() {
            return order;
        }
        let group = random.usize(..GROUPS);
        let key = (group, random.u32(..30));
        match random.u32(..100) {
            0..=39 if !ends => {
                let delay = if random.u32(..4) == 0 { random.u64(..20 * MS) } else { 0 };
                let priority = Priority([-100, 0, 1, 100][random.usize(..4)]);
                queue.add_with(key, AddOptions::new().after(Duration::from_nanos(delay)).priority(priority));
                waiting.insert(key);
            }
            40..=41 if !ends && !held.iter().any(|item| **item == key) => {
                queue.remove(&key);
                queue.cancel(&key);
                waiting.remove(&key);
            }
            42 if !ends => {
                let mut new = GroupLimits::new().weight(random.u32(1..5));
                limits[group] = usize::MAX;
                if random.bool() {
                    limits[group] = random.usize(1..4);
                    new = new.max_processing(limits[group]);
                }
                let rate = random.bool().then(|| (random.f64() * 500.0 + 10.0, random.u32(1..8)));
                if let Some((rate, burst)) = rate {
                    new = new.rate(rate, burst);
                }
                spans[group] = Spans { rate, least: f64::MAX, ..Spans::default() };
                queue.group(&key).set(new).unwrap();
            }
            43 if !ends => {
                queue.group(&key).unset();
                (limits[group], spans[group]) = (usize::MAX, Spans::default());
            }
            44 if !ends => {
                let by = random.u64(1..50 * MS);
                queue.group(&key).pause(Duration::from_nanos(by)).unwrap();
                paused[group] = paused[group].max(now + by);
            }
            45 if !ends => {
                queue.group(&key).resume();
                paused[group] = 0;
            }
            46..=60 => {
                let by = random.u64(..MS);
                time.advance(Duration::from_nanos(by));
                now += by;
                queue.turn();
            }
            61..=75 if !held.is_empty() => {
                let item = held.swap_remove(random.usize(..held.len()));
                processing[item.0] -= 1;
                item.done();
            }
            _ if held.len() < 30 => {
                let Ok(item) = queue.try_get() else {
                    idle += 1;
                    assert!(idle < 100_000, "{waiting:?} never come");
                    continue;
                };
                idle = 0;
                let group = item.0;
                assert!(now >= paused[group], "a paused group gives a key");
                processing[group] += 1;
                assert!(processing[group] <= limits[group], "a limit is exceeded");
                spans[group].note(now);
                waiting.remove(&*item);
                order.push(*item);
                held.push(item);
            }
            _ => {}
        }
    }
}

#[test]
fn every_key_comes_and_a_seed_gives_the_same_twice() {
    for shards in [1, 16] {
        for share in [FairShare::HandOuts, FairShare::WorkTime] {
            for pace in [false, true] {
                let first = run(62, shards, share, pace);
                assert!(first == run(62, shards, share, pace), "{shards} shards, {share:?}, pace {pace}");
            }
        }
    }
}
