//! An HTTP service with a queue behind it: requests add keys, tasks process them, `/metrics` is for Prometheus, and SIGTERM drains.
//!
//! ```text
//! cargo run --release --features metrics --example service                 # on 127.0.0.1:8080, until SIGTERM or Ctrl-C
//! cargo run --release --features metrics --example service -- --self-test  # sends itself some requests, and ends
//! curl -X POST 127.0.0.1:8080/reindex/document-7 && curl 127.0.0.1:8080/metrics
//! ```
//!
//! A request answers 202 at once: the key is queued, or was already. After a shut-down has begun it answers 503, so that the client tries
//! another replica. `/metrics` reports first, so each scrape has the present numbers. The order at the end matters: the server stops
//! and finishes its requests, then the queue finishes what is queued, within ten seconds, and what is left is logged.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, serve};
use keyqueue::observe::MetricsObserver;
use keyqueue::{Added, Item, Outcome, WorkQueue};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

type Queue = WorkQueue<String>;

async fn reindex(State((queue, _)): State<(Queue, PrometheusHandle)>, Path(document): Path<String>) -> StatusCode {
    match queue.add(document) {
        Added::Rejected => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::ACCEPTED,
    }
}

/// Stands for the work: a document takes 20 ms, and its name says what else happens.
async fn index(document: &Item<'_, String>) -> Result<Outcome, &'static str> {
    let kind = document.split('-').next().unwrap_or_default();
    sleep(Duration::from_millis(if kind == "large" { 200 } else { 20 })).await;
    match kind {
        "locked" if document.num_requeues() < 4 => Err("another process has locked it"),
        "broken" => Err("it cannot be read"), // retried, and given up at last
        "malformed" => panic!("the parser is not ready for {}", **document), // the same
        "watched" => Ok(Outcome::RequeueAfter(Duration::from_secs(10))),
        _ => Ok(Outcome::Done),
    }
}

async fn metrics((queue, prometheus): (Queue, PrometheusHandle)) -> String {
    queue.report();
    prometheus.run_upkeep();
    prometheus.render()
}

/// Ends at SIGTERM or Ctrl-C.
async fn stop() {
    #[cfg(unix)]
    {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a handler");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}

/// What a client sees.
async fn self_test(address: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = reqwest::Client::new();
    for n in 0..100 {
        let answer = client.post(format!("http://{address}/reindex/document-{}", n % 10)).send().await?;
        assert_eq!(answer.status(), 202);
    }
    let text = client.get(format!("http://{address}/metrics")).send().await?.text().await?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{name=\"documents\"}} ")));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    };
    let (adds, coalesced) = (value("workqueue_adds_total"), value("workqueue_coalesced_total"));
    println!("100 requests: {adds} adds, {coalesced} coalesced");
    assert_eq!(adds + coalesced, 100.0);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let prometheus =
        PrometheusBuilder::new().set_buckets(&[1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])?.install_recorder()?;
    let queue = WorkQueue::builder().name("documents").observer(MetricsObserver::new()).build();
    let workers = queue.workers().max_retries(10).on_give_up(|key, why| eprintln!("{key}: {why}")).build();
    for _ in 0..4 {
        tokio::spawn(workers.run_async(index));
    }

    let routes = Router::new()
        .route("/reindex/{document}", post(reindex))
        .route("/metrics", get(|State(state)| metrics(state)))
        .with_state((queue.clone(), prometheus));
    let is_test = std::env::args().any(|argument| argument == "--self-test");
    let listener = TcpListener::bind(if is_test { "127.0.0.1:0" } else { "127.0.0.1:8080" }).await?;
    let address = listener.local_addr()?;
    println!("http://{address}/metrics");
    if is_test {
        let test = tokio::spawn(self_test(address));
        let stop = async { test.await.expect("the self-test panics") };
        tokio::select! {
            result = serve(listener, routes) => result?,
            result = stop => result?,
        }
    } else {
        serve(listener, routes).with_graceful_shutdown(stop()).await?;
    }

    let left = workers.drain_until(sleep(Duration::from_secs(10))).await;
    println!("{} documents indexed", workers.tally().succeeded);
    if !left.is_empty() {
        println!("not finished: {left:?}");
    }
    assert!(!is_test || left.is_empty() && queue.add("late".to_owned()) == Added::Rejected);
    Ok(())
}
