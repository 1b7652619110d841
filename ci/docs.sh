#!/usr/bin/env bash
# Documentation, private items included, warnings are errors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --no-deps --document-private-items
