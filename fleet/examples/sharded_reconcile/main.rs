//! Three processes keep the checksums of one directory tree up to date, each for a part of the files. One of them is killed, and the others
//! take over.
//!
//! ```text
//! cargo run --release -p keyqueue-fleet --example sharded_reconcile        # a store in a folder: nothing else is needed
//! cargo run --release -p keyqueue-fleet --features etcd --example sharded_reconcile -- --etcd    # etcd; starts one if none is at --endpoint
//! ```
//!
//! ```text
//!   tree/17/3.txt ──change──▶ each replica scans ──▶ fleet.add("17/3.txt") ──▶ its owner's queue ──▶ sums/17-3.txt: checksum, token, name
//! ```
//!
//! * An event reaches the replica's own store (the map of files) first, and then the key is added: or a list after `Acquired` finds it.
//! * A checksum is written with the token of the hand-out, and a lower token than the one that is there is refused.
//! * The first process starts the others, changes files, kills one replica, and checks at the end that all checksums are right.

#[allow(unreachable_pub)]
mod file_store;

use file_store::FileStore;
use keyqueue::WorkQueue;
use keyqueue_fleet::{Event, Fleet, Store};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

const FOLDERS: u64 = 20;
const FILES: u64 = 20;
const LEASE: Duration = Duration::from_millis(1500);
const NAMES: [&str; 3] = ["r1", "r2", "r3"];

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name).and_then(|_| arguments.next())
}

#[tokio::main]
async fn main() -> Fallible<()> {
    match (option("--replica"), option("--folder")) {
        (Some(name), Some(folder)) => replica(&name, Path::new(&folder)).await,
        _ => all().await,
    }
}

// What the replicas do.

/// The checksum that a file should have.
fn checksum(path: &Path) -> io::Result<u64> {
    let mut hasher = keyqueue_fleet::StableHasher::new();
    hasher.write(&fs::read(path)?);
    Ok(hasher.finish())
}

fn sum_path(folder: &Path, key: &str) -> PathBuf {
    folder.join("sums").join(key.replace('/', "-"))
}

/// The checksum that was written, and the token of its writer.
fn read_sum(folder: &Path, key: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string(sum_path(folder, key)).ok()?;
    let mut words = text.split_whitespace();
    Some((u64::from_str_radix(words.next()?, 16).ok()?, words.next()?.parse().ok()?))
}

fn reconcile(folder: &Path, name: &str, key: &str, token: u64) -> io::Result<()> {
    let sum = checksum(&folder.join("tree").join(key))?;
    match read_sum(folder, key) {
        // The receiver refuses: somebody who owns the file since has written.
        Some((_, newer)) if newer > token => return Err(io::Error::other(format!("token {token} after {newer}"))),
        Some((same, _)) if same == sum => return Ok(()),
        _ => {}
    }
    let path = sum_path(folder, key);
    let new = path.with_extension(format!("new-{name}"));
    fs::write(&new, format!("{sum:016x} {token} {name}\n"))?;
    fs::rename(new, path)
}

/// All files and the times of their last changes.
fn scan(folder: &Path) -> io::Result<BTreeMap<String, SystemTime>> {
    let mut files = BTreeMap::new();
    for sub in fs::read_dir(folder.join("tree"))? {
        let sub = sub?;
        for file in fs::read_dir(sub.path())? {
            let file = file?;
            let key = format!("{}/{}", sub.file_name().to_string_lossy(), file.file_name().to_string_lossy());
            files.insert(key, file.metadata()?.modified()?);
        }
    }
    Ok(files)
}

async fn replica(name: &str, folder: &Path) -> Fallible<()> {
    #[cfg(feature = "etcd")]
    if let Some(endpoint) = option("--endpoint") {
        let store = keyqueue_fleet::store::EtcdStore::connect([endpoint], "/sharded_reconcile").await?;
        return serve(store, name, folder).await;
    }
    serve(FileStore::new(&folder.join("store"))?, name, folder).await
}

async fn serve(store: impl Store, name: &str, folder: &Path) -> Fallible<()> {
    let fleet =
        Fleet::builder(store).member(name).lease(LEASE).grace(LEASE / 5).build(WorkQueue::<String>::new()).await?;
    let workers = fleet.workers().on_error(|key, error| eprintln!("{key} is retried: {error}")).build();
    for _ in 0..4 {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        tokio::spawn(workers.run_async(async move |file| {
            sleep(Duration::from_millis(5)).await; // a request, say
            reconcile(&folder, &name, file, file.token())
        }));
    }

    let files = Arc::new(Mutex::new(BTreeMap::new()));
    let (lister, mut events, listed) = (fleet.clone(), fleet.events(), files.clone());
    tokio::spawn(async move {
        loop {
            let events = events.next_many().await;
            if events.is_empty() {
                return;
            }
            if events.iter().any(|event| matches!(event, Event::Acquired(_))) {
                let keys: Vec<String> = listed.lock().unwrap().keys().cloned().collect();
                keys.into_iter().for_each(|key| _ = lister.add(key));
            }
        }
    });

    // Ends with the first process, whose end of the pipe closes.
    let mut parent = tokio::io::stdin();
    loop {
        tokio::select! {
            _ = parent.read_u8() => break,
            () = sleep(Duration::from_millis(100)) => {}
        }
        for (key, changed) in scan(folder)? {
            let old = files.lock().unwrap().insert(key.clone(), changed); // first the store,
            if old != Some(changed) {
                fleet.add(key); // then the key
            }
        }
        let stats = fleet.stats();
        let new = folder.join(format!("{name}.new"));
        fs::write(&new, format!("{} {}", stats.owned, stats.lost))?;
        fs::rename(new, folder.join(name))?; // who reads it sees the old or the new one
    }
    fleet.leave().await;
    Ok(())
}

// What the first process does.

fn start(name: &str, folder: &Path, endpoint: Option<&str>) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--replica", name, "--folder"]).arg(folder);
    if let Some(endpoint) = endpoint {
        command.args(["--endpoint", endpoint]);
    }
    command.stdin(Stdio::piped()).kill_on_drop(true).spawn()
}

/// A server of etcd, if one is asked for and none is there.
async fn etcd(folder: &Path) -> Fallible<(Option<Child>, Option<String>)> {
    if !std::env::args().any(|argument| argument == "--etcd") {
        return Ok((None, None));
    }
    if cfg!(not(feature = "etcd")) {
        return Err("--etcd needs `--features etcd`".into());
    }
    let endpoint = option("--endpoint").unwrap_or_else(|| "http://127.0.0.1:2379".to_owned());
    let address = endpoint.trim_start_matches("http://").to_owned();
    if tokio::net::TcpStream::connect(&address).await.is_ok() {
        return Ok((None, Some(endpoint)));
    }
    let peer = "http://127.0.0.1:0";
    let server = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint, "--listen-peer-urls", peer])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("etcd cannot be started (Debian has it in etcd-server): {error}"))?;
    let start = Instant::now();
    while tokio::net::TcpStream::connect(&address).await.is_err() {
        if start.elapsed() > Duration::from_secs(20) {
            return Err("etcd does not accept connections after 20 seconds".into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok((Some(server), Some(endpoint)))
}

fn change(folder: &Path, n: u64) -> io::Result<()> {
    let (sub, file) = (n % FOLDERS, n / FOLDERS % FILES);
    fs::write(
        folder.join("tree").join(sub.to_string()).join(format!("{file}.txt")),
        format!("{n} {}", fastrand::u64(..)),
    )
}

/// The number of files whose checksum is not right.
fn stale(folder: &Path) -> io::Result<usize> {
    let mut stale = 0;
    for key in scan(folder)?.into_keys() {
        let right = checksum(&folder.join("tree").join(&key))?;
        stale += usize::from(read_sum(folder, &key).is_none_or(|(sum, _)| sum != right));
    }
    Ok(stale)
}

async fn all() -> Fallible<()> {
    let folder = std::env::temp_dir().join(format!("sharded_reconcile-{}", std::process::id()));
    let verdict = story(&folder).await;
    fs::remove_dir_all(&folder)?;
    verdict
}

async fn story(folder: &Path) -> Fallible<()> {
    fs::create_dir_all(folder.join("sums"))?;
    for sub in 0..FOLDERS {
        fs::create_dir_all(folder.join("tree").join(sub.to_string()))?;
    }
    for n in 0..FOLDERS * FILES {
        change(folder, n)?;
    }
    let (_server, endpoint) = etcd(folder).await?;
    println!("{} files, store: {}", FOLDERS * FILES, endpoint.as_deref().unwrap_or("a folder"));
    let mut replicas = Vec::new();
    for name in NAMES {
        replicas.push(start(name, folder, endpoint.as_deref())?);
    }

    println!("{:>6}  {:>14} {:>14} {:>14}  {:>14}", "time", "r1 partitions", "r2", "r3", "stale files");
    let begin = Instant::now();
    let (mut killed, mut replaced, mut quiet) = (None, None, None);
    for step in 0.. {
        if quiet.is_none() {
            for _ in 0..5 {
                change(folder, fastrand::u64(..FOLDERS * FILES))?;
            }
        }
        sleep(Duration::from_millis(50)).await;
        let elapsed = begin.elapsed();
        if step % 10 != 0 {
            continue;
        }
        let owned = NAMES.map(|name| {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.split_whitespace().next().and_then(|owned| owned.parse().ok()).unwrap_or(0_u64)
        });
        let now_stale = stale(folder)?;
        println!(
            "{:>5.1}s  {:>14} {:>14} {:>14}  {now_stale:>14}",
            elapsed.as_secs_f64(),
            owned[0],
            owned[1],
            owned[2]
        );
        if killed.is_none() && elapsed > Duration::from_secs(4) && owned.iter().all(|owned| *owned > 0) {
            replicas[1].kill().await?;
            fs::write(folder.join("r2"), "0")?;
            killed = Some(Instant::now());
            println!("        r2 was killed");
        }
        if let Some(killed) = killed
            && replaced.is_none()
            && owned[0] + owned[2] == 256
        {
            let took = killed.elapsed();
            println!("        its partitions have new owners, after {:.1} s", took.as_secs_f64());
            replaced = Some(took);
        }
        if replaced.is_some() && quiet.is_none() {
            quiet = Some(Instant::now());
        }
        if quiet.is_some() && now_stale == 0 {
            break;
        }
        if elapsed > Duration::from_secs(60) {
            return Err(format!(
                "after a minute: killed {killed:?}, replaced {replaced:?}, {now_stale} files are stale"
            )
            .into());
        }
    }
    println!("all checksums are right");
    for mut replica in replicas.into_iter().filter(|replica| replica.id().is_some()) {
        drop(replica.stdin.take());
        replica.wait().await?;
    }
    Ok(())
}
