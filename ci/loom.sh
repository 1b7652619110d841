#!/usr/bin/env bash
# Runs the loom models of loom-tests/, after a check that each has a row in loom-tests/README.md, and each row a model.
#
#   ci/loom.sh [<argument of the tests>...]   all models with two preemptions, and those of the lock with three: what they were seen to
#                                             find, they find with these
#   ci/loom.sh --main                         the files `adds`, `waiting` and `shutdown`
#   ci/loom.sh --deep                         all models with three preemptions: an hour
#
# LOOM_MAX_PREEMPTIONS and LOOM_TIMEOUT (seconds, default 1500, the build included) may be set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Set here because the environment overrides .cargo/config.toml: a RUSTFLAGS of the caller cannot turn the models off.
export RUSTFLAGS="--cfg loom"
files=() timeout="${LOOM_TIMEOUT:-1500}"
case "${1:-}" in
    --main) files=(adds waiting shutdown) && shift ;;
    --deep) LOOM_MAX_PREEMPTIONS=3 timeout="${LOOM_TIMEOUT:-7200}" && shift ;;
esac
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

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

chosen=(--tests)
[ ${#files[@]} = 0 ] || chosen=(--test models)
timeout --kill-after=10 "$timeout" cargo test --locked "${chosen[@]}" -- "${files[@]/%/::}" "$@" 2>&1 | tee "$log"

# Each model has run. (With arguments, at least one.)
[ ${#files[@]} = 0 ] || models="$(grep -E "^($(IFS='|' && echo "${files[*]}")) " <<<"$models")"
awk -v want="$(wc -l <<<"$models")" -v chosen="$#" '
    /^test result: ok\./ { passed += $4 }
    END {
        printf "loom: %d of %d models passed\n", passed, want
        exit !(passed > 0 && (chosen > 0 || passed == want))
    }' "$log"

if [ "$#" = 0 ] && [ ${#files[@]} = 0 ] && [ "$LOOM_MAX_PREEMPTIONS" -lt 3 ]; then
    LOOM_MAX_PREEMPTIONS=3 timeout --kill-after=10 "$timeout" cargo test --locked --test models -- lock:: 2>&1 | tee "$log"
    grep -q '^test result: ok\. [1-9]' "$log" # it fails if no model has this name
fi
