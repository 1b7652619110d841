//! What happens to the objects of the stand-in.

use crate::{ANNOTATION, Key, LABEL, Sums, checksum};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Error, ResourceExt};
use serde_json::json;
use std::collections::HashSet;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

const OBJECTS: usize = 200;

/// Makes a request until the server has carried it out, or knows that it is of no use.
async fn insist<T>(request: impl AsyncFn() -> Result<T, Error>) -> Option<T> {
    loop {
        match request().await {
            Ok(answer) => return Some(answer),
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => return None,
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Creates or changes an object.
async fn set(client: &Client, n: usize, text: &str) {
    let namespace = format!("namespace-{}", n % 5);
    let objects = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let (label, value) = LABEL.split_once('=').expect("a label with a value");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("object-{n}"), "namespace": namespace, "labels": { label: value } },
        "data": { "text": text },
    });
    let new: ConfigMap = serde_json::from_value(object.clone()).expect("it is a ConfigMap");
    let change = Patch::Merge(object);
    if insist(async || objects.patch(&new.name_any(), &PatchParams::default(), &change).await).await.is_none() {
        insist(async || objects.create(&PostParams::default(), &new).await).await;
    }
}

async fn delete(client: &Client, n: usize) {
    let objects = Api::<ConfigMap>::namespaced(client.clone(), &format!("namespace-{}", n % 5));
    insist(async || objects.delete(&format!("object-{n}"), &DeleteParams::default()).await).await;
}

/// The number of objects, and of those for which something is wrong: the annotation, or a sum that is kept for an object that is gone.
async fn count(client: &Client, sums: &Sums) -> (usize, usize) {
    let all = Api::<ConfigMap>::all(client.clone());
    let objects = insist(async || all.list(&ListParams::default()).await).await.expect("there is a list").items;
    let is_wrong = |object: &&ConfigMap| object.annotations().get(ANNOTATION) != Some(&checksum(object));
    let keys: HashSet<Key> = objects.iter().map(ObjectRef::from_obj).collect();
    let gone = sums.lock().unwrap().keys().filter(|key| !keys.contains(key)).count();
    (objects.len(), objects.iter().filter(is_wrong).count() + gone)
}

/// Makes objects, changes and deletes half of them, and waits until all is right. On a cluster: never ends.
pub async fn run(on_stand_in: bool, client: &Client, sums: &Sums) -> Result<(), String> {
    if !on_stand_in {
        return pending().await;
    }
    for n in 0..OBJECTS {
        set(client, n, "first").await;
    }
    for step in 0..300 {
        let n = step * 7919 % OBJECTS / 2 * 2;
        match step % 10 {
            9 => delete(client, n).await,
            _ => set(client, n, &format!("change {step}")).await,
        }
        sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3000 {
        if let (objects, 0) = count(client, sums).await {
            println!("{objects} objects, all checksums are right");
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(format!("{} objects are wrong, or gone and not forgotten", count(client, sums).await.1))
}
