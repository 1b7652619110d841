//! Queues with more and more observation.

use crate::workload::Workload;
use crate::{Subject, runs};
use common::workloads::{cycle, fill_and_drain};
use keyqueue::WorkQueue;
use keyqueue::observe::{MetricsObserver, Observer};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two scrapes. Servers scrape every ten seconds or so, but then most runs would have no scrape.
const SCRAPES: Duration = Duration::from_millis(20);

/// The highest acceptable ratio of the time with metrics to the time without.
const TARGET: Option<f64> = Some(1.5);

/// The recorder that is installed, with client-go's buckets: ten nanoseconds, then eleven more, each ten times the last.
pub fn exporter() -> &'static PrometheusHandle {
    static EXPORTER: OnceLock<PrometheusHandle> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let bounds: Vec<f64> = (-8..=3).map(|power| 10_f64.powi(power)).collect();
        let builder = PrometheusBuilder::new().set_buckets(&bounds).expect("there are bounds");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).expect("no other recorder is installed");
        handle
    })
}

/// The ways to observe a queue: not at all; it measures; an observer that does nothing; the crate's `MetricsObserver`.
const NAMES: [&str; 4] = ["plain", "measure", "idle observer", "MetricsObserver"];
const REPORTED: usize = 3;

fn observed(way: usize, name: &'static str) -> WorkQueue<u64> {
    struct Nothing;
    impl Observer for Nothing {}
    let builder = WorkQueue::builder().name(name);
    let builder = match way {
        0 => builder,
        1 => builder.measure(true),
        2 => builder.observer(Nothing),
        _ => builder.observer(MetricsObserver::new()),
    };
    builder.build()
}

/// A queue that is observed in one of the ways, and the thread that scrapes it, if there is something to scrape.
pub struct Observed<const WAY: usize>(WorkQueue<u64>, #[expect(dead_code, reason = "is dropped last")] Option<Scraper>);

impl<const WAY: usize> Subject<u64> for Observed<WAY> {
    const NAME: &'static str = NAMES[WAY];

    fn make() -> Self {
        let exporter = (WAY >= REPORTED).then(exporter);
        let queue = observed(WAY, NAMES[WAY]);
        let scraper = exporter.map(|exporter| Scraper::start(queue.clone(), exporter));
        Self(queue, scraper)
    }

    #[inline]
    fn add(&self, key: u64) {
        self.0.add(key);
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        self.0.get().map(|item| work(self, &item)).is_some()
    }

    fn shut_down(&self) {
        self.0.shut_down();
    }
}

/// A thread that scrapes a queue at intervals, and once more when this is dropped, so that no run leaves work for the next.
struct Scraper(Option<(Sender<()>, JoinHandle<()>)>);

impl Scraper {
    fn start(queue: WorkQueue<u64>, exporter: &'static PrometheusHandle) -> Self {
        let (alive, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut last = false;
            while !last {
                last = ended.recv_timeout(SCRAPES) == Err(RecvTimeoutError::Disconnected);
                queue.inspect().report();
                assert!(black_box(exporter.render()).contains("workqueue_adds_total{name="));
            }
        });
        Self(Some((alive, thread)))
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        let (alive, thread) = self.0.take().expect("until it is dropped");
        drop(alive);
        thread.join().expect("the scraper panicked");
    }
}

/// Each way, with its run.
macro_rules! ways {
    ($($run:tt)*) => { runs!(u64; Observed<0>, Observed<1>, Observed<2>, Observed<REPORTED>; $($run)*) };
}

/// All workloads. A run has `5 * ops` operations, since a shorter one would end before the first scrape. The targets are upper bounds, and
/// apply to all settings.
pub fn all(ops: u64) -> Vec<Workload> {
    let (fast, filled) = (5 * ops, (3 * ops).min(300_000));
    let dense = |name, ops, subjects| Workload {
        group: "add, get, done",
        name,
        figures: vec![("", TARGET)],
        ops,
        subjects,
        rivals: 3,
    };
    let cycles = [1, 1024, 100_000].map(|keys| dense(format!("{keys} keys"), fast, ways!(cycle(keys, fast))));
    let fill = dense(format!("fill, drain, {filled} keys"), filled, ways!(fill_and_drain(filled)));
    cycles.into_iter().chain([fill]).collect()
}
