//! The handle of a member, and its builder.

use crate::agent::Agent;
use crate::clock::LeaseClock;
use crate::error::FleetError;
use crate::events::Events;
use crate::gate::{Entry, Gates, Refused};
use crate::hash::{StableHash, StableHasher, first_hash, last_hash};
use crate::protocol::member::{Member, Mutant, Time, Timing};
use crate::shared::{HashKey, Limits, Shared, Status};
use crate::stats::Stats;
use crate::store::Store;
use keyqueue::{InvalidArgument, WorkQueue};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// One replica of a program whose replicas share the keys of a queue. A cheap handle; clones refer to the same member.
///
/// When the last handle is dropped ([`Workers`](crate::Workers) hold one), the member stops at once without handing over, and others take its partitions after the
/// [expiry](FleetBuilder::lease): call [`leave`](Self::leave) before. Its tasks end, and so do the loops of
/// [`run_async`](crate::Workers::run_async) with their handlers. Threads end when the queue is shut down.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue_fleet::{Fleet, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), keyqueue_fleet::FleetError> {
/// let store = MemoryStore::new(); // or EtcdStore, KubeStore
/// let fleet = Fleet::builder(store).member("pod-1").build(WorkQueue::<String>::new()).await?;
///
/// let workers = fleet.workers().max_retries(15).build();
/// for _ in 0..8 {
///     tokio::spawn(workers.run_async(async |key| println!("{key} with token {}", key.token())));
/// }
///
/// let mut events = fleet.events();
/// while fleet.stats().owned < 256 {
///     for event in events.next_many().await {
///         println!("{event:?}"); // Acquired: list what its keys are about, and add them
///     }
/// }
/// assert!(fleet.add("a".to_owned()).is_mine());
/// fleet.queue().wait_idle_async().await;
/// fleet.leave().await;
/// # Ok(())
/// # }
/// ```
pub struct Fleet<K> {
    pub(crate) shared: Arc<Shared<K>>,
    _task: Arc<Task<K>>,
}

/// Ends the member's task with the last handle.
struct Task<K> {
    shared: Arc<Shared<K>>,
    handle: JoinHandle<()>,
}

impl<K> Drop for Task<K> {
    fn drop(&mut self) {
        // The task itself ends a little later.
        self.shared.gates.lose();
        self.handle.abort();
    }
}

/// What [`Fleet::add`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Added {
    /// This member owns the key's partition, and this is what its queue did. (A queue that is shut down rejects the key.)
    Mine(keyqueue::Added),
    /// Another member owns it, or no member does yet. The next owner lists its objects, and finds this one.
    NotMine,
}

impl Added {
    /// Whether this member owns the key's partition.
    #[must_use]
    pub fn is_mine(self) -> bool {
        matches!(self, Self::Mine(_))
    }

    /// Whether this member will hand the key out: it owns the partition, and its queue has
    /// [accepted](keyqueue::Added::is_accepted) the key.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        matches!(self, Self::Mine(added) if added.is_accepted())
    }
}

impl<K> Clone for Fleet<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), _task: Arc::clone(&self._task) }
    }
}

impl<K> fmt::Debug for Fleet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Fleet<()> {
    /// Begins the settings of a member. The store is where the members meet.
    pub fn builder<S: Store>(store: S) -> FleetBuilder<S> {
        FleetBuilder {
            store,
            name: None,
            partitions: 256,
            fnv_ranges: false,
            lease: Duration::from_secs(10),
            grace: Duration::from_secs(2),
            release_timeout: None,
            clock: LeaseClock::system(),
            mutant: None,
        }
    }
}

impl<K> Fleet<K> {
    /// Whether this member owns the key's partition, and hands out its keys.
    pub fn owns(&self, key: &K) -> bool {
        self.shared.gates.admits(self.partition(key))
    }

    /// The partition of a key.
    pub fn partition(&self, key: &K) -> u32 {
        self.shared.partition(key)
    }

    /// The partitions that this member owns, as the [events](Self::events) have said. Those that it is about to hand over count.
    pub fn owned(&self) -> Vec<u32> {
        self.shared.hub.lock().owned().iter().copied().collect()
    }

    /// The FNV-1a values of a partition, such as a `shardSelector` of Kubernetes (KEP-5866) names. `None`: the fleet was not built with
    /// [`fnv_ranges`](FleetBuilder::fnv_ranges), so a partition is no range.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn hashes(&self, partition: u32) -> Option<RangeInclusive<u64>> {
        let partitions = self.shared.gates.len();
        assert!(partition < partitions, "partition {partition} of {partitions}");
        self.shared.fnv_ranges.then(|| first_hash(partition, partitions)..=last_hash(partition, partitions))
    }

    /// The queue.
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.shared.queue
    }

    /// What happens to this member's partitions from now on, after [`Acquired`](crate::Event::Acquired) for each one that it owns already.
    pub fn events(&self) -> Events {
        self.shared.hub.lock().listen()
    }

    /// A snapshot of the member. The numbers of its partitions are from the last step of its task.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let now = shared.clock.now();
        let measured = shared.stats.lock().clone();
        let since = |since: Option<Time>| Duration::from_nanos(since.map_or(0, |since| now.saturating_sub(since)));
        let time_to_deadline = Duration::from_nanos(shared.gates.deadline().saturating_sub(now));
        Stats {
            member: measured.member,
            partitions: shared.gates.len(),
            members: measured.members,
            owned: measured.owned,
            serving: if time_to_deadline.is_zero() { 0 } else { measured.open },
            wanted: measured.wanted,
            unowned: measured.unowned,
            unowned_for: since(measured.unowned_since),
            stale: measured.stale,
            releasing: measured.releasing,
            releasing_for: since(measured.releasing_since),
            last_hand_over: measured.last_hand_over,
            longest_hand_over: measured.longest_hand_over,
            acquired: measured.acquired,
            released: measured.released,
            lost: measured.lost,
            refused: shared.refused.load(Ordering::Relaxed),
            late: shared.late.load(Ordering::Relaxed),
            time_to_deadline,
            store_errors: shared.errors.load(Ordering::Relaxed),
            last_store_error: shared.last_error.lock().as_ref().map(ToString::to_string),
        }
    }

    /// Asks for permission to process a key, for a loop of your own; [workers](Self::workers) do it for you. The permission lasts until
    /// it is dropped, or until it [is lost](Permit::is_lost).
    ///
    /// # Errors
    /// If another member owns the key's partition, or this member's deadline is reached.
    #[inline]
    pub fn enter(&self, key: &K) -> Result<Permit<'_, K>, NotAllowed> {
        self.shared.enter(key)
    }

    /// Hands everything over and leaves: closes all gates, waits for the handlers that run, releases all partitions and deletes the
    /// member's record, so that others need not wait for its expiry. Returns when that is done. The loops of
    /// [`run_async`](crate::Workers::run_async) end then.
    ///
    /// With a [`release_timeout`](FleetBuilder::release_timeout), it returns after that time, the grace and 1.1 leases at the latest. What
    /// could not be handed over by then, others take after the expiry of this member's record, as if the process had been killed.
    ///
    /// A member whose queue is [shut down](WorkQueue::shut_down) leaves by itself.
    ///
    /// # Cancel safety
    /// The member goes on to leave if the future is dropped. Without a `release_timeout`, the future does not return if the store cannot be
    /// reached or a handler hangs: put a timeout around it, and exit.
    pub async fn leave(&self) {
        self.shared.leaving.store(true, Ordering::Release);
        self.shared.wake.notify_one();
        self.shared.ended().await;
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Fleet<K> {
    /// Adds a key to the queue if this member owns its partition.
    ///
    /// Call it after the event has reached the store that you list upon [`Acquired`](crate::Event::Acquired), such as a reflector's: then
    /// either this call finds the partition owned, or the list finds the object.
    #[inline]
    pub fn add(&self, key: K) -> Added {
        if self.owns(&key) { Added::Mine(self.shared.queue.add(key)) } else { Added::NotMine }
    }

    /// Like [`add`](Self::add), with options.
    pub fn add_with(&self, key: K, options: keyqueue::AddOptions) -> Added {
        if self.owns(&key) { Added::Mine(self.shared.queue.add_with(key, options)) } else { Added::NotMine }
    }

    /// Configures workers that process the keys of this member's partitions, as [`WorkQueue::workers`] does.
    pub fn workers(&self) -> crate::WorkersBuilder<K> {
        crate::WorkersBuilder::new(self.clone())
    }
}

/// Why [`Fleet::enter`] gives no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAllowed {
    /// The key's partition is not owned by this member. Drop the key.
    NotMine,
    /// The member's deadline is reached: the store does not answer, or the process stood still. Try the key again later.
    Late,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMine => "another member owns the key's partition",
            Self::Late => "the member could not renew its record in time",
        })
    }
}

impl std::error::Error for NotAllowed {}

/// The permission to process a key of a partition. While it lives, the partition is not handed over.
pub struct Permit<'a, K> {
    pub(crate) shared: &'a Arc<Shared<K>>,
    pub(crate) entry: Entry,
}

impl<K> Shared<K> {
    #[inline]
    pub(crate) fn enter(self: &Arc<Self>, key: &K) -> Result<Permit<'_, K>, NotAllowed> {
        match self.gates.enter(self.partition(key), || self.clock.now()) {
            Ok(entry) => Ok(Permit { shared: self, entry }),
            Err((refused, last)) => {
                self.after_leaving(last);
                Err(match refused {
                    Refused::Closed => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        NotAllowed::NotMine
                    }
                    Refused::Late => {
                        self.late.fetch_add(1, Ordering::Relaxed);
                        NotAllowed::Late
                    }
                })
            }
        }
    }

    pub(crate) fn is_lost(&self, entry: Entry) -> bool {
        self.gates.is_lost(entry, self.clock.now())
    }

    /// Waits until the holder of an entry must stop.
    pub(crate) async fn lost(&self, entry: Entry) {
        // The runtime's timers may not count the time of a suspend, so it looks again now and then.
        const NAP: Duration = Duration::from_millis(250);
        loop {
            let lost = self.lost.notified();
            let now = self.clock.now();
            if self.gates.is_lost(entry, now) {
                return;
            }
            let left = Duration::from_nanos(self.gates.deadline().saturating_sub(now));
            tokio::select! {
                () = lost => {}
                () = sleep(left.clamp(Duration::from_millis(1), NAP)) => {}
            }
        }
    }
}

impl<K> Permit<'_, K> {
    /// The fencing token: it grows whenever the partition changes its owner. Send it along with each write; the receiver of the write
    /// refuses a token lower than one that it has seen. That alone protects from a process that was stopped in the middle of a handler.
    pub fn token(&self) -> u64 {
        self.entry.token
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.entry.partition
    }

    /// Whether the work must stop: the deadline is reached, the member was lost, or the hand-over of the partition takes longer than the
    /// [`release_timeout`](FleetBuilder::release_timeout). Another member may process the key after the grace.
    pub fn is_lost(&self) -> bool {
        self.shared.is_lost(self.entry)
    }

    /// Waits until the work must stop.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn lost(&self) {
        self.shared.lost(self.entry).await;
    }
}

impl<K> Drop for Permit<'_, K> {
    #[inline]
    fn drop(&mut self) {
        self.shared.after_leaving(self.shared.gates.leave(self.entry.partition));
    }
}

impl<K> fmt::Debug for Permit<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("partition", &self.partition())
            .field("token", &self.token())
            .field("lost", &self.is_lost())
            .finish()
    }
}

/// Settings of a [`Fleet`], from [`Fleet::builder`].
///
/// All members of a fleet must have the same settings, but for the name and the clock.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct FleetBuilder<S> {
    store: S,
    name: Option<String>,
    partitions: u32,
    fnv_ranges: bool,
    lease: Duration,
    grace: Duration,
    release_timeout: Option<Duration>,
    clock: LeaseClock,
    mutant: Option<Mutant>,
}

/// 64 bits that differ from process to process.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The most partitions: the table of owners is one record, and each step of a member visits all of them.
const MOST_PARTITIONS: u32 = 4096;
const SHORTEST_LEASE: Duration = Duration::from_millis(60);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl<S: Store> FleetBuilder<S> {
    /// The member's name, which no other member may have: the pod's or the host's name. Lower-case letters, digits, `-` and `.`, at most
    /// 63. By default `member-` and 16 random digits.
    ///
    /// A name that stays the same over a restart gets the same partitions again. After a kill the new process has to wait until the record
    /// of its predecessor expires.
    pub fn member(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Into how many partitions the keys are divided, 256 by default, at most 4096. Some ten per member are enough for even shares.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Makes a partition a range of FNV-1a values of the key's bytes, which [`Fleet::hashes`] tells: a watch of Kubernetes can ask for
    /// the objects of a partition (`shardSelector`, KEP-5866).
    ///
    /// Without this, the FNV-1a value is mixed before the partition is chosen. With it, names that differ only in their last two bytes
    /// mostly share a partition: all of `web-0` to `web-99` are in fewer than 10 of 256. So use it for keys whose bytes are random, such
    /// as UIDs: name these bytes with [`build_by`](Self::build_by).
    ///
    /// All members must agree. Members that do not agree find a key in different partitions, and then it has two handlers.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue_fleet::{Fleet, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), keyqueue_fleet::FleetError> {
    /// let fleet = Fleet::builder(MemoryStore::new())
    ///     .fnv_ranges()
    ///     .build_by(WorkQueue::<String>::new(), |uid, hasher| hasher.write(uid.as_bytes()))
    ///     .await?;
    /// assert_eq!(fleet.hashes(1), Some(0x0100_0000_0000_0000..=0x01ff_ffff_ffff_ffff));
    /// # fleet.leave().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fnv_ranges(mut self) -> Self {
        self.fnv_ranges = true;
        self
    }

    /// R, how long a renewal of the member's record allows it to hand out keys: 10 seconds by default, 60 ms to a day. It is renewed three
    /// times as often.
    ///
    /// The member's deadline is the moment at which the last successful renewal was sent, plus this. Others take its partitions if
    /// its record has not changed for 1.25 * (lease + [grace](Self::grace)): so a member that is killed is replaced after 15
    /// seconds by default.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The time within which handlers stop after the deadline, 2 seconds by default. Futures are dropped at the deadline, so that is the
    /// time until they yield; a thread is only [told](crate::Permit::is_lost), and must look.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a partition that is to be handed over waits for its handlers. After that they are told to stop, as at the deadline: async
    /// ones are dropped, threads [see](crate::Permit::is_lost) it. By default there is no such limit: only the program knows how long its
    /// handlers may take, and a change of members should not end one that does well.
    ///
    /// Without a limit, a handler that hangs keeps its partition from a member that should have it, and [`leave`](Fleet::leave) does not
    /// return. [`Stats::releasing_for`] shows it. A handler that does not stop when it is told keeps its partition all the same, and
    /// [`health`](Fleet::health) says so.
    pub fn release_timeout(mut self, timeout: Duration) -> Self {
        self.release_timeout = Some(timeout);
        self
    }

    /// The member's clock, for tests.
    pub fn clock(mut self, clock: LeaseClock) -> Self {
        self.clock = clock;
        self
    }

    /// Breaks the protocol, for tests of its tests.
    #[cfg(feature = "mutants")]
    #[doc(hidden)]
    pub fn mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.mutant = mutant;
        self
    }

    /// Joins the fleet. Returns when the member's record is written; partitions come afterwards, see [`Fleet::events`].
    ///
    /// The member's task runs on the tokio runtime of the caller. It must run at least every few seconds: handlers that block belong to
    /// threads of their own.
    ///
    /// # Errors
    /// If the arguments are not valid, the name is taken, the fleet has another number of partitions, or the store cannot be reached for
    /// the time of a lease, or refuses to write the member's record for three, or the queue is shut down.
    ///
    /// # Panics
    /// If it is not called from within a tokio runtime.
    pub async fn build<K>(self, queue: WorkQueue<K>) -> Result<Fleet<K>, FleetError>
    where
        K: StableHash + Hash + Eq + Clone + Send + Sync + 'static,
    {
        self.join(queue, Box::new(K::stable_hash)).await
    }

    /// Like [`build`](Self::build), with the bytes of a key that decide where it belongs: `|pod, hasher| hasher.write(pod.uid.as_bytes())`.
    ///
    /// # Errors
    /// See [`build`](Self::build).
    pub async fn build_by<K>(
        self,
        queue: WorkQueue<K>,
        hash: impl Fn(&K, &mut StableHasher) + Send + Sync + 'static,
    ) -> Result<Fleet<K>, FleetError>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        self.join(queue, Box::new(hash)).await
    }

    fn check(&self, name: &str) -> Result<(), FleetError> {
        let is_valid = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
        let ends_well = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let bytes = name.as_bytes();
        let refuse =
            |argument, value, why| Err(FleetError::InvalidArgument(InvalidArgument::new(argument, value, why)));
        if bytes.len() > 63
            || !bytes.iter().copied().all(is_valid)
            || !bytes.split(|c| *c == b'.').all(|part| ends_well(part.first()) && ends_well(part.last()))
        {
            let why = "1 to 63 lower-case letters, digits, '-' and '.' are allowed, a letter or a digit at both ends and around each '.'";
            return refuse("member", format!("{name:?}"), why);
        }
        if !(1..=MOST_PARTITIONS).contains(&self.partitions) {
            return refuse("partitions", self.partitions.to_string(), "it must be 1 to 4096");
        }
        if !(SHORTEST_LEASE..=LONGEST).contains(&self.lease) {
            return refuse("lease", format!("{:?}", self.lease), "it must be 60 ms to a day");
        }
        if self.grace > LONGEST {
            return refuse("grace", format!("{:?}", self.grace), "it must be a day at most");
        }
        Ok(())
    }

    async fn join<K>(self, queue: WorkQueue<K>, hash: HashKey<K>) -> Result<Fleet<K>, FleetError>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let name = self.name.clone().unwrap_or_else(|| format!("member-{:016x}", random()));
        self.check(&name)?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut expiry = (self.lease + self.grace) * 5 / 4;
        if self.mutant == Some(Mutant::ShortExpiry) {
            expiry = self.lease / 2;
        }
        let timing = Timing {
            lease: nanos(self.lease),
            renew_every: nanos(self.lease / 3),
            expiry: nanos(expiry),
            longest_gap: nanos(self.lease / 3 + self.lease / 30),
            retry_after: nanos(self.lease / 30),
            conflict_pause: nanos(self.lease / 1000),
        };
        let shared = Arc::new(Shared {
            queue,
            gates: Gates::new(self.partitions, self.mutant != Some(Mutant::NoDeadline)),
            clock: self.clock,
            limits: Limits {
                lease: nanos(self.lease),
                grace: nanos(self.grace),
                release: self.release_timeout.map(nanos),
            },
            hash,
            fnv_ranges: self.fnv_ranges,
            wake: Notify::new(),
            lost: Notify::new(),
            status: watch::Sender::new(Status::Joining),
            stats: Default::default(),
            refused: Default::default(),
            late: Default::default(),
            leaving: Default::default(),
            hub: Default::default(),
            last_error: Default::default(),
            errors: Default::default(),
            requests_fail_since: Default::default(),
            watch_fails_since: Default::default(),
            loops: Default::default(),
            had_loops: Default::default(),
            answers: Default::default(),
            own_errors: Default::default(),
        });
        let member = Member::new(&name, random(), self.partitions, timing, self.mutant);
        let mut status = shared.status.subscribe();
        let agent = Agent::new(Arc::new(self.store), Arc::clone(&shared), member, self.lease);
        let handle = tokio::spawn(agent.run());
        let fleet = Fleet { _task: Arc::new(Task { shared: Arc::clone(&shared), handle }), shared };
        fleet.joined(&mut status, self.lease).await?;
        Ok(fleet)
    }
}

impl<K> Fleet<K> {
    /// Waits until the member has joined. A store that answers nothing for as long as a lease is an error, and so is one that refuses to write
    /// the member's record in each of three leases; the record of a predecessor is not.
    async fn joined(&self, status: &mut watch::Receiver<Status>, lease: Duration) -> Result<(), FleetError> {
        let mut leases_of_refusals = 0;
        loop {
            match &*status.borrow_and_update() {
                Status::Joining => {}
                Status::Joined => return Ok(()),
                Status::Left => return Err(FleetError::Left),
                Status::Refused(error) => return Err(error.again()),
            }
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts = || (load(&self.shared.errors), load(&self.shared.answers), load(&self.shared.own_errors));
            let (errors, answers, refusals) = counts();
            tokio::select! {
                changed = status.changed() => if changed.is_err() { return Err(FleetError::Left) },
                () = sleep(lease) => {
                    leases_of_refusals = if counts().2 > refusals { leases_of_refusals + 1 } else { 0 };
                    if (leases_of_refusals >= 3 || counts().0 > errors && counts().1 == answers)
                        && let Some(error) = self.shared.last_error.lock().take()
                    {
                        return Err(FleetError::Store(error));
                    }
                }
            }
        }
    }
}
