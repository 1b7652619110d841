//! Tens of thousands of delayed keys, on the crate and in a sorted map: tables grow and shrink, slots of the wheel hold thousands of entries,
//! and a turn takes many batches. With few keys, and all else that a queue can do, the same is in `reference/`.

mod support {
    pub(crate) mod manual;
}

use fastrand::Rng;
use keyqueue::{AddOptions, Added, DelayConflict, MockClock, WorkQueue};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use support::manual::{manual_queue, pairs};

/// The queue, and the same delays in a map.
struct Pair {
    queue: WorkQueue<u64>,
    clock: MockClock,
    now: u64,
    /// By deadline, and then by the number of the call.
    delays: BTreeMap<(u64, u64), u64>,
    places: HashMap<u64, (u64, u64)>,
    set: u64,
    expired: u64,
}

impl Pair {
    fn add(&mut self, key: u64, delay: u64, conflict: DelayConflict) {
        let deadline = self.now + delay;
        let old = self.places.get(&key).copied();
        let counts = match conflict {
            DelayConflict::KeepExisting => old.is_none(),
            DelayConflict::EarliestWins => old.is_none_or(|(old, _)| deadline < old),
            _ => true,
        };
        self.set += u64::from(counts);
        // A delay that is replaced by one with the same deadline keeps its place.
        if counts && old.is_none_or(|(old, _)| old != deadline) {
            old.and_then(|old| self.delays.remove(&old));
            self.places.insert(key, (deadline, self.set));
            self.delays.insert((deadline, self.set), key);
        }
        let options = AddOptions::new().after(Duration::from_nanos(delay)).conflict(conflict);
        assert_eq!(self.queue.add_with(key, options), if counts { Added::Delayed } else { Added::Coalesced });
    }

    fn cancel(&mut self, key: u64) {
        let cancelled = self.places.remove(&key).and_then(|place| self.delays.remove(&place));
        assert_eq!(self.queue.cancel(&key), cancelled.is_some());
    }

    /// The keys that expire are handed out in the order of the map.
    fn advance(&mut self, by: u64) {
        self.now += by;
        self.clock.advance(Duration::from_nanos(by));
        let later = self.delays.split_off(&(self.now + 1, 0));
        let due = std::mem::replace(&mut self.delays, later);
        assert_eq!(self.queue.turn(), due.len());
        self.expired += due.len() as u64;
        due.values().for_each(|key| _ = self.places.remove(key));
        let handed_out = std::iter::from_fn(|| self.queue.try_get().ok().map(|item| *item));
        assert!(handed_out.eq(due.into_values()));
        assert_eq!(self.queue.delayed_len(), self.delays.len());
    }
}

/// Makes random calls. Delays have up to `bits` bits; the clock advances once in `pause` calls.
fn run(keys: u64, calls: u64, bits: u32, pause: u64) {
    let mut random = Rng::with_seed(keys + calls);
    let (queue, clock) = manual_queue();
    let mut pair = Pair { queue, clock, now: 0, delays: BTreeMap::new(), places: HashMap::new(), set: 0, expired: 0 };
    for call in 0..calls {
        let time = random.u64(..) >> (64 - random.u32(1..bits));
        // In some phases no delay is added.
        match random.u64(..20) {
            0..=11 if call * 6 / calls % 3 != 2 => {
                let all = [DelayConflict::EarliestWins, DelayConflict::Replace, DelayConflict::KeepExisting];
                let conflict = all[random.usize(..5).saturating_sub(2)];
                pair.add(random.u64(..keys), time + 1, conflict);
            }
            12..=14 => pair.cancel(random.u64(..keys)),
            _ if random.u64(..1_000) == 0 => pair.queue.shrink_to_fit(),
            _ => {}
        }
        if random.u64(..pause) == 0 {
            pair.advance(time);
        }
    }
    // About 700 deadlines at a time; the last thousand are taken, as after a shut-down.
    while pair.delays.len() > 1_000 {
        let (deadline, _) = *pair.delays.keys().nth(700).expect("there are a thousand");
        pair.advance(deadline - pair.now);
    }
    let left = pair.delays.iter().map(|(&(deadline, _), &key)| (key, Duration::from_nanos(deadline - pair.now)));
    assert_eq!(pairs(pair.queue.take_delayed()), left.collect::<Vec<_>>());
    let stats = pair.queue.stats();
    assert_eq!((stats.delayed, stats.delays, stats.expired), (0, pair.set, pair.expired));
    assert!(stats.delays > calls / 6 && stats.expired > calls / 30, "{stats:?}");
}

#[test]
fn short_delays_and_a_clock_that_ticks() {
    run(40_000, 150_000, 30, 100);
}

#[test]
fn long_delays_and_a_clock_that_jumps() {
    run(40_000, 150_000, 50, 3_000);
}

#[test]
fn few_keys_whose_delays_move_all_the_time() {
    run(2_000, 150_000, 40, 1_000);
}
