//! One run: a queue and the plain one, step by step, in one thread with a clock that only [`Op::Advance`] moves.
//!
//! After each step all that can be seen is compared: answers, counts, lists, ages, and who was woken. Futures and the loops of workers are
//! polled by hand. At the end everything heals: what is held is done, the clock passes each deadline, and the queue must be empty after as
//! many hand-outs as it had keys.

use super::events::{EVENTS, Event, Events};
use super::key::{Fault, KEYS, Key, alive, arm, disarm};
use super::op::{Blocking, End, Form, Goal, How, Op, Outcome, Span};
use super::plan::{Limiter, Plan};
use super::queue::{Delayed, NEVER, Reference};
use keyqueue::{
    AddOptions, Added, DelayedKey, DrainTimeoutError, GetTimeoutError, Item, Leftover, MockClock, OnPanic, OwnedItem,
    TryGetError, WorkQueue, Workers,
};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Runs the steps. Panics at the first difference.
pub(crate) fn run(plan: &Plan, ops: &[Op]) {
    let before = alive();
    {
        let events = Events::default();
        let (queue, clock, limits) = plan.build(&events);
        let reference = Reference::new(plan.clone(), plan.shards_of(&queue), limits);
        let mut workers = queue.workers();
        if let Some(retries) = plan.max_retries {
            workers = workers.max_retries(retries);
        }
        let [error, panic, give_up] = [events.clone(), events.clone(), events.clone()];
        let workers = workers
            .on_error(move |_, _| error.count(Event::HookError))
            .on_panic(move |_, _| panic.count(Event::HookPanic))
            .on_give_up(move |_, _| give_up.count(Event::HookGiveUp))
            .build();
        let mut run = Run {
            plan,
            events,
            queue: &queue,
            workers: &workers,
            clock,
            reference,
            held: Vec::new(),
            waiters: Vec::new(),
            loops: Vec::new(),
            refused: Vec::new(),
            tally: Tally::default(),
            hooks: [0; 3],
            starts: 0,
            stopped: false,
        };
        let mut fault = None;
        for (at, op) in ops.iter().enumerate() {
            if let Op::Fault(kind, nth) = op {
                fault = Some((*kind, *nth));
                continue;
            }
            match fault.take() {
                Some((kind, nth)) if may_panic(kind, op) => run.step_with_fault(op, kind, nth),
                _ => run.step(op),
            }
            run.check();
            // Lists are made in steps, with pauses between them, so they take long.
            if at % 8 == 7 || at + 1 == ops.len() {
                run.check_lists();
            }
        }
        run.heal();
    }
    assert_eq!(alive(), before, "each key is dropped once");
}

/// Whether a panic in this code ends the call, and changes nothing that the plain queue knows.
fn may_panic(fault: Fault, op: &Op) -> bool {
    match op {
        Op::Add(_) | Op::AddAfter(..) | Op::Cancel(_) | Op::Remove(_) => fault != Fault::Clone,
        Op::AddWith(_, how) => fault != Fault::Clone && !how.rate_limited,
        Op::TakeWhere(_) => fault == Fault::Clone,
        _ => false,
    }
}

/// A waker that remembers that it was called.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Flag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

enum Held<'q> {
    Borrowed(Item<'q, Key>),
    Owned(OwnedItem<Key>),
}

macro_rules! each {
    ($held:expr, $item:ident => $do:expr) => {
        match $held {
            Held::Borrowed($item) => $do,
            Held::Owned($item) => $do,
        }
    };
}

impl Held<'_> {
    fn key(&self) -> u8 {
        each!(self, item => {
            assert!(std::ptr::eq(item.key(), &**item));
            item.number()
        })
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// With the number of releases when it was polled first, and whether the workers were stopped then.
    Goal(Goal, u64, bool),
    /// The key, which the waiter holds, is dirty.
    Dirty(u8),
}

enum Answer<'q> {
    Nothing,
    Item(Option<Held<'q>>),
    Left(Leftover<Key>),
}

struct Waiter<'q> {
    until: Until,
    future: Pin<Box<dyn Future<Output = Answer<'q>> + 'q>>,
    flag: Arc<Flag>,
}

/// Where a loop of workers is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    /// It looks whether the workers are stopped, before it gets a key.
    Free,
    Waiting,
    Holding(u8),
}

struct Loop {
    at: At,
    /// The keys that it has got since its start or its last panic. After 128 it gives way to other tasks.
    keys: u32,
    future: Pin<Box<dyn Future<Output = ()>>>,
    flag: Arc<Flag>,
    script: Arc<Script>,
}

/// What a loop and its run tell each other.
#[derive(Default)]
struct Script {
    /// The keys for which the handler was called, and that the run has not seen yet.
    started: Mutex<Vec<(u8, i8)>>,
    outcome: Mutex<Option<(Outcome, keyqueue::Outcome)>>,
}

/// What `Workers::tally` says.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Tally {
    succeeded: u64,
    requeued: u64,
    failed: u64,
    retried: u64,
    given_up: u64,
    panicked: u64,
    refused: u64,
}

/// The handler: tells which key it got, and waits until the run says what it returns.
async fn handle(script: &Script, item: &Item<'_, Key>) -> keyqueue::Outcome {
    script.started.lock().unwrap().push((item.key().number(), item.priority().0));
    let (name, outcome) = poll_fn(|_| match script.outcome.lock().unwrap().take() {
        Some(outcome) => Poll::Ready(outcome),
        None => Poll::Pending,
    })
    .await;
    if name == Outcome::Panic {
        resume_unwind(Box::new("a handler"));
    }
    outcome
}

struct Run<'q> {
    plan: &'q Plan,
    events: Events,
    queue: &'q WorkQueue<Key>,
    workers: &'q Workers<Key>,
    clock: MockClock,
    reference: Reference,
    held: Vec<Held<'q>>,
    waiters: Vec<Waiter<'q>>,
    loops: Vec<Loop>,
    /// Keys whose retries were refused, and that no stop has returned.
    refused: Vec<u8>,
    tally: Tally,
    /// How often the hooks were to be called: `on_error`, `on_panic`, `on_give_up`.
    hooks: [u64; 3],
    /// The number of loops that were started.
    starts: u8,
    /// The workers were stopped.
    stopped: bool,
}

fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(NEVER)
}

fn duration(nanos: u64) -> Duration {
    if nanos == NEVER { Duration::MAX } else { Duration::from_nanos(nanos) }
}

fn index(n: u8, len: usize) -> Option<usize> {
    usize::from(n).checked_rem(len)
}

fn numbers(keys: &[Key]) -> Vec<u8> {
    keys.iter().map(Key::number).collect()
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

fn triples(delayed: &[DelayedKey<Key>]) -> Vec<Delayed> {
    delayed.iter().map(|delayed| (delayed.key.number(), nanos(delayed.left), delayed.priority.0)).collect()
}

impl<'q> Run<'q> {
    fn span(&self, span: Span) -> Duration {
        match span {
            Span::Nanos(nanos) => Duration::from_nanos(nanos),
            Span::Never => Duration::MAX,
            Span::ToDeadline(n, more) => {
                let deadlines = self.reference.deadlines();
                let to = index(n, deadlines.len()).map_or(1, |at| deadlines[at]);
                Duration::from_nanos(to.saturating_add_signed(more.into()))
            }
        }
    }

    /// The crate's options, and the delay as the plain queue has it.
    fn options(&self, how: &How) -> (AddOptions, Option<u64>) {
        let delay = how.after.map(|span| self.span(span));
        (how.options(delay), delay.map(nanos))
    }

    fn would_wait(&self) -> bool {
        self.reference.next_keys().is_empty() && !self.reference.is_over()
    }

    fn step_with_fault(&mut self, op: &Op, fault: Fault, nth: u8) {
        arm(fault, nth);
        let end = catch_unwind(AssertUnwindSafe(|| self.step(op)));
        let struck = !disarm();
        match end {
            Err(payload) if !struck || !payload.is::<Fault>() => resume_unwind(payload),
            Err(_) => {}
            Ok(()) => assert!(!struck, "the call has swallowed a panic"),
        }
    }

    fn step(&mut self, op: &Op) {
        let queue = self.queue;
        match op {
            Op::Add(n) => {
                let added = queue.add(Key::new(*n));
                assert_eq!(added, self.reference.add(*n, 0));
                assert_eq!(added.is_accepted(), !self.reference.shut_down);
            }
            Op::AddAll(ns) => {
                let added = queue.add_all(ns.iter().map(|n| Key::new(*n)));
                let expected = ns.iter().map(|n| self.reference.add(*n, 0));
                assert_eq!(added, expected.filter(|added| matches!(added, Added::Queued | Added::Deferred)).count());
            }
            Op::AddAfter(n, span) => {
                let delay = self.span(*span);
                let added = queue.add_after(Key::new(*n), delay);
                assert_eq!(added, self.reference.add_with(*n, &How::new(), Some(nanos(delay)), 0));
            }
            Op::AddWith(n, how) => {
                let (options, delay) = self.options(how);
                let added = queue.add_with(Key::new(*n), options);
                assert_eq!(added, self.reference.add_with(*n, how, delay, how.priority.unwrap_or(0)));
            }
            Op::AddRateLimited(n) => {
                let how = How { rate_limited: true, ..How::new() };
                let added = queue.add_rate_limited(Key::new(*n));
                assert_eq!(added, self.reference.add_with(*n, &how, None, 0));
            }
            Op::Crowd(count, how) => {
                self.reference.crowd(KEYS + count);
                let first = how.after.map(|span| nanos(self.span(span)));
                for n in 0..*count {
                    let after = first.map(|first| first.saturating_add((first / 16).saturating_mul(n.into())));
                    let after = after.map(|after| if after == NEVER { Span::Never } else { Span::Nanos(after) });
                    self.step(&Op::AddWith(KEYS + n, How { after, ..how.clone() }));
                }
            }
            Op::Cancel(n) => {
                let cancelled = queue.cancel(&Key::new(*n));
                assert_eq!(cancelled, self.reference.cancel(*n));
            }
            Op::Remove(n) => {
                let removed = queue.remove(&Key::new(*n));
                assert_eq!(removed, self.reference.remove(*n));
            }
            Op::Forget(n) => {
                queue.forget(&Key::new(*n));
                self.reference.limits.forget(n);
            }
            Op::TakeWhere(bits) => {
                let matches = |key: u8| bits & 1 << (key % 16) != 0;
                let taken = queue.take_where(|key| matches(key.number()));
                let processing = self.reference.processing().into_iter().filter(|key| matches(*key)).collect();
                let (queued, delayed) = self.reference.take_where(matches);
                assert_eq!((sorted(numbers(&taken.processing)), taken.refused.len()), (processing, 0));
                self.compare_lists(&taken, queued, delayed, true);
            }
            Op::TakeDelayed => {
                let taken = queue.take_delayed();
                let delayed = self.reference.delayed();
                delayed.iter().for_each(|(key, ..)| _ = self.reference.drop_delay(*key));
                let taken = triples(&taken);
                assert!(taken.is_sorted_by_key(|(_, left, _)| *left));
                assert_eq!(sorted(taken), sorted(delayed));
            }
            Op::Get(form) => self.get(*form),
            Op::GetMany(n) if *n > 0 && self.would_wait() => {}
            Op::GetMany(n) => {
                let items = queue.get_many(usize::from(*n));
                let count = items.len();
                for item in items {
                    self.handed_out(Held::Borrowed(item));
                }
                assert!(count == usize::from(*n) || self.reference.next_keys().is_empty(), "{count} of {n} keys");
            }
            Op::Repeat(times, ops) => {
                for _ in 0..*times {
                    for op in ops {
                        self.step(op);
                        self.check();
                    }
                }
            }
            Op::Work(n, hold) => {
                for _ in 0..*n {
                    let held = self.held.len();
                    self.get(Form::Try);
                    if self.held.len() == held {
                        break;
                    }
                    let held = self.held.pop().expect("it was just handed out");
                    if Some(self.plan.group_of(held.key())) == *hold {
                        self.held.push(held);
                    } else {
                        self.end(held, &End::Done);
                    }
                }
            }
            Op::End(n, end) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    self.end(held, end);
                }
            }
            Op::IntoOwned(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let owned = match self.held.swap_remove(at) {
                        Held::Borrowed(item) => item.into_owned(),
                        Held::Owned(item) => item,
                    };
                    self.held.push(Held::Owned(owned));
                }
            }
            Op::Wait(goal) => self.wait(*goal),
            Op::WaitDirty(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    let until = Until::Dirty(held.key());
                    let future = Box::pin(async move {
                        each!(&held, item => item.until_dirty().await);
                        Answer::Item(Some(held))
                    });
                    self.poll(Waiter { until, future, flag: Arc::default() });
                }
            }
            Op::Poll(n) => {
                if let Some(at) = index(*n, self.waiters.len()) {
                    let waiter = self.waiters.remove(at);
                    self.poll(waiter);
                }
            }
            Op::DropWaiter(n) => {
                if let Some(at) = index(*n, self.waiters.len()) {
                    self.drop_waiter(at);
                }
            }
            Op::StartLoop => {
                let script: Arc<Script> = Arc::default();
                let own = Arc::clone(&script);
                self.starts = self.starts.wrapping_add(1);
                let future: Pin<Box<dyn Future<Output = ()>>> = match self.starts % 2 {
                    0 => Box::pin(self.workers.run_async(async move |item: &Item<'_, Key>| handle(&own, item).await)),
                    _ => Box::pin(self.workers.run_boxed(move |item| {
                        let own = Arc::clone(&own);
                        Box::pin(async move { handle(&own, item).await })
                    })),
                };
                self.loops.push(Loop { at: At::Free, keys: 0, future, flag: Arc::default(), script });
                self.poll_loop(self.loops.len() - 1);
            }
            Op::Finish(n, outcome) => {
                let holding: Vec<&Loop> = self.loops.iter().filter(|own| matches!(own.at, At::Holding(_))).collect();
                if let Some(at) = index(*n, holding.len()) {
                    let outcome = self.now_as_seen(outcome);
                    *holding[at].script.outcome.lock().unwrap() = Some((outcome.clone(), self.outcome(&outcome)));
                }
            }
            Op::PollLoop(n) => {
                if let Some(at) = index(*n, self.loops.len()) {
                    self.poll_loop(at);
                }
            }
            Op::DropLoop(n) => {
                if let Some(at) = index(*n, self.loops.len()) {
                    let own = self.loops.swap_remove(at);
                    drop(own.future);
                    if let At::Holding(key) = own.at {
                        self.reference.done(key);
                    }
                }
            }
            Op::Stop => {
                let left = self.workers.stop();
                self.stop(&left);
            }
            Op::DrainWorkers => {
                let left = self.workers.drain_timeout(Duration::ZERO);
                self.reference.shut_down = true;
                self.stop(&left);
            }
            Op::Advance(span) => {
                let by = self.span(*span);
                self.clock.advance(by);
                self.reference.advance(nanos(by));
            }
            Op::Turn => {
                let turned = queue.turn();
                assert_eq!(turned, self.reference.turn());
            }
            Op::ShutDown => {
                queue.shut_down();
                self.shut_down();
            }
            Op::DrainTimeout => {
                let end = queue.shut_down_with_drain_timeout(Duration::ZERO);
                self.reference.shut_down = true;
                let expected = match self.reference.is_drained() {
                    true => None,
                    false => Some((self.reference.queued(), self.reference.processing().len())),
                };
                assert_eq!(
                    end.err().map(|DrainTimeoutError { queued, processing, .. }| (queued, processing)),
                    expected
                );
            }
            Op::IdleTimeout => {
                let end = queue.wait_idle_timeout(Duration::ZERO);
                assert_eq!(end.is_ok(), self.reference.is_idle());
            }
            Op::Block(call) => self.block(*call),
            Op::ShrinkToFit => queue.shrink_to_fit(),
            Op::Fault(..) => {}
        }
    }

    fn block(&mut self, call: Blocking) {
        match call {
            Blocking::WaitIdle if self.reference.is_idle() => self.queue.wait_idle(),
            Blocking::Drain if self.reference.is_drained() => {
                self.queue.shut_down_with_drain();
                self.reference.shut_down = true;
            }
            Blocking::Join if self.loops.is_empty() => self.workers.join(),
            Blocking::DrainWorkers if self.loops.is_empty() && (self.stopped || self.reference.is_drained()) => {
                let left = self.workers.drain();
                self.stop(&left);
            }
            _ => {}
        }
    }

    fn shut_down(&mut self) {
        self.reference.shut_down = true;
        self.reference.releases += 1;
    }

    // ---- hand-outs ----

    fn get(&mut self, form: Form) {
        let queue = self.queue;
        let none_ready = self.reference.next_keys().is_empty();
        let is_over = self.reference.is_over();
        let got = match form {
            Form::Try => queue.try_get().map(Held::Borrowed).map_err(|error| error == TryGetError::ShutDown),
            Form::TryOwned => queue.try_get_owned().map(Held::Owned).map_err(|error| error == TryGetError::ShutDown),
            Form::Timeout => {
                let got = queue.get_timeout(Duration::ZERO);
                got.map(Held::Borrowed).map_err(|error| error == GetTimeoutError::ShutDown)
            }
            Form::Get | Form::Owned if self.would_wait() => return,
            Form::Get => queue.get().map(Held::Borrowed).ok_or(true),
            Form::Owned => queue.get_owned().map(Held::Owned).ok_or(true),
        };
        match got {
            Ok(held) => self.handed_out(held),
            Err(shut_down) => assert_eq!((none_ready, shut_down), (true, is_over), "no key, and shut down"),
        }
    }

    fn handed_out(&mut self, held: Held<'q>) {
        let key = held.key();
        let priority = each!(&held, item => item.priority().0);
        assert!(self.reference.next_keys().contains(&key), "key {key} is not next: {:?}", self.reference.next_keys());
        assert_eq!(priority, self.reference.hand_out(key), "the priority of key {key}");
        self.held.push(held);
    }

    fn end(&mut self, held: Held<'q>, end: &End) {
        let key = held.key();
        let limited = How { rate_limited: true, ..How::new() };
        match end {
            End::Done | End::Drop | End::Succeed | End::GiveUp => {
                each!(held, item => match end {
                    End::Done => item.done(),
                    End::Succeed => item.succeed(),
                    End::GiveUp => item.give_up(),
                    _ => drop(item),
                });
                match end {
                    End::Succeed => self.reference.succeed(key),
                    End::GiveUp => self.reference.give_up(key),
                    _ => self.reference.done(key),
                }
            }
            End::Unwind => {
                let unwinds = || -> () {
                    let _held = held;
                    resume_unwind(Box::new(()))
                };
                assert!(catch_unwind(AssertUnwindSafe(unwinds)).is_err());
                self.reference.counts.panics += 1;
                match self.plan.on_panic {
                    Some(OnPanic::Retry) => _ = self.reference.requeue(key, &limited, None),
                    _ => self.reference.done(key),
                }
            }
            End::Retry => {
                let added = each!(held, item => item.retry());
                assert_eq!(added, self.reference.requeue(key, &limited, None));
            }
            End::RequeueAfter(span) => {
                let delay = self.span(*span);
                let added = each!(held, item => item.requeue_after(delay));
                self.reference.limits.forget(&key);
                assert_eq!(added, self.reference.requeue(key, &How::new(), Some(nanos(delay))));
            }
            End::RequeueWith(how) => {
                let (options, delay) = self.options(how);
                let added = each!(held, item => item.requeue_with(options));
                assert_eq!(added, self.reference.requeue(key, how, delay));
            }
        }
    }

    // ---- waiters ----

    fn wait(&mut self, goal: Goal) {
        let (queue, workers) = (self.queue, self.workers);
        let future: Pin<Box<dyn Future<Output = Answer<'q>> + 'q>> = match goal {
            Goal::Item => Box::pin(async { Answer::Item(queue.get_async().await.map(Held::Borrowed)) }),
            Goal::OwnedItem => Box::pin(async { Answer::Item(queue.get_owned_async().await.map(Held::Owned)) }),
            Goal::Idle => Box::pin(async {
                queue.wait_idle_async().await;
                Answer::Nothing
            }),
            Goal::Drained => Box::pin(async {
                queue.shut_down_with_drain_async().await;
                Answer::Nothing
            }),
            Goal::ShuttingDown => Box::pin(async {
                queue.until_shutting_down().await;
                Answer::Nothing
            }),
            Goal::WorkersDrained => Box::pin(async { Answer::Left(workers.drain_async().await) }),
            Goal::Joined => Box::pin(async {
                workers.join_async().await;
                Answer::Nothing
            }),
        };
        if goal == Goal::Drained || goal == Goal::WorkersDrained && !self.stopped {
            self.reference.shut_down = true;
        }
        let until = Until::Goal(goal, self.reference.releases, self.stopped);
        self.poll(Waiter { until, future, flag: Arc::default() });
    }

    /// Whether the waiter's next poll is ready.
    fn is_due(&self, until: Until) -> bool {
        match until {
            Until::Dirty(key) => self.reference.is_dirty(key),
            Until::Goal(goal, released, stopped) => {
                let drained = self.reference.is_drained() || self.reference.releases > released;
                match goal {
                    Goal::Item | Goal::OwnedItem => !self.would_wait(),
                    Goal::Idle => self.reference.is_idle(),
                    Goal::Drained => drained,
                    Goal::ShuttingDown => self.reference.shut_down,
                    Goal::Joined => self.loops.is_empty(),
                    Goal::WorkersDrained => (drained || stopped) && self.loops.is_empty(),
                }
            }
        }
    }

    fn poll(&mut self, mut waiter: Waiter<'q>) {
        let is_due = self.is_due(waiter.until);
        waiter.flag = Arc::default();
        let waker = Waker::from(Arc::clone(&waiter.flag));
        match waiter.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                assert!(!is_due, "a future waits although it could resolve");
                self.waiters.push(waiter);
            }
            Poll::Ready(answer) => {
                assert!(is_due, "a future resolved without a reason");
                match answer {
                    Answer::Nothing => {}
                    Answer::Item(Some(held)) if matches!(waiter.until, Until::Dirty(_)) => self.held.push(held),
                    Answer::Item(Some(held)) => self.handed_out(held),
                    Answer::Item(None) => assert!(self.reference.is_over()),
                    Answer::Left(left) => self.stop(&left),
                }
            }
        }
    }

    fn drop_waiter(&mut self, at: usize) {
        let waiter = self.waiters.remove(at);
        drop(waiter.future);
        if let Until::Dirty(key) = waiter.until {
            self.reference.done(key); // it held the key
        }
    }

    // ---- workers ----

    fn outcome(&self, outcome: &Outcome) -> keyqueue::Outcome {
        match outcome {
            Outcome::Success | Outcome::Panic => keyqueue::Outcome::Success,
            Outcome::RequeueAfter(span) => keyqueue::Outcome::RequeueAfter(self.span(*span)),
            Outcome::RequeueWith(how) => keyqueue::Outcome::RequeueWith(self.options(how).0),
            Outcome::Retry => keyqueue::Outcome::Retry,
            Outcome::Failed => keyqueue::Outcome::failed("failed"),
            Outcome::RetryAfter(span) => {
                keyqueue::Outcome::RetryAfter { delay: self.span(*span), error: "failed".into() }
            }
            Outcome::GiveUp => keyqueue::Outcome::GiveUp("given up".into()),
        }
    }

    /// With times that no longer depend on the queue: the outcome is applied later.
    fn now_as_seen(&self, outcome: &Outcome) -> Outcome {
        let fixed = |span: Span| match self.span(span) {
            Duration::MAX => Span::Never,
            span => Span::Nanos(nanos(span)),
        };
        match outcome.clone() {
            Outcome::RequeueAfter(span) => Outcome::RequeueAfter(fixed(span)),
            Outcome::RetryAfter(span) => Outcome::RetryAfter(fixed(span)),
            Outcome::RequeueWith(how) => Outcome::RequeueWith(How { after: how.after.map(fixed), ..how }),
            outcome => outcome,
        }
    }

    fn poll_loop(&mut self, at: usize) {
        let own = &mut self.loops[at];
        own.flag = Arc::default();
        let outcome = own.script.outcome.lock().unwrap().as_ref().map(|(name, _)| name.clone());
        let waker = Waker::from(Arc::clone(&own.flag));
        let ended = own.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let started = std::mem::take(&mut *own.script.started.lock().unwrap());
        let (mut place, mut keys) = (own.at, own.keys);
        let is_woken = own.flag.is_set();
        let mut gives_way = false;
        if let (At::Holding(key), Some(outcome)) = (place, outcome) {
            self.apply(key, &outcome);
            place = At::Free;
            gives_way = outcome == Outcome::Panic || keys == 128 && !self.stopped;
            keys = if gives_way { 0 } else { keys };
        }
        assert!(!gives_way || is_woken, "a loop gives way, and is not woken");
        let mut has_ended = false;
        if !matches!(place, At::Holding(_)) && !gives_way {
            if place == At::Free && self.stopped || started.is_empty() && self.reference.is_over() {
                has_ended = true;
            } else if let Some((key, priority)) = started.first() {
                assert!(self.reference.next_keys().contains(key), "key {key} is not next");
                assert_eq!(*priority, self.reference.hand_out(*key));
                place = At::Holding(*key);
                keys += 1;
            } else {
                assert!(self.would_wait(), "a loop waits although a key is ready");
                place = At::Waiting;
            }
        }
        let taken = usize::from(matches!(place, At::Holding(_)) && !started.is_empty());
        assert_eq!((ended, started.len()), (has_ended, taken), "a loop at {place:?} has started {started:?}");
        (self.loops[at].at, self.loops[at].keys) = (place, keys);
        if ended {
            self.loops.swap_remove(at);
        }
    }

    /// What a loop does after its handler.
    fn apply(&mut self, key: u8, outcome: &Outcome) {
        let limited = How { rate_limited: true, ..How::new() };
        match outcome {
            Outcome::Success => {
                self.tally.succeeded += 1;
                self.reference.succeed(key);
            }
            Outcome::RequeueAfter(span) => {
                self.tally.succeeded += 1;
                self.reference.limits.forget(&key);
                let delay = nanos(self.span(*span));
                self.requeue(key, &How::new(), Some(delay), false);
            }
            Outcome::RequeueWith(how) => {
                self.tally.succeeded += 1;
                let delay = self.options(how).1;
                self.requeue(key, how, delay, false);
            }
            Outcome::GiveUp => {
                self.tally.failed += 1;
                self.give_up(key);
            }
            Outcome::Panic => {
                self.hooks[1] += 1;
                self.tally.failed += 1;
                self.tally.panicked += 1;
                self.reference.counts.panics += 1;
                match self.plan.on_panic {
                    Some(OnPanic::Done) => self.reference.done(key),
                    _ => self.retry(key, &limited, 0),
                }
            }
            Outcome::Retry | Outcome::Failed => {
                self.tally.failed += 1;
                self.hooks[0] += u64::from(*outcome == Outcome::Failed);
                self.retry(key, &limited, 0);
            }
            Outcome::RetryAfter(span) => {
                self.tally.failed += 1;
                self.hooks[0] += 1;
                let delay = nanos(self.span(*span));
                self.retry(key, &limited, delay);
            }
        }
    }

    fn retry(&mut self, key: u8, limited: &How, delay: u64) {
        if self.plan.max_retries.is_some_and(|max| self.reference.limits.num_requeues(&key) >= max) {
            return self.give_up(key);
        }
        self.requeue(key, limited, Some(delay), true);
    }

    fn give_up(&mut self, key: u8) {
        self.hooks[2] += 1;
        self.tally.given_up += 1;
        self.reference.give_up(key);
    }

    fn requeue(&mut self, key: u8, how: &How, delay: Option<u64>, is_retry: bool) {
        let was_dirty = self.reference.is_dirty(key);
        if self.reference.requeue(key, how, delay) == Added::Rejected {
            self.tally.refused += 1;
            if !was_dirty {
                self.refused.push(key);
            }
        } else if is_retry {
            self.tally.retried += 1;
        } else {
            self.tally.requeued += 1;
        }
    }

    /// Compares what a stop has returned.
    fn stop(&mut self, left: &Leftover<Key>) {
        self.shut_down();
        self.stopped = true;
        let (queued, delayed) = self.reference.take_where(|_| true);
        let refused = std::mem::take(&mut self.refused);
        assert_eq!(sorted(numbers(&left.refused)), sorted(refused), "refused");
        assert_eq!(sorted(numbers(&left.processing)), self.reference.processing(), "processing");
        self.compare_lists(left, queued, delayed, false);
    }

    /// `by_age`: the queued keys are listed by level and then by age, even if there are groups.
    fn compare_lists(&self, left: &Leftover<Key>, queued: Vec<u8>, delayed: Vec<Delayed>, by_age: bool) {
        let listed = numbers(&left.queued);
        if self.plan.shards == 1 && (by_age || self.plan.groups.is_none()) {
            assert_eq!(listed, queued, "queued");
        } else {
            assert_eq!(sorted(listed), sorted(queued), "queued");
        }
        let listed = triples(&left.delayed);
        assert!(listed.is_sorted_by_key(|(_, left, _)| *left), "delayed, earliest first");
        assert_eq!(sorted(listed), sorted(delayed), "delayed");
    }

    // ---- after each step ----

    fn check(&self) {
        let (queue, reference, stats) = (self.queue, &self.reference, self.queue.stats());
        let (len, processing, delayed) = (reference.queued(), reference.processing(), reference.delayed());
        assert_eq!((queue.len(), queue.is_empty(), stats.len), (len, len == 0, len));
        assert_eq!((queue.processing_len(), stats.processing), (processing.len(), processing.len()));
        assert_eq!((queue.delayed_len(), stats.delayed), (delayed.len(), delayed.len()));
        assert_eq!((queue.shutting_down(), stats.shutting_down), (reference.shut_down, reference.shut_down));
        let counts = super::queue::Counts {
            pushed: stats.pushed,
            coalesced: stats.coalesced,
            deferred: stats.deferred,
            rejected: stats.rejected,
            handed_out: stats.handed_out,
            taken: stats.taken,
            delays: stats.delays,
            expired: stats.expired,
            retries: stats.retries,
            failures: stats.failures,
            given_up: stats.given_up,
            panics: stats.panics,
        };
        assert_eq!(counts, reference.counts);
        let coming_back = processing.iter().filter(|key| reference.is_dirty(**key)).count();
        assert_eq!(stats.adds(), stats.handed_out + stats.taken + (len + coming_back) as u64, "adds lead to hand-outs");
        assert_eq!(stats.depth(), (len + coming_back) as u64);

        let failing = reference.all().filter(|key| reference.limits.num_requeues(key) > 0).count();
        if self.plan.limiter != Limiter::Composed {
            assert_eq!(stats.failing, failing, "failing");
        }
        for key in reference.all() {
            assert_eq!(queue.num_requeues(&Key::new(key)), reference.limits.num_requeues(&key), "of key {key}");
        }
        self.check_held();
        self.check_waiters();
        self.check_workers();
    }

    fn check_lists(&self) {
        let (inspect, reference, stats) = (self.queue.inspect(), &self.reference, self.queue.stats());
        let levels: Vec<_> = inspect.levels().iter().map(|level| (level.priority.0, level.len)).collect();
        assert_eq!(levels, reference.levels(), "levels");
        if self.plan.groups.is_some() {
            let groups = inspect.groups();
            let groups =
                groups.iter().map(|group| (self.plan.group_of(group.key.number()), group.queued, group.processing));
            assert_eq!(sorted(groups.collect()), reference.groups(), "groups");
        }
        let listed = triples(&inspect.delayed_keys());
        assert!(listed.is_sorted_by_key(|(_, left, _)| *left), "delayed keys, earliest first");
        let delayed = reference.delayed();
        match (stats.next_deadline.map(nanos), delayed.first().map(|(_, left, _)| *left)) {
            (Some(next), Some(first)) if reference.rearranged => assert!(next <= first, "{next} {first}"),
            (next, first) => assert_eq!(next, first, "the next deadline"),
        }
        assert_eq!(sorted(listed), sorted(delayed), "delayed keys");
        let metrics = inspect.metrics();
        assert_eq!(metrics.stats, stats, "of the metrics");
        if reference.now < NEVER && self.plan.measure {
            let done = stats.handed_out - stats.processing as u64;
            let histograms = [metrics.queue_duration, metrics.work_duration];
            for ((histogram, count), sum) in histograms.iter().zip([stats.handed_out, done]).zip(reference.sums) {
                assert_eq!((histogram.count(), nanos(histogram.sum())), (count, sum.try_into().unwrap_or(NEVER)));
                assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), count);
            }
        }
        let runs = metrics.runs;
        let ended = self.tally.succeeded + self.tally.failed;
        assert_eq!(runs.success + runs.requeue + runs.error + runs.give_up + runs.panic, ended, "runs");
        let listed = inspect.processing_keys();
        assert!(listed.is_sorted_by(|one, next| one.elapsed >= next.elapsed), "longest first");
        let listed: Vec<_> = listed.iter().map(|listed| (listed.key.number(), listed.elapsed)).collect();
        let elapsed = |key: u8| self.plan.measure.then(|| Duration::from_nanos(reference.times(key).1));
        let expected: Vec<_> = reference.processing().into_iter().map(|key| (key, elapsed(key))).collect();
        if reference.now < NEVER {
            assert_eq!(sorted(listed), expected, "processing keys");
            let longest = expected.iter().filter_map(|(_, elapsed)| *elapsed).max();
            assert_eq!(stats.longest_running, longest, "longest running");
            let elapsed = expected.iter().filter_map(|(_, elapsed)| *elapsed);
            let unfinished = elapsed.fold(0_u64, |sum, elapsed| sum.saturating_add(nanos(elapsed)));
            let unfinished = self.plan.measure.then_some(unfinished);
            assert_eq!(stats.unfinished_work.map(nanos), unfinished, "unfinished work");
            let oldest = if self.plan.measure { reference.oldest_queued() } else { None };
            assert_eq!(stats.oldest_queued.map(nanos), oldest, "oldest queued");
        }
    }

    fn check_held(&self) {
        for held in &self.held {
            let key = held.key();
            each!(held, item => {
                assert_eq!(item.is_dirty(), self.reference.is_dirty(key), "is_dirty of {key}");
                assert_eq!(item.num_requeues(), self.reference.limits.num_requeues(&key));
                assert_eq!(item.priority().0, self.reference.held_priority(key));
                assert_eq!(item.shutting_down(), self.reference.shut_down);
                if self.reference.now < NEVER && self.plan.measure {
                    assert_eq!(item.waited(), Some(Duration::from_nanos(self.reference.times(key).0)), "waited");
                }
            });
        }
        let elsewhere = self.waiters.iter().filter(|waiter| matches!(waiter.until, Until::Dirty(_))).count()
            + self.loops.iter().filter(|own| matches!(own.at, At::Holding(_))).count();
        assert_eq!(self.held.len() + elsewhere, self.reference.processing().len());
    }

    /// While a key is ready and getters wait, one of them was woken; and so was each waiter whose time has come.
    fn check_waiters(&self) {
        let stats = self.queue.stats();
        let is_getter = |until: Until| matches!(until, Until::Goal(Goal::Item | Goal::OwnedItem, ..));
        let waiters = self.waiters.iter().filter(|waiter| is_getter(waiter.until)).map(|waiter| &waiter.flag);
        let loops = self.loops.iter().filter(|own| own.at == At::Waiting).map(|own| &own.flag);
        let (woken, asleep): (Vec<_>, Vec<_>) = waiters.chain(loops).partition(|flag| flag.is_set());
        assert_eq!(stats.waiters, asleep.len(), "the list has the getters that were not woken");
        let is_ready = !self.reference.next_keys().is_empty();
        assert!(!is_ready || asleep.is_empty() || !woken.is_empty(), "a key is ready, and no getter was woken");
        assert!(!self.reference.is_over() || asleep.is_empty(), "shut down, and a getter was not woken");
        for waiter in self.waiters.iter().filter(|waiter| !is_getter(waiter.until)) {
            let is_due = self.is_due(waiter.until);
            let goal = if let Until::Goal(goal, ..) = waiter.until { Some(goal) } else { None };
            assert!(!is_due || waiter.flag.is_set(), "a waiter was not woken: {goal:?}");
        }
    }

    fn check_workers(&self) {
        let tally = self.workers.tally();
        let listed = Tally {
            succeeded: tally.succeeded,
            requeued: tally.requeued,
            failed: tally.failed,
            retried: tally.retried,
            given_up: tally.given_up,
            panicked: tally.panicked,
            refused: tally.refused,
        };
        assert_eq!((tally.running, listed), (self.loops.len(), self.tally), "the tally");

        let counts = self.reference.counts;
        let done = counts.handed_out - self.reference.processing().len() as u64;
        let mut expected: [u64; EVENTS] = [
            counts.pushed,
            counts.coalesced,
            counts.deferred,
            counts.rejected,
            counts.delays,
            counts.handed_out,
            done,
            counts.given_up,
            counts.panics,
            0,
            0,
            0,
        ];
        if !self.plan.observed {
            expected = [0; EVENTS];
        }
        expected[Event::HookError as usize..].copy_from_slice(&self.hooks);
        assert_eq!(self.events.all(), expected, "the events of the observer and the hooks");
    }

    // ---- the end ----

    /// Ends all that is held, drops all that waits, and moves the clock past each deadline: the queue must be empty after that.
    fn heal(&mut self) {
        while !self.waiters.is_empty() {
            self.drop_waiter(0);
            self.check();
        }
        while !self.loops.is_empty() {
            self.step(&Op::DropLoop(0));
            self.check();
        }
        let mut turns = 2 + self.held.len() + self.reference.queued() + self.reference.delayed().len();
        turns *= 2; // a key may be queued, held and delayed
        loop {
            while let Some(held) = self.held.pop() {
                self.end(held, &End::Done);
            }
            self.step(&Op::Turn);
            self.step(&Op::Get(Form::Try));
            self.check();
            if self.held.is_empty() {
                if self.reference.shut_down || self.reference.deadlines().is_empty() {
                    break;
                }
                self.step(&Op::Advance(Span::ToDeadline(0, 0)));
            }
            assert!(turns > 0, "the queue is not empty in time");
            turns -= 1;
        }
        self.step(&Op::TakeDelayed);
        self.step(&Op::DrainTimeout);
        self.check();
        self.check_lists();
        assert!(self.reference.is_drained());
        self.step(&Op::Stop);
    }
}
