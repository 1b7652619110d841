#!/usr/bin/env bash
# All features against the one reference, in release: random lives for a minute, and all lives of four steps over four alphabets. With
# --long an hour, and six steps; then a crossing of a step, a state of a key and a setting that no life has made fails: REFERENCE_TABLE=print
# prints them all. REFERENCE_SECONDS and REFERENCE_WORDS have the same effect. A failure names its life: REFERENCE_SEED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=60 words=4
[ "${1:-}" != --long ] || { seconds=3600 words=6; export REFERENCE_TABLE="${REFERENCE_TABLE:-check}"; }
# Other lives at each run.
export REFERENCE_SECONDS="${REFERENCE_SECONDS:-$seconds}" REFERENCE_WORDS="${REFERENCE_WORDS:-$words}" REFERENCE_SEED="${REFERENCE_SEED:-$(date +%s)000000}"
echo "from life $REFERENCE_SEED on"
cargo test --locked --release -p keyqueue --test against_reference -- --nocapture
