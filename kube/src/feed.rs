//! What tells the queue of objects: watches, streams, and the map from related objects to those that are reconciled.
//!
//! ```text
//!   a watch          Init      InitApply …     InitDone                      Apply, Delete
//!   the store        old list  (beside it)     the new list                  the change
//!   adds of objects                            all LOW, those gone NORMAL    NORMAL
//!   … of a child     the same for the objects that the child belongs to: before the change, and after it
//! ```
//!
//! The store has the objects of a list only from `InitDone` on, so their keys wait until then: a run that came earlier would find nothing,
//! or the object of before.

use crate::{Reason, Reasons};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use keyqueue::values::{Refused, ValueQueue};
use keyqueue::{AddOptions, Priority};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, reflector};
use kube::runtime::utils::{Backoff, StreamBackoff};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use std::collections::HashMap;
use std::future::ready;
use std::hash::Hash;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::consume_budget;

/// A source of keys, which the run of the controller polls.
pub(crate) type Feed<K> = Box<dyn FnOnce(Arc<Adds<K>>) -> BoxFuture<'static, ()> + Send>;

/// What is kept of a key until a run of it has succeeded: why it is to run, and how often the store did not have its object yet.
pub(crate) type Why = (Reasons, u32);

/// Where keys go, and errors of watches.
pub(crate) struct Adds<K: Resource + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    pub(crate) values: ValueQueue<ObjectRef<K>, Why>,
    pub(crate) store: Store<K>,
    /// The caller fills the store, and the stream of objects does not say when a list has come to its end.
    pub(crate) is_fed_by_stream: bool,
    /// Whether the store has its first list, and runs have begun. To ask the store itself would take the place of those that wait for it,
    /// because it wakes only the last one that has polled it.
    pub(crate) is_ready: AtomicBool,
    pub(crate) backoff: Arc<dyn Fn() -> Box<dyn Backoff> + Send + Sync>,
    pub(crate) on_watch_error: Arc<dyn Fn(&watcher::Error) + Send + Sync>,
}

impl<K> Adds<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Adds the key of an object. If the queue is full, waits until it has room.
    async fn add(&self, object: ObjectRef<K>, reason: Reason, priority: Priority) {
        let mut object = bare(object);
        // A child that has a namespace names an owner that has none, and the reference to the owner is in the child's namespace.
        let is_named = matches!(reason, Reason::Related | Reason::Requested);
        if is_named && self.store.get(&object).is_some_and(|found| found.meta().namespace.is_none()) {
            object.namespace = None;
        }
        let options = AddOptions::new().priority(priority);
        while let Err(Refused(_)) = self.values.add_with(object.clone(), (reason.into(), 0), options) {
            if self.values.queue().shutting_down() {
                return;
            }
            self.values.queue().add_wait_async(object.clone()).await;
        }
        consume_budget().await; // a long list gives way to other tasks
    }

    /// The events of a watch. After an error it pauses, and then the watcher tries again.
    fn events<T, S>(&self, watch: S) -> impl Stream<Item = T> + Send + use<K, T, S>
    where
        S: Stream<Item = watcher::Result<T>> + Send,
        T: Send,
    {
        let on_watch_error = Arc::clone(&self.on_watch_error);
        StreamBackoff::new(watch, Patient { backoff: (self.backoff)(), has_failed: false })
            .filter_map(move |event| ready(event.map_err(|error| on_watch_error(&error)).ok()))
    }
}

/// The watcher says that a list begins also before one that fails, so the first event after an error does not reset the backoff.
struct Patient {
    backoff: Box<dyn Backoff>,
    has_failed: bool,
}

impl Iterator for Patient {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.has_failed = true;
        self.backoff.next()
    }
}

impl Backoff for Patient {
    fn reset(&mut self) {
        if !mem::take(&mut self.has_failed) {
            self.backoff.reset();
        }
    }
}

/// The reference without a version and a UID, which are not part of the key, and would be those of the first event.
fn bare<K: Resource>(mut object: ObjectRef<K>) -> ObjectRef<K> {
    object.extra = Default::default();
    object
}

/// The watch of the objects themselves, which fills the store.
pub(crate) fn of_objects<K>(
    watch: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    writer: Writer<K>,
    dyntype: K::DynamicType,
) -> Feed<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let refer = move |object: &K| bare(ObjectRef::from_obj_with(object, dyntype.clone()));
    Box::new(move |adds: Arc<Adds<K>>| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut events = pin!(adds.events(reflector(writer, watch)));
            let mut before = Vec::new();
            while let Some(event) = events.next().await {
                match event {
                    Event::Init => before = adds.store.state().iter().map(|object| refer(object)).collect(),
                    Event::InitApply(_) => {}
                    Event::InitDone => {
                        before.retain(|object| adds.store.get(object).is_none());
                        for gone in mem::take(&mut before) {
                            adds.add(gone, Reason::Gone, Priority::NORMAL).await;
                        }
                        for object in adds.store.state() {
                            adds.add(refer(&object), Reason::Listed, Priority::LOW).await;
                        }
                    }
                    Event::Apply(object) => adds.add(refer(&object), Reason::Changed, Priority::NORMAL).await,
                    Event::Delete(object) => adds.add(refer(&object), Reason::Gone, Priority::NORMAL).await,
                }
            }
        })
    })
}

/// A watch of related objects, which are mapped to those that are reconciled.
pub(crate) fn of_related<K, T>(
    watch: impl Stream<Item = watcher::Result<Event<T>>> + Send + 'static,
    map: impl Fn(T) -> Vec<ObjectRef<K>> + Send + 'static,
) -> Feed<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    T: Resource + Send + 'static,
{
    Box::new(move |adds: Arc<Adds<K>>| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut events = pin!(adds.events(watch));
            let mut relations = Relations { known: HashMap::new(), listed: HashMap::new() };
            while let Some(event) = events.next().await {
                let told = relations.see(event, &map);
                for (objects, priority) in [(told.changed, Priority::NORMAL), (told.listed, Priority::LOW)] {
                    for object in objects {
                        adds.add(object, Reason::Related, priority).await;
                    }
                }
            }
        })
    })
}

/// A stream of objects, or of references to them. What it yields before the store is ready is LOW, because it may be a list.
pub(crate) fn of_stream<K, T, I>(
    stream: impl Stream<Item = watcher::Result<T>> + Send + 'static,
    map: impl Fn(T) -> I + Send + 'static,
    reason: Reason,
    priority: Priority,
) -> Feed<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    T: Send + 'static,
    I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
{
    Box::new(move |adds: Arc<Adds<K>>| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut objects = pin!(adds.events(stream));
            while let Some(object) = objects.next().await {
                let priority = if adds.is_ready.load(Relaxed) { priority } else { Priority::LOW };
                for object in map(object) {
                    adds.add(object, reason, priority).await;
                }
            }
        })
    })
}

/// The owners that an object names, of this kind.
pub(crate) fn owners<K: Resource>(child: &impl Resource, dyntype: &K::DynamicType) -> Vec<ObjectRef<K>>
where
    K::DynamicType: Clone,
{
    let meta = child.meta();
    let named = meta.owner_references.iter().flatten();
    named.filter_map(|owner| ObjectRef::from_owner_ref(meta.namespace.as_deref(), owner, dyntype.clone())).collect()
}

/// Namespace and name of a related object.
type Id = (Option<String>, String);

/// The objects to which each related object belongs. A list has no event for an object that was deleted while the watch was cut, nor for the
/// owner that an object had before; both are known here.
struct Relations<K: Resource> {
    known: HashMap<Id, Box<[ObjectRef<K>]>>,
    /// Those of the list that has begun.
    listed: HashMap<Id, Box<[ObjectRef<K>]>>,
}

/// Which objects are to be reconciled.
struct Told<K: Resource> {
    changed: Vec<ObjectRef<K>>,
    listed: Vec<ObjectRef<K>>,
}

impl<K> Relations<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    fn see<T: Resource>(&mut self, event: Event<T>, map: impl Fn(T) -> Vec<ObjectRef<K>>) -> Told<K> {
        let id = |object: &T| (object.namespace(), object.name_any());
        let map = |object| map(object).into_iter().map(bare).collect::<Vec<_>>();
        let mut told = Told { changed: Vec::new(), listed: Vec::new() };
        match event {
            Event::Init => self.listed.clear(), // the list before may not have come to its end
            Event::InitApply(object) => insert(&mut self.listed, id(&object), map(object)),
            Event::InitDone => {
                let before = mem::replace(&mut self.known, mem::take(&mut self.listed));
                for (id, objects) in before {
                    let now = self.known.get(&id).map_or(&[][..], |objects| objects);
                    told.changed.extend(objects.into_iter().filter(|object| !now.contains(object)));
                }
                told.listed.extend(self.known.values().flatten().cloned());
            }
            Event::Apply(object) => {
                let id = id(&object);
                told.changed = map(object);
                let before = self.known.remove(&id).unwrap_or_default();
                insert(&mut self.known, id, told.changed.clone());
                told.changed.extend(before);
            }
            Event::Delete(object) => {
                told.changed.extend(self.known.remove(&id(&object)).unwrap_or_default());
                told.changed.extend(map(object));
            }
        }
        told
    }
}

/// Most objects of a cluster belong to none that is reconciled: these take no place.
fn insert<K: Resource>(relations: &mut HashMap<Id, Box<[ObjectRef<K>]>>, id: Id, objects: Vec<ObjectRef<K>>) {
    if !objects.is_empty() {
        relations.insert(id, objects.into_boxed_slice());
    }
}
