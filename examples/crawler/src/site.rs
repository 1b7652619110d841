//! A generated site: hosts, pages and links, all from one seed.
//!
//! All pages but a few can be reached from the first page of the first host: an earlier page links to each. The others are
//! [orphans](Site::new), to which no link leads, so a crawler must not fetch them. Pages also link to each other at random: often
//! twice, often to popular pages, and now and then to a page that does not exist.

use crate::check;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Links that a page has besides those that make other pages reachable.
const LINKS: usize = 8;

/// The number of addresses of a host that have no page, and that links lead to.
const DEAD: u32 = 5;

pub(crate) struct Site {
    hosts: u32,
    pages: u32,
    seed: u64,
    /// Where the links of a page lead, duplicates included. By host, then by page.
    links: Vec<Vec<Vec<Page>>>,
}

/// A page, or an address that has no page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Page {
    pub(crate) host: u32,
    pub(crate) number: u32,
}

impl Page {
    pub(crate) const FIRST: Self = Self { host: 0, number: 0 };

    pub(crate) fn url(self) -> String {
        format!("http://{}{}", self.host(), self.path())
    }

    /// `.test` is reserved for tests (RFC 6761).
    fn host(self) -> String {
        format!("h{}.test", self.host)
    }

    fn path(self) -> String {
        format!("/p/{}", self.number)
    }
}

impl Site {
    /// One page in twenty is an orphan: it links to others, but no page links to it.
    pub(crate) fn new(hosts: u32, pages: u32, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut links = vec![vec![Vec::new(); pages as usize]; hosts as usize];
        let mut link = |from: Page, to: Page| links[from.host as usize][from.number as usize].push(to);

        // The pages that can be reached, in an order in which each page is linked from an earlier one.
        let mut reached: Vec<Vec<u32>> = Vec::new();
        let mut orphans = BTreeSet::new();
        for host in 0..hosts {
            if host > 0 {
                let from = rng.u32(..host);
                let number = *rng.choice(&reached[from as usize]).expect("each host has a first page");
                link(Page { host: from, number }, Page { host, number: 0 });
            }
            let mut here = vec![0];
            for number in 1..pages {
                if rng.u32(..20) == 0 {
                    orphans.insert(Page { host, number });
                    continue;
                }
                link(Page { host, number: *rng.choice(&here).expect("not empty") }, Page { host, number });
                here.push(number);
            }
            reached.push(here);
        }

        for host in 0..hosts {
            for number in 0..pages {
                for _ in 0..LINKS {
                    // Two in three stay on their host. Low numbers are popular.
                    let there = if rng.u32(..3) == 0 { rng.u32(..hosts) } else { host };
                    let most = rng.u32(..pages);
                    let popular = rng.u32(..=most);
                    let to = match rng.u32(..40) {
                        0 => Page { host: there, number: pages + rng.u32(..DEAD) },
                        _ => Page { host: there, number: popular },
                    };
                    if !orphans.contains(&to) {
                        link(Page { host, number }, to);
                    }
                }
            }
        }
        links.iter_mut().flatten().for_each(|links| rng.shuffle(links));
        Self { hosts, pages, seed, links }
    }

    /// The page of this host and path, if they have the form of the site's addresses.
    pub(crate) fn find(&self, host: &str, path: &str) -> Option<Page> {
        let number = |text: &str| text.parse().ok();
        let host = number(host.strip_prefix('h')?.strip_suffix(".test")?)?;
        let number = number(path.strip_prefix("/p/")?)?;
        (host < self.hosts).then_some(Page { host, number })
    }

    /// The page's text, if it exists. Always the same for a page.
    pub(crate) fn html(&self, page: Page) -> Option<String> {
        let links = self.links.get(page.host as usize)?.get(page.number as usize)?;
        let mut rng = self.rng(page, 0);
        let mut html = format!("<!doctype html>\n<title>Page {} of {}</title>\n<ul>\n", page.number, page.host());
        for &to in links {
            let href = spell(&mut rng, page, to);
            writeln!(html, "<li><a href=\"{href}\">{}</a>", ["more", "this", "see also"][rng.usize(..3)])
                .expect("a string takes all");
        }
        html += "</ul>\n";
        Some(html)
    }

    /// Random numbers for the n-th event of a page: the same in each run, whatever the order of the requests.
    pub(crate) fn rng(&self, page: Page, n: u32) -> Rng {
        let mut rng = Rng::with_seed(self.seed);
        for part in [page.host, page.number, n] {
            rng = Rng::with_seed(rng.u64(..) ^ u64::from(part));
        }
        rng
    }

    /// All pages and their links, for the check.
    pub(crate) fn map(&self) -> check::Site {
        let pages = (0..self.hosts).flat_map(|host| (0..self.pages).map(move |number| Page { host, number }));
        let links = |page: Page| self.links[page.host as usize][page.number as usize].iter().map(|to| to.url());
        let links: BTreeMap<_, _> = pages.map(|page| (page.url(), links(page).collect())).collect();
        check::Site { start: Page::FIRST.url(), links }
    }
}

/// Writes an address in one of many ways. The crawler must see that they are the same.
fn spell(rng: &mut Rng, from: Page, to: Page) -> String {
    let near = from.host == to.host;
    match rng.u32(..6) {
        0 if near => to.number.to_string(),
        1 if near => format!("../p/{}#top", to.number),
        2 | 3 if near => to.path(),
        4 => format!("HTTP://H{}.Test:80/p/{}", to.host, to.number),
        5 => format!("{}#part-{}", to.url(), rng.u32(..9)),
        _ => to.url(),
    }
}
