//! Lists of keys, and what is taken out by them: `inspect`, `take_where`, and the stop of workers.

use super::{Run, hash, note, sorted};
use crate::DelayConflict;
use crate::machine::tests::reference::key::{Fault, Key, Name, strike};
use crate::machine::tests::reference::op::{How, Span};
use crate::machine::tests::reference::queue::NEVER;
use crate::machine::{Delay, End, Machine, Seen, View, Which};
use std::collections::BTreeMap;

impl Run {
    /// Looks at all keys. `None`: foreign code has panicked.
    fn see<T>(&mut self, which: Which, each: impl Fn(&View<'_, Key>) -> T) -> Option<Vec<T>> {
        let mut found = Vec::new();
        let look = |machine: &mut Machine<Key>| {
            let mut from = Some(0);
            while let Some(at) = from {
                from = machine.look(at, which, |view| {
                    strike(Fault::Predicate);
                    found.push(each(&view));
                });
            }
        };
        self.call(look)?;
        Some(found)
    }

    /// As `inspect`.
    pub(super) fn list(&mut self) {
        let Some(processing) = self.see(Which::Processing, |view| (view.key().clone(), view.seen().slot)) else {
            return;
        };
        let held = self.held.iter().map(|claimed| (claimed.key().number(), claimed.slot())).collect();
        assert_eq!(sorted(processing.into_iter().map(|(key, slot)| (key.number(), slot)).collect()), sorted(held));

        let Some(all) = self.see(Which::All, |view| {
            let started_at = if view.is_processing() { view.started_at() } else { None };
            (view.key().number(), view.seen().is_delayed(), view.queued_at(), started_at)
        }) else {
            return;
        };
        for (key, is_delayed, queued_at, started_at) in all {
            assert_eq!(is_delayed, self.reference.is_delayed(key).0);
            let entry = self.machine.keys.find(&Name::new(key), hash(key)).expect("it was seen");
            assert_eq!(queued_at, self.machine.queued_at(entry));
            let started = self.held.iter().any(|claimed| claimed.key().number() == key);
            assert_eq!(started_at, if started { self.machine.started_at(entry) } else { None });
        }

        let Some(delayed) = self.see(Which::Delayed, |view| (view.key().clone(), view.delay())) else { return };
        let delayed = delayed.into_iter().map(|(key, delay)| {
            let Delay { deadline, priority, .. } = delay.expect("it is looked for");
            (key.number(), self.left(deadline), priority)
        });
        assert_eq!(sorted(delayed.collect()), sorted(self.reference.delayed()), "delayed keys");

        let see = |view: &View<'_, Key>| (view.key().clone(), view.group(), view.is_queued(), view.is_processing());
        let Some(active) = self.see(Which::Active, see) else { return };
        let mut groups = BTreeMap::<u64, (u8, usize, usize)>::new();
        for (key, group, is_queued, is_processing) in active {
            let number = self.plan.group_of(key.number());
            if let Some(group) = group {
                let of_key = self.group(key.number());
                assert_eq!((group.hash, group.limits), (of_key.hash, of_key.limits));
                let [at_least, at_most] = self.handed.get(&number).copied().unwrap_or_default();
                assert!((at_least..=at_most).contains(&group.handed_out), "{group:?}: hand-outs of group {number}");
            }
            assert_eq!(group.is_some(), self.plan.groups.is_some());
            let (_, queued, processing) = groups.entry(group.map_or(0, |group| group.hash)).or_insert((number, 0, 0));
            *queued += usize::from(is_queued);
            *processing += usize::from(is_processing);
        }
        if self.plan.groups.is_some() {
            assert_eq!(sorted(groups.into_values().collect()), self.reference.groups());
        }
        note("listed");
    }

    pub(super) fn check_levels(&self) {
        let mut lens = [0; 256];
        self.machine.add_levels(&mut lens);
        let levels = (i8::MIN..=i8::MAX).zip(lens).rev().filter(|(_, len)| *len > 0);
        assert_eq!(levels.collect::<Vec<_>>(), self.reference.levels());
    }

    fn left(&self, deadline: u64) -> u64 {
        if deadline == NEVER { NEVER } else { deadline.saturating_sub(self.reference.now) }
    }

    /// As `take_delayed`. Returns the keys. `None`: foreign code has panicked, and nothing was taken.
    pub(super) fn take_delayed(&mut self) -> Option<Vec<u8>> {
        let found = self.see(Which::Delayed, |view| (view.seen().delay_alone(), view.key().clone()))?;
        self.fault = None; // what follows is many verbs
        let (mode, mut keys) = (self.mode(), Vec::new());
        for (seen, key) in found {
            let (key, mut hand) = (key.number(), None);
            let (taken, owed) = self.machine.take_out(&mut hand, seen, mode);
            let delay = taken.delay.expect("it is delayed");
            let as_seen = self.reference.delayed().into_iter().find(|(other, ..)| *other == key);
            let (_, left, priority) = as_seen.expect("it is delayed in the reference");
            assert_eq!((taken.was_queued, self.left(delay.deadline), delay.priority), (false, left, priority));
            self.reference.drop_delay(key);
            let what = self.ends(true, false);
            self.expect_owed(owed, 0, what);
            keys.push(key);
        }
        assert_eq!(self.reference.delayed(), []);
        Some(keys)
    }

    /// As `take_where`, or the stop of workers: sees all keys, and then takes them out. Between the two, some are handed out, and some of
    /// these are done. `bits` chooses what happens meanwhile.
    pub(super) fn take_where(&mut self, matches: impl Fn(u8) -> bool, bits: u16) {
        let see = |view: &View<'_, Key>| (view.seen(), view.key().clone(), view.delay());
        let Some(found) = self.see(Which::All, see) else { return };
        self.fault = None; // what follows is many verbs
        let found: Vec<_> = found.into_iter().map(|(seen, key, delay)| (seen, key.number(), delay)).collect();
        let mut found: Vec<_> = found.into_iter().filter(|(_, key, _)| matches(*key)).collect();
        found.sort_by_key(|(seen, ..)| seen.by_age());
        let keys_of = |is_wanted: fn(&Seen) -> bool| {
            found.iter().filter(|(seen, ..)| is_wanted(seen)).map(|(_, key, _)| *key).collect::<Vec<_>>()
        };
        let (queued, delayed) = self.reference.clone().take_where(&matches, None);
        assert_eq!(keys_of(Seen::is_queued), queued, "by level, and then by age");
        let processing = self.reference.processing().into_iter().filter(|key| matches(*key)).collect();
        assert_eq!(sorted(keys_of(|seen| seen.is_processing)), sorted(processing), "processing");
        let delays = found
            .iter()
            .filter_map(|(_, key, delay)| delay.map(|delay| (*key, self.left(delay.deadline), delay.priority)));
        assert_eq!(sorted(delays.collect()), sorted(delayed), "the delays");

        let pushes: Vec<_> = found.iter().map(|(_, key, _)| self.reference.push_of(*key)).collect();
        for _ in 0..bits / 16 % 4 {
            let Some(key) = self.get() else { break };
            if bits & 8 != 0 {
                self.add(key, &How::new());
                self.done(self.held.len() - 1, End::Done);
            }
        }
        for (nth, ((seen, key, delay), push)) in found.iter().zip(pushes).enumerate() {
            let (seen, key) = (*seen, *key);
            // Before that, a delay may be moved, which changes nothing; or be cancelled, and the key delayed again.
            if delay.is_some() && bits & 4 != 0 && nth % 2 == 1 {
                self.cancel(key);
            }
            let is_another = !self.reference.is_delayed(key).0; // an add may have dropped it, too
            if delay.is_some() && bits & 2 != 0 && nth % 2 == 1 {
                self.add(key, &How { after: Some(Span::Nanos(30)), conflict: DelayConflict::Replace, ..How::new() });
            }
            let (mut hand, mode) = (None, self.mode());
            let (taken, owed) = self.machine.take_out(&mut hand, seen, mode);
            let is_there = push.is_some() && self.reference.push_of(key) == push;
            assert_eq!(taken.was_queued, is_there, "key {key} is taken out if it is queued by that push");
            let delay_is_there = delay.is_some() && self.reference.is_delayed(key).0 && !is_another;
            assert_eq!(taken.delay.is_some(), delay_is_there, "key {key} is taken out if it has been delayed since");
            note(if is_there { "taken out" } else { "not taken out" });
            if is_there {
                self.reference.take(key);
            }
            if delay_is_there {
                note("delay taken out");
                self.reference.drop_delay(key);
            }
            // What is left is held, or was held and is queued again.
            if self.reference.shut_down {
                let is_left = self.reference.is_queued(key) || self.reference.is_processing(key);
                assert_eq!(taken.is_active, is_left, "key {key} is still there");
                note(if is_left { "stopped, and left" } else { "stopped, and gone" });
            }
            let what = if is_there || delay_is_there { self.ends(true, is_there) } else { 0 };
            self.expect_owed(owed, 0, what);
        }
    }
}
