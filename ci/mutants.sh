#!/usr/bin/env bash
# Mutation testing with cargo-mutants: changes src/ in one small way at a time, to see whether a test fails.
#
#   ci/mutants.sh                      all four groups: hours
#   ci/mutants.sh wheel                one group: state, waiting, wheel or limiters
#   ci/mutants.sh src/order/line.rs    one file: minutes
#
# Mutants that survive the quick tests of a group are run against the slow tests, and survivors of `waiting` then against the loom models. A
# mutant that hangs, or takes more processor time or memory than a test may, counts as caught. The script lists the survivors at the end;
# reports/mutations.md explains those of the last run. It changes a copy of the tree only, so you can go on working.
#
# MUTANTS_WORK: the folder of the copy and its build (1 GB), which are kept for the next run. target/mutants by default.
# MUTANTS_ARGS: further arguments of cargo-mutants, such as `--shard 0/2` or `--re next_waiter`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work="${MUTANTS_WORK:-$PWD/target/mutants}"
read -ra more <<<"${MUTANTS_ARGS:-}"

state=(src/key/*.rs src/machine/{add,claimed,done,durations,garbage,get,look,measure,mod,owed,shards,shrink,take,times}.rs
    src/order/{bits,levels,slab,table}.rs)
waiting=(src/sync/lock.rs src/wait.rs src/order/line.rs src/futures.rs src/get_async.rs src/shared/{getters,waiters,life_cycle,drain,dirty}.rs src/machine/dirty.rs)
wheel=(src/time/wheel/{mod,level,blocks,cascade}.rs src/time/driver.rs src/machine/{delays,later,expire}.rs)
limiters=(src/rate_limiter/*.rs src/backoff/*.rs src/machine/failures.rs src/shared/failures.rs)

# The tests that are likely to notice, in some seconds.
state_quick="lib against_reference"
waiting_quick="against_reference queue wait_idle workers"
wheel_quick="wheel replay_corpus against_reference"
limiters_quick="replay_corpus limiter_traces limits backoff"
# The tests that may notice, in a minute or two.
slow="lib $(cd tests && ls ./*.rs | sed 's,^\./,,; s,\.rs$,,' | grep -vE 'replay_corpus|limiter_traces' | tr '\n' ' ')"

group_of() {
    local group
    for group in state waiting wheel limiters; do
        local -n files="$group"
        [[ " ${files[*]} " != *" $1 "* ]] || { echo "$group"; return; }
    done
    echo "$1 is in no group: see $0" >&2
    return 1
}

# pass <name> <tests> <seconds for each test> <further arguments of cargo-mutants>
# Makes $out/<name>/mutants.out, and prints a summary.
pass() {
    local name="$1" seconds="$3" tests=() test
    for test in $2; do
        if [ "$test" = lib ]; then tests+=(--cargo-arg=--lib); else tests+=(--cargo-arg=--test="$test"); fi
    done
    shift 3
    mkdir -p "$out/$name"
    # The limit is processor time, which does not pass while other processes run. So it can be short, and a mutant that hangs ends soon.
    ! command -v prlimit >/dev/null || export "$runner=prlimit --cpu=$seconds --as=8000000000"
    # It exits with an error if there are survivors, so its files show whether it worked.
    cargo mutants --in-place --dir "$work/tree" --output "$out/$name" --colors never --build-timeout 300 \
        --timeout $((60 + 4 * seconds)) --cargo-arg=--locked "${tests[@]}" "${chosen[@]/#/--file=}" "$@" >"$out/$name/log" || true
    if ! grep -q '^ok .*baseline' "$out/$name/log"; then
        cat "$out/$name/log"
        echo "the tests fail without a mutation" >&2
        return 1
    fi
    (cd "$out/$name/mutants.out" && wc -l caught.txt timeout.txt unviable.txt missed.txt | sed "\$d; s/\.txt//; s/^/  $name/")
}

# One `--re` for each mutant of this list.
exactly() {
    sed -E 's/[][\.*^$+?(){}|/]/\\&/g; s/.*/--re\n^&$/' "$1"
}

# Runs the loom models against the mutant of this name. Succeeds if one of them fails.
loom_notices() {
    local file="${1%%:*}"
    cp "$work/tree/$file" "$out/original"
    printf '%s\n' "$1" >"$out/one"
    mapfile -t one < <(exactly "$out/one")
    # cargo-mutants lists some mutants whatever the filter is.
    (cd "$work/tree" && cargo mutants --list --diff --file="$file" "${one[@]}" |
        awk -v name="$1" '$0 == name { here = 1; next } here && /^$/ { exit } here' | patch --silent "$file")
    models || true
    cp "$out/original" "$work/tree/$file"
    # A failed build, for example, does not count.
    grep -qE '^test .* FAILED|panicked at|signal' "$out/loom.log"
}

models() {
    env -u "$runner" LOOM_MAX_PREEMPTIONS=2 LOOM_TIMEOUT=600 CARGO_TARGET_DIR="$work/loom" bash "$work/tree/ci/loom.sh" >"$out/loom.log" 2>&1
}

cargo mutants --version >/dev/null 2>&1 || {
    echo "installing cargo-mutants: takes some minutes"
    cargo install --locked cargo-mutants --version 27.1.0
}
mkdir -p "$work/tree"
# The copies get the present time as their time of change. With that of the original, cargo would reuse a mutant's build for it.
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - --ignore-failed-read |
    tar --extract --touch --directory "$work/tree"
export CARGO_TARGET_DIR="$work/build" CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=0
runner="CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER"

[ $# -gt 0 ] || set -- state waiting wheel limiters
for what; do
    case "$what" in
        state | waiting | wheel | limiters) group="$what" && declare -n chosen="$what" ;;
        *)
            group="$(group_of "$what")"
            one_file=("$what")
            declare -n chosen=one_file
            ;;
    esac
    echo "=== $what"
    out="$work/out/${what//\//-}"
    rm -rf "$out"
    mkdir -p "$out"
    quick="${group}_quick"
    # Words of two letters take a second.
    REFERENCE_WORDS=2 pass quick "${!quick}" 10 "${more[@]}"
    alive="$out/quick/mutants.out/missed.txt"
    if [ -s "$alive" ]; then
        mapfile -t names < <(exactly "$alive")
        pass slow "$slow" 200 "${names[@]}"
        alive="$out/slow/mutants.out/missed.txt"
    fi
    cp "$alive" "$out/alive"
    if [ "$group" = waiting ] && [ -s "$alive" ]; then
        : >"$out/alive"
        models || { cat "$out/loom.log"; echo "the models fail without a mutation" >&2; exit 1; }
        while read -r mutant; do
            if loom_notices "$mutant"; then echo "  loom: caught $mutant"; else echo "$mutant" >>"$out/alive"; fi
        done <"$alive"
    fi
    quick_out="$out/quick/mutants.out"
    awk -v caught="$(cat "$quick_out"/{caught,timeout,missed}.txt | wc -l)" '
        { print "  SURVIVED " $0 }
        END { printf "%s: %d of %d viable mutants survive: %.1f %%\n", what, NR, caught, caught ? 100 * NR / caught : 0 }' \
        what="$what" "$out/alive" | LC_ALL=C sort -r
    declare +n chosen
done
