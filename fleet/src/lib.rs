//! Replicas of a program share the keys of a [`keyqueue`]: each key has one owner.

mod agent;
mod clock;
mod error;
mod events;
mod fleet;
mod gate;
mod hash;
mod protocol;
mod shared;
mod stats;
pub mod store;
mod sync;
mod workers;

pub use clock::Clock;
pub use error::FleetError;
pub use events::{Event, Events};
pub use fleet::{Added, Fleet, FleetBuilder, NotAllowed, Permit};
pub use hash::{StableHash, StableHasher};
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use protocol::member::Mutant;
pub use stats::Stats;
pub use store::{MemoryStore, Store};
pub use workers::{Held, Workers};
