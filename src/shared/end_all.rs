//! The ends of many processings, which is what [`Batch`](crate::Batch) does. In a queue with one shard, one critical section ends some of
//! them.
//!
//! Their slots and buckets are prefetched before the lock, because a large batch has left the caches since it was handed out. With several
//! shards each key ends by itself, because sorting them by shard takes longer than the locks.

use super::Shared;
use super::hub::Flags;
use super::section::Section;
use crate::item::Item;
use crate::machine::{End, MaybeNanos};
use crate::panics::Caught;
use crate::sync::model_const;
use std::mem::needs_drop;

/// The number of processings that one critical section ends.
const AT_ONCE: usize = model_const(if cfg!(test) { 4 } else { 32 }, 2);

/// What is left to do after the lock.
struct Ended<K> {
    /// The keys that the queue has forgotten, if `K` needs a drop.
    gone: Vec<K>,
    /// For the observer: how long each key was processing, and whether an add that waited for a retry has taken effect.
    told: Vec<(MaybeNanos, bool)>,
    caught: Caught,
}

impl<K> Shared<K> {
    /// All ends take effect. Then the first panic of a key's drop or of the observer is passed on.
    pub(crate) fn end_all(&self, items: Vec<Item<'_, K>>, end: End) {
        let gone = Vec::with_capacity(if needs_drop::<K>() { AT_ONCE } else { 0 });
        let mut ended = Ended { gone, told: Vec::new(), caught: Caught::NOTHING };
        let mut items = items.into_iter();
        if !self.is_single() {
            ended.caught = Caught::call_for_each(&mut items, |item| self.end_anywhere(item.into_parts().1, end));
        }
        let locked = &self.first;
        while items.len() > 0 {
            let next = &items.as_slice()[..AT_ONCE.min(items.len())];
            next.iter().for_each(Item::prefetch);
            next.iter().for_each(|item| locked.prefetch_bucket(item.hash()));
            let held = locked.lock();
            locked.publish_buckets(&held);
            if self.flags().has(Flags::DONE) {
                ended.end_in(self.section(held), items.by_ref().take(AT_ONCE), end);
            } else {
                ended.end_in(self.plain_section(held, None), items.by_ref().take(AT_ONCE), end);
            }
            ended.drop_and_tell(self);
        }
        ended.caught.pass_on();
    }
}

impl<K> Ended<K> {
    #[inline(always)]
    fn end_in<'q>(&mut self, mut section: Section<'_, K>, items: impl Iterator<Item = Item<'q, K>>, end: End)
    where
        K: 'q,
    {
        let (shared, mut now) = (section.shared, None);
        for item in items {
            let (mut hand, claimed) = (None, item.into_parts().1);
            let mut worked = MaybeNanos::UNKNOWN;
            if section.mode.is_measured {
                let now = || *now.get_or_insert_with(|| shared.settings.clock.now_coarse());
                worked = section.marks().ended(&claimed, now);
            }
            section.done(&mut hand, claimed, end);
            if needs_drop::<K>() {
                self.gone.extend(hand);
            }
            if section.mode.is_measured && shared.is_observed() {
                self.told.push((worked, section.take_added()));
            }
        }
        section.end();
    }

    fn drop_and_tell(&mut self, shared: &Shared<K>) {
        if !self.gone.is_empty() {
            self.caught.keep(Caught::call_for_each(self.gone.drain(..), drop));
        }
        if !self.told.is_empty() {
            let tell = |(worked, has_added)| shared.tell_done(worked, has_added);
            self.caught.keep(Caught::call_for_each(self.told.drain(..), tell));
        }
    }
}
