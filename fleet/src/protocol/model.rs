//! A model of a fleet for a model checker: two or three members, which are the real [`Member`]s, one partition, and every order of their
//! steps, of the store's answers, of what the watch delivers, of time, and of handlers that start and end. A member may leave, or be killed and
//! start again under its name; a watch may be late.
//!
//! The store is a map; a request is on its way, then carried out, then answered, with any delay in between. It may be given up
//! before its answer comes, and be carried out later all the same. A process that is stopped is one whose steps do not come. A
//! handler ends at any time, at the latest when the grace after the deadline is over.
//!
//! Time goes in ticks, and each member's clock has a rate of its own. The bounds (renewals, ticks, given-up requests) keep the states
//! finite; each fault that is built in must be found within them, so they are not too narrow for what they are to show.

use super::member::{Answer, GateControl, Member, Mutant, Request, Step, Time, Timing};
use super::record::{MemberId, Record, TABLE, member_record};
use super::rendezvous;
use crate::store::Version;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::BTreeMap;

/// Incarnations of processes that were started again are higher.
const RESTARTED: u64 = 50;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The number of the table among the records; those before it are the members'.
const OWNERS: usize = NAMES.len();

#[derive(Debug, Clone)]
struct Fleet {
    members: usize,
    /// All have joined and have seen all at first. If not, the first member has joined, and the second one begins.
    joined: bool,
    timing: Timing,
    grace: Time,
    mutant: Option<Mutant>,
    /// What each clock gains in a tick.
    rates: [Time; 3],
    most_ticks: u64,
    /// How often each member may write its record.
    most_renewals: [u64; 3],
    /// Whether each member renews its record at all.
    renews: [bool; 3],
    /// How many requests may be given up.
    most_unknown: u64,
    /// How many members may leave.
    most_leaves: u64,
    /// How many processes may be killed and started again.
    most_restarts: u64,
    /// How often the record of the first owner's name may be deleted by hand.
    most_deletions: u64,
    /// Whether the watch may deliver each value of a record in its turn, however late. If not, it delivers the present value.
    late_watches: bool,
}

impl Fleet {
    /// A lease of one tick, expiry after two, no grace: clocks may differ by almost 2 : 1.
    fn new() -> Self {
        Self {
            members: 2,
            joined: false,
            timing: Timing { lease: 4, renew_every: 4, expiry: 8, longest_gap: 100, retry_after: 0, conflict_pause: 0 },
            grace: 0,
            mutant: None,
            rates: [4; 3],
            most_ticks: 4,
            most_renewals: [2; 3],
            renews: [true; 3],
            most_unknown: 0,
            most_leaves: 0,
            most_restarts: 0,
            most_deletions: 0,
            late_watches: false,
        }
    }

    /// Three members that have joined: an owner, which may renew its record once; the next owner; and one that renews nothing, to keep the
    /// states few, but deletes and claims.
    fn three() -> Self {
        let [owner, next, _] = ranks();
        let most_renewals = std::array::from_fn(|i| if i == owner { 0 } else { 2 });
        let renews = std::array::from_fn(|i| i == owner || i == next);
        Self { members: 3, joined: true, most_ticks: 2, most_renewals, renews, ..Self::new() }
    }

    fn with(self, mutant: Mutant) -> Self {
        let mut fleet = Self { mutant: Some(mutant), ..self };
        if mutant == Mutant::ShortExpiry {
            fleet.timing.expiry = 4;
        }
        fleet
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Gate {
    open: Option<u64>,
    handler: bool,
    deadline: Time,
    /// The latest deadline ever: until then, and the grace, a handler may run even if its member is lost.
    last_deadline: Time,
    /// The member was lost while the handler ran: a deadline of a later life is not the handler's.
    lost_deadline: Option<Time>,
}

impl Gate {
    fn end(&mut self) {
        self.handler = false;
        self.lost_deadline = None;
    }
}

impl GateControl for Gate {
    fn open(&mut self, _: u32, token: u64) {
        self.open = Some(token);
    }

    fn close(&mut self, _: u32) {
        self.open = None;
    }

    fn expel(&mut self, partition: u32) {
        self.close(partition);
    }

    fn is_empty(&self, _: u32) -> bool {
        !self.handler
    }

    fn set_deadline(&mut self, deadline: Time) {
        self.deadline = deadline;
        self.last_deadline = self.last_deadline.max(deadline);
    }

    fn lose(&mut self) {
        self.deadline = 0;
        self.open = None;
        if self.handler {
            self.lost_deadline.get_or_insert(self.last_deadline);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum UnderWay {
    Sent(Request),
    Answered(Answer),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    member: Member,
    gate: Gate,
    now: Time,
    under_way: Option<UnderWay>,
    /// A request that the member has given up, and that the store may still carry out.
    late: Option<Request>,
    renewals: u64,
    has_left: bool,
    /// How much of each record's history the watch has delivered.
    seen: [usize; OWNERS + 1],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    late_watches: bool,
    ticks: u64,
    unknown: u64,
    nodes: Vec<Node>,
    records: BTreeMap<String, (Record, Version)>,
    /// The values that each record has had, if watches may be late.
    history: [Vec<Option<(Record, Version)>>; OWNERS + 1],
    leaves: u64,
    restarts: u64,
    deletions: u64,
    /// How often each record was written: a version never comes back.
    versions: BTreeMap<String, u64>,
    /// The last owner, and its token.
    newest: Option<(u64, MemberId)>,
    token_fell: bool,
    taken_over: bool,
    handed_over: bool,
    /// An owner has claimed what it was about to hand over, while a handler was inside.
    claimed_in_place: bool,
    /// The members that have deleted another's record, with three members: by that name.
    deleters: BTreeMap<String, usize>,
    /// A member has claimed the partition of an owner whose record another one had deleted.
    claimed_after_another_deleted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    CarryOut(usize),
    Answer(usize),
    GiveUp(usize),
    CarryOutLate(usize),
    /// The watch delivers a record's present value: a member's, or the table ([`OWNERS`]).
    Observe(usize, usize),
    Start(usize),
    End(usize),
    Leave(usize),
    /// Kills the process, and starts another one under the same name.
    Restart(usize),
    /// Somebody deletes the member's record by hand.
    DeleteByHand(usize),
}

/// The members in the order in which they should have the partition.
fn ranks() -> [usize; 3] {
    let mut ranks = std::array::from_fn(|i| i);
    ranks.sort_by_key(|i| std::cmp::Reverse(rendezvous::score(NAMES[*i], 0)));
    ranks
}

/// The owner among the first two members.
fn owner_of_two() -> usize {
    ranks().into_iter().find(|i| *i < 2).expect("one of them")
}

fn record_name(which: usize) -> String {
    NAMES.get(which).map_or_else(|| TABLE.to_owned(), |name| member_record(name))
}

impl World {
    fn carry_out(&mut self, i: usize, request: Request) -> Answer {
        let version =
            |records: &BTreeMap<String, (Record, Version)>, name: &str| records.get(name).map(|(_, version)| *version);
        match request {
            Request::Read { record } => Answer::Read(self.records.get(&record).cloned()),
            Request::Write { record, expected, .. } if version(&self.records, &record) != expected => Answer::Conflict,
            Request::Write { record, value, .. } | Request::Overwrite { record, value } => {
                let version = self.versions.entry(record.clone()).or_default();
                *version += 1;
                let version = Version(*version);
                if let Record::Table(table) = &value {
                    self.watch_tokens(i, table.owners.get(&0).map(|owner| (owner.token, owner.member.clone())));
                }
                self.note(&record, Some((value.clone(), version)));
                self.records.insert(record, (value, version));
                Answer::Written(version)
            }
            Request::Delete { record, expected } if version(&self.records, &record) != Some(expected) => {
                Answer::Conflict
            }
            Request::Delete { record, .. } => {
                self.note(&record, None);
                if self.nodes.len() > 2 {
                    self.deleters.insert(record.clone(), i);
                }
                self.records.remove(&record);
                Answer::Deleted
            }
        }
    }

    fn note(&mut self, record: &str, value: Option<(Record, Version)>) {
        let which = (0..=OWNERS).find(|which| record_name(*which) == record).expect("one of the records");
        if self.late_watches {
            self.history[which].push(value);
        }
    }

    /// Checks a table that is written: each claim has a higher token than all before it.
    fn watch_tokens(&mut self, i: usize, owner: Option<(u64, MemberId)>) {
        let Some(owner) = owner else { return };
        if let Some((token, member)) = &self.newest {
            let released =
                matches!(self.records.get(TABLE), Some((Record::Table(table), _)) if table.owners.is_empty());
            if owner.1 != *member {
                self.handed_over |= released;
                self.taken_over |= !released;
                let deleter = self.deleters.get(&member_record(&member.name));
                self.claimed_after_another_deleted |= !released && deleter.is_some_and(|deleter| *deleter != i);
            }
            let stays = owner.1 == *member && !released;
            let handles = |node: &Node| node.gate.handler && *node.member.id() == owner.1;
            self.claimed_in_place |= stays && owner.0 > *token && self.nodes.iter().any(handles);
            self.token_fell |= if stays { owner.0 < *token } else { owner.0 <= *token };
        }
        self.newest = Some(owner);
    }

    /// A member that has no request under way goes on.
    fn step(&mut self, i: usize, most_renewals: [u64; 3]) {
        let node = &mut self.nodes[i];
        if node.under_way.is_some() || node.renewals > most_renewals[i] {
            return;
        }
        match node.member.next(node.now, &mut node.gate) {
            Step::Send(request) => {
                node.renewals += u64::from(matches!(&request, Request::Write { value: Record::Member(_), .. }));
                node.under_way = Some(UnderWay::Sent(request));
            }
            Step::Left => node.has_left = true,
            Step::Wait(_) | Step::Refused(_) => {}
        }
    }

    /// What the watch of a member delivers next of a record: `None` if it has delivered all.
    fn next_value(&self, i: usize, which: usize) -> Option<Option<&(Record, Version)>> {
        if self.late_watches {
            self.history[which].get(self.nodes[i].seen[which]).map(Option::as_ref)
        } else {
            Some(self.records.get(&record_name(which)))
        }
    }

    /// A process under the name begins with a list of all records.
    fn list(&mut self, i: usize) {
        let names = NAMES.into_iter().filter(|name| self.records.contains_key(&member_record(name)));
        let names = names.map(str::to_owned).collect();
        for which in 0..=OWNERS {
            self.nodes[i].seen[which] = self.history[which].len().saturating_sub(1);
            self.observe(i, which);
        }
        let now = self.nodes[i].now;
        self.nodes[i].member.observed_all(&names, now);
    }

    fn observe(&mut self, i: usize, which: usize) {
        let Some(value) = self.next_value(i, which).map(Option::<&(Record, Version)>::cloned) else { return };
        let name = record_name(which);
        let node = &mut self.nodes[i];
        node.seen[which] += usize::from(self.late_watches);
        let member_name = NAMES.get(which).copied().unwrap_or(&name);
        match &value {
            Some((record, version)) => {
                node.member.observed(member_name, record.clone(), *version, node.now, &mut node.gate);
            }
            None if which < NAMES.len() => node.member.observed_deletion(member_name),
            None => node.member.observed_no_table(),
        }
        // Only for the program, and for the agent.
        node.member.take_notices();
        node.member.take_relist();
    }

    fn apply(&mut self, fleet: &Fleet, action: Action) -> bool {
        match action {
            Action::Tick => {
                self.ticks += 1;
                for (node, rate) in self.nodes.iter_mut().zip(fleet.rates) {
                    node.now += rate;
                    let until = node.gate.lost_deadline.unwrap_or(node.gate.last_deadline);
                    if fleet.mutant != Some(Mutant::NoDeadline) && node.now > until + fleet.grace {
                        node.gate.end(); // dropped
                    }
                }
            }
            Action::CarryOut(i) => {
                let Some(UnderWay::Sent(request)) = self.nodes[i].under_way.take() else { return false };
                let renews = matches!(request, Request::Write { value: Record::Member(_), .. });
                let answer = self.carry_out(i, request);
                self.nodes[i].under_way = Some(UnderWay::Answered(answer));
                if !renews {
                    self.apply(fleet, Action::Answer(i)); // a late answer to another request is like a late step
                }
            }
            Action::Answer(i) => {
                let node = &mut self.nodes[i];
                let Some(UnderWay::Answered(answer)) = node.under_way.take() else { return false };
                node.member.answered(answer, node.now, &mut node.gate);
                node.member.take_notices();
                node.member.take_relist();
            }
            Action::GiveUp(i) => {
                let node = &mut self.nodes[i];
                if let Some(UnderWay::Sent(request)) = node.under_way.take() {
                    node.late = Some(request);
                }
                node.member.answered(Answer::Unknown, node.now, &mut node.gate);
                self.unknown += 1;
            }
            Action::CarryOutLate(i) => {
                let Some(request) = self.nodes[i].late.take() else { return false };
                self.carry_out(i, request);
            }
            Action::Observe(i, which) => self.observe(i, which),
            Action::Start(i) => self.nodes[i].gate.handler = true,
            Action::End(i) => self.nodes[i].gate.end(),
            Action::Leave(i) => {
                self.nodes[i].member.leave();
                self.leaves += 1;
            }
            Action::DeleteByHand(i) => {
                self.deletions += 1;
                let record = member_record(NAMES[i]);
                self.note(&record, None);
                return self.records.remove(&record).is_some();
            }
            Action::Restart(i) => {
                self.restarts += 1;
                let now = self.nodes[i].now;
                // A request of the killed process may still be carried out.
                let late = match self.nodes[i].under_way.take() {
                    Some(UnderWay::Sent(request)) => Some(request),
                    _ => None,
                };
                let member = Member::new(NAMES[i], RESTARTED + self.restarts, 1, fleet.timing, fleet.mutant);
                self.nodes[i] = Node { late, now, ..Node::new(member) };
                self.list(i);
            }
        }
        true
    }
}

impl Node {
    fn new(member: Member) -> Self {
        Self {
            member,
            gate: Gate::default(),
            now: 0,
            under_way: None,
            late: None,
            renewals: 0,
            has_left: false,
            seen: [0; OWNERS + 1],
        }
    }
}

impl Model for Fleet {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let node = |i: usize| {
            let renew_every = if self.renews[i] { self.timing.renew_every } else { 100 };
            let mut member = Member::new(NAMES[i], 1, 1, Timing { renew_every, ..self.timing }, self.mutant);
            member.observed_all(&Default::default(), 0);
            Node::new(member)
        };
        let mut world = World {
            ticks: 0,
            unknown: 0,
            nodes: (0..self.members).map(node).collect(),
            records: BTreeMap::new(),
            history: Default::default(),
            late_watches: self.late_watches,
            leaves: 0,
            restarts: 0,
            deletions: 0,
            versions: BTreeMap::new(),
            newest: None,
            token_fell: false,
            taken_over: false,
            handed_over: false,
            claimed_in_place: false,
            deleters: BTreeMap::new(),
            claimed_after_another_deleted: false,
        };
        let joins = |world: &mut World, i: usize| {
            world.step(i, [u64::MAX; 3]);
            while world.nodes[i].under_way.is_some() {
                world.apply(self, Action::CarryOut(i));
                world.apply(self, Action::Answer(i));
                world.step(i, [u64::MAX; 3]);
            }
            world.nodes[i].renewals = 0;
        };
        if !self.joined {
            joins(&mut world, 0);
            world.step(1, self.most_renewals);
        } else {
            for i in ranks().into_iter().filter(|i| *i < self.members) {
                world.list(i);
                joins(&mut world, i);
            }
            (0..self.members).for_each(|i| world.list(i));
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.ticks < self.most_ticks {
            actions.push(Action::Tick);
        }
        for (i, node) in world.nodes.iter().enumerate() {
            match &node.under_way {
                None => {}
                Some(UnderWay::Sent(_)) => actions.push(Action::CarryOut(i)),
                Some(UnderWay::Answered(_)) => actions.push(Action::Answer(i)),
            }
            if node.under_way.is_some() && world.unknown < self.most_unknown {
                actions.push(Action::GiveUp(i));
            }
            if node.late.is_some() {
                actions.push(Action::CarryOutLate(i));
            }
            if !node.has_left {
                // The own record only if the watch may be late, or if it may be a predecessor's: otherwise it tells nothing new.
                let own = (self.late_watches || world.restarts > 0).then_some(i);
                let others = (0..self.members).filter(|which| *which != i);
                actions.extend(others.chain([OWNERS]).chain(own).map(|which| Action::Observe(i, which)));
                if world.leaves < self.most_leaves {
                    actions.push(Action::Leave(i));
                }
                if world.restarts < self.most_restarts {
                    actions.push(Action::Restart(i));
                }
            }
            if world.deletions < self.most_deletions && i == owner_of_two() {
                actions.push(Action::DeleteByHand(i));
            }
            if node.gate.handler {
                actions.push(Action::End(i));
            } else if node.gate.open.is_some()
                && (node.now < node.gate.deadline || self.mutant == Some(Mutant::NoDeadline))
            {
                actions.push(Action::Start(i));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        let applies = next.apply(self, action);
        (0..self.members).for_each(|i| next.step(i, self.most_renewals));
        (applies && next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two handlers", |_, world: &World| {
                world.nodes.iter().filter(|node| node.gate.handler).count() < 2
            }),
            Property::always("tokens grow", |_, world: &World| !world.token_fell),
            Property::sometimes("handed over", |_, world: &World| world.handed_over),
            Property::sometimes("taken over", |_, world: &World| world.taken_over),
            Property::sometimes("left", |_, world: &World| world.nodes.iter().any(|node| node.has_left)),
            Property::sometimes("claimed in place", |_, world: &World| world.claimed_in_place),
            Property::sometimes("started again, and claimed", |_, world: &World| {
                world.newest.as_ref().is_some_and(|(_, owner)| owner.incarnation > RESTARTED)
            }),
            Property::sometimes("one deleted, another claimed", |_, world: &World| world.claimed_after_another_deleted),
        ]
    }
}

/// The names of the properties that do not hold.
fn broken(fleet: Fleet) -> Vec<&'static str> {
    let properties = ["no two handlers", "tokens grow"];
    let (leaves, restarts, three) = (fleet.most_leaves > 0, fleet.most_restarts > 0, fleet.members == 3);
    let joined = fleet.joined;
    let checker = fleet.checker().threads(2).finish_when(HasDiscoveries::AnyOf(properties.into())).spawn_bfs().join();
    let broken: Vec<_> = properties.into_iter().filter(|name| checker.discovery(name).is_some()).collect();
    println!("{} states, broken: {broken:?}", checker.unique_state_count());
    for name in &broken {
        println!("{name}: {:?}", checker.discovery(name).expect("it was found").into_actions());
    }
    if broken.is_empty() {
        // Not because nothing happened.
        checker.assert_any_discovery("taken over");
        let seen = |name| checker.discovery(name).is_some();
        assert!(joined || seen("handed over"));
        assert_eq!(seen("one deleted, another claimed"), three);
        assert_eq!((seen("left"), seen("started again, and claimed")), (leaves, restarts));
        assert!(
            seen("claimed in place") || !leaves,
            "a member leaves, and another one claims what it was to hand over"
        );
    }
    broken
}

/// `wide` with `FLEET_MODEL=wide`, which takes minutes.
fn bound<T>(narrow: T, wide: T) -> T {
    if std::env::var_os("FLEET_MODEL").is_some_and(|model| model == "wide") { wide } else { narrow }
}

/// Wide: 3.8 million states.
#[test]
fn the_protocol_holds() {
    assert_eq!(broken(Fleet { most_ticks: bound(3, 4), ..Fleet::new() }), [""; 0]);
}

/// A request that was given up is carried out later, before or after the member's next ones. Wide: 1.9 million states, else 0.5.
#[test]
fn it_holds_if_a_request_is_carried_out_after_it_was_given_up() {
    let most_renewals = bound([1; 3], [2; 3]);
    assert_eq!(broken(Fleet { most_unknown: 1, most_ticks: 2, most_renewals, ..Fleet::new() }), [""; 0]);
}

/// The first member's clock, or the second's, is slower by less than the ratio of expiry and lease.
#[test]
fn it_holds_while_clocks_differ_by_less_than_expiry_to_lease() {
    for rates in [[4, 7, 4], [7, 4, 4]] {
        assert_eq!(broken(Fleet { rates, most_ticks: 3, ..Fleet::new() }), [""; 0]);
    }
}

/// A member may leave at any moment, with a handler inside. (A claim of its own that is carried out late is in `sequences.rs`.)
#[test]
fn it_holds_while_members_leave() {
    assert_eq!(broken(Fleet { most_leaves: 1, most_ticks: 2, most_renewals: [1; 3], ..Fleet::new() }), [""; 0]);
}

/// A process is killed at any moment and starts again under its name, while a request of the killed one is still to be carried out.
#[test]
fn it_holds_if_a_process_is_killed_and_starts_again() {
    assert_eq!(broken(Fleet { most_restarts: 1, most_ticks: 2, most_renewals: [2; 3], ..Fleet::new() }), [""; 0]);
}

/// Wide: both members may renew, in 1.8 million states; else the second alone, in 0.6.
#[test]
fn it_holds_while_watches_are_late() {
    let most_renewals = bound([0, 1, 0], [1; 3]);
    assert_eq!(broken(Fleet { late_watches: true, most_ticks: 2, most_renewals, ..Fleet::new() }), [""; 0]);
}

/// With three members, one deletes the silent owner's record and another one claims its partition.
#[test]
fn it_holds_with_three_members_and_faults_are_found() {
    assert_eq!(broken(Fleet::three()), [""; 0]);
    for (mutant, expected) in [
        (Mutant::NoDeadline, "no two handlers"),
        (Mutant::ShortExpiry, "no two handlers"),
        (Mutant::NoCompare, "tokens grow"),
    ] {
        let broken = broken(Fleet::three().with(mutant));
        assert!(broken.contains(&expected), "{mutant:?}: {broken:?}");
    }
}

/// A record is deleted by hand while its owner's handlers run. (The watch delivers each value: the next owner could not know of a renewal
/// that it left out.)
#[test]
fn it_holds_if_a_record_is_deleted_by_hand() {
    let most_renewals = std::array::from_fn(|i| if i == owner_of_two() { 1 } else { 2 });
    let fleet =
        Fleet { joined: true, late_watches: true, most_deletions: 1, most_ticks: 2, most_renewals, ..Fleet::new() };
    assert_eq!(broken(fleet), [""; 0]);
}

#[test]
fn clocks_that_differ_by_more_lead_to_two_handlers_but_tokens_grow() {
    assert_eq!(broken(Fleet { rates: [4, 12, 4], ..Fleet::new() }), ["no two handlers"]);
}

#[test]
fn each_fault_is_found() {
    for (mutant, expected) in [
        (Mutant::NoDeadline, "no two handlers"),
        (Mutant::NoDrain, "no two handlers"),
        (Mutant::ShortExpiry, "no two handlers"),
        (Mutant::NoCompare, "tokens grow"),
        (Mutant::DeadlineFromAnswer, "no two handlers"),
    ] {
        let broken = broken(Fleet::new().with(mutant));
        assert!(broken.contains(&expected), "{mutant:?}: {broken:?}");
    }
}
