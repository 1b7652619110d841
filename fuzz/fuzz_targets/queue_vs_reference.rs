//! A list of calls, on the crate and on the plain reference, every return value compared: see `tests/support/ops.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod ops;
    pub(crate) mod reference;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::ops::run_bytes(data));
