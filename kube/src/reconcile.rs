//! A run of the handler.

use crate::Reasons;
use keyqueue::Item;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A run of the handler: the object, why it is reconciled, and the key that the worker holds.
///
/// It dereferences to the queue's [`Item`], and so has what a handler may ask there: [`num_requeues`](Item::num_requeues),
/// [`is_dirty`](Item::is_dirty), [`until_dirty`](Item::until_dirty), [`is_late`](Item::is_late), [`priority`](Item::priority),
/// [`until_shutting_down`](Item::until_shutting_down). An item dereferences to its key, so `run.name` and `run.namespace` are the object's.
pub struct Reconcile<'i, K: Resource> {
    pub(crate) item: &'i Item<'i, ObjectRef<K>>,
    pub(crate) object: Option<Arc<K>>,
    pub(crate) reasons: Reasons,
}

impl<'i, K: Resource> Reconcile<'i, K> {
    /// The object as the store has it now. `None` if it is gone, which a handler is told once for each object: by runs until one succeeds or
    /// returns [`GiveUp`](keyqueue::Outcome::GiveUp). An object that the controller's selection does not have any more is gone, too, although
    /// it exists.
    ///
    /// A handler with a finalizer sees the object before it is gone, with a `deletionTimestamp`, and returns a success at `None`.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<K>> {
        self.object.as_ref()
    }

    /// The reference to the object, which is the queue's key.
    #[must_use]
    pub fn object_ref(&self) -> &'i ObjectRef<K> {
        self.item.key()
    }

    /// Why the object is reconciled: all events since the last run that has succeeded.
    #[must_use]
    pub fn reasons(&self) -> Reasons {
        self.reasons
    }

    /// How often this object has failed since its last success.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.item.num_requeues()
    }
}

impl<'i, K: Resource> Deref for Reconcile<'i, K> {
    type Target = Item<'i, ObjectRef<K>>;

    fn deref(&self) -> &Item<'i, ObjectRef<K>> {
        self.item
    }
}

/// Shows the reference to the object.
impl<K: Resource> fmt::Display for Reconcile<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object_ref().fmt(f)
    }
}

impl<K: Resource> fmt::Debug for Reconcile<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconcile")
            .field("object_ref", &self.object_ref().to_string())
            .field("is_gone", &self.object.is_none())
            .field("reasons", &self.reasons)
            .finish_non_exhaustive()
    }
}
