//! All models but those of the fleet's gates: one program builds in less time than one for each file.
#![cfg(loom)]

mod adds;
mod batches;
mod bound;
mod delays;
mod drain;
mod free;
mod limits;
mod lock;
mod measure;
mod memory;
mod order;
mod pace;
mod pause;
mod shards;
mod shutdown;
mod size;
mod stop;
mod tenants;
mod time_limits;
mod values;
mod waiting;
mod watch;
mod workers;
