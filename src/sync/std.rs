//! The shim's real half: `std` and `crossbeam-utils`.

pub(crate) use crossbeam_utils::sync::Unparker;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread::JoinHandle;

pub(crate) use super::lock::{Mutex, MutexGuard};
use std::sync::PoisonError;
pub(super) use std::sync::atomic::fence;
pub(super) use std::sync::{Condvar, Mutex as ParkMutex, MutexGuard as ParkGuard};
use std::time::{Duration, Instant};

/// Between the store that releases the lock and the load of `has_parked`: the processor may load first, the compiler must not.
#[inline]
pub(super) fn unlock_check_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Waits until notified, but no longer than `timeout`. Whether the time is up.
pub(super) fn wait_timed<'m, T>(
    condvar: &Condvar,
    _mutex: &'m ParkMutex<T>,
    guard: ParkGuard<'m, T>,
    timeout: Duration,
) -> (ParkGuard<'m, T>, bool) {
    let (guard, result) = condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Spins without touching the lock's cache line: 10 to 50 ns a time, depending on the processor.
pub(super) fn spin_hint(times: usize) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// In debug builds, the thread that holds a lock, so that one that takes it twice panics instead of waiting for itself. Nothing in
/// release builds.
#[derive(Default)]
pub(super) struct Holder(#[cfg(debug_assertions)] AtomicUsize);

#[cfg(debug_assertions)]
impl Holder {
    /// The address of a thread-local, which no two living threads share.
    fn this_thread() -> usize {
        std::thread_local!(static PLACE: u8 = const { 0 });
        PLACE.with(|place| std::ptr::from_ref(place).addr())
    }

    pub(super) fn set(&self) {
        self.0.store(Self::this_thread(), Ordering::Relaxed); // Relaxed: only the thread that has stored it concludes from it.
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// # Panics
    /// If the calling thread holds the lock.
    pub(super) fn assert_another_thread(&self) {
        assert!(
            self.0.load(Ordering::Relaxed) != Self::this_thread(),
            "keyqueue: a thread took a lock that it holds: `Eq`, `Borrow` and `Clone` of a key must not use its queue"
        );
    }
}

#[cfg(not(debug_assertions))]
impl Holder {
    #[inline(always)]
    pub(super) fn set(&self) {}

    #[inline(always)]
    pub(super) fn clear(&self) {}

    #[inline(always)]
    pub(super) fn assert_another_thread(&self) {}
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
    if parallelism() > 1 { spin_hint(300) } else { std::thread::yield_now() }
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

/// For how long the calling thread has run, to within a tick of the scheduler.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn cpu_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with scheduler statistics");
    Duration::from_nanos(times.split_whitespace().next().and_then(|ran| ran.parse().ok()).expect("a number"))
}
