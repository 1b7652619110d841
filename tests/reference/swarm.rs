//! Random runs. Each has a plan and weights of its own: some steps are switched off, and the others are more or less frequent, so that runs
//! differ in what they reach.

use super::key::{Fault, KEYS};
use super::op::{Blocking, End, Form, Goal, How, Op, Outcome, Span};
use super::plan::{Inside, Limit, Plan, Rate};
use super::queue::NEVER;
use super::random::Random;
use super::run::run;
use keyqueue::{DelayConflict, DelayedAdd};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once};

thread_local!(static IS_QUIET: Cell<bool> = const { Cell::new(false) });

/// The kinds of steps, but for those of values, which come after them.
const KINDS: usize = 30;

/// The plan and the steps of the run of this number.
pub(crate) fn life(seed: u64) -> (Plan, Vec<Op>) {
    if seed % 8 == 3 {
        return life_of_decisions(seed);
    }
    let mut random = Random::Seed(seed);
    let plan = Plan::random(&mut random);
    let weights: [u64; KINDS] = std::array::from_fn(|_| match random.below(4) {
        0 => 0,
        1 => 1,
        2 => 4,
        _ => 16,
    });
    let keys = random.pick(&[1, 2, 3, 6, KEYS]);
    let priorities = random.pick(&[0, 0, 1, 3]);
    let delays = random.pick(&[1, 20, 1 << 20, 1 << 40]);
    let mut make = Make { random, keys, priorities, delays, has_ended: false };
    let length = make.random.below(150);
    let all: u64 = weights.iter().sum();
    let op = |make: &mut Make| {
        let mut at = make.random.below(all);
        let kind = weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        make.op(kind.expect("below the sum"))
    };
    if all == 0 {
        return (plan, Vec::new());
    }
    if plan.groups.is_some() && make.random.once_in(4) {
        return (plan, make.rhythm());
    }
    if make.random.once_in(8) {
        let before = make.random.below(8);
        let mut ops: Vec<Op> = (0..before).map(|_| op(&mut make)).collect();
        let body = 2 + make.random.below(7);
        let body = (0..body).map(|_| op(&mut make)).collect();
        ops.push(Op::Repeat(make.random.pick(&[20, 100]), body));
        return (plan, ops);
    }
    (plan, (0..length).map(|_| op(&mut make)).collect())
}

/// A life in which keys are queued all the time, and delays expire between the hand-outs: by getters, if they expire any.
fn life_of_delays(seed: u64) -> (Plan, Vec<Op>) {
    let mut random = Random::Seed(seed);
    let plan = Plan { on_panic: None, ..Plan::random(&mut random) };
    let (delays, priorities) = (random.pick(&[1, 20]), random.pick(&[0, 0, 1, 3]));
    let mut make = Make { random, keys: KEYS, priorities, delays, has_ended: false };
    let mut body = Vec::new();
    for _ in 0..3 + make.random.below(6) {
        let (key, gets) = (make.key(), 1 + make.random.below(4) as u8);
        body.push(match make.random.below(8) {
            0..=2 => Op::AddAll((0..1 + make.random.below(14)).map(|_| make.key()).collect()),
            3 | 4 => Op::AddWith(key, How { after: Some(Span::Nanos(1 + make.random.below(delays))), ..make.how() }),
            5 => Op::Advance(Span::Nanos(1 + make.random.below(delays))),
            6 => Op::Work(gets, None),
            _ => Op::GetMany(gets),
        });
    }
    body.extend([Op::Advance(Span::Nanos(1)), Op::Work(1, None), Op::End(0, End::Done)]);
    (plan, vec![Op::Repeat(60, body)])
}

/// A life in which hand-outs follow each other, and callers say something during most of them. Each end decides anew when the key comes
/// back (P29): so many keys have a caller's delay and a holder's, and many adds wait for a retry.
fn life_of_decisions(seed: u64) -> (Plan, Vec<Op>) {
    let mut random = Random::Seed(seed);
    let mut plan = Plan::random(&mut random);
    if random.once_in(2) {
        plan.policy = DelayedAdd::Strict;
    }
    let (keys, priorities, delays) = (random.pick(&[1, 1, 2]), random.pick(&[0, 1, 3]), random.pick(&[1, 20, 1 << 20]));
    let mut make = Make { random, keys, priorities, delays, has_ended: false };
    let mut ops = Vec::new();
    for _ in 0..4 + make.random.below(28) {
        ops.extend([Op::Add(make.key()), Op::Get(Form::Try)]);
        let with = make.how();
        ops.push(match make.random.below(8) {
            0 | 1 => Op::Add(make.key()),
            2 | 3 => Op::AddWith(make.key(), How { priority: with.priority, ..How::new() }),
            4 | 5 => Op::AddWith(make.key(), with),
            6 => Op::AddRateLimited(make.key()),
            _ => Op::Cancel(make.key()),
        });
        if make.random.once_in(8) {
            ops.push(make.op(24)); // a shut-down, rarely
        }
        let end = match make.random.below(8) {
            0..=2 => End::Retry,
            3 => End::Succeed,
            4 => End::RequeueAfter(make.span()),
            5 => End::RequeueWith(make.how()),
            _ => make.end(),
        };
        ops.push(Op::End(0, end));
        match make.random.below(8) {
            0 => ops.push(Op::Advance(make.span())),
            1 | 2 => ops.extend([Op::Advance(Span::ToDeadline(0, 0)), Op::Turn]),
            3 => ops.push(make.op(10)), // takes delays out, rarely
            _ => {}
        }
    }
    (plan, ops)
}

/// Of the bytes of a fuzzer so many are for the settings, also if these take fewer; the others are for the steps. So a setting that is drawn
/// after all others moves no step to other bytes.
const SETTINGS: usize = 16;

/// What a fuzzer has chosen; and the plain form of its bytes, in which each is the number that was drawn. Bytes of that form choose the same
/// when a kind of steps is added, or a choice at the end of a list.
pub(crate) fn of_bytes(data: &[u8]) -> (Plan, Vec<Op>, Vec<u8>) {
    let (settings, steps) = data.split_at(data.len().min(SETTINGS));
    let mut random = Random::of_bytes(settings);
    let priorities = random.pick(&[0, 1, 3]);
    let delays = random.pick(&[1, 20, 1 << 40]);
    let plan = Plan::random(&mut random);
    let plan = Plan { values: random.pick(&[false, true]), ..plan };
    let mut plain = random.drawn().to_vec();
    plain.resize(SETTINGS, 0);
    let mut make = Make { random: Random::of_bytes(steps), keys: KEYS, priorities, delays, has_ended: false };
    let mut ops = Vec::new();
    while !make.random.is_over() && ops.len() < 200 {
        let kind = make.random.below(KINDS as u64 + 1) as usize;
        ops.push(make.op(kind));
    }
    plain.extend(make.random.drawn());
    plain.truncate(data.len()); // the last step may have drawn more, as zeros
    (plan, ops, plain)
}

/// Runs what a fuzzer has chosen.
pub(crate) fn run_bytes(data: &[u8]) {
    let (plan, ops, _) = of_bytes(data);
    run(&plan, &ops);
}

/// Runs what a fuzzer has kept. If it fails, it is made shorter, and printed.
pub(crate) fn run_kept(data: &[u8], name: &str) {
    let (plan, ops, _) = of_bytes(data);
    if fails(&plan, &ops) {
        report(&plan, ops, name);
    }
}

struct Make {
    random: Random,
    keys: u8,
    /// The number of levels beside NORMAL.
    priorities: u64,
    /// The longest delay.
    delays: u64,
    /// The queue was shut down.
    has_ended: bool,
}

impl Make {
    fn key(&mut self) -> u8 {
        (self.random.below(self.keys.into())) as u8
    }

    fn span(&mut self) -> Span {
        match self.random.below(12) {
            0 => Span::Nanos(0),
            1 => Span::Never,
            2..=5 => Span::ToDeadline(self.random.byte(), self.random.below(3) as i8 - 1),
            _ => Span::Nanos(self.random.below(self.delays) + 1),
        }
    }

    fn how(&mut self) -> How {
        let levels = [i8::MIN, -100, -1, 0, 100, 127];
        How {
            after: if self.random.once_in(2) { Some(self.span()) } else { None },
            conflict: self.random.pick(&[
                DelayConflict::EarliestWins,
                DelayConflict::Replace,
                DelayConflict::KeepExisting,
            ]),
            at_most: match self.random.below(6) {
                0 => Some(self.random.pick(&[0, NEVER])),
                1 | 2 => Some(self.random.below(2 * self.delays)),
                _ => None,
            },
            rate_limited: self.random.once_in(4),
            priority: match self.priorities {
                0 => None,
                1 => self.random.pick(&[None, Some(100)]),
                _ => Some(self.random.pick(&levels)),
            },
        }
    }

    fn outcome(&mut self) -> Outcome {
        match self.random.below(10) {
            0 => Outcome::RequeueAfter(self.span()),
            1 => Outcome::RequeueWith(self.how()),
            2 => Outcome::Retry,
            3 => Outcome::Failed,
            4 => Outcome::RetryAfter(self.span()),
            5 => Outcome::GiveUp,
            6 => Outcome::Panic,
            7 => Outcome::Cooldown(self.span()),
            _ => Outcome::Success,
        }
    }

    fn end(&mut self) -> End {
        match self.random.below(10) {
            0 => End::Drop,
            1 => End::Unwind,
            2 => End::Succeed,
            3 => End::GiveUp,
            4 | 5 => End::Retry,
            6 => End::RequeueAfter(self.span()),
            7 => End::RequeueWith(self.how()),
            8 => End::CoolDown(self.span()),
            _ => End::Done,
        }
    }

    /// Keys of several levels come again and again, and some groups are slow: what could starve is queued first.
    fn rhythm(&mut self) -> Vec<Op> {
        let add = |make: &mut Self| {
            let priority = make.random.pick(&[None, Some(100), Some(50), Some(-100)]);
            Op::AddWith(make.random.below(KEYS.into()) as u8, How { priority, ..How::new() })
        };
        let mut ops: Vec<Op> = (0..1 + self.random.below(2)).map(|_| add(self)).collect();
        let mut body: Vec<Op> = (0..2 + self.random.below(4)).map(|_| add(self)).collect();
        let slow = self.random.pick(&[None, Some(0), Some(1), Some(2)]);
        body.insert(self.random.below(body.len() as u64 + 1) as usize, Op::Work(4 + self.random.below(40) as u8, slow));
        body.push(Op::End(0, End::Done));
        ops.push(Op::Repeat(200, body));
        ops
    }

    /// Once in sixteen times the first, which ends much; and then often, to see it again after the end.
    fn rare(&mut self, first: Op, other: Op) -> Op {
        if !self.random.once_in(if self.has_ended { 3 } else { 16 }) {
            return other;
        }
        self.has_ended |= first != Op::TakeDelayed;
        first
    }

    fn op(&mut self, kind: usize) -> Op {
        let n = self.random.byte();
        match kind {
            0 | 1 => Op::Add(self.key()),
            2 => Op::AddAll((0..self.random.below(14)).map(|_| self.key()).collect()),
            3 => Op::AddAfter(self.key(), self.span()),
            4 => Op::AddWith(self.key(), self.how()),
            5 => Op::AddRateLimited(self.key()),
            6 => Op::Cancel(self.key()),
            7 => Op::Remove(self.key()),
            8 => Op::Forget(self.key()),
            9 => Op::TakeWhere(self.random.below(1 << 16) as u16),
            10 => self.rare(Op::TakeDelayed, Op::Turn),
            11 | 12 => Op::Get(self.random.pick(&[Form::Try, Form::TryOwned, Form::Timeout, Form::Get, Form::Owned])),
            13 => Op::GetMany(n % 5),
            14 | 15 => Op::End(n, self.end()),
            16 => Op::IntoOwned(n),
            17 => {
                let quiet = [Goal::Item, Goal::OwnedItem, Goal::Idle, Goal::ShuttingDown, Goal::Joined];
                let goal = self.random.pick(&quiet);
                let ends = self.random.pick(&[Goal::Drained, Goal::WorkersDrained]);
                self.rare(Op::Wait(ends), Op::Wait(goal))
            }
            18 => Op::WaitDirty(n),
            19 => Op::Poll(n),
            20 => Op::DropWaiter(n),
            21 => Op::StartLoop,
            22 => Op::Finish(n, self.outcome()),
            23 => Op::PollLoop(n),
            24 => {
                let end = self.random.pick(&[Op::Stop, Op::DrainWorkers, Op::ShutDown, Op::DrainTimeout]);
                self.rare(end, Op::DropLoop(n))
            }
            25 => self.random.pick(&[Op::Advance(Span::ToDeadline(n, 0)), Op::Turn, Op::Turn]),
            26 => Op::Work(n % 40, if self.random.once_in(2) { Some(self.random.byte() % 3) } else { None }),
            27 => Op::Fault(self.random.pick(&Fault::ALL), self.random.pick(&[0, 0, 0, 0, 1, 1, 2, 5])),
            29 => {
                let adds = (0..self.random.below(4)).map(|_| self.key()).collect();
                Op::Batch(n % 8, adds, self.end())
            }
            KINDS => of_values(&mut self.random),
            _ => match self.random.below(8) {
                0 => Op::IdleTimeout,
                3 => Op::Block(self.random.pick(&[Blocking::WaitIdle, Blocking::Join])),
                4 => {
                    let end = self.random.pick(&[Blocking::Drain, Blocking::DrainWorkers]);
                    self.rare(Op::Block(end), Op::Turn)
                }
                1 => Op::ShrinkToFit,
                2 => Op::Look,
                5 if self.random.once_in(16) => Op::Crowd(40 + n % 200, self.how()),
                _ => Op::Advance(self.span()),
            },
        }
    }
}

/// Runs these lives. The first that fails is made shorter, and printed.
pub(crate) fn lives(seeds: impl Iterator<Item = u64>) -> u64 {
    run_each(seeds, |seed, plan| {
        let time_limit = [None, None, None, Some(1), Some(20)][(seed / 7 % 5) as usize];
        with_layers(seed, Plan { time_limit, ..of_kind(seed / 100, seed, plan) })
    })
}

/// The same without these kinds, for a machine alone, which has no pace.
pub(crate) fn lives_of_a_machine(seeds: impl Iterator<Item = u64>) -> u64 {
    run_each(seeds, |_, plan| plan)
}

/// The pace of all hand-outs, and tenants, whose limits, rates and pauses change all the time: of each four numbers one stands for a plan
/// with a pace, and one for a plan with tenants. A clock that stands at the end of its time earns no token, so it does not go there.
pub(crate) fn of_kind(kind: u64, seed: u64, plan: Plan) -> Plan {
    let mut random = Random::Seed(seed);
    match kind % 4 {
        2 => Plan { pace: Some((random.pick(&PERIODS), random.pick(&[1, 1, 2, 5]))), ..plan },
        3 => {
            let groups = plan.groups.or(random.pick(&[None, Some(2), Some(3)]));
            let pace = Some((random.pick(&PERIODS), 5)).filter(|_| random.once_in(4));
            let rate = groups.and(rate(&mut random));
            Plan { tenants: true, groups, rate, work_time: groups.is_some() && random.once_in(2), pace, ..plan }
        }
        _ => plan,
    }
}

/// The nanoseconds of a token. As rates a second these are exact.
const PERIODS: [u64; 4] = [1, 10, 1 << 20, 5_000_000];

fn rate(random: &mut Random) -> Option<Rate> {
    random.pick(&[None, Some(1), Some(1), Some(2), Some(5)]).map(|burst| (random.pick(&PERIODS), burst))
}

/// A life in which all groups have keys all the time, and handlers that take up to ten times as long as those of other groups.
fn life_of_work() -> Vec<Op> {
    vec![Op::AddAll((0..KEYS).collect()), Op::Repeat(100, vec![Op::Handle(30)])]
}

/// The same steps, and changes of groups between them.
fn with_tenants(random: &mut Random, has_rates: bool, ops: Vec<Op>) -> Vec<Op> {
    let mut all = Vec::new();
    for op in ops {
        all.extend(match op {
            Op::Repeat(times, body) => Some(Op::Repeat(times, with_tenants(random, has_rates, body))),
            Op::Finish(n, Outcome::RetryAfter(span) | Outcome::Cooldown(span)) if random.once_in(2) => {
                Some(Op::Finish(n, Outcome::PauseGroup(span)))
            }
            op => Some(op),
        });
        if random.once_in(3) {
            let n = random.below(5) as u8;
            let keys = random.pick(&[None, Some(1), Some(1), Some(2), Some(3)]);
            let limit = Limit { keys, rate: rate(random).filter(|_| has_rates) };
            let span = random.pick(&[
                Span::Nanos(0),
                Span::Nanos(7),
                Span::Nanos(1 << 20),
                Span::ToDeadline(n, 0),
                Span::Never,
            ]);
            all.push(match random.below(8) {
                0..=2 => Op::SetGroup(n, limit),
                3 => Op::UnsetGroup(n),
                4 | 5 => Op::PauseGroup(n, span),
                6 => Op::ResumeGroup(n),
                _ => Op::Turn,
            });
        }
    }
    all
}

/// The same steps, and after each of them what `more` gives for it, also in what is repeated.
fn woven(random: &mut Random, ops: Vec<Op>, more: &impl Fn(&mut Random, &Op) -> Vec<Op>) -> Vec<Op> {
    let mut all = Vec::new();
    for op in ops {
        let op = match op {
            Op::Repeat(times, body) => Op::Repeat(times, woven(random, body, more)),
            op => op,
        };
        let others = more(random, &op);
        all.push(op);
        all.extend(others);
    }
    all
}

/// Pauses of the queue.
fn pauses(random: &mut Random, _: &Op) -> Vec<Op> {
    match random.below(12) {
        0 => vec![Op::Pause],
        1 | 2 => vec![Op::Resume],
        _ => vec![],
    }
}

/// Of each five numbers one stands for a plan with a bound, and of each three one for a plan with values.
fn with_layers(seed: u64, plan: Plan) -> Plan {
    let keys = Random::Seed(!seed).pick(&[1, 1, 2, 3, 5, 8]);
    Plan { max_keys: (seed % 5 == 4).then_some(keys), values: seed / 35 % 3 == 1, ..plan }
}

/// Adds that wait for room.
fn adders(random: &mut Random, _: &Op) -> Vec<Op> {
    let n = random.byte();
    match random.below(12) {
        0 | 1 => vec![Op::RoomWait(n % KEYS)],
        2 => vec![Op::RoomPoll(n)],
        3 => vec![Op::RoomDrop(n)],
        _ => vec![],
    }
}

/// A call of the layer of values.
fn of_values(random: &mut Random) -> Op {
    let n = random.byte();
    match random.below(8) {
        0 | 1 => Op::RemoveValue(n % random.pick(&[1, 2, 3, KEYS])),
        2 if random.once_in(4) => Op::TakeValues,
        _ => Op::Read(n, random.pick(&[0, 0, 1, 2]), random.once_in(2)),
    }
}

/// Loops whose runs reach this limit.
fn limits(random: &mut Random, limit: u64, op: &Op) -> Vec<Op> {
    let is_of_loop = matches!(op, Op::StartLoop | Op::PollLoop(_) | Op::Finish(..));
    match random.below(8) {
        0 => vec![Op::Advance(Span::Nanos(limit)), Op::Turn],
        1 => vec![Op::Advance(Span::Nanos(limit - 1))],
        2 | 3 if is_of_loop => vec![Op::Advance(Span::Nanos(limit)), Op::Turn, Op::PollLoop(random.byte())],
        4 => vec![Op::StartLoop],
        _ => vec![],
    }
}

/// The same with a driver thread, and with getters that expire delays.
pub(crate) fn lives_inside(seeds: impl Iterator<Item = u64>, inside: Inside) -> u64 {
    run_each(seeds, |seed, plan| with_layers(seed, Plan { inside: Some(inside), ..plan }))
}

/// `with`: changes the plan of the life of this number.
fn run_each(seeds: impl Iterator<Item = u64>, with: impl Fn(u64, Plan) -> Plan) -> u64 {
    let mut count = 0;
    for seed in seeds {
        let (mut plan, mut ops) = life(seed);
        plan = with(seed, plan);
        if plan.inside.is_some() && seed % 2 == 0 {
            (plan, ops) = life_of_delays(seed);
            plan = with(seed, plan);
        }
        if plan.work_time && seed % 8 == 5 {
            (plan, ops) = (Plan { rate: None, pace: None, ..plan }, life_of_work());
        } else if plan.tenants {
            ops = with_tenants(&mut Random::Seed(!seed), plan.rate.is_some(), ops);
        }
        if plan.max_keys.is_some() {
            ops = woven(&mut Random::Seed(seed.rotate_left(16)), ops, &adders);
        }
        if seed % 3 == 1 {
            ops = woven(&mut Random::Seed(seed.rotate_left(32)), ops, &pauses);
        }
        if let Some(limit) = plan.time_limit {
            ops = woven(&mut Random::Seed(seed.rotate_left(16)), ops, &|random, op| limits(random, limit, op));
        }
        if plan.values {
            let reads = |random: &mut Random, _: &Op| if random.once_in(4) { vec![of_values(random)] } else { vec![] };
            ops = woven(&mut Random::Seed(seed.rotate_left(48)), ops, &reads);
        }
        count += steps(&ops) as u64;
        if fails(&plan, &ops) {
            report(&plan, ops, &format!("run {seed}"));
        }
    }
    count
}

/// Whether a run fails. A panic's message is printed when it happens, so not here: a run that fails is repeated for its reader.
pub(super) fn fails(plan: &Plan, ops: &[Op]) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                print(info)
            }
        }));
    });
    IS_QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| run(plan, ops)));
    IS_QUIET.set(false);
    result.is_err()
}

/// A list of steps that fails too, with fewer steps and smaller numbers: one change after the other, as long as one still fails.
fn shorter(plan: &Plan, mut ops: Vec<Op>) -> Vec<Op> {
    loop {
        let smaller = smaller(&ops).find(|ops| fails(plan, ops));
        ops = match smaller {
            Some(ops) => ops,
            None => return ops,
        };
    }
}

/// First without half of the steps, then without fewer; then with a smaller number in one of them, which selects an item, a waiter or a loop
/// (modulo how many there are: a large one selects another after each step that is dropped); then with fewer repetitions.
fn smaller(ops: &[Op]) -> impl Iterator<Item = Vec<Op>> {
    let sizes = (0..usize::BITS).map(move |bits| ops.len() >> bits).take_while(|size| *size > 0);
    let drops =
        sizes.flat_map(move |size| (0..ops.len()).step_by(size).map(move |at| (at..ops.len().min(at + size), None)));
    let changes = ops.iter().enumerate().flat_map(|(at, op)| smaller_op(op).map(move |op| (at..at + 1, Some(op))));
    drops.chain(changes).map(|(range, op)| {
        let mut ops = ops.to_vec();
        ops.splice(range, op);
        ops
    })
}

fn smaller_op(op: &Op) -> Box<dyn Iterator<Item = Op> + '_> {
    match op {
        Op::Repeat(times, body) => {
            let fewer = (*times > 1).then(|| Op::Repeat(times / 2, body.clone()));
            Box::new(smaller(body).map(|body| Op::Repeat(*times, body)).chain(fewer))
        }
        _ => Box::new((0..16).map_while(|smaller| {
            let mut op = op.clone();
            match &mut op {
                Op::End(n, _) | Op::Finish(n, _) | Op::Read(n, ..) if smaller < *n => *n = smaller,
                Op::IntoOwned(n) | Op::WaitDirty(n) | Op::Poll(n) if smaller < *n => *n = smaller,
                Op::DropWaiter(n) | Op::PollLoop(n) | Op::DropLoop(n) if smaller < *n => *n = smaller,
                _ => return None,
            }
            Some(op)
        })),
    }
}

/// The number of steps; those that are repeated count once.
fn steps(ops: &[Op]) -> usize {
    ops.iter().map(|op| if let Op::Repeat(_, body) = op { body.len() } else { 1 }).sum()
}

/// Fails, with the shortest list of steps that was found.
pub(crate) fn report(plan: &Plan, ops: Vec<Op>, name: &str) -> ! {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _lock = ONE_AT_A_TIME.lock();
    let ops = shorter(plan, ops);
    eprintln!("{name} fails after {} steps:\n{plan:?}", steps(&ops));
    for op in &ops {
        eprintln!("    {op:?}");
    }
    run(plan, &ops);
    panic!("{name} failed, and does not fail when it is repeated");
}
