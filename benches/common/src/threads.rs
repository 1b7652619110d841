//! Runs work on several threads that start together.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `work` on `threads` threads, and returns how long that took.
pub fn timed(threads: u64, work: impl Fn(u64) + Sync) -> Duration {
    let (first, last) = span(threads, work);
    last - first
}

/// Runs `work` on `threads` threads, and returns when the first thread began and when the last one ended. Each thread reads the clock
/// itself: on a busy machine the calling thread may get a core only after the others have begun.
pub fn span(threads: u64, work: impl Fn(u64) + Sync) -> (Instant, Instant) {
    let ready = Barrier::new(threads as usize);
    let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let spawn = |thread| {
            let (ready, work) = (&ready, &work);
            scope.spawn(move || {
                ready.wait();
                let start = Instant::now();
                work(thread);
                (start, Instant::now())
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    });
    let first = times.iter().map(|(start, _)| *start).min().expect("a thread");
    let last = times.iter().map(|(_, end)| *end).max().expect("a thread");
    (first, last)
}
