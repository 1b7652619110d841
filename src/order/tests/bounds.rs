//! Memory comes back, and no call visits many keys.

use super::{Keys, VISITS};
use crate::order::{AnyOrder, Bin, Order};

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

/// Of many groups all go but one: with one key each, and with three.
#[test]
fn groups_give_memory_back_and_no_call_visits_many() {
    for (of_each, limit) in [(1, None), (3, None), (3, Some(1)), (3, Some(2))] {
        let groups = MANY / of_each;
        let mut keys = Keys::new(AnyOrder::groups(limit, false), groups * of_each);
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
        assert!(keys.order.count_groups() <= 2 + 2 * 64, "{} groups are left", keys.order.count_groups());
        let bytes = keys.order.bytes();
        assert!(bytes < 1 << 19, "{bytes} bytes are left");
    }
}
