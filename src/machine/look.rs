//! Looks at the keys, some at a time, and changes nothing. All lists of keys are made so.
//!
//! ```text
//!   lists:               lock ─ look at some keys, copy them ─ unlock ─ … until the end
//!   take_where, stop,    the same; then choose: foreign code, under no lock
//!   take_delayed:
//!                        lock ─ take_out what was chosen, if it is still there ─ unlock ─ …
//! ```
//!
//! A slot does not move, so a key that is known from the first to the last of these calls is seen once, in the state that it has then.
//! After a shut-down, no key becomes dirty that is not: so one look at all keys sees each that has work left when its slot is visited,
//! either queued or held.

use super::{EntryRef, Machine};
use crate::key::{SlotId, State};
use crate::order::{Group, visit};
use crate::sync::model_const;
use std::cmp::Reverse;

/// The number of chunks of slots, up to 63 keys each, that one call reads at most.
const CHUNKS: usize = model_const(64, 1);
/// A call ends with the chunk in which it has seen so many keys.
const KEYS: usize = model_const(256, 2);

/// The keys that are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Processing,
    Delayed,
    /// Queued or processing.
    Active,
    /// Queued, processing or delayed: all but those that only have failed.
    All,
}

impl Which {
    fn has(self, state: &State) -> bool {
        match self {
            Self::Processing => state.is_processing(),
            Self::Delayed => state.is_delayed(),
            Self::Active => state.is_active(),
            Self::All => state.is_active() || state.is_delayed(),
        }
    }
}

/// A key, while a look is at it.
pub(crate) struct View<'m, K>(pub(super) &'m Machine<K>, pub(super) &'m EntryRef<K>);

/// What a look has seen of a key, without the key itself: enough to take it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Names the hand-out, if the key is processing: see [`Claimed::slot`](super::Claimed::slot).
    pub(crate) slot: SlotId,
    /// The stamp of its push, and its number of all with this priority, if it is queued: see `AnyOrder::age`.
    pub(super) push: Option<(u64, u64)>,
    /// Which of the beginnings of a delay it was, if it is delayed.
    pub(super) began: Option<u64>,
    /// The number of its slot.
    pub(super) number: u32,
    /// If it is queued or processing.
    pub(crate) priority: i8,
    pub(crate) is_processing: bool,
}

impl Seen {
    pub(crate) fn is_queued(&self) -> bool {
        self.push.is_some()
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.began.is_some()
    }

    /// Its delay alone.
    pub(crate) fn delay_alone(self) -> Self {
        Self { push: None, is_processing: false, ..self }
    }

    /// The queued keys by this: the higher priority comes first, and of one priority the older key, also over several shards.
    pub(crate) fn by_age(&self) -> (Reverse<i8>, Option<(u64, u64)>) {
        (Reverse(self.priority), self.push)
    }
}

impl<'m, K> View<'m, K> {
    pub(crate) fn key(&self) -> &'m K {
        self.1.key()
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.1.state().is_queued()
    }

    pub(crate) fn is_processing(&self) -> bool {
        self.1.state().is_processing()
    }

    /// The deadline, and the priority that the key will have.
    pub(crate) fn delay(&self) -> Option<(u64, i8)> {
        let delay = self.1.state().is_delayed().then(|| self.0.first_delay(*self.1));
        delay.map(|delay| (delay.deadline, delay.priority))
    }

    /// When the key became dirty, if it is and that is known.
    pub(crate) fn queued_at(&self) -> Option<u64> {
        self.0.queued_at(*self.1)
    }

    /// When the key was handed out, if it is processing and that is known: after [`begin_ages`](Machine::begin_ages) it is.
    pub(crate) fn started_at(&self) -> Option<u64> {
        self.0.started_at(*self.1)
    }

    /// The group of the key, and the hand-outs of that since it is known.
    pub(crate) fn group(&self) -> (Group, u64) {
        self.0.order.group(self.1.group())
    }

    pub(crate) fn seen(&self) -> Seen {
        let Self(machine, &entry) = *self;
        let number = self.number();
        Seen {
            slot: entry.id(),
            push: self.is_queued().then(|| machine.order.age(entry.place())),
            began: entry.state().is_delayed().then(|| machine.later.began(number)),
            number,
            priority: entry.priority(),
            is_processing: self.is_processing(),
        }
    }

    fn number(&self) -> u32 {
        self.1.number()
    }
}

impl<K> Machine<K> {
    /// Looks at some of the keys, from this place on, and calls `each` for those that are looked for. Returns where to go on, or `None` at
    /// the end. If `each` panics, nothing has changed.
    pub(crate) fn look(&self, from: usize, which: Which, mut each: impl FnMut(View<'_, K>)) -> Option<usize> {
        let (mut at, mut count) = (from, 0);
        while at < self.keys.chunks().min(from + CHUNKS) && count < KEYS {
            visit();
            for entry in self.keys.iter(at..at + 1).filter(|entry| which.has(entry.state())) {
                count += 1;
                each(View(self, &entry));
            }
            at += 1;
        }
        (at < self.keys.chunks()).then_some(at)
    }

    /// Adds the number of queued keys of each priority, the lowest first.
    pub(crate) fn add_levels(&self, lens: &mut [usize; 256]) {
        for (len, priority) in lens.iter_mut().zip(i8::MIN..=i8::MAX) {
            *len += self.order.level_len(priority);
        }
    }
}
