//! Panics of the user's code, and what may be seen after one.
//!
//! ```text
//!   panics                                         the call
//!   Eq, Hash, Borrow, Clone, group, weight,        passes the panic on, and has changed nothing
//!     predicate; the limiter in an add
//!   Drop, observer; the limiter in an end          passes the panic on, and has taken effect
//!   observer in `handed_out`, waker; the drop of   returns; the panic is counted
//!   a key that has cooled down, in an expiry
//! ```
//!
//! What differs stands at its step. Loops of workers pass nothing on: they count (`workers.rs`). The observer is not told of the events of a
//! call that come after a panic.

use super::Run;
use crate::reference::events::Event;
use crate::reference::key::{Fault, Strike, arm, called, disarm};
use crate::reference::op::Op;
use crate::reference::plan::{Limiter, Plan};
use crate::reference::queue::Reference;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

impl Run<'_> {
    /// Makes a call of the queue, in which the fault that is set may strike. `Err`: the call has passed the panic on.
    pub(super) fn call<T>(&mut self, call: impl FnOnce() -> T) -> Result<T, Fault> {
        let Some((fault, nth)) = self.fault else { return Ok(called(call)) };
        arm(fault, nth);
        let end = catch_unwind(AssertUnwindSafe(|| called(call)));
        self.struck = disarm();
        if self.struck.is_some() {
            self.fault = None;
            crate::reference::crossings::struck(fault);
        }
        end.map_err(|payload| match payload.downcast_ref::<Fault>() {
            Some(fault) if self.struck.is_some() => *fault,
            _ => resume_unwind(payload),
        })
    }

    /// Compares an answer with that of the plain queue, on which `effect` makes the step. Without an answer, makes the step if the call has
    /// taken effect.
    pub(super) fn expect<T: PartialEq + Debug>(
        &mut self,
        seen: Result<T, Fault>,
        effect: impl FnOnce(&mut Reference) -> T,
    ) {
        match seen {
            Ok(seen) => {
                self.returned();
                assert_eq!(seen, effect(&mut self.reference));
            }
            Err(fault) if self.took_effect(fault) => _ = effect(&mut self.reference),
            Err(_) => {}
        }
    }

    /// The same for a step without an answer. Returns whether it has taken effect.
    pub(super) fn is_effective<T>(&mut self, seen: &Result<T, Fault>) -> bool {
        match seen {
            Ok(_) => {
                self.returned();
                true
            }
            Err(fault) => self.took_effect(*fault),
        }
    }

    /// A get has returned: it also catches a panic of the observer that it tells of delays.
    pub(super) fn returned_from_get(&mut self) {
        let tells = [Event::Queued, Event::Coalesced, Event::Deferred].map(|event| event as u8);
        let is_told = |strike: &Strike| strike.fault == Fault::Observer && tells.contains(&strike.at);
        if self.plan.inside.is_some() && self.struck.take_if(|strike| is_told(strike)).is_some() {
            self.events_are_missing = true;
            self.caught();
        }
        self.returned();
    }

    /// A call has returned: if it has caught a panic, that is counted.
    pub(super) fn returned(&mut self) {
        if let Some(strike) = self.struck.take() {
            let is_contained = match strike.fault {
                Fault::Waker => true,
                Fault::Observer => strike.at == Event::HandedOut as u8,
                Fault::Drop => std::mem::take(&mut self.may_expire),
                _ => false,
            };
            assert!(is_contained, "the call has swallowed {strike:?}");
            self.caught();
        }
    }

    /// A panic was caught. The queue counts it; or the workers do, if they have called the waker.
    pub(super) fn caught(&mut self) {
        if self.workers.tally().panicked > self.tally.panicked {
            self.tally.panicked += 1;
        } else {
            self.reference.counts.caught += 1;
        }
    }

    /// A call has passed this panic on.
    pub(super) fn took_effect(&mut self, fault: Fault) -> bool {
        self.struck = None;
        match fault {
            Fault::Drop | Fault::Observer => {
                self.events_are_missing = true;
                true
            }
            Fault::Eq | Fault::Hash | Fault::Borrow | Fault::Clone => false,
            Fault::Group | Fault::Weight | Fault::Predicate | Fault::Limiter => false,
            Fault::Iterator | Fault::Waker | Fault::Handler | Fault::Hook => {
                panic!("{fault:?} is to be caught, or to have a rule")
            }
        }
    }

    /// Adds that wait make no panic (tests/bounds.rs). Limiters of the crate count in tables of their own, which know the keys; after a
    /// panic of a key only some of several have counted. A turn of tenants makes none, because one that a panic ends leaves
    /// pauses that are over.
    pub(super) fn may_panic(plan: &Plan, fault: Fault, op: &Op) -> bool {
        if matches!(op, Op::RoomWait(_) | Op::RoomPoll(_) | Op::RoomDrop(_)) || plan.tenants && matches!(op, Op::Turn) {
            return false;
        }
        let is_of_keys = matches!(fault, Fault::Eq | Fault::Hash | Fault::Borrow | Fault::Clone | Fault::Drop);
        let asks = match op {
            Op::AddWith(_, how) => how.rate_limited,
            Op::AddRateLimited(_) | Op::Forget(_) | Op::End(..) | Op::Batch(..) | Op::StartLoop | Op::PollLoop(_) => {
                true
            }
            _ => false,
        };
        // A loop tells of the end of a hand-out, and of delays that its next get expires.
        let is_either =
            plan.inside.is_some() && fault == Fault::Observer && matches!(op, Op::StartLoop | Op::PollLoop(_));
        let is_late = plan.lock_free && fault == Fault::Drop; // the drop of a key is in no call in particular
        // A group is named by a key of the caller's, which is made, asked for its group, and dropped outside the queue.
        let is_of_name = (is_of_keys || matches!(fault, Fault::Group | Fault::Weight))
            && matches!(op, Op::SetGroup(..) | Op::UnsetGroup(_) | Op::PauseGroup(..) | Op::ResumeGroup(_));
        !(plan.limiter == Limiter::Composed && is_of_keys && asks || is_either || is_late || is_of_name)
    }
}
