//! The one reference (`tests/reference/`) with a driver thread and with getters that expire delays beside it.
//!
//! Other tests see delays expire in `turn` alone, because the real clock moves by itself, and getters expire nothing by a given one. Here
//! the clock is given and yet counts as real ([`Clock::mock_for_getters`]), and the test makes the steps of the driver thread itself.

use super::Shared;
use crate::machine::Expired;
use crate::reference::key::Key;
use crate::reference::plan::{ByGetter, Inside};
use crate::reference::{crossings, swarm};
use crate::shared::driver::states::{DriverState, NextStep};
use crate::sync::Parker;
use crate::{Clock, MockClock, WorkQueue, WorkQueueBuilder};
use std::cell::RefCell;

thread_local!(static EXPIRED: RefCell<Vec<ByGetter>> = const { RefCell::new(Vec::new()) });

/// A getter of this thread has expired delays, when the shard had made so many hand-outs.
pub(super) fn note(shard: usize, handed_out: u64, turn: &Expired) {
    let count = turn.by_answer.iter().sum::<usize>() + turn.rests;
    let by_getter = ByGetter { shard, handed_out, count, has_more: turn.has_more };
    EXPIRED.with_borrow_mut(|expired| expired.push(by_getter));
}

fn build(builder: WorkQueueBuilder<Key>) -> (WorkQueue<Key>, MockClock) {
    let (clock, time) = Clock::mock_for_getters();
    EXPIRED.take();
    (builder.clock(clock).build_with(|_| Ok(())), time)
}

fn drive(queue: &WorkQueue<Key>) -> bool {
    let has_thread = matches!(queue.shared.hub().driver, DriverState::Running | DriverState::Parked { .. });
    if has_thread {
        let passes = || Shared::drive(&queue.shared, &Parker::new());
        assert!((0..20).any(|_| !matches!(passes(), NextStep::Again)), "the driver does not come to rest");
    }
    has_thread
}

fn parked_until(queue: &WorkQueue<Key>) -> Option<u64> {
    if let DriverState::Parked { until, .. } = queue.shared.hub().driver { Some(until) } else { None }
}

const INSIDE: Inside = Inside { build, drive, parked_until, expired: || EXPIRED.take() };

/// The seed of the first life, and how many there are; `ci/reference.sh` runs more.
#[test]
fn getters_and_the_driver_expire_delays_as_the_reference_says() {
    let setting = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (first, lives) = (setting("DRIVEN_SEED").unwrap_or(0), setting("DRIVEN_LIVES").unwrap_or(300));
    swarm::lives_inside(first..first + lives, INSIDE);
    assert!(crossings::expiries_after_hand_outs() > 0, "no getter has expired delays after it had taken a key");
}
