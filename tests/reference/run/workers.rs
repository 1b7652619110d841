//! Loops of workers, polled by hand.

use super::values::{Layer, Numbers};
use super::waiters::Flag;
use super::{Run, nanos};
use crate::reference::crossings;
use crate::reference::events::Event;
use crate::reference::key::{Fault, Key, Strike, strike, unarmed};
use crate::reference::op::{How, Outcome, Span};
use crate::reference::plan::Call;
use keyqueue::{Added, Item, OnPanic};
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

/// Where a loop of workers is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum At {
    /// It looks whether the workers are stopped, before it gets a key.
    Free,
    Waiting,
    Holding(u8),
}

pub(super) struct Loop {
    pub(super) at: At,
    /// Whether its runs have the limit of the plan: batches have none.
    pub(super) is_limited: bool,
    /// When its run is late, if it has a limit; and the same if nobody has found it late.
    pub(super) limit: Option<u64>,
    pub(super) late_at: Option<u64>,
    /// The value that its run has read, if the key had one.
    pub(super) read: Option<Numbers>,
    /// The keys that it has got since its start or its last panic. After 128 it gives way to other tasks.
    pub(super) keys: u32,
    pub(super) future: Pin<Box<dyn Future<Output = ()>>>,
    pub(super) flag: Arc<Flag>,
    pub(super) script: Arc<Script>,
}

/// What a loop and its run tell each other.
#[derive(Default)]
pub(super) struct Script {
    /// The keys for which the handler was called, and that the run has not seen yet.
    pub(super) started: Mutex<Vec<(u8, i8)>>,
    pub(super) outcome: Mutex<Option<(Outcome, keyqueue::Outcome)>>,
    /// What `Item::is_late` and `Item::until_late` have said when the handler was polled.
    late: Mutex<Option<(bool, bool)>>,
    /// The value that a run has read, unless the run has seen it already.
    read: Mutex<Option<Option<Numbers>>>,
}

/// What `Workers::tally` says.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Tally {
    pub(super) succeeded: u64,
    pub(super) requeued: u64,
    pub(super) paused: u64,
    pub(super) failed: u64,
    pub(super) retried: u64,
    pub(super) given_up: u64,
    pub(super) timed_out: u64,
    pub(super) late: u64,
    pub(super) panicked: u64,
    pub(super) refused: u64,
}

/// What the run of a key that is requeued counts as.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ran {
    Succeeded,
    Paused,
    Failed,
}

/// The handler: tells which key it got, and waits until the run says what it returns.
pub(super) async fn handle(script: &Script, values: Option<&Layer>, item: &Item<'_, Key>) -> keyqueue::Outcome {
    script.started.lock().unwrap().push((item.key().number(), item.priority().0));
    strike(Fault::Handler);
    let value = values.and_then(|values| values.value(item));
    *script.read.lock().unwrap() = Some(value.as_deref().cloned());
    let mut until_late = pin!(item.until_late());
    let (name, outcome) = poll_fn(|cx| {
        let is_found_late = until_late.as_mut().poll(cx).is_ready();
        *script.late.lock().unwrap() = Some((item.is_late(), is_found_late));
        match script.outcome.lock().unwrap().take() {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    })
    .await;
    if name == Outcome::Panic {
        resume_unwind(Box::new("a handler"));
    }
    match value {
        Some(value) => unarmed(|| value.finish(outcome)),
        None => outcome,
    }
}

/// Whether the handler has panicked before it waits: it reads its value there, and no other code of a loop compares keys.
fn panics_at_the_start(struck: Option<Strike>) -> bool {
    struck.is_some_and(|strike| matches!(strike.fault, Fault::Handler | Fault::Hash | Fault::Eq))
}

impl<'q> Run<'q> {
    pub(super) fn outcome(&self, outcome: &Outcome) -> keyqueue::Outcome {
        match outcome {
            Outcome::Success | Outcome::Panic | Outcome::TimedOut => keyqueue::Outcome::Success,
            Outcome::RequeueAfter(span) => keyqueue::Outcome::RequeueAfter(self.span(*span)),
            Outcome::RequeueWith(how) => keyqueue::Outcome::RequeueWith(self.options(how).0),
            Outcome::Cooldown(span) => keyqueue::Outcome::Cooldown(self.span(*span)),
            Outcome::Retry => keyqueue::Outcome::Retry,
            Outcome::Failed => keyqueue::Outcome::failed("failed"),
            Outcome::RetryAfter(span) => {
                keyqueue::Outcome::RetryAfter { delay: self.span(*span), error: "failed".into() }
            }
            Outcome::PauseGroup(span) => {
                keyqueue::Outcome::PauseGroup { delay: self.span(*span), error: "failed".into() }
            }
            Outcome::GiveUp => keyqueue::Outcome::GiveUp("given up".into()),
        }
    }

    /// With times that no longer depend on the queue: the outcome is applied later.
    pub(super) fn now_as_seen(&self, outcome: &Outcome) -> Outcome {
        let fixed = |span: Span| match self.span(span) {
            Duration::MAX => Span::Never,
            span => Span::Nanos(nanos(span)),
        };
        match outcome.clone() {
            Outcome::RequeueAfter(span) => Outcome::RequeueAfter(fixed(span)),
            Outcome::RetryAfter(span) => Outcome::RetryAfter(fixed(span)),
            Outcome::PauseGroup(span) => Outcome::PauseGroup(fixed(span)),
            Outcome::Cooldown(span) => Outcome::Cooldown(fixed(span)),
            Outcome::RequeueWith(how) => Outcome::RequeueWith(How { after: how.after.map(fixed), ..how }),
            outcome => outcome,
        }
    }

    pub(super) fn poll_loop(&mut self, at: usize) {
        let mut own = self.loops.remove(at);
        own.flag = Arc::default();
        let outcome = own.script.outcome.lock().unwrap().as_ref().map(|(name, _)| name.clone());
        let is_held = matches!(own.at, At::Holding(_));
        let is_found_late = is_held && own.limit.is_some() && own.late_at.is_none();
        let outcome = outcome.or(is_found_late.then_some(Outcome::TimedOut));
        let is_late = is_found_late || own.late_at.is_some_and(|late_at| late_at <= self.reference.now);
        own.script.late.lock().unwrap().take();
        let waker = own.flag.waker();
        let polled = self.call(|| own.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        let ended = polled.expect("a loop passes no panic on");
        let started = std::mem::take(&mut *own.script.started.lock().unwrap());
        let (mut place, mut keys) = (own.at, own.keys);
        let mut gives_way = false;
        if is_held {
            let seen = own.script.late.lock().unwrap().take();
            // A run that has ended may be followed by another, which has just begun.
            let is_next = !started.is_empty();
            assert!(is_next || seen == Some((is_late, is_found_late)), "{seen:?}, and late {is_late}, {is_found_late}");
        }
        if let (At::Holding(key), Some(outcome)) = (place, outcome) {
            self.end_limit(own.late_at.take());
            let read = own.read.take();
            if matches!(outcome, Outcome::Success | Outcome::Cooldown(_) | Outcome::RequeueAfter(_)) {
                read.map(|read| self.values.succeed(key, &read));
            }
            gives_way =
                self.apply_with_panic(key, &outcome) || outcome == Outcome::Panic || keys == 128 && !self.stopped;
            place = At::Free;
            keys = if gives_way { 0 } else { keys };
        }
        assert!(!gives_way || own.flag.is_set(), "a loop gives way, and is not woken");
        if gives_way && own.flag.has_panicked() {
            self.struck = None; // nobody wakes the task then, so it goes on
            own.flag.clear();
            gives_way = false;
        }
        self.catch_up();
        let mut has_ended = false;
        if !matches!(place, At::Holding(_)) && !gives_way {
            if self.stopped || started.is_empty() && self.reference.is_over() {
                has_ended = true;
            } else if let Some((key, priority)) = started.first() {
                assert!(self.reference.next_keys().contains(key), "key {key} is not next");
                assert_eq!(*priority, self.reference.hand_out(*key));
                self.catch_up();
                place = At::Holding(*key);
                let limit = self.plan.time_limit.filter(|_| own.is_limited);
                own.limit = limit.map(|limit| self.reference.now.saturating_add(limit));
                own.late_at = own.limit;
                own.read = self.values.kept.get(key).cloned();
                if let Some(read) = own.script.read.lock().unwrap().take() {
                    assert_eq!(read, own.read, "the value that the run of key {key} has read");
                } else {
                    assert!(panics_at_the_start(self.struck), "a run has read no value");
                }
                keys += 1;
            } else {
                assert!(self.would_wait(), "a loop waits although a key is ready");
                place = At::Waiting;
            }
        }
        let taken = usize::from(matches!(place, At::Holding(_)) && !started.is_empty());
        assert_eq!((ended, started.len()), (has_ended, taken), "a loop at {place:?} has started {started:?}");
        if let (At::Holding(key), true) = (place, panics_at_the_start(self.struck)) {
            self.struck = None;
            (own.late_at, own.read) = (None, None);
            self.apply(key, &Outcome::Panic);
            assert!(own.flag.is_set(), "a loop gives way, and is not woken");
            (place, keys) = (At::Free, 0);
        }
        self.returned();
        (own.at, own.keys) = (place, keys);
        if !ended {
            self.loops.push(own);
        }
    }

    /// A run has ended: if it is late and nobody has found it so, its loop does.
    pub(super) fn end_limit(&mut self, late_at: Option<u64>) {
        let is_late = late_at.is_some_and(|late_at| late_at <= self.reference.now);
        self.tally.late += u64::from(is_late);
        self.runs.late += u64::from(is_late);
    }

    /// A turn finds runs late, and wakes their loops.
    pub(super) fn tell_late(&mut self) {
        for at in 0..self.loops.len() {
            let now = self.reference.now;
            if let Some(late_at) = self.loops[at].late_at.take_if(|late_at| *late_at <= now) {
                self.end_limit(Some(late_at));
                assert!(self.loops[at].flag.is_set(), "a loop whose run is late was not woken");
            }
        }
    }

    /// Applies an outcome, with the panic that has happened meanwhile. The workers count each. After one that passed through the end of the
    /// hand-out, the loop gives way.
    fn apply_with_panic(&mut self, key: u8, outcome: &Outcome) -> bool {
        if *outcome != Outcome::TimedOut {
            crossings::meets(&crossings::outcome(outcome), &[key], self.plan, &self.reference);
        }
        let Some(Strike { fault, at }) = self.struck else {
            self.apply(key, outcome);
            return false;
        };
        let mut gives_way = false;
        match fault {
            Fault::Hook => {}
            Fault::Drop => gives_way = true,
            // The key has no clone, so it is in no list.
            Fault::Clone => self.refused_is_lost = true,
            Fault::Observer if at != Event::HandedOut as u8 => gives_way = at != Event::Panicked as u8,
            Fault::Limiter => {
                self.limiter_has_panicked();
                let passes = matches!(outcome, Outcome::RequeueAfter(_));
                gives_way = at == Call::Forget as u8 && !passes;
                self.retries_are_unknown = at == Call::NumRequeues as u8;
            }
            _ => {
                // The next hand-out deals with it.
                self.apply(key, outcome);
                return false;
            }
        }
        self.struck = None;
        self.events_are_missing = true;
        self.tally.panicked += 1;
        self.apply(key, outcome);
        (self.refused_is_lost, self.retries_are_unknown, self.reference.limiter_panics) = (false, false, false);
        gives_way
    }

    /// What a loop does after its handler.
    pub(super) fn apply(&mut self, key: u8, outcome: &Outcome) {
        let limited = How { rate_limited: true, ..How::new() };
        let given_up = self.tally.given_up;
        match outcome {
            Outcome::Success => {
                self.tally.succeeded += 1;
                self.rest(key, 0);
                self.reference.succeed(key);
            }
            Outcome::Cooldown(span) => {
                self.tally.succeeded += 1;
                let time = nanos(self.span(*span));
                self.rest(key, time);
                self.reference.succeed(key);
            }
            Outcome::RequeueAfter(span) => {
                self.tally.succeeded += 1;
                self.reference.forget(key);
                let delay = nanos(self.span(*span));
                self.requeue(key, &How::new(), Some(delay), Ran::Succeeded);
            }
            Outcome::RequeueWith(how) => {
                self.tally.succeeded += 1;
                let delay = self.options(how).1;
                self.requeue(key, how, delay, Ran::Succeeded);
            }
            Outcome::GiveUp => {
                self.tally.failed += 1;
                self.reference.limiter_panics &= !self.retries_are_unknown;
                self.give_up(key);
            }
            Outcome::Panic => {
                self.hooks[1] += 1;
                self.tally.failed += 1;
                self.tally.panicked += 1;
                self.reference.counts.panics += 1;
                match self.plan.on_panic {
                    Some(OnPanic::Done) => {
                        self.rest(key, 0);
                        self.reference.done(key);
                    }
                    _ => self.retry(key, &limited, 0),
                }
            }
            Outcome::Retry | Outcome::Failed | Outcome::TimedOut => {
                self.tally.failed += 1;
                self.tally.timed_out += u64::from(*outcome == Outcome::TimedOut);
                self.hooks[0] += u64::from(*outcome == Outcome::Failed);
                self.retry(key, &limited, 0);
            }
            Outcome::PauseGroup(span) if self.plan.groups.is_some() => {
                self.tally.paused += 1;
                self.hooks[0] += 1;
                let delay = nanos(self.span(*span));
                self.reference.pause_group(self.plan.group_of(key), delay);
                self.requeue(key, &How::new(), Some(delay), Ran::Paused);
            }
            Outcome::RetryAfter(span) | Outcome::PauseGroup(span) => {
                self.tally.failed += 1;
                self.hooks[0] += 1;
                let delay = nanos(self.span(*span));
                self.retry(key, &limited, delay);
            }
        }
        // A run that panics counts as that, also if its key is given up.
        *match outcome {
            Outcome::Success | Outcome::Cooldown(_) => &mut self.runs.success,
            Outcome::RequeueAfter(_) | Outcome::RequeueWith(_) => &mut self.runs.requeue,
            Outcome::PauseGroup(_) if self.plan.groups.is_some() => &mut self.runs.pause,
            Outcome::Panic => &mut self.runs.panic,
            Outcome::TimedOut => &mut self.runs.timeout,
            _ if self.tally.given_up > given_up => &mut self.runs.give_up,
            _ => &mut self.runs.error,
        } += 1;
    }

    pub(super) fn retry(&mut self, key: u8, limited: &How, delay: u64) {
        if self.reference.is_given_up(key) {
            return self.retry_later(key, limited, delay);
        }
        let retries = match self.retries_are_unknown {
            true => self.reference.unlimited(key),
            false => self.reference.num_requeues(key),
        };
        if self.plan.max_retries.is_some_and(|max| retries >= max) {
            if self.plan.then_after.is_some() {
                self.hooks[2] += 1;
                self.tally.given_up += 1;
                return self.retry_later(key, limited, delay);
            }
            // A limiter that has panicked is asked to forget.
            self.reference.limiter_panics &= !self.retries_are_unknown;
            return self.give_up(key);
        }
        self.requeue(key, limited, Some(delay), Ran::Failed);
    }

    /// A retry after the last one.
    fn retry_later(&mut self, key: u8, limited: &How, delay: u64) {
        self.reference.past_last(key);
        self.requeue(key, limited, Some(delay).max(self.plan.then_after), Ran::Failed);
    }

    /// A run of workers ends: its key cools down for their interval, or for longer.
    pub(super) fn rest(&mut self, key: u8, time: u64) {
        self.reference.rest(key, time.max(self.plan.min_interval));
    }

    pub(super) fn give_up(&mut self, key: u8) {
        self.hooks[2] += 1;
        self.tally.given_up += 1;
        self.rest(key, 0);
        self.reference.give_up(key);
    }

    /// A loop was dropped, and its key is added again. A panic is caught, as in a run.
    pub(super) fn drop_run(&mut self, key: u8, dropped: Result<(), Fault>) {
        dropped.expect("the drop of a loop passes no panic on");
        if let Some(fault) = self.struck.map(|strike| strike.fault).filter(|fault| *fault != Fault::Waker) {
            assert!(
                matches!(fault, Fault::Clone | Fault::Drop | Fault::Observer),
                "the drop of a loop meets {fault:?}"
            );
            self.refused_is_lost = fault == Fault::Clone;
            self.events_are_missing = true;
            self.struck = None;
            self.tally.panicked += 1;
        }
        self.returned();
        self.add_again(key, &How::new(), None);
        self.refused_is_lost = false;
    }

    /// Adds a held key again. Returns whether the queue has not refused it.
    fn add_again(&mut self, key: u8, how: &How, delay: Option<u64>) -> bool {
        let was_dirty = self.reference.is_dirty(key);
        self.rest(key, 0);
        let is_accepted = self.reference.requeue(key, how, delay) != Added::Rejected;
        if !is_accepted && !was_dirty && !self.refused_is_lost {
            self.refused.push(key);
        }
        is_accepted
    }

    pub(super) fn requeue(&mut self, key: u8, how: &How, delay: Option<u64>, ran: Ran) {
        if !self.add_again(key, how, delay) {
            self.tally.refused += 1;
            *match ran {
                Ran::Succeeded => &mut self.tally.succeeded,
                Ran::Paused => &mut self.tally.paused,
                Ran::Failed => &mut self.tally.failed,
            } -= 1;
        } else {
            self.tally.requeued += u64::from(ran == Ran::Succeeded);
            self.tally.retried += u64::from(ran == Ran::Failed);
        }
    }
}
