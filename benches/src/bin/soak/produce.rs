//! Producers, which add, move and cancel: long-lived threads, short-lived threads, and tasks.

use crate::key::Key;
use crate::world::{World, count};
use fastrand::Rng;
use keyqueue::{AddOptions, DelayConflict};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A few keys that all producers add, more that are added now and then, and the rest.
const HOT: u32 = 64;
const WARM: u32 = 4096;
pub const KEYS: u32 = 1 << 20;

/// Producers pause when this number of keys is queued.
const BACKLOG: usize = 20_000;
/// The number of calls between two checks of the gate.
const BATCH: u32 = 64;

/// A long delay, which is cancelled before it expires.
const FAR: Duration = Duration::from_secs(3600);

/// Adds until the soak ends, at most `batches` batches.
pub fn thread(world: &World, seed: u64, batches: u64) {
    let mut rng = Rng::with_seed(seed);
    for _ in 0..batches {
        if world.is_stopped() {
            return;
        }
        {
            let _open = world.gate.blocking_read();
            (0..BATCH).for_each(|_| call(world, &mut rng));
        }
        if world.queue.len() > BACKLOG {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

pub async fn task(world: Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_stopped() {
        {
            let _open = world.gate.read().await;
            (0..BATCH).for_each(|_| call(&world, &mut rng));
        }
        if world.queue.len() > BACKLOG {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Starts short-lived producers, three at a time.
pub fn short_threads(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_stopped() {
        thread::scope(|scope| {
            for _ in 0..3 {
                let (seed, batches) = (rng.u64(..), rng.u64(1..40));
                scope.spawn(move || thread(world, seed, batches));
                count(&world.counts.short_threads);
            }
        });
    }
}

pub fn some_key(rng: &mut Rng) -> u32 {
    match rng.u8(..4) {
        0 | 1 => rng.u32(..HOT),
        2 => rng.u32(..WARM),
        _ => rng.u32(..KEYS),
    }
}

/// Some milliseconds, seldom many; now and then none.
pub fn some_delay(rng: &mut Rng) -> Duration {
    match rng.u8(..16) {
        0 => Duration::ZERO,
        1 => Duration::from_millis(rng.u64(..100)),
        _ => Duration::from_micros(rng.u64(..5_000)),
    }
}

pub fn some_options(rng: &mut Rng) -> AddOptions {
    let conflict = [DelayConflict::EarliestWins, DelayConflict::Replace, DelayConflict::KeepExisting][rng.usize(..3)];
    AddOptions::new().after(some_delay(rng)).conflict(conflict)
}

fn call(world: &World, rng: &mut Rng) {
    let id = some_key(rng);
    match rng.u32(..1000) {
        0..600 => _ = world.add(id),
        600..700 => _ = world.add_after(id, some_delay(rng)),
        700..820 => _ = world.add_with(id, some_options(rng)),
        820..870 => _ = world.add_limited(id),
        870..930 => world.cancel(id),
        930..960 => {
            count(&world.counts.forgets);
            world.queue.forget(&Key::new(id));
        }
        960..980 => {
            world.far.lock().push(id);
            let options = AddOptions::new().after(FAR);
            world.add_with(id, if rng.bool() { options.conflict(DelayConflict::Replace) } else { options });
        }
        980..995 if !world.is_ending() => {
            let many = rng.usize(1..32);
            world.add_all((0..many).map(|_| some_key(rng)));
        }
        995 if rng.u8(..100) == 0 && !world.is_ending() => world.take_delayed(),
        996 if rng.u8(..100) == 0 => world.queue.shrink_to_fit(),
        _ => {
            count(&world.counts.stats);
            let _stats = world.queue.stats();
        }
    }
}
