//! The lock-free engine where it differs from the other one: what a builder refuses, dead entries, vacated nodes; and threads at full speed. All
//! else is shown by the tests of the other engine, on this one: see `ci/lock-free.sh`.
#![cfg(feature = "lock-free")]

use keyqueue::{AddOptions, Added, Clock, DelayedAdd, Driver, Priority, Stats, WorkQueue, WorkQueueBuilder};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake};
use std::thread;
use std::time::Duration;

fn lock_free() -> WorkQueueBuilder<u64> {
    WorkQueue::builder().lock_free()
}

/// What needs the machine under its lock is refused, and the error says why.
#[test]
fn what_it_cannot_do_is_refused() {
    let refused = [
        (lock_free().fair_by(|key| *key), "fair_by is a function: "),
        (lock_free().strict_priorities(true), "strict_priorities is true: "),
        (lock_free().delayed_add(DelayedAdd::Strict), "delayed_add is Strict: "),
        (lock_free().delayed_add(DelayedAdd::Promote), "delayed_add is Promote: "),
        (lock_free().fair_by(|key| *key).max_processing_per_group(1), "fair_by is a function: "),
    ];
    for (builder, begin) in refused {
        let error = builder.try_build().unwrap_err().to_string();
        assert!(error.starts_with(begin) && error.contains("lock-free"), "{error}");
    }
    assert!(lock_free().shards(16).measure(true).delayed_add(DelayedAdd::Independent).try_build().is_ok());
}

/// A priority is refused before anything is changed; a key that its holder puts back with one is done.
#[test]
#[cfg(not(keyqueue_lock_free))]
fn a_priority_panics() {
    let queue = lock_free().build();
    let high = AddOptions::new().priority(Priority::HIGH);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add_with(1, high))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add_with(1, high.after(Duration::from_secs(1))))).is_err());
    assert_eq!((queue.len(), queue.delayed_len()), (0, 0));
    queue.add(2);
    let item = queue.get().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| item.requeue_with(high))).is_err());
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
    assert_eq!(queue.add_with(2, AddOptions::new().priority(Priority::NORMAL)), Added::Queued);
}

/// Many keys are queued, every second one is removed, and the others are handed out in their order, by a queue that has swept meanwhile.
#[test]
fn a_sweep_keeps_the_order() {
    // One thread uses one line.
    [1, 16].into_iter().for_each(|shards| a_sweep_of_keeps_the_order(&lock_free().shards(shards).build()));
}

fn a_sweep_of_keeps_the_order(queue: &WorkQueue<u64>) {
    let mut expected = Vec::new();
    for round in 0..20_u64 {
        let keys = round * 10_000..(round + 1) * 10_000;
        keys.clone().for_each(|key| _ = queue.add(key));
        keys.clone().filter(|key| key % 5 != 3).for_each(|key| assert!(queue.remove(&key)));
        expected.extend(keys.filter(|key| key % 5 == 3));
        assert_eq!(queue.len(), expected.len());
        for key in expected.drain(..500) {
            assert_eq!(*queue.get().unwrap(), key);
        }
    }
    let taken = queue.take_where(|key| key % 2 == 0).queued;
    assert!(taken.iter().eq(expected.iter().filter(|key| *key % 2 == 0)));
    for key in expected.into_iter().filter(|key| key % 2 == 1) {
        assert_eq!(*queue.get().unwrap(), key);
    }
}

/// Keys that other threads have added come, though the getter has a line of its own in which there is always one (F12); and those that are left
/// after a drain of them are taken out from all lines.
#[test]
fn no_line_starves() {
    let queue = lock_free().shards(16).build();
    thread::scope(|scope| {
        for adder in 1..=20 {
            let queue = &queue;
            scope.spawn(move || (0..100).for_each(|n| _ = queue.add(adder << 32 | n)));
        }
    });
    assert_eq!(queue.len(), 2000);
    let mut of_others = 0;
    // Of its own it has few at each time, so without the fronts it would never leave its line.
    (0..10).for_each(|own| _ = queue.add(own));
    for hand_out in 0..4000_u64 {
        let item = queue.try_get().unwrap();
        if *item >> 32 > 0 {
            of_others += 1;
        } else {
            queue.add(*item); // it comes again
        }
        item.done();
        if of_others == 1900 {
            println!("all but 100 after {hand_out} hand-outs");
            break;
        }
    }
    assert_eq!(of_others, 1900);
    let taken = queue.take_where(|key| key >> 32 > 0);
    assert_eq!((taken.queued.len(), queue.len()), (100, 10));
    (0..10).for_each(|_| queue.try_get().unwrap().done());
    assert!(queue.try_get().is_err());
}

/// A key that counts those that are alive.
#[derive(PartialEq, Eq, Hash)]
struct Counted(u64);

static ALIVE: AtomicUsize = AtomicUsize::new(0);

impl Counted {
    fn new(n: u64) -> Self {
        ALIVE.fetch_add(1, Relaxed);
        Self(n)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

/// Keys that are done are kept in the cache and by the map for a while: some thousand, and none after `shrink_to_fit` and other calls.
#[test]
fn vacated_nodes_are_bounded() {
    let queue = WorkQueue::builder().lock_free().build();
    for n in 0..100_000 {
        queue.add(Counted::new(n));
        queue.get().unwrap().done();
        assert!(ALIVE.load(Relaxed) < 3000, "{} keys after {n}", ALIVE.load(Relaxed));
    }
    queue.shrink_to_fit();
    // What was removed is freed in batches.
    assert!(ALIVE.load(Relaxed) < 1500, "{} keys", ALIVE.load(Relaxed));
    drop(queue);
    assert_eq!(ALIVE.load(Relaxed), 0);
}

/// Each adder counts its adds of a key before the call, and a holder reads the count. So the last hand-out of each key has seen its last
/// accepted add (P2), and no key has two holders (P1).
#[test]
fn no_add_is_lost() {
    const KEYS: u64 = 23;
    let adds = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    for (removes, shards) in [(false, 1), (true, 1), (false, 4), (true, 4)] {
        let queue = lock_free().shards(shards).build();
        let numbers = || (0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>(); // beside the queue: Relaxed
        let [added, seen, holders] = [numbers(), numbers(), numbers()];
        thread::scope(|scope| {
            let (queue, added, seen, holders) = (&queue, &added, &seen, &holders);
            for getter in 0..3 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(getter);
                    while let Some(item) = queue.get() {
                        let key = *item as usize;
                        assert_eq!(holders[key].fetch_add(1, Relaxed), 0, "two holders");
                        seen[key].fetch_max(added[key].load(Relaxed), Relaxed);
                        if random.u8(..) < 8 {
                            thread::yield_now();
                        }
                        holders[key].fetch_sub(1, Relaxed);
                        match random.u8(0..64) {
                            0 => _ = item.retry(),
                            1 => _ = item.requeue_after(Duration::from_nanos(1)),
                            2 => item.cool_down(Duration::from_micros(3)),
                            3..32 => item.succeed(),
                            _ => item.done(),
                        }
                    }
                });
            }
            let adders = [0, 1, 2].map(|adder| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(100 + adder);
                    for _ in 0..adds {
                        // Each adder has its keys, so the last of its adds is the last of the key.
                        let key = random.u64(0..KEYS / 3) * 3 + adder;
                        added[key as usize].fetch_add(1, Relaxed);
                        let accepted = match random.u8(..) {
                            0..10 => queue.add_after(key, Duration::from_nanos(1)),
                            _ => queue.add(key),
                        };
                        assert_ne!(accepted, Added::Rejected);
                        if removes && random.u8(..) < 20 {
                            queue.remove(&random.u64(0..KEYS));
                            queue.add(key);
                        }
                        if random.u8(..) == 0 {
                            _ = (queue.len(), queue.stats(), queue.inspect().processing_keys(), queue.take_delayed());
                            queue.add(key);
                        }
                    }
                })
            });
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            queue.wait_idle();
            queue.shut_down_with_drain();
        });
        for key in (0..KEYS as usize).filter(|_| !removes) {
            assert_eq!(seen[key].load(Relaxed), added[key].load(Relaxed), "the last add of {key} was not served");
        }
        let stats = queue.stats();
        assert_eq!((stats.len, stats.processing, stats.delayed), (0, 0, 0));
        assert_eq!(stats.adds(), stats.handed_out + stats.taken);
    }
}

/// The counters are read one after the other, so that hand-outs may be counted whose adds are not.
#[test]
fn the_depth_is_never_less_than_nothing() {
    for shards in [1, 4] {
        let (queue, is_over) = (lock_free().shards(shards).build(), AtomicBool::new(false));
        thread::scope(|scope| {
            for thread in 0..2 {
                let (queue, is_over) = (&queue, &is_over);
                scope.spawn(move || {
                    for n in 0.. {
                        queue.add(thread * 10 + n % 10);
                        drop(queue.try_get());
                        if is_over.load(Relaxed) {
                            return;
                        }
                    }
                });
            }
            let stats: Vec<_> = (0..5000).map(|_| queue.stats()).collect();
            is_over.store(true, Relaxed);
            let highest = stats.iter().map(Stats::depth).max();
            assert!(highest < Some(1 << 32), "{highest:?}");
        });
    }
}

/// New keys of several adders: those of each come in the order of its adds.
#[test]
fn keys_of_one_adder_come_in_order() {
    for shards in [1, 2, 16] {
        keys_of_one_adder_come_in_order_from(&lock_free().shards(shards).build());
    }
}

fn keys_of_one_adder_come_in_order_from(queue: &WorkQueue<u64>) {
    const EACH: u64 = 30_000;
    thread::scope(|scope| {
        for adder in 0..3 {
            scope.spawn(move || (0..EACH).for_each(|n| assert_eq!(queue.add(adder << 32 | n), Added::Queued)));
        }
        let mut next = [0; 3];
        for _ in 0..3 * EACH {
            let item = queue.get().unwrap();
            let (adder, n) = ((*item >> 32) as usize, u64::from(*item as u32));
            assert_eq!(next[adder], n);
            next[adder] += 1;
        }
    });
}

/// Adds beside a shut-down: each that was accepted is handed out before the last getter is told that the queue is over (P6).
#[test]
fn adds_beside_a_shut_down_are_handed_out_or_refused() {
    for round in 0..200 {
        let queue = lock_free().shards([1, 4][round / 2 % 2]).build();
        let (accepted, got, go) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let (queue, accepted, got, go) = (&queue, &accepted, &got, &go);
            for adder in 0..2 {
                scope.spawn(move || {
                    while !go.load(Relaxed) {
                        thread::yield_now();
                    }
                    for n in 0.. {
                        match queue.add(adder << 32 | n) {
                            Added::Queued => _ = accepted.fetch_add(1, Relaxed),
                            _ => break,
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    while let Some(_item) = queue.get() {
                        got.fetch_add(1, Relaxed);
                    }
                });
            }
            go.store(true, Relaxed);
            (0..round * 20).for_each(|_| std::hint::spin_loop());
            if round % 2 == 0 { queue.shut_down_with_drain() } else { queue.shut_down() }
        });
        assert_eq!(accepted.into_inner(), got.into_inner(), "round {round}");
    }
}

/// An idle wait beside a chain of keys, each of which is added by the holder of the one before.
#[test]
fn an_idle_wait_sees_the_end_of_a_chain() {
    for shards in [1, 4] {
        an_idle_wait_of_sees_the_end_of_a_chain(&lock_free().shards(shards).build());
    }
}

fn an_idle_wait_of_sees_the_end_of_a_chain(queue: &WorkQueue<u64>) {
    let last = AtomicU64::new(0);
    thread::scope(|scope| {
        let last = &last;
        for _ in 0..2 {
            scope.spawn(move || {
                while let Some(item) = queue.get() {
                    let key = *item;
                    if key % 100 > 0 {
                        queue.add(key - 1);
                    } else {
                        last.store(key / 100, Relaxed);
                    }
                }
            });
        }
        for round in 1..200 {
            queue.add(round * 100 + 99);
            queue.wait_idle();
            assert_eq!(last.load(Relaxed), round, "idle while a chain was on its way");
        }
        queue.shut_down();
    });
}

/// An idle wait for a delay parks: it does not look again and again.
#[test]
fn idle_waits_for_a_delay_sleep() {
    let (clock, time) = Clock::mock();
    let queue = lock_free().clock(clock).driver(Driver::Manual).build();
    queue.add_after(1, Duration::from_secs(1));
    thread::scope(|scope| {
        let waits = [(); 2].map(|()| scope.spawn(|| queue.wait_idle()));
        while queue.stats().drainers < 2 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert_eq!(queue.stats().drainers, 2, "both are on the list");
        time.advance(Duration::from_secs(1));
        queue.turn();
        queue.get().unwrap().done();
        waits.into_iter().for_each(|wait| wait.join().unwrap());
    });
}

thread_local!(static NEXT_DROP_PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if NEXT_DROP_PANICS.replace(false) {
            panic!("the drop of a key");
        }
    }
}

/// A key that the queue has already is dropped when the add has taken effect. A panic of that loses nothing.
#[test]
fn the_drop_of_an_added_key_may_panic() {
    let queue = WorkQueue::builder().lock_free().build();
    queue.add(Bomb(1));
    queue.get().unwrap().done();
    let adds: [fn(&WorkQueue<Bomb>) -> Added; 2] =
        [|queue| queue.add(Bomb(1)), |queue| queue.add_after(Bomb(1), Duration::from_secs(3600))];
    for add in adds {
        NEXT_DROP_PANICS.set(true);
        assert!(catch_unwind(AssertUnwindSafe(|| add(&queue))).is_err());
        assert!(!NEXT_DROP_PANICS.get());
    }
    assert_eq!((queue.len(), queue.delayed_len()), (1, 1));
    assert_eq!(queue.try_get().expect("it is queued").0, 1);
    assert!(queue.cancel(&Bomb(1)));
    queue.wait_idle();
}

/// The drop of a key that leaves the map may use the queue, whose records the end of another key has just changed.
#[test]
fn the_drop_of_a_key_may_use_the_queue() {
    static QUEUE: OnceLock<WorkQueue<Asks>> = OnceLock::new();
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Asks(u32);
    impl Drop for Asks {
        fn drop(&mut self) {
            ASKED.fetch_add(1, Relaxed);
            _ = QUEUE.get().map(|queue| (queue.delayed_len(), queue.stats()));
        }
    }
    let (clock, time) = Clock::mock();
    let queue = QUEUE.get_or_init(|| WorkQueue::builder().lock_free().clock(clock).driver(Driver::Manual).build());
    for n in 0..4000 {
        queue.add_rate_limited(Asks(n)); // so the records know the key when it succeeds
        time.advance(Duration::from_secs(1));
        assert_eq!(queue.turn(), 1);
        queue.get().unwrap().succeed();
    }
    assert!(ASKED.load(Relaxed) > 2000, "keys leave the map");
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
}

/// A drain ends though a producer goes on adding, and each of its adds is refused.
#[test]
fn a_drain_ends_beside_refused_adds() {
    let queue = WorkQueue::builder().lock_free().driver(Driver::Manual).build();
    (0..200_000).for_each(|n| _ = queue.add_after(n, Duration::from_secs(3600)));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !queue.shutting_down() {
                std::thread::yield_now(); // an add from before would be accepted, and nobody takes the key
            }
            while !is_over.load(Relaxed) {
                queue.add(0);
                queue.add_after(1, Duration::from_secs(1));
            }
        });
        let drained = queue.shut_down_with_drain_timeout(Duration::from_secs(20));
        is_over.store(true, Relaxed);
        assert!(drained.is_ok(), "{drained:?}");
    });
}

/// An executor that polls its task at once, in the call that wakes it.
struct AtOnce {
    task: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
    wakes: AtomicUsize,
    is_ready: AtomicBool,
}

impl AtOnce {
    fn poll(self: &Arc<Self>) {
        // A task that is woken while it is polled is polled again after that.
        while let Ok(mut task) = self.task.try_lock() {
            let before = self.wakes.load(Relaxed);
            let waker = Arc::clone(self).into();
            self.is_ready.store(task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready(), Relaxed);
            let wakes = self.wakes.load(Relaxed);
            assert!(wakes < 1000, "it wakes itself again and again");
            if wakes == before {
                return;
            }
        }
    }
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Relaxed);
        self.poll();
    }
}

/// The call that ends the work wakes a task that waits for that. The task looks at once, and no longer finds this call under way (W4).
#[test]
fn a_waker_may_look_whether_the_work_is_over() {
    for drains in [false, true] {
        let (clock, time) = Clock::mock();
        let queue = lock_free().clock(clock).driver(Driver::Manual).build();
        queue.add(1);
        queue.get().unwrap().retry();
        time.advance(Duration::from_secs(3600));
        assert_eq!(queue.turn(), 1);
        let item = queue.get().unwrap(); // the records count its failure
        let other = queue.clone();
        let task = async move {
            match drains {
                true => other.shut_down_with_drain_async().await,
                false => other.wait_idle_async().await,
            }
        };
        let (task, wakes) =
            (Mutex::<Pin<Box<dyn Future<Output = ()> + Send>>>::new(Box::pin(task)), AtomicUsize::new(0));
        let task = Arc::new(AtOnce { task, wakes, is_ready: AtomicBool::new(false) });
        task.poll();
        assert!(!task.is_ready.load(Relaxed));
        item.succeed();
        assert!(task.is_ready.load(Relaxed));
    }
}
