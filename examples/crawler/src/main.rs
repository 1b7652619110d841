//! Crawls a site that it generates and serves on loopback. The crawler is in `lib.rs`. At its end it checks that it got each page, once,
//! and no host too many requests.

use crawler::site::{Page, Site};
use crawler::{Crawler, Settings};
use lexopt::prelude::*;
use reqwest::Url;
use std::collections::HashMap;
use std::error::Error;
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

const HELP: &str = "\
Crawls a site that it generates and serves on this machine.

cargo run --release -p crawler -- [OPTIONS]
  --hosts N         hosts of the site [12]
  --pages N         pages of each host [60]
  --chaos           the server fails, stalls, cuts connections; some pages never work
  --workers N       hosts that are asked at a time [16]
  --rate N          requests a second to a host [50]
  --timeout MS      time to wait for an answer [250]
  --max-retries N   give a page up after this many retries [5]

Ctrl-C finishes the pages that are queued, for ten seconds at most; a second one ends that.";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut site = Site { hosts: 12, pages: 60, chaos: None };
    let timeout = Duration::from_millis(250);
    let mut settings = Settings { rate: 50.0, timeout, max_retries: 5, workers: 16 };
    let mut has_chaos = false;
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("hosts") => site.hosts = args.value()?.parse::<NonZero<u32>>()?.get(),
            Long("pages") => site.pages = args.value()?.parse::<NonZero<u32>>()?.get(),
            Long("chaos") => has_chaos = true,
            Long("workers") => {
                settings.workers = args.value()?.parse::<NonZero<usize>>()?.get()
            }
            Long("rate") => settings.rate = args.value()?.parse()?,
            Long("timeout") => {
                settings.timeout = Duration::from_millis(args.value()?.parse()?)
            }
            Long("max-retries") => settings.max_retries = args.value()?.parse()?,
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    if !(0.001..=1e6).contains(&settings.rate) {
        return Err("--rate: from 0.001 to 1000000".into());
    }
    site.chaos = has_chaos.then_some(settings.timeout);

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
    let crawler = Crawler::new(server, settings, move |request| {
        requests.lock().unwrap().push((request.url.clone(), request.result.is_ok()))
    })?;
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
