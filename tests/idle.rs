//! Waiting costs nothing: while all that is there to do lies far ahead, no thread of the process runs, not even for a moment.
//!
//! A test of its own binary: it looks at every thread of the process. Linux only, elsewhere it is skipped.

use keyqueue::{AddOptions, DelayConflict, WorkQueue};
use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// How often each thread of the process was scheduled away, by name and number, except the one that asks and the test harness's.
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
    // A thread may end while we look.
    others.filter_map(|task| Some((name(&task)?, switches(&task)?))).collect()
}

#[test]
fn far_delays_cost_nothing() {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: threads are counted through /proc");
        return;
    }
    let queue = WorkQueue::new();
    thread::scope(|s| {
        let getters: Vec<_> = (0..3)
            .map(|n| {
                let name = thread::Builder::new().name(format!("getter-{n}"));
                name.spawn_scoped(s, || queue.get().is_none()).unwrap()
            })
            .collect();
        // A key that something happens to all the time: every time its delay begins anew.
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

        // What was set, moved and cancelled may still wake the driver, once.
        thread::sleep(Duration::from_millis(700));
        let stats = queue.stats();
        let mut before = switches();
        let names: Vec<_> = before.keys().map(|name| name.split(' ').next().unwrap().to_owned()).collect();
        // On a machine that is busy they may still be on their way to sleep: whoever runs for ever does so again.
        let idle = (0..3).any(|_| {
            thread::sleep(Duration::from_secs(3));
            let after = switches();
            std::mem::replace(&mut before, after.clone()) == after
        });
        // Lets the getters go before anything fails.
        queue.shut_down();
        assert_eq!((stats.waiters, stats.delayed, stats.delays), (3, 4, 20_004));
        assert_eq!(names, ["getter-0", "getter-1", "getter-2", "keyqueue-delay"]);
        assert!(idle, "somebody runs every now and then: {before:?}");
        assert!(getters.into_iter().all(|getter| getter.join().unwrap()));
        assert_eq!((queue.stats().delayed, queue.stats().expired), (4, 0));
    });
}
