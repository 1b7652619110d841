//! The real thing.

pub(crate) use crossbeam_utils::sync::Unparker;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread::JoinHandle;

pub(crate) use parking_lot::MutexGuard;
use std::time::Instant;

/// The queue's lock: `parking_lot`'s, and before it parks, a contender backs off for long.
///
/// A critical section here takes some ten nanoseconds, a line of the cache that moves from core to core a hundred. So it pays if
/// the thread that has the lock gets it many times in a row: a contender stays away for some five microseconds before it looks
/// again, and parks after thirty (measured on two cores: keys passed from one thread to another 95 -> 70 ns, a ring of two
/// threads 44 -> 29).
///
/// It is not poisoned by a panic: the foreign code that runs under it, `Eq` and `Clone` of keys, finds nothing half done.
#[derive(Debug)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    /// For a lock of which there are many, so that it is hardly ever contended: `parking_lot`'s own way, which looks again soon.
    #[inline]
    pub(crate) fn lock_soon(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, T> {
        const LOOKS: usize = 6;
        const PAUSES: usize = 200;
        if parallelism() > 1 {
            for _ in 0..LOOKS {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
        }
        self.0.lock()
    }
}

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
    thread_local!(static PARKER: Parker = Parker::new());
    let mut f = Some(f);
    let mut once = |parker: &Parker| (f.take().expect("called once"))(parker);
    // A thread that ends may still wait, in the destructor of another thread-local.
    PARKER.try_with(&mut once).unwrap_or_else(|_| once(&Parker::new()))
}

/// A token of our own rather than `std::thread::park`'s, which any library on the thread may spend or leave behind.
#[derive(Debug)]
pub(crate) struct Parker(crossbeam_utils::sync::Parker);

impl Parker {
    pub(crate) fn new() -> Self {
        Self(crossbeam_utils::sync::Parker::new())
    }

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

pub(crate) fn downgrade<T>(arc: &Arc<T>) -> Weak<T> {
    Arc::downgrade(arc)
}

/// A thread of this name.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// The thread unwinds.
#[inline]
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}

/// Waits a moment while `idle` holds, before its caller parks: busily, for a microsecond or two, and not at all where there
/// is one CPU.
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
pub(crate) fn parallelism() -> usize {
    static CPUS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The time, for delays.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}
