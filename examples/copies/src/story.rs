//! The stand-in for an API server, and what happens there.

use crate::LABEL;
use kube_stand_in::{Fault, Rule, Server, Verb, WatchEnd};
use serde_json::{Value, json};
use std::error::Error;
use std::future::Future;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

const NAMESPACE: &str = "default";

/// One write in seven fails, and each watch ends after 300 milliseconds.
pub async fn server() -> Server {
    let server = Server::start().await;
    server.rules.add(Rule::every(7, Fault::Status(500)).verb(Verb::Patch));
    server.rules.watches_last(Duration::from_millis(300), WatchEnd::Cut);
    server
}

/// What happens, and then the end state, or why it is not reached.
pub fn play(server: Server) -> (impl Future<Output = ()> + Sync, impl Future<Output = Result<String, Box<dyn Error>>>) {
    let (end, ended) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        _ = tell.send(story(&server).await);
        _ = end.send(());
    });
    (async { _ = ended.await }, async { Ok(told.await??) })
}

async fn story(server: &Server) -> Result<String, String> {
    for n in 0..20 {
        set(server, n, n % 4, "first");
    }
    for step in 0..100 {
        let n = step * 7 % 20;
        match step % 5 {
            0 => _ = server.delete("secrets", NAMESPACE, &format!("{}-0", name(n))), // it is made anew
            1 => change_by_hand(server, n),
            2 => set(server, n, (n + step) % 4, "second"),
            3 if n % 3 == 0 => _ = server.delete("configmaps", NAMESPACE, &name(n)),
            _ => set(server, n, n % 4, "third"),
        }
        collect_garbage(server);
        sleep(Duration::from_millis(10)).await;
    }
    for n in 0..20 {
        match n % 5 {
            0 => _ = server.delete("configmaps", NAMESPACE, &name(n)),
            _ => set(server, n, n % 4, "last"),
        }
    }
    let copies = |n: usize| (0..n % 4).map(move |copy| (format!("{}-{copy}", name(n)), "last".to_owned()));
    let wanted: Vec<(String, String)> = (0..20).filter(|n| n % 5 != 0).flat_map(copies).collect();
    for _ in 0..1500 {
        collect_garbage(server);
        if state(server) == wanted {
            return Ok(format!("{} copies: {wanted:?}", wanted.len()));
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(format!("not {wanted:?}, but {:?}", state(server)))
}

fn name(n: usize) -> String {
    format!("object-{n:02}")
}

/// The number of a copy.
pub fn number(copy: &str) -> usize {
    copy.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

/// The names of all copies, and their texts.
fn state(server: &Server) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let copy = |copy: &Value| (text(&copy["metadata"]["name"]), text(&copy["stringData"]["text"]));
    server.objects("secrets").iter().map(copy).collect()
}

fn set(server: &Server, n: usize, copies: usize, text: &str) {
    server.put(
        "configmaps",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text },
            "metadata": { "name": name(n), "namespace": NAMESPACE, "labels": { LABEL: copies.to_string() } },
        }),
    );
}

fn change_by_hand(server: &Server, n: usize) {
    if let Some(mut copy) = server.get("secrets", NAMESPACE, &format!("{}-0", name(n))) {
        copy["stringData"]["text"] = json!("changed by hand");
        server.put("secrets", copy);
    }
}

/// As a cluster does: deletes the copies whose owner is gone.
fn collect_garbage(server: &Server) {
    let uids: Vec<Value> = server.objects("configmaps").iter().map(|owner| owner["metadata"]["uid"].clone()).collect();
    for copy in server.objects("secrets") {
        if !uids.contains(&copy["metadata"]["ownerReferences"][0]["uid"]) {
            server.delete("secrets", NAMESPACE, copy["metadata"]["name"].as_str().unwrap_or_default());
        }
    }
}
