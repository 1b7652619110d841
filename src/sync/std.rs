//! The real thing.

pub(crate) use crossbeam_utils::sync::Unparker;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread::JoinHandle;

pub(crate) use super::lock::{Mutex, MutexGuard};
use std::sync::PoisonError;
pub(super) use std::sync::atomic::fence;
pub(super) use std::sync::{Condvar, Mutex as Bed, MutexGuard as BedGuard};
use std::time::{Duration, Instant};

/// Between a store and a load: the processor may load first, the compiler must not.
#[inline]
pub(super) fn race() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Sleeps until notified, or for so long.
pub(super) fn watch<'m, T>(
    morning: &Condvar,
    _beds: &'m Bed<T>,
    guard: BedGuard<'m, T>,
    patience: Duration,
) -> BedGuard<'m, T> {
    morning.wait_timeout(guard, patience).unwrap_or_else(PoisonError::into_inner).0
}

/// Leaves the line of the cache alone for so long: 10 to 50 ns each, as the processor pleases.
pub(super) fn pause(times: usize) {
    (0..times).for_each(|_| std::hint::spin_loop());
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

/// Between two critical sections of a call that makes many of them, one after the other: a thread that waits for the lock looks at it
/// every few microseconds, and must find it free at one of these looks.
pub(crate) fn give_way() {
    if parallelism() > 1 { pause(300) } else { std::thread::yield_now() }
}

/// How long after a wake-up a thread that has not come to the lock is overdue: then an add wakes the next. A thread whose core
/// sleeps takes up to some 50 microseconds. Shorter, a burst of adds would cost more wake-ups than it needs.
pub(crate) const OVERDUE: Duration = Duration::from_micros(50);

/// Whether a thread that was woken then is overdue.
#[inline]
pub(crate) fn overdue(woken_at: Instant) -> bool {
    woken_at.elapsed() >= OVERDUE
}

/// The time, for delays.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}
