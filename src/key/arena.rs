//! The memory of keys: slots that never move and are recycled, in chunks that are freed when they are empty.
//!
//! ```text
//!  chunks     [0] full           [1]           [2] freed     [3]
//!                                 ▲                           ▲
//!  open ──────────────────────────┴── neighbours ─────────────┘      the chunks that have room
//! ```
//!
//! The arena is used under the queue's lock. Only the holder of a key reads its slot without the lock, which is sound because a slot never
//! moves, and is taken while its word has a bit set (S1 to S3).
//!
//! Slots in chunks are worth the unsafe code: an `Arc` for each key would take twice the memory and an allocation for each key, and an
//! index instead of a pointer would make a duplicate add a fifth slower.

use super::buckets::Buckets;
use super::chunk::{Chunk, ChunkRef, Header};
use super::hash::KeyHash;
use super::segmented::Segmented;
use super::slot::{EntryRef, Slot};
use crate::numbers::NumberPool;
use crate::panics::discard;
use crate::sync::{model_const, next_id, panicking};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The bits of a slot's number that are its index in the chunk. The 24 bits above them are the number of the chunk.
const INDEX_BITS: u32 = 6;

#[inline]
pub(super) fn chunk_of(number: u32) -> usize {
    (number >> INDEX_BITS) as usize
}

impl<K> EntryRef<K> {
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        let (_, head) = ChunkRef::of(self);
        head.number << INDEX_BITS | self.slot().index() as u32
    }
}

#[inline]
pub(super) fn index_of(number: u32) -> usize {
    number as usize & ((1 << INDEX_BITS) - 1)
}

/// Memory to be freed without the lock, because freeing it may take long: if it is the last block before a gap of hundreds of megabytes,
/// the allocator returns the whole gap to the system in this call.
pub(crate) enum Retired<K> {
    Chunk(Chunk<K>),
    /// A large array of buckets.
    Buckets(#[expect(dead_code, reason = "it is kept to be dropped")] Buckets<K>),
}

/// The slots of a queue. All methods are called under its lock.
///
/// The array is indexed by chunk number and ends behind the last chunk, because `free_chunk` truncates it.
pub(super) struct Arena<K> {
    /// The number of its table, which no other table of the process has (until four billion later ones were made).
    table: u32,
    numbers: NumberPool,
    /// `None` means that the chunk was freed, and that its number is free.
    chunks: Segmented<Option<Chunk<K>>>,
    /// The first of the open chunks.
    open: Option<ChunkRef<K>>,
    taken: usize,
    /// The number of chunks without a taken slot.
    spare: usize,
    retired: Vec<Retired<K>>,
}

// SAFETY: the arena owns its slots (S3); see `EntryRef` for why keys must be `Send + Sync`.
unsafe impl<K: Send + Sync> Send for Arena<K> {}

impl<K> Arena<K> {
    /// The number of spare chunks that are kept, 64 KiB of memory, so that the keys that fit there come and go without an allocation.
    const SPARE: usize = {
        let fit = (64 << 10) / (Chunk::<K>::SLOTS * size_of::<Slot<K>>());
        model_const(if fit > 1 { fit } else { 1 }, 1)
    };

    pub(super) fn new() -> Self {
        Self {
            table: next_id() as u32,
            numbers: NumberPool::default(),
            chunks: Segmented::new(),
            open: None,
            taken: 0,
            spare: 0,
            retired: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// The taken slots of these chunks, in the order of memory. Numbers beyond the last chunk are ignored. Slots do not move (S3), so a
    /// caller that visits the chunks in several critical sections sees each slot that stays taken once.
    pub(super) fn iter_chunks(&self, chunks: Range<usize>) -> impl Iterator<Item = EntryRef<K>> {
        let chunks = chunks.start.min(self.chunks())..chunks.end.min(self.chunks());
        chunks.filter_map(|number| self.chunks.get(number)?.as_ref()).flat_map(Chunk::iter)
    }

    /// The end of the chunk numbers, for [`iter_chunks`](Self::iter_chunks).
    pub(super) fn chunks(&self) -> usize {
        self.numbers.end()
    }

    /// The number of chunks that have memory.
    #[cfg(all(test, not(loom)))]
    pub(super) fn kept(&self) -> usize {
        (0..self.chunks()).filter(|number| self.chunks[*number].is_some()).count()
    }

    /// Puts a key into a vacant slot. Its word has no bit set yet.
    #[inline(always)]
    pub(super) fn insert(&mut self, key: K, hash: KeyHash, group: u32) -> EntryRef<K> {
        let chunk = match self.open {
            Some(chunk) => chunk,
            None => self.grow(),
        };
        // SAFETY: an open chunk is in the arena (S6).
        let head = unsafe { chunk.head() };
        debug_assert!(self.chunks[head.number as usize].is_some(), "an open chunk is not freed");
        let vacant = head.vacant.get();
        debug_assert_ne!(vacant, 0, "an open chunk has a vacant slot (S6)");
        let slot = chunk.slot(vacant.trailing_zeros() as usize);
        if vacant == Chunk::<K>::ALL {
            self.spare -= 1;
        }
        head.vacant.set(vacant & (vacant - 1));
        if head.vacant.get() == 0 {
            self.close(head);
        }
        self.taken += 1;
        slot.slot().hash.set(hash);
        slot.slot().group.set(group);
        slot.slot().key.with_mut(|cell| {
            // SAFETY: the slot was vacant, so there is no reference to its key (S2), and we hold the lock.
            let cell = unsafe { &mut *cell };
            cell.write(key); // the slot is taken from here on (S1)
        });
        slot
    }

    /// Vacates a slot, and frees its chunk if that is empty and enough empty ones are kept. The caller has cleared the last bit of the
    /// slot's word, has taken the slot out of the table, and forgets it (S2).
    #[inline(always)]
    pub(super) fn remove(&mut self, entry: EntryRef<K>) -> K {
        debug_assert!(entry.state().is_vacant(), "no bit is set (S2)");
        let key = entry.slot().key.with_mut(|cell| {
            // SAFETY: only a holder reads the key without the lock, and there is none: the last bit is cleared (S2).
            let cell = unsafe { &*cell };
            // SAFETY: the slot is taken, so its key is initialised; the slot is vacant from here on (S1).
            unsafe { cell.assume_init_read() }
        });
        let (chunk, head) = ChunkRef::of(&entry);
        let (vacant, bit) = (head.vacant.get(), 1 << entry.slot().index());
        debug_assert_eq!(vacant & bit, 0, "S1: vacated once");
        head.vacant.set(vacant | bit);
        self.taken -= 1;
        if vacant == 0 {
            self.open(chunk, head);
        }
        if head.vacant.get() == Chunk::<K>::ALL {
            self.spare += 1;
            if self.spare > Self::SPARE {
                self.free_surplus(head.number);
            }
        }
        key
    }

    /// Whether the slot is one of this arena.
    #[inline]
    pub(super) fn owns(&self, entry: &EntryRef<K>) -> bool {
        let (_, head) = ChunkRef::of(entry);
        head.table == self.table
    }

    /// The slot of this number, if it is taken.
    pub(super) fn get(&self, number: u32) -> Option<EntryRef<K>> {
        let chunk = self.chunks.get(chunk_of(number))?.as_ref()?;
        let (vacant, index) = (chunk.head().vacant.get(), index_of(number));
        (Chunk::<K>::ALL & !vacant & (1 << index) != 0).then(|| chunk.chunk_ref().slot(index))
    }

    /// Frees the chunks in this range that have no taken slot.
    pub(super) fn shrink(&mut self, chunks: Range<usize>) {
        for number in chunks {
            let chunk = self.chunks.get(number).and_then(Option::as_ref);
            if chunk.is_some_and(|chunk| chunk.head().vacant.get() == Chunk::<K>::ALL) {
                self.free_chunk(number as u32);
            }
        }
    }

    pub(super) fn shrink_arrays(&mut self) {
        self.numbers.shrink();
        self.chunks.shrink_to_fit();
    }

    #[inline]
    pub(super) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    pub(super) fn retire(&mut self, buckets: Buckets<K>) {
        self.retired.push(Retired::Buckets(buckets));
    }

    /// Takes memory that is not needed any more, for the caller to free without the lock.
    pub(super) fn take_retired(&mut self) -> Vec<Retired<K>> {
        std::mem::take(&mut self.retired)
    }

    /// Adds a chunk of vacant slots, and opens it.
    ///
    /// # Panics
    /// If there are 2^24 chunks.
    #[cold]
    fn grow(&mut self) -> ChunkRef<K> {
        let number = self.numbers.lend();
        if number >= 1 << 24 {
            self.numbers.give_back(number);
            panic!("a shard holds at most {} keys of this size", Chunk::<K>::SLOTS << 24);
        }
        let chunk = self.chunks.get_or_make(number as usize).insert(Chunk::new(number, self.table)).chunk_ref();
        // SAFETY: the chunk is in the arena, by the line above (S3).
        self.open(chunk, unsafe { chunk.head() });
        self.spare += 1;
        chunk
    }

    /// Frees this chunk, which has no keys, or the last one in its place if that has none either. Most chunks that are kept after a burst
    /// then have low numbers, and the arrays by number become short.
    #[cold]
    fn free_surplus(&mut self, number: u32) {
        let last = self.chunks() - 1;
        let is_spare = self.chunks[last].as_ref().is_some_and(|chunk| chunk.head().vacant.get() == Chunk::<K>::ALL);
        self.free_chunk(if is_spare { last as u32 } else { number });
    }

    /// Takes an open chunk without keys out of the arena, to be freed without the lock.
    #[cold]
    fn free_chunk(&mut self, number: u32) {
        let chunk = self.chunks[number as usize].take().expect("freed once");
        self.close(chunk.head());
        self.spare -= 1;
        self.retired.push(Retired::Chunk(chunk));
        self.numbers.give_back(number);
        if self.numbers.end() <= number as usize {
            self.chunks.truncate(self.numbers.end());
        }
    }

    /// Puts a chunk that has room first in the list of open chunks, because its vacant slot was just used and is still in the cache.
    fn open(&mut self, chunk: ChunkRef<K>, head: &Header<K>) {
        debug_assert!(head.prev_open.get().is_none(), "it is new, or was closed when it was the first");
        head.next_open.set(self.open);
        if let Some(next) = self.open_head(self.open) {
            next.prev_open.set(Some(chunk));
        }
        self.open = Some(chunk);
    }

    /// Takes a chunk that is full, or is freed, out of the list of open chunks.
    fn close(&mut self, head: &Header<K>) {
        let (prev, next) = (head.prev_open.get(), head.next_open.get());
        match self.open_head(prev) {
            Some(prev) => prev.next_open.set(next),
            None => self.open = next,
        }
        if let Some(next) = self.open_head(next) {
            next.prev_open.set(prev);
        }
    }

    /// The head of a chunk in the list of open chunks.
    fn open_head(&self, chunk: Option<ChunkRef<K>>) -> Option<&Header<K>> {
        // SAFETY: an open chunk is in the arena (S6).
        chunk.map(|chunk| unsafe { chunk.head() })
    }
}

impl<K> Drop for Arena<K> {
    /// Drops every key, even if some drops panic, and then frees the chunks. The first panic is passed on, unless the thread already
    /// unwinds.
    fn drop(&mut self) {
        let mut first = None;
        for slot in self.iter_chunks(0..self.chunks()) {
            let drop_key = AssertUnwindSafe(|| {
                slot.slot().key.with_mut(|cell| {
                    // SAFETY: the arena is being dropped, so no item is alive, and there is no other reference to the key (S4).
                    let cell = unsafe { &mut *cell };
                    // SAFETY: the slot is taken, so its key is initialised (S1); it is visited once, and nobody reads it afterwards.
                    unsafe { cell.assume_init_drop() }
                });
            });
            match (catch_unwind(drop_key), &first) {
                (Ok(()), _) => {}
                (Err(panic), None) => first = Some(panic),
                (Err(panic), Some(_)) => discard(panic),
            }
        }
        match first {
            Some(panic) if panicking() => discard(panic), // a second panic would abort the process
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn insert<K>(arena: &mut Arena<K>, key: K) -> EntryRef<K> {
        arena.insert(key, KeyHash(0), 0)
    }

    fn chunks<K>(arena: &Arena<K>) -> impl Iterator<Item = &Chunk<K>> {
        (0..arena.chunks()).filter_map(|number| arena.chunks[number].as_ref())
    }

    /// The number of vacant slots of each chunk.
    fn vacant<K>(arena: &Arena<K>) -> Vec<u32> {
        chunks(arena).map(|chunk| chunk.head().vacant.get().count_ones()).collect()
    }

    #[test]
    fn slots_are_recycled_and_chunks_given_back() {
        let mut arena = Arena::new();
        let n = if cfg!(miri) { 2200 } else { 10_000_u32 };
        let slots: Vec<_> = (0..n).map(|i| insert(&mut arena, i.to_string())).collect();
        assert_eq!(arena.taken(), n as usize);
        for (&slot, i) in slots.iter().zip(0..n).rev() {
            assert_eq!(arena.remove(slot), i.to_string());
        }
        assert_eq!(chunks(&arena).count(), Arena::<String>::SPARE);
        assert_eq!(arena.spare, Arena::<String>::SPARE);
        arena.shrink(0..arena.chunks());
        assert!(arena.chunks.capacity() <= 64);
        arena.shrink_arrays();
        assert_eq!((arena.chunks.capacity(), arena.numbers.bytes()), (0, 0));
        let again = insert(&mut arena, String::new());
        assert_eq!(arena.remove(again), "");
    }

    /// Otherwise the arrays by number would stay as long as those of the burst. If the keys end in a random order, most numbers are low.
    #[test]
    fn the_chunks_that_are_kept_have_low_numbers() {
        const KEYS: usize = if cfg!(miri) { 6400 } else { 128_000 };
        type Arrange = fn(&mut [EntryRef<usize>]);
        let orders: [(&str, Arrange, f64); 3] = [
            ("as they came", |_| (), 0.0),
            ("the last first", |slots| slots.reverse(), 0.0),
            ("scattered", |slots| fastrand::Rng::with_seed(1).shuffle(slots), 0.9),
        ];
        for (order, arrange, at_most) in orders {
            let mut arena = Arena::new();
            let mut slots: Vec<_> = (0..KEYS).map(|key| insert(&mut arena, key)).collect();
            let full = arena.chunks();
            arrange(&mut slots);
            slots.into_iter().for_each(|slot| _ = arena.remove(slot));
            println!("{order}: the last of {} chunks has the number {} of {full}", arena.spare, arena.chunks() - 1);
            assert_eq!(arena.spare, Arena::<usize>::SPARE);
            let most = arena.spare + (at_most * full as f64) as usize;
            assert!(arena.chunks() <= most, "{order}: {} of {full}", arena.chunks());
        }
    }

    #[test]
    fn a_steady_number_of_keys_reuses_its_slots() {
        let mut arena = Arena::new();
        let first = insert(&mut arena, 1);
        for i in 0..1000 {
            let slot = insert(&mut arena, i);
            assert_eq!(arena.remove(slot), i);
        }
        assert_eq!(arena.chunks(), 1);
        assert_eq!(arena.remove(first), 1);
    }

    /// A full chunk that loses a key takes the next one.
    #[test]
    fn a_full_chunk_that_gets_room_is_used() {
        let mut arena = Arena::new();
        let slots: Vec<_> = (0..3 * Chunk::<u32>::SLOTS).map(|i| insert(&mut arena, i as u32)).collect();
        arena.remove(slots[70]);
        insert(&mut arena, 0);
        assert_eq!(arena.chunks(), 3);
    }

    #[test]
    fn a_number_finds_a_taken_slot() {
        let mut arena = Arena::new();
        let slots: Vec<_> = (0..100_u8).map(|i| insert(&mut arena, [i; 104])).collect();
        let (gone, left): (Vec<_>, Vec<_>) = slots.into_iter().partition(|slot| slot.key()[0] % 3 == 1);
        for slot in gone {
            arena.remove(slot);
        }
        let found: Vec<_> = (0..1000).filter_map(|number| arena.get(number)).collect();
        assert!(found == left, "in the order of memory");
    }

    /// Also if the thread unwinds.
    #[test]
    fn a_drop_that_panics_leaves_no_key() {
        struct Bad(std::sync::Arc<()>);
        impl Drop for Bad {
            fn drop(&mut self) {
                std::panic::panic_any(std::sync::Arc::strong_count(&self.0));
            }
        }
        for unwinds in [false, true] {
            let alive = std::sync::Arc::new(());
            let mut arena = Arena::new();
            for _ in 0..100 {
                insert(&mut arena, Bad(alive.clone()));
            }
            let dropped = catch_unwind(AssertUnwindSafe(move || {
                let _arena = arena;
                if unwinds {
                    std::panic::panic_any(0_usize);
                }
            }));
            let first = dropped.expect_err("it panics").downcast::<usize>().expect("a count");
            assert_eq!((*first, std::sync::Arc::strong_count(&alive)), (if unwinds { 0 } else { 101 }, 1));
        }
    }

    #[test]
    fn dropping_drops_taken_keys_only() {
        let key = std::sync::Arc::new(());
        let mut arena = Arena::new();
        let slots: Vec<_> = (0..100).map(|_| insert(&mut arena, key.clone())).collect();
        for &slot in slots.iter().step_by(3) {
            drop(arena.remove(slot));
        }
        assert_eq!(std::sync::Arc::strong_count(&key), 1 + 66);
        drop(arena);
        assert_eq!(std::sync::Arc::strong_count(&key), 1);
    }

    #[test]
    #[cfg_attr(not(target_pointer_width = "64"), ignore = "the sizes are those of 64-bit targets")]
    fn a_slot_of_an_integer_is_32_bytes() {
        assert_eq!(size_of::<Slot<u64>>(), 32);
    }

    /// The constants of an arena for keys of `N` bytes.
    fn shape<const N: usize>() -> (usize, usize) {
        (Chunk::<[u8; N]>::SLOTS, Arena::<[u8; N]>::SPARE)
    }

    #[test]
    #[cfg_attr(not(target_pointer_width = "64"), ignore = "the sizes are those of 64-bit targets")]
    fn spare_chunks_take_64_kibibytes() {
        assert_eq!(shape::<8>(), (63, 32));
        assert_eq!(shape::<40>(), (63, 16));
        assert_eq!(shape::<104>(), (31, 16));
        assert_eq!(shape::<488>(), (8, 16));
        assert_eq!(shape::<1000>(), (8, 8));
        assert_eq!(shape::<70_000>(), (8, 1));
    }

    /// A chunk that has fewer slots than a word has bits uses exactly these.
    #[test]
    #[cfg_attr(not(target_pointer_width = "64"), ignore = "the sizes are those of 64-bit targets")]
    fn large_keys_fill_their_chunks() {
        let mut arena = Arena::new();
        let slots: Vec<_> = (0..100_u8).map(|i| insert(&mut arena, [i; 104])).collect();
        assert_eq!(vacant(&arena), [0, 0, 0, 24]);
        assert_eq!(arena.iter_chunks(0..arena.chunks()).count(), 100);
        for (&slot, i) in slots.iter().zip(0..) {
            assert_eq!(arena.remove(slot), [i; 104]);
        }
        assert_eq!(vacant(&arena), [31; 4]);
    }

    /// When the chunks of a burst are freed, the numbers at the end are given up, and the others are used again.
    #[test]
    fn numbers_of_freed_chunks_are_used_again() {
        const SLOTS: u32 = Chunk::<u32>::SLOTS as u32;
        let mut arena = Arena::new();
        let slots: Vec<_> = (0..100 * SLOTS).map(|i| insert(&mut arena, i)).collect();
        let (stay, go): (Vec<_>, Vec<_>) = slots.into_iter().zip(0..).partition(|&(_, i)| i / SLOTS == 10);
        go.into_iter().for_each(|(slot, i)| assert_eq!(arena.remove(slot), i));
        arena.shrink(0..arena.chunks());
        assert_eq!((arena.chunks(), chunks(&arena).count(), arena.taken()), (11, 1, SLOTS as usize));
        assert!(arena.chunks.capacity() < 100);
        arena.shrink_arrays();
        assert_eq!(arena.chunks.capacity(), 11);
        let again: Vec<_> = (0..10 * SLOTS).map(|i| insert(&mut arena, i)).collect();
        assert_eq!(arena.chunks(), 11);
        let all = stay.into_iter().map(|(slot, _)| slot).chain(again);
        let mut keys: Vec<_> = all.map(|slot| arena.remove(slot)).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..11 * SLOTS).collect::<Vec<_>>());
    }
}
