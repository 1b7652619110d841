//! What is measured is a queue: each key is handed out once, and no add is lost.

use crate::queues::Crate;
use common::by_hand::{ByHand, Order, Sorted, Turns};
use common::check::{no_add_is_lost, order_of};

const KEYS: u64 = 5000;

/// Each key is handed out once for its first adds and once for the add while it is processing, and the keys of a level, or of a group, in the order of their adds.
fn check<O: Order, const LEVELS: bool, const N: u64>() {
    let by_lane = |mut order: Vec<u64>| {
        order.sort_by_key(|key| if LEVELS { key % 3 } else { key % N });
        order
    };
    let expected = by_lane(order_of::<Crate<LEVELS, N, 0>>(KEYS));
    let mut by_hand = by_lane(order_of::<ByHand<O>>(KEYS));
    assert!(by_hand == expected, "by hand, {N} groups");
    by_hand.sort_unstable();
    assert!(by_hand.into_iter().eq((0..2 * KEYS).map(|n| n / 2)), "{N} groups");
    no_add_is_lost::<Crate<LEVELS, N, 0>>();
    no_add_is_lost::<ByHand<O>>();
}

pub fn run() {
    check::<Sorted, true, 0>();
    check::<Turns<1>, false, 1>();
    check::<Turns<100>, false, 100>();
}
