//! What one key is doing (P25): the sentences, and threads beside. The reference in `reference/` asks for each key after each step.

use keyqueue::{AddOptions, Clock, DelayedBy, Driver, KeyActivity, Outcome, Priority, WorkQueue, WorkQueueBuilder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SEC: Duration = Duration::from_secs(1);
/// How often each state is to be seen.
const OFTEN: u32 = if cfg!(miri) { 5 } else { 5000 };

/// One key after the other comes into each state, and the sentence says so.
#[test]
fn each_cause_is_one_sentence() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).measure(true).pace(1.0, 4);
    let queue = builder.fair_by(|&(tenant, _): &(u8, u8)| tenant).max_processing_per_group(2).build();
    let says = |key: (u8, u8)| queue.inspect().key(&key).to_string();
    assert_eq!(says((1, 0)), "neither queued, processing nor delayed");

    queue.add_all([(1, 0), (1, 1), (1, 2)]);
    time.advance(3 * SEC);
    assert_eq!(says((1, 2)), "queued for 3s at priority 0, ready to be handed out");
    let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
    assert_eq!(says((1, 0)), "processing for 0ns at priority 0");
    assert_eq!(says((1, 2)), "queued for 3s at priority 0, behind its group's limit of 2");
    queue.add((1, 0));
    queue.add_after((1, 0), 10 * SEC);
    time.advance(SEC / 2 + Duration::from_nanos(1));
    assert_eq!(
        says((1, 0)),
        "processing for 500.000001ms at priority 0, and added again, and delayed for another 9.499s by a caller"
    );
    queue.pause();
    assert_eq!(says((1, 2)), "queued for 3.5s at priority 0, behind its group's limit of 2");
    queue.group(&(1, 0)).pause(2 * SEC).unwrap();
    assert_eq!(says((1, 2)), "queued for 3.5s at priority 0, behind its group's pause for another 2s");
    queue.group(&(1, 0)).pause(Duration::MAX).unwrap();
    assert_eq!(says((1, 2)), "queued for 3.5s at priority 0, behind its group's pause without an end");
    queue.group(&(1, 0)).resume();
    second.done();
    assert_eq!(says((1, 2)), "queued for 3.5s at priority 0, behind the queue's pause");
    queue.resume();

    first.requeue_with(AddOptions::new().rate_limited().after(5 * SEC));
    assert_eq!(
        says((1, 0)),
        "queued for 500.000001ms at priority 0, ready to be handed out, and delayed for another 5s by retry 1"
    );
    assert_eq!(queue.get().unwrap().key().1, 2, "the drop ends it");
    let item = queue.get().unwrap();
    item.succeed();
    assert_eq!(says((1, 0)), "delayed for another 9.499s by a caller");

    queue.add_with((2, 0), AddOptions::new().priority(Priority::HIGH));
    assert_eq!(says((2, 0)), "queued for 0ns at priority 100, behind the queue's pace for another 499.999999ms");
    queue.pause();
    assert_eq!(says((2, 0)), "queued for 0ns at priority 100, behind the queue's pause");
    queue.resume();
    time.advance(SEC);
    queue.turn();
    queue.get().unwrap().requeue_after(2 * SEC);
    assert_eq!(says((2, 0)), "delayed for another 2s by its holder's requeue");
    queue.add_rate_limited((2, 1));
    queue.add_rate_limited((2, 1));
    assert_eq!(says((2, 1)), "delayed for another 5ms by retry 2");
    queue.cancel(&(2, 1));
    assert_eq!(says((2, 1)), "neither queued, processing nor delayed, after 2 failures");
    queue.add_after((2, 2), Duration::MAX);
    assert_eq!(says((2, 2)), "delayed without an end by a caller");

    queue.group(&(3, 0)).set(keyqueue::GroupLimits::new().rate(0.1, 1)).unwrap();
    queue.add_all([(3, 0), (3, 1)]);
    time.advance(SEC);
    queue.turn();
    queue.get().unwrap().cool_down(4 * SEC);
    assert_eq!(says((3, 0)), "cooling down for another 4s, with no run to come");
    queue.add((3, 0));
    assert_eq!(says((3, 0)), "delayed for another 4s by its cool-down");
    assert_eq!(says((3, 1)), "queued for 1s at priority 0, behind its group's rate for another 10s");
}

/// Without measuring no age is known, and a `str` finds a `String`. A limiter of the user's own counts failures, too.
#[test]
fn what_is_not_known_is_left_out() {
    let limiter = keyqueue::rate_limiter::ItemExponentialFailure::new(SEC, SEC);
    for builder in [WorkQueue::builder(), WorkQueue::builder().rate_limiter(limiter.jitter(0.5))] {
        // On a busy machine the first retry, after 5 ms by default, might come before the look.
        let queue: WorkQueue<String> = builder.clock(Clock::mock().0).build();
        queue.add("a".to_owned());
        queue.add_rate_limited("b".to_owned());
        let (a, b) = (queue.inspect().key("a"), queue.inspect().key("b"));
        assert_eq!((a.activity, a.elapsed, a.limits, a.delay), (KeyActivity::Queued, None, None, None));
        assert_eq!((b.activity, b.delay.unwrap().by, b.failures), (KeyActivity::Delayed, DelayedBy::Retry, 1));
        assert_eq!(a.to_string(), "queued at priority 0, ready to be handed out");
    }
}

/// A key that is known all the time is never absent, while it goes from state to state.
fn is_never_absent(builder: WorkQueueBuilder<u32>) {
    let queue = builder.build();
    let workers = queue.workers();
    let loops = workers.spawn(2, |item| match *item.key() {
        0 => Ok::<_, String>(Outcome::RequeueAfter(Duration::from_nanos(1))),
        1 => Err("again".to_owned()),
        2 => Ok(Outcome::RequeueAfter(Duration::ZERO)),
        _ => Ok(Outcome::Success),
    });
    let is_over = AtomicBool::new(false);
    queue.add_all(0..4);
    let (mut seen, start) = ([0_u32; 4], Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                queue.add_all([0, 3]);
                thread::yield_now();
            }
        });
        for ask in (0..3).cycle() {
            if seen[..3].iter().all(|count| *count >= OFTEN) || start.elapsed() > Duration::from_secs(60) {
                break;
            }
            let state = queue.inspect().key(&ask);
            let at = match state.activity {
                KeyActivity::Queued | KeyActivity::HeldBack(_) => 0,
                KeyActivity::Processing { .. } => 1,
                KeyActivity::Delayed => 2,
                _ => 3,
            };
            seen[at] += 1;
            assert!(state.delay.is_some() || at != 2, "a delay is known: {state}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{seen:?} in {:?}", start.elapsed());
    assert!(seen[3] == 0 && seen[..3].iter().all(|count| *count > 0), "queued, processing, delayed, absent: {seen:?}");
    drop(loops.unwrap().stop());
}

#[test]
fn a_known_key_is_never_absent() {
    is_never_absent(WorkQueue::builder());
}

#[test]
fn a_known_key_is_never_absent_in_shards_with_groups() {
    is_never_absent(WorkQueue::builder().shards(4).fair_by(|key| *key).max_processing_per_group(1));
}

#[test]
#[cfg(feature = "lock-free")]
fn a_known_key_is_never_absent_in_a_lock_free_queue() {
    is_never_absent(WorkQueue::builder().lock_free().measure(true));
}

#[cfg(feature = "lock-free")]
mod slow {
    use super::*;

    /// A key whose clone waits, which a list of delayed keys makes under the lock.
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Slow(u32);

    const SLOW: u32 = 9;
    static IS_CLONED: AtomicBool = AtomicBool::new(false);
    static MAY_GO_ON: AtomicBool = AtomicBool::new(false);

    impl Clone for Slow {
        fn clone(&self) -> Self {
            if self.0 == SLOW {
                IS_CLONED.store(true, Ordering::SeqCst);
                while !MAY_GO_ON.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            }
            Self(self.0)
        }
    }

    /// While a look waits for the lock of the records, the key may change. Its word and its records are then read anew, together.
    #[test]
    fn a_key_is_never_absent_after_a_wait() {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().lock_free().clock(clock).driver(Driver::Manual).build();
        queue.add_after(Slow(SLOW), Duration::MAX);
        for _ in 0..20 {
            IS_CLONED.store(false, Ordering::SeqCst);
            MAY_GO_ON.store(false, Ordering::SeqCst);
            queue.add_after(Slow(0), SEC);
            time.advance(SEC);
            thread::scope(|scope| {
                scope.spawn(|| queue.inspect().delayed_keys());
                while !IS_CLONED.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                scope.spawn(|| queue.turn());
                thread::sleep(Duration::from_millis(5)); // so that the turn probably waits first
                let look = scope.spawn(|| queue.inspect().key(&Slow(0)));
                thread::sleep(Duration::from_millis(5));
                MAY_GO_ON.store(true, Ordering::SeqCst);
                let activity = look.join().unwrap().activity;
                assert!(matches!(activity, KeyActivity::Delayed | KeyActivity::Queued), "{activity:?}");
            });
            queue.get().unwrap().done();
        }
    }
}

/// The text of the last error stays until a run succeeds, and a requeue with options keeps it, too: of errors, of reasons to give up, and
/// of panics. The oldest goes first.
#[test]
fn the_last_error_is_kept_until_a_success() {
    let queue = WorkQueue::<String>::builder().on_panic(keyqueue::OnPanic::Retry).build();
    let workers = queue.workers().keep_errors(3).max_retries(0).build();
    let last = |key: &str| queue.inspect().key(key).last_error;
    let run = |keys: &[&str], result: fn(&str) -> Outcome| {
        queue.add_all(keys.iter().map(|key| (*key).to_owned()));
        let mut left = keys.len();
        let mut work = std::pin::pin!(workers.run_async(async |item: &keyqueue::Item<'_, String>| {
            left -= 1;
            result(item)
        }));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while !queue.is_empty() || queue.processing_len() > 0 {
            assert!(work.as_mut().poll(&mut context).is_pending());
        }
    };
    run(&["a"], |_| Outcome::failed("refused"));
    assert_eq!(last("a").as_deref(), Some("refused"));
    assert!(queue.inspect().key("a").to_string().ends_with("; the last error: refused"));
    run(&["b"], |_| Outcome::GiveUp("gone".into()));
    run(&["c"], |_| std::panic::resume_unwind(Box::new("at last")));
    assert_eq!((last("b").as_deref(), last("c").as_deref()), (Some("gone"), Some("the handler panicked: at last")));
    run(&["a"], |_| Outcome::Retry);
    assert_eq!(last("a").as_deref(), Some("refused"), "a retry without an error has no other text");
    run(&["b"], |_| Outcome::failed("gone again"));
    let later = |_: &str| Outcome::RequeueWith(keyqueue::AddOptions::new().after(Duration::from_secs(3600)));
    run(&["b"], later);
    run(&["d"], |_| Outcome::failed("é".repeat(1000)));
    assert_eq!(last("a"), None, "the oldest of four");
    assert_eq!((last("b").as_deref(), last("d")), (Some("gone again"), Some("é".repeat(512))));
    for (key, outcome) in [
        ("b", (|_| Outcome::Success) as fn(&str) -> Outcome),
        ("c", |_| Outcome::Cooldown(Duration::ZERO)),
        ("d", |_| Outcome::RequeueAfter(Duration::from_secs(3600))),
    ] {
        assert!(last(key).is_some());
        run(&[key], outcome);
        assert_eq!(last(key), None, "{key}");
    }
}
