//! Where members meet: a handful of small records with compare-and-swap and a watch.

mod memory;

pub use memory::MemoryStore;

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;

#[cfg(feature = "kube")]
mod kube;
#[cfg(feature = "kube")]
pub use self::kube::KubeStore;

use std::error::Error;
use std::fmt;
use std::future::Future;

/// The version of a record: another one after each write that changes it. A version never comes back, not even if the record is deleted and created
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A record's value and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What was written.
    pub value: Vec<u8>,
    /// The version of this value.
    pub version: Version,
}

/// What a [watch](Store::watch) says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// All records, at the beginning.
    All(Vec<(String, Stored)>),
    /// A record was created or changed.
    Put(String, Stored),
    /// A record was deleted.
    Deleted(String),
}

/// The outcome of a write with a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It was done; the record is at this version now.
    Done(Version),
    /// The record is at another version, or absent, or, for `None`, there. Nothing was done; or a library has sent the request twice, and
    /// the first one was done: see [`Store`].
    Conflict,
}

/// The outcome of a deletion with a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It was done.
    Done,
    /// The record is at another version, or absent. Nothing was done; or a library has sent the request twice, and the first one was done.
    Conflict,
}

/// A store of records.
///
/// * [`read`](Self::read), [`write`](Self::write) and [`delete`](Self::delete) are linearizable: each takes effect at one moment.
/// * Each call takes effect once at most.
/// * A call that fails, or whose future is dropped, may have taken effect, and may still do so later: the protocol expects that.
/// * [`watch`](Self::watch) delivers the changes of each record in their order. It may be late, may leave out values that were overwritten,
///   and need not keep the order of different records.
/// * No record goes back to an older version, and none is deleted by the store itself: a lease of the store's is not a safe lock
///   ([etcd#15247](https://github.com/etcd-io/etcd/issues/15247), [etcd#11456](https://github.com/etcd-io/etcd/issues/11456)).
///
/// Names of records consist of lower-case letters, digits, `-` and `.`.
///
/// # Requests that are sent twice
/// A client library may repeat a request whose answer was lost or was an error of a proxy; kube-rs does so by default. The protocol expects
/// what follows from it:
///
/// * A write or a deletion that took effect can be answered with `Conflict`, because the repeated request found the new version. So a member
///   reads the record after a conflict.
/// * A creation or a deletion can take effect after the call has failed or its future was dropped.
///
/// An implementation sees to this:
///
/// * The comparison and the change are one request to the store, and the store compares. A read and then a write without a condition are
///   not a `Store`, nor is a write with a condition that creates a record which is absent (a PUT of Kubernetes does).
/// * A repeated request carries the version that the caller named. An implementation does not read the record anew and try again.
/// * A creation is repeated only while the future of the call lives. A second request that is carried out after the record was created *and*
///   deleted creates it again: the call takes effect twice. (Of a member's record, the protocol recognizes that, and counts it as gone.)
/// * A conflict that a read cannot explain is an error: a record that `read` does not find and that cannot be created either.
/// * A version is compared for equality with what the store holds, and `read` is answered by the store, not by a cache.
pub trait Store: Send + Sync + 'static {
    /// A watch; dropping it ends it.
    type Watch: Watch;

    /// The record, or `None` if there is none.
    fn read(&self, record: &str) -> impl Future<Output = Result<Option<Stored>, StoreError>> + Send;

    /// Writes the record if it is at version `expected`, or, with `None`, if there is none.
    fn write(
        &self,
        record: &str,
        expected: Option<Version>,
        value: &[u8],
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Deletes the record if it is at version `expected`.
    fn delete(&self, record: &str, expected: Version) -> impl Future<Output = Result<Deleted, StoreError>> + Send;

    /// All records, and then their changes.
    fn watch(&self) -> impl Future<Output = Result<Self::Watch, StoreError>> + Send;
}

/// A watch, from [`Store::watch`].
pub trait Watch: Send + 'static {
    /// The next change; [`Change::All`] at first. After an error the watch is over, and another one is begun.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    fn next(&mut self) -> impl Future<Output = Result<Change, StoreError>> + Send;
}

/// The store could not be reached, or refused.
#[derive(Debug)]
pub struct StoreError {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// An error that `source` caused. `what` says what was tried.
    pub fn new(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }

    /// An error of its own.
    pub fn message(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
