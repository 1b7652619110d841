//! Alphabets for all short lives: steps that a machine sees.

use super::reference::op::{End, Form, How, Op, Span};
use super::reference::plan::{Limiter, Plan};
use super::reference::words::Alphabet;
use crate::{DelayConflict, DelayedAdd, OnPanic};

const TEN: Span = Span::Nanos(10);

pub(super) fn alphabets() -> Vec<Alphabet> {
    let with = |n, priority| Op::AddWith(n, How { priority: Some(priority), ..How::new() });
    let after = |conflict, after| Op::AddWith(0, How { after: Some(Span::Nanos(after)), conflict, ..How::new() });
    let debounce = |after, at_most| {
        let conflict = DelayConflict::Replace;
        Op::AddWith(0, How { after: Some(Span::Nanos(after)), conflict, at_most: Some(at_most), ..How::new() })
    };
    let policies = [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict];
    let group = Plan { groups: Some(2), limit: Some(1), ..Plan::plain() };
    vec![
        Alphabet {
            name: "plain",
            letters: vec![
                Op::Add(0),
                Op::Add(1),
                Op::Add(6), // it is in the chain of key 0
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::End(1, End::Done),
                Op::Remove(0),
                Op::Remove(1),
                Op::TakeWhere(3),
                Op::ShutDown,
            ],
            plans: vec![Plan::plain()],
        },
        Alphabet {
            name: "delays",
            letters: vec![
                Op::Add(0),
                after(DelayConflict::EarliestWins, 10),
                after(DelayConflict::Replace, 20),
                debounce(20, 25),
                after(DelayConflict::KeepExisting, 5),
                after(DelayConflict::Replace, 0),
                Op::Cancel(0),
                Op::Advance(TEN),
                Op::Turn,
                Op::Get(Form::Try),
                Op::End(0, End::RequeueAfter(TEN)),
                Op::End(0, End::CoolDown(TEN)),
                Op::End(0, End::Done),
                Op::TakeDelayed,
                Op::TakeWhere(1 | 2 | 4),
                Op::ShutDown,
            ],
            plans: policies.map(|policy| Plan { policy, ..Plan::plain() }).to_vec(),
        },
        Alphabet {
            name: "failures",
            letters: vec![
                Op::Add(0),
                Op::AddRateLimited(0),
                Op::Cancel(0),
                Op::Forget(0),
                Op::Turn,
                Op::Get(Form::Try),
                Op::End(0, End::Retry),
                Op::End(0, End::GiveUp),
                Op::End(0, End::Done),
                Op::ShutDown,
            ],
            plans: [Limiter::FastSlow, Limiter::Own].map(|limiter| Plan { limiter, ..Plan::plain() }).to_vec(),
        },
        Alphabet {
            name: "levels",
            letters: vec![
                with(0, 100),
                with(0, -100),
                with(1, 100),
                Op::Add(1),
                Op::AddWith(1, How { after: Some(TEN), priority: Some(100), ..How::new() }),
                Op::Advance(TEN),
                Op::Turn,
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::Remove(0),
                Op::TakeWhere(3),
            ],
            plans: vec![
                Plan { policy: DelayedAdd::Promote, ..Plan::plain() },
                Plan { policy: DelayedAdd::Strict, strict: true, ..Plan::plain() },
            ],
        },
        Alphabet {
            name: "times",
            letters: vec![
                Op::Add(0),
                Op::Add(1),
                with(1, 100),
                Op::AddWith(0, How { after: Some(TEN), ..How::new() }),
                Op::Cancel(0),
                Op::Advance(TEN),
                Op::Turn,
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::End(0, End::RequeueWith(How::new())),
                Op::Remove(0),
                Op::ShutDown,
            ],
            // Each key is measured, or some are: see `run_times`.
            plans: [None, Some(OnPanic::Done)]
                .map(|on_panic| Plan { measure: true, policy: DelayedAdd::Strict, on_panic, ..Plan::plain() })
                .to_vec(),
        },
        Alphabet {
            name: "holders",
            letters: vec![
                Op::Add(0),
                after(DelayConflict::Replace, 10),
                Op::Advance(TEN),
                Op::Turn,
                Op::Get(Form::Try),
                Op::Get(Form::Owned),
                Op::WaitDirty(0),
                Op::End(0, End::Unwind),
                Op::End(0, End::RequeueWith(How::new())),
                Op::End(0, End::Done),
                Op::Remove(0),
                Op::Stop,
            ],
            plans: [None, Some(OnPanic::Retry)].map(|on_panic| Plan { on_panic, ..Plan::plain() }).to_vec(),
        },
        Alphabet {
            name: "groups and a limit",
            letters: vec![
                Op::Add(0),
                Op::Add(1),
                Op::Add(2),
                with(2, 100),
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::End(1, End::RequeueWith(How::new())),
                Op::Remove(2),
                Op::TakeWhere(7),
                Op::Look,
                Op::Stop,
            ],
            plans: vec![group.clone(), Plan { limit: None, ..group }],
        },
    ]
}
