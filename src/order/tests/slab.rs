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

#[test]
fn the_arrays_of_a_slab_get_short_with_it() {
    const CHUNK: usize = 4;
    let (mut slab, size) = (Slab::<u64, CHUNK>::default(), size_of::<crate::order::slab::Chunk<u64, CHUNK>>());
    let mut lent: Vec<u32> = (0..8000).map(|_| slab.lend()).collect();
    let mut freed = 0;
    // All chunks have room, and then none has a value; but the last one that was given back stays lent to the slab.
    lent.retain(|number| {
        let stays = number % CHUNK as u32 != 0;
        (!stays).then(|| slab.give_back(*number));
        stays
    });
    while let Some(number) = lent.pop() {
        slab.give_back(number);
        freed += usize::from(slab.surplus().is_some());
    }
    assert!(freed >= 1998, "{freed} of 2000 chunks come to be freed");
    // One has the value that is kept, and one is spare.
    let arrays = slab.bytes() - slab.chunks() * size;
    assert!(slab.chunks() == 2 && arrays <= 70 * 12 + 2000 / 8 + 64, "{} chunks, {arrays} bytes", slab.chunks());
    // A shrink leaves what the values need, and no chunk without values.
    lent.extend((0..100).map(|_| slab.lend()));
    lent.split_off(70).into_iter().for_each(|number| slab.give_back(number));
    assert!(!slab.shrink().is_empty());
    let chunks = 70_usize.div_ceil(CHUNK);
    assert_eq!((slab.chunks(), slab.bytes()), (chunks, chunks * (size + 8) + 4 + 8));
}
