//! Runs a list of calls on the crate and on the plain reference, and compares every return value.
//!
//! One thread; futures are polled by hand. After every call the numbers of [`keyqueue::Stats`] are compared too, and the rule
//! about wake-ups is checked: *while a key is queued and a future waits, some waiting future has been woken*.
//!
//! Used by `model.rs` (proptest), by the fuzz target `queue_vs_reference`, and by `replay_corpus.rs`.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use super::reference::Reference;
use arbitrary::{Arbitrary, Unstructured};
use keyqueue::{Added, DrainTimeoutError, GetAsync, GetTimeoutError, Item, OwnedItem, TryGetError, WorkQueue};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// One call. An index selects a held item or a waiting future, modulo their number; if there is none, the call is skipped.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Op {
    Add(u8),
    AddAll(Vec<u8>),
    /// The iterator panics after these.
    AddAllPanics(Vec<u8>),
    TryGet,
    GetTimeoutZero,
    /// Skipped if it would wait.
    Get,
    /// Skipped if it would wait.
    GetMany(u8),
    /// `done`.
    Done(u8),
    /// Drops the item.
    Drop(u8),
    /// Drops the item in a panic.
    Panic(u8),
    IsDirty(u8),
    IntoOwned(u8),
    /// Makes a future and polls it.
    PollNew,
    /// Polls a future that waits, woken or not.
    Poll(u8),
    /// Drops a future that waits, woken or not.
    DropFuture(u8),
    ShutDown,
    DrainTimeoutZero,
    ShrinkToFit,
    /// Makes the calls that follow through a clone of the handle.
    CloneHandle,
    // Not decoded from bytes, so that the fuzzer's corpus decodes to the same calls: see `decoded`.
    #[arbitrary(skip)]
    Remove(u8),
}

impl Op {
    /// Half of the looks at `is_dirty` are removals.
    fn decoded(self) -> Self {
        match self {
            Self::IsDirty(n) if n % 2 == 1 => Self::Remove(n / 2),
            op => op,
        }
    }
}

/// The type of key. Calls use few values, so that they meet on one key.
pub(crate) trait Key: Hash + Eq + Clone + Debug + Send + Sync + 'static {
    /// All keys have one hash, so they are in one shard.
    const COLLIDES: bool = false;

    fn nth(n: u8) -> Self;
    /// One of many other values (of 40, if they collide), none of which is an [`nth`](Self::nth).
    fn other(n: u16) -> Self;
}

/// The number of values of [`Key::nth`].
pub(crate) const KEYS: u8 = 7;

impl Key for u64 {
    fn nth(n: u8) -> Self {
        u64::from(n % KEYS)
    }

    fn other(n: u16) -> Self {
        1_000 + u64::from(n)
    }
}

impl Key for String {
    fn nth(n: u8) -> Self {
        format!("namespace/name-{}", n % KEYS)
    }

    fn other(n: u16) -> Self {
        format!("other/name-{n}")
    }
}

/// Every key has the same hash: all share one chain of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Colliding(u16);

impl Hash for Colliding {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

impl Key for Colliding {
    const COLLIDES: bool = true;

    fn nth(n: u8) -> Self {
        Self(u16::from(n % KEYS))
    }

    fn other(n: u16) -> Self {
        Self(1_000 + n % 40)
    }
}

/// A key that was handed out, borrowed or owned.
pub(crate) enum Held<'q, K> {
    Borrowed(Item<'q, K>),
    Owned(OwnedItem<K>),
}

impl<K> Held<'_, K> {
    pub(crate) fn key(&self) -> &K {
        match self {
            Self::Borrowed(item) => item.key(),
            Self::Owned(item) => item,
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        match self {
            Self::Borrowed(item) => item.is_dirty(),
            Self::Owned(item) => item.is_dirty(),
        }
    }

    pub(crate) fn into_owned(self) -> Self {
        match self {
            Self::Borrowed(item) => Self::Owned(item.into_owned()),
            owned => owned,
        }
    }

    pub(crate) fn done(self) {
        match self {
            Self::Borrowed(item) => item.done(),
            Self::Owned(item) => item.done(),
        }
    }
}

/// A waker that records that it was called.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future that was polled and is not ready.
pub(crate) struct Waiting<'q, K> {
    future: Pin<Box<GetAsync<'q, K>>>,
    flag: Arc<Flag>,
}

impl<'q, K> Waiting<'q, K> {
    pub(crate) fn new(future: GetAsync<'q, K>) -> Self {
        Self { future: Box::pin(future), flag: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Poll<Option<Item<'q, K>>> {
        self.flag = Arc::default();
        let waker = Waker::from(Arc::clone(&self.flag));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::Relaxed)
    }
}

/// The crate and the reference, in the same state.
struct Pair<'q, K: Key> {
    handles: &'q [WorkQueue<K>; 2],
    /// The index of the handle in use.
    handle: usize,
    reference: Reference<K>,
    held: Vec<Held<'q, K>>,
    waiting: Vec<Waiting<'q, K>>,
    /// The number of items that were dropped by a panic.
    panics: u64,
}

/// Runs the calls with plain keys, with keys that own memory, and with keys that collide; with one shard, and with four.
pub(crate) fn run(ops: &[Op]) {
    for shards in [1, 4] {
        run_with::<u64>(shards, ops);
        run_with::<String>(shards, ops);
        run_with::<Colliding>(shards, ops);
    }
}

/// The reference for a queue with this number of shards. Within a shard the order is that of one queue.
pub(crate) fn reference<K: Key>(shards: usize) -> Reference<K> {
    if shards == 1 || K::COLLIDES { Reference::new() } else { Reference::new().in_any_order() }
}

/// Runs the fuzz target's input.
pub(crate) fn run_bytes(data: &[u8]) {
    if let Ok(ops) = Vec::<Op>::arbitrary_take_rest(Unstructured::new(data)) {
        run(&ops.into_iter().map(Op::decoded).collect::<Vec<_>>());
    }
}

pub(crate) fn run_with<K: Key>(shards: usize, ops: &[Op]) {
    let queue = WorkQueue::<K>::builder().shards(shards).build();
    let handles = [queue.clone(), queue];
    let mut pair =
        Pair { handles: &handles, handle: 0, reference: reference(shards), held: vec![], waiting: vec![], panics: 0 };
    for op in ops {
        pair.step(op);
        pair.check();
    }
    pair.finish();
}

impl<'q, K: Key> Pair<'q, K> {
    fn queue(&self) -> &'q WorkQueue<K> {
        &self.handles[self.handle]
    }

    fn step(&mut self, op: &Op) {
        let queue = self.queue();
        match op {
            Op::Add(n) => assert_eq!(queue.add(K::nth(*n)), self.reference.add(K::nth(*n))),
            Op::AddAll(ns) => {
                let added = queue.add_all(ns.iter().map(|&n| K::nth(n)));
                assert_eq!(added, self.reference_adds(ns));
            }
            Op::AddAllPanics(ns) => {
                let keys = ns.iter().map(|&n| K::nth(n)).chain(std::iter::once_with(|| resume_unwind(Box::new(()))));
                assert!(catch_unwind(AssertUnwindSafe(|| queue.add_all(keys))).is_err());
                self.reference_adds(ns);
            }
            Op::TryGet => {
                let got = queue.try_get();
                let none = if self.reference.shutting_down() { TryGetError::ShutDown } else { TryGetError::Empty };
                self.compare(got, none);
            }
            Op::GetTimeoutZero => {
                let got = queue.get_timeout(Duration::ZERO);
                let shut_down = self.reference.shutting_down();
                self.compare(got, if shut_down { GetTimeoutError::ShutDown } else { GetTimeoutError::Timeout });
            }
            Op::Get if self.would_wait() => {}
            Op::Get => self.compare(queue.get().ok_or(()), ()),
            Op::GetMany(n) if *n > 0 && self.would_wait() => {}
            Op::GetMany(n) => {
                let items = queue.get_many(usize::from(*n));
                assert_eq!(items.len(), self.reference.len().min(usize::from(*n)));
                for item in items {
                    self.compare(Ok(item), ());
                }
            }
            Op::Done(n) => {
                if let Some(held) = self.take_held(*n) {
                    held.done();
                }
            }
            Op::Drop(n) => drop(self.take_held(*n)),
            Op::Panic(n) => {
                if let Some(held) = self.take_held(*n) {
                    let worker = AssertUnwindSafe(|| {
                        let _held = held;
                        // Unlike `panic!`, does not call the panic hook: it prints nothing, and the fuzzer reports no crash.
                        resume_unwind(Box::new(()));
                    });
                    assert!(catch_unwind(worker).is_err());
                    self.panics += 1;
                }
            }
            Op::IsDirty(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = &self.held[at];
                    assert_eq!(held.is_dirty(), self.reference.is_dirty(held.key()));
                }
            }
            Op::IntoOwned(n) => {
                if let Some(at) = index(*n, self.held.len()) {
                    let held = self.held.swap_remove(at).into_owned();
                    self.held.push(held);
                }
            }
            Op::PollNew => self.poll(Waiting::new(queue.get_async())),
            Op::Poll(n) => {
                if let Some(at) = index(*n, self.waiting.len()) {
                    let waiting = self.waiting.remove(at);
                    self.poll(waiting);
                }
            }
            Op::DropFuture(n) => {
                if let Some(at) = index(*n, self.waiting.len()) {
                    drop(self.waiting.remove(at));
                }
            }
            Op::ShutDown => {
                queue.shut_down();
                self.reference.shut_down();
            }
            Op::DrainTimeoutZero => {
                let drained = queue.shut_down_with_drain_timeout(Duration::ZERO);
                self.reference.shut_down();
                match drained {
                    Ok(()) => assert_eq!((self.reference.len(), self.reference.processing_len()), (0, 0)),
                    Err(DrainTimeoutError { queued, processing, .. }) => {
                        assert_ne!((queued, processing), (0, 0));
                        assert_eq!((queued, processing), (self.reference.len(), self.reference.processing_len()));
                    }
                }
            }
            Op::ShrinkToFit => queue.shrink_to_fit(),
            Op::CloneHandle => self.handle ^= 1,
            Op::Remove(n) => assert_eq!(queue.remove(&K::nth(*n)), self.reference.remove(&K::nth(*n))),
        }
    }

    fn reference_adds(&mut self, ns: &[u8]) -> usize {
        let added = ns.iter().map(|&n| self.reference.add(K::nth(n)));
        added.filter(|added| matches!(added, Added::Queued | Added::Deferred)).count()
    }

    fn would_wait(&self) -> bool {
        self.reference.is_empty() && !self.reference.shutting_down()
    }

    /// Compares a hand-out, and keeps the item. `none` is the error if no key is queued.
    fn compare<E: PartialEq + Debug>(&mut self, got: Result<Item<'q, K>, E>, none: E) {
        let expected = self.reference.get_like(got.as_ref().ok().map(Item::key));
        match (got, expected) {
            (Ok(item), Some(key)) => {
                assert_eq!(*item, key);
                self.held.push(Held::Borrowed(item));
            }
            (Err(error), None) => assert_eq!(error, none),
            (got, expected) => panic!("handed out {got:?}, should have been {expected:?}"),
        }
    }

    fn poll(&mut self, mut waiting: Waiting<'q, K>) {
        let shut_down = self.reference.shutting_down();
        match waiting.poll() {
            Poll::Ready(got) => {
                assert!(got.is_some() || shut_down, "a future resolved without a reason");
                self.compare(got.ok_or(()), ());
            }
            Poll::Pending => {
                assert!(self.would_wait(), "a future waits although it could resolve");
                self.waiting.push(waiting);
            }
        }
    }

    /// Takes a held item out, and marks its key as done in the reference.
    fn take_held(&mut self, n: u8) -> Option<Held<'q, K>> {
        let held = self.held.swap_remove(index(n, self.held.len())?);
        self.reference.done(held.key());
        Some(held)
    }

    fn check(&self) {
        let (queue, reference, stats) = (self.queue(), &self.reference, self.queue().stats());
        assert_eq!((queue.len(), queue.is_empty()), (reference.len(), reference.is_empty()));
        assert_eq!(queue.processing_len(), reference.processing_len());
        assert_eq!(queue.shutting_down(), reference.shutting_down());
        assert_eq!(
            (stats.len, stats.processing, stats.shutting_down, stats.drainers),
            (reference.len(), self.held.len(), reference.shutting_down(), 0)
        );
        let counts = super::reference::Counts {
            pushed: stats.pushed,
            coalesced: stats.coalesced,
            deferred: stats.deferred,
            rejected: stats.rejected,
            handed_out: stats.handed_out,
            taken: stats.taken,
        };
        assert_eq!(counts, reference.counts);
        let coming_back = self.held.iter().filter(|held| held.is_dirty()).count();
        // The sum that `Stats` documents.
        assert_eq!(
            stats.pushed + stats.deferred,
            stats.handed_out + stats.taken + (stats.len + coming_back) as u64,
            "as promised"
        );

        let woken = self.waiting.iter().filter(|waiting| waiting.is_woken()).count();
        assert_eq!(stats.waiters, self.waiting.len() - woken, "the wait list holds the futures that were not woken");
        assert!(
            woken > 0 || self.waiting.is_empty() || reference.is_empty(),
            "a key is queued, and no waiting future was woken"
        );
        assert!(!reference.shutting_down() || stats.waiters == 0, "shut down, and a future was not woken");

        // The queue does not measure, but lists the keys that are processing.
        let ages = [stats.oldest_queued, stats.longest_running, stats.unfinished_work, stats.next_deadline];
        assert_eq!(ages, [None; 4]);
        let listed = queue.inspect().processing_keys();
        assert_eq!(listed.len(), self.held.len());
        for held in &self.held {
            let found = listed.iter().find(|listed| listed.key == *held.key());
            assert_eq!(found.map(|listed| listed.elapsed), Some(None), "{:?} is processing", held.key());
        }
        assert_eq!((stats.retries, stats.given_up, stats.panics), (0, 0, self.panics));
        assert_eq!((stats.adds(), stats.depth()), (stats.pushed + stats.deferred, (stats.len + coming_back) as u64));
    }

    /// Processes all keys: none is lost, and none is handed out twice.
    fn finish(mut self) {
        self.waiting.clear();
        loop {
            while self.take_held(0).is_some() {}
            self.check();
            if self.reference.is_empty() {
                break;
            }
            self.step(&Op::GetMany(3));
        }
        self.step(&Op::DrainTimeoutZero);
        self.step(&Op::TryGet);
        self.check();
    }
}

/// An instant, or a nanosecond before or after it.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Side {
    Before,
    At,
    After,
}

impl Side {
    pub(crate) fn of(self, nanoseconds: u64) -> u64 {
        match self {
            Self::Before => nanoseconds.saturating_sub(1),
            Self::At => nanoseconds,
            Self::After => nanoseconds.saturating_add(1),
        }
    }
}

pub(crate) fn index(n: u8, len: usize) -> Option<usize> {
    usize::from(n).checked_rem(len)
}
