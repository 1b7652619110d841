//! Tasks that wait for a key to be added that somebody holds, to know that the work on it is stale.
//!
//! They are few, and most queues have none: then an add of a held key looks at one number that is zero. Whoever
//! makes a held key dirty takes all that watch it off the list, in the same critical section, and wakes them after it. So there
//! is no moment in which a watcher could find the key clean and go to sleep unseen.

use super::{Core, Shared};
use crate::key::slab::SlotRef;
use crate::wait::Waiter;
use std::collections::BTreeMap;
use std::task::Waker;

/// By the number of the key's slot, and a number of its own.
#[derive(Default)]
pub(super) struct Watchers {
    waiting: BTreeMap<(u32, u64), Waker>,
    next: u64,
}

/// A watcher's place in the list, also while it is not in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch(u32, u64);

impl<K> Shared<K> {
    /// Whether a key is dirty. If not, its next add wakes this task, by the place that is kept in `watch`.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    pub(crate) unsafe fn watch(&self, slot: SlotRef<K>, watch: &mut Option<Watch>, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        let (dirty, _replaced) = {
            let core = &mut *self.core.lock();
            // SAFETY: held, says the caller.
            if unsafe { slot.get() }.state.is_dirty() {
                (true, None)
            } else {
                let number = core.table.number(slot);
                let Watch(number, own) = *watch.get_or_insert_with(|| {
                    core.watchers.next += 1;
                    Watch(number, core.watchers.next)
                });
                (false, core.watchers.waiting.insert((number, own), waker.take().expect("not used yet")))
            }
        };
        dirty
    }

    /// A task does not wait any more.
    pub(crate) fn unwatch(&self, Watch(number, own): Watch) {
        let _dropped_after_the_lock = self.core.lock().watchers.waiting.remove(&(number, own));
    }
}

impl<K> Core<K> {
    /// A key that is processing became dirty: the futures that wait for that are to be woken. (A future that was leaked may leave an
    /// entry behind; its task is woken in vain when another key in this slot is added.)
    #[inline]
    pub(super) fn owe_watchers(&mut self, slot: SlotRef<K>) {
        if !self.watchers.waiting.is_empty() {
            self.owe_watchers_of(slot);
        }
    }

    #[cold]
    fn owe_watchers_of(&mut self, slot: SlotRef<K>) {
        let number = self.table.number(slot);
        while let Some((&at, _)) = self.watchers.waiting.range((number, 0)..=(number, u64::MAX)).next() {
            let waker = self.watchers.waiting.remove(&at).expect("it was just found");
            self.owe_one(Waiter::Task(waker));
        }
    }
}
