//! Work of a known length.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Keeps a core busy for a while, without the clock and without memory: a chain of dependent steps.
#[derive(Debug, Clone, Copy)]
pub struct Spin(u64);

impl Spin {
    /// Work that takes `time` at the machine's current speed.
    pub fn lasting(time: Duration) -> Self {
        const STEPS: u64 = 2000;
        // The shortest of several: the others may have been interrupted.
        let times = (0..20).map(|_| {
            let start = Instant::now();
            Self(STEPS).run();
            start.elapsed()
        });
        let step = times.min().expect("there are some").as_secs_f64() / STEPS as f64;
        Self((time.as_secs_f64() / step).round() as u64)
    }

    /// Not inlined, so that all subjects run the same instructions: otherwise one loop is a sixth faster than another by its alignment.
    #[inline(never)]
    pub fn run(self) {
        let mut step = 0;
        while step < self.0 {
            step = black_box(step + 1);
        }
    }
}
