//! Crawls a site that it generates and serves on loopback. The crawler is in `lib.rs`. At its end it checks that it got each page, once,
//! and no host too many requests.
//!
//! With `--chaos` the server fails, stalls and cuts connections, and some pages never work. Ctrl-C finishes the pages that are queued, for
//! ten seconds at most; a second one ends that.

use crawler::site::{Page, Site};
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
    let timeout = Duration::from_millis(250);
    let settings = Settings { rate: 50.0, timeout, max_retries: 5, workers: 16 };
    let site = Site { hosts: 12, pages: 60, chaos: has_chaos.then_some(timeout) };

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

    let (start, rate) = (Instant::now(), settings.rate);
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
        "{} pages, {} given up, {} retries",
        tally.succeeded, tally.given_up, tally.retried
    );
    let unfinished = left.processing.len() + left.delayed.len();
    println!(
        "{} left, {unfinished} of them under way or delayed",
        left.queued.len() + unfinished
    );
    println!("took {:.2?}", start.elapsed());

    let (mut answers, mut requests) = (HashMap::new(), HashMap::new());
    for (url, is_answer) in &*log.lock().unwrap() {
        *answers.entry(url.clone()).or_insert(0) += u32::from(*is_answer);
        *requests.entry(url.host_str().map(str::to_owned)).or_insert(0.0) += 1.0;
    }
    let allowed = 1.0 + rate * start.elapsed().as_secs_f64();
    assert!(answers.values().all(|&answers| answers <= 1), "asked again after an answer");
    assert!(
        requests.values().all(|&requests| requests <= allowed),
        "asked a host too often"
    );
    let is_complete = left.is_empty() && !has_chaos;
    assert!(!is_complete || tally.succeeded == all, "{all} pages can be reached");
    Ok(())
}
