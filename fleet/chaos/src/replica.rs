//! A replica: all keys are always to be processed, and each run is logged.

use crate::log::{Line, Log, now};
use crate::{GRACE, LATE, LEASE, Options, PARTITIONS};
use keyqueue::{AddOptions, Outcome, WorkQueue};
use keyqueue_fleet::store::{Deleted, EtcdStore, StoreError, Stored, Version, Written};
use keyqueue_fleet::{Event, Fleet, FleetError, Store};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

struct Run<'a> {
    log: &'a Log,
    key: u64,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.log.write(Line::End { key: self.key, at: now() });
    }
}

/// Most runs are short. One in ten takes up to three times as long as it takes others to notice that a replica is silent: with
/// short ones alone, even broken protocols show no overlaps.
fn duration() -> Duration {
    Duration::from_millis(if fastrand::u8(..10) == 0 { fastrand::u64(..4500) } else { fastrand::u64(1..100) })
}

/// The store, of which one answer to a renewal is processed late.
///
/// An answer that the network delays does not do: the member waits for one for a sixth of a lease, and a timer of a process that was stopped
/// comes before the answer that has arrived meanwhile. Here the thread that has got the answer stands still, as one does that the
/// system does not run; the others go on.
struct LateStore {
    store: EtcdStore,
    late: Arc<AtomicBool>,
}

impl Store for LateStore {
    type Watch = <EtcdStore as Store>::Watch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        self.store.read(record).await
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        let answer = self.store.write(record, expected, value).await;
        if record.starts_with("member-")
            && matches!(answer, Ok(Written::Done(_)))
            && self.late.swap(false, Ordering::Relaxed)
        {
            block_in_place(|| std::thread::sleep(LATE));
        }
        answer
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        self.store.delete(record, expected).await
    }

    async fn watch(&self) -> Result<Self::Watch, StoreError> {
        self.store.watch().await
    }
}

/// Joins; tries again if etcd cannot be reached.
async fn join(name: &str, options: &Options, late: &Arc<AtomicBool>) -> Result<Fleet<u64>, Box<dyn Error>> {
    loop {
        let store = EtcdStore::connect([options.endpoint.as_str()], "/chaos").await?;
        let joined = Fleet::builder(LateStore { store, late: late.clone() })
            .member(name)
            .partitions(PARTITIONS)
            .lease(LEASE)
            .grace(GRACE)
            .mutant(options.mutant.map(Into::into))
            .build(WorkQueue::<u64>::new())
            .await;
        match joined {
            Err(FleetError::Store(error)) => eprintln!("{name} cannot join yet: {error}"),
            joined => return Ok(joined?),
        }
    }
}

/// Runs until `SIGTERM`, and leaves.
pub async fn run(name: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let log = Arc::new(Log::append(Path::new(&options.log))?);
    let (mut terminate, mut be_late) = (signal(SignalKind::terminate())?, signal(SignalKind::user_defined1())?);
    log.write(Line::Ready); // before that, a signal would end the process
    let late = Arc::new(AtomicBool::new(false));
    let fleet = tokio::select! {
        fleet = join(name, options, &late) => fleet?,
        _ = terminate.recv() => return Ok(()),
    };

    let workers = fleet.workers().build();
    for _ in 0..32 {
        let log = log.clone();
        tokio::spawn(workers.run_async(async move |held| {
            let key = **held;
            log.write(Line::Start { key, token: held.token(), at: now() });
            let _run = Run { log: &log, key };
            sleep(duration()).await;
            Outcome::RequeueWith(AddOptions::new())
        }));
    }
    let (lister, mut events, keys) = (fleet.clone(), fleet.events(), options.keys);
    let mut listing = tokio::spawn(async move {
        loop {
            let events = events.next_many().await;
            for event in &events {
                match *event {
                    Event::Acquired(partition) => log.write(Line::Acquired { partition }),
                    Event::Released(partition) | Event::Lost(partition) => log.write(Line::Gone { partition }),
                }
            }
            if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
                (0..keys).for_each(|key| _ = lister.add(key));
            }
            if events.is_empty() {
                return;
            }
        }
    });

    loop {
        tokio::select! {
            _ = terminate.recv() => {
                return Ok(timeout(Duration::from_secs(8), fleet.leave()).await.map_err(|_| "the replica could not leave within 8 s")?);
            }
            _ = be_late.recv() => late.store(true, Ordering::Relaxed),
            _ = &mut listing => return Err("the member has ended by itself".into()),
        }
    }
}
