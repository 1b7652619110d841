//! Turns that are paid in handler time ([`FairShare::WorkTime`](crate::FairShare)).
//!
//! ```text
//!   a turn begins    balance += quantum * weight      credit = the keys that the balance pays for, as far as can be foreseen
//!   a hand-out ends  balance -= its handler's time    (and the group may owe)
//! ```
//!
//! This is deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) with costs that are known afterwards. Until then each key that is
//! processing is taken to cost what those of its group have cost on average, because otherwise a group could get all workers before its
//! first handler has ended. A group whose balance is used up misses turns until it has paid, and one that pays less than was foreseen gets
//! more.
//!
//! The *quantum* is the recent average of all handler times of the shard, taken when a round begins. So a turn is worth about one key, and a
//! long handler costs its group many turns.

use super::lanes::Lane;

#[derive(Default)]
pub(super) struct Work {
    /// The recent average.
    average: u64,
    /// What it was when the last round began. If it changed in a round, the groups of the round would get different turns, and with few
    /// groups the same ones again and again.
    quantum: u64,
}

/// A hand-out changes the average by this part of the difference.
const SMOOTHING: i64 = 32;
/// The number of turns that a group may have saved up if it always has keys.
const AHEAD: i64 = 16;
/// The number of turns that a group may owe. A handler that takes longer is forgiven the rest.
const OWED: i64 = 1024;

impl Work {
    /// Returns the new quantum, in units of 1024 nanoseconds, and at least 1.
    pub(super) fn begin_round(&mut self) -> u64 {
        self.quantum = self.average;
        self.step()
    }

    /// What [`begin_round`](Self::begin_round) would return.
    pub(super) fn step(&self) -> u64 {
        (self.average >> 10).max(1)
    }

    fn quantum(&self, weight: u16) -> i64 {
        (self.quantum.max(1) as i64).saturating_mul(weight.into())
    }

    /// What a key of this group has cost on average.
    fn mean(&self, home: &Lane) -> i64 {
        let ended = home.handed_out - u64::from(home.processing);
        home.work.checked_div(ended).unwrap_or(self.average).clamp(1, i64::MAX as u64 >> 8) as i64
    }

    /// A turn begins, after this many that were missed and itself. Returns the number of keys that the group may hand out.
    #[inline(never)]
    pub(super) fn begin_turn(&self, home: &mut Lane, weight: u16, turns: u64, must_give: bool) -> u32 {
        let (quantum, mean) = (self.quantum(weight), self.mean(home));
        let free = home.balance.saturating_sub(mean.saturating_mul(i64::from(home.processing)));
        // A group that comes back has not saved up for more than one turn.
        let most = if turns > 1 { quantum } else { quantum.saturating_add(mean).saturating_mul(AHEAD) };
        let turns = turns.min(u64::from(u32::MAX)) as i64;
        let granted = free.saturating_add(quantum.saturating_mul(turns)).min(most.max(free));
        home.balance = home.balance.saturating_add(granted.saturating_sub(free));
        let keys = if granted > 0 { (granted as u64).div_ceil(mean as u64) } else { 0 };
        keys.clamp(u64::from(must_give), u64::from(u32::MAX)) as u32
    }

    /// A handler of the group has taken this time.
    #[inline(never)]
    pub(super) fn pay(&mut self, home: &mut Lane, weight: u16, nanos: u64) {
        let cost = nanos.min(i64::MAX as u64 >> 8) as i64;
        home.work = home.work.saturating_add(nanos);
        home.balance = home.balance.saturating_sub(cost).max(self.quantum(weight).saturating_mul(-OWED));
        self.average = match self.average {
            0 => cost as u64,
            average => (average as i64 + (cost - average as i64) / SMOOTHING) as u64,
        };
    }
}
