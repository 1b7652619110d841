//! When a controller ends.

use futures_util::future::{BoxFuture, pending, select_all};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// What ends a run: futures of the user, and signals.
#[derive(Default)]
pub(crate) struct Stop {
    pub(crate) triggers: Vec<BoxFuture<'static, ()>>,
    /// How long runs may go on, if signals end the controller.
    pub(crate) timeout: Option<Duration>,
    signals: Option<BoxStream<'static, ()>>,
}

impl Stop {
    /// Listens to signals from now on, if they end the controller.
    pub(crate) fn listen(&mut self) {
        if self.timeout.is_some() {
            self.signals = signals().inspect_err(|error| tracing::error!(%error, "no signal ends the run")).ok();
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

async fn next(signals: &mut Option<BoxStream<'static, ()>>) {
    match signals {
        Some(signals) => _ = signals.next().await,
        None => pending().await,
    }
}

/// The signals that come from now on: SIGTERM and Ctrl-C.
#[cfg(unix)]
fn signals() -> io::Result<BoxStream<'static, ()>> {
    use tokio::signal::unix::{Signal, SignalKind, signal};
    let each = |signal| stream::unfold(signal, async |mut signal: Signal| Some((signal.recv().await?, signal)));
    Ok(stream::select(each(signal(SignalKind::terminate())?), each(signal(SignalKind::interrupt())?)).boxed())
}

/// Elsewhere Ctrl-C alone.
#[cfg(not(unix))]
fn signals() -> io::Result<BoxStream<'static, ()>> {
    let each = stream::unfold((), async |()| tokio::signal::ctrl_c().await.ok().map(|()| ((), ())));
    Ok(each.chain(stream::pending()).boxed())
}
