//! The crate's queue, and that of another commit: with three priorities, with N groups (0: none), and with a limit of the keys of a group
//! that are processing at a time (0: none).

use common::by_hand::priority_of;
use common::{Key, Prioritized, subject};

pub trait Number: Key + Into<u64> {}
impl<K: Key + Into<u64>> Number for K {}

/// A number under another name: the code of the crate's queue is compiled for it once more, and stands elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Twin(u64);

impl Key for Twin {
    fn nth(n: u64) -> Self {
        Self(n)
    }
}

impl From<Twin> for u64 {
    #[inline]
    fn from(key: Twin) -> Self {
        key.0
    }
}

#[inline]
fn number<K: Number>(key: &K) -> u64 {
    key.clone().into()
}

macro_rules! queue {
    ($name:ident, $keyqueue:ident) => {
        pub struct $name<K, const LEVELS: bool, const N: u64, const LIMIT: u32>($keyqueue::WorkQueue<K>);

        subject!([K: Number, const LEVELS: bool, const N: u64, const LIMIT: u32] $name<K, LEVELS, N, LIMIT>, K, stringify!($name), {
            let builder = $keyqueue::WorkQueue::builder();
            let builder = if N > 0 { builder.fair_by(|key| number::<K>(key) % N) } else { builder };
            if LIMIT > 0 { builder.max_processing_per_group(LIMIT as usize).build() } else { builder.build() }
        }, |queue, key| if LEVELS {
            let priority = $keyqueue::Priority(priority_of(number(&key)));
            queue.add_with(key, $keyqueue::AddOptions::new().priority(priority));
        } else {
            queue.add(key);
        });

        impl<K: Number> Prioritized<K> for $name<K, true, 0, 0> {
            #[inline]
            fn add_at(&self, key: K, priority: i8) {
                self.0.add_with(key, $keyqueue::AddOptions::new().priority($keyqueue::Priority(priority)));
            }
        }
    };
}
queue!(Crate, keyqueue);
#[cfg(keyqueue_base)]
queue!(Base, keyqueue_base);
