//! Numbers are lent again.

use crate::order::slab::Slab;
use fastrand::Rng;

#[test]
fn a_number_that_was_given_back_is_lent_again() {
    let (mut slab, mut lent, mut random) = (Slab::<u64, 4>::default(), Vec::new(), Rng::with_seed(3));
    for step in 0..10_000_u32 {
        if random.u32(..100) < [70, 30][step as usize / 1000 % 2] {
            let number = slab.lend();
            assert!(!lent.contains(&number), "{number} is lent twice");
            slab[number] = number.into();
            lent.push(number);
        } else if !lent.is_empty() {
            slab.give_back(lent.swap_remove(random.u32(..lent.len() as u32) as usize));
        }
        assert_eq!(slab.len(), lent.len());
        assert!(lent.iter().all(|number| slab[*number] == u64::from(*number)));
        assert!(slab.surplus().is_none() || slab.surplus().is_none(), "one comes with a call at most");
    }
    let most = |slab: &Slab<u64, 4>| 4 * slab.chunks();
    // Of each chunk all but one are given back, and lent again.
    lent.extend((0..100).map(|_| slab.lend()));
    let (all, before) = (lent.len(), most(&slab));
    lent.retain(|number| {
        let stays = number % 4 == 0;
        (!stays).then(|| slab.give_back(*number));
        stays
    });
    lent.extend((lent.len()..all).map(|_| slab.lend()));
    assert!(most(&slab) <= before + 4, "{} places for {all} values, {before} before", most(&slab));
    lent.into_iter().for_each(|number| slab.give_back(number));
    slab.shrink();
    assert_eq!(slab.bytes(), 0);
}
