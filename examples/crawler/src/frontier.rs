//! What the crawler knows of pages and hosts, beside the queue: which pages it has found, and when a host may be asked again.

use keyqueue::rate_limiter::Bucket;
use reqwest::Url;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// What [`Frontier::add`] found.
pub(crate) enum Found {
    /// It is not new.
    Known,
    /// It is new, and the first of its host.
    FirstOfHost,
    /// It is new.
    New,
}

pub(crate) struct Frontier {
    /// Requests a second to a host.
    rate: f64,
    /// All pages that were ever found: a page is fetched once, also if a link leads to it when it is done.
    pages: Mutex<HashSet<Url>>,
    hosts: Mutex<HashMap<String, Arc<Bucket>>>,
}

impl Frontier {
    pub(crate) fn new(rate: f64) -> Self {
        Self { rate, pages: Mutex::default(), hosts: Mutex::default() }
    }

    /// Notes a page.
    pub(crate) fn add(&self, url: &Url) -> Found {
        if !self.pages.lock().unwrap().insert(url.clone()) {
            return Found::Known;
        }
        let mut hosts = self.hosts.lock().unwrap();
        let known = hosts.len();
        hosts.entry(host(url)).or_insert_with(|| Arc::new(Bucket::new(self.rate, 1))); // saves no token up for later
        if hosts.len() > known { Found::FirstOfHost } else { Found::New }
    }

    /// The tokens of a page's host.
    pub(crate) fn bucket(&self, url: &Url) -> Arc<Bucket> {
        Arc::clone(&self.hosts.lock().unwrap()[&host(url)])
    }
}

/// The group of a page.
pub(crate) fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}
