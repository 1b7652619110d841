//! The number of failures of each key, for a queue that counts them itself: see `src/shared/failures.rs`.

use super::{Known, Shard};
use crate::key::{Claimed, Hash};
use equivalent::Equivalent;

impl<K> Shard<K> {
    /// Finds a key whose failures may have been counted.
    pub(crate) fn find_failing<Q: Equivalent<K> + ?Sized>(&mut self, key: &Q, hash: Hash) -> Option<Known<'_, K>> {
        if self.later.failing == 0 { None } else { self.find(key, hash) }
    }

    /// Forgets the failures of a key that the caller holds.
    #[inline]
    pub(crate) fn clear_failures(&mut self, claimed: &Claimed<K>) {
        self.held(claimed).clear_failures();
    }
}

impl<K> Known<'_, K> {
    /// The failures that were counted.
    pub(crate) fn failures(&self) -> usize {
        if self.state().has_failed() { self.shard.later.records[self.number()].failures as usize } else { 0 }
    }

    /// Counts one more failure. Returns the number before.
    #[inline]
    pub(crate) fn count_failure(&mut self) -> u32 {
        let number = self.number();
        let later = &mut self.shard.later;
        later.records.make(number);
        let failures = &mut later.records[number].failures;
        let before = *failures;
        *failures = before.saturating_add(1);
        later.failing += usize::from(before == 0);
        debug_assert_eq!(self.state().has_failed(), before > 0, "FAILED says that failures are counted (I10)");
        self.state().set_failed();
        before
    }

    /// Forgets the failures. The caller takes the key out if no other bit keeps it there (I4).
    #[inline]
    pub(crate) fn clear_failures(&mut self) {
        if self.state().has_failed() {
            let number = self.number();
            self.shard.later.records[number].failures = 0;
            self.shard.later.failing -= 1;
            self.state().clear_failed();
        }
    }
}
