//! A polite crawler: fetches every page of a site of several hosts, one request per host at a time, however bad the servers are.
//!
//! ```text
//! cargo run --release --example crawler                        # a site that the example makes up and serves itself, on loopback
//! cargo run --release --example crawler -- --chaos             # the server fails, stalls and cuts connections
//! cargo run --release --example crawler -- --chaos --seed 7 --max-retries 2
//! cargo run --release --example crawler -- --hosts 100 --pages 50 --workers 32 --rate 20
//! ```
//!
//! At the end, what the crawler has noted is held against the site and against what the server has noted: see `check.rs`. Ctrl-C
//! works off what is in line and checks the part that was crawled; a second one leaves at once.
//!
//! How it uses the queue:
//!
//! * The key is a host, not a page, for a host is what must not be in work twice. That no host gets two requests at a time
//!   follows from what the queue is, with any number of workers. A hand-out is one request, and then the host goes to the end
//!   of the line: a large host keeps no small one waiting.
//! * The pages of a host are beside the queue (`frontier.rs`), each once. Who finds a new page adds its host, if that had nothing
//!   to do; else the queue has it already, in line, in work or delayed. To add it all the same would do harm: an add that comes
//!   while the host is in work is followed by a hand-out at once, without the pause that the host is to have. Nor could the
//!   worker put that hand-out off and change nothing else: `RequeueAfter` would make a host that fails one that does not.
//! * If one worker is done with the last page of a host, and in that moment another one finds a new page there, the host is
//!   added while it is in work, and comes once more. In crawlers, that is where pages get lost; the queue sees to it.
//! * Politeness is a `Bucket` for each host. Without a token there is no request, but `RequeueAfter`, for as long as the bucket
//!   says: the worker goes on with another host, and nobody sleeps.
//! * A request that fails is an `Err`, and the workers retry its host when the queue's limiter says: after a pause that doubles
//!   each time. It is the host that waits, with all its pages, as one that is down would wish. The first pause is not shorter
//!   than that between two pages, so that there is a token when it is over, and no `RequeueAfter` is needed: that has the
//!   limiter forget the failures, as `Done` has.
//! * The page that fails stays the first of its host, so the host's failures in a row are those of that page, and `max_retries`
//!   of the workers is that of a page. `on_give_up` strikes the page out, and delays the host for the next one.
//! * A 404 is an answer like any other, and not tried again.
//! * Work makes more work, and during a drain adds are refused. So `wait_idle_async` says when the crawl is over: nothing in line,
//!   in work or delayed. Then comes the drain.
//! * The progress is a report of the queue's (`report_every`), and so are the times in the summary (`metrics`).

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

/// The first pause after a failure, if politeness does not ask for a longer one, and the longest.
const BACKOFF: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(2)];

/// Crawls a site that it serves itself, and checks that it did so politely and completely.
#[derive(Parser)]
#[command(after_help = "Exit status: 1 after an error or if the check fails; else 0, also after Ctrl-C")]
struct Args {
    /// How many hosts the site has
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    hosts: u32,
    /// How many pages each of them has
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pages: u32,
    /// How many requests are under way at a time, to different hosts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Requests a second to a host, at most
    #[arg(long, value_name = "N", default_value_t = 50.0, value_parser = rate)]
    rate: f64,
    /// Have the server fail, stall and cut connections, and some pages never work
    #[arg(long)]
    chaos: bool,
    /// What the site and the chaos are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Try a page again so often, then give it up
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_retries: usize,
    /// How long to wait for an answer
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Have the check ask for this rate, to see that it can fail
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

/// Whether the check holds.
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
    // If we were interrupted, a host that is in line has one more page fetched, and one that is delayed has not.
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

/// The first Ctrl-C is a message, the second is the end.
fn on_ctrl_c() -> Result<UnboundedReceiver<()>, ctrlc::Error> {
    let (sender, stopped) = mpsc::unbounded_channel();
    let stopping = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if stopping.swap(true, Relaxed) {
            std::process::exit(130);
        }
        let _ = sender.send(()); // Nobody listens if the crawl is just over.
        let _ = writeln!(io::stderr(), "\nstopping when what is in line is done; Ctrl-C again stops at once");
    })?;
    Ok(stopped)
}

/// What the workers do when a request fails: they try again, and give the page up after so many times.
fn workers(crawler: &Arc<Crawler>, max_retries: usize) -> Workers<Host> {
    let giving_up = Arc::clone(crawler);
    crawler.queue.workers().max_retries(max_retries).on_give_up(move |host, why| giving_up.give_up(host, why)).build()
}

/// The queue, and what all workers share besides.
struct Crawler {
    queue: WorkQueue<Host>,
    frontier: Frontier,
    fetcher: Fetcher,
    /// Both logs count from here.
    start: Instant,
    requests: AtomicU64,
    crawl: Mutex<Crawl>,
    bar: ProgressBar,
}

impl Crawler {
    fn new(rate: f64, fetcher: Fetcher, start: Instant) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} pages  {msg}").expect("the template is right");
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

    /// What a worker does with a host: fetches one page, if there is one and it may. An error: to be retried.
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

    /// A page was linked to.
    fn found(&self, url: Url) {
        let found = self.frontier.add(url);
        self.bar.inc_length(u64::from(!matches!(found, Found::Known)));
        if let Found::First(host) = found {
            self.queue.add(host);
        }
    }

    /// Makes a request, and notes how it went.
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

    /// All tries have failed: on with the next page. The host is still held, so nobody else takes its first page meanwhile.
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

    /// Prints a line above the progress bar. That nobody reads it is no reason to stop.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        self.bar.suspend(|| drop(writeln!(io::stdout(), "{line}")));
    }
}

/// Shows how the queue stands, each time that it is reported.
struct Progress {
    bar: ProgressBar,
}

impl Observer for Progress {
    fn report(&self, _: &str, metrics: &Metrics) {
        let now = &metrics.stats;
        let hosts = format!("{} in line, {} in work, {} waiting", now.len, now.processing, now.delayed);
        self.bar.set_message(format!("hosts: {hosts}, {} of them failing", now.failing));
    }
}
