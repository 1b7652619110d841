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
    /// It succeeded, and there is more to do later: [`requeue_after`](crate::Item::requeue_after). Its failures are forgotten.
    RequeueAfter(Duration),
    /// Neither, but for instance put off, to be polite: [`requeue_with`](crate::Item::requeue_with). Failures stay as they are.
    RequeueWith(AddOptions),
    /// It failed, and will not be tried again: [`give_up`](crate::Item::give_up).
    #[doc(alias = "TerminalError")]
    GiveUp,
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
