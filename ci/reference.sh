#!/usr/bin/env bash
# All features against the one reference, in release: random lives for a minute, and all lives of four steps over four alphabets. With
# --long an hour, and six steps. REFERENCE_SECONDS and REFERENCE_WORDS have the same effect. A failure names its life: REFERENCE_SEED.
# Then threads side by side, in a build whose critical sections are numbered, for 20 seconds; with --long five minutes (KEYQUEUE_STRESS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=60 words=4 stress=20
[ "${1:-}" != --long ] || { seconds=3600 words=6 stress=300; }
# Other lives at each run.
export REFERENCE_SECONDS="${REFERENCE_SECONDS:-$seconds}" REFERENCE_WORDS="${REFERENCE_WORDS:-$words}" REFERENCE_SEED="${REFERENCE_SEED:-$(date +%s)000000}"
echo "from life $REFERENCE_SEED on"
cargo test --locked --release -p keyqueue --test against_reference -- --nocapture
export KEYQUEUE_STRESS="${KEYQUEUE_STRESS:-$stress}" RUSTC_WORKSPACE_WRAPPER="$PWD/ci/rustc-with-steps"
cargo test --locked --release -p keyqueue --test stress -- --nocapture
