#!/usr/bin/env bash
# The benchmarks compile, and each runs once. What they measure is nobody's test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../benches"
cargo bench --locked -- --test
cargo run --locked --release --bin report -- --rounds 1 --ops 20000 --wakes 50 --delays 20000 >/dev/null
