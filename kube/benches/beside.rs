//! This crate's controller beside kube's own, in one program, on the same objects: `cargo bench -p keyqueue-kube`.
//!
//! Both are fed by a stream and a store that are in memory, so that no API server is measured. Each figure is the median of several rounds,
//! in which the two take turns.

#![allow(unsafe_code, reason = "an allocator that counts")]

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue::Outcome;
use keyqueue_kube::Controller as Ours;
use kube::runtime::controller::{Action, Config, Controller as Theirs};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Store, store};
use kube::runtime::watcher::{self, Event};
use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Counts the bytes that are allocated.
struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: passes each call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Who {
    Kube,
    Run,
    RunBoxed,
}

const ALL: [Who; 3] = [Who::Kube, Who::Run, Who::RunBoxed];

type Objects = BoxStream<'static, watcher::Result<ConfigMap>>;

fn object(n: usize) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(format!("object-{n:06}"));
    object.metadata.namespace = Some(format!("namespace-{}", n % 100));
    object
}

/// What a handler does: it is told the object's number, and says when the object is to be looked at again.
type Handler = Arc<dyn Fn(&ConfigMap) -> Option<Duration> + Send + Sync>;

/// Runs a controller until `end` resolves.
async fn control(
    who: Who,
    limit: usize,
    objects: Objects,
    reader: Store<ConfigMap>,
    handler: Handler,
    end: Arc<Notify>,
) {
    let again = |delay: Option<Duration>| delay.map_or(Outcome::Success, Outcome::RequeueAfter);
    let end = async move { end.notified().await };
    match who {
        Who::Kube => {
            let run = move |object: Arc<ConfigMap>, _| {
                let action = handler(&object).map_or_else(Action::await_change, Action::requeue);
                future::ready(Ok::<_, Infallible>(action))
            };
            let controller =
                Theirs::for_stream(objects, reader).with_config(Config::default().concurrency(limit as u16));
            let fails = |_, _: &Infallible, _| Action::await_change();
            let runs = controller.graceful_shutdown_on(end).run(run, fails, Arc::new(()));
            runs.for_each(|_| future::ready(())).await;
        }
        Who::Run => {
            let controller =
                Ours::for_stream(objects, reader).workers(limit, |workers| workers).graceful_shutdown_on(end);
            let left = controller.run(async |run| again(handler(run.object().expect("none is deleted")))).await;
            drop(left);
        }
        Who::RunBoxed => {
            let controller =
                Ours::for_stream(objects, reader).workers(limit, |workers| workers).graceful_shutdown_on(end);
            let run = controller.run_boxed(move |run| {
                let outcome = again(handler(run.object().expect("none is deleted")));
                Box::pin(future::ready(outcome))
            });
            drop(run.await);
        }
    }
}

fn filled(count: usize) -> (Store<ConfigMap>, Writer<ConfigMap>) {
    let (reader, mut writer) = store();
    writer.apply_watcher_event(&Event::Init);
    (0..count).for_each(|n| writer.apply_watcher_event(&Event::InitApply(object(n))));
    writer.apply_watcher_event(&Event::InitDone);
    (reader, writer)
}

fn runtime(threads: usize) -> Runtime {
    match threads {
        1 => Builder::new_current_thread().enable_all().build().unwrap(),
        _ => Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap(),
    }
}

/// Objects a second, of handlers that do nothing.
fn speed(who: Who, threads: usize, limit: usize, count: usize) -> f64 {
    let (reader, _writer) = filled(count);
    let (end, done) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let over = Arc::clone(&end);
    let handler = Arc::new(move |_: &ConfigMap| {
        if done.fetch_add(1, Relaxed) + 1 == count {
            over.notify_one();
        }
        None
    });
    let objects = (0..count).map(object).collect::<Vec<_>>();
    let objects = stream::iter(objects).map(Ok).chain(stream::pending()).boxed();
    let runtime = runtime(threads);
    let start = Instant::now();
    runtime.block_on(control(who, limit, objects, reader, handler, end));
    count as f64 / start.elapsed().as_secs_f64()
}

/// The 99th percentile of the time from an edit to its reconcile, while a list of so many objects is worked off.
fn wait_of_edits(who: Who, threads: usize, limit: usize, count: usize) -> Duration {
    const EDITS: usize = 200;
    let (reader, mut writer) = store();
    let edits = (0..EDITS).map(|n| object(count + n));
    writer.apply_watcher_event(&Event::Init);
    (0..count).map(object).chain(edits).for_each(|object| writer.apply_watcher_event(&Event::InitApply(object)));
    // The first list, then the edits, one each half millisecond.
    let began = Arc::new((0..EDITS).map(|_| Mutex::new(None)).collect::<Vec<_>>());
    let list = stream::iter((0..count).map(object).collect::<Vec<_>>());
    let ready = stream::once(async move {
        writer.apply_watcher_event(&Event::InitDone);
        None
    });
    let begins = Arc::clone(&began);
    let edits = stream::iter(0..EDITS).then(move |n| {
        let begins = Arc::clone(&begins);
        async move {
            tokio::time::sleep(Duration::from_micros(500)).await;
            *begins[n].lock().unwrap() = Some(Instant::now());
            Some(object(count + n))
        }
    });
    let objects = list.map(Some).chain(ready).chain(edits).filter_map(future::ready).map(Ok);
    let objects = objects.chain(stream::pending()).boxed();

    let (end, waits) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (over, seen) = (Arc::clone(&end), Arc::clone(&waits));
    let handler = Arc::new(move |object: &ConfigMap| {
        work(Duration::from_micros(20));
        let number: usize = object.metadata.name.as_ref().unwrap()["object-".len()..].parse().unwrap();
        if let Some(edit) = number.checked_sub(count) {
            let wait = began[edit].lock().unwrap().take().expect("the edit has begun").elapsed();
            let mut seen = seen.lock().unwrap();
            seen.push(wait);
            if seen.len() == EDITS {
                over.notify_one();
            }
        }
        None
    });
    runtime(threads).block_on(control(who, limit, objects, reader, handler, end));
    let mut waits = waits.lock().unwrap().clone();
    waits.sort();
    waits[EDITS * 99 / 100]
}

/// Keeps the processor busy.
fn work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// While so many objects wait for their hourly looks, which are spread over the hour: bytes for each object beside the store's, and the time
/// of the processor in each second.
fn idle(who: Who, count: usize) -> (f64, f64) {
    let (reader, _writer) = filled(count);
    let (end, done) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let runs = Arc::clone(&done);
    let handler = Arc::new(move |_: &ConfigMap| {
        let n = runs.fetch_add(1, Relaxed) as u64 % count as u64;
        Some(Duration::from_secs(3600 - 600) * n as u32 / count as u32 + Duration::from_secs(1))
    });
    let objects = stream::iter(0..count).map(|n| Ok(object(n))).chain(stream::pending()).boxed();
    let before = BYTES.load(Relaxed);
    runtime(1).block_on(async {
        let over = Arc::clone(&end);
        let look = async {
            while done.load(Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let bytes = BYTES.load(Relaxed) - before;
            let (start, cpu) = (Instant::now(), processor());
            tokio::time::sleep(Duration::from_secs(5)).await;
            let share = (processor() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
            over.notify_one();
            (bytes as f64 / count as f64, share)
        };
        future::join(look, control(who, 16, objects, reader, handler, end)).await.0
    })
}

/// The time that all threads of this process have had on a processor.
fn processor() -> Duration {
    let nanos = |task: std::fs::DirEntry| {
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split(' ').next()?.parse::<u64>().ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    Duration::from_nanos(tasks.filter_map(|task| nanos(task.ok()?)).sum())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures each of the three, in turns, and prints a line.
fn line(name: &str, rounds: usize, unit: &str, measure: impl Fn(Who) -> f64) {
    let mut values = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for (who, values) in ALL.into_iter().zip(&mut values) {
            values.push(measure(who));
        }
    }
    let [theirs, run, boxed] = values.map(median);
    println!("| {name} | {theirs:.1} {unit} | {run:.1} ({:.2}) | {boxed:.1} ({:.2}) |", run / theirs, boxed / theirs);
}

fn main() {
    // Without `--bench` this is `cargo test`, which only tries whether it runs.
    let is_trial = !std::env::args().any(|argument| argument == "--bench");
    let (count, rounds) = if is_trial { (500, 1) } else { (100_000, 5) };
    println!("| | kube's `Controller` | `run` | `run_boxed` |");
    println!("|---|---:|---:|---:|");
    for threads in [1, 2] {
        for limit in [1, 16, 256] {
            let name = format!("{limit} in flight, {threads} threads");
            line(&name, rounds, "objects/ms", |who| speed(who, threads, limit, count) / 1e3);
        }
    }
    for threads in [1, 2] {
        let name = format!("edit during the list, p99, {threads} threads");
        line(&name, rounds.min(3), "ms", |who| wait_of_edits(who, threads, 16, count).as_secs_f64() * 1e3);
    }
    line("memory of an object that waits", 1, "bytes", |who| idle(who, count).0);
    if !is_trial {
        line("processor, idle", 1, "ms/s", |who| idle(who, count).1 * 1e3);
    }
}
