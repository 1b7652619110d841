//! What the runs have crossed: each step with each state of its key under each setting, and each panic with each step.
//!
//! A step that names no key meets the states of all keys. A cell that stays empty is a crossing that nothing tests; and so is one that is
//! marked as [impossible](IMPOSSIBLE), and yet filled.

use super::key::Fault;
use super::op::{Blocking, End, Form, Goal, Op, Outcome};
use super::plan::{Limiter, Plan};
use super::queue::Reference;
use keyqueue::{DelayConflict, DelayedAdd, OnPanic};
use std::cell::RefCell;
use std::fmt::Write;

/// The state of a key before a step.
#[rustfmt::skip]
const STATES: [&str; 16] = [
    "absent", "failed", "queued", "delayed", "delayed, and an add waits", "queued, delayed", "queued in a full group",
    "processing", "processing, dirty", "processing, delayed", "processing, dirty, delayed",
    "shut down, absent", "shut down, queued", "shut down, delayed", "shut down, processing", "shut down, processing, dirty",
];

#[rustfmt::skip]
const SETTINGS: [&str; 14] = [
    "plain", "levels", "groups", "weights", "limit", "strict", "shards", "measured", "observed", "promote", "strict delays",
    "own limiter", "retry on panic", "max retries",
];

/// The steps. An outcome of a handler counts when its loop applies it.
#[rustfmt::skip]
const STEPS: [&str; 66] = [
    "add", "add_all", "add_after", "add_with now", "add_with earliest", "add_with replace", "add_with keep", "add_with limited",
    "add_rate_limited", "cancel", "remove", "forget", "take_where", "take_delayed", "look",
    "try_get", "try_get_owned", "get_timeout", "get", "get_owned", "get_many", "work",
    "done", "drop", "unwind", "succeed", "give_up", "retry", "requeue_after", "requeue_with", "into_owned",
    "wait for an item", "wait for an owned item", "wait until idle", "wait until drained", "wait for the shut-down",
    "wait until workers are drained", "wait until joined", "wait until dirty", "poll", "drop a waiter",
    "start a loop", "poll a loop", "drop a loop",
    "outcome success", "outcome requeue_after", "outcome requeue_with", "outcome retry", "outcome failed", "outcome retry_after",
    "outcome give_up", "outcome panic",
    "stop", "drain_timeout of workers", "advance", "turn", "shut_down", "drain_timeout", "wait_idle_timeout",
    "wait_idle", "shut_down_with_drain", "join", "drain of workers", "shrink_to_fit", "repeat", "finish",
];

const HELD: [&str; 6] = [
    "processing",
    "processing, dirty",
    "processing, delayed",
    "processing, dirty, delayed",
    "shut down, processing",
    "shut down, processing, dirty",
];

/// Steps, states and settings that never meet, with the reason. An empty list is any. `not`: all states but these.
struct Never {
    steps: &'static [&'static str],
    states: &'static [&'static str],
    not: bool,
    settings: &'static [&'static str],
    #[allow(dead_code, reason = "for the reader")]
    because: &'static str,
}

#[rustfmt::skip]
const IMPOSSIBLE: [Never; 7] = [
    Never {
        steps: &[
            "done", "drop", "unwind", "succeed", "give_up", "retry", "requeue_after", "requeue_with", "into_owned", "wait until dirty",
            "outcome success", "outcome requeue_after", "outcome requeue_with", "outcome retry", "outcome failed", "outcome retry_after",
            "outcome give_up", "outcome panic",
        ],
        states: &HELD, not: true, settings: &[],
        because: "only the holder has the item, which the call consumes or borrows",
    },
    Never {
        steps: &[], states: &["queued in a full group"], not: false, settings: &["plain", "shards"],
        because: "a limit needs groups, and the builder refuses it with several shards",
    },
    Never {
        steps: &[], states: &["delayed, and an add waits"], not: false, settings: &["promote"],
        because: "an add waits for a delay with DelayedAdd::Strict alone",
    },
    Never {
        steps: &["wait_idle"], not: true, settings: &[],
        states: &["absent", "failed", "shut down, absent", "shut down, delayed"],
        because: "the call would block: the queue is not idle",
    },
    Never {
        steps: &["shut_down_with_drain"], not: true, settings: &[],
        states: &["absent", "failed", "delayed", "delayed, and an add waits", "shut down, absent", "shut down, delayed"],
        because: "the call would block: the queue is not drained",
    },
    Never {
        steps: &["drain of workers"], not: false, settings: &[],
        states: &[
            "queued", "queued, delayed", "queued in a full group", "processing", "processing, dirty", "processing, delayed",
            "processing, dirty, delayed",
        ],
        because: "the call would block: the workers are not stopped, and the queue is not drained",
    },
    Never { steps: &["repeat", "finish"], states: &[], not: false, settings: &[], because: "no calls of the queue, but of steps" },
];

const ADDS: [&str; 9] = [
    "add",
    "add_all",
    "add_after",
    "add_with now",
    "add_with earliest",
    "add_with replace",
    "add_with keep",
    "add_with limited",
    "add_rate_limited",
];
const LOOK_UPS: [&str; 3] = ["cancel", "remove", "forget"];
const GETS: [&str; 7] = ["try_get", "try_get_owned", "get_timeout", "get", "get_owned", "get_many", "work"];
const ENDS: [&str; 10] = [
    "done",
    "drop",
    "unwind",
    "succeed",
    "give_up",
    "retry",
    "requeue_after",
    "requeue_with",
    "drop a waiter",
    "drop a loop",
];
const STOPS: [&str; 5] =
    ["stop", "drain_timeout of workers", "wait until workers are drained", "drain of workers", "poll"];

/// The steps in which code of the user is called, and can panic. In no other step does it.
const CALLED: [(Fault, &[&[&str]]); Fault::ALL.len()] = [
    (Fault::Eq, &[&ADDS, &LOOK_UPS, &STOPS, &["take_where"]]),
    (Fault::Hash, &[&ADDS, &LOOK_UPS, &STOPS, &["take_where"]]),
    (Fault::Borrow, &[&LOOK_UPS]),
    (Fault::Clone, &[&STOPS, &["take_where", "take_delayed", "look", "poll a loop"]]),
    (Fault::Drop, &[&ADDS, &LOOK_UPS, &ENDS, &STOPS, &["take_where", "look", "poll a loop", "work"]]),
    (Fault::Group, &[&ADDS]),
    (Fault::Weight, &[&ADDS]),
    (Fault::Predicate, &[&["take_where"]]),
    (Fault::Iterator, &[&["add_all"]]),
    (
        Fault::Limiter,
        &[
            &[
                "add_with limited",
                "add_rate_limited",
                "forget",
                "unwind",
                "succeed",
                "give_up",
                "retry",
                "requeue_after",
            ],
            &["requeue_with", "poll a loop"],
        ],
    ),
    (
        Fault::Observer,
        &[
            &ADDS,
            &GETS,
            &ENDS,
            &["cancel", "wait for an item", "wait for an owned item", "poll", "start a loop", "poll a loop", "turn"],
        ],
    ),
    (
        Fault::Waker,
        &[
            &ADDS,
            &GETS,
            &ENDS,
            &STOPS,
            &[
                "cancel",
                "remove",
                "take_where",
                "take_delayed",
                "wait for an item",
                "wait for an owned item",
                "wait until drained",
            ],
            &["start a loop", "poll a loop", "turn", "shut_down", "drain_timeout", "shut_down_with_drain"],
        ],
    ),
    (Fault::Handler, &[&["start a loop", "poll a loop"]]),
    (Fault::Hook, &[&["poll a loop"]]),
];

/// How often each cell was filled: steps by states by settings; and panics by steps.
struct Cells {
    met: Vec<[[u32; SETTINGS.len()]; STATES.len()]>,
    struck: [[u32; STEPS.len()]; Fault::ALL.len()],
    step: usize,
}

thread_local! {
    static CELLS: RefCell<Cells> = RefCell::new(Cells {
        met: vec![[[0; SETTINGS.len()]; STATES.len()]; STEPS.len()],
        struck: [[0; STEPS.len()]; Fault::ALL.len()],
        step: 0,
    });
}

fn place(of: &[&str], name: &str) -> usize {
    of.iter().position(|other| *other == name).unwrap_or_else(|| panic!("no such row: {name}"))
}

/// The row of a step.
pub(crate) fn step(op: &Op) -> &'static str {
    match op {
        Op::Add(_) => "add",
        Op::AddAll(_) => "add_all",
        Op::AddAfter(..) => "add_after",
        Op::AddWith(_, how) if how.rate_limited => "add_with limited",
        Op::AddWith(_, how) if how.after.is_none() => "add_with now",
        Op::AddWith(_, how) => match how.conflict {
            DelayConflict::Replace => "add_with replace",
            DelayConflict::KeepExisting => "add_with keep",
            _ => "add_with earliest",
        },
        Op::AddRateLimited(_) => "add_rate_limited",
        Op::Cancel(_) => "cancel",
        Op::Remove(_) => "remove",
        Op::Forget(_) => "forget",
        Op::TakeWhere(_) => "take_where",
        Op::TakeDelayed => "take_delayed",
        Op::Look => "look",
        Op::Get(form) => match form {
            Form::Try => "try_get",
            Form::TryOwned => "try_get_owned",
            Form::Timeout => "get_timeout",
            Form::Get => "get",
            Form::Owned => "get_owned",
        },
        Op::GetMany(_) => "get_many",
        Op::Work(..) => "work",
        Op::Repeat(..) | Op::Fault(..) | Op::Crowd(..) => "repeat",
        Op::End(_, end) => match end {
            End::Done => "done",
            End::Drop => "drop",
            End::Unwind => "unwind",
            End::Succeed => "succeed",
            End::GiveUp => "give_up",
            End::Retry => "retry",
            End::RequeueAfter(_) => "requeue_after",
            End::RequeueWith(_) => "requeue_with",
        },
        Op::IntoOwned(_) => "into_owned",
        Op::Wait(goal) => match goal {
            Goal::Item => "wait for an item",
            Goal::OwnedItem => "wait for an owned item",
            Goal::Idle => "wait until idle",
            Goal::Drained => "wait until drained",
            Goal::ShuttingDown => "wait for the shut-down",
            Goal::WorkersDrained => "wait until workers are drained",
            Goal::Joined => "wait until joined",
        },
        Op::WaitDirty(_) => "wait until dirty",
        Op::Poll(_) => "poll",
        Op::DropWaiter(_) => "drop a waiter",
        Op::StartLoop => "start a loop",
        Op::Finish(..) => "finish",
        Op::PollLoop(_) => "poll a loop",
        Op::DropLoop(_) => "drop a loop",
        Op::Stop => "stop",
        Op::DrainWorkers => "drain_timeout of workers",
        Op::Advance(_) => "advance",
        Op::Turn => "turn",
        Op::ShutDown => "shut_down",
        Op::DrainTimeout => "drain_timeout",
        Op::IdleTimeout => "wait_idle_timeout",
        Op::Block(call) => match call {
            Blocking::WaitIdle => "wait_idle",
            Blocking::Drain => "shut_down_with_drain",
            Blocking::Join => "join",
            Blocking::DrainWorkers => "drain of workers",
        },
        Op::ShrinkToFit => "shrink_to_fit",
    }
}

/// The row of an outcome.
pub(crate) fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "outcome success",
        Outcome::RequeueAfter(_) => "outcome requeue_after",
        Outcome::RequeueWith(_) => "outcome requeue_with",
        Outcome::Retry => "outcome retry",
        Outcome::Failed => "outcome failed",
        Outcome::RetryAfter(_) => "outcome retry_after",
        Outcome::GiveUp => "outcome give_up",
        Outcome::Panic => "outcome panic",
    }
}

fn state(reference: &Reference, key: u8) -> &'static str {
    let (processing, dirty) = (reference.is_processing(key), reference.is_dirty(key));
    let (delayed, waits) = reference.is_delayed(key);
    match (reference.shut_down, processing, dirty, delayed) {
        (true, true, true, _) => "shut down, processing, dirty",
        (true, true, false, _) => "shut down, processing",
        (true, false, true, _) => "shut down, queued",
        (true, false, false, true) => "shut down, delayed",
        (true, false, false, false) => "shut down, absent",
        (false, true, true, true) => "processing, dirty, delayed",
        (false, true, true, false) => "processing, dirty",
        (false, true, false, true) => "processing, delayed",
        (false, true, false, false) => "processing",
        (false, false, true, _) if reference.is_held_back(key) => "queued in a full group",
        (false, false, true, true) => "queued, delayed",
        (false, false, true, false) => "queued",
        (false, false, false, true) if waits => "delayed, and an add waits",
        (false, false, false, true) => "delayed",
        (false, false, false, false) if reference.num_requeues(key) > 0 => "failed",
        (false, false, false, false) => "absent",
    }
}

fn settings(plan: &Plan, reference: &Reference) -> [bool; SETTINGS.len()] {
    let levels = reference.has_levels();
    [
        plan.shards == 1 && plan.groups.is_none() && !levels,
        levels,
        plan.groups.is_some(),
        plan.weights,
        plan.limit.is_some(),
        plan.strict,
        plan.shards > 1,
        plan.measure,
        plan.observed,
        plan.policy == DelayedAdd::Promote,
        plan.policy == DelayedAdd::Strict,
        plan.limiter == Limiter::Own,
        plan.on_panic == Some(OnPanic::Retry),
        plan.max_retries.is_some(),
    ]
}

/// A step begins: a panic of the user's code is one in it. (Repetitions have no row, as their steps begin one by one.)
pub(crate) fn begins(step: &str) {
    if let Some(row) = STEPS.iter().position(|other| *other == step) {
        CELLS.with_borrow_mut(|cells| cells.step = row);
    }
}

/// A step is about to be made. `keys`: those that it names; all if there are none.
pub(crate) fn meets(step: &str, keys: &[u8], plan: &Plan, reference: &Reference) {
    let all: Vec<u8> = reference.all().collect();
    let row = place(&STEPS, step);
    let settings = settings(plan, reference);
    CELLS.with_borrow_mut(|cells| {
        cells.step = row;
        for key in if keys.is_empty() { &all } else { keys } {
            let state = place(&STATES, state(reference, *key));
            for (cell, is_set) in cells.met[row][state].iter_mut().zip(settings) {
                *cell += u32::from(is_set);
            }
        }
    });
}

/// The user's code has panicked in the present step.
pub(crate) fn struck(fault: Fault) {
    CELLS.with_borrow_mut(|cells| cells.struck[fault as usize][cells.step] += 1);
}

fn is_possible(step: &str, state: &str, setting: &str) -> bool {
    !IMPOSSIBLE.iter().any(|never| {
        let has = |list: &[&str], name| list.is_empty() || list.contains(&name);
        let is_state = has(never.states, state) != (never.not && !never.states.is_empty());
        has(never.steps, step) && is_state && has(never.settings, setting)
    })
}

/// The table, and the cells that are not as they are to be.
pub(crate) fn table() -> (String, Vec<String>) {
    let (mut table, mut wrong) = (String::new(), Vec::new());
    CELLS.with_borrow(|cells| {
        for (step, states) in STEPS.iter().zip(&cells.met) {
            for (state, met) in STATES.iter().zip(states) {
                let mut line = String::new();
                for (setting, count) in SETTINGS.iter().zip(met) {
                    let possible = is_possible(step, state, setting);
                    match (possible, count) {
                        (true, 0) => wrong.push(format!("empty: {step} | {state} | {setting}")),
                        (false, 1..) => wrong.push(format!("impossible, and yet filled: {step} | {state} | {setting}")),
                        _ => {}
                    }
                    let count = if possible { count.to_string() } else { "-".to_owned() };
                    write!(line, " {count:>7}").expect("a string");
                }
                writeln!(table, "{step:<30} {state:<28}{line}").expect("a string");
            }
        }
        for (fault, steps) in CALLED.iter().zip(&cells.struck) {
            for (step, count) in STEPS.iter().zip(steps) {
                let (_, called) = fault;
                match (called.iter().any(|steps| steps.contains(step)), count) {
                    (true, 0) => wrong.push(format!("empty: a panic of {:?} in {step}", fault.0)),
                    (false, 1..) => {
                        wrong.push(format!("impossible, and yet filled: a panic of {:?} in {step}", fault.0))
                    }
                    _ => {}
                }
                if *count > 0 {
                    writeln!(table, "a panic of {:?} in {step}: {count}", fault.0).expect("a string");
                }
            }
        }
    });
    let head: String = SETTINGS.iter().map(|setting| format!(" {:>7}", &setting[..setting.len().min(7)])).collect();
    (format!("{:<59}{head}\n{table}", ""), wrong)
}
