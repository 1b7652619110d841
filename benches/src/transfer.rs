//! How long a cache line takes from one core to another: two threads pass a word to and fro.
//!
//! The host of a virtual machine moves its cores, so that they share a cache or do not, and the time changes by a factor of four within
//! seconds. Threads that share a line feel that, so a figure of two threads says little without it.

use crate::machine::cores;
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Passes to and fro. Half a millisecond if the cores are far from each other.
const PASSES: u64 = 1_500;

/// Nanoseconds a pass, one way. Large if the threads do not run at the same time: then the figure beside it says little, too. `None` with one
/// core.
pub fn transfer() -> Option<f64> {
    if cores() < 2 {
        return None;
    }
    let word = CachePadded::new(AtomicU64::new(0));
    let wait_for = |passes| {
        while word.load(Ordering::Acquire) != passes {} // without a spin hint, which takes as long as a pass
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for pass in 0..=PASSES {
                wait_for(2 * pass);
                word.store(2 * pass + 1, Ordering::Release);
            }
        });
        wait_for(1); // the other thread runs
        let begin = Instant::now();
        for pass in 0..PASSES {
            word.store(2 * pass + 2, Ordering::Release);
            wait_for(2 * pass + 3);
        }
        Some(begin.elapsed().as_nanos() as f64 / (2 * PASSES) as f64)
    })
}
