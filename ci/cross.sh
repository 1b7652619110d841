#!/usr/bin/env bash
# The crate compiles for systems on which .ci/run does not run: `cargo check` for each target. For one without 64-bit atomics the compiler
# says in one line that these are missing.
#
#   ci/cross.sh [<target>...]      all targets by default
#
# The standard library is the toolchain's (`rustup target add <target>`). If that has none, it is compiled from source with Debian's
# compiler 1.96, which is unpacked, not installed. If neither is available, the script says so and skips the target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Tests and examples too, on targets whose system or pointer size differs from the host's and for which their dependencies compile.
declare -A what=(
    [x86_64-pc-windows-gnu]="-p reconcile --all-targets"
    [aarch64-apple-darwin]="-p reconcile --all-targets"
    [i686-unknown-linux-gnu]="-p reconcile --all-targets"
    [aarch64-unknown-linux-gnu]=--lib
    [wasm32-wasip1]=--lib
    [wasm32-unknown-unknown]=--lib
)
# Without `quanta`, whose clock is JavaScript's there.
declare -A features=([wasm32-unknown-unknown]="--no-default-features --features metrics,serde,stream,tokio,tracing")
# Has no 64-bit atomics.
refused=powerpc-unknown-linux-gnu
features[$refused]=--no-default-features
[ $# -gt 0 ] || set -- x86_64-pc-windows-gnu aarch64-apple-darwin i686-unknown-linux-gnu aarch64-unknown-linux-gnu wasm32-wasip1 \
    wasm32-unknown-unknown $refused
work="$PWD/target/cross"
root="$work/root"

unpacked() {
    bash ci/unpack.sh "$root" 'rustc-web=1.96*' 'rust-web-src=1.96*' 'libstd-rust-web-dev=1.96*' libstd-rust-web-1.96 libllvm22 binutils-mingw-w64-x86-64
}

# Debian's sources of the standard library compile only with Debian's compiler. (For Windows they need a dlltool.)
from_source() {
    LD_LIBRARY_PATH="$root/usr/lib/$(uname -m)-linux-gnu" PATH="$root/usr/bin:$PATH" RUSTC="$root/usr/bin/rustc" RUSTC_BOOTSTRAP=1 \
        cargo check -Zbuild-std=std,panic_abort,test "$@"
}

# A program as it must be without a system: the clock is a function, and no thread drives the delays.
systemless="$work/systemless"
mkdir -p "$systemless/src"
cp Cargo.lock "$systemless"
cat >"$systemless/Cargo.toml" <<END
[workspace]
[package]
name = "systemless"
version = "0.0.0"
edition = "2024"
[dependencies]
keyqueue = { path = "$PWD", default-features = false }
END
cat >"$systemless/src/lib.rs" <<'END'
use keyqueue::{Clock, Driver, WorkQueue};
use std::time::Duration;

pub fn count(now: fn() -> u64) -> usize {
    let clock = Clock::from_fn(move || Duration::from_millis(now()));
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    queue.add_after("pod-1", Duration::from_secs(1));
    queue.turn() + usize::from(queue.try_get().is_ok_and(|item| item.len() == 5))
}
END

checked=0
failed=()
for target; do
    if [ -d "$(rustc --print target-libdir --target "$target")" ]; then
        how=(cargo check)
    elif unpacked; then
        how=(from_source)
    else
        echo "--- $target: skipped: no standard library; try \`rustup target add $target\`"
        continue
    fi
    echo "--- $target"
    if [ "$target" = $refused ]; then
        said="$("${how[@]}" --locked -p keyqueue --lib ${features[$target]} --target "$target" --target-dir "$work/build" 2>&1 || true)"
        if grep -F "error: keyqueue needs 64-bit atomics, which this target does not have" <<<"$said"; then
            checked=$((checked + 1))
        else
            tail -20 <<<"$said"
            failed+=("$target, or does not say why")
        fi
    elif "${how[@]}" --locked -p keyqueue ${what[$target]:---lib} ${features[$target]:---all-features} --target "$target" --target-dir "$work/build" &&
        { [ "$target" != wasm32-unknown-unknown ] || "${how[@]}" --manifest-path "$systemless/Cargo.toml" --target "$target" --target-dir "$work/build"; }; then
        checked=$((checked + 1))
    else
        failed+=("$target")
    fi
done
echo "checked: $checked of $# targets"
[ ${#failed[@]} -eq 0 ] || { echo "do not compile: ${failed[*]}"; exit 1; }
