//! Checks the crawl against the site, and against the server's log.
//!
//! Takes logs, and returns faults. Crawler and server have each written a log, with numbered requests and by the same clock.
//! Together the logs must show:
//!
//! 1. **Once.** A URL's requests are failures, then one answer (the page, or that there is none), and then no more. Or they are
//!    as many failures as are allowed, and then the URL is given up, and reported as such.
//! 2. **All, and no more.** The requested URLs are those that can be reached from the start, over pages that were fetched. Links
//!    of a page that was given up are not known to the crawler.
//! 3. **Both agree.** Each request that the server got is one of the crawler's, and the crawler has understood the server's
//!    answer. So the server has sent as many copies of each page as the crawler has accepted (one, by rule 1), and those that came
//!    too late: after the crawler's time-out. A page that was cut off is no copy.
//! 4. **One at a time.** In the crawler's log, a request to a host begins when the one before has ended. In the server's log, a
//!    host gets no other request while the server handles one, unless the crawler had timed out on one of them. (The server does
//!    not know that, and goes on. The crawler cannot stop it; it can only wait longer before it retries.)
//! 5. **Not too fast.** A request reaches a host no sooner after the previous one than the rate allows.
//!
//! A crawl that was interrupted may have URLs left, and fewer failures. All other rules hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// The bucket's clock and the log's clock may differ by this.
const TOLERANCE: Duration = Duration::from_millis(1);

/// The pages and their links. The server answers any other URL with 404.
pub(crate) struct Site {
    pub(crate) start: String,
    pub(crate) links: BTreeMap<String, Vec<String>>,
}

/// The crawler's settings.
pub(crate) struct Rules {
    pub(crate) max_retries: usize,
    /// The pause between two requests to a host.
    pub(crate) interval: Duration,
    /// The crawl was not interrupted.
    pub(crate) complete: bool,
}

/// The crawler's log.
#[derive(Clone, Default)]
pub(crate) struct Crawl {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) given_up: BTreeSet<String>,
}

/// What the crawler recorded of one request.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) id: u64,
    pub(crate) url: String,
    /// When it asked for a token, just before it got one.
    pub(crate) asked: Duration,
    pub(crate) ended: Duration,
    pub(crate) verdict: Verdict,
}

/// How the crawler understood the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Page,
    Missing,
    /// An error of the server.
    Failed,
    /// The connection broke.
    Lost,
    /// The crawler's time-out has passed.
    TimedOut,
}

impl Verdict {
    fn is_answer(self) -> bool {
        matches!(self, Self::Page | Self::Missing)
    }
}

/// What the server recorded of one request.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) url: String,
    pub(crate) arrived: Duration,
    /// The host's other requests that the server was handling then.
    pub(crate) meanwhile: Vec<u64>,
    pub(crate) answer: Answer,
}

/// How the server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Not at all, or not yet.
    Nothing,
    Status(u16),
    /// The server broke the connection.
    Cut,
}

/// All faults, a sentence each.
pub(crate) fn faults(site: &Site, rules: &Rules, crawl: &Crawl, requests: &[Request]) -> Vec<String> {
    let mut faults = once(rules, crawl);
    faults.extend(all_and_no_more(site, rules, crawl));
    faults.extend(both_agree(site, crawl, requests));
    faults.extend(one_at_a_time(crawl, requests));
    faults.extend(not_too_fast(rules, crawl, requests));
    faults
}

fn once(rules: &Rules, crawl: &Crawl) -> Vec<String> {
    let mut faults = Vec::new();
    let tries = rules.max_retries + 1;
    for (url, attempts) in groups(&crawl.attempts, |attempt| &attempt.url) {
        let failures = attempts.iter().take_while(|attempt| !attempt.verdict.is_answer()).count();
        let given_up = crawl.given_up.contains(url);
        match attempts.len() - failures {
            1 if !given_up && failures < tries => {}
            1 => faults.push(format!("{url}: answered after {failures} failures of {tries}; given up: {given_up}")),
            0 if given_up && failures == tries => {}
            0 if given_up || failures >= tries || rules.complete => {
                faults.push(format!("{url}: never answered in {failures} tries of {tries}; given up: {given_up}"));
            }
            0 => {}
            after => faults.push(format!("{url}: asked for again after the answer: {} more", after - 1)),
        }
    }
    let asked: BTreeSet<_> = crawl.attempts.iter().map(|attempt| &attempt.url).collect();
    faults
        .extend(crawl.given_up.iter().filter(|url| !asked.contains(url)).map(|url| format!("{url}: given up untried")));
    faults
}

fn all_and_no_more(site: &Site, rules: &Rules, crawl: &Crawl) -> Vec<String> {
    let pages = crawl.attempts.iter().filter(|attempt| attempt.verdict == Verdict::Page);
    let pages: BTreeSet<_> = pages.map(|attempt| &attempt.url).collect();
    let asked: BTreeSet<_> = crawl.attempts.iter().map(|attempt| &attempt.url).collect();

    let mut reachable = BTreeSet::from([&site.start]);
    let mut next = VecDeque::from([&site.start]);
    while let Some(url) = next.pop_front() {
        if let Some(links) = site.links.get(url).filter(|_| pages.contains(url)) {
            next.extend(links.iter().filter(|link| reachable.insert(*link)));
        }
    }
    let missed = reachable.difference(&asked).filter(|_| rules.complete).map(|url| format!("{url}: never asked for"));
    let made_up = asked.difference(&reachable).map(|url| format!("{url}: asked for, but no link leads there"));
    missed.chain(made_up).collect()
}

fn both_agree(site: &Site, crawl: &Crawl, requests: &[Request]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen: HashMap<u64, &Request> = HashMap::new();
    for request in requests {
        if seen.insert(request.id, request).is_some() {
            faults.push(format!("{}: request {} reached the server twice", request.url, request.id));
        }
    }
    let mut copies: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for Attempt { id, url, verdict, .. } in &crawl.attempts {
        let answer = seen.remove(id).map(|request| {
            if request.url != *url {
                faults.push(format!("{url}: request {id} reached the server as one for {}", request.url));
            }
            request.answer
        });
        let agree = match (verdict, answer) {
            (Verdict::Page, Some(Answer::Status(200))) => site.links.contains_key(url),
            (Verdict::Missing, Some(Answer::Status(404))) => !site.links.contains_key(url),
            (Verdict::Failed, Some(Answer::Status(status))) => status >= 500,
            (Verdict::Lost, Some(Answer::Cut)) | (Verdict::Lost, None) | (Verdict::TimedOut, _) => true,
            _ => false,
        };
        if !agree {
            faults.push(format!("{url}: request {id}: the crawler says {verdict:?}, the server {answer:?}"));
        }
        let [sent, accepted_or_late] = copies.entry(url).or_default();
        let full = answer == Some(Answer::Status(200));
        *sent += usize::from(full);
        *accepted_or_late += usize::from(*verdict == Verdict::Page || (*verdict == Verdict::TimedOut && full));
    }
    for (url, [sent, accepted_or_late]) in copies {
        if sent != accepted_or_late {
            faults.push(format!("{url}: {sent} copies were sent, and {accepted_or_late} accepted or too late"));
        }
    }
    faults.extend(seen.values().map(|request| format!("{}: request {} is not the crawler's", request.url, request.id)));
    faults
}

fn one_at_a_time(crawl: &Crawl, requests: &[Request]) -> Vec<String> {
    let mut faults = Vec::new();
    for (host, attempts) in groups(&crawl.attempts, |attempt| host(&attempt.url)) {
        for pair in attempts.windows(2) {
            if pair[1].asked < pair[0].ended {
                faults.push(format!("{host}: request {} began before {} had ended", pair[1].id, pair[0].id));
            }
        }
    }
    let attempts: HashMap<u64, &Attempt> = crawl.attempts.iter().map(|attempt| (attempt.id, attempt)).collect();
    for request in requests {
        for other in &request.meanwhile {
            let both = attempts.get(&request.id).zip(attempts.get(other));
            if !both.is_some_and(|(one, other)| timed_out_before(one, other) || timed_out_before(other, one)) {
                faults.push(format!("{}: request {} came while the server was at {other}", request.url, request.id));
            }
        }
    }
    faults
}

/// The crawler had timed out on the first request before it asked for the second. The second may still arrive before the
/// first: a request that has timed out can still be on its way.
fn timed_out_before(first: &Attempt, second: &Attempt) -> bool {
    first.verdict == Verdict::TimedOut && first.ended <= second.asked
}

fn not_too_fast(rules: &Rules, crawl: &Crawl, requests: &[Request]) -> Vec<String> {
    let mut faults = Vec::new();
    let arrived: HashMap<u64, Duration> = requests.iter().map(|request| (request.id, request.arrived)).collect();
    for (host, attempts) in groups(&crawl.attempts, |attempt| host(&attempt.url)) {
        for pair in attempts.windows(2) {
            // The first token came after `asked`, the second before `arrived`: however slow this process is, the time between
            // these two is no less than the bucket's interval.
            let Some(between) = arrived.get(&pair[1].id).map(|arrived| arrived.saturating_sub(pair[0].asked)) else {
                continue;
            };
            if between + TOLERANCE < rules.interval {
                faults.push(format!("{host}: request {} came {between:?} after the one before", pair[1].id));
            }
        }
    }
    faults
}

/// The number of pages that the server has sent after the crawler's time-out.
pub(crate) fn too_late(crawl: &Crawl, requests: &[Request]) -> usize {
    let timed_out = crawl.attempts.iter().filter(|attempt| attempt.verdict == Verdict::TimedOut);
    let timed_out: BTreeSet<_> = timed_out.map(|attempt| attempt.id).collect();
    requests.iter().filter(|request| request.answer == Answer::Status(200) && timed_out.contains(&request.id)).count()
}

/// Requests a second, on average, to the host that got them fastest. 0: no host got two.
pub(crate) fn fastest(requests: &[Request]) -> f64 {
    let mut hosts: BTreeMap<_, Vec<Duration>> = BTreeMap::new();
    for request in requests {
        hosts.entry(host(&request.url)).or_default().push(request.arrived);
    }
    let rates = hosts.values().filter(|arrived| arrived.len() > 1).map(|arrived| {
        let span = arrived[arrived.len() - 1] - arrived[0]; // the log is in order
        (arrived.len() - 1) as f64 / span.as_secs_f64()
    });
    rates.fold(0.0, f64::max)
}

/// The attempts, grouped by `by`, in the order in which they were made.
fn groups<'a>(attempts: &'a [Attempt], by: impl Fn(&'a Attempt) -> &'a str) -> BTreeMap<&'a str, Vec<&'a Attempt>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for attempt in attempts {
        groups.entry(by(attempt)).or_default().push(attempt);
    }
    groups.values_mut().for_each(|group| group.sort_by_key(|attempt| (attempt.asked, attempt.id)));
    groups
}

fn host(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or(url)
}
