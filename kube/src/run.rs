//! The run of a controller: its feeds and its loops, until it is told to end.

use crate::feed::{Adds, Feed};
use crate::stop::Stop;
use crate::{Reason, Reasons, Reconcile};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use keyqueue::values::{Value, ValueQueue};
use keyqueue::{AddOptions, IntoOutcome, Item, Leftover, Outcome, Workers};
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

/// How often the key of an object that a stream has named, and that the store does not have, is looked at again. With the default limiter
/// that is for 82 seconds, and a store that is filled by a list has all its objects by then.
const LOOKS: usize = 14;

/// What the loops share.
pub(crate) struct Runs<K: Resource + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    pub(crate) values: ValueQueue<ObjectRef<K>, Reasons>,
    pub(crate) store: Store<K>,
    /// The caller fills the store, and the stream of objects does not say when a list has come to its end.
    pub(crate) is_fed_by_stream: bool,
}

/// A run that has begun.
pub(crate) struct Begun<'i, K: Resource> {
    pub(crate) run: Reconcile<'i, K>,
    value: Option<Value<'i, ObjectRef<K>, Reasons>>,
}

impl<K> Runs<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Begins a run. `Err`: there is none, because the object does not exist, and the handler has been told if it ever did.
    pub(crate) fn begin<'i>(&'i self, item: &'i Item<'i, ObjectRef<K>>) -> Result<Begun<'i, K>, Outcome> {
        let value = self.values.value(item);
        let reasons = value.as_deref().copied().unwrap_or_default();
        let object = self.store.get(item.key());
        let none = match &object {
            None if !reasons.contains(Reason::Gone) => {
                // Perhaps the store does not have it yet.
                let again = self.is_fed_by_stream && reasons.contains(Reason::Changed) && item.num_requeues() < LOOKS;
                if again { Outcome::RequeueWith(AddOptions::new().rate_limited()) } else { Outcome::Success }
            }
            // A child that has a namespace names an owner that has none. The reference to the owner is in the child's namespace.
            Some(object) if object.meta().namespace.is_none() && item.namespace.is_some() => {
                let mut owner = item.key().clone();
                owner.namespace = None;
                _ = self.values.add_with(owner, reasons, AddOptions::new().priority(item.priority()));
                Outcome::Success
            }
            _ => return Ok(Begun { run: Reconcile { item, object, reasons }, value }),
        };
        Err(end(value, none))
    }
}

impl<K: Resource> Begun<'_, K> {
    /// Ends the run. What brought it about is told to the next one, too, if this one has not succeeded.
    pub(crate) fn end(self, outcome: impl IntoOutcome) -> Outcome {
        end(self.value, outcome.into_outcome())
    }
}

fn end<K>(value: Option<Value<'_, K, Reasons>>, outcome: Outcome) -> Outcome {
    match value {
        Some(value) => value.finish(outcome),
        None => outcome,
    }
}

/// All that a run needs.
pub(crate) struct Start<K: Resource + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    pub(crate) workers: Workers<ObjectRef<K>>,
    pub(crate) feeds: Vec<Feed<K>>,
    pub(crate) adds: Arc<Adds<K>>,
    pub(crate) store: Store<K>,
    pub(crate) stop: Stop,
}

impl<K> Start<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Polls feeds and loops until the end, and returns what was left. `begin` makes the loops when the store has its first list, and its
    /// future ends with them.
    pub(crate) async fn until_end<W: Future<Output = ()>>(self, begin: impl FnOnce() -> W) -> Leftover<ObjectRef<K>> {
        let Self { workers, feeds, adds, store, mut stop } = self;
        let workers = StopsWhenDropped(workers);
        let workers = &workers.0;
        stop.listen();
        let feeds = feeds.into_iter().map(|feed| feed(Arc::clone(&adds))).collect::<FuturesUnordered<_>>();
        let mut feeds = pin!(feeds.collect::<()>());
        let loops = async {
            match store.wait_until_ready().await {
                Ok(()) => begin().await,
                Err(error) => tracing::error!(%error, "the controller ends"),
            }
        };
        let mut loops = pin!(loops.fuse()); // it is pending when it has ended
        let is_fed = tokio::select! {
            () = stop.asked() => false,
            () = &mut loops => false, // or the queue was shut down by another
            () = &mut feeds => true,
        };
        // The end of all streams leaves work, while a stop leaves it to the next start.
        let end = async {
            match is_fed {
                true => workers.drain_until(stop.asked()).await,
                false => workers.finish_until(stop.deadline()).await,
            }
        };
        let mut end = pin!(end);
        loop {
            tokio::select! {
                left = &mut end => return left,
                () = &mut loops => {}
            }
        }
    }
}

/// Tasks that are spawned would otherwise outlive a run whose future is dropped.
struct StopsWhenDropped<K: Hash + Eq + Clone + Send + Sync + 'static>(Workers<K>);

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Drop for StopsWhenDropped<K> {
    fn drop(&mut self) {
        drop(self.0.stop()); // a second stop changes nothing
    }
}
