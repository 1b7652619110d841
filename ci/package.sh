#!/usr/bin/env bash
# The package that would be published builds by itself, and holds only the files that users need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo package --locked --allow-dirty -p keyqueue
files="$(cargo package --locked --allow-dirty -p keyqueue --list)"
if grep -vE '^(src/.*\.rs|README\.md|CHANGELOG\.md|SECURITY\.md|LICENSE-(MIT|APACHE)|Cargo\.(toml|toml\.orig|lock)|\.cargo_vcs_info\.json)$' <<<"$files"; then
    echo "the files above do not belong in the package"
    exit 1
fi
