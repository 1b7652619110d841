//! `done`, and what becomes of a key whose holder unwinds.

use super::measure::{UNREAD, known};
use super::section::{Section, Special};
use super::{Core, Shared};
use crate::key::slab::SlotRef;
use crate::key::state::OnDone;
use crate::panics::contained;
use crate::shared::add::Wakeups;

impl<K> Shared<K> {
    /// `done`.
    ///
    /// # Safety
    /// The caller holds the key in this slot, and forgets the slot.
    #[inline]
    pub(crate) unsafe fn done(&self, slot: SlotRef<K>) {
        let _vacated = {
            let mut section = self.enter();
            if section.special.has(Special::MEASURED) {
                // SAFETY: guaranteed by the caller.
                return unsafe { self.done_measured(section, slot) };
            }
            // SAFETY: guaranteed by the caller.
            unsafe { self.finish(&mut section, slot) }
        };
    }

    /// [`done`](Self::done) of a queue that measures.
    ///
    /// # Safety
    /// That of [`done`](Self::done).
    #[inline(never)]
    unsafe fn done_measured(&self, mut section: Section<'_, K>, slot: SlotRef<K>) {
        let worked = section.note_done(slot, UNREAD);
        // SAFETY: guaranteed by the caller.
        let _vacated = unsafe { self.finish(&mut section, slot) };
        drop(section);
        self.tell(|observer| observer.done(known(worked)));
    }

    /// The step of `done`. **Linearization point.** Returns the key if no bit keeps it in the table (I4): dropped after the lock.
    ///
    /// # Safety
    /// That of [`done`](Self::done).
    #[inline]
    pub(super) unsafe fn finish(&self, core: &mut Core<K>, slot: SlotRef<K>) -> Option<K> {
        core.processing -= 1;
        // SAFETY: the caller holds the key (S2), and we hold the lock.
        let vacated = match unsafe { slot.get() }.state.on_done() {
            OnDone::Push => {
                self.push(core, slot, Wakeups::Now);
                None
            }
            OnDone::Keep => None,
            // SAFETY: the step above has cleared the last bit, and the caller forgets the slot (S2).
            OnDone::Remove => Some(unsafe { core.remove(slot) }),
        };
        core.owe_drainers();
        vacated
    }

    /// `done` in a thread that unwinds: catches a panic of the observer or of the key's drop, as a second panic would abort the process.
    /// The key is done before that.
    ///
    /// # Safety
    /// That of [`done`](Self::done).
    #[cold]
    pub(crate) unsafe fn done_in_panic(&self, slot: SlotRef<K>) {
        // SAFETY: guaranteed by the caller.
        contained(|| unsafe { self.done(slot) });
    }

    /// Notes that the thread was already unwinding when it got this key.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    #[cold]
    pub(crate) unsafe fn note_unwinding(&self, slot: SlotRef<K>) {
        let _lock = self.core.lock();
        // SAFETY: the caller holds the key (S2), and we hold the lock.
        unsafe { slot.get() }.state.set_unwinding();
    }

    /// The holder of a key has panicked.
    #[cold]
    pub(crate) fn note_panic(&self) {
        self.core.lock().counts.panics += 1;
        self.tell(|observer| observer.panicked());
    }
}
