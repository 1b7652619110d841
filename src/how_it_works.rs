//! How the queue works inside. This module has no items.
//!
//! Comments cite promises and invariants by number (P1, W1 …): [`guarantees`](crate::guarantees) has the promises, and `INVARIANTS.md` of
//! the repository has the rest, with what upholds and shows each.
//!
//! # The picture
//!
//! ```text
//!             ┌───── a shard, under one lock ──────┐           ┌ the hub, under its lock ┐
//!  add ──────▶│ table ─▶ slot: key, state ◀─ order │── owed ──▶│ waiting threads, tasks  │──▶ wake-up
//!  get ◀──────│                ▲                   │           │ drains, driver          │
//!  done ─────▶│              wheel                 │           └─────────────────────────┘
//!             └────────────────────────────────────┘
//! ```
//!
//! A *shard* is the data under one lock, and a queue has one unless it is built with [more](crate::WorkQueueBuilder::shards). The *table*
//! finds a key by its hash, the *order* says which queued key comes next, and the *wheel* has the deadlines of delayed keys. All three
//! point to the key's *slot*, which stores the key beside its state. The *hub* has what shards share, such as the waiting threads.
//!
//! Under the public types the code has two layers. The lower one, `src/machine/`, is plain data with a function for each *verb*, as `add`.
//! That layer knows no lock, thread or clock, so tests drive it step by step. Above it, `src/shared/` has a file for each kind of call,
//! which locks a shard, calls verbs, unlocks, and then does what they owe, such as a wake-up.
//!
//! # The life of a key
//!
//! ```text
//!            add                   get                          add
//!  absent ─────────▶ DIRTY ───────────────────▶ PROCESSING ──────────────▶ PROCESSING│DIRTY
//!    ▲             (queued)  ↺ add: no change    │                          │ ↺ add: no change
//!    │               ▲                           │                          │
//!    │               └───────────────────────────┼───────── done ───────────┘
//!    └──────────────────────────── done ─────────┘     (queued again, at the back)
//! ```
//!
//! The two bits are client-go's two sets: a *dirty* key must run, and a *processing* key has a worker. A key is queued exactly while it is
//! dirty and not processing.
//!
//! * **`add`** finds the key's slot or makes one, and sets the dirty bit. Unless that was set, or the key is processing and must not get a
//!   second worker, it also puts the key at the back of the order.
//! * **`get`** takes the first key of the order and marks it as processing. The [`Item`](crate::Item) points to the slot, so no later call
//!   looks the key up.
//! * **`done`**, usually by the drop of the item, queues the key again if it has become dirty, and forgets it if no bit keeps it.
//!
//! Three more bits keep a slot though its key is neither dirty nor processing: it has a delay, its failures are counted, or it is cooling
//! down.
//!
//! # Three rules that must not be broken
//!
//! 1. **A key's state and its places change in one critical section.** So each call takes effect at one moment, and no thread sees a dirty
//!    key that is not in the order, or the deadline of a cancelled delay (I1, I5, I9). The step that clears the last bit frees the slot,
//!    and no reference to it may be used afterwards (S2, S4).
//! 2. **Nothing foreign and nothing long happens under a lock.** A verb wakes no thread, drops no key, frees no memory and calls no code of
//!    the user (P17 has the exceptions). It returns what is *owed*, which the call does after the unlock (W4). Work for many keys, such as
//!    the expiry of a million delays, is cut into steps, between which the lock is free (P11).
//! 3. **Whoever waits says so first, and looks afterwards.** A getter goes on the list of the hub, which raises a flag, then visits each
//!    shard under its lock, and parks only if it finds no key. An add reads the flag in the critical section that queues its key. The lock
//!    orders the two, so either the getter finds the key or the add finds the flag, and no wake-up is lost (W1, I6). A woken getter that
//!    leaves without a key passes its wake-up on (W3).
//!
//! A thread holds one shard at a time, and meanwhile may lock the hub, but never the other way round. In a queue with groups and several
//! shards it may instead lock a stripe of the *directory*, which is the last lock that it takes.
//!
//! # Order and delays
//!
//! The order is a *line*, a list of blocks of pointers. The slot knows its key's position, so `remove` leaves a hole without a search. With
//! priorities there is a line for each, and one hand-out in 16 goes to a lower one that waits. With groups each priority has a *lane* for
//! each group, and these take turns.
//!
//! Deadlines are in a hierarchical timing wheel, whose finest slots are a nanosecond wide, and those of each further level 64 times as
//! wide. A deadline moves to a finer slot two or three times, however many keys there are. The first delay starts a thread, the *driver*,
//! which sleeps until the earliest deadline, then adds the keys whose delays have expired.
//!
//! # Several shards
//!
//! **Most programs need one shard**, because a call holds the lock for about ten nanoseconds. If threads do little but add and get, take
//! 16, or two for each such thread, up to 64.
//!
//! The key's hash chooses the shard, or that of its group if keys have groups. So all of a group is under one lock, which keeps its limit
//! exact. A directory then says in which shard a key is, because calls such as [`remove`](crate::WorkQueue::remove) cannot ask for the group
//! of a borrowed key; it takes six to twelve bytes for each key. A getter stays with one shard for up to 64 keys, or 4 with priorities or groups, and then goes to the
//! shard whose first key has waited longest or has the highest priority. What changes:
//!
//! * **Order** is first in, first out within a shard. Across shards, at most about `(shards + 6 * getters) * 64` later keys overtake a key,
//!   whatever the length of the queue: twice as many if getters add keys themselves, and `20 * 64` more if they find its shard's lock held.
//!   With priorities a key also waits for the turns of lower ones, and for at most about `4 * (shards + getters)` of their other hand-outs.
//!   A list of keys that a call takes out has at most `(shards - 1) * 64` younger keys of one priority before an older one.
//! * **Calls on all shards** visit one after the other, so [`stats`](crate::WorkQueue::stats) is consistent within a shard only,
//!   [`try_get`](crate::WorkQueue::try_get) says `Empty` if each was empty at some moment of the call, and while a
//!   [`shut_down`](crate::WorkQueue::shut_down) runs, one shard may accept an add after another has refused one.
//! * **If the system stops a thread that holds a shard**, getters go on with the others, so [`get_timeout`](crate::WorkQueue::get_timeout)
//!   may time out while that shard has a key.
//! * **Memory**: an empty shard takes about 1 KiB, or 40 with measuring and groups. After a burst it keeps some hundred KiB.
//!
//! # Why short locks?
//!
//! A fast queue is expected to be lock-free: a concurrent map, a segment queue, and an atomic step for each change of a state.
//! `WorkQueueBuilder::lock_free` is that, but not the default, for three reasons:
//!
//! * **One step does it all.** Under its lock an add finds the key, changes its state, queues it, and sees whether a getter waits. Between
//!   atomic steps other calls come in, and each such meeting needs a state of its own. Groups and strict priorities need all queued keys to
//!   stand still, so that engine has no groups and no priorities.
//! * **It is cheaper.** An uncontended lock costs one atomic read-modify-write, and the rest are plain loads and stores. Lock-free parts
//!   take several such steps, allocate a node for each new key, and have all threads write the two ends of one queue.
//! * **The parts wait as well.** `DashMap` locks a shard for each access, and `scc` a bucket. A thread that stops within `SegQueue` holds
//!   up the getter of its place, or, once in 31 pushes and gets, all that push or get. One that stops as `papaya` replaces its table holds
//!   up all that add a new key.
//!
//! The price is the longest waits: if the system stops a thread that holds the lock, all calls that need it wait. With several shards only
//! those wait that need the same one ([P21](crate::guarantees)); in the lock-free engine others wait at the few moments that its page
//! lists. [`len`](crate::WorkQueue::len), [`is_dirty`](crate::Item::is_dirty) and [`shutting_down`](crate::WorkQueue::shutting_down) take
//! no lock in any of them. `BENCHMARKS.md` compares all three on two cores; more were not measured.
//!
//! # The lock
//!
//! The crate's own mutex unlocks with a plain store, and looks afterwards whether a thread is parked, so a critical section has one atomic
//! read-modify-write where other mutexes have two. The price is a race with a thread that is about to park, and therefore one of the parked
//! threads always has a timeout (`src/sync/lock.rs`).
//!
//! # Where to look for what
//!
//! | to understand | start in `src/` at |
//! |---|---|
//! | an add, get or `done` | `machine/mod.rs` |
//! | how keys are stored | `key/slot.rs`, `table.rs` |
//! | which key comes next | `order/mod.rs` |
//! | from which shard | `shared/choose.rs` |
//! | a program that hangs | `shared/hub.rs`, `getters.rs` |
//! | delays, retries, cool-downs | `machine/delays.rs`, `rest.rs` |
//! | the wheel and the driver | `time/wheel/`, `shared/driver/` |
//! | shut-down and drains | `shared/life_cycle.rs`, `drain.rs` |
//! | limiters; workers | `rate_limiter/`; `workers/` |
//! | the lock-free engine | `free/mod.rs`, `key/word.rs` |
