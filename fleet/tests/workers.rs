//! What a fleet's workers have in common with the queue's, and what is left when the fleet is dropped.

use crate::common::{join, millis, seconds, within};
use keyqueue::{Added as QueueAdded, Outcome, WorkQueue};
use keyqueue_fleet::{Added, Fleet, Held, MemoryStore};
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Handle};

async fn alone() -> Fleet<u64> {
    let fleet = join(&MemoryStore::new(), "a").await.unwrap();
    within(seconds(1), || fleet.stats().owned == 16).await;
    fleet
}

/// The member's task, its watch, and loops that wait for a key or whose handler hangs.
#[test]
fn a_dropped_fleet_leaves_no_task_behind() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let alive = runtime.metrics();
    runtime.block_on(async {
        let fleet = alone().await;
        let workers = fleet.workers().build();
        workers.spawn_tasks(2, |_| Box::pin(pending::<()>()));
        Handle::current().spawn(workers.run_async(async |_| pending::<()>().await));
        fleet.add(1);
        within(seconds(1), || fleet.queue().processing_len() == 1).await;
        assert!(alive.num_alive_tasks() >= 5, "{}", alive.num_alive_tasks());
        let queue = fleet.queue().clone();
        drop(workers);
        drop(fleet);
        within(millis(100), || alive.num_alive_tasks() == 0).await;
        assert_eq!(queue.processing_len(), 0);
    });
}

/// The loops of a member that has left end too: nothing would be handed out any more.
#[tokio::test(start_paused = true)]
async fn loops_end_when_the_member_has_left() {
    let fleet = alone().await;
    let workers = fleet.workers().build();
    workers.spawn_tasks(3, |_| Box::pin(async {}));
    assert_eq!(workers.tally().running, 3);
    fleet.leave().await;
    tokio::time::timeout(seconds(1), workers.join_async()).await.expect("they end");
    assert_eq!(workers.tally().running, 0);
}

/// In real time: the queue's clock waits before a retry.
#[tokio::test]
async fn a_question_mark_in_a_handler_means_what_it_means_in_the_queue() {
    async fn by_function(key: &Held<'_, u64>) -> Result<(), std::num::ParseIntError> {
        key.to_string().parse::<u64>().map(drop)
    }

    let fleet = alone().await;
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&given_up);
    let settings =
        fleet.workers().max_retries(2).on_give_up(move |key, why| kept.lock().unwrap().push((*key, why.to_string())));
    let workers = settings.build();
    tokio::spawn(workers.run_async(async |key| -> Result<Outcome, Outcome> {
        if **key == 1 {
            "x".parse::<u64>()?; // retried
        }
        by_function(key).await?;
        if **key == 2 { Err(Outcome::GiveUp("no luck".into())) } else { Ok(Outcome::Success) }
    }));
    (1..=3).for_each(|key| assert!(fleet.add(key).is_accepted()));
    within(seconds(5), || workers.tally().succeeded == 1 && workers.tally().given_up == 2).await;
    let given_up = given_up.lock().unwrap().clone();
    assert_eq!(given_up.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [2, 1]);
    assert!(given_up[1].1.starts_with("given up after 2 retries"), "{given_up:?}");
}

#[tokio::test(start_paused = true)]
async fn a_held_key_is_its_key_as_an_item_is() {
    let fleet = Fleet::builder(MemoryStore::new()).build(WorkQueue::<String>::new()).await.unwrap();
    within(seconds(1), || fleet.stats().owned == 256).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let workers = fleet.workers().build();
    let kept = Arc::clone(&seen);
    tokio::spawn(workers.run_async(async move |key| {
        assert_eq!((key.token(), key.partition()), (key.permit().token(), key.permit().partition()));
        assert!(!key.is_lost() && key.item().num_requeues() == 0);
        kept.lock().unwrap().push((key.len(), format!("{key}"), key.key().clone()));
    }));
    fleet.add("pod-1".to_owned());
    within(seconds(1), || seen.lock().unwrap().len() == 1).await;
    assert_eq!(seen.lock().unwrap()[0], (5, "pod-1".to_owned(), "pod-1".to_owned()));
    assert_eq!(workers.tally().panicked, 0);
}

#[tokio::test]
async fn threads_process_keys_until_the_queue_is_shut_down() {
    let fleet = join(&MemoryStore::new(), "a").await.unwrap();
    while fleet.stats().owned < 16 {
        tokio::task::yield_now().await;
    }
    let sum = Arc::new(AtomicU64::new(0));
    let added = Arc::clone(&sum);
    let named = fleet.workers().name("sum").spawn(2, move |key| {
        assert!(std::thread::current().name().unwrap().starts_with("sum-"));
        added.fetch_add(**key, Ordering::Relaxed);
    });
    let workers = named.unwrap();
    (1..=100).for_each(|key| assert_eq!(fleet.add(key), Added::Mine(QueueAdded::Queued)));
    fleet.queue().wait_idle_async().await;
    assert_eq!((sum.load(Ordering::Relaxed), workers.tally().succeeded), (5050, 100));
    assert!(workers.stop().is_empty());
    workers.join();
    assert_eq!(fleet.add(1), Added::Mine(QueueAdded::Rejected));
    assert!(fleet.add(1).is_mine() && !fleet.add(1).is_accepted());
    let mut ran = 0;
    fleet.workers().build().run(|_| ran += 1); // at its end at once
    assert_eq!(ran, 0);
    assert!(fleet.workers().spawn(0, |_| {}).is_err());
    fleet.leave().await;
    assert!(!Added::NotMine.is_accepted() && fleet.add(1) == Added::NotMine);
}
