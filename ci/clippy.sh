#!/usr/bin/env bash
# Clippy on every package; warnings are errors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo clippy --locked --all-targets --all-features -- -D warnings
cargo clippy --locked --all-targets --no-default-features -- -D warnings
for package in fuzz benches benches/instructions examples/controller fleet/operator; do
    (cd "$package" && cargo clippy --locked --workspace --all-targets -- -D warnings)
done
(cd loom-tests && RUSTFLAGS="--cfg loom" cargo clippy --locked --all-targets -- -D warnings)
(cd loom-tests/shuttle && RUSTFLAGS="--cfg loom" cargo clippy --locked --workspace --all-targets -- -D warnings)
