//! The keys of a run: few, so that calls meet on one key. Each owns memory, and the keys that are alive are counted.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

/// The number of keys that steps name. Those of a crowd come after them.
pub(crate) const KEYS: u8 = 12;

thread_local! {
    static ALIVE: Cell<i64> = const { Cell::new(0) };
    static FAULT: Cell<Option<(Fault, u8)>> = const { Cell::new(None) };
}

/// Code of the user in which a call can panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    Eq,
    Hash,
    Clone,
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Key(Box<u8>);

impl Key {
    pub(crate) fn new(n: u8) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(Box::new(n))
    }

    pub(crate) fn number(&self) -> u8 {
        *self.0
    }
}

/// The number of this thread's keys that are alive.
pub(crate) fn alive() -> i64 {
    ALIVE.get()
}

/// Until [`disarm`], the `nth` such call panics, counted from 0.
pub(crate) fn arm(fault: Fault, nth: u8) {
    FAULT.set(Some((fault, nth)));
}

/// Returns whether the fault has not struck.
pub(crate) fn disarm() -> bool {
    FAULT.take().is_some()
}

fn strike(here: Fault) {
    if let Some((fault, nth)) = FAULT.get()
        && fault == here
    {
        if nth == 0 {
            FAULT.set(None);
            std::panic::resume_unwind(Box::new(fault));
        }
        FAULT.set(Some((fault, nth - 1)));
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        strike(Fault::Clone);
        Self::new(*self.0)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        strike(Fault::Eq);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        strike(Fault::Hash);
        // Two keys have one hash, so they are in one chain of the table, and in one shard.
        let hashed = if *self.0 < KEYS { *self.0 % (KEYS / 2) } else { *self.0 };
        hashed.hash(state);
    }
}
