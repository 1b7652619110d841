//! A polite crawler, on tokio: it fetches each page that it finds once, with no more requests
//! to a host than allowed, at a time and in a second.
//!
//! * The key is a page. The queue forgets a key that is done, so the crawler keeps the pages
//!   that were ever found.
//! * The group of a page is its host ([`fair_by`]). Hosts take turns, so a large host does
//!   not starve a small one. A host has a rate, and a number of pages that may be processing
//!   at a time ([`group_limits`]). No worker waits for a host: meanwhile they get pages of
//!   other hosts.
//! * A host that answers 429 is left alone for as long as its `Retry-After` says
//!   ([`Outcome::PauseGroup`]). The page counts no failure, and is tried again afterwards.
//! * The first page of a host has a high [`Priority`], so all hosts are busy early.
//! * What a retry may mend is an `Err`: errors of a server, time-outs, broken connections.
//!   The page is retried after a delay, which doubles each time. Other pages of the host go
//!   on meanwhile. After `max_retries` retries the workers give up. Any other answer than a
//!   page is final: [`Outcome::GiveUp`].
//! * Pages lead to more pages, and a drain refuses adds. So `main.rs` waits until the queue
//!   is idle (no page is queued, processing or delayed), and drains it then.
//!
//! [`fair_by`]: keyqueue::WorkQueueBuilder::fair_by
//! [`group_limits`]: keyqueue::WorkQueueBuilder::group_limits

pub mod site;

use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, GroupLimits, Outcome, Priority, WorkQueue, Workers};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Proxy, StatusCode, Url, redirect};
use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a crawler behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Requests a second to a host.
    pub rate: f64,
    /// Requests to a host at a time.
    pub in_flight: usize,
    /// The time to wait for an answer.
    pub timeout: Duration,
    /// How often a page is retried before it is given up.
    pub max_retries: usize,
    /// Requests at a time, to all hosts.
    pub workers: usize,
}

/// Gets each request that has ended, and whether it was answered: an error of the server is no
/// answer, nor is 429.
type Log = Box<dyn Fn(&Url, bool) + Send + Sync>;

pub struct Crawler {
    pub queue: WorkQueue<Url>,
    settings: Settings,
    client: Client,
    found: Mutex<HashSet<Url>>,
    hosts: Mutex<HashSet<String>>,
    log: Log,
}

impl Crawler {
    /// A crawler whose requests all go to `proxy`: whatever a page links to, none leaves this
    /// machine.
    pub fn new(proxy: String, settings: Settings, log: Log) -> reqwest::Result<Arc<Self>> {
        let client = Client::builder()
            .proxy(Proxy::http(proxy)?)
            .redirect(redirect::Policy::none()) // one page, one request
            .timeout(settings.timeout);
        let backoff =
            Duration::from_secs_f64(1.0 / settings.rate).max(Duration::from_millis(10));
        let limits =
            GroupLimits::new().max_processing(settings.in_flight).rate(settings.rate, 1);
        let queue = WorkQueue::builder()
            .name("pages")
            .fair_by(host)
            .group_limits(move |_| limits)
            .rate_limiter(ItemExponentialFailure::new(backoff, 200 * backoff))
            .build();
        Ok(Arc::new(Self {
            queue,
            settings,
            client: client.build()?,
            found: Mutex::default(),
            hosts: Mutex::default(),
            log,
        }))
    }

    /// Starts the workers, on the tokio runtime of the caller.
    pub fn start(self: &Arc<Self>) -> Workers<Url> {
        let workers = self
            .queue
            .workers()
            .max_retries(self.settings.max_retries)
            .on_give_up(|page, why| println!("gave up  {page}: {why}"))
            .build();
        for _ in 0..self.settings.workers {
            let crawler = Arc::clone(self);
            tokio::spawn(workers.run_async(async move |page| crawler.visit(page).await));
        }
        workers
    }

    /// Adds a page, unless it was added before.
    pub fn add(&self, page: Url) {
        if !self.found.lock().unwrap().insert(page.clone()) {
            return;
        }
        let is_first = self.hosts.lock().unwrap().insert(host(&page));
        let priority = if is_first { Priority::HIGH } else { Priority::NORMAL };
        self.queue.add_with(page, AddOptions::new().priority(priority));
    }

    /// Fetches a page, and adds what it links to.
    async fn visit(&self, page: &Url) -> Result<Outcome, Outcome> {
        let result = self.fetch(page).await;
        let is_answer = matches!(&result, Ok(Answer::Page(..)));
        (self.log)(page, is_answer);
        match result {
            Ok(Answer::Page(StatusCode::OK, html)) => {
                links(page, &html).for_each(|link| self.add(link))
            }
            Ok(Answer::Page(status, _)) => {
                return Ok(Outcome::GiveUp(status.to_string().into()));
            }
            Ok(Answer::TooMany(delay)) => {
                return Err(Outcome::PauseGroup { delay, error: "429".into() });
            }
            Err(error) => {
                return Err(Outcome::failed(cause(&error.without_url()).to_string()));
            }
        }
        Ok(Outcome::Success)
    }

    async fn fetch(&self, page: &Url) -> reqwest::Result<Answer> {
        let mut response = self.client.get(page.clone()).send().await?;
        if response.status().is_server_error() {
            response = response.error_for_status()?;
        }
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            let seconds =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let seconds = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
            return Ok(Answer::TooMany(Duration::from_secs(seconds)));
        }
        Ok(Answer::Page(response.status(), response.text().await?))
    }
}

enum Answer {
    Page(StatusCode, String),
    /// 429: the host is to be left alone for this time.
    TooMany(Duration),
}

/// The group of a page.
fn host(page: &Url) -> String {
    page.host_str().unwrap_or_default().to_owned()
}

/// All links of a page. (A crawler of other people's pages would use an HTML parser.)
fn links(base: &Url, html: &str) -> impl Iterator<Item = Url> {
    let hrefs = html.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let urls = hrefs.filter_map(|(href, _)| base.join(href).ok());
    urls.filter(|url| url.scheme() == "http").map(|mut url| {
        url.set_fragment(None); // a place in a page, not another page
        url
    })
}

/// The innermost error: the outer ones say only that a request failed.
fn cause<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    error.source().map_or(error, cause)
}
