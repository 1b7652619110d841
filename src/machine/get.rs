//! `get`: hands out the next key.

use super::{EntryRef, Machine, Mode, Owed};
use crate::order::Order;
use std::fmt;

/// With more queued keys than this, they are not all in the nearest cache.
const MANY: usize = 1024;
/// One of this number of hand-outs looks whether the order has left memory, which takes as long as a tenth of a hand-out.
const LOOKS: u64 = 64;
/// The slot of a key is brought near this many hand-outs before its own, and its chain half as many.
const AHEAD: u32 = 8;

/// A key that was handed out. Its owner ends its processing, once.
#[must_use = "a key that is processing has to be ended"]
pub(crate) struct Claimed<K>(pub(super) EntryRef<K>);

impl<K> Claimed<K> {
    #[inline]
    pub(crate) fn key(&self) -> &K {
        self.0.key()
    }

    /// The key was added since it was handed out. Needs no lock.
    pub(crate) fn is_dirty(&self) -> bool {
        self.0.state().is_dirty()
    }
}

impl<K: fmt::Debug> fmt::Debug for Claimed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claimed").field(self.key()).finish()
    }
}

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
        (Some(Claimed(entry)), owed)
    }

    /// Brings near what the next hand-outs will read.
    #[inline(never)]
    fn prefetch(&self) {
        self.order.upcoming(AHEAD).into_iter().for_each(EntryRef::prefetch);
        self.order.upcoming(AHEAD / 2).into_iter().for_each(|entry| self.keys.prefetch_chain(entry));
    }

    /// The priority with which the key was handed out.
    pub(crate) fn priority(&self, claimed: &Claimed<K>) -> i8 {
        claimed.0.priority()
    }
}
