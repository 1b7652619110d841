//! The longest of many calls, without the time in which the thread was runnable and not running.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Only for longer calls the scheduler is asked how long the thread waited for a core: asking costs a microsecond.
const LONG: Duration = Duration::from_micros(50);

/// The scheduler is asked this often besides. What a thread waited between two readings may have been before the call.
const OFTEN: Duration = Duration::from_micros(200);

/// How long a thread of this process was runnable and not running so far: the second number in its `schedstat`.
pub struct RunDelay(Option<File>);

impl RunDelay {
    pub fn of_this_thread() -> Self {
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

/// The longest call, and as it was before anything was subtracted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    pub net: Duration,
    pub gross: Duration,
}

/// Measures calls that follow each other without a gap: a call begins where the last one ended.
///
/// From a long call it subtracts how long this thread, or the one that it may have waited for, was runnable and not running:
/// the longer of both times, as both threads may have waited at once.
///
/// On a busy machine this can be too much: a thread that waits for a lock wakes up now and then to look at it, and waits for a
/// core then, while the lock is held all the same. So look at the gross time too, or have the machine to yourself.
pub struct Stopwatch<'a> {
    threads: [&'a RunDelay; 2],
    waited: [Duration; 2],
    asked: Instant,
    last: Instant,
    longest: Longest,
}

impl<'a> Stopwatch<'a> {
    /// `own`: the thread that calls. `other`: the thread that works at the same time.
    pub fn start(own: &'a RunDelay, other: &'a RunDelay) -> Self {
        let threads = [own, other];
        let waited = threads.map(RunDelay::read);
        let now = Instant::now();
        Self { threads, waited, asked: now, last: now, longest: Longest::default() }
    }

    /// A call has returned.
    #[inline]
    pub fn lap(&mut self) {
        let now = Instant::now();
        let took = now - self.last;
        self.last = now;
        if took > LONG || now - self.asked > OFTEN {
            self.ask(took);
        } else {
            self.longest.net = self.longest.net.max(took);
            self.longest.gross = self.longest.gross.max(took);
        }
    }

    #[cold]
    fn ask(&mut self, took: Duration) {
        let before = std::mem::replace(&mut self.waited, self.threads.map(RunDelay::read));
        let off = (0..2).map(|n| self.waited[n].saturating_sub(before[n])).max().unwrap_or_default();
        let net = if took > LONG { took.saturating_sub(off) } else { took };
        self.longest.net = self.longest.net.max(net);
        self.longest.gross = self.longest.gross.max(took);
        self.last = Instant::now();
        self.asked = self.last;
    }

    pub fn longest(&self) -> Longest {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    const TIME: Duration = Duration::from_millis(5);

    #[test]
    fn a_call_that_sleeps_is_long() {
        let own = RunDelay::of_this_thread();
        let mut stopwatch = Stopwatch::start(&own, &own);
        thread::sleep(TIME);
        stopwatch.lap();
        let before = stopwatch.longest();
        stopwatch.lap();
        assert!(before.net >= TIME, "{before:?}");
        assert!(stopwatch.longest().gross == before.gross, "the next call begins when the last has ended");
    }

    /// Two threads on one core: each waits while the other one runs.
    #[test]
    fn the_time_without_a_core_is_subtracted() {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                stay_on_core_0();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            stay_on_core_0();
            let own = RunDelay::of_this_thread();
            let mut stopwatch = Stopwatch::start(&own, &own);
            let before = own.read();
            while own.read() < before + TIME {}
            stopwatch.lap();
            over.store(true, Ordering::Relaxed);
            let Longest { net, gross } = stopwatch.longest();
            assert!(net + TIME <= gross, "{net:?} of {gross:?}");
        });
    }

    fn stay_on_core_0() {
        // SAFETY: a set of bits without any is a valid one, and is lent for the call.
        let result = unsafe {
            let mut cores: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut cores);
            libc::sched_setaffinity(0, size_of_val(&cores), &cores)
        };
        assert_eq!(result, 0);
    }
}
