//! A thread that reports how a queue stands.

use crate::WorkQueue;
use crate::panics::contained;
use std::fmt;
use std::hash::Hash;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Reports how a queue stands every so often; from [`WorkQueue::report_every`]. Dropping it reports once more, and ends it.
///
/// # Blocking
/// Its drop waits for the observer.
#[must_use = "dropping it ends the reports"]
pub struct Reporter {
    /// Nothing is sent: that it is dropped is what is heard.
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
                // An observer that panics has had its message printed, and is told again the next time.
                let _ = contained(|| queue.report());
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
        // An observer may drop its own reporter.
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
