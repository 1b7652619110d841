//! The newest decision of a holder counts: rows of a table that users have met, each with its smallest input.
//!
//! What any history of calls does is compared with the plain queue of `reference/`. Here are the cases in which the delay of a retry once
//! outlived the runs that came after it, and those that the plain queue does not know: `served_only`, and workers with a limit of retries
//! whose hooks add keys. An *event* is a plain add of a key that waits for its retry. The backoff is 10 s, 20 s, and so on.

mod support {
    pub(crate) mod manual;
}

use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{
    AddOptions, Added, DelayConflict, DelayedAdd, GivenUp, Item, MockClock, Outcome, Priority, WorkQueue, Workers,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::manual::{manual, pairs};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const KEY: u32 = 1;

fn backoff() -> ItemExponentialFailure<u32> {
    ItemExponentialFailure::new(secs(10), secs(100_000))
}

/// A queue, and the time since its beginning.
struct Scene {
    queue: WorkQueue<u32>,
    time: MockClock,
    now: Duration,
}

impl Scene {
    fn new(policy: DelayedAdd, limiter: impl RateLimiter<u32> + 'static) -> Self {
        let (builder, time) = manual(WorkQueue::builder());
        let queue = builder.delayed_add(policy).rate_limiter(limiter).build();
        Self { queue, time, now: Duration::ZERO }
    }

    fn plain() -> Self {
        Self::new(DelayedAdd::Independent, backoff())
    }

    /// The limiter has the clock of the queue.
    fn served_only(limiter: ItemExponentialFailure<u32>) -> Self {
        let (clock, time) = keyqueue::Clock::mock();
        let limiter = limiter.served_only().clock(clock.clone());
        let builder = WorkQueue::builder().clock(clock).driver(keyqueue::Driver::Manual);
        Self { queue: builder.rate_limiter(limiter).build(), time, now: Duration::ZERO }
    }

    fn at(&mut self, seconds: u64) -> &Self {
        self.time.advance(secs(seconds) - self.now);
        self.now = secs(seconds);
        self.queue.turn();
        self
    }

    fn get(&self) -> Item<'_, u32> {
        self.queue.try_get().expect("the key is queued")
    }

    /// The time at which the key will be handed out next, in seconds. `None`: it has no delay.
    fn due(&self) -> Option<u64> {
        let delayed = self.queue.inspect().delayed_keys();
        assert!(delayed.len() <= 1 && delayed.iter().all(|delayed| delayed.key == KEY));
        assert_eq!(self.queue.delayed_len(), delayed.len());
        delayed.first().map(|delayed| (self.now + delayed.left).as_secs())
    }
}

/// A loop of workers that is polled by hand. Its handler returns these outcomes, one for each run.
struct Loop<'q> {
    future: Pin<Box<dyn Future<Output = ()> + 'q>>,
    script: &'q RefCell<VecDeque<Outcome>>,
}

impl<'q> Loop<'q> {
    fn new(workers: &'q Workers<u32>, script: &'q RefCell<VecDeque<Outcome>>) -> Self {
        let future = workers.run_async(async |_: &Item<'_, u32>| {
            script.borrow_mut().pop_front().unwrap_or_else(|| Outcome::failed("it always fails"))
        });
        Self { future: Box::pin(future), script }
    }

    /// Runs all keys that are queued, with these outcomes. Those that are not used are for nobody.
    fn run(&mut self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.script.borrow_mut().extend(outcomes);
        assert!(self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(self.script.borrow_mut().is_empty(), "an outcome without a run");
    }
}

fn fails() -> Outcome {
    Outcome::failed("it fails")
}

#[test]
fn a_retry_after_is_the_time_of_the_retry() {
    let mut scene = Scene::plain();
    let (queue, script) = (scene.queue.clone(), RefCell::default());
    let workers = queue.workers().build();
    let mut own = Loop::new(&workers, &script);
    queue.add(KEY);
    own.run([fails()]);
    assert_eq!(scene.due(), Some(10));
    scene.at(5);
    queue.add(KEY);
    own.run([Outcome::RetryAfter { delay: secs(60), error: "429".into() }]);
    assert_eq!(scene.due(), Some(65), "in 60 s, and not in 5");
}

#[test]
fn a_later_retry_takes_the_place_of_an_earlier_one() {
    let mut scene = Scene::plain();
    scene.queue.add(KEY);
    scene.get().retry();
    scene.at(9).queue.add(KEY);
    assert_eq!(scene.get().retry(), Added::Delayed);
    assert_eq!((scene.due(), scene.queue.num_requeues(&KEY)), (Some(29), 2));
}

#[test]
fn a_success_or_the_end_of_trying_drops_the_retry() {
    type End = fn(Item<'_, u32>);
    let ends: [(End, Option<u64>); 3] =
        [(|item| item.give_up(), None), (|item| item.succeed(), None), (|item| drop(item), Some(10))];
    for (end, due) in ends {
        let mut scene = Scene::plain();
        scene.queue.add(KEY);
        scene.get().retry();
        scene.queue.add(KEY);
        end(scene.get());
        assert_eq!(scene.due(), due);
        scene.at(10);
        assert_eq!(scene.queue.len(), usize::from(due.is_some()));
    }
}

#[test]
fn a_key_is_given_up_once() {
    let mut scene = Scene::plain();
    let (queue, script, given_up) = (scene.queue.clone(), RefCell::default(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&given_up);
    let hook = move |_: &u32, _: &GivenUp<'_>| _ = count.fetch_add(1, Ordering::Relaxed);
    let workers = queue.workers().max_retries(3).on_give_up(hook).build();
    let mut own = Loop::new(&workers, &script);
    queue.add(KEY);
    own.run([]);
    for event in [5, 12, 18] {
        scene.at(event);
        queue.add(KEY);
        own.run([]);
    }
    for seconds in 19..2000 {
        scene.at(seconds);
        own.run([]);
    }
    let tally = workers.tally();
    assert_eq!((given_up.load(Ordering::Relaxed), tally.given_up, tally.failed, scene.due()), (1, 1, 4, None));
}

/// Each failure after the last retry waits for the long delay, with no quick retry in between, and the hook is called at the first. A
/// success begins anew. The limiter is the crate's, or a foreign one: that does not count beyond three, or panics when it is asked for a
/// number or a delay.
#[test]
fn a_key_that_is_out_of_retries_comes_back_after_a_long_delay() {
    struct Foreign(Mutex<usize>, fn(&str));
    impl RateLimiter<u32> for Foreign {
        fn when(&self, _: &u32) -> Duration {
            (self.1)("when");
            let count = &mut *self.0.lock().unwrap();
            *count = (*count + 1).min(3);
            secs(10 << (*count - 1))
        }
        fn forget(&self, _: &u32) {
            *self.0.lock().unwrap() = 0;
        }
        fn num_requeues(&self, _: &u32) -> usize {
            (self.1)("num_requeues");
            *self.0.lock().unwrap()
        }
    }
    fn panics_in(call: &str, name: &str) {
        if call == name {
            resume_unwind(Box::new("a limiter"));
        }
    }
    let foreign = |strike| Scene::new(DelayedAdd::Independent, Foreign(Mutex::default(), strike));
    // The times of the three retries, one after the other. A limiter that panics is asked no more for this retry, whose delay is 50 ms.
    let scenes = [
        (Scene::plain(), [10, 20, 40]),
        (Scene::served_only(backoff()), [10, 20, 40]),
        (foreign(|_| {}), [10, 20, 40]),
        (foreign(|name| panics_in("num_requeues", name)), [1, 1, 1]),
        (foreign(|name| panics_in("when", name)), [1, 1, 1]),
    ];
    for (mut scene, times) in scenes {
        let (queue, script, given_up) = (scene.queue.clone(), RefCell::default(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&given_up);
        let hook = move |_: &u32, why: &GivenUp<'_>| {
            assert_eq!(why.retries, 3);
            count.fetch_add(1, Ordering::Relaxed);
        };
        let workers = queue.workers().max_retries(3).then_after(secs(3600)).on_give_up(hook).build();
        let mut own = Loop::new(&workers, &script);
        let retries = |or| catch_unwind(AssertUnwindSafe(|| queue.num_requeues(&KEY))).unwrap_or(or);
        let mut now = 0;
        for round in 1..=2 {
            queue.add(KEY);
            own.run([]);
            for (at, retry) in times.into_iter().enumerate() {
                assert_eq!((given_up.load(Ordering::Relaxed), retries(at + 1)), (round - 1, at + 1));
                now += retry;
                scene.at(now);
                own.run([]);
            }
            for hours in 0..20 {
                assert_eq!(scene.due(), Some(now + 3600), "{hours} hours");
                assert_eq!(retries(4 + hours), 4 + hours);
                assert_eq!((workers.tally().given_up, queue.stats().given_up), (round, round));
                assert_eq!(given_up.load(Ordering::Relaxed), round);
                now += 3600;
                scene.at(now);
                own.run([]);
            }
            now += 3600;
            scene.at(now);
            own.run([Outcome::Success]);
            assert_eq!((scene.due(), retries(0)), (None, 0));
        }
        let tally = workers.tally();
        assert_eq!((tally.succeeded, tally.failed, tally.retried), (2, 48, 48));
    }
}

/// What else ends a run of a key that was given up and comes back, and what its delay is then.
#[test]
fn a_key_that_comes_back_late_obeys_its_outcomes() {
    type Row = (&'static str, fn() -> Outcome, Option<u64>, u64, usize);
    let rows: [Row; 8] = [
        ("failed", || Outcome::failed("again"), Some(600), 1, 3),
        ("a longer delay", || Outcome::RetryAfter { delay: secs(900), error: "429".into() }, Some(900), 1, 3),
        ("a shorter delay", || Outcome::RetryAfter { delay: secs(9), error: "429".into() }, Some(600), 1, 3),
        ("a pause without groups", || Outcome::PauseGroup { delay: secs(9), error: "429".into() }, Some(600), 1, 3),
        ("a panic", || resume_unwind(Box::new("a handler")), Some(600), 1, 3),
        ("postponed", || Outcome::RequeueWith(AddOptions::new().after(secs(7))), Some(7), 1, 2),
        ("requeued", || Outcome::RequeueAfter(secs(7)), Some(7), 1, 0),
        ("given up", || Outcome::GiveUp("gone".into()), None, 2, 0),
    ];
    for (name, outcome, due, given_up, retries) in rows {
        let mut scene = Scene::plain();
        let queue = scene.queue.clone();
        let workers = queue.workers().max_retries(1).then_after(secs(600)).build();
        let next = RefCell::new(VecDeque::from([|| Outcome::Retry, || Outcome::Retry, outcome]));
        let mut work = pin!(workers.run_async(async |_: &Item<'_, u32>| (next.borrow_mut().pop_front().unwrap())()));
        let mut run = || while work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {};
        queue.add(KEY);
        run();
        for at in [10, 610] {
            scene.at(at);
            run();
        }
        assert_eq!(scene.due(), due.map(|due| 610 + due), "{name}");
        assert_eq!((workers.tally().given_up, queue.num_requeues(&KEY)), (given_up, retries), "{name}");
    }
}

/// A caller's failures may bring a key beyond its last retry. The first run that fails then gives it up.
#[test]
fn failures_of_callers_count_as_retries() {
    let mut scene = Scene::plain();
    let (queue, script) = (scene.queue.clone(), RefCell::default());
    let workers = queue.workers().max_retries(2).then_after(secs(600)).build();
    let mut own = Loop::new(&workers, &script);
    (0..5).for_each(|_| _ = queue.add_rate_limited(KEY));
    scene.at(10);
    own.run([]);
    assert_eq!((workers.tally().given_up, scene.due()), (1, Some(610)));
    queue.forget(&KEY);
    scene.at(610);
    own.run([]);
    assert_eq!((workers.tally().given_up, scene.due()), (1, Some(620)), "it has its retries again");
}

/// A key that waits for its late run is in the leftover, and so is one that fails for the first or a further time after the shut-down.
#[test]
fn a_stop_returns_a_key_that_would_come_back_late() {
    for failures in 0..3 {
        for is_late in [false, true] {
            let mut scene = Scene::plain();
            let (queue, script, told) = (scene.queue.clone(), RefCell::default(), Arc::new(AtomicU64::new(0)));
            let count = Arc::clone(&told);
            let hook = move |_: &u32, _: &GivenUp<'_>| _ = count.fetch_add(1, Ordering::Relaxed);
            let workers = queue.workers().max_retries(1).then_after(secs(600)).on_give_up(hook).build();
            let mut own = Loop::new(&workers, &script);
            queue.add(KEY);
            for at in [0, 10, 610].into_iter().take(failures) {
                scene.at(at);
                own.run([]);
            }
            scene.at(1210);
            if is_late {
                queue.shut_down();
                assert!(own.future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
            }
            let left = workers.stop();
            let lists = [left.queued.len(), left.processing.len(), left.delayed.len(), left.refused.len()];
            assert_eq!(lists, if is_late { [0, 0, 0, 1] } else { [1, 0, 0, 0] }, "{failures} failures");
            let given_up = u64::from(failures + usize::from(is_late) > 1);
            assert_eq!((told.load(Ordering::Relaxed), workers.tally().given_up), (given_up, given_up));
            let tally = workers.tally();
            assert_eq!(
                (tally.failed, tally.retried, tally.refused),
                (failures as u64, failures as u64, is_late.into())
            );
        }
    }
    let mut scene = Scene::plain();
    let (queue, script) = (scene.queue.clone(), RefCell::default());
    let workers = queue.workers().max_retries(0).then_after(secs(600)).build();
    let mut own = Loop::new(&workers, &script);
    queue.add(KEY);
    own.run([]);
    scene.at(60);
    assert_eq!(pairs(workers.drain_timeout(Duration::ZERO).delayed), [(KEY, secs(540))]);
}

#[test]
fn what_a_hook_adds_is_a_callers_delay() {
    let mut scene = Scene::plain();
    let (queue, script) = (scene.queue.clone(), RefCell::default());
    let again = queue.clone();
    let hook = move |key: &u32, _: &GivenUp<'_>| _ = again.add_after(*key, secs(3600));
    let workers = queue.workers().max_retries(1).on_give_up(hook).build();
    let mut own = Loop::new(&workers, &script);
    queue.add(KEY);
    own.run([]);
    scene.at(5);
    queue.add(KEY);
    own.run([]);
    assert_eq!((workers.tally().given_up, scene.due()), (1, Some(3605)), "in an hour");
    scene.at(10);
    assert!(queue.is_empty(), "the retry is gone");
}

#[test]
fn a_failure_that_does_not_count_does_not_give_up() {
    let mut scene = Scene::served_only(backoff());
    let (queue, script) = (scene.queue.clone(), RefCell::default());
    let workers = queue.workers().max_retries(1).build();
    let mut own = Loop::new(&workers, &script);
    queue.add(KEY);
    own.run([]);
    scene.at(5);
    queue.add(KEY);
    own.run([]);
    assert_eq!((workers.tally().given_up, queue.num_requeues(&KEY), scene.due()), (0, 1, Some(10)));
    scene.at(6);
    queue.add(KEY);
    own.run([Outcome::RetryAfter { delay: secs(60), error: "429".into() }]);
    assert_eq!(scene.due(), Some(66), "the server has said 60 s");
    scene.at(7);
    queue.add(KEY);
    own.run([]);
    assert_eq!((queue.num_requeues(&KEY), scene.due()), (1, Some(66)), "and a failure before that changes nothing");
    scene.at(66);
    own.run([]);
    assert_eq!(workers.tally().given_up, 1);
}

/// Base 1 s, at most 8 retries, and an event each half second: the backoffs sum up to 255 s.
#[test]
fn events_do_not_shorten_backoffs_that_are_protected() {
    let base = || ItemExponentialFailure::new(secs(1), secs(100_000));
    let scenes = [
        ("Strict", Scene::new(DelayedAdd::Strict, base()), 255.0..255.5),
        ("served_only", Scene::served_only(base()), 255.0..255.5),
        ("Promote", Scene::new(DelayedAdd::Promote, base()), 3.5..4.5),
        ("Independent", Scene::new(DelayedAdd::Independent, base()), 3.5..4.5),
    ];
    for (name, scene, expected) in scenes {
        let (queue, script) = (scene.queue.clone(), RefCell::default());
        let workers = queue.workers().max_retries(8).build();
        let mut own = Loop::new(&workers, &script);
        let half_seconds = (0..1000).find(|_| {
            queue.turn();
            queue.add(KEY);
            own.run([]);
            scene.time.advance(Duration::from_millis(500));
            workers.tally().given_up > 0
        });
        let given_up = f64::from(half_seconds.expect("it is given up")) / 2.0;
        println!("{name}: given up after {given_up} s");
        assert!(expected.contains(&given_up), "{name}: given up after {given_up} s");
        assert_eq!((workers.tally().given_up, queue.delayed_len()), (1, 0));
    }
}

#[test]
fn an_add_waits_for_a_retry_and_for_nothing_else() {
    for (policy, queued) in [(DelayedAdd::Strict, false), (DelayedAdd::Promote, true), (DelayedAdd::Independent, true)]
    {
        let scene = Scene::new(policy, backoff());
        scene.queue.add(KEY);
        scene.get().retry();
        scene.queue.add(KEY);
        let is_kept = policy != DelayedAdd::Promote;
        assert_eq!((scene.queue.len() == 1, scene.due().is_some()), (queued, is_kept), "{policy:?}: a retry");

        let scene = Scene::new(policy, backoff());
        scene.queue.add(KEY);
        scene.get().requeue_after(secs(3600));
        scene.queue.add(KEY);
        assert_eq!((scene.queue.len(), scene.due()), (1, Some(3600)), "{policy:?}: a requeue");
        drop(scene.get());
        assert_eq!(scene.due(), Some(3600), "{policy:?}: a bare drop keeps it");

        let scene = Scene::new(policy, backoff());
        scene.queue.add_after(KEY, secs(3600));
        scene.queue.add(KEY);
        assert_eq!((scene.queue.len(), scene.due()), (1, Some(3600)), "{policy:?}: a caller's date");

        let scene = Scene::new(policy, backoff());
        scene.queue.add_rate_limited(KEY);
        scene.queue.add(KEY);
        let is_kept = policy != DelayedAdd::Promote;
        assert_eq!((scene.queue.len() == 1, scene.due().is_some()), (queued, is_kept), "{policy:?}: a caller's retry");
    }
}

#[test]
fn a_dirty_run_that_gives_up_drops_the_retry() {
    let scene = Scene::new(DelayedAdd::Promote, backoff());
    scene.queue.add(KEY);
    let item = scene.get();
    scene.queue.add(KEY);
    item.retry();
    scene.get().give_up();
    assert_eq!((scene.due(), scene.queue.len()), (None, 0));
}

/// As client-go's handlers do it, and as the recorded traces have it.
#[test]
fn a_callers_delay_is_never_touched_by_a_holder() {
    let scene = Scene::plain();
    scene.queue.add(KEY);
    let item = scene.get();
    scene.queue.add_rate_limited(*item);
    item.succeed();
    assert_eq!(scene.due(), Some(10), "the call is one of the queue");

    let mut scene = Scene::plain();
    scene.queue.add_after(KEY, secs(60));
    scene.queue.add(KEY);
    assert_eq!(scene.get().retry(), Added::Delayed);
    assert_eq!(scene.due(), Some(10));
    assert_eq!((scene.at(10).queue.len(), scene.due()), (1, Some(60)), "the other one takes its place");
    scene.get().succeed();
    assert_eq!(scene.due(), Some(60));
    scene.at(60);
    scene.get().succeed();
    assert_eq!(scene.due(), None);
}

#[test]
fn what_calls_see_of_two_delays() {
    let two = |policy| {
        let scene = Scene::new(policy, backoff());
        let low = AddOptions::new().after(secs(60)).priority(Priority::LOW);
        scene.queue.add_with(KEY, low);
        scene.queue.add(KEY);
        scene.get().retry();
        assert_eq!((scene.due(), scene.queue.delayed_len()), (Some(10), 1));
        scene
    };
    let scene = two(DelayedAdd::Independent);
    assert!(scene.queue.cancel(&KEY) && !scene.queue.cancel(&KEY), "a cancel drops both");
    let scene = two(DelayedAdd::Independent);
    assert!(scene.queue.remove(&KEY) && !scene.queue.remove(&KEY), "and so does a remove");
    let scene = two(DelayedAdd::Independent);
    let taken = scene.queue.take_delayed();
    assert_eq!((taken[0].priority, scene.due()), (Priority::NORMAL, None), "the earlier one, and both are gone");
    assert_eq!(pairs(taken), [(KEY, secs(10))]);

    let with = |conflict, seconds| AddOptions::new().after(secs(seconds)).conflict(conflict);
    let scene = two(DelayedAdd::Independent);
    assert_eq!(scene.queue.add_with(KEY, with(DelayConflict::Replace, 30)), Added::Delayed);
    assert_eq!(scene.due(), Some(30));
    assert!(scene.queue.cancel(&KEY), "a Replace takes the place of both");
    assert_eq!(scene.due(), None);
    let scene = two(DelayedAdd::Independent);
    assert_eq!(scene.queue.add_with(KEY, with(DelayConflict::KeepExisting, 5)), Added::Coalesced);
    assert_eq!(scene.due(), Some(10), "one delay is enough for KeepExisting");
    scene.queue.add(KEY);
    scene.get().succeed();
    assert_eq!(scene.due(), Some(60));
    let mut scene = two(DelayedAdd::Promote);
    scene.queue.add(KEY);
    assert_eq!((scene.queue.len(), scene.due()), (1, Some(60)), "a Promote takes the retry alone");
    assert_eq!(scene.get().priority(), Priority::NORMAL);
    scene.at(60);
    assert_eq!(scene.get().priority(), Priority::LOW, "each delay has its own priority");
}

/// The add has waited for the retry, which a later decision has dropped: it must not be lost (P2).
#[test]
fn an_add_that_waits_takes_effect_when_its_retry_is_dropped() {
    type End = fn(Item<'_, u32>);
    let ends: [(End, usize, Option<u64>); 5] = [
        (|item| item.succeed(), 1, None),
        (|item| item.give_up(), 1, None),
        (|item| _ = item.requeue_after(secs(3600)), 1, Some(3600)),
        (|item| _ = item.retry(), 0, Some(20)),
        (|item| drop(item), 0, Some(10)),
    ];
    for (end, queued, due) in ends {
        for shuts_down in [false, true] {
            let scene = Scene::new(DelayedAdd::Strict, backoff());
            scene.queue.add(KEY);
            let item = scene.get();
            scene.queue.add(KEY); // so the next run comes before the retry
            item.retry();
            let item = scene.get();
            assert_eq!(scene.queue.add(KEY), Added::Coalesced, "it waits for the retry");
            if shuts_down {
                scene.queue.shut_down();
            }
            end(item);
            let now = (scene.queue.len(), scene.due());
            // After a shut-down a delay is the last trace of the add.
            assert_eq!(now, if shuts_down { (0, Some(10)) } else { (queued, due) });
        }
    }
}

#[test]
fn a_requeue_can_keep_the_holders_delay() {
    let options = AddOptions::new().after(secs(60)).conflict(DelayConflict::KeepExisting);
    let scene = Scene::plain();
    scene.queue.add(KEY);
    scene.get().retry();
    scene.queue.add(KEY);
    assert_eq!(scene.get().requeue_with(options), Added::Coalesced);
    assert_eq!(scene.due(), Some(10));

    let scene = Scene::plain();
    scene.queue.add_after(KEY, secs(70));
    scene.queue.add(KEY);
    assert_eq!(scene.get().requeue_with(options), Added::Delayed, "a caller's delay is another one");
    assert_eq!(scene.due(), Some(60));
}

/// The add is content with the retry, which the run that is under way then drops: it must not be lost (P2).
#[test]
fn an_add_that_keeps_a_retry_is_not_lost_with_it() {
    for delay in [0, 5] {
        let options = AddOptions::new().after(secs(delay)).conflict(DelayConflict::KeepExisting);
        let scene = Scene::plain();
        scene.queue.add(KEY);
        scene.get().retry();
        scene.queue.add(KEY);
        let item = scene.get();
        assert_eq!(scene.queue.add_with(KEY, options), Added::Coalesced);
        item.succeed();
        assert_eq!(scene.due(), Some(10));
    }
}

/// Both delays are past when the queue looks: the key is added once, and no key of a later deadline comes first (P8).
#[test]
fn delays_that_are_past_expire_together() {
    let ns = Duration::from_nanos;
    let scene = Scene::plain();
    scene.queue.add(1);
    let item = scene.get();
    scene.queue.add_with(1, AddOptions::new().after(ns(100)).priority(Priority::LOW));
    item.requeue_with(AddOptions::new().after(ns(110)).priority(Priority::HIGH));
    scene.queue.add_with(2, AddOptions::new().after(ns(120)).priority(Priority::HIGH));
    scene.time.advance(ns(200));
    assert_eq!(scene.queue.turn(), 2, "two keys");
    let order: Vec<_> = (0..2).map(|_| *scene.get()).collect();
    assert_eq!(order, [1, 2]);
}

/// Of a requeue without a delay, the newest decision is to run now.
#[test]
fn a_requeue_at_once_drops_the_retry() {
    for policy in [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict] {
        let scene = Scene::new(policy, backoff());
        scene.queue.add(KEY);
        let item = scene.get();
        scene.queue.add(KEY);
        item.retry();
        assert_eq!(scene.get().requeue_with(AddOptions::new()), Added::Deferred, "{policy:?}");
        assert_eq!((scene.queue.len(), scene.due()), (1, None), "{policy:?}");
    }
}

/// An async loop counts as a holder, too, and a waker that does nothing is enough for it.
#[test]
fn an_item_of_a_task_decides_as_well() {
    let scene = Scene::plain();
    scene.queue.add(KEY);
    scene.get().retry();
    scene.queue.add(KEY);
    let mut get = pin!(scene.queue.get_async());
    let Poll::Ready(Some(item)) = get.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the key is queued");
    };
    item.succeed();
    assert_eq!(scene.due(), None);
}
