//! Values of keys: `keyqueue::values` (P26).
//!
//! Checks: each accepted value is in exactly one successful run, or in what a call takes out, in the order of the adds. First the sentences of
//! the docs, one by one, then random lives beside a plain model, a list of values for each key, and then threads at full speed.

mod support {
    pub(crate) mod manual;
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::values::{Refused, ValueQueue};
use keyqueue::{AddOptions, Added, DelayConflict, DelayedAdd, Item, OnPanic, Outcome, WorkQueue, WorkQueueBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use support::manual::{manual, manual_queue};
use support::within::within_30_s;

/// The numbers of adds, in their order.
type Numbers = Vec<u64>;

/// A layer that keeps the number of each add.
fn collecting<K>(queue: WorkQueue<K>) -> ValueQueue<K, Numbers> {
    ValueQueue::with_merge(queue, |older: &Numbers, newer: &Numbers| [&older[..], newer].concat())
}

/// What a run of the next key reads.
fn next<V: Clone>(values: &ValueQueue<u32, V>) -> Option<V> {
    let item = values.queue().try_get().expect("a queued key");
    let value = values.value(&item)?;
    let read = (*value).clone();
    assert!(value.succeed());
    item.succeed();
    Some(read)
}

/// Calls `call`, which panics.
fn panics<R>(call: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "it did not panic");
}

#[test]
fn the_latest_value_wins_by_default() {
    let values = ValueQueue::new(WorkQueue::new());
    assert_eq!(values.add(1, 10).unwrap(), Added::Queued);
    assert_eq!(values.add(1, 11).unwrap(), Added::Coalesced);
    assert_eq!(values.len(), 1);
    assert_eq!(next(&values), Some(11));
    assert!(values.is_empty() && values.queue().is_empty());
}

/// Each end of a run that is no success of its value.
#[test]
fn a_value_stays_until_a_run_has_succeeded() {
    type End = fn(Item<'_, u32>);
    let ends: [(&str, End); 7] = [
        ("retry", |item| _ = item.retry()),
        ("requeue_with", |item| _ = item.requeue_with(AddOptions::new().after(Duration::from_nanos(1)))),
        ("requeue_after", |item| _ = item.requeue_after(Duration::from_nanos(1))),
        ("done", |item| item.done()),
        ("succeed", |item| item.succeed()),
        ("cool_down", |item| item.cool_down(Duration::from_secs(1))),
        ("give_up", |item| item.give_up()),
    ];
    for (name, end) in ends {
        let (queue, time) = manual_queue();
        let values = collecting(queue);
        values.add(1, vec![1]).unwrap();
        values.add(1, vec![2]).unwrap();
        let item = values.queue().get().unwrap();
        assert_eq!(*values.value(&item).unwrap(), [1, 2], "{name}");
        end(item);
        values.add(1, vec![3]).unwrap();
        values.add(1, vec![4]).unwrap();
        time.advance(Duration::from_secs(2));
        values.queue().turn();
        assert_eq!(next(&values), Some(vec![1, 2, 3, 4]), "{name}: the older first");
        assert!(values.is_empty());
    }
}

#[test]
fn what_comes_during_a_run_is_for_the_next_one() {
    let values = collecting(WorkQueue::new());
    values.add(1, vec![1]).unwrap();
    let item = values.queue().get().unwrap();
    let value = values.value(&item).unwrap();
    assert_eq!(values.add(1, vec![2]).unwrap(), Added::Deferred);
    values.add(1, vec![3]).unwrap();
    assert_eq!(*value, [1]);
    assert!(value.succeed());
    item.succeed();
    assert_eq!(next(&values), Some(vec![2, 3]));
}

#[test]
fn a_leaked_value_and_a_second_read_of_a_run_lose_nothing() {
    let values = collecting(WorkQueue::new());
    values.add(1, vec![1]).unwrap();
    let item = values.queue().get_owned().unwrap();
    std::mem::forget(values.value(&item));
    let first = values.value(&item).unwrap();
    let same = values.value(&item).unwrap();
    assert_eq!((&*first, &*same), (&vec![1], &vec![1]));
    values.add(1, vec![2]).unwrap();
    let both = values.value(&item).unwrap();
    assert_eq!(*both, [1, 2]);
    assert!(!first.succeed(), "its value is in the later one");
    assert!(both.succeed());
    assert!(!same.succeed());
    assert!(values.is_empty());
}

#[test]
fn a_key_may_have_no_value() {
    let values = ValueQueue::new(WorkQueue::new());
    values.queue().add(1);
    let item = values.queue().get().unwrap();
    assert!(values.value(&item).is_none());
    values.add(1, 7).unwrap(); // from now on it has one
    assert_eq!(*values.value(&item).unwrap(), 7);
}

#[test]
fn a_refused_add_gives_its_value_back_and_changes_nothing() {
    for values in [ValueQueue::new(WorkQueue::new()), collecting(WorkQueue::new())] {
        values.add(1, vec![1]).unwrap();
        values.queue().shut_down();
        assert_eq!(values.add(1, vec![2]).unwrap_err().0, [2]);
        assert_eq!(values.add_after(2, vec![3], Duration::from_secs(1)).unwrap_err().0, [3]);
        assert_eq!(values.len(), 1);
        assert_eq!(next(&values), Some(vec![1]));
        let error = values.add(1, vec![4]).unwrap_err();
        assert_eq!(format!("{error:?}"), "Refused { .. }");
        assert!(error.to_string().contains("shutting down"));
    }
}

#[test]
#[should_panic = "the item is of another queue"]
fn an_item_of_another_queue_has_no_value_here() {
    let (values, other) = (ValueQueue::new(WorkQueue::new()), WorkQueue::new());
    values.add(1, 7).unwrap();
    other.add(1);
    _ = values.value(&other.get().unwrap());
}

type Between = fn(&ValueQueue<u32, Numbers>);

/// Adds a second value to a key, and calls `between` after the value was stored, and before the queue adds the key. Returns the answer, and
/// what is left.
fn add_in_two_steps(between: Between) -> (Result<Added, Numbers>, Numbers) {
    // The queue asks for the group of a key that is new to it, in the thread of the add, and under no lock.
    let hook = Arc::new(Mutex::new(None));
    let group = {
        let hook = Arc::clone(&hook);
        move |_: &u32| {
            let set: Option<(ValueQueue<u32, Numbers>, Between)> = hook.lock().unwrap().take();
            if let Some((values, between)) = set {
                values.queue().add(1);
                between(&values);
            }
        }
    };
    let values = collecting(WorkQueue::builder().fair_by(group).build());
    values.add(1, vec![1]).unwrap();
    assert!(values.queue().remove(&1), "it is new now, and has a value");
    *hook.lock().unwrap() = Some((values.clone(), between));
    let answer = values.add(1, vec![2]).map_err(|Refused(value)| value);
    assert!(hook.lock().unwrap().is_none(), "the function was not called");
    (answer, values.take_all().into_iter().flat_map(|(_, value)| value.to_vec()).collect())
}

/// A value is given back or accepted, and never both or neither, whatever happens before the queue refuses its key.
#[test]
fn a_refused_add_meets_a_run_and_another_add() {
    let refused = add_in_two_steps(|values| values.queue().shut_down());
    assert_eq!(refused, (Err(vec![2]), vec![1]));

    let run = add_in_two_steps(|values| {
        assert_eq!(next(values), Some(vec![1, 2]), "the value is there before the key is added");
        values.queue().shut_down();
    });
    assert_eq!(run, (Ok(Added::Coalesced), vec![]));

    let failed_run = add_in_two_steps(|values| {
        let item = values.queue().get().unwrap();
        assert_eq!(*values.value(&item).unwrap(), [1, 2]);
        values.queue().shut_down();
        item.done();
    });
    assert_eq!(failed_run, (Ok(Added::Coalesced), vec![1, 2]));

    let add = add_in_two_steps(|values| {
        assert_eq!(values.add(1, vec![3]), Ok(Added::Coalesced));
        values.queue().shut_down();
    });
    assert_eq!(add, (Ok(Added::Coalesced), vec![1, 2, 3]));

    let accepted = add_in_two_steps(|values| assert_eq!(next(values), Some(vec![1, 2])));
    assert_eq!(accepted, (Ok(Added::Queued), vec![]), "and its run finds no value");
}

#[test]
fn delays_and_options_are_those_of_the_queue() {
    let (queue, time) = manual_queue();
    let values = collecting(queue);
    let replace = AddOptions::new().conflict(DelayConflict::Replace);
    assert_eq!(values.add_after(1, vec![1], Duration::from_secs(1)), Ok(Added::Delayed));
    assert_eq!(values.add_with(1, vec![2], replace.after(Duration::from_secs(2))), Ok(Added::Delayed));
    assert_eq!(values.add_after(1, vec![3], Duration::from_secs(9)), Ok(Added::Coalesced));
    time.advance(Duration::from_secs(1));
    assert_eq!(values.queue().turn(), 0);
    time.advance(Duration::from_secs(1));
    assert_eq!(values.queue().turn(), 1);
    assert_eq!(next(&values), Some(vec![1, 2, 3]));

    // An early run has the value of a delay; the run at its end has none.
    values.add_after(1, vec![4], Duration::from_secs(1)).unwrap();
    values.add(1, vec![5]).unwrap();
    assert_eq!(next(&values), Some(vec![4, 5]));
    time.advance(Duration::from_secs(1));
    assert_eq!(values.queue().turn(), 1);
    assert!(values.value(&values.queue().get().unwrap()).is_none());

    // A cool-down holds the key back, and the value waits.
    values.add(1, vec![6]).unwrap();
    let item = values.queue().get().unwrap();
    assert!(values.value(&item).unwrap().succeed());
    item.cool_down(Duration::from_secs(1));
    assert_eq!(values.add(1, vec![7]), Ok(Added::Delayed));
    assert_eq!(values.add(1, vec![8]), Ok(Added::Coalesced));
    time.advance(Duration::from_secs(1));
    values.queue().turn();
    assert_eq!(next(&values), Some(vec![7, 8]));
}

#[test]
fn remove_takes_the_key_and_the_value() {
    let values = collecting(WorkQueue::<String>::new());
    assert!(values.remove("a").is_none());
    values.add("a".to_owned(), vec![1]).unwrap();
    values.add("a".to_owned(), vec![2]).unwrap();
    values.add("b".to_owned(), vec![3]).unwrap();
    assert_eq!(values.remove("a").as_deref(), Some(&vec![1, 2]));
    assert_eq!((values.len(), values.queue().len()), (1, 1));

    // A holder keeps its key, but its value is gone.
    let item = values.queue().get().unwrap();
    let value = values.value(&item).unwrap();
    values.add("b".to_owned(), vec![4]).unwrap();
    assert_eq!(values.remove("b").as_deref(), Some(&vec![3, 4]));
    assert_eq!(*value, [3], "it goes on reading");
    assert!(!item.is_dirty() && !value.succeed());

    // A value outlives its key, and the next add of the key finds it.
    values.add("b".to_owned(), vec![5]).unwrap();
    assert!(values.queue().remove("b"));
    assert_eq!(values.remove("b").as_deref(), Some(&vec![5]));
}

#[test]
fn take_all_has_what_is_left_of_a_stop() {
    let (queue, _time) = manual_queue();
    let values = collecting(queue);
    let workers = values.queue().workers().build();
    (1..=4_u32).for_each(|key| _ = values.add(key, vec![u64::from(key)]).unwrap());
    values.add_after(5, vec![5], Duration::from_secs(1)).unwrap();
    let succeeded = values.queue().get().unwrap();
    assert!(values.value(&succeeded).unwrap().succeed());
    succeeded.succeed();
    let failed = values.queue().get().unwrap();
    _ = values.value(&failed);
    failed.retry();
    values.add(2, vec![6]).unwrap();
    let hangs = values.queue().get().unwrap();
    let read = values.value(&hangs).unwrap();
    values.add(3, vec![7]).unwrap();
    let keys = workers.stop();
    assert_eq!((keys.queued, keys.processing), (vec![4, 2], vec![3]));
    assert_eq!(keys.delayed.iter().map(|delayed| delayed.key).collect::<BTreeSet<_>>(), [2, 5].into());
    let left: BTreeMap<_, _> = values.take_all().into_iter().map(|(key, value)| (key, value.to_vec())).collect();
    assert_eq!(left, [(2, vec![2, 6]), (3, vec![3, 7]), (4, vec![4]), (5, vec![5])].into());
    assert!(!read.succeed(), "it is in the leftover");
    assert!(values.take_all().is_empty() && values.is_empty());
}

/// A layer whose merge panics while the flag is set. The panic prints nothing.
fn failing_merge(queue: WorkQueue<u32>, fails: &Arc<AtomicBool>) -> ValueQueue<u32, Numbers> {
    let fails = Arc::clone(fails);
    ValueQueue::with_merge(queue, move |older: &Numbers, newer: &Numbers| {
        if fails.load(Ordering::SeqCst) {
            resume_unwind(Box::new("the merge"));
        }
        [&older[..], newer].concat()
    })
}

/// So what waits for a key that fails for long is one value, however many have come.
#[test]
fn each_add_merges_what_no_run_has_read() {
    let merges = Arc::new(AtomicUsize::new(0));
    let values = ValueQueue::with_merge(WorkQueue::new(), {
        let merges = Arc::clone(&merges);
        move |older: &u64, newer: &u64| {
            merges.fetch_add(1, Ordering::SeqCst);
            older + newer
        }
    });
    (0..10).for_each(|number| _ = values.add(1, number).unwrap());
    assert_eq!(merges.load(Ordering::SeqCst), 9);
    let item = values.queue().get().unwrap();
    assert_eq!(values.value(&item).as_deref(), Some(&45));
    (0..10).for_each(|number| _ = values.add(1, number).unwrap());
    assert_eq!(merges.load(Ordering::SeqCst), 18, "not with what the run has read");
    assert_eq!(values.value(&item).as_deref(), Some(&90));
}

#[test]
fn a_merge_that_panics_loses_no_value() {
    let fails = Arc::new(AtomicBool::new(true));
    let values = failing_merge(WorkQueue::new(), &fails);
    values.add(1, vec![1]).unwrap();
    panics(|| values.add(1, vec![2]));
    let item = values.queue().get().unwrap();
    panics(|| _ = values.value(&item));
    panics(|| values.remove(&1));
    let left: Vec<_> = values.take_all().into_iter().map(|(key, value)| (key, value.to_vec())).collect();
    assert_eq!(left, [(1, vec![1]), (1, vec![2])], "one by one");

    values.add(1, vec![3]).unwrap();
    panics(|| values.add(1, vec![4]));
    fails.store(false, Ordering::SeqCst);
    values.add(1, vec![5]).unwrap();
    assert_eq!(*values.value(&item).unwrap(), [3, 4, 5]);
}

/// The merge runs under no lock, so it may use the layer: here it adds to its own key, and reads and takes it out.
#[test]
fn a_merge_may_use_the_layer() {
    for call in [
        (|values| _ = values.add(1, vec![9]).unwrap()) as Between,
        |values| _ = values.value(&values.queue().get().unwrap()),
        |values| assert_eq!(values.remove(&1).as_deref(), Some(&vec![1, 2])),
        |values| assert_eq!(*values.take_all()[0].1, [1, 2]),
    ] {
        let within: Arc<Mutex<Option<ValueQueue<u32, Numbers>>>> = Arc::default();
        let values = ValueQueue::with_merge(WorkQueue::new(), {
            let within = Arc::clone(&within);
            move |older: &Numbers, newer: &Numbers| {
                let values = within.lock().unwrap().take();
                values.iter().for_each(call);
                [&older[..], newer].concat()
            }
        });
        values.add(1, vec![1]).unwrap();
        *within.lock().unwrap() = Some(values.clone());
        values.add(1, vec![2]).unwrap();
        let left = values.take_all();
        let left = left.first().map(|(_, value)| value.to_vec());
        assert!([None, Some(vec![1, 2]), Some(vec![1, 2, 9])].contains(&left), "{left:?}");
    }
}

/// A key and a value of which each hash, clone and drop uses the layer. It would wait for itself if it ran under the lock, which a debug
/// build notices. (Not so `Eq`.)
struct Busy(u32, Arc<Mutex<Option<ValueQueue<Busy, Busy>>>>);

impl Busy {
    fn use_layer(&self) {
        let values = self.1.lock().unwrap().clone();
        values.iter().for_each(|values| _ = values.len());
    }
}

impl Hash for Busy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.use_layer();
        self.0.hash(state);
    }
}

impl PartialEq for Busy {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Busy {}

impl Clone for Busy {
    fn clone(&self) -> Self {
        self.use_layer();
        Self(self.0, Arc::clone(&self.1))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.use_layer();
    }
}

#[test]
fn keys_and_values_may_use_the_layer() {
    let layer = Arc::default();
    let new = |number| Busy(number, Arc::clone(&layer));
    let merge = |older: &Busy, newer: &Busy| {
        older.use_layer();
        Busy(older.0 + newer.0, Arc::clone(&older.1))
    };
    for values in [ValueQueue::new(WorkQueue::new()), ValueQueue::with_merge(WorkQueue::new(), merge)] {
        *layer.lock().unwrap() = Some(values.clone());
        for key in 0..100 {
            (0..3).for_each(|number| _ = values.add(new(key), new(number)).unwrap());
        }
        assert!(values.remove(&new(0)).is_some());
        while let Ok(item) = values.queue().try_get() {
            assert!(values.value(&item).is_some());
            _ = values.add(new(item.0), new(1)).unwrap();
            assert!(values.value(&item).unwrap().succeed());
            values.queue().remove(&new(item.0));
        }
        assert!(values.is_empty());
        _ = values.add(new(1), new(1)).unwrap();
        let item = values.queue().get().unwrap();
        assert!(values.value(&item).is_some()); // what comes now is beside it
        _ = values.add(new(1), new(1)).unwrap();
        drop(item);
        values.queue().shut_down();
        assert!(values.add(new(1), new(1)).is_err() && values.add(new(2), new(1)).is_err());
        assert_eq!(values.take_all().len(), 1);
        let last = layer.lock().unwrap().take();
        drop(last);
    }
}

/// Counts its drops, and panics in them while the flag is set.
struct Fragile(Arc<(AtomicUsize, AtomicBool)>);

impl Drop for Fragile {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        if self.0.1.load(Ordering::SeqCst) {
            resume_unwind(Box::new("a drop"));
        }
    }
}

#[test]
fn a_value_whose_drop_panics_does_no_harm() {
    let state = Arc::new((AtomicUsize::new(0), AtomicBool::new(true)));
    let new = || Fragile(Arc::clone(&state));
    let values = ValueQueue::new(WorkQueue::new());
    values.add(1, new()).unwrap();
    panics(|| values.add(1, new()));
    assert_eq!((state.0.load(Ordering::SeqCst), values.len()), (1, 1), "the later one is accepted");
    let item = values.queue().get().unwrap();
    let value = values.value(&item).unwrap();
    panics(|| value.succeed());
    assert_eq!((state.0.load(Ordering::SeqCst), values.len()), (2, 0), "and done with");
    item.succeed();
    state.1.store(false, Ordering::SeqCst);
    values.add(1, new()).unwrap();
    drop(values);
    assert_eq!(state.0.load(Ordering::SeqCst), 3);
}

/// The drops of values that are no longer needed panic, of a merge two at a time. No other value is lost.
#[test]
fn values_whose_drops_panic_keep_no_value_from_the_caller() {
    for merges in [false, true] {
        let state = Arc::new((AtomicUsize::new(0), AtomicBool::new(false)));
        let new = {
            let state = Arc::clone(&state);
            move || Fragile(Arc::clone(&state))
        };
        let values = match merges {
            true => ValueQueue::with_merge(WorkQueue::new(), {
                let new = new.clone();
                move |_: &Fragile, _: &Fragile| new()
            }),
            false => ValueQueue::new(WorkQueue::new()),
        };
        (0..3).for_each(|key| _ = values.add(key, new()).unwrap());
        for item in values.queue().get_many(3) {
            assert!(values.value(&item).is_some());
            _ = values.add(*item, new()).unwrap(); // beside it
        }
        let item = values.queue().get().unwrap();
        state.1.store(true, Ordering::SeqCst);
        panics(|| values.value(&item).is_some());
        let all = values.take_all();
        state.1.store(false, Ordering::SeqCst);
        assert_eq!((all.len(), values.len()), (3, 0), "merges: {merges}");
    }
}

/// A key of which the layer keeps a clone. All are equal.
struct Brittle {
    is_clone: bool,
}

impl Clone for Brittle {
    fn clone(&self) -> Self {
        Self { is_clone: true }
    }
}

impl PartialEq for Brittle {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Brittle {}

impl Hash for Brittle {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for Brittle {
    fn drop(&mut self) {
        if self.is_clone {
            resume_unwind(Box::new("a drop"));
        }
    }
}

#[test]
fn a_key_whose_drop_panics_keeps_no_value_from_the_caller() {
    let new = || Brittle { is_clone: false };
    let values = ValueQueue::new(WorkQueue::new());
    values.add(new(), 1).unwrap();
    assert_eq!(values.remove(&new()).as_deref(), Some(&1));
    values.add(new(), 2).unwrap();
    let item = values.queue().get().unwrap();
    assert!(values.value(&item).unwrap().succeed());
    item.succeed();
    values.queue().shut_down();
    assert_eq!(values.add(new(), 3), Err(Refused(3)));
    assert!(values.is_empty());

    let merge = |_: &i32, _: &i32| -> i32 { resume_unwind(Box::new("a merge")) };
    let values = ValueQueue::with_merge(WorkQueue::new(), merge);
    values.add(new(), 4).unwrap();
    panics(|| values.add(new(), 5));
    let (keys, all): (Vec<_>, Vec<_>) = values.take_all().into_iter().map(|(key, value)| (key, *value)).unzip();
    std::mem::forget(keys);
    assert_eq!(all, [4, 5]);
}

/// `finish` keeps the value after all outcomes but those after which a handler is content.
#[test]
fn finish_knows_successes_from_failures() {
    type Ends = fn() -> Outcome;
    let second = Duration::from_secs(1);
    let successes: [Ends; 3] = [
        || Outcome::Success,
        || Outcome::Cooldown(Duration::from_secs(1)),
        || Outcome::RequeueAfter(Duration::from_secs(1)),
    ];
    let others: [Ends; 6] = [
        || Outcome::Retry,
        || Outcome::failed("no"),
        || Outcome::RetryAfter { delay: Duration::ZERO, error: "no".into() },
        || Outcome::PauseGroup { delay: Duration::ZERO, error: "no".into() },
        || Outcome::RequeueWith(AddOptions::new()),
        || Outcome::GiveUp("no".into()),
    ];
    for (ends, keeps) in [(&successes[..], false), (&others, true)] {
        for end in ends {
            let (queue, time) = manual_queue();
            let values = ValueQueue::new(queue);
            values.add(1, 7).unwrap();
            let workers = values.queue().workers().build();
            let mut run = std::pin::pin!(workers.run_async({
                let values = values.clone();
                async move |item| {
                    let Some(value) = values.value(item) else { return Outcome::Success };
                    value.finish(end())
                }
            }));
            assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(values.is_empty(), !keeps, "{:?}", end());
            time.advance(second);
        }
    }
}

/// Panics, aborted tasks, and retries that a drain refuses.
#[test]
fn what_workers_do_not_finish_is_kept() {
    let values = ValueQueue::new(WorkQueue::builder().on_panic(OnPanic::Retry).build());
    let workers = values.queue().workers().build();
    values.add(1, 10).unwrap();
    values.add(2, 20).unwrap();
    {
        let mut hangs = std::pin::pin!(workers.run_async({
            let values = values.clone();
            async move |item| {
                let _value = values.value(item);
                std::future::pending::<()>().await;
            }
        }));
        assert!(hangs.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!((values.len(), values.queue().processing_len()), (2, 0), "an aborted run");
    values.queue().shut_down();
    workers.run(|item| {
        let _value = values.value(item).unwrap();
        resume_unwind(Box::new("a handler"));
    });
    let keys = block_on(workers.drain_async());
    assert_eq!(keys.refused, [2, 1], "the key of the aborted run was queued again");
    let left: BTreeMap<_, _> = values.take_all().into_iter().map(|(key, value)| (key, *value)).collect();
    assert_eq!(left, [(1, 10), (2, 20)].into());
}

/// What comes while the queue is paused is one value, which the run after the resume reads.
#[test]
fn values_gather_in_a_paused_queue() {
    for (kind, builder) in queues() {
        let values = collecting(builder.build());
        values.queue().pause();
        (1..=3).for_each(|number| _ = values.add(1, vec![number]).unwrap());
        assert!(values.queue().try_get().is_err(), "{kind}");
        values.queue().resume();
        assert_eq!(next(&values), Some(vec![1, 2, 3]), "{kind}");
        assert!(values.is_empty());
    }
}

/// A key that is given up and comes back by `then_after` still has its value, merged with what has come since.
#[test]
fn a_value_outlives_the_last_retry() {
    let (queue, time) = manual_queue();
    let values = collecting(queue);
    let workers = values.queue().workers().max_retries(1).then_after(Duration::from_secs(3600)).build();
    let (seen, fails) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let mut run = std::pin::pin!(workers.run_async(async |item: &Item<'_, u32>| {
        let value = values.value(item).expect("no run of this key has succeeded");
        seen.lock().unwrap().push((*value).clone());
        value.finish(if fails.load(Ordering::SeqCst) { Err("no") } else { Ok(()) })
    }));
    let mut turn = |advance: Duration| {
        time.advance(advance);
        values.queue().turn();
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    values.add(1, vec![1]).unwrap();
    turn(Duration::ZERO);
    turn(Duration::from_secs(1)); // the only retry
    assert_eq!(workers.tally().given_up, 1);
    values.add_after(1, vec![2], Duration::from_secs(7200)).unwrap();
    fails.store(false, Ordering::SeqCst);
    turn(Duration::from_secs(3600));
    assert_eq!(*seen.lock().unwrap(), [vec![1], vec![1], vec![1, 2]]);
    assert!(values.is_empty());
}

/// `finish` lets a run end, and each value is in a successful run or among what is left, with its key in the one leftover.
#[test]
fn a_finish_leaves_the_values_of_what_has_not_succeeded() {
    let values = collecting(WorkQueue::new());
    let workers = values.queue().workers().build();
    (1..=4_u32).for_each(|key| _ = values.add(key, vec![u64::from(key)]).unwrap());
    let (begun, is_open) = (AtomicUsize::new(0), AtomicBool::new(false));
    let leftover = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                workers.run(|item| {
                    let value = values.value(item).unwrap();
                    begun.fetch_add(1, Ordering::SeqCst);
                    while !is_open.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    value.finish(if item.key() % 2 == 0 { Ok(()) } else { Err("odd") })
                });
            });
        }
        while begun.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        let finished = scope.spawn(|| workers.finish(Duration::from_secs(60)));
        while !values.queue().shutting_down() {
            thread::yield_now();
        }
        assert!(values.add(5, vec![5]).is_err());
        is_open.store(true, Ordering::SeqCst);
        finished.join().unwrap()
    });
    let left: BTreeMap<_, _> = values.take_all().into_iter().map(|(key, value)| (key, (*value).clone())).collect();
    assert_eq!(left, [(1, vec![1]), (3, vec![3]), (4, vec![4])].into());
    let mut keys: Vec<_> = leftover.keys().copied().collect();
    keys.sort_unstable();
    assert_eq!((keys, leftover.refused), (vec![1, 3, 4], vec![1]));
}

#[test]
fn debug_shows_the_queue_and_the_value() {
    let values = ValueQueue::new(WorkQueue::builder().name("pods").build());
    values.add(1, "new").unwrap();
    let text = format!("{values:?}");
    assert!(text.contains("name: \"pods\"") && text.ends_with("values: 1 }"), "{text}");
    let item = values.queue().get().unwrap();
    assert_eq!(format!("{:?}", values.value(&item).unwrap()), "Value(\"new\")");
}

/// All settings of queues that a layer may be over.
fn queues() -> Vec<(&'static str, WorkQueueBuilder<u32>)> {
    let builder = WorkQueue::<u32>::builder;
    vec![
        ("plain", builder()),
        ("4 shards", builder().shards(4)),
        ("groups", builder().fair_by(|key| key % 2)),
        ("strict", builder().delayed_add(DelayedAdd::Strict)),
        ("promote", builder().delayed_add(DelayedAdd::Promote)),
        #[cfg(feature = "lock-free")]
        ("lock-free", builder().lock_free()),
        #[cfg(feature = "lock-free")]
        ("lock-free, 4 shards", builder().lock_free().shards(4)),
    ]
}

/// A life of a layer beside a list of the values of each key.
struct Life {
    values: ValueQueue<u32, Numbers>,
    /// The merge panics.
    fails: Arc<AtomicBool>,
    time: keyqueue::MockClock,
    random: fastrand::Rng,
    /// What was accepted, and no run has succeeded with, in the order of the adds.
    kept: BTreeMap<u32, Numbers>,
    /// Keys with values that no run is due to: their last run has ended without a retry, or a call took the key out.
    left: BTreeSet<u32>,
    /// Numbers that a successful run has had, or a call has taken out.
    over: BTreeSet<u64>,
    adds: u64,
}

impl Life {
    fn key(&mut self) -> u32 {
        self.random.u32(0..4)
    }

    /// These numbers have left the layer.
    fn end(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| assert!(self.over.insert(*number), "{number} twice"));
    }

    fn add(&mut self) {
        let (key, options) = (self.key(), AddOptions::new());
        let delay = Duration::from_nanos(self.random.u64(0..100));
        let options = match self.random.u32(0..6) {
            0..3 => options,
            3 => options.after(delay),
            4 => options.after(delay).conflict(DelayConflict::Replace),
            _ => options.rate_limited(),
        };
        self.adds += 1;
        let number = self.adds;
        self.fails.store(self.random.u32(0..8) == 0, Ordering::SeqCst);
        let added = catch_unwind(AssertUnwindSafe(|| self.values.add_with(key, vec![number], options)));
        self.fails.store(false, Ordering::SeqCst);
        if self.values.queue().shutting_down() {
            return assert_eq!(added.unwrap(), Err(Refused(vec![number])));
        }
        assert!(added.map_or(true, |added| added.unwrap().is_accepted()), "a panic comes after the add");
        self.kept.entry(key).or_default().push(number);
        self.left.remove(&key);
    }

    /// What the layer has of a key.
    fn kept(&self, key: u32) -> Option<Numbers> {
        self.kept.get(&key).filter(|kept| !kept.is_empty()).cloned()
    }

    fn step(&mut self, depth: usize) {
        match self.random.u32(0..40) {
            0..16 => self.add(),
            16..26 if depth < 3 => self.run(depth),
            26..30 => {
                self.time.advance(Duration::from_nanos(self.random.u64(0..100)));
                self.values.queue().turn();
            }
            30..32 => {
                let key = self.key();
                self.values.queue().add(key);
            }
            32 => {
                let key = self.key();
                self.values.queue().cancel(&key);
                self.left.insert(key);
            }
            33 => {
                let key = self.key();
                self.values.queue().remove(&key);
                self.left.insert(key);
            }
            34 => {
                let key = self.key();
                let expected = self.kept(key);
                assert_eq!(self.values.remove(&key).map(|value| value.to_vec()), expected);
                let numbers = self.kept.remove(&key).unwrap_or_default();
                self.end(&numbers);
            }
            35 if depth == 0 => {
                _ = self.values.queue().take_delayed().iter().map(|taken| self.left.insert(taken.key)).count()
            }
            36 if self.random.u32(0..4) == 0 => self.take_all(),
            37 if self.random.u32(0..20) == 0 => self.values.queue().shut_down(),
            _ => {}
        }
        let kept = self.kept.values().filter(|kept| !kept.is_empty()).count();
        assert_eq!(self.values.len(), kept);
    }

    fn take_all(&mut self) {
        self.fails.store(self.random.bool(), Ordering::SeqCst);
        let mut taken: BTreeMap<u32, Numbers> = BTreeMap::new();
        for (key, value) in self.values.take_all() {
            taken.entry(key).or_default().extend(&*value);
        }
        self.fails.store(false, Ordering::SeqCst);
        self.kept.retain(|_, kept| !kept.is_empty());
        assert_eq!(taken, self.kept);
        let numbers: Numbers = std::mem::take(&mut self.kept).into_values().flatten().collect();
        self.end(&numbers);
    }

    /// A run of the next key, with other steps in it.
    fn run(&mut self, depth: usize) {
        let (values, queue) = (self.values.clone(), self.values.queue().clone());
        let Ok(item) = queue.try_get() else { return };
        let key = *item;
        let steps = |this: &mut Self| (0..this.random.u32(0..4)).for_each(|_| this.step(depth + 1));
        steps(self);
        if self.random.u32(0..8) == 0 {
            self.fails.store(true, Ordering::SeqCst);
            _ = catch_unwind(AssertUnwindSafe(|| values.value(&item).map(drop)));
            self.fails.store(false, Ordering::SeqCst);
        }
        let value = values.value(&item);
        let read = self.kept(key);
        assert_eq!(value.as_deref(), read.as_ref(), "key {key}");
        steps(self);
        if let (Some(value), Some(read)) = (value, read) {
            assert_eq!(*value, read, "it does not change");
            match self.random.u32(0..8) {
                0..5 => {
                    let is_there = self.kept(key).is_some_and(|kept| kept.starts_with(&read));
                    assert_eq!(value.succeed(), is_there, "key {key}");
                    if is_there {
                        self.end(&read);
                        self.kept.get_mut(&key).unwrap().drain(..read.len());
                    }
                }
                5 => std::mem::forget(value),
                _ => drop(value),
            }
        }
        steps(self);
        // A dirty key runs again anyway.
        let is_dirty = item.is_dirty();
        let retried = match self.random.u32(0..8) {
            0..3 => item.retry().is_accepted(),
            3 => item.requeue_after(Duration::from_nanos(self.random.u64(0..100))).is_accepted(),
            4 => {
                item.succeed();
                false
            }
            5 => {
                item.cool_down(Duration::from_nanos(self.random.u64(0..100)));
                false
            }
            6 => {
                item.give_up();
                false
            }
            _ => false,
        };
        if !retried && !is_dirty {
            self.left.insert(key);
        }
    }
}

fn live(builder: WorkQueueBuilder<u32>, seed: u64) {
    let fails = Arc::new(AtomicBool::new(false));
    let (builder, time) = manual(builder);
    let values = failing_merge(builder.build(), &fails);
    let random = fastrand::Rng::with_seed(seed);
    let (kept, left, over) = Default::default();
    let mut life = Life { values, fails, time, random, kept, left, over, adds: 0 };
    (0..60).for_each(|_| life.step(0));
    // To the end: each key that is due has a run, with what is left of it.
    let queue = life.values.queue().clone();
    let is_down = queue.shutting_down();
    for _ in 0..3 {
        life.time.advance(Duration::from_secs(10_000));
        queue.turn();
        while let Ok(item) = queue.try_get() {
            let value = life.values.value(&item);
            assert_eq!(value.as_deref(), life.kept(*item).as_ref());
            if let Some(value) = value {
                assert!(value.succeed());
                let numbers = life.kept.remove(&item).unwrap();
                life.end(&numbers);
            }
            item.succeed();
        }
    }
    for (key, kept) in &life.kept {
        assert!(kept.is_empty() || is_down || life.left.contains(key), "no run of {key} with {kept:?}");
    }
    life.take_all();
    assert!(life.values.is_empty());
}

#[test]
fn random_lives_beside_a_list_of_values() {
    for seed in 0..if cfg!(debug_assertions) { 400 } else { 4000 } {
        for (name, builder) in queues() {
            let lived = catch_unwind(AssertUnwindSafe(|| live(builder, seed)));
            if let Err(payload) = lived {
                eprintln!("{name}, seed {seed}");
                resume_unwind(payload);
            }
        }
    }
}

/// Threads at full speed: producers, workers that fail, panic and leak, and a stop in the middle. Each number is in one successful run or
/// in what is left, and the numbers of a producer come in their order.
#[test]
fn threads_add_and_run() {
    const PRODUCERS: u64 = 3;
    let rounds = if cfg!(debug_assertions) { 20 } else { 100 };
    for round in 0..rounds {
        for (name, builder) in queues() {
            let (accepted, succeeded) = within_30_s(move || run_threads(builder, round));
            assert_eq!(accepted, succeeded, "{name}");
        }
    }

    /// For each key, what was accepted and what has come out, both sorted.
    fn run_threads(builder: WorkQueueBuilder<u32>, round: u64) -> (BTreeMap<u32, Numbers>, BTreeMap<u32, Numbers>) {
        let values = collecting(builder.on_panic(OnPanic::Retry).build());
        let out: Arc<Mutex<BTreeMap<u32, Numbers>>> = Arc::default();
        let runs = AtomicU64::new(round);
        let workers = values.queue().workers().spawn(3, {
            let (values, out) = (values.clone(), Arc::clone(&out));
            move |item| {
                let Some(value) = values.value(item) else { return Outcome::Success };
                match runs.fetch_add(1, Ordering::Relaxed) % 8 {
                    0 => Outcome::RetryAfter { delay: Duration::ZERO, error: "fails".into() },
                    1 => resume_unwind(Box::new("panics")),
                    2 => {
                        std::mem::forget(value);
                        Outcome::RequeueWith(AddOptions::new())
                    }
                    _ => {
                        let read = value.to_vec();
                        if value.succeed() {
                            // The holder is the only one that has the key, so the lists are in the order of its runs.
                            out.lock().unwrap().entry(*item.key()).or_default().extend(read);
                        }
                        Outcome::Success
                    }
                }
            }
        });
        let workers = workers.unwrap();
        let adders: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let values = values.clone();
                thread::spawn(move || {
                    let mut accepted: BTreeMap<u32, Numbers> = BTreeMap::new();
                    for number in 0..300 {
                        let (key, number) = ((number % 3) as u32, number * PRODUCERS + producer);
                        if values.add(key, vec![number]).is_ok() {
                            accepted.entry(key).or_default().push(number);
                        }
                    }
                    accepted
                })
            })
            .collect();
        if round % 2 == 0 {
            thread::sleep(Duration::from_micros(50));
            _ = workers.stop();
        }
        let mut accepted: BTreeMap<u32, Numbers> = BTreeMap::new();
        for adder in adders {
            adder
                .join()
                .unwrap()
                .into_iter()
                .for_each(|(key, numbers)| accepted.entry(key).or_default().extend(numbers));
        }
        if round % 2 == 1 {
            values.queue().wait_idle();
            assert!(values.is_empty(), "all runs are over, and have succeeded");
        }
        _ = workers.drain();
        let mut out = std::mem::take(&mut *out.lock().unwrap());
        values.take_all().into_iter().for_each(|(key, value)| out.entry(key).or_default().extend(&*value));
        for numbers in out.values() {
            for producer in 0..PRODUCERS {
                let own = numbers.iter().filter(|number| *number % PRODUCERS == producer);
                assert!(own.is_sorted(), "{numbers:?}");
            }
        }
        for lists in [&mut accepted, &mut out] {
            lists.values_mut().for_each(|numbers| numbers.sort_unstable());
        }
        (accepted, out)
    }
}
