//! Which slot a deadline belongs to, and which slot is next.

use super::{DIGIT, HEAD, Placements, SLOTS, Wheel};

impl Wheel {
    /// The slot that has the earliest entry (T2).
    #[inline]
    pub(super) fn first(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first and the last tick of a slot.
    pub(super) fn range(&self, level: usize, slot: usize) -> (u64, u64) {
        let low = DIGIT * level as u32;
        // The digits above the slot's are those of `elapsed`, and level 10 has none above.
        let above = self.elapsed.checked_shr(low + DIGIT).unwrap_or(0).checked_shl(low + DIGIT).unwrap_or(0);
        let start = above | (slot as u64) << low;
        (start, start | ((1 << low) - 1))
    }

    /// Adds an entry to its slot (T1).
    #[inline]
    pub(super) fn place(&mut self, placements: &mut impl Placements, number: u32, deadline: u64) {
        let tick = deadline.max(self.elapsed);
        let level = ((tick ^ self.elapsed) | 1).ilog2() / DIGIT;
        let slot = (tick >> (level * DIGIT)) as usize % SLOTS;
        let at = level as usize * SLOTS + slot;
        self.occupied[level as usize] |= 1 << slot;
        self.heads[at].earliest = self.heads[at].earliest.min(deadline);
        self.push(placements, HEAD | at as u32, number, deadline);
    }
}
