//! The life of one key, in one atomic word.
//!
//! Two bits, named as client-go names its two sets: DIRTY, the key must be processed (again), and PROCESSING, somebody
//! holds it.
//!
//! ```text
//!              add                  get                   add
//!   idle ────────────▶ DIRTY ────────────▶ PROCESSING ────────────▶ PROCESSING │ DIRTY
//!    ▲                 │  ▲ ▲               │      │                  │  │       │
//!    │           add ──┘  │ └── push ───────┼──────┼──── done ────────┘  └─ add ─┘
//!    └────────────────────┼──── done ───────┘      │     (back in line)  (nothing changes)
//!      (nothing changes) ─┘
//! ```
//!
//! A key is **in line** exactly when it is DIRTY and not PROCESSING. Who may make which step, and holding what:
//!
//! | step      | by                | holding                        | how                                   |
//! |-----------|-------------------|--------------------------------|---------------------------------------|
//! | add       | anybody           | the lock of the key's shard    | RMW: races with get and a clean done  |
//! | get       | who popped it     | the lock of the ready line     | RMW: races with add                   |
//! | done      | the holder        | nothing                        | RMW: only PROCESSING → idle           |
//! | done      | the holder        | the lock of the key's shard    | RMW                                   |
//! | watch     | who drains        | the lock of the key's shard    | RMW: makes the holder take the lock   |
//!
//! Every step is a read-modify-write, so that it always sees the newest value of the word, and every one both releases and
//! acquires. That is promise P2: an add that finds the key already DIRTY changes nothing, and *still publishes* what
//! happened before it to the get that follows.

use crate::sync::{AtomicU32, Ordering};

/// The key must be handed out (again).
const DIRTY: u32 = 1;
/// Somebody holds the key. Set by the one `get` that took it out of the line (I2).
const PROCESSING: u32 = 1 << 1;
/// Somebody waits in a drain for this key: its last `done` has to say so. Set once, never cleared.
const WATCHED: u32 = 1 << 2;

/// The state word of one key.
#[derive(Debug)]
pub(crate) struct State(AtomicU32);

/// What `add` owes.
#[must_use = "a key that became dirty while nobody held it has to be pushed"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OnAdd {
    /// The key was idle: push it, once (I5).
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
    /// Nothing: the key is idle.
    Idle,
    /// The key is idle, and whoever drains has to be told.
    IdleWatched,
    /// Added meanwhile: push it, once (I5).
    Push,
}

impl State {
    /// The word of a slot without a key, and of a key that nobody wants.
    pub(crate) fn idle() -> Self {
        Self(AtomicU32::new(0))
    }

    /// `add`. Caller holds the shard's lock. **Linearization point of an accepted `add`**, together with the push that
    /// follows under the same lock.
    #[inline]
    pub(crate) fn add(&self) -> OnAdd {
        let before = self.0.fetch_or(DIRTY, Ordering::AcqRel);
        if before & DIRTY != 0 {
            OnAdd::Coalesce
        } else if before & PROCESSING != 0 {
            OnAdd::Defer
        } else {
            OnAdd::Push
        }
    }

    /// `get`. Caller popped the key and still holds the line's lock. **Linearization point of `get`.**
    #[inline]
    pub(crate) fn get(&self) {
        let before = self.0.fetch_xor(DIRTY | PROCESSING, Ordering::AcqRel);
        debug_assert_eq!(before & (DIRTY | PROCESSING), DIRTY, "I1: only a key that is in line can be popped");
    }

    /// `done` of a key that nobody added meanwhile and nobody watches; `false`: take the shard's lock and call
    /// [`done`](Self::done). **Linearization point of `done` if `true`**; the slot is no longer the caller's then.
    #[inline]
    pub(crate) fn try_done(&self) -> bool {
        self.0.compare_exchange(PROCESSING, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// `done`. Caller holds the shard's lock. **Linearization point of `done`**, together with the push that follows
    /// under the same lock.
    pub(crate) fn done(&self) -> OnDone {
        let before = self.0.fetch_and(!PROCESSING, Ordering::AcqRel);
        debug_assert_ne!(before & PROCESSING, 0, "I2: done belongs to the holder");
        if before & DIRTY != 0 {
            OnDone::Push
        } else if before & WATCHED != 0 {
            OnDone::IdleWatched
        } else {
            OnDone::Idle
        }
    }

    /// Makes the last `done` of a busy key report. Caller holds the shard's lock. `true` if it will and would not have.
    pub(crate) fn watch(&self) -> bool {
        // A clean done may slip in between the check and the set, and would leave WATCHED on an idle word: hence one RMW.
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                (word & (DIRTY | PROCESSING) != 0 && word & WATCHED == 0).then_some(word | WATCHED)
            })
            .is_ok()
    }

    /// Neither in line nor in work. Stays so while the caller holds the shard's lock, since only `add` leaves this state.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: what the last holder did with the key happens before the key is dropped.
        self.0.load(Ordering::Acquire) & (DIRTY | PROCESSING) == 0
    }

    /// Added since it was last handed out.
    pub(crate) fn is_dirty(&self) -> bool {
        self.0.load(Ordering::Acquire) & DIRTY != 0
    }

    /// In somebody's hands.
    pub(crate) fn is_processing(&self) -> bool {
        // Relaxed: for counting only.
        self.0.load(Ordering::Relaxed) & PROCESSING != 0
    }

    /// Clears all bits of a word that no other thread can reach: its slot leaves or enters the table.
    pub(crate) fn reset(&self) {
        debug_assert!(self.is_idle());
        // Relaxed: the shard's lock orders it.
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_picture() {
        let s = State::idle();
        assert_eq!(s.add(), OnAdd::Push);
        assert_eq!(s.add(), OnAdd::Coalesce);
        s.get();
        assert!(s.is_processing() && !s.is_dirty());
        assert_eq!(s.add(), OnAdd::Defer);
        assert_eq!(s.add(), OnAdd::Coalesce);
        assert!(s.is_dirty());
        assert!(!s.try_done(), "dirty: needs the lock");
        assert_eq!(s.done(), OnDone::Push);
        s.get();
        assert!(s.try_done());
        assert!(s.is_idle());
    }

    #[test]
    fn a_watched_key_reports_once() {
        let s = State::idle();
        assert!(!s.watch(), "an idle key has nothing to report");
        assert_eq!(s.add(), OnAdd::Push);
        assert!(s.watch());
        assert!(!s.watch());
        s.get();
        assert_eq!(s.add(), OnAdd::Defer);
        assert_eq!(s.done(), OnDone::Push);
        s.get();
        assert!(!s.try_done(), "watched: has to report");
        assert_eq!(s.done(), OnDone::IdleWatched);
    }
}
