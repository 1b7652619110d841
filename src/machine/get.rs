//! `get`: hands out the next key.

use super::{Claimed, EntryRef, Machine, Mode, Owed};
use crate::order::Order;

/// With more queued keys than this, they are not all in the nearest cache.
const MANY: usize = 1024;
/// One of this number of hand-outs looks whether the order has left memory, which takes as long as a tenth of a hand-out.
const LOOKS: u64 = 64;
/// The slot of a key is brought near this many hand-outs before its own, and its chain half as many.
const AHEAD: u32 = 8;

impl<K> Machine<K> {
    /// Hands out the next key.
    #[inline(always)]
    pub(crate) fn get(&mut self, mode: Mode) -> (Option<Claimed<K>>, Owed) {
        let Some(entry) = self.order.pop(&mut self.bin) else { return (None, Owed::NOTHING) };
        self.queued -= 1;
        self.counts.handed_out += 1;
        entry.state().on_get();
        if self.queued > MANY {
            self.prefetch();
        }
        let mut owed = self.over(mode);
        if self.counts.handed_out % LOOKS == 0 {
            owed = owed.and(self.garbage());
        }
        (Some(Claimed::new(entry)), owed)
    }

    /// Brings near what the next hand-outs will read.
    #[inline(never)]
    fn prefetch(&self) {
        self.order.upcoming(AHEAD).into_iter().for_each(EntryRef::prefetch);
        self.order.upcoming(AHEAD / 2).into_iter().for_each(|entry| self.keys.prefetch_chain(entry));
    }
}
