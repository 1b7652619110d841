//! Runs a list of steps with all features on the crate and on the plain queue: see `tests/reference/`.

#![no_main]

#[path = "../../tests/reference/mod.rs"]
mod reference;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    reference::crossings::leave_out();
    reference::swarm::run_bytes(data);
});
