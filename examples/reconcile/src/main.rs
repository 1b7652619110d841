//! A control loop: keeps a checksum of every file in a directory tree, and keeps it right while the files change.
//!
//! ```text
//! cargo run --release --example reconcile                      # this crate's own tree, until Ctrl-C
//! cargo run --release --example reconcile -- /usr/share --once # one pass over another one
//! cargo run --release --example reconcile -- --workers 4 --skip .git notes.txt
//! cargo run --release --example reconcile -- --no-watch --verify-every 5 # for file systems without change events
//! cargo run --release --example reconcile --features metrics -- --metrics 127.0.0.1:9464 # metrics for Prometheus
//! ```
//!
//! Leave it running and edit a file. Ctrl-C finishes the queued files and prints a summary; a second Ctrl-C exits at once.
//! `examples/grafana/keyqueue.json` is a dashboard for what `--metrics` serves.
//!
//! How it uses the queue:
//!
//! * The key is a path. It says *which file* to look at, never what happened to it: a worker reads the file as it is now, so an
//!   event that comes twice, late or in the wrong order does no harm.
//! * The listing, the watcher and the workers add the path of a file that may have changed. None of them checks whether it is
//!   queued already. An editor that saves with five system calls causes five adds and one run.
//! * A path is with one worker at a time, so only that worker writes the result for it. If the file changes while it is being
//!   read, it is read once more afterwards.
//! * A file is checked when it is quiet: each event restarts the delay (`add_with`, `Replace`). A listing adds without a delay,
//!   and that add consumes a pending delay (`Promote`). A file that is never quiet is never checked: `examples/debounce.rs` has a
//!   bound.
//! * Events get lost, so a worker schedules another check of its file (`RequeueAfter`), unless the file is gone. A key has one
//!   delay at most: an event replaces this one too, and the run that follows sets the next.
//! * `Workers` are the loops: they get a key, call `reconcile`, and do with the key what the returned `Outcome` says.
//! * A file that cannot be read is tried again: `Retry` says that the run failed, and the queue's limiter gives the delay, 5 ms
//!   and twice as long each time. After `max_retries` retries the worker gives up. This, `Done` and `RequeueAfter` make the
//!   limiter forget the file: the next event or verification starts from the beginning. A file that is gone has not failed.
//! * A retry is a delay like any other: an event moves it (`Replace`), a listing consumes it. If an event came during the run
//!   that failed, the earlier of the two delays applies: the file may be read before it is quiet, and no change is missed.
//! * A drain does not wait for delays, so `--once` waits for the retries before it drains. The drain returns the delays that
//!   are left after Ctrl-C.
//! * The queue measures how long keys are queued and how long they are processed (`measure`). Once a second it reports to an
//!   observer (`report_every`), which passes the numbers to the Prometheus exporter, if there is one.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue::observe::Reporter;
use keyqueue::{AddOptions, Added, DelayConflict, DelayedAdd, Item, Outcome, Tally, WorkQueue};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use walkdir::WalkDir;

/// Cheap to clone, and holds any name, even one that is not UTF-8.
type Key = Arc<Path>;

/// Paths in one `add_all` of a listing, which wakes the workers when its iterator ends.
const BATCH: usize = 256;

/// The summary lists at most this many unreadable files of a kind.
const LISTED: usize = 20;

/// Keeps a checksum of every file in a directory tree up to date.
#[derive(Parser)]
#[command(after_help = "Exit status: 1 after an error or if --once could not read all; otherwise 0, even after Ctrl-C")]
struct Args {
    /// A directory or a file
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), hide_default_value = true)]
    path: PathBuf,
    /// Look at every file once, retries aside, then exit
    #[arg(long)]
    once: bool,
    /// Check a file when it has been quiet for this long; 0: at once. A file that is never quiet is never checked
    #[arg(long, value_name = "MS", default_value_t = 200)]
    debounce: u32,
    /// Read each file again this long after the last time, and look for new ones; 0: never. Not with --once
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    verify_every: u32,
    /// For file systems without events, such as network ones: changes are found when files are read again
    #[arg(long)]
    no_watch: bool,
    /// Retry an unreadable file at most N times, after 5 ms, 10, 20, ..., then give up until it changes or is verified; 0: never
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_retries: usize,
    /// Number of threads that read files
    #[arg(long, default_value_t = default_workers(), value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Serve the queue's metrics to Prometheus at this address, such as 127.0.0.1:9464; port 0: any. Needs `--features metrics`
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Names of files and directories to leave out
    #[arg(long, value_name = "NAME", default_values = [".git", "target"])]
    skip: Vec<OsString>,
}

fn default_workers() -> u16 {
    thread::available_parallelism().map_or(1, |n| n.get().min(1024) as u16)
}

fn main() -> ExitCode {
    let args = Args::parse();
    // The watcher may report real paths, so list real paths: one file must be one key.
    let root = match fs::canonicalize(&args.path) {
        Ok(root) => root,
        Err(error) => {
            eprintln!("error: {}: {error}", args.path.display());
            return ExitCode::from(2);
        }
    };
    match run(&args, root.into()) {
        Ok(unreadable) if args.once && unreadable > 0 => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of files that are unreadable at the end.
fn run(args: &Args, root: Key) -> Result<usize, Box<dyn Error>> {
    let tree = Arc::new(Tree::new(root, args));
    let reporter = args.metrics.map(|addr| serve_metrics(addr, &tree.queue)).transpose()?;
    let stopped = on_ctrl_c(&tree)?;
    // Watch first, list second: a change in between is seen twice, which costs nothing, and is not missed.
    let watcher = if args.once || args.no_watch { None } else { Some(watch(&tree)?) };

    let start = Instant::now();
    let (gives_up, works) = (Arc::clone(&tree), Arc::clone(&tree));
    let workers = tree
        .queue
        .workers()
        .max_retries(args.max_retries)
        .on_give_up(move |path, why| gives_up.give_up(path, why.retries))
        .spawn(args.workers.into(), move |path| works.reconcile(path))?;
    tree.add_all(tree.list(&tree.root));
    let first_pass = finish_first_pass(&tree, args.once, start, &stopped);
    if first_pass.is_some() && !args.once {
        follow(&tree, &stopped);
    }

    drop(watcher);
    // From here on adds are rejected. This returns when the last key is done and all workers have ended.
    let leftover = workers.drain();
    drop(reporter); // The drop makes a last report.
    let first_pass = first_pass.unwrap_or_else(|| tree.pace(start));
    let tally = workers.tally();
    tree.bar.finish_and_clear();
    // The delayed checks do not happen any more.
    match summary(&tree, &first_pass, &tally, leftover.delayed.len()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ if tally.panicked > 0 => Err(format!("{} runs panicked", tally.panicked).into()),
        _ => Ok(tree.totals().1),
    }
}

/// Serves the queue's metrics, which the queue reports to the Prometheus exporter once a second until the reporter is dropped.
#[cfg(feature = "metrics")]
fn serve_metrics(mut addr: SocketAddr, queue: &WorkQueue<Key>) -> Result<Reporter, Box<dyn Error>> {
    if addr.port() == 0 {
        // The exporter does not report which port it got. If another process takes this one meanwhile, the exporter returns an error.
        addr = std::net::TcpListener::bind(addr)?.local_addr()?;
    }
    // Without buckets the exporter serves quantiles, which cannot be added up. These are 10 us, 40 us, 160 us, ... 11 minutes.
    let buckets: Vec<f64> = (0..14).map(|i| 1e-5 * 4_f64.powi(i)).collect();
    let exporter = metrics_exporter_prometheus::PrometheusBuilder::new().with_http_listener(addr);
    exporter.set_buckets(&buckets)?.install().map_err(|error| format!("--metrics {addr}: {error}"))?;
    eprintln!("metrics at http://{addr}/metrics");
    Ok(queue.inspect().report_every(Duration::from_secs(1))?)
}

/// The crate's feature is off by default, and the rest of the example must work without it.
#[cfg(not(feature = "metrics"))]
fn serve_metrics(addr: SocketAddr, _: &WorkQueue<Key>) -> Result<Reporter, Box<dyn Error>> {
    let how = "cargo run --example reconcile --features metrics --";
    Err(format!("--metrics needs the feature of that name: {how} --metrics {addr}").into())
}

/// Waits until the first pass has ended, and returns its pace. `None`: Ctrl-C came first.
///
/// With `--once`, the pass has ended when no retry is left either: there are no other delays then. Otherwise it has ended when
/// each file was tried once. Retries can wait, and one bad file must not hold up the report on all others. Nor can a retry be
/// distinguished from a delay that an event has set, and events may go on without end.
fn finish_first_pass(tree: &Tree, once: bool, start: Instant, stopped: &Receiver<()>) -> Option<String> {
    loop {
        // One snapshot: between two calls, a key could move from the state read second to the state read first.
        let now = tree.queue.stats();
        if now.len + now.processing == 0 && !(once && now.delayed > 0) {
            return Some(tree.pace(start));
        }
        if stopped.recv_timeout(Duration::from_millis(1)).is_ok() {
            return None;
        }
    }
}

/// Prints changes until Ctrl-C.
fn follow(tree: &Tree, stopped: &Receiver<()>) {
    let (files, unreadable) = tree.totals();
    tree.live.store(true, Relaxed);
    tree.verify_all();
    tree.say(format_args!("watching {}: {files} files, {unreadable} unreadable", tree.root.display()));
    stopped.recv().expect("the Ctrl-C handler keeps the sender");
}

/// The first Ctrl-C sends a message, the second exits.
fn on_ctrl_c(tree: &Arc<Tree>) -> Result<Receiver<()>, ctrlc::Error> {
    let (sender, stopped) = mpsc::channel();
    let tree = Arc::clone(tree);
    ctrlc::set_handler(move || {
        if tree.stopping.swap(true, Relaxed) {
            std::process::exit(130);
        }
        let _ = writeln!(io::stderr(), "\nstopping when the queued files are done; Ctrl-C again stops at once");
        let _ = sender.send(()); // Received only after the listing, which checks `stopping`.
    })?;
    Ok(stopped)
}

/// Adds every path that changes, until the watcher is dropped.
fn watch(tree: &Arc<Tree>) -> Result<RecommendedWatcher, Box<dyn Error>> {
    // An editor may replace a file by another one of the same name, so a single file is watched from its directory.
    let (dir, mode) = match tree.root.parent() {
        Some(parent) if !tree.root.is_dir() => (parent, RecursiveMode::NonRecursive),
        _ => (&*tree.root, RecursiveMode::Recursive),
    };
    let adds_to = Arc::clone(tree);
    let handler = move |event: notify::Result<Event>| on_event(&adds_to, event);
    let config = notify::Config::default().with_follow_symlinks(false);
    RecommendedWatcher::new(handler, config)
        .and_then(|mut watcher| watcher.watch(dir, mode).map(|()| watcher))
        .map_err(|error| format!("cannot watch {}: {error}; --no-watch and --once work without", dir.display()).into())
}

fn on_event(tree: &Tree, event: notify::Result<Event>) {
    match event {
        // Events were lost, and it is not known which: let a worker check the whole tree.
        Ok(event) if event.need_rescan() => tree.add_all([Arc::clone(&tree.root)]),
        Ok(event) => {
            let changed = event.paths.iter().filter(|path| tree.wants(path) && is_change(event.kind, path));
            changed.for_each(|path| tree.add_when_quiet(path.as_path().into()));
        }
        Err(error) => tree.bar.suspend(|| eprintln!("watcher: {error}")),
    }
}

/// Reading is no change, or the example's own reads would cause runs. "Modified" is no change of a directory: the files in it
/// have their own events. A change of its metadata is one: perhaps it can be read now.
fn is_change(kind: EventKind, path: &Path) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_)) => true,
        EventKind::Modify(_) => !path.is_dir(),
        _ => true,
    }
}

/// Why a key was handed out.
#[derive(Clone, Copy)]
enum Why {
    /// It was added, because it may have changed.
    Asked,
    /// It could not be read the last time.
    Retry,
    /// To check that the stored result is still right.
    Verify,
}

/// What is known of a file that cannot be read.
struct Unreadable {
    error: io::Error,
    /// The number of tries after which a worker gave up, if one did.
    gave_up: Option<usize>,
}

/// What is known of a file.
struct Digest {
    len: u64,
    crc: u32,
    modified: Option<SystemTime>,
}

impl Digest {
    fn of(path: &Path, metadata: &Metadata) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut buffer = [0; 32 * 1024];
        let mut hasher = crc32fast::Hasher::new();
        let mut len = 0;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(Self { len, crc: hasher.finalize(), modified: metadata.modified().ok() }),
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    len += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The queue, and everything else that the threads share.
struct Tree {
    queue: WorkQueue<Key>,
    root: Key,
    skip: Vec<OsString>,
    /// The options with which events add.
    quiet: AddOptions,
    verify_every: Option<Duration>,
    /// The result: every regular file, or why it cannot be read. Directories are in it only if they cannot be read.
    files: Mutex<BTreeMap<Key, Result<Digest, Unreadable>>>,
    /// Every key ever added, and whether it was added since its last hand-out. For the summary and the progress bar, and to
    /// distinguish such runs from verifications; the queue itself forgets keys.
    seen: Mutex<HashMap<Key, bool>>,
    hashed: AtomicU64,
    bytes: AtomicU64,
    debounced: AtomicU64,
    verified: AtomicU64,
    bar: ProgressBar,
    /// The first pass has ended: changes are printed.
    live: AtomicBool,
    stopping: AtomicBool,
}

impl Tree {
    fn new(root: Key, args: &Args) -> Self {
        let quiet = Duration::from_millis(args.debounce.into());
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {per_sec}").expect("the template is valid");
        let queue = WorkQueue::builder().name("reconcile").delayed_add(DelayedAdd::Promote).measure(true);
        #[cfg(feature = "metrics")]
        let queue = queue.observer(keyqueue::observe::MetricsObserver::new());
        Self {
            queue: queue.build(),
            root,
            skip: args.skip.clone(),
            quiet: AddOptions::new().after(quiet).conflict(DelayConflict::Replace),
            verify_every: (args.verify_every > 0).then(|| Duration::from_secs(args.verify_every.into())),
            files: Mutex::default(),
            seen: Mutex::default(),
            hashed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            debounced: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            // Draws to stderr, and only if that is a terminal.
            bar: ProgressBar::new(0).with_style(style),
            live: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    fn wants(&self, path: &Path) -> bool {
        path.strip_prefix(&self.root).is_ok_and(|below| below.iter().all(|name| !self.skip.iter().any(|s| s == name)))
    }

    /// All regular files at or below `path`, and the directories that cannot be read: a worker will see why, and retry.
    fn list(&self, path: &Path) -> impl Iterator<Item = Key> {
        let entries = WalkDir::new(path).follow_links(false).follow_root_links(false).into_iter();
        let wanted =
            entries.filter_entry(|entry| self.wants(entry.path())).take_while(|_| !self.stopping.load(Relaxed));
        wanted.filter_map(|entry| match entry {
            Ok(entry) => entry.file_type().is_file().then(|| entry.into_path().into()),
            Err(error) if error.io_error().is_some_and(is_gone) => None,
            Err(error) => error.path().map(Key::from),
        })
    }

    /// Adds paths in batches, so that workers start on the first ones while the listing goes on.
    fn add_all(&self, paths: impl IntoIterator<Item = Key>) {
        let mut paths = paths.into_iter().fuse();
        loop {
            let batch: Vec<Key> = paths.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            // Noted before the add: a worker may have the key right after it.
            self.queue.add_all(batch.into_iter().inspect(|path| self.note_add(path)));
        }
    }

    /// Adds a path after an event, delayed because more events may follow. With a delay of zero this is a plain add.
    fn add_when_quiet(&self, path: Key) {
        self.note_add(&path);
        if self.queue.add_with(path, self.quiet) == Added::Delayed {
            self.debounced.fetch_add(1, Relaxed);
        }
    }

    /// Schedules a check of each file and of the tree, spread over the period, so that not all delays expire at once.
    fn verify_all(&self) {
        let Some(every) = self.verify_every else { return };
        let mut paths: Vec<Key> = self.files.lock().unwrap().keys().cloned().collect();
        paths.push(Arc::clone(&self.root));
        let share = 1.0 / paths.len() as f64;
        for (i, path) in paths.into_iter().enumerate() {
            self.verify_after(path, every.mul_f64(share * (i + 1) as f64));
        }
    }

    /// If the path has a delay already, of a verification or of an event, that one stays.
    fn verify_after(&self, path: Key, delay: Duration) {
        self.queue.add_with(path, AddOptions::new().after(delay).conflict(DelayConflict::KeepExisting));
    }

    fn note_add(&self, path: &Key) {
        if !self.seen.lock().unwrap().insert(Arc::clone(path), true).unwrap_or(false) {
            self.bar.inc_length(1);
        }
    }

    /// What this hand-out is for.
    fn handed_out(&self, path: &Item<'_, Key>) -> Why {
        if self.seen.lock().unwrap().insert(Arc::clone(path), false).unwrap_or(false) {
            return Why::Asked;
        }
        self.bar.inc_length(1);
        if path.num_requeues() > 0 {
            return Why::Retry;
        }
        self.verified.fetch_add(1, Relaxed);
        Why::Verify
    }

    /// Whether the path was added, and the run that follows has not begun.
    fn is_asked(&self, path: &Path) -> bool {
        self.seen.lock().unwrap().get(path).is_some_and(|&asked| asked)
    }

    /// Makes the result for one path agree with the disk, and returns what happens to the key.
    fn reconcile(&self, path: &Item<'_, Key>) -> Outcome {
        let why = self.handed_out(path);
        let digest = fs::symlink_metadata(path.key()).and_then(|metadata| match metadata.file_type() {
            kind if kind.is_file() => Digest::of(path, &metadata).map(Some),
            kind if kind.is_dir() => fs::read_dir(path.key()).map(|_| None),
            _ => Ok(None),
        });
        self.bar.inc(1);
        match digest {
            Ok(Some(digest)) => {
                self.hashed.fetch_add(1, Relaxed);
                self.bytes.fetch_add(digest.len, Relaxed);
                self.set(path, Some(Ok(digest)), why);
            }
            Err(error) if !is_gone(&error) => {
                self.set(path, Some(Err(Unreadable { error, gave_up: None })), why);
                return Outcome::Retry;
            }
            _ => {
                self.set(path, None, why);
                self.look_below(path, why);
                if *path.key() != self.root {
                    return Outcome::Success;
                }
            }
        }
        // If an event came meanwhile, the earlier delay applies.
        self.period().map_or(Outcome::Success, Outcome::RequeueAfter)
    }

    /// Called after the last retry, while the worker still has the key.
    fn give_up(&self, path: &Key, retries: usize) {
        let tries = retries + 1;
        let news = match self.files.lock().unwrap().get_mut(path) {
            // A verification tries a file again that was given up. Another failure is not printed.
            Some(Err(unreadable)) if unreadable.gave_up.is_none() => {
                unreadable.gave_up = Some(tries);
                Some(format!("unreadable: {}, {}", unreadable.error, tried(tries)))
            }
            _ => None,
        };
        if let Some(news) = news {
            self.say(format_args!("gave up  {}: {news}", path.display()));
        }
        if let Some(every) = self.period() {
            self.verify_after(Arc::clone(path), every);
        }
    }

    /// After what time a file is verified. Not during the first pass, which might never end for a large tree.
    fn period(&self) -> Option<Duration> {
        self.verify_every.filter(|_| self.live.load(Relaxed))
    }

    /// For a path that is gone, or a directory: adds the files that were or are below it. They have no events of their own if the
    /// directory was moved, and none if events were lost. A worker may add keys, too.
    fn look_below(&self, path: &Key, why: Why) {
        let candidates = self.known_below(path).into_iter().chain(self.list(path));
        let candidates = candidates.filter(|path| !self.is_current(path));
        match why {
            Why::Asked | Why::Retry => self.add_all(candidates),
            // Adds new files only: the others have a delay.
            Why::Verify => candidates.for_each(|path| self.verify_after(path, Duration::ZERO)),
        }
    }

    fn known_below(&self, path: &Path) -> Vec<Key> {
        let files = self.files.lock().unwrap();
        let after = files.range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        after.map(|(known, _)| known).take_while(|known| known.starts_with(path)).cloned().collect()
    }

    /// Whether a file has the length and the time that it had when it was read. That is enough to choose the files to read again
    /// when events were lost; reading all of them would cause more events, and lose more.
    fn is_current(&self, path: &Path) -> bool {
        let known = match self.files.lock().unwrap().get(path) {
            Some(Ok(digest)) => (digest.len, digest.modified),
            _ => return false,
        };
        fs::symlink_metadata(path).is_ok_and(|now| now.is_file() && (now.len(), now.modified().ok()) == known)
    }

    /// Stores the result for a path (`None`: there is no such file), and prints it if it has changed after the first pass.
    fn set(&self, path: &Key, mut result: Option<Result<Digest, Unreadable>>, why: Why) {
        let mut files = self.files.lock().unwrap();
        let before = files.remove(path);
        // A file that was given up stays given up until it is added again.
        if let (Some(Err(before)), Some(Err(now)), Why::Retry | Why::Verify) = (&before, &mut result, why) {
            now.gave_up = before.gave_up;
        }
        let now = result.as_ref().map(describe);
        if let Some(result) = result {
            files.insert(Arc::clone(path), result);
        }
        drop(files);

        if !self.live.load(Relaxed) {
            return;
        }
        let name = path.display();
        match (&before, now) {
            (None, Some(now)) => self.say(format_args!("new      {name}: {now}")),
            (Some(before), Some(now)) if describe(before) != now => {
                // It has not drifted if the event came during the read, or if the file was unreadable before.
                let drifted = matches!(why, Why::Verify) && !self.is_asked(path) && before.is_ok();
                self.say(format_args!("{}  {name}: {now}", if drifted { "drifted" } else { "changed" }));
            }
            (Some(Err(_)), None) if path.is_dir() => self.say(format_args!("readable {name}")),
            (Some(_), None) => self.say(format_args!("gone     {name}")),
            _ => {}
        }
    }

    /// Prints a line above the progress bar. If stdout is closed, the example goes on.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        self.bar.suspend(|| drop(writeln!(io::stdout(), "{line}")));
    }

    /// How many files are in the result, and how many of them could not be read.
    fn totals(&self) -> (usize, usize) {
        let files = self.files.lock().unwrap();
        (files.len(), files.values().filter(|result| result.is_err()).count())
    }

    /// The files that a worker has given up on, and those that wait for a retry.
    fn unreadable(&self) -> (Vec<String>, Vec<String>) {
        let (mut given_up, mut to_retry) = (Vec::new(), Vec::new());
        for (path, result) in self.files.lock().unwrap().iter() {
            let Err(Unreadable { error, gave_up }) = result else { continue };
            match gave_up {
                Some(tries) => given_up.push(format!("{}: {error}, {}", path.display(), tried(*tries))),
                None => to_retry.push(format!("{}: {error}", path.display())),
            }
        }
        (given_up, to_retry)
    }

    fn pace(&self, start: Instant) -> String {
        let time = start.elapsed();
        let per_s = |count: &AtomicU64| count.load(Relaxed) as f64 / time.as_secs_f64();
        format!("{time:.2?}: {:.0} files/s, {:.1} MB/s", per_s(&self.hashed), per_s(&self.bytes) / 1e6)
    }
}

fn describe(result: &Result<Digest, Unreadable>) -> String {
    match result {
        Ok(digest) => format!("{} bytes, crc32 {:08x}", digest.len, digest.crc),
        Err(unreadable) => format!("unreadable: {}", unreadable.error),
    }
}

fn tried(tries: usize) -> String {
    if tries == 1 { "tried once".into() } else { format!("tried {tries} times") }
}

/// The file vanished after it was added, which is no failure.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn summary(tree: &Tree, first_pass: &str, tally: &Tally, dropped: usize) -> io::Result<()> {
    let metrics = tree.queue.inspect().metrics();
    let stats = metrics.stats;
    let (files, unreadable) = tree.totals();
    let (given_up, to_retry) = tree.unreadable();
    let mut out = io::stdout().lock();
    writeln!(out, "keys seen   {}", tree.seen.lock().unwrap().len())?;
    writeln!(out, "adds        {}", stats.pushed + stats.coalesced + stats.deferred)?;
    writeln!(out, "coalesced   {}", stats.coalesced)?;
    writeln!(out, "deferred    {}", stats.deferred)?;
    writeln!(out, "debounced   {} events", tree.debounced.load(Relaxed))?;
    writeln!(out, "runs        {}", stats.handed_out)?;
    writeln!(out, "retried     {}", tally.retried)?;
    writeln!(out, "verified    {}", tree.verified.load(Relaxed))?;
    writeln!(out, "dropped     {dropped} delayed checks")?;
    writeln!(out, "files       {files}")?;
    writeln!(out, "unreadable  {unreadable}")?;
    writeln!(out, "given up    {}", given_up.len())?;
    writeln!(out, "bytes       {}", tree.bytes.load(Relaxed))?;
    writeln!(out, "first pass  {first_pass}")?;
    for (name, histogram) in [("wait", &metrics.queue_duration), ("work", &metrics.work_duration)] {
        let [p50, p99] = [0.5, 0.99].map(|share| histogram.quantile(share));
        writeln!(out, "{name:<11} p50 {p50:.1?}, p99 {p99:.1?}")?;
    }
    list(&mut out, "gave up", &given_up)?;
    list(&mut out, "unreadable", &to_retry)
}

fn list(out: &mut impl Write, what: &str, files: &[String]) -> io::Result<()> {
    for file in files.iter().take(LISTED) {
        writeln!(out, "{what}: {file}")?;
    }
    if files.len() > LISTED {
        writeln!(out, "{what}: and {} more", files.len() - LISTED)?;
    }
    Ok(())
}
