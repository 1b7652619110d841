//! A Kubernetes controller over the work queue [`keyqueue`]: the names of kube's `Controller`, with what its users ask for.
//!
//! ```no_run
//! use k8s_openapi::api::apps::v1::Deployment;
//! use k8s_openapi::api::core::v1::Pod;
//! use keyqueue::Outcome;
//! use keyqueue_kube::{Controller, Reconcile, namespace};
//! use kube::runtime::watcher;
//! use kube::{Api, Client};
//! use std::time::Duration;
//!
//! const HOUR: Duration = Duration::from_secs(3600);
//!
//! async fn reconcile(run: &Reconcile<'_, Deployment>) -> Result<Outcome, kube::Error> {
//!     let Some(object) = run.object() else {
//!         return Ok(Outcome::Success); // it is gone, and this is said once
//!     };
//!     println!("{run}: {}, {} failures", run.reasons(), run.failures());
//!     # _ = object;
//!     // … bring the cluster into the state that the object describes …
//!     Ok(Outcome::RequeueAfter(HOUR))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), kube::Error> {
//!     let client = Client::try_default().await?;
//!     let left = Controller::new(Api::<Deployment>::all(client.clone()), watcher::Config::default())
//!         .owns(Api::<Pod>::all(client), watcher::Config::default())
//!         .queue(|queue| queue.fair_by(namespace).max_processing_per_group(4))
//!         .workers(8, |workers| workers.max_retries(15).then_after(HOUR))
//!         .shutdown_on_signal(Duration::from_secs(10))
//!         .run(reconcile)
//!         .await;
//!     println!("{} objects were not reconciled any more", left.keys().count());
//!     Ok(())
//! }
//! ```
//!
//! # How it works
//!
//! ```text
//!  watch of the objects ───▶ store                     ┌─▶ loop ─▶ handler(object from the store, why, failures)
//!        │                     ▲ reads                 │     │
//!        ├─ their keys ────▶ queue ──── one at a time ─┼─▶ loop …
//!  watches of children ─ owners' keys ─▶│              └─▶ loop …
//!  streams of keys ────────────────────▶│                    └── outcome: done, again later, retry with backoff
//! ```
//!
//! The queue's key is the [`ObjectRef`](kube::runtime::reflector::ObjectRef) of an object, without its version and UID. However often an
//! object changes, its key is queued once, and processed by one loop at a time. A change during a run leads to one more run. What the queue
//! and its workers can do, is set by [`queue`](Controller::queue) and [`workers`](Controller::workers).
//!
//! * **No run comes before the store has the first list.**
//! * **A list has the priority LOW, a change NORMAL.** So an edit is not behind the thousands of objects of the first list, or of one after
//!   a watch that was cut.
//! * **An object that is gone is told once**, with [`object()`](Reconcile::object) `None`, until a run has succeeded. It may also have gone
//!   while a watch was cut: then it is missing in the next list. After that, no event about a child and no delay leads to a run.
//! * **A child that is gone, or that has another owner now, tells both owners**, also if that happened while its watch was cut. For this a
//!   watch of children keeps a name and the owners of each child that has one.
//! * **A panic of the handler** is caught, counted, and retried as a failure.
//! * **Errors of a watch** go to [`on_watch_error`](Controller::on_watch_error). Each watch has a backoff of its own, so one kind that the
//!   server refuses holds up no other one.
//!
//! # Beside `kube::runtime::Controller`
//!
//! | there | here | |
//! |---|---|---|
//! | `new`, `new_with`, `for_stream`, `for_shared_stream`, `store` | the same | and stable |
//! | `owns`, `watches`, `_with`, `_stream`, `_shared_stream` | the same | better: children that are missing in a list tell their owners, and so do those that change owners |
//! | `reconcile_on`, `reconcile_all_on` | the same | |
//! | `graceful_shutdown_on`, `shutdown_on_signal` | the same, with a deadline | better: returns what was left |
//! | `run(reconcile, error_policy, context)`, a stream | `run(handler)`, a future; [`run_boxed`](Controller::run_boxed) spawns | different: a closure has the context, and [`on_error`](keyqueue::WorkersBuilder::on_error) the errors |
//! | `Action` | [`Outcome`](keyqueue::Outcome) | better: retries that are counted and end, `RetryAfter`, pauses of a whole namespace |
//! | the error policy | the limiter of the queue, by default 5 ms doubled up to 1000 s | better: backoff for each object |
//! | an object that was deleted: no run | a run with `None` | different |
//! | `Config::concurrency`, unlimited by default | [`workers`](Controller::workers), 16 by default | different |
//! | `Config::debounce` | [`min_interval`](keyqueue::WorkersBuilder::min_interval) | different: the first change is not delayed |
//! | `trigger_backoff`, of all watches together | the same, for each watch | different: a function that makes one |
//! | a span for each run | [`traced_display`](keyqueue::WorkersBuilder#method.traced_display), with keyqueue's feature `tracing` | the same |
//! | `reconcile` panics: the controller panics | counted and retried | better |
//! | an object of a stream that the store does not have yet | looked at again | better: there, its reconcile is lost |
//! | priorities, fairness and limits by namespace, time limits, client-go's metrics | the queue's | not there |
//! | the object that has triggered a run | [`Reasons`] without the name of a related object | not here |
//! | admission, finalizers, events, waits | kube's, as before | not here |
//!
//! An owner of a cluster-scoped kind is found by the references of children that have a namespace, as there. Unlike there it has one key,
//! so that two loops never reconcile it at a time.

mod controller;
mod errors;
mod feed;
mod reasons;
mod reconcile;
mod run;
mod stop;

pub use controller::Controller;
pub use errors::{namespace, outcome_of};
pub use reasons::{Reason, Reasons};
pub use reconcile::Reconcile;
