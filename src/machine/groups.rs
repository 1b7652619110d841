//! What changes while a queue with groups runs: their limits, and their pauses.
//!
//! A group that is [held back](crate::order) no longer owes a wake-up for each of its keys that may be handed out now. One that is released
//! at a certain time owes [`Owed::DEADLINE`], if that is earlier than all others, and [`expire`](Machine::expire) releases it.

use super::{Claimed, EntryRef, Machine, Mode, NEVER, Owed};
use crate::order::{Bin, GroupView, Groups};

/// What a look sees of a group.
pub(crate) struct GroupSeen {
    pub(crate) group: GroupView,
    pub(crate) queued: usize,
    /// When the first of its queued keys became dirty, if that is known.
    pub(crate) queued_at: Option<u64>,
}

impl<K> Machine<K> {
    /// What a step owes that may have made [`until`](Self::until) earlier by what holds a group back.
    #[inline]
    pub(super) fn earlier(&mut self) -> Owed {
        let is_earlier =
            self.order.take_earlier() && self.order.held_until().is_some_and(|until| until <= self.until());
        Owed::only_if(is_earlier, Owed::DEADLINE)
    }

    /// No group is released before this time.
    pub(crate) fn held_until(&self) -> u64 {
        self.order.held_until().unwrap_or(NEVER)
    }

    /// A key with a group is handed out.
    #[inline(always)]
    pub(super) fn begin_of_group(&mut self, entry: EntryRef<K>, now: u64) -> Owed {
        if let Some(starts) = &mut self.starts {
            *starts.make(entry.number()) = now;
        }
        self.earlier()
    }

    /// The processing of a key ends. Returns the number of keys of its group that may be handed out because of that.
    #[inline(always)]
    pub(super) fn end_of_group(&mut self, entry: EntryRef<K>, now: u64) -> u32 {
        let start = self.starts.as_ref().map(|starts| starts[entry.number()]);
        self.order.ended(entry.group(), start.map_or(0, |start| now.saturating_sub(start)))
    }

    /// What is known of a group.
    fn see(&self, group: u32) -> Option<GroupSeen> {
        let mut queued_at: Option<u64> = None;
        let groups = self.order.as_groups()?;
        let queued = groups.queued_of(group, |entry| {
            queued_at = [queued_at, self.queued_at(entry)].into_iter().flatten().min();
        });
        Some(GroupSeen { group: groups.group(group), queued, queued_at })
    }

    pub(crate) fn see_group(&self, hash: u64) -> Option<GroupSeen> {
        let group = self.order.as_groups()?.find(hash)?;
        self.see(group)
    }

    /// Shows some of the groups, from this place on. Returns where to go on.
    pub(crate) fn see_groups(&self, from: usize, mut each: impl FnMut(GroupSeen)) -> Option<usize> {
        self.order.as_groups()?.each(from, |group| self.see(group).into_iter().for_each(&mut each))
    }

    /// Changes a group, if keys have groups: its limits, or whether it is paused. `change` returns the number of keys that became ready.
    pub(crate) fn change_group(
        &mut self,
        mode: Mode,
        change: impl FnOnce(&mut Groups<EntryRef<K>>, &mut Bin<EntryRef<K>>) -> u32,
    ) -> ((), Owed) {
        let ready = self.order.groups_mut().map_or(0, |groups| change(groups, &mut self.bin));
        ((), mode.ready(ready).and(self.earlier()).and(self.garbage()))
    }

    /// The hash of the group of a held key, if keys have groups.
    pub(crate) fn group_of(&self, claimed: &Claimed<K>) -> Option<u64> {
        self.order.group(self.held(claimed).group()).map(|group| group.hash)
    }

    /// Releases groups whose time has come. Returns whether there may be more.
    #[inline]
    pub(super) fn release(&mut self, now: u64, budget: &mut usize, mode: Mode) -> (bool, Owed) {
        if !mode.is_ordered || self.order.held_until().is_none_or(|until| until > now) {
            return (false, Owed::NOTHING);
        }
        let ready = self.order.release(now, budget, &mut self.bin);
        (self.order.held_until().is_some_and(|until| until <= now), mode.ready(ready).and(self.garbage()))
    }
}
