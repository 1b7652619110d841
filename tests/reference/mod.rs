//! One reference for all features, and one language for what a program can do with a queue.
//!
//! ```text
//!   swarm, words ──▶ Plan, [Op] ──▶ run ──┬──▶ the crate          what is seen
//!                                         └──▶ Reference          is compared after each Op
//! ```
//!
//! * [`plan`]: settings. [`op`]: steps. [`key`]: keys that count themselves, and panic on demand.
//! * [`events`]: what observers and hooks are told. [`methods`]: which step makes which call, and that none is left out.
//! * [`queue`]: the queue that is evidently right.
//! * [`run`]: both side by side, and what must be equal, also after a panic of the user's code.
//! * [`swarm`]: random lives. [`words`]: all short lives. [`crossings`]: which steps, states, settings and panics have met.
//!
//! `threads.rs` and `replay.rs` are for `tests/stress.rs` alone: random lives side by side, and the plain queue that makes the same steps.

#![allow(dead_code, reason = "every test binary uses its part of it")]

pub(crate) mod crossings;
pub(crate) mod events;
pub(crate) mod key;
#[path = "../support/limits.rs"]
pub(crate) mod limits;
pub(crate) mod methods;
pub(crate) mod op;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod random;
pub(crate) mod run;
pub(crate) mod swarm;
pub(crate) mod words;
