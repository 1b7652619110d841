#!/usr/bin/env bash
# Uses all features at once for SOAK_SECONDS (default 30), with counts that must add up: benches/tests/soak.rs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
soak=(--locked --release -p keyqueue-benches --test soak)
cargo test "${soak[@]}" --no-run
# The time limit makes a program that hangs at its end a failure.
seconds="${SOAK_SECONDS:-30}"
SOAK_SECONDS="$seconds" timeout $((seconds + 300)) cargo test "${soak[@]}"
