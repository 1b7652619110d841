//! How late a key is handed out: to a getter that was parked, and after its deadline.

use crate::subjects::Shards;
use common::Subject;
use common::mutex::{parking_lot_mutex, std_mutex};
use hdrhistogram::Histogram;
use keyqueue_benches::delays::DelaySubject;
use keyqueue_benches::delays::lateness::{bare, lateness};
use keyqueue_benches::latency::wake_latency;
use std::time::Duration;

impl<const N: usize> DelaySubject<u64> for Shards<N> {
    fn add_after(&self, key: u64, delay: Duration) {
        self.0.add_after(key, delay);
    }

    fn settle(&self) -> Option<usize> {
        None // each call has taken effect when it returns
    }
}

/// Wake-ups of a round, and delayed keys.
const WAKES: u64 = 2000;
const DELAYED: u64 = 2000;

type Row = (&'static str, &'static str, fn() -> Histogram<u64>);

const ROWS: [Row; 10] = [
    ("wake-up of a parked getter", "keyqueue, 1 shard", || wake_latency::<Shards<1>>(WAKES)),
    ("wake-up of a parked getter", "keyqueue, 16 shards", || wake_latency::<Shards<16>>(WAKES)),
    ("wake-up of a parked getter", parking_lot_mutex::Queue::<u64>::NAME, || {
        wake_latency::<parking_lot_mutex::Queue<u64>>(WAKES)
    }),
    ("wake-up of a parked getter", std_mutex::Queue::<u64>::NAME, || wake_latency::<std_mutex::Queue<u64>>(WAKES)),
    ("after a deadline", "keyqueue, 1 shard", || lateness::<Shards<1>>(DELAYED, false).late),
    ("after a deadline", "keyqueue, 16 shards", || lateness::<Shards<16>>(DELAYED, false).late),
    ("after a deadline, beside 2 threads that set delays", "keyqueue, 1 shard", || {
        lateness::<Shards<1>>(DELAYED, true).late
    }),
    ("after a deadline, beside 2 threads that set delays", "keyqueue, 16 shards", || {
        lateness::<Shards<16>>(DELAYED, true).late
    }),
    ("after a deadline", "a bare thread", || bare(DELAYED, false).late),
    ("after a deadline, beside 2 threads that compute", "a bare thread", || bare(DELAYED, true).late),
];

pub fn print(rounds: usize) {
    let mut all: Vec<_> = ROWS.iter().map(|_| Histogram::<u64>::new(3).expect("three digits")).collect();
    for _ in 0..rounds {
        for (all, (.., measure)) in all.iter_mut().zip(&ROWS) {
            all.add(measure()).expect("resizes by itself");
        }
    }
    ROWS.iter().zip(&all).for_each(|((what, subject, _), all)| crate::print_spread(what, subject, all));
}
