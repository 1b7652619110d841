//! What a member does when its store, its clock, its handlers or other members are in trouble.

use crate::common::{builder, clock, join, millis, seconds, within};
use keyqueue::WorkQueue;
use keyqueue_fleet::store::{Deleted, MemoryStore, Store, StoreError, Stored, Version, Watch, Written};
use keyqueue_fleet::{Event, Fleet, FleetError, LeaseClock, NotAllowed, OwnedPermit, Unhealthy};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A store that counts requests, takes 5 ms for each, and can refuse.
#[derive(Clone)]
struct Troubled {
    store: MemoryStore,
    down: Arc<AtomicBool>,
    /// Refuses one of this many requests, 0: none. Which ones, is drawn: if every third one failed, a member that repeats three requests
    /// until all succeed would do so for ever.
    refuses_one_in: Arc<AtomicU64>,
    random: Arc<Mutex<fastrand::Rng>>,
    requests: Arc<AtomicU64>,
    deletions: Arc<AtomicU64>,
    /// Members' records cannot be written.
    read_only: Arc<AtomicBool>,
    /// The number of watches that panic.
    panics: Arc<AtomicU64>,
    watches: Arc<AtomicU64>,
    /// Watches fail, requests do not.
    watch_down: Arc<AtomicBool>,
}

impl Default for Troubled {
    fn default() -> Self {
        Self {
            store: MemoryStore::new(),
            down: Arc::default(),
            refuses_one_in: Arc::default(),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(1))),
            requests: Arc::default(),
            deletions: Arc::default(),
            read_only: Arc::default(),
            panics: Arc::default(),
            watches: Arc::default(),
            watch_down: Arc::default(),
        }
    }
}

impl Troubled {
    async fn request(&self) -> Result<(), StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(millis(5)).await;
        let one_in = self.refuses_one_in.load(Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) || one_in > 0 && self.random.lock().unwrap().u64(..one_in) == 0 {
            return Err(StoreError::message("the store is down"));
        }
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

struct TroubledWatch {
    watch: <MemoryStore as Store>::Watch,
    troubled: Troubled,
}

impl Watch for TroubledWatch {
    async fn next(&mut self) -> Result<keyqueue_fleet::store::Change, StoreError> {
        let panics = &self.troubled.panics;
        #[allow(deprecated, reason = "its new name is newer than Rust 1.85")]
        if panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            panic!("the store's code panics");
        }
        while self.troubled.down.load(Ordering::Relaxed) {
            tokio::time::sleep(millis(50)).await;
        }
        if self.troubled.watch_down.load(Ordering::Relaxed) {
            return Err(StoreError::message("the watch fails"));
        }
        self.watch.next().await
    }
}

impl Store for Troubled {
    type Watch = TroubledWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        self.request().await?;
        self.store.read(record).await
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        self.request().await?;
        if record.starts_with("member-") && self.read_only.load(Ordering::Relaxed) {
            return Err(StoreError::message("you may not write"));
        }
        self.store.write(record, expected, value).await
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        self.request().await?;
        self.store.delete(record, expected).await
    }

    async fn watch(&self) -> Result<TroubledWatch, StoreError> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) {
            return Err(StoreError::message("the store is down"));
        }
        Ok(TroubledWatch { watch: self.store.watch().await?, troubled: self.clone() })
    }
}

async fn alone(store: &Troubled) -> Fleet<u64> {
    let fleet = join(store, "a").await.unwrap();
    within(seconds(1), || fleet.stats().owned == 16).await;
    fleet
}

/// An outage shorter than the expiry: the member works until its deadline, and again when the store is back. It has lost nothing.
#[tokio::test(start_paused = true)]
async fn a_member_works_until_its_deadline_while_the_store_is_down() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    let permit = fleet.enter(&1).unwrap();
    store.down.store(true, Ordering::Relaxed);
    let down = Instant::now();
    tokio::time::sleep(seconds(6)).await;
    let stats = fleet.stats();
    assert!(!permit.is_lost() && fleet.enter(&2).is_ok(), "in the 6th second");
    assert!(stats.time_to_deadline > seconds(0) && stats.time_to_deadline <= seconds(4), "{stats:?}");
    assert!(stats.store_errors > 0 && stats.last_store_error.unwrap().contains("the store is down"));
    let lost = permit.lost();
    tokio::time::timeout(seconds(5), lost).await.unwrap();
    assert!(down.elapsed() <= seconds(10) + millis(300), "{:?}", down.elapsed());
    assert_eq!(fleet.enter(&2).unwrap_err(), NotAllowed::Late);
    assert_eq!(fleet.stats().time_to_deadline, seconds(0));
    assert_eq!(fleet.stats().late, 1);
    store.down.store(false, Ordering::Relaxed);
    within(seconds(2), || fleet.enter(&2).is_ok()).await;
    assert_eq!((fleet.stats().lost, fleet.stats().owned), (0, 16));
}

/// One replica loses the store, the other does not: its partitions move after the expiry, its keys are taken out, its handlers are told.
#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_reach_the_store_is_replaced_and_told_when_it_can() {
    let memory = MemoryStore::new();
    let cut_off = Troubled { store: memory.clone(), ..Troubled::default() };
    let a = alone(&cut_off).await;
    let b = join(&memory, "b").await.unwrap();
    within(seconds(1), || b.stats().owned > 0 && a.stats().owned + b.stats().owned == 16).await;
    let mut events = a.events();
    let had: Vec<Event> = events.next_many().await;
    let key = (0..).find(|key| a.owns(key)).unwrap();
    assert!(a.add(key).is_mine());
    let permit = a.enter(&key).unwrap();
    cut_off.down.store(true, Ordering::Relaxed);
    let took = within(seconds(20), || b.stats().owned == 16).await;
    assert!(took >= seconds(10) + seconds(2), "not before the deadline and the grace: {took:?}");
    assert!(permit.is_lost());
    let token = b.enter(&key).unwrap().token();
    assert!(token > permit.token());
    assert_eq!(a.stats().owned, had.len(), "it does not know yet");
    drop(permit);
    cut_off.down.store(false, Ordering::Relaxed);
    within(seconds(20), || a.stats().lost == had.len() as u64).await;
    assert!(a.queue().is_empty(), "the keys are another member's");
    let mut lost: Vec<Event> = events.next_many().await;
    lost.retain(|event| matches!(event, Event::Lost(_)));
    assert_eq!(lost.len(), had.len());
    within(seconds(20), || a.stats().owned > 0 && a.stats().owned + b.stats().owned == 16).await;
}

/// Ten members; the store is away for longer than the expiry, and comes back for one after the other. Nobody is evicted but the one that
/// has died.
#[tokio::test(start_paused = true)]
async fn an_outage_that_is_longer_than_the_expiry_evicts_only_members_that_have_died() {
    // The time of the outage, until when all have the store again, and how many requests are refused then.
    for (outage, spread, refuses) in [(9, 1, 0), (14, 1, 0), (20, 0, 0), (20, 1, 0), (20, 5, 3), (120, 5, 3)] {
        let case = format!("outage of {outage} s, spread over {spread} s, one in {refuses} refused");
        let memory = MemoryStore::new();
        let stores: Vec<Troubled> =
            (0..10).map(|_| Troubled { store: memory.clone(), ..Troubled::default() }).collect();
        let mut fleets = Vec::new();
        for (i, store) in stores.iter().enumerate() {
            *store.random.lock().unwrap() = fastrand::Rng::with_seed(i as u64);
            let member = Fleet::builder(store.clone()).member(format!("pod-{i}")).partitions(256).clock(clock());
            fleets.push(member.build(WorkQueue::<u64>::new()).await.unwrap());
        }
        within(seconds(20), || shared_out(&fleets)).await;
        tokio::time::sleep(millis(4321)).await;
        stores.iter().for_each(|store| store.down.store(true, Ordering::Relaxed));
        tokio::time::sleep(seconds(2)).await;
        fleets.pop(); // it dies
        tokio::time::sleep(seconds(outage - 2)).await;
        for store in &stores {
            store.down.store(false, Ordering::Relaxed);
            store.refuses_one_in.store(refuses, Ordering::Relaxed);
            tokio::time::sleep(millis(spread * 100)).await;
        }
        let lost = |fleets: &[Fleet<u64>]| fleets.iter().map(|fleet| fleet.stats().lost).sum::<u64>();
        let took = within(seconds(30), || shared_out(&fleets)).await;
        tokio::time::sleep(seconds(30)).await;
        within(seconds(5), || shared_out(&fleets)).await;
        assert_eq!(lost(&fleets), 0, "{case}");
        println!("{case}: the dead one's partitions have owners {took:?} after the outage");
        assert!(took <= seconds(15) + seconds(2), "{case}: {took:?}");
    }
}

/// The machine sleeps for a minute in the middle of a handler: the member sees at once that it is late, before any request.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_a_member_hands_out_nothing_until_it_has_renewed() {
    let store = Troubled::default();
    let slept = Arc::new(AtomicU64::new(0));
    let (awake, sum) = (clock_nanos(), slept.clone());
    let suspended = LeaseClock::new(move || awake() + sum.load(Ordering::Relaxed));
    let fleet = builder(&store, "a").clock(suspended).build(WorkQueue::<u64>::new()).await.unwrap();
    within(seconds(1), || fleet.stats().owned == 16).await;
    let permit = fleet.enter(&1).unwrap();
    slept.store(seconds(60).as_nanos() as u64, Ordering::Relaxed);
    assert!(permit.is_lost());
    assert_eq!(fleet.enter(&1).unwrap_err(), NotAllowed::Late);
    assert_eq!(fleet.stats().time_to_deadline, seconds(0));
    // No member has deleted its record, so it goes on with the same partitions.
    within(seconds(2), || fleet.enter(&1).is_ok()).await;
    assert_eq!(fleet.stats().lost, 0);
}

/// The process stands still in the middle of a handler, and what the handler waits for comes at the same moment: the handler goes no
/// further.
#[tokio::test(start_paused = true)]
async fn a_handler_is_not_polled_after_the_deadline() {
    let slept = Arc::new(AtomicU64::new(0));
    let (awake, sum) = (clock_nanos(), slept.clone());
    let suspended = LeaseClock::new(move || awake() + sum.load(Ordering::Relaxed));
    let store = Troubled::default();
    let fleet = builder(&store, "a").clock(suspended).build(WorkQueue::<u64>::new()).await.unwrap();
    within(seconds(1), || fleet.stats().serving == 16).await;
    let answer = Arc::new(Notify::new());
    let (started, passed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (answer.clone(), started.clone(), passed.clone());
    tokio::spawn(fleet.workers().build().run_async(async move |_| {
        let (answer, started, passed) = &counts;
        started.fetch_add(1, Ordering::Relaxed);
        answer.notified().await;
        passed.fetch_add(1, Ordering::Relaxed); // it would write what it has got an answer for
    }));
    fleet.add(1);
    within(seconds(1), || started.load(Ordering::Relaxed) == 1).await;
    store.down.store(true, Ordering::Relaxed);
    slept.store(seconds(60).as_nanos() as u64, Ordering::Relaxed);
    answer.notify_one();
    within(seconds(1), || fleet.stats().late > 0 || passed.load(Ordering::Relaxed) > 0).await;
    assert_eq!(passed.load(Ordering::Relaxed), 0);
    store.down.store(false, Ordering::Relaxed);
    within(seconds(5), || started.load(Ordering::Relaxed) == 2).await;
}

fn clock_nanos() -> impl Fn() -> u64 {
    let start = Instant::now();
    move || 1 + start.elapsed().as_nanos() as u64
}

/// Whether each member sees all, and owns what it should own.
fn shared_out(fleets: &[Fleet<u64>]) -> bool {
    let stats: Vec<_> = fleets.iter().map(Fleet::stats).collect();
    stats.iter().all(|stats| stats.members == fleets.len() && stats.owned == stats.wanted)
        && stats.iter().map(|stats| stats.owned).sum::<usize>() == 256
}

/// Sixty replicas of a deployment start at the same moment.
#[tokio::test(start_paused = true)]
async fn sixty_members_that_start_at_once_do_not_storm_the_store() {
    let store = Troubled::default();
    let start = Instant::now();
    let mut joining = tokio::task::JoinSet::new();
    for i in 0..60 {
        let store = store.clone();
        let member = Fleet::builder(store).member(format!("pod-{i}")).partitions(256).clock(clock());
        joining.spawn(async move { member.build(WorkQueue::<u64>::new()).await.unwrap() });
    }
    let mut fleets = joining.join_all().await;
    within(seconds(20), || shared_out(&fleets)).await;
    let (took, requests) = (start.elapsed(), store.requests());
    println!("60 members: {took:?}, {requests} requests");
    assert!(took < seconds(3), "{took:?}");
    assert!(requests < 1500, "{requests} requests, 25 per member");
    // One disappears: one or two delete its record, not 59.
    store.deletions.store(0, Ordering::Relaxed);
    fleets.pop();
    within(seconds(20), || shared_out(&fleets)).await;
    let deletions = store.deletions.load(Ordering::Relaxed);
    assert!((1..=4).contains(&deletions), "{deletions} deletions of one record");
}

/// The code of a store panics in a watch: the member begins another watch.
#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_begun_again() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    let before = store.watches.load(Ordering::Relaxed);
    store.panics.store(1, Ordering::Relaxed);
    within(seconds(10), || store.watches.load(Ordering::Relaxed) > before).await;
    let b = join(&store, "b").await.unwrap();
    within(seconds(20), || b.stats().owned > 0 && fleet.stats().owned + b.stats().owned == 16).await;
    assert_eq!(fleet.stats().lost, 0);
}

/// It panics each time: the member begins ten watches per lease, not as many as the processor can do, says so, and goes on to renew.
#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_each_time_is_begun_again_after_a_pause() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    store.panics.store(20, Ordering::Relaxed);
    let took = within(seconds(60), || store.panics.load(Ordering::Relaxed) == 0).await;
    assert!(took >= seconds(19), "20 watches in {took:?}");
    let stats = fleet.stats();
    assert!(stats.last_store_error.unwrap().contains("panicked"));
    assert!(stats.time_to_deadline > seconds(6) && stats.store_errors >= 19 && stats.lost == 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_a_third_of_all_requests_is_good_enough() {
    let store = Troubled::default();
    store.refuses_one_in.store(3, Ordering::Relaxed);
    let mut fleets = Vec::new();
    for name in ["a", "b", "c"] {
        fleets.push(join(&store, name).await.unwrap());
    }
    let owned = |fleets: &[Fleet<u64>]| fleets.iter().map(|fleet| fleet.stats().owned).sum::<usize>();
    within(seconds(20), || owned(&fleets) == 16 && fleets.iter().all(|fleet| fleet.stats().owned > 0)).await;
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(owned(&fleets), 16);
    assert!(fleets.iter().all(|fleet| fleet.stats().lost == 0));
    tokio::time::timeout(seconds(20), fleets.pop().unwrap().leave()).await.unwrap();
    within(seconds(20), || owned(&fleets) == 16).await;
}

/// A handler panics, another one hangs: the first one holds nothing up, and the second one is seen.
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_holds_up_only_its_partition_and_is_seen() {
    let memory = MemoryStore::new();
    let a = join(&memory, "a").await.unwrap();
    within(seconds(1), || a.stats().owned == 16).await;
    let (hangs, panics) = (1_u64, (2..).find(|key| a.partition(key) != a.partition(&1)).unwrap());
    for _ in 0..2 {
        let workers = a.workers().build();
        tokio::spawn(workers.run_async(async move |key| {
            assert!(**key != panics, "this handler panics");
            std::future::pending::<()>().await;
        }));
    }
    a.add(hangs);
    a.add(panics);
    within(seconds(5), || a.queue().stats().processing == 1 && a.queue().stats().panics > 0).await;
    let late = tokio::time::timeout(seconds(30), a.leave()).await;
    assert!(late.is_err(), "a leave waits for the handler: put a timeout around it");
    assert_eq!((a.stats().owned, a.stats().releasing), (1, 1));
    let b = join(&memory, "b").await.unwrap();
    within(seconds(5), || b.stats().owned == 15).await;
    // The process exits.
    drop(a);
}

/// A handler that hangs is told after the time that a release may take, and the member leaves in order.
#[tokio::test(start_paused = true)]
async fn after_the_release_timeout_handlers_are_dropped_and_a_leave_ends() {
    let memory = MemoryStore::new();
    let a = builder(&memory, "a").release_timeout(seconds(3)).build(WorkQueue::<u64>::new()).await.unwrap();
    let b = join(&memory, "b").await.unwrap();
    within(seconds(1), || a.stats().owned + b.stats().owned == 16 && a.stats().releasing == 0).await;
    let hangs = (0..).find(|key| a.owns(key)).unwrap();
    let started = Arc::new(AtomicBool::new(false));
    let start = started.clone();
    tokio::spawn(a.workers().build().run_async(async move |_| {
        start.store(true, Ordering::Relaxed);
        std::future::pending::<()>().await;
    }));
    a.add(hangs);
    within(seconds(1), || started.load(Ordering::Relaxed)).await;
    let start = Instant::now();
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.leave().await }
    });
    tokio::time::sleep(millis(2900)).await;
    assert_eq!((a.stats().releasing, b.stats().owned), (1, 15));
    assert_eq!(a.health(), Ok(()), "it may still wait");
    leaving.await.unwrap();
    assert!((seconds(3)..millis(3100)).contains(&start.elapsed()), "{:?}", start.elapsed());
    within(millis(100), || b.stats().serving == 16).await;
    assert!(memory.read("member-a").await.unwrap().is_none() && a.queue().is_empty());
}

/// A handler that does not stop when it is told: its partition is not handed over, and the leave ends like a kill.
#[tokio::test(start_paused = true)]
async fn a_leave_ends_though_a_handler_does_not_stop() {
    let memory = MemoryStore::new();
    let a = builder(&memory, "a").release_timeout(seconds(3)).build(WorkQueue::<u64>::new()).await.unwrap();
    let b = join(&memory, "b").await.unwrap();
    within(seconds(1), || a.stats().owned + b.stats().owned == 16 && a.stats().releasing == 0).await;
    let permit = a.enter(&(0..).find(|key| a.owns(key)).unwrap()).unwrap();
    let start = Instant::now();
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.leave().await }
    });
    permit.lost().await;
    assert!((seconds(3)..millis(3100)).contains(&start.elapsed()), "{:?}", start.elapsed());
    tokio::time::sleep(seconds(3)).await; // the timeout and the grace are over
    assert!(matches!(a.health(), Err(Unhealthy::ReleaseHangs { waited }) if waited > seconds(5)), "{:?}", a.health());
    leaving.await.unwrap();
    assert!((seconds(15)..seconds(17)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!((a.health(), b.stats().owned), (Err(Unhealthy::Left), 15));
    let took = within(seconds(20), || b.stats().serving == 16).await;
    assert!(took > seconds(10), "after the record has expired: {took:?}");
}

/// The key that a handler has given to a job, and what the job holds.
struct Job {
    key: u64,
    permit: OwnedPermit<u64>,
}

/// Workers whose handlers give each key to a job and wait; the jobs are sent here.
fn jobs(fleet: &Fleet<u64>, then: fn()) -> (JoinSet<()>, mpsc::UnboundedReceiver<Job>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let sender = sender.clone();
        workers.spawn(fleet.workers().build().run_async(async move |held| {
            _ = sender.send(Job { key: *held.key(), permit: held.owned_permit() });
            then();
            std::future::pending::<()>().await;
        }));
    }
    (workers, receiver)
}

/// A handler is dropped at the deadline and what it has spawned works on: the key is not handed out again until that has ended.
#[tokio::test(start_paused = true)]
async fn a_key_has_one_handler_while_a_spawned_job_has_a_permit() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    let (_workers, mut jobs) = jobs(&fleet, || {});
    fleet.add(1);
    let job = jobs.recv().await.unwrap();
    assert!(!job.permit.is_lost() && job.permit.partition() == fleet.partition(&1));
    store.down.store(true, Ordering::Relaxed);
    tokio::time::timeout(seconds(11), job.permit.lost()).await.unwrap();
    store.down.store(false, Ordering::Relaxed);
    within(seconds(2), || fleet.enter(&1).is_ok()).await;
    fleet.add(1);
    fleet.add(2);
    assert_eq!(jobs.recv().await.unwrap().key, 2);
    let twice = tokio::time::timeout(seconds(60), jobs.recv()).await;
    assert!(twice.is_err(), "two jobs of a key");
    drop(job);
    assert_eq!(jobs.recv().await.unwrap().key, 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_retried_after_a_panic_while_a_spawned_job_has_a_permit() {
    let fleet = alone(&Troubled::default()).await;
    let (_workers, mut jobs) = jobs(&fleet, || panic!("this handler panics"));
    fleet.add(1);
    let job = jobs.recv().await.unwrap();
    let twice = tokio::time::timeout(seconds(60), jobs.recv()).await;
    assert!(twice.is_err() && fleet.queue().stats().panics == 0);
    drop(job);
    assert_eq!(jobs.recv().await.unwrap().key, 1);
    assert_eq!(fleet.queue().stats().panics, 1);
}

/// The same in threads.
#[tokio::test(start_paused = true)]
async fn a_thread_waits_for_a_job_that_has_a_permit() {
    let fleet = alone(&Troubled::default()).await;
    let (sender, jobs) = std::sync::mpsc::channel();
    fleet
        .workers()
        .spawn(2, move |held| _ = sender.send(Job { key: *held.key(), permit: held.owned_permit() }))
        .unwrap();
    fleet.add(1);
    let job = jobs.recv().unwrap();
    fleet.add(1);
    assert!(jobs.recv_timeout(millis(100)).is_err(), "two jobs of a key");
    drop(job);
    assert_eq!(jobs.recv().unwrap().key, 1);
    fleet.queue().shut_down();
}

/// A handler is dropped, as the hand-over takes too long, or its loop is. The job that it has spawned is told, and its partition waits
/// for it.
#[tokio::test(start_paused = true)]
async fn a_partition_is_not_handed_over_while_a_spawned_job_has_a_permit() {
    for loops_end in [false, true] {
        let memory = MemoryStore::new();
        let a = builder(&memory, "a").release_timeout(seconds(3)).build(WorkQueue::<u64>::new()).await.unwrap();
        let b = join(&memory, "b").await.unwrap();
        within(seconds(1), || a.stats().owned + b.stats().owned == 16 && a.stats().releasing == 0).await;
        let (mut workers, mut jobs) = jobs(&a, || {});
        a.add((0..).find(|key| a.owns(key)).unwrap());
        let job = jobs.recv().await.unwrap();
        if loops_end {
            workers.shutdown().await;
        }
        let leaving = tokio::spawn({
            let a = a.clone();
            async move { a.leave().await }
        });
        tokio::time::timeout(seconds(4), job.permit.lost()).await.unwrap();
        tokio::time::sleep(seconds(5)).await;
        assert_eq!(b.stats().owned, 15);
        drop(job);
        within(millis(100), || b.stats().serving == 16).await;
        leaving.await.unwrap();
    }
}

/// Each reason why a member is not healthy.
#[tokio::test(start_paused = true)]
async fn health_says_what_is_wrong() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    assert_eq!(fleet.health(), Ok(()));
    let worker = tokio::spawn(fleet.workers().build().run_async(async |_| {}));
    assert_eq!(fleet.health(), Ok(()));
    worker.abort();
    within(seconds(1), || fleet.health() == Err(Unhealthy::NoWorkers)).await;
    let _worker = tokio::spawn(fleet.workers().build().run_async(async |_| {}));
    assert_eq!(fleet.health(), Ok(()));

    store.down.store(true, Ordering::Relaxed);
    within(seconds(11), || fleet.health() == Err(Unhealthy::DeadlineReached)).await;
    tokio::time::sleep(seconds(5)).await;
    let sick = fleet.health().unwrap_err();
    assert!(matches!(&sick, Unhealthy::StoreFails { since, .. } if *since > seconds(10)), "{sick:?}");
    assert!(sick.to_string().ends_with("the store is down"), "{sick}");
    store.down.store(false, Ordering::Relaxed);
    within(seconds(5), || fleet.health() == Ok(())).await;

    fleet.queue().shut_down();
    assert_eq!(fleet.health(), Err(Unhealthy::QueueShutDown));
    within(seconds(1), || fleet.health() == Err(Unhealthy::Left)).await;
}

/// Only the watch fails: requests succeed.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_for_a_lease_is_unhealthy() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    store.watch_down.store(true, Ordering::Relaxed);
    within(seconds(30), || matches!(fleet.health(), Err(Unhealthy::StoreFails { .. }))).await;
    assert!(fleet.stats().time_to_deadline > seconds(0));
    store.watch_down.store(false, Ordering::Relaxed);
    within(seconds(10), || fleet.health() == Ok(())).await;
}

/// The store is down for all: nobody hands out a key, and each member says so.
#[tokio::test(start_paused = true)]
async fn partitions_are_unowned_when_no_member_can_renew() {
    let store = Troubled::default();
    let a = alone(&store).await;
    let b = join(&store, "b").await.unwrap();
    within(seconds(2), || b.stats().owned > 0 && a.stats().owned + b.stats().owned == 16).await;
    let numbers = || {
        let stats = a.stats();
        (stats.serving > 0, stats.stale, stats.unowned)
    };
    assert_eq!(numbers(), (true, 0, 0));
    store.down.store(true, Ordering::Relaxed);
    tokio::time::sleep(seconds(12)).await;
    assert_eq!(numbers(), (false, 16, 0), "since a lease");
    tokio::time::sleep(seconds(5)).await;
    assert_eq!(numbers(), (false, 0, 16), "since the expiry");
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(numbers(), (false, 0, 16));
    assert!(a.stats().unowned_for > seconds(60));
}

/// A store that never answers: joining fails after a lease, with what the store said.
#[tokio::test(start_paused = true)]
async fn joining_a_store_that_is_down_fails_after_a_lease() {
    let store = Troubled::default();
    store.down.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let error = join(&store, "a").await.unwrap_err();
    assert!(matches!(error, FleetError::Store(_)));
    assert_eq!(error.to_string(), "the fleet's store: the store is down");
    assert!((seconds(10)..seconds(21)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// A store that can be read, and that refuses to write the member's record: a missing permission, or a Lease that waits for a finalizer.
#[tokio::test(start_paused = true)]
async fn joining_without_the_permission_to_write_fails() {
    let store = Troubled::default();
    store.read_only.store(true, Ordering::Relaxed);
    let error = tokio::time::timeout(seconds(60), join(&store, "a")).await.expect("it gives up").unwrap_err();
    assert_eq!(error.to_string(), "the fleet's store: you may not write");
}

/// The grace is longer than the lease, so the predecessor's record outlives three leases, and the store refuses a third of all requests.
#[tokio::test(start_paused = true)]
async fn joining_waits_for_a_predecessor_over_a_store_that_refuses_now_and_then() {
    let store = Troubled::default();
    let times = || builder(&store, "a").lease(seconds(2)).grace(seconds(5));
    drop(times().build(WorkQueue::<u64>::new()).await.unwrap());
    store.refuses_one_in.store(3, Ordering::Relaxed);
    let start = Instant::now();
    times().build(WorkQueue::<u64>::new()).await.unwrap();
    assert!(start.elapsed() >= millis(8_750), "{:?}", start.elapsed());
}
