//! The end of a call that blocks.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// The end of a call that blocks, in real time. The time starts only when the call is about to park, so that a call that need not park
/// reads no clock (P27).
pub(crate) struct Deadline {
    /// `None` means that the call waits for ever.
    timeout: Option<Duration>,
    /// The inner `None` means that the end is too late for the system's clock.
    end: OnceCell<Option<Instant>>,
}

impl Deadline {
    pub(crate) fn never() -> Self {
        Self { timeout: None, end: OnceCell::new() }
    }

    pub(crate) fn after(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), end: OnceCell::new() }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.timeout == Some(Duration::ZERO)
    }

    /// Until when the caller is to park now, or `None` if there is no end. The first call of this starts the time.
    pub(crate) fn start(&self) -> Option<Instant> {
        let timeout = self.timeout?;
        *self.end.get_or_init(|| Instant::now().checked_add(timeout))
    }

    /// Whether the time is over. Called after a park.
    pub(crate) fn is_over(&self) -> bool {
        self.is_zero() || self.start().is_some_and(|end| end <= Instant::now())
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn has_started(&self) -> bool {
        self.end.get().is_some()
    }
}
