//! What a verb owes, and what it is told of the queue.

/// What a verb leaves to its caller. Packed into one word, so that it is returned in a register together with the answer: the low byte has
/// the bits below, and the high half the number of keys that became ready to be taken.
///
/// A key that is to be dropped is in the caller's hand instead, and memory in the machine until
/// [`take_garbage`](super::Machine::take_garbage).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "somebody waits for what is owed"]
pub(crate) struct Owed(u64);

const READY_SHIFT: u32 = 32;
/// The bits of the number of keys.
const KEYS: u64 = u64::MAX << READY_SHIFT;

impl Owed {
    pub(crate) const NOTHING: Self = Self(0);
    /// Wake-ups of as many getters as [`ready`](Self::ready) says.
    pub(crate) const READY: u8 = 1;
    /// No key is queued or processing, so those who wait for this must look again.
    pub(crate) const DRAINED: u8 = 2;
    /// The queue is shut down and no key is queued here, so all getters must look again.
    pub(crate) const OVER: u8 = 4;
    /// A delay expires earlier than all others, so the driver must be woken.
    pub(crate) const DEADLINE: u8 = 8;
    /// The machine has memory to be freed: [`take_garbage`](super::Machine::take_garbage).
    pub(crate) const GARBAGE: u8 = 16;
    /// Held keys became dirty, and somebody waits for that: [`take_dirty`](super::Machine::take_dirty).
    pub(crate) const DIRTY: u8 = 32;
    /// An add that has waited for a retry has taken effect, because the end of a hand-out has dropped the retry. The observer must be told.
    pub(crate) const ADDED: u8 = 64;
    /// Keys are no longer known, and the queue has a bound: [`take_left`](super::Machine::take_left).
    pub(crate) const ROOM: u8 = 128;

    /// One key became ready.
    #[cfg(feature = "lock-free")]
    pub(crate) const READY_ONE: Self = Self(1 << READY_SHIFT | Self::READY as u64);

    /// One of the bits, if it is owed.
    #[inline]
    pub(crate) fn only_if(is_owed: bool, what: u8) -> Self {
        Self(if is_owed { u64::from(what) } else { 0 })
    }

    /// What two steps of one critical section owe together.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self((self.0 | other.0) + (self.0 & other.0 & KEYS))
    }

    #[inline]
    pub(crate) fn what(self) -> u8 {
        self.0 as u8
    }

    /// The number of keys that became ready to be taken.
    #[inline]
    pub(crate) fn ready(self) -> u32 {
        (self.0 >> READY_SHIFT) as u32
    }

    #[inline]
    pub(crate) fn without(self, what: u8) -> Self {
        Self(self.0 & !u64::from(what))
    }

    #[inline]
    pub(crate) fn has(self, what: u8) -> bool {
        self.what() & what != 0
    }
}

/// What a verb is told of the queue. Its caller has read it under the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    pub(crate) is_open: bool,
    /// Whether there may be an order other than a line, for groups or because a priority was given.
    pub(crate) is_ordered: bool,
    /// Whether a thread or task waits for keys, or for the end of the work. If not, a verb owes none of `READY`, `DRAINED` and `OVER`.
    pub(crate) is_awaited: bool,
    /// Whether the queue measures: see [`measure`](super::measure).
    pub(crate) is_measured: bool,
    /// Whether the queue has a bound, so that a verb owes `ROOM`.
    pub(crate) is_bounded: bool,
}

impl Mode {
    /// The mode of most hot calls, passed as a constant, so that a verb is compiled for it alone.
    pub(crate) const PLAIN: Self =
        Self { is_open: true, is_ordered: false, is_awaited: false, is_measured: false, is_bounded: false };

    pub(crate) const ORDERED: Self = Self { is_ordered: true, ..Self::PLAIN };

    pub(crate) const MEASURED: Self = Self { is_measured: true, ..Self::PLAIN };

    pub(super) const SHUT_DOWN: Self = Self { is_open: false, is_awaited: true, ..Self::ORDERED };

    /// One of the bits, if it is owed and somebody waits for it.
    #[inline(always)]
    pub(super) fn owed_if(self, is_so: bool, what: u8) -> Owed {
        if self.is_awaited { Owed::only_if(is_so, what) } else { Owed::NOTHING }
    }

    /// What is owed for this many keys that became ready.
    #[inline(always)]
    pub(super) fn ready(self, count: u32) -> Owed {
        if self.is_awaited {
            Owed((u64::from(count) << READY_SHIFT) | if count > 0 { u64::from(Owed::READY) } else { 0 })
        } else {
            Owed::NOTHING
        }
    }
}
