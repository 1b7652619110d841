//! Gives back memory that the keys do not need, a step at a time.

use super::{Machine, Owed};
use crate::key::SideArray;
use crate::sync::model_const;

/// The number of chunks of slots that one call visits. It moves twice as many chains of the table.
const STEP: usize = model_const(128, 2);

impl<K> Machine<K> {
    /// Makes one step, the first one from 0. Returns where to go on, or `None` after the last.
    pub(crate) fn shrink(&mut self, from: usize) -> (Option<usize>, Owed) {
        if from == 0 {
            if self.order.shrink(&mut self.bin) {
                return (Some(0), self.garbage());
            }
            self.later.drop_empty_wheel();
        }
        // The number of chunks is read in each step, because it falls when the last chunk is freed.
        let next = if from < self.keys.chunks() {
            self.keys.shrink_chunks(from..from + STEP);
            Some(from + STEP)
        } else if self.keys.shrink_buckets(2 * STEP) {
            Some(from.max(1))
        } else {
            self.later.records.shrink();
            self.times.iter_mut().for_each(|times| times.keys.shrink());
            self.starts.iter_mut().for_each(SideArray::shrink);
            None
        };
        self.retire();
        (next, self.garbage())
    }
}
