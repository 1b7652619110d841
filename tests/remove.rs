//! `remove`, and look-ups by a type that is equivalent to the key's.
//!
//! Random calls are in `reference/`, races in `loom-tests/`.

use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{
    AddOptions, Added, Clock, Driver, Equivalent, MockClock, Priority, TryGetError, WorkQueue, WorkQueueBuilder,
};
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

fn builder<K: Hash + Eq + Clone + Send + Sync + 'static>() -> (WorkQueueBuilder<K>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual), time)
}

#[test]
fn failures_stay_counted() {
    let (builder, _) = builder();
    let queue = builder.build();
    queue.add_rate_limited(1);
    queue.add(1);
    assert!(queue.remove(&1));
    assert_eq!((queue.num_requeues(&1), queue.stats().failing, queue.len(), queue.delayed_len()), (1, 1, 0, 0));
    assert!(!queue.remove(&1), "failures are nothing to take back");
    queue.forget(&1);
    assert_eq!(queue.stats().failing, 0);
}

#[test]
fn the_last_key_ends_drains_and_idle_waits() {
    let (builder, _) = builder();
    let queue = builder.build();
    queue.add(1);
    queue.add_after(2, S);
    thread::scope(|scope| {
        let idle = scope.spawn(|| queue.wait_idle());
        while queue.stats().drainers == 0 {
            thread::yield_now();
        }
        assert!(queue.remove(&1) && queue.remove(&2));
        idle.join().unwrap();
    });
    queue.add(1);
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        while queue.stats().drainers == 0 {
            thread::yield_now();
        }
        assert!(queue.remove(&1), "after a shut-down");
        drain.join().unwrap();
    });
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
}

/// A getter waits after the shut-down for a key of a full group. The key is removed, so the getter returns.
#[test]
fn a_getter_that_waits_for_a_full_group_learns_of_the_end() {
    let queue = WorkQueue::builder().fair_by(|_: &u32| ()).max_processing_per_group(1).build();
    queue.add_all([1, 2]);
    let item = queue.get().unwrap();
    let mut getter = pin!(queue.get_async());
    let mut cx = Context::from_waker(Waker::noop());
    queue.shut_down();
    assert!(getter.as_mut().poll(&mut cx).is_pending(), "2 is queued");
    thread::scope(|scope| {
        let blocked = scope.spawn(|| queue.get().is_none());
        while queue.stats().waiters < 2 {
            thread::yield_now();
        }
        assert!(queue.remove(&2));
        assert!(blocked.join().unwrap());
    });
    assert!(matches!(getter.as_mut().poll(&mut cx), Poll::Ready(None)));
    drop(item);
}

/// The first removal in a long line moves its keys to the order; the order of the keys stays, and so do their times.
#[test]
fn keys_of_a_long_line_are_taken_back() {
    const KEYS: u32 = 5_000;
    for (shards, measure) in [(1, false), (1, true), (4, true)] {
        let (builder, time) = builder();
        let queue = builder.shards(shards).measure(measure).build();
        let mut expected = Vec::new();
        for key in 0..KEYS {
            queue.add(key);
            expected.push(key);
            if key % 500 == 499 {
                time.advance(S);
            }
        }
        queue.add_after(77, S);
        for key in (0..KEYS).filter(|key| key % 3 > 0) {
            assert!(queue.remove(&key), "{key}");
            assert!(!queue.remove(&key), "{key}");
        }
        expected.retain(|key| key % 3 == 0);
        assert_eq!(queue.add(1), Added::Queued);
        expected.push(1);
        assert_eq!((queue.len(), queue.delayed_len()), (expected.len(), 0));
        assert_eq!(queue.stats().oldest_queued, measure.then_some(10 * S));
        let mut handed_out: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        if shards > 1 {
            handed_out.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(handed_out, expected);
        let stats = queue.stats();
        assert_eq!((stats.taken, stats.depth(), stats.handed_out), (3333, 0, expected.len() as u64));
    }
}

#[test]
fn a_removed_key_forgets_its_priority() {
    let queue = WorkQueue::new();
    queue.add_with(1, AddOptions::new().priority(Priority::HIGH));
    queue.add(2);
    assert!(queue.remove(&1));
    queue.add(1);
    let item = queue.get().unwrap();
    assert_eq!((*item, item.priority()), (2, Priority::NORMAL));
    queue.add_with(2, AddOptions::new().priority(Priority::HIGH));
    assert!(queue.remove(&2));
    queue.add(2);
    item.done();
    let next = [queue.get().unwrap(), queue.get().unwrap()];
    assert_eq!(next.each_ref().map(|item| (**item, item.priority())), [(1, Priority::NORMAL), (2, Priority::NORMAL)]);
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pod(String, String);

#[derive(Clone, Copy, Hash)]
struct PodRef<'a>(&'a str, &'a str);

impl Equivalent<Pod> for PodRef<'_> {
    fn equivalent(&self, pod: &Pod) -> bool {
        (self.0, self.1) == (&pod.0, &pod.1)
    }
}

impl From<PodRef<'_>> for Pod {
    fn from(PodRef(namespace, name): PodRef<'_>) -> Self {
        Self(namespace.into(), name.into())
    }
}

/// A limiter that the queue cannot replace: it is called.
struct External(ItemExponentialFailure<Pod>);

impl RateLimiter<Pod> for External {
    fn when(&self, pod: &Pod) -> Duration {
        self.0.when(pod)
    }

    fn forget(&self, pod: &Pod) {
        self.0.forget(pod);
    }

    fn num_requeues(&self, pod: &Pod) -> usize {
        self.0.num_requeues(pod)
    }
}

#[test]
fn a_pair_of_strings_is_found_by_a_pair_of_slices() {
    for external in [false, true] {
        for shards in [1, 4] {
            let (mut builder, _) = builder();
            if external {
                builder = builder.rate_limiter(External(ItemExponentialFailure::new(S, 8 * S)));
            }
            let queue = builder.shards(shards).build();
            let dns = PodRef("kube-system", "dns");
            queue.add_rate_limited(dns.into());
            queue.add_rate_limited(PodRef("kube-systemd", "ns").into());
            queue.add_rate_limited(dns.into());
            assert_eq!(queue.num_requeues(&dns), 2);
            assert!(queue.cancel(&dns));
            assert!(!queue.cancel(&dns));
            queue.add(dns.into());
            assert!(queue.remove(&dns));
            assert_eq!((queue.len(), queue.delayed_len(), queue.num_requeues(&dns)), (0, 1, 2));
            queue.forget(&dns);
            assert_eq!((queue.num_requeues(&dns), queue.num_requeues(&Pod::from(dns))), (0, 0));
        }
    }
}
