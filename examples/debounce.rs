//! Debounce: handle a burst of events once, when it is over.
//!
//! ```text
//! cargo run --release --example debounce
//! ```
//!
//! Three files change, at random moments; `build` must run once for each burst of changes of a file, when the file has been quiet for
//! 100 ms. Each event adds the file with a delay that replaces the one before it. A burst that never ends would postpone the build for ever,
//! so a second key of the same file has a delay that later events do not move: `Latest`, 500 ms after the first.

use keyqueue::{AddOptions, DelayConflict, Item, WorkQueue};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// When the file was quiet for a while; or when its first change was some time ago, quiet or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Build {
    Quiet(&'static str),
    Latest(&'static str),
}

/// A change of a file.
fn changed(queue: &WorkQueue<Build>, file: &'static str) {
    let quiet = AddOptions::new().after(Duration::from_millis(100)).conflict(DelayConflict::Replace);
    queue.add_with(Build::Quiet(file), quiet);
    let latest = AddOptions::new().after(Duration::from_millis(500)).conflict(DelayConflict::KeepExisting);
    queue.add_with(Build::Latest(file), latest);
}

fn main() -> std::io::Result<()> {
    let queue = WorkQueue::new();
    let builds = Arc::new(Mutex::new(HashMap::new()));
    let workers = queue.workers().spawn(1, {
        let (queue, builds) = (queue.clone(), Arc::clone(&builds));
        move |key: &Item<'_, Build>| {
            let (Build::Quiet(file) | Build::Latest(file)) = **key;
            // This build stands for both keys.
            queue.cancel(&Build::Quiet(file));
            queue.cancel(&Build::Latest(file));
            println!("build {file} ({:?})", **key);
            *builds.lock().unwrap().entry(file).or_insert(0) += 1;
        }
    })?;

    for n in 0..60 {
        changed(&queue, "busy.rs"); // for 1.2 s, every 20 ms
        if n % 20 < 10 {
            changed(&queue, "now-and-then.rs"); // three bursts
        }
        if n == 0 {
            changed(&queue, "once.rs");
        }
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(600)); // a drain does not wait for delays
    let _leftover = workers.drain(); // none

    let builds = builds.lock().unwrap();
    println!("{builds:?}");
    // Usually 1, 3 and 3. A machine that is busy may stretch the pauses.
    assert!(builds.len() == 3 && builds.values().sum::<u32>() < 91, "fewer builds than events");
    Ok(())
}
