#!/usr/bin/env bash
# The tests that depend on the lock, with `std`'s mutex in place of the queue's own (feature `std-lock`). The unit tests
# of one thread (`key`, `machine`, `order`) take no lock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
limited() {
    if timeout --version >/dev/null 2>&1; then timeout 900 "$@"; else "$@"; fi
}
cargo clippy --locked -p keyqueue --lib --features std-lock -- -D warnings
limited cargo test --locked -p keyqueue --no-default-features --features std-lock --lib --test queue --test shards --test stress --test workers \
    --test worker_panics --test delays_driver --test delays_stress --test groups -- --skip key:: --skip machine:: --skip order::
