//! What the handle, the workers and the member's task share.

use crate::clock::LeaseClock;
use crate::error::FleetError;
use crate::events::{Event, Hub};
use crate::gate::{Gates, LastOut};
use crate::hash::{StableHasher, mix, partition_of};
use crate::protocol::member::{Notice, Time};
use crate::stats::Measured;
use crate::store::StoreError;
use keyqueue::WorkQueue;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// How far a member has come.
#[derive(Debug, Clone)]
pub(crate) enum Status {
    Joining,
    Joined,
    Left,
    Refused(Arc<FleetError>),
}

pub(crate) type HashKey<K> = Box<dyn Fn(&K, &mut StableHasher) + Send + Sync>;

/// What [`Fleet::health`](crate::Fleet::health) and the member's task measure by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) lease: Time,
    pub(crate) grace: Time,
    /// How long a release may take before handlers are told.
    pub(crate) release: Option<Time>,
}

pub(crate) struct Shared<K> {
    pub(crate) queue: WorkQueue<K>,
    pub(crate) gates: Gates,
    pub(crate) clock: LeaseClock,
    pub(crate) limits: Limits,
    pub(crate) hash: HashKey<K>,
    /// Whether a partition is a range of the hashes themselves.
    pub(crate) fnv_ranges: bool,
    /// Wakes the member's task: a gate became empty, or the member shall leave.
    pub(crate) wake: Notify,
    /// Wakes holders: some of them were told to stop.
    pub(crate) lost: Notify,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) stats: Locked<Measured>,
    pub(crate) refused: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) leaving: AtomicBool,
    pub(crate) hub: Locked<Hub>,
    pub(crate) last_error: Locked<Option<StoreError>>,
    pub(crate) errors: AtomicU64,
    /// Since when each request has failed, or each watch, by the member's clock. 0: the last one has not.
    pub(crate) requests_fail_since: AtomicU64,
    pub(crate) watch_fails_since: AtomicU64,
    /// Loops of workers that run, and whether there has been one.
    pub(crate) loops: AtomicUsize,
    pub(crate) had_loops: AtomicBool,
    /// Requests that the store has answered.
    pub(crate) answers: AtomicU64,
    /// Writes of the member's own record that failed.
    pub(crate) own_errors: AtomicU64,
}

impl<K> Shared<K> {
    #[inline]
    pub(crate) fn partition(&self, key: &K) -> u32 {
        let mut hasher = StableHasher::new();
        (self.hash)(key, &mut hasher);
        let hash = hasher.finish();
        partition_of(if self.fnv_ranges { hash } else { mix(hash) }, self.gates.len())
    }

    #[inline]
    pub(crate) fn after_leaving(&self, last: LastOut) {
        if last.0 {
            self.wake.notify_one();
        }
    }

    /// Waits until the member's task has ended: it has left, was refused, or its last handle was dropped.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + use<K> {
        let mut status = self.status.subscribe();
        async move {
            // Err: all that shares the status is dropped.
            let _ended = status.wait_for(|status| matches!(status, Status::Left | Status::Refused(_))).await;
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Notes how a request or a watch went.
    pub(crate) fn note(&self, fails_since: &AtomicU64, error: Option<StoreError>) {
        if error.is_none() {
            return fails_since.store(0, Ordering::Relaxed);
        }
        if fails_since.load(Ordering::Relaxed) == 0 {
            fails_since.store(self.clock.now().max(1), Ordering::Relaxed);
        }
        error.into_iter().for_each(|error| self.note_error(error));
    }

    /// Counts an error that is no answer of the store: a record that cannot be read.
    pub(crate) fn note_error(&self, error: StoreError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(error);
    }

    pub(crate) fn tell(&self, notices: &[Notice]) {
        if notices.iter().any(|notice| matches!(notice, Notice::Lost(_))) {
            self.lost.notify_waiters();
        }
        let mut hub = self.hub.lock();
        for notice in notices {
            hub.tell(match *notice {
                Notice::Acquired(partition) => Event::Acquired(partition),
                Notice::Released(partition) => Event::Released(partition),
                Notice::Lost(partition) => Event::Lost(partition),
            });
        }
    }
}

/// A mutex whose data is valid after a panic.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
