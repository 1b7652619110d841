#!/usr/bin/env bash
# The README's test command; what needs a feature that is not on by default; the tests once more in release, where threads meet more
# often and debug assertions are gone; and what there is without any feature.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# With a limit: a lost wake-up is a test that never ends. (macOS has no such command, and Windows has another of that name.)
limited() {
    if timeout --version >/dev/null 2>&1; then timeout 900 "$@"; else "$@"; fi
}
limited cargo test
limited cargo build --locked --all-features --example reconcile # for `dashboard`, which runs it
limited cargo test --locked --all-features --lib --test dashboard --test workers --test worker_panics --test observers \
    --test auto_traits
limited cargo test --locked --all-features --doc
limited cargo test --locked --release --lib --test queue --test client_go --test traces --test metric_traces --test stress \
    --test memory --test model --test limits --test backoff --test workers --test worker_panics --test observers --test wait_idle \
    --test delays_driver --test delays_large --test delays_stress --test idle
limited cargo test --locked --no-default-features --lib --test limits --test traces --test metric_traces --test queue --test workers
