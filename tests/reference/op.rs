//! What a run can do: one language for all drivers.

use super::key::Fault;
use super::plan::Limit;
use keyqueue::{AddOptions, DelayConflict, Priority};
use std::time::Duration;

/// One step. A key is a number. Another number selects a held item, a waiter or a loop, modulo how many there are; if there is none,
/// the step is skipped. So each list of steps is valid, and a shorter one is too.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    Add(u8),
    AddAll(Vec<u8>),
    AddAfter(u8, Span),
    AddWith(u8, How),
    AddRateLimited(u8),
    /// Adds this number of keys that no other step names, each delayed for longer than the one before.
    Crowd(u8, How),
    Cancel(u8),
    Remove(u8),
    Forget(u8),
    /// All keys of these bits.
    TakeWhere(u16),
    TakeDelayed,
    /// Lists what there is.
    Look,

    Get(Form),
    GetMany(u8),
    /// Gets a batch of up to this number of keys, adds these, and then ends the batch, if that is an end of batches; else it holds the items.
    Batch(u8, Vec<u8>, End),
    /// Gets this number of keys, and is done with each, except for those of one group, by its number: they are held.
    Work(u8, Option<u8>),
    /// Gets this number of keys, one after the other, and adds each again while its handler runs, which takes the time of its group.
    Handle(u8),
    /// These steps, again and again. What starves or grows is found so.
    Repeat(u8, Vec<Op>),
    /// Ends the hand-out of a held item.
    End(u8, End),
    IntoOwned(u8),

    /// Starts to wait: makes a future, and polls it.
    Wait(Goal),
    /// A held item waits until its key is dirty. It is held again when it is.
    WaitDirty(u8),
    /// Polls a waiter, woken or not.
    Poll(u8),
    DropWaiter(u8),

    /// Starts a loop of workers, and polls it.
    StartLoop,
    /// The handler of a loop that holds a key returns this, when the loop is polled next.
    Finish(u8, Outcome),
    PollLoop(u8),
    DropLoop(u8),
    /// `Workers::stop`.
    Stop,
    /// `Workers::drain_timeout` of zero.
    DrainWorkers,

    Advance(Span),
    Turn,
    ShutDown,
    DrainTimeout,
    IdleTimeout,
    /// A call that blocks, if it would return at once.
    Block(Blocking),
    ShrinkToFit,
    /// `Group::set` of the group of this key.
    SetGroup(u8, Limit),
    UnsetGroup(u8),
    PauseGroup(u8, Span),
    ResumeGroup(u8),
    /// `WorkQueue::pause`.
    Pause,
    Resume,
    /// Of the calls of this code in one call of the queue the one of this number, from 0, panics: in the first call that makes so many.
    Fault(Fault, u8),
    /// `add_wait`, or its future, which is polled.
    RoomWait(u8),
    /// Polls such a future, woken or not.
    RoomPoll(u8),
    RoomDrop(u8),
    /// A holder reads the value of its key. The key is added so often, and then the run has succeeded with the value, or has not.
    Read(u8, u8, bool),
    /// `ValueQueue::remove`.
    RemoveValue(u8),
    /// `ValueQueue::take_all`.
    TakeValues,
}

/// How a get asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Try,
    TryOwned,
    /// With a timeout of zero.
    Timeout,
    /// Skipped if it would wait, as is the next.
    Get,
    Owned,
}

/// A call that waits for the work to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    WaitIdle,
    Drain,
    Join,
    DrainWorkers,
}

/// The end of a hand-out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    Done,
    Drop,
    /// Drops the item while a panic unwinds.
    Unwind,
    Succeed,
    GiveUp,
    Retry,
    RequeueAfter(Span),
    RequeueWith(How),
    CoolDown(Span),
}

/// What a handler returns; `TimedOut`, which no step names, if it was dropped at its limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Success,
    RequeueAfter(Span),
    RequeueWith(How),
    Retry,
    Failed,
    RetryAfter(Span),
    PauseGroup(Span),
    GiveUp,
    Panic,
    Cooldown(Span),
    TimedOut,
}

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    Item,
    OwnedItem,
    Idle,
    Drained,
    ShuttingDown,
    /// `Workers::drain_async`.
    WorkersDrained,
    /// `Workers::join_async`.
    Joined,
}

/// `AddOptions`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct How {
    pub(crate) after: Option<Span>,
    pub(crate) conflict: DelayConflict,
    /// In nanoseconds.
    pub(crate) at_most: Option<u64>,
    pub(crate) rate_limited: bool,
    pub(crate) priority: Option<i8>,
}

/// A time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Span {
    Nanos(u64),
    /// From now to a deadline that is to come, by its index in their order, and this many nanoseconds more.
    ToDeadline(u8, i8),
    Never,
}

impl Op {
    /// The same step without priorities, which a lock-free queue does not have.
    pub(crate) fn without_priorities(&self) -> Self {
        let without = |how: &How| How { priority: None, ..how.clone() };
        match self {
            Self::AddWith(n, how) => Self::AddWith(*n, without(how)),
            Self::Crowd(n, how) => Self::Crowd(*n, without(how)),
            Self::Repeat(times, ops) => Self::Repeat(*times, ops.iter().map(Self::without_priorities).collect()),
            Self::End(n, End::RequeueWith(how)) => Self::End(*n, End::RequeueWith(without(how))),
            Self::Finish(n, Outcome::RequeueWith(how)) => Self::Finish(*n, Outcome::RequeueWith(without(how))),
            other => other.clone(),
        }
    }
}

impl How {
    pub(crate) fn new() -> Self {
        Self { after: None, conflict: DelayConflict::EarliestWins, at_most: None, rate_limited: false, priority: None }
    }

    /// The bound of a delay that calls move back.
    pub(crate) fn bound(&self) -> Option<u64> {
        self.at_most.filter(|_| self.conflict == DelayConflict::Replace)
    }

    /// The crate's options. `delay`: what `after` stands for.
    pub(crate) fn options(&self, delay: Option<Duration>) -> AddOptions {
        let mut options = AddOptions::new().conflict(self.conflict);
        if let Some(delay) = delay {
            options = options.after(delay);
        }
        if let Some(nanos) = self.at_most {
            options = options.at_most(if nanos == u64::MAX { Duration::MAX } else { Duration::from_nanos(nanos) });
        }
        if self.rate_limited {
            options = options.rate_limited();
        }
        if let Some(priority) = self.priority {
            options = options.priority(Priority(priority));
        }
        options
    }
}
