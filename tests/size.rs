//! `Workers::set_concurrency`: more loops and fewer, of threads and of tasks, while handlers run, in a queue that is paused or ends, and in
//! each kind of queue.

#[path = "support/until.rs"]
mod until;

use keyqueue::{WorkQueue, Workers};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use until::wait_until;

/// What handlers have done, and a gate at which they wait.
#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    at_once: AtomicUsize,
    most: AtomicUsize,
    is_open: AtomicBool,
}

impl Seen {
    fn open(self) -> Arc<Self> {
        self.is_open.store(true, SeqCst);
        Arc::new(self)
    }

    fn enter(&self) {
        let at_once = self.at_once.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(at_once, SeqCst);
    }

    fn leave(&self) {
        self.at_once.fetch_sub(1, SeqCst);
        self.runs.fetch_add(1, SeqCst);
    }

    fn run(&self) {
        self.enter();
        thread::yield_now();
        while !self.is_open.load(SeqCst) {
            thread::sleep(Duration::from_micros(100));
        }
        self.leave();
    }

    fn most_from_now(&self) {
        self.most.store(0, SeqCst);
    }
}

fn spawn(queue: &WorkQueue<u32>, threads: usize, seen: &Arc<Seen>) -> Workers<u32> {
    let seen = Arc::clone(seen);
    queue.workers().spawn(threads, move |_| seen.run()).unwrap()
}

#[cfg(feature = "tokio")]
fn spawn_tasks(workers: &Workers<u32>, runtime: &tokio::runtime::Runtime, tasks: usize, seen: &Arc<Seen>) {
    let (_in_it, seen) = (runtime.enter(), Arc::clone(seen));
    workers.spawn_tasks(tasks, move |_| {
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            seen.enter();
            tokio::task::yield_now().await; // others may enter
            while !seen.is_open.load(SeqCst) {
                tokio::task::yield_now().await;
            }
            seen.leave();
        })
    });
}

/// Loops that wait for a key end before the call's next key, and the others process all of them.
#[test]
fn idle_loops_end_at_once() {
    for (kind, queue) in [
        ("plain", WorkQueue::builder()),
        ("shards", WorkQueue::builder().shards(4)),
        ("groups", WorkQueue::builder().fair_by(|key: &u32| key % 3).max_processing_per_group(2).shards(4)),
        #[cfg(feature = "lock-free")]
        ("lock-free", WorkQueue::builder().lock_free()),
    ] {
        let (queue, seen) = (queue.build(), Seen::default().open());
        let workers = spawn(&queue, 8, &seen);
        for (round, n) in [(1, 3), (2, 1), (3, 5)] {
            wait_until(|| queue.stats().waiters == workers.tally().running);
            workers.set_concurrency(n).unwrap();
            seen.most_from_now();
            queue.add_all(0..100);
            wait_until(|| seen.runs.load(SeqCst) == 100 * round);
            let most = seen.most.load(SeqCst);
            assert!(most <= n, "{kind}: {most} keys were processed at once by {n} loops");
            wait_until(|| workers.tally().running == n);
        }
        assert!(workers.drain().is_empty());
        assert_eq!((workers.tally().running, workers.tally().succeeded), (0, 300), "{kind}");
    }
}

/// Handlers that run go on, and their loops end one after the other. New loops begin while the handlers run.
#[test]
fn loops_whose_handlers_run_end_after_the_run() {
    let (queue, seen) = (WorkQueue::new(), Arc::new(Seen::default()));
    let workers = spawn(&queue, 1, &seen);
    queue.add_all(0..100);
    wait_until(|| seen.at_once.load(SeqCst) == 1);
    workers.set_concurrency(4).unwrap();
    wait_until(|| seen.at_once.load(SeqCst) == 4);
    workers.set_concurrency(2).unwrap();
    workers.set_concurrency(3).unwrap(); // one that was to end goes on
    assert_eq!((workers.tally().running, seen.at_once.load(SeqCst)), (4, 4));
    seen.most_from_now();
    seen.is_open.store(true, SeqCst);
    wait_until(|| seen.runs.load(SeqCst) == 100);
    wait_until(|| workers.tally().running == 3);
    assert!(workers.drain().is_empty());
    assert_eq!((workers.tally().succeeded, seen.runs.load(SeqCst)), (100, 100));
}

/// The number goes up and down beside adds, also from a handler. Each key is processed, and the last number holds.
#[test]
fn no_key_is_lost_while_the_number_changes() {
    const KEYS: u32 = if cfg!(miri) { 20 } else { 20_000 };
    let (queue, runs, slot) = (WorkQueue::<u32>::new(), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let own: Arc<Mutex<Option<Workers<u32>>>> = Arc::clone(&slot);
    let counts = Arc::clone(&runs);
    let workers = queue.workers().spawn(2, move |key| {
        counts.fetch_add(1, SeqCst);
        if *key.key() % 64 == 0 {
            let workers: Option<Workers<u32>> = own.lock().unwrap().clone();
            workers.into_iter().for_each(|workers| workers.set_concurrency(1 + *key.key() as usize % 5).unwrap());
        }
    });
    let workers = workers.unwrap();
    *slot.lock().unwrap() = Some(workers.clone());
    thread::scope(|scope| {
        let adder = scope.spawn(|| (0..KEYS).for_each(|key| _ = queue.add(key)));
        let mut n = 0;
        while !adder.is_finished() {
            n = n % 7 + 1;
            workers.set_concurrency(n).unwrap();
        }
    });
    queue.wait_idle();
    assert_eq!(runs.load(SeqCst), KEYS as usize);
    *slot.lock().unwrap() = None;
    workers.set_concurrency(3).unwrap();
    wait_until(|| workers.tally().running == 3);
    assert!(workers.drain().is_empty());
}

/// Loops of a paused queue wait although keys are queued. After the resume as many process keys as the number says.
#[test]
fn loops_of_a_paused_queue_end_too() {
    let (queue, seen) = (WorkQueue::new(), Arc::new(Seen::default()));
    let workers = spawn(&queue, 4, &seen);
    queue.pause();
    queue.add_all(0..10);
    wait_until(|| queue.stats().waiters == 4);
    workers.set_concurrency(2).unwrap();
    wait_until(|| workers.tally().running == 2);
    queue.resume();
    wait_until(|| seen.at_once.load(SeqCst) == 2);
    let leftover = thread::scope(|scope| {
        let finished = scope.spawn(|| workers.finish(Duration::from_secs(60)));
        wait_until(|| queue.shutting_down());
        workers.set_concurrency(5).unwrap(); // nothing begins any more
        seen.is_open.store(true, SeqCst);
        finished.join().unwrap()
    });
    assert_eq!((leftover.queued.len(), leftover.processing.len(), seen.runs.load(SeqCst)), (8, 0, 2));
    assert_eq!(seen.most.load(SeqCst), 2);
}

/// A drain of a long queue may be given more loops.
#[test]
fn a_drain_gets_more_loops() {
    let (queue, seen) = (WorkQueue::new(), Arc::new(Seen::default()));
    let workers = spawn(&queue, 1, &seen);
    queue.add_all(0..10);
    thread::scope(|scope| {
        let drained = scope.spawn(|| workers.drain());
        wait_until(|| queue.shutting_down() && seen.at_once.load(SeqCst) == 1);
        workers.set_concurrency(3).unwrap();
        wait_until(|| seen.at_once.load(SeqCst) == 3);
        seen.is_open.store(true, SeqCst);
        assert!(drained.join().unwrap().is_empty());
    });
    assert_eq!(seen.runs.load(SeqCst), 10);
}

/// Zero, numbers that no machine has room for, and workers without a loop of `spawn`: before one was started, and after all have ended. A
/// stop is no error.
#[test]
fn what_cannot_be_done_is_an_error() {
    let queue = WorkQueue::new();
    let error = |workers: &Workers<u32>, n| workers.set_concurrency(n).unwrap_err();
    let by_hand = queue.workers().build();
    assert_eq!(error(&by_hand, 2).kind(), ErrorKind::InvalidInput);
    let seen = Seen::default().open();
    let workers = spawn(&queue, 2, &seen);
    assert!(error(&workers, 0).to_string().contains("pause"));
    for huge in [usize::MAX, 1_000_001] {
        assert_eq!(error(&workers, huge).kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(workers.tally().running, 2);
    let stopped = workers.clone();
    drop(stopped.stop());
    workers.join();
    assert_eq!(error(&workers, 2).kind(), ErrorKind::InvalidInput);
    assert_eq!(workers.tally().running, 0);
}

/// The handler goes with the last loop, before a join returns, however many there were. A loop of `run` neither counts nor ends.
#[test]
fn the_handler_goes_with_the_last_loop() {
    let (queue, seen) = (WorkQueue::new(), Seen::default().open());
    let workers = spawn(&queue, 1, &seen);
    let same = workers.clone();
    let by_hand = thread::spawn(move || same.run(|_: &keyqueue::Item<'_, u32>| ()));
    wait_until(|| workers.tally().running == 2);
    for n in [5, 2, 4, 1] {
        workers.set_concurrency(n).unwrap();
        wait_until(|| workers.tally().running == n + 1);
    }
    queue.add_all(0..100);
    queue.wait_idle();
    assert!(!by_hand.is_finished());
    drop(workers.drain());
    by_hand.join().unwrap();
    assert_eq!(Arc::strong_count(&seen), 1, "the handler of a loop is still there after the drain");
}

/// Tasks: idle ones end at once, and those whose handlers run end after the run. The number changes from a thread without a runtime.
#[cfg(feature = "tokio")]
#[test]
fn tasks_become_more_and_fewer() {
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap();
        let (queue, seen) = (WorkQueue::<u32>::new(), Arc::new(Seen::default()));
        let workers = queue.workers().build();
        spawn_tasks(&workers, &runtime, 2, &seen);
        queue.add_all(0..20);
        wait_until(|| seen.at_once.load(SeqCst) == 2);
        workers.set_concurrency(6).unwrap();
        wait_until(|| seen.at_once.load(SeqCst) == 6);
        workers.set_concurrency(3).unwrap();
        seen.is_open.store(true, SeqCst);
        queue.wait_idle();
        wait_until(|| workers.tally().running == 3 && queue.stats().waiters == 3);
        workers.set_concurrency(1).unwrap();
        seen.most_from_now();
        queue.add_all(0..100);
        queue.wait_idle();
        assert_eq!((seen.most.load(SeqCst), seen.runs.load(SeqCst)), (1, 120));
        wait_until(|| workers.tally().running == 1);
        assert!(workers.drain().is_empty());
        assert_eq!(Arc::strong_count(&seen), 1);
        workers.set_concurrency(2).unwrap_err();
    }
}

/// The tasks of the last call have ended, and those of an earlier one are left: new ones get the handler of these.
#[cfg(feature = "tokio")]
#[test]
fn tasks_of_an_earlier_call_become_more() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (queue, seen, last) = (WorkQueue::<u32>::new(), Arc::new(Seen::default()), Seen::default().open());
    let workers = queue.workers().build();
    spawn_tasks(&workers, &runtime, 1, &seen);
    queue.add(0);
    wait_until(|| seen.at_once.load(SeqCst) == 1);
    spawn_tasks(&workers, &runtime, 1, &last);
    wait_until(|| queue.stats().waiters == 1);
    workers.set_concurrency(1).unwrap(); // the idle one ends
    wait_until(|| workers.tally().running == 1);
    assert_eq!(Arc::strong_count(&last), 1);
    workers.set_concurrency(2).unwrap();
    queue.add(1);
    wait_until(|| seen.at_once.load(SeqCst) == 2);
    seen.is_open.store(true, SeqCst);
    assert!(workers.drain().is_empty());
    assert_eq!(Arc::strong_count(&seen), 1);
}

/// Tasks that end with their runtime count among those that were to end, and new ones cannot be started there.
#[cfg(feature = "tokio")]
#[test]
fn tasks_of_a_runtime_that_is_gone_end() {
    let (queue, runtime) = (WorkQueue::<u32>::new(), tokio::runtime::Runtime::new().unwrap());
    let workers = queue.workers().build();
    {
        let _in_it = runtime.enter();
        workers.spawn_tasks(3, |_| Box::pin(std::future::pending::<()>()));
    }
    queue.add_all(0..3);
    wait_until(|| queue.processing_len() == 3);
    workers.set_concurrency(2).unwrap();
    drop(runtime);
    wait_until(|| workers.tally().running == 0);
    assert_eq!((queue.processing_len(), queue.len()), (0, 3), "they are queued again");
    workers.set_concurrency(2).unwrap_err();
}

/// Two of four tasks are to end, and two end because their runtime is dropped: the others go on.
#[cfg(feature = "tokio")]
#[test]
fn a_task_that_ends_for_another_reason_is_one_of_those_that_were_to_end() {
    let (queue, seen) = (WorkQueue::<u32>::new(), Arc::new(Seen::default()));
    let workers = queue.workers().build();
    let runtimes = [(); 2].map(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        spawn_tasks(&workers, &runtime, 2, &seen);
        runtime
    });
    queue.add_all(0..4);
    wait_until(|| queue.processing_len() == 4);
    workers.set_concurrency(2).unwrap();
    let [first, second] = runtimes;
    drop(first);
    wait_until(|| workers.tally().running == 2);
    seen.is_open.store(true, SeqCst);
    wait_until(|| queue.is_empty() && queue.processing_len() == 0);
    assert_eq!((workers.tally().running, workers.tally().succeeded), (2, 4));
    drop(workers.drain());
    drop(second);
}

/// Tasks that wait for a key end before they take one that comes later, and also if none comes.
#[cfg(feature = "tokio")]
#[test]
fn idle_tasks_end_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (queue, seen) = (WorkQueue::<u32>::new(), Seen::default().open());
    let workers = queue.workers().build();
    spawn_tasks(&workers, &runtime, 4, &seen);
    // Nothing runs between these calls.
    let run_until = |holds: &dyn Fn() -> bool| {
        runtime.block_on(async {
            for _ in 0..1000 {
                if holds() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            panic!("it does not come true");
        });
    };
    run_until(&|| queue.stats().waiters == 4);
    workers.set_concurrency(3).unwrap();
    run_until(&|| workers.tally().running == 3);
    workers.set_concurrency(1).unwrap();
    queue.add_all(0..10);
    run_until(&|| seen.runs.load(SeqCst) == 10);
    assert_eq!((seen.most.load(SeqCst), workers.tally().running), (1, 1));
}

/// A loop of `run` goes on while others are to end.
#[test]
fn a_loop_by_hand_is_none_of_those_that_are_to_end() {
    let (queue, seen, runs) = (WorkQueue::new(), Arc::new(Seen::default()), Arc::new(AtomicUsize::new(0)));
    let workers = spawn(&queue, 2, &seen);
    queue.add_all([1, 2]);
    wait_until(|| seen.at_once.load(SeqCst) == 2);
    let (same, counts) = (workers.clone(), Arc::clone(&runs));
    let by_hand = thread::spawn(move || same.run(|_: &keyqueue::Item<'_, u32>| _ = counts.fetch_add(1, SeqCst)));
    workers.set_concurrency(1).unwrap();
    for key in 3..6 {
        queue.add(key);
        wait_until(|| runs.load(SeqCst) == key as usize - 2);
    }
    seen.is_open.store(true, SeqCst);
    wait_until(|| workers.tally().running == 2);
    drop(workers.drain());
    by_hand.join().unwrap();
}

/// A handler that reaches its time limit ends its run, and so its loop, if that is one too many. Its key is retried by the other loop.
#[cfg(feature = "tokio")]
#[test]
fn a_run_that_times_out_is_the_last_of_its_loop() {
    let (clock, time) = keyqueue::Clock::mock();
    let queue = WorkQueue::<u32>::builder().clock(clock).driver(keyqueue::Driver::Manual).build();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let workers = queue.workers().time_limit(Duration::from_secs(10)).keep_errors(1).build();
    let run = |holds: &dyn Fn() -> bool| {
        runtime.block_on(async {
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        });
        assert!(holds());
    };
    let hangs = Arc::new(AtomicBool::new(true));
    {
        let (_in_it, hangs) = (runtime.enter(), Arc::clone(&hangs));
        workers.spawn_tasks(2, move |_| {
            let hangs = hangs.load(SeqCst);
            Box::pin(async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
            })
        });
    }
    queue.add_all([1, 2]);
    run(&|| queue.processing_len() == 2);
    workers.set_concurrency(1).unwrap();
    time.advance(Duration::from_secs(10));
    hangs.store(false, SeqCst);
    queue.turn();
    run(&|| workers.tally().timed_out == 2 && workers.tally().running == 1);
    assert_eq!(queue.inspect().key(&2).last_error.as_deref(), Some("the handler timed out"));
    time.advance(Duration::from_secs(1));
    queue.turn();
    run(&|| workers.tally().succeeded == 2 && queue.delayed_len() == 0);
    assert_eq!(queue.inspect().key(&2).last_error, None);
}
