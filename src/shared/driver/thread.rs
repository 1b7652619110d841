//! The thread that queues expired keys. Its states are in `states.rs`.

use super::states::{ClockSubscription, NextStep};
use crate::panics::contained;
use crate::shared::Shared;
use crate::sync::{Arc, Parker, Weak, downgrade, spawn};

/// Starts the thread.
pub(crate) fn start_driver_thread<K: Send + Sync + 'static>(shared: &Arc<Shared<K>>) -> std::io::Result<()> {
    let weak = downgrade(shared);
    spawn("keyqueue-delay", move || run(&weak)).map(drop) // it is never joined
}

fn run<K>(weak: &Weak<Shared<K>>) {
    // A parker of its own, because a waker is foreign code that may park this thread, and would use up a wake-up of the driver.
    let parker = Parker::new();
    let Some(clock) = contained(|| Some(weak.upgrade()?.settings.clock.clone())).flatten() else { return };
    let _subscription = ClockSubscription::new(&clock, &parker);
    while let Some(next) = contained(|| step(weak, &parker)).flatten() {
        match next {
            NextStep::Park(until) => parker.park(until),
            NextStep::Again => {}
            NextStep::End => return,
        }
    }
}

/// A step of the driver. `None`: the queue is gone.
///
/// The thread holds the queue during a step only, and parks with a weak reference, so that the drop of the last handle can end it. If that
/// comes during a step, the queue and its keys are dropped here, at its end. That is foreign code, whose panic the caller contains.
fn step<K>(weak: &Weak<Shared<K>>, parker: &Parker) -> Option<NextStep> {
    let shared = weak.upgrade()?;
    // The driver outlives a panic, of an observer for example.
    let next = contained(|| Shared::drive(&shared, parker));
    drop(shared); // not while the thread unwinds
    Some(next.unwrap_or(NextStep::Again))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::observe::Observer;
    use crate::{Clock, WorkQueue};
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    /// The thread cannot be started at first. Later it can, and then each call that adds, gets or waits starts it, even one that sets
    /// no delay.
    #[test]
    fn any_call_starts_the_thread_when_that_is_possible_again() {
        static POSSIBLE: AtomicBool = AtomicBool::new(false);
        let start: fn(&Arc<Shared<&'static str>>) -> std::io::Result<()> = |shared| {
            if POSSIBLE.load(Ordering::SeqCst) {
                start_driver_thread(shared)
            } else {
                Err(std::io::ErrorKind::WouldBlock.into())
            }
        };
        type Call = fn(&WorkQueue<&'static str>);
        let calls: [(&str, Call); 9] = [
            ("add", |queue| _ = queue.add("other")),
            ("add_all", |queue| _ = queue.add_all(["other"])),
            ("add_after, not earlier", |queue| _ = queue.add_after("key", Duration::from_secs(7200))),
            ("add_rate_limited", |queue| _ = queue.add_rate_limited("other")),
            ("try_get", |queue| assert!(queue.try_get().is_err())),
            ("get_timeout", |queue| _ = queue.get_timeout(Duration::from_millis(1))),
            ("get_async", |queue| _ = pin!(queue.get_async()).poll(&mut Context::from_waker(Waker::noop()))),
            ("wait_idle_timeout", |queue| _ = queue.wait_idle_timeout(Duration::from_millis(1))),
            ("wait_idle_async", |queue| {
                _ = pin!(queue.wait_idle_async()).poll(&mut Context::from_waker(Waker::noop()))
            }),
        ];
        for (name, call) in calls {
            POSSIBLE.store(false, Ordering::SeqCst);
            let queue = WorkQueue::builder().build_with(start);
            queue.add_after("key", Duration::from_secs(3600));
            assert!(queue.shared.is_driver_missing(), "{name}");
            let failures = queue.stats().driver_failures; // more than one, if this thread was descheduled for long
            assert!(failures >= 1, "{name}");
            POSSIBLE.store(true, Ordering::SeqCst);
            let begin = Instant::now();
            while queue.shared.is_driver_missing() {
                call(&queue);
                assert!(begin.elapsed() < Duration::from_secs(60), "{name} starts no thread");
            }
            queue.add_after("soon", Duration::from_millis(1));
            while queue.get().is_some_and(|key| *key != "soon") {}
            assert_eq!(queue.stats().driver_failures, failures, "{name}");
        }
    }

    /// The same for a get that returns a key.
    #[test]
    fn a_hand_out_starts_the_thread_when_that_is_possible_again() {
        static POSSIBLE: AtomicBool = AtomicBool::new(false);
        let queue = WorkQueue::builder().build_with(|shared| {
            if POSSIBLE.load(Ordering::SeqCst) {
                start_driver_thread(shared)
            } else {
                Err(std::io::ErrorKind::WouldBlock.into())
            }
        });
        queue.add_all(0..1000_u32);
        queue.add_after(1000, Duration::from_secs(3600));
        POSSIBLE.store(true, Ordering::SeqCst);
        while queue.shared.is_driver_missing() {
            let item = queue.try_get().expect("no hand-out has started the thread");
            std::thread::sleep(Duration::from_micros(200));
            std::mem::forget(item); // its end would start the thread, too
        }
    }

    /// The last handle goes while the thread works, so the thread drops the keys. The panic of a key's drop does not leave it.
    #[test]
    fn a_key_whose_drop_panics_on_the_thread_is_contained() {
        use std::sync::{Mutex, mpsc};
        static THREAD: Mutex<Option<std::thread::JoinHandle<()>>> = Mutex::new(None);
        #[derive(Clone, PartialEq, Eq, Hash)]
        struct Key(bool);
        impl Drop for Key {
            fn drop(&mut self) {
                if self.0 && std::thread::current().name() == Some("driver") {
                    std::panic::resume_unwind(Box::new("a key's drop"));
                }
            }
        }
        struct Blocks(Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>);
        impl Observer for Blocks {
            fn added(&self, _: crate::Added) {
                if std::thread::current().name() == Some("driver") {
                    let channels = self.0.lock().unwrap();
                    channels.0.send(()).unwrap();
                    channels.1.recv().unwrap();
                }
            }
        }
        let start: fn(&Arc<Shared<Key>>) -> std::io::Result<()> = |shared| {
            let weak = downgrade(shared);
            let thread = std::thread::Builder::new().name("driver".into()).spawn(move || run(&weak))?;
            *THREAD.lock().unwrap() = Some(thread);
            Ok(())
        };
        let (is_at_work, at_work) = mpsc::channel();
        let (go_on, stop) = mpsc::channel();
        let queue = WorkQueue::builder().observer(Blocks(Mutex::new((is_at_work, stop)))).build_with(start);
        queue.add(Key(true));
        queue.add_after(Key(false), Duration::from_millis(1));
        at_work.recv().unwrap();
        drop(queue);
        go_on.send(()).unwrap();
        let thread = THREAD.lock().unwrap().take().unwrap();
        assert!(thread.join().is_ok(), "the panic has ended the thread");
    }

    /// While no thread can be started, an earlier delay wakes a parked getter, and so does a move of a mock clock.
    #[test]
    fn an_earlier_delay_wakes_a_parked_getter() {
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
        let queue = WorkQueue::builder().build_with(start);
        let (clock, time) = Clock::mock();
        let mocked = WorkQueue::builder().clock(clock).build_with(start);
        std::thread::scope(|scope| {
            queue.add_after(1, Duration::from_secs(3600));
            let getter = scope.spawn(|| *queue.get().unwrap());
            let parked = |queue: &WorkQueue<u8>| while queue.stats().waiters == 0 {};
            parked(&queue);
            queue.add_after(2, Duration::from_millis(5));
            assert_eq!(getter.join().unwrap(), 2);

            mocked.add_after(1, Duration::from_secs(3600));
            let getter = scope.spawn(|| *mocked.get().unwrap());
            parked(&mocked);
            while !getter.is_finished() {
                time.advance(Duration::from_secs(3600));
                std::thread::yield_now();
            }
            assert_eq!(getter.join().unwrap(), 1);
        });
    }

    /// While no thread can be started, a getter queues an expired key, which wakes the getter itself. Then an observer on the same
    /// thread waits for a key of another queue. This wait must not use up the getter's wake-up.
    #[test]
    fn an_observer_that_waits_does_not_consume_the_wake_up_of_a_getter() {
        struct Waits(WorkQueue<u8>);
        impl crate::observe::Observer for Waits {
            fn added(&self, added: crate::Added) {
                if added == crate::Added::Queued {
                    assert!(self.0.get_timeout(Duration::from_millis(5)).is_err());
                }
            }
        }
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
        let queue = WorkQueue::builder().observer(Waits(WorkQueue::new())).build_with(start);
        queue.add_after(1, Duration::from_millis(50));
        let begin = Instant::now();
        assert_eq!(*queue.get_timeout(Duration::from_secs(5)).unwrap(), 1);
        assert!(begin.elapsed() < Duration::from_secs(3), "the key came after {:?}", begin.elapsed());
    }
}
