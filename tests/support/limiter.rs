//! Runs any calls on limiters with any settings and on integer models, and compares every answer.
//!
//! * Per-key limiters: counts and delays are those of plain 128-bit arithmetic. With a bound, the limiter remembers what two
//!   generations of keys hold: never more than the bound, and always the latest half of it. With jitter, an answer is in its
//!   range and within the maximum, and a twin with the same seed gives the same answer.
//! * Bucket: tokens and time are integers without limit. If a token takes a whole number of nanoseconds, each wait and each
//!   admission is exact. Otherwise a wait is off by the few nanoseconds of rounding ([`EARLY`], [`LATE`]), whatever came
//!   before. A token that was refused is there when it was promised. Where a burst takes centuries to fill, rounding takes
//!   more; near the end of the bucket's time range a wait may be longer, but not shorter.
//! * Deduping bucket: spends a token if a key has none, and then answers exactly as the bucket.
//!
//! Used by the fuzz target `limiter_vs_integer_model`, and by `replay_corpus.rs`.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use super::limits::{Schedule, duration};
use super::side::Side;
use arbitrary::{Arbitrary, Unstructured};
use keyqueue::rate_limiter::{
    Bucket, DedupingBucket, ItemExponentialFailure, ItemFastSlow, PerKey, RateLimiter, Reservation,
    Schedule as RealSchedule, Step, TryAcquireError,
};
use keyqueue::{Clock, MockClock};
use num_bigint::BigUint;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Settings of a limiter, and calls to it.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Life {
    PerKey(Settings, Vec<KeyOp>),
    Bucket(BucketSettings, Vec<BucketOp>),
    Deduping(BucketSettings, Vec<KeyOp>),
}

#[derive(Arbitrary, Debug, Clone)]
pub(crate) struct Settings {
    schedule: ScheduleSettings,
    served_only: bool,
    max_tracked: Option<u8>,
    retain_recent: Option<Span>,
    /// The factor in sixteenths, and the seed.
    jitter: Option<(u8, u64)>,
}

#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum ScheduleSettings {
    Exponential(Span, Span),
    FastSlow(Span, Span, u8),
    /// The first row, and the others. A row of `n` begins `n + 1` failures after the row before it.
    Step((u8, Span), Vec<(u8, Span)>),
}

#[derive(Arbitrary, Debug, Clone)]
pub(crate) struct BucketSettings {
    rate: Rate,
    burst: Burst,
    max_ahead: Option<Span>,
}

#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Rate {
    /// The bits of any float.
    Bits(u64),
    /// Nanoseconds for each token.
    Every(u64),
    /// Tokens a second.
    Whole(u32),
    /// 10^n.
    Ten(i8),
    Infinite,
}

#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Burst {
    Few(u8),
    Any(u32),
}

/// A call to a limiter that knows keys.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum KeyOp {
    When(u8),
    /// `when` of several keys, from this one on.
    WhenMany(u8, u8),
    /// `when` of one key, several times.
    WhenOften(u8, u8),
    Forget(u8),
    Advance(Span),
    /// To the end of the delay that this key got last.
    AdvanceToEnd(u8, Side),
    /// By the age at which keys are forgotten.
    AdvanceByAge(Side),
    ShrinkToFit,
}

/// A call to a bucket. An index selects a kept reservation.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum BucketOp {
    Reserve,
    ReserveMany(u8),
    When,
    /// Reserves, and keeps the reservation.
    Keep,
    Cancel(u8),
    TryAcquire,
    /// Takes all tokens that there are, at most 300.
    TryAcquireAll,
    /// Takes a token; if there is none, after the wait that the bucket promises.
    Acquire,
    Advance(Span),
    /// By hundredths of the time that a token takes.
    AdvanceTokens(u16, Side),
}

/// A length of time.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Span {
    Zero,
    /// 2^n nanoseconds, for n up to 63.
    Power(u8, Side),
    Milliseconds(u16),
    Nanoseconds(u64),
    Any(u64, u32),
    Max,
}

const GIGA: u64 = 1_000_000_000;

/// Runs the fuzz target's input. The first byte selects the type of key.
pub(crate) fn run_bytes(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let Ok(life) = Life::arbitrary_take_rest(Unstructured::new(rest)) else { return };
    [run::<u64>, run::<String>, run::<Colliding>][usize::from(first % 3)](&life);
}

pub(crate) fn run<K: Key>(life: &Life) {
    match life {
        Life::PerKey(settings, ops) => run_per_key::<K>(settings, ops),
        Life::Bucket(settings, ops) => run_bucket(settings, ops),
        Life::Deduping(settings, ops) => run_deduping::<K>(settings, ops),
    }
}

impl Span {
    fn duration(&self) -> Duration {
        match *self {
            Self::Zero => Duration::ZERO,
            Self::Power(n, side) => Duration::from_nanos(side.of(1 << (n % 64))),
            Self::Milliseconds(n) => Duration::from_millis(n.into()),
            Self::Nanoseconds(n) => Duration::from_nanos(n),
            Self::Any(seconds, nanos) => Duration::new(seconds, nanos % GIGA as u32),
            Self::Max => Duration::MAX,
        }
    }

    fn nanos(&self) -> u64 {
        saturated(self.duration())
    }
}

/// In nanoseconds, saturated as a clock's time is.
fn saturated(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

/// The type of key. Calls use few values, so that they meet on one key.
pub(crate) trait Key: Hash + Eq + Clone + Debug + Send + Sync + 'static {
    fn nth(n: u8) -> Self;
}

impl Key for u64 {
    fn nth(n: u8) -> Self {
        n.into()
    }
}

impl Key for String {
    fn nth(n: u8) -> Self {
        format!("key {n}")
    }
}

/// Every key has the same hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Colliding(u8);

impl Hash for Colliding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

impl Key for Colliding {
    fn nth(n: u8) -> Self {
        Self(n)
    }
}

fn index(n: u8, len: usize) -> Option<usize> {
    usize::from(n).checked_rem(len)
}

/// One of 24 keys.
fn key<K: Key>(n: u8) -> K {
    K::nth(n % 24)
}

// ---- limiters that count the failures of each key ----

/// What is remembered of a key.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    failures: u64,
    /// When its last delay expires.
    until: u64,
}

/// The remembered keys: the latest that failed, and those before them.
struct Generations<K> {
    recent: HashMap<K, Memory>,
    before: HashMap<K, Memory>,
    since: u64,
    /// The largest size of `recent`.
    most: usize,
    age: u64,
}

impl<K: Key> Generations<K> {
    fn len(&self) -> usize {
        self.recent.len() + self.before.len()
    }

    fn turn(&mut self, now: u64) {
        self.before = std::mem::take(&mut self.recent);
        self.since = now;
    }

    fn grow_old(&mut self, now: u64) {
        match self.ages(now) {
            0 => {}
            // The next age begins where this one ends.
            1 => self.turn(self.since + self.age),
            // Both generations are too old.
            _ => {
                self.turn(now);
                self.turn(now);
            }
        }
    }

    fn ages(&self, now: u64) -> u64 {
        if self.age == u64::MAX { 0 } else { (now - self.since) / self.age }
    }

    fn update(&mut self, key: &K, now: u64) -> &mut Memory {
        self.grow_old(now);
        if !self.recent.contains_key(key) {
            let memory = self.before.remove(key).unwrap_or_default();
            if self.recent.len() == self.most {
                self.turn(now);
            }
            self.recent.insert(key.clone(), memory);
        }
        self.recent.get_mut(key).expect("just put in")
    }

    fn peek(&self, key: &K, now: u64) -> Memory {
        let recent = self.recent.get(key).filter(|_| self.ages(now) < 2);
        let before = self.before.get(key).filter(|_| self.ages(now) < 1);
        recent.or(before).copied().unwrap_or_default()
    }

    fn forget(&mut self, key: &K) {
        self.recent.remove(key);
        self.before.remove(key);
    }
}

fn run_per_key<K: Key>(settings: &Settings, ops: &[KeyOp]) {
    let nanos = |span: &Span| span.duration().as_nanos();
    match &settings.schedule {
        ScheduleSettings::Exponential(base, max) => {
            let schedule = Schedule::Exponential { base: nanos(base), max: nanos(max) };
            let make = || ItemExponentialFailure::new(base.duration(), max.duration());
            run_schedule::<K, _>(schedule, make, settings, ops);
        }
        ScheduleSettings::FastSlow(fast, slow, attempts) => {
            let max_fast_attempts = u64::from(*attempts);
            let schedule = Schedule::FastSlow { fast: nanos(fast), slow: nanos(slow), max_fast_attempts };
            let make = || ItemFastSlow::new(fast.duration(), slow.duration(), usize::from(*attempts));
            run_schedule::<K, _>(schedule, make, settings, ops);
        }
        ScheduleSettings::Step((first, delay), others) => {
            let mut rows = vec![(u64::from(*first), nanos(delay))];
            for (more, delay) in others.iter().take(20) {
                rows.push((rows.last().expect("there is a first").0 + u64::from(*more) + 1, nanos(delay)));
            }
            let real = || rows.iter().map(|&(from, delay)| (from as usize, duration(delay)));
            let make = || Step::new(real());
            run_schedule::<K, _>(Schedule::Step(rows.clone()), make, settings, ops);
        }
    }
}

fn run_schedule<K: Key, S: RealSchedule>(
    schedule: Schedule,
    make: impl Fn() -> PerKey<K, S>,
    settings: &Settings,
    ops: &[KeyOp],
) {
    let (clock, time) = Clock::mock();
    // Up to 1023 keys are remembered in one table, so the model is exact. Without a bound there are several tables, each with
    // its own age.
    let bound = match (settings.max_tracked, &settings.retain_recent) {
        (Some(keys), _) => Some(usize::from(keys)),
        (None, Some(_)) => Some(1_000),
        (None, None) => None,
    };
    let make = || {
        let mut limiter = make().clock(clock.clone());
        if settings.served_only {
            limiter = limiter.served_only();
        }
        if let Some(age) = &settings.retain_recent {
            limiter = limiter.retain_recent(age.duration());
        }
        if let Some(keys) = bound {
            limiter = limiter.max_tracked(keys);
        }
        if let Some((sixteenths, seed)) = settings.jitter {
            limiter = limiter.jitter(f64::from(sixteenths) / 16.0).seed(seed);
        }
        limiter
    };
    let longest = schedule.longest();
    let sixteenths = settings.jitter.map_or(0, |(sixteenths, _)| sixteenths);
    // With the jitter, which keeps to the maximum if there is one.
    let longest_of_all = match schedule {
        Schedule::Exponential { .. } => longest,
        _ => longest.saturating_add((longest as f64 * f64::from(sixteenths) / 16.0) as u128),
    };
    let age = settings.retain_recent.as_ref().map_or(u64::MAX, |age| {
        u64::try_from(age.duration().as_nanos().max(longest_of_all)).unwrap_or(u64::MAX).max(1)
    });
    let mut pair = PerKeyPair {
        limiter: make(),
        twin: make(),
        time,
        now: 0,
        schedule,
        longest,
        served_only: settings.served_only,
        sixteenths,
        bound: bound.unwrap_or(usize::MAX),
        generations: Generations {
            recent: HashMap::new(),
            before: HashMap::new(),
            since: 0,
            most: bound.map_or(usize::MAX, |keys| (keys / 2).max(1)),
            age,
        },
    };
    for op in ops {
        pair.step(op);
    }
    pair.check_all();
}

struct PerKeyPair<K, S> {
    limiter: PerKey<K, S>,
    /// A limiter of the same settings, which gets the same calls.
    twin: PerKey<K, S>,
    time: MockClock,
    now: u64,
    schedule: Schedule,
    longest: u128,
    served_only: bool,
    /// Of the jitter.
    sixteenths: u8,
    bound: usize,
    generations: Generations<K>,
}

impl<K: Key, S: RealSchedule> PerKeyPair<K, S> {
    fn step(&mut self, op: &KeyOp) {
        match *op {
            KeyOp::When(n) => self.when(n),
            KeyOp::WhenMany(n, count) => (0..count % 32).for_each(|more| self.when(n.wrapping_add(more))),
            KeyOp::WhenOften(n, times) => (0..times).for_each(|_| self.when(n)),
            KeyOp::Forget(n) => {
                self.limiter.forget(&key(n));
                self.twin.forget(&key(n));
                self.generations.forget(&key(n));
            }
            KeyOp::Advance(ref span) => self.advance(span.nanos()),
            KeyOp::AdvanceToEnd(n, side) => {
                let until = self.generations.peek(&key(n), self.now).until;
                self.advance(side.of(until.saturating_sub(self.now)));
            }
            KeyOp::AdvanceByAge(side) => self.advance(side.of(self.generations.age)),
            KeyOp::ShrinkToFit => {
                self.limiter.shrink_to_fit();
                self.twin.shrink_to_fit();
                self.generations.grow_old(self.now);
            }
        }
        assert_eq!(self.limiter.tracked_len(), self.generations.len());
        assert!(self.limiter.tracked_len() <= self.bound.max(2));
    }

    /// Stops before the last instant, at which even keys that are kept without an age limit are too old.
    fn advance(&mut self, by: u64) {
        let by = by.min(u64::MAX - 1 - self.now);
        self.time.advance(Duration::from_nanos(by));
        self.now += by;
    }

    fn when(&mut self, n: u8) {
        let key = key(n);
        let answer = self.limiter.when(&key);
        assert_eq!(answer, self.twin.when(&key), "the same seed, the same calls");
        let memory = self.generations.update(&key, self.now);
        if self.served_only && self.now < memory.until {
            let rest = Duration::from_nanos(memory.until - self.now);
            // A delay that ends at the last instant may be longer than the clock can represent.
            assert!(answer == rest || (memory.until == u64::MAX && answer > rest), "{answer:?}, rest {rest:?}");
        } else {
            let exact = self.schedule.delay(memory.failures);
            if self.sixteenths == 0 {
                assert_eq!(answer, duration(exact));
            } else {
                let (least, most) = with_jitter(&self.schedule, self.longest, self.sixteenths, exact);
                assert!((least..=most).contains(&answer.as_nanos()), "{answer:?} for {least} to {most} ns");
            }
            memory.failures += 1;
            if self.served_only {
                memory.until = self.now.saturating_add(saturated(answer));
            }
        }
        assert_eq!(self.limiter.num_requeues(&key), memory.failures as usize);
    }

    fn check_all(&self) {
        for key in (0..24).map(key::<K>) {
            assert_eq!(self.limiter.num_requeues(&key), self.generations.peek(&key, self.now).failures as usize);
        }
    }
}

/// The shortest and the longest answer for a delay. One that might exceed the maximum counts as the longest that does not.
fn with_jitter(schedule: &Schedule, longest: u128, sixteenths: u8, delay: u128) -> (u128, u128) {
    let (sixteenths, never) = (u128::from(sixteenths), Duration::MAX.as_nanos());
    let rounding = |nanos: u128| nanos >> 48; // of doubles
    match schedule {
        Schedule::Exponential { .. } if longest < never && delay * (16 + sixteenths) > longest * 16 => {
            let least = (longest * 16 / (16 + sixteenths)).max(1);
            (least - rounding(least), longest)
        }
        _ => {
            let most = delay * (16 + sixteenths) / 16;
            (delay, (most + rounding(most)).min(never))
        }
    }
}

// ---- the bucket ----

impl BucketSettings {
    fn rate(&self) -> f64 {
        match self.rate {
            Rate::Bits(bits) => f64::from_bits(bits),
            Rate::Every(nanos) => GIGA as f64 / nanos.max(1) as f64,
            Rate::Whole(rate) => rate.into(),
            Rate::Ten(n) => 10_f64.powi(n.into()),
            Rate::Infinite => f64::INFINITY,
        }
    }

    fn burst(&self) -> u32 {
        match self.burst {
            Burst::Few(burst) => burst.into(),
            Burst::Any(burst) => burst,
        }
    }

    /// `None` if the settings are invalid, which the crate has to report.
    fn bucket(&self, clock: Clock) -> Option<Bucket> {
        let rate = self.rate();
        let bucket = Bucket::try_with_clock(rate, self.burst(), clock);
        assert_eq!(bucket.is_err(), rate.is_nan() || rate < 0.0, "{bucket:?}");
        let bucket = bucket.ok()?;
        Some(bucket.max_ahead(self.ahead()))
    }

    /// `max_ahead`, or no limit if it comes near the end of the bucket's time range.
    fn ahead(&self) -> Duration {
        let ahead = self.max_ahead.as_ref().map_or(Duration::MAX, Span::duration);
        if ahead.as_nanos() > 1 << 60 { Duration::MAX } else { ahead }
    }
}

/// A bucket of integers: a nanosecond and a token are whole numbers of units.
struct Exact {
    nanosecond: BigUint,
    token: BigUint,
    burst: BigUint,
    /// The units up to which all is spent.
    spent: BigUint,
    now: BigUint,
}

impl Exact {
    fn new(rate: f64, burst: u32) -> Self {
        let bits = rate.abs().to_bits();
        let (digits, power) = match (bits & ((1 << 52) - 1), bits >> 52) {
            (digits, 0) => (digits, 1_074),
            (digits, exponent) => (digits | 1 << 52, 1_075 - exponent as i32),
        };
        // The rate is digits / 2^power.
        let (nanosecond, token) = (BigUint::from(digits), BigUint::from(GIGA));
        let (nanosecond, token) = if power > 0 { (nanosecond, token << power) } else { (nanosecond << -power, token) };
        let burst = &token * burst;
        Self { nanosecond, token, burst, spent: BigUint::ZERO, now: BigUint::ZERO }
    }

    /// `spent` after one more token.
    fn next(&self) -> BigUint {
        (&self.spent).max(&self.now) + &self.token
    }

    /// The wait after `spent` units are spent, in nanoseconds, rounded up; negative if the token is there already. Saturates.
    fn wait(&self, spent: &BigUint) -> i128 {
        let free = &self.now + &self.burst;
        if *spent > free {
            self.nanos(&(spent - free + &self.nanosecond - 1_u32))
        } else {
            -self.nanos(&(free - spent))
        }
    }

    /// Units in nanoseconds, rounded down.
    fn nanos(&self, units: &BigUint) -> i128 {
        if self.nanosecond == BigUint::ZERO {
            return if *units == BigUint::ZERO { 0 } else { i128::MAX };
        }
        (units / &self.nanosecond).try_into().unwrap_or(i128::MAX)
    }
}

/// By how many nanoseconds a wait may be shorter than the exact one, rounded up, and by how many longer. If a token takes a
/// whole number of nanoseconds, both are zero.
const EARLY: i128 = 2;
const LATE: i128 = 3;
/// A century and a half in nanoseconds. Answers that reach further ahead are not checked for being too long.
const LONG: i128 = 1 << 62;

fn run_bucket(settings: &BucketSettings, ops: &[BucketOp]) {
    let (clock, time) = Clock::mock();
    let Some(bucket) = settings.bucket(clock) else { return };
    let (rate, burst) = (settings.rate(), settings.burst());
    // More than a token for each nanosecond is no limit.
    let limit = match (rate, burst) {
        (f64::INFINITY, _) => Limit::Nothing,
        (_, 0) => Limit::Everything,
        (rate, _) if rate > 1e9 => Limit::Nothing,
        _ => Limit::Rate,
    };
    let exact = if limit == Limit::Rate { Exact::new(rate, burst) } else { Exact::new(1.0, 1) };
    let fill = exact.nanos(&exact.burst);
    let whole = exact.nanosecond != BigUint::ZERO && &exact.token % &exact.nanosecond == BigUint::ZERO;
    let mut pair = BucketPair {
        bucket: &bucket,
        time,
        now: 0,
        limit,
        ahead: settings.ahead(),
        fill,
        // The burst is divided into at least 2^61 parts, if a part is longer than a nanosecond.
        early: if whole && fill < LONG / 2 { 0 } else { EARLY } + (fill >> 60),
        late: if whole && fill < LONG / 2 { 0 } else { LATE } + (fill >> 59),
        exact,
        kept: Vec::new(),
    };
    for op in ops {
        pair.step(op);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Nothing,
    Everything,
    Rate,
}

struct BucketPair<'b> {
    bucket: &'b Bucket,
    time: MockClock,
    now: u64,
    limit: Limit,
    ahead: Duration,
    exact: Exact,
    /// The nanoseconds that it takes to fill the bucket.
    fill: i128,
    /// [`EARLY`] and [`LATE`], for this bucket.
    early: i128,
    late: i128,
    /// Reservations, each with `spent` after it.
    kept: Vec<(Reservation<'b>, Option<BigUint>)>,
}

impl<'b> BucketPair<'b> {
    fn step(&mut self, op: &BucketOp) {
        match *op {
            BucketOp::Reserve => _ = self.reserve(),
            BucketOp::ReserveMany(count) => (0..count).for_each(|_| _ = self.reserve()),
            BucketOp::When => self.when(),
            BucketOp::Keep => {
                let kept = self.reserve();
                self.kept.extend(kept);
            }
            BucketOp::Cancel(n) => {
                if let Some(at) = index(n, self.kept.len()) {
                    let (reservation, spent) = self.kept.swap_remove(at);
                    self.cancel(reservation, spent);
                }
            }
            BucketOp::TryAcquire => _ = self.try_acquire(),
            BucketOp::TryAcquireAll => {
                for _ in 0..300 {
                    if self.try_acquire().is_err() {
                        break;
                    }
                }
            }
            BucketOp::Acquire => {
                if let Err(error) = self.try_acquire() {
                    let wait = saturated(error.wait());
                    if i128::from(self.now) + i128::from(wait) < LONG / 2 {
                        self.advance(wait);
                        assert!(self.try_acquire().is_ok(), "a token was promised after {wait} ns");
                    }
                }
            }
            BucketOp::Advance(ref span) => self.advance(span.nanos()),
            BucketOp::AdvanceTokens(hundredths, side) => {
                let by = self.exact.nanos(&(&self.exact.token * hundredths / 100_u32));
                self.advance(side.of(u64::try_from(by).unwrap_or(u64::MAX)));
            }
        }
    }

    /// Keeps the clock away from the end of the bucket's time range.
    fn advance(&mut self, by: u64) {
        let by = by.min((LONG / 2) as u64 - self.now);
        self.time.advance(Duration::from_nanos(by));
        self.now += by;
        self.exact.now = &self.exact.nanosecond * self.now;
    }

    /// The shortest and the longest answer that are allowed for an exact wait.
    fn range(&self, wait: i128) -> (i128, i128) {
        let ends = i128::from(self.now).saturating_add(self.fill).saturating_add(wait.max(0));
        let far = ends.saturating_add(self.exact.nanos(&self.exact.token)) >= LONG;
        let from = wait.saturating_sub(self.early).max(0);
        (from, if far { i128::MAX } else { wait.saturating_add(self.late).max(0) })
    }

    fn check(&self, delay: Duration, wait: i128) {
        let (from, to) = self.range(wait);
        let delay = if delay == Duration::MAX { i128::MAX } else { delay.as_nanos() as i128 };
        assert!(from.min(u64::MAX.into()) <= delay && delay <= to, "{delay} ns, exact is {wait}");
    }

    /// Whether a wait is within `max_ahead`. `None`: too close to it to decide.
    fn near(&self, wait: i128) -> Option<bool> {
        let ahead = self.ahead.as_nanos() as i128;
        match self.range(wait) {
            _ if self.ahead == Duration::MAX => Some(true),
            (_, to) if to <= ahead => Some(true),
            (from, _) if from > ahead => Some(false),
            _ => None,
        }
    }

    /// Reserves, and returns the reservation with `spent` after it, if it spent a token.
    fn reserve(&mut self) -> Option<(Reservation<'b>, Option<BigUint>)> {
        let reservation = self.bucket.reserve();
        let delay = reservation.delay();
        let spent = match self.limit {
            Limit::Rate => {
                let spent = self.exact.next();
                let wait = self.exact.wait(&spent);
                match self.near(wait) {
                    Some(true) => {
                        self.check(delay, wait);
                        Some(spent)
                    }
                    Some(false) => {
                        assert_eq!(delay, self.ahead, "exact is {wait} ns");
                        None
                    }
                    None => {
                        assert!(delay <= self.ahead);
                        // Cancelled at once, so that it does not matter whether it spent a token.
                        reservation.cancel();
                        return None;
                    }
                }
            }
            limit => {
                assert_eq!(delay, if limit == Limit::Nothing { Duration::ZERO } else { self.ahead });
                None
            }
        };
        if let Some(spent) = &spent {
            self.exact.spent.clone_from(spent);
        }
        Some((reservation, spent))
    }

    fn when(&mut self) {
        let (spent, bucket) = (self.exact.next(), self.bucket as &dyn RateLimiter<str>);
        let wait = self.exact.wait(&spent);
        match (self.limit, self.near(wait)) {
            (Limit::Rate, Some(true)) => {
                self.check(bucket.when(""), wait);
                self.exact.spent = spent;
            }
            (Limit::Rate, None) => _ = self.reserve(),
            (Limit::Nothing, _) => assert_eq!(bucket.when(""), Duration::ZERO),
            _ => assert_eq!(bucket.when(""), self.ahead),
        }
    }

    fn cancel(&mut self, reservation: Reservation<'_>, spent: Option<BigUint>) {
        let infinite = reservation.delay() == Duration::MAX;
        let cancelled = reservation.cancel();
        let Some(spent) = spent else {
            assert!(!cancelled, "nothing was spent");
            return;
        };
        let later = self.exact.nanos(&((&self.exact.spent).max(&spent) - (&self.exact.spent).min(&spent)));
        // Rounding may give neighbours the same place. At the end of the time range no reservation can be cancelled.
        if later > self.early {
            assert!(!cancelled, "there is a later reservation");
        } else if self.exact.spent == spent {
            assert!(cancelled || infinite, "the latest reservation can be cancelled");
        }
        if cancelled {
            self.exact.spent -= &self.exact.token;
        }
    }

    fn try_acquire(&mut self) -> Result<(), TryAcquireError> {
        let acquired = self.bucket.try_acquire();
        if self.limit != Limit::Rate {
            assert_eq!(acquired.is_ok(), self.limit == Limit::Nothing);
            assert!(acquired.is_ok() || acquired.is_err_and(|error| error.wait() == Duration::MAX));
            return acquired;
        }
        let spent = self.exact.next();
        let wait = self.exact.wait(&spent);
        let (from, to) = self.range(wait);
        match acquired {
            Ok(()) => {
                assert_eq!(from, 0, "{wait} ns too early");
                self.exact.spent = spent;
            }
            Err(error) => {
                assert!(to > 0, "the token has been there for {} ns", -wait);
                assert_ne!(error.wait(), Duration::ZERO);
                self.check(error.wait(), wait);
            }
        }
        acquired
    }
}

// ---- the deduping bucket ----

fn run_deduping<K: Key>(settings: &BucketSettings, ops: &[KeyOp]) {
    let (clock, time) = Clock::mock();
    let (Some(bucket), Some(twin)) = (settings.bucket(clock.clone()), settings.bucket(clock)) else { return };
    let mut pair =
        DedupingPair::<K> { limiter: DedupingBucket::new(bucket), twin, time, now: 0, until: HashMap::new() };
    for op in ops {
        pair.step(op);
    }
    pair.limiter.shrink_to_fit();
    pair.until.retain(|_, until| *until > pair.now);
    assert_eq!(pair.limiter.tracked_len(), pair.until.len(), "keys with a token outstanding");
}

struct DedupingPair<K> {
    limiter: DedupingBucket<K>,
    /// An equal bucket, called whenever the limiter has to call its own.
    twin: Bucket,
    time: MockClock,
    now: u64,
    /// When each key's token may be used.
    until: HashMap<K, u64>,
}

impl<K: Key> DedupingPair<K> {
    fn step(&mut self, op: &KeyOp) {
        match *op {
            KeyOp::When(n) => self.when(n),
            KeyOp::WhenMany(n, count) => (0..count % 32).for_each(|more| self.when(n.wrapping_add(more))),
            KeyOp::WhenOften(n, times) => (0..times).for_each(|_| self.when(n)),
            KeyOp::Forget(n) => {
                self.limiter.forget(&key(n));
                self.until.remove(&key(n));
            }
            KeyOp::Advance(ref span) => self.advance(span.nanos()),
            KeyOp::AdvanceToEnd(n, side) => {
                let until = self.until.get(&key(n)).copied().unwrap_or_default();
                self.advance(side.of(until.saturating_sub(self.now)));
            }
            KeyOp::AdvanceByAge(_) => {}
            KeyOp::ShrinkToFit => {
                self.limiter.shrink_to_fit();
                self.until.retain(|_, until| *until > self.now);
                assert_eq!(self.limiter.tracked_len(), self.until.len());
            }
        }
        let outstanding = self.until.values().filter(|&&until| until > self.now).count();
        assert!((outstanding..=self.until.len()).contains(&self.limiter.tracked_len()));
    }

    /// Stops before the last instant, at which even keys that are kept without an age limit are too old.
    fn advance(&mut self, by: u64) {
        let by = by.min(u64::MAX - 1 - self.now);
        self.time.advance(Duration::from_nanos(by));
        self.now += by;
    }

    fn when(&mut self, n: u8) {
        let until = self.until.entry(key(n)).or_default();
        let expected = if self.now < *until {
            if *until == u64::MAX { Duration::MAX } else { Duration::from_nanos(*until - self.now) }
        } else {
            let delay = self.twin.reserve().delay();
            *until = self.now.saturating_add(saturated(delay));
            delay
        };
        assert_eq!(self.limiter.when(&key(n)), expected);
        assert_eq!(self.limiter.num_requeues(&key(n)), 0);
    }
}
