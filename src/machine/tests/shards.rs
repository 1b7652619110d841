//! Stamps, beside a list of all pushes with their times; and what getters of several machines make of them.

use crate::DelayedAdd;
use crate::FairShare;
use crate::key::KeyHash;
use crate::machine::{Claimed, End, EntryRef, How, Machine, Mode, Seen, Which};
use crate::order::{AnyOrder, Group, NO_NEW, Words, level_of};
use std::collections::BTreeMap;

/// Pushes with one stamp.
const STAMPED: usize = 64;

#[derive(Clone, Copy)]
struct Push {
    time: u64,
    /// No key of its level was queued then.
    begins: bool,
    /// The pushes of its level before it, and of all levels.
    before: [usize; 2],
}

struct Shard {
    machine: Machine<u32>,
    groups: u64,
    queued: BTreeMap<u32, (i8, Push)>,
    /// The times of all pushes, by level, and of all levels.
    times: BTreeMap<Option<i8>, Vec<u64>>,
    held: Vec<Claimed<u32>>,
    /// What others read of the levels: which there are, and the stamp of the oldest key but for the highest.
    levels: (Words, u64),
}

impl Shard {
    fn new(order: AnyOrder<EntryRef<u32>>, groups: u64) -> Self {
        let mut machine = Machine::new(order, DelayedAdd::default(), 0);
        machine.want_stamps();
        let (queued, times, levels) = (BTreeMap::new(), BTreeMap::new(), (Words::of(level_of(0)), u64::MAX));
        Self { machine, groups, queued, times, held: Vec::new(), levels }
    }

    fn end_section(&mut self, now: u64) {
        if self.machine.wants_stamp(Mode::ORDERED) {
            self.machine.stamp(now);
        }
        self.machine.change_of_levels().into_iter().for_each(|levels| self.levels = levels);
    }

    fn add(&mut self, key: u32, priority: i8, now: u64) {
        let begins = !self.queued.values().any(|(level, _)| *level == priority);
        let before = [Some(priority), None].map(|level| {
            let times = self.times.entry(level).or_default();
            times.push(now);
            times.len() - 1
        });
        self.queued.insert(key, (priority, Push { time: now, begins, before }));
        let group = Group { hash: u64::from(key) % self.groups, ..Group::default() };
        let how = How { priority, ..How::NOW };
        _ = self.machine.add(&mut Some(key), hash(key), group, how, Mode::ORDERED);
        self.end_section(now);
    }

    fn get(&mut self, now: u64) -> Option<u32> {
        let claimed = self.machine.get(0, Mode::ORDERED).0?;
        Some(self.got(claimed, now))
    }

    /// The first key of a level, which is any but the highest.
    fn get_lower(&mut self, now: u64) {
        let queued = || self.queued.values().map(|(level, _)| *level);
        let Some(level) = queued().rfind(|level| Some(*level) < queued().max()) else { return };
        let claimed = self.machine.get_of_level(level_of(level), 0, Mode::ORDERED).0.expect("the level has keys");
        let (of, key) = (self.queued[claimed.key()], *claimed.key());
        assert_eq!(of.0, level);
        let is_first = |(other, push): &(i8, Push)| *other != level || push.before >= of.1.before;
        assert!(self.groups > 1 || self.queued.values().all(is_first), "key {key} is the first of its level");
        self.got(claimed, now);
        let none = (0..=u8::MAX).find(|level| !self.levels.0.has(*level)).expect("few levels are used");
        assert!(self.machine.get_of_level(none, 0, Mode::ORDERED).0.is_none());
    }

    fn got(&mut self, claimed: Claimed<u32>, now: u64) -> u32 {
        let key = *claimed.key();
        self.held.push(claimed);
        self.queued.remove(&key);
        self.end_section(now);
        key
    }

    fn done(&mut self, now: u64) {
        if let Some(claimed) = self.held.pop() {
            _ = self.machine.done(&mut None, claimed, End::Done, 0, Mode::ORDERED);
            self.end_section(now);
        }
    }

    fn remove(&mut self, key: u32, now: u64) {
        self.queued.remove(&key);
        _ = self.machine.remove(&mut None, &key, hash(key), Mode::ORDERED);
        self.end_section(now);
    }

    fn look(&self) -> Vec<(Seen, u32)> {
        let (mut from, mut seen) = (Some(0), Vec::new());
        while let Some(at) = from {
            from = self
                .machine
                .look(at, Which::Active, |view| seen.extend(view.is_queued().then(|| (view.seen(), *view.key()))));
        }
        seen.sort_unstable_by_key(|(seen, _)| seen.by_age());
        seen
    }

    /// The stamp of a key is not later than its push, and not earlier than some pushes before.
    fn check_stamp(&self, stamp: u64, (priority, push): (i8, Push)) {
        assert!(stamp <= push.time, "{stamp} is after the push at {}", push.time);
        let (of, before) = if self.groups == 1 { (Some(priority), push.before[0]) } else { (None, push.before[1]) };
        let earliest = before.checked_sub(STAMPED).map_or(0, |at| self.times[&of][at]);
        assert!(stamp >= earliest, "{stamp} is before the pushes at {earliest}");
    }

    /// `exact`: the first key of a level has its own stamp.
    fn check(&self, exact: bool) {
        let top = self.queued.values().map(|(level, _)| *level).max();
        let front = self.machine.front(Mode::ORDERED);
        assert_eq!(front.map(|front| front.0), top);
        let Some((level, stamp)) = front else { return };
        let of_level = self.queued.values().filter(|(other, _)| *other == level);
        let first = of_level.min_by_key(|(_, push)| push.before).copied().expect("a key of the level");
        if self.groups == 1 {
            self.check_stamp(stamp, first);
            assert!(!exact || !first.1.begins || stamp == first.1.time, "the first key of a level has its stamp");
        }
    }

    /// Others see the levels, and how old the oldest of the lower keys is.
    fn check_levels(&self, top: i8) {
        let (levels, oldest) = self.levels;
        let mut firsts = BTreeMap::<i8, Push>::new();
        for (level, push) in self.queued.values() {
            let first = firsts.entry(*level).or_insert(*push);
            *first = if push.before < first.before { *push } else { *first };
        }
        (i8::MIN..=i8::MAX).for_each(|level| assert_eq!(levels.has(level_of(level)), firsts.contains_key(&level)));
        let lower: Vec<_> = firsts.into_iter().filter(|(level, _)| *level < top).collect();
        match lower.iter().min_by_key(|(_, push)| push.time) {
            None if self.groups == 1 => assert!(!self.machine.order().is_ordered() || oldest == u64::MAX),
            Some(_) if self.groups == 1 => {
                lower.iter().for_each(|(_, push)| assert!(oldest <= push.time, "{oldest} is after a push"));
                let earliest =
                    |of: &(i8, Push)| of.1.before[0].checked_sub(STAMPED).map_or(0, |at| self.times[&Some(of.0)][at]);
                let earliest = lower.iter().map(earliest).min();
                assert!(earliest <= Some(oldest), "{oldest} is before {earliest:?}");
            }
            _ => {}
        }
    }

    fn check_all(&self, exact: bool) {
        self.queued.values().map(|(level, _)| *level).max().into_iter().for_each(|top| self.check_levels(top));
        let seen = self.look();
        assert_eq!(seen.len(), self.queued.len());
        let mut by_age: Vec<_> =
            self.queued.iter().map(|(key, (level, push))| ((-i16::from(*level), push.before), *key)).collect();
        by_age.sort_unstable();
        assert!(seen.iter().map(|(_, key)| key).eq(by_age.iter().map(|(_, key)| key)), "by level and age");
        for (found, key) in &seen {
            let of = self.queued[key];
            self.check_stamp(found.push.unwrap().0, of);
            assert!(!exact || !of.1.begins || self.groups == 1 || found.push.unwrap().0 == of.1.time, "a first key");
        }
    }
}

fn hash(key: u32) -> KeyHash {
    KeyHash(key.wrapping_mul(0x9e37_79b9))
}

#[test]
fn stamps_are_those_of_a_list_of_pushes() {
    let line = || AnyOrder::new(false);
    let groups = || AnyOrder::groups(FairShare::HandOuts, true, false);
    let cases = [(line(), 1, false), (line(), 1, true), (groups(), 7, false), (groups(), 100, true)];
    for (seed, (order, groups, has_levels)) in (0..).zip(cases) {
        let (mut random, mut shard) = (fastrand::Rng::with_seed(seed), Shard::new(order, groups));
        let (mut now, mut next) = (0, 0);
        let steps = if cfg!(miri) { 500 } else { 40_000 };
        for step in 0..steps {
            now += random.u64(1..100);
            let phase = [(60, 75), (20, 80), (45, 80), (50, 55), (30, 60)][step * 20 / steps % 5];
            let levels = if has_levels && step % 3000 > 1500 { &[-100_i8, 0, 0, 0, 100, 127][..] } else { &[0] };
            match random.u32(0..100) {
                dice if dice < phase.0 => {
                    shard.add(next, levels[random.usize(..levels.len())], now);
                    next += 1;
                }
                dice if dice < phase.1 => {
                    if dice % 4 == 0 {
                        shard.get_lower(now)
                    } else {
                        _ = shard.get(now)
                    }
                    shard.done(now);
                }
                _ => {
                    let at = random.usize(..shard.queued.len().max(1));
                    let key = shard.queued.keys().nth(at).copied();
                    key.into_iter().for_each(|key| shard.remove(key, now));
                }
            }
            let exact = groups > 1 || has_levels && step > 3000;
            shard.check(exact);
            if step % 64 == 0 {
                shard.check_all(exact);
            }
        }
    }
}

/// Keys that want stamps are taken in the same critical section, and their blocks and lanes are freed.
#[test]
fn what_wants_a_stamp_may_be_gone() {
    for order in [AnyOrder::new(false), AnyOrder::groups(FairShare::HandOuts, true, false)] {
        let mut machine = Machine::new(order, DelayedAdd::default(), 0);
        machine.want_stamps();
        for round in 1..4 {
            for key in 0..1000 {
                let group = Group { hash: key.into(), ..Group::default() };
                _ = machine.add(&mut Some(key), hash(key), group, How::NOW, Mode::ORDERED);
            }
            // The last first, as the lanes that were used last are kept.
            for key in (0..1000).rev() {
                _ = machine.remove(&mut None, &key, hash(key), Mode::ORDERED);
            }
            drop(machine.take_garbage());
            machine.stamp(round);
            assert!(!machine.wants_stamp(Mode::ORDERED));
        }
    }
}

/// Getters that stay for some keys, each in turn, with the shard whose front is the first by level and stamp.
struct Getters {
    shards: Vec<Shard>,
    /// The shard of each, how often it takes from there before it chooses again, and the front of that shard when it did.
    stays: Vec<(usize, u32, (i8, u64))>,
    stay: u32,
    now: u64,
    turn: usize,
}

impl Getters {
    fn new(shards: Vec<Shard>, getters: usize, stay: u32) -> Self {
        Self { shards, stays: vec![(0, 0, (0, 0)); getters], stay, now: 1, turn: 0 }
    }

    fn get(&mut self) -> Option<(usize, u32)> {
        self.now += 1;
        self.turn += 1;
        let getters = self.stays.len();
        // As the other one, with groups without new ones in one of 16 turns.
        let new_first = self.turn % 16 > 0 || self.shards[0].groups == 1;
        let front = |shard: &Shard| {
            let front = shard.machine.front(Mode::ORDERED);
            front.map(|(level, stamp)| (-level, if new_first { stamp } else { stamp | NO_NEW }))
        };
        let (at, left, chosen) = &mut self.stays[self.turn % getters];
        let is_later = |now| self.shards[0].groups > 1 && now > *chosen;
        if *left == 0 || front(&self.shards[*at]).is_none_or(is_later) {
            let fronts = self.shards.iter().enumerate();
            let first = fronts.filter_map(|(at, shard)| Some((front(shard)?, at))).min()?;
            (*chosen, *at, *left) = (first.0, first.1, self.stay);
            let round =
                self.shards.iter().filter_map(|shard| shard.machine.front(Mode::ORDERED)).map(|f| f.1 & (NO_NEW - 1));
            let round = round.min().unwrap_or(0);
            self.shards.iter_mut().for_each(|shard| shard.machine.join(Mode::ORDERED, |_| round));
        }
        *left -= 1;
        let key = self.shards[*at].get(self.now)?;
        self.shards[*at].done(self.now);
        Some((*at, key))
    }
}

/// P18: lines that are not equally long, and lines that are often empty. A key is overtaken by the rest of a block in each shard, and by
/// the stays that begin there; and by the stays that were under way.
#[test]
fn a_key_is_overtaken_by_a_bounded_number() {
    for (count, getters, percent) in [(2, 1, 50), (2, 3, 90), (16, 4, 6), (16, 4, 40), (16, 1, 95)] {
        let shards = (0..count).map(|_| Shard::new(AnyOrder::new(false), 1)).collect();
        let (mut all, mut random) = (Getters::new(shards, getters, 64), fastrand::Rng::with_seed(3));
        let (mut next, mut worst, mut lowest, mut gone) = (0, 0, 0, Vec::new());
        let (mut taken, total) = (0, if cfg!(miri) { 200 } else { 20_000 });
        while taken < total {
            let adds = [4, 3, 1, 3, 2][taken / 3000 % 5];
            let more = random.usize(0..adds) + usize::from(next == taken);
            gone.resize(next + more, false);
            for _ in 0..more {
                all.now += 1;
                let shard = if random.usize(0..100) < percent { 0 } else { random.usize(1..count) };
                all.shards[shard].add(next as u32, 0, all.now);
                next += 1;
            }
            let Some((_, key)) = all.get() else { continue };
            gone[key as usize] = true;
            taken += 1;
            lowest += gone[lowest..].iter().take_while(|gone| **gone).count();
            worst = worst.max(gone[lowest..].iter().filter(|gone| **gone).count());
        }
        let bound = (2 * count + getters) * 64;
        println!("{count} shards, {getters} getters: overtaken by {worst}, at most {bound}");
        assert!(worst <= bound, "{worst}, not {bound}");
    }
}

/// P20: groups with many keys in each shard, and now and then a group that has none.
#[test]
fn the_first_key_of_a_group_comes_soon_also_with_several_shards() {
    const KEYS: u32 = if cfg!(miri) { 100 } else { 1000 };
    for (count, getters) in [(16, 1), (16, 8), (4, 4)] {
        let shards = (0..count).map(|_| Shard::new(AnyOrder::groups(FairShare::HandOuts, true, false), 1000)).collect();
        let mut all = Getters::new(shards, getters, 5);
        let mut worst = 0;
        // As many keys as there are, shard by shard, so that one may be far behind the others.
        let mut next = vec![0; count];
        let mut feed = |all: &mut Getters, at: usize, keys: u32| {
            for _ in 0..keys {
                all.now += 1;
                all.shards[at].add(next[at] / 20 * 1000 + next[at] % 20, 0, all.now);
                next[at] += 1;
            }
        };
        (0..count).for_each(|at| feed(&mut all, at, KEYS * if at == 0 { 4 } else { 1 }));
        // The groups are new at first, all of them.
        for _ in 0..if cfg!(miri) { 40 } else { 50 * count } {
            let (from, _) = all.get().expect("there are keys");
            feed(&mut all, from, 1);
        }
        for round in 0..if cfg!(miri) { 4 } else { 60_u32 } {
            let (at, new) = (round as usize % count, 500 + round * 1000 + round % 400 + (1 << 30) / 1000 * 1000);
            all.shards[at].add(new, 0, all.now);
            let mut waits = 0;
            loop {
                let (from, key) = all.get().expect("there are keys");
                if key == new {
                    break;
                }
                feed(&mut all, from, 1);
                waits += 1;
            }
            worst = worst.max(waits);
        }
        let bound = 2 * (count + getters);
        println!("{count} shards, {getters} getters: {worst} hand-outs, at most {bound}");
        assert!(worst <= bound, "{worst}, not {bound}");
    }
}
