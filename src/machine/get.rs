//! `get`: hands out the next key.

use super::{Claimed, EntryRef, Machine, Mode, Owed};

/// With more queued keys than this, not all are in the nearest cache.
const MANY: usize = 1024;
/// This many hand-outs before its own, the slot of a key and its chain are prefetched.
const AHEAD: u32 = 8;

impl<K> Machine<K> {
    /// Hands out the next key of a plain queue ([`Mode::PLAIN`]), if it takes only a few instructions and owes nothing. After `None`, call
    /// [`get`](Self::get).
    #[inline(always)]
    pub(crate) fn get_simple(&mut self) -> Option<Claimed<K>> {
        let entry = self.order.pop_plain()?;
        Some(self.claim(entry, Mode::PLAIN))
    }

    #[inline(always)]
    pub(crate) fn get(&mut self, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let entry = self.order.pop(&mut self.bin);
        self.got(entry, mode)
    }

    pub(crate) fn get_of_level(&mut self, level: u8, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let entry = self.order.pop_level(level, &mut self.bin);
        self.got(entry, mode)
    }

    #[inline(always)]
    fn got(&mut self, entry: Option<EntryRef<K>>, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let Some(entry) = entry else { return (None, self.garbage()) };
        let claimed = self.claim(entry, mode);
        (Some(claimed), self.over(mode).and(Owed::only_if(!self.bin.is_empty(), Owed::GARBAGE)))
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
