//! A token bucket in one word.
//!
//! The *generic cell rate algorithm* (ITU-T I.371, 1996; in the form "virtual scheduling"): instead of tokens, which would have
//! to be put in as time passes, the word holds the point on a line up to which everything is spent. Time moves along
//! the same line. What is spent may be ahead of the time by the size of the bucket; what is ahead by more has to wait until
//! time has caught up.
//!
//! ```text
//!            full                     one token spent                    must wait
//!   ─────────┬──────────▶       ────────┬────┬───────▶       ────────┬──────────────┬──────▶
//!          spent, now                  now  spent                   now           spent
//!            │◀─ burst ──▶│             │◀── burst ──▶│              │◀── burst ──▶│◀▶│ wait
//! ```
//!
//! The line is measured in nanoseconds if a token takes a whole number of them. Else in parts of a token, a power of two of
//! them (`token`), chosen such that a part takes one to two nanoseconds. So spending is exact, for ever, and only an instant is
//! rounded, each time anew, by less than two: no error adds up, whatever the rate. What was earned is rounded down and what must
//! be waited up. 2^64 parts are 584 years or more.

use super::RateLimiter;
use crate::Clock;
use crate::error::InvalidArgument;
use crate::sync::{AtomicU64, Ordering};
use crate::time::rest;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A token bucket: on average so many a second, and so many at once if there was a pause.
///
/// One for all keys. It starts full. As a [`RateLimiter`] it always admits, and answers how long to wait: each answer
/// *reserves* a token, and they queue up, one after the other, as far ahead as callers ask. Three ways of asking:
///
/// * [`when`](RateLimiter::when) and [`reserve`](Self::reserve) spend a token now and say when to use it;
/// * [`try_acquire`](Self::try_acquire) spends a token only if there is one;
/// * [`max_ahead`](Self::max_ahead) limits how long a wait can get.
///
/// Over any span of time, it admits no more than `burst + rate * span`, exactly if a token takes a whole number of nanoseconds,
/// and else to within four nanoseconds of the span. Answers are those of Go's `x/time/rate`, to within a few nanoseconds;
/// those of more than 584 years, or 292 for some rates, are [`Duration::MAX`], never.
///
/// # Traps
/// A token that was spent for an add is spent, also if the queue did not need it, because the key had an earlier delay. Who adds
/// the same keys again and again pushes all others into the future: see [`DedupingBucket`](super::DedupingBucket). And one
/// bucket for all keys is a bottleneck: at 10 a second, 10 000 keys take a quarter of an hour.
///
/// # Memory ordering
/// None: a token publishes nothing.
///
/// # Examples
/// ```
/// use keyqueue::Clock;
/// use keyqueue::rate_limiter::Bucket;
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// let bucket = Bucket::with_clock(10.0, 2, clock);
/// assert!(bucket.try_acquire().is_ok());
/// assert!(bucket.try_acquire().is_ok());
/// assert_eq!(bucket.try_acquire().unwrap_err().wait(), Duration::from_millis(100));
/// time.advance(Duration::from_millis(100));
/// assert!(bucket.try_acquire().is_ok());
/// assert_eq!(bucket.reserve().delay(), Duration::from_millis(100));
/// assert_eq!(bucket.reserve().delay(), Duration::from_millis(200));
/// ```
#[doc(alias = "TypedBucketRateLimiter")]
#[doc(alias = "BucketRateLimiter")]
pub struct Bucket {
    /// How far everything is spent. The only thing that changes.
    spent: AtomicU64,
    limit: Limit,
    /// How long a wait can get.
    ahead: Duration,
    clock: Clock,
}

/// What does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Everything is admitted at once.
    Unlimited,
    /// Nothing is ever admitted.
    Closed,
    Rate(Rate),
}

/// The line's measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    /// Parts a token.
    token: u64,
    /// Parts that fit in. Less than 2^62.
    burst: u64,
    /// Parts a nanosecond, times 2^63, rounded down: one part at most. 0: no token ever comes.
    speed: u64,
    slowness: Slowness,
}

/// How long a part takes: `factor / 2^shift` nanoseconds, rounded up. A factor of 0: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slowness {
    factor: u64,
    shift: u32,
}

/// A token that is spent, and when it may be used: from [`Bucket::reserve`].
#[derive(Debug)]
#[must_use = "a reservation that is dropped stays spent; `cancel` gives it back"]
pub struct Reservation<'a> {
    bucket: &'a Bucket,
    delay: Duration,
    /// Up to where this one has spent, if it has.
    spent: Option<u64>,
}

/// Why [`Bucket::try_acquire`] has no token, and when there will be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryAcquireError {
    /// Not computed unless somebody asks: many refusals are just dropped.
    debt: u64,
    slowness: Slowness,
}

impl Bucket {
    /// `rate_per_second` tokens a second, and room for `burst`.
    ///
    /// An infinite rate is no limit. So is one above 10^9, a token for each step of the clock. A rate of 0 lets `burst`
    /// through, ever; a burst of 0 nothing, unless the rate is infinite. ("Never" is [`Duration::MAX`], or what
    /// [`max_ahead`](Self::max_ahead) says.)
    ///
    /// # Panics
    /// If the rate is negative or not a number. See [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(rate_per_second: f64, burst: u32) -> Self {
        Self::with_clock(rate_per_second, burst, Clock::default())
    }

    /// As [`new`](Self::new), for numbers that come from outside.
    ///
    /// # Errors
    /// If the rate is negative or not a number.
    pub fn try_new(rate_per_second: f64, burst: u32) -> Result<Self, InvalidArgument> {
        Self::try_with_clock(rate_per_second, burst, Clock::default())
    }

    /// As [`new`](Self::new), with another clock: the queue's, if that has one of its own.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    #[track_caller]
    pub fn with_clock(rate_per_second: f64, burst: u32, clock: Clock) -> Self {
        Self::try_with_clock(rate_per_second, burst, clock).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`try_new`](Self::try_new), with another clock.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    pub fn try_with_clock(rate_per_second: f64, burst: u32, clock: Clock) -> Result<Self, InvalidArgument> {
        let rate = InvalidArgument::check("rate_per_second", rate_per_second)?.abs(); // -0 is 0
        clock.prepare();
        Ok(Self { spent: AtomicU64::new(0), limit: Limit::new(rate, burst), ahead: Duration::MAX, clock })
    }

    /// Never reserves further ahead than this: who would have to wait longer waits this long, and spends nothing. Off by default.
    ///
    /// Beyond it the bucket does not limit any more: all who come then are sent to the same moment. As
    /// [`WithMaxWait`](super::WithMaxWait), except that there the bucket goes on reserving behind the scenes, and all who
    /// come later wait for that.
    #[must_use]
    pub fn max_ahead(mut self, max: Duration) -> Self {
        self.ahead = max;
        self
    }

    /// Spends a token, and says when to use it.
    #[inline]
    pub fn reserve(&self) -> Reservation<'_> {
        let (delay, spent) = self.reserve_at(self.clock.rough());
        Reservation { bucket: self, delay, spent }
    }

    /// Spends a token if there is one.
    ///
    /// # Errors
    /// If there is none. Nothing is spent then.
    #[inline]
    pub fn try_acquire(&self) -> Result<(), TryAcquireError> {
        let rate = match &self.limit {
            Limit::Rate(rate) => rate,
            Limit::Unlimited => return Ok(()),
            Limit::Closed => return Err(TryAcquireError { debt: NEVER, slowness: Slowness::EVER }),
        };
        let now = rate.parts(self.clock.rough());
        self.spend(rate, now, |debt| debt == 0)
            .map_err(|debt| TryAcquireError { debt, slowness: rate.slowness })
            .map(drop)
    }

    /// How long to wait for a token, and up to where everything is spent with it.
    #[inline]
    pub(super) fn reserve_at(&self, now: u64) -> (Duration, Option<u64>) {
        let rate = match &self.limit {
            Limit::Rate(rate) => rate,
            Limit::Unlimited => return (Duration::ZERO, None),
            Limit::Closed => return (self.ahead, None),
        };
        let now = rate.parts(now);
        let near = |debt| debt == 0 || self.ahead == Duration::MAX || rest(rate.slowness.nanos(debt), 0) <= self.ahead;
        match self.spend(rate, now, near) {
            Ok(NEVER) => (Duration::MAX, None),
            Ok(spent) => (rest(rate.slowness.nanos(rate.debt(spent, now)), 0), Some(spent)),
            Err(_) => (self.ahead, None),
        }
    }

    /// Spends a token if the debt that it leaves is all right. Up to where everything is spent then; or that debt, and nothing
    /// is spent. **Linearization point.**
    #[inline]
    fn spend(&self, rate: &Rate, now: u64, admit: impl Fn(u64) -> bool) -> Result<u64, u64> {
        // Relaxed: the word stands for itself alone.
        let mut spent = self.spent.load(Ordering::Relaxed);
        loop {
            let after = spent.max(now).saturating_add(rate.token);
            let debt = rate.debt(after, now);
            if !admit(debt) {
                return Err(debt);
            }
            match self.spent.compare_exchange_weak(spent, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(after),
                Err(other) => spent = other,
            }
        }
    }

    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The line's end, and the time's.
const NEVER: u64 = u64::MAX;

impl Limit {
    /// `rate` is not negative, and a number.
    fn new(rate: f64, burst: u32) -> Self {
        if rate == f64::INFINITY {
            return Self::Unlimited;
        }
        if burst == 0 {
            return Self::Closed;
        }
        // Exactly: rate = digits * 2^exponent. (Zero and the numbers next to it have other digits; no token ever comes.)
        let digits = u128::from(rate.to_bits() & ((1 << 52) - 1) | 1 << 52);
        let exponent = (rate.to_bits() >> 52) as i32 - 1075;
        // The whole burst is to fit in.
        let most = 62 - (u32::BITS - burst.leading_zeros()) as i32;
        if let Some(token) = whole(rate, digits, exponent).filter(|token| *token <= 1 << most) {
            return Self::Rate(Rate::new(token, burst, 1 << 63, 0));
        }
        // Tokens a nanosecond, with its highest bit in the place of 2^62: rate / 10^9 = speed * 2^(bits - 138 + exponent).
        let speed = (digits << 75) / NANOS;
        let bits = 128 - speed.leading_zeros() as i32;
        let speed = (speed >> (bits - 63)) as u64;
        // 2^scale parts a token make it half a part to one part a nanosecond.
        let scale = 75 - bits - exponent;
        if scale < 0 {
            return Self::Unlimited;
        }
        // If the burst takes centuries to fill, parts are larger; and if it takes longer, no token ever comes.
        let coarser = (scale - most).max(0);
        let speed = if coarser <= 62 { speed } else { 0 };
        Self::Rate(Rate::new(1 << (scale - coarser), burst, speed, coarser.min(62) as u32))
    }
}

/// The number of nanoseconds a token, if it is a whole one, exactly. Then a part can be a nanosecond.
fn whole(rate: f64, digits: u128, exponent: i32) -> Option<u64> {
    let token = NANOS as f64 / rate;
    let is_whole = token < (1_u64 << 62) as f64
        && exponent <= 0
        && digits.checked_mul(token as u128) == NANOS.checked_mul(1_u128.checked_shl(exponent.unsigned_abs())?);
    is_whole.then_some(token as u64)
}

/// A second's.
const NANOS: u128 = 1_000_000_000;

impl Rate {
    /// `speed`: parts a nanosecond, times 2^63; 2^`coarser` of these parts make one.
    fn new(token: u64, burst: u32, speed: u64, coarser: u32) -> Self {
        let speed = speed >> coarser;
        // Of the speed as it is now: who waits as long as we say finds a token.
        let factor = if speed == 0 { 0 } else { (1_u128 << 125).div_ceil(u128::from(speed << coarser)) as u64 };
        let slowness = Slowness { factor, shift: 62 - coarser };
        Self { token, burst: u64::from(burst) * token, speed, slowness }
    }

    /// Where an instant is on the line: rounded down.
    #[inline]
    fn parts(&self, nanos: u64) -> u64 {
        ((u128::from(nanos) * u128::from(self.speed)) >> 63) as u64
    }

    /// How far spending is ahead of the time by more than the burst.
    #[inline]
    fn debt(&self, spent: u64, now: u64) -> u64 {
        if spent == NEVER { NEVER } else { (spent - now).saturating_sub(self.burst) }
    }
}

impl Slowness {
    const EVER: Self = Self { factor: 0, shift: 0 };

    /// How many nanoseconds so many parts take: rounded up.
    #[inline]
    fn nanos(self, parts: u64) -> u64 {
        let round_up = (1_u128 << self.shift) - 1;
        let nanos = (u128::from(parts) * u128::from(self.factor) + round_up) >> self.shift;
        match u64::try_from(nanos) {
            Ok(nanos) if self.factor != 0 => nanos,
            _ if parts == 0 => 0,
            _ => NEVER,
        }
    }
}

impl Reservation<'_> {
    /// When the token may be used: so long after it was reserved. `Duration::MAX`: never.
    #[inline]
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Gives the token back, unused. `false`: it is lost, because somebody has reserved after it, and has been told to wait for
    /// it; to admit another in its place would admit too many at one moment. Nor can be given back what was not
    /// spent: no limit, no hope, or too far [ahead](Bucket::max_ahead).
    #[doc(alias = "CancelAt")]
    pub fn cancel(self) -> bool {
        let (Some(spent), Limit::Rate(rate)) = (self.spent, &self.bucket.limit) else { return false };
        // If it is the latest still, whatever was spent before it ends a token earlier, or did so even before.
        self.bucket.spent.compare_exchange(spent, spent - rate.token, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl TryAcquireError {
    /// How long until there is a token, if nobody else takes it. `Duration::MAX`: never.
    #[must_use]
    pub fn wait(self) -> Duration {
        rest(self.slowness.nanos(self.debt), 0)
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait() {
            Duration::MAX => f.write_str("no token, now or ever"),
            wait => write!(f, "no token for another {wait:?}"),
        }
    }
}

impl Error for TryAcquireError {}

impl<K: ?Sized> RateLimiter<K> for Bucket {
    /// Spends a token, whatever the key, and says when to use it.
    #[inline]
    fn when(&self, _: &K) -> Duration {
        self.reserve_at(self.clock.rough()).0
    }

    /// Does nothing: a bucket does not know keys.
    fn forget(&self, _: &K) {}

    /// Always 0.
    fn num_requeues(&self, _: &K) -> usize {
        0
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for the reader's eyes only.
        let spent = self.spent.load(Ordering::Relaxed);
        f.debug_struct("Bucket").field("limit", &self.limit).field("ahead", &self.ahead).field("spent", &spent).finish()
    }
}
