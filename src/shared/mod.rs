//! What all handles of one queue share, and the calls on it.
//!
//! ```text
//!              hash ──▶ shard           (with groups and several shards: the hash of the group; a directory finds the key)
//!  handles ──▶ Shared: settings, limiter, observer, flags
//!                 ├─ shard 0: a lock over a machine: keys, order, delays     ┐ one, unless the user asks for more
//!                 ├─ shard 1 …                                               ┘
//!                 └─ hub: a lock over ┌ getters: threads and tasks that wait for a key
//!                                     ├ life cycle: drains, idle waits
//!                                     ├ tasks that wait for an event: the shut-down, a held key is added again, a run is late
//!                                     ├ alarms: tasks that wait for more keys, until a time
//!                                     ├ driver: the state of the thread that expires delays
//!                                     ├ limited runs: runs of workers that have a time limit
//!                                     └ runs: where the queue's workers count, for metrics
//! ```
//!
//! A call makes a [`section`] of the key's shard, calls verbs of its [machine](crate::machine), and ends the section, which wakes those in
//! the [`hub`] that are owed a wake-up.
//!
//! **Where to begin.** [`machine`](crate::machine) explains verbs, the hand, the mode, and what a verb owes, and [`order`](crate::order)
//! the *front* of a shard. Then read the list below from its end: the files from `hub` to `section`, and after them any call.
//!
//! **Calls go down.** A file imports and calls only those below it, or to its right in the same line, which `ci/calls.sh` checks:
//!
//! ```text
//!   take_where                        | takes keys out: by a predicate, all delays, what workers leave
//!   drain                             | waits for the end of the work
//!   life_cycle                        | shut-down
//!   pause                             | the pause of the whole queue
//!   add_all   end_all                 | many adds, and many ends of processings
//!   linger                            | the wait for one more key of a batch, until a time
//!   done   get   add   delays   dirty | the calls on keys; delays: `cancel` and `remove`, dirty: `until_dirty`
//!   choose   lower                    | which shard a getter takes its key from
//!   take                              | a hand-out
//!   thread   driver                   | the driver thread, and its work: delays expire, tasks are woken
//!   reports   snapshot   shrink       | the observer's interval; looks at the queue; `shrink_to_fit`
//!   failures   groups   time_limits   | limiters; calls on a group; time limits of workers
//!   start                             | of the driver thread
//!   expire                            | delays that expire in a section of a getter
//!   section                           | a critical section of a shard
//!   state                             | `Shared`: all of this, and what each call needs of it
//!   cursor   locked                   | where a thread takes its keys; a shard: its lock, and what is read without it
//!   settings                          | what a builder says
//!   directory   pace   last_errors    | where keys with groups are; a limit of hand-outs; the texts of errors
//!   hub                               | the flags, and the lock of the lists
//!   getters   waiters   limited_runs  | the lists of those that wait; runs that have a time limit
//!   states                            | the states of the driver
//! ```
//!
//! `free`, which is in no line, has the arms of all calls for a lock-free queue. `driven`, `driverless` and `stopped` are tests.
//!
//! **The queue is linearizable**, because each call takes effect at one moment while it holds the lock. Calls of several steps say so.
//!
//! **No critical section is long**: calls that visit many keys do so in steps, and memory is freed after the lock. But a small table grows
//! at once, within half a millisecond, and a shut-down takes all waiters off their list.
//!
//! **Hot calls** (`add`, `get`, `done`) return what fits in two registers, because longer answers, which go through memory, took half of
//! their time.

mod add;
mod add_all;
mod choose;
mod cursor;
mod delays;
mod directory;
mod dirty;
mod done;
mod drain;
#[cfg(all(test, not(loom)))]
mod driven;
mod driver;
#[cfg(all(test, not(loom)))]
mod driverless;
mod end_all;
mod expire;
mod failures;
#[cfg(feature = "lock-free")]
mod free;
mod get;
mod getters;
mod groups;
mod hub;
mod last_errors;
mod life_cycle;
mod limited_runs;
mod linger;
mod locked;
mod lower;
mod pace;
mod pause;
mod reports;
mod section;
mod settings;
mod shrink;
mod snapshot;
mod state;
#[cfg(all(test, not(loom)))]
mod stopped;
mod take;
mod take_where;
mod time_limits;
mod waiters;

pub(crate) use drain::WaitGoal;
pub use driver::Driver;
pub(crate) use driver::start_driver_thread;
pub(crate) use get::Wait;
pub(crate) use linger::Linger;
pub(crate) use settings::{Limiter, MAX_SHARDS, MAX_WEIGHT, Order, Settings, most_processing};
pub(crate) use state::{Shared, Wakeups};
pub(crate) use waiters::TaskTicket;
