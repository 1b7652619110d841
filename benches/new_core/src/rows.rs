//! What is measured: the same for each subject.

use common::memory::live_bytes;
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

/// A key, as the table of keys would have it.
#[repr(align(32))]
pub struct Key {
    pub number: u32,
    pub group: Cell<u32>,
    pub position: Cell<u64>,
    pub priority: Cell<i8>,
}

#[derive(Clone, Copy)]
pub struct Handle(pub &'static Key);

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

pub trait Subject {
    /// A new key, which is queued. `group`: its hash.
    fn add(&mut self, key: Handle, priority: i8, group: u64);

    fn take(&mut self) -> Option<Handle>;

    /// The key that was taken is queued again.
    fn again(&mut self, key: Handle, priority: i8, group: u64);

    /// The key that was taken is not known any more.
    fn done(&mut self, key: Handle);

    /// A queued key gets a higher priority. Only of a [`Kind`] that `raises`.
    fn raise(&mut self, _key: Handle, _priority: i8) {
        unreachable!("this kind has no row of raises")
    }
}

pub type Make = Box<dyn Fn(Case) -> f64>;

/// Subjects of a kind of queue.
pub struct Kind {
    pub name: &'static str,
    pub subjects: Vec<(&'static str, Make)>,
    pub levels: bool,
    pub groups: &'static [u64],
    /// They can take out a key by its place.
    pub raises: bool,
}

#[derive(Clone, Copy)]
pub struct Case {
    pub what: What,
    pub keys: usize,
    pub levels: bool,
    /// 0: no groups.
    pub groups: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum What {
    Cycle,
    Ring,
    Fill,
    Raise,
    /// Bytes a queued key, and bytes that are left when all but one are done.
    Bytes,
    Left,
}

const OPS: usize = 400_000;

fn keys() -> &'static [Key] {
    thread_local!(static KEYS: &'static [Key] = Box::leak((0..1 << 20).map(|number| Key {
        number, group: Cell::new(0), position: Cell::new(0), priority: Cell::new(0),
    }).collect()));
    KEYS.with(|keys| *keys)
}

impl Case {
    fn priority(&self, n: usize) -> i8 {
        if self.levels { [-100, 0, 100][n % 3] } else { 0 }
    }

    /// The hash of a group.
    fn group(&self, n: usize) -> u64 {
        if self.groups == 0 { 0 } else { (n as u64 % self.groups + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// Nanoseconds a key, or bytes.
    pub fn run<S: Subject>(self, make: impl Fn() -> S) -> f64 {
        let all = keys();
        let add = |subject: &mut S, n: usize| subject.add(Handle(&all[n]), self.priority(n), self.group(n));
        let filled = || {
            let mut subject = make();
            (0..self.keys).for_each(|n| add(&mut subject, n));
            subject
        };
        let mut subject = make();
        let start = Instant::now();
        let per = |start: Instant, ops: usize| start.elapsed().as_nanos() as f64 / ops as f64;
        match self.what {
            What::Cycle => {
                let mut n = 0;
                for _ in 0..OPS {
                    add(&mut subject, n);
                    let key = subject.take().expect("one is queued");
                    subject.done(black_box(key));
                    n = if n + 1 == self.keys { 0 } else { n + 1 };
                }
                per(start, OPS)
            }
            What::Ring => {
                (0..self.keys).for_each(|n| add(&mut subject, n));
                let ring = |subject: &mut S, ops: usize| {
                    for _ in 0..ops {
                        let key = subject.take().expect("they are queued");
                        let n = black_box(key).0.number as usize;
                        subject.again(key, self.priority(n), self.group(n));
                    }
                };
                ring(&mut subject, self.keys);
                let start = Instant::now();
                ring(&mut subject, OPS);
                per(start, OPS)
            }
            What::Fill => {
                (0..self.keys).for_each(|n| add(&mut subject, n));
                while let Some(key) = subject.take() {
                    subject.done(black_box(key));
                }
                per(start, self.keys)
            }
            What::Raise => {
                (0..self.keys).for_each(|n| subject.add(Handle(&all[n]), 0, self.group(n)));
                let start = Instant::now();
                (0..self.keys).for_each(|n| subject.raise(Handle(&all[n * 6_700_417 % self.keys]), 100));
                per(start, self.keys)
            }
            What::Bytes => live_bytes(filled) as f64 / self.keys as f64,
            What::Left => live_bytes(|| {
                let mut subject = filled();
                (1..self.keys).for_each(|_| {
                    let key = subject.take().expect("they are queued");
                    subject.done(key);
                });
                subject
            }) as f64,
        }
    }
}

fn cases(kind: &Kind) -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    let groups: &[u64] = if kind.groups.is_empty() { &[0] } else { kind.groups };
    for &groups in groups {
        let cycle = if groups > 1024 { 20_000 } else { 1024 };
        let mut add = |name: &str, what, keys| {
            let case = Case { what, keys, levels: kind.levels, groups };
            let of_groups = if groups > 0 { format!(" {groups}") } else { String::new() };
            cases.push((format!("{}{of_groups}: {name}", kind.name), case));
        };
        if groups < 1_000_000 {
            add("cycle", What::Cycle, cycle);
            add("ring 1024", What::Ring, 1024);
            add("ring 200k", What::Ring, 200_000);
            add("fill 300k", What::Fill, 300_000);
        }
        add("fill 1M", What::Fill, 1_000_000);
        if kind.raises && (groups == 0 || groups == 10_000) {
            add("raise among 1M", What::Raise, 1_000_000);
        }
        add("bytes a key, 300k", What::Bytes, 300_000);
        add("bytes a key, 1M", What::Bytes, 1_000_000);
        add("bytes left of 1M", What::Left, 1_000_000);
    }
    cases
}

pub fn run(kinds: Vec<Kind>) {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next().unwrap_or_default();
    let rounds: usize = arguments.next().map_or(9, |text| text.parse().expect("a number of rounds"));
    keys();
    for kind in kinds {
        for (name, case) in cases(&kind) {
            if !name.contains(&only) {
                continue;
            }
            let rounds = if matches!(case.what, What::Bytes | What::Left) { 1 } else { rounds };
            let mut results = vec![Vec::new(); kind.subjects.len()];
            for round in 0..rounds {
                for n in 0..results.len() {
                    let n = (n + round) % results.len();
                    results[n].push(kind.subjects[n].1(case));
                }
            }
            let cells = kind.subjects.iter().zip(&mut results).map(|((subject, _), results)| {
                results.sort_by(f64::total_cmp);
                let digits = usize::from(case.what != What::Left);
                format!("{subject} {:.digits$}", results[rounds / 2])
            });
            println!("{name:34} {}", cells.collect::<Vec<_>>().join(" | "));
        }
    }
}
