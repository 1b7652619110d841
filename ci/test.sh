#!/usr/bin/env bash
# The README's test command, and the tests once more in release, where threads meet more often and debug assertions are gone.
# The crate has no features, so this is every feature set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo test
cargo test --release --lib --test queue --test client_go --test traces --test stress --test memory --test model
