//! What a verb leaves to its caller, and what it is told of the queue.

/// Eight bytes, so that an answer and what is owed fit two registers. That nobody waits for anything is one test:
/// `owed.what & awaited == 0`.
///
/// A key that is to be dropped is not in here, but in the caller's hand; memory is in the machine until
/// [`take_garbage`](super::Machine::take_garbage).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "somebody waits for what is owed"]
pub(crate) struct Owed {
    /// The bits below.
    pub(crate) what: u8,
    /// The number of keys that became ready to be taken.
    pub(crate) ready: u32,
}

impl Owed {
    pub(crate) const NOTHING: Self = Self { what: 0, ready: 0 };
    /// Getters are owed wake-ups, as many as `ready`.
    pub(crate) const READY: u8 = 1;
    /// No key is queued or processing: those who wait for this look again.
    pub(crate) const DRAINED: u8 = 2;
    /// The queue is shut down, and no key is queued here: all getters look again.
    pub(crate) const OVER: u8 = 4;
    /// A delay expires earlier than all others: the driver is owed a wake-up.
    pub(crate) const DEADLINE: u8 = 8;
    /// The machine has memory to be freed.
    pub(crate) const GARBAGE: u8 = 16;

    /// This many keys became ready.
    #[inline]
    pub(super) fn ready(count: u32) -> Self {
        Self { what: if count > 0 { Self::READY } else { 0 }, ready: count }
    }

    /// One of the bits, if this is so.
    #[inline]
    pub(super) fn only_if(is_owed: bool, what: u8) -> Self {
        Self { what: if is_owed { what } else { 0 }, ready: 0 }
    }

    /// Also what is owed for several verbs in one critical section.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self { what: self.what | other.what, ready: self.ready + other.ready }
    }

    pub(crate) fn has(self, what: u8) -> bool {
        self.what & what != 0
    }
}

/// What a verb is told of the queue: its caller has read it under the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    /// The queue is not shut down.
    pub(crate) is_open: bool,
}

impl Mode {
    pub(crate) const OPEN: Self = Self { is_open: true };
}
