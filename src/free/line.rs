//! A line of queued keys: a segment queue of entries.
//!
//! ```text
//!    getters ◀── swept, while there are some ◀─ a sweep ─┐
//!            ◀────────────────────────────────────────── entries ◀── pushes
//! ```
//!
//! A segment queue cannot lose an entry in the middle. So a key that is taken out leaves a dead entry (F2), which a getter drops. If there are
//! many, the call that takes keys out *sweeps*: it moves the entries that are live to a list under a lock, some at a time, and getters take
//! those first.
//!
//! * **F8** While `is_swept` is set, entries that were moved come before all others, and one may be in the hand of the sweep, which has the
//!   lock. Whoever finds the queue of entries empty looks at `is_swept` afterwards. A getter that has read `is_swept` before a sweep may
//!   take one key that comes after those that the sweep moves.

use super::parts::SegQueue;
use crate::key::NodeRef;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, model_const};
use std::collections::VecDeque;

/// One push of a key. It has a claim of the node (F2).
pub(super) struct Entry<K> {
    pub(super) node: NodeRef<K>,
    pub(super) number: u32,
    /// The low bits of the epoch in which it was pushed: see [`Lines`](super::lines::Lines).
    pub(super) epoch: u32,
}

impl<K> Entry<K> {
    fn is_live(&self) -> bool {
        self.node.word().load().is_live(self.number)
    }
}

/// See the top of this file.
pub(super) struct Line<K> {
    entries: SegQueue<Entry<K>>,
    is_swept: AtomicBool,
    swept: Mutex<Swept<K>>,
    swept_len: AtomicUsize,
    /// The epoch of the latest entry that a getter has taken. What is left is not older, but for entries of threads that were slow.
    pub(super) front: AtomicU64,
}

/// Entries that were moved. The second list is empty unless a sweep is on its way: it has those that the sweep has not looked at.
struct Swept<K>([VecDeque<Entry<K>>; 2]);

impl<K> Swept<K> {
    fn pop(&mut self) -> Option<Entry<K>> {
        self.0.iter_mut().find_map(VecDeque::pop_front)
    }

    fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }
}

/// The number of entries that a sweep moves while it has the lock.
const AT_ONCE: usize = model_const(256, 2);

impl<K> Line<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: SegQueue::new(),
            is_swept: AtomicBool::new(false),
            swept: Mutex::new(Swept([VecDeque::new(), VecDeque::new()])),
            swept_len: AtomicUsize::new(0),
            front: AtomicU64::new(0),
        }
    }

    /// Ends with a read-modify-write.
    #[inline]
    pub(super) fn push(&self, entry: Entry<K>) {
        self.entries.push(entry);
    }

    /// The first entry, which may be dead.
    #[inline]
    pub(super) fn pop(&self) -> Option<Entry<K>> {
        if !self.is_swept() {
            let entry = self.entries.pop();
            if entry.is_some() || !self.is_swept() {
                return entry;
            }
        }
        self.pop_swept()
    }

    #[inline]
    fn is_swept(&self) -> bool {
        // Acquire: who sees that the list is empty again goes on with the entries. And who has seen what a sweep has moved sees the flag.
        self.is_swept.load(Ordering::Acquire)
    }

    #[cold]
    fn pop_swept(&self) -> Option<Entry<K>> {
        let mut swept = self.swept.lock();
        let entry = swept.pop();
        self.swept_len.store(swept.len(), Ordering::Relaxed); // Relaxed: for `len`
        if entry.is_some() {
            return entry;
        }
        self.is_swept.store(false, Ordering::Release);
        self.entries.pop()
    }

    /// There was a moment without an entry, dead or live.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = !self.is_swept() && self.entries.is_empty();
        if is_empty && !self.is_swept() {
            return true;
        }
        self.is_swept() && self.swept.lock().len() == 0 && self.entries.is_empty()
    }

    /// At least the number of entries, dead ones too.
    #[inline]
    pub(super) fn entries(&self) -> usize {
        // Another one may be in the hand of a sweep.
        let swept = if self.is_swept() { self.swept_len.load(Ordering::Relaxed) + 1 } else { 0 };
        self.entries.len() + swept
    }

    /// The number of entries, dead ones too.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.swept_len.load(Ordering::Relaxed) // Relaxed: a number
    }

    /// Takes the dead entries out, and calls `gone` for each, under no lock. One thread at a time does this.
    #[cold]
    pub(super) fn sweep(&self, gone: &mut impl FnMut(Entry<K>)) {
        let mut left = self.entries.len();
        let mut begins = true;
        loop {
            let mut dead = Vec::with_capacity(AT_ONCE);
            let is_over = {
                let Swept([swept, seen]) = &mut *self.swept.lock();
                self.is_swept.store(true, Ordering::Release);
                if std::mem::take(&mut begins) {
                    std::mem::swap(swept, seen);
                }
                let mut next = || {
                    seen.pop_front().or_else(|| {
                        left = left.checked_sub(1)?;
                        self.entries.pop()
                    })
                };
                let mut count = 0;
                while count < AT_ONCE {
                    let Some(entry) = next() else { break };
                    count += 1;
                    if entry.is_live() { swept.push_back(entry) } else { dead.push(entry) }
                }
                self.swept_len.store(swept.len() + seen.len(), Ordering::Relaxed); // Relaxed: for `len`
                count < AT_ONCE
            };
            dead.into_iter().for_each(&mut *gone);
            if is_over {
                return;
            }
        }
    }

    /// The room that no entry needs.
    pub(super) fn shrink(&self) {
        self.swept.lock().0.iter_mut().for_each(VecDeque::shrink_to_fit);
    }
}
