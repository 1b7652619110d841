#!/usr/bin/env bash
# Documentation, private items included, warnings are errors. Once as docs.rs builds it, where an item that needs a feature says so.
# And the README as a reader of the registry's page sees it. Before all that, the numbers of the promises and invariants: a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash ci/guarantees.sh

# There, a line that rustdoc hides (`# use …`) is shown.
if ! awk '/^```/ { fence = !fence; code = fence && /^```(rust.*)?$/ } code && /^#( |$)/ { print FILENAME ":" FNR ": " $0; hidden = 1 } END { exit hidden }' README.md; then
    echo "the lines above are hidden by rustdoc only: write the example so that it compiles without them"
    exit 1
fi

RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --no-deps --document-private-items

# The marks are an unstable feature of rustdoc, which is allowed for this crate alone.
docs="${CARGO_TARGET_DIR:-target}/docsrs"
rm -rf "$docs/doc"
RUSTC_BOOTSTRAP=keyqueue RUSTDOCFLAGS="-D warnings --cfg docsrs" cargo doc --locked --no-deps --all-features --target-dir "$docs"
features="$(awk '/^\[/ { here = $0 == "[features]"; next } here && /^[a-z]/ && $1 != "default" { print $1 }' Cargo.toml)"
[ -n "$features" ] || { echo "no features found in Cargo.toml"; exit 1; }
for feature in $features; do
    pages="$( (grep -rlF "crate feature <code>$feature</code></strong> only" "$docs/doc/keyqueue" || true) | wc -l)"
    echo "feature $feature: marked on $pages pages"
    [ "$pages" -gt 0 ] || { echo "nothing says that it needs the feature $feature"; exit 1; }
done
