//! Waiting costs nothing (P16): while all deadlines are far ahead, no thread of the process runs, not even for a moment. Nor does the
//! thread of a queue whose observer has an interval, after its last report.
//!
//! The test has a binary of its own, because it checks every thread of the process. Linux only; skipped elsewhere.

use keyqueue::observe::{Metrics, Observer};
use keyqueue::{AddOptions, DelayConflict, WorkQueue};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than a report takes to come.
const LONG: Duration = Duration::from_secs(60);

/// The context switches of each thread of the process, by name and number, without the calling thread and the test harness's.
fn switches() -> BTreeMap<String, u64> {
    let me = std::fs::read_link("/proc/thread-self").expect("this is Linux");
    let others = std::fs::read_dir("/proc/self/task").expect("this is Linux").map(|task| task.unwrap().path());
    let others = others.filter(|task| {
        let number = task.file_name().unwrap();
        number != me.file_name().unwrap() && *number != *std::process::id().to_string()
    });
    let switches = |task: &Path| {
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let lines = status.lines().filter(|line| line.contains("voluntary_ctxt_switches"));
        Some(lines.map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum())
    };
    let name = |task: &Path| {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        Some(format!("{} ({})", comm.trim(), task.file_name()?.to_string_lossy()))
    };
    // A thread may end meanwhile.
    others.filter_map(|task| Some((name(&task)?, switches(&task)?))).collect()
}

/// An observer with a short interval, which sends the number of keys that are processing.
struct Reports(mpsc::Sender<usize>);

impl Observer for Reports {
    fn report(&self, _: &str, metrics: &Metrics) {
        _ = self.0.send(metrics.stats.processing);
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }
}

#[test]
fn far_delays_and_an_interval_cost_nothing() {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: threads are counted through /proc");
        return;
    }
    let (send, reports) = mpsc::channel();
    let observed = WorkQueue::builder().observer(Reports(send)).build();
    observed.add(0);
    let item = observed.get().unwrap();
    (0..3).for_each(|_| assert_eq!(reports.recv_timeout(LONG), Ok(1)));
    item.done();
    while reports.recv_timeout(LONG).unwrap() > 0 {}

    let queue = WorkQueue::new();
    thread::scope(|s| {
        let getters: Vec<_> = (0..3)
            .map(|n| {
                let name = thread::Builder::new().name(format!("getter-{n}"));
                name.spawn_scoped(s, || queue.get().is_none()).unwrap()
            })
            .collect();
        // A key with frequent events: each event restarts its delay.
        let quiet = AddOptions::new().conflict(DelayConflict::Replace);
        for _ in 0..10_000 {
            queue.add_with(0, quiet.after(Duration::from_millis(500)));
        }
        for n in 0..10_000 {
            queue.add_with(0, quiet.after(HOUR + Duration::from_nanos(n * n)));
        }
        queue.add_after(1, HOUR);
        queue.add_after(2, HOUR * 240);
        queue.add_after(3, Duration::MAX);
        queue.add_after(4, Duration::from_millis(300));
        assert!(queue.cancel(&4));

        // A delay that was moved or cancelled may still wake the driver, once.
        thread::sleep(Duration::from_millis(700));
        let stats = queue.stats();
        let mut before = switches();
        let names: Vec<_> = before.keys().map(|name| name.split(' ').next().unwrap().to_owned()).collect();
        // On a busy machine the threads may not have parked yet. A thread that keeps running does so in all three periods.
        let idle = (0..3).any(|_| {
            thread::sleep(Duration::from_secs(3));
            let after = switches();
            std::mem::replace(&mut before, after.clone()) == after
        });
        // Ends the getters before an assertion fails.
        queue.shut_down();
        assert_eq!((stats.waiters, stats.delayed, stats.delays), (3, 4, 20_004));
        assert_eq!(names, ["getter-0", "getter-1", "getter-2", "keyqueue-delay", "keyqueue-delay"]);
        assert_eq!(reports.try_recv().ok(), None);
        assert!(idle, "a thread runs every now and then: {before:?}");
        assert!(getters.into_iter().all(|getter| getter.join().unwrap()));
        assert_eq!((queue.stats().delayed, queue.stats().expired), (4, 0));
    });
}
