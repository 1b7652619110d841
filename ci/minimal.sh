#!/usr/bin/env bash
# The crate compiles with the oldest version of each dependency that Cargo.toml allows, so that these versions are true. It is the
# package as published, without the dependencies of its tests, in a folder of its own: the lock file of the repository stays as it is.
# (`-Zdirect-minimal-versions` is an unstable option of cargo, which RUSTC_BOOTSTRAP=1 allows on a stable one.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work="${CARGO_TARGET_DIR:-$PWD/target}/minimal"
rm -rf "$work/package"
mkdir -p "$work/package"
cp -R src README.md "$work/package/"
awk '/^\[/ { skip = /^\[(workspace|dev-dependencies|target.*loom)/ } !skip' Cargo.toml >"$work/package/Cargo.toml"
echo "[workspace]" >>"$work/package/Cargo.toml"
cd "$work/package"
RUSTC_BOOTSTRAP=1 cargo update -q -Zdirect-minimal-versions
cargo tree --depth 1 --all-features -e normal --prefix none | tail -n +2 | cut -d' ' -f1,2 | sort -u | paste -sd' '
checked=0
for features in --all-features --no-default-features ""; do
    cargo check --quiet --locked --lib $features --target-dir "$work/build"
    checked=$((checked + 1))
done
echo "compiles in $checked sets of features"
