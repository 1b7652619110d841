//! `remove`, `stream` and look-ups by other types where they meet stops, drains, limits, priorities and shards.
//!
//! What each does alone is in `remove.rs` and `streams.rs`. Checks: each accepted add is handed out, taken back, or in the list of the
//! stop, and never two of these (P1, P2, P23); a drain that waits for one key ends when that key is taken back (P7); an `Equivalent`
//! that breaks its contract finds another key or none, and one that panics changes nothing (P17).

mod support {
    pub(crate) mod tasks;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::{
    AddOptions, Added, Clock, DelayedAdd, Driver, Equivalent, Item, Leftover, MockClock, Priority, TryGetError,
    WorkQueue, WorkQueueBuilder, Workers,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::tasks::{Calls, poll};
use support::within::within_30_s;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The first number is the group.
type Key = (u32, u32);

/// The orders of a queue, by name.
type Mode = (&'static str, fn() -> WorkQueueBuilder<Key>);

const MODES: [Mode; 5] = [
    ("plain", WorkQueue::builder),
    ("4 shards", || WorkQueue::builder().shards(4)),
    ("groups", fair),
    ("groups, 4 shards", || fair().shards(4)),
    ("limit 1", || fair().max_processing_per_group(1)),
];

fn fair() -> WorkQueueBuilder<Key> {
    WorkQueue::builder().fair_by(|key: &Key| key.0)
}

fn manual<K: Hash + Eq + Clone + Send + Sync + 'static>(
    builder: WorkQueueBuilder<K>,
) -> (WorkQueueBuilder<K>, MockClock) {
    let (clock, time) = Clock::mock();
    (builder.clock(clock).driver(Driver::Manual), time)
}

fn until(holds: impl Fn() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}

// ---- remove, and the ways to stop ----

type Stop = fn(&Workers<Key>) -> Leftover<Key>;

const STOPS: [(&str, Stop); 6] = [
    ("stop", Workers::stop),
    ("drain", Workers::drain),
    ("drain_timeout", |workers| workers.drain_timeout(MS)),
    ("drain_until", |workers| block_on(workers.drain_until(ready(())))),
    ("drain_async", |workers| block_on(workers.drain_async())),
    ("take_where", |workers| workers.queue().take_where(|key| key.1 % 2 == 0)),
];

/// Two threads take back keys, among them delayed ones and those that handlers have added again, while a call stops the workers. Each add
/// is handed out, taken back by one `remove`, or in the leftover.
#[test]
fn each_add_is_handed_out_or_taken_back_once_by_remove_or_a_stop() {
    for (mode, builder) in MODES {
        for (stop_name, stop) in STOPS {
            for keys in [40, 3_000] {
                let case = format!("{mode}, {stop_name}, {keys} keys");
                println!("{case}");
                within_30_s(move || remove_beside(&case, builder(), stop, keys));
            }
        }
    }
}

fn remove_beside(case: &str, builder: WorkQueueBuilder<Key>, stop: Stop, keys: u32) {
    let queue = builder.build();
    // Accepted adds of each key, less what became of them.
    let open = Arc::new(Mutex::new(BTreeMap::<Key, i32>::new()));
    let count = |key: Key, by: i32| *open.lock().unwrap().entry(key).or_default() += by;
    let handler = {
        let (open, queue) = (Arc::clone(&open), queue.clone());
        let added_again = Mutex::new(BTreeSet::new());
        move |item: &Item<'_, Key>| {
            let again = item.1 % 3 == 0 && added_again.lock().unwrap().insert(**item);
            let deferred = again && queue.add(**item) == Added::Deferred;
            *open.lock().unwrap().entry(**item).or_default() += i32::from(deferred) - 1;
            if again {
                thread::yield_now();
            }
        }
    };
    let all = Vec::from_iter((0..keys).map(|n| (n % 4, n)));
    for &key in &all {
        let added = match key.1 % 8 {
            7 => queue.add_after(key, 3600 * S),
            6 if keys == 40 => queue.add_with(key, AddOptions::new().priority(Priority::HIGH)),
            _ => queue.add(key),
        };
        assert!(matches!(added, Added::Queued | Added::Delayed));
        count(key, 1);
    }
    let workers = queue.workers().spawn(2, handler).unwrap();
    let removed = AtomicUsize::new(0);
    let left = thread::scope(|scope| {
        for seed in 0..2 {
            let (queue, all, count, removed) = (&queue, &all, &count, &removed);
            scope.spawn(move || {
                let mut mine = all.clone();
                fastrand::Rng::with_seed(seed).shuffle(&mut mine);
                for key in mine.into_iter().take(keys as usize / 2) {
                    if queue.remove(&key) {
                        count(key, -1);
                        removed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        until(|| removed.load(Ordering::Relaxed) > 2);
        stop(&workers)
    });
    let rest = workers.drain();
    for left in [&left, &rest] {
        left.queued.iter().for_each(|&key| count(key, -1));
        left.delayed.iter().for_each(|delayed| count(delayed.key, -1));
        assert_eq!(left.refused, []);
    }
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.delayed, stats.depth()), (0, 0, 0, 0), "{case}");
    let open: Vec<_> =
        open.lock().unwrap().iter().filter(|&(_, &open)| open != 0).map(|(&key, &open)| (key, open)).collect();
    assert_eq!(open, [], "{case}: above 0: it vanished; below 0: two had it");
}

/// Drains and idle waits, of threads and tasks, that wait for one key alone: it is queued, or blocked as its group is full, or was added
/// again while it is processing. They end when it is taken back.
#[test]
fn drains_that_wait_for_one_key_end_when_it_is_taken_back() {
    for (mode, builder) in MODES {
        for ordered in [false, true] {
            for waits in ["drain", "drain_async", "idle", "idle_async", "workers", "workers_async"] {
                within_30_s(move || {
                    let (builder, _) = manual(builder());
                    let queue = builder.build();
                    let workers = queue.workers().build(); // and no loop
                    if ordered {
                        queue.add_with((0, 0), AddOptions::new().priority(Priority::HIGH));
                        assert!(queue.remove(&(0, 0)));
                    }
                    let key = (1, 1);
                    assert_eq!(queue.add(key), Added::Queued);
                    let calls = Arc::new(Calls::default());
                    thread::scope(|scope| {
                        if waits.ends_with("async") {
                            let wait = async {
                                match waits {
                                    "drain_async" => queue.shut_down_with_drain_async().await,
                                    "idle_async" => queue.wait_idle_async().await,
                                    _ => assert!(workers.drain_async().await.is_empty()),
                                }
                            };
                            let mut wait = pin!(wait);
                            assert!(poll(wait.as_mut(), &calls).is_pending(), "{mode}, {waits}");
                            assert!(queue.remove(&key));
                            assert!(calls.count() > 0, "{mode}, {waits}: it is not woken");
                            assert!(poll(wait, &calls).is_ready(), "{mode}, {waits}");
                            return;
                        }
                        let wait = scope.spawn(|| match waits {
                            "drain" => queue.shut_down_with_drain(),
                            "idle" => queue.wait_idle(),
                            _ => assert!(workers.drain().is_empty()),
                        });
                        until(|| queue.stats().drainers > 0);
                        assert!(queue.remove(&key), "{mode}, {waits}");
                        wait.join().unwrap();
                    });
                });
            }
        }
    }
}

/// The same for a key that is held and was added again: the drain ends with its `done`, as nothing is queued then.
#[test]
fn a_drain_waits_no_longer_for_an_add_that_was_taken_back() {
    for (mode, builder) in MODES {
        let (builder, _) = manual(builder());
        let queue = builder.build();
        queue.add((1, 1));
        let item = queue.get().unwrap();
        assert_eq!(queue.add((1, 1)), Added::Deferred);
        let calls = Arc::new(Calls::default());
        let mut drain = pin!(queue.shut_down_with_drain_async());
        assert!(poll(drain.as_mut(), &calls).is_pending());
        assert!(queue.remove(&(1, 1)), "{mode}");
        assert!(poll(drain.as_mut(), &calls).is_pending(), "{mode}: its holder is not done");
        item.done();
        assert!(calls.count() > 0 && poll(drain, &calls).is_ready(), "{mode}");
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    }
}

// ---- remove, and the order ----

/// Keys of full groups are taken back at the head, in the middle and at the tail of their lanes, and as the only key of their group. What
/// is left is handed out in its order, when its group has room.
#[test]
fn keys_of_full_groups_are_taken_back() {
    for (limit, taken) in [(1, [1, 2]), (1, [2, 3]), (1, [3, 4]), (1, [1, 4]), (2, [2, 3]), (2, [3, 4])] {
        let (builder, time) = manual(fair().max_processing_per_group(limit));
        let queue = builder.build();
        (0..5).for_each(|n| _ = queue.add((0, n)));
        let items = Vec::from_iter((0..limit).map(|_| queue.get().unwrap()));
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "the group is full");
        // With a delay too; and with a higher level, so the group has two lanes.
        queue.add_after((0, taken[0]), S);
        queue.add_with((0, taken[1]), AddOptions::new().priority(Priority::HIGH));
        // Another group has keys in both levels.
        queue.add_with((1, 1), AddOptions::new().priority(Priority::HIGH));
        queue.add((1, 0));
        let queued = |n| n >= limit as u32;
        for n in taken {
            assert_eq!(queue.remove(&(0, n)), queued(n), "limit {limit}, {taken:?}");
        }
        let left = Vec::from_iter((0..5).filter(|n| queued(*n) && !taken.contains(n)));
        assert_eq!((queue.delayed_len(), queue.len()), (0, left.len() + 2));
        let others = [(); 2].map(|()| queue.try_get().map(|item| item.1));
        assert_eq!(others, [Ok(1), Ok(0)], "limit {limit}, {taken:?}: keys of the other group");
        drop(items);
        let handed_out = Vec::from_iter(std::iter::from_fn(|| queue.try_get().ok().map(|item| item.1)));
        assert_eq!(handed_out, left);
        time.advance(2 * S);
        assert_eq!((queue.turn(), queue.inspect().groups().len(), queue.stats().depth()), (0, 0, 0));
    }
    // Its last queued key; then the group is used again.
    let (builder, _) = manual(fair().max_processing_per_group(1));
    let queue = builder.build();
    queue.add_all([(0, 0), (0, 1)]);
    let item = queue.get().unwrap();
    assert!(queue.remove(&(0, 1)));
    item.done();
    queue.add_all([(0, 1), (0, 2)]);
    let item = queue.get().unwrap();
    assert_eq!((item.1, queue.try_get().unwrap_err()), (1, TryGetError::Empty));
    item.done();
    assert_eq!(queue.get().unwrap().1, 2);
}

/// What an add, a delay or an add that waits for a delay has said about the priority is taken back with it.
#[test]
fn a_key_that_was_taken_back_forgets_all_its_priorities() {
    let high = || AddOptions::new().priority(Priority::HIGH);
    for shards in [1, 4] {
        for delayed_add in [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict] {
            let (builder, time) = manual(WorkQueue::<u32>::builder().shards(shards).delayed_add(delayed_add));
            let queue = builder.build();
            let priority_of_next = || queue.try_get().map(|item| item.priority());
            // Delayed at HIGH; then delayed at NORMAL.
            queue.add_with(1, high().after(S));
            assert!(queue.remove(&1));
            queue.add_after(1, S);
            time.advance(S);
            assert_eq!((queue.turn(), priority_of_next()), (1, Ok(Priority::NORMAL)));
            // An add at HIGH that waits for the delay, is queued, or replaces the delay.
            queue.add_after(1, S);
            queue.add_with(1, high());
            assert!(queue.remove(&1));
            assert_eq!((queue.len(), queue.delayed_len()), (0, 0), "{delayed_add:?}");
            queue.add_after(1, S);
            time.advance(S);
            assert_eq!((queue.turn(), priority_of_next()), (1, Ok(Priority::NORMAL)));
            // The same while it is processing.
            queue.add(1);
            let item = queue.get().unwrap();
            queue.add_with(1, high().after(S));
            queue.add_with(1, high());
            assert!(queue.remove(&1));
            assert!(!item.is_dirty());
            queue.add(1);
            item.done();
            assert_eq!(priority_of_next(), Ok(Priority::NORMAL), "{delayed_add:?}");
            time.advance(2 * S);
            assert_eq!((queue.turn(), queue.stats().depth()), (0, 0));
        }
    }
}

/// Tasks in `until_dirty` are woken for each add that comes after one was taken back, also if they were not polled in between.
#[test]
fn until_dirty_is_woken_for_each_add_beside_remove() {
    for (mode, builder) in MODES {
        for ordered in [false, true] {
            let (builder, _) = manual(builder());
            let queue = builder.build();
            let key = (1, 1);
            let options = AddOptions::new().priority(if ordered { Priority::HIGH } else { Priority::NORMAL });
            queue.add_with(key, options);
            let item = queue.get().unwrap();
            let calls = [(); 2].map(|()| Arc::<Calls>::default());
            let [polled, late] = &calls;
            let (mut first, mut second) = (pin!(item.until_dirty()), pin!(item.until_dirty()));
            assert!(poll(first.as_mut(), polled).is_pending() && poll(second.as_mut(), late).is_pending());
            for n in 1..4 {
                assert_eq!(queue.add_with(key, options), Added::Deferred);
                assert!(queue.remove(&key));
                assert_eq!(polled.count(), n, "{mode}");
                assert!(poll(first.as_mut(), polled).is_pending(), "{mode}: the key is clean");
            }
            queue.add_with(key, options);
            assert_eq!((polled.count(), late.count()), (4, 1), "{mode}: one wake-up for each poll");
            assert!(poll(first, polled).is_ready() && poll(second, late).is_ready(), "{mode}");
        }
    }
}

// ---- stream ----

#[cfg(feature = "stream")]
mod stream {
    use super::*;
    use futures_util::stream::{FusedStream, StreamExt};
    use keyqueue::{ItemStream, OwnedItem};
    use std::task::{Context, Poll, Waker};

    fn poll<K>(stream: &mut ItemStream<K>, calls: &Arc<Calls>) -> Poll<Option<OwnedItem<K>>> {
        stream.poll_next_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(calls))))
    }

    /// The key for which a stream was woken is taken back: the stream waits on, keeps its place before younger getters, and is woken again.
    #[test]
    fn a_stream_whose_key_is_taken_back_keeps_its_place() {
        for (mode, builder) in MODES {
            let queue = builder().build();
            let [first, second] = [(); 2].map(|()| Arc::<Calls>::default());
            let (mut older, mut younger) = (queue.stream(), queue.stream());
            assert!(poll(&mut older, &first).is_pending());
            assert!(poll(&mut younger, &second).is_pending());
            for n in 1..4 {
                queue.add((1, n));
                assert!(queue.remove(&(1, n)), "{mode}");
                assert_eq!((first.count(), second.count()), (n as usize, 0), "{mode}");
                assert!(poll(&mut older, &first).is_pending() && !older.is_terminated(), "{mode}");
                assert_eq!(queue.stats().waiters, 2);
            }
            // It is woken for a key that is taken back, and dropped before it is polled. The key that came next goes to the other.
            queue.add((1, 8));
            assert!(queue.remove(&(1, 8)));
            queue.add((1, 9));
            assert_eq!(second.count(), 1, "{mode}: the woken task does not count");
            drop(older);
            let Poll::Ready(Some(item)) = poll(&mut younger, &second) else { panic!("{mode}: the key is lost") };
            assert_eq!(*item, (1, 9));
        }
    }

    /// A stream that waits for a key of a full group ends when that key is taken back after the shut-down, and so does one that was woken.
    #[test]
    fn streams_end_when_the_last_key_is_taken_back() {
        for stopped in [false, true] {
            let queue = fair().max_processing_per_group(1).build();
            let workers = queue.workers().build();
            queue.add_all([(0, 0), (0, 1)]);
            let mut stream = queue.stream();
            let calls = Arc::<Calls>::default();
            let Poll::Ready(Some(item)) = poll(&mut stream, &calls) else { panic!("two keys are queued") };
            assert!(poll(&mut stream, &calls).is_pending(), "the group is full");
            if stopped {
                let left = workers.stop();
                assert_eq!((left.queued, left.processing), (vec![(0, 1)], vec![(0, 0)]));
            } else {
                queue.shut_down();
                assert!(poll(&mut stream, &calls).is_pending(), "a key is queued");
                let before = calls.count();
                assert!(queue.remove(&(0, 1)));
                assert!(calls.count() > before);
            }
            assert!(matches!(poll(&mut stream, &calls), Poll::Ready(None)) && stream.is_terminated());
            item.done();
            assert_eq!((queue.len(), queue.processing_len(), queue.stats().waiters), (0, 0, 0));
        }
    }

    /// Streams and other getters of several threads, some of them dropped while they are woken, beside `remove` and then a stop: each key
    /// is handed out, taken back or in the leftover.
    #[test]
    fn streams_lose_no_key_beside_remove_and_stop() {
        const KEYS: u32 = 3_000;
        for (mode, builder) in MODES {
            within_30_s(move || {
                let queue = builder().build();
                let workers = queue.workers().build();
                let worked = Mutex::new(Vec::new());
                let take = |item: OwnedItem<Key>| worked.lock().unwrap().push(*item);
                let (removed, left) = thread::scope(|scope| {
                    scope.spawn(|| block_on(queue.stream().for_each_concurrent(4, async |item| take(item))));
                    scope.spawn(|| block_on(queue.stream().take(100).for_each(async |item| take(item))));
                    // Woken, and dropped without another poll.
                    scope.spawn(|| {
                        while !queue.shutting_down() {
                            let mut stream = queue.stream();
                            let calls = Arc::<Calls>::default();
                            if let Poll::Ready(Some(item)) = poll(&mut stream, &calls) {
                                take(item);
                            }
                            _ = poll(&mut stream, &calls).map(|item| item.map(take));
                        }
                    });
                    let remover = scope.spawn(|| {
                        let mut random = fastrand::Rng::with_seed(3);
                        let mut removed = Vec::new();
                        while !queue.shutting_down() {
                            let n = random.u32(0..KEYS);
                            removed.extend(queue.remove(&(n % 4, n)).then_some((n % 4, n)));
                        }
                        removed
                    });
                    (0..KEYS).for_each(|n| assert_eq!(queue.add((n % 4, n)), Added::Queued));
                    let left = workers.stop();
                    (remover.join().unwrap(), left)
                });
                let mut all = [worked.into_inner().unwrap(), removed, left.queued].concat();
                all.sort_unstable();
                let mut expected = Vec::from_iter((0..KEYS).map(|n| (n % 4, n)));
                expected.sort_unstable();
                assert_eq!(all, expected, "{mode}");
                assert_eq!((queue.len(), queue.processing_len(), queue.stats().waiters), (0, 0, 0), "{mode}");
            });
        }
    }

    /// One stream ends a handler's work by a stop of other workers of the queue, from within the loop that polls it.
    #[test]
    fn a_stop_in_the_loop_of_a_stream_ends_it() {
        for (mode, builder) in MODES {
            let queue = builder().build();
            let workers = queue.workers().build();
            queue.add_all((0..10).map(|n| (n, n)));
            let seen = block_on(queue.stream().fold(0, async |seen, item| {
                let left = workers.stop();
                assert_eq!((left.processing, left.queued.len()), (vec![*item], 9), "{mode}");
                seen + 1
            }));
            assert_eq!((seen, queue.processing_len()), (1, 0), "{mode}");
        }
    }
}

// ---- look-ups by other types ----

/// Finds the key `1` in a queue of strings, and hashes as this text.
struct Finds(&'static str, fn(&str) -> bool);

impl Hash for Finds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<String> for Finds {
    fn equivalent(&self, key: &String) -> bool {
        (self.1)(key)
    }
}

/// The docs of `cancel`: a key whose hash differs may not be found. It is not, and nothing else is changed.
#[test]
fn an_equivalent_with_another_hash_finds_nothing() {
    for shards in [1, 4] {
        let (builder, time) = manual(WorkQueue::builder().shards(shards));
        let queue = builder.build();
        let keys = Vec::from_iter((0..64).map(|n| format!("pod-{n}")));
        queue.add_all(keys.clone());
        keys.iter().for_each(|key| _ = queue.add_after(key.clone(), S));
        let other_hash = Finds("no such key", |_| true);
        assert!(!queue.remove(&other_hash) && !queue.cancel(&other_hash));
        assert_eq!((queue.len(), queue.delayed_len(), queue.stats().taken), (64, 64, 0));
        // The right hash, and equivalent to no key, or to each: the key of this hash is found, and only that.
        assert!(!queue.remove(&Finds("pod-7", |_| false)));
        assert!(queue.cancel(&Finds("pod-7", |_| true)) && queue.remove(&Finds("pod-7", |_| true)));
        assert_eq!((queue.len(), queue.delayed_len(), queue.stats().taken), (63, 63, 1));
        time.advance(2 * S);
        assert_eq!(queue.turn(), 63);
        let mut handed_out = Vec::from_iter(std::iter::from_fn(|| queue.try_get().ok().map(|item| item.key().clone())));
        handed_out.sort_unstable();
        let mut expected = keys;
        expected.retain(|key| key != "pod-7");
        expected.sort_unstable();
        assert_eq!(handed_out, expected);
    }
}

/// A key whose `Borrow`ed form panics when it is compared.
#[derive(Clone, Debug)]
struct Name(Text);

#[derive(Clone, Debug, Eq)]
struct Text(String);

impl PartialEq for Text {
    fn eq(&self, _: &Self) -> bool {
        resume_unwind(Box::new("a comparison"));
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl std::borrow::Borrow<Text> for Name {
    fn borrow(&self) -> &Text {
        &self.0
    }
}

impl From<Text> for Name {
    fn from(text: Text) -> Self {
        Self(text)
    }
}

/// A comparison that panics under the lock changes nothing, and leaves the lock free: for each call that looks a key up, in each state of
/// the key, and in a line that a `remove` would move.
#[test]
fn a_comparison_that_panics_changes_nothing() {
    for shards in [1, 4] {
        for others in [0, 2_000] {
            let (builder, _) = manual(WorkQueue::builder().shards(shards));
            let queue = builder.build();
            let name = |n: usize| Name(Text(format!("pod-{n}")));
            (1..=others).for_each(|n| _ = queue.add(name(n)));
            queue.add_rate_limited(name(0));
            queue.add(name(0));
            let text = &name(0).0;
            let calls: [(&str, &dyn Fn()); 4] = [
                ("remove", &|| _ = queue.remove(text)),
                ("cancel", &|| _ = queue.cancel(text)),
                ("forget", &|| queue.forget(text)),
                ("num_requeues", &|| _ = queue.num_requeues(text)),
            ];
            let panics_and_changes_nothing = || {
                for (name, call) in calls {
                    let before = queue.stats();
                    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err(name);
                    assert_eq!(payload.downcast_ref(), Some(&"a comparison"), "{name}");
                    assert_eq!(queue.stats(), before, "{name}");
                }
            };
            panics_and_changes_nothing();
            assert!(others == 0 || queue.remove(&name(others)), "the line is moved");
            panics_and_changes_nothing();
            let items = queue.get_many(usize::MAX);
            queue.add(name(0));
            panics_and_changes_nothing();
            assert_eq!(queue.num_requeues(&name(0)), 1);
            assert!(queue.remove(&name(0)));
            drop(items);
            queue.forget(&name(0));
            let stats = queue.stats();
            assert_eq!((stats.len, stats.processing, stats.delayed, stats.failing, stats.depth()), (0, 0, 0, 0, 0));
        }
    }
}
