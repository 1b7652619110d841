//! The input chooses which actor makes the next move, and the promises are checked after each: see
//! `tests/support/schedule.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod schedule;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::schedule::run_bytes(data));
