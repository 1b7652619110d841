#!/usr/bin/env bash
# The README's test command; the tests that need a feature that is off by default; and those with threads once more in release, where
# threads contend more often and debug assertions are off. The first command alone runs the unit tests of one thread (`key`, `machine`,
# `order`), which are the same with all features. `ci/test.sh --quick`: the README's command alone, with short lives. `--bare`: the tests that
# need no feature, without any. `--ignored`: what is too large for each change, and all tests in release (ci/reference.sh crosses the features
# in release on each change).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A time limit, because a lost wake-up makes a test hang. (macOS has no command `timeout`, and that of Windows is another program.)
limited() {
    if timeout --version >/dev/null 2>&1; then timeout 900 "$@"; else "$@"; fi
}
threads=(--skip key:: --skip machine:: --skip order::)
case "${1:-}" in
    --quick)
        export MACHINE_WORDS=2 REFERENCE_WORDS=2 REFERENCE_SECONDS=0 # ci/reference.sh --quick has longer lives
        limited cargo test
        exit
        ;;
    --ignored)
        limited cargo test --locked --release --test groups -- --ignored --nocapture # ten million groups: a minute, and 2 GB
        limited cargo test --locked --release --lib --tests
        exit
        ;;
    --bare)
        # (-p: the others of the root's packages ask for the default features.)
        limited cargo test --locked -p keyqueue --no-default-features --lib --test limits --test limiters_in_use --test traces \
            --test metric_traces --test queue --test shards --test against_reference --test workers
        exit
        ;;
esac
limited cargo test
# All but `std-lock`, which has a script of its own: the queue's own lock is what is tested here.
limited cargo test --locked -p keyqueue --features metrics,serde,stream,tokio,tracing --lib --test workers --test worker_panics --test observers \
    --test serde --test streams --test gives_way -- "${threads[@]}"
limited cargo test --locked -p keyqueue --all-features --doc
limited cargo test --locked --release --lib --test queue --test stress --test workers --test worker_panics --test wait_idle \
    --test delays_driver --test delays_stress --test idle -- "${threads[@]}"
