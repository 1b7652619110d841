#!/usr/bin/env bash
# Counts the instructions of the hot paths with valgrind, in two builds: with one codegen unit and with 16. A count more than 2 % above
# ci/instructions.txt or ci/instructions-16.txt is an error. `ci/instructions.sh --accept` writes these files anew. Arguments go to the
# comparison: see `src/main.rs` in benches/instructions.
#
# Counts depend on the processor, which these files name: libc picks its functions that copy and compare by it. On another processor the
# counts are compared with those of the commit before instead, made in the same run; or with those of INSTRUCTIONS_BASE, a commit. Higher
# ones are no error if the files were written anew since that commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../benches/instructions"

if ! command -v valgrind >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -q && apt-get install -qy valgrind; } >/dev/null || true
fi
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed, and cannot be installed here"; exit 0; }

# The runner must have the library's version. It is built without optimization: it does little, and an optimized build takes four times as
# long.
version="$(sed -n '/^name = "gungraun"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)"
tools="$(realpath -m "${CARGO_TARGET_DIR:-target}/gungraun-runner-$version")"
export GUNGRAUN_RUNNER="$tools/bin/gungraun-runner"
[ -x "$GUNGRAUN_RUNNER" ] ||
    env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install --debug --locked --quiet gungraun-runner --version "=$version" --root "$tools"

# Set here because the environment overrides .cargo/config.toml: a RUSTFLAGS of the caller would change the counts.
export RUSTFLAGS="--cfg fuzzing"
cargo test --locked --release --quiet --bins
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cpu="$(awk -F ': ' '/^(vendor_id|cpu family|model)[\t ]*:/ && n++ < 3 { printf "%s%s", sep, $2; sep = " " }' /proc/cpuinfo 2>/dev/null || true)"
cpu="${cpu:-unknown}"
recorded="$(sed -n 's/^cpu //p' ../../ci/instructions.txt)"

# The folder of the earlier commit's benchmarks, if these are needed.
base=""
if [ $# -eq 0 ] && { [ "$cpu" != "$recorded" ] || [ -n "${INSTRUCTIONS_BASE:-}" ]; }; then
    if commit="$(git rev-parse --quiet --verify "${INSTRUCTIONS_BASE:-HEAD~}^{commit}")"; then
        echo "recorded on $recorded, counted on $cpu: compared with commit $(git log -1 --format='%h, %s' "$commit" | cut -c -100)"
        # The dependencies are built once for both. The files get the present time (-m), so that cargo builds them.
        export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
        base="$CARGO_TARGET_DIR/base/benches/instructions"
        rm -rf "$CARGO_TARGET_DIR/base"
        mkdir -p "$CARGO_TARGET_DIR/base"
        git -C ../.. archive "$commit" | tar -xm -C "$CARGO_TARGET_DIR/base"
    elif [ -n "${INSTRUCTIONS_BASE:-}" ]; then
        echo "INSTRUCTIONS_BASE: no such commit: $INSTRUCTIONS_BASE"
        exit 1
    else
        echo "recorded on $recorded, counted on $cpu, and the commit before is not here: nothing to compare with"
    fi
fi

# With one codegen unit inlining does not depend on the number of benchmarks; 16 are what most users build with.
failed=0
for build in "1 ../../ci/instructions.txt" "16 ../../ci/instructions-16.txt"; do
    read -r units file <<<"$build"
    echo "codegen-units = $units"
    export CARGO_PROFILE_BENCH_CODEGEN_UNITS="$units"
    count() {
        cargo bench --locked --bench hot_paths -- --output-format=json >"$work/counts"
    }
    compare() { # with the file
        cargo run --locked --release --quiet -- --file "$@" \
            --with "rustc=$(rustc --version | cut -d ' ' -f 2-)" \
            --with "cpu=$cpu" \
            --with "libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown)" \
            --with "target=$(rustc -vV | sed -n 's/^host: //p')" \
            --with "codegen-units=$units" \
            --with "keyqueue=$(sed -n 's/^version = "\(.*\)"$/\1/p' ../../Cargo.toml | head -1)" <"$work/counts"
    }
    if [ -n "$base" ]; then
        (cd "$base" && count)
        compare "$work/base" --accept
        count
        if ! compare "$work/base" --earlier; then
            if git diff --quiet "$commit" -- ../../ci/instructions.txt; then failed=1; else echo "accepted: ci/instructions.txt is new"; fi
        fi
    else
        count
        compare "$file" "$@" || failed=1
    fi
done
exit "$failed"
