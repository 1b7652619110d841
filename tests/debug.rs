//! The `Debug` output of limiters, futures and stops: what they are, how much they hold, and no key.

use keyqueue::rate_limiter::{
    Bucket, DedupingBucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, Step, WithMaxWait,
};
use keyqueue::{Clock, WorkQueue};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn limiters_show_their_settings_and_no_key() {
    let backoff = ItemExponentialFailure::new(SECOND, 4 * SECOND);
    backoff.when(&"secret");
    let shown = format!("{backoff:?}");
    assert_eq!(
        shown,
        "PerKey { schedule: Exponential { delays: [1s, 2s, 4s] }, served_only: false, tracked_len: 1, .. }"
    );

    let fast_slow = format!("{:?}", ItemFastSlow::<u8>::new(SECOND, 2 * SECOND, 3));
    assert!(fast_slow.contains("FastSlow { fast: 1s, slow: 2s, max_fast_attempts: 3 }"), "{fast_slow}");
    let step = format!("{:?}", Step::<u8>::new([(0, SECOND)]).served_only());
    assert!(step.contains("StepTable { rows: [(0, 1s)] }, served_only: true"), "{step}");

    let bucket = DedupingBucket::new(Bucket::with_clock(1.0, 1, Clock::mock().0));
    bucket.when(&"secret");
    let shown = format!("{bucket:?}");
    assert!(shown.starts_with("DedupingBucket { bucket: Bucket { limit: Some(Rate {"), "{shown}");
    assert!(shown.ends_with("tracked_len: 1 }"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");

    let both = MaxOf::<u8>::new(vec![Box::new(Bucket::new(1.0, 1)), Box::new(Bucket::new(2.0, 1))]);
    assert_eq!(format!("{both:?}"), "MaxOf { limiters: 2 }");
    assert!(format!("{:?}", WithMaxWait::new(both, SECOND)).ends_with("max: 1s }"));
}

#[test]
fn futures_show_what_they_wait_for() {
    let queue = WorkQueue::new();
    queue.add(7);
    let item = queue.get().unwrap();
    assert_eq!(format!("{:?}", queue.wait_idle_async()), "WaitIdle { .. }");
    assert_eq!(format!("{:?}", queue.shut_down_with_drain_async()), "ShutDownWithDrain { .. }");
    assert!(format!("{:?}", item.until_dirty()).starts_with("UntilDirty"));
    assert_eq!(format!("{:?}", queue.get_async()), "GetAsync { state: New, .. }");
}

#[test]
fn a_stop_shows_whether_it_is_stopped() {
    let stop = keyqueue::backoff::Stop::new();
    assert_eq!(format!("{:?}", stop.wait_async()), "StopWait { stop: Stop { stopped: false, waiters: 0 } }");
    stop.stop();
    assert_eq!(format!("{stop:?}"), "Stop { stopped: true, waiters: 0 }");
}
