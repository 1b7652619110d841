//! Runs a list of calls with delays and a limiter on the crate and on the plain reference, and compares every return value.
//!
//! One thread, [`Driver::Manual`] and a mock clock; futures are polled by hand. After every call the numbers of
//! [`keyqueue::Stats`] are compared too, and *while a key is queued and a future waits, some waiting future has been woken*,
//! whether an add queued the key, a delay that expired, or a cancelled delay that had held an add back.
//!
//! The queue measures and has an observer. After every call, all ages and sums and the list of delayed keys are compared as well, and
//! the observer's events must add up to the queue's counters.
//!
//! Used by `model.rs` (proptest), by the fuzz target `delay_vs_btree`, and by `replay_corpus.rs`.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use super::delays::Delays;
use super::limits::{Limits, Schedule};
use super::ops::{Colliding, Held, KEYS, Key, Side, Waiting, index, reference};
use super::reference::Counts;
use arbitrary::{Arbitrary, Unstructured};
use keyqueue::observe::Observer;
use keyqueue::rate_limiter::{ItemExponentialFailure, ItemFastSlow, MaxOf, Step, WithMaxWait};
use keyqueue::{
    AddOptions, Added, Clock, DelayConflict, DelayedAdd, DelayedKey, Driver, Item, MockClock, OnPanic, OwnedItem,
    Priority, TryGetError, WorkQueue, WorkQueueBuilder,
};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}

/// One call. An index selects a held item or a waiting future, modulo their number; if there is none, the call is skipped.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Op {
    Add(u8),
    AddAll(Vec<u8>),
    AddAfter(u8, Span),
    AddWith(u8, Span, Conflict),
    /// Options without a delay.
    AddWithout(u8, Conflict),
    Cancel(u8),
    TakeDelayed,
    Turn,
    /// Moves the clock, and nothing else.
    Advance(Span),
    TryGet,
    /// `done`.
    Done(u8),
    RequeueAfter(u8, Span),
    IsDirty(u8),
    IntoOwned(u8),
    /// Makes a future and polls it.
    PollNew,
    /// Polls a future that waits, woken or not.
    Poll(u8),
    /// Drops a future that waits, woken or not.
    DropFuture(u8),
    ShutDown,
    ShrinkToFit,
    /// Makes the calls that follow through a clone of the handle.
    CloneHandle,
    /// `add_after` of a number of keys, with delays of the span plus a number of that many bits.
    DelayMany(u8, Span, u8),
    /// Moves the delay of every (n + 1)th of those keys or, without a span, cancels it.
    Rearrange(u8, Option<Span>),
    /// Gets all queued keys, and calls `done` on each.
    WorkOff,
    AddRateLimited(u8),
    /// Rate-limited, and delayed by at least the span.
    AddRateLimitedWith(u8, Span, Conflict),
    /// Of a held item, as are the next three.
    Retry(u8),
    Succeed(u8),
    /// With these options. `true`: rate-limited as well.
    RequeueWith(u8, Span, Conflict, bool),
    ItemNumRequeues(u8),
    Forget(u8),
    NumRequeues(u8),
    /// Gets all queued keys, and retries each.
    RetryAll,
    /// `take_where` of the `nth` keys whose bits are set; the highest bit stands for all other keys.
    TakeWhere(u8),
    // The fuzzer does not make the next two: with them, its corpus would decode to other calls.
    #[arbitrary(skip)]
    GiveUp(u8),
    /// Drops a held item in a panic.
    #[arbitrary(skip)]
    Panic(u8),
    /// Of the key of this number. The fuzzer makes it of a `Cancel`: see `decoded`.
    #[arbitrary(skip)]
    Remove(u8),
}

impl Op {
    /// Half of the cancels are removals.
    fn decoded(self) -> Self {
        match self {
            Self::Cancel(n) if n % 2 == 1 => Self::Remove(n / 2),
            op => op,
        }
    }
}

/// A duration, for delays and for advances of the clock.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Span {
    Zero,
    /// 2^n nanoseconds, for n up to 63.
    Power(u8, Side),
    /// A number of these units.
    Of(Unit, u8),
    /// From now to a deadline in the future, selected by an index in order of deadline.
    ToDeadline(u8, Side),
    /// From now to the last instant of the clock.
    ToEnd(Side),
    Long(Long),
    Nanoseconds(u64),
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Unit {
    Nanosecond,
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Year,
    Century,
}

/// Limits of other timers.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Long {
    /// 2^30 ms.
    TwelveDays,
    /// 2^36 ms.
    TwoYears,
    /// `i64::MAX` ns.
    Signed,
    FiveHundredYears,
    /// `u64::MAX` ns.
    Unsigned,
    /// `Duration::MAX`.
    Max,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Conflict {
    EarliestWins,
    Replace,
    KeepExisting,
}

impl Unit {
    fn seconds(self) -> f64 {
        match self {
            Self::Nanosecond => 1e-9,
            Self::Microsecond => 1e-6,
            Self::Millisecond => 1e-3,
            Self::Second => 1.0,
            Self::Minute => 60.0,
            Self::Hour => 3_600.0,
            Self::Day => 86_400.0,
            Self::Year => 365.0 * 86_400.0,
            Self::Century => 36_525.0 * 86_400.0,
        }
    }
}

impl Long {
    fn duration(self) -> Duration {
        match self {
            Self::TwelveDays => Duration::from_millis(1 << 30),
            Self::TwoYears => Duration::from_millis(1 << 36),
            Self::Signed => Duration::from_nanos(i64::MAX as u64),
            Self::FiveHundredYears => Duration::from_secs(500 * 365 * 86_400),
            Self::Unsigned => Duration::from_nanos(u64::MAX),
            Self::Max => Duration::MAX,
        }
    }
}

impl Span {
    fn duration<K: Hash + Eq + Clone>(&self, reference: &Delays<K>) -> Duration {
        Duration::from_nanos(match *self {
            Self::Zero => 0,
            Self::Power(n, side) => side.of(1 << (n % 64)),
            Self::Of(unit, n) => return Duration::from_secs_f64(unit.seconds() * f64::from(n)),
            Self::ToDeadline(n, side) => {
                let coming = index(n, reference.deadlines().count());
                coming.and_then(|at| reference.deadlines().nth(at)).map_or(1, |deadline| side.of(deadline))
            }
            Self::ToEnd(side) => side.of(reference.left()),
            Self::Long(long) => return long.duration(),
            Self::Nanoseconds(n) => n,
        })
    }
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

/// An observer that counts events: adds of five kinds, hand-outs, dones, drops, panics.
#[derive(Clone, Default)]
struct Events(Arc<[AtomicU64; 9]>);

impl Events {
    fn count(&self, at: usize) {
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> [u64; 9] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

impl Observer for Events {
    fn added(&self, added: Added) {
        self.count(match added {
            Added::Queued => 0,
            Added::Coalesced => 1,
            Added::Deferred => 2,
            Added::Rejected => 3,
            _ => 4,
        });
    }

    fn handed_out(&self, _: Option<Duration>) {
        self.count(5);
    }

    fn done(&self, _: Option<Duration>) {
        self.count(6);
    }

    fn given_up(&self) {
        self.count(7);
    }

    fn panicked(&self) {
        self.count(8);
    }
}

/// The crate and the reference, in the same state.
struct Pair<'q, K: Key> {
    handles: &'q [WorkQueue<K>; 2],
    /// The index of the handle in use.
    handle: usize,
    events: Events,
    /// What happens to keys whose holders panic.
    on_panic: OnPanic,
    panics: u64,
    /// The number of checks so far.
    checks: Cell<u32>,
    clock: MockClock,
    reference: Delays<K>,
    held: Vec<Held<'q, K>>,
    waiting: Vec<Waiting<'q, K>>,
}

/// What an add does with a delayed key, by number.
pub(crate) fn policy(n: u8) -> DelayedAdd {
    match n % 3 {
        0 => DelayedAdd::Independent,
        1 => DelayedAdd::Promote,
        _ => DelayedAdd::Strict,
    }
}

/// The limiter of this number, and its model.
fn limited<K: Key>(builder: WorkQueueBuilder<K>, n: u8) -> (WorkQueueBuilder<K>, Limits<K>) {
    let second = 1_000_000_000;
    let [one, never] = [Duration::from_secs(1), Duration::MAX];
    match n % LIMITERS {
        0 => (builder, Limits::new(Schedule::Exponential { base: 5_000_000, max: 1_000 * second })),
        1 => {
            let limiter = ItemExponentialFailure::new(Duration::from_nanos(1), never);
            let max = never.as_nanos();
            (builder.rate_limiter(limiter), Limits::new(Schedule::Exponential { base: 1, max }))
        }
        // Three times without a delay, and then with one that never expires.
        2 => {
            let limiter = ItemFastSlow::new(Duration::ZERO, never, 3);
            let schedule = Schedule::FastSlow { fast: 0, slow: never.as_nanos(), max_fast_attempts: 3 };
            (builder.rate_limiter(limiter), Limits::new(schedule))
        }
        _ => {
            let rows = [(0, one), (1, Duration::ZERO), (4, one * 60)];
            let limiter = WithMaxWait::new(ItemExponentialFailure::new(one, never), one * 7);
            let limiter = MaxOf::new(vec![Box::new(limiter), Box::new(Step::new(rows))]);
            let rows = rows.map(|(from, delay)| (from as u64, delay.as_nanos()));
            let limits = Limits::new(Schedule::Exponential { base: second, max: never.as_nanos() });
            let limits = Limits::MaxWait(Box::new(limits), 7 * second);
            (builder.rate_limiter(limiter), Limits::MaxOf(vec![limits, Limits::new(Schedule::Step(rows.to_vec()))]))
        }
    }
}

/// The number of limiters.
pub(crate) const LIMITERS: u8 = 4;

/// Runs the calls with plain keys, with keys that own memory, and with keys that collide; with one shard, and with four.
pub(crate) fn run(policy: DelayedAdd, limiter: u8, ops: &[Op]) {
    for shards in [1, 4] {
        run_with::<u64>(shards, policy, limiter, ops);
        run_with::<String>(shards, policy, limiter, ops);
        run_with::<Colliding>(shards, policy, limiter, ops);
    }
}

/// Runs the fuzz target's input. The first byte selects the policy, the type of key, the limiter, and the number of shards.
pub(crate) fn run_bytes(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let Ok(ops) = Vec::<Op>::arbitrary_take_rest(Unstructured::new(rest)) else { return };
    let run = [run_with::<u64>, run_with::<String>, run_with::<Colliding>][usize::from(first / 3 % 3)];
    let ops: Vec<_> = ops.into_iter().map(Op::decoded).collect();
    run(1 + 3 * usize::from(first / 36 % 2), policy(first), first / 9, &ops);
}

pub(crate) fn run_with<K: Key>(shards: usize, policy: DelayedAdd, limiter: u8, ops: &[Op]) {
    let (clock, mock) = Clock::mock();
    let builder = WorkQueue::<K>::builder().shards(shards).clock(clock).driver(Driver::Manual).delayed_add(policy);
    let (builder, limits) = limited(builder, limiter);
    let (events, on_panic) = (Events::default(), if limiter & 1 == 0 { OnPanic::Done } else { OnPanic::Retry });
    let queue = builder.observer(events.clone()).on_panic(on_panic).build();
    let handles = [queue.clone(), queue];
    let mut pair = Pair {
        handles: &handles,
        handle: 0,
        events,
        on_panic,
        panics: 0,
        checks: Cell::new(0),
        clock: mock,
        reference: Delays::with_queue(reference(shards), policy, limits),
        held: Vec::new(),
        waiting: Vec::new(),
    };
    for op in ops {
        pair.step(op);
        pair.check();
    }
    pair.finish();
}

impl<'q, K: Key> Pair<'q, K> {
    fn queue(&self) -> &'q WorkQueue<K> {
        &self.handles[self.handle]
    }

    fn step(&mut self, op: &Op) {
        let queue = self.queue();
        match op {
            Op::Add(n) => assert_eq!(queue.add(K::nth(*n)), self.reference.add(K::nth(*n))),
            Op::AddAll(ns) => {
                let added = queue.add_all(ns.iter().map(|&n| K::nth(n)));
                let expected = ns.iter().map(|&n| self.reference.add(K::nth(n)));
                assert_eq!(added, expected.filter(|added| matches!(added, Added::Queued | Added::Deferred)).count());
            }
            Op::AddAfter(n, span) => {
                let delay = span.duration(&self.reference);
                assert_eq!(queue.add_after(K::nth(*n), delay), self.reference.add_after(K::nth(*n), delay));
            }
            Op::AddWith(n, span, conflict) => {
                let (delay, conflict) = (span.duration(&self.reference), conflict.of_the_crate());
                let added = queue.add_with(K::nth(*n), AddOptions::new().after(delay).conflict(conflict));
                assert_eq!(added, self.reference.add_with(K::nth(*n), delay, conflict));
            }
            Op::AddWithout(n, conflict) => {
                let conflict = conflict.of_the_crate();
                let added = queue.add_with(K::nth(*n), AddOptions::new().conflict(conflict));
                assert_eq!(added, self.reference.add_without(K::nth(*n), conflict));
            }
            Op::Cancel(n) => assert_eq!(queue.cancel(&K::nth(*n)), self.reference.cancel(&K::nth(*n))),
            Op::Remove(n) => assert_eq!(queue.remove(&K::nth(*n)), self.reference.take_back(&K::nth(*n))),
            Op::TakeDelayed => {
                let (mut taken, mut expected) = (pairs(queue.take_delayed()), self.reference.take_delayed());
                if self.reference.queue.is_in_any_order() {
                    assert!(taken.is_sorted_by_key(|&(_, left)| left));
                    for list in [&mut taken, &mut expected] {
                        list.sort_by_key(|(key, left)| (*left, format!("{key:?}"))); // equal deadlines are in any order
                    }
                }
                assert_eq!(taken, expected);
            }
            Op::TakeWhere(bits) => self.take_where(*bits),
            Op::Turn => assert_eq!(queue.turn(), self.reference.turn()),
            Op::Advance(span) => {
                let by = span.duration(&self.reference);
                self.clock.advance(by);
                self.reference.advance(by);
            }
            Op::TryGet => {
                let got = queue.try_get();
                let shut_down = self.reference.queue.shutting_down();
                self.compare(got, if shut_down { TryGetError::ShutDown } else { TryGetError::Empty });
            }
            Op::Done(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    self.reference.queue.done(held.key());
                    held.done();
                }
            }
            Op::RequeueAfter(n, span) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let delay = span.duration(&self.reference);
                    let held = self.held.swap_remove(at);
                    let expected = self.reference.requeue_after(held.key().clone(), delay);
                    let added = match held {
                        Held::Borrowed(item) => Item::requeue_after(item, delay),
                        Held::Owned(item) => OwnedItem::requeue_after(item, delay),
                    };
                    assert_eq!(added, expected);
                }
            }
            Op::IsDirty(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = &self.held[at];
                    assert_eq!(held.is_dirty(), self.reference.queue.is_dirty(held.key()));
                }
            }
            Op::IntoOwned(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at).into_owned();
                    self.held.push(held);
                }
            }
            Op::PollNew => self.poll(Waiting::new(queue.get_async())),
            Op::Poll(n) => {
                if let Some(at) = index(*n, self.waiting.len()) {
                    let waiting = self.waiting.remove(at);
                    self.poll(waiting);
                }
            }
            Op::DropFuture(n) => {
                if let Some(at) = index(*n, self.waiting.len()) {
                    drop(self.waiting.remove(at));
                }
            }
            Op::ShutDown => {
                queue.shut_down();
                self.reference.shut_down();
            }
            Op::ShrinkToFit => queue.shrink_to_fit(),
            Op::CloneHandle => self.handle ^= 1,
            Op::DelayMany(count, span, bits) => {
                let (from, mask) = (span.duration(&self.reference), (1_u64 << (bits % 64)) - 1);
                for n in 0..u16::from(*count) {
                    let more = u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) & mask;
                    let delay = from.saturating_add(Duration::from_nanos(more));
                    assert_eq!(queue.add_after(K::other(n), delay), self.reference.add_after(K::other(n), delay));
                }
            }
            Op::Rearrange(every, span) => {
                let delay = span.as_ref().map(|span| span.duration(&self.reference));
                for n in (0..255).step_by(usize::from(*every) + 1) {
                    let key = K::other(n);
                    if let Some(delay) = delay {
                        let replace = DelayConflict::Replace;
                        let added = queue.add_with(key.clone(), AddOptions::new().after(delay).conflict(replace));
                        assert_eq!(added, self.reference.add_with(key, delay, replace));
                    } else {
                        assert_eq!(queue.cancel(&key), self.reference.cancel(&key));
                    }
                }
            }
            Op::WorkOff => {
                while !self.reference.queue.is_empty() {
                    let item = queue.try_get().expect("a key is queued");
                    assert_eq!(Some(&*item), self.reference.queue.get_like(Some(&*item)).as_ref());
                    self.reference.queue.done(&item);
                }
            }
            Op::AddRateLimited(n) => {
                assert_eq!(queue.add_rate_limited(K::nth(*n)), self.reference.add_rate_limited(K::nth(*n)));
            }
            Op::AddRateLimitedWith(n, span, conflict) => {
                let (delay, conflict) = (span.duration(&self.reference), conflict.of_the_crate());
                let options = AddOptions::new().after(delay).conflict(conflict).rate_limited();
                let expected = self.reference.add_rate_limited_with(K::nth(*n), delay, conflict);
                assert_eq!(queue.add_with(K::nth(*n), options), expected);
            }
            Op::Retry(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    self.retry(held);
                }
            }
            Op::Succeed(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    self.reference.succeed(held.key());
                    match held {
                        Held::Borrowed(item) => item.succeed(),
                        Held::Owned(item) => item.succeed(),
                    }
                }
            }
            Op::RequeueWith(n, span, conflict, rate_limited) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let (delay, conflict) = (span.duration(&self.reference), conflict.of_the_crate());
                    let held = self.held.swap_remove(at);
                    let mut options = AddOptions::new().after(delay).conflict(conflict);
                    if *rate_limited {
                        options = options.rate_limited();
                    }
                    let key = held.key().clone();
                    let expected = if *rate_limited {
                        self.reference.add_rate_limited_with(key.clone(), delay, conflict)
                    } else {
                        self.reference.add_with(key.clone(), delay, conflict)
                    };
                    self.reference.queue.done(&key);
                    let added = match held {
                        Held::Borrowed(item) => item.requeue_with(options),
                        Held::Owned(item) => item.requeue_with(options),
                    };
                    assert_eq!(added, expected);
                }
            }
            Op::ItemNumRequeues(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let requeues = match &self.held[at] {
                        Held::Borrowed(item) => item.num_requeues(),
                        Held::Owned(item) => item.num_requeues(),
                    };
                    assert_eq!(requeues, self.reference.limits.num_requeues(self.held[at].key()));
                }
            }
            Op::Forget(n) => {
                queue.forget(&K::nth(*n));
                self.reference.limits.forget(&K::nth(*n));
            }
            Op::NumRequeues(n) => {
                assert_eq!(queue.num_requeues(&K::nth(*n)), self.reference.limits.num_requeues(&K::nth(*n)));
            }
            Op::RetryAll => {
                // With a delay of zero a key is queued again at once.
                for _ in 0..self.reference.queue.len() {
                    let item = queue.try_get().expect("a key is queued");
                    assert_eq!(Some(&*item), self.reference.queue.get_like(Some(&*item)).as_ref());
                    self.retry(Held::Borrowed(item));
                }
            }
            Op::GiveUp(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    self.reference.give_up(held.key());
                    match held {
                        Held::Borrowed(item) => item.give_up(),
                        Held::Owned(item) => item.give_up(),
                    }
                }
            }
            Op::Panic(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    let key = held.key().clone();
                    let unwinds = || -> () {
                        let _held = held;
                        resume_unwind(Box::new(()))
                    };
                    assert!(catch_unwind(AssertUnwindSafe(unwinds)).is_err());
                    self.panics += 1;
                    match self.on_panic {
                        OnPanic::Retry => _ = self.reference.retry(key),
                        _ => self.reference.queue.done(&key),
                    }
                }
            }
        }
    }

    fn retry(&mut self, held: Held<'q, K>) {
        let expected = self.reference.retry(held.key().clone());
        let added = match held {
            Held::Borrowed(item) => item.retry(),
            Held::Owned(item) => item.retry(),
        };
        assert_eq!(added, expected);
    }

    /// Compares a hand-out, and keeps the item. `none` is the error if no key is queued.
    fn compare<E: PartialEq + Debug>(&mut self, got: Result<Item<'q, K>, E>, none: E) {
        let expected = self.reference.queue.get_like(got.as_ref().ok().map(Item::key));
        match (got, expected) {
            (Ok(item), Some(key)) => {
                assert_eq!(*item, key);
                self.held.push(Held::Borrowed(item));
            }
            (Err(error), None) => assert_eq!(error, none),
            (got, expected) => panic!("handed out {got:?}, should have been {expected:?}"),
        }
    }

    fn poll(&mut self, mut waiting: Waiting<'q, K>) {
        let would_wait = self.reference.queue.is_empty() && !self.reference.queue.shutting_down();
        match waiting.poll() {
            Poll::Ready(got) => {
                assert!(!would_wait, "a future resolved without a reason");
                self.compare(got.ok_or(()), ());
            }
            Poll::Pending => {
                assert!(would_wait, "a future waits although it could resolve");
                self.waiting.push(waiting);
            }
        }
    }

    fn check(&self) {
        let (queue, reference, stats) = (self.queue(), &self.reference, self.queue().stats());
        let shut_down = reference.queue.shutting_down();
        assert_eq!((queue.len(), stats.len), (reference.queue.len(), reference.queue.len()));
        assert_eq!((queue.processing_len(), stats.processing), (reference.queue.processing_len(), self.held.len()));
        assert_eq!((queue.delayed_len(), stats.delayed), (reference.delayed_len(), reference.delayed_len()));
        assert_eq!((queue.shutting_down(), stats.shutting_down), (shut_down, shut_down));
        assert_eq!((stats.delays, stats.expired), (reference.set, reference.expired));
        for key in (0..KEYS).map(K::nth) {
            assert_eq!(queue.num_requeues(&key), reference.limits.num_requeues(&key), "of {key:?}");
        }
        let counts = Counts {
            pushed: stats.pushed,
            coalesced: stats.coalesced,
            deferred: stats.deferred,
            rejected: stats.rejected,
            handed_out: stats.handed_out,
            taken: stats.taken,
        };
        assert_eq!(counts, reference.queue.counts);
        let coming_back = self.held.iter().filter(|held| held.is_dirty()).count();
        assert_eq!(
            stats.pushed + stats.deferred,
            stats.handed_out + stats.taken + (stats.len + coming_back) as u64,
            "every add leads to one hand-out"
        );

        let woken = self.waiting.iter().filter(|waiting| waiting.is_woken()).count();
        assert_eq!(stats.waiters, self.waiting.len() - woken, "the wait list holds the futures that were not woken");
        assert!(
            woken > 0 || self.waiting.is_empty() || queue.is_empty(),
            "a key is queued, and no waiting future was woken"
        );
        assert!(!shut_down || stats.waiters == 0, "shut down, and a future was not woken");
        self.check_counts();
        self.check_times();
        // A long list every eighth time only, as it takes long.
        if self.reference.delayed_len() <= 100 || self.checks.get() & 7 == 0 {
            self.check_delays();
        }
    }

    fn check_delays(&self) {
        let listed = self.queue().inspect().delayed_keys();
        assert!(listed.is_sorted_by_key(|listed| listed.left), "earliest first");
        assert!(listed.iter().all(|listed| listed.priority == Priority::NORMAL));
        assert_eq!(listed.len(), self.reference.delayed_len(), "each once");
        let listed: HashMap<_, _> = listed.into_iter().map(|listed| (listed.key, listed.left)).collect();
        let expected: HashMap<_, _> = self.reference.delayed_keys().into_iter().collect();
        assert_eq!(listed, expected);
    }

    fn take_where(&mut self, bits: u8) {
        let matches = |key: &K| match (0..KEYS).find(|&n| K::nth(n) == *key) {
            Some(n) => bits & 1 << n != 0,
            None => bits & 1 << 7 != 0,
        };
        let mut taken = self.queue().take_where(matches);
        let (mut queued, mut processing) = self.reference.queue.take_where(matches);
        let order = |key: &K| format!("{key:?}");
        if self.reference.queue.is_in_any_order() {
            taken.queued.sort_by_key(order);
            queued.sort_by_key(order);
        }
        assert_eq!(taken.queued, queued);
        let mut taken_delayed = pairs(taken.delayed);
        assert!(taken_delayed.is_sorted_by_key(|&(_, left)| left));
        let mut delayed = self.reference.take_delays_where(matches);
        for list in [&mut taken_delayed, &mut delayed] {
            list.sort_by_key(|(key, left)| (*left, order(key))); // equal deadlines are in any order
        }
        assert_eq!(taken_delayed, delayed);
        taken.processing.sort_by_key(order);
        processing.sort_by_key(order);
        assert_eq!(taken.processing, processing);
    }

    fn check_counts(&self) {
        let (stats, reference) = (self.queue().stats(), &self.reference);
        let Counts { pushed, coalesced, deferred, rejected, handed_out, taken: _ } = reference.queue.counts;
        let done = handed_out - self.held.len() as u64;
        let (given_up, panics) = (reference.given_up, self.panics);
        let all = [pushed, coalesced, deferred, rejected, reference.set, handed_out, done, given_up, panics];
        assert_eq!(self.events.all(), all, "the observer's events");
        assert_eq!((stats.retries, stats.failures), (reference.retries, reference.failures));
        assert_eq!((stats.given_up, stats.panics), (given_up, panics));
        assert_eq!(stats.adds(), pushed + deferred);
        let coming_back = self.held.iter().filter(|held| held.is_dirty()).count();
        assert_eq!(stats.depth(), (stats.len + coming_back) as u64);
    }

    fn check_times(&self) {
        let (stats, reference) = (self.queue().stats(), &self.reference);
        let plain = &reference.queue;
        match (stats.next_deadline, reference.next_deadline()) {
            (Some(next), Some(expected)) if reference.rearranged => assert!(next <= expected, "{next:?}, {expected:?}"),
            (next, expected) => assert_eq!(next, expected),
        }
        if plain.now == u64::MAX {
            return; // nothing is measured at the clock's last instant
        }
        let duration = |nanos: u128| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let ages = || plain.processing_since.iter().map(|&(_, taken, _)| plain.now - taken);
        match (stats.oldest_queued, plain.oldest_queued()) {
            (Some(age), Some(oldest)) => {
                let oldest = duration((*oldest.start()).into())..=duration((*oldest.end()).into());
                assert!(oldest.contains(&age), "{age:?} {oldest:?}");
            }
            (age, oldest) => assert_eq!((age, oldest), (None, None), "no key is queued"),
        }
        assert_eq!(stats.longest_running, ages().max().map(|age| duration(age.into())));
        // A shard's sum ends at 584 years.
        let unfinished = stats.unfinished_work.map(|sum| duration(sum.as_nanos()));
        assert_eq!(unfinished, Some(duration(ages().map(u128::from).sum())));
        let processing_since = plain.processing_since.iter().zip(ages());
        let mut processing_since: Vec<_> =
            processing_since.map(|((key, ..), age)| (key.clone(), Some(duration(age.into())))).collect();
        let listed = self.queue().inspect().processing_keys();
        let mut listed: Vec<_> = listed.into_iter().map(|listed| (listed.key, listed.elapsed)).collect();
        assert!(listed.is_sorted_by(|(_, age), (_, next)| age >= next), "longest first");
        for list in [&mut listed, &mut processing_since] {
            list.sort_by_key(|(key, age)| (*age, format!("{key:?}"))); // equal ages are in any order
        }
        assert_eq!(listed, processing_since);
        for held in &self.held {
            let waited = match held {
                Held::Borrowed(item) => item.waited(),
                Held::Owned(item) => item.waited(),
            };
            let expected =
                plain.processing_since.iter().find(|(key, ..)| key == held.key()).map(|&(.., waited)| waited);
            assert_eq!(waited, expected.map(Duration::from_nanos));
        }
        // Every eighth time is enough: a histogram keeps what was recorded.
        self.checks.set(self.checks.get() + 1);
        if self.checks.get() & 7 == 0 {
            self.check_histograms();
        }
    }

    fn check_histograms(&self) {
        let (metrics, plain) = (self.queue().inspect().metrics(), &self.reference.queue);
        assert_eq!(metrics.stats, self.queue().stats());
        let (waited, worked) = (&metrics.queue_duration, &metrics.work_duration);
        for (histogram, (count, sum)) in [(waited, plain.waited), (worked, plain.worked)] {
            let sum = Duration::from_nanos(u64::try_from(sum).unwrap_or(u64::MAX));
            assert_eq!((histogram.count(), histogram.sum()), (count, sum));
            assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), count);
        }
    }

    /// Processes all keys, deadline by deadline: none is lost, none is handed out twice, and those that never expire can be
    /// taken. Some delays are cancelled first, which releases the adds that wait for them.
    fn finish(mut self) {
        self.waiting.clear();
        for n in 0..4 {
            self.step(&Op::Cancel(n));
            self.check();
        }
        let before = self.queue().stats();
        let coming = before.delayed - self.reference.never();
        self.step(&Op::Turn);
        loop {
            while !self.held.is_empty() {
                self.step(&Op::Done(0));
            }
            self.check();
            if !self.reference.queue.is_empty() {
                self.step(&Op::WorkOff);
            } else if !self.reference.queue.shutting_down() && self.reference.deadlines().next().is_some() {
                self.step(&Op::Advance(Span::ToDeadline(0, Side::Before)));
                self.step(&Op::Turn);
                self.step(&Op::Advance(Span::ToDeadline(0, Side::At)));
                self.step(&Op::Turn);
            } else {
                break;
            }
        }
        let after = self.queue().stats();
        if !after.shutting_down {
            assert_eq!(after.expired - before.expired, coming as u64, "each delay expired once");
            assert_eq!(after.delayed, self.reference.never());
        }
        self.step(&Op::TakeDelayed);
        self.check();
        assert_eq!((self.queue().len(), self.queue().delayed_len()), (0, 0));
        if self.reference.queue.now < u64::MAX {
            self.check_histograms();
        }
        assert!(self.queue().shut_down_with_drain_timeout(Duration::ZERO).is_ok());
        self.reference.shut_down();
        self.check();
    }
}
