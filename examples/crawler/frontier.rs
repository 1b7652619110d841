//! The pages that are still to be fetched, by host: the queue holds only hosts.
//!
//! A host has its pages here, each once, and the queue has the host while there are any. The page that is being fetched stays
//! first until it is fetched or given up, so that a retry finds it there.

use keyqueue::rate_limiter::Bucket;
use reqwest::Url;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The queue's key.
pub(crate) type Host = Arc<str>;

/// What [`Frontier::add`] found.
pub(crate) enum Found {
    /// It is not new.
    Known,
    /// It is new, and the queue has its host.
    New,
    /// It is new, and its host had no pages until now: the host has to be added to the queue.
    First(Host),
}

/// What to do for a host now.
pub(crate) enum Next {
    /// This page, for which a token was spent.
    Fetch(Url),
    /// Wait until there is a token.
    Wait(Duration),
    Nothing,
}

pub(crate) struct Frontier {
    /// Requests a second to a host.
    rate: f64,
    hosts: Mutex<HashMap<Host, Pages>>,
}

struct Pages {
    bucket: Bucket,
    /// All pages that were ever found.
    seen: HashSet<Url>,
    left: VecDeque<Url>,
}

impl Frontier {
    pub(crate) fn new(rate: f64) -> Self {
        Self { rate, hosts: Mutex::default() }
    }

    /// Adds a page, unless it is known.
    pub(crate) fn add(&self, url: Url) -> Found {
        let Some(name) = url.host_str() else { return Found::Known }; // nothing to fetch
        let mut hosts = self.hosts.lock().unwrap();
        let host = hosts.get_key_value(name).map_or_else(|| name.into(), |(host, _)| Arc::clone(host));
        let pages = hosts.entry(Arc::clone(&host)).or_insert_with(|| Pages::new(self.rate));
        if !pages.seen.insert(url.clone()) {
            return Found::Known;
        }
        pages.left.push_back(url);
        if pages.left.len() > 1 { Found::New } else { Found::First(host) }
    }

    /// The first page, if it may be fetched now.
    pub(crate) fn next(&self, host: &str) -> Next {
        let hosts = self.hosts.lock().unwrap();
        let Some((pages, url)) = hosts.get(host).and_then(|pages| Some((pages, pages.left.front()?))) else {
            return Next::Nothing;
        };
        match pages.bucket.try_acquire() {
            Ok(()) => Next::Fetch(url.clone()),
            Err(early) => Next::Wait(early.wait()),
        }
    }

    /// The first page.
    pub(crate) fn first(&self, host: &str) -> Option<Url> {
        self.hosts.lock().unwrap().get(host)?.left.front().cloned()
    }

    /// Removes the first page. Returns the time until the next one may be fetched; `None` if that was the last.
    pub(crate) fn finish(&self, host: &str) -> Option<Duration> {
        let mut hosts = self.hosts.lock().unwrap();
        let pages = hosts.get_mut(host)?;
        pages.left.pop_front();
        pages.left.front().map(|_| pages.pause())
    }

    /// The number of pages that are still to be fetched.
    pub(crate) fn left(&self) -> usize {
        self.hosts.lock().unwrap().values().map(|pages| pages.left.len()).sum()
    }
}

impl Pages {
    /// With a burst of one no token is saved up: no two requests at once after a pause.
    fn new(rate: f64) -> Self {
        Self { bucket: Bucket::new(rate, 1), seen: HashSet::new(), left: VecDeque::new() }
    }

    /// The time until there is a token. The token is not kept: if it were used later than that, the next one would come too soon.
    /// No other worker reserves tokens of this host meanwhile, so `cancel` gives it back.
    fn pause(&self) -> Duration {
        let token = self.bucket.reserve();
        let delay = token.delay();
        token.cancel();
        delay
    }
}
