//! Stamps are times of pushes, or a bit older; and of hand-outs, with groups.

use super::{Keys, steps};
use crate::FairShare;
use crate::order::AnyOrder;
use fastrand::Rng;
use std::collections::HashMap;

/// A call, or with `batches` several at a time, and then the time, if it is wanted. `all_levels`: in another order than a line. `groups`: 0
/// without.
fn random_sections(order: AnyOrder<u32>, all_levels: bool, groups: u64, batches: bool) {
    const KEYS: u32 = 1500;
    let (mut keys, mut random) = (Keys::new(order, KEYS), Rng::with_seed(groups + 5));
    assert!(!keys.order.wants_stamp(true));
    keys.order.want_stamps();
    let has_groups = groups > 0;
    // By level, or of all groups: the times of all pushes. And the list and the index of each key's last push.
    let mut times = HashMap::<i8, Vec<u64>>::new();
    let mut pushes = vec![(0, 0); KEYS as usize];
    let mut now = 0;
    for step in 0..steps() / 4 {
        let mut firsts = Vec::new();
        let calls = if batches && random.u32(..50) == 0 { random.u32(..300) } else { 1 };
        let (adds, removes) = [(60, 5), (25, 5), (90, 0), (45, 50)][step as usize / 500 % 4];
        for _ in 0..calls {
            let (key, dice) = (random.u32(..KEYS), random.u32(..100));
            if dice < adds && keys.place(key).is_none() {
                let priority = if all_levels { [-128, 0, 0, 5, 127][random.u32(..5) as usize] } else { 0 };
                if keys.order.level_len(priority) == 0 {
                    firsts.push(key);
                }
                keys.enter(key, u64::from(key) % groups.max(1), 1);
                keys.push(key, priority);
                let list = if has_groups { 0 } else { priority };
                let times = times.entry(list).or_default();
                pushes[key as usize] = (list, times.len());
                times.push(0);
            } else if dice < adds {
            } else if dice < adds + removes {
                if keys.place(key).is_some() {
                    keys.remove(key);
                    keys.leave(key);
                }
            } else if let Some(key) = keys.pop() {
                keys.ended(0);
                keys.leave(key);
            }
        }
        now += 2 + u64::from(calls / 64 + random.u32(..9)); // 64 pushes take longer than the clock counts
        times
            .values_mut()
            .flat_map(|times| times.iter_mut().rev().take_while(|time| **time == 0))
            .for_each(|time| *time = now);
        if keys.order.wants_stamp(true) {
            keys.order.stamp(now);
        }
        assert!(!keys.order.wants_stamp(true));
        // Each key's stamp, and the first keys of the levels.
        let queued = |key: &u32| keys.place(*key).map(|place| (*key, place));
        let mut stamps = Vec::new();
        for (key, place) in (0..KEYS).filter_map(|key| queued(&key)).filter(|_| calls > 1 || step % 16 == 0) {
            let (stamp, (list, at)) = (keys.order.age(place).0, pushes[key as usize]);
            let times = &times[&list];
            assert!(stamp <= times[at], "{stamp} is after the push at {}", times[at]);
            let before = times[at.saturating_sub(63)];
            // With groups the keys of a batch have earlier stamps.
            let is_fresh = stamp >= before || has_groups && batches;
            assert!(is_fresh, "{stamp} is before the push of 63 keys earlier, at {before}");
            stamps.push((place.priority, keys.order.age(place).1, stamp));
        }
        stamps.sort_unstable();
        assert!(stamps.is_sorted_by_key(|stamp| (stamp.0, stamp.2)), "{stamps:?}");
        if all_levels && calls == 1 {
            for (_, place) in firsts.iter().filter_map(queued) {
                assert_eq!(keys.order.age(place).0, now, "the first key of a level");
            }
        }
        if let Some((priority, front)) = keys.order.front(true) {
            let first = stamps.iter().find(|stamp| stamp.0 == priority);
            if let (false, Some(first)) = (has_groups, first) {
                assert_eq!(front, first.2, "the stamp of the first key");
            }
        }
    }
    assert!(now > 0 && times.values().map(Vec::len).sum::<usize>() > 1000);
}

#[test]
fn stamps_are_times_of_pushes() {
    random_sections(AnyOrder::new(false), false, 0, true);
    random_sections(AnyOrder::new(false), true, 0, true);
    random_sections(AnyOrder::groups(FairShare::HandOuts, true, false), true, 7, false);
    random_sections(AnyOrder::groups(FairShare::HandOuts, false, true), true, 300, true);
}

/// The first key with a priority comes when keys are queued, of which the last wants a stamp.
#[test]
fn a_line_that_becomes_a_level_keeps_its_stamps() {
    for (before, later) in (0..3).flat_map(|before| [(before, false), (before, true)]) {
        let mut keys = Keys::new(AnyOrder::new(false), 10);
        keys.order.want_stamps();
        (0..10).for_each(|key| keys.enter(key, 0, 1));
        for key in 0..before {
            keys.push(key, 0);
            assert_eq!(keys.order.wants_stamp(true), key == 0 || later);
            if !later {
                keys.order.stamp(10);
            }
        }
        keys.push(5, 100);
        keys.push(6, 0);
        assert!(keys.order.wants_stamp(true));
        keys.order.stamp(20);
        assert!(!keys.order.wants_stamp(true));
        let stamp = |keys: &Keys, key| keys.order.age(keys.place(key).unwrap()).0;
        assert_eq!(stamp(&keys, 5), 20);
        assert_eq!(stamp(&keys, 6), if before > 0 && !later { 10 } else { 20 });
        (0..before).for_each(|key| assert_eq!(stamp(&keys, key), if later { 20 } else { 10 }));
    }
}

/// An order that was not asked to wants none.
#[test]
fn no_stamps_unless_they_are_wanted() {
    for order in [AnyOrder::new(false), AnyOrder::groups(FairShare::HandOuts, true, false)] {
        let (mut keys, mut last) = (Keys::new(order, 1000), None);
        for key in 0..1000 {
            keys.enter(key, 0, 1);
            keys.push(key, 0);
            assert!(!keys.order.wants_stamp(true));
            let age = Some(keys.order.age(keys.place(key).unwrap()));
            assert!(last < age, "keys are compared by number");
            last = age;
        }
        assert_eq!(keys.order.front(true), Some((0, 0)));
        while keys.pop().is_some() {
            assert!(!keys.order.wants_stamp(true));
        }
    }
}

/// The last block loses all its keys: the next push has its own stamp. And so has each 64th of a level whose memory was given back.
#[test]
fn what_begins_anew_wants_a_stamp() {
    let mut keys = Keys::new(AnyOrder::new(false), 1000);
    keys.order.want_stamps();
    (0..1000).for_each(|key| keys.enter(key, 0, 1));
    (0..356).for_each(|key| _ = keys.push(key, 0));
    keys.order.stamp(10);
    (256..356).for_each(|key| keys.remove(key));
    keys.push(400, 0);
    assert!(keys.order.wants_stamp(true));
    keys.order.stamp(20);
    assert_eq!(keys.order.age(keys.place(400).unwrap()).0, 20);

    let mut keys = Keys::new(AnyOrder::new(false), 256);
    keys.order.want_stamps();
    (0..256).for_each(|key| keys.enter(key, 0, 1));
    (0..256).for_each(|key| _ = keys.push(key, key as i8));
    (0..256).for_each(|key| keys.remove(key));
    let mut wanted = 0;
    keys.order.stamp(10);
    for key in 0..256 {
        keys.push(key, 5);
        wanted += u32::from(keys.order.wants_stamp(true));
        keys.order.stamp(20 + u64::from(key));
    }
    assert_eq!(wanted, 4, "one for 64 keys");
}

/// With groups, one push in 64 wants a stamp.
#[test]
fn few_pushes_to_groups_want_a_stamp() {
    let mut keys = Keys::with_groups(None, false, 640);
    keys.order.want_stamps();
    let wanted = (0..640).filter(|key| {
        keys.enter(*key, 0, 1);
        keys.push(*key, 0);
        let wants = keys.order.wants_stamp(true);
        keys.order.stamp(1);
        wants
    });
    let wanted = wanted.count();
    assert!((10..=12).contains(&wanted), "{wanted} of 640");
}
