//! The task that drives one member: it carries out the requests of [`Member`], feeds it with the answers and with what the watch says, and
//! tells the program what has changed.

use crate::error::FleetError;
use crate::gate::Gates;
use crate::owners::Owners;
use crate::protocol::member::{Answer, GateControl, Member, Notice, Refusal, Request, Step, Time};
use crate::protocol::record::{Record, TABLE, member_of};
use crate::shared::{Shared, Status};
use crate::store::{Change, Deleted, Store, StoreError, Stored, Watch, Written};
use std::future::Future;
use std::hash::Hash;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub(crate) struct Agent<K, S> {
    store: Arc<S>,
    shared: Arc<Shared<K>>,
    member: Member,
    /// How long a request may take before its outcome counts as unknown.
    patience: Duration,
    /// The longest sleep. The runtime's timers may not count the time of a suspend, the member's clock does.
    nap: Duration,
    watcher: JoinSet<()>,
    changes: mpsc::Receiver<Change>,
    owners: Owners,
    /// Since when the member leaves.
    leaving_since: Option<Time>,
}

type UnderWay = Pin<Box<dyn Future<Output = (Answer, Option<StoreError>)> + Send>>;

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: Store> Agent<K, S> {
    pub(crate) fn new(store: Arc<S>, shared: Arc<Shared<K>>, member: Member, lease: Duration) -> Self {
        let partitions = shared.gates.len();
        let (_, changes) = mpsc::channel(1);
        let mut agent = Self {
            store,
            shared,
            member,
            patience: lease / 6,
            nap: lease / 10,
            watcher: JoinSet::new(),
            changes,
            owners: Owners::new(partitions),
            leaving_since: None,
        };
        agent.list_anew(Duration::ZERO);
        agent
    }

    /// Runs until the member has left or is refused.
    pub(crate) async fn run(mut self) {
        let mut under_way: Option<UnderWay> = None;
        let mut writes_own = false;
        let queue = self.shared.queue.clone();
        let mut shut_down = pin!(queue.until_shutting_down());
        loop {
            if self.leave_hangs() {
                return self.end(Status::Left);
            }
            let mut pause = Duration::MAX;
            if under_way.is_none() {
                let now = self.shared.clock.now();
                let step = self.member.next(now, &mut &self.shared.gates);
                match step {
                    Step::Send(request) => {
                        writes_own = matches!(&request, Request::Write { value: Record::Member(_), .. });
                        under_way = Some(self.send(request));
                    }
                    Step::Wait(until) => pause = Duration::from_nanos(until.saturating_sub(now)),
                    Step::Left => return self.end(Status::Left),
                    Step::Refused(refusal) => {
                        let error = match refusal {
                            Refusal::NameTaken => FleetError::NameTaken { name: self.member.id().name.clone() },
                            Refusal::PartitionsDiffer(theirs) => {
                                FleetError::PartitionsDiffer { ours: self.shared.gates.len(), theirs }
                            }
                            Refusal::UnknownTable => {
                                let text = "the record owners cannot be read";
                                let error = self.shared.last_error.lock().take();
                                FleetError::Store(error.unwrap_or_else(|| StoreError::message(text)))
                            }
                        };
                        return self.end(Status::Refused(Arc::new(error)));
                    }
                }
            }
            self.publish();
            let pause = pause.min(self.nap).min(self.tell_overdue());
            let answer = async {
                match &mut under_way {
                    Some(request) => request.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                (answer, error) = answer => {
                    under_way = None;
                    match &error {
                        None => _ = self.shared.answers.fetch_add(1, Ordering::Relaxed),
                        Some(_) if writes_own => _ = self.shared.own_errors.fetch_add(1, Ordering::Relaxed),
                        Some(_) => {}
                    }
                    self.shared.note(&self.shared.requests_fail_since, error);
                    self.member.answered(answer, self.shared.clock.now(), &mut &self.shared.gates);
                }
                change = self.changes.recv() => match change {
                    Some(change) => self.observe(change),
                    None => {
                        let panicked = StoreError::message("the store's code has panicked in a watch");
                        self.shared.note(&self.shared.watch_fails_since, Some(panicked));
                        self.list_anew(self.nap); // a watch that panics each time must not be a hot loop
                    }
                },
                () = self.shared.wake.notified() => {
                    if self.shared.is_leaving() {
                        self.leave();
                    }
                }
                // Nobody processes what this member would keep.
                () = &mut shut_down, if self.leaving_since.is_none() => {
                    self.shared.leaving.store(true, Ordering::Release);
                    self.leave();
                }
                () = sleep(pause) => {}
            }
            if self.member.take_relist() {
                self.list_anew(Duration::ZERO);
            }
        }
    }

    fn leave(&mut self) {
        self.member.leave();
        self.leaving_since.get_or_insert(self.shared.clock.now());
    }

    /// Whether the member has tried to leave for long enough. Then it goes like one that was killed: others wait for its expiry.
    fn leave_hangs(&self) -> bool {
        let limits = &self.shared.limits;
        // Handlers are told after the timeout and stop within the grace. A lease is time enough to write the rest.
        let until = self.leaving_since.zip(limits.release).map(|(since, release)| since.saturating_add(release));
        until.is_some_and(|until| self.shared.clock.now() >= until.saturating_add(limits.grace + limits.lease))
    }

    /// Tells the handlers of releases that have taken longer than they may. Returns the time until the next one.
    fn tell_overdue(&mut self) -> Duration {
        let Some(timeout) = self.shared.limits.release else { return Duration::MAX };
        let (now, gates) = (self.shared.clock.now(), &self.shared.gates);
        let mut told = false;
        let next = self.owners.overdue(timeout, now, |partition| {
            gates.expel(partition);
            told = true;
        });
        if told {
            self.shared.lost.notify_waiters();
        }
        Duration::from_nanos(next.map_or(Time::MAX, |next| next.saturating_sub(now)))
    }

    fn send(&self, request: Request) -> UnderWay {
        let (store, patience) = (Arc::clone(&self.store), self.patience);
        Box::pin(async move {
            match timeout(patience, perform(&*store, request)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => (Answer::Unknown, Some(error)),
                Err(_) => (
                    Answer::Unknown,
                    Some(StoreError::message(format!("the store did not answer within {patience:?}"))),
                ),
            }
        })
    }

    fn observe(&mut self, change: Change) {
        match change {
            Change::All(records) => {
                let names = records.iter().filter_map(|(name, _)| member_of(name)).map(str::to_owned).collect();
                let has_table = records.iter().any(|(name, _)| name == TABLE);
                records.into_iter().for_each(|(name, stored)| self.observe_record(&name, &stored));
                self.member.observed_all(&names, self.shared.clock.now());
                if !has_table {
                    self.member.observed_no_table();
                }
            }
            Change::Put(name, stored) => self.observe_record(&name, &stored),
            Change::Deleted(name) if name == TABLE => self.member.observed_no_table(),
            Change::Deleted(name) => {
                if let Some(name) = member_of(&name) {
                    self.member.observed_deletion(name);
                }
            }
        }
    }

    fn observe_record(&mut self, name: &str, stored: &Stored) {
        if let Some((record, error)) = decode(name, stored) {
            error.into_iter().for_each(|error| self.shared.note_error(error));
            let (name, now) = (member_of(name).unwrap_or(name), self.shared.clock.now());
            self.member.observed(name, record, stored.version, now, &mut &self.shared.gates);
        }
    }

    /// Starts the watch again after a pause. It begins with all records.
    fn list_anew(&mut self, after: Duration) {
        self.watcher = JoinSet::new(); // ends the old one
        let (sender, changes) = mpsc::channel(64);
        self.changes = changes;
        let (store, shared, pause) = (Arc::clone(&self.store), Arc::clone(&self.shared), self.nap);
        // The member's own renewals are changes, three per lease: a watch that is silent for longer may be dead.
        let silence = pause * 10;
        self.watcher.spawn(async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            loop {
                let mut ended = None;
                match timeout(silence, store.watch()).await {
                    Err(_) => ended = Some(StoreError::message(format!("no watch began within {silence:?}"))),
                    Ok(Err(error)) => ended = Some(error),
                    Ok(Ok(mut watch)) => {
                        while let Ok(change) = timeout(silence, watch.next()).await {
                            match change {
                                Ok(change) => {
                                    shared.note(&shared.watch_fails_since, None);
                                    if sender.send(change).await.is_err() {
                                        return; // listed anew, or ended
                                    }
                                }
                                Err(error) => {
                                    ended = Some(error);
                                    break;
                                }
                            }
                        }
                    }
                }
                if ended.is_some() {
                    shared.note(&shared.watch_fails_since, ended);
                }
                sleep(pause).await;
            }
        });
    }

    /// Takes out the keys of partitions that are gone, and tells the program.
    fn publish(&mut self) {
        let notices = self.member.take_notices();
        let shared = &self.shared;
        if notices.iter().any(|notice| !matches!(notice, Notice::Acquired(_))) {
            // Before anything opens a gate again: only this task does.
            let taken = shared.queue.take_where(|key| shared.gates.is_closed(shared.partition(key)));
            let delayed = taken.delayed.iter().map(|delayed| &delayed.key);
            taken.queued.iter().chain(delayed).for_each(|key| shared.queue.forget(key));
        }
        let now = shared.clock.now();
        self.owners.update(&self.member, now, shared.gates.deadline());
        shared.stats.lock().copy_from(&self.owners, &self.member, &notices, now);
        shared.tell(&notices);
        if self.member.has_joined() {
            shared.status.send_if_modified(|status| {
                let joining = matches!(status, Status::Joining);
                if joining {
                    *status = Status::Joined;
                }
                joining
            });
        }
    }

    fn end(mut self, status: Status) {
        self.publish();
        self.shared.status.send_replace(status);
    }
}

/// However the task ends, also by a panic of the program's code: no key is handed out any more, and waiting callers are told.
impl<K, S> Drop for Agent<K, S> {
    fn drop(&mut self) {
        self.shared.gates.lose();
        self.shared.lost.notify_waiters();
        self.shared.hub.lock().end();
        self.shared.status.send_if_modified(|status| {
            let ended = matches!(status, Status::Left | Status::Refused(_));
            if !ended {
                *status = Status::Left;
            }
            !ended
        });
    }
}

/// The record, and an error if it cannot be read: the program is told, and the protocol counts it as a record of unknown content. `None` if
/// the name is of no record of the protocol.
fn decode(name: &str, stored: &Stored) -> Option<(Record, Option<StoreError>)> {
    Some(match Record::decode(name, &stored.value)? {
        Ok(record) => (record, None),
        Err(error) => (Record::Unknown, Some(StoreError::new(format!("the record {name} cannot be read"), error))),
    })
}

async fn perform<S: Store>(store: &S, request: Request) -> Result<(Answer, Option<StoreError>), StoreError> {
    let answer = match request {
        Request::Read { record } => {
            let stored = store.read(&record).await?;
            let read = stored.and_then(|stored| Some((decode(&record, &stored)?, stored.version)));
            let Some(((value, error), version)) = read else { return Ok((Answer::Read(None), None)) };
            return Ok((Answer::Read(Some((value, version))), error));
        }
        Request::Write { record, expected, value } => match store.write(&record, expected, &value.encode()).await? {
            Written::Done(version) => Answer::Written(version),
            Written::Conflict => Answer::Conflict,
        },
        Request::Overwrite { record, value } => loop {
            let expected = store.read(&record).await?.map(|stored| stored.version);
            if let Written::Done(version) = store.write(&record, expected, &value.encode()).await? {
                break Answer::Written(version);
            }
        },
        Request::Delete { record, expected } => match store.delete(&record, expected).await? {
            Deleted::Done => Answer::Deleted,
            Deleted::Conflict => Answer::Conflict,
        },
    };
    Ok((answer, None))
}

impl GateControl for &Gates {
    fn open(&mut self, partition: u32, token: u64) {
        Gates::open(self, partition, token);
    }

    fn close(&mut self, partition: u32) {
        Gates::close(self, partition);
    }

    fn expel(&mut self, partition: u32) {
        Gates::expel(self, partition);
    }

    fn is_empty(&self, partition: u32) -> bool {
        Gates::is_empty(self, partition)
    }

    fn set_deadline(&mut self, deadline: Time) {
        Gates::set_deadline(self, deadline);
    }

    fn lose(&mut self) {
        Gates::lose(self);
    }
}
