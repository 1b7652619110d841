//! More keys than fit a block, a chunk or an array: what the lives, with a dozen of keys, do not reach.

use crate::key::{KeyHash, Retired};
use crate::machine::{BATCH, Cancelled, End, Ended, Failure, How, Machine, Mode, Owed, Which};
use crate::order::{AnyOrder, Group};
use crate::{Added, DelayConflict, DelayedAdd};
use std::collections::BTreeSet;

const MANY: u64 = if cfg!(miri) { 600 } else { 30_000 };

pub(super) fn hash(key: u64) -> KeyHash {
    KeyHash((key as u32).wrapping_mul(0x9e37_79b9))
}

pub(super) fn add(machine: &mut Machine<u64>, key: u64) -> (Added, Owed) {
    machine.add(&mut Some(key), hash(key), Group::default(), How::NOW, Mode::PLAIN)
}

/// Gives back what the keys do not need. Returns the number of steps.
fn shrink(machine: &mut Machine<u64>) -> usize {
    let (mut from, mut steps) = (Some(0), 0);
    while let Some(at) = from {
        (from, _) = machine.shrink(at);
        assert!(!machine.keys.has_retired(), "a chunk takes the records of its slots with it at once");
        drop(machine.take_garbage());
        steps += 1;
    }
    steps
}

/// The keys come out in their order, without those that were taken out, and memory goes when they are gone.
#[test]
fn many_keys_come_and_go() {
    const MANY: u64 = if cfg!(miri) { 5000 } else { 30_000 }; // more than the spare chunks have room for
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    let (mut garbage, mut kept) = (0, 0);
    let mut free = |machine: &mut Machine<u64>, owed: Owed| {
        if owed.has(Owed::GARBAGE) {
            drop(machine.take_garbage());
            garbage += 1;
        }
        assert!(machine.retired.is_empty(), "chunks are reported at once");
        assert!(!machine.keys.has_retired(), "a chunk takes the records of its slots with it at once");
    };
    for round in 0..3 {
        for key in 0..MANY {
            assert_eq!(add(&mut machine, key).0, Added::Queued);
            assert_eq!(add(&mut machine, key / 2).0, Added::Coalesced);
        }
        let mut hand = None;
        for key in (0..MANY).filter(|key| key % 7 == round || key % 1000 < 600) {
            let (removed, owed) = machine.remove(&mut hand, &key, hash(key), Mode::PLAIN);
            assert_eq!((removed, hand.take()), (true, Some(key)));
            free(&mut machine, owed);
        }
        let left = (0..MANY).filter(|key| key % 7 != round && key % 1000 >= 600);
        let mut held = Vec::new();
        for key in left {
            let (claimed, owed) = machine.get(0, Mode::PLAIN);
            let claimed = claimed.expect("it is queued");
            assert_eq!(*claimed.key(), key);
            free(&mut machine, owed);
            kept = if machine.bin.is_empty() { 0 } else { kept + 1 };
            assert!(kept < 64, "blocks are reported soon");
            held.push(claimed);
        }
        assert!(machine.get(0, Mode::PLAIN).0.is_none());
        for claimed in held {
            let key = *claimed.key();
            let (ended, owed) = machine.done(&mut hand, claimed, End::Done, 0, Mode::PLAIN);
            assert_eq!((ended, hand.take()), (Ended::Gone, Some(key)));
            free(&mut machine, owed);
        }
        assert_eq!((machine.known(), machine.is_drained()), (0, true));
    }
    assert!(garbage > MANY / 256, "blocks and chunks: {garbage}");
    assert!(machine.keys.chunks() > 0, "spare chunks");
    shrink(&mut machine);
    assert_eq!(machine.keys.chunks(), 0);
    // Keys that are left of many, in as many chunks: nothing of them is lost, and no step is long.
    (0..MANY).for_each(|key| _ = add(&mut machine, key));
    let few = |key: &u64| key % 500 == 3;
    let mut hand = None;
    (0..MANY).filter(|key| !few(key)).for_each(|key| _ = machine.remove(&mut hand, &key, hash(key), Mode::PLAIN));
    let before = machine.keys.chunks();
    let steps = shrink(&mut machine);
    assert!(machine.keys.chunks() <= before && steps >= before / 128, "{steps} steps for {before} chunks");
    (0..MANY).filter(few).for_each(|key| {
        let claimed = machine.get(0, Mode::PLAIN).0.expect("it is queued");
        assert_eq!((*claimed.key(), machine.find(&key, hash(key)).is_some()), (key, true));
        let _ended = machine.done(&mut hand, claimed, End::Done, 0, Mode::PLAIN);
    });
    shrink(&mut machine);
    assert_eq!((machine.keys.chunks(), machine.known()), (0, 0));
}

/// A chunk of slots leaves with the records and the times of its slots, which are freed after the lock (W4).
#[test]
fn side_arrays_leave_with_their_chunks() {
    const CHUNKS: usize = if cfg!(miri) { 10 } else { 100 };
    const KEYS: u64 = 63 * CHUNKS as u64;
    let mode = Mode { is_measured: true, ..Mode::PLAIN };
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    machine.measure(true);
    for key in 0..KEYS {
        for delay in [None, Some(u64::MAX)] {
            let how = How { delay, ..How::NOW };
            let _added = machine.add(&mut Some(key), hash(key), Group::default(), how, mode);
            machine.times().expect("it measures").dirty_at(1);
        }
    }
    shrink(&mut machine);
    let capacities = (machine.later.records.capacity(), machine.times().expect("it measures").keys.capacity());
    assert_eq!(capacities, (CHUNKS, CHUNKS), "a shrink leaves what the chunks need");
    let (mut hand, mut freed) = (None, Vec::new());
    for key in 0..KEYS {
        let claimed = machine.get(0, mode).0.expect("it is queued");
        let _waited = machine.started(&claimed, || 2);
        let _worked = machine.ended(&claimed, || 3);
        assert_eq!(machine.done(&mut hand, claimed, End::Done, 0, mode).0, Ended::Kept);
        let (cancelled, owed) = machine.cancel(&mut hand, &key, hash(key), mode);
        assert_eq!((cancelled, hand.take()), (Cancelled::Delay, Some(key)));
        if owed.has(Owed::GARBAGE) {
            freed.extend(machine.take_garbage().keys);
        }
    }
    let mut from = Some(0);
    while let Some(at) = from {
        (from, _) = machine.shrink(at);
        freed.extend(machine.take_garbage().keys);
    }
    let chunks = freed.iter().filter(|freed| matches!(freed.memory, Retired::Chunk(_)));
    let lens: Vec<_> = chunks.map(|chunk| (chunk.records.len(), chunk.times.len())).collect();
    assert!(lens.len() >= CHUNKS && lens.iter().all(|lens| *lens == (64, 64)), "{lens:?}");
    assert_eq!((machine.later.records.capacity(), machine.times().expect("it measures").keys.capacity()), (0, 0));
}

fn delay(machine: &mut Machine<u64>, key: u64, now: u64, delay: u64) -> Owed {
    let how = How { now, delay: Some(delay), ..How::NOW };
    let (added, owed) = machine.add(&mut Some(key), hash(key), Group::default(), how, Mode::PLAIN);
    assert_eq!(added, Added::Delayed);
    owed
}

/// The blocks of a wheel leave as its delays go, and the wheel with a shrink; each verb that leaves some owes them.
#[test]
fn a_wheel_leaves_when_its_delays_have_gone() {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    for cancels in [false, true] {
        (0..MANY).for_each(|key| _ = delay(&mut machine, key, 1, 1000 + key));
        let mut freed = 0;
        let mut free = |machine: &mut Machine<u64>, owed: Owed| {
            if owed.has(Owed::GARBAGE) {
                drop(machine.take_garbage());
                freed += 1;
            }
            assert!(!machine.later.has_memory().1, "the verb owes it");
        };
        if cancels {
            for key in 0..MANY {
                let (cancelled, owed) = machine.cancel(&mut None, &key, hash(key), Mode::PLAIN);
                assert_eq!(cancelled, Cancelled::Delay);
                free(&mut machine, owed);
            }
        } else {
            while machine.delayed() > 0 {
                let (_expired, owed) = machine.expire(1000 + MANY, BATCH, Mode::PLAIN);
                free(&mut machine, owed);
            }
        }
        assert!(cfg!(miri) || freed > 10, "blocks are freed before a shrink: {freed}");
        assert!(machine.later.has_memory().0);
        let (mut is_first, mut from) = (true, Some(0));
        while let Some(at) = from {
            let owed;
            (from, owed) = machine.shrink(at);
            assert_eq!(machine.later.has_memory(), (false, is_first), "the wheel is to be freed");
            assert!(owed.has(Owed::GARBAGE) || !is_first);
            drop(machine.take_garbage());
            assert_eq!(machine.later.has_memory(), (false, false));
            is_first = false;
        }
        if !cancels {
            let mut hand = None;
            while let (Some(claimed), _) = machine.get(0, Mode::PLAIN) {
                let _gone = machine.done(&mut hand, claimed, End::Done, 0, Mode::PLAIN);
            }
            drop(machine.take_garbage());
        }
    }
    // A wheel with a delay stays.
    let _owed = delay(&mut machine, 0, 5000, 10);
    shrink(&mut machine);
    assert_eq!((machine.later.has_memory(), machine.delayed()), ((true, false), 1));
}

/// Delays that were each in a slot of the wheel move to one: the verbs owe the blocks of the others.
#[test]
fn delays_that_move_leave_blocks() {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    (0..640).for_each(|key| _ = delay(&mut machine, key, 0, (key % 64 + 1) << (6 * (key / 64))));
    let mut freed = 0;
    for key in 0..640 {
        let moves = How { delay: Some(1 << 50), conflict: DelayConflict::Replace, ..How::NOW };
        let (added, owed) = machine.add(&mut Some(key), hash(key), Group::default(), moves, Mode::PLAIN);
        assert_eq!(added, Added::Delayed);
        if owed.has(Owed::GARBAGE) {
            drop(machine.take_garbage());
            freed += 1;
        }
        assert!(!machine.later.has_memory().1, "the verb owes it");
    }
    assert!(freed > 100, "{freed}");
}

/// When the first of many deadlines is past, the others are sorted in many short calls, which say that they are ahead.
#[test]
fn deadlines_are_sorted_ahead() {
    const KEYS: u64 = 3000;
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    // All in one slot, and but for the first far behind the time.
    let deadline = |key: u64| (1 << 36) + if key == 0 { 0 } else { (1 << 35) + (key << 20) };
    (0..KEYS).for_each(|key| _ = delay(&mut machine, key, 0, deadline(key)));
    let (mut ahead, mut calls, mut expired) = (0, 0, 0);
    loop {
        let (now, _owed) = machine.expire(deadline(0), BATCH, Mode::PLAIN);
        expired += now.by_answer[0];
        ahead += usize::from(now.is_ahead);
        calls += 1;
        assert!(calls < 4 * KEYS as usize / BATCH, "{expired} expired, {ahead} of {calls} calls ahead");
        if !now.has_more {
            assert!(!now.is_ahead);
            break;
        }
    }
    assert!(expired == 1 && ahead > 2, "{expired} expired, {ahead} of {calls} calls ahead");
    assert_eq!(machine.until(), deadline(1));
}

/// A delay counts from the latest time that a call has told.
#[test]
fn a_delay_counts_from_the_time_of_an_expiry() {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    let _owed = delay(&mut machine, 1, 100, 1);
    let _expired = machine.expire(1000, BATCH, Mode::PLAIN);
    let _owed = delay(&mut machine, 2, 500, 10);
    assert_eq!(machine.until(), 1010);
    let _expired = machine.expire(600, BATCH, Mode::PLAIN);
    let _owed = delay(&mut machine, 3, 500, 5);
    assert_eq!(machine.until(), 1005);
}

/// A look ends after some chunks, or some keys. Keys that stay are seen once, although others come and go between two calls; and what was
/// seen in the slots of those does not stand for the keys that are there now.
#[test]
fn a_look_is_short() {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    (0..MANY).for_each(|key| _ = add(&mut machine, key));
    let goes = |key: &u64| *key >= 64 * 10 && key % 300 != 0;
    for which in [Which::All, Which::Processing, Which::All] {
        let (mut from, mut seen, mut calls) = (Some(0), Vec::new(), 0);
        while let Some(at) = from {
            let before = seen.len();
            from = machine.look(at, which, |view| seen.push((*view.key(), view.seen())));
            assert!(seen.len() - before < 256 + 64, "keys");
            let to = from.unwrap_or(machine.keys.chunks());
            assert!(to > at && to - at <= 64, "chunks");
            calls += 1;
            _ = add(&mut machine, MANY + calls);
        }
        if which == Which::Processing {
            assert!(seen.is_empty() && calls as usize <= machine.keys.chunks() / 64 + 1, "{calls} calls");
            continue;
        }
        let keys: BTreeSet<u64> = seen.iter().map(|(key, _)| *key).filter(|key| *key < MANY).collect();
        assert_eq!(keys.len(), seen.iter().filter(|(key, _)| *key < MANY).count(), "each key once");
        assert_eq!(keys, (0..MANY).filter(|key| machine.find(key, hash(*key)).is_some()).collect());
        let mut hand = None;
        for (key, seen) in seen {
            if goes(&key) {
                let (taken, _owed) = machine.take_out(&mut hand, seen, Mode::PLAIN);
                assert_eq!((taken.was_queued, hand.take()), (true, Some(key)));
                let (again, owed) = machine.take_out(&mut hand, seen, Mode::PLAIN);
                assert_eq!((again.was_queued, hand.take(), owed), (false, None, Owed::NOTHING));
                _ = add(&mut machine, MANY + key); // it gets the slot
                let (other, _owed) = machine.take_out(&mut hand, seen, Mode::PLAIN);
                assert!(!other.was_queued, "another key in the slot");
                let _removed = machine.remove(&mut hand, &(MANY + key), hash(MANY + key), Mode::PLAIN);
            }
        }
    }
}

/// A call makes a bounded number of steps, whatever it may take out, and uses most of them while there is something to do (P11).
#[test]
fn an_expiry_is_short() {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    for key in 0..1000 {
        let how = How { delay: Some(1000), ..How::NOW };
        assert_eq!(machine.add(&mut Some(key), hash(key), Group::default(), how, Mode::PLAIN).0, Added::Delayed);
    }
    let (mut left, mut calls) = (1000, 0);
    while left > 0 {
        let (expired, _) = machine.expire(1000, usize::MAX / 2, Mode::PLAIN);
        assert!(expired.by_answer[0] <= BATCH);
        left -= expired.by_answer[0];
        calls += 1;
        assert!(calls < 40, "a key takes two steps: {left} are left");
    }
    assert_eq!((machine.len(), machine.delayed()), (1000, 0));
}

/// A record is made for a chunk of slots, so most keys have none.
#[test]
fn a_key_without_a_record_has_not_failed() {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    let fails = How { failure: Failure::Counted(None), ..How::NOW };
    let _added = machine.add(&mut Some(0), hash(0), Group::default(), fails, Mode::PLAIN);
    (1..MANY.min(1000)).for_each(|key| _ = add(&mut machine, key));
    assert!((0..MANY.min(1000)).all(|key| machine.failures(&key, hash(key)) == u32::from(key == 0)));
}
