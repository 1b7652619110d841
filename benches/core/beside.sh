#!/usr/bin/env bash
# The table of this package with one more column: the crate of another commit, in the same program. `beside.sh <commit> [arguments of the
# program]`. CARGO_PROFILE_RELEASE_CODEGEN_UNITS chooses the build. `beside.sh <commit> --build <file>` builds it, and copies the program there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root="$PWD"
commit="$(git rev-parse --verify "$1^{commit}")"
shift
work="${CARGO_TARGET_DIR:-$root/target}/beside"
rm -rf "$work/base" "$work/core"
mkdir -p "$work/base" "$work/core"
git archive "$commit" Cargo.toml src benches/hot_paths examples/reconcile | tar -x -C "$work/base"
# Another version, as a lock file tells packages apart by name and version.
sed -i '0,/^version = .*/s//version = "0.0.1"/; /^\[workspace\]/,/^\[package\]/{/^\[package\]/!d}' "$work/base/Cargo.toml"
printf '\n[workspace]\n' >>"$work/base/Cargo.toml"
cp -r benches/core/src "$work/core"
sed -e "s|path = \"\.\./\.\.\"|path = \"$root\"|; s|path = \"\.\./common\"|path = \"$root/benches/common\"|" \
    -e "s|path = \"\.\.\"|path = \"$root/benches\"|" \
    -e 's|^\[dependencies\]|[dependencies]\nkeyqueue_base = { package = "keyqueue", path = "../base", features = ["metrics"] }|' benches/core/Cargo.toml >"$work/core/Cargo.toml"
printf '\n[workspace]\n' >>"$work/core/Cargo.toml"
cp Cargo.lock "$work/core/"
export RUSTFLAGS="--cfg keyqueue_base" CARGO_TARGET_DIR="$work/target"
if [ "${1:-}" = --build ]; then
    cargo build --quiet --release --manifest-path "$work/core/Cargo.toml"
    cp "$work/target/release/core" "$2"
else
    cargo run --quiet --release --manifest-path "$work/core/Cargo.toml" -- "$@"
fi
