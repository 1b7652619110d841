#!/usr/bin/env bash
# `keyqueue-fleet`: the model, the simulation with built-in faults, tests, docs, and a program of several processes, `sharded_reconcile`
# (ci/examples.sh has another one, `operator`). With a Rust toolchain alone; what needs etcd is in ci/fleet-etcd.sh. With --wide: the model
# alone, in wider bounds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = --wide ]; then
    FLEET_MODEL=wide exec cargo test --locked --release -p keyqueue-fleet --features kube,mutants --lib -- --nocapture protocol::model::
fi
# The clients of Kubernetes and what they need are not what is tested: they are built without optimization, in half the time.
release=(--locked --release --config 'profile.release.package."*".opt-level=0' -p keyqueue-fleet --features kube,mutants)
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
# The simulation by itself: other tests have real times.
{ cargo test "${release[@]}" -- --skip simulation:: && cargo test "${release[@]}" --test all simulation::; } 2>&1 | tee "$log"
# Each suite has run a test: the unit tests, fleet/tests without the simulation, the docs, the simulation.
awk '/^test result: ok\. [1-9]/ { suites++; passed += $4 }
    END { printf "fleet: %d tests passed, in %d of 4 suites\n", passed, suites; exit suites != 4 }' "$log"
tests="$(sed -n '/ Running tests.all.rs/,$p' "$log")"
for file in fleet/tests/*.rs; do
    name="$(basename "$file" .rs)"
    [ "$name" = all ] || grep -q "^test $name::.* ok$" <<<"$tests" || { echo "no test of $file has run" && exit 1; }
done
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
    cargo doc --locked --no-deps --document-private-items -p keyqueue-fleet --features kube
# It checks its own result. A replica that misses an event would wait for a minute, and then the program fails.
timeout="$(command -v timeout >/dev/null && echo "timeout 300" || true)"
$timeout cargo run "${release[@]}" --example sharded_reconcile
