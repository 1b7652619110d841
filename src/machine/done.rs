//! `done`: ends the processing of a key.

use super::{Claimed, Machine, Owed};
use crate::key::OnDone;
use crate::order::Order;

/// What became of a key that was processing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It is queued again: it was added meanwhile.
    Queued,
    /// It is still known.
    Kept,
    /// It is forgotten, and in the hand.
    Gone,
}

impl<K> Machine<K> {
    /// Ends the processing of a key.
    #[inline(always)]
    pub(crate) fn done(&mut self, hand: &mut Option<K>, Claimed(entry): Claimed<K>) -> (Ended, Owed) {
        self.active -= 1;
        let has_room = self.order.ended(entry.group());
        let (ended, owed) = match entry.state().on_done() {
            OnDone::Push => (Ended::Queued, self.push(entry, entry.pending())),
            OnDone::Keep => (Ended::Kept, Owed::NOTHING),
            OnDone::Remove => {
                *hand = Some(self.forget(entry));
                (Ended::Gone, self.garbage())
            }
        };
        (ended, owed.and(Owed::ready(u32::from(has_room))).and(self.drained()))
    }
}
