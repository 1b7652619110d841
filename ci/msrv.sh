#!/usr/bin/env bash
# The crate compiles with the oldest Rust that `rust-version` names, 1.85: Debian ships that compiler, and it is unpacked, not
# installed, so that it meets no other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "skipped: needs Debian's packages of Rust 1.85"
    exit 0
fi
work="$PWD/target/msrv"
mkdir -p "$work"
if ! ls "$work"/root/usr/bin/rustc >/dev/null 2>&1; then
    [ "$(id -u)" != 0 ] || apt-get update -q >/dev/null
    if ! (cd "$work" && apt-get download -q 'rustc-web=1.85*' 'libstd-rust-web-dev=1.85*' libstd-rust-web-1.85 libllvm19 >/dev/null 2>&1); then
        echo "skipped: Debian's packages of Rust 1.85 are not to be had here"
        exit 0
    fi
    for package in "$work"/*.deb; do dpkg -x "$package" "$work/root"; done
fi
libraries="$(dirname "$(find "$work/root" -name 'librustc_driver*.so' | head -1)")"
LD_LIBRARY_PATH="$libraries:$work/root/usr/lib/$(uname -m)-linux-gnu" RUSTC="$work/root/usr/bin/rustc" \
    CARGO_TARGET_DIR="$work/build" cargo check --locked --lib
