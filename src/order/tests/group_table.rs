//! The buckets follow the number of groups.

use super::VISITS;
use crate::order::Bin;
use crate::order::group_table::GroupTable;
use crate::order::lanes::Lanes;
use crate::random::mix;

#[test]
fn a_table_grows_and_shrinks_with_its_groups() {
    const MANY: u32 = 6000;
    let (mut table, mut lanes, mut bin) = (GroupTable::new(), Lanes::default(), Bin::<u32>::new());
    let hash = |number: u32| mix(number.into());
    // Finds all groups, in a visit and a half for each or a bit more.
    let find_all = |table: &mut GroupTable, lanes: &mut Lanes, numbers: &[u32]| {
        VISITS.set(0);
        for (at, number) in numbers.iter().enumerate() {
            assert_eq!(table.find(hash(at as u32), lanes), Some(*number));
        }
        let visits = VISITS.get() as usize;
        assert!(visits <= 10 + 7 * numbers.len() / 4, "{visits} for {} groups", numbers.len());
    };
    let segments = |table: &GroupTable| table.bytes() / 4096;
    for round in 0..3 {
        let mut numbers = Vec::new();
        for number in 0..MANY {
            VISITS.set(0);
            assert_eq!(table.find(hash(number), &lanes), None);
            numbers.push(table.make(hash(number), 0, &mut lanes));
            assert!(VISITS.get() <= 40, "a new group visits {}", VISITS.get());
            if number % 500 == 0 {
                find_all(&mut table, &mut lanes, &numbers);
            }
        }
        find_all(&mut table, &mut lanes, &numbers);
        assert_eq!((table.groups, segments(&table)), (MANY as usize, 6), "round {round}");
        while let Some(number) = numbers.pop() {
            VISITS.set(0);
            table.remove(number, &mut lanes, &mut bin);
            assert!(VISITS.get() <= 40, "a group that goes visits {}", VISITS.get());
            if numbers.len() % 500 == 20 {
                find_all(&mut table, &mut lanes, &numbers);
            }
            assert!(segments(&table) <= 4 * numbers.len().max(16) / 1024 + 2);
        }
        // One more than needed is kept, until a shrink.
        assert_eq!((table.groups, lanes.len(), segments(&table)), (0, 0, 2));
        assert!(!bin.is_empty());
        bin = Bin::new();
        if round == 1 {
            table.shrink(&mut bin);
            assert!(segments(&table) == 1 && !bin.is_empty());
            bin = Bin::new();
        }
    }
}
