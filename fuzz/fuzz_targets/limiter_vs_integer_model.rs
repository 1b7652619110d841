//! Compares the limiters, with any settings and without a queue, with integer models: see `tests/support/limiter.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod limiter;
    pub(crate) mod limits;
    pub(crate) mod side;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::limiter::run_bytes(data));
