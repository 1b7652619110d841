#!/usr/bin/env bash
# The README's test command, with all features, the tests once more in release, where threads meet more often and debug assertions
# are gone, and what there is without any feature.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# With a limit: a lost wake-up is a test that never ends.
timeout 900 cargo test
timeout 900 cargo test --locked --release --lib --test queue --test client_go --test traces --test stress --test memory --test model \
    --test limits --test backoff \
    --test delays_driver --test delays_large --test delays_stress --test idle
timeout 900 cargo test --locked --no-default-features --lib --test limits --test traces --test queue
