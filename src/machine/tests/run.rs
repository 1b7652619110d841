//! One life: a machine and the reference, step by step. Steps that a machine does not see (waiters, loops of workers) are left out.
//!
//! After each step all that can be seen is compared: answers, what is owed, counts, and the state of each key.

mod lists;

use super::reference::key::{Fault, KEYS, Key, Name, alive, arm, disarm, has_struck};
use super::reference::limits::Limits;
use super::reference::op::{End, Form, How, Op, Span};
use super::reference::plan::{Limiter, Plan};
use super::reference::queue::{Counts, NEVER, Reference};
use super::run_times::Times;
use crate::FairShare;
use crate::key::KeyHash;
use crate::machine::{
    self, BATCH, Cancelled, Claimed, DirtyTicket, Ended, Failure, FailureDelay, Machine, Mode, Owed, Which,
};
use crate::order::{AnyOrder, Group};
use crate::rate_limiter::{ItemExponentialFailure, ItemFastSlow, RateLimiter, ScheduleFn};
use crate::time::Nanos;
use crate::{Added, OnPanic};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

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

pub(super) fn note(answer: &'static str) {
    let mut seen = SEEN.take();
    *seen.entry(answer).or_default() += 1;
    SEEN.set(seen);
}

/// Runs the steps. Panics at the first difference.
pub(crate) fn run(plan: &Plan, ops: &[Op]) {
    let before = alive();
    let mut run = Run::new(plan);
    // From the life alone, so that it fails again when it is repeated; and counted from its end, so that the last steps stay as they are when
    // others before them are dropped.
    let mut hasher = DefaultHasher::new();
    [ops.first(), ops.last()].map(|op| op.map(discriminant)).hash(&mut hasher);
    let last = hasher.finish() % 3;
    for (at, op) in ops.iter().enumerate() {
        run.turn = last + (ops.len() - at) as u64;
        run.step(op);
    }
    run.turn = last;
    run.heal();
    drop(run);
    assert_eq!(alive(), before, "each key is dropped once");
}

pub(super) struct Run {
    pub(super) plan: Plan,
    pub(super) machine: Machine<Key>,
    pub(super) reference: Reference,
    /// How long a failed key is delayed, if the machine counts the failures.
    schedule: Option<ScheduleFn>,
    /// A limiter that counts itself.
    external: Limits<u8>,
    pub(super) held: Vec<Claimed<Key>>,
    /// There are groups, or a priority was given.
    is_ordered: bool,
    /// Held keys that were handed out to a thread which was unwinding.
    unwinding: BTreeSet<u8>,
    /// Held keys for which somebody waits until they are dirty, or has waited.
    waiting: BTreeMap<u8, DirtyTicket>,
    /// The tickets that the machine has told, in this verb; and those that it has to.
    told: [Vec<DirtyTicket>; 2],
    /// The hand-outs of each group: since no key of it was known, and in all.
    handed: BTreeMap<u8, [u64; 2]>,
    /// What the machine has said last: no delay expires before this.
    until: u64,
    pub(super) times: Times,
    shards: Shards,
    /// Panics in the next verb that calls this code so often.
    fault: Option<(Fault, u8)>,
    /// Every third one is a step in which nobody waits.
    turn: u64,
}

/// What is known of what several shards ask for.
#[derive(Default)]
struct Shards {
    /// The last stamp: one for each step.
    time: u64,
    /// For each queued key: its push, and when that was.
    pushed: BTreeMap<u8, (u64, u64)>,
    activity: u64,
    /// The keys that were to be handed out, now or later, and those that were held.
    had_work: BTreeSet<u8>,
}

pub(super) fn hash(key: u8) -> KeyHash {
    // As the hash of a `Key`: two keys are in one chain.
    let hashed = if key < KEYS { key % (KEYS / 2) } else { key };
    KeyHash(u32::from(hashed).wrapping_mul(0x9e37_79b9))
}

impl Run {
    fn new(plan: &Plan) -> Self {
        let (plan, wants_stamps) = (Plan { shards: 1, ..plan.clone() }, plan.shards > 1);
        let reference = Reference::new(plan.clone(), vec![0; 256], plan.limits());
        let order = match plan.groups {
            None => AnyOrder::new(plan.strict),
            Some(_) => AnyOrder::groups(FairShare::HandOuts, !plan.strict, plan.strict),
        };
        let [nano, never] = [Duration::from_nanos(1), Duration::MAX];
        let schedule = match plan.limiter {
            Limiter::Default => {
                let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
                RateLimiter::<Key>::schedule(&ItemExponentialFailure::new(base, max))
            }
            Limiter::Fast => RateLimiter::<Key>::schedule(&ItemExponentialFailure::new(nano, never)),
            Limiter::FastSlow => RateLimiter::<Key>::schedule(&ItemFastSlow::new(Duration::ZERO, never, 3)),
            Limiter::Composed | Limiter::Own => None,
        };
        assert_eq!(schedule.is_none(), plan.has_own_counts());
        let (external, mut machine, times) = (plan.limits(), Machine::new(order, plan.policy, 0), Times::new(&plan));
        if plan.measure {
            machine.measure(times.are_exact);
        }
        if wants_stamps {
            machine.want_stamps();
        }
        Self {
            is_ordered: plan.groups.is_some(),
            plan,
            machine,
            reference,
            schedule,
            external,
            held: Vec::new(),
            unwinding: BTreeSet::new(),
            waiting: BTreeMap::new(),
            told: Default::default(),
            handed: BTreeMap::new(),
            until: NEVER,
            times,
            shards: Shards::default(),
            fault: None,
            turn: 0,
        }
    }

    fn mode(&self) -> Mode {
        let (is_ordered, is_measured) = (self.is_ordered, self.plan.measure);
        debug_assert!(is_ordered || !self.machine.order().is_ordered());
        // In some steps nobody waits, so that the hot forms of the verbs run too.
        Mode {
            is_open: !self.reference.shut_down,
            is_ordered,
            is_awaited: self.turn % 3 > 0,
            is_measured,
            is_bounded: false,
        }
    }

    /// Makes a step on both sides.
    fn step(&mut self, op: &Op) {
        let limited = How { rate_limited: true, ..How::new() };
        match op {
            Op::Fault(fault, nth) => match fault {
                Fault::Eq | Fault::Borrow | Fault::Predicate | Fault::Clone => self.fault = Some((*fault, *nth)),
                _ => return,
            },
            Op::Add(n) => self.add(*n, &How::new()),
            Op::AddAll(ns) => ns.iter().for_each(|n| self.add(*n, &How::new())),
            Op::AddAfter(n, span) => self.add(*n, &How { after: Some(*span), ..How::new() }),
            Op::AddWith(n, how) => self.add(*n, how),
            Op::AddRateLimited(n) => self.add(*n, &limited),
            Op::Crowd(count, how) => {
                self.reference.crowd(KEYS + count);
                let first = how.after.map(|span| self.span(span));
                for n in 0..*count {
                    let after = first.map(|first| first.saturating_add((first / 16).saturating_mul(n.into())));
                    let after = after.map(|after| if after == NEVER { Span::Never } else { Span::Nanos(after) });
                    self.add(KEYS + n, &How { after, ..how.clone() });
                }
            }
            Op::Cancel(n) => self.cancel(*n),
            Op::Remove(n) => self.remove(*n),
            Op::Forget(n) => self.forget(*n),
            Op::TakeWhere(bits) => self.take_where(|key| bits & 1 << (key % 16) != 0, *bits),
            Op::Look => self.list(),
            Op::TakeDelayed => _ = self.take_delayed(),
            Op::Get(form) => {
                if let Some(key) = self.get().filter(|_| *form == Form::Owned) {
                    self.machine.note_unwinding(self.held.last().expect("it was just handed out"));
                    self.unwinding.insert(key);
                }
            }
            Op::WaitDirty(_) if self.held.is_empty() => return,
            Op::WaitDirty(n) => self.wait_for_dirty(usize::from(*n) % self.held.len()),
            Op::GetMany(n) => (0..*n).for_each(|_| _ = self.get()),
            Op::Batch(n, adds, end) => {
                let before = self.held.len();
                (0..*n).for_each(|_| _ = self.get());
                adds.iter().for_each(|key| self.step(&Op::Add(*key)));
                let end = match end {
                    End::Done | End::Drop => machine::End::Done,
                    End::Succeed => machine::End::Succeed,
                    _ => return,
                };
                while self.held.len() > before {
                    self.done(self.held.len() - 1, end);
                }
            }
            Op::Work(n, hold) => {
                for _ in 0..*n {
                    let Some(key) = self.get() else { break };
                    if Some(self.plan.group_of(key)) != *hold {
                        self.done(self.held.len() - 1, machine::End::Done);
                    }
                }
            }
            Op::End(_, _) if self.held.is_empty() => return,
            Op::End(n, end) => {
                let at = usize::from(*n) % self.held.len();
                match end {
                    End::Unwind if self.held[at].was_unwinding() => self.done(at, machine::End::Done),
                    End::Unwind if self.plan.on_panic == Some(OnPanic::Retry) => self.requeue(at, &limited, false),
                    End::Done | End::Drop | End::Unwind => self.done(at, machine::End::Done),
                    End::Succeed => self.done(at, machine::End::Succeed),
                    End::GiveUp => self.done(at, machine::End::GiveUp),
                    End::CoolDown(span) => {
                        let (time, now) = (self.span(*span), self.reference.now);
                        if time > 0 && self.mode().is_open {
                            let owed = self.machine.rest(&self.held[at], now, time);
                            self.expect_owed(owed, 0, 0);
                        }
                        self.reference.rest(self.held[at].key().number(), time);
                        self.done(at, machine::End::Succeed);
                    }
                    End::Retry => self.requeue(at, &limited, false),
                    End::RequeueAfter(span) => self.requeue(at, &How { after: Some(*span), ..How::new() }, true),
                    End::RequeueWith(how) => self.requeue(at, how, false),
                }
            }
            Op::Repeat(times, ops) => (0..*times).for_each(|_| ops.iter().for_each(|op| self.step(op))),
            Op::Advance(span) => self.reference.advance(self.span(*span)),
            Op::Turn => self.turn(),
            Op::ShrinkToFit => {
                let mut from = Some(0);
                while let Some(at) = from {
                    let owed;
                    (from, owed) = self.machine.shrink(at);
                    self.expect_owed(owed, 0, 0);
                }
                note("shrunk");
            }
            Op::ShutDown | Op::DrainTimeout => self.shut_down(),
            Op::Stop | Op::DrainWorkers => {
                self.shut_down();
                self.take_where(|_| true, (self.reference.counts.pushed as u16).wrapping_mul(0x9e37));
            }
            _ => return,
        }
        STEPS.set(STEPS.get() + 1);
        self.check();
        self.check_shards();
    }

    fn span(&self, span: Span) -> u64 {
        match span {
            Span::Nanos(nanos) => nanos,
            Span::Never => NEVER,
            Span::ToDeadline(n, more) => {
                let deadlines = self.reference.deadlines();
                let to = usize::from(n).checked_rem(deadlines.len()).map_or(1, |at| deadlines[at]);
                to.saturating_add_signed(more.into())
            }
        }
    }

    fn group(&self, n: u8) -> Group {
        let group = self.plan.group_of(n);
        let max_processing = self.plan.limit.unwrap_or(u32::MAX);
        let weight = self.plan.weight_of(group).clamp(1, 1000) as u16;
        let limits = crate::order::Limits { weight, max_processing, rate: None };
        Group { hash: u64::from(group) << 40, limits, now: 0 }
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
        let (ready, what) = if self.mode().is_awaited { (ready, what) } else { (0, 0) };
        assert_eq!((owed.ready(), owed.has(Owed::READY)), (ready, ready > 0), "keys that became ready");
        let is_earlier = self.machine.until() < self.until;
        self.until = self.machine.until();
        self.collect_news(owed);
        self.check_news();
        let what = what | if ready > 0 { Owed::READY } else { 0 } | if is_earlier { Owed::DEADLINE } else { 0 };
        assert_eq!(owed.what() & !(Owed::GARBAGE | Owed::DIRTY | Owed::ADDED), what, "what is owed");
        if owed.has(Owed::GARBAGE) {
            note("garbage");
            let Machine { bin, retired, later, .. } = &self.machine;
            assert!(!bin.is_empty() || !retired.is_empty() || later.garbage() != Owed::NOTHING, "memory that is owed");
            drop(self.machine.take_garbage());
        }
        self.forget_groups();
    }

    /// Waits until a held key is dirty, unless it is.
    fn wait_for_dirty(&mut self, at: usize) {
        let claimed = &self.held[at];
        let key = claimed.key().number();
        let ticket = self.machine.wait_for_dirty(claimed);
        assert_eq!(ticket.is_none(), self.reference.is_dirty(key), "it waits for a key that is clean");
        note(if ticket.is_some() { "waits until dirty" } else { "is dirty" });
        if let Some(ticket) = ticket {
            assert!(self.waiting.iter().all(|(other, used)| (*other == key) == (*used == ticket)), "one for each key");
            self.waiting.insert(key, ticket);
        }
    }

    fn collect_news(&mut self, owed: Owed) {
        let told = self.machine.take_dirty();
        assert_eq!(owed.has(Owed::DIRTY), !told.is_empty(), "tickets are told at once");
        self.told[0].extend(told);
    }

    /// The machine has told those for whose keys somebody waits, and that have become dirty.
    fn check_news(&mut self) {
        let [told, mut due] = std::mem::take(&mut self.told);
        let (dirty, clean) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(key, _)| self.reference.is_dirty(*key));
        let _: &BTreeMap<_, _> = &dirty;
        self.waiting = clean;
        due.extend(dirty.into_values());
        due.iter().for_each(|_| note("told that it is dirty"));
        assert_eq!(sorted(told), sorted(due), "held keys that became dirty");
    }

    /// The hand-out of a key ends, and with it the wait for it.
    fn end_wait(&mut self, key: u8) -> Option<DirtyTicket> {
        self.unwinding.remove(&key);
        self.waiting.remove(&key)
    }

    /// Groups without known keys may be forgotten.
    fn forget_groups(&mut self) {
        let known: BTreeSet<u8> =
            self.reference.all().filter(|key| self.is_to_be_known(*key)).map(|key| self.plan.group_of(key)).collect();
        self.handed.iter_mut().filter(|(group, _)| !known.contains(group)).for_each(|(_, handed)| handed[0] = 0);
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

    /// After a verb with this answer.
    fn added(&mut self, added: Added) {
        self.tell_time();
        self.times.events[added as usize] += 1;
        note(match added {
            Added::Queued => "queued",
            Added::Coalesced => "coalesced",
            Added::Deferred => "deferred",
            Added::Rejected => "rejected",
            Added::Delayed => "delayed",
            Added::Full => unreachable!("the bound is not the machine's"),
        });
    }

    /// The machine's form of `how`, and the delay that was asked for.
    fn how<'s>(
        &mut self,
        n: u8,
        how: &How,
        priority: i8,
        schedule: Option<&'s FailureDelay>,
    ) -> (machine::How<'s>, Option<u64>) {
        let asked = how.after.map(|span| self.span(span));
        let (failure, delay) = match (how.rate_limited, schedule) {
            (false, _) => (Failure::No, asked),
            (true, Some(schedule)) => (Failure::Counted(Some(schedule)), asked),
            (true, None) => {
                let external = u64::try_from(self.external.when(&n)).unwrap_or(NEVER);
                (Failure::Told, asked.max(Some(external)))
            }
        };
        let (conflict, now) = (how.conflict, self.reference.now);
        let at_most = how.at_most.map(Nanos::new);
        (machine::How { priority, delay, conflict, at_most, failure, is_uncounted: false, now }, asked)
    }

    fn add(&mut self, n: u8, how: &How) {
        self.is_ordered |= how.priority.is_some_and(|priority| priority != 0);
        let (mut hand, mode, group) = (Some(Key::new(n)), self.mode(), self.group(n));
        let schedule = self.schedule.clone();
        let (with, delay) = self.how(n, how, how.priority.unwrap_or(0), schedule.as_deref());
        let is_new = (mode.is_open || schedule.is_some() && how.rate_limited) && !self.is_known(n);
        let added = self.call(|machine| machine.add(&mut hand, hash(n), group, with, mode));
        let Some((added, owed)) = added else {
            if with.failure.is_one() && schedule.is_none() {
                self.reference.limits.when(&n); // the limiter was asked before
            }
            return;
        };
        assert_eq!(added, self.reference.add_with(n, how, delay, with.priority));
        self.added(added);
        assert_eq!(hand.is_none(), is_new, "an add takes its key if that is new");
        self.expect_owed(owed, u32::from(added == Added::Queued && self.is_ready(n)), 0);
    }

    fn get(&mut self) -> Option<u8> {
        let mode = self.mode();
        let simple = if mode == Mode::PLAIN { self.machine.get_simple() } else { None };
        let (claimed, owed) = match simple {
            Some(claimed) => (Some(claimed), Owed::NOTHING),
            None => self.machine.get(0, mode),
        };
        let Some(claimed) = claimed else {
            assert!(self.reference.next_keys().is_empty());
            self.expect_owed(owed, 0, 0);
            return None;
        };
        let key = claimed.key().number();
        let level = self.reference.hand_out(key);
        assert_eq!(self.machine.priority(&claimed), level, "the priority of key {key}");
        self.started(&claimed);
        self.held.push(claimed);
        self.handed.entry(self.plan.group_of(key)).or_default().iter_mut().for_each(|count| *count += 1);
        let what = self.ends(false, true);
        self.expect_owed(owed, 0, what);
        note("handed out");
        Some(key)
    }

    /// A group that is full, and has other keys that are queued.
    fn holds_back(&self, key: u8) -> bool {
        let is_held =
            |other: u8| self.reference.is_queued(other) && self.plan.group_of(other) == self.plan.group_of(key);
        self.reference.is_held_back(key) && self.reference.all().any(is_held)
    }

    fn done(&mut self, at: usize, end: machine::End) {
        let (claimed, mut hand, mode) = (self.held.swap_remove(at), None, self.mode());
        let key = claimed.key().number();
        let (was_dirty, frees) = (claimed.is_dirty(), self.holds_back(key));
        assert_eq!(was_dirty, self.reference.is_dirty(key));
        let waiter = self.end_wait(key);
        self.ended(&claimed);
        self.times.given_up += u64::from(end == machine::End::GiveUp);
        let let_go = self.reference.let_go;
        let (ended, owed) = self.machine.done(&mut hand, claimed, end, 0, mode);
        match end {
            machine::End::Done => self.reference.done(key),
            machine::End::Succeed => self.reference.succeed(key),
            machine::End::GiveUp => self.reference.give_up(key),
        }
        if end != machine::End::Done {
            self.external.forget(&key);
        }
        let let_go = self.reference.let_go > let_go;
        if let_go {
            self.told[1].extend(waiter);
            self.let_go(owed);
        }
        let is_queued = self.reference.is_queued(key);
        let expected = match (is_queued, self.is_to_be_known(key)) {
            (true, _) => Ended::Queued,
            (false, true) => Ended::Kept,
            (false, false) => Ended::Gone,
        };
        assert_eq!((ended, hand.is_some()), (expected, expected == Ended::Gone));
        note(match ended {
            Ended::Queued => "done, queued",
            Ended::Kept => "done, kept",
            Ended::Gone => "done, gone",
        });
        let what = self.ends(true, false);
        self.expect_owed(owed, u32::from(is_queued) + u32::from(frees), what);
    }

    /// The end of a hand-out has let an add take effect that had waited for a retry.
    fn let_go(&mut self, owed: Owed) {
        assert!(owed.has(Owed::ADDED));
        self.added(Added::Deferred);
        note("let go");
    }

    fn requeue(&mut self, at: usize, how: &How, forgets: bool) {
        self.is_ordered |= how.priority.is_some_and(|priority| priority != 0);
        let (claimed, mut hand, mode) = (self.held.swap_remove(at), None, self.mode());
        let key = claimed.key().number();
        if forgets {
            self.external.forget(&key);
            self.reference.forget(key);
        }
        let frees = self.holds_back(key);
        let schedule = self.schedule.clone();
        let priority = how.priority.unwrap_or(self.machine.priority(&claimed));
        let (with, delay) = self.how(key, how, priority, schedule.as_deref());
        let end = if forgets { machine::End::Succeed } else { machine::End::Done };
        if mode.is_open {
            self.ended(&claimed);
        }
        let let_go = self.reference.let_go;
        let (added, owed) = self.machine.requeue(&mut hand, claimed, with, end, mode);
        let expected = self.reference.requeue(key, how, delay);
        let let_go = self.reference.let_go > let_go;
        if let_go {
            self.let_go(owed);
        }
        let waits = self.end_wait(key).filter(|_| expected == Added::Deferred || let_go);
        self.told[1].extend(waits);
        match added {
            Ok(added) => {
                assert_eq!(added, expected);
                self.added(added);
                note("requeued");
                let what = self.ends(true, false);
                self.expect_owed(owed, u32::from(self.reference.is_queued(key)) + u32::from(frees), what);
            }
            Err(claimed) => {
                assert_eq!(Added::Rejected, expected);
                note("a requeue is refused");
                self.added(Added::Rejected);
                self.expect_owed(owed, 0, 0);
                self.ended(&claimed);
                let (_ended, owed) = self.machine.done(&mut hand, claimed, machine::End::Done, 0, mode);
                let what = self.ends(true, false);
                self.expect_owed(owed, u32::from(self.reference.is_queued(key)) + u32::from(frees), what);
            }
        }
    }

    fn cancel(&mut self, n: u8) {
        let (mut hand, mode, waits) = (None, self.mode(), self.reference.is_delayed(n).1);
        let was_queued = self.reference.is_queued(n);
        let cancelled = self.call(|machine| machine.cancel(&mut hand, &Name::new(n), hash(n), mode));
        let Some((cancelled, owed)) = cancelled else { return };
        assert_eq!(cancelled != Cancelled::Nothing, self.reference.cancel(n));
        assert_eq!(matches!(cancelled, Cancelled::Added(_)), waits && mode.is_open && !self.reference.is_resting(n));
        if let Cancelled::Added(added) = cancelled {
            self.added(added);
            note("cancelled, and added");
        }
        let what = if cancelled == Cancelled::Nothing { 0 } else { self.ends(true, false) };
        self.expect_owed(owed, u32::from(!was_queued && self.is_ready(n)), what);
    }

    fn forget(&mut self, n: u8) {
        let mut hand = None;
        let mode = self.mode();
        let forgot = self.call(|machine| machine.forget_failures(&mut hand, &Name::new(n), hash(n), mode));
        if let Some((_, owed)) = forgot {
            self.external.forget(&n);
            self.reference.forget(n);
            self.expect_owed(owed, 0, 0);
        }
    }

    fn turn(&mut self) {
        let (now, mode) = (self.reference.now, self.mode());
        let (mut expired, mut ready) = ([0; 3], 0);
        let before = self.reference.all().filter(|key| self.is_ready(*key)).count();
        loop {
            let at_most = [BATCH, 16, 1][self.machine.counts.expired as usize % 3];
            let (some, owed) = self.machine.expire(now, at_most, mode);
            assert!(some.by_answer.iter().sum::<usize>() <= at_most);
            expired = std::array::from_fn(|answer| expired[answer] + some.by_answer[answer]);
            ready += owed.ready();
            self.collect_news(owed);
            if owed.has(Owed::GARBAGE) {
                drop(self.machine.take_garbage());
            }
            if !some.has_more {
                break;
            }
        }
        for (added, count) in [Added::Queued, Added::Deferred, Added::Coalesced].into_iter().zip(expired) {
            self.times.events[added as usize] += count as u64;
        }
        let (counts, doubles) = (self.reference.counts, self.reference.doubles());
        assert_eq!(expired.iter().sum::<usize>(), self.reference.turn());
        let has_one = |key: &&u8| self.reference.is_delayed(**key).0 && !self.reference.doubles().contains(key);
        doubles.iter().filter(has_one).for_each(|_| note("the later delay takes its place"));
        self.check_news();
        let [pushed, deferred] = [expired[0], expired[1]].map(|count| count as u64);
        assert_eq!(
            (counts.pushed + pushed, counts.deferred + deferred),
            (self.reference.counts.pushed, self.reference.counts.deferred)
        );
        let after = self.reference.all().filter(|key| self.is_ready(*key)).count();
        assert_eq!(ready as usize, if mode.is_awaited { after - before } else { 0 });
        self.until = self.machine.until();
        if mode.is_open {
            let first = self.reference.deadlines().first().map_or(NEVER, |left| now + left);
            assert!(
                (self.until > now || self.until == NEVER) && self.until <= first,
                "{} is not until {first}",
                self.until
            );
        }
    }

    fn remove(&mut self, n: u8) {
        let (mut hand, mode, was_dirty) = (None, self.mode(), self.reference.is_dirty(n));
        let removed = self.call(|machine| machine.remove(&mut hand, &Name::new(n), hash(n), mode));
        let Some((removed, owed)) = removed else { return };
        assert_eq!(removed, self.reference.remove(n));
        note(if removed { "removed" } else { "not removed" });
        let what = if removed { self.ends(true, was_dirty) } else { 0 };
        self.expect_owed(owed, 0, what);
    }

    fn shut_down(&mut self) {
        self.reference.shut_down = true;
        let owed = self.machine.shut_down();
        assert_eq!(owed.what(), self.ends(true, true));
    }

    fn check(&mut self) {
        self.check_times();
        self.forget_groups();
        let (machine, reference) = (&self.machine, &self.reference);
        let processing = reference.processing();
        assert_eq!((machine.len(), machine.processing()), (reference.queued(), processing.len()));
        assert_eq!(machine.ready(self.mode()), reference.all().filter(|key| self.is_ready(*key)).count());
        assert_eq!(machine.is_drained(), reference.is_drained());
        reference.doubles().iter().for_each(|_| note("two delays"));
        let counts = Counts {
            pushed: machine.counts.pushed,
            coalesced: machine.counts.coalesced,
            deferred: machine.counts.deferred,
            rejected: machine.counts.rejected,
            full: 0,
            handed_out: machine.counts.handed_out,
            taken: machine.counts.taken,
            delays: machine.counts.delays,
            expired: machine.counts.expired,
            retries: machine.counts.retries,
            failures: machine.counts.failures,
            given_up: machine.counts.given_up,
            panics: 0,
            caught: 0,
        };
        assert_eq!(counts, reference.counts);
        self.check_levels();
        for claimed in &self.held {
            let key = claimed.key().number();
            assert!(processing.contains(&key));
            assert_eq!(claimed.is_dirty(), reference.is_dirty(key));
            assert_eq!(machine.priority(claimed), reference.held_priority(key));
            assert_eq!(claimed.was_unwinding(), self.unwinding.contains(&key));
            let failures = if self.schedule.is_some() { reference.num_requeues(key) } else { 0 };
            assert_eq!((claimed.has_failed(), machine.failures_held(claimed) as usize), (failures > 0, failures));
        }
        let known = reference.all().filter(|key| self.is_to_be_known(*key)).count();
        assert_eq!(
            (machine.known(), machine.delayed()),
            (known, reference.delayed().len()),
            "keys that are known (I4)"
        );
        for key in reference.all() {
            assert_eq!(self.is_known(key), self.is_to_be_known(key), "key {key} is known (I4)");
            let failures = if self.schedule.is_some() { reference.num_requeues(key) } else { 0 };
            assert_eq!(machine.failures(&Name::new(key), hash(key)) as usize, failures, "failures of key {key}");
        }
        assert_eq!(machine.later.firsts.len(), reference.bounded(), "delays with a bound");
        let failing = reference.all().filter(|key| self.schedule.is_some() && reference.num_requeues(*key) > 0);
        assert_eq!(machine.failing(), failing.count());
        assert!(!machine.keys.has_retired(), "a chunk takes the records of its slots with it at once");
        let first = reference.delayed().first().map(|(_, left, _)| reference.now.saturating_add(*left));
        match (machine.next_deadline(), first) {
            // What is past is said to be so in any way.
            (Some(next), Some(first)) if reference.has_moved() => assert!(next <= first.max(reference.now)),
            (next, first) => assert_eq!(next.map(|at| at.max(reference.now)), first, "the next deadline"),
        }
        let first = reference.deadlines().first().map_or(NEVER, |left| reference.now + left);
        let until = machine.until();
        assert!(until <= first || machine.is_shut_down, "no delay expires before {until}");
    }

    /// Gives a stamp if one is wanted, and looks at what the machine says to getters of several shards and to idle waits.
    fn check_shards(&mut self) {
        let mode = self.mode();
        let Self { machine, reference, shards, .. } = self;
        shards.time += 1;
        if machine.wants_stamp(mode) {
            machine.stamp(shards.time);
            note("stamped");
        }
        assert!(!machine.wants_stamp(mode));
        let queued = reference.all().filter(|key| reference.is_queued(*key));
        let pushed = queued.map(|key| {
            let push = reference.push_of(key).expect("it is queued");
            let before = shards.pushed.get(&key).filter(|before| before.0 == push);
            (key, before.copied().unwrap_or((push, shards.time)))
        });
        shards.pushed = pushed.collect();
        let front = machine.front(mode);
        assert_eq!(front.is_some(), machine.ready(mode) > 0);
        if let (Some((level, stamp)), None) = (front, self.plan.groups) {
            assert_eq!(Some(level), reference.levels().first().map(|(level, _)| *level));
            let mut from = Some(0);
            while let Some(at) = from {
                from = machine.look(at, Which::Active, |view| {
                    let seen = view.seen();
                    let Some((_, time)) = shards.pushed.get(&view.key().number()) else { return };
                    assert!(seen.push.unwrap().0 <= *time, "{} is not after {time}", seen.push.unwrap().0);
                    assert!(seen.priority != level || stamp <= seen.push.unwrap().0, "the front has the oldest key");
                });
            }
        }
        let has_work = |key: &u8| reference.is_dirty(*key) || reference.is_delayed(*key).0;
        let is_active = |key: &u8| has_work(key) || reference.is_processing(*key);
        let grew = reference.all().filter(has_work).any(|key| !shards.had_work.contains(&key));
        assert!(machine.activity() >= shards.activity + u64::from(grew), "new work is activity");
        (shards.activity, shards.had_work) = (machine.activity(), reference.all().filter(is_active).collect());
        let first = reference.deadlines().first().map_or(NEVER, |left| reference.now + left);
        let next = machine.next_deadline();
        assert_eq!(next.is_some(), machine.delayed() > 0);
        assert!(next.is_none_or(|next| next <= first), "{next:?} is not after {first}");
    }

    fn is_known(&self, key: u8) -> bool {
        self.machine.keys.find(&Name::new(key), hash(key)).is_some()
    }

    fn is_to_be_known(&self, key: u8) -> bool {
        let is_active = self.reference.is_dirty(key) || self.reference.is_processing(key);
        let has_failed = self.schedule.is_some() && self.reference.num_requeues(key) > 0;
        is_active || has_failed || self.reference.is_delayed(key).0 || self.reference.is_resting(key)
    }

    /// Ends all that is held, and hands out all that is queued or delayed: nothing may be left.
    fn heal(&mut self) {
        self.fault = None;
        let mut turns = 2 * (2 + self.held.len() + self.reference.queued() + self.reference.delayed().len());
        turns += self.reference.rests().len();
        loop {
            while !self.held.is_empty() {
                self.done(self.held.len() - 1, machine::End::Done);
                self.check();
            }
            self.turn();
            if self.get().is_none() {
                let next = self.reference.deadlines().first().copied().or(self.reference.rests().first().copied());
                let Some(left) = next.filter(|_| !self.reference.shut_down) else { break };
                self.reference.advance(left);
            }
            assert!(turns > 0, "the machine is not empty in time");
            turns -= 1;
        }
        let delayed = self.reference.delayed();
        let taken = self.take_delayed().expect("no fault is left");
        assert_eq!(sorted(taken), sorted(delayed.iter().map(|(key, ..)| *key).collect()));
        let mut hand = None;
        for key in self.reference.all() {
            let _owed = self.machine.forget_failures(&mut hand, &Name::new(key), hash(key), self.mode());
        }
        let machine = &self.machine;
        // After a shut-down nothing expires, and some rests never end.
        let resting = self.reference.all().filter(|key| self.reference.is_resting(*key)).count();
        assert!(resting == 0 || self.reference.shut_down || self.reference.rests().is_empty());
        assert_eq!((machine.known(), machine.len(), machine.processing(), machine.failing()), (resting, 0, 0, 0));
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}
