#!/usr/bin/env bash
# `keyqueue-kube`, and before it `kube-stand-in`, the API server that its tests run against: tests, docs, and a trial of the benchmark. With
# a Rust toolchain alone. ci/examples.sh runs the examples `controller` and `copies`. KUBE_STORMS is how many storms there are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The clients of Kubernetes and what they need are not what is tested: they are built without optimization, in half the time.
build=(--locked --release --config 'profile.release.package."*".opt-level=0')
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
export KUBE_STORMS="${KUBE_STORMS:-100}"
cargo test "${build[@]}" -p kube-stand-in -p keyqueue-kube 2>&1 | tee "$log"
# Each suite has run a test: two for the stand-in, two for the controller, and the docs of both. The unit tests are in these.
awk '/^test result: ok\. [1-9]/ { suites++; passed += $4 }
    END { printf "kube: %d tests passed, in %d suites\n", passed, suites; exit suites < 5 }' "$log"
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
    cargo doc --locked --no-deps --document-private-items -p keyqueue-kube -p kube-stand-in --features k8s-openapi/latest
cargo test "${build[@]}" -p keyqueue-kube --bench beside
