//! What the release of a lock costs: the queue's lock (`src/sync/lock.rs`, compiled from there) with its own release and with three others,
//! beside the mutexes of `std` and `parking_lot`, in one run. Nanoseconds per critical section: medians, and in brackets the shortest round.
//!
//! | subject | the store of `false` that releases | between it and the load of `has_parked` |
//! |---|---|---|
//! | plain store | a store | nothing that the processor sees: the race of `reports/lock.md` |
//! | store and fence | a store | a fence: no race |
//! | swap | an atomic swap | nothing: a load may still pass it on ARM, not on x86 |
//! | compare-exchange | an atomic compare-and-exchange | as for a swap |

#![allow(clippy::duplicate_mod, reason = "one lock, with four releases")]

use clap::Parser;
use common::threads::timed;
use keyqueue_benches::harness::Plan;
use keyqueue_benches::results::Run;
use keyqueue_benches::tables;
use keyqueue_benches::workload::once;
use std::hint::black_box;
use std::time::Duration;

mod flag;

/// The queue's lock with this flag, and this step after its release.
macro_rules! releases {
    ($($name:ident: $flag:ident, $after:ident;)*) => {$(
        #[path = "."]
        mod $name {
            use self::parts::*;
            use crate::flag;

            type AtomicBool = flag::Flag<{ flag::$flag }>;

            #[inline(always)]
            fn unlock_check_fence() {
                std::sync::atomic::$after(Ordering::SeqCst);
            }

            const fn model_const(real: usize, _under_loom: usize) -> usize {
                real
            }

            fn now_real() -> u64 {
                unreachable!("it is not needed by the lock")
            }

            #[allow(dead_code, unreachable_pub, reason = "the queue uses all of it")]
            #[path = "../../../../src/sync/lock.rs"]
            mod lock;
            #[allow(dead_code, unused_imports, reason = "the queue uses all of it")]
            #[path = "../../../../src/sync/std.rs"]
            mod parts;
            pub(crate) use lock::Mutex;
        }
    )*};
}

releases! {
    plain: STORE, compiler_fence;
    fenced: STORE, fence;
    swap: SWAP, compiler_fence;
    exchange: EXCHANGE, compiler_fence;
}

/// Measures releases.
#[derive(Parser)]
struct Options {
    /// The number of rounds; their median counts.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Critical sections of a run.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
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

/// Threads on one lock: `ops` critical sections together, and `work` steps in each and after each.
fn sections<L: Lock>(threads: u64, ops: u64, work: u64) -> Duration {
    let lock = L::make();
    let took = timed(threads, |_| (0..ops / threads).for_each(|_| section(&lock, work)));
    assert_eq!(lock.with(|n| *n), ops / threads * threads);
    took
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

fn main() {
    let Options { rounds, ops } = Options::parse();
    let mut plan = Plan::default();
    macro_rules! row {
        ($name:literal, $threads:literal, $work:literal; $($lock:ty),*) => {
            let runs = vec![$((<$lock as Lock>::NAME, once(move || sections::<$lock>($threads, ops, $work)))),*];
            plan.row(["locks", "", $name], ops, rounds, runs);
        };
        ($name:literal, $threads:literal, $work:literal) => {
            row!($name, $threads, $work; plain::Mutex<u64>, fenced::Mutex<u64>, swap::Mutex<u64>, exchange::Mutex<u64>,
                std::sync::Mutex<u64>, parking_lot::Mutex<u64>);
        };
    }
    row!("1 thread, an empty section", 1, 0);
    row!("1 thread, a section of 10 steps, and 10 outside", 1, 10);
    row!("2 threads, 10 and 10", 2, 10);
    row!("8 threads, 10 and 10", 8, 10);
    let results = plan.run(Run { rounds, ..Run::here("locks") });
    println!("{}\n\n{}", tables::run(&results), tables::costs(&results, "locks"));
}
