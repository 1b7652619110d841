#!/usr/bin/env bash
# The README's test command, and the tests once more in release, where threads meet more often and debug assertions are gone.
# The crate has no features, so this is every feature set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# With a limit: a lost wake-up is a test that never ends.
timeout 900 cargo test
timeout 900 cargo test --locked --release --lib --test queue --test client_go --test traces --test stress --test memory --test model \
    --test delays_driver --test delays_large --test delays_stress --test idle
