//! What the release of a lock costs: the queue's lock (`src/sync/lock.rs`, compiled from there) with its own release and with three others,
//! beside the mutexes of `std` and `parking_lot`, in one run. The data go to standard output, as a table or with `--json` as lines.
//!
//! | subject | the store of `false` that releases | between it and the load of `has_parked` |
//! |---|---|---|
//! | plain store | a store | nothing that the processor sees: the race of `reports/lock.md` |
//! | store and fence | a store | a fence: no race |
//! | swap | an atomic swap | nothing: a load may still pass it on ARM, not on x86 |
//! | compare-exchange | an atomic compare-and-exchange | as for a swap |

#![allow(clippy::duplicate_mod, reason = "one lock, with four releases")]

use clap::Parser;
use keyqueue_benches::harness::Plan;
use keyqueue_benches::results::{Run, Subject};
use keyqueue_benches::workload::once;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

mod exchange;
mod fenced;
mod parts;
mod plain;
mod swap;

/// Measures releases.
#[derive(Parser)]
struct Options {
    /// The number of rounds; their median counts.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Critical sections of a run.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// Prints the data of each round.
    #[arg(long)]
    json: bool,
}

/// A mutex around a counter.
trait Lock: Send + Sync + 'static {
    const NAME: &'static str;

    fn make() -> Self;

    /// One critical section.
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R;
}

macro_rules! locks {
    ($($name:literal, $lock:ty, $guard:ident => $take:expr;)*) => {$(
        impl Lock for $lock {
            const NAME: &'static str = $name;

            fn make() -> Self {
                Self::new(0)
            }

            #[inline]
            fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
                let $guard = self;
                f(&mut $take)
            }
        }
    )*};
}

locks! {
    "plain store", plain::Mutex<u64>, lock => lock.lock();
    "store and fence", fenced::Mutex<u64>, lock => lock.lock();
    "swap", swap::Mutex<u64>, lock => lock.lock();
    "compare-exchange", exchange::Mutex<u64>, lock => lock.lock();
    "std", std::sync::Mutex<u64>, lock => lock.lock().expect("no panic");
    "parking_lot", parking_lot::Mutex<u64>, lock => lock.lock();
}

/// One thread: `ops` critical sections, and `work` steps in each and after each.
fn alone<L: Lock>(ops: u64, work: u64) -> Duration {
    let lock = L::make();
    let start = Instant::now();
    for _ in 0..ops {
        section(&lock, work);
    }
    let took = start.elapsed();
    assert_eq!(lock.with(|n| *n), ops);
    took
}

/// `threads` threads on one lock: `ops` critical sections together, from the first that begins to the last that ends.
fn together<L: Lock>(threads: u64, ops: u64, work: u64) -> Duration {
    let (lock, start) = (L::make(), Barrier::new(threads as usize));
    let run = || {
        start.wait();
        let begin = Instant::now();
        (0..ops / threads).for_each(|_| section(&lock, work));
        (begin, Instant::now())
    };
    let times: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let begin = times.iter().map(|(begin, _)| *begin).min().expect("some threads");
    times.iter().map(|(_, end)| end.duration_since(begin)).max().expect("some threads")
}

#[inline(always)]
fn section(lock: &impl Lock, work: u64) {
    lock.with(|n| {
        *n += 1;
        steps(work);
    });
    steps(work);
}

/// Dependent steps of about a nanosecond each or less.
#[inline(always)]
fn steps(number: u64) {
    let mut step = 0;
    while step < number {
        step = black_box(step + 1);
    }
}

macro_rules! subjects {
    ($run:ident $arguments:tt; $($lock:ty),*) => {
        vec![$((<$lock as Lock>::NAME, once(move || subjects!(@ $run, $lock, $arguments)))),*]
    };
    (@ $run:ident, $lock:ty, ($($argument:expr),*)) => { $run::<$lock>($($argument),*) };
}

fn main() {
    let Options { rounds, ops, json } = Options::parse();
    let mut plan = Plan::default();
    macro_rules! row {
        ($name:literal, $run:ident $arguments:tt) => {
            plan.row(["locks", "", $name], ops, rounds, subjects!($run $arguments;
                plain::Mutex<u64>, fenced::Mutex<u64>, swap::Mutex<u64>, exchange::Mutex<u64>,
                std::sync::Mutex<u64>, parking_lot::Mutex<u64>));
        };
    }
    row!("1 thread, an empty section", alone(ops, 0));
    row!("1 thread, a section of 10 steps, and 10 outside", alone(ops, 10));
    row!("2 threads, 10 and 10", together(2, ops, 10));
    row!("8 threads, 10 and 10", together(8, ops, 10));
    let results = plan.run(Run::here("locks"));
    if json {
        print!("{}", results.to_lines());
        return;
    }
    println!("{}, commit {}, {}", results.run.machine, results.run.commit, results.run.compiler);
    println!("nanoseconds per critical section: median (least) of {rounds} rounds of {ops}\n");
    let names: Vec<_> = results.times[0].subjects.iter().map(|subject| subject.name.as_str()).collect();
    println!("| | {} |\n|---|{}", names.join(" | "), "---:|".repeat(names.len()));
    for times in &results.times {
        let cell = |subject: &Subject| format!("{:.1} ({:.1})", subject.median(), subject.least());
        println!("| {} | {} |", times.name, times.subjects.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
}
