//! Workers in threads and tasks: names, joins, drains with deadlines, what hooks are told, values that handlers capture, and spans. What
//! each outcome, panic, stop and wake-up does to keys and counts is judged by the reference (`tests/reference/run/workers.rs`), in loops
//! of tasks; loops of threads have the same code after the return of a handler. Panics in threads: `worker_panics.rs`.
//!
//! Checks: hooks run before the queue acts on the outcome, and get the reason; a join or a drain returns when the last loop has ended, and
//! a drain with a time limit then or at its limit (P6, P7); threads, futures and runtimes behave alike.

mod support {
    pub(crate) mod loops;
    pub(crate) mod manual;
    pub(crate) mod tasks;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::rate_limiter::Bucket;
use keyqueue::{IntoOutcome, Item, Leftover, Outcome, WorkQueue, Workers, WorkersBuilder};
use std::error::Error;
use std::future::{pending, poll_fn, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use support::loops::{WAYS, Way, no_backoff, run};
use support::manual::{manual, pairs};
use support::tasks::{Calls, poll};
use support::within::within_30_s;

const MS: Duration = Duration::from_millis(1);

// ---- outcomes ----

#[test]
fn results_of_handlers_convert_to_outcomes() {
    type Dyn = Box<dyn Error + Send + Sync>;
    fn shown(result: impl IntoOutcome) -> String {
        match result.into_outcome() {
            Outcome::Failed(error) => error.to_string(),
            outcome => format!("{outcome:?}"),
        }
    }
    let io = || io::Error::other("disk");
    let converted = [
        (shown(()), "Success"),
        (shown(Ok::<(), io::Error>(())), "Success"),
        (shown(Ok::<_, String>(Outcome::RequeueAfter(MS))), "RequeueAfter(1ms)"),
        (shown(Ok::<_, Dyn>(Outcome::Retry)), "Retry"),
        (shown(Ok::<_, String>(Ok::<_, io::Error>(Outcome::Retry))), "Retry"),
        (shown(Err::<(), _>(io())), "disk"),
        (shown(Err::<(), _>("text")), "text"),
        (shown(Err::<Outcome, _>("owned".to_owned())), "owned"),
        (shown(Err::<(), Dyn>(io().into())), "disk"),
        (shown(Ok::<_, String>(Err::<Outcome, _>(io()))), "disk"), // the inner error
        (shown(Err::<Result<(), io::Error>, _>("outer")), "outer"),
        // An `Err` that holds an outcome converts to that outcome.
        (shown(Err::<(), _>(Outcome::Retry)), "Retry"),
        (shown(Ok::<_, Outcome>(Outcome::RequeueAfter(MS))), "RequeueAfter(1ms)"),
        (shown(Err::<(), _>(Outcome::Failed("no luck".into()))), "no luck"),
    ];
    for (is, expected) in converted {
        assert_eq!(is, expected);
    }

    // What is no `Error` itself: `.map_err(Outcome::failed)?`.
    let dynamic: Result<(), Dyn> = Err(io().into());
    for outcome in [
        Outcome::failed("disk"),
        Outcome::failed("disk".to_owned()),
        dynamic.map_err(Outcome::failed).unwrap_err(),
        io().into(),
    ] {
        assert_eq!(shown(outcome), "disk");
    }

    // The error value is kept, not only its text.
    let Outcome::Failed(error) = Outcome::from(io::Error::from(io::ErrorKind::NotFound)) else { panic!() };
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::NotFound);
}

/// A loop leaves out the drop of a success, and of no other outcome.
#[test]
fn a_loop_drops_the_error_of_each_outcome() {
    #[derive(Debug)]
    struct Failure(Arc<AtomicUsize>);
    impl std::fmt::Display for Failure {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("failure")
        }
    }
    impl Error for Failure {}
    impl Drop for Failure {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for way in WAYS {
        let (queue, dropped) = (no_backoff().build(), Arc::new(AtomicUsize::new(0)));
        queue.add_all(0..5_u32);
        queue.shut_down();
        let count = Arc::clone(&dropped);
        run(way, queue.workers(), move |item: &Item<'_, u32>| {
            let error = Box::new(Failure(Arc::clone(&count)));
            match **item {
                0 => Outcome::Failed(error),
                1 => Outcome::RetryAfter { delay: MS, error },
                2 => Outcome::PauseGroup { delay: MS, error },
                3 => Outcome::GiveUp(error),
                _ => Outcome::Success,
            }
        });
        assert_eq!(dropped.load(Ordering::Relaxed), 5, "{way:?}");
    }
}

#[test]
fn hooks_get_the_key_and_the_reason_before_the_queue_acts() {
    type Fail = fn() -> Outcome;
    fn error() -> Box<dyn Error + Send + Sync> {
        io::Error::other("disk").into()
    }
    // What `on_error` gets in each run, and why `on_give_up` is called in the last.
    let fails: [(Fail, &[&str], &str); 5] = [
        (|| Outcome::Retry, &[], ""),
        (|| Outcome::Failed(error()), &["3: disk"], ": disk"),
        (|| Outcome::RetryAfter { delay: Duration::ZERO, error: error() }, &["3: disk"], ": disk"),
        (|| resume_unwind(Box::new("a panic")), &[], ": the handler panicked: a panic"),
        (|| Outcome::GiveUp(error()), &[], ": disk"),
    ];
    for (way, max) in WAYS.into_iter().flat_map(|way| [0, 1, 2, 7].map(|max| (way, max))) {
        for (fail, told, because) in fails {
            let queue = no_backoff().build();
            queue.add(3);
            let (note, notes) = mpsc::channel();
            let (its, on_error) = (queue.clone(), note.clone());
            let builder = queue.workers().max_retries(max).on_error(move |&key, error| {
                assert_eq!((its.processing_len(), its.len()), (1, 0), "before the retry");
                on_error.send(format!("{key}: {error}")).unwrap();
            });
            let its = queue.clone();
            let builder = builder.on_give_up(move |&key, why| {
                its.shut_down(); // first, so that the loop ends if an assertion fails here
                let state = (its.processing_len(), its.stats().given_up, its.num_requeues(&key));
                assert_eq!(state, (1, 0, why.retries), "before the give-up");
                assert!(why.reason.is_none_or(|error| error.is::<io::Error>()), "the error, not its text");
                assert_eq!(why.panic, because.ends_with("a panic").then_some("a panic"));
                note.send(format!("{key}: {why}")).unwrap();
            });
            let workers = run(way, builder, move |_: &Item<'_, u32>| fail());
            let max = if matches!(catch_unwind(fail), Ok(Outcome::GiveUp(_))) { 0 } else { max };
            let after = ["without a retry", "after 1 retry", "after 2 retries", "after 7 retries"][max.min(3)];
            let given_up = format!("3: given up {after}{because}");
            let expected: Vec<_> = told.repeat(max + 1).into_iter().chain([&*given_up]).collect();
            assert_eq!(notes.try_iter().collect::<Vec<_>>(), expected, "{way:?}");
            assert_eq!((workers.tally().retried, workers.tally().given_up), (max as u64, 1));
        }
    }
}

#[test]
fn a_late_run_needs_a_last_retry() {
    let queue = WorkQueue::<u32>::new();
    let builder = || queue.workers().then_after(MS);
    let error = builder().spawn(1, |_| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let panic = catch_unwind(AssertUnwindSafe(|| builder().build())).unwrap_err();
    assert_eq!(*panic.downcast::<String>().unwrap(), error.to_string());
    let _workers = builder().max_retries(0).build(); // in any order
}

#[test]
fn with_a_limiter_that_does_not_count_no_key_is_given_up() {
    let queue = manual(WorkQueue::builder()).0.rate_limiter(Bucket::new(1.0, u32::MAX)).build();
    queue.add(0);
    let runs = AtomicUsize::new(0);
    let workers = queue.workers().max_retries(1).build();
    workers.run(|_: &Item<'_, u32>| {
        if runs.fetch_add(1, Ordering::Relaxed) == 99 {
            queue.shut_down();
        }
        Outcome::Retry
    });
    let tally = workers.tally();
    assert_eq!((tally.retried, tally.given_up, tally.refused), (99, 0, 1));
}

// ---- the handle ----

#[test]
fn worker_threads_are_named_after_the_workers_or_the_queue() {
    for (queue_name, own, expected) in [("", None, "worker"), ("pods", None, "pods"), ("pods", Some("own"), "own")] {
        let queue = WorkQueue::builder().name(queue_name).build();
        queue.add_all(0..20);
        queue.shut_down();
        let (note, names) = mpsc::channel();
        let builder = own.into_iter().fold(queue.workers(), WorkersBuilder::name);
        let handler = move |_: &Item<'_, u32>| note.send(thread::current().name().unwrap().to_owned()).unwrap();
        builder.spawn(2, handler).unwrap().join();
        let names: Vec<_> = names.try_iter().collect();
        let all = [0, 1].map(|number| format!("{expected}-{number}"));
        assert!(names.len() == 20 && names.iter().all(|name| all.contains(name)), "{names:?}");
    }
}

#[test]
fn zero_threads_are_an_error() {
    let error = WorkQueue::<u32>::new().workers().spawn(0, |_: &Item<'_, u32>| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "threads is 0: no thread would process keys");
}

#[test]
fn each_join_waits_for_the_loops_of_all_handles() {
    let queue = WorkQueue::<u32>::new();
    let workers = queue.workers().spawn(2, |_: &Item<'_, u32>| ()).unwrap();
    let other = workers.clone();
    let task = other.run_async(async |_: &Item<'_, u32>| ());
    assert_eq!([&workers, &other].map(|handle| handle.tally().running), [3, 3], "a future runs before its first poll");
    queue.add_all(0..100);
    queue.wait_idle();
    assert_eq!([&workers, &other].map(|handle| handle.tally().succeeded), [100, 100]);
    queue.shut_down();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                workers.join();
                send.send(()).unwrap();
            });
        }
        while workers.tally().running > 1 {
            thread::yield_now();
        }
        assert!(receive.try_recv().is_err(), "the last loop, which is the future, has not ended");
        drop(task);
        (0..2).for_each(|_| receive.recv().unwrap());
    });
    assert!(format!("{workers:?}").contains("succeeded: 100"));
    other.join(); // a second join returns at once
}

#[test]
fn dropping_the_handle_stops_no_worker() {
    let queue = WorkQueue::<u32>::new();
    drop(queue.workers().spawn(1, |_: &Item<'_, u32>| ()).unwrap());
    queue.add(1);
    queue.wait_idle();
    assert_eq!(queue.stats().handed_out, 1);
    queue.shut_down();
}

// ---- stops and drains ----

/// Workers whose handlers block until the senders in `go` are dropped.
struct Stuck {
    queue: WorkQueue<u32>,
    workers: Workers<u32>,
    go: Vec<mpsc::Sender<()>>,
}

impl Stuck {
    /// 0 (dirty) and 1 are processing, in handlers that block; 2 and 3 are queued; 4 and 0 are delayed.
    fn new() -> Self {
        let (queue, _clock) = manual(WorkQueue::builder());
        let queue = queue.build();
        let (go, stop): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
        let stop: Vec<_> = stop.into_iter().map(Mutex::new).collect();
        let handler = move |item: &Item<'_, u32>| {
            if let Some(stop) = stop.get(**item as usize) {
                _ = stop.lock().unwrap().recv();
            }
        };
        let workers = queue.workers().spawn(2, handler).unwrap();
        queue.add_all(0..4);
        while queue.processing_len() < 2 {
            thread::yield_now();
        }
        queue.add(0);
        queue.add_after(4, 3 * MS);
        queue.add_after(0, 9 * MS);
        Self { queue, workers, go }
    }
}

#[test]
fn a_drain_returns_nothing_if_its_handlers_finish_in_time() {
    type Drain = fn(&Workers<u32>) -> Leftover<u32>;
    let drains: [Drain; 3] = [
        Workers::drain,
        |workers| workers.drain_timeout(Duration::MAX),
        |workers| block_on(workers.drain_until(pending::<()>())),
    ];
    for drain in drains {
        let Stuck { queue, workers, go } = Stuck::new();
        assert_eq!(queue.take_delayed().len(), 2);
        thread::scope(|scope| {
            let drain = scope.spawn(|| drain(&workers));
            while queue.stats().drainers == 0 {
                thread::yield_now();
            }
            drop(go);
            assert!(drain.join().unwrap().is_empty());
        });
        assert_eq!((workers.tally().running, workers.tally().succeeded), (0, 5));
        // Nothing is left, so the drain is empty although the deadline has come.
        assert!(block_on(workers.drain_until(ready(()))).is_empty());
    }
}

/// No loop processes the keys that a stop has left, so the drain must not wait for them.
#[test]
fn a_drain_after_a_stop_waits_only_for_the_loops() {
    let Stuck { workers, go, .. } = Stuck::new();
    let first = workers.stop();
    assert_eq!(first.processing.len(), 2);
    let own = workers.clone();
    let drain = thread::spawn(move || own.drain_timeout(Duration::from_secs(3600)));
    drop(go);
    workers.join();
    assert_eq!(within_30_s(move || drain.join().unwrap()).queued, [0]);
}

#[test]
fn drain_until_returns_what_is_left_when_its_deadline_resolves() {
    let Stuck { queue, workers, go } = Stuck::new();
    let calls = Arc::new(Calls::default());
    let (send, deadline) = tokio::sync::oneshot::channel::<()>();
    let mut drain = Box::pin(workers.drain_until(deadline));
    assert!(!queue.shutting_down(), "not before the first poll");
    assert!(poll(drain.as_mut(), &calls).is_pending());
    assert!(queue.shutting_down() && calls.count() == 0);
    send.send(()).unwrap();
    assert_eq!(calls.count(), 1);
    let Poll::Ready(mut left) = poll(drain.as_mut(), &calls) else { panic!("the drain must end at its deadline") };
    left.processing.sort();
    assert_eq!((left.queued, left.processing), (vec![2, 3], vec![0, 1]));
    assert_eq!(pairs(left.delayed), [(4, 3 * MS), (0, 9 * MS)]);
    drop(go);
    workers.join();
}

/// The deadline is a user's future, so its `poll` may panic.
#[test]
fn a_deadline_that_panics_takes_nothing() {
    let queue = manual(WorkQueue::builder()).0.build();
    queue.add(1);
    queue.add_after(2, MS);
    let workers = queue.workers().build();
    let deadline = poll_fn(|_| -> Poll<()> { resume_unwind(Box::new("a deadline")) });
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(workers.drain_until(deadline)))).is_err());
    let left = workers.stop();
    assert_eq!((left.queued, pairs(left.delayed)), (vec![1], vec![(2, MS)]));
}

/// A value whose drop says that it begins, blocks until the test ends it, and says that it has ended.
struct SlowDrop(mpsc::Sender<&'static str>, Mutex<mpsc::Receiver<()>>);

impl Drop for SlowDrop {
    fn drop(&mut self) {
        _ = self.0.send("begun");
        _ = self.1.lock().unwrap().recv();
        _ = self.0.send("ended");
    }
}

fn slow_drop() -> (SlowDrop, mpsc::Receiver<&'static str>, mpsc::Sender<()>) {
    let ((tell, told), (end, ending)) = (mpsc::channel(), mpsc::channel());
    (SlowDrop(tell, Mutex::new(ending)), told, end)
}

#[test]
fn a_drain_with_a_timeout_does_not_wait_for_a_captured_value_to_be_dropped() {
    let (value, told, end) = slow_drop();
    let queue = WorkQueue::new();
    let workers = queue
        .workers()
        .spawn(2, move |_: &Item<'_, u32>| {
            let _captured = &value;
        })
        .unwrap();
    queue.add(1);
    let own = workers.clone();
    assert!(within_30_s(move || own.drain_timeout(5 * MS)).is_empty());
    assert_eq!(told.recv(), Ok("begun"));
    let own = workers.clone();
    assert!(within_30_s(move || own.drain_timeout(5 * MS)).is_empty(), "a second drain");
    assert_eq!((workers.tally().running, told.try_recv().ok()), (1, None));
    end.send(()).unwrap();
    workers.join();
    assert_eq!((workers.tally().running, told.try_recv()), (0, Ok("ended")));
}

#[test]
fn a_drain_with_a_timeout_does_not_wait_for_the_thread_locals_of_a_handler() {
    use std::cell::RefCell;
    thread_local!(static LOCAL: RefCell<Option<SlowDrop>> = const { RefCell::new(None) });
    let (value, told, end) = slow_drop();
    let value = Mutex::new(Some(value));
    let queue = WorkQueue::new();
    let workers = queue.workers().spawn(1, move |_: &Item<'_, u32>| LOCAL.set(value.lock().unwrap().take())).unwrap();
    queue.add(1);
    let own = workers.clone();
    assert!(within_30_s(move || own.drain_timeout(Duration::from_secs(3600))).is_empty());
    assert_eq!(told.recv(), Ok("begun"));
    assert_eq!((workers.tally().running, told.try_recv().ok()), (0, None));
    end.send(()).unwrap();
    workers.join();
    assert_eq!(told.try_recv(), Ok("ended"), "a join waits for the thread");
}

/// In each way of running it, a loop counts as running until its handler is dropped.
#[test]
fn a_loop_ends_when_its_handler_is_dropped() {
    for way in WAYS {
        let (value, told, end) = slow_drop();
        let queue = WorkQueue::new();
        queue.add(1);
        queue.shut_down();
        let builder = queue.workers();
        let handler = move |_: &Item<'_, u32>| {
            let _captured = &value;
        };
        let workers = if way == Way::Spawned {
            builder.spawn(1, handler).unwrap()
        } else {
            let workers = builder.build();
            let own = workers.clone();
            let run = workers.run_async(async |_: &Item<'_, u32>| ());
            thread::spawn(move || match way {
                Way::Here => own.run(handler),
                Way::Task => block_on(own.run_async(async move |item: &Item<'_, u32>| handler(item))),
                // A future that was never polled.
                _ => drop(own.run_async(async move |item: &Item<'_, u32>| handler(item))),
            });
            drop(run);
            workers
        };
        assert_eq!(told.recv(), Ok("begun"));
        let calls = Arc::new(Calls::default());
        let mut join = pin!(workers.join_async());
        assert!(poll(join.as_mut(), &calls).is_pending(), "{way:?}");
        assert_eq!(workers.tally().running, 1, "{way:?}");
        end.send(()).unwrap();
        // A drain joins, too.
        if matches!(way, Way::Spawned | Way::Task) {
            assert!(workers.drain().is_empty());
        } else {
            workers.join();
        }
        assert_eq!(told.try_recv(), Ok("ended"), "{way:?}");
        assert!(poll(join, &calls).is_ready());
    }
}

// ---- handlers that wait for the shut-down ----

/// The beginning of a drain wakes them too: the drain waits for the handlers, so they must not wait for its end.
#[test]
fn a_shut_down_wakes_all_until_shutting_down_futures_but_dropped_ones() {
    type Begin = fn(&WorkQueue<u32>);
    let begins: [Begin; 2] = [WorkQueue::shut_down, |queue| {
        assert!(poll(pin!(queue.shut_down_with_drain_async()), &Arc::default()).is_pending())
    }];
    for begin in begins {
        let queue = WorkQueue::<u32>::new();
        queue.add_all([1, 2]);
        let (one, two) = (queue.get().unwrap(), queue.get().unwrap().into_owned());
        let calls: [Arc<Calls>; 5] = std::array::from_fn(|_| Arc::default());
        let [of_queue, of_item, of_owned, gone, again] = &calls;
        let mut futures =
            [queue.until_shutting_down(), one.until_shutting_down(), two.until_shutting_down()].map(Box::pin);
        assert!(poll(futures[0].as_mut(), again).is_pending());
        for (future, calls) in futures.iter_mut().zip([of_queue, of_item, of_owned]) {
            assert!(poll(future.as_mut(), calls).is_pending(), "the latest waker replaces it");
        }
        let mut dropped = Box::pin(queue.until_shutting_down());
        assert!(poll(dropped.as_mut(), gone).is_pending());
        drop(dropped);
        assert_eq!(Arc::strong_count(gone), 1, "its waker is dropped with it");
        assert_eq!(calls.each_ref().map(|calls| calls.count()), [0; 5]);
        begin(&queue);
        queue.shut_down();
        assert_eq!(calls.each_ref().map(|calls| calls.count()), [1, 1, 1, 0, 0]);
        assert!(futures.iter_mut().all(|future| poll(future.as_mut(), again).is_ready()));
        assert!(poll(pin!(queue.until_shutting_down()), again).is_ready(), "resolves at once");
        assert_eq!(again.count(), 0);
    }
}

// ---- spans ----

#[cfg(feature = "tracing")]
mod spans {
    use super::*;
    use crate::support::loops::yield_once;
    use keyqueue::Clock;
    use std::cell::RefCell;
    use std::fmt::{Debug, Write};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    /// Records every span, and every event with the spans around it.
    #[derive(Clone, Default)]
    struct Log {
        lines: Arc<Mutex<Vec<String>>>,
        spans: Arc<Mutex<Vec<String>>>,
        /// Panics in this call.
        panics_in: &'static str,
    }

    impl Log {
        fn at(&self, call: &str) {
            if call == self.panics_in && !thread::panicking() {
                resume_unwind(Box::new("a subscriber"));
            }
        }
    }

    thread_local! {
        static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            self.at("new_span");
            let mut fields = Fields(format!("{} {}", span.metadata().level(), span.metadata().name()));
            span.record(&mut fields);
            let mut spans = self.spans.lock().unwrap();
            spans.push(fields.0);
            Id::from_u64(spans.len() as u64)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {
            panic!("all fields are set when the span is created");
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            self.at("event");
            let mut fields = Fields(event.metadata().level().to_string());
            event.record(&mut fields);
            let spans = self.spans.lock().unwrap();
            let within = ENTERED.with_borrow(|entered| {
                entered.iter().map(|&id| spans[id as usize - 1].clone()).collect::<Vec<_>>().join(" > ")
            });
            self.lines.lock().unwrap().push(format!("[{within}] {}", fields.0));
        }

        fn enter(&self, id: &Id) {
            self.at("enter");
            ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
        }

        fn exit(&self, id: &Id) {
            ENTERED.with_borrow_mut(|entered| assert_eq!(entered.pop(), Some(id.into_u64())));
            self.at("exit");
        }

        fn try_close(&self, _: Id) -> bool {
            self.at("close");
            true
        }
    }

    fn logged(run: impl FnOnce()) -> (Vec<String>, Vec<String>) {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), run);
        ENTERED.with_borrow(|entered| assert!(entered.is_empty(), "all spans were exited"));
        let (spans, lines) = (log.spans.lock().unwrap().clone(), log.lines.lock().unwrap().clone());
        (spans, lines)
    }

    /// The spans and events of a key whose first run fails, whose second panics, and whose third succeeds.
    fn three_runs(measure: bool, traced: bool, asynchronous: bool) -> (Vec<String>, Vec<String>) {
        let (clock, mock) = Clock::mock();
        let queue = no_backoff().clock(clock).name("pods").measure(measure).build();
        queue.add("a");
        mock.advance(MS);
        let builder = queue.workers().on_panic(|_, message| assert_eq!(message, "on fire"));
        let workers = if traced { builder.traced() } else { builder }.build();
        let runs = AtomicUsize::new(0);
        let handler = |item: &Item<'_, &'static str>| {
            tracing::event!(Level::DEBUG, key = **item, "at work");
            match runs.fetch_add(1, Ordering::Relaxed) {
                0 => Outcome::Failed("no luck".into()),
                1 => resume_unwind(Box::new("on fire")),
                _ => {
                    queue.shut_down();
                    Outcome::Success
                }
            }
        };
        logged(|| {
            if asynchronous {
                block_on(workers.run_async(async |item: &Item<'_, &'static str>| {
                    yield_once().await;
                    handler(item)
                }));
            } else {
                workers.run(handler);
            }
        })
    }

    #[test]
    fn each_run_is_in_a_span_with_its_errors_and_panics() {
        for asynchronous in [false, true] {
            let (spans, lines) = three_runs(true, true, asynchronous);
            let expected = [(1, "1ms"), (2, "0ns"), (3, "0ns")].map(|(attempt, waited)| {
                format!(r#"INFO workqueue queue="pods" key="a" waited={waited} attempt={attempt}"#)
            });
            assert_eq!(spans, expected);
            let [first, second, third] = expected;
            let work = r#"DEBUG message=at work key="a""#;
            let expected = [
                format!("[{first}] {work}"),
                format!("[{first}] WARN message=failed error=no luck"),
                format!("[{second}] {work}"),
                format!("[{second}] ERROR message=panicked message=\"on fire\""),
                format!("[{third}] {work}"),
            ];
            // `tracing` chooses the order of an event's fields.
            let sorted = |line: &str| {
                let (span, fields) = line.rsplit_once(']').unwrap();
                let mut fields: Vec<char> = fields.chars().collect();
                fields.sort();
                (span.to_owned(), fields)
            };
            assert!(lines.iter().map(|line| sorted(line)).eq(expected.iter().map(|line| sorted(line))), "{lines:#?}");
        }
    }

    #[test]
    fn errors_of_retry_after_and_give_up_are_events_too() {
        let queue = no_backoff().build();
        queue.add_all([1, 2]);
        queue.shut_down();
        let (_, lines) = logged(|| {
            queue.workers().traced().build().run(|item: &Item<'_, u32>| match **item {
                1 => Outcome::RetryAfter { delay: MS, error: "busy".into() },
                _ => Outcome::GiveUp("gone".into()),
            });
        });
        let [busy, gone] = &lines[..] else { panic!("{lines:#?}") };
        assert!(busy.contains("WARN") && busy.contains("message=failed") && busy.contains("error=busy"), "{busy}");
        assert!(gone.contains("WARN") && gone.contains("message=given up") && gone.contains("error=gone"), "{gone}");
    }

    #[test]
    fn without_measure_the_span_has_no_waited_field() {
        let (spans, _) = three_runs(false, true, false);
        assert_eq!(spans[0], r#"INFO workqueue queue="pods" key="a" attempt=1"#);
    }

    #[test]
    fn a_span_has_the_key_as_it_is_displayed() {
        let queue = no_backoff().name("pods").build();
        queue.add("a"); // `Debug` puts it in quotes
        queue.shut_down();
        let workers = queue.workers().traced_display().build();
        let (spans, _) = logged(|| workers.run(|_| ()));
        assert_eq!(spans, [r#"INFO workqueue queue="pods" key=a attempt=1"#]);
    }

    #[test]
    fn an_item_has_a_span_without_workers() {
        let queue = manual(WorkQueue::builder()).0.name("pods").measure(true).build();
        let (spans, lines) = logged(|| {
            queue.add(7);
            let item = queue.get().unwrap().into_owned();
            item.span().in_scope(|| tracing::event!(Level::DEBUG, "at work"));
        });
        let expected = r#"INFO workqueue queue="pods" key=7 waited=0ns attempt=1"#;
        assert_eq!(spans, [expected]);
        assert_eq!(lines, [format!("[{expected}] DEBUG message=at work")]);
    }

    /// A subscriber is foreign code, so it may panic.
    #[test]
    fn a_subscriber_that_panics_leaves_no_key_stuck() {
        for place in ["new_span", "enter", "exit", "event", "close"] {
            for asynchronous in [false, true] {
                let queue = no_backoff().build();
                queue.add_all([1, 2]);
                queue.shut_down();
                let workers = queue.workers().traced().build();
                let broken = Log { panics_in: place, ..Log::default() };
                let handler = |item: &Item<'_, u32>| {
                    if **item == 1 { Err("no luck") } else { resume_unwind(Box::new("on fire")) }
                };
                tracing::subscriber::with_default(broken, || {
                    if asynchronous {
                        block_on(workers.run_async(async |item: &Item<'_, u32>| -> Result<(), _> { handler(item) }));
                    } else {
                        workers.run(|item: &Item<'_, u32>| -> Result<(), _> { handler(item) });
                    }
                });
                let (stats, tally) = (queue.stats(), workers.tally());
                assert_eq!((stats.processing, stats.len, stats.handed_out), (0, 0, 2), "{place}");
                assert!(tally.panicked >= 2 && tally.retried + tally.refused > 0, "{place}: {tally:?}");
            }
        }
    }

    #[test]
    fn without_traced_there_are_no_spans() {
        let (spans, lines) = three_runs(true, false, true);
        assert_eq!((spans, lines.len()), (vec![], 3), "only the handler's own events");
        assert!(lines.iter().all(|line| line.starts_with("[] DEBUG")));
    }
}
