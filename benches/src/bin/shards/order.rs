//! How far keys are overtaken: for each hand-out, the number of keys that were queued later and handed out earlier.

use common::random::random;
use common::threads::timed;
use keyqueue::{Added, WorkQueue};
use keyqueue_benches::markdown::Table;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The keys, and the work on a key.
#[derive(Clone, Copy)]
enum Handler {
    Short,
    /// One key in sixteen takes fifty microseconds.
    SometimesLong,
    /// While keys are handed out, some are added again: a few keys often, most keys rarely.
    Skewed,
}

pub fn table(keys: u64) -> Table {
    let mut table =
        Table::new(["order: keys overtaken by", "shards", "threads", "p50", "p99", "max", "the promise, about"]);
    for (name, handler) in [
        ("short handlers", Handler::Short),
        ("some long handlers", Handler::SometimesLong),
        ("skewed keys", Handler::Skewed),
    ] {
        for shards in [1, 4, 16, 64] {
            for threads in [1, 2, 8, 32] {
                let mut ranks = overtaken(shards, threads, keys, handler);
                ranks.sort_unstable();
                let at = |part: f64| ranks[((ranks.len() - 1) as f64 * part) as usize];
                let [p50, p99, max] = [at(0.5), at(0.99), at(1.0)].map(|rank| rank.to_string());
                let promise = if shards == 1 { threads } else { (shards as u64 + 6 * threads + 20) * 64 };
                table.row([
                    name.to_owned(),
                    shards.to_string(),
                    threads.to_string(),
                    p50,
                    p99,
                    max,
                    promise.to_string(),
                ]);
            }
        }
    }
    table
}

/// Queues keys in the order of their numbers, and hands them out to `threads` threads. Returns, for each key, how many with higher
/// numbers were handed out before it.
fn overtaken(shards: usize, threads: u64, keys: u64, handler: Handler) -> Vec<u64> {
    if matches!(handler, Handler::Skewed) {
        return overtaken_skewed(shards, threads, keys);
    }
    let queue = WorkQueue::builder().shards(shards).build();
    queue.add_all(0..keys);
    let next = AtomicU64::new(0);
    let handed_out = Mutex::new(vec![0_u64; keys as usize]);
    timed(threads, |_| {
        let mut mine = Vec::new();
        while let Ok(item) = queue.try_get() {
            mine.push((next.fetch_add(1, Ordering::Relaxed), *item));
            if matches!(handler, Handler::SometimesLong) && item.is_multiple_of(16) {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(50) {}
            }
        }
        let mut all = handed_out.lock().expect("no thread panics");
        for (at, key) in mine {
            all[at as usize] = key;
        }
    });
    rank_errors(&handed_out.into_inner().expect("no thread panics"))
}

/// One thread adds keys, of which the nth is chosen with a probability of about 1 / n, and numbers those that became queued. Others take
/// them. Returns, for each hand-out, how many with higher numbers came before it.
fn overtaken_skewed(shards: usize, threads: u64, adds: u64) -> Vec<u64> {
    let keys = adds / 2;
    let queue = WorkQueue::builder().shards(shards).build();
    let mut random = random();
    // The number of a queued key. NONE: not queued, or its number is still to be written.
    let numbers: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(NONE)).collect();
    let next = AtomicU64::new(0);
    let handed_out = Mutex::new(Vec::new());
    let mut draw = move || (keys as f64).powf(random(0..1 << 32) as f64 / (1_u64 << 32) as f64) as u64 % keys;
    let draws: Vec<u64> = (0..adds).map(|_| draw()).collect();
    timed(threads + 1, |thread| {
        if thread == 0 {
            for (number, &key) in draws.iter().enumerate() {
                let at = &numbers[key as usize];
                match queue.add(key) {
                    Added::Queued => at.store(number as u64, Ordering::Release),
                    Added::Deferred => {
                        // Queued when its holder is done, so it has no number. The holder has taken the last one, or is about to.
                        while at.load(Ordering::Acquire) != NONE {
                            std::hint::spin_loop();
                        }
                        at.store(UNKNOWN, Ordering::Release);
                    }
                    _ => {}
                }
            }
            return queue.shut_down();
        }
        let mut mine = Vec::new();
        while let Some(item) = queue.get() {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let number = loop {
                match numbers[*item as usize].swap(NONE, Ordering::AcqRel) {
                    NONE => std::hint::spin_loop(),
                    number => break number,
                }
            };
            if number != UNKNOWN {
                mine.push((position, number));
            }
        }
        handed_out.lock().expect("no thread panics").extend(mine);
    });
    let mut order = handed_out.into_inner().expect("no thread panics");
    order.sort_unstable();
    let mut sorted: Vec<u64> = order.iter().map(|(_, number)| *number).collect();
    sorted.sort_unstable();
    let rank = |number| sorted.binary_search(&number).expect("each is there") as u64;
    rank_errors(&order.into_iter().map(|(_, number)| rank(number)).collect::<Vec<_>>())
}

const NONE: u64 = u64::MAX;
const UNKNOWN: u64 = u64::MAX - 1;

/// For each number, how many higher ones come before it. With a tree of counts (Fenwick).
fn rank_errors(order: &[u64]) -> Vec<u64> {
    let mut tree = vec![0_u64; order.len() + 1];
    let mut errors = Vec::with_capacity(order.len());
    for (seen, &number) in order.iter().enumerate() {
        let (mut at, mut lower) = (number as usize + 1, 0);
        let begin = at;
        while at > 0 {
            lower += tree[at];
            at &= at - 1;
        }
        errors.push(seen as u64 - lower);
        at = begin;
        while at < tree.len() {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_errors_count_higher_numbers_before() {
        assert_eq!(rank_errors(&[0, 1, 2, 3]), [0, 0, 0, 0]);
        assert_eq!(rank_errors(&[3, 0, 2, 1]), [0, 1, 1, 2]);
    }

    #[test]
    fn one_shard_and_one_thread_keep_the_order() {
        assert!(overtaken(1, 1, 1000, Handler::Short).iter().all(|&rank| rank == 0));
    }
}
