#!/usr/bin/env bash
# Mutation testing by cargo-mutants: src/ is broken in one small way at a time, to see whether a test notices.
#
#   ci/mutants.sh                      all four groups: hours
#   ci/mutants.sh wheel                one group: state, waiting, wheel or limiters
#   ci/mutants.sh src/line.rs          one file: minutes
#
# What the quick tests of a group let live meets the slow ones, and what these let live in `waiting` meets the loom models. A
# mutant that hangs, or takes more processor time or memory than a test may, is caught. What lives is listed at the end, and
# explained in CONTRIBUTING.md. All is done to a copy of the tree, so work can go on meanwhile.
#
# MUTANTS_WORK: where the copy and its build (1 GB) are, and stay for the next time: target/mutants, or a faster place.
# MUTANTS_ARGS: more for cargo-mutants, say `--shard 0/2`, or `--re next_waiter`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work="${MUTANTS_WORK:-$PWD/target/mutants}"
read -ra more <<<"${MUTANTS_ARGS:-}"

state=(src/key/state.rs src/key/table.rs src/key/slab.rs)
waiting=(src/sync/lock.rs src/wait.rs src/line.rs src/get_async.rs src/quiet.rs src/until_dirty.rs src/shared/watch.rs src/shared/quiet.rs)
wheel=(src/time/wheel/{mod,level,blocks,cascade}.rs src/time/driver.rs src/shared/delays.rs)
limiters=(src/rate_limiter/*.rs src/backoff/*.rs src/shared/failures.rs)

# Who is likely to notice, in some seconds.
state_quick="lib replay_corpus"
waiting_quick="replay_corpus queue wait_idle workers"
wheel_quick="replay_corpus wheel"
limiters_quick="replay_corpus limiter_traces limits backoff"
# Who may notice, in a minute or two.
slow="lib $(cd tests && ls ./*.rs | sed 's,^\./,,; s,\.rs$,,' | grep -vE 'example|dashboard|replay_corpus|limiter_traces' | tr '\n' ' ')"

group_of() {
    local group
    for group in state waiting wheel limiters; do
        local -n files="$group"
        [[ " ${files[*]} " != *" $1 "* ]] || { echo "$group"; return; }
    done
    echo "$1 is in no group: see $0" >&2
    return 1
}

# pass <its name> <tests> <seconds for each of them> <more for cargo-mutants>
# Makes $out/<its name>/mutants.out, and says how it went.
pass() {
    local name="$1" seconds="$3" tests=() test
    for test in $2; do
        if [ "$test" = lib ]; then tests+=(--cargo-arg=--lib); else tests+=(--cargo-arg=--test="$test"); fi
    done
    shift 3
    mkdir -p "$out/$name"
    # Of the processor's time, which does not pass while the machine has other things to do; so what hangs need not be waited for.
    ! command -v prlimit >/dev/null || export "$runner=prlimit --cpu=$seconds --as=8000000000"
    # What it exits with says that some live; whether it worked at all, the files say.
    cargo mutants --in-place --dir "$work/tree" --output "$out/$name" --colors never --build-timeout 300 \
        --timeout $((60 + 4 * seconds)) --cargo-arg=--locked "${tests[@]}" "${chosen[@]/#/--file=}" "$@" >"$out/$name/log" || true
    if ! grep -q '^ok .*baseline' "$out/$name/log"; then
        cat "$out/$name/log"
        echo "the tests fail without a mutation" >&2
        return 1
    fi
    (cd "$out/$name/mutants.out" && wc -l caught.txt timeout.txt unviable.txt missed.txt | sed "\$d; s/\.txt//; s/^/  $name/")
}

# One `--re` for each of the mutants of this list, and nothing else.
exactly() {
    sed -E 's/[][\.*^$+?(){}|/]/\\&/g; s/.*/--re\n^&$/' "$1"
}

# The mutant of this name meets the loom models. Whether one of them notices.
loom_notices() {
    local file="${1%%:*}"
    cp "$work/tree/$file" "$out/original"
    printf '%s\n' "$1" >"$out/one"
    mapfile -t one < <(exactly "$out/one")
    # Some mutants are listed whatever one asks for.
    (cd "$work/tree" && cargo mutants --list --diff --file="$file" "${one[@]}" |
        awk -v name="$1" '$0 == name { here = 1; next } here && /^$/ { exit } here' | patch --silent "$file")
    models || true
    cp "$out/original" "$work/tree/$file"
    # That it could not be built, say, does not count.
    grep -qE '^test .* FAILED|panicked at|signal' "$out/loom.log"
}

models() {
    env -u "$runner" LOOM_MAX_PREEMPTIONS=2 LOOM_TIMEOUT=600 CARGO_TARGET_DIR="$work/loom" bash "$work/tree/ci/loom.sh" >"$out/loom.log" 2>&1
}

cargo mutants --version >/dev/null 2>&1 || {
    echo "installing cargo-mutants: some minutes"
    cargo install --locked cargo-mutants --version 27.1.0
}
mkdir -p "$work/tree"
# Now, not when it was written, is when a copy was changed: else cargo would take what it built of a mutant for the original.
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
    pass quick "${!quick}" 10 "${more[@]}"
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
        { print "  ALIVE " $0 }
        END { printf "%s: %d of %d viable mutants live: %.1f %%\n", what, NR, caught, caught ? 100 * NR / caught : 0 }' \
        what="$what" "$out/alive" | sort -r
    declare +n chosen
done
