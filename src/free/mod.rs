//! The lock-free engine: a concurrent map of nodes, a segment queue of entries, and records of delays and failures under a short lock.
//!
//! ```text
//!   add   key ─▶ map ─▶ node: a step of its word ─▶ dirty now: push an entry, wake a getter
//!   get   entry ─▶ its node: a step ─▶ live: the getter holds the key
//!   done  node: a step ─▶ dirty: push; nothing left: into the cache of vacated nodes, whose victim leaves the map
//! ```
//!
//! These three calls take no lock, nor does `succeed` of a key that has neither a delay nor failures. The *records*, which have those, are
//! a [`Machine`] whose keys are nodes, so they follow the same rules as in any other queue. A call that needs them takes their lock, and
//! what the machine would queue becomes a step of the key's word: see `src/shared/free.rs`.
//!
//! | file | what it has |
//! |---|---|
//! | [`key/word.rs`](crate::key), `key/node.rs` | the word of a key and its steps; a key in memory |
//! | `lines`, `line` | the order of the queued keys, in one line or several |
//! | `parts` | the segment queue and the map, which come from other crates |
//! | `tally` | counters of events, one block for each thread |
//!
//! **Shut-down (F9).** An add whose step finds the queue open takes effect. An add that finds it shut down only after its step asks, under
//! the lock of `over`, whether somebody was already told that nothing is left; if so, the add takes its step back and is refused. A thread
//! may tell that only after it has found, under the same lock, that each add that was begun is settled (F7). No add slips between the two,
//! because it is begun before its step, which is a fence: if the add still finds the queue open, the thread that closes it finds the add
//! begun.
//!
//! **Wake-ups (F10).** A thread first pushes and then looks for waiting getters, while a getter first goes on their list and then looks
//! into the line. With a fence between the two on either side, a getter that falls asleep is seen, or has itself seen the entry (W1, I6).
//!
//! **Vacated nodes (F11)** stay in the map, and in a cache that is a ring for each thread, so that a `done` whose node is in the cache
//! already writes nothing but the word. The node that a new one displaces leaves the cache, and also the map if it is still vacant.
//!
//! A key's drop is foreign code, so no guard of the map ends, and no node is freed, while a lock is held (W4).

mod line;
mod lines;
mod parts;
#[cfg(all(test, not(loom)))]
mod stopped;
mod tally;
mod times;

/// A place in a hot call at which the tests in `stopped` stop a thread.
macro_rules! point {
    () => {
        #[cfg(all(test, not(loom)))]
        crate::free::stopped::point();
    };
}

use crate::Added;
use crate::bound::Bound;
use crate::key::{Bits, KeyHash, NodeRef, Note, OnAdd, OnDone};
use crate::machine::{End, Machine, Owed};
use crate::sync::{Arc, AtomicPtr, AtomicUsize, Mutex, Ordering, model_const};
use crate::time::clock::Clock;
use equivalent::Equivalent;
use line::Entry;
use lines::Lines;
use parts::Map;
use std::sync::OnceLock;
use tally::{Event, Mine, Tally};
use times::Times;

pub(crate) use tally::Begin;

/// The number of vacated nodes that the cache keeps for each thread.
const CACHE: usize = model_const(1024, 1);

/// The engine: see the top of this file.
pub(crate) struct Free<K> {
    map: Map<K>,
    lines: Lines<K>,
    tally: Tally,
    /// The cache, a ring for each block of the tally.
    rings: Box<[Ring]>,
    pub(crate) records: Mutex<Machine<NodeRef<K>>>,
    /// Whether somebody was told that the queue is shut down and nothing is left (F9).
    over: Mutex<bool>,
    /// The number of marked keys (F5).
    marked: AtomicUsize,
    /// Only in a queue that measures.
    times: Option<Times>,
    /// Counts the known keys: each step that makes a key known takes a place, and each that ends this gives it back.
    bound: Option<Arc<Bound>>,
}

// The rings have only the addresses of nodes, so they do not depend on `K`.
#[derive(Default)]
struct Ring {
    /// Made when its thread vacates a node for the first time.
    nodes: OnceLock<Box<[AtomicPtr<()>]>>,
    at: AtomicUsize,
}

impl Ring {
    fn nodes(&self) -> &[AtomicPtr<()>] {
        self.nodes.get_or_init(|| (0..CACHE).map(|_| AtomicPtr::default()).collect())
    }
}

/// A claim on a node (F1), given up when it is dropped. Not to be dropped under a lock, because the node may then leave the map.
pub(crate) struct Claim<'f, K> {
    free: &'f Free<K>,
    pub(crate) node: NodeRef<K>,
}

impl<K> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        self.free.release(self.node);
    }
}

/// What the step of an add has found.
struct Step<K> {
    node: NodeRef<K>,
    what: OnAdd,
    number: u32,
    before: Bits,
    /// The add has made a held key dirty in a queue that is shut down, and owns a claim on it.
    is_late: bool,
}

pub(crate) enum Tried<'f, K> {
    Done(Added, Owed),
    /// The key, which is claimed, is cooling down, so the records hold the add back.
    Held(Claim<'f, K>),
}

/// A full fence after a read-modify-write of this thread. On x86-64 the read-modify-write is a fence itself, so this only keeps the
/// compiler from reordering.
#[inline(always)]
pub(crate) fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::sync::fence(Ordering::SeqCst);
}

/// Lets a thread go on that is in the middle of a call for which this one waits.
pub(crate) fn give_way() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    crate::sync::give_way();
}

impl<K: Eq> Free<K> {
    /// `clock` is that of a queue that measures, and `lines` a power of two.
    pub(crate) fn new(
        records: Machine<NodeRef<K>>,
        capacity: usize,
        lines: usize,
        clock: Option<Clock>,
        bound: Option<Arc<Bound>>,
    ) -> Self {
        let tally = Tally::new();
        let rings: Box<[_]> = (0..tally.blocks()).map(|_| Ring::default()).collect();
        if cfg!(loom) {
            rings.iter().for_each(|ring| _ = ring.nodes()); // loom does not see `OnceLock`
        }
        Self {
            map: Map::new(capacity, clock.is_some()),
            lines: Lines::new(lines),
            rings,
            times: clock.map(|clock| Times::new(clock, tally.blocks())),
            tally,
            records: Mutex::new(records),
            over: Mutex::new(false),
            marked: AtomicUsize::new(0),
            bound,
        }
    }

    /// `add`. If the key was known, it stays in the hand, and the caller drops it after it has paid what is owed.
    #[inline]
    pub(crate) fn add(&self, hand: &mut Option<K>, hash: KeyHash, is_open: impl Fn() -> bool) -> Tried<'_, K> {
        let mine = self.tally.mine();
        if !is_open() {
            // It does not begin, so that threads that wait for the end of the work do not have to wait for it.
            mine.count(Event::Refused);
            return Tried::Done(Added::Rejected, Owed::NOTHING);
        }
        let begin = mine.begin();
        point!();
        // An add takes effect (its linearization point) with its step if the key has a node, and otherwise with the insertion.
        // The guard lasts until the key is pushed, because the map drops keys when it ends, and their drops may use the queue.
        let guard = self.map.guard();
        let known = |node| self.add_known(node, &is_open);
        let found = self.map.add(hand, hash, Bits::QUEUED, &guard, known);
        let Step { node, what, number, before, is_late } = found.unwrap_or_else(|node| Step {
            node,
            what: OnAdd::Push,
            number: Bits::QUEUED.number(),
            before: Bits::CLAIMED,
            is_late: false,
        });
        point!();
        let mut owed = Owed::NOTHING;
        let added = match what {
            OnAdd::Push => {
                self.came(before);
                self.note_dirty(node);
                fence_after_rmw();
                if is_open() {
                    self.push(mine, node, number);
                    owed = Owed::READY_ONE;
                    Added::Queued
                } else {
                    self.push_late(mine, node, number, &mut owed)
                }
            }
            OnAdd::Defer => {
                if before.is_awaited() {
                    owed = Owed::only_if(true, Owed::DIRTY);
                }
                if is_late { self.defer_late(node, number) } else { Added::Deferred }
            }
            OnAdd::Coalesce => {
                // The add that made the key dirty was begun before this step, so the thread that closes the queue waits for it (F9).
                fence_after_rmw();
                if is_open() { Added::Coalesced } else { Added::Rejected }
            }
            OnAdd::Hold => {
                begin.settle(Event::Other);
                return Tried::Held(Claim { free: self, node });
            }
        };
        point!();
        begin.settle_as(added);
        point!();
        Tried::Done(added, owed)
    }

    /// The step of an add of a key that has a node. `None` means that the node is GONE.
    #[inline(always)]
    fn add_known(&self, node: NodeRef<K>, is_open: &impl Fn() -> bool) -> Option<Step<K>> {
        let add = |bits: Bits| match bits.is_gone() {
            true => (bits, None),
            false => {
                let (after, what) = bits.add();
                if what == OnAdd::Hold {
                    (after.claim(), Some((what, 0)))
                } else {
                    (after, Some((what, after.number())))
                }
            }
        };
        point!();
        // The word is written even if its bits stay, so that the getter of the key sees what came before this add (P2).
        let (before, what) = node.word().write(add);
        point!();
        let (what, number) = what?;
        let mut is_late = false;
        if what == OnAdd::Defer {
            self.note_dirty(node);
            fence_after_rmw();
            // The node may be gone once the guard of the map ends, so an add that takes its step back needs a claim.
            is_late = !is_open() && self.try_claim(node);
        }
        Some(Step { node, what, number, before, is_late })
    }

    /// A claim on the node of this key, which is inserted if it is missing.
    pub(crate) fn find_or_insert(&self, hand: &mut Option<K>, hash: KeyHash) -> Claim<'_, K> {
        let guard = self.map.guard();
        let found = self.map.add(hand, hash, Bits::CLAIMED, &guard, |node| self.try_claim(node).then_some(node));
        Claim { free: self, node: found.unwrap_or_else(|new| new) }
    }

    /// Whether the key is queued, processing or delayed.
    pub(crate) fn is_known(&self, key: &K, hash: KeyHash) -> bool {
        self.map.with(key, hash, |node| node.word().load().is_known()).unwrap_or(false)
    }

    /// A claim on the node of this key, if there is one.
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<Claim<'_, K>> {
        let node = self.map.with(key, hash, |node| self.try_claim(node).then_some(node)).flatten()?;
        Some(Claim { free: self, node })
    }
}

impl<K> Free<K> {
    // ---- hot steps

    /// Pushes an entry. The caller has made the key queued (I5), and wakes a getter afterwards.
    #[inline(always)]
    fn push(&self, mine: Mine<'_>, node: NodeRef<K>, number: u32) {
        point!();
        let pushed = mine.count(Event::Pushed);
        let epoch = self.lines.epoch(pushed);
        node.set_order(epoch << 32 | pushed & u64::from(u32::MAX));
        // In a model all threads share one block, so a key goes to the line that has the number of its shard in the locked engine.
        let home = if cfg!(loom) { node.hash().shard(self.lines.count()) } else { mine.at };
        point!();
        self.lines.push(home, Entry { node, number, epoch: epoch as u32 });
        point!();
    }

    /// `get`. `None` means that each line had a moment without a queued key, except those of adds that have not settled.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<NodeRef<K>> {
        let mine = self.tally.mine();
        loop {
            point!();
            let Entry { node, number, .. } = self.lines.pop(mine.at, mine.stay())?;
            point!();
            // The linearization point of a hand-out.
            let get = |bits: Bits| bits.get(number).map_or((bits, false), |after| (after, true));
            let is_live = node.word().step(get).1;
            point!();
            if is_live {
                mine.count(Event::HandedOut);
                return Some(node);
            }
            self.drop_dead(node);
        }
    }

    #[cold]
    fn drop_dead(&self, node: NodeRef<K>) {
        self.lines.uncount_dead();
        self.release(node);
    }

    /// `done`, `succeed` and `give_up`. `None` means that nothing has changed, because the records know the key and must be asked.
    #[inline]
    pub(crate) fn end(&self, node: NodeRef<K>, end: End) -> Option<Owed> {
        let word = node.word();
        let mut before = word.load();
        loop {
            if before.is_resting() || end != End::Done && before.is_noted() {
                return None;
            }
            match self.try_end(node, before, |bits| bits) {
                Ok((_, owed)) => {
                    if end == End::GiveUp {
                        self.tally.mine().count(Event::GivenUp);
                    }
                    return Some(owed);
                }
                Err(now) => before = now,
            }
        }
    }

    /// One attempt to end a hand-out, with `also` as a part of the step, which is the linearization point of a `done` if it succeeds.
    #[inline(always)]
    pub(crate) fn try_end(
        &self,
        node: NodeRef<K>,
        before: Bits,
        also: impl FnOnce(Bits) -> Bits,
    ) -> Result<(OnDone, Owed), Bits> {
        let mine = self.tally.mine();
        let (after, what) = also(before).done();
        let leaves = what == OnDone::Remove;
        point!();
        // Counted before the step, so that a drain that finds the key gone finds it counted, and so does its caller.
        mine.count(Event::Ended);
        if let Err(now) = node.word().swap(before, if leaves { after.cache() } else { after }) {
            mine.uncount(Event::Ended);
            return Err(now);
        }
        point!();
        let mut owed = Owed::NOTHING;
        if what == OnDone::Push {
            self.push(mine, node, after.number());
            owed = Owed::READY_ONE;
        }
        if leaves && !before.is_cached() {
            self.put_into_cache(mine, node);
        }
        Ok((what, owed.and(self.unmarked(before, after)).and(self.left(before, after))))
    }

    // ---- claims, and vacant nodes

    fn try_claim(&self, node: NodeRef<K>) -> bool {
        node.word().step(|bits| if bits.is_gone() { (bits, false) } else { (bits.claim(), true) }).1
    }

    /// A claim on a node that cannot be gone, because the caller holds its key, or has locked the records, which know it.
    pub(crate) fn claim(&self, node: NodeRef<K>) -> Claim<'_, K> {
        let is_claimed = self.try_claim(node);
        debug_assert!(is_claimed, "it has a claim, or a bit, already (F1)");
        Claim { free: self, node }
    }

    fn release(&self, node: NodeRef<K>) {
        let release = |bits: Bits| {
            let after = bits.unclaim();
            if after.is_vacant() { (after.cache(), true) } else { (after, false) }
        };
        let (before, is_vacant) = node.word().step(release);
        if is_vacant && !before.is_cached() {
            self.put_into_cache(self.tally.mine(), node);
        }
    }

    /// A step of this thread has set CACHED: the node takes a place in the cache, and displaces the node that had it (F4, F11).
    fn put_into_cache(&self, mine: Mine<'_>, node: NodeRef<K>) {
        let ring = &self.rings[mine.at];
        point!();
        // Relaxed: if two threads of the last block choose the same place, one displaces the other's node.
        let at = ring.at.load(Ordering::Relaxed);
        ring.at.store(at.wrapping_add(1), Ordering::Relaxed);
        let victim = ring.nodes()[at % CACHE].swap(node.into_address(), Ordering::AcqRel);
        point!();
        self.evict(victim);
    }

    /// A node that was displaced leaves the cache, and also the map unless its key has come back.
    fn evict(&self, address: *mut ()) {
        if address.is_null() {
            return;
        }
        // SAFETY: the address was put there by the thread that set CACHED, and only the one that takes it out, which is this one, clears
        // the bit; until then the node is not freed (F4, F6).
        let node = unsafe { NodeRef::<K>::from_address(address) };
        let mut before = node.word().load();
        loop {
            let after = before.uncache();
            let mut result = Ok(());
            if after.is_vacant() {
                self.map.retire(node, || {
                    result = node.word().swap(before, after.gone());
                    point!();
                    result.is_ok()
                });
            } else {
                result = node.word().swap(before, after);
            }
            match result {
                Ok(()) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Gives back the memory that is kept for later keys.
    pub(crate) fn shrink(&self) {
        for nodes in self.rings.iter().filter_map(|ring| ring.nodes.get()) {
            nodes.iter().for_each(|place| self.evict(place.swap(std::ptr::null_mut(), Ordering::AcqRel)));
        }
        self.lines.shrink();
    }

    // ---- the end of the queue

    /// Pushes the key of an add that has found the queue shut down after its step, or takes the step back (F9).
    #[cold]
    fn push_late(&self, mine: Mine<'_>, node: NodeRef<K>, number: u32, owed: &mut Owed) -> Added {
        let over = self.over.lock();
        if !*over {
            self.push(mine, node, number);
            *owed = Owed::READY_ONE;
            return Added::Queued;
        }
        drop(over);
        // No other add was accepted because of this one: its answer would have come before the shut-down, and then the thread that told
        // that nothing is left would have seen this one begun.
        let (taken, ends) = self.take_back(node, |bits| bits.is_live(number));
        *owed = ends;
        self.lines.uncount_dead(); // its entry was not pushed
        self.release(node);
        // If another call has taken the key out meanwhile, such as a stop, which lists it, the add came before that call.
        if taken.is_some() { Added::Rejected } else { Added::Queued }
    }

    /// The same for an add that has made a held key dirty, and owns a claim on it.
    #[cold]
    fn defer_late(&self, node: NodeRef<K>, number: u32) -> Added {
        let is_taken_back = {
            let over = self.over.lock();
            // With another number the key was queued again meanwhile, so the add has taken effect.
            let is_it = |bits: Bits| *over && bits.is_dirty() && bits.is_processing() && bits.number() == number;
            let take = |bits: Bits| if is_it(bits) { (bits.take_back(), true) } else { (bits, false) };
            node.word().step(take).1
        };
        self.release(node);
        if is_taken_back { Added::Rejected } else { Added::Deferred }
    }

    /// In a queue that is shut down, after the caller has found no key: whether no add is on its way. If so, adds that come late are refused
    /// from now on. `settled` was read before the caller looked for a key.
    pub(crate) fn conclude(&self, settled: u64) -> bool {
        crate::sync::fence(Ordering::SeqCst); // after the flag was read: pairs with the fence of an add that begins
        let mut over = self.over.lock();
        *over = *over || settled == self.tally.begun();
        *over
    }

    /// The number of settled adds, for [`conclude`](Self::conclude) and [`is_settled`](Self::is_settled).
    pub(crate) fn settled(&self) -> u64 {
        self.tally.settled()
    }

    /// Whether no add was under way when this number was read (F7).
    pub(crate) fn is_settled(&self, settled: u64) -> bool {
        settled == self.tally.begun()
    }

    // ---- the part of the records

    /// Begins an add that the records make, or may make. The caller reads afterwards whether the queue is open (F9).
    pub(crate) fn begin(&self) -> Begin<'_> {
        let begin = self.tally.mine().begin();
        crate::sync::fence(Ordering::SeqCst);
        begin
    }

    /// Writes what the records know of a key, and with `adds` makes the add that they have made. Settles this add, and returns its answer.
    pub(crate) fn note(&self, node: NodeRef<K>, note: Note, adds: Option<Begin<'_>>) -> (Option<Added>, Owed) {
        if adds.is_some() {
            self.note_dirty_soon(node);
        }
        let (before, (what, after)) = node.word().write(|bits| {
            let bits = bits.note(note);
            let (after, what) = if adds.is_some() { bits.add() } else { (bits, OnAdd::Hold) };
            (after, (what, after))
        });
        let (number, left) = (after.number(), self.left(before, after));
        if after.is_known() {
            self.came(before);
        }
        let Some(begin) = adds else { return (None, left) };
        let (added, owed) = match what {
            OnAdd::Push => {
                self.push(self.tally.mine(), node, number);
                (Added::Queued, Owed::READY_ONE)
            }
            OnAdd::Defer => (Added::Deferred, Owed::only_if(before.is_awaited(), Owed::DIRTY)),
            OnAdd::Coalesce | OnAdd::Hold => (Added::Coalesced, Owed::NOTHING),
        };
        begin.settle_as(added);
        (Some(added), owed.and(left))
    }

    /// The same as a part of the step that ends a hand-out. With `queues`, the add makes the key dirty; otherwise the records hold it back.
    /// The answer `Hold` means that the key was dirty and cools down, so the caller has the records hold that add back.
    pub(crate) fn note_and_end(
        &self,
        node: NodeRef<K>,
        note: Note,
        adds: Option<Begin<'_>>,
        queues: bool,
    ) -> (Option<Added>, OnDone, Owed) {
        if adds.is_some() && queues {
            self.note_dirty_soon(node);
        }
        let mut before = node.word().load();
        loop {
            let also = |bits: Bits| if queues { bits.note(note).add().0 } else { bits.note(note) };
            match self.try_end(node, before, also) {
                Ok((what, owed)) => {
                    let Some(begin) = adds else { return (None, what, owed) };
                    let added = if before.is_dirty() { Added::Coalesced } else { Added::Deferred };
                    begin.settle_as(added);
                    let is_news = before.is_awaited() && added == Added::Deferred && queues;
                    return (Some(added), what, owed.and(Owed::only_if(is_news, Owed::DIRTY)));
                }
                Err(now) => before = now,
            }
        }
    }

    // ---- the bound

    /// Counts a key that has become known by a step.
    #[inline(always)]
    fn came(&self, before: Bits) {
        if let Some(bound) = &self.bound {
            if !before.is_known() {
                bound.enter_anyway().keep();
            }
        }
    }

    /// What is owed if the key is no longer known after a step.
    #[inline(always)]
    fn left(&self, before: Bits, after: Bits) -> Owed {
        let Some(bound) = &self.bound else { return Owed::NOTHING };
        Owed::only_if(before.is_known() && !after.is_known() && bound.leave(1), Owed::ROOM)
    }

    // ---- waits for the end of the work

    /// What is owed if a step has cleared the mark of its key (F5).
    #[inline(always)]
    fn unmarked(&self, before: Bits, after: Bits) -> Owed {
        if before.is_marked() && !after.is_marked() { self.uncount() } else { Owed::NOTHING }
    }

    #[cold]
    fn uncount(&self) -> Owed {
        Owed::only_if(self.marked.fetch_sub(1, Ordering::AcqRel) == 1, Owed::DRAINED)
    }

    /// Marks each key that is queued or processing, so that the step that ends the work of the last one owes `DRAINED`. Returns whether
    /// there was such a key, and what is owed at once because keys have ended meanwhile.
    pub(crate) fn mark(&self) -> (bool, Owed) {
        let (mut is_active, mut owed) = (false, Owed::NOTHING);
        self.map.each(|node| {
            if !node.word().load().is_active() {
                return;
            }
            // Counted before it is marked, because the end of the key takes the count back.
            self.marked.fetch_add(1, Ordering::AcqRel);
            let mark =
                |bits: Bits| if bits.is_active() && !bits.is_marked() { (bits.mark(), true) } else { (bits, false) };
            let (before, is_new) = node.word().step(mark);
            is_active |= before.is_active();
            if !is_new {
                owed = owed.and(self.uncount());
            }
        });
        (is_active, owed)
    }

    /// Whether keys are marked. Their end wakes those who wait for the end of the work, who then look again.
    pub(crate) fn has_marks(&self) -> bool {
        self.marked.load(Ordering::Acquire) > 0
    }

    // ---- keys are taken out

    /// Takes a key back that is to be handed out, if `is_it`. Returns the bits before.
    pub(crate) fn take_out(&self, node: NodeRef<K>, is_it: impl Fn(Bits) -> bool) -> (Option<Bits>, Owed) {
        let taken = self.take_back(node, is_it);
        if taken.0.is_some() {
            self.tally.mine().count(Event::Taken);
        }
        taken
    }

    fn take_back(&self, node: NodeRef<K>, is_it: impl Fn(Bits) -> bool) -> (Option<Bits>, Owed) {
        let take = |bits: Bits| {
            let after = is_it(bits).then(|| bits.take_back());
            (after.unwrap_or(bits), after)
        };
        let (before, after) = node.word().step(take);
        let Some(after) = after else { return (None, Owed::NOTHING) };
        if before.is_queued() {
            self.lines.count_dead();
        }
        (Some(before), self.unmarked(before, after).and(self.left(before, after)))
    }

    /// Called after keys were taken back. Returns whether the caller has to wake getters.
    pub(crate) fn sweep_if_due(&self) -> bool {
        self.lines.wants_sweep() && self.lines.sweep(|entry| self.drop_dead(entry.node))
    }

    /// Claims on the keys for which `is_it` at the time at which the walk comes by.
    pub(crate) fn each(&self, mut is_it: impl FnMut(Bits) -> bool) -> Vec<(Claim<'_, K>, Bits)> {
        let mut found = Vec::new();
        self.map.each(|node| {
            let claim = |bits: Bits| if !bits.is_gone() && is_it(bits) { (bits.claim(), true) } else { (bits, false) };
            if let (bits, true) = node.word().step(claim) {
                found.push((Claim { free: self, node }, bits));
            }
        });
        found
    }

    // ---- numbers

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The number of queued keys or more, for threads that wake getters.
    pub(crate) fn ready(&self) -> usize {
        self.lines.entries()
    }

    pub(crate) fn handed_out(&self) -> u64 {
        self.tally.sum(Event::HandedOut)
    }

    pub(crate) fn processing(&self) -> usize {
        let ended = self.tally.sum(Event::Ended); // read first, as each of these was handed out before
        (self.handed_out() - ended) as usize
    }

    /// The numbers of queued and of processing keys, in a walk that counts each key once, whatever it does meanwhile.
    pub(crate) fn count_active(&self) -> (usize, usize) {
        let (mut queued, mut processing) = (0, 0);
        self.map.each(|node| {
            let bits = node.word().load();
            queued += usize::from(bits.is_queued());
            processing += usize::from(bits.is_processing());
        });
        (queued, processing)
    }

    /// What the records do not count.
    pub(crate) fn add_counts(&self, stats: &mut crate::Stats) {
        stats.len += self.len();
        stats.processing += self.processing();
        stats.pushed += self.tally.sum(Event::Queued);
        stats.coalesced += self.tally.sum(Event::Coalesced);
        stats.deferred += self.tally.sum(Event::Deferred);
        stats.rejected += self.tally.sum(Event::Rejected) + self.tally.sum(Event::Refused);
        stats.handed_out += self.handed_out();
        stats.given_up += self.tally.sum(Event::GivenUp);
        stats.taken += self.tally.sum(Event::Taken);
    }
}
