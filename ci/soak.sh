#!/usr/bin/env bash
# Uses all features at once for SOAK_SECONDS (default 30), with counts that must add up: benches/src/bin/soak.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
soak=(--locked --no-default-features --release -p keyqueue-benches --bin soak)
cargo build "${soak[@]}"
# The time limit makes a program that hangs at its end a failure.
seconds="${SOAK_SECONDS:-30}"
timeout $((seconds + 300)) cargo run "${soak[@]}" -- --minutes "$(awk "BEGIN { print $seconds / 60 }")"
