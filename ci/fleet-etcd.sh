#!/usr/bin/env bash
# `keyqueue-fleet` with etcd: the store's tests against a real server; members whose tokens end, over servers with users; and fleet-chaos: the
# protocol, and each built-in fault, which must be noticed.
# CHAOS_SECONDS (default 40) for the protocol, and eight times that at most for each fault. Installs etcd and protoc with apt-get if it can; says so if it cannot, and skips.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v etcd >/dev/null || ! command -v protoc >/dev/null || [ ! -e /usr/include/google/protobuf/empty.proto ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq etcd-server protobuf-compiler libprotobuf-dev) >/dev/null || true
    fi
fi
for tool in etcd protoc; do
    command -v "$tool" >/dev/null || { echo "skipped: there is no $tool (Debian: etcd-server, protobuf-compiler, libprotobuf-dev)"; exit 0; }
done

data="$(mktemp -d)"
etcd --data-dir "$data" --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
    --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
    --initial-cluster default=http://127.0.0.1:23800 >"$data/log" 2>&1 &
server=$!
trap 'status=$?; [ "$status" = 0 ] || echo "FAILED: ci/fleet-etcd.sh"; kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$data"' EXIT
for _ in $(seq 100); do
    (exec 3<>/dev/tcp/127.0.0.1/23790) 2>/dev/null && break
    sleep 0.1
done
kill -0 "$server" || { cat "$data/log"; echo "etcd has ended: is another one on its ports?"; exit 1; }
# A hang is a failure.
limited() {
    if timeout --version >/dev/null 2>&1; then timeout "$@"; else shift && "$@"; fi
}
cargo clippy --locked -p keyqueue-fleet -p fleet-chaos --all-targets --all-features -- -D warnings
FLEET_ETCD=http://127.0.0.1:23790 limited 900 cargo test --locked --release -p keyqueue-fleet --features etcd --test all -- --nocapture stores:: 2>&1 | tee "$data/tests"
for tests in stores::etcd stores::etcd_auth::; do grep -q "^test $tests" "$data/tests"; done
limited 900 cargo test --locked --release -p fleet-chaos
limited 1500 cargo run --locked --release -p fleet-chaos -- --seconds "${CHAOS_SECONDS:-40}" --all
echo "passed: the stores' tests with etcd, users and tokens that end; fleet-chaos (its verdict is the line above)"
