//! A polite crawler: fetches every page of a site of several hosts, one request per host at a time, however bad the servers are.
//!
//! ```text
//! cargo run --release --example crawler                        # a site that the example generates and serves on loopback
//! cargo run --release --example crawler -- --chaos             # the server fails, stalls and cuts connections
//! cargo run --release --example crawler -- --chaos --seed 7 --max-retries 2
//! cargo run --release --example crawler -- --hosts 100 --pages 50 --workers 32 --rate 20
//! ```
//!
//! At the end, the crawler's log is checked against the site and against the server's log: see `check.rs`. Ctrl-C finishes the
//! queued hosts and checks the part that was crawled; a second Ctrl-C exits at once.
//!
//! How it uses the queue:
//!
//! * The key is a host, not a page, because a host is what must not be processed twice at a time. So the queue guarantees that no
//!   host gets two requests at a time, with any number of workers. A hand-out is one request, and then the host goes to the back
//!   of the queue: a large host does not starve a small one.
//! * The pages of a host are beside the queue (`frontier.rs`), each once. A worker that finds a new page adds its host only if
//!   that had no pages left. Otherwise the queue has the host already: queued, processing or delayed. Another add would do harm:
//!   an add while the host is processing leads to a hand-out right after `done`, without the pause between two requests. Nor
//!   could the worker delay that hand-out and change nothing else: `RequeueAfter` would forget the host's failures.
//! * If one worker is done with the last page of a host at the moment when another one finds a new page there, the host is added
//!   while it is processing, and is handed out once more. Crawlers tend to lose pages there; the queue loses none.
//! * Politeness is a `Bucket` for each host. Without a token the worker makes no request, but returns `RequeueAfter` with the
//!   wait that the bucket gives: the worker goes on with another host, and does not wait.
//! * A request that fails is an `Err`, and the workers retry its host after the delay of the queue's limiter, which doubles each
//!   time. The host waits with all its pages, which suits a host that is down. The first delay is not shorter than the pause
//!   between two pages, so there is a token when it has expired, and no `RequeueAfter` is needed: that makes the limiter forget
//!   the failures, as `Done` does.
//! * A page that fails stays the first of its host, so the host's failures in a row are those of that page, and the workers'
//!   `max_retries` is the page's. `on_give_up` removes the page, and delays the host for the next one.
//! * A 404 is an answer like any other, and is not retried.
//! * Fetched pages lead to more adds, and a drain rejects adds. So the crawl waits until the queue is idle (`wait_idle_async`): no
//!   host is queued, processing or delayed. Then it drains.
//! * The progress is a report of the queue (`report_every`), and so are the times in the summary (`metrics`).

mod check;
mod fetch;
mod frontier;
mod server;
mod site;
mod summary;

use check::{Attempt, Crawl, Rules, Verdict};
use clap::Parser;
use fetch::{FetchError, Fetched, Fetcher};
use frontier::{Found, Frontier, Host, Next};
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue::observe::{Metrics, Observer};
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{GivenUp, Item, Outcome, WorkQueue, Workers};
use reqwest::Url;
use server::{Chaos, Server};
use site::{Page, Site};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use summary::Summary;
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

    let crawler = Arc::new(Crawler::new(args.rate, Fetcher::new(address, timeout)?, start));
    let first = Page::FIRST.url();
    crawler.say(format_args!("crawling {first}: {} hosts of {} pages each", args.hosts, args.pages));

    let workers = workers(&crawler, args.max_retries);
    for _ in 0..args.workers {
        let crawler = Arc::clone(&crawler);
        tokio::spawn(workers.run_async(async move |item: &Item<'_, Host>| crawler.visit(item.key()).await));
    }
    let progress = crawler.queue.report_every(Duration::from_millis(100))?;
    crawler.found(Url::parse(&first)?);
    let complete = tokio::select! {
        () = crawler.queue.wait_idle_async() => true,
        _ = stopped.recv() => false,
    };
    // After an interrupt, one more page of each queued host is fetched, and none of a delayed host.
    let leftover = workers.drain_async().await;
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
        metrics: crawler.queue.metrics(),
        left: crawler.frontier.left(),
        dropped: leftover.delayed.len(),
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
        let _ = writeln!(io::stderr(), "\nstopping when the queued hosts are done; Ctrl-C again stops at once");
    })?;
    Ok(stopped)
}

/// Workers that retry failed requests, and give a page up after `max_retries` retries.
fn workers(crawler: &Arc<Crawler>, max_retries: usize) -> Workers<Host> {
    let giving_up = Arc::clone(crawler);
    crawler.queue.workers().max_retries(max_retries).on_give_up(move |host, why| giving_up.give_up(host, why)).build()
}

/// The queue, and everything else that the workers share.
struct Crawler {
    queue: WorkQueue<Host>,
    frontier: Frontier,
    fetcher: Fetcher,
    /// The times in both logs count from here.
    start: Instant,
    requests: AtomicU64,
    crawl: Mutex<Crawl>,
    bar: ProgressBar,
}

impl Crawler {
    fn new(rate: f64, fetcher: Fetcher, start: Instant) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} pages  {msg}").expect("the template is valid");
        // Draws to stderr, and only if that is a terminal.
        let bar = ProgressBar::new(0).with_style(style);
        let [base, max] = BACKOFF.map(|pause| pause.max(interval(rate)));
        let queue = WorkQueue::builder()
            .name("hosts")
            .rate_limiter(ItemExponentialFailure::new(base, max))
            .observer(Progress { bar: bar.clone() });
        Self {
            queue: queue.build(),
            frontier: Frontier::new(rate),
            fetcher,
            start,
            requests: AtomicU64::new(0),
            crawl: Mutex::default(),
            bar,
        }
    }

    /// Handles a host: fetches one page, if there is one and a token for it. An error is retried.
    async fn visit(&self, host: &Host) -> Result<Outcome, FetchError> {
        let asked = self.start.elapsed();
        let url = match self.frontier.next(host) {
            Next::Fetch(url) => url,
            Next::Wait(time) => return Ok(Outcome::RequeueAfter(time)),
            Next::Nothing => return Ok(Outcome::Done),
        };
        if let Fetched::Page(links) = self.fetch(&url, asked).await? {
            links.into_iter().for_each(|link| self.found(link));
        }
        self.bar.inc(1);
        Ok(self.frontier.finish(host).map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    /// Adds a page that a link leads to.
    fn found(&self, url: Url) {
        let found = self.frontier.add(url);
        self.bar.inc_length(u64::from(!matches!(found, Found::Known)));
        if let Found::First(host) = found {
            self.queue.add(host);
        }
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

    /// All tries have failed: goes on with the next page. The host is still held, so no other worker takes its first page.
    fn give_up(&self, host: &Host, why: &GivenUp<'_>) {
        let Some(url) = self.frontier.first(host) else { return };
        let error = why.reason.map_or_else(|| why.panic.unwrap_or_default().to_owned(), ToString::to_string);
        let tried = if why.retries == 0 { "once".into() } else { format!("{} times", why.retries + 1) };
        self.say(format_args!("gave up  {url}: {error}, tried {tried}"));
        self.crawl.lock().unwrap().given_up.insert(url.into());
        self.bar.inc(1);
        if let Some(time) = self.frontier.finish(host) {
            self.queue.add_after(Arc::clone(host), time);
        }
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
        let hosts = format!("{} queued, {} processing, {} delayed", now.len, now.processing, now.delayed);
        self.bar.set_message(format!("hosts: {hosts}, {} of them failing", now.failing));
    }
}
