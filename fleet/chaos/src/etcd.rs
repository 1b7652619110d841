//! Servers of etcd on the loopback, in a folder that is deleted at the end.

use std::error::Error;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

pub struct Etcd {
    pub clients: Vec<String>,
    servers: Vec<Child>,
    /// Deleted last.
    _folder: TempDir,
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Etcd {
    /// Starts the servers, and waits until each accepts connections.
    pub async fn start(servers: usize) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let mut ports = Vec::new();
        for _ in 0..servers {
            ports.push((free_port()?, free_port()?));
        }
        let peer = |i: usize| format!("http://127.0.0.1:{}", ports[i].1);
        let cluster = (0..servers).map(|i| format!("s{i}={}", peer(i))).collect::<Vec<_>>().join(",");
        let mut children = Vec::new();
        for (i, (port, _)) in ports.iter().enumerate() {
            let client = format!("http://127.0.0.1:{port}");
            let peer = peer(i);
            let child = Command::new("etcd")
                .args(["--name", &format!("s{i}"), "--data-dir"])
                .arg(folder.path().join(format!("s{i}")))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &cluster, "--initial-cluster-state", "new"])
                .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| format!("etcd cannot be started (Debian has it in etcd-server): {error}"))?;
            children.push(child);
        }
        let clients: Vec<String> = ports.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
        let start = Instant::now();
        for client in &clients {
            while TcpStream::connect(client).await.is_err() {
                if start.elapsed() > Duration::from_secs(30) {
                    return Err("etcd does not accept connections after 30 seconds".into());
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        sleep(Duration::from_secs(2)).await; // the election
        Ok(Self { clients, servers: children, _folder: folder })
    }

    /// The process of a server.
    pub fn pid(&self, server: usize) -> Option<rustix::process::Pid> {
        self.servers.get(server)?.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32))
    }
}
