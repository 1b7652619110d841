//! The state that all handles of one queue share, and what every call on it needs.

use super::directory::Directory;
use super::hub::{Flags, Hub, HubGuard};
use super::last_errors::LastErrors;
use super::locked::{Front, Locked};
use super::pace::Pace;
use super::settings::{Limiter, Settings};
use super::waiters::{Event, TaskTicket};
use crate::bound::Bound;
use crate::coop;
#[cfg(feature = "lock-free")]
use crate::free::Free;
use crate::key::KeyHash;
use crate::machine::{Claimed, Machine, NEVER};
use crate::observe::{Observer, RunCounters};
use crate::order::{AnyOrder, Group, NO_NEW};
use crate::panics::{contained, drop_each};
use crate::random::SplitMix;
use crate::shared::driver::states::Driver;
use crate::sync::{
    Arc, AtomicU16, AtomicU64, Mutex, Ordering, counted_stamp, hasher, next_id, note_parallelism, stamp,
};
use crate::time::nanos;
use crate::wait::Waiter;
use crate::{Added, FairShare};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::task::Waker;

/// The arm of a call on a lock-free queue.
macro_rules! if_free {
    ($shared:expr, $free:ident => $call:expr) => {
        #[cfg(feature = "lock-free")]
        if let Some($free) = $shared.free() {
            return $call;
        }
    };
}
pub(super) use if_free;

/// When getters are woken for a key that becomes queued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakeups {
    /// At the end of the critical section that queues the key.
    Now,
    /// The caller wakes them, for many keys at once: [`Shared::wake_getters`].
    Later,
}

/// What all handles of one queue share.
pub(crate) struct Shared<K> {
    pub(crate) settings: Settings<K>,
    /// No other queue of the process has this number. The cursors of threads use it.
    pub(super) id: u64,
    /// The observer's interval in nanoseconds: see [`reports`](super::reports).
    pub(super) report_interval: u64,
    /// When the driver reports next. Written under the hub's lock.
    pub(super) report_at: AtomicU64,
    /// Starts the driver thread. It is a pointer, made where `K` is known to be `Send` and `Sync`.
    pub(super) start: fn(&Arc<Self>) -> std::io::Result<()>,
    pub(super) hasher: RandomState,
    /// The `add` of a queue that [is not single](Self::is_single). It is a pointer, so that hot calls of queues without groups need not ask
    /// whether there are some.
    pub(super) add_to_one_of_many: fn(&Arc<Self>, K, KeyHash, Wakeups) -> Added,
    /// In a queue with groups and several shards, where its keys are.
    pub(super) directory: Option<Box<Directory>>,
    /// In a queue with several shards, what gives the keys at their fronts a time.
    pub(super) stamp: Option<fn() -> u64>,
    /// [`Flags`]: written under the hub's lock.
    flags: AtomicU16,
    /// 0 if there is one shard and no other engine.
    others_to_test: usize,
    #[cfg(feature = "lock-free")]
    free: Option<Box<Free<K>>>,
    pub(super) first: Locked<K>,
    /// The shards after the first: none, unless the user has asked for them.
    pub(super) others: Box<[Locked<K>]>,
    pub(super) hub: CachePadded<Mutex<Hub>>,
    /// In a queue with several shards, when the lower levels have their next [turn](super::lower).
    pub(super) turn: CachePadded<AtomicU64>,
    /// In a queue with groups and several shards, the first round of each rank that a getter has seen last.
    fronts: Option<Box<[AtomicU64; 256]>>,
    /// In such a queue, the shard after that which had the last [lower](super::lower) turn of each level.
    pub(super) lower_shards: Option<Box<[AtomicU64; 256]>>,
    pub(super) pace: Option<Box<Pace>>,
    pub(super) last_errors: LastErrors,
    pub(crate) bound: Option<Arc<Bound>>,
}

// A panic leaves no step half done: a call that unwinds drops at most items, whose keys are then done, and keys that were not added yet. A
// queue, and all that refers to one, is therefore unwind-safe.
impl<K: RefUnwindSafe> UnwindSafe for Shared<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for Shared<K> {}

impl<K: Hash + Eq> Shared<K> {
    pub(crate) fn new(mut settings: Settings<K>, start: fn(&Arc<Self>) -> std::io::Result<()>) -> Self {
        note_parallelism();
        let numbers = settings.seed.map(SplitMix::new);
        let hasher = numbers.as_ref().map_or_else(hasher, SplitMix::hasher);
        if let (Some(numbers), Limiter::External(limiter)) = (numbers, &mut settings.limiter) {
            limiter.reseed(numbers.next());
        }
        let &Settings { shards, lock_free, ref clock, ref observer, ref order, .. } = &settings;
        let shards = if lock_free { 1 } else { shards }; // that engine has lines instead
        let (others_to_test, capacity) = if lock_free { (1, 0) } else { (shards - 1, settings.capacity) };
        let interval = observer.as_ref().and_then(|observer| observer.interval());
        let pace = settings.pace.and_then(|(rate, burst)| Pace::new(rate, burst)).map(Box::new);
        let bound = settings.max_keys.map(Bound::new).map(Arc::new);
        let flags = [
            (settings.measure || observer.is_some(), Flags::MEASURED),
            (observer.is_some(), Flags::OBSERVED),
            (order.group_of.is_some(), Flags::ORDERED),
            (order.limit.is_some() || order.limits_of.is_some(), Flags::LIMITED),
            (pace.is_some(), Flags::PACED),
            (bound.is_some(), Flags::BOUNDED),
            (lock_free, Flags::FREE),
        ];
        let flags = Flags(flags.into_iter().map(|(is_set, flag)| if is_set { flag.0 } else { 0 }).sum());
        let measured = flags.has(Flags::MEASURED);
        if measured || order.limits_of.is_some() || order.shares == FairShare::WorkTime {
            clock.calibrate();
        }
        if clock.is_given() {
            coop::begin_anew(); // what this thread did with other queues makes no difference (P27)
        }
        let stamp: fn() -> u64 = if clock.is_given() { counted_stamp } else { stamp };
        let stamp = (shards > 1).then_some(stamp);
        stamp.into_iter().for_each(|stamp| _ = stamp()); // the first call takes long
        let is_strict = order.strict || shards > 1; // the turn of the lower levels is the queue's
        let has_directory = order.has_groups() && shards > 1;
        let new_shard = |index| {
            let queued = match order.group_of.is_some() {
                true => AnyOrder::groups(order.shares, !is_strict, order.strict),
                false => AnyOrder::new(is_strict),
            };
            let mut machine = Machine::new(queued, settings.delayed_add, capacity / shards);
            if measured {
                machine.measure(clock.is_given()); // the same each time (P27)
            }
            if stamp.is_some() {
                machine.want_stamps();
            }
            if has_directory {
                machine.want_forgotten();
            }
            Locked::new(index, if shards == 1 { Mutex::new(machine) } else { Mutex::one_of_many(machine) })
        };
        #[cfg(feature = "lock-free")]
        let free = lock_free.then(|| {
            let records = Machine::new(AnyOrder::new(false), settings.delayed_add, 0);
            let clock = measured.then(|| settings.clock.clone());
            Box::new(Free::new(records, settings.capacity, settings.shards, clock, bound.clone()))
        });
        let by_level = || has_directory.then(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))));
        let (fronts, lower_shards) = (by_level(), by_level());
        Self {
            id: next_id(),
            others_to_test,
            #[cfg(feature = "lock-free")]
            free,
            first: new_shard(0),
            others: (1..shards).map(new_shard).collect(),
            report_interval: interval.map_or(NEVER, nanos),
            report_at: AtomicU64::new(NEVER),
            settings,
            start,
            hasher,
            add_to_one_of_many: if has_directory { Self::add_to_its_group } else { Self::add_to_one_of_many },
            directory: has_directory.then(|| Box::new(Directory::new())),
            stamp,
            flags: AtomicU16::new(flags.0),
            hub: CachePadded::new(Mutex::new(Hub::default())),
            turn: CachePadded::default(),
            fronts,
            lower_shards,
            pace,
            last_errors: LastErrors::default(),
            bound,
        }
    }

    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> KeyHash {
        KeyHash(self.wide_hash(key) as u32)
    }

    /// The index of the shard to which a new key goes.
    pub(crate) fn shard_index(&self, key: &K) -> usize {
        match &self.directory {
            Some(_) => self.shard_of_group(self.group_of(key)),
            None => self.hash(key).shard(self.settings.shards),
        }
    }
}

impl<K> Shared<K> {
    /// The hash of which the queue takes the low half.
    #[inline]
    #[allow(
        clippy::manual_hash_one,
        reason = "with a nightly compiler, `ahash` has other hashes for some types there: a key and what it is looked up by would have different ones"
    )]
    pub(crate) fn wide_hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// The lock-free engine, if the queue has it.
    #[cfg(feature = "lock-free")]
    #[inline(always)]
    pub(crate) fn free(&self) -> Option<&Free<K>> {
        self.free.as_deref()
    }

    /// Whether there is one shard and no other engine, which hot calls test.
    #[inline(always)]
    pub(super) fn is_single(&self) -> bool {
        self.others_to_test == 0
    }

    /// The number of shards.
    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.others.len() + 1
    }

    /// All shards.
    #[inline]
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = &Locked<K>> {
        (0..self.shards()).map(|index| self.at(index))
    }

    /// The shard of this index.
    #[inline]
    pub(super) fn at(&self, index: usize) -> &Locked<K> {
        if index == 0 { &self.first } else { &self.others[index - 1] }
    }

    /// The group of a key, with the limits that the builder's functions give.
    pub(crate) fn group_of(&self, key: &K) -> Group {
        self.settings.order.ask(key, &self.hasher, &self.settings.clock)
    }

    /// In a queue with several shards, the index of the one that has the keys of a group. It comes from other bits of the hash than those
    /// by which the shard finds the group.
    #[inline]
    pub(super) fn shard_of_group(&self, group: Group) -> usize {
        (group.hash >> 32) as usize & (self.shards() - 1)
    }

    /// Whether a key has to be looked up by its name in the directory, because there are groups and several shards.
    #[inline(always)]
    pub(super) fn has_names(&self) -> bool {
        !self.is_single() && self.directory.is_some()
    }

    /// Looks for a key in each shard where it may be, with its hash there, until the answer is `Some`. `own` is the key's own hash.
    #[inline]
    pub(super) fn look_up<T>(&self, own: KeyHash, mut look: impl FnMut(&Locked<K>, KeyHash) -> Option<T>) -> Option<T> {
        if self.has_names() { self.look_up_names(own, look) } else { look(self.shard_of(own), own) }
    }

    /// The same in a queue with a directory.
    #[cold]
    fn look_up_names<T>(&self, own: KeyHash, mut look: impl FnMut(&Locked<K>, KeyHash) -> Option<T>) -> Option<T> {
        let mut named = self.directory.as_ref()?.ask(own);
        named.find_map(|index| look(self.at(index), own.in_shard(index)))
    }

    /// The shard that has the keys of this hash, in a queue without a [directory](Self::directory).
    #[inline]
    pub(super) fn shard_of(&self, hash: KeyHash) -> &Locked<K> {
        if self.is_single() { &self.first } else { self.at(hash.shard(self.shards())) }
    }

    /// The shard that has a key that the caller holds.
    #[inline]
    pub(super) fn home(&self, claimed: &Claimed<K>) -> &Locked<K> {
        if self.is_single() { &self.first } else { self.at(claimed.hash().shard(self.shards())) }
    }

    /// The first round of this priority that a getter has seen last, in a queue with groups.
    pub(super) fn front_of(&self, priority: i8) -> u64 {
        let front = self.fronts.as_ref().map(|fronts| &fronts[usize::from(Front::rank_of(priority) as u8)]);
        front.map_or(0, |front| front.load(Ordering::Relaxed)) // Relaxed: only the order of hand-outs depends on it
    }

    /// Notes the first front of all shards by their rounds, in a queue with groups.
    pub(super) fn note_front(&self, front: Front) {
        let Some(fronts) = &self.fronts else { return };
        let noted = &fronts[usize::from(front.rank() as u8)];
        // Relaxed: as above. It is written once in a round of all groups, or a few times more.
        let time = front.stamp() & !NO_NEW;
        if noted.load(Ordering::Relaxed) < time {
            noted.store(time, Ordering::Relaxed);
        }
    }

    /// Whether keys have groups and shards, so that fronts are rounds.
    #[inline]
    pub(super) fn has_rounds(&self) -> bool {
        self.fronts.is_some()
    }

    /// Whether a call has more to do after the lock, because there is an observer or the driver thread has to be started.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.flags().has(Flags::EXTRAS)
    }

    /// Calls the observer, if there is one, without the lock (P17).
    #[inline]
    pub(crate) fn tell(&self, of: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.settings.observer {
            of(&**observer);
        }
    }

    /// Counts panics of foreign code that were caught.
    pub(crate) fn note_caught(&self, panics: usize) {
        if panics > 0 {
            self.hub().counts.caught_panics += panics as u64;
        }
    }

    /// The holder of a key has panicked.
    #[cold]
    pub(crate) fn note_panic(&self) {
        self.hub().counts.panics += 1;
        self.tell(|observer| observer.panicked());
    }

    /// Calls foreign code. A panic is caught and counted.
    pub(crate) fn contain<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        let answer = contained(call);
        self.note_caught(usize::from(answer.is_none()));
        answer
    }

    /// Whether there is an observer.
    pub(crate) fn is_observed(&self) -> bool {
        self.settings.observer.is_some()
    }

    /// The number of queued keys that a getter may take.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        if_free!(self, free => free.ready());
        self.first.len() + self.others.iter().map(Locked::len).sum::<usize>()
    }

    /// The number of queued keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if_free!(self, free => free.len());
        if self.settings.order.has_groups() { self.all().map(Locked::total).sum() } else { self.ready() }
    }

    /// The number of tokens of the [pace](super::pace) that are there.
    #[cold]
    pub(super) fn tokens(&self) -> usize {
        self.pace.as_ref().map_or(usize::MAX, |pace| pace.tokens(self.settings.clock.now()).count)
    }

    /// Locks the hub.
    pub(super) fn hub(&self) -> HubGuard<'_> {
        HubGuard::new(&self.hub, &self.flags)
    }

    /// Whether an event has come. If not, puts the task on the list of those that wait for it, and sets `ticket`.
    pub(super) fn poll_event(
        &self,
        of: Event,
        ticket: &mut Option<TaskTicket>,
        waker: &Waker,
        has_come: impl FnOnce(&Hub) -> bool,
    ) -> bool {
        // Dropped after the lock, because wakers are foreign code (W4).
        let waker = waker.clone();
        let mut hub = self.hub();
        if has_come(&hub) {
            return true;
        }
        let older = hub.tasks.insert(of, ticket, waker);
        drop(hub);
        self.discard(older);
        false
    }

    /// Drops a waiter that need not be woken, without the lock (W4).
    #[inline]
    pub(crate) fn discard(&self, waiter: Option<Waiter>) {
        if let Some(waiter @ Waiter::Task(_)) = waiter {
            self.note_caught(drop_each([waiter]));
        }
    }

    /// For a task that no longer waits for its event.
    pub(crate) fn leave_tasks(&self, ticket: Option<TaskTicket>) {
        let listed = ticket.and_then(|ticket| self.hub().tasks.remove(ticket));
        self.discard(listed); // after the lock (W4)
    }

    /// Wakes the driver thread, or asks for it, if it is to come at this time. Without one, `turn` looks by itself.
    pub(super) fn wake_driver_for(&self, at: u64, hub: &mut HubGuard<'_>) {
        if self.settings.driver == Driver::Thread {
            let called = hub.call_driver(at);
            hub.wakes.append(called);
        }
    }

    /// Adds or removes one who counts the runs of the queue's workers.
    pub(crate) fn count_runs<T>(&self, change: impl FnOnce(&mut RunCounters) -> T) -> T {
        change(&mut self.hub.lock().runs)
    }

    /// The flags. A call reads them while it holds the shard in which it takes effect: see [`hub`](super::hub).
    #[inline]
    pub(super) fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::Relaxed)) // Relaxed: the shard's lock orders it
    }

    /// The same. If adds are refused, the caller sees what happened before the shut-down.
    #[inline]
    pub(super) fn flags_acquired(&self) -> Flags {
        Flags(self.flags.load(Ordering::Acquire)) // pairs with the release in `HubGuard::set`
    }

    /// Whether nothing is handed out: see [`pause`](super::pause).
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.flags().has(Flags::PAUSED)
    }

    /// Whether adds are refused. If so, the caller sees what happened before the shut-down.
    #[inline]
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.flags_acquired().has(Flags::SHUT_DOWN)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::machine::Mode;
    use crate::{Clock, WorkQueue};

    /// What the times of fronts are read from, if the clock is given (P27).
    #[test]
    fn the_fronts_of_a_queue_with_a_given_clock_are_counted() {
        let before = counted_stamp();
        let queue = WorkQueue::builder().shards(2).clock(Clock::mock().0).build();
        (0..200).for_each(|key| _ = queue.add(key));
        let after = counted_stamp();
        for locked in queue.shared.all() {
            let (_, stamp) = locked.lock().front(Mode::PLAIN).expect("with several shards");
            assert!((before..after).contains(&stamp), "{before} {stamp} {after}");
        }
    }

    /// The room for keys that a builder asks for is that of all shards together.
    #[test]
    fn each_shard_has_its_part_of_the_capacity() {
        let buckets = |shards, capacity| {
            let queue = WorkQueue::<u32>::builder().shards(shards).capacity(capacity).build();
            let each: Vec<_> = queue.shared.all().map(|locked| locked.lock().buckets().1).collect();
            assert_eq!(each, vec![each[0]; shards]);
            each[0]
        };
        assert_eq!(buckets(4, 40_000), buckets(1, 10_000));
        assert!(buckets(1, 10_000) > buckets(1, 0));
    }
}
