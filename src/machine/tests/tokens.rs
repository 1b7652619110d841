//! Tokens of held keys.

use super::many::{add, hash};
use crate::machine::{Claimed, End, How, Machine, Mode};
use crate::order::AnyOrder;
use crate::{Added, DelayedAdd};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn machine_that_holds(key: u64) -> (Machine<u64>, Claimed<u64>) {
    let mut machine = Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    assert_eq!(add(&mut machine, key).0, Added::Queued);
    let claimed = machine.get(0, Mode::PLAIN).0.expect("it is queued");
    (machine, claimed)
}

/// Two machines hold a key each, in slots of the same number. A token that comes to the wrong one panics there, and changes nothing.
#[test]
fn a_token_ends_at_its_own_machine() {
    type Verb = fn(&mut Machine<u64>, Claimed<u64>);
    let verbs: [Verb; 7] = [
        |machine, claimed| _ = machine.requeue(&mut None, claimed, How::NOW, End::Done, Mode::PLAIN),
        |machine, claimed| {
            _ = machine.requeue(&mut None, claimed, How::NOW, End::Succeed, Mode { is_open: false, ..Mode::PLAIN })
        },
        |machine, claimed| _ = machine.priority(&claimed),
        |machine, claimed| _ = machine.wait_for_dirty(&claimed),
        |machine, claimed| _ = machine.failures_held(&claimed),
        |machine, claimed| machine.note_unwinding(&claimed),
        |machine, claimed| _ = machine.done(&mut None, claimed, End::GiveUp, 0, Mode::PLAIN),
    ];
    // `done` looks only in debug builds.
    let verbs = &verbs[..if cfg!(debug_assertions) { 7 } else { 6 }];
    for verb in verbs {
        let (mut own, claimed) = machine_that_holds(1);
        let (mut other, kept) = machine_that_holds(2);
        let before = (own.counts, other.counts);
        let panic = catch_unwind(AssertUnwindSafe(|| verb(&mut other, claimed))).expect_err("it is not its own");
        assert!(panic.downcast_ref::<String>().is_some_and(|message| message.contains("another queue")));
        assert_eq!((own.processing(), other.processing(), (own.counts, other.counts)), (1, 1, before));
        assert!(!kept.was_unwinding() && !kept.is_dirty());
        assert_eq!(add(&mut own, 1).0, Added::Deferred);
        let _ended = other.done(&mut None, kept, End::Done, 0, Mode::PLAIN);
        assert_eq!((own.known(), other.known()), (1, 0));
    }
}

/// A form of an item and of an owned one that needs no second token and no unsafe code: a pointer to the queue, and the token until an end
/// takes it.
#[test]
fn items_need_no_second_token() {
    use std::cell::RefCell;
    use std::rc::Rc;
    type Queue = Rc<RefCell<Machine<u64>>>;

    struct Item<'q>(&'q Queue, Option<Claimed<u64>>);
    struct Owned(Queue, Option<Claimed<u64>>);

    impl Item<'_> {
        fn requeue(mut self) -> Added {
            let claimed = self.1.take().expect("an item ends once");
            let how = How { delay: Some(1), ..How::NOW };
            let (added, _owed) = self.0.borrow_mut().requeue(&mut None, claimed, how, End::Done, Mode::PLAIN);
            added.expect("the queue is open")
        }
    }
    impl Drop for Item<'_> {
        fn drop(&mut self) {
            if let Some(claimed) = self.1.take() {
                let _ended = self.0.borrow_mut().done(&mut None, claimed, End::Done, 0, Mode::PLAIN);
            }
        }
    }
    impl Owned {
        fn finish<R>(mut self, finish: impl FnOnce(Item<'_>) -> R) -> R {
            let claimed = self.1.take();
            finish(Item(&self.0, claimed))
        }
    }
    impl Drop for Owned {
        fn drop(&mut self) {
            drop(Item(&self.0, self.1.take()));
        }
    }
    assert_eq!(size_of::<Option<Claimed<u64>>>(), size_of::<usize>());
    assert_eq!(size_of::<Item<'_>>(), 2 * size_of::<usize>(), "as now");
    let queue: Queue = Rc::new(RefCell::new(Machine::new(AnyOrder::new(false), DelayedAdd::Independent, 0)));
    let get = || {
        _ = add(&mut queue.borrow_mut(), 1);
        let claimed = queue.borrow_mut().get(0, Mode::PLAIN).0;
        assert_eq!(claimed.as_ref().expect("it is queued").hash().0, hash(1).0);
        claimed
    };
    let left = || (queue.borrow().processing(), queue.borrow().known(), Rc::strong_count(&queue));
    drop(Item(&queue, get()));
    assert_eq!(left(), (0, 0, 1));
    drop(Owned(Rc::clone(&queue), get()));
    assert_eq!(left(), (0, 0, 1));
    let panics = Owned(Rc::clone(&queue), get());
    let ended = catch_unwind(AssertUnwindSafe(|| panics.finish(|_item| std::panic::resume_unwind(Box::new(())))));
    assert!(ended.is_err());
    assert_eq!(left(), (0, 0, 1));
    assert_eq!(Owned(Rc::clone(&queue), get()).finish(|item| item.requeue()), Added::Delayed);
    assert_eq!(left(), (0, 1, 1));
}
