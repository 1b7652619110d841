//! P27: with a given clock, a seed and one thread, a program does the same each time.
//!
//! ```text
//!   steps ──▶ queue ──▶ log: each answer, hand-out, wake-up, snapshot ──▶ its hash
//!     │                                                                     ║ equal
//!     ├──▶ the same in another process ─────────────────────────────────────╢
//!     └──▶ the same after another queue was used, and at its address ───────╜
//! ```

mod support {
    pub(crate) mod tasks;
}

use fastrand::Rng;
use futures_util::FutureExt;
use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, MaxOf};
use keyqueue::{AddOptions, Clock, DelayConflict, Driver, GetAsync, OwnedItem, Priority, WorkQueue};
use std::fmt::{Debug, Write};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use support::tasks::{Calls, poll};

const STEPS: usize = 100_000;
const SEED: u64 = 41;

/// What was seen, step by step. Only the hash (FNV-1a) is kept, and the text if the variable `LOG` is set.
struct Log {
    hash: u64,
    shown: bool,
}

impl Write for Log {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.shown {
            eprint!("{text}");
        }
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        Ok(())
    }
}

impl Log {
    fn note(&mut self, what: &str, seen: impl Debug) {
        writeln!(self, "{what} {seen:?}").unwrap();
    }
}

type Key = String;

/// `ordered`: with groups, and then with priorities.
fn queue(time: &Arc<AtomicU64>, ordered: bool) -> WorkQueue<Key> {
    let shown = Arc::clone(time);
    let clock = Clock::from_fn(move || Duration::from_nanos(shown.load(Ordering::Relaxed)));
    let [base, max] = [1, 100_000].map(Duration::from_micros);
    let backoff = ItemExponentialFailure::new(base, max).jitter(0.5).max_tracked(2000).served_only();
    let bucket = DedupingBucket::new(Bucket::with_clock(1e5, 100, clock.clone()));
    let mut builder = WorkQueue::builder().shards(16);
    if ordered {
        builder = builder.fair_by(|key: &Key| key.as_bytes()[0]);
        builder = builder.group_weight(|key| u32::from(key.as_bytes()[0]) % 3 + 1);
    }
    builder
        .rate_limiter(MaxOf::new(vec![Box::new(backoff.clock(clock.clone())), Box::new(bucket)]))
        .clock(clock)
        .driver(Driver::Manual)
        .measure(ordered)
        .seed(SEED)
        .build()
}

/// Runs the steps. Returns the hash of what was seen.
fn life(ordered: bool) -> u64 {
    let time = Arc::new(AtomicU64::new(0));
    let queue = &queue(&time, ordered);
    let mut log = Log { hash: 0xCBF2_9CE4_8422_2325, shown: std::env::var_os("LOG").is_some() };
    let mut steps = Rng::with_seed(1);
    let mut held: Vec<OwnedItem<Key>> = Vec::new();
    let called = Arc::new(Calls::default());
    let mut waiters: Vec<Pin<Box<GetAsync<'_, Key>>>> = Vec::new();
    // Each shard has keys: a thread that begins elsewhere gets other keys.
    queue.add_all((0..200).map(|n| n.to_string()));
    for step in 0..STEPS {
        let key = format!("{} {}", ["a", "b", "c", "d", "e"][steps.u64(..5) as usize], steps.u64(..1000));
        let delay = Duration::from_nanos(steps.u64(..1_000_000));
        let at = |held: &Vec<_>, n: u64| (!held.is_empty()).then(|| n as usize % held.len());
        match steps.u64(..16) {
            0..4 => log.note("add", queue.add(key)),
            4 if ordered => {
                let priority = Priority([-100, -1, 0, 0, 7, 100][steps.u64(..6) as usize]);
                log.note("priority", queue.add_with(key, AddOptions::new().priority(priority)));
            }
            4 | 5 => {
                log.note("after", queue.add_with(key, AddOptions::new().after(delay).conflict(DelayConflict::Replace)))
            }
            6 => log.note("limited", queue.add_rate_limited(key)),
            7..11 => match queue.try_get() {
                Ok(item) => {
                    log.note("get", (item.key(), item.priority(), item.waited()));
                    held.push(item.into_owned());
                }
                Err(error) => log.note("get", error),
            },
            11 | 12 => {
                if let Some(at) = at(&held, steps.u64(..64)) {
                    let item = held.swap_remove(at);
                    match steps.u64(..4) {
                        0 => item.succeed(),
                        1 => log.note("requeue", item.requeue_after(delay)),
                        _ => log.note("retry", item.retry()),
                    }
                }
            }
            13 => {
                time.fetch_add(steps.u64(..100_000), Ordering::Relaxed);
                log.note("turn", queue.turn());
            }
            14 if waiters.len() < 4 => waiters.push(Box::pin(queue.get_async())),
            _ => log.note("cancel", queue.cancel(&key)),
        }
        waiters.retain_mut(|waiter| match poll(waiter.as_mut(), &called) {
            Poll::Ready(item) => {
                let item = item.expect("it is not shut down");
                log.note("waiter", item.key());
                held.push(item.into_owned());
                false
            }
            Poll::Pending => true,
        });
        if step % 1000 == 999 {
            log.note("called", called.count());
            log.note("stats", queue.stats());
            log.note("groups", queue.inspect().groups());
            log.note("levels", queue.inspect().levels());
            log.note("processing", queue.inspect().processing_keys());
            log.note("delayed", queue.inspect().delayed_keys());
            if step % 10_000 == 9_999 {
                log.note("taken", queue.take_where(|key| key.ends_with('7')));
                held.drain(..).for_each(drop);
                queue.shrink_to_fit();
            }
        }
    }
    waiters.clear();
    held.clear();
    let left = queue.get_async().now_or_never();
    log.note("left", left.flatten().map(|item| item.key().clone()));
    log.note("stop", queue.workers().build().stop());
    log.hash
}

/// The variable that has this test print its hash for another process.
const CHILD: &str = "KEYQUEUE_SAME_TWICE_CHILD";

#[test]
#[cfg_attr(miri, ignore = "there are no processes there")]
fn two_processes_do_the_same() {
    let hash = format!("hashes {:x} {:x}.", life(false), life(true));
    if std::env::var_os(CHILD).is_some() {
        println!("{hash}");
        return;
    }
    let program = std::env::current_exe().expect("this test has a file");
    let mut child = Command::new(program);
    let output = child.args(["--exact", "two_processes_do_the_same", "--nocapture"]).env(CHILD, "1").output();
    let output = output.expect("a child process");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains(&hash), "{hash} here, and there:\n{printed}");
}

/// A queue is dropped when its thread stays with a shard of it, and the next one is made at its address, as a rule.
#[test]
#[cfg_attr(miri, ignore = "100 000 steps take long there")]
fn a_queue_does_the_same_after_another() {
    for ordered in [false, true] {
        let first = life(ordered);
        for taken in [1, 18] {
            let other = queue(&Arc::default(), ordered);
            other.add_all((0..taken + 100).map(|n| n.to_string()));
            (0..taken).for_each(|_| drop(other.try_get().expect("a key is queued")));
            drop(other);
            assert_eq!(life(ordered), first);
        }
    }
}
