//! A queue that is evidently right: lists that are searched, one function for each rule, nothing fast.
//!
//! It knows all features at once. It follows the promises P1 to P4, P6 to P10, P19, P20 and P23, and never calls the crate. Where the
//! crate is free, because a queue has several shards, the caller says what it has seen: see [`hand_out`](Reference::hand_out).
//!
//! ```text
//!   keys: a State each                     shards: an Order each
//!   dirty  processing  delay  waits …      levels: -100 ─ turns of groups ─ keys      held: turns of groups that are full, paused
//!                                                    0 ─ turns of groups ─ keys            or without a token
//! ```

use super::key::KEYS;
use super::limits::Limits;
use super::op::How;
use super::plan::{Limit, Limiter, Plan, Rate};
use keyqueue::{Added, DelayConflict, DelayedAdd, DelayedBy, HeldBack, KeyActivity};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// A delay with this deadline never expires.
pub(crate) const NEVER: u64 = u64::MAX;

/// What [`keyqueue::Stats`] counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) pushed: u64,
    pub(crate) coalesced: u64,
    pub(crate) deferred: u64,
    pub(crate) rejected: u64,
    pub(crate) full: u64,
    pub(crate) handed_out: u64,
    pub(crate) taken: u64,
    pub(crate) delays: u64,
    pub(crate) expired: u64,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
    pub(crate) given_up: u64,
    pub(crate) panics: u64,
    pub(crate) caught: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    dirty: bool,
    processing: bool,
    /// The delay that a caller has set, and the one that the end of a hand-out has set.
    delays: [Option<Due>; 2],
    /// When the caller's delay was first set or moved with a bound.
    first: Option<u64>,
    /// The number of the step since which the earlier deadline is what it is.
    due_since: u64,
    /// Until when the key cools down.
    rest: Option<u64>,
    /// An add waits for a retry ([`DelayedAdd::Strict`]), or for the end of the rest.
    waits: bool,
    /// The latter.
    is_held: bool,
    /// The priority of the hand-out.
    held: i8,
    /// The highest priority of the adds since the hand-out.
    pending: i8,
    /// The number of the last push.
    push: u64,
    /// The first and the last step of the run at which the crate may say that this push was. With several shards it compares their keys by
    /// these.
    stamp: (u64, u64),
    dirty_since: u64,
    processing_since: u64,
    /// How long the key had waited for its hand-out.
    waited: u64,
    /// Since its last push: the hand-outs of its shard while its group had room, and the key's place in its group.
    passed: u64,
    place: u64,
    /// And the hand-outs of its level in a row that were all of one other group: that group, and their number.
    run: (u8, u32),
}

/// One delay of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Due {
    deadline: u64,
    priority: i8,
    /// It was set for a failure.
    is_retry: bool,
}

const CALLER: usize = 0;
const HOLDER: usize = 1;

impl State {
    /// The one that expires first; of two with one deadline the caller's.
    fn due(&mut self) -> Option<&mut Due> {
        self.delays.iter_mut().flatten().min_by_key(|due| due.deadline)
    }

    /// The one for which an add waits.
    fn retry(&mut self) -> Option<&mut Due> {
        self.delays.iter_mut().flatten().filter(|due| due.is_retry).min_by_key(|due| due.deadline)
    }

    fn deadline(&self) -> Option<u64> {
        self.delays.iter().flatten().map(|due| due.deadline).min()
    }

    /// When the queue looks at the key again. (None of its delays is due before the end of its rest.)
    fn looked_at(&self) -> Option<u64> {
        self.rest.or(self.deadline())
    }

    /// The highest priority of its delays.
    fn highest(&self) -> Option<i8> {
        self.delays.iter().flatten().map(|due| due.priority).max()
    }
}

/// The keys of one group in one level.
#[derive(Debug, Clone)]
struct Turn {
    group: u8,
    keys: VecDeque<u8>,
}

/// The queued keys of one shard.
#[derive(Debug, Clone)]
struct Order {
    /// For each level, its groups in the order of their turns.
    levels: BTreeMap<i8, VecDeque<Turn>>,
    /// The same of groups that are held back.
    held: BTreeMap<i8, VecDeque<Turn>>,
    /// Hand-outs since the last turn of a lower level.
    since_lower: u32,
    last_lower: i8,
    /// For each level, its hand-outs since a group had two turns in a row while another one waited.
    since_again: BTreeMap<i8, u32>,
    /// The steps of the last pushes: of each level, or with groups of all.
    pushes: BTreeMap<i8, VecDeque<u64>>,
}

/// The tokens that a group has at a time. A whole one is worth the nanoseconds in which it comes.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    rate: Rate,
    /// Negative if some are owed, which is so after a change of the rate.
    worth: i128,
    at: u64,
}

impl Tokens {
    fn all((period, burst): Rate) -> i128 {
        i128::from(period) * i128::from(burst)
    }

    fn full(rate: Rate, now: u64) -> Self {
        Self { rate, worth: Self::all(rate), at: now }
    }

    fn fill(&mut self, now: u64) {
        (self.worth, self.at) = ((self.worth + i128::from(now - self.at)).min(Self::all(self.rate)), now);
    }

    /// How long until there is a token.
    fn wait(mut self, now: u64) -> u64 {
        self.fill(now);
        (i128::from(self.rate.0) - self.worth).max(0) as u64
    }

    fn spend(&mut self, now: u64) {
        assert_eq!(self.wait(now), 0, "a hand-out without a token");
        self.fill(now);
        self.worth -= i128::from(self.rate.0);
    }

    /// The tokens that are spent stay spent, and a part of one as the same part, in whole nanoseconds.
    fn change(mut self, rate: Rate, now: u64) -> Self {
        self.fill(now);
        let spent = (Self::all(self.rate) - self.worth) * i128::from(rate.0) / i128::from(self.rate.0);
        Self { rate, worth: Self::all(rate) - spent, at: now }
    }
}

/// What the handlers of groups have taken since these groups, and no others, have had keys at each hand-out.
#[derive(Debug, Clone, Default)]
struct Contest {
    paid: BTreeMap<u8, u128>,
    longest: u128,
}

/// The crate remembers one time for this number of pushes.
const STAMPED: usize = 64;

/// See the top of this file.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    plan: Plan,
    shard_of: Vec<usize>,
    keys: Vec<State>,
    shards: Vec<Order>,
    /// The limits that were set, and the ends of pauses, by group.
    pub(crate) set: BTreeMap<u8, Limit>,
    pub(crate) pauses: BTreeMap<u8, u64>,
    /// The queue was paused, and not resumed since.
    pub(crate) paused: bool,
    /// The tokens of groups with a rate, and the groups for which no turn has found a token since they had none.
    tokens: BTreeMap<u8, Tokens>,
    pub(crate) throttled: BTreeSet<u8>,
    /// The number of hand-outs of each group, and the time that its handlers have taken, since it has had keys without a break.
    paid: BTreeMap<u8, (u64, u64)>,
    contest: Contest,
    /// How often groups were judged to have paid alike.
    pub(crate) alike: u32,
    pub(crate) limits: Limits<u8>,
    /// The retries that the queue counts itself, because the limiter has panicked.
    unlimited: Vec<usize>,
    /// The keys that failed after their last retry, and come back all the same.
    given_up: BTreeSet<u8>,
    /// The limiter panics when it is called next.
    pub(crate) limiter_panics: bool,
    /// The next failure comes after the last retry.
    is_past_last: bool,
    pub(crate) counts: Counts,
    /// With a pace, the times of the hand-outs: as many as matter.
    paced: VecDeque<u64>,
    /// The number of hand-outs of each shard.
    handed_out_of: Vec<u64>,
    /// Hand-outs of a level while one more urgent waited in the same shard; and those since a lower level had one while it waited in any.
    lower_turns: u64,
    since_lower: u64,
    pub(crate) shut_down: bool,
    /// How often a plain shut-down has released the drains.
    pub(crate) releases: u64,
    /// The steps of the run. Calls from threads, whose order is not known, are none.
    pub(crate) steps: u64,
    /// What the clock says to the call.
    pub(crate) now: u64,
    /// The latest time that a call has used here: a thread may read the clock, and come to its step after others that have read it later.
    latest: u64,
    calls: u64,
    /// A delay was dropped before it expired, so the crate may know a deadline that is no more.
    pub(crate) rearranged: bool,
    /// How often an add that had waited took effect at the end of a hand-out.
    pub(crate) let_go: u64,
    /// How often a key was forgotten because it had cooled down.
    pub(crate) cooled: u64,
    /// The levels that were used.
    levels: BTreeSet<i8>,
    /// The times for which keys have waited and were processing, added up.
    pub(crate) sums: [u128; 2],
}

/// A delayed key, with the time that is left and its priority.
pub(crate) type Delayed = (u8, u64, i8);

impl Reference {
    pub(crate) fn new(plan: Plan, shard_of: Vec<usize>, limits: Limits<u8>) -> Self {
        let order = Order {
            levels: BTreeMap::new(),
            held: BTreeMap::new(),
            since_lower: 0,
            last_lower: i8::MIN,
            since_again: BTreeMap::new(),
            pushes: BTreeMap::new(),
        };
        Self {
            shards: vec![order; plan.shards],
            shard_of,
            set: BTreeMap::new(),
            pauses: BTreeMap::new(),
            paused: false,
            tokens: BTreeMap::new(),
            throttled: BTreeSet::new(),
            paid: BTreeMap::new(),
            contest: Contest::default(),
            alike: 0,
            keys: vec![State::default(); KEYS.into()],
            limits,
            unlimited: vec![0; KEYS.into()],
            given_up: BTreeSet::new(),
            limiter_panics: false,
            is_past_last: false,
            counts: Counts::default(),
            paced: VecDeque::new(),
            handed_out_of: vec![0; plan.shards],
            lower_turns: 0,
            since_lower: 0,
            shut_down: false,
            releases: 0,
            steps: 0,
            now: 0,
            latest: 0,
            calls: 0,
            rearranged: false,
            let_go: 0,
            cooled: 0,
            levels: BTreeSet::new(),
            sums: [0; 2],
            plan,
        }
    }

    /// From now on there are this many keys at least.
    pub(crate) fn crowd(&mut self, keys: u8) {
        self.keys.resize(self.keys.len().max(keys.into()), State::default());
        self.unlimited.resize(self.keys.len(), 0);
    }

    fn is_crowded(&self) -> bool {
        self.keys.len() > KEYS.into()
    }

    pub(crate) fn all(&self) -> Range<u8> {
        0..self.keys.len() as u8
    }

    fn state(&mut self, key: u8) -> &mut State {
        &mut self.keys[usize::from(key)]
    }

    fn look(&self, key: u8) -> &State {
        &self.keys[usize::from(key)]
    }

    // ---- the limiter ----

    /// Counts a failure. The delay: of the limiter, or 50 ms if that panics.
    pub(crate) fn when(&mut self, key: u8) -> u64 {
        if std::mem::take(&mut self.limiter_panics) {
            self.unlimited[usize::from(key)] += 1;
            return 50_000_000;
        }
        let delay = u64::try_from(self.limits.when(&key)).unwrap_or(NEVER);
        if std::mem::take(&mut self.is_past_last) { 50_000_000 } else { delay }
    }

    pub(crate) fn forget(&mut self, key: u8) {
        self.unlimited[usize::from(key)] = 0;
        self.given_up.remove(&key);
        if !std::mem::take(&mut self.limiter_panics) {
            self.limits.forget(&key);
        }
    }

    pub(crate) fn num_requeues(&self, key: u8) -> usize {
        self.limits.num_requeues(&key) + self.unlimited(key)
    }

    pub(crate) fn is_given_up(&self, key: u8) -> bool {
        self.given_up.contains(&key)
    }

    /// A failure after the last retry, whose key is about to be requeued. The limiter is not asked for its delay.
    pub(crate) fn past_last(&mut self, key: u8) {
        self.counts.given_up += u64::from(self.given_up.insert(key));
        // A limiter of the user's own is not called, and the queue's own only counts.
        self.limiter_panics = self.plan.has_own_counts();
        self.is_past_last = !self.limiter_panics;
    }

    pub(crate) fn unlimited(&self, key: u8) -> usize {
        self.unlimited[usize::from(key)]
    }

    /// The queue counts failures of this key.
    fn is_failing(&self, key: u8) -> bool {
        self.unlimited(key) > 0 || !self.plan.has_own_counts() && self.num_requeues(key) > 0
    }

    /// The failures of a limiter of the user's own are not known; those that a limiter of the crate counts are.
    pub(crate) fn failing(&self) -> usize {
        let of_queue = self.all().filter(|key| self.is_failing(*key)).count();
        let of_limiter =
            self.all().filter(|key| self.plan.limiter == Limiter::Composed && self.limits.num_requeues(key) > 0);
        of_queue + of_limiter.count()
    }

    /// The number of keys that the queue has.
    pub(crate) fn present(&self) -> usize {
        self.all().filter(|key| self.is_present(*key)).count()
    }

    fn is_present(&self, key: u8) -> bool {
        let State { dirty, processing, .. } = self.look(key);
        *dirty || *processing || self.look(key).looked_at().is_some() || self.is_failing(key)
    }

    // ---- adds ----

    /// Whether a key counts for the bound.
    fn is_known(&self, key: u8) -> bool {
        let state = self.look(key);
        state.dirty || state.processing || state.is_held || state.deadline().is_some()
    }

    /// The number of new keys for which the bound has room.
    pub(crate) fn room(&self) -> usize {
        let known = self.all().filter(|key| self.is_known(*key)).count();
        self.plan.max_keys.unwrap_or(usize::MAX).saturating_sub(known)
    }

    /// Whether the bound refuses this key.
    pub(crate) fn is_full_for(&self, key: u8) -> bool {
        !self.shut_down && !self.is_known(key) && self.room() == 0
    }

    fn full(&mut self) -> Added {
        self.counts.full += 1;
        Added::Full
    }

    /// `add`.
    pub(crate) fn add_now(&mut self, key: u8) -> Added {
        if self.is_full_for(key) { self.full() } else { self.add(key, 0) }
    }

    /// A plain add, as of a key that expires or is put back.
    pub(crate) fn add(&mut self, key: u8, mut priority: i8) -> Added {
        if self.shut_down {
            return self.rejected();
        }
        match self.plan.policy {
            DelayedAdd::Promote => {
                let mut delays = self.look(key).delays;
                for delay in &mut delays {
                    if let Some(retry) = delay.take_if(|due| due.is_retry) {
                        priority = priority.max(retry.priority);
                    }
                }
                self.set_delays(key, delays);
            }
            DelayedAdd::Strict if !self.look(key).dirty => {
                if let Some(retry) = self.state(key).retry() {
                    retry.priority = retry.priority.max(priority);
                    self.state(key).waits = true;
                    return self.coalesced();
                }
            }
            // Independent: the delays stay, whatever this add does.
            _ => {}
        }
        self.make_dirty(key, priority)
    }

    /// An add waits for the end of a rest. Returns whether it is the first.
    fn wait_for_rest(&mut self, key: u8, priority: i8) -> bool {
        let state = self.state(key);
        let is_first = !std::mem::replace(&mut state.is_held, true);
        state.pending = if is_first { priority } else { state.pending.max(priority) };
        state.waits = true;
        is_first
    }

    /// An add of a key that cools down.
    fn hold(&mut self, key: u8, priority: i8) -> Added {
        if !self.wait_for_rest(key, priority) {
            return self.coalesced();
        }
        self.counts.delays += 1;
        Added::Delayed
    }

    /// A held key will cool down after its run.
    pub(crate) fn rest(&mut self, key: u8, time: u64) {
        if time == 0 || self.shut_down {
            return;
        }
        let end = self.time().saturating_add(time);
        let before = self.look(key).looked_at();
        let state = self.state(key);
        state.rest = state.rest.max(Some(end));
        let delays = state.delays;
        self.set_delays_since(key, delays, before);
    }

    /// The delay that an add asks for, or the limiter's if that is longer. Counts a failure.
    fn delay_of(&mut self, key: u8, how: &How, delay: Option<u64>) -> Option<u64> {
        if !how.rate_limited {
            return delay;
        }
        self.counts.failures += 1;
        let limiter = self.when(key);
        Some(delay.unwrap_or(0).max(limiter))
    }

    /// `add_with`; and with the options that stand for them, `add_after` and `add_rate_limited`. `delay`: the one that was asked for.
    pub(crate) fn add_with(&mut self, key: u8, how: &How, delay: Option<u64>, priority: i8) -> Added {
        if !how.rate_limited && self.is_full_for(key) {
            return self.full();
        }
        let delay = self.delay_of(key, how, delay);
        if self.shut_down {
            return self.rejected();
        }
        self.counts.retries += u64::from(delay.is_some());
        self.note_time(delay);
        let highest = self.look(key).highest();
        if let (Some(_), DelayConflict::KeepExisting) = (highest, how.conflict) {
            // The end of a hand-out may drop a holder's delay. The add must not be lost then.
            let [caller, holder] = &mut self.state(key).delays;
            match caller {
                Some(caller) => caller.priority = caller.priority.max(priority),
                None => *caller = holder.map(|holder| Due { priority, is_retry: false, ..holder }),
            }
            return self.coalesced();
        }
        let Some(delay) = delay.filter(|delay| *delay > 0) else {
            if how.conflict != DelayConflict::Replace {
                return self.add(key, priority);
            }
            return self.replace_now(key, priority);
        };
        let mut deadline = self.time().saturating_add(delay);
        if let Some(bound) = how.bound() {
            let time = self.time();
            let first = *self.state(key).first.get_or_insert(time);
            deadline = deadline.min(first.saturating_add(bound)).max(time);
            if deadline == time {
                // It is to be added at once.
                return self.replace_now(key, priority);
            }
        }
        let mut due = Due { deadline, priority, is_retry: how.rate_limited };
        let [caller, holder] = self.look(key).delays;
        let (old, other) = match how.conflict {
            DelayConflict::Replace => (highest, None),
            _ => (caller.map(|due| due.priority), holder),
        };
        due.priority = old.map_or(priority, |old| old.max(priority));
        if let Some(old) = caller.filter(|old| how.conflict != DelayConflict::Replace && old.deadline <= due.deadline) {
            self.state(key).delays[CALLER] = Some(Due { priority: due.priority, ..old });
            return self.coalesced();
        }
        self.set_delays(key, [Some(due), other]);
        self.counts.delays += 1;
        Added::Delayed
    }

    /// Adds the key at once in the place of its delays.
    fn replace_now(&mut self, key: u8, priority: i8) -> Added {
        let highest = self.look(key).highest();
        self.set_delays(key, [None; 2]);
        // The add that waits for a retry is this one. One that waits for the end of a rest goes on waiting.
        self.state(key).waits &= self.look(key).is_held;
        self.add(key, highest.map_or(priority, |highest| highest.max(priority)))
    }

    /// Sets the delays of a key.
    fn set_delays(&mut self, key: u8, delays: [Option<Due>; 2]) {
        self.set_delays_since(key, delays, self.look(key).looked_at());
    }

    fn set_delays_since(&mut self, key: u8, delays: [Option<Due>; 2], before: Option<u64>) {
        let state = self.state(key);
        state.delays = delays;
        state.first = state.first.filter(|_| delays[CALLER].is_some());
        if let Some(rest) = state.rest {
            state.delays.iter_mut().flatten().for_each(|due| due.deadline = due.deadline.max(rest));
        }
        if self.look(key).looked_at() != before {
            self.calls += 1;
            self.state(key).due_since = self.calls;
            self.rearranged |= before.is_some();
        }
    }

    fn deadline(&self, key: u8) -> Option<u64> {
        self.look(key).deadline()
    }

    fn make_dirty(&mut self, key: u8, priority: i8) -> Added {
        if self.look(key).rest.is_some() && !self.look(key).processing {
            return self.hold(key, priority);
        }
        let now = self.now;
        let state = self.state(key);
        // The hand-out serves an add that has waited, too.
        state.waits = false;
        let was_dirty = std::mem::replace(&mut state.dirty, true);
        if !was_dirty {
            state.dirty_since = now;
        }
        match (was_dirty, state.processing) {
            (false, false) => {
                self.counts.pushed += 1;
                self.push(key, priority);
                Added::Queued
            }
            (false, true) => {
                state.pending = priority;
                self.counts.deferred += 1;
                Added::Deferred
            }
            (true, true) => {
                state.pending = state.pending.max(priority);
                self.coalesced()
            }
            (true, false) => {
                let level = self.level_of(key).expect("it is queued");
                if priority > level {
                    self.unqueue(key);
                    self.push(key, priority);
                }
                self.coalesced()
            }
        }
    }

    fn coalesced(&mut self) -> Added {
        self.counts.coalesced += 1;
        Added::Coalesced
    }

    fn rejected(&mut self) -> Added {
        self.counts.rejected += 1;
        Added::Rejected
    }

    // ---- the order ----

    fn order(&mut self, key: u8) -> &mut Order {
        let shard = self.shard_of[usize::from(key)];
        &mut self.shards[shard]
    }

    /// Whether as many keys of the group are processing as its limit allows.
    fn is_full(&self, group: u8) -> bool {
        let processing = self.all().filter(|key| self.look(*key).processing && self.plan.group_of(*key) == group);
        self.limit_of(group).keys.is_some_and(|limit| processing.count() >= limit as usize)
    }

    pub(crate) fn limit_of(&self, group: u8) -> Limit {
        self.set.get(&group).copied().unwrap_or(self.plan.limit())
    }

    /// The number of groups that are full.
    pub(crate) fn full_groups(&self) -> usize {
        (0..self.plan.groups.unwrap_or(0)).filter(|group| self.is_full(*group)).count()
    }

    /// Whether no key of the group may be handed out.
    fn is_held(&self, group: u8) -> bool {
        self.is_full(group) || self.pauses.contains_key(&group) || self.throttled.contains(&group)
    }

    /// What holds a group back, and for how long: a pause, the want of a token, or nothing that ends by itself.
    pub(crate) fn held_back(&self, group: u8) -> Option<HeldBack> {
        let left = |end| Duration::from_nanos(u64::saturating_sub(end, self.now));
        if let Some(end) = self.pauses.get(&group) {
            let left = if *end == NEVER { Duration::MAX } else { left(*end) };
            return Some(HeldBack::Paused { left });
        }
        if self.throttled.contains(&group) {
            return Some(HeldBack::Throttled { left: Duration::from_nanos(self.tokens[&group].wait(self.now)) });
        }
        self.is_full(group).then_some(HeldBack::Full)
    }

    /// How long until a group with queued keys may have a token, if one has none.
    pub(crate) fn throttled_for(&self) -> Option<u64> {
        let has_keys = |group: &&u8| self.all().any(|key| self.is_queued(key) && self.plan.group_of(key) == **group);
        self.throttled.iter().filter(has_keys).map(|group| self.tokens[group].wait(self.now)).min()
    }

    /// For each group that has spent tokens: how long until all of them are there again.
    pub(crate) fn spent(&self) -> Vec<u64> {
        let missing = |tokens: &Tokens| {
            let mut tokens = *tokens;
            tokens.fill(self.now);
            (Tokens::all(tokens.rate) - tokens.worth) as u64
        };
        self.tokens.values().map(missing).filter(|missing| *missing > 0).collect()
    }

    /// Takes a token of a group that is handed a key.
    fn spend_token(&mut self, group: u8) {
        let (now, rate) = (self.now, self.limit_of(group).rate);
        let Some(rate) = rate else { return };
        let tokens = self.tokens.entry(group).or_insert(Tokens::full(rate, now));
        tokens.spend(now);
        if tokens.wait(now) > 0 {
            self.throttled.insert(group);
        }
    }

    /// Puts the turns of a group where they belong, after a change of what holds it back.
    fn sort_group(&mut self, group: u8) {
        let is_held = self.is_held(group);
        for order in &mut self.shards {
            let (levels, held) = (&mut order.levels, &mut order.held);
            let (from, to) = if is_held { (levels, held) } else { (held, levels) };
            for (level, turns) in from {
                let (own, others): (Vec<_>, _) = turns.drain(..).partition(|turn| turn.group == group);
                *turns = others.into();
                to.entry(*level).or_default().extend(own);
            }
            order.tidy();
        }
    }

    /// `Group::set` with a limit, or `Group::unset`.
    pub(crate) fn set_group(&mut self, group: u8, limit: Option<Limit>) {
        let (old, now) = (self.limit_of(group), self.now);
        match limit {
            Some(limit) => _ = self.set.insert(group, limit),
            None => _ = self.set.remove(&group),
        }
        let new = self.limit_of(group);
        if old == new {
            return;
        }
        self.throttled.remove(&group);
        let tokens = self.tokens.remove(&group);
        if let Some(rate) = new.rate {
            let tokens = tokens.map_or(Tokens::full(rate, now), |tokens| tokens.change(rate, now));
            if tokens.wait(now) > 0 {
                self.throttled.insert(group);
            }
            self.tokens.insert(group, tokens);
        }
        self.sort_group(group);
    }

    pub(crate) fn pause_group(&mut self, group: u8, time: u64) {
        if time > 0 {
            let until = self.now.saturating_add(time);
            let end = self.pauses.entry(group).or_default();
            *end = until.max(*end);
            self.sort_group(group);
        }
    }

    pub(crate) fn resume_group(&mut self, group: u8) {
        self.pauses.remove(&group);
        self.sort_group(group);
    }

    fn push(&mut self, key: u8, priority: i8) {
        self.calls += 1;
        self.state(key).push = self.calls;
        self.state(key).stamp = self.stamp(key, priority);
        let group = self.plan.group_of(key);
        let is_held = self.is_held(group);
        self.levels.insert(priority);
        let state = self.state(key);
        (state.passed, state.place, state.run) = (0, 0, (0, 0));
        let order = self.order(key);
        let new = Turn { group, keys: [key].into() };
        let levels = if is_held { &mut order.held } else { &mut order.levels };
        let turns = levels.entry(priority).or_default();
        match turns.iter_mut().find(|turn| turn.group == group) {
            Some(turn) => turn.keys.push_back(key),
            None => turns.push_back(new),
        }
    }

    /// The steps at which the push of a key may seem to have been. It has the time of one of the last [`STAMPED`], but the first key of a
    /// level has its own: unless the level is a plain line, which has no priorities yet.
    fn stamp(&mut self, key: u8, priority: i8) -> (u64, u64) {
        let (now, has_groups) = (self.steps, self.plan.groups.is_some());
        if now == 0 || self.plan.shards == 1 {
            return (0, now);
        }
        let order = self.order(key);
        let is_first = order.turns().all(|(level, _)| level != priority) && (has_groups || priority != 0);
        let last = order.pushes.entry(if has_groups { 0 } else { priority }).or_default();
        last.push_back(now);
        let before = if last.len() > STAMPED { last.pop_front() } else { None };
        (if is_first { now } else { before.unwrap_or(0) }, now)
    }

    /// Judges a list of queued keys that a call takes out, or has just taken: by level, and then by age; or if they are `in_turns`, by
    /// level, then the first turns of all groups, then the second ones. The keys of one shard are in the order of their pushes. Those of
    /// several are in an order of the times that the crate may have for these (P18).
    pub(crate) fn judge_list(&self, listed: &[u8], in_turns: bool) {
        let mut given: BTreeMap<_, u32> = BTreeMap::new();
        let rank = |key: &u8| {
            let (level, group) = (Reverse(self.level_of(*key)), self.plan.group_of(*key));
            let before = given.entry((level, group)).or_default();
            let turn = if in_turns { *before / self.plan.weight_of(group) } else { 0 };
            *before += 1;
            (level, turn)
        };
        let ranks: Vec<_> = listed.iter().map(rank).collect();
        assert!(ranks.is_sorted(), "by level and by turn: {listed:?} {ranks:?}");
        for (at, key) in listed.iter().enumerate() {
            for (earlier, rank) in listed[..at].iter().zip(&ranks) {
                let is_alike = *rank == ranks[at]
                    || rank.0 == ranks[at].0 && self.plan.group_of(*earlier) == self.plan.group_of(*key);
                let (one, other) = (self.look(*earlier), self.look(*key));
                let is_older = match self.shard_of[usize::from(*earlier)] == self.shard_of[usize::from(*key)] {
                    true => one.push < other.push,
                    false => one.stamp.0 <= other.stamp.1,
                };
                assert!(!is_alike || is_older, "key {earlier} is younger than key {key}: {listed:?}");
            }
        }
    }

    /// Takes a queued key out of its shard's order.
    fn unqueue(&mut self, key: u8) {
        let order = self.order(key);
        order.levels.values_mut().flatten().for_each(|turn| turn.keys.retain(|other| *other != key));
        order.held.values_mut().flatten().for_each(|turn| turn.keys.retain(|other| *other != key));
        order.tidy();
    }

    fn level_of(&self, key: u8) -> Option<i8> {
        let order = &self.shards[self.shard_of[usize::from(key)]];
        order.turns().find(|(_, turn)| turn.keys.contains(&key)).map(|(level, _)| level)
    }

    /// How long the pace still allows no hand-out: over any span at most those of the burst, and one for each period of the span. So of
    /// each number of hand-outs in a row, up to now, the first must be long ago.
    pub(crate) fn paced_for(&self) -> u64 {
        let Some((period, burst)) = self.plan.pace else { return 0 };
        let until = |(count, at): (u64, &u64)| at + (count + 1).saturating_sub(burst.into()) * period;
        (1..).zip(self.paced.iter().rev()).map(until).max().unwrap_or(0).saturating_sub(self.now)
    }

    /// A shut-down ends the pause, and none begins after it.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused && !self.shut_down
    }

    /// The keys that a get may return now.
    pub(crate) fn next_keys(&self) -> Vec<u8> {
        if self.is_paused() || self.paced_for() > 0 {
            return Vec::new();
        }
        let with_keys = self.shards.iter().filter(|order| !order.levels.is_empty());
        with_keys.flat_map(|order| order.clone().next(&self.plan)).map(|(key, _)| key).collect()
    }

    /// Hands out this key, which must be one of [`next_keys`](Self::next_keys). Returns its priority.
    pub(crate) fn hand_out(&mut self, key: u8) -> i8 {
        let plan = self.plan.clone();
        let next = self.order(key).next(&plan).into_iter().find(|(next, _)| *next == key);
        let (_, level) = next.expect("the key is not the next one of its shard, or of its group");
        assert!(!self.is_paused(), "handed out during a pause");
        assert_eq!(self.paced_for(), 0, "faster than the pace");
        self.paced.extend(self.plan.pace.map(|_| self.now));
        if self.paced.len() > 1000 {
            self.paced.pop_front();
        }
        if self.plan.work_time {
            self.begin_contest(level);
        } else {
            self.judge_waits(key);
            self.judge_turns(key, level);
        }
        self.judge_lower(key, level);
        self.unqueue(key);
        self.handed_out(key, level)
    }

    fn handed_out(&mut self, key: u8, level: i8) -> i8 {
        let (now, plan) = (self.now, self.plan.clone());
        let state = self.state(key);
        (state.dirty, state.processing, state.held, state.processing_since) = (false, true, level, now);
        state.waited = now.saturating_sub(state.dirty_since);
        let waited = state.waited;
        self.sums[0] += u128::from(waited);
        self.counts.handed_out += 1;
        self.handed_out_of[self.shard_of[usize::from(key)]] += 1;
        let group = plan.group_of(key);
        self.paid.entry(group).or_default().0 += 1;
        self.spend_token(group);
        self.sort_group(group);
        level
    }

    /// With handler time, the groups of this level contend for the hand-out. If they are others than before, they begin anew.
    fn begin_contest(&mut self, level: i8) {
        let turns = self.shards.iter().filter_map(|order| order.levels.get(&level)).flatten();
        let groups: BTreeSet<u8> = turns.map(|turn| turn.group).collect();
        if self.levels.len() > 1 || !groups.iter().eq(self.contest.paid.keys()) {
            let paid = if self.levels.len() > 1 {
                BTreeMap::new()
            } else {
                groups.into_iter().map(|group| (group, 0)).collect()
            };
            self.contest = Contest { paid, longest: 0 };
        }
    }

    /// A group pays what its handler has taken (P20). Over 1000 times the longest handler, groups that have had keys all the time have paid
    /// alike, by their weights: Jain's index is at least 0.99. (That is all that is checked: in which order the groups come is not.)
    fn pay(&mut self, group: u8, time: u64) {
        let paid = &mut self.paid.entry(group).or_default().1;
        *paid = paid.saturating_add(time);
        let contest = &mut self.contest;
        let Some(paid) = contest.paid.get_mut(&group) else { return };
        *paid += u128::from(time);
        contest.longest = contest.longest.max(time.into());
        let sum: u128 = contest.paid.values().sum();
        if sum > 0 && sum >= 1000 * contest.longest {
            // Each weight is at most 3.
            let paid: Vec<u128> =
                contest.paid.iter().map(|(group, paid)| paid * 6 / u128::from(self.plan.weight_of(*group))).collect();
            let (sum, squares): (u128, u128) = (paid.iter().sum(), paid.iter().map(|paid| paid * paid).sum());
            assert!(
                100 * sum * sum >= 99 * paid.len() as u128 * squares,
                "not fair by handler time: {:?}",
                contest.paid
            );
            self.alike += 1;
        }
    }

    /// The number of hand-outs and the handler time of a group that has keys.
    pub(crate) fn paid(&self, group: u8) -> Option<(u64, u64)> {
        self.all()
            .any(|key| self.plan.group_of(key) == group && self.is_present(key))
            .then(|| self.paid.get(&group).copied().unwrap_or_default())
    }

    /// A group that has no key begins anew when it has one.
    pub(crate) fn forget_paid(&mut self) {
        let groups: Vec<u8> = self.paid.keys().copied().filter(|group| self.paid(*group).is_none()).collect();
        groups.iter().for_each(|group| _ = self.paid.remove(group));
    }

    /// No key starves (P19, P20). Another key of its shard is handed out, so each key that could have been waits for one more hand-out. Of 16
    /// hand-outs one goes to the lower levels in turn; within a level groups take turns, of which one in 16 goes to those that have had one;
    /// and within a group its keys.
    fn judge_waits(&mut self, key: u8) {
        // With many keys it would take long.
        if self.is_crowded() || (self.plan.strict || self.plan.shards > 1) && self.levels.len() > 1 {
            return; // with several shards: see `judge_lower`
        }
        let groups = self.plan.groups.unwrap_or(1);
        let weight = |group| u64::from(self.plan.weight_of(group).min(KEYS.into()));
        let round: u64 = (0..groups).map(weight).sum::<u64>() * if groups > 1 { 16 } else { 1 };
        for other in self.all().filter(|other| *other != key) {
            let group = self.plan.group_of(other);
            let same_shard = self.shard_of[usize::from(other)] == self.shard_of[usize::from(key)];
            if !same_shard || !self.is_queued(other) || self.is_held(group) {
                continue;
            }
            let levels = self.levels.len() as u64;
            let (level, push) = (self.level_of(other), self.look(other).push);
            let is_ahead = |key: &u8| {
                self.is_queued(*key)
                    && self.plan.group_of(*key) == group
                    && self.level_of(*key) == level
                    && self.look(*key).push <= push
            };
            let place = self.all().filter(is_ahead).count() as u64;
            // With a limit, the group has turns of its own for its lower levels, too.
            let of = if self.plan.has_holds() { 17 } else { 16 };
            let turns = if levels == 1 { 1 } else { of * (levels - 1) };
            let state = self.state(other);
            state.passed += 1;
            state.place = state.place.max(place);
            assert!(
                state.passed <= turns * round * state.place,
                "key {other} has waited for {} hand-outs",
                state.passed
            );
        }
    }

    /// With several shards the turns of the lower levels are those of the queue (P19): at most one of 16 hand-outs, and with one thread one
    /// comes in time.
    fn judge_lower(&mut self, key: u8, level: i8) {
        let (shards, shard) = (self.plan.shards as u64, self.shard_of[usize::from(key)]);
        let top_of = |order: &Order| order.levels.keys().next_back().copied();
        let (top_here, top) = (top_of(&self.shards[shard]), self.shards.iter().filter_map(top_of).max());
        let waits =
            self.shards.iter().any(|order| order.levels.keys().next().is_some_and(|lowest| Some(*lowest) < top));
        self.since_lower = if waits && Some(level) == top { self.since_lower + 1 } else { 0 };
        self.lower_turns += u64::from(Some(level) < top_here);
        if shards > 1 && !self.plan.strict && self.steps > 0 {
            assert!(self.since_lower <= 32 + 4 * (shards + 1), "lower levels wait for {} hand-outs", self.since_lower);
            // Groups with a limit have such turns of their own, too.
            let of = if self.plan.has_holds() { 8 } else { 16 };
            assert!(
                self.lower_turns * of <= self.counts.handed_out + 1,
                "lower levels have had {} turns",
                self.lower_turns
            );
        }
    }

    /// A group gives no more keys in a row than its weight while another one of its level waits (P20); but one of 16 hand-outs goes to those
    /// that have had a turn, which may be this group again.
    fn judge_turns(&mut self, key: u8, level: i8) {
        // With a limit, a group of several levels may be full each time before its turn in one of them is over.
        let has_groups = self.plan.groups.is_some() && (!self.plan.has_holds() || self.levels.len() == 1);
        if !has_groups || self.is_crowded() {
            return;
        }
        let (group, mut longest) = (self.plan.group_of(key), 0);
        for other in self.all() {
            let of = self.plan.group_of(other);
            let same_shard = self.shard_of[usize::from(other)] == self.shard_of[usize::from(key)];
            if !same_shard || self.level_of(other) != Some(level) {
                continue;
            }
            let waits = of != group && !self.is_held(of);
            let run = &mut self.state(other).run;
            let before = if run.0 == group { run.1 } else { 0 };
            *run = (group, if waits { before + 1 } else { 0 });
            longest = longest.max(run.1);
        }
        let weight = self.plan.weight_of(group);
        let since = self.order(key).since_again.entry(level).or_insert(16);
        *since += 1;
        if longest > weight {
            assert!(longest == weight + 1 && *since >= 16, "group {group} has given {longest} keys in its turn");
            *since = 0;
        }
    }

    // ---- ends of a hand-out ----

    pub(crate) fn done(&mut self, key: u8) {
        if self.shut_down && self.state(key).rest.take().is_some() {
            self.calls += 1;
            self.state(key).due_since = self.calls;
        }
        let group = self.plan.group_of(key);
        // Saturating: the clocks of two threads may differ a little.
        let worked = self.now.saturating_sub(self.look(key).processing_since);
        self.sums[1] += u128::from(worked);
        if self.plan.work_time {
            self.pay(group, worked);
        }
        let state = self.state(key);
        assert!(std::mem::replace(&mut state.processing, false), "it is processing");
        let (dirty, pending) = (state.dirty, state.pending);
        self.sort_group(group);
        if dirty && self.look(key).rest.is_some() {
            self.state(key).dirty = false;
            self.counts.taken += 1;
            self.wait_for_rest(key, pending);
        } else if dirty {
            self.push(key, pending);
        }
        self.forget_paid();
    }

    pub(crate) fn succeed(&mut self, key: u8) {
        self.forget(key);
        // After a shut-down, a delay is the last trace of an add that waits for it.
        if !(self.look(key).waits && self.shut_down) {
            self.set_holders(key, None);
        }
        self.done(key);
    }

    /// The newest decision of a holder: its delay takes the place of the one that an earlier hand-out has set, or there is none. An add that
    /// has waited for a retry takes effect if there is no other retry.
    fn set_holders(&mut self, key: u8, due: Option<Due>) {
        let [caller, old] = self.look(key).delays;
        self.set_delays(key, [caller, due]);
        let Some(old) = old.filter(|old| old.is_retry && self.look(key).waits) else { return };
        if let Some(retry) = self.state(key).retry() {
            retry.priority = retry.priority.max(old.priority);
        } else {
            self.state(key).waits = false;
            self.make_dirty(key, old.priority);
            self.let_go += 1;
        }
    }

    pub(crate) fn give_up(&mut self, key: u8) {
        self.counts.given_up += 1;
        self.succeed(key);
    }

    /// `requeue_with`, `retry` and the like.
    pub(crate) fn requeue(&mut self, key: u8, how: &How, delay: Option<u64>) -> Added {
        let priority = how.priority.unwrap_or(self.look(key).held);
        let added = self.add_held(key, how, delay, priority);
        self.done(key);
        added
    }

    fn add_held(&mut self, key: u8, how: &How, delay: Option<u64>, priority: i8) -> Added {
        let delay = self.delay_of(key, how, delay);
        if self.shut_down {
            return self.rejected();
        }
        self.counts.retries += u64::from(delay.is_some());
        self.note_time(delay);
        if let (Some(old), DelayConflict::KeepExisting) = (&mut self.state(key).delays[HOLDER], how.conflict) {
            old.priority = old.priority.max(priority);
            return self.coalesced();
        }
        let delay = delay.filter(|delay| *delay > 0);
        let deadline = delay.map(|delay| self.time().saturating_add(delay));
        self.set_holders(key, deadline.map(|deadline| Due { deadline, priority, is_retry: how.rate_limited }));
        if delay.is_none() {
            return self.make_dirty(key, priority);
        }
        self.counts.delays += 1;
        Added::Delayed
    }

    // ---- taking out ----

    pub(crate) fn cancel(&mut self, key: u8) -> bool {
        let State { waits, rest, .. } = *self.look(key);
        let Some(priority) = self.look(key).highest() else { return false };
        if rest.is_some() {
            if waits && !self.look(key).is_held {
                self.wait_for_rest(key, priority);
            }
            self.set_delays(key, [None; 2]);
            return true;
        }
        self.drop_delay(key);
        if waits && !self.shut_down {
            self.make_dirty(key, priority);
        }
        true
    }

    pub(crate) fn remove(&mut self, key: u8) -> bool {
        let (is_dirty, is_delayed) = (self.is_dirty(key), self.is_delayed(key).0);
        if is_dirty {
            self.take(key);
        }
        if is_delayed {
            self.drop_delay(key);
        }
        is_dirty || is_delayed
    }

    /// Takes back what makes the key dirty.
    pub(crate) fn take(&mut self, key: u8) {
        self.unqueue(key);
        self.state(key).dirty = false;
        self.counts.taken += 1;
    }

    /// The queued keys that match, by level and then by age, as with one shard; and the delayed ones, earliest first.
    /// `but`: a key whose delay stays.
    pub(crate) fn take_where(&mut self, matches: impl Fn(u8) -> bool, but: Option<u8>) -> (Vec<u8>, Vec<Delayed>) {
        let mut queued: Vec<u8> = self.all().filter(|key| self.is_queued(*key) && matches(*key)).collect();
        self.sort_by_age(&mut queued);
        queued.iter().for_each(|key| self.take(*key));
        let mut delayed = self.delayed();
        delayed.retain(|(key, ..)| matches(*key) && Some(*key) != but);
        for (key, ..) in &delayed {
            self.drop_delay(*key);
        }
        (queued, delayed)
    }

    /// Of one shard: by level, and then by age.
    pub(crate) fn sort_by_age(&self, queued: &mut [u8]) {
        queued.sort_by_key(|key| (Reverse(self.level_of(*key)), self.look(*key).push));
    }

    /// Drops both delays.
    pub(crate) fn drop_delay(&mut self, key: u8) {
        self.set_delays(key, [None; 2]);
        (self.state(key).waits, self.state(key).is_held) = (false, false);
    }

    // ---- time ----

    pub(crate) fn advance(&mut self, by: u64) {
        self.now = self.now.saturating_add(by).min(NEVER - 1);
    }

    /// The time from which a delay counts: it never goes back.
    fn time(&mut self) -> u64 {
        self.latest = self.latest.max(self.now);
        self.latest
    }

    /// A call that asks for a delay knows the time, also if the key keeps the delay that it has.
    fn note_time(&mut self, delay: Option<u64>) {
        if delay.is_some_and(|delay| delay > 0) {
            self.time();
        }
    }

    /// Adds the keys whose delays have expired, in the order of their deadlines. Returns their number.
    pub(crate) fn turn(&mut self) -> usize {
        let over: Vec<u8> = self.pauses.iter().filter(|(_, end)| **end <= self.now).map(|(group, _)| *group).collect();
        over.into_iter().for_each(|group| self.resume_group(group));
        let over = self.throttled.iter().copied().filter(|group| self.tokens[group].wait(self.now) == 0);
        for group in over.collect::<Vec<_>>() {
            self.throttled.remove(&group);
            self.sort_group(group);
        }
        self.turn_if(|_| true)
    }

    /// The same for the keys that a call which panicked has added. Those of one shard are added together, unless they are many: then the
    /// earliest come first.
    pub(crate) fn turn_if(&mut self, is_added: impl Fn(u8) -> bool) -> usize {
        let mut expired = 0;
        let is_crowded = self.is_crowded();
        while !self.shut_down {
            self.time();
            let due = |key: &u8| self.due(*key);
            let is_added = |key: u8| is_added(key) || !self.is_delayed(key).0;
            let next = self.all().filter(|key| due(key).is_some() && is_added(*key)).min_by_key(due);
            let Some(key) = next else { break };
            let shard = self.shard_of[usize::from(key)];
            let is_late =
                |other: &u8| self.shard_of[usize::from(*other)] == shard && due(other).is_some() && !is_added(*other);
            assert!(
                self.all().filter(is_late).all(|other| is_crowded && due(&other) >= due(&key)),
                "the delay of a key in the shard of key {key} has expired too"
            );
            expired += usize::from(self.expire_key(key));
        }
        expired
    }

    /// A getter expires this number of delays of a shard, the earliest first.
    pub(crate) fn expire(&mut self, shard: usize, count: usize) {
        self.time();
        for _ in 0..count {
            let here = self.all().filter(|key| self.shard_of[usize::from(*key)] == shard);
            let key = here.filter(|key| self.due(*key).is_some()).min_by_key(|key| self.due(*key));
            self.expire_key(key.expect("a getter has expired a delay that is not due"));
        }
    }

    /// The deadline of a delay that has expired, and the number of the step since which it is the earlier one.
    fn due(&self, key: u8) -> Option<(u64, u64)> {
        let deadline = self.look(key).looked_at().filter(|at| *at <= self.now && *at != NEVER);
        deadline.map(|deadline| (deadline, self.look(key).due_since))
    }

    /// A key has cooled down, or its earlier delay expires; the later one, too, if it is past. One that is to come goes on. Returns whether
    /// the key is added.
    fn expire_key(&mut self, key: u8) -> bool {
        self.calls += 1;
        let (calls, now) = (self.calls, self.now);
        let state = self.state(key);
        (state.due_since, state.rest) = (calls, None);
        let (highest, held) = (state.highest(), std::mem::take(&mut state.is_held).then_some(state.pending));
        let past = state.delays.iter_mut().filter_map(|delay| delay.take_if(|due| due.deadline <= now));
        let past = past.map(|due| due.priority).max();
        state.first = state.first.filter(|_| state.delays[CALLER].is_some());
        let Some(priority) = past.max(held) else {
            self.cooled += u64::from(!self.is_known(key));
            return false;
        };
        // An add that waits may wait for the later one.
        let priority = if state.waits { highest.max(Some(priority)).expect("there is one") } else { priority };
        self.make_dirty(key, priority);
        self.counts.expired += 1;
        true
    }

    /// The number of hand-outs of a shard.
    pub(crate) fn handed_out_of(&self, shard: usize) -> u64 {
        self.handed_out_of[shard]
    }

    // ---- looks ----

    pub(crate) fn is_dirty(&self, key: u8) -> bool {
        self.look(key).dirty
    }

    pub(crate) fn is_queued(&self, key: u8) -> bool {
        self.look(key).dirty && !self.look(key).processing
    }

    /// The number of its last push, if the key is queued.
    pub(crate) fn push_of(&self, key: u8) -> Option<u64> {
        self.is_queued(key).then(|| self.look(key).push)
    }

    /// Whether the key has a delay, and whether an add waits for that.
    pub(crate) fn is_delayed(&self, key: u8) -> (bool, bool) {
        let state = self.look(key);
        (state.deadline().is_some() || state.is_held, state.waits)
    }

    /// The times until keys have cooled down, the shortest first, but for those that never do.
    #[allow(dead_code, reason = "for the tests of the bare machine")]
    pub(crate) fn rests(&self) -> Vec<u64> {
        let ends = self.keys.iter().filter_map(|state| state.rest).filter(|end| *end != NEVER);
        let mut lefts: Vec<u64> = ends.map(|end| end.saturating_sub(self.now)).filter(|left| *left > 0).collect();
        lefts.sort_unstable();
        lefts
    }

    /// The crate may know an earlier deadline than that of the first delay.
    pub(crate) fn has_moved(&self) -> bool {
        self.rearranged || self.keys.iter().any(|state| state.rest.is_some())
    }

    /// The key cools down after its last run, or will after this one.
    #[allow(dead_code, reason = "for the tests of the bare machine")]
    pub(crate) fn is_resting(&self, key: u8) -> bool {
        self.look(key).rest.is_some()
    }

    /// The number of keys whose delay has a bound.
    #[allow(dead_code, reason = "for the tests of the bare machine")]
    pub(crate) fn bounded(&self) -> usize {
        self.keys.iter().filter(|state| state.first.is_some()).count()
    }

    /// The keys that have a caller's delay and a holder's.
    pub(crate) fn doubles(&self) -> Vec<u8> {
        self.all().filter(|key| self.look(*key).delays.iter().all(Option::is_some)).collect()
    }

    /// The group of the key is held back.
    pub(crate) fn is_held_back(&self, key: u8) -> bool {
        self.is_held(self.plan.group_of(key))
    }

    /// Whether keys of several levels were queued.
    pub(crate) fn has_levels(&self) -> bool {
        self.levels.len() > 1
    }

    pub(crate) fn is_processing(&self, key: u8) -> bool {
        self.look(key).processing
    }

    /// The time for which a held key had waited, and the one for which it is processing.
    pub(crate) fn times(&self, key: u8) -> (u64, u64) {
        let state = self.look(key);
        (state.waited, self.now - state.processing_since)
    }

    pub(crate) fn held_priority(&self, key: u8) -> i8 {
        self.look(key).held
    }

    /// What a key is doing, for how long it has been queued or processing, its priority, and its first delay: how long that lasts, and who
    /// has set it.
    pub(crate) fn key_state(&self, key: u8) -> (KeyActivity, Option<u64>, i8, Option<(u64, DelayedBy)>) {
        let (state, left) =
            (self.look(key), |end| if end == NEVER { NEVER } else { u64::saturating_sub(end, self.now) });
        let duration = |nanos| if nanos == NEVER { Duration::MAX } else { Duration::from_nanos(nanos) };
        let setters = [DelayedBy::Caller, DelayedBy::Requeue].into_iter();
        let dues = state.delays.iter().zip(setters).filter_map(|(due, by)| {
            due.map(|due| (due.deadline, due.priority, if due.is_retry { DelayedBy::Retry } else { by }))
        });
        let held = state.rest.filter(|_| state.is_held).map(|end| (end, state.pending, DelayedBy::CoolDown));
        let first = held.or_else(|| dues.min_by_key(|(deadline, ..)| *deadline));
        let delay = first.map(|(deadline, _, by)| (left(deadline), by));
        if state.processing {
            let activity = KeyActivity::Processing { dirty: state.dirty, late: false };
            return (activity, Some(self.now - state.processing_since), state.held, delay);
        }
        if state.dirty {
            let paced = Some(self.paced_for()).filter(|left| *left > 0);
            let activity = match (self.held_back(self.plan.group_of(key)), self.is_paused(), paced) {
                (Some(held_back), ..) => KeyActivity::HeldBack(held_back),
                (None, true, _) => KeyActivity::Paused,
                (None, false, Some(left)) => KeyActivity::Paced { left: duration(left) },
                (None, false, None) => KeyActivity::Queued,
            };
            return (activity, Some(self.now - state.dirty_since), self.level_of(key).expect("it is queued"), delay);
        }
        let activity = match (first, state.rest) {
            (Some(_), _) => KeyActivity::Delayed,
            (None, Some(end)) => KeyActivity::CoolingDown { left: duration(left(end)) },
            (None, None) => KeyActivity::Absent,
        };
        (activity, None, first.map_or(0, |(_, priority, _)| priority), delay)
    }

    pub(crate) fn queued(&self) -> usize {
        self.all().filter(|key| self.is_queued(*key)).count()
    }

    pub(crate) fn processing(&self) -> Vec<u8> {
        self.all().filter(|key| self.is_processing(*key)).collect()
    }

    /// The longest wait of a key that is the first of its level and group, which may be full.
    pub(crate) fn oldest_queued(&self) -> Option<u64> {
        let turns = self.shards.iter().flat_map(Order::turns);
        turns.map(|(_, turn)| self.now - self.look(turn.keys[0]).dirty_since).max()
    }

    /// Earliest first.
    pub(crate) fn delayed(&self) -> Vec<Delayed> {
        let mut keys: Vec<u8> = self.all().filter(|key| self.is_delayed(*key).0).collect();
        let first = |key: &u8| {
            let mut state = *self.look(*key);
            if state.is_held {
                return (state.rest.expect("it is held"), state.pending);
            }
            let due = state.due().expect("it is delayed");
            (due.deadline, due.priority)
        };
        keys.sort_by_key(|key| (first(key).0, self.look(*key).due_since));
        let delayed = |key| {
            let (deadline, priority) = first(&key);
            let left = if deadline == NEVER { NEVER } else { deadline.saturating_sub(self.now) };
            (key, left, priority)
        };
        keys.into_iter().map(delayed).collect()
    }

    /// The times to the deadlines that are to come, and that come at all.
    pub(crate) fn deadlines(&self) -> Vec<u64> {
        let pauses = self.pauses.values().filter(|end| **end != NEVER).map(|end| end.saturating_sub(self.now));
        let tokens = self.throttled.iter().map(|group| self.tokens[group].wait(self.now));
        let delays = self.delayed().into_iter().map(|(_, left, _)| left);
        delays.chain(pauses).chain(tokens).filter(|left| *left > 0 && *left != NEVER).collect()
    }

    /// The number of queued keys of each level, the highest first.
    pub(crate) fn levels(&self) -> Vec<(i8, usize)> {
        let mut levels: BTreeMap<Reverse<i8>, usize> = BTreeMap::new();
        for (level, turn) in self.shards.iter().flat_map(Order::turns) {
            *levels.entry(Reverse(level)).or_default() += turn.keys.len();
        }
        levels.into_iter().map(|(Reverse(level), keys)| (level, keys)).collect()
    }

    /// For each group that has any: its queued and its processing keys.
    pub(crate) fn groups(&self) -> Vec<(u8, usize, usize)> {
        let mut groups: BTreeMap<u8, (usize, usize)> = BTreeMap::new();
        for key in self.all() {
            let group = groups.entry(self.plan.group_of(key)).or_default();
            group.0 += usize::from(self.is_queued(key));
            group.1 += usize::from(self.is_processing(key));
        }
        groups.into_iter().filter(|(_, counts)| *counts != (0, 0)).map(|(group, (q, p))| (group, q, p)).collect()
    }

    /// No key is queued or processing.
    pub(crate) fn is_drained(&self) -> bool {
        self.keys.iter().all(|state| !state.dirty && !state.processing)
    }

    /// No key is delayed either. After a shut-down delays do not count.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_drained() && (self.shut_down || self.delayed().is_empty())
    }

    /// Each getter returns that the queue is shut down.
    pub(crate) fn is_over(&self) -> bool {
        self.shut_down && self.queued() == 0
    }
}

impl Order {
    /// The keys that may be next, with their levels: the first one of each group that is not full. The crate chooses the group, and with a
    /// limit or several shards also the level. That no key starves is judged elsewhere (P19, P20): see `judge_waits`.
    fn next(&mut self, plan: &Plan) -> Vec<(u8, i8)> {
        let highest = self.levels.keys().next_back().copied();
        let levels: Vec<i8> = match (plan.has_holds(), plan.strict) {
            (false, strict) if strict || plan.shards == 1 => self.next_level(strict).into_iter().collect(),
            (_, true) => highest.into_iter().collect(),
            (_, false) => self.levels.keys().copied().collect(),
        };
        let first = |level: &i8| self.levels[level].iter().map(|turn| (turn.keys[0], *level)).collect::<Vec<_>>();
        levels.iter().flat_map(first).collect()
    }

    /// The level of the next hand-out: the highest, but of any 16 hand-outs while lower ones wait one is theirs, in turn (P19).
    fn next_level(&mut self, strict: bool) -> Option<i8> {
        let waiting: Vec<i8> = self.levels.keys().rev().copied().collect();
        let top = *waiting.first()?;
        if waiting.len() > 1 && !strict {
            self.since_lower += 1;
            if self.since_lower == 16 {
                self.since_lower = 0;
                let next = waiting[1..].iter().find(|lower| **lower < self.last_lower);
                self.last_lower = *next.unwrap_or(&waiting[1]);
                return Some(self.last_lower);
            }
        }
        Some(top)
    }

    fn turns(&self) -> impl Iterator<Item = (i8, &Turn)> {
        let ready = self.levels.iter().flat_map(|(level, turns)| turns.iter().map(|turn| (*level, turn)));
        ready.chain(self.held.iter().flat_map(|(level, turns)| turns.iter().map(|turn| (*level, turn))))
    }

    /// Drops turns and levels without keys.
    fn tidy(&mut self) {
        self.levels.values_mut().for_each(|turns| turns.retain(|turn| !turn.keys.is_empty()));
        self.held.values_mut().for_each(|turns| turns.retain(|turn| !turn.keys.is_empty()));
        self.levels.retain(|_, turns| !turns.is_empty());
        self.held.retain(|_, turns| !turns.is_empty());
    }
}
