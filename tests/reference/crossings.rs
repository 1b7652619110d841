//! What the runs have crossed: each step with each state of its key under each setting, and each panic with each step.
//!
//! A step that names no key meets the states of all keys. A cell that stays empty is a crossing that nothing tests; and so is one that is
//! marked as [impossible](IMPOSSIBLE), and yet filled.

use super::key::Fault;
use super::op::{Op, Outcome};
use super::plan::{Limiter, Plan};
use super::queue::Reference;
use keyqueue::{DelayedAdd, OnPanic};
use std::cell::Cell;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The state of a key before a step.
#[rustfmt::skip]
const STATES: [&str; 16] = [
    "absent", "failed", "queued", "delayed", "delayed, and an add waits", "queued, delayed", "queued in a full group",
    "processing", "processing, dirty", "processing, delayed", "processing, dirty, delayed",
    "shut down, absent", "shut down, queued", "shut down, delayed", "shut down, processing", "shut down, processing, dirty",
];

#[rustfmt::skip]
const SETTINGS: [&str; 21] = [
    "plain", "levels", "groups", "weights", "limit", "strict", "shards", "measured", "observed", "promote", "strict delays",
    "own limiter", "retry on panic", "max retries", "then after", "tenants", "rates", "handler time", "pace", "bound", "values",
];

/// The steps, by the names of `op.rs`. An outcome of a handler counts when its loop applies it.
#[rustfmt::skip]
const STEPS: [&str; 83] = [
    "Add", "AddAll", "AddAfter", "AddWith now", "AddWith EarliestWins", "AddWith Replace", "AddWith KeepExisting", "AddWith limited",
    "AddWith at_most", "AddRateLimited", "Cancel", "Remove", "Forget", "TakeWhere", "TakeDelayed", "Look",
    "Get Try", "Get TryOwned", "Get Timeout", "Get Get", "Get Owned", "GetMany", "Batch", "Work",
    "End Done", "End Drop", "End Unwind", "End Succeed", "End GiveUp", "End Retry", "End RequeueAfter", "End RequeueWith", "End CoolDown", "IntoOwned",
    "Wait Item", "Wait OwnedItem", "Wait Idle", "Wait Drained", "Wait ShuttingDown",
    "Wait WorkersDrained", "Wait Joined", "WaitDirty", "Poll", "DropWaiter",
    "StartLoop", "PollLoop", "DropLoop",
    "Finish Success", "Finish RequeueAfter", "Finish RequeueWith", "Finish Retry", "Finish Failed", "Finish RetryAfter",
    "Finish PauseGroup", "Finish GiveUp", "Finish Panic", "Finish Cooldown", "SetGroup", "UnsetGroup", "PauseGroup", "ResumeGroup",
    "Pause", "Resume",
    "Stop", "DrainWorkers", "Advance", "Turn", "ShutDown", "DrainTimeout", "IdleTimeout",
    "Block WaitIdle", "Block Drain", "Block Join", "Block DrainWorkers", "ShrinkToFit", "Repeat", "Finish",
    "RoomWait", "RoomPoll", "RoomDrop", "Read", "RemoveValue", "TakeValues",
];

/// Steps, states and settings that never meet, with the reason.
type Never = (fn(&str, &str, &str) -> bool, &'static str);

const IMPOSSIBLE: [Never; 6] = [
    (
        |step, state, _| {
            let ends = is_in(&["End *", "Finish *", "IntoOwned", "WaitDirty", "Read"], step);
            ends && !state.contains("processing")
        },
        "only the holder has the item, which the call consumes or borrows",
    ),
    (|_, state, setting| state == "queued in a full group" && setting == "plain", "a limit needs groups"),
    (
        |step, state, _| {
            let idle = ["absent", "failed", "shut down, absent", "shut down, delayed"];
            step == "Block WaitIdle" && !is_in(&idle, state)
        },
        "the call would block: the queue is not idle",
    ),
    (
        |step, state, _| {
            step == "Block Drain"
                && !is_in(&["absent", "failed", "delayed*", "shut down, absent", "shut down, delayed"], state)
        },
        "the call would block: the queue is not drained",
    ),
    (
        |step, state, _| step == "Block DrainWorkers" && is_in(&["queued*", "processing*"], state),
        "the call would block: the workers are not stopped, and the queue is not drained",
    ),
    (|step, _, _| is_in(&["Repeat", "Finish"], step), "no calls of the queue, but of steps"),
];

/// Whether a name is in a list, in which a star stands for any end.
fn is_in(list: &[&str], name: &str) -> bool {
    list.iter().any(|of| of.strip_suffix('*').map_or(*of == name, |begin| name.starts_with(begin)))
}

const LOOK_UPS: [&str; 3] = ["Cancel", "Remove", "Forget"];
const GETS: [&str; 3] = ["Get*", "Batch", "Work"];
const ENDS: [&str; 2] = ["End *", "Drop*"];
const STOPS: [&str; 5] = ["Stop", "DrainWorkers", "Wait WorkersDrained", "Block DrainWorkers", "Poll"];

/// Where a value is read. (A handler reads it when it begins.)
const READS: [&str; 4] = ["StartLoop", "PollLoop", "Read", "RemoveValue"];

/// The steps in which code of the user is called, and can panic. In no other step does it.
const CALLED: [(Fault, &[&[&str]]); Fault::ALL.len()] = [
    (Fault::Eq, &[&["Add*", "Batch", "Look"], &LOOK_UPS, &READS]),
    (Fault::Hash, &[&["Add*", "Batch", "Look"], &LOOK_UPS, &READS]),
    (Fault::Borrow, &[&LOOK_UPS, &["Look", "RemoveValue"]]),
    (
        Fault::Clone,
        &[
            &STOPS,
            &[
                "Add",
                "AddAfter",
                "AddWith*",
                "AddRateLimited",
                "Batch",
                "TakeWhere",
                "TakeDelayed",
                "Look",
                "PollLoop",
                "DropLoop",
            ],
        ],
    ),
    (
        Fault::Drop,
        &[
            &LOOK_UPS,
            &ENDS,
            &STOPS,
            &["Add*", "TakeWhere", "TakeDelayed", "Turn", "Look", "PollLoop", "Batch", "Work", "Read", "RemoveValue"],
        ],
    ),
    (Fault::Group, &[&["Add*", "Batch"]]),
    (Fault::Weight, &[&["Add*", "Batch"]]),
    (Fault::Predicate, &[&["TakeWhere"]]),
    (Fault::Iterator, &[&["AddAll"]]),
    (
        Fault::Limiter,
        &[
            &["AddWith limited", "AddRateLimited", "Forget", "Look", "PollLoop"],
            &["End Unwind", "End Succeed", "End GiveUp", "End CoolDown", "End Retry", "End Requeue*"],
        ],
    ),
    (
        Fault::Observer,
        &[&GETS, &ENDS, &["Add*", "Cancel", "Wait Item", "Wait OwnedItem", "Poll", "StartLoop", "PollLoop", "Turn"]],
    ),
    (
        Fault::Waker,
        &[
            &GETS,
            &ENDS,
            &STOPS,
            &[
                "Add*",
                "Cancel",
                "Remove",
                "RemoveValue",
                "TakeWhere",
                "TakeDelayed",
                "Wait Item",
                "Wait OwnedItem",
                "Wait Drained",
            ],
            &["StartLoop", "PollLoop", "Turn", "Resume*", "SetGroup", "UnsetGroup", "ShutDown", "DrainTimeout"],
            &["Block Drain"],
        ],
    ),
    (Fault::Handler, &[&["StartLoop", "PollLoop"]]),
    (Fault::Hook, &[&["PollLoop"]]),
];

/// How often each cell was filled, by all threads: steps by states by settings.
static MET: [[[AtomicU32; SETTINGS.len()]; STATES.len()]; STEPS.len()] =
    [const { [const { [const { AtomicU32::new(0) }; SETTINGS.len()] }; STATES.len()] }; STEPS.len()];
/// Panics by steps.
static STRUCK: [[AtomicU32; STEPS.len()]; Fault::ALL.len()] =
    [const { [const { AtomicU32::new(0) }; STEPS.len()] }; Fault::ALL.len()];

thread_local! {
    static STEP: Cell<usize> = const { Cell::new(0) };
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// A fuzzer has no use for the table, which takes a tenth of the time: this thread does not fill it from now on.
pub(crate) fn leave_out() {
    IS_LEFT_OUT.set(true);
}

/// Whether this thread fills the table.
pub(crate) fn is_filled() -> bool {
    !IS_LEFT_OUT.get()
}

fn place(of: &[&str], name: &str) -> usize {
    of.iter().position(|other| *other == name).unwrap_or_else(|| panic!("no such row: {name}"))
}

/// What stands before the first bracket: the name of a variant.
fn name(of: &impl Debug) -> String {
    let mut text = format!("{of:?}");
    text.truncate(text.find(['(', ' ']).unwrap_or(text.len()));
    text
}

/// The row of a step.
pub(crate) fn step(op: &Op) -> String {
    match op {
        Op::AddWith(_, how) if how.rate_limited => "AddWith limited".into(),
        Op::AddWith(_, how) if how.after.is_none() => "AddWith now".into(),
        Op::AddWith(_, how) if how.bound().is_some() => "AddWith at_most".into(),
        Op::AddWith(_, how) => format!("AddWith {:?}", how.conflict),
        Op::Repeat(..) | Op::Fault(..) | Op::Crowd(..) | Op::Handle(_) => "Repeat".into(),
        Op::Get(form) => format!("Get {form:?}"),
        Op::End(_, end) => format!("End {}", name(end)),
        Op::Wait(goal) => format!("Wait {goal:?}"),
        Op::Block(call) => format!("Block {call:?}"),
        op => name(op),
    }
}

/// The row of an outcome.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    format!("Finish {}", name(outcome))
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
        plan.then_after.is_some(),
        plan.tenants,
        plan.rate.is_some(),
        plan.work_time,
        plan.pace.is_some(),
        plan.max_keys.is_some(),
        plan.values,
    ]
}

/// A step begins: a panic of the user's code is one in it. (Repetitions have no row, as their steps begin one by one.)
pub(crate) fn begins(step: &str) {
    if let Some(row) = STEPS.iter().position(|other| *other == step) {
        STEP.set(row);
    }
}

/// A step is about to be made. `keys`: those that it names; all if there are none.
pub(crate) fn meets(step: &str, keys: &[u8], plan: &Plan, reference: &Reference) {
    if !is_filled() {
        return;
    }
    let all: Vec<u8> = reference.all().collect();
    let row = place(&STEPS, step);
    let settings = settings(plan, reference);
    STEP.set(row);
    for key in if keys.is_empty() { &all } else { keys } {
        let state = place(&STATES, state(reference, *key));
        for (cell, _) in MET[row][state].iter().zip(settings).filter(|(_, is_set)| *is_set) {
            cell.fetch_add(1, Relaxed);
        }
    }
}

/// The user's code has panicked in the present step.
pub(crate) fn struck(fault: Fault) {
    STRUCK[fault as usize][STEP.get()].fetch_add(1, Relaxed);
}

fn is_possible(step: &str, state: &str, setting: &str) -> bool {
    !IMPOSSIBLE.iter().any(|(never, _)| never(step, state, setting))
}

/// The table, and the cells that are not as they are to be.
pub(crate) fn table() -> (String, Vec<String>) {
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (step, states) in STEPS.iter().zip(&MET) {
        for (state, met) in STATES.iter().zip(states) {
            let mut line = String::new();
            for (setting, count) in SETTINGS.iter().zip(met) {
                let (possible, count) = (is_possible(step, state, setting), count.load(Relaxed));
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
    for (fault, steps) in CALLED.iter().zip(&STRUCK) {
        for (step, count) in STEPS.iter().zip(steps) {
            let ((_, called), count) = (fault, count.load(Relaxed));
            match (called.iter().any(|steps| is_in(steps, step)), count) {
                (true, 0) => wrong.push(format!("empty: a panic of {:?} in {step}", fault.0)),
                (false, 1..) => wrong.push(format!("impossible, and yet filled: a panic of {:?} in {step}", fault.0)),
                _ => {}
            }
            if count > 0 {
                writeln!(table, "a panic of {:?} in {step}: {count}", fault.0).expect("a string");
            }
        }
    }
    let head: String = SETTINGS.iter().map(|setting| format!(" {:>7}", &setting[..setting.len().min(7)])).collect();
    (format!("{:<59}{head}\n{table}", ""), wrong)
}

static PAID_ALIKE: AtomicU32 = AtomicU32::new(0);

/// Groups were judged this often to have paid alike in handler time.
pub(crate) fn paid_alike(times: u32) {
    PAID_ALIKE.fetch_add(times, Relaxed);
}

/// How often that was so.
pub(crate) fn judged_by_handler_time() -> u32 {
    PAID_ALIKE.load(Relaxed)
}

static AFTER_HAND_OUTS: AtomicU32 = AtomicU32::new(0);

/// A getter has expired delays in the critical section in which it had taken a key, in a queue that measures and has several shards.
pub(crate) fn expires_after_a_hand_out(plan: &Plan) {
    AFTER_HAND_OUTS.fetch_add(u32::from(plan.measure && plan.shards > 1), Relaxed);
}

/// How often that was so.
pub(crate) fn expiries_after_hand_outs() -> u32 {
    AFTER_HAND_OUTS.load(Relaxed)
}
