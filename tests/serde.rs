//! Snapshots and lists of keys as data (feature `serde`): each is the same after it was written as JSON and read back.
#![cfg(feature = "serde")]

use keyqueue::observe::{Histogram, Metrics, Runs};
use keyqueue::{AddOptions, Clock, DelayedKey, Driver, Leftover, OwnedItem, Priority, Stats, WorkQueue};
use serde_json::{Value, from_str, from_value, json, to_string, to_value};
use std::fmt::Debug;
use std::time::Duration;

fn same_after_json<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug>(value: &T) {
    assert_eq!(&from_str::<T>(&to_string(value).unwrap()).unwrap(), value);
}

/// A queue that measures, with keys in each state, and the item of the one that is processing.
fn busy() -> (WorkQueue<String>, OwnedItem<String>) {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).measure(true).build();
    queue.add_all(["done", "processing", "queued"].map(str::to_owned));
    queue.add_with("high".to_owned(), AddOptions::new().priority(Priority::HIGH));
    time.advance(Duration::from_micros(1500));
    for _ in 0..2 {
        queue.get().unwrap().succeed();
    }
    let item = queue.get().unwrap().into_owned();
    queue.add_after("delayed".to_owned(), Duration::from_millis(2500));
    queue.add_after("never".to_owned(), Duration::MAX);
    time.advance(Duration::from_secs(2));
    (queue, item)
}

#[test]
fn snapshots_are_read_back() {
    let (queue, _item) = busy();
    same_after_json(&queue.stats());
    same_after_json(&queue.inspect().metrics());
    same_after_json(&queue.inspect().delayed_keys());
    same_after_json(&queue.inspect().processing_keys());
    same_after_json(&queue.inspect().levels());
    let groups = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    groups.add_all([1, 2, 3]);
    same_after_json(&groups.inspect().groups());
    let leftover = queue.take_where(|_| true);
    assert_eq!((leftover.queued.len(), leftover.processing.len(), leftover.delayed.len()), (1, 1, 2));
    same_after_json(&leftover);

    let queue = WorkQueue::new();
    queue.add("refused".to_owned());
    queue.shut_down();
    let leftover = queue.workers().spawn(1, |_| Err::<(), _>("broken")).unwrap().drain();
    assert_eq!(leftover.refused, ["refused"]);
    same_after_json(&leftover);
}

#[test]
fn fields_have_their_names_and_durations_are_seconds_and_nanoseconds() {
    let (queue, _item) = busy();
    let metrics = to_value(queue.inspect().metrics()).unwrap();
    assert_eq!(metrics["stats"]["handed_out"], 3);
    assert_eq!(metrics["stats"]["next_deadline"], json!({ "secs": 0, "nanos": 500_000_000 }));
    assert_eq!(metrics["levels"][0]["priority"], 100);
    assert_eq!(metrics["queue_duration"]["count"], 3);
    assert_eq!(metrics["queue_duration"]["sum"], json!({ "secs": 0, "nanos": 4_500_000 }));
    let delayed = to_value(queue.inspect().delayed_keys()).unwrap();
    let first = json!({ "key": "delayed", "left": { "secs": 0, "nanos": 500_000_000 }, "priority": 0 });
    assert_eq!(delayed[0], first);
    assert_eq!(delayed[1]["left"]["secs"], u64::MAX);
}

/// What an older version has written lacks fields, and what a newer one has written has more.
#[test]
fn missing_and_unknown_fields_are_accepted() {
    let mut expected = Stats::default();
    (expected.len, expected.shutting_down) = (3, true);
    assert_eq!(from_value::<Stats>(json!({ "len": 3, "shutting_down": true, "new": 1 })).unwrap(), expected);
    assert_eq!(from_value::<Metrics>(json!({})).unwrap(), Metrics::default());
    let leftover: Leftover<u8> = from_value(json!({ "queued": [1, 2], "new": [] })).unwrap();
    assert_eq!((&leftover.queued[..], leftover.refused.len()), (&[1, 2][..], 0));
    assert_eq!(from_value::<Runs>(json!({ "panic": 1 })).unwrap().panic, 1);
    assert!(from_value::<DelayedKey<u8>>(json!({ "key": 1 })).is_err(), "when?");
}

#[test]
fn a_histogram_with_counts_that_cannot_be_is_refused() {
    let bucket = |count: u64| json!([{ "secs": 1, "nanos": 0 }, count]);
    let histogram = |buckets: Value| {
        from_value::<Histogram>(json!({ "count": 7, "sum": { "secs": 2, "nanos": 0 }, "buckets": buckets }))
    };
    let two = histogram(json!([bucket(1), bucket(1)])).unwrap();
    assert_eq!((two.count(), two.sum()), (2, Duration::from_secs(2)), "it counts for itself");
    assert!(histogram(json!([bucket(u64::MAX), bucket(1)])).is_err());
}
