//! Groups in a queue with several shards: their limits, and keys that change their groups (P1, P20).

use keyqueue::{AddOptions, Added, Driver, Item, Priority, WorkQueue};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A key that names its group, which `Eq` and `Hash` do not compare, so that equal keys may have different groups.
#[derive(Debug, Clone, Copy)]
struct Key {
    number: usize,
    group: u32,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

fn key(number: usize, group: u32) -> Key {
    Key { number, group }
}

/// A queue with this limit, whose delays do not expire.
fn shards(shards: usize, limit: usize) -> WorkQueue<Key> {
    let builder = WorkQueue::builder().shards(shards).driver(Driver::Manual);
    builder.fair_by(|key: &Key| key.group).max_processing_per_group(limit).build()
}

/// Two groups whose keys are in different shards.
fn two_groups(queue: &WorkQueue<Key>) -> [u32; 2] {
    let shard_of = |group| queue.shard_index(&key(0, group));
    [0, (1..).find(|group| shard_of(*group) != shard_of(0)).expect("there are several shards")]
}

/// The first answer counts while the key is known, whatever it does meanwhile. Then the next one counts.
#[test]
fn a_key_stays_in_its_group_while_it_is_known() {
    let queue = shards(16, 1);
    let [first, second] = two_groups(&queue);
    let one = |group| key(1, group);

    // Queued.
    assert_eq!((queue.add(one(first)), queue.add(one(second)), queue.len()), (Added::Queued, Added::Coalesced, 1));
    // The add of the other group has raised it, and not queued another one.
    assert_eq!(queue.add_with(one(second), AddOptions::new().priority(Priority::HIGH)), Added::Coalesced);
    assert_eq!(queue.inspect().levels().len(), 1);

    // Processing: its group is the first one, which is full.
    let item = queue.try_get().unwrap();
    assert_eq!((item.group, item.priority()), (first, Priority::HIGH));
    assert_eq!((queue.add(one(second)), queue.add(one(second))), (Added::Deferred, Added::Coalesced));
    assert!(item.is_dirty() && queue.try_get().is_err());
    assert_eq!((queue.add(key(2, first)), queue.add(key(3, second))), (Added::Queued, Added::Queued));
    let other = queue.try_get().unwrap();
    assert_eq!(other.number, 3);
    assert!(queue.try_get().is_err(), "the first group is full");
    other.done();
    item.done();
    let mut got: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| item.number)).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2]);

    // Delayed, and failed: found by each look-up, whatever group the key names.
    assert_eq!(
        (queue.add_after(one(second), HOUR), queue.add_after(one(first), HOUR)),
        (Added::Delayed, Added::Coalesced)
    );
    assert_eq!((queue.delayed_len(), queue.cancel(&one(first)), queue.cancel(&one(second))), (1, true, false));
    assert_eq!(
        (queue.add_rate_limited(one(first)), queue.add_rate_limited(one(second))),
        (Added::Delayed, Added::Coalesced)
    );
    assert_eq!((queue.num_requeues(&one(second)), queue.num_requeues(&one(first)), queue.delayed_len()), (2, 2, 1));
    queue.forget(&one(second));
    assert_eq!((queue.num_requeues(&one(first)), queue.remove(&one(second)), queue.delayed_len()), (0, true, 0));

    // It is forgotten, so the next answer counts.
    assert_eq!(queue.add(one(second)), Added::Queued);
    assert_eq!(queue.try_get().unwrap().group, second);
    assert!(!queue.remove(&one(first)));
}

/// Look-ups find a key among those of 64 shards, and none that is not there.
#[test]
fn a_look_up_finds_its_key_in_whatever_shard() {
    let queue = shards(64, 1);
    for n in 0..2000 {
        queue.add_rate_limited(key(n, n as u32 % 100));
    }
    for n in 0..2000 {
        let (known, unknown) = (key(n, 7777), key(n + 2000, n as u32 % 100));
        assert_eq!((queue.num_requeues(&known), queue.num_requeues(&unknown)), (1, 0));
        assert_eq!((queue.cancel(&known), queue.cancel(&unknown), queue.cancel(&known)), (true, false, false));
        queue.forget(&known);
        assert_eq!(queue.num_requeues(&known), 0);
    }
    let stats = queue.stats();
    assert_eq!((stats.delayed, stats.failing, stats.len), (0, 0, 0));
}

/// Threads add and take back a few keys, and each call names another group. No key has two holders, is queued twice, or is lost.
#[test]
fn a_key_that_changes_its_group_has_one_holder() {
    const KEYS: usize = 6;
    const THREADS: usize = 4;
    let calls = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    let queue = WorkQueue::builder().shards(16).fair_by(|key: &Key| key.group).max_processing_per_group(2).build();
    let held: Arc<[AtomicBool; KEYS]> = Arc::default();
    let hold = |held: &[AtomicBool; KEYS], item: &Item<'_, Key>| {
        assert!(!held[item.number].swap(true, Ordering::SeqCst), "two holders of key {}", item.number);
    };
    let release = |held: &[AtomicBool; KEYS], item: &Item<'_, Key>| held[item.number].store(false, Ordering::SeqCst);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (queue, held) = (queue.clone(), Arc::clone(&held));
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let (mut mine, mut handed_out) = (Vec::new(), 0);
                for _ in 0..calls {
                    let key = key(random.usize(0..KEYS), random.u32(0..40));
                    match random.u8(0..16) {
                        0..5 => _ = queue.add(key),
                        5 => _ = queue.add_after(key, Duration::from_nanos(random.u64(0..20_000))),
                        6 => _ = queue.add_after(key, HOUR),
                        7 => _ = queue.add_with(key, AddOptions::new().priority(Priority(random.i8(-2..3)))),
                        8 => _ = queue.cancel(&key),
                        9 => _ = queue.remove(&key),
                        10 => _ = queue.add_rate_limited(key),
                        11 => queue.forget(&key),
                        12..14 => {
                            if let Ok(item) = queue.try_get() {
                                hold(&held, &item);
                                handed_out += 1;
                                mine.push(item);
                            }
                        }
                        _ => {
                            if !mine.is_empty() {
                                let item = mine.swap_remove(random.usize(0..mine.len()));
                                release(&held, &item);
                                match random.u8(0..4) {
                                    0 => _ = item.retry(),
                                    1 => item.succeed(),
                                    2 => _ = item.requeue_after(Duration::from_nanos(random.u64(0..20_000))),
                                    _ => item.done(),
                                }
                            }
                        }
                    }
                }
                mine.iter().for_each(|item| release(&held, item));
                drop(mine);
                handed_out
            })
        })
        .collect();
    let handed_out: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{handed_out} hand-outs");
    assert!(handed_out > calls / 40);

    // Each key is there once.
    (0..KEYS).for_each(|n| _ = queue.remove(&key(n, 0)));
    (0..KEYS).for_each(|n| queue.forget(&key(n, 0)));
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.delayed, stats.failing), (0, 0, 0, 0), "a key was known twice");
    (0..KEYS).for_each(|n| assert_eq!(queue.add(key(n, n as u32)), Added::Queued));
    let mut got: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| item.number)).collect();
    got.sort_unstable();
    assert_eq!(got, Vec::from_iter(0..KEYS));
}

/// Four threads take keys from 16 shards. As many keys of a group as the limit allows are processing at a time, and never one more.
#[test]
fn the_limit_of_a_group_is_exact_with_shards() {
    const GROUPS: usize = 40;
    const LIMIT: usize = 3;
    let keys: usize = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
    let queue = WorkQueue::builder().shards(16).fair_by(|key: &Key| key.group).max_processing_per_group(LIMIT).build();
    let processing: Arc<[AtomicUsize; GROUPS]> = Arc::new([const { AtomicUsize::new(0) }; GROUPS]);
    let most: Arc<[AtomicUsize; GROUPS]> = Arc::new([const { AtomicUsize::new(0) }; GROUPS]);
    let handed_out = Arc::new(AtomicUsize::new(0));
    let getters: Vec<_> = (0..4)
        .map(|thread| {
            let queue = queue.clone();
            let (processing, most, handed_out) = (Arc::clone(&processing), Arc::clone(&most), Arc::clone(&handed_out));
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mut mine: Vec<Item<'_, Key>> = Vec::new();
                let end = |mine: &mut Vec<Item<'_, Key>>, at| {
                    let item = mine.swap_remove(at);
                    processing[item.group as usize].fetch_sub(1, Ordering::SeqCst);
                    item.done();
                };
                loop {
                    // A thread that holds nothing waits, so that some key may always be handed out.
                    let item = if mine.is_empty() { queue.get() } else { queue.try_get().ok() };
                    match item {
                        Some(item) => {
                            let group = item.group as usize;
                            let now = processing[group].fetch_add(1, Ordering::SeqCst) + 1;
                            assert!(now <= LIMIT, "{now} keys of group {group} are processing");
                            most[group].fetch_max(now, Ordering::SeqCst);
                            handed_out.fetch_add(1, Ordering::SeqCst);
                            mine.push(item);
                        }
                        None if mine.is_empty() => return,
                        None => {}
                    }
                    if mine.len() > 8 || random.bool() && !mine.is_empty() {
                        let at = random.usize(0..mine.len());
                        end(&mut mine, at);
                    }
                }
            })
        })
        .collect();
    for n in 0..keys {
        queue.add(key(n, (n % GROUPS) as u32));
    }
    queue.shut_down(); // getters return when each shard is empty
    getters.into_iter().for_each(|getter| getter.join().unwrap());
    assert_eq!((handed_out.load(Ordering::SeqCst), queue.stats().processing), (keys, 0));
    let most = most.iter().map(|most| most.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let reached = most.iter().filter(|most| **most == LIMIT).count();
    assert!(reached > GROUPS / 2, "it depends on the threads, but most groups have reached their limit: {most:?}");
}

/// A queue that is shut down keeps its getters while full groups have keys, whatever their shards are, and then lets all go (P6).
#[test]
fn getters_wait_for_full_groups_in_all_shards() {
    let queue = WorkQueue::builder().shards(16).fair_by(|key: &Key| key.group).max_processing_per_group(1).build();
    let [first, second] = two_groups(&queue);
    let keys = [key(1, first), key(2, first), key(3, second), key(4, second)];
    assert_eq!((queue.add_all(keys), queue.len()), (4, 4));
    let items = queue.get_many(10);
    assert_eq!((items.len(), queue.len()), (2, 2), "both groups are full");
    queue.shut_down();
    assert_eq!(queue.try_get().unwrap_err(), keyqueue::TryGetError::Empty);
    let getters: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || queue.get().map(|item| item.number))
        })
        .collect();
    while queue.stats().waiters < getters.len() {
        thread::yield_now();
    }
    for item in items {
        item.done();
        thread::sleep(Duration::from_millis(5));
    }
    let mut got: Vec<_> = getters.into_iter().map(|getter| getter.join().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, [None, None, Some(2), Some(4)]);
}

/// If the function panics for a key that is new, nothing has happened. It is not asked for a key that is known.
#[test]
fn a_group_that_cannot_be_told_changes_nothing() {
    let panics = Arc::new(AtomicBool::new(false));
    let queue = WorkQueue::builder().shards(16).fair_by({
        let panics = Arc::clone(&panics);
        move |key: &Key| {
            assert!(!panics.load(Ordering::SeqCst), "as planned");
            key.group
        }
    });
    let queue = queue.build();
    queue.add(key(1, 1));
    panics.store(true, Ordering::SeqCst);
    assert_eq!(queue.add(key(1, 2)), Added::Coalesced);
    let add = || _ = queue.add(key(2, 2));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(add)).is_err());
    assert_eq!((queue.len(), queue.remove(&key(2, 2)), queue.remove(&key(1, 2)), queue.len()), (1, false, true, 0));
}

/// Shards with many groups and with few: in each round each group has its turn, wherever it is.
#[test]
fn groups_of_large_and_of_small_shards_have_the_same_turns() {
    for (shards, in_first, weighted) in [(2, 1, false), (2, 100, false), (16, 60, false), (16, 60, true), (64, 7, true)]
    {
        let weight = move |group: u32| if weighted { 1 + group % 3 } else { 1 };
        let queue = WorkQueue::builder()
            .shards(shards)
            .fair_by(|key: &(u32, u32)| key.0)
            .group_weight(move |key| weight(key.0))
            .build();
        // Many groups of one shard, and the others as they come.
        let shard_of = |group: u32| queue.shard_index(&(group, 0));
        let first = shard_of(0);
        let of_first = (0..).filter(|group| shard_of(*group) == first).take(in_first);
        let of_others = (0..).filter(|group| shard_of(*group) != first).take(3 * shards / 2);
        let groups: Vec<u32> = of_first.chain(of_others).collect();
        for n in 0..6 {
            groups.iter().for_each(|group| _ = queue.add((*group, n)));
        }
        let mut turns = vec![0; *groups.iter().max().unwrap() as usize + 1];
        let round: u32 = groups.iter().map(|group| weight(*group)).sum();
        for hand_out in 1..=round * 50 {
            let item = queue.try_get().unwrap();
            let key = *item;
            turns[key.0 as usize] += 1;
            item.done();
            queue.add(key);
            if hand_out > 3 * round {
                let turn = |group: &u32| f64::from(turns[*group as usize]) / f64::from(weight(*group));
                let most = groups.iter().map(turn).fold(0.0, f64::max);
                let least = groups.iter().map(turn).fold(f64::MAX, f64::min);
                // One more, and one in 16 while all are new.
                assert!(most - least <= 2.0, "{shards} shards, {in_first} in the first: {least} to {most} turns");
            }
        }
    }
}

/// Hands out keys, each of which is followed by what `again` adds, and counts them by what `of` says.
fn hand_outs<const N: usize>(
    queue: &WorkQueue<(u32, u32)>,
    of: impl Fn((u32, u32)) -> usize,
    mut again: impl FnMut((u32, u32)),
) -> [u32; N] {
    let mut counts = [0; N];
    for _ in 0..32_000 {
        let item = queue.try_get().unwrap();
        let key = *item;
        counts[of(key)] += 1;
        item.done();
        again(key);
    }
    counts
}

/// A queue, and groups of its first two shards.
fn with_two_groups(shards: usize) -> (WorkQueue<(u32, u32)>, [u32; 2]) {
    let queue = WorkQueue::builder().shards(shards).driver(Driver::Manual).seed(1).fair_by(|key: &(u32, u32)| key.0);
    let queue = queue.build();
    let groups = [0, 1].map(|shard| (0..).find(|group| queue.shard_index(&(*group, 0)) == shard).unwrap());
    (queue, groups)
}

/// One shard always has keys of a higher priority. The groups of a lower one have the same turns in that shard and in another one.
#[test]
fn a_lower_level_has_turns_in_each_shard() {
    for shards in [2, 16] {
        let (queue, [busy, other]) = with_two_groups(shards);
        let add = |key: (u32, u32)| {
            let priority = if key.1 < 10 { Priority::HIGH } else { Priority::NORMAL };
            queue.add_with(key, AddOptions::new().priority(priority));
        };
        (0..20).for_each(|n| add((busy, n)));
        (10..20).for_each(|n| add((other, n)));
        let of = |key: (u32, u32)| if key.1 < 10 { 0 } else { 1 + usize::from(key.0 == other) };
        let [high, lower @ ..] = hand_outs::<3>(&queue, of, add);
        assert!(high.abs_diff(30_000) <= 1, "{shards} shards: {high} of the higher priority");
        assert!(lower[0].abs_diff(lower[1]) <= 1, "{shards} shards: {lower:?}");
    }
}

/// Groups that were never seen before keep coming to one shard. A group of another shard still gets hand-outs.
#[test]
fn new_groups_of_one_shard_do_not_starve_a_group_of_another() {
    for shards in [2, 16] {
        let (queue, [_, old]) = with_two_groups(shards);
        let mut strangers = (1_000..).filter(|group| queue.shard_index(&(*group, 0)) == 0);
        (0..10).for_each(|n| _ = queue.add((old, n)));
        (0..100).for_each(|_| {
            let key = *queue.try_get().unwrap();
            queue.add(key);
        });
        (0..4).for_each(|_| _ = queue.add((strangers.next().unwrap(), 0)));
        let again = |key: (u32, u32)| _ = queue.add(if key.0 == old { key } else { (strangers.next().unwrap(), 0) });
        let [_, of_old] = hand_outs::<2>(&queue, |key| usize::from(key.0 == old), again);
        assert!(of_old > 32_000 / 70, "{shards} shards: {of_old}");
    }
}
