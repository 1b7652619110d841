//! The stand-in, as kube-rs's client and watcher see it.

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, Error, ResourceExt};
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// No test should take so long.
const LONG: Duration = Duration::from_secs(20);

/// A client that leaves 429 and 504 to the caller.
fn client(server: &Server) -> Client {
    let mut config = Config::new(server.address.parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn config_maps(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(client(server), "a")
}

fn object(name: &str, label: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": "a", "name": name, "labels": { "colour": label } }, "data": {} })
}

fn typed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn code<T: Debug>(answer: Result<T, Error>) -> u16 {
    match answer.unwrap_err() {
        Error::Api(status) => status.code,
        error => panic!("no answer: {error}"),
    }
}

fn names<T: ResourceExt>(objects: impl IntoIterator<Item = T>) -> Vec<String> {
    objects.into_iter().map(|object| object.name_any()).collect()
}

/// What a watcher says next, in short: an error as "error" and the part of its text that says which.
async fn next(events: &mut Pin<&mut impl futures_util::Stream<Item = watcher::Result<Event<ConfigMap>>>>) -> String {
    match timeout(LONG, events.next()).await.expect("an event").expect("a watcher never ends") {
        Ok(Event::Init) => "init".to_owned(),
        Ok(Event::InitApply(object)) => format!("listed {}", object.name_any()),
        Ok(Event::InitDone) => "done".to_owned(),
        Ok(Event::Apply(object)) => format!("applied {}", object.name_any()),
        Ok(Event::Delete(object)) => format!("deleted {}", object.name_any()),
        Err(watcher::Error::WatchError(status)) => format!("said {}", status.code),
        Err(watcher::Error::WatchFailed(_)) => "broken".to_owned(),
        Err(watcher::Error::InitialListFailed(Error::Api(status))) => format!("list: {}", status.code),
        Err(error) => format!("error: {error}"),
    }
}

macro_rules! says {
    ($events:expr, $($text:expr),+) => {
        for text in [$($text),+] {
            assert_eq!(next(&mut $events).await, text);
        }
    };
}

async fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "it does not happen");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Objects of the same namespace and name, of three kinds.
#[tokio::test]
async fn kinds_are_apart() {
    let server = Server::start().await;
    let (client, post) = (client(&server), PostParams::default());
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "a");
    maps.create(&post, &typed(object("one", "red"))).await.unwrap();
    let deployments = Api::<Deployment>::namespaced(client.clone(), "a");
    assert_eq!(code(deployments.get("one").await), 404);
    let deployment = json!({ "spec": { "selector": {}, "template": {} }, "metadata": { "name": "one", "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "7", "controller": true }] } });
    let deployment = deployments.create(&post, &typed(deployment)).await.unwrap();
    assert_eq!(deployment.namespace().unwrap(), "a");
    assert_eq!(deployment.owner_references()[0].uid, "7");
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = namespaces.create(&post, &typed(json!({ "metadata": { "name": "one" } }))).await.unwrap();
    assert_eq!(namespace.namespace(), None);
    let status = Patch::Merge(json!({ "status": { "phase": "Terminating" } }));
    namespaces.patch_status("one", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(namespaces.get("one").await.unwrap().status.unwrap().phase.unwrap(), "Terminating");

    assert_ne!(namespace.uid(), deployment.uid());
    for resource in ["configmaps", "deployments.apps", "namespaces"] {
        assert_eq!(server.objects(resource).len(), 1, "{resource}");
    }
    assert_eq!(
        names(Api::<ConfigMap>::namespaced(client.clone(), "b").list(&ListParams::default()).await.unwrap()),
        [""; 0]
    );
    assert_eq!(names(Api::<ConfigMap>::all(client).list(&ListParams::default()).await.unwrap()), ["one"]);
    assert_eq!(names(maps.list_metadata(&ListParams::default()).await.unwrap()), ["one"]);
}

#[tokio::test]
async fn writes_conflict() {
    let server = Server::start().await;
    let (maps, post, patch) = (config_maps(&server), PostParams::default(), PatchParams::default());
    let first = maps.create(&post, &typed(object("one", "red"))).await.unwrap();
    assert_eq!(code(maps.create(&post, &first).await), 409);
    assert_eq!(code(maps.replace("two", &post, &typed(object("two", "red"))).await), 404);
    assert_eq!(code(maps.create(&post, &ConfigMap::default()).await), 422);
    let begin: ConfigMap = typed(json!({ "metadata": { "generateName": "new-" } }));
    let generated = [maps.create(&post, &begin).await.unwrap(), maps.create(&post, &begin).await.unwrap()];
    assert!(generated[0].name_any().starts_with("new-") && generated[0].name_any() != generated[1].name_any());

    let change = json!({ "metadata": { "labels": { "size": "xl" } }, "data": { "text": "new" } });
    let second = maps.patch("one", &patch, &Patch::Merge(&change)).await.unwrap();
    assert_eq!(second.labels()["colour"], "red");
    assert_eq!(second.uid(), first.uid());
    assert_eq!((first.metadata.generation, second.metadata.generation), (Some(1), Some(2)));
    assert_eq!(code(maps.replace("one", &post, &first).await), 409);
    let mut old = change.clone();
    old["metadata"]["resourceVersion"] = json!(first.resource_version());
    assert_eq!(code(maps.patch("one", &patch, &Patch::Merge(old)).await), 409);
    let unchanged = maps.patch("one", &patch, &Patch::Merge(&change)).await.unwrap();
    assert_eq!(unchanged, second);
    let labels = json!({ "metadata": { "labels": null } });
    let third = maps.patch("one", &patch, &Patch::Merge(labels)).await.unwrap();
    assert!(third.labels().is_empty());
    assert_eq!(third.metadata.generation, Some(2));
    let third = maps.replace("one", &post, &third).await.unwrap();

    let resource_version = first.resource_version();
    for wrong in [
        Preconditions { resource_version, uid: None },
        Preconditions { uid: Some("x".to_owned()), resource_version: None },
    ] {
        assert_eq!(code(maps.delete("one", &DeleteParams::default().preconditions(wrong)).await), 409);
    }
    let right = Preconditions { resource_version: third.resource_version(), uid: third.uid() };
    let delete = DeleteParams::default().preconditions(right);
    assert!(maps.delete("one", &delete).await.unwrap().is_right());
    assert_eq!(code(maps.delete("one", &delete).await), 404);
}

#[tokio::test]
async fn apply_creates_and_merges() {
    let server = Server::start().await;
    let (maps, apply) = (config_maps(&server), PatchParams::apply("test").force());
    let change = |data: Value| Patch::Apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data }));
    maps.patch("one", &apply, &change(json!({ "a": "1" }))).await.unwrap();
    let object = maps.patch("one", &apply, &change(json!({ "b": "2" }))).await.unwrap();
    assert_eq!(json!(object.data), json!({ "a": "1", "b": "2" }));
    assert_eq!(code(maps.patch("two", &PatchParams::default(), &Patch::Merge(json!({}))).await), 404);
    assert_eq!(code(maps.patch_status("two", &apply, &change(json!({}))).await), 404);
}

#[tokio::test]
async fn a_put_creates_a_lease() {
    let server = Server::start().await;
    let leases = Api::<Lease>::namespaced(client(&server), "a");
    let lease: Lease = typed(json!({ "metadata": { "name": "one", "resourceVersion": "7" } }));
    leases.replace("one", &PostParams::default(), &lease).await.unwrap();
    assert_eq!(code(leases.replace("one", &PostParams::default(), &lease).await), 409);
}

#[tokio::test]
async fn status_is_apart() {
    let server = Server::start().await;
    let deployments = Api::<Deployment>::namespaced(client(&server), "a");
    server.put(
        "deployments.apps",
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": "a", "name": "one" }, "spec": { "paused": true, "selector": {}, "template": {} }, "status": { "replicas": 1 } }),
    );
    let change = Patch::Merge(json!({ "spec": { "paused": false }, "status": { "replicas": 2, "readyReplicas": 2 } }));
    let both = |object: &Deployment| {
        let status = object.status.as_ref().unwrap();
        (object.spec.paused.unwrap(), status.replicas.unwrap(), object.metadata.generation.unwrap())
    };
    let object = deployments.patch_status("one", &PatchParams::default(), &change).await.unwrap();
    assert_eq!(both(&object), (true, 2, 1));
    let mut object = deployments.patch("one", &PatchParams::default(), &change).await.unwrap();
    assert_eq!(both(&object), (false, 2, 2));
    object.status.as_mut().unwrap().replicas = Some(3);
    let object = deployments.replace("one", &PostParams::default(), &object).await.unwrap();
    assert_eq!(both(&object), (false, 2, 2));
}

#[tokio::test]
async fn finalizers_hold_an_object() {
    let server = Server::start().await;
    let (maps, patch) = (config_maps(&server), PatchParams::default());
    let mut held = object("one", "red");
    held["metadata"]["finalizers"] = json!(["test/held"]);
    server.put("configmaps", held);
    let begun = maps.delete("one", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(begun.metadata.deletion_timestamp.is_some());
    let again = maps.delete("one", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(again, begun);
    maps.patch("one", &patch, &Patch::Merge(json!({ "data": { "a": "1" } }))).await.unwrap();
    maps.patch("one", &patch, &Patch::Merge(json!({ "metadata": { "finalizers": null } }))).await.unwrap();
    assert_eq!(code(maps.get("one").await), 404);
    assert_eq!(server.history("configmaps").len(), 4);
}

/// Pages are of one version, whatever happens between them.
#[tokio::test]
async fn lists_have_pages() {
    let server = Server::start().await;
    for n in 0..6 {
        server.put("configmaps", object(&format!("object-{n}"), "red"));
    }
    let maps = config_maps(&server);
    let mut page = ListParams::default().limit(2);
    let first = maps.list(&page).await.unwrap();
    assert_eq!(names(first.items), ["object-0", "object-1"]);
    server.delete("configmaps", "a", "object-3");
    server.put("configmaps", object("object-2-new", "red"));
    server.put("configmaps", object("object-4", "blue"));
    page.continue_token = first.metadata.continue_;
    let second = maps.list(&page).await.unwrap();
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(names(second.items), ["object-2", "object-3"]);
    page.continue_token = second.metadata.continue_;
    let third = maps.list(&page).await.unwrap();
    assert_eq!(third.metadata.continue_, None);
    assert_eq!(third.items[0].labels()["colour"], "red");
    assert_eq!(names(third.items), ["object-4", "object-5"]);
    let all = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(all.items), ["object-0", "object-1", "object-2", "object-2-new", "object-4", "object-5"]);

    server.forget_versions();
    assert_eq!(code(maps.list(&page).await), 410);
    assert_eq!(names(maps.list(&ListParams::default().limit(1)).await.unwrap()), ["object-0"]);
}

#[tokio::test]
async fn selectors() {
    let server = Server::start().await;
    for (name, colour) in [("one", "red"), ("two", "blue"), ("three", "")] {
        server.put("configmaps", object(name, colour));
    }
    let maps = config_maps(&server);
    maps.patch("three", &PatchParams::default(), &Patch::Merge(json!({ "metadata": { "labels": null } })))
        .await
        .unwrap();
    for (selector, selected) in [
        ("colour=red", vec!["one"]),
        ("colour==red", vec!["one"]),
        ("colour!=red", vec!["three", "two"]),
        ("colour", vec!["one", "two"]),
        ("!colour", vec!["three"]),
        ("colour, colour != red", vec!["two"]),
    ] {
        let list = maps.list(&ListParams::default().labels(selector)).await.unwrap();
        assert_eq!(names(list.items), selected, "{selector}");
    }
    assert_eq!(code(maps.list(&ListParams::default().labels("colour in (red, blue)")).await), 400);
    let list = maps.list(&ListParams::default().fields("metadata.name=two")).await.unwrap();
    assert_eq!(names(list.items), ["two"]);
}

async fn a_watcher_sees(server: &Server, config: watcher::Config) {
    for name in ["one", "two", "three"] {
        server.put("configmaps", object(name, "red"));
    }
    server.put("configmaps", object("other", "blue"));
    let mut events = pin!(watcher(config_maps(server), config.labels("colour=red")));
    says!(events, "init", "listed one", "listed three", "listed two", "done");
    server.put("configmaps", object("four", "red"));
    server.put("configmaps", object("five", "blue"));
    server.put("secrets", object("six", "red"));
    server.put("configmaps", object("two", "blue"));
    server.put("configmaps", object("other", "red"));
    server.delete("configmaps", "a", "one");
    says!(events, "applied four", "deleted two", "applied other", "deleted one");
    for name in ["four", "five", "other", "three", "two"] {
        server.delete("configmaps", "a", name);
    }
    says!(events, "deleted four", "deleted other", "deleted three");
}

#[tokio::test]
async fn watchers_see_all() {
    let server = Server::start().await;
    a_watcher_sees(&server, watcher::Config::default()).await;
    assert_eq!((server.requests(Verb::List), server.requests(Verb::Watch)), (1, 1));
    a_watcher_sees(&server, watcher::Config::default().page_size(1)).await;
    assert_eq!((server.requests(Verb::List), server.requests(Verb::Watch)), (4, 2));
    a_watcher_sees(&server, watcher::Config::default().streaming_lists()).await;
    assert_eq!((server.requests(Verb::List), server.requests(Verb::Watch)), (4, 3));
}

/// What a watch says, and what a client makes of it that goes on from there: nothing is told twice, and nothing is missed.
#[tokio::test]
async fn watches_end() {
    let server = Server::start().await;
    server.put("configmaps", object("one", "red"));
    let mut events = pin!(watcher(config_maps(&server), watcher::Config::default()));
    says!(events, "init", "listed one", "done");

    for (n, end) in [WatchEnd::Complete, WatchEnd::Cut].into_iter().enumerate() {
        server.put("configmaps", object("two", &n.to_string()));
        says!(events, "applied two");
        server.rules.end_watches(end);
        if end == WatchEnd::Cut {
            says!(events, "broken");
        }
        server.put("configmaps", object("three", &n.to_string()));
        says!(events, "applied three");
        assert_eq!(server.requests(Verb::List), 1);
    }

    // The version that the client has is forgotten.
    server.forget_versions();
    server.delete("configmaps", "a", "two");
    says!(events, "deleted two");
    server.rules.end_watches(WatchEnd::Cut);
    says!(events, "broken");
    server.forget_versions();
    server.put("configmaps", object("four", "red"));
    let mut said = next(&mut events).await;
    while said != "said 410" {
        said = next(&mut events).await;
    }
    says!(events, "init", "listed four", "listed one", "listed three", "done");

    server.rules.watches_last(Duration::from_millis(50), WatchEnd::Error(500));
    server.put("configmaps", object("five", "red"));
    says!(events, "applied five");
    server.rules.end_watches(WatchEnd::Complete);
    says!(events, "said 500", "said 500");
}

/// A client whose objects do not change goes on from the newest version.
#[tokio::test]
async fn bookmarks() {
    let server = Server::start().await;
    server.put("configmaps", object("one", "red"));
    let maps = config_maps(&server);
    let watch = kube::api::WatchParams::default().labels("colour=blue").timeout(2);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    server.put("configmaps", object("one", "green"));
    let events: Vec<_> = maps.watch(&watch, &version).await.unwrap().try_collect().await.unwrap();
    assert!(events.len() >= 2, "{events:?}");
    let newest = (version.parse::<u64>().unwrap() + 1).to_string();
    for event in events {
        let kube::api::WatchEvent::Bookmark(bookmark) = event else { panic!("{event:?}") };
        assert_eq!(bookmark.metadata.resource_version, newest);
        assert_eq!(bookmark.types.kind, "ConfigMap");
    }
    let watch = kube::api::WatchParams { bookmarks: false, ..watch };
    let events: Vec<_> = maps.watch(&watch.timeout(1), &version).await.unwrap().try_collect().await.unwrap();
    assert!(events.is_empty(), "{events:?}");
}

#[tokio::test]
async fn rules_count() {
    let server = Server::start().await;
    server.put("configmaps", object("one", "red"));
    let maps = config_maps(&server);
    let leases = Api::<Lease>::namespaced(client(&server), "a");
    let codes = async |n: usize| {
        let mut codes = Vec::new();
        for _ in 0..n {
            codes.push(maps.get("one").await.err().map_or(200, |error| code(Err::<(), _>(error))));
        }
        codes
    };
    server.rules.add(Rule::next(2, Fault::Status(403)).verb(Verb::Get));
    assert_eq!(codes(3).await, [403, 403, 200]);
    server.rules.clear();
    server.rules.add(Rule::every(3, Fault::Status(409)).after(1));
    // This one counts the requests that the one before answers.
    server.rules.add(Rule::every(2, Fault::Status(500)));
    assert_eq!(codes(8).await, [200, 500, 200, 409, 200, 500, 409, 500]);
    server.rules.clear();
    server.rules.add(Rule::all(Fault::Status(410)).verb(Verb::List).resource("configmaps"));
    assert_eq!(codes(2).await, [200; 2]);
    assert_eq!(code(maps.list(&ListParams::default()).await), 410);
    assert_eq!(code(maps.list(&ListParams::default()).await), 410);
    leases.list(&ListParams::default()).await.unwrap();
    assert_eq!((server.requests(Verb::Get), server.requests(Verb::List)), (13, 3));
    let mut events = pin!(watcher(maps, watcher::Config::default()));
    says!(events, "init", "list: 410", "init");
    server.rules.clear();
    says!(events, "listed one", "done");
}

#[tokio::test]
async fn too_many_requests() {
    let server = Server::start().await;
    server.put("configmaps", object("one", "red"));
    server.rules.add(Rule::next(2, Fault::TooManyRequests { retry_after: 1 }));
    let Err(Error::Api(status)) = config_maps(&server).get("one").await else { panic!("it is refused") };
    assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
    // The client's own retries wait for as long as the header says.
    let patient = Client::try_from(Config::new(server.address.parse().unwrap())).unwrap();
    let start = Instant::now();
    Api::<ConfigMap>::namespaced(patient, "a").get("one").await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn answers_are_lost() {
    let server = Server::start().await;
    server.put("configmaps", object("one", "red"));
    let maps = config_maps(&server);
    let change = |n: u32| Patch::Merge(json!({ "data": { "n": n.to_string() } }));
    let is = |n: u32| server.get("configmaps", "a", "one").unwrap()["data"]["n"].as_str() == Some(&n.to_string());
    let patch = PatchParams::default();
    for (n, fault, is_done) in [
        (1, Fault::Status(500), false),
        (2, Fault::DoneBut(504), true),
        (3, Fault::Disconnect, false),
        (4, Fault::Hang, false),
    ] {
        server.rules.add(Rule::next(1, fault).verb(Verb::Patch));
        let answer = timeout(Duration::from_millis(300), maps.patch("one", &patch, &change(n))).await;
        let fits = match fault {
            Fault::Hang => answer.is_err(),
            Fault::Disconnect => matches!(answer, Ok(Err(Error::HyperError(_) | Error::Service(_)))),
            _ => matches!(answer, Ok(Err(Error::Api(_)))),
        };
        assert!(fits, "{fault:?}");
        assert_eq!(is(n), is_done, "{fault:?}");
    }
    maps.patch("one", &patch, &change(5)).await.unwrap();
    assert!(is(5));
}

#[tokio::test]
async fn a_server_goes_away() {
    let server = Server::start().await;
    server.put("configmaps", object("one", "red"));
    let maps = config_maps(&server);
    let mut events = pin!(watcher(maps.clone(), watcher::Config::default()));
    says!(events, "init", "listed one", "done");
    let watching = tokio::spawn({
        let maps = maps.clone();
        async move { maps.watch(&Default::default(), "0").await.unwrap().collect::<Vec<_>>().await }
    });
    until(|| server.open_watches() == 1).await;
    server.rules.go_away();
    let watched = timeout(LONG, watching).await.unwrap().unwrap();
    assert!(matches!(&*watched, [Ok(_), Err(_)]), "{watched:?}");
    until(|| server.open_watches() == 0).await;
    let gets = server.requests(Verb::Get);
    maps.get("one").await.unwrap_err();
    assert_eq!(server.requests(Verb::Get), gets);
    server.put("configmaps", object("two", "red"));
    server.rules.come_back();
    maps.get("two").await.unwrap();
    says!(events, "applied two");
}

/// A watch is counted until its client goes.
#[tokio::test]
async fn open_watches_are_counted() {
    let server = Server::start().await;
    let maps = config_maps(&server);
    let first = maps.watch(&Default::default(), "0").await.unwrap();
    let second = maps.watch(&Default::default(), "0").await.unwrap();
    assert_eq!(server.open_watches(), 2);
    drop(first);
    until(|| server.open_watches() == 1).await;
    drop(second);
    until(|| server.open_watches() == 0).await;
}

#[tokio::test]
async fn objects_without_http() {
    let server = Server::start().await;
    let first = server.put("configmaps", object("one", "red"));
    let second = server.put("configmaps", object("one", "blue"));
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    // An old version does not matter.
    let third = server.put("configmaps", first);
    assert_eq!(server.get("configmaps", "a", "one"), Some(third.clone()));
    assert_eq!(server.objects("configmaps"), std::slice::from_ref(&third));
    assert!(server.delete("configmaps", "a", "one"));
    assert!(!server.delete("configmaps", "a", "one"));
    let history = server.history("configmaps");
    let colours: Vec<_> =
        history.iter().map(|object| object["metadata"]["labels"]["colour"].as_str().unwrap()).collect();
    assert_eq!(colours, ["red", "blue", "red", "red"]);
    assert_eq!(server.objects("configmaps"), [Value::Null; 0]);
    let next = server.put("configmaps", third.clone());
    assert_ne!(next["metadata"]["uid"], third["metadata"]["uid"]);
}

#[tokio::test]
async fn a_dropped_server_is_gone() {
    let server = Server::start().await;
    let (maps, address) = (config_maps(&server), server.address.clone());
    let mut watch = maps.watch(&Default::default(), "0").await.unwrap().boxed();
    drop(server);
    assert!(!matches!(timeout(LONG, watch.next()).await.unwrap(), Some(Ok(_))));
    maps.get("one").await.unwrap_err();
    let address = address.trim_start_matches("http://").to_owned();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
