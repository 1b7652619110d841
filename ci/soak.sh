#!/usr/bin/env bash
# Everything at once for SOAK_SECONDS (default 30), with books that must balance: benches/src/bin/soak.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../benches"
cargo build --locked --no-default-features --release --bin soak
# With a limit: a program that hangs while it ends is a failure, too.
seconds="${SOAK_SECONDS:-30}"
timeout $((seconds + 300)) cargo run --locked --no-default-features --release --bin soak -- --minutes "$(awk "BEGIN { print $seconds / 60 }")"
