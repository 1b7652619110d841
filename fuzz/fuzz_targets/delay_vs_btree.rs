//! Runs a list of calls with delays and jumps of the clock on the crate and on a simple reference, and compares every return
//! value: see `tests/support/delay_ops.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod delay_ops;
    pub(crate) mod delays;
    pub(crate) mod limits;
    pub(crate) mod ops;
    pub(crate) mod reference;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::delay_ops::run_bytes(data));
