#!/usr/bin/env bash
# All features against the one reference: random lives, and all lives of four steps over five alphabets, for two minutes. With --quick for
# half a minute, and without a build in release: the crate alone is built with optimization. With --long six steps, for an hour in all.
# A crossing of a step, a state of a key and a setting that no life has made fails --long; REFERENCE_TABLE=print prints them all.
# Then threads side by side, in a build whose critical sections are numbered; not with --quick. KEYQUEUE_STRESS is how many seconds.
# REFERENCE_SECONDS (of random lives) and REFERENCE_WORDS have the same effect. A failure names its life: REFERENCE_SEED. Each run makes the
# same lives, from 0 on, so that it judges the change alone; --long makes new ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=100 words=4 stress=20 first=0 driven=10000 build=(--release)
case "${1:-}" in
    --quick) seconds=20 stress=0 driven=2000 build=(--config profile.dev.package.keyqueue.opt-level=2) ;;
    --long)
        seconds=2700 words=6 stress=300 driven=500000 first=$(date +%s)000000
        export REFERENCE_TABLE="${REFERENCE_TABLE:-check}"
        ;;
esac
export REFERENCE_SECONDS="${REFERENCE_SECONDS:-$seconds}" REFERENCE_WORDS="${REFERENCE_WORDS:-$words}" REFERENCE_SEED="${REFERENCE_SEED:-$first}"
echo "from life $REFERENCE_SEED on"
# One test at a time: so the words and the lives do not take each other's time.
cargo test --locked "${build[@]}" -p keyqueue --test against_reference -- --nocapture --test-threads 1
# The same with the driver thread, and with getters that expire delays, from within the crate.
DRIVEN_SEED="$REFERENCE_SEED" DRIVEN_LIVES="${DRIVEN_LIVES:-$driven}" \
    cargo test --locked --config profile.dev.package.keyqueue.opt-level=2 -p keyqueue --lib driven -- --nocapture
[ "$stress" != 0 ] || exit 0
export KEYQUEUE_STRESS="${KEYQUEUE_STRESS:-$stress}" RUSTC_WORKSPACE_WRAPPER="$PWD/ci/rustc-with-steps"
cargo test --locked --release -p keyqueue --test stress -- --nocapture
