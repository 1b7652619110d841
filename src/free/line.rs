//! One line of queued keys: a segment queue of entries, from which getters pop.
//!
//! ```text
//!    getters ◀── swept, while there are some ◀─ a sweep ─┐
//!            ◀────────────────────────────────────────── entries ◀── pushes
//! ```
//!
//! A segment queue cannot give up an entry in its middle, so a key that is taken out leaves a dead entry behind (F2), which the getter that
//! pops it drops. Once many are dead, the call that takes keys out *sweeps* the line: under a lock, and a few at a time, it moves the live
//! entries to a list, from which getters take first (F8).
//!
//! `is_swept` is set while that list may have entries, or the sweep has one in its hand, so a getter that finds the segment queue empty
//! looks at the flag again. A getter that read the flag just before a sweep began may take one later key first.

use super::parts::SegQueue;
use crate::key::NodeRef;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, model_const};
use std::collections::VecDeque;

/// One push of a key. The entry owns a claim on the node (F2).
pub(super) struct Entry<K> {
    pub(super) node: NodeRef<K>,
    pub(super) number: u32,
    /// The low bits of the epoch of the push: see [`Lines`](super::lines::Lines).
    pub(super) epoch: u32,
}

impl<K> Entry<K> {
    fn is_live(&self) -> bool {
        self.node.word().load().is_live(self.number)
    }
}

/// A line: see the top of this file.
pub(super) struct Line<K> {
    entries: SegQueue<Entry<K>>,
    is_swept: AtomicBool,
    swept: Mutex<Swept<K>>,
    swept_len: AtomicUsize,
    /// The epoch of the newest entry that a getter has taken. Entries that are left are not older, except those of adders that were slow.
    pub(super) front: AtomicU64,
}

/// The entries that a sweep has moved. While a sweep is running, the second list has those of an earlier sweep that this one has not seen
/// yet.
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

    /// Ends with a read-modify-write, as F10 requires.
    #[inline]
    pub(super) fn push(&self, entry: Entry<K>) {
        self.entries.push(entry);
    }

    /// The first entry, which may be dead.
    #[inline]
    pub(super) fn pop(&self) -> Option<Entry<K>> {
        if !self.is_swept() {
            let entry = self.entries.pop();
            if !self.is_swept() {
                return entry;
            }
            // A sweep has begun and may have moved older entries, so this one says nothing about the age of what is left (F12).
            if let Some(entry) = entry {
                return Some(Entry { epoch: self.front.load(Ordering::Relaxed) as u32, ..entry });
            }
        }
        self.pop_swept()
    }

    #[inline]
    fn is_swept(&self) -> bool {
        // Acquire: a getter that sees the list empty again goes on with the entries, and one that sees what a sweep has moved sees the
        // flag.
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

    /// Whether a pop would most likely find nothing.
    #[inline]
    pub(super) fn seems_empty(&self) -> bool {
        self.entries.is_empty() && !self.is_swept()
    }

    /// The number of entries, dead ones included, or one more.
    #[inline]
    pub(super) fn entries(&self) -> usize {
        let entries = self.entries.len(); // first: who does not find an entry that a sweep has moved sees the flag
        // A sweep may have one more in its hand.
        let swept = if self.is_swept() { self.swept_len.load(Ordering::Relaxed) + 1 } else { 0 };
        entries + swept
    }

    /// The number of entries, dead ones included.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.swept_len.load(Ordering::Relaxed) // Relaxed: a number
    }

    /// Takes out the dead entries, and calls `gone` for each without the lock. One thread at a time does this.
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

    pub(super) fn shrink(&self) {
        self.swept.lock().0.iter_mut().for_each(VecDeque::shrink_to_fit);
    }
}
