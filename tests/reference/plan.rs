//! The settings of a run.

use super::events::Events;
use super::key::{Fault, Key, strike, strike_at};
use super::limits::{Limits, Schedule};
use super::random::Random;
use keyqueue::rate_limiter::{ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, Step, WithMaxWait};
use keyqueue::{Clock, DelayedAdd, Driver, FairShare, GroupLimits, MockClock, OnPanic, WorkQueue, WorkQueueBuilder};
use std::sync::Mutex;
use std::time::Duration;

/// The nanoseconds that a token takes, and the burst.
pub(crate) type Rate = (u64, u32);

/// What holds a group back: the number of its keys that may be processing, and its rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Limit {
    pub(crate) keys: Option<u32>,
    pub(crate) rate: Option<Rate>,
}

/// See the top of this file.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) shards: usize,
    /// The group of a key is the key modulo this number. `None`: no groups.
    pub(crate) groups: Option<u8>,
    /// Groups have the weights of [`weight_of`](Self::weight_of) instead of 1.
    pub(crate) weights: bool,
    pub(crate) limit: Option<u32>,
    /// Limits are set, and groups are paused, while the queue runs.
    pub(crate) tenants: bool,
    /// Each group has this rate, unless another one is set. `None`: none is set either.
    pub(crate) rate: Option<Rate>,
    /// Turns are paid in handler time.
    pub(crate) work_time: bool,
    pub(crate) strict: bool,
    pub(crate) policy: DelayedAdd,
    pub(crate) limiter: Limiter,
    pub(crate) on_panic: Option<OnPanic>,
    pub(crate) measure: bool,
    /// The queue has an observer.
    pub(crate) observed: bool,
    pub(crate) max_retries: Option<usize>,
    /// In nanoseconds; `None` without `max_retries`.
    pub(crate) then_after: Option<u64>,
    /// In nanoseconds.
    pub(crate) min_interval: u64,
    /// How long a run of workers may last, in nanoseconds.
    pub(crate) time_limit: Option<u64>,
    pub(crate) pace: Option<Rate>,
    /// The most keys that the queue knows.
    pub(crate) max_keys: Option<usize>,
    /// The queue has a layer of values over it.
    pub(crate) values: bool,
    /// The seed of the queue, which decides in which shards its keys are.
    pub(crate) seed: u8,
    /// The lock-free engine: see [`with_engine`](Self::with_engine).
    pub(crate) lock_free: bool,
    /// The number of its lines. One thread uses one of them, so the order is that of one shard.
    pub(crate) lines: usize,
    /// The run is the driver thread, and getters expire delays beside it. `None`: [`Driver::Manual`].
    pub(crate) inside: Option<Inside>,
}

/// What only the crate's own tests can do: see `src/shared/driven.rs`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inside {
    /// Builds a queue whose driver thread is the run, with a clock by which getters expire delays.
    pub(crate) build: fn(WorkQueueBuilder<Key>) -> (WorkQueue<Key>, MockClock),
    /// Makes a step of the driver thread, if there is one: adds the keys that are due, and parks.
    pub(crate) drive: fn(&WorkQueue<Key>) -> bool,
    /// Until when the driver is parked.
    pub(crate) parked_until: fn(&WorkQueue<Key>) -> Option<u64>,
    /// What getters have expired since the last call.
    pub(crate) expired: fn() -> Vec<ByGetter>,
}

/// The delays that a getter has expired in one critical section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByGetter {
    pub(crate) shard: usize,
    /// The number of hand-outs of this shard by then.
    pub(crate) handed_out: u64,
    /// Delays, and keys that have cooled down.
    pub(crate) count: usize,
    /// Others may be due, and the getter has left them.
    pub(crate) has_more: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// The queue's own: 5 ms, doubled, at most 1000 s.
    Default,
    /// 1 ns, doubled, without an end.
    Fast,
    /// Three times without a delay, and then with one that never expires.
    FastSlow,
    /// The longer of two.
    Composed,
    /// The user's own: 10 ns, doubled, at most 1 s.
    Own,
}

/// A call of the user's own limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    When,
    Forget,
    NumRequeues,
}

const SECOND: u128 = 1_000_000_000;
/// Of the composed limiter: from this failure on, this delay.
const ROWS: [(usize, u64); 3] = [(0, 1_000_000_000), (1, 0), (4, 60_000_000_000)];

/// The user's own limiter.
struct Own(Mutex<Limits<u8>>);

impl Own {
    /// The panic comes before anything is counted.
    fn call<T>(&self, call: Call, counted: impl FnOnce(&mut Limits<u8>) -> T) -> T {
        strike_at(Fault::Limiter, call as u8);
        counted(&mut self.0.lock().unwrap())
    }
}

impl RateLimiter<Key> for Own {
    fn when(&self, key: &Key) -> Duration {
        Duration::from_nanos(self.call(Call::When, |limits| limits.when(&key.number())) as u64)
    }

    fn forget(&self, key: &Key) {
        self.call(Call::Forget, |limits| limits.forget(&key.number()));
    }

    fn num_requeues(&self, key: &Key) -> usize {
        self.call(Call::NumRequeues, |limits| limits.num_requeues(&key.number()))
    }
}

/// The rate of a period, which is one of those for which it is exact.
fn per_second(period: u64) -> f64 {
    1e9 / period as f64
}

impl Plan {
    /// One line, nothing set.
    pub(crate) fn plain() -> Self {
        Self {
            shards: 1,
            groups: None,
            weights: false,
            limit: None,
            tenants: false,
            rate: None,
            work_time: false,
            strict: false,
            policy: DelayedAdd::Independent,
            limiter: Limiter::Default,
            on_panic: None,
            measure: false,
            observed: false,
            max_retries: None,
            then_after: None,
            min_interval: 0,
            time_limit: None,
            pace: None,
            max_keys: None,
            values: false,
            seed: 0,
            lock_free: false,
            lines: 1,
            inside: None,
        }
    }

    pub(crate) fn random(random: &mut Random) -> Self {
        let observed = random.once_in(4);
        let groups = random.pick(&[None, None, Some(1), Some(2), Some(3), Some(5)]);
        let limit = groups.and(random.pick(&[None, Some(1), Some(1), Some(2), Some(3)]));
        let shards = random.pick(&[1, 1, 1, 2, 4, 16, 64]);
        let max_retries = random.pick(&[None, Some(0), Some(1), Some(3)]);
        Self {
            shards,
            groups,
            weights: groups.is_some() && random.once_in(2),
            limit,
            tenants: false,
            rate: None,
            work_time: false,
            strict: random.once_in(3),
            policy: random.pick(&[DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict]),
            limiter: random.pick(&[
                Limiter::Default,
                Limiter::Fast,
                Limiter::FastSlow,
                Limiter::Composed,
                Limiter::Own,
            ]),
            on_panic: random.pick(&[None, Some(OnPanic::Done), Some(OnPanic::Retry)]),
            measure: observed || random.once_in(2), // an observer is told times
            observed,
            max_retries,
            then_after: max_retries.and(random.pick(&[None, None, Some(0), Some(70_000_000)])),
            min_interval: random.pick(&[0, 0, 0, 15]),
            time_limit: None,
            pace: None,
            max_keys: None,
            values: false,
            seed: if shards > 1 { random.byte() } else { 0 },
            lock_free: false,
            lines: 1,
            inside: None,
        }
    }

    /// With `REFERENCE_ENGINE=lock-free`, the same for the lock-free engine, without the settings that it refuses.
    pub(crate) fn with_engine(&self) -> Self {
        if !cfg!(feature = "lock-free") || std::env::var("REFERENCE_ENGINE").as_deref() != Ok("lock-free") {
            return self.clone();
        }
        Self {
            shards: 1,
            groups: None,
            weights: false,
            limit: None,
            tenants: false,
            rate: None,
            work_time: false,
            strict: false,
            policy: DelayedAdd::Independent,
            pace: None,
            lock_free: true,
            lines: self.shards,
            ..self.clone()
        }
    }

    /// Whether the limiter counts the failures, and not the queue.
    pub(crate) fn has_own_counts(&self) -> bool {
        matches!(self.limiter, Limiter::Composed | Limiter::Own)
    }

    /// Whether groups may be held back.
    pub(crate) fn has_holds(&self) -> bool {
        self.limit.is_some() || self.tenants
    }

    pub(crate) fn group_of(&self, key: u8) -> u8 {
        self.groups.map_or(0, |groups| key % groups)
    }

    /// The number of keys that a turn of a group gives.
    pub(crate) fn weight_of(&self, group: u8) -> u32 {
        match (self.groups, self.weights) {
            (None, _) => u32::MAX,
            (_, false) => 1,
            (_, true) => 1 + u32::from(group % 3),
        }
    }

    /// What the builder says of each group.
    pub(crate) fn limit(&self) -> Limit {
        Limit { keys: self.limit, rate: self.rate }
    }

    /// The crate's limits of a group.
    pub(crate) fn group_limits(&self, group: u8, limit: Limit) -> GroupLimits {
        let mut limits = GroupLimits::new().weight(self.weight_of(group));
        if let Some(keys) = limit.keys {
            limits = limits.max_processing(keys as usize);
        }
        if let Some((period, burst)) = limit.rate {
            limits = limits.rate(per_second(period), burst);
        }
        limits
    }

    /// The queue, its clock, and the plain limiter.
    pub(crate) fn build(&self, events: &Events) -> (WorkQueue<Key>, MockClock, Limits<u8>) {
        let mut builder = WorkQueue::builder()
            .shards(self.shards)
            .seed(self.seed.into())
            .delayed_add(self.policy)
            .strict_priorities(self.strict)
            .measure(self.measure);
        #[cfg(feature = "lock-free")]
        if self.lock_free {
            builder = builder.lock_free().shards(self.lines);
        }
        if self.observed {
            builder = builder.observer(events.clone());
        }
        if let Some(policy) = self.on_panic {
            builder = builder.on_panic(policy);
        }
        if self.groups.is_some() {
            let (plan, other) = (self.clone(), self.clone());
            builder = builder.fair_by(move |key: &Key| {
                strike(Fault::Group);
                plan.group_of(key.number())
            });
            if self.work_time {
                builder = builder.fair_share(FairShare::WorkTime);
            }
            if self.rate.is_some() {
                builder = builder.group_limits(move |key: &Key| {
                    strike(Fault::Weight);
                    other.group_limits(other.group_of(key.number()), other.limit())
                });
            } else if self.weights {
                builder = builder.group_weight(move |key: &Key| {
                    strike(Fault::Weight);
                    other.weight_of(other.group_of(key.number()))
                });
            }
        }
        if let Some((period, burst)) = self.pace {
            builder = builder.pace(per_second(period), burst);
        }
        if let Some(keys) = self.max_keys {
            builder = builder.max_keys(keys);
        }
        if let (Some(limit), None) = (self.limit, self.rate) {
            builder = builder.max_processing_per_group(limit as usize);
        }
        let [one, never] = [Duration::from_secs(1), Duration::MAX];
        let builder = match self.limiter {
            Limiter::Default => builder,
            Limiter::Fast => builder.rate_limiter(ItemExponentialFailure::new(Duration::from_nanos(1), never)),
            Limiter::FastSlow => builder.rate_limiter(ItemFastSlow::new(Duration::ZERO, never, 3)),
            Limiter::Own => builder.rate_limiter(Own(Mutex::new(self.limits()))),
            Limiter::Composed => {
                let limiter = WithMaxWait::new(ItemExponentialFailure::new(one, never), one * 7);
                let rows = ROWS.map(|(from, delay)| (from, Duration::from_nanos(delay)));
                builder.rate_limiter(MaxOf::new(vec![Box::new(limiter), Box::new(Step::new(rows))]))
            }
        };
        let (queue, mock) = match self.inside {
            Some(inside) => (inside.build)(builder),
            None => {
                let (clock, mock) = Clock::mock();
                (builder.clock(clock).driver(Driver::Manual).build(), mock)
            }
        };
        (queue, mock, self.limits())
    }

    /// The plain limiter.
    pub(crate) fn limits(&self) -> Limits<u8> {
        let never = Duration::MAX.as_nanos();
        let schedule = match self.limiter {
            Limiter::Default => Schedule::Exponential { base: 5_000_000, max: 1_000 * SECOND },
            Limiter::Fast => Schedule::Exponential { base: 1, max: never },
            Limiter::FastSlow => Schedule::FastSlow { fast: 0, slow: never, max_fast_attempts: 3 },
            Limiter::Own => Schedule::Exponential { base: 10, max: SECOND },
            Limiter::Composed => {
                let limits = Limits::new(Schedule::Exponential { base: SECOND, max: never });
                let rows = ROWS.map(|(from, delay)| (from as u64, delay.into()));
                let limits = Limits::MaxWait(Box::new(limits), 7 * SECOND);
                return Limits::MaxOf(vec![limits, Limits::new(Schedule::Step(rows.to_vec()))]);
            }
        };
        Limits::new(schedule)
    }

    /// The shard of each key.
    pub(crate) fn shards_of(&self, queue: &WorkQueue<Key>) -> Vec<usize> {
        let shard_of = |n| if self.shards == 1 { 0 } else { queue.shard_index(&Key::new(n)) };
        (0..=u8::MAX).map(shard_of).collect()
    }
}
