//! An HTTP service with a queue behind it: requests add keys, tasks process them, `/metrics` is for Prometheus, and SIGTERM drains.
//!
//! ```text
//! cargo run --release -p service    # on 127.0.0.1:8080, until SIGTERM or Ctrl-C
//! curl -X POST 127.0.0.1:8080/reindex/document-7 && curl 127.0.0.1:8080/metrics
//! ```
//!
//! A request answers 202 at once: the key is queued, or was already. `/metrics` reports first, so each scrape has the present numbers.
//! `/debug/keyqueue?key=document-7` says what a document waits for.
//!
//! The order at the end matters. One deadline, ten seconds after the signal, holds for all of it:
//!
//! 1. `/readyz` fails, and for two seconds all else goes on: Kubernetes, or a load balancer, needs this time to send requests elsewhere.
//! 2. The server accepts no more connections, and finishes its requests, until five seconds after the signal. A client that has sent half
//!    a request holds up nothing then.
//! 3. The queue refuses adds (a request that comes yet gets 503), and finishes what is queued, until the deadline. What is left is logged.
//!
//! A second signal ends the process at once. A pause of the queue is no reason for `/readyz` to fail, because requests only add keys, which
//! a paused queue takes.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, serve};
use keyqueue::observe::MetricsObserver;
use keyqueue::{Added, Item, Outcome, WorkQueue};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::error::Error;
use std::io;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// How long `/readyz` fails before the server stops.
const PAUSE: Duration = Duration::from_secs(2);
/// From the signal to the end of serving.
const SERVE: Duration = Duration::from_secs(5);
/// From the signal to the end of the drain.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Service {
    queue: WorkQueue<String>,
    prometheus: PrometheusHandle,
    is_ready: Arc<AtomicBool>,
}

async fn reindex(State(service): State<Service>, Path(document): Path<String>) -> StatusCode {
    match service.queue.add(document) {
        Added::Rejected => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::ACCEPTED,
    }
}

async fn readyz(State(service): State<Service>) -> StatusCode {
    if service.is_ready.load(SeqCst) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn metrics(State(service): State<Service>) -> String {
    service.queue.inspect().report();
    service.prometheus.run_upkeep();
    service.prometheus.render()
}

/// What a document waits for, as one sentence.
async fn key_state(State(service): State<Service>, RawQuery(query): RawQuery) -> String {
    let key = query.as_deref().and_then(|query| query.strip_prefix("key=")).unwrap_or_default();
    format!("{key}: {}\n", service.queue.inspect().key(key))
}

/// Stands for the work: a document takes 20 ms, and its name says what else happens.
async fn index(document: &Item<'_, String>) -> Result<Outcome, &'static str> {
    let kind = document.split('-').next().unwrap_or_default();
    sleep(Duration::from_millis(if kind == "large" { 200 } else { 20 })).await;
    match kind {
        "locked" if document.num_requeues() < 4 => Err("another process has locked it"),
        "broken" => Err("it cannot be read"), // retried, and given up at last
        "malformed" => panic!("the parser is not ready for {}", document.key()), // the same
        "watched" => Ok(Outcome::RequeueAfter(Duration::from_secs(10))),
        _ => Ok(Outcome::Success),
    }
}

/// SIGTERM and Ctrl-C, from now on.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let mut signals = Signals::new()?;
    let prometheus =
        PrometheusBuilder::new().set_buckets(&[1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])?.install_recorder()?;
    let queue = WorkQueue::builder().name("documents").observer(MetricsObserver::new()).build();
    let workers = queue.workers().max_retries(10).on_give_up(|key, why| eprintln!("{key}: {why}")).build();
    for _ in 0..4 {
        tokio::spawn(workers.run_async(index));
    }

    let is_ready = Arc::new(AtomicBool::new(true));
    let routes = Router::new()
        .route("/reindex/{document}", post(reindex))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/keyqueue", get(key_state))
        .with_state(Service { queue, prometheus, is_ready: Arc::clone(&is_ready) });
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { _ = stopped.await };
    let server = tokio::spawn(serve(listener, routes).with_graceful_shutdown(stopped).into_future());

    signals.next().await;
    let signal = Instant::now();
    tokio::spawn(async move {
        signals.next().await;
        eprintln!("a second signal");
        exit(1);
    });
    is_ready.store(false, SeqCst);
    sleep(PAUSE).await;
    drop(stop);
    match timeout_at(signal + SERVE, server).await {
        Ok(result) => result??,
        Err(_) => eprintln!("some requests are not complete"),
    }
    let left = workers.drain_until(sleep_until(signal + DRAIN)).await;

    let delayed = left.delayed.into_iter().map(|delayed| delayed.key).collect();
    let left = [left.queued, left.processing, left.refused, delayed].concat();
    println!("{} documents indexed, {} left", workers.tally().succeeded, left.len());
    left.iter().for_each(|document| eprintln!("left: {document}")); // to be stored, or listed again at the next start
    Ok(())
}
