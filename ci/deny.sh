#!/usr/bin/env bash
# The dependencies have licences that deny.toml allows and come from crates.io; and the crate's own tree, all features on, has one
# version of each crate.
#
#   ci/deny.sh [--advisories]      with known vulnerabilities, whose database cargo-deny fetches from github.com
#
# cargo-deny is what checks; if it is missing, the script installs it below target/, which takes some minutes once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
checks=(licenses bans sources)
[ "${1:-}" != --advisories ] || checks+=(advisories)

twice="$(cargo tree --locked -p keyqueue -e normal --all-features --prefix none --format '{p}' | sed 's/ (.*//' | sort -u |
    cut -d' ' -f1 | uniq -d)"
[ -z "$twice" ] || { echo "more than one version of: $twice"; cargo tree --locked -p keyqueue -e normal --all-features -d; exit 1; }

version=0.20.2
tools="$PWD/target/tools"
PATH="$tools/bin:$PATH"
if ! cargo deny --version >/dev/null 2>&1; then
    echo "installing cargo-deny $version: takes some minutes"
    if ! env -u RUSTFLAGS cargo install --debug --locked --quiet cargo-deny --version "=$version" --root "$tools" --target-dir "$tools/build"; then
        echo "skipped: cargo-deny cannot be installed here"
        exit 0
    fi
    rm -rf "$tools/build"
fi
for manifest in Cargo.toml loom-tests/Cargo.toml fuzz/Cargo.toml benches/instructions/Cargo.toml; do
    echo "--- $manifest"
    cargo deny --manifest-path "$manifest" --config "$PWD/deny.toml" --workspace --locked check -A license-exception-not-encountered --hide-inclusion-graph "${checks[@]}"
done
