//! A TCP proxy that can be stopped: connections stay open, and nothing passes, in one direction or both.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

pub struct Proxy {
    pub address: String,
    /// What the replica says does not arrive.
    pub requests_stopped: Arc<AtomicBool>,
    /// What etcd says does not arrive.
    pub answers_stopped: Arc<AtomicBool>,
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
        let requests_stopped = Arc::new(AtomicBool::new(false));
        let answers_stopped = Arc::new(AtomicBool::new(false));
        let (requests, answers) = (requests_stopped.clone(), answers_stopped.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((replica, _)) = listener.accept().await {
                let target = targets[fastrand::usize(..targets.len())].clone();
                let (requests, answers) = (requests.clone(), answers.clone());
                connections.spawn(async move {
                    let Ok(etcd) = TcpStream::connect(target).await else { return };
                    let ((from_replica, to_replica), (from_etcd, to_etcd)) = (replica.into_split(), etcd.into_split());
                    tokio::select! {
                        _ = pass(from_replica, to_etcd, requests) => {}
                        _ = pass(from_etcd, to_replica, answers) => {}
                    }
                });
            }
        })
        .abort_handle();
        Ok(Self { address, requests_stopped, answers_stopped, task })
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    stopped: Arc<AtomicBool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        while stopped.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(10)).await;
        }
        to.write_all(&buffer[..n]).await?;
    }
}
