//! The reason why a key was given up.

use std::error::Error;
use std::fmt;

/// The reason why workers gave a key up; passed to [`on_give_up`](super::WorkersBuilder::on_give_up).
///
/// `Display` shows it in one line, such as `given up after 15 retries: disk full`.
///
/// # Examples
/// ```
/// # use keyqueue::{Outcome, WorkQueue};
/// # use std::sync::{Arc, Mutex};
/// let queue = WorkQueue::<&str>::new();
/// let lines = Arc::new(Mutex::new(Vec::new()));
/// let log = Arc::clone(&lines);
/// let workers = queue
///     .workers()
///     .max_retries(0)
///     .on_give_up(move |key, why| log.lock().unwrap().push(format!("{key}: {why}")))
///     .spawn(1, |item| match *item.key() {
///         "pod-1" => Outcome::Failed("disk full".into()),
///         _ => Outcome::GiveUp("it is gone".into()),
///     })?;
/// queue.add_all(["pod-1", "pod-2"]);
/// assert!(workers.drain().is_empty());
/// assert_eq!(
///     *lines.lock().unwrap(),
///     [
///         "pod-1: given up without a retry: disk full",
///         "pod-2: given up without a retry: it is gone"
///     ]
/// );
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct GivenUp<'a> {
    /// How often the key was retried since it last succeeded.
    pub retries: usize,
    /// The error of the last try, from [`Outcome::Failed`](super::Outcome::Failed), [`RetryAfter`](super::Outcome::RetryAfter) or
    /// [`GiveUp`](super::Outcome::GiveUp). `None`: there was no error, or the handler panicked or was dropped.
    pub reason: Option<&'a (dyn Error + Send + Sync + 'static)>,
    /// The panic message of the handler in the last try. `None`: it did not panic.
    pub panic: Option<&'a str>,
    /// Whether the last try was a task's whose handler was dropped at its [time limit](super::WorkersBuilder::time_limit).
    pub timed_out: bool,
}

impl GivenUp<'_> {
    /// Whether the run has its own count, whatever becomes of its key.
    pub(super) fn is_counted(&self) -> bool {
        self.panic.is_some() || self.timed_out
    }
}

impl fmt::Display for GivenUp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retries {
            0 => f.write_str("given up without a retry")?,
            1 => f.write_str("given up after 1 retry")?,
            retries => write!(f, "given up after {retries} retries")?,
        }
        if let Some(reason) = self.reason {
            write!(f, ": {reason}")?;
        }
        if let Some(panic) = self.panic {
            write!(f, ": the handler panicked: {panic}")?;
        }
        if self.timed_out {
            f.write_str(": the handler timed out")?;
        }
        Ok(())
    }
}
