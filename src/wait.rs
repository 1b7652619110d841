//! FIFO wait list of threads and tasks.
//!
//! The list is plain data under its owner's lock. Because no waiter is woken under a lock, the waiters that are taken out go to a
//! [`WakeList`], which the owner wakes after it has unlocked.

use crate::panics::{contained, drop_each};
use crate::sync::{Mutex, Unparker, model_const, with_parker};
use crate::time::deadline::Deadline;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

#[derive(Debug)]
pub(crate) enum Waiter {
    Thread(Unparker),
    Task(Waker),
}

impl Waiter {
    pub(crate) fn is_thread(&self) -> bool {
        matches!(self, Self::Thread(_))
    }

    /// Wakes a thread, which stays on its list, and does nothing for a task. No user code runs.
    pub(crate) fn unpark(&self) {
        if let Self::Thread(unparker) = self {
            unparker.unpark();
        }
    }
}

/// Wakes a thread or a task. Returns the number of panics: that of a waker is caught, as its task has nothing to do with the caller.
#[cold]
fn wake(waiter: Waiter) -> usize {
    match waiter {
        Waiter::Thread(unparker) => {
            unparker.unpark();
            0
        }
        Waiter::Task(waker) => usize::from(contained(|| waker.wake()).is_none()),
    }
}

/// A waiter's place in the list. The waiter keeps it until it stops waiting, even while it is off the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// A ticket for a list of another kind.
    pub(crate) fn nth(n: u64) -> Self {
        Self(n)
    }
}

/// The waiters, oldest first, with ascending tickets.
///
/// The oldest are in `front`, and the others in a tree. The usual few waiters then stay in an array that has room for them, and with very
/// many waiters each step takes no longer than one in the tree, wherever the waiter is.
#[derive(Debug, Default)]
pub(crate) struct WaitList {
    /// At most [`FRONT`] waiters.
    front: VecDeque<(Ticket, Waiter)>,
    /// The waiters that are younger than those in `front`. Empty unless `front` is full.
    rest: BTreeMap<Ticket, Waiter>,
    /// The number of threads in both.
    threads: usize,
    next: u64,
}

/// The number of waiters for which the list allocates only once: 2 KiB. An insert or a removal moves at most half of them.
const FRONT: usize = model_const(64, 2);

impl WaitList {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.rest.len()
    }

    pub(crate) fn push(&mut self, waiter: Waiter) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.threads += usize::from(waiter.is_thread());
        if self.front.len() < FRONT {
            self.front.push_back((ticket, waiter));
        } else {
            self.rest.insert(ticket, waiter);
        }
        ticket
    }

    /// Puts a waiter that was taken out back to the place of its ticket, because one that was woken in vain keeps its position.
    pub(crate) fn put_back(&mut self, ticket: Ticket, waiter: Waiter) {
        self.threads += usize::from(waiter.is_thread());
        let at = self.front.partition_point(|&(other, _)| other < ticket);
        if at == FRONT {
            self.rest.insert(ticket, waiter);
            return;
        }
        if self.front.len() == FRONT {
            self.rest.extend(self.front.pop_back());
        }
        self.front.insert(at, (ticket, waiter));
    }

    /// Takes a waiter out, or `None` if it has been woken.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = match self.front.binary_search_by_key(&ticket, |&(ticket, _)| ticket) {
            Ok(at) => self.front.remove(at).map(|(_, waiter)| waiter),
            Err(_) => self.rest.remove(&ticket),
        };
        self.taken_out(waiter)
    }

    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let oldest = self.front.pop_front().map(|(_, waiter)| waiter);
        self.taken_out(oldest)
    }

    #[inline]
    fn taken_out(&mut self, waiter: Option<Waiter>) -> Option<Waiter> {
        self.threads -= usize::from(waiter.as_ref().is_some_and(Waiter::is_thread));
        if !self.rest.is_empty() && self.front.len() < FRONT {
            self.front.extend(self.rest.pop_first());
        }
        waiter
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiter> {
        self.front.iter().map(|(_, waiter)| waiter).chain(self.rest.values())
    }

    pub(crate) fn shrink(&mut self) {
        self.front.shrink_to_fit();
    }

    /// Takes all waiters out, oldest first. The tree is moved as a whole, so this takes the same time for any number of waiters.
    pub(crate) fn take_all(&mut self) -> WakeList {
        self.threads = 0;
        let mut all = WakeList::default();
        all.extend(self.front.drain(..).map(|(_, waiter)| waiter));
        all.push_tree(std::mem::take(&mut self.rest));
        all
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The threads, which stay in the list.
    pub(crate) fn unparkers(&self) -> impl Iterator<Item = Unparker> {
        self.iter().filter_map(|waiter| match waiter {
            Waiter::Thread(unparker) => Some(unparker.clone()),
            Waiter::Task(_) => None,
        })
    }
}

/// Projects the data of a [`Mutex`] to a list in it.
type ListOf<T> = fn(&mut T) -> &mut WaitList;

/// Parks on a list until `outcome` returns a result. `outcome` is called under the lock, first and after each park, and is told whether the
/// deadline has passed. Each change wakes all waiters of the list, so a thread that stops waiting need not wake another.
pub(crate) fn park_on<T, R>(
    data: &Mutex<T>,
    list: ListOf<T>,
    deadline: &Deadline,
    outcome: impl Fn(&mut T, bool) -> Option<R>,
) -> R {
    with_parker(|parker| {
        let mut late = deadline.is_zero();
        loop {
            let unparker = parker.unparker();
            let ticket = {
                let data = &mut *data.lock();
                if let Some(outcome) = outcome(data, late) {
                    return outcome;
                }
                list(data).push(Waiter::Thread(unparker))
            };
            parker.park(deadline.start());
            late = deadline.is_over();
            let _still_listed = list(&mut data.lock()).remove(ticket);
        }
    })
}

/// Like [`park_on`], for a task. Returns whether the task is `done`; otherwise puts it on the list, and sets `ticket`. Also returns how many
/// panics were caught: the drop of the waker that was there before may panic.
pub(crate) fn poll_on<T>(
    data: &Mutex<T>,
    list: ListOf<T>,
    ticket: &mut Option<Ticket>,
    waker: &Waker,
    done: impl FnOnce(&mut T) -> bool,
) -> (bool, usize) {
    let mut waiter = Some(Waiter::Task(waker.clone()));
    let (done, listed) = {
        let data = &mut *data.lock();
        let listed = ticket.take().and_then(|ticket| list(data).remove(ticket));
        let done = done(data);
        if !done {
            *ticket = waiter.take().map(|waiter| list(data).push(waiter));
        }
        (done, listed)
    };
    (done, drop_each(listed)) // after the lock, because wakers are user code
}

/// Called when a task stops waiting. Returns how many panics were caught, as [`poll_on`] does.
pub(crate) fn leave<T>(data: &Mutex<T>, list: ListOf<T>, ticket: Option<Ticket>) -> usize {
    let listed = ticket.and_then(|ticket| list(&mut data.lock()).remove(ticket));
    drop_each(listed) // after the lock
}

/// Waiters that were taken off their lists and are still to be woken. One waiter needs no allocation.
#[must_use = "a waiter that is taken from its list and not woken waits forever"]
#[derive(Debug, Default)]
pub(crate) struct WakeList {
    /// `None` if there are none.
    first: Option<Waiter>,
    rest: Vec<Waiter>,
    /// The trees of long lists.
    #[expect(clippy::box_collection, reason = "one word, as the queue always carries it")]
    trees: Option<Box<Vec<BTreeMap<Ticket, Waiter>>>>,
}

impl WakeList {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn push(&mut self, waiter: Waiter) {
        if self.first.is_none() {
            self.first = Some(waiter);
        } else {
            self.rest.push(waiter);
        }
    }

    /// The tree is moved as a whole.
    pub(crate) fn push_tree(&mut self, mut tree: BTreeMap<Ticket, Waiter>) {
        self.extend(tree.pop_first().map(|(_, waiter)| waiter));
        if !tree.is_empty() {
            self.trees.get_or_insert_default().push(tree);
        }
    }

    pub(crate) fn append(&mut self, more: Self) {
        if self.is_empty() {
            *self = more;
        } else {
            self.rest.extend(more.first);
            self.rest.extend(more.rest);
            if let Some(trees) = more.trees {
                self.trees.get_or_insert_default().extend(*trees);
            }
        }
    }

    /// Wakes all, and returns the number of wakers that panicked. Not called under a lock, because wakers are foreign code (W4).
    pub(crate) fn wake(self) -> usize {
        let trees = self.trees.into_iter().flat_map(|trees| *trees).flat_map(BTreeMap::into_values);
        self.first.into_iter().chain(self.rest).chain(trees).map(wake).sum()
    }
}

impl Extend<Waiter> for WakeList {
    fn extend<T: IntoIterator<Item = Waiter>>(&mut self, waiters: T) {
        waiters.into_iter().for_each(|waiter| self.push(waiter));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Parker;
    #[cfg(target_os = "linux")]
    use crate::sync::cpu_time;
    use std::cell::RefCell;
    use std::sync::Arc;
    #[cfg(target_os = "linux")]
    use std::time::Duration;

    std::thread_local!(static WOKEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });

    /// A task with an address of its own, which it writes to [`WOKEN`] when it is woken.
    struct Task;

    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {
            WOKEN.with_borrow_mut(|woken| woken.push(Arc::as_ptr(&self).addr()));
        }
    }

    impl Waiter {
        /// A task's address, or 0 for a thread.
        fn id(&self) -> usize {
            let Self::Task(waker) = self else { return 0 };
            waker.data().addr()
        }
    }

    fn task() -> Waiter {
        Waiter::Task(Arc::new(Task).into())
    }

    /// However many waiters a list has, taking them out is one step.
    #[test]
    fn a_tree_of_waiters_is_moved_as_a_whole() {
        let mut wakes = WakeList::default();
        wakes.push_tree((0..1000).map(|n| (Ticket::nth(n), task())).collect());
        assert_eq!((wakes.rest.len(), wakes.trees.as_ref().map(|trees| trees[0].len())), (0, Some(999)));
        WOKEN.take();
        assert_eq!((wakes.wake(), WOKEN.take().len()), (0, 1000));
    }

    /// In random steps the list gives the same results as a plain vector, and never has more than `FRONT` waiters in its array.
    #[test]
    fn it_does_what_a_sorted_vector_does() {
        for (seed, most) in [(1, 5), (2, FRONT), (3, FRONT + 3), (4, 10 * FRONT)] {
            let parker = Parker::new();
            let (mut list, mut inside, mut outside) = (WaitList::default(), Vec::new(), Vec::<(Ticket, Waiter)>::new());
            let mut random = Random(seed);
            for step in 0..20_000 {
                match random.below(8) {
                    0 | 1 if inside.len() < most => {
                        let waiter = if random.below(3) == 0 { Waiter::Thread(parker.unparker()) } else { task() };
                        let id = waiter.id();
                        let ticket = list.push(waiter);
                        assert!(
                            inside.iter().all(|&(older, _)| older < ticket)
                                && outside.iter().all(|(older, _)| *older < ticket)
                        );
                        inside.push((ticket, id));
                    }
                    0..=3 if !inside.is_empty() => {
                        let (ticket, id) = inside.remove(0);
                        let waiter = list.pop().expect("it is the oldest");
                        assert_eq!(waiter.id(), id, "step {step}");
                        assert!(list.remove(ticket).is_none());
                        outside.push((ticket, waiter));
                    }
                    4 if !inside.is_empty() => {
                        let (ticket, id) = inside.remove(random.below(inside.len()));
                        let waiter = list.remove(ticket).expect("it is in the list");
                        assert_eq!(waiter.id(), id, "step {step}");
                        assert!(list.remove(ticket).is_none());
                        outside.push((ticket, waiter));
                    }
                    5 | 6 if !outside.is_empty() => {
                        let (ticket, waiter) = outside.swap_remove(random.below(outside.len()));
                        inside.insert(inside.partition_point(|&(other, _)| other < ticket), (ticket, waiter.id()));
                        list.put_back(ticket, waiter);
                    }
                    _ if step % 100 == 0 => list.shrink(),
                    _ => {
                        outside.pop(); // it does not come back
                    }
                }
                let ids = inside.iter().map(|&(_, id)| id);
                assert!(list.iter().map(Waiter::id).eq(ids.clone()), "step {step}");
                assert_eq!((list.len(), list.is_empty()), (inside.len(), inside.is_empty()));
                assert_eq!(list.threads(), ids.filter(|&id| id == 0).count());
                assert!(list.front.len() == FRONT.min(list.len()) && list.front.capacity() <= 2 * FRONT);
            }
            list.take_all().wake();
            assert_eq!((list.len(), list.threads(), list.is_empty()), (0, 0, true));
            assert!(
                WOKEN.take().into_iter().eq(inside.iter().map(|&(_, id)| id).filter(|&id| id > 0)),
                "all, oldest first"
            );
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }

    /// Waiters are taken out of the middle, put back and taken out again. In one long list this costs more cache misses, but each step
    /// moves no more waiters than in a short one.
    #[test]
    #[cfg(target_os = "linux")]
    fn leaving_a_long_list_costs_no_more_than_leaving_a_short_one() {
        const WAITERS: usize = 200_000;
        let cost = |lists: usize| {
            let mut ran = Duration::ZERO;
            for _ in 0..lists {
                let mut list = WaitList::default();
                let tickets: Vec<_> = (0..WAITERS / lists).map(|_| list.push(task())).collect();
                let before = cpu_time();
                // Every second waiter, so that the others stay spread over the list.
                for &ticket in tickets.iter().step_by(2) {
                    let waiter = list.remove(ticket).expect("it is in the list");
                    list.put_back(ticket, waiter);
                    drop(list.remove(ticket));
                }
                ran += cpu_time() - before;
                assert_eq!(list.len(), WAITERS / lists / 2);
            }
            ran
        };
        // The sum of several runs, because the clock may count processor time in steps of milliseconds.
        let sum = |lists| (0..4).map(|_| cost(lists)).sum::<Duration>();
        let (short, long) = (sum(100), sum(1));
        println!("100 lists: {short:?}, one list: {long:?}");
        assert!(long < 10 * short, "100 lists: {short:?}, one list: {long:?}");
    }
}
