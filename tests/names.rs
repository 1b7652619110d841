//! The names that users of client-go and controller-runtime search for: those in the left cells of the cookbook's tables.
//!
//! Checks: each part of client-go's design has a row, the private ones too. Each `#[doc(alias)]` that a row names is one of an item that
//! the same row names, so that rustdoc's search finds it; their number is known, so that none goes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The parts of client-go's `util/workqueue` that are private, and those of apimachinery's `util/wait` that have to do with backoff.
/// [`PUBLIC`] has the others.
const PARTS: &str = "waitFor readyAt waitForPriorityQueue waitingForQueue waitingEntryByData insert waitingForAddCh waitingLoop
    nextReadyAtTimer heartbeat maxWait stopCh stopOnce delayingType rateLimitingType queue dirty processing cond shuttingDown drain wg
    unfinishedWorkUpdatePeriod defaultUnfinishedWorkUpdatePeriod updateUnfinishedWork updateUnfinishedWorkLoop queueMetrics
    defaultQueueMetrics addTimes processingStartTimes retryMetrics defaultRetryMetrics noMetrics noopMetric noopMetricsProvider
    globalMetricsProvider failures failuresLock Stingy exponentialBackoffManagerImpl getNextBackoff jitteredBackoffManagerImpl
    backoffManager wait.Backoff Step wait.Jitter wait.DelayFunc wait.Timer wait.BackoffManager wait.NewExponentialBackoffManager
    wait.NewJitteredBackoffManager wait.Backoff.DelayWithReset wait.BackoffUntil wait.JitterUntil wait.Until wait.NonSlidingUntil
    wait.Forever wait.NeverStop wait.ExponentialBackoff wait.PollUntilContextTimeout wait.Group wait.ContextForChannel";

/// The public names of client-go's `util/workqueue`, of 24 July 2026 (commit 32ce75a7): types, functions, and the methods of interfaces.
const PUBLIC: &str = "RateLimiter TypedRateLimiter When NumRequeues Forget DefaultControllerRateLimiter DefaultTypedControllerRateLimiter
    BucketRateLimiter TypedBucketRateLimiter ItemExponentialFailureRateLimiter TypedItemExponentialFailureRateLimiter
    NewItemExponentialFailureRateLimiter NewTypedItemExponentialFailureRateLimiter DefaultItemBasedRateLimiter
    DefaultTypedItemBasedRateLimiter ItemFastSlowRateLimiter TypedItemFastSlowRateLimiter NewItemFastSlowRateLimiter
    NewTypedItemFastSlowRateLimiter MaxOfRateLimiter TypedMaxOfRateLimiter NewMaxOfRateLimiter NewTypedMaxOfRateLimiter
    WithMaxWaitRateLimiter TypedWithMaxWaitRateLimiter NewWithMaxWaitRateLimiter NewTypedWithMaxWaitRateLimiter DelayingInterface
    TypedDelayingInterface DelayingQueueConfig TypedDelayingQueueConfig NewDelayingQueue NewTypedDelayingQueue
    NewDelayingQueueWithConfig TypedNewDelayingQueue NewTypedDelayingQueueWithConfig NewDelayingQueueWithCustomQueue
    NewNamedDelayingQueue NewDelayingQueueWithCustomClock AddAfter GaugeMetric SettableGaugeMetric CounterMetric SummaryMetric
    HistogramMetric MetricsProvider NewDepthMetric NewAddsMetric NewLatencyMetric NewWorkDurationMetric NewUnfinishedWorkSecondsMetric
    NewLongestRunningProcessorSecondsMetric NewRetriesMetric SetProvider DoWorkPieceFunc Options WithChunkSize ParallelizeUntil Interface
    TypedInterface Add Len Get Done ShutDown ShutDownWithDrain ShuttingDown Queue Touch Push Pop DefaultQueue QueueConfig
    TypedQueueConfig New NewTyped NewWithConfig NewTypedWithConfig NewNamed Type Typed RateLimitingInterface
    TypedRateLimitingInterface AddRateLimited RateLimitingQueueConfig TypedRateLimitingQueueConfig NewRateLimitingQueue
    NewTypedRateLimitingQueue NewRateLimitingQueueWithConfig NewTypedRateLimitingQueueWithConfig NewNamedRateLimitingQueue
    NewRateLimitingQueueWithDelayingInterface";

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

/// Whether a text has this name as a word.
fn has_word(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let around = [text[..at].chars().next_back(), text[at + name.len()..].chars().next()];
        around.into_iter().flatten().all(|c| !c.is_alphanumeric() && c != '_')
    })
}

/// The words between backticks: `Get`, `wait.BackoffUntil`, `Result{RequeueAfter: d}`.
fn codes(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn each_part_of_client_go_has_a_row() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cookbook.rs");
    let cookbook = std::fs::read_to_string(file).unwrap();
    let (_, section) = cookbook.split_once("//! # From client-go\n").expect("a section of the cookbook");
    let (section, _) = section.split_once("\n//! # ").expect("the next section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("//! | ")?.split_once(" | "));
    // A row without a link says that there is no such thing here.
    let rows = rows.filter(|(_, right)| right.contains("](") || right.starts_with("not here"));
    let found: BTreeSet<_> = rows.flat_map(|(left, _)| codes(left)).collect();
    let missing: Vec<_> =
        PUBLIC.split_whitespace().chain(PARTS.split_whitespace()).filter(|name| !found.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_names_of_client_go_are_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut sources, cookbook) = (String::new(), std::fs::read_to_string(folder.join("cookbook.rs")).unwrap());
    read_all(&folder, &mut sources);
    let mut aliases = BTreeMap::<_, BTreeSet<_>>::new();
    for alias in sources.split("#[doc(alias = \"").skip(1) {
        let (name, after) = alias.split_once("\")]\n").expect("an alias has a line of its own");
        aliases.entry(name).or_default().insert(item(after));
    }
    let rows = cookbook.lines().filter_map(|line| line.strip_prefix("//! | ")?.split_once(" | "));
    let (mut named, mut found) = (BTreeSet::new(), BTreeSet::new());
    for (left, right) in rows {
        let is_left = |name: &str| codes(left).any(|code| has_word(code, name));
        for (name, items) in aliases.iter().filter(|(name, _)| is_left(name)) {
            named.insert(name);
            found.extend(items.iter().any(|item| has_word(right, item)).then_some(name));
        }
    }
    assert_eq!(named, found, "the row does not name the alias's item");
    assert_eq!(found.len(), 113, "{found:?}");
}
