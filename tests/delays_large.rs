//! Many delayed keys, on the crate and on the plain reference: tables grow and shrink, slots hold thousands of entries, and a
//! turn takes many batches. `model.rs` checks the same call by call for few keys; here there are tens of thousands.

mod support {
    pub(crate) mod delays;
    pub(crate) mod limits;
    pub(crate) mod reference;
}

use keyqueue::{AddOptions, Clock, DelayConflict, DelayedAdd, DelayedKey, Driver, OwnedItem, WorkQueue};
use std::time::Duration;
use support::delays::Delays;

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
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
fn run(policy: DelayedAdd, keys: u64, calls: u64, bits: u64, pause: u64) {
    let mut numbers = Numbers(keys + calls);
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::<u64>::builder().clock(clock).driver(Driver::Manual).delayed_add(policy).build();
    let mut reference = Delays::new(policy);
    let mut held: Vec<OwnedItem<u64>> = Vec::new();
    for call in 0..calls {
        let (key, delay) = (numbers.below(keys), numbers.time(bits));
        match numbers.below(20) {
            // In some phases no delay is added, and the keys that are there are processed.
            0..=7 if call * 6 / calls % 3 != 2 => {
                assert_eq!(queue.add_after(key, delay), reference.add_after(key, delay));
            }
            8 => assert_eq!(queue.add(key), reference.add(key)),
            9 => {
                let all = [DelayConflict::EarliestWins, DelayConflict::Replace, DelayConflict::KeepExisting];
                let conflict = all[numbers.below(3) as usize];
                let added = queue.add_with(key, AddOptions::new().after(delay).conflict(conflict));
                assert_eq!(added, reference.add_with(key, delay, conflict));
            }
            10 | 11 => assert_eq!(queue.cancel(&key), reference.cancel(&key)),
            12..=14 => {
                if let Ok(item) = queue.try_get() {
                    assert_eq!(Some(*item), reference.queue.get());
                    held.push(item.into_owned());
                }
            }
            what @ 15..=18 if !held.is_empty() => {
                let item = held.swap_remove(numbers.below(held.len() as u64) as usize);
                if what == 15 {
                    let expected = reference.requeue_after(*item, delay);
                    assert_eq!(item.requeue_after(delay), expected);
                } else {
                    reference.queue.done(&item);
                }
            }
            _ if numbers.below(1_000) == 0 => queue.shrink_to_fit(),
            _ => {}
        }
        if numbers.below(pause) == 0 {
            let by = numbers.time(bits);
            time.advance(by);
            reference.advance(by);
            assert_eq!(queue.turn(), reference.turn());
        }
        assert_eq!((queue.len(), queue.delayed_len()), (reference.queue.len(), reference.delayed_len()));
    }
    for item in held {
        reference.queue.done(&item);
    }
    // About 700 deadlines at a time; the last thousand are taken, as after a shut-down.
    while reference.delayed_len() > 1_000 {
        let by = reference.deadlines().nth(700).map_or(Duration::ZERO, Duration::from_nanos);
        time.advance(by);
        reference.advance(by);
        assert_eq!(queue.turn(), reference.turn());
        while let Ok(item) = queue.try_get() {
            assert_eq!(Some(*item), reference.queue.get());
            reference.queue.done(&item);
        }
    }
    assert_eq!(pairs(queue.take_delayed()), reference.take_delayed());
    let stats = queue.stats();
    assert_eq!((stats.delayed, stats.delays, stats.expired), (0, reference.set, reference.expired));
    assert!(stats.delays > calls / 6 && stats.expired > calls / 30, "{stats:?}");
}

#[test]
fn short_delays_and_a_clock_that_ticks() {
    run(DelayedAdd::Independent, 40_000, 150_000, 30, 100);
}

#[test]
fn long_delays_and_a_clock_that_jumps() {
    run(DelayedAdd::Promote, 40_000, 150_000, 50, 3_000);
}

#[test]
fn few_keys_whose_delays_move_all_the_time() {
    run(DelayedAdd::Strict, 2_000, 150_000, 40, 1_000);
}
