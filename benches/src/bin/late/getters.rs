//! How late keys are handed out when a getter does not run, and after bursts.

use common::Subject;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use keyqueue_benches::latency::histogram;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two adds.
const APART: Duration = Duration::from_millis(2);
/// The time that a getter gets to park.
const PARKED: Duration = Duration::from_millis(20);

/// The getter that parked first has the lowest priority, and shares its core with a busy thread. 300 keys.
pub fn idle<Q: Subject<u64>>() -> Histogram<u64> {
    let (queue, start, over) = (Q::make(), Instant::now(), AtomicBool::new(false));
    let now = || start.elapsed().as_nanos() as u64;
    let handed_out: Vec<AtomicU64> = (0..300).map(|_| AtomicU64::new(0)).collect();
    let get = || while queue.process(|_, key| handed_out[*key as usize].store(now(), Relaxed)) {};
    // SAFETY: takes no arguments, and has no preconditions.
    let core = unsafe { libc::sched_getcpu() } as usize;
    let mut late = histogram();
    thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(core, libc::SCHED_IDLE);
            get();
        });
        thread::sleep(PARKED);
        scope.spawn(|| {
            stay_on(core, libc::SCHED_OTHER);
            while !over.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(get);
        thread::sleep(PARKED);
        let add = |key| {
            let at = now();
            queue.add(key as u64);
            thread::sleep(APART);
            at
        };
        let added: Vec<u64> = (0..handed_out.len()).map(add).collect();
        for (added, handed_out) in added.iter().zip(&handed_out) {
            while handed_out.load(Relaxed) == 0 {
                thread::sleep(APART);
            }
            late.record(handed_out.load(Relaxed) - added).expect("resizes by itself");
        }
        over.store(true, Relaxed);
        queue.shut_down();
    });
    late
}

/// 1000 keys at once, while getters are parked: from the first add until the last key is handed out.
pub fn burst<Q: Subject<u64>>(getters: usize) -> Histogram<u64> {
    const KEYS: u64 = 1000;
    let queue = Q::make();
    let handed_out: Vec<CachePadded<AtomicU64>> = (0..getters).map(|_| CachePadded::default()).collect();
    let mut bursts = histogram();
    thread::scope(|scope| {
        for count in &handed_out {
            let queue = &queue;
            scope.spawn(move || while queue.process(|_, _| count.store(count.load(Relaxed) + 1, Relaxed)) {});
        }
        for burst in 1..=100 {
            thread::sleep(APART); // until all getters are parked
            let start = Instant::now();
            (0..KEYS).for_each(|key| queue.add(key));
            while handed_out.iter().map(|count| count.load(Relaxed)).sum::<u64>() < burst * KEYS {
                thread::yield_now();
            }
            bursts.record(start.elapsed().as_nanos() as u64).expect("resizes by itself");
        }
        queue.shut_down();
    });
    bursts
}

/// From now on this thread runs on that core only: at the normal priority (`SCHED_OTHER`), or only when no other thread is runnable
/// there (`SCHED_IDLE`).
pub fn stay_on(core: usize, policy: libc::c_int) {
    // SAFETY: all zero is a set of no cores, and priority 0, which these policies require. Both live during the calls.
    let results = unsafe {
        let mut cores: libc::cpu_set_t = zeroed();
        libc::CPU_SET(core, &mut cores);
        let priority: libc::sched_param = zeroed();
        [libc::sched_setaffinity(0, size_of_val(&cores), &cores), libc::sched_setscheduler(0, policy, &priority)]
    };
    assert_eq!(results, [0, 0]);
}
