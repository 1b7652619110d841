//! A lower bound for the cost of a queue: a lock, a table, slots, a queue of slots. No thread parks, keys are copied, there are no delays and no
//! counts, and no memory is given back. The difference from keyqueue is what keyqueue's promises cost.

use ahash::RandomState;
use common::{Key, Subject};
use hashbrown::HashTable;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub struct Draft<K> {
    hasher: RandomState,
    shutting_down: AtomicBool,
    keys: SpinLock<Keys<K>>,
}

/// The data under the lock.
struct Keys<K> {
    /// The slot of each key that is queued or processing.
    table: HashTable<u32>,
    slots: Vec<Slot<K>>,
    free: Vec<u32>,
    queued: VecDeque<u32>,
}

struct Slot<K> {
    key: K,
    hash: u64,
    dirty: bool,
    processing: bool,
}

impl<K: Key + Copy> Keys<K> {
    #[inline]
    fn add(&mut self, key: K, hash: u64) {
        let slots = &mut self.slots;
        if let Some(&known) = self.table.find(hash, |&slot| slots[slot as usize].key == key) {
            let slot = &mut slots[known as usize];
            let queue = !slot.dirty && !slot.processing;
            slot.dirty = true;
            if queue {
                self.queued.push_back(known);
            }
            return;
        }
        let slot = Slot { key, hash, dirty: true, processing: false };
        let new = match self.free.pop() {
            Some(free) => {
                slots[free as usize] = slot;
                free
            }
            None => {
                slots.push(slot);
                slots.len() as u32 - 1
            }
        };
        self.table.insert_unique(hash, new, |&slot| slots[slot as usize].hash);
        self.queued.push_back(new);
    }

    #[inline]
    fn take(&mut self) -> Option<(u32, K)> {
        let taken = self.queued.pop_front()?;
        let slot = &mut self.slots[taken as usize];
        (slot.dirty, slot.processing) = (false, true);
        Some((taken, slot.key))
    }

    #[inline]
    fn done(&mut self, taken: u32) {
        let slot = &mut self.slots[taken as usize];
        slot.processing = false;
        if slot.dirty {
            return self.queued.push_back(taken);
        }
        if let Ok(entry) = self.table.find_entry(slot.hash, |&other| other == taken) {
            entry.remove();
        }
        self.free.push(taken);
    }
}

impl<K: Key + Copy> Subject<K> for Draft<K> {
    const NAME: &'static str = "draft";

    fn make() -> Self {
        let keys = Keys { table: HashTable::new(), slots: Vec::new(), free: Vec::new(), queued: VecDeque::new() };
        Self { hasher: RandomState::new(), shutting_down: AtomicBool::new(false), keys: SpinLock::new(keys) }
    }

    #[inline]
    fn add(&self, key: K) {
        let hash = self.hasher.hash_one(key);
        self.keys.with(|keys| keys.add(key, hash));
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        let (slot, key) = loop {
            // Read before the take, so that the take finds every key that was added before the shut-down.
            let shutting_down = self.shutting_down.load(Ordering::Acquire);
            match self.keys.with(Keys::take) {
                Some(taken) => break taken,
                None if shutting_down => return false,
                None => thread::yield_now(),
            }
        };
        work(self, &key);
        self.keys.with(|keys| keys.done(slot));
        true
    }

    fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Release);
    }
}

/// A lock that is released by a plain store. Aligned, so that no neighbour shares its cache lines.
#[repr(align(128))]
struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock has access to the value: see `with`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// A panic of `work` leaves the lock held.
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.contend();
        }
        // SAFETY: this thread has set `held`, and another thread enters only after it is clear again.
        let result = work(unsafe { &mut *self.value.get() });
        self.held.store(false, Ordering::Release);
        result
    }

    /// Backs off for some microseconds before the next try, so that the holder can run undisturbed.
    #[cold]
    #[inline(never)]
    fn contend(&self) {
        let mut attempts = 0;
        loop {
            (0..200).for_each(|_| spin_loop());
            if self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            attempts += 1;
            if attempts > 6 {
                thread::yield_now();
            }
        }
    }
}
