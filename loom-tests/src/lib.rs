//! What the models in `tests/` share.

#[cfg(not(loom))]
compile_error!(
    "these are loom models and need `--cfg loom`: run `cargo test` inside `loom-tests/` with RUSTFLAGS unset (a RUSTFLAGS \
     of the environment replaces the one in .cargo/config.toml), or RUSTFLAGS=\"--cfg loom\", or `ci/loom.sh`"
);

#[cfg(loom)]
pub use self::model::{Tally, check};

#[cfg(loom)]
mod model {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// Runs a model in every order that at most LOOM_MAX_PREEMPTIONS (2 unless set) preemptions can make.
    ///
    /// Says how many orders there were; `-- --nocapture` shows it.
    pub fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        // A search that ends early would say "ok" all the same.
        builder.max_duration = None;
        builder.max_permutations = None;
        let orders = Arc::new(AtomicUsize::new(0));
        let start = std::time::Instant::now();
        builder.check({
            let orders = Arc::clone(&orders);
            move || {
                orders.fetch_add(1, Ordering::Relaxed);
                model();
            }
        });
        let name = std::thread::current().name().unwrap_or("model").to_owned();
        println!("{name}: {} orders, {:.1?}", orders.load(Ordering::Relaxed), start.elapsed());
    }

    /// A waker that counts. Not a loom type: only wake-ups that the model already ordered are read from it.
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
