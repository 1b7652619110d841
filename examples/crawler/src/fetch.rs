//! One request, and its result.

use crate::check::Verdict;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The header that numbers requests, so that the logs of server and crawler can be compared.
pub(crate) const REQUEST_ID: &str = "x-request-id";

pub(crate) enum Fetched {
    /// The links of the page.
    Page(Vec<Url>),
    /// There is no such page, and will be none.
    Missing,
}

/// A failure; a retry may succeed.
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

/// All links of a page. (A crawler of other people's pages would use an HTML parser.)
fn links(base: &Url, html: &str) -> Vec<Url> {
    let hrefs = html.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let urls = hrefs.filter_map(|(href, _)| base.join(href).ok());
    urls.filter(|url| url.scheme() == "http").map(without_fragment).collect()
}

/// Removes what follows a `#`: that is a place in a page, not another page.
fn without_fragment(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// Resolves every name to this machine: whatever a page links to, no request leaves the machine.
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

/// The innermost error: the outer errors say only that a request failed.
fn root<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    error.source().map_or(error, root)
}
