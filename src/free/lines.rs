//! The order of the queued keys: one line, which is first in, first out, or several lines that the threads share out among them.
//!
//! ```text
//!   a thread pushes into its own line, and takes from it
//!          while no other line is far behind            ▶ front: the epoch of the last entry that was taken
//!        ┌──────────────────────────────────────────┐
//!   ◀────│ 7 7 7 8 8 9 9 9 9                        │◀──── pushes of threads 0, 4, 8 …
//!   ◀────│ 5 6 6 6 9                                │◀──── pushes of threads 1, 5, 9 …   the oldest front: getters go there
//!   ◀────│                                          │◀──── …
//!   ◀────│ 8 8 8 9                                  │◀──── …
//!        └──────────────────────────────────────────┘
//! ```
//!
//! Threads that push into and take from one line contend for the cache lines at its ends. With a line of its own, a thread seldom meets
//! others, but keys overtake each other. How far is bounded, because each entry carries the *epoch* of its push, a counter that each thread
//! raises once in [`EPOCH`] of its pushes.
//!
//! A getter that takes an entry of another epoch than the one before compares the fronts of all lines. It stays with its own line, or
//! else with the one that it has, unless that is empty or its front is more than [`AHEAD`] epochs newer than the oldest one; then it goes
//! to the line with the oldest front. A
//! queued key is therefore overtaken only by the later keys of `AHEAD + 1` epochs, by up to [`EPOCH`] keys of each adder, and by one key for
//! each line and getter (F12).

use super::line::{Entry, Line};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, model_const};
use crossbeam_utils::CachePadded;

/// The number of its own pushes after which a thread begins another epoch.
const EPOCH: u64 = model_const(64, 1) as u64;
/// A getter stays with its own line while its front is at most this number of epochs newer than the oldest one.
const AHEAD: u64 = model_const(8, 1) as u64;
/// Up to this number, dead entries are not swept.
const FEW: usize = model_const(1024, 1);

/// All lines of a queue: see the top of this file.
pub(super) struct Lines<K> {
    /// A power of two.
    lines: Box<[CachePadded<Line<K>>]>,
    epoch: CachePadded<AtomicU64>,
    /// The number of dead entries. It is below zero for a moment if a getter drops one that was not counted yet.
    dead: AtomicUsize,
    is_sweeping: AtomicBool,
}

impl<K> Lines<K> {
    /// `lines` is a power of two.
    pub(super) fn new(lines: usize) -> Self {
        Self {
            lines: (0..lines).map(|_| CachePadded::new(Line::new())).collect(),
            epoch: CachePadded::default(),
            dead: AtomicUsize::new(0),
            is_sweeping: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    #[inline(always)]
    fn at(&self, at: usize) -> &Line<K> {
        &self.lines[at & (self.count() - 1)]
    }

    /// The epoch of a push, which is the `pushed`th of its thread.
    #[inline(always)]
    pub(super) fn epoch(&self, pushed: u64) -> u64 {
        if pushed % EPOCH == 0 {
            self.epoch.fetch_add(1, Ordering::Relaxed); // Relaxed, here and below: a weak order of pushes
        }
        self.epoch.load(Ordering::Relaxed)
    }

    /// Pushes into the line of the thread, which is `home`. Ends with a read-modify-write.
    #[inline(always)]
    pub(super) fn push(&self, home: usize, entry: Entry<K>) {
        self.at(home).push(entry);
    }

    /// The next entry, which may be dead. `None` means that each line had a moment without an entry.
    #[inline(always)]
    pub(super) fn pop(&self, home: usize, stay: &AtomicU64) -> Option<Entry<K>> {
        if self.count() == 1 { self.lines[0].pop() } else { self.pop_of_many(home, stay) }
    }

    /// `stay` packs the line from which this getter last took an entry, as a distance from `home`, and below it the epoch of that entry.
    fn pop_of_many(&self, home: usize, stay: &AtomicU64) -> Option<Entry<K>> {
        let stayed = stay.load(Ordering::Relaxed); // Relaxed, here and below: written by this thread, or a hint that several share
        let at = home + (stayed >> 32) as usize;
        let Some(entry) = self.at(at).pop() else { return self.pop_elsewhere(home, stay) };
        if entry.epoch != stayed as u32 {
            self.has_taken(home, stay, at, entry.epoch);
        }
        Some(entry)
    }

    /// The getter has taken an entry of another epoch from this line, and chooses its next line (F12).
    #[inline(never)]
    fn has_taken(&self, home: usize, stay: &AtomicU64, at: usize, epoch: u32) {
        let now = self.epoch.load(Ordering::Relaxed);
        let front = now.saturating_sub(u64::from((now as u32).wrapping_sub(epoch)));
        if self.at(at).front.load(Ordering::Relaxed) < front {
            self.at(at).front.store(front, Ordering::Relaxed);
        }
        let next = self.oldest().map_or(home, |(oldest, oldest_at)| {
            let is_near = |at: &usize| {
                let line = self.at(*at);
                line.front.load(Ordering::Relaxed) <= oldest + AHEAD && !line.seems_empty()
            };
            [home, at].into_iter().find(is_near).unwrap_or(oldest_at)
        });
        let distance = next.wrapping_sub(home) & (self.count() - 1);
        // In another line the first entry is compared in any case.
        let epoch = if next == at { epoch } else { !epoch };
        stay.store((distance as u64) << 32 | u64::from(epoch), Ordering::Relaxed);
    }

    /// The oldest front among the lines that have entries, and its line.
    fn oldest(&self) -> Option<(u64, usize)> {
        let front = |(at, line): (usize, &CachePadded<Line<K>>)| (line.front.load(Ordering::Relaxed), at);
        self.lines.iter().enumerate().filter(|(_, line)| !line.seems_empty()).map(front).min()
    }

    /// Takes from another line, because the one that the getter was using is empty.
    #[inline(never)]
    fn pop_elsewhere(&self, home: usize, stay: &AtomicU64) -> Option<Entry<K>> {
        let taken = |at| self.at(at).pop().map(|entry| (at, entry));
        let mut found = None;
        while found.is_none() {
            let Some((_, at)) = self.oldest() else { break };
            found = taken(at);
        }
        let (at, entry) = found.or_else(|| (home..home + self.count()).find_map(taken))?;
        self.has_taken(home, stay, at, entry.epoch);
        Some(entry)
    }

    /// The number of entries, dead ones included, or a few more.
    #[inline]
    pub(super) fn entries(&self) -> usize {
        self.lines.iter().map(|line| line.entries()).sum()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        let dead = (self.dead.load(Ordering::Relaxed) as isize).max(0) as usize; // Relaxed, here and below: for `len`
        self.lines.iter().map(|line| line.len()).sum::<usize>().saturating_sub(dead)
    }

    /// Counts an entry that has become dead.
    pub(super) fn count_dead(&self) {
        self.dead.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a dead entry that has left its line.
    pub(super) fn uncount_dead(&self) {
        self.dead.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a sweep is worth its time. This bounds the memory that dead entries take.
    pub(super) fn wants_sweep(&self) -> bool {
        let dead = self.dead.load(Ordering::Relaxed) as isize;
        dead > FEW as isize && dead > (self.entries() / 2) as isize
    }

    /// Takes out the dead entries, and calls `gone` for each without a lock, unless another thread does this. If so, returns false. Otherwise
    /// the caller wakes getters afterwards, because one may have looked while the sweep had the only entry in its hand.
    #[cold]
    pub(super) fn sweep(&self, mut gone: impl FnMut(Entry<K>)) -> bool {
        if self.is_sweeping.swap(true, Ordering::Acquire) {
            return false;
        }
        self.lines.iter().for_each(|line| line.sweep(&mut gone));
        self.is_sweeping.store(false, Ordering::Release);
        true
    }

    pub(super) fn shrink(&self) {
        self.lines.iter().for_each(|line| line.shrink());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::free::parts::Map;
    use crate::key::{Bits, KeyHash, NodeRef};
    use fastrand::Rng;

    /// A queued key, of an empty map that frees it.
    fn queued_key(map: &Map<()>) -> NodeRef<()> {
        let Err(node) = map.add(&mut Some(()), KeyHash(0), Bits::QUEUED, &map.guard(), |_| None::<()>) else {
            unreachable!("the map is empty");
        };
        node
    }

    /// Threads add and take in turn, some more often than others. Returns the largest number of later keys that overtook a key.
    fn overtaken(lines: usize, threads: usize, queued: usize, seed: u64) -> usize {
        const KEYS: usize = 60_000;
        let (lines, mut random) = (Lines::new(lines), Rng::with_seed(seed));
        lines.epoch.store(u64::from(u32::MAX) - 100, Ordering::Relaxed); // the low bits wrap around
        // What is in an entry does not matter here.
        let map = Map::new(1, false);
        let node = queued_key(&map);
        let mut homes: Vec<_> = (0..threads).map(|_| (AtomicU64::new(0), 0)).collect();
        // Each thread adds as often as it takes by chance alone.
        let mut shares = || (0..threads).map(|_| random.usize(1..20)).collect::<Vec<_>>();
        let [adders, takers] = [shares(), shares()];
        let mut pick = |shares: &[usize]| {
            let mut at = random.usize(0..shares.iter().sum());
            shares
                .iter()
                .position(|share| at.checked_sub(*share).map(|left| at = left).is_none())
                .expect("less than all")
        };
        let (mut worst, mut oldest, mut gone) = (0, 0, vec![false; KEYS]);
        for number in 0..KEYS + queued {
            if number < KEYS {
                let home = pick(&adders);
                let pushed = &mut homes[home].1;
                let epoch = lines.epoch(*pushed) as u32;
                *pushed += 1;
                lines.push(home, Entry { node, number: number as u32, epoch });
            }
            if number < queued {
                continue;
            }
            let home = pick(&takers);
            let stay = &homes[home].0;
            gone[lines.pop(home, stay).expect("there are some").number as usize] = true;
            oldest += gone[oldest..].iter().take_while(|gone| **gone).count();
            worst = worst.max(number + 1 - queued - oldest); // all before the oldest are taken
        }
        assert!(lines.entries() == 0 && oldest == KEYS);
        worst
    }

    /// A sweep takes the dead entries out of all lines, and getters still find the live ones, each line's first.
    #[test]
    fn a_sweep_visits_all_lines() {
        const DEAD: u32 = 600;
        let (lines, map) = (Lines::new(4), Map::new(1, false));
        let node = queued_key(&map);
        let live = Bits::QUEUED.number();
        for home in 0..4 {
            for n in 0..=DEAD {
                let number = if n == DEAD / 2 { live } else { live + 1 };
                lines.push(home, Entry { node, number, epoch: 1 });
            }
        }
        let mut gone = 0;
        assert!(lines.sweep(|entry| gone += u32::from(entry.number != live)));
        assert_eq!((gone, lines.len()), (4 * DEAD, 4));
        let stay = AtomicU64::new(0);
        let left: Vec<_> = std::iter::from_fn(|| lines.pop(2, &stay)).map(|entry| entry.number).collect();
        assert_eq!(left, [live; 4]);
    }

    /// F12, with short and with long lines.
    #[test]
    fn keys_are_overtaken_by_few() {
        let mut most = 0.0_f64;
        for (lines, threads) in [(1, 4), (2, 2), (2, 7), (4, 4), (16, 2), (16, 16), (16, 40)] {
            for queued in [1, 50, 3000, 30_000] {
                let worst = overtaken(lines, threads, queued, (lines * threads + queued) as u64);
                let bound =
                    if lines == 1 { 0 } else { (AHEAD as usize + 1 + threads) * EPOCH as usize + lines * threads };
                println!("{lines} lines, {threads} threads, {queued} queued: overtaken by {worst}, at most {bound}");
                assert!(worst <= bound, "{lines} lines, {threads} threads, {queued} queued: {worst}, and not {bound}");
                most = most.max(worst as f64 / bound.max(1) as f64);
            }
        }
        assert!(most > 0.3, "the bound says little: {most}");
    }
}
