#!/usr/bin/env bash
# Runs the loom models of loom-tests/, after a check that each has a row in loom-tests/README.md, and each row a model.
#
#   ci/loom.sh [<argument of the tests>...]   all models with two preemptions, and those of the lock with three: what they were seen to
#                                             find, they find with these
#   ci/loom.sh --main                         the files `adds`, `waiting` and `shutdown`
#   ci/loom.sh --deep                         all models with three preemptions: six minutes
#
# LOOM_MAX_PREEMPTIONS and LOOM_TIMEOUT (seconds for the build, and for each model: 900, with --deep 3600) may be set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Set here because the environment overrides .cargo/config.toml: a RUSTFLAGS of the caller cannot turn the models off.
export RUSTFLAGS="--cfg loom"
files=() timeout="${LOOM_TIMEOUT:-900}"
case "${1:-}" in
    --main) files=(adds waiting shutdown) && shift ;;
    --deep) export LOOM_MAX_PREEMPTIONS=3 CARGO_PROFILE_TEST_OPT_LEVEL=3 timeout="${LOOM_TIMEOUT:-3600}" && shift ;;
esac
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cd loom-tests

# `file model`, sorted: a model is the first function after `#[test]`, and a file's rows follow its name in bold.
models="$(awk '
    FNR == 1 { file = FILENAME; gsub(/.*\/|\.rs$/, "", file) }
    /^#\[test\]/ { test = 1 }
    test && /^fn / { sub(/^fn /, ""); sub(/\(.*/, ""); print file, $0; test = 0 }' tests/*.rs | LC_ALL=C sort)"
rows="$(awk -F '`' '/^\| \*\*`/ { file = $2 } /^\| `/ && file { print file, $2 }' README.md | LC_ALL=C sort)"
[ -n "$models" ] || { echo "no models found in loom-tests/tests/"; exit 1; }
if ! diff <(echo "$models") <(echo "$rows"); then
    echo "the lines above differ: < is a model without a row in loom-tests/README.md, > a row without a model"
    exit 1
fi

# With arguments: the models that they choose.
if [ "$#" -gt 0 ]; then
    timeout --kill-after=10 "$timeout" cargo test --locked --tests -- "$@" 2>&1 | tee "$work/all"
    grep -q '^test result: ok\. [1-9]' "$work/all"
    exit
fi

# A process for each model, as many at once as there are CPUs: threads of one process wait for each other when loom maps and unmaps its
# stacks. Those of the lock come first, as they take longest.
[ ${#files[@]} = 0 ] || models="$(grep -E "^($(IFS='|' && echo "${files[*]}")) " <<<"$models")"
run() {
    local start=$SECONDS program="$work/program_models" model="$1::$2"
    [ "$1" != fleet_gate ] || program="$work/program_fleet_gate" model="$2"
    [ "$1" != lock ] || [ "$LOOM_MAX_PREEMPTIONS" -gt 3 ] || export LOOM_MAX_PREEMPTIONS=3
    timeout --kill-after=10 "$timeout" "$program" --exact "$model" >"$work/$1-$2" 2>&1 && grep -q '^test result: ok\. 1 passed' "$work/$1-$2" ||
        { cat "$work/$1-$2"; echo "FAILED $1::$2"; return 1; }
    echo "$1::$2, $((SECONDS - start)) s"
}
CARGO_TERM_COLOR=never timeout --kill-after=10 "$timeout" cargo test --locked --test models --test fleet_gate --no-run 2>&1 | tee "$work/build"
while read -r name program; do ln -s "$(realpath "$program")" "$work/program_$name"; done \
    < <(sed -n 's|.*Executable tests/\(.*\)\.rs (\(.*\))$|\1 \2|p' "$work/build")
export -f run && export timeout work
{ grep '^lock ' <<<"$models" || true; grep -v '^lock ' <<<"$models"; } | xargs -P "$(getconf _NPROCESSORS_ONLN)" -n 2 bash -c 'run "$@"' -
echo "loom: $(wc -l <<<"$models") models passed"
