//! Runs random calls on the timing wheel and on a sorted map: inserts, removals and moves, in any order and at any distance, and
//! pops as the clock jumps.
//!
//! * A pop returns the first entry of the map: by deadline, equal ones in the order of their inserts, none before its deadline.
//! * `At(t)`: no entry has expired, and none will before `t`. If no entry was ever removed, one expires at `t` exactly.
//! * A pop moves a bounded number of entries, whatever their number, and goes on where it stopped.
//! * A number is free again when its entry was popped or removed (it is reused at once here).
//! * A caller that waits until `t`, again and again, gets every entry, with at most a dozen wake-ups for a deadline.
//!
//! Used by the fuzz target `wheel_vs_btree`, by `replay_corpus.rs`, and by `tests/wheel.rs` for the wheel itself.

#![allow(dead_code, reason = "every test binary uses its part of it")]

#[path = "../../src/numbers.rs"]
mod numbers;
#[path = "../../src/time/wheel/mod.rs"]
pub(crate) mod real;
#[path = "../../src/slab.rs"]
mod slab;

pub(crate) use super::side::Side;
use arbitrary::{Arbitrary, Unstructured};
use real::{Placement, Placements, Popped, Wheel};
use std::collections::{BTreeMap, BTreeSet};

/// One call. An index selects an entry, in order of deadline.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Op {
    Insert(Span),
    /// With a deadline before the wheel's time.
    InsertPast(u8),
    /// Three times this number, with deadlines of the span plus a number of that many bits.
    InsertMany(u8, Span, u8),
    Remove(u16),
    /// Removes one, and inserts it with another deadline.
    Move(u16, Span),
    /// Advances the clock, and pops until this budget is used up.
    Pop(Span, u8),
    /// Advances the clock, and pops all that has expired, with this budget plus one at a time.
    PopAll(Span, u8),
}

/// A number of ticks.
#[derive(Arbitrary, Debug, Clone)]
pub(crate) enum Span {
    Zero,
    /// 2^n.
    Power(u8, Side),
    /// A number of eight bits, shifted.
    Shifted(u8, u8),
    /// To the deadline of an entry.
    ToDeadline(u16, Side),
    /// To the clock's last tick.
    ToEnd(Side),
    Any(u64),
}

/// The numbers, and their tickets.
#[derive(Default)]
struct Numbers {
    tickets: Vec<Placement>,
    free: Vec<u32>,
    /// The number of calls of `ticket`.
    accesses: usize,
}

impl Placements for Numbers {
    fn placement(&mut self, number: u32) -> &mut Placement {
        self.accesses += 1;
        &mut self.tickets[number as usize]
    }
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.tickets.push(Placement::default());
            u32::try_from(self.tickets.len() - 1).expect("few")
        })
    }

    /// Resets the ticket, so that a later use of it is found.
    fn give_back(&mut self, number: u32) {
        self.tickets[number as usize] = Placement::default();
        self.free.push(number);
    }
}

/// The largest number of entries.
const MOST: usize = 2_000;
/// How many entries a pop may move for each unit of its budget, and how many in addition.
const ACCESSES: (usize, usize) = (2, 300);
/// The largest number of wake-ups for a deadline.
const WAKES: usize = 12;

/// The wheel and the map, in the same state.
struct Pair {
    wheel: Wheel,
    numbers: Numbers,
    /// By deadline, and in the order of inserts.
    map: BTreeMap<(u64, u64), u32>,
    /// Entries that were inserted after their deadline: they are popped at once, in any order.
    late: BTreeSet<u32>,
    inserts: u64,
    now: u64,
    removed: bool,
}

/// Runs the fuzz target's input.
pub(crate) fn run_bytes(data: &[u8]) {
    if let Ok((start, ops)) = <(u64, Vec<Op>)>::arbitrary_take_rest(Unstructured::new(data)) {
        run(start, &ops);
    }
}

/// `start` gives the clock's first tick.
pub(crate) fn run(start: u64, ops: &[Op]) {
    // Half of the inputs begin early.
    let now = if start & 1 == 0 { start >> 1 } else { start >> 48 };
    let mut pair = Pair {
        wheel: Wheel::new(now),
        numbers: Numbers::default(),
        map: BTreeMap::new(),
        late: BTreeSet::new(),
        inserts: 0,
        now,
        removed: false,
    };
    for op in ops {
        pair.step(op);
    }
    pair.finish();
}

impl Pair {
    fn step(&mut self, op: &Op) {
        match op {
            Op::Insert(span) => {
                let deadline = self.after(span);
                self.insert(deadline);
            }
            Op::InsertPast(back) => {
                let deadline = self.now.saturating_sub(1 << (back % 64));
                if self.map.len() + self.late.len() < MOST && deadline < self.now {
                    let number = self.numbers.take();
                    self.wheel.insert(&mut self.numbers, number, deadline);
                    self.late.insert(number);
                }
            }
            Op::InsertMany(count, span, bits) => {
                let (from, mask) = (self.after(span), (1 << (bits % 64)) - 1);
                for n in 0..u64::from(*count) * 3 {
                    self.insert(from.saturating_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) & mask));
                }
            }
            Op::Remove(at) => {
                self.remove(*at);
            }
            Op::Move(at, span) => {
                let deadline = self.after(span);
                if self.remove(*at) {
                    self.insert(deadline);
                }
            }
            Op::Pop(span, budget) => {
                self.now = self.after(span);
                let mut budget = usize::from(*budget);
                while matches!(self.pop(&mut budget), Popped::Expired(_)) {}
            }
            Op::PopAll(span, budget) => {
                self.now = self.after(span);
                self.pop_all(usize::from(*budget) + 1);
            }
        }
    }

    fn after(&self, span: &Span) -> u64 {
        self.now.saturating_add(match *span {
            Span::Zero => 0,
            Span::Power(n, side) => side.of(1 << (n % 64)),
            Span::Shifted(n, by) => u64::from(n) << (by % 57),
            Span::ToDeadline(at, side) => {
                self.nth(at).map_or(1, |(deadline, _)| side.of(deadline.saturating_sub(self.now)))
            }
            Span::ToEnd(side) => side.of(u64::MAX - self.now),
            Span::Any(n) => n,
        })
    }

    fn nth(&self, at: u16) -> Option<(u64, u64)> {
        let at = usize::from(at).checked_rem(self.map.len())?;
        self.map.keys().nth(at).copied()
    }

    fn insert(&mut self, deadline: u64) {
        if self.map.len() + self.late.len() < MOST {
            let number = self.numbers.take();
            self.wheel.insert(&mut self.numbers, number, deadline);
            self.inserts += 1;
            self.map.insert((deadline, self.inserts), number);
        }
    }

    fn remove(&mut self, at: u16) -> bool {
        let Some(place) = self.nth(at) else { return false };
        let number = self.map.remove(&place).expect("it is there");
        assert_eq!(self.numbers.placement(number).deadline(), place.0);
        self.wheel.remove(&mut self.numbers, number);
        self.numbers.give_back(number);
        self.removed = true;
        true
    }

    fn pop(&mut self, budget: &mut usize) -> Popped {
        let (given, before) = (*budget, self.numbers.accesses);
        let next = self.wheel.pop(&mut self.numbers, self.now, budget);
        assert!(*budget <= given);
        assert!(self.numbers.accesses - before <= ACCESSES.0 * given + ACCESSES.1, "a pop of {given} moved too many");
        let first = self.map.first_key_value().map(|(&(deadline, _), &number)| (deadline, number));
        match next {
            Popped::Expired(number) => {
                if !self.late.remove(&number) {
                    let (deadline, expected) = first.expect("there is an entry");
                    assert!(deadline <= self.now, "{} too early", deadline - self.now);
                    assert_eq!(number, expected, "in order of deadline, then of insertion");
                    self.map.pop_first();
                }
                self.numbers.give_back(number);
            }
            Popped::BudgetSpent => assert_eq!(*budget, 0),
            Popped::NeedsCascade => {
                assert!(
                    first.is_none_or(|(deadline, _)| deadline > self.now),
                    "sorts before an expired entry is popped"
                );
                assert!(self.late.is_empty(), "a late entry is forgotten");
                let left = *budget;
                self.wheel.cascade(&mut self.numbers, budget);
                assert!(*budget < left, "no progress");
            }
            Popped::Until(at) => {
                let (deadline, _) = first.expect("there is an entry");
                assert!(self.late.is_empty(), "a late entry is forgotten");
                assert!(self.now < at && at <= deadline, "now {}, wakes at {at}, too late for {deadline}", self.now);
                assert!(self.removed || at == deadline, "wakes at {at}, too early for {deadline}");
            }
            Popped::Empty => assert_eq!((first, self.late.len()), (None, 0), "an entry is forgotten"),
        }
        self.removed &= !self.map.is_empty();
        next
    }

    /// Pops all that has expired, and returns the time of the next wake-up.
    fn pop_all(&mut self, budget: usize) -> Option<u64> {
        let mut left = budget;
        // An entry moves down the levels, one at a time, and is popped.
        let mut calls = WAKES * (self.map.len() + self.late.len() + 1);
        loop {
            match self.pop(&mut left) {
                Popped::Until(at) => return Some(at),
                Popped::Empty => return None,
                Popped::Expired(_) => {}
                Popped::BudgetSpent | Popped::NeedsCascade => left = budget,
            }
            calls = calls.checked_sub(1).expect("makes progress");
        }
    }

    /// Advances the clock to each wake-up, until no entry is left.
    fn finish(mut self) {
        let mut wakes = WAKES * (self.map.len() + 1);
        while let Some(at) = self.pop_all(64) {
            self.now = at;
            wakes = wakes.checked_sub(1).expect("few wake-ups");
        }
        assert!(self.map.is_empty() && self.late.is_empty());
        assert_eq!(self.numbers.free.len(), self.numbers.tickets.len());
    }
}

/// A hundred thousand entries are in one slot, and time enters it. Returns the moves before the expired entry is popped.
pub(crate) fn moves_before_the_expired_entry() -> usize {
    const SECOND: u64 = 1_000_000_000;
    let edge = 1 << 42;
    let (mut wheel, mut numbers) = (Wheel::new(edge - SECOND), Numbers::default());
    for n in 0..100_000_u64 {
        let number = numbers.take();
        wheel.insert(&mut numbers, number, edge + SECOND / 2 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (60 * SECOND));
    }
    let number = numbers.take();
    wheel.insert(&mut numbers, number, edge + 1);
    let before = numbers.accesses;
    while wheel.pop(&mut numbers, edge + 1, &mut 64) != Popped::Expired(number) {}
    numbers.accesses - before
}
