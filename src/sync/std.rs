//! The real thing.

pub(crate) use crossbeam_utils::sync::Unparker;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use std::time::Instant;

/// The queue's lock: `parking_lot`'s, with more patience.
///
/// Critical sections here take some ten nanoseconds, and a thread that parks for one is away for twenty-five microseconds, in
/// which others run dry and park in their turn. So a contender backs off for a few microseconds before it parks; backing off
/// ever longer also lets the running thread take the lock many times in a row, which keeps its lines where they are.
///
/// It is not poisoned by a panic: the only foreign code that runs under it is `K::eq`, before anything is changed.
#[derive(Debug)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    #[cold]
    fn lock_contended(&self) -> parking_lot::MutexGuard<'_, T> {
        if parallelism() > 1 {
            for round in 0..ROUNDS {
                for _ in 0..1 << round.min(LONGEST) {
                    std::hint::spin_loop();
                }
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
        }
        self.0.lock()
    }
}

const ROUNDS: u32 = 10;
const LONGEST: u32 = 6;

/// A cell whose accesses loom checks.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Lends this thread's parker: one per thread, made at the first wait and reused, so that waiting allocates nothing.
pub(crate) fn with_parker<R>(f: impl FnOnce(&Parker) -> R) -> R {
    thread_local!(static PARKER: Parker = Parker(crossbeam_utils::sync::Parker::new()));
    PARKER.with(f)
}

/// A token of our own rather than `std::thread::park`'s, which any library on the thread may spend or leave behind.
#[derive(Debug)]
pub(crate) struct Parker(crossbeam_utils::sync::Parker);

impl Parker {
    pub(crate) fn unparker(&self) -> Unparker {
        self.0.unparker().clone()
    }

    /// Sleeps until unparked, until `deadline`, or for no reason at all.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => self.0.park_deadline(deadline),
            None => self.0.park(),
        }
    }
}

/// Busy-waits for at most a few hundred nanoseconds while `idle` holds; at once done where there is one CPU.
#[inline]
pub(crate) fn spin_while(idle: impl Fn() -> bool) {
    const SPINS: usize = 64;
    if parallelism() > 1 {
        for _ in 0..SPINS {
            if !idle() {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// How many threads can run at once. Asked of the system once: the answer costs several file reads.
fn parallelism() -> usize {
    static CPUS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
