//! Log-linear histogram of durations, with an error of 6 % in 4 KiB.
//!
//! ```text
//!   nanoseconds, binary:   0…0 1 b b b x x x … x
//!                              │ └─┬─┘ └───┬───┘
//!      the highest bit set: ───┘   │       └── not recorded
//!      the octave                  └────────── the eighth of the octave
//! ```
//!
//! A bucket is an eighth of an octave, as in HdrHistogram with one significant digit. Recording takes a shift and an add, so the queue can
//! afford it under its lock.

use std::fmt;
use std::time::Duration;

/// An octave has `2^BITS` buckets.
const BITS: u32 = 3;
const EIGHTHS: usize = 1 << BITS;
/// One bucket for each number below 8, and eight for each of 61 octaves.
const BUCKETS: usize = EIGHTHS * (1 + 64 - BITS as usize);

/// Measured durations: their number, their sum and their distribution. [`Inspect::metrics`](crate::Inspect::metrics) returns them.
///
/// The sum is exact. A bucket is an eighth of a power of two wide, so each duration is within 6 % of the middle of its bucket. With more
/// than a million keys a second, the queue measures one key in eight, which counts for the others, unless it has priorities.
///
/// With the feature `serde`: `Serialize` and `Deserialize`, with the fields `count`, `sum` and `buckets` (the pairs of
/// [`buckets`](Self::buckets)).
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
/// let waited = queue.inspect().metrics().queue_duration;
/// assert_eq!((waited.count(), waited.sum()), (1, Duration::from_millis(20)));
/// let median = waited.quantile(0.5).as_secs_f64();
/// assert!((median / 0.020 - 1.0).abs() < 0.0625);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(into = "Data", try_from = "Data"))]
pub struct Histogram {
    count: u64,
    /// In nanoseconds.
    sum: u128,
    buckets: Box<[u64; BUCKETS]>,
}

#[inline]
fn bucket(nanos: u64) -> usize {
    // Below 8, the octave is 0, and the bucket is the number itself.
    let octave = (nanos | (EIGHTHS as u64 - 1)).ilog2() - (BITS - 1);
    if octave == 0 {
        nanos as usize
    } else {
        ((octave as usize) << BITS) | (nanos >> (octave - 1)) as usize & (EIGHTHS - 1)
    }
}

/// The first and the last number of nanoseconds in a bucket.
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

    /// Becomes equal to another histogram, without an allocation.
    pub(crate) fn copy(&mut self, other: &Self) {
        (self.count, self.sum) = (other.count, other.sum);
        self.buckets.copy_from_slice(&other.buckets[..]);
    }

    /// Adds all durations of another histogram, without an allocation.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.buckets.iter_mut().zip(&other.buckets[..]).for_each(|(count, more)| *count += more);
    }

    /// The number of durations.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().measure(true).build();
    /// queue.add(1);
    /// queue.get().unwrap().done();
    /// assert_eq!(queue.inspect().metrics().work_duration.count(), 1);
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact sum of all durations, but at most 584 years.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::builder().measure(true).build();
    /// println!("the workers were busy for {:?}", queue.inspect().metrics().work_duration.sum());
    /// ```
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// The mean, or zero if there are no durations.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::builder().measure(true).build();
    /// println!(
    ///     "a key waited for {:?} on average",
    ///     queue.inspect().metrics().queue_duration.mean()
    /// );
    /// ```
    #[must_use]
    pub fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(mean as u64) // each duration is a u64
    }

    /// A quantile, of which 0.5 is the median. Returns the middle of its bucket, or zero if there are no durations. A share below 0 counts
    /// as 0, above 1 as 1, and NaN as 0.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::builder().measure(true).build();
    /// println!(
    ///     "99 of 100 keys waited for less than {:?}",
    ///     queue.inspect().metrics().queue_duration.quantile(0.99)
    /// );
    /// ```
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        // A float is exact up to 2^53 durations.
        let rank = ((share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reached = self.buckets.iter().position(|&count| {
            below += count;
            below >= rank
        });
        reached.map_or(Duration::ZERO, middle)
    }

    /// The buckets that are not empty, shortest first, each as its middle and its number of durations.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().measure(true).build();
    /// queue.add(1);
    /// queue.get().unwrap().done();
    /// for (duration, count) in queue.inspect().metrics().work_duration.buckets() {
    ///     println!("{count} of about {duration:?}");
    /// }
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counts = self.buckets.iter().enumerate().filter(|&(_, &count)| count > 0);
        counts.map(|(bucket, &count)| (middle(bucket), count))
    }

    /// Whether this can be a later state of that histogram.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "used by the exporter"))]
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        self.buckets.iter().zip(earlier.buckets.iter()).all(|(count, earlier)| count >= earlier)
    }

    /// The durations that were recorded since an earlier state of the same histogram.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder().measure(true).build();
    /// let before = queue.inspect().metrics().work_duration;
    /// queue.add(1);
    /// queue.get().unwrap().done();
    /// assert_eq!(queue.inspect().metrics().work_duration.since(&before).count(), 1);
    /// ```
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

#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Histogram")]
struct Data {
    /// Written for a reader of the data, but not read back, because the buckets have it.
    count: u64,
    sum: Duration,
    /// As [`Histogram::buckets`] has them.
    buckets: Vec<(Duration, u64)>,
}

#[cfg(feature = "serde")]
impl From<Histogram> for Data {
    fn from(histogram: Histogram) -> Self {
        const NANOS: u128 = 1_000_000_000;
        let seconds = u64::try_from(histogram.sum / NANOS).unwrap_or(u64::MAX);
        let sum = Duration::new(seconds, (histogram.sum % NANOS) as u32);
        Self { count: histogram.count, sum, buckets: histogram.buckets().collect() }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Data> for Histogram {
    type Error = &'static str;

    fn try_from(data: Data) -> Result<Self, Self::Error> {
        let mut histogram = Self { sum: data.sum.as_nanos(), ..Self::default() };
        for (duration, count) in data.buckets {
            histogram.count = histogram.count.checked_add(count).ok_or("more than 2^64 durations")?;
            histogram.buckets[bucket(crate::time::nanos(duration))] += count;
        }
        Ok(histogram)
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
