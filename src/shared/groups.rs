//! Calls on one group: its limits, and its pauses.

use super::Shared;
use super::hub::Flags;
use super::section::Section;
use crate::InvalidArgument;
use crate::order::Group;
use crate::sync::Arc;
use crate::time::nanos;
use std::time::Duration;

impl<K> Shared<K> {
    /// The group of a key, with the limits that the builder's functions give, and no time.
    pub(crate) fn group_of(&self, key: &K) -> Group {
        self.settings.order.ask(key, &self.hasher, &self.settings.clock)
    }

    /// Refuses a call that needs groups.
    pub(crate) fn check_groups(&self, call: &'static str) -> Result<(), InvalidArgument> {
        let has_groups = self.settings.order.has_groups();
        if has_groups { Ok(()) } else { Err(InvalidArgument::new("group", call, "it needs `fair_by`")) }
    }

    /// Makes a critical section in the shard of a group. Then starts the driver thread, if the call has made its first deadline.
    fn in_group(this: &Arc<Self>, group: Group, change: impl FnOnce(&mut Section<'_, K>)) {
        let locked = this.at(this.shard_of_group(group));
        let mut section = this.section(locked.lock());
        change(&mut section);
        section.end();
        Self::ensure_driver(this);
    }

    /// For a call that may hold a group back: getters will wait although keys are queued, also after a shut-down.
    pub(super) fn expect_holds(&self) {
        if !self.flags().has(Flags::LIMITED) {
            self.hub().set(Flags::LIMITED, true);
        }
    }

    pub(crate) fn set_group(this: &Arc<Self>, group: Group) {
        this.expect_holds();
        let group = Group { now: this.settings.clock.now(), ..group };
        Self::in_group(this, group, |section| section.set_group(group));
    }

    pub(crate) fn unset_group(this: &Arc<Self>, group: Group) {
        if this.settings.order.has_groups() {
            let group = Group { now: this.settings.clock.now(), ..group };
            Self::in_group(this, group, |section| section.unset_group(group));
        }
    }

    pub(crate) fn pause_group(this: &Arc<Self>, group: Group, time: Duration) {
        if time.is_zero() {
            return;
        }
        this.expect_holds();
        let now = this.settings.clock.now();
        let until = now.saturating_add(nanos(time));
        Self::in_group(this, group, |section| section.pause_group(group.hash, until, now));
    }

    pub(crate) fn resume_group(this: &Arc<Self>, group: Group) {
        if this.settings.order.has_groups() {
            let now = this.settings.clock.now();
            Self::in_group(this, group, |section| section.resume_group(group.hash, now));
        }
    }
}
