//! Which step makes which public call. A method that is on no list fails the test, so none is forgotten.

use std::collections::BTreeSet;
use std::path::Path;

/// For each type: its methods that a run calls (in `run.rs`, `run/` or `plan.rs`), and those that it need not call, with the reason.
const TYPES: [(&str, &[&str], &[&str]); 6] = [
    (
        "WorkQueue",
        &[
            "builder",
            "add",
            "add_all",
            "add_after",
            "add_with",
            "add_rate_limited",
            "forget",
            "num_requeues",
            "cancel",
            "remove",
            "take_delayed",
            "take_where",
            "get",
            "try_get",
            "get_timeout",
            "get_async",
            "get_owned",
            "try_get_owned",
            "get_owned_async",
            "get_many",
            "len",
            "is_empty",
            "processing_len",
            "delayed_len",
            "turn",
            "shut_down",
            "shut_down_with_drain",
            "shut_down_with_drain_timeout",
            "shut_down_with_drain_async",
            "wait_idle",
            "wait_idle_timeout",
            "wait_idle_async",
            "until_shutting_down",
            "shutting_down",
            "inspect",
            "stats",
            "shrink_to_fit",
            "workers",
            "shard_index",
        ],
        // A short form of the builder; a setting; a stream, which needs a feature (tests/streams.rs).
        &["new", "shards", "stream"],
    ),
    (
        "Inspect",
        &["metrics", "levels", "processing_keys", "delayed_keys", "groups"],
        // A setting; what is sent to an exporter (tests/observers.rs).
        &["name", "report", "report_every"],
    ),
    (
        "Item",
        &[
            "into_owned",
            "key",
            "done",
            "succeed",
            "give_up",
            "retry",
            "num_requeues",
            "requeue_after",
            "requeue_with",
            "priority",
            "waited",
            "until_dirty",
            "shutting_down",
            "is_dirty",
        ],
        // The same future as the queue's; a span, which needs a feature.
        &["until_shutting_down", "span"],
    ),
    (
        "OwnedItem",
        &[
            "key",
            "done",
            "succeed",
            "give_up",
            "retry",
            "requeue_after",
            "requeue_with",
            "num_requeues",
            "priority",
            "waited",
            "is_dirty",
            "until_dirty",
            "shutting_down",
        ],
        &["until_shutting_down", "span"],
    ),
    (
        "Workers",
        &["tally", "join", "join_async", "run_async", "run_boxed", "stop", "drain", "drain_timeout", "drain_async"],
        // A conversion; what `drain_async` calls; loops that need threads or a runtime (tests/workers.rs).
        &["queue", "drain_until", "run", "spawn_tasks"],
    ),
    (
        "WorkersBuilder",
        &["max_retries", "on_error", "on_panic", "on_give_up", "build"],
        // Settings; threads.
        &["name", "traced", "spawn"],
    ),
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

/// Fails for a method that is on no list, for one that is on a list and is no method, and for one that no run calls.
pub(crate) fn check() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut runs = vec![include_str!("run.rs").to_owned(), include_str!("plan.rs").to_owned()];
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/run"), &mut runs);
    let runs = runs.concat();
    for (name, called, excepted) in TYPES {
        let mut found = BTreeSet::new();
        files.iter().for_each(|file| methods_of(name, file, &mut found));
        let listed: BTreeSet<String> = called.iter().chain(excepted).map(|method| (*method).to_owned()).collect();
        assert_eq!(found, listed, "the methods of {name}");
        for method in called {
            let calls = [".", "::"].map(|before| format!("{before}{method}("));
            assert!(calls.iter().any(|call| runs.contains(call)), "no run calls {name}::{method}");
        }
    }
}
