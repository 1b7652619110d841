//! The resources of the process: memory, threads, open files. Linux only.

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::fs;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes as the allocator counts them, and as the system does.
#[derive(Clone, Copy)]
pub struct Memory {
    pub heap: u64,
    pub resident: u64,
    /// The maximum of `resident` so far.
    pub peak: u64,
}

/// Makes the allocator use one arena for all threads. Otherwise resident memory depends on how the keys of short-lived threads are spread
/// over the arenas, and grows by some megabytes while the heap does not. Must be called before any thread is started.
pub fn one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread is running yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

impl Memory {
    /// Measured after the allocator has given back the free memory that it keeps.
    pub fn trimmed() -> Self {
        #[cfg(target_env = "gnu")]
        // SAFETY: may be called at any time.
        unsafe {
            libc::malloc_trim(0);
        }
        Self::now()
    }

    pub fn now() -> Self {
        let stats = ALLOCATOR.stats();
        let status = fs::read_to_string("/proc/self/status").expect("a Linux with /proc");
        let kilobytes = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of /proc/self/status");
            line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
        };
        Self {
            heap: (stats.bytes_allocated - stats.bytes_deallocated) as u64,
            resident: kilobytes("VmRSS:") * 1024,
            peak: kilobytes("VmHWM:") * 1024,
        }
    }
}

pub fn threads() -> usize {
    entries("/proc/self/task")
}

/// The number of open files. It includes the directory that this function reads.
pub fn files() -> usize {
    entries("/proc/self/fd")
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).expect("a Linux with /proc").count()
}
