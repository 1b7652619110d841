//! The start of the driver thread, by the next call that adds, gets or waits after it was asked for.

use super::states::{DriverState, RETRY};
use crate::shared::Shared;
use crate::shared::hub::Flags;
use crate::sync::{Arc, now};

impl<K> Shared<K> {
    /// Starts the driver thread if it is missing. Every call that adds, gets or waits calls this, and so tries again after a failure.
    #[inline]
    pub(crate) fn ensure_driver(this: &Arc<Self>) {
        if this.is_driver_missing() {
            Self::start_driver(this);
        }
    }

    /// Tries to start the driver thread. While that fails, the threads that wait do its work (W7).
    ///
    /// At the end the flag `NO_DRIVER` is set from the state and not simply cleared, because in between the driver may have found the queue
    /// shut down and have ended, and a task may have asked for the next one.
    #[cold]
    fn start_driver(this: &Arc<Self>) {
        if !this.hub().driver.retry() {
            return; // another thread tries, or has just tried
        }
        let started = (this.start)(this);
        {
            let mut hub = this.hub();
            if started.is_err() {
                hub.counts.driver_failures += 1;
                hub.driver = DriverState::Missing { retry_at: now() + RETRY };
                hub.call_those_who_wait();
            }
            let is_missing = matches!(hub.driver, DriverState::Missing { .. });
            hub.set(Flags::NO_DRIVER, is_missing);
        }
        let Err(error) = started else { return };
        this.contain(|| this.tell(|observer| observer.driver_failed(&error)));
    }

    /// Whether the driver thread was asked for, but is not started yet or could not be. A hint, read without a lock.
    #[inline]
    pub(crate) fn is_driver_missing(&self) -> bool {
        self.flags().has(Flags::NO_DRIVER)
    }
}
