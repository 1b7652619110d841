//! Every promise and every invariant, by number. This module has no items: it is a page.
//!
//! Comments, tests and models cite these numbers. `ci/guarantees.sh` fails on a cited number that is not defined here, on a number
//! that nothing cites, and on a file or test named here that does not exist. The files of the tests and of the models
//! (`loom-tests/tests/`) are in the repository, not in the package.
//!
//! *The lock* is the lock of a key's shard; a queue has one shard unless it was built with more. The *hub* is what the shards share, with a
//! lock of its own: getters that wait, the life cycle, the state of the driver. A key is *queued* while it waits for a getter, *processing* while an
//! [`Item`](crate::Item) of it is alive, and *dirty* while a hand-out is still owed for an add. A *holder* has the item, a
//! *getter* is a thread or a task in one of the get calls, and a delay *expires* when the clock reaches its deadline.
//!
//! # Promises to users
//!
//! * **P1** One holder: a key is queued at most once, and two items of one key are never alive at the same time.
//!   Upheld by `src/key/state.rs` (I1, I2). Shown by `tests/stress.rs`, `tests/traces.rs` and the model `never_two_holders`.
//! * **P2** No lost add: an accepted add is followed by a hand-out of its key that begins after the add, even if the add meets the
//!   get or the `done` of that key. What happened before the add is visible to that hand-out, and what happened before `done` is
//!   visible to the next hand-out of the key. Only a caller can end that: it takes the key out or cancels the delay that the add
//!   set; or a shut-down cuts that delay off (P12). Upheld by `src/shard/` and `src/key/state.rs` (I3, I5). Shown by
//!   `tests/stress.rs`, `tests/delays_stress.rs` and the models `coalesced_add_is_visible`, `deferred_add_is_visible` and
//!   `done_is_visible_to_next_holder`.
//! * **P3** An add of a key that is processing is remembered: the key is queued again, at the back, when its holder is done.
//!   Upheld by `src/key/state.rs` (I3). Shown by `tests/traces.rs` and the model `add_while_processing_requeues_once`.
//! * **P4** First in, first out: keys are handed out in the order in which they became ready; with several shards, those of one shard
//!   (P18), of one priority (P19) and of one group (P20). Upheld by `src/line/fifo.rs`. Shown by
//!   `tests/stress.rs`, `tests/traces.rs` and the model `coalesced_add_keeps_the_order`.
//! * **P5** Any number of producers and getters use one queue, threads and async tasks mixed, on any executor. Upheld by
//!   `src/wait.rs`. Shown by `tests/queue.rs` and the model `a_task_and_a_thread_wake_each_other`.
//! * **P6** Shut-down: adds are refused and return `Rejected`; queued keys are still handed out; a dirty key is queued again at
//!   `done`; and then every get returns that the queue is shut down. A second shut-down changes nothing, except P7.
//!   Upheld by `src/shared/life_cycle.rs` (I7). Shown by `tests/client_go.rs`, `tests/traces.rs` and the models `shutdown_wakes_all` and
//!   `shutdown_refuses_or_hands_out`.
//! * **P7** Drain: it returns when no key is queued and none is processing, or at its deadline. A later plain shut-down releases
//!   it. Any number of callers drain at a time. Upheld by `src/shared/drain.rs`. Shown by `tests/client_go.rs`,
//!   `tests/wait_idle.rs` and the models `drain_waits_until_no_key_is_queued_or_processing` and `two_drainers_both_return`.
//! * **P8** Exact delays: a delay expires when the clock is at or past the time of the call plus the delay, to the nanosecond.
//!   A key is never early, keys come in the order of their deadlines (with several shards, those of one shard), and late only by what parking and scheduling cost. Any
//!   [`Duration`](std::time::Duration) is allowed: none panics, and none expires early by wrap-around. Upheld by
//!   `src/time/wheel/` (T1 to T7) and `src/shard/expire.rs`. Shown by `tests/delays_driver.rs`, `tests/delays_large.rs`,
//!   `tests/support/wheel.rs` and the model `turn_races_turn`.
//! * **P9** A key has one delay at most. Of two, the earlier counts, or the later call, or the first, as the caller chooses; and a
//!   delay can be cancelled. Upheld by `src/shard/delays.rs` (I9). Shown by `tests/client_go.rs`, `tests/model.rs` and the
//!   model `earlier_of_two_wins`.
//! * **P10** A plain add of a delayed key does what [`DelayedAdd`](crate::DelayedAdd) says: both happen, or the add takes the
//!   place of the delay, or the add waits for it. Upheld by `src/shard/known.rs`. Shown by `tests/model.rs` and the models
//!   `add_races_expiry_independent`, `add_races_expiry_promote` and `add_races_expiry_strict`.
//! * **P11** Expired keys are queued on time while others set delays, and setting a delay never waits for the driver: each takes
//!   the lock for a bounded number of steps. Upheld by `src/shard/expire.rs` and the budget of `src/time/wheel/`. Shown by
//!   `tests/model.rs` (`the_wheel_pops_expired_entries_before_it_sorts`) and `tests/delays_stress.rs`.
//! * **P12** A shut-down cuts delays off, but does not lose them: they are counted, [`delayed_keys`] lists them, and [`take_delayed`]
//!   returns them. Upheld by `src/shard/delays.rs`. Shown by `tests/delays_driver.rs`, `tests/delayed_keys.rs` and the models
//!   `shutdown_with_parked_driver` and `first_delay_races_shutdown`.
//! * **P13** `done` belongs to the hand-out: an item is done once, dropping it is `done`, and a panic of its holder leaves no key
//!   stuck. Upheld by `src/item.rs` and `src/shared/done.rs`. Shown by `tests/queue.rs`, `tests/worker_panics.rs` and the model
//!   `requeue_after_races_shutdown`.
//! * **P14** Limiters return a delay. They never fail, and no delay overflows, is negative, or exceeds its maximum. Upheld by
//!   `src/rate_limiter/schedule.rs` and `src/rate_limiter/bucket.rs`. Shown by `tests/limits.rs`, `tests/limiter_traces.rs` and
//!   `tests/support/limiter.rs`.
//! * **P15** Memory comes back after a burst, and a key that nothing needs is dropped at once. What limiters keep for keys that
//!   are never forgotten can be bounded. Upheld by `src/line/fifo.rs`, `src/key/slab.rs`, `src/key/table.rs`, `src/time/wheel/` and
//!   `src/rate_limiter/keyed.rs` with `src/rate_limiter/keyed/table.rs`. Shown by `tests/memory.rs` and `tests/memory_bursts.rs`.
//! * **P16** An idle queue runs nothing. It has no thread until the first delay, the first task that passes by a busy shard (P21), or the
//!   first add if the observer has an [interval](crate::observe::Observer::interval). That thread is parked until a delay expires, such a
//!   task is to be woken, or a report is due. A report is due at the interval while keys are queued, processing or delayed, and once more
//!   when there are none; then no thread wakes up until the next add (W6). Upheld by `src/time/driver.rs` and `src/shared/reports.rs`. Shown by
//!   `tests/idle.rs`, `tests/delays_driver.rs` and `tests/reports.rs`.
//! * **P17** No foreign code runs under a lock, except a key's `Eq` and `Equivalent`, and its `Clone` in [`take_delayed`],
//!   [`take_where`], [`stop`], [`processing_keys`], [`delayed_keys`] and [`groups`]. Foreign code is all that the user supplies: keys, wakers,
//!   observers, limiters, hooks, predicates. Upheld by `src/shared/section.rs` (W4) and `src/rate_limiter/keyed.rs`. Shown by `tests/queue.rs`,
//!   `tests/observers.rs` and the models `wakers_run_without_the_lock`, `keys_are_dropped_without_the_lock` and
//!   `limiter_clones_and_drops_without_a_lock`.
//!
//! * **P18** With several shards, calls for keys of different shards share no lock, and no cache line that they write, unless threads or
//!   tasks wait. All other promises hold as with one, except those that say so. First in, first out within a shard; across shards a key is
//!   overtaken by at most about `(shards + 6 * getters) * 64` keys that became ready after it, or twice as many if getters add keys
//!   themselves, however long the line is (longer only while a thread that holds its shard is stopped: P21). A thread that ended in the
//!   middle of a stay counts as a getter until another one takes over its shard, so `getters` may be greater by `shards`. Upheld by
//!   `src/shared/choose.rs`, `src/shared/hub.rs` and the stamps of `src/line/fifo.rs`. Shown by `tests/shards.rs`, the unit tests of
//!   `src/shared/choose.rs`, `loom-tests/tests/shards.rs` and `loom-tests/shuttle/tests/shards.rs`.
//!
//! * **P19** Priorities: keys of a higher one are handed out first, those of one first in, first out. Of several adds of a key the highest
//!   counts: a queued key is raised, to the end of its new level, and never lowered; a key that is processing is queued at the highest of
//!   the adds meanwhile; a delayed key takes the highest of the calls that set or moved its delay. Unless the queue is strict, of any 16
//!   hand-outs of a shard while lower levels wait one goes to them, in turn, and of any 16 choices of a shard one goes by age alone,
//!   counted for the queue and not for a thread. With several shards a key waits for at most about `4 * (shards + getters)` hand-outs of lower
//!   levels, beside these turns. A key that its holder puts back keeps its priority. Upheld by `src/line/priority.rs`,
//!   `src/line/ordered.rs`, `src/shard/order.rs` and `src/shared/choose.rs`. Shown by `tests/priorities.rs`, `tests/order_model.rs`, the unit
//!   tests of `src/shared/choose.rs` and the model `a_raise_meets_a_get`.
//! * **P20** Groups: those with queued keys take turns, in each shard, of as many keys as their weights; a group that comes back joins at the
//!   end, without credit. The level comes first, and groups take turns within it. With a limit at most so many keys of a group are
//!   processing at a time; after a shut-down, getters wait while full groups have queued keys. Upheld by `src/line/fair.rs`,
//!   `src/line/ordered.rs` and `src/shared/order.rs`. Shown by `tests/groups.rs`, `tests/order_model.rs` and
//!   `loom-tests/tests/order.rs`.
//! * **P21** With several shards, a thread that stops in the middle of a call keeps other threads only from the keys of one shard: getters and
//!   the driver pass by a shard that is busy for longer than a critical section takes, and come back within 100 µs (the driver thread
//!   wakes the tasks among them; without one, they wake themselves, and yield). These calls wait for the shard: those that need it, as
//!   they name its key; `try_get` and `get_many`, if it has keys and no other shard has; calls that visit all shards (`turn`, after all
//!   others; `stats`, `shut_down`, drains, idle waits and the like); a driver that reports; and the driver of a mock clock. A thread that stops while it holds
//!   the hub's lock keeps back those that wait, and those that wake them; one that stops between taking a getter off the list and waking
//!   it, that getter; and a woken getter that does not run, the other getters, until an add comes 50 µs later (W2). Upheld by
//!   `src/shared/choose.rs`, `src/shared/get.rs` and `src/shared/driver.rs`. Shown by the tests of `src/shared/stopped.rs`.
//! * **P23** Nothing vanishes unseen: what was accepted is handed out to its end, or is in the [`Leftover`](crate::Leftover) of the stop or
//!   drain of the [`Workers`](crate::Workers): queued, processing, delayed, or refused (its retry or requeue came after the shut-down); or it was
//!   taken out or given up, by a call or with a hook that says so. A stop returns at once, and a drain within its time, whatever handlers and
//!   limits do. Upheld by `src/shared/take_where.rs` and `src/workers/run_loop.rs`. Shown by `tests/stops.rs` and the models
//!   `stop_meets_the_done_of_a_full_group`, `stop_meets_a_getter` and `panic_races_stop`.
//!
//! [`take_delayed`]: crate::WorkQueue::take_delayed
//! [`take_where`]: crate::WorkQueue::take_where
//! [`stop`]: crate::Workers::stop
//! [`processing_keys`]: crate::Inspect::processing_keys
//! [`delayed_keys`]: crate::Inspect::delayed_keys
//! [`groups`]: crate::Inspect::groups
//!
//! # Key states
//!
//! A key's state is one word of bits, changed under the lock only.
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
//! Two more bits are independent of these: DELAYED, and FAILED. Each keeps a key in the table that is absent in the picture. Upheld
//! by `src/key/state.rs`, whose unit tests make each transition; debug builds assert I1, I2, I9 and I10.
//!
//! * **I1** A key is queued at most once, and exactly while its word has DIRTY and not PROCESSING. Shown by the model
//!   `never_two_holders`.
//! * **I2** PROCESSING is set by the one get that took the key out of the line, and cleared by the `done` of its holder. Shown by
//!   `tests/stress.rs`.
//! * **I3** DIRTY and PROCESSING together mean that `done` queues the key again. Shown by the model `deferred_add_is_visible`.
//! * **I4** A key with a bit set is in the table, and a key with none is not. Shown by the models `done_races_add` and
//!   `last_bit_frees_the_slot`.
//! * **I5** The step that makes a key DIRTY and not PROCESSING pushes it, once, and owes one wake-up. Shown by the model
//!   `done_of_a_dirty_key_wakes_a_getter`.
//! * **I9** DELAYED means that the key has one entry in the wheel, with the deadline that counts. No entry is stale: when a
//!   delay is moved or dropped, the same critical section takes the old entry out. Upheld by `src/shard/delays.rs`. Shown by the
//!   models `stale_delay_is_ignored` and `cancel_races_expiry`.
//! * **I10** FAILED means that the queue has counted a failure of the key that was not forgotten since. Upheld by
//!   `src/shard/failures.rs`. Shown by the model `failed_key_is_freed_when_done_and_forgotten`.
//!
//! # Waiting and wake-ups
//!
//! Upheld by `src/shared/getters.rs` and `src/shared/get.rs`, with the list of waiters in `src/wait.rs`; W4 by `src/shared/section.rs`
//! and `src/shard/effects.rs`; W5 by `src/shared/driver.rs`; W6 by `src/shared/reports.rs`; I7 by `src/shared/life_cycle.rs`; I8 by `src/shared/driver.rs`, with the states in `src/time/driver.rs`.
//!
//! * **W1** A getter goes on the list of waiters, and after that visits each shard under its lock; it parks only if each was empty.
//!   Shown by the models `n_adds_wake_n_getters` and `a_push_meets_a_sleeper_in_each_shard`.
//! * **W2** If a key is queued, and a getter on the list has visited the key's shard before it was queued, then another getter was taken
//!   off the list to be woken and has not arrived yet; or the call that queued the key is still to take one off (`add_all` does so
//!   at its end). So a push wakes one getter, and a getter that arrives wakes the next while keys are left. Shown by the models
//!   `a_burst_wakes_every_getter_needed`, `an_overdue_getter_is_passed_over`, `overtaken_getter_is_woken_again` and
//!   `adds_to_two_shards_wake_two_getters`.
//! * **W3** A getter that was woken and leaves without a key (its time is up, its future is dropped) wakes the next in its place.
//!   Shown by the models `cancelled_getter_forwards_wakeup` and `timed_out_getter_forwards_wakeup`.
//! * **W4** No critical section wakes a thread or task, clones or drops a waker, drops a key, or calls an observer, a limiter or a
//!   predicate: what is owed is done after the lock is released. The exceptions are those of P17. Shown by the models of P17
//!   and by `observer_is_called_without_the_lock` and `watchers_are_woken_and_dropped_without_the_lock`.
//! * **W5** A task that has passed by a busy shard is woken 100 µs later at most: it has asked the driver before its poll returns, or has
//!   woken itself. While tasks have asked, the driver is being started, or runs, or is parked until it has to wake them at most; if it
//!   cannot be started, they are woken at once. Shown by the models `a_task_that_passes_by_a_busy_shard_is_woken`,
//!   `a_second_task_that_passes_by_is_woken` and `a_task_that_passes_by_a_busy_shard_learns_of_the_shut_down`.
//! * **W6** In a queue whose observer has an interval, a report is scheduled while a key is queued, processing or delayed, or the add of
//!   such a key has not returned and will schedule it. A report schedules none *first*, and *then* reads the numbers of each shard
//!   under its lock: if keys are left, it schedules the next. An add looks whether a report is scheduled *after* its critical section.
//!   A scheduled report wakes the driver as an earlier delay does (I8). After the shut-down, delayed keys do not count.
//!   Shown by `tests/reports.rs` and the models `the_last_report_meets_an_add` and `an_add_wakes_the_driver_for_a_report`.
//! * **I6** No wake-up is lost between a getter's last look and its park: W1, seen from the side of the add, which reads the flag of the
//!   waiting getters in the critical section that queues the key. Shown by
//!   `loom-tests/tests/waiting.rs`.
//! * **I7** The shut-down sets its flag and takes all getters off the list, to be woken, in one critical section of the hub; then it
//!   enters each shard once. A critical section that sees the flag refuses adds, and after the return of the shut-down all see it. A
//!   getter that has found each shard empty, and has seen the flag in each, returns. Shown by the models `shutdown_wakes_all` and
//!   `a_key_added_before_the_shut_down_is_handed_out`.
//! * **I8** The driver parks until a time that is not later than the earliest deadline of any shard. It publishes the next deadline of a
//!   shard in the critical section in which it found nothing expired there. A call that sets an earlier one counts it in the hub, in the
//!   same critical section, and wakes the driver if it is parked for longer; and the driver parks only if none was counted since it
//!   began to visit the shards. The same holds for a getter that does the driver's work because no thread can be started. Shown by
//!   the models `earlier_delay_rearms_driver`, `moved_delay_rearms_driver`, `a_parked_getter_replaces_the_driver` and
//!   `an_earlier_delay_in_the_other_shard_rearms_the_driver`.
//!
//! # Slots
//!
//! The slots hold the keys, and the table, the line and the items point to them. Most `unsafe` code of the crate rests on these.
//! Upheld by `src/key/slab.rs`, `src/key/chunk.rs` and `src/key/slot.rs`; the steps that clear a bit and vacate the slot (S2) are in `src/key/table.rs`.
//!
//! * **S1** A slot is *taken* or *vacant*, by a bit of its chunk. Its key is initialised exactly while the slot is taken, and does
//!   not change meanwhile, nor does its hash. Shown by the models `held_key_keeps_its_slot` and `adds_do_not_write_the_held_key`.
//! * **S2** A slot is taken while its word has a bit set (I4). The step that clears the last bit vacates it, and does not use it
//!   afterwards. Shown by the models `vacated_slot_is_reused` and `delayed_key_keeps_its_slot`.
//! * **S3** A slot never moves. Its chunk is freed only when all its slots are vacant, or with the whole queue. Shown by the model
//!   `sweep_races_add`.
//! * **S4** There is one `Queued` for each queued key, in the line of the queue that has the key, or in the step that moves it. There
//!   is one `Claimed` for each processing key, in an item or in the call that moves it; both keep the queue alive. Neither is `Copy`;
//!   the step that ends the state consumes the token. (Of two tokens from `Claimed::duplicate`, at most one is consumed.) So the slot of
//!   a token is taken (S2), and its chunk is alive (S3). Shown by the models
//!   `never_two_holders` and `held_key_keeps_its_slot`.
//! * **S5** Each slot knows its index in its chunk, so the place of the chunk's head follows from the place of the slot. The pointers to
//!   both are made from the pointer to the whole allocation. Upheld by `src/key/chunk.rs`, and shown by its unit test
//!   `the_head_is_found_from_each_slot`.
//! * **S6** A chunk is in the open list exactly while the slab has it and one of its slots is vacant. Shown by the models
//!   `sweep_races_add` and `last_done_races_add`.
//!
//! # Line
//!
//! `src/line/fifo.rs` upholds P4, and T6 for the blocks between its first and its last. Its unit test compares it with a plain list.
//!
//! # Order
//!
//! * **O1** A shard has an order only after the queue's flag ORDERED was set, which sends the hot calls to their slow paths. Upheld by
//!   `src/shared/order.rs`. Shown by the model `the_first_priority_meets_plain_calls`.
//! * **O2** While keys move from the line to the order, all queued keys have the priority NORMAL, and adds go to the line. Upheld by
//!   `src/shard/order.rs`. Shown by its unit test and the same model.
//! * **O3** A call that gives a priority makes its step after the keys have moved. Upheld by `src/shared/order.rs`. Shown by the model
//!   `two_first_priorities_meet`.
//!
//! # Table
//!
//! * **H1** A bucket of a new array is written before it is read: when a chain of the old array moves, all chains of the new array
//!   that come from it are written, and until then the old array is used for their keys. Upheld by `src/key/table.rs`. Shown by
//!   its unit test `keys_are_found_while_the_buckets_change`.
//! * **H2** Each slot in a chain is taken: an insert links it after it was taken, and a remove unlinks it before it is vacated.
//!   Upheld by `src/key/table.rs`. Shown by the same test and by AddressSanitizer.
//!
//! # Wheel
//!
//! The timing wheel holds the deadlines. An entry is in the slot that its deadline chooses, and a slot is opened when something in
//! it has expired: then its entries move to finer slots. Upheld by `src/time/wheel/`. Shown by `tests/wheel.rs`, and by
//! `tests/support/wheel.rs`, which compares the wheel with a sorted map under proptest and a fuzzer.
//!
//! * **T1** An entry is in the slot that its deadline and the wheel's time choose, or in one of the other lists:
//!   expired entries, and three lists of entries that are on their way from an opened slot to finer ones.
//! * **T2** All entries of a level come before those of higher levels, and all of a slot before those of later slots. So the
//!   first slot that is not empty has the earliest entry. (This follows from T1.)
//! * **T3** The `earliest` of a slot is not later than any deadline in it. It may be too early after a removal.
//! * **T4** Lists are first in, first out, even while a slot is opened: equal deadlines come out in the order of their inserts.
//! * **T5** The wheel's time never goes back, and never enters a slot that has entries without opening it.
//! * **T6** Every block in a list has a live entry. So removed entries take memory only in blocks with live ones.
//! * **T7** The entries that an opened slot has put off (the lists `DEFERRED` and `BACKLOG`) expire after the near horizon.
//!
//! # Lock
//!
//! * **L1** The thread that changes `locked` from false to true owns the lock and its data, until it stores false or hands the lock
//!   off to the next thread that unparks. Upheld by `src/sync/lock.rs`. Shown by `loom-tests/tests/lock.rs`.
//!
//! # Limiters
//!
//! They uphold P14, P15 and P17, and have no numbers of their own.
//!
//! # Linearization points
//!
//! A call of this table takes effect at one moment between its start and its return. In the code, comments that say
//! "Linearization point" mark these moments. "A critical section" is one of the lock of the key's shard, if nothing else is said. A queue
//! with several shards is linearizable for the calls on one key; the rows of `get`, `shut_down`, the waits and the numbers hold with one.
//!
//! | call | takes effect in |
//! |---|---|
//! | `add` | the critical section that queues the key, marks it dirty, finds it dirty, or refuses it |
//! | `add_after`, `add_with`, `add_rate_limited` | the same, or the critical section that sets or moves the delay, or finds that the earlier one stands. A limiter of your own is called before that |
//! | `get`, `try_get`, `get_timeout`, `get_async` | the critical section that takes the first key out of the line; without a key, the last one that found no key: empty, shut down, or the time is up |
//! | `done`, the drop of an item, `succeed`, `give_up` | the critical section that ends the hand-out, and queues the key again if it is dirty. A limiter of your own is called before that |
//! | `retry`, `requeue_after`, `requeue_with` | the critical section that sets the delay *and* ends the hand-out; after a shut-down the one that refuses the add, and a second one ends the hand-out. A limiter of your own is called before that |
//! | `cancel` | the critical section that takes the delay out, or finds none |
//! | the expiry of a delay, by the driver or by `turn` | for each key, its add in the critical section that takes it out of the wheel |
//! | `shut_down` | the critical section of the hub that sets the flag |
//! | the return of a drain or of `wait_idle` | the critical section that found nothing left, a later shut-down (drains), or that the time is up |
//! | `forget`, `num_requeues` | if the queue counts the failures, the critical section that reads or clears their number; with a limiter of your own, its call |
//! | `processing_len`, `delayed_len` | the critical section that reads |
//! | `shutting_down`, `until_shutting_down` | the load of the flag; the critical section of the hub in the poll that is ready |
//! | `Item::is_dirty` | its load of the key's word, without the lock |
//! | `until_dirty` | the critical section of the poll that is ready |
//! | `MockClock::advance` | the atomic update of the time; drivers are woken after it |
//! | `Bucket`: `when`, `reserve`, `try_acquire`, `Reservation::cancel` | the compare-and-swap of its word; a refusal, the load or failed compare-and-swap before it |
//! | limiters that count: `when`, `forget`, `num_requeues` | the last critical section of the lock that guards this key's count |
//!
//! # What is not linearizable
//!
//! These calls are several steps. Each step takes effect at one moment, and other calls may take effect between the steps.
//!
//! * `add_all`: each add is one step.
//! * `stats` and `metrics`: the numbers of keys and events are of one moment, a second step reads how many wait. With several shards,
//!   each shard is one step.
//! * `get_many`: 256 keys a step. The getter waits for the first key as `get` does.
//! * `turn`: about a hundred keys a step, up to the time that the clock showed when the call began.
//! * `take_delayed`: about a hundred keys a step, so it may find or miss a delay that another thread sets meanwhile. And
//!   `take_where` and `stop`: each key is taken in one step, if it is still where the call has seen it.
//! * Drains: the shut-down is one step, the return another.
//! * `processing_keys`, `delayed_keys` and `groups` visit the keys some hundred at a time, and `shrink_to_fit` does its work in
//!   steps, too.
//! * `len` and `is_empty` read a number without the lock. It is the length of the line after some critical section, but it may
//!   be out of date when the call returns, it publishes nothing, and no conclusion about other calls follows from it.
//! * `MaxOf` calls one limiter after the other.
