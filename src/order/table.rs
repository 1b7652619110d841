//! The groups by their hashes.
//!
//! ```text
//!   bucket   0       1       2   …   len - 1          a bucket: the first group of a chain through `Known::next`
//!            │               │
//!            ▼               ▼                        a hash is at its lower bits: as many as cover `len`, or one less if that
//!          group ─ group   group                      bucket is not there yet
//! ```
//!
//! Linear hashing (Litwin, 1980): a new group splits at most one bucket, and a group that goes merges at most two. So nothing is moved at
//! once, and the memory of the buckets follows the number of groups.

use super::slab::Slab;
use super::{Bin, Group, NONE, visit};

/// A group, as long as a key of it is known, or it has a lane.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) hash: u64,
    /// Hand-outs since it is known, and from the bit `WEIGHT` on the keys in a turn: 54 bits do not wrap.
    turns: u64,
    /// The next in its bucket, or `NONE`.
    next: u32,
    /// The first of its lanes, or `NONE`.
    pub(super) lanes: u32,
    /// Keys that are known: queued, processing or delayed.
    pub(super) keys: u32,
    /// Counted with a limit only.
    pub(super) processing: u32,
    pub(super) queued: u32,
}

const WEIGHT: u32 = 54;

impl Default for Known {
    fn default() -> Self {
        Self { hash: 0, turns: 1 << WEIGHT, next: NONE, lanes: NONE, keys: 0, processing: 0, queued: 0 }
    }
}

impl Known {
    /// Keys in a turn.
    #[inline]
    pub(super) fn weight(&self) -> u16 {
        (self.turns >> WEIGHT) as u16
    }

    pub(super) fn handed_out(&self) -> u64 {
        self.turns & ((1 << WEIGHT) - 1)
    }

    #[inline]
    pub(super) fn note_hand_out(&mut self) {
        self.turns += 1;
    }
}

pub(super) type Segment = Box<[u32; SEGMENT]>;

const SEGMENT: usize = 1024;
/// There are no fewer buckets.
const FEWEST: usize = 64;

pub(super) struct Table {
    segments: Vec<Segment>,
    /// The number of buckets.
    len: usize,
    pub(super) groups: Slab<Known>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { segments: vec![Box::new([NONE; SEGMENT])], len: FEWEST, groups: Slab::default() }
    }

    #[inline]
    fn bucket_of(&self, hash: u64) -> usize {
        let mask = self.len.next_power_of_two() - 1;
        let bucket = hash as usize & mask;
        if bucket < self.len { bucket } else { bucket & mask >> 1 }
    }

    #[inline]
    fn bucket(&mut self, bucket: usize) -> &mut u32 {
        &mut self.segments[bucket / SEGMENT][bucket % SEGMENT]
    }

    /// The number of a group, which is made if it is not known.
    #[inline]
    pub(super) fn find_or_make(&mut self, group: Group) -> u32 {
        let bucket = self.bucket_of(group.hash);
        let mut number = *self.bucket(bucket);
        while number != NONE {
            visit();
            let known = &self.groups[number];
            if known.hash == group.hash {
                return number;
            }
            number = known.next;
        }
        self.make(group)
    }

    #[cold]
    fn make(&mut self, Group { hash, weight }: Group) -> u32 {
        debug_assert!(weight < 1 << (u64::BITS - WEIGHT), "a weight is 1000 at most");
        let turns = u64::from(weight.max(1)) << WEIGHT;
        let number = self.groups.insert(Known { hash, turns, ..Known::default() });
        self.link(number);
        if self.groups.len() > self.len {
            self.split();
        }
        number
    }

    /// A group is not known any more.
    pub(super) fn remove(&mut self, number: u32, bin: &mut Bin<impl Copy>) {
        let (hash, next) = (self.groups[number].hash, self.groups[number].next);
        let bucket = self.bucket_of(hash);
        match *self.bucket(bucket) {
            first if first == number => *self.bucket(bucket) = next,
            mut before => {
                while self.groups[before].next != number {
                    before = self.groups[before].next;
                }
                self.groups[before].next = next;
            }
        }
        bin.groups.extend(self.groups.remove(number).1);
        for _ in 0..2 {
            if self.len > FEWEST && self.len > 2 * self.groups.len() {
                self.merge();
            }
        }
        // One more than needed is kept.
        if self.segments.len() > self.len / SEGMENT + 2 {
            bin.segments.extend(self.segments.pop());
        }
    }

    fn link(&mut self, number: u32) {
        let bucket = self.bucket_of(self.groups[number].hash);
        self.groups[number].next = std::mem::replace(self.bucket(bucket), number);
    }

    /// One bucket more, with some groups of another one.
    fn split(&mut self) {
        let new = self.len;
        if new == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([NONE; SEGMENT]));
        }
        *self.bucket(new) = NONE;
        self.len += 1;
        self.relink(new - (1 << new.ilog2()));
    }

    /// One bucket less: its groups go to another one.
    fn merge(&mut self) {
        self.len -= 1;
        self.relink(self.len);
    }

    /// Puts each group of a chain where it belongs.
    fn relink(&mut self, bucket: usize) {
        let mut number = std::mem::replace(self.bucket(bucket), NONE);
        while number != NONE {
            visit();
            let next = self.groups[number].next;
            self.link(number);
            number = next;
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.groups.bytes() + self.segments.len() * size_of::<[u32; SEGMENT]>() + self.segments.capacity() * 8
    }

    /// Gives back what is kept for groups to come.
    pub(super) fn shrink(&mut self, bin: &mut Bin<impl Copy>) {
        bin.groups.extend(self.groups.take_spare());
        bin.segments.extend(self.segments.drain(self.len.div_ceil(SEGMENT)..));
    }
}
