//! Runs a list of calls on a queue with priorities and groups and on the plain one, and compares every result, every hand-out, and the
//! numbers by level and by group, and the list of delayed keys.
//!
//! One thread, one shard, [`Driver::Manual`] and a mock clock. Used by `order_model.rs` (proptest), by the fuzz target `order_vs_lists`, and by
//! `replay_corpus.rs`.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use super::plain_order::{PlainQueue, Plan, weight_of};
use arbitrary::{Arbitrary, Unstructured};
use keyqueue::{
    AddOptions, Clock, DelayConflict, DelayedAdd, DelayedKey, Driver, Item, Priority, TryGetError, WorkQueue,
};
use std::time::Duration;

/// One call. An index selects a held item, modulo their number; if there is none, the call is skipped.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Op {
    Add(u8),
    AddWith(u8, Level, u8, Conflict),
    Cancel(u8),
    /// Moves the clock, and adds what has expired.
    Turn(u8),
    Get,
    Done(u8),
    /// Of a held item.
    Requeue(u8, Option<Level>, u8, Conflict),
    /// Gets this number of keys, and is done with each.
    Work(u8),
    TakeWhere(u8),
    ShutDown,
    ShrinkToFit,
    /// The fuzzer makes it of a `Cancel`, so that its corpus decodes to the same calls: see `decoded`.
    #[arbitrary(skip)]
    Remove(u8),
}

impl Op {
    /// The cancels of odd keys are removals.
    fn decoded(self) -> Self {
        match self {
            Self::Cancel(key) if key % 2 == 1 => Self::Remove(key),
            op => op,
        }
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Level {
    Min,
    Low,
    Normal,
    High,
    Any(i8),
}

impl Level {
    fn priority(self) -> Priority {
        match self {
            Self::Min => Priority(i8::MIN),
            Self::Low => Priority::LOW,
            Self::Normal => Priority::NORMAL,
            Self::High => Priority::HIGH,
            Self::Any(priority) => Priority(priority),
        }
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Conflict {
    EarliestWins,
    Replace,
    KeepExisting,
}

impl Conflict {
    fn of_the_crate(self) -> DelayConflict {
        match self {
            Self::EarliestWins => DelayConflict::EarliestWins,
            Self::Replace => DelayConflict::Replace,
            Self::KeepExisting => DelayConflict::KeepExisting,
        }
    }
}

/// The plan of this number.
pub(crate) fn plan(n: u8) -> Plan {
    let policies = [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict];
    let (groups, limit) = [(None, None), (Some(5), None), (Some(40), None), (Some(3), Some(1)), (Some(7), Some(3))]
        [usize::from(n / 6 % 5)];
    Plan { strict: n / 3 % 2 == 1, groups, limit, policy: policies[usize::from(n % 3)] }
}

/// The number of plans.
pub(crate) const PLANS: u8 = 30;

/// Runs the fuzz target's input. The first byte selects the plan.
pub(crate) fn run_bytes(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let Ok(ops) = Vec::<Op>::arbitrary_take_rest(Unstructured::new(rest)) else { return };
    run(plan(first), &ops.into_iter().map(Op::decoded).collect::<Vec<_>>());
}

pub(crate) fn run(plan: Plan, ops: &[Op]) {
    let (clock, mock) = Clock::mock();
    let mut builder = WorkQueue::<u8>::builder().clock(clock).driver(Driver::Manual).delayed_add(plan.policy);
    builder = builder.strict_priorities(plan.strict);
    if let Some(groups) = plan.groups {
        builder = builder.fair_by(move |key| key % groups).group_weight(move |key| weight_of(key % groups));
    }
    if let Some(limit) = plan.limit {
        builder = builder.max_processing_per_group(limit as usize);
    }
    let queue = builder.build();
    let mut plain = PlainQueue::new(plan);
    let mut held: Vec<Item<'_, u8>> = Vec::new();
    for op in ops {
        match *op {
            Op::Add(key) => assert_eq!(queue.add(key), plain.add(key, 0), "{op:?}"),
            Op::AddWith(key, level, delay, conflict) => {
                let (options, delay) = options(delay, conflict);
                let added = queue.add_with(key, options.priority(level.priority()));
                assert_eq!(added, plain.add_with(key, level.priority().0, delay, conflict.of_the_crate()), "{op:?}");
            }
            Op::Cancel(key) => assert_eq!(queue.cancel(&key), plain.cancel(key), "{op:?}"),
            Op::Remove(key) => assert_eq!(queue.remove(&key), plain.take_back(key), "{op:?}"),
            Op::Turn(span) => {
                mock.advance(Duration::from_nanos(span.into()));
                plain.now += u64::from(span);
                assert_eq!(queue.turn(), plain.turn(), "{op:?}");
            }
            Op::Get => held.extend(get(&queue, &mut plain)),
            Op::Work(count) => (0..count).for_each(|_| {
                if let Some(item) = get(&queue, &mut plain) {
                    plain.done(*item);
                }
            }),
            Op::Done(n) if !held.is_empty() => {
                let item = held.swap_remove(usize::from(n) % held.len());
                plain.done(*item);
            }
            Op::Requeue(n, level, delay, conflict) if !held.is_empty() => {
                let item = held.swap_remove(usize::from(n) % held.len());
                let (mut options, delay) = options(delay, conflict);
                if let Some(level) = level {
                    options = options.priority(level.priority());
                }
                let priority = level.map(|level| level.priority().0);
                let expected = plain.requeue(*item, priority, delay, conflict.of_the_crate());
                assert_eq!(item.requeue_with(options), expected, "{op:?}");
            }
            Op::Done(_) | Op::Requeue(..) => {}
            Op::TakeWhere(bits) => {
                let matches = |key: u8| bits & 1 << (key % 8) != 0;
                let taken = queue.take_where(|key| matches(*key));
                let delayed: Vec<_> = plain.delayed_keys().filter(|&(key, ..)| matches(key)).collect();
                let (queued, _) = plain.take_where(matches);
                assert_eq!((taken.queued, sorted(taken.delayed)), (queued, delayed), "{op:?}");
            }
            Op::ShutDown => {
                queue.shut_down();
                plain.shut_down = true;
            }
            Op::ShrinkToFit => queue.shrink_to_fit(),
        }
        check(&queue, &plain);
    }
    // Whatever is held is done, and then each queued key is handed out, in the order of the plain queue.
    held.drain(..).for_each(|item| plain.done(*item));
    while let Some(item) = get(&queue, &mut plain) {
        plain.done(*item);
    }
    check(&queue, &plain);
    assert!(queue.is_empty());
}

fn options(delay: u8, conflict: Conflict) -> (AddOptions, u64) {
    let delay = u64::from(delay) / 2; // now and then zero
    (AddOptions::new().after(Duration::from_nanos(delay)).conflict(conflict.of_the_crate()), delay)
}

/// By key, each with the time that is left and the priority.
fn sorted(delayed: Vec<DelayedKey<u8>>) -> Vec<(u8, u64, i8)> {
    let keys = delayed.into_iter();
    let mut keys: Vec<_> =
        keys.map(|delayed| (delayed.key, delayed.left.as_nanos() as u64, delayed.priority.0)).collect();
    keys.sort_unstable();
    keys
}

fn get<'q>(queue: &'q WorkQueue<u8>, plain: &mut PlainQueue) -> Option<Item<'q, u8>> {
    let expected = plain.get();
    match queue.try_get() {
        Ok(item) => {
            assert_eq!(Some((*item, item.priority().0)), expected);
            Some(item)
        }
        Err(error) => {
            let is_over = plain.shut_down && plain.len() == 0;
            assert_eq!((expected, error), (None, if is_over { TryGetError::ShutDown } else { TryGetError::Empty }));
            None
        }
    }
}

fn check(queue: &WorkQueue<u8>, plain: &PlainQueue) {
    let levels: Vec<_> = queue.inspect().levels().iter().map(|level| (level.priority.0, level.len)).collect();
    assert_eq!(levels, plain.levels().map(|(level, keys)| (level, keys.len())).collect::<Vec<_>>());
    assert_eq!((queue.len(), queue.stats().len), (plain.len(), plain.len()));
    let listed = queue.inspect().delayed_keys();
    assert!(listed.is_sorted_by_key(|listed| listed.left), "earliest first");
    assert_eq!(sorted(listed), plain.delayed_keys().collect::<Vec<_>>());
    if let Some(groups) = plain.plan().groups {
        let mut of_groups: Vec<_> = queue
            .inspect()
            .groups()
            .iter()
            .map(|group| (group.key % groups, (group.queued, group.processing)))
            .collect();
        of_groups.sort_unstable();
        assert_eq!(of_groups, plain.groups().into_iter().collect::<Vec<_>>());
    }
}
