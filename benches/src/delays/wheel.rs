//! `hierarchical_hash_wheel_timer`: timers on a thread of its own, which receives them through a channel, and here passes keys whose
//! timers have expired to the mutex queue.
//!
//! What it cannot do: keep the earlier of two delays (a second timer for a key replaces the first), and report to another thread whether
//! there was a timer to cancel. Its resolution is a millisecond.

use super::{ManualRival, Passes, Passing, Ready, ReadyQueue};
use crate::Subject as _;
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{CancellableTimerEntry, QuadWheelWithOverflow};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicClosureState, Timer};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thread_local::ThreadLocal;

const NAME: &str = "hierarchical_hash_wheel_timer";

/// The timer with its thread, and the mutex queue.
pub type WheelTimer = Passing<Wheel>;

pub struct Wheel {
    ready: Arc<ReadyQueue>,
    /// A handle can be used by one thread at a time, so each thread has its own.
    handles: ThreadLocal<RefCell<TimerRef<u64, Timeout, PeriodicClosureState<u64>>>>,
    timer: Option<TimerWithThread<u64, Timeout, PeriodicClosureState<u64>>>,
}

/// The timer thread runs this when a timer is due.
struct Timeout {
    key: u64,
    then: Then,
}

enum Then {
    Deliver(Arc<ReadyQueue>),
    Answer(mpsc::Sender<()>),
}

impl std::fmt::Debug for Timeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeout").finish_non_exhaustive()
    }
}

impl OneshotState for Timeout {
    type Id = u64;

    #[inline]
    fn id(&self) -> &u64 {
        &self.key
    }

    #[inline]
    fn trigger(self) {
        match self.then {
            Then::Deliver(ready) => ready.add(self.key),
            Then::Answer(answer) => _ = answer.send(()),
        }
    }
}

impl Wheel {
    #[inline]
    fn schedule(&self, delay: Duration, timeout: Timeout) {
        let timer = self.timer.as_ref().expect("until it is dropped");
        let handle = self.handles.get_or(|| RefCell::new(timer.timer_ref()));
        handle.borrow_mut().schedule_once(delay, timeout);
    }
}

impl Passes for Wheel {
    const NAME: &'static str = NAME;

    fn make(ready: Arc<ReadyQueue>) -> Self {
        let timer = TimerWithThread::new().expect("a thread");
        Self { ready, handles: ThreadLocal::new(), timer: Some(timer) }
    }

    /// Adds up to two milliseconds: the timer rounds down both the delay and the time that it counts from to full milliseconds, and would
    /// be early.
    #[inline]
    fn add_after(&self, key: u64, delay: Duration) {
        let delay = Duration::from_millis(delay.as_nanos().div_ceil(1_000_000) as u64 + 1);
        self.schedule(delay, Timeout { key, then: Then::Deliver(Arc::clone(&self.ready)) });
    }

    fn settle(&self) -> Option<usize> {
        let (sender, answer) = mpsc::channel();
        // A delay of zero is not put into the wheel, where it would take the place of a key.
        self.schedule(Duration::ZERO, Timeout { key: 0, then: Then::Answer(sender) });
        answer.recv().expect("the thread lives");
        // Each pending timer has one reference, and two are ours.
        Some(Arc::strong_count(&self.ready) - 2)
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        let timer = self.timer.take().expect("until it is dropped");
        timer.shutdown().expect("the thread lives");
    }
}

/// The wheel without the thread.
pub type ManualWheel = ManualRival<WheelAlone>;

pub struct WheelAlone {
    wheel: QuadWheelWithOverflow<Entry>,
    now: Duration,
    /// The wheel's current time.
    ticks: u64,
}

#[derive(Debug)]
struct Entry(u64);

impl CancellableTimerEntry for Entry {
    type Id = u64;

    #[inline]
    fn id(&self) -> &u64 {
        &self.0
    }
}

impl super::Timer for WheelAlone {
    const NAME: &'static str = NAME;

    fn make() -> Self {
        Self { wheel: QuadWheelWithOverflow::new(), now: Duration::ZERO, ticks: 0 }
    }

    #[inline]
    fn set(&mut self, key: u64, delay: Duration) {
        // The first tick that is not early.
        let deadline = (self.now + delay).as_nanos().div_ceil(1_000_000) as u64;
        let delay = Duration::from_millis(deadline - self.ticks);
        self.wheel.insert_ref_with_delay(Rc::new(Entry(key)), delay).expect("no delay is zero");
    }

    fn advance(&mut self, by: Duration, ready: &mut Ready<u64>) -> usize {
        self.now += by;
        let target = self.now.as_millis() as u64;
        let mut due = 0;
        while self.ticks < target {
            match self.wheel.can_skip() {
                Skip::Empty => self.ticks = target,
                Skip::Millis(most) => {
                    let skipped = u64::from(most).min(target - self.ticks);
                    self.wheel.skip(skipped as u32);
                    self.ticks += skipped;
                }
                Skip::None => {
                    self.ticks += 1;
                    for entry in self.wheel.tick() {
                        ready.add(entry.0);
                        due += 1;
                    }
                }
            }
        }
        due
    }

    #[inline]
    fn cancel(&mut self, key: &u64) -> bool {
        self.wheel.cancel(key).is_ok()
    }
}
