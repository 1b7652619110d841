#!/usr/bin/env bash
# Runs the examples; each checks its own result, or this script looks at what it prints. One build has the features of all. With --alone, each
# is built with its own, and run by cargo, as a reader runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
timeout="$(command -v timeout >/dev/null && echo "timeout 300" || true)" # a controller that misses an event would wait without end
folder="$(mktemp -d)"
trap 'rm -rf "$folder"; kill -KILL $(jobs -p) 2>/dev/null || true' EXIT
# prints TEXT: within 30 seconds the example has printed a line that matches.
prints() {
    for _ in $(seq 300); do
        ! grep -q -- "$1" "$folder/out" || return 0
        sleep 0.1
    done
    echo "it does not print $1, but:" && cat "$folder/out" && return 1
}
if [ "${1:-}" = --alone ]; then
    cargo run --locked --example periodic
    cargo run --locked --example tenants
    cargo run --locked --example reconcile -- src --once
    cargo run --locked -p crawler
    cargo run --locked -p top -- --frames 3
    $timeout cargo run --locked -p controller
    $timeout cargo run --locked -p copies
    $timeout cargo run --locked -p copies --features kube-controller
    env -u KUBECONFIG $timeout cargo run --locked -p operator
    cargo build --locked -p service
    exit
fi
packages=(keyqueue reconcile crawler top controller copies operator service)
programs="${CARGO_TARGET_DIR:-target}/debug"
rm -f "$programs"/{crawler,top,controller,copies,operator,service} "$programs"/examples/{periodic,tenants,reconcile} # those of an earlier build
cargo build --locked "${packages[@]/#/--package=}" --bins --examples
echo "--- periodic"
"$programs/examples/periodic"
echo "--- tenants"
"$programs/examples/tenants"
echo "--- reconcile"
mkdir -p "$folder/tree/sub" && echo one > "$folder/tree/one" && echo two > "$folder/tree/sub/two"
reconcile=("$programs/examples/reconcile" "$folder/tree")
"${reconcile[@]}" --once | tee "$folder/out"
prints '^2 files, 4 runs'
prints '^0 retried, 0 given up, 0 delayed'
"${reconcile[@]}" > "$folder/out" &
prints '^new .*sub/two: 4 bytes'
prints '^new .*one: 4 bytes'
echo changed > "$folder/tree/one" && prints '^changed .*one: 8 bytes'
rm "$folder/tree/one" && prints '^gone .*one'
kill -INT $!
wait $!
prints '^1 files' # and it has ended well
echo "--- crawler"
"$programs/crawler" > "$folder/out"
prints '^720 pages'
"$programs/crawler" --chaos > "$folder/out"
prints '^0 left'
echo "--- top"
"$programs/top" --frames 3
"$programs/top" --picture "$folder/out"
for panel in "queued keys" "times, last 5.0 s" "processing keys" "delays to come" "held back" "keys that fail most" "29 s ago"; do
    prints ">$panel</text>"
done
echo "--- controller"
$timeout "$programs/controller" > "$folder/out"
prints 'all checksums are right'
echo "--- copies, and the same with kube's controller"
$timeout "$programs/copies" > "$folder/ours"
cargo build --locked -p copies --features kube-controller
$timeout "$programs/copies" > "$folder/theirs"
diff "$folder/ours" "$folder/theirs" && grep -q '^24 copies' "$folder/ours"
echo "--- operator"
env -u KUBECONFIG $timeout "$programs/operator" # not on the cluster of the caller
echo "--- service"
command -v curl >/dev/null || { echo "skipped: curl is not installed"; exit 0; }
# Starts it, and finds its address.
serves() {
    : > "$folder/out" # else the line of the one before is found
    "$programs/service" 127.0.0.1:0 > "$folder/out" 2>&1 &
    prints '^http'
    address="$(sed -n 's|^http://\(.*\)/metrics$|\1|p' "$folder/out")"
}
# answers CODE METHOD PATH: all answers have this code.
answers() {
    local codes
    codes="$(curl --silent --output /dev/null --write-out '%{http_code}\n' --request "$2" "$address/$3" | sort -u)"
    [ "$codes" = "$1" ] || { echo "$3: $codes, not $1" && return 1; }
}
# It gets SIGTERM, and says so.
is_not_ready() {
    kill -TERM $!
    for _ in $(seq 100); do
        ! answers 503 GET readyz > "$folder/codes" || return 0
        sleep 0.01
    done
    cat "$folder/codes" && return 1
}
# ends_by SECOND: it ends by itself until then. Returns its exit code, or 124, as the command timeout does.
ends_by() {
    while [ "$SECONDS" -le "$1" ]; do
        kill -0 $! 2>/dev/null || { wait $! && return 0 || return $?; }
        sleep 0.02
    done
    return 124
}
serves
answers 202 POST 'reindex/document-[0-9]?[1-10]'
curl --silent "$address/metrics" | awk '/^workqueue_(adds|coalesced)_total{/ { sum += $2 } END { print sum " requests"; exit sum != 100 }'
answers 200 GET readyz
answers 202 POST 'reindex/large-[1-130]' # six seconds of work, so that the drain has something to do when serving has ended
exec 3<> "/dev/tcp/${address/://}" && printf 'POST /reindex/half HTTP/1.1\r\nHost: a\r\n' >&3 # and no more
start=$SECONDS
is_not_ready
answers 202 POST reindex/late # it is served after /readyz has failed
ends_by $((start + 11)) || { echo "half a request holds it up, or it fails" && exit 1; }
prints ' documents indexed, 0 left'
serves
is_not_ready
kill -TERM $!
code=0 && ends_by $((SECONDS + 1)) || code=$?
[ "$code" = 1 ] || { echo "a second signal does not end it at once, with 1: $code" && exit 1; }
