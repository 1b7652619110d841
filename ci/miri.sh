#!/usr/bin/env bash
# Runs the tests of the code with `unsafe` under miri, which reports undefined behaviour, in parts of an hour at most.
#
#   ci/miri.sh [<part>...]     all parts by default: key machine unit calls items workers waits
#   ci/miri.sh --check         only whether each file of tests is in a part, or left out with a reason
#
# There are two targets (MIRI_TARGETS chooses): one is 32-bit and little-endian, the other 64-bit and big-endian. (Not x86-64 or ARM: there `quanta` reads the
# processor's counter with an instruction that miri does not know.) Tests that would take hours are marked `#[cfg_attr(miri, ignore)]`.
# Leaks are left to AddressSanitizer, in ci/sanitizers.sh.
#
# Needs a nightly toolchain with its components miri and rust-src. Without them it says so and checks nothing.
#
# On 26 November 2026 on i686 each test of each part passed, with less than half a core: `key` (389 s), `waits` (227 s), `items` (99 s) and
# `calls` (668 s) in one run each, `workers` in two (1000 s), `machine` (`many_keys_come_and_go` alone took 780 s) and `unit` in three. It
# found a thread that joined itself (mended); three tests failed by times that are too short on miri's clock, and passed with longer ones. On s390x
# `key` passed (460 s); the others did not run there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=(key machine unit calls items workers waits)

# The arguments of `cargo test` for a part.
part() {
    case "$1" in
    key) echo --lib -- key:: ;;                    # slots, chunks, arena, buckets, table
    machine) echo --lib -- machine:: ;;            # the machine that uses them
    unit) echo --lib -- sync:: shared:: workers:: panics:: time::driver:: --skip choose:: ;; # the lock, and what takes it
    calls) echo --test client_go --test remove --test take_where ;;
    items) echo --test queue --test batches ;;
    workers) echo --test workers --test worker_panics --test stops --test size ;;
    waits) echo --test tenants --test wait_idle --test observers --test delays_turned --test debounce --test newest_decision --test pace --test pauses --test bounds ;;
    *) return 1 ;;
    esac
}

# A file of tests that no part has, and why.
left_out() {
    cat <<'END'
against_reference  # random lives for two seconds by the clock, and all short ones: the part `machine` has the same without threads
backoff            # no queue, and no unsafe code
cool_down          # threads that wait for real intervals; `newest_decision` has the same record of a key
debug              # texts of Debug
delays_driver      # counts threads in /proc, and waits for the system's clock
delays_large       # tens of thousands of delays
delays_stress      # runs by the clock
freed_after_the_lock # an allocator of its own
gives_way          # 100 000 keys
groups             # 100 000 keys
groups_in_shards   # threads at full speed; `against_reference` has the same calls in one thread
handlers           # forms of handlers: `workers` runs the same loop
idle               # reads processor times from /proc
key_state          # threads at full speed; a look at a key has no unsafe code
limiter_traces     # limiters have no unsafe code
limiters_in_use    # limiters have no unsafe code
limits             # limiters have no unsafe code
lock_free          # threads at full speed, and 200 000 keys
lock_free_memory   # reads the size of its process
memory             # counts the bytes of up to a million keys
metric_traces      # 80 traces; the part `machine` has the same steps
names              # reads files
no_threads         # starts processes
oldest_queued      # 100 000 keys
priorities         # up to a million keys
replay_corpus      # reads files
reports            # threads that wait for real intervals
run_batch          # `workers` runs the same ends of keys, and `batches` takes keys in the same way
same_twice         # starts processes, and takes 100 000 steps
seeds              # starts processes
serde              # the feature `serde`, which has no unsafe code
shards             # 300 000 keys
spawn_tasks        # the feature `tokio`, which has no unsafe code
streams            # the feature `stream`, which has no unsafe code
stress             # runs by the clock
tenants_threads    # threads at full speed
tenants_turns      # tens of thousands of hand-outs
time_limits        # threads that wait for real intervals, and no unsafe code
traces             # 928 traces; the part `machine` has the same steps
values             # the layer has no unsafe code
wheel              # the wheel has no unsafe code
END
}

files="$(git ls-files -- 'tests/*.rs' ':!tests/*/*' | sed -E 's|^tests/(.*)\.rs$|\1|' | LC_ALL=C sort)"
named="$({ for name in "${parts[@]}"; do part "$name" | grep -oE -- '--test [a-z_]+' | cut -d' ' -f2; done; left_out | sed -E 's/ +#.*//'; } | LC_ALL=C sort)"
if ! diff <(echo "$files") <(echo "$named"); then
    echo "ci/miri.sh: the lines above differ: < is a file of tests, > is named in a part or among those that are left out"
    exit 1
fi
if [ "${1:-}" = --check ]; then
    hosted="$(sed -nE 's/^ *part: \[(.*)\]$/\1/p' .github/workflows/weekly.yml | tr -d ,)"
    [ "$hosted" = "${parts[*]}" ] || { echo "weekly.yml has the parts: $hosted; ci/miri.sh: ${parts[*]}"; exit 1; }
    exit 0
fi

[ $# -gt 0 ] || set -- "${parts[@]}"
for name; do part "$name" >/dev/null || { echo "no part $name; there are: ${parts[*]}"; exit 1; }; done
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "skipped: miri is not installed; try \`rustup toolchain install nightly --component miri,rust-src\`"
    exit 0
fi
for target in ${MIRI_TARGETS:-i686-unknown-linux-gnu s390x-unknown-linux-gnu}; do
    for name; do
        echo "--- miri, $target, $name"
        read -ra arguments <<<"$(part "$name")"
        MIRIFLAGS="-Zmiri-ignore-leaks" timeout --kill-after=10 3600 \
            cargo +nightly miri test --locked --target "$target" --target-dir target/miri "${arguments[@]}" ||
            { echo "failed, or took more than an hour: $target, $name"; exit 1; }
    done
done
