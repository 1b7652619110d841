//! Each public method is called by a run, or excepted, so none is forgotten.

use std::collections::BTreeSet;
use std::path::Path;

/// For each type: its public methods that a run need not call, with the reason. A run calls all others (in `run.rs`, `run/` or `plan.rs`).
const EXCEPTED: [(&str, &[&str]); 10] = [
    // A short form of the builder; a setting; a stream, which needs a feature (tests/streams.rs).
    ("WorkQueue", &["new", "shards", "stream"]),
    // A setting; what is sent to an exporter (tests/observers.rs).
    ("Inspect", &["name", "report"]),
    // The same future as the queue's; a span, which needs a feature.
    ("Item", &["until_shutting_down", "span"]),
    ("OwnedItem", &["until_shutting_down", "span"]),
    // A conversion; what `drain_async` calls; `finish` for tasks (tests/stops.rs); loops that need threads or a runtime (tests/workers.rs).
    ("Workers", &["queue", "drain_until", "finish_until", "run", "run_batch", "spawn_tasks", "set_concurrency"]),
    // Settings; threads; a hook that a turn calls (tests/time_limits.rs); texts (tests/key_state.rs).
    ("WorkersBuilder", &["name", "traced", "traced_display", "spawn", "on_stuck", "keep_errors"]),
    ("Batch", &[]),
    ("Group", &[]),
    // Without a merge the latest value wins (tests/values.rs); the queue that the run has.
    ("ValueQueue", &["new", "queue"]),
    ("Value", &[]),
];

/// The public methods of a type, as the sources have them.
fn methods_of(name: &str, file: &str, found: &mut BTreeSet<String>) {
    let mut inside = false;
    for line in file.lines() {
        if line.starts_with("impl") {
            let of = line.split(" for ").last().unwrap_or(line);
            inside = of.split(&[' ', '<', '>', '{'][..]).any(|word| word == name) && !line.contains(" for ");
        } else if line.starts_with('}') {
            inside = false;
        } else if let Some(rest) = line.strip_prefix("    pub ").filter(|_| inside) {
            let rest = rest.trim_start_matches("const ").trim_start_matches("async ");
            if let Some(method) = rest.strip_prefix("fn ") {
                let end = method.find(|letter: char| !letter.is_alphanumeric() && letter != '_').expect("a signature");
                found.insert(method[..end].to_owned());
            }
        }
    }
}

fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in folder.read_dir().expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// Fails for a method that no run calls and that is not excepted, and for an exception that is no method.
pub(crate) fn check() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut runs = vec![include_str!("run.rs").to_owned(), include_str!("plan.rs").to_owned()];
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/run"), &mut runs);
    let runs = runs.concat();
    for (name, excepted) in EXCEPTED {
        let mut found = BTreeSet::new();
        files.iter().for_each(|file| methods_of(name, file, &mut found));
        assert!(found.len() > excepted.len(), "the methods of {name} are not found");
        for method in excepted {
            assert!(found.remove(*method), "{name} has no method {method}");
        }
        for method in found {
            let calls =
                [(".", "("), ("::", "("), ("::", ",")].map(|(before, after)| format!("{before}{method}{after}"));
            assert!(calls.iter().any(|call| runs.contains(call)), "no run calls {name}::{method}");
        }
    }
}
