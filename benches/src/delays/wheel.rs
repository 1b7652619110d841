//! `hierarchical_hash_wheel_timer`, without its thread.
//!
//! What it cannot do: keep the earlier of two delays (a second timer for a key replaces the first). Its resolution is a millisecond.

use super::{ManualRival, Ready, Timer};
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{CancellableTimerEntry, QuadWheelWithOverflow};
use std::rc::Rc;
use std::time::Duration;

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

impl Timer for WheelAlone {
    const NAME: &'static str = "hierarchical_hash_wheel_timer";

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
