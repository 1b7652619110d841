//! Threads at full speed on one queue: which calls they make, and in which critical sections each took effect.
//!
//! Each thread makes the steps of one random life after the other ([`swarm::life`]), on the queue of the first one's plan. Thread 0 moves the
//! clock, and in half of the runs it shuts the queue down before the others are at their end. In half of the runs there are workers
//! besides, which block until they get a key. At the end everything heals, as in a run of one thread: what is held is done, the clock passes
//! each deadline, and the workers must get every key, although nobody adds one: a lost wake-up leaves them asleep.
//!
//! Whether the answers were right is judged afterwards: [`replay`](super::replay).

use crate::reference::events::Events;
use crate::reference::key::{KEYS, Key};
use crate::reference::limits::Limits;
use crate::reference::op::{End, Form, Goal, How, Op, Span};
use crate::reference::plan::{Limiter, Plan};
use crate::reference::queue::{Delayed, NEVER};
use crate::reference::random::Random;
use crate::reference::swarm;
#[cfg(keyqueue_steps)]
pub(crate) use keyqueue::steps::{self, Step};
use keyqueue::{Added, DelayedKey, Leftover, MockClock, OnPanic, OwnedItem, Stats, TryGetError, WorkQueue};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// In a normal build no critical section has a number. The calls are made all the same, for the sanitizers.
#[cfg(not(keyqueue_steps))]
pub(crate) mod steps {
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Step {
        pub(crate) shard: usize,
        pub(crate) number: u64,
    }

    pub(crate) fn count() -> usize {
        0
    }

    pub(crate) fn take() -> Vec<Step> {
        Vec::new()
    }

    pub(crate) fn take_time() -> Option<u64> {
        None
    }
}
#[cfg(not(keyqueue_steps))]
pub(crate) use steps::Step;

/// Threads that live, but for the workers and the main thread.
const LIVING: usize = 3;
const WORKERS: usize = 2;
/// All that make calls: the main thread is the last.
pub(crate) const THREADS: usize = LIVING + WORKERS + 1;

/// How long a worker may need to find a key.
const PATIENCE: Duration = Duration::from_secs(10);

/// A call, with its answer.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// `None`: a plain add.
    Add(u8, Option<(How, Option<u64>)>, Added),
    Cancel(u8, bool),
    Remove(u8, bool),
    Forget(u8),
    NumRequeues(u8, usize),
    /// A get in any form, or a poll of its future: the keys, and what their holder sees of `published`. `is_over`: the queue is shut down.
    Get {
        keys: Vec<(u8, [u64; THREADS])>,
        is_many: bool,
        is_over: bool,
    },
    Done(u8),
    Succeed(u8),
    GiveUp(u8),
    /// `None`: the call is made by an unwinding thread.
    Requeue {
        key: u8,
        how: How,
        delay: Option<u64>,
        forgets: bool,
        answer: Option<Added>,
    },
    /// What the holder of a key sees.
    HeldPriority(u8, i8),
    IsDirty(u8, bool),
    TakeWhere {
        bits: u16,
        queued: Vec<u8>,
        delayed: Vec<Delayed>,
        processing: Vec<u8>,
    },
    TakeDelayed(Vec<Delayed>),
    ProcessingKeys(Vec<u8>),
    DelayedKeys(Vec<Delayed>),
    /// An answer to which each shard adds a part.
    Sum(Sum, Parts),
    /// An idle wait or a drain that has ended.
    IsIdle,
    IsDrained,
    BeginsShutDown,
    /// It changes no key.
    Nothing,
}

/// Numbers by name; those that are 0 are left out.
pub(crate) type Parts = BTreeMap<i16, usize>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sum {
    AddAll(Vec<u8>),
    Turn,
    Processing,
    Delayed,
    Levels,
    Groups,
    Stats,
    /// What a drain or an idle wait leaves at its deadline: queued, processing, and delayed keys.
    Left,
    LeftDrain,
}

pub(crate) fn parts(numbers: impl IntoIterator<Item = (i16, usize)>) -> Parts {
    numbers.into_iter().filter(|(_, number)| *number > 0).collect()
}

/// A call, and where its critical sections end in the list of its thread.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) call: Call,
    pub(crate) end: usize,
    /// What it has read from the clock.
    pub(crate) time: Option<u64>,
    /// How many adds of each key its thread had announced before it.
    pub(crate) published: u64,
}

/// What one thread did.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
    pub(crate) steps: Vec<Step>,
}

/// A run that has ended.
pub(crate) struct History {
    pub(crate) plan: Plan,
    pub(crate) shard_of: Vec<usize>,
    pub(crate) limits: Limits<u8>,
    pub(crate) logs: Vec<Log>,
}

/// `published[key][thread]`: written before each add of the key, Relaxed, so that only the queue makes it visible to the holder (P2).
type Published = [[AtomicU64; THREADS]; KEYS as usize];

enum Waiter<'q> {
    Item(Pin<Box<dyn Future<Output = Option<OwnedItem<Key>>> + 'q>>),
    Dirty(u8, Pin<Box<dyn Future<Output = OwnedItem<Key>>>>),
    Idle(Pin<Box<dyn Future<Output = ()> + 'q>>),
}

struct Caller<'q> {
    number: usize,
    plan: &'q Plan,
    queue: &'q WorkQueue<Key>,
    clock: &'q MockClock,
    published: &'q Published,
    random: Random,
    held: Vec<OwnedItem<Key>>,
    waiters: Vec<Waiter<'q>>,
    records: Vec<Record>,
    adds: u64,
    /// Of this number of long calls, one is made.
    of_long: u64,
}

/// The plan of a run of threads.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut plan = swarm::life(seed).0;
    plan.shards = plan.shards.min(4);
    if matches!(plan.limiter, Limiter::Composed | Limiter::Own) {
        plan.limiter = Limiter::Fast; // the others the queue counts itself, in its critical sections
    }
    plan
}

/// Makes about this number of calls.
pub(crate) fn run(seed: u64, calls: usize) -> History {
    let plan = &plan(seed);
    let mut random = Random::Seed(seed);
    let (shuts_down, of_long) = (random.once_in(2), random.pick(&[1, 64, 1024]));
    let worker_count = random.pick(&[0, 0, 1, WORKERS]);
    let (queue, clock, limits) = plan.build(&Events::default());
    let published: Published = Default::default();
    let is_ending = AtomicBool::new(false);
    let caller = |number: usize, seed| Caller {
        number,
        plan,
        queue: &queue,
        clock: &clock,
        published: &published,
        random: Random::Seed(seed),
        held: Vec::new(),
        waiters: Vec::new(),
        records: Vec::new(),
        adds: 0,
        of_long,
    };
    let mut seeds = || random.next();
    let logs = thread::scope(|scope| {
        let mut living = Vec::new();
        for number in 0..LIVING {
            let seed = seeds();
            let run = move || {
                let mut caller = caller(number, seed);
                caller.live(calls / LIVING, shuts_down);
                caller.end()
            };
            living.push(scope.spawn(run));
        }
        let mut workers = Vec::new();
        for number in LIVING..LIVING + worker_count {
            let (seed, is_ending) = (seeds(), &is_ending);
            let run = move || {
                let mut caller = caller(number, seed);
                caller.work(is_ending);
                caller.end()
            };
            workers.push(scope.spawn(run));
        }
        let living: Vec<_> = living.into_iter().map(|thread| thread.join()).collect();
        is_ending.store(true, Ordering::Relaxed);
        let mut main = caller(THREADS - 1, seeds());
        let healed = living.iter().all(Result::is_ok) && main.heal(worker_count > 0);
        main.queue.shut_down(); // in any case: workers that block must end
        main.note(Call::BeginsShutDown);
        let begin = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) && begin.elapsed() < PATIENCE {
            thread::yield_now();
        }
        let asleep = workers.iter().filter(|worker| !worker.is_finished()).count();
        while workers.iter().any(|worker| !worker.is_finished()) {
            main.queue.shut_down(); // wakes those that are on the list by now
            main.note(Call::Nothing);
        }
        let mut logs: Vec<Log> =
            living.into_iter().map(|log| log.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        logs.extend(workers.into_iter().map(|thread| thread.join().expect("a worker")));
        assert!(healed, "run {seed}: after all adds, keys are left that no getter takes: {:?}", queue.stats());
        assert_eq!(asleep, 0, "run {seed}: getters sleep, although the queue is shut down");
        main.look(Sum::Stats);
        logs.resize_with(THREADS - 1, Log::default);
        logs.push(main.end());
        logs
    });
    History { shard_of: plan.shards_of(&queue), plan: plan.clone(), limits, logs }
}

fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(NEVER)
}

fn numbers(keys: &[Key]) -> Vec<u8> {
    keys.iter().map(Key::number).collect()
}

fn triples(delayed: &[DelayedKey<Key>]) -> Vec<Delayed> {
    delayed.iter().map(|delayed| (delayed.key.number(), nanos(delayed.left), delayed.priority.0)).collect()
}

/// What of [`Stats`] a shard counts.
fn stats_parts(stats: &Stats) -> Parts {
    let sizes = [stats.len, stats.processing, stats.delayed, stats.failing].map(|size| size as u64);
    let counts = [stats.pushed, stats.deferred, stats.coalesced + stats.rejected, stats.handed_out, stats.taken];
    let others = [stats.delays, stats.expired, stats.retries, stats.failures, stats.given_up];
    parts((0..).zip([&sizes[..], &counts, &others].concat().into_iter().map(|count| count as usize)))
}

impl<'q> Caller<'q> {
    /// The call has ended.
    fn note(&mut self, call: Call) {
        let (end, time, published) = (steps::count(), steps::take_time(), self.adds);
        self.records.push(Record { call, end, time, published });
    }

    fn end(self) -> Log {
        Log { records: self.records, steps: steps::take() }
    }

    /// Makes steps of lives, until there were this many calls.
    fn live(&mut self, calls: usize, shuts_down: bool) {
        while self.records.len() < calls {
            for op in swarm::life(self.random.next()).1 {
                // They take long, so in some runs they are rare, and other calls meet more often.
                let is_long = matches!(
                    op,
                    Op::TakeWhere(_) | Op::TakeDelayed | Op::ShrinkToFit | Op::Get(Form::Get | Form::Owned)
                );
                if !is_long || self.random.once_in(self.of_long) {
                    self.step(&op);
                }
                if self.random.once_in(16 * self.of_long) {
                    self.look_around();
                }
            }
            if shuts_down && self.number == 0 && self.records.len() > calls / 10 * 9 && !self.queue.shutting_down() {
                self.look(Sum::Processing); // the shut-down begins after this
                match self.random.once_in(2) {
                    true => self.queue.shut_down(),
                    false => _ = self.queue.shut_down_with_drain_timeout(Duration::ZERO),
                }
                self.note(Call::BeginsShutDown);
            }
        }
        while let Some(waiter) = self.waiters.pop() {
            self.drop_waiter(waiter);
        }
        while let Some(item) = self.held.pop() {
            self.end_item(item, &End::Done);
        }
    }

    /// Gets keys until the queue is shut down.
    fn work(&mut self, is_ending: &AtomicBool) {
        loop {
            let form = self.random.below(4);
            let (mut items, is_many) = match form {
                0 => (self.queue.get_many(3).into_iter().map(|item| item.into_owned()).collect(), true),
                1 => (Vec::from_iter(futures_executor::block_on(self.queue.get_owned_async())), false),
                _ => (Vec::from_iter(self.queue.get().map(|item| item.into_owned())), false),
            };
            self.got(&items, is_many, items.is_empty());
            if items.is_empty() {
                return;
            }
            while let Some(item) = items.pop() {
                let end = match self.random.below(8) {
                    _ if is_ending.load(Ordering::Relaxed) => End::Done,
                    0 => End::Retry,
                    1 => End::Unwind,
                    2 => End::Succeed,
                    3 => End::RequeueAfter(Span::Nanos(1)),
                    _ => End::Done,
                };
                self.end_item(item, &end);
            }
        }
    }

    /// Ends all work. `false`: keys are left, and the workers do not take them.
    fn heal(&mut self, has_workers: bool) -> bool {
        let begin = Instant::now();
        loop {
            let is_alone = !has_workers || self.queue.shutting_down();
            while is_alone && self.get(Form::Try) {
                let item = self.held.pop().expect("it was just handed out");
                self.end_item(item, &End::Done);
            }
            // Nothing is added, so only the workers that were woken before take keys.
            while !self.is_quiet() {
                if begin.elapsed() > PATIENCE {
                    return false;
                }
                thread::yield_now();
            }
            self.look(Sum::Delayed);
            if matches!(self.records.last(), Some(Record { call: Call::Sum(_, parts), .. }) if parts.is_empty()) {
                return is_alone || self.wakes_for_each_key();
            }
            self.clock.advance(Duration::from_secs(4000));
            let never_expire = self.queue.shutting_down() || self.random.once_in(4);
            self.step(if never_expire { &Op::TakeDelayed } else { &Op::Turn });
        }
    }

    /// Adds keys one at a time. While the worker that has taken one goes to sleep, the next one comes, and must wake it.
    fn wakes_for_each_key(&mut self) -> bool {
        (0..300).all(|_| {
            let begin = Instant::now();
            self.step(&Op::Add(0));
            while !self.is_quiet() && begin.elapsed() < PATIENCE {}
            (0..self.random.below(200)).for_each(|_| std::hint::spin_loop());
            begin.elapsed() < PATIENCE
        })
    }

    /// No key is queued or processing.
    fn is_quiet(&mut self) -> bool {
        if !self.queue.is_empty() {
            return false; // without a lock, and so without a step
        }
        let is_quiet = self.queue.processing_len() == 0 && self.queue.is_empty();
        self.note(Call::Nothing);
        is_quiet
    }

    // ---- steps ----

    fn span(&mut self, span: Span) -> Duration {
        match span {
            Span::Nanos(nanos) => Duration::from_nanos(nanos),
            Span::ToDeadline(..) => Duration::from_nanos(self.random.below(50)),
            Span::Never => Duration::MAX,
        }
    }

    fn step(&mut self, op: &Op) {
        let queue = self.queue;
        match op {
            Op::Add(n) => self.add(*n, None),
            Op::AddAfter(n, span) => self.add(*n, Some(How { after: Some(*span), ..How::new() })),
            Op::AddWith(n, how) => self.add(*n, Some(how.clone())),
            Op::AddRateLimited(n) => self.add(*n, Some(How { rate_limited: true, ..How::new() })),
            // With groups, a new key takes two critical sections, or one.
            Op::AddAll(ns) if self.plan.groups.is_some() => ns.iter().for_each(|n| self.add(*n, None)),
            Op::AddAll(ns) => {
                self.adds += 1;
                ns.iter().for_each(|n| self.publish(*n));
                let added = queue.add_all(ns.iter().map(|n| Key::new(*n)));
                self.note(Call::Sum(Sum::AddAll(ns.clone()), parts([(0, added)])));
            }
            Op::Cancel(n) => {
                let cancelled = queue.cancel(&Key::new(*n));
                self.note(Call::Cancel(*n, cancelled));
            }
            Op::Remove(n) => {
                let removed = queue.remove(&Key::new(*n));
                self.note(Call::Remove(*n, removed));
            }
            Op::Forget(n) => {
                queue.forget(&Key::new(*n));
                self.note(Call::Forget(*n));
                let requeues = queue.num_requeues(&Key::new(*n));
                self.note(Call::NumRequeues(*n, requeues));
            }
            Op::TakeWhere(bits) => {
                let Leftover { queued, delayed, processing, .. } =
                    queue.take_where(|key| bits & 1 << key.number() != 0);
                let (queued, processing) = (numbers(&queued), numbers(&processing));
                self.note(Call::TakeWhere { bits: *bits, queued, delayed: triples(&delayed), processing });
            }
            Op::TakeDelayed => {
                let taken = triples(&queue.take_delayed());
                self.note(Call::TakeDelayed(taken));
            }
            Op::Get(form) => _ = self.get(*form),
            Op::Work(n, hold) => {
                for _ in 0..n / 4 {
                    if !self.get(Form::Try) {
                        break;
                    }
                    let item = self.held.pop().expect("it was just handed out");
                    match Some(self.plan.group_of(item.key().number())) == *hold {
                        true => self.held.push(item),
                        false => self.end_item(item, &End::Done),
                    }
                }
            }
            Op::End(n, end) if !self.held.is_empty() => {
                let item = self.held.swap_remove(usize::from(*n) % self.held.len());
                self.end_item(item, end);
            }
            Op::Wait(Goal::Item | Goal::OwnedItem) => self.poll(Waiter::Item(Box::pin(queue.get_owned_async()))),
            Op::Wait(Goal::Idle) => self.poll(Waiter::Idle(Box::pin(queue.wait_idle_async()))),
            Op::WaitDirty(n) if !self.held.is_empty() => {
                let item = self.held.swap_remove(usize::from(*n) % self.held.len());
                let key = item.key().number();
                let waits = async move {
                    item.until_dirty().await;
                    item
                };
                self.poll(Waiter::Dirty(key, Box::pin(waits)));
            }
            Op::Poll(n) | Op::DropWaiter(n) if !self.waiters.is_empty() => {
                let waiter = self.waiters.swap_remove(usize::from(*n) % self.waiters.len());
                match op {
                    Op::Poll(_) => self.poll(waiter),
                    _ => self.drop_waiter(waiter),
                }
            }
            Op::Advance(span) if self.number == 0 && *span != Span::Never => self.clock.advance(self.span(*span)),
            Op::Turn => {
                let turned = queue.turn();
                self.note(Call::Sum(Sum::Turn, parts([(0, turned)])));
            }
            Op::DrainTimeout if queue.shutting_down() => {
                let end = queue.shut_down_with_drain_timeout(Duration::ZERO);
                self.note(match end {
                    Ok(()) => Call::IsDrained,
                    Err(left) => Call::Sum(Sum::LeftDrain, parts([(0, left.queued), (1, left.processing)])),
                });
            }
            Op::IdleTimeout => {
                let end = queue.wait_idle_timeout(Duration::ZERO);
                self.note(match end {
                    Ok(()) => Call::IsIdle,
                    Err(left) => {
                        Call::Sum(Sum::Left, parts([(0, left.queued), (1, left.processing), (2, left.delayed)]))
                    }
                });
            }
            Op::ShrinkToFit => {
                queue.shrink_to_fit();
                self.note(Call::Nothing);
            }
            Op::Repeat(times, ops) => (0..*times / 4).for_each(|_| ops.iter().for_each(|op| self.step(op))),
            _ => {}
        }
    }

    fn publish(&mut self, key: u8) {
        self.published[usize::from(key)][self.number].store(self.adds, Ordering::Relaxed);
    }

    /// `None`: a plain add.
    fn add(&mut self, n: u8, how: Option<How>) {
        self.adds += 1;
        self.publish(n);
        let Some(how) = how else {
            let added = self.queue.add(Key::new(n));
            return self.note(Call::Add(n, None, added));
        };
        let delay = how.after.map(|span| self.span(span));
        let added = self.queue.add_with(Key::new(n), how.options(delay));
        self.note(Call::Add(n, Some((how, delay.map(nanos))), added));
    }

    /// Whether it got a key, which is held then.
    fn get(&mut self, form: Form) -> bool {
        let got = match form {
            Form::Try => self.queue.try_get().map(|item| item.into_owned()),
            Form::TryOwned => self.queue.try_get_owned(),
            _ => {
                let timeout = Duration::from_micros(if form == Form::Timeout { 0 } else { self.random.below(50) });
                let got = self.queue.get_timeout(timeout).map(|item| item.into_owned());
                got.map_err(|error| match error == keyqueue::GetTimeoutError::ShutDown {
                    true => TryGetError::ShutDown,
                    false => TryGetError::Empty,
                })
            }
        };
        let is_over = got.as_ref().is_err_and(|error| *error == TryGetError::ShutDown);
        let items = Vec::from_iter(got.ok());
        self.got(&items, false, is_over);
        self.held.extend(items);
        !matches!(self.records.last(), Some(Record { call: Call::Get { keys, .. }, .. }) if keys.is_empty())
    }

    fn got(&mut self, items: &[OwnedItem<Key>], is_many: bool, is_over: bool) {
        let seen = |key: u8| self.published[usize::from(key)].each_ref().map(|adds| adds.load(Ordering::Relaxed));
        let keys = items.iter().map(|item| item.key().number()).map(|key| (key, seen(key))).collect();
        self.note(Call::Get { keys, is_many, is_over });
    }

    fn end_item(&mut self, item: OwnedItem<Key>, end: &End) {
        let key = item.key().number();
        if self.random.once_in(4) {
            let priority = item.priority().0;
            self.note(Call::HeldPriority(key, priority));
        }
        let limited = How { rate_limited: true, ..How::new() };
        let requeued = |how, delay, answer| Call::Requeue { key, how, delay, forgets: false, answer };
        let call = match end {
            End::Done | End::Drop => {
                if *end == End::Done {
                    item.done()
                } else {
                    drop(item)
                }
                Call::Done(key)
            }
            // A cool-down is two critical sections, of which the plain queue makes one step. So here it is none.
            End::Succeed | End::CoolDown(_) => {
                item.succeed();
                Call::Succeed(key)
            }
            End::GiveUp => {
                item.give_up();
                Call::GiveUp(key)
            }
            End::Unwind => {
                let unwinds = || -> () {
                    let _item = item;
                    resume_unwind(Box::new(()))
                };
                assert!(catch_unwind(AssertUnwindSafe(unwinds)).is_err());
                match self.plan.on_panic {
                    Some(OnPanic::Retry) => requeued(limited, None, None),
                    _ => Call::Done(key),
                }
            }
            End::Retry => requeued(limited, None, Some(item.retry())),
            End::RequeueAfter(span) => {
                let delay = self.span(*span);
                let answer = Some(item.requeue_after(delay));
                Call::Requeue { key, how: How::new(), delay: Some(nanos(delay)), forgets: true, answer }
            }
            End::RequeueWith(how) => {
                let delay = how.after.map(|span| self.span(span));
                requeued(how.clone(), delay.map(nanos), Some(item.requeue_with(how.options(delay))))
            }
        };
        self.note(call);
    }

    fn poll(&mut self, waiter: Waiter<'q>) {
        let cx = &mut Context::from_waker(Waker::noop());
        match waiter {
            Waiter::Item(mut get) => match get.as_mut().poll(cx) {
                Poll::Pending => {
                    self.got(&[], false, false);
                    self.waiters.push(Waiter::Item(get));
                }
                Poll::Ready(item) => {
                    let items = Vec::from_iter(item);
                    self.got(&items, false, items.is_empty());
                    self.held.extend(items);
                }
            },
            Waiter::Dirty(key, mut waits) => match waits.as_mut().poll(cx) {
                Poll::Pending => {
                    self.note(Call::IsDirty(key, false));
                    self.waiters.push(Waiter::Dirty(key, waits));
                }
                Poll::Ready(item) => {
                    self.note(Call::IsDirty(key, true));
                    self.held.push(item);
                }
            },
            Waiter::Idle(mut waits) => {
                if waits.as_mut().poll(cx).is_ready() {
                    self.note(Call::IsIdle);
                } else {
                    self.note(Call::Nothing);
                    self.waiters.push(Waiter::Idle(waits));
                }
            }
        }
    }

    fn drop_waiter(&mut self, waiter: Waiter<'q>) {
        let call = if let Waiter::Dirty(key, _) = &waiter { Call::Done(*key) } else { Call::Nothing };
        drop(waiter);
        self.note(call);
    }

    // ---- looks ----

    fn look_around(&mut self) {
        let inspect = self.queue.inspect();
        match self.random.below(8) {
            0 => self.look(Sum::Processing),
            1 => self.look(Sum::Delayed),
            2 => self.look(Sum::Levels),
            3 if self.plan.groups.is_some() => self.look(Sum::Groups),
            4 => {
                let keys = inspect.processing_keys().iter().map(|listed| listed.key.number()).collect();
                self.note(Call::ProcessingKeys(keys));
            }
            5 => {
                let keys = triples(&inspect.delayed_keys());
                self.note(Call::DelayedKeys(keys));
            }
            _ => self.look(Sum::Stats),
        }
    }

    fn look(&mut self, sum: Sum) {
        let (queue, inspect) = (self.queue, self.queue.inspect());
        let seen = match &sum {
            Sum::Processing => parts([(0, queue.processing_len())]),
            Sum::Delayed => parts([(0, queue.delayed_len())]),
            Sum::Levels => parts(inspect.levels().iter().map(|level| (level.priority.0.into(), level.len))),
            Sum::Groups => {
                let groups = inspect.groups();
                let name = |key: &Key| 2 * i16::from(self.plan.group_of(key.number()));
                let counts = |name| {
                    move |group: &keyqueue::GroupStats<Key>| [(name, group.queued), (name + 1, group.processing)]
                };
                parts(groups.iter().flat_map(|group| counts(name(&group.key))(group)))
            }
            _ => stats_parts(&queue.stats()),
        };
        self.note(Call::Sum(sum, seen));
    }
}
