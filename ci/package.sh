#!/usr/bin/env bash
# The packages can be published, keyqueue first: `cargo publish --dry-run` makes each, and builds it from what is in it alone (those of
# the folders `fleet` and `kube` against the packaged keyqueue). And they hold only the files that users need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A library leaves the version of Kubernetes to programs, so here the script chooses it.
export K8S_OPENAPI_ENABLED_VERSION=1.37
cargo publish --workspace --dry-run --locked --allow-dirty
for package in keyqueue keyqueue-fleet keyqueue-kube; do
    files="$(cargo package --locked --allow-dirty -p "$package" --list)"
    if grep -vE '^(src/.*\.rs|README\.md|CHANGELOG\.md|SECURITY\.md|LICENSE-(MIT|APACHE)|Cargo\.(toml|toml\.orig|lock)|\.cargo_vcs_info\.json)$' <<<"$files"; then
        echo "$package: the files above do not belong in the package"
        exit 1
    fi
    echo "$package: $(wc -l <<<"$files") files"
done
