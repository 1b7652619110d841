//! A critical section of one shard: a verb of its machine, what others read of it without the lock, and what it owes.
//!
//! ```text
//!   lock ─ mode ─ verb ─▶ (answer, owed) ─ leave: publish ─ nothing owed: unlock ─▶ drop the hand
//!                                                   └─ settle: take the waiters that are owed a wake-up from the hub ─ unlock
//!                                                              ─ wake them, free memory
//! ```
//!
//! [`Shared::leave`] is the only end of a section whose verb may change something. So no call forgets to publish, to wake or to free; and a
//! hot call that owes nothing, as nearly all do, makes one test. A section that only looks at the machine just unlocks.
//!
//! A call declares its hand before it locks: so a key that is left there is dropped after the lock (W4), also if `Eq` panics.

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use crate::machine::{Machine, Mode, Owed};
use crate::panics::drop_each;
use crate::sync::MutexGuard;
use crate::time::driver::Driver;
use crate::wait::WakeList;

/// A verb, compiled for each mode of the hot calls, which is a constant there, and once for all others. The rest of the call looks for
/// more to do after the lock if `has_extras`.
macro_rules! in_mode {
    ($shared:expr, $mode:ident, $has_extras:ident => $verb:expr) => {
        match $shared.flags().without(Flags::LIMITED) {
            Flags::NONE => {
                let ($mode, $has_extras) = (Mode::PLAIN, false);
                $verb
            }
            Flags::ORDERED => {
                let ($mode, $has_extras) = (Mode::ORDERED, false);
                $verb
            }
            Flags::MEASURED => {
                let ($mode, $has_extras) = (Mode::MEASURED, false);
                $verb
            }
            flags => {
                let ($mode, $has_extras) = ($shared.mode(), flags.has(Flags::EXTRAS));
                $verb
            }
        }
    };
}
pub(super) use in_mode;

/// What the verbs of a critical section may have done to the order. Each call knows this from the verbs that it names, so that nothing is
/// compared, and the compiler sees a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// They have queued keys at most. In a line the first key is another one only if there was none before.
    Queued,
    /// They may have taken keys out as well, so the first key may be another one.
    Taken,
}

impl<K> Shared<K> {
    /// Takes the lock of a shard, unless there are others and this one is busy for longer than a critical section takes (P21).
    pub(super) fn lock_unless_busy<'s>(&self, locked: &'s Locked<K>) -> Option<MutexGuard<'s, Machine<K>>> {
        if self.shards() == 1 { Some(locked.lock()) } else { locked.lock_briefly() }
    }

    /// What a verb is told of the queue. Read under the lock of its shard.
    #[inline]
    pub(super) fn mode(&self) -> Mode {
        let flags = self.flags_acquired();
        Mode {
            is_open: !flags.has(Flags::SHUT_DOWN),
            is_ordered: flags.has(Flags::ORDERED),
            is_awaited: flags.has(Flags::AWAITED),
            is_measured: flags.has(Flags::MEASURED),
        }
    }

    /// The end of a critical section: publishes, unlocks, and then does what the verbs have left to do.
    #[inline(always)]
    pub(super) fn leave<'s>(
        &'s self,
        locked: &'s Locked<K>,
        mut machine: MutexGuard<'s, Machine<K>>,
        owed: Owed,
        mode: Mode,
        change: Change,
    ) {
        if mode.is_measured && machine.wants_time() {
            self.tell_time(&mut machine);
        }
        if let Some(stamp) = self.stamp {
            locked.publish_front(&mut machine, stamp, mode, change);
        }
        locked.publish_len(&machine, mode);
        locked.check(&machine);
        if owed != Owed::NOTHING {
            self.settle(locked, machine, owed);
        }
    }

    /// The same of a hot call in a queue with one shard that is plain.
    #[inline(always)]
    pub(super) fn leave_plain<'s>(&'s self, locked: &'s Locked<K>, machine: MutexGuard<'s, Machine<K>>, owed: Owed) {
        locked.publish_len(&machine, Mode::PLAIN);
        locked.check(&machine);
        if owed != Owed::NOTHING {
            self.settle(locked, machine, owed);
        }
    }

    /// Reads the clock for a key that became dirty.
    #[inline(never)]
    fn tell_time(&self, machine: &mut Machine<K>) {
        machine.times().into_iter().for_each(|times| times.dirty_at(self.settings.clock.now_coarse()));
    }

    /// Takes out the waiters that are owed a wake-up, while the lock is held, which orders them with those who come (W2). Then unlocks,
    /// wakes them, and frees memory.
    #[cold]
    #[inline(never)]
    pub(super) fn settle<'s>(&'s self, locked: &'s Locked<K>, mut machine: MutexGuard<'s, Machine<K>>, owed: Owed) {
        let flags = self.flags();
        let mut calls_driver = false;
        if owed.has(Owed::DEADLINE) {
            locked.set_driver_until(machine.until());
            // `turn` looks by itself; or the delay can be taken, and does not expire.
            calls_driver = self.settings.driver != Driver::Manual && !flags.has(Flags::SHUT_DOWN);
            if !calls_driver && owed == Owed::only_if(true, Owed::DEADLINE) {
                return;
            }
        }
        let mut wakes = WakeList::default();
        if owed.has(Owed::READY) && flags.has(Flags::GETTERS) {
            let queued = locked.len() * self.shards();
            let mut hub = self.hub();
            (0..owed.ready()).map_while(|_| hub.getters.next(queued)).for_each(|getter| wakes.push(getter));
        }
        if owed.has(Owed::DRAINED) && flags.has(Flags::DRAINERS) {
            wakes.append(self.hub().life_cycle.work_ended(locked.index));
        }
        // Getters that have waited for keys of full groups: a queue with a limit has one shard.
        if owed.has(Owed::OVER) && flags.has(Flags::LIMITED) {
            wakes.append(self.hub().getters.take_all());
        }
        if calls_driver {
            let mut hub = self.hub();
            hub.deadlines_told += 1;
            wakes.append(hub.call_driver(machine.until()));
        }
        if owed.has(Owed::DIRTY) {
            let tickets = machine.take_dirty();
            let mut hub = self.hub();
            tickets.into_iter().for_each(|ticket| hub.dirty_waiters.take((locked.index, ticket), &mut wakes));
        }
        let mut garbage = owed.has(Owed::GARBAGE).then(|| machine.take_garbage());
        drop(machine);
        if !wakes.is_empty() {
            self.note_caught(wakes.wake());
        }
        if let Some(gone) = garbage.as_mut().map(|garbage| std::mem::take(&mut garbage.gone)) {
            self.note_caught(drop_each(gone));
        }
        // The memory is freed here.
    }
}
