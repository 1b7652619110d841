//! Opening a slot: its entries have expired, or move to finer slots.
//!
//! A slot of more than `SORT_MAX` entries is opened in two passes, so that an expired entry waits only for a look at each block, and not
//! until a million entries have moved:
//!
//! ```text
//!   slot ──▶ OPENING ──▶ expire by the near horizon: to finer slots
//!               └──────▶ DEFERRED ──▶ BACKLOG ──▶ to finer slots, while no entry has expired
//! ```
//!
//! If a finer slot is opened meanwhile, its entries take the same way, and those that are deferred go in front of the backlog (T4).

use super::blocks::{DEAD, EntryBlock};
use super::{BACKLOG, DEFERRED, EXPIRED, HEAD, OPENING, Placements, Wheel};

/// A slot of at most this number of entries is opened in one step, which sorts them.
pub(super) const SORT_MAX: usize = if cfg!(loom) { 1 } else { 256 };

/// How many ticks the near horizon is ahead of the time at which a slot is opened: a tenth of a second.
pub(super) const NEAR_HORIZON: u64 = 100_000_000;

impl Wheel {
    /// Moves entries of the backlog to finer slots. The caller has found that no entry has expired.
    pub(crate) fn cascade(&mut self, placements: &mut impl Placements, budget: &mut usize) {
        while *budget > 0 {
            let Some((number, deadline)) = self.pop_front(BACKLOG) else { return };
            self.place(placements, number, deadline);
            *budget -= 1;
        }
    }

    /// Opens the first slot, in which an entry may have expired.
    pub(super) fn open_slot(
        &mut self,
        placements: &mut impl Placements,
        head: u32,
        start: u64,
        end: u64,
        now: u64,
        budget: &mut usize,
    ) {
        if start == end {
            // At level 0 all entries have the same deadline, so they have expired.
            self.elapsed = start.max(self.elapsed);
            return self.splice_at_end(head, EXPIRED);
        }
        let (mut live, mut block) = (0, self.links(head).1);
        while block & HEAD == 0 && live <= SORT_MAX {
            live += usize::from(self.blocks[block].live);
            block = self.links(block).1;
        }
        if live > SORT_MAX {
            // All of them move to finer slots, step by step.
            if self.is_empty(BACKLOG) {
                self.opening_end = end;
                self.horizon = now.saturating_add(NEAR_HORIZON);
            }
            self.elapsed = start;
            return self.splice_at_end(head, OPENING);
        }
        let mut entries = std::mem::take(&mut self.sort_buffer);
        entries.extend(std::iter::from_fn(|| self.pop_front(head)).map(|(number, deadline)| (deadline, number)));
        *budget = budget.saturating_sub(entries.len());
        self.elapsed = now.min(end);
        entries.sort_by_key(|&(deadline, _)| deadline); // stable (T4)
        for (deadline, number) in entries.drain(..) {
            if deadline <= now {
                self.push(placements, EXPIRED, number, deadline);
            } else {
                self.place(placements, number, deadline);
            }
        }
        self.sort_buffer = entries;
    }

    /// Takes the first block of `OPENING`. Its entries that expire by the horizon move to their slots, and the block with the others is
    /// deferred.
    pub(super) fn sift_block(&mut self, placements: &mut impl Placements, budget: &mut usize) {
        let index = self.links(OPENING).1;
        let EntryBlock { first, end, mut live, earliest, .. } = self.blocks[index];
        let mut at = usize::from(if earliest > self.horizon { end } else { first });
        // A block that has lost its last entry must not be read, because it may be in another list by now.
        while at < usize::from(end) && live > 0 {
            let block = &self.blocks[index];
            let (number, deadline) = (block.numbers[at], block.deadlines[at]);
            if number != DEAD && deadline <= self.horizon {
                *budget = budget.saturating_sub(1);
                live -= 1;
                self.remove_entry(index, at);
                self.place(placements, number, deadline);
            }
            at += 1;
        }
        *budget = budget.saturating_sub(1);
        if live > 0 {
            let next = self.links(index).1;
            self.link(OPENING, next);
            let last = self.links(DEFERRED).0;
            self.link(last, index);
            self.link(index, DEFERRED);
        }
    }
}
