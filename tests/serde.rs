//! Snapshots and lists of keys as data (feature `serde`): each is the same after it was written as JSON and read back.
#![cfg(feature = "serde")]

use keyqueue::observe::{Histogram, Metrics, Runs};
use keyqueue::{AddOptions, Clock, DelayedKey, Driver, GroupLimits, Leftover, OwnedItem, Priority, Stats, WorkQueue};
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
    for key in ["queued", "processing", "delayed", "never", "absent"] {
        same_after_json(&queue.inspect().key(key));
    }
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

/// Groups that are full, throttled, and paused with and without an end. Their weights are equal, so that no fraction is one that
/// `serde_json` rounds as it reads it.
#[test]
fn statistics_of_groups_are_read_back() {
    let (clock, _time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).measure(true);
    let queue = builder.fair_by(|&(group, _): &(u8, u32)| group).pace(10.0, 5).build();
    queue.add_all((0..20).map(|n| (n as u8 % 5, n)));
    queue.group(&(0, 0)).set(GroupLimits::new().max_processing(1)).unwrap();
    queue.group(&(1, 0)).set(GroupLimits::new().rate(0.5, 1)).unwrap();
    let _items = queue.get_many(5);
    queue.group(&(2, 0)).pause(Duration::from_millis(1500)).unwrap();
    queue.group(&(3, 0)).pause(Duration::MAX).unwrap();
    let (stats, groups) = (queue.stats(), queue.inspect().groups());
    assert_eq!((stats.groups_full, stats.groups_throttled, stats.groups_paused, stats.groups_set), (1, 1, 2, 2));
    assert!(stats.paced_for.is_some() && groups.len() == 5);
    same_after_json(&stats);
    same_after_json(&groups);
    (0..10).for_each(|n| same_after_json(&queue.inspect().key(&(n as u8 % 5, n))));
    same_after_json(&queue.inspect().metrics());
    same_after_json(&queue.group(&(1, 0)).stats());
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
    assert_eq!(from_value::<GroupLimits>(json!({ "rate": [5.0, 10] })).unwrap(), GroupLimits::new().rate(5.0, 10));
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
