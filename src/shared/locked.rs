//! A shard with its lock, and what other threads read of it without the lock.

use crate::key::{KeyHash, prefetch_bucket};
use crate::machine::{Machine, Mode, NEVER};
use crate::order::{NO_NEW, NORMAL, Words, level_of, priority_of};
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Deref;

/// One shard.
pub(super) struct Locked<K> {
    /// Its number in the queue, from 0.
    pub(super) index: usize,
    machine: CachePadded<Mutex<Machine<K>>>,
    published: CachePadded<Published>,
    /// Where the table's buckets are, and how many, for `add_with`. Written under the lock, and may be out of date.
    buckets: CachePadded<(AtomicUsize, AtomicUsize)>,
    /// The number of critical sections so far.
    #[cfg(keyqueue_steps)]
    steps: std::sync::atomic::AtomicU64,
    /// How often the lock was taken, or tried without waiting.
    #[cfg(all(test, not(loom)))]
    pub(super) looks: AtomicUsize,
    /// If not 0, a getter that does not wait finds the lock held at all looks except those whose number this divides.
    #[cfg(all(test, not(loom)))]
    pub(super) held_unless: AtomicUsize,
}

/// The lock of a shard, for a call that only looks at its machine. Verbs take a [section](super::section).
pub(super) struct Held<'l, K> {
    pub(super) locked: &'l Locked<K>,
    pub(super) machine: MutexGuard<'l, Machine<K>>,
    pub(super) one: OneShard,
}

impl<K> Held<'_, K> {
    /// The machine, for what is not published and owes nothing: the times of keys, and marks of them.
    #[inline(always)]
    pub(super) fn marks(&mut self) -> &mut Machine<K> {
        &mut self.machine
    }
}

impl<K> Deref for Held<'_, K> {
    type Target = Machine<K>;

    #[inline(always)]
    fn deref(&self) -> &Machine<K> {
        &self.machine
    }
}

/// In a debug build, asserts that a thread holds one shard at a time.
pub(super) struct OneShard(());

#[cfg(all(debug_assertions, not(loom)))]
thread_local!(static HOLDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

impl OneShard {
    #[inline(always)]
    pub(super) fn begin() -> Self {
        #[cfg(all(debug_assertions, not(loom)))]
        assert!(!HOLDS.replace(true), "this thread holds a shard already");
        Self(())
    }
}

#[cfg(all(debug_assertions, not(loom)))]
impl Drop for OneShard {
    fn drop(&mut self) {
        HOLDS.set(false);
    }
}

/// How many times getters pass by the oldest shard because another getter stays with it, before they join that one. The same number,
/// counted apart, applies to a shard whose lock is held, before a getter waits for it.
pub(super) const PASSES: usize = 4;

/// How many times getters pass by a lock after one has waited for it in vain. There are so many because a wait takes as long as 100
/// hand-outs, and a pass goes with a stay of 64 keys: all waits together cost a third of a percent.
pub(super) const PASSES_IF_STOPPED: usize = 512;

/// The shards whose locks a getter has found held, as bits. It passes by them (P21).
#[derive(Default)]
pub(super) struct Busy(u64);

impl Busy {
    pub(super) fn is_empty(&self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains<K>(&self, locked: &Locked<K>) -> bool {
        self.0 & 1 << locked.index != 0
    }

    pub(super) fn insert<K>(&mut self, locked: &Locked<K>) {
        self.0 |= 1 << locked.index;
    }

    pub(super) fn remove<K>(&mut self, locked: &Locked<K>) {
        self.0 &= !(1 << locked.index);
    }
}

/// What other threads read without the lock. Written under the lock.
#[derive(Default)]
struct Published {
    /// The number of queued keys that a getter may take.
    len: AtomicUsize,
    /// In a queue with groups: the number of all queued keys.
    total: AtomicUsize,
    /// In a queue with several shards, the [`Front`] of the shard as a number. In an empty shard, a time before the next push.
    front: AtomicU64,
    /// In a queue with priorities or groups: how many keys were handed out to getters that have chosen this shard.
    handed_out: AtomicU64,
    /// 0, or one more than [`stay`](Locked::stay). Written without the lock.
    stay: AtomicUsize,
    /// How many more times getters pass by because the lock is held. Written without the lock.
    lock_passes: AtomicUsize,
    /// Until when the driver may park, as far as this shard is concerned. A call that sets an earlier deadline tells the hub.
    driver_until: AtomicU64,
    /// In a queue with priorities or groups: the levels of the queued keys, and a time before the push of the first key that is of another
    /// level than the front, or 0 with groups. At first NORMAL alone, because a shard writes them before it has a key of another level.
    levels: [AtomicU64; 4],
    lower: AtomicU64,
}

/// The priority of the first key of a shard, and a time before its push, as one number: a lesser one comes sooner. With the priority NORMAL
/// it is the time. The lowest two priorities count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Front(i64);

/// The bits of a front that are the time.
const STAMP: u64 = (1 << 56) - 1;

impl Front {
    /// After all others.
    pub(super) const LAST: Self = Self(i64::MAX);

    #[inline(always)]
    fn of<K>(machine: &Machine<K>, mode: Mode) -> Option<Self> {
        let (priority, stamp) = machine.front(mode)?;
        let rank = i64::from(Self::rank_of(priority));
        Some(Self(rank << 56 | (stamp & STAMP) as i64))
    }

    #[inline(always)]
    pub(super) fn rank_of(priority: i8) -> i8 {
        -priority.max(-i8::MAX)
    }

    /// The priority alone, where a lesser number comes sooner. 0 in a queue that is not ordered.
    #[inline]
    pub(super) fn rank(self) -> i8 {
        (self.0 >> 56) as i8
    }

    /// The same for one that has new groups, as if it had none.
    #[inline]
    pub(super) fn of_old(self) -> Self {
        Self(self.0 | NO_NEW as i64)
    }

    /// The time alone, or the round.
    #[inline]
    pub(super) fn stamp(self) -> u64 {
        self.0 as u64 & STAMP
    }
}

impl<K> Locked<K> {
    pub(super) fn new(index: usize, machine: Mutex<Machine<K>>) -> Self {
        Self {
            index,
            machine: CachePadded::new(machine),
            published: CachePadded::new(Published {
                lock_passes: AtomicUsize::new(PASSES),
                driver_until: AtomicU64::new(NEVER),
                levels: Words::of(level_of(NORMAL)).0.map(AtomicU64::new),
                ..Published::default()
            }),
            buckets: CachePadded::default(),
            #[cfg(keyqueue_steps)]
            steps: std::sync::atomic::AtomicU64::new(0),
            #[cfg(all(test, not(loom)))]
            looks: AtomicUsize::new(0),
            #[cfg(all(test, not(loom)))]
            held_unless: AtomicUsize::new(0),
        }
    }

    /// Takes the lock.
    #[inline]
    pub(super) fn lock(&self) -> Held<'_, K> {
        let held = self.held(self.machine.lock());
        #[cfg(all(test, not(loom)))]
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.number();
        held
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_, K>> {
        let held = self.try_lock_unnumbered()?;
        self.number();
        Some(held)
    }

    /// For a caller that may leave a key where it is. It calls [`number`](Self::number) when it takes one.
    #[inline]
    pub(super) fn try_lock_unnumbered(&self) -> Option<Held<'_, K>> {
        #[cfg(all(test, not(loom)))]
        {
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            let held_unless = self.held_unless.load(Ordering::Relaxed);
            if held_unless > 0 && look % held_unless != 0 {
                return None;
            }
        }
        Some(self.held(self.machine.try_lock()?))
    }

    /// The lock, unless the shard is busy for longer than a critical section takes (P21).
    #[inline]
    pub(super) fn lock_briefly(&self) -> Option<Held<'_, K>> {
        let held = self.lock_briefly_unnumbered()?;
        self.number();
        Some(held)
    }

    /// As [`try_lock_unnumbered`](Self::try_lock_unnumbered).
    #[inline]
    fn lock_briefly_unnumbered(&self) -> Option<Held<'_, K>> {
        let held = self.held(self.machine.lock_briefly()?);
        #[cfg(all(test, not(loom)))]
        self.looks.fetch_add(1, Ordering::Relaxed);
        Some(held)
    }

    /// For a test that holds two shards.
    #[cfg(all(test, not(loom)))]
    pub(super) fn lock_beside_another(&self) -> MutexGuard<'_, Machine<K>> {
        self.machine.lock()
    }

    /// Tries the lock, after a wait for as long as critical sections take if the getter `waits`. Leaves the section without a number. If
    /// the lock is held, the getter passes by, which is counted and noted in `busy`.
    #[inline]
    pub(super) fn lock_to_take(&self, waits: bool, busy: &mut Busy) -> Option<Held<'_, K>> {
        if let Some(held) = if waits { self.lock_briefly_unnumbered() } else { self.try_lock_unnumbered() } {
            if self.lock_passes() > PASSES {
                self.allow_passes(0); // the holder runs again
            }
            return Some(held);
        }
        let passes = self.lock_passes();
        self.allow_passes(if waits { PASSES_IF_STOPPED } else { passes.saturating_sub(1) });
        busy.insert(self);
        None
    }

    #[inline(always)]
    fn held<'l>(&'l self, machine: MutexGuard<'l, Machine<K>>) -> Held<'l, K> {
        Held { locked: self, machine, one: OneShard::begin() }
    }

    /// In a debug build, asserts at the end of each critical section that its changes are published. (Not under loom, which would try every
    /// order of these loads.)
    #[inline(always)]
    pub(super) fn check(&self, machine: &Machine<K>) {
        if cfg!(loom) {
            return;
        }
        debug_assert_eq!(self.len(), machine.ready(Mode::ORDERED), "the number of ready keys is published");
        debug_assert!(!machine.has_forgotten(), "the names of forgotten keys are taken out");
        debug_assert!(
            !machine.order().has_groups() || self.total() == machine.len(),
            "the number of keys is published"
        );
        // 0: a queue with one shard, or one in which no key was queued.
        debug_assert!(
            self.len() == 0 || self.front().0 == 0 || Some(self.front()) == Front::of(machine, Mode::ORDERED),
            "the front is published"
        );
    }

    /// Numbers the critical section that begins, in a build for the stress run: see `src/steps.rs`.
    #[inline(always)]
    pub(super) fn number(&self) {
        #[cfg(keyqueue_steps)]
        crate::steps::begin(self.index, &self.steps);
    }

    /// The number of queued keys that a getter may take.
    #[inline]
    pub(super) fn len(&self) -> usize {
        // Relaxed: a getter that acts on it takes the lock next.
        self.published.len.load(Ordering::Relaxed)
    }

    /// In a queue with groups: the number of all queued keys.
    pub(super) fn total(&self) -> usize {
        self.published.total.load(Ordering::Relaxed) // Relaxed: see `len`
    }

    /// Publishes how many keys are queued. Returns whether keys have groups.
    #[inline(always)]
    pub(super) fn publish_len(&self, machine: &Machine<K>, mode: Mode) -> bool {
        if cfg!(loom) && !mode.is_ordered && self.len() == machine.ready(mode) {
            return false; // loom would try every order of a store that changes nothing
        }
        self.published.len.store(machine.ready(mode), Ordering::Relaxed); // Relaxed: see `len`
        let has_groups = mode.is_ordered && machine.order().has_groups();
        if has_groups {
            self.published.total.store(machine.len(), Ordering::Relaxed);
        }
        has_groups
    }

    /// In a queue with several shards, gives the first key a time and publishes the front, before [`publish_len`](Self::publish_len).
    /// `takes`: keys may have been taken out.
    #[inline(always)]
    pub(super) fn publish_front(&self, machine: &mut Machine<K>, stamp: fn() -> u64, mode: Mode, takes: bool) {
        if cfg!(loom) {
            return; // as below
        }
        if machine.wants_stamp(mode) {
            machine.stamp(stamp());
        }
        let is_as_before = !mode.is_ordered && !takes && self.len() > 0;
        if is_as_before || machine.ready(mode) == 0 {
            return;
        }
        if let Some(front) = Front::of(machine, mode) {
            self.published.front.store(front.0 as u64, Ordering::Relaxed); // Relaxed: see `len`
        }
        if let Some((levels, lower)) = mode.is_ordered.then(|| machine.change_of_levels()).flatten() {
            // Relaxed: a getter that acts on them takes the lock, and looks again.
            self.published.levels.iter().zip(levels.0).for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
            self.published.lower.store(lower, Ordering::Relaxed);
        }
    }

    /// Counts that a getter that has chosen this shard takes a key. Under the lock.
    #[inline]
    pub(super) fn count_hand_out(&self) {
        let count = &self.published.handed_out;
        // Relaxed: see `handed_out`. Only the holder of the lock writes it.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The number of [counted](Self::count_hand_out) hand-outs.
    #[inline]
    pub(super) fn handed_out(&self) -> u64 {
        self.published.handed_out.load(Ordering::Relaxed) // Relaxed: a later number is as good
    }

    /// The levels of the keys that a getter may take, in a queue with priorities or groups.
    #[inline]
    pub(super) fn levels(&self) -> Words {
        let [first, second, third, fourth] = &self.published.levels;
        Words([first, second, third, fourth].map(|word| word.load(Ordering::Relaxed))) // Relaxed: see `publish_front`
    }

    #[inline]
    pub(super) fn has_level(&self, level: u8) -> bool {
        let word = self.published.levels[usize::from(level / 64)].load(Ordering::Relaxed); // Relaxed: see `publish_front`
        word & 1 << (level % 64) != 0
    }

    /// A time before the push of the first key of a level. Unless that is the highest level here, it is that of the first key of any lower
    /// level.
    #[inline]
    pub(super) fn age_of(&self, level: u8) -> u64 {
        let front = self.front();
        if front.rank() == Front::rank_of(priority_of(level)) {
            return front.stamp();
        }
        self.published.lower.load(Ordering::Relaxed) & STAMP // Relaxed: see `publish_front`
    }

    /// Whether a getter that chooses a shard passes by this one because no key is queued. A hint.
    #[inline]
    pub(super) fn seems_empty(&self) -> bool {
        // loom would explore every value that the number has had, and a getter that visits an empty shard finds out anyway.
        !cfg!(loom) && self.len() == 0
    }

    /// The shard's front.
    #[inline]
    pub(super) fn front(&self) -> Front {
        if cfg!(loom) {
            return Front(0); // as above
        }
        Front(self.published.front.load(Ordering::Relaxed) as i64) // Relaxed: see `len`
    }

    /// If a getter stays with this shard, how many more times others pass by. A hint, on which only the choice of a shard depends.
    #[inline]
    pub(super) fn stay(&self) -> Option<usize> {
        // loom: as above. Relaxed, here and below: a hint.
        if cfg!(loom) { None } else { self.published.stay.load(Ordering::Relaxed).checked_sub(1) }
    }

    /// Begins a stay with this shard, which was free. Returns `false` if another getter was faster.
    pub(super) fn begin_stay(&self) -> bool {
        let stay = &self.published.stay;
        cfg!(loom) || stay.compare_exchange(0, PASSES + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// For a getter that passes by this shard, or leaves it.
    pub(super) fn set_stay(&self, stay: Option<usize>) {
        if !cfg!(loom) {
            self.published.stay.store(stay.map_or(0, |passes| passes + 1), Ordering::Relaxed);
        }
    }

    /// How many more times getters pass by this shard because its lock is held, before they wait for it.
    #[inline]
    pub(super) fn lock_passes(&self) -> usize {
        if cfg!(loom) { 1 } else { self.published.lock_passes.load(Ordering::Relaxed) } // loom: as above. Relaxed: a hint
    }

    #[inline]
    pub(super) fn allow_passes(&self, passes: usize) {
        if !cfg!(loom) && self.lock_passes() != passes {
            self.published.lock_passes.store(passes, Ordering::Relaxed); // Relaxed: a hint
        }
    }

    /// Until when the driver may park, as far as this shard is concerned.
    #[inline]
    pub(super) fn driver_until(&self) -> u64 {
        self.published.driver_until.load(Ordering::Relaxed) // Relaxed: the lock, or the count `deadlines_told` of the hub, orders it
    }

    pub(super) fn set_driver_until(&self, until: u64) {
        self.published.driver_until.store(until, Ordering::Relaxed); // Relaxed: see `driver_until`
    }

    /// Prefetches the bucket in which this hash will be looked up, while the caller reads the clock and waits for the lock.
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: KeyHash) {
        if cfg!(loom) {
            return; // loom has no cache, and would explore every value that the two words had
        }
        let (start, count) = &*self.buckets;
        // Relaxed: a prefetch of the wrong address does no harm.
        prefetch_bucket((start.load(Ordering::Relaxed), count.load(Ordering::Relaxed)), hash);
    }

    /// Publishes where the buckets are, for [`prefetch_bucket`](Self::prefetch_bucket).
    #[inline]
    pub(super) fn publish_buckets(&self, machine: &Machine<K>) {
        let (start, count) = machine.buckets();
        // Relaxed: see `prefetch_bucket`. Written under the lock only.
        if !cfg!(loom) && self.buckets.1.load(Ordering::Relaxed) != count {
            self.buckets.0.store(start, Ordering::Relaxed);
            self.buckets.1.store(count, Ordering::Relaxed);
        }
    }
}
