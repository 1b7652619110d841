//! The part of loom's interface that keyqueue uses, made of shuttle. Loom searches all orders of a few steps; shuttle runs many steps in
//! some random orders. Shuttle takes every atomic operation as sequentially consistent, so orderings are for loom to check.

pub mod sync {
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub mod atomic {
        pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
    }
}

pub mod cell {
    /// Loom's cell, without its check of accesses.
    #[derive(Debug)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

pub mod thread {
    pub use shuttle::thread::{Builder, JoinHandle, current, yield_now};
}
