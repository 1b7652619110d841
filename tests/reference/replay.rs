//! Judges what threads did ([`threads`](super::threads)): the plain queue makes the same steps, shard by shard, in the order in which the
//! critical sections took their turns.
//!
//! ```text
//!   shard 0    1      2      3      4      5 …      each number once: no two critical sections were side by side
//!   thread     a      b      a      c      b
//!   call       add    get    done   get    add      the answer is what the plain queue says at this step
//! ```
//!
//! A call takes effect in its last critical section of the key's shard; those before it have only looked, or moved keys. With groups and
//! several shards, a call by key looks into each shard that has a key of the same hash, and a look-up of a key that is not there may have no
//! critical section at all. A get takes a key in
//! each critical section in which one is ready, so it is also known in which it must not have found one. An answer that is a sum over the
//! shards is the sum of what each shard's plain queue says at its step. The only thing that is searched for is the first step that sees the
//! shut-down: it lies between an add that was accepted and one that was refused.

use crate::reference::key::KEYS;
use crate::reference::op::How;
use crate::reference::queue::Reference;
use crate::threads::{Call, History, Parts, Record, Step, Sum, THREADS, parts};
use keyqueue::Added;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A critical section: its thread, and its place in the thread's list.
type Place = (usize, usize);

/// The call of a critical section: its thread, and its number there.
type CallId = (usize, usize);

/// How much was judged.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    critical_sections: usize,
    /// Those that follow one of another thread.
    meetings: usize,
}

/// Judges the whole run.
pub(crate) fn judge(history: &History, judged: &mut Judged) {
    let mut sums = HashMap::new();
    let calls: Vec<Vec<usize>> = history.logs.iter().map(|log| calls_of(&log.records, log.steps.len())).collect();
    check_places(history);
    for shard in 0..history.plan.shards {
        let steps = in_order(history, shard);
        judged.critical_sections += steps.len();
        judged.meetings += steps.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
        let shard = Shard { history, calls: &calls, shard, steps: &steps };
        let replay = match shard.replay() {
            Ok(replay) => replay,
            Err((at, reason)) => panic!("{}", shard.report(at, &reason)),
        };
        for (call, part) in replay.sums {
            let sum: &mut Parts = sums.entry(call).or_default();
            part.into_iter().for_each(|(name, number)| *sum.entry(name).or_default() += number);
        }
    }
    for ((thread, call), sum) in sums {
        let record = &history.logs[thread].records[call];
        let Call::Sum(_, seen) = &record.call else { continue };
        assert_eq!(seen, &sum, "thread {thread}: the shards' parts of {:?} are not its sum", record.call);
    }
}

/// The call of each critical section.
fn calls_of(records: &[Record], steps: usize) -> Vec<usize> {
    let mut calls = Vec::with_capacity(steps);
    for (number, record) in records.iter().enumerate() {
        calls.resize(record.end, number);
    }
    assert_eq!(calls.len(), steps, "each critical section belongs to a call");
    calls
}

/// A call by key that has found something, or has added its key, has a critical section in the key's shard.
fn check_places(history: &History) {
    for log in &history.logs {
        let mut from = 0;
        for Record { call, end, .. } in &log.records {
            let (key, has_found) = match call {
                Call::Add(key, ..) => (*key, true),
                Call::Cancel(key, found) | Call::Remove(key, found) => (*key, *found),
                Call::NumRequeues(key, number) => (*key, *number > 0),
                _ => (0, false),
            };
            let is_there = || log.steps[from..*end].iter().any(|step| step.shard == history.shard_of[usize::from(key)]);
            assert!(!has_found || is_there(), "{call:?} has not visited the key's shard");
            from = *end;
        }
    }
}

/// The critical sections of a shard.
fn in_order(history: &History, shard: usize) -> Vec<Place> {
    let mut order = Vec::new();
    for (thread, log) in history.logs.iter().enumerate() {
        for (at, step) in log.steps.iter().enumerate().filter(|(_, step)| step.shard == shard) {
            let number = step.number as usize;
            order.resize(order.len().max(number + 1), None);
            let other = order[number].replace((thread, at));
            assert!(
                other.is_none(),
                "shard {shard}: two critical sections have the number {number}: threads {thread} and {other:?}"
            );
        }
    }
    let missing = |(number, place): (usize, Option<Place>)| {
        place.unwrap_or_else(|| panic!("shard {shard}: who took step {number}?"))
    };
    order.into_iter().enumerate().map(missing).collect()
}

#[derive(Clone, Copy)]
struct Shard<'h> {
    history: &'h History,
    /// For each thread, the call of each of its critical sections.
    calls: &'h [Vec<usize>],
    shard: usize,
    steps: &'h [Place],
}

/// What the plain queue knows after some steps.
#[derive(Clone)]
struct Replay {
    reference: Reference,
    /// Calls that go on in a later critical section.
    open: HashMap<CallId, Open>,
    /// What this shard adds to the answers over several shards.
    sums: HashMap<CallId, Parts>,
    /// What the adds of a key have announced so far, by thread.
    announced: [[u64; THREADS]; KEYS as usize],
}

/// What a call has done so far.
#[derive(Clone)]
enum Open {
    /// The number of keys that it has got, or has to take.
    Count(usize),
    /// Of a `take_where` or `take_delayed`: the keys that were queued when it looked, with the numbers of their pushes; and those that have
    /// been delayed since then.
    Where(Vec<(u8, u64)>, Vec<u8>),
}

/// The step that the plain queue refuses, and why.
type Result<T> = std::result::Result<T, (usize, String)>;

fn expect<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T) -> std::result::Result<(), String> {
    if seen == expected { Ok(()) } else { Err(format!("expected {expected:?}")) }
}

fn sorted<T: Ord>(list: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = Vec::from_iter(list);
    list.sort_unstable();
    list
}

impl Shard<'_> {
    fn step(&self, at: usize) -> (CallId, &Record, Step) {
        let (thread, place) = self.steps[at];
        let call = self.calls[thread][place];
        let log = &self.history.logs[thread];
        ((thread, call), &log.records[call], log.steps[place])
    }

    /// The critical sections of the same call in this shard: those before this one, and those after it.
    fn others(&self, at: usize) -> (impl Iterator<Item = &Step>, impl Iterator<Item = &Step>) {
        let (thread, place) = self.steps[at];
        let ((_, call), record, _) = self.step(at);
        let log = &self.history.logs[thread];
        let begin = if call == 0 { 0 } else { log.records[call - 1].end };
        let here = |step: &&Step| step.shard == self.shard;
        (log.steps[begin..place].iter().filter(here), log.steps[place + 1..record.end].iter().filter(here))
    }

    fn is_here(&self, key: u8) -> bool {
        self.history.shard_of[usize::from(key)] == self.shard
    }

    /// Whether a call has only looked for its key here, because another key of this shard has the same hash.
    fn only_looks(&self, call: &Call) -> bool {
        let is_elsewhere = match call {
            Call::Add(key, ..) | Call::Cancel(key, _) | Call::Remove(key, _) => !self.is_here(*key),
            Call::Forget(key) | Call::NumRequeues(key, _) => !self.is_here(*key),
            _ => false,
        };
        assert!(!is_elsewhere || self.history.plan.groups.is_some(), "{call:?} has visited the wrong shard");
        is_elsewhere
    }

    fn here(&self, keys: &[u8]) -> Vec<u8> {
        keys.iter().copied().filter(|key| self.is_here(*key)).collect()
    }

    // ---- the shut-down ----

    fn replay(&self) -> Result<Replay> {
        let History { plan, shard_of, limits, .. } = self.history;
        let mut replay = Replay {
            reference: Reference::new(plan.clone(), shard_of.clone(), limits.clone()),
            open: HashMap::new(),
            sums: HashMap::new(),
            announced: Default::default(),
        };
        let window = self.shut_down();
        replay.steps(self, 0..window.start, false)?;
        let mut furthest = (0, String::new());
        for first in window.start..=window.end {
            let mut replay = replay.clone();
            let end = replay
                .steps(self, window.start..first, false)
                .and_then(|()| replay.steps(self, first..self.steps.len(), true));
            match end {
                Ok(()) => return Ok(replay),
                Err(error) => furthest = std::cmp::max_by_key(furthest, error, |(at, _)| *at),
            }
        }
        Err(furthest)
    }

    /// Where the first step is that sees the shut-down: after the last step that the thread made before the call, at the latest at the
    /// call's own, and between an add that was accepted and one that was refused.
    fn shut_down(&self) -> std::ops::Range<usize> {
        let (mut start, mut end, mut own) = (0, self.steps.len(), [0; THREADS]);
        for at in 0..self.steps.len() {
            let ((thread, _), record, _) = self.step(at);
            match &record.call {
                Call::BeginsShutDown => {
                    (start, end) = (own[thread], at);
                    break;
                }
                _ => own[thread] = at + 1,
            }
        }
        let mut accepted = start;
        for at in start..end {
            let (_, record, _) = self.step(at);
            match &record.call {
                Call::Add(_, _, added) | Call::Requeue { answer: Some(added), .. }
                    if self.others(at).1.next().is_none() && !self.only_looks(&record.call) =>
                {
                    if *added == Added::Rejected {
                        return accepted..at;
                    }
                    accepted = at + 1;
                }
                _ => {}
            }
        }
        accepted..end
    }

    // ---- what a reader needs ----

    fn report(&self, at: usize, reason: &str) -> String {
        use std::fmt::Write;
        let line = |at: usize| {
            let ((thread, _), record, step) = self.step(at);
            format!(
                "{:>8}  thread {thread}  {:?}{}",
                step.number,
                record.call,
                record.time.map_or(String::new(), |time| format!("  at {time} ns"))
            )
        };
        let keys = self.keys_of(&self.step(at).1.call);
        let meets =
            |at: &usize| keys.is_empty() || self.keys_of(&self.step(*at).1.call).iter().any(|key| keys.contains(key));
        let mut before: Vec<usize> = (0..at).rev().filter(meets).take(12).collect();
        before.reverse();
        let mut text = format!(
            "shard {}: the plain queue refuses step {at}: {reason}\n{:?}\nBefore it, on the same keys:\n",
            self.shard, self.history.plan
        );
        before.into_iter().chain([at]).for_each(|at| writeln!(text, "{}", line(at)).expect("a string"));
        text
    }

    /// The keys that a call names. None: it may concern each key.
    fn keys_of(&self, call: &Call) -> Vec<u8> {
        match call {
            Call::Add(key, ..) | Call::Cancel(key, _) | Call::Remove(key, _) | Call::Forget(key) => vec![*key],
            Call::NumRequeues(key, _) | Call::HeldPriority(key, _) | Call::IsDirty(key, _) => vec![*key],
            Call::Done(key) | Call::Succeed(key) | Call::GiveUp(key) | Call::Requeue { key, .. } => vec![*key],
            Call::Get { keys, .. } => keys.iter().map(|(key, _)| *key).collect(),
            Call::Sum(Sum::AddAll(keys), _) => keys.clone(),
            Call::TakeWhere { queued, delayed, .. } => {
                queued.iter().copied().chain(delayed.iter().map(|(key, ..)| *key)).collect()
            }
            Call::TakeDelayed(delayed) => delayed.iter().map(|(key, ..)| *key).collect(),
            Call::Sum(Sum::Turn, _) => self.here(&Vec::from_iter(0..KEYS)),
            _ => Vec::new(),
        }
    }
}

impl Replay {
    fn steps(&mut self, shard: &Shard<'_>, range: std::ops::Range<usize>, shut_down: bool) -> Result<()> {
        self.reference.shut_down = shut_down;
        for at in range {
            let judged = catch_unwind(AssertUnwindSafe(|| self.step(shard, at)));
            judged
                .unwrap_or_else(|_| Err("the plain queue has panicked: see above".into()))
                .map_err(|reason| (at, reason))?;
        }
        Ok(())
    }

    fn step(&mut self, shard: &Shard<'_>, at: usize) -> std::result::Result<(), String> {
        let (id, record, _) = shard.step(at);
        if shard.only_looks(&record.call) {
            return Ok(());
        }
        let (before, after) = shard.others(at);
        let (before, after) = (before.count(), after.count());
        let is_last = after == 0;
        self.reference.now = record.time.unwrap_or(self.reference.now);
        let reference = &mut self.reference;
        for open in self.open.values_mut() {
            if let Open::Where(_, found) = open {
                found.retain(|key| reference.is_delayed(*key).0);
            }
        }
        match &record.call {
            Call::Get { keys, is_many, is_over } => {
                let mut here = keys.iter().filter(|(key, _)| shard.is_here(*key));
                let mut got = if let Some(Open::Count(got)) = self.open.remove(&id) { got } else { 0 };
                for _ in 0..got {
                    here.next();
                }
                // After its first key, a `get_many` takes what it wants, or leaves it.
                let takes_all = *is_many && got > 0 && shard.history.plan.shards == 1;
                while let Some(next) = self.reference.next_keys().first().copied() {
                    let Some(&(key, ref seen)) = here.next() else {
                        let is_enough = *is_many && !keys.is_empty() || got > 0;
                        expect(&is_enough, &true).map_err(|_| format!("key {next} is ready, and was not taken"))?;
                        break;
                    };
                    expect(&self.reference.next_keys().contains(&key), &true)?;
                    self.reference.hand_out(key);
                    let announced = &self.announced[usize::from(key)];
                    expect(&announced.iter().zip(seen).all(|(announced, seen)| announced <= seen), &true)
                        .map_err(|_| format!("the holder of key {key} does not see what came before its adds: {announced:?}, {seen:?}"))?;
                    got += 1;
                    if !takes_all {
                        break;
                    }
                }
                if is_last {
                    expect(&here.count(), &0).map_err(|_| "a key was handed out that was not ready".to_owned())?;
                    let seems_over = self.reference.shut_down && self.reference.queued() == 0;
                    expect(&(!is_over || seems_over), &true)
                        .map_err(|_| "not shut down, or keys are queued".to_owned())?;
                } else {
                    self.open.insert(id, Open::Count(got));
                }
            }
            Call::Add(key, how, answer) if is_last => {
                expect(answer, &self.add(*key, how.as_ref()))?;
                self.announced[usize::from(*key)][id.0] = record.published;
            }
            Call::Cancel(key, answer) if is_last => expect(answer, &reference.cancel(*key))?,
            Call::Remove(key, answer) if is_last => expect(answer, &reference.remove(*key))?,
            Call::Forget(key) if is_last => reference.limits.forget(key),
            Call::NumRequeues(key, answer) => expect(answer, &reference.limits.num_requeues(key))?,
            Call::HeldPriority(key, answer) => expect(answer, &reference.held_priority(*key))?,
            Call::IsDirty(key, answer) if before == 0 => expect(answer, &reference.is_dirty(*key))?,
            Call::Done(key) if is_last => self.end(*key, Reference::done)?,
            Call::Succeed(key) if is_last => self.end(*key, Reference::succeed)?,
            Call::GiveUp(key) if is_last => self.end(*key, Reference::give_up)?,
            Call::Requeue { key, how, delay, forgets, answer } => {
                // A refused add has a critical section, and the done that follows it too.
                let is_refused = answer.map_or(before + 1 + after == 2, |answer| answer == Added::Rejected);
                if after == usize::from(is_refused) && *forgets {
                    reference.limits.forget(key);
                }
                match (is_refused, after) {
                    (true, 1) => {
                        let priority = how.priority.unwrap_or(reference.held_priority(*key));
                        expect(&Added::Rejected, &reference.add_with(*key, how, *delay, priority))?;
                    }
                    (true, 0) => self.end(*key, Reference::done)?,
                    (false, 0) => {
                        let mut added = Added::Rejected;
                        self.end(*key, |reference, key| added = reference.requeue(key, how, *delay))?;
                        expect(&(added != Added::Rejected), &true).map_err(|_| "it is refused".to_owned())?;
                        expect(&answer.unwrap_or(added), &added)?;
                    }
                    _ => {}
                }
            }
            // One look, and if it has seen keys, one section that takes them.
            Call::TakeWhere { bits, queued, delayed, processing } => {
                let matches = |key: &u8| bits & 1 << key != 0;
                if before == 0 {
                    let pushed = (0..KEYS).filter(matches).filter_map(|key| Some((key, reference.push_of(key)?)));
                    let found = reference.delayed().into_iter().map(|(key, ..)| key).filter(matches);
                    let held = reference.processing().into_iter().filter(matches).collect();
                    expect(&sorted(shard.here(processing)), &held)?;
                    self.open.insert(id, Open::Where(pushed.collect(), found.collect()));
                }
                if is_last {
                    let Some(Open::Where(pushed, found)) = self.open.remove(&id) else {
                        return Err("it has begun".into());
                    };
                    let is_still = |(key, push): &(u8, u64)| reference.push_of(*key) == Some(*push);
                    let mut keys: Vec<u8> = pushed.into_iter().filter(is_still).map(|(key, _)| key).collect();
                    reference.sort_by_age(&mut keys);
                    expect(&shard.here(queued), &keys)?;
                    let due: Vec<_> = reference.delayed().into_iter().filter(|(key, ..)| found.contains(key)).collect();
                    expect(
                        &sorted(delayed.iter().copied().filter(|(key, ..)| shard.is_here(*key))),
                        &sorted(due.clone()),
                    )?;
                    keys.into_iter().for_each(|key| reference.take(key));
                    due.into_iter().for_each(|(key, ..)| reference.drop_delay(key));
                }
            }
            // The same, of delays.
            Call::TakeDelayed(taken) => {
                if before == 0 {
                    let found = reference.delayed().into_iter().map(|(key, ..)| key);
                    self.open.insert(id, Open::Where(Vec::new(), found.collect()));
                }
                if is_last {
                    let Some(Open::Where(_, found)) = self.open.remove(&id) else {
                        return Err("it has begun".into());
                    };
                    let due: Vec<_> = reference.delayed().into_iter().filter(|(key, ..)| found.contains(key)).collect();
                    expect(
                        &sorted(taken.iter().copied().filter(|(key, ..)| shard.is_here(*key))),
                        &sorted(due.clone()),
                    )?;
                    due.into_iter().for_each(|(key, ..)| reference.drop_delay(key));
                }
            }
            Call::ProcessingKeys(keys) if before == 1 => expect(&sorted(shard.here(keys)), &reference.processing())?,
            Call::DelayedKeys(keys) if before == 0 => {
                let here = keys.iter().copied().filter(|(key, ..)| shard.is_here(*key));
                expect(&sorted(here), &sorted(reference.delayed()))?;
            }
            Call::IsDrained if is_last => expect(&reference.is_drained(), &true)?,
            Call::IsIdle if is_last || after == 1 && shard.history.plan.shards > 1 => {
                expect(&reference.is_idle(), &true).map_err(|_| "it is not idle".to_owned())?;
                // Two visits of all shards, and no add came in between: so there was a moment at which all were idle.
                let counts = reference.counts;
                let adds = (counts.pushed + counts.deferred + counts.delays) as usize;
                match self.open.remove(&id) {
                    Some(Open::Count(earlier)) => expect(&earlier, &adds)?,
                    _ if !is_last => _ = self.open.insert(id, Open::Count(adds)),
                    _ => {}
                }
            }
            Call::Sum(sum, answer) => {
                let part = self.part(sum, id, before, after, shard);
                let sum = self.sums.entry(id).or_default();
                for (name, number) in part {
                    *sum.entry(name).or_default() += number;
                }
                if is_last && shard.history.plan.shards == 1 {
                    expect(answer, sum)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, key: u8, how: Option<&(How, Option<u64>)>) -> Added {
        match how {
            None => self.reference.add(key, 0),
            Some((how, delay)) => self.reference.add_with(key, how, *delay, how.priority.unwrap_or(0)),
        }
    }

    fn end(&mut self, key: u8, end: impl FnOnce(&mut Reference, u8)) -> std::result::Result<(), String> {
        expect(&self.reference.is_processing(key), &true).map_err(|_| format!("key {key} is not processing"))?;
        end(&mut self.reference, key);
        Ok(())
    }

    /// What this critical section adds to an answer.
    fn part(&mut self, sum: &Sum, id: CallId, before: usize, after: usize, shard: &Shard<'_>) -> Parts {
        let reference = &mut self.reference;
        let sizes =
            |reference: &Reference| [reference.queued(), reference.processing().len(), reference.delayed().len()];
        match sum {
            Sum::AddAll(keys) => {
                let key = shard.here(keys)[before];
                let added = reference.add(key, 0);
                let record = &shard.history.logs[id.0].records[id.1];
                self.announced[usize::from(key)][id.0] = record.published;
                parts([(0, usize::from(matches!(added, Added::Queued | Added::Deferred)))])
            }
            Sum::Turn => parts([(0, reference.turn())]),
            Sum::Processing => parts([(0, reference.processing().len())]),
            Sum::Delayed => parts([(0, reference.delayed().len())]),
            Sum::Levels => parts(reference.levels().into_iter().map(|(level, len)| (level.into(), len))),
            Sum::Groups if before == 1 => {
                let groups = reference.groups().into_iter();
                parts(groups.flat_map(|(group, queued, held)| {
                    [(2 * i16::from(group), queued), (2 * i16::from(group) + 1, held)]
                }))
            }
            Sum::Stats => {
                let failing = reference.failing();
                let counts = reference.counts;
                // An `add_all` of keys that are queued says the same before and after the shut-down.
                let not_new = counts.coalesced + counts.rejected;
                let first = [counts.pushed, counts.deferred, not_new, counts.handed_out, counts.taken];
                let others = [counts.delays, counts.expired, counts.retries, counts.failures, counts.given_up];
                let counts = [&first[..], &others].concat().into_iter().map(|count| count as usize);
                parts((0..).zip(sizes(reference).into_iter().chain([failing]).chain(counts)))
            }
            Sum::Left | Sum::LeftDrain if after == 0 => {
                let [queued, processing, delayed] = sizes(reference);
                parts([(0, queued), (1, processing), (2, if *sum == Sum::Left { delayed } else { 0 })])
            }
            _ => Parts::new(),
        }
    }
}
