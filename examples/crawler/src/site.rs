//! A generated site of several hosts, and its server: all hosts at one address, on loopback.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use fastrand::Rng;
use futures_util::{StreamExt, stream};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The hosts are `h0.test`, `h1.test`, …, and the pages of each are `/p/0`, `/p/1`, …
#[derive(Debug, Clone)]
pub struct Site {
    pub hosts: u32,
    /// The number of pages of a host. A link may lead to a page that does not exist.
    pub pages: u32,
    /// The server fails, cuts connections, and stalls for this time, more or less.
    pub chaos: Option<Duration>,
    /// One of this number of requests to a host is answered with 429 and a `Retry-After` of one second.
    pub refuses: u32,
    pub log: Arc<Log>,
}

/// What the server has seen of each host.
pub type Log = Mutex<HashMap<u32, Requests>>;

#[derive(Debug, Default)]
pub struct Requests {
    pub at: Vec<Instant>,
    /// The times of the answers 429.
    pub refused: Vec<Instant>,
    pub most_in_flight: usize,
    in_flight: usize,
}

impl Requests {
    pub const RETRY_AFTER: Duration = Duration::from_secs(1);
    /// What the log forgives, because a request may take this time to arrive on a busy machine.
    const SLACK: Duration = Duration::from_millis(150);

    /// Requests that came during `Retry-After`, except for those that were on their way.
    pub fn in_pauses(&self) -> usize {
        let is_early = |at: &&Instant| {
            self.refused.iter().any(|&refused| {
                refused + Self::SLACK < **at && **at < refused + Self::RETRY_AFTER
            })
        };
        self.at.iter().filter(is_early).count()
    }

    /// Whether no span of time has more requests than the rate allows, with a burst of one.
    pub fn keeps_rate(&self, rate: f64) -> bool {
        self.at.iter().enumerate().all(|(first, &from)| {
            let spans = self.at[first..].iter().map(|&to| to - from + Self::SLACK);
            spans.zip(1..).all(|(span, n)| f64::from(n) <= 1.0 + rate * span.as_secs_f64())
        })
    }
}

/// A request that the server has not answered yet.
struct InFlight(Arc<Site>, u32);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.log.lock().unwrap().entry(self.1).or_default().in_flight -= 1;
    }
}

/// A page, or the address of one that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Page {
    pub host: u32,
    pub number: u32,
}

impl Page {
    pub const FIRST: Self = Self { host: 0, number: 0 };

    /// `.test` is reserved for tests (RFC 6761).
    pub fn url(self) -> String {
        format!("http://h{}.test/p/{}", self.host, self.number)
    }
}

impl Site {
    /// Where the links of a page lead. All pages can be reached from the first one: a page
    /// links to two of its host, and the first of a host to the first of two hosts. The other
    /// links are random, and the same each time.
    pub fn links(&self, Page { host, number }: Page) -> Vec<Page> {
        let mut links = Vec::new();
        for child in [2 * number + 1, 2 * number + 2] {
            links.push(Page { host, number: child });
            links.push(Page { host: if number == 0 { child } else { host }, number: 0 });
        }
        links.retain(|page| page.number < self.pages && page.host < self.hosts);
        let mut rng = Rng::with_seed(u64::from(host) << 32 | u64::from(number));
        for _ in 0..8 {
            let host = if rng.bool() { rng.u32(..self.hosts) } else { host };
            links.push(Page {
                host,
                number: rng.u32(..self.pages + self.pages.div_ceil(20)),
            });
        }
        rng.shuffle(&mut links);
        links
    }

    /// The server's answers.
    pub fn router(self) -> Router {
        Router::new().fallback(answer).with_state(Arc::new(self))
    }

    fn find(&self, uri: &Uri) -> Option<Page> {
        let host = uri.host()?.strip_prefix('h')?.strip_suffix(".test")?.parse().ok()?;
        let number = uri.path().strip_prefix("/p/")?.parse().ok()?;
        (host < self.hosts && number < self.pages).then_some(Page { host, number })
    }

    fn html(&self, page: Page) -> String {
        let links = self.links(page).into_iter().enumerate().map(|(i, to)| {
            // Each address has many spellings.
            let href = match i % 4 {
                0 if to.host == page.host => format!("../p/{}#top", to.number),
                1 if to.host == page.host => format!("/p/{}", to.number),
                2 => format!("HTTP://H{}.Test:80/p/{}", to.host, to.number),
                _ => to.url(),
            };
            format!("<li><a href=\"{href}\">see also</a>\n")
        });
        let title = format!("Page {} of host {}", page.number, page.host);
        format!(
            "<!doctype html>\n<title>{title}</title>\n<ul>\n{}</ul>\n",
            links.collect::<String>()
        )
    }
}

async fn answer(State(site): State<Arc<Site>>, uri: Uri) -> Response {
    let Some(page) = site.find(&uri) else { return StatusCode::NOT_FOUND.into_response() };
    let _in_flight = {
        let mut log = site.log.lock().unwrap();
        let host = log.entry(page.host).or_default();
        host.at.push(Instant::now());
        host.in_flight += 1;
        host.most_in_flight = host.most_in_flight.max(host.in_flight);
        let in_flight = InFlight(Arc::clone(&site), page.host);
        if host.at.len() % site.refuses as usize == 0 {
            host.refused.push(Instant::now());
            drop(log);
            let delay = Requests::RETRY_AFTER.as_secs().to_string();
            return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, delay)]).into_response();
        }
        in_flight
    };
    // While some pages are slow, the number of requests at a time is what counts, else the rate.
    let is_slow = (20..40).contains(&page.number);
    tokio::time::sleep(Duration::from_millis(if is_slow { 150 } else { 5 })).await;
    let mut html = site.html(page);
    // The first page always works: there would be no crawl without it.
    if let Some(stall) = site.chaos.filter(|_| page != Page::FIRST) {
        // These pages never work.
        if page.number % 60 == 59 {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        match fastrand::u32(..100) {
            0..9 => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
            9..13 => tokio::time::sleep(stall.mul_f64(0.5 + fastrand::f64())).await,
            13..18 => {
                html.truncate(html.len() / 2);
                // By the time of the error, half of the page has been sent.
                let cut = stream::iter([Ok(html), Err(io::Error::other("cut"))]).then(
                    async |part| {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        part
                    },
                );
                return Body::from_stream(cut).into_response();
            }
            _ => {}
        }
    }
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}
