//! Threads at full speed on one queue.
//!
//! * **Shard by shard**, at any length: each critical section draws a number (`src/steps.rs`), and the plain queue of `tests/reference/`
//!   makes the same steps in this order and judges each answer: P1, P2, P4, P6 to P10, P19, P20, P23. Without `--cfg keyqueue_steps` the
//!   calls are made and not judged; `ci/reference.sh` sets it.
//! * **Between shards** there is no such order. What is promised there, a moment at which the whole queue was idle, is searched for in
//!   short histories (Wing & Gong's search, from `todc-utils`).
//!
//! `KEYQUEUE_STRESS=60` runs for about 60 seconds instead of two. A seed chooses the calls of each thread; a failure names it, and
//! `KEYQUEUE_STRESS_SEED` repeats it. The system still chooses the schedule of the threads.

mod reference;
#[path = "reference/replay.rs"]
mod replay;
#[path = "reference/threads.rs"]
mod threads;

use keyqueue::{Added, Driver, WorkQueue};
use reference::random::Random;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use todc_utils::specifications::Specification;
use todc_utils::{Action, History, WGLChecker};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Names the round that fails.
struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("KEYQUEUE_STRESS_SEED={}", self.0);
        }
    }
}

/// Runs rounds, each with its own seed, for this share of the time.
fn rounds(share: f64, mut round: impl FnMut(u64)) {
    let seconds = setting("KEYQUEUE_STRESS").unwrap_or(2) as f64 * share;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let first = setting("KEYQUEUE_STRESS_SEED")
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64));
    for seed in first.. {
        let _round = Round(seed);
        round(seed);
        if Instant::now() >= end {
            println!("{} rounds", seed - first + 1);
            break;
        }
    }
}

#[test]
fn the_plain_queue_makes_the_same_steps() {
    let (mut calls, mut judged) = (0, replay::Judged::default());
    rounds(0.7, |seed| {
        // Many ends of runs, where a lost wake-up is found, and some long runs.
        let is_huge = seed % 64 == 0 && setting("KEYQUEUE_STRESS").is_some_and(|seconds| seconds >= 60);
        let length = if is_huge { 1_000_000 } else { [300, 300, 300, 3000, 20_000, 100_000][(seed % 6) as usize] };
        let history = threads::run(seed, length);
        calls += history.logs.iter().map(|log| log.records.len()).sum::<usize>();
        if cfg!(keyqueue_steps) {
            replay::judge(&history, &mut judged);
        }
    });
    println!("{calls} calls; {judged:?}");
}

// ---- between shards ----

/// A call with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Add(u8, Added),
    /// A key. (A getter that finds none has found the shards empty one after the other, and not at one moment.)
    Get(u8),
    Done(u8),
    /// An idle wait has ended: at one moment, no shard had work.
    Idle,
}

/// A queue of any order, as a value that can be compared: the two sets of client-go's algorithm, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Sets {
    dirty: u8,
    processing: u8,
}

struct AnyOrder;

impl Specification for AnyOrder {
    type State = Sets;
    type Operation = Call;

    fn init() -> Sets {
        Sets::default()
    }

    fn apply(call: &Call, Sets { dirty, processing }: &Sets) -> (bool, Sets) {
        let (dirty, processing) = (*dirty, *processing);
        match *call {
            Call::Add(key, added) => {
                let expected = match (dirty & 1 << key != 0, processing & 1 << key != 0) {
                    (true, _) => Added::Coalesced,
                    (false, true) => Added::Deferred,
                    (false, false) => Added::Queued,
                };
                (added == expected, Sets { dirty: dirty | 1 << key, processing })
            }
            Call::Get(key) => {
                let bit = 1 << key;
                (dirty & !processing & bit != 0, Sets { dirty: dirty & !bit, processing: processing | bit })
            }
            Call::Done(key) => (processing & 1 << key != 0, Sets { dirty, processing: processing & !(1 << key) }),
            Call::Idle => (dirty | processing == 0, Sets { dirty, processing }),
        }
    }
}

const THREADS: usize = 4;
const CALLS: usize = 6;

/// One thread's part of a short history: each call with a stamp before it and another after it.
fn calls(queue: &WorkQueue<u8>, clock: &AtomicUsize, random: &mut Random) -> Vec<(usize, Call, usize)> {
    let stamp = || clock.fetch_add(1, Ordering::SeqCst);
    let (mut held, mut calls) = (Vec::<keyqueue::Item<'_, u8>>::new(), Vec::with_capacity(2 * CALLS));
    for n in 0..2 * CALLS {
        let (choice, key) = (random.below(6), random.below(4) as u8);
        let begin = stamp();
        let call = match (held.pop(), choice) {
            (Some(item), _) if n >= CALLS || choice < 3 => {
                let key = *item;
                item.done();
                Some(Call::Done(key))
            }
            (item, _) => {
                held.extend(item);
                match choice {
                    _ if n >= CALLS => None,
                    0..=2 => Some(Call::Add(key, queue.add(key))),
                    3 => queue.wait_idle_timeout(Duration::ZERO).is_ok().then_some(Call::Idle),
                    _ => queue.try_get().ok().map(|item| {
                        held.push(item);
                        Call::Get(**held.last().expect("pushed"))
                    }),
                }
            }
        };
        calls.extend(call.map(|call| (begin, call, stamp())));
    }
    calls
}

fn is_linearizable(threads: &[Vec<(usize, Call, usize)>]) -> bool {
    let mut stamped = Vec::new();
    for (thread, calls) in threads.iter().enumerate() {
        for &(begin, call, end) in calls {
            stamped.push((begin, (thread, Action::Call(call))));
            stamped.push((end, (thread, Action::Response(call))));
        }
    }
    stamped.sort_by_key(|&(stamp, _)| stamp);
    let actions = stamped.into_iter().map(|(_, action)| action).collect();
    WGLChecker::<AnyOrder>::is_linearizable(History::from_actions(actions))
}

#[test]
fn an_idle_queue_was_idle_in_all_shards_at_one_moment() {
    // The threads run a whole batch, since starting them takes longer than a history.
    const BATCH: usize = 100;
    rounds(0.3, |seed| {
        let mut random = Random::Seed(seed);
        let new = || {
            (WorkQueue::builder().shards(4).driver(Driver::Manual).build(), AtomicUsize::new(0), AtomicUsize::new(0))
        };
        let queues: Vec<_> = (0..BATCH).map(|_| new()).collect();
        let batch: Vec<Vec<_>> = thread::scope(|s| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (queues, mut random) = (&queues, Random::Seed(random.next()));
                    s.spawn(move || {
                        let one = |(queue, clock, arrived): &(_, _, AtomicUsize)| {
                            // A barrier that does not park, so that all threads start at about the same moment.
                            arrived.fetch_add(1, Ordering::SeqCst);
                            while arrived.load(Ordering::SeqCst) < THREADS {
                                thread::yield_now();
                            }
                            calls(queue, clock, &mut random)
                        };
                        queues.iter().map(one).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for round in 0..BATCH {
            let threads: Vec<_> = batch.iter().map(|thread| thread[round].clone()).collect();
            assert!(is_linearizable(&threads), "no order of these calls explains their results: {threads:#?}");
        }
    });
}

#[test]
fn the_checker_rejects_wrong_histories() {
    let add = |key, begin, end| (begin, Call::Add(key, Added::Queued), end);
    assert!(is_linearizable(&[vec![add(0, 0, 2)], vec![(1, Call::Idle, 3)]]), "side by side: either order");
    assert!(!is_linearizable(&[vec![add(0, 0, 1)], vec![(2, Call::Idle, 3)]]), "a lost add");
    // The second key comes before the first one goes, so the queue is not idle, though each shard is at some moment.
    let goes = vec![add(0, 0, 1), (5, Call::Get(0), 6), (7, Call::Done(0), 8)];
    assert!(!is_linearizable(&[goes, vec![add(1, 2, 3)], vec![(4, Call::Idle, 9)]]), "a key that seems to move");
    assert!(!is_linearizable(&[vec![add(0, 0, 1), (2, Call::Get(0), 3), (4, Call::Get(0), 5)]]), "two holders");
}
