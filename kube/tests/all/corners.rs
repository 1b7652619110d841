//! Corners: streams and queues that end at a bad moment, queues that are full or paused, owners without a namespace, and failures of the
//! code that a controller calls.

use crate::common::{LONG, Log, Pause, Told, beside, child, client, controller, object, succeed};
use futures_util::future::{join, pending};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use keyqueue::{AddOptions, Driver, Outcome, WorkQueue};
use keyqueue_kube::{Controller, Reason, Reconcile, namespace};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, reflector, store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use serde_json::{Value, json};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(object("a", name)).unwrap()
}

async fn with_objects(count: usize) -> Server {
    let server = Server::start().await;
    (0..count).for_each(|n| _ = server.put("configmaps", object("a", &format!("object-{n}"))));
    server
}

/// A store that has its first list, and objects of a stream that ends.
fn filled(names: &[&str]) -> (BoxStream<'static, watcher::Result<ConfigMap>>, Store<ConfigMap>) {
    let (reader, writer) = store();
    let list = names.iter().map(|name| Event::InitApply(config_map(name)));
    let events: Vec<_> = [Event::Init].into_iter().chain(list).chain([Event::InitDone]).map(Ok).collect();
    (reflector(writer, stream::iter(events)).applied_objects().boxed(), reader)
}

/// The reflector goes with its stream, and then nobody fills the store.
#[tokio::test]
async fn a_stream_that_ends_within_its_list_ends_the_run() {
    for boxed in [false, true] {
        let (reader, writer) = store();
        let list = stream::iter([Event::Init, Event::InitApply(config_map("one"))].map(Ok));
        let controller = Controller::for_stream(reflector(writer, list).applied_objects(), reader);
        let left = if boxed {
            timeout(LONG, controller.run_boxed(|_| Box::pin(async {}))).await
        } else {
            timeout(LONG, controller.run(async |_| ())).await
        };
        assert_eq!(left.expect("it ends").queued.len(), 1);
    }
}

/// Streams have ended, and what is queued is worked off, when the stop comes.
#[tokio::test]
async fn a_stop_lets_runs_end_also_after_the_streams() {
    for boxed in [false, true] {
        let (trigger, reader) = filled(&["one", "two"]);
        let (go_on, has_ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (end, ended) = oneshot::channel::<()>();
        let log = Log::default();
        let controller =
            Controller::for_stream(trigger, reader).workers(1, |workers| workers).graceful_shutdown_on(ended.map(drop));
        let test = async {
            log.until(|all| all.len() == 1).await;
            sleep(Duration::from_millis(50)).await;
            _ = end.send(());
            sleep(Duration::from_millis(50)).await;
            go_on.notify_one();
        };
        let run = async {
            if boxed {
                let (log, go_on, has_ended) = (log.clone(), Arc::clone(&go_on), Arc::clone(&has_ended));
                let run = controller.run_boxed(move |run| {
                    log.note(run);
                    let (go_on, has_ended) = (Arc::clone(&go_on), Arc::clone(&has_ended));
                    Box::pin(async move {
                        go_on.notified().await;
                        has_ended.store(true, Relaxed);
                    })
                });
                run.await
            } else {
                let run = controller.run(async |run| {
                    log.note(run);
                    go_on.notified().await;
                    has_ended.store(true, Relaxed);
                });
                run.await
            }
        };
        let (left, ()) = timeout(LONG, join(run, test)).await.expect("it ends");
        assert!(has_ended.load(Relaxed), "the run has ended by itself");
        assert_eq!((left.queued.len(), left.keys().count(), log.all().len()), (1, 1, 1));
    }
}

#[tokio::test]
async fn a_queue_that_is_shut_down_before_the_first_list_ends_the_run() {
    let server = with_objects(1).await;
    server.rules.add(Rule::all(Fault::Hang).verb(Verb::List));
    let queue = WorkQueue::new();
    let run = controller(&server).with_queue(queue.clone()).run(async |_| ());
    let test = async {
        sleep(Duration::from_millis(50)).await;
        queue.shut_down();
    };
    assert!(timeout(LONG, join(run, test)).await.expect("it ends").0.is_empty());
    // Or even before the run.
    let run = controller(&server).with_queue(queue).run_boxed(|_| Box::pin(async {}));
    assert!(timeout(LONG, run).await.expect("it ends").is_empty());
}

/// A queue that is full, paused, or has nobody who turns its clock, does not hold up a stop.
#[tokio::test]
async fn nothing_about_the_queue_holds_up_a_stop() {
    let paused = WorkQueue::builder().build();
    paused.pause();
    let group = WorkQueue::builder().fair_by(namespace::<ConfigMap>).build();
    group.group(&ObjectRef::new("any").within("a")).pause(Duration::from_secs(3600)).unwrap();
    let queues = [
        (paused, 0),
        (WorkQueue::builder().max_keys(1).build(), 1), // each key comes back in an hour, so no other one has room
        (WorkQueue::builder().driver(Driver::Manual).build(), 3),
        (group, 0),
    ];
    for (queue, runs) in queues {
        let (server, log) = (with_objects(3).await, Log::default());
        let handler = async |_: &Reconcile<'_, ConfigMap>| Ok(Outcome::RequeueAfter(Duration::from_secs(3600)));
        let test = async {
            let is_there = |all: &[Told]| all.len() == runs && (runs > 0 || queue.len() == 3);
            log.until(is_there).await;
            sleep(Duration::from_millis(50)).await;
        };
        let left = beside(controller(&server).with_queue(queue.clone()), &log, handler, test).await;
        assert_eq!((log.all().len(), left.len()), (runs, if runs == 1 { 1 } else { 3 }));
    }
}

/// The key in the namespace of the child has the only place, and the owner's own key takes it over.
#[tokio::test]
async fn an_owner_without_a_namespace_is_told_also_if_the_queue_is_full() {
    let (server, log) = (Server::start().await, Log::default());
    server.put("namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } }));
    let controller = Controller::new(Api::<Namespace>::all(client(&server)), watcher::Config::default())
        .owns(Api::<Secret>::all(client(&server)), watcher::Config::default())
        .queue(|queue| queue.max_keys(1));
    let run = controller.run(async |run| _ = log.note(run));
    let test = async {
        log.told("a", Reason::Listed).await;
        server.put("secrets", child_of_namespace());
        log.told("a", Reason::Related).await;
    };
    tokio::select! {
        _ = run => panic!("it has ended"),
        () = test => {}
    }
}

fn child_of_namespace() -> Secret {
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": "a", "uid": "1" });
    serde_json::from_value(json!({ "metadata": { "namespace": "a", "name": "child", "ownerReferences": [owner] } }))
        .unwrap()
}

fn fill(writer: &mut Writer<Namespace>) {
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    [Event::Init, Event::InitApply(namespace), Event::InitDone]
        .iter()
        .for_each(|event| writer.apply_watcher_event(event));
}

/// Nothing but the child names the owner, and the store has it only later.
#[tokio::test]
async fn an_owner_without_a_namespace_may_come_after_its_child() {
    let log = Log::default();
    let (reader, mut writer) = store();
    let children = stream::iter([Ok(child_of_namespace())]).chain(stream::pending());
    let run = Controller::for_stream(stream::pending(), reader).owns_stream(children).run(async |run| {
        assert!(run.namespace.is_none());
        log.note(run);
    });
    let test = async {
        sleep(Duration::from_millis(50)).await;
        fill(&mut writer);
        log.told("a", Reason::Related).await;
        assert_eq!(log.all().len(), 1);
    };
    tokio::select! {
        _ = run => panic!("it has ended"),
        () = test => {}
    }
}

/// After the end of all streams the queue takes no key any more, and what could not be told is among what is left.
#[tokio::test]
async fn what_a_drain_could_not_tell_is_left() {
    let log = Log::default();
    let (reader, mut writer) = store();
    let run = Controller::for_stream(stream::empty(), reader).owns_stream(stream::iter([Ok(child_of_namespace())]));
    let test = async {
        sleep(Duration::from_millis(50)).await;
        fill(&mut writer);
        pending::<()>().await;
    };
    let left = tokio::select! {
        left = timeout(LONG, run.run(async |run| _ = log.note(run))) => left.expect("it ends"),
        () = test => unreachable!(),
    };
    assert!(log.all().is_empty());
    assert_eq!(left.keys().map(|key| &*key.name).collect::<Vec<_>>(), ["a"]);
}

/// The looks at an object that the store does not have yet are no failures of it.
#[tokio::test]
async fn an_object_that_comes_late_has_all_its_retries() {
    let log = Log::default();
    let (reader, mut writer) = store();
    [Event::Init, Event::InitDone].iter().for_each(|event| writer.apply_watcher_event(event));
    let trigger = stream::iter([Ok(config_map("one"))]).chain(stream::pending());
    let controller = Controller::for_stream(trigger, reader).workers(1, |workers| workers.max_retries(2));
    let handler = async |_: &Reconcile<'_, ConfigMap>| Err(Outcome::failed("an error"));
    let test = async {
        sleep(Duration::from_millis(100)).await;
        writer.apply_watcher_event(&Event::Apply(config_map("one")));
        log.until(|all| all.len() == 3).await;
    };
    beside(controller, &log, handler, test).await;
    assert_eq!(log.all().iter().map(|told| told.failures).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn a_list_is_told_once_and_with_its_reason_if_the_queue_is_full() {
    let (server, log) = (with_objects(10).await, Log::default());
    let handler = async |_: &Reconcile<'_, ConfigMap>| {
        sleep(Duration::from_millis(2)).await;
        Ok(Outcome::Success)
    };
    let controller = controller(&server).queue(|queue| queue.max_keys(2)).workers(1, |workers| workers);
    let test = async {
        log.until(|all| all.len() >= 10).await;
        sleep(Duration::from_millis(50)).await;
    };
    beside(controller, &log, handler, test).await;
    let all = log.all();
    assert!(all.iter().all(|told| told.reasons == Reason::Listed.into()), "{all:#?}");
    assert_eq!(all.len(), 10);
}

/// Doubles from a millisecond, and writes down its pauses.
struct Doubling(Duration, Arc<Mutex<Vec<u128>>>);

impl Iterator for Doubling {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 *= 2;
        self.1.lock().unwrap().push(self.0.as_millis());
        Some(self.0)
    }
}

impl Backoff for Doubling {
    fn reset(&mut self) {
        self.0 = Duration::from_millis(1);
    }
}

/// The watcher says that a list begins before each one, also before one that fails.
#[tokio::test]
async fn the_pauses_of_a_list_that_fails_grow() {
    let (server, log) = (with_objects(2).await, Log::default());
    server.rules.add(Rule::next(5, Fault::Status(500)).verb(Verb::List));
    let pauses = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&pauses);
    let controller =
        controller(&server).trigger_backoff(move || Doubling(Duration::from_millis(1), Arc::clone(&shared)));
    let test = async {
        log.until(|all| all.len() == 2).await;
        server.rules.add(Rule::next(2, Fault::Status(410)).verb(Verb::Watch));
        server.rules.end_watches(WatchEnd::Error(410));
        server.put("configmaps", object("a", "new"));
        log.until(|all| all.iter().any(|told| told.name == "new")).await;
    };
    beside(controller, &log, succeed, test).await;
    let pauses = pauses.lock().unwrap();
    assert_eq!(pauses[..6], [2, 4, 8, 16, 32, 2], "{pauses:?}");
}

#[tokio::test]
async fn an_edit_of_an_object_of_the_list_comes_before_the_rest() {
    let (server, log) = (with_objects(100).await, Log::default());
    let handler = async |_: &Reconcile<'_, ConfigMap>| {
        sleep(Duration::from_millis(5)).await;
        Ok(Outcome::Success)
    };
    let test = async {
        log.until(|all| all.len() == 3).await;
        let queued = (0..100).map(|n| format!("object-{n}")).rfind(|name| log.of(name).is_empty()).unwrap();
        let mut edited = object("a", &queued);
        edited["data"] = json!({ "text": "new" });
        server.put("configmaps", edited);
        log.told(&queued, Reason::Changed).await;
        assert_eq!(log.of(&queued)[0].priority, 0);
        assert!(log.of(&queued)[0].reasons.contains(Reason::Listed));
        assert!(log.all().len() < 90, "{} runs came first", log.all().len());
    };
    beside(controller(&server).workers(1, |workers| workers), &log, handler, test).await;
}

/// A kind that is known at run time, with children of such a kind.
#[tokio::test]
async fn kinds_may_be_known_only_at_run_time() {
    let (server, log) = (with_objects(2).await, Log::default());
    let kind = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let (objects, secrets) = (kind("ConfigMap"), kind("Secret"));
    let controller = Controller::new_with(
        Api::<DynamicObject>::all_with(client(&server), &objects),
        watcher::Config::default(),
        objects,
    )
    .owns_with(Api::<DynamicObject>::all_with(client(&server), &secrets), secrets, watcher::Config::default());
    let run = controller.run(async |run| _ = log.note(run));
    let test = async {
        log.until(|all| all.len() == 2).await;
        log.quiet().await;
        server.put("secrets", child("child", &["object-1", "never"]));
        log.told("object-1", Reason::Related).await;
        server.delete("configmaps", "a", "object-1");
        log.told("object-1", Reason::Gone).await;
        assert!(!log.of("object-1").last().unwrap().exists);
        assert!(log.quiet().await.is_empty());
    };
    tokio::select! {
        _ = run => panic!("it has ended"),
        () = test => {}
    }
}

/// What each outcome makes of an object that is gone. Those that are no success are told again, and know why.
#[tokio::test]
async fn every_outcome_may_end_the_run_of_an_object_that_is_gone() {
    let ms = Duration::from_millis;
    let outcomes: [(fn() -> Outcome, usize); 8] = [
        (|| Outcome::Success, 1),
        (|| Outcome::RequeueAfter(Duration::from_millis(5)), 1),
        (|| Outcome::Cooldown(Duration::from_millis(5)), 1),
        (|| Outcome::GiveUp("no".into()), 1),
        (|| Outcome::RequeueWith(AddOptions::new().after(Duration::from_millis(5))), 2),
        (|| Outcome::Retry, 2),
        (|| Outcome::RetryAfter { delay: Duration::from_millis(5), error: "later".into() }, 2),
        (|| Outcome::PauseGroup { delay: Duration::from_millis(5), error: "later".into() }, 2),
    ];
    for (outcome, runs) in outcomes {
        let (server, log) = (with_objects(1).await, Log::default());
        let handler = async |run: &Reconcile<'_, ConfigMap>| match run.object() {
            None if log.all().iter().filter(|told| !told.exists).count() == 1 => Ok(outcome()),
            _ => Ok(Outcome::Success),
        };
        let test = async {
            log.told("object-0", Reason::Listed).await;
            server.delete("configmaps", "a", "object-0");
            log.until(|all| all.iter().filter(|told| !told.exists).count() == runs).await;
            sleep(ms(50)).await;
            server.put("secrets", child("child", &["object-0"])); // no outcome leaves a reason behind
            sleep(ms(50)).await;
        };
        let controller = controller(&server)
            .owns(Api::<Secret>::all(client(&server)), watcher::Config::default())
            .queue(|queue| queue.fair_by(namespace));
        beside(controller, &log, handler, test).await;
        let gone: Vec<_> = log.all().into_iter().filter(|told| !told.exists).collect();
        assert_eq!(gone.len(), runs, "{:?}", outcome());
        assert!(gone.iter().all(|told| told.reasons.contains(Reason::Gone)));
    }
}

/// A run that is given up tells its reasons to the next one. That of an object that is gone is told then, too.
#[tokio::test]
async fn a_run_that_was_given_up_is_told_again_with_the_next_event() {
    let (server, log) = (with_objects(1).await, Log::default());
    let controller = controller(&server)
        .owns(Api::<Secret>::all(client(&server)), watcher::Config::default())
        .workers(1, |workers| workers.max_retries(1));
    let may_end = Cell::new(false);
    let handler = async |run: &Reconcile<'_, ConfigMap>| match run.object() {
        None if !may_end.get() => Err(Outcome::failed("no")),
        _ => Ok(Outcome::Success),
    };
    let test = async {
        log.told("object-0", Reason::Listed).await;
        server.delete("configmaps", "a", "object-0");
        log.until(|all| all.iter().filter(|told| !told.exists).count() == 2).await;
        may_end.set(true);
        assert!(log.quiet().await.is_empty());
        server.put("secrets", child("child", &["object-0"]));
        log.told("object-0", Reason::Related).await;
        assert!(log.of("object-0")[0].reasons.contains(Reason::Gone));
        server.delete("secrets", "a", "child");
        assert!(log.quiet().await.is_empty());
    };
    beside(controller, &log, handler, test).await;
}

#[tokio::test]
async fn a_run_that_is_ended_by_its_time_limit_is_retried_with_its_reasons() {
    let (server, log) = (with_objects(1).await, Log::default());
    let controller =
        controller(&server).workers(1, |workers| workers.time_limit(Duration::from_millis(20)).max_retries(3));
    let handler = async |run: &Reconcile<'_, ConfigMap>| {
        if run.failures() == 0 {
            pending::<()>().await;
        }
        Ok(Outcome::Success)
    };
    beside(controller, &log, handler, log.until(|all| all.len() == 2)).await;
    assert!(log.all().iter().all(|told| told.reasons == Reason::Listed.into()));
}

/// The handler ends the deletion of an object, and is told then that it is gone.
#[tokio::test]
async fn a_finalizer_comes_before_the_end_and_the_end_is_told_once() {
    let (server, log) = (Server::start().await, Log::default());
    let mut with_finalizer = object("a", "one");
    with_finalizer["metadata"]["finalizers"] = json!(["example.org/ours"]);
    server.put("configmaps", with_finalizer);
    let api = Api::<ConfigMap>::namespaced(client(&server), "a");
    let removed = Cell::new(0);
    let handler = async |run: &Reconcile<'_, ConfigMap>| {
        let again = Ok(Outcome::RequeueAfter(Duration::from_millis(200)));
        let Some(object) = run.object() else { return again };
        if object.metadata.deletion_timestamp.is_some() {
            removed.set(removed.get() + 1);
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": Value::Null } }));
            api.patch(&run.name, &PatchParams::default(), &patch).await?;
        }
        again
    };
    let test = async {
        log.told("one", Reason::Listed).await;
        server.delete("configmaps", "a", "one");
        log.told("one", Reason::Gone).await;
        sleep(Duration::from_millis(400)).await; // the delay of the run before brings about no other run
    };
    beside(controller(&server), &log, handler, test).await;
    assert_eq!((removed.get(), log.all().iter().filter(|told| !told.exists).count()), (1, 1));
}

/// A list that breaks off at its second page, twice, while an object goes and another comes.
#[tokio::test]
async fn a_list_that_breaks_off_tells_what_is_gone_once() {
    let (server, log) = (with_objects(5).await, Log::default());
    let config = watcher::Config::default().page_size(2);
    let controller = Controller::new(Api::<ConfigMap>::all(client(&server)), config)
        .trigger_backoff(|| Pause(Duration::from_millis(5)));
    let test = async {
        log.until(|all| all.len() == 5).await;
        server.rules.go_away();
        server.delete("configmaps", "a", "object-1");
        server.forget_versions();
        sleep(Duration::from_millis(20)).await;
        // The first page comes, and the second does not; then the list begins anew.
        server.rules.add(Rule::every(2, Fault::Status(410)).verb(Verb::List));
        server.rules.come_back();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(log.all().len(), 5);
        server.put("configmaps", object("a", "object-9"));
        server.rules.clear();
        log.told("object-1", Reason::Gone).await;
        log.told("object-9", Reason::Listed).await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!((log.of("object-1").len(), log.of("object-9").len(), log.of("object-0").len()), (2, 1, 2));
        let all = log.all();
        assert!(all.iter().all(|told| told.name == "object-1" || !told.reasons.contains(Reason::Gone)), "{all:?}");
    };
    beside(controller, &log, succeed, test).await;
}

/// A panic of a mapper or of a hook is the caller's: the controller ends with it, and leaves no task.
#[tokio::test]
async fn a_panic_of_a_mapper_or_a_hook_ends_the_run() {
    for boxed in [false, true] {
        for mapper in [false, true] {
            let server = with_objects(1).await;
            server.put("secrets", child("child", &[]));
            let queue = WorkQueue::new();
            let mut controller = controller(&server).with_queue(queue.clone());
            if mapper {
                let mapper = |_: Secret| -> Option<ObjectRef<ConfigMap>> { panic!("a bug of the mapper") };
                controller = controller.watches(Api::all(client(&server)), watcher::Config::default(), mapper);
            } else {
                server.rules.add(Rule::next(1, Fault::Status(500)).verb(Verb::Watch));
                controller = controller.on_watch_error(|_| panic!("a bug of the hook"));
            }
            let run = async {
                if boxed {
                    controller.run_boxed(|_| Box::pin(async {})).await
                } else {
                    controller.run(async |_| ()).await
                }
            };
            let end = timeout(LONG, AssertUnwindSafe(run).catch_unwind()).await.expect("it ends");
            assert!(end.is_err() && queue.shutting_down());
        }
    }
}
