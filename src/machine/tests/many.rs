//! More keys than fit a block, a chunk or an array: what the lives, with a dozen of keys, do not reach.

use crate::key::Hash;
use crate::machine::{End, Ended, How, Machine, Mode, Owed};
use crate::order::{AnyOrder, Group};
use crate::{Added, DelayedAdd};

const MANY: u64 = if cfg!(miri) { 600 } else { 30_000 };

fn hash(key: u64) -> Hash {
    Hash((key as u32).wrapping_mul(0x9e37_79b9))
}

fn add(machine: &mut Machine<u64>, key: u64) -> (Added, Owed) {
    machine.add(&mut Some(key), hash(key), Group::default(), &How::NOW, Mode::OPEN)
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
            let (removed, owed) = machine.remove(&mut hand, &key, hash(key), Mode::OPEN);
            assert_eq!((removed, hand.take()), (true, Some(key)));
            free(&mut machine, owed);
        }
        let left = (0..MANY).filter(|key| key % 7 != round && key % 1000 >= 600);
        let mut held = Vec::new();
        for key in left {
            let (claimed, owed) = machine.get(Mode::OPEN);
            let claimed = claimed.expect("it is queued");
            assert_eq!(*claimed.key(), key);
            free(&mut machine, owed);
            kept = if machine.bin.is_empty() { 0 } else { kept + 1 };
            assert!(kept < 64, "blocks are reported soon");
            held.push(claimed);
        }
        assert!(machine.get(Mode::OPEN).0.is_none());
        for claimed in held {
            let key = *claimed.key();
            let (ended, owed) = machine.done(&mut hand, claimed, End::Done);
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
    (0..MANY).filter(|key| !few(key)).for_each(|key| _ = machine.remove(&mut hand, &key, hash(key), Mode::OPEN));
    let before = machine.keys.chunks();
    let steps = shrink(&mut machine);
    assert!(machine.keys.chunks() <= before && steps >= before / 128, "{steps} steps for {before} chunks");
    (0..MANY).filter(few).for_each(|key| {
        let claimed = machine.get(Mode::OPEN).0.expect("it is queued");
        assert_eq!((*claimed.key(), machine.is_known(&key, hash(key))), (key, true));
        let _ended = machine.done(&mut hand, claimed, End::Done);
    });
    shrink(&mut machine);
    assert_eq!((machine.keys.chunks(), machine.known()), (0, 0));
}
