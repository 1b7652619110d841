//! `cancel`, and `remove`, which takes back all that was added for a key. Delays are set by adds, and expire in [`driver`](super::driver)
//! and [`expire`](super::expire).

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use super::section::in_mode;
use super::state::if_free;
use crate::key::KeyHash;
use crate::machine::Cancelled;
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: Hash + Eq> Shared<K> {
    /// `cancel`.
    pub(crate) fn cancel<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let (hash, mut hand) = (self.hash(key), None);
        if_free!(self, free => {
            let cancelled = self.free_cancel(free, key, hash);
            if let Cancelled::Added(added) = cancelled {
                self.tell(|observer| observer.added(added));
            }
            cancelled != Cancelled::Nothing
        });
        let cancelled = match self.has_names() {
            true => self.cancel_by_name(key, hash),
            false => self.cancel_in(self.shard_of(hash), &mut hand, key, hash),
        };
        if let Cancelled::Added(added) = cancelled {
            self.tell(|observer| observer.added(added));
        }
        cancelled != Cancelled::Nothing
        // A key that has left the queue is dropped here.
    }

    #[cold]
    fn cancel_by_name<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Cancelled {
        let mut hand = None;
        let cancelled = self.look_up(hash, |locked, hash| {
            Some(self.cancel_in(locked, &mut hand, key, hash)).filter(|cancelled| *cancelled != Cancelled::Nothing)
        });
        cancelled.unwrap_or(Cancelled::Nothing)
    }

    #[inline(always)]
    fn cancel_in<Q>(&self, locked: &Locked<K>, hand: &mut Option<K>, key: &Q, hash: KeyHash) -> Cancelled
    where
        Q: Equivalent<K> + ?Sized,
    {
        let held = locked.lock();
        in_mode!(self, held, section, _extras => {
            let cancelled = section.cancel(hand, key, hash);
            section.end();
            cancelled
        })
    }

    /// `remove`.
    pub(crate) fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let (hash, mut hand) = (self.hash(key), None);
        if_free!(self, free => self.free_remove(free, key, hash));
        let removed = self.look_up(hash, |locked, hash| {
            let mut section = self.section(locked.lock());
            let removed = section.verb(|machine, mode| machine.remove(&mut hand, key, hash, mode));
            section.end();
            removed.then_some(())
        });
        removed.is_some()
        // A key that has left the queue is dropped here.
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::time::wheel::MAX_BLOCKS;
    use crate::{AddOptions, Added, Clock, DelayConflict, Driver, WorkQueue};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// The wheel is full, so each call that sets a delay panics, and leaves each key as it was.
    #[test]
    fn a_full_wheel_leaves_keys_as_they_were() {
        const LATER: Duration = Duration::from_secs(86_400);
        for priority in [None, Some(crate::Priority::HIGH)] {
            let (clock, time) = Clock::mock();
            let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
            let later = AddOptions { priority, ..AddOptions::new().after(LATER) };
            [1, 5].into_iter().for_each(|key| _ = queue.add_after(key, Duration::from_secs(1))); // one block
            queue.add(2);
            MAX_BLOCKS.set(1);
            let item = queue.try_get().unwrap();
            let calls: [Box<dyn FnOnce() + '_>; 4] = [
                Box::new(|| _ = queue.add_with(3, later)),
                Box::new(|| _ = queue.add_with(1, later.conflict(DelayConflict::Replace))),
                Box::new(|| _ = queue.add_with(4, later.rate_limited())),
                Box::new(|| _ = item.requeue_with(later)),
            ];
            for call in calls {
                let message = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
                assert!(message.downcast_ref::<String>().unwrap().contains("17 GB"));
            }
            assert_eq!((queue.delayed_len(), queue.processing_len(), queue.len()), (2, 0, 0));
            assert_eq!((queue.stats().next_deadline, queue.num_requeues(&4)), (Some(Duration::from_secs(1)), 0));
            let is_known = |key| queue.shared.first.lock().marks().find(&key, queue.shared.hash(&key)).is_some();
            assert_eq!([1, 2].map(is_known), [true, false]);
            time.advance(Duration::from_secs(1));
            assert_eq!((queue.turn(), queue.len()), (2, 2));
            MAX_BLOCKS.set(1000);
            assert_eq!((queue.add_with(3, later), queue.cancel(&3), is_known(3)), (Added::Delayed, true, false));
        }
    }
}
