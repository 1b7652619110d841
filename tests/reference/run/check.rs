//! What is compared after each step.

use super::hand_outs::{Held, each};
use super::waiters::Until;
use super::workers::{At, Tally};
use super::{Run, nanos, sorted, triples};
use crate::reference::events::{EVENTS, Event};
use crate::reference::key::{Key, Name, alive, was_locked};
use crate::reference::op::Goal;
use crate::reference::plan::Limiter;
use crate::reference::queue::{Counts, NEVER};
use keyqueue::KeyActivity;
use std::time::Duration;

impl Run<'_> {
    pub(super) fn check(&mut self) {
        assert!(!was_locked(), "P17: code of the user was called under a lock");
        self.catch_up();
        assert!(self.by_getters.is_empty(), "a getter has expired delays, and nobody knows in which hand-out");
        self.check_driver();
        self.reference.forget_paid();
        let (queue, reference, stats) = (self.queue, &self.reference, self.queue.stats());
        let (len, processing, delayed) = (reference.queued(), reference.processing(), reference.delayed());
        assert_eq!((queue.len(), queue.is_empty(), stats.len), (len, len == 0, len));
        assert_eq!((queue.processing_len(), stats.processing), (processing.len(), processing.len()));
        assert_eq!((queue.delayed_len(), stats.delayed), (delayed.len(), delayed.len()));
        assert_eq!((queue.shutting_down(), stats.shutting_down), (reference.shut_down, reference.shut_down));
        assert_eq!(queue.is_paused(), reference.is_paused());
        let counts = Counts {
            pushed: stats.pushed,
            coalesced: stats.coalesced,
            deferred: stats.deferred,
            rejected: stats.rejected,
            full: stats.full,
            handed_out: stats.handed_out,
            taken: stats.taken,
            delays: stats.delays,
            expired: stats.expired,
            retries: stats.retries,
            failures: stats.failures,
            given_up: stats.given_up,
            panics: stats.panics,
            caught: stats.caught_panics,
        };
        assert_eq!(counts, reference.counts);
        let paced_for = reference.paced_for();
        assert_eq!(stats.paced_for.map_or(0, nanos), paced_for, "how long the pace holds back hand-outs");
        if self.plan.tenants {
            let groups = [stats.groups_paused, stats.groups_set, stats.groups_full, stats.groups_throttled];
            let sets =
                [reference.pauses.len(), reference.set.len(), reference.full_groups(), reference.throttled.len()];
            assert_eq!(groups, sets, "groups that are paused, set, full and throttled");
        }
        let coming_back = processing.iter().filter(|key| reference.is_dirty(**key)).count();
        assert_eq!(stats.adds(), stats.handed_out + stats.taken + (len + coming_back) as u64, "adds lead to hand-outs");
        assert_eq!(stats.depth(), (len + coming_back) as u64);

        assert_eq!(stats.failing, reference.failing(), "failing");
        for key in reference.all() {
            assert_eq!(queue.num_requeues(&Name::new(key)), reference.num_requeues(key), "of key {key}");
            self.check_key(key);
        }
        // Limiters of the crate that the queue cannot replace have clones of their own.
        // A lock-free queue drops keys later.
        if self.plan.limiter != Limiter::Composed && !self.plan.lock_free {
            let expected = reference.present() + self.refused.len() + self.adders.len() + self.values.kept.len();
            assert_eq!(alive() - self.before, expected as i64, "each key is kept once, while something needs it (P15)");
        }
        self.check_held();
        self.check_values();
        self.check_waiters();
        self.check_adders();
        self.check_workers();
    }

    pub(super) fn check_lists(&self) {
        let (inspect, reference, stats) = (self.queue.inspect(), &self.reference, self.queue.stats());
        let levels: Vec<_> = inspect.levels().iter().map(|level| (level.priority.0, level.len)).collect();
        assert_eq!(levels, reference.levels(), "levels");
        if self.plan.groups.is_some() {
            let groups = inspect.groups();
            let groups =
                groups.iter().map(|group| (self.plan.group_of(group.key.number()), group.queued, group.processing));
            assert_eq!(sorted(groups.collect()), reference.groups(), "groups");
        }
        if self.plan.tenants {
            (0..self.plan.groups.unwrap_or(0)).for_each(|group| self.check_group(group));
        }
        let listed = triples(&inspect.delayed_keys());
        assert!(listed.is_sorted_by_key(|(_, left, _)| *left), "delayed keys, earliest first");
        let delayed = reference.delayed();
        match (stats.next_deadline.map(nanos), delayed.first().map(|(_, left, _)| *left)) {
            (Some(next), Some(first)) if reference.has_moved() => assert!(next <= first, "{next} {first}"),
            (next, first) => assert_eq!(next, first, "the next deadline"),
        }
        assert_eq!(sorted(listed), sorted(delayed), "delayed keys");
        let metrics = inspect.metrics();
        assert_eq!(metrics.stats, stats, "of the metrics");
        if self.plan.measure {
            let done = stats.handed_out - stats.processing as u64;
            let histograms = [metrics.queue_duration, metrics.work_duration];
            for ((histogram, count), sum) in histograms.iter().zip([stats.handed_out, done]).zip(reference.sums) {
                assert_eq!((histogram.count(), nanos(histogram.sum())), (count, sum.try_into().unwrap_or(NEVER)));
                assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), count);
            }
        }
        assert_eq!(metrics.runs, self.runs, "runs");
        let listed = inspect.processing_keys();
        assert!(listed.is_sorted_by(|one, next| one.elapsed >= next.elapsed), "longest first");
        let listed: Vec<_> = listed.iter().map(|listed| (listed.key.number(), listed.elapsed)).collect();
        let elapsed = |key: u8| self.plan.measure.then(|| Duration::from_nanos(reference.times(key).1));
        let expected: Vec<_> = reference.processing().into_iter().map(|key| (key, elapsed(key))).collect();
        assert_eq!(sorted(listed), expected, "processing keys");
        let longest = expected.iter().filter_map(|(_, elapsed)| *elapsed).max();
        assert_eq!(stats.longest_running, longest, "longest running");
        let elapsed = expected.iter().filter_map(|(_, elapsed)| *elapsed);
        let unfinished = elapsed.fold(0_u64, |sum, elapsed| sum.saturating_add(nanos(elapsed)));
        let unfinished = self.plan.measure.then_some(unfinished);
        assert_eq!(stats.unfinished_work.map(nanos), unfinished, "unfinished work");
        let oldest = if self.plan.measure { reference.oldest_queued() } else { None };
        assert_eq!(stats.oldest_queued.map(nanos), oldest, "oldest queued");
    }

    /// What [`keyqueue::Inspect::key`] says.
    fn check_key(&self, key: u8) {
        let (reference, state) = (&self.reference, self.queue.inspect().key(&Name::new(key)));
        let delay = state.delay.map(|delay| (nanos(delay.left), delay.by));
        let (mut activity, elapsed, priority, expected) = reference.key_state(key);
        // The limit of its run, which the loop knows.
        let mut limits = self.loops.iter().filter(|own| own.at == At::Holding(key)).filter_map(|own| own.limit);
        let limit = limits.find(|limit| *limit != NEVER);
        if let KeyActivity::Processing { late, .. } = &mut activity {
            *late = limit.is_some_and(|limit| limit <= reference.now);
        }
        let found = (state.activity, state.priority.0, delay, state.failures);
        assert_eq!(found, (activity, priority, expected, reference.num_requeues(key)), "what key {key} is doing");
        assert_eq!(
            state.elapsed.map(nanos),
            elapsed.filter(|_| self.plan.measure || limit.is_some()),
            "and for how long"
        );
        let group = self.plan.groups.filter(|_| elapsed.is_some()).map(|_| self.plan.group_of(key));
        let limits = group.map(|group| self.plan.group_limits(group, reference.limit_of(group)));
        assert_eq!(state.limits, limits, "and the limits of its group");
    }

    /// What [`keyqueue::Group::stats`] says.
    fn check_group(&self, group: u8) {
        let (reference, stats) = (&self.reference, self.queue.group(&Key::new(group)).stats());
        let (keys, is_set) = (reference.groups(), reference.set.contains_key(&group));
        // A key that was refused after the shut-down, and is known for its failure, has no group.
        let paid = reference.paid(group).filter(|_| !reference.shut_down);
        let held_back = reference.held_back(group);
        let Some(stats) = stats else {
            return assert_eq!((paid, is_set, held_back), (None, false, None), "group {group} is forgotten");
        };
        let (_, queued, processing) = keys.into_iter().find(|keys| keys.0 == group).unwrap_or_default();
        assert_eq!((stats.queued, stats.processing, stats.is_set), (queued, processing, is_set), "group {group}");
        assert_eq!(stats.held_back, held_back, "what holds group {group} back");
        if paid.is_some() || is_set {
            assert_eq!(stats.limits, self.plan.group_limits(group, reference.limit_of(group)), "of group {group}");
        }
        if let Some((handed_out, work)) = paid {
            let work = if self.plan.work_time { Duration::from_nanos(work) } else { Duration::ZERO };
            assert_eq!((stats.handed_out, stats.work), (handed_out, work), "what group {group} has had");
        }
    }

    pub(super) fn check_held(&self) {
        for held in &self.held {
            let key = held.key();
            each!(held, item => {
                assert_eq!(item.is_dirty(), self.reference.is_dirty(key), "is_dirty of {key}");
                assert_eq!(item.num_requeues(), self.reference.num_requeues(key));
                assert_eq!(item.priority().0, self.reference.held_priority(key));
                assert_eq!(item.shutting_down(), self.reference.shut_down);
                if self.plan.measure {
                    assert_eq!(item.waited(), Some(Duration::from_nanos(self.reference.times(key).0)), "waited");
                }
            });
        }
        let elsewhere = self.waiters.iter().filter(|waiter| matches!(waiter.until, Until::Dirty(_))).count()
            + self.loops.iter().filter(|own| matches!(own.at, At::Holding(_))).count();
        assert_eq!(self.held.len() + elsewhere, self.reference.processing().len());
    }

    /// While a key is ready and getters wait, one of them was woken; and so was each waiter whose time has come.
    pub(super) fn check_waiters(&self) {
        let stats = self.queue.stats();
        let is_getter = |until: Until| matches!(until, Until::Goal(Goal::Item | Goal::OwnedItem, ..));
        let waiters = self.waiters.iter().filter(|waiter| is_getter(waiter.until)).map(|waiter| &waiter.flag);
        let loops = self.loops.iter().filter(|own| own.at == At::Waiting).map(|own| &own.flag);
        let (woken, asleep): (Vec<_>, Vec<_>) = waiters.chain(loops).partition(|flag| flag.is_set());
        assert_eq!(stats.waiters, asleep.len(), "the list has the getters that were not woken");
        let waits_for_turn = self.plan.pace.is_some() && self.tokens_have_come;
        let is_owed = !asleep.is_empty() && woken.is_empty() && !waits_for_turn;
        assert!(!is_owed || self.reference.next_keys().is_empty(), "a key is ready, and no getter was woken");
        assert!(!self.reference.is_over() || asleep.is_empty(), "shut down, and a getter was not woken");
        for waiter in self.waiters.iter().filter(|waiter| !is_getter(waiter.until)) {
            let is_due = self.is_due(waiter.until);
            let goal = if let Until::Goal(goal, ..) = waiter.until { Some(goal) } else { None };
            assert!(!is_due || waiter.flag.is_set(), "a waiter was not woken: {goal:?}");
        }
    }

    /// For each place that is free an add was woken, if one waits; and all were woken by the shut-down.
    fn check_adders(&self) {
        let (woken, asleep): (Vec<_>, Vec<_>) = self.adders.iter().partition(|adder| adder.flag.is_set());
        let is_enough = woken.len() >= self.reference.room() && !self.reference.shut_down;
        assert!(asleep.is_empty() || is_enough, "{} adds wait, and {} were woken", asleep.len(), woken.len());
    }

    pub(super) fn check_workers(&mut self) {
        let tally = self.workers.tally();
        let listed = Tally {
            succeeded: tally.succeeded,
            requeued: tally.requeued,
            paused: tally.paused,
            failed: tally.failed,
            retried: tally.retried,
            given_up: tally.given_up,
            timed_out: tally.timed_out,
            late: tally.late,
            panicked: tally.panicked,
            refused: tally.refused,
        };
        assert_eq!((tally.running, listed), (self.loops.len(), self.tally), "the tally");

        let counts = self.reference.counts;
        let done = counts.handed_out - self.reference.processing().len() as u64;
        let mut expected: [u64; EVENTS] = [
            counts.pushed,
            counts.coalesced,
            counts.deferred,
            counts.rejected,
            counts.full,
            counts.delays,
            counts.handed_out,
            done,
            counts.given_up,
            counts.panics,
            0,
            0,
            0,
        ];
        if !self.plan.observed {
            expected = [0; EVENTS];
        }
        expected[Event::HookError as usize..].copy_from_slice(&self.hooks);
        let told = self.events.all();
        if std::mem::take(&mut self.events_are_missing) {
            let missing =
                std::array::from_fn(|at| expected[at].checked_sub(told[at]).expect("told, and has not happened"));
            let [before, after] = [self.untold, missing].map(|missing: [u64; EVENTS]| missing.iter().sum::<u64>());
            assert!(
                (before..=before + 2 * self.reference.all().len() as u64).contains(&after),
                "{after} events are missing, and {before} before"
            );
            self.untold = missing;
        }
        let told = std::array::from_fn(|at| told[at] + self.untold[at]);
        assert_eq!(told, expected, "the events of the observer and the hooks");
        if self.plan.observed && self.untold == [0; EVENTS] {
            assert_eq!(self.events.sums(), self.reference.sums, "the times that the observer was told");
        }
    }
}
