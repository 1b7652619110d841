//! Control of single threads: hold one up, give it the lowest priority, count how often it parks. Linux only.

use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// While set, the thread stays in the signal handler.
static HOLD: AtomicBool = AtomicBool::new(false);
/// The thread is in the handler.
static HELD: AtomicBool = AtomicBool::new(false);

extern "C" fn stay(_signal: libc::c_int) {
    HELD.store(true, Ordering::SeqCst);
    while HOLD.load(Ordering::SeqCst) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
        // SAFETY: `time` is valid during the call, and `nanosleep` is async-signal-safe.
        unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    }
}

pub fn this_thread() -> libc::pthread_t {
    // SAFETY: takes no arguments, and has no preconditions.
    unsafe { libc::pthread_self() }
}

/// Keeps the thread in a signal handler until [`release`]. Only one thread at a time can be held. The thread must not have ended.
pub fn hold(thread: libc::pthread_t) {
    HELD.store(false, Ordering::SeqCst);
    HOLD.store(true, Ordering::SeqCst);
    // SAFETY: all zero is a `sigaction` without flags; the handler calls async-signal-safe functions only, and lives as long as the
    // program. The caller guarantees that the thread has not ended.
    let results = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = stay as *const () as usize;
        [libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), libc::pthread_kill(thread, libc::SIGUSR1)]
    };
    assert_eq!(results, [0, 0]);
    while !HELD.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn release() {
    HOLD.store(false, Ordering::SeqCst);
}

/// The core that this thread runs on now.
pub fn core() -> usize {
    // SAFETY: takes no arguments, and has no preconditions.
    let core = unsafe { libc::sched_getcpu() };
    core.try_into().expect("Linux knows")
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

/// How often this thread has parked so far: its voluntary context switches. Yielding does not count.
pub fn parks() -> u64 {
    // SAFETY: all zero is a valid `rusage`, which the call overwrites.
    let usage = unsafe {
        let mut usage: libc::rusage = zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage
    };
    usage.ru_nvcsw as u64
}
