#!/usr/bin/env bash
# `keyqueue-fleet`: the model, the simulation with built-in faults, tests, docs, and two programs of several processes: `operator` and
# `sharded_reconcile`. With a Rust toolchain alone; what needs etcd is in ci/fleet-etcd.sh. With --wide: the model alone, in wider bounds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = --wide ]; then
    FLEET_MODEL=wide exec cargo test --locked --release -p keyqueue-fleet --features kube,mutants --lib -- --nocapture protocol::model::
fi
# The clients of Kubernetes and what they need are not what is tested: they are built without optimization, in half the time.
release=(--locked --release --config 'profile.release.package."*".opt-level=0' -p keyqueue-fleet --features kube,mutants)
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
cargo test "${release[@]}" 2>&1 | tee "$log"
# Each suite must have run a test: the unit tests, fleet/tests, the docs. Each file of fleet/tests is a module of its program.
awk '/^test result: ok\. [1-9]/ { suites++; passed += $4 }
    END { printf "fleet: %d tests passed, in %d of 3 suites\n", passed, suites; exit suites != 3 }' "$log"
diff <(cd fleet/tests && ls ./*.rs | sed 's|^./|mod |; s|\.rs$|;|' | grep -vx 'mod all;') <(grep '^mod' fleet/tests/all.rs | grep -vx 'mod common;') ||
    { echo "> only: a module without a file; < only: a file that fleet/tests/all.rs does not name" && exit 1; }
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
    cargo doc --locked --no-deps --document-private-items -p keyqueue-fleet --features kube
# Each checks its own result. A replica that misses an event would wait for a minute, and then the program fails.
timeout="$(command -v timeout >/dev/null && echo "timeout 300" || true)"
$timeout cargo run "${release[@]}" --example sharded_reconcile
cargo build --locked -p operator
# Not on the cluster of the caller.
env -u KUBECONFIG $timeout cargo run --locked -p operator
