//! How long a turn takes (get, add of the same key, `done`) when threads do not run: more threads than cores, and threads to which the
//! system gives a core only if no other wants one. Such a thread may stop in a critical section.

use crate::subjects::Shards;
use common::Subject;
use common::mutex::{parking_lot_mutex, std_mutex};
use hdrhistogram::Histogram;
use keyqueue_benches::rivals::{DashSeg, Papaya};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Queued keys.
const KEYS: u64 = 4096;

/// Threads that are timed, and threads that run only on a core that is idle.
struct Threads {
    timed: usize,
    idle: usize,
}

/// Runs threads for some seconds, and returns the times of their turns.
type Turns = fn(&Threads, f64) -> Histogram<u64>;

pub fn print(seconds: f64) {
    for (name, threads) in [
        ("a turn, 32 threads", Threads { timed: 32, idle: 0 }),
        ("a turn, 2 threads; 4 `SCHED_IDLE` threads beside them", Threads { timed: 2, idle: 4 }),
    ] {
        let subjects: [(&str, Turns); 6] = [
            ("keyqueue, 1 shard", turns::<Shards<1>>),
            ("keyqueue, 16 shards", turns::<Shards<16>>),
            (parking_lot_mutex::Queue::<u64>::NAME, turns::<parking_lot_mutex::Queue<u64>>),
            (std_mutex::Queue::<u64>::NAME, turns::<std_mutex::Queue<u64>>),
            (DashSeg::<u64>::NAME, turns::<DashSeg<u64>>),
            (Papaya::<u64>::NAME, turns::<Papaya<u64>>),
        ];
        for (queue, turns) in subjects {
            crate::print_spread(name, queue, &turns(&threads, seconds));
        }
    }
}

/// The times of the turns of all timed threads.
fn turns<Q: Subject<u64>>(threads: &Threads, seconds: f64) -> Histogram<u64> {
    let queue = Q::make();
    (0..KEYS).for_each(|key| queue.add(key));
    let stop = AtomicBool::new(false);
    let all = Mutex::new(Histogram::new(3).expect("three digits"));
    let turn = |queue: &Q| queue.process(|queue, &key| queue.add(key));
    thread::scope(|scope| {
        for _ in 0..threads.idle {
            scope.spawn(|| {
                run_on_idle_cores();
                while !stop.load(Ordering::Relaxed) {
                    turn(&queue);
                }
            });
        }
        for _ in 0..threads.timed {
            scope.spawn(|| {
                let mut mine = Histogram::<u64>::new(3).expect("three digits");
                while !stop.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    turn(&queue);
                    mine.record(begin.elapsed().as_nanos().max(1) as u64).expect("resizes by itself");
                }
                all.lock().expect("no thread panics").add(mine).expect("resizes by itself");
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
