//! Who waits: threads and tasks in one list, in the order in which they came.
//!
//! The list is plain data under its owner's lock. Nobody is woken under a lock: taking a waiter out yields a [`Wake`], and
//! its owner wakes after unlocking. Dropping one without waking would lose it, hence `must_use`.

use crate::panics::contained;
use crate::sync::{Mutex, Unparker, with_parker};
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

/// A thread or a task that sleeps.
#[derive(Debug)]
pub(crate) enum Waiter {
    Thread(Unparker),
    Task(Waker),
    /// Where there is room for one only. Not in any list.
    Several(Box<Wakes>),
}

impl Waiter {
    pub(crate) fn is_thread(&self) -> bool {
        matches!(self, Self::Thread(_))
    }

    /// Wakes a thread, which stays on its list. No user code runs.
    pub(crate) fn unpark(&self) {
        if let Self::Thread(unparker) = self {
            unparker.unpark();
        }
    }
}

/// Wake-ups that are owed.
#[must_use = "taken from the list: unless woken, it sleeps for ever"]
#[derive(Debug, Default)]
pub(crate) struct Wake(Option<Waiter>);

impl Wake {
    #[inline]
    pub(crate) fn one(waiter: Option<Waiter>) -> Self {
        Self(waiter)
    }

    /// Both of them.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        if other.0.is_none() { self } else { self.and_some(other) }
    }

    #[cold]
    fn and_some(self, other: Self) -> Self {
        let mut both = Wakes::default();
        both.add(self);
        both.add(other);
        both.into()
    }

    /// `true`: there is nothing to wake.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Wakes, and returns how many wakers panicked. Call it without any lock held: a waker is foreign code.
    #[inline]
    pub(crate) fn wake(self) -> usize {
        self.0.map_or(0, wake)
    }
}

/// Wakes a thread or a task. A waker that panics is the fault of a task that has nothing to do with the caller, so the panic
/// does not reach the caller: it is caught, and counted.
#[cold]
fn wake(waiter: Waiter) -> usize {
    match waiter {
        Waiter::Thread(unparker) => {
            unparker.unpark();
            0
        }
        Waiter::Task(waker) => usize::from(contained(|| waker.wake()).is_none()),
        Waiter::Several(waiters) => waiters.wake(),
    }
}

/// Drops waiters that need not be woken any more, and returns how many of the drops panicked: a waker's drop is foreign code,
/// too.
pub(crate) fn discard(waiters: impl IntoIterator<Item = Waiter>) -> usize {
    waiters.into_iter().filter_map(|waiter| contained(|| drop(waiter)).is_none().then_some(())).count()
}

/// A waiter's place in the list; it is the waiter's until it is done waiting, also while it is not in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The waiters, oldest first: tickets ascend.
#[derive(Debug, Default)]
pub(crate) struct WaitList {
    waiting: VecDeque<(Ticket, Waiter)>,
    next: u64,
}

impl WaitList {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// To the end of the list.
    pub(crate) fn push(&mut self, waiter: Waiter) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back((ticket, waiter));
        ticket
    }

    /// Back to where this ticket belongs, from where it was removed: who was woken in vain keeps its turn.
    pub(crate) fn put_back(&mut self, ticket: Ticket, waiter: Waiter) {
        if let Err(at) = self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            self.waiting.insert(at, (ticket, waiter));
        }
    }

    /// Takes a waiter out, or `None` if it has been woken.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let at = self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        self.waiting.remove(at).map(|(_, waiter)| waiter)
    }

    /// Takes the oldest out.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        self.waiting.pop_front().map(|(_, waiter)| waiter)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().map(|(_, waiter)| waiter)
    }

    /// Gives back memory that more waiters needed.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }

    /// Takes all out, oldest first.
    pub(crate) fn take_all(&mut self) -> Wakes {
        self.waiting.drain(..).map(|(_, waiter)| waiter).collect()
    }

    pub(crate) fn threads(&self) -> usize {
        self.iter().filter(|waiter| waiter.is_thread()).count()
    }
}

/// Where in a [`Mutex`]'s data a list is.
type At<T> = fn(&mut T) -> &mut WaitList;

/// Sleeps on a list until `over` says how it ended, which it is asked under the lock: at first, and whenever the thread was woken;
/// also, then with `true`, when the deadline has passed. Whoever makes a change wakes all, so nobody waits for our wake-up.
pub(crate) fn sleep_on<T, R>(
    data: &Mutex<T>,
    list: At<T>,
    deadline: Option<Instant>,
    over: impl Fn(&mut T, bool) -> Option<R>,
) -> R {
    with_parker(|parker| {
        loop {
            let unparker = parker.unparker();
            let late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            let ticket = {
                let data = &mut *data.lock();
                if let Some(end) = over(data, late) {
                    return end;
                }
                list(data).push(Waiter::Thread(unparker))
            };
            parker.park(deadline);
            let _still_listed = list(&mut data.lock()).remove(ticket);
        }
    })
}

/// As [`sleep_on`], for a task: `true` if it is over, else the task will be woken, by the place that is kept in `ticket`.
pub(crate) fn poll_on<T>(
    data: &Mutex<T>,
    list: At<T>,
    ticket: &mut Option<Ticket>,
    waker: &Waker,
    over: impl FnOnce(&mut T) -> bool,
) -> bool {
    let mut waiter = Some(Waiter::Task(waker.clone()));
    // Dropped after the lock: wakers are user code.
    let (over, _listed) = {
        let data = &mut *data.lock();
        let listed = ticket.take().and_then(|ticket| list(data).remove(ticket));
        let over = over(data);
        if !over {
            *ticket = waiter.take().map(|waiter| list(data).push(waiter));
        }
        (over, listed)
    };
    over
}

/// A task does not wait any more.
pub(crate) fn leave<T>(data: &Mutex<T>, list: At<T>, ticket: Option<Ticket>) {
    if let Some(ticket) = ticket {
        let _dropped_after_the_lock = list(&mut data.lock()).remove(ticket);
    }
}

/// Many wake-ups that are owed. One, the usual number, needs no allocation.
#[must_use = "taken from the list: unless woken, they sleep for ever"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    first: Option<Waiter>,
    rest: Vec<Waiter>,
}

impl Wakes {
    /// One more.
    pub(crate) fn add(&mut self, wake: Wake) {
        if self.first.is_none() {
            self.first = wake.0;
        } else {
            self.rest.extend(wake.0);
        }
    }

    /// More of them.
    pub(crate) fn append(&mut self, more: Self) {
        if self.first.is_none() && self.rest.is_empty() {
            *self = more;
        } else {
            self.rest.extend(more.first);
            self.rest.extend(more.rest);
        }
    }

    /// Wakes all of them, and returns how many wakers panicked. Call it without any lock held.
    pub(crate) fn wake(self) -> usize {
        self.first.into_iter().chain(self.rest).map(wake).sum()
    }
}

/// Made one, to be carried where that is what there is room for.
impl From<Wakes> for Wake {
    fn from(mut wakes: Wakes) -> Self {
        let several = !wakes.rest.is_empty();
        Self(if several { Some(Waiter::Several(Box::new(wakes))) } else { wakes.first.take() })
    }
}

impl FromIterator<Waiter> for Wakes {
    fn from_iter<T: IntoIterator<Item = Waiter>>(waiters: T) -> Self {
        let mut waiters = waiters.into_iter();
        Self { first: waiters.next(), rest: waiters.collect() }
    }
}
