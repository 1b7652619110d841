//! The workloads, and the queues that run them.

use common::mutex::{parking_lot_mutex, std_mutex};
use common::threads::timed;
use common::workloads::{cycle, fill_and_drain, own_keys, ring, unique, with_queued_keys};
use common::{Key, Subject, subject};
use hdrhistogram::Histogram;
use keyqueue::{AddOptions, Driver, WorkQueue};
use keyqueue_benches::delays::DelaySubject;
use keyqueue_benches::delays::lateness::{bare, lateness};
use keyqueue_benches::harness::{Notes, Plan, Step};
use keyqueue_benches::latency::wake_latency;
use keyqueue_benches::rivals::{DashSeg, Papaya, Scc};
use keyqueue_benches::runs;
use keyqueue_benches::workload::{Run, once};
use std::time::{Duration, Instant};

/// A queue with this number of shards.
pub struct Shards<const N: usize>(pub WorkQueue<u64>);

const fn name(shards: usize) -> &'static str {
    if shards == 1 { "keyqueue, 1 shard" } else { "keyqueue, 16 shards" }
}

subject!([const N: usize] Shards<N>, u64, name(N), WorkQueue::builder().shards(N).build(), |queue, key| queue.add(key));

impl<const N: usize> DelaySubject for Shards<N> {
    fn add_after(&self, key: u64, delay: Duration) {
        self.0.add_after(key, delay);
    }

    fn settle(&self) -> usize {
        self.0.delayed_len()
    }
}

const TWO: &str = "2 queues (keyqueue)";

/// Keys that are queued in the workloads with a fixed set of keys.
const KEYS: u64 = 1024;

pub type ParkingLot = parking_lot_mutex::Queue<u64>;
pub type Std = std_mutex::Queue<u64>;

macro_rules! everyone {
    ($($run:tt)*) => {
        runs!(u64; Shards<1>, Shards<16>, ParkingLot, Std, DashSeg<u64>, Papaya<u64>, Scc<u64>; $($run)*)
    };
}

pub fn plan(plan: &mut Plan, ops: u64, rounds: usize) {
    let mut row = |name: &str, subjects| plan.row(["shards", "", name], ops, rounds, subjects);
    row("cycle, 1 thread", everyone!(cycle(KEYS, ops)));
    row(&format!("fill and drain, {ops} keys"), everyone!(fill_and_drain(ops)));
    rings(plan, "shards", &[1, 2, 4, 16, 64, 512], ops, rounds);
    let mut row = |name: &str, subjects| plan.row(["shards", "", name], ops, rounds, subjects);
    for threads in [2, 16, 64] {
        let mut subjects = without_scc_if(threads > 2, everyone!(own_keys(threads, ops)));
        if threads == 2 {
            let turn = |queue: &Shards<1>, n| {
                queue.add(n);
                queue.process(|_, key| _ = std::hint::black_box(key));
            };
            subjects.insert(2, (TWO, once(move || two_queues(0, ops, turn))));
        }
        row(&format!("own keys, {threads} threads"), subjects);
    }
    for (pairs, backlog) in [(1, 1000), (1, 100_000), (2, 1000), (8, 1000), (8, 100_000)] {
        let subjects = without_scc_if(pairs > 2, everyone!(unique(pairs, backlog, ops)));
        row(&format!("unique {pairs}x{pairs}, backlog {backlog}"), subjects);
    }
    let mut subjects = Vec::from([1, 16].map(|shards| (name(shards), once(move || parted_duplicates(shards, ops)))));
    subjects.push((TWO, once(move || two_queues(KEYS, ops, |queue, n| queue.add(n % (KEYS / 2))))));
    row("duplicates, 2 threads", subjects);
    for threads in [1, 2] {
        let subjects = [1, 16].map(|shards| (name(shards), once(move || delays(shards, threads, ops))));
        row(&format!("add_after, {threads} threads"), subjects.into());
    }
    latencies(plan, rounds);
}

/// With many threads and keys that are new, those of `scc` spin for each other in its lock (`saa`): a round took minutes, and was not
/// waited for.
fn without_scc_if(many: bool, mut subjects: Vec<(&'static str, Run)>) -> Vec<(&'static str, Run)> {
    subjects.retain(|&(subject, _)| !many || subject != Scc::<u64>::NAME);
    subjects
}

pub fn rings(plan: &mut Plan, section: &str, threads: &[u64], ops: u64, rounds: usize) {
    for &threads in threads {
        let mut subjects = everyone!(ring(KEYS, threads, ops));
        if threads == 2 {
            let turn = |queue: &Shards<1>, _| _ = queue.process(|queue, &key| queue.add(key));
            subjects.insert(2, (TWO, once(move || two_queues(KEYS, ops, turn))));
        }
        plan.row([section, "", &format!("ring, {threads} threads")], ops, rounds, subjects);
    }
}

/// Rings whose threads work for a tenth of a microsecond after each call.
pub fn busy_rings(plan: &mut Plan, ops: u64, rounds: usize) {
    for threads in [2, 16] {
        let name = format!("busy ring, {threads} threads");
        plan.row(["tails", "", &name], ops, rounds, everyone!(busy_ring(KEYS, threads, ops)));
    }
}

fn busy_ring<K: Key, Q: Subject<K>>(keys: u64, threads: u64, turns: u64) -> Duration {
    let work = || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_nanos(100) {}
    };
    let queue: Q = with_queued_keys(keys);
    timed(threads, |_| {
        for _ in 0..turns / threads {
            queue.process(|queue, key| {
                work();
                queue.add(key.clone());
                work();
            });
            work();
        }
    })
}

/// Two threads with a queue each, which has half of the keys: the limit for two threads that share nothing.
fn two_queues(keys: u64, calls: u64, call: impl Fn(&Shards<1>, u64) + Sync) -> Duration {
    let queues = [(); 2].map(|()| with_queued_keys::<u64, Shards<1>>(keys / 2));
    timed(2, |thread| (0..calls / 2).for_each(|n| call(&queues[thread as usize], n)))
}

/// Each of two threads adds its own half of the queued keys again and again.
fn parted_duplicates(shards: usize, adds: u64) -> Duration {
    let queue = WorkQueue::builder().shards(shards).build();
    queue.add_all(0..KEYS);
    timed(2, |thread| (0..adds / 2).for_each(|n| _ = queue.add(n % (KEYS / 2) * 2 + thread)))
}

/// New delayed keys, each with a deadline of its own within an hour.
fn delays(shards: usize, threads: u64, keys: u64) -> Duration {
    let queue = WorkQueue::builder().shards(shards).driver(Driver::Manual).build();
    timed(threads, |thread| {
        for n in 0..keys / threads {
            let key = n * threads + thread;
            let delay = Duration::from_micros(1_000_000 + key.wrapping_mul(0x9e37_79b9) % 3_600_000_000);
            queue.add_with(key, AddOptions::new().after(delay));
        }
    })
}

/// How late a key is handed out: to a getter that was parked, and after its deadline.
fn latencies(plan: &mut Plan, rounds: usize) {
    const WAKES: u64 = 2000;
    const DELAYED: u64 = 2000;
    const WAKE_UP: &str = "wake-up of a parked getter";
    const QUIET: &str = "after a deadline";
    const BESIDE: &str = "after a deadline, beside 2 threads that set delays";
    type Row = (&'static str, &'static str, fn() -> Histogram<u64>);
    let rows: [Row; 10] = [
        (WAKE_UP, name(1), || wake_latency::<Shards<1>>(WAKES)),
        (WAKE_UP, name(16), || wake_latency::<Shards<16>>(WAKES)),
        (WAKE_UP, ParkingLot::NAME, || wake_latency::<ParkingLot>(WAKES)),
        (WAKE_UP, Std::NAME, || wake_latency::<Std>(WAKES)),
        (QUIET, name(1), || lateness::<Shards<1>>(DELAYED, false).late),
        (QUIET, name(16), || lateness::<Shards<16>>(DELAYED, false).late),
        (BESIDE, name(1), || lateness::<Shards<1>>(DELAYED, true).late),
        (BESIDE, name(16), || lateness::<Shards<16>>(DELAYED, true).late),
        (QUIET, "a bare thread", || bare(DELAYED, false).late),
        ("after a deadline, beside 2 threads that compute", "a bare thread", || bare(DELAYED, true).late),
    ];
    for (what, subject, measure) in rows {
        let step = move |notes: &mut Notes| notes.spread(["shards", what, subject], measure(), None);
        plan.task(format!("shards latencies {what}"), rounds, vec![Box::new(step) as Step]);
    }
}
