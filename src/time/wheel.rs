//! A hierarchical timing wheel: numbers in, numbers out, no clock and no thread.
//!
//! ```text
//!   deadline, in base 64 (a digit is 6 bits):   … d4 d3 d2 d1 d0
//!   elapsed:                                    … d4 d3 e2 e1 e0
//!                                                       │
//!          the highest digit that differs ──────────────┘   says the level, its value d2 says the slot
//!
//!   level 10   ░░░░░░░░░░░░░░░░           every u64: 10 levels of 64 slots, and one of 16
//!      …
//!   level 2    ░░░░░▓░░▓░░░ … ░           a slot: 4096 ticks
//!   level 1    ░░▓▓░░░░░░░░ … ░           a slot: 64 ticks
//!   level 0    ░░░░░░▓░░░▓▓ … ░           a slot: 1 tick      (▓: has nodes, and a bit says so)
//! ```
//!
//! The wheel is Varghese and Lauck's (SOSP 1987, scheme 7), with the levels chosen as the Linux and tokio timers do, by the
//! highest digit that differs. A tick is a nanosecond, so a slot of level 0 holds equal deadlines only; all that precision costs
//! is that there are more levels, and a node rarely sees more than three of them, because a slot is opened only when something
//! in it is due, and what is not due then goes where it belongs *as seen from now*.
//!
//! Nodes are not stored here: they are linked lists of numbers, and [`Nodes`] finds the node of a number. A number is linked at
//! most once, at most 2^31 of them. What holds, by number:
//!
//! * **T1** Every linked node is in the slot that its deadline and `elapsed` choose, or in one of the two lists beside the
//!   slots: `DUE` (come due, in order) and `OPENING` (taken from one slot, to be put into finer ones).
//! * **T2** So all nodes of a level come before those of higher levels, and all of a slot before those of later slots: the
//!   earliest node is in the first slot that is not empty, and bit scans find that slot.
//! * **T3** `earliest` of a slot is not later than any deadline in it. (It is too early after its earliest node was removed.)
//! * **T4** Lists are first in, first out, also when a slot is opened: equal deadlines come out in the order of their inserts.
//!   Therefore a node whose deadline is in the slot that is being opened goes to the end of `OPENING`, not past it.
//! * **T5** `elapsed` never goes back, and never enters a slot that has nodes without opening it.
//!
//! Work is bounded: [`pop`](Wheel::pop) takes a budget, and opening a slot of a million nodes is a million small steps that can be
//! interrupted after each.

/// No wheel needs more: 11 digits of 6 bits are 66.
const LEVELS: usize = 11;
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;

/// A slot with up to so many nodes is not split further: what is due is sorted, the rest put where it belongs.
const FEW: usize = 64;

/// Numbers from here on are heads of lists, not nodes.
const HEAD: u32 = 1 << 31;
/// Come due, in order, not popped yet.
const DUE: u32 = HEAD | (LEVELS * SLOTS) as u32;
/// Taken from a slot, to be put into finer ones.
const OPENING: u32 = DUE + 1;

/// What the wheel needs to know of an entry: its deadline, and its neighbours in a circular list (a head or a node).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Node {
    pub(crate) deadline: u64,
    next: u32,
    prev: u32,
}

/// Where the nodes are.
pub(crate) trait Nodes {
    /// The node of this number.
    fn node(&mut self, number: u32) -> &mut Node;
}

#[derive(Debug, Clone, Copy)]
struct Head {
    next: u32,
    prev: u32,
    /// T3. Not used by the two lists beside the slots.
    earliest: u64,
}

/// What [`Wheel::pop`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// This node is due; it is not linked any more.
    Due(u32),
    /// The budget is used up: call again.
    More,
    /// Nothing is due before this, and most probably something then.
    At(u64),
    /// Nothing is linked.
    Never,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// T5. No node's deadline was before this when it was put in its slot.
    elapsed: u64,
    /// Which slots have nodes, a bit each.
    occupied: [u64; LEVELS],
    /// The last tick of the slot that is being opened.
    opening_end: u64,
    heads: [Head; LEVELS * SLOTS + 2],
}

impl Wheel {
    /// An empty wheel. Time begins at `now`.
    pub(crate) fn new(now: u64) -> Self {
        let head = |at: usize| Head { next: HEAD | at as u32, prev: HEAD | at as u32, earliest: u64::MAX };
        Self { elapsed: now, occupied: [0; LEVELS], opening_end: 0, heads: std::array::from_fn(head) }
    }

    /// Links a node, by its deadline. One in the past comes next, in the order of such inserts.
    #[inline]
    pub(crate) fn insert(&mut self, nodes: &mut impl Nodes, number: u32) {
        debug_assert!(number < HEAD);
        let deadline = nodes.node(number).deadline;
        if deadline <= self.opening_end && !self.is_empty(OPENING) {
            self.push(nodes, OPENING, number); // T4
        } else {
            self.place(nodes, number, deadline);
        }
    }

    /// Unlinks a node that is linked.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut impl Nodes, number: u32) {
        let Node { next, prev, .. } = *nodes.node(number);
        self.join(nodes, prev, next);
        if next == prev && next & HEAD != 0 {
            self.emptied((next - HEAD) as usize);
        }
    }

    /// Unlinks the next node that is due by `now`, which must not go back; or says when to come again. A unit of the budget is a node that
    /// is popped or put elsewhere; with a few dozen units there is always progress.
    pub(crate) fn pop(&mut self, nodes: &mut impl Nodes, now: u64, budget: &mut usize) -> Next {
        loop {
            if *budget == 0 {
                return Next::More;
            }
            if let Some(number) = self.front(DUE) {
                *budget -= 1;
                self.remove(nodes, number);
                return Next::Due(number);
            }
            if let Some(number) = self.front(OPENING) {
                *budget -= 1;
                self.remove(nodes, number);
                let deadline = nodes.node(number).deadline;
                self.place(nodes, number, deadline);
                continue;
            }
            let Some((level, slot)) = self.first() else {
                self.elapsed = self.elapsed.max(now);
                return Next::Never;
            };
            let (start, end) = self.range(level, slot);
            let earliest = self.heads[level * SLOTS + slot].earliest;
            if earliest > now {
                if start > now {
                    self.elapsed = self.elapsed.max(now); // T5: still before the first slot that has nodes
                }
                return Next::At(earliest);
            }
            self.open(nodes, level * SLOTS + slot, start, end, now, budget);
        }
    }

    /// Unlinks any one node, of those with equal deadlines the first; time does not move.
    pub(crate) fn pop_any(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        let slot = || self.first().map(|(level, slot)| HEAD | (level * SLOTS + slot) as u32);
        let number = self.front(DUE).or_else(|| self.front(OPENING)).or_else(|| self.front(slot()?))?;
        self.remove(nodes, number);
        Some(number)
    }

    /// The slot of the earliest nodes (T2).
    #[inline]
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first and the last tick of a slot.
    fn range(&self, level: usize, slot: usize) -> (u64, u64) {
        let low = DIGIT * level as u32;
        // The digits above the slot's are those of `elapsed`; level 10 has none above.
        let above = self.elapsed.checked_shr(low + DIGIT).unwrap_or(0).checked_shl(low + DIGIT).unwrap_or(0);
        let start = above | (slot as u64) << low;
        (start, start | ((1 << low) - 1))
    }

    /// Opens the first slot, in which something may be due.
    fn open(&mut self, nodes: &mut impl Nodes, at: usize, start: u64, end: u64, now: u64, budget: &mut usize) {
        if start == end {
            // Level 0: all have the same deadline, and it has come.
            self.elapsed = start.max(self.elapsed);
            self.splice(nodes, at, DUE);
            return;
        }
        let mut few = [(0, 0); FEW];
        let mut count = 0;
        let mut number = self.heads[at].next;
        while number & HEAD == 0 && count < FEW {
            let node = nodes.node(number);
            few[count] = (node.deadline, number);
            (number, count) = (node.next, count + 1);
        }
        if number & HEAD == 0 {
            // Many: one level down with all of them, step by step.
            self.elapsed = start;
            self.opening_end = end;
            self.splice(nodes, at, OPENING);
            return;
        }
        self.heads[at].next = HEAD | at as u32;
        self.heads[at].prev = HEAD | at as u32;
        self.emptied(at);
        self.elapsed = now.min(end);
        let few = &mut few[..count];
        few.sort_by_key(|&(deadline, _)| deadline); // stable (T4)
        for &(deadline, number) in &*few {
            if deadline <= now {
                self.push(nodes, DUE, number);
            } else {
                self.place(nodes, number, deadline);
            }
        }
        *budget = budget.saturating_sub(count);
    }

    /// Puts a node in its slot (T1).
    #[inline]
    fn place(&mut self, nodes: &mut impl Nodes, number: u32, deadline: u64) {
        let tick = deadline.max(self.elapsed);
        let level = ((tick ^ self.elapsed) | 1).ilog2() / DIGIT;
        let slot = (tick >> (level * DIGIT)) as usize % SLOTS;
        let at = level as usize * SLOTS + slot;
        self.occupied[level as usize] |= 1 << slot;
        self.heads[at].earliest = self.heads[at].earliest.min(deadline);
        self.push(nodes, HEAD | at as u32, number);
    }

    #[inline]
    fn is_empty(&self, head: u32) -> bool {
        self.heads[(head - HEAD) as usize].next == head
    }

    #[inline]
    fn front(&self, head: u32) -> Option<u32> {
        Some(self.heads[(head - HEAD) as usize].next).filter(|&next| next & HEAD == 0)
    }

    /// To the end of a list.
    #[inline]
    fn push(&mut self, nodes: &mut impl Nodes, head: u32, number: u32) {
        let last = self.heads[(head - HEAD) as usize].prev;
        self.join(nodes, last, number);
        self.join(nodes, number, head);
    }

    /// Moves the list of a slot to the end of another.
    fn splice(&mut self, nodes: &mut impl Nodes, at: usize, to: u32) {
        let Head { next, prev, .. } = self.heads[at];
        self.heads[at].next = HEAD | at as u32;
        self.heads[at].prev = HEAD | at as u32;
        self.emptied(at);
        let last = self.heads[(to - HEAD) as usize].prev;
        self.join(nodes, last, next);
        self.join(nodes, prev, to);
    }

    /// Makes two neighbours of heads or nodes.
    #[inline]
    fn join(&mut self, nodes: &mut impl Nodes, a: u32, b: u32) {
        match a & HEAD {
            0 => nodes.node(a).next = b,
            _ => self.heads[(a - HEAD) as usize].next = b,
        }
        match b & HEAD {
            0 => nodes.node(b).prev = a,
            _ => self.heads[(b - HEAD) as usize].prev = a,
        }
    }

    /// Notes that a list has no nodes left.
    #[inline]
    fn emptied(&mut self, at: usize) {
        if let Some(slots) = self.occupied.get_mut(at / SLOTS) {
            *slots &= !(1 << (at % SLOTS));
            self.heads[at].earliest = u64::MAX;
        }
    }
}
