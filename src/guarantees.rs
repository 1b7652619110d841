//! Every promise and every invariant, by number. This module has no items: it is a page.
//!
//! Comments, tests and models cite these numbers. `ci/guarantees.sh` checks that each cited number stands here, that something cites each
//! number, and that each file and test named here exists. The tests and the models (`loom-tests/tests/`) are in the repository, not in the
//! package.
//!
//! A *shard* holds keys under one lock; a queue has one shard unless it was built with more. *The lock* is the lock of the key's shard. The
//! shards share the *hub*, which has a lock of its own: the waiting getters, the life cycle, the state of the driver. A *getter* is a
//! thread or a task in one of the get calls. A *holder* has the [`Item`](crate::Item) of a key. A key is *queued* while it waits for a
//! getter, and *processing* while its item is alive. It is *dirty* while the queue owes a hand-out for an add. A delay *expires* when the
//! clock reaches its deadline. The *driver* is the thread that adds keys when their delays expire. The *order* of a shard has its queued
//! keys.
//!
//! # Promises to users
//!
//! * **P1** One holder: a key is queued at most once, and two items of one key are never alive at the same time.
//!   Upheld by `src/key/state.rs` (I1, I2). Shown by `tests/stress.rs`, `tests/traces.rs` and the model `never_two_holders`.
//! * **P2** No lost add: after an accepted add, a hand-out of its key begins, even if the add meets a get or the `done` of that key. This
//!   hand-out sees what happened before the add. Each hand-out sees what happened before the last `done` of its key. There are three
//!   exceptions: a caller takes the key out, a caller cancels the delay that the add set, or a shut-down cuts this delay off (P12). A
//!   holder's newest decision (P29) is no exception: it drops no add of a caller, not even one that waits for the retry which it drops.
//!   Upheld by `src/machine/` and `src/key/state.rs` (I3, I5). Shown by `tests/stress.rs`, `tests/delays_stress.rs` and the models
//!   `coalesced_add_is_visible` and `done_is_visible_to_next_holder`.
//! * **P3** An add of a key that is processing is remembered: the key is queued again, at the back, when its holder is done.
//!   Upheld by `src/key/state.rs` (I3). Shown by `tests/traces.rs` and `tests/stress.rs`.
//! * **P4** First in, first out: keys are handed out in the order in which they became ready. With several shards this holds for the keys
//!   of one shard (P18), with priorities for one priority (P19), with groups for one group (P20). Upheld by `src/order/line.rs`. Shown by
//!   `tests/stress.rs` and `tests/traces.rs`.
//! * **P5** Any number of producers and getters use one queue, threads and async tasks mixed, on any executor. Upheld by
//!   `src/wait.rs`. Shown by `tests/delays_stress.rs` and the model `an_unpolled_task_holds_up_no_getter`.
//! * **P6** Shut-down: the queue refuses adds, which return `Rejected`. It still hands out queued keys. A dirty key is queued again at
//!   `done`. Then every get returns that the queue is shut down. A second shut-down only releases drains (P7). Upheld by
//!   `src/shared/life_cycle.rs` (I7). Shown by `tests/client_go.rs`, `tests/traces.rs` and the models `shutdown_wakes_all` and
//!   `parked_getter_gets_the_last_key`.
//! * **P7** Drain: it returns when no key is queued or processing, or at its deadline. A later plain shut-down releases it. Any number of
//!   callers may drain at a time. Upheld by `src/shared/drain.rs`. Shown by `tests/client_go.rs`, `tests/wait_idle.rs`,
//!   `tests/against_reference.rs` and the model `drain_and_async_drain_both_return`.
//! * **P8** Exact delays: a delay expires when the clock is at or past the time of the call plus the delay, to the nanosecond. A key is
//!   never early. It is late by the time that it takes to wake a thread, and by what the driver has to do before: keys that expire
//!   together, sorts (P11), a report (W6). The keys of a shard come in the order of their deadlines. Any [`Duration`](std::time::Duration)
//!   is allowed: none panics, and none wraps around and expires early. Upheld by `src/time/wheel/` (T1 to T7) and `src/machine/expire.rs`.
//!   Shown by `tests/delays_driver.rs`, `tests/delays_large.rs`, `tests/support/wheel.rs` and the model `turn_races_turn`.
//! * **P9** A key has at most two delays, a caller's and a holder's, each with its own deadline and priority. When one expires, the other
//!   goes on, unless it is past as well. A caller's call chooses: of the two deadlines of callers the earlier one counts, or the new delay replaces both, or an old
//!   one stays. A caller can cancel both. Lists, counts and calls that take delays out have one entry a key, the earlier one. Upheld by
//!   `src/machine/delays.rs` and `src/machine/later.rs` (I9). Shown by `tests/traces.rs`, `tests/against_reference.rs`,
//!   `tests/newest_decision.rs` and, with threads, `tests/stress.rs`.
//! * **P10** A plain add of a key that waits for a retry does what [`DelayedAdd`](crate::DelayedAdd) says: both take effect, or the add
//!   replaces the retry, or the add waits for the retry. An add of a key with another delay takes effect, and the delay stays. Upheld by
//!   `src/machine/delays.rs`. Shown by `tests/against_reference.rs`, `tests/newest_decision.rs` and, with threads, `tests/stress.rs`.
//! * **P11** The driver queues expired keys on time while other threads set delays. With the real clock, getters also queue them, at most
//!   16 in a critical section, when they have the time anyway or park: so a key need not wait until the driver gets a core. A call that
//!   sets a delay never waits for the driver. Each takes the lock for a bounded number of steps. Upheld by `src/machine/expire.rs` and the
//!   budget of `src/time/wheel/`. Shown by `tests/wheel.rs` (`the_wheel_pops_expired_entries_before_it_sorts`) and
//!   `tests/delays_stress.rs`.
//! * **P12** A shut-down cuts delays off, and loses none: the queue counts them, [`delayed_keys`] lists them, and [`take_delayed`] returns
//!   them. Upheld by `src/machine/expire.rs` and `src/machine/delays.rs`. Shown by `tests/against_reference.rs` and the models
//!   `shutdown_with_parked_driver` and `first_delay_races_shutdown`.
//! * **P13** `done` belongs to the hand-out: an item is done once, and dropping it is `done`. If a holder panics, its key is not stuck.
//!   If other code of the user panics in a call, the call has changed nothing, or has taken effect, or catches the panic: the
//!   docs of the call say which. Upheld by `src/item.rs` and `src/shared/done.rs`. Shown by `tests/queue.rs`, `tests/worker_panics.rs`,
//!   `tests/against_reference.rs` and the model `requeue_after_races_shutdown`.
//! * **P14** A limiter returns a delay, and never fails. No delay overflows, is negative, or exceeds its maximum. Upheld by
//!   `src/rate_limiter/schedule.rs` and `src/rate_limiter/bucket.rs`. Shown by `tests/limits.rs`, `tests/limiter_traces.rs` and
//!   `tests/support/limiter.rs`.
//! * **P15** The queue frees its memory after a burst, and drops a key at once when nothing needs it. A limiter can bound the memory for
//!   keys that are never forgotten. Upheld by `src/order/`, `src/key/arena.rs`, `src/key/table.rs`, `src/time/wheel/` and
//!   `src/rate_limiter/keyed.rs`. Shown by `tests/memory.rs` and, key by key, by `tests/against_reference.rs`.
//! * **P16** An idle queue runs nothing. It has no thread until the first delay, the first task that passes by a busy shard (P21), or the
//!   first add if the observer has an [interval](crate::observe::Observer::interval). That thread is parked until a delay expires, such a
//!   task is to be woken, or a report is due. A report is due at the interval while keys are queued, processing or delayed, and once more
//!   when there are none. Then no thread wakes up until the next add (W6). Upheld by `src/shared/driver/states.rs` and `src/shared/reports.rs`.
//!   Shown by `tests/idle.rs`, `tests/delays_driver.rs` and `tests/reports.rs`.
//! * **P17** No foreign code runs under a lock. Foreign code is the user's: keys, wakers, observers, limiters, hooks, predicates. The
//!   exceptions are the function of [`Clock::from_fn`](crate::Clock::from_fn), a key's `Eq` and `Equivalent`, and its `Clone` in
//!   [`take_delayed`], [`take_where`], [`stop`], [`processing_keys`], [`delayed_keys`] and [`groups`]. Upheld by `src/shared/section.rs`
//!   (W4) and `src/rate_limiter/keyed.rs`. Shown by `tests/against_reference.rs`, where all code of the user takes
//!   the locks, by `tests/observers.rs` and the model `limiter_clones_and_drops_without_a_lock`.
//!
//! * **P18** With several shards, calls for keys of different shards share no lock, and write no common cache line, unless threads or tasks
//!   wait. The other promises hold as with one shard; a promise that differs says so. Within a shard keys are first in, first out. Across
//!   shards, at most about `(shards + 6 * getters) * 64` keys that became ready later overtake a key. If getters add keys themselves, the
//!   bound is twice as high. If they find the lock of the key's shard held, it is higher by `20 * 64`. The length of the queue does not
//!   matter. The bound does not hold while a thread that holds the key's shard is stopped (P21), nor until a getter finds its lock free. A
//!   thread that ended while it stayed with a shard counts as a getter until another one takes over the shard; so `getters` may be greater
//!   by `shards`. In the list of a call that takes queued keys out ([`take_where`], [`stop`], drains), at most `(shards - 1) * 64` keys of
//!   the same priority, and where groups take turns of the same turn, that became ready later come before a key. Upheld by `src/shared/choose.rs`, `src/shared/hub.rs`, `src/shared/take_where.rs` and the stamps of `src/order/line.rs`. Shown by
//!   `tests/shards.rs`, `tests/take_where.rs`, `tests/against_reference.rs`, `tests/delays_stress.rs`, the unit tests of `src/shared/choose.rs` and `loom-tests/tests/shards.rs`.
//!
//! * **P19** Priorities: a key of a higher priority is handed out first. Keys of one priority are a level, first in, first out. Of several
//!   adds of a key the highest priority counts. An add may raise a queued key, to the end of its new level, and never lowers it. A key that
//!   is processing is queued at the highest priority of the adds meanwhile. A key whose delay expires takes the highest priority of the
//!   calls that set or moved this delay. A key that its holder puts back keeps its priority. In a strict queue a level waits as long as a
//!   higher one has keys that a getter may take. Else one of 16 hand-outs of the whole queue goes to the lower levels that wait, in turn. (A level is
//!   lower if a higher one has keys that a getter may take, in any shard. With groups, the group whose turn it is in this level gives the
//!   key.) While groups are full, one level of a full group is skipped at each such turn. When that group has room, the next hand-out is of
//!   a skipped level of it, or of its highest level if lower ones have filled the group twice: of that which keys of other levels have
//!   passed most often, or a drawn one of several. So each level of a group comes again and again, however slow its handlers are (of up to
//!   64 that wait in a level); and at most two of 16 hand-outs go to lower levels, and one more to the highest of a group. With any number
//!   of shards, the last of `n` keys of lower levels that wait is handed out within `16 * (n + 1) + 4 * (shards + getters)` hand-outs of
//!   the whole queue, counted from its add (the last of three within `64 + 4 * (shards + getters)`), unless the queue is strict, a group is
//!   full, or a thread that holds its shard is stopped (P21). With several shards, a getter takes at most 4 keys from a shard before it
//!   looks at the first keys of all shards. But for the turns of lower levels, a key waits for at most about `4 * (shards + getters)` of
//!   their hand-outs. Upheld by `src/machine/add.rs`, `src/order/levels.rs`, `src/order/rotation.rs`, `src/shared/lower.rs` and
//!   `src/shared/choose.rs`. Shown by `tests/priorities.rs`, `tests/against_reference.rs`, the unit tests of `src/shared/lower.rs` and
//!   `src/shared/choose.rs` and, with threads, `tests/stress.rs`.
//! * **P20** Groups: in each level of a shard, the groups with queued keys take turns. In its turn a group gives as many keys as its
//!   weight. A group that gets its first key there is new: it comes before those that have had turns, which still get one of 16 hand-outs
//!   of the level. A group without keys is remembered until its next turn would have come: if it gets a key before, it goes to the end. (If
//!   more than 128 are remembered in all, some are forgotten: in a level where they are more than twice as many as have keys, and in one
//!   where none has.) With a limit, at most so many keys of a group are processing at a time; a group whose turn comes while it is full
//!   comes next when it has room. After a shut-down, getters wait while full groups have queued keys. Upheld by `src/order/groups.rs`,
//!   `src/order/seats.rs` and `src/order/skipped_turns.rs`. Shown by `tests/groups.rs`, `tests/against_reference.rs` and
//!   `loom-tests/tests/order.rs`.
//! * **P21** With several shards, a thread that stops in the middle of a call keeps other threads only from the keys of one shard. While
//!   other shards have keys, getters pass by a lock that is held. If no other shard has keys, they wait for it as long as critical sections
//!   take. Then getters, and the driver, pass by it, and come back within 100 µs. The driver thread wakes the tasks among these
//!   getters; where it cannot be started, a task waits for the lock in its poll, as an add of a key of that shard does. A getter
//!   that gives a lock back does not wait for a thread that has stopped while it was about to park for this lock. Upheld by
//!   `src/shared/choose.rs`, `src/shared/get.rs`, `src/shared/driver/mod.rs` and `src/sync/lock.rs`. Shown by the tests of
//!   `src/shared/stopped.rs` and of the lock.
//!
//!   | a thread stops | these wait | until |
//!   |---|---|---|
//!   | while it holds the lock of a shard | calls that name a key of the shard | it goes on |
//!   | | `try_get` and `get_many`, if only this shard has keys | it goes on |
//!   | | calls that visit all shards: `stats`, `shut_down`, drains, idle waits, `turn` (at its end) and the like | it goes on |
//!   | | the driver of a mock clock, and a driver that reports | it goes on |
//!   | | the poll of a task that has found no key in the other shards, if the queue has no driver thread | it goes on |
//!   | while it holds the lock of the hub | getters and others that wait; calls that wake them, that set the earliest delay or the first priority; `stats` | it goes on |
//!   | | such a call holds the lock of its shard meanwhile, so calls that need that shard wait, too | it goes on |
//!   | between taking a getter off the list and waking it | this getter | it goes on |
//!   | as a getter that was woken | the other getters | it goes on, or an add comes at least 50 µs later (W2) |
//!
//! * **P23** Nothing vanishes unseen. The queue hands an accepted key out, and the holder ends the hand-out; or a call takes the key out;
//!   or a call or a hook says that it was given up. Otherwise the key is in the [`Leftover`](crate::Leftover) that the stop or drain of the
//!   [`Workers`](crate::Workers) returns: queued, processing, delayed, or refused (its retry or requeue came after the shut-down). A stop
//!   returns at once, and a drain within its time, even if a handler hangs or a group is full. Upheld by `src/shared/take_where.rs` and
//!   `src/workers/run_loop.rs`. Shown by `tests/stops.rs` and the models `stop_meets_the_done_of_a_full_group`, `stop_meets_a_getter` and
//!   `panic_races_stop`.
//!
//! * **P29** The newest decision of a holder counts. The end of a hand-out replaces or drops the delay that an earlier end of the same key
//!   has set, and a bare drop of the item leaves it. It never touches a caller's delay. Exception: a failure that the limiter does not count
//!   leaves the retry that is still to come, or makes it later if the run has asked for that. Upheld by `src/machine/delays.rs`. Shown by
//!   `tests/newest_decision.rs`, `tests/against_reference.rs` and the faults of `tests/planted/`.
//!
//! * **P30** Cool-down: for a time that its holder chooses, no run of a key begins after the end of its last one. Adds and delays that would
//!   come earlier wait until then, and become one run; without one of them there is no run, and the queue forgets the key. Upheld by
//!   `src/machine/rest.rs` (I11) and `src/workers/run_loop.rs`. Shown by `tests/cool_down.rs` and `tests/against_reference.rs`.
//!
//! * **P27** The same twice. A queue that has a [seed](crate::WorkQueueBuilder::seed), a clock that is [mocked](crate::Clock::mock) or a
//!   [function](crate::Clock::from_fn), and [`Driver::Manual`](crate::Driver::Manual), reads no other clock to decide anything, and draws
//!   no other number. So a program that uses it with one thread sees the same each time, with the same build on the same machine. What it
//!   did with other queues that it has dropped makes no difference. The deadline of a call that blocks is real time, and starts when the
//!   call is about to park. Upheld by `src/random.rs`, `src/time/clock.rs`, `src/time/deadline.rs` and `src/shared/choose.rs` (the cursors
//!   of threads). Shown by `tests/same_twice.rs`, `tests/limits.rs`, and the unit tests
//!   `a_queue_at_the_address_of_another_is_not_taken_for_it`, `the_fronts_of_a_queue_with_a_given_clock_are_counted` and
//!   `a_call_that_does_not_park_reads_no_clock`.
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
//!    ▲             (queued)  ↺ add: no change    │                          │ ↺ add: no change
//!    │               ▲                           │                          │
//!    │               └───────────────────────────┼───────── done ───────────┘
//!    └──────────────────────────── done ─────────┘     (queued again, at the back)
//! ```
//!
//! Three more bits are independent of these: DELAYED, FAILED and RESTING (I11). A key with one of them stays in the table, even if the
//! picture calls it absent. Upheld by `src/key/state.rs`, whose unit tests make each transition; debug builds assert I1, I2, I9 and I10.
//!
//! * **I1** A key is queued at most once, and exactly while its word has DIRTY and not PROCESSING. Shown by the model
//!   `never_two_holders`.
//! * **I2** PROCESSING is set by the one get that took the key out of the order, and cleared by the `done` of its holder. Shown by
//!   `tests/stress.rs`.
//! * **I3** DIRTY and PROCESSING together mean that `done` queues the key again. Shown by `tests/stress.rs`.
//! * **I4** A key with a bit set is in the table, and a key with none is not. Shown by `tests/against_reference.rs`,
//!   which counts the keys, and the model `vacated_slot_is_reused`.
//! * **I5** The step that makes a key DIRTY and not PROCESSING pushes it, once, and owes one wake-up. (If the group of the key is
//!   full, the `done` that makes room owes it.) Shown by `tests/against_reference.rs`.
//! * **I9** DELAYED means that the key has one entry in the wheel, with the earlier of its deadlines (but see I11). No entry is stale: the
//!   critical section that moves or drops a delay takes the old entry out. Upheld by `src/machine/delays.rs`. Shown by the models `stale_delay_is_ignored`
//!   and `take_delayed_races_expiry`.
//! * **I10** FAILED means that the queue counts a failure of the key, and nobody has forgotten it since. Upheld by
//!   `src/machine/failures.rs`. Shown by `tests/against_reference.rs`.
//! * **I11** RESTING means that the key cools down: its one entry in the wheel is the end of that, it is not queued, and no delay of it
//!   ends earlier. Upheld by `src/machine/rest.rs`. Shown by `tests/cool_down.rs` and `tests/against_reference.rs`.
//!
//! # Waiting and wake-ups
//!
//! Upheld by `src/shared/getters.rs` and `src/shared/get.rs`, with the list of waiters in `src/wait.rs`. W4: `src/shared/section.rs`, and
//! the hand and the garbage of `src/machine/mod.rs`. W5: `src/shared/driver/mod.rs`. W6: `src/shared/reports.rs`. W7:
//! `src/shared/driver/mod.rs`. I7: `src/shared/life_cycle.rs`. I8: `src/shared/driver/mod.rs`, with `until` of `src/machine/expire.rs` and the
//! states in `src/shared/driver/states.rs`.
//!
//! * **W1** A getter goes on the list of waiters, and after that visits each shard under its lock; it parks only if each was empty,
//!   or for 100 µs if it has passed by one that was busy (W5). Shown by the models `n_adds_wake_n_getters` and
//!   `a_push_meets_a_sleeper_in_each_shard`.
//! * **W2** While a key is queued and a getter sleeps, a woken getter is on its way, or the call that queued the key still owes a wake-up
//!   (`add_all` pays it at its end). A getter *sleeps* if it is on the list, and visited the key's shard before the key was queued. So a
//!   push wakes one getter. A getter that arrives wakes the next one while keys are left. Shown by the models
//!   `a_burst_wakes_every_getter_needed`, `an_overdue_getter_is_passed_over`, `overtaken_getter_is_woken_again` and
//!   `adds_to_two_shards_wake_two_getters`.
//! * **W3** If a woken getter leaves without a key (its time is up, its future is dropped), it wakes the next one in its place. Shown by
//!   the models `cancelled_getter_forwards_wakeup` and `timed_out_getter_forwards_wakeup`.
//! * **W4** No critical section wakes a thread or task, clones or drops a waker, drops a key, or calls an observer, a limiter or a
//!   predicate: the call does this after it has released the lock. The exceptions are the same as in P17. Shown by the tests and the model of P17,
//!   and by the model `a_stop_races_poll_and_drop`.
//! * **W5** A task that has passed by a busy shard is woken at most 100 µs later. Before its poll returns, it asks the driver; or, if
//!   there is none, it waits for the shard's lock in the poll. While a task has asked, the driver starts, runs, or is parked no longer than
//!   until it has to wake the task. If the driver
//!   cannot be started, the task is woken at once. Shown by the models
//!   `a_task_that_passes_by_a_busy_shard_is_woken`, `a_second_task_that_passes_by_is_woken` and
//!   `a_task_that_passes_by_a_busy_shard_learns_of_the_shut_down`.
//! * **W6** In a queue whose observer has an interval, a report is scheduled while a key is queued, processing or delayed; or the add of
//!   such a key has not returned, and will schedule it. A report *first* schedules none, and *then* reads the numbers of each shard under
//!   its lock. If keys are left, it schedules the next one. An add looks whether a report is scheduled *after* its critical section. A
//!   scheduled report wakes the driver as an earlier delay does (I8). After the shut-down, delayed keys do not count. In a lock-free queue
//!   fences take the place of the lock, and the report also reads the words of the keys, because the counts miss a key that is between two of
//!   them. Shown by `tests/reports.rs` and the models `the_last_report_meets_an_add`, `an_add_wakes_the_driver_for_a_report` and
//!   `a_report_meets_a_key_between_two_counts`.
//! * **W7** While no driver thread can be started, each thread that waits in a get, a drain or an idle wait does its work, at least every ten
//!   milliseconds. Such a thread looks whether there is a driver *after* it has gone on its list, and a call whose start of the driver fails
//!   wakes the threads that are on a list. Shown by the tests of `src/shared/driverless.rs` and the model
//!   `a_parked_getter_replaces_the_driver`.
//! * **I6** No wake-up is lost between a getter's last look and its park. This is W1 for the add: it reads the flag of the waiting getters
//!   in the critical section that queues the key. Shown by `loom-tests/tests/waiting.rs`.
//! * **I7** In one critical section of the hub, the shut-down sets its flag and takes all getters off the list, to wake them. Then it
//!   enters each shard once. A critical section that sees the flag refuses adds. After the return of the shut-down all see it. A getter
//!   returns when it has found each shard empty and has seen the flag in each. Shown by the models `shutdown_wakes_all` and
//!   `a_key_added_before_the_shut_down_is_handed_out`.
//! * **I8** The driver parks no longer than until the earliest deadline of any shard. It publishes the next deadline of a shard in the
//!   critical section in which it found nothing expired there. A call that sets an earlier deadline counts this in the hub, in its critical
//!   section, and wakes the driver if it is parked for longer. The driver parks only if it has left no due key in any shard, and no call
//!   has counted since it began to visit the shards. Otherwise it visits them again, after reports and the tasks of W5 had their turn. A
//!   getter that expires keys beside the driver publishes that deadline in the
//!   same way. Shown by the models `a_getter_adds_due_keys_beside_the_driver`,
//!   `earlier_delay_rearms_driver`, `moved_delay_rearms_driver`, `a_parked_getter_replaces_the_driver` and
//!   `an_earlier_delay_in_the_other_shard_rearms_the_driver`.
//!
//! # Slots
//!
//! The slots hold the keys, and the table, the order and the items point to them. Most `unsafe` code of the crate rests on these.
//! Upheld by `src/key/arena.rs`, `src/key/chunk.rs`, and by the rule of `src/key/slot.rs` (S2, S4).
//!
//! * **S1** A slot is *taken* or *vacant*, by a bit of its chunk. Its key is initialised exactly while the slot is taken. The key and its
//!   hash do not change meanwhile. Shown by the models `held_key_keeps_its_slot` and `adds_do_not_write_the_held_key`.
//! * **S2** A slot is taken while its word has a bit set (I4). The step that clears the last bit vacates it, and does not use it
//!   afterwards. Shown by the models `vacated_slot_is_reused` and `delayed_key_keeps_its_slot`.
//! * **S3** A slot never moves. Its chunk is freed only when all its slots are vacant, or with the whole queue. Shown by the model
//!   `sweep_races_add`.
//! * **S4** Each processing key has one token `Claimed`, in an item, which keeps the queue alive, or in the call that moves it. The token
//!   is neither `Copy` nor `Clone`, and the verb that ends the hand-out consumes it, in the machine that has made it. (At most one of two
//!   tokens from `Claimed::duplicate` is consumed.) Any other reference to a key in the table, an `EntryRef`, is in the order, while the
//!   key is queued, or in the verb that runs. So the slot of each is taken (S2), and its chunk is alive (S3). Shown by the models
//!   `never_two_holders` and `held_key_keeps_its_slot`.
//! * **S5** Each slot knows its index in its chunk, so the place of the chunk's head follows from the place of the slot. The pointers to
//!   both are made from the pointer to the whole allocation. Upheld by `src/key/chunk.rs`, and shown by its unit test
//!   `the_head_is_found_from_each_slot`.
//! * **S6** A chunk is in the open list exactly while the arena has it and one of its slots is vacant. Shown by the models
//!   `sweep_races_add` and `vacated_slot_is_reused`.
//!
//! # Order
//!
//! The order of a shard is a line, levels or groups. The tests of `src/order/` compare each with plain lists.
//!
//! * **O1** A shard has an order other than a line only after the queue's flag ORDERED was set. A call reads the flag under the lock of the
//!   shard, so code that is compiled for a plain queue finds a line. The verb that gets the first priority of its shard makes the line the
//!   level NORMAL, in one step. Upheld by `src/shared/add.rs` and `src/order/any.rs`, which asserts it in debug builds. Shown by the model
//!   `the_first_priority_meets_plain_calls`.
//!
//! # Table
//!
//! * **H1** A bucket of a new array is written before it is read. The move of a chain of the old array writes both chains of the new array
//!   that come from it. Until then, calls for their keys use the old array. Upheld by `src/key/table.rs`. Shown by its unit test
//!   `keys_are_found_while_the_buckets_change`.
//! * **H2** Each slot in a chain is taken. An insert links a slot after it was taken. A remove unlinks a slot before it is vacated. Upheld
//!   by `src/key/table.rs`. Shown by the same test and by AddressSanitizer.
//!
//! # Wheel
//!
//! The timing wheel holds the deadlines. An entry is in the slot that its deadline chooses. When an entry of a slot has expired, the wheel
//! opens the slot, and its other entries move to finer slots. Upheld by `src/time/wheel/`. Shown by `tests/wheel.rs`, and by
//! `tests/support/wheel.rs`, which compares the wheel with a sorted map with random calls and under a fuzzer.
//!
//! * **T1** An entry is in the slot that its deadline and the wheel's time choose, or in one of four other lists. One list has the expired
//!   entries. Three have entries on their way from an opened slot to finer ones.
//! * **T2** All entries of a level come before those of higher levels, and all of a slot before those of later slots. So the
//!   first slot that is not empty has the earliest entry. (This follows from T1.)
//! * **T3** The `earliest` of a slot is not later than any deadline in it. It may be too early after a removal.
//! * **T4** Lists are first in, first out, even while a slot is opened: equal deadlines come out in the order of their inserts.
//! * **T5** The wheel's time never goes back, and never enters a slot that has entries without opening it.
//! * **T6** Every block in a list has a live entry. So a removed entry takes memory only in a block that has a live entry.
//! * **T7** The entries that an opened slot has put off (the lists `DEFERRED` and `BACKLOG`) expire after the near horizon.
//!
//! # Lock
//!
//! * **L1** The thread that changes `locked` from false to true owns the lock and its data, until it stores false or hands the lock
//!   off to the next thread that unparks. Upheld by `src/sync/lock.rs`. Shown by `loom-tests/tests/lock.rs`.
//!
//! # The lock-free engine
//!
//! A queue of `WorkQueueBuilder::lock_free` keeps the promises of a queue with one shard, but for what the page of that
//! method says; with several shards, which are lines here, P4 holds for the keys that one thread queues, and F12 for others. Its invariants are those of `src/key/state.rs`, where "the critical section" is the step of a key's word, and these. Upheld
//! by `src/key/word.rs`, `src/key/node.rs`, `src/free/` and `src/shared/free.rs`. Shown by `tests/lock_free.rs`, `loom-tests/tests/free.rs`,
//! and the tests and models of the other engine, on this one (`ci/lock-free.sh`).
//!
//! * **F1** A node without bits and claims is vacant, and only a vacant node becomes GONE and leaves the map. Shown by the model
//!   `add_meets_an_eviction`.
//! * **F2** An entry of the line is live if its node is queued and has its number. Each entry has a claim of the node. Shown by the model
//!   `get_meets_remove_and_add`.
//! * **F3** NOTED means that the records know the key. NOTED and RESTING change under the lock of the records only. Shown by the models
//!   `succeed_meets_a_delay` and `done_meets_an_expiry`.
//! * **F4** CACHED means that a place of a cache has the node, or will have it. Who takes it out clears the bit.
//! * **F5** MARKED means that a wait counts the key. The step that ends its work clears the bit, and its caller lowers the count. Shown by
//!   the model `two_drains_meet_done`.
//! * **F6** A reference to a node is used only while the node is not freed: the user has a claim or an entry of it, holds the key, has the lock
//!   of the records, which know it, or a guard of the map. Shown by AddressSanitizer.
//! * **F7** An add is begun before its step, and settled when what it has queued is in the line. If the sum of settled adds, read first, is
//!   the sum of begun ones, then no add was between the two at that time. Shown by the model `idle_wait_meets_a_chain`.
//! * **F8** While a sweep is on its way, or has left keys in its list, getters take those first. Shown by the model `a_getter_meets_a_sweep`
//!   and `a_sweep_keeps_the_order` in `tests/lock_free.rs`.
//! * **F9** An add whose step has found the queue open takes effect. One that finds it shut down after its step takes effect, or is refused
//!   if somebody was told that nothing is left. Shown by the models `add_meets_the_shut_down`, `two_adds_meet_the_shut_down` and
//!   `add_of_a_held_key_meets_a_drain`.
//! * **F10** W1 and I6 without the lock of a shard: a push, a fence, and a look at the flag of the waiting getters; and on the other side the
//!   list, a fence, and a look into each line. Shown by the models `push_meets_a_getter_that_parks`, `done_meets_a_getter_that_parks` and
//!   `pushes_into_two_lines_meet_a_getter_that_parks`.
//! * **F11** A vacated node stays in the map and in the cache of its thread, which has a bounded number of places. Shown by
//!   `vacated_nodes_are_bounded` in `tests/lock_free.rs`.
//! * **F12** With several lines, a getter that takes an entry of another epoch than the one before looks at the fronts of all lines, and
//!   leaves its own if another one is more than eight epochs behind. So a queued key is overtaken by the later keys of nine epochs, by up
//!   to 64 of each adder, and by one key for each line and getter. Upheld by `src/free/lines.rs`. Shown by its test
//!   `keys_are_overtaken_by_few`, by `no_line_starves` in `tests/lock_free.rs`, and by the models `a_getter_meets_a_sweep_of_two_lines` and
//!   `adds_into_two_lines_meet_the_shut_down`.
//!
//! # Limiters
//!
//! Limiters uphold P14, P15 and P17. They have no numbers of their own.
//!
//! # Linearization points
//!
//! A call of this table takes effect at one moment between its start and its return. In the code, comments mark these moments with
//! "Linearization point". Unless the table says otherwise, "a critical section" is one of the lock of the key's shard. A queue with several
//! shards is linearizable for the calls on one key. The rows of `get`, `shut_down`, the waits and the numbers hold with one shard.
//!
//! | call | takes effect in |
//! |---|---|
//! | `add` | the critical section that queues the key, marks it dirty, finds it dirty, or refuses it |
//! | `add_after`, `add_with`, `add_rate_limited` | the same, or the critical section that sets or moves the delay, or finds that the earlier one stands. A limiter of your own is called before that |
//! | `get`, `try_get`, `get_timeout`, `get_async` | the critical section that takes the next key out of the order; without a key, the last one that found no key: empty, shut down, or the time is up |
//! | `done`, the drop of an item, `succeed`, `give_up` | the critical section that ends the hand-out, and queues the key again if it is dirty. A limiter of your own is called before that |
//! | `retry`, `requeue_after`, `requeue_with` | the critical section that sets the delay *and* ends the hand-out; after a shut-down the one that refuses the add, and a second one ends the hand-out. A limiter of your own is called before that |
//! | `cancel`, `remove` | the critical section that takes out what it finds |
//! | the expiry of a delay, by the driver, by a getter or by `turn` | for each key, its add in the critical section that takes it out of the wheel |
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
//! * `add_all`: each add is one step, or the adds of up to 32 keys together are one.
//! * `stats`: each shard is one step, and the number of waiting getters another. `metrics` has the same steps, which also read the levels
//!   and two histograms, and one step more for the histogram of each priority but NORMAL. `levels`: each shard is one step.
//! * `get_many` and `get_batch`: 256 keys a step, or 16 with a limit for groups. The getter waits for the first key as `get` does. The end of
//!   a batch: 32 keys a step, or one with several shards or without locks.
//! * `turn`: about a hundred keys a step, up to the time that the clock showed when the call began.
//! * `take_where`, `take_delayed` and `stop`: some hundred keys a step. A step takes a key only if it is still queued or delayed as the call
//!   has seen it. So `take_delayed` may find or miss a delay that another thread sets meanwhile.
//! * Drains: the shut-down is one step, the return another.
//! * `processing_keys`, `delayed_keys` and `groups`: some hundred keys a step. `shrink_to_fit` works in steps, too.
//! * `len` and `is_empty` read a number without the lock: the number of queued keys after some critical section. It may be out of date when
//!   the call returns. The read publishes nothing, so draw no conclusion about other calls.
//! * `MaxOf` calls one limiter after the other.
