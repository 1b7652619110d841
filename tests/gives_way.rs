//! Tasks that always find a key, and whose handlers never wait, let their runtime poll other tasks: on any executor, with futures, with
//! streams, and with both, after 128 keys at most. A getter that gives way takes no key, and holds none.

mod support {
    pub(crate) mod tasks;
}

use futures_executor::LocalPool;
use futures_util::future::join;
use futures_util::task::LocalSpawnExt;
use keyqueue::{Clock, Driver, Outcome, WorkQueue};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use support::tasks::{Calls, panicking_waker, poll};

/// A task gives way after this number of keys.
const AT_ONCE: u64 = 128;

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Resolves at its second poll, for which it wakes the task.
fn yield_now() -> impl Future<Output = ()> {
    let mut given = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Runs a task beside another one, in one thread, until the first has ended. Returns how many times the other was polled.
fn beside_another(executor: &str, task: impl Future<Output = ()> + 'static) -> u64 {
    let (ended, polls) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let another = {
        let (ended, polls) = (Rc::clone(&ended), Rc::clone(&polls));
        async move {
            while !ended.get() {
                polls.set(polls.get() + 1);
                yield_now().await;
            }
        }
    };
    let task = async move {
        task.await;
        ended.set(true);
    };
    match executor {
        "tokio" => {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.spawn_local(task);
            local.spawn_local(another);
            runtime.block_on(local);
        }
        _ => {
            let mut pool = LocalPool::new();
            pool.spawner().spawn_local(task).unwrap();
            pool.spawner().spawn_local(another).unwrap();
            pool.run();
        }
    }
    polls.get()
}

/// The forms of a loop, each with what is to be done for each key.
type Form = fn(WorkQueue<u64>, Rc<dyn Fn(u64)>) -> Task<'static>;

async fn by_get_async(queue: &WorkQueue<u64>, run: &dyn Fn(u64)) {
    while let Some(item) = queue.get_async().await {
        run(*item);
        item.succeed();
    }
}

fn forms() -> Vec<(&'static str, Form)> {
    #[cfg_attr(not(feature = "stream"), allow(unused_mut, reason = "the streams are added"))]
    let mut forms: Vec<(&str, Form)> = vec![
        ("get_async", |queue, run| Box::pin(async move { by_get_async(&queue, &*run).await })),
        ("get_owned_async", |queue, run| {
            Box::pin(async move {
                while let Some(item) = queue.get_owned_async().await {
                    run(*item);
                    item.succeed();
                }
            })
        }),
        ("two loops in a task", |queue, run| {
            Box::pin(async move { _ = join(by_get_async(&queue, &*run), by_get_async(&queue, &*run)).await })
        }),
    ];
    #[cfg(feature = "stream")]
    forms.extend(streams::forms());
    forms
}

#[cfg(feature = "stream")]
mod streams {
    use super::*;
    use futures_util::StreamExt;
    use keyqueue::OwnedItem;

    async fn for_each_concurrent(limit: Option<usize>, queue: WorkQueue<u64>, run: Rc<dyn Fn(u64)>) {
        let process = async |item: OwnedItem<u64>| {
            run(*item);
            item.succeed();
        };
        queue.stream().for_each_concurrent(limit, process).await;
    }

    pub(super) fn forms() -> Vec<(&'static str, Form)> {
        vec![
            ("stream", |queue, run| {
                Box::pin(async move {
                    let mut stream = queue.stream();
                    while let Some(item) = stream.next().await {
                        run(*item);
                        item.succeed();
                    }
                })
            }),
            ("for_each_concurrent(1)", |queue, run| Box::pin(for_each_concurrent(Some(1), queue, run))),
            ("for_each_concurrent(8)", |queue, run| Box::pin(for_each_concurrent(Some(8), queue, run))),
            ("for_each_concurrent(None)", |queue, run| Box::pin(for_each_concurrent(None, queue, run))),
            ("a stream, and get_async", |queue, run| {
                Box::pin(async move {
                    let mut stream = queue.stream();
                    loop {
                        let Some(item) = stream.next().await else { break };
                        run(*item);
                        item.succeed();
                        let Some(item) = queue.get_async().await else { break };
                        run(*item);
                        item.succeed();
                    }
                })
            }),
        ]
    }

    /// What the stream itself does: it is pending once, woken, and has taken nothing.
    #[test]
    fn a_stream_that_gives_way_holds_no_key() {
        for shards in [1, 4] {
            let queue = filled(shards, 400);
            let calls = Arc::<Calls>::default();
            let mut stream = queue.stream();
            for turn in 1..=3 {
                for _ in 0..AT_ONCE {
                    assert!(matches!(poll(pin!(stream.next()), &calls), Poll::Ready(Some(_))));
                }
                assert!(poll(pin!(stream.next()), &calls).is_pending());
                assert_eq!((calls.count(), queue.stats().waiters), (turn, 0));
                assert_eq!(queue.len() as u64, 400 - turn as u64 * AT_ONCE);
                if turn == 2 {
                    stream = queue.stream(); // the other is dropped while it gives way
                }
            }
            assert_eq!((queue.stats().handed_out, queue.processing_len()), (3 * AT_ONCE, 0));
        }
    }
}

/// A queue with this number of keys.
fn filled(shards: usize, keys: u64) -> WorkQueue<u64> {
    let queue = WorkQueue::builder().shards(shards).build();
    queue.add_all(0..keys);
    queue
}

/// Takes keys until this thread gives way.
fn count_from_zero() {
    let queue = filled(1, AT_ONCE + 1);
    while poll(pin!(queue.get_async()), &Arc::default()).is_ready() {}
}

#[test]
fn tasks_that_always_find_a_key_let_others_run() {
    for (name, form) in forms() {
        for (shards, executor, keys) in
            [(1, "tokio", 100_000), (1, "futures", 20_000), (16, "tokio", 20_000), (5, "futures", 20_000)]
        {
            let queue = filled(shards, keys);
            queue.shut_down();
            let sum = Rc::new(Cell::new(0));
            let run = {
                let sum = Rc::clone(&sum);
                Rc::new(move |key| sum.set(sum.get() + key))
            };
            let polls = beside_another(executor, form(queue.clone(), run));
            assert_eq!((sum.get(), queue.stats().handed_out), (keys * (keys - 1) / 2, keys), "{name}");
            // Of two loops in a task, each gives way for itself.
            let at_once = if name == "two loops in a task" { 2 * AT_ONCE } else { AT_ONCE };
            let expected = keys / at_once..keys / at_once + 10;
            assert!(expected.contains(&polls), "{name}, {shards} shards, {executor}: {polls} polls");
        }
    }
}

/// The loops of workers give way by themselves, and no more often for that.
#[test]
fn loops_of_workers_give_way_once() {
    const KEYS: u64 = 100_000;
    for executor in ["tokio", "futures"] {
        let queue = filled(1, KEYS);
        queue.shut_down();
        let workers = queue.workers().build();
        let polls = beside_another(executor, workers.run_async(async |_| Outcome::Success));
        assert_eq!(workers.tally().succeeded, KEYS);
        assert!((KEYS / AT_ONCE..KEYS / AT_ONCE + 10).contains(&polls), "{executor}: {polls} polls");
    }
}

/// It is not polled in vain, however often it waits.
#[test]
fn a_getter_that_waits_counts_nothing() {
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).build();
        let calls = Arc::<Calls>::default();
        for n in 1..=1000 {
            let mut get = pin!(queue.get_async());
            assert!(poll(get.as_mut(), &calls).is_pending());
            assert_eq!((calls.count(), queue.stats().waiters), (n - 1, 1));
            queue.add(n);
            assert_eq!(calls.count(), n);
            assert!(poll(get, &calls).is_ready());
        }
        // Nor do other calls count.
        for n in 0..1000 {
            queue.add(n);
            drop(if n % 2 == 0 { queue.get() } else { queue.try_get().ok() }.unwrap());
        }
        queue.add_all(0..AT_ONCE as usize);
        assert!((0..AT_ONCE).all(|_| poll(pin!(queue.get_async()), &calls).is_ready()));
        assert_eq!(calls.count(), 1000);
        assert!(poll(pin!(queue.get_async()), &calls).is_pending());
    }
}

/// While a future gives way, the keys are there for others, and when it is dropped, nothing is lost.
#[test]
fn a_future_that_gives_way_holds_no_key() {
    for shards in [1, 4] {
        count_from_zero();
        let queue = filled(shards, 2 * AT_ONCE + 2);
        let calls = Arc::<Calls>::default();
        let take = || poll(pin!(queue.get_async()), &calls).is_ready();
        assert!((0..AT_ONCE).all(|_| take()));
        let mut dropped = Box::pin(queue.get_async());
        assert!(poll(dropped.as_mut(), &calls).is_pending());
        let stats = queue.stats();
        assert_eq!((calls.count(), stats.waiters, stats.processing, stats.len as u64), (1, 0, 0, AT_ONCE + 2));
        drop(dropped);
        assert_eq!(calls.count(), 1, "nothing was owed to another getter");

        assert!((0..AT_ONCE).all(|_| take()));
        let mut woken = Box::pin(queue.get_async());
        assert!(poll(woken.as_mut(), &calls).is_pending());
        let other = queue.try_get().unwrap();
        let Poll::Ready(Some(item)) = poll(woken.as_mut(), &calls) else { panic!("it was pending once") };
        assert_ne!(*item, *other);
        assert_eq!((calls.count(), queue.stats().handed_out, queue.len()), (2, 2 * AT_ONCE + 2, 0));
    }
}

/// A future that gives way when the last key has gone meanwhile, or when the queue was shut down, is what any other future is then.
#[test]
fn a_future_that_has_given_way_may_wait_or_end() {
    for shut_down in [false, true] {
        count_from_zero();
        let queue = filled(1, AT_ONCE + 1);
        let calls = Arc::<Calls>::default();
        assert!((0..AT_ONCE).all(|_| poll(pin!(queue.get_async()), &calls).is_ready()));
        let mut get = Box::pin(queue.get_async());
        assert!(poll(get.as_mut(), &calls).is_pending());
        drop(queue.try_get().unwrap());
        if shut_down {
            queue.shut_down();
            assert!(matches!(poll(get.as_mut(), &calls), Poll::Ready(None)));
        } else {
            assert!(poll(get.as_mut(), &calls).is_pending());
            assert_eq!((calls.count(), queue.stats().waiters), (1, 1));
            queue.add(7);
            assert_eq!(calls.count(), 2);
            assert!(matches!(poll(get.as_mut(), &calls), Poll::Ready(Some(item)) if *item == 7));
        }
    }
}

/// One poll of a task may take keys from several queues.
#[test]
fn a_thread_counts_the_keys_of_all_its_queues() {
    let queues = [filled(1, 1000), filled(4, 1000)];
    let calls = Arc::<Calls>::default();
    let taken = (0..1000).take_while(|n| poll(pin!(queues[n % 2].get_async()), &calls).is_ready()).count();
    assert_eq!((taken as u64, calls.count()), (AT_ONCE, 1));
    // Another thread has a count of its own.
    let queue = queues[0].clone();
    let other = thread::spawn(move || {
        let calls = Arc::<Calls>::default();
        (0..1000).take_while(|_| poll(pin!(queue.get_async()), &calls).is_ready()).count()
    });
    assert_eq!(other.join().unwrap() as u64, AT_ONCE);
}

/// If nothing would poll the task again, it does not give way.
#[test]
fn a_task_whose_waker_panics_goes_on() {
    let queue = filled(1, 1000);
    let waker = panicking_waker();
    let mut context = Context::from_waker(&waker);
    assert!((0..1000).all(|_| pin!(queue.get_async()).poll(&mut context).is_ready()));
    assert_eq!(queue.stats().caught_panics, 1000 / AT_ONCE);
}

/// P27: what the thread did with queues that it has dropped makes no difference for a queue with a given clock.
#[test]
fn a_queue_with_a_given_clock_counts_from_zero() {
    let calls = Arc::<Calls>::default();
    let taken = |queue: &WorkQueue<u64>| {
        (0..1000).take_while(|_| poll(pin!(queue.get_async()), &calls).is_ready()).count() as u64
    };
    for before in [0, 1, 100, AT_ONCE] {
        let other = filled(1, before);
        taken(&other);
        drop(other);
        let clock = Clock::from_fn(|| Duration::ZERO);
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        queue.add_all(0..1000);
        assert_eq!([(); 3].map(|()| taken(&queue)), [AT_ONCE; 3], "after {before} keys");
    }
}

/// In threads side by side no key is lost, and each thread's other task is polled.
#[test]
fn threads_beside_each_other_let_their_tasks_run() {
    const KEYS: u64 = 20_000;
    for shards in [1, 4] {
        let queue = filled(shards, KEYS);
        queue.shut_down();
        let thread = || {
            let queue = queue.clone();
            thread::spawn(move || {
                let keys = Rc::new(Cell::new(0));
                let counted = Rc::clone(&keys);
                let run = move |_| counted.set(counted.get() + 1);
                (beside_another("tokio", async move { by_get_async(&queue, &run).await }), keys.get())
            })
        };
        let ended = [thread(), thread()].map(|thread| thread.join().unwrap());
        assert_eq!(ended.iter().map(|(_, keys)| keys).sum::<u64>(), KEYS);
        assert!(ended.iter().all(|(polls, keys)| *polls >= keys / AT_ONCE), "{ended:?}");
    }
}
