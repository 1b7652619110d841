//! Debounce: handle a burst of events once, when it is over; and a burst that does not end, within a bound.
//!
//! ```text
//! cargo run --release --example debounce
//! ```
//!
//! A file is built when it has been quiet for 100 ms, but at the latest 500 ms after the first change that no build has seen.
//!
//! Each change adds the file with a delay that replaces the one before it. This alone would never build a file that is never quiet. So
//! the program keeps the time of the first unbuilt change of each file, and no delay goes beyond the bound. A build stands for all changes
//! before it begins.
//!
//! Two keys for one file, with a delay that moves and one that stays, would be wrong: two keys have two holders, and two workers would
//! build the file at the same time. If a build in the middle of a burst does no harm, `KeepExisting` is enough, without a table: the
//! first change sets the delay, and later ones do not move it.
//!
//! At the end the program checks that no file was built twice at the same time, that all changes were built, that a burst led to one
//! build, and that the file that was never quiet was built meanwhile.

use keyqueue::{AddOptions, DelayConflict, WorkQueue};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_millis(100);
const BOUND: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(20);

struct Debounce {
    queue: WorkQueue<&'static str>,
    /// The time of the first change that no build has seen, of each file that has one.
    unbuilt: Mutex<HashMap<&'static str, Instant>>,
}

impl Debounce {
    /// A change of a file.
    fn changed(&self, file: &'static str) {
        let mut unbuilt = self.unbuilt.lock().unwrap();
        let waited = unbuilt.entry(file).or_insert_with(Instant::now).elapsed();
        let delay = QUIET.min(BOUND.saturating_sub(waited));
        // Under the lock, so that `begin` sees the time and the delay of this change, or neither.
        self.queue.add_with(file, AddOptions::new().after(delay).conflict(DelayConflict::Replace));
    }

    /// A build begins, which stands for all changes of the file before this call, also for those that came after the file was queued.
    fn begin(&self, file: &'static str) {
        let mut unbuilt = self.unbuilt.lock().unwrap();
        unbuilt.remove(file);
        self.queue.cancel(file);
    }
}

/// What the workers did, for the checks at the end.
#[derive(Default)]
struct Seen {
    building: HashSet<&'static str>,
    at_the_same_time: usize,
    /// When the builds of each file began.
    builds: HashMap<&'static str, Vec<Duration>>,
}

fn main() -> std::io::Result<()> {
    let start = Instant::now();
    let queue = WorkQueue::new();
    let files = Arc::new(Debounce { queue: queue.clone(), unbuilt: Mutex::default() });
    let seen = Arc::new(Mutex::new(Seen::default()));
    let workers = queue.workers().spawn(4, {
        let (files, seen) = (Arc::clone(&files), Arc::clone(&seen));
        move |item| {
            let file = *item.key();
            files.begin(file);
            {
                let mut seen = seen.lock().unwrap();
                let is_alone = seen.building.insert(file);
                seen.at_the_same_time += usize::from(!is_alone);
                seen.builds.entry(file).or_default().push(start.elapsed());
            }
            println!("build {file} at {} ms", start.elapsed().as_millis());
            thread::sleep(Duration::from_millis(700)); // longer than the bound: the file changes meanwhile
            seen.lock().unwrap().building.remove(file);
        }
    })?;

    let mut longest_step = Duration::ZERO;
    for n in 0..150 {
        let step = Instant::now();
        files.changed("busy.rs"); // for 3 s
        if n % 50 < 10 {
            files.changed("now-and-then.rs"); // three bursts
        }
        if n == 0 {
            files.changed("once.rs");
        }
        thread::sleep(STEP);
        longest_step = longest_step.max(step.elapsed());
    }
    let last_change = start.elapsed();
    queue.wait_idle(); // for delays too; a drain does not wait for them
    let left = workers.drain();

    let seen = seen.lock().unwrap();
    assert_eq!(seen.at_the_same_time, 0, "two workers built one file at the same time");
    assert!(left.is_empty() && files.unbuilt.lock().unwrap().is_empty(), "all changes were built");
    assert!(seen.builds["busy.rs"][0] < last_change, "a file that is never quiet is built");
    assert_eq!(seen.builds["once.rs"].len(), 1);
    // On a machine that stops for a while, a burst may have a pause, or last longer than the bound.
    if longest_step < 2 * STEP {
        assert!(seen.builds["now-and-then.rs"].len() <= 3, "a burst is one build");
    }
    Ok(())
}
