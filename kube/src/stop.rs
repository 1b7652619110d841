//! When a controller ends.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, select_all};
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// What ends a run: futures of the user, and signals.
#[derive(Default)]
pub(crate) struct Stop {
    pub(crate) triggers: Vec<BoxFuture<'static, ()>>,
    /// How long runs may go on, if signals end the controller.
    pub(crate) timeout: Option<Duration>,
    signals: Option<Signals>,
}

impl Stop {
    /// Listens to signals from now on, if they end the controller.
    pub(crate) fn listen(&mut self) {
        if self.timeout.is_some() {
            let signals = Signals::listen();
            self.signals =
                signals.inspect_err(|error| tracing::error!(%error, "no signal will end the controller")).ok();
        }
    }

    /// Waits until the controller is to end.
    pub(crate) async fn asked(&mut self) {
        let mut never = pending().boxed(); // so that there is one
        tokio::select! {
            _ = select_all(self.triggers.iter_mut().chain([&mut never])) => {}
            () = next(&mut self.signals) => {}
        }
    }

    /// Waits until the runs must have ended: the time has passed, or one more signal has come.
    pub(crate) async fn deadline(&mut self) {
        tokio::select! {
            () = sleep(self.timeout.unwrap_or_default()), if self.timeout.is_some() => {}
            () = next(&mut self.signals) => {}
        }
    }
}

async fn next(signals: &mut Option<Signals>) {
    match signals {
        Some(signals) => signals.next().await,
        None => pending().await,
    }
}

#[cfg(unix)]
struct Signals([tokio::signal::unix::Signal; 2]);

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    async fn next(&mut self) {
        let [terminate, interrupt] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Elsewhere Ctrl-C alone.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    }
}
