//! Why a fleet cannot be joined.

use crate::store::StoreError;
use keyqueue::InvalidArgument;
use std::error::Error;
use std::fmt;

/// Why [`FleetBuilder::build`](crate::FleetBuilder::build) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FleetError {
    /// The store could not be reached for as long as a lease, or refused to write the member's record for three. Or the table of owners
    /// cannot be read: another version has written it.
    Store(StoreError),
    /// Another process renews the record of this name: give each replica a name of its own.
    NameTaken {
        /// The name.
        name: String,
    },
    /// The fleet has another number of partitions. All replicas must name the same number. To change it, stop all, and edit the
    /// record `owners`: the new number in `partitions`, an empty list in `owners`, and the same `token`.
    PartitionsDiffer {
        /// What this replica was told.
        ours: u32,
        /// What the fleet has.
        theirs: u32,
    },
    /// An argument of the builder is not valid.
    InvalidArgument(InvalidArgument),
    /// The member left before it had joined: the queue is shut down.
    Left,
}

impl FleetError {
    /// The same error for another caller.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Store(error) => Self::Store(StoreError::message(error.to_string())),
            Self::NameTaken { name } => Self::NameTaken { name: name.clone() },
            Self::PartitionsDiffer { ours, theirs } => Self::PartitionsDiffer { ours: *ours, theirs: *theirs },
            Self::InvalidArgument(error) => Self::InvalidArgument(error.clone()),
            Self::Left => Self::Left,
        }
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the fleet's store: {error}"),
            Self::NameTaken { name } => write!(f, "another process is the member {name:?}: names must differ"),
            Self::PartitionsDiffer { ours, theirs } => {
                write!(
                    f,
                    "this replica has {ours} partitions, the fleet has {theirs}: all replicas must have the same number"
                )
            }
            Self::InvalidArgument(error) => error.fmt(f),
            Self::Left => f.write_str("the member has left"),
        }
    }
}

impl Error for FleetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
