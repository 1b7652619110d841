//! Tasks that wait until a key that is processing becomes dirty, because the work on it is stale then.
//!
//! Most queues have no such task: then an add of a processing key costs one test more. The critical section that makes the key dirty
//! takes the tasks that wait for it off the list, and they are woken after it. So no task can find the key clean and miss the add.

use super::{Core, Shared};
use crate::key::slab::SlotRef;
use crate::wait::Waiter;
use std::collections::BTreeMap;
use std::task::Waker;

/// The tasks, by the number of the key's slot and a number of their own.
#[derive(Default)]
pub(super) struct DirtyWaiters {
    waiting: BTreeMap<(u32, u64), Waker>,
    next: u64,
}

/// A task's place in the list; it keeps the place while it is off the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirtyTicket(u32, u64);

impl<K> Shared<K> {
    /// Whether a key is dirty. If not, puts the task on the list, for the next add of the key to wake it, and sets `ticket`.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    pub(crate) unsafe fn poll_dirty(&self, slot: SlotRef<K>, ticket: &mut Option<DirtyTicket>, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        let (dirty, _replaced) = {
            let core = &mut *self.core.lock();
            // SAFETY: guaranteed by the caller (S2).
            if unsafe { slot.get() }.state.is_dirty() {
                (true, None)
            } else {
                let number = core.table.number(slot);
                let DirtyTicket(number, own) = *ticket.get_or_insert_with(|| {
                    core.dirty_waiters.next += 1;
                    DirtyTicket(number, core.dirty_waiters.next)
                });
                (false, core.dirty_waiters.waiting.insert((number, own), waker.take().expect("not used yet")))
            }
        };
        dirty
    }

    /// A task stops waiting.
    pub(crate) fn leave_dirty_waiters(&self, DirtyTicket(number, own): DirtyTicket) {
        let _dropped_after_the_lock = self.core.lock().dirty_waiters.waiting.remove(&(number, own));
    }
}

impl<K> Core<K> {
    /// A key that is processing became dirty: owes a wake-up to each task that waits for this. (A future that was leaked may leave an
    /// entry behind; then an add of a later key in this slot wakes its task in vain.)
    #[inline]
    pub(super) fn owe_dirty_waiters(&mut self, slot: SlotRef<K>) {
        if !self.dirty_waiters.waiting.is_empty() {
            self.owe_dirty_waiters_of(slot);
        }
    }

    #[cold]
    fn owe_dirty_waiters_of(&mut self, slot: SlotRef<K>) {
        let number = self.table.number(slot);
        while let Some((&at, _)) = self.dirty_waiters.waiting.range((number, 0)..=(number, u64::MAX)).next() {
            let waker = self.dirty_waiters.waiting.remove(&at).expect("it was just found");
            self.owe_one(Waiter::Task(waker));
        }
    }
}
