//! What a user says of groups: their limits, how they share the queue, and calls on one of them.

use crate::order::{Group as Order, Limits, PerSecond};
use crate::shared::{MAX_WEIGHT, Shared, most_processing};
use crate::{GroupStats, InvalidArgument, WorkQueue};
use std::fmt;
use std::time::Duration;

/// The share of a group, and what holds it back: for [`group_limits`](crate::WorkQueueBuilder::group_limits) and [`Group::set`].
///
/// By default a group has a weight of 1, and nothing holds it back.
///
/// A group is *held back* while it is [full](Self::max_processing), [throttled](Self::rate) or [paused](Group::pause). Then the queue hands
/// out none of its queued keys. They stay queued: they count in [`len`](WorkQueue::len), calls may [remove](WorkQueue::remove) them, and
/// adds, delays and retries go on. Drains and [`wait_idle`](WorkQueue::wait_idle) wait for them, and so do getters after a shut-down.
/// [`Workers::stop`](crate::Workers::stop), and a drain of workers at its deadline, return them.
///
/// With the feature `serde`: `Serialize` and `Deserialize`. A field that is missing has its default.
///
/// # Examples
/// ```
/// use keyqueue::GroupLimits;
///
/// // twice the share of others; four requests at a time; 5 a second, and 10 at once
/// let limits = GroupLimits::new().weight(2).max_processing(4).rate(5.0, 10);
/// assert_eq!((limits.weight, limits.max_processing), (2, Some(4)));
/// ```
#[doc(alias = "tenant")]
#[doc(alias = "quota")]
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[must_use]
#[non_exhaustive]
pub struct GroupLimits {
    /// The number of keys that the group gives in a turn, from 1 to 1000: see [`weight`](Self::weight).
    pub weight: u32,
    /// At most this number of its keys are processing at a time. `None`: any number.
    pub max_processing: Option<usize>,
    /// Its hand-outs in a second, and the number of them that may come at once. `None`: any number.
    pub rate: Option<(f64, u32)>,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupLimits {
    /// A weight of 1, and no limits.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::GroupLimits;
    ///
    /// assert_eq!(GroupLimits::new().rate, None);
    /// ```
    pub const fn new() -> Self {
        Self { weight: 1, max_processing: None, rate: None }
    }

    /// How many keys the group gives in a turn, from 1 to 1000. Other values are clamped. With [`FairShare::WorkTime`], a turn is instead worth
    /// the average handler time multiplied by the weight.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::GroupLimits;
    ///
    /// let paid = GroupLimits::new().weight(10);
    /// ```
    pub const fn weight(mut self, weight: u32) -> Self {
        self.weight = match weight {
            0 => 1,
            1..=MAX_WEIGHT => weight,
            _ => MAX_WEIGHT,
        };
        self
    }

    /// The number of keys of the group that may be processing at a time. 0 is [refused](Group::set): [`pause`](Group::pause) the group
    /// instead.
    ///
    /// A group at its limit is *full* until one of its processing keys is done. It ends its turn when it reaches the limit, whatever its
    /// weight. When it has room again, it goes ahead of the groups that have had turns if it has missed one meanwhile, and otherwise joins
    /// at the end. With priorities, the levels of a group share its room. So that none of them starves, one that others of its group have
    /// overtaken often gets a hand-out of its own, unless the queue is strict.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::GroupLimits;
    ///
    /// let one_by_one = GroupLimits::new().max_processing(1);
    /// ```
    #[doc(alias = "concurrency")]
    pub const fn max_processing(mut self, keys: usize) -> Self {
        self.max_processing = Some(keys);
        self
    }

    /// How many keys of the group may be handed out in a second, and how many at once.
    ///
    /// Over any span of time the group gets at most `burst + per_second * span` hand-outs. This is as exact as a
    /// [`Bucket`](crate::rate_limiter::Bucket), and by the clock of the queue. A group without a token is *throttled*, until the token is
    /// there and the driver makes its keys ready. A token is spent by a hand-out, and by nothing else. It stays spent while the group has
    /// no key.
    ///
    /// A rate above 10^9 is no limit. A rate that is not a finite number or less than one in a year, which is 3.17e-8, and a burst of 0 are
    /// [refused](Group::set).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::GroupLimits;
    ///
    /// let polite = GroupLimits::new().rate(0.5, 1); // one request in two seconds
    /// ```
    #[doc(alias = "throttle")]
    #[doc(alias = "rate_limit")]
    pub const fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some((per_second, burst));
        self
    }

    /// The limits that the order has.
    pub(crate) fn of(limits: &Limits) -> Self {
        let max_processing = (limits.max_processing < u32::MAX).then_some(limits.max_processing as usize);
        Self { weight: limits.weight.into(), max_processing, rate: limits.rate.map(PerSecond::get) }
    }

    /// The limits as the order has them.
    pub(crate) fn check(self) -> Result<Limits, InvalidArgument> {
        let Self { weight, max_processing, rate } = self;
        if max_processing == Some(0) {
            return Err(InvalidArgument::new("max_processing", 0, "no key would be handed out"));
        }
        if let Some((rate, burst)) = rate {
            InvalidArgument::check_rate("rate", rate, burst)?;
        }
        Ok(Limits {
            weight: weight.clamp(1, MAX_WEIGHT) as u16,
            max_processing: most_processing(max_processing),
            rate: rate.filter(|(rate, _)| *rate <= 1e9).map(|(rate, burst)| PerSecond::new(rate, burst)),
        })
    }
}

/// How [groups](crate::WorkQueueBuilder::fair_by) pay for their turns: see [`fair_share`](crate::WorkQueueBuilder::fair_share).
///
/// # Examples
/// ```
/// use keyqueue::{FairShare, WorkQueue};
///
/// let builder = WorkQueue::builder().fair_by(|&(tenant, _): &(u8, u32)| tenant);
/// let queue = builder.fair_share(FairShare::WorkTime).build();
/// # queue.add((1, 1));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FairShare {
    /// By the number of their hand-outs.
    #[default]
    HandOuts,
    /// By the time that their keys are processing, from the hand-out to its end. A group whose handlers take ten times as long gets a tenth
    /// of the hand-outs. Such a queue reads the clock at each hand-out and at its end.
    WorkTime,
}

/// One [group](crate::WorkQueueBuilder::fair_by) of a queue, from [`WorkQueue::group`]: changes its limits, and pauses it.
///
/// The handle is as cheap as a reference. It has the hash of the group, and no key.
///
/// # Examples
/// ```
/// use keyqueue::{Clock, Driver, GroupLimits, WorkQueue};
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
/// let queue = builder.fair_by(|&(host, _): &(&str, u32)| host.to_owned()).build();
/// queue.add_all([("a.example", 1), ("a.example", 2), ("b.example", 1)]);
///
/// let host = queue.group(&("a.example", 0)); // any key of the group
/// host.pause(Duration::from_secs(30))?; // it has answered 429
/// assert_eq!(*queue.get().unwrap(), ("b.example", 1));
/// assert!(queue.try_get().is_err() && queue.len() == 2);
///
/// host.set(GroupLimits::new().max_processing(1))?;
/// time.advance(Duration::from_secs(30));
/// queue.turn();
/// assert_eq!(queue.get_many(2).len(), 1);
/// # Ok::<(), keyqueue::InvalidArgument>(())
/// ```
#[doc(alias = "tenant")]
#[must_use = "a handle of a group changes nothing by itself"]
pub struct Group<'q, K> {
    queue: &'q WorkQueue<K>,
    /// With the limits that the builder's functions give.
    group: Order,
}

impl<K> WorkQueue<K> {
    /// The group of a key, whether it is known or not: to change its limits, to pause it, and to look at it. The key need not be in the
    /// queue.
    ///
    /// Asks [`fair_by`](crate::WorkQueueBuilder::fair_by) for the group, and [`group_limits`](crate::WorkQueueBuilder::group_limits) for
    /// its limits, which [`unset`](Group::unset) needs.
    ///
    /// # Panics
    /// If one of these functions does.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    /// queue.group(&1).pause(Duration::MAX)?; // odd keys wait
    /// queue.add_all([1, 2, 3]);
    /// assert_eq!(*queue.get().unwrap(), 2);
    /// queue.group(&3).resume();
    /// assert_eq!(*queue.get().unwrap(), 1);
    /// # Ok::<(), keyqueue::InvalidArgument>(())
    /// ```
    #[doc(alias = "tenant")]
    pub fn group(&self, key: &K) -> Group<'_, K> {
        Group { queue: self, group: self.shared.group_of(key) }
    }
}

impl<K> Group<'_, K> {
    /// Gives the group these limits from now on, in place of those that [`group_limits`](crate::WorkQueueBuilder::group_limits) or
    /// [`group_weight`](crate::WorkQueueBuilder::group_weight) give. They stay until [`unset`](Self::unset), also while the group has no
    /// key. The queue keeps 100 bytes for such a group, and [`Stats::groups_set`](crate::Stats::groups_set) counts them.
    ///
    /// A lower limit takes no key from its holder: the group is full until fewer keys are processing. A higher limit makes queued keys ready
    /// at once, and wakes a getter for each. With another rate, the tokens that the group has spent stay spent.
    ///
    /// # Errors
    /// * If the queue has no [groups](crate::WorkQueueBuilder::fair_by).
    /// * If the limit or the burst is 0, or the [rate](GroupLimits::rate) is not a finite number or less than one in a year.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{GroupLimits, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    /// queue.add_all([1, 3, 5, 7]);
    /// queue.group(&1).set(GroupLimits::new().max_processing(1))?;
    /// let first = queue.get_many(4);
    /// assert_eq!(first.len(), 1);
    /// queue.group(&1).set(GroupLimits::new().max_processing(3))?;
    /// assert_eq!(queue.get_many(4).len(), 2);
    ///
    /// let error = queue.group(&1).set(GroupLimits::new().max_processing(0)).unwrap_err();
    /// assert_eq!(error.to_string(), "max_processing is 0: no key would be handed out");
    /// # Ok::<(), keyqueue::InvalidArgument>(())
    /// ```
    pub fn set(self, limits: GroupLimits) -> Result<(), InvalidArgument> {
        let shared = &self.queue.shared;
        shared.check_groups("set")?;
        let checked = limits.check()?;
        Shared::set_group(shared, Order { limits: checked, ..self.group });
        Ok(())
    }

    /// Ends what [`set`](Self::set) has begun: the limits that the builder's functions gave for the key of this handle count again. If the
    /// group has no key, the queue forgets it, as soon as its pause is over and the tokens that it has spent are there again.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{GroupLimits, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    /// queue.group(&1).set(GroupLimits::new().max_processing(1))?;
    /// queue.add_all([1, 3, 5]);
    /// assert_eq!(queue.get_many(3).len(), 1);
    /// queue.group(&1).unset();
    /// assert_eq!(queue.get_many(3).len(), 2);
    /// # Ok::<(), keyqueue::InvalidArgument>(())
    /// ```
    pub fn unset(self) {
        Shared::unset_group(&self.queue.shared, self.group);
    }

    /// Hands out no key of the group for this time, by the clock of the queue, or until [`resume`](Self::resume). If the group is paused
    /// already, the later end counts. A pause of zero is none, and one of more than 584 years, such as [`Duration::MAX`], ends only by
    /// `resume`.
    ///
    /// Keys that are processing stay so, and queued keys [wait](GroupLimits) as in any group that is held back.
    ///
    /// # Errors
    /// If the queue has no [groups](crate::WorkQueueBuilder::fair_by).
    ///
    /// # Blocking
    /// One lock for less than a microsecond, however many keys of the group are queued.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    /// let queue = builder.fair_by(|key: &u32| key % 2).build();
    /// queue.add(1);
    /// queue.group(&1).pause(Duration::from_secs(60))?;
    /// assert!(queue.try_get().is_err());
    /// time.advance(Duration::from_secs(60));
    /// queue.turn(); // otherwise the driver thread does it
    /// assert_eq!(*queue.get().unwrap(), 1);
    /// # Ok::<(), keyqueue::InvalidArgument>(())
    /// ```
    #[doc(alias = "Retry-After")]
    #[doc(alias = "throttle")]
    pub fn pause(self, time: Duration) -> Result<(), InvalidArgument> {
        self.queue.shared.check_groups("pause")?;
        Shared::pause_group(&self.queue.shared, self.group, time);
        Ok(())
    }

    /// Ends a [pause](Self::pause) of the group. Does nothing if there is none.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    /// queue.group(&1).pause(Duration::MAX)?;
    /// queue.add(1);
    /// assert!(queue.try_get().is_err());
    /// queue.group(&1).resume();
    /// assert_eq!(*queue.try_get().unwrap(), 1);
    /// # Ok::<(), keyqueue::InvalidArgument>(())
    /// ```
    pub fn resume(self) {
        Shared::resume_group(&self.queue.shared, self.group);
    }

    /// The numbers of the group: its keys, its share, its limits, and what holds it back. `None` if the queue knows nothing of it, because it
    /// has no key, is not paused, and nothing was [set](Self::set).
    ///
    /// The call visits all groups for the [share](GroupStats::share), some at a time under the lock.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{GroupLimits, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    /// queue.add_all([1, 3, 5]);
    /// queue.group(&1).set(GroupLimits::new().weight(3))?;
    /// let _item = queue.get();
    /// let stats = queue.group(&1).stats().unwrap();
    /// assert_eq!((stats.queued, stats.processing, stats.share), (2, 1, 1.0));
    /// assert!(stats.is_set && stats.limits.weight == 3 && stats.held_back.is_none());
    /// assert_eq!(queue.group(&2).stats(), None);
    /// # Ok::<(), keyqueue::InvalidArgument>(())
    /// ```
    #[must_use]
    pub fn stats(self) -> Option<GroupStats> {
        self.queue.shared.group_stats(self.group)
    }
}

impl<K> Clone for Group<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Group<'_, K> {}

impl<K> fmt::Debug for Group<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("hash", &self.group.hash).finish_non_exhaustive()
    }
}
