//! Compares the timing wheel, without a queue, with a sorted map: see `tests/support/wheel.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod side;
    pub(crate) mod wheel;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::wheel::run_bytes(data));
