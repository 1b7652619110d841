#!/usr/bin/env bash
# Counts the instructions of the hot paths with valgrind, in two builds: with one codegen unit and with 16. A count more than 2 % above
# ci/instructions.txt or ci/instructions-16.txt is an error. `ci/instructions.sh --accept` writes these files anew. Arguments go to the
# comparison: see `src/main.rs` in benches/instructions.
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
cargo test --locked --release --quiet --lib
counts="$(mktemp)"
trap 'rm -f "$counts"' EXIT
# libc picks its functions that copy and compare by processor, so counts depend on it.
cpu="$(awk -F ': ' '/^(vendor_id|cpu family|model)[\t ]*:/ && n++ < 3 { printf "%s%s", sep, $2; sep = " " }' /proc/cpuinfo 2>/dev/null || true)"

# With one codegen unit inlining does not depend on the number of benchmarks; 16 are what most users build with.
failed=0
for build in "1 ../../ci/instructions.txt" "16 ../../ci/instructions-16.txt"; do
    read -r units file <<<"$build"
    echo "codegen-units = $units"
    CARGO_PROFILE_BENCH_CODEGEN_UNITS="$units" cargo bench --locked --bench hot_paths -- --output-format=json >"$counts"
    cargo run --locked --release --quiet -- --file "$file" \
        --with "rustc=$(rustc --version | cut -d ' ' -f 2-)" \
        --with "cpu=${cpu:-unknown}" \
        --with "libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown)" \
        --with "target=$(rustc -vV | sed -n 's/^host: //p')" \
        --with "codegen-units=$units" \
        --with "keyqueue=$(sed -n 's/^version = "\(.*\)"$/\1/p' ../../Cargo.toml | head -1)" \
        "$@" <"$counts" || failed=1
done
exit "$failed"
