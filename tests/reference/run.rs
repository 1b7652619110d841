//! One run: a queue and the plain one, step by step, in one thread with a clock that only [`Op::Advance`] moves.
//!
//! After each step all that can be seen is compared: answers, counts, lists, ages, and who was woken. Futures and the loops of workers are
//! polled by hand. At the end everything heals: what is held is done, the clock passes each deadline, and the queue must be empty after as
//! many hand-outs as it had keys.

use super::events::{Event, Events};
use super::key::{Fault, Key, alive, arm, disarm};
use super::op::{Blocking, End, Form, How, Op, Span};
use super::plan::Plan;
use super::queue::{Delayed, NEVER, Reference};
use hand_outs::{Held, each};
use keyqueue::{AddOptions, Added, DelayedKey, DrainTimeoutError, Item, MockClock, Priority, WorkQueue, Workers};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use waiters::{Answer, Until, Waiter};
use workers::{At, Loop, Script, Tally, handle};

mod check;
mod hand_outs;
mod waiters;
mod workers;

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
        let mut options = AddOptions::new().conflict(how.conflict);
        let delay = how.after.map(|span| self.span(span));
        if let Some(delay) = delay {
            options = options.after(delay);
        }
        if how.rate_limited {
            options = options.rate_limited();
        }
        if let Some(priority) = how.priority {
            options = options.priority(Priority(priority));
        }
        (options, delay.map(nanos))
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
            Op::Add(n) => assert_eq!(queue.add(Key::new(*n)), self.reference.add(*n, 0)),
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
                let matches = |key: u8| bits & 1 << key != 0;
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
