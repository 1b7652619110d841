//! How often a duration was how long, to six per cent, in four kilobytes.
//!
//! ```text
//!   nanoseconds, binary:   0…0 1 b b b x x x … x
//!                              │ └─┬─┘ └───┬───┘
//!        the octave: where ────┘   │       └── what is forgotten
//!        the highest bit is        └────────── which eighth of the octave
//! ```
//!
//! A bucket is an eighth of an octave, as in HdrHistogram with one significant digit. So recording is a shift and an add, which
//! is why the queue can do it under its lock.

use std::fmt;
use std::time::Duration;

/// An octave has two to the power of this many buckets.
const BITS: u32 = 3;
const EIGHTHS: usize = 1 << BITS;
/// The numbers below 8 have a bucket each, and so have the eighths of 61 octaves.
const BUCKETS: usize = EIGHTHS * (1 + 64 - BITS as usize);

/// Durations that were measured: how many, how long together, and how they are spread. From
/// [`WorkQueue::metrics`](crate::WorkQueue::metrics).
///
/// The sum is exact; which durations they were is known to an eighth of a power of two: 6 % to either side of the middle. But if
/// keys become dirty faster than a million a second, only one in eight is measured, and stands for its neighbours.
///
/// # Examples
/// ```
/// use keyqueue::{Clock, WorkQueue};
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// let queue = WorkQueue::builder().clock(clock).measure(true).build();
/// queue.add("pod-1");
/// time.advance(Duration::from_millis(20));
/// queue.get().unwrap().done();
///
/// let waited = queue.metrics().queue_duration;
/// assert_eq!((waited.count(), waited.sum()), (1, Duration::from_millis(20)));
/// let median = waited.quantile(0.5).as_secs_f64();
/// assert!((median / 0.020 - 1.0).abs() < 0.0625);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    /// In nanoseconds.
    sum: u128,
    buckets: Box<[u64; BUCKETS]>,
}

/// The bucket of a number of nanoseconds.
#[inline]
fn bucket(nanos: u64) -> usize {
    // Below 8: the octave is 0, and the number is its own bucket.
    let octave = (nanos | (EIGHTHS as u64 - 1)).ilog2() - (BITS - 1);
    if octave == 0 {
        nanos as usize
    } else {
        ((octave as usize) << BITS) | (nanos >> (octave - 1)) as usize & (EIGHTHS - 1)
    }
}

/// The numbers of nanoseconds that are in a bucket: the first, and the last.
fn range(bucket: usize) -> (u64, u64) {
    if bucket < EIGHTHS {
        return (bucket as u64, bucket as u64);
    }
    let shift = (bucket >> BITS) - 1;
    let first = ((EIGHTHS | bucket & (EIGHTHS - 1)) as u64) << shift;
    (first, first | ((1 << shift) - 1))
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&mut self, nanos: u64, times: u64) {
        self.count += times;
        self.sum += u128::from(nanos) * u128::from(times);
        self.buckets[bucket(nanos)] += times;
    }

    /// As `clone_from`, and allocates nothing.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        (self.count, self.sum) = (other.count, other.sum);
        self.buckets.copy_from_slice(&other.buckets[..]);
    }

    /// How many durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All durations together, exactly. At most 584 years.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// The mean, or zero if there are none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(mean as u64) // each was an u64
    }

    /// The duration that this share of all is not longer than, 0.5 being the median: the middle of its bucket. Zero if there are
    /// none; a share below 0 is 0, one above 1 is 1, and NaN is 0.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        // At least the first. A float is exact enough up to 2^53 durations.
        let rank = ((share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reached = self.buckets.iter().position(|&count| {
            below += count;
            below >= rank
        });
        reached.map_or(Duration::ZERO, middle)
    }

    /// The buckets that are not empty, shortest first: the middle of each, and how many durations are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counts = self.buckets.iter().enumerate().filter(|&(_, &count)| count > 0);
        counts.map(|(bucket, &count)| (middle(bucket), count))
    }

    /// What was recorded since an earlier state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.count = since.count.saturating_sub(earlier.count);
        since.sum = since.sum.saturating_sub(earlier.sum);
        for (count, earlier) in since.buckets.iter_mut().zip(earlier.buckets.iter()) {
            *count = count.saturating_sub(*earlier);
        }
        since
    }
}

fn middle(bucket: usize) -> Duration {
    let (first, last) = range(bucket);
    Duration::from_nanos(first + (last - first) / 2)
}

impl Default for Histogram {
    fn default() -> Self {
        Self { count: 0, sum: 0, buckets: Box::new([0; BUCKETS]) }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.quantile(1.0))
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_side_by_side_and_cover_all_numbers() {
        let mut next = 0;
        for at in 0..BUCKETS {
            let (first, last) = range(at);
            assert_eq!((first, bucket(first), bucket(last)), (next, at, at));
            assert!(last - first <= first / EIGHTHS as u64, "an eighth at most");
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends with u64::MAX");
    }

    #[test]
    fn quantiles_and_differences() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (Duration::ZERO, Duration::ZERO));
        (1..=6).for_each(|nanos| histogram.record(nanos, 1));
        let at = |share| histogram.quantile(share).as_nanos();
        assert_eq!([at(0.0), at(0.5), at(0.51), at(1.0), at(f64::NAN), at(-1.0), at(7.0)], [1, 3, 4, 6, 1, 1, 6]);
        let before = histogram.clone();
        histogram.record(u64::MAX, 2);
        let since = histogram.since(&before);
        assert_eq!((since.count(), since.buckets().count(), since.sum()), (2, 1, Duration::from_nanos(u64::MAX)));
        assert_eq!(before.since(&histogram), Histogram::default());
    }
}
