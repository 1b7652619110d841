//! The orders, in plain lists that are searched from end to end. Without groups all keys are of one group.

/// Idle groups of a level that are kept.
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
    skipped: Vec<i8>,
    owed: Vec<i8>,
    last_owed: i8,
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
        let (queued, groups, levels, skipped, owed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (since_lower, last_lower, last_owed) = (0, i8::MIN, i8::MIN);
        Self { rules, queued, groups, levels, since_lower, last_lower, skipped, owed, last_owed }
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
        let (priority, is_owed) = self.choose()?;
        let level = self.level(priority);
        let from_old = level.new.is_empty() || !level.old.is_empty() && !is_owed && level.since_old >= 15;
        level.since_old = if from_old { 0 } else { level.since_old + 1 };
        let (id, credit) = &mut if from_old { &mut level.old } else { &mut level.new }[0];
        *credit -= 1;
        let (id, is_over) = (*id, *credit == 0);
        if !from_old {
            level.passed = level.passed.max(level.ticket(id).unwrap());
        }
        let (key, ..) = take(&mut self.queued, |queued| (queued.1, queued.2) == (priority, id)).unwrap();
        let is_limited = self.rules.limit.is_some();
        let group = self.group(id);
        group.handed_out += 1;
        group.processing += u32::from(is_limited);
        let is_empty = !self.queued.iter().any(|queued| (queued.1, queued.2) == (priority, id));
        if from_old && (is_over || is_empty || self.is_full(id)) {
            self.level(priority).turns += 1;
        }
        if self.is_full(id) {
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
        self.group(id).processing -= 1;
        if was_full {
            self.seat_all(id, None);
        }
        was_full && self.queued.iter().any(|queued| queued.2 == id)
    }

    pub(super) fn blocked(&self) -> usize {
        self.queued.iter().filter(|queued| self.is_full(queued.2)).count()
    }

    pub(super) fn top(&self) -> Option<i8> {
        self.levels.iter().find(|level| level.is_ready()).map(|level| level.priority)
    }

    pub(super) fn handed_out(&self, id: u64) -> u64 {
        self.groups.iter().find(|group| group.id == id).unwrap().handed_out
    }

    fn choose(&mut self) -> Option<(i8, bool)> {
        let top = self.top()?;
        let ready: Vec<i8> = self.levels.iter().filter(|level| level.is_ready()).map(|level| level.priority).collect();
        let owed: Vec<i8> = ready.iter().copied().filter(|level| self.owed.contains(level)).collect();
        if let Some(&level) = owed.iter().find(|&&level| level < self.last_owed).or(owed.first()) {
            take(&mut self.owed, |other| *other == level);
            self.last_owed = level;
            return Some((level, true));
        }
        let waits = |level: &&Level| level.priority < top && (level.is_ready() || !level.parked.is_empty());
        let lower: Vec<i8> = self.levels.iter().filter(waits).map(|level| level.priority).collect();
        if self.rules.strict || lower.is_empty() {
            return Some((top, false));
        }
        self.since_lower += 1;
        if self.since_lower < 16 {
            return Some((top, false));
        }
        self.since_lower = 0;
        let next = *lower.iter().find(|&&level| level < self.last_lower.min(top)).unwrap_or(&lower[0]);
        self.last_lower = next;
        if !self.level(next).parked.is_empty() && !self.skipped.contains(&next) && !self.owed.contains(&next) {
            self.skipped.push(next);
        }
        let below = |end: i8| ready.iter().copied().find(|&level| level < end);
        let level = if ready.contains(&next) { next } else { below(next).or(below(top)).unwrap_or(top) };
        Some((level, false))
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
        let is_listed = level.new.iter().chain(&level.old).any(|group| group.0 == id);
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
            if take(&mut self.owed, |owed| *owed == priority).is_some() {
                self.skipped.push(priority);
            }
            level.tickets.extend(ticket.filter(|_| was_new && !is_over).map(|ticket| (id, ticket)));
        } else if let Some(ticket) = ticket.filter(|_| is_parked) {
            let first = level.new.first().and_then(|first| level.ticket(first.0));
            let comes_first = level.passed >= ticket || first.is_none_or(|first| ticket < first);
            if comes_first {
                self.owed.extend(take(&mut self.skipped, |skipped| *skipped == priority));
            }
            level.new.insert(if comes_first { 0 } else { level.new.len() }, (id, weight));
            level.tickets.push((id, ticket));
        } else if is_parked && is_due {
            let at = if was_served || was_late { level.new.len() } else { 0 };
            if !was_served {
                self.owed.extend(take(&mut self.skipped, |skipped| *skipped == priority));
            }
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
        if level.parked.is_empty() {
            self.skipped.retain(|skipped| *skipped != priority);
        }
        if !level.is_ready() {
            self.owed.retain(|owed| *owed != priority);
        }
    }

    fn tidy(&mut self, priority: i8) {
        for _ in 0..4 {
            let level = self.level(priority);
            let others = level.new.len() + level.old.len() + level.parked.len();
            let idle = level.idle.len();
            if idle > KEEP && (level.turns >= level.idle[0].1 || idle > KEEP + 2 * others) {
                let (id, _) = level.idle.remove(0);
                level.due.retain(|due| due.0 != id);
            }
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
        let levels = &self.levels;
        let is_listed = |id: u64| {
            let in_level = |level: &Level| {
                let listed = level.new.iter().chain(&level.old).any(|group| group.0 == id);
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
