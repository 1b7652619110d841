//! Whether a subject is a queue as the others are.

use crate::Subject;
use crate::threads::timed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const KEYS: usize = 3;

/// Adds meet gets and dones of the same few keys. Each add is followed by a hand-out that begins later, and no two threads have a
/// key at one time. A getter may find the queue empty, or wait.
pub fn no_add_is_lost<Q: Subject<u64>>() {
    let queue = Q::make();
    let [added, seen] = [(); 2].map(|()| [0; KEYS].map(AtomicU64::new));
    let taken = [false; KEYS].map(AtomicBool::new);
    let adders = AtomicU64::new(2);
    let process = || {
        queue.process(|_, &key| {
            let key = key as usize;
            assert!(!taken[key].swap(true, Ordering::SeqCst), "two threads have key {key}");
            seen[key].store(added[key].load(Ordering::SeqCst), Ordering::SeqCst);
            taken[key].store(false, Ordering::SeqCst);
        })
    };
    timed(4, |thread| {
        if thread < 2 {
            for n in 0..50_000 {
                let key = n % KEYS;
                added[key].fetch_add(1, Ordering::SeqCst);
                queue.add(key as u64);
            }
            if adders.fetch_sub(1, Ordering::SeqCst) == 1 {
                queue.shut_down();
            }
            return;
        }
        while process() || adders.load(Ordering::SeqCst) > 0 {}
    });
    // A key that was added during its last run is queued again after the getters have ended, if the queue was shut down and empty.
    while process() {}
    let counts = |of: &[AtomicU64; KEYS]| of.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts(&seen), counts(&added), "{}", Q::NAME);
}
