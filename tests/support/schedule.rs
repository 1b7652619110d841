//! A scheduler that is driven by bytes: each byte chooses which actor makes the next move. All actors are in one thread, so a
//! run can be repeated exactly. Calls that threads would make concurrently happen here in every order that the bytes choose.
//!
//! The actors are producers with a list of adds, workers (a future polled by hand, then an item, then `done`), callers of
//! `try_get` and of `get_timeout` with a time-out of zero, and one that shuts down. There is no model of the queue: the
//! promises themselves are checked.
//!
//! * P1: no key has two holders at a time.
//! * P2: an accepted add is followed by a hand-out of its key that begins after it, unless the key is still queued.
//! * Wake-ups: while a key is queued and futures wait, some future has been woken and not polled since (W2, W3). When all woken
//!   futures have been polled, no key is queued.
//! * P6, P7: after the shut-down no future waits, adds are rejected, all keys are handed out, and a drain reports it.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use arbitrary::{Arbitrary, Unstructured};
use keyqueue::{Added, GetAsync, Item, WorkQueue};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What a fuzzer chooses.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) struct Plan {
    /// The number of workers, 1 to 4.
    workers: u8,
    /// Whether keys are strings, which own memory.
    strings: bool,
    /// One list of adds for each producer.
    scripts: [Vec<u8>; 2],
    moves: Vec<Move>,
}

/// The actor that moves, and how if there is a choice.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Move {
    /// The producer adds the next key of its script.
    Produce(bool),
    /// The producer adds the rest of its script at once.
    ProduceAll(bool),
    /// The worker goes on: calls `get_async`, polls its future if that was woken, or is done.
    Work(u8),
    /// The worker polls its future, woken or not, with another waker.
    Poll(u8),
    /// The worker drops its future, woken or not, or drops its item in a panic.
    Cancel(u8),
    /// The worker adds the key that it holds.
    Readd(u8),
    /// A caller takes a key by `try_get`, and is done at once or holds it until the end.
    TryGet(bool),
    /// A caller gets with a time-out of zero.
    Peek,
    ShutDown,
    /// Shuts down and checks whether the drain reports what is left.
    Drain,
}

/// Runs the fuzz target's input.
pub(crate) fn run_bytes(data: &[u8]) {
    if let Ok(plan) = Plan::arbitrary_take_rest(Unstructured::new(data)) {
        run(&plan);
    }
}

pub(crate) fn run(plan: &Plan) {
    if plan.strings {
        Schedule::run(&WorkQueue::new(), plan, |n| format!("key {n}"));
    } else {
        Schedule::run(&WorkQueue::new(), plan, u64::from);
    }
}

/// The number of different keys.
const KEYS: u8 = 5;

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task, as a state machine.
enum Worker<'q, K> {
    Idle,
    Waiting {
        future: Pin<Box<GetAsync<'q, K>>>,
        waker: Arc<CountingWaker>,
    },
    Holding(Item<'q, K>),
    /// Its future has returned `None`: the queue is shut down.
    Ended,
}

impl<K> Worker<'_, K> {
    fn is_woken(&self) -> bool {
        matches!(self, Self::Waiting { waker, .. } if waker.0.load(Ordering::Relaxed) > 0)
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Waiting { .. }) && !self.is_woken()
    }
}

struct Schedule<'q, K> {
    queue: &'q WorkQueue<K>,
    key: fn(u8) -> K,
    workers: Vec<Worker<'q, K>>,
    scripts: Vec<std::vec::IntoIter<u8>>,
    /// Items that callers of `try_get` hold until the end.
    kept: Vec<Item<'q, K>>,
    holders: HashSet<K>,
    /// The keys that were added and not handed out since, with the outcomes of the adds.
    owed: HashMap<K, Vec<Added>>,
    shut_down: bool,
}

impl<'q, K> Schedule<'q, K>
where
    K: std::hash::Hash + Eq + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    fn run(queue: &'q WorkQueue<K>, plan: &Plan, key: fn(u8) -> K) {
        let mut this = Self {
            queue,
            key,
            workers: (0..=plan.workers % 4).map(|_| Worker::Idle).collect(),
            scripts: plan.scripts.iter().map(|script| script.clone().into_iter()).collect(),
            kept: Vec::new(),
            holders: HashSet::new(),
            owed: HashMap::new(),
            shut_down: false,
        };
        for &step in &plan.moves {
            this.step(step);
            this.check();
        }
        this.finish();
    }

    fn step(&mut self, step: Move) {
        let worker = |n: u8| usize::from(n) % self.workers.len();
        match step {
            Move::Produce(which) => {
                if let Some(n) = self.scripts[usize::from(which)].next() {
                    self.add((self.key)(n % KEYS));
                }
            }
            Move::ProduceAll(which) => {
                let script = std::mem::take(&mut self.scripts[usize::from(which)]);
                let keys: Vec<K> = script.map(|n| (self.key)(n % KEYS)).collect();
                let added = self.queue.add_all(keys.clone());
                assert!(added <= keys.len());
                if self.shut_down {
                    assert_eq!(added, 0);
                } else {
                    keys.into_iter().for_each(|key| self.owed.entry(key).or_default().push(Added::Coalesced));
                }
            }
            Move::Work(n) => self.work(worker(n), false),
            Move::Poll(n) => self.work(worker(n), true),
            Move::Cancel(n) => {
                let at = worker(n);
                match std::mem::replace(&mut self.workers[at], Worker::Idle) {
                    Worker::Holding(item) => self.panic_with(item),
                    Worker::Waiting { future, .. } => drop(future),
                    Worker::Idle => drop(self.queue.get_async()),
                    Worker::Ended => self.workers[at] = Worker::Ended,
                }
            }
            Move::Readd(n) => {
                if let Worker::Holding(item) = &self.workers[worker(n)] {
                    let (key, was_dirty) = (item.key().clone(), item.is_dirty());
                    let expected = match (self.shut_down, was_dirty) {
                        (true, _) => Added::Rejected,
                        (false, true) => Added::Coalesced,
                        (false, false) => Added::Deferred,
                    };
                    assert_eq!(self.add(key), expected);
                }
            }
            Move::TryGet(keep) => {
                if let Ok(item) = self.queue.try_get() {
                    self.handed_out(&item);
                    if keep {
                        self.kept.push(item);
                    } else {
                        self.done(item);
                    }
                }
            }
            Move::Peek => {
                if let Ok(item) = self.queue.get_timeout(Duration::ZERO) {
                    self.handed_out(&item);
                    self.done(item);
                }
            }
            Move::ShutDown => {
                self.queue.shut_down();
                self.shut_down = true;
            }
            Move::Drain => {
                let drained = self.queue.shut_down_with_drain_timeout(Duration::ZERO).is_ok();
                self.shut_down = true;
                assert_eq!(drained, self.queue.is_empty() && self.holders.is_empty());
            }
        }
    }

    fn add(&mut self, key: K) -> Added {
        let added = self.queue.add(key.clone());
        assert_eq!(added.is_accepted(), !self.shut_down);
        if added.is_accepted() {
            self.owed.entry(key).or_default().push(added);
        }
        added
    }

    fn handed_out(&mut self, item: &Item<'q, K>) {
        assert!(self.holders.insert(item.key().clone()), "P1: {item:?} has two holders");
        assert!(!item.is_dirty(), "not added since the hand-out");
        assert!(self.owed.remove(item.key()).is_some(), "{item:?} was handed out, but it was not added");
    }

    fn done(&mut self, item: Item<'q, K>) {
        assert!(self.holders.remove(item.key()));
        item.done();
    }

    fn panic_with(&mut self, item: Item<'q, K>) {
        assert!(self.holders.remove(item.key()));
        let worker = AssertUnwindSafe(|| {
            let _item = item;
            resume_unwind(Box::new(()));
        });
        assert!(catch_unwind(worker).is_err());
    }

    /// One move of a worker. `spuriously`: even if its future has not been woken.
    fn work(&mut self, at: usize, spuriously: bool) {
        self.workers[at] = match std::mem::replace(&mut self.workers[at], Worker::Idle) {
            Worker::Holding(item) => {
                self.done(item);
                Worker::Idle
            }
            worker if worker.waits() && !spuriously => worker,
            Worker::Waiting { future, .. } => self.poll(future),
            Worker::Idle => self.poll(Box::pin(self.queue.get_async())),
            Worker::Ended => Worker::Ended,
        };
    }

    fn poll(&mut self, mut future: Pin<Box<GetAsync<'q, K>>>) -> Worker<'q, K> {
        let waker = Arc::<CountingWaker>::default();
        match future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker)))) {
            Poll::Ready(Some(item)) => {
                self.handed_out(&item);
                Worker::Holding(item)
            }
            Poll::Ready(None) => {
                assert!(self.shut_down && self.queue.is_empty(), "a future resolved without a reason");
                Worker::Ended
            }
            Poll::Pending => {
                assert!(!self.shut_down && self.queue.is_empty(), "a future waits although it could resolve");
                Worker::Waiting { future, waker }
            }
        }
    }

    fn check(&self) {
        let waiting = self.workers.iter().filter(|worker| worker.waits()).count();
        let woken = self.workers.iter().filter(|worker| worker.is_woken()).count();
        assert_eq!(self.queue.stats().waiters, waiting);
        assert!(
            self.queue.is_empty() || waiting == 0 || woken > 0,
            "W2: a key is queued, and no waiting future was woken"
        );
        assert!(!self.shut_down || waiting == 0, "P6: shut down, and a future was not woken");
        assert_eq!(self.queue.processing_len(), self.holders.len());
        // Each owed key is queued, or is dirty and will be queued at `done` (P2).
        let dirty = |item: &Item<'q, K>| usize::from(item.is_dirty());
        let held: usize = self.kept.iter().map(dirty).sum();
        let held: usize = held
            + self
                .workers
                .iter()
                .map(|worker| if let Worker::Holding(item) = worker { dirty(item) } else { 0 })
                .sum::<usize>();
        assert_eq!(self.owed.len(), self.queue.len() + held, "P2: owed {:?}", self.owed);
    }

    /// Lets the workers that can go on do so, until all wait or have ended.
    fn settle(&mut self) {
        while let Some(at) = self.workers.iter().position(|worker| !worker.waits() && !matches!(worker, Worker::Ended))
        {
            self.work(at, false);
            self.check();
        }
    }

    fn finish(mut self) {
        while let Some(item) = self.kept.pop() {
            self.done(item);
        }
        self.check();
        if !self.shut_down {
            self.settle();
            assert!(
                self.queue.is_empty() && self.owed.is_empty(),
                "all workers wait, and these are owed: {:?}",
                self.owed
            );
            assert!(self.workers.iter().all(Worker::waits));
            self.step(Move::ShutDown);
        }
        // Workers may have ended while dirty keys were held, which are queued again at `done`. Those are taken here.
        self.settle();
        while !self.queue.is_empty() {
            self.step(Move::TryGet(false));
            self.check();
        }
        assert!(self.owed.is_empty() && self.holders.is_empty());
        self.step(Move::Drain);
        assert!(self.queue.get().is_none());
        let stats = self.queue.stats();
        assert_eq!(stats.pushed + stats.deferred, stats.handed_out);
    }
}
