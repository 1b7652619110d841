//! A controller with an owned kind, built twice: with `keyqueue-kube`, and with kube's own controller.
//!
//! ```text
//! cargo run -p copies
//! cargo run -p copies --features kube-controller
//! ```
//!
//! A ConfigMap with the label `copies=N` has N Secrets with a copy of its text, which it owns. If somebody changes or deletes a copy, it is
//! made anew. Both programs run against a stand-in for an API server, on which a story is played, and must come to the same end: the script
//! `ci/examples.sh` compares what they print.

mod story;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use std::error::Error;

const LABEL: &str = "copies";

/// Makes the copies of an object, and deletes those that are too many.
async fn reconcile(client: &Client, object: &ConfigMap) -> Result<(), kube::Error> {
    let namespace = object.namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
    let count = object.labels().get(LABEL).and_then(|count| count.parse().ok()).unwrap_or(0);
    for n in 0..count {
        let copy = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": object.data,
            "metadata": {
                "name": format!("{}-{n}", object.name_any()), "labels": { "of": object.name_any() },
                "ownerReferences": [object.controller_owner_ref(&())],
            },
        });
        secrets
            .patch(&format!("{}-{n}", object.name_any()), &PatchParams::apply("copies").force(), &Patch::Apply(copy))
            .await?;
    }
    let copies = secrets.list(&ListParams::default().labels(&format!("of={}", object.name_any()))).await?;
    for surplus in copies.items.iter().filter(|copy| story::number(&copy.name_any()) >= count) {
        secrets.delete(&surplus.name_any(), &DeleteParams::default()).await?;
    }
    Ok(())
}

#[cfg(not(feature = "kube-controller"))]
async fn control(client: Client, story: impl Future<Output = ()> + Send + Sync + 'static) {
    let left = keyqueue_kube::Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Secret>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(story)
        .run(async |run| match run.object() {
            Some(object) => reconcile(&client, object).await,
            None => Ok(()), // the cluster collects what it has owned
        })
        .await;
    eprintln!("left: {} to be reconciled again", left.keys().count());
}

#[cfg(feature = "kube-controller")]
async fn control(client: Client, story: impl Future<Output = ()> + Send + Sync + 'static) {
    use futures_util::StreamExt;
    use kube::runtime::controller::{Action, Controller};
    use std::sync::Arc;
    use std::time::Duration;

    let reconcile = async |object: Arc<ConfigMap>, client: Arc<Client>| {
        reconcile(&client, &object).await.map(|()| Action::await_change())
    };
    Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Secret>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(story)
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = story::server().await;
    let client = Client::try_from(kube::Config::new(server.address.parse()?))?;
    let (story, verdict) = story::play(server);
    control(client, story).await;
    println!("{}", verdict.await?);
    Ok(())
}
