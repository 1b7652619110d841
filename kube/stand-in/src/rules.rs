//! Failures on demand.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// What a request asks for, in the words of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// One object.
    Get,
    /// A list, or a page of it.
    List,
    /// The changes as they happen.
    Watch,
    /// A POST.
    Create,
    /// A PUT.
    Update,
    /// A patch of an object or of its status, which includes server-side apply.
    Patch,
    /// The deletion of one object.
    Delete,
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this code, such as 403, 404, 409, 410 or 500, and changes nothing.
    Status(u16),
    /// It is refused with 429, which tells the client after how many seconds it should ask again.
    ///
    /// The client of kube-rs asks again by itself, up to 15 times, after 429, 503 and 504. A test that wants to see them in its own code
    /// sets `default_retry` of the client's configuration to false.
    TooManyRequests {
        /// The value of `Retry-After`.
        retry_after: u32,
    },
    /// It is carried out, but the answer has this code: 504 is what a client gets that has waited for too long.
    DoneBut(u16),
    /// It is not carried out and never answered, and the connection stays open.
    Hang,
    /// It is not carried out, and the connection is closed without an answer.
    Disconnect,
}

/// How an open watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// As after its `timeoutSeconds`: with a bookmark, if the client wants bookmarks, and then the end of the answer.
    Complete,
    /// The connection is lost in the middle of the answer.
    Cut,
    /// With an event of the type ERROR that has this code. After 410 a client has to list again.
    Error(u16),
}

/// Which requests fail, and how.
///
/// A rule counts the requests that match its verb and its resource, also those that another rule answers, so that the same requests fail
/// each time. Of several rules for a request the one that was added first answers it.
///
/// # Examples
///
/// ```
/// use kube_stand_in::{Fault, Rule, Verb};
///
/// // Each fifth patch of a ConfigMap fails.
/// let rule = Rule::every(5, Fault::Status(500)).verb(Verb::Patch).resource("configmaps");
/// // After the first list nobody may list any more.
/// let other = Rule::all(Fault::Status(403)).verb(Verb::List).after(1);
/// ```
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    verb: Option<Verb>,
    resource: Option<String>,
    every: u64,
    /// How many more requests fail.
    times: u64,
    /// How many requests match before the count begins.
    skip: u64,
    matched: u64,
}

impl Rule {
    /// All requests fail.
    pub fn all(fault: Fault) -> Self {
        Self { fault, verb: None, resource: None, every: 1, times: u64::MAX, skip: 0, matched: 0 }
    }

    /// The next `n` requests fail.
    pub fn next(n: u64, fault: Fault) -> Self {
        Self { times: n, ..Self::all(fault) }
    }

    /// Of each `n` requests the last one fails.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn every(n: u64, fault: Fault) -> Self {
        assert_ne!(n, 0, "a rule for every 0th request");
        Self { every: n, ..Self::all(fault) }
    }

    /// Only requests with this verb count.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only requests for this resource count: `configmaps`, or `deployments.apps`.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// The first `n` requests do not count.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Counts a request, and says whether it fails.
    fn hits(&mut self, verb: Verb, resource: &str) -> bool {
        if self.verb.is_some_and(|wanted| wanted != verb)
            || self.resource.as_ref().is_some_and(|wanted| wanted != resource)
        {
            return false;
        }
        self.matched += 1;
        let hits = self.times > 0 && self.matched > self.skip && (self.matched - self.skip).is_multiple_of(self.every);
        self.times -= u64::from(hits);
        hits
    }
}

#[derive(Debug)]
struct Inner {
    rules: Mutex<Vec<Rule>>,
    is_away: watch::Sender<bool>,
    watches_last: Mutex<(Duration, WatchEnd)>,
    end: watch::Sender<WatchEnd>,
}

/// What goes wrong at a server, to be changed at any time. A clone is the same rules.
#[derive(Debug, Clone)]
pub struct Rules(Arc<Inner>);

impl Rules {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            rules: Mutex::default(),
            is_away: watch::Sender::new(false),
            watches_last: Mutex::new((Duration::from_secs(1800), WatchEnd::Complete)),
            end: watch::Sender::new(WatchEnd::Complete),
        }))
    }

    /// Adds a rule behind those that there are.
    pub fn add(&self, rule: Rule) {
        self.0.rules.lock().unwrap().push(rule);
    }

    /// Removes all rules of requests: from now on each is carried out.
    pub fn clear(&self) {
        self.0.rules.lock().unwrap().clear();
    }

    /// Closes all connections, and each new one at once, until [`come_back`](Self::come_back).
    pub fn go_away(&self) {
        self.0.is_away.send_replace(true);
    }

    /// Serves again, with the objects of before.
    pub fn come_back(&self) {
        self.0.is_away.send_replace(false);
    }

    /// Watches that begin from now on last so long, and end so, unless the client has wished for less. Without it they last as long as the
    /// client wishes, or half an hour.
    pub fn watches_last(&self, time: Duration, end: WatchEnd) {
        *self.0.watches_last.lock().unwrap() = (time, end);
    }

    /// Ends all watches that are open now.
    pub fn end_watches(&self, end: WatchEnd) {
        self.0.end.send_replace(end);
    }

    /// How this request fails, if it does.
    pub(crate) fn fault(&self, verb: Verb, resource: &str) -> Option<Fault> {
        let mut first = None;
        for rule in &mut *self.0.rules.lock().unwrap() {
            if rule.hits(verb, resource) {
                first = first.or(Some(rule.fault));
            }
        }
        first
    }

    /// Returns when the server is away.
    pub(crate) async fn until_away(&self) {
        _ = self.0.is_away.subscribe().wait_for(|is_away| *is_away).await;
    }

    /// How long a watch lasts that begins now, and how it ends.
    pub(crate) fn watch_time(&self) -> (Duration, WatchEnd) {
        *self.0.watches_last.lock().unwrap()
    }

    /// Changes when all watches end.
    pub(crate) fn end(&self) -> watch::Receiver<WatchEnd> {
        self.0.end.subscribe()
    }
}
