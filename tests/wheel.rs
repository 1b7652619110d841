//! The timing wheel alone, in situations that random calls rarely reach. Random calls, compared with a sorted map: `replay_corpus.rs`.

mod support {
    pub(crate) mod side;
    pub(crate) mod wheel;
}

use support::wheel::real::{Placement, Placements, Popped, Wheel};

/// One placement for each number of the test.
struct Numbers(Vec<Placement>);

impl Placements for Numbers {
    fn placement(&mut self, number: u32) -> &mut Placement {
        &mut self.0[number as usize]
    }
}

fn wheel(numbers: usize) -> (Wheel, Numbers) {
    (Wheel::new(0), Numbers(vec![Placement::default(); numbers]))
}

const PLENTY: usize = 1_000_000;

/// The entries that have expired by `now`, in order; does not sort.
fn due(wheel: &mut Wheel, numbers: &mut Numbers, now: u64) -> Vec<u32> {
    let mut budget = PLENTY;
    std::iter::from_fn(|| match wheel.pop(numbers, now, &mut budget) {
        Popped::Expired(number) => Some(number),
        _ => None,
    })
    .collect()
}

#[test]
fn each_number_costs_one_of_the_budget() {
    let (mut wheel, mut numbers) = wheel(3);
    (0..3).for_each(|number| wheel.insert(&mut numbers, number, 0));
    let mut budget = 3;
    // The fourth pop has no budget left to see that the wheel is empty.
    let pops: Vec<_> = (0..4).map(|_| wheel.pop(&mut numbers, 0, &mut budget)).collect();
    assert_eq!(pops, [Popped::Expired(0), Popped::Expired(1), Popped::Expired(2), Popped::BudgetSpent]);
    assert_eq!(wheel.pop(&mut numbers, 0, &mut 1), Popped::Empty);
}

/// Time at the start of a slot has not entered the slot (T5).
#[test]
fn an_insert_at_the_edge_of_a_slot_hides_no_other_entry() {
    let (mut wheel, mut numbers) = wheel(2);
    wheel.insert(&mut numbers, 0, 70);
    assert_eq!(wheel.pop(&mut numbers, 64, &mut 9), Popped::Until(70));
    wheel.insert(&mut numbers, 1, 80);
    assert_eq!(due(&mut wheel, &mut numbers, 70), [0]);
    assert_eq!(due(&mut wheel, &mut numbers, 80), [1]);
}

/// When a slot is opened, an entry that expires at the horizon is not deferred if it is the earliest of its block (T7).
#[test]
fn an_entry_that_expires_a_moment_later_is_ready() {
    const NEAR: u64 = (1 << 36) + 1000;
    const MOMENT: u64 = 100_000_000;
    let (mut wheel, mut numbers) = wheel(600);
    (0..19).for_each(|number| wheel.insert(&mut numbers, number, NEAR + MOMENT));
    (19..599).for_each(|number| wheel.insert(&mut numbers, number, NEAR + 9 * MOMENT));
    wheel.insert(&mut numbers, 599, NEAR);
    assert_eq!(due(&mut wheel, &mut numbers, NEAR), [599]);
    assert_eq!(due(&mut wheel, &mut numbers, NEAR + MOMENT), (0..19).collect::<Vec<_>>());
    // The others, which were put off, are not sorted first if they have expired.
    assert_eq!(due(&mut wheel, &mut numbers, NEAR + 9 * MOMENT), (19..599).collect::<Vec<_>>());
    assert_eq!(wheel.pop(&mut numbers, NEAR + 9 * MOMENT, &mut 1), Popped::Empty);
    wheel.insert(&mut numbers, 0, NEAR + 10 * MOMENT + MOMENT / 2);
    assert_eq!(wheel.pop(&mut numbers, NEAR + 9 * MOMENT, &mut 1), Popped::Until(NEAR + 10 * MOMENT + MOMENT / 2));
}

/// A block whose entries all expire by the horizon (T6).
#[test]
fn a_block_that_has_lost_its_entries_is_not_put_off() {
    const NEAR: u64 = (1 << 36) + 1000;
    let (mut wheel, mut numbers) = wheel(600);
    wheel.insert(&mut numbers, 0, NEAR);
    (1..19).for_each(|number| wheel.insert(&mut numbers, number, NEAR + 1));
    (19..600).for_each(|number| wheel.insert(&mut numbers, number, NEAR + 1_000_000_000));
    assert_eq!(due(&mut wheel, &mut numbers, NEAR), [0]);
    wheel.cascade(&mut numbers, &mut PLENTY.clone());
    assert_eq!(due(&mut wheel, &mut numbers, NEAR + 1).len(), 18);
    assert_eq!(wheel.pop(&mut numbers, NEAR + 1, &mut 9), Popped::Until(NEAR + 1_000_000_000));
}

/// Deadlines in the past are popped in the order of their inserts, whatever the wheel found before.
#[test]
fn deadlines_in_the_past_are_popped_in_the_order_of_their_inserts() {
    for (before, now) in [(None, 5), (Some(5), 5), (Some(70), 75), (Some(500), 5)] {
        let (mut wheel, mut numbers) = wheel(4);
        before.into_iter().for_each(|deadline| wheel.insert(&mut numbers, 0, deadline));
        let popped = wheel.pop(&mut numbers, now, &mut 9);
        assert_eq!(popped == Popped::Expired(0), before.is_some_and(|before| before <= now));
        [now - 2, now - 3, now - 1]
            .into_iter()
            .zip(1..)
            .for_each(|(past, number)| wheel.insert(&mut numbers, number, past));
        assert_eq!(due(&mut wheel, &mut numbers, now), [1, 2, 3], "after {before:?}");
    }
}

/// The wheel's time does not go back with that of a caller.
#[test]
fn an_earlier_time_hides_no_entry() {
    let (mut wheel, mut numbers) = wheel(3);
    wheel.insert(&mut numbers, 0, 640);
    assert_eq!(due(&mut wheel, &mut numbers, 640), [0]);
    wheel.insert(&mut numbers, 1, 645);
    assert_eq!(wheel.pop(&mut numbers, 600, &mut 9), Popped::Until(645));
    wheel.insert(&mut numbers, 2, 613);
    assert_eq!(due(&mut wheel, &mut numbers, 620), [2]);
    assert_eq!(due(&mut wheel, &mut numbers, 645), [1]);
}

/// A slot that is sorted in one step, and a large one that is examined block by block.
#[test]
fn what_is_moved_costs_of_the_budget() {
    const FAR: u64 = 1 << 40;
    let (mut wheel, mut numbers) = wheel(1200);
    (0..200).for_each(|number| wheel.insert(&mut numbers, number, 100));
    assert_eq!(wheel.pop(&mut numbers, 100, &mut 150), Popped::BudgetSpent);
    assert_eq!(due(&mut wheel, &mut numbers, 100).len(), 200);
    // Put off, a block at a time; or moved to their slot.
    for (later, least) in [(1 << 30, 1000 / 19 / 10), (50, 1000 / 19)] {
        let far = FAR << (later == 50) as u32;
        (0..1000).for_each(|number| wheel.insert(&mut numbers, number, far + later));
        wheel.insert(&mut numbers, 1000, far);
        let spent = (0..).take_while(|_| wheel.pop(&mut numbers, far, &mut 10) == Popped::BudgetSpent).count();
        assert!(spent >= least, "{spent}");
        assert_eq!(due(&mut wheel, &mut numbers, far + later).len(), 1000);
    }
}

/// Entries that have expired, and were not popped yet, are the earliest.
#[test]
fn no_entry_is_earlier_than_the_earliest() {
    let (mut wheel, mut numbers) = wheel(3);
    [100, 100, 200].into_iter().zip(0..).for_each(|(deadline, number)| wheel.insert(&mut numbers, number, deadline));
    assert_eq!(wheel.earliest(), Some(100));
    assert_eq!(wheel.pop(&mut numbers, 100, &mut 4), Popped::Expired(0));
    assert!(wheel.earliest().is_some_and(|earliest| earliest <= 100));
    assert_eq!(due(&mut wheel, &mut numbers, 100), [1]);
    assert_eq!(wheel.earliest(), Some(200));
}

/// A slot with a thousand equal deadlines is opened, and entries are inserted at each point of that (T4).
#[test]
fn equal_deadlines_stay_in_order_while_a_slot_is_opened() {
    const SLOT: u64 = 1 << 36;
    const NEAR: u64 = SLOT + 1000;
    const FAR: u64 = SLOT + 10_000_000_000;
    const MANY: u32 = 1000;
    for pause in 0..200 {
        let (mut wheel, mut numbers) = wheel(4 * MANY as usize);
        let mut order = Vec::new();
        let mut number = 0..;
        let mut insert = |wheel: &mut Wheel, numbers: &mut Numbers, deadline, count: u32| {
            for number in number.by_ref().take(count as usize) {
                wheel.insert(numbers, number, deadline);
                order.push((deadline, number));
            }
        };
        insert(&mut wheel, &mut numbers, FAR, MANY);
        insert(&mut wheel, &mut numbers, NEAR, 1);
        insert(&mut wheel, &mut numbers, FAR + 1, 9);
        let mut out = Vec::new();
        // In small steps: one entry has expired, and a thousand are examined and kept.
        for step in 0.. {
            if step % 7 == pause % 7 {
                insert(&mut wheel, &mut numbers, FAR, 1);
                insert(&mut wheel, &mut numbers, FAR + 1, 1);
            }
            if step == pause {
                insert(&mut wheel, &mut numbers, NEAR + 1, 3);
            }
            match wheel.pop(&mut numbers, NEAR + 1, &mut 20) {
                Popped::Expired(number) => out.push(number),
                Popped::BudgetSpent => {}
                Popped::NeedsCascade => wheel.cascade(&mut numbers, &mut 20),
                Popped::Until(at) => {
                    assert!(at <= FAR);
                    if step > pause {
                        break;
                    }
                }
                Popped::Empty => unreachable!("the far entries are there"),
            }
        }
        out.extend(due(&mut wheel, &mut numbers, FAR + 1));
        order.sort_by_key(|&(deadline, _)| deadline); // stable
        assert!(out.into_iter().eq(order.into_iter().map(|(_, number)| number)), "inserted at step {pause}");
    }
}

/// The same, with a slot whose entries all expire soon (T4).
#[test]
fn equal_deadlines_stay_in_order_while_none_is_put_off() {
    const NEAR: u64 = (1 << 36) + 1000;
    let (mut wheel, mut numbers) = wheel(601);
    wheel.insert(&mut numbers, 0, NEAR);
    (1..600).for_each(|number| wheel.insert(&mut numbers, number, NEAR + 50));
    assert_eq!(wheel.pop(&mut numbers, NEAR, &mut 5), Popped::BudgetSpent);
    wheel.insert(&mut numbers, 600, NEAR + 50);
    assert_eq!(due(&mut wheel, &mut numbers, NEAR), [0]);
    assert_eq!(due(&mut wheel, &mut numbers, NEAR + 50), (1..=600).collect::<Vec<_>>());
}

/// An expired entry is popped before all later entries are sorted.
#[test]
fn the_wheel_pops_expired_entries_before_it_sorts() {
    let moves = support::wheel::moves_before_the_expired_entry();
    assert!(moves < 2_000, "{moves} entries were moved first");
}
