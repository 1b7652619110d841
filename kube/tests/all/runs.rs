//! Runs: what ends them, what is left, and what settings of the queue and of the workers do.

use crate::common::{LONG, Log, beside, controller, object, succeed};
use futures_util::future::{join, join3};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::{Outcome, WorkQueue};
use keyqueue_kube::{Controller, Reason, Reconcile, namespace, outcome_of};
use kube::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, store, store_shared};
use kube::runtime::watcher::{self, Event};
use kube_stand_in::{Fault, Rule, Server, Verb};
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

async fn with_objects(count: usize) -> Server {
    let server = Server::start().await;
    (0..count).for_each(|n| _ = server.put("configmaps", object(["a", "b"][n % 2], &format!("object-{n}"))));
    server
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(object("a", name)).unwrap()
}

/// A store with a list of these objects.
fn filled(names: &[&str]) -> (Store<ConfigMap>, Writer<ConfigMap>) {
    let (reader, mut writer) = store();
    writer.apply_watcher_event(&Event::Init);
    names.iter().for_each(|name| writer.apply_watcher_event(&Event::InitApply(config_map(name))));
    writer.apply_watcher_event(&Event::InitDone);
    (reader, writer)
}

fn objects(names: &[&str]) -> BoxStream<'static, watcher::Result<ConfigMap>> {
    stream::iter(names.iter().map(|name| Ok(config_map(name))).collect::<Vec<_>>()).boxed()
}

/// Such a queue has no priorities, and says so, in both kinds of runs.
#[tokio::test]
async fn a_lock_free_queue_fails_at_the_first_list() {
    let server = with_objects(1).await;
    let controller = || controller(&server).queue(|queue| queue.lock_free());
    let here = controller().run(async |_: &Reconcile<'_, ConfigMap>| ());
    let boxed = controller().run_boxed(|_| Box::pin(async {}));
    for run in [here.map(drop).boxed_local(), boxed.map(drop).boxed_local()] {
        let panic = timeout(LONG, AssertUnwindSafe(run).catch_unwind()).await.expect("it ends").unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("a lock-free queue has no priorities"));
    }
}

#[tokio::test]
async fn panics_and_errors_are_retried_and_a_retry_knows_why() {
    let (server, log) = (with_objects(1).await, Log::default());
    let panics = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&panics);
    let controller =
        controller(&server).workers(2, move |workers| workers.on_panic(move |_, _| _ = count.fetch_add(1, Relaxed)));
    let handler = async |run: &Reconcile<'_, ConfigMap>| match (log.all().len(), run.failures()) {
        (1, 0) => panic!("a bug"),
        (2, 1) => Err(Outcome::failed("an error")),
        _ => Ok(Outcome::RequeueAfter(Duration::from_millis(10))),
    };
    beside(controller, &log, handler, log.until(|all| all.len() >= 4)).await;
    let all = log.all();
    assert_eq!(panics.load(Relaxed), 1);
    assert!(all[..3].iter().all(|told| told.reasons == Reason::Listed.into()), "{all:?}");
    assert!(all[3].reasons.is_empty(), "the handler has asked for this run");
}

#[tokio::test]
async fn the_server_says_when_to_try_again() {
    let (server, log) = (with_objects(1).await, Log::default());
    server.rules.add(Rule::next(1, Fault::TooManyRequests { retry_after: 1 }).verb(Verb::Get));
    let api = Api::<ConfigMap>::namespaced(crate::common::client(&server), "a");
    let start = Instant::now();
    let handler = async |run: &Reconcile<'_, ConfigMap>| {
        api.get(&run.name).await.map_err(outcome_of)?;
        Ok(Outcome::Success)
    };
    beside(controller(&server), &log, handler, log.until(|all| all.len() == 2)).await;
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_stop_begins_nothing_more_and_says_what_is_left() {
    let (server, log) = (with_objects(5).await, Log::default());
    let (go_on, stops, ended) = (Notify::new(), Notify::new(), Cell::new(false));
    let handler = async |_: &Reconcile<'_, ConfigMap>| {
        go_on.notified().await;
        ended.set(true);
        Ok(Outcome::Success)
    };
    let controller = controller(&server).workers(1, |workers| workers);
    let test = async {
        log.until(|all| all.len() == 1).await;
        sleep(Duration::from_millis(50)).await; // the other keys are queued
        stops.notify_one();
    };
    let run = beside(controller, &log, handler, test);
    let later = async {
        stops.notified().await;
        sleep(Duration::from_millis(100)).await;
        assert!(!ended.get());
        go_on.notify_one();
    };
    let (left, ()) = join(run, later).await;
    assert!(ended.get(), "a run that has begun ends by itself");
    assert_eq!((log.all().len(), left.len()), (1, 4));
}

#[tokio::test]
async fn the_settings_are_those_of_the_queue_and_the_workers() {
    let (server, log) = (with_objects(40).await, Log::default());
    let (running, most) = (Mutex::new(HashMap::<_, usize>::new()), Cell::new(0));
    let handler = async |run: &Reconcile<'_, ConfigMap>| {
        let namespace = run.namespace.clone();
        let now = {
            let mut running = running.lock().unwrap();
            let count = running.entry(namespace.clone()).or_default();
            *count += 1;
            *count
        };
        most.set(most.get().max(now));
        sleep(Duration::from_millis(2)).await;
        *running.lock().unwrap().get_mut(&namespace).unwrap() -= 1;
        Ok(Outcome::Success)
    };
    // Two objects of a namespace at a time; and a queue with a bound, for whose places the watch waits.
    let limited = controller(&server)
        .queue(|queue| queue.fair_by(namespace).max_processing_per_group(2))
        .queue(|queue| queue.max_keys(3))
        .workers(8, |workers| workers);
    beside(limited, &log, handler, log.until(|all| all.len() == 40)).await;
    assert_eq!(most.get(), 2);
}

#[tokio::test]
async fn a_queue_of_the_caller_can_be_looked_at_and_ends_the_run() {
    let (server, log) = (with_objects(3).await, Log::default());
    let queue = WorkQueue::builder().build();
    let run = controller(&server).with_queue(queue.clone()).run(async |run| _ = log.note(run));
    let test = async {
        log.until(|all| all.len() == 3).await;
        assert_eq!(queue.stats().handed_out, 3);
        queue.shut_down();
    };
    let (left, ()) = timeout(LONG, join(run, test)).await.expect("it ends");
    assert!(left.is_empty());
}

#[tokio::test]
async fn the_end_of_all_streams_is_the_end_of_the_work() {
    for boxed in [false, true] {
        let log = Log::default();
        let names = ["one", "two", "three"];
        let (reader, _writer) = filled(&names);
        let controller = Controller::for_stream(objects(&names), reader).workers(2, |workers| workers);
        let left = if boxed {
            let log = log.clone();
            let run = controller.run_boxed(move |run| {
                let log = log.clone();
                Box::pin(async move { _ = log.note(run) })
            });
            tokio::spawn(run).await.unwrap() // it may be spawned
        } else {
            controller.run(async |run| _ = log.note(run)).await
        };
        assert!(left.is_empty());
        assert_eq!(log.all().len(), 3);
    }
}

/// The tasks of a run whose future is dropped end, too.
#[tokio::test]
async fn a_run_that_is_dropped_leaves_no_task() {
    let (reader, _writer) = filled(&["one"]);
    let queue = WorkQueue::builder().build();
    let (log, noted) = (Log::default(), Log::default());
    let trigger = objects(&["one"]).chain(stream::pending());
    let controller = Controller::for_stream(trigger, reader).with_queue(queue.clone());
    let run = controller.run_boxed(move |run| {
        let log = noted.clone();
        noted.note(run);
        Box::pin(async move { drop(log) })
    });
    tokio::select! {
        _ = run => panic!("it has ended"),
        () = log.until(|_| queue.stats().handed_out == 1 && queue.processing_len() == 0) => {}
    }
    assert!(queue.shutting_down());
    let tasks = tokio::runtime::Handle::current().metrics();
    let end = async {
        while tasks.num_alive_tasks() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, end).await.expect("the tasks end");
}

/// A stream has no event for the end of a list, and its store has the objects of the list only then.
#[tokio::test]
async fn an_object_that_the_store_does_not_have_yet_is_looked_at_again() {
    let log = Log::default();
    let (reader, mut writer) = filled(&[]);
    let trigger = objects(&["one"]).chain(stream::pending());
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::for_stream(trigger, reader).graceful_shutdown_on(ended.map(drop));
    let run = controller.run(async |run| _ = log.note(run));
    let test = async {
        sleep(Duration::from_millis(50)).await;
        assert!(log.all().is_empty());
        writer.apply_watcher_event(&Event::Apply(config_map("one")));
        log.told("one", Reason::Changed).await;
        _ = end.send(());
    };
    let (left, ()) = timeout(LONG, join(run, test)).await.expect("it ends");
    assert!(left.is_empty());
    assert!(log.all().iter().all(|told| told.exists));
}

#[tokio::test]
async fn no_run_comes_before_a_store_that_others_fill_is_ready() {
    let log = Log::default();
    let (reader, mut writer) = store::<ConfigMap>();
    let trigger = objects(&["one"]).chain(stream::pending());
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::for_stream(trigger, reader)
        .reconcile_on(stream::iter([ObjectRef::new("two").within("a")])) // nothing would name it again
        .graceful_shutdown_on(ended.map(drop));
    let run = controller.run(async |run| _ = log.note(run));
    let test = async {
        sleep(Duration::from_millis(50)).await;
        assert!(log.all().is_empty());
        writer.apply_watcher_event(&Event::Init);
        ["one", "two"].iter().for_each(|name| writer.apply_watcher_event(&Event::InitApply(config_map(name))));
        sleep(Duration::from_millis(50)).await;
        assert!(log.all().is_empty());
        writer.apply_watcher_event(&Event::InitDone);
        log.until(|all| all.len() == 2).await;
        _ = end.send(());
    };
    let (left, ()) = timeout(LONG, join(run, test)).await.expect("it ends");
    assert!(left.is_empty());
    assert!(log.of("one")[0].priority < 0, "it is the first list");
    assert_eq!(log.of("two")[0].reasons, Reason::Requested.into());
}

#[tokio::test]
async fn a_writer_that_is_dropped_without_a_list_ends_the_run() {
    let (reader, writer) = store::<ConfigMap>();
    drop(writer);
    let run = Controller::for_stream(stream::pending(), reader).run(async |_| ());
    assert!(timeout(LONG, run).await.expect("it ends").is_empty());
}

#[tokio::test]
async fn controllers_share_a_stream() {
    let (reader, writer) = store_shared(16);
    let subscribe = || writer.subscribe().expect("it is shared");
    let logs = [Log::default(), Log::default()];
    let first = Controller::for_shared_stream(subscribe(), reader.clone()).run(async |run| _ = logs[0].note(run));
    let second = Controller::for_shared_stream(subscribe(), reader).run(async |run| _ = logs[1].note(run));
    let list = [Event::Init, Event::InitApply(config_map("one")), Event::InitDone, Event::Apply(config_map("two"))];
    let events = kube::runtime::reflector(writer, stream::iter(list.map(Ok::<_, watcher::Error>)));
    let pump = events.for_each(|_| std::future::ready(()));
    let ends = timeout(LONG, join3(first, second, pump)).await.expect("they end with the stream");
    assert!(ends.0.is_empty() && ends.1.is_empty());
    for log in logs {
        assert_eq!((log.of("one").len(), log.of("two").len()), (1, 1), "{:?}", log.all());
    }
}

/// An edit does not wait for the list.
#[tokio::test]
async fn an_edit_comes_before_the_rest_of_the_list() {
    let (server, log) = (with_objects(100).await, Log::default());
    let controller = controller(&server).workers(1, |workers| workers);
    let handler = async |run: &Reconcile<'_, ConfigMap>| {
        sleep(Duration::from_millis(5)).await;
        succeed(run).await
    };
    let test = async {
        log.until(|all| all.len() == 3).await;
        server.put("configmaps", object("a", "edited"));
        log.told("edited", Reason::Changed).await;
        assert!(log.all().len() < 90, "{} runs came first", log.all().len());
    };
    beside(controller, &log, handler, test).await;
}

#[test]
#[should_panic = "loops is 0"]
fn no_loops_are_refused() {
    let (reader, _writer) = filled(&[]);
    drop(Controller::for_stream(objects(&[]), reader).workers(0, |workers| workers));
}

#[test]
#[should_panic = "has a queue"]
fn settings_of_a_queue_that_is_built_are_refused() {
    let (reader, _writer) = filled(&[]);
    let controller = Controller::for_stream(objects(&[]), reader).with_queue(WorkQueue::builder().build());
    drop(controller.queue(|queue| queue.max_keys(1)));
}
