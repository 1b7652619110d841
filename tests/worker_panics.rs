//! Panics in foreign code, in threads and in tasks: in handlers and what they return, in hooks, limiters, observers, wakers,
//! and in the drops of keys and of panic payloads.
//!
//! Checks P13 for workers: after a panic no key stays processing, the loop goes on, the panic is counted, and the key is
//! retried or done as `on_panic` says. An item that a panicking thread drops is done or retried, even if the limiter panics
//! as well, and the process does not abort. Tests that could abort run in a child process.
//!
//! Checks P2 for keys whose limiter panics: they come back after 50 ms, until they are given up.
//!
//! All panics here unwind by `resume_unwind`, which prints no message.

mod support {
    pub(crate) mod tasks;
    pub(crate) mod ways;
}

use futures_executor::block_on;
use keyqueue::observe::Observer;
use keyqueue::rate_limiter::{ItemFastSlow, RateLimiter};
use keyqueue::{
    AddOptions, Added, Clock, DelayedKey, Driver, Item, Leftover, MockClock, OnPanic, Outcome, OwnedItem, Stats,
    WorkQueue, WorkQueueBuilder, Workers,
};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use support::tasks::{Calls, panicking_waker, poll};
use support::ways::{WAYS, Way, yield_once};

// ---- where to panic ----

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}

/// A place where the crate calls foreign code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// In a handler, before its work.
    Begin,
    /// In a handler whose key was added again meanwhile.
    Dirty,
    /// In an async handler, after its first await.
    Awaited,
    /// In the drop of a local value of the handler.
    Guard,
    IntoError,
    OnError,
    OnPanic,
    OnGiveUp,
    When,
    Forget,
    NumRequeues,
    Added,
    HandedOut,
    Done,
    GivenUp,
    Panicked,
    KeyDrop,
}

const HANDLERS: [Point; 4] = [Point::Begin, Point::Dirty, Point::Guard, Point::IntoError];
const OTHERS: [Point; 12] = [
    Point::OnError,
    Point::OnPanic,
    Point::OnGiveUp,
    Point::When,
    Point::Forget,
    Point::NumRequeues,
    Point::Added,
    Point::HandedOut,
    Point::Done,
    Point::GivenUp,
    Point::Panicked,
    Point::KeyDrop,
];

/// A panic payload whose drop panics, once.
struct PanicsOnDrop(bool);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if std::mem::take(&mut self.0) {
            resume_unwind(Box::new("a payload's drop"));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    Text,
    Owned,
    Number,
    PanicsOnDrop,
}

impl Payload {
    fn panic(self) -> ! {
        match self {
            Self::Text => resume_unwind(Box::new("a text")),
            Self::Owned => resume_unwind(Box::new("an owned text".to_owned())),
            Self::Number => resume_unwind(Box::new(7_u8)),
            Self::PanicsOnDrop => resume_unwind(Box::new(PanicsOnDrop(true))),
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Owned => "an owned text",
            Self::Number | Self::PanicsOnDrop => "(not a text)",
        }
    }
}

/// Panics at `point`, `left` times.
struct Fault {
    point: Point,
    payload: Payload,
    left: AtomicUsize,
    panicked: AtomicUsize,
}

impl Fault {
    fn new(point: Point, payload: Payload, times: usize) -> Arc<Self> {
        Arc::new(Self { point, payload, left: AtomicUsize::new(times), panicked: AtomicUsize::new(0) })
    }

    fn at(&self, point: Point) {
        let less = |left: usize| left.checked_sub(1);
        if point == self.point && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            self.panicked.fetch_add(1, Ordering::SeqCst);
            self.payload.panic();
        }
    }

    fn panicked(&self) -> usize {
        self.panicked.load(Ordering::SeqCst)
    }
}

// ---- foreign code ----

#[derive(Clone)]
struct Key(u32, Arc<Fault>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // A second panic while unwinding aborts, and that would be the key's fault, not the queue's.
        if !std::thread::panicking() {
            self.1.at(Point::KeyDrop);
        }
    }
}

/// Retries without a delay.
struct Limiter(ItemFastSlow<Key>, Arc<Fault>);

impl Limiter {
    fn new(fault: &Arc<Fault>) -> Self {
        Self(ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0), Arc::clone(fault))
    }
}

impl RateLimiter<Key> for Limiter {
    fn when(&self, key: &Key) -> Duration {
        self.1.at(Point::When);
        self.0.when(key)
    }

    fn forget(&self, key: &Key) {
        self.1.at(Point::Forget);
        self.0.forget(key);
    }

    fn num_requeues(&self, key: &Key) -> usize {
        self.1.at(Point::NumRequeues);
        self.0.num_requeues(key)
    }
}

struct Watcher(Arc<Fault>);

impl Observer for Watcher {
    fn added(&self, _: Added) {
        self.0.at(Point::Added);
    }

    fn handed_out(&self, _: Option<Duration>) {
        self.0.at(Point::HandedOut);
    }

    fn done(&self, _: Option<Duration>) {
        self.0.at(Point::Done);
    }

    fn given_up(&self) {
        self.0.at(Point::GivenUp);
    }

    fn panicked(&self) {
        self.0.at(Point::Panicked);
    }
}

/// The error of a handler. The conversion into a box is the only user code between a handler's return and its outcome.
struct Failure(Arc<Fault>);

impl From<Failure> for Box<dyn Error + Send + Sync> {
    fn from(Failure(fault): Failure) -> Self {
        fault.at(Point::IntoError);
        "no luck".into()
    }
}

struct Guard(Arc<Fault>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.at(Point::Guard);
    }
}

// ---- one run ----

/// The delay of a key whose limiter has panicked.
const WITHOUT_LIMITER: Duration = Duration::from_millis(50);

/// The handler. It records its key. The first run of key 7 returns `first`; key 8 lets 50 ms pass and adds 9; key 9 shuts
/// the queue down.
struct Script {
    queue: WorkQueue<Key>,
    time: MockClock,
    fault: Arc<Fault>,
    first: fn() -> Outcome,
    runs: Mutex<Vec<u32>>,
    panics: Mutex<Vec<(u32, String)>>,
}

impl Script {
    fn run(&self, item: &Item<'_, Key>) -> Result<Outcome, Failure> {
        let key = item.0;
        let first = {
            let mut runs = self.runs.lock().unwrap();
            runs.push(key);
            runs.iter().filter(|&&run| run == 7).count() == 1
        };
        let mut outcome = Outcome::Success;
        match key {
            7 if first => {
                self.fault.at(Point::Begin);
                if self.fault.point == Point::Dirty {
                    self.queue.add(Key(7, Arc::clone(&self.fault)));
                    self.fault.at(Point::Dirty);
                }
                let _guard = Guard(Arc::clone(&self.fault));
                outcome = (self.first)();
            }
            8 => {
                self.time.advance(WITHOUT_LIMITER);
                self.queue.turn();
                self.queue.add(Key(9, Arc::clone(&self.fault)));
            }
            9 => self.queue.shut_down(),
            _ => {}
        }
        match outcome {
            Outcome::Failed(_) => Err(Failure(Arc::clone(&self.fault))),
            outcome => Ok(outcome),
        }
    }

    fn runs(&self) -> Vec<u32> {
        self.runs.lock().unwrap().clone()
    }
}

fn queue(fault: &Arc<Fault>, policy: Option<OnPanic>) -> WorkQueueBuilder<Key> {
    let (clock, _) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    let builder = builder.rate_limiter(Limiter::new(fault)).observer(Watcher(Arc::clone(fault)));
    policy.into_iter().fold(builder, WorkQueueBuilder::on_panic)
}

/// Processes 7 and 8 in this way until the loop ends. With `cut_off` the queue is shut down before the loop begins.
fn run_loop(
    way: Way,
    policy: Option<OnPanic>,
    fault: &Arc<Fault>,
    first: fn() -> Outcome,
    cut_off: bool,
) -> (Arc<Script>, Workers<Key>) {
    let (clock, time) = Clock::mock();
    let queue = queue(fault, policy).clock(clock).build();
    for key in [7, 8] {
        // The observer's `added` may panic here, outside the workers; the key is queued nevertheless.
        let added = catch_unwind(AssertUnwindSafe(|| queue.add(Key(key, Arc::clone(fault)))));
        std::mem::forget(added); // its payload's drop may panic
    }
    assert_eq!(queue.len(), 2);
    if fault.point == Point::Added && fault.panicked() == 2 {
        fault.left.store(1, Ordering::SeqCst); // one more panic, in the loop
    }
    if cut_off {
        queue.shut_down();
    }
    let script = Arc::new(Script {
        queue: queue.clone(),
        time,
        fault: Arc::clone(fault),
        first,
        runs: Mutex::default(),
        panics: Mutex::default(),
    });
    let hook = |point| {
        let fault = Arc::clone(fault);
        move || fault.at(point)
    };
    let (on_error, on_panic, on_give_up) = (hook(Point::OnError), hook(Point::OnPanic), hook(Point::OnGiveUp));
    let builder = queue.workers().max_retries(5).on_error(move |_, _| on_error()).on_give_up(move |_, _| on_give_up());
    let builder = builder.on_panic({
        let script = Arc::downgrade(&script);
        move |key, message| {
            script.upgrade().unwrap().panics.lock().unwrap().push((key.0, message.to_owned()));
            on_panic();
        }
    });
    let own = Arc::clone(&script);
    let handler = move |item: &Item<'_, Key>| own.run(item);
    let workers = if way == Way::Spawned { builder.spawn(1, handler).unwrap() } else { builder.build() };
    let own = Arc::clone(&script);
    let work = async move |item: &Item<'_, Key>| {
        let _guard = (item.0 == 7).then(|| Guard(Arc::clone(&own.fault)));
        yield_once().await;
        if item.0 == 7 {
            own.fault.at(Point::Awaited);
        }
        own.run(item)
    };
    match way {
        Way::Spawned => workers.join(),
        Way::Here => workers.run(|item: &Item<'_, Key>| script.run(item)),
        Way::Task => block_on(workers.run_async(work)),
        Way::Tokio => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            runtime
                .block_on(async { tokio::spawn(workers.run_async(work)).await.expect("the task itself never panics") });
        }
    }
    assert_eq!(workers.tally().running, 0);
    let stats = queue.stats();
    assert_eq!((stats.processing, stats.len, stats.delayed), (0, 0, 0), "{way:?}, {:?}: no key is stuck", fault.point);
    (script, workers)
}

// ---- handlers ----

#[test]
fn a_handler_that_panics_is_retried_or_done_and_the_loop_goes_on() {
    for way in WAYS {
        let asynchronous = matches!(way, Way::Task | Way::Tokio);
        for point in HANDLERS.into_iter().chain(asynchronous.then_some(Point::Awaited)) {
            for payload in [Payload::Text, Payload::Owned, Payload::Number, Payload::PanicsOnDrop] {
                for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                    let case = format!("{way:?}, {point:?}, {payload:?}, {policy:?}");
                    let fault = Fault::new(point, payload, 1);
                    let first: fn() -> Outcome = match point {
                        Point::IntoError => || Outcome::Failed("".into()),
                        _ => || Outcome::Success,
                    };
                    let (script, workers) = run_loop(way, policy, &fault, first, false);
                    // An add during the panicking run queues the key again under each policy; with a retry as well, it runs once.
                    let again = policy != Some(OnPanic::Done) || point == Point::Dirty;
                    // The panic after the await comes before the run is recorded.
                    let seen: &[u32] = if point == Point::Awaited { &[] } else { &[7] };
                    let expected = [seen, &[8], if again { &[7] } else { &[] }, &[9]].concat();
                    assert_eq!((script.runs(), fault.panicked()), (expected.clone(), 1), "{case}");
                    assert_eq!(*script.panics.lock().unwrap(), [(7, payload.message().to_owned())], "{case}");
                    let (stats, tally) = (workers.queue().stats(), workers.tally());
                    assert_eq!(stats.panics, 1, "{case}");
                    // The panic in the payload's drop is counted as well.
                    assert_eq!(tally.panicked, 1 + u64::from(payload == Payload::PanicsOnDrop), "{case}");
                    assert_eq!(tally.retried, u64::from(policy != Some(OnPanic::Done)), "{case}");
                    assert_eq!((tally.succeeded, tally.failed), (2 + u64::from(again), 1), "{case}");
                    let runs = workers.queue().inspect().metrics().runs;
                    assert_eq!((runs.success, runs.panic), (tally.succeeded, 1), "{case}");
                    assert_eq!((runs.requeue, runs.error, runs.give_up), (0, 0, 0), "{case}");
                    assert_eq!((tally.given_up, tally.refused, stats.given_up), (0, 0, 0), "{case}");
                }
            }
        }
    }
}

#[test]
fn a_panic_before_the_handler_returns_its_future_is_counted() {
    for way in [Way::Task, Way::Tokio] {
        let queue = WorkQueue::<u32>::new();
        queue.add_all([1, 2]);
        queue.shut_down();
        let workers = queue.workers().build();
        let make = |item: &Item<'_, u32>| {
            if **item == 1 {
                resume_unwind(Box::new("no future"));
            }
            async {}
        };
        match way {
            Way::Task => block_on(workers.run_async(make)),
            _ => {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async { tokio::spawn(workers.run_async(make)).await.unwrap() });
            }
        }
        let (stats, tally) = (queue.stats(), workers.tally());
        assert_eq!((tally.panicked, tally.retried, tally.refused, tally.succeeded), (1, 0, 1, 1));
        assert_eq!((stats.panics, stats.processing, stats.len), (1, 0, 0));
    }
}

#[test]
fn a_key_that_always_panics_is_given_up_and_delays_no_other_key() {
    for way in WAYS {
        let fault = Fault::new(Point::OnPanic, Payload::Text, 0);
        let queue = queue(&fault, None).build();
        queue.add_all([7, 8].map(|key| Key(key, Arc::clone(&fault))));
        let builder = queue.workers().max_retries(20).on_give_up({
            let queue = queue.clone();
            move |key, why| {
                assert_eq!((key.0, why.retries, why.panic), (7, 20, Some("always")));
                assert_eq!(why.to_string(), "given up after 20 retries: the handler panicked: always");
                queue.shut_down();
            }
        });
        let handler = |item: &Item<'_, Key>| {
            if item.0 == 7 {
                resume_unwind(Box::new("always"))
            }
        };
        let workers = if way == Way::Spawned { builder.spawn(1, handler).unwrap() } else { builder.build() };
        match way {
            Way::Spawned => workers.join(),
            Way::Here => workers.run(handler),
            Way::Task | Way::Tokio => block_on(workers.run_async(async |item: &Item<'_, Key>| {
                yield_once().await;
                handler(item);
            })),
        }
        let (stats, tally) = (queue.stats(), workers.tally());
        assert_eq!((tally.panicked, tally.retried, tally.given_up, tally.succeeded), (21, 20, 1, 1), "{way:?}");
        assert_eq!((stats.panics, stats.given_up, stats.processing), (21, 1, 0));
    }
}

// ---- panics outside handlers ----

/// The outcome after which the loop reaches this point.
fn outcome_reaching(point: Point) -> fn() -> Outcome {
    match point {
        Point::OnError | Point::When | Point::NumRequeues => || Outcome::Failed("".into()),
        Point::Added => || Outcome::RequeueAfter(Duration::ZERO),
        Point::OnPanic | Point::Panicked => || resume_unwind(Box::new("it must panic first")),
        Point::OnGiveUp | Point::GivenUp => || Outcome::GiveUp("".into()),
        _ => || Outcome::Success,
    }
}

fn panics_once(payload: Payload) {
    for way in WAYS {
        for point in OTHERS {
            for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                // `run_loop` itself makes the observer's first two additions.
                let fault = Fault::new(point, payload, if point == Point::Added { 2 } else { 1 });
                let (script, workers) = run_loop(way, policy, &fault, outcome_reaching(point), false);
                let case = format!("{way:?}, {point:?}, {payload:?}, {policy:?}: {:?}", script.runs());
                assert_eq!(fault.panicked(), if point == Point::Added { 3 } else { 1 }, "{case}");
                let others: Vec<_> = script.runs().into_iter().filter(|&key| key != 7).collect();
                assert_eq!(others, [8, 9], "{case}");
                let sevens = script.runs().len() - 2;
                match point {
                    // The add comes before the observer's panic. Without the limiter's answer the key is retried as well.
                    Point::Added | Point::When | Point::NumRequeues => assert_eq!(sevens, 2, "{case}"),
                    // The policy applies even if the hook panics.
                    Point::OnPanic => assert_eq!(sevens, 1 + usize::from(policy != Some(OnPanic::Done)), "{case}"),
                    // Keys that were done are not retried.
                    Point::HandedOut | Point::Done | Point::GivenUp | Point::KeyDrop | Point::Forget => {
                        assert_eq!(sevens, 1, "{case}");
                    }
                    _ => assert!(sevens <= 2, "{case}"),
                }
                // The queue catches the observer's panic at the hand-out, and counts it.
                let caught = u64::from(point == Point::HandedOut);
                assert_eq!(workers.queue().stats().caught_panics, caught, "{case}");
                assert_eq!(workers.tally().panicked == 0, point == Point::HandedOut, "{case}");
            }
        }
    }
}

fn panics_always(payload: Payload) {
    for way in WAYS {
        for point in OTHERS {
            for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                let fault = Fault::new(point, payload, usize::MAX);
                let (script, workers) = run_loop(way, policy, &fault, outcome_reaching(point), true);
                let case = format!("{way:?}, {point:?}, {payload:?}, {policy:?}: {:?}", script.runs());
                assert!(fault.panicked() > 0, "{case}");
                assert_eq!(workers.queue().stats().handed_out, 2, "{case}");
                assert_eq!(script.runs(), [7, 8], "{case}");
                fault.left.store(0, Ordering::SeqCst); // before the keys are dropped
            }
        }
    }
}

#[test]
fn hooks_limiters_observers_and_keys_that_panic_once_stop_no_loop() {
    panics_once(Payload::Text);
}

#[test]
fn hooks_limiters_observers_and_keys_that_always_panic_stop_no_loop() {
    panics_always(Payload::Owned);
}

// ---- limiters ----

/// A limiter that panics in the selected methods. The others count failures and retry after a millisecond.
struct Broken {
    when: bool,
    forget: bool,
    num_requeues: bool,
    inner: ItemFastSlow<u32>,
}

impl Broken {
    fn new(when: bool, forget: bool, num_requeues: bool) -> Self {
        let inner = ItemFastSlow::new(Duration::from_millis(1), Duration::from_millis(1), 0);
        Self { when, forget, num_requeues, inner }
    }

    /// A queue with this limiter, and its mock clock.
    fn queue(self) -> (WorkQueueBuilder<u32>, MockClock) {
        let (clock, time) = Clock::mock();
        (WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(self), time)
    }
}

fn panic_if(broken: bool) {
    if broken {
        resume_unwind(Box::new("a limiter"));
    }
}

impl RateLimiter<u32> for Broken {
    fn when(&self, key: &u32) -> Duration {
        panic_if(self.when);
        self.inner.when(key)
    }

    fn forget(&self, key: &u32) {
        panic_if(self.forget);
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &u32) -> usize {
        panic_if(self.num_requeues);
        self.inner.num_requeues(key)
    }
}

/// Key 7 always fails. Key 8 advances the clock until the delay of 7 expires, and adds itself again. Returns the runs of 7.
fn fails_until_given_up(way: Way, limiter: Broken, max: usize, delay: Duration) -> (usize, Workers<u32>) {
    let (queue, time) = limiter.queue();
    let queue = queue.build();
    queue.add_all([7, 8]);
    let builder = queue.workers().max_retries(max).on_give_up({
        let queue = queue.clone();
        move |&key, why| {
            assert_eq!((key, why.retries), (7, max));
            assert_eq!(why.reason.unwrap().to_string(), "no luck");
            queue.shut_down();
        }
    });
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (queue, runs) = (queue.clone(), Arc::clone(&runs));
        move |item: &Item<'_, u32>| {
            if **item == 7 {
                runs.fetch_add(1, Ordering::SeqCst);
                return Outcome::Failed("no luck".into());
            }
            let due = [delay - Duration::from_nanos(1), Duration::from_nanos(1)].map(|rest| {
                time.advance(rest);
                queue.turn()
            });
            if due == [0, 1] {
                queue.add(8);
            } else {
                queue.shut_down(); // 7 is given up, or lost, or came back too early
            }
            Outcome::Success
        }
    };
    let workers = if way == Way::Spawned { builder.spawn(1, handler.clone()).unwrap() } else { builder.build() };
    match way {
        Way::Spawned => workers.join(),
        Way::Here => workers.run(handler),
        Way::Task | Way::Tokio => block_on(workers.run_async(async |item: &Item<'_, u32>| {
            yield_once().await;
            handler(item)
        })),
    }
    (runs.load(Ordering::SeqCst), workers)
}

#[test]
fn a_key_whose_limiter_panics_is_retried_after_50_ms_until_it_is_given_up() {
    for way in WAYS {
        for max in [0, 1, 3] {
            // In the last case only `forget` panics, which affects only runs of the key after it is given up.
            for (when, forget, num_requeues) in
                [(true, false, false), (false, false, true), (true, true, true), (false, true, false)]
            {
                let limiter = Broken::new(when, forget, num_requeues);
                let delay = if when || num_requeues { WITHOUT_LIMITER } else { Duration::from_millis(1) };
                let (runs, workers) = fails_until_given_up(way, limiter, max, delay);
                let case = format!("{way:?}, {max}, {when}, {forget}, {num_requeues}");
                assert_eq!(runs, max + 1, "{case}");
                let (stats, tally) = (workers.queue().stats(), workers.tally());
                assert_eq!((tally.retried, tally.given_up, stats.given_up), (max as u64, 1, 1), "{case}");
                assert_eq!((stats.processing, stats.delayed, stats.failing), (0, 0, 0), "{case}");
                // Each success of 8 calls `forget`, and so does the give-up of 7.
                let forgets = if forget { tally.succeeded as usize + 1 } else { 0 };
                let counts = if num_requeues { max + 1 } else { 0 };
                let waits = if when && !num_requeues { max } else { 0 };
                let panics = (forgets + counts + waits) as u64;
                assert_eq!((tally.panicked, stats.panics), (panics, panics), "{case}");
            }
        }
    }
}

/// The queue counts failures while the limiter panics, and the count goes on when the limiter works again.
#[test]
fn a_limiter_that_panics_for_a_while_does_not_lose_count() {
    let broken = Arc::new(AtomicBool::new(true));
    struct PanicsForAWhile(Arc<AtomicBool>, Broken);
    impl RateLimiter<u32> for PanicsForAWhile {
        fn when(&self, key: &u32) -> Duration {
            panic_if(self.0.load(Ordering::SeqCst));
            self.1.when(key)
        }
        fn forget(&self, key: &u32) {
            panic_if(self.0.load(Ordering::SeqCst));
            self.1.forget(key);
        }
        fn num_requeues(&self, key: &u32) -> usize {
            self.1.num_requeues(key)
        }
    }
    let (clock, time) = Clock::mock();
    let limiter = PanicsForAWhile(Arc::clone(&broken), Broken::new(false, false, false));
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(limiter).build();
    let come_back = |after| {
        time.advance(after);
        assert_eq!(queue.turn(), 1);
        queue.get().unwrap()
    };
    queue.add(1);
    let mut item = queue.get().unwrap();
    for retries in 1..=2 {
        assert!(catch_unwind(AssertUnwindSafe(|| item.retry())).is_err());
        item = come_back(WITHOUT_LIMITER);
        assert_eq!((item.num_requeues(), queue.num_requeues(&1), queue.stats().failing), (retries, retries, 1));
    }
    broken.store(false, Ordering::SeqCst);
    assert_eq!(item.retry(), Added::Delayed);
    item = come_back(Duration::from_millis(1));
    assert_eq!((item.num_requeues(), queue.num_requeues(&1)), (3, 3));

    broken.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.forget(&1))).is_err());
    assert_eq!((item.num_requeues(), queue.stats().failing), (1, 0), "the limiter's own count is left");
    broken.store(false, Ordering::SeqCst);
    item.succeed();
    assert_eq!((queue.num_requeues(&1), queue.stats().failing), (0, 0));
}

/// Without workers, the item's call takes effect first, and then the limiter's panic reaches the caller.
#[test]
fn calls_of_an_item_take_effect_even_if_the_limiter_panics() {
    type Say = fn(Item<'_, u32>) -> Option<Added>;
    type SayOwned = fn(OwnedItem<u32>) -> Option<Added>;
    const MS: Duration = Duration::from_millis(1);
    // Expected: the delay with which the key comes back, and its failure count.
    let cases: [(&str, Say, SayOwned, Option<Duration>, usize); 5] = [
        ("retry", |item| Some(item.retry()), |item| Some(item.retry()), Some(WITHOUT_LIMITER), 1),
        (
            "requeue_with",
            |item| Some(item.requeue_with(AddOptions::new().after(80 * MS).rate_limited())),
            |item| Some(item.requeue_with(AddOptions::new().after(80 * MS).rate_limited())),
            Some(80 * MS),
            1,
        ),
        (
            "requeue_after",
            |item| Some(item.requeue_after(7 * MS)),
            |item| Some(item.requeue_after(7 * MS)),
            Some(7 * MS),
            0,
        ),
        (
            "succeed",
            |item| {
                item.succeed();
                None
            },
            |item| {
                item.succeed();
                None
            },
            None,
            0,
        ),
        (
            "give_up",
            |item| {
                item.give_up();
                None
            },
            |item| {
                item.give_up();
                None
            },
            None,
            0,
        ),
    ];
    for (name, say, say_owned, delay, failures) in cases {
        for owned in [false, true] {
            for policy in [None, Some(OnPanic::Done), Some(OnPanic::Retry)] {
                let (queue, _time) = Broken::new(true, true, false).queue();
                let queue = policy.into_iter().fold(queue, WorkQueueBuilder::on_panic).build();
                queue.add(1);
                let item = queue.get().unwrap();
                let payload =
                    catch_unwind(AssertUnwindSafe(|| if owned { say_owned(item.into_owned()) } else { say(item) }))
                        .unwrap_err();
                assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "a limiter");
                let stats = queue.stats();
                assert_eq!((stats.processing, stats.len, stats.panics), (0, 0, 1), "{name}, {policy:?}");
                assert_eq!(stats.given_up, u64::from(name == "give_up"));
                assert_eq!((stats.failing, queue.num_requeues(&1)), (failures, failures), "{name}, {policy:?}");
                assert_eq!(
                    pairs(queue.take_delayed()),
                    delay.map_or(vec![], |delay| vec![(1, delay)]),
                    "{name}, {policy:?}"
                );
            }
        }
    }
}

#[test]
fn outcomes_take_effect_even_if_forget_panics() {
    for way in WAYS {
        let (queue, _time) = Broken::new(false, true, false).queue();
        let queue = queue.build();
        queue.add_all([1, 2, 3]);
        queue.shut_down();
        let handler = |item: &Item<'_, u32>| match **item {
            1 => Outcome::Success,
            2 => Outcome::RequeueAfter(Duration::from_secs(1)),
            _ => Outcome::GiveUp("".into()),
        };
        let builder = queue.workers();
        let workers = if way == Way::Spawned { builder.spawn(1, handler).unwrap() } else { builder.build() };
        match way {
            Way::Spawned => workers.join(),
            Way::Here => workers.run(handler),
            Way::Task | Way::Tokio => block_on(workers.run_async(async |item: &Item<'_, u32>| handler(item))),
        }
        let (stats, tally) = (queue.stats(), workers.tally());
        assert_eq!((tally.succeeded, tally.requeued, tally.refused, tally.given_up), (2, 0, 1, 1), "{way:?}");
        assert_eq!((tally.retried, tally.panicked, stats.given_up), (0, 3, 1), "{way:?}");
    }
}

// ---- items that are dropped by a panicking thread ----

/// Gets the first key, and drops its item while unwinding.
fn unwind(queue: &WorkQueue<Key>, owned: bool) {
    let item = queue.get().unwrap();
    let panics = || {
        if owned {
            let _item = item.into_owned();
            resume_unwind(Box::new("its holder"));
        }
        let _item = item;
        resume_unwind(Box::new("its holder"))
    };
    let payload: Box<dyn std::any::Any + Send> = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "its holder");
}

#[test]
fn an_item_dropped_by_a_panic_is_done_or_retried() {
    for owned in [false, true] {
        for policy in [None, Some(OnPanic::Done), Some(OnPanic::Retry)] {
            for dirty in [false, true] {
                let fault = Fault::new(Point::Begin, Payload::Text, 0);
                let (clock, _) = Clock::mock();
                let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual);
                let queue = policy.into_iter().fold(queue, WorkQueueBuilder::on_panic).build();
                let key = || Key(1, Arc::clone(&fault));
                queue.add(key());
                let item = queue.get().unwrap();
                if dirty {
                    queue.add(key());
                }
                let panics = || {
                    if owned {
                        let _item = item.into_owned();
                        resume_unwind(Box::new(()))
                    } else {
                        let _item = item;
                        resume_unwind(Box::new(()))
                    }
                };
                assert!(catch_unwind(AssertUnwindSafe(|| -> () { panics() })).is_err());
                let stats = queue.stats();
                let retried = policy == Some(OnPanic::Retry);
                assert_eq!((stats.processing, stats.panics, stats.len), (0, 1, usize::from(dirty)));
                assert_eq!((stats.retries, stats.failing), (u64::from(retried), usize::from(retried)));
                let delayed = pairs(queue.take_delayed());
                assert_eq!(delayed, if retried { vec![(key(), Duration::from_millis(5))] } else { vec![] });
            }
        }
    }
}

#[test]
fn an_item_dropped_without_a_panic_counts_no_panic() {
    let queue = WorkQueue::<u32>::builder().on_panic(OnPanic::Retry).build();
    queue.add_all(0..5);
    drop(queue.get());
    queue.get().unwrap().done();
    queue.get().unwrap().succeed();
    queue.get().unwrap().give_up();
    // A panic that is caught before the item is dropped.
    let item = queue.get();
    assert!(catch_unwind(|| resume_unwind(Box::new(()))).is_err());
    drop(item);
    let stats = queue.stats();
    assert_eq!((stats.panics, stats.retries, stats.processing, stats.given_up), (0, 0, 0, 1));
}

/// Runs a closure when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Calls `run` in the `Drop` of another value, while the thread unwinds.
fn while_unwinding(run: impl FnMut()) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _at_drop = AtDrop(run);
        resume_unwind(Box::new("something else"));
    }));
    assert!(unwound.is_err());
}

/// The thread that unwinds ends the item itself, so no panic of the holder is counted.
#[test]
fn an_explicit_done_is_done_even_while_the_thread_unwinds() {
    for policy in [None, Some(OnPanic::Done), Some(OnPanic::Retry)] {
        for owned in [false, true] {
            let queue = WorkQueue::<u32>::builder().clock(Clock::mock().0).driver(Driver::Manual);
            let queue = policy.into_iter().fold(queue, WorkQueueBuilder::on_panic).build();
            queue.add(1);
            if owned {
                let mut item = Some(queue.get().unwrap().into_owned());
                while_unwinding(|| item.take().unwrap().done());
            } else {
                let mut item = queue.get();
                while_unwinding(|| item.take().unwrap().done());
            }
            let stats = queue.stats();
            assert_eq!((stats.processing, stats.panics, stats.retries), (0, 0, 0), "{policy:?}, owned: {owned}");
        }
    }
}

/// The thread already unwinds when it gets the key, so it has not panicked in the work on that key.
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
        let queue = WorkQueue::<u32>::builder().clock(Clock::mock().0).driver(Driver::Manual);
        let queue = queue.on_panic(OnPanic::Retry).build();
        queue.add_all([1, 2]);
        while_unwinding(|| {
            while !queue.is_empty() {
                get(&queue)
            }
        });
        let stats = queue.stats();
        assert_eq!((stats.handed_out, stats.processing), (2, 0), "{name}");
        assert_eq!((stats.panics, stats.retries), (0, 0), "{name}");
    }
}

/// The key's next hand-out is an ordinary one: a panic of its holder is counted.
#[test]
fn a_panic_counts_in_the_hand_out_after_one_to_an_unwinding_thread() {
    let fault = Fault::new(Point::Begin, Payload::Text, 0);
    let queue = queue(&fault, Some(OnPanic::Retry)).build();
    let add = || queue.add(Key(1, Arc::clone(&fault)));
    add();
    while_unwinding(|| {
        let _item = queue.get().unwrap();
        assert_eq!(add(), Added::Deferred);
    });
    assert_eq!((queue.len(), queue.stats().panics), (1, 0));
    unwind(&queue, false);
    assert_eq!((queue.stats().panics, queue.stats().retries), (1, 1));
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
fn an_unwinding_item_does_not_abort_when_foreign_code_panics() {
    in_a_child("an_unwinding_item_does_not_abort_when_foreign_code_panics", || {
        for owned in [false, true] {
            for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                for point in [Point::When, Point::Added, Point::Done, Point::Panicked, Point::KeyDrop] {
                    for payload in [Payload::Text, Payload::Number] {
                        let fault = Fault::new(point, payload, 0);
                        let queue = queue(&fault, policy).build();
                        queue.add_all([1, 2].map(|key| Key(key, Arc::clone(&fault))));
                        fault.left.store(usize::MAX, Ordering::SeqCst);
                        unwind(&queue, owned);
                        unwind(&queue, owned);
                        fault.left.store(0, Ordering::SeqCst);
                        let stats = queue.stats();
                        assert_eq!((stats.processing, stats.panics), (0, 2), "{policy:?}, {point:?}");
                        if point == Point::When {
                            let retried = u64::from(policy == Some(OnPanic::Retry)) * 2;
                            assert_eq!((stats.delayed as u64, stats.retries), (retried, retried), "{policy:?}");
                            assert_eq!(stats.caught_panics, retried, "{policy:?}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn an_unwinding_item_does_not_abort_when_a_waker_panics() {
    in_a_child("an_unwinding_item_does_not_abort_when_a_waker_panics", || {
        for policy in [OnPanic::Retry, OnPanic::Done] {
            let fault = Fault::new(Point::Begin, Payload::Text, 0);
            let queue = queue(&fault, Some(policy)).build();
            let key = || Key(1, Arc::clone(&fault));
            queue.add(key());
            let waker = panicking_waker();
            let mut get = pin!(queue.get_async());
            let mut idle = pin!(queue.wait_idle_async());
            let item = queue.get().unwrap();
            assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(idle.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            queue.add(key());
            assert!(
                catch_unwind(AssertUnwindSafe(|| -> () {
                    let _item = item;
                    resume_unwind(Box::new(()))
                }))
                .is_err()
            );
            assert_eq!((queue.processing_len(), queue.len(), queue.stats().panics), (0, 1, 1));
        }
    });
}

// ---- stops ----

/// A key whose clone panics when the counter, which all keys share, has come down to zero.
struct Clones(u32, Arc<AtomicUsize>);

impl Clones {
    const NEVER: usize = usize::MAX;
}

impl Clone for Clones {
    fn clone(&self) -> Self {
        let left = self.1.load(Ordering::SeqCst);
        if left != Self::NEVER {
            panic_if(left == 0);
            self.1.store(left - 1, Ordering::SeqCst);
        }
        Self(self.0, Arc::clone(&self.1))
    }
}

impl PartialEq for Clones {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Clones {}

impl std::hash::Hash for Clones {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

type Left = (Vec<u32>, Vec<u32>, Vec<(u32, Duration)>);

fn numbers(left: Leftover<Clones>) -> Left {
    let sorted = |keys: Vec<Clones>| {
        let mut keys: Vec<_> = keys.into_iter().map(|key| key.0).collect();
        keys.sort_unstable();
        keys
    };
    (
        sorted(left.queued),
        sorted(left.processing),
        left.delayed.into_iter().map(|delayed| (delayed.key.0, delayed.left)).collect(),
    )
}

/// A queue with keys in every state: 1 to 4 queued, of which 2 is delayed as well and 3 has failed before; 5 processing;
/// 6 and 7 delayed, of which 7 has failed before.
fn keys_in_every_state(clones: &Arc<AtomicUsize>) -> (WorkQueue<Clones>, Left) {
    const MS: Duration = Duration::from_millis(1);
    let queue = WorkQueue::<Clones>::builder().clock(Clock::mock().0).driver(Driver::Manual);
    let queue = queue.rate_limiter(ItemFastSlow::new(9 * MS, 9 * MS, 0)).build();
    let key = |number| Clones(number, Arc::clone(clones));
    queue.add(key(5));
    std::mem::forget(queue.get());
    queue.add_rate_limited(key(3));
    assert!(queue.cancel(&key(3)));
    queue.add_all((1..=4).map(key));
    queue.add_after(key(2), 2 * MS);
    queue.add_after(key(6), MS);
    queue.add_rate_limited(key(7));
    let left = (vec![1, 2, 3, 4], vec![5], vec![(6, MS), (2, 2 * MS), (7, 9 * MS)]);
    (queue, left)
}

/// Each way to stop takes all that is left or, if a clone panics, nothing: then the next stop takes all of it.
#[test]
fn a_stop_whose_clones_panic_takes_nothing() {
    type Stop = fn(&Workers<Clones>) -> Leftover<Clones>;
    let stops: [(&str, Stop); 3] = [
        ("stop", Workers::stop),
        ("drain_timeout", |workers| workers.drain_timeout(Duration::ZERO)),
        ("drain_async", |workers| {
            workers.queue().shut_down(); // so that the drain is released at once
            let mut drain = pin!(workers.drain_async());
            let calls = Arc::new(Calls::default());
            assert!(poll(drain.as_mut(), &calls).is_pending());
            workers.queue().shut_down();
            let Poll::Ready(left) = poll(drain, &calls) else { panic!("no loop is running") };
            left
        }),
    ];
    for (name, stop) in stops {
        let mut panics = 0;
        for number in 0.. {
            let clones = Arc::new(AtomicUsize::new(Clones::NEVER));
            let (queue, expected) = keys_in_every_state(&clones);
            let before = queue.stats();
            let workers = queue.workers().build();
            clones.store(number, Ordering::SeqCst);
            let stopped = catch_unwind(AssertUnwindSafe(|| stop(&workers)));
            clones.store(Clones::NEVER, Ordering::SeqCst);
            let case = format!("{name}, clone {number}");
            assert!(queue.shutting_down(), "{case}");
            let stats = queue.stats();
            if let Ok(left) = stopped {
                assert_eq!(numbers(left), expected, "{case}");
                assert_eq!((stats.len, stats.delayed, stats.processing), (0, 0, 1), "{case}");
                break;
            }
            panics += 1;
            let lens = |stats: Stats| (stats.len, stats.delayed, stats.processing, stats.failing);
            assert_eq!(lens(stats), lens(before), "{case}");
            assert_eq!(stats.pushed + stats.deferred, stats.handed_out + stats.len as u64, "{case}: it adds up");
            assert_eq!(numbers(workers.stop()), expected, "{case}");
        }
        // Clones of queued keys, of the key that is processing, and of two delayed keys that stay in the table: 2 and 7.
        assert!(panics >= 6, "{name}: {panics}");
    }
}

/// The drop of the queue's own key panics, when its clone is in the result already: the panic is counted, and nothing is lost.
#[test]
fn a_stop_loses_nothing_to_drops_that_panic() {
    let fault = Fault::new(Point::KeyDrop, Payload::Text, 0);
    let queue = queue(&fault, None).build();
    queue.add_all((1..=3).map(|key| Key(key, Arc::clone(&fault))));
    let workers = queue.workers().build();
    fault.left.store(1, Ordering::SeqCst);
    let keys: Vec<_> = workers.stop().queued.iter().map(|key| key.0).collect();
    assert_eq!((keys, queue.stats().caught_panics), (vec![1, 2, 3], 1));
    assert_eq!((queue.len(), queue.processing_len(), queue.stats().taken), (0, 0, 3));
}

/// The delays are set again, with the adds that wait for them.
#[test]
fn take_delayed_sets_all_delays_again_if_a_clone_panics() {
    use keyqueue::DelayedAdd;
    const MS: Duration = Duration::from_millis(1);
    for number in 0..3 {
        let clones = Arc::new(AtomicUsize::new(Clones::NEVER));
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(DelayedAdd::Strict).build();
        let key = |number| Clones(number, Arc::clone(&clones));
        // 1 and 4 are moved out; the others have failed before and are cloned. An add waits for 1, and another for 3.
        queue.add_after(key(1), MS);
        for number in [2, 3, 5] {
            queue.add_with(key(number), AddOptions::new().after(number * MS).rate_limited());
        }
        queue.add_after(key(4), Duration::MAX);
        for number in [1, 3] {
            assert_eq!(queue.add(key(number)), Added::Coalesced);
        }
        clones.store(number, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| queue.take_delayed())).is_err(), "clone {number}");
        clones.store(Clones::NEVER, Ordering::SeqCst);
        assert_eq!((queue.delayed_len(), queue.len(), queue.stats().failing), (5, 0, 3), "clone {number}");

        assert!(queue.cancel(&key(3)) && queue.cancel(&key(5)));
        assert_eq!(queue.get().unwrap().0, 3, "clone {number}: the add that waited for the delay");
        for number in [1, 2] {
            time.advance(MS * if number == 1 { 1 } else { 4 });
            assert_eq!(queue.turn(), 1);
            assert_eq!(queue.get().unwrap().0, number);
        }
        let delayed: Vec<_> = queue.take_delayed().into_iter().map(|delayed| (delayed.key.0, delayed.left)).collect();
        assert_eq!((delayed, queue.len()), (vec![(4, Duration::MAX)], 0), "clone {number}");
    }
}

// ---- payloads, counts and wake-ups ----

/// The limiter or the observer panics with a payload whose drop panics.
#[test]
fn an_unwinding_item_does_not_abort_when_a_payload_panics() {
    in_a_child("an_unwinding_item_does_not_abort_when_a_payload_panics", || {
        for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
            for point in [Point::When, Point::Added, Point::Done, Point::Panicked] {
                let fault = Fault::new(point, Payload::PanicsOnDrop, 0);
                let queue = queue(&fault, policy).build();
                queue.add(Key(1, Arc::clone(&fault)));
                fault.left.store(usize::MAX, Ordering::SeqCst);
                unwind(&queue, false);
                fault.left.store(0, Ordering::SeqCst);
                assert_eq!((queue.processing_len(), queue.stats().panics), (0, 1), "{policy:?}, {point:?}");
            }
        }
    });
}

/// The same in the loops of workers.
#[test]
fn payloads_that_panic_stop_no_loop() {
    in_a_child("payloads_that_panic_stop_no_loop", || {
        panics_once(Payload::PanicsOnDrop);
        panics_always(Payload::PanicsOnDrop);
    });
}

/// A panic after the handler, such as the limiter's, drops the item while unwinding. The item counts it, and so does the loop.
#[test]
fn one_panic_is_counted_once() {
    for way in WAYS {
        for point in OTHERS {
            for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
                let fault = Fault::new(point, Payload::Text, if point == Point::Added { 2 } else { 1 });
                let (_, workers) = run_loop(way, policy, &fault, outcome_reaching(point), false);
                // The observer's first two panics are outside the workers. Another panic has to lead to `OnPanic` and `Panicked`.
                let outside = if point == Point::Added { 2 } else { 0 };
                let before = u64::from(matches!(point, Point::OnPanic | Point::Panicked));
                let panics = fault.panicked() as u64 - outside + before;
                let (stats, tally) = (workers.queue().stats(), workers.tally());
                assert_eq!(tally.panicked + stats.caught_panics, panics, "{way:?}, {point:?}, {policy:?}");
                assert!(stats.panics <= panics, "{way:?}, {point:?}, {policy:?}: {}", stats.panics);
            }
        }
    }
}

#[test]
fn a_key_is_given_up_even_if_on_give_up_panics() {
    for policy in [None, Some(OnPanic::Retry), Some(OnPanic::Done)] {
        let (clock, _) = Clock::mock();
        let queue = WorkQueue::<u32>::builder().clock(clock).driver(Driver::Manual);
        let queue = policy.into_iter().fold(queue, WorkQueueBuilder::on_panic).build();
        queue.add_rate_limited(1);
        assert!(queue.cancel(&1));
        queue.add_all([1, 2]);
        let workers = queue.workers().max_retries(1).on_give_up(|_, _| resume_unwind(Box::new("a hook"))).build();
        workers.run(|item: &Item<'_, u32>| {
            if **item == 2 {
                queue.shut_down();
                return Outcome::Success;
            }
            Outcome::Retry
        });
        let stats = queue.stats();
        assert_eq!((workers.tally().given_up, stats.given_up), (1, 1), "{policy:?}");
        assert_eq!((stats.failing, stats.delayed, stats.retries), (0, 0, 1), "{policy:?}");
    }
}

#[test]
fn an_until_dirty_waker_that_panics_loses_no_wake_up() {
    let queue = WorkQueue::<u32>::new();
    queue.add(1);
    let item = queue.get().unwrap();
    let calls = Arc::new(Calls::default());
    let mut get = pin!(queue.get_async());
    assert!(poll(get.as_mut(), &calls).is_pending());
    let mut stale = Box::pin(item.until_dirty());
    assert!(stale.as_mut().poll(&mut Context::from_waker(&panicking_waker())).is_pending());
    std::mem::forget(stale);
    _ = catch_unwind(AssertUnwindSafe(|| item.requeue_after(Duration::ZERO)));
    assert_eq!((queue.len(), queue.processing_len(), calls.count()), (1, 0, 1));
}

/// The loop ends as its future is dropped, and wakes the task that joins.
#[test]
fn a_waker_of_a_join_that_panics_is_counted() {
    let workers = WorkQueue::<u32>::new().workers().build();
    let mut work = Box::pin(workers.run_async(async |_: &Item<'_, u32>| {}));
    assert!(poll(work.as_mut(), &Arc::default()).is_pending());
    let mut join = pin!(workers.join_async());
    assert!(join.as_mut().poll(&mut Context::from_waker(&panicking_waker())).is_pending());
    drop(work);
    assert_eq!(workers.tally().panicked, 1);
    assert!(poll(join, &Arc::default()).is_ready());
}
