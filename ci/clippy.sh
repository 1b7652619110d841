#!/usr/bin/env bash
# Clippy on every package, warnings are errors. `ci/clippy.sh --core`: on the crate and the example of the README alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo clippy --locked --all-targets --all-features -- -D warnings
# The others of the root's packages ask for the default features.
cargo clippy --locked -p keyqueue --all-targets --no-default-features -- -D warnings
[ "${1:-}" != --core ] || exit 0
# The other packages. (fleet-chaos needs protoc: ci/fleet-etcd.sh has it.)
cargo clippy --locked --workspace --exclude keyqueue --exclude fleet-chaos --all-targets --features keyqueue-fleet/kube,keyqueue-fleet/mutants -- -D warnings
cargo clippy --locked -p keyqueue-fleet --lib -- -D warnings
for package in benches/instructions fuzz; do
    (cd "$package" && cargo clippy --locked --all-targets -- -D warnings)
done
(cd loom-tests && RUSTFLAGS="--cfg loom" cargo clippy --locked --all-targets -- -D warnings)
