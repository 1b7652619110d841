#!/usr/bin/env bash
# AddressSanitizer (leaks included) and ThreadSanitizer over the tests with threads: both, or one with --address or --thread.
#
# AddressSanitizer works with any toolchain once unstable flags are allowed. ThreadSanitizer needs a standard library that is built with
# it; with another one it reports races in the library. Debian's rustc and its sources give such a library, together with the sanitizer
# runtime of rustup's toolchain of the same LLVM. If these are missing and cannot be installed (no apt, or not root), the script says so and
# skips ThreadSanitizer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
host="$(rustc -vV | sed -n 's/^host: //p')"
# The lock-free engine is in its own tests and in `--lib`.
tests=(--features lock-free --lib --test lock_free --test stress --test queue --test client_go --test delays_driver --test delays_large --test delays_stress)
# Leaks are not looked for in these tests: futures are leaked, items are forgotten, observers hold the queue that holds them, code of the
# user panics.
leaky=(--features lock-free --test against_reference --test workers --test worker_panics --test wait_idle --test observers)

# These run no unsafe code.
safe=(--skip order:: --skip wait::tests --skip numbers::)
# Short lives: ci/test.sh has longer ones.
export MACHINE_WORDS=2 REFERENCE_WORDS=2
if [ "${1:-}" != --thread ]; then
    echo "--- AddressSanitizer"
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/asan \
        cargo test --locked --target "$host" "${tests[@]}" -- "${safe[@]}"
    ASAN_OPTIONS=detect_leaks=0 RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/asan \
        cargo test --locked --target "$host" "${leaky[@]}"
fi

[ "${1:-}" != --address ] || exit 0
echo "--- ThreadSanitizer"
runtime="$(rustc --print sysroot)/lib/rustlib/$host/lib/librustc-stable_rt.tsan.a"
if [ ! -x /usr/bin/rustc ] || ! ls -d /usr/lib/rustlib/src/rust/library >/dev/null 2>&1; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get update -q >/dev/null && apt-get install -qy 'rustc-web=1.96*' 'rust-web-src=1.96*' >/dev/null || true
    fi
fi
if [ ! -f "$runtime" ] || [ ! -x /usr/bin/rustc ] || [ ! -d /usr/lib/rustlib/src/rust/library ]; then
    echo "skipped ThreadSanitizer: needs Debian's rustc-web and rust-web-src 1.96, and rustup's sanitizer runtime"
    exit 0
fi
cp -n "$runtime" "/usr/lib/rustlib/$host/lib/" || true
TSAN_OPTIONS="suppressions=$PWD/ci/tsan.txt" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/tsan \
    cargo test --locked -Zbuild-std --target "$host" "${tests[@]}" "${leaky[@]:2}"
