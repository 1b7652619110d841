//! A thread that adds keys while an operation runs, and how long its longest call took.

use crate::stopwatch::{Longest, RunDelay, Stopwatch};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub type Queue = keyqueue::WorkQueue<u64>;

/// What the second thread adds while an operation runs.
#[derive(Clone, Copy, PartialEq)]
pub enum Adds {
    /// The key 0, which is queued or processing at most times.
    Known,
    /// Keys that no operation uses, as many as `keys`, then the same once more.
    New,
}

impl Adds {
    pub fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::New => "new",
        }
    }
}

/// One measurement of one operation.
pub struct Probe {
    /// How many keys a large queue has.
    pub keys: u64,
    /// How many keys one call moves.
    pub batch: u64,
    adds: Adds,
    own: RunDelay,
    measured: Option<Measured>,
}

#[derive(Clone, Copy)]
pub struct Measured {
    /// Of all calls of `add`.
    pub longest: Longest,
    /// How long the operation took.
    pub took: Duration,
}

const READY: u8 = 1;
const BEGUN: u8 = 2;
const ENDED: u8 = 3;

impl Probe {
    pub fn new(keys: u64, batch: u64, adds: Adds) -> Self {
        Self { keys, batch: batch.min(keys), adds, own: RunDelay::of_this_thread(), measured: None }
    }

    /// Runs the operation on this thread while another one adds keys to `queue`.
    ///
    /// # Panics
    /// If something was measured before.
    pub fn during<R>(&mut self, queue: &Queue, operation: impl FnOnce() -> R) -> R {
        let stage = AtomicU8::new(0);
        let (result, took, longest) = thread::scope(|scope| {
            let adder = scope.spawn(|| self.add(queue, &stage));
            // Otherwise the adder would measure how long its own start takes.
            await_stage(&stage, READY);
            stage.store(BEGUN, Ordering::SeqCst);
            await_stage(&stage, READY);
            let start = Instant::now();
            let result = operation();
            let took = start.elapsed();
            stage.store(ENDED, Ordering::SeqCst);
            (result, took, adder.join().expect("the adder panicked"))
        });
        self.set(longest, took);
        result
    }

    /// Calls on this thread, with no second thread: `calls` says when each has returned.
    ///
    /// # Panics
    /// If something was measured before.
    pub fn own(&mut self, calls: impl FnOnce(&mut Stopwatch<'_>)) {
        let start = Instant::now();
        let mut stopwatch = Stopwatch::start(&self.own, &self.own);
        calls(&mut stopwatch);
        let longest = stopwatch.longest();
        self.set(longest, start.elapsed());
    }

    fn set(&mut self, longest: Longest, took: Duration) {
        assert!(self.measured.replace(Measured { longest, took }).is_none(), "measured twice");
    }

    /// # Panics
    /// If nothing was measured.
    pub fn measured(self) -> Measured {
        self.measured.expect("an operation calls `during` or `own`")
    }

    /// The second thread. A call that has begun when the operation ends is measured to its end.
    fn add(&self, queue: &Queue, stage: &AtomicU8) -> Longest {
        let own = RunDelay::of_this_thread();
        let mut new = (1 << 40..(1 << 40) + self.keys).cycle();
        let mut add = || match self.adds {
            Adds::Known => queue.add(0),
            Adds::New => queue.add(new.next().expect("there is a key")),
        };
        (0..100).for_each(|_| _ = add());
        stage.store(READY, Ordering::SeqCst);
        await_stage(stage, BEGUN);
        let mut stopwatch = Stopwatch::start(&own, &self.own);
        stage.store(READY, Ordering::SeqCst);
        while stage.load(Ordering::Relaxed) != ENDED {
            add();
            stopwatch.lap();
        }
        stopwatch.longest()
    }
}

fn await_stage(stage: &AtomicU8, wanted: u8) {
    while stage.load(Ordering::SeqCst) != wanted {
        thread::yield_now();
    }
}
