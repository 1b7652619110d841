//! Memory comes back, and no call visits many keys.

use super::{Keys, VISITS};
use crate::FairShare;
use crate::order::line::Block;
use crate::order::{AnyOrder, Bin, Group, Groups, Place};

const MANY: u32 = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };

/// A key stays at the front, while others come and go behind it; then all go but one in the middle.
#[test]
fn a_line_gives_memory_back() {
    let mut keys = Keys::new(AnyOrder::new(false), MANY);
    keys.enter(0, 0, 1);
    keys.push(0, 0);
    for round in 0..MANY {
        // One is always behind it, so the last block is never empty.
        let (key, before) = (1 + round % 2, 1 + (round + 1) % 2);
        keys.enter(key, 0, 1);
        keys.push(key, 0);
        assert!(keys.place(key).unwrap().position < 4 * 256, "blocks are used again");
        if round > 0 {
            keys.remove(before);
            keys.leave(before);
        }
    }
    let last = 1 + (MANY - 1) % 2;
    keys.remove(last);
    keys.leave(last);
    // Or the last block loses all its keys.
    for key in (1..MANY).chain(1..MANY) {
        keys.enter(key % 700 + 1, 0, 1);
        keys.push(key % 700 + 1, 0);
        if key % 700 == 699 {
            let all: Vec<u32> = (1..701).filter(|key| keys.place(*key).is_some()).collect();
            all.into_iter().for_each(|key| {
                keys.remove(key);
                keys.leave(key);
            });
            assert!(keys.order.bytes() <= 24 << 10, "{} bytes for a key", keys.order.bytes());
        }
        if key == MANY - 1 {
            let all: Vec<u32> = (1..701).filter(|key| keys.place(*key).is_some()).collect();
            all.into_iter().for_each(|key| {
                keys.remove(key);
                keys.leave(key);
            });
        }
    }
    for key in 1..MANY {
        keys.enter(key, 0, 1);
        keys.push(key, 0);
    }
    assert!(keys.order.bytes() < 9 * MANY as usize, "a handle here has eight bytes with its tag");
    for key in (0..MANY).filter(|key| *key != MANY / 2) {
        VISITS.set(0);
        keys.remove(key);
        keys.bin = Bin::new();
    }
    assert!(keys.order.bytes() <= (MANY as usize / 8).max(24 << 10), "{} bytes for a key", keys.order.bytes());
    VISITS.set(0);
    assert_eq!(keys.pop(), Some(MANY / 2));
    assert!(VISITS.get() <= 600, "a pop visits {}", VISITS.get());
    keys.order.shrink(&mut keys.bin);
    assert!(keys.order.bytes() <= (MANY as usize / 8).max(24 << 10), "{} bytes for none", keys.order.bytes());
}

/// Of the keys that have waited longest, wherever they are.
#[test]
fn the_first_keys_of_each_line() {
    let firsts = |keys: &Keys, stop: &dyn Fn(u32) -> bool| {
        let mut seen = Vec::new();
        VISITS.set(0);
        keys.order.firsts(|key| {
            seen.push(key);
            stop(key)
        });
        assert!(VISITS.get() <= 2 * 1024, "it visits {}", VISITS.get());
        seen
    };
    // Holes at the front, more than a block of them, and between the keys.
    let mut keys = Keys::new(AnyOrder::new(false), 1000);
    (0..1000).for_each(|key| keys.enter(key, 0, 1));
    (0..1000).for_each(|key| _ = keys.push(key, 0));
    assert_eq!(keys.pop(), Some(0));
    (1..300).chain((300..1000).filter(|key| key % 40 != 7)).for_each(|key| keys.remove(key));
    let left: Vec<u32> = (300..1000).filter(|key| key % 40 == 7).collect();
    assert_eq!(firsts(&keys, &|_| true), left[..1]);
    assert_eq!(firsts(&keys, &|_| false), left[..16]);
    assert_eq!(firsts(&keys, &|key| key > 400), left[..=left.partition_point(|key| *key <= 400)]);
    // Each level, the highest first; then groups that are held back.
    for is_fair in [false, true] {
        let mut keys =
            if is_fair { Keys::with_groups(Some(1), false, 10) } else { Keys::new(AnyOrder::new(false), 10) };
        (0..10).for_each(|key| keys.enter(key, u64::from(key % 3), 1));
        keys.push(0, 0);
        assert_eq!(keys.pop(), Some(0)); // so its group is full
        for (key, priority) in [(1, 0), (2, 0), (4, 0), (9, 100), (3, 0), (7, 100)] {
            keys.push(key, priority);
        }
        let expected: &[u32] = if is_fair { &[7, 1, 2, 9, 3] } else { &[9, 1] };
        assert_eq!(firsts(&keys, &|_| true), expected);
        let expected: &[u32] = if is_fair { &[7, 1, 4, 2, 9, 3] } else { &[9, 7, 1, 2, 4, 3] };
        assert_eq!(firsts(&keys, &|_| false), expected);
    }
    // As many levels and groups as there are: some of them.
    for (order, keys_of) in [(AnyOrder::groups(FairShare::HandOuts, true, false), 1000), (AnyOrder::new(false), 200)] {
        let mut keys = Keys::new(order, MANY);
        for key in 0..MANY {
            keys.enter(key, u64::from(key), 1);
            keys.push(key, key as i8);
        }
        if keys_of == 200 {
            (0..MANY).filter(|key| key / 256 % 16 != 0).for_each(|key| keys.remove(key)); // holes
        }
        assert!(firsts(&keys, &|_| false).len() > keys_of);
    }
}

/// Many groups, each with a key in a level; all go.
#[test]
fn groups_of_many_levels_give_memory_back() {
    let mut keys = Keys::with_groups(None, false, MANY);
    for key in 0..MANY {
        keys.enter(key, u64::from(key), 1);
        keys.push(key, key as i8);
    }
    for _ in 0..MANY {
        let key = keys.pop().unwrap();
        keys.ended(0);
        keys.leave(key);
        keys.bin = Bin::new();
    }
    let (groups, bytes) = (keys.order.count_groups(), keys.order.bytes());
    assert!(groups <= super::plain::KEEP + 4 && bytes < 1_200_000, "{groups} groups, {bytes} bytes are left");
}

/// Of many groups all go but one: with one key each, and with three.
#[test]
fn groups_give_memory_back_and_no_call_visits_many() {
    for (of_each, limit) in [(1, None), (3, None), (3, Some(1)), (3, Some(2))] {
        let groups = MANY / of_each;
        let mut keys = Keys::with_groups(limit, false, groups * of_each);
        for key in 0..groups * of_each {
            keys.enter(key, u64::from(key % groups), 1);
            keys.push(key, if key % 3 == 0 { 100 } else { 0 });
        }
        let call = |keys: &mut Keys, what: &dyn Fn(&mut Keys)| {
            VISITS.set(0);
            what(keys);
            assert!(VISITS.get() < 700, "a call visits {}", VISITS.get());
            keys.bin = Bin::new();
        };
        // Each group may be full, or empty, when the next pop comes.
        for _ in 0..groups {
            call(&mut keys, &|keys| _ = keys.pop());
        }
        while keys.held.len() > 1 {
            call(&mut keys, &|keys| {
                let (key, _) = keys.ended(0);
                keys.leave(key);
                if keys.held.len() < groups as usize / 2 {
                    _ = keys.pop();
                }
            });
        }
        for key in 0..groups * of_each {
            if keys.place(key).is_some() {
                call(&mut keys, &|keys| {
                    keys.remove(key);
                    keys.leave(key);
                });
            }
        }
        assert!(
            keys.order.count_groups() <= 2 + 2 * super::plain::KEEP,
            "{} groups are left",
            keys.order.count_groups()
        );
        let bytes = keys.order.bytes();
        assert!(bytes < 1 << 20, "{bytes} bytes are left");
    }
}

/// With many levels a line that becomes empty gives its memory back; with a few it keeps it.
#[test]
fn levels_keep_the_memory_of_a_few_lines() {
    for removed in [false, true] {
        let mut keys = Keys::new(AnyOrder::new(false), 256);
        (0..256).for_each(|key| keys.enter(key, 0, 1));
        keys.push(0, 0);
        let line = keys.order.bytes();
        for _ in 0..3 {
            for key in (0..256).filter(|key| *key > 0 || keys.place(0).is_none()).collect::<Vec<_>>() {
                keys.push(key, key as i8);
            }
            assert_eq!(keys.order.bytes(), 256 * line);
            assert!(keys.bin.is_empty());
            (0..256).for_each(|key| if removed { keys.remove(key) } else { _ = keys.pop() });
            assert_eq!(keys.order.bytes(), 32 * line);
            keys.bin = Bin::new();
            for _ in 0..100 {
                keys.push(7, 7);
                keys.remove(7);
            }
            assert!(keys.order.bytes() <= 32 * line);
            keys.bin = Bin::new();
            assert!(!keys.order.shrink(&mut keys.bin));
            assert!(keys.order.bytes() == 0 && !keys.bin.is_empty());
            keys.bin = Bin::new();
            // Of a few, none is freed.
            for key in (0..32).chain(0..32) {
                keys.push(key, key as i8);
                keys.remove(key);
            }
            assert!(keys.order.bytes() == 32 * line && keys.bin.is_empty());
        }
    }
}

/// A line keeps a few empty blocks, or as many as were reserved.
#[test]
fn a_line_keeps_some_blocks() {
    const KEYS: u32 = 8000;
    let mut keys = Keys::new(AnyOrder::new(false), KEYS);
    (0..KEYS).for_each(|key| keys.enter(key, 0, 1));
    keys.push(0, 0);
    let block = keys.order.bytes() / 1024 * 1024;
    let rounds = |keys: &mut Keys, removed: bool| {
        for _ in 0..3 {
            (0..KEYS).for_each(|key| {
                if keys.place(key).is_none() {
                    _ = keys.push(key, 0)
                }
            });
            (0..KEYS).for_each(|key| if removed { keys.remove(key) } else { _ = keys.pop() });
        }
    };
    for removed in [false, true] {
        rounds(&mut keys, removed);
        let kept = keys.order.bytes() / block;
        assert!((9..=10).contains(&kept) && !keys.bin.is_empty(), "{kept} blocks");
        keys.order.shrink(&mut keys.bin);
        assert_eq!(keys.order.bytes(), 0);
        keys.bin = Bin::new();
        keys.order.reserve(KEYS as usize);
        let (all, blocks) = (keys.order.bytes(), (KEYS as usize).div_ceil(256));
        assert!((blocks..blocks + 2).contains(&(all / block)), "{} blocks for {blocks}", all / block);
        assert!(all >= blocks * (size_of::<Block<u32>>() + 2 * size_of::<usize>()), "and their numbers");
        rounds(&mut keys, removed);
        assert!(keys.bin.is_empty() && keys.order.bytes() < all + 2 * block);
        // With a key, a shrink frees the others, and no more are kept from then on.
        keys.push(0, 0);
        keys.order.shrink(&mut keys.bin);
        assert!(keys.order.bytes() < 3 * block && !keys.bin.is_empty());
        keys.bin = Bin::new();
        keys.remove(0);
        rounds(&mut keys, removed);
        assert!(keys.order.bytes() < 11 * block);
        keys.order.shrink(&mut keys.bin);
        keys.bin = Bin::new();
    }
    // With other orders it does nothing.
    let mut groups = AnyOrder::<u32>::groups(FairShare::HandOuts, true, false);
    let before = groups.bytes();
    groups.reserve(KEYS as usize);
    assert_eq!(groups.bytes(), before);
}

/// A group with a key in each level has an index of its lanes, which goes with them. A removal walks over the lanes to forget some.
#[test]
fn a_lane_of_a_group_with_many_levels_is_found_at_once() {
    let mut keys = Keys::with_groups(None, false, 512);
    let before = keys.order.bytes();
    for _ in 0..3 {
        for key in 0..512 {
            VISITS.set(0);
            keys.enter(key, 0, 1);
            keys.push(key, key as i8);
            assert!(VISITS.get() <= 12, "a push in level {key} visits {}", VISITS.get());
        }
        for key in 0..512 {
            VISITS.set(0);
            keys.remove(key);
            assert!(VISITS.get() < 700, "a removal from level {key} visits {}", VISITS.get());
            keys.leave(key);
        }
        while keys.order.shrink(&mut keys.bin) {}
        keys.bin = Bin::new();
        assert_eq!((keys.order.count_groups(), keys.order.bytes()), (0, before), "all is forgotten");
    }
}

/// Of each lane the first keys, and of all lanes some thousand. And a shrink gives back the table of the groups that were.
#[test]
fn the_first_keys_of_many_lanes() {
    const GROUPS: u32 = 30;
    let mut keys = Keys::with_groups(None, false, 256 * GROUPS * 5);
    let seen = |keys: &Keys| {
        let mut seen = 0;
        keys.order.firsts(|_| {
            seen += 1;
            false
        });
        seen
    };
    for key in 0..100 {
        keys.enter(key, 0, 1);
        keys.push(key, 0);
    }
    assert_eq!(seen(&keys), 16, "of one lane");
    for key in 100..256 * GROUPS * 5 {
        keys.enter(key, u64::from(key / 256 % GROUPS), 1);
        keys.push(key, key as i8);
    }
    assert_eq!(seen(&keys), 1024, "of all lanes");
    let mut groups = Keys::with_groups(None, false, 6000);
    let before = groups.order.bytes();
    (0..6000).for_each(|key| groups.enter(key, u64::from(key), 1));
    (0..6000).for_each(|key| groups.leave(key));
    while groups.order.shrink(&mut groups.bin) {}
    assert!(groups.order.bytes() < before + 100);
}

/// A block that loses all its keys leaves the line: its number is used again behind the others, and the order stays.
#[test]
fn a_block_of_holes_leaves_the_line() {
    for hole in [1, 2, 3] {
        let mut keys = Keys::new(AnyOrder::new(false), 2560);
        let mut expected: Vec<u32> = (0..2560).filter(|key| key / 256 != hole).collect();
        (0..2560).for_each(|key| keys.enter(key, 0, 1));
        (0..1280).for_each(|key| _ = keys.push(key, 0));
        (hole * 256..hole * 256 + 256).for_each(|key| keys.remove(key));
        (1280..2560).for_each(|key| _ = keys.push(key, 0));
        expected.reverse();
        while let Some(key) = keys.pop() {
            assert_eq!(Some(key), expected.pop());
        }
        assert!(expected.is_empty());
    }
    // The last block is full when it loses all.
    let mut keys = Keys::new(AnyOrder::new(false), 512);
    (0..512).for_each(|key| keys.enter(key, 0, 1));
    (0..256).for_each(|key| _ = keys.push(key, 0));
    for _ in 0..40 {
        (256..512).for_each(|key| _ = keys.push(key, 0));
        (256..512).for_each(|key| keys.remove(key));
    }
    assert!(keys.order.bytes() <= 24 << 10, "{} bytes", keys.order.bytes());
}

/// The arrays of a long line get short with it, and a shrink leaves what is needed.
#[test]
fn the_arrays_of_a_line_get_short_with_it() {
    const KEYS: u32 = 1000 * 256;
    let size = size_of::<Block<u32>>();
    let mut keys = Keys::new(AnyOrder::new(false), KEYS);
    (0..KEYS).for_each(|key| keys.enter(key, 0, 1));
    (0..KEYS).for_each(|key| _ = keys.push(key, 0));
    (0..KEYS - 100).for_each(|_| _ = keys.pop());
    (0..600).for_each(|key| _ = keys.push(key, 0)); // in the blocks 0 to 2
    (0..600).for_each(|_| _ = keys.pop());
    assert!(keys.order.bytes() <= 10 * size + 1000, "{} bytes for two ends and eight spare blocks", keys.order.bytes());
    keys.order.reserve(KEYS as usize);
    keys.order.shrink(&mut keys.bin);
    assert_eq!(keys.order.bytes(), 2 * size + 3 * size_of::<usize>() + 8, "the ends, and the numbers up to theirs");
}

/// The front is known, also when the keys before it were taken out.
#[test]
fn the_front_is_found_at_once() {
    for first in [0, 100] {
        let mut keys = Keys::new(AnyOrder::new(false), 1000);
        (0..1000).for_each(|key| keys.enter(key, 0, 1));
        (0..1000).for_each(|key| _ = keys.push(key, 0));
        (0..first).for_each(|_| _ = keys.pop());
        (first..900).for_each(|key| {
            keys.remove(key);
            VISITS.set(0);
            assert!(keys.order.front(true).is_some());
            assert_eq!(VISITS.get(), 0, "it walks behind {key}");
        });
        assert_eq!(keys.pop(), Some(900));
    }
}

/// Pages of keys and of lanes are freed as these go, but for a few.
#[test]
fn pages_go_with_what_is_in_them() {
    const KEYS: u32 = 2000;
    for (of_group, removed) in [(KEYS, false), (KEYS, true), (1, false), (1, true)] {
        let (mut groups, mut bin) = (Groups::<u32>::new(FairShare::HandOuts, true, false), Bin::new());
        let enter = |groups: &mut Groups<u32>, key| {
            groups.enter_group(Group { hash: u64::from(key / of_group), ..Group::default() })
        };
        let few = |groups: &Groups<u32>| {
            let (keys, lanes) = (&groups.keys, &groups.lanes);
            // Beside full ones: the first and the last, a spare one, and that of the value which was given back and is lent next; and four lanes
            // may go at a time.
            assert!(keys.pages() <= keys.len() / 64 + 4, "{} pages for {} keys", keys.pages(), keys.len());
            assert!(lanes.pages() <= lanes.len() / 64 + 8, "{} pages for {} lanes", lanes.pages(), lanes.len());
        };
        let mut places = Vec::new();
        for key in 0..KEYS {
            let group = enter(&mut groups, key);
            places.push(Place { priority: 0, group, position: groups.push(key, 0, group).0 });
        }
        for place in places {
            if removed {
                groups.remove(place, &mut bin);
            } else {
                groups.pop(0, &mut bin);
            }
            groups.leave_group(place.group, &mut bin);
            few(&groups);
        }
        // Groups of which no key was queued.
        while groups.shrink(&mut bin) {}
        let entered: Vec<u32> = (0..KEYS).map(|key| enter(&mut groups, key)).collect();
        for group in entered {
            groups.leave_group(group, &mut bin);
            few(&groups);
        }
        groups.shrink(&mut bin);
        assert_eq!((groups.keys.bytes(), groups.lanes.bytes()), (0, 0));
    }
}

/// The lanes of groups that stay go with their keys, and so do the pages of these.
#[test]
fn pages_of_lanes_go_while_the_groups_stay() {
    let (mut groups, mut bin) = (Groups::<u32>::new(FairShare::HandOuts, false, true), Bin::new());
    let entered: Vec<u32> = (0..8).map(|hash| groups.enter_group(Group { hash, ..Group::default() })).collect();
    for priority in (i8::MIN..=i8::MAX).rev() {
        entered.iter().for_each(|group| _ = groups.push(*group, priority, *group));
    }
    assert!(groups.lanes.pages() >= 32);
    while groups.pop(0, &mut bin).is_some() {}
    let (lanes, pages) = (groups.lanes.len(), groups.lanes.pages());
    assert!(lanes < 150 && pages < 8, "{lanes} lanes in {pages} pages");
}

/// A shrink forgets some idle lanes a call, and says whether there are more.
#[test]
fn a_shrink_of_idle_lanes_is_short() {
    let (mut groups, mut bin) = (Groups::<u32>::new(FairShare::HandOuts, true, false), Bin::new());
    let entered: Vec<u32> = (0..100).map(|hash| groups.enter_group(Group { hash, ..Group::default() })).collect();
    entered.iter().for_each(|group| _ = groups.push(*group, 0, *group));
    entered.iter().for_each(|_| _ = groups.pop(0, &mut bin));
    entered.iter().for_each(|group| groups.leave_group(*group, &mut bin));
    let mut left = vec![groups.lanes.len()];
    while groups.shrink(&mut bin) {
        left.push(groups.lanes.len());
    }
    left.push(groups.lanes.len());
    assert_eq!(left, [100, 36, 0]);
}
