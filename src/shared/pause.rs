//! The pause of the whole queue (P31).
//!
//! ```text
//!  pause:    hub: set the flag ───▶ lock each shard once
//!  resume:   hub: clear the flag ─▶ lock each shard once ─▶ hub: wake getters for the keys that are ready
//!
//!  getter:   on the list ─▶ lock a shard ─ the flag is set: no key ─▶ park
//! ```
//!
//! **Exact.** A getter reads the flag under the lock under which it takes its key. A hand-out that has not seen the flag is therefore over
//! when `pause` has had this lock, and each later one sees it. Hot calls read the flag together with others, so it costs them nothing. A
//! lock-free queue has no such lock: there a get that began before `pause` has returned may take a key.
//!
//! **Who wakes.** While the queue is paused, neither a push nor a token wakes a getter, because it would go back to sleep. Both look at the
//! flag under the hub's lock. If it is set, the `resume` comes later, and therefore sees the key.
//!
//! **No wake-up is lost.** A getter goes on the list before it looks at the flag, and `resume` locks each shard between the clearing of the
//! flag and its look at the keys. If the getter's visit comes later, it finds the flag clear, and if `resume` comes later, it finds the
//! keys that the getter has left, and the getter on the list. In a lock-free queue two fences take the place of the lock.
//!
//! **The shut-down** clears the flag in the critical section in which it refuses adds and takes all getters off the list (I7). A `pause`
//! that comes later changes nothing, so no drain waits for a `resume`.

use super::Shared;
use super::hub::Flags;
#[cfg(feature = "lock-free")]
use crate::sync::{Ordering, fence};

impl<K> Shared<K> {
    /// Hands nothing out from now on, unless the queue is shut down.
    pub(crate) fn pause(&self) {
        {
            let mut hub = self.hub();
            if self.flags().has(Flags::SHUT_DOWN) {
                return;
            }
            hub.set(Flags::PAUSED, true);
        }
        self.enter_each_shard();
    }

    /// Ends the pause, and wakes getters for the keys that are ready.
    pub(crate) fn end_pause(&self) {
        {
            let mut hub = self.hub();
            if !hub.is_paused() {
                return;
            }
            hub.set(Flags::PAUSED, false);
        }
        self.enter_each_shard();
        #[cfg(feature = "lock-free")]
        fence(Ordering::SeqCst); // F10: with the fence of the getter's look
        self.wake_getters(self.ready());
    }

    fn enter_each_shard(&self) {
        self.all().for_each(|locked| drop(locked.lock()));
    }
}
