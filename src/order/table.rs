//! The groups by their hashes.
//!
//! ```text
//!   bucket   0       1       2   …   len - 1          a bucket: the first group of a chain through `Known::next`
//!            │               │
//!            ▼               ▼                        a hash is at its lower bits: as many as cover `len`, or one less if that
//!          group ─ group   group                      bucket is not there yet
//! ```
//!
//! Linear hashing (Litwin, 1980): a new group splits at most one bucket, and a group that goes merges at most four. So nothing is moved at
//! once, and the memory of the buckets follows the number of groups.

use super::known::Known;
use super::lanes::{Lane, Lanes};
use super::{Bin, Garbage, Group, NONE, visit};

pub(super) type Segment = Box<[u32; SEGMENT]>;

const SEGMENT: usize = 1024;
/// There are no fewer buckets.
const FEWEST: usize = 64;

pub(super) struct Table {
    segments: Vec<Segment>,
    /// The number of buckets.
    len: usize,
    /// The power of two from there on, less one.
    mask: usize,
    groups: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { segments: vec![Box::new([NONE; SEGMENT])], len: FEWEST, mask: FEWEST - 1, groups: 0 }
    }

    /// The number of groups.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    #[inline]
    fn bucket_of(&self, hash: u64) -> usize {
        let bucket = hash as usize & self.mask;
        if bucket < self.len { bucket } else { bucket & self.mask >> 1 }
    }

    #[inline]
    fn bucket(&mut self, bucket: usize) -> &mut u32 {
        &mut self.segments[bucket / SEGMENT][bucket % SEGMENT]
    }

    /// The number of a group, which is made if it is not known.
    #[inline]
    pub(super) fn find_or_make<T>(&mut self, group: Group, lanes: &mut Lanes<T>) -> u32 {
        let bucket = self.bucket_of(group.hash);
        let first = *self.bucket(bucket);
        let mut number = first;
        while number != NONE {
            visit();
            let known = &lanes[number].known;
            if known.hash == group.hash {
                return number;
            }
            number = known.next;
        }
        let number = lanes.lend();
        lanes[number] = Lane::new(number, 0, NONE, Known { hash: group.hash, next: first, ..Known::default() });
        *self.bucket(bucket) = number;
        self.groups += 1;
        if 2 * self.groups > self.len {
            self.split(lanes);
        }
        number
    }

    /// A group is not known any more.
    pub(super) fn remove<T>(&mut self, number: u32, lanes: &mut Lanes<T>, bin: &mut Bin<T>) {
        let Known { hash, next, .. } = lanes[number].known;
        let bucket = self.bucket_of(hash);
        match *self.bucket(bucket) {
            first if first == number => *self.bucket(bucket) = next,
            mut before => {
                while lanes[before].known.next != number {
                    before = lanes[before].known.next;
                }
                lanes[before].known.next = next;
            }
        }
        lanes.give_back(number);
        self.groups -= 1;
        for _ in 0..4 {
            if self.len > FEWEST && self.len > 4 * self.groups {
                self.merge(lanes);
            }
        }
        // One more than needed is kept.
        if self.segments.len() > self.len / SEGMENT + 2 {
            bin.extend(self.segments.pop().map(Garbage::Segment));
        }
    }

    /// One bucket more, with some groups of another one.
    fn split<T>(&mut self, lanes: &mut Lanes<T>) {
        let new = self.len;
        if new == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([NONE; SEGMENT]));
        }
        *self.bucket(new) = NONE;
        self.set_len(new + 1);
        self.relink(new - (1 << new.ilog2()), lanes);
    }

    /// One bucket less: its groups go to another one.
    fn merge<T>(&mut self, lanes: &mut Lanes<T>) {
        self.set_len(self.len - 1);
        self.relink(self.len, lanes);
    }

    fn set_len(&mut self, len: usize) {
        (self.len, self.mask) = (len, len.next_power_of_two() - 1);
    }

    /// Puts each group of a chain where it belongs.
    fn relink<T>(&mut self, bucket: usize, lanes: &mut Lanes<T>) {
        let mut number = std::mem::replace(self.bucket(bucket), NONE);
        while number != NONE {
            visit();
            let known = &mut lanes[number].known;
            let bucket = self.bucket_of(known.hash);
            let next = std::mem::replace(&mut known.next, std::mem::replace(self.bucket(bucket), number));
            number = next;
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.segments.len() * size_of::<[u32; SEGMENT]>() + self.segments.capacity() * 8
    }

    /// Gives back what is kept for groups to come.
    pub(super) fn shrink<T>(&mut self, bin: &mut Bin<T>) {
        bin.extend(self.segments.drain(self.len.div_ceil(SEGMENT)..).map(Garbage::Segment));
    }
}
