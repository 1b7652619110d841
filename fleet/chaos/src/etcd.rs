//! Servers of etcd on the loopback, in a folder that is deleted at the end.

use crate::tied;
use std::error::Error;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

pub struct Etcd {
    pub clients: Vec<String>,
    servers: Vec<Child>,
    /// Deleted last.
    _folder: TempDir,
}

/// Ports that were free a moment ago.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

impl Etcd {
    /// Starts the servers, and waits until each accepts connections.
    pub async fn start(servers: usize) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let ports = free_ports(servers * 2)?;
        let (ports, peers) = ports.split_at(servers);
        let peer = |i: usize| format!("http://127.0.0.1:{}", peers[i]);
        let cluster = (0..servers).map(|i| format!("s{i}={}", peer(i))).collect::<Vec<_>>().join(",");
        let mut children = Vec::new();
        for (i, port) in ports.iter().enumerate() {
            let client = format!("http://127.0.0.1:{port}");
            let peer = peer(i);
            let child = tied::command("etcd")?
                .args(["--name", &format!("s{i}"), "--data-dir"])
                .arg(folder.path().join(format!("s{i}")))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &cluster, "--initial-cluster-state", "new"])
                .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            children.push(child);
        }
        let clients: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut etcd = Self { clients: clients.clone(), servers: children, _folder: folder };
        let start = Instant::now();
        for client in &clients {
            while TcpStream::connect(client).await.is_err() {
                etcd.look()?;
                if start.elapsed() > Duration::from_secs(30) {
                    return Err("etcd does not accept connections after 30 seconds".into());
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        sleep(Duration::from_secs(2)).await; // the election
        etcd.look()?;
        Ok(etcd)
    }

    /// Whether all servers run.
    pub fn look(&mut self) -> Result<(), Box<dyn Error>> {
        for (i, server) in self.servers.iter_mut().enumerate() {
            if let Some(status) = server.try_wait()? {
                return Err(
                    format!("server {i} of etcd has ended by itself (Debian has it in etcd-server): {status}").into()
                );
            }
        }
        Ok(())
    }

    /// The process of a server.
    pub fn pid(&self, server: usize) -> Option<rustix::process::Pid> {
        self.servers.get(server)?.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32))
    }
}
