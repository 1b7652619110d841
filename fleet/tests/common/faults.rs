//! A store that is slow, loses requests and answers, and can be cut off, and a seed that decides when.
#![allow(unreachable_pub)]

use keyqueue_fleet::store::{Change, Deleted, MemoryStore, Store, StoreError, Stored, Version, Watch, Written};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// What a member sees of a [`MemoryStore`].
#[derive(Clone)]
pub struct Faulty {
    pub store: MemoryStore,
    pub cut_off: Arc<AtomicBool>,
    /// Whether requests are slow and get lost.
    pub unreliable: Arc<AtomicBool>,
    pub random: Arc<Mutex<fastrand::Rng>>,
}

fn lost() -> StoreError {
    StoreError::message("lost")
}

impl Faulty {
    fn roll(&self, one_in: u32) -> bool {
        self.unreliable.load(Ordering::Relaxed) && self.random.lock().unwrap().u32(..one_in) == 0
    }

    async fn travel(&self) {
        let mut time = self.random.lock().unwrap().u64(..5);
        if self.roll(10) {
            time = self.random.lock().unwrap().u64(..4000);
        }
        sleep(Duration::from_millis(time)).await;
        while self.cut_off.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// A request travels, is carried out, and its answer travels. It goes on if the caller stops waiting.
    async fn call<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let faulty = self.clone();
        let task = tokio::spawn(async move {
            faulty.travel().await;
            if faulty.roll(20) {
                return Err(lost());
            }
            let answer = request.await;
            faulty.travel().await;
            if faulty.roll(20) { Err(lost()) } else { answer }
        });
        task.await.unwrap()
    }
}

impl Store for Faulty {
    type Watch = FaultyWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        let (store, record) = (self.store.clone(), record.to_owned());
        self.call(async move { store.read(&record).await }).await
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        let (store, record, value) = (self.store.clone(), record.to_owned(), value.to_vec());
        self.call(async move { store.write(&record, expected, &value).await }).await
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        let (store, record) = (self.store.clone(), record.to_owned());
        self.call(async move { store.delete(&record, expected).await }).await
    }

    async fn watch(&self) -> Result<FaultyWatch, StoreError> {
        self.travel().await;
        Ok(FaultyWatch { watch: self.store.watch().await?, faulty: self.clone(), next: None })
    }
}

pub struct FaultyWatch {
    watch: <MemoryStore as Store>::Watch,
    faulty: Faulty,
    /// On its way.
    next: Option<Change>,
}

impl Watch for FaultyWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        if self.next.is_none() {
            self.next = Some(self.watch.next().await?);
        }
        self.faulty.travel().await;
        if self.faulty.roll(50) {
            return Err(lost());
        }
        Ok(self.next.take().expect("it is there"))
    }
}
