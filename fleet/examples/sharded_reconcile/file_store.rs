//! A store in a folder, for processes of one machine: each record is a file, a lock makes each call one step, and the watch looks again every
//! 50 ms. And an example of a store of your own.

use keyqueue_fleet::store::{Change, Deleted, Store, StoreError, Stored, Version, Watch, Written};
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone)]
pub struct FileStore {
    folder: PathBuf,
}

fn failed(error: io::Error) -> StoreError {
    StoreError::new("folder", error)
}

impl FileStore {
    pub fn new(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder.join("records"))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self, record: &str) -> PathBuf {
        self.folder.join("records").join(record)
    }

    /// Runs `step` while no other process does. The lock ends with the file, and so with the process.
    fn locked<T>(&self, step: impl FnOnce() -> io::Result<T>) -> Result<T, StoreError> {
        let lock = File::create(self.folder.join("lock")).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        step().map_err(failed)
    }

    /// A file has the version in its first line, and the value after it.
    fn load(&self, record: &str) -> io::Result<Option<Stored>> {
        let text = match fs::read(self.path(record)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let end = text.iter().position(|byte| *byte == b'\n').ok_or(ErrorKind::InvalidData)?;
        let version =
            std::str::from_utf8(&text[..end]).ok().and_then(|text| text.parse().ok()).ok_or(ErrorKind::InvalidData)?;
        Ok(Some(Stored { value: text[end + 1..].to_vec(), version: Version(version) }))
    }

    fn next_version(&self) -> io::Result<u64> {
        let path = self.folder.join("version");
        let last = fs::read_to_string(&path).ok().and_then(|text| text.parse().ok()).unwrap_or(0_u64);
        self.replace(&path, format!("{}", last + 1).as_bytes())?;
        Ok(last + 1)
    }

    /// Writes a file so that a process that is killed meanwhile leaves the old one.
    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let new = self.folder.join("new");
        fs::write(&new, text)?;
        fs::rename(new, path)
    }

    fn all(&self) -> io::Result<BTreeMap<String, Stored>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(self.folder.join("records"))? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if let Some(stored) = self.load(&name)? {
                all.insert(name, stored);
            }
        }
        Ok(all)
    }
}

impl Store for FileStore {
    type Watch = FileWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        self.locked(|| self.load(record))
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        self.locked(|| {
            if self.load(record)?.map(|stored| stored.version) != expected {
                return Ok(Written::Conflict);
            }
            let version = self.next_version()?;
            self.replace(&self.path(record), &[format!("{version}\n").as_bytes(), value].concat())?;
            Ok(Written::Done(Version(version)))
        })
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        self.locked(|| {
            if self.load(record)?.is_none_or(|stored| stored.version != expected) {
                return Ok(Deleted::Conflict);
            }
            fs::remove_file(self.path(record))?;
            Ok(Deleted::Done)
        })
    }

    async fn watch(&self) -> Result<FileWatch, StoreError> {
        let known = self.locked(|| self.all())?;
        let all = known.iter().map(|(name, stored)| (name.clone(), stored.clone())).collect();
        Ok(FileWatch { store: self.clone(), known, changes: VecDeque::from([Change::All(all)]) })
    }
}

pub struct FileWatch {
    store: FileStore,
    known: BTreeMap<String, Stored>,
    changes: VecDeque<Change>,
}

impl Watch for FileWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.store.locked(|| self.store.all())?;
            let gone = self.known.keys().filter(|name| !now.contains_key(*name)).cloned().map(Change::Deleted);
            let new = now.iter().filter(|(name, stored)| self.known.get(*name) != Some(stored));
            self.changes.extend(gone.chain(new.map(|(name, stored)| Change::Put(name.clone(), stored.clone()))));
            self.known = now;
        }
    }
}
