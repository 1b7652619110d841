//! The queue's lock: a mutex that releases with a plain store.
//!
//! Most mutexes need two locked read-modify-writes, one to lock and one to unlock. Each takes about half as long as a critical section of
//! the queue, so this lock saves the second: it releases with a plain store, and looks at `has_parked` afterwards. `reports/lock.md` in the
//! repository has all states of the two flags, the argument in terms of `C11` and for each processor, and which model shows which line.
//!
//! **The price is a race.** The releasing processor may load `has_parked` before others see its store to `locked`. A thread that raises
//! `has_parked` and looks at `locked` between the two parks, and is missed by this release. So one of the parked threads always has a
//! timeout, in case no later release wakes it before. The timeout is [`TIMED_PARK`] at first, and doubles up to [`TIMED_PARK_MAX`] when it
//! expires with the flag up, because that shows that the lock was really held.
//!
//! **How a contender spins** depends on what the last looks at the lock have found. If it was mostly held, a contender stays away for some
//! microseconds before each look, so that the holder keeps the cache lines for many calls in a row. If it was mostly free, a contender
//! first looks again and again at once, but only while transfers of the cache line are fast, which each contender's first look measures.
//!
//! **One thread always wakes the next** while threads are parked: the holder, if `has_parked` is up; or a woken thread that has not taken
//! the lock yet; or the one with the timeout. A woken thread raises the flag again if others are parked, or if it has to park itself, so a
//! release wakes at most one thread.
//!
//! **The lock is not fair**, on purpose: moving a cache line from core to core takes ten times as long as a critical section, so it pays if
//! the running thread takes the lock many times in a row. But a thread that parks again, [`STARVED_AFTER`] or longer after its first park,
//! is starved. While one is parked, a release hands the lock off, once in [`HANDOFF_INTERVAL`] at most: the releasing thread takes it again
//! and sets `handoff`, and the next thread that unparks owns it.
//!
//! **There is no poison**, because the foreign code that runs under the lock, `Eq`, `Equivalent` and `Clone` of keys, leaves no broken
//! invariant if it panics. If it calls the queue, it waits for a lock of its own thread: a panic in debug builds and a deadlock in release
//! builds. With several shards two such threads can also wait for each other.

use super::{
    AtomicBool, AtomicU8, Condvar, Holder, Ordering, ParkGuard, ParkMutex, UnsafeCell, fence, model_const, now,
    parallelism, spin_hint, try_parked, unlock_check_fence, wait_timed,
};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// The first timeout of a timed park: for how long the race can delay a thread, or longer where the system's timer is coarse.
const TIMED_PARK: Duration = Duration::from_micros(250);

/// The longest timeout of a timed park. With a look each 16 ms a blocked thread costs one or two thousandths of a core. It is no longer
/// because the timed park also finds a lock that is free while the thread that was woken for it does not run.
const TIMED_PARK_MAX: Duration = Duration::from_millis(16);

/// A thread that parks again, this long or longer after it first parked for the lock, is starved.
const STARVED_AFTER: Duration = Duration::from_micros(model_const(200, 0) as u64);

/// The least time between two hand-offs. Nobody has the lock while the woken thread is on its way, which made 256 starved threads on two
/// cores three times as slow.
const HANDOFF_INTERVAL: Duration = Duration::from_micros(model_const(1000, 0) as u64);

/// Data that one thread at a time may touch.
pub(crate) struct Mutex<T> {
    locked: AtomicBool,
    /// Tells a release to wake a parked thread, and is down while one that was woken is on its way. Written under `parked` only.
    has_parked: AtomicBool,
    /// How many of the last looks found the lock held, from 0 (none) to 240 (all). A hint, like the next field, written by a thread that
    /// has looked and then taken the lock.
    heat: AtomicU8,
    /// How many of the last transfers of this cache line were fast, up to [`SURE`].
    near: AtomicU8,
    /// There are many such locks, so that each is rarely contended, and then for a short time.
    one_of_many: bool,
    parked: ParkMutex<ParkedState>,
    unpark_cv: Condvar,
    holder: Holder,
    data: UnsafeCell<T>,
}

/// The threads that are parked. A thread that unparks takes this mutex before it does anything else.
#[derive(Default)]
struct ParkedState {
    /// The number of parked threads.
    parked: u32,
    /// The timeout of the parked thread that has one.
    timed: Option<Duration>,
    /// The number of starved threads.
    starved: u32,
    /// The lock is held for the next thread that unparks.
    handoff: bool,
    /// When the last hand-off was.
    handoff_at: Option<Instant>,
}

/// How a thread spins for the lock before it parks: in each round it stays away from the lock's cache line for some spin hints, and then
/// looks once.
#[derive(Clone, Copy)]
struct SpinPolicy {
    rounds: usize,
    spins_per_round: usize,
}

/// A contender stays away for 2 to 10 microseconds before each look, depending on the processor, and parks after six looks. Longer stays
/// suit threads that do nothing but call, but make one that meets a short critical section wait longer. `reports/lock.md` says what to
/// expect on ARM, where none of this was measured.
const BACKOFF_LONG: SpinPolicy = SpinPolicy { rounds: 6, spins_per_round: 200 };
/// What a contender does before that if the lock is mostly found free and transfers are fast.
const LOOK_SOON: SpinPolicy = SpinPolicy { rounds: 24, spins_per_round: 2 };
/// From this heat on a lock counts as mostly held. Threads that do nothing but call find it held at seven looks of ten.
const HOT: u8 = 160;
/// The value of `near` when all of the last transfers were fast.
const SURE: u8 = 15;
/// The nanoseconds of a look that had to transfer the cache line: below this range the line was in the thread's own cache, above it the
/// transfer was slow.
const TRANSFER: std::ops::Range<u64> = 15..85;
/// The number of spin hints that take about as long as three readings of the clock.
const READINGS: usize = 3;
/// For locks that exist in large numbers.
const BACKOFF_SHORT: SpinPolicy = SpinPolicy { rounds: 20, spins_per_round: 8 };

// SAFETY: the data is lent to one thread at a time (L1), so it may move between threads and need not be `Sync`.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as for `Send` (L1).
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with_policy(value, false)
    }

    /// A lock of which there are many, so that it is hardly ever contended: a contender looks again sooner.
    #[cfg_attr(loom, allow(dead_code, reason = "its users have loom's mutex in the models"))]
    pub(crate) fn one_of_many(value: T) -> Self {
        Self::with_policy(value, true)
    }

    fn with_policy(value: T, one_of_many: bool) -> Self {
        Self {
            locked: AtomicBool::new(false),
            has_parked: AtomicBool::new(false),
            heat: AtomicU8::new(0),
            near: AtomicU8::new(SURE / 2),
            one_of_many,
            parked: ParkMutex::new(ParkedState::default()),
            unpark_cv: Condvar::new(),
            holder: Holder::default(),
            data: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if !self.try_acquire() {
            self.lock_contended();
        }
        MutexGuard::new(self)
    }

    /// Takes the lock if it is free.
    #[inline]
    #[cfg_attr(loom, allow(dead_code, reason = "its users have loom's mutex in the models"))]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if self.try_acquire() { Some(MutexGuard::new(self)) } else { None }
    }

    /// Takes the lock if it becomes free while this thread spins for it. Otherwise the holder takes longer than a critical section does,
    /// because the system has put it off its core, or many threads wait.
    #[cfg_attr(loom, allow(dead_code, reason = "its users have loom's mutex in the models"))]
    pub(crate) fn lock_briefly(&self) -> Option<MutexGuard<'_, T>> {
        if self.try_acquire() {
            return Some(MutexGuard::new(self));
        }
        self.holder.assert_another_thread();
        if self.spin(self.policy()) { Some(MutexGuard::new(self)) } else { None }
    }

    #[cfg_attr(loom, allow(dead_code, reason = "its user has loom's mutex in the models"))]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: `self` is borrowed mutably, so there is no guard (L1).
        self.data.with_mut(|data| unsafe { &mut *data })
    }

    /// **L1**: the thread that changes `locked` from false to true owns the lock until it stores false, or hands it off.
    #[inline]
    fn try_acquire(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn release(&self) {
        self.locked.store(false, Ordering::Release);
        unlock_check_fence();
        if self.has_parked.load(Ordering::Relaxed) {
            self.unpark_one();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        let policy = self.policy();
        self.holder.assert_another_thread();
        if self.spin(policy) {
            return;
        }
        let first_park = now();
        let (mut state, mut timeout, mut starved) = (self.parked(), TIMED_PARK, false);
        loop {
            // The flag goes up before the look, so that either the release sees the flag or this thread sees the release, but for the race.
            self.has_parked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.try_acquire() {
                break;
            }
            let expired;
            (state, expired) = self.park(state, timeout, starved);
            if std::mem::take(&mut state.handoff) {
                break;
            }
            starved = starved || first_park.elapsed() >= STARVED_AFTER;
            let really_held = expired && self.has_parked.load(Ordering::Relaxed);
            timeout = if really_held { TIMED_PARK_MAX.min(2 * timeout) } else { TIMED_PARK };
            if !expired {
                drop(state);
                let acquired = self.spin(policy);
                state = self.parked();
                if acquired {
                    break;
                }
            }
        }
        self.has_parked.store(state.parked > 0, Ordering::Relaxed);
    }

    /// Parks until woken, or until `timeout` unless another thread parks with one that is no longer. Returns whether the time is up.
    fn park<'m>(
        &'m self,
        mut state: ParkGuard<'m, ParkedState>,
        timeout: Duration,
        starved: bool,
    ) -> (ParkGuard<'m, ParkedState>, bool) {
        let timed = state.timed.is_none_or(|other| other > timeout);
        state.parked += 1;
        state.starved += u32::from(starved);
        let (mut state, expired) = if timed {
            state.timed = Some(timeout);
            wait_timed(&self.unpark_cv, &self.parked, state, timeout)
        } else {
            (self.unpark_cv.wait(state).unwrap_or_else(PoisonError::into_inner), false)
        };
        state.parked -= 1;
        state.starved -= u32::from(starved);
        if timed && state.timed == Some(timeout) {
            state.timed = None;
        }
        (state, expired)
    }

    fn policy(&self) -> SpinPolicy {
        if self.one_of_many { BACKOFF_SHORT } else { BACKOFF_LONG }
    }

    /// Spins for the lock. Returns whether this thread has taken it.
    fn spin(&self, policy: SpinPolicy) -> bool {
        if parallelism() == 1 || self.one_of_many || cfg!(loom) {
            let rounds = if parallelism() > 1 { policy.rounds } else { model_const(0, 1) };
            return (0..rounds).any(|_| self.look(policy));
        }
        // Relaxed, here and below: hints.
        let (heat, near) = (self.heat.load(Ordering::Relaxed), self.near.load(Ordering::Relaxed));
        let soon = (heat < HOT && near > SURE / 2).then_some(LOOK_SOON);
        spin_hint(soon.unwrap_or(policy).spins_per_round.saturating_sub(READINGS));
        let (is_held, transfer) = self.time_look();
        let mut held = 0;
        let mut note = |taken: bool| {
            held += u32::from(!taken);
            taken
        };
        let taken = note(!is_held && self.try_acquire())
            || soon.into_iter().chain([policy]).any(|policy| (0..policy.rounds).any(|_| note(self.look(policy))));
        if taken {
            self.heat.store(heat_after(heat, held), Ordering::Relaxed);
            if transfer >= TRANSFER.start {
                let after = if transfer < TRANSFER.end { SURE.min(near + 1) } else { near.saturating_sub(1) };
                self.near.store(after, Ordering::Relaxed);
            }
        }
        taken
    }

    /// Stays away for a while, and then looks once. Returns whether this thread has taken the lock.
    fn look(&self, policy: SpinPolicy) -> bool {
        spin_hint(policy.spins_per_round);
        !self.locked.load(Ordering::Relaxed) && self.try_acquire()
    }

    /// Whether the lock is held, and for how many nanoseconds the cache line was on its way, without the time of reading the clock.
    fn time_look(&self) -> (bool, u64) {
        let begin = now();
        let before = now();
        let is_held = self.locked.load(Ordering::Relaxed);
        let took = now() - before;
        (is_held, took.saturating_sub(before - begin).as_nanos() as u64)
    }

    /// Wakes a parked thread. It does not wait for the list of parked threads, because the system may have stopped the thread that has it
    /// (P21). If that thread thereby misses this release, its timeout ends its park.
    #[cold]
    fn unpark_one(&self) {
        let Some(mut state) = try_parked(&self.parked) else { return };
        self.has_parked.store(false, Ordering::Relaxed);
        if state.parked > 0 {
            // The woken thread takes `parked` first, and then sees `handoff`.
            let may_hand_off = state.starved > 0 && state.handoff_at.is_none_or(|at| at.elapsed() >= HANDOFF_INTERVAL);
            if !state.handoff && may_hand_off && self.try_acquire() {
                (state.handoff, state.handoff_at) = (true, Some(now()));
            }
            drop(state);
            self.unpark_cv.notify_one();
        }
    }

    /// Calls `f` at the point where a thread that is about to park might be stopped.
    #[cfg(any(test, loom))]
    pub(crate) fn about_to_park(&self, f: impl FnOnce()) {
        let _parked = self.parked();
        self.has_parked.store(true, Ordering::Relaxed);
        f();
    }

    fn parked(&self) -> ParkGuard<'_, ParkedState> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The heat after `held` looks that found the lock held, and one that found it free: a mean in which each look counts a sixteenth. Held
/// looks count as six at most, because a longer row of them is one holder that takes long.
fn heat_after(heat: u8, held: u32) -> u8 {
    let hotter = (0..held.min(6)).fold(heat, |heat, _| heat + ((240 - heat) >> 4));
    hotter - (hotter >> 4)
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("Mutex");
        if self.try_acquire() { debug.field(&*MutexGuard::new(self)) } else { debug.field(&format_args!("<held>")) }
            .finish()
    }
}

/// The lock, until it is dropped. It stays on its thread (it is not `Send`), and lends the data to no other thread (it is not `Sync`).
pub(crate) struct MutexGuard<'m, T> {
    lock: &'m Mutex<T>,
    _stays: PhantomData<*mut T>,
}

impl<'m, T> MutexGuard<'m, T> {
    /// The caller has just taken `lock`.
    #[inline]
    fn new(lock: &'m Mutex<T>) -> Self {
        lock.holder.set();
        Self { lock, _stays: PhantomData }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard owns the lock (L1), and its borrow keeps `deref_mut` away.
        self.lock.data.with(|data| unsafe { &*data })
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard owns the lock (L1), and is itself borrowed mutably.
        self.lock.data.with_mut(|data| unsafe { &mut *data })
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.holder.clear();
        self.lock.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::sync::cpu_time;
    use std::sync::Barrier;

    /// A thread was stopped while it had the list of parked threads (P21). The others take and release the lock as before.
    #[test]
    fn a_release_does_not_wait_for_a_thread_that_is_about_to_park() {
        let lock = Mutex::new(0);
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let mut released = None;
            lock.about_to_park(|| {
                scope.spawn(|| {
                    (0..3).for_each(|_| *lock.lock() += 1);
                    done.send(()).unwrap();
                });
                released = is_done.recv_timeout(Duration::from_secs(20)).ok();
            });
            assert_eq!((released, *lock.lock()), (Some(()), 3));
        });
    }

    /// Far more threads than processors; each sometimes leaves its core while it holds the lock.
    #[test]
    fn many_threads_one_lock() {
        [Mutex::new((0, 0)), Mutex::one_of_many((0, 0))].iter().for_each(many_threads);
    }

    fn many_threads(lock: &Mutex<(usize, usize)>) {
        const THREADS: usize = if cfg!(miri) { 8 } else { 64 };
        const TIMES: usize = if cfg!(miri) { 20 } else { 500 };
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for n in 0..TIMES {
                        let mut pair = lock.lock();
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
        assert_eq!(lock.parked().parked, 0);
    }

    /// Two threads that only take and release the lock do not starve a third.
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

    /// A blocked thread spins only at first, and then checks the lock less and less often. (One check a millisecond took 3 % of a core,
    /// and 6 % with a spin at each check.) The host of a virtual machine may take the core away while the thread has it, and the system
    /// counts that as time of the thread: a thread that burns the CPU does so in each of five rounds.
    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "there is no processor time there")]
    fn a_thread_that_is_blocked_for_long_does_not_burn_the_cpu() {
        let burns = (0..5).all(|_| {
            let (blocked, ran) = block_for_half_a_second();
            println!("blocked for {blocked:?}, ran for {ran:?}");
            assert!(blocked >= Duration::from_millis(400), "not blocked");
            ran >= blocked / 50
        });
        assert!(!burns, "a blocked thread ran for a fiftieth of the time or longer, in each round");
    }

    /// How long a thread was blocked, and how long it ran meanwhile.
    #[cfg(target_os = "linux")]
    fn block_for_half_a_second() -> (Duration, Duration) {
        let lock = Mutex::new(());
        let held = Barrier::new(2);
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| {
                held.wait();
                let (start, ran) = (std::time::Instant::now(), cpu_time());
                drop(lock.lock());
                (start.elapsed(), cpu_time() - ran)
            });
            let guard = lock.lock();
            held.wait();
            std::thread::sleep(Duration::from_millis(500));
            drop(guard);
            blocked.join().unwrap()
        })
    }

    /// A thread that is parked misses a release, as the list of parked threads was in use just then. Its timed park finds the lock free, and
    /// soon: the best of ten times counts, because a busy machine may let a thread wait for its core for many milliseconds.
    #[test]
    fn a_release_that_wakes_nobody_is_found_soon() {
        let late = || {
            let lock = Mutex::new(());
            std::thread::scope(|scope| {
                let guard = lock.lock();
                let parked = scope.spawn(|| {
                    drop(lock.lock());
                    std::time::Instant::now()
                });
                while lock.parked().parked == 0 {
                    std::thread::yield_now();
                }
                lock.about_to_park(|| drop(guard));
                let released = std::time::Instant::now();
                parked.join().unwrap().saturating_duration_since(released)
            })
        };
        let late: Vec<_> = (0..10).map(|_| late()).take_while(|late| *late > Duration::from_millis(50)).collect();
        assert!(late.len() < 10, "late by {late:?} each time");
    }

    /// If one parked thread has backed off, another that parks does not wait longer for that.
    #[test]
    fn a_shorter_timed_park_replaces_a_longer_one() {
        let lock = Mutex::new(());
        let long = lock.parked();
        let (long, expired) = lock.park(long, 2 * TIMED_PARK, false);
        assert!(expired && long.timed.is_none());
        let mut state = long;
        state.timed = Some(2 * TIMED_PARK); // as if another thread parked
        let (mut state, expired) = lock.park(state, TIMED_PARK, true);
        assert!(expired, "this thread parks with a timeout of its own");
        assert_eq!((state.timed, state.parked, state.starved), (None, 0, 0));
        state.timed = Some(TIMED_PARK);
        drop(state);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.park(lock.parked(), TIMED_PARK, true).1);
            while lock.parked().parked == 0 {
                std::thread::yield_now();
            }
            assert_eq!(lock.parked().starved, 1);
            lock.unpark_cv.notify_one();
            assert!(!other.join().unwrap(), "another thread has the timeout: this one parks without");
        });
        assert_eq!(lock.parked().timed, Some(TIMED_PARK), "the other thread's");
    }

    /// A release hands the lock off to a starved thread, once in a while.
    #[test]
    fn a_lock_is_handed_off_to_the_starved_alone() {
        let (long_ago, later) = (now().checked_sub(Duration::from_secs(1)), Some(now() + Duration::from_secs(3600)));
        for (starved, handoff, handoff_at, taken) in [
            (0, false, None, false),
            (1, false, None, true),
            (1, false, long_ago, true),
            (1, false, later, false),
            (1, true, long_ago, false), // the thread that unparks next owns it already
        ] {
            let lock = Mutex::new(());
            *lock.parked() = ParkedState { parked: 1, starved, handoff, handoff_at, timed: None };
            lock.has_parked.store(true, Ordering::Relaxed);
            lock.unpark_one();
            assert!(!lock.has_parked.load(Ordering::Relaxed), "the next release would wake another thread");
            assert_eq!(
                (lock.locked.load(Ordering::Relaxed), lock.parked().handoff),
                (taken, taken || handoff),
                "{starved} {handoff}"
            );
        }
    }

    /// A thread that is parked for long is starved. It looks every 16 ms in the end, and often again after it was woken.
    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn a_thread_that_is_parked_for_long_looks_less_and_less_often() {
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let (_guard, start) = (lock.lock(), std::time::Instant::now());
            scope.spawn(|| drop(lock.lock()));
            let wait_for = |is_so: &dyn Fn(&ParkedState) -> bool| {
                while !is_so(&lock.parked()) {
                    assert!(start.elapsed() < Duration::from_secs(30));
                    std::thread::yield_now();
                }
            };
            wait_for(&|state| state.timed == Some(TIMED_PARK_MAX));
            assert_eq!(lock.parked().starved, 1);
            std::thread::sleep(3 * TIMED_PARK_MAX);
            wait_for(&|state| state.parked == 1);
            assert_eq!(lock.parked().timed, Some(TIMED_PARK_MAX));
            wait_for(&|state| {
                lock.unpark_cv.notify_one();
                state.timed.is_some_and(|timed| timed < TIMED_PARK_MAX)
            });
        });
    }

    #[test]
    fn a_spin_takes_a_lock_that_is_free() {
        let lock = Mutex::new(());
        assert_eq!(lock.spin(BACKOFF_SHORT), parallelism() > 1);
        lock.locked.store(true, Ordering::Relaxed);
        assert!(!lock.spin(BACKOFF_SHORT));
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

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a thread took a lock that it holds")]
    fn taking_it_twice_panics_in_a_debug_build() {
        let lock = Mutex::new(1);
        let _guard = lock.lock();
        drop(lock.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a thread took a lock that it holds")]
    fn waiting_briefly_for_it_twice_panics_in_a_debug_build() {
        let lock = Mutex::new(1);
        let _guard = lock.lock();
        drop(lock.lock_briefly());
    }
}
