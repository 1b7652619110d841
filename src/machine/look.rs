//! Looks at the keys, some at a time with the lock free in between, and changes nothing. All lists of keys are made so, and
//! [`take_out`](Machine::take_out) takes what the caller has chosen. [`see_key`](Machine::see_key) looks at one key.
//!
//! Because a slot does not move, a key that is known throughout is seen once, in the state that it has then. After a shut-down no key
//! becomes dirty, so one look at all keys sees each that has work left.

use super::{Delay, EntryRef, Machine};
use crate::key::{KeyHash, SlotId, State};
use crate::order::{GroupView, visit};
use crate::sync::model_const;
use equivalent::Equivalent;
use std::cmp::Reverse;

/// The number of chunks, each of up to 63 slots, that one call reads at most.
const CHUNKS: usize = model_const(64, 1);
/// A call ends after the chunk in which it has seen so many keys.
const KEYS: usize = model_const(256, 2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Processing,
    Delayed,
    /// Queued or processing.
    Active,
    /// Queued, processing or delayed.
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

/// A key that a look shows to its caller.
pub(crate) struct View<'m, K>(pub(super) &'m Machine<K>, pub(super) &'m EntryRef<K>);

/// What a look has seen of a key, which is enough to take it out later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Names the hand-out if the key is processing: see [`Claimed::slot`](super::Claimed::slot).
    pub(crate) slot: SlotId,
    /// The stamp and the number of its push if it is queued: see `AnyOrder::age`.
    pub(super) push: Option<(u64, u64)>,
    /// Names the delay if it is delayed: see `Later::began`.
    pub(super) began: Option<u64>,
    pub(super) number: u32,
    /// Valid if it is queued or processing.
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

    /// The same for its delay alone.
    pub(crate) fn delay_alone(self) -> Self {
        Self { push: None, is_processing: false, ..self }
    }

    /// Sorts queued keys by priority, the highest first, and within one by age, also over several shards.
    pub(crate) fn by_age(&self) -> (Reverse<i8>, Option<(u64, u64)>) {
        (Reverse(self.priority), self.push)
    }
}

/// All that is known of one key. The default is that of a key that is not known.
#[derive(Default)]
pub(crate) struct KeySeen {
    pub(crate) is_dirty: bool,
    pub(crate) is_processing: bool,
    /// Names the hand-out if it is processing: see [`Claimed::slot`](super::Claimed::slot).
    pub(crate) slot: Option<SlotId>,
    /// Valid if it is dirty or processing.
    pub(crate) priority: i8,
    /// When it became dirty and when it was handed out, if this was measured.
    pub(crate) queued_at: Option<u64>,
    pub(crate) started_at: Option<u64>,
    /// Its first delay.
    pub(crate) delay: Option<Delay>,
    pub(crate) rests_until: Option<u64>,
    /// Its group, if it is dirty or processing, and keys have groups.
    pub(crate) group: Option<GroupView>,
    pub(crate) failures: u32,
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

    /// The delay that ends first.
    pub(crate) fn delay(&self) -> Option<Delay> {
        self.1.state().is_delayed().then(|| self.0.first_delay(*self.1))
    }

    /// When the key became dirty, if it is dirty and this is known.
    pub(crate) fn queued_at(&self) -> Option<u64> {
        self.0.queued_at(*self.1)
    }

    /// When the key was handed out, if it is processing. Known for all keys after [`begin_ages`](Machine::begin_ages).
    pub(crate) fn started_at(&self) -> Option<u64> {
        self.0.started_at(*self.1)
    }

    /// The group of the key, if keys have groups.
    pub(crate) fn group(&self) -> Option<GroupView> {
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

    fn key_seen(&self) -> KeySeen {
        let Self(machine, &entry) = *self;
        let state = entry.state();
        let is_processing = state.is_processing();
        KeySeen {
            is_dirty: state.is_dirty(),
            is_processing,
            slot: is_processing.then(|| entry.id()),
            priority: entry.priority(),
            queued_at: self.queued_at(),
            started_at: if is_processing { machine.measured_start(entry) } else { None },
            delay: self.delay(),
            rests_until: state.is_resting().then(|| machine.later.records[self.number()].deadline()),
            group: if state.is_active() { self.group() } else { None },
            failures: machine.failures_of(entry),
        }
    }
}

impl<K> Machine<K> {
    /// Looks at one key. `None` if it is not known.
    pub(crate) fn see_key<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<KeySeen> {
        self.keys.find(key, hash).map(|entry| View(self, &entry).key_seen())
    }

    /// Looks at some keys, from this place on, and calls `each` for those of this kind. Returns where to go on, or `None` at the end.
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

    /// Adds the number of queued keys of each priority to `lens`, the lowest priority first.
    pub(crate) fn add_levels(&self, lens: &mut [usize; 256]) {
        for (len, priority) in lens.iter_mut().zip(i8::MIN..=i8::MAX) {
            *len += self.order.level_len(priority);
        }
    }
}
