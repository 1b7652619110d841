//! What is told of objects, of what they own, and of watches that fail.

use crate::common::{LONG, Log, Pause, beside, child, client, controller, object, succeed};
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use keyqueue::Outcome;
use keyqueue_kube::{Controller, Reason};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

const LOW: i8 = -100;

/// A stream of what is sent.
fn channel<T: Send + 'static>() -> (UnboundedSender<T>, impl Stream<Item = T> + Send) {
    let (sender, receiver) = unbounded_channel();
    let next = async |mut receiver: UnboundedReceiver<T>| Some((receiver.recv().await?, receiver));
    (sender, unfold(receiver, next))
}

async fn with_objects(names: &[&str]) -> Server {
    let server = Server::start().await;
    names.iter().for_each(|name| _ = server.put("configmaps", object("a", name)));
    server
}

fn with_children(server: &Server) -> Controller<ConfigMap> {
    controller(server).owns(Api::<Secret>::all(client(server)), watcher::Config::default())
}

#[tokio::test]
async fn a_list_is_low_and_a_change_is_not() {
    let (server, log) = (with_objects(&["one", "two"]).await, Log::default());
    let test = async {
        log.until(|all| all.len() == 2).await;
        assert!(
            log.all().iter().all(|told| told.exists && told.reasons == Reason::Listed.into() && told.priority == LOW)
        );
        server.put("configmaps", object("a", "three"));
        log.told("three", Reason::Changed).await;
        assert_eq!(log.of("three")[0].priority, 0);
        assert!(log.quiet().await.is_empty());
    };
    beside(controller(&server), &log, succeed, test).await;
}

#[tokio::test]
async fn no_run_comes_before_the_list_is_complete() {
    let (server, log) = (with_objects(&["one", "two", "three"]).await, Log::default());
    server.rules.add(Rule::next(1, Fault::Hang).verb(Verb::List).after(1)); // the second page
    let config = watcher::Config::default().page_size(1);
    let hangs = Controller::new(Api::<ConfigMap>::all(client(&server)), config);
    // And a stop does not wait for a list that does not come.
    let left = beside(hangs, &log, succeed, sleep(Duration::from_millis(100))).await;
    assert_eq!((log.all().len(), left.len()), (0, 0));
}

#[tokio::test]
async fn an_object_that_is_gone_is_told_until_a_run_succeeds_and_not_again() {
    let (server, log) = (with_objects(&["one", "two"]).await, Log::default());
    let handler = async |run: &keyqueue_kube::Reconcile<'_, ConfigMap>| match run.object() {
        None if run.failures() < 2 => Err(Outcome::failed("not yet")),
        _ => Ok(Outcome::RequeueAfter(Duration::from_millis(20))), // also for what is gone
    };
    let test = async {
        log.told("one", Reason::Listed).await;
        server.delete("configmaps", "a", "one");
        log.until(|all| all.iter().filter(|told| told.name == "one" && !told.exists).count() == 3).await;
        let gone: Vec<_> = log.of("one").into_iter().filter(|told| !told.exists).collect();
        assert!(gone.iter().all(|told| told.reasons.contains(Reason::Gone)));
        assert_eq!(gone.iter().map(|told| told.failures).collect::<Vec<_>>(), [0, 1, 2]);
        // Neither the delay that the last run has set nor a child brings one more run about.
        server.put("secrets", child("child", &["one", "never"]));
        let quiet = log.quiet().await;
        assert!(quiet.iter().all(|told| told.name == "two" && told.reasons.is_empty()), "{quiet:?}");
        assert!(!quiet.is_empty());
        // A new object of that name is one like any other.
        server.put("configmaps", object("a", "one"));
        log.until(|all| all.iter().any(|told| told.name == "one" && told.exists)).await;
    };
    beside(with_children(&server), &log, handler, test).await;
}

#[tokio::test]
async fn a_list_after_a_watch_that_was_cut_tells_what_is_gone() {
    let (server, log) = (with_objects(&["one", "two"]).await, Log::default());
    for (name, owner) in [("first", "one"), ("second", "two")] {
        server.put("secrets", child(name, &[owner]));
    }
    let test = async {
        log.until(|all| all.iter().any(|told| told.name == "two")).await;
        log.told("one", Reason::Related).await;
        log.quiet().await;
        server.rules.go_away();
        server.delete("configmaps", "a", "one");
        server.delete("secrets", "a", "second");
        server.forget_versions();
        sleep(Duration::from_millis(50)).await;
        server.rules.come_back();
        log.told("one", Reason::Gone).await;
        // The child of `two` is missing in the new list. That is no change of `two`, whose list is LOW.
        log.until(|all| all.iter().any(|told| told.name == "two" && told.reasons.contains(Reason::Related))).await;
        assert!(log.quiet().await.is_empty());
    };
    beside(with_children(&server), &log, succeed, test).await;
}

#[tokio::test]
async fn children_tell_their_owners_of_before_and_after() {
    let (server, log) = (with_objects(&["one", "two"]).await, Log::default());
    let related = async |names: &[&str]| {
        for name in names {
            log.told(name, Reason::Related).await;
        }
        let told = log.all();
        assert!(told.iter().all(|told| names.contains(&&*told.name)), "{told:?}");
        assert!(log.quiet().await.is_empty());
    };
    let test = async {
        log.until(|all| all.len() == 2).await;
        log.quiet().await;
        server.put("secrets", child("child", &["one"]));
        related(&["one"]).await;
        server.put("secrets", child("child", &["two"])); // it has another owner now
        related(&["one", "two"]).await;
        server.put("secrets", child("child", &["one", "two"]));
        related(&["one", "two"]).await;
        server.delete("secrets", "a", "child");
        related(&["one", "two"]).await;
        server.put("secrets", child("nobody's", &[]));
        assert!(log.quiet().await.is_empty());
    };
    beside(with_children(&server), &log, succeed, test).await;
}

/// A child has a namespace, and its owner has none: that is one key, not two.
#[tokio::test]
async fn an_owner_without_a_namespace_has_one_key() {
    let server = Server::start().await;
    server.put("namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } }));
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": "a", "uid": "1" });
    server.put("secrets", json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "a", "name": "child", "ownerReferences": [owner] },
    }));
    let log = Log::default();
    let namespaces = Mutex::new(Vec::new());
    let controller = Controller::new(Api::<Namespace>::all(client(&server)), watcher::Config::default())
        .owns(Api::<Secret>::all(client(&server)), watcher::Config::default());
    let run = controller.run(async |run| {
        namespaces.lock().unwrap().push(run.namespace.clone());
        log.note(run);
    });
    tokio::select! {
        _ = run => panic!("it has ended"),
        () = log.told("a", Reason::Related) => {}
    }
    assert!(namespaces.lock().unwrap().iter().all(Option::is_none));
}

#[tokio::test]
async fn other_objects_and_streams_name_objects() {
    let (server, log) = (with_objects(&["one", "two"]).await, Log::default());
    let (ask, asked) = channel::<&str>();
    let (all, every) = channel::<()>();
    let named = asked.map(|name| ObjectRef::new(name).within("a"));
    let mapper = |secret: Secret| [ObjectRef::new(secret.labels()["of"].as_str()).within("a")];
    let controller = controller(&server)
        .watches(Api::<Secret>::all(client(&server)), watcher::Config::default(), mapper)
        .reconcile_on(named)
        .reconcile_all_on(every);
    let test = async {
        log.until(|all| all.len() == 2).await;
        log.quiet().await;
        let meta = json!({ "namespace": "b", "name": "any", "labels": { "of": "two" } });
        server.put("secrets", json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta }));
        log.told("two", Reason::Related).await;
        ask.send("one").unwrap();
        log.told("one", Reason::Requested).await;
        ask.send("never").unwrap();
        let quiet = log.quiet().await;
        assert!(quiet.is_empty(), "{quiet:?}");
        all.send(()).unwrap();
        log.told("one", Reason::Bulk).await;
        log.told("two", Reason::Bulk).await;
    };
    beside(controller, &log, succeed, test).await;
}

/// Each way in which a list or a watch may fail, twice; and then the server is away. Objects that come and go meanwhile are told.
#[tokio::test]
async fn watches_that_fail_go_on() {
    let faults = [403, 404, 410, 500].map(Fault::Status);
    for fault in faults.into_iter().chain([Fault::TooManyRequests { retry_after: 1 }, Fault::Disconnect]) {
        for verb in [Verb::List, Verb::Watch] {
            let (server, log) = (with_objects(&["one", "two"]).await, Log::default());
            let errors = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&errors);
            server.rules.add(Rule::next(2, fault).verb(verb).resource("configmaps"));
            let controller = with_children(&server).on_watch_error(move |_| _ = count.fetch_add(1, Relaxed));
            let test = async {
                log.until(|all| all.len() >= 2).await;
                server.put("configmaps", object("a", "three"));
                server.delete("configmaps", "a", "one");
                log.until(|all| all.iter().any(|told| told.name == "three")).await;
                log.told("one", Reason::Gone).await;
                assert_eq!(errors.load(Relaxed), 2, "{fault:?} {verb:?}");
                for end in [WatchEnd::Error(410), WatchEnd::Cut, WatchEnd::Complete] {
                    server.rules.end_watches(end);
                }
                server.delete("configmaps", "a", "two");
                log.told("two", Reason::Gone).await;
            };
            beside(controller, &log, succeed, test).await;
        }
    }
}

/// A kind that the server refuses holds up no other.
#[tokio::test]
async fn a_watch_that_is_refused_holds_up_no_other() {
    let (server, log) = (with_objects(&["one"]).await, Log::default());
    server.rules.add(Rule::all(Fault::Status(403)).resource("secrets"));
    let test = async {
        log.told("one", Reason::Listed).await;
        server.put("configmaps", object("a", "two"));
        log.told("two", Reason::Changed).await;
    };
    // The pause of the one watch, which here takes for ever, is none of the other.
    beside(with_children(&server).trigger_backoff(|| Pause(10 * LONG)), &log, succeed, test).await;
}
