//! The orders, and what stands beside them.

use crate::line::{self, Fifo, Line as _, Ordered};
use crate::order::{AnyOrder, Bin, Group, Groups, Levels, Line, Order, Place};
use crate::rows::{Case, Handle, Kind, Make, Subject};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// An order of the new core.
struct New<O> {
    order: O,
    bin: Bin<Handle>,
}

impl<O: Order<Handle>> New<O> {
    #[inline]
    fn push(&mut self, key: Handle, priority: i8) {
        let pushed = self.order.push(key, priority, key.0.group.get());
        key.0.position.set(pushed.position.into());
        key.0.priority.set(priority);
    }

    /// As the machine's caller does after its lock.
    #[inline]
    fn drop_garbage(&mut self) {
        if !self.bin.is_empty() {
            self.bin = Bin::new();
        }
    }
}

impl<O: Order<Handle>> Subject for New<O> {
    #[inline]
    fn add(&mut self, key: Handle, priority: i8, group: u64) {
        self.order.expect(priority);
        key.0.group.set(self.order.enter(Group { hash: group, weight: 1 }));
        self.push(key, priority);
    }

    #[inline]
    fn take(&mut self) -> Option<Handle> {
        let key = self.order.pop(&mut self.bin);
        self.drop_garbage();
        key
    }

    #[inline]
    fn again(&mut self, key: Handle, priority: i8, _group: u64) {
        self.order.ended(key.0.group.get());
        self.push(key, priority);
    }

    #[inline]
    fn done(&mut self, key: Handle) {
        self.order.ended(key.0.group.get());
        self.order.leave(key.0.group.get(), &mut self.bin);
        self.drop_garbage();
    }

    #[inline]
    fn raise(&mut self, key: Handle, priority: i8) {
        self.order.expect(priority);
        let (position, group) = (key.0.position.get() as u32, key.0.group.get());
        self.order.remove(key, Place { priority: key.0.priority.get(), group, position }, &mut self.bin);
        self.push(key, priority);
        self.drop_garbage();
    }
}

/// The line of a plain queue of the crate.
impl Subject for Fifo<Handle> {
    #[inline]
    fn add(&mut self, key: Handle, _priority: i8, _group: u64) {
        key.0.position.set(self.push(key, ()));
    }

    #[inline]
    fn take(&mut self) -> Option<Handle> {
        let key = self.pop_simple().or_else(|| self.pop());
        if self.has_retired() {
            drop(self.take_retired());
        }
        key
    }

    #[inline]
    fn again(&mut self, key: Handle, priority: i8, group: u64) {
        self.add(key, priority, group);
    }

    #[inline]
    fn done(&mut self, _key: Handle) {}
}

/// The order of the crate by priorities and groups.
impl Subject for Ordered<Handle> {
    #[inline]
    fn add(&mut self, key: Handle, priority: i8, group: u64) {
        self.begin(key.0.number, line::Group { hash: (group >> 32) as u32, weight: 1 });
        self.push(key.0.number, key, priority);
    }

    #[inline]
    fn take(&mut self) -> Option<Handle> {
        Some(self.pop()?.0)
    }

    #[inline]
    fn again(&mut self, key: Handle, priority: i8, group: u64) {
        Subject::done(self, key);
        self.add(key, priority, group);
    }

    #[inline]
    fn done(&mut self, key: Handle) {
        if self.has_limit() {
            self.done(self.known(key.0.number).group.hash);
        }
        if self.has_retired() {
            drop(self.take_retired());
        }
    }

    #[inline]
    fn raise(&mut self, key: Handle, priority: i8) {
        self.raise(key.0.number, priority);
    }
}

/// The rivals.
impl Subject for VecDeque<Handle> {
    #[inline]
    fn add(&mut self, key: Handle, _priority: i8, _group: u64) {
        self.push_back(key);
    }

    #[inline]
    fn take(&mut self) -> Option<Handle> {
        self.pop_front()
    }

    #[inline]
    fn again(&mut self, key: Handle, _priority: i8, _group: u64) {
        self.push_back(key);
    }

    #[inline]
    fn done(&mut self, _key: Handle) {}
}

#[derive(Default)]
struct ByLevel(BTreeMap<Reverse<i8>, VecDeque<Handle>>);

impl Subject for ByLevel {
    #[inline]
    fn add(&mut self, key: Handle, priority: i8, _group: u64) {
        self.0.entry(Reverse(priority)).or_default().push_back(key);
    }

    #[inline]
    fn take(&mut self) -> Option<Handle> {
        let mut first = self.0.first_entry()?;
        let key = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        key
    }

    #[inline]
    fn again(&mut self, key: Handle, priority: i8, group: u64) {
        self.add(key, priority, group);
    }

    #[inline]
    fn done(&mut self, _key: Handle) {}
}

/// Priorities in a map by priority and push, so that a key can be taken out.
#[derive(Default)]
struct ByPush(BTreeMap<(Reverse<i8>, u64), Handle>, u64);

impl Subject for ByPush {
    fn add(&mut self, key: Handle, priority: i8, _group: u64) {
        self.1 += 1;
        key.0.position.set(self.1);
        key.0.priority.set(priority);
        self.0.insert((Reverse(priority), self.1), key);
    }

    fn take(&mut self) -> Option<Handle> {
        Some(self.0.pop_first()?.1)
    }

    fn again(&mut self, key: Handle, priority: i8, group: u64) {
        self.add(key, priority, group);
    }

    fn done(&mut self, _key: Handle) {}

    fn raise(&mut self, key: Handle, priority: i8) {
        self.0.remove(&(Reverse(key.0.priority.get()), key.0.position.get()));
        self.add(key, priority, 0);
    }
}

/// The hash is the key, as for the orders.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Groups that take turns; a group without keys is forgotten. Without a limit.
#[derive(Default)]
struct ByGroup {
    queues: HashMap<u64, VecDeque<Handle>, BuildHasherDefault<Identity>>,
    ring: VecDeque<u64>,
}

impl Subject for ByGroup {
    #[inline]
    fn add(&mut self, key: Handle, _priority: i8, group: u64) {
        let queue = self.queues.entry(group).or_default();
        queue.push_back(key);
        if queue.len() == 1 {
            self.ring.push_back(group);
        }
    }

    #[inline]
    fn take(&mut self) -> Option<Handle> {
        let group = self.ring.pop_front()?;
        let queue = self.queues.get_mut(&group)?;
        let key = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&group);
        } else {
            self.ring.push_back(group);
        }
        key
    }

    #[inline]
    fn again(&mut self, key: Handle, priority: i8, group: u64) {
        self.add(key, priority, group);
    }

    #[inline]
    fn done(&mut self, _key: Handle) {}
}

pub fn by<S: Subject>(make: impl Fn() -> S + Clone + 'static) -> Make {
    Box::new(move |case: Case| case.run(make.clone()))
}

fn new<O: Order<Handle>>(make: impl Fn() -> O + Clone + 'static) -> Make {
    by(move || New { order: make(), bin: Bin::new() })
}

const LIMIT: Option<u32> = Some(4);

pub fn all() -> Vec<Kind> {
    const GROUPS: &[u64] = &[1, 100, 10_000, 1_000_000];
    let ordered = |fair, limit| by(move || Ordered::new(64, false, fair, limit, None));
    let plain = vec![
        ("crate", by(|| Fifo::new(0, None))),
        ("Line", new(Line::default)),
        ("AnyOrder", new(|| AnyOrder::new(false))),
        ("VecDeque", by(VecDeque::default)),
    ];
    let levels = vec![
        ("crate", ordered(false, None)),
        ("Levels", new(|| Levels::new(false))),
        ("AnyOrder", new(|| AnyOrder::new(false))),
        ("map of VecDeques", by(ByLevel::default)),
    ];
    let raises = vec![
        ("crate", ordered(false, None)),
        ("Levels", new(|| Levels::new(false))),
        ("AnyOrder", new(|| AnyOrder::new(false))),
        ("BTreeMap", by(ByPush::default)),
    ];
    let groups = vec![
        ("crate", ordered(true, None)),
        ("Groups", new(|| Groups::new(None, false))),
        ("AnyOrder", new(|| AnyOrder::groups(None, false))),
        ("map of VecDeques", by(ByGroup::default)),
    ];
    let limited = vec![
        ("crate", ordered(true, LIMIT)),
        ("Groups", new(|| Groups::new(LIMIT, false))),
        ("AnyOrder", new(|| AnyOrder::groups(LIMIT, false))),
    ];
    let kind = |name, subjects, groups| Kind { name, subjects, levels: false, groups, raises: false };
    vec![
        kind("plain", plain, &[]),
        Kind { levels: true, ..kind("levels", levels, &[]) },
        Kind { raises: true, ..kind("raises", raises, &[]) },
        kind("groups", groups, GROUPS),
        kind("limit 4, groups", limited, GROUPS),
    ]
}
