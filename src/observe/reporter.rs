//! A thread that reports the metrics of a queue from time to time.

use crate::WorkQueue;
use crate::panics::contained;
use std::fmt;
use std::hash::Hash;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Reports a queue's metrics at an interval; from [`Inspect::report_every`](crate::Inspect::report_every). Dropping it makes a last report and ends its thread.
///
/// # Blocking
/// The drop waits until the observer returns from the last report.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let queue = keyqueue::WorkQueue::<u32>::new();
/// let reporter = queue.inspect().report_every(Duration::from_secs(10))?;
/// drop(reporter); // the thread ends
/// # std::io::Result::Ok(())
/// ```
#[must_use = "dropping it ends the reports"]
pub struct Reporter {
    /// Never sent on; dropping it disconnects the receiver.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    pub(crate) fn start<K>(queue: WorkQueue<K>, interval: Duration) -> std::io::Result<Self>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let interval = interval.max(Duration::from_millis(1));
        let (alive, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("keyqueue-report".to_owned()).spawn(move || {
            let mut last = false;
            loop {
                // If the observer panics, the panic hook has printed the message; the next report calls the observer again.
                let _ = contained(|| queue.inspect().report());
                if last {
                    return;
                }
                last = ended.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected);
            }
        })?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.alive = None;
        // An observer may drop its own reporter: a thread cannot join itself.
        let other = |thread: &mut JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take_if(other) {
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}
