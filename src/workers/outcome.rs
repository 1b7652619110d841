//! What a handler says of its work.

use crate::AddOptions;
use std::error::Error;
use std::time::Duration;

/// What becomes of a key when its handler returns. Handlers return anything that can be made into one:
///
/// * `()`: [`Done`](Self::Done).
/// * A `Result`: `Ok` is what its value is, such as `()` or an `Outcome`; `Err` is [`Failed`](Self::Failed). The error is
///   whatever can become a `Box<dyn Error + Send + Sync>`: errors of all kinds, strings, `anyhow::Error`. So `?` does what one
///   expects.
/// * A `Result` whose error is an `Outcome`: that outcome. So each call can say by itself what its error means.
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
///     let answer = fetch(url).map_err(|error| Outcome::Failed(error.into()))?; // tried again, by the backoff
///     match (answer.status, answer.retry_after) {
///         (404, _) => return Ok(Outcome::GiveUp("not found".into())),
///         (429, Some(delay)) => return Ok(Outcome::RetryAfter { delay, error: "too many requests".into() }),
///         _ => {}
///     }
///     store(&answer).map_err(|error| Outcome::GiveUp(error.into()))?; // no use to try again
///     Ok(Outcome::RequeueAfter(Duration::from_secs(3600))) // look again in an hour
/// }
/// # let queue = WorkQueue::new();
/// # queue.add_all(["200", "404", "429"]);
/// # let workers = queue.workers().build();
/// # let seen = std::cell::Cell::new(0);
/// # workers.run(|url: &Item<'_, &str>| {
/// #     seen.set(seen.get() + 1);
/// #     if seen.get() == 3 { queue.shut_down() }
/// #     visit(url)
/// # });
/// # assert_eq!((workers.tally().given_up, workers.tally().retried, workers.tally().refused), (2, 1, 1));
/// ```
#[doc(alias = "Result")]
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It succeeded: [`succeed`](crate::Item::succeed).
    Done,
    /// It failed: [`retry`](crate::Item::retry), unless the key was retried [too often](super::WorkersBuilder::max_retries).
    Retry,
    /// As `Retry`, because of this, which [`on_error`](super::WorkersBuilder::on_error) is shown.
    Failed(Box<dyn Error + Send + Sync>),
    /// As `Failed`, with an error that knows when to try again, such as the `Retry-After` of an HTTP answer: the key is not retried
    /// before this delay is over, nor before the limiter says.
    #[doc(alias = "Retry-After")]
    RetryAfter {
        /// The key waits at least this long.
        delay: Duration,
        /// What [`on_error`](super::WorkersBuilder::on_error) is shown.
        error: Box<dyn Error + Send + Sync>,
    },
    /// It succeeded, and there is more to do later: [`requeue_after`](crate::Item::requeue_after). Its failures are forgotten.
    RequeueAfter(Duration),
    /// Neither, but for instance put off, to be polite: [`requeue_with`](crate::Item::requeue_with). Failures stay as they are.
    RequeueWith(AddOptions),
    /// It failed, and will not be tried again, for this reason, which [`on_give_up`](super::WorkersBuilder::on_give_up) is shown:
    /// [`give_up`](crate::Item::give_up).
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
