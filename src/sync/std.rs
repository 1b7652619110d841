//! The implementation for real use, with `std` and `crossbeam-utils`.

pub(crate) use crossbeam_utils::sync::Unparker;
#[cfg(feature = "lock-free")]
pub(crate) use std::sync::atomic::AtomicPtr;
#[cfg(any(feature = "lock-free", not(feature = "std-lock")))]
pub(crate) use std::sync::atomic::fence;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread::{JoinHandle, current as current_thread};

#[cfg(not(feature = "std-lock"))]
pub(crate) use super::lock::{Mutex, MutexGuard};
#[cfg(feature = "std-lock")]
pub(crate) use super::std_lock::{Mutex, MutexGuard};
use std::cell::Cell;
#[cfg(not(feature = "std-lock"))]
use std::sync::TryLockError;
#[cfg(not(feature = "std-lock"))]
pub(super) use std::sync::{Condvar, Mutex as ParkMutex, MutexGuard as ParkGuard};
use std::time::{Duration, Instant};

/// Called between the store that releases the lock and the load of `has_parked`. The compiler must not reorder the two; the processor may.
#[inline]
#[cfg(not(feature = "std-lock"))]
pub(super) fn unlock_check_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The list of parked threads, unless another thread has it.
#[cfg(not(feature = "std-lock"))]
pub(super) fn try_parked<T>(parked: &ParkMutex<T>) -> Option<ParkGuard<'_, T>> {
    match parked.try_lock() {
        Ok(parked) => Some(parked),
        Err(TryLockError::Poisoned(parked)) => Some(parked.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits until notified, but no longer than `timeout`. Returns whether the time is up.
#[cfg(not(feature = "std-lock"))]
pub(super) fn wait_timed<'m, T>(
    condvar: &Condvar,
    _mutex: &'m ParkMutex<T>,
    guard: ParkGuard<'m, T>,
    timeout: Duration,
) -> (ParkGuard<'m, T>, bool) {
    let (guard, result) = condvar.wait_timeout(guard, timeout).unwrap_or_else(std::sync::PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Spins without touching the lock's cache line. Each of the `times` takes 10 to 50 ns, depending on the processor.
pub(super) fn spin_hint(times: usize) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// In debug builds, the thread that holds a lock, so that a thread which takes it twice panics instead of waiting for itself.
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
        self.0.store(Self::this_thread(), Ordering::Relaxed); // Relaxed: no other thread stores this thread's value
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// # Panics
    /// If the calling thread holds the lock.
    pub(super) fn assert_another_thread(&self) {
        assert!(
            self.0.load(Ordering::Relaxed) != Self::this_thread(),
            "keyqueue: a thread took a lock that it holds: `Eq`, `Equivalent` and `Clone` of a key must not use its queue"
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

/// Calls `f` with this thread's parker, which is made at the first wait and then reused, so that later waits allocate nothing. If `f` calls
/// foreign code that waits, that wait gets a parker of its own and cannot use up a wake-up of the first.
pub(crate) fn with_parker<R>(f: impl FnOnce(&Parker) -> R) -> R {
    thread_local!(static PARKER: Cell<Option<Parker>> = const { Cell::new(None) });
    // The destructor of another thread-local may wait when this one is gone already. It then gets a new parker.
    let parker = PARKER.try_with(Cell::take).ok().flatten().unwrap_or_else(Parker::new);
    let result = f(&parker);
    _ = PARKER.try_with(|kept| kept.set(Some(parker)));
    result
}

/// Parks with a token of its own, because any library may set or consume the token of `std::thread::park` on the same thread.
#[derive(Debug)]
pub(crate) struct Parker(crossbeam_utils::sync::Parker);

impl Parker {
    pub(crate) fn new() -> Self {
        Self(crossbeam_utils::sync::Parker::new())
    }

    pub(crate) fn unparker(&self) -> Unparker {
        self.0.unparker().clone()
    }

    /// Parks until unparked or until `deadline`; may also return spuriously.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => self.0.park_deadline(deadline),
            None => self.0.park(),
        }
    }
}

/// Parks for a short time.
pub(crate) fn park_briefly(parker: &Parker, until: Instant) {
    parker.park(Some(until));
}

pub(crate) fn downgrade<T>(arc: &Arc<T>) -> Weak<T> {
    Arc::downgrade(arc)
}

/// Starts a thread of this name.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Whether the calling thread unwinds.
#[inline]
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}

/// Spins while `idle` holds, for a microsecond or two, before the caller parks. Does nothing on a machine with one CPU.
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

/// Yields to other threads while `idle` holds, a few times.
pub(crate) fn yield_while(idle: impl Fn() -> bool) {
    const YIELDS: usize = 3;
    for _ in 0..YIELDS {
        if !idle() {
            return;
        }
        std::thread::yield_now();
    }
}

/// The number of threads that can run at the same time. It is cached, because the system call reads several files.
pub(crate) fn parallelism() -> usize {
    CPUS.get(available_parallelism)
}

/// Asks again if the answer was one so far. Each new queue calls this, because the system answers for the calling thread: if one that is
/// bound to a core had asked first, no thread would ever spin for a lock.
pub(crate) fn note_parallelism() {
    CPUS.ask(available_parallelism);
}

fn available_parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

static CPUS: Cpus = Cpus(std::sync::atomic::AtomicUsize::new(0));

/// The largest number that was told, or zero.
struct Cpus(std::sync::atomic::AtomicUsize);

impl Cpus {
    #[inline]
    fn get(&self, available: impl FnOnce() -> usize) -> usize {
        match self.0.load(std::sync::atomic::Ordering::Relaxed) {
            0 => self.ask(available),
            known => known,
        }
    }

    #[cold]
    fn ask(&self, available: impl FnOnce() -> usize) -> usize {
        let known = self.0.load(std::sync::atomic::Ordering::Relaxed);
        if known > 1 {
            return known;
        }
        let available = available();
        self.0.fetch_max(available, std::sync::atomic::Ordering::Relaxed).max(available)
    }
}

/// Called between critical sections by a call that makes many of them in a row. It lasts longer than a contender stays away between two
/// looks at the lock (`BACKOFF_LONG`: 200 hints), so that one of the looks finds the lock free.
pub(crate) fn give_way() {
    if parallelism() > 1 { spin_hint(300) } else { std::thread::yield_now() }
}

/// A woken thread that has not taken the lock after this time is overdue, and an add wakes the next one. On an idle core a thread takes up
/// to some 50 microseconds, so a shorter time would cause needless wake-ups in a burst of adds.
pub(crate) const OVERDUE: Duration = Duration::from_micros(50);

/// Whether a thread that was woken at that time is overdue.
#[inline]
pub(crate) fn overdue(woken_at: Instant) -> bool {
    woken_at.elapsed() >= OVERDUE
}

/// A counter that grows with time, at the same pace on all cores. It serves for comparisons only.
pub(crate) fn stamp() -> u64 {
    // In steps of about 100 ns, so that in the life of a machine it does not reach the highest bits, which are for the priority.
    #[cfg(feature = "quanta")]
    return crate::time::coarse_clock::counter() >> 8;
    #[cfg(not(feature = "quanta"))]
    return super::now_real() >> 7;
}

/// The time, for delays.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The processor time of the calling thread, to within a tick of the scheduler.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn cpu_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with scheduler statistics");
    Duration::from_nanos(times.split_whitespace().next().and_then(|ran| ran.parse().ok()).expect("a number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::std::time::Duration;

    /// A thread waits in foreign code that runs within its wait: it does not use up the wake-up of the outer wait.
    #[test]
    fn a_wait_within_a_wait_has_a_parker_of_its_own() {
        for _ in 0..2 {
            let begin = Instant::now();
            with_parker(|outer| {
                outer.unparker().unpark();
                with_parker(|inner| inner.park(Some(begin + Duration::from_millis(20))));
                assert!(begin.elapsed() >= Duration::from_millis(20), "the wake-up of the outer one");
                outer.park(Some(begin + Duration::from_secs(20)));
            });
            assert!(begin.elapsed() < Duration::from_secs(10), "it has its wake-up");
        }
    }

    /// So a thread that has waited before allocates nothing.
    #[test]
    fn the_next_wait_has_the_same_parker() {
        let begin = Instant::now();
        with_parker(|parker| parker.unparker().unpark());
        with_parker(|parker| parker.park(Some(begin + Duration::from_secs(20))));
        assert!(begin.elapsed() < Duration::from_secs(10), "another parker, without the wake-up");
    }

    #[test]
    fn a_thread_spins_and_yields_while_there_is_nothing_to_do() {
        let looks = |wait: &dyn Fn(&dyn Fn() -> bool), idle: bool| {
            let looks = Cell::new(0);
            wait(&|| {
                looks.set(looks.get() + 1);
                idle
            });
            looks.get()
        };
        let spins = available_parallelism() > 1;
        assert_eq!(
            [true, false].map(|idle| looks(&|idle| spin_while(idle), idle)),
            if spins { [64, 1] } else { [0, 0] }
        );
        assert_eq!([true, false].map(|idle| looks(&|idle| yield_while(idle), idle)), [3, 1]);
    }

    #[test]
    fn a_thread_that_is_bound_to_a_core_does_not_answer_for_all_others() {
        let cpus = Cpus(0.into());
        let (bound, free) = (|| 1, || 4);
        assert_eq!((cpus.get(bound), cpus.get(free)), (1, 1), "cached");
        assert_eq!((cpus.ask(free), cpus.get(bound)), (4, 4), "a queue is made");
        assert_eq!((cpus.ask(bound), cpus.ask(|| 8)), (4, 4));
    }

    #[test]
    fn a_woken_thread_is_overdue_after_a_while() {
        assert!(!overdue(Instant::now() + Duration::from_secs(3600)));
        assert!(Instant::now().checked_sub(OVERDUE).is_none_or(overdue));
    }

    /// The highest bits of a stamp are for the priority.
    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn a_stamp_grows_slowly() {
        let (begin, first) = (Instant::now(), stamp());
        std::thread::sleep(Duration::from_millis(20));
        let grown = stamp() - first;
        assert!(grown > 0 && u128::from(grown) < begin.elapsed().as_nanos() / 20, "{grown}");
    }
}
