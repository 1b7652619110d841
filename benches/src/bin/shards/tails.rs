//! How long each call of a turn takes (get, add of the same key, `done`), and how long the longest of many: with more threads than cores,
//! and beside threads to which the system gives a core only if no other wants one. Such a thread may stop in a critical section.

use crate::subjects::{NAMES, Shards};
use common::Subject;
use common::mutex::{parking_lot_mutex, std_mutex};
use hdrhistogram::Histogram;
use keyqueue_benches::markdown::Table;
use keyqueue_benches::numbers::{figures, median};
use keyqueue_benches::rivals::{DashSeg, Papaya, Scc};
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

const SETTINGS: [(&str, Threads); 3] = [
    ("32 threads", Threads { timed: 32, idle: 0 }),
    ("2 threads", Threads { timed: 2, idle: 0 }),
    ("2 threads and 4 `SCHED_IDLE` threads", Threads { timed: 2, idle: 4 }),
];
/// The calls, and all three together.
const CALLS: [&str; 4] = ["get", "add", "done", "turn"];
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

/// The times of each of [`CALLS`].
type Calls = [Histogram<u64>; 4];

/// Runs threads for some seconds, and returns the times of their calls.
type Run = fn(&Threads, f64) -> Calls;

const RUNS: [Option<Run>; 8] = [
    Some(|threads, seconds| run::<Shards<1>>(threads, seconds, turn_of_ours)),
    Some(|threads, seconds| run::<Shards<16>>(threads, seconds, turn_of_ours)),
    None,
    Some(|threads, seconds| run::<parking_lot_mutex::Queue<u64>>(threads, seconds, turn)),
    Some(|threads, seconds| run::<std_mutex::Queue<u64>>(threads, seconds, turn)),
    Some(|threads, seconds| run::<DashSeg<u64>>(threads, seconds, turn)),
    Some(|threads, seconds| run::<Papaya<u64>>(threads, seconds, turn)),
    Some(|threads, seconds| run::<Scc<u64>>(threads, seconds, turn)),
];

/// The tails of a setting: for each subject and call the median of each percentile, in nanoseconds.
pub struct Tails {
    setting: &'static str,
    rows: Vec<(&'static str, &'static str, u64, [f64; 6])>,
    /// Nanoseconds a turn, of all threads together, with the readings of the clock: round by round.
    pub turns: Vec<(&'static str, Vec<f64>)>,
}

/// Measures each setting. The settings and the subjects run in turn, round after round: on a shared machine a minute may be slower than
/// the next one.
pub fn measure(rounds: usize, seconds: f64, wanted: impl Fn(&str) -> bool) -> Vec<Tails> {
    let subjects = NAMES.iter().zip(RUNS).filter_map(|(name, run)| Some((*name, run.filter(|_| wanted(name))?)));
    let subjects: Vec<_> = subjects.collect();
    let mut all = SETTINGS.map(|_| vec![Vec::new(); subjects.len()]);
    for round in 0..rounds {
        for ((_, threads), all) in SETTINGS.iter().zip(&mut all) {
            for n in (0..subjects.len()).map(|n| (n + round) % subjects.len()) {
                all[n].push(subjects[n].1(threads, seconds));
            }
        }
    }
    let of_setting = |((setting, _), all): (&(&'static str, Threads), Vec<Vec<Calls>>)| {
        let mut rows = Vec::new();
        for (call, name) in CALLS.into_iter().enumerate() {
            for ((subject, _), rounds) in subjects.iter().zip(&all) {
                let each =
                    |percentile| rounds.iter().map(move |round| round[call].value_at_percentile(percentile) as f64);
                let curve = PERCENTILES.map(|percentile| median(&each(percentile).collect::<Vec<_>>()));
                rows.push((name, *subject, rounds.iter().map(|round| round[call].len()).sum(), curve));
            }
        }
        let ns = |rounds: &Vec<Calls>| rounds.iter().map(|round| seconds * 1e9 / round[0].len() as f64).collect();
        let turns = subjects.iter().zip(&all).map(|((subject, _), rounds)| (*subject, ns(rounds))).collect();
        Tails { setting, rows, turns }
    };
    SETTINGS.iter().zip(all).map(of_setting).collect()
}

impl Tails {
    /// The name of the row of [`turns`](Self::turns).
    pub fn name(&self) -> String {
        format!("turn and clock, {}", self.setting)
    }

    /// Prints the distributions as the report reads them.
    pub fn print(&self) {
        for (call, subject, count, curve) in &self.rows {
            let (what, curve) = (format!("{call}, {}", self.setting), PERCENTILES.into_iter().zip(*curve));
            let curve: Vec<_> = curve.collect();
            let row = serde_json::json!({"section": "tails", "what": what, "subject": subject, "count": count, "curve": curve});
            println!("{}", serde_json::json!({"spread": row}));
        }
    }

    pub fn table(&self) -> Table {
        let head = [self.setting, "", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
        let mut table = Table::new(head);
        for (call, subject, _, curve) in &self.rows {
            let words = [*call, subject].map(str::to_owned).into_iter();
            table.row(words.chain(curve.map(|ns| figures(ns / 1000.0))));
        }
        table
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
fn run<Q: Subject<u64>>(threads: &Threads, seconds: f64, turn: fn(&Q) -> Moments) -> Calls {
    // Up to a minute, so that no thread has to enlarge its own.
    let empty = || CALLS.map(|_| Histogram::new_with_max(60_000_000_000, 2).expect("a range"));
    let queue = Q::make();
    (0..KEYS).for_each(|key| queue.add(key));
    let stop = AtomicBool::new(false);
    let all = Mutex::new(empty());
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
