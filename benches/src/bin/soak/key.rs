//! Keys that count themselves.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

static LIVE: AtomicI64 = AtomicI64::new(0);

/// A key, with a text in one of three.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub id: u32,
    name: Option<String>,
    alive: Alive,
}

/// A part of each key; the live ones are counted. All are equal.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Alive;

impl Key {
    pub fn new(id: u32) -> Self {
        Self { id, name: name(id), alive: Alive::new() }
    }

    /// Whether the key's contents are intact.
    pub fn is_whole(&self) -> bool {
        self.name == name(self.id)
    }

    /// The number of live keys in the process.
    pub fn live() -> i64 {
        LIVE.load(Relaxed)
    }
}

fn name(id: u32) -> Option<String> {
    id.is_multiple_of(3).then(|| format!("namespace-{:03}/pod-{id:09}", id % 100))
}

impl Alive {
    fn new() -> Self {
        LIVE.fetch_add(1, Relaxed);
        Self
    }
}

impl Clone for Alive {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Relaxed);
    }
}
