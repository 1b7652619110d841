#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (default 30) on stable. Without a sanitizer, because that gives about three times the executions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
targets="$(cargo fuzz list)"
[ -n "$targets" ] || { echo "no fuzz targets"; exit 1; }
for target in $targets; do
    # The fuzzer writes new inputs to the first directory, so a run does not change the committed corpus.
    mkdir "$work/$target"
    cargo fuzz run -s none "$target" "$work/$target" "fuzz/corpus/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-30}" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1
done
