//! How long to wait before a key is tried again.
//!
//! A [`RateLimiter`] answers one question: how long must the key wait? It never fails or refuses, and its answers never overflow.
//! [`Item::retry`](crate::Item::retry) and [`add_rate_limited`](crate::WorkQueue::add_rate_limited) ask the queue's limiter and delay the
//! key by the answer, but a plain [`add`](crate::WorkQueue::add) [does not](#what-they-limit). Limiters also work without a queue.
//!
//! | limiter | waits |
//! |---|---|
//! | [`ItemExponentialFailure`] | longer after each failure of the key: the default of a queue, 5 ms to 1000 s |
//! | [`ItemFastSlow`] | for a short time after the first failures of the key, then for a long time |
//! | [`Step`] | for the time that a table has for the key's number of failures |
//! | [`Bucket`] | for a token; all keys share a number of tokens a second |
//! | [`DedupingBucket`] | for a token; a key has at most one at a time |
//! | [`MaxOf`] | for the longest wait of several limiters |
//! | [`WithMaxWait`] | for the wait of a limiter, up to a maximum |
//!
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, MaxOf};
//! use std::time::Duration;
//!
//! let backoff =
//!     ItemExponentialFailure::new(Duration::from_millis(100), Duration::from_secs(60))
//!         .max_tracked(100_000);
//! let rate = DedupingBucket::new(Bucket::new(500.0, 1000));
//! let queue = WorkQueue::builder()
//!     .rate_limiter(MaxOf::new(vec![Box::new(backoff), Box::new(rate)]))
//!     .build();
//!
//! queue.add("pod-1");
//! let item = queue.get().unwrap();
//! // … it failed
//! item.retry();
//! assert_eq!((queue.num_requeues(&"pod-1"), queue.delayed_len()), (1, 1));
//! ```
//!
//! # What they limit
//!
//! A queue's limiter delays retries, including those of [`Workers`](crate::Workers), `add_rate_limited`, and adds with
//! [`AddOptions::rate_limited`](crate::AddOptions::rate_limited). It does not delay a plain add, an add with a delay, or an
//! [`Outcome::RequeueAfter`](crate::Outcome::RequeueAfter). Nor does it limit hand-outs: with a bucket of 500 a second, workers get a
//! thousand plain adds as fast as they take them; what limits these is a [pace](crate::WorkQueueBuilder::pace). Do not use
//! `add_rate_limited` for events, because it counts a failure of the key (see the traps).
//!
//! To limit the requests that workers make to a server, give the queue a pace if each run makes one. Otherwise let the workers share a
//! [`Bucket`] and wait for a token before each request, as the [cookbook](crate::cookbook#debounce-and-throttle) shows.
//!
//! # Traps
//!
//! Client-go has the same traps, and its users report each of them.
//!
//! * **Forget.** [Forget](RateLimiter::forget) a key that succeeded. Otherwise the wait after its next failure is as long as if it had
//!   failed all the time. [`Item::succeed`](crate::Item::succeed) forgets the key, but dropping the item does not. A key that is not
//!   forgotten stays in memory, unless the limiter has a [bound](PerKey::max_tracked).
//! * **Events are not failures.** For an event call [`add`](crate::WorkQueue::add). With `add_rate_limited`, a key with many events waits
//!   as long as a failing key, and [`max_retries`](crate::WorkersBuilder::max_retries) counts its events.
//! * **Plain adds bypass the backoff** by default: an event leads to a run at once, even if the key waits for its retry, unless
//!   [`DelayedAdd`](crate::DelayedAdd) says otherwise. If such a run fails, the next delay is longer, though the key has not waited for the
//!   last one, unless the limiter is [`served_only`](PerKey::served_only).
//! * **Wasted tokens.** A bucket spends a token for each add. If the key has an earlier delay, the queue drops the add, and the token is
//!   lost. [`DedupingBucket`] avoids this.
//! * **One bucket for all keys** is a bottleneck. client-go's [default for controllers](default_controller_rate_limiter) has one, of 10 a
//!   second, while the default of [`WorkQueue::new`](crate::WorkQueue::new) has none. A bucket also reserves tokens without a limit to the
//!   wait: see [`Bucket::max_ahead`].

mod bucket;
mod combine;
mod deduping;
mod keyed;
mod per_key;
mod schedule;

pub use bucket::{Bucket, Reservation, TryAcquireError};
pub(crate) use bucket::{Rate, limit};
pub(crate) use combine::default_backoff;
pub use combine::{MaxOf, WithMaxWait, default_controller_rate_limiter};
pub use deduping::DedupingBucket;
pub use per_key::{ItemExponentialFailure, ItemFastSlow, PerKey, Step};
#[doc(hidden)] // named by the types above, and of no use without them
pub use schedule::{Exponential, FastSlow, Schedule, ScheduleFn, StepTable};

use crate::sync::Arc;
use std::time::Duration;

/// Says how long to wait before a key is tried again.
///
/// Threads share a limiter. The queue calls it without a lock, so it may do anything, but the caller waits until it returns.
///
/// # Panics
/// The limiters of this module do not panic. If a limiter of your own panics, no key is lost, because the calls of an item do their work
/// first and then panic: [`succeed`](crate::Item::succeed) ends the hand-out, and the key of a [`retry`](crate::Item::retry) comes back
/// after 50 ms, as a retry that the queue counts in the limiter's place. [`Workers`](crate::Workers) catch the panic and
/// [count](crate::Tally::panicked) it. [`add_rate_limited`](crate::WorkQueue::add_rate_limited) panics and adds nothing.
///
/// # Examples
/// One of your own:
/// ```
/// use keyqueue::rate_limiter::RateLimiter;
/// use std::time::Duration;
///
/// /// Always waits a second.
/// struct EverySecond;
///
/// impl<K: ?Sized> RateLimiter<K> for EverySecond {
///     fn when(&self, _: &K) -> Duration {
///         Duration::from_secs(1)
///     }
///     fn forget(&self, _: &K) {}
///     fn num_requeues(&self, _: &K) -> usize {
///         0
///     }
/// }
///
/// let queue = keyqueue::WorkQueue::<String>::builder().rate_limiter(EverySecond).build();
/// ```
#[doc(alias = "TypedRateLimiter")]
pub trait RateLimiter<K: ?Sized>: Send + Sync {
    /// Returns how long this key must wait, because it has failed, or is to be tried again for another reason. `Duration::MAX` never ends.
    #[doc(alias = "When")]
    fn when(&self, key: &K) -> Duration;

    /// Forgets this key, because it has succeeded or will not be tried again.
    #[doc(alias = "Forget")]
    fn forget(&self, key: &K);

    /// The number of failures of this key since it was last forgotten.
    #[doc(alias = "NumRequeues")]
    fn num_requeues(&self, key: &K) -> usize;

    /// Frees memory that the limiter does not need now. Does nothing by default.
    ///
    /// Called by [`WorkQueue::shrink_to_fit`](crate::WorkQueue::shrink_to_fit).
    fn shrink_to_fit(&self) {}

    /// The number of keys whose failures this limiter counts, for [`Stats::failing`](crate::Stats::failing). A limiter of your own has
    /// none.
    #[doc(hidden)]
    fn failing(&self) -> usize {
        0
    }

    /// Whether the delay of the key's last failure has not passed, so that another failure is not counted: see
    /// [`served_only`](PerKey::served_only). A holder asks this before each [`when`](Self::when).
    #[doc(hidden)]
    fn has_delay_left(&self, _key: &K) -> bool {
        false
    }

    /// Called by a queue that has a seed and owns this limiter, before any other call. Limiters without a seed of their own draw from this
    /// one.
    #[doc(hidden)]
    fn reseed(&mut self, _seed: u64) {}

    /// Called by a queue that owns this limiter. `Some` means that the limiter only counts failures and chooses the delay by their number,
    /// so the queue counts them itself, next to the key in its own table.
    #[doc(hidden)]
    fn schedule(&self) -> Option<ScheduleFn> {
        None
    }
}

macro_rules! forward {
    ($pointer:ident { $($own:tt)* }) => {
        impl<K: ?Sized, L: RateLimiter<K> + ?Sized> RateLimiter<K> for $pointer<L> {
            fn when(&self, key: &K) -> Duration {
                (**self).when(key)
            }

            fn forget(&self, key: &K) {
                (**self).forget(key);
            }

            fn num_requeues(&self, key: &K) -> usize {
                (**self).num_requeues(key)
            }

            fn shrink_to_fit(&self) {
                (**self).shrink_to_fit();
            }

            fn failing(&self) -> usize {
                (**self).failing()
            }

            fn has_delay_left(&self, key: &K) -> bool {
                (**self).has_delay_left(key)
            }

            $($own)*
        }
    };
}

// Without `schedule` and `reseed`, because a limiter behind an `Arc` may have other users, whose calls count for the queue too.
forward!(Arc {});

forward!(Box {
    fn reseed(&mut self, seed: u64) {
        (**self).reseed(seed);
    }

    fn schedule(&self) -> Option<ScheduleFn> {
        (**self).schedule()
    }
});
