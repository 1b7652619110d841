//! The orders of the new core beside those of the crate and beside collections of the standard library: nanoseconds a key (a row of times:
//! push, pop and what belongs to them), and bytes a key. No lock, no table of keys.
//!
//! `orders [rows] [rounds]`: only the rows whose names contain this. The subjects of a row run in turn, round after round; medians.

#![allow(dead_code, unused_imports, reason = "the files of the crate have more than is measured here")]

#[path = "../../../src/numbers.rs"]
mod numbers;
#[path = "../../../src/order/mod.rs"]
mod order;
#[path = "../../../src/prefetch.rs"]
mod prefetch;
mod rows;
mod subjects;

use common::memory::Counting;

/// What the crate's orders need of the crate.
mod sync {
    pub(crate) const fn model_const(real: usize, _: usize) -> usize {
        real
    }
}
#[path = "../../../src/key"]
mod key {
    mod segmented;
    mod side_array;
    mod slab {
        pub(super) const CHUNK: usize = 64;

        pub(super) fn chunk_of(number: u32) -> usize {
            number as usize / CHUNK
        }

        pub(super) fn index_of(number: u32) -> usize {
            number as usize % CHUNK
        }
    }
    pub(crate) use segmented::Segmented;
    pub(crate) use side_array::SideArray;
}
#[path = "../../../src/line/mod.rs"]
mod line;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    rows::run(subjects::all());
}
