#!/usr/bin/env bash
# The tests of the code with `unsafe` with a standard library that has its debug assertions (`cargo careful`): a null or unaligned pointer,
# an overlap, or an index out of bounds that reaches an unchecked call of the library panics there.
#
# Needs a nightly toolchain with rust-src, and cargo-careful. Without them it says so and checks nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v cargo-careful >/dev/null || ! rustc +nightly --version >/dev/null 2>&1 || [ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "skipped: try \`rustup toolchain install nightly --component rust-src\` and \`cargo install --locked cargo-careful\`"
    exit 0
fi
timeout --kill-after=10 3600 cargo +nightly careful test --locked --target-dir target/careful -p keyqueue --lib --test queue --test client_go \
    --test workers --test worker_panics --test wait_idle --test observers --test take_where --test stress --test delays_stress --test memory
