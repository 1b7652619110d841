//! The input chooses the actor that makes the next call, and the promises are checked after each call: see
//! `tests/support/schedule.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod schedule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::schedule::run_bytes(data));
