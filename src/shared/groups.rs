//! Calls on one group: its limits, and its pauses.

use super::Shared;
use super::hub::Flags;
use super::section::in_steps;
use crate::machine::{EntryRef, GroupSeen};
use crate::observe::GroupMetrics;
use crate::order::{Bin, Group, Groups};
use crate::sync::Arc;
use crate::time::{nanos, time_left};
use crate::{GroupStats, InvalidArgument};
use std::time::Duration;

impl<K> Shared<K> {
    /// Refuses a call that needs groups.
    pub(crate) fn check_groups(&self, call: &'static str) -> Result<(), InvalidArgument> {
        let has_groups = self.settings.order.has_groups();
        if has_groups { Ok(()) } else { Err(InvalidArgument::new("group", call, "it needs `fair_by`")) }
    }

    /// Changes a group, if keys have groups, in a critical section of its shard, with the time. Then starts the driver thread, if the call
    /// has made its first deadline.
    fn change_group(
        this: &Arc<Self>,
        group: Group,
        change: impl FnOnce(&mut Groups<EntryRef<K>>, u64, &mut Bin<EntryRef<K>>) -> u32,
    ) {
        if this.settings.order.has_groups() {
            let now = this.settings.clock.now();
            let locked = this.at(this.shard_of_group(group));
            let mut section = this.section(locked.lock());
            section.verb(|machine, mode| machine.change_group(mode, |groups, bin| change(groups, now, bin)));
            section.end();
            Self::ensure_driver(this);
        }
    }

    /// For a call that may hold a group back: getters will wait although keys are queued, also after a shut-down.
    pub(super) fn expect_holds(&self) {
        if !self.flags().has(Flags::LIMITED) {
            self.hub().set(Flags::LIMITED, true);
        }
    }

    pub(crate) fn set_group(this: &Arc<Self>, group: Group) {
        this.expect_holds();
        if group.limits.rate.is_some() {
            this.settings.clock.calibrate(); // not under the lock
        }
        Self::change_group(this, group, |groups, now, _| groups.set(Group { now, ..group }));
    }

    pub(crate) fn unset_group(this: &Arc<Self>, group: Group) {
        Self::change_group(this, group, |groups, now, bin| groups.unset(Group { now, ..group }, bin));
    }

    pub(crate) fn pause_group(this: &Arc<Self>, group: Group, time: Duration) {
        if !time.is_zero() {
            this.expect_holds();
            let until = |now: u64| now.saturating_add(nanos(time));
            Self::change_group(this, group, |groups, now, _| groups.pause(group.hash, until(now), now));
        }
    }

    pub(crate) fn resume_group(this: &Arc<Self>, group: Group) {
        Self::change_group(this, group, |groups, now, bin| groups.resume(group.hash, now, bin));
    }

    /// What a report says of all groups, and what these have paid for their turns.
    pub(crate) fn group_metrics(&self) -> (GroupMetrics, f64) {
        let (mut metrics, mut shares, mut all) = (GroupMetrics::default(), [0.0; 2], 0.0);
        for locked in self.all() {
            in_steps(|at| {
                let held = locked.lock();
                let now = self.settings.clock.now();
                held.see_groups(at, |GroupSeen { group, queued, queued_at }| {
                    let share = group.paid();
                    all += share;
                    metrics.largest_share = metrics.largest_share.max(share);
                    metrics.limited += usize::from(group.limits.holds_back());
                    let waited = queued_at.map(|queued_at| Duration::from_nanos(now.saturating_sub(queued_at)));
                    metrics.longest_wait = metrics.longest_wait.max(waited);
                    if queued > 0 || group.processing > 0 {
                        metrics.active += 1;
                        let share = share / f64::from(group.limits.weight);
                        shares = [shares[0] + share, shares[1] + share * share];
                    }
                })
            });
        }
        let [sum, squares] = shares;
        metrics.fairness = if squares > 0.0 { sum * sum / (metrics.active as f64 * squares) } else { 1.0 };
        if all > 0.0 {
            metrics.largest_share /= all;
        }
        (metrics, all)
    }

    /// `stats` of a group.
    pub(crate) fn group_stats(&self, group: Group) -> Option<GroupStats> {
        let held = self.at(self.shard_of_group(group)).lock();
        let now = self.settings.clock.now();
        let GroupSeen { group, queued, queued_at } = held.see_group(group.hash)?;
        drop(held);
        let oldest = queued_at.map(|queued_at| time_left(now, queued_at));
        let mut stats = GroupStats { queued, oldest, ..GroupStats::new((), &group, now) };
        stats.share_in(self.group_metrics().1);
        Some(stats)
    }
}
