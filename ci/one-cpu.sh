#!/usr/bin/env bash
# The tests with threads on one CPU, where a thread that spins while it waits for another becomes visible. The unit tests of one thread
# (`key`, `machine`, `order`) are left out. Those of `order` follow on all CPUs: they try many more cases in this build than in one for
# debugging.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v taskset >/dev/null || { echo "skipped: taskset is not installed"; exit 0; }
tests=(--lib --test stress --test queue --test client_go --test workers --test wait_idle --test delays_driver --test delays_stress)
cargo test --locked --release --no-run "${tests[@]}"
timeout 600 taskset -c 0 cargo test --locked --release "${tests[@]}" -- --skip key:: --skip machine:: --skip order::
timeout 600 cargo test --locked --release --lib order::
