//! Random numbers, the same in each run.

use std::ops::Range;

/// SplitMix64 with a fixed seed: a number within the range.
pub fn random() -> impl FnMut(Range<u64>) -> u64 {
    let mut state = 0_u64;
    move |range| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        range.start + (mixed ^ (mixed >> 31)) % (range.end - range.start)
    }
}
