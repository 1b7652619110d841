//! The state of one key of a lock-free queue, in one atomic word.
//!
//! ```text
//!   0..8    the bits of `state.rs`; of DELAYED, WAITING and FAILED only the first, which is here NOTED
//!   8..16   GONE, CACHED, MARKED, LATER
//!   16..40  claims: entries of the key in the line, dead ones too, and short references of threads
//!   40..64  the number of the key's last push, modulo 2^24
//! ```
//!
//! The steps of a key are those of `state.rs`, each of them one compare-and-swap, which is its linearization point. A step also changes the
//! claims and the number:
//!
//! | step | bits | claims and number |
//! |---|---|---|
//! | a push: an add, or the `done` of a dirty key | queued | claims + 1, number + 1 |
//! | a get of the entry with this number | as `on_get` | claims - 1 |
//! | a get of another entry, which is *dead* | unchanged | claims - 1 |
//! | a `done` after which nothing is left | CACHED | unchanged |
//!
//! A **claim** keeps the node in place: only a node without bits and claims is *vacant*, and only a vacant node becomes GONE, after which
//! it never changes, and leaves the map (F1). An entry, a holder and a thread with a claim therefore read the node without a guard of the
//! map.
//!
//! The **number** tells the live entry of a key from dead ones: an entry is *live* if its key is queued and has its number (F2). An entry
//! keeps its claim until it leaves the line, so two entries have the same number only if the key has 2^24 of them, and the add that would
//! be one more panics.
//!
//! NOTED means that the [records](crate::free) know the key, and LATER that it has a delay there; they change under the lock of the records
//! only, as does RESTING (F3). CACHED means that the node is in a cache of vacated nodes, or on its way there (F4), and MARKED that a drain
//! or an idle wait counts the key (F5).

use super::state::{self, OnAdd, OnDone};
use crate::sync::{AtomicU64, Ordering};

/// The records know the key (F3). Takes the place of DELAYED.
const NOTED: u64 = state::DELAYED as u64;
const RESTING: u64 = state::RESTING as u64;
const DIRTY: u64 = state::DIRTY as u64;
const PROCESSING: u64 = state::PROCESSING as u64;
const UNWINDING: u64 = state::UNWINDING as u64;
const AWAITED: u64 = state::AWAITED as u64;
const STATE: u64 = 0xff;
const GONE: u64 = 1 << 8;
const CACHED: u64 = 1 << 9;
const MARKED: u64 = 1 << 10;
const LATER: u64 = 1 << 11;
const CLAIM: u64 = 1 << 16;
const CLAIMS: u64 = (u64::MAX >> 40) * CLAIM;
const NUMBER: u64 = 1 << 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bits(u64);

/// What the records know of a key: nothing, or NOTED, and with it RESTING and LATER.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note(u64);

impl Note {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn noted((is_resting, is_delayed): (bool, bool)) -> Self {
        Self(NOTED | if is_resting { RESTING } else { 0 } | if is_delayed { LATER } else { 0 })
    }
}

impl Bits {
    /// A new key that is queued, with one entry, whose number is 1.
    pub(crate) const QUEUED: Self = Self(DIRTY | CLAIM | NUMBER);
    /// A new key that has only a claim, of the caller.
    pub(crate) const CLAIMED: Self = Self(CLAIM);

    #[inline]
    fn has(self, any_of: u64) -> bool {
        self.0 & any_of != 0
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        (self.0 >> 40) as u32
    }

    #[inline]
    pub(crate) fn is_gone(self) -> bool {
        self.has(GONE)
    }

    #[inline]
    pub(crate) fn is_cached(self) -> bool {
        self.has(CACHED)
    }

    #[inline]
    pub(crate) fn is_noted(self) -> bool {
        self.has(NOTED)
    }

    #[inline]
    pub(crate) fn is_resting(self) -> bool {
        self.has(RESTING)
    }

    pub(crate) fn is_marked(self) -> bool {
        self.has(MARKED)
    }

    pub(crate) fn is_dirty(self) -> bool {
        self.has(DIRTY)
    }

    pub(crate) fn is_awaited(self) -> bool {
        self.has(AWAITED)
    }

    pub(crate) fn was_unwinding(self) -> bool {
        self.has(UNWINDING)
    }

    pub(crate) fn is_processing(self) -> bool {
        self.has(PROCESSING)
    }

    pub(crate) fn is_active(self) -> bool {
        self.has(DIRTY | PROCESSING)
    }

    /// As in `state.rs`.
    pub(crate) fn is_known(self) -> bool {
        self.has(DIRTY | PROCESSING | LATER)
    }

    #[inline]
    pub(crate) fn is_queued(self) -> bool {
        self.0 & (DIRTY | PROCESSING) == DIRTY
    }

    #[inline]
    pub(crate) fn is_vacant(self) -> bool {
        !self.has(STATE | CLAIMS)
    }

    /// Whether the key is queued by the push of this number.
    #[inline]
    pub(crate) fn is_live(self, number: u32) -> bool {
        self.is_queued() && self.number() == number
    }

    #[inline]
    pub(crate) fn claim(self) -> Self {
        assert!(self.0 & CLAIMS != CLAIMS, "a key was added and removed 16 million times, and no getter came");
        Self(self.0 + CLAIM)
    }

    #[inline]
    pub(crate) fn unclaim(self) -> Self {
        debug_assert!(self.has(CLAIMS), "a claim is given up once");
        Self(self.0 - CLAIM)
    }

    #[inline]
    fn push(self) -> Self {
        Self(self.claim().0.wrapping_add(NUMBER))
    }

    #[inline]
    fn with_state(self, state: u8) -> Self {
        Self(self.0 & !STATE | u64::from(state))
    }

    /// `add` of a key that is known. If the answer is `Push`, the caller pushes an entry with the new [`number`](Self::number).
    #[inline]
    pub(crate) fn add(self) -> (Self, OnAdd) {
        let (state, what) = state::on_add(self.0 as u8);
        let after = self.with_state(state);
        match what {
            OnAdd::Push => (after.push(), what),
            OnAdd::Defer => (Self(after.0 & !AWAITED), what),
            OnAdd::Coalesce | OnAdd::Hold => (self, what),
        }
    }

    /// `get` of the entry with this number, or `None` if the entry is dead.
    #[inline]
    pub(crate) fn get(self, number: u32) -> Option<Self> {
        self.is_live(number).then(|| self.with_state(state::on_get(self.0 as u8)).unclaim())
    }

    /// `done`. `Push` is answered as by [`add`](Self::add). `Remove` means that the key is vacant; if it has claims, the answer is `Keep`.
    #[inline]
    pub(crate) fn done(self) -> (Self, OnDone) {
        let mut state = 0;
        let what = state::on_done(self.0 as u8, |left| state = left);
        let after = self.with_state(state);
        match what {
            OnDone::Push => (after.push(), what),
            OnDone::Remove if self.has(CLAIMS) => (after.unmark(), OnDone::Keep),
            OnDone::Hold => (Self(after.unmark().0 | LATER), what), // the records have the add
            OnDone::Remove | OnDone::Keep => (after.unmark(), what),
        }
    }

    pub(crate) fn take_back(self) -> Self {
        let after = self.with_state(state::take_back(self.0 as u8));
        if after.is_active() { after } else { after.unmark() }
    }

    pub(crate) fn note(self, note: Note) -> Self {
        Self(self.0 & !(NOTED | RESTING | LATER) | note.0)
    }

    pub(crate) fn await_dirty(self) -> Self {
        Self(self.0 | AWAITED)
    }

    pub(crate) fn unwind(self) -> Self {
        Self(self.0 | UNWINDING)
    }

    #[inline]
    pub(crate) fn cache(self) -> Self {
        Self(self.0 | CACHED)
    }

    pub(crate) fn uncache(self) -> Self {
        Self(self.0 & !CACHED)
    }

    pub(crate) fn mark(self) -> Self {
        Self(self.0 | MARKED)
    }

    #[inline]
    fn unmark(self) -> Self {
        Self(self.0 & !MARKED)
    }

    pub(crate) fn gone(self) -> Self {
        debug_assert!(self.is_vacant(), "only a vacant node leaves (F1)");
        Self(self.0 | GONE)
    }
}

#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Word {
    pub(super) fn new(bits: Bits) -> Self {
        Self(AtomicU64::new(bits.0))
    }

    /// Reads the word. Acquire: a thread that sees a step sees what came before it.
    #[inline]
    pub(crate) fn load(&self) -> Bits {
        Bits(self.0.load(Ordering::Acquire))
    }

    /// One attempt. An error has the bits that were found instead.
    #[inline]
    pub(crate) fn swap(&self, from: Bits, to: Bits) -> Result<(), Bits> {
        self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire).map(drop).map_err(Bits)
    }

    /// Repeats the step until it succeeds. If the bits stay, nothing is written, and the read is the step. Returns the bits before, and the
    /// answer.
    #[inline]
    pub(crate) fn step<R>(&self, of: impl FnMut(Bits) -> (Bits, R)) -> (Bits, R) {
        self.step_if(of, |before, after| after != before)
    }

    /// The same, except that bits that stay are written, too, unless the node is gone.
    #[inline]
    pub(crate) fn write<R>(&self, of: impl FnMut(Bits) -> (Bits, R)) -> (Bits, R) {
        self.step_if(of, |before, _| !before.is_gone())
    }

    #[inline(always)]
    fn step_if<R>(&self, mut of: impl FnMut(Bits) -> (Bits, R), is_written: impl Fn(Bits, Bits) -> bool) -> (Bits, R) {
        let mut before = self.load();
        loop {
            let (after, answer) = of(before);
            if !is_written(before, after) {
                return (before, answer);
            }
            match self.swap(before, after) {
                Ok(()) => return (before, answer),
                Err(now) => before = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn push(bits: Bits) -> Bits {
        let (after, what) = bits.add();
        assert_eq!((what, after.number()), (OnAdd::Push, bits.number() + 1));
        after
    }

    #[test]
    fn a_key_comes_and_goes() {
        let queued = Bits::QUEUED;
        assert_eq!(queued.add(), (queued, OnAdd::Coalesce));
        assert_eq!(queued.get(2), None, "the number is that of another push");
        let held = queued.get(1).unwrap();
        let (dirty, what) = held.await_dirty().add();
        assert_eq!((what, dirty.is_awaited(), dirty.is_active()), (OnAdd::Defer, false, true));
        let (again, what) = dirty.done();
        assert_eq!((what, again.number()), (OnDone::Push, 2));
        let (left, what) = again.get(2).unwrap().done();
        assert_eq!((what, left.is_vacant()), (OnDone::Remove, true));
        assert!(left.gone().is_gone());
        assert!(push(left).is_live(3), "it comes back");
    }

    /// A key that is taken back leaves a dead entry, whose claim keeps the node.
    #[test]
    fn a_dead_entry_keeps_its_node() {
        let back = Bits::QUEUED.mark().take_back();
        assert!(!back.is_active() && !back.is_marked() && !back.is_vacant());
        assert_eq!(back.get(1), None);
        let (left, what) = push(back).get(2).unwrap().done();
        assert_eq!((what, left.is_vacant()), (OnDone::Keep, false));
        assert!(left.unclaim().is_vacant());
    }

    /// A key that the records know stays, and a rest holds adds back.
    #[test]
    fn noted_keys_stay() {
        let held = Bits::QUEUED.get(1).unwrap().note(Note::noted((true, false))).mark();
        let (kept, what) = held.done();
        assert_eq!((what, kept.is_marked(), kept.is_vacant()), (OnDone::Keep, false, false));
        assert_eq!(kept.add(), (kept, OnAdd::Hold));
        let (kept, what) = held.add().0.done();
        assert_eq!((what, kept.is_active()), (OnDone::Hold, false));
        assert!(kept.note(Note::NONE).is_vacant());
        assert!(push(kept.note(Note::noted((false, true)))).is_queued());
        assert!(kept.is_known() && !kept.note(Note::noted((true, false))).is_known());
    }

    #[test]
    fn numbers_wrap_around() {
        let mut bits = Bits::QUEUED;
        for _ in 0..(1 << 24) + 5 {
            bits = push(bits.get(bits.number()).unwrap().done().0.note(Note::NONE));
            if bits.number() == (1 << 24) - 1 {
                break;
            }
        }
        let (after, _) = bits.get(bits.number()).unwrap().done().0.add();
        assert_eq!((after.number(), after.is_queued()), (0, true));
    }
}
