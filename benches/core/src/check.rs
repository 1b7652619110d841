//! What is measured is a queue: each key is handed out once, no add is lost, and a limit holds.

use crate::queues::Crate;
use common::Subject;
use common::by_hand::{ByHand, MapOfStates, Order, Sets, Sorted, States, Turns};
use common::check::{no_add_is_lost, order_of};
use std::collections::VecDeque;

const KEYS: u64 = 5000;

/// Each key is handed out once for its first adds and once for the add while it is processing, and the keys of a level, or of a group, in the order of their adds.
fn check<O: Order, S: States<O>, const LEVELS: bool, const N: u64, const LIMIT: u32>() {
    let by_lane = |mut order: Vec<u64>| {
        order.sort_by_key(|key| if LEVELS { key % 3 } else { key % N.max(1) });
        order
    };
    let expected = by_lane(order_of::<Crate<u64, LEVELS, N, LIMIT>>(KEYS));
    let mut by_hand = by_lane(order_of::<ByHand<O, S>>(KEYS));
    assert!(by_hand == expected, "by hand, {N} groups");
    by_hand.sort_unstable();
    assert!(by_hand.into_iter().eq((0..2 * KEYS).map(|n| n / 2)), "{N} groups");
    no_add_is_lost::<Crate<u64, LEVELS, N, LIMIT>>();
    no_add_is_lost::<ByHand<O, S>>();
}

/// While four keys of a group are held, which is the limit, the next four are of the other one.
fn check_limit<Q: Subject<u64>>() {
    fn hold<Q: Subject<u64>>(queue: &Q, held: &mut Vec<u64>) {
        queue.process(|queue, key| {
            held.push(key % 100);
            if held.len() == 4 {
                (0..4).for_each(|n| queue.add(n * 100 + 1));
            }
            if held.len() < 8 {
                hold(queue, held);
            }
        });
    }
    let (queue, mut held) = (Q::make(), Vec::new());
    (0..20).for_each(|n| queue.add(n * 100));
    hold(&queue, &mut held);
    assert_eq!(held, [0, 0, 0, 0, 1, 1, 1, 1], "{}", Q::NAME);
}

pub fn run() {
    check::<VecDeque<u64>, MapOfStates<()>, false, 0, 0>();
    check::<Sorted, MapOfStates<(i8, u64)>, true, 0, 0>();
    check::<Sorted, Sets<(i8, u64)>, true, 0, 0>();
    check::<Turns<1, 0>, MapOfStates<()>, false, 1, 0>();
    check::<Turns<100, 0>, MapOfStates<()>, false, 100, 0>();
    check::<Turns<100, 0>, Sets<()>, false, 100, 0>();
    check::<Turns<100, 4>, MapOfStates<()>, false, 100, 4>();
    check_limit::<Crate<u64, false, 100, 4>>();
    check_limit::<ByHand<Turns<100, 4>, MapOfStates<()>>>();
}
