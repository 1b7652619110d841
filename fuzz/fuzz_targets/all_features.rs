//! Runs a list of steps with all features on the crate and on the plain queue: see `tests/reference/`.

#![no_main]

#[path = "../../tests/reference/mod.rs"]
mod reference;

/// A yield, which the queue makes between two critical sections if it has one CPU, returns at once: a life has one thread, so nobody waits for
/// the lock. On a busy machine the system would run all other programs first.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> std::ffi::c_int {
    0
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    reference::crossings::leave_out();
    reference::swarm::run_bytes(data);
});
