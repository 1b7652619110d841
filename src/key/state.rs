//! The life of one key, in one word.
//!
//! Two bits are named as client-go names its two sets: DIRTY, the key must be processed (again), and PROCESSING, somebody
//! holds it. They live as in the picture, and beside them, independent of them, DELAYED: the key is also in the timing wheel.
//!
//! ```text
//!            add                   get                          add
//!  absent ─────────▶ DIRTY ───────────────────▶ PROCESSING ──────────────▶ PROCESSING│DIRTY
//!    ▲               ▲   ↺ add: no change        │                          │     ↺ add: no change
//!    │               └───────────────────────────┼───────── done ───────────┘
//!    └──────────────────────────── done ─────────┘     (in line again, at the back)
//! ```
//!
//! * **I1** A key is in line at most once, and exactly when its word says DIRTY and not PROCESSING.
//! * **I2** PROCESSING is set by the one `get` that took the key out of the line, and cleared by the `done` of its holder.
//! * **I3** DIRTY and PROCESSING together mean: in line again at `done`.
//! * **I4** A key with a bit set is in the table; a key with none is not.
//! * **I5** Whoever makes a key DIRTY and not PROCESSING pushes it, once, and owes one wake-up.
//! * **I9** DELAYED means that the key has one entry in the wheel, with the deadline that counts. There are no stale entries:
//!   that of a delay that is moved or dropped is taken out in the same critical section.
//!
//! * **I10** FAILED means that the number of failures in the key's ticket is not 0. Without it, it is.
//!
//! UNWINDING goes with PROCESSING: the holder's thread was already unwinding when it got the key, so a drop of the item while it
//! unwinds says nothing about the work on this key.
//!
//! "Absent" is then: neither DIRTY nor PROCESSING; the key is in the table all the same while it is DELAYED. WAITING goes
//! with DELAYED: an add waits for this delay ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)). FAILED (I10) has nothing to do
//! with the others, but that it keeps the key in the table: the queue counts the failures of this key.
//!
//! Every step is made under the queue's lock, and that is what orders them: the word is an atomic only for
//! [`is_dirty`](State::is_dirty), which its holder may ask without the lock. Each step returns what its maker now owes.

use crate::sync::{AtomicU8, Ordering};

/// The key must be handed out (again).
const DIRTY: u8 = 1;
/// Somebody holds the key.
const PROCESSING: u8 = 1 << 1;
/// The key is in the wheel (I9).
const DELAYED: u8 = 1 << 2;
/// An add waits for the delay.
const WAITING: u8 = 1 << 3;
/// The key has failed, and was not forgotten since: its ticket says how often.
const FAILED: u8 = 1 << 4;
/// The key was handed out to a thread that was already unwinding.
const UNWINDING: u8 = 1 << 5;

/// The state word of one key.
#[derive(Debug)]
pub(crate) struct State(AtomicU8);

/// What `add` owes for a key that was in the table already.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OnAdd {
    /// It was only delayed, or known to fail: push it (I5).
    Push,
    /// It was dirty already: nothing to do.
    Coalesce,
    /// It is being processed: its `done` will push it.
    Defer,
}

/// What `done` owes.
#[must_use = "a key that is dirty again has to be pushed"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OnDone {
    /// Take the key out of the table (I4).
    Remove,
    /// Added meanwhile: push it (I5).
    Push,
    /// It is still delayed, or known to fail: leave it in the table.
    Keep,
}

// Relaxed where only the queue's lock orders the steps. Release in all that may happen while the key is held: the holder who
// sees DIRTY in `is_dirty` sees what came before the add that set it, also if the word was written again since.
impl State {
    /// The word of a slot without a key.
    pub(crate) fn vacant() -> Self {
        Self(AtomicU8::new(0))
    }

    /// `add` of a key that was not in the table. Push it (I5).
    #[inline]
    pub(crate) fn on_add_new(&self) {
        self.0.store(DIRTY, Ordering::Relaxed);
    }

    /// `add` of a key that is in the table.
    #[inline]
    pub(crate) fn on_add(&self) -> OnAdd {
        let before = self.0.load(Ordering::Relaxed);
        if before & DIRTY != 0 {
            return OnAdd::Coalesce;
        }
        self.0.store(before | DIRTY, Ordering::Release);
        if before & PROCESSING != 0 { OnAdd::Defer } else { OnAdd::Push }
    }

    /// An `add` has nothing to do: the key is dirty, and not delayed.
    #[inline]
    pub(crate) fn is_only_dirty(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (DIRTY | DELAYED) == DIRTY
    }

    /// `get`, by who popped the key.
    #[inline]
    pub(crate) fn on_get(&self) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(before & (DIRTY | PROCESSING), DIRTY, "I1: only a key that is in line can be popped");
        self.0.store(before ^ (DIRTY | PROCESSING), Ordering::Relaxed);
    }

    /// The key was taken out of the line, and is not handed out.
    pub(crate) fn on_take_back(&self) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(before & (DIRTY | PROCESSING), DIRTY, "I1: only a key that is queued can be taken");
        self.0.store(before & !DIRTY, Ordering::Relaxed);
    }

    /// `done`, by the holder.
    #[inline]
    pub(crate) fn on_done(&self) -> OnDone {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & PROCESSING, 0, "I2: done belongs to the holder");
        let left = before & !(PROCESSING | UNWINDING);
        self.0.store(left, Ordering::Relaxed);
        match left {
            0 => OnDone::Remove,
            _ if left & DIRTY != 0 => OnDone::Push,
            _ => OnDone::Keep,
        }
    }

    /// The thread that holds the key unwinds, and did so before it got the key.
    pub(crate) fn set_unwinding(&self) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & PROCESSING, 0, "only a holder unwinds");
        self.0.store(before | UNWINDING, Ordering::Release);
    }

    /// For the holder: whether its thread was already unwinding when it got the key.
    pub(crate) fn was_unwinding(&self) -> bool {
        // Relaxed: only the holder sets the bit, and others keep it.
        self.0.load(Ordering::Relaxed) & UNWINDING != 0
    }

    /// The key goes into the wheel.
    #[inline]
    pub(crate) fn set_delayed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | DELAYED, Ordering::Release);
    }

    /// An add will wait for the delay. `false`: it need not, the key is dirty already.
    pub(crate) fn defer_add(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & DELAYED, 0, "nothing to wait for");
        if before & DIRTY == 0 {
            self.0.store(before | WAITING, Ordering::Release);
        }
        before & DIRTY == 0
    }

    /// The key has left the wheel. Whether an add waited for that.
    #[inline]
    pub(crate) fn clear_delayed(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & DELAYED, 0, "I9");
        self.0.store(before & !(DELAYED | WAITING), Ordering::Release);
        before & WAITING != 0
    }

    /// A failure of the key is counted.
    #[inline]
    pub(crate) fn set_failed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | FAILED, Ordering::Release);
    }

    /// The failures of the key are forgotten.
    #[inline]
    pub(crate) fn clear_failed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !FAILED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FAILED != 0
    }

    #[inline]
    pub(crate) fn is_delayed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DELAYED != 0
    }

    #[inline]
    pub(crate) fn is_processing(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PROCESSING != 0
    }

    /// Added since it was last handed out.
    pub(crate) fn is_dirty(&self) -> bool {
        // Acquire: pairs with the releases in all that may happen while the key is held.
        self.0.load(Ordering::Acquire) & DIRTY != 0
    }

    /// No bit is set.
    pub(crate) fn is_vacant(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_picture() {
        let s = State::vacant();
        s.on_add_new();
        assert_eq!(s.on_add(), OnAdd::Coalesce);
        s.on_get();
        assert!(!s.is_dirty());
        assert_eq!(s.on_add(), OnAdd::Defer);
        assert_eq!(s.on_add(), OnAdd::Coalesce);
        assert!(s.is_dirty());
        assert_eq!(s.on_done(), OnDone::Push);
        s.on_get();
        assert_eq!(s.on_done(), OnDone::Remove);
        assert!(s.is_vacant());
    }

    #[test]
    fn beside_the_picture() {
        let s = State::vacant();
        s.set_delayed();
        assert_eq!(s.on_add(), OnAdd::Push);
        assert!(!s.defer_add(), "in line already");
        s.on_get();
        assert!(s.defer_add());
        assert_eq!(s.on_done(), OnDone::Keep);
        assert!(s.clear_delayed());
        assert!(s.is_vacant());
        s.set_failed();
        assert_eq!(s.on_add(), OnAdd::Push);
        s.on_get();
        assert_eq!(s.on_done(), OnDone::Keep);
        s.clear_failed();
        assert!(s.is_vacant());
    }

    #[test]
    fn unwinding_ends_with_the_hand_out() {
        let s = State::vacant();
        s.on_add_new();
        for dirty in [true, false] {
            s.on_get();
            assert!(!s.was_unwinding());
            s.set_unwinding();
            if dirty {
                assert_eq!(s.on_add(), OnAdd::Defer);
            }
            assert!(s.was_unwinding());
            assert_eq!(s.on_done(), if dirty { OnDone::Push } else { OnDone::Remove });
        }
        assert!(s.is_vacant());
    }
}
