//! An operator with several replicas: a kube-rs watch, a fleet, a queue and workers in each. Every object has one replica at a time.
//!
//! ```text
//! cargo run -p operator                                # a stand-in API server, three replicas, a kill
//! KUBECONFIG=~/.kube/config cargo run -p operator      # the same on a cluster, in its default namespace
//! operator --replica $POD_NAME [--kind apps/v1/Deployment]                           # one replica, until SIGTERM
//! ```
//!
//! ```text
//!   watch ──event──▶ reflector's store ──then──▶ fleet.add(key) ──▶ queue ──▶ worker ──▶ status annotation: checksum, replica, token
//!                           ▲                                                                │
//!   Event::Acquired ────────┘ list the partition's objects, and add them                     └── PATCH with resourceVersion
//! ```
//!
//! * `replica.rs`: what one replica does. `status.rs`: what it writes, and how a write carries the token.
//! * `story.rs`: the first process, which starts the others, kills one, and checks the result. `cluster.rs`: which server and which objects.

mod cluster;
mod replica;
mod status;
mod story;

use std::error::Error;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name).map(|_| arguments.next().unwrap_or_default())
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let Some(name) = option("--replica") else { return story::run().await };
    let kind = cluster::kind(&option("--kind").unwrap_or_else(|| "v1/ConfigMap".to_owned()))?;
    let client = cluster::client(option("--server").as_deref()).await?;
    let ended = replica::run(client, kind, &name).await;
    if let Err(error) = &ended {
        eprintln!("{name}: {error}");
    }
    std::process::exit(i32::from(ended.is_err())) // without waiting for a thread that reads the standard input
}
