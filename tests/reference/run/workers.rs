//! Loops of workers, polled by hand.

use super::waiters::Flag;
use super::{Run, nanos, numbers, sorted, triples};
use crate::reference::key::Key;
use crate::reference::op::{How, Outcome, Span};
use crate::reference::queue::Delayed;
use keyqueue::{Added, Item, Leftover, OnPanic};
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
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
}

/// What `Workers::tally` says.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Tally {
    pub(super) succeeded: u64,
    pub(super) requeued: u64,
    pub(super) failed: u64,
    pub(super) retried: u64,
    pub(super) given_up: u64,
    pub(super) panicked: u64,
    pub(super) refused: u64,
}

/// The handler: tells which key it got, and waits until the run says what it returns.
pub(super) async fn handle(script: &Script, item: &Item<'_, Key>) -> keyqueue::Outcome {
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

impl<'q> Run<'q> {
    pub(super) fn outcome(&self, outcome: &Outcome) -> keyqueue::Outcome {
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
    pub(super) fn now_as_seen(&self, outcome: &Outcome) -> Outcome {
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

    pub(super) fn poll_loop(&mut self, at: usize) {
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
    pub(super) fn apply(&mut self, key: u8, outcome: &Outcome) {
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

    pub(super) fn retry(&mut self, key: u8, limited: &How, delay: u64) {
        if self.plan.max_retries.is_some_and(|max| self.reference.limits.num_requeues(&key) >= max) {
            return self.give_up(key);
        }
        self.requeue(key, limited, Some(delay), true);
    }

    pub(super) fn give_up(&mut self, key: u8) {
        self.hooks[2] += 1;
        self.tally.given_up += 1;
        self.reference.give_up(key);
    }

    pub(super) fn requeue(&mut self, key: u8, how: &How, delay: Option<u64>, is_retry: bool) {
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
    pub(super) fn stop(&mut self, left: &Leftover<Key>) {
        self.shut_down();
        self.stopped = true;
        let (queued, delayed) = self.reference.take_where(|_| true);
        let refused = std::mem::take(&mut self.refused);
        assert_eq!(sorted(numbers(&left.refused)), sorted(refused), "refused");
        assert_eq!(sorted(numbers(&left.processing)), self.reference.processing(), "processing");
        self.compare_lists(left, queued, delayed, false);
    }

    /// `by_age`: the queued keys are listed by level and then by age, even if there are groups.
    pub(super) fn compare_lists(&self, left: &Leftover<Key>, queued: Vec<u8>, delayed: Vec<Delayed>, by_age: bool) {
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
}
