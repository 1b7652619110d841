//! Priorities (P19): the behaviour that controller-runtime's priority queue is tested for, and that no level starves.
//!
//! The first part follows the tests of `pkg/controller/priorityqueue` in sigs.k8s.io/controller-runtime. Ours differ in these points:
//! * A key that is queued and gets a delay has both: the promised run at that time is not lost ([`DelayedAdd::Independent`]; theirs drops it).
//!   The policy [`DelayedAdd::Promote`] is theirs: an add replaces the delay.
//! * After a shut-down the queued keys are handed out first, as in client-go (theirs returns at once, and drops them).
//! * Lower levels are handed out now and then, unless the queue is strict (theirs starve: controller-runtime#3496).
//!
//! Not followed: tests of their B-trees, ticks, log lines and copies of items, which have no counterpart here.

use keyqueue::{AddOptions, Added, Clock, DelayedAdd, Driver, Item, Priority, WorkQueue, WorkQueueBuilder};
use std::collections::HashMap;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

const fn at(priority: i8) -> AddOptions {
    AddOptions::new().priority(Priority(priority))
}

fn builder() -> WorkQueueBuilder<&'static str> {
    WorkQueue::builder().delayed_add(DelayedAdd::Promote)
}

fn next<'q>(queue: &'q WorkQueue<&'static str>) -> (Item<'q, &'static str>, &'static str, i8) {
    let item = queue.try_get().unwrap();
    let (key, priority) = (*item, item.priority().0);
    (item, key, priority)
}

fn depths<K>(queue: &WorkQueue<K>) -> Vec<(i8, usize)> {
    queue.inspect().levels().iter().map(|level| (level.priority.0, level.len)).collect()
}

#[test]
fn keys_of_one_priority_are_first_in_first_out() {
    let queue = builder().build();
    ["foo", "bar"].into_iter().for_each(|key| _ = queue.add_with(key, at(7)));
    assert_eq!(queue.inspect().levels().len(), 1);
    assert_eq!((next(&queue).1, next(&queue).1, queue.stats().adds()), ("foo", "bar", 2));
}

#[test]
fn a_key_that_is_processing_is_not_handed_out_and_comes_back_when_it_is_done() {
    let queue = builder().build();
    queue.add_with("foo", at(1));
    let foo = next(&queue).0;
    assert_eq!(queue.add_with("foo", at(1)), Added::Deferred);
    queue.add_with("bar", at(1));
    assert_eq!(next(&queue).1, "bar");
    queue.add_with("baz", at(0));
    foo.done();
    assert_eq!(depths(&queue), [(1, 1), (0, 1)]);
    assert_eq!((next(&queue).1, next(&queue).1), ("foo", "baz"));
}

/// The highest priority counts, of adds while a key is queued and of adds while it is processing.
#[test]
fn the_highest_priority_counts() {
    for priorities in [[1, 2], [2, 1]] {
        let queue = builder().build();
        let added = priorities.map(|priority| queue.add_with("foo", at(priority)));
        assert_eq!((added, queue.len(), queue.stats().adds()), ([Added::Queued, Added::Coalesced], 1, 1));
        let (foo, key, priority) = next(&queue);
        assert_eq!((key, priority, queue.len()), ("foo", 2, 0));
        priorities.into_iter().for_each(|priority| _ = queue.add_with("foo", at(priority)));
        foo.done();
        assert_eq!(next(&queue).2, 2);
    }
}

/// A plain add counts as NORMAL: more than LOW, and less than HIGH.
#[test]
fn a_plain_add_is_normal() {
    let queue = builder().build();
    queue.add_with("low", AddOptions::new().priority(Priority::LOW));
    queue.add_with("high", AddOptions::new().priority(Priority::HIGH));
    assert_eq!((queue.add("low"), queue.add("high")), (Added::Coalesced, Added::Coalesced));
    assert_eq!((next(&queue).2, next(&queue).2), (100, 0));
}

#[test]
fn a_raised_key_goes_to_the_end_of_its_new_level() {
    let queue = builder().build();
    queue.add_all(["foo", "bar", "baz"]);
    queue.add_with("baz", at(1));
    queue.add_with("foo", at(1));
    assert_eq!(depths(&queue), [(1, 2), (0, 1)]);
    assert_eq!(["baz", "foo", "bar"].map(|_| next(&queue).1), ["baz", "foo", "bar"]);
}

#[test]
fn delayed_keys_do_not_count_until_they_are_due() {
    let (clock, mock) = Clock::mock();
    let queue = builder().clock(clock).driver(Driver::Manual).build();
    for _ in 0..2 {
        for (key, delay) in [("foo", 500), ("baz", 0), ("bar", 500), ("bal", 0)] {
            queue.add_with(key, at(3).after(Duration::from_millis(delay)));
        }
        assert_eq!(depths(&queue), [(3, 2)]);
        mock.advance(Duration::from_secs(1));
        queue.turn();
        assert_eq!(depths(&queue), [(3, 4)]);
        assert_eq!(queue.add("foo"), Added::Coalesced);
        assert_eq!([(); 4].map(|()| next(&queue).1), ["baz", "bal", "foo", "bar"]);
    }
}

/// An earlier deadline and a higher priority each count.
#[test]
fn a_delay_keeps_its_higher_priority() {
    let (clock, mock) = Clock::mock();
    let queue = builder().clock(clock).driver(Driver::Manual).build();
    let [second, minute] = [1, 60].map(Duration::from_secs);
    assert_eq!(queue.add_with("foo", at(5).after(minute)), Added::Delayed);
    assert_eq!(queue.add_with("foo", at(1).after(second)), Added::Delayed);
    assert_eq!(queue.add_with("bar", at(3).after(second)), Added::Delayed);
    mock.advance(second);
    assert_eq!(queue.turn(), 2);
    assert_eq!([(); 2].map(|()| (next(&queue).1, queue.len())), [("foo", 1), ("bar", 0)]);
}

/// An add without a delay takes the place of the delay, and has the higher of the two priorities.
#[test]
fn an_add_replaces_a_delay_and_takes_its_priority() {
    for (delayed, added) in [(0, 1), (1, 0)] {
        let queue = builder().driver(Driver::Manual).build();
        queue.add_with("foo", at(delayed).after(Duration::from_secs(3600)));
        assert!(queue.is_empty());
        queue.add_with("foo", at(added));
        assert_eq!((depths(&queue), queue.delayed_len()), (vec![(1, 1)], 0));
        assert_eq!(next(&queue).2, 1);
    }
}

/// Where ours differs: the delay of a queued key is set as well.
#[test]
fn a_queued_key_that_gets_a_delay_has_both() {
    let queue = builder().driver(Driver::Manual).build();
    queue.add_with("foo", at(1));
    assert_eq!(queue.add_with("foo", at(1).after(Duration::from_secs(3600))), Added::Delayed);
    assert_eq!((next(&queue).1, queue.delayed_len()), ("foo", 1));
}

/// A key that becomes due comes before a queued one of a lower priority.
#[test]
fn a_due_key_of_a_higher_priority_comes_first() {
    let (clock, mock) = Clock::mock();
    let queue = builder().clock(clock).driver(Driver::Manual).build();
    queue.add_with("low", at(-100));
    queue.add_with("high", at(0).after(Duration::from_secs(1)));
    mock.advance(Duration::from_secs(1));
    queue.turn();
    assert_eq!((next(&queue).1, depths(&queue), queue.stats().retries), ("high", vec![(-100, 1)], 1));
}

/// Where ours differs: queued keys are handed out after a shut-down.
#[test]
fn a_shut_down_hands_out_what_is_queued() {
    let queue = builder().build();
    queue.add_with("baz", at(3));
    queue.shut_down();
    assert_eq!(queue.add_with("foo", at(3).after(Duration::from_secs(1))), Added::Rejected);
    assert_eq!(queue.get().map(|item| *item), Some("baz"));
    assert!(queue.get().is_none() && queue.get().is_none());
}

/// In a strict queue each level is handed out before the next one begins, whether the keys came at once or after a delay.
#[test]
fn strict_priorities_come_one_level_after_the_other() {
    for delay in [0, 1] {
        let (clock, mock) = Clock::mock();
        let queue = WorkQueue::builder().strict_priorities(true).clock(clock).driver(Driver::Manual).build();
        for n in 0..1000 {
            for priority in [10, 5, 0, -5, -10] {
                queue.add_with((priority, n), at(priority).after(Duration::from_secs(delay)));
            }
        }
        mock.advance(Duration::from_secs(delay));
        queue.turn();
        for priority in [10, 5, 0, -5, -10] {
            for n in 0..1000 {
                let item = queue.try_get().unwrap();
                assert_eq!((*item, item.priority().0), ((priority, n), priority));
            }
        }
        assert_eq!((queue.stats().adds(), queue.stats().retries), (5000, 5000));
    }
}

/// Threads add keys with random priorities, some with a delay, and threads take them: nobody gets a key that another thread has, and each
/// key has the highest priority of its adds.
#[test]
fn threads_add_and_take_keys_of_all_priorities() {
    for shards in [1, 4] {
        let queue = WorkQueue::<u8>::builder().shards(shards).delayed_add(DelayedAdd::Promote).build();
        // The highest priority of the adds since the last hand-out. Locked during each call, so that it is exact.
        let expected = Mutex::new(HashMap::<u8, i8>::new());
        let held = Mutex::new([false; 256]);
        thread::scope(|scope| {
            let adders = [1, 2, 3, 4].map(|seed| {
                let (queue, expected) = (&queue, &expected);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..5000 {
                        let (key, priority) = (random.u8(..), random.i8(..));
                        // A delay may be consumed by a later add, so it has the lowest priority.
                        let (priority, delay) =
                            if random.u8(0..4) == 0 { (i8::MIN, random.u64(1..2000)) } else { (priority, 0) };
                        let delay = Duration::from_micros(delay);
                        let mut expected = expected.lock().unwrap();
                        assert!(queue.add_with(key, at(priority).after(delay)).is_accepted());
                        let highest = expected.entry(key).or_insert(priority);
                        *highest = priority.max(*highest);
                    }
                })
            });
            for _ in 0..8 {
                scope.spawn(|| {
                    loop {
                        let item = {
                            let mut expected = expected.lock().unwrap();
                            match queue.try_get() {
                                Ok(item) => {
                                    // `None`: a delay that was set while the key was queued has expired.
                                    let highest = expected.remove(&item).unwrap_or(i8::MIN);
                                    assert_eq!(item.priority().0, highest);
                                    item
                                }
                                Err(keyqueue::TryGetError::ShutDown) => return,
                                Err(_) => {
                                    drop(expected);
                                    thread::yield_now();
                                    continue;
                                }
                            }
                        };
                        let key = usize::from(*item);
                        assert!(!std::mem::replace(&mut held.lock().unwrap()[key], true), "{key} has two holders");
                        held.lock().unwrap()[key] = false;
                    }
                });
            }
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            queue.wait_idle();
            queue.shut_down();
        });
        assert_eq!((queue.len(), queue.processing_len(), queue.delayed_len()), (0, 0, 0));
    }
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

/// What a holder puts back keeps its priority, unless it says another.
#[test]
fn a_requeued_key_keeps_its_priority() {
    let (clock, mock) = Clock::mock();
    let queue = builder().clock(clock).driver(Driver::Manual).build();
    queue.add_with("foo", at(9));
    type Step = fn(Item<'_, &str>) -> Added;
    let steps: [(Step, i8); 4] = [
        (|item| item.retry(), 9),
        (|item| item.requeue_after(Duration::from_secs(1)), 9),
        (|item| item.requeue_with(at(-3)), -3),
        (|item| item.requeue_with(AddOptions::new()), -3),
    ];
    for (step, priority) in steps {
        assert!(step(next(&queue).0).is_accepted());
        mock.advance(Duration::from_secs(1));
        queue.turn();
        assert_eq!(depths(&queue), [(priority, 1)]);
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
        let figures = |of: fn(&(usize, usize)) -> usize| {
            let mut sorted: Vec<_> = each.iter().map(of).collect();
            sorted.sort_unstable();
            [50, 99, 100].map(|percent| sorted[(sorted.len() - 1) * percent / 100])
        };
        println!(
            "{shards} shards, {getters} getters, strict {strict}, a HIGH key each {every} hand-outs: it waits for {:?} hand-outs \
             (median, p99, most), of them {:?} LOW, {bound} and turns allowed; {low_before_high} LOW came before a HIGH key, {most_queued} HIGH \
             keys were queued at most",
            figures(|(waited, _)| *waited),
            figures(|(_, low)| *low),
        );
        failed |= too_long > 0;
    }
    assert!(!failed);
}

/// The predicate gives the queue its first priority, while the keys that match are still being collected.
#[test]
fn keys_that_move_meanwhile_are_taken_out() {
    for after in [0, 600] {
        let queue = WorkQueue::new();
        queue.add_all(0..1000_u32);
        let taken = queue.take_where(|key| {
            if *key == after {
                queue.add_with(5000, at(1));
            }
            *key < 900
        });
        assert!(taken.queued.iter().copied().eq(0..900), "after {after}: {} keys", taken.queued.len());
        let left: Vec<u32> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        assert!(left.iter().copied().eq([5000].into_iter().chain(900..1000)));
    }
}

/// Metrics by level: what is queued, and how long keys of each priority have waited.
#[test]
fn metrics_count_each_level() {
    for shards in [1, 4] {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().shards(shards).clock(clock).driver(Driver::Manual).measure(true).build();
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
