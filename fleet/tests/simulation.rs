//! Whole members with workers, over a store that loses requests and answers, in simulated time: they join, leave, are killed and are cut
//! off, and their records are deleted by hand, at moments that a seed decides.
//!
//! * No two handlers of a key at once.
//! * Tokens of a key's hand-outs never fall.
//! * When all is quiet again, each key was processed after its last change, though members added only what was theirs: no key is lost
//!   in a hand-over.
//!
//! With the feature `mutants`, faults are built into the protocol, and the simulation must notice each.
//! `FLEET_SEEDS` (default 40) says how many seeds are tried, from `FLEET_SEED` (default 0) on.

#[path = "common/faults.rs"]
mod faults;

use crate::common::{clock, millis, seconds};
use faults::Faulty;
use keyqueue::{Outcome, WorkQueue};
use keyqueue_fleet::{Event, Fleet, MemoryStore, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const KEYS: u64 = 60;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[cfg(feature = "mutants")]
type Fault = Option<keyqueue_fleet::Mutant>;
#[cfg(not(feature = "mutants"))]
type Fault = Option<std::convert::Infallible>;

/// What the program's own store has, and what the handlers did.
#[derive(Default)]
struct World {
    /// The number of changes of each key.
    changes: BTreeMap<u64, u64>,
    /// Up to which change each key was processed.
    processed: BTreeMap<u64, u64>,
    running: BTreeMap<u64, &'static str>,
    tokens: BTreeMap<u64, u64>,
    wrong: Vec<String>,
    runs: u64,
}

struct Running {
    world: Arc<Mutex<World>>,
    key: u64,
    name: &'static str,
}

impl Running {
    fn start(world: &Arc<Mutex<World>>, key: u64, name: &'static str, token: u64) -> Self {
        let mut inner = world.lock().unwrap();
        if let Some(other) = inner.running.insert(key, name) {
            inner.wrong.push(format!("key {key} runs at {other} and {name}"));
        }
        let last = inner.tokens.insert(key, token).unwrap_or(0);
        if token < last {
            inner.wrong.push(format!("key {key}: token {token} after {last}"));
        }
        inner.runs += 1;
        Self { world: world.clone(), key, name }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut inner = self.world.lock().unwrap();
        if inner.running.get(&self.key) == Some(&self.name) {
            inner.running.remove(&self.key);
        }
    }
}

/// A process: a member, its workers, and the task that lists.
struct Process {
    fleet: Fleet<u64>,
    /// Ends with the process.
    _tasks: JoinSet<()>,
}

struct Simulation {
    world: Arc<Mutex<World>>,
    random: Arc<Mutex<fastrand::Rng>>,
    store: MemoryStore,
    cut_off: BTreeMap<&'static str, Arc<AtomicBool>>,
    unreliable: Arc<AtomicBool>,
    processes: Arc<Mutex<BTreeMap<&'static str, Process>>>,
    joining: JoinSet<()>,
    #[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "only a build with mutants can have one"))]
    fault: Fault,
}

impl Simulation {
    fn roll(&self, below: u64) -> u64 {
        self.random.lock().unwrap().u64(..below)
    }

    fn start(&mut self, name: &'static str) {
        let faulty = Faulty {
            store: self.store.clone(),
            cut_off: self.cut_off[name].clone(),
            unreliable: self.unreliable.clone(),
            random: self.random.clone(),
        };
        let (world, random, processes) = (self.world.clone(), self.random.clone(), self.processes.clone());
        let mut builder = Fleet::builder(faulty).member(name).partitions(8).clock(clock()).grace(seconds(1));
        if self.roll(2) == 0 {
            builder = builder.release_timeout(millis(self.roll(10_000)));
        }
        #[cfg(feature = "mutants")]
        let builder = builder.mutant(self.fault);
        self.joining.spawn(async move {
            let (queue_clock, time) = keyqueue::Clock::mock();
            let queue = WorkQueue::builder().clock(queue_clock).driver(keyqueue::Driver::Manual).build();
            let Ok(fleet) = builder.build(queue.clone()).await else { return };
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                loop {
                    sleep(millis(10)).await;
                    time.advance(millis(10));
                    queue.turn();
                }
            });
            let workers = fleet.workers().build();
            for _ in 0..4 {
                let (world, random) = (world.clone(), random.clone());
                tasks.spawn(workers.run_async(async move |key| {
                    let running = Running::start(&world, **key, name, key.token());
                    let change = world.lock().unwrap().changes.get(&**key).copied().unwrap_or(0);
                    // Now and then longer than a member that was cut off is silent.
                    let (time, fails, spawns) = {
                        let mut random = random.lock().unwrap();
                        let longest = if random.u8(..8) == 0 { 15_000 } else { 500 };
                        (random.u64(1..longest), random.u8(..10) == 0, random.u8(..4) == 0)
                    };
                    if spawns {
                        // Not stopped with the handler.
                        let permit = key.owned_permit();
                        let job = tokio::spawn(async move {
                            let running = running;
                            let told = tokio::time::timeout(millis(time), permit.lost()).await.is_ok();
                            sleep(millis(if told { 500 } else { 0 })).await; // it stops within the grace
                            drop((running, permit));
                            !told
                        });
                        if !job.await.unwrap_or(false) {
                            return Outcome::Retry;
                        }
                    } else {
                        sleep(millis(time)).await;
                        drop(running);
                    }
                    if fails {
                        return Outcome::Retry;
                    }
                    let processed = &mut world.lock().unwrap().processed;
                    let last = processed.entry(**key).or_default();
                    *last = change.max(*last);
                    Outcome::Success
                }));
            }
            let (lister, mut events) = (fleet.clone(), fleet.events());
            tasks.spawn(async move {
                loop {
                    let events = events.next_many().await;
                    if events.is_empty() {
                        return;
                    }
                    if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
                        let keys: Vec<u64> = world.lock().unwrap().changes.keys().copied().collect();
                        keys.into_iter().for_each(|key| _ = lister.add(key));
                    }
                }
            });
            processes.lock().unwrap().insert(name, Process { fleet, _tasks: tasks });
        });
    }

    /// Changes a key, and tells each process after a while, as a watch of each would.
    fn change(&mut self) {
        let key = self.roll(KEYS);
        *self.world.lock().unwrap().changes.entry(key).or_default() += 1;
        // Each watch delivers the event when it likes; until then the process knows nothing of it but what it lists.
        for process in self.processes.lock().unwrap().values() {
            let (fleet, time) = (process.fleet.clone(), millis(self.random.lock().unwrap().u64(..300)));
            tokio::spawn(async move {
                sleep(time).await;
                _ = fleet.add(key);
            });
        }
    }

    fn something_happens(&mut self) {
        let name = NAMES[self.roll(NAMES.len() as u64) as usize];
        match self.roll(11) {
            0 | 1 => {
                self.cut_off[name].store(true, Ordering::Relaxed);
                let (cut_off, time) = (self.cut_off[name].clone(), millis(self.roll(40_000)));
                self.joining.spawn(async move {
                    sleep(time).await;
                    cut_off.store(false, Ordering::Relaxed);
                });
            }
            2 => _ = self.processes.lock().unwrap().remove(name), // kill -9
            3 | 4 => {
                let process = self.processes.lock().unwrap().remove(name);
                if let Some(process) = process {
                    self.joining.spawn(async move {
                        let _late = tokio::time::timeout(seconds(30), process.fleet.leave()).await;
                    });
                }
            }
            5 => {
                // `kubectl delete lease`: its handlers run on, and it learns of it as late as the others.
                let (store, record) = (self.store.clone(), format!("member-{name}"));
                self.joining.spawn(async move {
                    if let Some(stored) = store.read(&record).await.unwrap() {
                        store.delete(&record, stored.version).await.unwrap();
                    }
                });
            }
            _ => {
                if !self.processes.lock().unwrap().contains_key(name) {
                    self.start(name);
                }
            }
        }
    }

    async fn run(mut self) -> Vec<String> {
        let start = Instant::now();
        self.start("a");
        while start.elapsed() < seconds(300) {
            for _ in 0..self.roll(20) {
                self.change();
            }
            sleep(millis(self.roll(1000))).await;
            if self.roll(5) == 0 {
                self.something_happens();
            }
        }
        // Quiet: each process that is there can reach the store.
        self.unreliable.store(false, Ordering::Relaxed);
        self.cut_off.values().for_each(|cut_off| cut_off.store(false, Ordering::Relaxed));
        for _ in 0..4 {
            if self.processes.lock().unwrap().is_empty() {
                self.start("d"); // refused, perhaps, while the last process of this name leaves
            }
            sleep(seconds(40)).await;
        }
        let processes = std::mem::take(&mut *self.processes.lock().unwrap());
        let owned: usize = processes.values().map(|process| process.fleet.stats().owned).sum();
        let mut world = self.world.lock().unwrap();
        let mut wrong = std::mem::take(&mut world.wrong);
        if owned != 8 {
            wrong.push(format!("{owned} of 8 partitions are owned"));
        }
        if world.runs < 1000 {
            wrong.push(format!("only {} runs", world.runs));
        }
        for (key, changes) in &world.changes {
            let processed = world.processed.get(key).copied().unwrap_or(0);
            if processed < *changes {
                wrong.push(format!("key {key}: processed {processed} of {changes}"));
            }
        }
        wrong
    }
}

/// What went wrong with this seed.
fn simulate(seed: u64, fault: Fault) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let simulation = Simulation {
            world: Arc::default(),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            store: MemoryStore::new(),
            cut_off: NAMES.map(|name| (name, Arc::default())).into(),
            unreliable: Arc::new(AtomicBool::new(true)),
            processes: Arc::default(),
            joining: JoinSet::new(),
            fault,
        };
        simulation.run().await
    })
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn seeds() -> std::ops::Range<u64> {
    let first = number("FLEET_SEED", 0);
    first..first + number("FLEET_SEEDS", 40)
}

#[test]
fn no_key_has_two_handlers_and_none_is_lost() {
    for seed in seeds() {
        let wrong = simulate(seed, None);
        assert!(wrong.is_empty(), "FLEET_SEED={seed}: {wrong:#?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn each_fault_is_noticed() {
    use keyqueue_fleet::Mutant;
    // Not `DeadlineFromAnswer`: the time for which a request is awaited is shorter than the margin of the expiry. The model finds it,
    // and `fleet-chaos`, which stops processes.
    for fault in [Mutant::NoDeadline, Mutant::NoDrain, Mutant::ShortExpiry, Mutant::NoCompare] {
        println!("{fault:?}");
        let found =
            seeds().find_map(|seed| Some((seed, simulate(seed, Some(fault)))).filter(|(_, wrong)| !wrong.is_empty()));
        let (seed, wrong) = found.unwrap_or_else(|| panic!("{fault:?} was not noticed"));
        println!("{fault:?}, seed {seed}: {wrong:?}");
        assert!(wrong.iter().any(|what| what.contains("runs at")), "{fault:?}: {wrong:?}");
    }
}
