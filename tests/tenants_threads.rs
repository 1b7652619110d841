//! Tenants with getters in several threads: a quiet one comes soon beside busy ones, and all get the same handler time (P20).

use keyqueue::{FairShare, WorkQueue};
use std::array;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The group, and the number of the key.
type Key = (u64, u64);
const GETTERS: usize = 2;

// ---- a quiet tenant ----

/// Tenants that are quiet most of the time. They add one key each in turn, which makes more samples in as many hand-outs.
const QUIET: u64 = 64;
/// A busy group has more keys than there are getters, so one of them is always queued.
const KEYS: u64 = 2 * GETTERS as u64;

/// How many hand-outs each getter has had.
type Counts = [u64; GETTERS];

/// What the getters have counted when a key of a quiet tenant was added and handed out. Both come at some time between two counts.
struct Wait {
    add: [Counts; 2],
    hand_out: [Counts; 2],
}

impl Wait {
    /// The number of hand-outs from the add to the hand-out, at most.
    fn all(&self) -> u64 {
        (0..GETTERS).map(|at| self.hand_out[1][at] - self.add[0][at]).sum()
    }

    /// Whether the system has stopped a getter meanwhile. If it was about to count, the number is not known. If it has locked the shard of the
    /// key, or stays with it, P20 promises nothing until it goes on. That is so if others have had many hand-outs, and it nearly none.
    fn was_stopped(&self) -> bool {
        let between = |[from, to]: [Counts; 2]| -> u64 { (0..GETTERS).map(|at| to[at] - from[at]).sum() };
        let unknown = between(self.add) + between(self.hand_out);
        let least = (0..GETTERS).map(|at| self.hand_out[1][at] - self.add[0][at]).min().unwrap();
        unknown > 2 * GETTERS as u64 || self.all() > 16 && least < self.all() / 8
    }
}

/// Two threads hand out the keys of busy groups, which are added again at once, and now and then a key of a quiet tenant. Returns the waits
/// of these, and the number of shards that have keys.
fn waits_of_quiet_tenants(busy: u64, shards: usize, samples: usize) -> (Vec<Wait>, u64) {
    let queue = WorkQueue::builder().shards(shards).fair_by(|&(group, _): &Key| group).build();
    (0..KEYS).for_each(|n| _ = queue.add_all((0..busy).map(|group| (group, n))));
    let shards_of_busy: HashSet<_> = (0..busy).map(|group| queue.shard_index(&(group, 0))).collect();
    let counts: [AtomicU64; GETTERS] = array::from_fn(|_| AtomicU64::new(0));
    let (added, is_queued, ends) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(false));
    // A quiet tenant has a key, and gets the next one when all busy groups have had a turn or two.
    let apart = (2 * busy / QUIET).max(40);
    let getter = |index: usize| {
        let now = || -> Counts { array::from_fn(|at| counts[at].load(SeqCst)) };
        let (mut waits, mut random) = (Vec::new(), fastrand::Rng::with_seed(index as u64));
        let (mut next_add, mut tenant) = (2 * KEYS * busy, busy);
        while !ends.load(SeqCst) {
            let before = now();
            let item = queue.get().unwrap();
            counts[index].fetch_add(1, SeqCst);
            if item.0 < busy {
                queue.add(*item);
            } else {
                let hand_out = [before, now()];
                waits.push(Wait { add: *added.lock().unwrap(), hand_out });
                is_queued.store(false, SeqCst);
            }
            item.done();
            // The first getter adds all keys of quiet tenants, because a third thread would stop others on a machine with two processors.
            let all = now().iter().sum::<u64>();
            if index == 0 && all >= next_add && !is_queued.swap(true, SeqCst) {
                next_add = all + apart + random.u64(..apart);
                tenant = busy + (tenant + 1) % QUIET;
                let mut added = added.lock().unwrap(); // the handler waits for it
                let before = now();
                queue.add((tenant, 0));
                *added = [before, now()];
            }
            if waits.len() >= samples {
                ends.store(true, SeqCst);
            }
        }
        waits
    };
    let getter = &getter;
    let waits = thread::scope(|scope| {
        let threads: [_; GETTERS] = array::from_fn(|index| scope.spawn(move || getter(index)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    (waits, (shards_of_busy.len() + 1).min(shards) as u64)
}

#[test]
fn a_quiet_tenant_waits_for_few_hand_outs() {
    let samples = if cfg!(debug_assertions) { 200 } else { 2000 };
    for shards in [1, 16] {
        for busy in [1, 100, 10_000] {
            let (waits, in_use) = waits_of_quiet_tenants(busy, shards, samples);
            let mut each: Vec<_> = waits.iter().filter(|wait| !wait.was_stopped()).map(Wait::all).collect();
            each.sort_unstable();
            let (p99, most) = (each[each.len() * 99 / 100], each[each.len() - 1]);
            let bound = 2 * (GETTERS as u64 + in_use);
            let case = format!(
                "{busy} busy groups in {in_use} shards: {} waits, and {} more while a getter was stopped; p99 {p99}, the longest {most}",
                each.len(),
                waits.len() - each.len()
            );
            println!("{case}");
            assert!(most <= bound, "{case}; at most {bound} are promised");
            assert!(each.len() * 4 > waits.len() * 3, "{case}");
        }
    }
}

// ---- handler time ----

/// Two groups, of which one has a thousand times as many keys as the other, and handlers that take 20 µs and 2 ms. Returns the handler time
/// of each group.
fn handler_times(share: FairShare, getters: usize, long_has_more: bool) -> [Duration; 2] {
    let queue = WorkQueue::builder().fair_by(|&(group, _): &Key| group).fair_share(share).build();
    let (few, many) = (8, 8000);
    let keys = if long_has_more { [few, many] } else { [many, few] };
    (0..2).for_each(|group| _ = queue.add_all((0..keys[group as usize]).map(|n| (group, n))));
    let nanos: [AtomicU64; 2] = array::from_fn(|_| AtomicU64::new(0));
    let until = Instant::now() + Duration::from_millis(700);
    thread::scope(|scope| {
        for _ in 0..getters {
            scope.spawn(|| {
                while Instant::now() < until {
                    let item = queue.get().unwrap();
                    let (begin, group) = (Instant::now(), item.0 as usize);
                    // Handlers that wait, as those of most tenants do, so that all getters run also on two processors.
                    thread::sleep(Duration::from_micros([20, 2000][group]));
                    queue.add(*item);
                    item.done();
                    nanos[group].fetch_add(begin.elapsed().as_nanos() as u64, SeqCst);
                }
            });
        }
    });
    nanos.map(|nanos| Duration::from_nanos(nanos.into_inner()))
}

#[test]
fn tenants_get_the_same_handler_time_in_several_threads() {
    for getters in [2, 4] {
        for long_has_more in [false, true] {
            let times = handler_times(FairShare::WorkTime, getters, long_has_more).map(|time| time.as_secs_f64());
            let sum: f64 = times.iter().sum();
            let jain = sum * sum / (2.0 * times.iter().map(|time| time * time).sum::<f64>());
            println!(
                "{getters} getters, the long handlers have more keys: {long_has_more}; {times:.3?} s, Jain's index {jain:.4}"
            );
            assert!(jain >= 0.95, "{getters} getters, {long_has_more}: {times:.3?} s, Jain's index {jain}");
        }
    }
}
