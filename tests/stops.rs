//! Stops and drains of threads return what is left, whatever the queue's order and limits, and nothing vanishes (P23). What they return, and
//! what happens to refused keys and after a clone that panics, is judged by the reference too (`tests/reference/run/takes.rs`), without
//! threads; stops of tasks: `spawn_tasks.rs`.
//!
//! Checks: each way to stop returns although groups are full; each accepted key is handed out to its end, or in one list of the
//! [`Leftover`]; the list of queued keys is in the order of their age.

mod support {
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::{AddOptions, Added, Item, Leftover, Outcome, Priority, Tally, WorkQueue, WorkQueueBuilder, Workers};
use std::collections::BTreeSet;
use std::future::{Future, pending, ready};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use support::within::within_30_s;

/// The first number is the group.
type Key = (u32, u32);

/// One of them, with its name.
type Mode = (&'static str, fn() -> WorkQueueBuilder<Key>);

const MODES: [Mode; 6] = [
    ("plain", WorkQueue::builder),
    ("4 shards", || WorkQueue::builder().shards(4)),
    ("groups", fair),
    ("groups, 4 shards", || fair().shards(4)),
    ("limit 1", || fair().max_processing_per_group(1)),
    ("limit 2", || fair().max_processing_per_group(2)),
];

fn fair() -> WorkQueueBuilder<Key> {
    WorkQueue::builder().fair_by(|key: &Key| key.0)
}

/// The keys of a list, each of which is there once.
fn set(keys: &[Key]) -> BTreeSet<Key> {
    let set: BTreeSet<_> = keys.iter().copied().collect();
    assert_eq!(set.len(), keys.len(), "a key is there twice");
    set
}

type Stop = fn(&Workers<Key>) -> Leftover<Key>;

/// The stops and drains that return although a handler does not.
const STOPS: [Stop; 5] = [
    Workers::stop,
    |workers| workers.finish(Duration::ZERO),
    |workers| block_on(workers.finish_until(ready(()))),
    |workers| workers.drain_timeout(Duration::ZERO),
    |workers| block_on(workers.drain_until(ready(()))),
];

/// A drain without a deadline that a plain shut-down releases, while no loop runs and another holder has filled a group.
#[test]
fn a_released_drain_returns_although_a_group_is_full() {
    let queue = WorkQueue::builder().fair_by(|key: &Key| key.0).max_processing_per_group(1).build();
    queue.add_all([(1, 1), (1, 2), (2, 1)]);
    let item = queue.get().unwrap().into_owned();
    let workers = queue.workers().build();
    let drain = thread::spawn(move || workers.drain());
    while queue.stats().drainers == 0 {
        thread::yield_now();
    }
    queue.shut_down();
    let left = within_30_s(move || drain.join().unwrap());
    assert_eq!((left.queued, left.processing), (vec![(1, 2), (2, 1)], vec![(1, 1)]));
    item.done();
}

type Finish = fn(&Workers<Key>) -> Leftover<Key>;

/// With as much time as it takes.
const FINISHES: [Finish; 2] =
    [|workers| workers.finish(Duration::MAX), |workers| block_on(workers.finish_until(pending::<()>()))];

/// A finish lets the runs that have begun end, and begins no other: neither of the queued keys, nor of a key that was added while it was
/// processing. Each key is in one list.
#[test]
fn a_finish_begins_nothing() {
    for (name, mode) in MODES {
        for finish in FINISHES {
            let queue = mode().build();
            let keys = Vec::from_iter((0..40).map(|n| (n % 2, n)));
            queue.add_all(keys.clone());
            let delayed = [(0, 0), (9, 9)];
            for key in delayed {
                queue.add_after(key, Duration::from_secs(3600));
            }
            let is_open = Arc::new(AtomicBool::new(false));
            let gate = Arc::clone(&is_open);
            let handler = move |item: &Item<'_, Key>| {
                while !gate.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                if item.0 == 0 { Err("disk") } else { Ok(()) }
            };
            let workers = queue.workers().spawn(3, handler).unwrap();
            // With a limit of 1 the third loop waits for a key of a full group.
            let running = if name == "limit 1" { 2 } else { 3 };
            while queue.processing_len() < running || queue.stats().waiters < 3 - running {
                thread::yield_now();
            }
            let held = queue.inspect().processing_keys().into_iter().map(|held| held.key).collect::<BTreeSet<_>>();
            let again = *held.first().unwrap();
            queue.add(again);
            let left = within_30_s({
                let (queue, workers) = (queue.clone(), workers.clone());
                move || {
                    let finish = thread::spawn({
                        let workers = workers.clone();
                        move || finish(&workers)
                    });
                    while !queue.is_empty() || workers.tally().running > running {
                        thread::yield_now();
                    }
                    is_open.store(true, Ordering::SeqCst);
                    finish.join().unwrap()
                }
            });
            assert_eq!(queue.stats().handed_out, running as u64, "{name}");
            let queued = keys.iter().copied().filter(|key| *key == again || !held.contains(key)).collect();
            let refused = held.iter().copied().filter(|key| key.0 == 0 && *key != again).collect();
            assert_eq!((set(&left.queued), set(&left.refused)), (queued, refused), "{name}");
            let waits = left.delayed.iter().map(|one| one.key).collect::<Vec<_>>();
            assert_eq!((waits, left.processing), (delayed.to_vec(), vec![]));
            assert!(workers.stop().is_empty());
        }
    }
}

/// A key whose copy in the queue calls this when it is dropped.
struct Drops(u32, Option<Box<dyn Fn() + Send + Sync>>);

impl Clone for Drops {
    fn clone(&self) -> Self {
        Self(self.0, None)
    }
}

impl PartialEq for Drops {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Drops {}

impl std::hash::Hash for Drops {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        if let Some(call) = self.1.take() {
            call();
        }
    }
}

/// A loop waits for the keys of a paused group. While a stop takes these out, in several steps, a key that was added while it was
/// processing is queued again in this group. The loop ends nevertheless.
#[test]
fn a_stop_ends_loops_that_wait_behind_a_paused_group() {
    const LOOPS: [fn(&Workers<Drops>); 4] = [
        |workers| workers.run(|_: &Item<'_, Drops>| ()),
        |workers| block_on(workers.run_async(async |_: &Item<'_, Drops>| ())),
        |workers| workers.run_batch(2, Duration::ZERO, |_| ()),
        |workers| block_on(workers.run_batch_async(2, Duration::ZERO, async |_| ())),
    ];
    type End = fn(&Workers<Drops>) -> Leftover<Drops>;
    const ENDS: [End; 4] = [
        |workers| workers.finish(Duration::MAX),
        |workers| block_on(workers.finish_until(pending::<()>())),
        Workers::stop,
        |workers| workers.drain_timeout(Duration::ZERO),
    ];
    const KEYS: u32 = 300;
    for (which, (run, end)) in LOOPS.into_iter().flat_map(|run| ENDS.map(|end| (run, end))).enumerate() {
        let queue = WorkQueue::builder().fair_by(|_: &Drops| 0).build();
        queue.add(Drops(0, None));
        let held = Mutex::new(Some(queue.get_owned().unwrap()));
        queue.add(Drops(0, None));
        queue.group(&Drops(0, None)).pause(Duration::from_secs(3600)).unwrap();
        queue.add(Drops(1, Some(Box::new(move || held.lock().unwrap().take().unwrap().done()))));
        queue.add_all((2..KEYS).map(|n| Drops(n, None)));
        let workers = queue.workers().build();
        let waits = thread::spawn({
            let workers = workers.clone();
            move || run(&workers)
        });
        while queue.stats().waiters == 0 {
            thread::yield_now();
        }
        let left = within_30_s(move || {
            let mut left = end(&workers);
            waits.join().unwrap();
            left.extend(workers.stop());
            left
        });
        let mut queued = Vec::from_iter(left.queued.iter().map(|key| key.0));
        queued.sort_unstable();
        assert_eq!((queued, left.processing.len()), (Vec::from_iter(0..KEYS), 0), "{which}");
    }
}

/// A task that is polled as soon as it is woken.
struct AtOnce(Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        _ = self.0.lock().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// The shut-down ends the pause, and wakes the loops before the stop has taken the keys out: they end without a key.
#[test]
fn a_stop_of_a_paused_queue_begins_nothing() {
    type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
    const LOOPS: [fn(&Workers<Key>) -> Work; 2] = [
        |workers| Box::pin(workers.run_async(async |_: &Item<'_, Key>| ())),
        |workers| Box::pin(workers.run_batch_async(2, Duration::ZERO, async |_| ())),
    ];
    for (name, mode) in MODES {
        for run in LOOPS {
            for stop in [Workers::stop as Stop, |workers| workers.finish(Duration::MAX)] {
                let queue = mode().build();
                queue.pause();
                queue.add_all([(0, 1), (1, 2)]);
                let workers = queue.workers().build();
                let work = Arc::new(AtOnce(Mutex::new(run(&workers))));
                let waker = Waker::from(Arc::clone(&work));
                assert!(work.0.lock().unwrap().as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                let left = stop(&workers);
                assert_eq!((workers.tally().running, queue.stats().handed_out), (0, 0), "{name}");
                assert_eq!(set(&left.queued), set(&[(0, 1), (1, 2)]), "{name}");
            }
        }
    }
}

/// What a finish that was dropped has taken out is in the result of the next stop.
#[test]
fn a_finish_that_is_dropped_loses_nothing() {
    let queue = WorkQueue::new();
    queue.add_all([(0, 1), (0, 2)]);
    let workers = queue.workers().build();
    let mut work = Box::pin(workers.run_async(async |_: &Item<'_, Key>| pending::<()>().await));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(work.as_mut().poll(&mut cx).is_pending());
    let mut finish = Box::pin(workers.finish_until(pending::<()>()));
    assert!(finish.as_mut().poll(&mut cx).is_pending());
    assert!(queue.is_empty());
    drop(finish);
    let left = workers.stop();
    assert_eq!((left.queued, left.processing), (vec![(0, 2)], vec![(0, 1)]));
}

/// Leftovers of several calls, as one: each key is once in one list, where the last call has it, and once among the keys.
#[test]
fn leftovers_become_one() {
    let queue = WorkQueue::builder().driver(keyqueue::Driver::Manual).build();
    let keys = Vec::from_iter((0..8).map(|n| (0, n)));
    queue.add_all(keys.clone());
    let hour = Duration::from_secs(3600);
    for key in [(0, 0), (0, 5), (7, 7)] {
        queue.add_after(key, hour);
    }
    let workers = queue.workers().build();
    let mut items = Vec::from_iter((0..3).map(|_| queue.get().unwrap().into_owned()));
    let mut work = Box::pin(workers.run_async(async |_: &Item<'_, Key>| pending::<()>().await));
    assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut left = queue.take_where(|key| key.1 > 5);
    queue.add((0, 6)); // it was taken out, and comes once more
    queue.add_with((7, 7), AddOptions::new().after(2 * hour));
    queue.add((0, 1));
    left.extend(workers.stop());
    drop(work); // refused
    items.remove(1).done(); // queued again
    left.extend(workers.stop());
    left.processing.sort_unstable(); // in no order in a lock-free queue
    assert_eq!(left.queued, [(0, 7), (0, 4), (0, 5), (0, 6), (0, 1)]);
    assert_eq!((&*left.processing, &*left.refused), (&[(0, 0), (0, 2)][..], &[(0, 3)][..]));
    assert_eq!(left.delayed.iter().map(|one| one.key).collect::<Vec<_>>(), [(0, 0), (0, 5), (7, 7)]);
    assert!(left.delayed[2].left > hour);
    let all = left.keys().copied().collect::<Vec<_>>();
    assert_eq!(all, [(0, 7), (0, 4), (0, 5), (0, 6), (0, 1), (0, 0), (0, 2), (0, 3), (7, 7)]);
    assert_eq!(left.into_keys().collect::<Vec<_>>(), all);
}

/// A run whose task is dropped has not succeeded: its key is queued again, or, after the shut-down, refused.
#[test]
fn a_key_whose_run_is_dropped_is_left() {
    const KEY: Key = (1, 1);
    for (name, mode) in MODES {
        for dirty in [false, true] {
            for stops in 0..3 {
                let queue = mode().build();
                queue.add(KEY);
                let workers = queue.workers().build();
                let mut work = Box::pin(workers.run_async(async |_: &Item<'_, Key>| pending::<()>().await));
                assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                if dirty {
                    queue.add(KEY);
                }
                match stops {
                    0 => {}
                    1 => queue.shut_down(),
                    _ => assert_eq!(workers.stop().processing, [KEY]),
                }
                drop(work);
                assert_eq!((queue.processing_len(), workers.tally()), (0, Tally::default()), "{name}");
                assert_eq!(queue.stats().failures, 0);
                let left = workers.stop();
                let (again, refused) = if dirty || stops == 0 { (vec![KEY], vec![]) } else { (vec![], vec![KEY]) };
                assert_eq!((left.queued, left.refused), (again, refused), "{name}, {dirty}, {stops}");
                assert!(left.processing.is_empty() && left.delayed.is_empty());
                assert!(workers.stop().is_empty());
            }
        }
    }
}

/// With several shards by age, as far as it is known: one of 64 pushes of a shard reads the time. (With one shard the reference compares the
/// order with that of the hand-outs.)
#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn queued_keys_of_several_shards_are_returned_by_age() {
    let queue = WorkQueue::builder().shards(8).build();
    queue.add_all((0..10_000).map(|n| (0, n)));
    let queued = queue.workers().build().stop().queued;
    assert_eq!(set(&queued).len(), 10_000);
    let far = (0..).zip(&queued).map(|(at, key)| key.1.abs_diff(at)).max().unwrap();
    assert!(far < 2 * 8 * 64, "a key is {far} places from where it was added");
}

/// Handlers that wait for the shut-down, and fail then: each key is returned once.
#[test]
fn a_key_that_fails_during_a_drain_is_returned_as_refused() {
    let drains: [(&str, Stop); 4] = [
        ("drain", Workers::drain),
        ("drain_timeout", |workers| workers.drain_timeout(Duration::MAX)),
        ("drain_async", |workers| block_on(workers.drain_async())),
        ("drain_until", |workers| block_on(workers.drain_until(pending::<()>()))),
    ];
    for (name, drain) in drains {
        for panics in [false, true] {
            let queue = WorkQueue::new();
            let its = queue.clone();
            let workers = queue.workers().spawn(2, move |_: &Item<'_, Key>| {
                block_on(its.until_shutting_down());
                if panics { resume_unwind(Box::new("a handler")) } else { Outcome::Retry }
            });
            let workers = workers.unwrap();
            let keys: BTreeSet<_> = (0..20).map(|n| (0, n)).collect();
            queue.add_all(keys.iter().copied());
            let own = workers.clone();
            let left = within_30_s(move || drain(&own));
            assert_eq!(set(&left.refused), keys, "{name}, {panics}");
            assert!(left.queued.is_empty() && left.processing.is_empty(), "{name}: {left:?}");
            assert_eq!((workers.tally().refused, workers.tally().retried), (20, 0), "{name}");
            assert!(workers.stop().is_empty() && workers.drain().is_empty(), "{name}: each is returned once");
        }
    }
}

// ---- under load ----

/// What is known of one key.
#[derive(Default)]
struct Notes {
    /// Hand-outs that its accepted adds have led to, or are to lead to.
    owed: usize,
    removed: usize,
    /// It may have been taken back after the shut-down, when a failed run had queued it again.
    removed_late: bool,
    /// When its runs began and ended. A run is noted between its hand-out and its end.
    runs: Vec<(u64, u64)>,
    /// The last run has failed, after the shut-down.
    failed: bool,
}

/// Threads add, get, hold and take back keys while another stops the workers, in one of three ways, and runs that end after that fail or panic. Each hand-out that an
/// accepted add leads to takes place, or one `remove` takes it back, or the key is in one list; a key that is held when the stop returns is in
/// its list.
#[test]
fn a_stop_under_load_loses_no_key() {
    for round in 0..if cfg!(miri) { 2 } else { 6 } {
        for (mode, builder) in MODES {
            for priorities in [false, true] {
                stop_under_load(&format!("{mode}, priorities: {priorities}"), builder, priorities, round);
            }
        }
    }
}

fn stop_under_load(case: &str, builder: fn() -> WorkQueueBuilder<Key>, priorities: bool, seed: u64) {
    const KEYS: u32 = 60;
    let queue = builder().build();
    let time = Arc::new(AtomicU64::new(1));
    let notes: Arc<Vec<Mutex<Notes>>> = Arc::new((0..KEYS).map(|_| Mutex::default()).collect());
    let run = {
        let (queue, time, notes) = (queue.clone(), Arc::clone(&time), Arc::clone(&notes));
        move |key: &Key, fails: bool| {
            let began = time.fetch_add(1, Ordering::SeqCst);
            (0..began % 4).for_each(|_| thread::yield_now());
            let failed = fails && queue.shutting_down();
            let note = &mut *notes[key.1 as usize].lock().unwrap();
            note.runs.push((began, time.fetch_add(1, Ordering::SeqCst)));
            note.failed = failed;
            failed
        }
    };
    let of_workers = run.clone();
    let handler = move |item: &Item<'_, Key>| match of_workers(item.key(), true) {
        true if item.1 % 2 == 0 => resume_unwind(Box::new("a handler")),
        true => Outcome::Retry,
        false => Outcome::Success,
    };
    let workers = queue.workers().spawn(2, handler.clone()).unwrap();
    let task = workers.run_async(async move |item| handler(item));
    let task = thread::spawn(|| block_on(task));
    let begin = Barrier::new(5);
    let (left, returned) = thread::scope(|scope| {
        let (queue, notes, begin) = (&queue, &notes, &begin);
        for adder in 0..2 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 2 + adder);
                begin.wait();
                loop {
                    let n = random.u32(0..KEYS);
                    let options = AddOptions::new();
                    let options = if priorities { options.priority(Priority(random.i8(-1..2))) } else { options };
                    match queue.add_with((n % 3, n), options) {
                        Added::Rejected => return,
                        Added::Coalesced => {}
                        _ => notes[n as usize].lock().unwrap().owed += 1,
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed * 2 + 9);
            begin.wait();
            while !queue.shutting_down() {
                let n = random.u32(0..KEYS);
                let removed = queue.remove(&(n % 3, n));
                let note = &mut *notes[n as usize].lock().unwrap();
                note.removed += usize::from(removed);
                note.removed_late |= removed && queue.shutting_down();
                (0..4).for_each(|_| thread::yield_now());
            }
        });
        // A getter of its own, which no stop ends.
        scope.spawn(|| {
            begin.wait();
            while let Some(item) = queue.get() {
                run(item.key(), false);
            }
        });
        begin.wait();
        while time.load(Ordering::SeqCst) < 1 + seed * 40 {
            thread::yield_now();
        }
        let own = workers.clone();
        let left = within_30_s(move || STOPS[seed as usize % 3](&own));
        (left, time.fetch_add(1, Ordering::SeqCst))
    });
    let own = workers.clone();
    within_30_s(move || own.join());
    task.join().expect("a loop passes no panic on");
    let last = workers.stop();
    let (stats, tally) = (queue.stats(), workers.tally());
    assert_eq!((stats.panics, tally.retried), (tally.panicked, 0), "{case}");
    assert_eq!(stats.handed_out as usize, notes.iter().map(|note| note.lock().unwrap().runs.len()).sum(), "{case}");

    set(&[&left.queued[..], &left.processing, &left.refused].concat());
    let queued = set(&left.queued);
    let processing = set(&left.processing);
    let queued_again = set(&last.queued);
    let refused = set(&[&left.refused[..], &last.refused].concat());
    assert!(queued_again.is_subset(&processing), "{case}: {queued_again:?} were queued again, of {processing:?}");
    for (n, note) in (0..).zip(notes.iter()) {
        let (key, note) = ((n % 3, n), note.lock().unwrap());
        assert!(note.runs.is_sorted_by(|(_, ended), (began, _)| ended < began), "{case}: {key:?} has two holders (P1)");
        let taken = usize::from(queued.contains(&key)) + usize::from(queued_again.contains(&key));
        assert_eq!(note.runs.len() + note.removed + taken, note.owed, "{case}: {key:?} is lost, or was there twice");
        let is_held = note.runs.iter().any(|&(began, ended)| began < returned && returned < ended);
        assert!(!is_held || processing.contains(&key), "{case}: {key:?} is held, and not in {processing:?}");
        assert!(note.removed_late || refused.contains(&key) == (note.failed && taken == 0), "{case}: {key:?}");
    }
    assert_eq!((queue.len(), queue.processing_len()), (0, 0), "{case}");
}

/// Each run is in one of four counts.
#[test]
fn a_tally_adds_up_also_if_the_queue_refuses_requeues() {
    const HOUR: Duration = Duration::from_secs(3600);
    for (is_shut_down, has_groups) in [(false, false), (false, true), (true, false), (true, true)] {
        let builder = WorkQueue::<u32>::builder().on_panic(keyqueue::OnPanic::Done);
        let queue = if has_groups { builder.fair_by(|key| *key).build() } else { builder.build() };
        queue.add_all(0..70);
        if is_shut_down {
            queue.shut_down();
        }
        let run = |key: u32| match key % 7 {
            0 => Outcome::Success,
            1 => Outcome::RequeueAfter(HOUR),
            2 => Outcome::RequeueWith(AddOptions::new().after(HOUR)),
            3 => Outcome::RetryAfter { delay: HOUR, error: "fails".into() },
            4 => Outcome::GiveUp("is gone".into()),
            5 => Outcome::PauseGroup { delay: HOUR, error: "429".into() },
            _ => resume_unwind(Box::new("a panic")),
        };
        let workers = queue.workers().spawn(2, move |item| run(*item.key())).unwrap();
        let _leftover = workers.drain();
        let (tally, runs) = (workers.tally(), queue.inspect().metrics().runs);
        let all = runs.success + runs.requeue + runs.pause + runs.error + runs.give_up + runs.panic;
        let counted = tally.succeeded + tally.paused + tally.failed + tally.refused;
        assert_eq!((counted, all, runs.pause), (70, 70, if has_groups { 10 } else { 0 }), "{tally:?}");
        if is_shut_down {
            let counts = (tally.succeeded, tally.requeued, tally.paused, tally.refused);
            assert_eq!(counts, (10, 0, 0, 40), "{tally:?}");
            assert_eq!((tally.failed, tally.retried, tally.given_up, tally.panicked), (20, 0, 10, 10), "{tally:?}");
        } else {
            assert_eq!(tally.succeeded, 10 + tally.requeued, "{tally:?}");
            assert_eq!(tally.failed, tally.retried + tally.given_up + tally.panicked, "{tally:?}");
        }
    }
}
