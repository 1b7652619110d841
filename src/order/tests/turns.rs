//! Whose turn it is: what is promised of levels and groups.

use super::Keys;
use super::plain::Limits;
use crate::FairShare;
use crate::order::AnyOrder;
use std::collections::{HashMap, HashSet};

/// Group B always has HIGH keys, C keys at 50, D (with `low_too`) LOW keys; G has keys at NORMAL and one LOW key, and one key at most is
/// processing. The handler of G takes as long as `hold` hand-outs. Returns the hand-outs before the LOW key that were made while G had room.
fn low_key_of_a_slow_group(hold: u32, low_too: bool) -> Option<u32> {
    let mut keys = Keys::with_groups(Some(1), false, 400);
    let priorities = [(0..50, 100), (50..100, 50), (100..150, 0), (150..200, -100), (200..201, -100)];
    for (group, (range, priority)) in priorities.into_iter().enumerate() {
        for key in range.filter(|_| group != 3 || low_too) {
            keys.enter(key, if group == 4 { 2 } else { group as u64 }, 1);
            keys.push(key, priority);
        }
    }
    let (mut busy, mut with_room) = (None, 0);
    for step in 0..200_000_u32 {
        if let Some((key, _)) = busy.take_if(|(_, until)| *until <= step) {
            let at = keys.held.iter().position(|held| *held == key).unwrap();
            keys.ended(at);
            keys.push(key, 0);
        }
        with_room += u32::from(busy.is_none());
        match keys.pop()? {
            200 => return Some(with_room),
            key @ 100..150 => busy = Some((key, step + hold + 1)),
            key => {
                let at = keys.held.iter().position(|held| *held == key).unwrap();
                keys.ended(at);
                keys.push(key, [100, 50, 0, -100][key as usize / 50]);
            }
        }
    }
    None
}

#[test]
fn a_low_key_of_a_slow_group_comes_while_its_group_has_room() {
    for hold in (0..130).chain([200, 333, 1000]) {
        for low_too in [false, true] {
            let waited = low_key_of_a_slow_group(hold, low_too);
            // One of 16 hand-outs of the group goes to its lower level, and its higher one has every third of the turns of the lower ones.
            let at_most = 16 * 48 + 64;
            assert!(waited.is_some_and(|waited| waited <= at_most), "hold {hold}, {low_too}: {waited:?}");
        }
    }
}

/// Group A has a LOW key; B has one too, and one at NORMAL, by which it is full again and again. They are always added again. B, which is
/// parked and comes back before each turn of the level LOW, does not pass A there.
#[test]
fn a_group_that_is_full_now_and_then_passes_no_other() {
    for limit in [1, 2] {
        let mut keys = Keys::with_groups(Some(limit), false, 10);
        let priority = |key: u32| if key < 2 { -100 } else { 0 };
        for key in 0..2 + limit {
            keys.enter(key, u64::from(key.min(1)), 1);
            keys.push(key, priority(key));
        }
        let mut handed_out = [0; 10];
        for _ in 0..3200 {
            // As many as B may have, so it is full each time.
            for _ in 0..limit {
                let Some(key) = keys.pop() else { break };
                handed_out[key as usize] += 1;
            }
            while !keys.held.is_empty() {
                let (key, _) = keys.ended(0);
                keys.push(key, priority(key));
            }
        }
        let [a, b, ..] = handed_out;
        assert!(a >= 80 && b >= 80, "limit {limit}: of the LOW keys A has given {a}, B {b}");
    }
}

/// Of any 16 hand-outs one goes to lower levels, in turn; in a strict order none.
#[test]
fn lower_levels_take_turns() {
    for (strict, groups) in [(false, false), (true, false), (false, true), (true, true)] {
        let order = if groups { AnyOrder::groups(FairShare::HandOuts, !strict, strict) } else { AnyOrder::new(strict) };
        let mut keys = Keys::new(order, 80);
        let priority = |key: u32| [100, 3, 0, -100][key as usize / 20];
        for key in 0..80 {
            keys.enter(key, u64::from(key) % 5, 1);
            keys.push(key, priority(key));
        }
        let mut levels = Vec::new();
        for _ in 0..16 * 60 {
            let key = keys.pop().unwrap();
            levels.push(priority(key));
            keys.ended(0);
            keys.push(key, priority(key));
        }
        let lower: Vec<_> = levels.iter().copied().filter(|level| *level < 100).collect();
        if strict {
            assert!(lower.is_empty());
        } else {
            assert!(levels.windows(16).all(|of_16| of_16.iter().filter(|level| **level < 100).count() == 1));
            assert!(lower.chunks(3).all(|lower| lower == [3, 0, -100]));
        }
    }
}

/// With a limit, too, groups take turns: a group that is full, and has room again before the next hand-out, does not go before those that
/// have waited. `held`: the number of hand-outs that are not ended yet. `one_by_one`: a group gets its next key while the one before is processing.
#[test]
fn groups_that_are_full_at_times_take_turns() {
    let plans = (1..4).flat_map(|limit| (1..4).flat_map(move |weight| [2, 3, 5].map(|groups| (limit, weight, groups))));
    for (limit, weight, groups) in plans {
        for (held, one_by_one) in (0..limit).flat_map(|held| [(held, false), (held, true)]) {
            let mut keys = Keys::with_groups(Some(limit), false, groups * 20);
            for key in 0..groups * 20 {
                keys.enter(key, u64::from(key / 20), weight);
                if !one_by_one || key % 20 == 0 {
                    keys.push(key, 0);
                }
            }
            let (mut waited, mut longest) = (vec![0; groups as usize], 0);
            for _ in 0..400 {
                let key = keys.pop().unwrap();
                waited.iter_mut().for_each(|waited| *waited += 1);
                waited[key as usize / 20] = 0;
                longest = longest.max(*waited.iter().max().unwrap());
                if one_by_one {
                    keys.push(key / 20 * 20 + (key + 1) % 20, 0);
                }
                if keys.held.len() > held as usize {
                    let ended = keys.held[0];
                    keys.ended(0);
                    if !one_by_one {
                        keys.push(ended, 0);
                    }
                }
            }
            let of = format!("limit {limit}, weight {weight}, {groups} groups, {held} held, one by one: {one_by_one}");
            assert!(longest <= 2 * groups * weight, "{of}: {longest}");
        }
    }
}

/// Groups that always have keys get hand-outs by their weights. One that has a key now and then comes within a few hand-outs, and gets no
/// more than one in a round.
#[test]
fn groups_take_turns_by_their_weights() {
    const GROUPS: u32 = 40;
    let mut keys = Keys::with_groups(None, false, GROUPS * 10 + 1);
    let weight = |group: u32| 1 + group % 3;
    for key in 0..GROUPS * 10 {
        keys.enter(key, u64::from(key % GROUPS), weight(key % GROUPS));
        keys.push(key, 0);
    }
    let (mut of, mut longest, rare) = (HashMap::<u32, u32>::new(), 0, GROUPS * 10);
    let round: u32 = (0..GROUPS).map(weight).sum();
    for step in 0..round * 100 {
        // After each round and a bit, the rare one has a key.
        if step % (2 * round) == round + 7 {
            keys.enter(rare, 1000, 1);
            keys.push(rare, 0);
            let waits = (0..).take_while(|_| {
                let key = keys.pop().unwrap();
                keys.ended(0);
                if key < rare {
                    *of.entry(key % GROUPS).or_default() += 1;
                    keys.push(key, 0);
                }
                key < rare
            });
            longest = longest.max(waits.count());
            keys.leave(rare);
        }
        let key = keys.pop().unwrap();
        *of.entry(key % GROUPS).or_default() += 1;
        keys.ended(0);
        keys.push(key, 0);
    }
    assert!(longest <= 1, "the rare one waits for {longest}");
    let shares: Vec<_> = (0..GROUPS).map(|group| of[&group] / weight(group)).collect();
    assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 2, "{shares:?}");

    // One that comes back at once goes to the end each time.
    let mut eager = 0;
    keys.enter(rare, 1000, 1);
    keys.push(rare, 0);
    for _ in 0..round * 100 {
        let key = keys.pop().unwrap();
        eager += u32::from(key == rare);
        keys.ended(0);
        keys.push(key, 0);
    }
    assert!((98..=101).contains(&eager), "{eager}");
}

/// Groups with keys in several levels: `lanes` are (group, priority), each with two keys, so that one of them is queued nearly always.
/// In each step a key may be handed out; its handler holds it for the number of steps in `holds`, by group. Returns the longest time
/// between two hand-outs of each lane, in steps.
fn longest_waits(limit: u32, lanes: &[(u64, i8)], holds: &[u32], steps: u32) -> Vec<u32> {
    let mut keys = Keys::with_groups(Some(limit), false, 2 * lanes.len() as u32);
    let (mut last, mut longest) = (vec![0; lanes.len()], vec![0; lanes.len()]);
    let mut busy: Vec<(u32, u32)> = Vec::new();
    for key in 0..2 * lanes.len() as u32 {
        let (group, priority) = lanes[key as usize / 2];
        keys.enter(key, group, 1);
        if key % 2 == 0 {
            keys.push(key, priority);
        }
    }
    for step in 1..=steps {
        for (key, _) in busy.extract_if(.., |(_, until)| *until <= step) {
            let at = keys.held.iter().position(|held| *held == key).unwrap();
            keys.ended(at);
            // Its twin was added when this one was handed out, unless that was processing, too.
            let (twin, (_, priority)) = (key ^ 1, lanes[key as usize / 2]);
            if keys.place(twin).is_none() {
                keys.push(key, priority);
            }
        }
        let Some(key) = keys.pop() else { continue };
        let lane = key as usize / 2;
        longest[lane] = longest[lane].max(step - std::mem::replace(&mut last[lane], step));
        if !keys.held.contains(&(key ^ 1)) {
            keys.push(key ^ 1, lanes[lane].1);
        }
        busy.push((key, step + 1 + holds[lanes[lane].0 as usize]));
    }
    for (longest, last) in longest.iter_mut().zip(last) {
        *longest = (*longest).max(steps - last);
    }
    longest
}

/// However long the handlers of its groups take, each level of each group comes again and again.
#[test]
fn no_level_of_a_slow_group_waits_for_ever() {
    let check = |limit: u32, lanes: &[(u64, i8)], holds: &[u32]| {
        let levels = lanes.iter().map(|lane| lane.1).collect::<HashSet<_>>().len() as u32;
        let steps = if levels < 20 { 20_000 } else { 100_000 };
        let longest = longest_waits(limit, lanes, holds, steps);
        // A turn for each level and group, and as long as a handler holds for each hand-out. Other lanes of the group may have these turns
        // (`own_turn`), but then each of them has its own.
        let turns = 16 * levels.max(5) * holds.len() as u32 * (1 + holds.iter().max().unwrap());
        let of_turns = turns * lanes.len() as u32;
        // With many levels it is drawn.
        let at_most = if levels < 20 { of_turns.min(steps / 2) } else { steps / 2 };
        let of = format!("limit {limit}, {lanes:?}, holds {holds:?}");
        assert!(longest.iter().all(|waited| *waited <= at_most), "{of}: {longest:?}");
    };
    for hold in [15, 16, 20, 31, 32, 47] {
        check(1, &[(0, 0), (0, 10), (1, 10)], &[hold, 0]);
        check(1, &[(0, 0), (0, 15), (0, 20), (1, 20)], &[hold, 0]);
        check(1, &[(0, 20), (0, 0), (0, 10), (1, 0), (1, 20)], &[hold, 17]);
    }
    // Many levels: more than passes are counted.
    for (levels, hold) in [(9, 1), (10, 1), (12, 1), (70, 20)] {
        let lanes: Vec<_> = (1..=levels).map(|level| (0, level - 100)).chain([(0, 100), (1, 100)]).collect();
        check(1, &lanes, &[hold, 1]);
    }
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..if cfg!(debug_assertions) { 50 } else { 3000 } {
        let (groups, limit) = (1 + random.u32(..3), 1 + random.u32(..2));
        let mut lanes: Vec<(u64, i8)> = Vec::new();
        for _ in 0..2 + random.u32(..5) {
            let lane = (u64::from(random.u32(..groups)), [20, 15, 10, 0, -10][random.u32(..5) as usize]);
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        let holds: Vec<u32> = (0..groups).map(|_| random.u32(..2) * random.u32(..70)).collect();
        check(limit, &lanes, &holds);
    }
}

/// A group without keys, however long it has had none, is new when it gets one: so the key comes before those of the groups that always have
/// keys. The same holds for a group that was full for so long. The turns are counted from 0, or from near the ends of 31 and 32 bits.
#[test]
fn a_group_that_was_silent_for_long_is_new() {
    const SPANS: [u64; 9] =
        [1 << 10, 1 << 30, (1 << 31) - 9, 1 << 31, 3 << 30, (1 << 32) - 9, 1 << 32, (1 << 32) + (1 << 31), 1 << 48];
    let turn = |keys: &mut Keys| {
        let key = keys.pop().unwrap();
        keys.ended(keys.held.len() - 1);
        if key < 40 {
            keys.push(key, 0);
        }
        key
    };
    for (start, span) in [0, (1 << 31) - 9, (1 << 32) - 9].into_iter().flat_map(|start| SPANS.map(|span| (start, span)))
    {
        for is_full in [false, true] {
            let mut keys = Keys::with_groups(Some(2), false, 43);
            keys.order.skip_turns(0, start);
            for key in 0..40 {
                keys.enter(key, u64::from(key) % 8, 1);
                keys.push(key, 0);
            }
            (0..40).for_each(|_| _ = turn(&mut keys));
            let silent = 40..43;
            silent.clone().for_each(|key| keys.enter(key, 8, 1));
            if is_full {
                // It is full by two keys of another level, and then gets one of this level.
                [41, 42].into_iter().for_each(|key| _ = keys.push(key, 100));
                assert_eq!([41, 42].map(|_| keys.pop()), [Some(41), Some(42)]);
                keys.push(40, 0);
            } else {
                keys.push(40, 0);
                assert!((0..2).any(|_| turn(&mut keys) == 40));
            }
            (0..4).for_each(|_| assert!(turn(&mut keys) < 40));
            keys.order.skip_turns(0, span);
            (0..4).for_each(|_| assert!(turn(&mut keys) < 40));
            if is_full {
                keys.ended(0);
            } else {
                keys.push(40, 0);
            }
            // One of 16 hand-outs goes to an old one, so another may come before.
            assert!((0..2).any(|_| turn(&mut keys) == 40), "from {start}, {span} turns later, full: {is_full}");
        }
    }
}

/// Keys that come soon, for the cache: of one line, level or lane exactly; of many groups the one that comes after all others.
#[test]
fn upcoming_keys_come_soon() {
    for (order, priority, groups) in [
        (AnyOrder::new(false), 0, 1),
        (AnyOrder::new(false), 100, 1),
        (AnyOrder::groups(FairShare::HandOuts, true, false), 0, 1),
        (AnyOrder::groups(FairShare::HandOuts, true, false), 0, 8),
    ] {
        let mut keys = Keys::new(order, 64);
        for key in 0..64 {
            keys.enter(key, u64::from(key) % groups, 1);
            keys.push(key, priority);
        }
        for next in 1..=64 {
            assert_eq!(keys.pop(), Some(next - 1));
            keys.ended(0);
            for ahead in [0, 1, 4] {
                let upcoming = next + if groups == 8 { 7 } else { ahead };
                assert_eq!(keys.order.upcoming(ahead, true), Some(upcoming).filter(|key| *key < 64));
            }
        }
    }
}

/// A group that has spent its tokens, and whose keys are all gone, is remembered until these tokens are there again. If it were forgotten, its
/// next keys would find a full bucket.
#[test]
fn a_group_without_keys_remembers_what_it_has_spent() {
    let mut keys = Keys::new(AnyOrder::groups(FairShare::HandOuts, true, false), 3);
    let limits = Limits { weight: 1, max: u32::MAX, rate: Some((100, 2)) };
    let come_and_go = |keys: &mut Keys, key| {
        keys.enter_with(key, 0, limits);
        keys.push(key, 0);
        let came = keys.pop();
        if came.is_some() {
            keys.ended(0);
            keys.leave(key);
        }
        while keys.order.shrink(&mut keys.bin) {}
        came
    };
    assert_eq!([0, 1].map(|key| come_and_go(&mut keys, key)), [Some(0), Some(1)]);
    assert_eq!(keys.order.count_groups(), 1, "no lane is left, but the tokens are spent");
    assert_eq!(come_and_go(&mut keys, 2), None, "it has no token");
    for (now, came, groups) in [(99, None, 1), (100, Some(2), 1), (299, None, 1), (300, None, 0)] {
        keys.now = now;
        keys.order.release(now, &mut 100, &mut keys.bin);
        let got = keys.pop();
        if let Some(key) = got {
            keys.ended(0);
            keys.leave(key);
            while keys.order.shrink(&mut keys.bin) {}
        }
        assert_eq!((got, keys.order.count_groups()), (came, groups), "at {now}");
    }
}
