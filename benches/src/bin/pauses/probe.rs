//! A thread that adds keys while an operation runs, and how long its longest call took.

use crate::stopwatch::{Longest, RunDelay, SameCall, Stopwatch};
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
pub struct Probe<'a> {
    /// How many keys a large queue has.
    pub keys: u64,
    /// How many keys one call moves.
    pub batch: u64,
    /// How long a control runs.
    pub control: Duration,
    adds: Adds,
    same_call: &'a mut SameCall,
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

impl<'a> Probe<'a> {
    pub fn new(keys: u64, batch: u64, control: Duration, adds: Adds, same_call: &'a mut SameCall) -> Self {
        Self { keys, batch: batch.min(keys), control, adds, same_call, measured: None }
    }

    /// Runs the operation on this thread while another one adds keys to `queue`. An operation of many calls says when each has
    /// returned.
    ///
    /// # Panics
    /// If something was measured before.
    pub fn during<R>(&mut self, queue: &Queue, operation: impl FnOnce(&mut SameCall) -> R) -> R {
        let (adds, keys) = (self.adds, self.keys);
        let adder = move || {
            let mut new = (1 << 40..(1 << 40) + keys).cycle();
            let mut add = move || match adds {
                Adds::Known => queue.add(0),
                Adds::New => queue.add(new.next().expect("there is a key")),
            };
            (0..100).for_each(|_| _ = add());
            add
        };
        self.beside(adder, operation)
    }

    /// Runs the operation on this thread while another one repeats the call that `caller` makes there.
    ///
    /// # Panics
    /// If something was measured before.
    pub fn beside<R, T, Call: FnMut() -> T>(
        &mut self,
        caller: impl FnOnce() -> Call + Send,
        operation: impl FnOnce(&mut SameCall) -> R,
    ) -> R {
        let (stage, own) = (AtomicU8::new(0), RunDelay::of_this_thread());
        let (result, took, longest) = thread::scope(|scope| {
            let caller = scope.spawn(|| repeat(caller(), &stage, &own));
            // Otherwise the other thread would measure how long its own start takes.
            await_stage(&stage, READY);
            stage.store(BEGUN, Ordering::SeqCst);
            await_stage(&stage, READY);
            self.same_call.begin_round();
            let start = Instant::now();
            let result = operation(self.same_call);
            let took = start.elapsed();
            stage.store(ENDED, Ordering::SeqCst);
            (result, took, caller.join().expect("the other thread panicked"))
        });
        assert!(self.measured.replace(Measured { longest, took }).is_none(), "measured twice");
        result
    }

    /// # Panics
    /// If nothing was measured.
    pub fn measured(self) -> Measured {
        self.measured.expect("an operation calls `during` or `beside`")
    }
}

/// The second thread. A call that has begun when the operation ends is measured to its end.
fn repeat<T>(mut call: impl FnMut() -> T, stage: &AtomicU8, other: &RunDelay) -> Longest {
    let own = RunDelay::of_this_thread();
    stage.store(READY, Ordering::SeqCst);
    await_stage(stage, BEGUN);
    let mut stopwatch = Stopwatch::start(&own, other);
    stage.store(READY, Ordering::SeqCst);
    while stage.load(Ordering::Relaxed) != ENDED {
        call();
        stopwatch.lap();
    }
    stopwatch.longest()
}

fn await_stage(stage: &AtomicU8, wanted: u8) {
    while stage.load(Ordering::SeqCst) != wanted {
        thread::yield_now();
    }
}
