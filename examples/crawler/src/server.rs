//! Serves the site on loopback, all hosts at one address, and logs requests. With chaos, the server misbehaves.

use crate::check::{Answer, Request};
use crate::fetch::REQUEST_ID;
use crate::site::{Page, Site};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use fastrand::Rng;
use futures_util::{StreamExt, stream};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// The number of requests in a hundred that go wrong in this way.
const ERRORS: u32 = 9;
const STALLS: u32 = 4;
const CUTS: u32 = 5;

/// One page in this number never works, but the first page does: there would be no crawl without it.
const BROKEN: u32 = 60;

pub(crate) struct Server {
    site: Arc<Site>,
    chaos: Option<Chaos>,
    /// The times in both logs count from here.
    start: Instant,
    log: Mutex<Log>,
}

/// How the server misbehaves.
pub(crate) struct Chaos {
    /// The crawler's time-out. Some stalls are shorter, some longer.
    pub(crate) timeout: Duration,
}

#[derive(Default)]
struct Log {
    requests: Vec<Request>,
    /// By host: the requests that the server is working on.
    open: HashMap<String, Vec<u64>>,
    /// The number of requests for each page: each request has its own random numbers.
    visits: HashMap<String, u32>,
}

/// What happens to a request.
enum Fate {
    Answer,
    Error(StatusCode),
    Stall(Duration),
    Cut,
}

impl Server {
    pub(crate) fn new(site: Arc<Site>, chaos: Option<Chaos>, start: Instant) -> Self {
        Self { site, chaos, start, log: Mutex::default() }
    }

    /// Serves until the runtime ends. Returns the address.
    pub(crate) async fn start(self: &Arc<Self>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(answer).with_state(Arc::clone(self));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(address)
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Logs a request that has arrived. Returns it, and the number of earlier requests for this URL.
    fn open(self: &Arc<Self>, host: &str, url: &str, id: u64) -> (Open, u32) {
        let mut log = self.log.lock().unwrap();
        let Log { requests, open, visits } = &mut *log;
        let open = open.entry(host.to_owned()).or_default();
        let (arrived, meanwhile) = (self.start.elapsed(), open.clone());
        open.push(id);
        requests.push(Request { id, url: url.to_owned(), arrived, meanwhile, answer: Answer::Nothing });
        let visits = visits.entry(url.to_owned()).or_default();
        *visits += 1;
        let index = requests.len() - 1;
        (Open { server: Arc::clone(self), host: host.to_owned(), id, index }, *visits - 1)
    }

    async fn work(&self, page: Option<Page>, visit: u32, open: Open) -> Response {
        match page.map_or(Fate::Answer, |page| self.fate(page, visit)) {
            Fate::Answer => {}
            Fate::Stall(time) => tokio::time::sleep(time).await,
            Fate::Error(status) => {
                open.answered(Answer::Status(status.as_u16()));
                return status.into_response();
            }
            Fate::Cut => {
                open.answered(Answer::Cut);
                return cut(page.and_then(|page| self.site.html(page)).unwrap_or_default(), visit);
            }
        }
        let Some(html) = page.and_then(|page| self.site.html(page)) else {
            open.answered(Answer::Status(404));
            return StatusCode::NOT_FOUND.into_response();
        };
        open.answered(Answer::Status(200));
        ([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
    }

    fn fate(&self, page: Page, visit: u32) -> Fate {
        let Some(chaos) = &self.chaos else { return Fate::Answer };
        if page != Page::FIRST && self.site.rng(page, u32::MAX).u32(..BROKEN) == 0 {
            return Fate::Error(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let mut rng = self.site.rng(page, visit + 1);
        match rng.u32(..100) {
            n if n < ERRORS => Fate::Error(pick(&mut rng)),
            n if n < ERRORS + STALLS => Fate::Stall(chaos.timeout.mul_f64(0.5 + rng.f64())),
            n if n < ERRORS + STALLS + CUTS => Fate::Cut,
            _ => Fate::Answer,
        }
    }
}

fn pick(rng: &mut Rng) -> StatusCode {
    [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE][rng.usize(..3)]
}

/// A request that the server is working on.
struct Open {
    server: Arc<Server>,
    host: String,
    id: u64,
    index: usize,
}

impl Open {
    /// Logged before the answer is sent, so that the log has it when the crawler does.
    fn answered(self, answer: Answer) {
        let mut log = self.server.log.lock().unwrap();
        log.requests[self.index].answer = answer;
        let open = log.open.get_mut(&self.host).expect("`open` has put it there");
        open.retain(|id| *id != self.id);
    }
}

async fn answer(State(server): State<Arc<Server>>, uri: Uri, headers: HeaderMap) -> Response {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(host), Some(id)) = (header(HOST.as_str()), header(REQUEST_ID).and_then(|id| id.parse().ok())) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (open, visit) = server.open(host, &format!("http://{host}{}", uri.path()), id);
    let page = server.site.find(host, uri.path());
    // In a task of its own: the work would end otherwise when the crawler hangs up. Most servers notice that late, or never.
    let work = tokio::spawn(async move { server.work(page, visit, open).await });
    work.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// The connection breaks: in the middle of the page, or before anything is sent.
fn cut(mut html: String, visit: u32) -> Response {
    html.truncate(html.len() / 2);
    let half = stream::iter([Ok(html)]);
    let end = stream::once(async move {
        if visit.is_multiple_of(2) {
            tokio::time::sleep(Duration::from_millis(2)).await; // by then, half of the page has been sent
        }
        Err(io::Error::other("cut"))
    });
    Body::from_stream(half.chain(end)).into_response()
}
