#!/usr/bin/env bash
# Shows that tests/against_reference.rs finds what it is for: applies each patch of tests/planted/, a fault of a few lines, to a copy of the crate, and
# fails if the test does not fail within two minutes of run time, or does not shrink the fault to 10 steps (turns of 16: 40). Arguments: names
# of patches; all without any. A patch that does not apply fails. A fault that only threads show says in its first line "Found by
# tests/stress.rs." That test must refuse a step of it. One that only the driver thread shows, or a getter that expires delays, names
# src/shared/driven.rs there. A fault that is none of what a call does, but of when memory is freed, how late a key is or what is drawn at
# random, names the file of tests that must fail.
#
# With --machine first, the same for the bare machine: each patch of tests/planted/machine/ must fail a test of src/machine/ or src/order/
# within a minute of processor time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$PWD"
copy="${CARGO_TARGET_DIR:-$root/target}/planted"
rm -rf "$copy/src" # files that have moved since the last run
mkdir -p "$copy"
export CARGO_TARGET_DIR="$copy/target" CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=none REFERENCE_SECONDS=120 DRIVEN_LIVES=2000 KEYQUEUE_STRESS=60
missed=()
patches=tests/planted
if [ "${1:-}" = --machine ]; then
    shift
    patches=tests/planted/machine
    export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_INCREMENTAL=1 MACHINE_SECONDS=20 # tests that take longer to build than to run
fi
[ $# -gt 0 ] || { cd "$patches" && set -- *.patch && cd "$root"; }
for name in "${@%.patch}"; do
    # The files keep their times if they did not change, so that cargo builds the patched crate alone.
    git ls-files -z | grep -zv '^tests/data/' | xargs -0 sh -c 'for file; do [ ! -f "$file" ] || printf "%s\0" "$file"; done' - |
        tar --null -cf - -T - | tar -xf - -C "$copy"
    git apply --directory="$(realpath --relative-to="$root" "$copy")" "$patches/$name.patch" || { missed+=("$name (does not apply)"); continue; }
    touch "$copy/src/lib.rs"
    if [ "$patches" = tests/planted/machine ]; then
        (cd "$copy" && cargo test --quiet --locked -p keyqueue --lib --no-run 2>/dev/null) || { missed+=("$name (does not compile)"); continue; }
        start=$SECONDS
        # The first test that fails ends the run.
        exec 3< <(cd "$copy" && ulimit -t 60 && exec timeout 900 cargo test --locked -p keyqueue --lib -- machine:: order:: 2>&1)
        run=$!
        found="$(sed -n '/^test .* FAILED$/{s/^test \(.*\) \.\.\. FAILED$/\1/p;q}' <&3)"
        kill "$run" 2>/dev/null || true
        [ -n "$found" ] || missed+=("$name (not found)")
        printf '%-60s %3d s  %s\n' "$name" $((SECONDS - start)) "${found:-NOT FOUND}"
        continue
    fi
    start=$SECONDS
    test=against_reference
    wrapper=""
    named="$(sed -nE '1s/^Found by (tests|src)\/([a-z_\/]+)\.rs\.$/\2/p' "tests/planted/$name.patch")"
    if [ -n "$named" ]; then test="${named//\//::}"; fi
    if [ "$test" = stress ]; then wrapper="$copy/ci/rustc-with-steps"; fi
    command=(--test "$test")
    if [[ "$test" = *::* ]]; then command=(--lib "$test"); fi
    if out="$(cd "$copy" && RUSTC_WORKSPACE_WRAPPER="$wrapper" timeout 900 cargo test --locked -p keyqueue "${command[@]}" 2>&1)"; then
        missed+=("$name (not found)")
        echo "NOT FOUND  $name"
        continue
    fi
    if [ "$test" = stress ]; then
        refused="$(grep -m1 -oE 'refuses step.*|two critical sections have the number|keys are left that no getter takes|getters sleep|are not its sum|no order of these calls' <<<"$out" || true)"
        [ -n "$refused" ] || { missed+=("$name (does not compile, or fails otherwise)"); tail -20 <<<"$out"; }
        printf '%-55s %s, %3d s\n' "$name" "$refused" $((SECONDS - start))
        continue
    fi
    if [ -n "$named" ] && [ "$test" != shared::driven ]; then
        found="$(sed -n '/^test .* FAILED$/{s/^test \(.*\) \.\.\. FAILED$/\1/p;q}' <<<"$out")"
        [ -n "$found" ] || { missed+=("$name (does not compile, or fails otherwise)"); tail -20 <<<"$out"; }
        printf '%-55s %s, %3d s\n' "$name" "${found:-NOT FOUND}" $((SECONDS - start))
        continue
    fi
    steps="$(sed -n 's/.* fails after \([0-9]*\) steps:$/\1/p' <<<"$out" | sort -n | head -1)"
    most=10
    case "$name" in *turn*) most=40 ;; esac
    if [ -z "$steps" ]; then
        missed+=("$name (does not compile, or fails without a list of steps)")
        tail -20 <<<"$out"
    elif [ "$steps" -gt "$most" ]; then
        missed+=("$name ($steps steps)")
    fi
    printf '%-55s %3s steps, %3d s\n' "$name" "${steps:-?}" $((SECONDS - start))
done
if [ ${#missed[@]} -gt 0 ]; then
    printf 'missed: %s\n' "${missed[@]}"
    exit 1
fi
