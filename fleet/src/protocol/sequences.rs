//! Sequences of events that once went wrong, or could: each test drives the real [`Member`] step by step, and plays the store, the watch, the
//! clock and the handlers.

use super::member::{Answer, GateControl, Member, Notice, Ownership, Refusal, Request, Step, Time, Timing};
use super::record::{Format, Highest, MemberId, MemberRecord, Owner, Record, TABLE, Table, member_record};
use crate::store::Version;
use std::collections::{BTreeMap, BTreeSet};

const TIMING: Timing =
    Timing { lease: 1000, renew_every: 300, expiry: 1500, longest_gap: 310, retry_after: 10, conflict_pause: 8 };

#[derive(Default)]
struct Gates {
    open: BTreeMap<u32, u64>,
    /// Partitions with a handler inside.
    inside: BTreeSet<u32>,
    /// Partitions whose handlers were told to stop.
    expelled: BTreeSet<u32>,
    deadline: Time,
    losses: u32,
}

impl GateControl for Gates {
    fn open(&mut self, partition: u32, token: u64) {
        self.open.insert(partition, token);
    }

    fn close(&mut self, partition: u32) {
        self.open.remove(&partition);
    }

    fn expel(&mut self, partition: u32) {
        self.close(partition);
        self.expelled.insert(partition);
    }

    fn is_empty(&self, partition: u32) -> bool {
        !self.inside.contains(&partition)
    }

    fn set_deadline(&mut self, deadline: Time) {
        self.deadline = deadline;
    }

    fn lose(&mut self) {
        self.open.clear();
        self.deadline = 0;
        self.losses += 1;
    }
}

/// The member `a` and a store.
struct Stage {
    member: Member,
    gates: Gates,
    now: Time,
    records: BTreeMap<String, (Record, Version)>,
    versions: u64,
}

impl Stage {
    /// A member that has listed an empty store.
    fn new(partitions: u32) -> Self {
        let mut member = Member::new("a", 100, partitions, TIMING, None);
        member.observed_all(&BTreeSet::new(), 0);
        Self { member, gates: Gates::default(), now: 0, records: BTreeMap::new(), versions: 0 }
    }

    /// A member that has joined, and owns all partitions unless others are in sight.
    fn joined(partitions: u32) -> Self {
        let mut stage = Self::new(partitions);
        stage.settle();
        stage
    }

    /// The next request; a panic if there is none.
    fn request(&mut self) -> Request {
        match self.member.next(self.now, &mut self.gates) {
            Step::Send(request) => request,
            other => panic!("{other:?} instead of a request"),
        }
    }

    fn answer(&mut self, answer: Answer) {
        self.member.answered(answer, self.now, &mut self.gates);
    }

    fn put(&mut self, name: &str, record: Record) -> Version {
        self.versions += 1;
        self.records.insert(name.to_owned(), (record, Version(self.versions)));
        Version(self.versions)
    }

    /// What the store answers to a request.
    fn carry_out(&mut self, request: Request) -> Answer {
        let version = |name: &str| self.records.get(name).map(|(_, version)| *version);
        match request {
            Request::Read { record } => Answer::Read(self.records.get(&record).cloned()),
            Request::Write { record, expected, .. } if version(&record) != expected => Answer::Conflict,
            Request::Write { record, value, .. } | Request::Overwrite { record, value } => {
                Answer::Written(self.put(&record, value))
            }
            Request::Delete { record, expected } if version(&record) != Some(expected) => Answer::Conflict,
            Request::Delete { record, .. } => {
                self.records.remove(&record);
                Answer::Deleted
            }
        }
    }

    /// Carries out requests until the member has nothing to do. Returns what it waits for, and the number of requests.
    fn settle(&mut self) -> (Step, usize) {
        for requests in 0..100 {
            match self.member.next(self.now, &mut self.gates) {
                Step::Send(request) => {
                    let answer = self.carry_out(request);
                    self.answer(answer);
                }
                step => return (step, requests),
            }
        }
        panic!("the member does not come to an end");
    }

    /// The watch tells of another member's record, or of another incarnation of `a`.
    fn see_member(&mut self, name: &str, incarnation: u64, renewals: u64, leaving: bool) -> Version {
        let record = Record::Member(MemberRecord { v: Format, incarnation, renewals, leaving, expiry: TIMING.expiry });
        let version = self.put(&member_record(name), record.clone());
        self.member.observed(name, record, version, self.now, &mut self.gates);
        version
    }

    /// The watch tells of a record that cannot be read.
    fn see_unknown(&mut self, record: &str) {
        let version = self.put(record, Record::Unknown);
        let name = super::record::member_of(record).unwrap_or(record);
        self.member.observed(name, Record::Unknown, version, self.now, &mut self.gates);
    }

    /// Time passes, in steps of 10, and the member does what it has to do. Stops when `until` holds.
    fn pass_until(&mut self, until: impl Fn(&Self) -> bool) -> Time {
        for _ in 0..1000 {
            self.settle();
            if until(self) {
                return self.now;
            }
            self.now += 10;
        }
        panic!("not until {}", self.now);
    }

    /// Until the member has partition 0.
    fn pass_until_open(&mut self) -> Time {
        self.pass_until(|stage| stage.gates.open.contains_key(&0))
    }

    fn see_gone(&mut self, name: &str) {
        self.records.remove(&member_record(name));
        self.member.observed_deletion(name);
    }

    fn table(&self) -> Table {
        match &self.records[TABLE] {
            (Record::Table(table), _) => table.clone(),
            other => panic!("{other:?} is no table"),
        }
    }

    fn put_table(&mut self, table: Table) -> Version {
        self.put(TABLE, Record::Table(table))
    }

    /// The watch tells of the table that the store has.
    fn see_table(&mut self) {
        let (record, version) = self.records[TABLE].clone();
        self.member.observed(TABLE, record, version, self.now, &mut self.gates);
    }

    /// Another member, in the store and in sight, with a name for which `a` should not have partition 0.
    fn see_rival(&mut self) -> &'static str {
        const NAMES: [&str; 8] = ["b", "c", "d", "e", "f", "g", "h", "i"];
        let has_first = |name: &&str| super::rendezvous::owner_of(0, ["a", *name]) == Some(*name);
        let name = NAMES.into_iter().find(has_first).expect("one of them has a higher score");
        self.see_member(name, 7, 0, false);
        name
    }

    /// Another member, in sight, that owns partition 0. `a` has joined and should have it while `owner` is not in sight.
    fn see_owner() -> (Self, &'static str) {
        let mut stage = Self::joined(1);
        let owner = stage.see_rival();
        stage.settle();
        stage.put_table(stage.claim(owner, 7));
        stage.see_table();
        stage.now = 100;
        stage.see_member(owner, 7, 1, false);
        assert!(stage.gates.open.is_empty());
        (stage, owner)
    }

    fn claim(&self, name: &str, incarnation: u64) -> Table {
        let old = self.table();
        let mut owners = old.owners.clone();
        let member = MemberId { name: name.to_owned(), incarnation };
        owners.insert(0, Owner { member, token: old.token + 1 });
        Table { revision: old.revision + 1, token: old.token + 1, owners, ..old }
    }
}

#[test]
fn a_member_joins_an_empty_store_and_owns_all() {
    let mut stage = Stage::new(4);
    stage.now = 50;
    assert_eq!(stage.settle().0, Step::Wait(350), "the next renewal");
    assert_eq!(stage.gates.open.len(), 4);
    assert_eq!(stage.gates.deadline, 1050);
    assert!(stage.table().owners.values().all(|owner| owner.token == 1 && owner.member.incarnation == 100));
}

/// The deadline counts from the sending; a renewal without an answer does not move it.
#[test]
fn only_a_confirmed_renewal_moves_the_deadline_and_from_its_sending() {
    let mut stage = Stage::joined(1);
    stage.now = 300;
    let renewal = stage.request();
    stage.now = 450;
    let answer = stage.carry_out(renewal);
    stage.answer(answer);
    assert_eq!(stage.gates.deadline, 1300);
    stage.now = 600;
    let renewal = stage.request();
    stage.carry_out(renewal); // carried out, and the answer is lost
    stage.now = 700;
    stage.answer(Answer::Unknown);
    assert_eq!(stage.gates.deadline, 1300);
    assert_eq!(stage.member.next(705, &mut stage.gates), Step::Wait(710));
    stage.now = 710;
    assert_eq!(stage.request(), Request::Read { record: "member-a".to_owned() });
    let answer = stage.carry_out(Request::Read { record: "member-a".to_owned() });
    stage.answer(answer);
    assert_eq!(stage.gates.deadline, 1300, "a reading renews nothing");
    stage.settle();
    assert_eq!(stage.gates.deadline, 1710);
}

/// A claim whose answer was lost is carried out while the member leaves. It opens no gate, and is released before the record goes.
#[test]
fn a_late_claim_does_not_open_a_gate_of_a_member_that_leaves() {
    let mut stage = Stage::new(1);
    let claim = loop {
        match stage.request() {
            claim @ Request::Write { value: Record::Table(Table { token: 1, .. }), .. } => break claim,
            other => {
                let answer = stage.carry_out(other);
                stage.answer(answer);
            }
        }
    };
    stage.answer(Answer::Unknown);
    stage.member.leave();
    stage.now += 10;
    stage.carry_out(claim);
    stage.see_table();
    assert!(stage.gates.open.is_empty(), "two handlers: its record may be gone before the gate is closed again");
    assert_eq!(stage.settle().0, Step::Left);
    assert!(stage.gates.open.is_empty());
    assert!(stage.table().owners.is_empty(), "released before it has left");
    assert!(!stage.records.contains_key("member-a"));
}

/// A partition that is being handed over stays closed, also if the member should have it again before the release is carried out.
#[test]
fn a_closed_gate_opens_only_after_a_new_claim() {
    let mut stage = Stage::joined(1);
    stage.gates.inside.insert(0);
    let rival = stage.see_rival();
    assert_eq!(stage.settle().0, Step::Wait(300), "it waits for its handler");
    assert!(stage.gates.open.is_empty());
    stage.gates.inside.clear();
    let release = stage.request();
    stage.answer(Answer::Unknown);
    stage.see_gone(rival);
    stage.now = 20;
    // The table is as it was: the release is on its way.
    stage.see_table();
    assert_eq!(stage.request(), Request::Read { record: TABLE.to_owned() });
    let answer = stage.carry_out(Request::Read { record: TABLE.to_owned() });
    stage.answer(answer);
    assert!(stage.gates.open.is_empty(), "the release may still be carried out");
    stage.carry_out(release);
    for now in [40, 60] {
        stage.now = now; // its own release fails, and it pauses
        stage.settle();
    }
    assert_eq!(stage.gates.open, BTreeMap::from([(0, 2)]), "with a new token");
}

/// A replica came and went, and a handler of the partition that it should have had hangs: the owner claims the partition in place. The
/// handler goes on, and other keys of the partition are handed out.
#[test]
fn a_partition_that_is_wanted_again_opens_though_its_handler_hangs() {
    let mut stage = Stage::joined(1);
    stage.gates.inside.insert(0);
    let rival = stage.see_rival();
    assert_eq!(stage.settle().0, Step::Wait(300), "it waits for its handler");
    assert!(stage.gates.open.is_empty());
    stage.member.take_notices();
    stage.see_gone(rival);
    stage.settle();
    assert_eq!(stage.gates.open, BTreeMap::from([(0, 2)]), "with a higher token");
    assert_eq!(stage.table().owners[&0].token, 2);
    assert_eq!(stage.member.take_notices(), [Notice::Acquired(0)], "adds were refused meanwhile: list");
    assert!(stage.gates.expelled.is_empty(), "no other member has had the partition");
}

/// The answer to a release was lost, and the partition is claimed in place. Either the claim is carried out first, and the late release
/// fails; or the release is, the claim fails, and the partition is claimed as one without an owner.
#[test]
fn a_claim_in_place_and_a_late_release_do_not_both_succeed() {
    for release_first in [false, true] {
        let mut stage = Stage::joined(1);
        let rival = stage.see_rival();
        let release = stage.request();
        stage.answer(Answer::Unknown);
        stage.see_gone(rival);
        stage.now = 20;
        let read = stage.request();
        let answer = stage.carry_out(read);
        stage.answer(answer);
        let claim = stage.request();
        assert!(matches!(&claim, Request::Write { value: Record::Table(Table { token: 2, .. }), .. }), "{claim:?}");
        if release_first {
            assert!(matches!(stage.carry_out(release.clone()), Answer::Written(_)));
        }
        let answer = stage.carry_out(claim);
        assert_eq!(answer == Answer::Conflict, release_first);
        assert!(stage.gates.open.is_empty());
        stage.answer(answer);
        assert_eq!(stage.carry_out(release), Answer::Conflict);
        stage.settle();
        stage.now = 40; // after the pause
        stage.settle();
        assert_eq!(stage.gates.open, BTreeMap::from([(0, 2)]));
        assert_eq!(stage.table().owners[&0].token, 2);
    }
}

/// A claim in place whose answer was lost is carried out while the member leaves: no gate opens.
#[test]
fn a_late_claim_in_place_does_not_open_a_gate_of_a_member_that_leaves() {
    let mut stage = Stage::joined(1);
    stage.gates.inside.insert(0);
    let rival = stage.see_rival();
    stage.settle();
    stage.see_gone(rival);
    let claim = stage.request();
    stage.answer(Answer::Unknown);
    stage.member.leave();
    stage.carry_out(claim);
    stage.see_table();
    assert!(stage.gates.open.is_empty());
    stage.now = 20;
    stage.settle();
    assert!(stage.gates.open.is_empty() && stage.table().owners.contains_key(&0), "it waits for its handler");
    stage.gates.inside.clear();
    assert_eq!(stage.settle().0, Step::Left);
    assert!(stage.table().owners.is_empty());
}

/// The table is edited by hand, so another member owns a partition whose handlers run here: they are told.
#[test]
fn handlers_are_told_of_a_partition_that_was_given_away_by_hand() {
    let mut stage = Stage::joined(2);
    stage.gates.inside.extend([0, 1]);
    stage.put_table(stage.claim("b", 7));
    stage.see_table();
    assert_eq!(stage.gates.expelled, BTreeSet::from([0]));
    assert!(!stage.gates.open.contains_key(&0) && stage.gates.open.contains_key(&1));
}

/// A peer that is silent: its partitions are stale after a lease, and without an owner after D. That a deletion fails, and that the
/// record's time begins anew, changes nothing: the record may be one that this member cannot read.
#[test]
fn a_silent_owner_is_stale_after_a_lease_and_none_after_its_expiry() {
    let mut stage = Stage::joined(1);
    stage.see_member("b", 7, 0, false);
    stage.put_table(stage.claim("b", 7));
    stage.see_table();
    let ownership = |stage: &Stage| stage.member.ownership(0, stage.now, stage.gates.deadline);
    stage.put(
        "member-b",
        Record::Member(MemberRecord { v: Format, incarnation: 7, renewals: 9, leaving: false, expiry: 0 }),
    );
    for now in (0..=3000).step_by(100) {
        stage.now = now;
        stage.settle();
        let expected = match now {
            0..1000 => Ownership::Fresh,
            1000..1500 => Ownership::Stale,
            _ => Ownership::None,
        };
        assert_eq!(ownership(&stage), expected, "{now}");
    }
    assert!(stage.member.take_relist(), "the deletion of what was seen has failed");
    stage.see_member("b", 7, 10, false);
    assert_eq!(ownership(&stage), Ownership::Fresh);
}

/// The member itself cannot renew: others have its partitions after D, and it says so.
#[test]
fn a_member_counts_its_own_silence() {
    let mut stage = Stage::joined(1);
    let ownership = |now| stage.member.ownership(0, now, stage.gates.deadline);
    assert_eq!([0, 999, 1000, 1499, 1500].map(ownership), {
        use Ownership::{Fresh, None, Stale};
        [Fresh, Fresh, Stale, Stale, None]
    });
    stage.now = 1500;
    stage.settle();
    assert_eq!(stage.member.ownership(0, 1500, stage.gates.deadline), Ownership::Fresh);
}

#[test]
fn a_predecessor_that_was_killed_while_it_renewed_is_no_rival() {
    let mut stage = Stage::new(1);
    stage.see_member("a", 5, 3, false);
    stage.see_member("a", 5, 4, false); // sent before it was killed
    assert!(matches!(stage.settle().0, Step::Wait(_)));
    stage.now = 1500;
    stage.settle();
    assert_eq!(stage.gates.open.len(), 1, "the predecessor has expired");
}

#[test]
fn a_process_that_lives_keeps_its_name() {
    let mut stage = Stage::new(1);
    for renewals in 3..=5 {
        stage.see_member("a", 5, renewals, false);
    }
    assert_eq!(stage.settle().0, Step::Refused(Refusal::NameTaken));
    assert!(stage.gates.open.is_empty());
}

/// The watch tells late of records that this very process wrote in an earlier life.
#[test]
fn a_member_does_not_refuse_its_own_earlier_life() {
    let mut stage = Stage::joined(1);
    stage.see_gone("a");
    stage.request();
    stage.answer(Answer::Read(None)); // lost: the next life is 101
    assert_eq!(stage.member.id().incarnation, 101);
    for renewals in 1..=4 {
        let record = Record::Member(MemberRecord {
            v: Format,
            incarnation: 100,
            renewals,
            leaving: false,
            expiry: TIMING.expiry,
        });
        stage.member.observed("a", record, Version(50 + renewals), stage.now, &mut stage.gates);
    }
    stage.member.observed_deletion("a");
    assert!(matches!(stage.settle().0, Step::Wait(_)));
    assert_eq!(stage.gates.open.len(), 1);
}

/// The client sends the creation of the record twice, and the second request is carried out after the record was deleted.
#[test]
fn a_creation_that_is_repeated_after_the_deletion_does_not_bring_a_member_back() {
    for renewals in 0..2 {
        let mut stage = Stage::new(1);
        let creation = loop {
            let request = stage.request();
            let answer = stage.carry_out(request.clone());
            stage.answer(answer);
            if matches!(request, Request::Write { value: Record::Member(_), .. }) {
                break request;
            }
        };
        stage.settle();
        stage.now = 300 * renewals;
        stage.settle();
        stage.records.remove("member-a"); // another member has seen it expire, and claims
        stage.put_table(stage.claim("b", 7));
        assert!(matches!(stage.carry_out(creation), Answer::Written(_)));
        stage.now += 300;
        stage.settle();
        assert!(
            stage.gates.open.is_empty() && stage.gates.losses == 1,
            "{renewals}: another member owns the partition"
        );
        assert_eq!(stage.member.id().incarnation, 101);
    }
}

/// Somebody labels the member's Lease: its version is another one, and the member reads it and goes on.
#[test]
fn a_record_that_gets_another_version_by_hand_is_still_the_members() {
    let mut stage = Stage::joined(1);
    stage.now = 300;
    stage.settle(); // renewed
    let (record, _) = stage.records["member-a"].clone();
    stage.put("member-a", record);
    stage.now = 600;
    stage.settle();
    assert_eq!((stage.gates.losses, stage.gates.deadline, stage.gates.open.len()), (0, 1600, 1));
}

/// A record under the own name exists, but the lists lack it: a Lease without its label. Its time counts on all the same.
#[test]
fn a_namesake_that_lists_lack_expires() {
    let mut stage = Stage::new(1);
    let record = MemberRecord { v: Format, incarnation: 5, renewals: 0, leaving: false, expiry: TIMING.expiry };
    stage.put("member-a", Record::Member(record));
    for now in (0..=1500).step_by(100) {
        stage.now = now;
        stage.settle();
        if now % 500 == 0 {
            stage.member.observed_all(&BTreeSet::new(), now); // listed anew
        }
    }
    stage.now = 1600;
    stage.settle();
    assert_eq!(stage.gates.open.len(), 1);
}

#[test]
fn a_table_that_goes_back_loses_the_member() {
    let mut stage = Stage::joined(2);
    let old = stage.table();
    let rival = stage.see_rival();
    stage.settle(); // hands over partition 0
    stage.see_gone(rival);
    stage.settle(); // and claims it again
    assert!(stage.table().revision > old.revision);
    stage.member.take_notices();
    let losses = stage.gates.losses;
    stage.put_table(Table { owners: BTreeMap::new(), ..old }); // a backup was restored
    stage.member.observed_no_table();
    stage.request();
    let answer = stage.carry_out(Request::Read { record: TABLE.to_owned() });
    stage.answer(answer);
    assert_eq!(stage.gates.losses, losses + 1);
    assert!(stage.gates.open.is_empty());
    assert_eq!(stage.member.take_notices(), [Notice::Lost(0), Notice::Lost(1)]);
}

/// The procedure that `FleetError::PartitionsDiffer` describes, or a deletion: tokens go on from the highest that was seen.
#[test]
fn tokens_do_not_fall_after_a_table_was_deleted_by_hand() {
    let mut stage = Stage::joined(1);
    stage.put_table(Table { token: 41, revision: 9, ..stage.table() });
    stage.see_table();
    let holders = stage.gates.losses;
    stage.records.remove(TABLE);
    stage.member.observed_no_table();
    stage.now = 10;
    let mut end = stage.settle().0;
    while let Step::Wait(until) = end
        && stage.gates.open.is_empty()
    {
        stage.now = until; // its own former record has to expire
        end = stage.settle().0;
    }
    assert!(stage.gates.losses > holders, "holders are told: another member may own the partition now");
    assert_eq!(stage.gates.open, BTreeMap::from([(0, 42)]));
    assert!(stage.table().revision > 9);
}

#[test]
fn another_number_of_partitions_is_refused() {
    let mut stage = Stage::new(4);
    stage.put_table(Table::new(9, 5, Highest::default()));
    assert_eq!(stage.settle().0, Step::Refused(Refusal::PartitionsDiffer(5)));
    assert!(!stage.records.contains_key("member-a"), "it has not joined");
}

/// Pauses double and differ from member to member; they begin anew after a success.
#[test]
fn pauses_after_conflicts_double() {
    let mut stage = Stage::new(1);
    let mut pauses = Vec::new();
    while pauses.len() < 10 {
        match stage.member.next(stage.now, &mut stage.gates) {
            Step::Send(Request::Write { value: Record::Table(_), .. }) => stage.answer(Answer::Conflict),
            Step::Send(request) => {
                let answer = stage.carry_out(request);
                stage.answer(answer);
            }
            Step::Wait(until) => {
                pauses.push(until - stage.now);
                stage.now = until;
            }
            other => panic!("{other:?}"),
        }
    }
    for (doublings, pause) in pauses.iter().enumerate() {
        let longest = TIMING.conflict_pause << doublings.min(6);
        assert!((longest / 2..=longest).contains(pause), "{pauses:?}");
    }
    stage.settle();
    stage.see_rival();
    stage.request();
    stage.answer(Answer::Conflict);
    let Step::Wait(until) = stage.member.next(stage.now, &mut stage.gates) else { panic!("it pauses") };
    assert!(until - stage.now <= TIMING.conflict_pause);
}

/// Ten members see the same record expire: they delete it by turns, and a member that is expired itself has no turn.
#[test]
fn members_delete_an_expired_record_by_turns() {
    let names: Vec<String> = (0..10).map(|i| format!("m{i}")).collect();
    let mut times = BTreeSet::new();
    for name in &names {
        let mut member = Member::new(name, 1, 1, TIMING, None);
        let mut gates = Gates::default();
        member.observed_all(&BTreeSet::new(), 0);
        let record =
            |renewals| MemberRecord { v: Format, incarnation: 3, renewals, leaving: false, expiry: TIMING.expiry };
        let mut see = |member: &mut Member, name: &str, renewals, now| {
            member.observed(name, Record::Member(record(renewals)), Version(renewals), now, &mut gates);
        };
        see(&mut member, "silent", 1, 0);
        // These are expired as well at 1500, all but m0 to m4.
        for (i, other) in names.iter().enumerate().filter(|(_, other)| *other != name) {
            see(&mut member, other, 1, if i < 5 { 1000 } else { 0 });
        }
        let mut table = Table::new(1, 1, Highest::default());
        table.owners.insert(0, Owner { member: MemberId { name: "m0".to_owned(), incarnation: 3 }, token: 1 });
        member.observed(TABLE, Record::Table(table.clone()), Version(1), 0, &mut gates);
        let mut now = 1500;
        loop {
            match member.next(now, &mut gates) {
                Step::Send(Request::Delete { record, .. }) if record == "member-silent" => break,
                Step::Send(Request::Read { record }) if record == TABLE => {
                    member.answered(Answer::Read(Some((Record::Table(table.clone()), Version(1)))), now, &mut gates);
                }
                Step::Send(Request::Write { .. }) => member.answered(Answer::Written(Version(now)), now, &mut gates),
                Step::Send(Request::Delete { .. }) => member.answered(Answer::Deleted, now, &mut gates),
                Step::Wait(until) => now = until,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(now <= 1500 + 5 * TIMING.conflict_pause, "{name}: {now}");
        if names[..5].contains(name) {
            assert!(times.insert(now), "two of the five that live at {now}");
        }
    }
    assert_eq!(times.first(), Some(&1500));
}

/// A record that could not be deleted has changed, or is gone: the watch may hang, so the member lists anew and waits for another expiry.
#[test]
fn a_deletion_that_fails_is_followed_by_a_list() {
    let mut stage = Stage::joined(1);
    stage.see_member("b", 7, 0, false);
    stage.records.insert(
        "member-b".to_owned(),
        (
            Record::Member(MemberRecord {
                v: Format,
                incarnation: 7,
                renewals: 1,
                leaving: false,
                expiry: TIMING.expiry,
            }),
            Version(999),
        ),
    );
    for now in (300..=1500).step_by(300) {
        stage.now = now;
        assert!(!stage.member.take_relist());
        stage.settle();
    }
    assert!(stage.member.take_relist());
    assert!(stage.records.contains_key("member-b"));
    assert_eq!(stage.settle().0, Step::Wait(1800), "its own renewal; b's record has its time again");
}

/// A program that runs for years is lost now and then, also while it owns nothing and the table does not change. It does not remember each
/// life.
#[test]
fn earlier_lives_are_forgotten() {
    let mut stage = Stage::joined(1);
    let rival = stage.see_rival();
    stage.settle();
    stage.put_table(stage.claim(rival, 7));
    stage.see_table();
    for life in 101..200 {
        stage.records.remove("member-a");
        stage.now += 300;
        stage.see_member(rival, 7, life, false); // renewed
        stage.settle();
        assert_eq!(stage.member.id().incarnation, life);
        assert!(stage.member.known_to_be_gone() <= 1, "life {life}");
    }
}

/// `kubectl delete lease`: the owner learns of it as late as anybody, and its handlers have until its deadline and the grace.
#[test]
fn a_record_that_is_deleted_by_hand_is_not_claimed_before_it_would_have_expired() {
    let (mut stage, owner) = Stage::see_owner();
    stage.now = 200;
    stage.see_gone(owner);
    assert_eq!(stage.pass_until_open(), 100 + TIMING.expiry, "it was renewed at 100");

    // A member that leaves has handlers inside until it has released all.
    let (mut stage, owner) = Stage::see_owner();
    stage.see_member(owner, 7, 2, true);
    stage.now = 200;
    stage.see_gone(owner);
    assert_eq!(stage.pass_until_open(), 100 + TIMING.expiry);

    // Between what was seen and this list it may have been renewed.
    let (mut stage, owner) = Stage::see_owner();
    stage.now = 200;
    stage.records.remove(&member_record(owner));
    stage.member.observed_all(&BTreeSet::from(["a".to_owned()]), stage.now);
    assert_eq!(stage.pass_until_open(), 200 + TIMING.expiry);

    // Another member has waited for D, and has deleted it.
    let (mut stage, owner) = Stage::see_owner();
    while stage.now < 100 + TIMING.expiry {
        stage.settle();
        stage.now += 100;
    }
    stage.see_gone(owner);
    assert_eq!(stage.pass_until_open(), 100 + TIMING.expiry, "at once");
}

/// Its process starts again under the name, and finds no record of its predecessor, whose handlers may run.
#[test]
fn another_incarnation_does_not_show_that_the_handlers_of_the_last_one_have_ended() {
    let mut stage = Stage::joined(1);
    let is_lower = |name: &&str| super::rendezvous::owner_of(0, ["a", *name]) == Some("a");
    let owner = ["b", "c", "d", "e", "f", "g", "h"].into_iter().find(is_lower).expect("one has a lower score");
    stage.see_member(owner, 7, 0, false);
    stage.put_table(stage.claim(owner, 7));
    stage.see_table();
    stage.now = 200;
    stage.see_member(owner, 8, 0, false);
    while stage.now < TIMING.expiry {
        stage.settle();
        assert!(stage.gates.open.is_empty(), "{}", stage.now);
        stage.now += 100;
        stage.see_member(owner, 8, stage.now, false);
    }
    stage.settle();
    assert_eq!(stage.gates.open.len(), 1);
}

/// A member that has just started finds an owner in the table and no record of it: it cannot know when that was renewed.
#[test]
fn an_owner_that_was_never_in_sight_has_the_whole_expiry() {
    let mut stage = Stage::new(1);
    let mut table = Table::new(9, 1, Highest { revision: 1, token: 1 });
    table.owners.insert(0, Owner { member: MemberId { name: "z".to_owned(), incarnation: 7 }, token: 1 });
    stage.put_table(table);
    stage.see_table();
    assert_eq!(stage.pass_until_open(), TIMING.expiry);
    assert_eq!(stage.gates.open, BTreeMap::from([(0, 2)]));

    // An earlier life of it was, and has expired. (The model found this.)
    let (mut stage, owner) = Stage::see_owner();
    while stage.now < 100 + TIMING.expiry {
        stage.settle();
        stage.now += 100;
    }
    stage.put_table(stage.claim(owner, 8)); // it has joined again, and its new record is deleted by hand
    stage.see_table();
    assert_eq!(stage.pass_until_open(), 100 + TIMING.expiry + TIMING.expiry);

    // Its own earlier lives are another matter: a claim of one is carried out late.
    let mut stage = Stage::joined(1);
    stage.put_table(Table { owners: BTreeMap::new(), revision: 9, ..stage.table() });
    stage.see_table();
    stage.request();
    stage.answer(Answer::Unknown); // the claim
    let claim = stage.claim("a", 100);
    stage.records.remove("member-a");
    stage.see_gone("a");
    stage.now = 10;
    stage.request();
    stage.answer(Answer::Read(None));
    assert_eq!(stage.member.id().incarnation, 101);
    stage.put_table(Table { revision: 12, ..claim });
    stage.see_table();
    assert!(stage.pass_until_open() < 100, "at once");
}

/// All members are silent while the store is away. None is evicted when it is back, and one that has died in the meantime expires.
#[test]
fn time_without_the_store_does_not_count_as_silence_of_others() {
    let mut stage = Stage::joined(1);
    stage.now = 300;
    stage.settle();
    stage.see_member("b", 7, 1, false);
    while stage.now < 3000 {
        stage.now += 10;
        if let Step::Send(_) = stage.member.next(stage.now, &mut stage.gates) {
            stage.answer(Answer::Unknown);
        }
    }
    let died = |stage: &Stage| !stage.records.contains_key("member-b");
    let deleted_at = stage.pass_until(died);
    assert!(deleted_at >= 3000 + TIMING.expiry - TIMING.longest_gap, "{deleted_at}");
    assert!(deleted_at <= 3000 + TIMING.expiry, "later than before by D at most: {deleted_at}");
}

/// A member whose name is not free yet renews nothing, so it cannot tell whether the store was away.
#[test]
fn a_member_that_waits_for_its_name_deletes_no_other_record() {
    let mut stage = Stage::new(1);
    stage.see_member("a", 5, 3, false);
    stage.see_member("0", 7, 3, false); // first in the order of names
    stage.settle();
    stage.now = 3000; // the store was away
    stage.settle();
    assert!(stage.member.has_joined(), "its predecessor's record has expired");
    assert!(stage.records.contains_key("member-0"), "it has had no time to renew its record");
    let died = |stage: &Stage| !stage.records.contains_key("member-0");
    assert_eq!(stage.pass_until(died), 3000 + TIMING.expiry - TIMING.longest_gap);
}

/// An owner's record is edited by hand, or a new process under its name writes another format, and dies.
#[test]
fn a_record_that_cannot_be_read_is_a_member_until_it_expires() {
    let (mut stage, owner) = Stage::see_owner();
    stage.now = 200;
    stage.see_unknown(&member_record(owner));
    let ownership = stage.member.ownership(0, stage.now, stage.gates.deadline);
    assert_eq!((stage.member.peers(), ownership), (1, Ownership::Fresh));
    stage.now = 400;
    stage.see_unknown(&member_record(owner)); // renewed
    assert_eq!(stage.pass_until_open(), 400 + TIMING.expiry);
    assert!(!stage.records.contains_key(&member_record(owner)));

    // The reader knows a longer D than its own: it waits for that.
    let (mut stage, owner) = Stage::see_owner();
    let record = MemberRecord { v: Format, incarnation: 7, renewals: 2, leaving: false, expiry: 2500 };
    let version = stage.put(&member_record(owner), Record::Member(record.clone()));
    stage.member.observed(owner, Record::Member(record), version, stage.now, &mut stage.gates);
    stage.see_unknown(&member_record(owner));
    assert_eq!(stage.pass_until_open(), 100 + 2500);

    // It is deleted by hand.
    let (mut stage, owner) = Stage::see_owner();
    stage.see_unknown(&member_record(owner));
    stage.now = 300;
    stage.see_gone(owner);
    assert_eq!(stage.pass_until_open(), 100 + TIMING.expiry);
}

#[test]
fn a_member_whose_record_cannot_be_read_is_lost_and_joins_again() {
    let mut stage = Stage::joined(1);
    stage.now = 100;
    stage.see_unknown("member-a");
    stage.settle();
    assert_eq!((stage.gates.losses, stage.gates.open.len()), (1, 0));
    for now in [200, 300, 400] {
        stage.now = now;
        stage.see_unknown("member-a"); // edited again: that is no reason to stop
    }
    assert_eq!(stage.pass_until_open(), 400 + TIMING.expiry);
    assert_eq!(stage.member.id().incarnation, 101);
}

#[test]
fn a_process_that_lives_keeps_its_name_even_if_its_record_cannot_be_read() {
    let mut stage = Stage::new(1);
    for _ in 0..2 {
        stage.see_unknown("member-a");
    }
    assert!(matches!(stage.settle().0, Step::Wait(_)), "a predecessor may have sent one more renewal");
    stage.see_unknown("member-a");
    assert_eq!(stage.settle().0, Step::Refused(Refusal::NameTaken));
}

/// Another member writes the table in a format that this one cannot read.
#[test]
fn while_the_table_cannot_be_read_members_go_on_with_what_they_own() {
    let mut stage = Stage::joined(1);
    let table = stage.table();
    stage.see_unknown(TABLE);
    stage.settle();
    stage.gates.inside.insert(0);
    let rival = stage.see_rival();
    for now in (0..=3000).step_by(10) {
        stage.now = now;
        stage.see_member(rival, 7, now, false);
        assert!(stage.settle().1 <= 3, "one reading for each renewal");
    }
    assert_eq!(stage.gates.deadline, 4000, "it renews its record");
    assert_eq!(stage.gates.open.len(), 1, "its rival could not claim the partition, so it stays open");
    stage.gates.inside.clear();
    assert!(stage.records[TABLE].0 == Record::Unknown && stage.records.len() == 3, "and does nothing else");
    // It can be read again.
    stage.put_table(Table { revision: 9, ..table });
    stage.see_table();
    stage.settle();
    assert!(stage.table().owners.is_empty(), "it releases what its rival should have");

    // A member that has not joined yet says so.
    let mut stage = Stage::new(1);
    stage.see_unknown(TABLE);
    assert_eq!(stage.settle().0, Step::Refused(Refusal::UnknownTable));
}

/// One that owns nothing can leave.
#[test]
fn a_member_without_partitions_leaves_while_the_table_cannot_be_read() {
    let (mut stage, _) = Stage::see_owner();
    stage.see_unknown(TABLE);
    stage.settle();
    stage.member.leave();
    assert_eq!(stage.settle().0, Step::Left);
    assert!(!stage.records.contains_key("member-a"));
}

/// The table has a field of a newer version.
#[test]
fn a_claim_and_a_release_keep_the_fields_of_the_table_that_they_do_not_know() {
    let (mut stage, owner) = Stage::see_owner();
    let rest = BTreeMap::from([("zones".to_owned(), serde_json::json!({ "a": ["x"] }))]);
    stage.put_table(Table { revision: 9, rest: rest.clone(), ..stage.table() });
    stage.see_table();
    stage.see_gone(owner);
    stage.pass_until_open();
    assert_eq!((stage.table().revision, &stage.table().rest), (10, &rest));
    stage.see_member(owner, 8, 0, false);
    stage.settle();
    assert_eq!((stage.table().revision, &stage.table().rest, stage.table().owners.len()), (11, &rest, 0));
}
