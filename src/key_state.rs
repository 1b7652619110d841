//! What one key is doing: the answer of [`Inspect::key`](crate::Inspect::key).

use crate::machine::KeySeen;
use crate::time::time_left;
use crate::{GroupLimits, HeldBack, Priority};
use std::fmt;
use std::time::Duration;

/// What a key is doing, and what it waits for: from [`Inspect::key`](crate::Inspect::key).
///
/// [`activity`](Self::activity) names the one thing that keeps the next run from beginning, unless the key is processing. A key may have
/// a [`delay`](Self::delay) beside that. `Display` makes one sentence of it, such as "queued for 3s at priority 0, behind its group's limit
/// of 2".
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use std::time::Duration;
///
/// let (clock, time) = keyqueue::Clock::mock();
/// let queue = WorkQueue::builder().clock(clock).measure(true).build();
/// queue.add("pod-1");
/// time.advance(Duration::from_secs(3));
/// let state = queue.inspect().key(&"pod-1");
/// assert_eq!(state.to_string(), "queued for 3s at priority 0, ready to be handed out");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct KeyState {
    /// What the key is doing, or what it waits for.
    pub activity: KeyActivity,
    /// How long it has been queued, or processing if it is. Exact if it is known. `None` in a queue that does not
    /// [measure](crate::WorkQueueBuilder::measure), for a key that is neither, and for one that was not measured because keys came faster
    /// than a million a second. But it is known of each run with a [time limit](crate::WorkersBuilder::time_limit). In a lock-free queue,
    /// while the key is being handed out or its run ends, it may be the time of another run, and so may be whether that is late.
    pub elapsed: Option<Duration>,
    /// The priority with which it is queued, was handed out, or will be added after its delay.
    pub priority: Priority,
    /// The limits of its group, if it is queued or processing in a queue with groups.
    pub limits: Option<GroupLimits>,
    /// The delay that ends first, if it has one.
    pub delay: Option<KeyDelay>,
    /// Its failures since they were last forgotten, as [`num_requeues`](crate::WorkQueue::num_requeues) counts them.
    pub failures: usize,
    /// The error of its last failed run, if its workers [keep errors](crate::WorkersBuilder::keep_errors), and no run has succeeded since,
    /// other than with [`RequeueWith`](crate::Outcome::RequeueWith): the first kilobyte of its text, or the message of the panic.
    pub last_error: Option<String>,
}

/// What a key is doing, or the one cause for which it waits: see [`KeyState::activity`].
///
/// # Examples
/// ```
/// use keyqueue::{KeyActivity, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.add("pod-1");
/// assert_eq!(queue.inspect().key(&"pod-1").activity, KeyActivity::Queued);
/// let item = queue.get();
/// assert_eq!(queue.inspect().key(&"pod-1").activity, KeyActivity::Processing { dirty: false, late: false });
/// # drop(item);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum KeyActivity {
    /// It is neither queued, processing nor delayed, so no run is to come. The queue may still count its failures.
    Absent,
    /// It is queued, and nothing holds it back: it waits for its turn, or for a worker.
    Queued,
    /// It is queued, and its group is held back. If several things hold that back, this is a pause if there is one, and else the rate.
    HeldBack(HeldBack),
    /// It is queued, nothing holds its group back, and the queue is [paused](crate::WorkQueue::pause).
    Paused,
    /// It is queued, and the [pace](crate::WorkQueueBuilder::pace) of the queue has no token. A pause of the group or of the queue, and
    /// the limits of the group, come before that.
    Paced {
        /// The time until the next token comes, which may go to another key.
        left: Duration,
    },
    /// It is processing.
    Processing {
        /// Whether it was added since its hand-out, and so runs once more.
        dirty: bool,
        /// Whether its run has lasted longer than the [time limit](crate::WorkersBuilder::time_limit) of its workers.
        late: bool,
    },
    /// It waits for its [delay](KeyState::delay). The end of the delay queues it, unless a shut-down has cut the delay off.
    Delayed,
    /// It [cools down](crate::Item::cool_down), and no run is to come. An add would wait until the end.
    CoolingDown {
        /// The time until the end.
        left: Duration,
    },
}

/// A delay of a key, from [`KeyState::delay`].
///
/// # Examples
/// ```
/// use keyqueue::{DelayedBy, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.add_after("pod-1", Duration::from_secs(60));
/// let delay = queue.inspect().key(&"pod-1").delay.unwrap();
/// assert!(delay.by == DelayedBy::Caller && delay.left <= Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct KeyDelay {
    /// The time until it ends. It is zero if the delay has expired and its key was not added yet, and `Duration::MAX` if it never expires.
    pub left: Duration,
    /// Who has set it.
    pub by: DelayedBy,
}

/// Who has set a delay: see [`KeyDelay::by`].
///
/// # Examples
/// ```
/// use keyqueue::{DelayedBy, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.add("pod-1");
/// queue.get().unwrap().requeue_after(Duration::from_secs(60));
/// assert_eq!(queue.inspect().key(&"pod-1").delay.unwrap().by, DelayedBy::Requeue);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum DelayedBy {
    /// A call of its holder, after a failure, or of another caller for a failure, as in
    /// [`add_rate_limited`](crate::WorkQueue::add_rate_limited). It is the retry after as many failures as [`KeyState::failures`] says.
    Retry,
    /// Its holder, without a failure, as in [`requeue_after`](crate::Item::requeue_after).
    Requeue,
    /// Another caller, as in [`add_after`](crate::WorkQueue::add_after). An add that [keeps](crate::DelayConflict::KeepExisting) the delay
    /// of a holder makes it the caller's.
    Caller,
    /// An add waits until the key has [cooled down](crate::Item::cool_down).
    CoolDown,
}

impl KeyState {
    /// `late_at`: when its run is late, if that has a limit. `is_paused`: whether the queue is. `paced_until`: when the next token of the pace
    /// comes, if there is none now. `external`: failures that the queue has not counted.
    pub(crate) fn new(
        seen: &KeySeen,
        late_at: Option<u64>,
        is_paused: bool,
        paced_until: Option<u64>,
        external: usize,
        now: u64,
    ) -> Self {
        let left = |until| time_left(until, now);
        let queued = || {
            let held_back = seen.group.as_ref().and_then(|group| HeldBack::of(group, now)).map(KeyActivity::HeldBack);
            let paused = is_paused.then_some(KeyActivity::Paused);
            let paced = paced_until.map(|until| KeyActivity::Paced { left: left(until) });
            held_back.or(paused).or(paced).unwrap_or(KeyActivity::Queued)
        };
        let activity = match (seen.is_processing, seen.is_dirty, seen.delay, seen.rests_until) {
            (true, dirty, ..) => KeyActivity::Processing { dirty, late: late_at.is_some_and(|late_at| late_at <= now) },
            (false, true, ..) => queued(),
            (false, false, Some(_), _) => KeyActivity::Delayed,
            (false, false, None, Some(until)) => KeyActivity::CoolingDown { left: left(until) },
            (false, false, None, None) => KeyActivity::Absent,
        };
        let since = if seen.is_processing { seen.started_at } else { seen.queued_at };
        let is_active = seen.is_processing || seen.is_dirty;
        let of_delay = seen.delay.map_or(Priority::NORMAL.0, |delay| delay.priority);
        Self {
            activity,
            elapsed: since.map(|since| Duration::from_nanos(now.saturating_sub(since))),
            priority: Priority(if is_active { seen.priority } else { of_delay }),
            limits: seen.group.as_ref().map(|group| GroupLimits::of(&group.limits)),
            delay: seen.delay.map(|delay| KeyDelay { left: left(delay.deadline), by: delay.by }),
            failures: external.saturating_add(seen.failures as usize),
            last_error: None,
        }
    }

    fn limit(&self) -> usize {
        self.limits.and_then(|limits| limits.max_processing).unwrap_or_default()
    }
}

/// A time in a sentence: in milliseconds if it is longer than a second.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{:?}", self.0),
            secs => write!(f, "{:?}", Duration::new(secs, self.0.subsec_millis() * 1_000_000)),
        }
    }
}

/// For how long something lasts from now on.
struct Left(Duration);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Duration::MAX { f.write_str("without an end") } else { write!(f, "for another {}", Time(self.0)) }
    }
}

impl fmt::Display for KeyState {
    /// One sentence, for people: its words may change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (elapsed, priority) = (self.elapsed, self.priority.0);
        let begin = |f: &mut fmt::Formatter<'_>, what| {
            f.write_str(what)?;
            elapsed.map_or(Ok(()), |elapsed| write!(f, " for {}", Time(elapsed)))?;
            write!(f, " at priority {priority}")
        };
        let mut names_failures = false;
        match self.activity {
            KeyActivity::Absent => f.write_str("neither queued, processing nor delayed")?,
            KeyActivity::Processing { dirty, late } => {
                begin(f, "processing")?;
                f.write_str(if late { ", past its time limit" } else { "" })?;
                f.write_str(if dirty { ", and added again" } else { "" })?;
            }
            KeyActivity::CoolingDown { left } => write!(f, "cooling down {}, with no run to come", Left(left))?,
            KeyActivity::Delayed => {}
            _ => begin(f, "queued")?,
        }
        match self.activity {
            KeyActivity::Queued => f.write_str(", ready to be handed out")?,
            KeyActivity::Paused => f.write_str(", behind the queue's pause")?,
            KeyActivity::Paced { left } => write!(f, ", behind the queue's pace {}", Left(left))?,
            KeyActivity::HeldBack(HeldBack::Full) => write!(f, ", behind its group's limit of {}", self.limit())?,
            KeyActivity::HeldBack(HeldBack::Throttled { left }) => {
                write!(f, ", behind its group's rate {}", Left(left))?
            }
            KeyActivity::HeldBack(HeldBack::Paused { left }) => write!(f, ", behind its group's pause {}", Left(left))?,
            _ => {}
        }
        if let Some(KeyDelay { left, by }) = self.delay {
            let is_cause = self.activity == KeyActivity::Delayed;
            write!(f, "{} {} by ", if is_cause { "delayed" } else { ", and delayed" }, Left(left))?;
            names_failures = by == DelayedBy::Retry && self.failures > 0;
            match by {
                DelayedBy::Retry if names_failures => write!(f, "retry {}", self.failures)?,
                DelayedBy::Retry => f.write_str("a retry")?,
                DelayedBy::Requeue => f.write_str("its holder's requeue")?,
                DelayedBy::Caller => f.write_str("a caller")?,
                DelayedBy::CoolDown => f.write_str("its cool-down")?,
            }
        }
        match self.failures {
            0 => {}
            _ if names_failures => {}
            1 => f.write_str(", after a failure")?,
            n => write!(f, ", after {n} failures")?,
        }
        self.last_error.as_ref().map_or(Ok(()), |error| write!(f, "; the last error: {error}"))
    }
}
