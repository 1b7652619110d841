//! What you may rely on: each promise of the crate, by number. This module has no items: it is a page.
//!
//! Changing a promise is a breaking change. The repository's comments and tests cite the numbers, and its page `INVARIANTS.md` says which
//! code upholds each promise and which tests show it.
//!
//! The [crate's page](crate#words) explains *queued*, *processing*, *dirty* and *delayed*. The *holder* of a key has its
//! [`Item`](crate::Item), and a *getter* is a thread or a task in one of the get calls. A *shard* keeps its keys under one lock; a queue
//! has one unless it was [built with more](crate::WorkQueueBuilder::shards). A queue of `WorkQueueBuilder::lock_free` keeps the promises of
//! one shard except where the page of that method says otherwise.
//!
//! # Adds and hand-outs
//!
//! * **P1** *One holder.* A key is queued at most once, and two items of one key are never alive at the same time. This holds even if
//!   [`fair_by`](crate::WorkQueueBuilder::fair_by) names different groups for equal keys, which it must not.
//! * **P2** *No lost add.* After each accepted add a hand-out of its key begins, even if the add races with a get or with the end of a
//!   hand-out. This hand-out sees what happened before the add and before the end of the key's last hand-out. The only exceptions are calls
//!   that take out the key or the delay which the add has set, and a shut-down that cuts this delay off (P12).
//! * **P3** A key that is added while it is processing is queued again, at the back, as soon as its holder is done.
//! * **P13** *A hand-out ends once.* Dropping an item ends its hand-out, so a holder that panics leaves no key stuck. If other code of
//!   yours panics inside a call, the docs of the call say whether it has changed nothing, has taken effect, or catches the panic.
//! * **P23** *Nothing vanishes unseen.* An accepted key is handed out and its hand-out ended, or a call takes it out, or a call or hook
//!   reports that it was given up. Every other key is in the [`Leftover`](crate::Leftover) that the stop or drain of the
//!   [`Workers`](crate::Workers) returns. A stop returns at once and a drain within its time, even if a handler hangs or a group is full.
//! * **P29** *A holder's newest decision counts.* The end of a hand-out replaces or drops the delay that an earlier one of the key has set.
//!   A bare drop of the item leaves that delay, and a failure that the limiter does not count can only make it later. Callers' delays and
//!   adds are never dropped, not even an add that waits for such a retry.
//! * **P26** *The latest value.* Each accepted value of a [`ValueQueue`](crate::values::ValueQueue) is in the value of exactly one run that
//!   has succeeded and has read it after the add, or a call takes it out, as [`take_all`](crate::values::ValueQueue::take_all) does with
//!   what is left after a drain. The values of a key are merged in the order of their adds, and no panic loses one.
//! * **P30** *Cool-down.* For a time that its holder chooses, no run of a key begins after the end of its last one. Adds and delays that
//!   would come earlier wait until then and become one run; without any, the queue forgets the key.
//!
//! # Order
//!
//! * **P4** *First in, first out.* Keys of one shard, one priority and one group are handed out in the order in which they became ready.
//! * **P18** *Shards.* Calls for keys of different shards share no lock and write no common cache line unless threads or tasks wait, or the
//!   queue has a bound (P33). In return, later keys of other shards may overtake a key, but only a bounded number, however long the queue
//!   is. All other promises hold as with one shard. With groups, calls that name a key, and the end of a hand-out after which the queue
//!   forgets its key, also take one of 64 locks for some tens of nanoseconds, by the key's hash.
//! * **P19** *Priorities.* A key of a higher priority is handed out first. Of several adds of a key the highest priority counts, and a key
//!   that its holder puts back keeps its own. Low priorities do not starve, because one of 16 hand-outs goes to the lower ones that wait,
//!   in turn, unless the queue is [strict](crate::WorkQueueBuilder::strict_priorities).
//! * **P20** *Groups.* The groups of one priority take turns, and in its turn a group gives as many keys as its weight. Those of the
//!   highest priority with keys have their turns in rounds that all shards share, so while one getter takes the keys, no group there that
//!   always has keys gets more than two turns more than another. A group that is new, or has missed a turn while it had no keys or was
//!   held back, goes ahead of those that have had turns, which still get one of 16 hand-outs, or one of 64 if they are in other shards.
//!   With [handler time](crate::FairShare::WorkTime), a turn is worth a time instead, and groups that always have keys get handler time
//!   in proportion to their weights.
//! * **P32** *Limits of groups.* At most as many keys of a group are processing as its [limit](crate::GroupLimits::max_processing) allows,
//!   and over any span of time at most `burst + rate * span` are handed out by its [rate](crate::GroupLimits::rate). None is handed out
//!   while the group is [paused](crate::Group::pause). This is exact in whatever number of shards, and from the moment at which a call
//!   changes the limits; what is processing then stays so. Keys of a group that is held back stay queued, also after a shut-down.
//!
//! These are the bounds of P18 and P19. They do not hold from the time at which a thread that has locked the key's shard is stopped (P21)
//! until a getter finds the lock free. A thread that ended counts as a getter until another one takes over its shard.
//!
//! | number of | at most about |
//! |---|---|
//! | later keys of other shards that overtake a key | `(shards + 6 * getters) * 64` |
//! | the same if getters add keys themselves | twice as many |
//! | in addition, if getters find the key's shard locked | `20 * 64` |
//! | in a list of keys that a call takes out, younger keys of the same priority and turn of groups before a key | `(shards - 1) * 64` |
//! | with several shards, hand-outs of lower priorities, besides their turns, while a key waits | `4 * (shards + getters)` |
//! | hand-outs before the first key of a group that had none, beside groups that have had turns | `2 * (shards + getters)` |
//! | hand-outs until the last of `n` keys of lower priorities comes, unless the queue is strict or a group full | `16 * (n + 1) + 4 * (shards + getters)` |
//!
//! # Delays
//!
//! * **P8** *Never early.* A delay expires when the clock has reached the time of the call plus the delay, to the nanosecond, and the keys
//!   of a shard come in the order of their deadlines. A key is late by the time that it takes to wake a thread, and by what the driver has
//!   to do before. Any [`Duration`](std::time::Duration) is allowed: none panics, and none wraps around.
//! * **P9** *Two delays.* A key has at most one delay of callers and one of a holder, and when one expires the other goes on, unless its
//!   time has come as well. A caller's call chooses whether the earlier deadline, the new one or the old one counts, and may cancel both.
//!   Lists and counts have one entry for each key, the earlier delay.
//! * **P10** A plain add of a key that waits for a retry does what [`DelayedAdd`](crate::DelayedAdd) says. With any other delay the add
//!   takes effect and the delay stays.
//! * **P11** *Expiry on time.* Delays expire while other threads set more of them, and a call that sets a delay never waits for the driver.
//!   With the real clock getters queue expired keys, too, so that these need not wait until the driver gets a core.
//! * **P12** A shut-down cuts delays off and loses none: the queue counts them, [`delayed_keys`] lists them, and [`take_delayed`] returns
//!   them.
//! * **P31** *Pace and pause.* With a [pace](crate::WorkQueueBuilder::pace), all getters together get at most `burst + rate * span` keys
//!   over any span, by the times at which they read the clock, with any number of shards. A token goes with a key, so that a
//!   getter that gives up has spent none. Only [`stop`] and calls that take keys out do not wait for tokens. Between the return of
//!   [`pause`](crate::WorkQueue::pause) and a `resume` no key is handed out, with an exception for lock-free queues.
//! * **P33** *A bound.* With [`max_keys`](crate::WorkQueueBuilder::max_keys), an add of a new key takes effect only while the queue knows
//!   fewer keys than that: keys that are queued, processing or delayed. Known keys and retries are never refused. An add that
//!   [waits](crate::WorkQueue::add_wait) ends when there is room that no other add has taken, or with the shut-down.
//!
//! # Shut-down
//!
//! * **P6** The queue refuses adds from the shut-down on, still hands out its queued keys, and queues dirty keys again when they are done.
//!   A get that finds no queued key says that the queue is shut down; while a group that is held back (P32) has queued keys, it waits instead.
//!   The shut-down ends a pause of the queue, and none begins after it.
//! * **P7** *Drain.* A drain returns when no key is queued or processing, at its deadline, or when a plain shut-down follows. Any number of
//!   callers may drain at the same time.
//!
//! # Inspection
//!
//! * **P25** *One named cause.* A key that does not run has one cause at each moment, which [`key`] of a view names. The key waits for its
//!   turn or a worker; its group's limit, rate or pause, or the queue's pace, holds it back; it is delayed, by a retry, its holder, a
//!   caller or a cool-down; or no run is to come. The look is of one moment, so a key that always has a run to come is never said to have
//!   none.
//!
//! # Threads, time and memory
//!
//! * **P5** Any number of producers and getters may share one queue, threads and async tasks on any executor mixed.
//! * **P14** A limiter always returns a delay, which never overflows, is never negative and never exceeds the limiter's maximum.
//! * **P15** The queue frees its memory after a burst, and drops a key at once when nothing needs it. A limiter can bound the memory for
//!   keys that are never forgotten.
//! * **P16** *An idle queue runs nothing.* The queue's only thread starts with the first delay, the first task that passes by a busy shard
//!   (P21), the first getter that waits for a token (P31), the first group that is throttled or paused (P32), the first run with a
//!   [time limit](crate::WorkersBuilder::time_limit), or the first add if the observer has an [interval](crate::observe::Observer::interval).
//!   The thread sleeps until a delay, such a task, a limit or a report is due, and the reports end when no key is queued, processing or
//!   delayed.
//! * **P17** *Your code runs without a lock*: keys, values and their merges, wakers, observers, limiters, hooks and predicates. The
//!   exceptions are the function of [`Clock::from_fn`](crate::Clock::from_fn), a key's `Eq` and `Equivalent`, and its `Clone` in
//!   [`take_delayed`], [`take_where`], [`stop`], [`processing_keys`], [`delayed_keys`] and [`groups`].
//! * **P27** *The same twice.* With one thread and the same build and machine, a queue does the same each time if it has a
//!   [seed](crate::WorkQueueBuilder::seed), [`Driver::Manual`](crate::Driver::Manual), and a clock that is [mocked](crate::Clock::mock) or
//!   a [function](crate::Clock::from_fn). Only the deadline of a call that blocks is real time.
//! * **P21** *A stopped thread.* With several shards, a thread that the system stops in the middle of a call keeps other threads only from
//!   the keys of one shard, because getters and the driver pass by its lock and come back within 100 µs. The exact cases:
//!
//! | a thread stops | until it goes on, these wait |
//! |---|---|
//! | while it holds the lock of a shard | calls that name a key of the shard |
//! | | calls that visit all shards: `stats`, `shut_down`, drains, idle waits, `turn` and the like |
//! | | `try_get` and `get_many`, if only this shard has keys |
//! | | a driver that reports, or has a mock clock |
//! | | a task in its poll, if no other shard has keys and the queue has no driver thread |
//! | while it holds one of the 64 locks of a queue with groups | calls that name one of the keys of this lock, or after which the queue forgets one, and the shards of these |
//! | while it holds the lock that all shards share | getters that park; calls that wake them, or set the earliest delay or the first priority, and the shards of these; `stats` |
//! | between taking a getter off the list and waking it | this getter |
//! | as a getter that was woken | the other getters, or until an add comes at least 50 µs later |
//!
//! [`take_delayed`]: crate::WorkQueue::take_delayed
//! [`take_where`]: crate::WorkQueue::take_where
//! [`stop`]: crate::Workers::stop
//! [`processing_keys`]: crate::Inspect::processing_keys
//! [`delayed_keys`]: crate::Inspect::delayed_keys
//! [`groups`]: crate::Inspect::groups
//! [`key`]: crate::Inspect::key
//!
//! # When a call takes effect
//!
//! Each call of this table is linearizable: it takes effect at one moment between its start and its return. With several shards this holds
//! for calls on one key, but not for gets, waits, numbers and the shut-down. A limiter of your own is called before that moment.
//!
//! | call | the moment |
//! |---|---|
//! | `add` | the key is queued, marked or found dirty, or refused |
//! | `add_after`, `add_with`, `add_rate_limited` | the same, or the delay is set, moved, or found to stay |
//! | `get` in its forms | the key leaves the order; without a key, the last look that found none |
//! | `done`, the drop of an item, `succeed`, `give_up` | the hand-out ends, and a dirty key is queued again |
//! | `retry`, `requeue_after`, `requeue_with` | the delay is set *and* the hand-out ends; after a shut-down these are two moments |
//! | `cancel`, `remove` | what was found is taken out |
//! | the expiry of a delay | the key leaves the wheel and is added |
//! | `shut_down` | the flag is set |
//! | `pause`, `resume` | with one shard, when they have had its lock |
//! | the return of a drain or `wait_idle` | nothing is left, the time is up, or a later shut-down releases the drain |
//! | `forget`, and calls that return a number or a flag | the number or flag is cleared or read |
//! | `inspect().key` | the key is looked up; the pace and a limiter of your own are asked beside |
//! | `until_dirty`, `until_shutting_down` | the poll that is ready |
//! | a limiter's calls | its state changes, or is found to refuse |
//!
//! These calls are several steps, between which other threads' calls may take effect: `add_all`, `get_many`, `get_batch`, `turn`, calls
//! that take many keys out or list them, `stats`, `metrics`, `levels`, `shrink_to_fit`, `MaxOf`, and drains, which shut the queue down and
//! return. A step concerns up to some hundred keys, one shard, or one limiter.
