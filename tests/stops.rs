//! Stops and drains return what is left, whatever the queue's order and limits, and nothing vanishes (P23).
//!
//! Checks: each way to stop returns although groups are full; each accepted key is handed out to its end, or in one list of the
//! [`Leftover`]; the lists are in the order of the queue; keys whose retries are refused are returned once; a clone that panics takes nothing.

mod support {
    pub(crate) mod tasks;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::{
    AddOptions, Added, Clock, Driver, Item, Leftover, OnPanic, Outcome, OwnedItem, Priority, WorkQueue,
    WorkQueueBuilder, Workers,
};
use std::collections::BTreeSet;
use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use support::tasks::{Calls, poll};
use support::within::within_30_s;

/// The first number is the group.
type Key = (u32, u32);

const MS: Duration = Duration::from_millis(1);

/// The orders of a queue, by name.
type Mode = (&'static str, fn() -> WorkQueueBuilder<Key>);

fn modes() -> Vec<Mode> {
    fn fair() -> WorkQueueBuilder<Key> {
        WorkQueue::builder().fair_by(|key: &Key| key.0)
    }
    vec![
        ("plain", WorkQueue::builder),
        ("4 shards", || WorkQueue::builder().shards(4)),
        ("groups", fair),
        ("groups, 4 shards", || fair().shards(4)),
        ("limit 1", || fair().max_processing_per_group(1)),
        ("limit 2", || fair().max_processing_per_group(2)),
    ]
}

/// Adds keys of three groups, some with priorities.
fn add_some(queue: &WorkQueue<Key>, priorities: bool) -> BTreeSet<Key> {
    let keys: BTreeSet<_> = (0..300).map(|n| (n % 3, n)).collect();
    for &key in &keys {
        let priority = if priorities { Priority(key.1 as i8 % 3) } else { Priority::NORMAL };
        let added = if priorities { queue.add_with(key, AddOptions::new().priority(priority)) } else { queue.add(key) };
        assert_eq!(added, Added::Queued);
    }
    keys
}

/// The keys of a list, each of which is there once.
fn set(keys: &[Key]) -> BTreeSet<Key> {
    let set: BTreeSet<_> = keys.iter().copied().collect();
    assert_eq!(set.len(), keys.len(), "a key is there twice");
    set
}

/// Each of `keys` is in one list.
#[track_caller]
fn assert_conserved(case: &str, keys: &BTreeSet<Key>, done: &BTreeSet<Key>, left: &Leftover<Key>) {
    let (queued, processing, refused) = (set(&left.queued), set(&left.processing), set(&left.refused));
    let all: BTreeSet<_> = [done, &queued, &processing, &refused].into_iter().flatten().copied().collect();
    assert_eq!(all, *keys, "{case}: keys are missing");
    assert_eq!(
        done.len() + queued.len() + processing.len() + refused.len(),
        keys.len(),
        "{case}: a key is in two lists"
    );
}

/// A gate at which handlers wait.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, std::sync::Condvar)>);

impl Gate {
    fn wait(&self) {
        let (open, changed) = &*self.0;
        drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

type Stop = fn(&Workers<Key>) -> Leftover<Key>;

/// The stops and drains that return although a handler does not.
const STOPS: [(&str, Stop); 3] = [
    ("stop", Workers::stop),
    ("drain_timeout", |workers| workers.drain_timeout(MS)),
    ("drain_until", |workers| block_on(workers.drain_until(ready(())))),
];

#[test]
fn each_way_to_stop_threads_returns_although_groups_are_full() {
    for (mode, builder) in modes() {
        for (stop_name, stop) in STOPS {
            for priorities in [false, true] {
                let case = format!("{mode}, {stop_name}, priorities: {priorities}");
                let queue = builder().build();
                let keys = add_some(&queue, priorities);
                let gate = Gate::default();
                let at_gate = gate.clone();
                // A limit of 1 lets three of them hold keys, and the others wait for keys of full groups.
                let workers = queue.workers().spawn(5, move |_: &Item<'_, Key>| at_gate.wait()).unwrap();
                let held = if mode.starts_with("limit 1") { 3 } else { 5 };
                while queue.processing_len() < held {
                    thread::yield_now();
                }
                let own = workers.clone();
                let left = within_30_s(move || stop(&own));
                assert_eq!(left.processing.len(), held, "{case}");
                assert_conserved(&case, &keys, &BTreeSet::new(), &left);
                assert_eq!((queue.len(), queue.processing_len()), (0, held), "{case}");
                gate.open();
                let own = workers.clone();
                within_30_s(move || own.join());
                assert!(workers.stop().is_empty(), "{case}");
                let stats = queue.stats();
                assert_eq!((stats.handed_out, stats.taken), (held as u64, 300 - held as u64), "{case}");
            }
        }
    }
}

/// On a runtime with one thread, the stop must not wait for a handler, which needs this thread.
#[test]
fn each_way_to_stop_tasks_returns_although_groups_are_full() {
    for (mode, builder) in modes() {
        for stop_number in 0..4 {
            let case = format!("{mode}, {stop_number}");
            within_30_s(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let queue = builder().build();
                    let keys = add_some(&queue, false);
                    let workers = queue.workers().build();
                    let (go, wait) = tokio::sync::watch::channel(());
                    for _ in 0..5 {
                        let mut wait = wait.clone();
                        tokio::spawn(workers.run_async(async move |_: &Item<'_, Key>| _ = wait.changed().await));
                    }
                    let held = if mode.starts_with("limit 1") { 3 } else { 5 };
                    while queue.processing_len() < held {
                        tokio::task::yield_now().await;
                    }
                    let left = match stop_number {
                        0 => workers.stop(),
                        1 => workers.drain_timeout(MS),
                        2 => workers.drain_until(tokio::time::sleep(MS)).await,
                        _ => {
                            let mut drain = pin!(workers.drain_async());
                            let calls = Arc::new(Calls::default());
                            assert!(poll(drain.as_mut(), &calls).is_pending());
                            let first = workers.stop(); // the drain ends with the loops
                            assert!(poll(drain.as_mut(), &calls).is_pending());
                            drop(go);
                            assert!(drain.await.is_empty());
                            return assert_conserved(&case, &keys, &BTreeSet::new(), &first);
                        }
                    };
                    assert_conserved(&case, &keys, &BTreeSet::new(), &left);
                    assert_eq!((left.processing.len(), queue.len()), (held, 0), "{case}");
                    drop(go);
                    workers.join_async().await;
                    assert!(workers.stop().is_empty(), "{case}");
                });
            });
        }
    }
}

/// A drain without a deadline that a plain shut-down releases, while no loop runs and another holder has filled a group.
#[test]
fn a_released_drain_returns_although_a_group_is_full() {
    for asynchronous in [false, true] {
        let queue = WorkQueue::builder().fair_by(|key: &Key| key.0).max_processing_per_group(1).build();
        queue.add_all([(1, 1), (1, 2), (2, 1)]);
        let item = queue.get().unwrap().into_owned();
        let workers = queue.workers().build();
        let left = within_30_s(move || {
            if asynchronous {
                let mut drain = pin!(workers.drain_async());
                let calls = Arc::new(Calls::default());
                assert!(poll(drain.as_mut(), &calls).is_pending());
                queue.shut_down();
                let Poll::Ready(left) = poll(drain, &calls) else { panic!("no loop runs") };
                return left;
            }
            thread::scope(|scope| {
                let drain = scope.spawn(|| workers.drain());
                while queue.stats().drainers == 0 {
                    thread::yield_now();
                }
                queue.shut_down();
                drain.join().unwrap()
            })
        });
        assert_eq!((left.queued, left.processing), (vec![(1, 2), (2, 1)], vec![(1, 1)]));
        item.done();
    }
}

/// The workers, for their handler.
fn wait_for(workers: &OnceLock<Workers<Key>>) -> &Workers<Key> {
    loop {
        if let Some(workers) = workers.get() {
            return workers;
        }
        thread::yield_now();
    }
}

#[test]
fn a_handler_may_stop_its_workers_although_its_group_is_full() {
    for (mode, builder) in modes() {
        for asynchronous in [false, true] {
            let queue = builder().build();
            let keys = add_some(&queue, false);
            let (send, receive) = mpsc::channel();
            let workers = Arc::new(OnceLock::<Workers<Key>>::new());
            let its = Arc::clone(&workers);
            let handler = move |_: &Item<'_, Key>| send.send(wait_for(&its).stop()).unwrap();
            if asynchronous {
                let own = workers.get_or_init(|| queue.workers().build());
                let work = own.run_async(async move |item: &Item<'_, Key>| handler(item));
                thread::spawn(move || block_on(work));
            } else {
                workers.set(queue.workers().spawn(1, handler).unwrap()).unwrap();
            }
            let left = receive.recv_timeout(Duration::from_secs(30)).expect("the handler has not returned after 30 s");
            assert_conserved(mode, &keys, &BTreeSet::new(), &left);
            assert_eq!((left.processing.len(), queue.len()), (1, 0), "{mode}");
            wait_for(&workers).join();
        }
    }
}

/// Priorities first, groups take turns according to their weights, full groups too; a queue without groups is first in, first out.
#[test]
fn queued_keys_are_returned_in_the_order_of_their_hand_outs() {
    type Build = fn() -> WorkQueueBuilder<Key>;
    let builders: [Build; 4] = [
        WorkQueue::builder,
        || WorkQueue::builder().strict_priorities(true),
        || WorkQueue::builder().strict_priorities(true).fair_by(|key: &Key| key.0),
        || WorkQueue::builder().strict_priorities(true).fair_by(|key: &Key| key.0).group_weight(|key| 1 + key.0),
    ];
    for (number, builder) in builders.into_iter().enumerate() {
        let fill = |queue: &WorkQueue<Key>| {
            for n in 0..40 {
                let key = ((n / 8) % 3, n);
                if number > 0 && n % 5 == 0 {
                    queue.add_with(key, AddOptions::new().priority(Priority(n as i8 % 3)));
                } else {
                    queue.add(key);
                }
            }
        };
        let queues = [builder().build(), builder().build()];
        queues.iter().for_each(fill);
        let handed_out: Vec<_> = std::iter::from_fn(|| queues[0].try_get().ok().map(|item| *item)).collect();
        assert_eq!(handed_out.len(), 40);
        assert_eq!(queues[1].workers().build().stop().queued, handed_out, "{number}");
    }
    // With several shards by age, as far as it is known: one of 64 pushes of a shard reads the time.
    let queue = WorkQueue::builder().shards(8).build();
    queue.add_all((0..10_000).map(|n| (0, n)));
    let queued = queue.workers().build().stop().queued;
    assert_eq!(set(&queued).len(), 10_000);
    let far = (0..).zip(&queued).map(|(at, key)| key.1.abs_diff(at)).max().unwrap();
    assert!(far < 2 * 8 * 64, "a key is {far} places from where it was added");
}

/// A key whose `Clone` panics if a flag is set.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

thread_local!(static FRAGILE: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) });

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.0 == FRAGILE.get() {
            resume_unwind(Box::new("a clone"));
        }
        Self(self.0)
    }
}

/// A stop that panics leaves the keys their places and priorities (P19).
#[test]
fn a_stop_whose_clone_panics_leaves_each_key_its_priority() {
    let queue = WorkQueue::builder().strict_priorities(true).build();
    (1..=5).for_each(|n| _ = queue.add_with(Fragile(n), AddOptions::new().priority(Priority(100 - n as i8))));
    queue.add(Fragile(9));
    let workers = queue.workers().build();
    FRAGILE.set(3);
    assert!(catch_unwind(AssertUnwindSafe(|| workers.stop())).is_err());
    FRAGILE.set(u32::MAX);
    let order: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| (item.0, item.priority().0))).collect();
    assert_eq!(order, [(1, 99), (2, 98), (3, 97), (4, 96), (5, 95), (9, 0)]);
}

/// A delay that goes back keeps its group, and the function that names groups is not asked again: it might panic.
#[test]
fn a_delay_that_goes_back_keeps_its_group() {
    static ASKED_TOO_LATE: AtomicBool = AtomicBool::new(false);
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder()
        .clock(clock)
        .driver(Driver::Manual)
        .fair_by(|key: &Fragile| {
            if ASKED_TOO_LATE.load(Ordering::SeqCst) {
                resume_unwind(Box::new("a group"));
            }
            key.0 / 10
        })
        .max_processing_per_group(1)
        .build();
    for n in [11, 12, 13] {
        // So that it is cloned: its failure keeps it in the queue.
        queue.add_with(Fragile(n), AddOptions::new().after(n * MS).rate_limited());
    }
    queue.add_after(Fragile(14), 14 * MS);
    FRAGILE.set(13);
    ASKED_TOO_LATE.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.take_delayed())).is_err());
    FRAGILE.set(u32::MAX);
    time.advance(14 * MS);
    assert_eq!((queue.turn(), queue.stats().caught_panics), (4, 0));
    let first = queue.try_get().unwrap();
    assert!(queue.try_get().is_err(), "all four are of one group");
    drop(first);
    assert_eq!(queue.inspect().groups().len(), 1);
}

// ---- refused keys ----

/// A queue without a driver thread, and its workers, whose handler fails when the queue is shut down.
fn failing(outcome: fn() -> Outcome) -> (WorkQueue<Key>, Workers<Key>) {
    let queue = WorkQueue::builder().driver(Driver::Manual).clock(Clock::mock().0).build();
    let its = queue.clone();
    let workers = queue.workers().spawn(2, move |_: &Item<'_, Key>| {
        block_on(its.until_shutting_down());
        outcome()
    });
    (queue, workers.unwrap())
}

#[test]
fn a_key_that_fails_during_a_drain_is_returned_as_refused() {
    let drains: [(&str, Stop); 4] = [
        ("drain", Workers::drain),
        ("drain_timeout", |workers| workers.drain_timeout(Duration::MAX)),
        ("drain_async", |workers| block_on(workers.drain_async())),
        ("drain_until", |workers| block_on(workers.drain_until(pending::<()>()))),
    ];
    type End = fn() -> Outcome;
    let outcomes: [(&str, End); 6] = [
        ("Retry", || Outcome::Retry),
        ("Failed", || Outcome::Failed("no".into())),
        ("RetryAfter", || Outcome::RetryAfter { delay: MS, error: "no".into() }),
        ("RequeueAfter", || Outcome::RequeueAfter(MS)),
        ("RequeueWith", || Outcome::RequeueWith(AddOptions::new().priority(Priority::HIGH))),
        ("a panic", || resume_unwind(Box::new("a handler"))),
    ];
    for (drain_name, drain) in drains {
        for (outcome_name, outcome) in outcomes {
            let case = format!("{drain_name}, {outcome_name}");
            let (queue, workers) = failing(outcome);
            let keys: BTreeSet<_> = (0..20).map(|n| (0, n)).collect();
            queue.add_all(keys.iter().copied());
            let own = workers.clone();
            let left = within_30_s(move || drain(&own));
            assert_eq!(set(&left.refused), keys, "{case}");
            assert!(!left.is_empty() && left.queued.is_empty() && left.processing.is_empty(), "{case}: {left:?}");
            let tally = workers.tally();
            let panicked = if outcome_name == "a panic" { 20 } else { 0 };
            assert_eq!((tally.refused, tally.retried, tally.requeued), (20, 0, 0), "{case}");
            assert_eq!((tally.panicked, queue.stats().rejected), (panicked, 20), "{case}");
            assert!(workers.stop().is_empty() && workers.drain().is_empty(), "{case}: each is returned once");
        }
    }
}

/// What is not refused: a success, a key that was given up, a panic that is not retried.
#[test]
fn a_key_that_is_done_is_not_refused() {
    for outcome in [|| Outcome::Success, || Outcome::GiveUp("gone".into())] {
        let (queue, workers) = failing(outcome);
        queue.add_all((0..20).map(|n| (0, n)));
        assert!(workers.drain().is_empty());
    }
    let queue = WorkQueue::builder().on_panic(OnPanic::Done).build();
    queue.add(1);
    queue.shut_down();
    let handler = |_: &Item<'_, u32>| -> () { resume_unwind(Box::new("a handler")) };
    let workers = queue.workers().spawn(1, handler).unwrap();
    assert!(workers.drain().is_empty());
}

/// A stop returns a key as processing, and the next one returns it as refused, once.
#[test]
fn a_key_that_fails_after_a_stop_is_returned_by_the_next() {
    let gate = Gate::default();
    let at_gate = gate.clone();
    let queue = WorkQueue::new();
    let workers = queue.workers().spawn(1, move |_: &Item<'_, Key>| {
        at_gate.wait();
        Err::<(), _>("too late")
    });
    let workers = workers.unwrap();
    queue.add((0, 1));
    while queue.processing_len() == 0 {
        thread::yield_now();
    }
    let left = workers.stop();
    assert_eq!((left.processing, left.refused), (vec![(0, 1)], vec![]));
    gate.open();
    let left = workers.drain();
    assert_eq!((left.processing, left.refused), (vec![], vec![(0, 1)]));
    assert!(workers.drain().is_empty());
}

/// A key that was added while it was processing runs once more, so its refused retry is not listed.
#[test]
fn a_dirty_key_is_queued_again_and_not_refused() {
    for outcomes in [
        [|| Outcome::Retry, || Outcome::Success],
        [|| Outcome::RequeueAfter(MS), || Outcome::Success],
        [|| Outcome::Retry, || Outcome::Retry],
    ] {
        let fails_twice = matches!(outcomes[1](), Outcome::Retry);
        let (queue, runs) = (WorkQueue::new(), AtomicUsize::new(0));
        queue.add((0, 1));
        let its = queue.clone();
        let workers = queue.workers().build();
        workers.run(move |item: &Item<'_, Key>| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            if run == 0 {
                assert_eq!(its.add(*item.key()), Added::Deferred);
                its.shut_down();
            }
            outcomes[run]()
        });
        let left = workers.stop();
        assert_eq!(left.refused, if fails_twice { vec![(0, 1)] } else { vec![] });
        let tally = workers.tally();
        assert_eq!((tally.refused, tally.succeeded + tally.failed), (1 + u64::from(fails_twice), 2));
        assert_eq!((left.queued, left.processing, queue.stats().handed_out), (vec![], vec![], 2));
    }
    // Without another run, a stop returns it: as processing, and then as queued.
    let queue = WorkQueue::new();
    queue.add((0, 1));
    let item = queue.get().unwrap();
    queue.add((0, 1));
    let workers = queue.workers().build();
    let left = workers.stop();
    assert_eq!((left.queued, left.processing, left.refused), (vec![], vec![(0, 1)], vec![]));
    assert_eq!(item.retry(), Added::Rejected);
    let left = workers.stop();
    assert_eq!((left.queued, left.processing, left.refused), (vec![(0, 1)], vec![], vec![]));
}

/// The clone for the list panics: that costs the entry, and nothing else.
#[test]
fn a_refused_key_whose_clone_panics_is_only_missing_in_the_list() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3].map(Fragile));
    queue.shut_down();
    let workers = queue.workers().build();
    FRAGILE.set(2);
    workers.run(|_: &Item<'_, Fragile>| Outcome::Retry);
    FRAGILE.set(u32::MAX);
    let tally = workers.tally();
    assert_eq!((tally.refused, tally.retried, tally.panicked), (3, 0, 1));
    assert_eq!((queue.stats().processing, queue.stats().panics), (0, 0));
    assert_eq!(workers.stop().refused, [1, 3].map(Fragile));
}

/// Without workers the caller of a refused retry has the key in hand, and no list has it.
#[test]
fn a_retry_that_its_caller_sees_refused_is_in_no_list() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let items: Vec<OwnedItem<i32>> = (0..3).map(|_| queue.get().unwrap().into_owned()).collect();
    queue.shut_down();
    let calls: [fn(OwnedItem<i32>) -> Added; 3] = [
        |item| item.retry(),
        |item| item.requeue_after(MS),
        |item| item.requeue_with(AddOptions::new().priority(Priority::HIGH)),
    ];
    for (item, call) in items.into_iter().zip(calls) {
        assert_eq!(call(item), Added::Rejected);
    }
    let stats = queue.stats();
    assert_eq!((stats.processing, stats.len, stats.rejected, stats.failing), (0, 0, 3, 1));
    assert!(queue.workers().build().drain().is_empty());
}

/// The observer sees a refused requeue as before: the key is done, and an add was refused.
#[test]
fn an_observer_sees_a_refusal() {
    #[derive(Clone, Default)]
    struct Events(Arc<Mutex<Vec<String>>>);
    impl keyqueue::observe::Observer for Events {
        fn added(&self, added: Added) {
            self.0.lock().unwrap().push(format!("{added:?}"));
        }
        fn done(&self, _: Option<Duration>) {
            self.0.lock().unwrap().push("done".to_owned());
        }
    }
    let events = Events::default();
    let queue = WorkQueue::builder().observer(events.clone()).build();
    queue.add(1);
    queue.shut_down();
    queue.workers().build().run(|_: &Item<'_, i32>| Outcome::Retry);
    assert_eq!(*events.0.lock().unwrap(), ["Queued", "done", "Rejected"]);
}

// ---- under load ----

/// What is known of one key.
#[derive(Default)]
struct Notes {
    /// Hand-outs that its accepted adds have led to, or are to lead to.
    owed: usize,
    /// When its runs began and ended. A run is noted between its hand-out and its end.
    runs: Vec<(u64, u64)>,
    /// The last run has failed, after the shut-down.
    failed: bool,
}

/// Threads add, get and hold keys while another stops the workers, and runs that end after that fail. Each hand-out that an accepted add
/// leads to takes place, or the key is in one list; a key that is held when the stop returns is in its list.
#[test]
fn a_stop_under_load_loses_no_key() {
    for round in 0..6 {
        for (mode, builder) in modes() {
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
        true => Outcome::Retry,
        false => Outcome::Success,
    };
    let workers = queue.workers().spawn(2, handler).unwrap();
    let begin = Barrier::new(4);
    let (left, returned) = thread::scope(|scope| {
        for adder in 0..2 {
            let (queue, notes, begin) = (&queue, &notes, &begin);
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
        let left = within_30_s(move || own.stop());
        (left, time.fetch_add(1, Ordering::SeqCst))
    });
    let own = workers.clone();
    within_30_s(move || own.join());
    let last = workers.stop();

    set(&[&left.queued[..], &left.processing, &left.refused].concat());
    let queued = set(&left.queued);
    let processing = set(&left.processing);
    let queued_again = set(&last.queued);
    let refused = set(&[&left.refused[..], &last.refused].concat());
    assert!(queued_again.is_subset(&processing), "{case}: {queued_again:?} were queued again, of {processing:?}");
    for (n, note) in (0..).zip(notes.iter()) {
        let (key, note) = ((n % 3, n), note.lock().unwrap());
        let taken = usize::from(queued.contains(&key)) + usize::from(queued_again.contains(&key));
        assert_eq!(note.runs.len() + taken, note.owed, "{case}: {key:?} is lost, or was there twice");
        let is_held = note.runs.iter().any(|&(began, ended)| began < returned && returned < ended);
        assert!(!is_held || processing.contains(&key), "{case}: {key:?} is held, and not in {processing:?}");
        assert_eq!(refused.contains(&key), note.failed && taken == 0, "{case}: {key:?}");
    }
    assert_eq!((queue.len(), queue.processing_len()), (0, 0), "{case}");
}
