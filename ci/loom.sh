#!/usr/bin/env bash
# Runs the loom models of loom-tests/. LOOM_MAX_PREEMPTIONS (default 3) and LOOM_TIMEOUT (seconds, default 900, the build
# included) may be set; arguments go to the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# By environment, which wins over .cargo/config.toml: a RUSTFLAGS from outside cannot turn the models off.
export RUSTFLAGS="--cfg loom"
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

cd loom-tests
timeout --kill-after=10 "${LOOM_TIMEOUT:-900}" cargo test --locked --tests -- "$@" 2>&1 | tee "$log"

# Every test binary must have run something: a suite of nothing is green too.
# (If arguments have chosen some, some.)
awk -v want="$(ls tests/*.rs | wc -l)" -v chosen="$#" '
    /^test result: ok\. [1-9]/ { binaries++; passed += $4 }
    END {
        printf "loom: %d models passed, in %d of %d files\n", passed, binaries, want
        exit !(passed > 0 && (chosen > 0 || binaries == want))
    }' "$log"
