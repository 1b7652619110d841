//! Records in etcd: one key each, with transactions of one comparison.

use super::{Change, Deleted, Store, StoreError, Stored, Version, Watch, Written};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Event, EventType, GetOptions, KeyValue, Txn, TxnOp, WatchOptions,
    WatchStream, Watcher,
};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A [`Store`] in etcd. Its records are the keys `<prefix>/<record>`; to see them: `etcdctl get --prefix <prefix>/`.
///
/// No lease of etcd's is used. Stop all members before a backup of etcd is restored: versions and tokens go back with it.
///
/// # Examples
/// ```no_run
/// use keyqueue::WorkQueue;
/// use keyqueue_fleet::Fleet;
/// use keyqueue_fleet::store::EtcdStore;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EtcdStore::connect(["http://127.0.0.1:2379"], "/fleets/checksums").await?;
/// let fleet = Fleet::builder(store).member("pod-1").build(WorkQueue::<String>::new()).await?;
/// # drop(fleet);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EtcdStore {
    client: Client,
    prefix: String,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn failed(what: &str) -> impl FnOnce(etcd_client::Error) -> StoreError + use<> {
    let what = format!("etcd: {what}");
    move |error| StoreError::new(what, error)
}

/// etcd's versions of keys are positive; 0 stands for no key.
fn revision(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
}

fn version(revision: i64) -> Version {
    Version(u64::try_from(revision).unwrap_or(0))
}

impl EtcdStore {
    /// Connects to the endpoints of one cluster. All members of a fleet have the same prefix, and no other fleet has it.
    ///
    /// # Errors
    /// If an endpoint is no URL. That no endpoint answers is seen only later.
    pub async fn connect<E: AsRef<str>>(
        endpoints: impl AsRef<[E]>,
        prefix: impl Into<String>,
    ) -> Result<Self, StoreError> {
        // A connection whose peer has vanished is noticed within seconds. (etcd closes connections that ping more often than every five.)
        // A server that is cut off from the others ends its watches.
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_keep_alive(Duration::from_secs(6), Duration::from_secs(2))
            .with_require_leader(true);
        let client = Client::connect(endpoints, Some(options)).await.map_err(failed("connect"))?;
        Ok(Self::new(client, prefix))
    }

    /// With a client of your own: for TLS, or a password.
    pub fn new(client: Client, prefix: impl Into<String>) -> Self {
        let mut prefix = prefix.into();
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        Self { client, prefix }
    }

    fn key(&self, record: &str) -> String {
        format!("{}{record}", self.prefix)
    }

    fn is_at(&self, record: &str, version: Option<Version>) -> Txn {
        let revision = version.map_or(0, revision);
        Txn::new().when([Compare::mod_revision(self.key(record), CompareOp::Equal, revision)])
    }
}

impl Store for EtcdStore {
    type Watch = EtcdWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        // Linearizable, as reads are unless one asks for others.
        let answer = self.client.kv_client().get(self.key(record), None).await.map_err(failed("get"))?;
        Ok(answer.kvs().first().map(stored))
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        let write = self.is_at(record, expected).and_then([TxnOp::put(self.key(record), value, None)]);
        let answer = self.client.kv_client().txn(write).await.map_err(failed("put"))?;
        if !answer.succeeded() {
            return Ok(Written::Conflict);
        }
        let header = answer.header().ok_or_else(|| StoreError::message("etcd: an answer without a header"))?;
        Ok(Written::Done(version(header.revision())))
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        let delete = self.is_at(record, Some(expected)).and_then([TxnOp::delete(self.key(record), None)]);
        let answer = self.client.kv_client().txn(delete).await.map_err(failed("delete"))?;
        Ok(if answer.succeeded() { Deleted::Done } else { Deleted::Conflict })
    }

    async fn watch(&self) -> Result<EtcdWatch, StoreError> {
        let all = GetOptions::new().with_prefix();
        let listed = self.client.kv_client().get(self.prefix.as_str(), Some(all)).await.map_err(failed("list"))?;
        let from = listed.header().map_or(0, |header| header.revision()) + 1;
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        let (watcher, stream) =
            self.client.watch_client().watch(self.prefix.as_str(), Some(options)).await.map_err(failed("watch"))?;
        let records = listed.kvs().iter().filter_map(|kv| Some((self.record(kv)?, stored(kv)))).collect();
        let changes = VecDeque::from([Change::All(records)]);
        Ok(EtcdWatch { store: self.clone(), _watcher: watcher, stream, changes })
    }
}

impl EtcdStore {
    fn record(&self, kv: &KeyValue) -> Option<String> {
        // Another fleet may have a longer prefix.
        Some(kv.key_str().ok()?.strip_prefix(&self.prefix)?.to_owned()).filter(|record| !record.contains('/'))
    }
}

fn stored(kv: &KeyValue) -> Stored {
    Stored { value: kv.value().to_vec(), version: version(kv.mod_revision()) }
}

/// The watch of an [`EtcdStore`].
pub struct EtcdWatch {
    store: EtcdStore,
    /// Dropping it ends the watch.
    _watcher: Watcher,
    stream: WatchStream,
    changes: VecDeque<Change>,
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdWatch").finish_non_exhaustive()
    }
}

impl EtcdWatch {
    fn change(&self, event: &Event) -> Option<Change> {
        let kv = event.kv()?;
        let record = self.store.record(kv)?;
        Some(match event.event_type() {
            EventType::Put => Change::Put(record, stored(kv)),
            EventType::Delete => Change::Deleted(record),
        })
    }
}

impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let message = self.stream.message().await.map_err(failed("watch"))?;
            let message = message.ok_or_else(|| StoreError::message("etcd: the watch has ended"))?;
            if message.canceled() {
                return Err(StoreError::message(format!("etcd: the watch was cancelled: {}", message.cancel_reason())));
            }
            let changes: Vec<_> = message.events().iter().filter_map(|event| self.change(event)).collect();
            self.changes.extend(changes);
        }
    }
}
