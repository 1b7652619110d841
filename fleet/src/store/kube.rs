//! Records in Kubernetes: a Lease each, for operators, which have no other store.

use super::{Change, Deleted, Store, StoreError, Stored, Version, Watch, Written};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::{Client, ResourceExt};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

const FLEET: &str = "keyqueue.dev/fleet";
const RECORD: &str = "keyqueue.dev/record";

/// A [`Store`] in Kubernetes. Its records are the Leases `<fleet>.<record>` of one namespace, in the annotation `keyqueue.dev/record`; to
/// see them: `kubectl get leases -l keyqueue.dev/fleet=<fleet> -o yaml`.
///
/// Their times are not used, nor does Kubernetes delete them. A Lease whose deletion waits for finalizers counts as deleted, and its record
/// cannot be written until it is gone. The member needs the verbs get, list, watch, create, patch and delete for
/// `leases` of `coordination.k8s.io` in the namespace:
///
/// ```yaml
/// kind: Role
/// apiVersion: rbac.authorization.k8s.io/v1
/// metadata: { name: my-operator-fleet, namespace: my-operator }
/// rules:
///   - apiGroups: [coordination.k8s.io]
///     resources: [leases]
///     verbs: [get, list, watch, create, patch, delete]
/// ```
///
/// Without `patch` a member can join, but neither renew its record nor own a partition: `Stats::last_store_error` says so.
///
/// The client's own retries are not needed, because a member repeats what failed: `Config::default_retry` can be false. They do no harm
/// within what [`Store`] says of requests that are sent twice.
///
/// # Examples
/// ```no_run
/// use keyqueue::WorkQueue;
/// use keyqueue_fleet::Fleet;
/// use keyqueue_fleet::store::KubeStore;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = kube::Client::try_default().await?;
/// let store = KubeStore::new(client, "my-operator", "checksums");
/// let fleet = Fleet::builder(store).member(std::env::var("POD_NAME")?).build(WorkQueue::<String>::new()).await?;
/// # drop(fleet);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KubeStore {
    leases: Api<Lease>,
    fleet: String,
}

impl fmt::Debug for KubeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeStore").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

fn failed(what: &str) -> impl FnOnce(kube::Error) -> StoreError + use<> {
    let what = format!("kubernetes: {what}");
    move |error| StoreError::new(what, error)
}

/// Whether the object is at another version, or gone.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// Whether the Lease was deleted. A finalizer may keep it for some time.
fn is_deleted(lease: &Lease) -> bool {
    lease.metadata.deletion_timestamp.is_some()
}

fn version(lease: &Lease) -> Result<Version, StoreError> {
    let text = lease.resource_version().unwrap_or_default();
    let number =
        text.parse().map_err(|_| StoreError::message(format!("kubernetes: resourceVersion {text:?} is no number")))?;
    Ok(Version(number))
}

fn stored(lease: &Lease) -> Result<Stored, StoreError> {
    let value = lease.annotations().get(RECORD).cloned().unwrap_or_default().into_bytes();
    Ok(Stored { value, version: version(lease)? })
}

impl KubeStore {
    /// The Leases of `fleet` in `namespace`. `fleet` is part of their names and a label: at most 40 lower-case letters, digits and `-`. What
    /// is not is refused by the API server.
    pub fn new(client: Client, namespace: &str, fleet: impl Into<String>) -> Self {
        Self { leases: Api::namespaced(client, namespace), fleet: fleet.into() }
    }

    fn name(&self, record: &str) -> String {
        format!("{}.{record}", self.fleet)
    }

    fn record(&self, lease: &Lease) -> Option<String> {
        Some(lease.metadata.name.as_ref()?.strip_prefix(&self.fleet)?.strip_prefix('.')?.to_owned())
    }

    fn lease(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Lease {
        let text = String::from_utf8_lossy(value).into_owned();
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name(record)),
                labels: Some(BTreeMap::from([(FLEET.to_owned(), self.fleet.clone())])),
                annotations: Some(BTreeMap::from([(RECORD.to_owned(), text)])),
                resource_version: expected.map(|version| version.0.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec { holder_identity: Some(record.to_owned()), ..LeaseSpec::default() }),
        }
    }

    fn selector(&self) -> String {
        format!("{FLEET}={}", self.fleet)
    }

    /// A Lease of this name exists. If its deletion has begun, no member can read or write the record: that is an error, and not a
    /// conflict, after which a member would read the record.
    async fn exists(&self, record: &str) -> Result<Written, StoreError> {
        let name = self.name(record);
        match self.leases.get_opt(&name).await.map_err(failed("get"))? {
            Some(lease) if is_deleted(&lease) => Err(StoreError::message(format!(
                "kubernetes: write: the Lease {name} is being deleted and waits for its finalizers"
            ))),
            _ => Ok(Written::Conflict),
        }
    }

    async fn watch_from(&self, version: &str) -> Result<Changes, StoreError> {
        let parameters = WatchParams::default().labels(&self.selector());
        Ok(self.leases.watch(&parameters, version).await.map_err(failed("watch"))?.boxed())
    }
}

impl Store for KubeStore {
    type Watch = KubeWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        // Without a resourceVersion the answer is the latest state, not a cache's.
        let lease = self.leases.get_opt(&self.name(record)).await.map_err(failed("get"))?;
        lease.filter(|lease| !is_deleted(lease)).map(|lease| stored(&lease)).transpose()
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        let lease = self.lease(record, expected, value);
        let answer = match expected {
            None => self.leases.create(&PostParams::default(), &lease).await,
            // Not a PUT: that creates a Lease which has been deleted, whatever version it names.
            Some(_) => self.leases.patch(&self.name(record), &PatchParams::default(), &Patch::Merge(&lease)).await,
        };
        match (answer, expected) {
            (Ok(lease), _) if is_deleted(&lease) => Ok(Written::Conflict), // no member reads it
            (Ok(lease), _) => Ok(Written::Done(version(&lease)?)),
            (Err(kube::Error::Api(status)), None) if status.code == 409 => self.exists(record).await,
            // (A creation with 404 is an error: the namespace does not exist.)
            (Err(error), Some(_)) if is_conflict(&error) => Ok(Written::Conflict),
            (Err(error), _) => Err(failed("write")(error)),
        }
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        let preconditions = Preconditions { resource_version: Some(expected.0.to_string()), uid: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.leases.delete(&self.name(record), &parameters).await.map(|answer| answer.left()) {
            // Its deletion had begun before: one that begins with this request makes a new version.
            Ok(Some(lease)) if is_deleted(&lease) && version(&lease)? == expected => Ok(Deleted::Conflict),
            Ok(_) => Ok(Deleted::Done),
            Err(error) if is_conflict(&error) => Ok(Deleted::Conflict),
            Err(error) => Err(failed("delete")(error)),
        }
    }

    async fn watch(&self) -> Result<KubeWatch, StoreError> {
        let listed = self.leases.list(&ListParams::default().labels(&self.selector())).await.map_err(failed("list"))?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let mut records = Vec::new();
        for lease in listed.items.iter().filter(|lease| !is_deleted(lease)) {
            if let Some(record) = self.record(lease) {
                records.push((record, stored(lease)?));
            }
        }
        let stream = self.watch_from(&version).await?;
        Ok(KubeWatch {
            store: self.clone(),
            stream,
            begun: Instant::now(),
            version,
            changes: VecDeque::from([Change::All(records)]),
        })
    }
}

type Changes = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

/// The watch of a [`KubeStore`].
pub struct KubeWatch {
    store: KubeStore,
    stream: Changes,
    begun: Instant,
    /// Of the last event: the API server ends each watch after some minutes, and the next one begins here.
    version: String,
    changes: VecDeque<Change>,
}

impl fmt::Debug for KubeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeWatch").finish_non_exhaustive()
    }
}

impl Watch for KubeWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let Some(event) = self.stream.next().await else {
                if self.begun.elapsed() < Duration::from_millis(500) {
                    return Err(StoreError::message("kubernetes: the watch ended at once")); // the caller pauses
                }
                self.begun = Instant::now();
                self.stream = self.store.watch_from(&self.version).await?;
                continue;
            };
            let (lease, deleted) = match event.map_err(failed("watch"))? {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    let deleted = is_deleted(&lease);
                    (lease, deleted)
                }
                WatchEvent::Deleted(lease) => (lease, true),
                WatchEvent::Bookmark(bookmark) => {
                    self.version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => {
                    return Err(StoreError::message(format!("kubernetes: watch: {}", error.message)));
                }
            };
            self.version = lease.resource_version().unwrap_or_default();
            if let Some(record) = self.store.record(&lease) {
                let change = if deleted { Change::Deleted(record) } else { Change::Put(record, stored(&lease)?) };
                self.changes.push_back(change);
            }
        }
    }
}
