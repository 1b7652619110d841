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

/// The longest call; as it was before anything was subtracted; and the longest in which both threads had their cores all the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    pub net: Duration,
    pub gross: Duration,
    pub undisturbed: Duration,
}

/// Measures calls that follow each other without a gap: a call begins where the last one ended.
///
/// From a long call it subtracts how long this thread, or the one that it may have waited for, was runnable and not running:
/// the longer of both times, as both threads may have waited at once.
///
/// That is too little if they waited one after the other. And on a busy machine it can be too much: a thread that waits for a lock wakes up now and then to look at it, and waits for a
/// core then, while the lock is held all the same. So look at the undisturbed calls too, or have the machine to yourself.
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
            self.note(took, Duration::ZERO);
        }
    }

    #[cold]
    fn ask(&mut self, took: Duration) {
        let before = std::mem::replace(&mut self.waited, self.threads.map(RunDelay::read));
        let off = (0..2).map(|n| self.waited[n].saturating_sub(before[n])).max().unwrap_or_default();
        self.note(took, if took > LONG { off } else { Duration::ZERO });
        self.last = Instant::now();
        self.asked = self.last;
    }

    #[inline]
    fn note(&mut self, took: Duration, off: Duration) {
        let longest = &mut self.longest;
        longest.net = longest.net.max(took.saturating_sub(off));
        longest.gross = longest.gross.max(took);
        if off < LONG {
            longest.undisturbed = longest.undisturbed.max(took);
        }
    }

    pub fn longest(&self) -> Longest {
        self.longest
    }
}

/// The longest call of one thread that makes the same calls in every round: of each call the shortest time of all rounds, and of
/// these the longest. A pause of the machine falls on another call in each round; what a call itself does falls on the same one.
pub struct SameCall {
    /// In nanoseconds, by the number of the call.
    shortest: Vec<u32>,
    next: usize,
    last: Instant,
}

impl SameCall {
    /// The memory is written here: a page fault, and above all the end of a list, would keep the other thread from its own.
    pub fn new(calls: u64) -> Self {
        Self { shortest: vec![u32::MAX; calls as usize], next: 0, last: Instant::now() }
    }

    pub fn begin_round(&mut self) {
        (self.next, self.last) = (0, Instant::now());
    }

    /// A call has returned.
    #[inline]
    pub fn lap(&mut self) {
        let now = Instant::now();
        let took = (now - self.last).as_nanos().try_into().unwrap_or(u32::MAX);
        let shortest = &mut self.shortest[self.next];
        *shortest = took.min(*shortest);
        (self.next, self.last) = (self.next + 1, now);
    }

    /// And its number; nothing if the operation is a single call.
    pub fn longest(&self) -> Option<(Duration, usize)> {
        let calls = self.shortest[..self.next].iter().zip(0..);
        calls.max().map(|(&took, number)| (Duration::from_nanos(took.into()), number))
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

    #[test]
    fn the_same_call_is_long_in_every_round() {
        let mut same_call = SameCall::new(4);
        assert!(same_call.longest().is_none());
        for round in 0..2 {
            same_call.begin_round();
            for call in 0..4 {
                if call == 2 || call == 3 * round {
                    thread::sleep(if call == 2 { TIME } else { 2 * TIME });
                }
                same_call.lap();
            }
        }
        let (longest, number) = same_call.longest().unwrap();
        assert!(longest >= TIME && number == 2, "{longest:?} of call {number}");
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
            let Longest { net, gross, undisturbed } = stopwatch.longest();
            assert!(net + TIME <= gross, "{net:?} of {gross:?}");
            assert!(undisturbed.is_zero());
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
