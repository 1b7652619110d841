//! What `src/sync/lock.rs` imports from its parent: as in `src/sync/std.rs`, but for the flag, whose release can be another step.

pub(crate) use std::sync::atomic::{Ordering, compiler_fence, fence};
pub(crate) use std::sync::{Condvar, Mutex as ParkMutex, MutexGuard as ParkGuard};

use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub(crate) const STORE: u8 = 0;
pub(crate) const SWAP: u8 = 1;
pub(crate) const EXCHANGE: u8 = 2;

/// An `AtomicBool` whose store with `Release`, which releases the lock, is what `HOW` says.
pub(crate) struct Flag<const HOW: u8>(AtomicBool);

impl<const HOW: u8> Flag<HOW> {
    pub(crate) const fn new(value: bool) -> Self {
        Self(AtomicBool::new(value))
    }

    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order)
    }

    #[inline(always)]
    pub(crate) fn store(&self, value: bool, order: Ordering) {
        match (HOW, order) {
            (SWAP, Ordering::Release) => _ = self.0.swap(value, order),
            (EXCHANGE, Ordering::Release) => {
                _ = self.0.compare_exchange(!value, value, order, Ordering::Relaxed);
            }
            _ => self.0.store(value, order),
        }
    }

    #[inline(always)]
    pub(crate) fn compare_exchange(&self, from: bool, to: bool, yes: Ordering, no: Ordering) -> Result<bool, bool> {
        self.0.compare_exchange(from, to, yes, no)
    }
}

/// As in a release build: it checks nothing.
#[derive(Default)]
pub(crate) struct Holder();

impl Holder {
    #[inline(always)]
    pub(crate) fn set(&self) {}

    #[inline(always)]
    pub(crate) fn clear(&self) {}

    #[inline(always)]
    pub(crate) fn assert_another_thread(&self) {}
}

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

pub(crate) const fn model_const(real: usize, _under_loom: usize) -> usize {
    real
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn parallelism() -> usize {
    static CPUS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

pub(crate) fn spin_hint(times: usize) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

pub(crate) fn wait_timed<'m, T>(
    condvar: &Condvar,
    _mutex: &'m ParkMutex<T>,
    guard: ParkGuard<'m, T>,
    timeout: Duration,
) -> (ParkGuard<'m, T>, bool) {
    let (guard, result) = condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}
