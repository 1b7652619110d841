#!/usr/bin/env bash
# Runs the examples; each checks its own result. (`reconcile`, `crawler` and `top` have tests of their own.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
timeout="$(command -v timeout >/dev/null && echo "timeout 300" || true)" # a controller that misses an event would wait without end
cargo test --locked -p crawler -p top
for example in debounce periodic retry_with_reasons; do
    echo "--- $example"
    cargo run --locked --quiet --example "$example"
done
echo "--- top"
cargo run --locked --quiet -p top -- --frames 3
echo "--- service"
cargo run --locked --quiet -p service -- --self-test
echo "--- controller"
cargo build --locked -p controller
$timeout cargo run --locked --quiet -p controller
