#!/usr/bin/env bash
# Formatting of the crate and of the packages beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for package in . loom-tests fuzz benches benches/instructions; do
    cargo fmt --manifest-path "$package/Cargo.toml" --check
done
