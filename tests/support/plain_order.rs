//! The order by priority and by groups, said with sorted maps and lists that are searched; and a queue of small numbers on it.
//!
//! It follows the promises P3, P9, P10, P19 and P20 word by word, and does nothing fast.

use keyqueue::{Added, DelayConflict, DelayedAdd};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How a queue orders its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) strict: bool,
    /// The group of a key is the key modulo this number. `None`: no groups.
    pub(crate) groups: Option<u8>,
    pub(crate) limit: Option<u32>,
    pub(crate) policy: DelayedAdd,
}

/// The keys of one group in one level, and how many more of them this turn gives.
struct Turn {
    group: u8,
    credit: u32,
    keys: VecDeque<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    dirty: bool,
    processing: bool,
    /// The deadline, and the number of the call that has set it.
    delay: Option<(u64, u64)>,
    /// An add waits for the delay.
    waits: bool,
    delay_priority: i8,
    held: i8,
    pending: i8,
    /// The number of its last push.
    push: u64,
}

pub(crate) struct PlainQueue {
    plan: Plan,
    pub(crate) shut_down: bool,
    pub(crate) now: u64,
    calls: u64,
    /// For each level, its groups in the order of their turns.
    levels: BTreeMap<i8, VecDeque<Turn>>,
    /// The same of full groups.
    full: BTreeMap<i8, Vec<Turn>>,
    processing: HashMap<u8, u32>,
    since_lower: u32,
    last_lower: i8,
    keys: Vec<State>,
}

/// The weight of a group.
pub(crate) fn weight_of(group: u8) -> u32 {
    1 + u32::from(group % 3)
}

impl PlainQueue {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            shut_down: false,
            now: 0,
            calls: 0,
            levels: BTreeMap::new(),
            full: BTreeMap::new(),
            processing: HashMap::new(),
            since_lower: 0,
            last_lower: i8::MIN,
            keys: vec![State::default(); 256],
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    fn group_of(&self, key: u8) -> u8 {
        self.plan.groups.map_or(0, |groups| key % groups)
    }

    fn is_full(&self, group: u8) -> bool {
        self.plan.limit.is_some_and(|limit| self.processing.get(&group).is_some_and(|now| *now >= limit))
    }

    fn credit(&self, group: u8) -> u32 {
        if self.plan.groups.is_some() { weight_of(group) } else { u32::MAX }
    }

    fn push(&mut self, key: u8, priority: i8) {
        self.calls += 1;
        self.keys[usize::from(key)].push = self.calls;
        let group = self.group_of(key);
        let (credit, is_full) = (self.credit(group), self.is_full(group));
        let mut turns: Vec<&mut Turn> = if is_full {
            self.full.entry(priority).or_default().iter_mut().collect()
        } else {
            self.levels.entry(priority).or_default().iter_mut().collect()
        };
        if let Some(turn) = turns.iter_mut().find(|turn| turn.group == group) {
            return turn.keys.push_back(key);
        }
        let turn = Turn { group, credit, keys: [key].into() };
        if is_full {
            self.full.entry(priority).or_default().push(turn);
        } else {
            self.levels.entry(priority).or_default().push_back(turn);
        }
    }

    /// Takes a queued key out. Returns its priority.
    fn remove(&mut self, key: u8) -> Option<i8> {
        let mut found = None;
        let turns = self.levels.iter_mut().flat_map(|(level, ring)| ring.iter_mut().map(|turn| (*level, turn)));
        let full = self.full.iter_mut().flat_map(|(level, lanes)| lanes.iter_mut().map(|turn| (*level, turn)));
        for (level, turn) in turns.chain(full) {
            let before = turn.keys.len();
            turn.keys.retain(|other| *other != key);
            found = found.or((turn.keys.len() < before).then_some(level));
        }
        self.levels.values_mut().for_each(|ring| ring.retain(|turn| !turn.keys.is_empty()));
        self.full.values_mut().for_each(|lanes| lanes.retain(|turn| !turn.keys.is_empty()));
        self.levels.retain(|_, ring| !ring.is_empty());
        found
    }

    fn raise(&mut self, key: u8, priority: i8) {
        let level = self.levels().find(|(_, keys)| keys.contains(&key)).expect("it is queued").0;
        if priority > level {
            self.remove(key);
            self.push(key, priority);
        }
    }

    /// The queued keys by level, the highest first.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (i8, Vec<u8>)> {
        let mut levels: BTreeMap<Reverse<i8>, Vec<u8>> = BTreeMap::new();
        for (level, ring) in &self.levels {
            levels.entry(Reverse(*level)).or_default().extend(ring.iter().flat_map(|turn| &turn.keys));
        }
        for (level, lanes) in &self.full {
            levels.entry(Reverse(*level)).or_default().extend(lanes.iter().flat_map(|turn| &turn.keys));
        }
        levels.into_iter().filter(|(_, keys)| !keys.is_empty()).map(|(Reverse(level), keys)| (level, keys))
    }

    pub(crate) fn len(&self) -> usize {
        self.levels().map(|(_, keys)| keys.len()).sum()
    }

    /// For each group that has any: its queued and its processing keys.
    pub(crate) fn groups(&self) -> BTreeMap<u8, (usize, usize)> {
        let mut groups = BTreeMap::new();
        for (key, state) in (0..=255).zip(&self.keys) {
            let group: &mut (usize, usize) = groups.entry(self.group_of(key)).or_default();
            group.0 += usize::from(state.dirty && !state.processing);
            group.1 += usize::from(state.processing);
        }
        groups.retain(|_, counts| *counts != (0, 0));
        groups
    }

    fn is_delayed(&self, key: u8) -> bool {
        self.keys[usize::from(key)].delay.is_some()
    }

    /// The delayed keys, with the time that is left and the priority that they will have.
    pub(crate) fn delayed_keys(&self) -> impl Iterator<Item = (u8, u64, i8)> {
        let delayed = (0..=255).zip(&self.keys).filter_map(|(key, state)| Some((key, state.delay?.0, state)));
        delayed.map(|(key, deadline, state)| (key, deadline.saturating_sub(self.now), state.delay_priority))
    }

    fn remove_delay(&mut self, key: u8) -> i8 {
        let state = &mut self.keys[usize::from(key)];
        (state.delay, state.waits) = (None, false);
        state.delay_priority
    }

    fn raise_delay(&mut self, key: u8, priority: i8) {
        let state = &mut self.keys[usize::from(key)];
        state.delay_priority = state.delay_priority.max(priority);
    }

    pub(crate) fn add(&mut self, key: u8, mut priority: i8) -> Added {
        if self.shut_down {
            return Added::Rejected;
        }
        if self.is_delayed(key) {
            match self.plan.policy {
                DelayedAdd::Promote => priority = self.remove_delay(key).max(priority),
                DelayedAdd::Strict => {
                    let state = &mut self.keys[usize::from(key)];
                    if !state.dirty {
                        state.waits = true;
                        self.raise_delay(key, priority);
                    } else if state.processing {
                        state.pending = state.pending.max(priority);
                    } else {
                        self.raise(key, priority);
                    }
                    return Added::Coalesced;
                }
                _ => {}
            }
        }
        self.make_dirty(key, priority)
    }

    fn make_dirty(&mut self, key: u8, priority: i8) -> Added {
        let state = &mut self.keys[usize::from(key)];
        match (std::mem::replace(&mut state.dirty, true), state.processing) {
            (false, false) => {
                self.push(key, priority);
                Added::Queued
            }
            (false, true) => {
                state.pending = priority;
                Added::Deferred
            }
            (true, true) => {
                state.pending = state.pending.max(priority);
                Added::Coalesced
            }
            (true, false) => {
                self.raise(key, priority);
                Added::Coalesced
            }
        }
    }

    pub(crate) fn add_with(&mut self, key: u8, priority: i8, delay: u64, conflict: DelayConflict) -> Added {
        if self.shut_down {
            return Added::Rejected;
        }
        let old = self.keys[usize::from(key)].delay;
        if delay == 0 {
            match (old, conflict) {
                (Some(_), DelayConflict::Replace) => {
                    let priority = self.remove_delay(key).max(priority);
                    return self.add(key, priority);
                }
                (Some(_), DelayConflict::KeepExisting) => {
                    self.raise_delay(key, priority);
                    return Added::Coalesced;
                }
                _ => return self.add(key, priority),
            }
        }
        let deadline = self.now + delay;
        if let Some((old, _)) = old {
            self.raise_delay(key, priority);
            if conflict == DelayConflict::KeepExisting || conflict != DelayConflict::Replace && old <= deadline {
                return Added::Coalesced;
            }
        } else {
            self.keys[usize::from(key)].delay_priority = priority;
        }
        self.calls += 1;
        self.keys[usize::from(key)].delay = Some((deadline, self.calls));
        Added::Delayed
    }

    pub(crate) fn cancel(&mut self, key: u8) -> bool {
        if !self.is_delayed(key) {
            return false;
        }
        let waits = self.keys[usize::from(key)].waits;
        let priority = self.remove_delay(key);
        if waits && !self.shut_down {
            self.make_dirty(key, priority);
        }
        true
    }

    /// Adds the keys whose delays have expired, in the order of their deadlines. Returns their number.
    pub(crate) fn turn(&mut self) -> usize {
        let mut expired = 0;
        while !self.shut_down {
            let delays = (0..=255).filter_map(|key: u8| Some((self.keys[usize::from(key)].delay?, key)));
            let Some((_, key)) = delays.filter(|((deadline, _), _)| *deadline <= self.now).min() else { break };
            let priority = self.remove_delay(key);
            self.make_dirty(key, priority);
            expired += 1;
        }
        expired
    }

    /// The level of the next hand-out (P19).
    fn next_level(&mut self) -> Option<i8> {
        let waiting: Vec<i8> = self.levels.keys().rev().copied().collect();
        let top = *waiting.first()?;
        if waiting.len() > 1 && !self.plan.strict {
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

    /// Hands a key out.
    pub(crate) fn get(&mut self) -> Option<(u8, i8)> {
        let level = self.next_level()?;
        let ring = self.levels.get_mut(&level).expect("it has keys");
        let turn = ring.front_mut().expect("it has keys");
        let (group, key) = (turn.group, turn.keys.pop_front().expect("a turn has keys"));
        turn.credit -= 1;
        if turn.keys.is_empty() {
            ring.pop_front();
        } else if turn.credit == 0 {
            let turn = ring.pop_front().expect("looked at above");
            let credit = if self.plan.groups.is_some() { weight_of(group) } else { u32::MAX };
            ring.push_back(Turn { credit, ..turn });
        }
        *self.processing.entry(group).or_default() += 1;
        if self.is_full(group) {
            for (level, ring) in &mut self.levels {
                let (full, others): (Vec<_>, _) = ring.drain(..).partition(|turn| turn.group == group);
                *ring = others.into();
                self.full.entry(*level).or_default().extend(full);
            }
        }
        self.levels.retain(|_, ring| !ring.is_empty());
        let state = &mut self.keys[usize::from(key)];
        (state.dirty, state.processing, state.held) = (false, true, level);
        Some((key, level))
    }

    pub(crate) fn done(&mut self, key: u8) {
        let group = self.group_of(key);
        let was_full = self.is_full(group);
        *self.processing.get_mut(&group).expect("it is processing") -= 1;
        if was_full {
            let credit = self.credit(group);
            for (level, lanes) in &mut self.full {
                let (ready, others): (Vec<_>, _) = lanes.drain(..).partition(|turn| turn.group == group);
                *lanes = others;
                let ring = self.levels.entry(*level).or_default();
                ring.extend(ready.into_iter().map(|turn| Turn { credit, ..turn }));
            }
            self.levels.retain(|_, ring| !ring.is_empty());
        }
        let state = &mut self.keys[usize::from(key)];
        state.processing = false;
        if state.dirty {
            let pending = state.pending;
            self.push(key, pending);
        }
    }

    pub(crate) fn requeue(&mut self, key: u8, priority: Option<i8>, delay: u64, conflict: DelayConflict) -> Added {
        let priority = priority.unwrap_or(self.keys[usize::from(key)].held);
        let added = self.add_with(key, priority, delay, conflict);
        self.done(key);
        added
    }

    /// `remove`.
    pub(crate) fn take_back(&mut self, key: u8) -> bool {
        let State { dirty, processing, .. } = self.keys[usize::from(key)];
        if dirty && !processing {
            self.remove(key);
        }
        self.keys[usize::from(key)].dirty = false;
        let delayed = self.is_delayed(key);
        if delayed {
            self.remove_delay(key);
        }
        dirty || delayed
    }

    /// Takes the queued keys that match, by priority and by age, and the delayed ones.
    pub(crate) fn take_where(&mut self, matches: impl Fn(u8) -> bool) -> (Vec<u8>, Vec<u8>) {
        let mut queued: Vec<_> =
            self.levels().flat_map(|(level, keys)| keys.into_iter().map(move |key| (level, key))).collect();
        queued.retain(|(_, key)| matches(*key));
        queued.sort_by_key(|&(level, key)| (Reverse(level), self.keys[usize::from(key)].push));
        for (_, key) in &queued {
            self.remove(*key);
            self.keys[usize::from(*key)].dirty = false;
        }
        let delayed: Vec<u8> = (0..=255).filter(|key| self.is_delayed(*key) && matches(*key)).collect();
        delayed.iter().for_each(|key| _ = self.remove_delay(*key));
        (queued.into_iter().map(|(_, key)| key).collect(), delayed)
    }
}
