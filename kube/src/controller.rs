//! The controller and its settings.

use crate::feed::{Adds, Feed, of_objects, of_related, of_stream, owners};
use crate::run::{Runs, Start};
use crate::stop::Stop;
use crate::{Reason, Reasons, Reconcile};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use keyqueue::values::ValueQueue;
use keyqueue::{IntoOutcome, Item, Leftover, Priority, WorkQueue, WorkQueueBuilder, WorkersBuilder};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::Backoff;
#[expect(deprecated, reason = "its successor asks for an `Api` of another type")]
use kube::runtime::watcher::metadata_watcher;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The number of loops, unless [`Controller::workers`] says it.
const LOOPS: usize = 16;

type Settings<K> = Box<dyn FnOnce(WorkersBuilder<ObjectRef<K>>) -> WorkersBuilder<ObjectRef<K>> + Send>;

/// A controller of one kind of objects.
///
/// It watches the objects, and what they [own](Self::owns) or [depend on](Self::watches), and calls a handler for each object that has
/// changed. An object is handled by one call at a time, and changes during a call lead to one more.
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<K: Resource + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    dyntype: K::DynamicType,
    store: Store<K>,
    is_fed_by_stream: bool,
    feeds: Vec<Feed<K>>,
    queue: Queue<ObjectRef<K>>,
    loops: usize,
    settings: Settings<K>,
    backoff: Arc<dyn Fn() -> Box<dyn Backoff> + Send + Sync>,
    on_watch_error: Arc<dyn Fn(&watcher::Error) + Send + Sync>,
    stop: Stop,
}

enum Queue<K> {
    Builder(WorkQueueBuilder<K>),
    Built(WorkQueue<K>),
}

impl<K> Controller<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// A controller of the objects that this API lists, and that the configuration selects.
    pub fn new(api: Api<K>, config: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(api, config, Default::default())
    }

    /// Like [`new`](Self::new), for a kind that is known only at run time.
    pub fn new_with(api: Api<K>, config: watcher::Config, dyntype: K::DynamicType) -> Self {
        let writer = Writer::new(dyntype.clone());
        let store = writer.as_reader();
        let feed = of_objects(watcher(api, config), writer, dyntype.clone());
        Self::over(feed, store, dyntype, false)
    }

    /// A controller of the objects of a stream, whose store the caller fills.
    pub fn for_stream(trigger: impl Stream<Item = watcher::Result<K>> + Send + 'static, reader: Store<K>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_stream_with(trigger, reader, Default::default())
    }

    /// Like [`for_stream`](Self::for_stream), for a kind that is known only at run time.
    pub fn for_stream_with(
        trigger: impl Stream<Item = watcher::Result<K>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        Self::over_stream(trigger, reader, dyntype)
    }

    /// Like [`for_stream`](Self::for_stream), for a stream that several controllers share.
    pub fn for_shared_stream(trigger: impl Stream<Item = Arc<K>> + Send + 'static, reader: Store<K>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_shared_stream_with(trigger, reader, Default::default())
    }

    /// Like [`for_shared_stream`](Self::for_shared_stream), for a kind that is known only at run time.
    pub fn for_shared_stream_with(
        trigger: impl Stream<Item = Arc<K>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        Self::over_stream(trigger.map(Ok), reader, dyntype)
    }

    fn over_stream<T: Borrow<K> + Send + 'static>(
        trigger: impl Stream<Item = watcher::Result<T>> + Send + 'static,
        store: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let (kind, reader) = (dyntype.clone(), store.clone());
        let map = move |object: T| [ObjectRef::from_obj_with(object.borrow(), kind.clone())];
        // What the stream yields before the store is ready is the first list.
        let priority = move || match reader.wait_until_ready().now_or_never() {
            Some(Ok(())) => Priority::NORMAL,
            _ => Priority::LOW,
        };
        Self::over(of_stream(trigger, map, Reason::Changed, priority), store, dyntype, true)
    }

    fn over(feed: Feed<K>, store: Store<K>, dyntype: K::DynamicType, is_fed_by_stream: bool) -> Self {
        Self {
            dyntype,
            store,
            is_fed_by_stream,
            feeds: vec![feed],
            queue: Queue::Builder(WorkQueue::builder()),
            loops: LOOPS,
            settings: Box::new(|settings| settings),
            backoff: Arc::new(|| Box::<DefaultBackoff>::default()),
            on_watch_error: Arc::new(|error| tracing::warn!(%error, "a watch has failed, and is tried again")),
            stop: Stop::default(),
        }
    }

    /// The objects that this watches, as the store has them: to read, also before and after the run.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Also reconciles an object when one that it owns is created, changed or deleted.
    pub fn owns<Child>(self, api: Api<Child>, config: watcher::Config) -> Self
    where
        Child: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        self.owns_with(api, (), config)
    }

    /// Like [`owns`](Self::owns), for a kind that is known only at run time.
    pub fn owns_with<Child>(self, api: Api<Child>, dyntype: Child::DynamicType, config: watcher::Config) -> Self
    where
        Child: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        _ = dyntype; // the API knows its own
        let owner = self.dyntype.clone();
        #[expect(deprecated)]
        let watch = metadata_watcher(api, config);
        self.feed(of_related(watch, move |child| owners(&child, &owner)))
    }

    /// Like [`owns`](Self::owns), for a stream of objects.
    pub fn owns_stream<Child: Resource<DynamicType = ()> + Send + 'static>(
        self,
        trigger: impl Stream<Item = watcher::Result<Child>> + Send + 'static,
    ) -> Self {
        self.owns_stream_with(trigger, ())
    }

    /// Like [`owns_stream`](Self::owns_stream), for a kind that is known only at run time.
    pub fn owns_stream_with<Child: Resource + Send + 'static>(
        self,
        trigger: impl Stream<Item = watcher::Result<Child>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self {
        _ = dyntype;
        let owner = self.dyntype.clone();
        self.related_stream(trigger, move |child| owners(&child, &owner))
    }

    /// Like [`owns_stream`](Self::owns_stream), for a stream that several controllers share.
    pub fn owns_shared_stream<Child: Resource<DynamicType = ()> + Send + Sync + 'static>(
        self,
        trigger: impl Stream<Item = Arc<Child>> + Send + 'static,
    ) -> Self {
        self.owns_shared_stream_with(trigger, ())
    }

    /// Like [`owns_shared_stream`](Self::owns_shared_stream), for a kind that is known only at run time.
    pub fn owns_shared_stream_with<Child: Resource + Send + Sync + 'static>(
        self,
        trigger: impl Stream<Item = Arc<Child>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self {
        _ = dyntype;
        let owner = self.dyntype.clone();
        self.related_stream(trigger.map(Ok), move |child: Arc<Child>| owners(&*child, &owner))
    }

    /// Also reconciles the objects to which `mapper` maps an object of another kind, when that one is created, changed or deleted.
    pub fn watches<Other, I>(
        self,
        api: Api<Other>,
        config: watcher::Config,
        mapper: impl Fn(Other) -> I + Send + Sync + 'static,
    ) -> Self
    where
        Other: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
        Other::DynamicType: Default,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.watches_with(api, Default::default(), config, mapper)
    }

    /// Like [`watches`](Self::watches), for a kind that is known only at run time.
    pub fn watches_with<Other, I>(
        self,
        api: Api<Other>,
        dyntype: Other::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(Other) -> I + Send + Sync + 'static,
    ) -> Self
    where
        Other: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        _ = dyntype;
        self.feed(of_related(watcher(api, config), move |other| mapper(other).into_iter().collect()))
    }

    /// Like [`watches`](Self::watches), for a stream of objects.
    pub fn watches_stream<Other, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<Other>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Send + Sync + 'static,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Default,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.related_stream(trigger, mapper)
    }

    /// Like [`watches_stream`](Self::watches_stream), for a kind that is known only at run time.
    pub fn watches_stream_with<Other, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<Other>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Send + Sync + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        _ = dyntype;
        self.related_stream(trigger, mapper)
    }

    /// Like [`watches_stream`](Self::watches_stream), for a stream that several controllers share.
    pub fn watches_shared_stream<Other, I>(
        self,
        trigger: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        Other: Resource + Send + Sync + 'static,
        Other::DynamicType: Default,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.related_stream(trigger.map(Ok), mapper)
    }

    /// Like [`watches_shared_stream`](Self::watches_shared_stream), for a kind that is known only at run time.
    pub fn watches_shared_stream_with<Other, I>(
        self,
        trigger: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Send + Sync + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        _ = dyntype;
        self.related_stream(trigger.map(Ok), mapper)
    }

    /// Reconciles the objects that this stream names.
    pub fn reconcile_on(self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        self.feed(of_stream(trigger.map(Ok), |object| [object], Reason::Requested, || Priority::NORMAL))
    }

    /// Reconciles all objects that the store has when this stream yields.
    pub fn reconcile_all_on(self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let (store, dyntype) = (self.store(), self.dyntype.clone());
        let all = move |()| {
            let dyntype = dyntype.clone();
            store.state().into_iter().map(move |object| ObjectRef::from_obj_with(&*object, dyntype.clone()))
        };
        self.feed(of_stream(trigger.map(Ok), all, Reason::Bulk, || Priority::LOW))
    }

    fn related_stream<T: Send + 'static, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<T>> + Send + 'static,
        mapper: impl Fn(T) -> I + Send + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.feed(of_stream(trigger, mapper, Reason::Related, || Priority::NORMAL))
    }

    fn feed(mut self, feed: Feed<K>) -> Self {
        self.feeds.push(feed);
        self
    }

    /// How long a watch pauses after an error.
    pub fn trigger_backoff<B: Backoff + 'static>(mut self, backoff: impl Fn() -> B + Send + Sync + 'static) -> Self {
        self.backoff = Arc::new(move || Box::new(backoff()));
        self
    }

    /// Calls this at each error of a watch.
    pub fn on_watch_error(mut self, hook: impl Fn(&watcher::Error) + Send + Sync + 'static) -> Self {
        self.on_watch_error = Arc::new(hook);
        self
    }

    /// Settings of the queue.
    pub fn queue(
        mut self,
        settings: impl FnOnce(WorkQueueBuilder<ObjectRef<K>>) -> WorkQueueBuilder<ObjectRef<K>>,
    ) -> Self {
        self.queue = match self.queue {
            Queue::Builder(builder) => Queue::Builder(settings(builder)),
            Queue::Built(_) => panic!("queue: the controller has a queue that is built, from `with_queue`"),
        };
        self
    }

    /// A queue that the caller has built, to look at it while the controller runs.
    pub fn with_queue(mut self, queue: WorkQueue<ObjectRef<K>>) -> Self {
        self.queue = Queue::Built(queue);
        self
    }

    /// The number of loops, and settings of the workers.
    pub fn workers(
        mut self,
        loops: usize,
        settings: impl FnOnce(WorkersBuilder<ObjectRef<K>>) -> WorkersBuilder<ObjectRef<K>> + Send + 'static,
    ) -> Self {
        assert!(loops > 0, "workers: loops is 0, so no loop would reconcile objects");
        (self.loops, self.settings) = (loops, Box::new(settings));
        self
    }

    /// Ends the run when this resolves.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop.triggers.push(trigger.boxed());
        self
    }

    /// Ends the run at SIGTERM and Ctrl-C.
    pub fn shutdown_on_signal(mut self, timeout: Duration) -> Self {
        self.stop.timeout = Some(timeout);
        self
    }

    /// Runs the controller.
    pub async fn run<H, R>(self, handler: H) -> Leftover<ObjectRef<K>>
    where
        H: AsyncFn(&Reconcile<'_, K>) -> R,
        R: IntoOutcome,
    {
        let (start, runs, loops) = self.start();
        let workers = start.workers.clone();
        let begin = || {
            let reconcile = async |item: &Item<'_, ObjectRef<K>>| match runs.begin(item) {
                Ok(begun) => {
                    let result = handler(&begun.run).await;
                    begun.end(result)
                }
                Err(none) => none,
            };
            (0..loops).map(|_| workers.run_async(reconcile)).collect::<FuturesUnordered<_>>().collect::<()>()
        };
        start.until_end(begin).await
    }

    /// Like [`run`](Self::run), but each loop is a task of its own.
    pub async fn run_boxed<H, R>(self, handler: H) -> Leftover<ObjectRef<K>>
    where
        H: for<'i> Fn(&'i Reconcile<'i, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>> + Send + Sync + 'static,
        R: IntoOutcome + Send + 'static,
    {
        let (start, runs, loops) = self.start();
        let workers = start.workers.clone();
        let shared = Arc::new((runs, handler));
        let begin = || {
            workers.spawn_tasks(loops, move |item| {
                let shared = Arc::clone(&shared);
                Box::pin(async move {
                    let (runs, handler) = &*shared;
                    match runs.begin(item) {
                        Ok(begun) => {
                            let result = handler(&begun.run).await;
                            begun.end(result)
                        }
                        Err(none) => none,
                    }
                })
            });
            workers.join_async()
        };
        start.until_end(begin).await
    }

    fn start(self) -> (Start<K>, Runs<K>, usize) {
        let Self { store, is_fed_by_stream, feeds, queue, loops, settings, backoff, on_watch_error, stop, .. } = self;
        let queue = match queue {
            Queue::Builder(builder) => builder.build(),
            Queue::Built(queue) => queue,
        };
        let workers = settings(queue.workers()).build();
        let values = ValueQueue::with_merge(queue, |older: &Reasons, newer: &Reasons| *older | *newer);
        let runs = Runs { values: values.clone(), store: store.clone(), is_fed_by_stream };
        let adds = Adds { values, backoff, on_watch_error };
        (Start { workers, feeds, adds, store, stop }, runs, loops)
    }
}

impl<K: Resource> fmt::Debug for Controller<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("feeds", &self.feeds.len())
            .field("loops", &self.loops)
            .finish_non_exhaustive()
    }
}
