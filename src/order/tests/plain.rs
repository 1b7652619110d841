//! The orders, in plain lists that are searched from end to end. Without groups all keys are of one group.

/// Idle lanes that are kept.
pub(super) const KEEP: usize = crate::order::turns::KEEP as usize;

#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) strict: bool,
    pub(super) limit: Option<u32>,
}

/// The limits of a group. A rate is the nanoseconds of a token, and the burst.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limits {
    pub(super) weight: u32,
    pub(super) max: u32,
    pub(super) rate: Option<(i64, i64)>,
}

pub(super) struct Plain {
    rules: Rules,
    now: u64,
    /// In the order of their pushes: key, priority, group.
    pub(super) queued: Vec<(u32, i8, u64)>,
    pub(super) groups: Vec<Group>,
    /// All priorities that were used, the highest first.
    levels: Vec<Level>,
    lanes: Vec<Lane>,
    /// Groups and priorities.
    idle: Vec<(u64, i8)>,
    since_lower: u32,
    last_lower: i8,
}

pub(super) struct Group {
    id: u64,
    limits: Limits,
    is_kept: bool,
    keys: u32,
    processing: u32,
    handed_out: u64,
    paused_until: Option<u64>,
    /// Its bucket has this number of tokens, times the nanoseconds of one, at this time. After a change of its limits it may owe some.
    tokens: (i64, u64),
    is_throttled: bool,
    since_lower: u32,
    last_lower: i8,
    since_top: u32,
}

#[derive(Default)]
struct Level {
    priority: i8,
    new: Vec<u64>,
    old: Vec<u64>,
    round: u64,
    since_old: u32,
}

/// The keys of a group in a level.
struct Lane {
    id: u64,
    priority: i8,
    /// The round in which its next turn comes.
    round: u64,
    credit: u32,
}

impl Group {
    fn is_held(&self) -> bool {
        self.processing >= self.limits.max || self.is_throttled || self.paused_until.is_some()
    }

    fn fill(&mut self, now: u64) {
        if let Some((token, burst)) = self.limits.rate {
            self.tokens = ((self.tokens.0 + (now - self.tokens.1) as i64).min(token * burst), now);
        }
    }

    /// A token is missing, or any of the burst.
    fn lacks(&mut self, now: u64, all: bool) -> bool {
        self.fill(now);
        self.limits.rate.is_some_and(|(token, burst)| self.tokens.0 < token * if all { burst } else { 1 })
    }
}

impl Plain {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            now: 0,
            queued: Vec::new(),
            groups: Vec::new(),
            levels: Vec::new(),
            lanes: Vec::new(),
            idle: Vec::new(),
            since_lower: 0,
            last_lower: i8::MIN,
        }
    }

    fn make_group(&mut self, id: u64, limits: Limits) {
        if !self.groups.iter().any(|group| group.id == id) {
            let (tokens, now) = (limits.rate.map_or(0, |rate| rate.0 * rate.1), self.now);
            self.groups.push(Group {
                id,
                limits,
                is_kept: false,
                keys: 0,
                processing: 0,
                handed_out: 0,
                paused_until: None,
                tokens: (tokens, now),
                is_throttled: false,
                since_lower: 0,
                last_lower: i8::MIN,
                since_top: 0,
            });
        }
    }

    pub(super) fn enter(&mut self, id: u64, limits: Limits) {
        self.make_group(id, limits);
        let group = self.group(id);
        group.keys += 1;
        if group.keys == 1 {
            group.handed_out = 0;
            if !group.is_kept {
                self.change_limits(id, limits);
            }
        }
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.group(id).keys -= 1;
        self.forget_unused();
    }

    /// Returns whether a pop may return it.
    pub(super) fn push(&mut self, key: u32, priority: i8, id: u64) -> bool {
        if !self.levels.iter().any(|level| level.priority == priority) {
            self.levels.push(Level { priority, ..Level::default() });
            self.levels.sort_by_key(|level| -i16::from(level.priority));
        }
        let round = self.level(priority).round;
        if !self.lanes.iter().any(|lane| (lane.id, lane.priority) == (id, priority)) {
            self.lanes.push(Lane { id, priority, round, credit: 0 });
        }
        let is_first = !self.has_keys(id, priority);
        self.queued.push((key, priority, id));
        if is_first {
            self.idle.retain(|idle| *idle != (id, priority));
            if !self.group(id).is_held() {
                self.take_turns(id, priority);
            }
        }
        !self.group(id).is_held()
    }

    pub(super) fn remove(&mut self, key: u32) {
        let at = self.queued.iter().position(|queued| queued.0 == key).unwrap();
        let (_, priority, id) = self.queued.remove(at);
        self.rest_if_empty(id, priority);
        self.tidy();
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        let priority = self.choose()?;
        let level = self.level(priority);
        let from_old = level.new.is_empty() || !level.old.is_empty() && level.since_old >= 15;
        level.since_old = if from_old { 0 } else { level.since_old + 1 };
        let id = if from_old { level.old[0] } else { level.new[0] };
        if self.lane(id, priority).credit == 0 {
            let round = self.lane(id, priority).round.max(self.level(priority).round);
            self.level(priority).round = round;
            let credit = self.group(id).limits.weight;
            let lane = self.lane(id, priority);
            (lane.round, lane.credit) = (round + 1, credit);
        }
        self.lane(id, priority).credit -= 1;
        let of = self.own_turn(id, priority);
        let at = self.queued.iter().position(|queued| (queued.1, queued.2) == (of, id)).unwrap();
        let (key, ..) = self.queued.remove(at);
        let now = self.now;
        let group = self.group(id);
        group.handed_out += 1;
        group.processing += 1;
        group.fill(now);
        if let Some((token, _)) = group.limits.rate {
            group.tokens.0 -= token;
            group.is_throttled = group.lacks(now, false);
        }
        if self.group(id).is_held() {
            self.leave_turns(id);
        } else {
            self.rest_if_empty(id, of);
            if self.has_keys(id, priority) && self.lane(id, priority).credit == 0 {
                let level = self.level(priority);
                level.new.retain(|group| *group != id);
                level.old.retain(|group| *group != id);
                level.old.push(id);
            }
        }
        self.tidy();
        Some(key)
    }

    /// Returns how many keys it makes ready.
    pub(super) fn ended(&mut self, id: u64) -> u32 {
        let was_full = self.group(id).processing >= self.group(id).limits.max;
        let was_held = self.group(id).is_held();
        self.group(id).processing -= 1;
        if was_full && was_held { self.released(id) } else { 0 }
    }

    /// A group that was held back may be so no longer.
    fn released(&mut self, id: u64) -> u32 {
        if self.group(id).is_held() {
            return 0;
        }
        let mut priorities: Vec<i8> =
            self.lanes.iter().filter(|lane| lane.id == id).map(|lane| lane.priority).collect();
        priorities.sort_unstable();
        let mut keys = 0;
        for priority in priorities.into_iter().filter(|priority| self.has_keys(id, *priority)).collect::<Vec<_>>() {
            self.take_turns(id, priority);
            keys += self.queued.iter().filter(|queued| (queued.1, queued.2) == (priority, id)).count() as u32;
        }
        let now = self.now;
        let group = self.group(id);
        group.fill(now);
        let tokens = group.limits.rate.map_or(i64::MAX, |(token, _)| group.tokens.0 / token);
        keys.min(group.limits.max - group.processing).min(tokens.min(1 << 30) as u32)
    }

    fn change_limits(&mut self, id: u64, limits: Limits) -> u32 {
        let now = self.now;
        let group = self.group(id);
        if group.limits == limits {
            return 0;
        }
        let was_held = group.is_held();
        group.fill(now);
        let spent = match (group.limits.rate, limits.rate) {
            // In whole and parts of tokens.
            (Some(old), Some(new)) => (old.0 * old.1 - group.tokens.0) * new.0 / old.0,
            _ => 0,
        };
        group.limits = limits;
        group.tokens = (limits.rate.map_or(0, |new| new.0 * new.1 - spent), now);
        group.is_throttled = group.lacks(now, false);
        let is_held = group.is_held();
        match (was_held, is_held) {
            (false, true) => self.leave_turns(id),
            (true, false) => return self.released(id),
            _ => {}
        }
        0
    }

    pub(super) fn set(&mut self, id: u64, limits: Limits) -> u32 {
        self.make_group(id, Limits { weight: 1, max: u32::MAX, rate: None });
        self.group(id).is_kept = true;
        self.change_limits(id, limits)
    }

    pub(super) fn unset(&mut self, id: u64, limits: Limits) -> u32 {
        if !self.groups.iter().any(|group| group.id == id && group.is_kept) {
            return 0;
        }
        self.group(id).is_kept = false;
        let ready = self.change_limits(id, limits);
        self.forget_unused();
        ready
    }

    pub(super) fn pause(&mut self, id: u64, until: u64) {
        self.make_group(id, Limits { weight: 1, max: u32::MAX, rate: None });
        let group = self.group(id);
        group.paused_until = group.paused_until.max(Some(until));
        self.leave_turns(id);
    }

    pub(super) fn resume(&mut self, id: u64) -> u32 {
        let Some(group) = self.groups.iter_mut().find(|group| group.id == id && group.paused_until.is_some()) else {
            return 0;
        };
        group.paused_until = None;
        let ready = self.released(id);
        self.forget_unused();
        ready
    }

    pub(super) fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Groups of which this is the time.
    pub(super) fn expire(&mut self, order: &[u64]) -> u32 {
        let (now, mut ready) = (self.now, 0);
        let mut due = Vec::new();
        for group in &mut self.groups {
            let is_throttled = group.is_throttled && group.lacks(now, false);
            let paused_until = group.paused_until.filter(|end| *end > now);
            if (is_throttled, paused_until) != (group.is_throttled, group.paused_until) {
                (group.is_throttled, group.paused_until) = (is_throttled, paused_until);
                due.push(group.id);
            }
        }
        // Those of one time come in the order of the wheel.
        due.sort_by_key(|id| order.iter().position(|other| other == id));
        for id in due {
            ready += self.released(id);
        }
        self.forget_unused();
        ready
    }

    pub(super) fn blocked(&self) -> usize {
        let is_held = |id: u64| self.groups.iter().any(|group| group.id == id && group.is_held());
        self.queued.iter().filter(|queued| is_held(queued.2)).count()
    }

    pub(super) fn top(&self) -> Option<i8> {
        self.levels.iter().find(|level| level.new.len() + level.old.len() > 0).map(|level| level.priority)
    }

    pub(super) fn handed_out(&self, id: u64) -> u64 {
        self.groups.iter().find(|group| group.id == id).unwrap().handed_out
    }

    fn choose(&mut self) -> Option<i8> {
        let ready: Vec<i8> = self.levels.iter().filter(|l| l.new.len() + l.old.len() > 0).map(|l| l.priority).collect();
        let top = *ready.first()?;
        if self.rules.strict || ready.len() == 1 {
            return Some(top);
        }
        self.since_lower += 1;
        if self.since_lower < 16 {
            return Some(top);
        }
        self.since_lower = 0;
        let lower = ready[1..].iter().copied().find(|level| *level < self.last_lower).unwrap_or(ready[1]);
        self.last_lower = lower;
        Some(lower)
    }

    /// The level of which a group gives a key, if that is its turn in this one.
    fn own_turn(&mut self, id: u64, priority: i8) -> i8 {
        let limits = self.group(id).limits;
        let mut own: Vec<i8> = self.lanes.iter().filter(|lane| lane.id == id).map(|lane| lane.priority).collect();
        own.retain(|priority| self.has_keys(id, *priority));
        own.sort_by_key(|priority| -i16::from(*priority));
        if self.rules.strict || own.len() < 2 || limits.max == u32::MAX && limits.rate.is_none() {
            return priority;
        }
        let group = self.group(id);
        group.since_lower += 1;
        if group.since_lower >= 16 {
            group.since_lower = 0;
            group.last_lower = own[1..].iter().copied().find(|level| *level < group.last_lower).unwrap_or(own[1]);
            return group.last_lower;
        }
        group.since_top = if priority == own[0] { 0 } else { group.since_top + 1 };
        if group.since_top > 2 {
            group.since_top = 0;
            return own[0];
        }
        priority
    }

    fn has_keys(&self, id: u64, priority: i8) -> bool {
        self.queued.iter().any(|queued| (queued.1, queued.2) == (priority, id))
    }

    /// A group has keys in this level, and is not held back.
    fn take_turns(&mut self, id: u64, priority: i8) {
        let next = self.level(priority).round + 1;
        let weight = self.group(id).limits.weight;
        let lane = self.lane(id, priority);
        if lane.round < next {
            (lane.round, lane.credit) = (next, weight);
        }
        let is_new = lane.credit > 0;
        let level = self.level(priority);
        if is_new { level.new.push(id) } else { level.old.push(id) }
    }

    fn leave_turns(&mut self, id: u64) {
        for level in &mut self.levels {
            let listed = level.new.len() + level.old.len();
            level.new.retain(|group| *group != id);
            level.old.retain(|group| *group != id);
            let priority = level.priority;
            let has_keys = self.queued.iter().any(|queued| (queued.1, queued.2) == (priority, id));
            if listed > level.new.len() + level.old.len() && !has_keys {
                self.idle.push((id, priority));
            }
        }
    }

    fn rest_if_empty(&mut self, id: u64, priority: i8) {
        if !self.has_keys(id, priority) {
            let level = self.level(priority);
            level.new.retain(|group| *group != id);
            level.old.retain(|group| *group != id);
            self.idle.push((id, priority));
        }
    }

    fn tidy(&mut self) {
        for _ in 0..4 {
            let waiting = self.lanes.len() - self.idle.len();
            if self.idle.len() <= KEEP || !self.forget_first(self.idle.len() > KEEP + 2 * waiting) {
                break;
            }
        }
        self.forget_unused();
    }

    fn forget_first(&mut self, are_many: bool) -> bool {
        let (id, priority) = self.idle[0];
        let is_quiet = !self.queued.iter().any(|queued| queued.1 == priority);
        if are_many || is_quiet || self.lane(id, priority).round <= self.level(priority).round {
            self.lanes.retain(|lane| (lane.id, lane.priority) != (id, priority));
            self.idle.remove(0);
            return true;
        }
        false
    }

    /// Groups that are idle and whose turns have come are forgotten.
    pub(super) fn shrink(&mut self) {
        while !self.idle.is_empty() && self.forget_first(false) {}
        self.forget_unused();
    }

    /// A group is known as long as it has keys or lanes, or has to be remembered.
    fn forget_unused(&mut self) {
        let (now, lanes) = (self.now, &self.lanes);
        self.groups.retain_mut(|group| {
            group.keys > 0
                || lanes.iter().any(|lane| lane.id == group.id)
                || group.is_kept
                || group.paused_until.is_some()
                || group.is_throttled
                || group.lacks(now, true)
        });
    }

    fn level(&mut self, priority: i8) -> &mut Level {
        self.levels.iter_mut().find(|level| level.priority == priority).unwrap()
    }

    fn group(&mut self, id: u64) -> &mut Group {
        self.groups.iter_mut().find(|group| group.id == id).unwrap()
    }

    fn lane(&mut self, id: u64, priority: i8) -> &mut Lane {
        self.lanes.iter_mut().find(|lane| (lane.id, lane.priority) == (id, priority)).unwrap()
    }
}
