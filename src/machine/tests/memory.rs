//! Memory that was asked for stays, and what a burst took comes back, also while a key stays queued (P15). No verb visits many keys.

use crate::FairShare;
use crate::key::KeyHash;
use crate::machine::{Claimed, End, EntryRef, How, Machine, Mode, Owed};
use crate::order::tests::VISITS;
use crate::order::{AnyOrder, Group, Limits};
use crate::{Added, DelayedAdd};

const MANY: u64 = if cfg!(miri) {
    600
} else if cfg!(debug_assertions) {
    100_000
} else {
    1_000_000
};

fn hash(key: u64) -> KeyHash {
    KeyHash((key as u32).wrapping_mul(0x9e37_79b9))
}

/// A machine whose verbs are looked at.
struct Watched {
    machine: Machine<u64>,
    groups: u64,
    limit: Option<u32>,
}

impl Watched {
    fn new(order: AnyOrder<EntryRef<u64>>, groups: u64, capacity: usize) -> Self {
        Self { machine: Machine::new(order, DelayedAdd::default(), capacity), groups, limit: None }
    }

    fn verb<A>(&mut self, verb: impl FnOnce(&mut Machine<u64>) -> (A, Owed)) -> A {
        VISITS.set(0);
        let (answer, owed) = verb(&mut self.machine);
        assert!(VISITS.get() < 300, "a verb visits {}", VISITS.get());
        if owed.has(Owed::GARBAGE) {
            drop(self.machine.take_garbage());
        }
        assert!(!self.machine.has_garbage(), "the verb that leaves memory owes it");
        answer
    }

    fn add(&mut self, key: u64, priority: i8) {
        let limits = Limits { max_processing: self.limit.unwrap_or(u32::MAX), ..Limits::default() };
        let group = Group { hash: (key % self.groups).wrapping_mul(0x9e37_79b9_7f4a_7c15), limits, now: 0 };
        let how = How { priority, ..How::NOW };
        let added = self.verb(|machine| machine.add(&mut Some(key), hash(key), group, how, Mode::ORDERED));
        assert_eq!(added, Added::Queued);
    }

    fn get(&mut self) -> Claimed<u64> {
        self.verb(|machine| machine.get(0, Mode::ORDERED)).expect("a key is queued")
    }

    fn done(&mut self, claimed: Claimed<u64>) {
        _ = self.verb(|machine| machine.done(&mut None, claimed, End::Done, 0, Mode::ORDERED));
    }

    fn shrink(&mut self) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.verb(|machine| machine.shrink(at));
        }
    }
}

/// Groups of one key, and of three with a limit; handed out one by one, or all at once; and one key stays queued.
#[test]
fn groups_give_memory_back_while_one_key_stays() {
    for (of_each, limit, at_once) in [(1, None, false), (1, None, true), (3, Some(1), false), (3, Some(2), false)] {
        let mut watched = Watched::new(AnyOrder::groups(FairShare::HandOuts, false, true), MANY / of_each, 0);
        watched.limit = limit;
        watched.add(MANY, -100);
        (0..MANY).for_each(|key| watched.add(key, [0, 0, 100][key as usize % 3]));
        let full = watched.machine.bytes();
        let mut held = Vec::new();
        for _ in 0..MANY {
            let claimed = watched.get();
            if at_once {
                held.push(claimed);
            } else {
                watched.done(claimed);
            }
        }
        held.into_iter().for_each(|claimed| watched.done(claimed));
        assert_eq!((watched.machine.known(), watched.machine.len()), (1, 1));
        drop(watched.machine.take_garbage());
        let [keys, order] = watched.machine.bytes();
        println!("{of_each} of each, limit {limit:?}: {full:?} bytes, then {keys} and {order}");
        assert!(keys + order <= 1 << 19, "{keys} and {order} bytes are left, of {full:?}");
        assert!(cfg!(miri) || keys + order < full.iter().sum::<usize>() / 10);
    }
}

/// Also for a plain line and for levels.
#[test]
fn memory_comes_back_while_one_key_stays() {
    for lowest in [0, -100] {
        let mut watched = Watched::new(AnyOrder::new(true), 1, 0);
        (0..MANY).for_each(|key| watched.add(key, 0));
        watched.add(MANY, lowest);
        for _ in 0..MANY {
            let claimed = watched.get();
            watched.done(claimed);
        }
        let left = watched.machine.bytes().iter().sum::<usize>();
        assert!(left <= 256 << 10, "{left} bytes are left");
        assert_eq!(*watched.get().key(), MANY);
    }
}

/// What is asked for is there before the first key, and is not given back before a shrink.
#[test]
fn capacity_stays_until_it_is_shrunk() {
    for priority in [0, 100] {
        let mut watched = Watched::new(AnyOrder::new(false), 1, MANY as usize);
        let [keys, order] = watched.machine.bytes();
        // In the order, a key is a pointer.
        let least = [16, size_of::<usize>()].map(|bytes| bytes * MANY as usize);
        assert!(keys >= least[0] && order >= least[1], "{keys} and {order} bytes");
        for _ in 0..2 {
            (0..MANY).for_each(|key| watched.add(key, priority));
            let [all, full] = watched.machine.bytes();
            // The blocks are those of the plain line, which is the level NORMAL.
            let most = if priority == 0 { order } else { 2 * order };
            assert!(all >= keys && full <= most + most / 8, "{full} of {order}");
            for _ in 0..MANY {
                let claimed = watched.get();
                watched.done(claimed);
            }
            drop(watched.machine.take_garbage());
            let [left, empty] = watched.machine.bytes();
            assert!(left >= keys && empty >= order, "{left} of {keys}, {empty} of {order}");
        }
        watched.shrink();
        let left = watched.machine.bytes();
        assert!(left[0] == 0 && left[1] < 8192 + MANY as usize / 16, "{left:?} bytes are left");
    }
}

/// The starts of runs that groups pay for go with the slots of their keys.
#[test]
fn starts_of_runs_go_with_their_slots() {
    const KEYS: u64 = if cfg!(miri) { 500 } else { 20_000 };
    let mut watched = Watched::new(AnyOrder::groups(FairShare::WorkTime, false, true), 100, 0);
    (0..KEYS).for_each(|key| watched.add(key, 0));
    let held: Vec<_> = (0..KEYS).map(|_| watched.get()).collect();
    let number = |claimed: &Claimed<u64>| watched.machine.held(claimed).number();
    let [first, last] = [&held[0], &held[held.len() - 1]].map(number);
    let starts = |watched: &Watched, number| watched.machine.starts.as_ref().unwrap().get(number).is_some();
    assert!(starts(&watched, first) && starts(&watched, last));
    held.into_iter().for_each(|claimed| watched.done(claimed));
    watched.shrink();
    assert!(!starts(&watched, first) && !starts(&watched, last));
    assert_eq!(watched.machine.starts.as_ref().unwrap().capacity(), 0);
}
