#!/usr/bin/env bash
# Runs the small examples; each checks its own result. (`reconcile` and `crawler` have tests of their own.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for example in debounce periodic retry_with_reasons; do
    echo "--- $example"
    cargo run --locked --quiet --example "$example"
done
echo "--- top"
cargo run --locked --quiet --example top -- --frames 3
echo "--- service"
cargo run --locked --quiet --features metrics --example service -- --self-test
echo "--- controller"
timeout="$(command -v timeout >/dev/null && echo "timeout 300" || true)" # a controller that misses an event would wait for ever
$timeout cargo run --locked --quiet --manifest-path examples/controller/Cargo.toml
