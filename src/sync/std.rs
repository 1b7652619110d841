//! The real thing.

pub(crate) use crossbeam_utils::sync::Unparker;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use std::time::Instant;

/// The queue's lock. It is not poisoned by a panic: the only foreign code that runs under it is `K::eq`, before anything is
/// changed.
pub(crate) use parking_lot::Mutex;

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

/// Waits a moment while `idle` holds, before its caller parks: busily, for at most a few hundred nanoseconds, and not at all where
/// there is one CPU.
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

/// Lets other threads run while `idle` holds, but not for long.
pub(crate) fn yield_while(idle: impl Fn() -> bool) {
    const YIELDS: usize = 3;
    for _ in 0..YIELDS {
        if !idle() {
            return;
        }
        std::thread::yield_now();
    }
}

/// How many threads can run at once. Asked of the system once: the answer costs several file reads.
fn parallelism() -> usize {
    static CPUS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
