#!/usr/bin/env bash
# Runs the examples; each checks its own result, or this script looks at what it prints.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
timeout="$(command -v timeout >/dev/null && echo "timeout 300" || true)" # a controller that misses an event would wait without end
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
# prints TEXT: within 30 seconds the example has printed a line that matches.
prints() {
    for _ in $(seq 300); do
        ! grep -q -- "$1" "$folder/out" || return 0
        sleep 0.1
    done
    echo "it does not print $1, but:" && cat "$folder/out" && return 1
}
for example in debounce periodic retry_with_reasons; do
    echo "--- $example"
    cargo run --locked --quiet --example "$example"
done
echo "--- reconcile"
mkdir -p "$folder/tree/sub" && echo one > "$folder/tree/one" && echo two > "$folder/tree/sub/two"
reconcile=(cargo run --locked --quiet --example reconcile -- "$folder/tree")
"${reconcile[@]}" --once | tee "$folder/out"
prints '^2 files, 4 runs'
prints '^0 retried, 0 given up, 0 delayed'
"${reconcile[@]}" > "$folder/out" & # cargo becomes the example
prints '^new .*sub/two: 4 bytes'
echo changed > "$folder/tree/one" && prints '^changed .*one: 8 bytes'
rm "$folder/tree/one" && prints '^gone .*one'
kill -INT $! && wait $!
prints '^1 files' # and it has ended well
echo "--- crawler"
cargo run --locked --quiet -p crawler > "$folder/out" && prints '^720 pages'
cargo run --locked --quiet -p crawler -- --chaos > "$folder/out" && prints '^0 left'
echo "--- top"
cargo run --locked --quiet -p top -- --frames 3
cargo run --locked --quiet -p top -- --picture "$folder/out"
for panel in "queued keys" "times, last 5.0 s" "processing keys" "delays to come" "keys that fail most" "29 s ago"; do
    prints ">$panel</text>"
done
echo "--- service"
cargo run --locked --quiet -p service -- --self-test
echo "--- controller"
cargo build --locked -p controller
$timeout cargo run --locked --quiet -p controller
