//! Servers of etcd with users, whose tokens end: after their time to live, when users change, when etcd starts again.

use crate::common::within;
use keyqueue::WorkQueue;
use keyqueue_fleet::Fleet;
use keyqueue_fleet::etcd_client::{Client, ConnectOptions, Permission};
use keyqueue_fleet::store::{EtcdStore, Store};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const PREFIX: &str = "/fleet/";
const LEASE: Duration = Duration::from_secs(3);

/// Servers of one cluster, on the loopback. Killed and deleted at the end.
struct Servers {
    folder: PathBuf,
    ports: Vec<[u16; 2]>,
    tokens: String,
    processes: Vec<Child>,
}

impl Servers {
    async fn start(name: &str, count: usize, tokens: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("etcd-auth-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let secret = folder.join("secret");
        std::fs::write(&secret, "not a secret at all, and long enough").unwrap();
        let tokens = tokens.replace("SECRET", secret.to_str().unwrap());
        let free: Vec<_> = (0..count).map(|_| [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap())).collect();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let ports = free.iter().map(|two| two.each_ref().map(port)).collect();
        drop(free);
        let mut servers = Self { folder, ports, tokens, processes: Vec::new() };
        servers.processes = (0..count).map(|i| servers.spawn(i)).collect();
        servers.set_up_users().await;
        servers
    }

    fn spawn(&self, i: usize) -> Child {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let [client, peer] = self.ports[i].map(url);
        let cluster = self.ports.iter().enumerate().map(|(i, ports)| format!("s{i}={}", url(ports[1])));
        Command::new("etcd")
            .args(["--name", &format!("s{i}"), "--data-dir"])
            .arg(self.folder.join(format!("s{i}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.collect::<Vec<_>>().join(","), "--auth-token", &self.tokens])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.folder.join(format!("log-{i}"))).unwrap())
            .spawn()
            .expect("etcd (Debian has it in etcd-server)")
    }

    fn endpoints(&self) -> Vec<String> {
        self.ports.iter().map(|ports| format!("http://127.0.0.1:{}", ports[0])).collect()
    }

    async fn client(&self, user: Option<(&str, &str)>) -> Client {
        let options = user.map(|(name, password)| ConnectOptions::new().with_user(name, password));
        Client::connect(self.endpoints(), options).await.unwrap()
    }

    /// `root`, and `fleet`, which may read and write the prefix.
    async fn set_up_users(&self) {
        let begin = Instant::now();
        for endpoint in self.endpoints() {
            // Of three servers, two answer before the third one listens.
            while Client::connect([&endpoint], None).await.unwrap().kv_client().get("x", None).await.is_err() {
                assert!(begin.elapsed() < Duration::from_secs(20), "etcd does not answer: see {:?}", self.folder);
                sleep(Duration::from_millis(50)).await;
            }
        }
        let client = self.client(None).await;
        let mut auth = client.auth_client();
        for user in ["root", "fleet"] {
            auth.user_add(user, "password", None).await.unwrap();
            auth.role_add(user).await.unwrap();
            auth.user_grant_role(user, user).await.unwrap();
        }
        auth.role_grant_permission("fleet", Permission::read_write(PREFIX).with_prefix()).await.unwrap();
        auth.auth_enable().await.unwrap();
    }

    /// All tokens are of an old revision then.
    async fn add_a_user(&self, name: &str) {
        let root = self.client(Some(("root", "password"))).await;
        root.auth_client().user_add(name, "password", None).await.unwrap();
    }

    /// Its simple tokens are gone then.
    fn restart(&mut self, i: usize) {
        self.processes[i].kill().unwrap();
        self.processes[i].wait().unwrap();
        self.processes[i] = self.spawn(i);
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for process in &mut self.processes {
            _ = process.kill();
            _ = process.wait();
        }
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn join(servers: &Servers, name: &str) -> Fleet<u64> {
    let options = EtcdStore::options().with_user("fleet", "password");
    let store = EtcdStore::connect_with(servers.endpoints(), options, PREFIX).await.unwrap();
    let fleet = Fleet::builder(store).member(name).partitions(16).lease(LEASE).grace(LEASE / 4);
    fleet.build(WorkQueue::<u64>::new()).await.unwrap()
}

/// Each partition has an owner, who hands out its keys, and sees the others.
fn all_work(fleets: &[Fleet<u64>]) -> bool {
    let works = |fleet: &Fleet<u64>| {
        let stats = fleet.stats();
        stats.members == fleets.len() && stats.owned == stats.wanted && stats.time_to_deadline > LEASE / 3
    };
    fleets.iter().all(works) && fleets.iter().map(|fleet| fleet.stats().owned).sum::<usize>() == 16
}

/// For longer than a lease, and no member was lost.
async fn all_go_on(fleets: &[Fleet<u64>], after: &str) {
    within(5 * LEASE, || all_work(fleets)).await;
    let begin = Instant::now();
    while begin.elapsed() < LEASE * 3 / 2 {
        for fleet in fleets {
            let stats = fleet.stats();
            assert!(stats.time_to_deadline > Duration::ZERO && stats.lost == 0, "after {after}: {stats:?}");
        }
        sleep(Duration::from_millis(20)).await;
    }
    println!("after {after}: {:?}", fleets[0].stats());
}

async fn goes_on_when_tokens_end(servers: &mut Servers) {
    let mut fleets = vec![join(servers, "a").await, join(servers, "b").await];
    all_go_on(&fleets, "the start and the tokens' time to live").await;
    servers.add_a_user("somebody").await;
    all_go_on(&fleets, "a user was added").await;
    for i in 0..servers.ports.len() {
        servers.restart(i);
        sleep(Duration::from_millis(1500)).await;
    }
    all_go_on(&fleets, "a restart").await;
    fleets.push(join(servers, "c").await); // the others' watches tell them
    all_go_on(&fleets, "a join").await;
    servers.add_a_user("somebody-else").await;
    for fleet in fleets {
        tokio::time::timeout(LEASE, fleet.leave()).await.expect("it leaves");
    }
}

#[tokio::test]
async fn etcd_with_simple_tokens() {
    if skipped() {
        return;
    }
    goes_on_when_tokens_end(&mut Servers::start("simple", 1, "simple").await).await;
}

/// A server that has started again knows no token, and the others do: what helps at one server must not harm at another.
#[tokio::test]
async fn etcd_with_three_servers() {
    if skipped() {
        return;
    }
    goes_on_when_tokens_end(&mut Servers::start("three", 3, "simple").await).await;
}

#[tokio::test]
async fn etcd_with_tokens_of_two_seconds() {
    if skipped() {
        return;
    }
    let tokens = "jwt,priv-key=SECRET,sign-method=HS256,ttl=2s";
    goes_on_when_tokens_end(&mut Servers::start("jwt", 1, tokens).await).await;
}

/// A password that is wrong: an error, and not a check of the password for each request.
#[tokio::test]
async fn etcd_with_a_password_that_changes() {
    if skipped() {
        return;
    }
    let servers = Servers::start("password", 1, "simple").await;
    let wrong = EtcdStore::options().with_user("fleet", "wrong");
    let error = EtcdStore::connect_with(servers.endpoints(), wrong, PREFIX).await.unwrap_err();
    assert!(error.to_string().starts_with("etcd: connect: "), "{error}");

    let (endpoints, passwords, calls) =
        (servers.endpoints(), ["password", "wrong", "new"], Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let connect = move || {
        let password = passwords[count.fetch_add(1, Ordering::Relaxed)];
        let (endpoints, options) = (endpoints.clone(), EtcdStore::options().with_user("fleet", password));
        async move { Client::connect(endpoints, Some(options)).await }
    };
    let store = EtcdStore::connect_by(connect, PREFIX).await.unwrap();
    store.read("owners").await.unwrap();
    let root = servers.client(Some(("root", "password"))).await;
    root.auth_client().user_change_password("fleet", "new").await.unwrap();
    let begin = Instant::now();
    while store.read("owners").await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// The first client never gets an answer, as one whose certificate has ended.
#[tokio::test]
async fn etcd_that_does_not_answer_a_client() {
    if skipped() {
        return;
    }
    let servers = Servers::start("silent", 1, "simple").await;
    let endpoints = ["http://127.0.0.1:1".to_owned(), servers.endpoints().remove(0)];
    let calls = AtomicUsize::new(0);
    let connect = move || {
        let endpoint = endpoints[calls.fetch_add(1, Ordering::Relaxed).min(1)].clone();
        let options = EtcdStore::options();
        let options = if endpoint.ends_with(":1") { options } else { options.with_user("fleet", "password") };
        async move { Client::connect([endpoint], Some(options)).await }
    };
    let store = EtcdStore::connect_by(connect, PREFIX).await.unwrap();
    let begin = Instant::now();
    while store.read("owners").await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(100)).await;
    }
    assert!(begin.elapsed() >= Duration::from_secs(5), "{:?}", begin.elapsed());
}

fn skipped() -> bool {
    let skipped = std::env::var_os("FLEET_ETCD").is_none();
    if skipped {
        println!("skipped: FLEET_ETCD names no server");
    }
    skipped
}
