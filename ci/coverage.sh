#!/usr/bin/env bash
# Which lines of src/ the tests run: a table by file, and the total. (Unit tests are in src/ too, and count as lines that run. Code
# that only loom compiles does not count, nor does the lock of the feature `std-lock`.) COVERAGE_HTML=<directory> also writes pages that show the lines.
#
# Needs the LLVM tools of rustc's own LLVM version: rustup's component llvm-tools, or otherwise Debian's package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo llvm-cov --version >/dev/null 2>&1 || {
    echo "installing cargo-llvm-cov: a minute or two"
    cargo install --locked cargo-llvm-cov
}
host="$(rustc -vV | sed -n 's/^host: //p')"
llvm="llvm-$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')"
if [ ! -x "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-cov" ]; then
    if [ ! -x "/usr/lib/$llvm/bin/llvm-cov" ] && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get update -q >/dev/null
        apt-get install -qy "$llvm" >/dev/null
    fi
    [ -x "/usr/lib/$llvm/bin/llvm-cov" ] || { echo "needs rustup's component llvm-tools, or Debian's package $llvm"; exit 1; }
    export LLVM_COV="/usr/lib/$llvm/bin/llvm-cov" LLVM_PROFDATA="/usr/lib/$llvm/bin/llvm-profdata"
fi
export CARGO_LLVM_COV_SETUP=no CARGO_PROFILE_DEV_OPT_LEVEL=1

timeout 1800 cargo llvm-cov --locked -p keyqueue --features metrics,serde,stream,tokio,tracing --no-report --lib --tests

only_src=(--ignore-filename-regex '/(tests|examples|fuzz|benches)/')
[ -z "${COVERAGE_HTML:-}" ] || cargo llvm-cov report "${only_src[@]}" --html --output-dir "$COVERAGE_HTML"
# Columns 8 to 10 of LLVM's table count lines.
cargo llvm-cov report "${only_src[@]}" --summary-only |
    awk '$1 ~ /\.rs$|^TOTAL$/ { printf "%-28s %5d lines %4d not run %7s\n", $1, $8, $9, $10; seen = 1 } END { exit !seen }'
