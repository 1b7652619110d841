//! Two getters are parked, and one of them does not run when it is woken. Measures how late the other getter receives the keys.

use crate::system::{core, hold, release, stay_on, this_thread};
use crate::{Values, quantile};
use keyqueue_benches::Subject;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two adds.
const APART: Duration = Duration::from_millis(2);
/// The time that a getter gets to park.
const PARKED: Duration = Duration::from_millis(20);

/// When each key was added and handed out.
struct Times {
    start: Instant,
    added: Vec<AtomicU64>,
    handed_out: Vec<AtomicU64>,
}

impl Times {
    fn new(keys: usize) -> Self {
        let none = || (0..keys).map(|_| AtomicU64::new(0)).collect();
        Self { start: Instant::now(), added: none(), handed_out: none() }
    }

    fn note(&self, times: &[AtomicU64], key: u64) {
        times[key as usize].store(self.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    fn get<Q: Subject<u64>>(&self, queue: &Q) {
        while queue.process(|_, key| self.note(&self.handed_out, *key)) {}
    }

    fn add<Q: Subject<u64>>(&self, queue: &Q) {
        for key in 0..self.added.len() as u64 {
            self.note(&self.added, key);
            queue.add(key);
            thread::sleep(APART);
        }
    }

    /// Returns when all keys are handed out.
    fn wait(&self) {
        while self.handed_out.iter().any(|time| time.load(Ordering::Relaxed) == 0) {
            thread::sleep(APART);
        }
    }

    /// The first key is shown by itself: until the next add, it waits for the getter that does not run.
    fn values(&self) -> Values {
        let times =
            |times: &[AtomicU64]| -> Vec<u64> { times.iter().map(|time| time.load(Ordering::Relaxed)).collect() };
        let (added, handed_out) = (times(&self.added), times(&self.handed_out));
        let mut late: Vec<f64> =
            handed_out.iter().zip(&added).map(|(handed_out, added)| (handed_out - added) as f64 / 1000.0).collect();
        let first = late.remove(0);
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| quantile(&mut late, part));
        vec![
            ("first key, µs", first),
            ("other keys: p50, µs", p50),
            ("other keys: p99, µs", p99),
            ("other keys: max, µs", max),
        ]
    }
}

/// The getter that parked first (0) or last (1) is in a signal handler for 400 ms. 60 keys.
pub fn held_up<Q: Subject<u64>>(which: usize) -> Values {
    let (queue, times) = (Q::make(), Times::new(60));
    thread::scope(|scope| {
        let (send, received) = mpsc::channel();
        for _ in 0..2 {
            let (send, queue, times) = (send.clone(), &queue, &times);
            scope.spawn(move || {
                send.send(this_thread()).expect("the receiver is there");
                times.get(queue);
            });
            thread::sleep(PARKED);
        }
        let threads: Vec<_> = received.iter().take(2).collect();
        let start = Instant::now();
        hold(threads[which]);
        times.add(&queue);
        thread::sleep(Duration::from_millis(400).saturating_sub(start.elapsed()));
        release();
        times.wait();
        queue.shut_down();
    });
    times.values()
}

/// The getter that parked first has the lowest priority, and shares its core with a busy thread. 300 keys.
pub fn idle<Q: Subject<u64>>(_: usize) -> Values {
    let (queue, times, core) = (Q::make(), Times::new(300), core());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(core, libc::SCHED_IDLE);
            times.get(&queue);
        });
        thread::sleep(PARKED);
        scope.spawn(|| {
            stay_on(core, libc::SCHED_OTHER);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(|| times.get(&queue));
        thread::sleep(PARKED);
        times.add(&queue);
        times.wait();
        over.store(true, Ordering::Relaxed);
        queue.shut_down();
    });
    times.values()
}
