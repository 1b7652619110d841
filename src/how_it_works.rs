//! How the queue works inside: the page for the curious. This module has no items.
//!
//! You can use the crate without this page. Start here to change the crate, or to debug a program that hangs. The files that the page names
//! have the details. `INVARIANTS.md` has the invariants by number.
//!
//! # A call
//!
//! ```text
//!  add(key) ─ hash ─▶ shard ─ lock ─┬─ find the key's slot in the table, or make one
//!                                   ├─ change its state, and queue it if it must be handed out
//!                                   ├─ if it owes a wake-up, take the getter from the hub
//!                                   └─ unlock ─▶ wake it, call the observer, drop keys
//! ```
//!
//! A *shard* is the data under one lock. A queue has one shard unless it is [built with more](crate::WorkQueueBuilder::shards). The *hub*
//! is what the shards share: the list of waiting getters, and the life cycle of the queue. A critical section of an add takes 5 to 15 ns.
//! No call holds the lock for long: a call with much to do, such as the expiry of a million delays, takes the lock many times.
//!
//! What a lock guards is a *machine*: plain data, with a function for each verb (`add`, `get`, `done` …). It knows no lock, thread, waker
//! or clock. It returns its answer and what is *owed*: wake-ups, or memory to be freed after the lock. `src/machine/`. `src/shared/` has
//! one file per kind of call: it takes the lock, calls a verb, and does what is owed.
//!
//! # A key
//!
//! The queue stores a key once, in a *slot* with its hash and one word of state. The word has a bit for each of client-go's two sets:
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
//! Three more bits stand for a delay, for counted failures and for a key that cools down. Each keeps the slot, even if the key is not queued
//! and not processing. Up to
//! 63 slots are a chunk. The queue frees an empty chunk, so its memory comes back after a burst. The table is an array of chains that run
//! through the slots. When it grows, each call moves some chains, so no call pays for all of them. `src/key/`.
//!
//! # The order
//!
//! ```text
//!  without priorities and groups: a line                with groups: lanes, one for each group of a priority
//!
//!   ┌───────────────┐ ┌───────────────┐                  HIGH    new: tenant-2   old: ─
//!   │     ●  ●    ● │ │ ● ● ●         │                  NORMAL  new: ─          old: tenant-3 ─ tenant-1 ─ tenant-2
//!   └───────────────┘ └───────────────┘                                                └ key key key
//!     get ▲      hole       add ▲                        LOW     new: tenant-1   old: ─
//!
//!  with priorities: a line for each
//! ```
//!
//! A line is a list of blocks of pointers. A get takes the next one. A slot has the position of its key. So `remove`, and an add that
//! raises the priority, find the key at once, and leave a hole. A bitmap says which priorities have keys. The first call that gives a
//! priority makes the line that of NORMAL, in one step. The groups of a priority take turns: a group that gets its first key comes soon
//! (*new*), and then in turn (*old*). `src/order/`.
//!
//! # Delays
//!
//! Deadlines are in a hierarchical timing wheel. A slot of the lowest level is a nanosecond long, of the next level 64, then 64 times 64. A
//! deadline goes to the level of the highest base-64 digit in which deadline and now differ. When an entry of its slot has expired, the
//! deadline moves to a finer slot. It moves two or three times, however many keys there are. The first delay starts a thread, the *driver*,
//! which parks until the time of the first slot. The driver also reports metrics, at the observer's
//! [interval](crate::observe::Observer::interval). (With several shards it also wakes tasks that have found a shard's lock held for long.)
//! If the system cannot start the thread, the threads that wait do its work. With [`Driver::Manual`](crate::Driver::Manual), only calls of
//! `turn` do it. `src/time/wheel/`, `src/shared/driver/`.
//!
//! # Waiting
//!
//! ```text
//!  getter:  go on the list (sets a flag) ─▶ visit each shard under its lock ─ no key ─▶ park
//!  adder:   lock the shard ─ queue the key ─ read the flag ─ unlock ─▶ if set: wake a waiter
//! ```
//!
//! The lock orders the two. If the getter comes later, it finds the key. If the adder comes later, it finds the flag. So no wake-up is
//! lost, and an add costs nothing more while no getter waits. Threads and tasks are in the same list. Each queued key owes one wake-up. A
//! woken waiter that leaves without a key, such as a dropped future, passes the wake-up on. `src/shared/hub.rs`, `src/wait.rs`.
//!
//! # Several shards
//!
//! Each shard has its own lock, table, order and wheel. The key's hash chooses the shard. A getter stays with a shard for up to 64 keys.
//! Then it takes up to 64 of the keys that it has just added itself. Then it goes to the shard whose first key has waited longest. With
//! priorities or groups, a getter stays for up to 4 keys. Then it goes to the shard whose first key has the highest priority; or, once in
//! 16 hand-outs of all shards, it takes a key of a lower priority, wherever that is. So threads rarely meet at a lock. A bounded number of
//! later keys, and of keys of lower priorities, overtakes a key. `src/shared/choose.rs`, `src/shared/lower.rs`.
//!
//! **Most programs need one shard.** A call holds the lock for about ten nanoseconds, and a worker that spends a microsecond on a key does
//! not notice it. If threads mostly add and get, take 16 shards, or twice as many as such threads, up to 64: there are no more. Each
//! shard still has a lock. With several shards, this changes:
//!
//! * **Order** is first in, first out within a shard. Across shards, at most about `(shards + 6 * getters) * 64` later keys overtake a key,
//!   or twice as many if getters add keys themselves, and `20 * 64` more if they find its shard's lock held. The length of the queue does
//!   not matter. A thread that ends counts as a getter until another one takes over its shard. Within a shard, delays expire in the order
//!   of their deadlines. A key waits for the turns of lower priorities, and for at most about `4 * (shards + getters)` of their other
//!   hand-outs; these turns are as frequent as with one shard. A list of keys that a call takes out ([`take_where`](crate::WorkQueue::take_where), [`stop`](crate::Workers::stop), drains)
//!   has them by priority, and of one priority at most `(shards - 1) * 64` younger keys before an older one; where groups take turns in it,
//!   of one turn.
//! * **Snapshots** ([`stats`](crate::WorkQueue::stats), [`metrics`](crate::Inspect::metrics), [`len`](crate::WorkQueue::len)) read one
//!   shard after the other. They are consistent within a shard only.
//! * While [`shut_down`](crate::WorkQueue::shut_down) runs, one shard may still accept an add after another has refused one.
//! * [`try_get`](crate::WorkQueue::try_get) says `Empty` if each shard was empty at some moment of the call.
//! * **If the system stops a thread in the middle of a call**, other threads cannot take the keys of the shard that this thread has locked.
//!   Getters go on with the other shards. So [`get_timeout`](crate::WorkQueue::get_timeout) may time out while a key is queued in the
//!   locked one.
//! * **Memory**: an empty shard takes about 1 KiB, 8 more if the queue measures, and 31 more with groups. After a burst each shard keeps
//!   about two hundred kilobytes, or four hundred if keys had delays or failures. Priorities add up to six hundred, and groups about half a
//!   byte for each key of the burst.
//!
//! # Why short locks?
//!
//! **What one would expect** of a fast queue is parts without locks: a concurrent map from keys to states, a queue of segments for the
//! order, an atomic read-modify-write for each change of a state, and a list of parked threads.
//!
//! ```text
//!  lock-free parts                                      here
//!
//!  map ──▶ node: QUEUED ⇄ PROCESSING ⇄ AGAIN ─▶ GONE    shard, under its lock: table ─▶ slot ◀─ order
//!  segment queue of nodes, for all threads              another shard, with a lock of its own
//!  one step each: find, compare and swap, push          one step for all: lock, plain changes, unlock
//! ```
//!
//! Two such queues are among the rivals of the benchmarks, with `papaya` and with `scc` for the map, and `SegQueue` for the order
//! (`benches/src/rivals.rs`). They only deduplicate. In them an add and a `done` may meet between two steps, so a node that leaves the map
//! needs a state for it. A delay, a priority, or a drain that returns each key once would need more such states. They allocate a node for
//! each key that comes, and all threads write the head and the tail of the one `SegQueue`.
//!
//! **What is here**: an uncontended lock costs one atomic read-modify-write, about five nanoseconds, and the rest of a critical section is
//! plain loads and stores. An add takes one step to find the key, change its state, put it in the order and see whether a getter waits.
//! With several shards threads rarely meet at a lock. If a getter finds a lock held, its holder may be off its core. So it takes a key of
//! another shard, and waits for the lock only if no other shard has keys, or if that shard has been passed by often enough (P18). With one
//! shard a thread that finds the lock held stays away from it for some microseconds.
//!
//! **Throughput and tail**, Intel Xeon, 2 cores, 26 November 2026. A turn is a get, an add of the same key, and `done`:
//!
//! | | 16 shards | 1 shard | papaya | scc | DashMap | parking_lot mutex |
//! |---|---:|---:|---:|---:|---:|---:|
//! | ring of 1 thread, ns a turn | 53.0 | 43.3 | 90.7 | 96.5 | 117 | 79.4 |
//! | ring of 2 threads | 36.2 | 61.1 | 120 | 127 | 185 | 157 |
//! | ring of 64 threads | 39.1 | 69.9 | 111 | 126 | 170 | 186 |
//! | 32 threads that time each call, ns a turn | 131 | 335 | 298 | 337 | 319 | 621 |
//! | p99.9 of a get, µs | 2.5 | 12.5 | 0.61 | 0.63 | 0.95 | 414 |
//! | p99.9 of an add | 0.31 | 9.0 | 0.33 | 0.37 | 0.47 | 360 |
//! | p99.9 of a `done` | 0.34 | 9.3 | 0.96 | 0.98 | 1.1 | 367 |
//! | p99.9 of a turn | 2.7 | 15.6 | 1.5 | 1.7 | 8.7 | 569 |
//! | 2 threads beside 4 `SCHED_IDLE` threads: p99.9 of a get | 0.85 | 12.0 | 0.70 | 0.61 | 0.67 | 15 |
//! | p99.9 of a turn | 1.1 | 14.3 | 1.9 | 1.5 | 1.4 | 39 |
//!
//! (`benches/TABLES.md`, "Tails", has all percentiles. On AMD EPYC, 24 November 2026, a turn by 32 threads took 84 ns with 16 shards and 144
//! with papaya, p99.9 of a turn was 0.65 and 0.62 µs, and of a get 0.56 and 0.25.) With 16 shards the tail of an add and of a `done` is
//! shorter than that of the lock-free parts. The tail of a get by 32 threads is two to four times as long, that of a turn up to twice. With
//! one shard the tail is 7 to 16 microseconds: a contender stays away from the lock for about five, two or three times. A program
//! that needs the tail takes 16 shards.
//!
//! **What is lock-free**: [`len`](crate::WorkQueue::len), [`is_empty`](crate::WorkQueue::is_empty) and
//! [`shutting_down`](crate::WorkQueue::shutting_down) load numbers that the shards and the hub publish. [`is_dirty`](crate::Item::is_dirty)
//! loads the key's word of state. A [`Bucket`](crate::rate_limiter::Bucket) is one word, and changes by compare-and-swap. (The clock that
//! it reads takes no lock either.) Calls that add, take, finish or list keys take the lock of a shard.
//!
//! **What a stopped thread can hold up.** The system may stop a thread while it holds a lock. [P21](crate::guarantees) lists each case.
//! With one shard, every call that needs the lock waits. With several, calls that name a key of that shard wait, and calls that visit all
//! shards. Getters and the driver pass by it. A thread that stops while it holds the hub's lock keeps getters from parking and from being
//! woken. In the rivals, too, a stopped thread holds others up. In `scc` these are all that need the bucket that it has locked. In
//! `SegQueue` this is the getter of the place that the thread has reserved and not filled; and once in 31 pushes, when it is to link the
//! next segment, all threads that push. And the key that it has taken out of the queue waits in each design.
//!
//! **What was not measured**: more than two cores. For them there is only a model (`benches/TABLES.md`, "Shards"). On a bigger machine
//! `cargo run --release --manifest-path benches/Cargo.toml --bin shards` prints the tables of turns and tails in three minutes.
//!
//! # Failures and limits
//!
//! The number of a key's failures is in a record next to its slot, so a retry looks the key up once. A token bucket is one number: the time
//! at which the bucket will be full (GCRA, as for ATM networks). `src/rate_limiter/`.
//!
//! # The lock
//!
//! The crate has a mutex of its own. It unlocks with a plain store, and looks afterwards whether a thread is parked. So a critical section
//! has one locked instruction, where other mutexes have two. The price is a race with a thread that parks at this moment. Therefore one
//! parked thread always has a timeout. `src/sync/lock.rs` has the argument, and loom has the model. The feature `std-lock` puts `std`'s
//! mutex in its place.
