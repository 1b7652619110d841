//! Runs each workload once with each subject and prints the workload, the subject and the nanoseconds per key, separated by tabs.
//! The binary `matrix` of the package above builds this program in several ways and runs each build round after round.

mod ours;
mod workloads;

const USAGE: &str = "usage: one-build ROUND OPS";

/// `ROUND` rotates the order of the subjects, `OPS` is the number of keys in a run.
fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).expect(USAGE);
    let (round, ops) = (number() as usize, number());
    for workload in workloads::all(ops) {
        let count = workload.subjects.len();
        for n in 0..count {
            let (subject, run) = &workload.subjects[(n + round) % count];
            println!("{}\t{subject}\t{:.2}", workload.name, run());
        }
    }
}
