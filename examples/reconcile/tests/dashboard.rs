//! Checks that the dashboard of `examples/grafana/` shows what the example `reconcile` serves with `--metrics`. That needs the
//! example: `cargo test -p reconcile --features metrics` builds it. For `--test dashboard` alone, run `cargo build -p reconcile
//! --features metrics --example reconcile` first.

#![cfg(not(miri))] // Miri starts no processes

#[cfg(feature = "metrics")]
mod support {
    pub(crate) mod example;
}

use serde_json::Value;
use std::collections::BTreeSet;

/// The text of the first field of this name in `value`.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field:?} in {value:#}"))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().unwrap_or_else(|| panic!("no {field:?} in {value:#}"))
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../grafana/keyqueue.json")).expect("it is JSON")
}

/// The panels, rows aside.
fn panels(dashboard: &Value) -> Vec<&Value> {
    list(dashboard, "panels").iter().filter(|panel| panel["type"] != "row").collect()
}

fn expressions<'a>(panels: &[&'a Value]) -> Vec<&'a str> {
    panels.iter().flat_map(|panel| list(panel, "targets")).map(|target| text(target, "expr")).collect()
}

/// The metrics in an expression: the word before each selector. All other words must be PromQL's, so that no metric without a
/// selector, or with another one, is overlooked: each panel shows the chosen queues only.
fn metrics_in(expression: &str) -> Vec<&str> {
    const SELECTOR: &str = r#"{name=~"$name"}"#;
    const PROMQL: [&str; 7] = ["by", "histogram_quantile", "max", "max_over_time", "min", "rate", "sum"];
    const OTHERS: [&str; 5] = ["Inf", "__rate_interval", "le", "name", "result"];
    let mut metrics = Vec::new();
    let mut parts = expression.split(SELECTOR).peekable();
    while let Some(part) = parts.next() {
        let words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let mut words: Vec<&str> = words.collect();
        if parts.peek().is_some() {
            metrics.extend(words.pop());
        }
        let is_known = |word: &&str| PROMQL.contains(word) || OTHERS.contains(word) || word.parse::<u32>().is_ok();
        assert!(
            words.iter().all(is_known),
            "{expression}: one of {words:?} is unknown here, or lacks its selector there"
        );
    }
    metrics
}

/// Each result of a run has a colour that says what it means, whatever other series there are: by their order, success was red.
#[test]
fn each_result_of_a_run_has_its_own_colour() {
    let dashboard = dashboard();
    let runs = panels(&dashboard).into_iter().find(|panel| panel["title"] == "Runs by result").expect("it exists");
    assert!(list(runs, "targets").iter().all(|target| text(target, "legendFormat").ends_with(" {{result}}")));
    let colours: Vec<_> = list(&runs["fieldConfig"], "overrides")
        .iter()
        .map(|rule| {
            let [matcher, set] = [&rule["matcher"], &rule["properties"][0]];
            assert_eq!(
                [text(matcher, "id"), text(set, "id"), text(&set["value"], "mode")],
                ["byRegexp", "color", "fixed"]
            );
            (text(matcher, "options"), text(&set["value"], "fixedColor"))
        })
        .collect();
    let expected = [
        ("/ success$/", "green"),
        ("/ requeue$/", "blue"),
        ("/ error$/", "orange"),
        ("/ give_up$/", "red"),
        ("/ panic$/", "dark-red"),
    ];
    assert_eq!(colours, expected);
}

/// The picture of the README was drawn since the last panel was added or renamed.
#[test]
fn the_picture_has_each_panel() {
    let picture = include_str!("../../grafana/keyqueue.svg");
    for panel in list(&dashboard(), "panels") {
        let title = text(panel, "title");
        assert!(picture.contains(&format!(">{title}</text>")), "{title}: draw it with examples/grafana/picture.py");
    }
}

#[test]
fn the_dashboard_can_be_imported_and_each_panel_says_what_to_do() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 39), "Grafana 11 or later");
    assert_eq!(dashboard["id"], Value::Null, "an id would replace another dashboard");
    let variables: Vec<_> =
        list(&dashboard["templating"], "list").iter().map(|variable| text(variable, "name")).collect();
    assert_eq!(variables, ["datasource", "name"]);

    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in list(&dashboard, "panels") {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64()), "another panel has the id of {title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
        assert!(x + w <= 24, "{title} is too wide");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} covers another panel");
        }
    }
    let panels = panels(&dashboard);
    assert!(!panels.is_empty());
    for panel in &panels {
        let title = text(panel, "title");
        assert!(text(panel, "description").len() > 100, "{title} does not say what to do");
        assert!(!list(panel, "targets").is_empty(), "{title} shows nothing");
        for shown in std::iter::once(*panel).chain(list(panel, "targets")) {
            assert_eq!(text(&shown["datasource"], "uid"), "${datasource}", "{title}");
        }
        // A panel that a description names must exist.
        let quoted = text(panel, "description").split('"').skip(1).step_by(2);
        for name in quoted {
            assert!(
                panels.iter().any(|panel| text(panel, "title") == name),
                "{title} names {name:?}, which is no panel"
            );
        }
    }
    for expression in expressions(&panels) {
        assert!(!metrics_in(expression).is_empty(), "{expression}");
    }
}

#[cfg(feature = "metrics")]
mod served {
    use super::{dashboard, expressions, list, metrics_in, panels, text};
    use crate::support::example::{TempDir, command};
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::path::Path;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(60);

    /// A running example, killed when dropped.
    struct Running {
        child: Child,
        address: SocketAddr,
    }

    impl Running {
        /// Starts the example on this path, with nothing to verify for an hour.
        fn start(path: &Path) -> Self {
            // A free port, unless another process takes it now: then the example ends, and the test fails.
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut example = command();
            example.arg(path).args(["--metrics", &address.to_string(), "--verify-every", "3600"]);
            Self { child: example.stdout(Stdio::null()).spawn().unwrap(), address }
        }

        /// What Prometheus would get.
        fn scrape(&self) -> Scrape {
            let deadline = Instant::now() + LONG;
            let mut stream = loop {
                match TcpStream::connect(self.address) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(Instant::now() < deadline, "not built with --features metrics? {error}"),
                }
                std::thread::sleep(Duration::from_millis(10)); // It has just been started.
            };
            stream.set_read_timeout(Some(LONG)).unwrap();
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
            stream.write_all(request.as_bytes()).unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            Scrape::parse(body)
        }

        /// Scrapes until `is_so` holds.
        fn scrape_until(&self, is_so: impl Fn(&Scrape) -> bool) -> Scrape {
            let deadline = Instant::now() + LONG;
            loop {
                let scrape = self.scrape();
                if is_so(&scrape) {
                    return scrape;
                }
                assert!(Instant::now() < deadline, "the condition does not come true; the last: {scrape:#?}");
                std::thread::sleep(Duration::from_millis(50)); // The queue reports every 500 ms.
            }
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// The text format of Prometheus.
    #[derive(Debug)]
    struct Scrape {
        /// Metrics, and whether each is a counter, a gauge or a histogram.
        types: BTreeMap<String, String>,
        /// A histogram has several samples, by other names than its own.
        samples: Vec<Sample>,
    }

    #[derive(Debug)]
    struct Sample {
        name: String,
        labels: BTreeMap<String, String>,
        value: f64,
    }

    impl Scrape {
        fn parse(body: &str) -> Self {
            let mut scrape = Self { types: BTreeMap::new(), samples: Vec::new() };
            for line in body.lines().filter(|line| !line.is_empty()) {
                if let Some(of) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = of.split_once(' ').expect("a name and a type");
                    scrape.types.insert(name.into(), kind.into());
                } else if !line.starts_with('#') {
                    scrape.samples.push(Sample::parse(line).unwrap_or_else(|| panic!("no sample: {line:?}")));
                }
            }
            scrape
        }

        fn ours(&self) -> impl Iterator<Item = &Sample> {
            self.samples.iter().filter(|sample| sample.name.starts_with("workqueue_"))
        }

        /// The one sample of this name; NaN if there is none.
        fn value(&self, name: &str) -> f64 {
            self.ours().find(|sample| sample.name == name).map_or(f64::NAN, |sample| sample.value)
        }
    }

    impl Sample {
        /// Parses a line whose label values have neither commas nor quotes.
        fn parse(line: &str) -> Option<Self> {
            let (series, value) = line.rsplit_once(' ')?;
            let (name, labels) =
                series.strip_suffix('}').map_or(Some((series, "")), |series| series.split_once('{'))?;
            let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
                let (name, value) = label.split_once('=')?;
                Some((name.into(), value.strip_prefix('"')?.strip_suffix('"')?.into()))
            });
            Some(Self { name: name.into(), labels: labels.collect::<Option<_>>()?, value: value.parse().ok()? })
        }
    }

    /// A directory with `files` files, the example when it has looked at it and at all of them, and what it serves then.
    fn after_one_pass(files: usize) -> (TempDir, Running, Scrape) {
        let dir = TempDir::new();
        for i in 0..files {
            std::fs::write(dir.path().join(i.to_string()), "hello").unwrap();
        }
        let running = Running::start(dir.path());
        let scrape =
            running.scrape_until(|scrape| scrape.value("workqueue_work_duration_seconds_count") > files as f64);
        (dir, running, scrape)
    }

    #[test]
    fn the_dashboard_shows_exactly_what_is_served() {
        let (_dir, _running, scrape) = after_one_pass(3);
        let samples: BTreeSet<&str> = scrape.samples.iter().map(|sample| &*sample.name).collect();
        let dashboard = dashboard();
        let expressions = expressions(&panels(&dashboard));
        let shown: BTreeSet<&str> = expressions.iter().flat_map(|expression| metrics_in(expression)).collect();
        let unknown: Vec<_> = shown.difference(&samples).collect();
        assert!(unknown.is_empty(), "shown, but not served: {unknown:?}\nserved: {samples:#?}");

        let is_shown = |name: &str, kind: &str| {
            let as_histogram = |name: &str| shown.contains(&*format!("{name}_bucket"));
            shown.contains(name) || (kind == "histogram" && as_histogram(name))
        };
        let ours = scrape.types.iter().filter(|(name, _)| name.starts_with("workqueue_"));
        let hidden: Vec<_> = ours.filter(|(name, kind)| !is_shown(name, kind)).collect();
        assert!(hidden.is_empty(), "served, but on no panel: {hidden:?}");
        assert!(scrape.types.keys().any(|name| name == "workqueue_depth"), "{:?}", scrape.types);

        // The queues to choose from are those of a metric that is served.
        let variable =
            list(&dashboard["templating"], "list").iter().find(|variable| variable["name"] == "name").unwrap();
        assert_eq!(text(&variable["query"], "query"), "label_values(workqueue_depth, name)");
        assert_eq!(variable["definition"], variable["query"]["query"]);
    }

    #[test]
    fn the_served_values_are_plausible() {
        const FILES: usize = 500;
        let (_dir, _running, scrape) = after_one_pass(FILES);
        for sample in scrape.ours() {
            assert_eq!(sample.labels.get("name").map(|name| &**name), Some("reconcile"), "{sample:?}");
            assert!(sample.value >= 0.0, "{sample:?}");
        }
        let is = |name: &str, value: usize| {
            let name = format!("workqueue_{name}");
            assert_eq!(scrape.value(&name), value as f64, "{name}: {scrape:#?}");
        };
        // Each path was processed once and is delayed now, by an add that client-go counts as a retry.
        let paths = FILES + 1;
        let once = ["adds_total", "queue_duration_seconds_count", "work_duration_seconds_count", "retries_total"];
        once.iter().for_each(|name| is(name, paths));
        is("delayed", paths);
        for name in ["depth", "processing", "failing", "oldest_queued_seconds", "unfinished_work_seconds"] {
            is(name, 0);
        }
        for name in ["coalesced", "given_up", "panics", "rejected"] {
            is(&format!("{name}_total"), 0);
        }
        for histogram in ["workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"] {
            assert_eq!(scrape.types.get(histogram).map(|kind| &**kind), Some("histogram"));
            let [sum, count] = ["sum", "count"].map(|what| scrape.value(&format!("{histogram}_{what}")));
            // Checking a file takes some microseconds, and less time than the test.
            assert!(sum > 1e-6 * count && sum < LONG.as_secs_f64() * count, "{histogram}: {sum} s");
            let buckets: Vec<(f64, f64)> = scrape
                .ours()
                .filter(|sample| sample.name == format!("{histogram}_bucket"))
                .map(|sample| (sample.labels["le"].parse().expect("a number"), sample.value))
                .collect();
            assert!(buckets.is_sorted(), "{buckets:?}");
            assert_eq!((buckets[0].0, buckets.last()), (1e-5, Some(&(f64::INFINITY, count))), "{buckets:?}");
            assert!(buckets.windows(2).all(|pair| pair[1].0 / pair[0].0 >= 4.0 - 1e-9), "{buckets:?}");
        }
    }

    #[test]
    fn an_address_that_is_taken_is_an_error() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let output = command().args(["--once", "--metrics", &address]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("Address already in use"), "{output:?}");
    }

    /// The memory of a process is a regular file that cannot be read at offset 0.
    #[cfg(target_os = "linux")]
    #[test]
    fn failures_are_served_too() {
        let running = Running::start(Path::new("/proc/self/mem"));
        let scrape = running.scrape_until(|scrape| scrape.value("workqueue_given_up_total") >= 1.0);
        let of = [
            "retries_total",
            "given_up_total",
            "adds_total",
            "queue_duration_seconds_count",
            "failing",
            "panics_total",
        ];
        let values = of.map(|name| scrape.value(&format!("workqueue_{name}")));
        assert_eq!(values, [5.0, 1.0, 6.0, 6.0, 0.0, 0.0], "{of:?}: {scrape:#?}");
    }
}
