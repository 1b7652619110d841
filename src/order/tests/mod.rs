//! Each order beside plain lists: random calls, and all short words. Every answer is compared.

mod bounds;
mod group_table;
mod plain;
mod stamps;
mod turns;
mod work;

use super::{AnyOrder, Bin, Group, Limits, PerSecond, Place, level_of};
use crate::FairShare;
use fastrand::Rng;
use plain::{Plain, Rules};

std::thread_local!(pub(crate) static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

std::thread_local!(pub(crate) static RELEASED: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) });

/// A queue of keys by number, as far as an order sees one.
struct Keys {
    order: AnyOrder<u32>,
    bin: Bin<u32>,
    /// For each known key: whether it is queued, and its place.
    known: Vec<Option<(bool, Place)>>,
    held: Vec<u32>,
    max_processing: u32,
    now: u64,
}

fn hash(group: u64) -> u64 {
    // Collisions in the lower bits too.
    (group % 7) << 40 | (group / 7 * 37)
}

impl Keys {
    fn new(order: AnyOrder<u32>, keys: u32) -> Self {
        let (known, held) = (vec![None; keys as usize], Vec::new());
        Self { order, bin: Bin::new(), known, held, max_processing: u32::MAX, now: 0 }
    }

    fn with_groups(limit: Option<u32>, strict: bool, keys: u32) -> Self {
        let order = AnyOrder::groups(FairShare::HandOuts, !strict, strict);
        Self { max_processing: limit.unwrap_or(u32::MAX), ..Self::new(order, keys) }
    }

    fn enter(&mut self, key: u32, group: u64, weight: u32) {
        self.enter_with(key, group, plain::Limits { weight, max: self.max_processing, rate: None });
    }

    fn group(&self, group: u64, limits: plain::Limits) -> Group {
        let rate = limits.rate.map(|(token, burst)| PerSecond::new(1e9 / token as f64, burst as u32));
        let limits = Limits { weight: limits.weight as u16, max_processing: limits.max, rate };
        Group { hash: hash(group), limits, now: self.now }
    }

    fn enter_with(&mut self, key: u32, group: u64, limits: plain::Limits) {
        let group = self.order.enter_group(self.group(group, limits));
        self.known[key as usize] = Some((false, Place { priority: 0, group, position: 0 }));
    }

    fn push(&mut self, key: u32, priority: i8) -> bool {
        let ready = self.order.ready(true);
        self.order.expect(priority);
        assert_eq!(self.order.ready(true), ready);
        let (is_queued, place) = self.known[key as usize].as_mut().unwrap();
        let (position, is_ready) = if self.order.is_ordered() || key % 2 == 0 {
            self.order.push(key, priority, place.group)
        } else {
            (self.order.push_plain(key), true)
        };
        (*is_queued, place.priority, place.position) = (true, priority, position);
        is_ready
    }

    fn pop(&mut self) -> Option<u32> {
        let is_plain = !self.order.is_ordered() && self.held.len() % 2 == 0;
        let plain = if is_plain { self.order.pop_plain() } else { None };
        let key = plain.or_else(|| self.order.pop(self.now, &mut self.bin))?;
        self.known[key as usize].as_mut().unwrap().0 = false;
        self.held.push(key);
        Some(key)
    }

    /// `None`: it is not queued.
    fn place(&self, key: u32) -> Option<Place> {
        self.known[key as usize].filter(|known| known.0).map(|known| known.1)
    }

    fn remove(&mut self, key: u32) {
        self.order.remove(self.place(key).unwrap(), &mut self.bin);
        self.known[key as usize].as_mut().unwrap().0 = false;
    }

    fn leave(&mut self, key: u32) {
        let (_, place) = self.known[key as usize].take().unwrap();
        self.order.leave_group(place.group, &mut self.bin);
    }

    fn ended(&mut self, at: usize) -> (u32, u32) {
        self.ended_after(at, 0)
    }

    fn ended_after(&mut self, at: usize, nanos: u64) -> (u32, u32) {
        let key = self.held.swap_remove(at);
        let (_, place) = self.known[key as usize].unwrap();
        (key, self.order.ended(place.group, nanos))
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Adds a key, or raises it.
    Add(u32, i8),
    Pop,
    /// Ends the processing of one of the held keys; it may be queued again.
    End(u32, Option<i8>),
    Remove(u32),
    Shrink,
    /// What changes groups while there are keys.
    Set(u64, plain::Limits),
    Unset(u64),
    Pause(u64, u64),
    Resume(u64),
    Wait(u64),
}

struct Run {
    keys: Keys,
    plain: Plain,
    /// 0: all are in one.
    groups: u64,
    /// Of the groups that are entered, by turns: none, and some of these.
    rates: Vec<(i64, i64)>,
    /// For each level the highest push number.
    pushed: [Option<u64>; 256],
}

impl Run {
    fn new(order: AnyOrder<u32>, rules: Rules, groups: u64, keys: u32) -> Self {
        let max_processing = rules.limit.unwrap_or(u32::MAX);
        let keys = Keys { max_processing, ..Keys::new(order, keys) };
        Self { keys, plain: Plain::new(rules), groups, rates: Vec::new(), pushed: [None; 256] }
    }

    fn limits_of(&self, group: u64) -> plain::Limits {
        let rate = self.rates.get(group as usize % (self.rates.len() + 1)).copied();
        plain::Limits { weight: (group as u32 % 4).max(1), max: self.keys.max_processing, rate }
    }

    fn group_of(&self, key: u32) -> u64 {
        if self.groups == 0 { 0 } else { u64::from(key) % self.groups }
    }

    fn push(&mut self, key: u32, priority: i8) {
        let is_ready = self.keys.push(key, priority);
        assert_eq!(is_ready, self.plain.push(key, priority, self.group_of(key)));
        let number = self.keys.order.age(self.keys.place(key).unwrap()).1;
        let last = self.pushed[usize::from(level_of(priority))].replace(number);
        assert!(last.is_none_or(|last| last < number), "push numbers ascend: {last:?}, {number}");
    }

    fn step(&mut self, op: Op) {
        VISITS.set(0);
        match op {
            Op::Add(key, priority) => match (self.keys.known[key as usize], self.keys.place(key)) {
                (None, _) => {
                    let group = self.group_of(key);
                    let limits = self.limits_of(group);
                    self.keys.enter_with(key, group, limits);
                    self.plain.enter(group, limits);
                    self.push(key, priority);
                }
                (_, Some(place)) if place.priority < priority => {
                    self.keys.remove(key);
                    self.plain.remove(key);
                    self.push(key, priority);
                }
                _ => {}
            },
            Op::Pop => assert_eq!(self.keys.pop(), self.plain.pop()),
            Op::End(..) if self.keys.held.is_empty() => {}
            Op::End(at, again) => {
                let (key, more) = self.keys.ended(at as usize % self.keys.held.len());
                let group = self.group_of(key);
                assert_eq!(more, self.plain.ended(group));
                if let Some(priority) = again {
                    self.push(key, priority);
                } else {
                    self.keys.leave(key);
                    self.plain.leave(group);
                }
            }
            Op::Remove(key) if self.keys.place(key).is_some() => {
                self.keys.remove(key);
                self.plain.remove(key);
                self.keys.leave(key);
                self.plain.leave(self.group_of(key));
            }
            Op::Remove(_) => {}
            Op::Shrink => {
                while self.keys.order.shrink(&mut self.keys.bin) {
                    assert!(VISITS.replace(0) < 700);
                }
                self.plain.shrink();
            }
            Op::Set(group, limits) => {
                let of = self.keys.group(group, limits);
                assert_eq!(self.keys.order.groups_mut().unwrap().set(of), self.plain.set(group, limits));
            }
            Op::Unset(group) => {
                let limits = self.limits_of(group);
                let (of, bin) = (self.keys.group(group, limits), &mut self.keys.bin);
                let ready = self.keys.order.groups_mut().unwrap().unset(of, bin);
                assert_eq!(ready, self.plain.unset(group, limits));
            }
            Op::Pause(group, for_) => {
                let (now, until) = (self.keys.now, self.keys.now.saturating_add(for_));
                self.keys.order.groups_mut().unwrap().pause(hash(group), until, now);
                self.plain.pause(group, until);
            }
            Op::Resume(group) => {
                let (now, bin) = (self.keys.now, &mut self.keys.bin);
                let ready = self.keys.order.groups_mut().unwrap().resume(hash(group), now, bin);
                assert_eq!(ready, self.plain.resume(group));
            }
            Op::Wait(nanos) => {
                self.keys.now += nanos;
                self.plain.set_time(self.keys.now);
                let mut ready = 0;
                while self.keys.order.held_until().is_some_and(|until| until <= self.keys.now) {
                    VISITS.set(0);
                    ready += self.keys.order.release(self.keys.now, &mut 2, &mut self.keys.bin);
                }
                let of_hash = |hash_: u64| (0..self.groups).find(|group| hash(*group) == hash_).unwrap();
                let order: Vec<u64> = RELEASED.take().into_iter().map(of_hash).collect();
                assert_eq!(ready, self.plain.expire(&order));
                VISITS.set(0);
            }
        }
        assert!(VISITS.get() < 700, "{op:?} visits {}", VISITS.get());
        self.compare();
    }

    fn compare(&self) {
        assert_eq!(self.keys.order.blocked(), self.plain.blocked());
        assert_eq!(self.keys.order.len(), self.plain.queued.len());
        assert_eq!(self.keys.order.ready(true), self.plain.queued.len() - self.plain.blocked());
        assert!(self.keys.order.is_ordered() || self.keys.order.ready(false) == self.plain.queued.len());
        assert_eq!(self.keys.order.front(true).map(|front| front.0), self.plain.top());
        for ahead in [0, 1, 4] {
            let next = self.keys.order.upcoming(ahead, true);
            assert!(next.is_none_or(|key| self.keys.place(key).is_some()), "{next:?} is not queued");
        }
    }

    /// What is compared with a look at all keys.
    fn compare_all(&self) {
        let order = &self.keys.order;
        let all = self.keys.known.iter().enumerate();
        let mut by_age: Vec<_> = all
            .filter_map(|(key, known)| {
                let (_, place) = (*known).filter(|known| known.0)?;
                let (stamp, number) = order.age(place);
                let front = order.front(true).filter(|front| self.groups == 0 && front.0 == place.priority);
                assert!(front.is_none_or(|front| front.1 <= stamp), "{front:?} is not after {stamp}");
                Some((place.priority, number, key as u32))
            })
            .collect();
        by_age.sort_unstable();
        let mut plain = self.plain.queued.clone();
        plain.sort_by_key(|queued| queued.1);
        let keys = |(_, _, key): &(i8, u64, u32)| *key;
        assert_eq!(by_age.iter().map(keys).collect::<Vec<_>>(), plain.iter().map(|q| q.0).collect::<Vec<_>>());
        for priority in [-128, -100, 0, 3, 100, 127] {
            let len = plain.iter().filter(|queued| queued.1 == priority).count();
            assert_eq!(order.level_len(priority), len);
        }
        if self.groups > 0 {
            assert_eq!(order.count_groups(), self.plain.groups.len());
            for (key, (_, place)) in
                self.keys.known.iter().enumerate().filter_map(|(key, known)| Some((key, (*known)?)))
            {
                let group = self.group_of(key as u32);
                assert_eq!(order.group(place.group).unwrap().handed_out, self.plain.handed_out(group));
            }
        }
    }
}

fn steps() -> u32 {
    if cfg!(debug_assertions) { 20_000 } else { 1_000_000 }
}

/// `keys`: the number of keys. `levels`: priorities are given.
fn random_calls(order: impl Fn() -> AnyOrder<u32>, rules: Rules, levels: bool, groups: u64, keys: u32) {
    let mut random = Rng::with_seed(u64::from(keys) + 7 * groups + 1);
    let mut run = Run::new(order(), rules, groups, keys);
    let phase = steps() / 15;
    for step in 0..steps() {
        // Many keys at times, hardly any at others, and many removals at others.
        let (adds, removes) = [(50, 2), (20, 2), (35, 2), (40, 35), (30, 5)][(step / phase.min(6 * keys)) as usize % 5];
        let priority = |random: &mut Rng| match random.u32(..2) {
            1 if levels => [-128, -100, 0, 3, 100, 127][random.u32(..6) as usize],
            _ => 0,
        };
        let key = random.u32(..keys);
        let op = match random.u32(..100) {
            dice if dice < adds => Op::Add(key, priority(&mut random)),
            dice if dice < adds + removes => Op::Remove(key),
            99 if random.u32(..100) == 0 => Op::Shrink,
            _ if run.keys.held.len() > 20 || random.u32(..2) == 0 => {
                let again = (random.u32(..4) == 0).then(|| priority(&mut random));
                Op::End(random.u32(..1 << 20), again)
            }
            _ => Op::Pop,
        };
        run.step(op);
        if step % 512 == 0 {
            run.compare_all();
            run.keys.bin = Bin::new();
        }
    }
}

/// All words of this length over an alphabet. `before`: what comes before each word.
fn short_words(order: impl Fn() -> AnyOrder<u32>, rules: Rules, groups: u64, before: &[Op]) {
    let letters = [
        Op::Add(0, 0),
        Op::Add(1, 0),
        Op::Add(2, 100),
        Op::Add(0, 100),
        Op::Pop,
        Op::End(0, None),
        Op::End(0, Some(-100)),
        Op::Remove(2),
    ];
    let length = if cfg!(debug_assertions) { 4 } else { 6 };
    for word in 0..letters.len().pow(length) {
        let mut run = Run::new(order(), rules, groups, 300);
        before.iter().for_each(|op| run.step(*op));
        let mut rest = word;
        for _ in 0..length {
            run.step(letters[rest % letters.len()]);
            rest /= letters.len();
        }
        run.compare_all();
    }
}

const PLAIN: Rules = Rules { strict: false, limit: None };
const STRICT: Rules = Rules { strict: true, limit: None };

#[test]
fn a_line_does_what_a_plain_list_does() {
    random_calls(|| AnyOrder::new(false), PLAIN, false, 0, 3000);
    random_calls(|| AnyOrder::new(false), PLAIN, false, 0, 20);
}

#[test]
fn levels_do_what_plain_lists_do() {
    random_calls(|| AnyOrder::new(false), PLAIN, true, 0, 2000);
    random_calls(|| AnyOrder::new(true), STRICT, true, 0, 300);
}

#[test]
fn groups_do_what_plain_lists_do() {
    for (groups, keys) in [(3, 60), (40, 200), (300, 400)] {
        random_calls(|| AnyOrder::groups(FairShare::HandOuts, true, false), PLAIN, keys < 400, groups, keys);
    }
}

#[test]
fn groups_with_a_limit_do_what_plain_lists_do() {
    for (limit, strict, groups, keys) in
        [(1, false, 5, 60), (2, false, 40, 200), (1, true, 13, 100), (3, false, 2, 300)]
    {
        let rules = Rules { strict, limit: Some(limit) };
        random_calls(|| AnyOrder::groups(FairShare::HandOuts, !strict, strict), rules, true, groups, keys);
    }
}

/// Limits, rates and pauses that come and go.
#[test]
fn groups_that_change_do_what_plain_lists_do() {
    for (limit, strict, groups, keys) in
        [(None, false, 4, 60), (Some(2), false, 30, 200), (Some(1), true, 7, 60), (None, false, 300, 300)]
    {
        let (rules, mut random) = (Rules { strict, limit }, Rng::with_seed(groups));
        let mut run = Run::new(AnyOrder::groups(FairShare::HandOuts, !strict, strict), rules, groups, keys);
        run.rates = vec![(10, 3), (200, 1)];
        for step in 0..steps() / 2 {
            let (key, group) = (random.u32(..keys), random.u64(..groups));
            let priority = [-100, 0, 0, 100][random.u32(..4) as usize];
            run.step(match random.u32(..100) {
                0..35 => Op::Add(key, priority),
                35..40 => Op::Remove(key),
                40..65 => Op::Pop,
                65..85 => Op::End(random.u32(..1 << 20), (random.u32(..4) == 0).then_some(priority)),
                85..88 => {
                    let rate = [None, Some((8, 2)), Some((100, 5)), Some((1000, 1))][random.u32(..4) as usize];
                    let max = [1, 2, 5, u32::MAX][random.u32(..4) as usize];
                    Op::Set(group, plain::Limits { weight: random.u32(1..4), max, rate })
                }
                88..90 => Op::Unset(group),
                90..91 => Op::Pause(group, [0, 5, 300, u64::MAX][random.u32(..4) as usize]),
                91..92 => Op::Resume(group),
                92 if random.u32(..50) == 0 => Op::Shrink,
                _ => Op::Wait([0, 1, 10, 100, 500][random.u32(..5) as usize]),
            });
            if step % 64 == 0 {
                run.compare_all();
                run.keys.bin = Bin::new();
            }
        }
    }
}

/// Groups of many levels, whose lanes are forgotten often: they get an index, and lose it.
#[test]
fn lanes_come_and_go() {
    for limit in [None, Some(1)] {
        let order = AnyOrder::groups(FairShare::HandOuts, true, false);
        let mut run = Run::new(order, Rules { strict: false, limit }, 3, 60);
        let mut random = Rng::with_seed(9);
        for step in 0..steps() / 2 {
            let (adds, removes) = [(9, 3), (4, 9), (6, 6)][step as usize / 100 % 3];
            let key = random.u32(..60);
            run.step(match random.u32(..20) {
                dice if dice < adds => Op::Add(key, [-128, -100, -3, 0, 3, 50, 100, 127][random.u32(..8) as usize]),
                dice if dice < adds + removes => Op::Remove(key),
                16 => Op::End(key, None),
                17 => Op::Shrink,
                _ => Op::Pop,
            });
            if step % 64 == 0 {
                run.compare_all();
            }
        }
    }
}

#[test]
fn all_short_words_with_levels() {
    short_words(|| AnyOrder::new(false), PLAIN, 0, &[]);
    short_words(|| AnyOrder::new(true), STRICT, 0, &[]);
    // The line is at the end of its first block.
    let full: Vec<Op> = (10..265).map(|key| Op::Add(key, 0)).chain([Op::Pop; 254]).collect();
    if !cfg!(debug_assertions) {
        short_words_short(&full);
    }
    // The next block loses its only key, and begins anew.
    let mut run = Run::new(AnyOrder::new(false), PLAIN, 0, 300);
    let anew = [Op::Add(0, 0), Op::Add(1, 0), Op::Remove(1), Op::Add(2, 0)];
    full.iter().chain(&anew).for_each(|op| run.step(*op));
    run.compare_all();
}

/// Of length 4, as each begins with many calls.
fn short_words_short(before: &[Op]) {
    let letters = [Op::Add(0, 0), Op::Add(1, 0), Op::Add(2, 0), Op::Pop, Op::Remove(0), Op::Remove(1), Op::Remove(2)];
    for word in 0..letters.len().pow(4) {
        let mut run = Run::new(AnyOrder::new(false), PLAIN, 0, 300);
        before.iter().for_each(|op| run.step(*op));
        (0..4).fold(word, |rest, _| {
            run.step(letters[rest % letters.len()]);
            rest / letters.len()
        });
        run.compare_all();
    }
}

#[test]
fn all_short_words_with_groups() {
    for limit in [None, Some(1), Some(2)] {
        short_words(|| AnyOrder::groups(FairShare::HandOuts, true, false), Rules { strict: false, limit }, 2, &[]);
    }
    short_words(|| AnyOrder::groups(FairShare::HandOuts, false, true), Rules { strict: true, limit: Some(1) }, 2, &[]);
}
