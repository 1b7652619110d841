//! Recipes, and the names of other work queues. This module has no items: it is a page.
//!
//! * [As a stream](#as-a-stream) · [a task for each key](#a-task-for-each-key) · [with `select!`](#with-select) ·
//!   [a handler in layers of tower](#a-handler-in-layers-of-tower) · [work on many keys at once](#work-on-many-keys-at-once) ·
//!   [without an async runtime](#without-an-async-runtime) · [without any other thread](#without-any-other-thread)
//! * [Debounce and throttle](#debounce-and-throttle) · [resync](#resync) · [a result for the adder](#a-result-for-the-adder) ·
//!   [events that carry data](#events-that-carry-data) · [producers that must wait](#producers-that-must-wait)
//! * [Tests with a mock clock](#tests-with-a-mock-clock) · [what makes a good key](#what-makes-a-good-key) ·
//!   [keys with one spelling](#keys-with-one-spelling)
//! * [From client-go](#from-client-go) · [from controller-runtime](#from-controller-runtime) · [from kube-rs](#from-kube-rs), with
//!   [the feed of a controller](#the-feed-of-a-controller)
//!
//! # As a stream
//!
//! With the feature `stream`, `queue.stream()` is a `Stream` of items. Each item owns a handle of the queue. The stream ends when the queue
//! is shut down and no key is queued.
//! ```
//! # #[cfg(feature = "stream")]
//! # futures_executor::block_on(async {
//! use futures_util::StreamExt;
//! use keyqueue::{OwnedItem, WorkQueue};
//!
//! let queue = WorkQueue::new();
//! queue.add_all([1, 2, 3]);
//! queue.shut_down(); // for this example
//!
//! // Up to eight keys are processed at a time.
//! let sum = std::cell::Cell::new(0);
//! let process = async |item: OwnedItem<u32>| {
//!     sum.set(sum.get() + *item);
//!     item.succeed();
//! };
//! queue.stream().for_each_concurrent(8, process).await;
//! assert_eq!(sum.get(), 6);
//! # });
//! ```
//! If `process` never waits, the stream gives way to other tasks of the runtime after 128 keys. A key that was added again while its item
//! was processed may be queued after the end of the stream: see `WorkQueue::stream`.
//!
//! # A task for each key
//!
//! [`Workers::run_async`](crate::Workers::run_async), and `Workers::spawn_tasks` with the feature `tokio`, make a fixed number of tasks.
//! Here each key has a task of its own, and a semaphore bounds their number. The loop acquires a permit *before* it takes a key: otherwise
//! the key would count as processing while it waits.
//! ```
//! use keyqueue::WorkQueue;
//! use std::sync::Arc;
//! use tokio::{sync::Semaphore, task::JoinSet};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let queue = WorkQueue::new();
//! queue.add_all((0..100).map(|n| format!("page-{n}")));
//! queue.shut_down(); // for this example
//!
//! let (mut tasks, limit) = (JoinSet::new(), Arc::new(Semaphore::new(8)));
//! loop {
//!     let permit = limit.clone().acquire_owned().await.unwrap();
//!     let Some(item) = queue.get_owned_async().await else { break };
//!     tasks.spawn(async move {
//!         let _permit = permit;
//!         item.succeed(); // or, after an error, `item.retry()`
//!     });
//!     while tasks.try_join_next().is_some() {} // frees the results of tasks that have ended
//! }
//! while tasks.join_next().await.is_some() {}
//! assert_eq!(queue.stats().handed_out, 100);
//! # }
//! ```
//! An aborted task drops its item, and the key is done. So does a task that panics, unless [`OnPanic::Retry`](crate::OnPanic::Retry) asks
//! for a retry.
//!
//! # With `select!`
//!
//! A future of the crate that waits may be dropped: no key and no wake-up is lost. If `run_async` is dropped while its handler runs, the
//! key is queued again.
//! ```
//! use keyqueue::WorkQueue;
//! use std::time::Duration;
//! use tokio::{sync::Notify, time};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (queue, stop) = (WorkQueue::new(), Notify::new());
//! # queue.add(1);
//! # stop.notify_one();
//! loop {
//!     let item = tokio::select! {
//!         biased; // the stop comes first, however many keys are queued
//!         () = stop.notified() => break,
//!         item = queue.get_async() => match item {
//!             Some(item) => item,
//!             None => break,
//!         },
//!         () = time::sleep(Duration::from_secs(60)) => continue, // nothing for a minute
//!     };
//!     item.succeed();
//! }
//! # assert_eq!(queue.len(), 1);
//! # }
//! ```
//! A handler that should stop early selects between its work and [`until_dirty`](crate::Item::until_dirty) (its key was added again, so its
//! work is out of date) or [`until_shutting_down`](crate::Item::until_shutting_down).
//!
//! # A handler in layers of tower
//!
//! A [`tower`](https://docs.rs/tower) service takes a request and returns a `Result`, which is what a handler returns. So a service that
//! has its layers already, such as timeouts, traces and metrics, becomes a handler by one call for each key:
//! ```
//! use keyqueue::WorkQueue;
//! use std::time::Duration;
//! use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let index = service_fn(async |page: String| -> Result<(), BoxError> {
//!     if page.is_empty() { Err("a page without a name".into()) } else { Ok(()) }
//! });
//! let service = ServiceBuilder::new().timeout(Duration::from_secs(30)).service(index);
//!
//! let queue = WorkQueue::new();
//! queue.add_all(["home".to_owned(), String::new()]);
//! queue.shut_down(); // for this example
//! let workers = queue.workers().build();
//! workers.run_async(async |item| service.clone().oneshot(item.key().clone()).await).await;
//! assert_eq!((workers.tally().succeeded, workers.tally().refused), (1, 1));
//! # }
//! ```
//! `oneshot` waits until the service is ready and then calls it. Leave two kinds of layers to the queue, because the key of a handler that
//! waits counts as processing, and no other worker can do anything for it meanwhile. In place of a layer that retries, return the error: the
//! queue retries the key after a backoff, without a worker that waits for it. In place of a layer that limits the concurrency or the rate,
//! choose the number of loops, or set a [`pace`](crate::WorkQueueBuilder::pace) or the [limits](crate::WorkQueueBuilder::group_limits) of
//! groups.
//!
//! # Work on many keys at once
//!
//! A write to a database or an index costs less for a hundred keys than for one. [`get_batch`](crate::WorkQueue::get_batch) waits for the
//! first key and takes what else is queued, and the batch ends its keys together:
//! ```
//! # use keyqueue::WorkQueue;
//! # fn write(keys: &[&String]) -> Vec<usize> { (0..keys.len()).filter(|at| keys[*at] == "page-7").collect() }
//! # let queue = WorkQueue::new();
//! # queue.add_all((0..100).map(|n| format!("page-{n}")));
//! # queue.shut_down();
//! loop {
//!     let mut batch = queue.get_batch(50);
//!     if batch.is_empty() {
//!         break; // the queue is shut down
//!     }
//!     let failed: Vec<usize> = write(&batch.iter().map(|item| item.key()).collect::<Vec<_>>());
//!     for index in failed.into_iter().rev() {
//!         batch.swap_remove(index).retry(); // from the last to the first, as the last item takes its place
//!     }
//!     batch.succeed();
//! }
//! # assert_eq!((queue.stats().handed_out, queue.stats().failures), (100, 1));
//! ```
//! A producer that has many keys calls [`add_all`](crate::WorkQueue::add_all).
//!
//! [`Workers`](crate::Workers) do the same, and retry, count and give up each key by itself. Here a batch waits for up to 20 ms until it
//! has a hundred rows, and writes them in one statement. Rows that the database refuses are retried, and so are all if the statement fails
//! or the handler panics. [`run_batch_async`](crate::Workers::run_batch_async) is the same for tasks.
//! ```
//! use keyqueue::{BatchItem, Outcome, WorkQueue};
//! use std::collections::BTreeSet;
//! use std::sync::Mutex;
//! use std::time::Duration;
//!
//! /// Stands for a database.
//! #[derive(Default)]
//! struct Database {
//!     rows: Mutex<BTreeSet<u32>>,
//! }
//!
//! impl Database {
//!     /// `INSERT INTO pages … ON CONFLICT DO NOTHING RETURNING id`: the rows that were written.
//!     fn insert(&self, ids: &[u32]) -> Result<BTreeSet<u32>, std::io::Error> {
//!         let written = ids.iter().copied().filter(|id| *id != 666).collect();
//!         self.rows.lock().unwrap().extend(&written);
//!         Ok(written)
//!     }
//! }
//!
//! let database = Database::default();
//! let write = |batch: &mut [BatchItem<'_, u32>]| -> Result<(), Outcome> {
//!     let ids: Vec<u32> = batch.iter().map(|item| *item.key()).collect();
//!     let written = database.insert(&ids)?; // an error: each key is retried
//!     for item in batch.iter_mut().filter(|item| !written.contains(item.key())) {
//!         item.set_outcome(Outcome::failed("the row was not written")); // this key is retried
//!     }
//!     Ok(()) // the others are done
//! };
//!
//! let queue = WorkQueue::<u32>::new();
//! let workers = queue.workers().max_retries(0).build();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| workers.run_batch(100, Duration::from_millis(20), write));
//!     queue.add_all(600..800);
//!     assert!(workers.drain().is_empty());
//! });
//! assert_eq!(database.rows.lock().unwrap().len(), 199);
//! assert_eq!((workers.tally().succeeded, workers.tally().given_up), (199, 1));
//! ```
//!
//! # Without an async runtime
//!
//! Threads need no runtime: use [`WorkersBuilder::spawn`](crate::WorkersBuilder::spawn), or a loop around [`get`](crate::WorkQueue::get).
//! The futures run on any executor, because they use no timer and no reactor:
//! ```
//! use keyqueue::WorkQueue;
//!
//! let queue = WorkQueue::new();
//! queue.add_all([1, 2, 3]);
//! queue.shut_down(); // for this example
//! let workers = queue.workers().build();
//! futures_executor::block_on(workers.run_async(async |item| println!("{item}")));
//! assert_eq!(workers.tally().succeeded, 3);
//! ```
//!
//! # Without any other thread
//!
//! The first delay starts a thread that expires delays. With [`Driver::Manual`](crate::Driver::Manual) there is no such thread. Your event
//! loop calls [`turn`](crate::WorkQueue::turn), which adds the keys that are due. It sleeps no longer than until the next deadline.
//! ```
//! use keyqueue::{Driver, TryGetError, WorkQueue};
//! use std::{thread, time::Duration};
//!
//! let queue = WorkQueue::builder().driver(Driver::Manual).build();
//! queue.add_after("b", Duration::from_millis(2));
//! queue.add("a");
//! let mut seen = Vec::new();
//! let longest = Duration::from_secs(1);
//! while seen.len() < 2 {
//!     queue.turn();
//!     match queue.try_get() {
//!         Ok(item) => seen.push(*item),
//!         Err(TryGetError::ShutDown) => break,
//!         Err(_) => {
//!             let left = queue.stats().next_deadline.unwrap_or(longest);
//!             thread::sleep(left.min(longest)); // an event loop waits for its events instead
//!         }
//!     }
//! }
//! assert_eq!(seen, ["a", "b"]);
//! ```
//!
//! # Debounce and throttle
//!
//! | the key is handed out | |
//! |---|---|
//! | when no event came for 200 ms | `add_with(key, AddOptions::new().after(ms_200).conflict(DelayConflict::Replace))` |
//! | when no event came for 200 ms, but at the latest 1 s after the first event | the same with `.`[`at_most`](crate::AddOptions::at_most)`(second)` |
//! | 200 ms after the first of several adds, so it becomes due at most every 200 ms | `add_with(key, AddOptions::new().after(ms_200).conflict(DelayConflict::KeepExisting))` |
//! | at once, and then at most every 200 ms; the last event is never lost | `queue.workers().`[`min_interval`](crate::WorkersBuilder::min_interval)`(ms_200)`, or [`Outcome::Cooldown`](crate::Outcome::Cooldown) for some keys |
//! | at the earliest of several times | `add_after(key, delay)` |
//! | as fast as workers take it, but with at most 50 requests a second | a bucket that the handlers share: below |
//!
//! A plain `add` does not wait for a date of the same key: the key is handed out at once, and the date stays set. (Do not use two keys for
//! one object, one with a delay that moves and one with a delay that stays. Two workers would then process the object at the same time.)
//!
//! **No runs for a while**, because a database is down or an operator says so: [`pause`](crate::WorkQueue::pause) the queue. Keys
//! gather, each once, until [`resume`](crate::WorkQueue::resume), and a drain ends the pause.
//!
//! **Fewer runs at once**, or more, as the load changes: [`set_concurrency`](crate::Workers::set_concurrency) of the workers. Nothing is
//! interrupted: a loop that is one too many ends when its handler has returned, or at once if it waits for a key.
//!
//! **At most n runs a second**, of all keys together: [`pace`](crate::WorkQueueBuilder::pace). Workers wait for it without a key in their
//! hands, so that the key that is then first comes next.
//!
//! **At most n requests a second for each tenant**, a few at a time, and none for a while after its server has answered 429: give the
//! groups [limits](crate::WorkQueueBuilder::group_limits). No worker waits, because the queue hands out the keys of a tenant only when it may
//! be asked. (The queue's limiter, in contrast, delays [only retries](crate::rate_limiter#what-they-limit) and `add_rate_limited`.)
//! ```
//! use keyqueue::{GroupLimits, Outcome, WorkQueue};
//! use std::time::Duration;
//! # use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
//!
//! # struct Answer { status: u16, retry_after: Option<&'static str> }
//! # static ASKED: AtomicU32 = AtomicU32::new(0);
//! # fn fetch(_tenant: &str, _page: u32) -> Result<Answer, std::io::Error> {
//! #     let status = if ASKED.fetch_add(1, SeqCst) == 0 { 429 } else { 200 };
//! #     Ok(Answer { status, retry_after: Some("0") })
//! # }
//! let queue = WorkQueue::builder()
//!     .fair_by(|&(tenant, _): &(&str, u32)| tenant)
//!     .group_limits(|_| GroupLimits::new().max_processing(2).rate(5.0, 10))
//!     .build();
//! let workers = queue.workers().spawn(4, |item| -> Result<(), Outcome> {
//!     let &(tenant, page) = item.key();
//!     let answer = fetch(tenant, page)?;
//!     if answer.status == 429 {
//!         // `Retry-After` is a number of seconds, or, seldom, a date.
//!         let seconds = answer.retry_after.and_then(|text| text.trim().parse().ok());
//!         let delay = Duration::from_secs(seconds.unwrap_or(60));
//!         // The rest of the tenant waits as long as this key. Others go on.
//!         return Err(Outcome::PauseGroup { delay, error: "429".into() });
//!     }
//!     Ok(())
//! })?;
//! queue.add_all((0..8).map(|page| ("acme", page)));
//! # while ASKED.load(SeqCst) < 9 { std::thread::yield_now() } // the first one again
//! # let _left = workers.stop();
//! # std::io::Result::Ok(())
//! ```
//! `queue.group(&key)` sets other limits while the queue runs, and pauses and resumes a tenant. For a limit of all tenants together, see
//! [`pace`](crate::WorkQueueBuilder::pace). If a run makes several requests, its handler takes a token of a
//! [`Bucket`](crate::rate_limiter::Bucket) for each and waits for it, and `max_processing` bounds how many workers a tenant can keep waiting.
//!
//! # Resync
//!
//! A source of events may lose some. A handler that returns `Outcome::RequeueAfter(an_hour)` sees each key again, each at its own time.
//! With [`max_retries`](crate::WorkersBuilder::max_retries), set [`then_after`](crate::WorkersBuilder::then_after) as well: otherwise a
//! key that fails until it is out of retries is not looked at again. If you add all keys every hour, all are due at once. If you need such
//! a listing, give it [`Priority::LOW`](crate::Priority::LOW): then the keys of events are handed out first.
//!
//! # A result for the adder
//!
//! One run serves all adds before it, so the queue has no result for a single add. Keep results by key, and let the adder look there. (To
//! tell a new result from an old one, remove the old result before the add, or store a version with it.)
//! ```
//! use keyqueue::WorkQueue;
//! use std::collections::HashMap;
//! use std::sync::{Condvar, Mutex};
//!
//! let queue = WorkQueue::<u32>::new();
//! let (results, changed) = (Mutex::new(HashMap::new()), Condvar::new());
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         while let Some(item) = queue.get() {
//!             // before `done`: the next holder sees it
//!             results.lock().unwrap().insert(*item, *item * 2);
//!             changed.notify_all();
//!             item.succeed();
//!         }
//!     });
//!     queue.add(21);
//!     let results = changed
//!         .wait_while(results.lock().unwrap(), |results| !results.contains_key(&21))
//!         .unwrap();
//!     assert_eq!(results[&21], 42);
//!     queue.shut_down();
//! });
//! ```
//!
//! # Events that carry data
//!
//! A key should name an object whose state the worker reads. If there is nothing to read, because the event itself has the data, a
//! [`ValueQueue`](crate::values::ValueQueue) keeps a value beside each key: the latest one, or the merge of all that have come. Here the
//! parts of a change are merged, so that one write has them all, and a write that fails loses none:
//! ```
//! use keyqueue::values::ValueQueue;
//! use keyqueue::{Outcome, WorkQueue};
//!
//! /// The columns of a row that have changed, with their newest contents.
//! #[derive(Clone, Default, Debug, PartialEq)]
//! struct Patch {
//!     title: Option<String>,
//!     price: Option<u32>,
//! }
//!
//! # fn write(_: u64, _: &Patch) -> Result<(), std::io::Error> { Ok(()) }
//! let patches = ValueQueue::with_merge(WorkQueue::<u64>::new(), |older: &Patch, newer: &Patch| Patch {
//!     title: newer.title.clone().or(older.title.clone()),
//!     price: newer.price.or(older.price),
//! });
//! let workers = patches.queue().workers().max_retries(15).spawn(4, {
//!     let patches = patches.clone();
//!     move |row| {
//!         let Some(patch) = patches.value(row) else { return Outcome::Success };
//!         let written = write(*row.key(), &patch);
//!         patch.finish(written) // an error: the retry has this patch, merged with what has come by then
//!     }
//! })?;
//! patches.add(7, Patch { price: Some(20), ..Patch::default() })?;
//! patches.add(7, Patch { title: Some("Tea".into()), ..Patch::default() })?;
//!
//! let _keys = workers.drain_timeout(std::time::Duration::from_secs(10));
//! for (row, patch) in patches.take_all() {
//!     println!("not written: {row}: {patch:?}"); // its key was left, or given up
//! }
//! # assert!(patches.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! If each event counts, and none may be merged, use a channel.
//!
//! # Producers that must wait
//!
//! `add` never waits, and the number of *different* keys bounds the queue. If this is not enough, give the queue a
//! [bound](crate::WorkQueueBuilder::max_keys). A full queue refuses each new key, so that a server can answer that there are too many
//! requests, or the producer calls [`add_wait`](crate::WorkQueue::add_wait), which waits for room. (A semaphore with a permit for each add
//! does not work, because several adds may lead to one run, and a retry is a run without an add.)
//! ```
//! use keyqueue::{Added, WorkQueue};
//!
//! fn upload(queue: &WorkQueue<String>, name: &str) -> u16 {
//!     match queue.add(name.into()) {
//!         Added::Full => 429, // too many requests
//!         Added::Rejected => 503,
//!         _ => 202,
//!     }
//! }
//!
//! let queue = WorkQueue::builder().max_keys(1).build();
//! assert_eq!((upload(&queue, "a.png"), upload(&queue, "a.png"), upload(&queue, "b.png")), (202, 202, 429));
//! queue.get().unwrap().done();
//! assert_eq!(queue.add_wait("b.png".into()), Added::Queued); // at once, because there is room
//! ```
//!
//! # Tests with a mock clock
//!
//! Time stands still until the test moves it. With `Driver::Manual` no thread expires delays. Give a
//! [`Bucket`](crate::rate_limiter::Bucket::with_clock) the same clock.
//! ```
//! use keyqueue::rate_limiter::ItemExponentialFailure;
//! use keyqueue::{Clock, Driver, Item, Outcome, WorkQueue};
//! use std::time::Duration;
//!
//! let (clock, time) = Clock::mock();
//! let backoff = ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60));
//! let queue =
//!     WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(backoff).build();
//! queue.add("pod-1");
//! queue.get().unwrap().retry();
//!
//! time.advance(Duration::from_millis(999));
//! assert_eq!(queue.turn(), 0);
//! time.advance(Duration::from_millis(1));
//! assert_eq!(queue.turn(), 1); // one key became due
//!
//! // A handler is tested with an item: what it returns is what happens to the key.
//! fn reconcile(pod: &Item<'_, &str>) -> Outcome {
//!     if pod.num_requeues() > 0 { Outcome::Success } else { Outcome::Retry }
//! }
//! let item = queue.try_get().unwrap();
//! assert!(matches!(reconcile(&item), Outcome::Success));
//! ```
//!
//! A simulation that already has a time gives it with [`Clock::from_fn`](crate::Clock::from_fn). With a
//! [seed](crate::WorkQueueBuilder::seed) as well, a run that fails does the same again: the jitter, and with several shards the order.
//!
//! # What makes a good key
//!
//! * **It names an object, not an event**: `("namespace", "name")`, a path, a URL. It does not say what happened: the worker reads the
//!   present state.
//! * **`Eq` compares the name, and nothing else.** If it compared a generation or a time, two events for one object would be two keys, and
//!   two workers would process the object at the same time. If two objects were equal, no worker would look at one of them. `Hash` must
//!   agree. If the key is there already, the queue keeps the old key: data that `Eq` leaves out does not reach the worker.
//! * **It is cheap to clone and to hash.** The queue moves keys and clones none, but most handlers clone them. Use `Arc<str>` for strings.
//!   For long composed names use an id, with the names in a table of your own.
//! * **It does not change while it is in the queue**, and its `Eq`, `Hash` and [`Equivalent`](crate::Equivalent) do not use the queue.
//! * **Different objects that must not be processed at the same time** (all rows of a table) are best one key. If they must be several
//!   keys, use a [group](crate::WorkQueueBuilder::fair_by) with [at most one key](crate::WorkQueueBuilder::max_processing_per_group) in
//!   work.
//!
//! # Keys with one spelling
//!
//! `Example.COM` and `example.com` are one host, and `/a/../b` is `/b`. If both spellings are keys, two workers process the object at the
//! same time. So let there be one place where keys are made, which writes each in one way: a type whose field is private, and which has one
//! constructor.
//! ```
//! use keyqueue::{Added, WorkQueue};
//!
//! mod host {
//!     /// The name of a host, in lower case and without the dot at the end.
//!     #[derive(Clone, PartialEq, Eq, Hash, Debug)]
//!     pub struct Host(String);
//!
//!     impl Host {
//!         pub fn new(name: &str) -> Self {
//!             Self(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
//!         }
//!
//!         pub fn name(&self) -> &str {
//!             &self.0
//!         }
//!     }
//! }
//! use host::Host;
//!
//! let queue = WorkQueue::new();
//! assert_eq!(queue.add(Host::new("Example.COM.")), Added::Queued);
//! assert_eq!(queue.add(Host::new("example.com")), Added::Coalesced);
//! assert_eq!(queue.get().unwrap().name(), "example.com");
//! ```
//! An `Eq` of your own that takes two spellings for one is harder to get right. `Hash` must agree, and so must the `Hash` and `Eq` of each
//! borrowed form by which a key is looked up, as for [`remove`](crate::WorkQueue::remove): otherwise the key is not found. And the worker
//! sees the spelling of whichever add came first, so each table of results by key has the same two spellings again. If a key is read from a
//! file or a request, let its `Deserialize` call the constructor, too (`#[serde(from = "String")]`).
//!
//! # From client-go
//!
//! These tables have a row for each part of client-go's `util/workqueue`, and of what apimachinery's `util/wait` has for backoff: the public
//! names, and those private ones that descriptions of its design walk through. The names that one would search for are aliases, so that
//! the search of these docs leads from them to the item that takes their place. They were compared with client-go of 24 July 2026.
//!
//! ## What its package promises
//!
//! | client-go says | here | what differs |
//! |---|---|---|
//! | *Fair*: in the order of adds | [`WorkQueue`](crate::WorkQueue) | with several [shards](crate::WorkQueueBuilder::shards) or [priorities](crate::Priority) the order holds within each |
//! | `Stingy`: a key is processed by one worker at a time, and once for all adds before | [`WorkQueue`](crate::WorkQueue) | the same, and [`Added`](crate::Added) says which of these an add was |
//! | *Multiple consumers and producers*; a key may be added while it is processed | [`add`](crate::WorkQueue::add), from any thread | the same: the key is queued again when it is done |
//! | *Shutdown notifications* | [`get`](crate::WorkQueue::get) returns `None` | and [`until_shutting_down`](crate::Item::until_shutting_down) tells a handler |
//!
//! ## Queues and their calls
//!
//! | client-go `util/workqueue` | here | what differs |
//! |---|---|---|
//! | `Interface`, `TypedInterface`, `DelayingInterface`, `TypedDelayingInterface`, `RateLimitingInterface`, `TypedRateLimitingInterface`; `Type`, `Typed`, and the private `delayingType`, `rateLimitingType` | [`WorkQueue`](crate::WorkQueue) | one type has all calls, so no queue wraps another |
//! | `New`, `NewTyped`, `NewDelayingQueue`, `NewTypedDelayingQueue`, `TypedNewDelayingQueue`, `NewRateLimitingQueue`, `NewTypedRateLimitingQueue` | [`WorkQueue::new`](crate::WorkQueue::new) | the limiter goes to the [builder](crate::WorkQueueBuilder::rate_limiter). By default only retries wait, with growing delays and without a bucket |
//! | `NewWithConfig`, `NewTypedWithConfig`, `NewDelayingQueueWithConfig`, `NewTypedDelayingQueueWithConfig`, `NewRateLimitingQueueWithConfig`, `NewTypedRateLimitingQueueWithConfig`; `QueueConfig`, `TypedQueueConfig`, `DelayingQueueConfig`, `TypedDelayingQueueConfig`, `RateLimitingQueueConfig`, `TypedRateLimitingQueueConfig` | [`WorkQueue::builder`](crate::WorkQueue::builder), [`WorkQueueBuilder`](crate::WorkQueueBuilder) | methods in place of fields |
//! | `NewNamed`, `NewNamedDelayingQueue`, `NewNamedRateLimitingQueue` | [`name`](crate::WorkQueueBuilder::name) | a name alone exports no metrics |
//! | `NewDelayingQueueWithCustomClock` | [`clock`](crate::WorkQueueBuilder::clock) | and [`Driver::Manual`](crate::Driver::Manual), for tests without threads |
//! | `NewDelayingQueueWithCustomQueue`, `NewRateLimitingQueueWithDelayingInterface` | not here | they put a queue of one's own below another; there are no layers |
//! | `Queue`, `DefaultQueue` with `Touch`, `Push`, `Pop`, `Len` | not here: [`Priority`](crate::Priority), [`fair_by`](crate::WorkQueueBuilder::fair_by) | the storage cannot be replaced. `Touch` is for priorities that change: here a later add may [raise](crate::AddOptions::priority) a queued key |
//! | `Add` | [`add`](crate::WorkQueue::add) | says what it did |
//! | `Get` and `Done` | [`get`](crate::WorkQueue::get), and the drop of the [`Item`](crate::Item) or its [`done`](crate::Item::done) | `Done` cannot be forgotten, nor called twice |
//! | `Len` | [`len`](crate::WorkQueue::len) | takes no lock |
//! | `ShutDown`, `ShutDownWithDrain`, `ShuttingDown` | [`shut_down`](crate::WorkQueue::shut_down), [`shut_down_with_drain`](crate::WorkQueue::shut_down_with_drain), [`shutting_down`](crate::WorkQueue::shutting_down) | a drain also waits for queued keys: without workers it does not return |
//! | `AddAfter` | [`add_after`](crate::WorkQueue::add_after) | [`cancel`](crate::WorkQueue::cancel) undoes it, and [`remove`](crate::WorkQueue::remove) an `Add` too |
//! | `AddRateLimited`, `Forget`, `NumRequeues` | [`add_rate_limited`](crate::WorkQueue::add_rate_limited), [`forget`](crate::WorkQueue::forget), [`num_requeues`](crate::WorkQueue::num_requeues) | the holder of a key calls [`retry`](crate::Item::retry) and [`succeed`](crate::Item::succeed). A retry of theirs is replaced or dropped by [the end of a later run](crate::DelayConflict); the delay of `add_rate_limited` and `add_after` is a caller's, which counts as in client-go: the earliest one, whatever a run decides |
//! | the loop `for c.processNextItem() {}` | [`Workers`](crate::Workers) | catch panics, count retries, drain with a deadline |
//! | `ParallelizeUntil`, `DoWorkPieceFunc`, `Options`, `WithChunkSize` | not here: [`Workers`](crate::Workers) for keys | it has no queue: it calls a function for each index. Scoped threads or a crate such as `rayon` do that |
//!
//! The fields of `Typed`, all private:
//!
//! | client-go | here | what differs |
//! |---|---|---|
//! | `queue`, `dirty`, `processing` | the state of a key: [`key`](crate::Inspect::key) of a view, [`is_dirty`](crate::Item::is_dirty), [`processing_keys`](crate::Inspect::processing_keys), [`len`](crate::WorkQueue::len) | a slice and two sets there. Here one table, in which each key has its state, so an add looks the key up once |
//! | `cond` | [`get`](crate::WorkQueue::get), [`get_async`](crate::WorkQueue::get_async) | a list of those that wait, threads and tasks. Each add wakes one of them at most |
//! | `shuttingDown`, `drain`, `stopCh`, `stopOnce` | [`shut_down`](crate::WorkQueue::shut_down), which wakes all that wait | no channel: a second shut-down only ends drains |
//! | `wg` | not here | `ShutDown` waits for the goroutines there. The [driver](crate::Driver) thread ends by itself |
//! | `unfinishedWorkUpdatePeriod`, `defaultUnfinishedWorkUpdatePeriod`; `updateUnfinishedWork`, `updateUnfinishedWorkLoop` | [`Observer::interval`](crate::observe::Observer::interval) | 500 ms too, and nothing to start; all metrics are reported then, and none while the queue is idle. It goes on after a shut-down until the last key is done |
//!
//! ## Delays
//!
//! | client-go, all private | here | what differs |
//! |---|---|---|
//! | `waitFor` (`data`, `readyAt`, `index`) | [`DelayedKey`](crate::DelayedKey), from [`delayed_keys`](crate::Inspect::delayed_keys) | a key may have [two delays](crate::DelayConflict): a caller's, and one that its last holder has chosen |
//! | `waitForPriorityQueue`, `waitingForQueue` | [`Driver`](crate::Driver) | a timing wheel in place of a heap: a delay is set, moved and cancelled without being sorted among the others |
//! | `waitingEntryByData` | [`delayed_keys`](crate::Inspect::delayed_keys) | no map of its own: the delay is found through the key, in the table of all keys |
//! | `insert` | [`DelayConflict`](crate::DelayConflict) | the earlier delay wins by default, as there; a call may ask for the later or the first one |
//! | `waitingForAddCh` | [`add_after`](crate::WorkQueue::add_after) | no channel of 1000, so it never waits for a loop: it sets the delay itself, before it returns |
//! | `waitingLoop`, `nextReadyAtTimer` | [`Driver`](crate::Driver) | a thread that starts with the first delay, and is parked until the earliest [deadline](crate::Stats::next_deadline). An earlier one wakes it. Getters also queue keys that are due |
//! | `heartbeat`, `maxWait` | not here: [`Driver`](crate::Driver) | they are an insurance there: the loop looks every ten seconds. An idle queue is quiet here |
//! | `stopCh`, `stopOnce` | [`shut_down`](crate::WorkQueue::shut_down) | also ends the driver. [`take_delayed`](crate::WorkQueue::take_delayed) returns the delays that are left, which are lost there |
//!
//! ## Limiters
//!
//! | client-go | here | what differs |
//! |---|---|---|
//! | `RateLimiter`, `TypedRateLimiter` with `When`, `Forget`, `NumRequeues` | [`RateLimiter`](crate::rate_limiter::RateLimiter) with [`when`](crate::rate_limiter::RateLimiter::when), [`forget`](crate::rate_limiter::RateLimiter::forget), [`num_requeues`](crate::rate_limiter::RateLimiter::num_requeues) | |
//! | `ItemExponentialFailureRateLimiter`, `TypedItemExponentialFailureRateLimiter`, `NewItemExponentialFailureRateLimiter`, `NewTypedItemExponentialFailureRateLimiter`, `DefaultItemBasedRateLimiter`, `DefaultTypedItemBasedRateLimiter` | [`ItemExponentialFailure`](crate::rate_limiter::ItemExponentialFailure) | no negative delay at 2^63 ns |
//! | `ItemFastSlowRateLimiter`, `TypedItemFastSlowRateLimiter`, `NewItemFastSlowRateLimiter`, `NewTypedItemFastSlowRateLimiter` | [`ItemFastSlow`](crate::rate_limiter::ItemFastSlow) | |
//! | the maps `failures` under `failuresLock` | [`num_requeues`](crate::WorkQueue::num_requeues), [`PerKey::max_tracked`](crate::rate_limiter::PerKey::max_tracked) | the queue counts the failures of a key with the key. A limiter that is used alone has a table with several locks, which can be bounded |
//! | `StepRateLimiter` | [`Step`](crate::rate_limiter::Step) | client-go has none: a table of delays by the number of failures |
//! | `BucketRateLimiter`, `TypedBucketRateLimiter` | [`Bucket`](crate::rate_limiter::Bucket) | [`DedupingBucket`](crate::rate_limiter::DedupingBucket) gives a key one token however often it is added |
//! | `MaxOfRateLimiter`, `TypedMaxOfRateLimiter`, `NewMaxOfRateLimiter`, `NewTypedMaxOfRateLimiter` | [`MaxOf`](crate::rate_limiter::MaxOf) | |
//! | `WithMaxWaitRateLimiter`, `TypedWithMaxWaitRateLimiter`, `NewWithMaxWaitRateLimiter`, `NewTypedWithMaxWaitRateLimiter` | [`WithMaxWait`](crate::rate_limiter::WithMaxWait) | |
//! | `DefaultControllerRateLimiter`, `DefaultTypedControllerRateLimiter` | [`default_controller_rate_limiter`](crate::rate_limiter::default_controller_rate_limiter) | not the queue's default, which has no bucket |
//!
//! ## Metrics
//!
//! | client-go | here | what differs |
//! |---|---|---|
//! | `MetricsProvider` | the feature `metrics`, or an [`Observer`](crate::observe::Observer) | per queue, not per process |
//! | `SetProvider`; the private `globalMetricsProvider` | [`observer`](crate::WorkQueueBuilder::observer) | the same: each queue is given its own |
//! | `NewDepthMetric`, `NewAddsMetric`, `NewLatencyMetric`, `NewWorkDurationMetric`, `NewUnfinishedWorkSecondsMetric`, `NewLongestRunningProcessorSecondsMetric`, `NewRetriesMetric` | [`Metrics`](crate::observe::Metrics) and [`Stats`](crate::Stats) | one struct with all values; with the feature `metrics` they have client-go's names, such as `workqueue_depth` |
//! | `GaugeMetric`, `SettableGaugeMetric`, `CounterMetric`, `HistogramMetric`, `SummaryMetric` | numbers, and [`Histogram`](crate::observe::Histogram) | nothing is called for a single event unless an [`Observer`](crate::observe::Observer) asks for it |
//! | `queueMetrics`, `defaultQueueMetrics` with `addTimes` and `processingStartTimes` (private) | [`Metrics`](crate::observe::Metrics), if the queue [measures](crate::WorkQueueBuilder::measure) | no maps: the times are beside the key. When keys come fast, one in eight is measured |
//! | `retryMetrics`, `defaultRetryMetrics` (private) | [`Stats::retries`](crate::Stats::retries) | counts all adds with a delay, as there; [`failures`](crate::Stats::failures) counts those with the limiter's |
//! | `noMetrics`, `noopMetric`, `noopMetricsProvider` (private) | not here | a queue without an observer has nobody to call |
//!
//! ## Backoff without a queue
//!
//! | apimachinery `util/wait` | here | what differs |
//! |---|---|---|
//! | `wait.Backoff`, its `Step`; `wait.Jitter` | [`Backoff`](crate::backoff::Backoff), its [`step`](crate::backoff::Backoff::step); [`jitter`](fn@crate::backoff::jitter) | no negative delay at 2^63 ns; as an iterator it ends after its steps; [`within_cap`](crate::backoff::Backoff::within_cap) keeps jitter from exceeding the cap |
//! | `wait.DelayFunc`, `wait.Timer` | [`Backoff`](crate::backoff::Backoff) as an iterator | delays, not timers: the caller sleeps as its runtime does |
//! | `wait.BackoffManager`, its `Backoff` | [`BackoffManager`](crate::backoff::BackoffManager), its [`step`](crate::backoff::BackoffManager::step) | a delay, not a timer |
//! | `wait.NewExponentialBackoffManager`; the private `exponentialBackoffManagerImpl` | [`exponential`](crate::backoff::BackoffManager::exponential) of [`BackoffManager`](crate::backoff::BackoffManager) | jitter does not exceed its maximum |
//! | `getNextBackoff` (private) | [`step`](crate::backoff::BackoffManager::step) | the same: it starts over after a quiet period |
//! | `wait.NewJitteredBackoffManager`; the private `jitteredBackoffManagerImpl` | [`new`](crate::backoff::BackoffManager::new) of [`BackoffManager`](crate::backoff::BackoffManager), with a backoff of factor 0 | |
//! | `wait.Backoff.DelayWithReset`; the private `backoffManager` | [`windowed`](crate::backoff::BackoffManager::windowed) | |
//! | `wait.BackoffUntil`, `wait.JitterUntil`, `wait.Until`, `wait.NonSlidingUntil`, `wait.Forever`, and those with a context | [`backoff_until`](crate::backoff::backoff_until), [`backoff_until_async`](crate::backoff::backoff_until_async), [`Timing`](crate::backoff::Timing) | the stop wakes the wait; the jitter is that of the backoff |
//! | their `stopCh`; `wait.NeverStop` | [`Stop`](crate::backoff::Stop) | |
//! | `wait.ExponentialBackoff`, `wait.PollUntilContextTimeout`, other `wait.Poll…`; `wait.Group`, `wait.ContextForChannel` | not here: a loop over a [`Backoff`](crate::backoff) | the rest is no backoff: threads are joined, and futures are dropped |
//!
//! ## The usual loop
//!
//! `workqueue.NewRateLimitingQueue(workqueue.DefaultControllerRateLimiter())` is
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::rate_limiter::default_controller_rate_limiter;
//!
//! let queue = WorkQueue::builder().rate_limiter(default_controller_rate_limiter()).build();
//! queue.add("pod-1");
//! ```
//!
//! The usual loop, `defer queue.Done(key)` with `AddRateLimited` after an error and `Forget` otherwise, is a handler that returns a
//! `Result`. Four things differ. A drain waits for queued keys. No worker can forget `Done`. After a panic of the handler the workers retry
//! the key, unless [`OnPanic::Done`](crate::OnPanic::Done) is set. After the shut-down an add says [`Rejected`](crate::Added::Rejected).
//!
//! # From controller-runtime
//!
//! | controller-runtime | here |
//! |---|---|
//! | `Reconcile(ctx, req) (Result, error)` | a handler `Fn(&Item<K>) -> Result<Outcome, E>` |
//! | `return Result{}, nil` | `Ok(Outcome::Success)`, or `Ok(())` |
//! | `return Result{}, err` | `Err(error)`: retried with backoff |
//! | `Result{RequeueAfter: d}` | [`Outcome::RequeueAfter`](crate::Outcome::RequeueAfter); without workers [`Item::requeue_after`](crate::Item::requeue_after) |
//! | `reconcile.TerminalError(err)` | [`Outcome::GiveUp`](crate::Outcome::GiveUp) |
//! | `MaxConcurrentReconciles` | the number of loops: `spawn(n, …)` |
//! | `RecoverPanic` | always; [`on_panic`](crate::WorkersBuilder::on_panic) tells you |
//! | `ReconciliationTimeout` | [`time_limit`](crate::WorkersBuilder::time_limit): the handler's future is dropped; a thread's handler can ask [`is_late`](crate::Item::is_late) |
//! | `priorityqueue.New` | [`WorkQueue::new`](crate::WorkQueue::new): each queue has priorities; lower ones are not starved |
//! | `AddWithOpts` with `AddOpts`: `After`, `RateLimited`, `Priority` | [`add_with`](crate::WorkQueue::add_with) and [`AddOptions`](crate::AddOptions): `after`, `rate_limited`, `priority`; for one key |
//! | `GetWithPriority` | [`get`](crate::WorkQueue::get), and [`Item::priority`](crate::Item::priority) |
//! | `handler.LowPriority` for the initial list | [`Priority::LOW`](crate::Priority::LOW) |
//! | `UsePriorityQueue` | from the first call that gives a priority |
//! | leader election, watches, caches, predicates | not here: `kube-rs`, or your own |
//!
//! # From kube-rs
//!
//! `kube::runtime::Controller` is a stream with a scheduler, a limit on concurrent reconciles, and caches. The package `keyqueue-kube` has a
//! `Controller` with the same names over this queue, and its page compares the two. You gain priorities and groups, limits for each key and
//! for all, retries that are counted and end, client-go's metrics, and stops with a deadline. With this crate alone you write the loop around
//! a `watcher` yourself, which also lets you have keys of any type.
//!
//! ## The feed of a controller
//!
//! A watch tells of changes, and begins with a list: `Init`, an `InitApply` for each object, and `InitDone`. When a watch was cut for too
//! long, it begins again with a new list, which has no event for the objects that were deleted meanwhile. A controller that cleans up after
//! its objects must find these by itself: they were known before, and are not in the list.
//! ```
//! use keyqueue::{AddOptions, Priority, WorkQueue};
//! use std::collections::HashSet;
//!
//! type Key = (&'static str, &'static str); // namespace and name
//!
//! /// The variants of `kube::runtime::watcher::Event`.
//! enum Event {
//!     Init,
//!     InitApply(Key),
//!     InitDone,
//!     Apply(Key),
//!     Delete(Key),
//! }
//!
//! /// The objects that there are, and those of the list that has begun.
//! #[derive(Default)]
//! struct Feed {
//!     known: HashSet<Key>,
//!     listed: HashSet<Key>,
//! }
//!
//! impl Feed {
//!     fn pass_on(&mut self, event: Event, queue: &WorkQueue<Key>) {
//!         match event {
//!             Event::Init => self.listed.clear(), // the list before may not have come to its end
//!             Event::InitApply(key) => _ = self.listed.insert(key),
//!             Event::InitDone => {
//!                 let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listed));
//!                 queue.add_all(before.difference(&self.known).copied()); // deleted meanwhile
//!                 let low = AddOptions::new().priority(Priority::LOW);
//!                 self.known.iter().for_each(|key| _ = queue.add_with(*key, low));
//!             }
//!             Event::Apply(key) => {
//!                 self.known.insert(key);
//!                 queue.add(key);
//!             }
//!             Event::Delete(key) => {
//!                 self.known.remove(&key);
//!                 queue.add(key); // its worker finds no object, and cleans up
//!             }
//!         }
//!     }
//! }
//!
//! let (queue, mut feed) = (WorkQueue::<Key>::new(), Feed::default());
//! let [a, b, c] = ["a", "b", "c"].map(|name| ("default", name));
//! let next = || queue.try_get().ok().map(|item| (*item, item.priority()));
//!
//! let first = [Event::Init, Event::InitApply(a), Event::InitApply(b)];
//! first.into_iter().for_each(|event| feed.pass_on(event, &queue));
//! assert_eq!(next(), None); // the store does not have these objects yet
//! feed.pass_on(Event::InitDone, &queue);
//! feed.pass_on(Event::Apply(c), &queue);
//! assert_eq!(next(), Some((c, Priority::NORMAL))); // a change comes before the list
//! assert!(next().is_some() && next().is_some());
//!
//! // The watch was cut, and `b` was deleted.
//! let again = [Event::Init, Event::InitApply(a), Event::InitApply(c), Event::InitDone];
//! again.into_iter().for_each(|event| feed.pass_on(event, &queue));
//! assert_eq!(next(), Some((b, Priority::NORMAL)));
//! feed.pass_on(Event::Delete(c), &queue);
//! assert_eq!(next(), Some((c, Priority::NORMAL)));
//! assert_eq!(next(), Some((a, Priority::LOW)));
//! ```
//! With kube-rs, the events come from `watcher(api, config)`, whose objects have the key `ObjectRef::from_obj(&object)`. Send them through
//! `reflector(writer, …)` first: its store has each object before you see the event, and those of a list from `InitDone` on, which is why
//! the keys of a list wait until then. Then a worker reads `store.get(&key)`, and `None` means that the object was deleted. In place of
//! `known`, the feed may also read the keys of `store.state()` at `Init`, when the store still has the objects of before. An `Err` of the
//! stream is logged, and with `default_backoff()` the watcher tries again. The package `keyqueue-kube` has all of it.
