//! For each key, the adds for which the queue still owes a hand-out.
//!
//! ```text
//!  producer:     ticket = asked += 1   ─▶   add     ─▶  accepted: due = max(due, ticket)        (or later, for a delay)
//!  canceller:                               cancel  ─▶  there was a delay: excused = asked
//!  holder:       seen = asked          ─▶   work
//! ```
//!
//! An accepted add is followed by a hand-out that begins after it, to which is visible what came before the add: so that
//! hand-out sees its ticket. When nothing is left to do, each key's `due` has been seen, and its `later` was seen or excused.
//! All accesses are Relaxed: only the queue's promise makes the tickets visible.

use crate::fail;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// One key's account.
#[derive(Default)]
struct Account {
    asked: AtomicU32,
    due: AtomicU32,
    later: AtomicU32,
    excused: AtomicU32,
    seen: AtomicU32,
    held: AtomicBool,
}

pub struct Ledger {
    accounts: Vec<Account>,
    pub hand_outs: AtomicU64,
}

/// Taken before an add.
#[derive(Clone, Copy)]
pub struct Ticket {
    id: u32,
    number: u32,
}

/// A key that is processing.
pub struct Held<'l> {
    account: &'l Account,
    id: u32,
    /// The last ticket that was visible when it was handed out.
    pub seen: u32,
}

impl Ledger {
    pub fn new(keys: u32) -> Self {
        Self { accounts: (0..keys).map(|_| Account::default()).collect(), hand_outs: AtomicU64::new(0) }
    }

    fn account(&self, id: u32) -> &Account {
        &self.accounts[id as usize]
    }

    pub fn ticket(&self, id: u32) -> Ticket {
        Ticket { id, number: self.account(id).asked.fetch_add(1, Relaxed) + 1 }
    }

    /// The add was accepted: it must be followed by a hand-out.
    pub fn due(&self, ticket: Ticket) {
        self.account(ticket.id).due.fetch_max(ticket.number, Relaxed);
    }

    /// It was accepted and may wait for a delay, so that a `cancel` can undo it.
    pub fn later(&self, ticket: Ticket) {
        self.account(ticket.id).later.fetch_max(ticket.number, Relaxed);
    }

    /// No delay of the key is left: delayed adds before this need no hand-out.
    pub fn excuse(&self, id: u32) {
        let account = self.account(id);
        account.excused.fetch_max(account.asked.load(Relaxed), Relaxed);
    }

    /// A key was handed out.
    pub fn begin(&self, id: u32) -> Held<'_> {
        self.hand_outs.fetch_add(1, Relaxed);
        let account = self.account(id);
        if account.held.swap(true, Relaxed) {
            fail(format_args!("key {id} has two holders"));
        }
        let seen = account.asked.load(Relaxed);
        account.seen.fetch_max(seen, Relaxed);
        Held { account, id, seen }
    }

    /// Checks that no hand-out is owed any more.
    pub fn settle(&self, when: &str) {
        for (id, account) in self.accounts.iter().enumerate() {
            let Account { due, later, excused, seen, held, .. } = account;
            let [due, later, excused, seen] = [due, later, excused, seen].map(|ticket| ticket.load(Relaxed));
            if held.load(Relaxed) {
                fail(format_args!("{when}: key {id} is held, but the queue says that no key is processing"));
            }
            if due > seen {
                fail(format_args!(
                    "{when}: key {id} lost an add: add {due} was accepted, the last hand-out saw {seen}"
                ));
            }
            if later > seen.max(excused) {
                fail(format_args!(
                    "{when}: key {id} lost a delayed add: {later} was accepted, the last hand-out saw {seen}, and \
                     {excused} were cancelled"
                ));
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.account.held.swap(false, Relaxed) {
            fail(format_args!("key {} had two holders", self.id));
        }
    }
}
