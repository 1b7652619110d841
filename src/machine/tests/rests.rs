//! What no call of the queue shows with one thread: a rest begins in one critical section, the run ends in the next, and a shut-down may come
//! in between.

use super::many::add;
use crate::machine::{End, Ended, Machine, Mode};
use crate::order::AnyOrder;
use crate::{Added, DelayedAdd};

#[test]
fn a_dirty_key_that_is_done_after_the_shut_down_does_not_rest() {
    for is_dirty in [false, true] {
        let mut machine = Machine::<u64>::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
        assert_eq!(add(&mut machine, 1).0, Added::Queued);
        let claimed = machine.get(0, Mode::PLAIN).0.expect("it is queued");
        if is_dirty {
            assert_eq!(add(&mut machine, 1).0, Added::Deferred);
        }
        let _owed = machine.rest(&claimed, 0, 10);
        let _owed = machine.shut_down();
        let (ended, _owed) = machine.done(&mut None, claimed, End::Succeed, 0, Mode { is_open: false, ..Mode::PLAIN });
        // One that is clean is forgotten with the queue.
        assert_eq!(ended, if is_dirty { Ended::Queued } else { Ended::Kept });
        assert_eq!((machine.len(), machine.delayed()), (usize::from(is_dirty), 0));
    }
}
