//! A second queue, stopped while keys are queued, processing and delayed: each key is accounted for once.

use crate::fail;
use crate::key::Key;
use fastrand::Rng;
use keyqueue::{Item, WorkQueue};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const KEYS: u32 = 2_000;

pub fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let queue = WorkQueue::builder().name("second").build();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let workers = queue
        .workers()
        .spawn(2, {
            let handled = Arc::clone(&handled);
            move |item: &Item<'_, Key>| handled.lock().push(item.id)
        })
        .unwrap_or_else(|error| fail(format_args!("the second queue has no workers: {error}")));
    for id in 0..KEYS {
        match rng.u8(..8) {
            0 => queue.add_after(Key::new(id), Duration::from_secs(3600)),
            1..4 => queue.add_after(Key::new(id), Duration::from_micros(rng.u64(1..5_000))),
            _ => queue.add(Key::new(id)),
        };
    }
    thread::sleep(Duration::from_micros(rng.u64(..6_000)));
    let left = workers.stop();
    workers.join();

    let mut found = handled.lock().clone();
    if let Some(key) = left.processing.iter().find(|key| !found.contains(&key.id)) {
        fail(format_args!(
            "the second queue was stopped: key {} is reported as processing, but no handler has it",
            key.id
        ));
    }
    found.extend(left.queued.iter().chain(left.delayed.iter().map(|delayed| &delayed.key)).map(|key| key.id));
    found.sort_unstable();
    if !found.iter().copied().eq(0..KEYS) {
        let wrong = (0..KEYS).find(|id| found.iter().filter(|other| *other == id).count() != 1);
        fail(format_args!(
            "the second queue was stopped: of {KEYS} keys, {} are accounted for; see key {wrong:?}",
            found.len()
        ));
    }

    // Another queue is dropped without a shut-down.
    let dropped = WorkQueue::new();
    for id in 0..KEYS {
        dropped.add(Key::new(id));
        dropped.add_after(Key::new(id + KEYS / 2), Duration::from_secs(1 + u64::from(id)));
    }
    let _item = dropped.get();
}
