#!/usr/bin/env bash
# Runs every fuzz target, and all_features once more on the lock-free engine, for FUZZ_SECONDS (default 20; with --long 600) on stable, two at a time. Without a sanitizer, because that gives
# about three times the executions. The target all_features decodes its bytes by remainders, so the values of comparisons do not guide the fuzzer
# and are not traced; on one CPU the pauses between critical sections are short; its inputs are short, but for --long, as a life takes time
# for each step; and the fuzzer keeps no account of rare features (entropic), which takes it longer than to run these lives.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
targets="$(cargo fuzz list)"
[ -n "$targets" ] || { echo "no fuzz targets"; exit 1; }
seconds=20
[ "${1:-}" != --long ] || seconds=600
export seconds="${FUZZ_SECONDS:-$seconds}" work
# run <target> [<engine>]
run() {
    # The fuzzer writes new inputs to the first directory, so a run does not change the committed corpus.
    local name="$1${2:+-$2}"
    mkdir "$work/$name"
    local before=() build=() flags=()
    if [ "$1" = all_features ]; then
        build=(--no-trace-compares)
        ! command -v taskset >/dev/null || before=(taskset -c "$(taskset -cp $$ | sed 's/.*[ ,-]//')")
        flags=(-entropic=0)
        [ "$seconds" -ge 600 ] || flags+=(-max_len=80)
    fi
    REFERENCE_ENGINE="${2:-}" "${before[@]}" cargo fuzz run -s none "${build[@]}" "$1" "$work/$name" "fuzz/corpus/$1" -- \
        -max_total_time="$seconds" "${flags[@]}" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 >"$work/$name.log" 2>&1 &&
        echo "$name: $(awk '/number_of_executed_units/ { print $2 }' "$work/$name.log") inputs" || { cat "$work/$name.log"; return 1; }
}
export -f run
cargo fuzz build -s none
cargo fuzz build -s none --no-trace-compares all_features
xargs -P 2 -L 1 bash -c 'run "$@"' _ <<<"$targets
all_features lock-free"
