//! The wait for one more key, until a time of the queue's clock: how a batch of workers fills.
//!
//! ```text
//!  thread:  on the list of getters ─▶ visit: a key? ─▶ is it over? ─▶ park until the time; a move of a mock clock unparks it
//!  task:    on the list of getters ─▶ visit: a key? ─▶ hub: set the alarm ─▶ is it over? ─▶ pending
//!  driver:  parks until the first alarm ─▶ hub: take the tasks whose time has come ─▶ wake them
//! ```
//!
//! **It ends.** A task looks at the clock after it has set its alarm. If the driver has read the clock before that, and so leaves the alarm
//! where it is, it comes again when the time has come; if the time has come already, the task sees it. With
//! [`Driver::Manual`](super::Driver) the next `turn` is the driver. A thread asks nobody: it subscribes to the clock before it looks at it.
//!
//! **The shut-down ends it, too**, even if keys of full groups are queued. It sets its flag and takes all getters off their list in one
//! critical section of the hub. A getter that goes on the list later sees the flag.
//!
//! A getter whose wait ends has taken no key. It leaves the list as a `get_timeout` does, or a future that is dropped (W3).

use super::hub::Flags;
use super::{Shared, Wait};
use crate::Item;
use crate::get_async::GetAsync;
use crate::shared::driver::states::ClockSubscription;
use crate::sync::{Arc, with_parker};
use crate::wait::{Ticket, Waiter};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

impl<K> Shared<K> {
    fn is_linger_over(&self, until: u64) -> bool {
        self.is_shutting_down() || self.settings.clock.now() >= until
    }

    /// Takes a key. If there is none, parks until there is one, or until the queue's clock shows this time, or the queue shuts down.
    pub(crate) fn get_until(this: &Arc<Self>, until: u64) -> Option<Item<'_, K>> {
        let wait = with_parker(|parker| {
            let clock = &this.settings.clock;
            let _subscription = ClockSubscription::new(clock, parker);
            let waiter = || Waiter::Thread(parker.unparker());
            let mut wait = Self::take_or_wait(this, waiter());
            while let Wait::Park(ticket) | Wait::ParkBriefly(ticket) = wait {
                if !this.is_linger_over(until) {
                    let soon = this.parks_until(matches!(wait, Wait::ParkBriefly(_)));
                    Self::park(this, parker, clock.instant(until).into_iter().chain(soon).min());
                }
                wait = Self::resume(this, ticket, waiter(), this.is_linger_over(until));
            }
            wait
        });
        let Wait::Item(taken) = wait else { return None };
        Some(Item::new(this, Self::hand_out(this, taken)))
    }

    /// Has the driver wake this task at that time. Returns whether the task is to wait.
    fn set_alarm(this: &Arc<Self>, until: u64, alarm: &mut Option<Ticket>, waker: &Waker) -> bool {
        if this.is_linger_over(until) {
            return false;
        }
        let waiter = Waiter::Task(waker.clone());
        let earlier = {
            let mut hub = this.hub();
            this.wake_driver_for(until, &mut hub);
            hub.set(Flags::TIMED, true);
            hub.alarms.set(until, alarm, waiter)
        };
        this.discard(earlier); // after the lock (W4)
        Self::ensure_driver(this);
        !this.is_linger_over(until)
    }
}

/// [`get_until`](Shared::get_until), for a task.
pub(crate) struct Linger<'q, K> {
    queue: &'q Arc<Shared<K>>,
    get: GetAsync<'q, K>,
    until: u64,
    alarm: Option<Ticket>,
}

impl<'q, K> Linger<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>, until: u64) -> Self {
        Self { queue, get: GetAsync::new(queue).in_loop(), until, alarm: None }
    }
}

impl<'q, K> Future for Linger<'q, K> {
    type Output = Option<Item<'q, K>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let ready @ Poll::Ready(_) = Pin::new(&mut this.get).poll(cx) {
            return ready;
        }
        if Shared::set_alarm(this.queue, this.until, &mut this.alarm, cx.waker()) {
            return Poll::Pending;
        }
        Poll::Ready(None)
    }
}

impl<K> Drop for Linger<'_, K> {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            let waiter = self.queue.hub().alarms.remove(self.until, alarm);
            self.queue.discard(waiter); // after the lock (W4)
        }
    }
}
