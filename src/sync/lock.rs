//! The queue's lock.
//!
//! ```text
//! held ── false→true ──► mine ── store(false) ──► free        two words, side by side:
//!   │ no                            │ call?                    held: somebody has the lock
//!   └─► spin ─► bed (call := true)  └─► wake one               call: whoever releases it wakes one sleeper
//! ```
//!
//! A critical section of the queue takes some ten nanoseconds, and on the machines it was measured on a locked instruction takes
//! five. Most locks need two of them, one to take and one to release. This one releases with a plain store and looks afterwards
//! whether somebody is to be woken: add + get + done of one thread, three critical sections, takes two thirds of the time that it
//! takes under `parking_lot`'s mutex (`BENCHMARKS.md`, "Designs").
//!
//! **The price is a race.** The releasing processor may read `call` before others can see its store to `held`. A thread that goes to
//! bed in that very moment sees the lock held, and is not seen. So of those in bed one watches: it sleeps for [`WATCH`] at most,
//! and looks again. Any later release wakes it sooner. (Besides, it finds a lock that is free while who was woken waits for a core.)
//! The models of `loom-tests/` have both: the race and a watch that ends at any time; and, to see that wake-ups alone suffice
//! but for the race, a watch that never ends and a fence in place of the race.
//!
//! **Who wakes whom.** While somebody sleeps, somebody sees to it that the next is woken: a sleeper that watches, or one that has
//! been woken and is on its way, or who has the lock and has raised `call` itself. On its way a thread takes the lock and raises
//! `call` if others sleep, or goes back to bed and watches, if nobody does. So one release wakes one thread, and of the others that
//! sleep only the one that watches ever runs.
//!
//! **Not fair**, on purpose: a line of the cache that moves from core to core costs a hundred nanoseconds, so it pays if the thread
//! that runs gets the lock many times in a row. But a thread that was woken for nothing [`TRIPS`] times is late, and while one that is
//! late sleeps, who releases takes the lock again and *gives* it to the next that gets up.
//!
//! It is not poisoned by a panic: the foreign code that runs under it, `Eq` and `Clone` of keys, finds nothing half done.

use super::{AtomicBool, Bed, BedGuard, Condvar, Ordering, UnsafeCell, fence, parallelism, pause, race, sized, watch};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

/// How long the one that watches sleeps, if nobody wakes it. (Longer where the system's timer is coarse.)
const WATCH: Duration = Duration::from_millis(1);

/// How often a thread goes back to bed before it is late.
const TRIPS: usize = sized(8, 1);

/// Data that one thread at a time may touch.
pub(crate) struct Mutex<T> {
    held: AtomicBool,
    /// Written under `beds` only; read by who has just released the lock.
    call: AtomicBool,
    beds: Bed<Beds>,
    morning: Condvar,
    data: UnsafeCell<T>,
}

#[derive(Default)]
struct Beds {
    asleep: usize,
    /// One of them sleeps no longer than [`WATCH`].
    watched: bool,
    /// So many of them are late.
    late: usize,
    /// The lock is taken, and belongs to the first that gets up.
    given: bool,
}

/// How a thread waits for a lock before it goes to bed: so many looks, with so many pauses before each.
#[derive(Clone, Copy)]
struct Patience {
    looks: usize,
    pauses: usize,
}

/// A contender stays away for some microseconds before it looks again (2 to 10, as long as a pause takes), and goes to bed after six
/// looks.
const LONG: Patience = Patience { looks: 6, pauses: 200 };
/// For locks of which there are many.
#[cfg_attr(loom, allow(dead_code, reason = "as its user"))]
const SHORT: Patience = Patience { looks: 20, pauses: 8 };

// SAFETY: the data is lent to one thread at a time (L1), so it need not be `Sync`; it may move from one to the other.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            call: AtomicBool::new(false),
            beds: Bed::new(Beds::default()),
            morning: Condvar::new(),
            data: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if !self.take() {
            self.wait(LONG);
        }
        MutexGuard::new(self)
    }

    /// For a lock of which there are many, so that it is hardly ever contended: looks again soon.
    #[inline]
    #[cfg_attr(loom, allow(dead_code, reason = "the other models have loom's mutex"))]
    pub(crate) fn lock_soon(&self) -> MutexGuard<'_, T> {
        if !self.take() {
            self.wait(SHORT);
        }
        MutexGuard::new(self)
    }

    #[cfg_attr(loom, allow(dead_code, reason = "as above"))]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: `self` is borrowed mutably, so there is no guard.
        self.data.with_mut(|data| unsafe { &mut *data })
    }

    /// **L1**: who changes `held` from false to true has the lock until it stores false, or gives it away.
    #[inline]
    fn take(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn release(&self) {
        self.held.store(false, Ordering::Release);
        race();
        if self.call.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wait(&self, patience: Patience) {
        if self.spin(patience) {
            return;
        }
        let mut beds = self.beds();
        for trip in 0.. {
            self.call.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst); // Raised before the lock is looked at: but for the race, one of the two sees the other.
            if self.take() {
                break;
            }
            beds = self.sleep(beds, trip >= TRIPS);
            if std::mem::take(&mut beds.given) {
                break;
            }
            drop(beds);
            let mine = self.spin(patience);
            beds = self.beds();
            if mine {
                break;
            }
        }
        self.call.store(beds.asleep > 0, Ordering::Relaxed);
    }

    fn sleep<'m>(&'m self, mut beds: BedGuard<'m, Beds>, late: bool) -> BedGuard<'m, Beds> {
        let watches = !beds.watched;
        beds.watched = true;
        beds.asleep += 1;
        beds.late += usize::from(late);
        let mut beds = if watches {
            watch(&self.morning, &self.beds, beds, WATCH)
        } else {
            self.morning.wait(beds).unwrap_or_else(PoisonError::into_inner)
        };
        beds.asleep -= 1;
        beds.late -= usize::from(late);
        beds.watched &= !watches;
        beds
    }

    /// `true`: has the lock.
    fn spin(&self, patience: Patience) -> bool {
        let looks = if parallelism() > 1 { patience.looks } else { sized(0, 1) };
        (0..looks).any(|_| {
            pause(patience.pauses);
            !self.held.load(Ordering::Relaxed) && self.take()
        })
    }

    #[cold]
    fn wake(&self) {
        let mut beds = self.beds();
        self.call.store(false, Ordering::Relaxed);
        if beds.asleep > 0 {
            // Whoever sleeps takes `beds` before anything else, and finds it.
            beds.given = beds.given || beds.late > 0 && self.take();
            drop(beds);
            self.morning.notify_one();
        }
    }

    fn beds(&self) -> BedGuard<'_, Beds> {
        self.beds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("Mutex");
        if self.take() { debug.field(&*MutexGuard::new(self)) } else { debug.field(&format_args!("<held>")) }.finish()
    }
}

/// The lock, until it is dropped. It stays on its thread, and lends the data to no other.
pub(crate) struct MutexGuard<'m, T> {
    lock: &'m Mutex<T>,
    _stays: PhantomData<*mut T>,
}

impl<'m, T> MutexGuard<'m, T> {
    /// The caller has just taken `lock`.
    #[inline]
    fn new(lock: &'m Mutex<T>) -> Self {
        Self { lock, _stays: PhantomData }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock (L1), and its borrow keeps `deref_mut` away.
        self.lock.data.with(|data| unsafe { &*data })
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has the lock (L1), and is itself borrowed mutably.
        self.lock.data.with_mut(|data| unsafe { &mut *data })
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Far more threads than processors, each of which leaves its core while it has the lock, now and then.
    #[test]
    fn many_threads_one_lock() {
        const THREADS: usize = 64;
        const TIMES: usize = 500;
        let lock = Mutex::new((0, 0));
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (lock, start) = (&lock, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..TIMES {
                        let mut pair = if n % 2 == 0 { lock.lock() } else { lock.lock_soon() };
                        pair.0 += 1;
                        if (thread + n) % 100 == 0 {
                            std::thread::yield_now();
                        }
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (THREADS * TIMES, THREADS * TIMES));
        assert_eq!(lock.beds().asleep, 0);
    }

    /// Two that do nothing but take it do not keep a third away for ever.
    #[test]
    fn a_third_thread_gets_it() {
        let lock = Mutex::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| while !*lock.lock() {});
            }
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
                drop(lock.lock());
            }
            *lock.lock() = true;
        });
    }

    #[test]
    fn a_panic_releases_it() {
        let lock = Mutex::new(1);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
        assert_eq!(format!("{lock:?}"), "Mutex(1)");
        let guard = lock.lock();
        assert_eq!(format!("{lock:?}"), "Mutex(<held>)");
        drop(guard);
    }
}
