//! Hand-outs, and their ends.

use super::{Run, nanos};
use crate::reference::crossings;
use crate::reference::key::{Fault, Key};
use crate::reference::op::{End, Form, How};
use crate::reference::queue::Reference;
use keyqueue::values::ValueQueue;
use keyqueue::{GetTimeoutError, Item, OnPanic, OwnedItem, TryGetError, WorkQueue};
use std::fmt::Debug;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
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
        each!(self, item => {
            assert!(std::ptr::eq(item.key(), &**item));
            item.number()
        })
    }
}

impl<'q> Run<'q> {
    pub(super) fn get(&mut self, form: Form) {
        let queue = self.queue;
        let would_wait = self.would_wait();
        if would_wait && matches!(form, Form::Get | Form::Owned) {
            return;
        }
        let got = self.call(|| match form {
            Form::Try => queue.try_get().map(Held::Borrowed).map_err(|error| error == TryGetError::ShutDown),
            Form::TryOwned => queue.try_get_owned().map(Held::Owned).map_err(|error| error == TryGetError::ShutDown),
            Form::Timeout => {
                let got = queue.get_timeout(Duration::ZERO);
                got.map(Held::Borrowed).map_err(|error| error == GetTimeoutError::ShutDown)
            }
            Form::Get => queue.get().map(Held::Borrowed).ok_or(true),
            Form::Owned => queue.get_owned().map(Held::Owned).ok_or(true),
        });
        self.returned_from_get();
        self.catch_up();
        let (none_ready, is_over) = (self.reference.next_keys().is_empty(), self.reference.is_over());
        match got.expect("a get passes no panic on") {
            Ok(held) => _ = self.handed_out(held),
            Err(shut_down) => assert_eq!((none_ready, shut_down), (true, is_over), "no key, and shut down"),
        }
    }

    pub(super) fn batch(&mut self, n: u8, adds: &[u8], end: &End) {
        let queue = self.queue;
        let batch = self.call(|| match n % 2 {
            0 => queue.get_batch(usize::from(n)),
            _ => {
                let mut get = queue.get_batch_async(usize::from(n));
                let mut poll = || Pin::new(&mut get).poll(&mut Context::from_waker(Waker::noop()));
                // It may give way to other tasks once.
                let polled = [(); 2].iter().map(|()| poll()).find(Poll::is_ready);
                let Some(Poll::Ready(batch)) = polled else { panic!("it waits") };
                batch
            }
        });
        let mut batch = batch.expect("a get passes no panic on");
        self.returned_from_get();
        let mut keys: Vec<u8> = batch.iter().map(|item| item.number()).collect();
        for item in &batch {
            self.was_handed_out(item.number(), item.priority().0);
        }
        let values = self.layer.iter().flat_map(|layer| batch.iter().map(|item| (item.number(), layer.value(item))));
        let values: Vec<_> = values.collect();
        values.iter().for_each(|(key, value)| self.check_value(*key, value.as_deref()));
        for n in adds {
            let added = self.add_one(*n, WorkQueue::add, ValueQueue::add);
            self.expect(added, |reference| reference.add_now(*n));
        }
        for (key, value) in values {
            if let Some(value) = value.filter(|_| *end == End::Succeed) {
                self.succeed(key, value);
            }
        }
        if n % 4 == 2 && batch.len() > 1 {
            let item = batch.swap_remove(0);
            keys.swap_remove(0);
            self.held.push(Held::Borrowed(item));
        }
        // Which key it is for which the user's limiter panics is not known.
        let fault = self.fault.map(|(fault, _)| fault);
        let end = if fault == Some(Fault::Limiter) && *end == End::Succeed { &End::Done } else { end };
        match end {
            End::Done | End::Drop | End::Succeed => {
                let ended = self.call(|| match end {
                    End::Done => batch.done(),
                    End::Succeed => batch.succeed(),
                    _ => drop(batch),
                });
                self.ended(ended, |reference| {
                    keys.iter().for_each(|key| match end {
                        End::Succeed => reference.succeed(*key),
                        _ => reference.done(*key),
                    });
                });
            }
            _ => self.held.extend(batch.into_items().into_iter().map(Held::Borrowed)),
        }
    }

    /// Returns the number of delays that the getter has expired after that.
    pub(super) fn handed_out(&mut self, held: Held<'q>) -> usize {
        let (key, priority) = (held.key(), each!(&held, item => item.priority().0));
        let expired = self.was_handed_out(key, priority);
        self.held.push(held);
        expired
    }

    fn was_handed_out(&mut self, key: u8, priority: i8) -> usize {
        self.catch_up();
        assert!(self.reference.next_keys().contains(&key), "key {key} is not next: {:?}", self.reference.next_keys());
        assert_eq!(priority, self.reference.hand_out(key), "the priority of key {key}");
        let expired = self.catch_up();
        if expired > 0 {
            crossings::expires_after_a_hand_out(self.plan);
        }
        expired
    }

    pub(super) fn end(&mut self, held: Held<'q>, end: &End) {
        let key = held.key();
        let limited = How { rate_limited: true, ..How::new() };
        if !matches!(end, End::Done | End::Drop) {
            let aside = self.fault.take();
            self.read(&held, 0, matches!(end, End::Succeed | End::RequeueAfter(_) | End::CoolDown(_)));
            self.fault = aside;
        }
        match end {
            End::Unwind => self.unwind(held),
            End::Done | End::Drop | End::Succeed | End::GiveUp => {
                let ended = self.call(|| {
                    each!(held, item => match end {
                        End::Done => item.done(),
                        End::Succeed => item.succeed(),
                        End::GiveUp => item.give_up(),
                        _ => drop(item),
                    });
                });
                self.ended(ended, |reference| match end {
                    End::Succeed => reference.succeed(key),
                    End::GiveUp => reference.give_up(key),
                    _ => reference.done(key),
                });
            }
            End::Retry => {
                let added = self.call(|| each!(held, item => item.retry()));
                self.ended(added, |reference| reference.requeue(key, &limited, None));
            }
            End::RequeueAfter(span) => {
                let delay = self.span(*span);
                let added = self.call(|| each!(held, item => item.requeue_after(delay)));
                self.ended(added, |reference| {
                    reference.forget(key);
                    reference.requeue(key, &How::new(), Some(nanos(delay)))
                });
            }
            End::CoolDown(span) => {
                let time = self.span(*span);
                let ended = self.call(|| each!(held, item => item.cool_down(time)));
                self.ended(ended, |reference| {
                    reference.rest(key, nanos(time));
                    reference.succeed(key);
                });
            }
            End::RequeueWith(how) => {
                let (options, delay) = self.options(how);
                let added = self.call(|| each!(held, item => item.requeue_with(options)));
                self.ended(added, |reference| reference.requeue(key, how, delay));
            }
        }
    }

    /// The end of a hand-out takes effect in any case. A panic of the limiter counts as one of the holder.
    fn ended<T: PartialEq + Debug>(&mut self, seen: Result<T, Fault>, effect: impl FnOnce(&mut Reference) -> T) {
        if matches!(seen, Err(Fault::Limiter)) {
            self.struck = None;
            self.limiter_has_panicked();
            effect(&mut self.reference);
        } else {
            self.expect(seen, effect);
        }
    }

    /// The limiter has panicked in a call of a holder.
    pub(super) fn limiter_has_panicked(&mut self) {
        self.reference.limiter_panics = true;
        self.reference.counts.panics += 1;
    }

    /// Drops an item while a panic unwinds: all other panics are caught.
    fn unwind(&mut self, held: Held<'q>) {
        let key = held.key();
        let unwound = self.call(|| {
            let unwinds = || -> () {
                let _held = held;
                resume_unwind(Box::new("a holder"))
            };
            let payload = catch_unwind(AssertUnwindSafe(unwinds)).expect_err("it unwinds");
            assert!(payload.is::<&str>(), "the drop of an item has passed a panic on");
        });
        assert_eq!(unwound, Ok(()));
        match self.struck.map(|strike| strike.fault) {
            Some(Fault::Limiter) => {
                self.struck = None;
                self.reference.limiter_panics = true;
                self.caught();
            }
            Some(Fault::Drop | Fault::Observer) => {
                self.struck = None;
                self.events_are_missing = true;
            }
            _ => self.returned(),
        }
        self.reference.counts.panics += 1;
        match self.plan.on_panic {
            Some(OnPanic::Retry) => {
                _ = self.reference.requeue(key, &How { rate_limited: true, ..How::new() }, None);
            }
            _ => self.reference.done(key),
        }
    }
}
