//! All short lives: each list of a given number of letters of an alphabet, where a letter is a step. What a few steps can break is found here,
//! whatever the luck of the random lives.

use super::key::Fault;
use super::op::{Blocking, End, Form, Goal, How, Op, Outcome, Span};
use super::plan::{Limit, Limiter, Plan};
use super::random::Random;
use super::swarm::{fails, of_kind, report};
use keyqueue::{DelayConflict, DelayedAdd};

/// Ten letters, and the settings under which all words are run.
pub(crate) struct Alphabet {
    pub(crate) name: &'static str,
    pub(crate) letters: Vec<Op>,
    pub(crate) plans: Vec<Plan>,
}

const TEN: Span = Span::Nanos(10);

pub(crate) fn alphabets() -> Vec<Alphabet> {
    let policies = [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict];
    let with = |priority| Op::AddWith(0, How { priority: Some(priority), ..How::new() });
    let later = How { after: Some(TEN), priority: Some(100), conflict: DelayConflict::Replace, ..How::new() };
    let group = Plan { groups: Some(1), limit: Some(1), ..Plan::plain() };
    vec![
        Alphabet {
            name: "plain",
            letters: vec![
                Op::Add(0),
                Op::AddAll(vec![0, 1]),
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::Wait(Goal::Item),
                Op::Poll(0),
                Op::DropWaiter(0),
                Op::WaitDirty(0),
                Op::Remove(0),
                Op::Wait(Goal::Drained),
            ],
            plans: vec![Plan::plain(), Plan { measure: true, shards: 2, ..Plan::plain() }],
        },
        Alphabet {
            name: "delays and failures",
            letters: vec![
                Op::Add(0),
                Op::AddAfter(0, TEN),
                Op::AddWith(0, How { after: Some(Span::Nanos(20)), conflict: DelayConflict::Replace, ..How::new() }),
                Op::Cancel(0),
                Op::Advance(TEN),
                Op::Turn,
                Op::Get(Form::Try),
                Op::End(0, End::Retry),
                Op::End(0, End::RequeueAfter(TEN)),
                Op::End(0, End::CoolDown(TEN)),
                Op::ShutDown,
            ],
            plans: policies.map(|policy| Plan { policy, limiter: Limiter::Fast, ..Plan::plain() }).to_vec(),
        },
        Alphabet {
            name: "priorities",
            letters: vec![
                with(100),
                with(-100),
                Op::Add(1),
                Op::AddWith(1, later.clone()),
                Op::Advance(TEN),
                Op::Turn,
                Op::Get(Form::Try),
                Op::End(0, End::Done),
                Op::End(0, End::RequeueWith(How { priority: Some(-1), ..How::new() })),
                Op::TakeWhere(1),
            ],
            plans: vec![
                Plan { policy: DelayedAdd::Promote, ..Plan::plain() },
                Plan { policy: DelayedAdd::Strict, strict: true, ..Plan::plain() },
            ],
        },
        Alphabet {
            name: "groups, a limit, and the ends of workers",
            letters: vec![
                Op::AddAll(vec![0, 1]),
                Op::Get(Form::Try),
                Op::End(0, End::Unwind),
                Op::StartLoop,
                Op::Finish(0, Outcome::Success),
                Op::Finish(0, Outcome::Retry),
                Op::PollLoop(0),
                Op::Stop,
                Op::Wait(Goal::WorkersDrained),
                Op::Poll(0),
            ],
            plans: vec![group.clone(), Plan { max_retries: Some(0), ..group.clone() }],
        },
        Alphabet {
            name: "pauses",
            letters: vec![
                Op::AddAll(vec![0, 1]),
                Op::Wait(Goal::Item),
                Op::Poll(0),
                Op::DropWaiter(0),
                Op::Get(Form::Try),
                Op::Pause,
                Op::Resume,
                Op::ShutDown,
                Op::Advance(TEN),
                Op::Turn,
            ],
            plans: vec![
                Plan::plain(),
                Plan { shards: 4, ..Plan::plain() },
                Plan { pace: Some((10, 1)), ..Plan::plain() },
                group.clone(),
            ],
        },
        Alphabet {
            name: "a bound",
            letters: vec![
                Op::Add(0),
                Op::AddAfter(1, TEN),
                Op::AddRateLimited(2),
                Op::RoomWait(1),
                Op::RoomWait(2),
                Op::RoomPoll(0),
                Op::RoomDrop(0),
                Op::Get(Form::Try),
                Op::End(0, End::CoolDown(TEN)),
                Op::TakeDelayed,
                Op::Cancel(1),
                Op::ShutDown,
            ],
            plans: [1, 2].map(|keys| Plan { max_keys: Some(keys), ..Plan::plain() }).to_vec(),
        },
        Alphabet {
            name: "values",
            letters: vec![
                Op::Add(0),
                Op::AddAfter(0, TEN),
                Op::Get(Form::Try),
                Op::Read(0, 1, true),
                Op::Read(0, 1, false),
                Op::End(0, End::Succeed),
                Op::End(0, End::Retry),
                Op::RemoveValue(0),
                Op::TakeValues,
                Op::StartLoop,
                Op::Finish(0, Outcome::Success),
                Op::PollLoop(0),
                Op::ShutDown,
            ],
            plans: [1, 4].map(|shards| Plan { values: true, shards, ..Plan::plain() }).to_vec(),
        },
        Alphabet {
            name: "tenants",
            letters: vec![
                Op::AddAll(vec![0, 1]),
                Op::Work(1, None),
                Op::Get(Form::Try),
                Op::SetGroup(0, Limit { keys: None, rate: Some((10, 1)) }),
                Op::SetGroup(0, Limit { keys: Some(1), rate: Some((20, 2)) }),
                Op::UnsetGroup(0),
                Op::PauseGroup(0, TEN),
                Op::ResumeGroup(0),
                Op::Advance(TEN),
                Op::Turn,
            ],
            plans: [Some((1 << 20, 1)), Some((10, 2))]
                .map(|rate| Plan { tenants: true, rate, work_time: true, ..group.clone() })
                .to_vec(),
        },
    ]
}

/// Runs all words of this length under each plan. (Each step is checked, so they include all shorter ones, except for the ends of these.)
/// Returns their number.
pub(crate) fn words(alphabet: &Alphabet, length: u32) -> u64 {
    let Alphabet { name, letters, plans } = alphabet;
    let count = letters.len() as u64;
    for plan in plans {
        for word in 0..count.pow(length) {
            let letter = |at: u32| letters[(word / count.pow(at) % count) as usize].clone();
            let ops: Vec<Op> = (0..length).map(letter).collect();
            if fails(plan, &ops) {
                report(plan, ops, &format!("word {word} of {name}"));
            }
        }
    }
    count.pow(length) * plans.len() as u64
}

fn run_life(plan: &Plan, ops: &[Op]) {
    if fails(plan, ops) {
        report(plan, ops.to_vec(), "a rare life");
    }
}

/// Runs lives that luck rarely makes, for cells of the table of crossings: panics after which the end of the queue comes.
pub(crate) fn rare_lives() {
    let run = |plan: &Plan, ops: &[Op]| {
        for values in [false, true] {
            run_life(&Plan { values, ..plan.clone() }, ops);
        }
    };
    let observed = Plan { observed: true, measure: true, ..Plan::plain() };
    let plan = Plan { groups: Some(1), limit: Some(1), ..observed.clone() };
    let taking = [Form::Try, Form::TryOwned, Form::Timeout, Form::Get, Form::Owned].map(Op::Get);
    let others = [Op::GetMany(1), Op::Work(1, None), Op::Poll(0), Op::StartLoop];
    let waiting = [Goal::Item, Goal::OwnedItem].map(Op::Wait);
    for take in taking.into_iter().chain(others).chain(waiting) {
        // Two getters wait, as the group is full. One is woken, another one takes the last key, and the second getter is woken.
        let mut ops =
            vec![Op::AddAll(vec![0, 1]), Op::Get(Form::Try), Op::ShutDown, Op::Wait(Goal::Item), Op::Wait(Goal::Item)];
        ops.extend([Op::End(0, End::Done), Op::Fault(Fault::Waker, 0), take]);
        run(&plan, &ops);
    }
    // A getter waits after the shut-down for a key of a full group, and that key is taken back.
    let takes_back = [Op::AddAll(vec![0, 1]), Op::Get(Form::Try), Op::ShutDown, Op::Wait(Goal::Item), Op::Remove(1)];
    run(&plan, &takes_back);
    // Getters wait in a paused queue, until a resume, whose first wake-up may panic, or the shut-down.
    let paused =
        [Op::Pause, Op::AddAll(vec![0, 1]), Op::Wait(Goal::Item), Op::Wait(Goal::Item), Op::Get(Form::Try), Op::Turn];
    for plan in [&Plan::plain(), &Plan { shards: 4, ..Plan::plain() }, &observed, &plan] {
        for ends in [&[Op::Resume][..], &[Op::Fault(Fault::Waker, 0), Op::Resume], &[Op::ShutDown, Op::Pause]] {
            run(plan, &[&paused, ends, &[Op::Poll(0), Op::Get(Form::Try)]].concat());
        }
    }
    let own = Plan { limiter: Limiter::Own, ..plan.clone() };
    let limited = How { rate_limited: true, ..How::new() };
    for end in [End::Retry, End::RequeueAfter(TEN), End::RequeueWith(limited)] {
        run(&own, &[Op::Add(0), Op::Get(Form::Try), Op::ShutDown, Op::Fault(Fault::Drop, 0), Op::End(0, end)]);
    }
    // The limiter and the queue both have failures of the key, which is known for nothing else.
    let fails = [Op::AddRateLimited(0), Op::Cancel(0), Op::Add(0), Op::Get(Form::Try), Op::Fault(Fault::Limiter, 0)];
    let forgets = [Op::End(0, End::Retry), Op::Cancel(0), Op::Fault(Fault::Drop, 0), Op::Forget(0)];
    run(&own, &[&fails[..], &forgets[..]].concat());
    // The queue is shut down while an add waits for a retry that the end of the hand-out would drop.
    let strict = Plan { policy: DelayedAdd::Strict, ..plan.clone() };
    for end in [End::Succeed, End::GiveUp, End::RequeueAfter(TEN), End::Retry, End::Done] {
        let retries = [Op::Add(0), Op::Get(Form::Try), Op::Add(0), Op::End(0, End::Retry)];
        let waits = [Op::Get(Form::Try), Op::Add(0), Op::ShutDown, Op::End(0, end)];
        run(&strict, &[&retries[..], &waits[..]].concat());
    }
    // An urgent add waits for a retry, and a date of a caller comes before that. Then no add waits.
    let urgent = How { priority: Some(100), ..How::new() };
    let waits = [Op::Add(0), Op::Get(Form::Try), Op::AddAfter(0, TEN), Op::End(0, End::Retry), Op::AddWith(0, urgent)];
    run(&strict, &[&waits[..], &[Op::Advance(TEN), Op::Turn, Op::Get(Form::Try), Op::End(0, End::Succeed)]].concat());
    // An observer panics in a turn that has expired the earlier of two delays. The key has the later one still, so it is in the list of
    // delayed keys, added or not. The seeds put the keys into the same shard and into others, visited before or after.
    let begin = [
        Op::AddAfter(1, Span::Nanos(1)),
        Op::Add(2),
        Op::Get(Form::Try),
        Op::End(0, End::RequeueAfter(Span::Nanos(1))),
    ];
    let never = How { after: Some(Span::Never), ..How::new() };
    let ends = [Op::AddWith(2, never), Op::Fault(Fault::Observer, 1), Op::Advance(Span::Nanos(1)), Op::Turn];
    for seed in 0..16 {
        run(&Plan { shards: 4, seed, ..observed.clone() }, &[&begin[..], &ends[..]].concat());
    }
    let refuses = [Op::StartLoop, Op::Add(0), Op::PollLoop(0), Op::ShutDown, Op::Finish(0, Outcome::Retry)];
    run(&plan, &[&refuses[..], &[Op::Fault(Fault::Clone, 0), Op::PollLoop(0)]].concat());
    // A task that waits until its key is dirty is polled again, with another waker.
    run(&plan, &[Op::Add(0), Op::Get(Form::Try), Op::WaitDirty(0), Op::Poll(0)]);
    // At the last instant a delay that has expired is set again.
    run(&plan, &[Op::AddAfter(0, TEN), Op::Advance(Span::Never), Op::Fault(Fault::Clone, 0), Op::TakeDelayed]);
    let fault = Op::Fault(Fault::Observer, 0);
    for goal in [Goal::Item, Goal::OwnedItem] {
        run(&plan, &[Op::Add(0), fault.clone(), Op::Wait(goal)]);
        run(&plan, &[Op::Wait(goal), Op::Add(0), fault.clone(), Op::Poll(0)]);
    }
    let at_once = How { after: Some(Span::Nanos(0)), ..How::new() };
    run(&plan, &[Op::Wait(Goal::Item), Op::Fault(Fault::Waker, 0), Op::AddWith(0, at_once)]);
    (0..120).for_each(rare_ends);
}

/// The same with one plan of each kind: runs and waits that end in each state of a key, before the end of the queue and after it.
fn rare_ends(seed: u64) {
    let kind = if seed < 60 { 0 } else { 2 + (seed % 3).min(1) };
    let plan = of_kind(kind, seed, Plan::random(&mut Random::Seed(seed)));
    let plan = Plan { values: seed / 3 % 2 == 1, max_keys: (seed % 7 == 1).then_some(3), ..plan };
    // Half of the lives use a second level.
    let level = [Op::AddWith(5, How { priority: Some(100), ..How::new() }), Op::Remove(5)];
    let level = &level[..2 * (seed as usize % 2)];
    let run = |ops: &[&[Op]]| run_life(&plan, &[level, &ops.concat()].concat());
    let (after, with) = (Outcome::RequeueAfter(TEN), Outcome::RequeueWith(How::new()));
    let failures = [Outcome::Retry, Outcome::Failed, Outcome::RetryAfter(TEN), Outcome::GiveUp, Outcome::Panic];
    let (rest, pause) = (Outcome::Cooldown(TEN), plan.tenants.then_some(Outcome::PauseGroup(TEN)));
    for outcome in [Outcome::Success, rest, after, with].into_iter().chain(failures).chain(pause) {
        let begin = [Op::StartLoop, Op::Add(0), Op::PollLoop(0)];
        let end = [Op::Finish(0, outcome), Op::PollLoop(0)];
        for adds in [&[][..], &[Op::Add(0)]] {
            run(&[&begin, adds, &[Op::AddAfter(0, TEN)], &end]);
            run(&[&begin, adds, &[Op::ShutDown], &end]);
        }
    }
    let held = [Op::AddAll(vec![0, 1]), Op::Get(Form::Try), Op::Add(0), Op::Add(1), Op::Stop, Op::End(0, End::Done)];
    run(&[&held, &[Op::Block(Blocking::DrainWorkers)]]);
    let waits = [Op::AddAfter(0, TEN), Op::Add(0)];
    for fault in [Fault::Drop, Fault::Clone] {
        let fault = Op::Fault(fault, 0);
        let polls = [Op::StartLoop, Op::Wait(Goal::WorkersDrained), fault.clone(), Op::DropLoop(0), Op::Poll(0)];
        run(&[&waits[..1], &polls]);
        run(&[&waits[..1], &[fault, Op::Block(Blocking::DrainWorkers)]]);
    }
    let fails = [Op::Add(0), Op::Get(Form::Try), Op::End(0, End::Retry), Op::Cancel(0)];
    let rests = [Op::Add(0), Op::Get(Form::Try), Op::End(0, End::CoolDown(TEN)), Op::Add(0)];
    let holds = [Op::Add(0), Op::Get(Form::Try), Op::Add(0)];
    for call in [Blocking::WaitIdle, Blocking::Drain, Blocking::DrainWorkers] {
        for begin in [&waits[..], &waits[..1], &fails, &rests, &rests[..2], &holds] {
            for stops in [&[][..], &[Op::ShutDown], &[Op::Stop], &[Op::ShutDown, Op::Stop]] {
                run(&[begin, stops, &[Op::Block(call)]]);
            }
        }
        run(&[&[Op::Wait(Goal::Item), Op::Fault(Fault::Waker, 0), Op::Block(call)]]);
    }
}
