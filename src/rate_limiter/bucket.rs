//! A token bucket in one word.
//!
//! This is the *generic cell rate algorithm* (ITU-T I.371, 1996), in its form "virtual scheduling". Nothing adds tokens as time passes: the
//! word is the *theoretical arrival time*, `tat`, up to which all tokens are spent. If it would be ahead of the time now by more than the
//! size of the bucket, `burst`, the caller has to wait for the excess.
//!
//! ```text
//!            full                     one token spent                    must wait
//!   ─────────┬──────────▶       ────────┬────┬───────▶       ────────┬──────────────┬──────▶
//!           tat, now                   now  tat                     now            tat
//!            │◀─ burst ──▶│             │◀── burst ──▶│              │◀── burst ──▶│◀▶│ excess
//! ```
//!
//! The unit of `tat` is a nanosecond if a token takes a whole number of them. Otherwise a token is a power of two of units (`token`), each
//! of one to two nanoseconds. Either way only the time now is rounded, each time from the clock, so that no error adds up at any rate.
//! Earned time is rounded down, and a wait is rounded up. `tat` saturates after 2^64 units, at least 584 years (P14).

use super::RateLimiter;
use crate::Clock;
use crate::error::InvalidArgument;
use crate::sync::{AtomicU64, Ordering};
use crate::time::time_left;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A token bucket, which gives out tokens at an average rate, and after a pause a burst of them at once.
///
/// All keys share the bucket, and it starts full. As a [`RateLimiter`] it always admits, and answers how long to wait. Each answer
/// *reserves* a token, and reservations follow one another, as far ahead as callers ask. There are three ways to ask:
///
/// * [`when`](RateLimiter::when) and [`reserve`](Self::reserve) spend a token now and say when to use it;
/// * [`try_acquire`](Self::try_acquire) spends a token only if there is one;
/// * [`max_ahead`](Self::max_ahead) limits the wait.
///
/// Over any span of time the bucket admits at most `burst + rate * span` tokens. This is exact if a token takes a whole number of
/// nanoseconds, and otherwise exact to within four nanoseconds of the span. If an empty bucket takes more than 146 years to fill, it is
/// exact to within a 2^60th of that time instead. The answers are those of Go's `x/time/rate`, to within a few nanoseconds. An answer of
/// more than 584 years (292 for some rates) is [`Duration::MAX`], which never ends.
///
/// # Traps
/// An add spends a token even if the queue drops the add because the key has an earlier delay. If a caller adds the same keys again and
/// again, all other keys therefore wait longer and longer, which [`DedupingBucket`](super::DedupingBucket) avoids. One bucket for all keys
/// is also a bottleneck: at 10 a second, 10 000 keys take a quarter of an hour.
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
    /// The theoretical arrival time, up to which all tokens are spent. The only field that changes.
    tat: AtomicU64,
    /// `None` admits all callers at once.
    limit: Option<Rate>,
    ahead: Duration,
    clock: Clock,
}

/// The rate and the burst, in units of `tat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    token: u64,
    /// The units of a full bucket, less than 2^62.
    burst: u64,
    /// The units of a nanosecond, at most one, times 2^63 and rounded down. 0 means that no token ever comes.
    units_per_nano: u64,
    nanos_per_unit: NanosPerUnit,
}

/// The time that a unit takes: `factor / 2^shift` nanoseconds, rounded up. With a factor of 0 it never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct NanosPerUnit {
    factor: u64,
    shift: u32,
}

/// A spent token, and the time at which it may be used. From [`Bucket::reserve`].
#[derive(Debug)]
#[must_use = "a reservation that is dropped stays spent; `cancel` gives it back"]
pub struct Reservation<'a> {
    bucket: &'a Bucket,
    delay: Duration,
    /// The bucket's `tat` after this token was spent, or `None` if no token was spent.
    tat: Option<u64>,
}

/// Why [`Bucket::try_acquire`] has no token, and when there will be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryAcquireError {
    /// In units. Only [`wait`](Self::wait) computes the time, because many callers drop the error without a look.
    excess: u64,
    nanos_per_unit: NanosPerUnit,
}

impl Bucket {
    /// A bucket that gives out `rate_per_second` tokens a second, and has room for `burst`.
    ///
    /// A rate above 10^9 is no limit, because it is more than a token for each step of the clock. A rate of 0 admits `burst` tokens and
    /// then no more, and a burst of 0 admits nothing, unless the rate is infinite. Whoever asks for a token that never comes is told to
    /// wait for [`Duration::MAX`], or for [`max_ahead`](Self::max_ahead).
    ///
    /// # Panics
    /// If the rate is negative or not a number. See [`try_new`](Self::try_new).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    ///
    /// let bucket = Bucket::new(50.0, 100); // 50 a second, and 100 at once
    /// assert!(bucket.try_acquire().is_ok());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(rate_per_second: f64, burst: u32) -> Self {
        Self::with_clock(rate_per_second, burst, Clock::default())
    }

    /// As [`new`](Self::new), for untrusted values, as from a configuration.
    ///
    /// # Errors
    /// If the rate is negative or not a number.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    ///
    /// assert!(Bucket::try_new(f64::NAN, 100).is_err());
    /// ```
    pub fn try_new(rate_per_second: f64, burst: u32) -> Result<Self, InvalidArgument> {
        Self::try_with_clock(rate_per_second, burst, Clock::default())
    }

    /// As [`new`](Self::new), with a clock. If you set the queue's clock, give the bucket the same one.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::Clock;
    /// use keyqueue::rate_limiter::Bucket;
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let bucket = Bucket::with_clock(1.0, 1, clock);
    /// assert!(bucket.try_acquire().is_ok() && bucket.try_acquire().is_err());
    /// time.advance(Duration::from_secs(1));
    /// assert!(bucket.try_acquire().is_ok());
    /// ```
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
        clock.calibrate();
        Ok(Self { tat: AtomicU64::new(0), limit: limit(rate, burst), ahead: Duration::MAX, clock })
    }

    /// Never reserves further ahead than `max`. A caller who would have to wait longer spends nothing, and is answered `max`. Off by
    /// default.
    ///
    /// Beyond `max` the bucket no longer limits, because all further callers get the same moment. With [`WithMaxWait`](super::WithMaxWait),
    /// in contrast, the bucket goes on reserving, and later callers wait for these tokens.
    #[must_use]
    pub fn max_ahead(mut self, max: Duration) -> Self {
        self.ahead = max;
        self
    }

    /// Spends a token, and says when it may be used.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    /// use std::thread;
    ///
    /// let bucket = Bucket::new(1000.0, 1);
    /// for _ in 0..3 {
    ///     thread::sleep(bucket.reserve().delay()); // 1000 a second
    /// }
    /// ```
    #[inline]
    pub fn reserve(&self) -> Reservation<'_> {
        let (delay, tat) = self.reserve_at(self.clock.now_coarse());
        Reservation { bucket: self, delay, tat }
    }

    /// Spends a token if there is one.
    ///
    /// # Errors
    /// If there is no token. Nothing is spent then.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    ///
    /// let bucket = Bucket::new(1.0, 1);
    /// assert!(bucket.try_acquire().is_ok());
    /// println!("the next token comes in {:?}", bucket.try_acquire().unwrap_err().wait());
    /// ```
    #[inline]
    pub fn try_acquire(&self) -> Result<(), TryAcquireError> {
        let Some(rate) = &self.limit else { return Ok(()) };
        let now = rate.units(self.clock.now_coarse());
        rate.spend(&self.tat, now, |excess| excess == 0)
            .map_err(|excess| TryAcquireError { excess, nanos_per_unit: rate.nanos_per_unit })
            .map(drop)
    }

    /// Spends a token. Returns the wait for it, and `tat` after it.
    #[inline]
    pub(super) fn reserve_at(&self, now: u64) -> (Duration, Option<u64>) {
        let Some(rate) = &self.limit else { return (Duration::ZERO, None) };
        let now = rate.units(now);
        let near = |excess| {
            excess == 0 || self.ahead == Duration::MAX || time_left(rate.nanos_per_unit.nanos(excess), 0) <= self.ahead
        };
        match rate.spend(&self.tat, now, near) {
            Ok(NEVER) => (Duration::MAX, None),
            Ok(tat) => (time_left(rate.nanos_per_unit.nanos(rate.excess(tat, now)), 0), Some(tat)),
            Err(_) => (self.ahead, None),
        }
    }

    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The largest `tat`, and the end of time.
const NEVER: u64 = u64::MAX;

/// The limit for a `rate` that is a number and not negative, or `None` if there is no limit.
pub(crate) fn limit(rate: f64, burst: u32) -> Option<Rate> {
    if rate == f64::INFINITY {
        return None;
    }
    if burst == 0 {
        return Some(Rate::new(NEVER, 0, 0, 0)); // a token takes for ever
    }
    // Exactly, rate = digits * 2^exponent. (Zero and subnormal numbers have other digits, but there no token ever comes.)
    let digits = u128::from(rate.to_bits() & ((1 << 52) - 1) | 1 << 52);
    let exponent = (rate.to_bits() >> 52) as i32 - 1075;
    // A token has at most 2^max_bits units, so that the burst has less than 2^62.
    let max_bits = 62 - (u32::BITS - burst.leading_zeros()) as i32;
    if let Some(token) = whole_nanos_per_token(rate, digits, exponent).filter(|token| *token <= 1 << max_bits) {
        return Some(Rate::new(token, burst, 1 << 63, 0));
    }
    // Tokens a nanosecond, with the highest bit at 2^62: rate / 10^9 = units_per_nano * 2^(bits - 138 + exponent).
    let units_per_nano = (digits << 75) / NANOS_PER_SECOND;
    let bits = 128 - units_per_nano.leading_zeros() as i32;
    let units_per_nano = (units_per_nano >> (bits - 63)) as u64;
    // With 2^scale units a token, a nanosecond is half a unit to one unit.
    let scale = 75 - bits - exponent;
    if scale < 0 {
        return None;
    }
    // If the burst takes centuries to fill, units are larger, and if it takes longer still, no token ever comes.
    let coarser = (scale - max_bits).max(0);
    let units_per_nano = if coarser <= 62 { units_per_nano } else { 0 };
    Some(Rate::new(1 << (scale - coarser), burst, units_per_nano, coarser.min(62) as u32))
}

/// The nanoseconds that a token takes, if they are exactly a whole number, in which case a unit can be a nanosecond.
fn whole_nanos_per_token(rate: f64, digits: u128, exponent: i32) -> Option<u64> {
    let token = NANOS_PER_SECOND as f64 / rate;
    let is_whole = token < (1_u64 << 62) as f64
        && exponent <= 0
        && digits.checked_mul(token as u128)
            == NANOS_PER_SECOND.checked_mul(1_u128.checked_shl(exponent.unsigned_abs())?);
    is_whole.then_some(token as u64)
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

impl Rate {
    /// `units_per_nano` is times 2^63, in finer units, of which 2^`coarser` make one unit of this rate.
    fn new(token: u64, burst: u32, units_per_nano: u64, coarser: u32) -> Self {
        let units_per_nano = units_per_nano >> coarser;
        // From the rounded `units_per_nano`, so that waiting for the returned time suffices.
        let factor = if units_per_nano == 0 {
            0
        } else {
            (1_u128 << 125).div_ceil(u128::from(units_per_nano << coarser)) as u64
        };
        let nanos_per_unit = NanosPerUnit { factor, shift: 62 - coarser };
        Self { token, burst: u64::from(burst) * token, units_per_nano, nanos_per_unit }
    }

    /// The nanoseconds until there is a token, or [`NEVER`]. `tat` is the time up to which all tokens are spent.
    #[inline]
    pub(crate) fn wait(&self, tat: u64, now: u64) -> u64 {
        self.wait_for(1, tat, now)
    }

    /// The same for this many tokens.
    #[inline]
    pub(crate) fn wait_for(&self, tokens: u64, tat: u64, now: u64) -> u64 {
        let now = self.units(now);
        let after = tat.max(now).saturating_add(tokens.saturating_mul(self.token));
        self.nanos_per_unit.nanos(self.excess(after, now))
    }

    /// Spends a token of the word `tat`, unless there is none.
    pub(crate) fn try_spend(&self, tat: &AtomicU64, now: u64) -> bool {
        self.spend(tat, self.units(now), |excess| excess == 0).is_ok()
    }

    /// Spends a token, whether there is one or not. Returns the new `tat`.
    #[inline]
    pub(crate) fn spent(&self, tat: u64, now: u64) -> u64 {
        tat.max(self.units(now)).saturating_add(self.token)
    }

    /// The number of tokens that there are.
    pub(crate) fn tokens(&self, tat: u64, now: u64) -> u64 {
        let spent = tat.saturating_sub(self.units(now));
        self.burst.saturating_sub(spent).checked_div(self.token).unwrap_or(u64::MAX)
    }

    /// The nanoseconds until all tokens are there.
    pub(crate) fn wait_until_full(&self, tat: u64, now: u64) -> u64 {
        self.nanos_per_unit.nanos(tat.saturating_sub(self.units(now)))
    }

    /// What stands for the same number of spent tokens at another rate.
    pub(crate) fn convert(&self, tat: u64, now: u64, to: &Self) -> u64 {
        let spent = u128::from(tat.saturating_sub(self.units(now))) * u128::from(to.token);
        let spent = spent.checked_div(u128::from(self.token)).unwrap_or(0).min(u128::from(NEVER));
        to.units(now).saturating_add(spent as u64)
    }

    /// Spends a token of the word `tat` if `admit` agrees to the excess that this leaves, and returns `tat` after it. Otherwise spends
    /// nothing, and returns the excess. `now` is in units. **Linearization point.**
    #[inline]
    fn spend(&self, tat: &AtomicU64, now: u64, admit: impl Fn(u64) -> bool) -> Result<u64, u64> {
        // Relaxed: a token publishes nothing.
        let mut before = tat.load(Ordering::Relaxed);
        loop {
            let after = before.max(now).saturating_add(self.token);
            let excess = self.excess(after, now);
            if !admit(excess) {
                return Err(excess);
            }
            match tat.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(after),
                Err(other) => before = other,
            }
        }
    }

    /// A time in units: rounded down.
    #[inline]
    fn units(&self, nanos: u64) -> u64 {
        ((u128::from(nanos) * u128::from(self.units_per_nano)) >> 63) as u64
    }

    /// By how much `tat` is ahead of the time beyond the burst.
    #[inline]
    fn excess(&self, tat: u64, now: u64) -> u64 {
        if tat == NEVER { NEVER } else { (tat - now).saturating_sub(self.burst) }
    }
}

impl NanosPerUnit {
    /// The nanoseconds that these units take: rounded up.
    #[inline]
    fn nanos(self, units: u64) -> u64 {
        let round_up = (1_u128 << self.shift) - 1;
        let nanos = (u128::from(units) * u128::from(self.factor) + round_up) >> self.shift;
        match u64::try_from(nanos) {
            Ok(nanos) if self.factor != 0 => nanos,
            _ if units == 0 => 0,
            _ => NEVER,
        }
    }
}

impl Reservation<'_> {
    /// The time from the reservation until the token may be used. [`Duration::MAX`] means never.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    /// use std::time::Duration;
    ///
    /// let bucket = Bucket::new(1.0, 1);
    /// assert_eq!(bucket.reserve().delay(), Duration::ZERO);
    /// assert!(bucket.reserve().delay() > Duration::ZERO);
    /// ```
    #[inline]
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Gives the token back unused.
    ///
    /// Returns `false` if the token is lost, because a later caller has reserved after it. That caller waits for a later moment already,
    /// and giving the token to somebody else could admit too many at one moment. It also returns `false` if no token was spent, because the
    /// bucket is unlimited or closed, or the wait was beyond [`max_ahead`](Bucket::max_ahead).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    /// use std::time::Duration;
    ///
    /// let bucket = Bucket::new(1.0, 1);
    /// bucket.reserve().cancel(); // the token is there again
    /// assert_eq!(bucket.reserve().delay(), Duration::ZERO);
    /// ```
    #[doc(alias = "CancelAt")]
    pub fn cancel(self) -> bool {
        let (Some(tat), Some(rate)) = (self.tat, &self.bucket.limit) else { return false };
        // Succeeds if this is still the latest reservation: those before it end at least one token earlier.
        self.bucket.tat.compare_exchange(tat, tat - rate.token, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl TryAcquireError {
    /// The time until there is a token, if no other caller takes it. [`Duration::MAX`] means never.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::Bucket;
    /// use std::time::Duration;
    ///
    /// let bucket = Bucket::new(1.0, 1);
    /// assert!(bucket.try_acquire().is_ok());
    /// assert!(bucket.try_acquire().unwrap_err().wait() <= Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn wait(self) -> Duration {
        time_left(self.nanos_per_unit.nanos(self.excess), 0)
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
    /// Spends a token for any key, and returns how long to wait before it may be used.
    #[inline]
    fn when(&self, _: &K) -> Duration {
        self.reserve_at(self.clock.now_coarse()).0
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
        // Relaxed: for display only.
        let tat = self.tat.load(Ordering::Relaxed);
        f.debug_struct("Bucket").field("limit", &self.limit).field("ahead", &self.ahead).field("tat", &tat).finish()
    }
}
