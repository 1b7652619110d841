//! The span of a run, which is empty without the feature `tracing`.

use super::Outcome;
use std::future::Future;

/// The span in which a handler runs. `None`: runs are not traced.
#[cfg(feature = "tracing")]
pub(super) struct RunSpan(Option<tracing::Span>);

#[cfg(feature = "tracing")]
impl RunSpan {
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn begin(&mut self, span: tracing::Span) {
        self.0 = Some(span);
    }

    #[inline]
    pub(super) fn run(&self, run: impl FnOnce() -> Outcome) -> Outcome {
        let Some(span) = &self.0 else { return run() };
        let outcome = span.in_scope(run);
        self.note(&outcome);
        outcome
    }

    pub(super) async fn run_async(&self, run: impl Future<Output = Outcome>) -> Outcome {
        let Some(span) = &self.0 else { return run.await };
        let outcome = tracing::Instrument::instrument(run, span.clone()).await;
        self.note(&outcome);
        outcome
    }

    pub(super) fn note(&self, outcome: &Outcome) {
        let Some(span) = &self.0 else { return };
        match outcome {
            Outcome::Failed(error) | Outcome::RetryAfter { error, .. } | Outcome::PauseGroup { error, .. } => {
                span.in_scope(|| tracing::warn!(%error, "failed"));
            }
            Outcome::GiveUp(error) => span.in_scope(|| tracing::warn!(%error, "given up")),
            _ => {}
        }
    }

    pub(super) fn timed_out(&self) {
        if let Some(span) = &self.0 {
            span.in_scope(|| tracing::warn!("timed out"));
        }
    }

    pub(super) fn panicked(&self, message: &str) {
        if let Some(span) = &self.0 {
            span.in_scope(|| tracing::error!(message, "panicked"));
        }
    }

    pub(super) fn end(self) {
        drop(self.0);
    }
}

/// Without the feature `tracing` there is no span.
#[cfg(not(feature = "tracing"))]
pub(super) struct RunSpan;

#[cfg(not(feature = "tracing"))]
impl RunSpan {
    pub(super) fn none() -> Self {
        Self
    }

    #[inline]
    pub(super) fn run(&self, run: impl FnOnce() -> Outcome) -> Outcome {
        run()
    }

    pub(super) async fn run_async(&self, run: impl Future<Output = Outcome>) -> Outcome {
        run.await
    }

    pub(super) fn note(&self, _outcome: &Outcome) {}
    pub(super) fn timed_out(&self) {}

    pub(super) fn panicked(&self, _message: &str) {}

    pub(super) fn end(self) {}
}
