//! Which keys are measured by a clock that is not given.

use crate::DelayedAdd;
use crate::key::KeyHash;
use crate::machine::durations::Durations;
use crate::machine::{End, How, Machine, MaybeNanos, Mode};
use crate::order::{AnyOrder, Group};

const MEASURED: Mode = Mode { is_measured: true, is_ordered: true, ..Mode::PLAIN };

/// Adds a key. Returns whether the time is wanted.
fn add(machine: &mut Machine<u64>, key: u64, priority: i8, now: u64) -> bool {
    let how = How { priority, ..How::NOW };
    let _added = machine.add(&mut Some(key), KeyHash(key as u32), Group::default(), how, MEASURED);
    let wants = machine.wants_time();
    machine.times().expect("it measures").dirty_at(now);
    wants
}

fn machine() -> Machine<u64> {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    machine.measure(false);
    machine
}

#[test]
fn one_key_in_eight_is_measured_while_adds_are_dense() {
    let mut machine = machine();
    let now = 1_000_000;
    let wants: Vec<u64> = (0..100).filter(|key| add(&mut machine, *key, 0, now)).collect();
    let eighth = |from: u64| (0..).map(move |nth| from + 8 * nth).take_while(|key| *key < 100);
    // The stride doubles: 1, 2, 4, 8.
    assert_eq!(wants, [0, 1, 3].into_iter().chain(eighth(7)).collect::<Vec<_>>());
    assert!((0..100).all(|key| !add(&mut machine, key, 0, now)), "they are dirty already");
    let times = machine.times().expect("it measures");
    times.reset_sampling();
    assert!(add(&mut machine, 100, 0, now + 5), "after a getter has parked");
    // The keys come out: those that are not measured are counted by the next that is.
    let mut count = 0;
    while let (Some(claimed), _) = machine.get(0, MEASURED) {
        let is_measured = wants.contains(claimed.key()) || *claimed.key() == 100;
        let mut asks = 0;
        let mut at = |time| {
            asks += 1;
            time
        };
        let waited = machine.started(&claimed, || at(now + 10));
        assert_eq!(waited == MaybeNanos::UNKNOWN, !is_measured);
        count += 1;
        let waited: u64 =
            machine.times().unwrap().durations.waited_by_priority().map(|(_, waited)| waited.count()).sum();
        assert_eq!(waited, count);
        let worked = machine.ended(&claimed, || at(now + 12));
        assert_eq!(asks, if is_measured { 2 } else { 0 }, "the time is asked for if it is wanted");
        assert_eq!(worked.duration().map(|worked| worked.as_nanos()), is_measured.then_some(2));
        let _gone = machine.done(&mut None, claimed, End::Done, 0, MEASURED);
        assert_eq!(machine.times().unwrap().durations.worked().count(), count);
    }
    assert_eq!(count, 101);
}

#[test]
fn all_are_measured_if_they_come_slowly_or_have_priorities() {
    let mut machine = machine();
    assert!((0..100).all(|key| add(&mut machine, key, 0, 1_000 * (key + 1))), "slowly");
    let dense = |machine: &mut Machine<u64>, keys: std::ops::Range<u64>| {
        keys.filter(|key| add(machine, *key, 0, 200_000)).count()
    };
    assert!(dense(&mut machine, 100..200) < 20);
    assert!(add(&mut machine, 200, 5, 200_000), "the first key with a priority");
    assert_eq!(dense(&mut machine, 201..300), 99);
}

/// Adds are dense by the time of one, also when only one in eight is measured.
#[test]
fn adds_of_a_steady_pace_are_dense_or_not() {
    for (pace, measured) in [(900, 15..=16), (1100, 100..=100)] {
        let mut machine = machine();
        let count = (0..100).filter(|key| add(&mut machine, *key, 0, 10_000 + pace * key)).count();
        assert!(measured.contains(&count), "{count} of 100 are measured, one in {pace} ns");
    }
}

/// An unmeasured key was added before there were priorities, so it counts with NORMAL, also if it has another one now.
#[test]
fn an_unmeasured_key_that_is_raised_counts_with_normal() {
    let mut machine = machine();
    assert_eq!([0, 1, 2].map(|key| add(&mut machine, key, 0, 1000)), [true, true, false]);
    assert!(!add(&mut machine, 2, 5, 1000), "it is dirty already");
    let claimed = machine.get(0, MEASURED).0.expect("it is queued");
    assert_eq!(*claimed.key(), 2);
    assert_eq!(machine.started(&claimed, || 2000), MaybeNanos::UNKNOWN);
    let durations = &mut machine.times().expect("it measures").durations;
    assert_eq!(durations.waited_by_priority().count(), 1);
    let _worked = machine.ended(&claimed, || 3000);
    let _gone = machine.done(&mut None, claimed, End::Done, 0, MEASURED);
}

/// A measured key stands for the unmeasured ones before it, not for those behind it.
#[test]
fn a_measured_key_stands_for_those_before_it() {
    let mut machine = machine();
    let wants: Vec<bool> = (0..8).map(|key| add(&mut machine, key, 0, 1000)).collect();
    assert_eq!(wants, [true, true, false, true, false, false, false, true]);
    for start in (2000..2800).step_by(100) {
        let claimed = machine.get(0, MEASURED).0.expect("it is queued");
        let _waited = machine.started(&claimed, || start);
        let _worked = machine.ended(&claimed, || start);
        let _gone = machine.done(&mut None, claimed, End::Done, 0, MEASURED);
    }
    let durations = &mut machine.times().unwrap().durations;
    let waited: Vec<u128> = durations.waited_by_priority().map(|(_, waited)| waited.sum().as_nanos()).collect();
    assert_eq!(waited, [1000 + 1100 + 2 * 1300 + 4 * 1700]);
}

/// Unmeasured keys behind the last measured one count as that one, and those before the first one wait for it.
#[test]
fn a_measured_key_stands_for_those_behind_the_last() {
    let mut durations = Durations::default();
    let steps = [(None, 0, 0), (Some(5), 2, 10), (None, 3, 15), (Some(7), 4, 22), (None, 5, 29), (None, 6, 36)];
    for (nanos, count, sum) in steps {
        durations.note_worked(nanos.map_or(MaybeNanos::UNKNOWN, MaybeNanos::new));
        let worked = durations.worked();
        assert_eq!((worked.count(), worked.sum().as_nanos()), (count, sum), "after {nanos:?}");
    }
    assert!(MaybeNanos::new(u64::MAX).known().is_some(), "the longest time is not the mark of an unknown one");
}

/// An unmeasured key gets the time at which the next measured key starts, or at which a call asks.
#[test]
fn the_age_of_an_unmeasured_key_is_too_low() {
    let mut machine = machine();
    let wants: Vec<bool> = (0..5).map(|key| add(&mut machine, key, 0, 1000)).collect();
    assert_eq!(wants, [true, true, false, true, false]);
    let mut held = Vec::new();
    for start in [2000, 2100, 2200, 2300, 2400] {
        let claimed = machine.get(0, MEASURED).0.expect("it is queued");
        let _waited = machine.started(&claimed, || start);
        held.push(claimed);
    }
    let starts = |machine: &Machine<u64>, held: &[crate::machine::Claimed<u64>]| -> Vec<Option<u64>> {
        held.iter().map(|claimed| machine.started_at(machine.held(claimed))).collect()
    };
    assert_eq!(starts(&machine, &held), [Some(2000), Some(2100), Some(2300), Some(2300), None]);
    let ages = machine.ages(3000).expect("it measures");
    assert_eq!(starts(&machine, &held)[4], Some(3000));
    assert_eq!((ages.unfinished_work, ages.longest_running), (1000 + 900 + 700 + 700, Some(1000)));
    for claimed in held {
        let _worked = machine.ended(&claimed, || 4000);
        let _gone = machine.done(&mut None, claimed, End::Done, 0, MEASURED);
    }
    let ages = machine.ages(5000).expect("it measures");
    assert_eq!((ages.unfinished_work, ages.longest_running, ages.oldest_queued), (0, None, None));
}
