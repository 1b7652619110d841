//! Which public types may cross threads, be moved while pinned, and be used after a panic. A change to any of these is a
//! change to the API, so it must show here first.
//!
//! Checked by the compiler; the tests do nothing when they run.

use keyqueue::observe::{Histogram, Metrics, Observer, Reporter};
use keyqueue::rate_limiter::{
    Bucket, DedupingBucket, Exponential, FastSlow, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter,
    Reservation, Step, StepTable, TryAcquireError, WithMaxWait,
};
use keyqueue::{
    Added, Clock, DrainTimeoutError, GetAsync, GetTimeoutError, GivenUp, InvalidArgument, Item, Leftover, MockClock,
    OnPanic, Outcome, OwnedItem, ProcessingKey, ShutDownWithDrain, Stats, Tally, TryGetError, UntilDirty,
    UntilShuttingDown, WaitIdle, WaitIdleTimeoutError, WorkQueue, WorkQueueBuilder, Workers, WorkersBuilder,
};
use std::panic::{RefUnwindSafe, UnwindSafe};

fn send_sync_unpin<T: Send + Sync + Unpin>() {}
fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

/// Does not implement `Unpin`: the queue pins no key, so its own types are `Unpin` with every key.
type Pinned = std::marker::PhantomPinned;

#[test]
fn handles_items_and_futures_cross_threads_and_need_no_pinning() {
    send_sync_unpin::<WorkQueue<String>>();
    send_sync_unpin::<WorkQueueBuilder<String>>();
    send_sync_unpin::<Item<'_, String>>();
    send_sync_unpin::<OwnedItem<String>>();
    send_sync_unpin::<GetAsync<'_, String>>();
    send_sync_unpin::<UntilDirty<'_, String>>();
    send_sync_unpin::<UntilShuttingDown<'_, String>>();
    send_sync_unpin::<WaitIdle<'_, String>>();
    send_sync_unpin::<ShutDownWithDrain<'_, String>>();
    #[cfg(feature = "stream")]
    send_sync_unpin::<keyqueue::ItemStream<String>>();
    send_sync_unpin::<Workers<String>>();
    send_sync_unpin::<WorkersBuilder<String>>();

    send_sync_unpin::<WorkQueue<Pinned>>();
    send_sync_unpin::<WorkQueueBuilder<Pinned>>();
    send_sync_unpin::<Item<'_, Pinned>>();
    send_sync_unpin::<OwnedItem<Pinned>>();
    send_sync_unpin::<GetAsync<'_, Pinned>>();
    send_sync_unpin::<UntilDirty<'_, Pinned>>();
    send_sync_unpin::<UntilShuttingDown<'_, Pinned>>();
    send_sync_unpin::<WaitIdle<'_, Pinned>>();
    send_sync_unpin::<ShutDownWithDrain<'_, Pinned>>();
    #[cfg(feature = "stream")]
    send_sync_unpin::<keyqueue::ItemStream<Pinned>>();
    send_sync_unpin::<Workers<Pinned>>();
    send_sync_unpin::<WorkersBuilder<Pinned>>();
}

#[test]
fn values_cross_threads_and_panics() {
    send_sync_unpin::<Added>();
    send_sync_unpin::<Clock>();
    send_sync_unpin::<MockClock>();
    send_sync_unpin::<Stats>();
    send_sync_unpin::<TryGetError>();
    send_sync_unpin::<GetTimeoutError>();
    send_sync_unpin::<DrainTimeoutError>();
    send_sync_unpin::<WaitIdleTimeoutError>();
    send_sync_unpin::<ProcessingKey<String>>();
    send_sync_unpin::<(Metrics, Histogram, Tally, OnPanic, Outcome)>();
    send_sync_unpin::<Leftover<String>>();
    send_sync_unpin::<GivenUp<'_>>();
    send_sync_unpin::<Reporter>();
    send_sync_unpin::<Box<dyn Observer>>();
    #[cfg(feature = "metrics")]
    send_sync_unpin::<keyqueue::observe::MetricsObserver>();

    unwind_safe::<Clock>();
    unwind_safe::<Added>();
    unwind_safe::<Stats>();
    unwind_safe::<TryGetError>();
    unwind_safe::<GetTimeoutError>();
    unwind_safe::<DrainTimeoutError>();
    unwind_safe::<(Metrics, Histogram, Tally, OnPanic)>();
    unwind_safe::<Leftover<String>>();
}

#[test]
fn a_worker_may_catch_its_panics() {
    unwind_safe::<WorkQueueBuilder<String>>();
    unwind_safe::<WorkQueue<String>>();
    unwind_safe::<Item<'_, String>>();
    unwind_safe::<OwnedItem<String>>();
    unwind_safe::<GetAsync<'_, String>>();
    unwind_safe::<UntilDirty<'_, String>>();
    unwind_safe::<UntilShuttingDown<'_, String>>();
    unwind_safe::<Workers<String>>();
    unwind_safe::<WaitIdle<'_, String>>();
    unwind_safe::<ShutDownWithDrain<'_, String>>();
    #[cfg(feature = "stream")]
    unwind_safe::<keyqueue::ItemStream<String>>();
}

/// A loop's future, and the futures that wait for its end, may be spawned on any runtime.
#[test]
fn loops_are_send_if_their_handlers_futures_are() {
    fn spawned<T: Send + 'static>(_: T) {}
    fn send<T: Send>(_: T) {}
    let workers = WorkQueue::<String>::new().workers().build();
    spawned(workers.run_async(async |item: &Item<'_, String>| {
        std::future::ready(()).await;
        let _length = item.len();
        item.until_dirty().await;
    }));
    spawned(workers.run_async(async |_: &Item<'_, String>| -> Result<Outcome, std::io::Error> {
        std::future::ready(()).await;
        Ok(Outcome::Success)
    }));
    send(workers.join_async());
    send(workers.drain_async());
}

#[test]
fn limiters_cross_threads_and_need_no_pinning() {
    send_sync_unpin::<ItemExponentialFailure<String>>();
    send_sync_unpin::<ItemFastSlow<String>>();
    send_sync_unpin::<Step<String>>();
    send_sync_unpin::<Bucket>();
    send_sync_unpin::<Reservation<'_>>();
    send_sync_unpin::<DedupingBucket<String>>();
    send_sync_unpin::<MaxOf<String>>();
    send_sync_unpin::<MaxOf<str>>();
    send_sync_unpin::<WithMaxWait<Bucket>>();
    send_sync_unpin::<Box<dyn RateLimiter<str>>>();

    send_sync_unpin::<ItemExponentialFailure<Pinned>>();
    send_sync_unpin::<DedupingBucket<Pinned>>();
    send_sync_unpin::<MaxOf<Pinned>>();
}

#[test]
fn limiters_and_their_values_may_be_used_after_a_panic() {
    unwind_safe::<ItemExponentialFailure<String>>();
    unwind_safe::<ItemFastSlow<String>>();
    unwind_safe::<Step<String>>();
    unwind_safe::<Bucket>();
    unwind_safe::<Reservation<'_>>();
    unwind_safe::<DedupingBucket<String>>();
    unwind_safe::<WithMaxWait<Bucket>>();

    send_sync_unpin::<TryAcquireError>();
    send_sync_unpin::<InvalidArgument>();
    send_sync_unpin::<(Exponential, FastSlow, StepTable)>();
    unwind_safe::<TryAcquireError>();
    unwind_safe::<InvalidArgument>();
    unwind_safe::<(Exponential, FastSlow, StepTable)>();
}

/// `Send + Sync` exactly if keys are both: any thread may hold a key and read it, and may drop it at `done`.
mod types_with_keys_that_are_not_send_or_not_sync {
    use super::{
        DedupingBucket, GetAsync, Item, ItemExponentialFailure, OwnedItem, ShutDownWithDrain, UntilDirty, WaitIdle,
        WorkQueue, Workers,
    };
    use std::cell::Cell;
    use std::marker::PhantomData;

    /// Has two methods `no` if `T` is `Send` or `Sync`, so that the call does not compile.
    trait Neither<A> {
        fn no() {}
    }
    impl<T: ?Sized> Neither<()> for T {}
    struct IsSend;
    impl<T: ?Sized + Send> Neither<IsSend> for T {}
    struct IsSync;
    impl<T: ?Sized + Sync> Neither<IsSync> for T {}

    #[test]
    fn are_neither_send_nor_sync() {
        type NotSync = Cell<u8>;
        type NotSend = PhantomData<std::sync::MutexGuard<'static, u8>>;
        let _ = <WorkQueue<NotSync> as Neither<_>>::no;
        let _ = <WorkQueue<NotSend> as Neither<_>>::no;
        let _ = <Item<'_, NotSync> as Neither<_>>::no;
        let _ = <Item<'_, NotSend> as Neither<_>>::no;
        let _ = <OwnedItem<NotSync> as Neither<_>>::no;
        let _ = <OwnedItem<NotSend> as Neither<_>>::no;
        let _ = <GetAsync<'_, NotSync> as Neither<_>>::no;
        let _ = <GetAsync<'_, NotSend> as Neither<_>>::no;
        let _ = <UntilDirty<'_, NotSync> as Neither<_>>::no;
        let _ = <UntilDirty<'_, NotSend> as Neither<_>>::no;
        let _ = <WaitIdle<'_, NotSync> as Neither<_>>::no;
        let _ = <ShutDownWithDrain<'_, NotSync> as Neither<_>>::no;
        let _ = <WaitIdle<'_, NotSend> as Neither<_>>::no;
        let _ = <ShutDownWithDrain<'_, NotSend> as Neither<_>>::no;
        let _ = <Workers<NotSync> as Neither<_>>::no;
        let _ = <Workers<NotSend> as Neither<_>>::no;
        // These keep their keys in locks, so they are `Sync` if keys are `Send`.
        let _ = <ItemExponentialFailure<NotSend> as Neither<_>>::no;
        let _ = <DedupingBucket<NotSend> as Neither<_>>::no;
    }

    fn loop_that_is_not_send() -> impl Future<Output = ()> {
        WorkQueue::<u8>::new().workers().build().run_async(async |_: &Item<'_, u8>| {
            let not_send = std::rc::Rc::new(());
            std::future::ready(()).await;
            drop(not_send);
        })
    }

    /// A loop whose handler keeps a value that is not `Send` over an await may be run, but not sent to another thread.
    #[test]
    fn loops_are_not_send_if_their_handlers_are_not() {
        /// There are two methods `no`, as of [`Neither`], if `T` is `Send`.
        fn of<T>(_: &T) -> PhantomData<T> {
            PhantomData
        }
        trait NotSend<A> {
            fn no(&self) {}
        }
        impl<T> NotSend<()> for PhantomData<T> {}
        impl<T: Send> NotSend<IsSend> for PhantomData<T> {}
        of(&loop_that_is_not_send()).no();
    }
}
