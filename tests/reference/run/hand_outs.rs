//! Hand-outs, and their ends.

use super::{Run, nanos};
use crate::reference::key::Key;
use crate::reference::op::{End, Form, How};
use keyqueue::{GetTimeoutError, Item, OnPanic, OwnedItem, TryGetError};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// A hand-out.
pub(super) enum Held<'q> {
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

pub(super) use each;

impl Held<'_> {
    pub(super) fn key(&self) -> u8 {
        each!(self, item => item.key().number())
    }
}

impl<'q> Run<'q> {
    pub(super) fn get(&mut self, form: Form) {
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

    pub(super) fn handed_out(&mut self, held: Held<'q>) {
        let key = held.key();
        let priority = each!(&held, item => item.priority().0);
        assert!(self.reference.next_keys().contains(&key), "key {key} is not next: {:?}", self.reference.next_keys());
        assert_eq!(priority, self.reference.hand_out(key), "the priority of key {key}");
        self.held.push(held);
    }

    pub(super) fn end(&mut self, held: Held<'q>, end: &End) {
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
}
