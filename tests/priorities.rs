//! Priorities (P19): that no level starves and no HIGH key waits for long, also where the choice of a shard counts; and the first priority of
//! a long queue.
//!
//! What the tests of `pkg/controller/priorityqueue` in sigs.k8s.io/controller-runtime check is made and judged by the plain queue of
//! `reference/`. Ours differs from theirs in these points:
//! * A key that is queued and gets a delay has both: the promised run at that time is not lost (`DelayedAdd::Independent`; theirs drops it).
//!   The policy `DelayedAdd::Promote` is theirs: an add replaces the delay.
//! * After a shut-down the queued keys are handed out first, as in client-go (theirs returns at once, and drops them).
//! * Lower levels are handed out now and then, unless the queue is strict (theirs starve: controller-runtime#3496).

mod support {
    pub(crate) mod manual;
}

use keyqueue::{AddOptions, Added, Priority, WorkQueue};
use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use support::manual::manual;

const fn at(priority: i8) -> AddOptions {
    AddOptions::new().priority(Priority(priority))
}

/// A get and a shut-down meet, with keys of many priorities: every thread returns. (controller-runtime#3538 is a deadlock there.)
#[test]
fn a_shut_down_releases_all_threads() {
    for round in 0..50 {
        let queue = WorkQueue::builder().shards(if round % 2 == 0 { 1 } else { 4 }).build();
        thread::scope(|scope| {
            for seed in 0..8 {
                let queue = &queue;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed + 8 * round);
                    loop {
                        queue.add_with(random.u16(0..1000), at(random.i8(0..100)));
                        if queue.get().is_none() {
                            return;
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(1));
            queue.shut_down();
        });
    }
}

/// Over 300 000 hand-outs, with three lower levels and a highest one that never ends, each lower level gets its part (P19).
#[test]
fn no_level_starves() {
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).build();
        for key in 0..3000_u64 {
            queue.add_with(key, at(-((key % 3) as i8)));
        }
        (3000..4000_u64).for_each(|key| _ = queue.add_with(key, at(100)));
        let (mut of_level, mut since) = (HashMap::<i8, u64>::new(), 0);
        for _ in 0..300_000 {
            let item = queue.try_get().unwrap();
            let priority = item.priority();
            *of_level.entry(priority.0).or_default() += 1;
            since = if priority == Priority::HIGH { since + 1 } else { 0 };
            assert!(shards > 1 || since < 16, "of 16 hand-outs one is of a lower level");
            let _queued = queue.add_with(*item, AddOptions::new().priority(priority));
        }
        let lower = [0, -1, -2].map(|level| of_level[&level]);
        assert!(lower.iter().all(|count| (5_400..7_200).contains(count)), "{shards} shards: {of_level:?}");
    }
}

/// The first priority of a queue with many keys: they keep their order, and others are not kept waiting for long.
#[test]
fn a_million_keys_move_when_the_first_priority_comes() {
    let queue = WorkQueue::new();
    queue.add_all(0..1_000_000_u32);
    queue.add_with(500_000, at(1));
    assert_eq!(*queue.get().unwrap(), 500_000);
    let rest = queue.get_many(usize::MAX);
    assert!(rest.iter().map(|item| **item).eq((0..1_000_000).filter(|key| *key != 500_000)));
}

/// A key that is raised in one of many shards comes next, as soon as the getter looks for another shard.
#[test]
fn a_raised_key_is_found_in_any_shard() {
    let queue = WorkQueue::builder().shards(64).strict_priorities(true).build();
    (0..20_000_u32).for_each(|key| _ = queue.add_with(key, at(if key % 2 == 0 { 0 } else { -1 })));
    for key in (19_001..19_500).step_by(20) {
        assert_eq!(queue.add_with(key, at(5)), Added::Coalesced);
        let before = (0..).take_while(|_| *queue.try_get().unwrap() != key).count();
        assert!(before < 8, "{before} keys came before");
    }
}

/// How long HIGH keys wait that come to a backlog of LOW ones.
#[derive(Default)]
struct Waits {
    /// For each HIGH key, the hand-outs while it was queued, and those of them that were LOW.
    each: Vec<(usize, usize)>,
    /// LOW keys that were handed out while a HIGH key was queued.
    low_before_high: usize,
    most_queued: usize,
}

/// Adds a HIGH key each `every` hand-outs. Threads take one key each in turn.
fn waits(shards: usize, getters: usize, every: usize, strict: bool) -> Waits {
    const HAND_OUTS: usize = 3000;
    const FIRST_HIGH: usize = 1_000_000;
    let queue = WorkQueue::builder().shards(shards).strict_priorities(strict).build();
    (0..2 * HAND_OUTS).for_each(|key| _ = queue.add_with(key, AddOptions::new().priority(Priority::LOW)));
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
    let (mut waits, mut low) = (Waits::default(), 0);
    // When each queued HIGH key was added, and how many LOW ones had been handed out by then.
    let mut queued = HashMap::new();
    for turn in 0..HAND_OUTS {
        if turn % every == 0 {
            queue.add_with(FIRST_HIGH + turn, AddOptions::new().priority(Priority::HIGH));
            queued.insert(FIRST_HIGH + turn, (turn, low));
        }
        waits.most_queued = waits.most_queued.max(queued.len());
        getters[turn % getters.len()].send(()).unwrap();
        match queued.remove(&taken.recv().unwrap()) {
            Some((added, low_before)) => waits.each.push((turn - added, low - low_before)),
            None => {
                low += 1;
                waits.low_before_high += usize::from(!queued.is_empty());
            }
        }
    }
    waits.each.extend(queued.into_values().map(|(added, low_before)| (HAND_OUTS - added, low - low_before)));
    waits
}

/// With shards a HIGH key waits for few LOW ones, however many are queued (P19).
#[test]
fn a_high_key_waits_for_few_low_ones_with_shards() {
    let getters_and_shards = [1, 4, 32].into_iter().flat_map(|getters| [2, 16, 64].map(|shards| (getters, shards)));
    let cases = getters_and_shards.flat_map(|(getters, shards)| [4, 5, 51].map(|every| (getters, shards, every)));
    let mut failed = false;
    for (strict, (getters, shards, every)) in cases.flat_map(|case| [(true, case), (false, case)]) {
        let Waits { each, low_before_high, most_queued } = waits(shards, getters, every, strict);
        // Of each 16 hand-outs of a shard one is of a lower level, and of 16 choices of a shard one goes by age: for up to 5 keys.
        let turns = |waited: usize| if strict { 0 } else { shards + waited / 16 + 5 * (waited / 16 + 1) };
        let bound = 4 * (shards + getters);
        let too_long = each.iter().filter(|(waited, low)| *low > bound + turns(*waited)).count();
        let most = each.iter().max();
        println!(
            "{shards} shards, {getters} getters, strict {strict}, a HIGH key each {every} hand-outs: it waits for {most:?} hand-outs and LOW \
             keys at most, {bound} and turns allowed; {low_before_high} LOW came before a HIGH key, {most_queued} HIGH keys were queued"
        );
        failed |= too_long > 0;
    }
    assert!(!failed);
}

/// Metrics by level: what is queued, and how long keys of each priority have waited.
#[test]
fn metrics_count_each_level() {
    for shards in [1, 4] {
        let (builder, time) = manual(WorkQueue::builder().shards(shards).measure(true));
        let queue = builder.build();
        let wait = |ms| time.advance(Duration::from_millis(ms));
        queue.add(1);
        wait(1);
        queue.get().unwrap().done();
        assert_eq!(queue.inspect().metrics().levels, [], "no priority was given");
        // Each level's keys wait for a time that tells the level. Key 1000 is raised after half of it.
        for priority in [-100, 0, 100] {
            let time = (priority / 10 + 20) as u64;
            (0..100).for_each(|key| _ = queue.add_with(key, at(priority)));
            queue.add_with(1000, at(priority - 1));
            wait(time / 2);
            queue.add_with(1000, at(priority));
            assert_eq!(queue.inspect().metrics().levels.iter().map(|level| level.len).sum::<usize>(), 101);
            wait(time - time / 2);
            while let Ok(item) = queue.try_get() {
                item.done();
            }
        }
        let metrics = queue.inspect().metrics();
        let count = |level: &keyqueue::observe::LevelMetrics| {
            let waited = &level.queue_duration;
            (level.priority.0, level.len, waited.count(), waited.sum().as_millis())
        };
        let levels: Vec<_> = metrics.levels.iter().map(count).collect();
        assert_eq!(levels, [(100, 0, 101, 3030), (0, 0, 102, 2021), (-100, 0, 101, 1010)]);
        assert_eq!((metrics.queue_duration.count(), metrics.queue_duration.sum().as_millis()), (304, 6061));
    }
}

/// Where keys come fast, one add in eight is measured; not in a queue with priorities, where a rare key would get the wait of another one.
#[test]
fn each_wait_of_a_rare_priority_is_measured() {
    for is_fair in [false, true] {
        let builder = WorkQueue::builder().measure(true);
        let queue = if is_fair { builder.fair_by(|key: &u32| key % 3) } else { builder }.build();
        let get = || queue.get().unwrap().done();
        let fast = |keys: u32| {
            for key in 0..keys {
                queue.add(key);
                get();
            }
        };
        fast(1000);
        queue.add(7);
        queue.add_with(7, at(100)); // raised
        get();
        let wait = Duration::from_millis(2);
        for n in 0..10 {
            fast(1000 + n);
            queue.add_with(1_000_000, at(100));
            thread::sleep(wait);
            get();
        }
        let metrics = queue.inspect().metrics();
        let high = &metrics.levels[0].queue_duration;
        assert!((10..=11).contains(&high.count()) && high.sum() >= 10 * wait, "{metrics:?}");
        assert_eq!(metrics.queue_duration.count(), metrics.stats.handed_out, "{metrics:?}");
    }
}
