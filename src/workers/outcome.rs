//! The result of a handler.

use crate::AddOptions;
use std::error::Error;
use std::time::Duration;

/// What happens to a key when its handler returns. A handler returns any type that converts into an `Outcome`:
///
/// * `()`: [`Done`](Self::Done).
/// * A `Result`: `Ok` is the outcome of its value, such as `()` or an `Outcome`; `Err` is [`Failed`](Self::Failed). The error is any
///   type that converts into a `Box<dyn Error + Send + Sync>`: errors of all kinds, strings, `anyhow::Error`. So `?` works as usual.
/// * A `Result` whose error is an `Outcome`: that outcome. So each call of the handler can decide what its error means.
///
/// `Done`, `RequeueAfter` and `RequeueWith` count as [succeeded](super::Tally::succeeded), all others as [failed](super::Tally::failed).
/// [`Runs`](crate::observe::Runs), and the metric `workqueue_runs_total`, count them by result.
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
/// # fn store(_: &Answer) -> Result<(), std::io::Error> { Err(std::io::ErrorKind::StorageFull.into()) }
/// fn visit(url: &Item<'_, &str>) -> Result<Outcome, Outcome> {
///     let answer = fetch(url).map_err(|error| Outcome::Failed(error.into()))?; // retried with backoff
///     match (answer.status, answer.retry_after) {
///         (404, _) => return Ok(Outcome::GiveUp("not found".into())),
///         (429, Some(delay)) => return Ok(Outcome::RetryAfter { delay, error: "too many requests".into() }),
///         _ => {}
///     }
///     store(&answer).map_err(|error| Outcome::GiveUp(error.into()))?; // a retry would not help
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
    /// The handler succeeded: [`succeed`](crate::Item::succeed).
    Done,
    /// The handler failed: [`retry`](crate::Item::retry), unless the key was retried [too often](super::WorkersBuilder::max_retries).
    Retry,
    /// Like `Retry`, with the error, which is passed to [`on_error`](super::WorkersBuilder::on_error).
    Failed(Box<dyn Error + Send + Sync>),
    /// Like `Failed`, with an error that says when to try again, such as the `Retry-After` of an HTTP answer: the key is retried after
    /// the longer of this delay and the limiter's delay.
    #[doc(alias = "Retry-After")]
    RetryAfter {
        /// The shortest delay of the retry.
        delay: Duration,
        /// The error, which is passed to [`on_error`](super::WorkersBuilder::on_error).
        error: Box<dyn Error + Send + Sync>,
    },
    /// The handler succeeded, and there is more to do later: [`requeue_after`](crate::Item::requeue_after). The key's failures are
    /// forgotten.
    RequeueAfter(Duration),
    /// The handler has not failed, but postponed its work, for instance to limit the load of a server:
    /// [`requeue_with`](crate::Item::requeue_with). The key's failures stay counted. The run counts as
    /// [succeeded](super::Tally::succeeded).
    RequeueWith(AddOptions),
    /// The handler failed, and the key is not retried: [`give_up`](crate::Item::give_up). The reason is passed to
    /// [`on_give_up`](super::WorkersBuilder::on_give_up).
    #[doc(alias = "TerminalError")]
    GiveUp(Box<dyn Error + Send + Sync>),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl<T: Into<Self>, E: Into<Box<dyn Error + Send + Sync>>> From<Result<T, E>> for Outcome {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(outcome) => outcome.into(),
            Err(error) => Self::Failed(error.into()),
        }
    }
}

impl<T: Into<Self>> From<Result<T, Self>> for Outcome {
    fn from(result: Result<T, Self>) -> Self {
        result.map_or_else(|outcome| outcome, Into::into)
    }
}
