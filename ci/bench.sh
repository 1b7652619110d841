#!/usr/bin/env bash
# The benchmarks compile, their own tests pass, and each runs once. The figures are not checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo bench --locked -- --test
without=(--locked -p keyqueue-benches)
# Not `--bins`: `locks` includes the lock of the crate, whose tests need the crate.
cargo test "${without[@]}" -p common -p matrix --release --lib --bin report --bin matrix --bin shards --bin one-build
cargo run --locked -p core-table --release -- "1024" 1
# One of the nine builds.
cargo run "${without[@]}" --release --bin matrix -- --builds 16-off --rounds 1 --ops 5000
cargo run "${without[@]}" --release --bin locks -- --rounds 1 --ops 5000
cargo run "${without[@]}" --release --bin late -- --rounds 1 --keys 5000 --batch 1000
report="$(mktemp -d)"
trap 'rm -rf "$report"' EXIT
cargo run "${without[@]}" --release --bin report -- --rounds 1 --ops 20000 --wakes 50 --delays 20000 --keys 10000 --write "$report"
ls "$report/BENCHMARKS.md" "$report/benches/TABLES.md" "$report"/benches/charts/*.svg
