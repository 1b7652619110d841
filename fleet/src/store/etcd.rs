//! Records in etcd: one key each, with transactions of one comparison.

use super::{Change, Deleted, Store, StoreError, Stored, Version, Watch, Written};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, Event, EventType, GetOptions, KeyValue, Txn, TxnOp,
    WatchOptions, WatchStream, Watcher,
};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A [`Store`] in etcd. Its records are the keys `<prefix>/<record>`; to see them: `etcdctl get --prefix <prefix>/`. Clones share the
/// connection.
///
/// No lease of etcd's is used. Stop all members before a backup of etcd is restored, or `etcd --force-new-cluster` is called: versions and
/// tokens go back with it.
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
///
/// # A password
/// [`connect_with`](Self::connect_with) keeps the options, with the user and the password. etcd gives a token for them, which ends: after
/// its time to live, with a restart of etcd, when users or roles are changed. Then the store connects anew, and the member goes on.
///
/// The user needs a role with the permission to read and write the prefix:
/// `etcdctl role grant-permission <role> --prefix=true readwrite <prefix>/`.
///
/// # TLS
/// [`etcd_client`] has TLS in a feature. Name the crate in your `Cargo.toml`, in the version of the re-export, to turn
/// it on: `etcd-client = { version = "0.16", features = ["tls"] }`. Then:
/// ```ignore
/// use keyqueue_fleet::etcd_client::{Certificate, Identity, TlsOptions};
///
/// let tls = TlsOptions::new()
///     .ca_certificate(Certificate::from_pem(std::fs::read("ca.crt")?))
///     .identity(Identity::from_pem(std::fs::read("tls.crt")?, std::fs::read("tls.key")?));
/// let options = EtcdStore::options().with_tls(tls);
/// let store = EtcdStore::connect_with(["https://etcd:2379"], options, "/fleets/checksums").await?;
/// ```
/// For certificates that are replaced on the disk, [`connect_by`](Self::connect_by) reads them again: if etcd has not answered for 5
/// seconds, the store makes another client.
///
/// # Compaction
/// etcd keeps all versions of a record until it compacts its history, and by default it never does. A renewal takes some 124 bytes. 100
/// members with the default lease write 30 times a second, which is some 320 MB a day. When etcd's quota (2 GB by default) is reached, all
/// writes fail, no member can renew its record, and the fleet stops. So start etcd with compaction:
/// `etcd --auto-compaction-mode=periodic --auto-compaction-retention=1h`. (The API server of Kubernetes compacts its own etcd.)
#[derive(Clone)]
pub struct EtcdStore {
    connection: Arc<Connection>,
    prefix: String,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn failed(what: &str) -> impl FnOnce(Error) -> StoreError + use<> {
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

type Connecting = Pin<Box<dyn Future<Output = Result<Client, StoreError>> + Send>>;

/// The client, and the function that makes another one.
///
/// `etcd_client` asks for a token once, when a client is made. So a client whose token has ended is replaced.
struct Connection {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    current: Mutex<Current>,
    /// Locked by the request that makes another client.
    next: tokio::sync::Mutex<Next>,
}

#[derive(Clone)]
struct Current {
    client: Client,
    /// How many clients were made before.
    number: u64,
    /// When the first request began of those that were not answered.
    unanswered_since: Option<Instant>,
}

struct Next {
    /// The client that is being made. A member waits for an answer for a sixth of a lease, and etcd may take longer to check a password.
    /// So it stays here if the request is dropped, and the next request waits on.
    pending: Option<Connecting>,
    /// When a client was made, or could not be made.
    tried: Instant,
}

/// The least time between two clients: each one costs etcd the check of a password, which takes some 100 ms of a processor.
const PAUSE: Duration = Duration::from_secs(1);
/// A client is replaced if no request was answered for this time. Its certificate may have ended, say.
const SILENCE: Duration = Duration::from_secs(5);

/// Whether another token may help. etcd has refused the request before it did anything. The texts are those after which etcd's own client,
/// in Go, asks for another token.
fn token_is_old(error: &Error) -> bool {
    const UNAUTHENTICATED: i32 = 16;
    let Error::GRpcStatus(status) = error else { return false };
    i32::from(status.code()) == UNAUTHENTICATED || says_token_is_old(status.message())
}

fn says_token_is_old(text: &str) -> bool {
    ["invalid auth token", "revision of auth store is old", "user name is empty"].iter().any(|old| text.contains(old))
}

impl Connection {
    async fn new(connect: Box<dyn Fn() -> Connecting + Send + Sync>) -> Result<Self, StoreError> {
        let client = connect().await?;
        Ok(Self {
            connect,
            current: Mutex::new(Current { client, number: 0, unanswered_since: None }),
            next: tokio::sync::Mutex::new(Next { pending: None, tried: Instant::now() }),
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client for a request that begins.
    fn begin(&self) -> Current {
        let mut current = self.current();
        current.unanswered_since.get_or_insert_with(Instant::now);
        current.clone()
    }

    /// Replaces the client of this number. Returns the current one, which is the same if another was made, or tried, within `pause`.
    async fn replace(&self, number: u64, pause: Duration) -> Result<Current, StoreError> {
        let mut next = self.next.lock().await;
        let current = self.current().clone();
        if current.number != number || next.pending.is_none() && next.tried.elapsed() < pause {
            return Ok(current);
        }
        let made = next.pending.get_or_insert_with(|| (self.connect)()).await;
        (next.pending, next.tried) = (None, Instant::now());
        let mut current = self.current();
        (current.client, current.number) = (made?, number + 1);
        Ok(current.clone())
    }
}

impl EtcdStore {
    /// Connects to the endpoints of one cluster, with the [default options](Self::options). All members of a fleet have the same prefix,
    /// and no other fleet has it.
    ///
    /// # Errors
    /// If an endpoint is no URL. That no endpoint answers is seen only later.
    pub async fn connect<E: AsRef<str>>(
        endpoints: impl AsRef<[E]>,
        prefix: impl Into<String>,
    ) -> Result<Self, StoreError> {
        Self::connect_with(endpoints, Self::options(), prefix).await
    }

    /// The default options, to which a user or TLS can be added: a connection whose peer has vanished is noticed within seconds, and a
    /// server that is cut off from the others ends its watches.
    pub fn options() -> ConnectOptions {
        // (etcd closes connections that ping more often than every five seconds.)
        ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_keep_alive(Duration::from_secs(6), Duration::from_secs(2))
            .with_require_leader(true)
    }

    /// Like [`connect`](Self::connect), with a [password](Self#a-password) or [TLS](Self#tls). The store keeps the options, and connects
    /// anew with them when its token has ended.
    ///
    /// # Errors
    /// If an endpoint is no URL; with a user, if etcd does not answer within 5 seconds or refuses the password.
    ///
    /// # Examples
    /// ```no_run
    /// use keyqueue_fleet::store::EtcdStore;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = EtcdStore::options().with_user("checksums", std::env::var("ETCD_PASSWORD")?);
    /// let store = EtcdStore::connect_with(["http://127.0.0.1:2379"], options, "/checksums").await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_with<E: AsRef<str>>(
        endpoints: impl AsRef<[E]>,
        options: ConnectOptions,
        prefix: impl Into<String>,
    ) -> Result<Self, StoreError> {
        let endpoints: Arc<[String]> = endpoints.as_ref().iter().map(|endpoint| endpoint.as_ref().to_owned()).collect();
        let connect = move || {
            let (endpoints, options) = (Arc::clone(&endpoints), options.clone());
            async move { Client::connect(&endpoints, Some(options)).await }
        };
        Self::connect_by(connect, prefix).await
    }

    /// Like [`connect`](Self::connect), with a function that makes a client: for passwords and certificates that change. It is called now,
    /// and again if etcd refuses the client's token, or has not answered for 5 seconds; at most once a second.
    ///
    /// # Errors
    /// If `connect` fails, or takes longer than 5 seconds.
    ///
    /// # Examples
    /// ```no_run
    /// use keyqueue_fleet::etcd_client::Client;
    /// use keyqueue_fleet::store::EtcdStore;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let connect = || async {
    ///     let password = std::fs::read_to_string("/run/secrets/etcd")?;
    ///     let options = EtcdStore::options().with_user("checksums", password);
    ///     Client::connect(["http://127.0.0.1:2379"], Some(options)).await
    /// };
    /// let store = EtcdStore::connect_by(connect, "/checksums").await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_by<F>(
        connect: impl Fn() -> F + Send + Sync + 'static,
        prefix: impl Into<String>,
    ) -> Result<Self, StoreError>
    where
        F: Future<Output = Result<Client, Error>> + Send + 'static,
    {
        let mut prefix = prefix.into();
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        let connect = move || -> Connecting {
            let client = connect();
            Box::pin(async move {
                let late = || StoreError::message(format!("etcd: connect: no answer within {SILENCE:?}"));
                timeout(SILENCE, client).await.map_err(|_| late())?.map_err(failed("connect"))
            })
        };
        let connection = Arc::new(Connection::new(Box::new(connect)).await?);
        Ok(Self { connection, prefix })
    }

    /// A request. It is sent again if etcd has refused it because of the client's token.
    async fn request<T, F>(&self, what: &str, send: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let connection = &self.connection;
        let mut current = connection.begin();
        if current.unanswered_since.is_some_and(|since| since.elapsed() >= SILENCE) {
            current = connection.replace(current.number, SILENCE).await?;
        }
        let mut answer = send(current.client).await;
        if answer.as_ref().is_err_and(token_is_old) {
            let renewed = connection.replace(current.number, PAUSE).await?;
            if renewed.number != current.number {
                answer = send(renewed.client).await;
            }
        }
        let answer = answer.map_err(failed(what))?;
        connection.current().unanswered_since = None;
        Ok(answer)
    }

    fn key(&self, record: &str) -> String {
        format!("{}{record}", self.prefix)
    }

    fn is_at(&self, record: &str, version: Option<Version>) -> Txn {
        let revision = version.map_or(0, revision);
        Txn::new().when([Compare::mod_revision(self.key(record), CompareOp::Equal, revision)])
    }

    async fn transact(&self, what: &str, txn: Txn) -> Result<etcd_client::TxnResponse, StoreError> {
        self.request(what, |client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })
        .await
    }
}

impl Store for EtcdStore {
    type Watch = EtcdWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        // Linearizable, as reads are unless one asks for others.
        let get = |client: Client| async move { client.kv_client().get(self.key(record), None).await };
        Ok(self.request("get", get).await?.kvs().first().map(stored))
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        let write = self.is_at(record, expected).and_then([TxnOp::put(self.key(record), value, None)]);
        let answer = self.transact("put", write).await?;
        if !answer.succeeded() {
            return Ok(Written::Conflict);
        }
        let header = answer.header().ok_or_else(|| StoreError::message("etcd: an answer without a header"))?;
        Ok(Written::Done(version(header.revision())))
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        let delete = self.is_at(record, Some(expected)).and_then([TxnOp::delete(self.key(record), None)]);
        let answer = self.transact("delete", delete).await?;
        Ok(if answer.succeeded() { Deleted::Done } else { Deleted::Conflict })
    }

    /// The list tells whether the token is old. (If it is new to the server that is listed, and old to the one that is watched, the watch
    /// stays silent: `etcd_client` does not tell that it was refused. Then the member begins another one, as its own renewals are not
    /// seen.)
    async fn watch(&self) -> Result<EtcdWatch, StoreError> {
        let prefix = self.prefix.as_str();
        let begin = |client: Client| async move {
            let all = GetOptions::new().with_prefix();
            let listed = client.kv_client().get(prefix, Some(all)).await?;
            let from = listed.header().map_or(0, |header| header.revision()) + 1;
            let options = WatchOptions::new().with_prefix().with_start_revision(from);
            let (watcher, stream) = client.watch_client().watch(prefix, Some(options)).await?;
            Ok((listed, watcher, stream))
        };
        let (listed, watcher, stream) = self.request("watch", begin).await?;
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
