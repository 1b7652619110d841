//! The pace: a limit of the hand-outs of the whole queue (P31).
//!
//! ```text
//!  getter:  lock a shard ─ is a key ready? ─ spend a token ─ pop ─ unlock                      one word, for the getters of all shards
//!                                                 └─ none: on the list ─ arm ─▶ hub: token_at
//!                                                                                  │
//!  driver:  parks until then ─▶ wakes a getter for each token that has come ◀──────┘  and arms again if keys and getters are left
//! ```
//!
//! The word is that of a [`Bucket`](crate::rate_limiter::Bucket). A getter spends the token under the lock of the shard, when it knows that
//! a key is ready there. So a token goes with a key, and a getter that gives up while it waits has spent none.
//!
//! **Exact.** Each token is spent at a time that the getter has read. After the last of `n` tokens whose times are in one span, the word is
//! ahead of the begin of the span by the time of `n` tokens at least, and this is at most the burst and the span. It does not matter in
//! which order the getters come that have read these times.
//!
//! **Who wakes.** A getter that finds keys and no token *arms* the hub: the driver will wake a getter when the next token comes. As long as
//! it is armed there is no token except for getters that were woken, so a push wakes nobody. A getter that was woken and ends, with a key or
//! without, wakes the next one if there is a token, as W2 and W3 say of keys. Without [`Driver::Thread`](super::Driver), nothing is armed:
//! threads park until the next token comes, and tasks rely on `turn`.
//!
//! If each push woke a getter instead, as in other queues, most of them would find no token.

use super::hub::HubGuard;
use crate::rate_limiter::{Rate, limit};
use crate::sync::{AtomicU64, Ordering, model_const};
use crossbeam_utils::CachePadded;

/// The getters that are woken at once, if so many tokens have come. Each of them wakes the next.
const AT_ONCE: usize = model_const(64, 2);

/// The limit, and the word in which tokens are spent.
pub(super) struct Pace {
    rate: Rate,
    tat: CachePadded<AtomicU64>,
}

/// What the word says at a time.
pub(super) struct Tokens {
    /// The number of tokens that are there.
    pub(super) count: usize,
    /// When one more comes. If there is none, this is the next.
    pub(super) more_at: u64,
}

impl Pace {
    /// `None`: the rate is so high that it is no limit.
    pub(super) fn new(rate_per_second: f64, burst: u32) -> Option<Self> {
        let rate = limit(rate_per_second, burst)?;
        Some(Self { rate, tat: CachePadded::default() })
    }

    /// Spends a token, unless there is none at this time.
    pub(super) fn spend(&self, now: u64) -> bool {
        self.rate.try_spend(&self.tat, now)
    }

    pub(super) fn tokens(&self, now: u64) -> Tokens {
        let tat = self.tat.load(Ordering::Relaxed); // Relaxed: as in `try_spend`
        let count = self.rate.tokens(tat, now);
        Tokens {
            count: count as usize,
            more_at: now.saturating_add(self.rate.wait_for(count.saturating_add(1), tat, now)),
        }
    }

    /// Has the driver wake a getter when the next token comes. The caller then starts the driver if it is missing.
    pub(super) fn arm(hub: &mut HubGuard<'_>, at: u64) {
        if hub.getters.token_at.is_none() {
            hub.getters.token_at = Some(at);
            let called = hub.call_driver(at);
            hub.wakes.append(called);
        }
    }

    /// Wakes getters for the tokens that are there, if so many keys are ready. Returns when to come again: `None` if each key has a token, or
    /// a getter is on its way that will wake the next.
    pub(super) fn wake(&self, hub: &mut HubGuard<'_>, ready: usize, now: u64) -> Option<u64> {
        let tokens = self.tokens(now);
        for _ in 0..tokens.count.min(ready).min(AT_ONCE) {
            let getter = hub.getters.next(ready)?;
            hub.wakes.push(getter);
        }
        (ready > tokens.count && !hub.getters.waiters.is_empty()).then_some(tokens.more_at)
    }
}
