//! How a key is added: at once or later, and what happens to a delay that it already has.

use std::time::Duration;

/// How [`WorkQueue::add_with`](crate::WorkQueue::add_with) adds a key. Without further calls: at once, as
/// [`add`](crate::WorkQueue::add).
///
/// # Examples
/// Debounce: look at a file when nothing has happened to it for 200 ms.
/// ```
/// use keyqueue::{AddOptions, DelayConflict, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let quiet = AddOptions::new().after(Duration::from_millis(200)).conflict(DelayConflict::Replace);
/// for _event in 0..3 {
///     queue.add_with("Cargo.toml", quiet);
/// }
/// assert_eq!(queue.delayed_len(), 1);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use = "options do nothing until `add_with`"]
pub struct AddOptions {
    /// `None`: none was asked for, which is one of zero, but not a retry.
    pub(crate) delay: Option<Duration>,
    pub(crate) conflict: DelayConflict,
    pub(crate) rate_limited: bool,
    /// The limiter has panicked: it is not asked, and the queue counts the failure itself.
    pub(crate) limiter_panicked: bool,
}

/// How long a key waits that is to be retried when the queue's limiter panics instead of saying how long.
pub(crate) const WITHOUT_LIMITER: Duration = Duration::from_millis(50);

/// What becomes of a delay if the key already has one: there is at most one for a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelayConflict {
    /// The earlier of the two deadlines counts, as in client-go.
    #[default]
    EarliestWins,
    /// The new one counts, be it earlier or later. With a delay of zero: the delay is dropped, and the key is added at once.
    Replace,
    /// The old one counts, and nothing else happens, whatever the new delay.
    KeepExisting,
}

/// What [`add`](crate::WorkQueue::add) does for a key that is delayed; set by
/// [`WorkQueueBuilder::delayed_add`](crate::WorkQueueBuilder::delayed_add).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelayedAdd {
    /// Both happen: the key is handed out now, and again when its delay is over. So a run that was promised for a moment is
    /// never lost. As in client-go.
    #[default]
    Independent,
    /// The add takes the delay's place: the key is handed out now. As in controller-runtime.
    Promote,
    /// The add waits for the delay, so that nobody gets around a backoff. [`cancel`](crate::WorkQueue::cancel) lets it through.
    Strict,
}

/// What becomes of a key whose holder panics; set by [`WorkQueueBuilder::on_panic`](crate::WorkQueueBuilder::on_panic).
///
/// Either way nobody holds the key any more, and the panic is [counted](crate::Stats::panics).
///
/// A holder panics when its item is dropped while the thread unwinds. A call such as [`done`](crate::Item::done) says what becomes of
/// the key, and this policy does not apply, also if the thread unwinds. Nor does it apply to an item that was handed out while the
/// thread was already unwinding, in a `Drop` that calls [`get`](crate::WorkQueue::get): dropping that item is `done`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnPanic {
    /// The work is finished, as if the item had been dropped: the key comes back if it was added meanwhile, and not otherwise.
    Done,
    /// The work failed: the key comes back when the queue's limiter says, as by [`retry`](crate::Item::retry).
    Retry,
}

impl AddOptions {
    /// At once.
    pub const fn new() -> Self {
        Self { delay: None, conflict: DelayConflict::EarliestWins, rate_limited: false, limiter_panicked: false }
    }

    /// Not before this has passed.
    #[doc(alias = "After")]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Not before the queue's [limiter](crate::WorkQueueBuilder::rate_limiter) says; with [`after`](Self::after), not before
    /// either.
    #[doc(alias = "RateLimited")]
    pub const fn rate_limited(mut self) -> Self {
        self.rate_limited = true;
        self
    }

    /// At least this delay.
    pub(crate) fn not_before(mut self, delay: Duration) -> Self {
        self.delay = self.delay.max(Some(delay));
        self
    }

    /// The limiter has panicked: a delay of the queue's own takes the place of the limiter's answer.
    pub(crate) fn without_limiter(self) -> Self {
        Self { limiter_panicked: true, ..self.not_before(WITHOUT_LIMITER) }
    }

    /// No delay is asked for, or one of zero.
    #[inline]
    pub(crate) fn is_now(&self) -> bool {
        self.delay.unwrap_or_default().is_zero()
    }

    /// What becomes of a delay that the key already has.
    pub const fn conflict(mut self, conflict: DelayConflict) -> Self {
        self.conflict = conflict;
        self
    }
}
