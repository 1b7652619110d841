//! Which core a thread runs on.
//!
//! A measurement of a latency says which threads share a core, because otherwise the system decides it anew in each run: with two busy threads
//! on two cores it wakes one of them on the core of the other now and then, where it waits for the next tick, 4 ms later. A tenth of the keys
//! of each queue were late by milliseconds for that reason, so the runs did not agree.

/// The first or the second of the cores on which this process may run, in this order.
#[derive(Clone, Copy)]
pub enum Core {
    First,
    Second,
}

/// Keeps this thread on one core from now on. It has no effect on a machine with one core, and on systems other than Linux.
pub fn pin(core: Core) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: a set of cores is an array of bits, for which zeros are valid; and the calls read and write `mine` and `one` alone.
        unsafe {
            let mut mine: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of_val(&mine), &raw mut mine) != 0 {
                return;
            }
            let all = (0..libc::CPU_SETSIZE as usize).filter(|&at| libc::CPU_ISSET(at, &mine));
            let Some(at) = all.clone().nth(core as usize).or_else(|| all.clone().next()) else { return };
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(at, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _it_has_no_effect = core;
}
