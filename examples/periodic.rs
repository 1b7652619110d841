//! Periodic work: check each of some servers every few seconds, spread over the time, with a pause while one is down.
//!
//! ```text
//! cargo run --release --example periodic
//! ```
//!
//! A key schedules its own next run (`RequeueAfter`), so a slow check is never started twice, and a check that takes long pushes only its
//! own next one. The first runs are spread over one interval, so that not all servers are asked at the same moment. A server that is down
//! is asked less and less often (`Err`: the limiter's delays, twice as long each time); when it answers, its rhythm is the normal one
//! again. An `add` from elsewhere ("check it now") runs at once, and the `RequeueAfter` of that extra run takes the place of the one
//! before. With `DelayedAdd::Promote` it also drops the retry of a server that is down.

use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{DelayedAdd, Outcome, WorkQueue};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

fn main() -> std::io::Result<()> {
    let start = Instant::now();
    let backoff = ItemExponentialFailure::new(Duration::from_millis(50), Duration::from_secs(60));
    let queue = WorkQueue::<&str>::builder().rate_limiter(backoff).delayed_add(DelayedAdd::Promote).build();
    let checks = Arc::new(Mutex::new(BTreeMap::<_, Vec<_>>::new()));

    let log = Arc::clone(&checks);
    let workers = queue.workers().spawn(2, move |item| -> Result<Outcome, String> {
        let server = *item.key();
        let mut log = log.lock().unwrap();
        let checks = log.entry(server).or_default();
        let is_up = server != "db-3" || checks.len() >= 4;
        checks.push((start.elapsed().as_millis(), is_up));
        if is_up { Ok(Outcome::RequeueAfter(INTERVAL)) } else { Err(format!("{server} is down")) }
    })?;

    let servers = ["db-1", "db-2", "db-3", "db-4"];
    for (n, server) in (0..).zip(servers) {
        queue.add_after(server, n * INTERVAL / servers.len() as u32);
    }
    thread::sleep(Duration::from_millis(700));
    queue.add("db-1"); // now
    thread::sleep(Duration::from_millis(1300));
    let leftover = workers.drain(); // the next checks are delays, which a drain does not wait for
    let next = leftover.delayed.len() + leftover.refused.len(); // refused: the next check of a server that was checked meanwhile
    assert_eq!(next, servers.len(), "each server has its next check");

    let checks = checks.lock().unwrap();
    for (server, runs) in checks.iter() {
        let runs = runs.iter().map(|(at, is_up)| format!("{at}{}", if *is_up { "" } else { " (down)" }));
        println!("{server} at {} ms", runs.collect::<Vec<_>>().join(", "));
    }
    assert!(checks.values().all(|runs| runs.len() >= 2), "a busy machine may be late, but no server is forgotten");
    assert!(!checks["db-3"][0].1 && checks["db-1"][0].1);
    Ok(())
}
