//! A sync service of 200 tenants, each of whose objects is fetched from a remote that has limits.
//!
//! ```text
//! cargo run --release --example tenants
//! ```
//!
//! A tenant gets 5 requests a second with bursts of 10, and two at a time (`group_limits`). If the remote answers 429, the whole tenant is
//! left alone until the time that its `Retry-After` says (`Outcome::PauseGroup`). One tenant has 100 000 objects, and delays no other,
//! because tenants take turns. A user who asks for a sync now gets it within a second, because the object goes before the rest of its
//! tenant (`Priority::HIGH`). No worker waits for a token or for the end of a pause, so 64 tasks are enough for 200 tenants.
//!
//! The remote is simulated, and keeps a log. The program runs for eight seconds, in which only some of the large tenant's objects can be
//! synced, and fails if a promise is broken.

use keyqueue::{AddOptions, GroupLimits, Outcome, Priority, WorkQueue};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const TENANTS: u32 = 200;
const LARGE: u32 = 3;
const RATE: f64 = 5.0;
const BURST: u32 = 10;
const IN_FLIGHT: usize = 2;
const RETRY_AFTER: Duration = Duration::from_millis(1500);
/// What the log forgives, because a task may wait this time for its next step on a busy machine.
const SLACK: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Object {
    tenant: u32,
    number: u32,
}

#[tokio::main]
async fn main() {
    let queue = WorkQueue::builder()
        .fair_by(|object: &Object| object.tenant)
        .group_limits(|_| GroupLimits::new().max_processing(IN_FLIGHT).rate(RATE, BURST))
        .build();
    let remote = Arc::new(Remote::default());
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let waits = Arc::new(Mutex::new(Vec::new()));

    let workers = queue.workers().build();
    for _ in 0..64 {
        let (remote, asked, waits) = (Arc::clone(&remote), Arc::clone(&asked), Arc::clone(&waits));
        tokio::spawn(workers.run_async(async move |object| {
            let asked_at: Option<Instant> = asked.lock().unwrap().remove(object.key());
            if let Some(asked_at) = asked_at {
                waits.lock().unwrap().push(asked_at.elapsed());
            }
            remote
                .fetch(object.tenant)
                .await
                .map_err(|TooMany { delay }| Outcome::PauseGroup { delay, error: "429".into() })
        }));
    }

    let start = Instant::now();
    for tenant in 0..TENANTS {
        let objects = if tenant == LARGE { 100_000 } else { 60 };
        queue.add_all((0..objects).map(|number| Object { tenant, number }));
    }
    // Tenants whose remote answers 429 now and then are left out, because a user of such a tenant has to wait for the end of the pause.
    for n in 0..70 {
        sleep(Duration::from_millis(100)).await;
        let object = Object { tenant: n * 4 % TENANTS, number: 59 };
        asked.lock().unwrap().entry(object).or_insert_with(Instant::now);
        queue.add_with(object, AddOptions::new().priority(Priority::HIGH));
    }
    sleep(Duration::from_secs(1)).await;
    let time = start.elapsed();
    let left = workers.stop();

    let log = remote.tenants.lock().unwrap();
    let requests: usize = log.values().map(|tenant| tenant.begun.len()).sum();
    let pauses: usize = log.values().map(|tenant| tenant.refused.len()).sum();
    let most = log.values().map(|tenant| tenant.most).max().unwrap();
    let in_pauses: usize = log.values().map(Tenant::in_pauses).sum();
    let mut waits = waits.lock().unwrap();
    waits.sort_unstable();
    let [p50, p99] = [50, 99].map(|percent| waits[(waits.len() - 1) * percent / 100]);
    println!(
        "{requests} requests, {:.0} a second, {most} in flight of a tenant at most",
        requests as f64 / time.as_secs_f64()
    );
    println!("{} times sync now: wait p50 {p50:.0?}, p99 {p99:.0?}", waits.len());
    println!(
        "{pauses} answers were 429, {in_pauses} requests came in the pauses; {} objects are left",
        left.queued.len()
    );

    assert!(most <= IN_FLIGHT, "a tenant had {most} requests in flight");
    assert!(log.values().all(Tenant::keeps_rate), "a tenant had more requests than its rate allows");
    assert!(pauses > 0 && in_pauses == 0, "{in_pauses} requests during Retry-After, in {pauses} pauses");
    assert!(asked.lock().unwrap().is_empty() && p99 < Duration::from_secs(1), "sync now takes too long");
    assert_eq!(log.len(), TENANTS as usize, "a tenant was never served");
}

/// The simulated remote, and its log of each tenant.
#[derive(Default)]
struct Remote {
    tenants: Mutex<HashMap<u32, Tenant>>,
}

#[derive(Default)]
struct Tenant {
    begun: Vec<Instant>,
    refused: Vec<Instant>,
    in_flight: usize,
    most: usize,
}

/// The answer 429.
struct TooMany {
    delay: Duration,
}

impl Remote {
    async fn fetch(&self, tenant: u32) -> Result<(), TooMany> {
        let number = {
            let mut tenants = self.tenants.lock().unwrap();
            let log = tenants.entry(tenant).or_default();
            log.begun.push(Instant::now());
            log.in_flight += 1;
            log.most = log.most.max(log.in_flight);
            log.begun.len()
        };
        sleep(Duration::from_millis(20)).await;
        let mut tenants = self.tenants.lock().unwrap();
        let log = tenants.get_mut(&tenant).unwrap();
        log.in_flight -= 1;
        if tenant % 4 == 3 && number % 8 == 0 {
            log.refused.push(Instant::now());
            return Err(TooMany { delay: RETRY_AFTER });
        }
        Ok(())
    }
}

impl Tenant {
    /// Requests that began during `Retry-After`. Those that were in flight at the 429 began before it.
    fn in_pauses(&self) -> usize {
        let is_early =
            |begun: &&Instant| self.refused.iter().any(|&at| at + SLACK < **begun && **begun < at + RETRY_AFTER);
        self.begun.iter().filter(is_early).count()
    }

    /// Whether no span of time has more than `BURST + RATE * span` requests.
    fn keeps_rate(&self) -> bool {
        self.begun.iter().enumerate().all(|(first, &from)| {
            let spans = self.begun[first..].iter().map(|&to| (to - from + SLACK).as_secs_f64());
            spans.zip(1..).all(|(span, requests)| f64::from(requests) <= f64::from(BURST) + RATE * span)
        })
    }
}
