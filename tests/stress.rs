//! Threads and tasks at full speed on one queue, with a history that is checked afterwards.
//!
//! Every call takes a stamp from one SeqCst counter before it begins and another after it has returned, so "stamp a is
//! smaller than stamp b" means that a came first. A call took effect somewhere between its two stamps, and each check concludes
//! only what holds for every such point, so no check fails without a reason.
//!
//! * **P1** From the return of a `get` to the call of its `done` a key is held: these intervals never overlap for a key.
//! * **P2** An accepted add is followed by a hand-out of its key that returns after the add was called. A key has exactly as
//!   many hand-outs as adds that were `Queued` or `Deferred`, and its last hand-out sees what was written, with Relaxed
//!   ordering, before every accepted add of it, even before an add that changed nothing.
//! * **P4** If key a was ready before key b began to be (its add, or its `done` when dirty, had returned before b's was
//!   called), then b's hand-out did not return before a's was called.
//! * **Linearizability** Short histories of `add`, `try_get` and `done` on four threads are searched for an order of the
//!   calls that agrees with their stamps and with client-go's algorithm (Wing & Gong's search, from `todc-utils`).
//!
//! A seed chooses the calls of each thread; it is printed, and `KEYQUEUE_STRESS_SEED` repeats it. The system still chooses the
//! schedule of the threads. `KEYQUEUE_STRESS=60` runs for about 60 seconds instead of two.

mod support {
    pub(crate) mod reference;
}

use futures_executor::block_on;
use keyqueue::{Added, Item, WorkQueue};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::reference::Reference;
use todc_utils::specifications::Specification;
use todc_utils::{Action, History, WGLChecker};

// ---- seeds and stamps ----

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Runs rounds, each with its own seed, for this share of the time.
fn rounds(share: f64, mut round: impl FnMut(u64)) {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seconds = number("KEYQUEUE_STRESS").unwrap_or(2) as f64 * share;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let first = number("KEYQUEUE_STRESS_SEED")
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64));
    for seed in first.. {
        // Shown if the round fails.
        println!("KEYQUEUE_STRESS_SEED={seed}");
        round(seed);
        if Instant::now() >= end {
            println!("{} rounds", seed - first + 1);
            break;
        }
    }
}

#[derive(Default)]
struct Clock(AtomicU64);

impl Clock {
    fn stamp(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

// ---- long histories ----

#[derive(Debug, Clone, Copy)]
struct Add {
    key: usize,
    call: u64,
    ret: u64,
    added: Added,
}

#[derive(Debug, Clone, Default)]
struct Hold {
    key: usize,
    get_call: u64,
    get_ret: u64,
    done_call: u64,
    done_ret: u64,
    /// What each producer had published for this key, as the holder saw it.
    seen: Vec<u64>,
}

const PRODUCERS: usize = 3;
const WORKERS: usize = 4;

struct Run {
    queue: WorkQueue<usize>,
    clock: Clock,
    /// `published[key][producer]`: written before each add, Relaxed, so that only the queue makes it visible.
    published: Vec<[AtomicU64; PRODUCERS]>,
}

impl Run {
    fn new(keys: usize) -> Self {
        let published = (0..keys).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { queue: WorkQueue::new(), clock: Clock::default(), published }
    }

    fn add(&self, key: usize) -> Add {
        let call = self.clock.stamp();
        let added = self.queue.add(key);
        Add { key, call, ret: self.clock.stamp(), added }
    }

    fn produce(&self, producer: usize, mut random: Random, adds: usize) -> Vec<Add> {
        let burst = 1 + random.below(40);
        let mut one = |n: usize| {
            let key = random.below(self.published.len() as u64) as usize;
            self.published[key][producer].store(n as u64 + 1, Ordering::Relaxed);
            let add = self.add(key);
            if random.below(burst) == 0 {
                thread::yield_now();
            }
            add
        };
        (0..adds).map(&mut one).collect()
    }

    /// Holds a key for a moment, and sometimes adds it meanwhile.
    fn hold(&self, item: Item<'_, usize>, get_call: u64, random: &mut Random, adds: &mut Vec<Add>) -> Hold {
        let get_ret = self.clock.stamp();
        let key = *item;
        let seen = self.published[key].iter().map(|value| value.load(Ordering::Relaxed)).collect();
        match random.below(8) {
            0 => adds.push(self.add(key)),
            1 => thread::yield_now(),
            _ => {}
        }
        let done_call = self.clock.stamp();
        match random.below(3) {
            0 => drop(item),
            1 => item.into_owned().done(),
            _ => item.done(),
        }
        Hold { key, get_call, get_ret, done_call, done_ret: self.clock.stamp(), seen }
    }

    /// Works until the queue is shut down, as a thread or as a task, by every way to get.
    fn work(&self, worker: usize, mut random: Random) -> (Vec<Hold>, Vec<Add>) {
        let (mut holds, mut adds) = (Vec::new(), Vec::new());
        loop {
            let get_call = self.clock.stamp();
            let item = match (worker % 2, random.below(6)) {
                // Gets without waiting, or with a short time-out.
                (0, 0) => self.queue.try_get().ok(),
                (0, 1) => self.queue.get_timeout(Duration::from_micros(random.below(50))).ok(),
                (0, 2) => {
                    for item in self.queue.get_many(1 + random.below(4) as usize) {
                        holds.push(self.hold(item, get_call, &mut random, &mut adds));
                    }
                    continue;
                }
                (0, _) => self.queue.get(),
                // A future that is polled once and dropped.
                (_, 0) => {
                    let mut get = std::pin::pin!(self.queue.get_async());
                    block_on(std::future::poll_fn(|cx| match std::future::Future::poll(get.as_mut(), cx) {
                        std::task::Poll::Ready(item) => std::task::Poll::Ready(item),
                        std::task::Poll::Pending => std::task::Poll::Ready(None),
                    }))
                }
                _ => block_on(self.queue.get_async()),
            };
            match item {
                Some(item) => holds.push(self.hold(item, get_call, &mut random, &mut adds)),
                None if self.queue.shutting_down() && self.queue.is_empty() => return (holds, adds),
                None => {}
            }
        }
    }

    fn check(&self, adds: &[Add], holds: &mut [Hold]) {
        holds.sort_by_key(|hold| hold.get_ret);
        let mut of_key: HashMap<usize, Vec<&Hold>> = HashMap::new();
        for hold in &*holds {
            let earlier = of_key.entry(hold.key).or_default();
            if let Some(previous) = earlier.last() {
                assert!(previous.done_call < hold.get_ret, "P1: two holders: {previous:?} and {hold:?}");
            }
            earlier.push(hold);
        }
        let mut owed: HashMap<usize, usize> = HashMap::new();
        for add in adds {
            match add.added {
                Added::Queued | Added::Deferred => *owed.entry(add.key).or_default() += 1,
                Added::Rejected => continue,
                _ => {}
            }
            let last = of_key.get(&add.key).and_then(|holds| holds.last());
            assert!(
                last.is_some_and(|hold| add.call < hold.get_ret),
                "P2: no hand-out after {add:?}, the last was {last:?}"
            );
        }
        for (key, holds) in &of_key {
            assert_eq!(owed.get(key), Some(&holds.len()), "P2: adds and hand-outs of key {key}");
            let last = holds.last().expect("none is empty");
            let published: Vec<u64> = self.published[*key].iter().map(|value| value.load(Ordering::Relaxed)).collect();
            assert_eq!(last.seen, published, "P2: the last hand-out of key {key} is older than an add: {last:?}");
        }
        assert_eq!(owed.len(), of_key.len());
    }
}

#[test]
fn no_add_is_lost_and_no_key_has_two_holders() {
    rounds(0.4, |seed| {
        let mut random = Random(seed);
        // With few keys, calls meet on one key in every way; many keys make the table grow and shrink.
        let keys = [1, 2, 5, 50, 2000][random.below(5) as usize];
        let run = Run::new(keys);
        let start = Barrier::new(PRODUCERS + WORKERS);
        let (mut adds, mut holds) = (Vec::new(), Vec::new());
        thread::scope(|s| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let (run, start, random) = (&run, &start, Random(random.next()));
                    s.spawn(move || {
                        start.wait();
                        run.work(worker, random)
                    })
                })
                .collect();
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let (run, start, random) = (&run, &start, Random(random.next()));
                    s.spawn(move || {
                        start.wait();
                        run.produce(producer, random, 1000)
                    })
                })
                .collect();
            producers.into_iter().for_each(|producer| adds.extend(producer.join().unwrap()));
            run.queue.shut_down_with_drain();
            assert_eq!((run.queue.len(), run.queue.processing_len()), (0, 0), "P7");
            for worker in workers {
                let (more_holds, more_adds) = worker.join().unwrap();
                holds.extend(more_holds);
                adds.extend(more_adds);
            }
        });
        run.check(&adds, &mut holds);
    });
}

#[test]
fn keys_are_handed_out_in_the_order_in_which_they_became_ready() {
    /// When a key became ready, and when it was handed out: somewhere between the two stamps of each.
    struct Passage {
        ready: (u64, u64),
        out: (u64, u64),
    }
    rounds(0.25, |seed| {
        const KEYS: usize = 600;
        let mut random = Random(seed);
        let run = Run::new(KEYS);
        let start = Barrier::new(2 + 3);
        let (mut adds, mut holds) = (HashMap::new(), Vec::new());
        let left = AtomicUsize::new(KEYS + KEYS.div_ceil(3));
        thread::scope(|s| {
            let producers: Vec<_> = (0..2)
                .map(|p| {
                    let (run, start) = (&run, &start);
                    s.spawn(move || {
                        start.wait();
                        // Each key once, so that it is known which add led to which hand-out.
                        (p..KEYS).step_by(2).map(|key| run.add(key)).collect::<Vec<_>>()
                    })
                })
                .collect();
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let (run, start, left, mut random) = (&run, &start, &left, Random(random.next()));
                    s.spawn(move || {
                        start.wait();
                        let mut holds = Vec::<Hold>::new();
                        while left.load(Ordering::Relaxed) > 0 {
                            // Without waiting: the stamp before a get that waits says nothing about when it took its key.
                            let get_call = run.clock.stamp();
                            let Ok(item) = run.queue.try_get() else {
                                thread::yield_now();
                                continue;
                            };
                            let (key, get_ret) = (*item, run.clock.stamp());
                            left.fetch_sub(1, Ordering::Relaxed);
                            // Every third key once more. Only its holder adds it, so its `done` makes it ready.
                            if key % 3 == 0 && run.published[key][0].swap(1, Ordering::Relaxed) == 0 {
                                assert_eq!(run.queue.add(key), Added::Deferred);
                            }
                            if random.below(4) == 0 {
                                thread::yield_now();
                            }
                            let done_call = run.clock.stamp();
                            item.done();
                            let done_ret = run.clock.stamp();
                            holds.push(Hold { key, get_call, get_ret, done_call, done_ret, seen: Vec::new() });
                        }
                        holds
                    })
                })
                .collect();
            for add in producers.into_iter().flat_map(|producer| producer.join().unwrap()) {
                assert_eq!(add.added, Added::Queued);
                adds.insert(add.key, add);
            }
            workers.into_iter().for_each(|worker| holds.extend(worker.join().unwrap()));
        });
        holds.sort_by_key(|hold| hold.get_ret);
        let mut before: HashMap<usize, &Hold> = HashMap::new();
        let mut passages: Vec<Passage> = Vec::new();
        for hold in &holds {
            let ready = match before.insert(hold.key, hold) {
                None => (adds[&hold.key].call, adds[&hold.key].ret),
                Some(first) => (first.done_call, first.done_ret),
            };
            passages.push(Passage { ready, out: (hold.get_call, hold.get_ret) });
        }
        assert_eq!(passages.len(), KEYS + KEYS.div_ceil(3));
        // For each b, the latest hand-out (by its call) among all a that were ready before the call that made b ready.
        let mut by_ready_ret: Vec<&Passage> = passages.iter().collect();
        by_ready_ret.sort_by_key(|passage| passage.ready.1);
        let mut by_ready_call: Vec<&Passage> = passages.iter().collect();
        by_ready_call.sort_by_key(|passage| passage.ready.0);
        let (mut earlier, mut latest_out) = (by_ready_ret.into_iter().peekable(), 0);
        for b in by_ready_call {
            while let Some(a) = earlier.next_if(|a| a.ready.1 < b.ready.0) {
                latest_out = latest_out.max(a.out.0);
            }
            assert!(latest_out <= b.out.1, "P4: overtook a key that was ready before it");
        }
    });
}

// ---- short histories ----

/// A call with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Add(u8, Added),
    TryGet(Option<u8>),
    Done(u8),
}

/// client-go's algorithm, as a value that can be compared: the two sets as bits, and the queued keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Model {
    queued: Vec<u8>,
    dirty: u8,
    processing: u8,
}

struct SequentialQueue;

impl Specification for SequentialQueue {
    type State = Model;
    type Operation = Call;

    fn init() -> Model {
        Model::default()
    }

    fn apply(call: &Call, state: &Model) -> (bool, Model) {
        let mut next = state.clone();
        let agrees = match *call {
            Call::Add(key, added) => {
                let bit = 1 << key;
                let expected = match (state.dirty & bit != 0, state.processing & bit != 0) {
                    (true, _) => Added::Coalesced,
                    (false, true) => Added::Deferred,
                    (false, false) => Added::Queued,
                };
                next.dirty |= bit;
                if expected == Added::Queued {
                    next.queued.push(key);
                }
                added == expected
            }
            Call::TryGet(got) => {
                let first = state.queued.first().copied();
                if let Some(key) = first {
                    next.queued.remove(0);
                    next.dirty &= !(1 << key);
                    next.processing |= 1 << key;
                }
                got == first
            }
            Call::Done(key) => {
                let bit = 1 << key;
                next.processing &= !bit;
                if state.dirty & bit != 0 {
                    next.queued.push(key);
                }
                state.processing & bit != 0
            }
        };
        if agrees { (true, next) } else { (false, state.clone()) }
    }
}

const THREADS: usize = 4;
const CALLS: usize = 6;

/// One thread's part of a short history: every call with its two stamps.
fn calls(queue: &WorkQueue<u8>, clock: &Clock, random: &mut Random, keys: u64) -> Vec<(u64, Call, u64)> {
    let mut held: Vec<Item<'_, u8>> = Vec::new();
    let mut calls = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let choice = random.below(5);
        let key = random.below(keys) as u8;
        let begin = clock.stamp();
        let call = match choice {
            0 | 1 => Call::Add(key, queue.add(key)),
            2 if !held.is_empty() => {
                let item = held.swap_remove(0);
                let key = *item;
                item.done();
                Call::Done(key)
            }
            _ => {
                let got = queue.try_get().ok();
                let call = Call::TryGet(got.as_deref().copied());
                held.extend(got);
                call
            }
        };
        calls.push((begin, call, clock.stamp()));
    }
    // The remaining dones are recorded like all other calls.
    for item in held {
        let (begin, key) = (clock.stamp(), *item);
        item.done();
        calls.push((begin, Call::Done(key), clock.stamp()));
    }
    calls
}

fn history(threads: &[Vec<(u64, Call, u64)>]) -> Vec<(usize, Action<Call>)> {
    let mut stamped = Vec::new();
    for (thread, calls) in threads.iter().enumerate() {
        for &(begin, call, end) in calls {
            stamped.push((begin, (thread, Action::Call(call))));
            stamped.push((end, (thread, Action::Response(call))));
        }
    }
    stamped.sort_by_key(|&(stamp, _)| stamp);
    stamped.into_iter().map(|(_, action)| action).collect()
}

#[test]
fn short_histories_are_linearizable() {
    // The threads run a whole batch, since starting them takes longer than a history.
    const BATCH: usize = 100;
    rounds(0.35, |seed| {
        let mut random = Random(seed);
        let keys = 1 + random.below(3);
        let queues: Vec<(WorkQueue<u8>, Clock, AtomicUsize)> =
            (0..BATCH).map(|_| (WorkQueue::new(), Clock::default(), AtomicUsize::new(0))).collect();
        let batch: Vec<Vec<_>> = thread::scope(|s| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (queues, mut random) = (&queues, Random(random.next()));
                    s.spawn(move || {
                        let one = |(queue, clock, arrived): &(_, _, AtomicUsize)| {
                            // A barrier that does not park, so that all threads start at about the same moment.
                            arrived.fetch_add(1, Ordering::SeqCst);
                            while arrived.load(Ordering::SeqCst) < THREADS {
                                thread::yield_now();
                            }
                            calls(queue, clock, &mut random, keys)
                        };
                        queues.iter().map(one).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for round in 0..BATCH {
            let threads: Vec<_> = batch.iter().map(|thread| thread[round].clone()).collect();
            let actions = history(&threads);
            assert!(
                WGLChecker::<SequentialQueue>::is_linearizable(History::from_actions(actions.clone())),
                "no order of these calls explains their results: {actions:#?}"
            );
        }
    });
}

#[test]
fn the_checker_rejects_wrong_histories() {
    use Action::{Call as C, Response as R};
    let check = |actions| WGLChecker::<SequentialQueue>::is_linearizable(History::from_actions(actions));
    let (add, get, nothing) = (Call::Add(0, Added::Queued), Call::TryGet(Some(0)), Call::TryGet(None));
    assert!(check(vec![(0, C(add)), (1, C(nothing)), (0, R(add)), (1, R(nothing))]), "concurrent calls: either order");
    assert!(!check(vec![(0, C(add)), (0, R(add)), (1, C(nothing)), (1, R(nothing))]), "a lost add");
    assert!(!check(vec![(0, C(add)), (0, R(add)), (0, C(get)), (0, R(get)), (1, C(get)), (1, R(get))]), "two holders");
    let second = Call::TryGet(Some(1));
    let other = Call::Add(1, Added::Queued);
    assert!(
        !check([add, other, second].into_iter().flat_map(|call| [(0, C(call)), (0, R(call))]).collect()),
        "wrong order"
    );
}

#[test]
fn the_sequential_model_agrees_with_the_reference() {
    // Two implementations of client-go's algorithm, with the same random calls.
    let mut random = Random(1);
    let (mut reference, mut model) = (Reference::new(), Model::default());
    let mut held = Vec::new();
    for _ in 0..10_000 {
        let key = random.below(4) as u8;
        let call = match random.below(5) {
            0 | 1 => Call::Add(key, reference.add(key)),
            2 if !held.is_empty() => {
                let key = held.swap_remove(random.below(held.len() as u64) as usize);
                reference.done(&key);
                Call::Done(key)
            }
            _ => {
                let got = reference.get();
                held.extend(got);
                Call::TryGet(got)
            }
        };
        let (agrees, next) = SequentialQueue::apply(&call, &model);
        assert!(agrees, "{call:?} on {model:?}");
        model = next;
    }
}
