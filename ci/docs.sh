#!/usr/bin/env bash
# The documentation builds, private items included; warnings are errors. It is also built as on docs.rs, where each item that needs a
# feature must say so; the crate page has a row for each feature. And the README must read well on the registry's page. Before all that,
# the numbers of the promises and invariants are checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash ci/guarantees.sh

# The registry's page shows the lines that rustdoc hides (`# use …`).
if ! awk '/^```/ { fence = !fence; code = fence && /^```(rust.*)?$/ } code && /^#( |$)/ { print FILENAME ":" FNR ": " $0; hidden = 1 } END { exit hidden }' README.md; then
    echo "only rustdoc hides the lines above: write the example so that it compiles without them"
    exit 1
fi

RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --no-deps --document-private-items -p keyqueue

# The marks need an unstable feature of rustdoc, which is allowed for this crate only.
docs="${CARGO_TARGET_DIR:-target}/docsrs"
rm -rf "$docs/doc"
RUSTC_BOOTSTRAP=keyqueue RUSTDOCFLAGS="-D warnings --cfg docsrs" cargo doc --locked --no-deps --all-features -p keyqueue --target-dir "$docs"
features="$(awk '/^\[/ { here = $0 == "[features]"; next } here && /^[a-z]/ && $1 != "default" { print $1 }' Cargo.toml)"
[ -n "$features" ] || { echo "no features found in Cargo.toml"; exit 1; }
for feature in $features; do
    grep -qF "| \`$feature\` |" src/lib.rs || { echo "the table of features in src/lib.rs lacks $feature"; exit 1; }
    case $feature in
        quanta | std-lock) echo "feature $feature: adds no item"; continue ;;
        serde) mark="With the feature <code>serde</code>" ;; # in the text: rustdoc does not mark what is derived
        *) mark="crate feature <code>$feature</code></strong> only" ;;
    esac
    pages="$( (grep -rlF "$mark" "$docs/doc/keyqueue" || true) | wc -l)"
    echo "feature $feature: marked on $pages pages"
    [ "$pages" -gt 0 ] || { echo "no page is marked with the feature $feature"; exit 1; }
done
