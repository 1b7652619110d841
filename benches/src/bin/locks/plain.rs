//! The queue's lock, as it is: a store releases it.

use super::parts::{
    Condvar, Holder, Ordering, ParkGuard, ParkMutex, UnsafeCell, fence, model_const, now, parallelism, spin_hint,
    wait_timed,
};

type AtomicBool = super::parts::Flag<{ super::parts::STORE }>;

#[inline(always)]
fn unlock_check_fence() {
    super::parts::compiler_fence(Ordering::SeqCst);
}

#[allow(dead_code, unreachable_pub, reason = "the queue uses all of it")]
#[path = "../../../../src/sync/lock.rs"]
mod lock;
pub(crate) use lock::Mutex;
