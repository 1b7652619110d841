//! One run: a queue and the plain one, step by step, in one thread with a clock that only [`Op::Advance`] moves.
//!
//! After each step all that can be seen is compared: answers, counts, lists, ages, and who was woken. Futures and the loops of workers are
//! polled by hand. At the end everything heals: what is held is done, the clock passes each deadline, and the queue must be empty after as
//! many hand-outs as it had keys.

use super::crossings;
use super::events::{EVENTS, Event, Events};
use super::key::{Fault, KEYS, Key, Name, Strike, alive, uses};
use super::op::{Blocking, End, Form, Goal, How, Op, Span};
use super::plan::{ByGetter, Plan};
use super::queue::{Delayed, NEVER, Reference};
use adds::Adder;
use hand_outs::{Held, each};
use keyqueue::observe::Runs;
use keyqueue::values::ValueQueue;
use keyqueue::{AddOptions, DelayedKey, DrainTimeoutError, Item, MockClock, WorkQueue, Workers};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use values::{Layer, Values};
use waiters::{Answer, Until, Waiter};
use workers::{At, Loop, Script, Tally, handle};

mod adds;
mod check;
mod faults;
mod hand_outs;
mod takes;
mod values;
mod waiters;
mod workers;

/// Runs the steps. Panics at the first difference.
pub(crate) fn run(plan: &Plan, ops: &[Op]) {
    let plan = &plan.with_engine();
    let ops = match plan.lock_free {
        true => &ops.iter().map(Op::without_priorities).collect::<Vec<_>>(),
        false => ops,
    };
    let before = alive();
    {
        let events = Events::default();
        let (queue, clock, limits) = plan.build(&events);
        let reference = Reference::new(plan.clone(), plan.shards_of(&queue), limits);
        let mut workers = queue.workers();
        if let Some(retries) = plan.max_retries {
            workers = workers.max_retries(retries);
        }
        if let Some(delay) = plan.then_after {
            workers = workers.then_after(Duration::from_nanos(delay));
        }
        workers = workers.min_interval(Duration::from_nanos(plan.min_interval));
        if let Some(limit) = plan.time_limit {
            workers = workers.time_limit(Duration::from_nanos(limit));
        }
        let [error, panic, give_up] = [events.clone(), events.clone(), events.clone()];
        let workers = workers
            .on_error(move |_, _| error.hook(Event::HookError))
            .on_panic(move |_, _| panic.hook(Event::HookPanic))
            .on_give_up(move |_, _| give_up.hook(Event::HookGiveUp))
            .build();
        let layer = plan.values.then(|| values::layer(&queue));
        let _uses = {
            let (queue, workers, layer) = (queue.clone(), workers.clone(), layer.clone());
            uses(move || _ = (queue.stats(), workers.tally(), layer.as_ref().map(Layer::len)))
        };
        let mut run = Run {
            plan,
            before,
            events,
            queue: &queue,
            workers: &workers,
            layer: layer.as_ref(),
            clock,
            reference,
            values: Values::default(),
            held: Vec::new(),
            waiters: Vec::new(),
            adders: Vec::new(),
            loops: Vec::new(),
            refused: Vec::new(),
            tally: Tally::default(),
            runs: Runs::default(),
            hooks: [0; 3],
            starts: 0,
            stopped: false,
            fault: None,
            struck: None,
            eq_was_caught: false,
            refused_is_lost: false,
            retries_are_unknown: false,
            untold: [0; EVENTS],
            events_are_missing: false,
            may_expire: false,
            turns: 0,
            by_getters: VecDeque::new(),
            tokens_have_come: false,
        };
        for (at, op) in ops.iter().enumerate() {
            run.step(op);
            run.check();
            // Lists are made in steps, with pauses between them, so they take long.
            if at % 8 == 7 || at + 1 == ops.len() {
                run.check_lists();
            }
        }
        run.heal();
        crossings::paid_alike(run.reference.alike);
    }
    assert_eq!(alive(), before, "each key is dropped once");
}

struct Run<'q> {
    plan: &'q Plan,
    /// The keys that were alive before.
    before: i64,
    events: Events,
    queue: &'q WorkQueue<Key>,
    workers: &'q Workers<Key>,
    /// The values of the keys, if the plan has them, and the plain ones.
    layer: Option<&'q Layer>,
    clock: MockClock,
    reference: Reference,
    values: Values,
    held: Vec<Held<'q>>,
    waiters: Vec<Waiter<'q>>,
    /// Adds that wait for room.
    adders: Vec<Adder<'q>>,
    loops: Vec<Loop>,
    /// Keys whose retries were refused, and that no stop has returned.
    refused: Vec<u8>,
    tally: Tally,
    runs: Runs,
    /// How often the hooks were to be called: `on_error`, `on_panic`, `on_give_up`.
    hooks: [u64; 3],
    /// The number of loops that were started.
    starts: u8,
    /// The workers were stopped.
    stopped: bool,
    /// Panics in each call of the queue, until it has.
    fault: Option<(Fault, u8)>,
    /// The panic of the last call, until a rule has dealt with it.
    struck: Option<Strike>,
    /// A call that takes keys has caught a panic of `Eq`.
    eq_was_caught: bool,
    /// The key of a refused retry cannot be cloned.
    refused_is_lost: bool,
    /// The limiter does not say how often a key was retried.
    retries_are_unknown: bool,
    /// Events that were not told, because code of the user has panicked before.
    untold: [u64; EVENTS],
    /// They are to be counted.
    events_are_missing: bool,
    /// The step can expire delays, and has not contained the drop of a key that has cooled down.
    may_expire: bool,
    /// The number of turns so far.
    turns: u32,
    /// What getters have expired, and the plain queue has not yet.
    by_getters: VecDeque<ByGetter>,
    /// The clock was moved, and no `turn` has woken getters for the tokens that have come.
    tokens_have_come: bool,
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

    /// Whether tokens come at a rate: near the end of the clock none do, so the clock must not come there.
    fn has_rates(&self) -> bool {
        self.plan.pace.is_some() || self.plan.rate.is_some()
    }

    /// The crate's options, and the delay as the plain queue has it.
    fn options(&self, how: &How) -> (AddOptions, Option<u64>) {
        let delay = how.after.map(|span| self.span(span));
        (how.options(delay), delay.map(nanos))
    }

    fn would_wait(&self) -> bool {
        self.reference.next_keys().is_empty() && !self.reference.is_over()
    }

    /// Makes a step on both sides.
    fn step(&mut self, op: &Op) {
        if let Op::Fault(kind, nth) = op {
            self.fault = Some((*kind, *nth));
            return;
        }
        self.reference.steps += 1;
        if crossings::is_filled() {
            let step = crossings::step(op);
            crossings::begins(&step);
            if let Some(keys) = self.keys_of(op) {
                crossings::meets(&step, &keys, self.plan, &self.reference);
            }
        }
        let aside = self.fault.take_if(|(fault, _)| !Self::may_panic(self.plan, *fault, op));
        let (cooled, is_turn) = (self.reference.cooled, matches!(op, Op::Turn));
        self.may_expire = is_turn || self.plan.inside.is_some();
        self.make(op);
        assert!(!is_turn || self.may_expire || self.reference.cooled > cooled, "the drop was of another key");
        self.fault = self.fault.or(aside);
        assert_eq!(self.struck, None, "no rule says what this panic leaves behind");
    }

    /// The keys that a step names; none if it names none. `None`: it is skipped.
    fn keys_of(&self, op: &Op) -> Option<Vec<u8>> {
        let key_of_loop = |at: usize| match self.loops[at].at {
            At::Holding(key) => vec![key],
            _ => Vec::new(),
        };
        let is_made = match op {
            Op::Add(n) | Op::AddAfter(n, _) | Op::AddWith(n, _) | Op::AddRateLimited(n) => return Some(vec![*n]),
            Op::Cancel(n) | Op::Remove(n) | Op::Forget(n) => return Some(vec![*n]),
            Op::SetGroup(n, _) | Op::UnsetGroup(n) | Op::PauseGroup(n, _) | Op::ResumeGroup(n) => {
                return Some(vec![*n]);
            }
            Op::AddAll(ns) => return (!ns.is_empty()).then(|| ns.clone()),
            Op::TakeWhere(bits) => {
                let keys: Vec<u8> = self.reference.all().filter(|key| bits & 1 << (key % 16) != 0).collect();
                return (!keys.is_empty()).then_some(keys);
            }
            Op::End(n, _) | Op::IntoOwned(n) | Op::WaitDirty(n) => {
                return index(*n, self.held.len()).map(|at| vec![self.held[at].key()]);
            }
            Op::PollLoop(n) | Op::DropLoop(n) => return index(*n, self.loops.len()).map(key_of_loop),
            Op::Get(Form::Get | Form::Owned) => !self.would_wait(),
            Op::GetMany(n) | Op::Batch(n, ..) => *n == 0 || !self.would_wait(),
            Op::RoomWait(n) => return Some(vec![*n]),
            Op::Read(..) | Op::RemoveValue(_) | Op::TakeValues if self.layer.is_none() => false,
            Op::Read(n, ..) => return index(*n, self.held.len()).map(|at| vec![self.held[at].key()]),
            Op::RemoveValue(n) => return Some(vec![*n]),
            Op::RoomPoll(_) | Op::RoomDrop(_) => !self.adders.is_empty(),
            Op::Poll(_) | Op::DropWaiter(_) => !self.waiters.is_empty(),
            Op::Block(call) => self.would_return(*call),
            Op::Repeat(..) | Op::Finish(..) | Op::Crowd(..) | Op::Handle(_) => false,
            _ => true,
        };
        is_made.then(Vec::new)
    }

    fn would_return(&self, call: Blocking) -> bool {
        match call {
            Blocking::WaitIdle => self.reference.is_idle(),
            Blocking::Drain => self.reference.is_drained(),
            Blocking::Join => self.loops.is_empty(),
            Blocking::DrainWorkers => self.loops.is_empty() && (self.stopped || self.reference.is_drained()),
        }
    }

    fn make(&mut self, op: &Op) {
        let queue = self.queue;
        match op {
            Op::Add(n) => {
                let added = self.add_one(*n, WorkQueue::add, ValueQueue::add);
                self.expect(added, |reference| reference.add_now(*n));
            }
            Op::AddAll(ns) => self.add_all(ns),
            Op::RoomWait(n) => self.add_wait(*n),
            Op::RoomPoll(n) => {
                if let Some(at) = index(*n, self.adders.len()) {
                    let adder = self.adders.remove(at);
                    self.poll_adder(adder);
                }
            }
            Op::RoomDrop(n) => {
                if let Some(at) = index(*n, self.adders.len()) {
                    self.drop_adder(at);
                }
            }
            Op::AddAfter(n, span) => {
                let delay = self.span(*span);
                let added = self.add_one(
                    *n,
                    |queue, key| queue.add_after(key, delay),
                    |values, key, value| values.add_after(key, value, delay),
                );
                self.expect(added, |reference| reference.add_with(*n, &How::new(), Some(nanos(delay)), 0));
            }
            Op::AddWith(n, how) => {
                let (options, delay) = self.options(how);
                let added = self.add_one(
                    *n,
                    |queue, key| queue.add_with(key, options),
                    |values, key, value| values.add_with(key, value, options),
                );
                self.add_with(*n, added, how, delay);
            }
            Op::AddRateLimited(n) => {
                let how = How { rate_limited: true, ..How::new() };
                let options = AddOptions::new().rate_limited();
                let added = self.add_one(*n, WorkQueue::add_rate_limited, |values, key, value| {
                    values.add_with(key, value, options)
                });
                self.add_with(*n, added, &how, None);
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
                let cancelled = self.call(|| queue.cancel(&Name::new(*n)));
                self.expect(cancelled, |reference| reference.cancel(*n));
            }
            Op::Remove(n) => {
                let removed = self.call(|| queue.remove(&Name::new(*n)));
                self.expect(removed, |reference| reference.remove(*n));
            }
            Op::Forget(n) => {
                let forgot = self.call(|| queue.forget(&Name::new(*n)));
                // The queue has cleared its own count by then.
                self.reference.limiter_panics = forgot == Err(Fault::Limiter);
                if self.is_effective(&forgot) || self.reference.limiter_panics {
                    self.reference.forget(*n);
                }
            }
            Op::TakeWhere(bits) => self.take_where(*bits),
            Op::TakeDelayed => self.take_delayed(),
            Op::Look => {
                let (inspect, name) = (queue.inspect(), Name::new(self.reference.steps as u8 % KEYS));
                let looked = self.call(|| {
                    inspect.key(&name).to_string();
                    drop((inspect.levels(), inspect.groups(), inspect.delayed_keys(), inspect.processing_keys()));
                });
                // A drop that panics is one of the result, or of a list that is not complete.
                self.is_effective(&looked);
                self.check_lists();
            }
            Op::Get(form) => self.get(*form),
            Op::GetMany(n) if *n > 0 && self.would_wait() => {}
            Op::GetMany(n) => {
                let items = self.call(|| queue.get_many(usize::from(*n))).expect("a get passes no panic on");
                self.returned_from_get();
                let count = items.len();
                // What expires after the first hand-out is more than were queued then.
                let expired = items.into_iter().map(|item| self.handed_out(Held::Borrowed(item))).sum::<usize>();
                let is_all = expired > 0 || self.reference.next_keys().is_empty();
                assert!(count == usize::from(*n) || is_all, "{count} of {n} keys");
            }
            Op::Batch(n, ..) if *n > 0 && self.would_wait() => {}
            Op::Batch(n, adds, end) => self.batch(*n, adds, end),
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
            Op::Handle(n) => {
                for _ in 0..*n {
                    let before = self.held.len();
                    self.step(&Op::Get(Form::Try));
                    let Some(held) = self.held.get(before) else { break };
                    let key = held.key();
                    let time = [10, 100, 30, 60, 20][usize::from(self.plan.group_of(key))];
                    for op in [Op::Add(key), Op::Advance(Span::Nanos(1000 * time)), Op::Turn] {
                        self.step(&op);
                    }
                    self.step(&Op::End(before as u8, End::Done));
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
                let values = self.layer.cloned();
                self.starts = self.starts.wrapping_add(1);
                let future: Pin<Box<dyn Future<Output = ()>>> = match self.starts % 3 {
                    0 => Box::pin(
                        self.workers
                            .run_async(async move |item: &Item<'_, Key>| handle(&own, values.as_ref(), item).await),
                    ),
                    // A batch of one key is as a key by itself.
                    1 => Box::pin(self.workers.run_batch_async(1, Duration::ZERO, async move |batch| {
                        let outcome = handle(&own, values.as_ref(), &batch[0]).await;
                        batch[0].set_outcome(outcome);
                    })),
                    _ => Box::pin(self.workers.run_boxed(move |item| {
                        let (own, values) = (Arc::clone(&own), values.clone());
                        Box::pin(async move { handle(&own, values.as_ref(), item).await })
                    })),
                };
                self.loops.push(Loop {
                    at: At::Free,
                    is_limited: self.starts % 3 != 1,
                    limit: None,
                    late_at: None,
                    read: None,
                    keys: 0,
                    future,
                    flag: Arc::default(),
                    script,
                });
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
                    let dropped = self.call(|| drop(own.future));
                    self.end_limit(own.late_at);
                    match own.at {
                        At::Holding(key) => self.drop_run(key, dropped),
                        _ => _ = self.is_effective(&dropped),
                    }
                }
            }
            Op::Stop => {
                let workers = self.workers;
                // A finish without time is a stop, but after a panic of a clone, which may come when it has taken keys out.
                let is_finish = self.fault.is_none() && self.starts % 2 == 1;
                let left = self.call(|| if is_finish { workers.finish(Duration::ZERO) } else { workers.stop() });
                self.stop(left);
            }
            Op::DrainWorkers => {
                let workers = self.workers;
                let left = self.call(|| workers.drain_timeout(Duration::ZERO));
                self.reference.shut_down = true;
                self.stop(left);
            }
            Op::Advance(span) => {
                let by = nanos(self.span(*span));
                let last = if self.has_rates() && !matches!(span, Span::Nanos(_)) { NEVER / 2 } else { NEVER };
                let by = by.min(last.saturating_sub(self.reference.now));
                self.tokens_have_come = true;
                self.clock.advance(Duration::from_nanos(by));
                self.reference.advance(by);
            }
            Op::Turn => {
                self.turn_or_drive();
                self.tell_late();
            }
            Op::ShutDown => {
                self.call(|| queue.shut_down()).expect("a shut-down passes no panic on");
                self.returned();
                self.shut_down();
            }
            Op::DrainTimeout => {
                let end = self.call(|| queue.shut_down_with_drain_timeout(Duration::ZERO));
                let end = end.expect("a drain passes no panic on");
                self.returned();
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
            Op::SetGroup(n, limit) => {
                let group = self.plan.group_of(*n);
                let limits = self.plan.group_limits(group, *limit);
                let set = self.call(|| queue.group(&Key::new(*n)).set(limits)).expect("a set passes no panic on");
                self.changed_group(set.is_ok(), |reference| {
                    reference.set_group(group, Some(*limit));
                });
            }
            Op::UnsetGroup(n) => {
                self.call(|| queue.group(&Key::new(*n)).unset()).expect("an unset passes no panic on");
                let group = self.plan.group_of(*n);
                self.changed_group(self.plan.groups.is_some(), |reference| reference.set_group(group, None));
            }
            Op::PauseGroup(n, span) => {
                let time = self.span(*span);
                let paused = self.call(|| queue.group(&Key::new(*n)).pause(time)).expect("a pause passes no panic on");
                let group = self.plan.group_of(*n);
                self.changed_group(paused.is_ok(), |reference| reference.pause_group(group, nanos(time)));
            }
            Op::ResumeGroup(n) => {
                self.call(|| queue.group(&Key::new(*n)).resume()).expect("a resume passes no panic on");
                let group = self.plan.group_of(*n);
                self.changed_group(self.plan.groups.is_some(), |reference| reference.resume_group(group));
            }
            Op::Pause => {
                self.call(|| queue.pause()).expect("a pause passes no panic on");
                self.returned();
                self.reference.paused = true;
            }
            Op::Resume => {
                self.call(|| queue.resume()).expect("a resume passes no panic on");
                self.returned();
                self.reference.paused = false;
            }
            Op::Read(n, adds, succeeds) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at);
                    self.read(&held, *adds, *succeeds);
                    self.held.push(held);
                }
            }
            Op::RemoveValue(n) => self.remove_value(*n),
            Op::TakeValues => self.take_values(),
            Op::Fault(..) => {}
        }
    }

    /// A call on a group, which a queue without groups refuses.
    fn changed_group(&mut self, is_accepted: bool, change: impl FnOnce(&mut Reference)) {
        self.returned();
        assert_eq!(is_accepted, self.plan.groups.is_some());
        if is_accepted {
            change(&mut self.reference);
        }
    }

    fn block(&mut self, call: Blocking) {
        let (queue, workers) = (self.queue, self.workers);
        if !self.would_return(call) {
            return;
        }
        match call {
            Blocking::WaitIdle => queue.wait_idle(),
            Blocking::Drain => {
                self.call(|| queue.shut_down_with_drain()).expect("a drain passes no panic on");
                self.returned();
                self.reference.shut_down = true;
            }
            Blocking::Join => workers.join(),
            Blocking::DrainWorkers => {
                if self.stopped {
                    self.wait(Goal::WorkersDrained); // a drain that does not know of the stop would wait forever
                }
                let left = self.call(|| workers.drain());
                self.stop(left);
            }
        }
    }

    fn shut_down(&mut self) {
        self.reference.shut_down = true;
        self.reference.releases += 1;
    }

    // ---- the end ----

    /// Ends all that is held, drops all that waits, and moves the clock past each deadline: the queue must be empty after that.
    fn heal(&mut self) {
        self.fault = None;
        while !self.waiters.is_empty() {
            self.drop_waiter(0);
            self.check();
        }
        while !self.adders.is_empty() {
            self.step(&Op::RoomDrop(0));
            self.check();
        }
        while !self.loops.is_empty() {
            self.step(&Op::DropLoop(0));
            self.check();
        }
        self.step(&Op::Resume);
        self.check();
        for group in 0..self.plan.groups.unwrap_or(0) {
            self.step(&Op::ResumeGroup(group));
            self.check();
            self.step(&Op::UnsetGroup(group));
            self.check();
        }
        // A key may be held and dirty, rest, and have two delays: then four hand-outs follow, and three times are waited for.
        let mut turns = 2 + 8 * self.reference.all().count();
        // With many keys a check takes long: each 8th turn has one.
        let between = if self.reference.all().len() > KEYS.into() { 8 } else { 1 };
        loop {
            while let Some(held) = self.held.pop() {
                self.end(held, &End::Done);
            }
            for wait in [Some(self.reference.paced_for()), self.reference.throttled_for()].into_iter().flatten() {
                self.step(&Op::Advance(Span::Nanos(wait)));
            }
            self.step(&Op::Turn);
            self.step(&Op::Get(Form::Try));
            if turns & (between - 1) == 0 {
                self.check();
            }
            if self.held.is_empty() {
                let last = if self.has_rates() { NEVER / 4 * 3 } else { NEVER };
                let is_near = |left: &u64| self.reference.now.saturating_add(*left) < last;
                let next = self.reference.deadlines().into_iter().find(is_near);
                let Some(left) = next.filter(|_| !self.reference.shut_down) else { break };
                self.step(&Op::Advance(Span::Nanos(left)));
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
        self.step(&Op::TakeValues);
        self.check_values();
        // A group that owes handler time is remembered for longer.
        if self.plan.tenants && !self.plan.work_time && self.reference.present() == 0 {
            self.queue.shrink_to_fit();
            self.step(&Op::Turn);
            // Tokens that are spent must not come back by that.
            let spent = self.reference.spent();
            assert_eq!(self.queue.stats().groups, spent.len(), "groups that are remembered");
            if let Some(wait) = spent.into_iter().max() {
                self.step(&Op::Advance(Span::Nanos(wait)));
                self.step(&Op::Turn);
            }
            assert_eq!(self.queue.stats().groups, 0, "groups without keys are forgotten");
        }
    }
}
