#!/usr/bin/env bash
# Tests of the code with `unsafe`, interpreted by miri, which reports undefined behaviour, on two targets: 32-bit and little-endian, 64-bit and
# big-endian. (Not on x86-64 or ARM: there `quanta` reads the processor's counter by an instruction that miri does not know.)
# Tests that would take hours are marked `#[cfg_attr(miri, ignore)]`. Leaks are AddressSanitizer's to find: ci/sanitizers.sh.
#
# Needs a nightly toolchain with its components miri and rust-src; without, it says so and checks nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "skipped: no miri here; try \`rustup toolchain install nightly --component miri,rust-src\`"
    exit 0
fi
for target in i686-unknown-linux-gnu s390x-unknown-linux-gnu; do
    echo "--- miri, $target"
    MIRIFLAGS="-Zmiri-ignore-leaks" cargo +nightly miri test --locked --target "$target" --target-dir target/miri \
        --lib --test client_go --test queue --test workers --test worker_panics --test wait_idle --test observers
done
