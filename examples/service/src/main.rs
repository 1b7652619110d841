//! An HTTP service with a queue behind it: requests add keys, tasks process them, `/metrics` is for Prometheus, and SIGTERM drains.
//!
//! ```text
//! cargo run --release -p service                 # on 127.0.0.1:8080, until SIGTERM or Ctrl-C
//! cargo run --release -p service -- --self-test  # starts itself twice, sends requests and SIGTERM, and ends
//! curl -X POST 127.0.0.1:8080/reindex/document-7 && curl 127.0.0.1:8080/metrics
//! ```
//!
//! A request answers 202 at once: the key is queued, or was already. `/metrics` reports first, so each scrape has the present numbers.
//!
//! The order at the end matters. One deadline, ten seconds after the signal, holds for all of it:
//!
//! 1. `/readyz` fails, and for two seconds all else goes on: Kubernetes, or a load balancer, needs this time to send requests elsewhere.
//! 2. The server accepts no more connections, and finishes its requests, until five seconds after the signal. A client that has sent half
//!    a request holds up nothing then.
//! 3. The queue refuses adds (a request that comes yet gets 503), and finishes what is queued, until the deadline. What is left is logged.
//!
//! A second signal ends the process at once.

use axum::extract::{Path, State};
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
    match std::env::args().nth(1).as_deref() {
        #[cfg(unix)]
        Some("--self-test") => self_test::run().await,
        address => run(address.unwrap_or("127.0.0.1:8080")).await,
    }
}

async fn run(address: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
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

/// What clients and Kubernetes see, of a process of its own.
#[cfg(unix)]
mod self_test {
    use super::{DRAIN, PAUSE};
    use reqwest::{Client, StatusCode};
    use std::error::Error;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};
    use tokio::time::sleep;

    struct Service {
        process: Child,
        stdout: BufReader<ChildStdout>,
        /// `127.0.0.1:39127`.
        address: String,
        client: Client,
    }

    impl Service {
        fn start() -> Result<Self, Box<dyn Error + Send + Sync>> {
            let program = std::env::current_exe()?;
            let mut process = Command::new(program).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn()?;
            let mut stdout = BufReader::new(process.stdout.take().expect("it is piped"));
            let mut line = String::new();
            stdout.read_line(&mut line)?;
            let address = line.trim().strip_prefix("http://").and_then(|line| line.strip_suffix("/metrics"));
            let address = address.ok_or_else(|| format!("no address: {line}"))?.to_owned();
            Ok(Self { process, stdout, address, client: Client::new() })
        }

        async fn get(&self, path: &str) -> reqwest::Result<reqwest::Response> {
            self.client.get(format!("http://{}/{path}", self.address)).send().await
        }

        async fn reindex(&self, document: &str) -> reqwest::Result<StatusCode> {
            let url = format!("http://{}/reindex/{document}", self.address);
            Ok(self.client.post(url).send().await?.status())
        }

        fn terminate(&self) -> std::io::Result<()> {
            let status = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.process.id())]).status()?;
            assert!(status.success());
            Ok(())
        }

        async fn is_not_ready(&self) -> reqwest::Result<()> {
            while self.get("readyz").await?.status() != 503 {
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        }

        /// `None`: it has not ended in this time.
        async fn ends_within(&mut self, time: Duration) -> std::io::Result<Option<ExitStatus>> {
            let start = Instant::now();
            loop {
                let status = self.process.try_wait()?;
                if status.is_some() || start.elapsed() > time {
                    return Ok(status);
                }
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// A test that fails leaves no process.
    impl Drop for Service {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    pub(super) async fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut service = Service::start()?;
        for n in 0..100 {
            assert_eq!(service.reindex(&format!("document-{}", n % 10)).await?, 202);
        }
        let text = service.get("metrics").await?.text().await?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{name=\"documents\"}} ")));
            line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
        };
        let (adds, coalesced) = (value("workqueue_adds_total"), value("workqueue_coalesced_total"));
        println!("100 requests: {adds} adds, {coalesced} coalesced");
        assert_eq!(adds + coalesced, 100.0);

        assert_eq!(service.get("readyz").await?.status(), 200);
        for n in 0..130 {
            // Six seconds of work, so that the drain has something to do when serving has ended.
            assert_eq!(service.reindex(&format!("large-{n}")).await?, 202);
        }
        let mut half = TcpStream::connect(&service.address)?;
        half.write_all(b"POST /reindex/half HTTP/1.1\r\nHost: a\r\n")?; // and no more
        let start = Instant::now();
        service.terminate()?;
        service.is_not_ready().await?;
        assert_eq!(service.reindex("late").await?, 202, "it is served after /readyz has failed");
        assert!(start.elapsed() < PAUSE, "this machine is too busy for this test");
        let status = service.ends_within(DRAIN).await?.expect("it ends in time, in spite of half a request");
        println!("it ended {} ms after SIGTERM", start.elapsed().as_millis());
        let mut text = String::new();
        service.stdout.read_to_string(&mut text)?;
        assert!(status.success() && text.contains(" documents indexed, 0 left"), "{status}: {text}");

        let mut service = Service::start()?;
        service.terminate()?;
        service.is_not_ready().await?;
        service.terminate()?;
        let status = service.ends_within(PAUSE / 2).await?.expect("a second signal ends it at once");
        assert_eq!(status.code(), Some(1));
        Ok(())
    }
}
