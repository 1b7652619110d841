//! `Workers::spawn_tasks` (feature `tokio`): forms of handlers, and where it meets other parts: full groups, panics, stops by a handler,
//! runtimes with one thread, and runtimes that are dropped.
//!
//! Checks: a drain returns within its time, and its lists have each key once (P23); a key whose task goes is done, also if its handler was
//! to be aborted or its runtime is dropped (P13); the wake-up of such a task goes to another getter (P2).
#![cfg(feature = "tokio")]

mod support {
    pub(crate) mod within;
}

use keyqueue::{AddOptions, Added, Item, OnPanic, Outcome, Stats, Tally, WorkQueue};
use std::future::{Future, pending, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::within::within_30_s;
use tokio::runtime::Runtime;

const MS: Duration = Duration::from_millis(1);

/// A runtime with this number of threads, or, if it is 0, that of the thread in `block_on`.
fn runtime(threads: usize) -> Runtime {
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.max(1)).enable_time().build().unwrap()
}

/// The test in a runtime with one thread and in others.
fn in_each_runtime<F: Future<Output = ()>>(test: impl Fn() -> F + Copy + Send + 'static) {
    for threads in [0, 1, 2] {
        within_30_s(move || runtime(threads).block_on(test()));
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

fn sorted<K: Ord>(mut keys: Vec<K>) -> Vec<K> {
    keys.sort_unstable();
    keys
}

/// Loops whose handlers are ready at once, or panic, and which always have a next key, leave the thread of their runtime to other tasks and
/// timers.
#[test]
fn loops_that_always_have_a_key_leave_the_runtime_to_other_tasks() {
    in_each_runtime(async || {
        for handler in ["requeues", "requeues, in run_async", "panics"] {
            let queue = WorkQueue::builder().on_panic(OnPanic::Done).build();
            let workers = queue.workers().build();
            let again = queue.clone();
            match handler {
                "panics" => workers.spawn_tasks(3, move |item| {
                    again.add(**item);
                    Box::pin(async { resume_unwind(Box::new("a handler")) as Outcome })
                }),
                "requeues" => {
                    workers.spawn_tasks(3, |_| Box::pin(async { Outcome::RequeueWith(AddOptions::new()) }));
                }
                _ => (0..3).for_each(|_| {
                    drop(tokio::spawn(workers.run_async(async |_| Outcome::RequeueWith(AddOptions::new()))));
                }),
            }
            queue.add_all(0..10);
            while workers.tally().requeued + workers.tally().panicked < 1000 {
                tokio::time::sleep(MS).await;
            }
            let left = workers.drain_until(tokio::time::sleep(10_000 * MS)).await;
            let refused = if handler == "panics" { vec![] } else { Vec::from_iter(0..10) };
            assert_eq!((sorted(left.refused), left.queued, left.processing), (refused, vec![], vec![]), "{handler}");
        }
    });
}

/// Aborted tasks of full groups: each key is in one list, and what is queued of their groups can be handed out afterwards.
#[test]
fn a_deadline_aborts_the_tasks_of_full_groups() {
    in_each_runtime(async || {
        for limit in [1, 2] {
            let builder = WorkQueue::builder().fair_by(|&(group, _): &(u32, u32)| group);
            let queue = builder.max_processing_per_group(limit).build();
            let workers = queue.workers().build();
            workers.spawn_tasks(6, |_| Box::pin(pending::<()>()));
            let keys = Vec::from_iter((0..12).map(|n| (n % 2, n)));
            queue.add_all(keys.clone());
            until(|| queue.processing_len() == 2 * limit).await;
            // Four tasks wait for keys of full groups.
            let held = queue.inspect().processing_keys()[0].key;
            assert_eq!(queue.add(held), Added::Deferred);
            let left = workers.drain_until(tokio::time::sleep(MS)).await;
            assert_eq!(left.processing.len(), 2 * limit);
            assert_eq!(sorted([left.processing, left.queued].concat()), sorted(keys));
            workers.join_async().await;
            // It is queued again, unless a task that had not been aborted yet got it once more.
            let Stats { len, processing, handed_out, .. } = queue.stats();
            assert_eq!((processing, workers.tally().running), (0, 0));
            assert_eq!(len as u64 + handed_out, 2 * limit as u64 + 1);
            if len > 0 {
                assert_eq!(**queue.try_get().as_ref().expect("its group has room again"), held);
            }
        }
    });
}

/// The future of a handler that hangs panics in its drop, when its task is aborted.
#[test]
fn a_panic_in_the_drop_of_an_aborted_handler_loses_no_key() {
    struct PanicsInDrop;
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            resume_unwind(Box::new("in a drop"));
        }
    }
    in_each_runtime(async || {
        for dirty in [false, true] {
            let queue = WorkQueue::new();
            let workers = queue.workers().build();
            workers.spawn_tasks(2, |item| {
                Box::pin(async move {
                    if **item == 0 {
                        let _guard = PanicsInDrop;
                        pending::<()>().await;
                    }
                })
            });
            queue.add(0);
            until(|| queue.processing_len() == 1).await;
            assert!(!dirty || queue.add(0) == Added::Deferred);
            queue.add(1);
            until(|| workers.tally().succeeded == 1).await;
            let left = workers.drain_until(tokio::time::sleep(MS)).await;
            assert_eq!((left.processing, left.queued, left.refused), (vec![0], vec![], vec![]));
            workers.join_async().await;
            let Tally { running, failed, panicked, .. } = workers.tally();
            assert_eq!((running, failed, panicked), (0, 0, 0), "a run that was aborted is not counted");
            let Stats { len, processing, handed_out, .. } = queue.stats();
            assert_eq!((processing, len as u64 + handed_out), (0, 2 + u64::from(dirty)), "queued, or got once more");
        }
    });
}

/// A handler stops its own workers, and a handler drains them with a deadline: the abort reaches the task that has called it, too.
#[test]
fn a_handler_stops_or_drains_its_own_workers() {
    in_each_runtime(async || {
        for drains in [false, true] {
            let queue = WorkQueue::new();
            let workers = queue.workers().build();
            let left = Arc::new(Mutex::new(None));
            let went_on = Arc::new(AtomicUsize::new(0));
            let all_added = Arc::new(AtomicBool::new(false));
            let captured = (workers.clone(), Arc::clone(&left), Arc::clone(&went_on), Arc::clone(&all_added));
            workers.spawn_tasks(2, move |item| {
                let (workers, left, went_on, all_added) = captured.clone();
                Box::pin(async move {
                    if **item == 0 {
                        return pending().await;
                    }
                    until(|| all_added.load(Ordering::SeqCst)).await; // `add_all` adds one by one, and a stop refuses what comes later
                    let leftover = if drains { workers.drain_until(ready(())).await } else { workers.stop() };
                    *left.lock().unwrap() = Some(leftover);
                    tokio::task::yield_now().await; // an aborted task ends here
                    went_on.fetch_add(1, Ordering::SeqCst);
                })
            });
            queue.add(0);
            until(|| queue.processing_len() == 1).await;
            queue.add_all([1, 2, 3]);
            all_added.store(true, Ordering::SeqCst);
            until(|| left.lock().unwrap().is_some()).await;
            let left = left.lock().unwrap().take().unwrap();
            assert_eq!((sorted(left.processing), left.queued), (vec![0, 1], vec![2, 3]));
            if !drains {
                until(|| workers.tally().running == 1).await;
                assert_eq!(workers.drain_until(ready(())).await.processing, [0]);
            }
            workers.join_async().await;
            assert_eq!((queue.processing_len(), queue.len()), (0, 0));
            assert_eq!(
                (went_on.load(Ordering::SeqCst), workers.tally().succeeded > 0),
                (1 - usize::from(drains), !drains)
            );
        }
    });
}

/// The runtime is dropped while its tasks handle keys, wait for keys, and are woken for one. The queue lives on: no key stays processing,
/// and another getter gets all of them.
#[test]
fn keys_come_back_from_a_runtime_that_is_dropped() {
    let dirty = [true, false];
    let cases = [0, 1, 2].into_iter().flat_map(|threads| dirty.map(|dirty| (threads, dirty)));
    for (threads, dirty) in cases {
        for by in ["drop", "shutdown_background", "shutdown_timeout"] {
            within_30_s(move || {
                let runtime = runtime(threads);
                let queue = WorkQueue::new();
                let workers = queue.workers().build();
                let dropped = Arc::new(AtomicBool::new(false));
                {
                    let _in_it = runtime.enter();
                    let captured = SetOnDrop(Arc::clone(&dropped));
                    workers.spawn_tasks(3, move |_| {
                        let _captured = &captured;
                        Box::pin(pending::<()>())
                    });
                }
                queue.add_all([1, 2]);
                runtime.block_on(until(|| queue.processing_len() == 2 && queue.stats().waiters == 1));
                assert!(!dirty || queue.add(2) == Added::Deferred);
                let getter = thread::spawn({
                    let queue = queue.clone();
                    move || Vec::from_iter([(); 3].map(|()| *queue.get().unwrap()))
                });
                while queue.stats().waiters < 2 {
                    thread::yield_now();
                }
                if threads == 0 {
                    queue.add(3); // wakes the task that waits, which is never polled again
                }
                match by {
                    "drop" => drop(runtime),
                    "shutdown_timeout" => runtime.shutdown_timeout(10_000 * MS),
                    _ => runtime.shutdown_background(),
                }
                if threads > 0 {
                    while workers.tally().running > 0 {
                        thread::yield_now();
                    }
                    queue.add(3);
                }
                assert_eq!(sorted(getter.join().unwrap()), [1, 2, 3]);
                workers.join();
                assert!(dropped.load(Ordering::SeqCst), "the handler is dropped");
                assert_eq!((queue.processing_len(), queue.len(), workers.tally().running), (0, 0, 0));
                assert!(workers.drain().is_empty());
            });
        }
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Tasks of a runtime that is gone are not started, and leave nothing behind.
#[test]
fn a_runtime_that_has_ended_starts_no_task() {
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let queue = WorkQueue::new();
    let workers = queue.workers().build();
    queue.add(1);
    drop(runtime);
    {
        let _in_it = handle.enter();
        workers.spawn_tasks(2, |_| Box::pin(ready(())));
    }
    assert_eq!((workers.tally().running, workers.tally().succeeded, queue.len()), (0, 0, 1));
    assert_eq!(within_30_s(move || workers.drain_timeout(MS)).queued, [1]);
}

// ---- the call alone ----

/// With the drain for threads, from outside of the runtime.
#[test]
fn a_blocking_drain_with_a_deadline_aborts_tasks_that_hang() {
    let runtime = runtime(1);
    let queue = WorkQueue::new();
    let workers = queue.workers().build();
    let dropped = Arc::new(AtomicBool::new(false));
    {
        let _in_it = runtime.enter();
        let flag = Arc::clone(&dropped);
        workers.spawn_tasks(1, move |_| {
            let flag = SetOnDrop(Arc::clone(&flag));
            Box::pin(async move {
                let _flag = flag;
                pending::<()>().await;
            })
        });
    }
    queue.add(0);
    runtime.block_on(until(|| queue.processing_len() == 1));
    queue.add_all([0, 5]); // 0 is queued again when it is done, and 5 waits
    let left = workers.drain_timeout(MS);
    assert_eq!((left.processing, left.queued), (vec![0], vec![5]));
    workers.join();
    assert!(dropped.load(Ordering::SeqCst), "the future of the handler");
    assert_eq!((queue.processing_len(), queue.len()), (0, 1), "a key that was added meanwhile is queued again");
    assert_eq!(workers.tally().succeeded, 0);
}

/// A finish begins no queued key, lets a handler end in time, and aborts one that hangs.
#[test]
fn a_finish_aborts_tasks_that_hang_at_its_deadline() {
    in_each_runtime(async || {
        let queue = WorkQueue::new();
        let workers = queue.workers().build();
        let (go_on, gate) = tokio::sync::watch::channel(false);
        workers.spawn_tasks(2, move |item| {
            let (hangs, mut gate) = (**item == 1, gate.clone());
            Box::pin(async move {
                let _opened = gate.wait_for(|open| *open).await.map(drop);
                if hangs {
                    pending::<()>().await;
                }
            })
        });
        queue.add_all([1, 2, 3, 4]);
        until(|| queue.processing_len() == 2).await;
        let left = workers.finish_until(async {
            go_on.send(true).unwrap();
            until(|| workers.tally().running == 1).await;
        });
        let left = left.await;
        assert_eq!((left.queued, left.processing, left.refused), (vec![3, 4], vec![1], vec![]));
        workers.join_async().await;
        assert_eq!((queue.processing_len(), workers.tally().running, workers.tally().succeeded), (0, 0, 1));
        assert_eq!(workers.stop().refused, [1]);
    });
}

/// `stop` lets handlers return, also while a drain without a deadline waits.
#[test]
fn a_stop_and_a_drain_without_a_deadline_abort_nothing() {
    in_each_runtime(async || {
        let queue = WorkQueue::new();
        let workers = queue.workers().build();
        let (go_on, gate) = tokio::sync::watch::channel(false);
        workers.spawn_tasks(2, move |_| {
            let mut gate = gate.clone();
            Box::pin(async move { gate.wait_for(|open| *open).await.map(drop) })
        });
        queue.add_all([1, 2]);
        until(|| queue.processing_len() == 2).await;
        assert_eq!(sorted(workers.stop().processing), [1, 2]);
        let drain = workers.drain_async();
        go_on.send(true).unwrap();
        assert!(drain.await.is_empty());
        assert_eq!((workers.tally().succeeded, workers.tally().running), (2, 0));
    });
}

async fn visit(item: &Item<'_, u32>) -> io::Result<()> {
    tokio::task::yield_now().await;
    if **item == 1 { Err(io::Error::other("disk")) } else { Ok(()) }
}

#[test]
fn several_handlers_of_all_forms_share_the_keys() {
    in_each_runtime(async || {
        let queue = WorkQueue::new();
        let workers = queue.workers().max_retries(0).build();
        workers.spawn_tasks(2, |item| Box::pin(visit(item)));
        workers.spawn_tasks(1, |item| {
            Box::pin(async move {
                visit(item).await?;
                Ok::<(), Outcome>(())
            })
        });
        let shared = Arc::new(());
        let own = Arc::clone(&shared);
        workers.spawn_tasks(1, move |item| {
            let _own = Arc::clone(&own);
            Box::pin(async move { visit(item).await.map_err(|error| Outcome::Failed(error.into())) })
        });
        queue.add_all(0..100);
        queue.wait_idle_async().await;
        assert!(workers.drain_async().await.is_empty());
        let Tally { succeeded, failed, given_up, running, .. } = workers.tally();
        assert_eq!((succeeded, failed, given_up, running), (99, 1, 1, 0));
        assert_eq!(Arc::strong_count(&shared), 1, "the handlers are dropped");
    });
}

#[test]
fn tasks_that_cannot_be_started_panic() {
    let workers = WorkQueue::<u32>::new().workers().build();
    let message = |tasks| {
        let start = || workers.spawn_tasks(tasks, |_| Box::pin(ready(())));
        *catch_unwind(AssertUnwindSafe(start)).unwrap_err().downcast::<&str>().unwrap()
    };
    assert!(message(1).contains("no Tokio runtime"));
    runtime(1).block_on(async { assert!(message(0).contains("tasks is 0")) });
    assert_eq!(workers.tally().running, 0);
}
