//! Checks a crawl: takes the crawler's log, the server's log and the site, and returns faults.
//!
//! 1. **Once.** A URL's requests are failures, then one answer, and then no more; or they are as many failures as are allowed.
//! 2. **All, and no more.** The requested URLs are those that can be reached from the first page, over pages that were fetched.
//! 3. **Both agree.** The server sent what the crawler says it got. A page that was cut off, or came too late, is none to the crawler.
//! 4. **One at a time.** A request to a host begins when the one before has ended. The server gets no request of a host while it is at
//!    another one, unless the crawler had timed out on that. (The server may notice that late.)
//! 5. **Not too fast.** After a worker has asked for a token, at most one request reaches the host at once, and one more an interval.

use crawler::site::{Page, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The clocks of bucket and log may differ by this.
const TOLERANCE: Duration = Duration::from_millis(1);

/// What the crawler recorded of one request.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) url: String,
    pub(crate) asked: Duration,
    pub(crate) ended: Duration,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Page,
    Missing,
    /// An error of the server.
    Failed,
    /// The connection broke.
    Lost,
    TimedOut,
}

/// What the server recorded of one request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) url: String,
    pub(crate) arrived: Duration,
    /// The time and the status of the answer. `None`: the crawler has hung up before.
    pub(crate) answer: Option<(Duration, u16)>,
}

pub(crate) struct Crawl {
    pub(crate) site: Site,
    pub(crate) max_retries: usize,
    /// The pause between two requests to a host.
    pub(crate) interval: Duration,
    /// In the order in which the workers asked for tokens.
    pub(crate) attempts: Vec<Attempt>,
    /// In the order in which they arrived.
    pub(crate) requests: Vec<Request>,
}

impl Crawl {
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.attempts.iter().filter(|attempt| attempt.verdict == verdict).count()
    }

    /// All faults, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let requests = group(&self.requests, |request| &request.url);
        for (url, attempts) in group(&self.attempts, |attempt| &attempt.url) {
            self.once(url, &attempts, &mut faults);
            let requests = requests.get(url).map_or(&[][..], |requests| requests);
            both_agree(url, &attempts, requests, &mut faults);
        }
        self.all_and_no_more(&mut faults);
        let requests = group(&self.requests, |request| host(&request.url));
        for (host, attempts) in group(&self.attempts, |attempt| host(&attempt.url)) {
            let requests = requests.get(host).map_or(&[][..], |requests| requests);
            one_at_a_time(host, &attempts, requests, &mut faults);
            self.not_too_fast(host, &attempts, requests, &mut faults);
        }
        faults
    }

    fn once(&self, url: &str, attempts: &[&Attempt], faults: &mut Vec<String>) {
        let is_failure = |attempt: &&&Attempt| !matches!(attempt.verdict, Verdict::Page | Verdict::Missing);
        let failures = attempts.iter().take_while(is_failure).count();
        let tries = self.max_retries + 1;
        match attempts.len() - failures {
            0 if failures == tries => {}
            1 if failures < tries => {}
            answers => faults.push(format!("{url}: {failures} failures of {tries}, then {answers} requests")),
        }
    }

    fn all_and_no_more(&self, faults: &mut Vec<String>) {
        let with = |verdict| self.attempts.iter().filter(move |attempt| attempt.verdict == verdict);
        let fetched: BTreeSet<_> = with(Verdict::Page).map(|attempt| attempt.url.clone()).collect();
        let asked: BTreeSet<_> = self.attempts.iter().map(|attempt| attempt.url.clone()).collect();
        let mut reached = BTreeSet::from([Page::FIRST.url()]);
        let mut next = vec![Page::FIRST];
        while let Some(page) = next.pop() {
            if fetched.contains(&page.url()) {
                next.extend(self.site.links(page).into_iter().filter(|link| reached.insert(link.url())));
            }
        }
        faults.extend(reached.difference(&asked).map(|url| format!("{url}: never asked for")));
        faults.extend(asked.difference(&reached).map(|url| format!("{url}: asked for, but no link leads there")));
    }

    fn not_too_fast(&self, host: &str, attempts: &[&Attempt], requests: &[&Request], faults: &mut Vec<String>) {
        if attempts.iter().any(|attempt| attempt.verdict == Verdict::TimedOut) {
            return; // A request that has timed out may arrive at any time.
        }
        for attempt in attempts {
            for (n, request) in requests.iter().filter(|request| request.arrived >= attempt.asked).enumerate() {
                let after = request.arrived - attempt.asked;
                if after + TOLERANCE < self.interval * n as u32 {
                    faults.push(format!("{host}: {} requests in {after:?}", n + 1));
                    return;
                }
            }
        }
    }
}

fn both_agree(url: &str, attempts: &[&Attempt], requests: &[&Request], faults: &mut Vec<String>) {
    let said = |verdict| attempts.iter().filter(|attempt| attempt.verdict == verdict).count();
    let sent = |statuses: std::ops::Range<u16>| {
        let answers = requests.iter().filter_map(|request| request.answer);
        answers.filter(|(_, status)| statuses.contains(status)).count()
    };
    let unclear = said(Verdict::TimedOut);
    let [page, missing, failed, lost] = [Verdict::Page, Verdict::Missing, Verdict::Failed, Verdict::Lost].map(said);
    let agree = |sent: usize, at_least, at_most| (at_least..=at_most + unclear).contains(&sent);
    if !agree(sent(200..201), page, page + lost)
        || !agree(sent(404..405), missing, missing)
        || !agree(sent(500..600), failed, failed)
        || requests.len() > attempts.len()
    {
        faults.push(format!("{url}: the crawler says {attempts:?}, the server {requests:?}"));
    }
}

fn one_at_a_time(host: &str, attempts: &[&Attempt], requests: &[&Request], faults: &mut Vec<String>) {
    for pair in attempts.windows(2) {
        if pair[1].asked < pair[0].ended {
            faults.push(format!("{host}: a worker began before another had ended: {pair:?}"));
        }
    }
    for (i, request) in requests.iter().enumerate() {
        for before in &requests[..i] {
            let is_over = before.answer.is_some_and(|(ended, _)| ended <= request.arrived);
            let timed_out = attempts.iter().any(|attempt| {
                attempt.url == before.url && attempt.verdict == Verdict::TimedOut && attempt.ended <= request.arrived
            });
            if !is_over && !timed_out {
                faults.push(format!("{host}: {request:?} came while the server was at {before:?}"));
            }
        }
    }
}

fn group<'a, T>(all: &'a [T], by: impl Fn(&'a T) -> &'a str) -> BTreeMap<&'a str, Vec<&'a T>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    all.iter().for_each(|one| groups.entry(by(one)).or_default().push(one));
    groups
}

fn host(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or(url)
}
