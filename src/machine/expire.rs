//! Keys whose delays have expired become dirty, in batches of small steps (P11).

use super::later::NEVER;
use super::{Machine, Mode, Owed};
use crate::Added;
use crate::order::NORMAL;
use crate::sync::model_const;
use crate::time::wheel::Popped;

/// The number of steps that one call makes at most.
pub(crate) const BATCH: usize = model_const(128, 2);

/// The number of keys that are taken out of the wheel before they are added, so that their slots are in the cache by then.
const NEAR: usize = model_const(16, 2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expired {
    /// The number of expired delays, by what the add did: queued, deferred, coalesced.
    pub(crate) by_answer: [usize; 3],
    /// The number of keys that have cooled down without an add that waited for it.
    pub(crate) rests: usize,
    /// Whether there may be more to do at this time.
    pub(crate) has_more: bool,
    /// Whether that is to sort deadlines that are still to come.
    pub(crate) is_ahead: bool,
}

impl<K> Machine<K> {
    /// Adds at most this number of keys whose delays have expired, and releases groups whose time has come. When none is left,
    /// [`until`](Self::until) says until when that is so.
    pub(crate) fn expire(&mut self, now: u64, at_most: usize, mode: Mode) -> (Expired, Owed) {
        // A key takes two steps: it is sorted, and taken out.
        let (mut by_answer, mut owed, mut budget, mut left) = ([0; 3], Owed::NOTHING, BATCH.min(2 * at_most), at_most);
        let mut rests = 0;
        let (has_more_groups, released) = self.release(now, &mut { BATCH }, mode);
        owed = owed.and(released);
        if !mode.is_open {
            return (Expired { by_answer, rests, has_more: has_more_groups, is_ahead: false }, owed);
        }
        let (has_more, is_ahead) = loop {
            let (mut near, mut count) = ([const { None }; NEAR], 0);
            let next = loop {
                match self.later.pop(now, &mut budget) {
                    Popped::Expired(number) => {
                        let entry = self.keys.get(number).expect("a delayed key is known");
                        entry.prefetch();
                        let mut special = None;
                        let is_special = self.later.has_special_keys();
                        let stayed = if is_special { self.left_the_wheel(entry, now, mode) } else { None };
                        if let Some((priority, more)) = stayed {
                            owed = owed.and(more);
                            if priority.is_none() {
                                rests += 1;
                                continue;
                            }
                            special = priority;
                        }
                        near[count] = Some((entry, special));
                        count += 1;
                        if count == NEAR.min(left) {
                            break Popped::BudgetSpent;
                        }
                    }
                    next => break next,
                }
            };
            left -= count;
            for (entry, special) in near.into_iter().map_while(|entry| entry) {
                self.counts.expired += 1;
                let priority = match special {
                    Some(priority) => priority,
                    None => {
                        let priority = if mode.is_ordered { self.first_delay(entry).priority } else { NORMAL };
                        self.end_delay(entry);
                        priority
                    }
                };
                let priority = if mode.is_ordered { priority } else { NORMAL };
                let (added, more) = self.make_dirty(entry, priority, mode);
                if mode.is_measured {
                    self.times.iter_mut().for_each(|times| times.dirty_at(now));
                }
                owed = owed.and(more);
                match added {
                    Added::Queued => by_answer[0] += 1,
                    Added::Deferred => by_answer[1] += 1,
                    _ => by_answer[2] += 1,
                }
            }
            match next {
                Popped::BudgetSpent if budget > 0 && left > 0 => {}
                Popped::Until(until) => {
                    self.later.until = until;
                    break (false, false);
                }
                Popped::Empty => {
                    self.later.until = NEVER;
                    break (false, false);
                }
                next => break (true, next == Popped::NeedsCascade),
            }
        };
        let is_ahead = is_ahead && !has_more_groups;
        (Expired { by_answer, rests, has_more: has_more || has_more_groups, is_ahead }, owed.and(self.later.garbage()))
    }

    /// No delay expires, and no group is released, before this time, which is [`NEVER`] if there is none. After the shut-down no delay
    /// expires.
    #[inline]
    pub(crate) fn until(&self) -> u64 {
        let delays = if self.is_shut_down { NEVER } else { self.later.until };
        self.order.held_until().map_or(delays, |until| until.min(delays))
    }

    /// Whether deadlines are still to be sorted.
    #[cfg(test)]
    pub(crate) fn is_sorting(&mut self) -> bool {
        self.later.is_sorting()
    }

    /// For statistics, the earliest deadline, or an earlier time while deadlines are being sorted, or while a key cools down until then.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.later.delayed == 0 { None } else { self.later.earliest() }
    }
}
