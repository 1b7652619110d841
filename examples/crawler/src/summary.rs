//! What is printed at the end.

use crate::check::{self, Crawl, Request, Verdict};
use keyqueue::observe::Metrics;
use std::io::{self, Write};
use std::time::Duration;

/// The number of faults that are printed.
const LISTED: usize = 20;

pub(crate) struct Summary<'a> {
    pub(crate) crawl: &'a Crawl,
    pub(crate) requests: &'a [Request],
    pub(crate) faults: &'a [String],
    pub(crate) metrics: Metrics,
    /// Pages that were found and neither fetched nor given up.
    pub(crate) left: usize,
    /// Pages that were queued or delayed when the crawl was interrupted.
    pub(crate) dropped: usize,
    /// The rate that was allowed, in requests a second.
    pub(crate) rate: f64,
    pub(crate) took: Duration,
    /// There was no Ctrl-C.
    pub(crate) complete: bool,
}

impl Summary<'_> {
    pub(crate) fn print(&self) -> io::Result<()> {
        let Self { crawl, requests, faults, metrics, .. } = self;
        let count = |verdict| crawl.attempts.iter().filter(|attempt| attempt.verdict == verdict).count();
        let mut out = io::stdout().lock();
        writeln!(out, "pages       {}", count(Verdict::Page))?;
        writeln!(out, "missing     {}", count(Verdict::Missing))?;
        writeln!(out, "given up    {}", crawl.given_up.len())?;
        writeln!(out, "left        {}", self.left)?;
        writeln!(out, "requests    {}", crawl.attempts.len())?;
        writeln!(out, "errors      {}", count(Verdict::Failed))?;
        writeln!(out, "lost        {}", count(Verdict::Lost))?;
        writeln!(out, "timed out   {}", count(Verdict::TimedOut))?;
        writeln!(out, "too late    {} pages", check::too_late(crawl, requests))?;
        writeln!(out, "hand-outs   {}", metrics.stats.handed_out)?;
        writeln!(out, "dropped     {} pages", self.dropped)?;
        for (name, times) in [("wait", &metrics.queue_duration), ("work", &metrics.work_duration)] {
            let [p50, p99] = [0.5, 0.99].map(|share| times.quantile(share));
            writeln!(out, "{name:<11} p50 {p50:.1?}, p99 {p99:.1?}")?;
        }
        writeln!(out, "fastest     {:.1} requests/s to a host, of {}", check::fastest(requests), self.rate)?;
        writeln!(out, "took        {:.2?}", self.took)?;

        for fault in faults.iter().take(LISTED) {
            writeln!(out, "fault: {fault}")?;
        }
        if faults.len() > LISTED {
            writeln!(out, "fault: and {} more", faults.len() - LISTED)?;
        }
        let of = if self.complete { "the whole crawl" } else { "what was crawled before Ctrl-C" };
        match faults.len() {
            0 => writeln!(out, "check       passed: {of}"),
            n => writeln!(out, "check       FAILED, {n} faults: {of}"),
        }
    }
}
