//! Replicas of a program share the keys of a [`keyqueue`]: each key has one owner at a time, and moves without two handlers; what has no
//! owner is reported.
//!
//! A control loop outgrows one machine, and one leader is not enough. So several replicas run, and each key belongs to one of them.
//!
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue_fleet::{Event, Fleet, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), keyqueue_fleet::FleetError> {
//! # let pods = std::sync::Arc::new(vec!["default/a".to_owned(), "default/b".to_owned()]);
//! let store = MemoryStore::new(); // a real one: `EtcdStore`, `KubeStore`
//! let fleet = Fleet::builder(store).member("replica-1").build(WorkQueue::<String>::new()).await?;
//!
//! // The handlers: one key at a time has one handler in all replicas.
//! let workers = fleet.workers().build();
//! for _ in 0..8 {
//!     tokio::spawn(workers.run_async(async |pod| {
//!         println!("looking at {pod}; writes carry the token {}", pod.token());
//!     }));
//! }
//!
//! // A partition was acquired: list what its keys are about. Keys of other members are ignored.
//! let (lister, mut events) = (fleet.clone(), fleet.events());
//! # let listed = pods.clone();
//! tokio::spawn(async move {
//!     loop {
//!         let events = events.next_many().await;
//!         if events.is_empty() {
//!             return; // the member has left
//!         }
//!         if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
//!             listed.iter().for_each(|pod| _ = lister.add(pod.clone()));
//!         }
//!     }
//! });
//!
//! // An event: it goes to the program's own store first, and then the key is added.
//! fleet.add("default/a".to_owned()); // or `NotMine`
//! # while workers.tally().running == 0 && fleet.stats().owned < 256 { tokio::task::yield_now().await }
//!
//! fleet.leave().await; // hands everything over
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! * **One owner**, whatever clocks do. The key space is divided into [partitions](FleetBuilder::partitions), and a partition has one owner
//!   at most. The [token](Permit::token) of a hand-out grows whenever the partition changes its owner.
//! * **One handler.** No key has two handlers at a time, in all replicas. This needs two things. Over a lease, no machine's clock runs 25 %
//!   or more faster than another's ([D : (R + grace)](FleetBuilder::lease)). And a handler stops within the [grace](FleetBuilder::grace)
//!   after it is told: the member drops a future; a thread must [look](Permit::is_lost). A dropped handler does not stop what it has
//!   spawned, such as a thread of `spawn_blocking`: move an [`OwnedPermit`] into that.
//! * **No key is lost in a hand-over**: the member that acquires a partition is told to list, after its gate was opened. An
//!   [`add`](Fleet::add) that returned [`NotMine`](Added::NotMine) is seen by that list, if the event reached the program's store before
//!   the add.
//! * **An outage is seen.** [`Stats`] say how many partitions have no owner, and for how long; for how long a hand-over has waited for
//!   its handlers; until when this member may go on without its store; and the last error. [`health`](Fleet::health) is for a liveness
//!   probe.
//! * **It costs the store little**: a write per renewal and member, every third of a lease, and a few per hand-over; none per key.
//!
//! Why that is so is on one page: `src/protocol/mod.rs`. What shows it: a model checker runs the protocol's code through all orders of
//! steps, whole fleets run in simulated time over a store that loses requests, loom checks the gates, and `chaos` kills, stops and cuts off
//! real processes over a real etcd. Each of these finds faults that are built in on purpose.
//!
//! # What it does not guarantee
//!
//! * **A process that is stopped in the middle of a handler** may write after another has taken its keys. No lock prevents that.
//! * **A virtual machine that is paused**: its clock stands still, and the member does not see the pause. Its handlers go on, and new ones
//!   *start*, until its next renewal fails. That is at most a third of a lease later, or a whole lease if it cannot reach the store.
//!
//!   Against both: send the token with each write, and let the receiver refuse a lower one; or write with the version that you have read,
//!   as Kubernetes offers.
//! * **The keys are in memory.** Their source is elsewhere, and can be listed.
//! * Partitions are shared out by number, not by load.
//!
//! # When the store cannot be reached
//!
//! Keys are handed out until the deadline, a lease (10 seconds) after the last renewal. Then the member stops, and goes on when it can
//! renew. Its queue keeps the keys. If another member reached the store for the whole expiry time, it has taken the partitions, and this
//! member starts as a new one. If no member reached it, each keeps its partitions.
//!
//! # Features
//!
//! * `etcd`: [`store::EtcdStore`](store), and `etcd_client`, re-exported. Its build needs `protoc`.
//! * `kube`: [`store::KubeStore`](store), in Leases, and `kube`, re-exported.

mod agent;
mod clock;
mod error;
mod events;
mod fleet;
mod gate;
mod hash;
mod health;
mod owned_permit;
mod owners;
mod protocol;
mod shared;
mod stats;
pub mod store;
mod sync;
mod workers;

/// The client of [`store::EtcdStore`], in the version that it takes.
#[cfg(feature = "etcd")]
pub use etcd_client;
/// The client of [`store::KubeStore`], in the version that it takes.
#[cfg(feature = "kube")]
pub use kube;

pub use clock::LeaseClock;
pub use error::FleetError;
pub use events::{Event, Events};
pub use fleet::{Added, Fleet, FleetBuilder, NotAllowed, Permit};
pub use hash::{StableHash, StableHasher};
pub use health::Unhealthy;
pub use owned_permit::OwnedPermit;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use protocol::member::Mutant;
pub use stats::Stats;
pub use store::{MemoryStore, Store};
pub use workers::{Held, Workers, WorkersBuilder};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
