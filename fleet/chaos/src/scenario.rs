//! What happens, and when: a seed decides.

use crate::check::{Life, Report, Rules, check, owners};
use crate::etcd::Etcd;
use crate::log::{self, Line, now};
use crate::proxy::Proxy;
use crate::{EXPIRY, GRACE, LATE, LEASE, Options, PARTITIONS, tied};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What can happen to a replica, or to etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Kill,
    Leave,
    /// A replica that is not there is started; if all are there, one is killed, and started again at once.
    Join,
    /// `SIGSTOP` for no longer than the grace: it explains no overlap.
    ShortStop,
    LongStop,
    /// Nothing passes, for longer than a record takes to expire.
    Cut,
    /// Nothing passes in one direction, for a time.
    OneWayCut,
    /// The answer to a renewal is processed after others have taken over, and the replica learns nothing of that.
    LateAnswer,
    /// All requests take longer, and replicas are killed and join at the same time: several write the table at once.
    ClaimsAtOnce,
    /// A server of etcd is stopped.
    ServerStop,
}

use Happening::{ClaimsAtOnce, Cut, Join, Kill, LateAnswer, Leave, LongStop, OneWayCut, ServerStop, ShortStop};

/// Two leave, so two join. Claims at once show a fault in every second case only.
const BAG: [Happening; 12] =
    [Kill, Leave, Join, Join, ShortStop, LongStop, Cut, OneWayCut, LateAnswer, ClaimsAtOnce, ClaimsAtOnce, ServerStop];

struct Replica {
    name: String,
    proxy: Proxy,
    child: Option<Child>,
    life: Life,
    log: PathBuf,
    stopped_at: Option<u64>,
}

fn send(child: &Child, signal: Signal) -> Result<()> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32)).ok_or("the process has ended")?;
    Ok(kill_process(pid, signal)?)
}

impl Replica {
    fn start(&mut self, options: &Options, folder: &Path, number: usize) -> Result<()> {
        self.log = folder.join(format!("{number}.log"));
        let mut command = tied::command(std::env::current_exe()?)?;
        command
            .args(["--replica", &self.name, "--endpoint", &format!("http://{}", self.proxy.address), "--log"])
            .arg(&self.log);
        command.args(["--keys", &options.keys.to_string()]);
        if let Some(mutant) = options.mutant {
            use clap::ValueEnum;
            command.arg("--mutant").arg(mutant.to_possible_value().expect("each has a name").get_name());
        }
        self.child = Some(command.spawn()?);
        self.life = Life { name: self.name.clone(), ..Life::default() };
        Ok(())
    }

    /// An error if the process has ended by itself. Called before a signal is sent, so that an early end is not taken for its effect.
    fn look(&mut self) -> Result<()> {
        match self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => Err(format!("{} has ended by itself: {status}", self.name).into()),
            None => Ok(()),
        }
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.look()?;
        self.child.as_ref().map_or(Ok(()), |child| send(child, signal))
    }

    fn stop(&mut self) -> Result<()> {
        self.stopped_at = Some(now());
        self.signal(Signal::STOP)
    }

    fn go_on(&mut self) -> Result<()> {
        if let Some(from) = self.stopped_at.take() {
            self.life.stops.push((from, now()));
            self.signal(Signal::CONT)?;
        }
        Ok(())
    }

    /// What it has done so far.
    fn so_far(&self) -> Result<Life> {
        Ok(Life { ended: now(), lines: log::read(&self.log)?, ..self.life.clone() })
    }

    /// Waits until the log says so.
    async fn until(&mut self, what: &str, holds: impl Fn(&Life) -> bool) -> Result<()> {
        let start = Instant::now();
        while !holds(&self.so_far()?) {
            self.look()?;
            if start.elapsed() > Duration::from_secs(10) {
                return Err(format!("{} {what} after 10 s", self.name).into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Tells the process to leave. It handles signals already, or this waits until it does.
    async fn tell_to_leave(&mut self) -> Result<()> {
        self.until("does not handle signals", |life| life.lines.contains(&Line::Ready)).await?;
        self.signal(Signal::TERM)
    }

    /// Waits for the end of a process that was told to leave.
    async fn left(&mut self) -> Result<Option<Life>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        match timeout(Duration::from_secs(12), child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(|status| status.success()) => {}
            Ok(status) => return Err(format!("{} was told to leave, and ended with {}", self.name, status?).into()),
            Err(_) => return Err(format!("{} was told to leave, and has not ended after 12 s", self.name).into()),
        }
        self.put_aside()
    }

    async fn kill(&mut self) -> Result<Option<Life>> {
        self.signal(Signal::KILL)?;
        if let Some(child) = &mut self.child {
            child.wait().await?;
        }
        self.put_aside()
    }

    /// The life of a process that has ended.
    fn put_aside(&mut self) -> Result<Option<Life>> {
        self.child.take().map(|_| self.so_far()).transpose()
    }
}

/// What a run has shown.
#[derive(Debug)]
pub struct Outcome {
    pub report: Report,
    happened: BTreeMap<Happening, usize>,
    /// Partitions without an owner, and with more than one, after all is quiet.
    pub unowned: usize,
    pub owned_twice: usize,
    seconds: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened: Vec<_> = self.happened.iter().map(|(what, n)| format!("{n} {what:?}")).collect();
        writeln!(f, "{:.1} s: {}", self.seconds, happened.join(", "))?;
        write!(f, "{}", self.report)?;
        if self.unowned + self.owned_twice > 0 {
            write!(f, "\npartitions without an owner: {}; with more than one: {}", self.unowned, self.owned_twice)?;
        }
        Ok(())
    }
}

struct Scenario<'a> {
    options: &'a Options,
    etcd: Etcd,
    random: fastrand::Rng,
    folder: PathBuf,
    replicas: Vec<Replica>,
    lives: Vec<Life>,
    started: usize,
}

impl Scenario<'_> {
    fn start(&mut self, i: usize) -> Result<()> {
        self.started += 1;
        self.replicas[i].start(self.options, &self.folder, self.started)
    }

    fn start_absent(&mut self) -> Result<()> {
        (0..self.replicas.len())
            .filter(|i| self.replicas[*i].child.is_none())
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|i| self.start(i))
    }

    async fn kill(&mut self, i: usize) -> Result<()> {
        let life = self.replicas[i].kill().await?;
        self.lives.extend(life);
        Ok(())
    }

    async fn left(&mut self, i: usize) -> Result<()> {
        let life = self.replicas[i].left().await?;
        self.lives.extend(life);
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        self.etcd.look()?;
        self.replicas.iter_mut().try_for_each(Replica::look)
    }

    /// The lives of all replicas, also of those that run.
    fn lives(&self) -> Result<Vec<Life>> {
        let mut lives = self.lives.clone();
        lives.extend(self.live()?);
        Ok(lives)
    }

    fn live(&self) -> Result<Vec<Life>> {
        self.replicas.iter().filter(|replica| replica.child.is_some()).map(Replica::so_far).collect()
    }

    /// From `least` to `most` milliseconds.
    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.u64(least..=most))
    }

    /// Waits until each partition has one owner. How many have none, and more than one.
    async fn settle(&mut self, limit: Duration) -> Result<(usize, usize)> {
        let start = Instant::now();
        loop {
            self.look()?;
            let owners = owners(&self.live()?, PARTITIONS);
            if owners == (0, 0) || start.elapsed() > limit {
                return Ok(owners);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// One of those that run. At least two do afterwards.
    fn any(&mut self) -> Result<usize> {
        if self.replicas.iter().filter(|replica| replica.child.is_some()).count() < 2 {
            self.start_absent()?;
        }
        let live: Vec<_> = (0..self.replicas.len()).filter(|i| self.replicas[*i].child.is_some()).collect();
        Ok(*self.random.choice(&live).expect("two are running"))
    }

    /// It may take some seconds.
    async fn happens(&mut self, what: Happening) -> Result<()> {
        let lease = LEASE.as_millis() as u64;
        let i = self.any()?;
        match what {
            Kill => self.kill(i).await?,
            Leave => {
                self.replicas[i].tell_to_leave().await?;
                self.left(i).await?;
            }
            Join => match (0..self.replicas.len()).find(|i| self.replicas[*i].child.is_none()) {
                Some(absent) => self.start(absent)?,
                None => {
                    self.kill(i).await?;
                    self.start(i)?;
                }
            },
            ShortStop | LongStop => {
                let grace = GRACE.as_millis() as u64;
                // A little less than the grace, for the parent's own delays.
                let time = if what == ShortStop { GRACE * 3 / 4 } else { self.millis(grace * 2, lease * 3) };
                self.replicas[i].stop()?;
                sleep(time).await;
                self.replicas[i].go_on()?;
            }
            Cut => {
                let time = self.millis(lease * 2, lease * 3);
                self.replicas[i].proxy.cut(true);
                sleep(time).await;
                self.replicas[i].proxy.cut(false);
            }
            OneWayCut => {
                let (time, requests) = (self.millis(lease / 4, lease * 3), self.random.bool());
                let proxy = &self.replicas[i].proxy;
                let direction = if requests { &proxy.requests } else { &proxy.answers };
                direction.stop(true);
                sleep(time).await;
                direction.stop(false);
            }
            LateAnswer => {
                self.settle(LEASE * 5).await?;
                self.replicas[i].until("owns nothing", |life| !life.owned().is_empty()).await?;
                self.replicas[i].signal(Signal::USR1)?;
                sleep(LEASE / 2).await; // it renews within a third
                self.replicas[i].proxy.cut(true);
                sleep(LATE + LEASE).await;
                self.replicas[i].proxy.cut(false);
            }
            ClaimsAtOnce => self.claims_at_once(i).await?,
            ServerStop => {
                let (server, time) = (self.random.usize(..self.options.servers), self.millis(lease / 2, lease * 3));
                if let Some(pid) = self.etcd.pid(server).filter(|_| self.options.servers > 1) {
                    kill_process(pid, Signal::STOP)?;
                    sleep(time).await;
                    kill_process(pid, Signal::CONT)?;
                }
            }
        }
        Ok(())
    }

    /// All requests take longer, or no longer. At most: the member waits for an answer for a sixth of a lease.
    fn slow_down(&mut self, slow: bool) {
        for i in 0..self.replicas.len() {
            let delay = if slow { self.millis(15, 30) } else { Duration::ZERO };
            self.replicas[i].proxy.delay(delay);
        }
    }

    /// Requests take longer, and twice two replicas are killed and started again. As the records of their earlier lives expire, the others
    /// claim their partitions, and they themselves join and claim them with what they knew before: all write the table in the same moments.
    async fn claims_at_once(&mut self, first: usize) -> Result<()> {
        self.slow_down(true);
        for round in 0..2 {
            for i in [first + round, first + round + 1] {
                let i = i % self.replicas.len();
                if self.replicas[i].child.is_some() {
                    self.kill(i).await?;
                }
            }
            self.start_absent()?;
            sleep(EXPIRY + LEASE).await;
        }
        self.slow_down(false);
        Ok(())
    }

    /// All start at once while requests take longer: there is no table yet, and each creates one and claims partitions.
    async fn begin(&mut self) -> Result<()> {
        self.slow_down(true);
        self.start_absent()?;
        self.settle(LEASE * 10).await?;
        self.slow_down(false);
        Ok(())
    }
}

pub async fn run(options: &Options) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let mut scenario = Scenario {
        options,
        etcd: Etcd::start(options.servers).await?,
        random: fastrand::Rng::with_seed(options.seed),
        folder: folder.path().to_owned(),
        replicas: Vec::new(),
        lives: Vec::new(),
        started: 0,
    };
    for i in 0..options.replicas {
        let proxy = Proxy::start(scenario.etcd.clients.clone()).await?;
        let name = format!("r{i}");
        let (life, log) = (Life::default(), PathBuf::new());
        scenario.replicas.push(Replica { name, proxy, child: None, life, log, stopped_at: None });
    }
    let began = Instant::now();
    scenario.begin().await?;
    let (from, start) = (now(), Instant::now());
    let nanos = |time: Duration| time.as_nanos() as u64;
    let margin = nanos(EXPIRY - LEASE - GRACE);
    let rules = |to| Rules { keys: options.keys, from, to, grace: nanos(GRACE), margin };
    let limit = Duration::from_secs(options.seconds * if options.mutant.is_some() { 8 } else { 1 });
    let (mut bag, mut bags, mut happened) = (Vec::new(), 0, BTreeMap::new());
    let mut last = Ok(());
    while start.elapsed() < limit || bags == 1 && !bag.is_empty() {
        if options.mutant.is_some() {
            let report = check(&scenario.lives()?, rules(now()));
            if report.overlaps > 0 {
                let seconds = began.elapsed().as_secs_f64();
                return Ok(Outcome { report, happened, unowned: 0, owned_twice: 0, seconds });
            }
        }
        std::mem::replace(&mut last, Ok(()))?; // after the check: a fault may also be the reason that a replica fails
        let Some(what) = bag.pop() else {
            bag.extend(BAG);
            scenario.random.shuffle(&mut bag);
            bags += 1;
            continue;
        };
        last = match scenario.look() {
            Ok(()) => scenario.happens(what).await,
            failed => failed,
        };
        *happened.entry(what).or_default() += 1;
        let pause = scenario.millis(0, 1000);
        sleep(pause).await;
    }
    last?;
    // Quiet: all replicas run and can reach etcd.
    scenario.start_absent()?;
    scenario.settle(LEASE * 15).await?;
    sleep(LEASE * 2).await;
    let (unowned, owned_twice) = scenario.settle(LEASE * 5).await?; // still, or again after a replica stood still under load
    let (to, seconds) = (now(), began.elapsed().as_secs_f64());
    for replica in &mut scenario.replicas {
        replica.tell_to_leave().await?;
    }
    for i in 0..options.replicas {
        scenario.left(i).await?;
    }
    Ok(Outcome { report: check(&scenario.lives, rules(to)), happened, unowned, owned_twice, seconds })
}
