//! Random calls from one thread, on the crate and on the plain reference, compared after each (proptest; failures shrink).
//!
//! Properties:
//! * what a call returns is what client-go's algorithm returns: P1, P3, P4, P6, and P13 where a worker panics;
//! * `len`, `processing_len`, `is_dirty` and every number of `stats` agree with it, and the sum promised by `Stats` holds;
//! * a key that was added is handed out afterwards, once (P2), and in the end nothing is left;
//! * while a key is in line and futures wait, one of them has been woken, whoever else was dropped (W2, W3); after a
//!   shut-down all have been;
//! * plain keys, keys that own something and keys that collide do not differ.

mod support {
    pub(crate) mod ops;
    pub(crate) mod reference;
}

use proptest::collection::vec;
use proptest::prelude::*;
use support::ops::{self, Op};

fn op() -> impl Strategy<Value = Op> {
    let n = 0..12_u8;
    prop_oneof![
        12 => n.clone().prop_map(Op::Add),
        2 => vec(n.clone(), 0..6).prop_map(Op::AddAll),
        1 => vec(n.clone(), 0..4).prop_map(Op::AddAllPanics),
        6 => Just(Op::TryGet),
        1 => Just(Op::GetTimeoutZero),
        2 => Just(Op::Get),
        2 => n.clone().prop_map(Op::GetMany),
        8 => n.clone().prop_map(Op::Done),
        2 => n.clone().prop_map(Op::Drop),
        1 => n.clone().prop_map(Op::Panic),
        2 => n.clone().prop_map(Op::IsDirty),
        2 => n.clone().prop_map(Op::IntoOwned),
        4 => Just(Op::PollNew),
        4 => n.clone().prop_map(Op::Poll),
        2 => n.prop_map(Op::DropFuture),
        1 => Just(Op::ShrinkToFit),
        1 => Just(Op::CloneHandle),
    ]
}

/// A life of a queue: calls, then perhaps a shut-down, plain or draining, and more calls.
fn life() -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![Just(vec![]), Just(vec![Op::ShutDown]), Just(vec![Op::DrainTimeoutZero])];
    (vec(op(), 0..120), end, vec(op(), 0..30)).prop_map(|(before, end, after)| [before, end, after].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_crate_agrees_with_the_reference(ops in life()) {
        ops::run(&ops);
    }
}
