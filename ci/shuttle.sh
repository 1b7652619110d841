#!/usr/bin/env bash
# Runs the tests of loom-tests/shuttle/: queues with eight shards and eight threads, in random orders. SHUTTLE_ITERATIONS (orders of each
# test, default 20000) may be set; arguments go to the tests. A failure prints a schedule, and how to run it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../loom-tests/shuttle"
export RUSTFLAGS="--cfg loom" SHUTTLE_ITERATIONS="${SHUTTLE_ITERATIONS:-20000}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
timeout --kill-after=10 900 cargo test --locked --test shards -- "$@" 2>&1 | tee "$log"
grep -q '^test result: ok\. [1-9]' "$log" || { echo "no test has run"; exit 1; }
