//! The calls of a queue with the lock-free engine.
//!
//! ```text
//!   add, get, done, succeed:      the engine: a step of the key's word ─ pay what it owes
//!   the others, and keys that     lock the records ─ verb of the machine ─ what it knows of the key: a step of the word ─ what it
//!   have a delay or failures:       has queued: a step, and a push ─ pay what is owed ─ unlock ─ wake, drop claims
//! ```
//!
//! [`free`](crate::free) is the engine, and explains the invariants that are cited here. The shard that each queue has is empty in this
//! one, and nobody takes its lock; only the driver reads the next deadline there.
//!
//! **Lock order**: records, then hub; `over` alone. Under each of them no guard of the map ends, and no claim is given up (W4).

use super::Shared;
use super::drain::{Look, WaitGoal};
use super::expire::BY_GETTER;
use super::get::{Visit, Visited, Wait};
use super::hub::Flags;
use super::locked::OneShard;
use super::section::in_steps;
use super::take::Taken;
use super::take_where::Found;
use super::waiters::{Event, TaskTicket};
use crate::bound::Room;
use crate::free::give_way;
use crate::free::{Begin, Claim, Free, Tried, fence_after_rmw};
use crate::key::{Bits, KeyHash, NodeRef, Note, OnDone};
use crate::machine::{
    Cancelled, Claimed, Delay, End, Expired, How, KeySeen, Machine, MaybeNanos, Mode, NEVER, Owed, Seen, TakenOut,
    Which,
};
use crate::order::Group;
use crate::shared::driver::states::Driver;
use crate::sync::{Arc, MutexGuard, Ordering, fence};
use crate::wait::{Waiter, WakeList};
use crate::{AddOptions, Added, DelayConflict};
use equivalent::Equivalent;
use std::hash::Hash;
use std::task::Waker;
use std::time::Duration;

const NO_PRIORITIES: &str = "a lock-free queue has no priorities";

/// A critical section of the records. It must be [ended](Self::end) while no other lock is held.
struct Records<'s, K> {
    shared: &'s Shared<K>,
    free: &'s Free<K>,
    machine: MutexGuard<'s, Machine<NodeRef<K>>>,
    one: OneShard,
    mode: Mode,
    owed: Owed,
    /// Keys that became dirty for which somebody waits.
    dirty: Vec<KeyHash>,
    claims: Vec<Claim<'s, K>>,
    /// Whether there were delays at the beginning.
    had_delays: bool,
}

impl<'s, K> Records<'s, K> {
    /// Notes what a verb owes, and returns its answer. Getters are not owed here, but by the push of the engine.
    fn note<A>(&mut self, (answer, owed): (A, Owed)) -> A {
        self.owed = self.owed.and(owed);
        answer
    }

    /// Calls a verb of the machine, and notes what it owes.
    fn verb<A>(&mut self, verb: impl FnOnce(&mut Machine<NodeRef<K>>, Mode) -> (A, Owed)) -> A {
        let answer = verb(&mut self.machine, self.mode);
        self.note(answer)
    }

    fn note_of(&self, node: NodeRef<K>) -> Note {
        self.machine.is_resting(&node, node.hash()).map_or(Note::NONE, Note::noted)
    }

    /// Called after a verb on a key that the caller does not hold. If the verb has queued the key, this makes the add, and returns its
    /// answer.
    fn settle(&mut self, node: NodeRef<K>, begin: Option<Begin<'_>>) -> Option<Added> {
        let popped = self.machine.pop_dirty();
        let is_dirty = popped.is_some();
        if let Some((popped, owed)) = popped {
            debug_assert!(popped == node, "a verb adds its key");
            self.note(((), owed));
        }
        let note = self.note_of(node);
        let begin = if is_dirty { begin.or_else(|| Some(self.free.begin())) } else { None };
        let answer = self.free.note(node, note, begin);
        self.note_dirty(node.hash(), answer)
    }

    /// Notes what a step of the engine owes. The node may be gone.
    fn note_dirty<A>(&mut self, hash: KeyHash, answer: (A, Owed)) -> A {
        if answer.1.has(Owed::DIRTY) {
            self.dirty.push(hash);
        }
        self.note(answer)
    }

    /// The key of a holder, for a verb, and whether the records have it as dirty, too. They do only for a key that rests in a queue that is
    /// shut down; otherwise the step of the word says whether the key is dirty.
    fn hold(&mut self, node: NodeRef<K>) -> (Claimed<NodeRef<K>>, bool) {
        let is_resting = self.machine.is_resting(&node, node.hash()).is_some_and(|(is_resting, _)| is_resting);
        let is_dirty = is_resting && self.machine.is_shut_down() && node.word().load().is_dirty();
        (self.machine.hold_key(node, node.hash(), is_dirty), is_dirty)
    }

    /// Makes the step of the word, after a verb that has ended the hand-out of a key. Returns the answer, if the verb has added the key.
    /// `was_dirty`: the verb has queued the key because it was dirty. `is_held`: the verb has added the key, which cools down.
    fn settle_end(&mut self, node: NodeRef<K>, was_dirty: bool, is_held: bool) -> (Option<Added>, MaybeNanos) {
        // With a claim the node is vacant only after the lock, so that no other node leaves the cache and the map for it under the lock
        // (W4).
        self.claims.push(self.free.claim(node));
        let (popped, hash) = (self.machine.pop_dirty(), node.hash());
        let queues = popped.is_some() && !was_dirty;
        let is_held = is_held && popped.is_none();
        self.note(((), popped.map_or(Owed::NOTHING, |(_, owed)| owed)));
        let begin = (queues || is_held).then(|| self.free.begin());
        let note = self.note_of(node);
        let ended = || Some(self.free.note_and_end(node, note, begin, queues));
        let ended = self.shared.measured(self.free, node, ended);
        let ((added, what, owed), worked) = ended.expect("it always ends");
        if what == OnDone::Hold && !is_held {
            // The key rests, so it is not gone. If the queue was shut down meanwhile, this `done` came before that, so the add stays.
            self.machine.hold_back(&node, hash);
        }
        (self.note_dirty(hash, (added, owed)), worked)
    }

    fn end(self) {
        let Self { shared, free, mut machine, one, owed, dirty, mut claims, had_delays, .. } = self;
        machine.drop_counts();
        let mut wakes = WakeList::default();
        if owed.has(Owed::DEADLINE) {
            shared.first.set_driver_until(machine.until());
            if shared.settings.driver != Driver::Manual && !shared.flags().has(Flags::SHUT_DOWN) {
                let mut hub = shared.hub();
                hub.deadlines_told += 1;
                wakes.append(hub.call_driver(machine.until()));
            }
        }
        let has_no_delays = machine.is_shut_down() || machine.delayed() == 0;
        let mut garbage = owed.has(Owed::GARBAGE).then(|| machine.take_garbage());
        if let Some(garbage) = &mut garbage {
            for node in std::mem::take(&mut garbage.gone) {
                claims.push(free.claim(node));
                let _no_add = free.note(node, Note::NONE, None);
            }
        }
        drop((machine, one));
        if !wakes.is_empty() {
            shared.note_caught(wakes.wake());
        }
        // Waiters that wait for delays alone. If there were other keys, they have marked them before they took this lock.
        let is_over = had_delays && has_no_delays && shared.flags().has(Flags::DRAINERS) && !free.has_marks();
        fence_after_rmw(); // F10
        shared.pay_slowly(owed.and(Owed::only_if(is_over, Owed::DRAINED)), &dirty);
        drop(claims);
    }
}

impl<K> Shared<K> {
    fn records<'s>(&'s self, free: &'s Free<K>) -> Records<'s, K> {
        let machine = free.records.lock();
        // Read under the lock, which the shut-down takes after it has set the flag. Whether a wake-up is owed is found out at the end.
        let mode = Mode { is_open: !self.is_shutting_down(), ..Mode::PLAIN };
        Records {
            shared: self,
            free,
            had_delays: machine.delayed() > 0,
            machine,
            one: OneShard::begin(),
            mode,
            owed: Owed::NOTHING,
            dirty: Vec::new(),
            claims: Vec::new(),
        }
    }

    #[inline(always)]
    fn pay(&self, owed: Owed, hash: KeyHash) {
        if owed != Owed::NOTHING {
            fence_after_rmw(); // F10
            if owed != Owed::READY_ONE || self.flags().has(Flags::GETTERS) {
                self.pay_slowly(owed, &[hash]);
            }
        }
    }

    #[cold]
    fn pay_slowly(&self, owed: Owed, dirty: &[KeyHash]) {
        if owed.has(Owed::READY) {
            self.wake_getters(owed.ready() as usize);
        }
        if owed.has(Owed::DRAINED) {
            self.pay_drained();
        }
        if owed.has(Owed::DIRTY) {
            dirty.iter().for_each(|hash| self.hub().wake_tasks(Event::DirtyNode(*hash)));
        }
        if owed.has(Owed::ROOM) {
            self.pay_room(1);
        }
    }

    /// Wakes those who wait for the end of the work, so that they look again.
    fn pay_drained(&self) {
        let mut hub = self.hub();
        let drainers = hub.life_cycle.take_drainers();
        hub.wakes.append(drainers);
    }

    /// Wakes adds that wait for room, as many as there are new places.
    fn pay_room(&self, places: u64) {
        self.bound.iter().for_each(|bound| self.note_caught(bound.next(places).wake()));
    }

    /// Called after a call has taken keys back.
    fn sweep(&self, free: &Free<K>) {
        if free.sweep_if_due() {
            self.wake_getters(usize::MAX);
        }
    }

    // ---- hot calls

    /// `add` without a delay.
    #[inline(never)]
    pub(super) fn free_add(this: &Arc<Self>, free: &Free<K>, key: K, hash: KeyHash, wakes: bool) -> Added
    where
        K: Hash + Eq,
    {
        let mut hand = Some(key); // dropped at the end, because its drop may panic or use the queue
        if this.bound.is_none() {
            return Self::free_add_in(this, free, &mut hand, hash, wakes, None);
        }
        let added = Self::free_try_add(this, free, &mut hand, hash, wakes);
        if added == Added::Full {
            this.note_full();
        }
        added
    }

    /// The same for a call that keeps a key that is [`Full`](Added::Full), and tells nobody of it.
    #[cold]
    pub(super) fn free_try_add(
        this: &Arc<Self>,
        free: &Free<K>,
        hand: &mut Option<K>,
        hash: KeyHash,
        wakes: bool,
    ) -> Added
    where
        K: Hash + Eq,
    {
        match this.free_room(free, hand, hash) {
            Ok(room) => Self::free_add_in(this, free, hand, hash, wakes, room),
            Err(full) => full,
        }
    }

    /// Room for the key in the hand, if it needs some. The step that makes a key known counts it, so the room is given back after that.
    fn free_room(&self, free: &Free<K>, hand: &Option<K>, hash: KeyHash) -> Result<Option<Room<'_>>, Added>
    where
        K: Eq,
    {
        let key = hand.as_ref().expect("an add has a key in its hand");
        match &self.bound {
            Some(bound) if !self.is_shutting_down() && !free.is_known(key, hash) => {
                bound.enter().map(Some).ok_or(Added::Full)
            }
            _ => Ok(None),
        }
    }

    #[inline(always)]
    fn free_add_in(
        this: &Arc<Self>,
        free: &Free<K>,
        hand: &mut Option<K>,
        hash: KeyHash,
        wakes: bool,
        room: Option<Room<'_>>,
    ) -> Added
    where
        K: Hash + Eq,
    {
        let added = match free.add(hand, hash, || !this.is_shutting_down()) {
            Tried::Done(added, owed) => {
                if wakes || owed != Owed::READY_ONE {
                    this.pay(owed, hash);
                }
                added
            }
            Tried::Held(claim) => this.add_by_records(free, &claim, How::NOW),
        };
        drop(room);
        if this.has_extras() {
            fence_after_rmw(); // W6
            Self::after_add(this, added);
        }
        added
    }

    /// `try_get`.
    #[inline(never)]
    pub(super) fn free_take(this: &Arc<Self>, free: &Free<K>) -> Option<Claimed<K>> {
        if this.is_paused() {
            return None;
        }
        let taken = this.free_taken(free, free.take()?);
        Some(Self::hand_out(this, taken))
    }

    /// A key that was taken out of the line.
    #[inline(always)]
    pub(super) fn free_taken(&self, free: &Free<K>, node: NodeRef<K>) -> Taken<K> {
        let is_measured = self.flags().has(Flags::MEASURED);
        let waited = if is_measured { free.note_start(node) } else { MaybeNanos::UNKNOWN };
        Taken { claimed: Claimed::of_node(node), waited }
    }

    /// Ends a hand-out and measures it, unless `end` returns `None`, which means that it has not ended.
    #[inline(always)]
    fn measured<A>(
        &self,
        free: &Free<K>,
        node: NodeRef<K>,
        end: impl FnOnce() -> Option<A>,
    ) -> Option<(A, MaybeNanos)> {
        let is_measured = self.flags().has(Flags::MEASURED);
        let worked = if is_measured { free.worked(node) } else { MaybeNanos::UNKNOWN };
        let ended = end()?;
        if is_measured {
            free.note_end(worked);
        }
        Some((ended, worked))
    }

    /// `done`, `succeed` and `give_up`.
    #[inline(never)]
    pub(super) fn free_end(&self, free: &Free<K>, claimed: Claimed<K>, end: End) {
        let (node, hash) = (claimed.node(), claimed.hash());
        match self.measured(free, node, || free.end(node, end)) {
            Some((owed, worked)) => {
                self.pay(owed, hash);
                if self.has_extras() {
                    self.tell_done(worked, false);
                }
            }
            None => self.end_by_records(free, node, end),
        }
    }

    #[cold]
    fn end_by_records(&self, free: &Free<K>, node: NodeRef<K>, end: End) {
        let on_its_way = free.begin(); // as in `free_expire`
        let mut records = self.records(free);
        let (claimed, was_dirty) = records.hold(node);
        let _ended = records.verb(|machine, mode| machine.done(&mut None, claimed, end, 0, mode));
        let (_added, worked) = records.settle_end(node, was_dirty, false);
        let has_added = records.owed.has(Owed::ADDED);
        drop(on_its_way);
        records.end();
        if self.has_extras() {
            self.tell_done(worked, has_added);
        }
    }

    // ---- adds that the records see

    /// `add_with`.
    pub(super) fn free_add_with(this: &Arc<Self>, free: &Free<K>, key: K, mut options: AddOptions) -> Added
    where
        K: Hash + Eq,
    {
        assert!(Self::has_no_level(&mut options), "{NO_PRIORITIES}");
        let is_plain = options.delay.is_none() && !options.rate_limited;
        let options = if options.rate_limited { this.limited(&key, options) } else { options };
        let hash = this.hash(&key);
        if is_plain && options.conflict == DelayConflict::EarliestWins {
            return Self::free_add(this, free, key, hash, true);
        }
        let how = this.how(&options);
        let mut hand = Some(key); // as in `free_add`
        let room = if how.is_retry() { Ok(None) } else { this.free_room(free, &hand, hash) };
        if let Err(full) = room {
            this.note_full();
            return full;
        }
        let claim = free.find_or_insert(&mut hand, hash);
        let added = this.add_by_records(free, &claim, how);
        drop((claim, room));
        if this.has_extras() {
            fence_after_rmw(); // W6
            Self::after_add(this, added);
        }
        added
    }

    fn has_no_level(options: &mut AddOptions) -> bool {
        if cfg!(keyqueue_lock_free) {
            options.priority = None; // the tests of queues with priorities find a plain one
        }
        !options.has_level()
    }

    fn add_by_records(&self, free: &Free<K>, claim: &Claim<'_, K>, how: How<'_>) -> Added {
        // If the queue is shut down, the add is refused, so those who wait for the end of the work need not wait for it.
        let (node, begin) = (claim.node, (!self.is_shutting_down()).then(|| free.begin()));
        let mut records = self.records(free);
        let add =
            |machine: &mut Machine<_>, mode| machine.add(&mut Some(node), node.hash(), Group::default(), how, mode);
        let added = records.verb(add);
        let added = records.settle(node, begin).unwrap_or(added);
        records.end();
        added
    }

    /// `try_requeue`.
    pub(super) fn free_requeue(
        this: &Arc<Self>,
        free: &Free<K>,
        claimed: Claimed<K>,
        mut options: AddOptions,
        end: End,
    ) -> Result<Added, Claimed<K>> {
        if !Self::has_no_level(&mut options) {
            this.done(claimed);
            panic!("{NO_PRIORITIES}");
        }
        let (how, node) = (this.how(&options), claimed.node());
        let on_its_way = free.begin(); // as in `free_expire`
        let mut records = this.records(free);
        if how.may_delay() && records.mode.is_open && !records.machine.has_room_for_delay() {
            drop(on_its_way);
            records.end();
            this.refuse_requeue(claimed);
        }
        let (held, was_dirty) = records.hold(node);
        match records.verb(|machine, mode| machine.requeue(&mut None, held, how, end, mode)) {
            Ok(added) => {
                let (answer, worked) = records.settle_end(node, was_dirty, added == Added::Deferred);
                let added = answer.unwrap_or(added);
                let has_added = records.owed.has(Owed::ADDED);
                drop(on_its_way);
                records.end();
                fence(Ordering::SeqCst); // W6
                Self::after_requeue(this, None, added, worked, has_added);
                Ok(added)
            }
            Err(held) => {
                // The key is still held, and its owner calls `done`.
                let _ended = records.verb(|machine, mode| machine.done(&mut None, held, End::Done, 0, mode));
                let _as_it_is_dirty = records.machine.pop_dirty();
                let _none = records.settle(node, None);
                drop(on_its_way);
                records.end();
                // An add that has found the queue open may still make the key dirty. Then the key comes back, and its owner must not list
                // it.
                while !free.is_settled(free.settled()) {
                    give_way();
                }
                Err(claimed)
            }
        }
    }

    /// `rest`.
    pub(super) fn free_rest(&self, free: &Free<K>, claimed: &Claimed<K>, now: u64, time: u64) {
        let node = claimed.node();
        let mut records = self.records(free);
        if records.mode.is_open {
            let (held, _) = records.hold(node);
            records.verb(|machine, _| ((), machine.rest(&held, now, time)));
            let _ended = records.verb(|machine, mode| machine.done(&mut None, held, End::Done, 0, mode));
            let _none = records.settle(node, None);
        }
        records.end();
    }

    // ---- calls on keys

    pub(super) fn free_cancel<Q>(&self, free: &Free<K>, key: &Q, hash: KeyHash) -> Cancelled
    where
        K: Eq,
        Q: Equivalent<K> + ?Sized,
    {
        let Some(claim) = free.find(key, hash).filter(|claim| claim.node.word().load().is_noted()) else {
            return Cancelled::Nothing;
        };
        let node = claim.node;
        let mut records = self.records(free);
        let cancelled = records.verb(|machine, mode| machine.cancel(&mut None, &node, hash, mode));
        let added = records.settle(node, None);
        records.end();
        added.map_or(cancelled, Cancelled::Added)
    }

    pub(super) fn free_remove<Q>(&self, free: &Free<K>, key: &Q, hash: KeyHash) -> bool
    where
        K: Eq,
        Q: Equivalent<K> + ?Sized,
    {
        let Some(claim) = free.find(key, hash) else { return false };
        let node = claim.node;
        let mut was_there;
        if node.word().load().is_noted() {
            let mut records = self.records(free);
            was_there = records.verb(|machine, mode| machine.remove(&mut None, &node, hash, mode));
            let _none = records.settle(node, None);
            // Under the lock, so that no expiry comes between the two.
            let taken = free.take_out(node, |bits| bits.is_dirty());
            was_there |= records.note(taken).is_some();
            records.end();
        } else {
            let (taken, owed) = free.take_out(node, |bits| bits.is_dirty());
            was_there = taken.is_some();
            self.pay(owed, hash);
        }
        drop(claim);
        self.sweep(free);
        was_there
    }

    pub(super) fn free_forget<Q>(&self, free: &Free<K>, key: &Q, hash: KeyHash)
    where
        K: Eq,
        Q: Equivalent<K> + ?Sized,
    {
        let Some(claim) = free.find(key, hash).filter(|claim| claim.node.word().load().is_noted()) else { return };
        let node = claim.node;
        let mut records = self.records(free);
        let _had_failed = records.verb(|machine, mode| machine.forget_failures(&mut None, &node, hash, mode));
        let _none = records.settle(node, None);
        records.end();
    }

    pub(super) fn free_failures<Q>(&self, free: &Free<K>, key: &Q, hash: KeyHash) -> u32
    where
        K: Eq,
        Q: Equivalent<K> + ?Sized,
    {
        free.find(key, hash).map_or(0, |claim| Self::free_failures_of(free, claim.node))
    }

    /// Failures of a key that the caller holds or has a claim on.
    pub(super) fn free_failures_of(free: &Free<K>, node: NodeRef<K>) -> u32 {
        if node.word().load().is_noted() { free.records.lock().failures(&node, node.hash()) } else { 0 }
    }

    /// Whether a failure after the last retry has given up a key that the caller holds.
    pub(super) fn free_is_given_up(free: &Free<K>, node: NodeRef<K>) -> bool {
        node.word().load().is_noted() && free.records.lock().is_known_given_up(&node, node.hash())
    }

    pub(super) fn free_poll_dirty(&self, claimed: &Claimed<K>, ticket: &mut Option<TaskTicket>, waker: Waker) -> bool {
        // The waiter goes on the list before the step, so that an add that makes the key dirty after the step finds it there.
        let older = self.hub().tasks.insert(Event::DirtyNode(claimed.hash()), ticket, waker);
        self.discard(older);
        let wait = |bits: Bits| if bits.is_dirty() { (bits, true) } else { (bits.await_dirty(), false) };
        let is_dirty = claimed.node().word().step(wait).1;
        if is_dirty {
            self.leave_tasks(ticket.take());
        }
        is_dirty
    }

    // ---- expiry

    /// Adds some of the keys whose delays have expired.
    pub(super) fn free_expire(&self, free: &Free<K>, now: u64, at_most: usize) -> Expired {
        // Begun before it is known that the queue is open, until the last push, so that nobody is told meanwhile that nothing is left (F9).
        // The add ends before the wake-ups, because a waker is foreign code, which may wait until no add is under way (W4).
        let on_their_way = free.begin();
        let mut records = self.records(free);
        let mut expired = records.verb(|machine, mode| machine.expire(now, at_most, mode));
        expired.by_answer = [0; 3];
        while let Some((node, owed)) = records.machine.pop_dirty() {
            records.note(((), owed));
            // Read before the step, after which the key may be handed out and done, and its node gone.
            let (hash, note, begin) = (node.hash(), records.note_of(node), Some(free.begin()));
            let answer = free.note(node, note, begin);
            let added = records.note_dirty(hash, answer);
            expired.by_answer[match added {
                Some(Added::Queued) => 0,
                Some(Added::Deferred) => 1,
                _ => 2,
            }] += 1;
        }
        if !expired.has_more {
            // After the shut-down nothing expires.
            self.first.set_driver_until(if records.mode.is_open { records.machine.until() } else { NEVER });
        }
        drop(on_their_way);
        records.end();
        expired
    }

    // ---- getters that wait

    /// Looks for a key. The getter is on the list already, unless this is its last look.
    pub(super) fn free_visit(&self, free: &Free<K>, visit: Visit) -> Visited<K> {
        fence(Ordering::SeqCst); // F10
        let settings = &self.settings;
        let expires = visit != Visit::Last && settings.driver == Driver::Thread && settings.clock.is_for_getters();
        if expires && self.first.driver_until() < NEVER && self.first.driver_until() <= settings.clock.now() {
            let turn = self.free_expire(free, settings.clock.now(), BY_GETTER);
            self.tell_expired_as_getter(Some(turn));
        }
        if self.is_paused() {
            return Visited { found: None, passed_by: false, handed_out: free.handed_out() };
        }
        loop {
            let settled = free.settled();
            if let Some(node) = free.take() {
                let found = Some(Wait::Item(self.free_taken(free, node)));
                return Visited { found, passed_by: false, handed_out: 0 };
            }
            // An add that is under way may still take effect, so the getter comes back.
            let is_shut_down = self.is_shutting_down();
            let is_over = is_shut_down && free.conclude(settled);
            let found = if is_over { Some(Wait::ShutDown) } else { None };
            if is_shut_down && !is_over {
                give_way();
            }
            if found.is_some() || !is_shut_down || visit != Visit::BeforeLongPark {
                return Visited { found, passed_by: is_shut_down, handed_out: free.handed_out() };
            }
        }
    }

    // ---- the end of the work

    /// Called after the flag was set. From here on each add sees it or was begun before (F9), and nothing expires.
    pub(super) fn free_close(&self, free: &Free<K>) {
        fence(Ordering::SeqCst);
        let mut records = self.records(free);
        let _drained = records.machine.shut_down(); // as always
        records.end();
    }

    /// See [`look`](Self::look). The waiter goes on the list, and then each key that is queued or processing is marked, so that the step
    /// that ends the work of the last one wakes the waiter. If there was no such key, and no add was under way from the beginning to the
    /// end of the look, then the work was over at its end.
    pub(super) fn free_look(&self, free: &Free<K>, goal: WaitGoal, waiter: Option<Waiter>) -> Look {
        let mut ticket = None;
        {
            let mut hub = self.hub();
            if matches!(goal, WaitGoal::Drained { released } if released != hub.life_cycle.released) {
                return Look::Over;
            }
            if let Some(waiter) = waiter {
                ticket = Some(hub.life_cycle.wait_for(0, waiter));
            }
        }
        let settled = free.settled();
        let (is_active, owed) = free.mark();
        // Delays are looked at after the marks, because a key that was active may be delayed meanwhile, and before the sum, which sees an
        // expiry. The flag is read after the lock, which a shut-down takes after it has set the flag.
        let has_delays = goal == WaitGoal::Idle && free.records.lock().delayed() > 0;
        let has_work = is_active || has_delays && self.delays_count(goal);
        let is_over = !has_work
            && match goal {
                WaitGoal::Drained { .. } => free.conclude(settled),
                WaitGoal::Idle => free.is_settled(settled),
            };
        if is_over || !has_work {
            self.leave_drainers(ticket.take());
        }
        if owed.has(Owed::DRAINED) {
            self.pay_drained(); // those that were marked have ended meanwhile
        }
        match (is_over, has_work, ticket) {
            (true, ..) => Look::Over,
            (_, false, _) => {
                give_way(); // to the add that is on its way
                Look::Unknown
            }
            (.., Some(ticket)) => Look::Listed(ticket),
            (.., None) => Look::NotYet,
        }
    }

    // ---- looks

    /// Looks at a key at one moment: in one reading of its word, or under the lock of the records if these know the key.
    pub(super) fn free_see_key<Q>(free: &Free<K>, key: &Q, hash: KeyHash) -> Option<KeySeen>
    where
        K: Eq,
        Q: Equivalent<K> + ?Sized,
    {
        let claim = free.find(key, hash)?;
        let (node, mut bits) = (claim.node, claim.node.word().load());
        let mut seen = KeySeen::default();
        if bits.is_noted() {
            let records = free.records.lock();
            seen = records.see_key(&node, hash).unwrap_or_default();
            bits = node.word().load(); // at the same time as what the records know
        }
        (seen.is_dirty, seen.is_processing) = (bits.is_dirty(), bits.is_processing());
        if let Some(times) = node.times() {
            seen.queued_at = times.queued_at().filter(|_| seen.is_dirty);
            seen.started_at = times.started_at().filter(|_| seen.is_processing);
        }
        seen.slot = seen.is_processing.then(|| node.id());
        Some(seen)
    }

    /// Calls `each` with the delayed keys, under the lock of the records.
    pub(super) fn free_each_delayed(&self, free: &Free<K>, mut each: impl FnMut(Delay, &K)) {
        in_steps(|at| {
            free.records.lock().look(at, Which::Delayed, |view| each(view.delay().expect("delayed"), view.key().key()))
        });
    }

    /// As [`find_where`](Self::find_where): claims come first, and clones and the predicate after that, without a lock.
    pub(super) fn free_find<'s>(
        &'s self,
        free: &'s Free<K>,
        which: Which,
        matches: &mut impl FnMut(&K) -> bool,
    ) -> Vec<Found<'s, K>>
    where
        K: Clone,
    {
        let claims = free.each(|bits| bits.is_noted() || which == Which::All && bits.is_active());
        let mut found = Vec::new();
        for (claim, mut bits) in claims {
            let (node, mut delay) = (claim.node, None);
            if bits.is_noted() {
                let records = free.records.lock();
                delay = records.seen_delay(&node, node.hash());
                bits = node.word().load(); // at the same time as the delay
            }
            let push = bits.is_queued().then(|| (node.order(), bits.number().into()));
            let mut seen = Seen::of_node(node.id(), push, bits.is_processing());
            if let Some(delay) = delay {
                seen = seen.with_delay_of(&delay);
            } else if which == Which::Delayed || !bits.is_active() {
                continue;
            }
            let seen = if which == Which::Delayed { seen.delay_alone() } else { seen };
            let (key, group) = (node.key().clone(), (0, 1));
            if matches(&key) {
                let mut one =
                    Found { shard: 0, seen, claim: Some(claim), group, key, for_delay: None, is_active: false };
                one.clone_for_delay();
                found.push(one);
            }
        }
        found
    }

    /// Takes out the keys that were found, if they still are as they were seen.
    pub(super) fn free_take_found(&self, free: &Free<K>, found: &[Found<'_, K>], takes: &mut Vec<TakenOut>) {
        let mut owed = Owed::NOTHING;
        for found in found {
            let node = found.claim.as_ref().expect("found in a lock-free queue").node;
            let is_it = |bits: Bits| Some(bits.number()) == found.seen.push_number() && bits.is_queued();
            let mut taken = TakenOut { was_queued: false, delay: None, is_active: false };
            if found.seen.is_delayed() {
                let mut records = self.records(free);
                let seen = found.seen.delay_alone();
                taken.delay = records.verb(|machine, mode| machine.take_out(&mut None, seen, mode)).delay;
                let _none = records.settle(node, None);
                let queued = free.take_out(node, is_it);
                taken.was_queued = records.note(queued).is_some();
                records.end();
            } else {
                let (bits, more) = free.take_out(node, is_it);
                taken.was_queued = bits.is_some();
                owed = owed.and(more);
            }
            taken.is_active = !taken.was_queued && node.word().load().is_active();
            takes.push(taken);
        }
        if owed.has(Owed::DRAINED) {
            self.pay_drained();
        }
        if owed.has(Owed::ROOM) {
            self.pay_room(found.len() as u64);
        }
        self.sweep(free);
    }

    /// `shrink_to_fit`.
    pub(super) fn free_shrink(&self, free: &Free<K>) {
        free.shrink();
        in_steps(|at| {
            let mut records = self.records(free);
            let next = records.verb(|machine, _| machine.shrink(at));
            records.end();
            next
        });
    }

    /// The keys that are processing.
    pub(super) fn free_processing_keys(&self, free: &Free<K>) -> Vec<(K, Option<Duration>)>
    where
        K: Clone,
    {
        let (claims, now) = (free.each(|bits| bits.is_processing()), self.settings.clock.now());
        let age_of = |node: NodeRef<K>| {
            let started_at = node.times()?.started_at().unwrap_or(now);
            Some(Duration::from_nanos(now.saturating_sub(started_at)))
        };
        let mut keys: Vec<_> = claims.iter().map(|(claim, _)| (claim.node.key().clone(), age_of(claim.node))).collect();
        keys.sort_by_key(|&(_, age)| std::cmp::Reverse(age)); // stable
        keys
    }

    /// Called by a stop in a queue that is shut down: waits until no add is under way any more.
    pub(super) fn free_settle(&self, free: &Free<K>) {
        while !free.conclude(free.settled()) {
            give_way();
        }
    }
}
