//! A debounce with an end: calls move the deadline of a key back, but not beyond `at_most` after the first of them.
//!
//! What any history of calls does is compared with the plain queue of `reference/`. Here is each row of the method's docs, with times that one
//! can follow.

mod support {
    pub(crate) mod manual;
}

use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, Added, DelayConflict, MockClock, WorkQueue, WorkQueueBuilder};
use std::time::Duration;
use support::manual::{manual, pairs};

const KEY: u32 = 1;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Quiet for 200 ms, but within a second.
const QUIET: AddOptions = AddOptions::new().after(ms(200)).conflict(DelayConflict::Replace).at_most(ms(1000));

/// A queue, and the time since its beginning.
struct Scene {
    queue: WorkQueue<u32>,
    time: MockClock,
    now: Duration,
}

impl Scene {
    fn new() -> Self {
        Self::of(WorkQueue::builder())
    }

    fn of(builder: WorkQueueBuilder<u32>) -> Self {
        let (builder, time) = manual(builder);
        Self { queue: builder.build(), time, now: Duration::ZERO }
    }

    fn at(&mut self, millis: u64) -> &WorkQueue<u32> {
        self.time.advance(ms(millis) - self.now);
        self.now = ms(millis);
        self.queue.turn();
        &self.queue
    }

    /// An event at each of these times.
    fn events(&mut self, times: impl IntoIterator<Item = u64>) {
        times.into_iter().for_each(|at| assert_eq!(self.at(at).add_with(KEY, QUIET), Added::Delayed, "{at}"));
    }

    /// The deadline of the key.
    fn due(&self) -> Option<u64> {
        let delayed = pairs(self.queue.inspect().delayed_keys());
        delayed.first().map(|(_, left)| (self.now + *left).as_millis() as u64)
    }
}

#[test]
fn a_key_that_is_never_quiet_comes_in_time() {
    let builders = || {
        let builder = WorkQueue::builder;
        [builder(), builder().shards(4), builder().fair_by(|key| *key % 2), builder().shards(4).fair_by(|key| *key % 2)]
    };
    for builder in builders() {
        let mut scene = Scene::of(builder);
        scene.events([0, 100, 200]);
        assert_eq!(scene.due(), Some(400), "it is quiet");
        scene.events((300..1000).step_by(100));
        assert_eq!((scene.due(), scene.at(999).len(), scene.at(1000).len()), (Some(1000), 0, 1));
        // The next event begins anew, while the key is queued and while it is processed.
        scene.events([1100]);
        assert_eq!(scene.due(), Some(1300));
        scene.queue.get().unwrap().done();
        scene.events((1200..2100).step_by(100));
        assert_eq!(scene.due(), Some(2100));
    }
}

/// What ends the count of a key, so that the next event begins anew, and what does not.
#[test]
fn the_count_ends_with_the_delay() {
    type Call = fn(&WorkQueue<u32>);
    let calls: [(&str, Call, bool); 12] = [
        ("cancel", |queue| assert!(queue.cancel(&KEY)), true),
        ("remove", |queue| assert!(queue.remove(&KEY)), true),
        ("take_delayed", |queue| assert_eq!(queue.take_delayed().len(), 1), true),
        ("take_where", |queue| _ = queue.take_where(|key| *key == KEY), true),
        ("at once", |queue| _ = queue.add_with(KEY, AddOptions::new().conflict(DelayConflict::Replace)), true),
        ("at once, too", |queue| _ = queue.add_with(KEY, QUIET.at_most(Duration::ZERO)), true),
        ("add", |queue| _ = queue.add(KEY), false),
        ("an earlier date", |queue| _ = queue.add_after(KEY, ms(100)), false),
        ("another date", |queue| _ = queue.add_with(KEY, QUIET_FOREVER), false),
        ("keep", |queue| _ = queue.add_with(KEY, QUIET.conflict(DelayConflict::KeepExisting)), false),
        ("a run", |queue| (queue.add(KEY), queue.get().unwrap().succeed()).1, false),
        ("a requeue", |queue| _ = (queue.add(KEY), queue.get().unwrap().requeue_after(ms(50))), false),
    ];
    /// Without a bound.
    const QUIET_FOREVER: AddOptions = AddOptions::new().after(ms(200)).conflict(DelayConflict::Replace);
    for (name, call, ends) in calls {
        let mut scene = Scene::new();
        scene.events((0..1000).step_by(150)); // until 900
        assert_eq!(scene.due(), Some(1000));
        call(&scene.queue);
        scene.events([950]);
        assert_eq!(scene.due(), Some(if ends { 1150 } else { 1000 }), "{name}");
    }
}

/// Each call counts its own bound from the first one.
#[test]
fn bounds_may_differ() {
    let mut scene = Scene::new();
    scene.events([0]);
    for (at, at_most, due) in [(100, 250, 250), (150, 10_000, 350), (200, 300, 300), (210, 410, 410)] {
        assert_eq!(scene.at(at).add_with(KEY, QUIET.at_most(ms(at_most))), Added::Delayed);
        assert_eq!(scene.due(), Some(due), "{at}");
    }
    assert_eq!(scene.at(220).add_with(KEY, QUIET.at_most(Duration::MAX)), Added::Delayed);
    assert_eq!(scene.due(), Some(420), "no bound");
    // At a bound that is past the key is added at once, and so it is with a bound of zero.
    assert_eq!(scene.at(230).add_with(KEY, QUIET.at_most(ms(230))), Added::Queued);
    assert_eq!(scene.due(), None);
    assert_eq!(scene.queue.add_with(2, QUIET.at_most(Duration::ZERO)), Added::Queued);
    // A bound that never ends lets a delay never end.
    let never = QUIET.after(Duration::MAX).at_most(Duration::MAX);
    assert_eq!(scene.queue.add_with(3, never), Added::Delayed);
    assert_eq!((scene.at(1 << 40).turn(), scene.queue.delayed_len()), (0, 1));
}

/// Without a delay that could be moved back there is nothing to bound.
#[test]
fn without_replace_it_has_no_effect() {
    let add = |queue: &WorkQueue<u32>, options: AddOptions| queue.add_with(KEY, options.at_most(ms(1)));
    for conflict in [DelayConflict::EarliestWins, DelayConflict::KeepExisting] {
        let mut scene = Scene::new();
        assert_eq!(add(&scene.queue, QUIET.conflict(conflict)), Added::Delayed);
        assert_eq!(scene.due(), Some(200), "{conflict:?}");
        assert_eq!(scene.at(150).add_with(KEY, QUIET), Added::Delayed);
        assert_eq!(scene.due(), Some(350), "{conflict:?} begins no count");
    }
    let scene = Scene::new();
    assert_eq!(add(&scene.queue, AddOptions::new()), Added::Queued);
    // A holder's delay is a decision, each time.
    scene.queue.get().unwrap().requeue_with(QUIET.at_most(ms(1)));
    assert_eq!(scene.due(), Some(200));
}

/// The bound is shorter than the delay of the limiter, and the key counts as failed. A cool-down is longer than the bound.
#[test]
fn a_bound_meets_a_limiter_and_a_cool_down() {
    let mut scene = Scene::of(WorkQueue::builder().rate_limiter(ItemExponentialFailure::new(ms(5000), ms(9000))));
    scene.queue.add_with(KEY, QUIET.rate_limited());
    assert_eq!((scene.due(), scene.queue.num_requeues(&KEY)), (Some(1000), 1));
    assert_eq!(scene.at(1000).len(), 1);
    scene.queue.get().unwrap().cool_down(ms(3000));
    scene.events([1500]);
    assert_eq!(scene.due(), Some(4000), "a delay that ends earlier");
    scene.events([2600]);
    assert_eq!(scene.due(), Some(4000), "an add at once, because the bound is past");
    assert_eq!(scene.at(4000).len(), 1);
}
