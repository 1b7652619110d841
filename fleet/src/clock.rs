//! The clock by which a member knows its deadline. It goes on while the machine is suspended: a member that slept through its deadline
//! must see that when it wakes up. The system's time of day is not used: it jumps.

use std::fmt;
use std::sync::Arc;

/// The clock by which a member knows its deadline, in nanoseconds since any moment. It must not go backwards.
///
/// It is not the queue's [`Clock`](keyqueue::Clock), by which delays expire: that one stands still on most systems while the machine is
/// suspended, and then a member would take its lease for valid after others have taken its partitions.
#[derive(Clone, Default)]
pub struct LeaseClock(Option<Arc<dyn Fn() -> u64 + Send + Sync>>);

impl LeaseClock {
    /// The system's clock that counts the time of a suspend: on Linux and Android `CLOCK_BOOTTIME`, elsewhere on Unix
    /// `CLOCK_MONOTONIC` (which counts it on macOS), and what `Instant` uses on Windows.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock of your own, for tests.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(now)))
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match &self.0 {
            None => system(),
            Some(now) => now(),
        }
    }
}

impl fmt::Debug for LeaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_none() { "LeaseClock::system" } else { "LeaseClock::new" })
    }
}

#[cfg(unix)]
#[inline]
fn system() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(ID);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(not(unix))]
fn system() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // One second: a deadline of 0 is in the past at the first reading as well.
    1_000_000_000 + START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
