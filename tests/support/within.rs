//! A limit for calls that could hang.
//!
//! Under miri the clock goes on with the steps of the program, and not with the real time: there the limit is longer.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Runs `call` in a thread, and fails if it has not returned after 30 seconds. A panic of the call passes through.
pub(crate) fn within_30_s<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || send.send(call()));
    match receive.recv_timeout(Duration::from_secs(if cfg!(miri) { 3000 } else { 30 })) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("the call has not returned after 30 s"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().unwrap_err()),
    }
}
