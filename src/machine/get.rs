//! `get`: hands out the next key.

use super::{Claimed, EntryRef, Machine, Mode, Owed};
use crate::order::Groups;

/// With more queued keys than this, not all are in the nearest cache.
const MANY: usize = 1024;
/// This many hand-outs before its own, the slot of a key and its chain are prefetched.
const AHEAD: u32 = 8;

impl<K> Machine<K> {
    /// Whether a [`get`](Self::get) needs the time.
    #[inline(always)]
    pub(crate) fn needs_time(&self, mode: Mode) -> bool {
        mode.is_ordered && self.order.as_groups().is_some_and(Groups::needs_time)
    }

    /// Whether an end of processing needs it, too.
    #[inline(always)]
    pub(crate) fn is_by_work(&self, mode: Mode) -> bool {
        mode.is_ordered && self.starts.is_some()
    }

    /// Hands out the next key of a plain queue ([`Mode::PLAIN`]), if it takes only a few instructions and owes nothing. After `None`, call
    /// [`get`](Self::get).
    #[inline(always)]
    pub(crate) fn get_simple(&mut self) -> Option<Claimed<K>> {
        let entry = self.order.pop_plain()?;
        Some(self.claim(entry, Mode::PLAIN))
    }

    #[inline(always)]
    pub(crate) fn get(&mut self, now: u64, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let entry = self.order.pop(now, &mut self.bin);
        self.got(entry, now, mode)
    }

    pub(crate) fn get_of_level(&mut self, level: u8, now: u64, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let entry = self.order.pop_level(level, now, &mut self.bin);
        self.got(entry, now, mode)
    }

    #[inline(always)]
    fn got(&mut self, entry: Option<EntryRef<K>>, now: u64, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let Some(entry) = entry else { return (None, self.garbage()) };
        let claimed = self.claim(entry, mode);
        let mut owed = self.over(mode).and(Owed::only_if(!self.bin.is_empty(), Owed::GARBAGE));
        if mode.is_ordered && self.order.has_groups() {
            owed = owed.and(self.begin_of_group(entry, now));
        }
        (Some(claimed), owed)
    }

    #[inline(always)]
    fn claim(&mut self, entry: EntryRef<K>, mode: Mode) -> Claimed<K> {
        self.counts.handed_out += 1;
        entry.state().on_get();
        if self.order.ready(mode.is_ordered) > MANY {
            self.order.upcoming(AHEAD, mode.is_ordered).into_iter().for_each(|entry| self.keys.prefetch(entry));
        }
        Claimed::new(entry)
    }
}
