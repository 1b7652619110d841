//! A thread is stopped at each of some places of a hot call, and others go on.
//!
//! The places are between the steps of the engine itself. What a thread holds back that stops inside of the map or of the segment queue is in the
//! table of `WorkQueueBuilder::lock_free`; it was found out instruction by instruction (`reports/lock_free.md`).

use crate::{Added, WorkQueue};
use std::cell::Cell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a stopped thread has: it tells that it has stopped, and waits until it may go on.
struct Stop(SyncSender<()>, Arc<Mutex<Receiver<()>>>);

thread_local! {
    /// The number of places before the one at which this thread stops.
    static LEFT: Cell<Option<(usize, Stop)>> = const { Cell::new(None) };
}

/// The calling thread is at such a place.
pub(super) fn point() {
    match LEFT.take() {
        Some((0, Stop(has_stopped, goes_on))) => {
            has_stopped.send(()).unwrap();
            goes_on.lock().unwrap().recv().unwrap();
        }
        Some((left, stop)) => LEFT.set(Some((left - 1, stop))),
        None => {}
    }
}

type Call = fn(&WorkQueue<u64>);

/// The key of the stopped thread, if it has one of its own.
const KEY: u64 = 1000;

/// Calls of the thread that is stopped, after what is made before.
const CALLS: [(&str, Call, Call); 7] = [
    ("add of a new key", |_| {}, |queue| _ = queue.add(KEY)),
    ("add of a queued key", |queue| _ = queue.add(KEY), |queue| _ = queue.add(KEY)),
    ("get and done", |_| {}, |queue| queue.get().unwrap().done()),
    (
        "get, add, done",
        |_| {},
        |queue| {
            let item = queue.get().unwrap();
            assert_eq!(queue.add(*item), Added::Deferred);
            item.done();
        },
    ),
    ("get, succeed", |_| {}, |queue| queue.try_get().unwrap().succeed()),
    // The cache is full, so each `done` evicts a node; and the line has dead entries.
    (
        "evictions",
        |queue| {
            (2000..2000 + super::CACHE as u64).for_each(|key| _ = (queue.add(key), queue.remove(&key)));
            (3000..3010).for_each(|key| _ = queue.add(key));
        },
        |queue| queue.get().unwrap().done(),
    ),
    ("add of a key that comes back", |queue| _ = (queue.add(KEY), queue.remove(&KEY)), |queue| _ = queue.add(KEY)),
];

/// Others make turns with their keys, and all keys are handed out at the end.
#[test]
fn others_go_on_while_a_thread_is_stopped_anywhere_in_a_hot_call() {
    const KEYS: u64 = 20;
    let mut points = 0;
    // With several shards, the keys of the stopped thread are in a segment queue of its own.
    for ((name, before, call), shards) in CALLS.into_iter().flat_map(|call| [(call, 1), (call, 16)]) {
        // A getter that drops a thousand dead entries comes to a thousand like places.
        for at in (0..40).chain((40..).step_by(97)) {
            let queue = WorkQueue::builder().lock_free().shards(shards).build();
            let (stopped, has_stopped) = sync_channel(1);
            let (go_on, goes_on) = sync_channel(1);
            (0..KEYS).for_each(|key| _ = queue.add(key));
            let other = queue.clone();
            let thread = thread::spawn(move || {
                before(&other);
                LEFT.set(Some((at, Stop(stopped, Arc::new(Mutex::new(goes_on))))));
                call(&other);
                LEFT.take().is_none() // it was stopped
            });
            let was_stopped = has_stopped.recv().is_ok();
            if was_stopped {
                points += 1;
                let (done, is_done) = sync_channel(1);
                let other = queue.clone();
                thread::spawn(move || {
                    for turn in 0..200 {
                        let item = other.get().expect("keys are queued");
                        let key = *item;
                        if turn % 3 == 0 {
                            other.add(key);
                            item.done();
                        } else {
                            item.succeed();
                            other.add(key);
                        }
                        assert!(other.add(5000 + turn).is_accepted() && other.remove(&(5000 + turn)));
                    }
                    done.send(()).unwrap();
                });
                is_done
                    .recv_timeout(Duration::from_secs(20))
                    .unwrap_or_else(|_| panic!("{name}, {shards} shards, place {at}: others wait"));
                go_on.send(()).unwrap();
            }
            assert_eq!(thread.join().unwrap(), was_stopped, "{name}");
            queue.shut_down();
            while queue.get().is_some() {}
            let stats = queue.stats();
            assert_eq!((stats.len, stats.processing, stats.adds()), (0, 0, stats.handed_out + stats.taken), "{name}");
            if !was_stopped {
                assert!(at > 0, "{name}: no place");
                break;
            }
        }
    }
    println!("{points} places");
    assert!(points >= 40, "{points} places");
}

/// While an add is on its way, an idle wait cannot know whether it is over. It does not spin for that long.
#[test]
#[cfg(target_os = "linux")]
fn an_idle_wait_pauses_while_an_add_is_on_its_way() {
    let queue = WorkQueue::<u64>::builder().lock_free().build();
    let on_its_way = queue.shared.free().unwrap().begin();
    let before = crate::sync::cpu_time();
    assert!(queue.wait_idle_timeout(Duration::from_millis(200)).is_err());
    let ran = crate::sync::cpu_time() - before;
    assert!(ran < Duration::from_millis(100), "{ran:?} of 200 ms");
    drop(on_its_way);
    assert!(queue.wait_idle_timeout(Duration::from_secs(20)).is_ok());
}
