#!/usr/bin/env bash
# Runs scripts of this folder one after the other, and prints what each took: ci/steps.sh <script>..., each with its options in one
# argument, such as `ci/steps.sh fmt "clippy --core"`. The tiers are made of it: ci/quick.sh, .ci/run, ci/weekly.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never
# Smaller builds: a linker that finds the disk full crashes with a bus error.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_BENCH_DEBUG=none

targets=(target benches/instructions/target fuzz/target loom-tests/target)
took=""
for step; do
    read -ra command <<<"$step"
    free="$(df -Pm . | awk 'NR == 2 { print $4 }')"
    [ "$free" -gt 6000 ] || { echo "deleting the builds: $free MB are free"; rm -rf "${targets[@]}"; }
    echo "=== ci/$step"
    start=$SECONDS
    bash "ci/${command[0]}.sh" "${command[@]:1}"
    took+="$(printf '%5d s  %s' $((SECONDS - start)) "$step")"$'\n'
    echo "=== ci/$step: $((SECONDS - start)) s"
done
echo "$took"
echo "all $# steps passed in $SECONDS s; $(du -csm "${targets[@]}" 2>/dev/null | awk 'END { print $1 }' || true) MB built"
