//! A thread that repeats a call while an operation runs: how long its calls take, and the longest without the time in which one of the two
//! threads was runnable and not running.

use hdrhistogram::Histogram;
use keyqueue_benches::latency::histogram;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub type Queue = keyqueue::WorkQueue<u64>;

/// The waits of one round.
pub struct Waits {
    /// In nanoseconds.
    pub all: Histogram<u64>,
    /// The longest; without the time off the cores, if that is known.
    pub longest: Duration,
    /// How long the round, or the operation, took.
    pub took: Duration,
}

impl Waits {
    pub fn of(all: Histogram<u64>) -> Self {
        let longest = Duration::from_nanos(all.max());
        Self { longest, took: longest, all }
    }
}

/// One round of one operation.
pub struct Probe {
    /// How many keys a large queue has, and how many one call moves.
    pub keys: u64,
    pub batch: u64,
    /// The adds are of new keys. Otherwise of the key 0, which is queued or processing at most times.
    pub new: bool,
    pub waits: Option<Waits>,
}

impl Probe {
    /// Runs the operation on this thread while another one adds keys to `queue`.
    pub fn during<R>(&mut self, queue: &Queue, operation: impl FnOnce() -> R) -> R {
        let (new, keys) = (self.new, self.keys);
        self.beside(|n| _ = queue.add(if new { (1 << 40) + n % keys } else { 0 }), operation)
    }

    /// Runs the operation on this thread while another one repeats the call. A call that has begun when the operation ends is measured to
    /// its end.
    pub fn beside<R>(&mut self, call: impl Fn(u64) + Sync, operation: impl FnOnce() -> R) -> R {
        let (ready, over, own) = (Barrier::new(2), AtomicBool::new(false), RunDelay::of_this_thread());
        thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut waits = Waits::of(histogram());
                (0..100).for_each(&call);
                let delays = [RunDelay::of_this_thread(), own];
                let off = || [delays[0].read(), delays[1].read()];
                ready.wait();
                let (mut before, mut asked, mut last) = (off(), Instant::now(), Instant::now());
                for n in 100.. {
                    call(n);
                    let now = Instant::now();
                    let took = now - last;
                    last = now;
                    let mut net = took;
                    // The scheduler is asked after a long call, and often besides: what it says since the last time may be of earlier calls.
                    if took > LONG || now - asked > OFTEN {
                        let then = std::mem::replace(&mut before, off());
                        if took > LONG {
                            let off = (0..2).map(|n| before[n].saturating_sub(then[n])).max().unwrap_or_default();
                            net = took.saturating_sub(off);
                        }
                        (asked, last) = (Instant::now(), Instant::now());
                    }
                    waits.longest = waits.longest.max(net);
                    waits.all.record(took.as_nanos().max(1) as u64).expect("resizes by itself");
                    if over.load(Ordering::Relaxed) {
                        return waits;
                    }
                }
                waits
            });
            ready.wait();
            let start = Instant::now();
            let result = operation();
            let took = start.elapsed();
            over.store(true, Ordering::Relaxed);
            let waits = Waits { took, ..caller.join().expect("the other thread panicked") };
            assert!(self.waits.replace(waits).is_none(), "measured twice");
            result
        })
    }
}

/// Only for longer calls the scheduler is asked: that takes a microsecond.
const LONG: Duration = Duration::from_micros(50);
const OFTEN: Duration = Duration::from_micros(200);

/// How long a thread of this process was runnable and not running so far: the second number in its `schedstat`.
struct RunDelay(Option<File>);

impl RunDelay {
    fn of_this_thread() -> Self {
        // SAFETY: takes nothing and touches no memory of ours.
        let thread = unsafe { libc::gettid() };
        Self(File::open(format!("/proc/self/task/{thread}/schedstat")).ok())
    }

    /// Zero where the system does not say.
    fn read(&self) -> Duration {
        let mut text = [0; 64];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let number = str::from_utf8(&text[..length]).ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
        Duration::from_nanos(number.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(call: impl Fn(u64) + Sync, operation: impl FnOnce()) -> Waits {
        let mut probe = Probe { keys: 1, batch: 1, new: false, waits: None };
        probe.beside(call, operation);
        probe.waits.unwrap()
    }

    #[test]
    fn a_call_that_sleeps_is_long() {
        let sleep = Duration::from_millis(20);
        let call = |n| thread::sleep(if n == 120 { sleep } else { Duration::ZERO });
        let waits = waits(call, || thread::sleep(5 * sleep));
        assert!(waits.longest >= sleep && waits.all.max() >= sleep.as_nanos() as u64);
        assert!(waits.all.value_at_percentile(50.0) < 1_000_000 && waits.took >= 5 * sleep);
    }

    /// Two threads on one core: the one that calls waits while the other one runs.
    #[test]
    fn the_time_without_a_core_is_subtracted() {
        // SAFETY: takes no arguments, and has no preconditions.
        let core = unsafe { libc::sched_getcpu() } as usize;
        let stay = || crate::getters::stay_on(core, libc::SCHED_OTHER);
        let call = |n| {
            if n == 0 {
                stay()
            }
        };
        let waits = waits(call, || {
            stay();
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(200) {}
        });
        let longest = Duration::from_nanos(waits.all.max());
        assert!(
            longest > Duration::from_millis(1) && waits.longest < longest / 2,
            "{:?} of {longest:?}",
            waits.longest
        );
    }
}
