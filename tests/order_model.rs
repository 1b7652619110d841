//! Random calls on queues with priorities, groups and a limit, and on a plain one, compared after each call (proptest; failures shrink).
//!
//! P19, P20, and P9 and P10 where keys have priorities; the plain queue is in `support/plain_order.rs`.

mod support {
    pub(crate) mod order_ops;
    pub(crate) mod plain_order;
}

use proptest::collection::vec;
use proptest::prelude::*;
use support::order_ops::{self, Conflict, Level, Op, PLANS};

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![
        1 => Just(Level::Min),
        2 => Just(Level::Low),
        3 => Just(Level::Normal),
        2 => Just(Level::High),
        1 => any::<i8>().prop_map(Level::Any),
    ]
}

fn conflict() -> impl Strategy<Value = Conflict> {
    prop_oneof![Just(Conflict::EarliestWins), Just(Conflict::Replace), Just(Conflict::KeepExisting)]
}

fn op(keys: u8) -> impl Strategy<Value = Op> {
    let (n, delay) = (any::<u8>(), prop_oneof![2 => Just(0), 1 => any::<u8>()]);
    prop_oneof![
        8 => (0..keys).prop_map(Op::Add),
        12 => (0..keys, level(), delay.clone(), conflict()).prop_map(|(k, l, d, c)| Op::AddWith(k, l, d, c)),
        2 => (0..keys).prop_map(Op::Cancel),
        3 => (0..keys).prop_map(Op::Remove),
        3 => (0..60_u8).prop_map(Op::Turn),
        8 => Just(Op::Get),
        6 => n.prop_map(Op::Done),
        5 => (n, prop::option::of(level()), delay, conflict()).prop_map(|(n, l, d, c)| Op::Requeue(n, l, d, c)),
        2 => (0..40_u8).prop_map(Op::Work),
        1 => n.prop_map(Op::TakeWhere),
        1 => Just(Op::ShrinkToFit),
    ]
}

/// Calls, then perhaps a shut-down and more calls.
fn life() -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![Just(vec![]), Just(vec![Op::ShutDown])];
    prop_oneof![Just(6_u8), Just(60), Just(250)].prop_flat_map(move |keys| {
        (vec(op(keys), 0..150), end.clone(), vec(op(keys), 0..30))
            .prop_map(|(before, end, after)| [before, end, after].concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_with_priorities_and_groups_does_what_a_plain_one_does(plan in 0..PLANS, ops in life()) {
        order_ops::run(order_ops::plan(plan), &ops);
    }
}
