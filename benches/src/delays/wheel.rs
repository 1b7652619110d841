//! `hierarchical_hash_wheel_timer`: timers on a thread of its own, which receives them through a channel, and here passes keys whose
//! timers have expired to the mutex queue.
//!
//! What it cannot do: keep the earlier of two delays (a second timer for a key replaces the first), and report to another thread whether
//! there was a timer to cancel. Its resolution is a millisecond.

use super::{Cancel, DelaySubject, Manual};
use crate::{Key, Subject};
use common::mutex::parking_lot_mutex;
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{CancellableTimerEntry, QuadWheelWithOverflow};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicClosureState, Timer, TimerError};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thread_local::ThreadLocal;

/// The timer with its thread, and the mutex queue.
pub struct WheelTimer<K: Key> {
    ready: Arc<parking_lot_mutex::Queue<K>>,
    /// A handle can be used by one thread at a time, so each thread has its own.
    handles: ThreadLocal<RefCell<Handle<K>>>,
    timer: Option<TimerWithThread<K, Timeout<K>, PeriodicClosureState<K>>>,
}

type Handle<K> = TimerRef<K, Timeout<K>, PeriodicClosureState<K>>;

/// The timer thread runs this when a timer is due.
struct Timeout<K> {
    key: K,
    then: Then<K>,
}

enum Then<K> {
    Deliver(Arc<parking_lot_mutex::Queue<K>>),
    Answer(mpsc::Sender<()>),
}

impl<K> std::fmt::Debug for Timeout<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeout").finish_non_exhaustive()
    }
}

impl<K: Key> OneshotState for Timeout<K> {
    type Id = K;

    #[inline]
    fn id(&self) -> &K {
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

impl<K: Key> WheelTimer<K> {
    #[inline]
    fn schedule(&self, delay: Duration, timeout: Timeout<K>) {
        let timer = self.timer.as_ref().expect("until it is dropped");
        let handle = self.handles.get_or(|| RefCell::new(timer.timer_ref()));
        handle.borrow_mut().schedule_once(delay, timeout);
    }
}

impl<K: Key> Subject<K> for WheelTimer<K> {
    const NAME: &'static str = "hierarchical_hash_wheel_timer";

    fn make() -> Self {
        let ready = Arc::new(parking_lot_mutex::Queue::make());
        let timer = TimerWithThread::new().expect("a thread");
        Self { ready, handles: ThreadLocal::new(), timer: Some(timer) }
    }

    #[inline]
    fn add(&self, key: K) {
        self.ready.add(key);
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        self.ready.process(|_, key| work(self, key))
    }

    fn shut_down(&self) {
        self.ready.shut_down();
    }
}

impl<K: Key> DelaySubject<K> for WheelTimer<K> {
    /// Adds up to two milliseconds: the timer rounds down both the delay and the time that it counts from to full milliseconds, and would
    /// be early.
    #[inline]
    fn add_after(&self, key: K, delay: Duration) {
        let delay = Duration::from_millis(delay.as_nanos().div_ceil(1_000_000) as u64 + 1);
        self.schedule(delay, Timeout { key, then: Then::Deliver(Arc::clone(&self.ready)) });
    }

    fn settle(&self) -> Option<usize> {
        let (sender, answer) = mpsc::channel();
        // A delay of zero is not put into the wheel, where it would take the place of a key.
        self.schedule(Duration::ZERO, Timeout { key: K::nth(0), then: Then::Answer(sender) });
        answer.recv().expect("the thread lives");
        // Each pending timer has one reference.
        Some(Arc::strong_count(&self.ready) - 1)
    }
}

impl<K: Key> Drop for WheelTimer<K> {
    fn drop(&mut self) {
        let timer = self.timer.take().expect("until it is dropped");
        timer.shutdown().expect("the thread lives");
    }
}

/// The wheel without the thread.
pub struct ManualWheel<K: Key> {
    ready: parking_lot_mutex::Queue<K>,
    wheel: QuadWheelWithOverflow<Entry<K>>,
    now: Duration,
    /// The wheel's current time.
    ticks: u64,
}

#[derive(Debug)]
struct Entry<K>(K);

impl<K: Key> CancellableTimerEntry for Entry<K> {
    type Id = K;

    #[inline]
    fn id(&self) -> &K {
        &self.0
    }
}

impl<K: Key> Manual<K> for ManualWheel<K> {
    const NAME: &'static str = <WheelTimer<K> as Subject<K>>::NAME;

    fn make() -> Self {
        let wheel = QuadWheelWithOverflow::new();
        Self { ready: parking_lot_mutex::Queue::make(), wheel, now: Duration::ZERO, ticks: 0 }
    }

    #[inline]
    fn add(&mut self, key: K) {
        self.ready.add(key);
    }

    #[inline]
    fn add_after(&mut self, key: K, delay: Duration) {
        // The first tick that is not early.
        let deadline = (self.now + delay).as_nanos().div_ceil(1_000_000) as u64;
        let delay = Duration::from_millis(deadline - self.ticks);
        match self.wheel.insert_ref_with_delay(Rc::new(Entry(key)), delay) {
            Ok(()) => {}
            Err(TimerError::Expired(entry)) => self.ready.add(entry.0.clone()),
            Err(error @ TimerError::NotFound) => unreachable!("{error:?}"),
        }
    }

    fn advance(&mut self, by: Duration) -> usize {
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
                        self.ready.add(entry.0.clone());
                        due += 1;
                    }
                }
            }
        }
        due
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&K)) -> bool {
        self.ready.process(|_, key| work(key))
    }
}

impl<K: Key> Cancel<K> for ManualWheel<K> {
    #[inline]
    fn cancel(&mut self, key: &K) -> bool {
        self.wheel.cancel(key).is_ok()
    }
}
