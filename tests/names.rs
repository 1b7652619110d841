//! The names that users of client-go and controller-runtime search for.
//!
//! Checks: each is a `#[doc(alias)]` of the item that serves it, so that rustdoc's search finds it, and stands in a row of the
//! cookbook's tables, which says what differs.

use std::path::Path;

/// The identifier of an item, and the names that it serves.
const NAMES: &[(&str, &str)] = &[
    (
        "new",
        "NewQueue NewTyped NewDelayingQueue NewTypedDelayingQueue NewRateLimitingQueue NewTypedRateLimitingQueue priorityqueue.New",
    ),
    ("builder", "NewWithConfig NewTypedWithConfig NewDelayingQueueWithConfig NewTypedDelayingQueueWithConfig"),
    ("builder", "NewRateLimitingQueueWithConfig NewTypedRateLimitingQueueWithConfig"),
    (
        "WorkQueueBuilder",
        "QueueConfig TypedQueueConfig DelayingQueueConfig TypedDelayingQueueConfig RateLimitingQueueConfig TypedRateLimitingQueueConfig",
    ),
    ("name", "NewNamed NewNamedDelayingQueue NewNamedRateLimitingQueue"),
    ("clock", "NewDelayingQueueWithCustomClock"),
    (
        "WorkQueue",
        "Interface TypedInterface DelayingInterface TypedDelayingInterface RateLimitingInterface TypedRateLimitingInterface",
    ),
    ("add", "Add"),
    ("get", "Get"),
    ("done", "Done"),
    ("len", "Len"),
    ("shut_down", "ShutDown"),
    ("shut_down_with_drain", "ShutDownWithDrain"),
    ("shutting_down", "ShuttingDown"),
    ("add_after", "AddAfter waitingForAddCh"),
    ("Driver", "waitingLoop"),
    ("add_rate_limited", "AddRateLimited"),
    ("forget", "Forget"),
    ("num_requeues", "NumRequeues"),
    (
        "ItemExponentialFailure",
        "NewItemExponentialFailureRateLimiter NewTypedItemExponentialFailureRateLimiter DefaultItemBasedRateLimiter",
    ),
    ("ItemFastSlow", "NewItemFastSlowRateLimiter NewTypedItemFastSlowRateLimiter"),
    ("Step", "StepRateLimiter"),
    ("Bucket", "BucketRateLimiter TypedBucketRateLimiter"),
    ("MaxOf", "NewMaxOfRateLimiter NewTypedMaxOfRateLimiter"),
    ("WithMaxWait", "NewWithMaxWaitRateLimiter NewTypedWithMaxWaitRateLimiter"),
    ("default_controller_rate_limiter", "DefaultControllerRateLimiter DefaultTypedControllerRateLimiter"),
    ("Observer", "MetricsProvider"),
    ("interval", "updateUnfinishedWorkLoop"),
    ("step", "Step Backoff"),
    ("jitter", "Jitter"),
    ("exponential", "NewExponentialBackoffManager"),
    ("windowed", "DelayWithReset"),
    ("backoff_until", "BackoffUntil JitterUntil Until"),
    ("add_with", "AddWithOpts"),
    ("AddOptions", "AddOpts"),
    ("priority", "GetWithPriority"),
    ("GiveUp", "TerminalError"),
    ("requeue_after", "RequeueAfter"),
];

/// The text of all files of a folder.
fn read_all(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the sources are here") {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

/// The name of the item that follows these lines of attributes.
fn item(lines: &str) -> &str {
    let line = lines.lines().map(str::trim_start).find(|line| !line.starts_with("#[") && !line.starts_with("//"));
    let words = line.unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words =
        words.filter(|word| !matches!(*word, "pub" | "const" | "async" | "fn" | "struct" | "enum" | "trait" | "type"));
    words.next().unwrap_or_default()
}

#[test]
fn the_names_of_client_go_are_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut sources, cookbook) = (String::new(), std::fs::read_to_string(folder.join("cookbook.rs")).unwrap());
    read_all(&folder, &mut sources);
    let rows: Vec<_> = cookbook.lines().filter(|line| line.starts_with("//! | ")).collect();
    let mut missing = Vec::new();
    let names = NAMES.iter().flat_map(|(serves, names)| names.split(' ').map(move |name| (name, serves)));
    for (name, serves) in names {
        let alias = format!("#[doc(alias = \"{name}\")]\n");
        let items: Vec<_> = sources.match_indices(&alias).map(|(at, _)| item(&sources[at..])).collect();
        if !items.contains(serves) {
            missing.push(format!("{name}: an alias of `{serves}`, not only of {items:?}"));
        }
        // As a word between backticks: `Get`, `wait.BackoffUntil`, `Result{RequeueAfter: d}`.
        let is_word = |text: &str| {
            text.match_indices(name).any(|(at, _)| {
                let around = [text[..at].chars().next_back(), text[at + name.len()..].chars().next()];
                around.into_iter().flatten().all(|c| !c.is_alphanumeric())
            })
        };
        let in_left_cell =
            |row: &&str| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2).any(is_word);
        if !rows.iter().any(in_left_cell) {
            missing.push(format!("{name}: a row of the cookbook"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
