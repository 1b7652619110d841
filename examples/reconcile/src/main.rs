//! A control loop: keeps a checksum of each file of a directory tree, while files change.
//!
//! * The key is a path: which file to look at, not what happened to it. A run looks at the
//!   file as it is now, so events may come twice, late or in the wrong order.
//! * An event adds its path with a delay. More events before the delay expires change
//!   nothing, as the earlier of two delays counts: a burst of events leads to one run.
//! * The run of a directory adds what is in it, except what has a delay (`KeepExisting`).
//! * A run that fails returns an `Err`: the path is retried after 5 ms, 10, 20, … and given
//!   up after five retries, until an event or the next run of its directory adds it again.
//! * Events get lost. So a run that succeeds returns `RequeueAfter`: another follows later.

use keyqueue::{AddOptions, DelayConflict, Outcome, WorkQueue};
use lexopt::prelude::*;
use notify::{Config, Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{collections::HashMap, error::Error, ffi::OsStr, fs, process, time::Duration};

const HELP: &str = "\
reconcile [OPTIONS] [PATH]: keeps a checksum of each file of a directory tree up to date
  --once            look at each file once, then exit: with 1 if one could not be read
  --debounce MS     look at a file this long after the first event of a burst [200]
  --verify-every S  look at each file again this long after the last time [30]
  --metrics ADDR    serve metrics to Prometheus; needs `--features metrics`
Edit a file to see it work. Ctrl-C finishes what is queued; a second one exits at once.";

struct Tree {
    queue: WorkQueue<PathBuf>,
    checksums: Mutex<HashMap<PathBuf, String>>,
    period: Option<Duration>, // until a path is looked at again
}

/// Makes what is known of a path agree with the disk.
fn reconcile(path: &Path, tree: &Tree) -> io::Result<Outcome> {
    let (now, outcome) = match look(path, &tree.queue) {
        Err(error) if error.kind() == ErrorKind::NotFound => (None, Outcome::Success),
        result => (result?, tree.period.map_or(Outcome::Success, Outcome::RequeueAfter)),
    };
    let before = tree.checksums.lock().unwrap().remove(path);
    tree.checksums.lock().unwrap().extend(now.clone().map(|now| (path.into(), now)));
    let name = path.display();
    match (before, now) {
        (None, Some(now)) => println!("new      {name}: {now}"),
        (Some(_), None) => println!("gone     {name}"),
        (Some(before), Some(now)) if now != before => println!("changed  {name}: {now}"),
        _ => {}
    }
    Ok(outcome)
}

/// The checksum of a file. Adds what is in a directory.
fn look(path: &Path, queue: &WorkQueue<PathBuf>) -> io::Result<Option<String>> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_dir() {
        let options = AddOptions::new().conflict(DelayConflict::KeepExisting);
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if !path.file_name().is_some_and(is_left_out) {
                queue.add_with(path, options);
            }
        }
    }
    if !kind.is_file() {
        return Ok(None);
    }
    let (mut file, mut crc, mut len) = (fs::File::open(path)?, crc32fast::Hasher::new(), 0);
    let mut buffer = vec![0; 64 * 1024];
    while let n @ 1.. = file.read(&mut buffer)? {
        crc.update(&buffer[..n]);
        len += n;
    }
    Ok(Some(format!("{len} bytes, crc32 {:08x}", crc.finalize())))
}

fn is_left_out(name: &OsStr) -> bool {
    name == ".git" || name == "target"
}

#[cfg(feature = "metrics")]
fn serve_metrics(address: std::net::SocketAddr) -> Result<(), Box<dyn Error>> {
    let buckets: Vec<f64> = (0..14).map(|i| 1e-5 * 4_f64.powi(i)).collect(); // to 11 min
    let exporter = metrics_exporter_prometheus::PrometheusBuilder::new();
    Ok(exporter.with_http_listener(address).set_buckets(&buckets)?.install()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let (mut once, mut debounce, mut period) = (false, 200, 30);
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("once") => once = true,
            Long("debounce") => debounce = args.value()?.parse()?,
            Long("verify-every") => period = args.value()?.parse()?,
            #[cfg(feature = "metrics")]
            Long("metrics") => serve_metrics(args.value()?.parse()?)?,
            Long("help") => return Ok(writeln!(io::stdout(), "{HELP}")?),
            Value(path) => root = path.into(),
            _ => return Err(arg.unexpected().into()),
        }
    }
    // The watcher reports real paths, and one file must be one key.
    let root = fs::canonicalize(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    let queue = WorkQueue::builder().name("reconcile");
    #[cfg(feature = "metrics")]
    let queue = queue.observer(keyqueue::observe::MetricsObserver::new());
    let queue = queue.build();
    let stops = queue.clone();
    ctrlc::set_handler(move || match stops.shutting_down() {
        true => process::exit(130),
        false => stops.shut_down(),
    })?;
    let (adds, depth) = (queue.clone(), root.iter().count());
    let on_event = move |event: notify::Result<Event>| {
        let changes = event.into_iter().filter(|event| !event.kind.is_access());
        for path in changes.flat_map(|event| event.paths) {
            if !path.iter().skip(depth).any(is_left_out) {
                adds.add_after(path, Duration::from_millis(debounce));
            }
        }
    };
    let config = Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(on_event, config)?;
    let period = (!once).then(|| Duration::from_secs(period.max(1)));
    let tree = Arc::new(Tree { queue: queue.clone(), period, checksums: Mutex::default() });
    let works = Arc::clone(&tree);
    let workers = queue
        .workers()
        .max_retries(5)
        .on_give_up(|path, why| println!("gave up  {}: {why}", path.display()))
        .spawn(4, move |path| reconcile(path, &works))?;
    if once {
        queue.add(root);
        queue.wait_idle(); // for retries, too
    } else {
        let watched = watcher.watch(&root, RecursiveMode::Recursive);
        watched.unwrap_or_else(|error| println!("some changes have no events: {error}"));
        println!("watching {}; Ctrl-C ends", root.display());
        queue.add(root); // after the watch: no change in between is missed
        workers.join(); // until Ctrl-C
    }
    let (delayed, stats) = (workers.drain().delayed.len(), queue.stats());
    let (files, tally) = (tree.checksums.lock().unwrap().len(), workers.tally());
    println!("{files} files, {} runs, {} coalesced", stats.handed_out, stats.coalesced);
    println!("{} retried, {} given up, {delayed} delayed", tally.retried, tally.given_up);
    if once && tally.given_up > 0 { Err("a file could not be read".into()) } else { Ok(()) }
}
