//! How long each call of a turn takes (get, add of the same key, `done`), and how long the longest of many: with more threads than cores,
//! and beside threads to which the system gives a core only if no other wants one. Such a thread may stop in a critical section.

use crate::workloads::{LOCK_FREE, LOCK_FREE_16, ParkingLot, Shards, Std};
use common::Subject;
use common::workloads::with_queued_keys;
use hdrhistogram::Histogram;
use keyqueue_benches::harness::{Notes, Plan, Step};
use keyqueue_benches::rivals::{DashSeg, Papaya, Scc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Queued keys.
const KEYS: u64 = 4096;

/// Threads that are timed, and threads that run only on a core that is idle.
const SETTINGS: [(&str, usize, usize); 3] =
    [("32 threads", 32, 0), ("2 threads", 2, 0), ("2 threads and 4 `SCHED_IDLE` threads", 2, 4)];
/// The calls, and all three together.
const CALLS: [&str; 4] = ["get", "add", "done", "turn"];

/// The times of each of [`CALLS`].
type Calls = [Histogram<u64>; 4];

/// Runs timed and idle threads for some seconds, and returns the times of their calls.
type Run = fn(usize, usize, f64) -> Calls;

const SUBJECTS: [(&str, Run); 9] = [
    (Shards::<1>::NAME, |timed, idle, seconds| run::<Shards<1>>(timed, idle, seconds, turn_of_ours)),
    (Shards::<16>::NAME, |timed, idle, seconds| run::<Shards<16>>(timed, idle, seconds, turn_of_ours)),
    (Shards::<LOCK_FREE>::NAME, |timed, idle, seconds| run::<Shards<LOCK_FREE>>(timed, idle, seconds, turn_of_ours)),
    (Shards::<LOCK_FREE_16>::NAME, |timed, idle, seconds| {
        run::<Shards<LOCK_FREE_16>>(timed, idle, seconds, turn_of_ours)
    }),
    (ParkingLot::NAME, |timed, idle, seconds| run::<ParkingLot>(timed, idle, seconds, turn)),
    (Std::NAME, |timed, idle, seconds| run::<Std>(timed, idle, seconds, turn)),
    (DashSeg::<u64>::NAME, |timed, idle, seconds| run::<DashSeg<u64>>(timed, idle, seconds, turn)),
    (Papaya::<u64>::NAME, |timed, idle, seconds| run::<Papaya<u64>>(timed, idle, seconds, turn)),
    (Scc::<u64>::NAME, |timed, idle, seconds| run::<Scc<u64>>(timed, idle, seconds, turn)),
];

/// A row of nanoseconds a turn, of all threads together, with the readings of the clock; and a distribution of each call.
pub fn plan(plan: &mut Plan, seconds: f64, rounds: usize) {
    for (setting, timed, idle) in SETTINGS {
        let step = |(subject, run): (&'static str, Run)| {
            Box::new(move |notes: &mut Notes| {
                let calls = run(timed, idle, seconds);
                let ns = seconds * 1e9 / calls[0].len() as f64;
                notes.row(["tails", "", &format!("turn and clock, {setting}"), subject], ns);
                for (call, times) in CALLS.into_iter().zip(calls) {
                    notes.spread(["tails", &format!("{call}, {setting}"), subject], times, None);
                }
            }) as Step
        };
        plan.task(format!("tails {setting}"), rounds, SUBJECTS.map(step).into());
    }
}

/// When a turn began, and when each of its calls returned.
type Moments = [Instant; 4];

#[inline]
fn turn<Q: Subject<u64>>(queue: &Q) -> Moments {
    let mut moments = [Instant::now(); 4];
    queue.process(|queue, &key| {
        moments[1] = Instant::now();
        queue.add(key);
        moments[2] = Instant::now();
    });
    moments[3] = Instant::now();
    moments
}

/// With `try_get`, which never parks. It may say `Empty` while other threads have all keys of the shards.
#[inline]
fn turn_of_ours<const N: usize>(queue: &Shards<N>) -> Moments {
    let begin = Instant::now();
    let item = loop {
        if let Ok(item) = queue.0.try_get() {
            break item;
        }
    };
    let got = Instant::now();
    queue.0.add(*item);
    let added = Instant::now();
    drop(item);
    [begin, got, added, Instant::now()]
}

/// The times of the calls of all timed threads.
fn run<Q: Subject<u64>>(timed: usize, idle: usize, seconds: f64, turn: fn(&Q) -> Moments) -> Calls {
    // Up to a minute, so that no thread has to enlarge its own.
    let empty = || CALLS.map(|_| Histogram::new_with_max(60_000_000_000, 2).expect("a range"));
    let queue: Q = with_queued_keys(KEYS);
    let stop = AtomicBool::new(false);
    let all = Mutex::new(empty());
    thread::scope(|scope| {
        for _ in 0..idle {
            scope.spawn(|| {
                run_on_idle_cores();
                while !stop.load(Ordering::Relaxed) {
                    turn(&queue);
                }
            });
        }
        for _ in 0..timed {
            scope.spawn(|| {
                let mut mine = empty();
                while !stop.load(Ordering::Relaxed) {
                    let moments = turn(&queue);
                    let spans = [(0, 1), (1, 2), (2, 3), (0, 3)].map(|(from, to)| moments[to] - moments[from]);
                    for (times, took) in mine.iter_mut().zip(spans) {
                        times.saturating_record(took.as_nanos().max(1) as u64);
                    }
                }
                let mut all = all.lock().expect("no thread panics");
                all.iter_mut().zip(mine).for_each(|(all, mine)| all.add(mine).expect("the same range"));
            });
        }
        thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    all.into_inner().expect("no thread panics")
}

/// `SCHED_IDLE`, for this thread.
fn run_on_idle_cores() {
    #[cfg(target_os = "linux")]
    {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: changes this thread's policy, and reads `none`.
        let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
        assert_eq!(result, 0, "a thread may always lower its priority");
    }
}
