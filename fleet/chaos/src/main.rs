//! Replicas as real processes over a real etcd, and what may happen to them: does a key ever have two handlers?
//!
//! ```text
//!                      kill -9, SIGSTOP, SIGTERM, start again
//!   fleet-chaos ──────────────────┬──────────────┬──────────────┐
//!        │                        ▼              ▼              ▼
//!        │                    replica r0     replica r1     replica r2 …      each logs the start and the end of each run
//!        │                        │              │              │
//!        ├── stops ──────────▶ [proxy]        [proxy]        [proxy]
//!        │                        └──────────────┼──────────────┘
//!        └── stops the leader ──────────▶  etcd, one server or three
//! ```
//!
//! All write times of one clock, `CLOCK_BOOTTIME`. The checker puts the logs together: it counts runs of one key that overlap, and the
//! longest time in which a key was not run. A run that a stop of its process catches in the middle can end after its grace, whatever
//! the protocol; such overlaps are counted apart, under the conditions in `check.rs`.
//!
//! ```text
//! cargo run --release -p fleet-chaos -- --seconds 60
//! cargo run --release -p fleet-chaos -- --seconds 30 --mutant no-drain       # must find overlaps
//! cargo run --release -p fleet-chaos -- --all                                # the protocol and each mutant
//! ```
//!
//! What happens is drawn from a bag that has each kind in it, and is filled again when it is empty; a run goes on until the first bag is empty
//! at least. The protocol's run fails if runs overlap, a key is silent for 20 seconds, a partition has no owner after all is quiet, or a
//! replica ends by itself, or cannot leave. A mutant's run ends with the first overlap, and fails if none is found in eight times `--seconds`.
//!
//! It needs `etcd` (Debian: etcd-server), and Linux: what it starts ends with it, see `tied.rs`.

mod check;
mod etcd;
mod log;
mod proxy;
mod replica;
mod scenario;
mod tied;

use clap::{Parser, ValueEnum};
use keyqueue_fleet::Mutant;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser, Debug, Clone)]
#[command(about = "Tries to make two replicas process one key at a time")]
struct Options {
    /// How long things happen.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides what happens when.
    #[arg(long, default_value_t = fastrand::u64(..1_000_000))]
    seed: u64,
    #[arg(long, default_value_t = 4)]
    replicas: usize,
    #[arg(long, default_value_t = 200)]
    keys: u64,
    /// Servers of etcd: 1, or 3, of which one is stopped now and then.
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// A fault to build into the protocol: overlaps are expected then.
    #[arg(long)]
    mutant: Option<Fault>,
    /// The protocol, and then each mutant.
    #[arg(long)]
    all: bool,
    /// Run as a replica; for this program's own use.
    #[arg(long, hide = true)]
    replica: Option<String>,
    #[arg(long, hide = true, default_value = "")]
    endpoint: String,
    #[arg(long, hide = true, default_value = "")]
    log: String,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NoDeadline,
    NoDrain,
    ShortExpiry,
    NoCompare,
    DeadlineFromAnswer,
}

impl From<Fault> for Mutant {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoDeadline => Self::NoDeadline,
            Fault::NoDrain => Self::NoDrain,
            Fault::ShortExpiry => Self::ShortExpiry,
            Fault::NoCompare => Self::NoCompare,
            Fault::DeadlineFromAnswer => Self::DeadlineFromAnswer,
        }
    }
}

/// Short, so that much happens in a minute.
const LEASE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(200);
/// A record expires after this: 1.25 * (lease + grace).
const EXPIRY: Duration = Duration::from_millis(1500);
/// How late an answer is processed: others have taken over by then.
const LATE: Duration = Duration::from_millis(2500);
const PARTITIONS: u32 = 32;
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(error) = tied::exec_if_asked() {
        eprintln!("fleet-chaos: {error}");
        return ExitCode::FAILURE;
    }
    let options = Options::parse();
    if let Some(name) = &options.replica {
        let status = match replica::run(name, &options).await {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{name}: {error}");
                1
            }
        };
        std::process::exit(status); // without waiting for handlers, or for threads of the runtime
    }
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            eprintln!("fleet-chaos: {error}");
            return ExitCode::FAILURE;
        }
    };
    let verdict = tokio::select! {
        verdict = run_all(&options) => verdict,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
    };
    match verdict {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: fleet-chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The last line. A run that fails ends with an error instead.
fn verdict(runs: Option<usize>, found: &[Fault]) -> String {
    let protocol = runs.map(|runs| format!("the protocol: no overlaps in {runs} runs"));
    let faults = (!found.is_empty()).then(|| format!("each of {} built-in faults was found", found.len()));
    format!("passed: {}", protocol.into_iter().chain(faults).collect::<Vec<_>>().join("; "))
}

async fn run_all(options: &Options) -> Result<(), Box<dyn Error>> {
    let faults: Vec<Option<Fault>> = match (options.all, options.mutant) {
        (false, fault) => vec![fault],
        (true, _) => std::iter::once(None).chain(Fault::value_variants().iter().map(|fault| Some(*fault))).collect(),
    };
    let (mut runs, mut found) = (None, Vec::new());
    for mutant in faults {
        let options = Options { mutant, ..options.clone() };
        let what = mutant.map_or("the protocol: no overlaps are expected".to_owned(), |fault| {
            format!("the built-in fault {fault:?}: overlaps are expected")
        });
        println!("--- {what}; seed {}", options.seed);
        let outcome = scenario::run(&options).await?;
        println!("{outcome}");
        let report = &outcome.report;
        match mutant {
            None if report.overlaps > 0 => return Err("two handlers processed one key at a time".into()),
            None if report.runs < 1000 => return Err("too few runs to say anything".into()),
            None if outcome.unowned > 0 => return Err("partitions have no owner after all is quiet".into()),
            None if outcome.owned_twice > 0 => return Err("two replicas say that they own a partition".into()),
            None if u128::from(report.silence.0) > LONGEST_SILENCE.as_nanos() => {
                return Err(format!("key {} was silent for too long", report.silence.1).into());
            }
            None => runs = Some(report.runs),
            Some(fault) if report.overlaps == 0 => return Err(format!("the fault {fault:?} was not noticed").into()),
            Some(fault) => {
                println!("{fault:?} was found, as expected");
                found.push(fault);
            }
        }
    }
    println!("{}", verdict(runs, &found));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_says_what_was_found() {
        let all = verdict(Some(18_000), Fault::value_variants());
        assert_eq!(all, "passed: the protocol: no overlaps in 18000 runs; each of 5 built-in faults was found");
        assert_eq!(verdict(None, &[Fault::NoDrain]), "passed: each of 1 built-in faults was found");
    }
}
