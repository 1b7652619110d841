//! How the queue works inside: the page for the curious. This module has no items.
//!
//! To use the crate nobody needs this. To change it, or to debug a program that hangs, start here; the files that are named have the details, and
//! [`guarantees`](crate::guarantees) the invariants by number.
//!
//! # A call
//!
//! ```text
//!  add(key) ─ hash ─▶ shard ─ lock ─┬─ find the key's slot in the table, or make one
//!                                   ├─ change its state, and queue it if it must be handed out
//!                                   ├─ does a flag say that somebody waits? ─ yes ─▶ take a waiter from the hub's list
//!                                   └─ unlock ─▶ wake that waiter, call the observer, drop keys: never under the lock
//! ```
//!
//! A *shard* is the data under one lock. A queue has one shard unless it is [built with more](crate::WorkQueueBuilder::shards). Such a critical
//! section takes 5 to 15 ns, and no call holds the lock for long: a call with much to do, such as the expiry of a million delays, does it in
//! many short sections. `src/shared/` has one file per kind of call, `src/shard/` the steps under the lock.
//!
//! # A key
//!
//! A key is stored once, in a *slot* with its hash and one word of state. The word has a bit for each of client-go's two sets:
//!
//! ```text
//!            add                   get                          add
//!  absent ─────────▶ DIRTY ───────────────────▶ PROCESSING ──────────────▶ PROCESSING│DIRTY
//!    ▲             (queued)  ↺ add: no change    │                          │     ↺ add: no change
//!    │               ▲                           │                          │
//!    │               └───────────────────────────┼───────── done ───────────┘
//!    └──────────────────────────── done ─────────┘     (queued again, at the back)
//! ```
//!
//! and bits for a delay and for counted failures, which keep the slot alive when the key is neither queued nor processing. Slots are in chunks of
//! up to 64, so memory comes back after a burst: an empty chunk is freed. The table is an array of chains that run through the slots. When it
//! grows, each call moves some chains, so no call pays for all of them. `src/key/`.
//!
//! # The order
//!
//! ```text
//!  without priorities and groups: an array of blocks          with them: linked lists, one for each priority and group
//!
//!   ┌───────────────┐ ┌───────────────┐                        HIGH    ring: tenant-2
//!   │ ○ ○ ●  ●  ● ● │ │ ● ● ●         │                        NORMAL  ring: tenant-1 ⇄ tenant-2 ⇄ tenant-3
//!   └───────────────┘ └───────────────┘                                         └▶ key ⇄ key ⇄ key
//!        get ▲              add ▲                              LOW     ring: tenant-1
//! ```
//!
//! In the array a get takes the next word. In the lists a key can leave from the middle, as when it is raised; a bitmap says which
//! priorities have keys, and the groups of a priority take turns. A queue changes from the one to the other at the first call
//! that gives a priority, and moves its keys some at a time. `src/line/`, `src/shard/order.rs`.
//!
//! # Delays
//!
//! Deadlines are in a hierarchical timing wheel: a slot of the lowest level is a nanosecond, of the next one 64, and so on. A key is put into the level
//! whose slots are just fine enough to tell its deadline from the present, and moves to a finer one when an entry of its slot has expired: two or three times
//! in its life, however many keys there are. A thread, the *driver*, parks until the first slot's time; it is started by the first delay. It also reports, at the observer's [interval](crate::observe::Observer::interval). (With several shards
//! it also wakes tasks that have found a shard's lock held for long.) If it cannot be started, getters that wait do its work; with [`Driver::Manual`](crate::Driver::Manual) only calls of `turn` do. `src/time/wheel/`, `src/shared/driver.rs`.
//!
//! # Waiting
//!
//! ```text
//!  getter:   on the list of waiters ─ that sets a flag ─▶ visit each shard under its lock ─ no key ─▶ park
//!  adder:    lock the shard ─ queue the key ─ read the flag ─ unlock ─▶ set: wake the first waiter
//! ```
//!
//! The lock orders the two: if the getter's visit comes later, it finds the key; if the adder comes later, it finds the flag. So no wake-up is
//! lost, and an add costs nothing more while nobody waits. Threads and tasks are in the same list. Each queued key owes one wake-up; a
//! waiter that is woken and does not want it any more (a future that was dropped) passes it on. `src/shared/hub.rs`, `src/wait.rs`.
//!
//! # Several shards
//!
//! Each has its own lock, table, line and wheel; the key's hash says which. A getter stays with a shard for up to 64 keys, takes as many of
//! those that it has just added itself, and then goes to the one whose first key has waited longest. With priorities or groups it stays for up
//! to 5 keys, not longer than the shard has keys of the same priority, and goes to the shard whose first key has the highest priority (one
//! choice of 16 goes by age alone). So threads rarely meet at a lock, and no key is overtaken by more than a bounded number of later ones or of
//! lower priorities. `src/shared/choose.rs`.
//!
//! **Most programs need one shard**: a worker that spends a microsecond on a key does not notice the lock, which a call holds for about ten
//! nanoseconds. Where threads do little else than add and get, take 16, or twice the number of such threads. What changes with several:
//!
//! * **Order** is first in, first out within a shard. Across shards a key is overtaken by at most about `(shards + 6 * getters) * 64` keys
//!   that were queued after it, however long the queue is; twice as many if getters add keys themselves. A thread that ends counts as a
//!   getter until another one takes over its shard. Delays expire in the order of their deadlines within a shard. A key waits for at most
//!   about `4 * (shards + getters)` hand-outs of lower priorities, beside the turns that these have.
//! * **Snapshots** ([`stats`](crate::WorkQueue::stats), [`metrics`](crate::Inspect::metrics), [`len`](crate::WorkQueue::len)) read one
//!   shard after the other, so they are consistent in each alone.
//! * While [`shut_down`](crate::WorkQueue::shut_down) runs, an add may still be accepted after an add of another thread was refused.
//!   [`try_get`](crate::WorkQueue::try_get) says `Empty` if each shard was empty at some moment of the call.
//! * **A thread that the system stops in the middle of a call** keeps others from the keys of one shard; getters go on with the other
//!   shards. So [`get_timeout`](crate::WorkQueue::get_timeout) may time out while a key is queued there.
//! * **Memory**: an empty shard takes 4 KiB (12 if the queue measures), and the two hundred kilobytes that a queue keeps after a burst
//!   are per shard, too.
//!
//! # Failures and limits
//!
//! The number of failures of a key is in a record beside its slot, so a retry looks the key up once. A token bucket is one number: the
//! time at which the bucket would be full (GCRA, as for ATM networks). `src/rate_limiter/`.
//!
//! # The lock
//!
//! A mutex of the crate's own, which releases with a plain store and finds out afterwards whether somebody is parked: a section then has one
//! locked instruction where other mutexes have two. The price is a race with a thread that parks at this moment, so one parked thread always has
//! a timeout. `src/sync/lock.rs` has the argument, and loom has the model. `--cfg keyqueue_std_lock` puts `std`'s mutex in its place.
