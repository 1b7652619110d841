//! Code that the models in `tests/` share.

#[cfg(not(loom))]
compile_error!(
    "these are loom models and need `--cfg loom`: run `ci/loom.sh`; or `cargo test` inside `loom-tests/` with RUSTFLAGS \
     unset (a RUSTFLAGS of the environment replaces the one in .cargo/config.toml) or with RUSTFLAGS=\"--cfg loom\""
);

#[cfg(loom)]
pub use self::model::{Tally, check, check_full, check_panics, check_with, fail, manual, ns, pairs, rest, with};

#[cfg(loom)]
mod model {
    use keyqueue::{Clock, DelayedKey, Driver, MockClock, WorkQueue, WorkQueueBuilder};
    use loom::thread::{self, JoinHandle};
    use std::cell::Cell;
    use std::hash::Hash;
    use std::ops::RangeInclusive;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Once};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    thread_local! {
        /// All other panics.
        static PANICS: Cell<usize> = const { Cell::new(0) };
        /// The panics that the model itself has made in the present order of steps.
        static FAILS: Cell<usize> = const { Cell::new(0) };
        /// The model expects loom to refuse one more thread, which is a panic and counts in `FAILS`.
        static FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// Panics in a model that [expects](check_panics) it, and prints nothing.
    pub fn fail() -> ! {
        FAILS.set(FAILS.get() + 1);
        resume_unwind(Box::new("as planned"))
    }

    /// Counts every panic, even if the driver thread or a worker loop catches it, because any unexpected panic fails the model.
    fn count_panics() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if FULL.get() && info.to_string().contains("self.threads.len() < self.max()") {
                    return FAILS.set(FAILS.get() + 1);
                }
                print(info);
                PANICS.set(PANICS.get() + 1);
                if PANICS.get() == 10 {
                    eprintln!("ten panics, each caught: the model would never end");
                    std::process::abort();
                }
            }));
        });
        PANICS.set(0);
    }

    /// The real clock counts from its first read. That read must not be in the first order of a model, which would then differ
    /// from the others.
    fn start_clock() {
        loom::model(|| {
            let queue = keyqueue::WorkQueue::builder().driver(keyqueue::Driver::Manual).build();
            queue.add_after(0_u64, Duration::MAX);
        });
    }

    /// Runs a model in every order of steps that at most LOOM_MAX_PREEMPTIONS (2 unless set) preemptions can make.
    ///
    /// Prints the number of orders; `-- --nocapture` shows it.
    pub fn check(model: impl Fn() + Send + Sync + 'static) {
        check_with(|_| {}, model);
    }

    /// As [`check`], of a model that must [`fail`] this number of times in each order.
    pub fn check_panics(times: RangeInclusive<usize>, model: impl Fn() + Send + Sync + 'static) {
        check(move || {
            model();
            let failed = FAILS.replace(0);
            assert!(times.contains(&failed), "panicked {failed} times, not {times:?}");
        });
    }

    /// As [`check`], with other limits for loom.
    pub fn check_with(limit: impl FnOnce(&mut loom::model::Builder), model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        // A search that ends early would pass, too.
        builder.max_duration = None;
        builder.max_permutations = None;
        limit(&mut builder);
        let orders = Arc::new(AtomicUsize::new(0));
        let start = std::time::Instant::now();
        count_panics();
        FAILS.set(0);
        start_clock();
        builder.check({
            let orders = Arc::clone(&orders);
            move || {
                assert_eq!(PANICS.get(), 0, "something panicked, and was caught");
                orders.fetch_add(1, Ordering::Relaxed);
                keyqueue::restart_clock();
                model();
            }
        });
        assert_eq!((PANICS.get(), FAILS.get()), (0, 0), "something panicked, and was caught");
        let name = std::thread::current().name().unwrap_or("model").to_owned();
        println!("{name}: {} orders, {:.1?}", orders.load(Ordering::Relaxed), start.elapsed());
    }

    /// As [`check`], of a model that may have `threads` threads, and tries to start one more.
    ///
    /// Loom panics then, and a mutex that is unlocked while a thread unwinds is poisoned, unless it was locked while unwinding,
    /// too. So the whole model runs while unwinding.
    pub fn check_full(threads: usize, model: impl Fn() + Send + Sync + 'static) {
        struct Unwinding<'m>(&'m dyn Fn());
        impl Drop for Unwinding<'_> {
            fn drop(&mut self) {
                (self.0)();
            }
        }
        FULL.set(true);
        check_with(
            |limits| limits.max_threads = threads,
            move || {
                let unwind = catch_unwind(AssertUnwindSafe(|| {
                    let _model = Unwinding(&model);
                    resume_unwind(Box::new(()));
                }));
                assert!(unwind.is_err());
                assert_eq!(FAILS.replace(0), 1, "loom did not refuse the thread");
            },
        );
        FULL.set(false);
    }

    pub const fn ns(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    /// Calls `run` in a new thread, with a clone of the handle.
    pub fn with<T: Clone + 'static, R: 'static>(handle: &T, run: impl FnOnce(&T) -> R + 'static) -> JoinHandle<R> {
        let handle = handle.clone();
        thread::spawn(move || run(&handle))
    }

    /// The settings of a queue without a driver, which expires delays when a thread calls `turn`; and its clock.
    pub fn manual<K: Hash + Eq + Clone + Send + Sync + 'static>() -> (WorkQueueBuilder<K>, MockClock) {
        let (clock, time) = Clock::mock();
        (WorkQueue::builder().clock(clock).driver(Driver::Manual), time)
    }

    /// The keys, and the times that were left.
    pub fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
        delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
    }

    /// Takes all queued keys, in order.
    pub fn rest<K: Clone>(queue: &WorkQueue<K>) -> Vec<K> {
        std::iter::from_fn(|| queue.try_get().ok().map(|item| item.key().clone())).collect()
    }

    /// A waker that counts its wake-ups. The counter is no loom type, so a model may read it only after it has joined the thread
    /// that wakes.
    #[derive(Debug, Default)]
    pub struct Tally(AtomicUsize);

    impl Tally {
        pub fn new() -> (Arc<Self>, Waker) {
            let tally = Arc::new(Self::default());
            (Arc::clone(&tally), Waker::from(tally))
        }

        pub fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Tally {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}
