//! Panics in foreign code that the reference (`tests/reference/`) does not make: in threads, of user code that always panics, with payloads
//! of all kinds, and in threads that already unwind. The reference makes one panic of each kind in loops of tasks.
//!
//! Checks P13 for workers: after a panic no key stays processing, the loop goes on, and the panic is counted. An item that a panicking
//! thread drops is done or retried, even if the limiter panics as well, and the process does not abort. Tests that could abort run in a
//! child process.
//!
//! Checks P2 for keys whose limiter panics: they come back after 50 ms, until they are given up.
//!
//! All panics here unwind by `resume_unwind`, which prints no message.

mod support {
    pub(crate) mod keys;
    pub(crate) mod loops;
    pub(crate) mod manual;
    pub(crate) mod tasks;
}

use futures_executor::block_on;
use keyqueue::backoff::Stop;
use keyqueue::observe::Observer;
use keyqueue::rate_limiter::RateLimiter;
use keyqueue::{AddOptions, Added, Driver, Item, OnPanic, Outcome, OwnedItem, WorkQueue, WorkQueueBuilder};
use std::any::Any;
use std::error::Error;
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Context;
use std::thread;
use std::time::Duration;
use support::keys::With;
use support::loops::{WAYS, no_backoff, run};
use support::manual::manual;
use support::tasks::{poll, waker_that_panics_when_dropped};

// ---- what panics ----

type Payload = fn() -> Box<dyn Any + Send>;

/// A panic payload whose drop panics.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        resume_unwind(Box::new("a payload's drop"));
    }
}

/// Calls a closure when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The error of a handler. Its conversion, which panics, is the only user code between a handler's return and its outcome.
struct Failure(Payload);

impl From<Failure> for Box<dyn Error + Send + Sync> {
    fn from(Failure(payload): Failure) -> Self {
        resume_unwind(payload())
    }
}

/// A limiter, an observer and a part of a key. While it is on, it panics each time that the crate calls it at its place.
#[derive(Clone)]
struct Foreign(Arc<Fault>);

struct Fault {
    place: &'static str,
    payload: Payload,
    is_on: AtomicBool,
    panics: AtomicUsize,
}

impl Foreign {
    fn new(place: &'static str, payload: Payload) -> Self {
        Self(Arc::new(Fault { place, payload, is_on: AtomicBool::new(false), panics: AtomicUsize::new(0) }))
    }

    fn at(&self, place: &str) {
        if place == self.0.place && self.0.is_on.load(Ordering::SeqCst) {
            self.0.panics.fetch_add(1, Ordering::SeqCst);
            resume_unwind((self.0.payload)());
        }
    }

    fn switch(&self, on: bool) {
        self.0.is_on.store(on, Ordering::SeqCst);
    }

    fn panics(&self) -> usize {
        self.0.panics.load(Ordering::SeqCst)
    }

    /// A queue with this limiter and this observer.
    fn queue(&self, policy: Option<OnPanic>) -> WorkQueue<Key> {
        let builder = manual(WorkQueue::builder()).0.rate_limiter(self.clone()).observer(self.clone());
        policy.into_iter().fold(builder, WorkQueueBuilder::on_panic).build()
    }
}

/// Retries without a delay.
impl RateLimiter<Key> for Foreign {
    fn when(&self, _: &Key) -> Duration {
        self.at("when");
        Duration::ZERO
    }

    fn forget(&self, _: &Key) {
        self.at("forget");
    }

    fn num_requeues(&self, _: &Key) -> usize {
        self.at("num_requeues");
        0
    }
}

impl Observer for Foreign {
    fn added(&self, _: Added) {
        self.at("added");
    }

    fn handed_out(&self, _: Option<Duration>) {
        self.at("handed_out");
    }

    fn done(&self, _: Option<Duration>) {
        self.at("done");
    }

    fn given_up(&self) {
        self.at("given_up");
    }

    fn panicked(&self) {
        self.at("panicked");
    }
}

type Key = With<InKey>;

/// The part of a key.
#[derive(Clone)]
struct InKey(Foreign);

impl Drop for InKey {
    fn drop(&mut self) {
        // A second panic while unwinding aborts, and that would be the key's fault, not the queue's.
        if !thread::panicking() {
            self.0.at("the drop of a key");
        }
    }
}

// ---- handlers ----

#[test]
fn a_handler_that_panics_is_retried_its_message_is_told_and_the_loop_goes_on() {
    let payloads: [(Payload, &str, u64); 4] = [
        (|| Box::new("a text"), "a text", 1),
        (|| Box::new("an owned text".to_owned()), "an owned text", 1),
        (|| Box::new(7_u8), "(not a text)", 1),
        // The panic in the payload's drop is counted as well.
        (|| Box::new(PanicsOnDrop), "(not a text)", 2),
    ];
    for way in WAYS {
        for (payload, message, panics) in payloads {
            for place in ["its body", "the drop of a local value", "the conversion of its error"] {
                let queue = no_backoff().build();
                queue.add_all([7, 8]);
                let ((note, notes), (tell, told)) = (mpsc::channel(), mpsc::channel());
                let builder = queue.workers().on_panic(move |&key, text| tell.send((key, text.to_owned())).unwrap());
                let own = queue.clone();
                let workers = run(way, builder, move |item: &Item<'_, u32>| {
                    note.send(**item).unwrap();
                    if **item == 8 {
                        return Ok(());
                    }
                    if item.num_requeues() == 1 {
                        own.shut_down();
                        return Ok(());
                    }
                    match place {
                        "its body" => resume_unwind(payload()),
                        "the drop of a local value" => drop(AtDrop(|| resume_unwind(payload()))),
                        _ => return Err(Failure(payload)),
                    }
                    Ok(())
                });
                let case = format!("{way:?}, {message}, {place}");
                assert_eq!(notes.try_iter().collect::<Vec<_>>(), [7, 8, 7], "{case}");
                assert_eq!(told.try_iter().collect::<Vec<_>>(), [(7, message.to_owned())], "{case}");
                let (stats, tally) = (queue.stats(), workers.tally());
                assert_eq!((stats.panics, stats.processing, stats.len, stats.delayed), (1, 0, 0, 0), "{case}");
                assert_eq!((tally.panicked, tally.failed, tally.retried, tally.succeeded), (panics, 1, 1, 2), "{case}");
            }
        }
    }
}

#[test]
fn a_panic_before_the_handler_returns_its_future_is_counted() {
    let queue = WorkQueue::<u32>::new();
    queue.add_all([1, 2]);
    queue.shut_down();
    let workers = queue.workers().build();
    block_on(workers.run_async(|item: &Item<'_, u32>| {
        if **item == 1 {
            resume_unwind(Box::new("no future"));
        }
        async {}
    }));
    let (stats, tally) = (queue.stats(), workers.tally());
    assert_eq!((tally.panicked, tally.refused, tally.succeeded), (1, 1, 1));
    assert_eq!((stats.panics, stats.processing, stats.len), (1, 0, 0));
}

// ---- other user code ----

type Run = fn() -> Outcome;

/// Each place where a loop calls user code beside its handler, and the outcome after which it gets there.
const PLACES: [(&str, Run); 12] = [
    ("on_error", || Outcome::failed("no luck")),
    ("on_panic", || resume_unwind(Box::new("it must panic first"))),
    ("on_give_up", || Outcome::GiveUp("gone".into())),
    ("when", || Outcome::failed("no luck")),
    ("forget", || Outcome::Success),
    ("num_requeues", || Outcome::failed("no luck")),
    ("added", || Outcome::RequeueAfter(Duration::ZERO)),
    ("handed_out", || Outcome::Success),
    ("done", || Outcome::Success),
    ("given_up", || Outcome::GiveUp("gone".into())),
    ("panicked", || resume_unwind(Box::new("it must panic first"))),
    ("the drop of a key", || Outcome::Success),
];

#[test]
#[cfg_attr(miri, ignore = "there are no processes there")]
fn user_code_that_always_panics_stops_no_loop() {
    in_a_child("user_code_that_always_panics_stops_no_loop", || {
        let payloads: [Payload; 2] = [|| Box::new("a text"), || Box::new(PanicsOnDrop)];
        for (way, payload) in WAYS.into_iter().flat_map(|way| payloads.map(|payload| (way, payload))) {
            for (place, outcome) in PLACES {
                for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                    let foreign = Foreign::new(place, payload);
                    let queue = foreign.queue(policy);
                    queue.add_all([7, 8].map(|key| With(key, InKey(foreign.clone()))));
                    queue.shut_down();
                    let [on_error, on_panic, on_give_up] = [foreign.clone(), foreign.clone(), foreign.clone()];
                    let builder = queue.workers().max_retries(5).on_error(move |_, _| on_error.at("on_error"));
                    let builder = builder.on_panic(move |_, _| on_panic.at("on_panic"));
                    let builder = builder.on_give_up(move |_, _| on_give_up.at("on_give_up"));
                    let (note, notes) = mpsc::channel();
                    foreign.switch(true);
                    let workers = run(way, builder, move |item: &Item<'_, Key>| {
                        note.send(item.0).unwrap();
                        if item.0 == 7 { outcome() } else { Outcome::Success }
                    });
                    foreign.switch(false);
                    let case = format!("{way:?}, {place}, {policy:?}");
                    assert_eq!(notes.try_iter().collect::<Vec<_>>(), [7, 8], "{case}");
                    assert!(foreign.panics() > 0, "{case}");
                    let (stats, tally) = (queue.stats(), workers.tally());
                    assert_eq!((stats.processing, stats.len, stats.delayed), (0, 0, 0), "{case}");
                    // The queue catches the observer's panic at the hand-out, and counts it.
                    let caught = if place == "handed_out" { 2 } else { 0 };
                    assert_eq!((stats.caught_panics, tally.panicked == 0), (caught, place == "handed_out"), "{case}");
                }
            }
        }
    });
}

#[test]
fn a_key_whose_limiter_always_panics_comes_back_after_50_ms_until_it_is_given_up() {
    struct Broken;
    impl RateLimiter<u32> for Broken {
        fn when(&self, _: &u32) -> Duration {
            resume_unwind(Box::new("when"))
        }
        fn forget(&self, _: &u32) {
            resume_unwind(Box::new("forget"))
        }
        fn num_requeues(&self, _: &u32) -> usize {
            resume_unwind(Box::new("num_requeues"))
        }
    }
    for max in [0, 1, 3] {
        let (builder, time) = manual(WorkQueue::builder());
        let queue = builder.rate_limiter(Broken).build();
        queue.add(7);
        let (tell, told) = mpsc::channel();
        let workers =
            queue.workers().max_retries(max).on_give_up(move |_, why| tell.send(why.retries).unwrap()).build();
        let mut work = pin!(workers.run_async(async |_| Outcome::failed("no luck")));
        assert!(poll(work.as_mut(), &Arc::default()).is_pending());
        for retry in 0..max {
            assert_eq!((queue.stats().retries, queue.delayed_len()), (retry as u64 + 1, 1));
            time.advance(Duration::from_nanos(49_999_999));
            assert_eq!(queue.turn(), 0);
            time.advance(Duration::from_nanos(1));
            assert_eq!(queue.turn(), 1);
            assert!(poll(work.as_mut(), &Arc::default()).is_pending());
        }
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [max]);
        let (stats, tally) = (queue.stats(), workers.tally());
        assert_eq!((stats.given_up, stats.processing, stats.delayed, stats.failing), (1, 0, 0, 0));
        // `num_requeues` in each run, and `forget` in the last.
        assert_eq!((tally.panicked, stats.panics), (max as u64 + 2, max as u64 + 2));
    }
}

// ---- threads that unwind ----

/// Calls `run` in the `Drop` of another value, while the thread unwinds.
fn while_unwinding(run: impl FnMut()) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _at_drop = AtDrop(run);
        resume_unwind(Box::new("something else"));
    }));
    assert!(unwound.is_err());
}

/// Gets the first key, and drops its item while unwinding.
fn unwind<K: Hash + Eq + Clone + Send + Sync + 'static>(queue: &WorkQueue<K>, owned: bool) {
    let item = queue.get().unwrap();
    let panics = || -> () {
        if owned {
            let _item = item.into_owned();
            resume_unwind(Box::new("its holder"));
        }
        let _item = item;
        resume_unwind(Box::new("its holder"))
    };
    let payload = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "its holder");
}

/// The thread that unwinds ends the item itself, so no panic of the holder is counted.
#[test]
fn an_explicit_done_is_done_even_while_the_thread_unwinds() {
    for policy in [OnPanic::Done, OnPanic::Retry] {
        let queue = manual(WorkQueue::builder()).0.on_panic(policy).build();
        queue.add_all([1, 2]);
        let (mut item, mut owned) = (queue.get(), queue.get().map(Item::into_owned));
        while_unwinding(|| item.take().unwrap().done());
        while_unwinding(|| owned.take().unwrap().done());
        let stats = queue.stats();
        assert_eq!((stats.processing, stats.panics, stats.retries), (0, 0, 0), "{policy:?}");
    }
}

/// Each call that ends a hand-out, in a thread that unwinds: the panics of the key's drop, of the observer and of the limiter do not leave it,
/// as a second panic would abort the process.
#[test]
fn no_end_of_an_item_panics_while_the_thread_unwinds() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(u32, bool);
    impl Drop for Key {
        fn drop(&mut self) {
            if self.1 && thread::panicking() {
                resume_unwind(Box::new("a key's drop"));
            }
        }
    }
    struct Panics;
    impl Observer for Panics {
        fn added(&self, _: Added) {
            self.done(None);
        }
        fn done(&self, _: Option<Duration>) {
            if thread::panicking() {
                resume_unwind(Box::new("an observer"));
            }
        }
        fn given_up(&self) {
            self.done(None);
        }
    }
    impl RateLimiter<Key> for Panics {
        fn when(&self, _: &Key) -> Duration {
            self.done(None);
            Duration::ZERO
        }
        fn forget(&self, _: &Key) {
            self.done(None);
        }
        fn num_requeues(&self, _: &Key) -> usize {
            0
        }
    }
    type End = fn(Item<'_, Key>, OwnedItem<Key>) -> Vec<Added>;
    let ends: [(&str, usize, End); 6] = [
        ("done", 0, |item, owned| {
            item.done();
            owned.done();
            vec![]
        }),
        ("succeed", 0, |item, owned| {
            item.succeed();
            owned.succeed();
            vec![]
        }),
        ("give_up", 0, |item, owned| {
            item.give_up();
            owned.give_up();
            vec![]
        }),
        ("retry", 2, |item, owned| vec![item.retry(), owned.retry()]),
        ("requeue_after", 2, |item, owned| vec![item.requeue_after(MINUTE), owned.requeue_after(MINUTE)]),
        ("requeue_with", 2, |item, owned| {
            let options = AddOptions::new().after(MINUTE);
            vec![item.requeue_with(options), owned.requeue_with(options)]
        }),
    ];
    const MINUTE: Duration = Duration::from_secs(60);
    for (name, left, end) in ends {
        for bits in 0..8 {
            let [observed, limited, is_shut_down] = [1, 2, 4].map(|bit| bits & bit != 0);
            let mut builder = WorkQueue::builder().driver(Driver::Manual);
            builder = if observed { builder.observer(Panics) } else { builder };
            builder = if limited { builder.rate_limiter(Panics) } else { builder };
            let queue = builder.build();
            // One panic at a time: a key's drop that panics while the observer's panic unwinds is the key's fault.
            queue.add_all([Key(1, !observed), Key(2, !observed)]);
            let (mut item, mut owned) = (queue.get(), queue.get().map(Item::into_owned));
            if is_shut_down {
                queue.shut_down();
            }
            let (mut answers, left) = (Vec::new(), if is_shut_down { 0 } else { left });
            while_unwinding(|| answers = end(item.take().unwrap(), owned.take().unwrap()));
            let case = format!("{name}, observed: {observed}, limited: {limited}, shut down: {is_shut_down}");
            assert_eq!((queue.processing_len(), queue.delayed_len()), (0, left), "{case}");
            assert!(
                answers.iter().all(|added| *added == if is_shut_down { Added::Rejected } else { Added::Delayed }),
                "{case}"
            );
        }
    }
}

/// The thread already unwinds when it gets the key, so it has not panicked in the work on that key. In the next hand-out a panic counts.
#[test]
fn an_item_that_is_handed_out_while_the_thread_unwinds_is_done_when_it_is_dropped() {
    type Get = fn(&WorkQueue<u32>);
    let gets: [(&str, Get); 6] = [
        ("get", |queue| drop(queue.get().unwrap())),
        ("try_get", |queue| drop(queue.try_get().unwrap())),
        ("get_timeout", |queue| drop(queue.get_timeout(Duration::MAX).unwrap())),
        ("get_many", |queue| assert_eq!(queue.get_many(9).len(), 2)),
        ("get_async", |queue| drop(block_on(queue.get_async()).unwrap())),
        ("into_owned", |queue| drop(queue.get().unwrap().into_owned())),
    ];
    for (name, get) in gets {
        let queue = manual(WorkQueue::builder()).0.on_panic(OnPanic::Retry).build();
        queue.add_all([1, 2]);
        while_unwinding(|| {
            while !queue.is_empty() {
                get(&queue)
            }
        });
        let stats = queue.stats();
        assert_eq!((stats.handed_out, stats.processing, stats.panics, stats.retries), (2, 0, 0, 0), "{name}");
        queue.add(1);
        unwind(&queue, false);
        assert_eq!((queue.stats().panics, queue.stats().retries), (1, 1), "{name}");
    }
}

/// Runs `run` in a child process, which may abort: the child runs only the test of this name.
fn in_a_child(name: &str, run: impl Fn()) {
    const CHILD: &str = "KEYQUEUE_PANICS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let test = std::env::current_exe().expect("a test has a path");
    let output = Command::new(test).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    assert!(text.contains("1 passed"), "the child ran no test");
}

#[test]
#[cfg_attr(miri, ignore = "there are no processes there")]
fn an_unwinding_item_does_not_abort_when_foreign_code_always_panics() {
    in_a_child("an_unwinding_item_does_not_abort_when_foreign_code_always_panics", || {
        let payloads: [Payload; 3] = [|| Box::new("a text"), || Box::new(7_u8), || Box::new(PanicsOnDrop)];
        for (owned, payload) in [false, true].into_iter().flat_map(|owned| payloads.map(|payload| (owned, payload))) {
            for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                for place in ["when", "added", "done", "panicked", "the drop of a key"] {
                    let foreign = Foreign::new(place, payload);
                    let queue = foreign.queue(policy);
                    queue.add_all([1, 2].map(|key| With(key, InKey(foreign.clone()))));
                    foreign.switch(true);
                    unwind(&queue, owned);
                    unwind(&queue, owned);
                    foreign.switch(false);
                    let stats = queue.stats();
                    assert_eq!((stats.processing, stats.panics), (0, 2), "{policy:?}, {place}");
                    if place == "when" {
                        let retried = if policy == Some(OnPanic::Retry) { 2 } else { 0 };
                        assert_eq!(
                            (stats.delayed as u64, stats.retries, stats.caught_panics),
                            (retried, retried, retried)
                        );
                    }
                }
            }
        }
    });
}

/// The waker of a task that comes with another one, or no longer waits, panics when it is dropped. That is caught, and joins count it.
#[test]
fn a_waker_may_panic_when_it_is_dropped() {
    let (workers, stop) = (WorkQueue::<u32>::new().workers().build(), Stop::new());
    let _loop_that_runs = workers.run_async(async |_| ());
    let mut waits: [Pin<Box<dyn Future<Output = ()>>>; 2] =
        [Box::pin(workers.join_async()), Box::pin(stop.wait_async())];
    for _ in 0..2 {
        for wait in &mut waits {
            let waker = waker_that_panics_when_dropped();
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    assert_eq!(workers.tally().panicked, 1, "of the waker that was replaced");
    drop(waits);
    assert_eq!(workers.tally().panicked, 2);
}
