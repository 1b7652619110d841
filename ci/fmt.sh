#!/usr/bin/env bash
# The crate and the packages beside it are formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for package in . loom-tests loom-tests/shuttle loom-tests/shuttle/loom fuzz benches benches/common benches/matrix benches/instructions examples/controller fleet fleet/chaos fleet/operator; do
    cargo fmt --manifest-path "$package/Cargo.toml" --check
done
