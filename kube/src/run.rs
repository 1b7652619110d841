//! The run of a controller: its feeds and its loops, until it is told to end.

use crate::feed::{Adds, Feed, Why};
use crate::stop::Stop;
use crate::{Reason, Reconcile};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use keyqueue::values::Value;
use keyqueue::{AddOptions, IntoOutcome, Item, Leftover, Outcome, Workers};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use std::future::{Future, pending};
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often the key of an object that a stream has named, and that the store does not have, is looked at again. The delays double, so
/// that it is for 82 seconds, and a store that is filled by a list has all its objects by then. They are not those of the limiter, because
/// a look is no failure of the object.
const LOOKS: u32 = 14;

/// A run that has begun.
pub(crate) struct Begun<'i, K: Resource> {
    pub(crate) run: Reconcile<'i, K>,
    value: Option<Value<'i, ObjectRef<K>, Why>>,
}

impl<K> Adds<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Begins a run. `Err`: there is none, because the object does not exist, and the handler has been told if it ever did, or
    /// because the key is not the object's own.
    pub(crate) fn begin<'i>(&'i self, item: &'i Item<'i, ObjectRef<K>>) -> Result<Begun<'i, K>, Outcome> {
        let value = self.values.value(item);
        let (reasons, looks) = value.as_deref().copied().unwrap_or_default();
        let object = self.store.get(item.key());
        let is_told = match &object {
            None => reasons.contains(Reason::Gone),
            Some(object) => object.meta().namespace.is_some() || item.namespace.is_none(),
        };
        if is_told {
            return Ok(Begun { run: Reconcile { item, object, reasons }, value });
        }
        // Perhaps the store does not have the object yet. Or it did not have this owner when a child named it (`Adds::add`), and the owner has
        // a key of its own.
        let again = object.is_none() && self.is_fed_by_stream && reasons.contains(Reason::Changed) && looks < LOOKS;
        if again || object.is_some() {
            let mut key = item.key().clone();
            key.namespace.take_if(|_| !again);
            let delay = Duration::from_millis(if again { 5 << looks } else { 0 });
            let options = AddOptions::new().after(delay).priority(item.priority());
            let added = self.values.add_with(key, (reasons, looks + 1), options);
            // A full queue refuses only the owner's key, which the watch that has brought the owner adds. This one must not wait for that,
            // because keys like it might hold all places.
            if added.is_err() && item.shutting_down() {
                return Err(Outcome::RequeueWith(options)); // it is among what is left
            }
        }
        _ = value.map(Value::succeed);
        Err(Outcome::Success)
    }
}

impl<K: Resource> Begun<'_, K> {
    /// Ends the run. What brought it about is told to the next one, too, if this one has not succeeded.
    pub(crate) fn end(self, outcome: impl IntoOutcome) -> Outcome {
        let outcome = outcome.into_outcome();
        match self.value {
            // Nothing would bring the key back, or take its reasons out.
            Some(value) if self.run.object.is_none() && matches!(outcome, Outcome::GiveUp(_)) => _ = value.succeed(),
            Some(value) => return value.finish(outcome),
            None => {}
        }
        outcome
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
        let Self { workers, feeds, adds, mut stop } = self;
        let workers = StopsWhenDropped(workers);
        let workers = &workers.0;
        stop.listen();
        let feeds = feeds.into_iter().map(|feed| feed(Arc::clone(&adds))).collect::<FuturesUnordered<_>>();
        let mut feeds = pin!(feeds.collect::<()>());
        let loops = async {
            match adds.store.wait_until_ready().await.inspect(|()| adds.is_ready.store(true, Relaxed)) {
                Ok(()) => begin().await,
                Err(error) => tracing::error!(%error, "the controller ends"),
            }
        };
        let mut loops = pin!(loops.fuse()); // it is pending when it has ended
        let is_shut_down = async {
            workers.queue().until_shutting_down().await;
            if adds.is_ready.load(Relaxed) {
                pending().await // the loops work off what is queued
            }
        };
        let is_fed = tokio::select! {
            () = stop.asked() => false,
            () = &mut loops => false, // or the queue was shut down by another
            () = is_shut_down => false,
            () = &mut feeds => true,
        };
        // The end of all streams leaves work, while a stop leaves it to the next start.
        if is_fed {
            tokio::select! {
                left = workers.drain_async() => return left,
                () = &mut loops => {} // or they have not begun, and never will
                () = stop.asked() => {}
            }
        }
        let mut end = pin!(workers.finish_until(stop.deadline()));
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
