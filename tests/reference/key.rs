//! The keys of a run: few, so that calls meet on one key. Each owns memory, and the keys that are alive are counted.
//!
//! And the code of the user that a call runs: it panics on demand, and it uses the queue each time, so no lock may be held then (P17).

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::catch_unwind;

/// The number of keys that steps name. Those of a crowd come after them.
pub(crate) const KEYS: u8 = 12;

thread_local! {
    static ALIVE: Cell<i64> = const { Cell::new(0) };
    static FAULT: Cell<Option<(Fault, u8)>> = const { Cell::new(None) };
    static STRUCK: Cell<Option<Strike>> = const { Cell::new(None) };
    /// What the code of the user does, while a call runs: it takes each lock of the queue, of its workers and of its values.
    static USE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    static IS_CALLED: Cell<bool> = const { Cell::new(false) };
    static WAS_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// From now on, until the result is dropped, the code of the user does this.
pub(crate) fn uses(locks: impl Fn() + 'static) -> impl Drop {
    struct Uses;
    impl Drop for Uses {
        fn drop(&mut self) {
            drop(USE.take());
        }
    }
    USE.set(Some(Box::new(locks)));
    Uses
}

/// Makes a call of the queue.
pub(crate) fn called<T>(call: impl FnOnce() -> T) -> T {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            IS_CALLED.set(false);
        }
    }
    IS_CALLED.set(true);
    let _ends = Ends;
    call()
}

/// Takes each lock. In a debug build a thread that holds one panics, which is noted here.
pub(crate) fn look() {
    let look = || USE.with_borrow(|locks| locks.iter().for_each(|locks| locks()));
    if IS_CALLED.get() && catch_unwind(look).is_err() {
        WAS_LOCKED.set(true);
    }
}

/// Whether a call has run code of the user under a lock.
pub(crate) fn was_locked() -> bool {
    WAS_LOCKED.take()
}

/// Code of the user in which a call can panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    Eq,
    Hash,
    Borrow,
    Clone,
    Drop,
    /// The function that names the group of a key.
    Group,
    Weight,
    /// The one of `take_where`.
    Predicate,
    /// The one of `add_all`.
    Iterator,
    /// A limiter of the user's own.
    Limiter,
    Observer,
    Waker,
    Handler,
    /// `on_error`, `on_panic` and `on_give_up`.
    Hook,
}

impl Fault {
    pub(crate) const ALL: [Self; 14] = [
        Self::Eq,
        Self::Hash,
        Self::Borrow,
        Self::Clone,
        Self::Drop,
        Self::Group,
        Self::Weight,
        Self::Predicate,
        Self::Iterator,
        Self::Limiter,
        Self::Observer,
        Self::Waker,
        Self::Handler,
        Self::Hook,
    ];
}

/// A panic that has happened, and in which call: an [`Event`](super::events::Event) or a [`Call`](super::plan::Call), as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) fault: Fault,
    pub(crate) at: u8,
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Key(Box<Name>);

/// The borrowed form of a key.
#[derive(Debug, Eq)]
pub(crate) struct Name(u8);

impl Name {
    pub(crate) fn new(n: u8) -> Self {
        Self(n)
    }
}

impl Key {
    pub(crate) fn new(n: u8) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(Box::new(Name::new(n)))
    }

    pub(crate) fn number(&self) -> u8 {
        self.0.0
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

/// Returns the panic, if there was one.
pub(crate) fn disarm() -> Option<Strike> {
    FAULT.set(None);
    STRUCK.take()
}

/// Calls code in which no panic is due.
pub(crate) fn unarmed<T>(call: impl FnOnce() -> T) -> T {
    let fault = FAULT.take();
    let answer = call();
    FAULT.set(fault);
    answer
}

/// Whether a panic has happened since [`arm`].
pub(crate) fn has_struck() -> bool {
    STRUCK.get().is_some()
}

pub(crate) fn strike(here: Fault) {
    strike_at(here, 0);
}

pub(crate) fn strike_at(here: Fault, at: u8) {
    // These may run under a lock, as the docs say.
    if !matches!(here, Fault::Eq | Fault::Borrow | Fault::Clone) {
        look();
    }
    if let Some((fault, nth)) = FAULT.get()
        && fault == here
    {
        if nth == 0 {
            FAULT.set(None);
            STRUCK.set(Some(Strike { fault, at }));
            std::panic::resume_unwind(Box::new(fault));
        }
        FAULT.set(Some((fault, nth - 1)));
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
        strike(Fault::Drop);
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        strike(Fault::Clone);
        Self::new(self.number())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        strike(Fault::Eq);
        self.0 == other.0
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        strike(Fault::Hash);
        // Two keys have one hash, so they are in one chain of the table, and in one shard unless their groups are in two.
        let hashed = if self.0 < KEYS { self.0 % (KEYS / 2) } else { self.0 };
        hashed.hash(state);
    }
}

impl Borrow<Name> for Key {
    fn borrow(&self) -> &Name {
        strike(Fault::Borrow);
        &self.0
    }
}

impl ToOwned for Name {
    type Owned = Key;

    fn to_owned(&self) -> Key {
        Key::new(self.0)
    }
}
