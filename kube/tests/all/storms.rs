//! Storms: objects and children come, change and go while watches fail, the server is away, and handlers fail and panic. After each storm
//! the last successful run of each object must have seen its present state, and what is gone must have been told.

use crate::common::{LONG, Pause, child, client, controller};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue::Outcome;
use keyqueue_kube::{Reason, Reconcile, namespace};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::sleep;

const NAMES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// What the handlers have seen.
#[derive(Default)]
struct Seen {
    /// The version of each object in its last successful run; none if it was gone.
    versions: BTreeMap<String, Option<String>>,
    /// How often a run has succeeded that was told of the end of this object.
    gone: BTreeMap<String, usize>,
    running: BTreeSet<String>,
    /// The owners of children that have changed since the last successful run of their owner. An owner that a child had for a moment need
    /// not be told, because no watch may have seen that.
    related: BTreeMap<String, String>,
}

/// A run, which fails or panics now and then.
async fn reconcile(run: &Reconcile<'_, ConfigMap>, seen: &Mutex<Seen>) -> Result<Outcome, Outcome> {
    let name = run.name.clone();
    assert!(seen.lock().unwrap().running.insert(name.clone()), "{name} has two runs at a time");
    if fastrand::bool() {
        sleep(Duration::from_micros(fastrand::u64(..2000))).await;
    }
    let mut seen = seen.lock().unwrap();
    seen.running.remove(&name);
    match fastrand::u8(..8) {
        0 => {
            drop(seen);
            panic!("a bug");
        }
        1 => return Err(Outcome::failed("an error")),
        _ => {}
    }
    seen.versions.insert(name.clone(), run.object().and_then(|object| object.resource_version()));
    if run.object().is_none() {
        assert!(run.reasons().contains(Reason::Gone), "{run:?}");
        *seen.gone.entry(name.clone()).or_default() += 1;
    }
    seen.related.retain(|_, owner| *owner != name);
    Ok(if fastrand::bool() { Outcome::Success } else { Outcome::RequeueAfter(Duration::from_millis(30)) })
}

async fn storm(seed: u64) {
    fastrand::seed(seed);
    let server = Server::start().await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut controller = controller(&server)
        .owns(Api::<Secret>::all(client(&server)), watcher::Config::default().page_size(2))
        .trigger_backoff(|| Pause(Duration::from_millis(3)))
        .on_watch_error(|_| ())
        .workers(3, |workers| workers);
    if fastrand::bool() {
        controller = controller.queue(|queue| queue.fair_by(namespace).max_processing_per_group(2).shards(2));
    }
    if fastrand::bool() {
        controller = controller.queue(|queue| queue.max_keys(3));
    }
    let (end, ended) = oneshot::channel::<()>();
    let controller = controller.graceful_shutdown_on(async { _ = ended.await });
    let shared = Arc::clone(&seen);
    let run = if fastrand::bool() {
        tokio::spawn(controller.run_boxed(move |run| {
            let seen = Arc::clone(&shared);
            Box::pin(async move { reconcile(run, &seen).await })
        }))
    } else {
        let (done, is_done) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let left = runtime.block_on(controller.run(async move |run| reconcile(run, &shared).await));
            _ = done.send(left);
        });
        tokio::spawn(async { is_done.await.unwrap() })
    };

    let mut deleted = BTreeMap::<String, usize>::new();
    for step in 0..60 {
        let name = NAMES[fastrand::usize(..NAMES.len())];
        match fastrand::u8(..12) {
            0..=3 => {
                let meta = json!({ "namespace": "a", "name": name });
                let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": { "step": step.to_string() } });
                server.put("configmaps", object);
            }
            4 | 5 => {
                if server.delete("configmaps", "a", name) {
                    *deleted.entry(name.to_owned()).or_default() += 1;
                }
            }
            6 => {
                let owner = NAMES[fastrand::usize(..NAMES.len())];
                let mut object = child(name, &[owner]);
                object["data"] = json!({ "step": "" });
                object["metadata"]["labels"] = json!({ "step": step.to_string() });
                let mut seen = seen.lock().unwrap();
                server.put("secrets", object);
                seen.related.insert(name.to_owned(), owner.to_owned());
            }
            7 => {
                seen.lock().unwrap().related.remove(name);
                server.delete("secrets", "a", name);
            }
            8 => server.forget_versions(),
            9 => server
                .rules
                .end_watches([WatchEnd::Complete, WatchEnd::Cut, WatchEnd::Error(410)][fastrand::usize(..3)]),
            10 => {
                let fault = [Fault::Status(500), Fault::Status(410), Fault::Disconnect][fastrand::usize(..3)];
                let verb = [Verb::List, Verb::Watch][fastrand::usize(..2)];
                server.rules.add(Rule::next(fastrand::u64(1..3), fault).verb(verb));
            }
            _ => {
                server.rules.go_away();
                sleep(Duration::from_millis(fastrand::u64(..10))).await;
                server.rules.come_back();
            }
        }
        if fastrand::bool() {
            sleep(Duration::from_micros(fastrand::u64(..3000))).await;
        }
    }
    server.rules.clear();

    let start = Instant::now();
    loop {
        let objects: BTreeMap<String, Option<String>> =
            server.objects("configmaps").iter().map(name_and_version).collect();
        let problem = {
            let seen = seen.lock().unwrap();
            let mut wrong: Vec<String> = Vec::new();
            wrong.extend(
                objects.iter().filter(|(name, at)| seen.versions.get(*name) != Some(at)).map(|(name, _)| name.clone()),
            );
            let is_known = |name: &&String| !objects.contains_key(*name);
            wrong.extend(
                seen.versions.iter().filter(|(name, at)| is_known(name) && at.is_some()).map(|(name, _)| name.clone()),
            );
            wrong.extend(
                seen.related.values().filter(|name| objects.contains_key(*name)).map(|name| format!("child of {name}")),
            );
            wrong
        };
        if problem.is_empty() {
            break;
        }
        assert!(start.elapsed() < LONG, "storm {seed}: wrong after all this time: {problem:?}");
        sleep(Duration::from_millis(5)).await;
    }
    for (name, count) in &seen.lock().unwrap().gone {
        let most = deleted.get(name).copied().unwrap_or_default();
        assert!(*count <= most, "storm {seed}: {name} was deleted {most} times, and that was told {count} times");
    }
    _ = end.send(());
    let left = run.await.expect("the controller has not panicked");
    assert!(left.processing.is_empty(), "storm {seed}: {left:?}");
}

fn name_and_version(object: &Value) -> (String, Option<String>) {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    (text("name").unwrap(), text("resourceVersion"))
}

/// `KUBE_STORMS` is how many there are, and `KUBE_STORM` the first.
#[tokio::test]
async fn storms() {
    let setting = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = setting("KUBE_STORM").unwrap_or(0);
    for seed in first..first + setting("KUBE_STORMS").unwrap_or(20) {
        storm(seed).await;
    }
}
