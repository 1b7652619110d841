//! Calls that look at the queue. One that lists keys looks at some hundred in a critical section.

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use super::section::in_steps;
use super::settings::Limiter;
use super::state::if_free;
use crate::Priority;
use crate::key_state::KeyState;
use crate::machine::{Ages, Claimed, Delay, KeySeen, Machine, View, Which};
use crate::observe::{Histogram, Metrics};
use crate::order::Groups;
use crate::stats::{DelayedKey, GroupStats, Level, Stats};
use crate::sync::{Arc, give_way};
use crate::time::time_left;
use equivalent::Equivalent;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// One critical section of a look sees fewer keys than this.
const AT_ONCE: usize = 320;

fn since(time: u64, now: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(time))
}

impl<K> Shared<K> {
    /// Looks at the keys of a shard, and collects what `each` says of them under the lock.
    fn look_at<T>(
        &self,
        locked: &Locked<K>,
        which: Which,
        found: &mut Vec<T>,
        mut each: impl FnMut(View<'_, K>) -> Option<T>,
    ) {
        in_steps(|at| {
            found.reserve(AT_ONCE); // here, so that the critical section does not allocate
            locked.lock().look(at, which, |view| found.extend(each(view)))
        });
    }

    /// The time, for a call that computes ages. It is read under the lock, so that no key has started later.
    fn begin_ages(&self, locked: &Locked<K>) -> u64 {
        let mut held = locked.lock();
        let now = self.settings.clock.now();
        held.marks().begin_ages(now);
        now
    }

    /// `metrics`.
    pub(crate) fn metrics(&self) -> Metrics {
        let (mut metrics, mut normal, mut lens) = (Metrics::default(), Histogram::default(), [0; 256]);
        let mut copy = Histogram::default();
        for locked in self.all() {
            let has_times = {
                let mut held = locked.lock();
                let machine = held.marks();
                self.add_shard(&mut metrics.stats, machine);
                machine.add_levels(&mut lens);
                machine.times().map(|times| {
                    metrics.work_duration.add(times.durations.worked());
                    normal.add(times.durations.waited());
                })
            };
            let mut from = has_times.map(|()| i8::MIN);
            while let Some(priority) = from {
                let next = locked.lock().marks().times().and_then(|times| {
                    let (priority, waited) = times.durations.waited_from(priority)?;
                    copy.copy(waited);
                    Some(priority)
                });
                if let Some(priority) = next {
                    metrics.level(Priority(priority)).queue_duration.add(&copy);
                }
                from = next.and_then(|priority| priority.checked_add(1));
                give_way();
            }
        }
        #[cfg(feature = "lock-free")]
        if let Some(free) = self.free() {
            self.add_free(&mut metrics.stats);
            free.each_durations(|durations| {
                metrics.work_duration.add(durations.worked());
                normal.add(durations.waited());
            });
        }
        self.add_hub(&mut metrics.stats);
        metrics.groups = self.settings.order.has_groups().then(|| self.group_metrics().0);
        let runs = self.hub.lock().runs.clone();
        metrics.runs = runs.sum();
        metrics.queue_duration.add(&normal);
        metrics.levels.iter().for_each(|level| metrics.queue_duration.add(&level.queue_duration));
        // Read after the locks, so that it is set if a level is there.
        if self.flags().has(Flags::ORDERED) {
            levels_of(lens).for_each(|(priority, len)| metrics.level(priority).len = len);
            metrics.level(Priority::NORMAL).queue_duration = normal;
        }
        metrics
    }

    /// `levels`.
    pub(crate) fn levels(&self) -> Vec<Level> {
        if_free!(self, free => {
            let level = Level { priority: Priority::NORMAL, len: free.len() };
            if level.len > 0 { vec![level] } else { Vec::new() }
        });
        let mut lens = [0; 256];
        self.all().for_each(|locked| locked.lock().add_levels(&mut lens));
        levels_of(lens).map(|(priority, len)| Level { priority, len }).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.all().for_each(|locked| self.add_shard(&mut stats, locked.lock().marks()));
        #[cfg(feature = "lock-free")]
        self.add_free(&mut stats);
        self.add_hub(&mut stats);
        stats
    }

    /// Adds what the engine of a lock-free queue counts, and its records.
    #[cfg(feature = "lock-free")]
    fn add_free(&self, stats: &mut Stats) {
        if let Some(free) = self.free() {
            crate::sync::fence(crate::sync::Ordering::SeqCst); // W6: a report has made the queue quiet before
            free.add_counts(stats);
            free.ages(self.settings.clock.now()).into_iter().for_each(|ages| add_ages(stats, ages));
            self.add_shard(stats, &mut *free.records.lock());
        }
    }

    /// Adds the numbers of a shard.
    fn add_shard<T>(&self, stats: &mut Stats, machine: &mut Machine<T>) {
        let now = self.settings.clock.now();
        let (counts, ages) = (machine.counts, machine.ages(now));
        stats.len += machine.len();
        stats.processing += machine.processing();
        stats.delayed += machine.delayed();
        stats.failing += machine.failing();
        stats.pushed += counts.pushed;
        stats.coalesced += counts.coalesced;
        stats.deferred += counts.deferred;
        stats.rejected += counts.rejected;
        stats.handed_out += counts.handed_out;
        stats.delays += counts.delays;
        stats.expired += counts.expired;
        stats.retries += counts.retries;
        stats.failures += counts.failures;
        stats.given_up += counts.given_up;
        stats.taken += counts.taken;
        if let Some([known, full, throttled, paused, set]) = machine.order().as_groups().map(Groups::counts) {
            stats.groups += known;
            stats.groups_full += full;
            stats.groups_throttled += throttled;
            stats.groups_paused += paused;
            stats.groups_set += set;
        }
        let next_deadline = machine.next_deadline().map(|at| time_left(at, now));
        stats.next_deadline = [stats.next_deadline, next_deadline].into_iter().flatten().min();
        ages.into_iter().for_each(|ages| add_ages(stats, ages));
    }

    fn add_hub(&self, stats: &mut Stats) {
        stats.shutting_down = self.is_shutting_down();
        if let Some(pace) = &self.pace {
            let now = self.settings.clock.now();
            let tokens = pace.tokens(now);
            stats.paced_for = (tokens.count == 0).then(|| time_left(tokens.more_at, now));
        }
        stats.full = self.bound.as_ref().map_or(0, |bound| bound.refusals());
        if let Limiter::External(limiter) = &self.settings.limiter {
            stats.failing += limiter.failing(); // not under the lock (P17)
        }
        let hub = self.hub.lock();
        stats.waiters = hub.getters.waiters.len();
        stats.drainers = hub.life_cycle.drainers.len();
        stats.panics = hub.counts.panics;
        stats.caught_panics = hub.counts.caught_panics;
        stats.driver_failures = hub.counts.driver_failures;
    }

    pub(crate) fn processing_len(&self) -> usize {
        if_free!(self, free => free.processing());
        self.all().map(|locked| locked.lock().processing()).sum()
    }

    pub(crate) fn delayed_len(&self) -> usize {
        if_free!(self, free => free.records.lock().delayed());
        self.all().map(|locked| locked.lock().delayed()).sum()
    }

    /// The priority of a key that the caller holds.
    pub(crate) fn priority(&self, claimed: &Claimed<K>) -> Priority {
        if !self.flags().has(Flags::ORDERED) {
            return Priority::NORMAL;
        }
        Priority(self.home(claimed).lock().priority(claimed))
    }

    /// How long the key that the caller holds was queued.
    pub(crate) fn waited(&self, claimed: &Claimed<K>) -> Option<Duration> {
        if !self.flags().has(Flags::MEASURED) {
            return None;
        }
        if_free!(self, _free => claimed.node().times().and_then(|times| times.waited().duration()));
        let waited = self.home(claimed).lock().waited(claimed);
        waited.duration()
    }
}

fn add_ages(stats: &mut Stats, ages: Ages) {
    let unfinished = Duration::from_nanos(ages.unfinished_work);
    stats.unfinished_work = Some(stats.unfinished_work.unwrap_or_default().saturating_add(unfinished));
    stats.longest_running = stats.longest_running.max(ages.longest_running.map(Duration::from_nanos));
    stats.oldest_queued = stats.oldest_queued.max(ages.oldest_queued.map(Duration::from_nanos));
}

/// The priorities with queued keys, highest first. `lens`: the number of queued keys of each, lowest first.
fn levels_of(lens: [usize; 256]) -> impl Iterator<Item = (Priority, usize)> {
    let levels = (i8::MIN..=i8::MAX).map(Priority).zip(lens);
    levels.rev().filter(|&(_, len)| len > 0)
}

impl<K: Hash + Eq> Shared<K> {
    /// `key` of a view.
    pub(crate) fn key_state<Q>(&self, key: &Q) -> KeyState
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        let external = self.external_failures(key);
        let (seen, late_at) = self.see_key(key).unwrap_or_default();
        let now = self.settings.clock.now();
        let tokens = self.pace.as_ref().map(|pace| pace.tokens(now));
        let paced_until = tokens.filter(|tokens| tokens.count == 0).map(|tokens| tokens.more_at);
        let mut state = KeyState::new(&seen, late_at, self.is_paused(), paced_until, external, now);
        state.last_error = self.last_error(key);
        state
    }

    /// Looks at a key, and when its run is late, if that has a limit.
    fn see_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(KeySeen, Option<u64>)> {
        let hash = self.hash(key);
        // Under the lock of the shard, so that the hand-out has not ended.
        let see_limit = |mut seen: KeySeen| {
            let limit = seen.slot.and_then(|slot| self.limit_of(slot));
            seen.started_at = seen.started_at.or(limit.map(|(began, _)| began));
            (seen, limit.map(|(_, late_at)| late_at))
        };
        if_free!(self, free => Self::free_see_key(free, key, hash).map(see_limit));
        self.look_up(hash, |locked, hash| {
            let held = locked.lock();
            held.see_key(key, hash).map(see_limit)
        })
    }
}

impl<K: Clone> Shared<K> {
    /// `processing_keys`.
    pub(crate) fn processing_keys(&self) -> Vec<(K, Option<Duration>)> {
        if_free!(self, free => self.free_processing_keys(free));
        let mut keys = Vec::new();
        for locked in self.all() {
            let now = self.begin_ages(locked);
            self.look_at(locked, Which::Processing, &mut keys, |view| {
                let age =
                    self.flags().has(Flags::MEASURED).then(|| since(view.started_at().unwrap_or(now).min(now), now));
                Some((view.key().clone(), age))
            });
        }
        keys.sort_by_key(|&(_, age)| std::cmp::Reverse(age)); // stable
        keys
    }

    /// `delayed_keys`.
    pub(crate) fn delayed_keys(&self) -> Vec<DelayedKey<K>> {
        let mut keys = Vec::new();
        #[cfg(feature = "lock-free")]
        self.free()
            .into_iter()
            .for_each(|free| self.free_each_delayed(free, |delay, key| keys.push((delay, key.clone()))));
        for locked in self.all() {
            self.look_at(locked, Which::Delayed, &mut keys, |view| {
                view.delay().map(|delay| (delay, view.key().clone()))
            });
        }
        keys.sort_by_key(|(delay, _): &(Delay, K)| delay.deadline);
        let now = self.settings.clock.now();
        keys.into_iter().map(|(delay, key)| DelayedKey::new(key, delay, now)).collect()
    }

    /// `groups`.
    pub(crate) fn groups(this: &Arc<Self>) -> Vec<GroupStats<K>> {
        if !this.settings.order.has_groups() {
            return Vec::new();
        }
        let mut groups = HashMap::<u64, GroupStats<K>>::new();
        for locked in this.all() {
            let now = this.begin_ages(locked);
            in_steps(|at| {
                groups.reserve(AT_ONCE); // as in `look_at`
                locked.lock().look(at, Which::Active, |view| {
                    let Some(of) = view.group() else { return };
                    let new = || GroupStats::new(view.key().clone(), &of, now);
                    let group = groups.entry(of.hash).or_insert_with(new);
                    if view.is_queued() {
                        group.queued += 1;
                        group.oldest = group.oldest.max(view.queued_at().map(|queued_at| since(queued_at, now)));
                    }
                })
            });
        }
        let (_, all) = this.group_metrics();
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.iter_mut().for_each(|(_, group)| group.share_in(all));
        groups.sort_unstable_by_key(|&(hash, _)| hash); // not in the order of the map, which differs each time (P27)
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::order::tests::VISITS;
    use crate::{AddOptions, Priority, WorkQueue};
    use std::sync::atomic::Ordering::Relaxed;

    /// A critical section of `metrics` copies one histogram, or two of them with the counters.
    #[test]
    fn metrics_take_a_critical_section_for_each_priority() {
        let queue = WorkQueue::builder().measure(true).shards(2).build();
        for key in 0..2000_u32 {
            queue.add_with(key, AddOptions::new().priority(Priority((key % 200) as i8)));
        }
        drop(queue.get_many(usize::MAX));
        let looks = || [0, 1].map(|shard| queue.shared.at(shard).looks.load(Relaxed));
        let before = looks();
        let metrics = queue.inspect().metrics();
        let sections = [0, 1].map(|shard| looks()[shard] - before[shard]);
        assert!(sections.iter().all(|sections| *sections >= 190), "{sections:?}");
        assert_eq!(metrics.queue_duration.count(), 2000);
        let of_levels: u64 = metrics.levels.iter().map(|level| level.queue_duration.count()).sum();
        assert_eq!((metrics.levels.len(), of_levels), (200, 2000));
    }

    /// With a priority and a group for each key.
    #[test]
    fn stats_visit_a_thousand_places() {
        for limit in [None, Some(1)] {
            let builder = WorkQueue::builder().measure(true).fair_by(|key: &u32| *key / 2);
            let builder = if let Some(limit) = limit { builder.max_processing_per_group(limit) } else { builder };
            let queue = builder.build();
            let add = |key: u32| queue.add_with(key, AddOptions::new().priority(Priority((key / 2 % 250) as i8)));
            (0..20_000).for_each(|key| _ = add(key * 2));
            let held = if limit.is_some() { queue.get_many(10_000) } else { Vec::new() };
            (0..20_000).for_each(|key| _ = add(key * 2 + 1));
            VISITS.set(0);
            assert!(queue.stats().oldest_queued.is_some());
            println!("limit {limit:?}: {} places", VISITS.get());
            assert!(VISITS.get() <= 2 * 1024, "limit {limit:?}: {} places", VISITS.get());
            drop(held);
        }
    }

    /// A group has been handed out what its shard counts of it, however many of its keys are there, and beside other groups.
    #[test]
    fn hand_outs_of_a_group_are_those_of_its_shard() {
        let queue = WorkQueue::builder().shards(4).fair_by(|key: &u32| key % 40).build();
        queue.add_all(0..4000);
        (0..400).for_each(|_| drop(queue.try_get().unwrap()));
        assert!(queue.shared.all().all(|locked| locked.len() > 4), "each shard has groups");
        let handed_out: Vec<_> = queue.inspect().groups().iter().map(|group| group.handed_out).collect();
        assert_eq!((handed_out.len(), handed_out.iter().sum::<u64>()), (40, 400));
        let without_groups = WorkQueue::new();
        without_groups.add(1);
        assert!(without_groups.inspect().groups().is_empty());
    }
}
