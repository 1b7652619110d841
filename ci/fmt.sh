#!/usr/bin/env bash
# All packages are formatted: those of the workspace, and those that are built apart from it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo fmt --all --check
for package in benches/instructions fuzz loom-tests; do
    cargo fmt --manifest-path "$package/Cargo.toml" --check
done
