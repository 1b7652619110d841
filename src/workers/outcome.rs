//! The result of a handler.

use crate::AddOptions;
use std::error::Error;
use std::time::Duration;

/// What happens to a key when its handler returns. A handler may also return [other types](IntoOutcome), such as a `Result`.
///
/// The failures of a key decide how long its next retry waits, and when it is out of [retries](super::WorkersBuilder::max_retries). The
/// table shows what each outcome does with them, and the call of [`Item`](crate::Item) that does the same:
///
/// | Outcome | the call | the key | its failures | counts as |
/// |---|---|---|---|---|
/// | [`Success`](Self::Success) | [`succeed`](crate::Item::succeed) | is done | **forgotten** | succeeded |
/// | [`Cooldown`](Self::Cooldown) | [`cool_down`](crate::Item::cool_down) | is done, and does not run again for this time | **forgotten** | succeeded |
/// | [`RequeueAfter`](Self::RequeueAfter) | [`requeue_after`] | comes back after this delay | **forgotten** | succeeded |
/// | [`RequeueWith`](Self::RequeueWith) | [`requeue_with`] | comes back as the options say | kept; one more if [rate-limited] | succeeded |
/// | [`Retry`](Self::Retry), [`Failed`](Self::Failed) | [`retry`] | comes back after the limiter's delay, or is given up | one more | failed |
/// | [`RetryAfter`](Self::RetryAfter) | `requeue_with` | the same, after this delay at least | one more | failed |
/// | [`PauseGroup`](Self::PauseGroup) | `requeue_with` and [`pause`](crate::Group::pause) | comes back after this delay, and the rest of its group waits as long | kept | paused |
/// | [`GiveUp`](Self::GiveUp), out of retries | [`give_up`](crate::Item::give_up) | is done | **forgotten** | failed |
/// | out of retries, with [`then_after`](super::WorkersBuilder::then_after) | `requeue_with` | comes back after this delay | one more | failed |
/// | none: the handler was dropped at the [time limit](super::WorkersBuilder::time_limit) | `retry` | comes back after the limiter's delay, or is given up | one more | failed |
/// | none: the handler's task was dropped | `requeue_with` | is queued again at once | kept | not counted |
///
/// [`requeue_after`]: crate::Item::requeue_after
/// [`requeue_with`]: crate::Item::requeue_with
/// [`retry`]: crate::Item::retry
/// [rate-limited]: AddOptions::rate_limited
///
/// The newest outcome decides when the key comes back: it replaces the delay that the outcome of an earlier run has set, or drops it if the
/// key is done by `Success`, `GiveUp` or out of retries. What a handler adds itself, by a call of the queue, is a caller's delay, which no
/// outcome touches: see [`DelayConflict`](crate::DelayConflict).
///
/// [`Tally`](super::Tally) has these counts; [`Runs`](crate::observe::Runs), and the metric `workqueue_runs_total`, count by result.
///
/// # The question mark
/// An [`Error`] converts into [`Outcome::Failed`](Self::Failed). So in a handler that returns `Result<_, Outcome>`, `?` retries the key.
/// The handler may return another outcome for an error, such as `Err(Outcome::GiveUp(..))`. A text, a `Box<dyn Error>` or an
/// `anyhow::Error` does not implement `Error`: write `.map_err(Outcome::failed)?`. A handler that only retries may return a `Result` with
/// any of these errors.
///
/// # Examples
/// ```
/// use keyqueue::{Item, Outcome, WorkQueue};
/// use std::time::Duration;
///
/// # struct Answer { status: u16, retry_after: Option<Duration> }
/// # fn fetch(url: &str) -> Result<Answer, std::io::Error> {
/// #     Ok(Answer { status: url.parse().unwrap(), retry_after: Some(Duration::from_secs(60)) })
/// # }
/// # fn parse(_: &Answer) -> Result<String, String> { Ok(String::new()) }
/// # fn store(_: &str) -> Result<(), std::io::Error> { Err(std::io::ErrorKind::StorageFull.into()) }
/// fn visit(url: &Item<'_, &str>) -> Result<Outcome, Outcome> {
///     let answer = fetch(url)?; // an io::Error: retried with backoff
///     match (answer.status, answer.retry_after) {
///         (404, _) => return Err(Outcome::GiveUp("not found".into())),
///         (429, Some(delay)) => {
///             return Err(Outcome::RetryAfter { delay, error: "too many requests".into() });
///         }
///         _ => {}
///     }
///     let page = parse(&answer).map_err(Outcome::failed)?; // a String: retried, too
///     store(&page).map_err(|error| Outcome::GiveUp(error.into()))?; // a retry would not help
///     Ok(Outcome::RequeueAfter(Duration::from_secs(3600))) // look again in an hour
/// }
/// # let queue = WorkQueue::new();
/// # queue.add_all(["200", "404", "429"]);
/// # let workers = queue.workers().build();
/// # let seen = std::cell::Cell::new(0);
/// # workers.run(|url| {
/// #     seen.set(seen.get() + 1);
/// #     if seen.get() == 3 { queue.shut_down() }
/// #     visit(url)
/// # });
/// # assert_eq!((workers.tally().given_up, workers.tally().retried, workers.tally().refused), (2, 0, 1));
/// ```
#[doc(alias = "Result")]
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler succeeded: [`succeed`](crate::Item::succeed). The key's failures are forgotten.
    #[doc(alias = "Done")]
    Success,
    /// The handler succeeded, and the key is not to run again for this time: [`cool_down`](crate::Item::cool_down). Adds that come meanwhile
    /// become one run at its end; without an add there is none. [`min_interval`](super::WorkersBuilder::min_interval) does this for all keys.
    Cooldown(Duration),
    /// The handler failed: [`retry`](crate::Item::retry), unless the key was retried [too often](super::WorkersBuilder::max_retries).
    /// The failure is counted.
    Retry,
    /// Like `Retry`, with the error, which goes to [`on_error`](super::WorkersBuilder::on_error). `?` converts an error into this.
    Failed(Box<dyn Error + Send + Sync>),
    /// Like `Failed`, with a time to wait, such as the `Retry-After` of an HTTP answer. The key is retried after the longer of this delay
    /// and the limiter's delay, counted from the end of this run. An earlier retry, if one is still to come, does not come sooner: it is
    /// replaced.
    #[doc(alias = "Retry-After")]
    RetryAfter {
        /// The shortest delay of the retry.
        delay: Duration,
        /// The error, which goes to [`on_error`](super::WorkersBuilder::on_error).
        error: Box<dyn Error + Send + Sync>,
    },
    /// The [group](crate::WorkQueueBuilder::fair_by) of the key is to be left alone for a time, because its server is overloaded or has said
    /// so, as with `Retry-After`. In one step the key is added again after this delay, and its group is
    /// [paused](crate::Group::pause) for as long, so that no other key of it is tried meanwhile.
    ///
    /// No failure is counted, as with [`RequeueWith`](Self::RequeueWith), and the key is not given up however often this happens. The run
    /// counts as [paused](super::Tally::paused). In a queue without groups this is [`RetryAfter`](Self::RetryAfter) in all respects, so the
    /// run has failed.
    ///
    /// If the server has given no reason, a text is error enough: `error: "429".into()`.
    #[doc(alias = "Retry-After")]
    #[doc(alias = "429")]
    PauseGroup {
        /// How long the group is paused.
        delay: Duration,
        /// The error, which goes to [`on_error`](super::WorkersBuilder::on_error).
        error: Box<dyn Error + Send + Sync>,
    },
    /// The handler succeeded, and there is more to do later: [`requeue_after`](crate::Item::requeue_after). The key's failures are
    /// forgotten.
    RequeueAfter(Duration),
    /// The handler has not failed, and postpones its work, for instance to limit the load of a server:
    /// [`requeue_with`](crate::Item::requeue_with). The key's failures stay counted. The run counts as
    /// [succeeded](super::Tally::succeeded).
    RequeueWith(AddOptions),
    /// The handler failed, and the key is not retried: [`give_up`](crate::Item::give_up). The key's failures are forgotten. The reason goes
    /// to [`on_give_up`](super::WorkersBuilder::on_give_up).
    #[doc(alias = "TerminalError")]
    GiveUp(Box<dyn Error + Send + Sync>),
}

impl Outcome {
    /// [`Failed`](Self::Failed) with this error. A text, a `Box<dyn Error + Send + Sync>` and an `anyhow::Error` convert into one. Use it
    /// as `.map_err(Outcome::failed)?`. An [`Error`] needs only `?`.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::Outcome;
    ///
    /// # fn parse(_: &str) -> Result<u32, String> { Err("no number".to_owned()) }
    /// fn check(page: &str) -> Result<(), Outcome> {
    ///     let _number = parse(page).map_err(Outcome::failed)?; // its error is a String
    ///     Ok(())
    /// }
    /// assert!(
    ///     matches!(check("x"), Err(Outcome::Failed(error)) if error.to_string() == "no number")
    /// );
    /// ```
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }

    /// Drops the outcome. That is a call, which this leaves out for a success.
    #[inline]
    pub(super) fn discard(self) {
        if matches!(self, Self::Success) {
            std::mem::forget(self);
        }
    }
}

/// So that `?` works in a handler that returns `Result<_, Outcome>`.
impl<E: Error + Send + Sync + 'static> From<E> for Outcome {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

/// What a handler may return:
///
/// * `()`: [`Success`](Outcome::Success).
/// * An [`Outcome`].
/// * A `Result`. `Ok` is the outcome of its value, such as `()` or an `Outcome`. `Err` is [`Failed`](Outcome::Failed) with its error. Each
///   type that converts into a `Box<dyn Error + Send + Sync>` will do: errors of all kinds, texts, `anyhow::Error`.
/// * A `Result` whose error is an `Outcome`: the handler decides [what its error means](Outcome#the-question-mark).
/// * `!`, if a closure ends in a `panic!`.
///
/// No other type can implement this trait.
///
/// # Examples
/// For a wrapper of handlers:
/// ```
/// use keyqueue::{IntoOutcome, Item, Outcome, WorkQueue};
///
/// fn logged<R: IntoOutcome>(
///     handler: impl Fn(&u32) -> R,
/// ) -> impl Fn(&Item<'_, u32>) -> Outcome {
///     move |item| {
///         let outcome = handler(item).into_outcome();
///         println!("{item}: {outcome:?}");
///         outcome
///     }
/// }
///
/// let queue = WorkQueue::new();
/// let workers = queue.workers().spawn(1, logged(|_| Err::<(), _>("no luck")))?;
/// # queue.add(1);
/// # let _leftover = workers.drain();
/// # // The run may come before or after the shut-down.
/// # assert!(workers.tally().retried + workers.tally().refused > 0);
/// # std::io::Result::Ok(())
/// ```
/// Other types do not compile, and the message says what would:
/// ```compile_fail,E0277
/// # let queue = keyqueue::WorkQueue::<u32>::new();
/// queue.workers().spawn(1, |item| item.is_dirty()) // error: a handler cannot return `bool`
/// # ;
/// ```
/// A `Box<dyn Error>` is not `Send`. A `Box<dyn Error + Send + Sync>` will do, and `?` makes it of the same errors.
/// ```compile_fail,E0277
/// # use std::error::Error;
/// # fn sync(_: &u32) -> Result<(), Box<dyn Error>> { Ok(()) }
/// # let queue = keyqueue::WorkQueue::<u32>::new();
/// // error: a handler cannot return `Result<(), Box<dyn Error>>`
/// queue.workers().spawn(1, |item| sync(item))
/// # ;
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "returns `{Self}`",
    note = "a handler returns `()`, an `Outcome`, or a `Result` of one of these",
    note = "the error of that `Result` is an `Outcome`, or converts into a `Box<dyn Error + Send + Sync>`, as `std::io::Error`, texts and \
            `anyhow::Error` do",
    note = "a `Box<dyn Error>` may belong to one thread: write `Box<dyn Error + Send + Sync>`, and `?` makes that as well",
    note = "a value that is not needed goes with `;` or `.map(drop)`"
)]
pub trait IntoOutcome: sealed::Sealed {
    /// The outcome.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Success
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

// With this, the compiler says what a handler may return, and not why the error in its `Result` does not convert.
#[diagnostic::do_not_recommend]
impl<T: IntoOutcome, E: Into<Box<dyn Error + Send + Sync>>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        self.map_or_else(Outcome::failed, T::into_outcome)
    }
}

/// No `Outcome` converts into a box, so this does not overlap with the other `Result`.
impl<T: IntoOutcome> IntoOutcome for Result<T, Outcome> {
    fn into_outcome(self) -> Outcome {
        self.map_or_else(|outcome| outcome, T::into_outcome)
    }
}

/// For closures that end in a `panic!`: since edition 2024 their type is `!`.
impl IntoOutcome for sealed::Never {
    fn into_outcome(self) -> Outcome {
        self
    }
}

mod sealed {
    #[allow(unreachable_pub)]
    pub trait Sealed {}

    impl Sealed for () {}
    impl Sealed for super::Outcome {}
    impl<T, E> Sealed for Result<T, E> {}
    impl Sealed for Never {}

    /// The type `!`, whose name is not stable: what a function that returns it returns.
    pub(super) type Never = <fn() -> ! as Returns>::Output;

    #[allow(unreachable_pub)]
    pub trait Returns {
        type Output;
    }

    impl<T> Returns for fn() -> T {
        type Output = T;
    }
}
