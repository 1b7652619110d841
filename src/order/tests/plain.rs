//! The orders, in plain lists that are searched from end to end. Without groups all keys are of one group.

use crate::order::level_of;
use crate::random::mix;

/// Idle groups that are kept.
pub(super) const KEEP: usize = crate::order::seats::KEEP as usize;

#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) strict: bool,
    pub(super) limit: Option<u32>,
}

pub(super) struct Plain {
    rules: Rules,
    /// In the order of their pushes: key, priority, group.
    pub(super) queued: Vec<(u32, i8, u64)>,
    pub(super) groups: Vec<Group>,
    /// All priorities that were used, the highest first.
    levels: Vec<Level>,
    since_lower: u32,
    last_lower: i8,
    last_skipped: i8,
    rooms: u64,
    /// Groups that are owed a hand-out in a level.
    owed: Vec<(u64, i8)>,
}

pub(super) struct Group {
    id: u64,
    weight: u32,
    keys: u32,
    processing: u32,
    handed_out: u64,
}

#[derive(Default)]
struct Level {
    priority: i8,
    /// Groups, and the keys that they may still give in this turn.
    new: Vec<(u64, u32)>,
    old: Vec<(u64, u32)>,
    idle: Vec<(u64, u64)>,
    parked: Vec<u64>,
    /// Of these: the groups that were full when the level had a turn.
    skipped: Vec<u64>,
    /// Groups, how often they were filled by keys of other levels since they gave a key of this one, or got the first one: up to 63.
    passes: Vec<(u64, u16)>,
    /// Groups, the turns at which they have theirs, or would have had them; whether they have filled themselves; and were in no list.
    due: Vec<(u64, u64, bool, bool)>,
    turns: u64,
    /// New groups, and those that were new when they were parked, with their places in the sequence of all that have come.
    tickets: Vec<(u64, u64)>,
    came: u64,
    passed: u64,
    since_old: u32,
}

impl Level {
    fn is_ready(&self) -> bool {
        !self.new.is_empty() || !self.old.is_empty()
    }

    fn passes(&self, id: u64) -> u16 {
        self.passes.iter().find(|passes| passes.0 == id).unwrap().1
    }

    fn ticket(&self, id: u64) -> Option<u64> {
        self.tickets.iter().find(|group| group.0 == id).map(|group| group.1)
    }
}

fn take<T: Copy>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool) -> Option<T> {
    let at = list.iter().position(is_it)?;
    Some(list.remove(at))
}

impl Plain {
    pub(super) fn new(rules: Rules) -> Self {
        let (queued, groups, levels, owed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            rules,
            queued,
            groups,
            levels,
            since_lower: 0,
            last_lower: i8::MIN,
            last_skipped: i8::MIN,
            rooms: 0,
            owed,
        }
    }

    pub(super) fn enter(&mut self, id: u64, weight: u32) {
        if !self.groups.iter().any(|group| group.id == id) {
            self.groups.push(Group { id, weight: weight.max(1), keys: 0, processing: 0, handed_out: 0 });
        }
        let group = self.group(id);
        if group.keys == 0 {
            (group.weight, group.handed_out) = (weight.max(1), 0);
        }
        group.keys += 1;
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
        if !self.queued.iter().any(|queued| (queued.1, queued.2) == (priority, id)) {
            self.serve(id, priority);
        }
        self.queued.push((key, priority, id));
        self.seat(id, priority, false);
        !self.is_full(id)
    }

    pub(super) fn remove(&mut self, key: u32) {
        let (_, priority, id) = take(&mut self.queued, |queued| queued.0 == key).unwrap();
        self.seat(id, priority, false);
        self.tidy(priority);
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        let owed = self.owed.first().copied();
        let (priority, id, is_over, from_old) = if let Some((id, priority)) = owed {
            self.since_lower = (self.since_lower + 1).min(15);
            (priority, id, true, false)
        } else {
            let priority = self.choose()?;
            let level = self.level(priority);
            let from_old = level.new.is_empty() || !level.old.is_empty() && level.since_old >= 15;
            level.since_old = if from_old { 0 } else { level.since_old + 1 };
            let (id, credit) = &mut if from_old { &mut level.old } else { &mut level.new }[0];
            *credit -= 1;
            let (id, is_over) = (*id, *credit == 0);
            if !from_old {
                level.passed = level.passed.max(level.ticket(id).unwrap());
            }
            (priority, id, is_over, from_old)
        };
        let (key, ..) = take(&mut self.queued, |queued| (queued.1, queued.2) == (priority, id)).unwrap();
        let is_limited = self.rules.limit.is_some();
        let group = self.group(id);
        group.handed_out += 1;
        group.processing += u32::from(is_limited);
        self.serve(id, priority);
        let is_empty = !self.queued.iter().any(|queued| (queued.1, queued.2) == (priority, id));
        if from_old && (is_over || is_empty || self.is_full(id)) {
            self.level(priority).turns += 1;
        }
        if self.is_full(id) {
            for level in self.levels.iter_mut().filter(|level| level.priority != priority) {
                level
                    .passes
                    .iter_mut()
                    .filter(|passes| passes.0 == id)
                    .for_each(|passes| passes.1 = (passes.1 + 1).min(63));
            }
            self.seat_all(id, Some(priority));
        } else {
            self.seat(id, priority, is_over);
        }
        self.tidy(priority);
        Some(key)
    }

    pub(super) fn ended(&mut self, id: u64) -> bool {
        if self.rules.limit.is_none() {
            return false;
        }
        let was_full = self.is_full(id);
        self.rooms += u64::from(was_full);
        let owed = self.most_passed(id);
        self.group(id).processing -= 1;
        if was_full {
            self.seat_all(id, None);
            if let Some(priority) = owed {
                let level = self.level(priority);
                level.new.retain(|group| group.0 != id);
                level.old.retain(|group| group.0 != id);
                self.owed.push((id, priority));
            }
        }
        was_full && self.queued.iter().any(|queued| queued.2 == id)
    }

    pub(super) fn blocked(&self) -> usize {
        self.queued.iter().filter(|queued| self.is_full(queued.2)).count()
    }

    pub(super) fn top(&self) -> Option<i8> {
        self.top_in_turn().max(self.owed.first().map(|owed| owed.1))
    }

    fn top_in_turn(&self) -> Option<i8> {
        self.levels.iter().find(|level| level.is_ready()).map(|level| level.priority)
    }

    fn serve(&mut self, id: u64, priority: i8) {
        let level = self.level(priority);
        level.passes.retain(|passes| passes.0 != id);
        level.passes.push((id, 0));
    }

    /// The level for which a full group is owed a hand-out.
    fn most_passed(&self, id: u64) -> Option<i8> {
        let parked = || self.levels.iter().filter(|level| level.parked.contains(&id));
        let highest = parked().next()?.priority;
        let may_be = |level: &&Level| level.skipped.contains(&id) || level.priority == highest;
        // Any of those that are equal.
        let draw = |level: &Level| mix(self.rooms << 8 | u64::from(level_of(level.priority)));
        let level = parked().filter(may_be).max_by_key(|level| (level.passes(id), draw(level)))?;
        let enough = if level.skipped.contains(&id) { 1 } else { 2 };
        (!self.rules.strict && level.passes(id) >= enough).then_some(level.priority)
    }

    pub(super) fn handed_out(&self, id: u64) -> u64 {
        self.groups.iter().find(|group| group.id == id).unwrap().handed_out
    }

    fn choose(&mut self) -> Option<i8> {
        let top = self.top_in_turn()?;
        let ready = |level: &&Level| level.is_ready();
        let held = |level: &&Level| !level.parked.is_empty();
        let names = |is: &dyn Fn(&&Level) -> bool| {
            self.levels.iter().filter(is).map(|level| level.priority).collect::<Vec<i8>>()
        };
        let (ready, held) = (names(&ready), names(&held));
        let is_only = ready.iter().chain(&held).all(|level| *level == top);
        if self.rules.strict || is_only {
            return Some(top);
        }
        self.since_lower += 1;
        if self.since_lower < 16 {
            return Some(top);
        }
        self.since_lower = 0;
        let next = |of: &[i8], last: i8| of.iter().copied().find(|level| *level < last).or(of.first().copied());
        let (below, above): (Vec<i8>, Vec<i8>) = held.into_iter().partition(|level| *level < self.last_skipped);
        let (mut most, mut skipped, mut left) = ((0, 0), None, 64);
        for priority in below.into_iter().chain(above) {
            let level = self.levels.iter().find(|level| level.priority == priority).unwrap();
            let parked: Vec<u64> = level
                .parked
                .iter()
                .copied()
                .filter(|id| !level.skipped.contains(id) && level.passes(*id) > 0)
                .take(left)
                .collect();
            for id in parked {
                let passes = (level.passes(id), mix(self.rooms << 8 | left as u64));
                if passes > most {
                    (most, skipped) = (passes, Some((id, priority)));
                }
                left -= 1;
            }
            self.last_skipped = priority;
            if left == 0 {
                break;
            }
        }
        if let Some((id, priority)) = skipped {
            self.level(priority).skipped.push(id);
        }
        let Some(lower) = next(&ready[1..], self.last_lower) else { return Some(top) };
        self.last_lower = lower;
        Some(lower)
    }

    /// `served`: the level that has just given a key of the group.
    fn seat_all(&mut self, id: u64, served: Option<i8>) {
        let priorities: Vec<i8> = self.levels.iter().map(|level| level.priority).collect();
        priorities.into_iter().for_each(|priority| self.seat(id, priority, served == Some(priority)));
    }

    /// Puts a group where it belongs in a level.
    fn seat(&mut self, id: u64, priority: i8, is_over: bool) {
        let has_keys = self.queued.iter().any(|queued| (queued.1, queued.2) == (priority, id));
        let (is_full, weight) = (self.is_full(id), self.group(id).weight);
        let at = self.levels.iter().position(|level| level.priority == priority).unwrap();
        let level = &mut self.levels[at];
        let is_owed = self.owed.contains(&(id, priority));
        let is_listed = is_owed || level.new.iter().chain(&level.old).any(|group| group.0 == id);
        let idle = level.idle.iter().find(|group| group.0 == id).copied();
        let is_parked = level.parked.contains(&id);
        let was_new = level.new.iter().any(|group| group.0 == id);
        let stays = match (has_keys, is_full) {
            (false, _) => idle.is_some() || !is_listed && !is_parked,
            (true, true) => is_parked,
            (true, false) => is_listed && !is_over,
        };
        if stays {
            return;
        }
        level.new.retain(|group| group.0 != id);
        level.old.retain(|group| group.0 != id);
        level.idle.retain(|group| group.0 != id);
        level.parked.retain(|group| *group != id);
        level.skipped.retain(|group| *group != id);
        self.owed.retain(|owed| *owed != (id, priority));
        let before = take(&mut level.due, |due| due.0 == id);
        let (due, was_served, was_late) = before.map_or((None, false, false), |due| (Some(due.1), due.2, due.3));
        let is_due = due.is_some_and(|due| level.turns >= due);
        let ticket = take(&mut level.tickets, |group| group.0 == id).map(|group| group.1);
        let mut new_due = level.turns + level.old.len() as u64;
        if !has_keys {
            level.idle.push((id, new_due));
        } else if is_full {
            level.parked.push(id);
            new_due = due.filter(|_| !is_over).unwrap_or(new_due);
            level.tickets.extend(ticket.filter(|_| was_new && !is_over).map(|ticket| (id, ticket)));
        } else if let Some(ticket) = ticket.filter(|_| is_parked) {
            let first = level.new.first().and_then(|first| level.ticket(first.0));
            let comes_first = level.passed >= ticket || first.is_none_or(|first| ticket < first);
            level.new.insert(if comes_first { 0 } else { level.new.len() }, (id, weight));
            level.tickets.push((id, ticket));
        } else if is_parked && is_due {
            let at = if was_served || was_late { level.new.len() } else { 0 };
            level.new.insert(at, (id, weight));
            level.came += u64::from(was_served || was_late);
            level.tickets.push((id, if was_served || was_late { level.came } else { level.passed }));
        } else if is_over || is_parked || idle.is_some() && !is_due {
            level.old.push((id, weight));
            new_due = if is_parked { due.unwrap() } else { new_due + 1 };
        } else {
            level.new.push((id, weight));
            level.came += 1;
            level.tickets.push((id, level.came));
        }
        level.due.push((id, new_due, has_keys && is_full && is_over, !is_listed));
    }

    fn tidy(&mut self, priority: i8) {
        for _ in 0..4 {
            if self.levels.iter().map(|level| level.idle.len()).sum::<usize>() <= KEEP {
                break;
            }
            let others = |level: &Level| level.new.len() + level.old.len() + level.parked.len();
            let level = self.level(priority);
            let idle = level.idle.len();
            let has_many = idle > KEEP && (level.turns >= level.idle[0].1 || idle > KEEP + 2 * others(level));
            let is_quiet = |level: &Level| others(level) == 0 && !level.idle.is_empty();
            let quiet = self.levels.iter().find(|level| is_quiet(level)).map(|level| level.priority);
            let surplus = if has_many { Some(priority) } else { quiet };
            let Some(priority) = surplus else { break };
            let level = self.level(priority);
            let (id, _) = level.idle.remove(0);
            level.due.retain(|due| due.0 != id);
        }
        self.forget_unused();
    }

    /// Groups that are idle and whose turns have come are forgotten.
    pub(super) fn shrink(&mut self) {
        for level in &mut self.levels {
            while level.idle.first().is_some_and(|idle| level.turns >= idle.1) {
                let (id, _) = level.idle.remove(0);
                level.due.retain(|due| due.0 != id);
            }
        }
        self.forget_unused();
    }

    /// A group is known as long as it has keys, or is in a list.
    fn forget_unused(&mut self) {
        let (levels, owed) = (&self.levels, &self.owed);
        let is_listed = |id: u64| {
            let in_level = |level: &Level| {
                let listed = level.new.iter().chain(&level.old).any(|group| group.0 == id);
                let listed = listed || owed.contains(&(id, level.priority));
                listed || level.idle.iter().any(|group| group.0 == id) || level.parked.contains(&id)
            };
            levels.iter().any(in_level)
        };
        self.groups.retain(|group| group.keys > 0 || is_listed(group.id));
    }

    fn level(&mut self, priority: i8) -> &mut Level {
        self.levels.iter_mut().find(|level| level.priority == priority).unwrap()
    }

    fn group(&mut self, id: u64) -> &mut Group {
        self.groups.iter_mut().find(|group| group.id == id).unwrap()
    }

    fn is_full(&self, id: u64) -> bool {
        let processing = self.groups.iter().find(|group| group.id == id).unwrap().processing;
        self.rules.limit.is_some_and(|limit| processing >= limit)
    }
}
