//! A store in memory, for tests and for members of one process.

use super::{Change, Deleted, Store, StoreError, Stored, Version, Watch, Written};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// A [`Store`] in memory; clones share the records. For tests, and for members that live in one process.
///
/// # Examples
/// See [`Fleet`](crate::Fleet).
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    records: BTreeMap<String, Stored>,
    /// Of the last write.
    version: u64,
    watches: Vec<mpsc::UnboundedSender<Change>>,
}

impl Inner {
    fn tell(&mut self, change: &Change) {
        self.watches.retain(|watch| watch.send(change.clone()).is_ok());
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    type Watch = MemoryWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        Ok(self.lock().records.get(record).cloned())
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        let mut inner = self.lock();
        if inner.records.get(record).map(|stored| stored.version) != expected {
            return Ok(Written::Conflict);
        }
        inner.version += 1;
        let stored = Stored { value: value.to_vec(), version: Version(inner.version) };
        inner.tell(&Change::Put(record.to_owned(), stored.clone()));
        let version = stored.version;
        inner.records.insert(record.to_owned(), stored);
        Ok(Written::Done(version))
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        let mut inner = self.lock();
        if inner.records.get(record).is_none_or(|stored| stored.version != expected) {
            return Ok(Deleted::Conflict);
        }
        inner.records.remove(record);
        inner.tell(&Change::Deleted(record.to_owned()));
        Ok(Deleted::Done)
    }

    async fn watch(&self) -> Result<MemoryWatch, StoreError> {
        let (sender, changes) = mpsc::unbounded_channel();
        let mut inner = self.lock();
        let all = inner.records.iter().map(|(name, stored)| (name.clone(), stored.clone())).collect();
        sender.send(Change::All(all)).expect("the receiver is alive");
        inner.watches.push(sender);
        Ok(MemoryWatch { changes })
    }
}

/// The watch of a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryWatch {
    changes: mpsc::UnboundedReceiver<Change>,
}

impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        self.changes.recv().await.ok_or_else(|| StoreError::message("the store was dropped"))
    }
}
