//! Runs a list of calls on a queue with priorities and groups and on plain lists: see `tests/support/order_ops.rs`.

#![no_main]

#[path = "../../tests/support"]
mod support {
    pub(crate) mod order_ops;
    pub(crate) mod plain_order;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::order_ops::run_bytes(data));
