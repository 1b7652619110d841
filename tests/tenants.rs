//! Groups with limits, rates and pauses that change while the queue runs.

use keyqueue::rate_limiter::Bucket;
use keyqueue::{
    AddOptions, Added, Clock, DelayConflict, Driver, FairShare, GroupLimits, HeldBack, Item, MockClock, Outcome,
    Priority, WorkQueue, WorkQueueBuilder,
};
use std::future::Future;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

type Key = (u32, u32);
const SEC: Duration = Duration::from_secs(1);

fn builder() -> (WorkQueueBuilder<Key>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    (builder.fair_by(|&(group, _)| group), time)
}

fn queue() -> (WorkQueue<Key>, MockClock) {
    let (builder, time) = builder();
    (builder.build(), time)
}

fn take(queue: &WorkQueue<Key>) -> Option<Key> {
    queue.try_get().ok().map(|item| *item)
}

fn take_all(queue: &WorkQueue<Key>) -> Vec<Key> {
    std::iter::from_fn(|| take(queue)).collect()
}

fn limit(keys: usize) -> GroupLimits {
    GroupLimits::new().max_processing(keys)
}

/// Runs a handler for the keys that are ready. Returns how many runs have succeeded, were paused and have failed.
fn work(queue: &WorkQueue<Key>, mut handler: impl FnMut(Key) -> Outcome) -> [u64; 3] {
    let workers = queue.workers().build();
    let mut run = pin!(workers.run_async(async |item: &Item<'_, Key>| handler(**item)));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let tally = workers.tally();
    [tally.succeeded, tally.paused, tally.failed]
}

/// The key comes back after the delay, and so does its group, while other groups go on. No failure is counted.
#[test]
fn a_handler_pauses_its_group() {
    let (queue, time) = queue();
    queue.add_all([(1, 0), (1, 1), (2, 0), (1, 2)]);
    let mut seen = Vec::new();
    let counts = work(&queue, |key| {
        seen.push(key);
        let error = "429".into();
        if key == (1, 0) { Outcome::PauseGroup { delay: 30 * SEC, error } } else { Outcome::Success }
    });
    assert_eq!((seen, counts), (vec![(1, 0), (2, 0)], [1, 1, 0]));
    assert_eq!((queue.len(), queue.delayed_len(), queue.num_requeues(&(1, 0))), (2, 1, 0));
    queue.add((1, 3));
    time.advance(30 * SEC - Duration::from_nanos(1));
    queue.turn();
    assert_eq!(take(&queue), None);
    time.advance(Duration::from_nanos(1));
    queue.turn();
    assert_eq!(take_all(&queue), [(1, 1), (1, 2), (1, 3), (1, 0)]);
}

/// A pause that comes while the keys of a group are queued, delayed and processing: none is handed out until its end, all calls on them
/// work, and the keys come in their order.
#[test]
fn a_paused_group_keeps_its_keys() {
    let (queue, time) = queue();
    queue.add_all([(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]);
    queue.add_after((1, 4), SEC);
    let held = queue.get().unwrap();
    assert_eq!(*held, (1, 0));
    queue.group(&(1, 9)).pause(10 * SEC).unwrap();
    assert_eq!((queue.len(), queue.processing_len(), queue.delayed_len()), (4, 1, 1));
    assert_eq!(take_all(&queue), [(2, 0)]);
    // The holder goes on; adds, delays, retries and priorities wait in the group.
    queue.add((1, 0));
    assert_eq!(held.requeue_with(AddOptions::new().priority(Priority::HIGH)), Added::Coalesced);
    time.advance(SEC);
    assert_eq!(queue.turn(), 1);
    queue.add_with((1, 5), AddOptions::new().priority(Priority::LOW));
    assert!(queue.remove(&(1, 2)));
    let taken = queue.take_where(|key| *key == (1, 3));
    assert_eq!(taken.queued, [(1, 3)]);
    assert_eq!((queue.len(), take(&queue)), (4, None));
    let stats = queue.group(&(1, 0)).stats().unwrap();
    assert_eq!((stats.queued, stats.processing, stats.held_back), (4, 0, Some(HeldBack::Paused { left: 9 * SEC })));
    time.advance(9 * SEC);
    assert_eq!((queue.stats().groups_paused, take(&queue)), (1, None), "the driver has not run");
    queue.turn();
    assert_eq!(take_all(&queue), [(1, 0), (1, 1), (1, 4), (1, 5)]);
    assert_eq!(queue.stats().groups_paused, 0);
}

/// The later end of two pauses counts; a pause of zero is none, and one without an end waits for `resume`.
#[test]
fn pauses_of_all_lengths() {
    let (queue, time) = queue();
    queue.add((1, 0));
    let group = queue.group(&(1, 0));
    group.pause(Duration::ZERO).unwrap();
    assert_eq!((queue.stats().groups_paused, take(&queue)), (0, Some((1, 0))));
    queue.add((1, 0));
    group.pause(10 * SEC).unwrap();
    group.pause(5 * SEC).unwrap();
    time.advance(10 * SEC - Duration::from_nanos(1));
    queue.turn();
    assert_eq!(take(&queue), None);
    time.advance(Duration::from_nanos(1));
    queue.turn();
    assert_eq!(take(&queue), Some((1, 0)));
    queue.add((1, 0));
    for endless in [Duration::MAX, Duration::from_nanos(u64::MAX)] {
        group.pause(endless).unwrap();
        group.pause(SEC).unwrap();
        assert_eq!(group.stats().unwrap().held_back, Some(HeldBack::Paused { left: Duration::MAX }));
        time.advance(SEC * 1_000_000_000);
        queue.turn();
        assert_eq!((take(&queue), queue.stats().next_deadline), (None, None));
        group.resume();
        group.resume();
        assert_eq!(take(&queue), Some((1, 0)));
        queue.add((1, 0));
    }
}

/// Limits that are set below the number of keys that are processing take none back.
#[test]
fn a_lower_limit_takes_nothing_back() {
    let (queue, _time) = queue();
    queue.add_all((0..10).map(|key| (1, key)));
    let mut held: Vec<_> = (0..5).map(|_| queue.get().unwrap()).collect();
    let group = queue.group(&(1, 0));
    group.set(limit(3)).unwrap();
    assert_eq!((queue.processing_len(), take(&queue), queue.stats().groups_full), (5, None, 1));
    for left in [4, 3] {
        held.pop().unwrap().done();
        assert_eq!((queue.processing_len(), take(&queue)), (left, None));
    }
    held.pop().unwrap().done();
    held.push(queue.get().unwrap());
    assert_eq!(take(&queue), None);
    group.set(limit(4)).unwrap();
    held.push(queue.get().unwrap());
    assert_eq!((take(&queue), held.len()), (None, 4));
    group.unset();
    assert_eq!(take_all(&queue).len(), 3);
}

/// What is set stays while the group has no key, is counted, and is gone with `unset`, with all memory of the group.
#[test]
fn what_is_set_stays_until_it_is_unset() {
    let (queue, _time) = queue();
    let groups = || queue.stats().groups;
    for round in 0..3 {
        queue.group(&(1, 0)).set(limit(1)).unwrap();
        queue.group(&(2, 0)).set(limit(2)).unwrap();
        queue.group(&(1, 1)).set(GroupLimits::new().weight(7).max_processing(2)).unwrap();
        assert_eq!((groups(), queue.stats().groups_set), (2, 2), "round {round}");
        queue.add_all((0..5).map(|key| (1, key)));
        assert_eq!(queue.get_many(5).len(), 2);
        take_all(&queue);
        assert_eq!((queue.len(), groups()), (0, 2));
        let stats = queue.group(&(1, 5)).stats().unwrap();
        assert_eq!((stats.limits, stats.is_set), (GroupLimits::new().weight(7).max_processing(2), true));
        queue.group(&(1, 9)).unset();
        queue.group(&(1, 9)).unset();
        queue.group(&(2, 9)).unset();
        queue.shrink_to_fit();
        assert_eq!((groups(), queue.stats().groups_set), (0, 0));
        assert_eq!(queue.group(&(1, 5)).stats(), None);
    }
}

/// After `unset`, what the builder's functions say counts again.
#[test]
fn unset_gives_back_what_the_builder_says() {
    for by_limits in [true, false] {
        let (builder, _time) = builder();
        let builder = match by_limits {
            true => builder.group_limits(|&(group, _)| GroupLimits::new().weight(group).max_processing(3)),
            false => builder.group_weight(|&(group, _)| group).max_processing_per_group(3),
        };
        let queue = builder.build();
        queue.add_all((0..10).map(|key| (5, key)));
        let group = queue.group(&(5, 0));
        let expected = GroupLimits::new().weight(5).max_processing(3);
        assert_eq!(group.stats().unwrap().limits, expected);
        group.set(GroupLimits::new()).unwrap();
        assert_eq!(group.stats().unwrap().limits, GroupLimits::new());
        let held = queue.get_many(8);
        assert_eq!(held.len(), 8);
        group.unset();
        let stats = group.stats().unwrap();
        assert_eq!((stats.limits, stats.is_set, stats.held_back), (expected, false, Some(HeldBack::Full)));
        drop(held);
        assert_eq!(queue.get_many(10).len(), 2);
    }
}

/// The first answer of the function counts while the group is known, and one that panics leaves no trace.
#[test]
fn limits_are_asked_with_the_key_that_brings_a_group_in() {
    let answer = Arc::new(AtomicUsize::new(1));
    let (builder, _time) = builder();
    let asked = Arc::clone(&answer);
    let queue = builder
        .group_limits(move |_| match asked.load(Relaxed) {
            99 => panic!("no limits"),
            keys => GroupLimits::new().max_processing(keys),
        })
        .build();
    queue.add((1, 0));
    answer.store(2, Relaxed);
    queue.add_all([(1, 1), (1, 2)]);
    assert_eq!(queue.get_many(3).len(), 1);
    for bad in [99, 0] {
        answer.store(bad, Relaxed);
        let payload = catch_unwind(|| queue.add((2, 0))).unwrap_err();
        if bad == 0 {
            let text = payload.downcast_ref::<String>().unwrap();
            assert_eq!(text, "max_processing is 0: no key would be handed out");
        }
        assert!(catch_unwind(|| queue.group(&(2, 0))).is_err());
        assert_eq!((queue.stats().groups, queue.len()), (1, 2));
    }
    answer.store(5, Relaxed);
    take_all(&queue);
    queue.shrink_to_fit();
    queue.add_all((0..9).map(|key| (1, key)));
    assert_eq!(queue.get_many(9).len(), 5);
}

#[test]
fn bad_values_are_refused() {
    let (queue, _time) = queue();
    let limits = GroupLimits::new;
    let bad = [limits().max_processing(0), limits().rate(1.0, 0)];
    let low = [f64::MIN_POSITIVE, 1e-300, 0.99 / (366.0 * 86_400.0)];
    let bad_rates = [f64::NAN, 0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY].into_iter().chain(low);
    let bad_rates = bad_rates.map(|rate| limits().rate(rate, 1));
    for bad in bad.into_iter().chain(bad_rates) {
        let error = queue.group(&(1, 0)).set(bad).unwrap_err();
        assert!(["max_processing", "rate"].contains(&error.argument()), "{error}");
    }
    assert_eq!(queue.stats().groups, 0);
    // Weights are clamped, also in the field; a rate above that of the clock is none.
    let mut field = limits();
    field.weight = 0;
    let clamped = [limits().weight(0), limits().weight(5000), field];
    for (clamped, weight) in clamped.into_iter().zip([1, 1000, 1]) {
        queue.group(&(1, 0)).set(clamped).unwrap();
        assert_eq!(queue.group(&(1, 0)).stats().unwrap().limits.weight, weight);
    }
    queue.group(&(1, 0)).set(limits().rate(2e9, 1).max_processing(usize::MAX)).unwrap();
    assert_eq!(queue.group(&(1, 0)).stats().unwrap().limits, limits());

    let without = WorkQueue::<Key>::new();
    let group = without.group(&(1, 0));
    for refused in [group.set(limits()), group.pause(SEC)] {
        assert_eq!(refused.unwrap_err().argument(), "group");
    }
    group.unset();
    group.resume();
    assert_eq!(group.stats(), None);

    let by = || WorkQueue::<Key>::builder().fair_by(|key| key.0).group_limits(|_| GroupLimits::new());
    let refused = [
        (by().group_weight(|_| 1), "group_weight"),
        (by().max_processing_per_group(1), "max_processing_per_group"),
        (WorkQueue::builder().group_limits(|_| GroupLimits::new()), "group_limits"),
        (WorkQueue::builder().fair_share(FairShare::WorkTime), "fair_share"),
    ];
    for (builder, argument) in refused {
        assert_eq!(builder.try_build().unwrap_err().argument(), argument);
    }
}

/// At the lowest rate a group is forgotten when its token is there again, and so no group is remembered for ever.
#[test]
fn a_group_with_the_lowest_rate_is_forgotten() {
    const YEAR: u32 = 365 * 86_400;
    let (builder, time) = builder();
    let queue = builder.group_limits(|_| GroupLimits::new().rate(1.0 / f64::from(YEAR), 1)).build();
    queue.add_all([(1, 0), (1, 1)]);
    assert_eq!((take_all(&queue).len(), queue.stats().groups_throttled), (1, 1));
    assert!(queue.remove(&(1, 1)));
    for (seconds, groups) in [(YEAR - 1, 1), (2, 0)] {
        time.advance(SEC * seconds);
        queue.turn();
        queue.shrink_to_fit();
        assert_eq!(queue.stats().groups, groups);
    }
}

/// Without groups an outcome that would pause one is a retry.
#[test]
fn without_groups_a_pause_is_a_retry() {
    let (clock, _time) = Clock::mock();
    let queue = WorkQueue::<Key>::builder().clock(clock).driver(Driver::Manual).build();
    queue.add((1, 0));
    let counts = work(&queue, |_| Outcome::PauseGroup { delay: SEC, error: "429".into() });
    assert_eq!(counts, [0, 0, 1]);
    assert_eq!((queue.num_requeues(&(1, 0)), queue.stats().next_deadline), (1, Some(SEC)));
}

/// Random hand-outs and changes of the clock: a group gets a key exactly when a bucket with the same clock has a token. If a token does not
/// take a whole number of nanoseconds, the group gets it up to four of them later, because it waits for a time that is rounded up.
#[test]
fn a_rate_is_exact() {
    let steps = if cfg!(miri) { 200 } else { 100_000 };
    for (rate, burst, is_whole) in [(5.0, 10, true), (3.0, 1, false), (1e5 / 7.0, 4, false), (8e5, 2, true)] {
        let (clock, time) = Clock::mock();
        let bucket = Bucket::with_clock(rate, burst, clock.clone());
        let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).fair_by(|key: &Key| key.0);
        let queue = builder.group_limits(move |_| GroupLimits::new().rate(rate, burst)).build();
        let (mut random, mut handed_out) = (1_u64, 0);
        for step in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            queue.add((1, step % 3));
            if random >> 40 & 1 == 0 {
                let tokens = (random >> 41 & 1023) as f64 / 512.0;
                time.advance(Duration::from_nanos((tokens * 1e9 / rate) as u64));
                queue.turn();
            }
            let (has_token, mut key) = (bucket.try_acquire().is_ok(), take(&queue));
            let late = || {
                time.advance(Duration::from_nanos(1));
                queue.turn();
                take(&queue)
            };
            if has_token && !is_whole {
                key = key.or_else(|| (0..4).find_map(|_| late()));
            }
            assert_eq!(key.is_some(), has_token, "rate {rate}, step {step}");
            handed_out += u32::from(has_token);
        }
        assert!(handed_out > steps / 10 && handed_out < steps, "{handed_out}");
    }
}

/// A token that would come when the clock ends never comes, and the same is said of it.
#[test]
fn no_token_comes_at_the_end_of_the_clock() {
    let (builder, time) = builder();
    let queue = builder.group_limits(|_| GroupLimits::new().rate(1.0, 1)).build();
    let left = |left| Some(HeldBack::Throttled { left });
    let end = Duration::from_nanos(u64::MAX);
    time.advance(end - 3 * SEC);
    for (number, expected) in [(0, SEC), (1, Duration::MAX)] {
        queue.add_all([(1, number), (1, 10 + number)]);
        assert_eq!(take(&queue).map(|(group, _)| group), Some(1));
        assert_eq!(queue.group(&(1, 0)).stats().unwrap().held_back, left(expected), "{number}");
        time.advance(SEC);
        queue.turn();
    }
    time.advance(end);
    queue.turn();
    assert_eq!(take(&queue), None);
    queue.group(&(1, 0)).set(GroupLimits::new()).unwrap();
    assert_eq!(take_all(&queue).len(), 2, "nothing is lost by that");
}

/// Spent tokens stay spent while a group has no key, and with another rate.
#[test]
fn spent_tokens_stay_spent() {
    let (builder, time) = builder();
    let queue = builder.group_limits(|_| GroupLimits::new().rate(1.0, 2)).build();
    queue.add_all([(1, 0), (1, 1)]);
    assert_eq!(take_all(&queue).len(), 2);
    assert_eq!((queue.stats().groups, queue.stats().groups_throttled), (1, 1));
    queue.add((1, 0));
    assert_eq!(take(&queue), None);
    let left = Duration::from_millis(100);
    queue.group(&(1, 0)).set(GroupLimits::new().rate(10.0, 2)).unwrap();
    assert_eq!(queue.group(&(1, 0)).stats().unwrap().held_back, Some(HeldBack::Throttled { left }));
    time.advance(left);
    queue.turn();
    assert_eq!(take(&queue), Some((1, 0)));
    queue.group(&(1, 0)).unset();
    time.advance(10 * SEC);
    queue.turn();
    queue.shrink_to_fit();
    assert_eq!(queue.stats().groups, 0, "it has all its tokens again, so it is forgotten");
}

/// A group without keys is remembered for the tokens that it has spent, and no longer than its present rate needs.
#[test]
fn other_limits_end_what_a_group_is_remembered_for() {
    let (builder, time) = builder();
    let queue = builder.group_limits(|_| GroupLimits::new().rate(0.01, 2)).build();
    for limits in [GroupLimits::new(), GroupLimits::new().rate(1000.0, 2)] {
        queue.add((1, 0));
        assert_eq!(take(&queue), Some((1, 0)));
        queue.shrink_to_fit();
        assert_eq!(queue.stats().groups, 1, "a token is missing for 100 seconds");
        queue.group(&(1, 0)).set(limits).unwrap();
        time.advance(SEC);
        queue.turn();
        queue.group(&(1, 0)).unset();
        assert_eq!(queue.stats().groups, 0);
    }
}

/// Getters that are parked: a limit that is raised, a pause that is taken back or ends, and a token wake as many as fit.
#[test]
fn parked_threads_get_the_keys_of_a_group_that_is_held_back_no_longer() {
    let queue = WorkQueue::builder().fair_by(|key: &Key| key.0).build();
    let group = || queue.group(&(1, 0));
    let ms = Duration::from_millis;
    let (send, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (queue, send) = (&queue, send.clone());
            scope.spawn(move || {
                while let Some(item) = queue.get() {
                    send.send(*item).unwrap();
                    // Held until the test has seen that no other key comes.
                    while queue.stats().groups_set > 0 && !queue.shutting_down() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let parked = || {
            while queue.stats().waiters < 4 {
                std::thread::yield_now();
            }
        };
        let receive = |keys: usize| {
            (0..keys).for_each(|_| _ = received.recv_timeout(60 * SEC).expect("a getter is woken"));
            assert!(received.recv_timeout(ms(20)).is_err(), "more keys than may be");
        };
        parked();
        // A limit is raised.
        group().set(limit(1)).unwrap();
        queue.add_all((0..4).map(|key| (1, key)));
        receive(1);
        group().set(limit(3)).unwrap();
        receive(2);
        group().unset();
        receive(1);
        parked();
        // A pause is taken back.
        group().pause(Duration::MAX).unwrap();
        queue.add_all((0..3).map(|key| (1, key)));
        receive(0);
        group().resume();
        receive(3);
        parked();
        // A pause ends by the driver thread, which is started for it.
        group().pause(ms(50)).unwrap();
        queue.add_all((0..3).map(|key| (1, key)));
        receive(3);
        parked();
        // A shut-down waits for the end of a pause.
        queue.add((1, 0));
        receive(1);
        group().pause(ms(50)).unwrap();
        queue.add((1, 0));
        queue.shut_down();
        receive(1);
    });
}

/// A task that waits is woken at the end of a pause, by `turn`.
#[test]
fn a_task_is_woken_at_the_end_of_a_pause() {
    let (queue, time) = queue();
    queue.group(&(1, 0)).pause(SEC).unwrap();
    queue.add((1, 0));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut get = pin!(queue.get_async());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    time.advance(SEC);
    let before = wakes.0.load(Relaxed);
    queue.turn();
    assert!(wakes.0.load(Relaxed) > before);
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The shares, and what metrics say of all groups.
#[test]
fn shares_of_groups() {
    let (builder, time) = builder();
    let queue = builder.measure(true).fair_share(FairShare::WorkTime).build();
    queue.add_all([(1, 0), (2, 0), (3, 0), (1, 1)]);
    for (group, work) in [(1, 3), (2, 1)] {
        let item = queue.get().unwrap();
        assert_eq!(item.0, group);
        time.advance(work * SEC);
    }
    let stats = |group| queue.group(&(group, 0)).stats();
    let shares = [1, 2, 3].map(|group| stats(group).map(|stats| (stats.work, stats.share)));
    assert_eq!(shares, [Some((3 * SEC, 0.75)), Some((SEC, 0.25)), Some((Duration::ZERO, 0.0))]);
    let metrics = queue.inspect().metrics().groups.unwrap();
    assert_eq!((metrics.active, metrics.limited, metrics.largest_share), (2, 0, 0.75));
    assert_eq!((metrics.fairness, metrics.longest_wait), (0.5, Some(4 * SEC)));
    let mut listed: Vec<_> = queue.inspect().groups().into_iter().map(|group| (group.key.0, group.share)).collect();
    listed.sort_by_key(|(group, _)| *group);
    assert_eq!(listed, [(1, 0.75), (3, 0.0)]);
}

/// The queue has forgotten the entry of a pause that was taken back, with all that it kept for pauses.
#[test]
fn a_turn_ends_after_a_pause_that_was_taken_back() {
    let (queue, time) = queue();
    queue.group(&(1, 0)).pause(SEC).unwrap();
    queue.group(&(1, 0)).resume();
    queue.shrink_to_fit();
    time.advance(2 * SEC);
    assert_eq!(queue.turn(), 0);
}

/// A key that cools down in a paused group comes when both are over, whichever ends first. An add that replaces a delay moves it in a paused
/// group as in any other.
#[test]
fn pauses_meet_cool_downs_and_delays() {
    for (cool_down, pause) in [(10, 20), (20, 10)] {
        let (queue, time) = queue();
        queue.add((1, 0));
        queue.try_get().unwrap().cool_down(cool_down * SEC);
        queue.group(&(1, 0)).pause(pause * SEC).unwrap();
        queue.add((1, 0));
        time.advance(10 * SEC);
        queue.turn();
        assert_eq!(take(&queue), None, "one of the two still holds");
        time.advance(10 * SEC);
        queue.turn();
        assert_eq!(take(&queue), Some((1, 0)));
    }
    let (queue, time) = queue();
    queue.group(&(1, 0)).pause(20 * SEC).unwrap();
    queue.add_after((1, 0), 5 * SEC);
    queue.add_after((1, 1), 5 * SEC);
    queue.add_with((1, 0), AddOptions::new().after(30 * SEC).conflict(DelayConflict::Replace));
    time.advance(20 * SEC);
    queue.turn();
    assert_eq!(take_all(&queue), [(1, 1)]);
    time.advance(10 * SEC);
    queue.turn();
    assert_eq!(take_all(&queue), [(1, 0)]);
}

/// A paused group has work, so an idle wait and a drain wait for it, up to their time. A drain of workers returns its keys then.
#[test]
fn waits_and_drains_meet_a_pause_without_end() {
    let queue = WorkQueue::builder().fair_by(|&(group, _): &Key| group).build();
    queue.group(&(1, 0)).pause(Duration::MAX).unwrap();
    queue.add_all([(1, 0), (1, 1)]);
    assert!(queue.wait_idle_timeout(Duration::from_millis(20)).is_err());
    queue.add((2, 0));
    let workers = queue.workers().spawn(2, |_| Ok::<_, Outcome>(())).unwrap();
    let (begin, time) = (std::time::Instant::now(), Duration::from_millis(50));
    let left = workers.drain_timeout(time);
    assert!(begin.elapsed() >= time, "the drain has not waited");
    assert_eq!((queue.stats().handed_out, left.queued.len(), queue.len()), (1, 2, 0));
}

/// A stop returns the keys of groups that are paused or throttled, at once.
#[test]
fn a_stop_meets_groups_that_are_held_back() {
    let slow = GroupLimits::new().rate(0.001, 1);
    let queue = WorkQueue::builder().fair_by(|&(group, _): &Key| group).group_limits(move |_| slow).build();
    queue.group(&(2, 0)).pause(Duration::MAX).unwrap();
    queue.add_all([(1, 0), (1, 1), (2, 0)]);
    let workers = queue.workers().spawn(2, |_| Ok::<_, Outcome>(())).unwrap();
    while queue.stats().handed_out == 0 || queue.stats().processing > 0 {
        std::thread::yield_now();
    }
    assert_eq!(workers.stop().queued.len(), 2);
    assert!(queue.is_empty());
}

/// A batch has as many keys of a group as it has tokens and room, and a handler that panics pays as one that returns.
#[test]
fn rates_meet_batches_and_panics() {
    let (builder, time) = builder();
    let queue = builder.group_limits(|_| GroupLimits::new().rate(1.0, 3).max_processing(2)).build();
    queue.add_all((0..6).map(|n| (1, n)));
    let batch = queue.get_batch(6);
    assert_eq!(batch.len(), 2);
    drop(batch);
    let panics = catch_unwind(|| {
        let _item = queue.try_get().unwrap();
        panic!("of a handler");
    });
    assert!(panics.is_err());
    assert_eq!(take(&queue), None, "three tokens are spent");
    time.advance(2 * SEC);
    queue.turn();
    assert_eq!(queue.get_batch(6).len(), 2);
}

/// A pause that ends while the group has no key, and before all tokens that it has spent are there again: a key that is added then is handed
/// out at once. The group is remembered for its tokens alone by the time that it is paused, because `shrink_to_fit` has forgotten the rest.
#[test]
fn a_pause_ends_before_the_tokens_of_a_group_without_keys_are_there() {
    let (builder, time) = builder();
    let queue = builder.group_limits(|_| GroupLimits::new().rate(0.001, 2)).build();
    queue.add((1, 0));
    assert_eq!(take(&queue), Some((1, 0)));
    queue.shrink_to_fit();
    queue.group(&(1, 0)).pause(SEC).unwrap();
    time.advance(SEC);
    queue.turn();
    assert_eq!(queue.stats().groups_paused, 0);
    queue.add((1, 0));
    assert_eq!(take(&queue), Some((1, 0)));
}

/// A group that is remembered for its tokens comes back with another rate, by which its next token comes earlier. The driver learns of that,
/// and a getter that is parked gets the key.
#[test]
fn a_group_comes_back_with_a_faster_rate() {
    let rate = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&rate);
    let limits =
        move |_: &Key| [GroupLimits::new().rate(0.001, 2), GroupLimits::new().rate(20.0, 1)][asked.load(Relaxed)];
    let queue = WorkQueue::builder().fair_by(|key: &Key| key.0).group_limits(limits).build();
    queue.add((1, 0));
    assert_eq!(take(&queue), Some((1, 0)));
    queue.shrink_to_fit();
    rate.store(1, Relaxed);
    std::thread::scope(|scope| {
        let begin = std::time::Instant::now();
        let getter = scope.spawn(|| queue.get_timeout(60 * SEC).is_ok());
        while queue.stats().waiters == 0 {
            std::thread::yield_now();
        }
        queue.add((1, 0));
        // At its timeout the getter would find the token by itself.
        assert!(getter.join().unwrap() && begin.elapsed() < 30 * SEC, "the driver comes after 50 ms");
    });
}

/// Handlers that take a hundred days are paid for without an overflow.
#[test]
fn the_longest_handlers_are_paid() {
    let (builder, time) = builder();
    let queue = builder.fair_share(FairShare::WorkTime).group_limits(|_| GroupLimits::new().weight(2)).build();
    let mut handed_out = [0; 2];
    for _ in 0..20 {
        queue.add_all((0..8).map(|n| (n % 2, n)));
        let item = queue.get().unwrap();
        handed_out[item.0 as usize] += 1;
        time.advance(SEC * 86400 * 100);
        item.done();
    }
    assert!(handed_out.iter().all(|keys| *keys >= 5), "{handed_out:?}");
}
