//! Tens of thousands of delayed keys, on the crate and on sorted maps: tables grow and shrink, slots hold thousands of entries, and a turn
//! takes many batches. With few keys, and all else that a queue can do, the same is in `reference/`.

use keyqueue::{AddOptions, Added, Clock, DelayConflict, Driver, OwnedItem, WorkQueue};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// The plain queue: the delays by deadline and then by the number of the call, and the queued keys.
#[derive(Default)]
struct Plain {
    now: u64,
    delays: BTreeMap<(u64, u64), u64>,
    places: HashMap<u64, (u64, u64)>,
    queued: VecDeque<u64>,
    dirty: HashSet<u64>,
    processing: HashSet<u64>,
    set: u64,
    expired: u64,
}

impl Plain {
    fn add(&mut self, key: u64) -> Added {
        match (self.dirty.insert(key), self.processing.contains(&key)) {
            (false, _) => Added::Coalesced,
            (true, true) => Added::Deferred,
            (true, false) => {
                self.queued.push_back(key);
                Added::Queued
            }
        }
    }

    fn add_with(&mut self, key: u64, delay: Duration, conflict: DelayConflict) -> Added {
        let deadline = self.now + delay.as_nanos() as u64;
        let old = self.places.get(&key).map(|place| place.0);
        match conflict {
            DelayConflict::KeepExisting if old.is_some() => return Added::Coalesced,
            DelayConflict::EarliestWins if !delay.is_zero() && old.is_some_and(|old| old <= deadline) => {
                return Added::Coalesced;
            }
            DelayConflict::EarliestWins if delay.is_zero() => {}
            _ => _ = self.cancel(key),
        }
        if delay.is_zero() {
            return self.add(key);
        }
        self.set += 1;
        self.places.insert(key, (deadline, self.set));
        self.delays.insert((deadline, self.set), key);
        Added::Delayed
    }

    fn cancel(&mut self, key: u64) -> bool {
        self.places.remove(&key).is_some_and(|place| self.delays.remove(&place).is_some())
    }

    fn turn(&mut self) -> usize {
        let later = self.delays.split_off(&(self.now + 1, 0));
        let due = std::mem::replace(&mut self.delays, later);
        self.expired += due.len() as u64;
        for key in due.values() {
            self.places.remove(key);
            self.add(*key);
        }
        due.len()
    }

    fn get(&mut self) -> Option<u64> {
        let key = self.queued.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key);
        Some(key)
    }

    fn done(&mut self, key: u64) {
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.queued.push_back(key);
        }
    }
}

/// xorshift64*: the same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % end
    }

    /// Of any size up to `bits` bits.
    fn time(&mut self, bits: u64) -> Duration {
        let bits = self.below(bits);
        Duration::from_nanos(self.below(1 << bits))
    }
}

/// Makes random calls. Most delays have up to `bits` bits; the clock advances once in `pause` calls.
fn run(keys: u64, calls: u64, bits: u64, pause: u64) {
    let mut numbers = Numbers(keys + calls);
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::<u64>::builder().clock(clock).driver(Driver::Manual).build();
    let mut plain = Plain::default();
    let mut held: Vec<OwnedItem<u64>> = Vec::new();
    for call in 0..calls {
        let (key, delay) = (numbers.below(keys), numbers.time(bits));
        match numbers.below(20) {
            // In some phases no delay is added, and the keys that are there are processed.
            0..=7 if call * 6 / calls % 3 != 2 => {
                assert_eq!(queue.add_after(key, delay), plain.add_with(key, delay, DelayConflict::EarliestWins));
            }
            8 => assert_eq!(queue.add(key), plain.add(key)),
            9 => {
                let all = [DelayConflict::EarliestWins, DelayConflict::Replace, DelayConflict::KeepExisting];
                let conflict = all[numbers.below(3) as usize];
                let added = queue.add_with(key, AddOptions::new().after(delay).conflict(conflict));
                assert_eq!(added, plain.add_with(key, delay, conflict));
            }
            10 | 11 => assert_eq!(queue.cancel(&key), plain.cancel(key)),
            12..=14 => {
                if let Ok(item) = queue.try_get() {
                    assert_eq!(Some(*item), plain.get());
                    held.push(item.into_owned());
                }
            }
            what @ 15..=18 if !held.is_empty() => {
                let item = held.swap_remove(numbers.below(held.len() as u64) as usize);
                if what == 15 {
                    let (key, expected) = (*item, plain.add_with(*item, delay, DelayConflict::EarliestWins));
                    plain.done(key);
                    assert_eq!(item.requeue_after(delay), expected);
                } else {
                    plain.done(*item);
                }
            }
            _ if numbers.below(1_000) == 0 => queue.shrink_to_fit(),
            _ => {}
        }
        if numbers.below(pause) == 0 {
            let by = numbers.time(bits);
            time.advance(by);
            plain.now += by.as_nanos() as u64;
            assert_eq!(queue.turn(), plain.turn());
        }
        assert_eq!((queue.len(), queue.delayed_len()), (plain.queued.len(), plain.delays.len()));
    }
    for item in held {
        plain.done(*item);
    }
    // About 700 deadlines at a time; the last thousand are taken, as after a shut-down.
    while plain.delays.len() > 1_000 {
        let deadline = plain.delays.keys().nth(700).expect("there are a thousand").0;
        let by = Duration::from_nanos(deadline.saturating_sub(plain.now));
        time.advance(by);
        plain.now += by.as_nanos() as u64;
        assert_eq!(queue.turn(), plain.turn());
        while let Ok(item) = queue.try_get() {
            assert_eq!(Some(*item), plain.get());
            plain.done(*item);
        }
    }
    let taken = queue.take_delayed().into_iter().map(|delayed| (delayed.key, delayed.left));
    let left = |deadline: u64| Duration::from_nanos(deadline.saturating_sub(plain.now));
    assert!(taken.eq(plain.delays.iter().map(|(&(deadline, _), &key)| (key, left(deadline)))));
    let stats = queue.stats();
    assert_eq!((stats.delayed, stats.delays, stats.expired), (0, plain.set, plain.expired));
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
