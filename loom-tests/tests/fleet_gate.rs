//! The gates of `keyqueue-fleet`'s partitions (`fleet/src/gate.rs`, compiled here with loom's atomics): the list and the event, and who
//! is inside.
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../../fleet/src/gate.rs"]
mod gate;

/// What `gate.rs` uses of its crate.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

use gate::{Gates, Refused};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use loom_tests::{check, with};

fn gates() -> Arc<Gates> {
    let gates = Gates::new(1, true);
    gates.set_deadline(10);
    Arc::new(gates)
}

/// Step 6: an event writes the object to the program's store and finds the gate closed, or the list that follows the opening of the gate
/// finds the object. The store orders nothing by itself.
#[test]
fn the_event_or_the_list_sees_the_key() {
    check(|| {
        let (gates, store) = (gates(), Arc::new(AtomicBool::new(false)));
        let event = thread::spawn({
            let (gates, store) = (gates.clone(), store.clone());
            move || {
                store.store(true, Ordering::Relaxed);
                gates.admits(0)
            }
        });
        gates.open(0, 1);
        let listed = store.load(Ordering::Relaxed);
        assert!(event.join().unwrap() | listed);
    });
}

/// A gate is closed and found empty: what the holder did happened before. Or it is found full, and the holder tells when it leaves.
#[test]
fn a_closed_gate_is_empty_or_the_last_one_tells() {
    check(|| {
        let (gates, work) = (gates(), Arc::new(UnsafeCell::new(0)));
        gates.open(0, 1);
        let holder = thread::spawn({
            let (gates, work) = (gates.clone(), work.clone());
            move || match gates.enter(0, || 0) {
                Ok(entry) => {
                    assert_eq!(entry.token, 1);
                    work.with_mut(|work| unsafe { *work += 1 });
                    gates.leave(0).0
                }
                Err((refused, last)) => {
                    assert_eq!(refused, Refused::Closed);
                    last.0
                }
            }
        });
        gates.close(0);
        let empty = gates.is_empty(0);
        if empty {
            work.with_mut(|work| unsafe { *work += 1 }); // loom reports a race if the holder may still be at it
        }
        let told = holder.join().unwrap();
        assert!(empty || told, "nobody would wake the closer");
        assert!(gates.is_empty(0) && gates.enter(0, || 0).is_err());
    });
}

/// Two holders, the last of which tells, exactly one of them.
#[test]
fn one_of_two_holders_is_the_last() {
    check(|| {
        let gates = gates();
        gates.open(0, 1);
        let entered: Vec<_> = (0..2).map(|_| gates.enter(0, || 0).unwrap()).collect();
        gates.close(0);
        assert!(!gates.is_empty(0));
        let leavers: Vec<_> = entered
            .iter()
            .map(|_| {
                let gates = gates.clone();
                thread::spawn(move || gates.leave(0).0)
            })
            .collect();
        let told: Vec<_> = leavers.into_iter().map(|leaver| leaver.join().unwrap()).collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1);
    });
}

/// A gate that closes and opens again for a new claim: who enters has the token of a claim whose gate was open.
#[test]
fn a_holder_has_the_token_of_an_open_gate() {
    check(|| {
        let (gates, owned) = (gates(), Arc::new(AtomicU64::new(1)));
        gates.open(0, 1);
        let holder = thread::spawn({
            let (gates, owned) = (gates.clone(), owned.clone());
            move || {
                if let Ok(entry) = gates.enter(0, || 0) {
                    // The closer waits for this holder before it changes the owner.
                    assert_eq!(entry.token, owned.load(Ordering::Relaxed));
                    let _last = gates.leave(0);
                }
            }
        });
        gates.close(0);
        if gates.is_empty(0) {
            owned.store(2, Ordering::Relaxed);
            gates.open(0, 2);
        }
        holder.join().unwrap();
    });
}

/// A holder that entered before the member was lost is told, even if the member joins again and its deadline moves on.
#[test]
fn a_holder_is_told_of_a_loss() {
    check(|| {
        let gates = gates();
        gates.open(0, 1);
        let loser = with(&gates, |gates| {
            gates.lose();
            gates.set_deadline(20);
            gates.open(0, 2);
        });
        let entry = gates.enter(0, || 0);
        loser.join().unwrap();
        if let Ok(entry) = entry {
            // Who enters during the loss may be told although the gate is open again: the key is queued again then.
            assert!(entry.token == 2 || gates.is_lost(entry, 0), "{entry:?}");
        }
    });
}

/// A release takes too long and its holders are told; then the partition is claimed in place, with a holder still inside. Later holders
/// have the new token and are not lost, and the gate is empty when the last permit is gone, also one that was made after the closing.
#[test]
fn holders_that_were_told_are_inside_and_later_ones_are_not_lost() {
    check(|| {
        let gates = gates();
        gates.open(0, 1);
        let told = gates.enter(0, || 0).unwrap();
        let other = with(&gates, |gates| gates.enter(0, || 0));
        gates.expel(0);
        let owned = gates.enter_again(told);
        gates.open(0, 2);
        let other = other.join().unwrap();
        assert!(gates.is_lost(told, 0) && gates.is_lost(owned, 0));
        if let Ok(entry) = other {
            assert!(entry.token == 2 || gates.is_lost(entry, 0), "{entry:?}");
            let _last = gates.leave(0);
        }
        let later = gates.enter(0, || 0).unwrap();
        assert!(later.token == 2 && !gates.is_lost(later, 0), "{later:?}");
        gates.close(0);
        for last in [false, false, true] {
            assert!(!gates.is_empty(0));
            assert_eq!(gates.leave(0).0, last);
        }
        assert!(gates.is_empty(0));
    });
}
