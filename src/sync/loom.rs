//! The implementation for the models, with loom.
//!
//! It leaves out what loom does not have. Without time, a deadline has passed when a thread parks, or is never reached; and spinning would
//! only explore the same interleavings as parking.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::Arc;
#[cfg(feature = "lock-free")]
pub(crate) use loom::sync::atomic::AtomicPtr;
pub(crate) use loom::sync::atomic::fence;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};

pub(crate) use loom::sync::MutexGuard;
pub(super) use loom::sync::{Condvar, Mutex as ParkMutex, MutexGuard as ParkGuard};
pub(crate) use loom::thread::{JoinHandle, current as current_thread};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Loom's mutex. With that of [`super::lock`], which has models of its own, each model would explore the steps of the lock again.
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn one_of_many(value: T) -> Self {
        Self::new(value)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits like [`lock`](Self::lock), unless the model [says](find_busy) that the lock is held.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.lock_briefly()
    }

    /// The same.
    pub(crate) fn lock_briefly(&self) -> Option<MutexGuard<'_, T>> {
        let left = BUSY_LOOKS.get();
        BUSY_LOOKS.set(left.saturating_sub(1));
        (left == 0).then(|| self.lock())
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A mutex and a condvar instead of `loom::thread::park`, because an `unpark` at the same time as a `join` fails an assertion inside loom
/// 0.7.
#[derive(Debug)]
pub(crate) struct Parker(Unparker);

#[derive(Debug, Clone)]
pub(crate) struct Unparker(Arc<(loom::sync::Mutex<bool>, Condvar)>);

pub(crate) fn with_parker<R>(f: impl FnOnce(&Parker) -> R) -> R {
    f(&Parker::new())
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self(Unparker(Arc::new((loom::sync::Mutex::new(false), Condvar::new()))))
    }

    pub(crate) fn unparker(&self) -> Unparker {
        self.0.clone()
    }

    /// Returns at once if the deadline is in the past, whether there is a token or not, and ignores a deadline in the future.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return;
        }
        let (token, condvar) = &*self.0.0;
        let mut token = token.lock().unwrap();
        while !*token {
            token = condvar.wait(token).unwrap();
        }
        *token = false;
    }
}

/// Lets other threads go on, because that is how time passes here.
pub(crate) fn park_briefly(_: &Parker, _: Instant) {
    loom::thread::yield_now();
}

impl Unparker {
    pub(crate) fn unpark(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }
}

/// A strong reference, because loom's `Arc` has no weak ones. A model with a driver thread ends it by a shut-down.
pub(crate) struct Weak<T>(Arc<T>);

impl<T> Weak<T> {
    pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
        Some(Arc::clone(&self.0))
    }
}

pub(crate) fn downgrade<T>(arc: &Arc<T>) -> Weak<T> {
    Weak(Arc::clone(arc))
}

std::thread_local!(static REFUSES_THREADS: Cell<bool> = const { Cell::new(false) });

pub(crate) fn refuse_threads(refuse: bool) {
    REFUSES_THREADS.set(refuse);
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    if REFUSES_THREADS.get() {
        return Err(std::io::ErrorKind::WouldBlock.into());
    }
    loom::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Always `false`, because a model's threads are coroutines of one thread, and all would seem to unwind when one does.
pub(crate) fn panicking() -> bool {
    false
}

pub(crate) fn spin_while(_idle: impl Fn() -> bool) {}

pub(crate) fn yield_while(_idle: impl Fn() -> bool) {}

std::thread_local!(static LOOKS: Cell<u64> = const { Cell::new(0) });

/// Advances by one microsecond per call, so that a model does the same whenever its threads take the same steps. It is always in the past,
/// so that a deadline computed from it has passed when a thread parks.
pub(crate) fn now() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    let base = *BASE.get_or_init(|| Instant::now().checked_sub(Duration::from_secs(1)).expect("up for a second"));
    LOOKS.set(LOOKS.get() + 1);
    base + Duration::from_micros(LOOKS.get())
}

/// Called when a model begins the next interleaving.
pub(crate) fn restart_clock() {
    LOOKS.set(0);
    BUSY_LOOKS.set(0);
}

std::thread_local!(static BUSY_LOOKS: Cell<usize> = const { Cell::new(0) });

/// This many next calls of `try_lock` and `lock_briefly` find the lock held.
pub(crate) fn find_busy(looks: usize) {
    BUSY_LOOKS.set(looks);
}

/// Grows with each call.
pub(crate) fn stamp() -> u64 {
    LOOKS.set(LOOKS.get() + 1);
    LOOKS.get()
}

pub(crate) fn parallelism() -> usize {
    1
}

pub(crate) fn note_parallelism() {}

std::thread_local!(static TIME_PASSES: Cell<bool> = const { Cell::new(false) });

/// Sets whether time passes from now on, so that timed parks expire at once, and a release of the lock may be seen late.
pub(crate) fn let_time_pass(passes: bool) {
    TIME_PASSES.set(passes);
}

pub(crate) fn give_way() {}

/// If time passes, every woken thread is overdue, as it may be in reality at any moment. Otherwise none is.
pub(crate) fn overdue(_woken_at: Instant) -> bool {
    TIME_PASSES.get()
}

/// For links in the docs.
#[allow(dead_code)]
pub(crate) const OVERDUE: Duration = Duration::ZERO;

/// Called between the store that releases the lock and the load of `has_parked`. If time passes, the load may come first. Otherwise this is
/// a full fence.
pub(super) fn unlock_check_fence() {
    if !TIME_PASSES.get() {
        fence(Ordering::SeqCst);
    }
}

/// The list of parked threads, unless another thread has it. Without time this waits, because no park expires that would make up for a
/// missed release.
pub(super) fn try_parked<T>(parked: &ParkMutex<T>) -> Option<ParkGuard<'_, T>> {
    if TIME_PASSES.get() { parked.try_lock().ok() } else { parked.lock().ok() }
}

/// If time passes, expires before any notification, and otherwise never. Returns whether it has expired.
pub(super) fn wait_timed<'m, T>(
    condvar: &Condvar,
    mutex: &'m ParkMutex<T>,
    guard: ParkGuard<'m, T>,
    _timeout: Duration,
) -> (ParkGuard<'m, T>, bool) {
    if TIME_PASSES.get() {
        drop(guard);
        loom::thread::yield_now();
        (mutex.lock().unwrap(), true)
    } else {
        (condvar.wait(guard).unwrap(), false)
    }
}

pub(super) fn spin_hint(_times: usize) {}

/// Does nothing, because a model's threads are coroutines of one thread, which the check of debug builds could not distinguish.
#[derive(Default)]
pub(super) struct Holder;

impl Holder {
    pub(super) fn set(&self) {}

    pub(super) fn clear(&self) {}

    pub(super) fn assert_another_thread(&self) {}
}
