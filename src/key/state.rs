//! The state of one key, in one word of bits.
//!
//! Two bits have the names of client-go's two sets: DIRTY means that the key must be handed out (again), and PROCESSING that it has a
//! holder. A key is *queued* while it is DIRTY and not PROCESSING.
//!
//! ```text
//!            add                   get                          add
//!  absent ─────────▶ DIRTY ───────────────────▶ PROCESSING ──────────────▶ PROCESSING│DIRTY
//!    ▲             (queued)  ↺ add: no change    │                          │     ↺ add: no change
//!    │               ▲                           │                          │
//!    │               └───────────────────────────┼───────── done ───────────┘
//!    └──────────────────────────── done ─────────┘     (queued again, at the back)
//! ```
//!
//! The step that makes a key queued pushes it, once (I1, I5), and only the holder's `done` clears PROCESSING (I2). A key is in the table
//! while any of its bits is set (I4), so "absent" in the picture means that it has neither DIRTY nor PROCESSING, but perhaps another bit:
//!
//! | bit | meaning |
//! |---|---|
//! | DELAYED | the key has an entry in the timing wheel (I9) |
//! | FAILED | the queue has counted failures of the key that were not forgotten since (I10) |
//! | RESTING | the key is cooling down after a run, so an add does not make it dirty, but sets WAITING (I11) |
//! | WAITING | an add waits: for the end of a rest, or for a retry ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)) |
//! | AWAITED | somebody waits until the key, which is processing, becomes dirty; the verb that makes it dirty owes the news |
//! | UNWINDING | the holder's thread was unwinding already when it got the key, so an item that this drops has not panicked |
//!
//! Steps are made under the lock. The word is an atomic because the holder of the key reads it without, as in
//! [`is_dirty`](State::is_dirty). The steps are functions of the bits, which a `State` applies with a load and a store, and the word of a
//! lock-free queue (`word.rs`) with a compare-and-swap.

use crate::sync::{AtomicU8, Ordering};

pub(super) const DIRTY: u8 = 1;
pub(super) const PROCESSING: u8 = 1 << 1;
pub(super) const DELAYED: u8 = 1 << 2;
const WAITING: u8 = 1 << 3;
const FAILED: u8 = 1 << 4;
pub(super) const UNWINDING: u8 = 1 << 5;
pub(super) const AWAITED: u8 = 1 << 6;
pub(super) const RESTING: u8 = 1 << 7;

/// `add` of a key that is known. The bits change only if the answer is `Push` or `Defer`.
#[inline(always)]
pub(super) fn on_add(before: u8) -> (u8, OnAdd) {
    if before & DIRTY != 0 {
        (before, OnAdd::Coalesce)
    } else if before & PROCESSING != 0 {
        (before | DIRTY, OnAdd::Defer)
    } else if before & RESTING != 0 {
        (before, OnAdd::Hold)
    } else {
        (before | DIRTY, OnAdd::Push)
    }
}

/// `get`, after the key was popped.
#[inline(always)]
pub(super) fn on_get(before: u8) -> u8 {
    debug_assert_eq!(before & (DIRTY | PROCESSING), DIRTY, "I1: only a queued key can be popped");
    before ^ (DIRTY | PROCESSING)
}

/// `done`, by the holder. `write` gets the bits that are left; if it is called twice, the second call counts.
#[inline(always)]
pub(super) fn on_done(before: u8, mut write: impl FnMut(u8)) -> OnDone {
    debug_assert_ne!(before & PROCESSING, 0, "I2: done belongs to the holder");
    let left = before & !(PROCESSING | UNWINDING | AWAITED);
    write(left);
    match left {
        0 => OnDone::Remove,
        _ if left & (DIRTY | RESTING) == DIRTY => OnDone::Push,
        _ if left & DIRTY != 0 => {
            write(left & !DIRTY);
            OnDone::Hold
        }
        _ => OnDone::Keep,
    }
}

/// Takes back that the key is to be handed out, because it was taken out of the order, or is processing and forgets the add.
#[inline(always)]
pub(super) fn take_back(before: u8) -> u8 {
    debug_assert_ne!(before & DIRTY, 0, "only a dirty key can be taken back");
    before & !DIRTY
}

#[derive(Debug)]
pub(crate) struct State(AtomicU8);

/// What the caller has to do for an `add` of a key that was in the table already.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnAdd {
    /// Push the key (I5): it was only delayed, or had failed.
    Push,
    /// Nothing: the key was dirty already.
    Coalesce,
    /// Nothing: the key is processing, and its `done` will push it (I3).
    Defer,
    /// Hold the add back, as the key is cooling down. The word is as it was.
    Hold,
}

/// What the caller has to do for a `done`.
#[must_use = "a key that is dirty again has to be pushed"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDone {
    /// Take the key out of the table (I4).
    Remove,
    /// Push the key (I5): it was added while it was processing.
    Push,
    /// Hold the add back, as the key is cooling down. It is not dirty any more.
    Hold,
    /// Leave the key in the table: it is delayed, or has failed.
    Keep,
}

// Relaxed where the queue's lock alone orders the steps. Release in each step that another thread may make while the key is held, so that a
// holder that sees DIRTY in `is_dirty` sees what came before the add that set it, even if the word was written again since.
impl State {
    pub(super) fn vacant() -> Self {
        Self(AtomicU8::new(0))
    }

    /// `add` of a key that was not in the table. The caller pushes it (I5).
    #[inline]
    pub(crate) fn on_add_new(&self) {
        self.0.store(DIRTY, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn on_add(&self) -> OnAdd {
        let before = self.0.load(Ordering::Relaxed);
        let (after, what) = on_add(before);
        if matches!(what, OnAdd::Push | OnAdd::Defer) {
            self.0.store(after, Ordering::Release);
        }
        what
    }

    /// `get`, after the key was popped.
    #[inline]
    pub(crate) fn on_get(&self) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(on_get(before), Ordering::Relaxed);
    }

    /// See [`take_back`].
    pub(crate) fn take_back(&self) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(take_back(before), Ordering::Release);
    }

    #[inline]
    pub(crate) fn on_done(&self) -> OnDone {
        let before = self.0.load(Ordering::Relaxed);
        on_done(before, |left| self.0.store(left, Ordering::Relaxed))
    }

    /// Makes the key cool down after this run. Called by the holder.
    pub(crate) fn set_resting(&self) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & PROCESSING, 0, "a rest begins with the end of a run");
        self.0.store(before | RESTING, Ordering::Release);
    }

    /// Makes the key processing, as the word of its node says.
    #[cfg(feature = "lock-free")]
    pub(crate) fn hold(&self, is_dirty: bool) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(before & (DIRTY | PROCESSING), 0, "between two critical sections it is neither");
        self.0.store(before | PROCESSING | if is_dirty { DIRTY } else { 0 }, Ordering::Release);
    }

    /// Makes the key queued, though it was to rest.
    pub(crate) fn set_dirty(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | DIRTY, Ordering::Release);
    }

    pub(crate) fn clear_resting(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !RESTING, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_resting(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RESTING != 0
    }

    /// Whether the key has an entry in the wheel, because it is delayed or cooling down.
    #[inline]
    pub(crate) fn is_in_wheel(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (DELAYED | RESTING) != 0
    }

    /// Makes an add wait for the end of the rest.
    pub(crate) fn set_waiting(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | WAITING, Ordering::Release);
    }

    /// Notes that the holder's thread was already unwinding when it got the key.
    pub(crate) fn set_unwinding(&self) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & PROCESSING, 0, "I2: only a holder unwinds");
        self.0.store(before | UNWINDING, Ordering::Release);
    }

    /// Whether the holder's thread was already unwinding when it got the key. Called by the holder.
    pub(crate) fn was_unwinding(&self) -> bool {
        // Relaxed: only the holder sets the bit, and other threads leave it alone.
        self.0.load(Ordering::Relaxed) & UNWINDING != 0
    }

    /// Waits until the key becomes dirty. Returns `false` if it is dirty already.
    pub(crate) fn await_dirty(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & PROCESSING, 0, "only a holder waits for this");
        if before & DIRTY == 0 {
            self.0.store(before | AWAITED, Ordering::Release);
        }
        before & DIRTY == 0
    }

    /// Whether somebody was waiting for the key to become dirty, which it is now.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AWAITED != 0
    }

    pub(crate) fn clear_awaited(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !AWAITED, Ordering::Release);
    }

    /// Called when the key goes into the wheel (I9).
    #[inline]
    pub(crate) fn set_delayed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | DELAYED, Ordering::Release);
    }

    /// Makes an add wait for the delay, unless the key is dirty already. Returns whether it waits.
    pub(crate) fn defer_add(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & DELAYED, 0, "nothing to wait for");
        if before & DIRTY == 0 {
            self.0.store(before | WAITING, Ordering::Release);
        }
        before & DIRTY == 0
    }

    /// Whether an add waits for the delay.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAITING != 0
    }

    /// Called when the key is added, so that no add waits for its delay any more.
    pub(crate) fn stop_waiting(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !WAITING, Ordering::Release);
    }

    /// Called when the key has left the wheel (I9). Returns whether an add waited for the delay.
    #[inline]
    pub(crate) fn clear_delayed(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(before & DELAYED, 0, "a key in the wheel is delayed (I9)");
        self.0.store(before & !(DELAYED | WAITING), Ordering::Release);
        before & WAITING != 0
    }

    /// Called when the queue has counted a failure of the key (I10).
    #[inline]
    pub(crate) fn set_failed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | FAILED, Ordering::Release);
    }

    /// Called when the queue has forgotten the failures of the key (I10).
    #[inline]
    pub(crate) fn clear_failed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !FAILED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FAILED != 0
    }

    /// Whether the key has failed or is delayed.
    #[inline]
    pub(crate) fn has_past(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (FAILED | DELAYED) != 0
    }

    #[inline]
    pub(crate) fn is_delayed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DELAYED != 0
    }

    /// Whether the key is dirty and not processing (I1).
    pub(crate) fn is_queued(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (DIRTY | PROCESSING) == DIRTY
    }

    #[inline]
    pub(crate) fn is_processing(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PROCESSING != 0
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (DIRTY | PROCESSING) != 0
    }

    /// Whether the key is queued, processing or delayed, and so counts for the queue's bound.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (DIRTY | PROCESSING | DELAYED) != 0
    }

    /// Whether the key was added since it was last handed out.
    pub(crate) fn is_dirty(&self) -> bool {
        // Acquire: pairs with the releases in the steps that may happen while the key is held.
        self.0.load(Ordering::Acquire) & DIRTY != 0
    }

    #[inline]
    pub(crate) fn is_vacant(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dirty_and_processing() {
        let s = State::vacant();
        s.on_add_new();
        assert_eq!(s.on_add(), OnAdd::Coalesce);
        s.on_get();
        assert!(!s.is_dirty());
        assert_eq!(s.on_add(), OnAdd::Defer);
        assert_eq!(s.on_add(), OnAdd::Coalesce);
        assert!(s.is_dirty());
        s.take_back();
        assert!(!s.is_dirty());
        assert_eq!(s.on_add(), OnAdd::Defer);
        assert_eq!(s.on_done(), OnDone::Push);
        s.on_get();
        assert_eq!(s.on_done(), OnDone::Remove);
        assert!(s.is_vacant());
    }

    #[test]
    fn delayed_and_failed_keep_the_key() {
        let s = State::vacant();
        s.set_delayed();
        assert_eq!(s.on_add(), OnAdd::Push);
        assert!(!s.defer_add(), "queued already");
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
