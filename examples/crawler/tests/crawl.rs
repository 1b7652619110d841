//! Crawls generated sites, and checks the crawler's log against the server's log and the site.

#![cfg(not(miri))] // Miri has no sockets

mod support {
    pub(crate) mod check;
}

use axum::extract::{Request as HttpRequest, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use crawler::site::{Page, Site};
use crawler::{Crawler, Settings};
use keyqueue::Tally;
use reqwest::{StatusCode, Url};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::check::{Attempt, Crawl, Request, Verdict};
use tokio::net::TcpListener;

const SITE: Site = Site { hosts: 12, pages: 60, chaos: None };
/// A time-out that a slow machine does not reach.
const PATIENT: Settings = Settings { rate: 50.0, timeout: Duration::from_secs(60), max_retries: 5, workers: 16 };

/// Writes the server's log.
#[derive(Clone)]
struct Recorder {
    start: Instant,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Recorder {
    async fn record(State(recorder): State<Self>, request: HttpRequest, next: Next) -> Response {
        let Self { start, requests } = recorder;
        let index = {
            let mut requests = requests.lock().unwrap();
            let url = request.uri().to_string();
            requests.push(Request { url, arrived: start.elapsed(), answer: None });
            requests.len() - 1
        };
        let response = next.run(request).await;
        requests.lock().unwrap()[index].answer = Some((start.elapsed(), response.status().as_u16()));
        response
    }
}

/// Crawls the site until the crawl is complete.
#[tokio::main]
async fn crawl(site: Site, settings: Settings) -> (Crawl, Tally) {
    let recorder = Recorder { start: Instant::now(), requests: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = site.clone().router().layer(from_fn_with_state(recorder.clone(), Recorder::record));
    tokio::spawn(async { axum::serve(listener, router).await });

    let start = recorder.start;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&attempts);
    let crawler = Crawler::new(format!("http://{address}"), settings.clone(), move |request| {
        let verdict = match request.result {
            Ok(StatusCode::OK) => Verdict::Page,
            Ok(_) => Verdict::Missing,
            Err(error) if error.is_status() => Verdict::Failed,
            Err(error) if error.is_timeout() => Verdict::TimedOut,
            Err(_) => Verdict::Lost,
        };
        let url = request.url.to_string();
        log.lock().unwrap().push(Attempt { url, asked: request.asked - start, ended: start.elapsed(), verdict });
    });
    let crawler = crawler.unwrap();
    let workers = crawler.start();
    crawler.add(Url::parse(&Page::FIRST.url()).unwrap());
    crawler.queue.wait_idle_async().await;
    assert!(workers.drain_async().await.is_empty());

    let mut attempts = std::mem::take(&mut *attempts.lock().unwrap());
    attempts.sort_by_key(|attempt: &Attempt| attempt.asked);
    let requests = std::mem::take(&mut *recorder.requests.lock().unwrap());
    let interval = Duration::from_secs_f64(1.0 / settings.rate);
    (Crawl { site, max_retries: settings.max_retries, interval, attempts, requests }, workers.tally())
}

#[test]
fn each_page_is_fetched_once() {
    let (crawl, tally) = crawl(SITE, PATIENT);
    assert_eq!(crawl.faults(), [""; 0]);
    let missing = crawl.count(Verdict::Missing);
    assert_eq!((crawl.count(Verdict::Page), crawl.attempts.len()), (720, 720 + missing));
    assert!(missing > 0);
    assert_eq!((tally.succeeded, tally.given_up, tally.retried), (720, missing as u64, 0));
}

#[test]
fn one_worker_fetches_the_same_pages() {
    let site = Site { hosts: 30, pages: 20, chaos: None };
    let (crawl, tally) = crawl(site, Settings { workers: 1, rate: 1000.0, ..PATIENT });
    assert_eq!(crawl.faults(), [""; 0]);
    assert_eq!(tally.succeeded, 600);
}

#[test]
fn a_site_may_have_one_page() {
    let (crawl, tally) = crawl(Site { hosts: 1, pages: 1, chaos: None }, PATIENT);
    assert_eq!(crawl.faults(), [""; 0]);
    assert_eq!(tally.succeeded, 1);
}

#[test]
fn a_crawl_of_a_bad_server_completes() {
    let timeout = Duration::from_millis(250);
    let (crawl, tally) = crawl(Site { chaos: Some(timeout), ..SITE }, Settings { timeout, ..PATIENT });
    assert_eq!(crawl.faults(), [""; 0]);
    for verdict in [Verdict::Page, Verdict::Missing, Verdict::Failed, Verdict::Lost, Verdict::TimedOut] {
        assert!(crawl.count(verdict) > 0, "{verdict:?}");
    }
    assert!(
        tally.given_up >= 12 + crawl.count(Verdict::Missing) as u64,
        "the last page of a host never works: {tally:?}"
    );
}

#[test]
fn without_retries_a_page_is_tried_once() {
    let timeout = Duration::from_millis(100);
    let site = Site { hosts: 4, pages: 60, chaos: Some(timeout) };
    let (crawl, tally) = crawl(site, Settings { timeout, max_retries: 0, rate: 1000.0, ..PATIENT });
    assert_eq!(crawl.faults(), [""; 0]);
    assert_eq!(tally.given_up, (crawl.attempts.len() - crawl.count(Verdict::Page)) as u64);
    assert_eq!(tally.retried, 0);
    assert!(crawl.count(Verdict::Failed) > 0);
}
