//! Values of keys (`keyqueue::values`): each accepted value is in exactly one successful run, or taken out (P26).

use keyqueue::values::{Refused, ValueQueue};
use keyqueue::{Added, WorkQueue};
use loom_tests::{check, manual, with};

/// Keeps the number of each add.
fn collecting(queue: WorkQueue<u64>) -> ValueQueue<u64, Vec<u8>> {
    ValueQueue::with_merge(queue, |older: &Vec<u8>, newer: &Vec<u8>| [&older[..], newer].concat())
}

fn manual_values() -> ValueQueue<u64, Vec<u8>> {
    collecting(manual().0.build())
}

/// A run of the next key: what it has read and succeeded with.
fn run(values: &ValueQueue<u64, Vec<u8>>) -> Option<Vec<u8>> {
    let item = values.queue().try_get().ok()?;
    let read = values.value(&item).map(|value| {
        let read = value.to_vec();
        assert!(value.succeed());
        read
    });
    item.succeed();
    Some(read.unwrap_or_default())
}

/// The runs of all keys that are queued.
fn rest(values: &ValueQueue<u64, Vec<u8>>) -> Vec<u8> {
    std::iter::from_fn(|| run(values)).flatten().collect()
}

/// An add meets the get of its key, the read and the success of its value, and the end of the hand-out.
#[test]
fn an_add_of_a_value_meets_a_run() {
    check(|| {
        let values = manual_values();
        values.add(1, vec![1]).unwrap();
        let other = with(&values, |values| values.add(1, vec![2]).unwrap());
        let mut read = run(&values).unwrap();
        assert_eq!(read[0], 1);
        other.join().unwrap();
        read.extend(rest(&values));
        assert_eq!(read, [1, 2]);
        assert!(values.is_empty());
    });
}

/// Two adds and a read merge at the same time, after a run that has failed: the read has what that run had, too, and the next run has all
/// of it.
#[test]
fn two_adds_meet_a_run_that_fails() {
    check(|| {
        let values = manual_values();
        values.add(1, vec![1]).unwrap();
        let item = values.queue().get().unwrap();
        _ = values.value(&item);
        let others = [2, 3].map(|number| with(&values, move |values| values.add(1, vec![number]).map(drop)));
        let value = values.value(&item).unwrap();
        let read = value.to_vec();
        drop(value);
        _ = others.map(|other| other.join().unwrap().unwrap());
        item.done();
        let all = rest(&values);
        assert!(all == [1, 2, 3] || all == [1, 3, 2], "{all:?}");
        assert!(all.starts_with(&read), "{read:?}, and then {all:?}");
        assert!(values.is_empty());
    });
}

/// Two adds merge what came during a run that succeeds.
#[test]
fn two_adds_meet_a_success() {
    check(|| {
        let values = manual_values();
        values.add(1, vec![1]).unwrap();
        let item = values.queue().get().unwrap();
        let value = values.value(&item).unwrap();
        let others = [2, 3].map(|number| with(&values, move |values| values.add(1, vec![number]).map(drop)));
        assert_eq!(*value, [1]);
        assert!(value.succeed());
        item.succeed();
        _ = others.map(|other| other.join().unwrap().unwrap());
        let all = rest(&values);
        assert!(all == [2, 3] || all == [3, 2], "{all:?}");
        assert!(values.is_empty());
    });
}

/// A shut-down meets an add and a run: a value is given back or accepted, and never both.
#[test]
fn a_refused_value_meets_a_run() {
    check(|| {
        let values = manual_values();
        values.add(1, vec![1]).unwrap();
        let adder = with(&values, |values| values.add(1, vec![2]));
        let stopper = with(&values, |values| values.queue().shut_down());
        let mut all = run(&values).unwrap();
        stopper.join().unwrap();
        let answer = adder.join().unwrap();
        all.extend(rest(&values));
        all.extend(values.take_all().iter().flat_map(|(_, value)| value.to_vec()));
        match answer {
            Ok(Added::Rejected) => panic!("neither"),
            Ok(_) => assert_eq!(all, [1, 2]),
            Err(Refused(back)) => assert_eq!((back, all), (vec![2], vec![1])),
        }
    });
}

/// A shut-down meets two adds, one of which may be merging the value of the other when that is refused.
#[test]
fn a_refused_value_meets_an_add() {
    check(|| {
        let values = manual_values();
        values.add(1, vec![1]).unwrap();
        let adder = with(&values, |values| values.add(1, vec![2]));
        let stopper = with(&values, |values| values.queue().shut_down());
        let answers = [values.add(1, vec![3]), adder.join().unwrap()];
        stopper.join().unwrap();
        let mut all = vec![1];
        all.extend([3, 2].iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(number, _)| number));
        let mut left = rest(&values);
        left.extend(values.take_all().iter().flat_map(|(_, value)| value.to_vec()));
        all.sort_unstable();
        left.sort_unstable();
        assert_eq!(left, all);
    });
}

/// A call takes all values out while a run succeeds: one of them has the value.
#[test]
fn take_all_meets_a_success() {
    check(|| {
        let values = manual_values();
        values.add(1, vec![1]).unwrap();
        let other = with(&values, |values| values.take_all().len());
        let item = values.queue().get().unwrap();
        let succeeded = values.value(&item).is_some_and(|value| value.succeed());
        item.succeed();
        assert_eq!(other.join().unwrap() + usize::from(succeeded), 1);
    });
}
