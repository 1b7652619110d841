#!/usr/bin/env bash
# The crate compiles with the oldest supported Rust, the `rust-version` of Cargo.toml: 1.85. The compiler is rustup's, if rustup has that
# toolchain, and otherwise Debian's, which is unpacked, not installed, so that it does not replace another one. (The library only:
# dependencies of tests and benchmarks may need a newer Rust.) Then it compiles tests/handlers.rs, which shows the forms of handlers that
# the docs promise, and uses no other crate. A handler that returns something else does not compile, and the message says what would.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work="$PWD/target/msrv"
msrv="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)"
handlers() { # the compiler...
    local deps="$work/build/debug/deps"
    local with=(--edition 2024 --emit metadata -L "dependency=$deps" --extern "keyqueue=$(ls -t "$deps"/libkeyqueue-*.rmeta | head -1)")
    "$@" "${with[@]}" --test -o "$work/handlers.rmeta" tests/handlers.rs
    local returned message
    for returned in bool "Option<()>" "Result<bool, std::io::Error>" "Result<(), Box<dyn std::error::Error>>" "Result<(), u8>"; do
        echo "pub fn f(queue: &keyqueue::WorkQueue<u8>) { _ = queue.workers().spawn(1, |_| -> $returned { todo!() }); }" >"$work/wrong.rs"
        message="$("$@" "${with[@]}" --crate-type lib -o "$work/wrong.rmeta" "$work/wrong.rs" 2>&1 || true)"
        if ! grep -qF "a handler cannot return \`" <<<"$message" || [ "$(grep -c '^error\[' <<<"$message")" != 1 ]; then
            echo "the message for a handler that returns $returned: $message"
            exit 1
        fi
        echo "a handler that returns $returned: $(head -1 <<<"$message")"
    done
}
toolchain="$( (rustup toolchain list 2>/dev/null || true) | sed -n "s/^\(${msrv//./\\.}[.-][^ ]*\).*/\1/p" | head -1)"
# With every feature, without any, and by default, which is what the handlers are compiled with.
check() { # the cargo...
    for features in --all-features --no-default-features ""; do
        CARGO_TARGET_DIR="$work/build" "$@" check --locked -p keyqueue --lib $features
    done
}
if [ -n "$toolchain" ]; then
    check cargo "+$toolchain"
    handlers rustup run "$toolchain" rustc
    exit
fi
if ! bash ci/unpack.sh "$work/root" "rustc-web=$msrv*" "libstd-rust-web-dev=$msrv*" "libstd-rust-web-$msrv" libllvm19; then
    echo "skipped: Rust $msrv is available neither from rustup nor from Debian here"
    exit 0
fi
libraries="$(dirname "$(find "$work/root" -name 'librustc_driver*.so' | head -1)")"
export LD_LIBRARY_PATH="$libraries:$work/root/usr/lib/$(uname -m)-linux-gnu"
RUSTC="$work/root/usr/bin/rustc" check cargo
handlers "$work/root/usr/bin/rustc"
