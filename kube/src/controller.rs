//! The controller and its settings.

use crate::feed::{Adds, Feed, Why, of_objects, of_related, of_stream, owners};
use crate::run::Start;
use crate::stop::Stop;
use crate::{Reason, Reconcile};
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

type Settings<K> = Box<dyn FnOnce(WorkersBuilder<ObjectRef<K>>) -> WorkersBuilder<ObjectRef<K>> + Send>;

/// A controller of the objects of one kind, to be built and then [run](Self::run).
///
/// It watches the objects, and those that they [own](Self::owns) or [depend on](Self::watches), and calls a handler for each object that is
/// to be reconciled. The [crate's page](crate) says what it guarantees, and what is different in kube's.
///
/// The methods that end in `_with` are for kinds that are known only at run time: they take what describes the kind, as in kube's controller,
/// although the API or the stream knows that of a related kind by itself.
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
    Builder(Box<WorkQueueBuilder<K>>),
    Built(WorkQueue<K>),
}

impl<K> Controller<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// A controller of the objects that `config` selects of those in `api`.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue_kube::Controller;
    /// # use kube::{Api, Client, runtime::watcher};
    /// # fn example(client: Client) {
    /// let ours = watcher::Config::default().labels("example.org/kind=ours");
    /// let controller = Controller::new(Api::<ConfigMap>::all(client), ours);
    /// # _ = controller;
    /// # }
    /// ```
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

    /// A controller of the objects that a stream yields, which the caller has filtered, or shares with others. `reader` is the store of these
    /// objects: the caller's [reflector](kube::runtime::reflector()) fills it before the stream yields an object.
    ///
    /// When this stream and all others have ended, the controller works off what is queued, and ends. If the store has no list by then, and
    /// nobody fills it any more, the controller ends at once.
    ///
    /// A stream of objects does not say where a list ends. So these objects have the priority LOW until the store has its first list, and
    /// NORMAL from then on. An object that the store does not have yet, because it is in a list that has not come to its end, is looked at
    /// again for some 80 seconds. What is gone is not told, because the stream does not say that either: use [`new`](Self::new), or a
    /// finalizer.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue_kube::Controller;
    /// # use kube::runtime::{WatchStreamExt, predicates, reflector, watcher};
    /// # use kube::{Api, Client};
    /// # fn example(api: Api<ConfigMap>) {
    /// let (reader, writer) = reflector::store();
    /// let changes = watcher(api, watcher::Config::default())
    ///     .default_backoff()
    ///     .reflect(writer)
    ///     .applied_objects()
    ///     .predicate_filter(predicates::generation, Default::default()); // not when only the status changes
    /// let controller = Controller::for_stream(changes, reader);
    /// # _ = controller;
    /// # }
    /// ```
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

    /// Like [`for_stream`](Self::for_stream), for a stream that several controllers share: a subscription of a shared
    /// [`Writer`]. The caller polls the reflector beside the controllers.
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
        let kind = dyntype.clone();
        let map = move |object: T| [ObjectRef::from_obj_with(object.borrow(), kind.clone())];
        Self::over(of_stream(trigger, map, Reason::Changed, Priority::NORMAL), store, dyntype, true)
    }

    fn over(feed: Feed<K>, store: Store<K>, dyntype: K::DynamicType, is_fed_by_stream: bool) -> Self {
        Self {
            dyntype,
            store,
            is_fed_by_stream,
            feeds: vec![feed],
            queue: Queue::Builder(Box::new(WorkQueue::builder())),
            loops: 16,
            settings: Box::new(|settings| settings),
            backoff: Arc::new(|| Box::<DefaultBackoff>::default()),
            on_watch_error: Arc::new(|error| tracing::warn!(%error, "a watch has failed, and is tried again")),
            stop: Stop::default(),
        }
    }

    /// The store of the objects, to be read by others, also before and after the run.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Reconciles an object also when one that it owns is created, changed or deleted. The owned object must name it in its
    /// `ownerReferences`. When it names another owner than before, both are reconciled.
    ///
    /// Of the owned objects only the metadata is fetched.
    pub fn owns<Child>(self, api: Api<Child>, config: watcher::Config) -> Self
    where
        Child: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        self.owns_with(api, (), config)
    }

    /// Like [`owns`](Self::owns), for a kind that is known only at run time.
    pub fn owns_with<Child>(self, api: Api<Child>, _dyntype: Child::DynamicType, config: watcher::Config) -> Self
    where
        Child: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let owner = self.dyntype.clone();
        #[expect(deprecated)]
        let watch = metadata_watcher(api, config);
        self.feed(of_related(watch, move |child| owners(&child, &owner)))
    }

    /// Like [`owns`](Self::owns), for a stream of objects. A stream does not say of what its lists consist, so owners that a child had before,
    /// and those of a child that is missing in a list, are not told.
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
        _dyntype: Child::DynamicType,
    ) -> Self {
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
        _dyntype: Child::DynamicType,
    ) -> Self {
        let owner = self.dyntype.clone();
        self.related_stream(trigger.map(Ok), move |child: Arc<Child>| owners(&*child, &owner))
    }

    /// Reconciles objects also when one of another kind on which they depend is created, changed or deleted. `mapper` says which ones: those
    /// before the change, and those after it.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use keyqueue_kube::Controller;
    /// # use kube::runtime::reflector::ObjectRef;
    /// # use kube::{Api, Client, ResourceExt, runtime::watcher};
    /// # fn example(controller: Controller<ConfigMap>, client: Client) {
    /// // The ConfigMap of the same name.
    /// let controller = controller.watches(Api::all(client), watcher::Config::default(), |secret: Secret| {
    ///     let object = ObjectRef::new(&secret.name_any());
    ///     secret.namespace().map(|namespace| object.within(&namespace))
    /// });
    /// # _ = controller;
    /// # }
    /// ```
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
        _dyntype: Other::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(Other) -> I + Send + Sync + 'static,
    ) -> Self
    where
        Other: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.feed(of_related(watcher(api, config), move |other| mapper(other).into_iter().collect()))
    }

    /// Like [`watches`](Self::watches), for a stream of objects, each of which is mapped when it comes.
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
        _dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
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
        _dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.related_stream(trigger.map(Ok), mapper)
    }

    /// Reconciles the objects that this stream names, if they exist. When the stream ends, the controller goes on.
    ///
    /// What this or any other stream yields before the store has its first list has the priority LOW.
    pub fn reconcile_on(self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        self.feed(of_stream(trigger.map(Ok), |object| [object], Reason::Requested, Priority::NORMAL))
    }

    /// Reconciles all objects that the store has when this stream yields, with the priority LOW: after a change of the program's settings,
    /// for instance.
    pub fn reconcile_all_on(self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let (store, dyntype) = (self.store(), self.dyntype.clone());
        let all = move |()| {
            let dyntype = dyntype.clone();
            store.state().into_iter().map(move |object| ObjectRef::from_obj_with(&*object, dyntype.clone()))
        };
        self.feed(of_stream(trigger.map(Ok), all, Reason::Bulk, Priority::LOW))
    }

    fn related_stream<T: Send + 'static, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<T>> + Send + 'static,
        mapper: impl Fn(T) -> I + Send + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = ObjectRef<K>, IntoIter: Send> + 'static,
    {
        self.feed(of_stream(trigger, mapper, Reason::Related, Priority::NORMAL))
    }

    fn feed(mut self, feed: Feed<K>) -> Self {
        self.feeds.push(feed);
        self
    }

    /// How long a watch pauses after an error. The function is called for each watch, which has a backoff of its own.
    ///
    /// By default kube's [`DefaultBackoff`], from 0.8 to 30 seconds. It is reset by the second event that comes without an error. If a
    /// backoff ends, which the default one does not, so does its watch.
    pub fn trigger_backoff<B: Backoff + 'static>(mut self, backoff: impl Fn() -> B + Send + Sync + 'static) -> Self {
        self.backoff = Arc::new(move || Box::new(backoff()));
        self
    }

    /// Calls this at each error of a watch, which is tried again after that. By default a warning of the crate `tracing`.
    pub fn on_watch_error(mut self, hook: impl Fn(&watcher::Error) + Send + Sync + 'static) -> Self {
        self.on_watch_error = Arc::new(hook);
        self
    }

    /// Changes settings of the queue: limits and fairness, the [limiter](WorkQueueBuilder::rate_limiter) that says how long retries wait,
    /// measuring, a name for metrics. May be called several times.
    ///
    /// The queue must not be a lock-free one, which has no priorities: with that, the run panics at the first object of a list.
    ///
    /// Keep [`max_keys`](WorkQueueBuilder::max_keys), if you set it, above the number of keys that wait for their next look, because the
    /// watches wait while the queue is full. A key that has waited there has the priority NORMAL, also if it is from a list.
    ///
    /// # Panics
    /// If the controller has a queue from [`with_queue`](Self::with_queue).
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue_kube::{Controller, namespace};
    /// # fn example(controller: Controller<ConfigMap>) {
    /// // No namespace holds up the others, and each has four runs at a time at most.
    /// let controller = controller.queue(|queue| {
    ///     queue.name("config-maps").fair_by(namespace).max_processing_per_group(4)
    /// });
    /// # _ = controller;
    /// # }
    /// ```
    pub fn queue(
        mut self,
        settings: impl FnOnce(WorkQueueBuilder<ObjectRef<K>>) -> WorkQueueBuilder<ObjectRef<K>>,
    ) -> Self {
        self.queue = match self.queue {
            Queue::Builder(builder) => Queue::Builder(Box::new(settings(*builder))),
            Queue::Built(_) => panic!("queue: the controller has a queue that is built, from `with_queue`"),
        };
        self
    }

    /// Uses this queue, of which the caller keeps a clone: to read its statistics, to ask what a key waits for, to pause it, or to add keys
    /// beside the watches. The run of a key that was added by the queue itself is told no reason. Settings of [`queue`](Self::queue) made
    /// before this call are dropped.
    ///
    /// Give each controller a queue of its own, because one controller would take the keys of another, without their reasons.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue_kube::Controller;
    /// # fn example(controller: Controller<ConfigMap>) {
    /// let queue = WorkQueue::builder().measure(true).build();
    /// let controller = controller.with_queue(queue.clone());
    /// // elsewhere, while it runs: `queue.inspect().key(&object)`, `queue.pause()`
    /// # _ = controller;
    /// # }
    /// ```
    pub fn with_queue(mut self, queue: WorkQueue<ObjectRef<K>>) -> Self {
        self.queue = Queue::Built(queue);
        self
    }

    /// How many objects are reconciled at a time (by default 16), and settings of the workers: retries, time limits, hooks. A later call
    /// replaces these.
    ///
    /// # Panics
    /// If `loops` is 0.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue_kube::Controller;
    /// # use std::time::Duration;
    /// # fn example(controller: Controller<ConfigMap>) {
    /// let controller = controller.workers(8, |workers| {
    ///     workers
    ///         .max_retries(15) // these take 164 seconds; then once an hour
    ///         .then_after(Duration::from_secs(3600))
    ///         .time_limit(Duration::from_secs(60))
    ///         .on_error(|object, error| eprintln!("{object} is retried: {error}"))
    /// });
    /// # _ = controller;
    /// # }
    /// ```
    pub fn workers(
        mut self,
        loops: usize,
        settings: impl FnOnce(WorkersBuilder<ObjectRef<K>>) -> WorkersBuilder<ObjectRef<K>> + Send + 'static,
    ) -> Self {
        assert!(loops > 0, "workers: loops is 0, so no loop would reconcile objects");
        (self.loops, self.settings) = (loops, Box::new(settings));
        self
    }

    /// Ends the run when this future resolves: no object is reconciled any more, and the handlers that run go on to their ends, or to the
    /// deadline of [`shutdown_on_signal`](Self::shutdown_on_signal), if the controller has one. May be called several times.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop.triggers.push(trigger.boxed());
        self
    }

    /// Ends the run at SIGTERM or Ctrl-C: no object is reconciled any more, and the handlers that run have this time to end. After it, or at
    /// a second signal, their futures are dropped where they await.
    ///
    /// From then on these signals no longer end the process by themselves, also after the run.
    pub fn shutdown_on_signal(mut self, timeout: Duration) -> Self {
        self.stop.timeout = Some(timeout);
        self
    }

    /// Runs the controller in this future, until something ends it: a [signal](Self::shutdown_on_signal), a
    /// [trigger](Self::graceful_shutdown_on), a shut-down of its queue, or the end of all its streams. Returns the keys that were not
    /// reconciled to an end, each once.
    ///
    /// The handlers run at the same time, but on the thread that polls this future. They may borrow, and need not be `Send`. To have them on
    /// all threads of the runtime, see [`run_boxed`](Self::run_boxed).
    ///
    /// What a handler returns decides when the object is reconciled again: see [`Outcome`](keyqueue::Outcome), and
    /// [`IntoOutcome`] for other types. If it fails or panics, the object is retried, and the next run knows why this one was begun.
    ///
    /// # Cancel safety
    /// If the future is dropped, so are the watches and the handlers that run, and the queue is shut down.
    ///
    /// # Panics
    /// If it is not polled in a Tokio runtime that has its timers and its I/O enabled, or if the settings of the
    /// [queue](WorkQueueBuilder::build) or of the [workers](WorkersBuilder::build) contradict each other. A panic of a mapper, a stream, a
    /// backoff or the hook of [`on_watch_error`](Self::on_watch_error) ends the run.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue_kube::Controller;
    /// # use kube::{Api, Client, runtime::watcher};
    /// # async fn example(client: Client) {
    /// let counts = std::cell::Cell::new(0); // a handler may borrow
    /// let left = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .run(async |run| {
    ///         counts.set(counts.get() + 1);
    ///         println!("{run}: {}", run.reasons());
    ///     })
    ///     .await;
    /// # _ = left;
    /// # }
    /// ```
    pub async fn run<H, R>(self, handler: H) -> Leftover<ObjectRef<K>>
    where
        H: AsyncFn(&Reconcile<'_, K>) -> R,
        R: IntoOutcome,
    {
        let (start, loops) = self.start();
        let (workers, adds) = (start.workers.clone(), Arc::clone(&start.adds));
        let begin = || {
            let reconcile = async |item: &Item<'_, ObjectRef<K>>| match adds.begin(item) {
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

    /// Like [`run`](Self::run), with each loop in a task of its own, so that handlers run on all threads of the runtime. This future may be
    /// spawned, too.
    ///
    /// The handler returns a boxed future, because stable Rust cannot ask for an async closure whose futures are `Send`. If it hangs at the
    /// deadline, its task is aborted.
    ///
    /// # Cancel safety
    /// If the future is dropped, so are the watches, and the queue is shut down. The tasks end after the runs that have begun.
    ///
    /// # Panics
    /// Like [`run`](Self::run).
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue::Outcome;
    /// # use keyqueue_kube::{Controller, Reconcile};
    /// # use kube::{Api, Client, runtime::watcher};
    /// # use std::sync::Arc;
    /// struct Context {
    ///     client: Client,
    /// }
    ///
    /// async fn reconcile(run: &Reconcile<'_, ConfigMap>, context: &Context) -> Result<Outcome, kube::Error> {
    ///     # _ = (run, &context.client);
    ///     Ok(Outcome::Success)
    /// }
    ///
    /// # async fn example(client: Client) {
    /// let context = Arc::new(Context { client: client.clone() });
    /// let left = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .run_boxed(move |run| {
    ///         let context = Arc::clone(&context);
    ///         Box::pin(async move { reconcile(run, &context).await })
    ///     })
    ///     .await;
    /// # _ = left;
    /// # }
    /// ```
    pub async fn run_boxed<H, R>(self, handler: H) -> Leftover<ObjectRef<K>>
    where
        H: for<'i> Fn(&'i Reconcile<'i, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>> + Send + Sync + 'static,
        R: IntoOutcome + Send + 'static,
    {
        let (start, loops) = self.start();
        let workers = start.workers.clone();
        let shared = Arc::new((Arc::clone(&start.adds), handler));
        let begin = || {
            workers.spawn_tasks(loops, move |item| {
                let shared = Arc::clone(&shared);
                Box::pin(async move {
                    let (adds, handler) = &*shared;
                    match adds.begin(item) {
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

    fn start(self) -> (Start<K>, usize) {
        let queue = match self.queue {
            Queue::Builder(builder) => builder.build(),
            Queue::Built(queue) => queue,
        };
        let workers = (self.settings)(queue.workers()).build();
        let values =
            ValueQueue::with_merge(queue, |older: &Why, newer: &Why| (older.0 | newer.0, older.1.max(newer.1)));
        let is_ready = false.into();
        let Self { store, is_fed_by_stream, backoff, on_watch_error, feeds, stop, .. } = self;
        let adds = Arc::new(Adds { values, store, is_fed_by_stream, is_ready, backoff, on_watch_error });
        (Start { workers, feeds, adds, stop }, self.loops)
    }
}

/// Shows the number of watches and streams.
impl<K: Resource> fmt::Debug for Controller<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("feeds", &self.feeds.len()).finish_non_exhaustive()
    }
}
