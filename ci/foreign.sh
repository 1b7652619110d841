#!/usr/bin/env bash
# The tests on two other processors: 64-bit ARM under the emulator qemu, and 32-bit x86, which an x86-64 processor runs itself.
#
#   ci/foreign.sh [aarch64] [i686]      both by default
#
# What the emulator shows: the code compiles for ARM, its `asm!` too, each atomic access has the size and the alignment that ARM asks
# for, and the tests with threads pass. It cannot show an order of memory that ARM allows and x86 does not: it runs ARM's loads and
# stores as those of the host, which reorders less. The models under loom are what checks that (ci/loom.sh): `lock` (the lock and its
# race), `waiting` (the eventcount: a getter that parks while a key comes), and those of the words that are published for readers
# without a lock: `shards` (which shard has keys), `measure` (counts), `limits` (`Bucket`), `watch` (`until_dirty`).
#
# On 26 November 2026, each in one run to its end, beside much other load on two cores (rustc 1.95). i686: 309 tests passed; 29 minutes, of
# which 26 were the build. aarch64 under qemu 7.2: 302 passed, among them those of `memory` and `workers`; 4 minutes, and 28 the build.
# On 25 November both found that `spawn` of workers might drop the handler itself, after the loops had ended: mended.
#
# The standard library is rustup's (`rustup target add`), or Debian's, or made from Debian's source, these two with Debian's compiler 1.96.
# The C compiler and the emulator are those on the PATH, or Debian's. Debian's packages are unpacked, not installed. The binaries are
# static, so that they need no libraries of the target. What is not available is said, and skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- aarch64 i686
work="$PWD/target/foreign"
root="$work/root"
mkdir -p "$work"

# The tests of threads, locks, delays, memory, and the traces of client-go.
tests=(--lib --test queue --test client_go --test traces --test metric_traces --test against_reference --test stress --test shards
    --test workers --test worker_panics --test wait_idle --test idle --test delays_driver --test delays_stress --test delays_large
    --test delays_turned --test wheel --test memory --test groups --test priorities --test limits --test no_threads)

# Left out under the emulator, which takes two to ten times as long: a test, and why.
emulator_leaves_out() {
    cat <<'END'
leaving_a_long_list_costs_no_more_than_leaving_a_short_one  # compares processor times of short steps with each other
a_thread_that_is_blocked_for_long_does_not_burn_the_cpu     # bounds the processor time of a thread, which is the emulator's
far_delays_and_an_interval_cost_nothing                     # lists the threads of the process, of which one is the emulator's
user_code_that_always_panics_stops_no_loop                  # starts its own program again, which the system cannot run by itself
an_unwinding_item_does_not_abort_when_foreign_code_always_panics  # the same
a_delay_is_set_and_the_driver_failure_is_reported           # the same
spawning_workers_returns_an_error                           # the same
a_parked_getter_queues_expired_keys_in_place_of_the_driver  # the same
an_idle_waiter_queues_expired_keys_in_place_of_the_driver   # the same
low_keys_of_a_shard_do_not_starve                           # takes a minute there, and starts 12 000 threads beside the other tests
END
}

# Names of tests, without the reasons.
left_out() { sed -E 's/ +#.*//; /^$/d'; }

unpacked() {
    bash ci/unpack.sh "$root" 'rustc-web=1.96*' 'rust-web-src=1.96*' 'libstd-rust-web-dev=1.96*' libstd-rust-web-1.96 libllvm22 \
        qemu-user-static binutils-aarch64-linux-gnu gcc-12-aarch64-linux-gnu libgcc-12-dev-arm64-cross libc6-dev-arm64-cross libc6-arm64-cross \
        libc6-i386 libc6-dev-i386 lib32gcc-s1 lib32gcc-12-dev
}

# Debian's compiler, with its standard library for another of Debian's architectures. apt is asked with a state of its own, so that the
# machine's stays as it is.
debian_std() { # Debian's name of the architecture, the target
    [ ! -d "$root/usr/lib/rustlib/$2" ] || return 0
    local apt="$work/apt-$1"
    local as=(-o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State=$apt" -o "Dir::Cache=$apt" -o Dir::State::status=/dev/null)
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    (
        cd "$apt"
        apt-get "${as[@]}" update -q && apt-get "${as[@]}" download -q 'libstd-rust-web-dev=1.96*' && dpkg -x ./*.deb "$root" && rm ./*.deb
    ) >/dev/null 2>&1
}
with_debians() {
    LD_LIBRARY_PATH="$root/usr/lib/$(uname -m)-linux-gnu" PATH="$root/usr/bin:$PATH" RUSTC="$root/usr/bin/rustc" limited cargo "$@"
}
limited() { timeout 7200 env "${lighter[@]}" "$@"; }
from_source() { RUSTC_BOOTSTRAP=1 with_debians "$1" -Zbuild-std=std,panic_abort,test "${@:2}"; }

ran=0
failed=()
for processor; do
    target="$processor-unknown-linux-gnu"
    variable="CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")"
    skip=()
    lighter=()
    case $processor in
    aarch64)
        debian=arm64
        if command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then
            linker=aarch64-linux-gnu-gcc emulator=qemu-aarch64
        elif unpacked; then
            linker="$work/aarch64-gcc" emulator="$root/usr/bin/qemu-aarch64-static"
            printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s --sysroot=%s "$@"\n' "$root/usr/lib/$(uname -m)-linux-gnu" "$root/usr/bin/aarch64-linux-gnu-gcc-12" "$root" >"$linker"
            chmod +x "$linker"
        else
            echo "--- $target: skipped: no qemu-aarch64 and aarch64-linux-gnu-gcc; install qemu-user and gcc-aarch64-linux-gnu"
            continue
        fi
        export "${variable}_RUNNER=$emulator"
        while read -r name; do skip+=(--skip "$name"); done < <(emulator_leaves_out | left_out)
        # Random lives and stress for a second, and all lives of two steps instead of three.
        lighter=(MACHINE_SECONDS=1 MACHINE_WORDS=2 REFERENCE_SECONDS=1 REFERENCE_WORDS=2 KEYQUEUE_STRESS=1)
        ;;
    i686)
        debian=i386
        [ "$(uname -m)" = x86_64 ] || { echo "--- $target: skipped: this processor does not run it"; continue; }
        if echo 'int main(void) { return 0; }' | cc -m32 -static -x c - -o "$work/probe" 2>/dev/null; then
            linker=cc
        elif unpacked; then
            linker="$work/i686-gcc"
            printf '#!/bin/sh\nexec cc -B%s -B%s -L%s -L%s "$@"\n' "$root/usr/lib32" "$root/usr/lib/gcc/x86_64-linux-gnu/12/32" "$root/usr/lib32" "$root/usr/lib/gcc/x86_64-linux-gnu/12/32" >"$linker"
            chmod +x "$linker"
        else
            echo "--- $target: skipped: no C library for 32 bits; install gcc-multilib"
            continue
        fi
        ;;
    *)
        echo "unknown: $processor"
        exit 1
        ;;
    esac
    if [ -d "$(rustc --print target-libdir --target "$target")" ]; then
        how=(limited cargo)
    elif unpacked && debian_std "$debian" "$target"; then
        how=(with_debians)
    elif unpacked; then
        how=(from_source) # Debian has none of that version for 32-bit x86
    else
        echo "--- $target: skipped: no standard library; try \`rustup target add $target\`"
        continue
    fi
    export "${variable}_LINKER=$linker" "${variable}_RUSTFLAGS=-Ctarget-feature=+crt-static"
    echo "--- $target"
    # Optimized a little, with the debug assertions.
    if CARGO_PROFILE_DEV_OPT_LEVEL=1 "${how[@]}" test --locked -p keyqueue --features metrics,stream,tokio "${tests[@]}" --no-fail-fast \
        --target "$target" --target-dir "$work/build" -- "${skip[@]}" 2>&1 | tee "$work/$processor.log"; then
        :
    else
        failed+=("$target")
    fi
    passed="$(awk '/^test result:/ { passed += $4 } END { print passed + 0 }' "$work/$processor.log")"
    echo "$target: $passed tests passed, $((${#skip[@]} / 2)) left out by name"
    [ "$passed" -gt 0 ] || { echo "$target: no test ran"; exit 1; }
    ran=$((ran + 1))
done
echo "ran on $ran of $# processors"
[ ${#failed[@]} -eq 0 ] || { echo "fail: ${failed[*]}"; exit 1; }
