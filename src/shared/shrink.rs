//! `shrink_to_fit`.

use super::{Limiter, STEP, Shared};
use crate::sync::give_way;

impl<K> Shared<K> {
    /// `shrink_to_fit`, in many short critical sections.
    pub(crate) fn shrink(&self) {
        if let Limiter::External(limiter) = &self.limiter {
            limiter.shrink_to_fit();
        }
        let _wheel = {
            let core = &mut *self.enter();
            core.line.shrink();
            core.waiters.shrink();
            if core.delayed == 0 { core.wheel.take() } else { None }
        };
        let (mut chunk, mut more) = (0, true);
        while more {
            {
                let core = &mut *self.enter();
                // Read again in each step: freeing the last chunk makes the array shorter.
                more = chunk < core.table.chunks();
                if more {
                    core.table.shrink_chunks(chunk..chunk + STEP);
                    chunk += STEP;
                } else {
                    more = core.table.shrink_buckets(2 * STEP);
                }
                core.owe_garbage();
            }
            give_way();
        }
    }
}
