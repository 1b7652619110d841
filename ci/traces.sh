#!/usr/bin/env bash
# The traces in tests/data are what client-go does: tests/recorder makes their calls on the real packages, and what it writes must have the
# same bytes, with one processor and with two.
#
#   ci/traces.sh [suite...]           with the packages of these suites of Debian; trixie and sid by default
#   ci/traces.sh --record [suite]     writes the answers of this suite, or of sid, into tests/data
#
# Suites differ in the versions of Go, client-go and x/time; trixie's stay as they are. A line that comes out differently must be among
# those that `explained` has below. On 27 November 2026: none of sid (client-go 0.36.4, x/time 0.16.0, Go 1.27.3), six of trixie (client-go
# 0.32.3, x/time 0.5.0, Go 1.24.4). Suites before trixie have no client-go as a package, and a Go that is too old.
#
# The packages are unpacked into target/traces, not installed. Without apt and a mirror of Debian it says so, and checks nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
record=false
if [ "${1:-}" = --record ]; then
    record=true && shift
    [ $# -gt 0 ] || set -- sid
    [ $# -eq 1 ] || { echo "--record takes one suite"; exit 1; }
fi
[ $# -gt 0 ] || set -- trixie sid
work="$PWD/target/traces"

# Lines that come out differently with the packages of a suite, and why.
explained() {
    case $1 in
    trixie)
        cat <<'END'
bucket-500006  # at the rate 0, x/time 0.5.0 refuses what comes after the burst; newer versions grant it after an endless wait
bucket-500022  # the same
bucket-500009  # x/time 0.5.0 makes a negative wait, which counts as none, of 2^63 ns and more; newer versions make an endless one
bucket-500010  # the same
bucket-500025  # the same
bucket-500026  # the same
END
        ;;
    esac
}

# The folder with the suite's packages. apt is asked with sources and a state of its own, so that the machine's stay as they are. If the
# mirror does not answer, the packages that were unpacked before will do.
unpacked() { # suite
    local root="$work/$1" apt="$work/$1/apt" keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror go wanted
    local as=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o Acquire::Languages=none
        -o "Dir::State=$apt" -o "Dir::Cache=$apt" -o Dir::State::status=/dev/null)
    [ -e "$keys" ] && command -v apt-get >/dev/null || return 1
    # The mirror is the machine's.
    [ "$(id -u)" != 0 ] || apt-get update -q || true
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -n 1)"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" && cd "$apt" || return 1
    echo "deb [signed-by=$keys] $mirror $1 main" >sources.list
    apt-get "${as[@]}" update || true
    go="$(apt-cache "${as[@]}" depends golang-go | awk '$1 == "Depends:" && $2 ~ /^golang-1/ { print $2 }')"
    [ -n "$go" ] || return 1
    local packages=("$go" "${go%-go}-src" golang-k8s-client-go-dev golang-k8s-apimachinery-dev golang-k8s-utils-dev golang-k8s-klog-dev
        golang-golang-x-time-dev golang-github-go-logr-logr-dev)
    wanted="$(apt-get "${as[@]}" download --print-uris "${packages[@]}" | awk '{ print $2 }')" || return 1
    [ "$wanted" != "$(cat "$root/unpacked" 2>/dev/null)" ] || return 0
    rm -rf "$root/usr" "$root/unpacked" ./*.deb
    apt-get "${as[@]}" download "${packages[@]}" || return 1
    for package in ./*.deb; do dpkg -x "$package" "$root" || return 1; done
    rm ./*.deb
    echo "$wanted" >"$root/unpacked"
}

ran=0
failed=()
for suite; do
    echo "--- $suite"
    mkdir -p "$work"
    if [ "$(uname -m)" != x86_64 ]; then
        echo "skipped: Go leaves the conversion of a double that is out of range to the processor; the traces have that of x86-64"
        continue
    fi
    if ! (unpacked "$suite") >"$work/$suite.log" 2>&1; then
        tail -n 3 "$work/$suite.log"
        echo "skipped: apt has no $suite of Debian, or not all of the packages"
        continue
    fi
    root="$work/$suite"
    tr '\n' ' ' <"$root/unpacked" && echo
    export PATH="$(echo "$root"/usr/lib/go-*/bin):$PATH"
    # No modules, nothing that is fetched, and none of the user's settings.
    export GO111MODULE=off GOPATH="$root/usr/share/gocode" GOCACHE="$work/cache" GOENV=off GOFLAGS='' GOTOOLCHAIN=local CGO_ENABLED=0 GOEXPERIMENT=''
    [[ "$(go version)" != *go1.24* ]] || export GOEXPERIMENT=synctest
    unformatted="$(gofmt -l tests/recorder)"
    [ -z "$unformatted" ] || { echo "not formatted: $unformatted"; exit 1; }
    (cd tests/recorder && go vet . && go test -c -o "$root/recorder.test" .)

    rm -rf "$root/one" "$root/two"
    mkdir "$root/one" "$root/two"
    GOMAXPROCS=2 "$root/recorder.test" -from tests/data -to "$root/two" >"$root/output" || { cat "$root/output"; exit 1; }
    GOMAXPROCS=1 "$root/recorder.test" -from tests/data -to "$root/one"
    diff -r "$root/one" "$root/two" >/dev/null || { echo "one processor and two do not give the same"; exit 1; }
    ran=$((ran + 1))
    if $record; then
        cp "$root/one"/*.jsonl tests/data/
        echo "written: tests/data"
        continue
    fi
    # The identifiers of the lines that differ, or that only one of the two has.
    found="$(for file in tests/data/*.jsonl; do diff "$file" "$root/one/$(basename "$file")" || true; done |
        sed -nE 's/^[<>] \{"id":"([^"]*)".*/\1/p' | sort -u)"
    expected="$(explained "$suite" | sed -E 's/ +#.*//' | sort)"
    new="$(comm -23 <(echo "$found") <(echo "$expected"))"
    gone="$(comm -13 <(echo "$found") <(echo "$expected"))"
    if [ -n "$new" ]; then
        failed+=("$suite")
        echo "fail: these differ from tests/data:"
        while read -r id; do grep "^$id, " "$root/output" | cut -c 1-300 || echo "$id"; done <<<"$new"
    fi
    if [ -n "$gone" ]; then
        failed+=("$suite")
        echo "fail: these no longer differ, and need no explanation:" $gone
    fi
    echo "$suite: $(cat tests/data/*.jsonl | wc -l) lines, $(wc -w <<<"$found") differ, $(wc -w <<<"$new") without an explanation"
done
echo "ran with $ran of $# suites"
[ ${#failed[@]} -eq 0 ] || { echo "fail: ${failed[*]}"; exit 1; }
