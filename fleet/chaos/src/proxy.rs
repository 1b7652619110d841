//! A TCP proxy that can be stopped, and slowed down: connections stay open, and nothing passes, in one direction or both.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// What the proxy does with bytes of one direction.
#[derive(Debug, Default)]
pub struct Direction {
    stopped: AtomicBool,
    delay_ms: AtomicU64,
}

impl Direction {
    pub fn stop(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

pub struct Proxy {
    pub address: String,
    /// What the replica says to etcd.
    pub requests: Arc<Direction>,
    /// What etcd says to the replica.
    pub answers: Arc<Direction>,
    task: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Listens on a free port. Each connection goes to one of `targets`.
    pub async fn start(targets: Vec<String>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (requests, answers) = (Arc::<Direction>::default(), Arc::<Direction>::default());
        let (to, fro) = (requests.clone(), answers.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((replica, _)) = listener.accept().await {
                let target = targets[fastrand::usize(..targets.len())].clone();
                let (to, fro) = (to.clone(), fro.clone());
                connections.spawn(async move {
                    let Ok(etcd) = TcpStream::connect(target).await else { return };
                    let ((from_replica, to_replica), (from_etcd, to_etcd)) = (replica.into_split(), etcd.into_split());
                    tokio::select! {
                        _ = pass(from_replica, to_etcd, to) => {}
                        _ = pass(from_etcd, to_replica, fro) => {}
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        })
        .abort_handle();
        Ok(Self { address, requests, answers, task })
    }

    /// Stops both directions, or lets both pass.
    pub fn cut(&self, cut: bool) {
        self.requests.stop(cut);
        self.answers.stop(cut);
    }

    /// Both directions take this much longer.
    pub fn delay(&self, delay: Duration) {
        self.requests.delay(delay);
        self.answers.delay(delay);
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Arc<Direction>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        let delay = direction.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            sleep(Duration::from_millis(delay)).await;
        }
        while direction.stopped.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(5)).await;
        }
        to.write_all(&buffer[..n]).await?;
    }
}
