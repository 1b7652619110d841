//! A replica: all keys are always to be processed, and each run is logged.

use crate::log::{Line, Log, now};
use crate::{GRACE, LEASE, Options};
use keyqueue::{AddOptions, Outcome, WorkQueue};
use keyqueue_fleet::store::EtcdStore;
use keyqueue_fleet::{Event, Fleet, Held};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
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

pub async fn run(name: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let log = Arc::new(Log::append(Path::new(&options.log))?);
    let store = EtcdStore::connect([options.endpoint.as_str()], "/chaos").await?;
    let fleet = Fleet::builder(store)
        .member(name)
        .partitions(32)
        .lease(LEASE)
        .grace(GRACE)
        .mutant(options.mutant.map(Into::into))
        .build(WorkQueue::<u64>::new())
        .await?;

    let workers = fleet.workers();
    for _ in 0..32 {
        let log = log.clone();
        tokio::spawn(workers.run(async move |held: &Held<'_, u64>| {
            let key = *held.key();
            log.write(Line::Start { key, token: held.token(), at: now() });
            let _run = Run { log: &log, key };
            sleep(duration()).await;
            Outcome::RequeueWith(AddOptions::new())
        }));
    }
    let (lister, mut events, keys) = (fleet.clone(), fleet.events(), options.keys);
    tokio::spawn(async move {
        loop {
            let events = events.next_many().await;
            if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
                (0..keys).for_each(|key| _ = lister.add(key));
            }
            if events.is_empty() {
                return;
            }
        }
    });

    // The parent's end of the pipe closes if it ends, however it ends.
    let mut parent = tokio::io::stdin();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {
            log.write(Line::Owned { partitions: fleet.owned().len() as u64 });
            let _left = timeout(Duration::from_secs(8), fleet.leave()).await;
        }
        _ = parent.read_u8() => {}
    }
    Ok(())
}
