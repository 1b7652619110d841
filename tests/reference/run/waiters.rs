//! Futures, polled by hand.

use super::Run;
use super::hand_outs::Held;
use crate::reference::key::{Fault, Key, has_struck, look, strike};
use crate::reference::op::Goal;
use keyqueue::Leftover;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that remembers that it was called, and whether it has panicked.
#[derive(Default)]
pub(super) struct Flag {
    woken: AtomicBool,
    panicked: AtomicBool,
}

/// The waker. It is code of the user when it is woken, and when it is dropped: the list has the last clone of it.
struct Wakes(Arc<Flag>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let flag = &self.0;
        flag.woken.store(true, Ordering::Relaxed);
        let before = has_struck();
        let _guard = OnDrop(|| flag.panicked.store(has_struck() && !before, Ordering::Relaxed));
        strike(Fault::Waker);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        look();
    }
}

impl Flag {
    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Wakes(Arc::clone(self))))
    }

    pub(super) fn is_set(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }

    /// Forgets the call.
    pub(super) fn clear(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    pub(super) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Until {
    /// With the number of releases when it was polled first, and whether the workers were stopped then.
    Goal(Goal, u64, bool),
    /// The key, which the waiter holds, is dirty.
    Dirty(u8),
}

pub(super) enum Answer<'q> {
    Nothing,
    Item(Option<Held<'q>>),
    Left(Leftover<Key>),
}

pub(super) struct Waiter<'q> {
    pub(super) until: Until,
    pub(super) future: Pin<Box<dyn Future<Output = Answer<'q>> + 'q>>,
    pub(super) flag: Arc<Flag>,
}

impl<'q> Run<'q> {
    pub(super) fn wait(&mut self, goal: Goal) {
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
    pub(super) fn is_due(&self, until: Until) -> bool {
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

    pub(super) fn poll(&mut self, mut waiter: Waiter<'q>) {
        waiter.flag = Arc::default();
        let waker = waiter.flag.waker();
        let mut polled = self.call(|| waiter.future.as_mut().poll(&mut Context::from_waker(&waker)));
        self.catch_up();
        let is_due = self.is_due(waiter.until);
        let gets = matches!(waiter.until, Until::Goal(Goal::Item | Goal::OwnedItem, ..));
        if gets && is_due && matches!(polled, Ok(Poll::Pending)) && waiter.flag.is_set() {
            // It has given way after 128 keys that were queued already: once, and it has taken nothing.
            polled = self.call(|| waiter.future.as_mut().poll(&mut Context::from_waker(&waker)));
            self.catch_up();
        }
        let polled = match polled {
            Ok(polled @ Poll::Ready(Answer::Left(_))) => polled,
            Ok(polled) => {
                self.returned_from_get();
                polled
            }
            Err(fault) => {
                assert!(is_due, "a future panics without a reason");
                assert!(matches!(waiter.until, Until::Goal(Goal::WorkersDrained, ..)), "a future passes a panic on");
                return self.stop(Err(fault));
            }
        };
        match polled {
            Poll::Pending => {
                assert!(!is_due, "a future waits although it could resolve");
                self.waiters.push(waiter);
            }
            Poll::Ready(answer) => {
                assert!(is_due, "a future resolved without a reason");
                match answer {
                    Answer::Nothing => {}
                    Answer::Item(Some(held)) if matches!(waiter.until, Until::Dirty(_)) => self.held.push(held),
                    Answer::Item(Some(held)) => _ = self.handed_out(held),
                    Answer::Item(None) => assert!(self.reference.is_over()),
                    Answer::Left(left) => self.stop(Ok(left)),
                }
            }
        }
    }

    pub(super) fn drop_waiter(&mut self, at: usize) {
        let waiter = self.waiters.remove(at);
        let dropped = self.call(|| drop(waiter.future));
        if let (true, Until::Dirty(key)) = (self.is_effective(&dropped), waiter.until) {
            self.reference.done(key); // it held the key
        }
    }
}
