//! The order by priority, and within a level by groups that take turns.
//!
//! ```text
//!   level 228 (HIGH)     ring:  lane ⇄ lane                    a lane: the queued keys of one group in one level,
//!   level 128 (NORMAL)   ring:  lane ⇄ lane ⇄ lane             first in, first out
//!                                │
//!                                ▼
//!                               key ⇄ key ⇄ key                lists through the nodes, by slot number
//! ```
//!
//! [`Levels`] says which level has its turn (P19); the first lane of its ring gives up to `weight` keys, and then goes to the end (deficit
//! round robin with a cost of 1, after Shreedhar and Varghese, 1995: P20). A lane without keys leaves the ring and keeps no credit. Without
//! groups each level has one lane. Each step is O(1): a key is linked to its neighbours, so it is also removed, or moved to
//! another level, without a search.
//!
//! With a limit, a group with that many processing keys is *full*: its lanes are in no ring, until one of these keys is done.

use super::NIL;
use super::fair::{self, Groups};
use super::priority::{Levels, index_of, priority_of};
use crate::key::{Segmented, SideArray};
use crate::prefetch::prefetch;

/// Queued entries by the number of their slot.
pub(crate) struct Ordered<T> {
    nodes: SideArray<Node<T>>,
    lanes: Segmented<Lane>,
    free_lanes: Vec<u32>,
    end_of_lanes: u32,
    /// For each level, the lane whose turn it is, or [`NIL`].
    rings: Box<[u32; 256]>,
    /// For each level, the number of queued entries.
    lens: Box<[u32; 256]>,
    levels: Levels,
    /// `None`: without groups.
    groups: Option<Groups>,
    /// Keys of a group that may be processing.
    limit: u32,
    len: usize,
    /// Queued entries of full groups.
    blocked: usize,
    pushes: u64,
    stamp: Option<fn() -> u64>,
    /// When the last group of pushes began.
    last_stamp: u64,
    /// With groups: when the last group of pops began, or the first entry came.
    turn_stamp: u64,
    pops: u64,
}

/// What the order needs to know of a key, queued or not. It lives as long as the key is in the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyOrder {
    pub(crate) group: Group,
    /// While the key is processing: the priority with which it was handed out.
    pub(crate) held: i8,
    /// While it is processing and dirty: the highest priority of the adds meanwhile.
    pub(crate) pending: i8,
    /// While it is delayed: the priority that it will have.
    pub(crate) delayed: i8,
}

/// A key's group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// The hash of what the user's function has returned.
    pub(crate) hash: u32,
    /// Keys in a turn, if this is the key with which the group begins to exist.
    pub(crate) weight: u16,
}

/// What is kept for a slot.
pub(crate) struct Node<T> {
    key: KeyOrder,
    /// A number for each push, which tells it from a later push of the same slot.
    push: u64,
    /// If the key is queued: its place in its lane.
    entry: Option<T>,
    /// Unless it is the first of its lane.
    prev: u32,
    next: u32,
    lane: u32,
    /// A time before its push.
    stamp: u64,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { key: KeyOrder::default(), push: 0, entry: None, prev: NIL, next: NIL, lane: NIL, stamp: 0 }
    }
}

/// Of this number of pushes in a row, one reads the time.
const STAMPED: u64 = 64;
/// The same, of pops, with groups.
const STAMPED_POPS: u64 = 16;
/// The number of the first push: higher than the positions in a line, from which entries may come.
const PUSHES: u64 = 1 << 63;

/// Memory that was for many groups. It is freed after the lock.
#[expect(dead_code, reason = "it is kept to be dropped")]
pub(crate) struct Garbage(Segmented<Lane>, Vec<u32>, Option<fair::Garbage>);

/// The queued entries of one group in one level. With groups never empty. 32 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    head: u32,
    tail: u32,
    len: u32,
    /// Its neighbours in the ring of its level, unless the group is full.
    prev: u32,
    next: u32,
    /// The next lane of the same group.
    sibling: u32,
    /// The number of its group.
    group: u32,
    /// Keys that it may still give in this turn.
    credit: u16,
    level: u8,
}

impl<T> Ordered<T> {
    /// `slots`: the number of slots in a chunk. `limit`: of processing keys of a group. `stamp`: reads a time, if the queue has several
    /// shards.
    pub(crate) fn new(slots: usize, strict: bool, fair: bool, limit: Option<u32>, stamp: Option<fn() -> u64>) -> Self {
        Self {
            nodes: SideArray::new(slots),
            lanes: Segmented::new(),
            free_lanes: Vec::new(),
            end_of_lanes: 0,
            rings: Box::new([NIL; 256]),
            lens: Box::new([0; 256]),
            levels: Levels::new(strict),
            groups: fair.then(Groups::new),
            limit: limit.unwrap_or(u32::MAX),
            len: 0,
            blocked: 0,
            pushes: PUSHES,
            stamp,
            last_stamp: 0,
            turn_stamp: 0,
            pops: 0,
        }
    }

    /// What the order knows of the key in this slot.
    #[inline]
    pub(crate) fn key(&mut self, number: u32) -> &mut KeyOrder {
        self.nodes.make(number);
        &mut self.nodes[number].key
    }

    /// The same, to read it.
    #[inline]
    pub(crate) fn known(&self, number: u32) -> KeyOrder {
        self.nodes.get(number).map_or_else(KeyOrder::default, |node| node.key)
    }

    /// A key is put into this slot. The other numbers may belong to an earlier key: a pop sets `held`, the first add while the key is
    /// processing `pending`, and the call that makes it delayed `delayed`, each before it is read.
    #[inline]
    pub(crate) fn begin(&mut self, number: u32, group: Group) {
        if self.groups.is_some() {
            self.key(number).group = group;
        }
    }

    /// The queued entry of this slot, with the number of its push.
    pub(crate) fn get(&self, number: u32) -> Option<(&T, u64)> {
        let node = self.nodes.get(number)?;
        Some((node.entry.as_ref()?, node.push))
    }

    /// The priority of the queued entry of this slot.
    pub(crate) fn priority(&self, number: u32) -> Option<i8> {
        let node = self.nodes.get(number).filter(|node| node.entry.is_some())?;
        Some(priority_of(self.lanes[node.lane as usize].level))
    }

    /// A time before the push of the queued entry of this slot, in a queue with several shards.
    pub(crate) fn stamp_of(&self, number: u32) -> u64 {
        self.nodes.get(number).map_or(0, |node| node.stamp)
    }

    /// The priority of the entry whose turn is next, but for the turns of lower levels, and a time before its push.
    ///
    /// With groups: a time before the last few pops. So the shards take turns. By the age of its entry a shard whose next group has just got
    /// its keys would come after all shards in which an old group has many.
    ///
    /// `None`: no entry is ready, or the queue has one shard.
    #[inline]
    pub(crate) fn front(&self) -> Option<(i8, u64)> {
        self.stamp?;
        let level = self.levels.top()?;
        if self.groups.is_some() {
            return Some((priority_of(level), self.turn_stamp));
        }
        let lane = self.lanes[self.rings[usize::from(level)] as usize];
        Some((priority_of(level), self.nodes[lane.head].stamp))
    }

    /// The slots of some of the entries that have waited longest: the first of each level, and of some groups.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = u32> {
        let mut level = 256;
        let levels = std::iter::from_fn(move || {
            let next = self.levels.highest_below(level)?;
            level = next.into();
            Some(next)
        });
        levels.flat_map(move |level| {
            let first = self.rings[usize::from(level)];
            let mut lane = first;
            let mut lanes = 0;
            std::iter::from_fn(move || {
                if lanes == 64 || lanes > 0 && lane == first {
                    return None;
                }
                lanes += 1;
                let Lane { head, next, .. } = self.lanes[lane as usize];
                lane = next;
                Some(head)
            })
        })
    }

    /// Adds the number of queued entries of each level.
    pub(crate) fn add_levels(&self, levels: &mut [usize; 256]) {
        levels.iter_mut().zip(&*self.lens).for_each(|(sum, len)| *sum += *len as usize);
    }

    /// The number of hand-outs of this group since it has begun to have queued keys.
    pub(crate) fn handed_out(&mut self, hash: u32) -> u64 {
        let Some(groups) = &mut self.groups else { return 0 };
        groups.find(hash).map_or(0, |number| groups[number].handed_out())
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of entries that a pop may return.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.len - self.blocked
    }

    /// A group may have so many processing keys only: [`done`](Self::done) is called for each.
    #[inline]
    pub(crate) fn has_limit(&self) -> bool {
        self.limit < u32::MAX
    }

    #[inline]
    fn lane(&mut self, lane: u32) -> &mut Lane {
        self.lanes.get_mut(lane as usize).expect("a lane of this number exists")
    }

    /// Adds an entry behind all others of its priority and group.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, entry: T, priority: i8) {
        self.nodes.make(number);
        let group = match &mut self.groups {
            Some(groups) => groups.find_or_make(self.nodes[number].key.group),
            None => NIL,
        };
        let lane = self.lane_for(group, index_of(priority));
        self.link(number, entry, lane);
    }

    /// Adds an entry that comes from a line, where it had this position, and this time before its push. The position identifies this push.
    pub(crate) fn push_moved(&mut self, number: u32, entry: T, position: u64, stamp: Option<u64>) {
        self.push(number, entry, 0);
        let node = &mut self.nodes[number];
        (node.push, node.stamp) = (position, stamp.unwrap_or_default());
    }

    /// Puts an entry at the end of a lane.
    #[inline]
    fn link(&mut self, number: u32, entry: T, lane: u32) {
        if let Some(stamp) = self.stamp {
            // With the stamp of an earlier push the first entry of a level would come before older ones of other shards.
            let begins_level = self.groups.is_none() && self.lane(lane).tail == NIL;
            if begins_level || self.len == 0 || self.pushes % STAMPED == 0 {
                self.last_stamp = stamp();
                if self.len == 0 {
                    self.turn_stamp = self.last_stamp;
                }
            }
        }
        self.pushes += 1;
        let in_lane = self.lane(lane);
        in_lane.len += 1;
        let (level, group) = (in_lane.level, in_lane.group);
        let tail = std::mem::replace(&mut in_lane.tail, number);
        match tail {
            NIL => {
                in_lane.head = number;
                if self.groups.is_none() {
                    self.levels.set(level, true);
                }
            }
            tail => self.nodes[tail].next = number,
        }
        let node = &mut self.nodes[number];
        (node.push, node.entry, node.stamp) = (self.pushes, Some(entry), self.last_stamp);
        (node.prev, node.next, node.lane) = (tail, NIL, lane);
        self.len += 1;
        self.lens[usize::from(level)] += 1;
        self.blocked += usize::from(self.is_full(group));
    }

    /// Takes the next entry, and says its priority. With a limit, it counts as processing until [`done`](Self::done).
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(T, i8)> {
        let level = self.levels.choose()?;
        let lane = self.rings[usize::from(level)];
        let in_lane = self.lane(lane);
        let (number, group) = (in_lane.head, in_lane.group);
        if group != NIL {
            in_lane.credit -= 1;
            if in_lane.credit == 0 {
                let weight = self.weight(group);
                let in_lane = self.lane(lane);
                in_lane.credit = weight;
                self.rings[usize::from(level)] = in_lane.next;
            }
            self.pops += 1;
            if let (Some(stamp), 0) = (self.stamp, self.pops % STAMPED_POPS) {
                self.turn_stamp = stamp();
            }
            let limit = self.limit;
            let of = self.group(group);
            of.note_hand_out();
            if limit < u32::MAX {
                // Before the entry leaves its lane: so the group goes on to exist. If it is full now, `blocked` counts the entry too,
                // and `unlink` takes it off.
                of.processing += 1;
                if of.processing == limit {
                    self.each_lane(group, Self::leave_ring);
                }
            }
        }
        self.nodes[number].key.held = priority_of(level);
        self.unlink(number).map(|entry| (entry, priority_of(level)))
    }

    /// An entry that a pop may take soon. Prefetches what the pop after it will read.
    #[inline]
    pub(crate) fn upcoming(&self) -> Option<&T> {
        let lane = self.rings[usize::from(self.levels.top()?)];
        let next = &self.nodes[self.lanes[lane as usize].head];
        self.nodes.get(next.next).into_iter().for_each(prefetch);
        next.entry.as_ref()
    }

    /// Takes out the entry of this slot.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.nodes.get(number)?.entry.as_ref()?;
        self.unlink(number)
    }

    /// The entry of this slot gets a higher priority, and goes to the end of its new level. A lower one changes nothing. Returns whether it
    /// was moved.
    pub(crate) fn raise(&mut self, number: u32, priority: i8) -> bool {
        let Some(Node { entry: Some(_), lane, .. }) = self.nodes.get(number) else { return false };
        let Lane { level, group, .. } = self.lanes[*lane as usize];
        if index_of(priority) <= level {
            return false;
        }
        // The new lane first: so the group does not lose its last lane in between.
        let lane = self.lane_for(group, index_of(priority));
        let entry = self.unlink(number);
        entry.into_iter().for_each(|entry| self.link(number, entry, lane));
        true
    }

    /// A key of this group is no longer processing, in a queue with a limit. Returns whether the group has queued keys: one more is ready.
    pub(crate) fn done(&mut self, hash: u32) -> bool {
        let groups = self.groups.as_mut().expect("a limit needs groups");
        let number = groups.find(hash).expect("the group has a processing key");
        let was_full = self.is_full(number);
        let group = self.group(number);
        group.processing -= 1;
        let has_lanes = group.lanes != NIL;
        if was_full {
            self.each_lane(number, Self::join_ring);
        }
        self.groups.as_mut().into_iter().for_each(|groups| groups.remove_if_unused(number, hash));
        has_lanes
    }

    #[inline]
    fn group(&mut self, number: u32) -> &mut fair::Group {
        &mut self.groups.as_mut().expect("only called with groups")[number]
    }

    fn weight(&self, group: u32) -> u16 {
        self.groups.as_ref().map_or(u16::MAX, |groups| groups[group].weight())
    }

    #[inline]
    fn is_full(&self, group: u32) -> bool {
        self.has_limit() && self.groups.as_ref().is_some_and(|groups| groups[group].processing >= self.limit)
    }

    /// The lane of a group in a level, which is made if there is none.
    #[inline]
    fn lane_for(&mut self, group: u32, level: u8) -> u32 {
        self.find_lane(group, level).unwrap_or_else(|| self.make_lane(group, level))
    }

    /// The lane of a group in a level, if it has one.
    #[inline]
    fn find_lane(&self, group: u32, level: u8) -> Option<u32> {
        let Some(groups) = &self.groups else {
            let lane = self.rings[usize::from(level)];
            return (lane != NIL).then_some(lane);
        };
        let mut lane = groups[group].lanes;
        while lane != NIL && self.lanes[lane as usize].level != level {
            lane = self.lanes[lane as usize].sibling;
        }
        (lane != NIL).then_some(lane)
    }

    /// A lane without entries, at the end of its ring unless the group is full.
    #[inline(never)]
    fn make_lane(&mut self, group: u32, level: u8) -> u32 {
        let lane = self.free_lanes.pop().unwrap_or(self.end_of_lanes);
        self.end_of_lanes = self.end_of_lanes.max(lane + 1);
        let sibling = if self.groups.is_some() { std::mem::replace(&mut self.group(group).lanes, lane) } else { NIL };
        *self.lanes.get_or_make(lane as usize) =
            Lane { head: NIL, tail: NIL, len: 0, prev: lane, next: lane, sibling, group, credit: 0, level };
        if !self.is_full(group) {
            self.enter_ring(lane);
        }
        lane
    }

    /// Takes the entry out of its lane, which must be in its ring exactly if its group is not full.
    // The first entry's `prev` is out of date, so that a pop does not write to the next node.
    #[inline]
    fn unlink(&mut self, number: u32) -> Option<T> {
        let node = &mut self.nodes[number];
        let (entry, prev, next, lane) = (node.entry.take(), node.prev, node.next, node.lane);
        let hash = node.key.group.hash;
        let in_lane = self.lanes.get_mut(lane as usize)?;
        in_lane.len -= 1;
        let (group, level) = (in_lane.group, in_lane.level);
        if in_lane.head == number {
            in_lane.head = next;
            if next == NIL {
                in_lane.tail = NIL;
            }
        } else {
            self.nodes[prev].next = next;
            match next {
                NIL => in_lane.tail = prev,
                next => self.nodes[next].prev = prev,
            }
        }
        let (is_empty, is_full) = (in_lane.len == 0, self.is_full(group));
        self.len -= 1;
        self.lens[usize::from(level)] -= 1;
        self.blocked -= usize::from(is_full);
        match is_empty {
            // Without groups the lane stays, for the next entry of its level.
            true if self.groups.is_none() => self.levels.set(level, false),
            true => self.end_lane(lane, hash, is_full),
            false => {}
        }
        entry
    }

    /// A lane has no more entries, in a queue with groups.
    #[inline(never)]
    fn end_lane(&mut self, lane: u32, hash: u32, is_full: bool) {
        let Lane { group, sibling, .. } = *self.lane(lane);
        if !is_full {
            self.exit_ring(lane);
        }
        self.free_lanes.push(lane);
        if self.group(group).lanes == lane {
            self.group(group).lanes = sibling;
        } else {
            let mut before = self.group(group).lanes;
            while self.lane(before).sibling != lane {
                before = self.lane(before).sibling;
            }
            self.lane(before).sibling = sibling;
        }
        self.groups.as_mut().into_iter().for_each(|groups| groups.remove_if_unused(group, hash));
    }

    /// Puts a lane at the end of the ring of its level: it has its turn after all others.
    fn enter_ring(&mut self, lane: u32) {
        let Lane { level, group, .. } = *self.lane(lane);
        let weight = self.weight(group);
        self.lane(lane).credit = weight;
        let first = self.rings[usize::from(level)];
        if first == NIL {
            self.levels.set(level, true);
            self.rings[usize::from(level)] = lane;
            (self.lane(lane).prev, self.lane(lane).next) = (lane, lane);
        } else {
            let last = std::mem::replace(&mut self.lane(first).prev, lane);
            self.lane(last).next = lane;
            (self.lane(lane).prev, self.lane(lane).next) = (last, first);
        }
    }

    fn exit_ring(&mut self, lane: u32) {
        let Lane { level, prev, next, .. } = *self.lane(lane);
        if next == lane {
            self.levels.set(level, false);
            self.rings[usize::from(level)] = NIL;
            return;
        }
        self.lane(prev).next = next;
        self.lane(next).prev = prev;
        if self.rings[usize::from(level)] == lane {
            self.rings[usize::from(level)] = next;
        }
    }

    /// The group of this lane is full now.
    fn leave_ring(&mut self, lane: u32) {
        self.exit_ring(lane);
        self.blocked += self.lane(lane).len as usize;
    }

    /// The group of this lane is not full any more.
    fn join_ring(&mut self, lane: u32) {
        self.enter_ring(lane);
        self.blocked -= self.lane(lane).len as usize;
    }

    /// There is memory to be freed.
    pub(crate) fn has_retired(&self) -> bool {
        self.has_retired_lanes() || self.groups.as_ref().is_some_and(Groups::has_retired)
    }

    fn has_retired_lanes(&self) -> bool {
        self.end_of_lanes > 64 && self.free_lanes.len() == self.end_of_lanes as usize
    }

    /// Takes the memory for lanes and groups that are no longer there, for the caller to free after the lock.
    pub(crate) fn take_retired(&mut self) -> Garbage {
        let groups = self.groups.as_mut().filter(|groups| groups.has_retired()).map(Groups::take_retired);
        if !self.has_retired_lanes() {
            return Garbage(Segmented::new(), Vec::new(), groups);
        }
        self.end_of_lanes = 0;
        Garbage(std::mem::replace(&mut self.lanes, Segmented::new()), std::mem::take(&mut self.free_lanes), groups)
    }

    /// Takes what was kept for the slots of a chunk that was freed.
    pub(crate) fn take_chunk(&mut self, chunk: usize) -> Box<[Node<T>]> {
        self.nodes.take_chunk(chunk)
    }

    /// `chunks`: the number of chunks that are left.
    pub(crate) fn truncate(&mut self, chunks: usize) {
        self.nodes.truncate(chunks);
    }

    /// Gives spare capacity back.
    pub(crate) fn shrink(&mut self) {
        self.nodes.shrink();
        self.lanes.shrink_to_fit();
        self.free_lanes.shrink_to_fit();
        self.groups.iter_mut().for_each(Groups::shrink);
    }

    fn each_lane(&mut self, group: u32, mut step: impl FnMut(&mut Self, u32)) {
        let mut lane = self.group(group).lanes;
        while lane != NIL {
            let sibling = self.lane(lane).sibling;
            step(self, lane);
            lane = sibling;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The order is compared with plain lists in `tests/against_reference.rs`. Here: when all keys are gone, so are lanes and groups.
    #[test]
    fn no_lane_and_no_group_is_left() {
        let mut random = fastrand::Rng::with_seed(11);
        for (fair, limit) in [(false, None), (true, None), (true, Some(2))] {
            let mut ordered = Ordered::new(64, false, fair, limit, None);
            let (mut queued, mut held) = ([false; 200], Vec::new());
            let group_of = |number: u32| number % 50;
            for n in 0..20_000_u32 {
                let number = random.u32(0..200);
                let is_free = !queued[number as usize] && !held.contains(&number);
                match random.u32(0..8) {
                    choice if is_free && choice < [6, 3][n as usize / 2000 % 2] => {
                        ordered.begin(number, Group { hash: group_of(number), weight: 1 + number as u16 % 3 });
                        ordered.push(number, number, random.i8(-1..2));
                        queued[number as usize] = true;
                    }
                    6 => queued[number as usize] &= ordered.remove(number).is_none(),
                    7 => _ = ordered.raise(number, random.i8(-1..2)),
                    _ if held.len() < 40 => {
                        if let Some((number, _)) = ordered.pop() {
                            queued[number as usize] = false;
                            held.push(number);
                        }
                    }
                    _ => {
                        let number = held.swap_remove(0);
                        if limit.is_some() {
                            ordered.done(group_of(number));
                        }
                    }
                }
            }
            while ordered.len() > 0 || !held.is_empty() {
                held.extend(ordered.pop().map(|(number, _)| number));
                let number = held.pop().expect("a full group has a held key");
                if limit.is_some() {
                    ordered.done(group_of(number));
                }
            }
            assert_eq!(ordered.groups.as_ref().map_or(0, Groups::len), 0, "no group is left");
            let kept = if fair { 0 } else { 3 };
            assert_eq!(
                ordered.end_of_lanes as usize - ordered.free_lanes.len(),
                kept,
                "one for each level, without groups"
            );
            assert_eq!((ordered.ready(), ordered.levels.top(), ordered.lens.iter().sum::<u32>()), (0, None, 0));
        }
    }

    /// A group that never runs dry has more than 2^32 hand-outs within days.
    #[test]
    fn hand_outs_of_a_group_do_not_wrap() {
        let mut ordered = Ordered::new(64, false, true, None, None);
        (0..3).for_each(|number| {
            ordered.begin(number, Group { hash: 0, weight: 1000 });
            ordered.push(number, (), 0);
        });
        ordered.group(0).note_hand_outs(u64::from(u32::MAX) - 1);
        (0..2).for_each(|_| _ = ordered.pop());
        assert_eq!((ordered.handed_out(0), ordered.weight(0)), (1 << 32, 1000));
    }

    /// The first entry of a level has a stamp of its own; of the others, one in [`STAMPED`] has.
    #[test]
    fn the_first_entry_of_a_level_is_stamped() {
        std::thread_local!(static TIME: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        let pass = || TIME.set(TIME.get() + 1);
        let mut ordered = Ordered::new(64, true, false, None, Some(|| TIME.get()));
        for number in 0..10 {
            pass();
            ordered.push(number, (), -100);
        }
        assert_eq!(ordered.front(), Some((-100, 1)));
        for number in [20, 21] {
            pass();
            ordered.push(number, (), 100);
            assert_eq!(ordered.front(), Some((100, TIME.get())));
            ordered.pop();
        }
        assert_eq!(ordered.front(), Some((-100, 1)));
    }
}
