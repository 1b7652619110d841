//! The reference of `tests/reference/`, with its plans, its language of steps, and its random and short lives. These files name the crate
//! (`keyqueue`) and each other (`super`), so they are included as they are; what runs a life is [`run`](super::run) instead of the runner
//! for the whole queue.

#![allow(dead_code, reason = "the other drivers use the rest")]
#![allow(clippy::duplicate_mod, reason = "the files are a module for each runner: the whole queue has the other")]

#[path = "../../../tests/reference/events.rs"]
pub(crate) mod events;
#[path = "../../../tests/reference/key.rs"]
pub(crate) mod key;
#[path = "../../../tests/support/limits.rs"]
pub(crate) mod limits;
#[path = "../../../tests/reference/op.rs"]
pub(crate) mod op;
#[path = "../../../tests/reference/plan.rs"]
pub(crate) mod plan;
#[path = "../../../tests/reference/queue.rs"]
pub(crate) mod queue;
#[path = "../../../tests/reference/random.rs"]
pub(crate) mod random;
#[path = "../../../tests/reference/swarm.rs"]
pub(crate) mod swarm;
#[path = "../../../tests/reference/words.rs"]
pub(crate) mod words;

use super::run;
