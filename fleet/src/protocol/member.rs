//! The protocol's steps for one member, without input and output: it is told the time, what the store says, and when a gate is empty,
//! and names the next request. At most one request is under way. `agent.rs` drives it with a store and a clock, and the model in
//! `model.rs` drives the same code through all orders of events.

use super::record::{Format, Highest, MemberId, MemberRecord, Owner, Record, TABLE, Table, member_record};
use super::rendezvous;
use crate::store::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

/// Nanoseconds of the member's clock.
pub(crate) type Time = u64;

/// The times that all members agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Timing {
    /// R: a member's deadline is the sending of its last successful renewal plus this.
    pub(crate) lease: Time,
    /// From one renewal to the next.
    pub(crate) renew_every: Time,
    /// D: a record that has not changed for this long is deleted.
    pub(crate) expiry: Time,
    /// From one confirmed renewal to the next: time beyond this does not count towards the expiry of other members' records. The store was
    /// away then, or this member was cut off, and the others may have been as well.
    pub(crate) longest_gap: Time,
    /// The pause after a request whose outcome is unknown.
    pub(crate) retry_after: Time,
    /// The first pause after another member was faster to write the table. It doubles with each conflict in a row, up to
    /// [`MOST_DOUBLINGS`] times. Members also take turns of this length to delete an expired record.
    pub(crate) conflict_pause: Time,
}

/// How often the pause after a conflict doubles: to 64 pauses at most, six hundredths of a lease by default.
const MOST_DOUBLINGS: u32 = 6;

/// The most turns that a member waits before it deletes an expired record.
const MOST_TURNS: u64 = 32;

/// A fault to build in, for the model and for `fleet-chaos`: each must be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(any(test, feature = "mutants")), allow(dead_code))]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub))]
#[doc(hidden)]
pub enum Mutant {
    /// Keys are handed out after the deadline.
    NoDeadline,
    /// A partition is released while handlers are inside.
    NoDrain,
    /// Records are deleted earlier than lease and grace allow.
    ShortExpiry,
    /// A partition is taken over without a look at what has changed.
    NoCompare,
    /// The deadline counts from the answer to a renewal.
    DeadlineFromAnswer,
}

/// The gates, as the protocol sees them.
pub(crate) trait GateControl {
    fn open(&mut self, partition: u32, token: u64);
    fn close(&mut self, partition: u32);
    /// Closes, and tells those inside to stop.
    fn expel(&mut self, partition: u32);
    fn is_empty(&self, partition: u32) -> bool;
    fn set_deadline(&mut self, deadline: Time);
    /// Closes all and sets the deadline to 0.
    fn lose(&mut self);
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Read {
        record: String,
    },
    /// Writes if the record is at this version (`None`: if there is none).
    Write {
        record: String,
        expected: Option<Version>,
        value: Record,
    },
    /// Writes whatever is there; only [`Mutant::NoCompare`] does.
    Overwrite {
        record: String,
        value: Record,
    },
    Delete {
        record: String,
        expected: Version,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Read(Option<(Record, Version)>),
    Written(Version),
    Deleted,
    /// The record is at another version; nothing was done.
    Conflict,
    /// Unreachable, or no answer in time: it may have been done, or may still be.
    Unknown,
}

/// What the program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    Acquired(u32),
    Released(u32),
    Lost(u32),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Request),
    /// Nothing until this time, or until something is observed.
    Wait(Time),
    /// The member has left.
    Left,
    Refused(Refusal),
}

/// Why a member cannot join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// Another process renews a record of this name.
    NameTaken,
    /// The table has this number of partitions.
    PartitionsDiffer(u32),
    /// The table cannot be read.
    UnknownTable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Partition {
    /// The gate is closed; as far as the member knows, it is not the owner.
    Closed,
    /// The member is the owner, and the gate is open.
    Open { token: u64 },
    /// The gate is closed, the member is still the owner: it releases when no handler is inside. It never opens this gate again without a
    /// new claim, which it makes if it should have the partition after all. A release whose answer was lost may be carried out at any time.
    Closing { token: u64 },
}

/// How a partition's owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It has renewed its record within the lease.
    Fresh,
    /// It has not: its deadline is reached, unless the watch is late.
    Stale,
    /// There is none, or it has been silent for D.
    None,
}

/// Another member's record, as seen last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Peer {
    /// `None`: this version cannot read it.
    record: Option<MemberRecord>,
    /// D: of the record, or, if that cannot be read, the longest that this member knows.
    expiry: Time,
    version: Version,
    /// When this member saw it change.
    since: Time,
    /// The same, and never set forward by anything but a change: for [`Stats`](crate::Stats).
    changed: Time,
    /// How often this member saw it being renewed.
    renewals: u64,
}

impl Peer {
    fn expires_at(&self) -> Time {
        self.since.saturating_add(self.expiry)
    }

    fn is_leaving(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.leaving)
    }

    /// A record that cannot be read may be of any incarnation.
    fn may_be(&self, incarnation: u64) -> bool {
        self.record.as_ref().is_none_or(|record| record.incarnation == incarnation)
    }
}

/// What the member knows of its own record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Own {
    Absent,
    Present {
        version: Version,
        renewals: u64,
        leaving: bool,
    },
    /// A write's outcome is unknown, or something was observed that may be old: read it.
    Unsure,
}

/// The request under way. Those that concern the own record carry its incarnation: the member may be lost before the answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Doing {
    WriteOwn {
        incarnation: u64,
        record: MemberRecord,
        sent: Time,
    },
    ReadOwn {
        incarnation: u64,
    },
    WriteTable(Table),
    /// With the creator and the revision of the table that was known.
    ReadTable(Option<(u64, u64)>),
    /// Reads whether the record of an owner that is not in sight is really gone.
    Check(MemberId),
    Expire {
        name: String,
        version: Version,
    },
    Retire {
        incarnation: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    timing: Timing,
    mutant: Option<Mutant>,
    id: MemberId,
    first_incarnation: u64,
    own: Own,
    /// The last state of the own record that the store has confirmed: its renewals and its version.
    confirmed: Option<(u64, Version)>,
    /// The record of another incarnation under the own name that was seen last, and since when. Kept when a list lacks it: it may lack a
    /// record that exists, such as a Lease without its label.
    namesake: Option<(Version, Time)>,
    renew_at: Time,
    /// When the store last confirmed a write of the own record, of any incarnation; at first, the beginning.
    reached_at: Option<Time>,
    /// Nothing is sent before, since a request's outcome was unknown.
    retry_at: Time,
    /// The number of times in a row that the table could not be written.
    conflicts: u32,
    /// Whether the store's records were listed once.
    listed: bool,
    /// Members by name. Under the own name: another incarnation.
    peers: BTreeMap<String, Peer>,
    table: Option<(Table, Version)>,
    table_is_old: bool,
    /// The table could not be read when the store was asked last. The member neither claims nor releases until it can be read.
    table_is_unknown: bool,
    /// The highest revision and token seen, for a table that was deleted by hand.
    highest: Highest,
    /// Owners whose records were in sight and are not any more: the time at which the last one would have expired.
    departed: BTreeMap<MemberId, Time>,
    /// Owners in the table whose records are gone. They never come back. Their partitions may be claimed from this time on: until then
    /// handlers may run, if a record was deleted by hand.
    gone: BTreeMap<MemberId, Time>,
    partitions: Vec<Partition>,
    /// The partitions that this member should have, until the members change.
    share: Option<Vec<bool>>,
    doing: Option<Doing>,
    leaving: bool,
    left: bool,
    refused: Option<Refusal>,
    /// A record changed without our seeing it: the watch may hang.
    relist: bool,
    notices: Vec<Notice>,
}

impl Member {
    pub(crate) fn new(name: &str, incarnation: u64, partitions: u32, timing: Timing, mutant: Option<Mutant>) -> Self {
        Self {
            timing,
            mutant,
            id: MemberId { name: name.to_owned(), incarnation },
            first_incarnation: incarnation,
            own: Own::Absent,
            confirmed: None,
            namesake: None,
            renew_at: 0,
            reached_at: None,
            retry_at: 0,
            conflicts: 0,
            listed: false,
            peers: BTreeMap::new(),
            table: None,
            table_is_old: true,
            table_is_unknown: false,
            highest: Highest::default(),
            departed: BTreeMap::new(),
            gone: BTreeMap::new(),
            partitions: vec![Partition::Closed; partitions as usize],
            share: None,
            doing: None,
            leaving: false,
            left: false,
            refused: None,
            relist: false,
            notices: Vec::new(),
        }
    }

    /// The next step, if no request is under way.
    pub(crate) fn next(&mut self, now: Time, gates: &mut impl GateControl) -> Step {
        debug_assert!(self.doing.is_none(), "one request at a time");
        if let Some(refusal) = self.refused {
            return Step::Refused(refusal);
        }
        if self.left || self.leaving && self.own == Own::Absent {
            self.left = true;
            return Step::Left;
        }
        if self.share.is_none() {
            self.compute_share();
        }
        if !self.table_is_unknown || self.leaving {
            self.close_unwanted(gates); // even if the store cannot be reached
        }
        if !self.listed {
            return Step::Wait(Time::MAX);
        }
        if now < self.retry_at {
            return Step::Wait(self.retry_at);
        }
        match self.next_doing(now, gates) {
            Some(doing) => {
                let request = self.request(&doing);
                self.doing = Some(doing);
                Step::Send(request)
            }
            None if self.refused.is_some() => self.next(now, gates),
            None => Step::Wait(self.wake_up_at(now)),
        }
    }

    fn next_doing(&mut self, now: Time, gates: &impl GateControl) -> Option<Doing> {
        self.reached_at.get_or_insert(now);
        // The own record first: the deadline depends on it, and so does what counts as silence of others.
        let incarnation = self.id.incarnation;
        match self.own {
            Own::Unsure => return Some(Doing::ReadOwn { incarnation }),
            Own::Present { renewals, leaving, .. } if now >= self.renew_at || leaving != self.leaving => {
                return Some(self.write_own(renewals + 1, now));
            }
            _ => {}
        }
        if self.table_is_old {
            self.table_is_old = false; // unless something is observed meanwhile
            return Some(Doing::ReadTable(self.table.as_ref().map(|(table, _)| (table.creator, table.revision))));
        }
        if self.table_is_unknown {
            if !self.has_been_in() {
                self.refused = Some(Refusal::UnknownTable);
            }
            // It is read again when the watch tells of it, and after the next renewal.
            return (self.leaving && self.owned() == 0).then_some(Doing::Retire { incarnation });
        }
        let Some((table, _)) = &self.table else {
            return Some(Doing::WriteTable(Table::new(incarnation, self.partitions.len() as u32, self.highest)));
        };
        if table.partitions as usize != self.partitions.len() {
            self.refused = Some(Refusal::PartitionsDiffer(table.partitions));
            return None;
        }
        match self.own {
            Own::Absent if !self.peers.contains_key(&self.id.name) => {
                return Some(self.write_own(0, now));
            }
            Own::Absent => {} // another incarnation of this name: it ends, or is refused, below
            _ => {
                if let Some(doing) = self.next_table(now, gates) {
                    return Some(doing);
                }
                self.conflicts = 0;
                if self.leaving && self.owned() == 0 {
                    return Some(Doing::Retire { incarnation });
                }
            }
        }
        let expired = self.peers.iter().find(|(name, peer)| now >= self.deletes_at(name, peer, now));
        expired.map(|(name, peer)| Doing::Expire { name: name.clone(), version: peer.version })
    }

    fn write_own(&self, renewals: u64, now: Time) -> Doing {
        let incarnation = self.id.incarnation;
        let (leaving, expiry) = (self.leaving, self.timing.expiry);
        let record = MemberRecord { v: Format, incarnation, renewals, leaving, expiry };
        Doing::WriteOwn { incarnation, record, sent: now }
    }

    /// Closes the gates of partitions that another member should have.
    fn close_unwanted(&mut self, gates: &mut impl GateControl) {
        for partition in 0..self.partitions.len() as u32 {
            if let Partition::Open { token } = self.partitions[partition as usize]
                && !self.wants(partition)
            {
                gates.close(partition);
                self.partitions[partition as usize] = Partition::Closing { token };
            }
        }
    }

    /// The table with what this member can release and claim now; or a look at an owner that may be gone.
    fn next_table(&self, now: Time, gates: &impl GateControl) -> Option<Doing> {
        let (old, _) = self.table.as_ref()?;
        let (mut releases, mut claims, mut check) = (Vec::new(), Vec::new(), None);
        for partition in 0..self.partitions.len() as u32 {
            match self.partitions[partition as usize] {
                Partition::Open { .. } => {}
                // Its own once more. It does not wait for the handlers inside: no other member has had the partition.
                Partition::Closing { .. } if self.wants(partition) => claims.push(partition),
                Partition::Closing { .. } => {
                    if gates.is_empty(partition) || self.mutant == Some(Mutant::NoDrain) {
                        releases.push(partition);
                    }
                }
                Partition::Closed if !self.wants(partition) => {}
                Partition::Closed => match old.owners.get(&partition) {
                    Some(owner) => match self.gone.get(&owner.member) {
                        Some(free_at) if now < *free_at => {}
                        Some(_) => claims.push(partition),
                        None if self.is_in_sight(&owner.member) => {}
                        None => check = Some(owner.member.clone()),
                    },
                    None => claims.push(partition),
                },
            }
        }
        if !releases.is_empty() || !claims.is_empty() {
            // More than the table's.
            let token = if claims.is_empty() { old.token } else { self.highest.token + 1 };
            let mut owners = old.owners.clone();
            releases.iter().for_each(|partition| _ = owners.remove(partition));
            for partition in claims {
                owners.insert(partition, Owner { member: self.id.clone(), token });
            }
            let (revision, rest) = (old.revision + 1, old.rest.clone());
            return Some(Doing::WriteTable(Table { revision, token, owners, rest, ..*old }));
        }
        check.map(Doing::Check)
    }

    fn request(&self, doing: &Doing) -> Request {
        let own = || member_record(&self.id.name);
        match doing {
            Doing::ReadOwn { .. } => Request::Read { record: own() },
            Doing::ReadTable(_) => Request::Read { record: TABLE.to_owned() },
            Doing::Check(id) => Request::Read { record: member_record(&id.name) },
            Doing::WriteOwn { record, .. } => {
                let expected = match self.own {
                    Own::Present { version, .. } => Some(version),
                    _ => None,
                };
                Request::Write { record: own(), expected, value: Record::Member(record.clone()) }
            }
            Doing::WriteTable(table) if self.mutant == Some(Mutant::NoCompare) => {
                Request::Overwrite { record: TABLE.to_owned(), value: Record::Table(table.clone()) }
            }
            Doing::WriteTable(table) => Request::Write {
                record: TABLE.to_owned(),
                expected: self.table.as_ref().map(|(_, version)| *version),
                value: Record::Table(table.clone()),
            },
            Doing::Expire { name, version } => Request::Delete { record: member_record(name), expected: *version },
            Doing::Retire { .. } => match self.own {
                Own::Present { version, .. } => Request::Delete { record: own(), expected: version },
                _ => unreachable!("a member retires that has a record"),
            },
        }
    }

    /// The answer to the request under way.
    pub(crate) fn answered(&mut self, answer: Answer, now: Time, gates: &mut impl GateControl) {
        let doing = self.doing.take().expect("an answer belongs to a request");
        if answer == Answer::Unknown {
            self.retry_at = now.saturating_add(self.timing.retry_after);
        }
        match doing {
            Doing::WriteOwn { incarnation, .. } | Doing::ReadOwn { incarnation } | Doing::Retire { incarnation }
                if incarnation != self.id.incarnation => {} // lost meanwhile
            Doing::WriteOwn { record, sent, .. } => match answer {
                Answer::Written(version) => {
                    self.own = Own::Present { version, renewals: record.renewals, leaving: record.leaving };
                    self.confirmed = Some((record.renewals, version));
                    self.renew_at = sent.saturating_add(self.timing.renew_every);
                    self.reached(now);
                    self.table_is_old |= self.table_is_unknown;
                    let from = if self.mutant == Some(Mutant::DeadlineFromAnswer) { now } else { sent };
                    gates.set_deadline(from.saturating_add(self.timing.lease));
                }
                _ => self.own = Own::Unsure,
            },
            Doing::ReadOwn { .. } => match answer {
                Answer::Read(Some((Record::Member(record), version)))
                    if record.incarnation == self.id.incarnation && self.is_own(record.renewals, version) =>
                {
                    self.confirmed = Some((record.renewals, version));
                    self.own = Own::Present { version, renewals: record.renewals, leaving: record.leaving };
                    self.renew_at = now; // this reading renews nothing
                }
                Answer::Read(other) => {
                    if let Some((record, version)) = other {
                        self.saw_peer(self.id.name.clone(), record.member(), version, now);
                    }
                    self.lose(gates);
                }
                _ => {}
            },
            Doing::WriteTable(table) => match answer {
                Answer::Written(version) => {
                    self.conflicts = 0;
                    self.saw_table(table, version, true, gates);
                }
                _ => {
                    self.table_is_old = true;
                    self.conflicts = (self.conflicts + 1).min(MOST_DOUBLINGS + 1);
                    self.retry_at = self.retry_at.max(now.saturating_add(self.conflict_pause()));
                }
            },
            Doing::ReadTable(known) => match answer {
                Answer::Read(Some((Record::Table(table), version))) => {
                    self.table_is_unknown = false;
                    // Another table, or an older one than this member knew before it asked: made or restored by hand.
                    if known.is_some_and(|(creator, revision)| creator != table.creator || revision > table.revision) {
                        self.lose_if_owner(gates);
                        self.table = None;
                    }
                    self.saw_table(table, version, true, gates);
                }
                Answer::Read(Some(_)) => self.table_is_unknown = true,
                Answer::Read(None) => {
                    self.table_is_unknown = false;
                    self.lose_if_owner(gates);
                    self.table = None;
                }
                _ => self.table_is_old = true,
            },
            Doing::Check(id) => {
                if let Answer::Read(found) = answer {
                    let mut is_gone = true;
                    if let Some((record, version)) = found {
                        let record = record.member();
                        is_gone = record.as_ref().is_some_and(|record| record.incarnation != id.incarnation);
                        if id.name != self.id.name {
                            self.saw_peer(id.name.clone(), record, version, now);
                        } else if !is_gone {
                            self.own = Own::Unsure;
                        }
                    }
                    if is_gone {
                        let free_at = self.free_at(&id, now);
                        self.gone.insert(id, free_at);
                    }
                }
            }
            Doing::Expire { name, version } => match answer {
                Answer::Deleted => {
                    if let Some(peer) = self.peers.get(&name).filter(|peer| peer.version == version) {
                        let (free_at, incarnation) = (peer.expires_at(), peer.record.as_ref().map(|it| it.incarnation));
                        self.depart(&name, 0);
                        if let Some(incarnation) = incarnation {
                            self.gone.insert(MemberId { name, incarnation }, free_at);
                        }
                    }
                }
                Answer::Conflict => {
                    // It has changed, or is gone, and we did not see it.
                    self.relist = true;
                    if let Some(peer) = self.peers.get_mut(&name) {
                        peer.since = now;
                    }
                }
                _ => {}
            },
            Doing::Retire { .. } => match answer {
                Answer::Deleted => {
                    gates.lose();
                    self.own = Own::Absent;
                    self.left = true;
                }
                _ => self.own = Own::Unsure,
            },
        }
    }

    /// The store's watch says that a record has this value now. It may be old, but not older than what it said before.
    pub(crate) fn observed(
        &mut self,
        name: &str,
        record: Record,
        version: Version,
        now: Time,
        gates: &mut impl GateControl,
    ) {
        match record {
            Record::Table(table) => {
                self.table_is_old |= self.table_is_unknown; // it may be readable again: ask the store
                self.saw_table(table, version, false, gates);
            }
            Record::Unknown if name == TABLE => self.table_is_old = true,
            // The answers to the own writes say more.
            Record::Member(record) if name == self.id.name && record.incarnation == self.id.incarnation => {}
            _ if name == self.id.name && self.own != Own::Absent => self.own = Own::Unsure,
            record => self.saw_peer(name.to_owned(), record.member(), version, now),
        }
    }

    /// The store's watch says that a member's record was deleted.
    pub(crate) fn observed_deletion(&mut self, name: &str) {
        if name == self.id.name && self.own != Own::Absent {
            self.own = Own::Unsure; // perhaps a record of an earlier incarnation
        }
        self.depart(name, 0);
    }

    /// A member's record is not in sight any more. Its handlers may run until it would have expired, and until `at_least`.
    fn depart(&mut self, name: &str, at_least: Time) {
        self.share = None;
        let Some(peer) = self.peers.remove(name) else { return };
        let free_at = peer.expires_at().max(at_least);
        let mut departs = |life: MemberId| {
            let known = self.departed.entry(life).or_default();
            *known = free_at.max(*known);
        };
        match (peer.record, &self.table) {
            (Some(record), _) => departs(MemberId { name: name.to_owned(), incarnation: record.incarnation }),
            // It was of one of the lives that are in the table.
            (None, Some((table, _))) => {
                let lives = table.owners.values().map(|owner| &owner.member).filter(|life| life.name == name);
                lives.cloned().for_each(departs);
            }
            (None, None) => {}
        }
    }

    /// The store's watch says that there is no table: it was deleted by hand, or this is old.
    pub(crate) fn observed_no_table(&mut self) {
        self.table_is_old = true;
    }

    /// The store's records were listed: members that are not among `names` are gone. Called after [`observed`](Self::observed) for each.
    pub(crate) fn observed_all(&mut self, names: &BTreeSet<String>, now: Time) {
        self.listed = true;
        let unseen = self.peers.iter().filter(|(name, _)| !names.contains(*name));
        // It may have been renewed since it was seen last.
        let unseen: Vec<_> = unseen.map(|(name, peer)| (name.clone(), now.saturating_add(peer.expiry))).collect();
        unseen.iter().for_each(|(name, expires_at)| self.depart(name, *expires_at));
        if self.own != Own::Absent && !names.contains(&self.id.name) {
            self.own = Own::Unsure;
        }
    }

    /// `record`: `None` if it cannot be read.
    fn saw_peer(&mut self, name: String, record: Option<MemberRecord>, version: Version, now: Time) {
        let longest = || self.longest_expiry();
        let expiry = record.as_ref().map_or_else(longest, |record| record.expiry);
        let mut seen = Peer { record, expiry, version, since: now, changed: now, renewals: 0 };
        let old = self.peers.get(&name);
        if old.is_none_or(|old| old.is_leaving() != seen.is_leaving()) {
            self.share = None;
        }
        let mut replaced = false;
        match old {
            Some(old) if old.version == version => return, // seen before: its time counts from then
            Some(old) => {
                let renewed = match (&old.record, &seen.record) {
                    (Some(old), Some(new)) => old.incarnation == new.incarnation && new.renewals > old.renewals,
                    (old, new) => old.is_none() && new.is_none(), // as far as this member can tell
                };
                seen.renewals = if renewed { old.renewals + 1 } else { 0 };
                replaced = seen.record.as_ref().is_some_and(|new| old.record.is_none() || !old.may_be(new.incarnation));
                // A record under the own name is a predecessor's, which was killed and may have sent one more renewal before; or an
                // earlier life of this member, of which the watch tells late; or else the record of a process that lives. (One that cannot
                // be read is perhaps edited by hand: that does not stop a member that has joined once.)
                let own_life = |record: &MemberRecord| self.is_own_life(record.incarnation);
                let harmless = seen.record.as_ref().map_or_else(|| self.has_been_in(), own_life);
                if name == self.id.name && seen.renewals > 1 && !harmless {
                    self.refused = Some(Refusal::NameTaken);
                }
            }
            None => {
                let known = self.namesake.filter(|(known, _)| name == self.id.name && *known == version);
                seen.since = known.map_or(now, |(_, since)| since);
            }
        }
        if replaced {
            self.depart(&name, 0);
        }
        if name == self.id.name {
            self.namesake = Some((seen.version, seen.since));
        }
        self.peers.insert(name, seen);
    }

    /// From when on partitions may be claimed of an owner whose record is gone. If it was deleted by hand, handlers may run until their
    /// deadline and the grace are over.
    fn free_at(&self, id: &MemberId, now: Time) -> Time {
        if id.name == self.id.name && self.is_own_life(id.incarnation) {
            return 0; // this process
        }
        // Of an owner that was never in sight, this member knows only that it has not renewed its record later than now.
        self.departed.get(id).copied().unwrap_or_else(|| now.saturating_add(self.longest_expiry()))
    }

    /// Whether it is this process's present incarnation, or an earlier one.
    fn is_own_life(&self, incarnation: u64) -> bool {
        incarnation.wrapping_sub(self.first_incarnation) <= self.id.incarnation.wrapping_sub(self.first_incarnation)
    }

    /// D of a member of which this one has read nothing.
    fn longest_expiry(&self) -> Time {
        self.peers.values().map(|peer| peer.expiry).fold(self.timing.expiry, Time::max)
    }

    /// The store has confirmed a renewal. The time since the last one counts as silence of others only up to a limit: if it was longer, the
    /// store was away, or this member was cut off.
    fn reached(&mut self, now: Time) {
        let gap = now.saturating_sub(self.reached_at.replace(now).unwrap_or(now));
        let missed = gap.saturating_sub(self.timing.longest_gap);
        if missed > 0 {
            self.peers.values_mut().for_each(|peer| peer.since = peer.since.saturating_add(missed).min(now));
        }
    }

    /// Brings the partitions in line with the table, unless it is older than the one that the member knows. `certain`: it is an answer,
    /// not from the watch.
    fn saw_table(&mut self, table: Table, version: Version, certain: bool, gates: &mut impl GateControl) {
        match &self.table {
            Some((known, _)) if known.creator == table.creator && known.revision >= table.revision => return,
            Some((known, _)) if known.creator != table.creator && !certain => {
                self.table_is_old = true; // deleted by hand and created again, or older: read it
                return;
            }
            _ => {}
        }
        self.highest.revision = self.highest.revision.max(table.revision);
        self.highest.token = self.highest.token.max(table.token);
        if table.partitions as usize != self.partitions.len() {
            self.table = Some((table, version)); // refused by `next`
            return;
        }
        for partition in 0..self.partitions.len() as u32 {
            let mine = table.owners.get(&partition).filter(|owner| owner.member == self.id).map(|owner| owner.token);
            let state = &mut self.partitions[partition as usize];
            // A closed gate opens for a claim, which has a higher token than what was to be handed over.
            let opens_above = match *state {
                Partition::Closed => 0,
                Partition::Closing { token } => token,
                Partition::Open { .. } => u64::MAX,
            };
            match (*state, mine) {
                (Partition::Open { token } | Partition::Closing { token }, Some(mine)) if token == mine => {}
                (Partition::Closed, None) => {}
                // A claim that was carried out late, while the member leaves: its record may be gone before it can close the gate again.
                (_, Some(token)) if token > opens_above && self.leaving => *state = Partition::Closing { token },
                (_, Some(token)) if token > opens_above => {
                    *state = Partition::Open { token };
                    gates.open(partition, token);
                    self.notices.push(Notice::Acquired(partition));
                }
                (Partition::Closing { .. }, None) => {
                    *state = Partition::Closed;
                    self.notices.push(Notice::Released(partition));
                }
                // The table was edited by hand, or a record was deleted by hand.
                (_, mine) => {
                    gates.expel(partition);
                    *state = mine.map_or(Partition::Closed, |token| Partition::Closing { token });
                    self.notices.push(Notice::Lost(partition));
                }
            }
        }
        self.gone.retain(|id, _| table.owners.values().any(|owner| owner.member == *id));
        self.departed.retain(|id, _| table.owners.values().any(|owner| owner.member == *id));
        self.table = Some((table, version));
    }

    /// The table was deleted by hand: another member may own the partitions already, so this one stops to work on them.
    fn lose_if_owner(&mut self, gates: &mut impl GateControl) {
        if self.owned() > 0 {
            self.lose(gates);
        }
    }

    /// The record is gone: others may own the partitions. The member starts again as a new incarnation.
    fn lose(&mut self, gates: &mut impl GateControl) {
        gates.lose();
        for partition in 0..self.partitions.len() as u32 {
            if mem::replace(&mut self.partitions[partition as usize], Partition::Closed) != Partition::Closed {
                self.notices.push(Notice::Lost(partition));
            }
        }
        if let Some((table, _)) = &self.table
            && table.owners.values().any(|owner| owner.member == self.id)
        {
            self.gone.insert(self.id.clone(), 0); // its own handlers are told, and its queue hands a key out once at a time
        }
        self.id.incarnation = self.id.incarnation.wrapping_add(1);
        self.own = Own::Absent;
        self.confirmed = None;
    }

    /// Whether a record of this incarnation is the one that the member has written. If not, a request that was repeated has created it again
    /// after it was deleted, with 0 renewals: the member is gone all the same. Another version alone says nothing of a record that was
    /// renewed: a Lease gets one when somebody adds a label.
    fn is_own(&self, renewals: u64, version: Version) -> bool {
        let Some((confirmed, at)) = self.confirmed else { return true };
        renewals > confirmed || renewals == confirmed && (confirmed > 0 || version == at)
    }

    fn is_in_sight(&self, id: &MemberId) -> bool {
        *id == self.id || self.peers.get(&id.name).is_some_and(|peer| peer.may_be(id.incarnation))
    }

    /// Whether this member should have the partition, as far as it knows the members.
    pub(crate) fn wants(&self, partition: u32) -> bool {
        !self.leaving && self.own != Own::Absent && self.share.as_ref().is_some_and(|share| share[partition as usize])
    }

    fn compute_share(&mut self) {
        let others = self.peers.iter().filter(|(name, peer)| **name != self.id.name && !peer.is_leaving());
        let names = || others.clone().map(|(name, _)| name.as_str()).chain([self.id.name.as_str()]);
        let partitions = 0..self.partitions.len() as u32;
        let share = partitions.map(|p| rendezvous::owner_of(p, names()) == Some(self.id.name.as_str())).collect();
        self.share = Some(share);
    }

    /// The pause after conflicts: between half and the whole of the doubled pause, so that members that collided once do not collide again.
    fn conflict_pause(&self) -> Time {
        let longest = self.timing.conflict_pause << self.conflicts.saturating_sub(1);
        let part = rendezvous::score(&self.id.name, self.conflicts) % 1024;
        longest / 2 + longest / 2 * part / 1024
    }

    /// When this member deletes the record of a silent one: after its expiry, and after the turns of the members that come before this one.
    /// Otherwise each of a hundred members would send a request that one of them has to send.
    /// Before it has joined it renews nothing, so it cannot tell members that are silent from a store that is away: it only waits for its
    /// name.
    fn deletes_at(&self, name: &str, peer: &Peer, now: Time) -> Time {
        if self.own == Own::Absent && name != self.id.name {
            return Time::MAX;
        }
        let expires_at = peer.expires_at();
        if now < expires_at || name == self.id.name {
            return expires_at; // this member waits for its name
        }
        expires_at.saturating_add(self.turn(name, now) * self.timing.conflict_pause)
    }

    /// The number of members that delete the record `name` before this one does. Each record has an order of its own.
    fn turn(&self, name: &str, now: Time) -> u64 {
        let rank =
            |member: &str| (rendezvous::score(member, 0) ^ rendezvous::score(name, 0), rendezvous::score(member, 1));
        let own = rank(&self.id.name);
        let alive = self.peers.iter().filter(|(_, peer)| now < peer.expires_at());
        let before = alive.filter(|(member, _)| **member != self.id.name && rank(member) < own).count();
        (before as u64).min(MOST_TURNS)
    }

    /// The earliest time at which there is something to do if nothing is observed.
    fn wake_up_at(&self, now: Time) -> Time {
        let renew_at = if self.own == Own::Absent { Time::MAX } else { self.renew_at };
        if self.table_is_unknown {
            return renew_at;
        }
        let free_at = self.gone.values().copied().filter(|free_at| *free_at > now).fold(renew_at, Time::min);
        self.peers.iter().map(|(name, peer)| self.deletes_at(name, peer, now)).fold(free_at, Time::min)
    }

    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }

    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    /// Whether the records should be listed anew.
    pub(crate) fn take_relist(&mut self) -> bool {
        mem::take(&mut self.relist)
    }

    pub(crate) fn id(&self) -> &MemberId {
        &self.id
    }

    #[cfg(test)]
    pub(crate) fn known_to_be_gone(&self) -> usize {
        self.gone.len()
    }

    /// Whether this member has joined once: it may have joined, been lost, and not be back yet.
    fn has_been_in(&self) -> bool {
        self.own != Own::Absent || self.id.incarnation != self.first_incarnation
    }

    pub(crate) fn has_joined(&self) -> bool {
        matches!(self.own, Own::Present { .. })
    }

    /// How a partition's owner is, as far as this member knows. `deadline`: this member's own.
    pub(crate) fn ownership(&self, partition: u32, now: Time, deadline: Time) -> Ownership {
        let owner = self.table.as_ref().and_then(|(table, _)| table.owners.get(&partition));
        let Some(id) =
            owner.map(|owner| &owner.member).filter(|id| self.is_in_sight(id) && !self.gone.contains_key(id))
        else {
            return Ownership::None;
        };
        let Timing { lease, expiry, .. } = self.timing;
        let renewed = match self.peers.get(&id.name) {
            Some(peer) if *id != self.id => peer.changed,
            _ => deadline.saturating_sub(lease),
        };
        match now.saturating_sub(renewed) {
            silence if silence >= expiry => Ownership::None,
            silence if silence >= lease => Ownership::Stale,
            _ => Ownership::Fresh,
        }
    }

    /// The number of partitions that are not closed.
    pub(crate) fn owned(&self) -> usize {
        self.partitions.iter().filter(|state| **state != Partition::Closed).count()
    }

    /// The number of partitions whose gates are open.
    pub(crate) fn open(&self) -> usize {
        self.partitions.iter().filter(|state| matches!(state, Partition::Open { .. })).count()
    }

    /// Whether a partition waits for its handlers.
    pub(crate) fn is_releasing(&self, partition: u32) -> bool {
        matches!(self.partitions[partition as usize], Partition::Closing { .. })
    }

    pub(crate) fn peers(&self) -> usize {
        self.peers.keys().filter(|name| **name != self.id.name).count()
    }
}
