//! One request, and what became of it.

use crate::check::Verdict;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The header that numbers requests, so that what server and crawler have seen can be put side by side.
pub(crate) const REQUEST_ID: &str = "x-request-id";

pub(crate) enum Fetched {
    /// Where it leads.
    Page(Vec<Url>),
    /// There is no such page, and will be none.
    Missing,
}

/// It may work another time.
#[derive(Debug)]
pub(crate) enum FetchError {
    Status(StatusCode),
    TimedOut,
    Lost(reqwest::Error),
}

pub(crate) struct Fetcher {
    client: Client,
}

impl Fetcher {
    pub(crate) fn new(server: SocketAddr, timeout: Duration) -> reqwest::Result<Self> {
        let client = Client::builder()
            .dns_resolver(AllHere(server))
            .no_proxy()
            .redirect(Policy::none()) // an attempt is one request
            .timeout(timeout);
        Ok(Self { client: client.build()? })
    }

    pub(crate) async fn fetch(&self, url: &Url, id: u64) -> Result<Fetched, FetchError> {
        let response = self.client.get(url.clone()).header(REQUEST_ID, id).send().await?;
        match response.status() {
            StatusCode::OK => Ok(Fetched::Page(links(url, &response.text().await?))),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Fetched::Missing),
            status => Err(FetchError::Status(status)),
        }
    }
}

/// All that is linked to. (A crawler of pages that others wrote would ask a parser of HTML.)
fn links(base: &Url, html: &str) -> Vec<Url> {
    let hrefs = html.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let urls = hrefs.filter_map(|(href, _)| base.join(href).ok());
    urls.filter(|url| url.scheme() == "http").map(without_fragment).collect()
}

/// What is after a `#` is a place in a page: it makes no other page.
fn without_fragment(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// Every name is on this machine: whatever a page links to, nothing leaves it.
struct AllHere(SocketAddr);

impl Resolve for AllHere {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(std::iter::once(self.0));
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

impl From<reqwest::Error> for FetchError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() { Self::TimedOut } else { Self::Lost(error.without_url()) }
    }
}

impl FetchError {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Status(_) => Verdict::Failed,
            Self::TimedOut => Verdict::TimedOut,
            Self::Lost(_) => Verdict::Lost,
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::TimedOut => f.write_str("timed out"),
            Self::Lost(error) => write!(f, "connection lost: {}", root(error)),
        }
    }
}

impl Error for FetchError {}

/// What it all began with: the outer errors say no more than that it was a request.
fn root<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    error.source().map_or(error, root)
}
