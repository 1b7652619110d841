//! A polite crawler: fetches every page of a site of several hosts, one request per host at a time, however bad the servers are.
//!
//! ```text
//! cargo run --release -p crawler                        # a site that the example generates and serves on loopback
//! cargo run --release -p crawler -- --chaos             # the server fails, stalls and cuts connections
//! cargo run --release -p crawler -- --chaos --seed 7 --max-retries 2
//! cargo run --release -p crawler -- --hosts 100 --pages 50 --workers 32 --rate 20
//! ```
//!
//! At the end, the crawler's log is checked against the site and against the server's log: see `check.rs`. Ctrl-C finishes the
//! requests that are under way, and checks the part that was crawled; a second Ctrl-C exits at once.
//!
//! How it uses the queue:
//!
//! * The key is a page. The queue holds each page once, and `frontier.rs` knows those that are done.
//! * The group of a page is its host ([`fair_by`]): hosts take turns, so a large host does not starve a small one. And a host gets one
//!   request at a time ([`max_processing_per_group`]), with any number of workers: while a page of a host is processing, the others of
//!   that host wait, and getters take pages of other hosts.
//! * The start page has a high [`Priority`], and so has the first page that is found of each host: all hosts are busy early, instead of
//!   one after the other. Lower priorities do not starve, even if new hosts are found all the time.
//! * Politeness is a `Bucket` for each host. A worker without a token waits for it, and keeps the host's place meanwhile. So there is a
//!   worker for each host (a task costs little), and a semaphore bounds the requests that are under way.
//! * A request that fails is an `Err`, and the workers retry its page after the delay of the queue's limiter, which doubles each
//!   time. The other pages of the host go on meanwhile. `max_retries` is the page's, and `on_give_up` reports it.
//! * A 404 is an answer like any other, and is not retried.
//! * Fetched pages lead to more adds, and a drain rejects adds. So the crawl waits until the queue is idle (`wait_idle_async`): no
//!   page is queued, processing or delayed. Then it drains. After Ctrl-C it first takes out what is queued (`take_where`), and a worker
//!   that waits for a token learns of the shut-down (`until_shutting_down`).
//! * The progress is a report of the queue (`report_every`), and so are the times in the summary (`metrics`).
//!
//! [`fair_by`]: keyqueue::WorkQueueBuilder::fair_by
//! [`max_processing_per_group`]: keyqueue::WorkQueueBuilder::max_processing_per_group

mod check;
mod fetch;
mod frontier;
mod server;
mod site;
mod summary;

use check::{Attempt, Crawl, Rules, Verdict};
use clap::Parser;
use fetch::{FetchError, Fetched, Fetcher};
use frontier::{Found, Frontier, host};
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue::observe::{Metrics, Observer};
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, GivenUp, Item, Outcome, Priority, WorkQueue, Workers};
use reqwest::Url;
use server::{Chaos, Server};
use site::{Page, Site};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use summary::Summary;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// The first pause after a failure, unless politeness requires a longer one, and the longest.
const BACKOFF: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(2)];

/// Crawls a site that it serves itself, and checks that it did so politely and completely.
#[derive(Parser)]
#[command(after_help = "Exit status: 1 after an error or if the check fails; otherwise 0, even after Ctrl-C")]
struct Args {
    /// Number of hosts of the site
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    hosts: u32,
    /// Number of pages of each host
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pages: u32,
    /// Number of requests under way at a time, to different hosts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Requests a second to a host, at most
    #[arg(long, value_name = "N", default_value_t = 50.0, value_parser = rate)]
    rate: f64,
    /// Make the server fail, stall and cut connections, and some pages never work
    #[arg(long)]
    chaos: bool,
    /// Seed of the site and of the chaos
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Retry a page at most N times, then give it up
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_retries: usize,
    /// Time to wait for an answer
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Check against this rate instead, to see that the check can fail
    #[arg(long, value_name = "N", value_parser = rate, hide = true)]
    check_rate: Option<f64>,
}

/// The shortest time between two requests to a host.
fn interval(rate: f64) -> Duration {
    Duration::from_secs_f64(1.0 / rate)
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=1e6).contains(&rate) => Ok(rate),
        _ => Err("a number from 0.001 to 1000000 is wanted".into()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the check passes.
async fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let mut stopped = on_ctrl_c()?;
    let start = Instant::now();
    let timeout = Duration::from_millis(args.timeout.into());
    let site = Arc::new(Site::new(args.hosts, args.pages, args.seed));
    let server = Arc::new(Server::new(Arc::clone(&site), args.chaos.then_some(Chaos { timeout }), start));
    let address = server.start().await?;

    let crawler = Arc::new(Crawler::new(args, Fetcher::new(address, timeout)?, start));
    let first = Page::FIRST.url();
    crawler.say(format_args!("crawling {first}: {} hosts of {} pages each", args.hosts, args.pages));

    let workers = workers(&crawler, args.max_retries);
    for _ in 0..args.hosts {
        let crawler = Arc::clone(&crawler);
        tokio::spawn(workers.run_async(async move |page| crawler.visit(page).await));
    }
    let progress = crawler.queue.inspect().report_every(Duration::from_millis(100))?;
    crawler.found(Url::parse(&first)?);
    let complete = tokio::select! {
        () = crawler.queue.wait_idle_async() => true,
        _ = stopped.recv() => false,
    };
    let dropped = crawler.queue.take_where(|_| true); // nothing, unless there was an interrupt
    let _left = workers.drain_async().await;
    drop(progress);
    crawler.bar.finish_and_clear();

    let (crawl, requests) = (crawler.crawl.lock().unwrap(), server.requests());
    let asked_for = interval(args.check_rate.unwrap_or(args.rate));
    let rules = Rules { max_retries: args.max_retries, interval: asked_for, complete };
    let faults = check::faults(&site.map(), &rules, &crawl, &requests);
    let summary = Summary {
        crawl: &crawl,
        requests: &requests,
        faults: &faults,
        metrics: crawler.queue.inspect().metrics(),
        left: crawler.left.load(Relaxed),
        dropped: dropped.queued.len() + dropped.delayed.len(),
        rate: args.rate,
        took: start.elapsed(),
        complete,
    };
    match summary.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(faults.is_empty()),
    }
}

/// The first Ctrl-C sends a message, the second exits.
fn on_ctrl_c() -> Result<UnboundedReceiver<()>, ctrlc::Error> {
    let (sender, stopped) = mpsc::unbounded_channel();
    let stopping = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if stopping.swap(true, Relaxed) {
            std::process::exit(130);
        }
        let _ = sender.send(()); // Fails if the crawl has just ended.
        let _ = writeln!(io::stderr(), "\nstopping when the requests under way are done; Ctrl-C again stops at once");
    })?;
    Ok(stopped)
}

/// Workers that retry failed requests, and give a page up after `max_retries` retries.
fn workers(crawler: &Arc<Crawler>, max_retries: usize) -> Workers<Url> {
    let giving_up = Arc::clone(crawler);
    crawler.queue.workers().max_retries(max_retries).on_give_up(move |page, why| giving_up.give_up(page, why)).build()
}

/// The queue, and everything else that the workers share.
struct Crawler {
    queue: WorkQueue<Url>,
    frontier: Frontier,
    fetcher: Fetcher,
    /// Permits for the requests that are under way.
    under_way: Semaphore,
    /// Pages that were found and neither fetched nor given up.
    left: AtomicUsize,
    /// The times in both logs count from here.
    start: Instant,
    requests: AtomicU64,
    crawl: Mutex<Crawl>,
    bar: ProgressBar,
}

impl Crawler {
    fn new(args: &Args, fetcher: Fetcher, start: Instant) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} pages  {msg}").expect("the template is valid");
        // Draws to stderr, and only if that is a terminal.
        let bar = ProgressBar::new(0).with_style(style);
        let [base, max] = BACKOFF.map(|pause| pause.max(interval(args.rate)));
        let queue = WorkQueue::builder()
            .name("pages")
            .fair_by(host)
            .max_processing_per_group(1)
            .rate_limiter(ItemExponentialFailure::new(base, max))
            .observer(Progress { bar: bar.clone() });
        Self {
            queue: queue.build(),
            frontier: Frontier::new(args.rate),
            fetcher,
            under_way: Semaphore::new(args.workers.into()),
            left: AtomicUsize::new(0),
            start,
            requests: AtomicU64::new(0),
            crawl: Mutex::default(),
            bar,
        }
    }

    /// Fetches a page, as soon as there is a token of its host. An error is retried.
    async fn visit(&self, page: &Item<'_, Url>) -> Result<Outcome, FetchError> {
        let bucket = self.frontier.bucket(page);
        let fetched = loop {
            let permit = self.under_way.acquire().await.expect("it is never closed");
            let asked = self.start.elapsed();
            let Err(early) = bucket.try_acquire() else { break self.fetch(page, asked).await? };
            drop(permit);
            tokio::select! {
                () = tokio::time::sleep(early.wait()) => {}
                () = page.until_shutting_down() => return Ok(Outcome::Success), // it is left
            }
        };
        if let Fetched::Page(links) = fetched {
            links.into_iter().for_each(|link| self.found(link));
        }
        self.settled();
        Ok(Outcome::Success)
    }

    /// Adds a page that a link leads to.
    fn found(&self, page: Url) {
        let options = match self.frontier.add(&page) {
            Found::Known => return,
            Found::FirstOfHost => AddOptions::new().priority(Priority::HIGH),
            Found::New => AddOptions::new(),
        };
        self.left.fetch_add(1, Relaxed);
        self.bar.inc_length(1);
        self.queue.add_with(page, options);
    }

    /// A page was fetched, or given up.
    fn settled(&self) {
        self.left.fetch_sub(1, Relaxed);
        self.bar.inc(1);
    }

    /// Makes a request, and records its result.
    async fn fetch(&self, url: &Url, asked: Duration) -> Result<Fetched, FetchError> {
        let id = self.requests.fetch_add(1, Relaxed);
        let result = self.fetcher.fetch(url, id).await;
        let verdict = match &result {
            Ok(Fetched::Page(_)) => Verdict::Page,
            Ok(Fetched::Missing) => Verdict::Missing,
            Err(error) => error.verdict(),
        };
        let attempt = Attempt { id, url: url.to_string(), asked, ended: self.start.elapsed(), verdict };
        self.crawl.lock().unwrap().attempts.push(attempt);
        result
    }

    /// All tries have failed.
    fn give_up(&self, page: &Url, why: &GivenUp<'_>) {
        let error = why.reason.map_or_else(|| why.panic.unwrap_or_default().to_owned(), ToString::to_string);
        let tried = if why.retries == 0 { "once".into() } else { format!("{} times", why.retries + 1) };
        self.say(format_args!("gave up  {page}: {error}, tried {tried}"));
        self.crawl.lock().unwrap().given_up.insert(page.to_string());
        self.settled();
    }

    /// Prints a line above the progress bar. If stdout is closed, the crawl goes on.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        self.bar.suspend(|| drop(writeln!(io::stdout(), "{line}")));
    }
}

/// Shows the queue's numbers at each report.
struct Progress {
    bar: ProgressBar,
}

impl Observer for Progress {
    fn report(&self, _: &str, metrics: &Metrics) {
        let now = &metrics.stats;
        let pages = format!("{} queued, {} processing, {} delayed", now.len, now.processing, now.delayed);
        self.bar.set_message(format!("{pages}, {} failing", now.failing));
    }
}
