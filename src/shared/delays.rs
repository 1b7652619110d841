//! Calls that set, move, cancel and take out delays. The steps are in `src/shard/delays.rs`; expiry is in [`driver`](super::driver).

use super::add::Wakeups;
use super::hub::Flags;
use super::locked::Locked;
use super::section::Section;
use super::{Failures, Shared};
use crate::key::{Claimed, Hash as KeyHash};
use crate::line::Group;
use crate::panics::contained;
use crate::shard::{AddedWith, BATCH, Delay, Known, NewKey, WHEEL_IS_FULL};
use crate::sync::{Arc, give_way};
use crate::{AddOptions, Added, DelayedKey};
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: Hash + Eq> Shared<K> {
    /// `add_with`.
    pub(crate) fn add_with(this: &Arc<Self>, key: K, options: AddOptions) -> Added {
        let asked;
        let options = match options.rate_limited && this.has_external_limiter() {
            true => {
                asked = this.limited(&key, options);
                &asked
            }
            false => &options,
        };
        let hash = this.hash(&key);
        let locked = this.shard_of(hash);
        locked.prefetch_bucket(hash);
        if options.has_level() && !locked.is_moved() {
            this.prepare_order(locked);
        }
        if this.flags().has(Flags::ORDERED) {
            return Self::add_limited_in_order(this, locked, key, hash, options);
        }
        Self::add_limited::<false>(this, locked, key, hash, options)
    }

    /// `add_with`, after the limiter has said how long. `ORDERED`: the queue is ordered.
    // `inline(always)`: the version for plain queues knows nothing of order.
    #[inline(always)]
    fn add_limited<const ORDERED: bool>(
        this: &Arc<Self>,
        locked: &Locked<K>,
        key: K,
        hash: KeyHash,
        options: &AddOptions,
    ) -> Added {
        let now = this.now_for(options);
        let added = {
            let mut section = this.enter(locked);
            let mut group = Group::default();
            if ORDERED {
                (section, group) = this.settle_group(section, &key, hash);
            } else if this.flags().has(Flags::ORDERED) {
                drop(section);
                return Self::add_limited_in_order(this, locked, key, hash, options);
            }
            locked.publish_buckets(&section);
            let open = !this.is_shutting_down();
            let failures = u64::from(options.rate_limited);
            if !open && !this.counts_inline(options) {
                section.counts.failures += failures;
                section.reject()
            } else {
                // The failure is counted after the look-up, below: if `K::eq` panics in the look-up, nothing has changed.
                let set = match section.find(&key, hash) {
                    Some(known) => this.add_known_with::<ORDERED>(known, open, now, options),
                    None if this.counts_inline(options) => {
                        let known = section.insert::<ORDERED>(key, hash, group);
                        this.add_known_with::<ORDERED>(known, open, now, options)
                    }
                    None if options.is_now() => {
                        section.counts.retries += u64::from(options.delay.is_some());
                        if ORDERED {
                            section.add_new_in_order(key, hash, NewKey { now, group, priority: options.level() });
                        } else {
                            section.add_new_measured(key, hash, now);
                        }
                        Added::Queued.into()
                    }
                    None => {
                        section.counts.retries += 1;
                        section.insert::<ORDERED>(key, hash, group).set_delay_at::<ORDERED>(now, options)
                    }
                };
                section.counts.failures += failures;
                section.added_with(set)
            }
        };
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    #[inline(never)]
    fn add_limited_in_order(
        this: &Arc<Self>,
        locked: &Locked<K>,
        key: K,
        hash: KeyHash,
        options: &AddOptions,
    ) -> Added {
        Self::add_limited::<true>(this, locked, key, hash, options)
    }

    /// `cancel`.
    pub(crate) fn cancel<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let hash = self.hash(key);
        let mut added = None;
        let removed = {
            let mut section = self.enter(self.shard_of(hash));
            let open = !self.is_shutting_down();
            let Some(mut known) = section.find(key, hash).filter(|known| known.state().is_delayed()) else {
                return false;
            };
            if known.remove_delay() && open {
                added = Some(known.add_that_waited());
            }
            let removed = known.remove_if_vacant();
            added.into_iter().for_each(|added| _ = section.added(added, Wakeups::Now));
            section.owe_drainers();
            removed
        };
        added.into_iter().for_each(|added| self.tell(|observer| observer.added(added)));
        drop(removed);
        true
    }
}

impl<K> Shared<K> {
    /// `add_with` and `done`, for the holder of the key, in one critical section.
    pub(crate) fn requeue(this: &Arc<Self>, claimed: Claimed<K>, options: AddOptions, failures: Failures) -> Added {
        Self::try_requeue(this, claimed, options, failures)
            .unwrap_or_else(|claimed| Self::done_after_refusal(this, claimed))
    }

    /// [`requeue`](Self::requeue), which returns the key if the queue has refused the add: then it is still held, and the caller calls
    /// [`done_after_refusal`](Self::done_after_refusal). No add comes in between, since the queue is shut down.
    #[inline]
    pub(crate) fn try_requeue(
        this: &Arc<Self>,
        claimed: Claimed<K>,
        options: AddOptions,
        failures: Failures,
    ) -> Result<Added, Claimed<K>> {
        if options.has_level() && !this.home(&claimed).is_moved() {
            this.prepare_order(this.home(&claimed));
        }
        if this.flags().has(Flags::ORDERED) {
            return Self::requeue_in_order(this, claimed, &options, failures);
        }
        Self::requeue_in::<false>(this, claimed, &options, failures)
    }

    /// [`requeue`](Self::requeue). `ORDERED`: as in [`add_limited`](Self::add_limited).
    #[inline(always)]
    fn requeue_in<const ORDERED: bool>(
        this: &Arc<Self>,
        claimed: Claimed<K>,
        options: &AddOptions,
        failures: Failures,
    ) -> Result<Added, Claimed<K>> {
        let now = this.now_for(options);
        let (added, worked, removed) = {
            let mut section = this.enter(this.home(&claimed));
            let with_priority;
            let mut options = options;
            if ORDERED {
                let priority = options.priority.unwrap_or_else(|| section.held_priority(&claimed));
                with_priority = options.priority(priority);
                options = &with_priority;
            } else if this.flags().has(Flags::ORDERED) {
                drop(section);
                return Self::requeue_in_order(this, claimed, options, failures);
            }
            let open = !this.is_shutting_down();
            if now.is_some() && open && !section.reserve_delay() {
                drop(section);
                this.refuse_requeue(claimed);
            }
            section.counts.failures += u64::from(options.rate_limited);
            let mut known = section.held(&claimed);
            if failures == Failures::Forget {
                known.clear_failures();
            }
            let set = this.add_known_with::<ORDERED>(known, open, now, options);
            let added = section.added_with(set);
            if added == Added::Rejected {
                return Err(claimed);
            }
            let (worked, removed) = section.end(claimed, now);
            (added, worked, removed)
        };
        // First: a panic of the observer must not leave a delay without a driver.
        Self::ensure_driver(this);
        this.tell_done(worked);
        drop(removed);
        if this.has_extras() {
            Self::after_add(this, added);
        }
        Ok(added)
    }

    #[inline(never)]
    fn requeue_in_order(
        this: &Arc<Self>,
        claimed: Claimed<K>,
        options: &AddOptions,
        failures: Failures,
    ) -> Result<Added, Claimed<K>> {
        Self::requeue_in::<true>(this, claimed, options, failures)
    }

    /// The wheel is full. The key must not stay with a holder that is no longer there (P13).
    #[cold]
    fn refuse_requeue(&self, claimed: Claimed<K>) -> ! {
        self.done(claimed);
        panic!("{WHEEL_IS_FULL}");
    }

    /// The rest of a requeue that the queue has refused.
    #[cold]
    pub(crate) fn done_after_refusal(this: &Arc<Self>, claimed: Claimed<K>) -> Added {
        this.done(claimed);
        if this.has_extras() {
            Self::after_add(this, Added::Rejected);
        }
        Added::Rejected
    }

    /// The time, if it is needed.
    #[inline]
    fn now_for(&self, options: &AddOptions) -> Option<u64> {
        (!options.is_now() || options.rate_limited).then(|| self.clock.now())
    }

    /// `add_with` of a key that is in the table. `open`: the queue is not shutting down. After a shut-down a failure still counts, as it
    /// does with an external limiter.
    #[inline]
    fn add_known_with<const ORDERED: bool>(
        &self,
        mut known: Known<'_, K>,
        open: bool,
        now: Option<u64>,
        options: &AddOptions,
    ) -> AddedWith {
        let limited;
        let mut options = options;
        if self.counts_inline(options) {
            let before = known.count_failure();
            limited = options.not_before(self.delay_after(before));
            options = &limited;
        }
        match open {
            false => known.reject().into(),
            true if ORDERED => known.add_with_in_order(now, options),
            true => known.add_with(now, options),
        }
    }
}

impl<K> Section<'_, K> {
    /// The rest of an `add_with`, after the step of the shard.
    #[inline]
    pub(super) fn added_with(&mut self, set: AddedWith) -> Added {
        match set.added {
            Added::Delayed => {
                self.on_new_deadline(set.deadline);
                Added::Delayed
            }
            added => self.added(added, Wakeups::Now),
        }
    }
}

impl<K: Hash + Eq + Clone> Shared<K> {
    /// `take_delayed`.
    pub(crate) fn take_delayed(this: &Arc<Self>) -> Vec<DelayedKey<K>> {
        let now = this.clock.now();
        let mut taken = TakenDelays { shared: this, delays: Vec::new() };
        for locked in this.all() {
            let mut left = locked.lock().delayed();
            // Allocates here, so that the critical sections allocate little.
            taken.delays.reserve(left);
            while left > 0 {
                {
                    let mut section = this.enter(locked);
                    for _ in 0..BATCH.min(left) {
                        let Some(delay) = section.take_delay() else {
                            left = 0;
                            break;
                        };
                        left -= 1;
                        taken.delays.push(delay);
                    }
                }
                if left > 0 {
                    give_way();
                }
            }
        }
        let mut delays = std::mem::take(&mut taken.delays);
        delays.sort_by_key(|delay| delay.deadline); // stable: equal deadlines stay in order
        delays.into_iter().map(|delay| DelayedKey::new(delay.key, delay.deadline, delay.priority, now)).collect()
    }
}

/// Delays that were taken out. Its drop sets those again that are still in it, if a clone has panicked, and in either case wakes the
/// callers that wait for the queue to be idle.
struct TakenDelays<'s, K: Hash + Eq> {
    shared: &'s Arc<Shared<K>>,
    delays: Vec<Delay<K>>,
}

impl<K: Hash + Eq> Drop for TakenDelays<'_, K> {
    fn drop(&mut self) {
        for delay in self.delays.drain(..) {
            contained(|| Shared::put_back_delay(self.shared, delay));
        }
        self.shared.all().for_each(|locked| self.shared.enter(locked).owe_drainers());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::time::wheel::MAX_BLOCKS;
    use crate::{AddOptions, Added, Clock, DelayConflict, Driver, WorkQueue};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// The wheel is full, so each call that sets a delay panics, and leaves each key where it was. (A failure and a
    /// priority may count, and the queue may keep a new key.)
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
            assert_eq!((queue.stats().next_deadline, queue.num_requeues(&4)), (Some(Duration::from_secs(1)), 1));
            let is_known = |key| queue.shared.first.lock().find(&key, queue.shared.hash(&key)).is_some();
            assert_eq!([1, 2].map(is_known), [true, false]);
            time.advance(Duration::from_secs(1));
            assert_eq!((queue.turn(), queue.len()), (2, 2));
            MAX_BLOCKS.set(1000);
            assert_eq!((queue.add_with(3, later), queue.cancel(&3), is_known(3)), (Added::Delayed, true, false));
        }
    }
}
