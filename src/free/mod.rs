//! The engine of a lock-free queue: a concurrent map of nodes, a segment queue of entries, and the records under a short lock.
//!
//! ```text
//!   add   key ─▶ map ─▶ node: a step of its word ─▶ dirty now: push an entry, wake a getter
//!   get   entry ─▶ its node: a step ─▶ live: the getter holds the key
//!   done  node: a step ─▶ dirty: push; nothing left: into the cache of vacated nodes, whose victim leaves the map
//! ```
//!
//! None of the three takes a lock, nor does `succeed` of a key that the records do not know. The records are a [`Machine`] whose keys are nodes.
//! It has delays, failures and rests, with the rules that each queue has. A call that needs it goes there under its lock, and what the
//! machine would queue gets its step of the word there: see `src/shared/free.rs`, which has the arms of all calls.
//!
//! | file | |
//! |---|---|
//! | [`key/word.rs`](crate::key), `key/node.rs` | the word of a key and its steps; a key in memory |
//! | `lines`, `line` | the order of the queued keys: several lines, or one |
//! | `parts` | the segment queue and the map, which are other crates' |
//! | `tally` | counters of events, a block a thread |
//!
//! * **F9** An add whose step has found the queue open takes effect. One that finds it shut down after its step asks, under the lock of `over`,
//!   whether somebody was told that nothing is left. If so, it takes its step back, and is refused. Who tells so has found, under the same
//!   lock, that each add that has begun is settled (F7). An add is begun before its step, and the step is a fence: so if it finds the
//!   queue open, who has closed it finds that it has begun.
//! * **F10** A thread that pushes looks for getters after that, and a getter goes on the list before it looks into the line. Between the two
//!   each has a fence: so a getter that sleeps is seen, or has seen the entry (W1, I6).
//! * **F11** A vacated node stays in the map, and in a cache: one ring of nodes a thread. A `done` whose node is there already writes nothing
//!   but the word. The victim of a new one leaves the cache, and the map if it is vacant still.
//!
//! No guard of the map is left, and no node is freed, while a lock is held: a key's drop is foreign code (W4).

mod line;
mod lines;
mod parts;
#[cfg(all(test, not(loom)))]
mod stopped;
mod tally;
mod times;

/// A place in a hot call at which the tests of `stopped` stop a thread.
macro_rules! point {
    () => {
        #[cfg(all(test, not(loom)))]
        crate::free::stopped::point();
    };
}

use crate::Added;
use crate::key::{Bits, KeyHash, NodeRef, Note, OnAdd, OnDone};
use crate::machine::{Machine, Owed};
use crate::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering, model_const};
use crate::time::clock::Clock;
use equivalent::Equivalent;
use line::Entry;
use lines::Lines;
use parts::Map;
use std::sync::OnceLock;
use tally::{Event, Mine, Tally};
use times::Times;

pub(crate) use tally::Begin;

/// A key to look for, with its hash.
pub(crate) struct Hashed<'q, Q: ?Sized> {
    pub(crate) key: &'q Q,
    pub(crate) hash: KeyHash,
}

/// The vacated nodes that the cache keeps for each thread.
const CACHE: usize = model_const(1024, 1);

/// See the top of this file.
pub(crate) struct Free<K> {
    map: Map<K>,
    lines: Lines<K>,
    tally: Tally,
    /// The cache, a ring for each block of the tally.
    rings: Box<[Ring]>,
    /// Delays, failures and rests.
    pub(crate) records: Mutex<Machine<NodeRef<K>>>,
    /// Somebody was told that the queue is shut down and that nothing is left (F9).
    over: Mutex<bool>,
    /// The number of marked keys (F5).
    marked: AtomicUsize,
    /// If the queue measures.
    times: Option<Times>,
}

// Of the nodes, only addresses are in the rings.
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

/// A claim on a node (F1), given up at its drop. Not under a lock: the node may leave the map.
pub(crate) struct Claim<'f, K> {
    free: &'f Free<K>,
    pub(crate) node: NodeRef<K>,
}

impl<K> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        self.free.release(self.node);
    }
}

/// The step of an add.
struct Step<K> {
    node: NodeRef<K>,
    what: OnAdd,
    /// That of the push.
    number: u32,
    was_awaited: bool,
    /// It has made a held key dirty in a queue that is shut down, and has a claim on it.
    is_late: bool,
}

/// What became of an add.
pub(crate) enum Tried<'f, K> {
    Done(Added, Owed),
    /// The key, which is claimed, is cooling down: the records hold the add back.
    Held(Claim<'f, K>),
}

/// A full fence after a read-modify-write of this thread. On x86-64 that instruction is the fence, so only the compiler is kept from
/// reordering.
#[inline(always)]
pub(crate) fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::sync::fence(Ordering::SeqCst);
}

/// Lets a thread go on that is in the middle of a call.
pub(crate) fn give_way() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    crate::sync::give_way();
}

impl<K: Eq> Free<K> {
    /// `clock`: of a queue that measures. `lines`: a power of two.
    pub(crate) fn new(records: Machine<NodeRef<K>>, capacity: usize, lines: usize, clock: Option<Clock>) -> Self {
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
        }
    }

    /// `add`. `is_open`: the queue is not shut down. A key that is left in the hand was known; the caller drops it when it has paid what is owed.
    #[inline]
    pub(crate) fn add(&self, hand: &mut Option<K>, hash: KeyHash, is_open: impl Fn() -> bool) -> Tried<'_, K> {
        let mine = self.tally.mine();
        if !is_open() {
            // It does not begin, so that those who wait for the end of the work need not wait for it.
            mine.count(Event::Refused);
            return Tried::Done(Added::Rejected, Owed::NOTHING);
        }
        let begin = mine.begin();
        point!();
        // The linearization point of an add of a key that has a node is the step; that of a new key is its insertion.
        // Kept until the key is pushed: keys that the map drops at its end may use the queue.
        let guard = self.map.guard();
        let known = |node| self.add_known(node, &is_open);
        let found = self.map.add(hand, hash, Bits::QUEUED, &guard, known);
        let Step { node, what, number, was_awaited, is_late } = found.unwrap_or_else(|node| Step {
            node,
            what: OnAdd::Push,
            number: Bits::QUEUED.number(),
            was_awaited: false,
            is_late: false,
        });
        point!();
        let mut owed = Owed::NOTHING;
        let added = match what {
            OnAdd::Push => {
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
                if was_awaited {
                    owed = Owed::only_if(true, Owed::DIRTY);
                }
                if is_late { self.defer_late(node, number) } else { Added::Deferred }
            }
            OnAdd::Coalesce => {
                // The add that has made the key dirty was begun before this step, so who closes the queue afterwards waits for it (F9).
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

    /// The step of an add of a key that has a node. `None`: the node is GONE.
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
        // Written also if the bits stay: whoever gets the key sees what came before this add (P2).
        let (before, what) = node.word().write(add);
        point!();
        let (what, number) = what?;
        let mut is_late = false;
        if what == OnAdd::Defer {
            self.note_dirty(node);
            fence_after_rmw();
            // After the guard of the map the node may be gone, so an add that takes its step back needs a claim.
            is_late = !is_open() && self.try_claim(node);
        }
        Some(Step { node, what, number, was_awaited: before.is_awaited(), is_late })
    }

    /// A claim on the node of this key, which is made if there is none.
    pub(crate) fn find_or_insert(&self, hand: &mut Option<K>, hash: KeyHash) -> Claim<'_, K> {
        let guard = self.map.guard();
        let found = self.map.add(hand, hash, Bits::CLAIMED, &guard, |node| self.try_claim(node).then_some(node));
        Claim { free: self, node: found.unwrap_or_else(|new| new) }
    }

    /// A claim on the node of this key, if there is one.
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<Claim<'_, K>> {
        let node = self.map.with(Hashed { key, hash }, |node| self.try_claim(node).then_some(node)).flatten()?;
        Some(Claim { free: self, node })
    }
}

impl<K> Free<K> {
    // ---- hot steps

    /// Who makes a key queued pushes it (I5), and wakes a getter after that.
    #[inline(always)]
    fn push(&self, mine: Mine<'_>, node: NodeRef<K>, number: u32) {
        point!();
        let pushed = mine.count(Event::Pushed);
        let epoch = self.lines.epoch(pushed);
        node.set_order(epoch << 32 | pushed & u64::from(u32::MAX));
        // In a model, the line is where the locked engine would have the key, as all threads have one block.
        let home = if cfg!(loom) { node.hash().shard(self.lines.count()) } else { mine.at };
        point!();
        self.lines.push(home, Entry { node, number, epoch: epoch as u32 });
        point!();
    }

    /// `get`. `None`: there was a moment at which no key was queued, but for adds that have not settled.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<NodeRef<K>> {
        let mine = self.tally.mine();
        loop {
            point!();
            let Entry { node, number, .. } = self.lines.pop(mine)?;
            point!();
            // Linearization point of a hand-out.
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

    /// `done`, and `succeed` of a key without a past. `None`, and nothing has changed: the records know the key, and have to be asked.
    #[inline]
    pub(crate) fn end(&self, node: NodeRef<K>, succeeds: bool) -> Option<Owed> {
        let word = node.word();
        let mut before = word.load();
        loop {
            if before.is_resting() || succeeds && before.is_noted() {
                return None;
            }
            match self.try_end(node, before, |bits| bits) {
                Ok((_, owed)) => return Some(owed),
                Err(now) => before = now,
            }
        }
    }

    /// One attempt to end a hand-out, with `also` as a part of the step. The linearization point of a `done` is the one that succeeds.
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
        // Before the step: a drain that finds the key gone, and its caller, find it counted.
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
        Ok((what, owed.and(self.unmarked(before, after))))
    }

    // ---- claims, and vacant nodes

    fn try_claim(&self, node: NodeRef<K>) -> bool {
        node.word().step(|bits| if bits.is_gone() { (bits, false) } else { (bits.claim(), true) }).1
    }

    /// A claim on a node that is not gone: the caller holds its key, or the records know it, and their lock is taken.
    pub(crate) fn claim(&self, node: NodeRef<K>) -> Claim<'_, K> {
        let is_claimed = self.try_claim(node);
        debug_assert!(is_claimed, "it has a claim, or a bit, already (F1)");
        Claim { free: self, node }
    }

    /// Gives up a claim.
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

    /// A step of this thread has set CACHED: the node takes a place, and the one that had the place leaves (F4, F11).
    fn put_into_cache(&self, mine: Mine<'_>, node: NodeRef<K>) {
        let ring = &self.rings[mine.at];
        point!();
        let at = ring.at.load(Ordering::Relaxed); // Relaxed: if two threads of the last block take one place, one evicts the other's node
        ring.at.store(at.wrapping_add(1), Ordering::Relaxed);
        let victim = ring.nodes()[at % CACHE].swap(node.into_address(), Ordering::AcqRel);
        point!();
        self.evict(victim);
    }

    /// What a place of a cache had leaves the cache, and the map, if its key has not come back.
    fn evict(&self, address: *mut ()) {
        if address.is_null() {
            return;
        }
        // SAFETY: who sets CACHED puts the address there, and only who takes it out clears the bit, which this thread has (F4, F6).
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

    /// Gives back what is kept for keys to come.
    pub(crate) fn shrink(&self) {
        for nodes in self.rings.iter().filter_map(|ring| ring.nodes.get()) {
            nodes.iter().for_each(|place| self.evict(place.swap(std::ptr::null_mut(), Ordering::AcqRel)));
        }
        self.lines.shrink();
    }

    // ---- the end of the queue

    /// An add that has made its key queued has found the queue shut down (F9).
    #[cold]
    fn push_late(&self, mine: Mine<'_>, node: NodeRef<K>, number: u32, owed: &mut Owed) -> Added {
        let over = self.over.lock();
        if !*over {
            self.push(mine, node, number);
            *owed = Owed::READY_ONE;
            return Added::Queued;
        }
        drop(over);
        // No add was accepted because of this one: its answer would have come before the shut-down, so who has told that nothing is left
        // has seen that this one was begun.
        *owed = self.take_back(node, |bits| bits.is_live(number)).1;
        self.lines.uncount_dead(); // its entry was not pushed
        self.release(node);
        Added::Rejected
    }

    /// An add that has made a held key dirty has found the queue shut down (F9). It has a claim.
    #[cold]
    fn defer_late(&self, node: NodeRef<K>, number: u32) -> Added {
        let is_taken_back = {
            let over = self.over.lock();
            // Another number: the key was queued again since, so the add has taken effect.
            let is_it = |bits: Bits| *over && bits.is_dirty() && bits.is_processing() && bits.number() == number;
            let take = |bits: Bits| if is_it(bits) { (bits.take_back(), true) } else { (bits, false) };
            node.word().step(take).1
        };
        self.release(node);
        if is_taken_back { Added::Rejected } else { Added::Deferred }
    }

    /// In a queue that is shut down, after the caller has found no key: whether no add is on its way. If so, an add that comes late is refused
    /// from now on. `settled`: read before the caller has looked for a key.
    pub(crate) fn conclude(&self, settled: u64) -> bool {
        crate::sync::fence(Ordering::SeqCst); // after the look at the flag: pairs with the fence of who begins
        let mut over = self.over.lock();
        *over = *over || settled == self.tally.begun();
        *over
    }

    /// The number of settled adds, for [`conclude`](Self::conclude), and for [`is_settled`](Self::is_settled).
    pub(crate) fn settled(&self) -> u64 {
        self.tally.settled()
    }

    /// No add was on its way at the time at which this number was read (F7).
    pub(crate) fn is_settled(&self, settled: u64) -> bool {
        settled == self.tally.begun()
    }

    // ---- the part of the records

    /// The records make an add, or may make one. The caller looks after that whether the queue is open (F9).
    pub(crate) fn begin(&self) -> Begin<'_> {
        let begin = self.tally.mine().begin();
        crate::sync::fence(Ordering::SeqCst);
        begin
    }

    /// What the records know of a key has changed; and if `is_dirty`, they have added it. Returns the answer of this add, and settles it.
    pub(crate) fn note(&self, node: NodeRef<K>, note: Note, adds: Option<Begin<'_>>) -> (Option<Added>, Owed) {
        if adds.is_some() {
            self.note_dirty_soon(node);
        }
        let (before, (what, number)) = node.word().write(|bits| {
            let bits = bits.note(note);
            let (after, what) = if adds.is_some() { bits.add() } else { (bits, OnAdd::Hold) };
            (after, (what, after.number()))
        });
        let Some(begin) = adds else { return (None, Owed::NOTHING) };
        let (added, owed) = match what {
            OnAdd::Push => {
                self.push(self.tally.mine(), node, number);
                (Added::Queued, Owed::READY_ONE)
            }
            OnAdd::Defer => (Added::Deferred, Owed::only_if(before.is_awaited(), Owed::DIRTY)),
            OnAdd::Coalesce | OnAdd::Hold => (Added::Coalesced, Owed::NOTHING),
        };
        begin.settle_as(added);
        (Some(added), owed)
    }

    /// The same at the end of a hand-out. An add is one of a held key; `queues`: the records do not hold it back. `Hold`: the key was dirty and
    /// cools down, so the caller has the records hold that back.
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

    /// A key was given up without the records.
    pub(crate) fn count_given_up(&self) {
        self.tally.mine().count(Event::GivenUp);
    }

    // ---- waits for the end of the work

    /// The step of a key has cleared its mark (F5).
    #[inline(always)]
    fn unmarked(&self, before: Bits, after: Bits) -> Owed {
        if before.is_marked() && !after.is_marked() { self.uncount() } else { Owed::NOTHING }
    }

    #[cold]
    fn uncount(&self) -> Owed {
        Owed::only_if(self.marked.fetch_sub(1, Ordering::AcqRel) == 1, Owed::DRAINED)
    }

    /// Marks each key that is queued or processing: the step that ends the work of the last one owes `DRAINED`. Returns whether there was one,
    /// and what is owed at once, because keys have ended meanwhile.
    pub(crate) fn mark(&self) -> (bool, Owed) {
        let (mut is_active, mut owed) = (false, Owed::NOTHING);
        self.map.each(|node| {
            if !node.word().load().is_active() {
                return;
            }
            // Before the mark, whose end takes it back.
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

    /// Keys are marked. So those who wait are woken when these have ended, and look again.
    pub(crate) fn has_marks(&self) -> bool {
        self.marked.load(Ordering::Acquire) > 0
    }

    // ---- keys are taken out

    /// A dirty key is not to be handed out, if `is_it`. Returns the bits before.
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
        (Some(before), self.unmarked(before, after))
    }

    /// After keys were taken back. Returns whether the caller has to wake getters.
    pub(crate) fn sweep_if_due(&self) -> bool {
        let is_due = self.lines.wants_sweep();
        if is_due {
            self.lines.sweep(|entry| self.drop_dead(entry.node));
        }
        is_due
    }

    /// Claims on all keys that are queued, processing or delayed, at one time or another while this looks.
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

    /// At least the number of queued keys: for those who wake getters.
    pub(crate) fn ready(&self) -> usize {
        self.lines.entries()
    }

    pub(crate) fn handed_out(&self) -> u64 {
        self.tally.sum(Event::HandedOut)
    }

    pub(crate) fn processing(&self) -> usize {
        let ended = self.tally.sum(Event::Ended); // first: each has been handed out
        (self.handed_out() - ended) as usize
    }

    /// The numbers of queued and of processing keys, where each key counts once, whatever it does meanwhile.
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
