//! Observers, and the metrics that go to the `metrics` facade.
//!
//! What each call tells an observer, that it is not called under a lock (P17), and what is left if it panics, is compared with the plain
//! queue of `reference/`. Here: the same on the driver thread, which outlives an observer that panics. `MetricsObserver` has client-go's names, one label, and counters that never decrease, and the Grafana dashboard shows
//! its series.

mod support {
    #[cfg(feature = "metrics")]
    pub(crate) mod manual;
    #[cfg(feature = "metrics")]
    pub(crate) mod tasks;
    pub(crate) mod until;
    pub(crate) mod within;
}

use keyqueue::observe::{Metrics, Observer};
use keyqueue::{Added, Clock, OnPanic, WorkQueue, WorkQueueBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[cfg(feature = "metrics")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use support::until::wait_until;
use support::within::within_30_s;

const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Added(Added),
    Done,
    Report,
}

/// An observer that is a function.
struct FnObserver<F>(F);

impl<F: Fn(Event) + Send + Sync> Observer for FnObserver<F> {
    fn added(&self, added: Added) {
        self.0(Event::Added(added));
    }

    fn done(&self, _: Option<Duration>) {
        self.0(Event::Done);
    }

    fn report(&self, _: &str, _: &Metrics) {
        self.0(Event::Report);
    }
}

type Queue = WorkQueue<u32>;

const QUEUED: Event = Event::Added(Added::Queued);
const DELAYED: Event = Event::Added(Added::Delayed);

// ---- observers that use the queue ----

#[test]
fn an_observer_may_use_the_queue_on_the_driver_thread() {
    within_30_s(|| {
        let (clock, mock) = Clock::mock();
        let own: Arc<OnceLock<Queue>> = Arc::default();
        let (send, reported) = mpsc::channel();
        let observer = {
            let own = Arc::clone(&own);
            FnObserver(move |event| {
                let queue = own.get().unwrap();
                if event == QUEUED {
                    queue.add_after(2, MS);
                }
                let name = thread::current().name().unwrap_or_default().to_owned();
                send.send((event, name, queue.stats().expired, queue.inspect().metrics().stats.len)).unwrap();
            })
        };
        let queue = WorkQueue::builder().clock(clock).observer(observer).build();
        assert!(own.set(queue.clone()).is_ok());
        queue.add_after(1, MS);
        mock.advance(MS);
        let events: Vec<_> = reported.iter().take(3).collect();
        let driver = || "keyqueue-delay".to_owned();
        assert_eq!((events[0].0, events[0].2), (DELAYED, 0));
        assert_eq!(events[1..], [(DELAYED, driver(), 1, 1), (QUEUED, driver(), 1, 1)]);
        queue.shut_down();
    });
}

// ---- observers that panic ----

/// Panics once, at the first event that `at` selects.
fn fragile(at: fn(Event) -> bool) -> impl Observer + 'static {
    let seen = AtomicBool::new(false);
    FnObserver(move |event| {
        if at(event) && !seen.swap(true, Ordering::SeqCst) {
            resume_unwind(Box::new("an observer"));
        }
    })
}

#[test]
fn the_driver_thread_survives_an_observer_that_panics() {
    let (clock, mock) = Clock::mock();
    let queue: Queue = WorkQueue::builder().clock(clock).observer(fragile(|event| event == QUEUED)).build();
    for key in 0..3 {
        queue.add_after(key, MS);
        mock.advance(MS);
        assert_eq!(*queue.get().unwrap(), key, "the driver thread goes on after the panic");
    }
}

/// The retry sets the queue's first delay, and the observer panics before the call has started the driver thread.
#[test]
fn an_observer_that_panics_in_done_loses_no_retry() {
    for unwinds in [false, true] {
        let builder = WorkQueue::builder().observer(fragile(|event| event == Event::Done));
        let queue = builder.on_panic(OnPanic::Retry).build();
        queue.add(1);
        let item = queue.get().unwrap().into_owned();
        thread::scope(|scope| {
            let getter = scope.spawn(|| queue.get_timeout(Duration::from_secs(30)).is_ok());
            wait_until(|| queue.stats().waiters > 0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if unwinds {
                    let _item = item;
                    resume_unwind(Box::new("a holder"));
                }
                item.retry();
            }));
            assert!(outcome.is_err());
            assert!(getter.join().unwrap(), "the parked getter gets the key; unwinds: {unwinds}");
        });
    }
}

// ---- reports ----

/// A queue, and what it reports: its name, and the number of keys that were queued.
fn reported(queue: WorkQueueBuilder<u32>) -> (Queue, mpsc::Receiver<(String, u64)>) {
    struct Reports(mpsc::Sender<(String, u64)>);
    impl Observer for Reports {
        fn report(&self, queue: &str, metrics: &Metrics) {
            assert_eq!(metrics.stats.pushed, metrics.queue_duration.count() + metrics.stats.len as u64);
            _ = self.0.send((queue.to_owned(), metrics.stats.pushed));
        }
    }
    let (send, receive) = mpsc::channel();
    (queue.observer(Reports(send)).build(), receive)
}

#[test]
fn a_report_has_the_current_numbers() {
    let (queue, reports) = reported(WorkQueue::builder().name("pods"));
    queue.inspect().report();
    queue.add(1);
    queue.inspect().report();
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), [("pods".to_owned(), 0), ("pods".to_owned(), 1)]);
    // Without an observer nothing happens.
    WorkQueue::<u32>::new().inspect().report();
}

// ---- the `metrics` facade ----

#[cfg(feature = "metrics")]
mod facade {
    use super::*;
    use crate::support::manual::manual;
    use crate::support::tasks::{Calls, poll};
    use keyqueue::observe::MetricsObserver;
    use keyqueue::{AddOptions, Item, MockClock, Outcome, Priority, Stats};
    use metrics::{
        Counter, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
    };
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::AtomicU64;

    /// A recorder that keeps each series by its kind, name and labels.
    #[derive(Default, Clone)]
    struct Exporter(Arc<Mutex<Exported>>);

    #[derive(Default)]
    struct Exported {
        /// Counters, and the bits of gauges.
        numbers: BTreeMap<String, Arc<AtomicU64>>,
        histograms: BTreeMap<String, Arc<Sum>>,
        /// The unit and the help of each kind and name.
        described: BTreeMap<String, (Option<Unit>, String)>,
        /// The next gauge panics.
        panics: bool,
    }

    /// The number of values, and their sum.
    #[derive(Default)]
    struct Sum(Mutex<(usize, f64)>);

    impl HistogramFn for Sum {
        fn record(&self, value: f64) {
            self.record_many(value, 1);
        }

        fn record_many(&self, value: f64, count: usize) {
            let (values, sum) = &mut *self.0.lock().unwrap();
            *values += count;
            *sum += value * count as f64;
        }
    }

    fn name(kind: &str, key: &Key) -> String {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        format!("{kind} {}{{{}}}", key.name(), labels.join(","))
    }

    impl Exporter {
        fn number(&self, kind: &str, key: &Key) -> Arc<AtomicU64> {
            Arc::clone(self.0.lock().unwrap().numbers.entry(name(kind, key)).or_default())
        }

        fn describe(&self, kind: &str, name: &KeyName, unit: Option<Unit>, help: &SharedString) {
            assert!(!help.is_empty());
            let described = &mut self.0.lock().unwrap().described;
            described.insert(format!("{kind} {}", name.as_str()), (unit, help.to_string()));
        }

        fn counter(&self, name: &str) -> u64 {
            self.0.lock().unwrap().numbers[&format!("counter {name}")].load(Ordering::SeqCst)
        }

        fn gauge(&self, name: &str) -> f64 {
            f64::from_bits(self.0.lock().unwrap().numbers[&format!("gauge {name}")].load(Ordering::SeqCst))
        }

        fn histogram(&self, name: &str) -> (usize, f64) {
            let exported = self.0.lock().unwrap();
            exported.histograms.get(&format!("histogram {name}")).map_or((0, 0.0), |sum| *sum.0.lock().unwrap())
        }

        fn text(&self) -> String {
            let Exported { numbers, histograms, .. } = &*self.0.lock().unwrap();
            let number = |name: &str, bits| match name.starts_with("gauge") {
                true => f64::from_bits(bits).to_string(),
                false => bits.to_string(),
            };
            let numbers = numbers.iter().map(|(name, of)| (name, number(name, of.load(Ordering::SeqCst))));
            let counts = histograms.iter().map(|(name, sum)| (name, sum.0.lock().unwrap().0.to_string()));
            numbers.chain(counts).map(|(name, number)| format!("{name} {number}\n")).collect()
        }
    }

    impl Recorder for Exporter {
        fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe("counter", &key, unit, &help);
        }

        fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe("gauge", &key, unit, &help);
        }

        fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe("histogram", &key, unit, &help);
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.number("counter", key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            if std::mem::take(&mut self.0.lock().unwrap().panics) {
                resume_unwind(Box::new("an exporter"));
            }
            Gauge::from_arc(self.number("gauge", key))
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
            let histograms = &mut self.0.lock().unwrap().histograms;
            metrics::Histogram::from_arc(Arc::clone(histograms.entry(name("histogram", key)).or_default()))
        }
    }

    fn observed(name: &str) -> (Queue, MockClock) {
        let (builder, mock) = manual(WorkQueue::builder().name(name));
        (builder.observer(MetricsObserver::new()).build(), mock)
    }

    fn unwind(item: Item<'_, u32>) {
        let unwinds = || -> () {
            let _item = item;
            resume_unwind(Box::new(()))
        };
        _ = catch_unwind(AssertUnwindSafe(unwinds)).unwrap_err();
    }

    const RUNS: &str = "workqueue_runs_total";
    const RESULTS: [&str; 7] = ["error", "give_up", "panic", "pause", "requeue", "success", "timeout"];
    /// Changes every series of the queue.
    fn change_every_series(queue: &Queue, clock: &MockClock) {
        queue.add_all([1, 1, 2, 3, 4, 5, 6]); // one coalesced
        clock.advance(2_000 * MS);
        let _first = queue.get().unwrap().into_owned();
        queue.get().unwrap().retry(); // 2
        unwind(queue.get().unwrap()); // 3
        queue.get().unwrap().give_up(); // 4
        queue.add(1); // deferred
        queue.add_after(2, 90_000 * MS); // a caller's delay, beside the retry
        clock.advance(1_000 * MS);
        queue.inspect().report();
        queue.shut_down();
        queue.add(9); // rejected
        queue.inspect().report();
    }

    /// All series after [`change_every_series`]: a kind, a name with labels, and a value. Of a histogram the number of values.
    const SERIES: &str = "\
counter workqueue_adds_total{name=pods} 7
counter workqueue_coalesced_total{name=pods} 1
counter workqueue_failures_total{name=pods} 1
counter workqueue_full_total{name=pods} 0
counter workqueue_given_up_total{name=pods} 1
counter workqueue_late_runs_total{name=pods} 0
counter workqueue_panics_total{name=pods} 1
counter workqueue_rejected_total{name=pods} 1
counter workqueue_retries_total{name=pods} 2
counter workqueue_runs_total{name=pods,result=error} 0
counter workqueue_runs_total{name=pods,result=give_up} 0
counter workqueue_runs_total{name=pods,result=panic} 0
counter workqueue_runs_total{name=pods,result=pause} 0
counter workqueue_runs_total{name=pods,result=requeue} 0
counter workqueue_runs_total{name=pods,result=success} 0
counter workqueue_runs_total{name=pods,result=timeout} 0
gauge workqueue_delayed{name=pods} 1
gauge workqueue_depth{name=pods} 3
gauge workqueue_failing{name=pods} 1
gauge workqueue_longest_running_processor_seconds{name=pods} 1
gauge workqueue_next_deadline_seconds{name=pods} 0
gauge workqueue_oldest_queued_seconds{name=pods} 3
gauge workqueue_processing{name=pods} 1
gauge workqueue_unfinished_work_seconds{name=pods} 1
histogram workqueue_queue_duration_seconds{name=pods} 4
histogram workqueue_work_duration_seconds{name=pods} 3
";

    #[test]
    fn the_series_have_client_gos_names_one_label_and_the_right_values() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        with_local_recorder(&exporter, || {
            queue.inspect().report();
            assert_eq!(exporter.gauge("workqueue_next_deadline_seconds{name=pods}"), f64::INFINITY, "no delay");
            change_every_series(&queue, &clock);
        });
        assert_eq!(exporter.text(), SERIES);
        assert_eq!(MetricsObserver::new().interval(), Some(500 * MS), "as often as client-go");
        let described = std::mem::take(&mut exporter.0.lock().unwrap().described);
        let names: BTreeSet<_> = SERIES.lines().map(|line| line.split_once('{').unwrap().0).collect();
        assert!(described.keys().eq(&names));
        for (name, (unit, _)) in &described {
            let expected = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
            assert_eq!(*unit, Some(expected), "{name}");
        }
        // Each of the two says what it counts, as the name of the first is misleading.
        let help = |name: &str| &described[&format!("counter {name}")].1;
        assert!(help("workqueue_retries_total").contains("failures or not: see workqueue_failures_total"));
        assert!(help("workqueue_failures_total").contains("failures"));
        // The item is dropped after the last report, so the last gauges still count it.
        let Stats { coalesced, failures, given_up, panics, rejected, retries, .. } = queue.stats();
        assert_eq!([coalesced, failures, given_up, panics, rejected, retries], [1, 1, 1, 1, 1, 2]);
        let (_, sum) = exporter.histogram("workqueue_queue_duration_seconds{name=pods}");
        assert!((sum / 8.0 - 1.0).abs() < 0.0625, "{sum}");
        assert_eq!(exporter.histogram("workqueue_work_duration_seconds{name=pods}"), (3, 0.0));
    }

    /// The dashboard of `examples/grafana/` shows each series, no other one, and only those of the chosen queues.
    #[test]
    fn the_dashboard_shows_exactly_what_is_exported() {
        let dashboard = include_str!("../examples/grafana/keyqueue.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("it is JSON");
        let picture = include_str!("../examples/grafana/keyqueue.svg");
        let mut shown = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("a list") {
            let title = panel["title"].as_str().expect("a title");
            assert!(picture.contains(&format!(">{title}</text>")), "{title}: draw it with examples/grafana/picture.py");
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().expect("text");
                let words = expression.split(|c: char| !c.is_ascii_lowercase() && c != '_');
                for metric in words.filter(|word| word.starts_with("workqueue_")) {
                    assert!(expression.contains(&format!(r#"{metric}{{name=~"$name"}}"#)), "{title}: all queues");
                    shown.insert(metric.trim_end_matches("_bucket"));
                }
            }
        }
        let exported = SERIES.lines().map(|line| line.split([' ', '{']).nth(1).unwrap());
        assert_eq!(shown, exported.collect());
        let chosen = dashboard["templating"]["list"].as_array().expect("a list").iter().map(|list| &list["definition"]);
        assert!(chosen.into_iter().any(|from| from == "label_values(workqueue_depth, name)"));
    }

    /// All workers of a queue add up, and those that are dropped count on. (In which result a run counts is judged by `reference/`.)
    #[test]
    fn each_run_of_workers_is_exported_in_one_result() {
        let exporter = Exporter::default();
        let (builder, time) = manual(WorkQueue::builder().name("pods").fair_by(|key| *key));
        let queue = builder.observer(MetricsObserver::new()).build();
        let handle_all = || {
            let workers = queue.workers().time_limit(1_000 * MS).build();
            let work = workers.run_async(async |item: &Item<'_, u32>| match **item {
                21 => std::future::pending().await,
                0 => Outcome::Failed("no luck".into()),
                1..3 => Outcome::GiveUp("gone".into()),
                3..6 => resume_unwind(Box::new("a handler")),
                6..10 => Outcome::PauseGroup { delay: MS, error: "429".into() },
                10..15 => Outcome::RequeueAfter(MS),
                _ => Outcome::Success,
            });
            (6..10).for_each(|key| queue.group(&key).resume());
            queue.add_all(0..22);
            // A loop gives way after a panic.
            let mut work = std::pin::pin!(work);
            (0..4).for_each(|_| _ = poll(work.as_mut(), &Arc::new(Calls::default())));
            _ = queue.take_delayed(); // so that the turn brings no run about
            time.advance(1_000 * MS);
            with_local_recorder(&exporter, || queue.turn()); // which also reports
            _ = poll(work.as_mut(), &Arc::new(Calls::default()));
            workers
        };
        let runs_are = |runs: [u64; 7]| {
            with_local_recorder(&exporter, || queue.inspect().report());
            let exported = RESULTS.map(|result| exporter.counter(&format!("{RUNS}{{name=pods,result={result}}}")));
            assert_eq!(exported, runs);
            assert_eq!(exporter.counter("workqueue_late_runs_total{name=pods}"), runs[6]);
        };
        let first = handle_all();
        runs_are([1, 2, 3, 4, 5, 6, 1]);
        let second = handle_all();
        runs_are([2, 4, 6, 8, 10, 12, 2]);
        drop((first, second));
        runs_are([2, 4, 6, 8, 10, 12, 2]);
    }

    #[test]
    fn priorities_have_series_of_their_own_and_sums_are_right() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        let add = |key, priority| queue.add_with(key, AddOptions::new().priority(Priority(priority)));
        let depth = |labels: &str| exporter.gauge(&format!("workqueue_depth{{name=pods{labels}}}"));
        let waits =
            |labels: &str| exporter.histogram(&format!("workqueue_queue_duration_seconds{{name=pods{labels}}}"));
        let is_about = |(count, sum): (usize, f64), expected: (usize, f64)| {
            assert!(count == expected.0 && (sum / expected.1 - 1.0).abs() < 0.0625, "{count}, {sum}: not {expected:?}");
        };
        with_local_recorder(&exporter, || {
            // Without priorities there is one series.
            queue.add(1);
            clock.advance(1000 * MS);
            queue.get().unwrap().done();
            queue.inspect().report();
            is_about(waits(""), (1, 1.0));
            // Keys of three levels, and one that is added again by its holder.
            queue.add_all([1, 2]);
            add(3, 100);
            add(4, -100);
            clock.advance(2000 * MS);
            let first = queue.get().unwrap();
            assert_eq!((*first, queue.add(3)), (3, Added::Deferred));
            queue.inspect().report();
            assert_eq!([depth(""), depth(",priority=100"), depth(",priority=-100")], [3.0, 0.0, 1.0]);
            assert_eq!(queue.stats().depth(), 4);
            is_about(waits(",priority=100"), (1, 2.0));
            is_about(waits(""), (1, 1.0));
            first.done();
            while let Ok(item) = queue.try_get() {
                item.done();
            }
            queue.inspect().report();
            queue.inspect().report(); // nothing new
            assert_eq!([depth(""), depth(",priority=100"), depth(",priority=-100")], [0.0; 3]);
            is_about(waits(",priority=100"), (1, 2.0));
            is_about(waits(",priority=-100"), (1, 2.0));
            is_about(waits(""), (4, 5.0)); // 1, 1 and 2, and 3 once more, which has not waited
            // Of many levels, 25 have their own series.
            (1..=40).for_each(|level: i8| _ = add(1000 + u32::from(level as u8), level));
            queue.inspect().report();
            let exported = exporter.text();
            let has = |level: i8| exported.contains(&format!("gauge workqueue_depth{{name=pods,priority={level}}}"));
            // The first two are 100 and -100; the others are visited highest first.
            assert_eq!((1..=40).filter(|&level| has(level)).collect::<Vec<_>>(), (18..=40).collect::<Vec<_>>());
            assert_eq!((depth(",priority=other"), depth(",priority=18"), depth("")), (17.0, 1.0, 0.0));
            clock.advance(1000 * MS);
            while let Ok(item) = queue.try_get() {
                item.done();
            }
            queue.inspect().report();
            is_about(waits(",priority=other"), (17, 17.0));
            assert_eq!((depth(",priority=other"), depth(",priority=18")), (0.0, 0.0));
        });
    }

    #[test]
    fn reports_out_of_order_decrease_no_counter_and_export_each_duration_once() {
        let exporter = Exporter::default();
        let (queue, clock) = observed("pods");
        let observer = MetricsObserver::new();
        with_local_recorder(&exporter, || {
            let mut reports = vec![queue.inspect().metrics()];
            for n in 1..200 {
                queue.add_all([n, n]);
                clock.advance(n * MS);
                drop(queue.get());
                reports.push(queue.inspect().metrics());
            }
            let mut last = 0;
            for at in (0..200).map(|n| n / 10 * 10 + [1, 0, 3, 2, 1, 3, 5, 4, 9, 8][n % 10]).chain([199, 0, 199]) {
                observer.report("pods", &reports[at]);
                let adds = exporter.counter("workqueue_adds_total{name=pods}");
                assert!(adds >= last, "a reader takes a counter that decreases for a restart");
                last = adds;
                assert_eq!(exporter.histogram("workqueue_work_duration_seconds{name=pods}").0 as u64, adds);
                assert_eq!(exporter.counter("workqueue_coalesced_total{name=pods}"), adds);
                let (count, sum) = exporter.histogram("workqueue_queue_duration_seconds{name=pods}");
                let expected = (1..=adds).sum::<u64>() as f64 / 1e3;
                assert!(
                    count as u64 == adds && (sum - expected).abs() <= expected / 16.0,
                    "{count}: {sum}, not {expected}"
                );
            }
            assert_eq!(last, 199);
        });
    }

    #[test]
    fn queues_of_one_name_are_counted_together() {
        let exporter = Exporter::default();
        let [(one, _), (two, _), (other, _)] = ["pods", "pods", "nodes"].map(observed);
        with_local_recorder(&exporter, || {
            for n in 0..3 {
                one.add(n);
                two.add_all([n, n + 100]);
                other.add(n);
                [&one, &two, &other].into_iter().for_each(|queue| queue.inspect().report());
            }
        });
        assert_eq!(exporter.counter("workqueue_adds_total{name=pods}"), 9);
        assert_eq!(exporter.counter("workqueue_adds_total{name=nodes}"), 3);
    }

    #[test]
    fn a_report_without_an_exporter_does_nothing_and_an_exporter_that_panics_is_called_again() {
        let (queue, _) = observed("pods");
        queue.add(1);
        queue.inspect().report();

        let (queue, _) = observed("pods");
        let exporter = Exporter::default();
        exporter.0.lock().unwrap().panics = true;
        with_local_recorder(&exporter, || {
            queue.add(1);
            assert!(catch_unwind(AssertUnwindSafe(|| queue.inspect().report())).is_err());
            queue.inspect().report();
            assert_eq!(exporter.counter("workqueue_adds_total{name=pods}"), 1);
        });
    }
}
