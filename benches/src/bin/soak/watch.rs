//! Watchers: the queue's numbers must add up at every moment, and nothing may take too long.

use crate::fail;
use crate::world::{World, count};
use keyqueue::Stats;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The current stage of the soak, and the number of stages so far.
static STAGE: Mutex<&str> = Mutex::new("the start");
static STAGES: AtomicU64 = AtomicU64::new(0);

/// In seconds of this process: time during which it is stopped does not count.
const PATIENCE: u32 = 60;

pub fn stage(name: &'static str) {
    *STAGE.lock() = name;
    count(&STAGES);
}

/// Checks the queue's numbers until the queue is shut down.
pub fn numbers(world: &World) {
    for round in 0_u64.. {
        let stats = world.queue.stats();
        check(&stats);
        let metrics = world.queue.inspect().metrics();
        check(&metrics.stats);
        if round % 64 == 0 && world.queue.inspect().processing_keys().len() > 10_000 {
            fail("more keys are processing than there are workers");
        }
        count(&world.counts.stats);
        if world.is_stopped() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn check(stats: &Stats) {
    let Stats { len, processing, handed_out, .. } = *stats;
    let coming_back = stats.adds().checked_sub(handed_out + len as u64);
    if coming_back.is_none_or(|keys| keys > processing as u64) {
        fail(format_args!("adds do not match hand-outs so far and those still owed: {stats:?}"));
    }
}

/// Fails if for a minute no stage ends and no key is handed out.
pub fn patience(world: &World) {
    let (mut quarters, mut before) = (0, (0, 0));
    while !world.is_over() {
        thread::sleep(Duration::from_millis(250));
        let now = (STAGES.load(Relaxed), world.ledger.hand_outs.load(Relaxed));
        if now != before {
            (quarters, before) = (0, now);
        }
        quarters += 1;
        if quarters == 4 * PATIENCE {
            eprintln!("{:?}", world.queue);
            fail(format_args!("waited for {PATIENCE} s for {}", STAGE.lock()));
        }
    }
}
