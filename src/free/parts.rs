//! The parts of the lock-free engine that come from other crates: the segment queue of `crossbeam-queue` and the map of `papaya`. Loom
//! cannot look into them, so in the models plain ones under a lock take their places.

use crate::key::{Bits, KeyHash, NodeRef};
use equivalent::Equivalent;

#[cfg(not(loom))]
pub(super) use self::real::{Map, SegQueue};
#[cfg(loom)]
pub(super) use self::stand_in::{Map, SegQueue};

#[cfg(not(loom))]
mod real {
    use super::*;
    use crate::panics::contained;
    use papaya::HashMap;
    use std::any::Any;
    use std::cell::RefCell;
    use std::hash::{BuildHasher, Hash, Hasher};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    pub(in crate::free) use crossbeam_queue::SegQueue;
    pub(in crate::free) use papaya::LocalGuard as Guard;

    /// The nodes of the keys. A node that was removed is freed when all guards that were there before have ended.
    pub(in crate::free) struct Map<K> {
        is_measured: bool,
        nodes: HashMap<KeyOf<K>, Owner<K>, Spread>,
        // A pointer that is set where `K` is known to be `Eq`, because the calls that end a hand-out do not have that bound.
        remove: fn(&Self, NodeRef<K>),
        each: fn(&Self, &mut dyn FnMut(NodeRef<K>)),
    }

    /// The key of the map, which is that of the node.
    struct KeyOf<K>(NodeRef<K>);

    impl<K> Hash for KeyOf<K> {
        #[inline]
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u32(self.0.hash().0);
        }
    }

    thread_local!(static EQ_PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) });

    // The map compares two nodes while it inserts one, and a map that is left by a panic loses the new node. If `Eq` panics here, the nodes
    // therefore count as equal, so that nothing is inserted, and `add` passes the panic on.
    impl<K: Eq> PartialEq for KeyOf<K> {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
                || self.0.hash() == other.0.hash()
                    && catch_unwind(AssertUnwindSafe(|| self.0.key() == other.0.key())).unwrap_or_else(|panic| {
                        EQ_PANIC.set(Some(panic));
                        true
                    })
        }
    }

    impl<K: Eq> Eq for KeyOf<K> {}

    /// The value of the map. Its drop frees the node, once the map drops what was removed, or with the whole queue.
    struct Owner<K>(NodeRef<K>);

    impl<K> Owner<K> {
        /// The key of a node that was not inserted.
        fn into_key(self) -> K {
            let node = self.0;
            std::mem::forget(self);
            // SAFETY: it was not inserted, so this is the only reference to the node (F6).
            unsafe { node.free() }
        }
    }

    impl<K> Drop for Owner<K> {
        fn drop(&mut self) {
            // A panic of the key's drop must not pass through the map.
            contained(|| {
                // SAFETY: no reference to the node is left. It was GONE and had left the map, and the last guard has ended (F1), or the
                // whole queue is dropped, or the node was not inserted (F6).
                drop(unsafe { self.0.free() });
            });
        }
    }

    /// What a node is looked up by: its hash, and whether it is the one.
    struct Query<F>(KeyHash, F);

    impl<F> Hash for Query<F> {
        #[inline]
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u32(self.0.0);
        }
    }

    impl<K, F: Fn(NodeRef<K>) -> bool> Equivalent<KeyOf<K>> for Query<F> {
        #[inline]
        fn equivalent(&self, other: &KeyOf<K>) -> bool {
            (self.1)(other.0)
        }
    }

    /// The node of this key.
    #[inline]
    fn of_key<K, Q: Equivalent<K> + ?Sized>(key: &Q, hash: KeyHash) -> Query<impl Fn(NodeRef<K>) -> bool> {
        Query(hash, move |node: NodeRef<K>| hash == node.hash() && key.equivalent(node.key()))
    }

    /// Spreads the bits of a hash that the call has already computed.
    #[derive(Clone, Default)]
    pub(in crate::free) struct Spread(u64);

    impl BuildHasher for Spread {
        type Hasher = Self;

        #[inline]
        fn build_hasher(&self) -> Self {
            Self(0)
        }
    }

    impl Hasher for Spread {
        #[inline]
        fn write_u32(&mut self, hash: u32) {
            self.0 = u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }

        fn write(&mut self, _: &[u8]) {
            unreachable!("a hash is one number");
        }

        #[inline]
        fn finish(&self) -> u64 {
            self.0
        }
    }

    impl<K: Eq> Map<K> {
        pub(in crate::free) fn new(capacity: usize, is_measured: bool) -> Self {
            Self {
                is_measured,
                nodes: HashMap::with_capacity_and_hasher(capacity, Spread::default()),
                remove: |map, node| {
                    // Finds nothing if another thread was first.
                    _ = map.nodes.remove(&Query(node.hash(), |other| other == node), &map.nodes.guard());
                },
                each: |map, each| map.nodes.iter(&map.nodes.guard()).for_each(|(_, owner)| each(owner.0)),
            }
        }

        #[inline]
        pub(in crate::free) fn add<R>(
            &self,
            hand: &mut Option<K>,
            hash: KeyHash,
            bits: Bits,
            guard: &Guard<'_>,
            mut known: impl FnMut(NodeRef<K>) -> Option<R>,
        ) -> Result<R, NodeRef<K>> {
            loop {
                let key = hand.as_ref().expect("an add has a key in its hand");
                let found = self.nodes.get(&of_key(key, hash), guard).map(|owner| owner.0);
                let node = match found {
                    Some(node) => node,
                    None => match self.insert(hand, hash, bits, guard) {
                        Ok(new) => return Err(new),
                        Err(known) => known,
                    },
                };
                if let Some(answer) = known(node) {
                    return Ok(answer);
                }
                self.remove_gone(node);
            }
        }

        /// Inserts a new node. An error has the node of another thread, which was first.
        #[inline(never)]
        fn insert(
            &self,
            hand: &mut Option<K>,
            hash: KeyHash,
            bits: Bits,
            guard: &Guard<'_>,
        ) -> Result<NodeRef<K>, NodeRef<K>> {
            drop(EQ_PANIC.take()); // left by an insertion that succeeded after all, as another thread had removed the other node
            let key = hand.take().expect("an add has a key in its hand");
            let node = NodeRef::new(key, hash, bits, self.is_measured);
            let Err(taken) = self.nodes.try_insert(KeyOf(node), Owner(node), guard) else { return Ok(node) };
            if let Some(panic) = EQ_PANIC.take() {
                drop(taken.not_inserted);
                resume_unwind(panic);
            }
            *hand = Some(taken.not_inserted.into_key());
            Err(taken.current.0)
        }

        #[inline]
        pub(in crate::free) fn with<Q, R>(&self, key: &Q, hash: KeyHash, f: impl FnOnce(NodeRef<K>) -> R) -> Option<R>
        where
            Q: Equivalent<K> + ?Sized,
        {
            let guard = self.nodes.guard();
            self.nodes.get(&of_key(key, hash), &guard).map(|owner| f(owner.0))
        }
    }

    impl<K> Map<K> {
        /// While the guard lasts, nodes that leave the map are not freed.
        #[inline]
        pub(in crate::free) fn guard(&self) -> Guard<'_> {
            self.nodes.guard()
        }

        /// Removes a node that is GONE, unless another thread has done so.
        fn remove_gone(&self, node: NodeRef<K>) {
            (self.remove)(self, node);
        }

        pub(in crate::free) fn retire(&self, node: NodeRef<K>, go: impl FnOnce() -> bool) -> bool {
            let _guard = self.nodes.guard(); // made first: once the node is GONE, another thread may remove it
            let is_gone = go();
            if is_gone {
                self.remove_gone(node);
            }
            is_gone
        }

        pub(in crate::free) fn each(&self, mut each: impl FnMut(NodeRef<K>)) {
            (self.each)(self, &mut each);
        }
    }
}

#[cfg(loom)]
mod stand_in {
    use super::*;
    use crate::sync::{AtomicUsize, Mutex, Ordering};

    /// The largest number of pushes in a model.
    const PUSHES: usize = 16;

    /// As weak as the real one: a getter may read an old number of pushes, unless a fence or the step of another thread prevents that.
    pub(in crate::free) struct SegQueue<T> {
        places: [Mutex<Option<T>>; PUSHES],
        pushed: AtomicUsize,
        popped: AtomicUsize,
    }

    impl<T> SegQueue<T> {
        pub(in crate::free) fn new() -> Self {
            let places = std::array::from_fn(|_| Mutex::new(None));
            Self { places, pushed: AtomicUsize::new(0), popped: AtomicUsize::new(0) }
        }

        pub(in crate::free) fn push(&self, entry: T) {
            let at = self.pushed.fetch_add(1, Ordering::AcqRel);
            *self.places[at].lock() = Some(entry);
        }

        pub(in crate::free) fn pop(&self) -> Option<T> {
            let mut at = self.popped.load(Ordering::Acquire);
            loop {
                if at >= self.pushed.load(Ordering::Acquire) {
                    return None;
                }
                match self.popped.compare_exchange(at, at + 1, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(now) => at = now,
                }
            }
            loop {
                if let Some(entry) = self.places[at].lock().take() {
                    return Some(entry);
                }
                loom::thread::yield_now();
            }
        }

        pub(in crate::free) fn len(&self) -> usize {
            let popped = self.popped.load(Ordering::Acquire);
            self.pushed.load(Ordering::Acquire) - popped
        }

        pub(in crate::free) fn is_empty(&self) -> bool {
            self.len() == 0
        }
    }

    /// Nodes are freed with the map, so a guard does nothing.
    pub(in crate::free) struct Guard<'m>(std::marker::PhantomData<&'m ()>);

    /// Its lock ends before a node is used. Nodes that are removed are freed with the map.
    pub(in crate::free) struct Map<K> {
        is_measured: bool,
        nodes: Mutex<Vec<NodeRef<K>>>,
        removed: Mutex<Vec<NodeRef<K>>>,
    }

    impl<K: Eq> Map<K> {
        pub(in crate::free) fn new(_: usize, is_measured: bool) -> Self {
            Self { is_measured, nodes: Mutex::new(Vec::new()), removed: Mutex::new(Vec::new()) }
        }

        pub(in crate::free) fn add<R>(
            &self,
            key: &mut Option<K>,
            hash: KeyHash,
            bits: Bits,
            _: &Guard<'_>,
            mut known: impl FnMut(NodeRef<K>) -> Option<R>,
        ) -> Result<R, NodeRef<K>> {
            loop {
                let found = {
                    let mut nodes = self.nodes.lock();
                    let found = nodes.iter().copied().find(|node| Some(node.key()) == key.as_ref());
                    if found.is_none() {
                        let node = NodeRef::new(key.take().expect("not inserted yet"), hash, bits, self.is_measured);
                        nodes.push(node);
                        return Err(node);
                    }
                    found.expect("asked above")
                };
                if let Some(answer) = known(found) {
                    return Ok(answer);
                }
                self.remove_gone(found);
            }
        }

        pub(in crate::free) fn with<Q, R>(&self, key: &Q, hash: KeyHash, f: impl FnOnce(NodeRef<K>) -> R) -> Option<R>
        where
            Q: Equivalent<K> + ?Sized,
        {
            let is_it = |node: &NodeRef<K>| hash == node.hash() && key.equivalent(node.key());
            let found = self.nodes.lock().iter().copied().find(is_it);
            found.map(f)
        }
    }

    impl<K> Map<K> {
        pub(in crate::free) fn guard(&self) -> Guard<'_> {
            Guard(std::marker::PhantomData)
        }

        fn remove_gone(&self, node: NodeRef<K>) {
            let mut nodes = self.nodes.lock();
            if let Some(at) = nodes.iter().position(|other| *other == node) {
                nodes.remove(at);
                self.removed.lock().push(node);
            }
        }

        pub(in crate::free) fn retire(&self, node: NodeRef<K>, go: impl FnOnce() -> bool) -> bool {
            let is_gone = go();
            if is_gone {
                self.remove_gone(node);
            }
            is_gone
        }

        pub(in crate::free) fn each(&self, mut each: impl FnMut(NodeRef<K>)) {
            let nodes = self.nodes.lock().clone();
            nodes.into_iter().for_each(&mut each);
        }
    }

    impl<K> Drop for Map<K> {
        fn drop(&mut self) {
            for nodes in [&mut self.nodes, &mut self.removed] {
                for node in nodes.get_mut().drain(..) {
                    // SAFETY: the whole queue is dropped (F6).
                    drop(unsafe { node.free() });
                }
            }
        }
    }
}
