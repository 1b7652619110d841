//! **A model**, not a measurement: a ring (get, add of the same key, `done`) on more cores than this machine has.
//!
//! A turn takes what it takes one thread (measured), and a transfer for each cache line that it writes and another core wrote last. The
//! price of a transfer is measured: two threads write to the same lines in turn. The lines are counted by hand, below. Cores are simulated: each takes
//! keys from shards as `src/shared/choose.rs` says, 64 from a shard in a row, and backs off while another core has the shard's lock.
//! With two cores and a queue of 16 shards the result can be compared with a measurement.

use crate::workloads::Shards;
use common::workloads as shared;
use crossbeam_utils::CachePadded;
use keyqueue_benches::markdown::Table;
use keyqueue_benches::numbers::median;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Lines of a key: its slot and its bucket. The entry in the line of the queue: eight to a cache line.
const KEY_LINES: f64 = 2.125;
/// Lines of a shard: the lock, the counts, the line's ends, the table's head, and two that are published.
const SHARD_LINES: f64 = 6.0;
/// Keys that a core takes from a shard in a row.
const STAY: u32 = 64;
/// Keys in the ring.
const KEYS: usize = 1024;
/// The part of a turn in which the shard's lock is held: three critical sections.
const LOCKED: f64 = 0.6;

/// How long a core that finds a lock held stays away from it, in nanoseconds: `src/sync/lock.rs`.
const BACKOFF_OF_ONE: f64 = 3000.0;
const BACKOFF: f64 = 120.0;

pub fn table(rounds: usize) -> Table {
    let transfers = Transfers { one: transfer_price(1), many: transfer_price(4096) };
    let measured = |ring: fn(u64) -> f64, threads| median(&(0..rounds).map(|_| ring(threads)).collect::<Vec<_>>());
    let mut table = Table::new(["ns a turn", "1 shard", "16 shards", "64 shards"]);
    println!("a transfer of a cache line: {:.0} ns, of many at a time {:.0} ns each", transfers.one, transfers.many);
    let alone = [measured(ring::<1>, 1), measured(ring::<16>, 1), measured(ring::<64>, 1)];
    let pair = [measured(ring::<1>, 2), measured(ring::<16>, 2), measured(ring::<64>, 2)];
    let row = |name: String, times: [f64; 3]| {
        std::iter::once(name).chain(times.map(|time| format!("{time:.1}"))).collect::<Vec<_>>()
    };
    table.row(row("1 core, measured".into(), alone));
    table.row(row("2 cores, measured".into(), pair));
    for cores in [2, 4, 8, 16, 32, 64] {
        let times = [(1, alone[0]), (16, alone[1]), (64, alone[2])];
        let times = times.map(|(shards, alone)| simulate(cores, shards, alone, &transfers));
        table.row(row(format!("{cores} cores, model"), times));
    }
    table
}

fn ring<const N: usize>(threads: u64) -> f64 {
    const TURNS: u64 = 500_000;
    shared::ring::<u64, Shards<N>>(KEYS as u64, threads, TURNS).as_nanos() as f64 / TURNS as f64
}

/// Nanoseconds for a line that another core wrote last. Two threads write to `lines` lines in turn: with one, each waits for the whole
/// transfer; with many, in an order that no prefetcher guesses, the transfers overlap, as those of keys do.
fn transfer_price(lines: usize) -> f64 {
    let times = 1_000_000 / lines;
    let (turn, data) = (AtomicU64::new(0), (0..lines).map(|_| CachePadded::new(AtomicU64::new(0))).collect::<Vec<_>>());
    // A prime that does not divide the number of lines: each line once.
    let order: Vec<_> = (0..lines).map(|n| n * 6_700_417 % lines).collect();
    let take_turns = |first: usize| {
        for n in (first..times).step_by(2) {
            while turn.load(Ordering::Acquire) != n as u64 {
                std::hint::spin_loop();
            }
            for line in order.iter().map(|line| &data[*line]) {
                line.store(line.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            turn.store(n as u64 + 1, Ordering::Release);
        }
    };
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| take_turns(1));
        take_turns(0);
    });
    // `turn` is a line, too.
    begin.elapsed().as_nanos() as f64 / (times * (lines + 1)) as f64
}

/// Nanoseconds for a line that another core wrote last.
struct Transfers {
    one: f64,
    many: f64,
}

/// A shard of the model.
#[derive(Clone, Copy)]
struct Shard {
    free_at: f64,
    last_core: usize,
    /// The time of the last stay: a shard with an older one has the older front.
    stayed_at: f64,
    taken: bool,
}

/// Nanoseconds a turn, of all cores together.
fn simulate(cores: usize, shards: usize, alone: f64, transfers: &Transfers) -> f64 {
    const TURNS: usize = 200_000;
    let mut of = vec![Shard { free_at: 0.0, last_core: 0, stayed_at: 0.0, taken: false }; shards];
    // Which core wrote a key's lines last. A key stays in its shard.
    let mut keys = vec![0_usize; KEYS];
    let mut next_key = vec![0_usize; shards];
    // For each core: the time, its shard, and the keys that are left of its stay.
    let mut at: Vec<(f64, usize, u32)> = (0..cores).map(|core| (core as f64, core % shards, 0)).collect();
    let mut turns = 0;
    while turns < TURNS {
        let core = (0..cores).min_by(|a, b| at[*a].0.total_cmp(&at[*b].0)).expect("a core");
        let (now, mut shard, mut left) = at[core];
        if left == 0 {
            of[shard].taken = false;
            let choice = |shard: &usize| (of[*shard].taken, of[*shard].stayed_at);
            shard = (0..shards)
                .min_by(|a, b| choice(a).0.cmp(&choice(b).0).then(choice(a).1.total_cmp(&choice(b).1)))
                .expect("a shard");
            of[shard].taken = true;
            of[shard].stayed_at = now;
            left = STAY;
        }
        if of[shard].free_at > now {
            at[core] = (now + if shards == 1 { BACKOFF_OF_ONE } else { BACKOFF }, shard, left);
            continue;
        }
        turns += 1;
        let key = shard + next_key[shard] % (KEYS / shards) * shards;
        next_key[shard] += 1;
        let foreign_key = f64::from(u8::from(keys[key] != core));
        let foreign_shard = f64::from(u8::from(of[shard].last_core != core));
        keys[key] = core;
        of[shard].last_core = core;
        let turn = alone + transfers.many * foreign_key * KEY_LINES + transfers.one * foreign_shard * SHARD_LINES;
        of[shard].free_at = now + turn - alone * (1.0 - LOCKED);
        at[core] = (now + turn, shard, left - 1);
    }
    at.iter().map(|(now, ..)| *now).fold(0.0, f64::max) / TURNS as f64
}
