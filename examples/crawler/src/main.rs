//! Crawls a site that it generates and serves on loopback. The crawler is in `lib.rs`. At its end it checks that it got each page,
//! once, and by the server's log that it was polite: no host had too many requests, or any while its `Retry-After` lasted.
//!
//! With `--chaos` the server fails, stalls and cuts connections, and some pages never work. Ctrl-C finishes the pages that are queued, for
//! ten seconds at most; a second one ends that.

use crawler::site::{Log, Page, Requests, Site};
use crawler::{Crawler, Settings};
use reqwest::Url;
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let has_chaos = std::env::args().any(|argument| argument == "--chaos");
    let timeout = Duration::from_millis(400);
    let settings =
        Settings { rate: 50.0, in_flight: 4, timeout, max_retries: 5, workers: 64 };
    let chaos = has_chaos.then_some(timeout);
    let seen = Arc::new(Log::default());
    let site = Site { hosts: 12, pages: 60, chaos, refuses: 25, log: Arc::clone(&seen) };

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    println!(
        "crawling {}: {} hosts of {} pages each",
        Page::FIRST.url(),
        site.hosts,
        site.pages
    );
    let all = u64::from(site.hosts) * u64::from(site.pages);
    tokio::spawn(async { axum::serve(listener, site.router()).await });

    let (start, rate, in_flight) = (Instant::now(), settings.rate, settings.in_flight);
    let log = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&log);
    let note =
        move |url: &Url, is_answer| requests.lock().unwrap().push((url.clone(), is_answer));
    let crawler = Crawler::new(server, settings, Box::new(note))?;
    let workers = crawler.start();
    crawler.add(Url::parse(&Page::FIRST.url())?);
    tokio::select! {
        () = crawler.queue.wait_idle_async() => {}
        _ = ctrl_c() => {}
    }
    let deadline = async {
        println!("finishing the pages that are queued; Ctrl-C ends that");
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    let deadline = async {
        tokio::select! {
            biased; // catches Ctrl-C before it prints
            _ = ctrl_c() => {}
            () = deadline => {}
        }
    };
    let left = workers.drain_until(deadline).await;

    let tally = workers.tally();
    println!(
        "{} pages, {} given up, {} retries, {} times 429",
        tally.succeeded, tally.given_up, tally.retried, tally.paused
    );
    let unfinished = left.processing.len() + left.delayed.len();
    println!(
        "{} left, {unfinished} of them under way or delayed",
        left.queued.len() + unfinished
    );
    println!("took {:.2?}", start.elapsed());

    let mut answers = HashMap::new();
    for (url, is_answer) in &*log.lock().unwrap() {
        *answers.entry(url.clone()).or_insert(0) += u32::from(*is_answer);
    }
    assert!(answers.values().all(|&answers| answers <= 1), "asked again after an answer");

    let seen = seen.lock().unwrap();
    assert!(seen.values().all(|host| host.keeps_rate(rate)), "asked a host too often");
    let early: usize = seen.values().map(Requests::in_pauses).sum();
    assert_eq!(early, 0, "requests during Retry-After");
    // In a chaos, the server learns late that the crawler has given up waiting.
    let most = seen.values().map(|host| host.most_in_flight).max().unwrap_or(0);
    assert!(has_chaos || most <= in_flight, "{most} requests in flight to a host");
    let is_complete = left.is_empty() && !has_chaos;
    assert!(!is_complete || tally.succeeded == all, "{all} pages can be reached");
    Ok(())
}
