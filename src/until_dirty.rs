//! The future of a held key's next add.

use crate::key::slab::SlotRef;
use crate::shared::{Shared, Watch};
use crate::sync::Arc;
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future that [`Item::until_dirty`](crate::Item::until_dirty) returns.
///
/// # Cancel safety
/// Dropping it loses nothing: the key stays dirty.
#[must_use = "futures do nothing unless polled"]
pub struct UntilDirty<'i, K> {
    queue: &'i Arc<Shared<K>>,
    slot: SlotRef<K>,
    watch: Option<Watch>,
}

impl<'i, K> UntilDirty<'i, K> {
    /// # Safety
    /// The key in this slot is held as long as `'i` lasts.
    pub(crate) unsafe fn new(queue: &'i Arc<Shared<K>>, slot: SlotRef<K>) -> Self {
        Self { queue, slot, watch: None }
    }
}

impl<K> Future for UntilDirty<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        // SAFETY: the key is held (`new`).
        let dirty = unsafe { this.queue.watch(this.slot, &mut this.watch, cx.waker()) };
        if dirty { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<K> Drop for UntilDirty<'_, K> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.queue.unwatch(watch);
        }
    }
}

// As for the item.
impl<K: RefUnwindSafe> UnwindSafe for UntilDirty<'_, K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for UntilDirty<'_, K> {}

impl<K> fmt::Debug for UntilDirty<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilDirty").finish_non_exhaustive()
    }
}
