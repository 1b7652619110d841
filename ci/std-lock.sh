#!/usr/bin/env bash
# The tests that depend on the lock, with `std`'s mutex in place of the queue's own (`--cfg keyqueue_std_lock`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A build folder of its own: other flags would build everything again, here and the next time without them.
export RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_std_lock" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/std-lock"
limited() {
    if timeout --version >/dev/null 2>&1; then timeout 900 "$@"; else "$@"; fi
}
cargo clippy --locked -p keyqueue --lib -- -D warnings
limited cargo test --locked -p keyqueue --no-default-features --lib --test queue --test shards --test stress --test workers --test worker_panics \
    --test delays_driver --test groups
