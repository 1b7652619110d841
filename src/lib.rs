//! A deduplicating work queue.

mod builder;
mod error;
mod get_async;
mod item;
mod key;
mod line;
mod queue;
mod shared;
mod stats;
mod sync;
mod wait;

pub use builder::WorkQueueBuilder;
pub use error::{DrainTimeoutError, GetTimeoutError, TryGetError};
pub use get_async::GetAsync;
pub use item::{Item, OwnedItem};
pub use queue::{Added, WorkQueue};
pub use stats::Stats;
