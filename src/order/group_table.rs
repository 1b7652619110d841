//! The groups by their hashes, through [`Lane::next`], in buckets.
//!
//! This is linear hashing (Litwin, 1980): a hash is at its lower bits, as many as cover the number of buckets, or one less if that bucket
//! is not there yet. A new group splits at most one bucket, and one that goes merges at most four, so no call moves all.

use super::lanes::{Lane, Lanes};
use super::{Bin, Garbage, NONE, visit};

pub(super) type Segment = Box<[u32; SEGMENT]>;

const SEGMENT: usize = 1024;
/// The smallest number of buckets.
const FEWEST: usize = 64;

pub(super) struct GroupTable {
    segments: Vec<Segment>,
    /// The number of buckets.
    len: usize,
    pub(super) groups: usize,
}

impl GroupTable {
    pub(super) fn new() -> Self {
        Self { segments: vec![Box::new([NONE; SEGMENT])], len: FEWEST, groups: 0 }
    }

    /// The bucket of a hash.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        let mask = self.len.next_power_of_two() - 1;
        let bucket = hash as usize & mask;
        if bucket < self.len { bucket } else { bucket & mask >> 1 }
    }

    /// The first group of a bucket, or `NONE`.
    #[inline]
    fn first(&self, bucket: usize) -> u32 {
        self.segments[bucket / SEGMENT][bucket % SEGMENT]
    }

    #[inline]
    fn bucket(&mut self, hash: u64) -> &mut u32 {
        self.at(self.place(hash))
    }

    #[inline]
    fn at(&mut self, bucket: usize) -> &mut u32 {
        &mut self.segments[bucket / SEGMENT][bucket % SEGMENT]
    }

    /// The number of a group.
    #[inline]
    pub(super) fn find(&self, hash: u64, lanes: &Lanes) -> Option<u32> {
        let mut number = self.first(self.place(hash));
        while number != NONE {
            visit();
            let home = &lanes[number];
            if home.hash == hash {
                return Some(number);
            }
            number = home.next;
        }
        None
    }

    /// The groups of a bucket, or `None` after the last one.
    pub(super) fn of_bucket<'l>(&self, bucket: usize, lanes: &'l Lanes) -> Option<impl Iterator<Item = u32> + use<'l>> {
        let first = (bucket < self.len).then(|| self.first(bucket))?;
        let known = |number: u32| Some(number).filter(|number| *number != NONE);
        Some(std::iter::successors(known(first), move |number| known(lanes[*number].next)))
    }

    /// Makes a group that is not there yet.
    pub(super) fn make(&mut self, hash: u64, limits: u32, lanes: &mut Lanes) -> u32 {
        let number = lanes.lend();
        let next = std::mem::replace(self.bucket(hash), number);
        lanes[number] = Lane { hash, limits, ..Lane::new(next, 0, NONE) };
        self.groups += 1;
        if 2 * self.groups > self.len {
            self.split(lanes);
        }
        number
    }

    pub(super) fn remove<T>(&mut self, number: u32, lanes: &mut Lanes, bin: &mut Bin<T>) {
        let (hash, next) = (lanes[number].hash, lanes[number].next);
        let mut link = self.bucket(hash);
        while *link != number {
            let before = *link;
            link = &mut lanes[before].next;
        }
        *link = next;
        lanes.give_back(number);
        self.groups -= 1;
        for _ in 0..4 {
            if self.len > FEWEST && self.len > 4 * self.groups {
                self.len -= 1;
                self.relink(self.len, lanes);
            }
        }
        // One segment more than needed is kept, for groups to come.
        if self.segments.len() > self.len / SEGMENT + 2 {
            bin.add(self.segments.pop().map(Garbage::Segment));
        }
    }

    /// Adds a bucket, and moves groups there from the one that had them so far.
    fn split(&mut self, lanes: &mut Lanes) {
        let new = self.len;
        if new == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([NONE; SEGMENT]));
        }
        self.len += 1;
        self.relink(new - (1 << new.ilog2()), lanes);
    }

    /// Puts each group of the chain of a bucket where it belongs now.
    fn relink(&mut self, bucket: usize, lanes: &mut Lanes) {
        let mut number = std::mem::replace(self.at(bucket), NONE);
        while number != NONE {
            visit();
            let lane = &mut lanes[number];
            let first = std::mem::replace(self.bucket(lane.hash), number);
            number = std::mem::replace(&mut lane.next, first);
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.segments.len() * size_of::<[u32; SEGMENT]>() + self.segments.capacity() * 8
    }

    pub(super) fn shrink<T>(&mut self, bin: &mut Bin<T>) {
        self.segments.drain(self.len.div_ceil(SEGMENT)..).for_each(|segment| bin.push(Garbage::Segment(segment)));
    }
}
