//! The gates of the partitions: a key is handed out only while its partition's gate is open and the deadline is not reached. A gate
//! counts the handlers inside, so that its closer learns when the last one has left.
//!
//! ```text
//!            open(token)                       close                        the last one leaves
//!   closed ───────────────▶ open, n inside ───────────▶ closed, n inside ───────────────────────▶ closed, empty
//! ```
//!
//! One word per gate: bit 0 is set while the gate is closed, the rest is twice the number of those inside. The member's task alone
//! opens and closes; any thread enters and leaves.
//!
//! **The list and the event** (step 6 of the [protocol](crate::protocol)). A program has a store of its own, say a cache of objects. Its
//! event thread writes an object to the store and then looks whether the gate is open ([`Gates::admits`]); if not, it drops the event.
//! After the gate was opened, its list thread reads the store and adds all. One of the two must see the key. That is the pattern of two
//! threads that each write one place and read the other, so there is a `SeqCst` fence on both sides: in `admits` before the gate is read,
//! and in `open` after it is written. The model is `loom-tests/tests/fleet_gate.rs`.
//!
//! This file is compiled a second time by `loom-tests/`, so it uses nothing of the crate but `crate::sync`.

use crate::sync::{AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;

const CLOSED: u64 = 1;
const ONE_INSIDE: u64 = 2;

/// Why a gate does not let a key in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The gate is closed: another member has the partition, or will have it.
    Closed,
    /// The member's deadline is reached. The partition may still be its own after the next renewal.
    Late,
}

#[derive(Debug)]
struct Gate {
    state: AtomicU64,
    /// The fencing token, while the gate is open. Written before the gate opens.
    token: AtomicU64,
    /// The number of times that those inside were told to stop. Holders that entered before are lost.
    losses: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Gates {
    gates: Box<[CachePadded<Gate>]>,
    /// No key is handed out from this moment on, by the member's clock.
    deadline: AtomicU64,
    /// False only in tests of the tests.
    has_deadline: bool,
}

/// What a holder needs to leave, and to know whether it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) partition: u32,
    pub(crate) token: u64,
    losses: u64,
}

impl Gates {
    pub(crate) fn new(partitions: u32, has_deadline: bool) -> Self {
        let gate = || Gate { state: AtomicU64::new(CLOSED), token: AtomicU64::new(0), losses: AtomicU64::new(0) };
        Self {
            gates: (0..partitions).map(|_| CachePadded::new(gate())).collect(),
            deadline: AtomicU64::new(0),
            has_deadline,
        }
    }

    fn gate(&self, partition: u32) -> &Gate {
        &self.gates[partition as usize]
    }

    /// Opens a gate. What the caller does after it, such as to list a store, sees all objects whose events found the gate closed.
    pub(crate) fn open(&self, partition: u32, token: u64) {
        let gate = self.gate(partition);
        gate.token.store(token, Ordering::Relaxed);
        // Release: a thread that enters through the open gate sees the token.
        gate.state.fetch_and(!CLOSED, Ordering::Release);
        fence(Ordering::SeqCst); // pairs with the fence in `admits`
    }

    /// Closes a gate. No handler enters any more; those inside stay until they leave.
    pub(crate) fn close(&self, partition: u32) {
        self.gate(partition).state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Whether a closed gate has no handler inside. Acquire: what the handlers did happened before.
    pub(crate) fn is_empty(&self, partition: u32) -> bool {
        self.gate(partition).state.load(Ordering::Acquire) < ONE_INSIDE
    }

    /// Whether the gate is open. If the answer is no, what the caller wrote before is visible to a thread that lists after it has opened the gate.
    #[inline]
    pub(crate) fn admits(&self, partition: u32) -> bool {
        fence(Ordering::SeqCst); // pairs with the fence in `open`
        self.gate(partition).state.load(Ordering::Relaxed) & CLOSED == 0
    }

    /// Enters, unless the gate is closed or the deadline is reached. `now` is called after the gate has counted the caller: the answer
    /// is valid at that moment.
    #[inline]
    pub(crate) fn enter(&self, partition: u32, now: impl FnOnce() -> u64) -> Result<Entry, (Refused, LastOut)> {
        let gate = self.gate(partition);
        if gate.state.load(Ordering::Relaxed) & CLOSED != 0 {
            return Err((Refused::Closed, LastOut(false))); // without waking the member's task for each such key
        }
        let losses = gate.losses.load(Ordering::Acquire);
        // Acquire: pairs with `open`, for the token.
        if gate.state.fetch_add(ONE_INSIDE, Ordering::AcqRel) & CLOSED != 0 {
            return Err((Refused::Closed, self.leave(partition)));
        }
        // Relaxed: a deadline that was just moved on may be seen a moment late, never early. `lose` sets it back to 0, and closes.
        if self.has_deadline && now() >= self.deadline.load(Ordering::Relaxed) {
            return Err((Refused::Late, self.leave(partition)));
        }
        Ok(Entry { partition, token: gate.token.load(Ordering::Relaxed), losses })
    }

    /// Enters once more, also through a closed gate: the caller is inside already, and has not left. The new entry is lost when this one
    /// is.
    pub(crate) fn enter_again(&self, entry: Entry) -> Entry {
        self.gate(entry.partition).state.fetch_add(ONE_INSIDE, Ordering::Relaxed);
        entry
    }

    /// Leaves. Release: what the holder did happened before whatever follows the gate's being empty.
    #[inline]
    pub(crate) fn leave(&self, partition: u32) -> LastOut {
        LastOut(self.gate(partition).state.fetch_sub(ONE_INSIDE, Ordering::AcqRel) == ONE_INSIDE | CLOSED)
    }

    pub(crate) fn len(&self) -> u32 {
        self.gates.len() as u32
    }

    pub(crate) fn is_closed(&self, partition: u32) -> bool {
        self.gate(partition).state.load(Ordering::Acquire) & CLOSED != 0
    }

    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    pub(crate) fn set_deadline(&self, deadline: u64) {
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// Closes a gate and tells those inside that they are lost. Who enters after it was opened again is not.
    pub(crate) fn expel(&self, partition: u32) {
        self.close(partition);
        self.gate(partition).losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Closes all gates and tells those inside that they are lost.
    pub(crate) fn lose(&self) {
        self.set_deadline(0);
        (0..self.gates.len() as u32).for_each(|partition| self.expel(partition));
    }

    /// Whether a holder must stop: the deadline is reached, or it was told.
    #[inline]
    pub(crate) fn is_lost(&self, entry: Entry, now: u64) -> bool {
        let losses = &self.gate(entry.partition).losses;
        self.has_deadline && now >= self.deadline() || losses.load(Ordering::Acquire) != entry.losses
    }
}

/// Whether the caller was the last one inside a closed gate, and should tell the member's task.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastOut(pub(crate) bool);
