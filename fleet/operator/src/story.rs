//! The first process: it starts replicas, changes objects, kills a replica, and checks what the others have made of it.

use crate::Fallible;
use crate::cluster::{self, FLEET, LABEL, SELECTOR};
use crate::status::Status;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use kube_stand_in::{Server, WatchEnd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

const OBJECTS: usize = 200;
/// For each step. The shortest that is right on an idle machine would be some 5 seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The highest token of each object so far.
#[derive(Default)]
struct Tokens(BTreeMap<String, u64>);

impl Tokens {
    fn observe(&mut self, object: &DynamicObject) -> Fallible<()> {
        let Some(Status { token, .. }) = Status::of(object) else { return Ok(()) };
        match self.0.insert(object.name_any(), token) {
            Some(older) if older > token => Err(format!("{}: token {token} after {older}", object.name_any()).into()),
            _ => Ok(()),
        }
    }
}

/// How many statuses each replica has written last.
fn writers(objects: &[DynamicObject]) -> BTreeMap<String, usize> {
    let mut writers = BTreeMap::new();
    for status in objects.iter().filter_map(Status::of) {
        *writers.entry(status.replica).or_default() += 1;
    }
    writers
}

struct Story {
    begin: Instant,
    server: Option<String>,
    client: Client,
    objects: Api<DynamicObject>,
    tokens: Tokens,
    /// Dropping one kills it.
    replicas: BTreeMap<&'static str, Child>,
    changes: usize,
}

/// Runs the story against the cluster of `KUBECONFIG`, or a stand-in.
pub async fn run() -> Fallible<()> {
    let kind = cluster::kind("v1/ConfigMap")?;
    let stand_in = match std::env::var_os("KUBECONFIG") {
        Some(_) => None,
        None => Some(Server::start().await),
    };
    if let Some(stand_in) = &stand_in {
        // As those of a real one do after some minutes.
        stand_in.rules.watches_last(Duration::from_secs(1), WatchEnd::Complete);
    }
    let server = stand_in.as_ref().map(|stand_in| stand_in.address.clone());
    let client = cluster::client(server.as_deref()).await?;
    let objects = Api::default_namespaced_with(client.clone(), &kind);
    let begin = Instant::now();
    let mut story =
        Story { begin, server, client, objects, tokens: Tokens::default(), replicas: BTreeMap::new(), changes: 0 };

    story.clean_up().await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let verdict = tokio::select! {
        verdict = story.tell() => verdict,
        _ = terminate.recv() => Err("SIGTERM".into()),
    };
    story.replicas.clear();
    let clean = timeout(PATIENCE, story.clean_up()).await?;
    verdict.and(clean)?;

    if let Some(stand_in) = stand_in {
        let (mut tokens, mut writes) = (Tokens::default(), 0);
        for object in stand_in.history("configmaps") {
            tokens.observe(&serde_json::from_value(object)?)?;
            writes += 1;
        }
        story.say(format_args!("the server's history, {writes} writes: no object's token ever fell"));
    }
    Ok(())
}

impl Story {
    fn say(&self, what: impl std::fmt::Display) {
        println!("{:>5.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    async fn tell(&mut self) -> Fallible<()> {
        for n in 0..OBJECTS {
            self.create(n).await?;
        }
        self.say(format_args!("{OBJECTS} ConfigMaps; replicas r1, r2 and r3 start"));
        for name in ["r1", "r2", "r3"] {
            self.start(name)?;
        }
        self.until_right("all statuses are right").await?;
        self.until_all_take_part().await?;

        let status = self.end("r2", Signal::KILL).await?;
        if status.signal() != Some(9) {
            return Err(format!("r2 was to be killed: {status}").into());
        }
        self.change(50).await?;
        self.say("r2 was killed with SIGKILL, and then 50 ConfigMaps were changed");
        self.until_right("all statuses are right: r2's record expired, r1 and r3 have its partitions").await?;

        self.terminate("r3").await?;
        self.change(50).await?;
        self.say("r3 got SIGTERM, handed over and exited with 0, and then 50 ConfigMaps were changed");
        self.until_right("all statuses are right: r1 has all partitions").await?;

        self.terminate("r1").await?;
        self.say("r1 got SIGTERM and exited with 0");
        Ok(())
    }

    /// Deletes what an earlier run has left, or this one.
    async fn clean_up(&self) -> Fallible<()> {
        let delete = DeleteParams::default();
        for object in self.objects.list(&ListParams::default().labels(SELECTOR)).await? {
            self.objects.delete(&object.name_any(), &delete).await?;
        }
        let leases = Api::<Lease>::default_namespaced(self.client.clone());
        for lease in leases.list(&ListParams::default().labels(&format!("keyqueue.dev/fleet={FLEET}"))).await? {
            leases.delete(&lease.name_any(), &delete).await?;
        }
        Ok(())
    }

    async fn create(&self, n: usize) -> Fallible<()> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": format!("operator-{n}"), "labels": { LABEL: "checksum" } },
            "data": { "text": "first" },
        });
        self.objects.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// Changes the next `count` objects.
    async fn change(&mut self, count: usize) -> Fallible<()> {
        for _ in 0..count {
            self.changes += 1;
            let patch = Patch::Merge(json!({ "data": { "text": format!("change {}", self.changes) } }));
            let name = format!("operator-{}", self.changes * 7 % OBJECTS);
            self.objects.patch(&name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    fn start(&mut self, name: &'static str) -> Fallible<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--child", "--replica", name]).stdin(Stdio::piped()).kill_on_drop(true);
        if let Some(server) = &self.server {
            command.args(["--server", server]);
        }
        self.replicas.insert(name, command.spawn()?);
        Ok(())
    }

    async fn end(&mut self, name: &str, how: Signal) -> Fallible<ExitStatus> {
        let mut replica = self.replicas.remove(name).ok_or("it does not run")?;
        let _input = replica.stdin.take(); // if it closed, the replica would end without a signal
        let id = replica.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(id.ok_or_else(|| format!("{name} has ended before"))?, how)?;
        Ok(timeout(PATIENCE, replica.wait()).await.map_err(|_| format!("{name} does not end"))??)
    }

    async fn terminate(&mut self, name: &str) -> Fallible<()> {
        let status = self.end(name, Signal::TERM).await?;
        if status.success() { Ok(()) } else { Err(format!("{name} after SIGTERM: {status}").into()) }
    }

    /// All objects, and whether each has a right status.
    async fn look(&mut self) -> Fallible<(Vec<DynamicObject>, bool)> {
        let objects = self.objects.list(&ListParams::default().labels(SELECTOR)).await?.items;
        objects.iter().try_for_each(|object| self.tokens.observe(object))?;
        for (name, replica) in &mut self.replicas {
            if let Some(status) = replica.try_wait()? {
                return Err(format!("{name} has ended: {status}").into());
            }
        }
        let right = objects.iter().filter(|object| Status::is_right(object)).count();
        let all = objects.len() == OBJECTS && right == OBJECTS;
        Ok((objects, all))
    }

    async fn until_right(&mut self, then: &str) -> Fallible<()> {
        let start = Instant::now();
        loop {
            let (objects, right) = self.look().await?;
            if right {
                self.say(format_args!("{then} (last writers: {:?})", writers(&objects)));
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let wrong = objects.iter().filter(|object| !Status::is_right(object)).count();
                return Err(format!("{wrong} of {} statuses are wrong after {PATIENCE:?}", objects.len()).into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Changes objects until each replica has written the status of one.
    async fn until_all_take_part(&mut self) -> Fallible<()> {
        let start = Instant::now();
        loop {
            let (objects, _) = self.look().await?;
            if writers(&objects).len() == self.replicas.len() {
                return self.until_right("each replica has its part").await;
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("after {PATIENCE:?} a replica has done nothing: {:?}", writers(&objects)).into());
            }
            self.change(20).await?;
            sleep(Duration::from_millis(200)).await;
        }
    }
}
