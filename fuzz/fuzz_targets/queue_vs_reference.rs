//! Runs a list of calls on the crate and on a simple reference, and compares every return value: see `tests/support/ops.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod ops;
    pub(crate) mod reference;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::ops::run_bytes(data));
