#!/usr/bin/env bash
# The lock-free engine: its own tests; the one reference on it; the tests of the other engine on it, built with `--cfg keyqueue_lock_free`, where a
# builder takes it wherever it may; and with --loom the models of the other engine on it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = --loom ]; then
    # Left out: other parts (lock, limits), what the engine refuses (several shards, orders, measuring), and
    #   a_getter_woken_in_vain_keeps_its_position   counts a wake-up for a key that another getter takes at the same time: here there is none
    #   drain_ends_all_threads, a_stream_ends_beside_a_drain_and_a_remove, a_long_queue_wakes_a_second_getter,
    #   timed_out_getter_forwards_wakeup, fewer_loops_meet_an_add   too many orders: minutes
    cd loom-tests
    export RUSTFLAGS="--cfg loom --cfg keyqueue_lock_free" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-../target/loom-lock-free}"
    export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}"
    exec cargo test --locked --test models -- --skip lock:: --skip limits:: --skip shards:: --skip order:: --skip measure:: \
        --skip a_getter_woken_in_vain_keeps_its_position --skip drain_ends_all_threads \
        --skip a_stream_ends_beside_a_drain_and_a_remove --skip a_long_queue_wakes_a_second_getter \
        --skip timed_out_getter_forwards_wakeup --skip fewer_loops_meet_an_add
fi

features=lock-free,metrics,serde,stream,tokio,tracing
cargo test --locked --quiet --features "$features" --test lock_free --test lock_free_memory
cargo test --locked --quiet --features "$features" --lib -- free:: key::
REFERENCE_ENGINE=lock-free cargo test --locked --quiet --features "$features" --test against_reference

# Left out by name: what needs priorities or the observer's order, and the drops of keys at once.
left_out=(
    a_key_whose_drop_panics_ends_its_cool_down        # keys are dropped later, and such a panic is caught
    a_key_that_panics_when_dropped_does_not_lose_the_driver
    a_queue_drops_all_keys_even_if_some_drops_panic
    a_panic_of_foreign_code_takes_nothing_or_loses_nothing
    user_code_that_always_panics_stops_no_loop        # the same, as a part of others
    eq_that_uses_its_queue_panics_in_a_debug_build    # here it may: no lock is held
    keys_of_several_shards_are_returned_by_priority_and_then_by_age # priorities
    keys_that_move_meanwhile_are_taken_out
    a_key_that_moves_meanwhile_is_one_key             # its node stays, so it is seen once
    priorities_have_series_of_their_own_and_sums_are_right
)
skips=()
for name in "${left_out[@]}"; do skips+=(--skip "$name"); done
export RUSTC_WORKSPACE_WRAPPER="$PWD/ci/rustc-lock-free" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/lock-free"
tests=()
for name in client_go cool_down debounce debug delays_driver delays_large delays_stress delays_turned gives_way handlers idle \
    limiters_in_use limits newest_decision no_threads observers oldest_queued queue remove same_twice seeds spawn_tasks stops streams take_where traces wait_idle worker_panics workers; do
    tests+=(--test "$name")
done
cargo test --locked --quiet --features "$features" "${tests[@]}" -- "${skips[@]}"
