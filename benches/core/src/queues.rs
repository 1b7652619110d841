//! The crate's queue, and that of another commit: with three priorities, with N groups (0: none), and with a limit of the keys of a group
//! that are processing at a time (0: none); and a plain one of keys of 40 bytes.

use common::by_hand::priority_of;
use common::{Prioritized, subject};

macro_rules! queue {
    ($name:ident, $wide:ident, $keyqueue:ident) => {
        pub struct $wide($keyqueue::WorkQueue<[u64; 5]>);

        subject!([] $wide, [u64; 5], stringify!($wide), $keyqueue::WorkQueue::new(), |queue, key| queue.add(key));

        pub struct $name<const LEVELS: bool, const N: u64, const LIMIT: u32>($keyqueue::WorkQueue<u64>);

        subject!([const LEVELS: bool, const N: u64, const LIMIT: u32] $name<LEVELS, N, LIMIT>, u64, stringify!($name), {
            let builder = $keyqueue::WorkQueue::builder();
            let builder = if N > 0 { builder.fair_by(|key: &u64| key % N) } else { builder };
            if LIMIT > 0 { builder.max_processing_per_group(LIMIT as usize).build() } else { builder.build() }
        }, |queue, key| if LEVELS {
            queue.add_with(key, $keyqueue::AddOptions::new().priority($keyqueue::Priority(priority_of(key))));
        } else {
            queue.add(key);
        });

        impl Prioritized<u64> for $name<true, 0, 0> {
            #[inline]
            fn add_at(&self, key: u64, priority: i8) {
                self.0.add_with(key, $keyqueue::AddOptions::new().priority($keyqueue::Priority(priority)));
            }
        }
    };
}
queue!(Crate, Wide, keyqueue);
#[cfg(keyqueue_base)]
queue!(Base, WideBase, keyqueue_base);
