//! One key in memory, and the references to it.
//!
//! | reference | held by | the slot is taken because |
//! |---|---|---|
//! | [`SlotRef`] | the chains of the table; an `EntryRef` of `src/key/entry.rs` | the key is in the table; each use is `unsafe` |
//! | [`SlotView`] | a call that reads | the view borrows the table, or an `EntryRef` |
//!
//! An `EntryRef` is in the order while its key is queued (I1), in the `Claimed` of an item while the key is processing (I2), or in a verb
//! (S4).

use super::hash::Hash;
use super::state::State;
use crate::prefetch::prefetch_at;
use crate::sync::UnsafeCell;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// One key, its state, and its place in the table: 16 bytes and the key.
pub(super) struct Slot<K> {
    pub(super) state: State,
    /// Its index in its chunk (S5). Never changes.
    index: u8,
    /// Two priorities: see `src/key/entry.rs`. They take the place of padding. Used under the lock only.
    levels: [Cell<i8>; 2],
    /// The key's hash. Written under the lock, when the slot is taken; the holder of the key reads it without the lock.
    pub(super) hash: Cell<u32>,
    /// The next slot in the same chain of the table. Used under the lock only.
    pub(super) next: Cell<Option<SlotRef<K>>>,
    /// Initialised while the slot is taken (S1).
    pub(super) key: UnsafeCell<MaybeUninit<K>>,
}

impl<K> Slot<K> {
    pub(super) fn vacant(index: u8) -> Self {
        Self {
            state: State::vacant(),
            index,
            levels: [const { Cell::new(0) }; 2],
            hash: Cell::new(0),
            next: Cell::new(None),
            key: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    #[inline]
    pub(super) fn index(&self) -> usize {
        self.index.into()
    }
}

/// A pointer to a slot.
pub(crate) struct SlotRef<K>(pub(super) NonNull<Slot<K>>);

impl<K> Clone for SlotRef<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for SlotRef<K> {}

impl<K> PartialEq for SlotRef<K> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: a `SlotRef` behaves as a `&Slot<K>`. Any thread that holds the key reads it through this (`Sync`), and any thread may take the
// key out and drop it (`Send`). The slot's cells are used under the lock only, except the key and its hash, which do not change (S1).
unsafe impl<K: Send + Sync> Send for SlotRef<K> {}
// SAFETY: the same holds for a reference to a `SlotRef` (S1).
unsafe impl<K: Send + Sync> Sync for SlotRef<K> {}

impl<K> SlotRef<K> {
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch_at(self.0.as_ptr());
    }

    /// The slot.
    ///
    /// # Safety
    /// The slot is taken, and stays taken during `'t` (S2). A caller that does not hold the lock uses the state and the key only.
    #[inline]
    pub(crate) unsafe fn view<'t>(self) -> SlotView<'t, K> {
        SlotView(self, PhantomData)
    }
}

/// Names a slot: its address. Two slots of a queue that are taken at the same time have different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(usize);

/// A taken slot, which stays taken while this is used.
pub(crate) struct SlotView<'t, K>(SlotRef<K>, PhantomData<&'t Slot<K>>);

impl<K> Clone for SlotView<'_, K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for SlotView<'_, K> {}

impl<'t, K> SlotView<'t, K> {
    /// The key.
    #[inline]
    pub(crate) fn key(self) -> &'t K {
        self.slot().key.with(|key| {
            // SAFETY: `key` points into the slot, and the cell of a taken slot is not written (S1).
            let key = unsafe { &*key };
            // SAFETY: the slot is taken, so its key is initialised (S1).
            unsafe { key.assume_init_ref() }
        })
    }

    /// The key's hash.
    pub(crate) fn hash(self) -> Hash {
        Hash(self.slot().hash.get())
    }

    /// Two bytes for the machine.
    #[inline]
    pub(crate) fn levels(self) -> &'t [Cell<i8>; 2] {
        &self.slot().levels
    }

    /// The key's state.
    #[inline]
    pub(crate) fn state(self) -> &'t State {
        &self.slot().state
    }

    #[inline]
    pub(super) fn slot(self) -> &'t Slot<K> {
        // SAFETY: taken during `'t`, so its chunk is alive (S3); and no code makes a `&mut` to a slot of it.
        unsafe { self.0.0.as_ref() }
    }

    #[inline]
    pub(crate) fn slot_ref(self) -> SlotRef<K> {
        self.0
    }

    pub(crate) fn id(self) -> SlotId {
        SlotId(self.0.0.as_ptr().addr())
    }

    /// The next slot in the same chain.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        // SAFETY: in a chain, so taken, as long as the table is borrowed (H2).
        self.slot().next.get().map(|next| unsafe { next.view() })
    }
}
