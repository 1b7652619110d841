//! How long to wait before a key is tried again.
//!
//! A [`RateLimiter`] answers one question: how long from now? It never fails, never refuses, and its answers never overflow.
//! [`add_rate_limited`](crate::WorkQueue::add_rate_limited) and [`Item::retry`](crate::Item::retry) ask the queue's limiter,
//! and delay the key by the answer; limiters work without a queue as well.
//!
//! | limiter | waits |
//! |---|---|
//! | [`ItemExponentialFailure`] | longer after each failure of the key: the default of a queue, 5 ms to 1000 s |
//! | [`ItemFastSlow`] | briefly for the first failures of the key, then long |
//! | [`Step`] | what a table says for the number of failures of the key |
//! | [`Bucket`] | for a token: so many a second for all keys together |
//! | [`DedupingBucket`] | for a token: the same, one at a time for each key |
//! | [`MaxOf`] | the longest that any of several says |
//! | [`WithMaxWait`] | at most so long |
//!
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, MaxOf};
//! use std::time::Duration;
//!
//! let backoff = ItemExponentialFailure::new(Duration::from_millis(100), Duration::from_secs(60)).max_tracked(100_000);
//! let rate = DedupingBucket::new(Bucket::new(500.0, 1000));
//! let queue = WorkQueue::builder().rate_limiter(MaxOf::new(vec![Box::new(backoff), Box::new(rate)])).build();
//!
//! queue.add("pod-1");
//! let item = queue.get().unwrap();
//! // … it failed
//! item.retry();
//! assert_eq!((queue.num_requeues(&"pod-1"), queue.delayed_len()), (1, 1));
//! ```
//!
//! # Traps
//!
//! These are client-go's, and its users have fallen into each of them. The defaults are client-go's all the same.
//!
//! * **Forget.** A key that succeeded must be [forgotten](RateLimiter::forget), or its next failure waits as long as if it had
//!   failed all the time. [`Item::succeed`](crate::Item::succeed) does that; dropping the item does not. What nobody forgets
//!   stays in memory, unless that is [bounded](PerKey::max_tracked).
//! * **Events are not failures.** An add for an event is [`add`](crate::WorkQueue::add). Who uses `add_rate_limited` for
//!   it makes a busy key wait as long as a failing one.
//! * **Plain adds bypass the backoff**, by default: an event leads to a run at once, also if the key is to wait for its retry.
//!   See [`DelayedAdd`](crate::DelayedAdd). Such a run that fails early pushes the exponent, without ever having waited: see
//!   [`served_only`](PerKey::served_only).
//! * **Tokens for nothing.** A bucket spends a token for each add, even if the queue drops that add because the key has an
//!   earlier delay: see [`DedupingBucket`].
//! * **One bucket for all** is a bottleneck. The [default for controllers](default_controller_rate_limiter) of client-go has
//!   one, of 10 a second; that of [`WorkQueue::new`](crate::WorkQueue::new) does not. And it looks ahead without end: see
//!   [`Bucket::max_ahead`].

mod bucket;
mod combine;
mod deduping;
mod keyed;
mod per_key;
mod schedule;

pub use bucket::{Bucket, Reservation, TryAcquireError};
pub(crate) use combine::default_backoff;
pub use combine::{MaxOf, WithMaxWait, default_controller_rate_limiter};
pub use deduping::DedupingBucket;
pub use per_key::{ItemExponentialFailure, ItemFastSlow, PerKey, Step};
pub use schedule::{Exponential, FastSlow, Schedule, StepTable};

use crate::sync::Arc;
use std::time::Duration;

/// Says how long to wait before a key is tried again.
///
/// Shared by threads. The queue calls it without a lock, so an implementation may do what it likes; what it takes, the caller
/// waits for.
///
/// # Panics
/// A limiter need not panic, and those of this module do not. If one of your own does, no key is lost. For a key that is held, the
/// call is made all the same, and panics after that: [`succeed`](crate::Item::succeed) says done, and the key of a
/// [`retry`](crate::Item::retry) comes back after 50 ms. The queue counts that retry in the limiter's place. [`Workers`](crate::Workers)
/// catch the panic and [count](crate::Tally::panicked) it. [`add_rate_limited`](crate::WorkQueue::add_rate_limited) panics and adds
/// nothing.
///
/// # Examples
/// One of your own:
/// ```
/// use keyqueue::rate_limiter::RateLimiter;
/// use std::time::Duration;
///
/// /// A second, always.
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
    /// This key failed, or is to be tried again for another reason: how long to wait. `Duration::MAX` is for ever.
    #[doc(alias = "When")]
    fn when(&self, key: &K) -> Duration;

    /// This key succeeded, or nobody will try it again: drop what is remembered of it.
    #[doc(alias = "Forget")]
    fn forget(&self, key: &K);

    /// How often this key failed since it was last forgotten.
    #[doc(alias = "NumRequeues")]
    fn num_requeues(&self, key: &K) -> usize;

    /// Gives back memory that is not needed now. Does nothing by default.
    ///
    /// Called by [`WorkQueue::shrink_to_fit`](crate::WorkQueue::shrink_to_fit).
    fn shrink_to_fit(&self) {}

    /// For the queue that is given this limiter for itself: if all it does is to count failures and to look up the delay, the
    /// queue counts them where it has the key anyway.
    #[doc(hidden)]
    fn schedule(&self) -> Option<Box<dyn Schedule>> {
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

            $($own)*
        }
    };
}

// Not `schedule`: a limiter behind an `Arc` may have other users, whose calls count for the queue too.
forward!(Arc {});

forward!(Box {
    fn schedule(&self) -> Option<Box<dyn Schedule>> {
        (**self).schedule()
    }
});
