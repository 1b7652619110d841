//! The check of `crawl.rs` finds each mistake: it is run on logs that are correct but for one.

mod support {
    #![allow(dead_code, reason = "`crawl.rs` uses the rest")]
    pub(crate) mod check;
}

use crawler::site::{Page, Site};
use std::time::Duration;
use support::check::{Attempt, Crawl, Request, Verdict};

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// A request that takes 8 ms, and reaches the server after 1 ms.
fn request(crawl: &mut Crawl, page: Page, asked: u64, verdict: Verdict, status: u16) {
    crawl.attempts.push(Attempt { url: page.url(), asked: ms(asked), ended: ms(asked + 8), verdict });
    crawl.requests.push(Request { url: page.url(), arrived: ms(asked + 1), answer: Some((ms(asked + 6), status)) });
    crawl.attempts.sort_by_key(|attempt| attempt.asked);
    crawl.requests.sort_by_key(|request| request.arrived);
}

const FLAKY: Page = Page { host: 0, number: 1 };
const BROKEN: Page = Page { host: 0, number: 2 };
const OTHER: Page = Page { host: 1, number: 0 };
const LAST: Page = Page { host: 1, number: 1 };

/// A correct crawl of two hosts, 10 ms between two requests to a host, one retry. `BROKEN` is given up.
fn good() -> Crawl {
    let site = Site { hosts: 2, pages: 3, chaos: None };
    let mut crawl = Crawl { site, max_retries: 1, interval: ms(10), attempts: Vec::new(), requests: Vec::new() };
    request(&mut crawl, Page::FIRST, 0, Verdict::Page, 200);
    request(&mut crawl, FLAKY, 10, Verdict::Failed, 500);
    request(&mut crawl, FLAKY, 20, Verdict::Page, 200);
    request(&mut crawl, BROKEN, 30, Verdict::Failed, 500);
    request(&mut crawl, BROKEN, 40, Verdict::Failed, 503);
    request(&mut crawl, OTHER, 10, Verdict::Lost, 200);
    request(&mut crawl, OTHER, 20, Verdict::Page, 200);
    request(&mut crawl, LAST, 30, Verdict::Page, 200);
    request(&mut crawl, Page { host: 1, number: 2 }, 40, Verdict::Page, 200);
    let pages = [Page::FIRST, FLAKY, OTHER, LAST];
    let missing = pages.into_iter().flat_map(|page| crawl.site.links(page)).filter(|page| page.number >= 3);
    let missing: std::collections::BTreeSet<Page> = missing.collect();
    for (i, page) in missing.into_iter().enumerate() {
        request(&mut crawl, page, 50 + 10 * i as u64, Verdict::Missing, 404);
    }
    crawl
}

/// Makes one change to a correct crawl, and expects faults that begin so.
#[track_caller]
fn finds(expected: &[&str], change: impl FnOnce(&mut Crawl)) {
    let mut crawl = good();
    change(&mut crawl);
    let faults = crawl.faults();
    assert!(
        faults.len() == expected.len() && faults.iter().zip(expected).all(|(fault, start)| fault.starts_with(start)),
        "{faults:#?}"
    );
}

#[test]
fn a_correct_crawl_has_no_faults() {
    finds(&[], |_| {});
}

#[test]
fn a_page_that_is_fetched_again() {
    let fault = "http://h1.test/p/1: 0 failures of 2, then 2 requests";
    finds(&[fault], |crawl| request(crawl, LAST, 200, Verdict::Page, 200));
}

#[test]
fn a_page_that_is_tried_too_often_or_not_often_enough() {
    finds(&["http://h0.test/p/2: 3 failures of 2, then 0"], |crawl| request(crawl, BROKEN, 200, Verdict::Failed, 500));
    let faults = ["http://h0.test/p/1: 1 failures of 3, then 1", "http://h0.test/p/2: 2 failures of 3, then 0"];
    finds(&faults[1..], |crawl| crawl.max_retries = 2);
}

#[test]
fn a_page_that_is_missed_or_made_up() {
    finds(&["http://h1.test/p/1: never asked for"], |crawl| {
        crawl.attempts.retain(|attempt| attempt.url != LAST.url());
        crawl.requests.retain(|request| request.url != LAST.url());
    });
    let made_up = Page { host: 1, number: 99 };
    let fault = "http://h1.test/p/99: asked for, but no link leads there";
    finds(&[fault], |crawl| request(crawl, made_up, 200, Verdict::Missing, 404));
}

#[test]
fn an_answer_that_the_crawler_did_not_get() {
    for status in [404, 500] {
        finds(&["http://h0.test/p/0: the crawler says "], |crawl| crawl.requests[0].answer = Some((ms(7), status)));
    }
    finds(&["http://h0.test/p/0: the crawler says "], |crawl| drop(crawl.requests.remove(0)));
}

#[test]
fn two_requests_to_a_host_at_a_time() {
    let fault = "h0.test: a worker began before another had ended";
    finds(&[fault], |crawl| crawl.attempts[0].ended = ms(11));
    let fault = "h0.test: Request { url: \"http://h0.test/p/1\", arrived: 11ms";
    finds(&[fault], |crawl| crawl.requests[0].answer = Some((ms(12), 200)));
    // The server may be at a request that the crawler does not wait for any more.
    finds(&[], |crawl| {
        crawl.attempts[1].verdict = Verdict::TimedOut;
        crawl.requests[1].answer = Some((ms(25), 200));
    });
}

#[test]
fn requests_that_come_too_soon() {
    finds(&["h1.test: 3 requests in 18ms"], |crawl| {
        let last = crawl.requests.iter_mut().rfind(|request| request.url == LAST.url()).unwrap();
        last.arrived = ms(28);
    });
}
