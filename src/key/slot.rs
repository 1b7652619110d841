//! One key in memory, and the reference to it.
//!
//! ```text
//!   slot   state · index · levels · hash · position · group · next · key
//! ```
//!
//! The first of the levels is the priority with which the key is queued, or was handed out; the second is the one that it will have when
//! its processing ends, if it is dirty then. With a `u64` as key, a slot takes 32 bytes.
//!
//! **The rule of this folder**, which the rest of the crate keeps without unsafe code, is that an [`EntryRef`] always refers to a taken
//! slot, whose key is there (S1, S2) and which does not move (S3). The chains of the table have one, and so have the order while the key is
//! queued (I1), a [`Claimed`](crate::machine::Claimed) while the key is processing (I2), and a verb until it calls
//! [`Table::remove`](super::Table::remove) (S4). A verb that gets a `Claimed` asks [`Table::owns`](super::Table::owns) before it changes
//! anything; `done` does so in debug builds.

use super::hash::KeyHash;
use super::state::State;
use crate::prefetch::prefetch_at;
use crate::sync::UnsafeCell;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// One key, its state, and its places in the table and in the order: 24 bytes and the key.
pub(super) struct Slot<K> {
    pub(super) state: State,
    /// The index of the slot in its chunk, which never changes (S5).
    pub(super) index: u8,
    levels: [Cell<i8>; 2],
    /// Written when the slot is taken.
    pub(super) hash: Cell<KeyHash>,
    position: Cell<u32>,
    /// Written when the slot is taken.
    pub(super) group: Cell<u32>,
    /// The next slot in the same chain of the table.
    pub(super) next: Cell<Option<EntryRef<K>>>,
    /// Initialised while the slot is taken (S1).
    pub(super) key: UnsafeCell<MaybeUninit<K>>,
}

impl<K> Slot<K> {
    pub(super) fn vacant(index: u8) -> Self {
        Self {
            state: State::vacant(),
            index,
            levels: [const { Cell::new(0) }; 2],
            hash: Cell::new(KeyHash(0)),
            position: Cell::new(0),
            group: Cell::new(0),
            next: Cell::new(None),
            key: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    #[inline]
    pub(super) fn index(&self) -> usize {
        self.index.into()
    }
}

/// A reference to a taken slot: see the rule at the top of this file.
pub(crate) struct EntryRef<K>(pub(super) NonNull<Slot<K>>);

impl<K> Clone for EntryRef<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for EntryRef<K> {}

impl<K> PartialEq for EntryRef<K> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: an `EntryRef` behaves as a `&Slot<K>`. Any thread that holds the key reads it through this (`Sync`), and any thread may take the
// key out and drop it (`Send`). The slot's cells are used under the lock only, except the key and its hash, which do not change (S1).
unsafe impl<K: Send + Sync> Send for EntryRef<K> {}
// SAFETY: the same holds for a reference to an `EntryRef` (S1).
unsafe impl<K: Send + Sync> Sync for EntryRef<K> {}

/// Names a slot, by its address. Two slots of a queue that are taken at the same time have different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(usize);

impl<K> EntryRef<K> {
    #[inline]
    pub(super) fn slot(&self) -> &Slot<K> {
        // SAFETY: the slot is taken by the rule of this file, so its chunk is alive (S3); and no code makes a `&mut` to it.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        self.slot().key.with(|key| {
            // SAFETY: `key` points into the slot, and the cell of a taken slot is not written (S1).
            let key = unsafe { &*key };
            // SAFETY: the slot is taken by the rule of this file, so its key is initialised (S1).
            unsafe { key.assume_init_ref() }
        })
    }

    #[inline]
    pub(crate) fn hash(&self) -> KeyHash {
        self.slot().hash.get()
    }

    pub(crate) fn id(&self) -> SlotId {
        SlotId(self.0.as_ptr().addr())
    }

    #[inline]
    pub(crate) fn state(&self) -> &State {
        &self.slot().state
    }

    /// The priority with which the key is queued, or was handed out.
    #[inline]
    pub(crate) fn priority(&self) -> i8 {
        self.slot().levels[0].get()
    }

    #[inline]
    pub(crate) fn set_priority(&self, priority: i8) {
        self.slot().levels[0].set(priority);
    }

    /// The priority that the key will have when its processing ends. Valid only while the key is processing and dirty.
    #[inline]
    pub(crate) fn pending(&self) -> i8 {
        self.slot().levels[1].get()
    }

    #[inline]
    pub(crate) fn set_pending(&self, priority: i8) {
        self.slot().levels[1].set(priority);
    }

    #[inline]
    pub(crate) fn group(&self) -> u32 {
        self.slot().group.get()
    }

    /// The key's position in the order. Valid only while the key is queued.
    #[inline]
    pub(crate) fn position(&self) -> u32 {
        self.slot().position.get()
    }

    #[inline]
    pub(crate) fn set_position(&self, position: u32) {
        self.slot().position.set(position);
    }

    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch_at(self.0.as_ptr());
    }
}
