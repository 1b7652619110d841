//! The stand-in for an API server, and what happens to its objects.

use crate::{ANNOTATION, LABEL, Sums};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use serde_json::json;
use std::collections::HashSet;
use std::error::Error;
use std::future::{Future, pending};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

const OBJECTS: usize = 200;

/// What an object's annotation must say.
pub fn checksum(object: &ConfigMap) -> String {
    let mut sum = crc32fast::Hasher::new();
    for (name, text) in object.data.iter().flatten() {
        [name, "=", text, "\n"].into_iter().for_each(|part| sum.update(part.as_bytes()));
    }
    format!("{:08x}", sum.finalize())
}

/// A client, and the server unless that is a cluster. One write in five fails there, and each watch ends after a second with an error.
pub async fn connect() -> Result<(Client, Option<Server>), Box<dyn Error>> {
    if std::env::var_os("KUBECONFIG").is_some() {
        return Ok((Client::try_default().await?, None));
    }
    let server = Server::start().await;
    server.rules.add(Rule::every(5, Fault::Status(500)).verb(Verb::Patch));
    server.rules.watches_last(Duration::from_secs(1), WatchEnd::Error(410));
    Ok((Client::try_from(kube::Config::new(server.address.parse()?))?, Some(server)))
}

/// What happens, and whether all was right at the end of it. On a cluster nothing happens, and a signal ends the program.
pub fn play(
    server: Option<Server>,
    sums: Sums,
) -> (impl Future<Output = ()>, impl Future<Output = Result<(), Box<dyn Error>>>) {
    let is_on_cluster = server.is_none();
    let (tell, told) = oneshot::channel();
    let story = async move {
        match server {
            Some(server) => _ = tell.send(storm(&server, &sums).await),
            None => pending().await,
        }
    };
    let verdict = async move {
        match told.await {
            Ok(verdict) => Ok(verdict?),
            Err(_) if is_on_cluster => Ok(()),
            Err(_) => Err("ended by a signal".into()),
        }
    };
    (story, verdict)
}

/// Makes objects, changes and deletes half of them, and waits until all is right.
async fn storm(server: &Server, sums: &Sums) -> Result<(), String> {
    for n in 0..OBJECTS {
        set(server, n, "first");
    }
    for step in 0..300 {
        let n = step * 7919 % OBJECTS / 2 * 2;
        match step % 10 {
            9 => _ = server.delete("configmaps", &namespace(n), &format!("object-{n}")),
            _ => set(server, n, &format!("change {step}")),
        }
        sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3000 {
        if let (objects, 0) = count(server, sums) {
            println!("{objects} objects, all checksums are right");
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(format!("{} objects are wrong, or gone and not forgotten", count(server, sums).1))
}

fn namespace(n: usize) -> String {
    format!("namespace-{}", n % 5)
}

/// Creates or changes an object. The annotation stays, and is that of the text before.
fn set(server: &Server, n: usize, text: &str) {
    let (name, namespace) = (format!("object-{n}"), namespace(n));
    let (label, value) = LABEL.split_once('=').expect("a label with a value");
    let old = server.get("configmaps", &namespace, &name);
    let annotations = old.map_or_else(|| json!({}), |old| old["metadata"]["annotations"].clone());
    server.put("configmaps", json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text },
        "metadata": { "name": name, "namespace": namespace, "labels": { label: value }, "annotations": annotations },
    }));
}

/// The number of objects, and of those for which something is wrong: the annotation, or a sum that is kept for an object that is gone.
fn count(server: &Server, sums: &Sums) -> (usize, usize) {
    let objects =
        server.objects("configmaps").into_iter().map(|object| serde_json::from_value(object).expect("a ConfigMap"));
    let objects: Vec<ConfigMap> = objects.collect();
    let is_wrong = |object: &&ConfigMap| object.annotations().get(ANNOTATION) != Some(&checksum(object));
    let keys: HashSet<ObjectRef<ConfigMap>> = objects.iter().map(ObjectRef::from_obj).collect();
    let gone = sums.lock().unwrap().keys().filter(|key| !keys.contains(key)).count();
    (objects.len(), objects.iter().filter(is_wrong).count() + gone)
}
