//! What happens, and when: a seed decides.

use crate::check::{Life, Report, check};
use crate::etcd::Etcd;
use crate::log::{self, Line, now};
use crate::proxy::Proxy;
use crate::{LEASE, Options};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

struct Replica {
    name: String,
    proxy: Proxy,
    child: Option<Child>,
    life: Life,
    log: PathBuf,
    stopped_at: Option<u64>,
}

struct Scenario<'a> {
    options: &'a Options,
    random: fastrand::Rng,
    folder: PathBuf,
    replicas: Vec<Replica>,
    lives: Vec<Life>,
    started: usize,
}

fn signal(child: Option<&Child>, signal: Signal) {
    let pid = child.and_then(Child::id).and_then(|pid| Pid::from_raw(pid as i32));
    // An error: the process has ended by itself.
    _ = pid.map(|pid| kill_process(pid, signal));
}

impl Replica {
    fn start(&mut self, options: &Options, folder: &Path, number: usize) -> std::io::Result<()> {
        self.log = folder.join(format!("{number}.log"));
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--replica", &self.name, "--endpoint", &format!("http://{}", self.proxy.address), "--log"])
            .arg(&self.log);
        command.args(["--keys", &options.keys.to_string()]);
        if let Some(mutant) = options.mutant {
            use clap::ValueEnum;
            command.arg("--mutant").arg(mutant.to_possible_value().expect("each has a name").get_name());
        }
        // Its standard input is a pipe from here: it ends when we do.
        self.child = Some(command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?);
        self.life = Life { name: self.name.clone(), ..Life::default() };
        Ok(())
    }

    fn stop(&mut self) {
        if self.child.is_some() && self.stopped_at.is_none() {
            self.stopped_at = Some(now());
            signal(self.child.as_ref(), Signal::STOP);
        }
    }

    fn go_on(&mut self) {
        if let Some(from) = self.stopped_at.take() {
            signal(self.child.as_ref(), Signal::CONT);
            self.life.stops.push((from, now()));
        }
    }

    /// Waits for the end of the process, and puts what it did aside.
    async fn end(&mut self, how: Signal) -> Option<Life> {
        self.go_on();
        let mut child = self.child.take()?;
        signal(Some(&child), how);
        if timeout(Duration::from_secs(12), child.wait()).await.is_err() {
            _ = child.kill().await;
        }
        let mut life = std::mem::take(&mut self.life);
        life.ended = now();
        life.lines = log::read(&self.log).unwrap_or_default();
        Some(life)
    }
}

impl Scenario<'_> {
    fn start(&mut self, i: usize) -> std::io::Result<()> {
        self.started += 1;
        self.replicas[i].start(self.options, &self.folder, self.started)
    }

    async fn end(&mut self, i: usize, how: Signal) {
        let life = self.replicas[i].end(how).await;
        self.lives.extend(life);
    }

    fn millis(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.random.u64(..below))
    }

    /// One event. It may take some seconds.
    async fn something_happens(&mut self, etcd: &Etcd) -> std::io::Result<()> {
        let i = self.random.usize(..self.replicas.len());
        let some_leases = LEASE.as_millis() as u64 * 3;
        if self.replicas[i].child.is_none() {
            return self.start(i);
        }
        match self.random.u8(..10) {
            0 | 1 => self.end(i, Signal::KILL).await,
            2 => self.end(i, Signal::TERM).await,
            3 | 4 => {
                let time = self.millis(some_leases);
                self.replicas[i].stop();
                sleep(time).await;
                self.replicas[i].go_on();
            }
            5 | 6 => {
                let time = self.millis(some_leases);
                let proxy = &self.replicas[i].proxy;
                let (requests, answers) = (proxy.requests_stopped.clone(), proxy.answers_stopped.clone());
                let directions = self.random.u8(1..4);
                requests.store(directions & 1 != 0, Ordering::Relaxed);
                answers.store(directions & 2 != 0, Ordering::Relaxed);
                sleep(time).await;
                requests.store(false, Ordering::Relaxed);
                answers.store(false, Ordering::Relaxed);
            }
            7 | 8 => {
                // The answer to a renewal arrives while the process is stopped, and nothing after it: the process reads it late, and does
                // not see that others have taken over.
                let proxy = self.replicas[i].proxy.answers_stopped.clone();
                proxy.store(true, Ordering::Relaxed);
                sleep(LEASE / 7).await;
                self.replicas[i].stop();
                proxy.store(false, Ordering::Relaxed);
                sleep(LEASE / 7).await;
                proxy.store(true, Ordering::Relaxed);
                sleep(LEASE * 3).await;
                self.replicas[i].go_on();
                sleep(LEASE * 2).await;
                proxy.store(false, Ordering::Relaxed);
            }
            _ => {
                let server = self.random.usize(..etcd.clients.len());
                if etcd.clients.len() > 1
                    && let Some(pid) = etcd.pid(server)
                {
                    let time = self.millis(some_leases);
                    _ = kill_process(pid, Signal::STOP);
                    sleep(time).await;
                    _ = kill_process(pid, Signal::CONT);
                }
            }
        }
        Ok(())
    }
}

pub async fn run(options: &Options) -> Result<Report, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let etcd = Etcd::start(options.servers).await?;
    let mut scenario = Scenario {
        options,
        random: fastrand::Rng::with_seed(options.seed),
        folder: folder.path().to_owned(),
        replicas: Vec::new(),
        lives: Vec::new(),
        started: 0,
    };
    for i in 0..options.replicas {
        let proxy = Proxy::start(etcd.clients.clone()).await?;
        let name = format!("r{i}");
        scenario.replicas.push(Replica {
            name,
            proxy,
            child: None,
            life: Life::default(),
            log: PathBuf::new(),
            stopped_at: None,
        });
        scenario.start(i)?;
    }
    sleep(LEASE * 3).await;
    let (from, start) = (now(), Instant::now());
    while start.elapsed() < Duration::from_secs(options.seconds) {
        scenario.something_happens(&etcd).await?;
        let pause = scenario.millis(1500);
        sleep(pause).await;
    }
    // Quiet: whoever is there can reach etcd.
    for i in 0..options.replicas {
        if scenario.replicas[i].child.is_none() {
            scenario.start(i)?;
        }
    }
    sleep(LEASE * 10).await;
    let to = now();
    for replica in &scenario.replicas {
        signal(replica.child.as_ref(), Signal::TERM); // all at once: what each owned is read before anything moves
    }
    for i in 0..options.replicas {
        scenario.end(i, Signal::TERM).await;
    }
    let mut report = check(&scenario.lives, options.keys, from, to);
    let owned = |life: &Life| {
        life.lines.iter().find_map(|line| match line {
            Line::Owned { partitions } => Some(*partitions),
            _ => None,
        })
    };
    for life in scenario.lives.iter().rev().take(options.replicas).filter(|life| owned(life).is_none()) {
        println!("{} did not say what it owns at the end", life.name);
    }
    let last: u64 = scenario.lives.iter().rev().take(options.replicas).filter_map(owned).sum();
    report.unowned = 32_u64.saturating_sub(last);
    Ok(report)
}
