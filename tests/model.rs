//! Random calls from one thread, on the crate and on the plain reference, compared after each call (proptest; failures shrink).
//!
//! Properties:
//! * a call returns what client-go's algorithm returns: P1, P3, P4, P6, and P13 where a worker panics;
//! * `len`, `processing_len`, `is_dirty` and every number of `stats` agree with it, and the sum promised by `Stats` holds;
//! * a key that was added is handed out afterwards, once (P2), and in the end no key is left;
//! * while a key is queued and futures wait, one of them has been woken, even if others were dropped (W2, W3); after a
//!   shut-down all have been woken;
//! * plain keys, keys that own memory and keys that collide behave alike;
//! * with delays of every size and a clock that jumps: a delay expires at its deadline and not before, in order of deadline, the
//!   conflict rules and the three policies hold, and no key is lost or handed out twice;
//! * with a limiter, of four kinds: each rate-limited add and each retry calls it once, and its answer is the delay; `forget`,
//!   `succeed` and `requeue_after` reset the count and change nothing else;
//! * the counts add up after each call: adds, retries, drops and panics, hand-outs that are still to come, and the observer's
//!   events; queue times, processing times and ages agree with a plain computation;
//! * the timing wheel alone agrees with a sorted map, as described in `support/wheel.rs`.

mod support {
    pub(crate) mod delay_ops;
    pub(crate) mod delays;
    pub(crate) mod limits;
    pub(crate) mod ops;
    pub(crate) mod reference;
    pub(crate) mod wheel;
}

use proptest::collection::vec;
use proptest::prelude::*;
use support::delay_ops::{self, Conflict, Long, Op as DelayOp, Span, Unit};
use support::ops::{self, Op, Side};
use support::wheel;

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
        2 => n.clone().prop_map(Op::DropFuture),
        4 => n.prop_map(Op::Remove),
        1 => Just(Op::ShrinkToFit),
        1 => Just(Op::CloneHandle),
    ]
}

/// A life of a queue: calls, then perhaps a shut-down, plain or draining, and more calls.
fn life() -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![Just(vec![]), Just(vec![Op::ShutDown]), Just(vec![Op::DrainTimeoutZero])];
    (vec(op(), 0..120), end, vec(op(), 0..30)).prop_map(|(before, end, after)| [before, end, after].concat())
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![1 => Just(Side::Before), 2 => Just(Side::At), 1 => Just(Side::After)]
}

/// Times that can meet each other. With `long`, also times that take a clock near its last instant.
fn span(long: bool) -> impl Strategy<Value = Span> {
    let unit = prop_oneof![
        1 => Just(Unit::Nanosecond),
        1 => Just(Unit::Microsecond),
        2 => Just(Unit::Millisecond),
        2 => Just(Unit::Second),
        1 => Just(Unit::Minute),
        1 => Just(Unit::Hour),
        1 => Just(Unit::Day),
        u32::from(long) => Just(Unit::Year),
        u32::from(long) => Just(Unit::Century),
    ];
    let long_span = prop_oneof![
        Just(Long::TwelveDays),
        Just(Long::TwoYears),
        Just(Long::Signed),
        Just(Long::FiveHundredYears),
        Just(Long::Unsigned),
        Just(Long::Max),
    ];
    prop_oneof![
        2 => Just(Span::Zero),
        5 => (0..if long { 64_u8 } else { 56 }, side()).prop_map(|(n, side)| Span::Power(n, side)),
        5 => (unit, 0..5_u8).prop_map(|(unit, n)| Span::Of(unit, n)),
        6 => (0..4_u8, side()).prop_map(|(n, side)| Span::ToDeadline(n, side)),
        u32::from(long) => side().prop_map(Span::ToEnd),
        u32::from(long) => long_span.prop_map(Span::Long),
        2 => (if long { 1 } else { 15 }..64, any::<u64>()).prop_map(|(bits, n)| Span::Nanoseconds(n >> bits)),
    ]
}

fn delay_op() -> impl Strategy<Value = DelayOp> {
    let n = 0..12_u8;
    let conflict = prop_oneof![Just(Conflict::EarliestWins), Just(Conflict::Replace), Just(Conflict::KeepExisting)];
    // The clock reaches its last instant in some lives only.
    let by = prop_oneof![30 => span(false), 1 => span(true)];
    prop_oneof![
        4 => n.clone().prop_map(DelayOp::Add),
        1 => vec(n.clone(), 0..6).prop_map(DelayOp::AddAll),
        10 => (n.clone(), span(true)).prop_map(|(n, span)| DelayOp::AddAfter(n, span)),
        6 => (n.clone(), span(true), conflict.clone()).prop_map(|(n, span, how)| DelayOp::AddWith(n, span, how)),
        1 => (n.clone(), conflict.clone()).prop_map(|(n, how)| DelayOp::AddWithout(n, how)),
        2 => n.clone().prop_map(DelayOp::Cancel),
        3 => n.clone().prop_map(DelayOp::Remove),
        1 => Just(DelayOp::TakeDelayed),
        2 => any::<u8>().prop_map(DelayOp::TakeWhere),
        8 => Just(DelayOp::Turn),
        8 => by.prop_map(DelayOp::Advance),
        6 => Just(DelayOp::TryGet),
        4 => n.clone().prop_map(DelayOp::Done),
        3 => (n.clone(), span(true)).prop_map(|(n, span)| DelayOp::RequeueAfter(n, span)),
        1 => n.clone().prop_map(DelayOp::IsDirty),
        1 => n.clone().prop_map(DelayOp::IntoOwned),
        2 => Just(DelayOp::PollNew),
        2 => n.clone().prop_map(DelayOp::Poll),
        1 => n.clone().prop_map(DelayOp::DropFuture),
        3 => n.clone().prop_map(DelayOp::AddRateLimited),
        1 => (n.clone(), span(true), conflict.clone()).prop_map(|(n, span, how)| DelayOp::AddRateLimitedWith(n, span, how)),
        4 => n.clone().prop_map(DelayOp::Retry),
        2 => n.clone().prop_map(DelayOp::Succeed),
        1 => (n.clone(), span(true), conflict, any::<bool>())
            .prop_map(|(n, span, how, limited)| DelayOp::RequeueWith(n, span, how, limited)),
        1 => n.clone().prop_map(DelayOp::ItemNumRequeues),
        1 => n.clone().prop_map(DelayOp::Forget),
        1 => n.clone().prop_map(DelayOp::NumRequeues),
        1 => Just(DelayOp::RetryAll),
        2 => n.clone().prop_map(DelayOp::GiveUp),
        2 => n.prop_map(DelayOp::Panic),
        1 => Just(DelayOp::ShrinkToFit),
        1 => Just(DelayOp::CloneHandle),
        1 => (any::<u8>(), span(true), 0..64_u8).prop_map(|(n, from, bits)| DelayOp::DelayMany(n, from, bits)),
        1 => (0..8_u8, prop::option::of(span(true))).prop_map(|(every, to)| DelayOp::Rearrange(every, to)),
        1 => Just(DelayOp::WorkOff),
    ]
}

/// As [`life`], with delays.
fn delayed_life() -> impl Strategy<Value = Vec<DelayOp>> {
    let end = prop_oneof![2 => Just(vec![]), 1 => Just(vec![DelayOp::ShutDown])];
    (vec(delay_op(), 0..120), end, vec(delay_op(), 0..30))
        .prop_map(|(before, end, after)| [before, end, after].concat())
}

fn ticks(bits: u8) -> impl Strategy<Value = wheel::Span> {
    use wheel::{Side, Span};
    let side = prop_oneof![1 => Just(Side::Before), 2 => Just(Side::At), 1 => Just(Side::After)];
    prop_oneof![
        2 => Just(Span::Zero),
        6 => (0..bits, side.clone()).prop_map(|(n, side)| Span::Power(n, side)),
        6 => (any::<u8>(), 0..bits - 7).prop_map(|(n, by)| Span::Shifted(n, by)),
        6 => (any::<u16>(), side.clone()).prop_map(|(at, side)| Span::ToDeadline(at, side)),
        u32::from(bits == 64) => side.prop_map(Span::ToEnd),
        2 => (any::<u64>(), 1..=bits).prop_map(|(n, bits)| Span::Any(n >> (64 - bits))),
    ]
}

fn wheel_op() -> impl Strategy<Value = wheel::Op> {
    use wheel::Op;
    // The clock mostly stays before most deadlines.
    let by = prop_oneof![30 => ticks(40), 5 => ticks(56), 1 => ticks(64)];
    prop_oneof![
        20 => ticks(64).prop_map(Op::Insert),
        10 => ticks(40).prop_map(Op::Insert),
        1 => any::<u8>().prop_map(Op::InsertPast),
        3 => (any::<u8>(), ticks(64), 0..64_u8).prop_map(|(n, from, bits)| Op::InsertMany(n, from, bits)),
        6 => any::<u16>().prop_map(Op::Remove),
        6 => (any::<u16>(), ticks(64)).prop_map(|(at, to)| Op::Move(at, to)),
        6 => (by.clone(), any::<u8>()).prop_map(|(by, budget)| Op::Pop(by, budget)),
        6 => (by, any::<u8>()).prop_map(|(by, budget)| Op::PopAll(by, budget)),
        1 => Just(Op::PopAny),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_crate_agrees_with_the_reference(ops in life()) {
        ops::run(&ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_crate_agrees_with_the_reference_on_delays(
        policy in 0..3_u8,
        limiter in 0..delay_ops::LIMITERS,
        ops in delayed_life(),
    ) {
        delay_ops::run(delay_ops::policy(policy), limiter, &ops);
    }

    #[test]
    fn the_wheel_agrees_with_a_sorted_map(start: u64, ops in vec(wheel_op(), 0..150)) {
        wheel::run(start, &ops);
    }
}

/// An expired entry is popped before all later entries are sorted.
#[test]
fn the_wheel_pops_expired_entries_before_it_sorts() {
    let moves = wheel::moves_before_the_expired_entry();
    assert!(moves < 2_000, "{moves} entries were moved first");
}
