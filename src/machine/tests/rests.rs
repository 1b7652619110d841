//! What no call of the queue shows with one thread: a rest begins in one critical section, the run ends in the next, and a shut-down may come
//! in between.

use super::many::add;
use crate::machine::{End, Ended, Machine, Mode};
use crate::order::AnyOrder;
use crate::{Added, DelayedAdd};

#[test]
fn a_run_that_ends_after_the_shut_down_ends_its_rest() {
    for is_dirty in [false, true] {
        let mut machine = Machine::<u64>::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
        assert_eq!(add(&mut machine, 1).0, Added::Queued);
        let claimed = machine.get(Mode::PLAIN).0.expect("it is queued");
        if is_dirty {
            assert_eq!(add(&mut machine, 1).0, Added::Deferred);
        }
        let _owed = machine.rest(&claimed, 0, 10);
        let (ended, _owed) = machine.done(&mut None, claimed, End::Succeed, Mode { is_open: false, ..Mode::PLAIN });
        assert_eq!(ended, if is_dirty { Ended::Queued } else { Ended::Gone });
        assert_eq!((machine.known(), machine.delayed()), (usize::from(is_dirty), 0));
    }
}
