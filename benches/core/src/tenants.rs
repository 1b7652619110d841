//! Groups with weights, limits, rates and pauses, beside a plain queue and beside what one would put around a queue instead.

use common::by_hand::{ByHand, Turns};
use common::workloads::{cycle, fill_and_drain, ring};
use common::{Ours, Subject, subject};
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use keyqueue::{FairShare, GroupLimits, WorkQueue, WorkQueueBuilder};
use keyqueue_benches::harness::Plan;
use keyqueue_benches::workload::{Run, once};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

const OPS: u64 = 400_000;

/// What groups have.
const NOTHING: u8 = 0;
/// A weight of 2, and a limit that they do not reach.
const LIMITS: u8 = 1;
/// A rate that they do not reach.
const RATES: u8 = 2;
/// Turns that are paid in handler time.
const WORK_TIME: u8 = 4;

/// Hand-outs of a group in a second, and at once.
const RATE: (f64, u32) = (1e8, 1 << 30);

/// A queue of N groups in this number of shards, whose groups have what `HAS` names.
struct Tenants<const N: u64, const SHARDS: usize, const HAS: u8>(WorkQueue<u64>);

subject!(
    [const N: u64, const SHARDS: usize, const HAS: u8] Tenants<N, SHARDS, HAS>, u64, "groups",
    tenants::<N, SHARDS, HAS>().build(), |queue, key| queue.add(key)
);

fn tenants<const N: u64, const SHARDS: usize, const HAS: u8>() -> WorkQueueBuilder<u64> {
    let mut limits = GroupLimits::new();
    if HAS & LIMITS > 0 {
        limits = limits.weight(2).max_processing(1000);
    }
    if HAS & RATES > 0 {
        limits = limits.rate(RATE.0, RATE.1);
    }
    let builder = WorkQueue::builder().shards(SHARDS).fair_by(|key: &u64| key % N);
    let builder = if HAS & WORK_TIME > 0 { builder.fair_share(FairShare::WorkTime) } else { builder };
    if HAS & (LIMITS | RATES) > 0 { builder.group_limits(move |_| limits) } else { builder }
}

/// Groups without rates, and governor with a bucket for each group, which is asked with each key that is handed out.
struct Asking<const N: u64> {
    queue: WorkQueue<u64>,
    limiter: RateLimiter<u64, DashMapStateStore<u64>, DefaultClock>,
}

impl<const N: u64> Subject<u64> for Asking<N> {
    const NAME: &'static str = "groups, governor";

    fn make() -> Self {
        let quota = Quota::with_period(Duration::from_secs_f64(1.0 / RATE.0)).expect("a rate");
        let quota = quota.allow_burst(NonZeroU32::new(RATE.1).expect("a burst"));
        Self {
            queue: tenants::<N, 1, NOTHING>().build(),
            limiter: RateLimiter::new(quota, DashMapStateStore::default(), DefaultClock::default()),
        }
    }

    #[inline]
    fn add(&self, key: u64) {
        self.queue.add(key);
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        let Some(item) = self.queue.get() else { return false };
        assert!(self.limiter.check_key(&(*item % N)).is_ok(), "the rate is not reached");
        work(self, &item);
        true
    }

    fn shut_down(&self) {
        self.queue.shut_down();
    }
}

/// The names of queues, each with a run of the workload on it.
macro_rules! runs {
    ($($name:literal: $queue:ty),*; $work:ident $arguments:tt) => {
        vec![$(($name, runs!(@ $queue, $work $arguments))),*]
    };
    (@ $queue:ty, $work:ident($($argument:expr),*)) => { once(move || $work::<u64, $queue>($($argument),*)) };
}

/// A workload in groups with limits, and in groups with rates and with handler time.
macro_rules! rows {
    ($plan:ident, $rounds:ident, $name:literal, $ops:expr, $work:ident $arguments:tt) => {
        $plan.row(["order", "groups with weights and limits", $name], $ops, $rounds, runs!(
            "plain (keyqueue)": Ours<u64>,
            "keyqueue, 1 group": Tenants<1, 1, LIMITS>,
            "keyqueue, 100 groups": Tenants<100, 1, LIMITS>,
            "100 000 groups (keyqueue)": Tenants<100_000, 1, LIMITS>,
            "VecDeques (without limits)": ByHand<Turns<100>>;
            $work $arguments
        ));
        $plan.row(["order", "100 groups with rates, or fair by handler time", $name], $ops, $rounds, runs!(
            "plain (keyqueue)": Ours<u64>,
            "keyqueue, neither": Tenants<100, 1, NOTHING>,
            "keyqueue, rates": Tenants<100, 1, RATES>,
            "neither, and governor (keyqueue)": Asking<100>,
            "keyqueue, handler time": Tenants<100, 1, WORK_TIME>,
            "keyqueue, limits, rates, handler time": Tenants<100, 1, { LIMITS | RATES | WORK_TIME }>;
            $work $arguments
        ));
    };
}

pub fn plan(plan: &mut Plan, rounds: usize) {
    rows!(plan, rounds, "cycle, 1 thread, 1024 keys", OPS, cycle(1024, OPS));
    rows!(plan, rounds, "ring, 1 thread, 1024 queued keys", OPS, ring(1024, 1, OPS));
    rows!(plan, rounds, "ring, 1 thread, 100 000 queued keys", OPS, ring(100_000, 1, OPS));
    rows!(plan, rounds, "ring, 2 threads, 1024 queued keys", OPS, ring(1024, 2, OPS));
    rows!(plan, rounds, "fill and drain", 1_000_000, fill_and_drain(1_000_000));
    macro_rules! shards {
        ($name:literal, $threads:literal) => {
            plan.row(["order", "100 groups with limits, in shards", $name], OPS, rounds, runs!(
                "keyqueue, 1 shard": Tenants<100, 1, LIMITS>,
                "keyqueue, 4 shards": Tenants<100, 4, LIMITS>,
                "keyqueue, 16 shards": Tenants<100, 16, LIMITS>;
                ring(1024, $threads, OPS)
            ));
        };
    }
    shards!("ring, 1 thread, 1024 queued keys", 1);
    shards!("ring, 2 threads, 1024 queued keys", 2);
    let queued = |keys| move || vec![pauses(keys)];
    let runs: Vec<(&str, Run)> = vec![
        ("keyqueue, 1 queued key", Box::new(queued(1))),
        ("keyqueue, 1000 queued keys", Box::new(queued(1000))),
        ("keyqueue, 1 000 000 queued keys", Box::new(queued(1_000_000))),
    ];
    plan.row(["order", "a pause of a group", "pause and resume"], PAUSES, rounds, runs);
}

const PAUSES: u64 = 10_000;

/// Pauses one of two groups, and resumes it.
fn pauses(keys: u64) -> Duration {
    let queue = tenants::<2, 1, NOTHING>().build();
    (0..2 * keys).for_each(|key| _ = queue.add(key));
    let start = Instant::now();
    for _ in 0..PAUSES {
        black_box(queue.group(&0)).pause(Duration::from_secs(30)).expect("a queue with groups");
        black_box(queue.group(&0)).resume();
    }
    let time = start.elapsed();
    assert_eq!(queue.len() as u64, 2 * keys);
    time
}
