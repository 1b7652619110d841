#!/usr/bin/env bash
# Runs the tests of the code with `unsafe` under miri, which reports undefined behaviour. There are two targets: one is 32-bit and
# little-endian, the other 64-bit and big-endian. (Not x86-64 or ARM: there `quanta` reads the processor's counter with an instruction that
# miri does not know.) Tests that would take hours are marked `#[cfg_attr(miri, ignore)]`. Leaks are left to AddressSanitizer, in
# ci/sanitizers.sh.
#
# Needs a nightly toolchain with its components miri and rust-src. Without them it says so and checks nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "skipped: miri is not installed; try \`rustup toolchain install nightly --component miri,rust-src\`"
    exit 0
fi
for target in i686-unknown-linux-gnu s390x-unknown-linux-gnu; do
    echo "--- miri, $target"
    MIRIFLAGS="-Zmiri-ignore-leaks" cargo +nightly miri test --locked --target "$target" --target-dir target/miri \
        --lib --test client_go --test queue --test workers --test worker_panics --test wait_idle --test observers
done
