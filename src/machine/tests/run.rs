//! One life: a machine and the reference, step by step. Steps that a machine does not see (waiters, loops of workers) are left out.
//!
//! After each step all that can be seen is compared: answers, what is owed, counts, and the state of each key.

use super::reference::key::{Fault, KEYS, Key, Name, alive, arm, disarm, has_struck, strike};
use super::reference::op::{End, Form, How, Op};
use super::reference::plan::Plan;
use super::reference::queue::{Counts, Reference};
use super::reference::words::Alphabet;
use crate::Added;
use crate::key::Hash;
use crate::machine::{Claimed, Ended, Machine, Mode, Owed, Seen};
use crate::order::{AnyOrder, Group, Order};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static SEEN: Cell<BTreeMap<&'static str, u64>> = const { Cell::new(BTreeMap::new()) };
}

/// The number of steps of this thread that were made.
pub(super) fn steps() -> u64 {
    STEPS.get()
}

/// How often each answer was seen.
pub(super) fn seen() -> BTreeMap<&'static str, u64> {
    SEEN.take()
}

fn note(answer: &'static str) {
    let mut seen = SEEN.take();
    *seen.entry(answer).or_default() += 1;
    SEEN.set(seen);
}

/// Runs the steps. Panics at the first difference.
pub(crate) fn run(plan: &Plan, ops: &[Op]) {
    let before = alive();
    let mut run = Run::new(plan);
    for op in ops {
        run.step(op);
    }
    run.heal();
    drop(run);
    assert_eq!(alive(), before, "each key is dropped once");
}

/// Letters that a machine sees.
pub(super) fn alphabets() -> Vec<Alphabet> {
    let with = |n, priority| Op::AddWith(n, How { priority: Some(priority), ..How::new() });
    vec![
        Alphabet {
            name: "plain",
            letters: vec![
                Op::Add(0),
                Op::Add(1),
                Op::Add(6), // it is in the chain of key 0
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::End(1, End::Done),
                Op::Remove(0),
                Op::Remove(1),
                Op::TakeWhere(3),
                Op::ShutDown,
            ],
            plans: vec![Plan::plain()],
        },
        Alphabet {
            name: "levels",
            letters: vec![
                with(0, 100),
                with(0, -100),
                with(1, 100),
                Op::Add(1),
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::Remove(0),
                Op::TakeWhere(3),
            ],
            plans: vec![Plan::plain(), Plan { strict: true, ..Plan::plain() }],
        },
    ]
}

struct Run {
    plan: Plan,
    machine: Machine<Key>,
    reference: Reference,
    held: Vec<Claimed<Key>>,
    /// Panics in the next verb that calls this code so often.
    fault: Option<(Fault, u8)>,
}

fn hash(key: u8) -> Hash {
    // As the hash of a `Key`: two keys are in one chain.
    let hashed = if key < KEYS { key % (KEYS / 2) } else { key };
    Hash(u32::from(hashed).wrapping_mul(0x9e37_79b9))
}

impl Run {
    fn new(plan: &Plan) -> Self {
        let plan = Plan { shards: 1, groups: None, limit: None, ..plan.clone() };
        let reference = Reference::new(plan.clone(), vec![0; 256], plan.limits());
        let machine = Machine::new(AnyOrder::new(plan.strict));
        Self { plan, machine, reference, held: Vec::new(), fault: None }
    }

    fn mode(&self) -> Mode {
        Mode { is_open: !self.reference.shut_down }
    }

    /// Makes a step on both sides.
    fn step(&mut self, op: &Op) {
        match op {
            Op::Fault(fault @ (Fault::Eq | Fault::Borrow | Fault::Predicate), nth) => self.fault = Some((*fault, *nth)),
            Op::Add(n) => self.add(*n, 0),
            Op::AddAll(ns) => ns.iter().for_each(|n| self.add(*n, 0)),
            Op::AddWith(n, how) if how.after.is_none() && !how.rate_limited => self.add(*n, how.priority.unwrap_or(0)),
            Op::Crowd(count, how) => {
                self.reference.crowd(KEYS + count);
                (0..*count).for_each(|n| self.add(KEYS + n, how.priority.unwrap_or(0)));
            }
            Op::Remove(n) => self.remove(*n),
            Op::TakeWhere(bits) => self.take_where(*bits),
            Op::Get(_) => _ = self.get(),
            Op::GetMany(n) => (0..*n).for_each(|_| _ = self.get()),
            Op::Work(n, hold) => {
                for _ in 0..*n {
                    let Some(key) = self.get() else { break };
                    if Some(self.plan.group_of(key)) != *hold {
                        self.done(self.held.len() - 1);
                    }
                }
            }
            Op::End(n, End::Done | End::Drop) if !self.held.is_empty() => {
                self.done(usize::from(*n) % self.held.len());
            }
            Op::Repeat(times, ops) => (0..*times).for_each(|_| ops.iter().for_each(|op| self.step(op))),
            Op::ShutDown | Op::Stop | Op::DrainTimeout => self.shut_down(),
            _ => return,
        }
        STEPS.set(STEPS.get() + 1);
        self.check();
    }

    /// Makes a verb, in which the fault that is set may strike. `None`: it has, and the panic has passed through the verb.
    fn call<T>(&mut self, verb: impl FnOnce(&mut Machine<Key>) -> T) -> Option<T> {
        let Some((fault, nth)) = self.fault else { return Some(verb(&mut self.machine)) };
        arm(fault, nth);
        let end = catch_unwind(AssertUnwindSafe(|| verb(&mut self.machine)));
        let is_struck = has_struck();
        disarm();
        if is_struck {
            self.fault = None;
            note("a panic");
        }
        match end {
            Ok(answer) => Some(answer),
            Err(_) if is_struck => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// What is owed, and must be: these bits, and wake-ups for this number of keys.
    fn expect_owed(&mut self, owed: Owed, ready: u32, what: u8) {
        assert_eq!((owed.ready, owed.has(Owed::READY)), (ready, ready > 0), "keys that became ready");
        let what = what | if ready > 0 { Owed::READY } else { 0 };
        assert_eq!(owed.what & !Owed::GARBAGE, what, "what is owed");
        if owed.has(Owed::GARBAGE) {
            note("garbage");
            drop(self.machine.take_garbage());
        }
    }

    /// The bits that a verb owes after which no key is dirty, or queued.
    fn ends(&self, drained: bool, over: bool) -> u8 {
        let drained = if drained && self.reference.is_drained() { Owed::DRAINED } else { 0 };
        let over = if over && self.reference.is_over() { Owed::OVER } else { 0 };
        drained | over
    }

    fn is_ready(&self, key: u8) -> bool {
        self.reference.is_queued(key) && !self.reference.is_held_back(key)
    }

    fn add(&mut self, n: u8, priority: i8) {
        let (mut hand, mode) = (Some(Key::new(n)), self.mode());
        let is_new = mode.is_open && !self.machine.is_known(&Name::new(n), hash(n));
        let Some((added, owed)) =
            self.call(|machine| machine.add(&mut hand, hash(n), Group::default(), priority, mode))
        else {
            return;
        };
        assert_eq!(added, self.reference.add(n, priority));
        note(match added {
            Added::Queued => "queued",
            Added::Coalesced => "coalesced",
            Added::Deferred => "deferred",
            Added::Rejected => "rejected",
            Added::Delayed => "delayed",
        });
        assert_eq!(hand.is_none(), is_new, "an add takes its key if that is new");
        self.expect_owed(owed, u32::from(added == Added::Queued && self.is_ready(n)), 0);
    }

    fn get(&mut self) -> Option<u8> {
        let mode = self.mode();
        let (claimed, owed) = self.machine.get(mode);
        let Some(claimed) = claimed else {
            assert_eq!(self.reference.next_keys(), []);
            self.expect_owed(owed, 0, 0);
            return None;
        };
        let key = claimed.key().number();
        assert_eq!(self.machine.priority(&claimed), self.reference.hand_out(key), "the priority of key {key}");
        self.held.push(claimed);
        let what = self.ends(false, true);
        self.expect_owed(owed, 0, what);
        note("handed out");
        Some(key)
    }

    fn done(&mut self, at: usize) {
        let (claimed, mut hand) = (self.held.swap_remove(at), None);
        let key = claimed.key().number();
        let (was_dirty, was_full) = (claimed.is_dirty(), self.reference.is_held_back(key));
        assert_eq!(was_dirty, self.reference.is_dirty(key));
        let waits = |other: u8| self.reference.is_queued(other) && self.plan.group_of(other) == self.plan.group_of(key);
        let frees = was_full && self.reference.all().any(waits);
        let (ended, owed) = self.machine.done(&mut hand, claimed);
        self.reference.done(key);
        assert_eq!(ended == Ended::Queued, was_dirty);
        assert_eq!(ended == Ended::Gone, hand.is_some());
        note(match ended {
            Ended::Queued => "done, queued",
            Ended::Kept => "done, kept",
            Ended::Gone => "done, gone",
        });
        let what = self.ends(true, false);
        self.expect_owed(owed, u32::from(was_dirty) + u32::from(frees), what);
    }

    fn remove(&mut self, n: u8) {
        let (mut hand, mode) = (None, self.mode());
        let removed = self.call(|machine| machine.remove(&mut hand, &Name::new(n), hash(n), mode));
        let Some((removed, owed)) = removed else { return };
        assert_eq!(removed, self.reference.remove(n));
        note(if removed { "removed" } else { "not removed" });
        let what = if removed { self.ends(true, true) } else { 0 };
        self.expect_owed(owed, 0, what);
    }

    /// Sees all keys that are queued and match.
    fn look(&mut self, matches: impl Fn(u8) -> bool) -> Option<Vec<(Seen, u8)>> {
        let mut found = Vec::new();
        let look = |machine: &mut Machine<Key>| {
            let mut from = Some(0);
            while let Some(at) = from {
                from = machine.look(at, |key, seen| {
                    strike(Fault::Predicate);
                    found.extend(matches(key.number()).then_some((seen, key.number())));
                });
            }
        };
        self.call(look)?;
        found.sort_unstable();
        Some(found)
    }

    /// As `take_where`, which sees all keys, and then takes them out. Between the two, some are handed out, and some of these are done.
    fn take_where(&mut self, bits: u16) {
        let matches = |key: u8| bits & 1 << (key % 16) != 0;
        let Some(found) = self.look(matches) else { return };
        let keys: Vec<u8> = found.iter().map(|(_, key)| *key).collect();
        assert_eq!(keys, self.reference.clone().take_where(matches, None).0, "by level, and then by age");
        let pushes: Vec<_> = keys.iter().map(|key| self.reference.push_of(*key)).collect();
        for _ in 0..bits / 16 % 4 {
            let Some(key) = self.get() else { break };
            if bits & 8 != 0 {
                self.add(key, 0);
                self.done(self.held.len() - 1);
            }
        }
        for ((seen, key), push) in found.into_iter().zip(pushes) {
            let (mut hand, mode) = (None, self.mode());
            let is_there = self.reference.push_of(key) == push;
            let (taken, owed) = self.machine.take_out(&mut hand, seen, mode);
            assert_eq!(taken, is_there, "key {key} is taken out if it is queued by that push");
            note(if taken { "taken out" } else { "not taken out" });
            if taken {
                self.reference.take(key);
            }
            let what = if taken { self.ends(true, true) } else { 0 };
            self.expect_owed(owed, 0, what);
        }
    }

    fn shut_down(&mut self) {
        self.reference.shut_down = true;
        let owed = self.machine.shut_down();
        let what = self.ends(true, true);
        self.expect_owed(owed, 0, what);
    }

    fn check(&mut self) {
        let (machine, reference) = (&self.machine, &self.reference);
        let processing = reference.processing();
        assert_eq!((machine.len(), machine.processing()), (reference.queued(), processing.len()));
        assert_eq!(machine.ready(), reference.all().filter(|key| self.is_ready(*key)).count());
        assert_eq!(machine.is_drained(), reference.is_drained());
        let counts = Counts {
            pushed: machine.counts.pushed,
            coalesced: machine.counts.coalesced,
            deferred: machine.counts.deferred,
            rejected: machine.counts.rejected,
            handed_out: machine.counts.handed_out,
            taken: machine.counts.taken,
            ..Counts::default()
        };
        assert_eq!(counts, reference.counts);
        let levels = (i8::MIN..=i8::MAX).rev().map(|level| (level, machine.order().level_len(level)));
        let levels: Vec<_> = levels.filter(|(_, len)| *len > 0).collect();
        assert_eq!(levels, reference.levels());
        for claimed in &self.held {
            let key = claimed.key().number();
            assert!(processing.contains(&key));
            assert_eq!(claimed.is_dirty(), reference.is_dirty(key));
            assert_eq!(machine.priority(claimed), reference.held_priority(key));
        }
        let is_known = |key: &u8| reference.is_dirty(*key) || reference.is_processing(*key);
        assert_eq!(machine.known(), reference.all().filter(is_known).count(), "keys that are known (I4)");
        for key in reference.all() {
            assert_eq!(machine.is_known(&Name::new(key), hash(key)), is_known(&key), "key {key} is known (I4)");
        }
    }

    /// Ends all that is held, and hands out all that is queued: nothing may be left.
    fn heal(&mut self) {
        self.fault = None;
        let mut turns = 2 * (1 + self.held.len() + self.reference.queued());
        while !self.held.is_empty() || self.get().is_some() {
            self.done(self.held.len() - 1);
            self.check();
            assert!(turns > 0, "the machine is not empty in time");
            turns -= 1;
        }
        assert_eq!((self.machine.known(), self.machine.len(), self.machine.processing()), (0, 0, 0));
        let _garbage = self.machine.take_garbage();
    }
}
